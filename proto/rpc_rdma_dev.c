/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_rdma_dev.c - a device and its part on each loop: receive queues, completions, polling. */
#include "base/clock.h"
#include "base/log.h"
#include "proto/rpc_rdma.h"
#include "proto/rpc_rdma_int.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>

#define STALL_MS   2u
#define SIW_VENDOR 0x626d74u
#define RECV_CHAIN 32u

/* The RDMA state of one loop. */
struct rd_loop {
	struct loop *lo_loop;
	struct loop_hook lo_hook;
	struct rd_port *lo_ports;
	struct loop_msg lo_kick; /* keeps the loop from sleeping while it polls */
	bool lo_kicked;
	struct loop_timer lo_timer;
};

static struct metric *m_completions, *m_polls, *m_vain, *m_events;

__attribute__((constructor)) static void poll_metrics_make(void)
{
	m_completions = metric_counter("weft_rdma_completions_total",
				       "Completions of work requests and receives.", "");
	m_polls = metric_counter("weft_rdma_polls_total",
				 "Polls for completions, by whether they found any.",
				 "found=\"some\"");
	m_vain = metric_counter("weft_rdma_polls_total",
				"Polls for completions, by whether they found any.",
				"found=\"none\"");
	m_events = metric_counter(
		"weft_rdma_events_total",
		"Events that woke a thread, raised by completions that nothing polled for.", "");
}

static void port_poll_done(struct loop_io *io, int res, uint32_t flags);
static void port_cancel_done(struct loop_io *io, int res, uint32_t flags);
static void port_start(struct loop_msg *m);
static void port_stop(struct loop_msg *m);
static void port_destroy(struct rd_port *p);

/* ---- receives ---- */

static void rpc_rdma_dev_own_add(struct rd_conn *r, struct rd_buf *b)
{
	r->r_posted++;
	b->bf_prev = NULL;
	b->bf_next = r->r_own;
	if (r->r_own)
		r->r_own->bf_prev = b;
	r->r_own = b;
}

void rd_own_returned(struct rd_conn *r, const struct ibv_wc *wc)
{
	struct rd_buf *b = (struct rd_buf *)(uintptr_t)wc->wr_id;

	r->r_posted--;
	if (b->bf_prev)
		b->bf_prev->bf_next = b->bf_next;
	else
		r->r_own = b->bf_next;
	if (b->bf_next)
		b->bf_next->bf_prev = b->bf_prev;
	b->bf_next = b->bf_prev = NULL;
}

/* Counts a receive of a chain that has been posted. */
static void posted(struct rd_port *p, struct rd_conn *r, struct rd_buf *b)
{
	if (r)
		rpc_rdma_dev_own_add(r, b);
	else
		p->pt_srq_posted++;
}

/* Posts n receives in one chain, at most RECV_CHAIN: to r's own queue or, if r is NULL, to the
 * shared one. */
static int post_chain(struct rd_port *p, struct rd_conn *r, unsigned n)
{
	struct ibv_recv_wr wr[RECV_CHAIN], *bad = wr;
	struct ibv_sge sge[RECV_CHAIN];
	unsigned got = 0, i = 0;
	struct rd_buf *b;
	int err;

	while (got < n && (b = rd_buf_get(p))) {
		sge[got] = (struct ibv_sge){(uintptr_t)b->bf_rpc.b_data, RD_INLINE, b->bf_lkey};
		wr[got] = (struct ibv_recv_wr){
			.wr_id = (uintptr_t)b, .sg_list = &sge[got], .num_sge = 1};
		if (got)
			wr[got - 1].next = &wr[got];
		got++;
	}
	err = got < n ? p->pt_slab_asked ? -EAGAIN : -ENOMEM : 0;
	if (!got)
		return err;
	if (r ? ibv_post_recv(r->r_qp, wr, &bad) : ibv_post_srq_recv(p->pt_srq, wr, &bad))
		err = -EIO;
	else
		bad = NULL;
	for (; i < got && &wr[i] != bad; i++)
		posted(p, r, (struct rd_buf *)(uintptr_t)wr[i].wr_id);
	metric_add(rd_m_receives, i);
	metric_add(rd_m_receive_doorbells, 1);
	for (; i < got; i++)
		rd_buf_put((struct rd_buf *)(uintptr_t)wr[i].wr_id);
	return err;
}

