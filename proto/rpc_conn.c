/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_conn.c - a connection's life, receiving and sending.
 *
 * At most one receive and one send are under way. The object lives while anything refers to it
 * (rcn_refs). rcn_dead says that nothing may be dispatched or sent any more. rcn_ended says that
 * all users have been notified.
 */
#include "base/clock.h"
#include "base/log.h"
#include "proto/rpc_int.h"
#include <assert.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <sys/random.h>
#include <unistd.h>

struct metric *rpc_m_garbage, *rpc_m_bad_replies, *rpc_m_rejected, *rpc_m_calls, *rpc_m_accepted,
	*rpc_m_rx, *rpc_m_tx;

/* With more calls in hand, a connection goes on in its own receive buffer, which holds them. */
#define FEW_CALLS 2u
#define SEND_NOW  (32u << 10) /* bytes; less than what rpc_zc.c sends without a copy */

static _Atomic uint64_t conn_ids;
static _Atomic int64_t conns_open;

static void recv_done(struct loop_io *io, int res, uint32_t flags);
static void send_arm(struct rpc_conn *c);
static void send_done(struct loop_io *io, int res, uint32_t flags);
static void conn_start_msg(struct loop_msg *m);
static void conn_end_msg(struct loop_msg *m);

static double open_conns(void *arg)
{
	(void)arg;
	return (double)atomic_load(&conns_open);
}

/* Runs before main: metrics must exist before any thread runs. */
__attribute__((constructor)) static void rpc_metrics_make(void)
{
	rpc_m_garbage = metric_counter("weft_rpc_garbage_total",
				       "Connections ended because of bytes that are no RPC.", "");
	rpc_m_bad_replies = metric_counter("weft_rpc_bad_replies_total",
					   "Replies that matched no call or were malformed.", "");
	rpc_m_rejected = metric_counter("weft_rpc_rejected_total",
					"Calls rejected before they reached a service.", "");
	rpc_m_calls = metric_counter("weft_rpc_calls_total", "Calls received.", "");
	rpc_m_accepted = metric_counter("weft_rpc_accepted_total", "Connections accepted.", "");
	rpc_m_rx = metric_counter("weft_rpc_received_bytes_total",
				  "Bytes received on TCP connections.", "");
	rpc_m_tx =
		metric_counter("weft_rpc_sent_bytes_total", "Bytes sent on TCP connections.", "");
	metric_gauge("weft_rpc_connections", "TCP connections open.", "", open_conns, NULL);
}

/* ---- per loop ---- */

static atomic_uint n_loops;

unsigned rpc_loops(void)
{
	return atomic_load_explicit(&n_loops, memory_order_relaxed);
}

static void rpc_conn_kick_msg(struct loop_msg *m)
{
	caa_container_of(m, struct rpc_loop, rl_kick)->rl_kicked = false;
}

static void rpc_loop_drop(void *p)
{
	struct rpc_loop *rl = p;

	rpc_calls_drain(rl);
	free(rl->rl_stage);
	rpc_gate_drop(rl);
	rpc_hosts_drop(rl);
	rpc_any_drop(rl);
	rpc_pool_drain(&rl->rl_pool);
	atomic_fetch_sub_explicit(&n_loops, 1, memory_order_relaxed);
	free(rl);
}

struct rpc_loop *rpc_loop_get(struct loop *l)
{
	struct rpc_loop *rl = loop_local(l, LOOP_SLOT_RPC);

	if (rl)
		return rl;
	rl = calloc(1, sizeof *rl);
	if (!rl)
		log_fatal("rpc: out of memory");
	rl->rl_loop = l;
	rl->rl_kick.m_run = rpc_conn_kick_msg;
	atomic_fetch_add_explicit(&n_loops, 1, memory_order_relaxed);
	loop_set_local(l, LOOP_SLOT_RPC, rl, rpc_loop_drop);
	return rl;
}

/* ---- life ---- */

void rpc_socket_tune(int fd)
{
	static const struct {
		int level, name, value;
	} opts[] = {
		{IPPROTO_TCP, TCP_NODELAY, 1},
		/* Keep idle connections, but not those whose peer is gone. */
		{SOL_SOCKET, SO_KEEPALIVE, 1},
		{IPPROTO_TCP, TCP_KEEPIDLE, 60},
		{IPPROTO_TCP, TCP_KEEPINTVL, 10},
		{IPPROTO_TCP, TCP_KEEPCNT, 6},
		/* A peer that takes no more data must not keep its replies in memory for ever. */
		{IPPROTO_TCP, TCP_USER_TIMEOUT, 60000},
	};

	for (size_t i = 0; i < sizeof opts / sizeof opts[0]; i++)
		if (setsockopt(fd, opts[i].level, opts[i].name, &opts[i].value,
			       sizeof opts[i].value))
			log_debug("rpc: socket option %d: %s", opts[i].name, strerror(errno));
}

