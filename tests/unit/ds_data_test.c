/* SPDX-License-Identifier: Apache-2.0 */
/* ds_data_test.c - what the MDS asks of objects' data: seeks, reservations, holes, copies; epochs
 * and instances that refuse. */
#include "base/log.h"
#include "ds/store/store_int.h"
#include "tests/unit/unit.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB (1u << 20)

static char dir[64];
static struct ds_store *S;
#define F ds_store_fs_home(S)

static void start(void)
{
	struct ds_store_opts opts = {.so_dir = dir, .so_name = "", .so_tomb_keep_ms = 600000};
	char err[512];

	ck_assert_int_eq(ds_store_open(&S, &opts, err, sizeof(err)), 0);
}

static void reopen(void)
{
	ds_store_close(S);
	start();
}

static void setup(void)
{
	static bool metrics;

	if (!metrics)
		ds_store_metrics_init();
	metrics = true;
	log_set_level(LOG_L_ERROR);
	ck_assert(scratch_make(dir, sizeof(dir), "ds_data"));
	start();
}

static void teardown(void)
{
	ds_store_close(S);
	scratch_remove(dir);
}

static ctl_object object(uint64_t ino, unsigned stripe)
{
	return (ctl_object){.ino = ino, .fs = 1, .incarnation = 1, .stripe = stripe};
}

static int file_of(uint64_t ino, unsigned stripe)
{
	struct cap_object key = {
		.co_ino = ino, .co_fs = 1, .co_incarnation = 1, .co_stripe = (uint8_t)stripe};
	struct ds_obj *o;
	int fd;

	ck_assert_int_eq(ds_obj_get(S, &key, true, &o), 0);
	fd = ds_obj_reopen(o);
	ck_assert_int_ge(fd, 0);
	ds_obj_put(o);
	return fd;
}

static void put(uint64_t ino, unsigned stripe, uint64_t off, size_t n)
{
	char *buf = malloc(n);
	int fd = file_of(ino, stripe);

	memset(buf, 'x', n);
	ck_assert_int_eq(pwrite(fd, buf, n, (off_t)off), (ssize_t)n);
	free(buf);
	close(fd);
}

static ctl_status change(ctl_change_type type, ctl_object o, uint32_t epoch, uint64_t off,
			 uint64_t len, uint64_t from, ctl_object source)
{
	ctl_span sp = {.offset = off, .length = len, .from = from};
	ctl_change_args a = {.instance_epoch = 7,
			     .type = type,
			     .object = o,
			     .epoch = epoch,
			     .source = source,
			     .total = len};
	ctl_change_res res;

	a.spans.spans_len = 1;
	a.spans.spans_val = &sp;
	return ds_store_change(F, &a, &res);
}

static ctl_stat stat_of(ctl_object o)
{
	ctl_stat st;

	ds_store_stat(S, &o, &st);
	return st;
}

static uint64_t find(ctl_object o, uint64_t off, unsigned hole, unsigned stripes,
		     ctl_seek_found want)
{
	ctl_seek_args a = {
		.object = o, .offset = off, .hole = hole, .unit = MIB, .stripes = stripes};
	ctl_seek_res res = {.offset = 0};

	ck_assert_int_eq(ds_store_seek(S, &a, &res), CTL_OK);
	ck_assert_int_eq(res.found, want);
	return res.offset;
}

START_TEST(seek_counts_the_stripes_own_units_only)
{
	ctl_object o = object(5, 1), none = object(6, 0);
	ctl_seek_args a = {.object = none, .unit = MIB, .stripes = 1};
	ctl_seek_res res;

	put(5, 1, MIB, MIB);
	put(5, 1, 3 * MIB, MIB / 2);
	ck_assert_uint_eq(find(o, 0, 0, 2, CTL_SEEK_FOUND), MIB);
	ck_assert_uint_eq(find(o, 2 * MIB, 0, 2, CTL_SEEK_FOUND), 3 * MIB);
	ck_assert_uint_eq(find(o, MIB, 1, 2, CTL_SEEK_FOUND), 3 * MIB + MIB / 2);
	ck_assert_uint_eq(find(o, 9 * MIB + 5, 1, 2, CTL_SEEK_FOUND), 9 * MIB + 5);
	find(o, 4 * MIB, 0, 2, CTL_SEEK_NONE);
	ck_assert_int_eq(ds_store_seek(S, &a, &res), CTL_NOENT);
	a.object = o; /* no stripe of one */
	ck_assert_int_eq(ds_store_seek(S, &a, &res), CTL_INVAL);
	a.stripes = 2;
	a.unit = 0;
	ck_assert_int_eq(ds_store_seek(S, &a, &res), CTL_INVAL);
}
END_TEST

