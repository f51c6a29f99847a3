/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.c - see pool.h.
 *
 * A piece is cut into units of POOL_MOST bytes. A unit is one block, or smaller blocks share it: a
 * bit per page says what is free. So a record of 1 MiB with its header in front and a read of 1 MiB
 * take one unit each and leave nothing broken behind, which powers of two would. Units stand in
 * lists by their longest run of free pages. A block is taken from the shortest run that has room,
 * so that whole units stay whole.
 *
 * The units of a node form a depot, behind a lock. In front of it each loop has a cache. A loop
 * that has a home node caches blocks of that node only. A block that it borrowed from another node
 * goes back there: otherwise the loop would have the far memory ever after.
 *
 * No waiter is forgotten. A waiter counts itself in pool.waiting, then looks into the depots, then
 * asks all loops to empty their caches. A thread that gives a block to a depot looks at
 * pool.waiting afterwards. A thread that gives a block to a cache, because the count was 0, does so
 * before that loop comes to the message that empties the cache. And a cache is in the list before
 * anything is in the cache.
 */
#include "base/pool.h"
#include "base/log.h"
#include "base/metrics.h"
#include <assert.h>
#include <errno.h>
#include <linux/mempolicy.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <urcu/compiler.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n)	  ((void)(p))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p))
#endif

#define PIECE_MAX  ((size_t)1 << 30)
#define UNIT_PAGES (POOL_MOST / POOL_PAGE)
#define UNIT_WORDS ((UNIT_PAGES + 63) / 64)
#define CLASSES	   16u
#define CACHE_MOST 256u	       /* blocks of a class: enough for the calls that a turn ends */
#define REFILL	   (64u << 10) /* bytes that small classes fetch at once */

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MAP_HUGE_2MB
#define MAP_HUGE_2MB (21 << 26)
#endif

/* In pages. */
static const uint16_t class_pages[CLASSES] = {1,  2,  4,  6,  8,   10,	16,  18,
					      32, 34, 64, 66, 128, 130, 256, 258};
_Static_assert(UNIT_PAGES == 258, "the largest class is a unit");

struct unit {
	uint64_t u_free[UNIT_WORDS]; /* a bit per page */
	struct unit *u_next, **u_prevp;
	uint8_t *u_base;
	uint16_t u_run; /* pages of the longest free run */
};

struct depot {
	_Alignas(64) pthread_mutex_t d_lock;
	/* by the largest class that the longest run has room for; full units are in no list */
	struct unit *d_list[CLASSES];
	size_t d_bytes, d_huge, d_transparent;
	_Atomic size_t d_free;
};

struct piece {
	struct pool_piece p_pub;
	struct depot *p_depot;
	struct unit *p_units;
};

struct cache {
	struct loop *c_loop;
	/* the depot that it gets from; -1: the depot of the node where the loop happens to run */
	int c_home;
	unsigned c_first, c_nfixed; /* fixed buffers are the pieces from c_first on; 0: none */
	bool c_emptying;	    /* c_empty is posted; under wait_lock */
	struct cache *c_next;	    /* under wait_lock */
	struct loop_msg c_empty;
	_Atomic size_t c_bytes; /* only its loop writes */
	unsigned c_n[CLASSES];
	void *c_block[CLASSES][CACHE_MOST];
};

static struct {
	uint8_t *base; /* piece i begins at base + i * PIECE_MAX */
	struct piece *pieces;
	unsigned npieces;
	size_t bytes;
	struct depot *depots;
	int ndepots;
	int nodes[POOL_NODES];
	/* chosen: the nodes were named; refused: the log says that memory of one was refused */
	bool chosen, refused;
	_Atomic unsigned ncaches, waiting;
	pthread_mutex_t wait_lock; /* taken before a depot's */
	struct cache *caches;
	struct pool_wait *wait, **wait_end;
	struct metric *misses, *waits, *borrowed;
} pool = {.wait_lock = PTHREAD_MUTEX_INITIALIZER, .wait_end = &pool.wait};

/* ---- classes ---- */

/* Returns CLASSES if no class is so large. */
static unsigned pool_class_of(size_t bytes)
{
	size_t pages = (bytes + POOL_PAGE - 1) / POOL_PAGE;
	unsigned c = 0;

	while (c < CLASSES && class_pages[c] < pages)
		c++;
	return c;
}

