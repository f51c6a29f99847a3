/* SPDX-License-Identifier: Apache-2.0 */
/* ds_buf_test.c - memory for reads when the pool is used up. */
#include "ds/store/store.h"
#include "tests/unit/unit.h"
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>
#include <urcu/compiler.h>

#define READS 40

static struct loop *L[2];
static pthread_t threads[2];

static struct read {
	struct ds_buf_wait w;
	struct ds_buf *buf;
	bool pooled; /* asked for */
} reads[2][READS];
static _Atomic unsigned served[2];

static void *run(void *arg)
{
	loop_run(arg);
	return NULL;
}

static void setup(void)
{
	char err[256];

	ck_assert_int_eq(pool_init(8 << 20, err, sizeof err), 0);
	for (unsigned i = 0; i < 2; i++) {
		ck_assert_int_eq(loop_create(&L[i], 256), 0);
		ck_assert_int_eq(pthread_create(&threads[i], NULL, run, L[i]), 0);
	}
}

static void teardown(void)
{
	for (unsigned i = 0; i < 2; i++) {
		loop_stop(L[i]);
		pthread_join(threads[i], NULL);
		loop_destroy(L[i]);
	}
}

/* fn(arg) on loop i, when it has run. */
struct errand {
	struct loop_msg msg;
	void (*fn)(unsigned i);
	unsigned i;
	_Atomic bool done;
};
static void errand_run(struct loop_msg *m)
{
	struct errand *e = caa_container_of(m, struct errand, msg);

	e->fn(e->i);
	atomic_store(&e->done, true);
}
static void on_loop(unsigned i, void (*fn)(unsigned))
{
	struct errand e = {.msg.m_run = errand_run, .fn = fn, .i = i};

	loop_post(L[i], &e.msg);
	while (!atomic_load(&e.done))
		usleep(100);
}

static void ready(struct ds_buf_wait *w, struct ds_buf *b)
{
	struct read *r = caa_container_of(w, struct read, w);

	r->buf = b;
	memset(b->b_data, 1, DS_MAX_IO);
	atomic_fetch_add(&served[r >= reads[1]], 1);
}

static void ask(unsigned i)
{
	for (struct read *r = reads[i]; r < reads[i] + READS; r++) {
		r->w.bw_ready = ready;
		if (r->pooled)
			ds_buf_get_pooled(&r->w, DS_MAX_IO);
		else
			ds_buf_get(&r->w, DS_MAX_IO);
	}
}

static void give_back(unsigned i)
{
	for (struct read *r = reads[i]; r < reads[i] + READS; r++)
		if (r->buf)
			ds_buf_put(r->buf);
	memset(reads[i], 0, sizeof reads[i]);
}

static unsigned npooled(unsigned i)
{
	unsigned n = 0;

	for (unsigned k = 0; k < READS; k++)
		n += reads[i][k].buf && reads[i][k].buf->b_pooled;
	return n;
}

START_TEST(reads_beyond_the_pool_take_ordinary_memory)
{
	on_loop(0, ask);
	on_loop(1, ask);
	ck_assert_uint_eq(atomic_load(&served[0]), READS);
	ck_assert_uint_eq(atomic_load(&served[1]), READS);
	/* A quarter of eight MiB stays. */
	ck_assert_uint_eq(npooled(0), 6);
	ck_assert_uint_eq(npooled(1), 0);
	on_loop(0, give_back);
	on_loop(1, give_back);
	/* What came back is used first. */
	on_loop(1, ask);
	ck_assert_uint_eq(npooled(1), 6);
	on_loop(1, give_back);
}
END_TEST

static void give_one(unsigned i)
{
	for (struct read *r = reads[i]; r < reads[i] + READS; r++) {
		if (r->buf) {
			ds_buf_put(r->buf);
			r->buf = NULL;
			return;
		}
	}
}

START_TEST(who_needs_the_pool_waits_for_whoever_has_it)
{
	on_loop(0, ask);
	for (unsigned k = 0; k < READS; k++)
		reads[1][k].pooled = true;
	on_loop(1, ask);
	/* What the others left: seven blocks of the largest size are in eight MiB. */
	ck_assert_uint_eq(atomic_load(&served[1]), 1);
	/* Each that comes back, on either loop, serves one. */
	for (unsigned n = 2; n <= 7; n++) {
		on_loop(0, give_one);
		for (unsigned t = 0; t < 60000 && atomic_load(&served[1]) < n; t++)
			usleep(1000);
		ck_assert_uint_eq(atomic_load(&served[1]), n);
	}
	while (atomic_load(&served[1]) < READS) {
		unsigned n = atomic_load(&served[1]);

		on_loop(1, give_one);
		for (unsigned t = 0; t < 60000 && atomic_load(&served[1]) == n; t++)
			usleep(1000);
		ck_assert_uint_eq(atomic_load(&served[1]), n + 1);
	}
	ck_assert_uint_eq(npooled(1), 7);
	on_loop(0, give_back);
	on_loop(1, give_back);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ds_buf");
	TCase *tc = tcase_create("buf");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, reads_beyond_the_pool_take_ordinary_memory);
	tcase_add_test(tc, who_needs_the_pool_waits_for_whoever_has_it);
	suite_add_tcase(s, tc);
	return unit_run(s);
}
