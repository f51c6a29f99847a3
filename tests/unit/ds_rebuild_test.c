/* SPDX-License-Identifier: Apache-2.0 */
/* ds_rebuild_test.c - rebuilds in the store: notes, sessions, windows, and who is watched. */
#include "ds/peer.h"
#include "proto/nfs3.h"
#include "tests/unit/ds_rebuild.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* A disk that fails: sizes are set on this thread. 0: it works. */
static _Thread_local int truncate_fails;

int ftruncate(int fd, off_t size)
{
	static int (*real)(int, off_t);

	if (!real)
		real = (int (*)(int, off_t))dlsym(RTLD_NEXT, "ftruncate");
	if (truncate_fails) {
		errno = truncate_fails;
		return -1;
	}
	return real(fd, size);
}

/* ---- notes ---- */

#define MODEL 2000u

START_TEST(notes_are_a_set_of_bytes)
{
	for (unsigned round = 0; round < 40; round++) {
		struct extents ns = {0};
		bool model[MODEL] = {false};
		uint64_t below = 0;

		for (unsigned step = 0; step < 60; step++) {
			uint64_t from = rnd(MODEL), to = from + rnd(rnd(4) ? 30 : 600);
			struct extent gap;

			to = to > MODEL ? MODEL : to;
			if (rnd(8) == 0) {
				below = from > below ? from : below;
				extents_forget(&ns, below);
			} else if (to > below) {
				from = from > below ? from : below;
				ck_assert_int_eq(extents_add(&ns, from, to), 0);
				memset(model + from, true, to - from);
			}
			for (unsigned i = 0; i < ns.es_n; i++) {
				ck_assert_uint_lt(ns.es_at[i].e_from, ns.es_at[i].e_to);
				ck_assert(!i || ns.es_at[i - 1].e_to < ns.es_at[i].e_from);
			}
			for (uint64_t at = below; at < MODEL; at++) {
				bool any = extents_gap(&ns, at, at + 1, &gap);

				ck_assert_msg(any != model[at], "round %u: byte %lu", round,
					      (unsigned long)at);
			}
			for (uint64_t at = below; extents_gap(&ns, at, MODEL, &gap); at = gap.e_to)
				for (uint64_t b = at; b < gap.e_to; b++)
					ck_assert(model[b] == (b < gap.e_from));
		}
		extents_free(&ns);
	}
}
END_TEST

START_TEST(notes_are_bounded)
{
	struct extents ns = {0};
	struct extent gap;

	for (uint64_t i = 0; i < EXTENTS_MAX; i++)
		ck_assert_int_eq(extents_add(&ns, 3 * i, 3 * i + 1), 0);
	ck_assert_int_eq(extents_add(&ns, 3 * EXTENTS_MAX + 7, 3 * EXTENTS_MAX + 8), -ENOBUFS);
	ck_assert(extents_gap(&ns, 3 * EXTENTS_MAX + 7, 3 * EXTENTS_MAX + 8, &gap));
	/* One that meets others needs no room. */
	ck_assert_int_eq(extents_add(&ns, 1, 3), 0);
	ck_assert_uint_eq(ns.es_n, EXTENTS_MAX - 1);
	extents_forget(&ns, 300);
	ck_assert_int_eq(extents_add(&ns, 3 * EXTENTS_MAX + 7, EXTENT_END), 0);
	ck_assert(!extents_gap(&ns, 1ull << 60, EXTENT_END, &gap));
	extents_free(&ns);
}
END_TEST

/* ---- sessions ---- */

START_TEST(flag_survives_and_the_session_does_not)
{
	touch(TARGET);
	ck_assert_int_eq(begin_as(7, 2), CTL_OK);
	ck_assert_uint_eq(ds_store_sessions(S), 1);
	ck_assert_int_eq(note_as(TARGET, 0, 10), 0);
	reopen();
	ck_assert(flagged(TARGET));
	ck_assert_int_eq(stat_status(TARGET), CTL_REBUILDING);
	ck_assert_int_eq(note_as(TARGET, 0, 10), -EAGAIN);
	ck_assert_int_eq(end_as(7), CTL_BAD_SESSION);
	ck_assert_int_eq(begin_as(8, 3), CTL_OK);
	ck_assert_int_eq(note_as(TARGET, 0, 10), 0);
	pull_all(8);
	ck_assert_int_eq(end_as(8), CTL_OK);
	ck_assert(!flagged(TARGET));
	ck_assert_uint_eq(ds_store_sessions(S), 0);
	reopen();
	ck_assert(!flagged(TARGET));
	ck_assert_int_eq(stat_status(TARGET), CTL_OK);
}
END_TEST

