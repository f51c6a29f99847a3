/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_copy_test.c - stores that are copies of a log elsewhere: what the log's answers do, followers,
 * promotion, crashes, and what is refused. The log is in memory (kv_memlog.h).
 *
 * KV_COPY_SEED, KV_COPY_STEPS (soak).
 */
#include "base/clock.h"
#include "tests/unit/kv_memlog.h"
#include "tests/unit/kv_power.h"
#include <sys/socket.h>
#include <sysexits.h>

static struct mem_log first_log, second_log = {.ml_who = 1};
static const struct kv_redo first_redo = {&mem_ops, &first_log},
			    second_redo = {&mem_ops, &second_log};

static struct kv *open_copy(const char *name, const struct kv_redo *redo, bool follow)
{
	struct kv_opts o = {
		.ko_create = true, .ko_redo = redo, .ko_follow = follow, .ko_map_max = 64 << 20};
	struct kv *kv = NULL;
	char path[300];
	int rc;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	rc = kv_open(&kv, path, &o, err, sizeof(err));
	ck_assert_msg(rc == 0, "%s", err);
	return kv;
}

static int follow(struct kv *kv)
{
	return kv_follow(kv, err, sizeof(err));
}

START_TEST(batches_count_by_one_and_are_read_again)
{
	struct kv *kv = open_copy("a", &first_redo, false);
	struct kv_redo_state st;

	ck_assert_uint_eq(kv_held(kv), 0);
	for (uint32_t i = 1; i <= 20; i++) {
		ck_assert_int_eq(change(kv, i), 0);
		ck_assert_uint_eq(kv_held(kv), i);
	}
	kv_redo_state(kv, &st);
	ck_assert(st.rs_up && st.rs_last == 20);
	ck_assert(is_fold(kv));
	kv_close(kv);
	ck_assert_uint_eq(mem->m_trim[0], 20);
	kv = open_copy("a", &first_redo, false);
	ck_assert_uint_eq(kv_held(kv), 20);
	ck_assert(is_fold(kv));
	ck_assert_int_eq(change(kv, 21), 0);
	/* Negative control: the model is another one without the last batch. */
	mem->m_last--;
	ck_assert(!is_fold(kv));
	mem->m_last++;
	ck_assert(is_fold(kv));
	kv_close(kv);
}
END_TEST

START_TEST(batch_that_the_log_refuses_is_nowhere)
{
	struct kv *kv = open_copy("a", &first_redo, false);

	ck_assert_int_eq(change(kv, 1), 0);
	mem->m_next = MEM_FAIL;
	ck_assert_int_eq(change(kv, 2), -EAGAIN);
	ck_assert_uint_eq(kv_held(kv), 1);
	ck_assert(is_fold(kv));
	ck_assert_int_eq(change(kv, 3), 0);
	ck_assert_uint_eq(kv_held(kv), 2);
	ck_assert(is_fold(kv));
	kv_close(kv);
}
END_TEST

/* Runs one change in a child that ends before it is answered. */
static int ends_with(enum mem_append how)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		struct kv *kv = open_copy("a", &first_redo, false);

		log_set_level((enum log_level) - 1);
		mem->m_next = how;
		change(kv, 1);
		_exit(0); /* it was answered */
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

START_TEST(writer_that_is_not_sure_answers_nothing)
{
	static const struct {
		enum mem_append how;
		int ends;
		uint64_t has;
	} rows[] = {{MEM_DEPOSED, EX_TEMPFAIL, 0},
		    {MEM_STOPPED_OUT, EX_TEMPFAIL, 0},
		    {MEM_DIE_OUT, 9, 0},
		    {MEM_STOPPED_IN, EX_TEMPFAIL, 1},
		    {MEM_DIE_IN, 9, 2},
		    {MEM_DURABLE, 0, 3}};
	struct kv *kv;

	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		ck_assert_int_eq(ends_with(rows[i].how), rows[i].ends);
		ck_assert_uint_eq(mem->m_last, rows[i].has);
	}
	kv = open_copy("a", &first_redo, false);
	ck_assert_uint_eq(kv_held(kv), 3);
	ck_assert(is_fold(kv));
	kv_close(kv);
}
END_TEST

START_TEST(follower_follows_refuses_changes_and_takes_over)
{
	struct kv *a = open_copy("a", &first_redo, false), *b = open_copy("b", &second_redo, true);
	uint64_t began;

	for (uint32_t i = 1; i <= 50; i++)
		ck_assert_int_eq(change(a, i), 0);
	ck_assert_uint_eq(kv_held(b), 0);
	ck_assert_int_eq(follow(b), 0);
	ck_assert_uint_eq(kv_held(b), 50);
	ck_assert(is_fold(b));
	ck_assert_int_eq(change(b, 51), -EROFS);
	ck_assert_int_eq(follow(a), -EROFS);
	for (uint32_t i = 51; i <= 60; i++)
		ck_assert_int_eq(change(a, i), 0);
	began = clock_mono_ns();
	ck_assert_int_eq(kv_promote(b, err, sizeof(err)), 0);
	fprintf(stderr, "# promotion with 10 batches to read: %lu us\n",
		(unsigned long)(clock_mono_ns() - began) / 1000);
	ck_assert_uint_eq(kv_held(b), 60);
	ck_assert_int_eq(change(b, 61), 0);
	ck_assert(is_fold(b));
	ck_assert_int_eq(follow(b), -EROFS);
	kv_close(b);
	kv_close(a);
}
END_TEST