START_TEST(seek_of_many_units_goes_on_when_asked_again)
{
	ctl_seek_args a = {.object = object(5, 0), .hole = 1, .unit = 1, .stripes = 2};
	ctl_seek_res res;

	put(5, 0, 0, 200000);
	ck_assert_int_eq(ds_store_seek(S, &a, &res), CTL_OK);
	ck_assert_int_eq(res.found, CTL_SEEK_AGAIN);
	ck_assert_uint_gt(res.offset, 100000);
	a.offset = res.offset;
	ck_assert_int_eq(ds_store_seek(S, &a, &res), CTL_OK);
	ck_assert_int_eq(res.found, CTL_SEEK_FOUND);
	ck_assert_uint_eq(res.offset, 200000);
}
END_TEST

START_TEST(allocate_reserves_and_keeps_the_size)
{
	ctl_object o = object(5, 0);

	ck_assert_int_eq(change(CTL_CHANGE_ALLOCATE, o, 0, MIB, 2 * MIB, 0, o), CTL_OK);
	ck_assert_uint_eq(stat_of(o).size, 0);
	ck_assert_uint_ge(stat_of(o).used, 2 * MIB);
	ck_assert_int_eq(change(CTL_CHANGE_EXTEND, o, 0, MIB, 2 * MIB, 0, o), CTL_OK);
	ck_assert_uint_eq(stat_of(o).size, 3 * MIB);
	ck_assert_int_eq(change(CTL_CHANGE_EXTEND, o, 0, 0, MIB, 0, o), CTL_OK);
	ck_assert_uint_eq(stat_of(o).size, 3 * MIB);
}
END_TEST

START_TEST(what_cannot_fit_is_not_begun)
{
	ctl_object o = object(5, 0);

	ck_assert_int_eq(change(CTL_CHANGE_ALLOCATE, o, 0, 0, 1ull << 43, 0, o), CTL_NOSPC);
	ck_assert_uint_lt(stat_of(o).used, MIB);
}
END_TEST

START_TEST(deallocate_punches_and_counts_as_a_write)
{
	ctl_object o = object(5, 0), none = object(6, 0);
	uint64_t before;

	put(5, 0, 0, 4 * MIB);
	before = stat_of(o).writes;
	ck_assert_int_eq(change(CTL_CHANGE_DEALLOCATE, o, 0, MIB, MIB, 0, o), CTL_OK);
	ck_assert_uint_eq(stat_of(o).size, 4 * MIB);
	ck_assert_uint_ne(stat_of(o).writes, before);
	ck_assert_uint_eq(find(o, 0, 1, 1, CTL_SEEK_FOUND), MIB);
	ck_assert_uint_eq(find(o, MIB, 0, 1, CTL_SEEK_FOUND), 2 * MIB);
	ck_assert_int_eq(change(CTL_CHANGE_DEALLOCATE, none, 0, 0, MIB, 0, o), CTL_NOENT);
	ck_assert_int_eq(stat_of(none).status, CTL_NOENT); /* it makes none */
}
END_TEST

START_TEST(copy_keeps_holes_and_makes_them)
{
	ctl_object from = object(5, 0), to = object(6, 0), none = object(7, 0);

	put(5, 0, MIB, MIB);
	put(5, 0, 3 * MIB, 10);
	put(6, 0, 0, 8 * MIB);
	ck_assert_int_eq(change(CTL_CHANGE_COPY, to, 0, 2 * MIB, 4 * MIB, 0, from), CTL_OK);
	ck_assert_uint_eq(find(to, 0, 1, 1, CTL_SEEK_FOUND), 2 * MIB);
	ck_assert_uint_eq(find(to, 2 * MIB, 0, 1, CTL_SEEK_FOUND), 3 * MIB);
	ck_assert_uint_eq(find(to, 3 * MIB, 1, 1, CTL_SEEK_FOUND), 4 * MIB);
	ck_assert_uint_eq(stat_of(to).size, 8 * MIB);
	ck_assert_int_eq(change(CTL_CHANGE_COPY, to, 0, 7 * MIB, 2 * MIB, 0, none), CTL_OK);
	ck_assert_uint_eq(stat_of(to).size, 9 * MIB);
	ck_assert_uint_eq(find(to, 6 * MIB, 1, 1, CTL_SEEK_FOUND), 7 * MIB);
}
END_TEST

