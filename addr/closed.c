/* SPDX-License-Identifier: Apache-2.0 */
/* closed.c - what this kernel still has of connections that ended, by sock_diag. See addr.h. */
#include "addr/addr.h"
#include "base/clock.h"
#include <arpa/inet.h>
#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/filter.h>
#include <linux/inet_diag.h>
#include <linux/sock_diag.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define FOUND	4096 /* of one list */
#define WAIT_MS 200  /* for an answer of the kernel, which gives it within the call */
/* Those that close() or the end of the process made of a connection. A peer's FIN makes CLOSE_WAIT,
 * which a program has. */
#define CLOSED                                                                                     \
	(1u << TCP_FIN_WAIT1 | 1u << TCP_FIN_WAIT2 | 1u << TCP_CLOSING | 1u << TCP_LAST_ACK |      \
	 1u << TCP_TIME_WAIT)
/* idiag_timer of TIME_WAIT, and of FIN_WAIT2 after the kernel gave the socket up: a small record of
 * it is left. The others are orphans, sockets without a program. */
#define SMALL 3

static struct mnl_socket *diag;
/* This kernel ends orphans. Linux before 6.11, 6.6.84 and 6.1.132 only takes what they send and
 * their timer: they answer for ever then. */
static bool orphans_end;

struct found {
	const struct addr_ip *f_ip;
	const uint16_t *f_ports;
	unsigned f_nports;
	struct {
		struct inet_diag_sockid id;
		bool small;
	} f_at[FOUND];
	unsigned f_n;
	bool f_orphans_stay, f_small_stay; /* the kernel cannot end these */
	bool f_stayed;			   /* there were some */
};

static const struct timeval most = {.tv_usec = WAIT_MS * 1000};

static int ask(uint16_t type, uint16_t flags, const struct inet_diag_req_v2 *req,
	       void (*fn)(void *arg, const struct nlmsghdr *h), void *arg)
{
	char buf[256];
	struct nlmsghdr *h = mnl_nlmsg_put_header(buf);
	int rc = diag ? 0 : addr_net_connect(&diag, NETLINK_SOCK_DIAG, WAIT_MS);

	if (rc < 0)
		return rc;
	h->nlmsg_type = type;
	h->nlmsg_flags = NLM_F_REQUEST | flags;
	memcpy(mnl_nlmsg_put_extra_header(h, sizeof *req), req, sizeof *req);
	rc = addr_net_talk(diag, h, fn, arg);
	if (rc == -ETIMEDOUT) {
		/* A list that is under way would keep the next one from coming. */
		mnl_socket_close(diag);
		diag = NULL;
	}
	return rc;
}

static const struct inet_diag_msg *diag_msg(const struct nlmsghdr *h)
{
	const struct inet_diag_msg *m = mnl_nlmsg_get_payload(h);

	return h->nlmsg_type == SOCK_DIAG_BY_FAMILY && mnl_nlmsg_get_payload_len(h) >= sizeof *m
		       ? m
		       : NULL;
}

/* ---- does this kernel end orphans? ---- */

static void orphan_found(void *arg, const struct nlmsghdr *h)
{
	const struct inet_diag_msg *m = diag_msg(h);

	if (m && m->idiag_state == TCP_FIN_WAIT1 && !m->idiag_inode)
		*(bool *)arg = true;
}

/* 1: it is there; 0: it is gone. */
static int orphan_there(const struct inet_diag_req_v2 *req)
{
	bool there = false;
	int rc = ask(SOCK_DIAG_BY_FAMILY, NLM_F_ACK, req, orphan_found, &there);

	return rc == -ENOENT ? 0 : rc < 0 ? rc : there ? 1 : -EPROTO;
}

/* Two ends of a connection over the loopback interface. */
static int pair(int *ours, int *peer, struct inet_diag_req_v2 *req)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct sockaddr_in from, who;
	socklen_t len = sizeof to, cookie_len = sizeof(uint64_t);
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), rc = -1;
	uint64_t cookie = 0;

	*ours = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (l >= 0 && *ours >= 0 && !bind(l, (struct sockaddr *)&to, sizeof to) && !listen(l, 1) &&
	    !getsockname(l, (struct sockaddr *)&to, &len) &&
	    !setsockopt(*ours, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most) &&
	    !setsockopt(l, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most) &&
	    !connect(*ours, (struct sockaddr *)&to, sizeof to) &&
	    !getsockname(*ours, (struct sockaddr *)&from, &len) &&
	    !getsockopt(*ours, SOL_SOCKET, SO_COOKIE, &cookie, &cookie_len)) {
		*peer = accept4(l, (struct sockaddr *)&who, &len, SOCK_CLOEXEC);
		rc = *peer < 0 ? -1 : 0;
	}
	rc = rc < 0 ? -errno : who.sin_port != from.sin_port ? -EAGAIN : 0;
	if (l >= 0)
		close(l);
	if (rc < 0)
		return rc;
	req->id.idiag_sport = from.sin_port;
	req->id.idiag_dport = to.sin_port;
	req->id.idiag_src[0] = req->id.idiag_dst[0] = to.sin_addr.s_addr;
	req->id.idiag_cookie[0] = (uint32_t)cookie;
	req->id.idiag_cookie[1] = (uint32_t)(cookie >> 32);
	return 0;
}