static size_t class_bytes(unsigned c)
{
	return (size_t)class_pages[c] * POOL_PAGE;
}

/* ---- units ---- */

static bool unit_bit(const struct unit *u, unsigned page)
{
	return u->u_free[page / 64] >> page % 64 & 1;
}

/* Returns the first page from `page` on that is (or is not) free, or UNIT_PAGES if there is
 * none. */
static unsigned unit_next(const struct unit *u, unsigned page, bool isfree)
{
	while (page < UNIT_PAGES) {
		uint64_t w = (isfree ? u->u_free[page / 64] : ~u->u_free[page / 64]) >> page % 64;

		if (w) {
			page += (unsigned)__builtin_ctzll(w);
			return page < UNIT_PAGES ? page : UNIT_PAGES;
		}
		page = (page / 64 + 1) * 64;
	}
	return UNIT_PAGES;
}

static void unit_mark(struct unit *u, unsigned page, unsigned n, bool isfree)
{
	while (n) {
		unsigned bit = page % 64, most = 64 - bit < n ? 64 - bit : n;
		uint64_t mask = (most == 64 ? ~0ull : (1ull << most) - 1) << bit;

		if (isfree)
			u->u_free[page / 64] |= mask;
		else
			u->u_free[page / 64] &= ~mask;
		page += most;
		n -= most;
	}
}

/* Walks the runs of free pages. Sets *longest to the longest. Returns where the shortest run that
 * holds `want` begins, or UNIT_PAGES if no run does. */
static unsigned unit_runs(const struct unit *u, unsigned want, unsigned *longest)
{
	unsigned best = UNIT_PAGES, best_len = UNIT_PAGES + 1;

	*longest = 0;
	for (unsigned page = unit_next(u, 0, true); page < UNIT_PAGES;) {
		unsigned end = unit_next(u, page, false), len = end - page;

		if (len > *longest)
			*longest = len;
		if (len >= want && len < best_len) {
			best = page;
			best_len = len;
		}
		page = unit_next(u, end, true);
	}
	return best;
}

static void unit_unlist(struct unit *u)
{
	if (!u->u_run)
		return;
	*u->u_prevp = u->u_next;
	if (u->u_next)
		u->u_next->u_prevp = u->u_prevp;
}

static void unit_list(struct depot *d, struct unit *u)
{
	unsigned run, c = CLASSES;

	unit_runs(u, UNIT_PAGES + 1, &run);
	u->u_run = (uint16_t)run;
	if (!run)
		return;
	while (class_pages[c - 1] > run)
		c--;
	u->u_next = d->d_list[c - 1];
	u->u_prevp = &d->d_list[c - 1];
	if (u->u_next)
		u->u_next->u_prevp = &u->u_next;
	d->d_list[c - 1] = u;
}

/* ---- depots ---- */

/* The caller holds the lock. */
static void *depot_take(struct depot *d, unsigned class)
{
	unsigned c = class, page, run;
	struct unit *u;

	while (c < CLASSES && !d->d_list[c])
		c++;
	if (c == CLASSES)
		return NULL;
	u = d->d_list[c];
	page = unit_runs(u, class_pages[class], &run);
	assert(page < UNIT_PAGES);
	unit_unlist(u);
	unit_mark(u, page, class_pages[class], false);
	unit_list(d, u);
	atomic_fetch_sub_explicit(&d->d_free, class_bytes(class), memory_order_relaxed);
	return u->u_base + (size_t)page * POOL_PAGE;
}

static unsigned depot_get(struct depot *d, unsigned class, enum pool_leave leave, void **blocks,
			  unsigned want)
{
	static const unsigned parts[] = {
		[POOL_LEAVE_NONE] = 0, [POOL_LEAVE_QUARTER] = 1, [POOL_LEAVE_HALF] = 2};
	size_t stays = d->d_bytes / 4 * parts[leave];
	unsigned n = 0;

	if (atomic_load_explicit(&d->d_free, memory_order_relaxed) < stays + class_bytes(class))
		return 0;
	pthread_mutex_lock(&d->d_lock);
	while (n < want && atomic_load_explicit(&d->d_free, memory_order_relaxed) >=
				   stays + class_bytes(class)) {
		blocks[n] = depot_take(d, class);
		if (!blocks[n])
			break;
		n++;
	}
	pthread_mutex_unlock(&d->d_lock);
	return n;
}