START_TEST(follower_does_a_batch_once_and_only_what_follows)
{
	struct kv *a = open_copy("a", &first_redo, false), *b = open_copy("b", &second_redo, true);
	char *one, *rec = malloc(1 << 16);

	for (uint32_t i = 1; i <= 3; i++)
		ck_assert_int_eq(change(a, i), 0);
	one = mem_rec(1);
	ck_assert_int_eq(kv_apply(b, 2, mem_rec(2), mem->m_len[2]), -ERANGE);
	ck_assert_int_eq(kv_apply(b, 1, mem_rec(2), mem->m_len[2]), -EIO);
	for (uint32_t k = 0; k < mem->m_len[1]; k++) {
		memcpy(rec, one, mem->m_len[1]);
		rec[k] ^= 1;
		ck_assert_msg(kv_apply(b, 1, rec, mem->m_len[1]) == -EIO, "byte %u", k);
		ck_assert_int_eq(kv_apply(b, 1, one, k), -EIO);
	}
	ck_assert_uint_eq(kv_held(b), 0);
	ck_assert_int_eq(kv_apply(b, 1, one, mem->m_len[1]), 0);
	ck_assert_int_eq(kv_apply(b, 1, one, mem->m_len[1]), 0);
	ck_assert_uint_eq(kv_held(b), 1);
	ck_assert(is_fold(b));
	/* Whole, with the right number, and of another history. */
	memcpy(rec, mem_rec(2), mem->m_len[2]);
	kv_redo_rec_seal(mem->m_id, ((struct kv_redo_rec *)rec)->rr_sum, 1,
			 &(struct kv_redo_batch){2, rec, mem->m_len[2],
						 le32toh(((struct kv_redo_rec *)rec)->rr_n)});
	ck_assert_int_eq(kv_apply(b, 2, rec, mem->m_len[2]), -EIO);
	ck_assert_int_eq(kv_apply(b, 2, mem_rec(2), mem->m_len[2]), 0);
	ck_assert(is_fold(b));
	for (int wrong = MEM_TWICE; wrong <= MEM_BIT; wrong++) {
		mem->m_wrong = wrong;
		/* A batch given again under the next number, one left out, one damaged. */
		ck_assert_int_eq(change(a, 10 + (uint32_t)wrong), 0);
		ck_assert_int_eq(change(a, 20 + (uint32_t)wrong), 0);
		ck_assert_int_eq(follow(b), wrong == MEM_GAP ? -ERANGE : -EIO);
		mem->m_wrong = MEM_RIGHT;
		ck_assert_int_eq(follow(b), 0);
		ck_assert(is_fold(b));
	}
	kv_close(b);
	kv_close(a);
	free(rec);
}
END_TEST

static int refused(const struct kv_opts *o, const char *why)
{
	struct kv *kv = NULL;
	int rc = kv_open(&kv, dir, o, err, sizeof(err));

	ck_assert_msg(rc < 0 && strstr(err, why), "%d: %s", rc, err);
	return rc;
}

START_TEST(store_of_one_kind_is_refused_with_the_other)
{
	struct kv_opts files = {.ko_create = true},
		       copy = {.ko_create = true, .ko_redo = &first_redo};
	struct kv_redo_ops other = mem_ops;
	struct kv_redo as_other = {&other, &first_log};
	struct kv *kv;
	char cmd[400];

	kv_close(open_kv(&files));
	ck_assert_int_eq(refused(&copy, "has its log in files (redo.0)"), -EPROTO);
	snprintf(cmd, sizeof(cmd), "rm %s/redo.*", dir);
	ck_assert_int_eq(system(cmd), 0);
	ck_assert_int_eq(refused(&copy, "has its log in files"), -EPROTO);
	scratch_remove(dir);
	setup();
	kv = open_kv(&copy);
	ck_assert_int_eq(change(kv, 1), 0);
	kv_close(kv);
	ck_assert_int_eq(refused(&files, "is a copy of a log elsewhere (it has copy.0)"), -EPROTO);
	other.ro_name = "another";
	copy.ko_redo = &as_other;
	ck_assert_int_eq(refused(&copy, "of the log in memory, not in another"), -EPROTO);
	copy.ko_redo = &first_redo;
	mem->m_id[3] ^= 1;
	ck_assert_int_eq(refused(&copy, "of another log"), -ESTALE);
	mem->m_id[3] ^= 1;
	copy.ko_nosync = true;
	ck_assert_int_eq(refused(&copy, "without syncs"), -EINVAL);
	copy.ko_nosync = false;
	mem->m_last--; /* the log was set back */
	ck_assert_int_eq(refused(&copy, "holds batch 1, and the log in memory ends at batch 0"),
			 -ESTALE);
	mem->m_last++;
	snprintf(cmd, sizeof(cmd), "rm %s/copy.*", dir);
	ck_assert_int_eq(system(cmd), 0);
	ck_assert_int_eq(refused(&files, "is a copy of the log in memory"), -EPROTO);
	kv_close(open_kv(&copy));
}
END_TEST

