/* SPDX-License-Identifier: Apache-2.0 */
/* ds_store_test.c - the data server's store, without the network: its folder, the journal, objects,
 * orders. */
#include "tests/unit/ds_store.h"
#include <sys/stat.h>
#include <sys/syscall.h>

static _Atomic unsigned folder_syncs, fail_folders;

/* It stands before libc's. */
int fsync(int fd)
{
	struct stat st;
	bool folder = fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);

	if (folder && fail_folders) {
		errno = EIO;
		return -1;
	}
	folder_syncs += folder;
	return (int)syscall(SYS_fsync, fd);
}

static ctl_status order_at(uint64_t instance, ctl_order_type type, uint64_t ino, uint64_t number,
			   uint64_t arg)
{
	ctl_order o = {
		.type = type, .number = number, .object = {.ino = ino, .fs = 1, .incarnation = 1}};
	ctl_status res = CTL_INVAL, st;

	o.size = arg;
	o.epoch = type == CTL_FENCE ? (uint32_t)arg : 0;
	o.client = (uint32_t)arg;
	st = ds_store_orders(F, instance, &o, 1, &res);
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

	rewrite_identity(
		"weft-ds store\nversion=3\nuuid=00112233445566778899aabbccddeeff\nname=a\n");
	ck_assert_int_eq(try_open(err), -EPROTONOSUPPORT);
	ck_assert_ptr_nonnull(strstr(err, "version 3"));
	ck_assert_int_eq(try_open(err), -EPROTONOSUPPORT);
	S = NULL;
	for (int i = 0; i < 3; i++) {
		static const char *const bad[] = {"", "something else\n",
						  "weft-ds store\nversion=1\nuuid=zz\n"};
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
	ck_assert_int_eq(lookup(1, false), -ESTALE);
	ck_assert(ds_store_barred(F, 33));
	ck_assert(!ds_store_barred(F, 34));
	ck_assert(!ds_store_instance_ok(F, 3));
	ck_assert(ds_store_instance_ok(F, 4));
	ck_assert_uint_ge(ds_store_order_high(F), 8);
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
	ck_assert_int_eq(lookup(1, false), -ESTALE);
}
END_TEST

START_TEST(tombstone_ends_with_its_time)
{
	opts.so_tomb_keep_ms = 1500; /* what follows takes less, on a loaded machine too */
	reopen();
	ck_assert_int_eq(touch(1), 0);
	ck_assert_int_eq(order(CTL_DELETE, 1, 7, 0), CTL_OK);
	ck_assert_int_eq(touch(1), -ESTALE);
	nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 510000000}, NULL);
	ck_assert_int_eq(order(CTL_DELETE, 2, 8, 0), CTL_OK);
	ck_assert_int_eq(lookup(1, false), -ENOENT);
	ck_assert_int_eq(lookup(2, false), -ESTALE);
}
END_TEST

static bool is_lost(uint64_t ino)
{
	struct cap_object k = key(ino);

	return ds_obj_lost(S, &k);
}

