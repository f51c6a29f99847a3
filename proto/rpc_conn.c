/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_conn.c - a connection's life, receiving and sending.
 *
 * At most one receive and one send are under way. The object lives while anything refers to it
 * (c_refs). c_dead says that nothing may be dispatched or sent any more. c_ended says that all
 * users have been notified.
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
	c->c_id = atomic_fetch_add(&conn_ids, 1) + 1;
	c->c_loop = loop;
	c->c_fd = fd;
	c->c_refs = 1;
	c->c_peer = *peer;
	if (svc)
		c->c_svc = *svc;
	if (!c->c_svc.rs_max_record)
		c->c_svc.rs_max_record = RPC_DEFAULT_MAX_RECORD;
	c->c_outs_end = &c->c_outs;
	c->c_recv_io.io_done = recv_done;
	c->c_send_io.io_done = send_done;
	c->c_start_msg.m_run = conn_start_msg;
	c->c_end_msg.m_run = conn_end_msg;
	if (getrandom(&c->c_xid, sizeof c->c_xid, GRND_NONBLOCK) < 0)
		c->c_xid = (uint32_t)c->c_id;
	if (fd < 0) {
		c->c_is_rdma = true;
	} else {
		rpc_socket_tune(fd);
		atomic_fetch_add(&conns_open, 1);
	}
	return c;
}

static void outs_free(struct rpc_conn *c)
{
	while (c->c_outs) {
		struct rpc_out *o = c->c_outs;

		c->c_outs = o->o_next;
		rpc_out_release(o);
	}
	c->c_outs_end = &c->c_outs;
	c->c_queued = c->c_sent = 0;
}

/* The kernel keeps the data that the peer has not acknowledged for as long as it tries to deliver
 * it, mostly a minute. If that data is in our pages, SO_LINGER makes the kernel drop it at once. */
static void socket_close(struct rpc_conn *c)
{
	static const struct linger now = {1, 0};

	if (c->c_pins && setsockopt(c->c_fd, SOL_SOCKET, SO_LINGER, &now, sizeof now))
		log_debug("rpc: SO_LINGER: %s", strerror(errno));
	close(c->c_fd);
	c->c_fd = -1;
	atomic_fetch_sub(&conns_open, 1);
}

/* Closes the socket when no I/O is under way: except for pages of replies, the kernel then has
 * nothing of ours. */
static void conn_close_fd(struct rpc_conn *c)
{
	if (!c->c_ended || c->c_receiving || c->c_sending || c->c_closed)
		return;
	if (c->c_fd >= 0)
		socket_close(c);
	c->c_closed = true;
	c->c_refs++; /* the calls freed here hold references as well */
	rpc_tls_free(c);
	rpc_rx_free(&c->c_rx);
	outs_free(c);
	rpc_conn_put(c);
}

void rpc_conn_put(struct rpc_conn *c)
{
	assert(c->c_refs);
	if (--c->c_refs)
		return;
	assert(c->c_closed);
	rpc_host_leave(c);
	free(c->c_reqs);
	free(c);
}

void rpc_conn_fail(struct rpc_conn *c, int err)
{
	if (c->c_dead)
		return;
	c->c_dead = true;
	c->c_err = err;
	if (c->c_t)
		rpc_tls_bye(c);
	if (c->c_rdma)
		rpc_rdma_end(c);
	else if (c->c_fd >= 0)
		shutdown(c->c_fd, SHUT_RDWR); /* ends the I/O under way */
	c->c_refs++;
	loop_post(c->c_loop, &c->c_end_msg);
}

void rpc_conn_released(struct rpc_conn *c)
{
	c->c_rdma = NULL;
	c->c_receiving = false;
	conn_close_fd(c);
	rpc_conn_put(c);
}

void rpc_conn_close(struct rpc_conn *c)
{
	rpc_conn_fail(c, -ECONNRESET);
}

static void conn_end_msg(struct loop_msg *m)
{
	struct rpc_conn *c = caa_container_of(m, struct rpc_conn, c_end_msg);

	if (c->c_host)
		rpc_host_quit(c);
	rpc_half_quit(c);
	rpc_req_lost(c);
	if (c->c_opened && c->c_svc.rs_closed)
		c->c_svc.rs_closed(c, c->c_svc.rs_arg);
	if (c->c_client)
		rpc_client_lost(c->c_client, c->c_err);
	c->c_client = NULL;
	c->c_ended = true;
	conn_close_fd(c);
	rpc_conn_put(c);
	rpc_conn_put(c); /* the reference of rpc_conn_new */
}

/* ---- receiving ---- */

/* While calls of ours are out, their replies must get in: the peer's calls may wait for just these
 * replies (a recall). */
static unsigned most_calls(const struct rpc_conn *c)
{
	return c->c_nreqs ? 4 * RPC_MAX_CALLS : RPC_MAX_CALLS;
}

/* A quarter of what is left: however many clients do not read their replies, those that do find
 * something left. A connection that holds less than RPC_LEAST_HELD never stops. So a connection
 * that has stopped holds something, and goes on when that ends. */
