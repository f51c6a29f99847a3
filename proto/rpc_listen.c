/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_listen.c - listening sockets: accepts connections and deals them to the loops. */
#include "base/log.h"
#include "proto/rpc_int.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

#define LISTEN_BACKLOG	4096
#define BUSY_TRIES	100 /* 10 ms each */
#define LISTEN_RETRY_MS 100
#define HELD_MAX	1024

/* A connection that waits for the loop to run. */
struct held {
	int h_fd;
	socklen_t h_peerlen;
	struct sockaddr_storage h_peer;
};

struct rpc_listener {
	struct loop *ls_loop;
	int ls_fd;
	uint16_t ls_port;
	bool ls_closing, ls_open;
	struct rpc_service ls_svc;
	struct loop **ls_loops;
	unsigned ls_nloops, ls_next;
	struct loop_io ls_io, ls_cancel_io;
	unsigned ls_inflight;
	struct loop_timer ls_retry;
	struct sockaddr_storage ls_peer;
	socklen_t ls_peerlen;
	struct held *ls_held; /* NULL: none was ever kept */
	unsigned ls_nheld;
};

static void listener_free(struct rpc_listener *ls)
{
	if (ls->ls_fd >= 0)
		close(ls->ls_fd);
	for (unsigned i = 0; i < ls->ls_nheld; i++)
		close(ls->ls_held[i].h_fd);
	free(ls->ls_held);
	free(ls->ls_loops);
	free(ls);
}

static void accept_arm(struct rpc_listener *ls)
{
	struct io_uring_sqe *sqe = loop_sqe(ls->ls_loop);

	ls->ls_peerlen = sizeof ls->ls_peer;
	io_uring_prep_accept(sqe, ls->ls_fd, (struct sockaddr *)&ls->ls_peer, &ls->ls_peerlen,
			     SOCK_CLOEXEC);
	loop_arm(sqe, &ls->ls_io);
	ls->ls_inflight++;
}

static void accept_retry(struct loop_timer *t)
{
	accept_arm(caa_container_of(t, struct rpc_listener, ls_retry));
}

static struct loop *loop_for(struct rpc_listener *ls, int fd)
{
	struct sockaddr_storage local;
	socklen_t len = sizeof local;

	if (ls->ls_svc.rs_deal && !getsockname(fd, (struct sockaddr *)&local, &len))
		return ls->ls_loops[ls->ls_svc.rs_deal((struct sockaddr *)&local,
						       ls->ls_svc.rs_deal_arg) %
				    ls->ls_nloops];
	return ls->ls_loops[ls->ls_next++ % ls->ls_nloops];
}

static void accepted(struct rpc_listener *ls, int fd)
{
	struct loop *l = loop_for(ls, fd);
	struct rpc_conn *c = rpc_conn_new(fd, l, &ls->ls_svc, &ls->ls_peer);

	if (!c) {
		close(fd);
		return;
	}
	metric_add(rpc_m_accepted, 1);
	rpc_conn_start(c);
}

/* Drops those whose peer has gone. */
static void held_look(struct rpc_listener *ls)
{
	struct pollfd p[HELD_MAX];
	unsigned kept = 0;

	for (unsigned i = 0; i < ls->ls_nheld; i++)
		p[i] = (struct pollfd){.fd = ls->ls_held[i].h_fd, .events = POLLRDHUP};
	if (poll(p, ls->ls_nheld, 0) <= 0)
		return;
	for (unsigned i = 0; i < ls->ls_nheld; i++)
		if (p[i].revents)
			close(p[i].fd);
		else
			ls->ls_held[kept++] = ls->ls_held[i];
	ls->ls_nheld = kept;
}

static bool held_room(struct rpc_listener *ls)
{
	if (ls->ls_nheld == HELD_MAX)
		held_look(ls);
	return ls->ls_nheld < HELD_MAX;
}

unsigned rpc_listener_hold(struct rpc_listener *ls)
{
	if (!ls->ls_held)
		ls->ls_held = calloc(HELD_MAX, sizeof(*ls->ls_held));
	if (!ls->ls_held)
		return 0;
	/* This accept must not wait, and that of the loop must. */
	fcntl(ls->ls_fd, F_SETFL, O_NONBLOCK);
	for (unsigned n = 0; n < LISTEN_BACKLOG && held_room(ls); n++) {
		struct held h = {.h_peerlen = sizeof(h.h_peer)};

		h.h_fd = accept4(ls->ls_fd, (struct sockaddr *)&h.h_peer, &h.h_peerlen,
				 SOCK_CLOEXEC);
		if (h.h_fd < 0)
			break;
		ls->ls_held[ls->ls_nheld++] = h;
	}
	fcntl(ls->ls_fd, F_SETFL, 0);
	held_look(ls);
	return ls->ls_nheld;
}

void rpc_listener_unhold(struct rpc_listener *ls)
{
	for (unsigned i = 0; i < ls->ls_nheld; i++) {
		ls->ls_peer = ls->ls_held[i].h_peer;
		ls->ls_peerlen = ls->ls_held[i].h_peerlen;
		accepted(ls, ls->ls_held[i].h_fd);
	}
	free(ls->ls_held);
	ls->ls_held = NULL;
	ls->ls_nheld = 0;
}