START_TEST(a_lost_object_is_neither_made_nor_zeros)
{
	ctl_object o = object(5, 0), lost = object(6, 0);
	ctl_span sp = {.length = MIB};
	ctl_change_args a = {.instance_epoch = 7,
			     .type = CTL_CHANGE_ALLOCATE,
			     .object = lost,
			     .source = lost,
			     .known = CTL_KNOWN,
			     .total = MIB};
	ctl_change_res res;

	a.spans.spans_len = 1;
	a.spans.spans_val = &sp;
	ck_assert_int_eq(ds_store_change(F, &a, &res), CTL_NOENT);
	ck_assert_int_eq(stat_of(lost).status, CTL_NOENT);
	put(5, 0, 0, MIB);
	a.type = CTL_CHANGE_COPY;
	a.object = o;
	a.known = CTL_KNOWN_SOURCE;
	ck_assert_int_eq(ds_store_change(F, &a, &res), CTL_NOENT);
	ck_assert_uint_eq(find(o, 0, 0, 1, CTL_SEEK_FOUND), 0);
}
END_TEST

/* Its order ends: the orders that follow, of either, wait for it. 1: the source is marked. 2: its
 * clone is a source itself, of the same batch. */
START_TEST(a_clone_of_what_is_lost_is_lost)
{
	ctl_object from = object(6, 0), to = object(5, 0), third = object(7, 0),
		   fresh = object(8, 0);
	ctl_order fence = {
		.type = CTL_FENCE, .number = 1, .object = from, .epoch = 1, .known = CTL_KNOWN};
	ctl_order clone = {.type = CTL_CLONE,
			   .number = 2,
			   .object = to,
			   .epoch = 3,
			   .size = MIB,
			   .source = from,
			   .known = CTL_KNOWN_SOURCE};
	ctl_order two[2] = {
		clone,
		{.type = CTL_CLONE, .number = 3, .object = third, .size = MIB, .source = to}};
	ctl_order cut = {.type = CTL_TRUNCATE, .number = 9, .object = to, .known = CTL_KNOWN};
	ctl_status st[2];

	log_set_level((enum log_level) - 1);
	S->s_clone_block = 4096; /* no reflink is tried */
	for (unsigned how = 0; how < 3; how++) {
		to.ino = two[0].object.ino = two[1].source.ino = clone.object.ino = cut.object.ino =
			5 + 10 * how;
		third.ino = two[1].object.ino = 7 + 10 * how;
		put(to.ino, 0, 0, 2 * MIB);
		put(third.ino, 0, 0, MIB);
		if (how) {
			ck_assert_int_eq(ds_store_orders(F, 7, &fence, 1, st), CTL_OK);
			ck_assert_int_eq(stat_of(from).status, CTL_LOST);
		}
		ck_assert_int_eq(
			ds_store_orders(F, 7, how == 2 ? two : &clone, how == 2 ? 2 : 1, st),
			CTL_OK);
		ck_assert_int_eq(st[0], CTL_OK);
		for (unsigned again = 0; again < 2; again++) {
			ck_assert_int_eq(stat_of(to).status, CTL_LOST);
			ck_assert_uint_eq(stat_of(to).epoch, 3);
			if (how == 2) {
				ck_assert_int_eq(st[1], CTL_OK);
				ck_assert_int_eq(stat_of(third).status, CTL_LOST);
			}
			reopen();
			S->s_clone_block = 4096;
		}
		ck_assert_int_eq(ds_store_orders(F, 7, &cut, 1, st), CTL_OK);
		ck_assert_int_eq(st[0], CTL_OK);
		ck_assert_int_eq(stat_of(to).status, CTL_OK);
		ck_assert_uint_eq(stat_of(to).size, 0);
	}
	/* A source that nobody knows of was never written: it is zeros. */
	clone.source = fresh;
	clone.known = 0;
	clone.number = 10;
	put(clone.object.ino, 0, 0, MIB);
	ck_assert_int_eq(ds_store_orders(F, 7, &clone, 1, st), CTL_OK);
	ck_assert_int_eq(stat_of(clone.object).status, CTL_OK);
	log_set_level(LOG_L_ERROR);
}
END_TEST