static size_t most_held(const struct rpc_conn *c)
{
	size_t all = c->c_rl->rl_all_held,
	       most = all < RPC_MAX_ALL_HELD ? (RPC_MAX_ALL_HELD - all) / 4 : 0;

	if (most > RPC_MAX_HELD)
		most = RPC_MAX_HELD;
	if (most < RPC_LEAST_HELD)
		most = RPC_LEAST_HELD;
	return c->c_nreqs ? 4 * most : most;
}

static bool conn_full(struct rpc_conn *c)
{
	return c->c_ncalls >= most_calls(c) || c->c_queued >= RPC_MAX_QUEUED ||
	       c->c_held >= most_held(c) || rpc_host_full(c);
}

static int recv_space(struct rpc_conn *c, void **p, size_t *n, bool *all)
{
	if (c->c_ncalls <= FEW_CALLS)
		rpc_rx_leave(&c->c_rx);
	return (c->c_alone || !rpc_any_has(c->c_rl) ? rpc_rx_space : rpc_rx_space_any)(&c->c_rx, p,
										       n, all);
}

static void recv_arm(struct rpc_conn *c)
{
	struct io_uring_sqe *sqe;
	bool all = false;
	size_t n;
	void *p;
	int err;

	if (c->c_dead || c->c_receiving || c->c_paused || (c->c_t && !rpc_tls_takes(c)))
		return;
	err = c->c_t ? rpc_tls_space(c, &p, &n) : recv_space(c, &p, &n, &all);
	if (err) {
		rpc_conn_fail(c, err);
		return;
	}
	sqe = loop_sqe(c->c_loop);
	if (p)
		io_uring_prep_recv(sqe, c->c_fd, p, n, all ? MSG_WAITALL : 0);
	else
		rpc_any_recv(sqe, c->c_fd, n);
	loop_arm(sqe, &c->c_recv_io);
	c->c_receiving = true;
	c->c_refs++;
}

static void rpc_conn_record(struct rpc_conn *c, struct rpc_record *r)
{
	uint32_t dir;
	int err;

	if (c->c_probing) {
		err = rpc_tls_probed(c, r, c->c_client ? rpc_client_proof(c->c_client) : NULL);
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
		while (!c->c_dead && !(c->c_paused = conn_full(c)) &&
		       (got = c->c_is_rdma ? rpc_rdma_next(c, &r) : rpc_rx_next(&c->c_rx, &r)) >
			       0) {
			if (got == RPC_RX_FIRST) {
				got = rpc_rx_admit(&c->c_rx, rpc_half_let(c, &r));
				if (got)
					break;
				continue;
			}
			rpc_conn_record(c, &r);
			if (!c->c_dead && rpc_turn_ends(c, ++records)) {
				rpc_turn_wait(c);
				return;
			}
		}
	} while (c->c_t && !c->c_dead && !c->c_paused && !got && (got = rpc_tls_pull(c)) > 0);
	if (got == -EMSGSIZE)
		metric_add(rpc_m_garbage, 1);
	if (got < 0)
		rpc_conn_fail(c, got);
	if (c->c_t && rpc_tls_pending(c))
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
	b = rpc_any_take(c->c_rl, flags);
	if (b && (res <= 0 || c->c_dead))
		rpc_buf_put(b);
	else if (b)
		rpc_rx_take(&c->c_rx, b);
	return b;
}