/* Returns the depot of the node that this thread runs on. */
static int depot_here(void)
{
	unsigned cpu, node;

	if (pool.ndepots == 1 || getcpu(&cpu, &node))
		return 0;
	for (int i = 0; i < pool.ndepots; i++)
		if (pool.nodes[i] == (int)node)
			return i;
	return 0;
}

/* Gets blocks from this depot first; from another depot no more than is needed now. */
static unsigned depots_get(int here, unsigned class, enum pool_leave leave, void **blocks,
			   unsigned want)
{
	unsigned n = depot_get(&pool.depots[here], class, leave, blocks, want);

	for (int i = 1; i < pool.ndepots && !n; i++) {
		n = depot_get(&pool.depots[(here + i) % pool.ndepots], class, leave, blocks, 1);
		metric_add(pool.borrowed, n);
	}
	return n;
}

static void depot_leave(struct depot **held)
{
	if (*held)
		pthread_mutex_unlock(&(*held)->d_lock);
	*held = NULL;
}

/* Puts a block back. When several go back one after the other, the lock stays held while the next
 * block goes to the same depot. */
static void depot_put(void *p, unsigned class, struct depot **held)
{
	struct piece *pc = &pool.pieces[pool_piece_of(p)];
	size_t off = (size_t)((uint8_t *)p - pc->p_pub.pp_base);
	struct unit *u = &pc->p_units[off / POOL_MOST];
	unsigned page = (unsigned)(off % POOL_MOST / POOL_PAGE);
	struct depot *d = pc->p_depot;

	if (*held != d) {
		depot_leave(held);
		pthread_mutex_lock(&d->d_lock);
		*held = d;
	}
	assert(!unit_bit(u, page) && unit_next(u, page, true) >= page + class_pages[class]);
	unit_unlist(u);
	unit_mark(u, page, class_pages[class], true);
	unit_list(d, u);
	atomic_fetch_add_explicit(&d->d_free, class_bytes(class), memory_order_relaxed);
}

/* ---- caches ---- */