struct rpc_conn *rpc_conn_new(int fd, struct loop *loop, const struct rpc_service *svc,
			      const struct sockaddr_storage *peer)
{
	struct rpc_conn *c = calloc(1, sizeof *c);

	if (!c)
		return NULL;
	c->rcn_id = atomic_fetch_add(&conn_ids, 1) + 1;
	c->rcn_loop = loop;
	c->rcn_fd = fd;
	c->rcn_refs = 1;
	c->rcn_peer = *peer;
	if (svc)
		c->rcn_svc = *svc;
	if (!c->rcn_svc.rs_max_record)
		c->rcn_svc.rs_max_record = RPC_DEFAULT_MAX_RECORD;
	c->rcn_outs_end = &c->rcn_outs;
	c->rcn_recv_io.lio_done = recv_done;
	c->rcn_send_io.lio_done = send_done;
	c->rcn_start_msg.m_run = conn_start_msg;
	c->rcn_end_msg.m_run = conn_end_msg;
	if (getrandom(&c->rcn_xid, sizeof c->rcn_xid, GRND_NONBLOCK) < 0)
		c->rcn_xid = (uint32_t)c->rcn_id;
	if (fd < 0) {
		c->rcn_is_rdma = true;
	} else {
		rpc_socket_tune(fd);
		atomic_fetch_add(&conns_open, 1);
	}
	return c;
}

static void outs_free(struct rpc_conn *c)
{
	while (c->rcn_outs) {
		struct rpc_out *o = c->rcn_outs;

		c->rcn_outs = o->o_next;
		rpc_out_release(o);
	}
	c->rcn_outs_end = &c->rcn_outs;
	c->rcn_queued = c->rcn_sent = 0;
}

/* The kernel keeps the data that the peer has not acknowledged for as long as it tries to deliver
 * it, mostly a minute. If that data is in our pages, SO_LINGER makes the kernel drop it at once. */
static void socket_close(struct rpc_conn *c)
{
	static const struct linger now = {1, 0};

	if (c->rcn_pins && setsockopt(c->rcn_fd, SOL_SOCKET, SO_LINGER, &now, sizeof now))
		log_debug("rpc: SO_LINGER: %s", strerror(errno));
	close(c->rcn_fd);
	c->rcn_fd = -1;
	atomic_fetch_sub(&conns_open, 1);
}

/* Closes the socket when no I/O is under way: except for pages of replies, the kernel then has
 * nothing of ours. */
static void conn_close_fd(struct rpc_conn *c)
{
	if (!c->rcn_ended || c->rcn_receiving || c->rcn_sending || c->rcn_closed)
		return;
	if (c->rcn_fd >= 0)
		socket_close(c);
	c->rcn_closed = true;
	c->rcn_refs++; /* the calls freed here hold references as well */
	rpc_tls_free(c);
	rpc_rx_free(&c->rcn_rx);
	outs_free(c);
	rpc_conn_put(c);
}

void rpc_conn_put(struct rpc_conn *c)
{
	assert(c->rcn_refs);
	if (--c->rcn_refs)
		return;
	assert(c->rcn_closed);
	rpc_host_leave(c);
	free(c->rcn_reqs);
	free(c);
}

void rpc_conn_fail(struct rpc_conn *c, int err)
{
	if (c->rcn_dead)
		return;
	c->rcn_dead = true;
	c->rcn_err = err;
	if (c->rcn_t)
		rpc_tls_bye(c);
	if (c->rcn_rdma)
		rpc_rdma_end(c);
	else if (c->rcn_fd >= 0)
		shutdown(c->rcn_fd, SHUT_RDWR); /* ends the I/O under way */
	c->rcn_refs++;
	loop_post(c->rcn_loop, &c->rcn_end_msg);
}

void rpc_conn_released(struct rpc_conn *c)
{
	c->rcn_rdma = NULL;
	c->rcn_receiving = false;
	conn_close_fd(c);
	rpc_conn_put(c);
}

void rpc_conn_close(struct rpc_conn *c)
{
	rpc_conn_fail(c, -ECONNRESET);
}

