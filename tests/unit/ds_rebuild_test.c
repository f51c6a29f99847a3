/* ds_rebuild_test.c - rebuilds in the store: notes, sessions, windows; and a pull that races with who changes both copies. */
#include "ds/peer.h"
#include "ds/store/rebuild_int.h"
#include "proto/nfs3.h"
#include "tests/unit/ds_store.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

static uint64_t seed = 1;

static uint32_t rnd(uint32_t n)
{
	static _Thread_local uint64_t x;
	static _Atomic uint64_t threads_seen;

	if (!x)
		x = (seed + atomic_fetch_add(&threads_seen, 1)) * 0x9e3779b97f4a7c15ull + 1;
	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return (uint32_t)(x >> 20) % n;
}

/* ---- notes ---- */

#define MODEL 2000u

START_TEST(notes_are_a_set_of_bytes)
{
	for (unsigned round = 0; round < 40; round++) {
		struct ds_notes ns = { 0 };
		bool model[MODEL] = { false };
		uint64_t below = 0;

		for (unsigned step = 0; step < 60; step++) {
			uint64_t from = rnd(MODEL), to = from + rnd(rnd(4) ? 30 : 600);
			struct ds_note gap;

			to = to > MODEL ? MODEL : to;
			if (rnd(8) == 0) {
				below = from > below ? from : below;
				ds_note_forget(&ns, below);
			} else if (to > below) {
				from = from > below ? from : below;
				ck_assert_int_eq(ds_note_add(&ns, from, to), 0);
				memset(model + from, true, to - from);
			}
			for (unsigned i = 0; i < ns.ns_n; i++) {
				ck_assert_uint_lt(ns.ns_note[i].n_from, ns.ns_note[i].n_to);
				ck_assert(!i || ns.ns_note[i - 1].n_to < ns.ns_note[i].n_from);
			}
			for (uint64_t at = below; at < MODEL; at++) {
				bool any = ds_note_gap(&ns, at, at + 1, &gap);

				ck_assert_msg(any != model[at], "round %u: byte %lu", round, (unsigned long)at);
			}
			for (uint64_t at = below; ds_note_gap(&ns, at, MODEL, &gap); at = gap.n_to)
				for (uint64_t b = at; b < gap.n_to; b++)
					ck_assert(model[b] == (b < gap.n_from));
		}
		ds_notes_free(&ns);
	}
}
END_TEST

START_TEST(notes_are_bounded)
{
	struct ds_notes ns = { 0 };
	struct ds_note gap;

	for (uint64_t i = 0; i < DS_NOTES_MAX; i++)
		ck_assert_int_eq(ds_note_add(&ns, 3 * i, 3 * i + 1), 0);
	ck_assert_int_eq(ds_note_add(&ns, 3 * DS_NOTES_MAX + 7, 3 * DS_NOTES_MAX + 8), -ENOBUFS);
	ck_assert(ds_note_gap(&ns, 3 * DS_NOTES_MAX + 7, 3 * DS_NOTES_MAX + 8, &gap));
	/* One that meets others needs no room. */
	ck_assert_int_eq(ds_note_add(&ns, 1, 3), 0);
	ck_assert_uint_eq(ns.ns_n, DS_NOTES_MAX - 1);
	ds_note_forget(&ns, 300);
	ck_assert_int_eq(ds_note_add(&ns, 3 * DS_NOTES_MAX + 7, DS_NOTE_END), 0);
	ck_assert(!ds_note_gap(&ns, 1ull << 60, DS_NOTE_END, &gap));
	ds_notes_free(&ns);
}
END_TEST

/* ---- sessions ---- */

enum { SOURCE = 5, TARGET = 6 };

static ctl_object object(uint64_t ino)
{
	return (ctl_object){ .ino = ino, .fs = 1, .incarnation = 1 };
}

static ctl_rebuild_args args(uint64_t session, uint32_t epoch)
{
	return (ctl_rebuild_args){ .object = object(TARGET), .session = session, .epoch = epoch };
}