/* What another process may read: a copy that was closed, or that a process has open. */
START_TEST(copy_is_read_only_after_it_was_closed)
{
	struct kv_opts ro = {.ko_readonly = true},
		       copy = {.ko_create = true, .ko_redo = &first_redo};
	struct kv_txn *t;
	struct kv *kv;
	int status;
	pid_t pid;

	kv_close(open_kv(&copy));
	pid = fork();
	if (pid == 0)
		_exit(change(open_kv(&copy), 1));
	waitpid(pid, &status, 0);
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(refused(&ro, "open it with that log"), -EPROTO);
	kv_close(open_kv(&copy));
	kv = open_kv(&ro);
	ck_assert_int_eq(kv_read_begin(kv, &t), 0);
	ck_assert_uint_eq(kv_read_number(t), 1);
	kv_read_end(t);
	kv_close(kv);
}
END_TEST

static void damage(const char *name, off_t at)
{
	char file[300], byte;
	int fd;

	snprintf(file, sizeof(file), "%s/a/%s", dir, name);
	fd = open(file, O_RDWR);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pread(fd, &byte, 1, at + 100), 1);
	byte ^= 1;
	ck_assert_int_eq(pwrite(fd, &byte, 1, at + 100), 1);
	close(fd);
}

/* No record shows that a newer header was whole, so each header is there twice. */
START_TEST(damaged_header_of_a_copy_has_a_second_one)
{
	struct kv_opts o = {.ko_redo = &first_redo};
	char path[300];
	struct kv *kv;

	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(ends_with(MEM_DURABLE), 0); /* it was not closed */
		damage("copy.0", i * 4096);
		damage("copy.1", i * 4096);
		kv = open_copy("a", &first_redo, false);
		ck_assert_uint_eq(kv_held(kv), (uint64_t)i + 1);
		ck_assert(is_fold(kv));
		kv_close(kv);
	}
	ck_assert_int_eq(ends_with(MEM_DURABLE), 0);
	for (int i = 0; i < 2; i++) {
		damage("copy.0", i * 4096);
		damage("copy.1", i * 4096);
	}
	snprintf(path, sizeof(path), "%s/a", dir);
	ck_assert_int_eq(kv_open(&kv, path, &o, err, sizeof(err)), -EIO);
	ck_assert_ptr_nonnull(strstr(err, "no checkpoint that can be read"));
}
END_TEST

START_TEST(new_copy_begins_with_a_state_where_batches_were_trimmed)
{
	struct kv *a = open_copy("a", &first_redo, false), *b;
	struct kv_opts o = {.ko_create = true, .ko_redo = &second_redo, .ko_follow = true};
	char path[300];

	b = open_copy("b", &second_redo, true);
	for (uint32_t i = 1; i <= 30; i++)
		ck_assert_int_eq(change(a, i), 0);
	mem->m_first = 21;
	ck_assert_int_eq(follow(b), -ESTALE);
	kv_close(b);
	mem->m_base = true;
	b = open_copy("c", &second_redo, true);
	ck_assert_uint_eq(kv_held(b), 20);
	ck_assert(is_fold(b));
	ck_assert_int_eq(follow(b), 0);
	ck_assert_uint_eq(kv_held(b), 30);
	ck_assert(is_fold(b));
	kv_close(b);
	/* What was filled in part is filled from the beginning. */
	snprintf(path, sizeof(path), "%s/d", dir);
	mem->m_base_fails = true;
	ck_assert_int_eq(kv_open(&b, path, &o, err, sizeof(err)), -ECONNRESET);
	ck_assert_ptr_nonnull(strstr(err, "cannot fill the copy"));
	mem->m_base_fails = false;
	b = open_copy("d", &second_redo, true);
	ck_assert_uint_eq(kv_held(b), 20);
	ck_assert(is_fold(b));
	kv_close(b);
	kv_close(a);
}
END_TEST

static int refill(const char *name, struct kv **kv)
{
	struct kv_opts o = {.ko_redo = &second_redo,
			    .ko_follow = true,
			    .ko_refill = true,
			    .ko_map_max = 64 << 20};
	char path[300];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return kv_open(kv, path, &o, err, sizeof(err));
}

