/* rpc_rdma_dev.c - a device and its part on each loop: memory, receive queues, completions, polling. */
#include "base/log.h"
#include "proto/rpc_rdma.h"
#include "proto/rpc_rdma_int.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>

#define STALL_MS 2u
#define QUIET_MS 30000u

/* What a loop has of RDMA. */
struct rd_loop {
	struct loop *lo_loop;
	struct loop_hook lo_hook;
	struct rd_port *lo_ports;
	struct loop_msg lo_kick; /* keeps the loop from sleeping while it polls */
	bool lo_kicked;
	struct loop_timer lo_timer;
};

static void port_poll_done(struct loop_io *io, int res, uint32_t flags);
static void port_cancel_done(struct loop_io *io, int res, uint32_t flags);
static void port_start(struct loop_msg *m);
static void port_stop(struct loop_msg *m);

/* ---- memory ---- */

uint32_t rd_lkey(const struct rd_dev *d, const void *p)
{
	int i = pool_piece_of(p);

	return i >= 0 && (unsigned)i < d->dv_npieces ? d->dv_mr[i]->lkey : 0;
}

/* Memory of the pool, as an rpc_buf. */
struct rd_mem {
	struct rpc_buf me_rpc;
	size_t me_len;
};

static void mem_own(struct rpc_buf *b)
{
	struct rd_mem *me = caa_container_of(b, struct rd_mem, me_rpc);

	pool_put(b->b_data, me->me_len);
	free(me);
}

static void port_free_memory(struct rd_port *p);

static void gift_came(struct pool_wait *w, void *block)
{
	struct rd_port *p = caa_container_of(w, struct rd_port, pt_wait);

	p->pt_waiting = false;
	if (!p->pt_stopping && !p->pt_gift) {
		p->pt_gift = block;
		p->pt_gift_len = p->pt_wait_len;
		return;
	}
	pool_put(block, p->pt_wait_len);
	if (!p->pt_dev && !p->pt_out)
		port_free_memory(p);
}

/* A block, of *len bytes at least. Where there is none, those who wait take turns, and we wait with them: no load of others keeps us from ever
 * having one. How long it is needed is the peer's to say. */
static void *block_get(struct rd_port *p, size_t *len)
{
	void *block;

	if (p->pt_gift && *len <= p->pt_gift_len) {
		block = p->pt_gift;
		p->pt_gift = NULL;
		*len = p->pt_gift_len;
		return block;
	}
	block = pool_get(*len, POOL_LEAVE_HALF);
	if (!block && !p->pt_waiting && *len <= POOL_MOST) {
		p->pt_waiting = true;
		p->pt_wait_len = *len;
		p->pt_wait.pw_ready = gift_came;
		pool_wait(&p->pt_wait, *len);
	}
	return block;
}

static struct rpc_buf *mem_new(struct rd_port *p, size_t len, uint32_t *lkey)
{
	struct rd_mem *me = calloc(1, sizeof *me);

	if (!me)
		return NULL;
	me->me_rpc.b_data = block_get(p, &len);
	if (!me->me_rpc.b_data) {
		free(me);
		return NULL;
	}
	me->me_len = len;
	me->me_rpc.b_own = mem_own;
	me->me_rpc.b_refs = 1;
	*lkey = rd_lkey(p->pt_dev, me->me_rpc.b_data);
	return &me->me_rpc;
}

struct rpc_buf *rd_memory_new(struct rd_port *p, size_t len, uint32_t *lkey)
{
	struct rd_buf *b;

	if (len > RD_INLINE)
		return mem_new(p, len, lkey);
	b = rd_buf_get(p);
	if (!b)
		return NULL;
	*lkey = b->bf_lkey;
	return &b->bf_rpc;
}

/*
 * iWARP. The answer to an RDMA Read is placed as if the peer wrote it, so that its target must be writable for the peer: memory that serves
 * nothing else, a run of pages per record.
 */
#define SINK_BYTES (32u << 20)
#define SINK_PAGES (SINK_BYTES / RPC_PAGE)

struct rd_sink {
	uint8_t *sk_mem;
	struct ibv_mr *sk_mr;
	unsigned sk_out;
	bool sk_dead;
	unsigned sk_hand; /* where the search goes on */
	uint8_t sk_used[SINK_PAGES];
};

struct sink_mem {
	struct rpc_buf sm_rpc;
	struct rd_sink *sm_sink;
	unsigned sm_first, sm_n;
};

