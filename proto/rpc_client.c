/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_client.c - a client: keeps one connection to one address.
 *
 * Calls wait in cl_wait while there is no connection. When an attempt to connect fails, the waiting
 * calls end with its error. Calls also wait through a back-off, so that they reach a peer that
 * comes back soon. With TLS a connection takes calls only after its handshake, and the handshake
 * has the same time limit as connecting. Attempts go on while calls wait, and for ever once
 * rpc_client_start was called.
 */
#include "base/log.h"
#include "proto/rpc_int.h"
#include <errno.h>
#include <unistd.h>

#define BACKOFF_MIN_MS 100u
#define BACKOFF_MAX_MS 1000u
#define CONNECT_MS     5000u
#define STEADY_NS      1000000000ull /* a connection that lived this long resets the back-off */

struct rpc_client {
	struct loop *cl_loop;
	struct sockaddr_storage cl_addr;
	socklen_t cl_addrlen;
	struct rpc_service cl_svc;
	struct rpc_client_ops cl_ops;
	void *cl_arg;
	bool cl_started, cl_gone;
	int cl_fd; /* the socket while it connects, or -1 */
	bool cl_rdma;
	struct rpc_rdma_dial *cl_dial; /* the same over RDMA, or NULL */
	unsigned cl_inflight;	       /* I/O under way */
	bool cl_timed_out;
	struct loop_io cl_io, cl_cancel_io;
	/* deadline of connecting and handshake; otherwise time of the next attempt */
	struct loop_timer cl_timer;
	uint32_t cl_backoff;
	uint64_t cl_up_ns;
	struct rpc_conn *cl_conn;
	bool cl_ready;			   /* cl_conn takes calls */
	uint32_t cl_tls_prog, cl_tls_vers; /* 0: no TLS */
	struct rpc_tls_proof cl_proof;
	struct rpc_req *cl_wait, *cl_wait_last;
};

static void client_connect(struct rpc_client *cl);

/* ---- calls that wait ---- */

void rpc_client_forget(struct rpc_client *cl, struct rpc_req *q)
{
	if (q->q_prev)
		q->q_prev->q_next = q->q_next;
	else
		cl->cl_wait = q->q_next;
	if (q->q_next)
		q->q_next->q_prev = q->q_prev;
	else
		cl->cl_wait_last = q->q_prev;
	q->q_next = q->q_prev = NULL;
	q->q_client = NULL;
}

static void wait_add(struct rpc_client *cl, struct rpc_req *q, uint32_t timeout_ms)
{
	q->q_client = cl;
	q->q_conn = NULL;
	q->q_loop = cl->cl_loop;
	q->q_err = -ETIMEDOUT;
	q->q_next = NULL;
	q->q_prev = cl->cl_wait_last;
	if (q->q_prev)
		q->q_prev->q_next = q;
	else
		cl->cl_wait = q;
	cl->cl_wait_last = q;
	q->q_timeout_ms = q->q_limit_ms = timeout_ms;
	q->q_opened = store_lease_opened(rpc_loop_get(cl->cl_loop)->rl_lease);
	if (timeout_ms)
		loop_timer_start(cl->cl_loop, &q->q_timer, timeout_ms);
}

static void wait_fail(struct rpc_client *cl, int err)
{
	while (cl->cl_wait) {
		struct rpc_req *q = cl->cl_wait;

		rpc_client_forget(cl, q);
		rpc_req_fail_later(cl->cl_loop, q, err);
	}
}

/* A call keeps what is left of its time. */
static void wait_send(struct rpc_client *cl)
{
	uint64_t now = loop_now_ns(cl->cl_loop);

	while (cl->cl_wait && cl->cl_conn) {
		struct rpc_req *q = cl->cl_wait;
		uint32_t left = 0;

		rpc_client_forget(cl, q);
		if (q->q_timer.t_pos) {
			left = q->q_timer.t_due_ns > now
				       ? (uint32_t)((q->q_timer.t_due_ns - now) / 1000000u)
				       : 0;
			left = left ? left : 1;
		}
		rpc_req_send(cl->cl_conn, q, left);
	}
}

/* ---- connecting ---- */

static void rpc_client_client_free(struct rpc_client *cl)
{
	if (!cl->cl_inflight)
		free(cl);
}

static void rpc_client_retry_later(struct rpc_client *cl)
{
	if (!cl->cl_started && !cl->cl_wait)
		return;
	loop_timer_start(cl->cl_loop, &cl->cl_timer, cl->cl_backoff);
	cl->cl_backoff = cl->cl_backoff * 2 < BACKOFF_MAX_MS ? cl->cl_backoff * 2 : BACKOFF_MAX_MS;
}

static void connect_failed(struct rpc_client *cl, int err)
{
	wait_fail(cl, err);
	rpc_client_retry_later(cl);
	if (cl->cl_ops.cl_down)
		cl->cl_ops.cl_down(cl, err, cl->cl_arg);
}