/* A follower that fell behind: it applies nothing over the gap, says so, and is filled again. */
START_TEST(copy_that_lacks_what_the_log_trimmed_is_filled_again)
{
	struct kv *a = open_copy("a", &first_redo, false), *b;
	int status;
	pid_t pid;

	for (uint32_t i = 1; i <= 30; i++)
		ck_assert_int_eq(change(a, i), 0);
	mem->m_last = 10;
	b = open_copy("b", &second_redo, true);
	ck_assert_int_eq(follow(b), 0);
	mem->m_last = 30;
	mem->m_first = 21;
	ck_assert_int_eq(follow(b), -ESTALE);
	ck_assert_ptr_nonnull(strstr(err, "holds batch 10, and the log in memory no longer has"));
	ck_assert_int_eq(kv_promote(b, err, sizeof(err)), -ESTALE);
	ck_assert_uint_eq(kv_held(b), 10);
	ck_assert(is_fold(b));
	kv_close(b);
	ck_assert_int_eq(refill("b", &b), -ENOENT);
	b = open_copy("b", &second_redo, true);
	ck_assert_uint_eq(kv_held(b), 10);
	ck_assert(is_fold(b));
	kv_close(b);
	mem->m_base = true;
	/* Also where it was not closed. */
	pid = fork();
	if (pid == 0) {
		b = open_copy("b", &second_redo, true);
		_exit(follow(b) != -ESTALE);
	}
	waitpid(pid, &status, 0);
	ck_assert_int_eq(status, 0);
	ck_assert_msg(refill("b", &b) == 0, "%s", err);
	ck_assert_uint_eq(kv_held(b), 20);
	ck_assert(is_fold(b));
	ck_assert_int_eq(follow(b), 0);
	ck_assert_uint_eq(kv_held(b), 30);
	ck_assert(is_fold(b));
	kv_close(b);
	kv_close(a);
}
END_TEST

/* The log lost a batch that a copy has, and got another under its number. The copy does not write
 * before it is filled again. */
START_TEST(copy_of_another_history_is_found_by_its_sum)
{
	struct kv *a = open_copy("a", &first_redo, false), *b = open_copy("b", &second_redo, true);

	for (uint32_t i = 1; i <= 6; i++)
		ck_assert_int_eq(change(a, i), 0);
	ck_assert_int_eq(follow(b), 0);
	ck_assert_uint_eq(kv_held(b), 6);
	kv_close(a);
	mem->m_last = 5;
	a = open_copy("c", &first_redo, false);
	ck_assert_int_eq(change(a, 7), 0);
	ck_assert_uint_eq(mem->m_last, 6);
	kv_close(a);
	ck_assert_int_eq(follow(b), 0); /* by the number it has all */
	ck_assert_int_eq(kv_promote(b, err, sizeof(err)), -ESTALE);
	ck_assert_msg(strstr(err, "the copy is of another history: its batch 6"), "%s", err);
	ck_assert_int_eq(change(b, 8), -EROFS);
	/* Where the batch was trimmed, the state for new copies shows it. */
	mem->m_base = true;
	mem->m_first = 7;
	ck_assert_int_eq(kv_promote(b, err, sizeof(err)), -ESTALE);
	ck_assert_msg(strstr(err, "the copy is of another history: its batch 6"), "%s", err);
	kv_close(b);
	ck_assert_msg(refill("b", &b) == 0, "%s", err);
	ck_assert(is_fold(b));
	ck_assert_msg(kv_promote(b, err, sizeof(err)) == 0, "%s", err);
	ck_assert_uint_eq(kv_held(b), 6);
	ck_assert_int_eq(change(b, 9), 0);
	ck_assert(is_fold(b));
	kv_close(b);
}
END_TEST

/* A log that does one thing at a time, as one with one connection does. */
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

static int locked_read(void *log, uint64_t after, kv_redo_batch_fn fn, void *arg, char *text,
		       size_t len)
{
	int rc;

	pthread_mutex_lock(&log_lock);
	rc = mem_read(log, after, fn, arg, text, len);
	pthread_mutex_unlock(&log_lock);
	return rc;
}

static void locked_trim(void *log, uint64_t upto)
{
	pthread_mutex_lock(&log_lock);
	mem_trim(log, upto);
	pthread_mutex_unlock(&log_lock);
}

static int put_large(void *arg, struct kv_txn *t)
{
	const unsigned *i = arg;
	static char val[400 << 10];
	char key[16];

	key_text(*i % KEYS, key);
	memset(val, 'a' + (int)(*i % 26), sizeof(val));
	return kv_put(t, S(key), (struct kv_slice){val, sizeof(val)});
}

/* Where the disk is full, a batch waits for a checkpoint. The checkpoints' thread needs lg_lock and
 * the log for that. */
