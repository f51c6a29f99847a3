/* ds_store_test.c - the data server's store, without the network: files, journal, orders, range locks, syncs that fail. */
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
static struct loop *loops[LOOPS];
static pthread_t threads[LOOPS];

static void *thread_run(void *arg)
{
	loop_run(arg);
	return NULL;
}

static struct ds_store_opts opts = { .so_dir = dir, .so_name = "", .so_tomb_keep_ms = 600000 };

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
	return (struct cap_object){ .co_ino = ino, .co_fs = 1, .co_incarnation = 1 };
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
	struct io io = { .io_what = write ? IO_WRITE : IO_READ,
			 .io_rw = { .rw_obj = o, .rw_off = off, .rw_len = n, .rw_mem = mem } };

	io_start(&io, loops[0]);
	return io_wait(&io);
}

static int do_sync(struct ds_obj *o, uint64_t *verf)
{
	struct io io = { .io_what = IO_SYNC, .io_sync.sy_obj = o };

	io_start(&io, loops[0]);
	io_wait(&io);
	if (verf)
		*verf = io.io_verf;
	return io.io_res;
}

/* Writes one byte, making the object. */
static int touch(uint64_t ino)
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

static int lookup(uint64_t ino)
{
	struct cap_object k = key(ino);
	struct ds_obj *o;
	int err = ds_obj_get(S, &k, false, &o);

	if (!err)
		ds_obj_put(o);
	return err;
}

static ctl_status order_at(uint64_t instance, ctl_order_type type, uint64_t ino, uint64_t number, uint64_t arg)
{
	ctl_order o = { .type = type, .number = number, .object = { .ino = ino, .fs = 1, .incarnation = 1 } };
	ctl_status res = CTL_INVAL, st;

	o.size = arg;
	o.epoch = type == CTL_FENCE ? (uint32_t)arg : 0;
	o.client = (uint32_t)arg;
	st = ds_store_orders(S, instance, &o, 1, &res);
	return st == CTL_OK ? res : st;
}

static ctl_status order(ctl_order_type type, uint64_t ino, uint64_t number, uint64_t arg)
{
	return order_at(1, type, ino, number, arg);
}

static void path_of(uint64_t ino, char path[256])
{
	struct cap_object k = key(ino);
	char p[OBJPATH_MAX];

	objpath(&k, p);
	snprintf(path, 256, "%s/%s", dir, p);
}

static bool on_disk(uint64_t ino)
{
	char path[256];

	path_of(ino, path);
	return access(path, F_OK) == 0;
}

static unsigned segments(char *last)
{
	char cmd[128], line[64];
	unsigned n = 0;
	FILE *f;

	snprintf(cmd, sizeof cmd, "ls %s/journal", dir);
	f = popen(cmd, "r");
	while (fgets(line, sizeof line, f)) {
		line[strcspn(line, "\n")] = 0;
		if (last)
			sprintf(last, "%s/journal/%s", dir, line);
		n++;
	}
	pclose(f);
	return n;
}

/* ---- the folder ---- */

START_TEST(identity_is_made_once)
{
	struct ds_identity a = ds_store_identity(S), b;
	uint8_t cluster[16] = "some cluster";

	ck_assert(*a.id_name);
	ck_assert_uint_eq(a.id_fs, 0);
	ck_assert_int_eq(ds_store_set_cluster(S, cluster, 9), 0);
	opts.so_name = "renamed";
	reopen();
	b = ds_store_identity(S);
	ck_assert(!memcmp(a.id_uuid, b.id_uuid, 16));
	ck_assert(!memcmp(b.id_cluster, cluster, 16));
	ck_assert_uint_eq(b.id_fs, 9);
	ck_assert_str_eq(b.id_name, "renamed");
	opts.so_name = "";
	reopen();
	ck_assert_str_eq(ds_store_identity(S).id_name, "renamed");
}
END_TEST

START_TEST(store_in_use_is_told)
{
	struct ds_store *mine = S;
	char err[512];

	ck_assert_int_eq(try_open(err), -EBUSY);
	ck_assert_ptr_nonnull(strstr(err, "another weft-ds"));
	S = mine;
	ck_assert_int_eq(touch(1), 0);
}
END_TEST

