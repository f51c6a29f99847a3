/* SPDX-License-Identifier: Apache-2.0 */
/* pool_test.c - the memory pool: sizes, exhaustion, sharing between threads, waiting, fixed
 * buffers. */
#include "base/metrics.h"
#include "base/pool.h"
#include "tests/unit/on_loop.h"
#include "tests/unit/unit.h"
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <urcu/compiler.h>

#define MIB ((size_t)1 << 20)

/* The kernel's, but for huge pages, which a machine may have or not: there are so many mappings of
 * them, and they are of ordinary pages. */
static unsigned huge_left, huge_asked;

/* Libraries map memory before ThreadSanitizer is ready: this function must not call it. */
__attribute__((no_sanitize("thread"))) void *mmap(void *p, size_t len, int prot, int flags, int fd,
						  off_t off)
{
	if (flags & MAP_HUGETLB) {
		huge_asked++;
		if (!huge_left) {
			errno = ENOMEM;
			return MAP_FAILED;
		}
		huge_left--;
		flags &= ~(MAP_HUGETLB | (int)(0x3fu << 26)); /* and their size */
	}
	return (void *)syscall(SYS_mmap, p, len, prot, flags, fd, off);
}

static void make(size_t bytes)
{
	char err[256] = "";

	ck_assert_msg(!pool_init(bytes, err, sizeof err), "%s", err);
}

/* Of weft_pool_bytes; in pages, because all are. */
static long pages_of(const char *state)
{
	char *text = metrics_render(), want[64], *at;
	long n;

	snprintf(want, sizeof want, "weft_pool_bytes{state=\"%s\"} ", state);
	at = strstr(text, want);
	ck_assert_ptr_nonnull(at);
	n = (long)(strtod(at + strlen(want), NULL) / POOL_PAGE);
	free(text);
	return n;
}

static void *loop_thread(void *arg)
{
	loop_run(arg);
	return NULL;
}

static struct loop *loop_start(pthread_t *t)
{
	struct loop *l;

	ck_assert_int_eq(loop_create(&l, 256), 0);
	ck_assert_int_eq(pthread_create(t, NULL, loop_thread, l), 0);
	return l;
}

static void loop_end(struct loop *l, pthread_t t)
{
	loop_stop(l);
	pthread_join(t, NULL);
	loop_destroy(l);
}

/* ---- sizes ---- */

START_TEST(no_pool_gives_nothing)
{
	pthread_t t;
	struct loop *l;

	make(0);
	ck_assert_uint_eq(pool_pieces(), 0);
	ck_assert_ptr_null(pool_get(4096, POOL_LEAVE_NONE));
	ck_assert_int_eq(pool_piece_of(&t), -1);
	l = loop_start(&t);
	ck_assert_int_eq(pool_register(l), 0);
	loop_end(l, t);
}
END_TEST

START_TEST(blocks_are_aligned_apart_and_inside)
{
	static const size_t sizes[] = {1,	 4096,	4097,	      12288,  16384,	     16385,
				       24576,	 65536, 65536 + 8192, 100000, 524288 + 8192, MIB,
				       POOL_MOST};
	struct {
		uint8_t *p;
		size_t n;
	} b[200];
	unsigned n = 0, seed = 7;

	make(20 * MIB);
	ck_assert_uint_eq(pool_bytes(), 20 * MIB);
	while (n < 200) {
		b[n].n = sizes[rand_r(&seed) % (sizeof sizes / sizeof sizes[0])];
		b[n].p = pool_get(b[n].n, POOL_LEAVE_NONE);
		if (!b[n].p)
			break;
		ck_assert_uint_eq((uintptr_t)b[n].p % POOL_PAGE, 0);
		ck_assert_int_eq(pool_piece_of(b[n].p), 0);
		ck_assert_int_eq(pool_piece_of(b[n].p + b[n].n - 1), 0);
		memset(b[n].p, (int)n, b[n].n);
		n++;
	}
	ck_assert_uint_gt(n, 20);
	for (unsigned i = 0; i < n; i++) {
		ck_assert_uint_eq(b[i].p[0], (uint8_t)i);
		ck_assert(!memcmp(b[i].p, b[i].p + 1, b[i].n - 1));
		pool_put(b[i].p, b[i].n);
	}
	ck_assert_int_eq(pages_of("used"), 0);
	ck_assert_int_eq(pages_of("free"), 20 * MIB / POOL_PAGE);
	ck_assert_ptr_null(pool_get(POOL_MOST + 1, POOL_LEAVE_NONE));
	ck_assert_int_eq(pool_piece_of(pool_piece(0)->pp_base - 1), -1);
	ck_assert_int_eq(pool_piece_of(pool_piece(0)->pp_base + 20 * MIB), -1);
}
END_TEST

