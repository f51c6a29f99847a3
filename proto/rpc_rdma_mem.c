/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_rdma_mem.c - registered memory on a loop: the pool's memory, buffers of messages, and memory
 * that peers may write.
 *
 * Registering memory takes long, and takes the lock that page faults need. So the control thread
 * does it. A loop asks for more buffers while it still has some. When it has none, arriving
 * connections, receives, and with them replies, wait for the buffers that it asked for.
 */
#include "base/log.h"
#include "proto/rpc_rdma_int.h"
#include <errno.h>
#include <sys/mman.h>

#define AGAIN_NS 1000000000u /* after a refusal */

const char *rd_why_refused(int err)
{
	return err == ENOMEM ? ": the limit on locked memory (RLIMIT_MEMLOCK), or the device's"
			     : "";
}

uint32_t rd_lkey(const struct rd_dev *d, const void *p)
{
	int i = pool_piece_of(p);

	return i >= 0 && (unsigned)i < d->dv_npieces ? d->dv_mr[i]->lkey : 0;
}

/* A block of the pool, as an rpc_buf. */
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
		rd_port_free(p);
}

/* Takes a block of at least *len bytes. If the pool has none, the port waits in the pool's queue:
 * whatever load others make, its turn comes.
 * The peer decides how long a block stays in use. So replies may take more of the pool than
 * arguments that are only announced. */
static void *block_get(struct rd_port *p, size_t *len, enum pool_leave leave)
{
	void *block;

	if (p->pt_gift && *len <= p->pt_gift_len) {
		block = p->pt_gift;
		p->pt_gift = NULL;
		*len = p->pt_gift_len;
		return block;
	}
	block = pool_get(*len, leave);
	if (!block && !p->pt_waiting && *len <= POOL_MOST) {
		p->pt_waiting = true;
		p->pt_wait_len = *len;
		p->pt_wait.pw_ready = gift_came;
		pool_wait(&p->pt_wait, *len);
	}
	return block;
}

static struct rpc_buf *mem_new(struct rd_port *p, size_t len, enum pool_leave leave, uint32_t *lkey)
{
	struct rd_mem *me = calloc(1, sizeof *me);

	if (!me)
		return NULL;
	me->me_rpc.b_data = block_get(p, &len, leave);
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
		return mem_new(p, len, POOL_LEAVE_QUARTER, lkey);
	b = rd_buf_get(p);
	if (!b)
		return NULL;
	*lkey = b->bf_lkey;
	return &b->bf_rpc;
}

/*
 * iWARP. The answer to an RDMA Read is placed as if the peer wrote it, so its target must be
 * writable for the peer. The target is therefore memory that serves nothing else: a run of pages
 * per record.
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

void rd_sink_unregister(struct rd_sink *sk)
{
	if (sk)
		ibv_dereg_mr(sk->sk_mr);
}

void rd_sink_drop(struct rd_sink *sk)
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

struct ibv_mr *rd_register(struct ibv_pd *pd, void *p, size_t len, int access, bool *relaxed)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, p, len, access | IBV_ACCESS_RELAXED_ORDERING);

	*relaxed = mr != NULL;
	return mr ? mr : ibv_reg_mr(pd, p, len, access);
}

static struct rd_sink *sink_new(struct ibv_pd *pd, int access)
{
	struct rd_sink *sk = calloc(1, sizeof *sk);
	bool relaxed;
	int err;

	if (!sk)
		return NULL;
	sk->sk_mem =
		mmap(NULL, SINK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (sk->sk_mem == MAP_FAILED) {
		free(sk);
		errno = ENOMEM;
		return NULL;
	}
	sk->sk_mr =
		rd_register(pd, sk->sk_mem, SINK_BYTES, IBV_ACCESS_LOCAL_WRITE | access, &relaxed);
	if (!sk->sk_mr) {
		err = errno;
		sink_free(sk);
		errno = err;
		return NULL;
	}
	return sk;
}

struct rd_sink *rd_sink_new(struct rd_port *p, int access)
{
	struct rd_sink *sk = sink_new(p->pt_dev->dv_pd, access);
	int err = errno;

	if (!sk && !p->pt_refused_said)
		log_error("rdma: %s: registering %u MiB for %s: %s%s", p->pt_dev->dv_name,
			  SINK_BYTES >> 20,
			  access & IBV_ACCESS_REMOTE_READ ? "long calls" : "what is fetched",
			  strerror(err), rd_why_refused(err));
	p->pt_refused_said = !sk;
	errno = err;
	return sk;
}

/* First fit, from behind the last run on. Returns UINT_MAX if there is none. */
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
	struct rpc_buf *b = mem_new(p, len, POOL_LEAVE_HALF, lkey);

	if (!b || !p->pt_sink)
		return b;
	*sink = sink_get(p->pt_sink, len, lkey);
	if (*sink)
		return b;
	rpc_buf_put(b);
	return NULL;
}

static bool mem_may_ask(const struct rd_port *p)
{
	return !p->pt_stopping &&
	       (!p->pt_refused_ns || loop_now_ns(p->pt_loop) - p->pt_refused_ns > AGAIN_NS);
}

struct rpc_buf *rd_bulk_memory(struct rd_port *p, size_t len, uint32_t *rkey)
{
	struct rpc_buf *b;
	uint32_t lkey;