static void rewrite_identity(const char *text)
{
	char path[128];
	FILE *f;

	ds_store_close(S);
	S = NULL;
	snprintf(path, sizeof path, "%s/identity", dir);
	f = fopen(path, "w");
	fputs(text, f);
	fclose(f);
}

START_TEST(other_version_and_foreign_files_are_refused)
{
	char err[512];

	rewrite_identity("weft-ds store\nversion=2\nuuid=00112233445566778899aabbccddeeff\nname=a\n");
	ck_assert_int_eq(try_open(err), -EPROTONOSUPPORT);
	ck_assert_ptr_nonnull(strstr(err, "version 2"));
	ck_assert_int_eq(try_open(err), -EPROTONOSUPPORT);
	S = NULL;
	for (int i = 0; i < 3; i++) {
		static const char *const bad[] = { "", "something else\n", "weft-ds store\nversion=1\nuuid=zz\n" };
		char path[128];
		FILE *f;

		snprintf(path, sizeof path, "%s/identity", dir);
		f = fopen(path, "w");
		fputs(bad[i], f);
		fclose(f);
		ck_assert_int_eq(try_open(err), -EINVAL);
		ck_assert_ptr_nonnull(strstr(err, "identity"));
	}
}
END_TEST

/* ---- the journal ---- */

START_TEST(torn_tail_of_the_journal_costs_nothing_confirmed)
{
	char last[128];
	FILE *f;

	ck_assert_int_eq(touch(1), 0);
	ck_assert_int_eq(order_at(4, CTL_DELETE, 1, 7, 0), CTL_OK);
	ck_assert_int_eq(order_at(4, CTL_BAR_CLIENT, 0, 8, 33), CTL_OK);
	ds_store_close(S);
	S = NULL;
	ck_assert_uint_eq(segments(last), 1);
	f = fopen(last, "a");
	fputs("\1\2\1\1torn torn torn torn torn torn torn torn torn torn", f);
	fclose(f);
	reopen();
	ck_assert_int_eq(lookup(1), -ESTALE);
	ck_assert(ds_store_barred(S, 33));
	ck_assert(!ds_store_barred(S, 34));
	ck_assert(!ds_store_instance_ok(S, 3));
	ck_assert(ds_store_instance_ok(S, 4));
	ck_assert_uint_ge(ds_store_order_high(S), 8);
	ck_assert_uint_eq(segments(NULL), 1);
}
END_TEST

/* The unlink of a confirmed delete may be lost in a crash of the machine; the tombstone is not. */
START_TEST(delete_that_the_disk_forgot_is_done_again)
{
	char path[256];

	ck_assert_int_eq(touch(1), 0);
	ck_assert_int_eq(order(CTL_DELETE, 1, 7, 0), CTL_OK);
	ds_store_close(S);
	S = NULL;
	path_of(1, path);
	close(open(path, O_CREAT | O_WRONLY, 0600));
	ck_assert(on_disk(1));
	reopen();
	ck_assert(!on_disk(1));
	ck_assert_int_eq(lookup(1), -ESTALE);
}
END_TEST

START_TEST(tombstone_ends_with_its_time)
{
	opts.so_tomb_keep_ms = 50;
	reopen();
	ck_assert_int_eq(touch(1), 0);
	ck_assert_int_eq(order(CTL_DELETE, 1, 7, 0), CTL_OK);
	ck_assert_int_eq(touch(1), -ESTALE);
	nanosleep(&(struct timespec){ .tv_nsec = 60000000 }, NULL);
	ck_assert_int_eq(order(CTL_DELETE, 2, 8, 0), CTL_OK);
	ck_assert_int_eq(lookup(1), -ENOENT);
	ck_assert_int_eq(lookup(2), -ESTALE);
}
END_TEST