/* Changes of a session that is lost may be under way to the source still. */
START_TEST(a_write_without_room_for_a_note_fails_and_waits_for_nothing)
{
	touch(TARGET);
	ck_assert_int_eq(begin_as(7, 2), CTL_OK);
	for (uint64_t i = 0; i < EXTENTS_MAX; i++)
		ck_assert_int_eq(note_as(TARGET, 4096 * i, 1), 0);
	ck_assert_int_eq(note_as(TARGET, 4096ull * EXTENTS_MAX, 1), -EIO);
	ck_assert_int_eq(note_as(TARGET, 1, 1), 0); /* meets another */
	ck_assert_int_eq(abort_as(7), CTL_OK);
	ck_assert_int_eq(note_as(TARGET, 0, 1), -EAGAIN);
}
END_TEST

/* The pull leaves these bytes alone, so the object has older ones than its source. */
START_TEST(a_noted_write_that_failed_keeps_the_object_out)
{
	struct ds_obj *o;

	put_bytes(SOURCE, 0, 's', 100);
	touch(TARGET);
	ck_assert_int_eq(begin_as(7, 2), CTL_OK);
	ck_assert_int_eq(note_as(TARGET, 0, 10), 0);
	pull_all(7);
	o = get(TARGET);
	ds_obj_note_failed(o, -EIO);
	ds_obj_put(o);
	ck_assert_int_eq(end_as(7), CTL_BAD_SESSION);
	ck_assert(flagged(TARGET));
	ck_assert_uint_eq(ds_store_sessions(S), 0);
	ck_assert_int_eq(begin_as(8, 3), CTL_OK);
	pull_all(8);
	ck_assert_int_eq(end_as(8), CTL_OK);
	ck_assert(!flagged(TARGET));
}
END_TEST

/* The metadata server then has the object rebuilt elsewhere, and does not take the disk for bad. */
START_TEST(a_noted_write_that_found_no_room_ends_as_a_full_disk)
{
	static const int full[] = {-ENOSPC, -EDQUOT};
	struct ds_obj *o;

	put_bytes(SOURCE, 0, 's', 100);
	touch(TARGET);
	o = get(TARGET);
	for (unsigned i = 0; i < 2; i++) {
		ck_assert_int_eq(begin_as(7 + i, 2 + i), CTL_OK);
		ck_assert_int_eq(note_as(TARGET, 0, 10), 0);
		pull_all(7 + i);
		ds_obj_note_failed(o, full[i]);
		ds_obj_note_failed(o, -EIO); /* the first error says why */
		ck_assert_int_eq(end_as(7 + i), CTL_NOSPC);
		ck_assert(flagged(TARGET));
		ck_assert_uint_eq(ds_store_sessions(S), 0);
	}
	ds_obj_put(o);
}
END_TEST

START_TEST(a_pull_after_a_noted_write_that_failed_writes_nothing_more)
{
	ctl_rebuild_res res = {0};
	struct ds_obj *o;
	ctl_status st;

	put_bytes(SOURCE, 0, 's', 2 * 4096);
	touch(TARGET);
	ck_assert_int_eq(begin_as(7, 2), CTL_OK);
	ck_assert_int_eq(note_as(TARGET, 4096, 10), 0);
	ck_assert(pull_window(7, 4096, &st, &res));
	o = get(TARGET);
	ds_obj_note_failed(o, -EIO);
	ds_obj_put(o);
	res.copied = 0;
	ck_assert(!pull_window(7, 4096, &st, &res));
	ck_assert_int_eq(st, CTL_BAD_SESSION);
	ck_assert_uint_eq(res.copied, 0);
	ck_assert_uint_eq(ds_store_sessions(S), 0);
	ck_assert(flagged(TARGET));
}
END_TEST

START_TEST(a_size_that_is_not_set_keeps_the_object_out)
{
	struct ds_obj *o;

	put_bytes(SOURCE, 0, 's', 100);
	put_bytes(TARGET, 0, 't', 200);
	ck_assert_int_eq(begin_as(7, 2), CTL_OK);
	pull_all(7);
	o = get(TARGET);
	truncate_fails = ENOSPC;
	ck_assert_int_eq(ds_obj_set_size(o, 10), -ENOSPC);
	truncate_fails = 0;
	ds_obj_put(o);
	ck_assert_int_eq(end_as(7), CTL_NOSPC);
	ck_assert(flagged(TARGET));
}
END_TEST

static void *end_of_7(void *arg)
{
	*(ctl_status *)arg = end_as(7);
	return NULL;
}

START_TEST(end_waits_for_writes_that_were_noted)
{
	ctl_status status = CTL_OK;
	unsigned token, gen;
	struct ds_obj *o;
	pthread_t thread;

	put_bytes(SOURCE, 0, 's', 100);
	touch(TARGET);
	ck_assert_int_eq(begin_as(7, 2), CTL_OK);
	token = ds_write_begin(S);
	o = get(TARGET);
	ck_assert_int_eq(ds_obj_note(o, 0, 10), 0);
	pull_all(7);
	gen = atomic_load(&S->s_gen);
	ck_assert_int_eq(pthread_create(&thread, NULL, end_of_7, &status), 0);
	/* It waits, or it is over, and then the session is. */
	while (atomic_load(&S->s_gen) == gen && ds_store_sessions(S))
		sched_yield();
	ds_obj_note_failed(o, -EIO);
	ds_write_end(S, token);
	pthread_join(thread, NULL);
	ck_assert_int_eq(status, CTL_BAD_SESSION);
	ck_assert(flagged(TARGET));
	ds_obj_put(o);
}
END_TEST