/* Records with their header and reads without share the pool: neither breaks what the other
 * needs. */
START_TEST(large_blocks_of_both_kinds_fill_the_pool)
{
	void *b[32];
	unsigned n = 0;

	make(32 * MIB);
	while (n < 32 && (b[n] = pool_get(n % 2 ? MIB : MIB + 8192, POOL_LEAVE_NONE)))
		n++;
	ck_assert_uint_eq(n, 31);
	for (unsigned i = 0; i < n; i++)
		pool_put(b[i], i % 2 ? MIB : MIB + 8192);
	n = 0;
	while (n < 32 && (b[n] = pool_get(POOL_MOST, POOL_LEAVE_NONE)))
		n++;
	ck_assert_uint_eq(n, 31);
}
END_TEST

/* Small blocks that stay do not spread over all of it. */
START_TEST(small_blocks_keep_together)
{
	void *kept[64], *gone[64], *big;
	unsigned n = 0;

	make(16 * MIB);
	for (unsigned i = 0; i < 64; i++) {
		kept[i] = pool_get(4096, POOL_LEAVE_NONE);
		gone[i] = pool_get(65536, POOL_LEAVE_NONE);
		ck_assert(kept[i] && gone[i]);
	}
	for (unsigned i = 0; i < 64; i++)
		pool_put(gone[i], 65536);
	/* 64 times 68 KiB were in five units at most. */
	while ((big = pool_get(POOL_MOST, POOL_LEAVE_NONE)))
		n++;
	ck_assert_uint_ge(n, 10);
}
END_TEST

START_TEST(those_who_can_do_without_leave_some)
{
	size_t half = 0, quarter = 0, none = 0;

	make(8 * MIB);
	while (pool_get(65536, POOL_LEAVE_HALF))
		half++;
	while (pool_get(65536, POOL_LEAVE_QUARTER))
		quarter++;
	while (pool_get(65536, POOL_LEAVE_NONE))
		none++;
	ck_assert_uint_eq(half, 64);
	ck_assert_uint_eq(quarter, 32);
	ck_assert_uint_ge(none, 28);
}
END_TEST

/* ---- threads ---- */

static void cache_fill(void *arg)
{
	void *b[40];

	(void)arg;
	for (unsigned i = 0; i < 40; i++)
		ck_assert_ptr_nonnull(b[i] = pool_get(4096, POOL_LEAVE_NONE));
	for (unsigned i = 0; i < 40; i++)
		pool_put(b[i], 4096);
}

START_TEST(a_loop_keeps_little_and_gives_it_back_at_its_end)
{
	pthread_t t;
	struct loop *l;

	make(2 * MIB);
	l = loop_start(&t);
	on_loop(l, cache_fill, NULL);
	ck_assert_int_gt(pages_of("kept"), 0);
	ck_assert_int_le(pages_of("kept"), 2 * MIB / 8 / POOL_PAGE);
	ck_assert_int_eq(pages_of("used"), 0);
	loop_end(l, t);
	ck_assert_int_eq(pages_of("kept"), 0);
	ck_assert_int_eq(pages_of("free"), 2 * MIB / POOL_PAGE);
}
END_TEST

#define THREADS 4
#define TURNS	20000
static _Atomic(void *) box[THREADS][16]; /* blocks on their way to another thread */

