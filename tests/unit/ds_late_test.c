/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ds_late_test.c - writes of the same bytes land in the order in which they came, however slow the
 * disk is with one of them: no old one lands over a newer one.
 *
 * A pipe that is full is the slow disk. A write that is under way in it ends when the test lets it,
 * and what it would have done to the file the test does then.
 */
#include "tests/unit/ds_store.h"
#include "tests/unit/on_loop.h"

/* ---- a disk that is slow with one write ---- */

struct slow {
	struct ds_obj *sl_obj;
	bool sl_direct;
	int sl_read, sl_write, sl_kept;
	size_t sl_full;
};

static void swap(void *arg)
{
	struct slow *sl = arg;

	if (sl->sl_direct) {
		sl->sl_kept = atomic_exchange(&sl->sl_obj->ob_dfd, sl->sl_kept);
	} else {
		int was = sl->sl_obj->ob_fd;

		sl->sl_obj->ob_fd = sl->sl_kept;
		sl->sl_kept = was;
	}
}

static void fill_pipe(struct slow *sl)
{
	char some[DS_PAGE] = {0};
	ssize_t n;
	int p[2];

	ck_assert_int_eq(pipe(p), 0);
	sl->sl_read = p[0];
	sl->sl_kept = sl->sl_write = p[1];
	fcntl(sl->sl_write, F_SETFL, O_NONBLOCK);
	for (sl->sl_full = 0; (n = write(sl->sl_write, some, sizeof(some))) > 0;)
		sl->sl_full += (size_t)n;
	fcntl(sl->sl_write, F_SETFL, 0);
}

/* Writes that l is given until end_slow are in the disk for long. */
static void begin_slow(struct slow *sl, struct ds_obj *o, bool direct, struct loop *l)
{
	*sl = (struct slow){.sl_obj = o, .sl_direct = direct};
	fill_pipe(sl);
	on_loop(l, swap, sl);
}

static void end_slow(struct slow *sl, struct loop *l)
{
	on_loop(l, swap, sl);
}

/* The write lands, and then the disk says so. */
static void land(struct slow *sl, const struct io *io)
{
	char some[DS_PAGE];
	int fd = sl->sl_direct ? ds_obj_direct_fd(sl->sl_obj) : sl->sl_obj->ob_fd;

	ck_assert_int_eq(pwrite(fd, io->io_rw.rw_mem, io->io_rw.rw_len, (off_t)io->io_rw.rw_off),
			 (int)io->io_rw.rw_len);
	for (size_t left = sl->sl_full; left;) {
		ssize_t n = read(sl->sl_read, some, left < sizeof(some) ? left : sizeof(some));

		ck_assert_int_gt(n, 0);
		left -= (size_t)n;
	}
}

static void slow_close(struct slow *sl)
{
	close(sl->sl_read);
	close(sl->sl_write);
}

/* ---- writes ---- */

struct held {
	uint64_t he_ino;
	struct ds_hold *he_hold;
};

static void hold(void *arg)
{
	struct held *he = arg;
	struct cap_object k = key(he->he_ino);

	ck_assert_int_eq(ds_obj_hold(S, &k, true, &he->he_hold), 0);
}

static void put(void *arg)
{
	ds_hold_put(((struct held *)arg)->he_hold);
}

static void nothing(void *arg)
{
	(void)arg;
}

/* Given to the store when it returns; of its call's bracket the token is the caller's. */
static void write_begin(struct io *io, unsigned loop, struct ds_obj *o, struct ds_hold *h,
			uint64_t off, uint8_t *mem, uint32_t len)
{
	*io = (struct io){
		.io_what = IO_WRITE,
		.io_rw = {.rw_obj = o, .rw_hold = h, .rw_off = off, .rw_len = len, .rw_mem = mem}};
	io_start(io, loops[loop]);
	on_loop(loops[loop], nothing, NULL);
}

static unsigned waiting(struct ds_obj *o)
{
	unsigned n = 0;

	pthread_mutex_lock(&o->ob_lock);
	for (struct ds_range *r = o->ob_ranges; r; r = r->rg_next)
		n += !r->rg_held;
	pthread_mutex_unlock(&o->ob_lock);
	return n;
}