static void conn_end_msg(struct loop_msg *m)
{
	struct rpc_conn *c = caa_container_of(m, struct rpc_conn, rcn_end_msg);

	if (c->rcn_host)
		rpc_host_quit(c);
	rpc_half_quit(c);
	rpc_gate_quit(c);
	rpc_quiet_quit(c);
	rpc_req_lost(c);
	if (c->rcn_opened && c->rcn_svc.rs_closed)
		c->rcn_svc.rs_closed(c, c->rcn_svc.rs_arg);
	if (c->rcn_client)
		rpc_client_lost(c->rcn_client, c->rcn_err);
	c->rcn_client = NULL;
	c->rcn_ended = true;
	conn_close_fd(c);
	rpc_conn_put(c);
	rpc_conn_put(c); /* the reference of rpc_conn_new */
}

/* ---- receiving ---- */

/* While calls of ours are out, their replies must get in: the peer's calls may wait for just these
 * replies (a recall). */
static unsigned most_calls(const struct rpc_conn *c)
{
	return c->rcn_nreqs ? 4 * RPC_MAX_CALLS : RPC_MAX_CALLS;
}

/* A quarter of what is left: however many clients do not read their replies, those that do find
 * something left. A connection that holds less than RPC_LEAST_HELD never stops. So a connection
 * that has stopped holds something, and goes on when that ends. */
static size_t most_held(const struct rpc_conn *c)
{
	size_t all = c->rcn_rl->rl_all_held,
	       most = all < RPC_MAX_ALL_HELD ? (RPC_MAX_ALL_HELD - all) / 4 : 0;

	if (most > RPC_MAX_HELD)
		most = RPC_MAX_HELD;
	if (most < RPC_LEAST_HELD)
		most = RPC_LEAST_HELD;
	return c->rcn_nreqs ? 4 * most : most;
}

static bool conn_full(struct rpc_conn *c)
{
	return c->rcn_ncalls >= most_calls(c) || c->rcn_queued >= RPC_MAX_QUEUED ||
	       c->rcn_held >= most_held(c) || rpc_host_full(c);
}

static int recv_space(struct rpc_conn *c, void **p, size_t *n, bool *all)
{
	if (c->rcn_ncalls <= FEW_CALLS)
		rpc_rx_leave(&c->rcn_rx);
	return (c->rcn_alone || !rpc_any_has(c->rcn_rl) ? rpc_rx_space
							: rpc_rx_space_any)(&c->rcn_rx, p, n, all);
}

static void recv_arm(struct rpc_conn *c)
{
	struct io_uring_sqe *sqe;
	bool all = false;
	size_t n;
	void *p;
	int err;

	if (c->rcn_dead || c->rcn_receiving || c->rcn_paused || (c->rcn_t && !rpc_tls_takes(c)))
		return;
	err = c->rcn_t ? rpc_tls_space(c, &p, &n) : recv_space(c, &p, &n, &all);
	if (err) {
		rpc_conn_fail(c, err);
		return;
	}
	sqe = loop_sqe(c->rcn_loop);
	if (p)
		io_uring_prep_recv(sqe, c->rcn_fd, p, n, all ? MSG_WAITALL : 0);
	else
		rpc_any_recv(sqe, c->rcn_fd, n);
	loop_arm(sqe, &c->rcn_recv_io);
	c->rcn_receiving = true;
	c->rcn_refs++;
}

static void rpc_conn_record(struct rpc_conn *c, struct rpc_record *r)
{
	uint32_t dir;
	int err;

	if (c->rcn_probing) {
		err = rpc_tls_probed(c, r, c->rcn_client ? rpc_client_proof(c->rcn_client) : NULL);
		rpc_buf_put(r->r_buf);
		if (err)
			rpc_conn_fail(c, err);
		return;
	}
	if (r->r_len >= 8) {
		memcpy(&dir, r->r_data + 4, 4);
		dir = be32toh(dir);
		if (dir == 0) {
			rpc_serve(c, r);
			return;
		}
		if (dir == 1) {
			free(r->r_rdma);
			rpc_req_reply(c, r);
			return;
		}
	}
	free(r->r_rdma);
	rpc_buf_put(r->r_buf);
	metric_add(rpc_m_garbage, 1);
	rpc_conn_fail(c, -EPROTO);
}

void rpc_conn_input(struct rpc_conn *c)
{
	if (rpc_turn_begins(c))
		rpc_conn_turn(c);
}

/* A peer that has sent much must not make the others wait for all of it: after some records, or
 * some time of this turn, the other connections come first. */