START_TEST(another_session_needs_a_fence)
{
	ck_assert_int_eq(begin_as(7, 0), CTL_INVAL);
	ck_assert_int_eq(begin_as(0, 2), CTL_INVAL);
	ck_assert_int_eq(begin_as(7, 2), CTL_OK);
	ck_assert_int_eq(begin_as(8, 2), CTL_FENCED);
	ck_assert_int_eq(begin_as(8, 1), CTL_FENCED);
	ck_assert_int_eq(note_as(TARGET, 0, 1), 0); /* the first one lives */
	ck_assert_int_eq(abort_as(7), CTL_OK);
	ck_assert_int_eq(begin_as(8, 2), CTL_FENCED);
	reopen();
	ck_assert_int_eq(begin_as(8, 2), CTL_FENCED);
	ck_assert_int_eq(begin_as(8, 3), CTL_OK);
	pull_all(8);
	ck_assert_int_eq(end_as(8), CTL_OK);
	reopen();
	ck_assert_int_eq(begin_as(9, 3), CTL_FENCED);
	/* Below a fence nothing begins. */
	ck_assert_int_eq(
		order_as((ctl_order){
			.type = CTL_FENCE, .number = 1, .object = object(TARGET), .epoch = 9}),
		CTL_OK);
	ck_assert_int_eq(begin_as(9, 8), CTL_FENCED);
	ck_assert_int_eq(begin_as(9, 9), CTL_OK);
}
END_TEST

START_TEST(repeated_begin_keeps_the_notes)
{
	put_bytes(SOURCE, 0, 's', 100);
	ck_assert_int_eq(begin_as(7, 2), CTL_OK);
	ck_assert_int_eq(note_as(TARGET, 10, 10), 0);
	put_bytes(TARGET, 10, 't', 10);
	ck_assert_int_eq(begin_as(7, 2), CTL_OK);
	pull_all(7);
	put_bytes(SOURCE, 10, 't', 10);
	ck_assert(same_bytes());
}
END_TEST

START_TEST(steps_of_another_session_are_refused)
{
	ctl_rebuild_res res = {0};
	ctl_status st;

	put_bytes(SOURCE, 0, 's', 3 * MIB);
	ck_assert_int_eq(begin_as(7, 2), CTL_OK);
	ck_assert_int_eq(end_as(7), CTL_INVAL); /* nothing is pulled */
	ck_assert(pull_window(7, MIB, &st, &res));
	ck_assert_int_eq(end_as(7), CTL_INVAL);
	ck_assert(!pull_window(8, MIB, &st, &res));
	ck_assert_int_eq(st, CTL_BAD_SESSION);
	ck_assert_int_eq(end_as(8), CTL_BAD_SESSION);
	ck_assert_int_eq(abort_as(8), CTL_OK);
	ck_assert_int_eq(begin_as(9, 3), CTL_OK);
	ck_assert(!pull_window(7, MIB, &st, &res));
	pull_all(9);
	ck_assert_int_eq(end_as(9), CTL_OK);
	ck_assert_int_eq(end_as(9), CTL_BAD_SESSION);
	ck_assert(same_bytes());
}
END_TEST

START_TEST(delete_ends_the_session)
{
	ck_assert_int_eq(begin_as(7, 2), CTL_OK);
	ck_assert_int_eq(
		order_as((ctl_order){.type = CTL_DELETE, .number = 1, .object = object(TARGET)}),
		CTL_OK);
	ck_assert_uint_eq(ds_store_sessions(S), 0);
	ck_assert_int_eq(end_as(7), CTL_BAD_SESSION);
	ck_assert_int_eq(begin_as(8, 3), CTL_NOENT);
	/* readers of before may have it a moment longer */
	for (unsigned i = 0; i < 1000 && ds_store_open_objects(S); i++)
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	ck_assert_uint_eq(ds_store_open_objects(S), 0);
}
END_TEST

START_TEST(sessions_are_bounded_and_the_oldest_goes)
{
	for (unsigned i = 0; i < 257; i++) {
		ctl_rebuild_args a = {.object = object(100 + i), .session = 7, .epoch = 2};
		ctl_rebuild_res res;
		struct step st = {.st_what = BEGIN, .st_args = &a, .st_res = &res};

		ck_assert_int_eq(step(&st), CTL_OK);
	}
	ck_assert_uint_eq(ds_store_sessions(S), 256);
	ck_assert_int_eq(note_as(100, 0, 1), -EAGAIN);
	ck_assert_int_eq(note_as(101, 0, 1), 0);
}
END_TEST