START_TEST(changes_of_before_a_fence_are_refused)
{
	ctl_object o = object(5, 0);
	ctl_order fence = {.type = CTL_FENCE, .number = 1, .object = o, .epoch = 3};
	ctl_status st;

	put(5, 0, 0, MIB);
	ck_assert_int_eq(ds_store_orders(F, 7, &fence, 1, &st), CTL_OK);
	ck_assert_int_eq(st, CTL_OK);
	ck_assert_int_eq(change(CTL_CHANGE_DEALLOCATE, o, 2, 0, MIB, 0, o), CTL_FENCED);
	ck_assert_uint_eq(find(o, 0, 0, 1, CTL_SEEK_FOUND), 0);
	ck_assert_int_eq(change(CTL_CHANGE_DEALLOCATE, o, 3, 0, MIB, 0, o), CTL_OK);
	find(o, 0, 0, 1, CTL_SEEK_NONE);
}
END_TEST

START_TEST(a_deposed_instance_changes_nothing)
{
	ctl_object o = object(5, 0);
	ctl_status st;

	ck_assert_int_eq(ds_store_orders(F, 8, NULL, 0, &st), CTL_OK);
	ck_assert_int_eq(change(CTL_CHANGE_ALLOCATE, o, 0, 0, MIB, 0, o), CTL_STALE_INSTANCE);
	ck_assert_int_eq(stat_of(o).status, CTL_NOENT);
}
END_TEST

START_TEST(spans_that_cannot_be_are_refused)
{
	ctl_object o = object(5, 0), bad = {.ino = 5, .fs = 1, .incarnation = 1, .stripe = 256};

	ck_assert_int_eq(change(CTL_CHANGE_ALLOCATE, o, 0, 0, 0, 0, o), CTL_INVAL);
	ck_assert_int_eq(change(CTL_CHANGE_DEALLOCATE, o, 0, UINT64_MAX, 1, 0, o), CTL_INVAL);
	ck_assert_int_eq(change(CTL_CHANGE_DEALLOCATE, o, 0, INT64_MAX, 2, 0, o), CTL_INVAL);
	ck_assert_int_eq(change(CTL_CHANGE_COPY, o, 0, 0, 2, INT64_MAX, o), CTL_INVAL);
	ck_assert_int_eq(change((ctl_change_type)9, o, 0, 0, 2, 0, o), CTL_INVAL);
	ck_assert_int_eq(change(CTL_CHANGE_ALLOCATE, bad, 0, 0, 2, 0, o), CTL_INVAL);
	ck_assert_int_eq(stat_of(o).status, CTL_NOENT);
}
END_TEST

/* On a store with reflinks what they do; on one without, that nothing is done
 * (tests/wire/clone_test.py has one with). */
START_TEST(clone_orders_are_done_or_refused)
{
	ctl_object from = object(5, 0), to = object(6, 0);
	ctl_order clone = {.type = CTL_CLONE,
			   .number = 1,
			   .object = to,
			   .epoch = 1,
			   .size = MIB + 5,
			   .source = from,
			   .offset = MIB};
	uint64_t before;
	ctl_status st;

	put(5, 0, 0, 2 * MIB);
	put(6, 0, 0, 4 * MIB);
	before = stat_of(to).writes;
	ck_assert_int_eq(ds_store_orders(F, 7, &clone, 1, &st), CTL_OK);
	if (!ds_store_clone_block(S)) {
		ck_assert_int_eq(st, CTL_INVAL);
		ck_assert_uint_eq(stat_of(to).epoch, 0);
		return;
	}
	ck_assert_int_eq(st, CTL_OK);
	ck_assert_uint_eq(stat_of(to).size, 4 * MIB);
	ck_assert_uint_eq(stat_of(to).writes, before);
	clone.number = 2;
	clone.offset = 100;
	ck_assert_int_eq(ds_store_orders(F, 7, &clone, 1, &st), CTL_OK);
	ck_assert_int_eq(st, CTL_INVAL);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ds_data");
	TCase *t = tcase_create("data");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, seek_counts_the_stripes_own_units_only);
	tcase_add_test(t, seek_of_many_units_goes_on_when_asked_again);
	tcase_add_test(t, allocate_reserves_and_keeps_the_size);
	tcase_add_test(t, what_cannot_fit_is_not_begun);
	tcase_add_test(t, deallocate_punches_and_counts_as_a_write);
	tcase_add_test(t, copy_keeps_holes_and_makes_them);
	tcase_add_test(t, a_lost_object_is_neither_made_nor_zeros);
	tcase_add_test(t, a_clone_of_what_is_lost_is_lost);
	tcase_add_test(t, changes_of_before_a_fence_are_refused);
	tcase_add_test(t, a_deposed_instance_changes_nothing);
	tcase_add_test(t, spans_that_cannot_be_are_refused);
	tcase_add_test(t, clone_orders_are_done_or_refused);
	suite_add_tcase(s, t);
	return unit_run(s);
}