int rd_post_receives(struct rd_port *p, struct rd_conn *r)
{
	/* cppcheck-suppress nullPointer ; r is NULL only where the port has a shared queue */
	unsigned want = p->pt_srq ? p->pt_recv_want : r->r_reserved;
	int err = 0;

	if (p->pt_srq)
		r = NULL;
	else if (r->r_ending)
		return 0;
	for (bool first = true; !err; first = false) {
		unsigned have = r ? r->r_posted : p->pt_srq_posted,
			 n = want > have ? want - have : 0;

		if (!n)
			break;
		if (first)
			rd_bufs_want(p, n);
		err = post_chain(p, r, n < RECV_CHAIN ? n : RECV_CHAIN);
	}
	return err;
}

static void arriving_end(struct rd_conn *r);

static void rpc_rdma_dev_give_back(struct rd_conn *r)
{
	arriving_end(r);
	r->r_port->pt_recv_want -= r->r_reserved;
	r->r_reserved = 0;
}

unsigned rd_reserve(struct rd_conn *r, unsigned credits)
{
	struct rd_port *p = r->r_port;
	unsigned want, room = p->pt_recv_max - p->pt_recv_want;

	/* Late connections get fewer receives, so that more connections can come. */
	if (room < p->pt_recv_max / 2 && credits > 32)
		credits = 32;
	if (room < p->pt_recv_max / 8 && credits > 8)
		credits = 8;
	want = credits + r->r_own_max;
	if (want > room)
		want = room;
	if (!p->pt_srq && want > r->r_recvs)
		want = r->r_recvs;
	if (want <= r->r_own_max)
		return 0;
	r->r_reserved = want;
	p->pt_recv_want += want;
	return want - r->r_own_max;
}

static void arriving_end(struct rd_conn *r)
{
	struct rd_conn **at = &r->r_port->pt_arriving;

	if (!r->r_arriving)
		return;
	while (*at != r)
		at = &(*at)->r_arriving_next;
	*at = r->r_arriving_next;
	r->r_arriving = false;
	r->r_port->pt_recv_late -= r->r_reserved;
}

void rd_arrive(struct rd_conn *r)
{
	struct rd_port *p = r->r_port;
	int err = r->r_ending ? -ECONNABORTED : rd_post_receives(p, r);

	arriving_end(r);
	if (r->r_ending)
		return;
	if (!err) {
		rd_cmd(&r->r_accept, CM_ACCEPT, r);
	} else if (err != -EAGAIN) {
		/* Receives that were posted to its own queue come back from there. */
		rpc_conn_fail(r->r_c, err);
	} else {
		r->r_arriving = true;
		r->r_arriving_next = p->pt_arriving;
		p->pt_arriving = r;
		p->pt_recv_late += r->r_reserved;
	}
}

bool rd_receives_late(const struct rd_conn *r)
{
	const struct rd_port *p = r->r_port;

	if (!p->pt_slab_asked)
		return false;
	return p->pt_srq ? p->pt_srq_posted + p->pt_recv_late < p->pt_recv_want
			 : r->r_posted < r->r_reserved;
}

/* If a shared queue then has too many receives posted, the remaining connections use them up. */
void rd_unreserve(struct rd_conn *r)
{
	rpc_rdma_dev_give_back(r);
	while (r->r_own) {
		struct rd_buf *b = r->r_own;

		r->r_own = b->bf_next;
		b->bf_prev = NULL;
		rd_buf_put(b);
	}
}

/* ---- polling ---- */

int rd_poll_cq(struct ibv_cq *cq, struct ibv_wc *wc)
{
	int n = ibv_poll_cq(cq, RD_WCS, wc);

	metric_add(n > 0 ? m_polls : m_vain, 1);
	if (n > 0)
		metric_add(m_completions, (uint64_t)n);
	return n;
}

static void rpc_rdma_dev_kick_msg(struct loop_msg *m)
{
	caa_container_of(m, struct rd_loop, lo_kick)->lo_kicked = false;
}

static void port_retry(struct rd_port *p);

static void receives_keep(struct rd_port *p)
{
	int err = p->pt_srq ? rd_post_receives(p, NULL) : 0;

	if (err && err != -EAGAIN)
		port_retry(p);
}