/* Objects from before there were rebuilds. */
START_TEST(first_xattr_is_read)
{
	uint8_t v1[16] = {1, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 5};
	struct ds_obj *o = get(TARGET);

	ck_assert_int_eq(fsetxattr(o->ob_fd, "user.weft", v1, sizeof(v1), 0), 0);
	ds_obj_put(o);
	reopen();
	o = get(TARGET);
	ck_assert_uint_eq(ds_obj_epoch(o), 9);
	ck_assert_uint_eq(o->ob_order, 5);
	ck_assert(!ds_obj_rebuilding(o));
	ds_obj_put(o);
	ck_assert_int_eq(begin_as(7, 9), CTL_OK);
}
END_TEST

START_TEST(who_asks_of_a_flagged_object_is_told)
{
	ctl_seek_args sk = {.object = object(TARGET), .unit = MIB, .stripes = 1};
	ctl_span sp = {.length = 10};
	ctl_change_args ch = {.instance_epoch = 1,
			      .type = CTL_CHANGE_COPY,
			      .object = object(SOURCE),
			      .source = object(TARGET),
			      .epoch = 9};
	ctl_change_res cr;
	ctl_seek_res sr;
	struct ds_obj *o;

	ds_obj_put(written(SOURCE));
	ch.spans.spans_len = 1;
	ch.spans.spans_val = &sp;
	ck_assert_int_eq(begin_as(7, 2), CTL_OK);
	ck_assert_int_eq(ds_store_seek(S, &sk, &sr), CTL_REBUILDING);
	ck_assert_int_eq(ds_store_change(F, &ch, &cr), CTL_REBUILDING);
	/* As a change's target it needs the session. */
	ch.object = object(TARGET);
	ch.source = object(SOURCE);
	ck_assert_int_eq(ds_store_change(F, &ch, &cr), CTL_OK);
	ck_assert_int_eq(abort_as(7), CTL_OK);
	ck_assert_int_eq(ds_store_change(F, &ch, &cr), CTL_REBUILDING);
	o = get(TARGET);
	ck_assert_int_eq(ds_obj_set_size(o, 5), -EAGAIN);
	ds_obj_put(o);
	/* An order is done all the same: the next session fetches all. */
	ck_assert_int_eq(
		order_as((ctl_order){
			.type = CTL_TRUNCATE, .number = 1, .object = object(TARGET), .size = 4}),
		CTL_OK);
	ck_assert_int_eq(stat_status(TARGET), CTL_REBUILDING);
}
END_TEST

START_TEST(a_rebuild_makes_what_is_lost_whole)
{
	log_set_level((enum log_level) - 1);
	ck_assert_int_eq(order_as((ctl_order){.type = CTL_FENCE,
					      .number = 1,
					      .object = object(TARGET),
					      .epoch = 3,
					      .known = CTL_KNOWN}),
			 CTL_OK);
	log_set_level(LOG_L_ERROR);
	ck_assert_int_eq(stat_status(TARGET), CTL_LOST);
	ck_assert_int_eq(begin_as(7, 3), CTL_OK);
	/* Clients write it, and nobody reads it. */
	ck_assert_int_eq(note_as(TARGET, 0, 1), 0);
	ck_assert_int_eq(stat_status(TARGET), CTL_REBUILDING);
	ck_assert_int_eq(abort_as(7), CTL_OK);
	reopen();
	ck_assert_int_eq(stat_status(TARGET), CTL_REBUILDING);
	ck_assert_int_eq(begin_as(8, 3), CTL_FENCED);
	ck_assert_int_eq(begin_as(8, 4), CTL_OK);
	pull_all(8);
	ck_assert_int_eq(end_as(8), CTL_OK);
	ck_assert_int_eq(stat_status(TARGET), CTL_OK);
	ck_assert_int_eq(lookup(TARGET, false), 0);
	reopen();
	ck_assert_int_eq(stat_status(TARGET), CTL_OK);
}
END_TEST

/* ---- windows ---- */

START_TEST(what_differs_is_written_and_what_is_the_same_is_not)
{
	ctl_rebuild_res res;

	put_bytes(SOURCE, 0, 'a', 3 * MIB + 77);
	put_bytes(TARGET, 0, 'a', 3 * MIB + 77);
	put_bytes(TARGET, MIB + 5000, 'b', 10);
	put_bytes(TARGET, 3 * MIB + 70, 'b', 1);
	ck_assert_int_eq(begin_as(7, 2), CTL_OK);
	res = pull_all(7);
	ck_assert_uint_eq(res.copied, DS_PAGE + 77);
	ck_assert_uint_eq(res.same, 3 * MIB - DS_PAGE);
	ck_assert(same_bytes());
	ck_assert_int_eq(end_as(7), CTL_OK);
}
END_TEST

