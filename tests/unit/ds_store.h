/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ds_store.h - a data server's store for each test, with loops that do I/O on it, and shorthands
 * for what the tests do to it. Each test program has its own: all is static.
 */
#ifndef TESTS_UNIT_DS_STORE_H
#define TESTS_UNIT_DS_STORE_H
#include "base/log.h"
#include "ds/store/store_int.h"
#include "tests/unit/unit.h"
#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>
#include <urcu/compiler.h>

#define LOOPS 3
#define MIB   (1u << 20)

static char dir[64];
static struct ds_store *S;
#define F ds_store_fs_home(S)
static struct loop *loops[LOOPS];
static pthread_t threads[LOOPS];

static void *thread_run(void *arg)
{
	loop_run(arg);
	return NULL;
}

static struct ds_store_opts opts = {.so_dir = dir, .so_name = "", .so_tomb_keep_ms = 600000};

static int try_open(char *err)
{
	char text[512];
	int e = ds_store_open(&S, &opts, err ? err : text, 512);

	if (e)
		S = NULL;
	return e;
}

static void reopen(void)
{
	if (S)
		ds_store_close(S);
	S = NULL;
	ck_assert_int_eq(try_open(NULL), 0);
}

static void setup(void)
{
	static bool metrics;
	if (!metrics)
		ds_store_metrics_init();
	metrics = true;
	log_set_level(LOG_L_ERROR);
	ck_assert(scratch_make(dir, sizeof(dir), "ds_store"));
	for (unsigned i = 0; i < LOOPS; i++) {
		ck_assert_int_eq(loop_create(&loops[i], 256), 0);
		ck_assert_int_eq(pthread_create(&threads[i], NULL, thread_run, loops[i]), 0);
	}
	reopen();
}

static void teardown(void)
{
	for (unsigned i = 0; i < LOOPS; i++) {
		loop_stop(loops[i]);
		pthread_join(threads[i], NULL);
	}
	/* Until the last has ended they may post to each other. */
	for (unsigned i = 0; i < LOOPS; i++)
		loop_destroy(loops[i]);
	if (S)
		ds_store_close(S);
	scratch_remove(dir);
}

/* ---- I/O from the test's thread ---- */

static struct cap_object key(uint64_t ino)
{
	return (struct cap_object){.co_ino = ino, .co_fs = 1, .co_incarnation = 1};
}

/* What opening the object says. */
static inline int lookup(uint64_t ino, bool create)
{
	struct cap_object k = key(ino);
	struct ds_obj *o;
	int err = ds_obj_get(S, &k, create, &o);

	if (!err)
		ds_obj_put(o);
	return err;
}

struct io {
	struct loop_msg io_msg;
	struct ds_rw io_rw;
	struct ds_sync io_sync;
	enum { IO_READ, IO_WRITE, IO_SYNC } io_what;
	int io_res;
	uint64_t io_verf;
	sem_t io_done;
};

static void rw_done(struct ds_rw *rw, int res)
{
	struct io *io = caa_container_of(rw, struct io, io_rw);

	io->io_res = res;
	sem_post(&io->io_done);
}

static void sync_done(struct ds_sync *sy, int err)
{
	struct io *io = caa_container_of(sy, struct io, io_sync);

	io->io_res = err;
	io->io_verf = ds_store_verifier(S);
	sem_post(&io->io_done);
}

static void io_run(struct loop_msg *m)
{
	struct io *io = caa_container_of(m, struct io, io_msg);

	io->io_rw.rw_done = rw_done;
	io->io_sync.sy_done = sync_done;
	if (io->io_what == IO_SYNC)
		ds_obj_sync(&io->io_sync);
	else if (io->io_what == IO_WRITE)
		ds_obj_write(&io->io_rw);
	else
		ds_obj_read(&io->io_rw);
}

static void io_start(struct io *io, struct loop *l)
{
	sem_init(&io->io_done, 0, 0);
	io->io_msg.m_run = io_run;
	loop_post(l, &io->io_msg);
}

static int io_wait(struct io *io)
{
	while (sem_wait(&io->io_done))
		;
	return io->io_res;
}

static int do_rw(struct ds_obj *o, bool write, uint64_t off, void *mem, uint32_t n)
{
	struct io io = {.io_what = write ? IO_WRITE : IO_READ,
			.io_rw = {.rw_obj = o, .rw_off = off, .rw_len = n, .rw_mem = mem}};

	io_start(&io, loops[0]);
	return io_wait(&io);
}

/* A new object with one byte, in use. */
static inline struct ds_obj *written(uint64_t ino)
{
	struct cap_object k = key(ino);
	struct ds_obj *o;

	ck_assert_int_eq(ds_obj_get(S, &k, true, &o), 0);
	ck_assert_int_eq(do_rw(o, true, 0, "x", 1), 1);
	return o;
}

/* Writes one byte, making the object. */
static inline int touch(uint64_t ino)
{
	struct cap_object k = key(ino);
	struct ds_obj *o;
	int err = ds_obj_get(S, &k, true, &o);

	if (err)
		return err;
	err = do_rw(o, true, 0, "x", 1);
	ds_obj_put(o);
	return err == 1 ? 0 : err;
}
#endif
