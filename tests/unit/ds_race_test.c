/* SPDX-License-Identifier: Apache-2.0 */
/* ds_race_test.c - a pull that races with who changes both copies. WEFT_TEST_SEED,
 * WEFT_TEST_ROUNDS. */
#include "tests/unit/ds_rebuild.h"
#include <fcntl.h>
#include <sys/stat.h>

enum { WRITERS = 3 };

static struct race {
	pthread_rwlock_t ra_lock; /* a new size waits for writes, as the metadata server has it */
	_Atomic bool ra_stop;
	uint32_t ra_slot, ra_slots;
	bool ra_notes;
	_Atomic uint64_t ra_number, ra_writes;
} ra;

static void nap(void)
{
	if (rnd(3) == 0)
		nanosleep(&(struct timespec){.tv_nsec = (long)rnd(300000)}, NULL);
}

static void write_one(struct ds_obj *o, unsigned loop, uint64_t off, uint8_t *mem, uint32_t n)
{
	struct io io = {.io_what = IO_WRITE,
			.io_rw = {.rw_obj = o, .rw_off = off, .rw_len = n, .rw_mem = mem}};
	unsigned token = ds_write_begin(S);

	while (ra.ra_notes && ds_obj_note(o, off, n)) {
		ds_write_end(S, token);
		nap();
		token = ds_write_begin(S);
	}
	io_start(&io, loops[loop]);
	ck_assert_int_eq(io_wait(&io), (int)n);
	ds_write_end(S, token);
}

/* To both, in any order, with a pause between. Its own slots: who writes the same bytes at the same
 * time gets anything. */
static void *writer(void *arg)
{
	unsigned me = (unsigned)(uintptr_t)arg;
	uint8_t *mem = aligned_alloc(DS_PAGE, (ra.ra_slot + 2 * DS_PAGE) & ~(DS_PAGE - 1));
	struct ds_obj *o[2] = {get(SOURCE), get(TARGET)};

	while (!ra.ra_stop) {
		uint64_t slot = rnd(ra.ra_slots) / WRITERS * WRITERS + me, off = slot * ra.ra_slot;
		uint32_t skip = rnd(2) ? rnd(ra.ra_slot) : 0, n = 1 + rnd(ra.ra_slot - skip);
		unsigned first = rnd(2);

		off += skip;
		memset(mem, (int)(1 + rnd(255)), n);
		pthread_rwlock_rdlock(&ra.ra_lock);
		write_one(o[first], rnd(LOOPS), off, mem, n);
		nap();
		write_one(o[!first], rnd(LOOPS), off, mem, n);
		pthread_rwlock_unlock(&ra.ra_lock);
		atomic_fetch_add(&ra.ra_writes, 1);
		nap();
	}
	ds_obj_put(o[0]);
	ds_obj_put(o[1]);
	free(mem);
	return NULL;
}

static void punch_both(uint64_t off, uint64_t n, unsigned first)
{
	ctl_span sp = {.offset = off, .length = n};
	ctl_change_args a = {.instance_epoch = 1, .type = CTL_CHANGE_DEALLOCATE, .epoch = 1u << 30};
	ctl_change_res res;

	a.spans.spans_len = 1;
	a.spans.spans_val = &sp;
	for (unsigned i = 0; i < 2; i++) {
		a.object = object(i == first ? SOURCE : TARGET);
		ck_assert_int_eq(ds_store_change(F, &a, &res), CTL_OK);
		nap();
	}
}

/* What the metadata server does, with nobody writing. */
static void *orderer(void *arg)
{
	(void)arg;
	while (!ra.ra_stop) {
		uint64_t at = rnd(ra.ra_slot * ra.ra_slots),
			 number = atomic_fetch_add(&ra.ra_number, 1);
		unsigned what = rnd(3), first = rnd(2);

		nanosleep(&(struct timespec){.tv_nsec = (long)rnd(6000000)}, NULL);
		pthread_rwlock_wrlock(&ra.ra_lock);
		if (what == 2) {
			punch_both(at, 1 + rnd(100000), first);
		} else {
			for (unsigned i = 0; i < 2; i++) {
				ctl_order o = {.type = what ? CTL_EXTEND : CTL_TRUNCATE,
					       .number = number,
					       .size = at};

				o.object = object(i == first ? SOURCE : TARGET);
				ck_assert_int_eq(order_as(o), CTL_OK);
				nap();
			}
		}
		pthread_rwlock_unlock(&ra.ra_lock);
	}
	return NULL;
}