static uint64_t blocks(uint64_t ino)
{
	struct ds_obj *o = get(ino);
	struct stat st;

	ck_assert_int_eq(fsync(o->ob_fd), 0);
	ck_assert_int_eq(ds_obj_stat(o, &st), 0);
	ds_obj_put(o);
	return (uint64_t)st.st_blocks * 512;
}

START_TEST(holes_stay_holes_and_become_holes)
{
	ctl_rebuild_res res;

	put_bytes(SOURCE, 0, 'a', 5000);
	put_bytes(SOURCE, 40 * MIB, 'a', 5000);
	put_bytes(TARGET, MIB - 100, 'x', 4 * MIB);
	ck_assert_int_eq(begin_as(7, 2), CTL_OK);
	res = pull_all(7);
	ck_assert(same_bytes());
	ck_assert_uint_lt(blocks(TARGET), MIB / 2);
	ck_assert_uint_ge(res.holes, 39 * MIB);
	ck_assert_uint_lt(res.copied + res.same, MIB / 2);
}
END_TEST

START_TEST(longer_object_is_cut)
{
	put_bytes(SOURCE, 0, 'a', 5001);
	put_bytes(TARGET, 0, 'x', 2 * MIB + 3);
	ck_assert_int_eq(begin_as(7, 2), CTL_OK);
	pull_all(7);
	ck_assert(same_bytes());
}
END_TEST

START_TEST(source_that_is_not_there_is_empty)
{
	struct ds_fetch f = {.ft_data = fetch_mem};
	ctl_rebuild_args a = args(7, 2);
	ctl_rebuild_res res = {0};
	struct ds_session *ss;

	put_bytes(TARGET, 0, 'x', 5000);
	ck_assert_int_eq(begin_as(7, 2), CTL_OK);
	ss = ds_session_get(S, &a);
	ck_assert_int_eq(ds_fetch_read(NULL, MIB, &f), 0);
	ck_assert_int_eq(ds_session_write(ss, &f, session_mem, &res), CTL_OK);
	ck_assert_uint_eq(ds_session_cursor(ss), EXTENT_END);
	ds_session_put(ss);
	ds_obj_put(get(SOURCE));
	ck_assert(same_bytes());
}
END_TEST

/* More pieces than an answer can tell. */
START_TEST(object_of_many_pieces_is_whole)
{
	for (unsigned i = 0; i < 300; i++)
		put_bytes(SOURCE, 2ull * i * DS_PAGE, (unsigned char)i, DS_PAGE);
	put_bytes(TARGET, 0, 'x', MIB);
	ck_assert_int_eq(begin_as(7, 2), CTL_OK);
	pull_all(7);
	ck_assert(same_bytes());
}
END_TEST

/* Clients have written past the source's end, or orders moved it. */
START_TEST(end_is_where_it_was_put_since_begin)
{
	ctl_order ext = {.type = CTL_EXTEND, .object = object(TARGET), .size = 9000, .number = 1};
	ctl_order cut = {.type = CTL_TRUNCATE, .object = object(TARGET), .size = 300, .number = 2};

	put_bytes(SOURCE, 0, 's', 1000);
	put_bytes(TARGET, 0, 'x', 20000);
	/* extended: the source has heard of it later */
	ck_assert_int_eq(begin_as(7, 2), CTL_OK);
	ck_assert_int_eq(order_as(ext), CTL_OK);
	pull_all(7);
	ext.object = object(SOURCE);
	ck_assert_int_eq(order_as(ext), CTL_OK);
	ck_assert(same_bytes());
	/* written */
	put_bytes(TARGET, 0, 'x', 20000);
	ck_assert_int_eq(begin_as(8, 3), CTL_OK);
	ck_assert_int_eq(note_as(TARGET, 10000, 500), 0);
	put_bytes(TARGET, 10000, 'c', 500);
	pull_all(8);
	put_bytes(SOURCE, 10000, 'c', 500);
	ck_assert(same_bytes());
	/* cut */
	ck_assert_int_eq(begin_as(9, 4), CTL_OK);
	ck_assert_int_eq(order_as(cut), CTL_OK);
	pull_all(9);
	cut.object = object(SOURCE);
	ck_assert_int_eq(order_as(cut), CTL_OK);
	ck_assert(same_bytes());
}
END_TEST

/* ---- the disk ---- */

static _Atomic int lies; /* reads to tell wrongly */

/* In place of libc's for the store's code. */
ssize_t pread(int fd, void *mem, size_t n, off_t off)
{
	ssize_t got = syscall(SYS_pread64, fd, mem, n, off);

	if (got > 0 && atomic_load(&lies) && fcntl(fd, F_GETFL) & O_DIRECT) {
		atomic_fetch_sub(&lies, 1);
		((uint8_t *)mem)[got / 2] ^= 1;
	}
	return got;
}

