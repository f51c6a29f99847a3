/* SPDX-License-Identifier: Apache-2.0 */
/* ds_io_test.c - I/O on the data server's store, without the network: syncs that fail, range locks,
 * memory that runs out. */
#include "tests/unit/ds_store.h"

/* ---- syncs ---- */

static int do_sync(struct ds_obj *o, uint64_t *verf)
{
	struct io io = {.io_what = IO_SYNC, .io_sync.sy_obj = o};

	io_start(&io, loops[0]);
	io_wait(&io);
	if (verf)
		*verf = io.io_verf;
	return io.io_res;
}

/* A pipe in place of the file: its fsync fails. */
static int break_sync(struct ds_obj *o)
{
	int keep = dup(o->ob_fd), p[2];

	ck_assert_int_eq(pipe(p), 0);
	ck_assert_int_ge(dup2(p[0], o->ob_fd), 0);
	close(p[0]);
	close(p[1]);
	return keep;
}

START_TEST(failed_sync_changes_the_verifier_for_all)
{
	enum { N = 20 };
	struct io *io = calloc(N, sizeof *io);
	uint64_t before = ds_store_verifier(S), verf;
	struct ds_obj *o = written(1);
	int keep, failed = 0;

	ck_assert_int_eq(do_sync(o, &verf), 0);
	ck_assert_uint_eq(verf, before);
	keep = break_sync(o);
	log_set_level((enum log_level) - 1);
	for (unsigned i = 0; i < N; i++) {
		io[i].io_what = IO_SYNC;
		io[i].io_sync.sy_obj = o;
		io_start(&io[i], loops[i % LOOPS]);
	}
	for (unsigned i = 0; i < N; i++)
		failed += io_wait(&io[i]) < 0;
	log_set_level(LOG_L_ERROR);
	ck_assert_int_eq(failed, N);
	dup2(keep, o->ob_fd);
	close(keep);
	ck_assert_int_eq(do_sync(o, &verf), 0);
	ck_assert_uint_ne(verf, before);
	ds_obj_put(o);
	free(io);
}
END_TEST

START_TEST(syncs_that_meet_share_one)
{
	enum { N = 120 };
	struct io *io = calloc(N, sizeof *io);
	uint64_t before, groups;
	struct ds_obj *o = written(1);

	before = metric_value(ds_m_syncs);
	for (unsigned i = 0; i < N; i++) {
		io[i].io_what = IO_SYNC;
		io[i].io_sync.sy_obj = o;
		io_start(&io[i], loops[i % LOOPS]);
	}
	for (unsigned i = 0; i < N; i++)
		ck_assert_int_eq(io_wait(&io[i]), 0);
	groups = metric_value(ds_m_syncs) - before;
	ck_assert_uint_ge(groups, 1);
	ck_assert_uint_lt(groups, N / 2);
	ds_obj_put(o);
	free(io);
}
END_TEST

/* Who is told "good" after a failed one must see the new verifier: at no time is a sync good under
 * the old one. */
START_TEST(no_sync_is_good_under_the_verifier_of_lost_data)
{
	struct ds_obj *o = written(1);

	log_set_level((enum log_level) - 1);
	for (unsigned round = 0; round < 50; round++) {
		enum { N = 12 };
		struct io *io = calloc(N, sizeof *io);
		uint64_t before = ds_store_verifier(S);
		int keep = break_sync(o), bad = 0;

		for (unsigned i = 0; i < N; i++) {
			io[i].io_what = IO_SYNC;
			io[i].io_sync.sy_obj = o;
			io_start(&io[i], loops[i % LOOPS]);
			if (i == 3) /* heals while they run */
				dup2(keep, o->ob_fd);
		}
		for (unsigned i = 0; i < N; i++)
			bad += io_wait(&io[i]) < 0;
		for (unsigned i = 0; bad && i < N; i++)
			if (io[i].io_res == 0 && io[i].io_verf == before)
				/* good, and then another failed: allowed only if it ended before */
				ck_assert_uint_ne(ds_store_verifier(S), before);
		if (bad)
			ck_assert_uint_ne(ds_store_verifier(S), before);
		close(keep);
		free(io);
	}
	log_set_level(LOG_L_ERROR);
	ds_obj_put(o);
}
END_TEST

START_TEST(dropping_an_object_with_unsynced_data_tells_of_the_loss)
{
	uint64_t before;
	struct ds_obj *o;

	opts.so_max_open = 1; /* one per shard */
	reopen();
	before = ds_store_verifier(S);
	o = written(1);
	close(break_sync(o));
	log_set_level((enum log_level) - 1);
	ds_obj_put(o);
	for (unsigned i = 2; i < 2000 && ds_store_verifier(S) == before; i++)
		ck_assert_int_eq(touch(i), 0);
	for (int i = 0; i < 60000 && ds_store_verifier(S) == before; i++)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	log_set_level(LOG_L_ERROR);
	ck_assert_uint_ne(ds_store_verifier(S), before);
	opts.so_max_open = 0;
}
END_TEST