static void pass_round(void *arg)
{
	unsigned me = (unsigned)(uintptr_t)arg, seed = me + 1;

	for (unsigned i = 0; i < TURNS; i++) {
		unsigned to = (unsigned)rand_r(&seed) % THREADS,
			 slot = (unsigned)rand_r(&seed) % 16;
		size_t n = (size_t)4096 << rand_r(&seed) % 7;
		uint8_t *p = pool_get(n, POOL_LEAVE_NONE), *old;

		if (!p)
			continue;
		memcpy(p, &n, sizeof n);
		memcpy(p + n - sizeof n, &n, sizeof n);
		old = atomic_exchange(&box[to][slot], p);
		if (old) {
			memcpy(&n, old, sizeof n);
			ck_assert_mem_eq(old, old + n - sizeof n, sizeof n);
			pool_put(old, n);
		}
	}
}

static void *pass_thread(void *arg)
{
	struct {
		struct loop *l;
		unsigned me;
	} *a = arg;

	on_loop(a->l, pass_round, (void *)(uintptr_t)a->me);
	return NULL;
}

START_TEST(blocks_go_round_between_threads)
{
	struct {
		struct loop *l;
		unsigned me;
	} arg[THREADS];
	pthread_t loops[THREADS], drivers[THREADS];

	make(4 * MIB);
	for (unsigned i = 0; i < THREADS; i++) {
		arg[i].l = loop_start(&loops[i]);
		arg[i].me = i;
		pthread_create(&drivers[i], NULL, pass_thread, &arg[i]);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(drivers[i], NULL);
	for (unsigned i = 0; i < THREADS; i++)
		loop_end(arg[i].l, loops[i]);
	for (unsigned i = 0; i < THREADS * 16; i++) {
		uint8_t *p = atomic_load(&box[i / 16][i % 16]);
		size_t n;

		if (p) {
			memcpy(&n, p, sizeof n);
			pool_put(p, n);
		}
	}
	ck_assert_int_eq(pages_of("free"), 4 * MIB / POOL_PAGE);
}
END_TEST

/* ---- waiting ---- */

static struct waiter {
	struct pool_wait w;
	size_t n;
	void *block;
} waiters[4];
static _Atomic unsigned nready;
static _Atomic unsigned order[4];

static void waiter_ready(struct pool_wait *w, void *p)
{
	struct waiter *wa = caa_container_of(w, struct waiter, w);

	wa->block = p;
	memset(p, 1, wa->n);
	order[atomic_load(&nready)] = (unsigned)(wa - waiters);
	atomic_fetch_add(&nready, 1);
}

static void wait_start(void *arg)
{
	struct waiter *wa = arg;

	wa->w.pw_ready = waiter_ready;
	pool_wait(&wa->w, wa->n);
}

static void await_ready(unsigned n)
{
	for (unsigned i = 0; i < 10000 && atomic_load(&nready) < n; i++)
		usleep(1000);
	ck_assert_uint_eq(atomic_load(&nready), n);
}

START_TEST(who_waits_is_served_in_order_and_before_others)
{
	void *b;
	pthread_t t;
	struct loop *l;

	make(4 * MIB);
	l = loop_start(&t);
	b = pool_get(65536, POOL_LEAVE_NONE);
	while (pool_get(4096, POOL_LEAVE_NONE))
		;
	for (unsigned i = 0; i < 3; i++) {
		waiters[i].n = 16384;
		on_loop(l, wait_start, &waiters[i]);
	}
	usleep(20000);
	ck_assert_uint_eq(atomic_load(&nready), 0);
	pool_put(b, 65536);
	await_ready(3);
	for (unsigned i = 0; i < 3; i++)
		ck_assert_uint_eq(order[i], i);
	/* 16 KiB are free, and nobody waits. */
	b = pool_get(16384, POOL_LEAVE_NONE);
	ck_assert_ptr_nonnull(b);
	waiters[3].n = 65536;
	on_loop(l, wait_start, &waiters[3]);
	pool_put(b, 16384);
	ck_assert_ptr_null(pool_get(4096, POOL_LEAVE_NONE));
	for (unsigned i = 0; i < 3; i++)
		pool_put(waiters[i].block, 16384);
	await_ready(4);
	loop_end(l, t);
}
END_TEST

/* What another loop keeps, and nobody else has, comes back although that loop has nothing to do. */
START_TEST(an_idle_loop_gives_back_what_it_keeps)
{
	pthread_t t[2];
	struct loop *l[2];

	make(2 * MIB);
	l[0] = loop_start(&t[0]);
	l[1] = loop_start(&t[1]);
	on_loop(l[0], cache_fill, NULL);
	ck_assert_int_gt(pages_of("kept"), 0);
	while (pool_get(4096, POOL_LEAVE_NONE))
		;
	ck_assert_int_eq(pages_of("free"), 0);
	waiters[0].n = 4096;
	on_loop(l[1], wait_start, &waiters[0]);
	await_ready(1);
	loop_end(l[0], t[0]);
	loop_end(l[1], t[1]);
}
END_TEST

/* Loops that take all they can get, two blocks of the largest size being all there is. */
#define ROUNDS 300
static struct racer {
	struct pool_wait w;
	unsigned left;
	_Atomic bool done;
} racers[8];

static void race_ready(struct pool_wait *w, void *p)
{
	struct racer *r = caa_container_of(w, struct racer, w);

	memset(p, 2, POOL_MOST);
	pool_put(p, POOL_MOST);
	if (--r->left)
		pool_wait(w, POOL_MOST);
	else
		atomic_store(&r->done, true);
}

static void race_start(void *arg)
{
	struct racer *r = arg;

	r->left = ROUNDS;
	r->w.pw_ready = race_ready;
	pool_wait(&r->w, POOL_MOST);
}

START_TEST(nobody_waits_for_ever)
{
	pthread_t t[4];
	struct loop *l[4];

	make(4 * MIB);
	for (unsigned i = 0; i < 4; i++)
		l[i] = loop_start(&t[i]);
	for (unsigned i = 0; i < 8; i++)
		on_loop(l[i % 4], race_start, &racers[i]);
	for (unsigned i = 0; i < 8; i++)
		for (unsigned k = 0; !atomic_load(&racers[i].done); k++) {
			ck_assert_uint_lt(k, 20000);
			usleep(1000);
		}
	for (unsigned i = 0; i < 4; i++)
		loop_end(l[i], t[i]);
	ck_assert_int_eq(pages_of("free"), 4 * MIB / POOL_PAGE);
}
END_TEST

/* ---- fixed buffers ---- */

static struct {
	struct loop_io io;
	int fd, index, res;
	uint8_t *mem;
	_Atomic bool done;
} fixed;

static void fixed_done(struct loop_io *io, int res, uint32_t flags)
{
	(void)io;
	(void)flags;
	fixed.res = res;
	atomic_store(&fixed.done, true);
}

static void fixed_start(void *arg)
{
	struct io_uring_sqe *sqe = loop_sqe(loop_self());

	(void)arg;
	fixed.mem = pool_get(POOL_MOST, POOL_LEAVE_NONE);
	fixed.index = pool_fixed(loop_self(), fixed.mem);
	io_uring_prep_read_fixed(sqe, fixed.fd, fixed.mem + 4096, 65536, 0, fixed.index);
	fixed.io.lio_done = fixed_done;
	loop_arm(sqe, &fixed.io);
}

START_TEST(a_ring_registered_before_its_thread_does_io_with_it)
{
	char path[] = "/tmp/pool_test.XXXXXX";
	uint8_t data[65536];
	pthread_t t;
	struct loop *l;

	make(4 * MIB);
	for (unsigned i = 0; i < sizeof data; i++)
		data[i] = (uint8_t)(i * 7);
	fixed.fd = mkstemp(path);
	unlink(path);
	ck_assert_int_eq(write(fixed.fd, data, sizeof data), sizeof data);
	ck_assert_int_eq(loop_create(&l, 256), 0);
	ck_assert_int_eq(pool_fixed(l, pool_piece(0)->pp_base), -1);
	ck_assert_int_eq(pool_register(l), 0);
	ck_assert_int_eq(pool_fixed(l, pool_piece(0)->pp_base), 0);
	ck_assert_int_eq(pool_fixed(l, data), -1);
	ck_assert_int_eq(pthread_create(&t, NULL, loop_thread, l), 0);
	fixed.io.lio_done = fixed_done;
	on_loop(l, fixed_start, NULL);
	while (!atomic_load(&fixed.done))
		usleep(1000);
	ck_assert_int_eq(fixed.index, 0);
	ck_assert_int_eq(fixed.res, 65536);
	ck_assert_mem_eq(fixed.mem + 4096, data, sizeof data);
	loop_end(l, t);
	close(fixed.fd);
}
END_TEST

/* RLIMIT_MEMLOCK counts for those who made the ring without CAP_IPC_LOCK. */
START_TEST(a_refused_registration_is_no_end)
{
	struct rlimit rl = {1 << 20, 1 << 20};
	struct loop *l;
	pthread_t t;
	int err;

	make(4 * MIB);
	ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &rl), 0);
	if (!geteuid())
		ck_assert_int_eq(setuid(65534), 0);
	l = loop_start(&t);
	loop_end(l, t);
	ck_assert_int_eq(loop_create(&l, 256), 0);
	err = pool_register(l);
	ck_assert_msg(err == -ENOMEM, "%s", strerror(-err));
	ck_assert_int_eq(pool_fixed(l, pool_piece(0)->pp_base), -1);
	loop_destroy(l);
}
END_TEST

