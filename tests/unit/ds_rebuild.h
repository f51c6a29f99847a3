/* SPDX-License-Identifier: Apache-2.0 */
/* ds_rebuild.h - rebuilds in the store of a test: the steps of a session, on a thread for orders,
 * and pulls from one object to another. */
#ifndef TESTS_UNIT_DS_REBUILD_H
#define TESTS_UNIT_DS_REBUILD_H
#include "ds/store/rebuild_int.h"
#include "tests/unit/ds_store.h"

static uint64_t seed = 1;

static inline uint32_t rnd(uint32_t n)
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

enum { SOURCE = 5, TARGET = 6 };

static inline ctl_object object(uint64_t ino)
{
	return (ctl_object){.ino = ino, .fs = 1, .incarnation = 1};
}

static inline ctl_rebuild_args args(uint64_t session, uint32_t epoch)
{
	return (ctl_rebuild_args){.object = object(TARGET), .session = session, .epoch = epoch};
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

static inline void step_run(struct ds_job *j)
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
	else if (ds_store_orders(F, 1, st->st_order, 1, &st->st_status) != CTL_OK)
		st->st_status = CTL_IO;
	sem_post(&st->st_done);
}

static inline ctl_status step(struct step *st)
{
	st->st_job.jb_run = step_run;
	sem_init(&st->st_done, 0, 0);
	ds_store_submit(S, DS_WORKER_ORDERS, &st->st_job);
	while (sem_wait(&st->st_done))
		;
	return st->st_status;
}

static inline ctl_status begin_as(uint64_t session, uint32_t epoch)
{
	ctl_rebuild_args a = args(session, epoch);
	ctl_rebuild_res res;
	struct step st = {.st_what = BEGIN, .st_args = &a, .st_res = &res};

	return step(&st);
}

static inline ctl_status end_as(uint64_t session)
{
	ctl_rebuild_args a = args(session, 0);
	struct step st = {.st_what = END, .st_args = &a};
	ctl_status status = ds_rebuild_sync(S, &a);

	return status == CTL_OK ? step(&st) : status;
}

static inline ctl_status abort_as(uint64_t session)
{
	ctl_rebuild_args a = args(session, 0);
	struct step st = {.st_what = ABORT, .st_args = &a};

	return step(&st);
}

static inline ctl_status order_as(ctl_order o)
{
	struct step st = {.st_what = ORDER, .st_order = &o};

	return step(&st);
}

static inline struct ds_obj *get(uint64_t ino)
{
	struct cap_object k = key(ino);
	struct ds_obj *o;

	ck_assert_int_eq(ds_obj_get(S, &k, true, &o), 0);
	return o;
}

static inline bool flagged(uint64_t ino)
{
	struct ds_obj *o = get(ino);
	bool yes = ds_obj_rebuilding(o);

	ds_obj_put(o);
	return yes;
}

static inline int note_as(uint64_t ino, uint64_t off, uint32_t len)
{
	struct ds_obj *o = get(ino);
	int err = ds_obj_note(o, off, len);

	ds_obj_put(o);
	return err;
}

static inline ctl_status stat_status(uint64_t ino)
{
	ctl_object o = object(ino);
	ctl_stat st;

	ds_store_stat(S, &o, &st);
	return st.status;
}

static uint8_t *fetch_mem, *session_mem;

static inline void setup_mem(void)
{
	setup();
	fetch_mem = aligned_alloc(DS_PAGE, DS_FETCH_MEM);
	session_mem = aligned_alloc(DS_PAGE, DS_SESSION_MEM);
}

static inline void teardown_mem(void)
{
	free(fetch_mem);
	free(session_mem);
	teardown();
}

/* One window. True: more. */
static inline bool pull_window(uint64_t session, uint32_t count, ctl_status *st,
			       ctl_rebuild_res *res)
{
	ctl_rebuild_args a = args(session, 0);
	struct ds_session *ss = ds_session_get(S, &a);
	struct ds_fetch f = {.ft_data = fetch_mem};
	struct ds_obj *source;
	bool more;

	*st = CTL_BAD_SESSION;
	if (!ss)
		return false;
	source = get(SOURCE);
	f.ft_off = ds_session_cursor(ss);
	ck_assert_int_eq(ds_fetch_read(source, count, &f), 0);
	*st = ds_session_write(ss, &f, session_mem, res);
	more = *st == CTL_OK && ds_session_cursor(ss) != EXTENT_END;
	ds_obj_put(source);
	ds_session_put(ss);
	return more;
}

static inline ctl_rebuild_res pull_all(uint64_t session)
{
	ctl_rebuild_res res = {0};
	ctl_status st;

	while (pull_window(session, DS_MAX_IO, &st, &res))
		;
	ck_assert_int_eq(st, CTL_OK);
	return res;
}

static inline void put_bytes(uint64_t ino, uint64_t off, unsigned char byte, size_t n)
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
static inline bool same_bytes(void)
{
	struct ds_obj *o[2] = {get(SOURCE), get(TARGET)};
	uint8_t *mem[2];
	struct stat st[2];
	bool same;

	for (unsigned i = 0; i < 2; i++) {
		ck_assert_int_eq(ds_obj_stat(o[i], &st[i]), 0);
		mem[i] = malloc((size_t)st[i].st_size + 1);
		/* The page cache has no older ones: direct writes drop them. */
		ck_assert_int_eq(pread(o[i]->ob_fd, mem[i], (size_t)st[i].st_size, 0),
				 st[i].st_size);
	}
	same = st[0].st_size == st[1].st_size && !memcmp(mem[0], mem[1], (size_t)st[0].st_size);
	if (!same && getenv("WEFT_TEST_VERBOSE")) {
		fprintf(stderr, "# sizes %ld %ld", (long)st[0].st_size, (long)st[1].st_size);
		for (long k = 0; k < st[0].st_size && k < st[1].st_size; k++)
			if (mem[0][k] != mem[1][k]) {
				fprintf(stderr, ", first at %ld: %02x %02x", k, mem[0][k],
					mem[1][k]);
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
#endif