START_TEST(journal_is_turned_when_it_has_grown)
{
	enum { BATCHES = 3000, N = CTL_BATCH_MAX };
	static ctl_order o[N];
	static ctl_status res[N];
	char first[128], last[128];

	opts.so_tomb_keep_ms = 0;
	reopen();
	ck_assert_int_eq(order(CTL_BAR_CLIENT, 0, 1, 33), CTL_OK);
	segments(first);
	for (unsigned b = 0, n = 2; b < BATCHES; b++) {
		for (unsigned i = 0; i < N; i++, n++)
			o[i] = (ctl_order){ .type = CTL_DELETE, .number = n, .object = { .ino = n, .fs = 1 } };
		ck_assert_int_eq(ds_store_orders(S, 1, o, N, res), CTL_OK);
		ck_assert_int_eq(res[0], CTL_OK);
		segments(last);
		if (strcmp(first, last))
			break;
	}
	ck_assert_str_ne(first, last);
	ck_assert_uint_eq(segments(NULL), 1);
	opts.so_tomb_keep_ms = 600000;
	reopen();
	ck_assert(ds_store_barred(S, 33));
}
END_TEST

START_TEST(failed_append_fails_the_order_and_is_mended)
{
	int keep = dup(S->s_journal.j_fd), rd = open("/dev/null", O_RDONLY);

	ck_assert_int_eq(touch(1), 0);
	ck_assert_int_eq(touch(2), 0);
	ck_assert_int_eq(order(CTL_FENCE, 3, 1, 1), CTL_OK); /* the marks are in */
	dup2(rd, S->s_journal.j_fd);
	log_set_level((enum log_level)-1);
	ck_assert_int_eq(order(CTL_DELETE, 1, 2, 0), CTL_IO);
	log_set_level(LOG_L_ERROR);
	/* The next one begins a new segment with all that counts. */
	ck_assert_int_eq(order(CTL_DELETE, 2, 3, 0), CTL_OK);
	reopen();
	ck_assert_int_eq(lookup(1), -ESTALE);
	ck_assert_int_eq(lookup(2), -ESTALE);
	close(keep);
	close(rd);
}
END_TEST

/* ---- objects ---- */

static uint64_t writes_of(uint64_t ino)
{
	ctl_object obj = { .ino = ino, .fs = 1, .incarnation = 1 };
	ctl_stat st;

	ds_store_stat(S, &obj, &st);
	ck_assert_int_eq(st.status, CTL_OK);
	return st.writes;
}

START_TEST(objects_in_memory_are_bounded_and_keep_their_write_counts)
{
	enum { N = 2000 };
	uint64_t last = 0, now;

	opts.so_max_open = 64;
	reopen();
	for (int round = 0; round < 3; round++) {
		for (unsigned i = 0; i < 300; i++) {
			ck_assert_int_eq(touch(1), 0);
			now = writes_of(1);
			ck_assert_uint_ne(now, last);
			last = now;
		}
		for (unsigned i = 2; i < N; i++)
			ck_assert_int_eq(touch(i), 0);
		/* The closing of those with unsynced data is the worker's, which may lag. */
		for (int i = 0; i < 5000 && ds_store_open_objects(S) > 64; i++)
			nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
		ck_assert_uint_le(ds_store_open_objects(S), 64);
		/* dropped and loaded again */
		ck_assert_uint_eq(writes_of(1), last);
	}
	reopen();
	ck_assert_uint_eq(writes_of(1), last);
	ck_assert_int_eq(touch(1), 0);
	ck_assert_uint_ne(writes_of(1), last);
	opts.so_max_open = 0;
}
END_TEST

static void counted(const char *path, const char *run)
{
	FILE *f = fopen(path, "r+");
	unsigned n;

	ck_assert(f && fscanf(f, "%u", &n) == 1);
	ck_assert_ptr_nonnull(freopen(path, "w", f));
	fprintf(f, "%u %s\n", n, run);
	fclose(f);
}