/* The metadata server's store was put back, and has again what was deleted since. */
START_TEST(younger_order_has_what_was_deleted)
{
	ctl_order fence = {.type = CTL_FENCE,
			   .number = 9,
			   .epoch = 70000,
			   .known = CTL_KNOWN,
			   .object = {.ino = 2, .fs = 1, .incarnation = 1}};
	ctl_status res;

	for (uint64_t ino = 1; ino <= 3; ino++) {
		ck_assert_int_eq(touch(ino), 0);
		ck_assert_int_eq(order(CTL_DELETE, ino, 4 + ino, 0), CTL_OK);
	}
	/* One that is older than the delete has nothing to act on. */
	ck_assert_int_eq(order(CTL_FENCE, 1, 4, 3), CTL_OK);
	ck_assert_int_eq(lookup(1, false), -ESTALE);
	ck_assert_int_eq(order(CTL_FENCE, 1, 8, 70000), CTL_OK);
	ck_assert_int_eq(lookup(1, false), 0);
	/* By the fences' worker; and what was in it is not taken for zeros. */
	atomic_store(&F->fs_deleting, 1);
	ck_assert_int_ne(ds_store_fences(F, 1, &fence, 1, &res), CTL_OK);
	atomic_store(&F->fs_deleting, 0);
	ck_assert_int_eq(lookup(2, true), -ESTALE);
	ck_assert_int_eq(ds_store_fences(F, 1, &fence, 1, &res), CTL_OK);
	ck_assert_int_eq(res, CTL_OK);
	ck_assert(is_lost(2));
	/* A restart does again what it finds deleted, and these are not. */
	reopen();
	ck_assert_int_eq(lookup(1, false), 0);
	ck_assert(is_lost(2));
	ck_assert_int_eq(lookup(3, true), -ESTALE);
	/* Nor is a delete that comes now a matter of before. */
	ck_assert_int_eq(order(CTL_DELETE, 1, 10, 0), CTL_OK);
	ck_assert_int_eq(order(CTL_FENCE, 1, 9, 70001), CTL_OK);
	ck_assert_int_eq(lookup(1, true), -ESTALE);
	reopen();
	ck_assert_int_eq(lookup(1, true), -ESTALE);
	ck_assert(!on_disk(1));
}
END_TEST

/* Its tombstone stays in a segment that cannot go: a restart would unlink what is written now. */
START_TEST(what_cannot_leave_the_journal_stays_deleted)
{
	int keep;

	ck_assert_int_eq(touch(1), 0);
	ck_assert_int_eq(order(CTL_DELETE, 1, 4, 0), CTL_OK);
	keep = S->s_journal.j_dirfd;
	S->s_journal.j_dirfd = -1;
	ck_assert_int_eq(order(CTL_FENCE, 1, 8, 70000), CTL_OK);
	S->s_journal.j_dirfd = keep;
	ck_assert_int_eq(lookup(1, true), -ESTALE);
	ck_assert_int_eq(order(CTL_FENCE, 1, 9, 70000), CTL_OK);
	ck_assert_int_eq(lookup(1, false), 0);
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
			o[i] = (ctl_order){
				.type = CTL_DELETE, .number = n, .object = {.ino = n, .fs = 1}};
		ck_assert_int_eq(ds_store_orders(F, 1, o, N, res), CTL_OK);
		ck_assert_int_eq(res[0], CTL_OK);
		segments(last);
		if (strcmp(first, last))
			break;
	}
	ck_assert_str_ne(first, last);
	ck_assert_uint_eq(segments(NULL), 1);
	opts.so_tomb_keep_ms = 600000;
	reopen();
	ck_assert(ds_store_barred(F, 33));
}
END_TEST

START_TEST(failed_append_fails_the_order_and_is_mended)
{
	int keep = dup(S->s_journal.j_fd), rd = open("/dev/null", O_RDONLY);

	ck_assert_int_eq(touch(1), 0);
	ck_assert_int_eq(touch(2), 0);
	ck_assert_int_eq(order(CTL_FENCE, 3, 1, 1), CTL_OK); /* the marks are in */
	dup2(rd, S->s_journal.j_fd);
	log_set_level((enum log_level) - 1);
	ck_assert_int_eq(order(CTL_DELETE, 1, 2, 0), CTL_IO);
	log_set_level(LOG_L_ERROR);
	/* The next one begins a new segment with all that counts. */
	ck_assert_int_eq(order(CTL_DELETE, 2, 3, 0), CTL_OK);
	reopen();
	ck_assert_int_eq(lookup(1, false), -ESTALE);
	ck_assert_int_eq(lookup(2, false), -ESTALE);
	close(keep);
	close(rd);
}
END_TEST

