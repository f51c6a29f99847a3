/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_floor.c - what a server of requests and replies cannot go below: sockets alone, or sockets
 * and a file.
 *
 *   tcp_floor serve PORT [FILE]    until it is ended
 *   tcp_floor call HOST PORT REQUEST REPLY COUNT WINDOW RANGE
 *
 * The client sends COUNT requests, WINDOW of them unanswered. Sizes are of payload, one of the two
 * 0; each message has HEAD bytes besides, about as many as an NFSv3 header. With FILE, a reply is
 * read from there, at places below RANGE (0: one after another), or a request is written there, and
 * synced in the end. A thread and a buffer for each connection, calls that block.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HEAD 128u
#define MOST ((1u << 20) + HEAD)

/* What a connection begins with, and the head of each request. */
struct head {
	uint64_t h_request, h_reply, h_off;
	uint8_t h_rest[HEAD - 24];
};
_Static_assert(sizeof(struct head) == HEAD, "a head is a head");

static uint8_t *buffer_new(void)
{
	void *p;

	if (posix_memalign(&p, 4096, MOST)) {
		fprintf(stderr, "tcp_floor: no memory\n");
		exit(1);
	}
	return memset(p, 0, MOST);
}

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "tcp_floor: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* False: the peer has ended. */
static int get(int fd, void *p, size_t n)
{
	size_t have = 0;

	while (have < n) {
		ssize_t got = recv(fd, (uint8_t *)p + have, n - have, MSG_WAITALL);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return 0;
		have += (size_t)got;
	}
	return 1;
}

static int put(int fd, const void *p, size_t n)
{
	size_t sent = 0;

	while (sent < n) {
		ssize_t got = send(fd, (const uint8_t *)p + sent, n - sent, MSG_NOSIGNAL);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return 0;
		sent += (size_t)got;
	}
	return 1;
}

static void no_delay(int fd)
{
	int one = 1;

	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one))
		die("TCP_NODELAY");
}

static void serve_one(int fd, int file, uint8_t *buffer)
{
	struct head first, *h = (struct head *)buffer;
	uint64_t request, reply;

	if (!get(fd, &first, sizeof first))
		return;
	request = be64toh(first.h_request);
	reply = be64toh(first.h_reply);
	if (request > MOST - HEAD || reply > MOST - HEAD)
		return;
	while (get(fd, buffer, HEAD + request)) {
		off_t off = (off_t)be64toh(h->h_off);

		if (file >= 0 && request &&
		    pwrite(file, buffer + HEAD, request, off) != (ssize_t)request)
			die("write");
		if (file >= 0 && reply && pread(file, buffer + HEAD, reply, off) != (ssize_t)reply)
			die("read");
		if (!put(fd, buffer, HEAD + reply))
			return;
	}
	if (file >= 0 && request && fdatasync(file))
		die("sync");
}

struct conn {
	int cn_fd, cn_file;
};

static void *conn_run(void *arg)
{
	struct conn *cn = arg;
	uint8_t *buffer = buffer_new();

	serve_one(cn->cn_fd, cn->cn_file, buffer);
	close(cn->cn_fd);
	free(buffer);
	free(cn);
	return NULL;
}

static void serve(const char *port, const char *path)
{
	struct addrinfo hints = {.ai_family = AF_INET,
				 .ai_socktype = SOCK_STREAM,
				 .ai_flags = AI_PASSIVE},
			*a;
	int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1, one = 1, fd;

	if (path && file < 0)
		die(path);
	if (getaddrinfo(NULL, port, &hints, &a))
		die(port);
	fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (fd < 0 || bind(fd, a->ai_addr, a->ai_addrlen) || listen(fd, 64))
		die("listen");
	freeaddrinfo(a);
	for (;;) {
		struct conn *cn = malloc(sizeof(*cn));
		pthread_t thread;

		if (!cn)
			die("connection");
		*cn = (struct conn){accept(fd, NULL, NULL), file};
		if (cn->cn_fd < 0)
			die("accept");
		no_delay(cn->cn_fd);
		errno = pthread_create(&thread, NULL, conn_run, cn);
		if (errno || (errno = pthread_detach(thread)))
			die("thread");
	}
}

static int call(char **argv)
{
	struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *a;
	uint64_t request = strtoull(argv[2], NULL, 0), reply = strtoull(argv[3], NULL, 0),
		 count = strtoull(argv[4], NULL, 0), window = strtoull(argv[5], NULL, 0),
		 range = strtoull(argv[6], NULL, 0), size = request + reply;
	uint8_t *buffer = buffer_new();
	struct head *h = (struct head *)buffer;
	int fd;

	if (request > MOST - HEAD || reply > MOST - HEAD || !size ||
	    getaddrinfo(argv[0], argv[1], &hints, &a))
		die("arguments");
	fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, a->ai_addr, a->ai_addrlen))
		die("connect");
	freeaddrinfo(a);
	no_delay(fd);
	h->h_request = htobe64(request);
	h->h_reply = htobe64(reply);
	if (!put(fd, buffer, HEAD))
		die("send");
	for (uint64_t sent = 0, got = 0; got < count; got++) {
		for (; sent < count && sent - got < window; sent++) {
			uint64_t at = range ? (uint64_t)random() % (range / size) : sent;

			h->h_off = htobe64(at * size);
			if (!put(fd, buffer, HEAD + request))
				die("send");
		}
		if (!get(fd, buffer, HEAD + reply))
			die("receive");
	}
	/* The server has synced when it closes. */
	shutdown(fd, SHUT_WR);
	fd = get(fd, buffer, 1);
	free(buffer);
	return fd;
}

int main(int argc, char **argv)
{
	if (argc >= 3 && argc <= 4 && !strcmp(argv[1], "serve"))
		serve(argv[2], argv[3]);
	if (argc == 9 && !strcmp(argv[1], "call"))
		return call(argv + 2);
	fprintf(stderr, "usage: tcp_floor serve PORT [FILE]\n       tcp_floor call HOST PORT "
			"REQUEST REPLY COUNT WINDOW RANGE\n");
	return 2;
}