/* ---- range locks ---- */

struct locker {
	struct loop_msg lk_msg, lk_go;
	struct ds_range lk_range;
	struct loop_timer lk_timer;
	struct ds_obj *lk_obj;
	struct locker *lk_all;
	sem_t *lk_sem;
	_Atomic bool lk_holds;
};

#define LOCKERS 400
static _Atomic unsigned violations, overlaps;

static void lk_release(struct loop_timer *t)
{
	struct locker *lk = caa_container_of(t, struct locker, lk_timer);

	atomic_store(&lk->lk_holds, false);
	ds_range_unlock(lk->lk_obj, &lk->lk_range);
	sem_post(lk->lk_sem);
}

static void lk_granted(struct ds_range *r)
{
	struct locker *lk = caa_container_of(r, struct locker, lk_range);

	atomic_store(&lk->lk_holds, true);
	for (unsigned i = 0; i < LOCKERS; i++) {
		const struct ds_range *e = &lk->lk_all[i].lk_range;

		if (&lk->lk_all[i] == lk || !atomic_load(&lk->lk_all[i].lk_holds) ||
		    e->rg_first > r->rg_last || r->rg_first > e->rg_last)
			continue;
		if (e->rg_direct != r->rg_direct)
			violations++;
		else
			overlaps++;
	}
	lk->lk_timer.t_fire = lk_release;
	loop_timer_start(loop_self(), &lk->lk_timer, r->rg_first % 3);
}

static void lk_start(struct loop_msg *m)
{
	struct locker *lk = caa_container_of(m, struct locker, lk_go);

	lk->lk_range.rg_granted = lk_granted;
	if (ds_range_lock(lk->lk_obj, &lk->lk_range, NULL))
		lk_granted(&lk->lk_range);
}

START_TEST(direct_and_buffered_never_hold_one_page)
{
	struct locker *lk = calloc(LOCKERS, sizeof *lk);
	struct cap_object k = key(1);
	unsigned seed = (unsigned)time(NULL);
	struct ds_obj *o;
	sem_t sem;

	printf("# seed %u\n", seed);
	srand(seed);
	sem_init(&sem, 0, 0);
	ck_assert_int_eq(ds_obj_get(S, &k, true, &o), 0);
	for (unsigned i = 0; i < LOCKERS; i++) {
		lk[i].lk_obj = o;
		lk[i].lk_all = lk;
		lk[i].lk_sem = &sem;
		lk[i].lk_range.rg_first = (uint64_t)rand() % 40;
		lk[i].lk_range.rg_last = lk[i].lk_range.rg_first + (uint64_t)rand() % 5;
		lk[i].lk_range.rg_direct = rand() % 2;
		lk[i].lk_go.m_run = lk_start;
	}
	for (unsigned i = 0; i < LOCKERS; i++)
		loop_post(loops[i % LOOPS], &lk[i].lk_go);
	/* All get their turn. */
	for (unsigned i = 0; i < LOCKERS; i++)
		while (sem_wait(&sem))
			;
	ck_assert_uint_eq(violations, 0);
	ck_assert_uint_gt(overlaps, 0);
	ck_assert_ptr_null(o->ob_ranges);
	ck_assert_uint_eq(o->ob_nrange[0] + o->ob_nrange[1], 0);
	ds_obj_put(o);
	free(lk);
}
END_TEST

/* ---- all together ---- */

/* Several loops write one object, bytes of their own in pages that they share, directly and
 * buffered, and sync it. */
START_TEST(many_loops_write_one_object)
{
	enum { ROUNDS = 40, CALLS = 30, SLICE = 10000, AREA = CALLS * SLICE };
	uint8_t *model = calloc(1, AREA), *back = aligned_alloc(4096, MIB),
		*data = aligned_alloc(4096, MIB);
	struct io *io = calloc(CALLS, sizeof *io), *sync = calloc(LOOPS, sizeof *sync);
	struct cap_object k = key(1);
	unsigned seed = (unsigned)time(NULL);
	struct ds_obj *o;

	printf("# seed %u\n", seed);
	srand(seed);
	ck_assert_int_eq(ds_obj_get(S, &k, true, &o), 0);
	for (unsigned r = 0; r < ROUNDS; r++) {
		for (unsigned i = 0; i < AREA; i++)
			data[i] = (uint8_t)rand();
		for (unsigned i = 0; i < CALLS; i++) {
			uint32_t from = i * SLICE + (uint32_t)rand() % 4000,
				 n = 1 + (uint32_t)rand() % (SLICE - 4000);

			if (rand() % 2) {
				from = (i * SLICE + 4095) & ~4095u;
				n = 4096;
			}
			memcpy(model + from, data + from, n);
			io[i] = (struct io){.io_what = IO_WRITE,
					    .io_rw = {.rw_obj = o,
						      .rw_off = from,
						      .rw_len = n,
						      .rw_mem = data + from}};
			io_start(&io[i], loops[i % LOOPS]);
		}
		for (unsigned i = 0; i < LOOPS; i++) {
			sync[i] = (struct io){.io_what = IO_SYNC, .io_sync.sy_obj = o};
			io_start(&sync[i], loops[i]);
		}
		for (unsigned i = 0; i < CALLS; i++)
			ck_assert_int_eq(io_wait(&io[i]), (int)io[i].io_rw.rw_len);
		for (unsigned i = 0; i < LOOPS; i++)
			ck_assert_int_eq(io_wait(&sync[i]), 0);
		ck_assert_int_ge(do_rw(o, false, 0, back, AREA), AREA - SLICE);
		ck_assert(!memcmp(back, model, AREA - SLICE));
	}
	ck_assert_int_eq(do_sync(o, NULL), 0);
	ck_assert_uint_eq(metric_value(ds_m_sync_failures), 0);
	ds_obj_put(o);
	free(model);
	free(back);
	free(data);
	free(io);
	free(sync);
}
END_TEST