/* Until it has ended, or n wait in the object. True: it has ended. */
static bool ended_or_waiting(struct io *io, struct ds_obj *o, unsigned n)
{
	for (unsigned i = 0; i < 60000; i++) {
		int done;

		sem_getvalue(&io->io_done, &done);
		if (done || waiting(o) >= n)
			return done;
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	ck_abort_msg("the write neither ends nor waits");
}

static uint8_t *filled(int c)
{
	uint8_t *mem = aligned_alloc(DS_PAGE, 2 * DS_PAGE);

	memset(mem, c, 2 * DS_PAGE);
	return mem;
}

static void assert_reads(struct ds_obj *o, uint64_t off, uint32_t len, int c)
{
	uint8_t *mem = filled(0);

	ck_assert_int_eq(do_rw(o, false, off, mem, len), (int)len);
	for (uint32_t i = 0; i < len; i++)
		ck_assert_msg(mem[i] == c, "byte %u is %c, and %c was written last", i, mem[i], c);
	free(mem);
}

/* ---- the tests ---- */

/* The client's connection ended while the first was under way: it sends it again, and when that is
 * done it writes something else there. */
static void late_write(bool direct, bool held)
{
	uint8_t *old = filled('a'), *new = filled('b');
	uint32_t skip = direct ? 0 : 100, len = direct ? DS_PAGE : 2000;
	struct held he[LOOPS] = {{.he_ino = 1}, {.he_ino = 1}, {.he_ino = 1}};
	struct ds_obj *o = written(1);
	struct io w[3];
	struct slow sl;

	ck_assert_int_eq(do_rw(o, true, 0, new, 2 * DS_PAGE), 2 * DS_PAGE);
	for (unsigned i = 0; i < LOOPS; i++)
		on_loop(loops[i], hold, &he[i]);
	begin_slow(&sl, o, direct, loops[0]);
	write_begin(&w[0], 0, o, held ? he[0].he_hold : NULL, skip, old + skip, len);
	end_slow(&sl, loops[0]);
	write_begin(&w[1], 1, o, held ? he[1].he_hold : NULL, skip, old + skip, len);
	ended_or_waiting(&w[1], o, 1);
	write_begin(&w[2], 2, o, held ? he[2].he_hold : NULL, skip, new + skip, len);
	ended_or_waiting(&w[2], o, 2);
	land(&sl, &w[0]);
	for (unsigned i = 0; i < 3; i++)
		ck_assert_int_eq(io_wait(&w[i]), (int)len);
	assert_reads(o, skip, len, 'b');
	ck_assert_ptr_null(o->ob_ranges);
	for (unsigned i = 0; i < LOOPS; i++)
		on_loop(loops[i], put, &he[i]);
	slow_close(&sl);
	ds_obj_put(o);
	free(old);
	free(new);
}

START_TEST(old_direct_write_does_not_land_over_a_newer_one)
{
	struct ds_obj *o = written(2);
	bool direct = ds_obj_direct_fd(o) >= 0;

	ds_obj_put(o);
	if (direct)
		late_write(true, true);
	else
		printf("# no direct I/O here\n");
}
END_TEST

START_TEST(old_buffered_write_does_not_land_over_a_newer_one)
{
	late_write(false, true);
}
END_TEST

START_TEST(old_write_does_not_land_over_a_newer_one_without_holds)
{
	late_write(false, false);
}
END_TEST

/* What writes other pages does not wait for the slow one, and reads of the same kind do not. */
START_TEST(writes_of_other_bytes_do_not_wait_for_a_slow_one)
{
	uint8_t *old = filled('a'), *new = filled('b');
	struct held he = {.he_ino = 1};
	struct ds_obj *o = written(1);
	struct io w[3];
	struct slow sl;

	on_loop(loops[0], hold, &he);
	begin_slow(&sl, o, false, loops[0]);
	write_begin(&w[0], 0, o, he.he_hold, 100, old + 100, 2000);
	end_slow(&sl, loops[0]);
	write_begin(&w[1], 0, o, he.he_hold, DS_PAGE + 100, new + 100, 2000);
	ck_assert_int_eq(io_wait(&w[1]), 2000);
	w[2] = (struct io){.io_what = IO_READ,
			   .io_rw = {.rw_obj = o,
				     .rw_hold = he.he_hold,
				     .rw_off = 100,
				     .rw_len = 2000,
				     .rw_mem = new}};
	io_start(&w[2], loops[0]);
	ck_assert_int_ge(io_wait(&w[2]), 0);
	land(&sl, &w[0]);
	ck_assert_int_eq(io_wait(&w[0]), 2000);
	on_loop(loops[0], put, &he);
	slow_close(&sl);
	ds_obj_put(o);
	free(old);
	free(new);
}
END_TEST

/* ---- write counts ---- */

static uint64_t writes_of(uint64_t ino)
{
	ctl_object obj = {.ino = ino, .fs = 1, .incarnation = 1};
	ctl_stat st;

	ds_store_stat(S, &obj, &st);
	ck_assert_int_eq(st.status, CTL_OK);
	return st.writes;
}

/* What it would tell after a kill. */
static uint64_t rebuilt(struct ds_obj *o)
{
	struct stat st;

	ck_assert_int_eq(ds_obj_stat(o, &st), 0);
	return ds_mtime_ns(&st) + ((uint64_t)S->s_counted << 32);
}

/* The kernel sets the mtime as a write begins. The count is asked for while it is under way, and
 * when it ends the daemon is killed before anybody asks again. */
static void slow_count(bool held)
{
	uint8_t *mem = filled('a');
	uint64_t begun = ((uint64_t)time(NULL) - 10) * 1000000000u + 12345, before, during;
	struct held he = {.he_ino = 1};
	struct ds_obj *o = written(1);
	struct io w;
	struct slow sl;

	on_loop(loops[0], hold, &he);
	/* Long ago: nothing of this is within one tick of the clock. */
	ck_assert_int_eq(ds_mtime_set(o->ob_fd, begun - 1000), 0);
	before = writes_of(1);
	ck_assert_uint_eq(rebuilt(o), before);
	begin_slow(&sl, o, false, loops[0]);
	write_begin(&w, 0, o, held ? he.he_hold : NULL, 100, mem + 100, 2000);
	end_slow(&sl, loops[0]);
	ck_assert_int_eq(ds_mtime_set(o->ob_fd, begun), 0);
	during = writes_of(1);
	ck_assert_uint_ne(during, before);
	ck_assert_uint_eq(writes_of(1), during);
	begun = rebuilt(o) - ((uint64_t)S->s_counted << 32);
	land(&sl, &w);
	ck_assert_int_eq(ds_mtime_set(o->ob_fd, begun), 0);
	ck_assert_int_eq(io_wait(&w), 2000);
	ck_assert_uint_ne(rebuilt(o), during);
	ck_assert_uint_ne(writes_of(1), during);
	/* Nothing is under way any more: what is told is kept. */
	ck_assert_uint_eq(rebuilt(o), writes_of(1));
	on_loop(loops[0], put, &he);
	slow_close(&sl);
	ds_obj_put(o);
	free(mem);
}

START_TEST(a_write_that_was_under_way_at_the_answer_before_counts_after_a_kill)
{
	slow_count(false);
}
END_TEST

START_TEST(so_does_one_that_took_no_lock)
{
	slow_count(true);
}
END_TEST

struct fencer {
	pthread_t fe_thread;
	_Atomic bool fe_done;
};

static void *fence_run(void *arg)
{
	ctl_order o = {.type = CTL_FENCE,
		       .number = 1,
		       .object = {.ino = 1, .fs = 1, .incarnation = 1},
		       .epoch = 7};
	ctl_status res = CTL_INVAL;

	ck_assert_int_eq(ds_store_fences(F, 1, &o, 1, &res), CTL_OK);
	ck_assert_int_eq(res, CTL_OK);
	atomic_store(&((struct fencer *)arg)->fe_done, true);
	return NULL;
}

/* One that waits for the slow one was checked before the fence: it lands before the fence is
 * confirmed, or not at all. */
START_TEST(fence_waits_for_a_write_that_waits_for_a_slow_one)
{
	uint8_t *old = filled('a');
	struct fencer fe = {.fe_done = false};
	struct held he = {.he_ino = 1};
	struct ds_obj *o = written(1);
	unsigned token[2];
	struct io w[2];
	struct slow sl;

	on_loop(loops[0], hold, &he);
	token[0] = ds_write_begin(S);
	begin_slow(&sl, o, false, loops[0]);
	write_begin(&w[0], 0, o, he.he_hold, 100, old + 100, 2000);
	end_slow(&sl, loops[0]);
	token[1] = ds_write_begin(S);
	write_begin(&w[1], 0, o, he.he_hold, 100, old + 100, 2000);
	ck_assert(!ended_or_waiting(&w[1], o, 1));
	pthread_create(&fe.fe_thread, NULL, fence_run, &fe);
	while (ds_obj_epoch(o) < 7)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	land(&sl, &w[0]);
	ck_assert_int_eq(io_wait(&w[0]), 2000);
	ds_write_end(S, token[0]);
	ck_assert_int_eq(io_wait(&w[1]), 2000);
	ck_assert(!atomic_load(&fe.fe_done));
	ds_write_end(S, token[1]);
	pthread_join(fe.fe_thread, NULL);
	on_loop(loops[0], put, &he);
	slow_close(&sl);
	ds_obj_put(o);
	free(old);
}
END_TEST

int main(void)
{
	static const TTest *tests[8];
	Suite *s = suite_create("ds_late");

	tests[0] = old_direct_write_does_not_land_over_a_newer_one;
	tests[1] = old_buffered_write_does_not_land_over_a_newer_one;
	tests[2] = old_write_does_not_land_over_a_newer_one_without_holds;
	tests[3] = writes_of_other_bytes_do_not_wait_for_a_slow_one;
	tests[4] = fence_waits_for_a_write_that_waits_for_a_slow_one;
	tests[5] = a_write_that_was_under_way_at_the_answer_before_counts_after_a_kill;
	tests[6] = so_does_one_that_took_no_lock;
	unit_add(s, "late", setup, teardown, 90, tests);
	return unit_run(s);
}