/* The store as it is now is opened again: what closing it would write is not there. */
static void killed(void)
{
	char cmd[256];

	snprintf(cmd, sizeof cmd, "cp -a %s %s.now", dir, dir);
	ck_assert_int_eq(system(cmd), 0);
	ds_store_close(S);
	S = NULL;
	snprintf(cmd, sizeof cmd, "rm -r %s && mv %s.now %s", dir, dir, dir);
	ck_assert_int_eq(system(cmd), 0);
	reopen();
}

static void kept(uint64_t instance, uint32_t joins)
{
	struct ds_seen sn = ds_store_seen(F);

	ck_assert_uint_eq(sn.sn_kept_instance, instance);
	ck_assert_uint_eq(sn.sn_kept_joins, joins);
}

START_TEST(the_last_join_is_told_as_it_is_stored)
{
	int full = open("/dev/full", O_WRONLY);

	kept(0, 0);
	ck_assert_int_eq(ds_store_join(F, 4, 44, 70000), CTL_OK);
	kept(4, 70000);
	killed();
	kept(4, 70000);
	/* One that has no number, and a lower one, change nothing. */
	ck_assert_int_eq(ds_store_join(F, 4, 44, 0), CTL_OK);
	ck_assert_int_eq(ds_store_join(F, 4, 44, 69999), CTL_OK);
	kept(4, 70000);
	/* Orders of a later instance, before the join is answered. */
	ck_assert_int_eq(order_at(5, CTL_FENCE, 1, 1, 1), CTL_OK);
	kept(5, 0);
	killed();
	kept(5, 0);
	ck_assert_int_eq(ds_store_join(F, 5, 55, 1), CTL_OK);
	kept(5, 1);
	/* A full disk: it is not told, nor what the store has instead. */
	while (ds_reserve_give(S))
		;
	dup2(full, S->s_journal.j_fd);
	log_set_level((enum log_level) - 1);
	ck_assert_int_eq(ds_store_join(F, 5, 55, 2), CTL_OK);
	log_set_level(LOG_L_ERROR);
	kept(5, 1);
	ck_assert(ds_store_seen(F).sn_unkept);
	/* The next record that is stored has it. */
	ck_assert_int_eq(order_at(5, CTL_FENCE, 2, 2, 1), CTL_OK);
	kept(5, 2);
	ck_assert(!ds_store_seen(F).sn_unkept);
	killed();
	kept(5, 2);
	close(full);
}
END_TEST

START_TEST(marks_that_were_not_durable_are_before_the_next_orders)
{
	int rd = open("/dev/null", O_RDONLY);

	ck_assert_int_eq(touch(1), 0);
	dup2(rd, S->s_journal.j_fd);
	log_set_level((enum log_level) - 1);
	ck_assert_int_eq(order_at(4, CTL_FENCE, 1, 1, 1), CTL_IO);
	log_set_level(LOG_L_ERROR);
	/* They are in memory already, so that nothing is raised. */
	ck_assert_int_eq(order_at(4, CTL_FENCE, 1, 1, 1), CTL_OK);
	close(rd);
	/* Killed: nothing else is written. */
	killed();
	ck_assert(!ds_store_instance_ok(F, 3));
	ck_assert_uint_ge(ds_store_order_high(F), 1);
}
END_TEST

/* ---- objects ---- */