START_TEST(follower_on_a_full_disk_waits_for_nobody_who_waits_for_it)
{
	struct kv_redo_ops locked = mem_ops;
	struct kv_redo redo = {&locked, &second_log};
	struct kv_opts o = {
		.ko_create = true, .ko_redo = &redo, .ko_follow = true, .ko_map_max = 36 << 20};
	struct kv *a = open_copy("a", &first_redo, false), *b = NULL;
	unsigned low = 0;
	char path[300];
	int rc = 0;

	locked.ro_read = locked_read;
	locked.ro_trim = locked_trim;
	o.ko_archive = 64 * MIB;
	snprintf(path, sizeof(path), "%s/b", dir);
	ck_assert_msg(kv_open(&b, path, &o, err, sizeof(err)) == 0, "%s", err);
	for (unsigned i = 0; i < 120 && low < 10 && !rc; i++) {
		ck_assert_int_eq(kv_run_sync(a, put_large, &i), 0);
		rc = follow(b);
		low += kv_low(b);
	}
	ck_assert_uint_gt(low, 0);
	ck_assert_msg(rc == 0 || rc == -ENOSPC, "%s", err);
	ck_assert(is_fold(b));
	kv_close(b);
	kv_close(a);
}
END_TEST

struct pair_check {
	struct kv *pc_kv;
	_Atomic bool pc_stop;
	_Atomic unsigned pc_looks, pc_torn;
};

static void *look_at_pairs(void *arg)
{
	struct pair_check *pc = arg;
	struct kv_txn *t;

	ck_assert_int_eq(kv_read_begin(pc->pc_kv, &t), 0);
	while (!atomic_load(&pc->pc_stop)) {
		struct kv_slice a, b;
		int ra, rb;

		ck_assert_int_eq(kv_read_renew(t), 0);
		ra = kv_get(t, S("k001"), &a);
		rb = kv_get(t, S("k059"), &b);
		pc->pc_torn += ra != rb || (ra == 0 && (a.s_len != b.s_len ||
							memcmp(a.s_data, b.s_data, a.s_len) != 0));
		pc->pc_looks++;
	}
	kv_read_end(t);
	return NULL;
}

START_TEST(readers_of_a_follower_see_whole_batches)
{
	struct kv *a = open_copy("a", &first_redo, false), *b = open_copy("b", &second_redo, true);
	struct pair_check pc = {.pc_kv = b};
	pthread_t thread;
	char text[64];

	pthread_create(&thread, NULL, look_at_pairs, &pc);
	for (unsigned i = 0; i < 300 || pc.pc_looks < 1000; i++) {
		snprintf(text, sizeof(text), "+k001=%u +k059=%u", i, i);
		ck_assert_int_eq(script(a, text), 0);
		ck_assert_int_eq(follow(b), 0);
		if (i == MEM_BATCHES - 10)
			break;
	}
	atomic_store(&pc.pc_stop, true);
	pthread_join(thread, NULL);
	ck_assert_uint_gt(pc.pc_looks, 0);
	ck_assert_uint_eq(pc.pc_torn, 0);
	kv_close(b);
	kv_close(a);
}
END_TEST

/* The model: three copies, each a process, that crash, follow, take over and write. */

enum what { FOLLOW, PROMOTE, CHANGE, CLOSE };
struct order {
	enum what o_what;
	struct change o_change;
};
struct answer {
	int a_rc;
	uint64_t a_held;
	uint8_t a_sum[32];
	char a_err[200];
};
struct copy {
	pid_t c_pid; /* 0: it is down */
	int c_fd;
	bool c_writes;
};
static struct copy copies[3];
static struct {
	unsigned seed;
	uint32_t next;
	uint8_t told[OPS]; /* 1: done; 2: refused; 0: no answer */
	unsigned crashes, takeovers, deposed, lost;
	const char *wrong; /* what a copy was found to be */
} model;

static struct answer obey(struct kv *kv, const struct order *o)
{
	struct answer a = {.a_rc = 0};

	switch (o->o_what) {
	case FOLLOW:
		a.a_rc = kv_follow(kv, a.a_err, sizeof(a.a_err));
		break;
	case PROMOTE:
		a.a_rc = kv_promote(kv, a.a_err, sizeof(a.a_err));
		break;
	case CHANGE:
		a.a_rc = kv_run_sync(kv, run_change, (void *)&o->o_change);
		break;
	case CLOSE:
		break;
	}
	pairs_of_store(kv, a.a_sum, &a.a_held);
	return a;
}