struct step {
	struct ds_job st_job;
	const ctl_rebuild_args *st_args;
	ctl_rebuild_res *st_res;
	ctl_order *st_order;
	const ctl_watch_args *st_watch;
	ctl_span *st_spans;
	ctl_watch_res *st_taken;
	int st_what;
	ctl_status st_status;
	sem_t st_done;
};
enum { BEGIN, END, ABORT, ORDER, WATCH };

static void step_run(struct ds_job *j)
{
	struct step *st = caa_container_of(j, struct step, st_job);

	if (st->st_what == BEGIN)
		st->st_status = ds_rebuild_begin(S, st->st_args, st->st_res);
	else if (st->st_what == END)
		st->st_status = ds_rebuild_end(S, st->st_args);
	else if (st->st_what == ABORT)
		st->st_status = ds_rebuild_abort(S, st->st_args);
	else if (st->st_what == WATCH)
		st->st_status = ds_watch(S, st->st_watch, st->st_spans, st->st_taken);
	else if (ds_store_orders(S, 1, st->st_order, 1, &st->st_status) != CTL_OK)
		st->st_status = CTL_IO;
	sem_post(&st->st_done);
}

static ctl_status step(struct step *st)
{
	st->st_job.jb_run = step_run;
	sem_init(&st->st_done, 0, 0);
	ds_store_submit(S, DS_WORKER_ORDERS, &st->st_job);
	while (sem_wait(&st->st_done))
		;
	return st->st_status;
}

static ctl_status begin_as(uint64_t session, uint32_t epoch)
{
	ctl_rebuild_args a = args(session, epoch);
	ctl_rebuild_res res;
	struct step st = { .st_what = BEGIN, .st_args = &a, .st_res = &res };

	return step(&st);
}

static ctl_status end_as(uint64_t session)
{
	ctl_rebuild_args a = args(session, 0);
	struct step st = { .st_what = END, .st_args = &a };
	ctl_status status = ds_rebuild_sync(S, &a);

	return status == CTL_OK ? step(&st) : status;
}

static ctl_status abort_as(uint64_t session)
{
	ctl_rebuild_args a = args(session, 0);
	struct step st = { .st_what = ABORT, .st_args = &a };

	return step(&st);
}

static ctl_status order_as(ctl_order o)
{
	struct step st = { .st_what = ORDER, .st_order = &o };

	return step(&st);
}

static struct ds_obj *get(uint64_t ino)
{
	struct cap_object k = key(ino);
	struct ds_obj *o;

	ck_assert_int_eq(ds_obj_get(S, &k, true, &o), 0);
	return o;
}

static bool flagged(uint64_t ino)
{
	struct ds_obj *o = get(ino);
	bool yes = ds_obj_rebuilding(o);

	ds_obj_put(o);
	return yes;
}

static int note_as(uint64_t ino, uint64_t off, uint32_t len)
{
	struct ds_obj *o = get(ino);
	int err = ds_obj_note(o, off, len);

	ds_obj_put(o);
	return err;
}

static ctl_status stat_status(uint64_t ino)
{
	ctl_object o = object(ino);
	ctl_stat st;

	ds_store_stat(S, &o, &st);
	return st.status;
}

static uint8_t *fetch_mem, *session_mem;

static void setup_mem(void)
{
	setup();
	fetch_mem = aligned_alloc(DS_PAGE, DS_FETCH_MEM);
	session_mem = aligned_alloc(DS_PAGE, DS_SESSION_MEM);
}

static void teardown_mem(void)
{
	free(fetch_mem);
	free(session_mem);
	teardown();
}

/* One window. True: more. */
static bool pull_window(uint64_t session, uint32_t count, ctl_status *st, ctl_rebuild_res *res)
{
	ctl_rebuild_args a = args(session, 0);
	struct ds_session *ss = ds_session_get(S, &a);
	struct ds_fetch f = { .ft_data = fetch_mem };
	struct ds_obj *source;
	bool more;

	*st = CTL_BAD_SESSION;
	if (!ss)
		return false;
	source = get(SOURCE);
	f.ft_off = ds_session_cursor(ss);
	ck_assert_int_eq(ds_fetch_read(source, count, &f), 0);
	*st = ds_session_write(ss, &f, session_mem, res);
	more = *st == CTL_OK && ds_session_cursor(ss) != DS_NOTE_END;
	ds_obj_put(source);
	ds_session_put(ss);
	return more;
}