/* The hook retries the connections that stalled. */
void rd_slab_ready(struct rd_port *p)
{
	struct rd_conn *r = p->pt_arriving, *next;
	int err;

	receives_keep(p);
	for (; r; r = next) {
		next = r->r_arriving_next;
		rd_arrive(r);
	}
	for (unsigned i = 0; i < RD_QP_BUCKETS && !p->pt_srq; i++)
		for (r = p->pt_qps[i]; r; r = r->r_qp_next)
			if (!r->r_arriving && !r->r_ending && (err = rd_post_receives(p, r)) &&
			    err != -EAGAIN)
				rpc_conn_fail(r->r_c, err);
}

/* The hook retries the connections that stalled. */
static void stall_timer(struct loop_timer *t)
{
	receives_keep(caa_container_of(t, struct rd_port, pt_timer));
}

static void port_retry(struct rd_port *p)
{
	p->pt_timer.t_fire = stall_timer;
	loop_timer_start(p->pt_loop, &p->pt_timer, STALL_MS);
}

void rd_stall(struct rd_conn *r)
{
	struct rd_port *p = r->r_port;

	if (r->r_stalled)
		return;
	r->r_stalled = true;
	r->r_stalled_next = p->pt_stalled;
	p->pt_stalled = r;
	port_retry(p);
}

void rd_forget(struct rd_conn *r)
{
	struct rd_conn **at;

	for (at = &r->r_port->pt_active; *at; at = &(*at)->r_active_next)
		if (*at == r) {
			*at = r->r_active_next;
			break;
		}
	for (at = &r->r_port->pt_stalled; *at; at = &(*at)->r_stalled_next)
		if (*at == r) {
			*at = r->r_stalled_next;
			break;
		}
}

void rd_activate(struct rd_conn *r)
{
	struct rd_port *p = r->r_port;

	if (r->r_active)
		return;
	r->r_active = true;
	r->r_active_next = p->pt_active;
	p->pt_active = r;
}

/*
 * Says whether to poll again instead of waiting for an event. Polling goes on while completions
 * come less than twice the polling time (rdma.poll) apart, and stops when none came for one polling
 * time. An event costs an interrupt, a wake-up and some system calls; polling costs the time until
 * the next completion.
 */
static bool poll_on(uint64_t *last_ns, bool *spin, unsigned n)
{
	uint64_t now;

	if (!rd_opts.ro_poll_us)
		return n > 0;
	now = clock_mono_ns();
	if (n) {
		*spin = now - *last_ns < 2000u * (uint64_t)rd_opts.ro_poll_us;
		*last_ns = now;
		return true;
	}
	return *spin && now - *last_ns < 1000u * (uint64_t)rd_opts.ro_poll_us;
}

static void conn_poll(struct rd_conn *r)
{
	unsigned n = rd_poll(r);

	if (r->r_destroying)
		return;
	if (poll_on(&r->r_last_ns, &r->r_spin, n)) {
		rd_activate(r);
		return;
	}
	/* A completion between the last poll and this request raises no event. */
	if (ibv_req_notify_cq(r->r_cq, 0) || rd_poll(r))
		rd_activate(r);
}

void rd_qp_add(struct rd_conn *r)
{
	struct rd_conn **head = &r->r_port->pt_qps[r->r_qpn % RD_QP_BUCKETS];

	r->r_qp_next = *head;
	*head = r;
}

static struct rd_conn *qp_find(struct rd_port *p, uint32_t qpn)
{
	struct rd_conn *r = p->pt_qps[qpn % RD_QP_BUCKETS];

	while (r && r->r_qpn != qpn)
		r = r->r_qp_next;
	return r;
}

static unsigned shared_poll(struct rd_port *p)
{
	struct ibv_wc wc[RD_WCS];
	int n = rd_poll_cq(p->pt_cq, wc);

	for (int i = 0; i < n; i++) {
		struct rd_conn *r = qp_find(p, wc[i].qp_num);

		p->pt_srq_posted--;
		if (r)
			rd_received(r, &wc[i]);
		else
			rd_buf_put((struct rd_buf *)(uintptr_t)wc[i].wr_id);
	}
	/* Post them before any reply leaves that gives a credit back. */
	if (n > 0)
		receives_keep(p);
	return n > 0 ? (unsigned)n : 0;
}