static void old_contents(void)
{
	struct ds_obj *o;

	for (unsigned i = 0; i < 6; i++) {
		put_bytes(SOURCE, rnd(ra.ra_slot * ra.ra_slots), (unsigned char)rnd(256),
			  1 + rnd(200000));
		if (rnd(2))
			put_bytes(TARGET, rnd(ra.ra_slot * ra.ra_slots), (unsigned char)rnd(256),
				  1 + rnd(200000));
	}
	for (unsigned ino = SOURCE; ino <= TARGET; ino++) {
		o = get(ino);
		/* as a data server's own writes are: the page cache has nothing to say */
		ck_assert_int_eq(fdatasync(o->ob_fd), 0);
		posix_fadvise(o->ob_fd, 0, 0, POSIX_FADV_DONTNEED);
		ds_obj_put(o);
	}
}

/* Whether both ended equal. */
static bool round_of_race(unsigned round, bool orders)
{
	static const uint32_t slots[] = {700, 5000, 4096, 70000, 300000};
	ctl_rebuild_res res = {0};
	pthread_t t[WRITERS + 1];
	uint32_t step = 1 + rnd(DS_MAX_IO);
	ctl_status st;

	ra.ra_slot = slots[round % 5];
	ra.ra_slots = (1 + rnd(3 * MIB)) / ra.ra_slot + WRITERS;
	ra.ra_stop = false;
	old_contents();
	ck_assert_int_eq(begin_as(round + 1, round + 1), CTL_OK);
	for (uintptr_t i = 0; i < WRITERS; i++)
		pthread_create(&t[i], NULL, writer, (void *)i);
	if (orders)
		pthread_create(&t[WRITERS], NULL, orderer, NULL);
	step = step < 65536 ? 65536 : step;
	while (pull_window(round + 1, rnd(3) ? step : 1 + rnd(step), &st, &res))
		nap();
	ck_assert_int_eq(st, CTL_OK);
	if (rnd(2))
		ck_assert_int_eq(end_as(round + 1), CTL_OK);
	ra.ra_stop = true;
	for (unsigned i = 0; i < WRITERS + (unsigned)orders; i++)
		pthread_join(t[i], NULL);
	return same_bytes();
}

static unsigned races(unsigned n, bool notes, bool orders)
{
	unsigned differ = 0;

	pthread_rwlock_init(&ra.ra_lock, NULL);
	ra.ra_notes = notes;
	ra.ra_number = 1;
	if (getenv("WEFT_TEST_SEED"))
		seed = strtoull(getenv("WEFT_TEST_SEED"), NULL, 0);
	for (unsigned i = 0; i < n; i++) {
		bool same = round_of_race(i, orders);

		differ += !same;
		if (notes)
			ck_assert_msg(same, "round %u of seed %lu", i, (unsigned long)seed);
		else if (differ)
			break;
	}
	return differ;
}

static unsigned rounds(void)
{
	return getenv("WEFT_TEST_ROUNDS") ? (unsigned)atoi(getenv("WEFT_TEST_ROUNDS")) : 80;
}

START_TEST(pull_and_writes_end_equal)
{
	ck_assert_uint_eq(races(rounds(), true, false), 0);
	ck_assert_uint_gt(ra.ra_writes, rounds());
}
END_TEST

START_TEST(pull_writes_and_orders_end_equal)
{
	ck_assert_uint_eq(races(rounds(), true, true), 0);
}
END_TEST

/* The race is one: who is not noted is lost. */
START_TEST(pull_without_notes_does_not)
{
	ck_assert_uint_gt(races(100, false, false), 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("ds_race");
	static const TTest *races_[4];

	races_[0] = pull_and_writes_end_equal;
	races_[1] = pull_writes_and_orders_end_equal;
	races_[2] = pull_without_notes_does_not;
	unit_add(s, "races", setup_mem, teardown_mem, 120, races_);
	return s;
}

int main(void)
{
	return unit_run(suite());
}