static void recv_done(struct loop_io *io, int res, uint32_t flags)
{
	struct rpc_conn *c = caa_container_of(io, struct rpc_conn, c_recv_io);
	bool none = res == -ENOBUFS && !c->c_alone;

	c->c_receiving = false;
	c->c_alone = none;
	if (!recv_take(c, res, flags))
		res = -ENOMEM;
	if (c->c_dead) {
		conn_close_fd(c);
	} else if (res > 0) {
		metric_add(rpc_m_rx, (uint64_t)res);
		if (c->c_t)
			rpc_tls_got(c, (size_t)res);
		else
			rpc_rx_got(&c->c_rx, (size_t)res);
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
	if (!c->c_paused || c->c_resuming || c->c_dead || c->c_ncalls > most_calls(c) / 2 ||
	    c->c_queued > RPC_MAX_QUEUED / 2 || c->c_held > most_held(c) / 2 || rpc_host_full(c))
		return;
	rpc_turn_wait(c);
}

static void conn_start_msg(struct loop_msg *m)
{
	struct rpc_conn *c = caa_container_of(m, struct rpc_conn, c_start_msg);

	rpc_conn_start(c);
}

void rpc_conn_start(struct rpc_conn *c)
{
	if (loop_self() != c->c_loop) {
		loop_post(c->c_loop, &c->c_start_msg);
		return;
	}
	c->c_rl = rpc_loop_get(c->c_loop);
	rpc_rx_init(&c->c_rx, &c->c_rl->rl_pool, c->c_svc.rs_max_record);
	if (!rpc_host_join(c)) {
		rpc_conn_fail(c, -ENOMEM);
		return;
	}
	rpc_half_start(c);
	c->c_opened = true;
	if (c->c_svc.rs_opened)
		c->c_svc.rs_opened(c, c->c_svc.rs_arg);
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
	c->c_sent += n;
	while (c->c_outs && c->c_sent >= rpc_out_len(c->c_outs)) {
		struct rpc_out *o = c->c_outs;

		c->c_sent -= rpc_out_len(o);
		if (o->o_reply)
			c->c_queued -= rpc_out_len(o);
		c->c_outs = o->o_next;
		if (!c->c_outs)
			c->c_outs_end = &c->c_outs;
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
	if (c->c_dead || !n)
		return false;
	*sqe = loop_sqe(c->c_loop);
	io_uring_prep_send(*sqe, c->c_fd, p, n, MSG_NOSIGNAL | MSG_WAITALL);
	return true;
}

/* Gathers the first pieces of the queue, at most RPC_IOV of them. Returns their bytes. */
static size_t outs_gather(const struct rpc_conn *c, struct msghdr *mh, struct iovec *iov)
{
	size_t skip = c->c_sent, bytes = 0;
	unsigned n = 0;

	for (struct rpc_out *o = c->c_outs; o && n + 2 * XDR_SPLICES + 1 <= RPC_IOV;
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

	while (c->c_outs && (bytes = outs_gather(c, &mh, iov)) <= SEND_NOW) {
		n = sendmsg(c->c_fd, &mh, MSG_NOSIGNAL | MSG_DONTWAIT);
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

	if (!c->c_t && c->c_outs) {
		send_now(c);
		rpc_conn_unpause(c);
	}
	if (c->c_dead || !c->c_outs)
		return false;
	c->c_snd = malloc(sizeof *c->c_snd);
	if (!c->c_snd) {
		rpc_conn_fail(c, -ENOMEM);
		return false;
	}
	outs_gather(c, &c->c_snd->sd_mh, c->c_snd->sd_iov);
	*sqe = loop_sqe(c->c_loop);
	zc = rpc_zc_prep(c, *sqe);
	if (zc)
		*io = zc;
	else
		io_uring_prep_sendmsg(*sqe, c->c_fd, &c->c_snd->sd_mh, MSG_NOSIGNAL | MSG_WAITALL);
	return true;
}

static void send_arm(struct rpc_conn *c)
{
	struct loop_io *io = &c->c_send_io;
	struct io_uring_sqe *sqe;

	if (c->c_dead || c->c_sending)
		return;
	if (c->c_is_rdma) {
		rpc_rdma_send(c);
		return;
	}
	c->c_send_tls = c->c_t && rpc_tls_sends(c);
	if (!(c->c_send_tls ? send_tls(c, &sqe) : send_clear(c, &sqe, &io)))
		return;
	loop_arm(sqe, io);
	c->c_sending = true;
	c->c_refs++;
}

void rpc_conn_sent(struct rpc_conn *c, int res)
{
	c->c_sending = false;
	free(c->c_snd);
	c->c_snd = NULL;
	if (c->c_dead) {
		conn_close_fd(c);
	} else if (res > 0) {
		metric_add(rpc_m_tx, (uint64_t)res);
		if (!c->c_send_tls)
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
	rpc_conn_sent(caa_container_of(io, struct rpc_conn, c_send_io), res);
}

static void flush_hook(struct loop_hook *h)
{
	struct rpc_loop *rl = caa_container_of(h, struct rpc_loop, rl_hook);

	rl->rl_flushed_ns = loop_now_ns(rl->rl_loop);
	while (rl->rl_flush) {
		struct rpc_conn *c = rl->rl_flush;

		rl->rl_flush = c->c_flush_next;
		c->c_on_flush = false;
		send_arm(c);
		rpc_conn_put(c);
	}
}

/* All replies of a turn to one peer leave in one sendmsg. */
void rpc_conn_out(struct rpc_conn *c, struct rpc_out *o)
{
	struct rpc_loop *rl = c->c_rl;

	if (c->c_dead) {
		o->o_free(o);
		return;
	}
	o->o_next = NULL;
	*c->c_outs_end = o;
	c->c_outs_end = &o->o_next;
	if (o->o_reply)
		c->c_queued += rpc_out_len(o);
	if (c->c_sending || c->c_on_flush)
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
	c->c_on_flush = true;
	c->c_flush_next = rl->rl_flush;
	rl->rl_flush = c;
	c->c_refs++;
}

/* ---- what services ask ---- */

uint64_t rpc_conn_id(const struct rpc_conn *c)
{
	return c->c_id;
}

const struct sockaddr_storage *rpc_conn_peer(const struct rpc_conn *c)
{
	return &c->c_peer;
}

enum rpc_tls rpc_conn_tls(const struct rpc_conn *c)
{
	return c->c_tls;
}

struct loop *rpc_conn_loop(const struct rpc_conn *c)
{
	return c->c_loop;
}

bool rpc_conn_dead(const struct rpc_conn *c)
{
	return c->c_dead;
}

void rpc_conn_set_priv(struct rpc_conn *c, void *priv)
{
	c->c_priv = priv;
}

void *rpc_conn_priv(const struct rpc_conn *c)
{
	return c->c_priv;
}