/* left: calls until a power cut (power) or a kill; 0: none. */
static void copy_process(unsigned i, int fd, bool writes, long left, bool power)
{
	struct mem_log log = {.ml_who = i};
	struct kv_redo redo = {&mem_ops, &log};
	char name[8] = {(char)('a' + i)};
	struct answer a = {.a_rc = 0};
	struct order o;
	struct kv *kv;

	log_set_level((enum log_level) - 1);
	sim.on = true;
	sim.left = left;
	sim.seed = model.seed + model.next;
	if (power)
		snprintf(sim.to, sizeof(sim.to), "%.200s/%c.cut", dir, name[0]);
	kv = open_copy(name, &redo, !writes);
	pairs_of_store(kv, a.a_sum, &a.a_held);
	if (write(fd, &a, sizeof(a)) != sizeof(a))
		_exit(1);
	while (read(fd, &o, sizeof(o)) == sizeof(o)) {
		a = obey(kv, &o);
		if (o.o_what == CLOSE)
			kv_close(kv);
		if (write(fd, &a, sizeof(a)) != sizeof(a))
			_exit(1);
		if (o.o_what == CLOSE)
			_exit(0);
	}
	_exit(1);
}

static void copy_gone(unsigned i)
{
	struct copy *c = &copies[i];
	char cmd[1500], n = (char)('a' + i);
	int status;

	ck_assert_int_eq(waitpid(c->c_pid, &status, 0), c->c_pid);
	ck_assert_msg((WIFEXITED(status) && (WEXITSTATUS(status) == 9 || WEXITSTATUS(status) == 0 ||
					     WEXITSTATUS(status) == EX_TEMPFAIL)) ||
			      (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL),
		      "seed %u, mutation %u, copy %c: status %x", model.seed, model.next, n,
		      status);
	model.deposed += WIFEXITED(status) && WEXITSTATUS(status) == EX_TEMPFAIL;
	close(c->c_fd);
	c->c_pid = 0;
	c->c_writes = false;
	/* What a power cut left, with the files that were not written to. */
	snprintf(cmd, sizeof(cmd),
		 "cd %s && if [ -e %c.cut/data.mdb ]; then for f in data.mdb copy.0 copy.1; do "
		 "[ ! -e %c/$f ] || [ -e %c.cut/$f ] || cp --sparse=always %c/$f %c.cut/$f; done; "
		 "rm -rf %c; mv %c.cut %c; fi; mkdir -p %c.cut",
		 dir, n, n, n, n, n, n, n, n, n);
	ck_assert_int_eq(system(cmd), 0);
}

static bool hear(unsigned i, struct answer *a)
{
	if (read(copies[i].c_fd, a, sizeof(*a)) == sizeof(*a))
		return true;
	model.crashes++;
	copy_gone(i);
	return false;
}

/* A copy is at any time what the log makes, up to the batch that it holds. */
static void check_answer(const struct answer *a)
{
	static struct fold f;
	uint8_t sum[32];

	if (a->a_held > mem->m_last) {
		model.wrong = "a copy holds what the log lacks";
		return;
	}
	if (!fold_upto(a->a_held, &f))
		model.wrong = "the log is no chain";
	pairs_of_fold(&f, sum);
	if (memcmp(sum, a->a_sum, sizeof(sum)))
		model.wrong = "a copy is not what the log makes";
}

static bool start_copy(unsigned i, bool writes, long left, bool power)
{
	struct copy *c = &copies[i];
	struct answer a;
	char file[300];
	int fd[2];

	/* A disk that loses a file's name is not played. */
	snprintf(file, sizeof(file), "%s/%c/copy.1", dir, 'a' + (int)i);
	if (access(file, F_OK))
		left = 0;
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd), 0);
	c->c_pid = fork();
	if (c->c_pid == 0) {
		close(fd[0]);
		for (unsigned k = 0; k < 3; k++)
			if (k != i && copies[k].c_pid)
				close(copies[k].c_fd);
		copy_process(i, fd[1], writes, left, power);
	}
	close(fd[1]);
	c->c_fd = fd[0];
	if (!hear(i, &a))
		return false;
	c->c_writes = writes;
	check_answer(&a);
	return true;
}

static bool order(unsigned i, struct order o, struct answer *a)
{
	if (write(copies[i].c_fd, &o, sizeof(o)) != sizeof(o))
		ck_assert_int_eq(errno, EPIPE);
	if (!hear(i, a))
		return false;
	if (o.o_what != CHANGE)
		ck_assert_msg(a->a_rc == 0, "seed %u, copy %u: %s", model.seed, i, a->a_err);
	check_answer(a);
	if (o.o_what == CLOSE)
		copy_gone(i);
	return true;
}

static void change_by(unsigned i, unsigned *s)
{
	static const enum mem_append how[] = {MEM_FAIL,	       MEM_FAIL,   MEM_STOPPED_IN,
					      MEM_STOPPED_OUT, MEM_DIE_IN, MEM_DIE_OUT,
					      MEM_DEPOSED};
	struct order o = {CHANGE, {model.seed, model.next++}};
	struct answer a;

	ck_assert_uint_lt(model.next, OPS);
	mem->m_next = rand_r(s) % 25 ? MEM_DURABLE : how[rand_r(s) % 7];
	if (order(i, o, &a))
		model.told[o.o_change.i] = a.a_rc ? 2 : 1;
	mem->m_next = MEM_DURABLE;
}