	if (!p->pt_bulk && !p->pt_bulk_asked && mem_may_ask(p)) {
		p->pt_bulk_asked = true;
		rd_cmd(&p->pt_bulk_cmd, CM_BULK, p);
	}
	b = p->pt_bulk ? sink_get(p->pt_bulk, len, &lkey) : NULL;
	if (b)
		*rkey = p->pt_bulk->sk_mr->rkey;
	return b;
}

static void buf_own(struct rpc_buf *b)
{
	rd_buf_put(caa_container_of(b, struct rd_buf, bf_rpc));
}

/* ---- more of it, on the control thread ---- */

static struct rd_slab *slab_new(struct rd_port *p, unsigned n)
{
	struct rd_slab *sl = calloc(1, sizeof *sl + n * sizeof sl->sl_bufs[0]);

	if (!sl)
		return NULL;
	sl->sl_n = n;
	sl->sl_len = (size_t)n * RD_INLINE;
	sl->sl_mem =
		mmap(NULL, sl->sl_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (sl->sl_mem == MAP_FAILED) {
		free(sl);
		return NULL;
	}
	sl->sl_mr = ibv_reg_mr(p->pt_dev->dv_pd, sl->sl_mem, sl->sl_len, IBV_ACCESS_LOCAL_WRITE);
	if (!sl->sl_mr) {
		int err = errno;

		munmap(sl->sl_mem, sl->sl_len);
		free(sl);
		errno = err;
		return NULL;
	}
	sl->sl_next = p->pt_slabs;
	p->pt_slabs = sl;
	return sl;
}

/* Makes up to n buffers, as many as there is room for. */
struct rd_slab *rd_slab_make(struct rd_port *p, unsigned n)
{
	struct rd_slab *sl = NULL;
	int err;

	for (; !sl && n >= RD_SLAB; n /= 2)
		sl = slab_new(p, n);
	err = errno;
	if (!sl && !p->pt_refused_said)
		log_warn("rdma: %s: registering memory for %u messages: %s%s", p->pt_dev->dv_name,
			 RD_SLAB, strerror(err), rd_why_refused(err));
	p->pt_refused_said = !sl;
	errno = err;
	return sl;
}

void rd_slab_asked(struct rd_port *p)
{
	p->pt_slab_new = rd_slab_make(p, p->pt_slab_n);
	loop_post(p->pt_loop, &p->pt_slab_msg);
}

void rd_bulk_asked(struct rd_port *p)
{
	p->pt_bulk_new = rd_sink_new(p, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	loop_post(p->pt_loop, &p->pt_bulk_msg);
}

/* ---- buffers, on the loop ---- */

void rd_slab_use(struct rd_port *p, struct rd_slab *sl)
{
	for (unsigned i = 0; i < sl->sl_n; i++) {
		struct rd_buf *b = &sl->sl_bufs[i];

		b->bf_rpc.b_data = sl->sl_mem + (size_t)i * RD_INLINE;
		b->bf_rpc.b_own = buf_own;
		b->bf_port = p;
		b->bf_lkey = sl->sl_mr->lkey;
		b->bf_next = p->pt_free;
		p->pt_free = b;
	}
	p->pt_nfree += sl->sl_n;
	p->pt_bufs += sl->sl_n;
}

void rd_slab_came(struct loop_msg *m)
{
	struct rd_port *p = caa_container_of(m, struct rd_port, pt_slab_msg);

	p->pt_slab_asked = false;
	if (p->pt_slab_new)
		rd_slab_use(p, p->pt_slab_new);
	else
		p->pt_refused_ns = loop_now_ns(p->pt_loop);
	if (!p->pt_stopping)
		rd_slab_ready(p);
}

void rd_bulk_came(struct loop_msg *m)
{
	struct rd_port *p = caa_container_of(m, struct rd_port, pt_bulk_msg);

	p->pt_bulk_asked = false;
	p->pt_bulk = p->pt_bulk_new;
	if (!p->pt_bulk)
		p->pt_refused_ns = loop_now_ns(p->pt_loop);
}

/* Returns how many buffers should stay free, so that no message has to wait. */
static unsigned low_water(const struct rd_port *p)
{
	return p->pt_bufs / 8 > RD_SLAB / 2 ? p->pt_bufs / 8 : RD_SLAB / 2;
}

void rd_bufs_want(struct rd_port *p, unsigned n)
{
	unsigned want = n + low_water(p), more;

	if (p->pt_nfree >= want || p->pt_slab_asked || !mem_may_ask(p))
		return;
	more = want - p->pt_nfree > p->pt_bufs / 8 ? want - p->pt_nfree : p->pt_bufs / 8;
	more = (more + RD_SLAB - 1) / RD_SLAB * RD_SLAB;
	p->pt_slab_n = more < RD_SLAB_MOST ? more : RD_SLAB_MOST;
	p->pt_slab_asked = true;
	rd_cmd(&p->pt_slab_cmd, CM_SLAB, p);
}

void rd_port_free(struct rd_port *p)
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

	rd_bufs_want(p, 1);
	if (!p->pt_free)
		return NULL;
	b = p->pt_free;
	p->pt_free = b->bf_next;
	p->pt_nfree--;
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
	p->pt_nfree++;
	/* The device has gone, and this was the last of its memory in use. */
	if (!--p->pt_out && p->pt_stopping && !p->pt_dev && !p->pt_waiting)
		rd_port_free(p);
}