static ctl_rebuild_res pull_all(uint64_t session)
{
	ctl_rebuild_res res = { 0 };
	ctl_status st;

	while (pull_window(session, DS_MAX_IO, &st, &res))
		;
	ck_assert_int_eq(st, CTL_OK);
	return res;
}

static void put_bytes(uint64_t ino, uint64_t off, unsigned char byte, size_t n)
{
	struct ds_obj *o = get(ino);
	int fd = ds_obj_reopen(o);
	uint8_t *mem = malloc(n);

	memset(mem, byte, n);
	ck_assert_int_eq(pwrite(fd, mem, n, (off_t)off), (ssize_t)n);
	free(mem);
	close(fd);
	ds_obj_put(o);
}

/* Byte by byte; prints where. */
static bool same_bytes(void)
{
	struct ds_obj *o[2] = { get(SOURCE), get(TARGET) };
	uint8_t *mem[2];
	struct stat st[2];
	bool same;

	for (unsigned i = 0; i < 2; i++) {
		ck_assert_int_eq(ds_obj_stat(o[i], &st[i]), 0);
		mem[i] = malloc((size_t)st[i].st_size + 1);
		/* The page cache has no older ones: direct writes drop them. */
		ck_assert_int_eq(pread(o[i]->ob_fd, mem[i], (size_t)st[i].st_size, 0), st[i].st_size);
	}
	same = st[0].st_size == st[1].st_size && !memcmp(mem[0], mem[1], (size_t)st[0].st_size);
	if (!same && getenv("WEFT_TEST_VERBOSE")) {
		fprintf(stderr, "# sizes %ld %ld", (long)st[0].st_size, (long)st[1].st_size);
		for (long k = 0; k < st[0].st_size && k < st[1].st_size; k++)
			if (mem[0][k] != mem[1][k]) {
				fprintf(stderr, ", first at %ld: %02x %02x", k, mem[0][k], mem[1][k]);
				break;
			}
		fprintf(stderr, "\n");
	}
	for (unsigned i = 0; i < 2; i++) {
		free(mem[i]);
		ds_obj_put(o[i]);
	}
	return same;
}

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
	for (uint64_t i = 0; i < DS_NOTES_MAX; i++)
		ck_assert_int_eq(note_as(TARGET, 4096 * i, 1), 0);
	ck_assert_int_eq(note_as(TARGET, 4096ull * DS_NOTES_MAX, 1), -EIO);
	ck_assert_int_eq(note_as(TARGET, 1, 1), 0); /* meets another */
	ck_assert_int_eq(abort_as(7), CTL_OK);
	ck_assert_int_eq(note_as(TARGET, 0, 1), -EAGAIN);
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
	ck_assert_int_eq(order_as((ctl_order){ .type = CTL_FENCE, .number = 1, .object = object(TARGET), .epoch = 9 }), CTL_OK);
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
	ctl_rebuild_res res = { 0 };
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
	ck_assert_int_eq(order_as((ctl_order){ .type = CTL_DELETE, .number = 1, .object = object(TARGET) }), CTL_OK);
	ck_assert_uint_eq(ds_store_sessions(S), 0);
	ck_assert_int_eq(end_as(7), CTL_BAD_SESSION);
	ck_assert_int_eq(begin_as(8, 3), CTL_NOENT);
	ck_assert_uint_eq(ds_store_open_objects(S), 0);
}
END_TEST