/* rcn_client is NULL if the service closed the connection inside cl_up. */
static void client_ready(struct rpc_client *cl)
{
	struct rpc_conn *c = cl->cl_conn;

	cl->cl_ready = true;
	if (!c->rcn_dead && cl->cl_ops.cl_up)
		cl->cl_ops.cl_up(cl, c, cl->cl_arg);
	if (c->rcn_client)
		wait_send(cl);
}

void rpc_client_secured(struct rpc_client *cl)
{
	loop_timer_stop(cl->cl_loop, &cl->cl_timer);
	client_ready(cl);
}

const struct rpc_tls_proof *rpc_client_proof(const struct rpc_client *cl)
{
	return &cl->cl_proof;
}

static void connect_up(struct rpc_client *cl, struct rpc_conn *c)
{
	c->rcn_client = cl;
	cl->cl_conn = c;
	cl->cl_up_ns = loop_now_ns(cl->cl_loop);
	c->rcn_refs++; /* the service may close it when it opens */
	if (!c->rcn_is_rdma)
		rpc_conn_start(c);
	if (!cl->cl_tls_prog) {
		if (c->rcn_client)
			client_ready(cl);
	} else if (!c->rcn_dead) {
		loop_timer_start(cl->cl_loop, &cl->cl_timer, CONNECT_MS);
		if (rpc_tls_probe(c, cl->cl_tls_prog, cl->cl_tls_vers))
			rpc_conn_fail(c, -ENOMEM);
	}
	rpc_conn_put(c);
}

static void connect_done(struct loop_io *io, int res, uint32_t flags)
{
	struct rpc_client *cl = caa_container_of(io, struct rpc_client, cl_io);
	int fd = cl->cl_fd;

	(void)flags;
	cl->cl_inflight--;
	cl->cl_fd = -1;
	if (cl->cl_gone) {
		close(fd);
		rpc_client_client_free(cl);
		return;
	}
	loop_timer_stop(cl->cl_loop, &cl->cl_timer);
	if (!res) {
		struct rpc_conn *c = rpc_conn_new(fd, cl->cl_loop, &cl->cl_svc, &cl->cl_addr);

		if (c) {
			connect_up(cl, c);
			return;
		}
		res = -ENOMEM;
	}
	close(fd);
	connect_failed(cl, cl->cl_timed_out ? -ETIMEDOUT : res);
}

static void rpc_client_cancel_done(struct loop_io *io, int res, uint32_t flags)
{
	struct rpc_client *cl = caa_container_of(io, struct rpc_client, cl_cancel_io);

	(void)res;
	(void)flags;
	cl->cl_inflight--;
	if (cl->cl_gone)
		rpc_client_client_free(cl);
}

static void connect_cancel(struct rpc_client *cl)
{
	struct io_uring_sqe *sqe = loop_sqe(cl->cl_loop);

	io_uring_prep_cancel(sqe, &cl->cl_io, 0);
	loop_arm(sqe, &cl->cl_cancel_io);
	cl->cl_inflight++;
}

static void client_timer(struct loop_timer *t)
{
	struct rpc_client *cl = caa_container_of(t, struct rpc_client, cl_timer);

	if (cl->cl_conn) {
		/* The probe may wait for the lease of the store. */
		if (store_lease_live(rpc_loop_get(cl->cl_loop)->rl_lease))
			rpc_conn_fail(cl->cl_conn, -ETIMEDOUT);
		else
			loop_timer_start(cl->cl_loop, t, CONNECT_MS);
		return;
	}
	if (cl->cl_dial) {
		rpc_rdma_dial_cancel(cl->cl_dial);
		cl->cl_dial = NULL;
		connect_failed(cl, -ETIMEDOUT);
		return;
	}
	if (cl->cl_fd < 0) {
		client_connect(cl);
		return;
	}
	cl->cl_timed_out = true;
	connect_cancel(cl);
}

static void rpc_client_dial_done(void *arg, int err, struct rpc_conn *c)
{
	struct rpc_client *cl = arg;

	cl->cl_dial = NULL;
	loop_timer_stop(cl->cl_loop, &cl->cl_timer);
	if (err)
		connect_failed(cl, err);
	else
		connect_up(cl, c);
}