START_TEST(orders_leave_write_counts)
{
	ctl_order cut = { .type = CTL_TRUNCATE, .number = 1, .object = { .ino = 1, .fs = 1, .incarnation = 1 }, .size = 0, .epoch = 4 };
	ctl_status result;
	uint64_t last;

	ck_assert_int_eq(touch(1), 0);
	last = writes_of(1);
	for (cut.number = 1; cut.number < 4; cut.number++) {
		cut.size = 1000 * (cut.number - 1);
		ck_assert_int_eq(ds_store_orders(S, 1, &cut, 1, &result), CTL_OK);
		ck_assert_int_eq(result, CTL_OK);
		ck_assert_uint_eq(writes_of(1), last);
		reopen();
		ck_assert_uint_eq(writes_of(1), last);
	}
}
END_TEST

/* After a crash of the machine nobody knows whether an mtime on the disk is from before the last write: no count may be as before. */
START_TEST(a_crash_of_the_machine_makes_every_write_count_new)
{
	ctl_order fence = { .type = CTL_FENCE, .number = 1, .object = { .ino = 2, .fs = 1, .incarnation = 1 }, .epoch = 4 };
	ctl_status result;
	char path[256], id[40];
	uint64_t last;
	FILE *f;

	ck_assert_int_eq(touch(1), 0);
	ck_assert_int_eq(ds_store_orders(S, 1, &fence, 1, &result), CTL_OK);
	ck_assert_int_eq(result, CTL_OK);
	/* made by an order, never written */
	ck_assert_uint_eq(writes_of(2), 0);
	last = writes_of(1);
	reopen();
	ck_assert_uint_eq(writes_of(1), last);
	ck_assert_uint_eq(writes_of(2), 0);
	/* killed, and the machine goes on */
	ds_store_close(S);
	S = NULL;
	snprintf(path, sizeof path, "%s/counted", opts.so_dir);
	f = fopen("/proc/sys/kernel/random/boot_id", "r");
	ck_assert(f && fscanf(f, "%39s", id) == 1);
	fclose(f);
	counted(path, id);
	reopen();
	ck_assert_uint_eq(writes_of(1), last);
	ds_store_close(S);
	S = NULL;
	counted(path, "another-run");
	reopen();
	ck_assert_uint_ne(writes_of(1), last);
	ck_assert_uint_eq(writes_of(2), 0);
	last = writes_of(1);
	reopen();
	ck_assert_uint_eq(writes_of(1), last);
}
END_TEST

START_TEST(unknown_version_of_an_xattr_is_an_error)
{
	struct ds_meta m = { .m_version = 9 };
	char path[256];

	ck_assert_int_eq(touch(1), 0);
	reopen();
	path_of(1, path);
	ck_assert_int_eq(setxattr(path, DS_XATTR, &m, sizeof m, 0), 0);
	log_set_level((enum log_level)-1);
	ck_assert_int_eq(lookup(1), -EIO);
	log_set_level(LOG_L_ERROR);
}
END_TEST

START_TEST(object_deleted_while_used_is_not_written_elsewhere)
{
	struct cap_object k = key(1);
	struct ds_obj *o;

	ck_assert_int_eq(ds_obj_get(S, &k, true, &o), 0);
	ck_assert_int_eq(do_rw(o, true, 0, "x", 1), 1);
	ck_assert_int_eq(order(CTL_DELETE, 1, 1, 0), CTL_OK);
	ck_assert(ds_obj_deleted(o));
	ck_assert_int_eq(do_rw(o, true, 5, "y", 1), 1);
	ck_assert(!on_disk(1));
	ds_obj_put(o);
	ck_assert_int_eq(lookup(1), -ESTALE);
}
END_TEST

/* ---- orders ---- */