/* Polls what is in the shared completion queue now, and no more: completions may come as fast as
 * they are taken. */
void rd_shared_empty(struct rd_port *p)
{
	unsigned n = 1;

	for (unsigned left = p->pt_cq ? p->pt_recv_max : 0; left && n; left -= n < left ? n : left)
		n = shared_poll(p);
}

void rd_qp_del(struct rd_conn *r)
{
	struct rd_conn **at = &r->r_port->pt_qps[r->r_qpn % RD_QP_BUCKETS];

	rd_shared_empty(r->r_port);
	while (*at && *at != r)
		at = &(*at)->r_qp_next;
	if (*at)
		*at = r->r_qp_next;
}

static void port_poll(struct rd_port *p)
{
	struct rd_conn *list, *r;

	if (p->pt_event && !poll_on(&p->pt_last_ns, &p->pt_spin, shared_poll(p)))
		p->pt_event = ibv_req_notify_cq(p->pt_cq, 0) || shared_poll(p);
	list = p->pt_active;
	p->pt_active = NULL;
	while ((r = list)) {
		list = r->r_active_next;
		r->r_active = false;
		conn_poll(r);
	}
}

static void loop_hook(struct loop_hook *h)
{
	struct rd_loop *lo = caa_container_of(h, struct rd_loop, lo_hook);
	bool more = false;

	for (struct rd_port *p = lo->lo_ports; p; p = p->pt_next) {
		struct rd_conn *r = p->pt_stalled;

		p->pt_stalled = NULL;
		while (r) {
			struct rd_conn *next = r->r_stalled_next;

			r->r_stalled = false;
			rd_retry(r);
			if (!r->r_ending)
				rpc_rdma_send(r->r_c);
			r = next;
		}
		if (p->pt_gift) { /* unused, or too small */
			pool_put(p->pt_gift, p->pt_gift_len);
			p->pt_gift = NULL;
		}
		if (p->pt_active || p->pt_event)
			port_poll(p);
		more |= p->pt_active || p->pt_event;
	}
	if (more && !lo->lo_kicked) {
		lo->lo_kicked = true;
		loop_post(lo->lo_loop, &lo->lo_kick);
	}
}

static void port_arm(struct rd_port *p)
{
	struct io_uring_sqe *sqe = loop_sqe(p->pt_loop);

	io_uring_prep_poll_multishot(sqe, p->pt_chan->fd, POLLIN);
	loop_arm(sqe, &p->pt_io);
	p->pt_ios++;
}

static void port_events(struct rd_port *p)
{
	struct ibv_cq *cq;
	void *ctx;

	while (!ibv_get_cq_event(p->pt_chan, &cq, &ctx)) {
		ibv_ack_cq_events(cq, 1);
		metric_add(m_events, 1);
		if (cq == p->pt_cq)
			p->pt_event = true;
		else
			rd_activate(ctx);
	}
}

/* ---- a port's life on its loop ---- */

static void port_stopped(struct rd_port *p)
{
	struct rd_cmd *cmd = calloc(1, sizeof *cmd);

	if (!cmd)
		log_fatal("rdma: out of memory");
	rd_cmd(cmd, CM_PORT_STOPPED, p);
}

static void port_poll_done(struct loop_io *io, int res, uint32_t flags)
{
	struct rd_port *p = caa_container_of(io, struct rd_port, pt_io);

	if (!(flags & IORING_CQE_F_MORE))
		p->pt_ios--;
	if (p->pt_stopping) {
		if (!p->pt_ios)
			port_stopped(p);
		return;
	}
	if (res >= 0)
		port_events(p);
	if (!(flags & IORING_CQE_F_MORE))
		port_arm(p);
}

static void port_cancel_done(struct loop_io *io, int res, uint32_t flags)
{
	struct rd_port *p = caa_container_of(io, struct rd_port, pt_cancel_io);

	(void)res;
	(void)flags;
	if (!--p->pt_ios)
		port_stopped(p);
}

/* A request fails if it is posted before the connection is established. On iWARP the side that
 * accepted a connection must not send first (RFC 5044 section 7.1). */
static bool may_probe(const struct rd_conn *r)
{
	return r->r_client || r->r_heard || (!r->r_dev->dv_iwarp && atomic_load(&r->r_established));
}