START_TEST(sessions_are_bounded_and_the_oldest_goes)
{
	for (unsigned i = 0; i < 257; i++) {
		ctl_rebuild_args a = { .object = object(100 + i), .session = 7, .epoch = 2 };
		ctl_rebuild_res res;
		struct step st = { .st_what = BEGIN, .st_args = &a, .st_res = &res };

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
	uint8_t v1[16] = { 1, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 5 };
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
	ctl_seek_args sk = { .object = object(TARGET), .unit = MIB, .stripes = 1 };
	ctl_span sp = { .length = 10 };
	ctl_change_args ch = { .instance_epoch = 1, .type = CTL_CHANGE_COPY, .object = object(SOURCE), .source = object(TARGET), .epoch = 9 };
	ctl_change_res cr;
	ctl_seek_res sr;
	struct ds_obj *o;

	ds_obj_put(written(SOURCE));
	ch.spans.spans_len = 1;
	ch.spans.spans_val = &sp;
	ck_assert_int_eq(begin_as(7, 2), CTL_OK);
	ck_assert_int_eq(ds_store_seek(S, &sk, &sr), CTL_REBUILDING);
	ck_assert_int_eq(ds_store_change(S, &ch, &cr), CTL_REBUILDING);
	/* As a change's target it needs the session. */
	ch.object = object(TARGET);
	ch.source = object(SOURCE);
	ck_assert_int_eq(ds_store_change(S, &ch, &cr), CTL_OK);
	ck_assert_int_eq(abort_as(7), CTL_OK);
	ck_assert_int_eq(ds_store_change(S, &ch, &cr), CTL_REBUILDING);
	o = get(TARGET);
	ck_assert_int_eq(ds_obj_set_size(o, 5), -EAGAIN);
	ds_obj_put(o);
	/* An order is done all the same: the next session fetches all. */
	ck_assert_int_eq(order_as((ctl_order){ .type = CTL_TRUNCATE, .number = 1, .object = object(TARGET), .size = 4 }), CTL_OK);
	ck_assert_int_eq(stat_status(TARGET), CTL_REBUILDING);
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
	struct ds_fetch f = { .ft_data = fetch_mem };
	ctl_rebuild_args a = args(7, 2);
	ctl_rebuild_res res = { 0 };
	struct ds_session *ss;

	put_bytes(TARGET, 0, 'x', 5000);
	ck_assert_int_eq(begin_as(7, 2), CTL_OK);
	ss = ds_session_get(S, &a);
	ck_assert_int_eq(ds_fetch_read(NULL, MIB, &f), 0);
	ck_assert_int_eq(ds_session_write(ss, &f, session_mem, &res), CTL_OK);
	ck_assert_uint_eq(ds_session_cursor(ss), DS_NOTE_END);
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
	ctl_order ext = { .type = CTL_EXTEND, .object = object(TARGET), .size = 9000, .number = 1 };
	ctl_order cut = { .type = CTL_TRUNCATE, .object = object(TARGET), .size = 300, .number = 2 };

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
	ctl_rebuild_res res = { 0 };
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

/* ---- the race ---- */

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
		nanosleep(&(struct timespec){ .tv_nsec = (long)rnd(300000) }, NULL);
}

static void write_one(struct ds_obj *o, unsigned loop, uint64_t off, uint8_t *mem, uint32_t n)
{
	struct io io = { .io_what = IO_WRITE, .io_rw = { .rw_obj = o, .rw_off = off, .rw_len = n, .rw_mem = mem } };
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

/* To both, in any order, with a pause between. Its own slots: who writes the same bytes at the same time gets anything. */
static void *writer(void *arg)
{
	unsigned me = (unsigned)(uintptr_t)arg;
	uint8_t *mem = aligned_alloc(DS_PAGE, (ra.ra_slot + 2 * DS_PAGE) & ~(DS_PAGE - 1));
	struct ds_obj *o[2] = { get(SOURCE), get(TARGET) };

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
	ctl_span sp = { .offset = off, .length = n };
	ctl_change_args a = { .instance_epoch = 1, .type = CTL_CHANGE_DEALLOCATE, .epoch = 1u << 30 };
	ctl_change_res res;

	a.spans.spans_len = 1;
	a.spans.spans_val = &sp;
	for (unsigned i = 0; i < 2; i++) {
		a.object = object(i == first ? SOURCE : TARGET);
		ck_assert_int_eq(ds_store_change(S, &a, &res), CTL_OK);
		nap();
	}
}

/* What the metadata server does, with nobody writing. */
static void *orderer(void *arg)
{
	(void)arg;
	while (!ra.ra_stop) {
		uint64_t at = rnd(ra.ra_slot * ra.ra_slots), number = atomic_fetch_add(&ra.ra_number, 1);
		unsigned what = rnd(3), first = rnd(2);

		nanosleep(&(struct timespec){ .tv_nsec = (long)rnd(6000000) }, NULL);
		pthread_rwlock_wrlock(&ra.ra_lock);
		if (what == 2) {
			punch_both(at, 1 + rnd(100000), first);
		} else {
			for (unsigned i = 0; i < 2; i++) {
				ctl_order o = { .type = what ? CTL_EXTEND : CTL_TRUNCATE, .number = number, .size = at };

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
		put_bytes(SOURCE, rnd(ra.ra_slot * ra.ra_slots), (unsigned char)rnd(256), 1 + rnd(200000));
		if (rnd(2))
			put_bytes(TARGET, rnd(ra.ra_slot * ra.ra_slots), (unsigned char)rnd(256), 1 + rnd(200000));
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
	static const uint32_t slots[] = { 700, 5000, 4096, 70000, 300000 };
	ctl_rebuild_res res = { 0 };
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

/* ---- who is watched ---- */

static ctl_span spans[CTL_SPANS_MAX];
static ctl_watch_res took;

static ctl_status watch_as(ctl_watch_step what, uint64_t session)
{
	ctl_watch_args a = { .step = what, .object = object(SOURCE), .session = session };
	struct step st = { .st_what = WATCH, .st_watch = &a, .st_spans = spans, .st_taken = &took };

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
	ck_assert_int_eq(order_as((ctl_order){ .type = CTL_TRUNCATE, .number = 1, .object = object(SOURCE), .size = 9000, .epoch = 1 }), CTL_OK);
	ck_assert_int_eq(watch_as(CTL_WATCH_TAKE, 2), CTL_BAD_SESSION);
	ck_assert_int_eq(watch_as(CTL_WATCH_TAKE, 1), CTL_OK);
	ck_assert_uint_eq(took.spans.spans_len, 2);
	is_span(0, 5000, 20);
	is_span(1, 9000, DS_NOTE_END - 9000);
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
	ck_assert_int_eq(order_as((ctl_order){ .type = CTL_DELETE, .number = 2, .object = object(SOURCE), .epoch = 1 }), CTL_OK);
	ck_assert_int_eq(watch_as(CTL_WATCH_TAKE, 3), CTL_BAD_SESSION);
}
END_TEST

/* What the session writes is not noted: whoever reads the copy for another layout is told so. */
START_TEST(a_copy_that_is_rebuilt_is_watched_no_more)
{
	ctl_rebuild_args a = { .object = object(SOURCE), .session = 7, .epoch = 5 };
	ctl_rebuild_res res;
	struct step st = { .st_what = BEGIN, .st_args = &a, .st_res = &res };

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
	for (unsigned i = 0; i <= DS_NOTES_MAX; i++)
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
	struct ds_fetch f = { .ft_data = got };

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
	TCase *tc = tcase_create(name);

	tcase_add_checked_fixture(tc, setup_mem, teardown_mem);
	tcase_set_timeout(tc, 120);
	for (; *tests; tests++)
		tcase_add_test(tc, *tests);
	suite_add_tcase(s, tc);
}

static Suite *suite(void)
{
	Suite *s = suite_create("ds_rebuild");
	static const TTest *notes[4], *sessions[12], *windows[12], *races_[4], *watches[4];
	unsigned n = 0;

	notes[n++] = notes_are_a_set_of_bytes;
	notes[n++] = notes_are_bounded;
	add(s, "notes", notes);
	add(s, "answers", (const TTest *const[]){ pages_of_zeros_are_holes, NULL });
	n = 0;
	sessions[n++] = flag_survives_and_the_session_does_not;
	sessions[n++] = a_write_without_room_for_a_note_fails_and_waits_for_nothing;
	sessions[n++] = another_session_needs_a_fence;
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
	add(s, "windows", windows);
	watches[0] = what_is_changed_is_told_once;
	watches[1] = many_changes_are_told_in_pieces_and_too_many_as_all;
	watches[2] = a_copy_that_is_rebuilt_is_watched_no_more;
	add(s, "watches", watches);
	n = 0;
	races_[n++] = pull_and_writes_end_equal;
	races_[n++] = pull_writes_and_orders_end_equal;
	races_[n++] = pull_without_notes_does_not;
	add(s, "races", races_);
	return s;
}

int main(void)
{
	return unit_run(suite());
}