START_TEST(order_with_a_failed_one_before_it_waits)
{
	ctl_order o[3] = {
		{ .type = CTL_TRUNCATE, .number = 5, .object = { .ino = 1, .fs = 1, .incarnation = 1 }, .size = UINT64_MAX },
		{ .type = CTL_TRUNCATE, .number = 6, .object = { .ino = 1, .fs = 1, .incarnation = 1 }, .size = 1 },
		{ .type = CTL_TRUNCATE, .number = 7, .object = { .ino = 2, .fs = 1, .incarnation = 1 }, .size = 1 },
	};
	ctl_status res[3];

	ck_assert_int_eq(ds_store_orders(S, 1, o, 3, res), CTL_OK);
	ck_assert_int_eq(res[0], CTL_INVAL);
	ck_assert_int_eq(res[1], CTL_INVAL);
	ck_assert_int_eq(res[2], CTL_OK);
	/* so that the first can still be done */
	o[0].size = 3;
	ck_assert_int_eq(ds_store_orders(S, 1, o, 2, res), CTL_OK);
	ck_assert_int_eq(res[0], CTL_OK);
	ck_assert_int_eq(res[1], CTL_OK);
}
END_TEST

START_TEST(orders_without_any_raise_the_instance)
{
	ck_assert_int_eq(ds_store_orders(S, 12, NULL, 0, NULL), CTL_OK);
	reopen();
	ck_assert_int_eq(order_at(11, CTL_FENCE, 1, 1, 1), CTL_STALE_INSTANCE);
	ck_assert_int_eq(order_at(12, CTL_FENCE, 1, 1, 1), CTL_OK);
}
END_TEST

struct drainer {
	struct ds_job dr_job;
	_Atomic bool dr_done;
};

static void drain_job(struct ds_job *j)
{
	struct drainer *d = caa_container_of(j, struct drainer, dr_job);

	ds_write_drain(S);
	atomic_store(&d->dr_done, true);
}

START_TEST(drain_waits_for_brackets_before_it_only)
{
	struct drainer d[3] = { 0 };

	for (int i = 0; i < 3; i++) {
		unsigned token = ds_write_begin(S), later;

		d[i].dr_job.jb_run = drain_job;
		ds_store_submit(S, DS_WORKER_ORDERS, &d[i].dr_job);
		nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
		ck_assert(!atomic_load(&d[i].dr_done));
		later = ds_write_begin(S);
		ds_write_end(S, token);
		/* A writer that came later may be waited for, while it is there, by the second turn only. */
		ds_write_end(S, later);
		for (int t = 0; t < 2000 && !atomic_load(&d[i].dr_done); t++)
			nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
		ck_assert(atomic_load(&d[i].dr_done));
	}
}
END_TEST

/* ---- syncs ---- */

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
	struct cap_object k = key(1);
	struct io *io = calloc(N, sizeof *io);
	uint64_t before = ds_store_verifier(S), verf;
	struct ds_obj *o;
	int keep, failed = 0;

	ck_assert_int_eq(ds_obj_get(S, &k, true, &o), 0);
	ck_assert_int_eq(do_rw(o, true, 0, "x", 1), 1);
	ck_assert_int_eq(do_sync(o, &verf), 0);
	ck_assert_uint_eq(verf, before);
	keep = break_sync(o);
	log_set_level((enum log_level)-1);
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
	struct cap_object k = key(1);
	uint64_t before, groups;
	struct ds_obj *o;

	ck_assert_int_eq(ds_obj_get(S, &k, true, &o), 0);
	ck_assert_int_eq(do_rw(o, true, 0, "x", 1), 1);
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