ssize_t pread64(int fd, void *mem, size_t n, off_t off);
ssize_t pread64(int fd, void *mem, size_t n, off_t off)
{
	return pread(fd, mem, n, off);
}

START_TEST(what_the_disk_does_not_hold_is_seen)
{
	ctl_rebuild_res res = {0};
	struct ds_obj *o;
	ctl_status st;
	int dfd;

	o = get(TARGET);
	dfd = ds_obj_direct_fd(o);
	ds_obj_put(o);
	if (dfd < 0)
		return;
	put_bytes(SOURCE, 0, 's', MIB);
	ck_assert_int_eq(begin_as(7, 2), CTL_OK);
	lies = 2; /* the source's read, which nothing can tell, and the one back */
	log_set_level(LOG_L_ERROR);
	ck_assert(!pull_window(7, MIB, &st, &res));
	ck_assert_int_eq(st, CTL_IO);
	ck_assert_int_eq(lies, 0);
	pull_all(7);
	ck_assert(same_bytes());
}
END_TEST

/* Fills all of the target from the source. */
static int fill_all(uint32_t count)
{
	struct ds_fetch f = {.ft_data = fetch_mem};
	struct ds_obj *source = get(SOURCE), *target = get(TARGET);
	int fd = ds_obj_reopen(target), err = 0;

	while (!err && (!f.ft_to || f.ft_off < f.ft_size)) {
		f.ft_off = f.ft_to;
		ck_assert_int_eq(ds_fetch_read(source, count, &f), 0);
		err = ds_fill_write(target, fd, &f, session_mem);
	}
	if (!err)
		err = ds_fill_end(fd, f.ft_size);
	close(fd);
	ds_obj_put(source);
	ds_obj_put(target);
	return err;
}

/* What the target had is gone, in data, in holes and behind the end; also in parts of pages. */
START_TEST(fill_makes_the_object_the_source)
{
	for (uint32_t count = 1000; count <= DS_MAX_IO; count += count) {
		put_bytes(TARGET, rnd(MIB), 't', MIB);
		for (unsigned i = 0; i < 4; i++)
			put_bytes(SOURCE, rnd(MIB), (unsigned char)('a' + i), 1 + rnd(50000));
		ck_assert_int_eq(fill_all(count), 0);
		ck_assert(same_bytes());
	}
}
END_TEST

START_TEST(fill_sees_what_the_disk_does_not_hold)
{
	struct ds_obj *o = get(TARGET);
	int dfd = ds_obj_direct_fd(o);

	ds_obj_put(o);
	if (dfd < 0)
		return;
	put_bytes(SOURCE, 0, 's', 100000);
	lies = 2;
	log_set_level(LOG_L_ERROR);
	ck_assert_int_eq(fill_all(DS_MAX_IO), -EIO);
	ck_assert_int_eq(lies, 0);
	ck_assert_int_eq(fill_all(DS_MAX_IO), 0);
	ck_assert(same_bytes());
}
END_TEST

/* ---- who is watched ---- */

static ctl_span spans[CTL_SPANS_MAX];
static ctl_watch_res took;

static ctl_status watch_as(ctl_watch_step what, uint64_t session)
{
	ctl_watch_args a = {.step = what, .object = object(SOURCE), .session = session};
	struct step st = {.st_what = WATCH, .st_watch = &a, .st_spans = spans, .st_taken = &took};

	memset(&took, 0, sizeof(took));
	return step(&st);
}

static void is_span(unsigned i, uint64_t off, uint64_t len)
{
	ck_assert_uint_gt(took.spans.spans_len, i);
	ck_assert_uint_eq(spans[i].offset, off);
	ck_assert_uint_eq(spans[i].length, len);
}