static void accept_done(struct loop_io *io, int res, uint32_t flags)
{
	struct rpc_listener *ls = caa_container_of(io, struct rpc_listener, ls_io);

	(void)flags;
	ls->ls_inflight--;
	if (ls->ls_closing) {
		if (res >= 0)
			close(res);
		if (!ls->ls_inflight)
			listener_free(ls);
		return;
	}
	if (res >= 0)
		accepted(ls, res);
	switch (res) {
	case -EMFILE:
	case -ENFILE:
	case -ENOMEM:
	case -ENOBUFS:
		/* The peer waits in the backlog. To retry at once would only spin. */
		log_warn("rpc: accept: %s", strerror(-res));
		loop_timer_start(ls->ls_loop, &ls->ls_retry, LISTEN_RETRY_MS);
		break;
	case -EBADF:
	case -EINVAL:
	case -ENOTSOCK:
		log_fatal("rpc: accept: %s", strerror(-res));
	default:
		accept_arm(ls);
	}
}

static void rpc_listen_cancel_done(struct loop_io *io, int res, uint32_t flags)
{
	struct rpc_listener *ls = caa_container_of(io, struct rpc_listener, ls_cancel_io);

	(void)res;
	(void)flags;
	if (!--ls->ls_inflight)
		listener_free(ls);
}

void rpc_listener_close(struct rpc_listener *ls)
{
	struct io_uring_sqe *sqe;

	ls->ls_closing = true;
	loop_timer_stop(ls->ls_loop, &ls->ls_retry);
	if (!ls->ls_inflight) {
		listener_free(ls);
		return;
	}
	sqe = loop_sqe(ls->ls_loop);
	io_uring_prep_cancel(sqe, &ls->ls_io, 0);
	loop_arm(sqe, &ls->ls_cancel_io);
	ls->ls_inflight++;
}

static int bound_socket(const struct sockaddr *addr, socklen_t len)
{
	int one = 1, err, fd;

	if (addr->sa_family != AF_INET && addr->sa_family != AF_INET6)
		return -EAFNOSUPPORT;
	fd = socket(addr->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	/* FREEBIND: the service address of an instance that moves may not be here yet. */
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) ||
	    (addr->sa_family == AF_INET &&
	     setsockopt(fd, IPPROTO_IP, IP_FREEBIND, &one, sizeof one)) ||
	    (addr->sa_family == AF_INET6 &&
	     (setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one) ||
	      setsockopt(fd, IPPROTO_IPV6, IPV6_FREEBIND, &one, sizeof one))) ||
	    bind(fd, addr, len)) {
		err = -errno;
		close(fd);
		return err;
	}
	return fd;
}

/* A listener whose process ended a moment ago may still hold the port: the kernel ends its ring's
 * accept late. So retry for a while. */
static int bound_in_time(const struct sockaddr *addr, socklen_t len)
{
	int fd;

	for (int tries = 0; (fd = bound_socket(addr, len)) == -EADDRINUSE && tries < BUSY_TRIES;
	     tries++)
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	return fd;
}

static int listener_new(struct rpc_listener **out, struct loop *l, int fd,
			const struct rpc_service *svc, struct loop *const *loops, unsigned nloops)
{
	struct sockaddr_storage ss;
	socklen_t sslen = sizeof ss;
	struct rpc_listener *ls;

	if (!nloops)
		return -EINVAL;
	if (getsockname(fd, (struct sockaddr *)&ss, &sslen))
		return -errno;
	ls = calloc(1, sizeof *ls);
	if (!ls)
		return -ENOMEM;
	ls->ls_loops = malloc(nloops * sizeof *loops);
	if (!ls->ls_loops) {
		free(ls);
		return -ENOMEM;
	}
	memcpy(ls->ls_loops, loops, nloops * sizeof *loops);
	ls->ls_nloops = nloops;
	ls->ls_loop = l;
	ls->ls_fd = fd;
	ls->ls_port = ntohs(ss.ss_family == AF_INET ? ((struct sockaddr_in *)&ss)->sin_port
						    : ((struct sockaddr_in6 *)&ss)->sin6_port);
	ls->ls_svc = *svc;
	ls->ls_io.lio_done = accept_done;
	ls->ls_cancel_io.lio_done = rpc_listen_cancel_done;
	ls->ls_retry.t_fire = accept_retry;
	*out = ls;
	return 0;
}

int rpc_bind(struct rpc_listener **out, struct loop *l, const struct sockaddr *addr, socklen_t len,
	     const struct rpc_service *svc, struct loop *const *loops, unsigned nloops)
{
	int fd = bound_in_time(addr, len), err;

	if (fd < 0)
		return fd;
	err = listener_new(out, l, fd, svc, loops, nloops);
	if (err)
		close(fd);
	return err;
}

int rpc_listener_open(struct rpc_listener *ls)
{
	if (ls->ls_open)
		return 0;
	if (listen(ls->ls_fd, LISTEN_BACKLOG))
		return -errno;
	ls->ls_open = true;
	accept_arm(ls);
	return 0;
}

int rpc_listen(struct rpc_listener **out, struct loop *l, const struct sockaddr *addr,
	       socklen_t len, const struct rpc_service *svc, struct loop *const *loops,
	       unsigned nloops)
{
	struct rpc_listener *ls;
	int err = rpc_bind(&ls, l, addr, len, svc, loops, nloops);

	if (err)
		return err;
	err = rpc_listener_open(ls);
	if (err)
		listener_free(ls);
	else
		*out = ls;
	return err;
}

int rpc_listen_fd(struct rpc_listener **out, struct loop *l, int fd, const struct rpc_service *svc,
		  struct loop *const *loops, unsigned nloops)
{
	int err = listener_new(out, l, fd, svc, loops, nloops);

	if (err)
		return err;
	(*out)->ls_open = true;
	accept_arm(*out);
	return 0;
}

uint16_t rpc_listener_port(const struct rpc_listener *ls)
{
	return ls->ls_port;
}