static uint64_t writes_of(uint64_t ino)
{
	ctl_object obj = {.ino = ino, .fs = 1, .incarnation = 1};
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
		for (int i = 0; i < 60000 && ds_store_open_objects(S) > 64; i++)
			nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
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

static void set_mtime(uint64_t ino, uint64_t ns)
{
	struct cap_object k = key(ino);
	struct ds_obj *o;

	ck_assert_int_eq(ds_obj_get(S, &k, false, &o), 0);
	ck_assert_int_eq(ds_mtime_set(o->ob_fd, ns), 0);
	ds_obj_put(o);
}

/* The kernel's clock stands still: both writes have the same mtime, one of now or later. The daemon
 * is killed before the second was asked about. */
START_TEST(a_write_in_the_tick_of_the_answer_before_counts_after_a_kill)
{
	uint64_t tick = ((uint64_t)time(NULL) + 3600) * 1000000000u, last;

	ck_assert_int_eq(touch(1), 0);
	set_mtime(1, tick);
	last = writes_of(1);
	ck_assert_uint_eq(writes_of(1), last);
	killed();
	ck_assert_uint_eq(writes_of(1), last);
	ck_assert_int_eq(touch(1), 0);
	set_mtime(1, tick);
	killed();
	ck_assert_uint_ne(writes_of(1), last);
	last = writes_of(1);
	reopen();
	ck_assert_uint_eq(writes_of(1), last);
}
END_TEST

START_TEST(orders_leave_write_counts)
{
	ctl_order cut = {.type = CTL_TRUNCATE,
			 .number = 1,
			 .object = {.ino = 1, .fs = 1, .incarnation = 1},
			 .size = 0,
			 .epoch = 4};
	ctl_status result;
	uint64_t last;

	ck_assert_int_eq(touch(1), 0);
	last = writes_of(1);
	for (cut.number = 1; cut.number < 4; cut.number++) {
		cut.size = 1000 * (cut.number - 1);
		ck_assert_int_eq(ds_store_orders(F, 1, &cut, 1, &result), CTL_OK);
		ck_assert_int_eq(result, CTL_OK);
		ck_assert_uint_eq(writes_of(1), last);
		reopen();
		ck_assert_uint_eq(writes_of(1), last);
	}
}
END_TEST

/* After a crash of the machine nobody knows whether an mtime on the disk is from before the last
 * write: no count may be as before. */
START_TEST(a_crash_of_the_machine_makes_every_write_count_new)
{
	ctl_order fence = {.type = CTL_FENCE,
			   .number = 1,
			   .object = {.ino = 2, .fs = 1, .incarnation = 1},
			   .epoch = 4};
	ctl_status result;
	char path[256], id[40];
	uint64_t last;
	FILE *f;

	ck_assert_int_eq(touch(1), 0);
	ck_assert_int_eq(ds_store_orders(F, 1, &fence, 1, &result), CTL_OK);
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
	struct ds_meta m = {.m_version = 9};
	char path[256];

	ck_assert_int_eq(touch(1), 0);
	reopen();
	path_of(1, path);
	ck_assert_int_eq(setxattr(path, DS_XATTR, &m, sizeof m, 0), 0);
	log_set_level((enum log_level) - 1);
	ck_assert_int_eq(lookup(1, false), -EIO);
	log_set_level(LOG_L_ERROR);
}
END_TEST

START_TEST(object_deleted_while_used_is_not_written_elsewhere)
{
	struct ds_obj *o = written(1);

	ck_assert_int_eq(order(CTL_DELETE, 1, 1, 0), CTL_OK);
	ck_assert(ds_obj_deleted(o));
	ck_assert_int_eq(do_rw(o, true, 5, "y", 1), 1);
	ck_assert(!on_disk(1));
	ds_obj_put(o);
	ck_assert_int_eq(lookup(1, false), -ESTALE);
}
END_TEST

/* ---- orders ---- */

START_TEST(order_with_a_failed_one_before_it_waits)
{
	ctl_order o[3] = {
		{.type = CTL_TRUNCATE,
		 .number = 5,
		 .object = {.ino = 1, .fs = 1, .incarnation = 1},
		 .size = UINT64_MAX},
		{.type = CTL_TRUNCATE,
		 .number = 6,
		 .object = {.ino = 1, .fs = 1, .incarnation = 1},
		 .size = 1},
		{.type = CTL_TRUNCATE,
		 .number = 7,
		 .object = {.ino = 2, .fs = 1, .incarnation = 1},
		 .size = 1},
	};
	ctl_status res[3];

	ck_assert_int_eq(ds_store_orders(F, 1, o, 3, res), CTL_OK);
	ck_assert_int_eq(res[0], CTL_INVAL);
	ck_assert_int_eq(res[1], CTL_INVAL);
	ck_assert_int_eq(res[2], CTL_OK);
	/* so that the first can still be done */
	o[0].size = 3;
	ck_assert_int_eq(ds_store_orders(F, 1, o, 2, res), CTL_OK);
	ck_assert_int_eq(res[0], CTL_OK);
	ck_assert_int_eq(res[1], CTL_OK);
}
END_TEST

START_TEST(orders_without_any_raise_the_instance)
{
	ck_assert_int_eq(ds_store_orders(F, 12, NULL, 0, NULL), CTL_OK);
	reopen();
	ck_assert_int_eq(order_at(11, CTL_FENCE, 1, 1, 1), CTL_STALE_INSTANCE);
	ck_assert_int_eq(order_at(12, CTL_FENCE, 1, 1, 1), CTL_OK);
}
END_TEST

static ctl_status known_order(ctl_order_type type, uint64_t ino, uint64_t number, uint64_t size,
			      uint32_t epoch)
{
	ctl_order o = {.type = type,
		       .number = number,
		       .object = {.ino = ino, .fs = 1, .incarnation = 1},
		       .size = size,
		       .epoch = epoch,
		       .known = CTL_KNOWN};
	ctl_status res = CTL_INVAL;

	ck_assert_int_eq(ds_store_orders(F, 1, &o, 1, &res), CTL_OK);
	return res;
}

static ctl_stat stat_of(uint64_t ino)
{
	ctl_object obj = {.ino = ino, .fs = 1, .incarnation = 1};
	ctl_stat st;

	ds_store_stat(S, &obj, &st);
	return st;
}

/* Its file goes, behind the store's back. */
static void lose(uint64_t ino)
{
	char path[256];

	ck_assert_int_eq(touch(ino), 0);
	reopen();
	path_of(ino, path);
	ck_assert_int_eq(unlink(path), 0);
}

/* Once: it is asked often. */
START_TEST(a_question_tells_what_would_be_there_after_a_cut)
{
	unsigned before;

	ck_assert_int_eq(touch(1), 0);
	before = folder_syncs;
	ck_assert_int_eq(stat_of(1).status, CTL_OK);
	ck_assert(!stat_of(1).durable);
	ck_assert_uint_eq(folder_syncs, before); /* who asks does not wait for a disk */
	ck_assert_int_eq(known_order(CTL_FENCE, 1, 1, 0, 2), CTL_OK); /* what an order did is */
	ck_assert_uint_gt(folder_syncs, before);
	ck_assert(stat_of(1).durable);
	ck_assert_int_eq(stat_of(2).status, CTL_NOENT);
	ck_assert(!stat_of(2).durable);
	reopen();
	ck_assert_int_eq(stat_of(1).status, CTL_OK);
	ck_assert(!stat_of(1).durable); /* nobody knows any more */
}
END_TEST

START_TEST(an_order_for_what_must_be_there_marks_it_lost)
{
	static const struct {
		ctl_order_type type;
		uint64_t size;
	} order_of[] = {{CTL_FENCE, 0}, {CTL_TRUNCATE, 5}, {CTL_EXTEND, 7}};
	ctl_order clone = {.type = CTL_CLONE,
			   .number = 9,
			   .object = {.fs = 1, .incarnation = 1},
			   .source = {.ino = 2, .fs = 1, .incarnation = 1},
			   .size = 1,
			   .known = CTL_KNOWN | CTL_KNOWN_SOURCE};
	ctl_change_args ch = {.instance_epoch = 1,
			      .type = CTL_CHANGE_EXTEND,
			      .object = {.fs = 1, .incarnation = 1},
			      .epoch = 9};
	ctl_change_res cr;
	ctl_status res;

	ck_assert_int_eq(touch(2), 0);
	log_set_level((enum log_level) - 1);
	for (uint64_t ino = 11; ino < 14; ino++) {
		struct cap_object k = key(ino);
		unsigned i = (unsigned)ino - 11;

		clone.object.ino = ch.object.ino = ino;
		lose(ino);
		ck_assert_int_eq(known_order(order_of[i].type, ino, 1, order_of[i].size, 4),
				 CTL_OK);
		for (unsigned again = 0; again < 2; again++) {
			/* Neither read, nor written, nor made. */
			ck_assert_int_eq(lookup(ino, false), -ESTALE);
			ck_assert_int_eq(touch(ino), -ESTALE);
			ck_assert_int_eq(ds_store_change(F, &ch, &cr), CTL_NOENT);
			ck_assert(ds_obj_lost(S, &k));
			ck_assert_int_eq(stat_of(ino).status, CTL_LOST);
			reopen();
		}
		/* What comes after it changes nothing, whether it knows or not. */
		ck_assert_int_eq(known_order(CTL_FENCE, ino, 5, 0, 6), CTL_OK);
		ck_assert_int_eq(order(CTL_TRUNCATE, ino, 6, 9), CTL_OK);
		if (ds_store_clone_block(S)) {
			ck_assert_int_eq(ds_store_orders(F, 1, &clone, 1, &res), CTL_OK);
			ck_assert_int_eq(res, CTL_OK);
		}
		ck_assert_int_eq(lookup(ino, false), -ESTALE);
		reopen();
		ck_assert_int_eq(lookup(ino, false), -ESTALE);
		/* Of nothing all is known; it is fenced as it was. */
		ck_assert_int_eq(known_order(CTL_TRUNCATE, ino, 20, 0, 0), CTL_OK);
		ck_assert_int_eq(lookup(ino, false), 0);
		ck_assert_int_eq(stat_of(ino).status, CTL_OK);
		reopen();
		ck_assert_int_eq(stat_of(ino).status, CTL_OK);
		ck_assert_uint_eq(stat_of(ino).epoch, 6);
		ck_assert_int_eq(touch(ino), 0);
	}
	log_set_level(LOG_L_ERROR);
}
END_TEST

START_TEST(only_what_is_not_there_is_lost)
{
	char path[256], other[300];
	int fd;

	log_set_level((enum log_level) - 1);
	ck_assert_int_eq(touch(1), 0);
	ck_assert_int_eq(known_order(CTL_FENCE, 1, 1, 0, 4), CTL_OK);
	ck_assert_int_eq(stat_of(1).status, CTL_OK);
	ck_assert_uint_eq(stat_of(1).size, 1);
	/* The last try to mark it was cut off. */
	lose(1);
	path_of(1, path);
	snprintf(other, sizeof(other), "%s.lost", path);
	fd = open(other, O_CREAT | O_WRONLY, 0600);
	ck_assert_int_eq(write(fd, "x", 1), 1);
	close(fd);
	ck_assert_int_eq(known_order(CTL_FENCE, 1, 2, 0, 4), CTL_OK);
	ck_assert_int_eq(access(other, F_OK), -1);
	ck_assert_int_eq(stat_of(1).status, CTL_LOST);
	/* A deletion ends it, and leaves nothing, nor what such a try left in another way. */
	fd = open(other, O_CREAT | O_WRONLY, 0600);
	close(fd);
	ck_assert_int_eq(order(CTL_DELETE, 1, 3, 0), CTL_OK);
	ck_assert_int_eq(stat_of(1).status, CTL_NOENT);
	ck_assert(!on_disk(1));
	ck_assert_int_eq(access(other, F_OK), -1);
	/* Truncated to nothing it need not have been there; and one that nobody knows of is made,
	 * as ever. */
	for (uint64_t ino = 3; ino < 5; ino++) {
		ctl_order o = {.type = CTL_TRUNCATE,
			       .number = ino,
			       .object = {.ino = ino, .fs = 1, .incarnation = 1},
			       .known = ino == 3 ? CTL_KNOWN : 0,
			       .size = ino == 3 ? 0 : 6};
		ctl_status res;

		ck_assert_int_eq(ds_store_orders(F, 1, &o, 1, &res), CTL_OK);
		ck_assert_int_eq(res, CTL_OK);
		ck_assert_int_eq(stat_of(ino).status, CTL_OK);
	}
	log_set_level(LOG_L_ERROR);
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
	struct drainer d[3] = {0};

	for (int i = 0; i < 3; i++) {
		unsigned token = ds_write_begin(S), later;

		d[i].dr_job.jb_run = drain_job;
		ds_store_submit(S, DS_WORKER_ORDERS, &d[i].dr_job);
		nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
		ck_assert(!atomic_load(&d[i].dr_done));
		later = ds_write_begin(S);
		ds_write_end(S, token);
		/* A writer that came later may be waited for, while it is there, by the second turn
		 * only. */
		ds_write_end(S, later);
		for (int t = 0; t < 60000 && !atomic_load(&d[i].dr_done); t++)
			nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		ck_assert(atomic_load(&d[i].dr_done));
	}
}
END_TEST

struct held {
	struct ds_job hd_job;
	sem_t hd_begun, hd_go;
};

static void held_run(struct ds_job *j)
{
	struct held *h = caa_container_of(j, struct held, hd_job);

	sem_post(&h->hd_begun);
	while (sem_wait(&h->hd_go))
		;
}

struct fences {
	struct ds_job fs_job;
	ctl_order fs_order[3];
	ctl_status fs_res[3], fs_st;
	sem_t fs_done;
};

static void fences_run(struct ds_job *j)
{
	struct fences *f = caa_container_of(j, struct fences, fs_job);

	f->fs_st = ds_store_fences(F, 1, f->fs_order, 3, f->fs_res);
	sem_post(&f->fs_done);
}

static uint32_t epoch_of(uint64_t ino)
{
	ctl_object o = {.ino = ino, .fs = 1, .incarnation = 1};
	ctl_stat st;

	ds_store_stat(S, &o, &st);
	ck_assert_int_eq(st.status, CTL_OK);
	return st.epoch;
}

/* The orders worker stands still, as in a long clone: fences and bars are done, and take none of
 * its orders for done. */
START_TEST(fences_wait_for_no_order)
{
	ctl_order cut = {.type = CTL_TRUNCATE,
			 .number = 9,
			 .object = {.ino = 1, .fs = 1, .incarnation = 1},
			 .epoch = 5};
	struct held h = {.hd_job.jb_run = held_run};
	struct fences f = {.fs_job.jb_run = fences_run};
	char path[256];
	struct stat st;
	ctl_status res;

	sem_init(&h.hd_begun, 0, 0);
	sem_init(&h.hd_go, 0, 0);
	sem_init(&f.fs_done, 0, 0);
	ck_assert_int_eq(touch(1), 0);
	ds_store_submit(S, DS_WORKER_ORDERS, &h.hd_job);
	sem_wait(&h.hd_begun);
	f.fs_order[0] = (ctl_order){.type = CTL_FENCE,
				    .number = 10,
				    .object = {.ino = 1, .fs = 1, .incarnation = 1},
				    .epoch = 6};
	f.fs_order[1] = (ctl_order){
		.type = CTL_FENCE, .object = {.ino = 2, .fs = 1, .incarnation = 1}, .epoch = 7};
	f.fs_order[2] = (ctl_order){.type = CTL_BAR_CLIENT, .number = 11, .client = 77};
	ds_store_submit(S, DS_WORKER_FENCES, &f.fs_job);
	sem_wait(&f.fs_done);
	ck_assert_int_eq(f.fs_st, CTL_OK);
	for (unsigned i = 0; i < 3; i++)
		ck_assert_int_eq(f.fs_res[i], CTL_OK);
	sem_post(&h.hd_go);
	ck_assert_int_eq(ds_store_orders(F, 1, &cut, 1, &res), CTL_OK);
	ck_assert_int_eq(res, CTL_OK);
	path_of(1, path);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_int_eq(st.st_size, 0); /* it had one byte, and is cut */
	for (unsigned n = 0; n < 2; n++) {
		ck_assert_uint_eq(epoch_of(1), 6);
		ck_assert_uint_eq(epoch_of(2), 7);
		ck_assert(ds_store_barred(F, 77));
		reopen();
	}
}
END_TEST

/* Its file cannot be opened, so nothing is stored: the server says so, and whoever comes to it
 * later is told the epoch all the same. */
START_TEST(a_fence_that_is_not_stored_is_in_force)
{
	ctl_order fence = {.type = CTL_FENCE,
			   .number = 3,
			   .object = {.ino = 1, .fs = 1, .incarnation = 1},
			   .epoch = 6};
	char path[256], was[260];
	ctl_status res;

	ck_assert_int_eq(touch(1), 0);
	reopen();
	path_of(1, path);
	snprintf(was, sizeof(was), "%s.was", path);
	ck_assert_int_eq(rename(path, was), 0);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	ck_assert_int_eq(ds_store_fences(F, 1, &fence, 1, &res), CTL_OK);
	ck_assert_int_ne(res, CTL_OK);
	ck_assert_int_eq(rmdir(path), 0);
	ck_assert_int_eq(rename(was, path), 0);
	ck_assert_uint_eq(epoch_of(1), 6);
	ck_assert_int_eq(ds_store_fences(F, 1, &fence, 1, &res), CTL_OK);
	ck_assert_int_eq(res, CTL_OK);
	reopen();
	ck_assert_uint_eq(epoch_of(1), 6);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("ds_store");
	TCase *f = tcase_create("folder"), *o = tcase_create("objects");

	tcase_add_checked_fixture(f, setup, teardown);
	tcase_set_timeout(f, 60);
	tcase_add_test(f, identity_is_made_once);
	tcase_add_test(f, store_in_use_is_told);
	tcase_add_test(f, other_version_and_foreign_files_are_refused);
	tcase_add_test(f, torn_tail_of_the_journal_costs_nothing_confirmed);
	tcase_add_test(f, delete_that_the_disk_forgot_is_done_again);
	tcase_add_test(f, tombstone_ends_with_its_time);
	tcase_add_test(f, younger_order_has_what_was_deleted);
	tcase_add_test(f, what_cannot_leave_the_journal_stays_deleted);
	tcase_add_test(f, journal_is_turned_when_it_has_grown);
	tcase_add_test(f, failed_append_fails_the_order_and_is_mended);
	tcase_add_test(f, marks_that_were_not_durable_are_before_the_next_orders);
	tcase_add_test(f, the_last_join_is_told_as_it_is_stored);
	suite_add_tcase(s, f);
	tcase_add_checked_fixture(o, setup, teardown);
	tcase_set_timeout(o, 60);
	tcase_add_test(o, objects_in_memory_are_bounded_and_keep_their_write_counts);
	tcase_add_test(o, a_write_in_the_tick_of_the_answer_before_counts_after_a_kill);
	tcase_add_test(o, orders_leave_write_counts);
	tcase_add_test(o, a_crash_of_the_machine_makes_every_write_count_new);
	tcase_add_test(o, unknown_version_of_an_xattr_is_an_error);
	tcase_add_test(o, object_deleted_while_used_is_not_written_elsewhere);
	tcase_add_test(o, order_with_a_failed_one_before_it_waits);
	tcase_add_test(o, orders_without_any_raise_the_instance);
	tcase_add_test(o, a_question_tells_what_would_be_there_after_a_cut);
	tcase_add_test(o, an_order_for_what_must_be_there_marks_it_lost);
	tcase_add_test(o, only_what_is_not_there_is_lost);
	tcase_add_test(o, fences_wait_for_no_order);
	tcase_add_test(o, a_fence_that_is_not_stored_is_in_force);
	tcase_add_test(o, drain_waits_for_brackets_before_it_only);
	suite_add_tcase(s, o);
	return s;
}

int main(void)
{
	return unit_run(suite());
}
