/* SPDX-License-Identifier: Apache-2.0 */
/* http_get.c - see http_get.h. The connection ends with the answer, so the end of the connection is
 * the end of the body. */
#include "tools/http_get.h"
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define ANSWER_MAX     (64u << 20)
#define ANSWER_SECONDS 30
#define TOKEN_MAX      256

static int connect_unix(const char *path)
{
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	int fd, err;

	if (strlen(path) >= sizeof(un.sun_path))
		return -ENAMETOOLONG;
	strcpy(un.sun_path, path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&un, sizeof(un))) {
		err = -errno;
		close(fd);
		return err;
	}
	return fd;
}

static int connect_tcp(const char *addr)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
				 .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV},
			*ai = NULL;
	const char *colon = strrchr(addr, ':');
	char host[64];
	size_t n = colon ? (size_t)(colon - addr) : 0;
	int fd, err = 0;

	if (n && addr[0] == '[' && addr[n - 1] == ']') {
		addr++;
		n -= 2;
	}
	if (!colon || !n || n >= sizeof(host))
		return -EINVAL;
	memcpy(host, addr, n);
	host[n] = 0;
	if (getaddrinfo(host, colon + 1, &hints, &ai))
		return -EINVAL;
	fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, ai->ai_addr, ai->ai_addrlen))
		err = -errno;
	freeaddrinfo(ai);
	if (err && fd >= 0)
		close(fd);
	return err ? err : fd;
}

static int connect_any(const char *addr)
{
	struct timeval tv = {.tv_sec = ANSWER_SECONDS};
	int fd;

	if (!strncmp(addr, "http://", 7))
		addr += 7;
	if (!strncmp(addr, "unix:", 5))
		fd = connect_unix(addr + 5);
	else
		fd = addr[0] == '/' ? connect_unix(addr) : connect_tcp(addr);
	if (fd >= 0) {
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
		setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
	}
	return fd;
}

static int send_all(int fd, const char *p, size_t n)
{
	while (n) {
		ssize_t k = send(fd, p, n, MSG_NOSIGNAL);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return -errno;
		p += k;
		n -= (size_t)k;
	}
	return 0;
}

static int receive_all(int fd, char **out, size_t *len)
{
	size_t cap = 0;
	char *buf = NULL;

	*len = 0;
	for (;;) {
		ssize_t k;

		if (*len + 1 >= cap) {
			char *p =
				cap < ANSWER_MAX ? realloc(buf, cap = cap ? cap * 2 : 65536) : NULL;

			if (!p) {
				free(buf);
				return -ENOMEM;
			}
			buf = p;
		}
		k = recv(fd, buf + *len, cap - *len - 1, 0);
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0) {
			int err = errno == EAGAIN ? -ETIMEDOUT : -errno;

			free(buf);
			return err;
		}
		if (!k)
			break;
		*len += (size_t)k;
	}
	buf[*len] = 0;
	*out = buf;
	return 0;
}

/* Parses the answer. The body must have the length that the server named: a daemon that dies half
 * way has not answered. */
static int http_get_parse(char *text, size_t len, struct http_answer *out)
{
	char *body = strstr(text, "\r\n\r\n"), *line;
	long named = -1;

	if (!body || sscanf(text, "HTTP/1.%*d %d", &out->ha_status) != 1)
		return -EPROTO;
	for (line = strstr(text, "\r\n"); line && line < body; line = strstr(line + 2, "\r\n"))
		if (!strncasecmp(line + 2, "Content-Length:", 15))
			named = strtol(line + 17, NULL, 10);
	body += 4;
	out->ha_len = len - (size_t)(body - text);
	if (named >= 0 && out->ha_len < (size_t)named)
		return -EPROTO;
	out->ha_body = strdup(body);
	return out->ha_body ? 0 : -ENOMEM;
}

/* Makes the header for the token in the file that WEFT_ADMIN_TOKEN names; "" without a token. */
static int token_read(char out[TOKEN_MAX + 32])
{
	const char *path = getenv("WEFT_ADMIN_TOKEN");
	char text[TOKEN_MAX + 2] = "";
	FILE *f;

	*out = 0;
	if (!path || !*path)
		return 0;
	f = fopen(path, "re");
	if (!f || !fgets(text, sizeof(text), f)) {
		int err = f ? -EINVAL : -errno;

		fprintf(stderr, "WEFT_ADMIN_TOKEN: %s: %s\n", path,
			f ? "expected one line with a token" : strerror(-err));
		if (f)
			fclose(f);
		return err;
	}
	fclose(f);
	text[strcspn(text, "\r\n")] = 0;
	sprintf(out, "Authorization: Bearer %s\r\n", text);
	return 0;
}

int http_ask(const char *addr, const char *method, const char *target, const char *body,
	     struct http_answer *out)
{
	char *head = NULL, *text = NULL, auth[TOKEN_MAX + 32];
	size_t len;
	int fd, err = token_read(auth);

	if (err)
		return err;
	fd = connect_any(addr);
	if (fd < 0)
		return fd;
	if (asprintf(&head,
		     "%s %s HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n%sContent-Length: "
		     "%zu\r\n\r\n",
		     method, target, auth, body ? strlen(body) : 0) < 0) {
		close(fd);
		return -ENOMEM;
	}
	err = send_all(fd, head, strlen(head));
	if (!err && body)
		err = send_all(fd, body, strlen(body));
	if (!err)
		err = receive_all(fd, &text, &len);
	if (!err)
		err = http_get_parse(text, len, out);
	free(text);
	free(head);
	close(fd);
	return err;
}

char *http_encode(const char *text)
{
	char *out = malloc(strlen(text) * 3 + 1), *p = out;

	for (; out && *text; text++) {
		unsigned char c = (unsigned char)*text;

		if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
		    strchr("/-._~", c))
			*p++ = (char)c;
		else
			p += sprintf(p, "%%%02X", c);
	}
	if (out)
		*p = 0;
	return out;
}
