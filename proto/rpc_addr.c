/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_addr.c - converts addresses to text and back: universal addresses (RFC 5665 section 5.2.3)
 * and the addresses of configuration files. */
#include "proto/rpc.h"
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>

static int rpc_addr_addr_make(bool v6, const char *host, uint16_t port,
			      struct sockaddr_storage *out, socklen_t *len)
{
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)out;
	struct sockaddr_in *in = (struct sockaddr_in *)out;

	memset(out, 0, sizeof *out);
	if (v6) {
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons(port);
		*len = sizeof *in6;
		return inet_pton(AF_INET6, host, &in6->sin6_addr) == 1 ? 0 : -EINVAL;
	}
	in->sin_family = AF_INET;
	in->sin_port = htons(port);
	*len = sizeof *in;
	return inet_pton(AF_INET, host, &in->sin_addr) == 1 ? 0 : -EINVAL;
}

/* Parses digits only, up to max, and advances *p behind them. */
static int rpc_addr_number(const char **p, uint32_t max, uint32_t *out)
{
	uint32_t v = 0;
	const char *s = *p;

	if (*s < '0' || *s > '9')
		return -EINVAL;
	for (; *s >= '0' && *s <= '9'; s++) {
		v = v * 10 + (uint32_t)(*s - '0');
		if (v > max)
			return -EINVAL;
	}
	*p = s;
	*out = v;
	return 0;
}

int rpc_uaddr(const struct sockaddr *addr, char *netid, size_t nlen, char *uaddr, size_t ulen)
{
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)addr;
	const struct sockaddr_in *in = (const struct sockaddr_in *)addr;
	bool v6 = addr->sa_family == AF_INET6;
	char host[INET6_ADDRSTRLEN];
	unsigned port;

	if (!v6 && addr->sa_family != AF_INET)
		return -EAFNOSUPPORT;
	port = ntohs(v6 ? in6->sin6_port : in->sin_port);
	if (!inet_ntop(addr->sa_family, v6 ? (const void *)&in6->sin6_addr : &in->sin_addr, host,
		       sizeof host))
		return -errno;
	if (snprintf(netid, nlen, "%s", v6 ? "tcp6" : "tcp") >= (int)nlen ||
	    snprintf(uaddr, ulen, "%s.%u.%u", host, port >> 8, port & 255) >= (int)ulen)
		return -ENOSPC;
	return 0;
}

int rpc_uaddr_parse(const char *netid, const char *uaddr, struct sockaddr_storage *out,
		    socklen_t *len)
{
	char host[INET6_ADDRSTRLEN];
	const char *lo, *hi, *p;
	uint32_t h, l;
	bool v6;

	if (!strcmp(netid, "tcp6") || !strcmp(netid, "rdma6"))
		v6 = true;
	else if (!strcmp(netid, "tcp") || !strcmp(netid, "rdma"))
		v6 = false;
	else
		return -EPROTONOSUPPORT;
	lo = strrchr(uaddr, '.');
	hi = lo ? memrchr(uaddr, '.', (size_t)(lo - uaddr)) : NULL;
	if (!hi || (size_t)(hi - uaddr) >= sizeof host)
		return -EINVAL;
	p = hi + 1;
	if (rpc_addr_number(&p, 255, &h) || p != lo)
		return -EINVAL;
	p = lo + 1;
	if (rpc_addr_number(&p, 255, &l) || *p)
		return -EINVAL;
	memcpy(host, uaddr, (size_t)(hi - uaddr));
	host[hi - uaddr] = 0;
	return rpc_addr_addr_make(v6, host, (uint16_t)(h << 8 | l), out, len);
}

int rpc_addr_parse(const char *text, uint16_t defport, struct sockaddr_storage *out, socklen_t *len)
{
	char host[INET6_ADDRSTRLEN];
	const char *end, *p;
	uint32_t port = defport;
	bool v6 = *text == '[';
	size_t n;

	if (v6) {
		end = strchr(++text, ']');
		if (!end)
			return -EINVAL;
		p = end + 1;
	} else {
		p = end = strchr(text, ':') ? strchr(text, ':') : text + strlen(text);
		/* A bare IPv6 address has no port. */
		if (*p && strchr(p + 1, ':')) {
			v6 = true;
			p = end = text + strlen(text);
		}
	}
	n = (size_t)(end - text);
	if (n >= sizeof host)
		return -EINVAL;
	memcpy(host, text, n);
	host[n] = 0;
	if (*p == ':') {
		p++;
		if (rpc_addr_number(&p, 65535, &port))
			return -EINVAL;
	}
	return *p ? -EINVAL : rpc_addr_addr_make(v6, host, (uint16_t)port, out, len);
}

void rpc_addr_copy(struct sockaddr_storage *ss, const struct sockaddr *sa)
{
	memset(ss, 0, sizeof *ss);
	memcpy(ss, sa,
	       sa->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
					 : sizeof(struct sockaddr_in));
}

void rpc_addr_text(const struct sockaddr *addr, char *text, size_t len)
{
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)addr;
	const struct sockaddr_in *in = (const struct sockaddr_in *)addr;
	bool v6 = addr->sa_family == AF_INET6;
	char host[INET6_ADDRSTRLEN] = "";

	inet_ntop(addr->sa_family, v6 ? (const void *)&in6->sin6_addr : &in->sin_addr, host,
		  sizeof host);
	snprintf(text, len, v6 ? "[%s]:%u" : "%s:%u", host,
		 ntohs(v6 ? in6->sin6_port : in->sin_port));
}