int addr_closed_open(void)
{
	struct inet_diag_req_v2 req = {
		.sdiag_family = AF_INET, .sdiag_protocol = IPPROTO_TCP, .idiag_states = UINT32_MAX};
	/* The peer hears nothing, so that a FIN to it gets no ACK. */
	struct sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
	const struct sock_fprog deaf = {.len = 1, .filter = &nothing};
	/* Its end is a RST, which is the end of an orphan of any kernel, at once. */
	const struct linger reset = {.l_onoff = 1};
	int ours = -1, peer = -1, rc = pair(&ours, &peer, &req);

	if (!rc && (setsockopt(peer, SOL_SOCKET, SO_LINGER, &reset, sizeof reset) < 0 ||
		    setsockopt(peer, SOL_SOCKET, SO_ATTACH_FILTER, &deaf, sizeof deaf) < 0))
		rc = -errno;
	if (ours >= 0)
		close(ours);
	if (!rc)
		rc = orphan_there(&req);
	if (rc > 0) {
		rc = ask(SOCK_DESTROY, NLM_F_ACK, &req, NULL, NULL);
		if (!rc)
			rc = orphan_there(&req);
		if (rc > 0)
			rc = -EOPNOTSUPP;
	} else if (!rc) {
		rc = -EAGAIN;
	}
	if (peer >= 0)
		close(peer);
	orphans_end = !rc;
	return rc;
}

/* ---- what has to end ---- */

static void found(void *arg, const struct nlmsghdr *h)
{
	struct found *f = arg;
	const struct inet_diag_msg *m = diag_msg(h);
	const size_t size = f->f_ip->ip_family == AF_INET ? 4 : 16;
	unsigned p = 0;
	bool small;

	/* An inode: a program has it, and said the end of what it sends (shutdown()). */
	if (!m || m->idiag_inode || memcmp(m->id.idiag_src, f->f_ip->ip_bytes, size) != 0)
		return;
	while (p < f->f_nports && htons(f->f_ports[p]) != m->id.idiag_sport)
		p++;
	if (p == f->f_nports)
		return;
	small = m->idiag_timer == SMALL;
	if (small ? f->f_small_stay : f->f_orphans_stay) {
		f->f_stayed = true;
	} else if (f->f_n < FOUND) {
		f->f_at[f->f_n].small = small;
		f->f_at[f->f_n++].id = m->id;
	}
}

/* Those of one list. */
static int end_some(struct found *f, struct inet_diag_req_v2 *req, int64_t until)
{
	int ended = 0, failed = 0;

	for (unsigned i = 0; i < f->f_n; i++) {
		bool *stay = f->f_at[i].small ? &f->f_small_stay : &f->f_orphans_stay;
		int rc;

		if (*stay)
			continue;
		if ((int64_t)clock_mono_ms() >= until)
			return -ETIME;
		/* It has the cookie: a connection that came since is another one. */
		req->id = f->f_at[i].id;
		rc = ask(SOCK_DESTROY, NLM_F_ACK, req, NULL, NULL);
		if (rc == -ETIMEDOUT)
			return rc;
		if (rc == -EOPNOTSUPP)
			*stay = f->f_stayed = true;
		else if (rc < 0 && rc != -ENOENT)
			failed = rc;
		else
			ended += !rc;
	}
	return failed ? failed : ended;
}

int addr_closed_end(const struct addr_ip *ip, const uint16_t *ports, unsigned nports, int64_t *left)
{
	static struct found f;
	struct inet_diag_req_v2 req = {.sdiag_family = ip->ip_family,
				       .sdiag_protocol = IPPROTO_TCP};
	struct inet_diag_sockid first = {0};
	const int64_t until = (int64_t)clock_mono_ms() + *left;
	int rc = 0, ended = 0;

	f.f_ip = ip;
	f.f_ports = ports;
	f.f_nports = nports;
	f.f_stayed = f.f_small_stay = false;
	f.f_orphans_stay = !orphans_end;
	do {
		if ((int64_t)clock_mono_ms() >= until) {
			rc = -ETIME;
			break;
		}
		f.f_n = 0;
		req.idiag_states = CLOSED;
		memset(&req.id, 0, sizeof req.id);
		if (nports == 1)
			req.id.idiag_sport = htons(ports[0]);
		rc = ask(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &req, found, &f);
		/* A list that changed meanwhile is as good: nothing new comes to it. */
		if (rc < 0 && rc != -EAGAIN)
			break;
		/* The kernel said that it had ended it. */
		if (f.f_n && !memcmp(&first, &f.f_at[0].id, sizeof first)) {
			rc = -EOPNOTSUPP;
			break;
		}
		first = f.f_at[0].id;
		rc = end_some(&f, &req, until);
		ended += rc > 0 ? rc : 0;
	} while (f.f_n == FOUND && rc >= 0);
	*left = until - (int64_t)clock_mono_ms();
	return rc < 0 ? rc : f.f_stayed ? -EOPNOTSUPP : ended;
}