void rpc_conn_turn(struct rpc_conn *c)
{
	struct rpc_record r;
	unsigned records = 0;
	int got = 0;

	do {
		while (!c->rcn_dead && !(c->rcn_paused = conn_full(c)) &&
		       (got = c->rcn_is_rdma ? rpc_rdma_next(c, &r) : rpc_rx_next(&c->rcn_rx, &r)) >
			       0) {
			if (got == RPC_RX_FIRST) {
				got = rpc_rx_admit(&c->rcn_rx, rpc_half_let(c, &r));
				if (got)
					break;
				continue;
			}
			rpc_conn_record(c, &r);
			if (!c->rcn_dead && rpc_turn_ends(c, ++records)) {
				rpc_turn_wait(c);
				return;
			}
		}
	} while (c->rcn_t && !c->rcn_dead && !c->rcn_paused && !got && (got = rpc_tls_pull(c)) > 0);
	if (got == -EMSGSIZE)
		metric_add(rpc_m_garbage, 1);
	if (got < 0)
		rpc_conn_fail(c, got);
	if (c->rcn_t && rpc_tls_pending(c))
		send_arm(c); /* the handshake's answers */
	rpc_half_note(c, records);
	recv_arm(c);
}

/* Takes over the memory of the completion's bytes, if the kernel put them into a shared buffer.
 * Returns false if that buffer is gone. */
static bool recv_take(struct rpc_conn *c, int res, uint32_t flags)
{
	struct rpc_buf *b;

	if (!(flags & IORING_CQE_F_BUFFER))
		return true;
	b = rpc_any_take(c->rcn_rl, flags);
	if (b && (res <= 0 || c->rcn_dead))
		rpc_buf_put(b);
	else if (b)
		rpc_rx_take(&c->rcn_rx, b);
	return b;
}

static void recv_done(struct loop_io *io, int res, uint32_t flags)
{
	struct rpc_conn *c = caa_container_of(io, struct rpc_conn, rcn_recv_io);
	bool none = res == -ENOBUFS && !c->rcn_alone;

	c->rcn_receiving = false;
	c->rcn_alone = none;
	if (!recv_take(c, res, flags))
		res = -ENOMEM;
	if (c->rcn_dead) {
		conn_close_fd(c);
	} else if (res > 0) {
		metric_add(rpc_m_rx, (uint64_t)res);
		if (c->rcn_t)
			rpc_tls_got(c, (size_t)res);
		else
			rpc_rx_got(&c->rcn_rx, (size_t)res);
		rpc_conn_input(c);
	} else if (none || res == -EINTR || res == -EAGAIN) {
		recv_arm(c);
	} else {
		rpc_conn_fail(c, res ? res : -ECONNRESET);
	}
	rpc_conn_put(c);
}

/* Resumes the connection by a message: the caller may be a service in the middle of its work, which
 * must not be entered again. */
void rpc_conn_unpause(struct rpc_conn *c)
{
	if (!c->rcn_paused || c->rcn_resuming || c->rcn_dead || c->rcn_ncalls > most_calls(c) / 2 ||
	    c->rcn_queued > RPC_MAX_QUEUED / 2 || c->rcn_held > most_held(c) / 2 ||
	    rpc_host_full(c))
		return;
	rpc_turn_wait(c);
}

static void conn_start_msg(struct loop_msg *m)
{
	struct rpc_conn *c = caa_container_of(m, struct rpc_conn, rcn_start_msg);

	rpc_conn_start(c);
}

void rpc_conn_start(struct rpc_conn *c)
{
	if (loop_self() != c->rcn_loop) {
		loop_post(c->rcn_loop, &c->rcn_start_msg);
		return;
	}
	c->rcn_rl = rpc_loop_get(c->rcn_loop);
	rpc_rx_init(&c->rcn_rx, &c->rcn_rl->rl_pool, c->rcn_svc.rs_max_record);
	if (!rpc_host_join(c)) {
		rpc_conn_fail(c, -ENOMEM);
		return;
	}
	rpc_half_start(c);
	c->rcn_opened = true;
	if (c->rcn_svc.rs_opened)
		c->rcn_svc.rs_opened(c, c->rcn_svc.rs_arg);
	recv_arm(c);
}

/* ---- sending ---- */