static void up_step(unsigned i, unsigned *s)
{
	struct copy *c = &copies[i];
	unsigned what = (unsigned)rand_r(s) % 100;
	struct answer a;

	if (what < 3) {
		kill(c->c_pid, SIGKILL);
		hear(i, &a);
	} else if (what < 6) {
		order(i, (struct order){.o_what = CLOSE}, &a);
	} else if (c->c_writes) {
		for (int n = 1 + rand_r(s) % 12; n > 0 && c->c_pid; n--)
			change_by(i, s);
	} else if (what < 75) {
		order(i, (struct order){.o_what = FOLLOW}, &a);
	} else if (order(i, (struct order){.o_what = PROMOTE}, &a)) {
		ck_assert_uint_eq(a.a_held, mem->m_last);
		c->c_writes = true;
		model.takeovers++;
	}
}

/* What all copies have behind a checkpoint goes from the log, now and then; one copy is lost. */
static void trim_step(unsigned *s)
{
	uint64_t least = UINT64_MAX;
	unsigned i = (unsigned)rand_r(s) % 3;
	char cmd[400];

	for (unsigned k = 0; k < 3; k++)
		least = mem->m_trim[k] < least ? mem->m_trim[k] : least;
	if (least + 1 > mem->m_first) {
		mem->m_first = least + 1;
		mem->m_base = true;
	}
	if (copies[i].c_pid || rand_r(s) % 8)
		return;
	snprintf(cmd, sizeof(cmd), "rm -rf %s/%c", dir, 'a' + (int)i);
	ck_assert_int_eq(system(cmd), 0);
	mem->m_trim[i] = mem->m_first - 1;
	model.lost++;
}

/* All copies follow to the end: they are equal, and are the log's fold. Nothing that was answered
 * is missing, nothing that was refused is there, and nothing is there twice. Returns what is
 * wrong. */
static const char *final_check(void)
{
	static struct fold f;
	struct answer a[3];

	if (model.wrong)
		return model.wrong;

	for (unsigned i = 0; i < 3; i++) {
		if (!copies[i].c_pid)
			ck_assert(start_copy(i, false, 0, false));
		if (copies[i].c_writes || !order(i, (struct order){.o_what = FOLLOW}, &a[i])) {
			if (copies[i].c_pid)
				order(i, (struct order){.o_what = CLOSE}, &a[i]);
			ck_assert(start_copy(i, false, 0, false));
			ck_assert(order(i, (struct order){.o_what = FOLLOW}, &a[i]));
		}
		if (model.wrong)
			return model.wrong;
		if (a[i].a_held != mem->m_last || memcmp(a[i].a_sum, a[0].a_sum, 32))
			return "copies differ";
	}
	if (model.wrong || !fold_upto(mem->m_last, &f))
		return model.wrong ? model.wrong : "the log is no chain";
	for (uint32_t k = 0; k < model.next; k++) {
		if (model.told[k] == 1 && !f.f_seen[k])
			return "a mutation that was answered is not in the log";
		if (model.told[k] == 2 && f.f_seen[k])
			return "a mutation that was refused is in the log";
		if (f.f_seen[k] > 1)
			return "a mutation is there twice";
	}
	return NULL;
}

static void end_copies(void)
{
	struct answer a;

	for (unsigned i = 0; i < 3; i++)
		if (copies[i].c_pid)
			order(i, (struct order){.o_what = CLOSE}, &a);
}

static void begin_copies(unsigned seed)
{
	char cmd[400];

	model.seed = seed;
	model.next = 1;
	snprintf(cmd, sizeof(cmd), "cd %s && mkdir a.cut b.cut c.cut", dir);
	ck_assert_int_eq(system(cmd), 0);
}

START_TEST(copies_are_the_log_through_crashes_and_takeovers)
{
	const char *env = getenv("KV_COPY_SEED"), *many = getenv("KV_COPY_STEPS"), *wrong;
	unsigned seed = env ? (unsigned)atol(env) : (unsigned)time(NULL) ^ (unsigned)getpid();
	unsigned s = seed, steps = many ? (unsigned)atol(many) : 160;

	fprintf(stderr, "# copies: KV_COPY_SEED=%u\n", seed);
	begin_copies(seed);
	for (unsigned n = 0; n < steps && mem->m_last < MEM_BATCHES - 20 && !model.wrong; n++) {
		unsigned i = (unsigned)rand_r(&s) % 3;

		trim_step(&s);
		if (copies[i].c_pid)
			up_step(i, &s);
		else
			start_copy(i, rand_r(&s) % 4 == 0,
				   rand_r(&s) % 2 ? 1 + rand_r(&s) % 400 : 0, rand_r(&s) % 2);
	}
	wrong = final_check();
	ck_assert_msg(!wrong, "seed %u: %s", seed, wrong);
	end_copies();
	fprintf(stderr,
		"# %u mutations, %lu batches, %u crashes, %u takeovers, %u ended unanswered, %u "
		"copies made again\n",
		model.next, (unsigned long)mem->m_last, model.crashes, model.takeovers,
		model.deposed, model.lost);
	ck_assert_uint_gt(model.crashes, 0);
	ck_assert_uint_gt(model.takeovers, 0);
}
END_TEST