START_TEST(what_is_changed_is_told_once)
{
	ck_assert_int_eq(watch_as(CTL_WATCH_TAKE, 1), CTL_BAD_SESSION);
	ck_assert_int_eq(watch_as(CTL_WATCH_BEGIN, 0), CTL_INVAL);
	ck_assert_int_eq(note_as(SOURCE, 0, 100), 0); /* before */
	ck_assert_int_eq(watch_as(CTL_WATCH_BEGIN, 1), CTL_OK);
	ck_assert_int_eq(watch_as(CTL_WATCH_TAKE, 1), CTL_OK);
	ck_assert_uint_eq(took.spans.spans_len, 0);
	ck_assert_int_eq(note_as(SOURCE, 5000, 10), 0);
	ck_assert_int_eq(note_as(SOURCE, 5010, 10), 0);
	ck_assert_int_eq(note_as(TARGET, 1, 1), 0); /* another's */
	ck_assert_int_eq(order_as((ctl_order){.type = CTL_TRUNCATE,
					      .number = 1,
					      .object = object(SOURCE),
					      .size = 9000,
					      .epoch = 1}),
			 CTL_OK);
	ck_assert_int_eq(watch_as(CTL_WATCH_TAKE, 2), CTL_BAD_SESSION);
	ck_assert_int_eq(watch_as(CTL_WATCH_TAKE, 1), CTL_OK);
	ck_assert_uint_eq(took.spans.spans_len, 2);
	is_span(0, 5000, 20);
	is_span(1, 9000, EXTENT_END - 9000);
	ck_assert_int_eq(watch_as(CTL_WATCH_TAKE, 1), CTL_OK);
	ck_assert_uint_eq(took.spans.spans_len, 0);
	/* Another session begins anew. */
	ck_assert_int_eq(note_as(SOURCE, 1, 1), 0);
	ck_assert_int_eq(watch_as(CTL_WATCH_BEGIN, 2), CTL_OK);
	ck_assert_int_eq(watch_as(CTL_WATCH_TAKE, 1), CTL_BAD_SESSION);
	ck_assert_int_eq(watch_as(CTL_WATCH_TAKE, 2), CTL_OK);
	ck_assert_uint_eq(took.spans.spans_len, 0);
	/* And ends, or goes with the object. */
	ck_assert_int_eq(watch_as(CTL_WATCH_END, 2), CTL_OK);
	ck_assert_int_eq(watch_as(CTL_WATCH_TAKE, 2), CTL_BAD_SESSION);
	ck_assert_int_eq(watch_as(CTL_WATCH_BEGIN, 3), CTL_OK);
	ck_assert_int_eq(
		order_as((ctl_order){
			.type = CTL_DELETE, .number = 2, .object = object(SOURCE), .epoch = 1}),
		CTL_OK);
	ck_assert_int_eq(watch_as(CTL_WATCH_TAKE, 3), CTL_BAD_SESSION);
}
END_TEST

/* What the session writes is not noted: whoever reads the copy for another layout is told so. */
START_TEST(a_copy_that_is_rebuilt_is_watched_no_more)
{
	ctl_rebuild_args a = {.object = object(SOURCE), .session = 7, .epoch = 5};
	ctl_rebuild_res res;
	struct step st = {.st_what = BEGIN, .st_args = &a, .st_res = &res};

	ck_assert_int_eq(watch_as(CTL_WATCH_BEGIN, 1), CTL_OK);
	ck_assert_int_eq(watch_as(CTL_WATCH_TAKE, 1), CTL_OK);
	ck_assert_int_eq(step(&st), CTL_OK);
	ck_assert_int_eq(watch_as(CTL_WATCH_TAKE, 1), CTL_BAD_SESSION);
}
END_TEST

START_TEST(many_changes_are_told_in_pieces_and_too_many_as_all)
{
	ck_assert_int_eq(watch_as(CTL_WATCH_BEGIN, 1), CTL_OK);
	for (unsigned i = 0; i < CTL_SPANS_MAX + 5; i++)
		ck_assert_int_eq(note_as(SOURCE, 100ull * i, 50), 0);
	ck_assert_int_eq(watch_as(CTL_WATCH_TAKE, 1), CTL_OK);
	ck_assert(took.more && took.spans.spans_len == CTL_SPANS_MAX);
	is_span(CTL_SPANS_MAX - 1, 100ull * (CTL_SPANS_MAX - 1), 50);
	ck_assert_int_eq(watch_as(CTL_WATCH_TAKE, 1), CTL_OK);
	ck_assert(!took.more && took.spans.spans_len == 5);
	is_span(0, 100ull * CTL_SPANS_MAX, 50);
	for (unsigned i = 0; i <= EXTENTS_MAX; i++)
		ck_assert_int_eq(note_as(SOURCE, 100ull * i, 50), 0);
	ck_assert_int_eq(watch_as(CTL_WATCH_TAKE, 1), CTL_OK);
	ck_assert_uint_eq(took.spans.spans_len, 1);
	is_span(0, 0, UINT64_MAX);
	ck_assert_int_eq(watch_as(CTL_WATCH_TAKE, 1), CTL_OK);
	ck_assert_uint_eq(took.spans.spans_len, 0);
}
END_TEST

/* ---- what any NFSv3 server answers ---- */

#define FOREIGN (4 * DS_PAGE + 100)

/* READ's results: at 8192, of a file that ends there or goes on. */
static int foreign(uint32_t len, uint32_t told, bool eof, const uint8_t *data, struct ds_fetch *f)
{
	struct xdr_out x;
	struct xdr_in in;
	uint8_t flat[FOREIGN + 64];
	size_t n;
	int err;

	xdr_out_init(&x, sizeof(flat));
	xdr_put_u32(&x, NFS3_OK);
	xdr_put_bool(&x, false);
	xdr_put_u32(&x, told);
	xdr_put_bool(&x, eof);
	xdr_put_opaque(&x, data, len);
	n = x.x_len;
	memcpy(flat, x.x_head, n);
	xdr_out_free(&x);
	xdr_in_init(&in, flat, n);
	f->ft_off = 8192;
	err = ds_pull_foreign(&in, FOREIGN, f);
	return err;
}