/* ---- memory for reads ---- */

struct hoard {
	struct loop_msg h_msg;
	struct ds_buf_wait h_wait[300];
	struct ds_buf *h_buf[300];
	unsigned h_got, h_given;
	sem_t h_done;
};
static struct hoard hoard;

static void hoard_got(struct ds_buf_wait *w, struct ds_buf *b)
{
	hoard.h_buf[w - hoard.h_wait] = b;
	memset(b->b_data, 1, DS_MAX_IO);
	hoard.h_got++;
}

static void hoard_run(struct loop_msg *m)
{
	(void)m;
	for (unsigned i = 0; i < 300; i++) {
		hoard.h_wait[i].bw_ready = hoard_got;
		ds_buf_get(&hoard.h_wait[i], DS_MAX_IO);
	}
	hoard.h_given = hoard.h_got;
	/* each that goes back lets one that waits have it, in order */
	for (unsigned i = 0; i < 300; i++)
		if (hoard.h_buf[i])
			ds_buf_put(hoard.h_buf[i]);
	sem_post(&hoard.h_done);
}

START_TEST(reads_beyond_the_memory_wait_and_none_is_dropped)
{
	sem_init(&hoard.h_done, 0, 0);
	hoard.h_msg.m_run = hoard_run;
	loop_post(loops[1], &hoard.h_msg);
	while (sem_wait(&hoard.h_done))
		;
	ck_assert_uint_eq(hoard.h_given, 256);
	ck_assert_uint_eq(hoard.h_got, 300);
}
END_TEST

/* ---- a disk that fails ---- */

static void note(bool write, int err, unsigned times)
{
	while (times--)
		ds_health_note(S->s_home, write, err);
}

START_TEST(errors_one_after_another_take_the_store_out_until_a_probe_works)
{
	uint64_t capacity, available;

	note(true, -EIO, 7);
	note(true, 4096, 1);
	note(true, -EIO, 7);
	note(false, 4096, 1); /* a read out of the page cache proves nothing about writes */
	note(true, -ENOSPC, 20);
	ck_assert(!ds_store_failing(S));
	note(true, -EROFS, 1);
	ck_assert(ds_store_failing(S));
	ds_store_space(S, &capacity, &available);
	ck_assert_uint_gt(capacity, 0);
	ck_assert_uint_eq(available, 0);
	/* Not tried before its time. */
	usleep(50000);
	ck_assert(ds_store_failing(S));
	atomic_store(&S->s_home->v_health.h_again_ms, 0);
	for (unsigned i = 0; i < 60000 && ds_store_failing(S); i++)
		usleep(1000);
	ck_assert(!ds_store_failing(S));
	ds_store_space(S, &capacity, &available);
	ck_assert_uint_gt(available, 0);
	note(false, -EIO, 8);
	ck_assert(ds_store_failing(S));
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("ds_io");
	TCase *io = tcase_create("io");

	tcase_add_checked_fixture(io, setup, teardown);
	tcase_set_timeout(io, 60);
	tcase_add_test(io, failed_sync_changes_the_verifier_for_all);
	tcase_add_test(io, syncs_that_meet_share_one);
	tcase_add_test(io, no_sync_is_good_under_the_verifier_of_lost_data);
	tcase_add_test(io, dropping_an_object_with_unsynced_data_tells_of_the_loss);
	tcase_add_test(io, direct_and_buffered_never_hold_one_page);
	tcase_add_test(io, many_loops_write_one_object);
	tcase_add_test(io, reads_beyond_the_memory_wait_and_none_is_dropped);
	tcase_add_test(io, errors_one_after_another_take_the_store_out_until_a_probe_works);
	suite_add_tcase(s, io);
	return s;
}

int main(void)
{
	return unit_run(suite());
}