/* ---- nodes ---- */

START_TEST(lists_of_nodes)
{
	int n[8];

	ck_assert_int_eq(pool_nodes_parse("0\n", n, 8), 1);
	ck_assert_int_eq(n[0], 0);
	ck_assert_int_eq(pool_nodes_parse("0-2,5,7-8\n", n, 8), 6);
	ck_assert_int_eq(n[2], 2);
	ck_assert_int_eq(n[3], 5);
	ck_assert_int_eq(n[5], 8);
	ck_assert_int_eq(pool_nodes_parse("", n, 8), 0);
	ck_assert_int_eq(pool_nodes_parse("0-8", n, 8), -1);
	ck_assert_int_eq(pool_nodes_parse("1,0", n, 8), -1);
	ck_assert_int_eq(pool_nodes_parse("2-1", n, 8), -1);
	ck_assert_int_eq(pool_nodes_parse("x", n, 8), -1);
	ck_assert_int_eq(pool_nodes_parse("1;2", n, 8), -1);
}
END_TEST

static long counter(const char *series)
{
	char *text = metrics_render(), *at;
	long n;

	at = strstr(text, series);
	ck_assert_ptr_nonnull(at);
	n = strtol(at + strlen(series), NULL, 10);
	free(text);
	return n;
}

static long node_pages(int node, const char *pages)
{
	char *text = metrics_render(), want[80], *at;
	double n;

	snprintf(want, sizeof want, "weft_pool_node_bytes{node=\"%d\",pages=\"%s\"} ", node, pages);
	at = strstr(text, want);
	ck_assert_ptr_nonnull(at);
	n = strtod(at + strlen(want), NULL);
	free(text);
	return (long)n;
}