/*
 * Probes a peer that was silent since the last look: no event reports a peer that lost its power.
 * On iWARP the probe gives TCP data to be acknowledged, and TCP gives up in its own time.
 * Ends the connection of a peer that since the last look has completed nothing of what was under
 * way, or has answered no callback while others wait behind: our Sends wait for the peer's receives
 * for as long as it asks, which may be for ever.
 */
static void quiet_look(struct rd_conn *r)
{
	bool busy = r->r_seq != r->r_done || r->r_reads,
	     waits = r->r_backlog && r->r_back >= r->r_back_max && r->r_up && !r->r_client;

	if (r->r_ending)
		return;
	if ((busy && r->r_stuck) || (waits && r->r_mute)) {
		log_info("rdma: a peer %s",
			 busy && r->r_stuck ? "takes nothing" : "answers no callback");
		rpc_conn_fail(r->r_c, -ETIMEDOUT);
		return;
	}
	r->r_stuck = busy; /* until something completes */
	r->r_mute = waits; /* until it answers a call that others wait behind */
	if (r->r_quiet && may_probe(r))
		rd_probe(r);
	r->r_quiet = true;
}

static void quiet_timer(struct loop_timer *t)
{
	struct rd_loop *lo = caa_container_of(t, struct rd_loop, lo_timer);

	for (struct rd_port *p = lo->lo_ports; p; p = p->pt_next)
		for (unsigned i = 0; i < RD_QP_BUCKETS; i++)
			for (struct rd_conn *r = p->pt_qps[i]; r; r = r->r_qp_next)
				quiet_look(r);
	loop_timer_start(lo->lo_loop, &lo->lo_timer, rd_opts.ro_quiet_ms);
}

static void rd_loop_drop(void *arg)
{
	free(arg);
}

static struct rd_loop *rd_loop_get(struct loop *l)
{
	struct rd_loop *lo = loop_local(l, LOOP_SLOT_RDMA);

	if (lo)
		return lo;
	lo = calloc(1, sizeof *lo);
	if (!lo)
		log_fatal("rdma: out of memory");
	lo->lo_loop = l;
	lo->lo_kick.m_run = rpc_rdma_dev_kick_msg;
	lo->lo_hook.h_run = loop_hook;
	loop_set_local(l, LOOP_SLOT_RDMA, lo, rd_loop_drop);
	loop_at_turn_end(l, &lo->lo_hook);
	lo->lo_timer.t_fire = quiet_timer;
	loop_timer_start(l, &lo->lo_timer, rd_opts.ro_quiet_ms);
	return lo;
}

static void port_start(struct loop_msg *m)
{
	struct rd_port *p = caa_container_of(m, struct rd_port, pt_start_msg);
	struct rd_loop *lo = rd_loop_get(p->pt_loop);

	p->pt_next = lo->lo_ports;
	lo->lo_ports = p;
	port_arm(p);
}

/* Stops a port that has no connection left. */
static void port_stop(struct loop_msg *m)
{
	struct rd_port *p = caa_container_of(m, struct rd_port, pt_stop_msg),
		       **at = &rd_loop_get(p->pt_loop)->lo_ports;
	struct io_uring_sqe *sqe = loop_sqe(p->pt_loop);

	while (*at != p)
		at = &(*at)->pt_next;
	*at = p->pt_next;
	loop_timer_stop(p->pt_loop, &p->pt_timer);
	p->pt_stopping = true;
	if (p->pt_gift)
		pool_put(p->pt_gift, p->pt_gift_len);
	p->pt_gift = NULL;
	io_uring_prep_cancel(sqe, &p->pt_io, 0);
	loop_arm(sqe, &p->pt_cancel_io);
	p->pt_ios++;
}

/* ---- a device, on the control thread ---- */

static int nonblock(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? -errno : 0;
}

