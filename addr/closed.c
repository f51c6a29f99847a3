/* SPDX-License-Identifier: Apache-2.0 */
/* closed.c - what this kernel still has of connections that ended, by sock_diag. See addr.h. */
#include "addr/addr.h"
#include <arpa/inet.h>
#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/inet_diag.h>
#include <linux/sock_diag.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#define FOUND  256 /* of one list */
#define ROUNDS 256 /* lists of a port */
/* Those that close() or the end of the process made of a connection. A peer's FIN makes CLOSE_WAIT,
 * which a program has. */
#define CLOSED                                                                                     \
	(1u << TCP_FIN_WAIT1 | 1u << TCP_FIN_WAIT2 | 1u << TCP_CLOSING | 1u << TCP_LAST_ACK |      \
	 1u << TCP_TIME_WAIT)

static struct mnl_socket *diag;

struct found {
	const struct addr_ip *f_ip;
	struct inet_diag_sockid f_ids[FOUND];
	unsigned f_n;
};

static int ask(uint16_t type, uint16_t flags, const struct inet_diag_req_v2 *req,
	       void (*fn)(void *arg, const struct nlmsghdr *h), void *arg)
{
	char buf[256];
	struct nlmsghdr *h = mnl_nlmsg_put_header(buf);

	h->nlmsg_type = type;
	h->nlmsg_flags = NLM_F_REQUEST | flags;
	memcpy(mnl_nlmsg_put_extra_header(h, sizeof *req), req, sizeof *req);
	return addr_net_talk(diag, h, fn, arg);
}

static void found(void *arg, const struct nlmsghdr *h)
{
	struct found *f = arg;
	const struct inet_diag_msg *m = mnl_nlmsg_get_payload(h);
	const size_t size = f->f_ip->ip_family == AF_INET ? 4 : 16;

	if (h->nlmsg_type == SOCK_DIAG_BY_FAMILY && mnl_nlmsg_get_payload_len(h) >= sizeof *m &&
	    f->f_n < FOUND && !memcmp(m->id.idiag_src, f->f_ip->ip_bytes, size))
		f->f_ids[f->f_n++] = m->id;
}

/* Those of one list. more: there may be others. */
static int end_some(const struct addr_ip *ip, uint16_t port, bool *more)
{
	static struct found f;
	struct inet_diag_req_v2 req = {.sdiag_family = ip->ip_family,
				       .sdiag_protocol = IPPROTO_TCP,
				       .idiag_states = CLOSED,
				       .id.idiag_sport = htons(port)};
	int rc, ended = 0, failed = 0;

	f.f_ip = ip;
	f.f_n = 0;
	rc = ask(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &req, found, &f);
	if (rc < 0 && rc != -EAGAIN)
		return rc;
	for (unsigned i = 0; i < f.f_n; i++) {
		/* It has the cookie: a connection that came since is another one. */
		req.id = f.f_ids[i];
		rc = ask(SOCK_DESTROY, NLM_F_ACK, &req, NULL, NULL);
		if (!rc)
			ended++;
		else if (rc != -ENOENT)
			failed = rc;
	}
	*more = f.f_n == FOUND;
	return failed ? failed : ended;
}

int addr_closed_end(const struct addr_ip *ip, const uint16_t *ports, unsigned nports)
{
	int rc = diag ? 0 : addr_net_connect(&diag, NETLINK_SOCK_DIAG), ended = 0;

	for (unsigned p = 0; p < nports && rc >= 0; p++) {
		bool more = true;

		for (unsigned round = 0; more && round < ROUNDS && rc >= 0; round++) {
			rc = end_some(ip, ports[p], &more);
			ended += rc > 0 ? rc : 0;
		}
	}
	return rc < 0 ? rc : ended;
}