static void client_connect(struct rpc_client *cl)
{
	struct io_uring_sqe *sqe;

	cl->cl_timed_out = false;
	if (cl->cl_rdma) {
		int err = rpc_rdma_dial(&cl->cl_dial, cl->cl_loop, &cl->cl_addr, &cl->cl_svc,
					rpc_client_dial_done, cl);

		if (err)
			connect_failed(cl, err);
		else
			loop_timer_start(cl->cl_loop, &cl->cl_timer, CONNECT_MS);
		return;
	}
	cl->cl_fd = socket(cl->cl_addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (cl->cl_fd < 0) {
		connect_failed(cl, -errno);
		return;
	}
	sqe = loop_sqe(cl->cl_loop);
	io_uring_prep_connect(sqe, cl->cl_fd, (struct sockaddr *)&cl->cl_addr, cl->cl_addrlen);
	loop_arm(sqe, &cl->cl_io);
	cl->cl_inflight++;
	loop_timer_start(cl->cl_loop, &cl->cl_timer, CONNECT_MS);
}

/* Begins to connect, unless the client is connected, is connecting or waits for the next
 * attempt. */
static void client_kick(struct rpc_client *cl)
{
	if (!cl->cl_conn && cl->cl_fd < 0 && !cl->cl_dial && !cl->cl_timer.t_pos)
		client_connect(cl);
}

void rpc_client_lost(struct rpc_client *cl, int err)
{
	bool was_ready = cl->cl_ready;

	cl->cl_conn = NULL;
	cl->cl_ready = false;
	loop_timer_stop(cl->cl_loop, &cl->cl_timer);
	/* A peer that does not start TLS is not the one that was meant. The right one may be back
	 * later. */
	if (!was_ready)
		wait_fail(cl, err == -EPROTO ? -ECONNREFUSED : err);
	if (was_ready && loop_now_ns(cl->cl_loop) - cl->cl_up_ns >= STEADY_NS)
		cl->cl_backoff = BACKOFF_MIN_MS;
	rpc_client_retry_later(cl);
	if (cl->cl_ops.cl_down)
		cl->cl_ops.cl_down(cl, err, cl->cl_arg);
}

/* ---- the owner's calls ---- */

void rpc_client_proven(struct rpc_client *cl)
{
	cl->cl_backoff = BACKOFF_MIN_MS;
}

int rpc_client_create(struct rpc_client **out, struct loop *l, const struct sockaddr *addr,
		      socklen_t len, const struct rpc_service *svc,
		      const struct rpc_client_ops *ops, void *arg)
{
	struct rpc_client *cl;

	if (len > sizeof cl->cl_addr || (addr->sa_family != AF_INET && addr->sa_family != AF_INET6))
		return -EAFNOSUPPORT;
	cl = calloc(1, sizeof *cl);
	if (!cl)
		return -ENOMEM;
	cl->cl_loop = l;
	memcpy(&cl->cl_addr, addr, len);
	cl->cl_addrlen = len;
	if (svc)
		cl->cl_svc = *svc;
	if (ops)
		cl->cl_ops = *ops;
	cl->cl_arg = arg;
	cl->cl_fd = -1;
	cl->cl_backoff = BACKOFF_MIN_MS;
	cl->cl_io.lio_done = connect_done;
	cl->cl_cancel_io.lio_done = rpc_client_cancel_done;
	cl->cl_timer.t_fire = client_timer;
	*out = cl;
	return 0;
}

void rpc_client_use_tls(struct rpc_client *cl, uint32_t prog, uint32_t vers, const uint8_t *psk)
{
	cl->cl_tls_prog = prog;
	cl->cl_tls_vers = vers;
	rpc_tls_proof_make(&cl->cl_proof, psk, NULL);
}

void rpc_client_tls_as(struct rpc_client *cl, const uint8_t *self)
{
	uint8_t psk[RPC_TLS_PSK_LEN];

	memcpy(psk, cl->cl_proof.tp_key, sizeof(psk));
	rpc_tls_proof_make(&cl->cl_proof, psk, self);
}

void rpc_client_use_rdma(struct rpc_client *cl)
{
	cl->cl_rdma = true;
}

void rpc_client_start(struct rpc_client *cl)
{
	cl->cl_started = true;
	client_kick(cl);
}

void rpc_client_send(struct rpc_client *cl, struct rpc_req *q, uint32_t timeout_ms)
{
	if (cl->cl_ready && cl->cl_conn && !cl->cl_conn->rcn_dead) {
		rpc_req_send(cl->cl_conn, q, timeout_ms);
		return;
	}
	wait_add(cl, q, timeout_ms);
	client_kick(cl);
}

void rpc_client_destroy(struct rpc_client *cl)
{
	cl->cl_gone = true;
	loop_timer_stop(cl->cl_loop, &cl->cl_timer);
	wait_fail(cl, -ECONNRESET);
	if (cl->cl_conn) {
		cl->cl_conn->rcn_client = NULL;
		rpc_conn_close(cl->cl_conn);
		cl->cl_conn = NULL;
	}
	if (cl->cl_fd >= 0)
		connect_cancel(cl);
	if (cl->cl_dial)
		rpc_rdma_dial_cancel(cl->cl_dial);
	rpc_client_client_free(cl);
}