/* Makes the shared receive queue. A device that has none, or none large enough, works without. */
static void port_share(struct rd_port *p)
{
	const struct ibv_device_attr *a = &p->pt_dev->dv_attr;
	struct ibv_srq_init_attr ia = {.srq_context = p, .attr = {.max_sge = 1}};
	uint32_t most = (uint32_t)(a->max_srq_wr < a->max_cqe ? a->max_srq_wr : a->max_cqe);

	most = most < rd_opts.ro_srq_max ? most : rd_opts.ro_srq_max;
	if (most <= RD_SRQ_SPARE)
		return;
	ia.attr.max_wr = most;
	p->pt_cq = ibv_create_cq(p->pt_dev->dv_ctx, (int)most, NULL, p->pt_chan, p->pt_vector);
	if (!p->pt_cq)
		return;
	p->pt_srq = ibv_req_notify_cq(p->pt_cq, 0) ? NULL : ibv_create_srq(p->pt_dev->dv_pd, &ia);
	if (!p->pt_srq) {
		ibv_destroy_cq(p->pt_cq);
		p->pt_cq = NULL;
		return;
	}
	p->pt_recv_max = most;
	p->pt_recv_want = RD_SRQ_SPARE;
}

int rd_vector(const struct ibv_context *ctx, unsigned loop)
{
	return ctx->num_comp_vectors > 0 ? (int)(loop % (unsigned)ctx->num_comp_vectors) : 0;
}

/* Returns NULL and sets errno on failure. quiet: the log has the refusal already. */
static struct rd_port *port_new(struct rd_dev *d, struct loop *l, bool quiet)
{
	struct rd_port *p = calloc(1, sizeof *p);
	struct rd_slab *sl;
	int err;

	if (!p)
		return NULL;
	p->pt_dev = d;
	p->pt_loop = l;
	p->pt_vector = rd_vector(d->dv_ctx, d->dv_nports);
	p->pt_refused_said = quiet;
	p->pt_io.lio_done = port_poll_done;
	p->pt_cancel_io.lio_done = port_cancel_done;
	p->pt_start_msg.m_run = port_start;
	p->pt_stop_msg.m_run = port_stop;
	p->pt_slab_msg.m_run = rd_slab_came;
	p->pt_bulk_msg.m_run = rd_bulk_came;
	p->pt_chan = ibv_create_comp_channel(d->dv_ctx);
	if (!p->pt_chan || nonblock(p->pt_chan->fd)) {
		err = errno;
		if (p->pt_chan)
			ibv_destroy_comp_channel(p->pt_chan);
		free(p);
		errno = err;
		return NULL;
	}
	sl = rd_slab_make(p, 2 * RD_SLAB);
	if (sl)
		rd_slab_use(p, sl);
	p->pt_refused_said = quiet; /* making the slab may have changed it */
	if (!sl || (d->dv_iwarp && !(p->pt_sink = rd_sink_new(p, IBV_ACCESS_REMOTE_WRITE)))) {
		err = errno;
		port_destroy(p);
		errno = err;
		return NULL;
	}
	p->pt_refused_said = false;
	p->pt_recv_max = rd_opts.ro_srq_max;
	/* On iWARP a peer that finds a queue empty loses its connection: nothing tries again there
	 * (RFC 5041). So no connection may use up the receives of others. */
	if (rd_opts.ro_srq && !d->dv_iwarp && d->dv_attr.max_srq > 0)
		port_share(p);
	return p;
}

static struct ibv_mr *piece_register(struct rd_dev *d, const struct pool_piece *pc)
{
	return rd_register(d->dv_pd, pc->pp_base, pc->pp_len, IBV_ACCESS_LOCAL_WRITE,
			   &d->dv_relaxed);
}

static int pool_register_dev(struct rd_dev *d, bool quiet)
{
	d->dv_mr = calloc(pool_pieces() + 1, sizeof *d->dv_mr);
	if (!d->dv_mr)
		return -ENOMEM;
	for (d->dv_npieces = 0; d->dv_npieces < pool_pieces(); d->dv_npieces++) {
		const struct pool_piece *pc = pool_piece(d->dv_npieces);

		d->dv_mr[d->dv_npieces] = piece_register(d, pc);
		if (!d->dv_mr[d->dv_npieces]) {
			int err = -errno;

			if (!quiet)
				log_error("rdma: %s: registering %zu MiB of the pool: %s%s",
					  d->dv_name, pc->pp_len >> 20, strerror(-err),
					  rd_why_refused(-err));
			errno = -err;
			return err;
		}
	}
	return 0;
}