static void sink_free(struct rd_sink *sk)
{
	munmap(sk->sk_mem, SINK_BYTES);
	free(sk);
}

static void sink_drop(struct rd_sink *sk)
{
	if (!sk)
		return;
	sk->sk_dead = true;
	if (!sk->sk_out)
		sink_free(sk);
}

static void sink_own(struct rpc_buf *b)
{
	struct sink_mem *sm = caa_container_of(b, struct sink_mem, sm_rpc);
	struct rd_sink *sk = sm->sm_sink;

	memset(sk->sk_used + sm->sm_first, 0, sm->sm_n);
	free(sm);
	if (!--sk->sk_out && sk->sk_dead)
		sink_free(sk);
}

static struct rd_sink *sink_new(struct ibv_pd *pd, int access)
{
	struct rd_sink *sk = calloc(1, sizeof *sk);

	if (!sk)
		return NULL;
	sk->sk_mem = mmap(NULL, SINK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (sk->sk_mem == MAP_FAILED) {
		free(sk);
		return NULL;
	}
	sk->sk_mr = ibv_reg_mr(pd, sk->sk_mem, SINK_BYTES, IBV_ACCESS_LOCAL_WRITE | access);
	if (!sk->sk_mr) {
		sink_free(sk);
		return NULL;
	}
	return sk;
}

/* First fit, behind the last one; UINT_MAX: nowhere. */
static unsigned sink_find(const struct rd_sink *sk, unsigned n)
{
	unsigned run = 0;

	for (unsigned i = sk->sk_hand; i < sk->sk_hand + 2 * SINK_PAGES; i++) {
		unsigned at = i % SINK_PAGES;

		run = at ? run : 0;
		run = sk->sk_used[at] ? 0 : run + 1;
		if (run == n)
			return at + 1 - n;
	}
	return UINT_MAX;
}

static struct rpc_buf *sink_get(struct rd_sink *sk, size_t len, uint32_t *lkey)
{
	unsigned n = (unsigned)((len + RPC_PAGE - 1) / RPC_PAGE), at = sink_find(sk, n);
	struct sink_mem *sm = at == UINT_MAX ? NULL : calloc(1, sizeof *sm);

	if (!sm)
		return NULL;
	memset(sk->sk_used + at, 1, n);
	sk->sk_hand = (at + n) % SINK_PAGES;
	sk->sk_out++;
	sm->sm_sink = sk;
	sm->sm_first = at;
	sm->sm_n = n;
	sm->sm_rpc.b_data = sk->sk_mem + (size_t)at * RPC_PAGE;
	sm->sm_rpc.b_own = sink_own;
	sm->sm_rpc.b_refs = 1;
	*lkey = sk->sk_mr->lkey;
	return &sm->sm_rpc;
}

struct rpc_buf *rd_record_new(struct rd_port *p, size_t len, uint32_t *lkey, struct rpc_buf **sink)
{
	struct rpc_buf *b = mem_new(p, len, lkey);

	if (!b || !p->pt_sink)
		return b;
	*sink = sink_get(p->pt_sink, len, lkey);
	if (*sink)
		return b;
	rpc_buf_put(b);
	return NULL;
}

struct rpc_buf *rd_bulk_memory(struct rd_port *p, size_t len, uint32_t *rkey)
{
	struct rpc_buf *b;
	uint32_t lkey;