/* A copy that writes, and has made five changes. */
static void five_changes(void)
{
	struct answer a;

	begin_copies(5);
	ck_assert(start_copy(0, true, 0, false));
	for (unsigned i = 0; i < 5; i++) {
		struct order o = {CHANGE, {5, model.next++}};

		ck_assert(order(0, o, &a));
		model.told[o.o_change.i] = 1;
	}
	ck_assert_ptr_null(final_check());
	ck_assert(order(0, (struct order){.o_what = PROMOTE}, &a));
}

static void change_that_is_lost(bool kills)
{
	struct order o = {CHANGE, {5, model.next++}};
	struct answer a;

	mem->m_next = MEM_LIE;
	ck_assert(order(0, o, &a));
	ck_assert_int_eq(a.a_rc, 0);
	model.told[o.o_change.i] = 1;
	if (kills) {
		kill(copies[0].c_pid, SIGKILL);
		hear(0, &a);
	} else {
		order(0, (struct order){.o_what = CLOSE}, &a);
	}
}

/* Planted: the log says durable before it is so. */
START_TEST(answer_before_durable_is_found)
{
	char cmd[400];

	five_changes();
	change_that_is_lost(true);
	model.wrong = NULL;
	snprintf(cmd, sizeof(cmd), "rm -r %s/a", dir);
	ck_assert_int_eq(system(cmd), 0);
	ck_assert_str_eq(final_check(), "a mutation that was answered is not in the log");
	end_copies();
}
END_TEST

/* The copy that has such a batch does not write. */
START_TEST(copy_that_holds_what_the_log_lacks_is_found)
{
	struct kv_opts o = {.ko_redo = &first_redo};
	struct kv *kv = NULL;
	char path[300];

	five_changes();
	change_that_is_lost(false);
	ck_assert_str_eq(model.wrong, "a copy holds what the log lacks");
	snprintf(path, sizeof(path), "%s/a", dir);
	ck_assert_int_eq(kv_open(&kv, path, &o, err, sizeof(err)), -ESTALE);
	ck_assert_msg(strstr(err, "holds batch 6, and the log in memory ends at batch 5") != NULL,
		      "%s", err);
	end_copies();
}
END_TEST

/* Planted: a copy's checker that sees another state. */
START_TEST(copy_that_differs_is_found)
{
	struct answer a;

	five_changes();
	ck_assert(order(1, (struct order){.o_what = FOLLOW}, &a));
	check_answer(&a);
	ck_assert_ptr_null(model.wrong);
	a.a_held--;
	check_answer(&a);
	ck_assert_str_eq(model.wrong, "a copy is not what the log makes");
	end_copies();
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("kv copies");
	TCase *c = tcase_create("copies"), *m = tcase_create("model");

	tcase_add_checked_fixture(c, mem_setup, teardown);
	tcase_set_timeout(c, 120);
	tcase_add_test(c, batches_count_by_one_and_are_read_again);
	tcase_add_test(c, batch_that_the_log_refuses_is_nowhere);
	tcase_add_test(c, writer_that_is_not_sure_answers_nothing);
	tcase_add_test(c, follower_follows_refuses_changes_and_takes_over);
	tcase_add_test(c, follower_does_a_batch_once_and_only_what_follows);
	tcase_add_test(c, store_of_one_kind_is_refused_with_the_other);
	tcase_add_test(c, copy_is_read_only_after_it_was_closed);
	tcase_add_test(c, damaged_header_of_a_copy_has_a_second_one);
	tcase_add_test(c, new_copy_begins_with_a_state_where_batches_were_trimmed);
	tcase_add_test(c, copy_that_lacks_what_the_log_trimmed_is_filled_again);
	tcase_add_test(c, copy_of_another_history_is_found_by_its_sum);
	tcase_add_test(c, follower_on_a_full_disk_waits_for_nobody_who_waits_for_it);
	tcase_add_test(c, readers_of_a_follower_see_whole_batches);
	suite_add_tcase(s, c);
	tcase_add_checked_fixture(m, mem_setup, teardown);
	tcase_set_timeout(m, getenv("KV_COPY_STEPS") ? 3000 : 240);
	tcase_add_test(m, copies_are_the_log_through_crashes_and_takeovers);
	tcase_add_test(m, answer_before_durable_is_found);
	tcase_add_test(m, copy_that_holds_what_the_log_lacks_is_found);
	tcase_add_test(m, copy_that_differs_is_found);
	suite_add_tcase(s, m);
	return s;
}

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	if (!getenv("TMPDIR") && access("/dev/shm", W_OK) == 0)
		setenv("TMPDIR", "/dev/shm", 1);
	return unit_run(suite());
}