static void cache_add(struct cache *c, size_t n)
{
	atomic_store_explicit(&c->c_bytes,
			      atomic_load_explicit(&c->c_bytes, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

/* Gives back all but `keep` blocks of a class. */
static void cache_trim(struct cache *c, unsigned class, unsigned keep)
{
	struct depot *held = NULL;

	while (c->c_n[class] > keep) {
		depot_put(c->c_block[class][--c->c_n[class]], class, &held);
		cache_add(c, -class_bytes(class));
	}
	depot_leave(&held);
}

static void serve_waiters(void);

static void cache_empty(struct loop_msg *m)
{
	struct cache *c = caa_container_of(m, struct cache, c_empty);

	pthread_mutex_lock(&pool.wait_lock);
	c->c_emptying = false;
	pthread_mutex_unlock(&pool.wait_lock);
	for (unsigned i = 0; i < CLASSES; i++)
		cache_trim(c, i, 0);
	serve_waiters();
}

static void cache_drop(void *p)
{
	struct cache *c = p, **at;

	for (unsigned i = 0; i < CLASSES; i++)
		cache_trim(c, i, 0);
	pthread_mutex_lock(&pool.wait_lock);
	for (at = &pool.caches; *at != c; at = &(*at)->c_next)
		;
	*at = c->c_next;
	pthread_mutex_unlock(&pool.wait_lock);
	atomic_fetch_sub(&pool.ncaches, 1);
	serve_waiters();
	free(c);
}

static struct cache *cache_of(struct loop *l)
{
	struct cache *c = loop_local(l, LOOP_SLOT_POOL);

	if (c)
		return c;
	c = calloc(1, sizeof(*c));
	if (!c)
		log_fatal("pool: out of memory");
	c->c_loop = l;
	c->c_home = -1;
	c->c_empty.m_run = cache_empty;
	loop_set_local(l, LOOP_SLOT_POOL, c, cache_drop);
	atomic_fetch_add(&pool.ncaches, 1);
	pthread_mutex_lock(&pool.wait_lock);
	c->c_next = pool.caches;
	pool.caches = c;
	pthread_mutex_unlock(&pool.wait_lock);
	return c;
}

/* Says whether the cache may keep n bytes more. */
static bool cache_room(const struct cache *c, size_t n)
{
	size_t most = pool.bytes / 8 / atomic_load_explicit(&pool.ncaches, memory_order_relaxed);

	return atomic_load_explicit(&c->c_bytes, memory_order_relaxed) + n <=
	       (most < POOL_KEEP ? most : POOL_KEEP);
}

static int cache_depot(const struct cache *c)
{
	return c->c_home >= 0 ? c->c_home : depot_here();
}

/* Gets several blocks at once if they are small. */
static void *cache_refill(struct cache *c, unsigned class, enum pool_leave leave)
{
	size_t size = class_bytes(class);
	unsigned want = 1;

	while (want < CACHE_MOST / 2 && (want + 1) * size <= REFILL && cache_room(c, want * size))
		want++;
	want = depots_get(cache_depot(c), class, leave, c->c_block[class], want);
	if (!want)
		return NULL;
	c->c_n[class] = want - 1;
	cache_add(c, (want - 1) * size);
	return c->c_block[class][want - 1];
}

static bool cache_put(struct cache *c, void *p, unsigned class)
{
	if (!cache_room(c, class_bytes(class)))
		return false;
	if (c->c_home >= 0 && pool.pieces[pool_piece_of(p)].p_depot != &pool.depots[c->c_home])
		return false;
	if (c->c_n[class] == CACHE_MOST)
		cache_trim(c, class, CACHE_MOST / 2);
	c->c_block[class][c->c_n[class]++] = p;
	cache_add(c, class_bytes(class));
	return true;
}

/* ---- blocks ---- */

static void *block_find(unsigned class, enum pool_leave leave)
{
	struct loop *l = loop_self();
	struct cache *c;
	void *p = NULL;

	if (!l)
		return depots_get(depot_here(), class, leave, &p, 1) ? p : NULL;
	c = cache_of(l);
	if (!c->c_n[class])
		return cache_refill(c, class, leave);
	cache_add(c, -class_bytes(class));
	return c->c_block[class][--c->c_n[class]];
}

void *pool_get(size_t bytes, enum pool_leave leave)
{
	unsigned class = pool_class_of(bytes);
	void *p = NULL;

	if (!pool.npieces || class == CLASSES)
		return NULL;
	if (!atomic_load_explicit(&pool.waiting, memory_order_relaxed))
		p = block_find(class, leave);
	if (p)
		ASAN_UNPOISON_MEMORY_REGION(p, class_bytes(class));
	else
		metric_add(pool.misses, 1);
	return p;
}

void pool_put(void *p, size_t bytes)
{
	unsigned class = pool_class_of(bytes);
	struct loop *l = loop_self();
	struct depot *held = NULL;

	assert(pool_piece_of(p) >= 0 && class < CLASSES);
	ASAN_POISON_MEMORY_REGION(p, class_bytes(class));
	if (!l || atomic_load(&pool.waiting) || !cache_put(cache_of(l), p, class))
		depot_put(p, class, &held);
	depot_leave(&held);
	if (atomic_load(&pool.waiting))
		serve_waiters();
}

/* ---- waiting ---- */

static void wait_ready(struct loop_msg *m)
{
	struct pool_wait *w = caa_container_of(m, struct pool_wait, pw_msg);

	w->pw_ready(w, w->pw_block);
}

static void serve_waiters(void)
{
	struct pool_wait *w;

	pthread_mutex_lock(&pool.wait_lock);
	while ((w = pool.wait)) {
		unsigned class = pool_class_of(w->pw_bytes);

		if (!depots_get(w->pw_here, class, POOL_LEAVE_NONE, &w->pw_block, 1))
			break;
		ASAN_UNPOISON_MEMORY_REGION(w->pw_block, class_bytes(class));
		pool.wait = w->pw_next;
		if (!pool.wait)
			pool.wait_end = &pool.wait;
		atomic_fetch_sub(&pool.waiting, 1);
		loop_post(w->pw_loop, &w->pw_msg);
	}
	pthread_mutex_unlock(&pool.wait_lock);
}

void pool_wait(struct pool_wait *w, size_t bytes)
{
	assert(pool.npieces && bytes <= POOL_MOST);
	w->pw_loop = loop_self();
	w->pw_here = cache_depot(cache_of(w->pw_loop));
	w->pw_msg.m_run = wait_ready;
	w->pw_bytes = bytes;
	w->pw_next = NULL;
	metric_add(pool.waits, 1);
	pthread_mutex_lock(&pool.wait_lock);
	*pool.wait_end = w;
	pool.wait_end = &w->pw_next;
	atomic_fetch_add(&pool.waiting, 1);
	pthread_mutex_unlock(&pool.wait_lock);
	serve_waiters();
	pthread_mutex_lock(&pool.wait_lock);
	for (struct cache *c = pool.wait ? pool.caches : NULL; c; c = c->c_next) {
		if (!c->c_emptying)
			loop_post(c->c_loop, &c->c_empty);
		c->c_emptying = true;
	}
	pthread_mutex_unlock(&pool.wait_lock);
}

/* ---- pieces ---- */

size_t pool_bytes(void)
{
	return pool.bytes;
}

unsigned pool_pieces(void)
{
	return pool.npieces;
}

const struct pool_piece *pool_piece(unsigned i)
{
	return &pool.pieces[i].p_pub;
}

int pool_piece_of(const void *p)
{
	size_t off = (size_t)((const uint8_t *)p - pool.base), i = off / PIECE_MAX;

	if (!pool.npieces || (const uint8_t *)p < pool.base || i >= pool.npieces ||
	    off % PIECE_MAX >= pool.pieces[i].p_pub.pp_len)
		return -1;
	return (int)i;
}

int pool_fixed(struct loop *l, const void *p)
{
	struct cache *c = loop_local(l, LOOP_SLOT_POOL);
	int i;

	if (!c || !c->c_nfixed)
		return -1;
	i = pool_piece_of(p) - (int)c->c_first;
	return i >= 0 && i < (int)c->c_nfixed ? i : -1;
}

void pool_home(struct loop *l, int node)
{
	for (int i = 0; i < pool.ndepots && pool.ndepots > 1; i++)
		if (pool.nodes[i] == node)
			cache_of(l)->c_home = i;
}

/* Finds the pieces of the cache's node, or all pieces. Returns how many there are. */
static unsigned pieces_of(const struct cache *c, unsigned *first)
{
	unsigned n = 0;

	*first = 0;
	if (c->c_home < 0)
		return pool.npieces;
	while (pool.pieces[*first].p_depot != &pool.depots[c->c_home])
		++*first;
	while (*first + n < pool.npieces &&
	       pool.pieces[*first + n].p_depot == &pool.depots[c->c_home])
		n++;
	return n;
}

int pool_register(struct loop *l)
{
	struct rlimit rl = {0};
	struct cache *c;
	struct iovec *iov;
	unsigned first, n;
	size_t bytes = 0;
	int err;

	if (!pool.npieces)
		return 0;
	c = cache_of(l);
	n = pieces_of(c, &first);
	iov = calloc(n, sizeof(*iov));
	if (!iov)
		log_fatal("pool: out of memory");
	for (unsigned i = 0; i < n; i++) {
		const struct pool_piece *pp = &pool.pieces[first + i].p_pub;

		iov[i] = (struct iovec){pp->pp_base, pp->pp_len};
		bytes += pp->pp_len;
	}
	err = io_uring_register_buffers(loop_ring(l), iov, n);
	if (!err && loop_poll_ring(l)) {
		err = io_uring_register_buffers(loop_poll_ring(l), iov, n);
		bytes *= 2;
	}
	free(iov);
	c->c_first = first;
	c->c_nfixed = err ? 0 : n;
	getrlimit(RLIMIT_MEMLOCK, &rl);
	if (err == -ENOMEM || err == -EPERM)
		log_warn("pool: no fixed buffers, I/O works without them: RLIMIT_MEMLOCK is %llu "
			 "bytes, each thread needs %zu "
			 "(LimitMEMLOCK= in the unit, or CAP_IPC_LOCK at start)",
			 (unsigned long long)rl.rlim_cur, bytes);
	else if (err)
		log_warn("pool: no fixed buffers, I/O works without them: %s", strerror(-err));
	return err;
}

/* ---- making ---- */

int pool_nodes_parse(const char *text, int *nodes, int most)
{
	int n = 0;

	while (*text && *text != '\n') {
		char *end;
		long a = strtol(text, &end, 10), b = a;

		if (end == text || a < 0 || (n && a <= nodes[n - 1]))
			return -1;
		if (*end == '-') {
			text = end + 1;
			b = strtol(text, &end, 10);
			if (end == text || b < a)
				return -1;
		}
		for (; a <= b; a++) {
			if (n == most)
				return -1;
			nodes[n++] = (int)a;
		}
		if (*end != ',' && *end != '\n' && *end)
			return -1;
		text = end + (*end == ',');
	}
	return n;
}

void pool_use_nodes(const int *nodes, int n)
{
	assert(n > 0 && n <= POOL_NODES && !pool.npieces);
	memcpy(pool.nodes, nodes, (size_t)n * sizeof(*nodes));
	pool.ndepots = n;
	pool.chosen = true;
}

/* Finds the nodes that have memory. If the kernel does not say, there is one node. */
static void pool_nodes_find(void)
{
	FILE *f = fopen("/sys/devices/system/node/has_memory", "re");
	char text[512] = "";

	if (f) {
		if (!fgets(text, sizeof(text), f))
			*text = 0;
		fclose(f);
	}
	pool.ndepots = pool_nodes_parse(text, pool.nodes, POOL_NODES);
	if (pool.ndepots <= 0) {
		pool.ndepots = 1;
		pool.nodes[0] = 0;
	}
}

enum kind { KIND_HUGE, KIND_TRANSPARENT, KIND_PLAIN };

/* Preferred, not bound: memory of another node is better than none. */
static void piece_bind(struct pool_piece *pp)
{
	unsigned long mask[POOL_NODES * 16 / sizeof(long)] = {0};
	unsigned node = (unsigned)pp->pp_node, bits = 8 * sizeof(long);

	if ((pool.ndepots == 1 && !pool.chosen) || node >= sizeof(mask) * 8)
		return;
	mask[node / bits] = 1ul << node % bits;
	if (!syscall(SYS_mbind, pp->pp_base, pp->pp_len, MPOL_PREFERRED, mask, sizeof(mask) * 8 + 1,
		     0) ||
	    pool.refused)
		return;
	log_warn("pool: cannot get memory of NUMA node %u: %s", node, strerror(errno));
	pool.refused = true;
}

static int piece_map(struct pool_piece *pp, enum kind kind)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED |
		    (kind == KIND_HUGE ? MAP_HUGETLB | MAP_HUGE_2MB : 0);

	if (mmap(pp->pp_base, pp->pp_len, PROT_READ | PROT_WRITE, flags, -1, 0) == MAP_FAILED)
		return -errno;
	piece_bind(pp);
	if (kind == KIND_TRANSPARENT && madvise(pp->pp_base, pp->pp_len, MADV_HUGEPAGE))
		return -errno;
	if (madvise(pp->pp_base, pp->pp_len, MADV_POPULATE_WRITE))
		return -errno;
	/* Keep clients' data out of core files. */
	madvise(pp->pp_base, pp->pp_len, MADV_DONTDUMP);
	return 0;
}

static int piece_cut(struct piece *pc)
{
	unsigned pages = (unsigned)(pc->p_pub.pp_len / POOL_PAGE),
		 n = (pages + UNIT_PAGES - 1) / UNIT_PAGES;

	pc->p_units = calloc(n, sizeof(*pc->p_units));
	if (!pc->p_units)
		return -ENOMEM;
	for (unsigned i = 0; i < n; i++) {
		struct unit *u = &pc->p_units[i];
		unsigned left = pages - i * UNIT_PAGES;

		u->u_base = pc->p_pub.pp_base + (size_t)i * POOL_MOST;
		unit_mark(u, 0, left < UNIT_PAGES ? left : UNIT_PAGES, true);
		unit_list(pc->p_depot, u);
	}
	pc->p_depot->d_bytes += pc->p_pub.pp_len;
	atomic_fetch_add(&pc->p_depot->d_free, pc->p_pub.pp_len);
	ASAN_POISON_MEMORY_REGION(pc->p_pub.pp_base, pc->p_pub.pp_len);
	return 0;
}

/* Plans the pieces node by node, each as large as can be. The addresses come first: a piece's
 * number follows from its address. */
static int pieces_plan(void)
{
	size_t parts = pool.bytes / POOL_LEAST, part;
	uint8_t *at;

	if ((size_t)pool.ndepots > parts)
		pool.ndepots = (int)parts;
	part = (parts + (size_t)pool.ndepots - 1) / (size_t)pool.ndepots * POOL_LEAST;
	pool.pieces = calloc((part + PIECE_MAX - 1) / PIECE_MAX * (size_t)pool.ndepots,
			     sizeof(*pool.pieces));
	pool.depots = aligned_alloc(64, (size_t)pool.ndepots * sizeof(*pool.depots));
	if (!pool.pieces || !pool.depots)
		return -ENOMEM;
	memset(pool.depots, 0, (size_t)pool.ndepots * sizeof(*pool.depots));
	pool.bytes = part * (size_t)pool.ndepots;
	for (int i = 0; i < pool.ndepots; i++) {
		pthread_mutex_init(&pool.depots[i].d_lock, NULL);
		for (size_t left = part; left; left -= pool.pieces[pool.npieces++].p_pub.pp_len) {
			struct piece *pc = &pool.pieces[pool.npieces];

			pc->p_pub.pp_len = left < PIECE_MAX ? left : PIECE_MAX;
			pc->p_pub.pp_node = pool.nodes[i];
			pc->p_depot = &pool.depots[i];
		}
	}
	at = mmap(NULL, pool.npieces * PIECE_MAX + POOL_LEAST, PROT_NONE,
		  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at == MAP_FAILED)
		return -errno;
	pool.base = (uint8_t *)(((uintptr_t)at + POOL_LEAST - 1) & ~(uintptr_t)(POOL_LEAST - 1));
	for (unsigned i = 0; i < pool.npieces; i++)
		pool.pieces[i].p_pub.pp_base = pool.base + i * PIECE_MAX;
	return 0;
}

/* A mapping may hold several pieces. */
static void transparent_note(int piece, size_t bytes)
{
	for (unsigned i = (unsigned)piece; i < pool.npieces && bytes; i++) {
		size_t n =
			bytes < pool.pieces[i].p_pub.pp_len ? bytes : pool.pieces[i].p_pub.pp_len;

		pool.pieces[i].p_depot->d_transparent += n;
		bytes -= n;
	}
}

/* Transparent huge pages are a request, not a promise: the kernel says here what it gave. */
static void transparent_look(void)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	int piece = -1;
	char line[512];

	while (f && fgets(line, sizeof(line), f)) {
		unsigned long from, to, kib;

		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			piece = pool_piece_of((void *)from);
		else if (piece >= 0 && sscanf(line, "AnonHugePages: %lu", &kib) == 1)
			transparent_note(piece, kib << 10);
	}
	if (f)
		fclose(f);
}

static int pieces_make(enum kind *kind)
{
	int err = 0;

	*kind = KIND_HUGE;
	for (unsigned i = 0; i < pool.npieces; i++) {
		/* If one piece does not get a kind of page, the next piece does not try that
		 * kind. */
		while ((err = piece_map(&pool.pieces[i].p_pub, *kind)) && *kind < KIND_PLAIN)
			++*kind;
		if (!err)
			err = piece_cut(&pool.pieces[i]);
		if (err)
			return err;
		if (*kind == KIND_HUGE)
			pool.pieces[i].p_depot->d_huge += pool.pieces[i].p_pub.pp_len;
	}
	if (*kind != KIND_HUGE)
		transparent_look();
	return 0;
}

/* ---- metrics ---- */

static double gauge_free(void *arg)
{
	size_t n = 0;

	(void)arg;
	for (int i = 0; i < pool.ndepots; i++)
		n += atomic_load(&pool.depots[i].d_free);
	return (double)n;
}

static double pool_gauge_kept(void *arg)
{
	size_t n = 0;

	(void)arg;
	pthread_mutex_lock(&pool.wait_lock);
	for (struct cache *c = pool.caches; c; c = c->c_next)
		n += atomic_load(&c->c_bytes);
	pthread_mutex_unlock(&pool.wait_lock);
	return (double)n;
}

static double gauge_used(void *arg)
{
	double used = (double)pool.bytes - gauge_free(arg) - pool_gauge_kept(arg);

	return used > 0 ? used : 0; /* blocks move while this is counted */
}

static double gauge_huge(void *arg)
{
	return (double)((struct depot *)arg)->d_huge;
}

static double gauge_transparent(void *arg)
{
	return (double)((struct depot *)arg)->d_transparent;
}

static double gauge_ordinary(void *arg)
{
	struct depot *d = arg;

	return (double)(d->d_bytes - d->d_huge - d->d_transparent);
}

static void node_metrics(void)
{
	static const char help[] =
		"Bytes of the memory pool that are of a NUMA node, by the pages they were got in.";
	char labels[64];

	for (int i = 0; i < pool.ndepots; i++) {
		snprintf(labels, sizeof(labels), "node=\"%d\",pages=\"huge\"", pool.nodes[i]);
		metric_gauge(PACKAGE_TARNAME "_pool_node_bytes", help, labels, gauge_huge,
			     &pool.depots[i]);
		snprintf(labels, sizeof(labels), "node=\"%d\",pages=\"transparent\"",
			 pool.nodes[i]);
		metric_gauge(PACKAGE_TARNAME "_pool_node_bytes", help, labels, gauge_transparent,
			     &pool.depots[i]);
		snprintf(labels, sizeof(labels), "node=\"%d\",pages=\"ordinary\"", pool.nodes[i]);
		metric_gauge(PACKAGE_TARNAME "_pool_node_bytes", help, labels, gauge_ordinary,
			     &pool.depots[i]);
	}
}

static void pool_metrics(void)
{
	static const char help[] = "Bytes of the memory pool: free, kept free by a thread, in use.";

	metric_gauge(PACKAGE_TARNAME "_pool_bytes", help, "state=\"free\"", gauge_free, NULL);
	metric_gauge(PACKAGE_TARNAME "_pool_bytes", help, "state=\"kept\"", pool_gauge_kept, NULL);
	metric_gauge(PACKAGE_TARNAME "_pool_bytes", help, "state=\"used\"", gauge_used, NULL);
	pool.misses = metric_counter(
		PACKAGE_TARNAME "_pool_misses_total",
		"Blocks that the memory pool did not have: ordinary memory was taken.", "");
	pool.borrowed = metric_counter(PACKAGE_TARNAME "_pool_borrowed_total",
				       "Blocks that were taken of another NUMA node's memory, "
				       "because the thread's own had none.",
				       "");
	pool.waits = metric_counter(PACKAGE_TARNAME "_pool_waits_total",
				    "Waits for a block of the memory pool.", "");
}

int pool_init(size_t bytes, char *err, size_t errlen)
{
	static const char *const kinds[] = {"huge pages", "transparent huge pages requested",
					    "ordinary pages"};
	enum kind kind;
	int rc;

	pool_metrics();
	if (!bytes)
		return 0;
	assert(!pool.npieces);
	pool.bytes = (bytes + POOL_LEAST - 1) / POOL_LEAST * POOL_LEAST;
	if (!pool.chosen)
		pool_nodes_find();
	rc = pieces_plan();
	if (!rc)
		rc = pieces_make(&kind);
	if (rc) {
		snprintf(err, errlen, "cannot get a pool of %zu bytes of memory: %s", pool.bytes,
			 strerror(-rc));
		return rc;
	}
	node_metrics();
	log_info("memory pool: %zu MiB in %u pieces on %d NUMA nodes, %s", pool.bytes >> 20,
		 pool.npieces, pool.ndepots, kinds[kind]);
	return 0;
}