struct rd_dev *rd_dev_open(struct ibv_context *ctx, struct loop *const *loops, unsigned nloops,
			   bool quiet)
{
	struct rd_dev *d = calloc(1, sizeof *d);

	if (!d)
		return NULL;
	d->dv_ctx = ctx;
	snprintf(d->dv_name, sizeof d->dv_name, "%s", ibv_get_device_name(ctx->device));
	d->dv_iwarp = ctx->device->transport_type == IBV_TRANSPORT_IWARP;
	d->dv_pd = ibv_alloc_pd(ctx);
	if (!d->dv_pd || ibv_query_device(ctx, &d->dv_attr) || nonblock(ctx->async_fd) ||
	    pool_register_dev(d, quiet))
		goto failed;
	rd_regions_open(d);
	/* siw does not say so: it has given back everything once the queue pair is in its error
	 * state */
	d->dv_says_last = d->dv_attr.vendor_id != SIW_VENDOR;
	d->dv_inv = d->dv_attr.device_cap_flags & IBV_DEVICE_MEM_MGT_EXTENSIONS && !d->dv_iwarp;
	for (; d->dv_nports < nloops; d->dv_nports++)
		if (!(d->dv_port[d->dv_nports] = port_new(d, loops[d->dv_nports], quiet)))
			goto failed;
	for (unsigned i = 0; i < d->dv_nports; i++)
		loop_post(loops[i], &d->dv_port[i]->pt_start_msg);
	log_info("rdma: %s: %s, %u MiB of memory in %u regions%s%s, reads %d deep", d->dv_name,
		 d->dv_iwarp ? "iWARP" : "InfiniBand or RoCE", (unsigned)(pool_bytes() >> 20),
		 d->dv_npieces, d->dv_relaxed ? ", relaxed ordering asked for" : "",
		 d->dv_port[0]->pt_srq ? ", shared receive queues" : "",
		 d->dv_attr.max_qp_init_rd_atom);
	return d;
failed:
	if (!quiet)
		log_warn("rdma: %s cannot be used: %s", d->dv_name, strerror(errno));
	rd_dev_free(d);
	return NULL;
}

void rd_dev_stop(struct rd_dev *d)
{
	for (unsigned i = 0; i < d->dv_nports; i++)
		loop_post(d->dv_port[i]->pt_loop, &d->dv_port[i]->pt_stop_msg);
}

struct port_memory {
	struct loop_msg pm_msg;
	struct rd_port *pm_port;
};

/* Records may still lie in the port's memory. */
static void port_memory_run(struct loop_msg *m)
{
	struct port_memory *pm = caa_container_of(m, struct port_memory, pm_msg);
	struct rd_port *p = pm->pm_port;

	free(pm);
	p->pt_dev = NULL;
	rd_sink_drop(p->pt_sink);
	rd_sink_drop(p->pt_bulk);
	p->pt_out -= p->pt_srq_posted; /* their queue is gone */
	if (!p->pt_out && !p->pt_waiting)
		rd_port_free(p);
}

static void port_destroy(struct rd_port *p)
{
	struct port_memory *pm;

	rd_sink_unregister(p->pt_sink);
	rd_sink_unregister(p->pt_bulk_new);
	if (p->pt_srq)
		ibv_destroy_srq(p->pt_srq);
	if (p->pt_cq)
		ibv_destroy_cq(p->pt_cq);
	ibv_destroy_comp_channel(p->pt_chan);
	for (struct rd_slab *sl = p->pt_slabs; sl; sl = sl->sl_next)
		ibv_dereg_mr(sl->sl_mr);
	if (!p->pt_stopping) { /* never started */
		rd_sink_drop(p->pt_sink);
		rd_port_free(p);
		return;
	}
	pm = malloc(sizeof *pm);
	if (!pm)
		log_fatal("rdma: out of memory");
	pm->pm_port = p;
	pm->pm_msg.m_run = port_memory_run;
	loop_post(p->pt_loop, &pm->pm_msg);
}

void rd_dev_free(struct rd_dev *d)
{
	for (unsigned i = 0; i < d->dv_nports; i++)
		port_destroy(d->dv_port[i]);
	for (unsigned i = 0; i < d->dv_npieces; i++)
		ibv_dereg_mr(d->dv_mr[i]);
	rd_regions_close(d);
	free(d->dv_mr);
	if (d->dv_pd)
		ibv_dealloc_pd(d->dv_pd);
	free(d);
}