unsigned rpc_out_iov(const struct rpc_out *o, size_t skip, struct iovec *iov)
{
	unsigned n = xdr_out_iov(o->o_x, iov), gone = 0;

	while (gone < n && iov[gone].iov_len <= skip)
		skip -= iov[gone++].iov_len;
	n -= gone;
	if (gone)
		memmove(iov, iov + gone, n * sizeof *iov);
	if (n) {
		iov[0].iov_base = (uint8_t *)iov[0].iov_base + skip;
		iov[0].iov_len -= skip;
	}
	return n;
}

void rpc_conn_outs_advance(struct rpc_conn *c, size_t n)
{
	c->rcn_sent += n;
	while (c->rcn_outs && c->rcn_sent >= rpc_out_len(c->rcn_outs)) {
		struct rpc_out *o = c->rcn_outs;

		c->rcn_sent -= rpc_out_len(o);
		if (o->o_reply)
			c->rcn_queued -= rpc_out_len(o);
		c->rcn_outs = o->o_next;
		if (!c->rcn_outs)
			c->rcn_outs_end = &c->rcn_outs;
		if (o->o_last_clear)
			rpc_tls_clear_sent(c);
		rpc_out_release(o);
	}
}

static bool send_tls(struct rpc_conn *c, struct io_uring_sqe **sqe)
{
	const void *p;
	size_t n;
	int err = rpc_tls_out(c, &p, &n);

	if (err)
		rpc_conn_fail(c, err);
	if (c->rcn_dead || !n)
		return false;
	*sqe = loop_sqe(c->rcn_loop);
	io_uring_prep_send(*sqe, c->rcn_fd, p, n, MSG_NOSIGNAL | rpc_gate_flags(c));
	return true;
}

/* Gathers the first pieces of the queue, at most RPC_IOV of them. Returns their bytes. */
static size_t outs_gather(const struct rpc_conn *c, struct msghdr *mh, struct iovec *iov)
{
	size_t skip = c->rcn_sent, bytes = 0;
	unsigned n = 0;

	for (struct rpc_out *o = c->rcn_outs; o && n + 2 * XDR_SPLICES + 1 <= RPC_IOV;
	     o = o->o_last_clear ? NULL : o->o_next) {
		n += rpc_out_iov(o, skip, iov + n);
		bytes += rpc_out_len(o) - skip;
		skip = 0;
	}
	*mh = (struct msghdr){.msg_iov = iov, .msg_iovlen = n};
	return bytes;
}

/* A few bytes mostly find room in the socket at once. By the ring they would cost the loop one more
 * turn, whose only work is their completion. The ring sends what finds no room. */
static void send_now(struct rpc_conn *c)
{
	struct iovec iov[RPC_IOV];
	struct msghdr mh;
	size_t bytes;
	ssize_t n;

	while (c->rcn_outs && (bytes = outs_gather(c, &mh, iov)) <= SEND_NOW) {
		n = sendmsg(c->rcn_fd, &mh, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n <= 0) {
			if (n < 0 && errno != EINTR && errno != EAGAIN && errno != ENOMEM &&
			    errno != ENOBUFS)
				rpc_conn_fail(c, -errno);
			return;
		}
		metric_add(rpc_m_tx, (uint64_t)n);
		rpc_conn_outs_advance(c, (size_t)n);
		if ((size_t)n < bytes)
			return;
	}
}

/* *io receives the completion. */
static bool send_clear(struct rpc_conn *c, struct io_uring_sqe **sqe, struct loop_io **io)
{
	struct loop_io *zc;

	if (!c->rcn_t && c->rcn_outs) {
		send_now(c);
		rpc_conn_unpause(c);
	}
	if (c->rcn_dead || !c->rcn_outs)
		return false;
	c->rcn_snd = malloc(sizeof *c->rcn_snd);
	if (!c->rcn_snd) {
		rpc_conn_fail(c, -ENOMEM);
		return false;
	}
	outs_gather(c, &c->rcn_snd->sd_mh, c->rcn_snd->sd_iov);
	*sqe = loop_sqe(c->rcn_loop);
	zc = rpc_zc_prep(c, *sqe);
	if (zc)
		*io = zc;
	else
		io_uring_prep_sendmsg(*sqe, c->rcn_fd, &c->rcn_snd->sd_mh,
				      MSG_NOSIGNAL | rpc_gate_flags(c));
	return true;
}