/* Who is told "good" after a failed one must see the new verifier: at no time is a sync good under the old one. */
START_TEST(no_sync_is_good_under_the_verifier_of_lost_data)
{
	struct cap_object k = key(1);
	struct ds_obj *o;

	ck_assert_int_eq(ds_obj_get(S, &k, true, &o), 0);
	ck_assert_int_eq(do_rw(o, true, 0, "x", 1), 1);
	log_set_level((enum log_level)-1);
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
	struct cap_object k = key(1);
	uint64_t before = ds_store_verifier(S);
	struct ds_obj *o;

	opts.so_max_open = 1; /* one per shard */
	reopen();
	before = ds_store_verifier(S);
	ck_assert_int_eq(ds_obj_get(S, &k, true, &o), 0);
	ck_assert_int_eq(do_rw(o, true, 0, "x", 1), 1);
	close(break_sync(o));
	log_set_level((enum log_level)-1);
	ds_obj_put(o);
	for (unsigned i = 2; i < 2000 && ds_store_verifier(S) == before; i++)
		ck_assert_int_eq(touch(i), 0);
	for (int i = 0; i < 1000 && ds_store_verifier(S) == before; i++)
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
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

		if (&lk->lk_all[i] == lk || !atomic_load(&lk->lk_all[i].lk_holds) || e->rg_first > r->rg_last ||
		    r->rg_first > e->rg_last)
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
	if (ds_range_lock(lk->lk_obj, &lk->lk_range))
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

/* Several loops write one object, bytes of their own in pages that they share, directly and buffered, and sync it. */
START_TEST(many_loops_write_one_object)
{
	enum { ROUNDS = 40, CALLS = 30, SLICE = 10000, AREA = CALLS * SLICE };
	uint8_t *model = calloc(1, AREA), *back = aligned_alloc(4096, MIB), *data = aligned_alloc(4096, MIB);
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
			uint32_t from = i * SLICE + (uint32_t)rand() % 4000, n = 1 + (uint32_t)rand() % (SLICE - 4000);

			if (rand() % 2) {
				from = (i * SLICE + 4095) & ~4095u;
				n = 4096;
			}
			memcpy(model + from, data + from, n);
			io[i] = (struct io){ .io_what = IO_WRITE,
					     .io_rw = { .rw_obj = o, .rw_off = from, .rw_len = n, .rw_mem = data + from } };
			io_start(&io[i], loops[i % LOOPS]);
		}
		for (unsigned i = 0; i < LOOPS; i++) {
			sync[i] = (struct io){ .io_what = IO_SYNC, .io_sync.sy_obj = o };
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

static Suite *suite(void)
{
	Suite *s = suite_create("ds_store");
	TCase *f = tcase_create("folder"), *o = tcase_create("objects"), *io = tcase_create("io");

	tcase_add_checked_fixture(f, setup, teardown);
	tcase_set_timeout(f, 60);
	tcase_add_test(f, identity_is_made_once);
	tcase_add_test(f, store_in_use_is_told);
	tcase_add_test(f, other_version_and_foreign_files_are_refused);
	tcase_add_test(f, torn_tail_of_the_journal_costs_nothing_confirmed);
	tcase_add_test(f, delete_that_the_disk_forgot_is_done_again);
	tcase_add_test(f, tombstone_ends_with_its_time);
	tcase_add_test(f, journal_is_turned_when_it_has_grown);
	tcase_add_test(f, failed_append_fails_the_order_and_is_mended);
	suite_add_tcase(s, f);
	tcase_add_checked_fixture(o, setup, teardown);
	tcase_set_timeout(o, 60);
	tcase_add_test(o, objects_in_memory_are_bounded_and_keep_their_write_counts);
	tcase_add_test(o, orders_leave_write_counts);
	tcase_add_test(o, a_crash_of_the_machine_makes_every_write_count_new);
	tcase_add_test(o, unknown_version_of_an_xattr_is_an_error);
	tcase_add_test(o, object_deleted_while_used_is_not_written_elsewhere);
	tcase_add_test(o, order_with_a_failed_one_before_it_waits);
	tcase_add_test(o, orders_without_any_raise_the_instance);
	tcase_add_test(o, drain_waits_for_brackets_before_it_only);
	suite_add_tcase(s, o);
	tcase_add_checked_fixture(io, setup, teardown);
	tcase_set_timeout(io, 60);
	tcase_add_test(io, failed_sync_changes_the_verifier_for_all);
	tcase_add_test(io, syncs_that_meet_share_one);
	tcase_add_test(io, no_sync_is_good_under_the_verifier_of_lost_data);
	tcase_add_test(io, dropping_an_object_with_unsynced_data_tells_of_the_loss);
	tcase_add_test(io, direct_and_buffered_never_hold_one_page);
	tcase_add_test(io, many_loops_write_one_object);
	tcase_add_test(io, reads_beyond_the_memory_wait_and_none_is_dropped);
	suite_add_tcase(s, io);
	return s;
}

int main(void)
{
	return unit_run(suite());
}