START_TEST(pages_of_zeros_are_holes)
{
	static uint8_t data[FOREIGN], got[DS_FETCH_MEM];
	struct ds_fetch f = {.ft_data = got};

	memset(data + DS_PAGE, 'a', DS_PAGE);
	data[3 * DS_PAGE + 7] = 'b';
	data[FOREIGN - 1] = 'c';
	ck_assert_int_eq(foreign(FOREIGN, FOREIGN, false, data, &f), 0);
	ck_assert_uint_eq(f.ft_to, 8192 + FOREIGN);
	ck_assert_uint_gt(f.ft_size, f.ft_to);
	ck_assert_uint_eq(f.ft_nparts, 2);
	ck_assert_uint_eq(f.ft_part[0].pt_off, 8192 + DS_PAGE);
	ck_assert_uint_eq(f.ft_part[0].pt_len, DS_PAGE);
	ck_assert_uint_eq(f.ft_part[1].pt_off, 8192 + 3 * DS_PAGE);
	ck_assert_uint_eq(f.ft_part[1].pt_len, DS_PAGE + 100);
	ck_assert_uint_eq(f.ft_len, 2 * DS_PAGE + 100);
	ck_assert_int_eq(got[DS_PAGE + 7], 'b');
	ck_assert_int_eq(got[f.ft_len - 1], 'c');
	/* The end, and answers that make no sense. */
	ck_assert_int_eq(foreign(100, 100, true, data, &f), 0);
	ck_assert_uint_eq(f.ft_size, 8192 + 100);
	ck_assert_uint_eq(f.ft_nparts, 0);
	ck_assert_int_eq(foreign(0, 0, true, data, &f), 0);
	ck_assert_uint_eq(f.ft_size, 8192);
	ck_assert_int_eq(foreign(0, 0, false, data, &f), -EPROTO);
	ck_assert_int_eq(foreign(100, 99, true, data, &f), -EPROTO);
}
END_TEST

static void add(Suite *s, const char *name, const TTest *const *tests)
{
	unit_add(s, name, setup_mem, teardown_mem, 120, tests);
}

static Suite *suite(void)
{
	Suite *s = suite_create("ds_rebuild");
	static const TTest *notes[4], *sessions[16], *windows[12], *watches[4];
	unsigned n = 0;

	notes[n++] = notes_are_a_set_of_bytes;
	notes[n++] = notes_are_bounded;
	add(s, "notes", notes);
	add(s, "answers", (const TTest *const[]){pages_of_zeros_are_holes, NULL});
	n = 0;
	sessions[n++] = flag_survives_and_the_session_does_not;
	sessions[n++] = a_write_without_room_for_a_note_fails_and_waits_for_nothing;
	sessions[n++] = a_noted_write_that_failed_keeps_the_object_out;
	sessions[n++] = a_noted_write_that_found_no_room_ends_as_a_full_disk;
	sessions[n++] = a_pull_after_a_noted_write_that_failed_writes_nothing_more;
	sessions[n++] = a_size_that_is_not_set_keeps_the_object_out;
	sessions[n++] = end_waits_for_writes_that_were_noted;
	sessions[n++] = another_session_needs_a_fence;
	sessions[n++] = a_rebuild_makes_what_is_lost_whole;
	sessions[n++] = repeated_begin_keeps_the_notes;
	sessions[n++] = steps_of_another_session_are_refused;
	sessions[n++] = delete_ends_the_session;
	sessions[n++] = sessions_are_bounded_and_the_oldest_goes;
	sessions[n++] = first_xattr_is_read;
	sessions[n++] = who_asks_of_a_flagged_object_is_told;
	add(s, "sessions", sessions);
	n = 0;
	windows[n++] = what_differs_is_written_and_what_is_the_same_is_not;
	windows[n++] = holes_stay_holes_and_become_holes;
	windows[n++] = longer_object_is_cut;
	windows[n++] = source_that_is_not_there_is_empty;
	windows[n++] = object_of_many_pieces_is_whole;
	windows[n++] = end_is_where_it_was_put_since_begin;
	windows[n++] = what_the_disk_does_not_hold_is_seen;
	windows[n++] = fill_makes_the_object_the_source;
	windows[n++] = fill_sees_what_the_disk_does_not_hold;
	add(s, "windows", windows);
	watches[0] = what_is_changed_is_told_once;
	watches[1] = many_changes_are_told_in_pieces_and_too_many_as_all;
	watches[2] = a_copy_that_is_rebuilt_is_watched_no_more;
	add(s, "watches", watches);
	return s;
}

int main(void)
{
	return unit_run(suite());
}