static void send_arm(struct rpc_conn *c)
{
	struct loop_io *io = &c->rcn_send_io;
	struct io_uring_sqe *sqe;

	if (c->rcn_dead || c->rcn_sending)
		return;
	if (c->rcn_is_rdma) {
		rpc_rdma_send(c);
		return;
	}
	/* All messages that may leave with this send are queued. */
	if ((c->rcn_outs || (c->rcn_t && rpc_tls_said(c))) && rpc_gate_shut(c))
		return;
	c->rcn_send_tls = c->rcn_t && rpc_tls_sends(c);
	if (!(c->rcn_send_tls ? send_tls(c, &sqe) : send_clear(c, &sqe, &io)))
		return;
	loop_arm(sqe, io);
	c->rcn_sending = true;
	c->rcn_refs++;
}

void rpc_conn_send(struct rpc_conn *c)
{
	send_arm(c);
}

void rpc_conn_sent(struct rpc_conn *c, int res)
{
	c->rcn_sending = false;
	free(c->rcn_snd);
	c->rcn_snd = NULL;
	if (c->rcn_dead) {
		conn_close_fd(c);
	} else if (res > 0) {
		metric_add(rpc_m_tx, (uint64_t)res);
		if (!c->rcn_send_tls)
			rpc_conn_outs_advance(c, (size_t)res);
		else if (rpc_tls_sent(c, (size_t)res))
			rpc_conn_input(c);
		send_arm(c);
		rpc_conn_unpause(c);
	} else if (res == -EINTR || res == -EAGAIN) {
		send_arm(c);
	} else {
		rpc_conn_fail(c, res ? res : -EPIPE);
	}
	rpc_conn_put(c);
}

static void send_done(struct loop_io *io, int res, uint32_t flags)
{
	(void)flags;
	rpc_conn_sent(caa_container_of(io, struct rpc_conn, rcn_send_io), res);
}

static void flush_hook(struct loop_hook *h)
{
	struct rpc_loop *rl = caa_container_of(h, struct rpc_loop, rl_hook);

	rl->rl_flushed_ns = loop_now_ns(rl->rl_loop);
	while (rl->rl_flush) {
		struct rpc_conn *c = rl->rl_flush;

		rl->rl_flush = c->rcn_flush_next;
		c->rcn_on_flush = false;
		send_arm(c);
		rpc_conn_put(c);
	}
}

/* All replies of a turn to one peer leave in one sendmsg. */
void rpc_conn_out(struct rpc_conn *c, struct rpc_out *o)
{
	struct rpc_loop *rl = c->rcn_rl;

	if (c->rcn_dead) {
		o->o_free(o);
		return;
	}
	o->o_next = NULL;
	*c->rcn_outs_end = o;
	c->rcn_outs_end = &o->o_next;
	if (o->o_reply)
		c->rcn_queued += rpc_out_len(o);
	if (c->rcn_sending || c->rcn_on_flush)
		return;
	if (!rl->rl_hooked) {
		/* Hook in this late, so that this hook mostly runs after those of services, which
		 * may reply. */
		rl->rl_hooked = true;
		rl->rl_hook.h_run = flush_hook;
		loop_at_turn_end(rl->rl_loop, &rl->rl_hook);
	}
	if (rl->rl_flushed_ns == loop_now_ns(rl->rl_loop) && !rl->rl_kicked) {
		/* A hook that ran after ours queued this: the loop must not sleep on it. */
		rl->rl_kicked = true;
		loop_post(rl->rl_loop, &rl->rl_kick);
	}
	c->rcn_on_flush = true;
	c->rcn_flush_next = rl->rl_flush;
	rl->rl_flush = c;
	c->rcn_refs++;
}

/* ---- what services ask ---- */

uint64_t rpc_conn_id(const struct rpc_conn *c)
{
	return c->rcn_id;
}

const struct sockaddr_storage *rpc_conn_peer(const struct rpc_conn *c)
{
	return &c->rcn_peer;
}

int rpc_conn_local(const struct rpc_conn *c, struct sockaddr_storage *out)
{
	socklen_t len = sizeof *out;

	if (c->rcn_is_rdma)
		return -EOPNOTSUPP;
	return getsockname(c->rcn_fd, (struct sockaddr *)out, &len) ? -errno : 0;
}

enum rpc_tls rpc_conn_tls(const struct rpc_conn *c)
{
	return c->rcn_tls;
}

struct loop *rpc_conn_loop(const struct rpc_conn *c)
{
	return c->rcn_loop;
}

bool rpc_conn_dead(const struct rpc_conn *c)
{
	return c->rcn_dead;
}

void rpc_conn_set_priv(struct rpc_conn *c, void *priv)
{
	c->rcn_priv = priv;
}

void *rpc_conn_priv(const struct rpc_conn *c)
{
	return c->rcn_priv;
}