static long node_bytes(int node)
{
	return node_pages(node, "huge") + node_pages(node, "transparent") +
	       node_pages(node, "ordinary");
}

START_TEST(huge_pages_are_taken_when_there_are_some)
{
	static const int nodes[] = {0, 1};

	huge_left = 1;
	pool_use_nodes(nodes, 2);
	make(16 * MIB);
	ck_assert_uint_eq(huge_asked, 2);
	ck_assert_int_eq(node_pages(0, "huge"), 8 * MIB);
	ck_assert_int_eq(node_pages(1, "huge"), 0);
	ck_assert_int_eq(node_bytes(1), 8 * MIB);
	for (unsigned i = 0; i < 14; i++) {
		void *b = pool_get(MIB, POOL_LEAVE_NONE);

		ck_assert_ptr_nonnull(b);
		memset(b, 1, MIB);
	}
}
END_TEST

static int node_of(const void *p)
{
	return pool_piece(pool_piece_of(p))->pp_node;
}

/* Takes all there is, as a loop at home on `home` does; then gives it all back. */
struct greedy {
	int home;
	unsigned own, others; /* blocks */
	bool order, fixed, kept;
};

static void greedy_run(void *arg)
{
	struct greedy *g = arg;
	void *b[64];
	unsigned n = 0;

	g->order = g->fixed = true;
	while (n < 64 && (b[n] = pool_get(MIB, POOL_LEAVE_NONE))) {
		bool own = node_of(b[n]) == g->home;

		g->order &= !own || !g->others;
		g->fixed &= (pool_fixed(loop_self(), b[n]) >= 0) == own;
		g->own += own;
		g->others += !own;
		n++;
	}
	/* Its own first: what is kept last is taken first. */
	for (unsigned i = 0; i < n; i++)
		pool_put(b[i], MIB);
	b[0] = pool_get(MIB, POOL_LEAVE_NONE);
	g->kept = node_of(b[0]) == g->home;
	pool_put(b[0], MIB);
}