	if (!p->pt_bulk)
		p->pt_bulk = sink_new(p->pt_dev->dv_pd, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	b = p->pt_bulk ? sink_get(p->pt_bulk, len, &lkey) : NULL;
	if (b)
		*rkey = p->pt_bulk->sk_mr->rkey;
	return b;
}

static void buf_own(struct rpc_buf *b)
{
	rd_buf_put(caa_container_of(b, struct rd_buf, bf_rpc));
}

static int slab_add(struct rd_port *p)
{
	struct rd_slab *sl = calloc(1, sizeof *sl);

	if (!sl)
		return -ENOMEM;
	sl->sl_len = (size_t)RD_SLAB * RD_INLINE;
	sl->sl_mem = mmap(NULL, sl->sl_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (sl->sl_mem == MAP_FAILED) {
		free(sl);
		return -ENOMEM;
	}
	sl->sl_mr = ibv_reg_mr(p->pt_dev->dv_pd, sl->sl_mem, sl->sl_len, IBV_ACCESS_LOCAL_WRITE);
	if (!sl->sl_mr) {
		int err = -errno;

		log_warn("rdma: %s: registering %zu bytes for messages: %s%s", p->pt_dev->dv_name, sl->sl_len, strerror(-err), err == -ENOMEM ? " (RLIMIT_MEMLOCK, or the device's limit)" : "");
		munmap(sl->sl_mem, sl->sl_len);
		free(sl);
		return err;
	}
	for (unsigned i = 0; i < RD_SLAB; i++) {
		struct rd_buf *b = &sl->sl_bufs[i];

		b->bf_rpc.b_data = sl->sl_mem + (size_t)i * RD_INLINE;
		b->bf_rpc.b_own = buf_own;
		b->bf_port = p;
		b->bf_lkey = sl->sl_mr->lkey;
		b->bf_next = p->pt_free;
		p->pt_free = b;
	}
	sl->sl_next = p->pt_slabs;
	p->pt_slabs = sl;
	return 0;
}

static void port_free_memory(struct rd_port *p)
{
	while (p->pt_slabs) {
		struct rd_slab *sl = p->pt_slabs;

		p->pt_slabs = sl->sl_next;
		munmap(sl->sl_mem, sl->sl_len);
		free(sl);
	}
	free(p);
}

struct rd_buf *rd_buf_get(struct rd_port *p)
{
	struct rd_buf *b;

	if (!p->pt_free && slab_add(p))
		return NULL;
	b = p->pt_free;
	p->pt_free = b->bf_next;
	p->pt_out++;
	b->bf_next = NULL;
	b->bf_rpc.b_refs = 1;
	return b;
}

void rd_buf_put(struct rd_buf *b)
{
	struct rd_port *p = b->bf_port;

	b->bf_next = p->pt_free;
	p->pt_free = b;
	/* The device has gone, and this was the last of its memory in use. */
	if (!--p->pt_out && p->pt_stopping && !p->pt_dev && !p->pt_waiting)
		port_free_memory(p);
}

/* ---- receives ---- */

static void own_add(struct rd_conn *r, struct rd_buf *b)
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

/* To the shared queue, or to r's own. */
static int post_one(struct rd_port *p, struct rd_conn *r)
{
	struct rd_buf *b = rd_buf_get(p);
	struct ibv_sge sge;
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;

	if (!b)
		return -ENOMEM;
	wr.wr_id = (uintptr_t)b;
	sge = (struct ibv_sge){(uintptr_t)b->bf_rpc.b_data, RD_INLINE, b->bf_lkey};
	if (r ? ibv_post_recv(r->r_qp, &wr, &bad) : ibv_post_srq_recv(p->pt_srq, &wr, &bad)) {
		rd_buf_put(b);
		return -EIO;
	}
	if (r)
		own_add(r, b);
	else
		p->pt_srq_posted++;
	return 0;
}

int rd_post_receives(struct rd_port *p, struct rd_conn *r)
{
	int err = 0;

	while (!err && p->pt_srq && p->pt_srq_posted < p->pt_recv_want)
		err = post_one(p, NULL);
	while (!err && !p->pt_srq && !r->r_ending && r->r_posted < r->r_reserved)
		err = post_one(p, r);
	return err;
}

static void give_back(struct rd_conn *r)
{
	r->r_port->pt_recv_want -= r->r_reserved;
	r->r_reserved = 0;
}

unsigned rd_reserve(struct rd_conn *r, unsigned credits)
{
	struct rd_port *p = r->r_port;
	unsigned want, room = p->pt_recv_max - p->pt_recv_want;

	/* Those who come late get less, so that more can come. */
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
	if (rd_post_receives(p, r)) {
		give_back(r); /* what was posted to a queue of its own comes back from there */
		return 0;
	}
	return want - r->r_own_max;
}

/* What is posted too much in a shared queue is used up by those who stay. */
void rd_unreserve(struct rd_conn *r)
{
	give_back(r);
	while (r->r_own) {
		struct rd_buf *b = r->r_own;

		r->r_own = b->bf_next;
		b->bf_prev = NULL;
		rd_buf_put(b);
	}
}

/* ---- polling ---- */

static uint64_t clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void kick_msg(struct loop_msg *m)
{
	caa_container_of(m, struct rd_loop, lo_kick)->lo_kicked = false;
}

static void port_retry(struct rd_port *p);

static void receives_keep(struct rd_port *p)
{
	if (p->pt_srq && rd_post_receives(p, NULL))
		port_retry(p);
}

/* Connections that stalled are tried by the hook. */
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
 * Whether to poll again instead of waiting for an event: while completions come at least as often as the time that may be spent. An
 * event costs an interrupt, a wake-up and some system calls; polling costs the time until the next completion.
 */
static bool poll_on(uint64_t *last_ns, bool *spin, unsigned n)
{
	uint64_t now;

	if (!rd_opts.ro_poll_us)
		return n > 0;
	now = clock_ns();
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
	/* A completion between the last poll and this raises no event. */
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
	int n = ibv_poll_cq(p->pt_cq, RD_WCS, wc);

	for (int i = 0; i < n; i++) {
		struct rd_conn *r = qp_find(p, wc[i].qp_num);

		p->pt_srq_posted--;
		if (r)
			rd_received(r, &wc[i]);
		else
			rd_buf_put((struct rd_buf *)(uintptr_t)wc[i].wr_id);
	}
	/* Before any reply leaves that gives a credit back. */
	if (n > 0)
		receives_keep(p);
	return n > 0 ? (unsigned)n : 0;
}

/* What is in the shared queue of completions now; more may come as fast as it is taken. */
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
		if (p->pt_gift) { /* nobody wants it, or it is too small */
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
		log_fatal("rdma: no memory");
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

/*
 * Whoever was not heard of since the last time is tried: nothing tells of a peer that lost its power. And who has taken nothing of what was under
 * way the last time, and gave nothing, is cut off: our Sends wait for its receives as long as it wants, which it may have said is for ever.
 */
static void quiet_look(struct rd_conn *r)
{
	bool busy = r->r_seq != r->r_done || r->r_reads, waits = r->r_backlog && r->r_back >= r->r_back_max && r->r_up && !r->r_client;

	if (r->r_ending)
		return;
	if ((busy && r->r_stuck) || (waits && r->r_mute)) {
		log_info("rdma: a peer %s", busy && r->r_stuck ? "takes nothing" : "answers no callback");
		rpc_conn_fail(r->r_c, -ETIMEDOUT);
		return;
	}
	r->r_stuck = busy; /* until something completes */
	r->r_mute = waits; /* until it answers one of those that others wait for */
	if (r->r_quiet && !r->r_dev->dv_iwarp)
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
	loop_timer_start(lo->lo_loop, &lo->lo_timer, QUIET_MS);
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
		log_fatal("rdma: no memory");
	lo->lo_loop = l;
	lo->lo_kick.m_run = kick_msg;
	lo->lo_hook.h_run = loop_hook;
	loop_set_local(l, LOOP_SLOT_RDMA, lo, rd_loop_drop);
	loop_at_turn_end(l, &lo->lo_hook);
	lo->lo_timer.t_fire = quiet_timer;
	loop_timer_start(l, &lo->lo_timer, QUIET_MS);
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

/* No connection is left. */
static void port_stop(struct loop_msg *m)
{
	struct rd_port *p = caa_container_of(m, struct rd_port, pt_stop_msg), **at = &rd_loop_get(p->pt_loop)->lo_ports;
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

/* A device that has none, or none so large, does without. */
static void port_share(struct rd_port *p)
{
	const struct ibv_device_attr *a = &p->pt_dev->dv_attr;
	struct ibv_srq_init_attr ia = {.srq_context = p, .attr = {.max_sge = 1}};
	uint32_t most = (uint32_t)(a->max_srq_wr < a->max_cqe ? a->max_srq_wr : a->max_cqe);

	most = most < rd_opts.ro_srq_max ? most : rd_opts.ro_srq_max;
	if (most <= RD_SRQ_SPARE)
		return;
	ia.attr.max_wr = most;
	p->pt_cq = ibv_create_cq(p->pt_dev->dv_ctx, (int)most, NULL, p->pt_chan, 0);
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

static struct rd_port *port_new(struct rd_dev *d, struct loop *l)
{
	struct rd_port *p = calloc(1, sizeof *p);

	if (!p)
		return NULL;
	p->pt_dev = d;
	p->pt_loop = l;
	p->pt_io.io_done = port_poll_done;
	p->pt_cancel_io.io_done = port_cancel_done;
	p->pt_start_msg.m_run = port_start;
	p->pt_stop_msg.m_run = port_stop;
	p->pt_chan = ibv_create_comp_channel(d->dv_ctx);
	if (!p->pt_chan || nonblock(p->pt_chan->fd)) {
		if (p->pt_chan)
			ibv_destroy_comp_channel(p->pt_chan);
		free(p);
		return NULL;
	}
	if (d->dv_iwarp && !(p->pt_sink = sink_new(d->dv_pd, IBV_ACCESS_REMOTE_WRITE))) {
		ibv_destroy_comp_channel(p->pt_chan);
		free(p);
		return NULL;
	}
	p->pt_recv_max = rd_opts.ro_srq_max;
	if (rd_opts.ro_srq && d->dv_attr.max_srq > 0)
		port_share(p);
	return p;
}

static struct ibv_mr *piece_register(struct rd_dev *d, const struct pool_piece *pc)
{
	struct ibv_mr *mr = ibv_reg_mr(d->dv_pd, pc->pp_base, pc->pp_len, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);

	return mr ? mr : ibv_reg_mr(d->dv_pd, pc->pp_base, pc->pp_len, IBV_ACCESS_LOCAL_WRITE);
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
				log_error("rdma: %s: registering %zu MiB of the pool: %s%s", d->dv_name, pc->pp_len >> 20, strerror(-err),
				  err == -ENOMEM ? ": the limit on locked memory (RLIMIT_MEMLOCK), or the device's" : "");
			return err;
		}
	}
	return 0;
}

struct rd_dev *rd_dev_open(struct ibv_context *ctx, struct loop *const *loops, unsigned nloops, bool quiet)
{
	struct rd_dev *d = calloc(1, sizeof *d);

	if (!d)
		return NULL;
	d->dv_ctx = ctx;
	snprintf(d->dv_name, sizeof d->dv_name, "%s", ibv_get_device_name(ctx->device));
	d->dv_iwarp = ctx->device->transport_type == IBV_TRANSPORT_IWARP;
	d->dv_pd = ibv_alloc_pd(ctx);
	if (!d->dv_pd || ibv_query_device(ctx, &d->dv_attr) || nonblock(ctx->async_fd) || pool_register_dev(d, quiet))
		goto failed;
	d->dv_inv = d->dv_attr.device_cap_flags & IBV_DEVICE_MEM_MGT_EXTENSIONS && !d->dv_iwarp;
	for (; d->dv_nports < nloops; d->dv_nports++)
		if (!(d->dv_port[d->dv_nports] = port_new(d, loops[d->dv_nports])))
			goto failed;
	for (unsigned i = 0; i < d->dv_nports; i++)
		loop_post(loops[i], &d->dv_port[i]->pt_start_msg);
	log_info("rdma: %s: %s, %u MiB of memory in %u regions%s, reads %d deep", d->dv_name, d->dv_iwarp ? "iWARP" : "InfiniBand or RoCE",
		 (unsigned)(pool_bytes() >> 20), d->dv_npieces, d->dv_port[0]->pt_srq ? ", shared receive queues" : "", d->dv_attr.max_qp_init_rd_atom);
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

/* Records may still lie in it. */
static void port_memory_run(struct loop_msg *m)
{
	struct port_memory *pm = caa_container_of(m, struct port_memory, pm_msg);
	struct rd_port *p = pm->pm_port;

	free(pm);
	p->pt_dev = NULL;
	sink_drop(p->pt_sink);
	sink_drop(p->pt_bulk);
	p->pt_out -= p->pt_srq_posted; /* the queue they were posted to has gone */
	if (!p->pt_out && !p->pt_waiting)
		port_free_memory(p);
}

static void port_destroy(struct rd_port *p)
{
	struct port_memory *pm;

	if (p->pt_sink)
		ibv_dereg_mr(p->pt_sink->sk_mr);
	if (p->pt_bulk)
		ibv_dereg_mr(p->pt_bulk->sk_mr);
	if (p->pt_srq)
		ibv_destroy_srq(p->pt_srq);
	if (p->pt_cq)
		ibv_destroy_cq(p->pt_cq);
	ibv_destroy_comp_channel(p->pt_chan);
	for (struct rd_slab *sl = p->pt_slabs; sl; sl = sl->sl_next)
		ibv_dereg_mr(sl->sl_mr);
	if (!p->pt_stopping) { /* never started */
		sink_drop(p->pt_sink);
		free(p);
		return;
	}
	pm = malloc(sizeof *pm);
	if (!pm)
		log_fatal("rdma: no memory");
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
	free(d->dv_mr);
	if (d->dv_pd)
		ibv_dealloc_pd(d->dv_pd);
	free(d);
}