/* This machine may have one node only: then the kernel refuses the other's memory, and it is of
 * any. */
START_TEST(a_loop_takes_its_own_nodes_memory_first_and_keeps_no_other)
{
	static const int nodes[] = {0, 1};
	pthread_t t[2];
	struct loop *l[2];

	pool_use_nodes(nodes, 2);
	make(31 * MIB);
	ck_assert_uint_eq(pool_bytes(), 32 * MIB); /* 16 each */
	ck_assert_uint_eq(pool_pieces(), 2);
	ck_assert_int_eq(node_bytes(0), 16 * MIB);
	ck_assert_int_eq(node_bytes(1), 16 * MIB);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(loop_create(&l[i], 256), 0);
		pool_home(l[i], i);
		ck_assert_int_eq(pool_register(l[i]), 0);
		ck_assert_int_eq(pool_fixed(l[i], pool_piece((unsigned)i)->pp_base), 0);
		ck_assert_int_eq(pool_fixed(l[i], pool_piece((unsigned)!i)->pp_base), -1);
		ck_assert_int_eq(pthread_create(&t[i], NULL, loop_thread, l[i]), 0);
	}
	for (int i = 0; i < 2; i++) {
		struct greedy g = {.home = i};
		long before = counter("weft_pool_borrowed_total ");

		on_loop(l[i], greedy_run, &g);
		ck_assert_uint_eq(g.own, 15);
		ck_assert_uint_ge(g.others, 12); /* the other loop may keep some */
		ck_assert(g.order && g.fixed && g.kept);
		ck_assert_int_eq(counter("weft_pool_borrowed_total ") - before, g.others);
	}
	for (int i = 0; i < 2; i++)
		loop_end(l[i], t[i]);
	ck_assert_int_eq(pages_of("free"), 32 * MIB / POOL_PAGE);
}
END_TEST

START_TEST(a_loop_at_home_where_there_is_no_memory_is_at_home_nowhere)
{
	static const int nodes[] = {0, 1};
	struct loop *l;

	pool_use_nodes(nodes, 2);
	make(8 * MIB);
	ck_assert_int_eq(loop_create(&l, 256), 0);
	pool_home(l, 7);
	ck_assert_int_eq(pool_register(l), 0);
	ck_assert_int_eq(pool_fixed(l, pool_piece(0)->pp_base), 0);
	ck_assert_int_eq(pool_fixed(l, pool_piece(1)->pp_base), 1);
	loop_destroy(l);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("pool");
	TCase *tc = tcase_create("pool");

	tcase_add_test(tc, no_pool_gives_nothing);
	tcase_add_test(tc, blocks_are_aligned_apart_and_inside);
	tcase_add_test(tc, large_blocks_of_both_kinds_fill_the_pool);
	tcase_add_test(tc, small_blocks_keep_together);
	tcase_add_test(tc, those_who_can_do_without_leave_some);
	tcase_add_test(tc, a_loop_keeps_little_and_gives_it_back_at_its_end);
	tcase_add_test(tc, blocks_go_round_between_threads);
	tcase_add_test(tc, who_waits_is_served_in_order_and_before_others);
	tcase_add_test(tc, an_idle_loop_gives_back_what_it_keeps);
	tcase_add_test(tc, nobody_waits_for_ever);
	tcase_add_test(tc, a_ring_registered_before_its_thread_does_io_with_it);
	tcase_add_test(tc, a_refused_registration_is_no_end);
	tcase_add_test(tc, lists_of_nodes);
	tcase_add_test(tc, huge_pages_are_taken_when_there_are_some);
	tcase_add_test(tc, a_loop_takes_its_own_nodes_memory_first_and_keeps_no_other);
	tcase_add_test(tc, a_loop_at_home_where_there_is_no_memory_is_at_home_nowhere);
	suite_add_tcase(s, tc);
	return unit_run(s);
}
