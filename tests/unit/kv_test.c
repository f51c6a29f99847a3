/* kv_test.c - the store keeps kv.h's contract. */
#include "base/log.h"
#include "kv/kv.h"
#include "tests/unit/unit.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <lmdb.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <urcu/compiler.h>

#define MIB (1ull << 20)

/* Disk faults: these stand before libc's for LMDB as well. It writes runs of pages by writev, one
 * page by pwrite. */
static _Atomic int fail_sync, fail_data, fail_meta;

int fdatasync(int fd)
{
	if (fail_sync) {
		errno = fail_sync;
		return -1;
	}
	return fsync(fd);
}

ssize_t pwrite(int fd, const void *buf, size_t n, off_t at)
{
	static ssize_t (*real)(int, const void *, size_t, off_t);
	int fail = at < 8192 ? fail_meta : fail_data;

	if (fail) {
		errno = fail;
		return -1;
	}
	if (!real)
		real = (ssize_t(*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite");
	return real(fd, buf, n, at);
}

ssize_t writev(int fd, const struct iovec *v, int n)
{
	static ssize_t (*real)(int, const struct iovec *, int);

	if (fail_data) {
		errno = fail_data;
		return -1;
	}
	if (!real)
		real = (ssize_t(*)(int, const struct iovec *, int))dlsym(RTLD_NEXT, "writev");
	return real(fd, v, n);
}

/* Common */

static char dir[256];
static char err[512];
static const struct kv_opts create = {.ko_create = true};

static struct kv_slice S(const char *s) {
	return (struct kv_slice){s, strlen(s)};
}

static void setup(void)
{
	ck_assert(scratch_make(dir, sizeof(dir), "kv_test"));
	fail_sync = fail_data = fail_meta = 0;
}

static void teardown(void)
{
	scratch_remove(dir);
}

static struct kv *open_kv(const struct kv_opts *o)
{
	struct kv *kv = NULL;
	int rc = kv_open(&kv, dir, o, err, sizeof(err));

	ck_assert_msg(rc == 0, "%d: %s", rc, err);
	return kv;
}

/* A mutation written as a string: "+key=value" puts, "-key" deletes, "!" returns -EPERM; separated
 * by spaces. */
static int run_script(void *arg, struct kv_txn *t)
{
	char *text = strdup(arg), *save, *w;
	int rc = 0;

	for (w = strtok_r(text, " ", &save); w && rc == 0; w = strtok_r(NULL, " ", &save)) {
		char *val = strchr(w, '=');

		if (val)
			*val++ = 0;
		if (*w == '+')
			rc = kv_put(t, S(w + 1), S(val));
		else if (*w == '-')
			rc = kv_del(t, S(w + 1));
		else
			rc = -EPERM;
	}
	free(text);
	return rc;
}

static int script(struct kv *kv, const char *text)
{
	return kv_run_sync(kv, run_script, (void *)text);
}

static bool txn_has(struct kv_txn *t, const char *key, const char *val)
{
	struct kv_slice v;
	int rc = kv_get(t, S(key), &v);

	ck_assert(rc == 0 || rc == -ENOENT);
	return rc == 0 && v.s_len == strlen(val) && memcmp(v.s_data, val, v.s_len) == 0;
}

static bool has(struct kv *kv, const char *key, const char *val)
{
	struct kv_txn *t;
	bool yes;

	ck_assert_int_eq(kv_read_begin(kv, &t), 0);
	yes = txn_has(t, key, val);
	kv_read_end(t);
	return yes;
}

/* The keys a scan gives, with commas. */
static const char *scan(struct kv_txn *t, const char *prefix, const char *from)
{
	static char out[4096];
	struct kv_slice k, v;
	struct kv_scan sc;
	size_t n = 0;
	int rc;

	out[0] = 0;
	ck_assert_int_eq(kv_scan_begin(t, S(prefix), S(from), &sc), 0);
	while ((rc = kv_scan_next(&sc, &k, &v)) == 1)
		n += (size_t)snprintf(out + n, sizeof(out) - n, "%.*s,", (int)k.s_len,
				      (const char *)k.s_data);
	ck_assert_int_eq(rc, 0);
	ck_assert_int_eq(kv_scan_next(&sc, &k, &v), 0);
	kv_scan_end(&sc);
	return out;
}

/* A loop on a thread of its own. */
struct runner {
	struct loop *r_loop;
	pthread_t r_thread;
};

static void *runner_main(void *arg)
{
	loop_run(((struct runner *)arg)->r_loop);
	return NULL;
}

static void runner_start(struct runner *r)
{
	ck_assert_int_eq(loop_create(&r->r_loop, 256), 0);
	ck_assert_int_eq(pthread_create(&r->r_thread, NULL, runner_main, r), 0);
}

static void runner_stop(struct runner *r)
{
	loop_stop(r->r_loop);
	pthread_join(r->r_thread, NULL);
	loop_destroy(r->r_loop);
}

/* A scripted operation, answered on a loop (or on the committer thread, loop NULL). */
struct job {
	struct kv_op j_op;
	char j_text[64];
	int j_result, j_turn; /* the answer; which answer it was */
	struct loop *j_on;
	sem_t *j_sem;
};
static _Atomic int turns;

static int job_run(struct kv_op *op, struct kv_txn *t)
{
	return run_script(caa_container_of(op, struct job, j_op)->j_text, t);
}

static void job_done(struct kv_op *op, int rc)
{
	struct job *j = caa_container_of(op, struct job, j_op);

	j->j_result = rc;
	j->j_on = loop_self();
	j->j_turn = turns++;
	sem_post(j->j_sem);
}

static struct job *submit(struct kv *kv, struct loop *loop, sem_t *sem, const char *text)
{
	struct job *j = calloc(1, sizeof(*j));

	snprintf(j->j_text, sizeof(j->j_text), "%s", text);
	j->j_sem = sem;
	j->j_result = 1;
	j->j_op = (struct kv_op){.o_run = job_run, .o_done = job_done, .o_loop = loop};
	kv_submit(kv, &j->j_op);
	return j;
}

static void await(sem_t *sem, int n)
{
	while (n-- > 0)
		while (sem_wait(sem) < 0)
			ck_assert_int_eq(errno, EINTR);
}

/* Holds the committer inside a batch, so that what is submitted meanwhile is in that batch too. */
struct gate {
	struct kv_op g_op;
	sem_t g_in, g_open;
};

static int gate_run(struct kv_op *op, struct kv_txn *t)
{
	struct gate *g = caa_container_of(op, struct gate, g_op);

	(void)t;
	sem_post(&g->g_in);
	await(&g->g_open, 1);
	return 0;
}

static void gate_done(struct kv_op *op, int rc)
{
	(void)op, (void)rc;
}

static void gate_close(struct kv *kv, struct gate *g)
{
	*g = (struct gate){.g_op = {.o_run = gate_run, .o_done = gate_done}};
	sem_init(&g->g_in, 0, 0);
	sem_init(&g->g_open, 0, 0);
	kv_submit(kv, &g->g_op);
	await(&g->g_in, 1);
}

static void gate_open(struct gate *g)
{
	sem_post(&g->g_open);
}

/* Reads and writes */

START_TEST(put_get_del)
{
	struct kv *kv = open_kv(&create);

	ck_assert_int_eq(script(kv, "+a=1 +b=2"), 0);
	ck_assert(has(kv, "a", "1") && has(kv, "b", "2") && !has(kv, "c", ""));
	ck_assert_int_eq(script(kv, "+a=3 -b"), 0);
	ck_assert(has(kv, "a", "3") && !has(kv, "b", "2"));
	ck_assert_int_eq(script(kv, "-b"), -ENOENT);
	kv_close(kv);
	kv = open_kv(&(struct kv_opts){0});
	ck_assert(has(kv, "a", "3"));
	kv_close(kv);
}
END_TEST

static int run_limits(void *arg, struct kv_txn *t)
{
	static char big[KV_VALUE_MAX + 1], key[KV_KEY_MAX + 1];
	struct kv_slice k = {key, KV_KEY_MAX}, v = {big, KV_VALUE_MAX};

	(void)arg;
	memset(key, 'k', sizeof(key));
	memset(big, 'v', sizeof(big));
	ck_assert_int_eq(kv_put(t, S(""), v), -EINVAL);
	ck_assert_int_eq(kv_put(t, (struct kv_slice){key, KV_KEY_MAX + 1}, v), -EINVAL);
	ck_assert_int_eq(kv_put(t, k, (struct kv_slice){big, KV_VALUE_MAX + 1}), -EINVAL);
	ck_assert_int_eq(kv_put(t, (struct kv_slice){"\0weft", 5}, v), -EINVAL);
	ck_assert_int_eq(kv_del(t, (struct kv_slice){"\0weft", 5}), -EINVAL);
	ck_assert_int_eq(kv_put(t, k, v), 0);
	ck_assert_int_eq(kv_put(t, (struct kv_slice){"\0weft!", 6}, S("")), 0);
	ck_assert_int_eq(kv_get(t, k, &v), 0);
	ck_assert(v.s_len == KV_VALUE_MAX && memcmp(v.s_data, big, v.s_len) == 0);
	ck_assert_int_eq(kv_get(t, (struct kv_slice){"\0weft!", 6}, &v), 0);
	ck_assert_uint_eq(v.s_len, 0);
	return 0;
}

START_TEST(limits_of_keys_and_values)
{
	struct kv *kv = open_kv(&create);
	struct kv_slice v;
	struct kv_txn *t;

	ck_assert_int_eq(kv_run_sync(kv, run_limits, NULL), 0);
	ck_assert_int_eq(kv_read_begin(kv, &t), 0);
	ck_assert_int_eq(kv_get(t, (struct kv_slice){"\0weft", 5}, &v), -EINVAL);
	ck_assert_int_eq(kv_put(t, S("a"), S("b")), -EROFS);
	ck_assert_int_eq(kv_del(t, S("a")), -EROFS);
	kv_read_end(t);
	kv_close(kv);
}
END_TEST

START_TEST(keys_are_ordered_by_bytes)
{
	struct kv *kv = open_kv(&create);
	struct kv_txn *t;

	ck_assert_int_eq(script(kv, "+b=1 +a\xff=2 +ab=3 +a=4 +\x80=5 +B=6 +aa=7"), 0);
	ck_assert_int_eq(kv_read_begin(kv, &t), 0);
	ck_assert_str_eq(scan(t, "", ""), "B,a,aa,ab,a\xff,b,\x80,");
	kv_read_end(t);
	kv_close(kv);
}
END_TEST

START_TEST(scan_keeps_to_prefix_and_from)
{
	struct kv *kv = open_kv(&create);
	struct kv_txn *t;

	ck_assert_int_eq(script(kv, "+a=1 +b=1 +b1=1 +b2=1 +b22=1 +b\xff=1 +b\xff\xff=1 +c=1"), 0);
	ck_assert_int_eq(kv_read_begin(kv, &t), 0);
	ck_assert_str_eq(scan(t, "b", ""), "b,b1,b2,b22,b\xff,b\xff\xff,");
	ck_assert_str_eq(scan(t, "b", "a"), "b,b1,b2,b22,b\xff,b\xff\xff,");
	ck_assert_str_eq(scan(t, "b", "b"), "b,b1,b2,b22,b\xff,b\xff\xff,");
	ck_assert_str_eq(scan(t, "b", "b2"), "b2,b22,b\xff,b\xff\xff,");
	ck_assert_str_eq(scan(t, "b", "b21"), "b22,b\xff,b\xff\xff,");
	ck_assert_str_eq(scan(t, "b\xff", ""), "b\xff,b\xff\xff,");
	ck_assert_str_eq(scan(t, "b", "c"), "");
	ck_assert_str_eq(scan(t, "b3", ""), "");
	ck_assert_str_eq(scan(t, "", "b\xff\xff"), "b\xff\xff,c,");
	ck_assert_str_eq(scan(t, "", "d"), "");
	ck_assert_str_eq(scan(t, "c", "c"), "c,");
	ck_assert_str_eq(scan(t, "d", ""), "");
	kv_read_end(t);
	kv_close(kv);
}
END_TEST

START_TEST(scan_of_an_empty_store_finds_nothing)
{
	struct kv *kv = open_kv(&create);
	struct kv_txn *t;

	ck_assert_int_eq(kv_read_begin(kv, &t), 0);
	ck_assert_str_eq(scan(t, "", ""), "");
	ck_assert_str_eq(scan(t, "x", ""), "");
	kv_read_end(t);
	kv_close(kv);
}
END_TEST

START_TEST(two_scans_of_one_handle_do_not_disturb_each_other)
{
	struct kv *kv = open_kv(&create);
	struct kv_scan one, two;
	struct kv_slice k, v;
	struct kv_txn *t;

	ck_assert_int_eq(script(kv, "+a=1 +b=1 +c=1"), 0);
	ck_assert_int_eq(kv_read_begin(kv, &t), 0);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(kv_scan_begin(t, S(""), S(""), &one), 0);
		ck_assert_int_eq(kv_scan_next(&one, &k, &v), 1);
		ck_assert_int_eq(kv_scan_begin(t, S(""), S("c"), &two), 0);
		ck_assert_int_eq(kv_scan_next(&two, &k, &v), 1);
		ck_assert_int_eq(kv_scan_next(&two, &k, &v), 0);
		ck_assert_int_eq(kv_scan_next(&one, &k, &v), 1);
		ck_assert(k.s_len == 1 && *(const char *)k.s_data == 'b');
		kv_scan_end(&two);
		kv_scan_end(&one);
		ck_assert_int_eq(kv_read_renew(t), 0);
	}
	kv_read_end(t);
	kv_close(kv);
}
END_TEST

START_TEST(snapshot_stays_and_renew_sees_the_commit)
{
	struct kv *kv = open_kv(&create);
	struct kv_slice v;
	struct kv_scan sc;
	struct kv_txn *t;

	ck_assert_int_eq(script(kv, "+a=1 +b=1"), 0);
	ck_assert_int_eq(kv_read_begin(kv, &t), 0);
	for (int i = 0; i < 50; i++) {
		ck_assert_int_eq(script(kv, "+a=2 -b +c=2"), 0);
		ck_assert_int_eq(script(kv, "+b=2 -c"), 0);
	}
	ck_assert(txn_has(t, "a", "1") && txn_has(t, "b", "1"));
	ck_assert_str_eq(scan(t, "", ""), "a,b,");
	ck_assert_int_eq(kv_read_renew(t), 0);
	ck_assert(txn_has(t, "a", "2") && txn_has(t, "b", "2"));
	kv_read_reset(t);
	kv_read_reset(t);
	ck_assert_int_eq(kv_get(t, S("a"), &v), -EINVAL);
	ck_assert_int_eq(kv_scan_begin(t, S(""), S(""), &sc), -EINVAL);
	ck_assert_int_eq(script(kv, "+d=1"), 0);
	ck_assert_int_eq(kv_read_renew(t), 0);
	ck_assert_str_eq(scan(t, "", ""), "a,b,d,");
	kv_read_end(t);
	kv_close(kv);
}
END_TEST

static int run_own_writes(void *arg, struct kv_txn *t)
{
	(void)arg;
	ck_assert_int_eq(kv_put(t, S("x"), S("new")), 0);
	ck_assert(txn_has(t, "x", "new"));
	ck_assert_str_eq(scan(t, "", ""), "w,x,");
	ck_assert_int_eq(kv_del(t, S("w")), 0);
	ck_assert(!txn_has(t, "w", "1"));
	ck_assert_str_eq(scan(t, "", ""), "x,");
	return 0;
}

START_TEST(mutation_sees_its_own_writes)
{
	struct kv *kv = open_kv(&create);

	ck_assert_int_eq(script(kv, "+w=1"), 0);
	ck_assert_int_eq(kv_run_sync(kv, run_own_writes, NULL), 0);
	kv_close(kv);
}
END_TEST

/* Batches */

struct flood {
	struct kv *f_kv;
	struct loop *f_loop;
	struct loop_msg f_msg;
	struct job *f_jobs[1000];
	sem_t f_sem;
};

static void flood_run(struct loop_msg *m)
{
	struct flood *f = caa_container_of(m, struct flood, f_msg);
	char text[64];

	for (int i = 0; i < 1000; i++) {
		snprintf(text, sizeof(text), "+%04d=%d", i, i);
		f->f_jobs[i] = submit(f->f_kv, f->f_loop, &f->f_sem, text);
	}
}

START_TEST(mutations_commit_in_groups_and_in_order)
{
	struct kv *kv = open_kv(&create);
	static struct flood f;
	struct kv_stats st;
	struct runner r;

	runner_start(&r);
	f = (struct flood){.f_kv = kv, .f_loop = r.r_loop, .f_msg.m_run = flood_run};
	sem_init(&f.f_sem, 0, 0);
	loop_post(r.r_loop, &f.f_msg);
	await(&f.f_sem, 1000);
	kv_stats(kv, &st);
	ck_assert_uint_eq(st.ks_ops, 1000);
	ck_assert_uint_ge(st.ks_commits, 1);
	ck_assert_uint_lt(st.ks_commits, 500);
	for (int i = 0; i < 1000; i++) {
		char key[16], val[16];

		snprintf(key, sizeof(key), "%04d", i);
		snprintf(val, sizeof(val), "%d", i);
		ck_assert(has(kv, key, val));
		ck_assert_int_eq(f.f_jobs[i]->j_result, 0);
		ck_assert_int_eq(f.f_jobs[i]->j_turn, i);
		ck_assert_ptr_eq(f.f_jobs[i]->j_on, r.r_loop);
		free(f.f_jobs[i]);
	}
	runner_stop(&r);
	kv_close(kv);
}
END_TEST

START_TEST(every_loop_gets_its_answers)
{
	enum { LOOPS = 70, JOBS = 5 }; /* more loops than the committer has places for */
	struct kv *kv = open_kv(&create);
	struct job *jobs[LOOPS][JOBS];
	struct runner r[LOOPS];
	struct gate gate;
	char text[64];
	sem_t sem;

	sem_init(&sem, 0, 0);
	for (int l = 0; l < LOOPS; l++)
		runner_start(&r[l]);
	gate_close(kv, &gate);
	for (int i = 0; i < JOBS; i++)
		for (int l = 0; l < LOOPS; l++) {
			snprintf(text, sizeof(text), "+%d-%d=x", l, i);
			jobs[l][i] = submit(kv, r[l].r_loop, &sem, text);
		}
	gate_open(&gate);
	await(&sem, LOOPS * JOBS);
	for (int l = 0; l < LOOPS; l++) {
		for (int i = 0; i < JOBS; i++) {
			ck_assert_int_eq(jobs[l][i]->j_result, 0);
			ck_assert_ptr_eq(jobs[l][i]->j_on, r[l].r_loop);
			free(jobs[l][i]);
		}
		runner_stop(&r[l]);
	}
	kv_close(kv);
}
END_TEST

START_TEST(refused_mutation_harms_nobody)
{
	struct kv *kv = open_kv(&create);
	struct kv_stats st;
	struct job *j[3];
	struct gate gate;
	sem_t sem;

	sem_init(&sem, 0, 0);
	gate_close(kv, &gate);
	j[0] = submit(kv, NULL, &sem, "+a=1");
	j[1] = submit(kv, NULL, &sem, "! +b=1");
	j[2] = submit(kv, NULL, &sem, "+c=1");
	gate_open(&gate);
	await(&sem, 3);
	ck_assert_int_eq(j[0]->j_result, 0);
	ck_assert_int_eq(j[1]->j_result, -EPERM);
	ck_assert_int_eq(j[2]->j_result, 0);
	ck_assert(has(kv, "a", "1") && !has(kv, "b", "1") && has(kv, "c", "1"));
	kv_stats(kv, &st);
	ck_assert_uint_eq(st.ks_commits, 1);
	ck_assert_uint_eq(st.ks_refused, 1);
	for (int i = 0; i < 3; i++)
		free(j[i]);
	ck_assert_int_eq(script(kv, "!"), -EPERM);
	kv_stats(kv, &st);
	ck_assert_uint_eq(st.ks_commits, 1);
	kv_close(kv);
}
END_TEST

/* a: before the failing one, b: the failing one, c: after it, run in the next batch. */
static void batch_fails(const char *failing, int want)
{
	struct kv *kv = open_kv(&create);
	struct job *j[3];
	struct gate gate;
	sem_t sem;

	ck_assert_int_eq(script(kv, "+old=1"), 0);
	sem_init(&sem, 0, 0);
	gate_close(kv, &gate);
	j[0] = submit(kv, NULL, &sem, "+a=1 -old");
	j[1] = submit(kv, NULL, &sem, "!");
	j[2] = submit(kv, NULL, &sem, failing);
	gate_open(&gate);
	await(&sem, 3);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(j[i]->j_result, want);
		free(j[i]);
	}
	ck_assert(!has(kv, "a", "1") && !has(kv, "b", "1") && has(kv, "old", "1"));
	ck_assert_int_eq(script(kv, "+c=1"), 0);
	ck_assert(has(kv, "c", "1"));
	kv_close(kv);
}

START_TEST(error_after_a_write_fails_the_whole_batch)
{
	batch_fails("+b=1 !", -EPERM);
}
END_TEST

START_TEST(absent_key_after_a_write_fails_the_whole_batch_when_returned)
{
	batch_fails("+b=1 -nothing", -ENOENT);
}
END_TEST

static int run_swallow(void *arg, struct kv_txn *t)
{
	(void)arg;
	ck_assert_int_eq(kv_put(t, S("b"), S("1")), 0);
	ck_assert_int_eq(kv_put(t, S(""), S("1")), -EINVAL);
	return 0;
}

static int run_swallow_first(void *arg, struct kv_txn *t)
{
	(void)arg;
	ck_assert_int_eq(kv_put(t, S(""), S("1")), -EINVAL);
	ck_assert_int_eq(kv_del(t, S("nothing")), -ENOENT);
	ck_assert_int_eq(kv_put(t, S("b"), S("1")), 0);
	ck_assert_int_eq(kv_del(t, S("nothing")), -ENOENT);
	return 0;
}

START_TEST(swallowed_error_after_a_write_fails_the_batch)
{
	struct kv *kv = open_kv(&create);

	ck_assert_int_eq(kv_run_sync(kv, run_swallow, NULL), -EINVAL);
	ck_assert(!has(kv, "b", "1"));
	ck_assert_int_eq(kv_run_sync(kv, run_swallow_first, NULL), 0);
	ck_assert(has(kv, "b", "1"));
	kv_close(kv);
}
END_TEST

struct seen {
	char s_text[256];
	uint64_t s_batch;
	int s_calls, s_answer;
};

static int hook(void *arg, const struct kv_writeset *ws)
{
	struct seen *s = arg;
	size_t n = 0;

	s->s_text[0] = 0;
	for (size_t i = 0; i < ws->ws_n; i++) {
		const struct kv_write *w = &ws->ws_v[i];

		n += (size_t)snprintf(s->s_text + n, sizeof(s->s_text) - n, "%c%.*s=%.*s ",
				      w->w_del ? '-' : '+', (int)w->w_key.s_len,
				      (const char *)w->w_key.s_data, (int)w->w_val.s_len,
				      (const char *)w->w_val.s_data);
	}
	s->s_batch = ws->ws_batch;
	s->s_calls++;
	return s->s_answer;
}

START_TEST(hook_sees_the_write_set_and_may_refuse)
{
	struct kv *kv = open_kv(&create);
	struct seen s = {0};
	struct gate gate;
	struct job *j[3];
	uint64_t first;
	sem_t sem;

	sem_init(&sem, 0, 0);
	kv_set_batch_hook(kv, hook, &s);
	ck_assert_int_eq(script(kv, "+a=1 +b=2"), 0);
	ck_assert_str_eq(s.s_text, "+a=1 +b=2 ");
	first = s.s_batch;
	gate_close(kv, &gate);
	j[0] = submit(kv, NULL, &sem, "-a +c=3");
	j[1] = submit(kv, NULL, &sem, "-a");
	j[2] = submit(kv, NULL, &sem, "+c=4");
	gate_open(&gate);
	await(&sem, 3);
	ck_assert_str_eq(s.s_text, "-a= +c=3 +c=4 ");
	ck_assert_uint_eq(s.s_batch, first + 1);
	ck_assert_int_eq(j[1]->j_result, -ENOENT);
	for (int i = 0; i < 3; i++)
		free(j[i]);
	ck_assert_int_eq(script(kv, "!"), -EPERM);
	ck_assert_int_eq(s.s_calls, 2);

	s.s_answer = -ESTALE;
	ck_assert_int_eq(script(kv, "+d=1"), -ESTALE);
	ck_assert(!has(kv, "d", "1"));
	s.s_answer = 0;
	ck_assert_int_eq(script(kv, "+e=1"), 0);
	ck_assert_str_eq(s.s_text, "+e=1 ");
	ck_assert_uint_eq(s.s_batch, first + 2);
	kv_close(kv);
	kv = open_kv(&create);
	kv_set_batch_hook(kv, hook, &s);
	ck_assert_int_eq(script(kv, "+f=1"), 0);
	ck_assert_uint_eq(s.s_batch, first + 3);
	kv_close(kv);
}
END_TEST

static int run_big_values(void *arg, struct kv_txn *t)
{
	static char val[100000];
	char key[16];

	(void)arg;
	for (int i = 0; i < 40; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		memset(val, 'a' + i % 26, sizeof(val));
		ck_assert_int_eq(kv_put(t, S(key), (struct kv_slice){val, sizeof(val) - (size_t)i}),
				 0);
	}
	return 0;
}

static int big_hook(void *arg, const struct kv_writeset *ws)
{
	(void)arg;
	ck_assert_uint_eq(ws->ws_n, 40);
	for (int i = 0; i < 40; i++) {
		const char *v = ws->ws_v[i].w_val.s_data;

		ck_assert_uint_eq(ws->ws_v[i].w_val.s_len, 100000 - (size_t)i);
		ck_assert(v[0] == 'a' + i % 26 && v[90000] == 'a' + i % 26);
	}
	return 0;
}

START_TEST(hook_sees_large_values)
{
	struct kv *kv = open_kv(&create);

	kv_set_batch_hook(kv, big_hook, NULL);
	ck_assert_int_eq(kv_run_sync(kv, run_big_values, NULL), 0);
	ck_assert_int_eq(kv_run_sync(kv, run_big_values, NULL), 0);
	kv_close(kv);
}
END_TEST

START_TEST(close_answers_what_was_submitted)
{
	struct kv *kv = open_kv(&create);
	struct job *j[500];
	char text[64];
	sem_t sem;
	int n;

	sem_init(&sem, 0, 0);
	for (int i = 0; i < 500; i++) {
		snprintf(text, sizeof(text), "+%d=x", i);
		j[i] = submit(kv, NULL, &sem, text);
	}
	kv_close(kv);
	sem_getvalue(&sem, &n);
	ck_assert_int_eq(n, 500);
	kv = open_kv(&create);
	for (int i = 0; i < 500; i++) {
		snprintf(text, sizeof(text), "%d", i);
		ck_assert(has(kv, text, "x"));
		free(j[i]);
	}
	kv_close(kv);
}
END_TEST

struct pusher {
	struct kv *p_kv;
	int p_id;
};

static void *push(void *arg)
{
	struct pusher *p = arg;
	char text[64];

	for (int i = 0; i < 50; i++) {
		snprintf(text, sizeof(text), "+%d-%d=x", p->p_id, i);
		ck_assert_int_eq(script(p->p_kv, text), 0);
		snprintf(text, sizeof(text), "%d-%d", p->p_id, i);
		ck_assert(has(p->p_kv, text, "x")); /* a snapshot begun after the answer sees it */
	}
	return NULL;
}

START_TEST(many_threads_submit)
{
	struct kv *kv = open_kv(&create);
	struct pusher p[16];
	pthread_t t[16];
	struct kv_stats st;

	for (int i = 0; i < 16; i++) {
		p[i] = (struct pusher){kv, i};
		pthread_create(&t[i], NULL, push, &p[i]);
	}
	for (int i = 0; i < 16; i++)
		pthread_join(t[i], NULL);
	kv_stats(kv, &st);
	ck_assert_uint_eq(st.ks_ops, 800);
	ck_assert_uint_lt(st.ks_commits, 800);
	ck_assert_uint_gt(st.ks_sync_ns, 0);
	ck_assert_uint_gt(st.ks_bytes_used, 0);
	kv_close(kv);
}
END_TEST

/* Opening */

static int open_fails(const struct kv_opts *o)
{
	struct kv *kv = NULL;
	int rc = kv_open(&kv, dir, o, err, sizeof(err));

	ck_assert_int_lt(rc, 0);
	ck_assert_ptr_null(kv);
	ck_assert_ptr_nonnull(strstr(err, dir));
	return rc;
}

START_TEST(no_store_is_not_made_unasked)
{
	char file[300];

	ck_assert_int_eq(open_fails(&(struct kv_opts){0}), -ENOENT);
	ck_assert_int_eq(open_fails(&(struct kv_opts){.ko_readonly = true}), -ENOENT);
	snprintf(file, sizeof(file), "%s/data.mdb", dir);
	ck_assert_int_eq(access(file, F_OK), -1);
	ck_assert_int_eq(rmdir(dir), 0); /* nothing was left in it */
	kv_close(open_kv(&create));
	ck_assert_int_eq(access(file, F_OK), 0);
}
END_TEST

static void raw_put(const void *key, size_t keylen, const void *val, size_t vallen)
{
	MDB_val k = {keylen, (void *)key}, v = {vallen, (void *)val};
	MDB_env *env;
	MDB_txn *txn;
	MDB_dbi dbi;

	ck_assert_int_eq(mdb_env_create(&env), 0);
	ck_assert_int_eq(mdb_env_open(env, dir, 0, 0600), 0);
	ck_assert_int_eq(mdb_txn_begin(env, NULL, 0, &txn), 0);
	ck_assert_int_eq(mdb_dbi_open(txn, NULL, 0, &dbi), 0);
	ck_assert_int_eq(mdb_put(txn, dbi, &k, &v, 0), 0);
	ck_assert_int_eq(mdb_txn_commit(txn), 0);
	mdb_env_close(env);
}

START_TEST(other_version_is_refused)
{
	kv_close(open_kv(&create));
	raw_put("\0weft", 5, "WEFT-KV\0\2\0\0\0\0\0\0\0", 16);
	ck_assert_int_eq(open_fails(&create), -EPROTO);
	ck_assert_ptr_nonnull(strstr(err, "version 2"));
	ck_assert_int_eq(open_fails(&(struct kv_opts){.ko_readonly = true}), -EPROTO);
	raw_put("\0weft", 5, "something else", 14);
	ck_assert_int_eq(open_fails(&create), -EPROTO);
}
END_TEST

START_TEST(foreign_files_are_refused)
{
	char file[300];
	FILE *f;

	raw_put("key", 3, "val", 3);
	ck_assert_int_eq(open_fails(&create), -EPROTO);
	snprintf(file, sizeof(file), "%s/data.mdb", dir);
	f = fopen(file, "w");
	for (int i = 0; i < 5000; i++)
		fputs("no store", f);
	fclose(f);
	ck_assert_int_eq(open_fails(&create), -EPROTO);
}
END_TEST

START_TEST(second_writer_is_told_who_has_it)
{
	struct kv *kv = open_kv(&create);
	char pid[32];

	ck_assert_int_eq(open_fails(&create), -EBUSY);
	snprintf(pid, sizeof(pid), "process %d", (int)getpid());
	ck_assert_ptr_nonnull(strstr(err, pid));
	ck_assert_int_eq(script(kv, "+a=1"), 0);
	kv_close(kv);
	kv_close(open_kv(&create));
}
END_TEST

/* Runs body in a child; true when it returned true there. */
static bool in_child(bool (*body)(void))
{
	pid_t pid = fork();
	int status;

	ck_assert_int_ge(pid, 0);
	if (pid == 0)
		_exit(body() ? 0 : 1);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool read_beside(void)
{
	struct kv *kv;
	bool ok;

	if (kv_open(&kv, dir, &(struct kv_opts){.ko_readonly = true}, err, sizeof(err)))
		return false;
	ok = has(kv, "a", "1") && script(kv, "+b=1") == -EROFS;
	kv_close(kv);
	return ok;
}

START_TEST(read_only_open_beside_a_writer)
{
	struct kv *kv = open_kv(&create);

	ck_assert_int_eq(script(kv, "+a=1"), 0);
	ck_assert(in_child(read_beside));
	ck_assert_int_eq(script(kv, "+b=2"), 0);
	kv_close(kv);
	kv = open_kv(&(struct kv_opts){.ko_readonly = true});
	ck_assert(has(kv, "b", "2"));
	ck_assert_int_eq(script(kv, "+c=1"), -EROFS);
	kv_close(kv);
}
END_TEST

/* Crashes and bad disks */

/* Writes numbered keys from 8 chains and tells fd each number once it was answered. Never returns.
 */
struct chain {
	struct kv_op c_op;
	struct kv *c_kv;
	int c_fd;
	uint32_t c_n;
};

static int chain_run(struct kv_op *op, struct kv_txn *t)
{
	struct chain *c = caa_container_of(op, struct chain, c_op);
	char key[32];

	snprintf(key, sizeof(key), "n%u", c->c_n);
	return kv_put(t, S(key), (struct kv_slice){key, sizeof(key)});
}

static void chain_done(struct kv_op *op, int rc)
{
	struct chain *c = caa_container_of(op, struct chain, c_op);

	if (rc || write(c->c_fd, &c->c_n, sizeof(c->c_n)) != sizeof(c->c_n))
		_exit(2);
	c->c_n += 8;
	kv_submit(c->c_kv, op);
}

static void write_chains(int fd)
{
	static struct chain c[8];
	struct runner r;
	struct kv *kv;

	if (kv_open(&kv, dir, &create, err, sizeof(err)))
		_exit(3);
	runner_start(&r);
	for (uint32_t i = 0; i < 8; i++) {
		c[i] = (struct chain){.c_kv = kv, .c_fd = fd, .c_n = i};
		c[i].c_op = (struct kv_op){
			.o_run = chain_run, .o_done = chain_done, .o_loop = r.r_loop};
		kv_submit(kv, &c[i].c_op);
	}
	for (;;)
		pause();
}

static void check_acked(int fd, size_t *acked)
{
	struct kv *kv = open_kv(&create);
	struct kv_slice v;
	struct kv_txn *t;
	uint32_t n;

	ck_assert_int_eq(kv_read_begin(kv, &t), 0);
	while (read(fd, &n, sizeof(n)) == sizeof(n)) {
		char key[32];

		snprintf(key, sizeof(key), "n%u", n);
		ck_assert_msg(kv_get(t, S(key), &v) == 0, "%s was acknowledged and is lost", key);
		++*acked;
	}
	kv_read_end(t);
	kv_close(kv);
}

START_TEST(killed_process_loses_nothing_acknowledged)
{
	size_t acked = 0;

	for (int round = 0; round < 10; round++) {
		int p[2], status;
		pid_t pid;

		ck_assert_int_eq(pipe(p), 0);
		fcntl(p[1], F_SETPIPE_SZ, 1 << 20);
		pid = fork();
		if (pid == 0) {
			close(p[0]);
			write_chains(p[1]);
		}
		close(p[1]);
		usleep(50000 + (useconds_t)round * 7000);
		kill(pid, SIGKILL);
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert_msg(WIFSIGNALED(status), "the child ended with %x", status);
		check_acked(p[0], &acked);
		close(p[0]);
	}
	ck_assert_uint_gt(acked, 10);
}
END_TEST

/* In a child, so that the folder is removed. */
static void commit_kills(_Atomic int *fault, int with)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		struct kv *kv = open_kv(&create);

		*fault = with;
		script(kv, "+b=1");
		_exit(1);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "status %x", status);
}

START_TEST(failed_sync_ends_the_process)
{
	commit_kills(&fail_sync, EIO);
}
END_TEST

START_TEST(failed_write_of_the_meta_page_ends_the_process)
{
	commit_kills(&fail_meta, ENOSPC);
}
END_TEST

START_TEST(full_disk_in_a_commit_fails_the_batch_only)
{
	struct kv *kv = open_kv(&create);

	ck_assert_int_eq(script(kv, "+a=1"), 0);
	fail_data = ENOSPC;
	ck_assert_int_eq(script(kv, "+b=1"), -ENOSPC);
	fail_data = 0;
	ck_assert(!has(kv, "b", "1"));
	ck_assert_int_eq(script(kv, "+c=1"), 0);
	ck_assert(has(kv, "a", "1") && has(kv, "c", "1"));
	kv_close(kv);
}
END_TEST

/* Mutations on a full store. Values are small, so that free pages serve them. */
struct filler {
	uint32_t f_n;
	char f_val[1000];
};

static void filler_key(char *key, uint32_t n)
{
	/* Scattered, so that deletes and updates touch many pages. */
	snprintf(key, 32, "%08x", n * 2654435761u);
}

static int run_fill(void *arg, struct kv_txn *t)
{
	struct filler *f = arg;
	char key[32];

	filler_key(key, f->f_n);
	return kv_put(t, S(key), (struct kv_slice){f->f_val, sizeof(f->f_val)});
}

static int run_fill_many(void *arg, struct kv_txn *t)
{
	struct filler *f = arg;

	for (int i = 0; i < 20; i++, f->f_n++) {
		int rc = run_fill(f, t);

		if (rc)
			return rc;
	}
	return 0;
}

static int run_unlink(void *arg, struct kv_txn *t)
{
	struct filler *f = arg;
	char key[32];
	int rc;

	filler_key(key, f->f_n);
	rc = kv_del(t, S(key));
	return rc ? rc : kv_put(t, S("parent"), S("changed"));
}

/* Fills until refused, one put each; every refusal must be clean. */
static uint32_t fill(struct kv *kv, struct filler *f)
{
	int rc;

	while ((rc = kv_run_sync(kv, run_fill_many, f)) == 0)
		;
	ck_assert_int_eq(rc, -ENOSPC);
	f->f_n -= f->f_n % 20;
	/* Bounds are looser for twenty puts at once; find the end with single ones. */
	while ((rc = kv_run_sync(kv, run_fill, f)) == 0)
		f->f_n++;
	ck_assert_int_eq(rc, -ENOSPC);
	return f->f_n;
}

static void works_while_full(struct kv *kv)
{
	struct filler f = {0}, g = {0};
	uint32_t n;
	int rc;

	ck_assert_int_eq(script(kv, "+parent=started"), 0);
	n = fill(kv, &f);
	ck_assert_uint_gt(n, 1000);
	ck_assert_int_eq(script(kv, "+new=1"), -ENOSPC);
	ck_assert_int_eq(script(kv, "+parent=lengthened"), -ENOSPC);
	ck_assert_int_eq(script(kv, "+parent=updated"), 0);
	for (int i = 0; i < 2000; i++) {
		rc = script(kv, i & 1 ? "+parent=updated" : "+parent=UPDATED");
		ck_assert_msg(rc == 0, "update %d: %d", i, rc);
	}
	/* Deletes go on to the very end, each with a put beside it. */
	for (g.f_n = 0; g.f_n < n; g.f_n++) {
		rc = kv_run_sync(kv, run_unlink, &g);
		ck_assert_msg(rc == 0, "delete %u of %u: %d", g.f_n, n, rc);
	}
	ck_assert_int_eq(script(kv, "+new=1"), 0);
	/* And what they freed can be filled again. */
	f.f_n = 0;
	ck_assert_uint_gt(fill(kv, &f), n / 2);
	ck_assert(has(kv, "parent", "changed"));
}

struct unlinker {
	struct kv_op u_op;
	struct filler u_f;
	sem_t *u_sem;
	int u_result;
};

static int unlinker_run(struct kv_op *op, struct kv_txn *t)
{
	return run_unlink(&caa_container_of(op, struct unlinker, u_op)->u_f, t);
}

static void unlinker_done(struct kv_op *op, int rc)
{
	struct unlinker *u = caa_container_of(op, struct unlinker, u_op);

	u->u_result = rc;
	sem_post(u->u_sem);
}

START_TEST(thousands_of_deletes_at_once_pass_a_full_store)
{
	enum { N = 5000 };
	struct kv_opts o = {.ko_create = true, .ko_nosync = true, .ko_map_max = 24 * MIB};
	struct unlinker *u = calloc(N, sizeof(*u));
	struct kv *kv = open_kv(&o);
	struct filler f = {0};
	struct gate gate;
	sem_t sem;

	sem_init(&sem, 0, 0);
	ck_assert_int_eq(script(kv, "+parent=started"), 0);
	ck_assert_uint_gt(fill(kv, &f), N);
	gate_close(kv, &gate);
	for (uint32_t i = 0; i < N; i++) {
		u[i].u_op = (struct kv_op){.o_run = unlinker_run, .o_done = unlinker_done};
		u[i].u_f.f_n = i;
		u[i].u_sem = &sem;
		kv_submit(kv, &u[i].u_op);
	}
	gate_open(&gate);
	await(&sem, N);
	for (uint32_t i = 0; i < N; i++)
		ck_assert_msg(u[i].u_result == 0, "delete %u: %d", i, u[i].u_result);
	kv_close(kv);
	free(u);
}
END_TEST

START_TEST(full_map_refuses_puts_and_not_deletes)
{
	struct kv_opts o = {.ko_create = true, .ko_nosync = true, .ko_map_max = 24 * MIB};
	struct kv *kv = open_kv(&o);

	works_while_full(kv);
	kv_close(kv);
}
END_TEST

static bool mount_small(const char *size)
{
	char opts[64];

	snprintf(opts, sizeof(opts), "size=%s", size);
	return unshare(CLONE_NEWNS) == 0 &&
	       mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
	       mount("kv_test", dir, "tmpfs", 0, opts) == 0;
}

START_TEST(full_disk_refuses_puts_and_not_deletes)
{
	char file[300], junk[65536];
	struct kv *kv;
	int fd;

	if (!mount_small("30m")) {
		fprintf(stderr, "kv_test: full_disk: no mount namespace to be had, skipped\n");
		return;
	}
	kv = open_kv(&create);
	works_while_full(kv);
	/* Something else eats the rest: the store has its own reserve. */
	memset(junk, 1, sizeof(junk));
	snprintf(file, sizeof(file), "%s/junk", dir);
	fd = open(file, O_CREAT | O_WRONLY, 0600);
	while (write(fd, junk, sizeof(junk)) > 0)
		;
	close(fd);
	ck_assert_int_eq(script(kv, "-parent"), 0);
	kv_close(kv);
	kv = open_kv(&create);
	ck_assert_int_eq(script(kv, "-new"), 0);
	ck_assert_int_eq(script(kv, "+y=1"), 0);
	ck_assert_int_eq(script(kv, "-y"), 0);
	kv_close(kv);
	umount(dir);
}
END_TEST

START_TEST(room_that_comes_back_is_found)
{
	char file[300];
	struct filler f = {0};
	struct kv *kv;
	uint32_t n;
	int fd;

	if (!mount_small("40m"))
		return;
	snprintf(file, sizeof(file), "%s/junk", dir);
	fd = open(file, O_CREAT | O_WRONLY, 0600);
	ck_assert_int_eq(fallocate(fd, 0, 0, 20 << 20), 0);
	close(fd);
	kv = open_kv(&create);
	n = fill(kv, &f);
	unlink(file);
	usleep(200000);
	ck_assert_int_eq(kv_run_sync(kv, run_fill, &f), 0);
	ck_assert_uint_gt(fill(kv, &f), n + 1000);
	kv_close(kv);
	umount(dir);
}
END_TEST

/* Spread is taken by bounds, not luck: a whole batch of the largest and most scattered writes never
 * takes more than charged. */
static int run_scatter(void *arg, struct kv_txn *t)
{
	static char val[5000];
	unsigned *seed = arg;
	char key[KV_KEY_MAX];

	for (int i = 0; i < 300; i++) {
		size_t klen = 8 + (size_t)rand_r(seed) % (KV_KEY_MAX - 8),
		       vlen = (size_t)rand_r(seed) % sizeof(val);
		int rc;

		memset(key, 'k', sizeof(key));
		snprintf(key, 9, "%08x", (unsigned)rand_r(seed) % 3000 * 2654435761u);
		key[8] = 'k';
		rc = rand_r(seed) % 3
			     ? kv_put(t, (struct kv_slice){key, klen}, (struct kv_slice){val, vlen})
			     : kv_del(t, (struct kv_slice){key, klen});
		if (rc && rc != -ENOENT)
			return rc;
	}
	return 0;
}

START_TEST(file_stays_ahead_of_what_is_used)
{
	struct kv_opts o = {.ko_create = true, .ko_nosync = true};
	struct kv *kv = open_kv(&o);
	unsigned seed = 1;
	char file[300];

	snprintf(file, sizeof(file), "%s/data.mdb", dir);
	for (int i = 0; i < 100; i++) {
		struct kv_stats st;
		struct stat s;

		ck_assert_int_eq(kv_run_sync(kv, run_scatter, &seed), 0);
		kv_stats(kv, &st);
		ck_assert_int_eq(stat(file, &s), 0);
		ck_assert_uint_ge((uint64_t)s.st_size, st.ks_bytes_used + 8 * MIB);
		ck_assert_uint_ge((uint64_t)s.st_blocks * 512, st.ks_bytes_used);
	}
	kv_close(kv);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("kv");
	TCase *rw = tcase_create("reads and writes"), *b = tcase_create("batches");
	TCase *o = tcase_create("opening"), *d = tcase_create("crashes and disks");

	tcase_add_checked_fixture(rw, setup, teardown);
	tcase_add_test(rw, put_get_del);
	tcase_add_test(rw, limits_of_keys_and_values);
	tcase_add_test(rw, keys_are_ordered_by_bytes);
	tcase_add_test(rw, scan_keeps_to_prefix_and_from);
	tcase_add_test(rw, scan_of_an_empty_store_finds_nothing);
	tcase_add_test(rw, two_scans_of_one_handle_do_not_disturb_each_other);
	tcase_add_test(rw, snapshot_stays_and_renew_sees_the_commit);
	tcase_add_test(rw, mutation_sees_its_own_writes);
	suite_add_tcase(s, rw);

	tcase_add_checked_fixture(b, setup, teardown);
	tcase_set_timeout(b, 60);
	tcase_add_test(b, mutations_commit_in_groups_and_in_order);
	tcase_add_test(b, every_loop_gets_its_answers);
	tcase_add_test(b, refused_mutation_harms_nobody);
	tcase_add_test(b, error_after_a_write_fails_the_whole_batch);
	tcase_add_test(b, absent_key_after_a_write_fails_the_whole_batch_when_returned);
	tcase_add_test(b, swallowed_error_after_a_write_fails_the_batch);
	tcase_add_test(b, hook_sees_the_write_set_and_may_refuse);
	tcase_add_test(b, hook_sees_large_values);
	tcase_add_test(b, close_answers_what_was_submitted);
	tcase_add_test(b, many_threads_submit);
	suite_add_tcase(s, b);

	tcase_add_checked_fixture(o, setup, teardown);
	tcase_add_test(o, no_store_is_not_made_unasked);
	tcase_add_test(o, other_version_is_refused);
	tcase_add_test(o, foreign_files_are_refused);
	tcase_add_test(o, second_writer_is_told_who_has_it);
	tcase_add_test(o, read_only_open_beside_a_writer);
	suite_add_tcase(s, o);

	tcase_add_checked_fixture(d, setup, teardown);
	tcase_set_timeout(d, 180);
	tcase_add_test(d, killed_process_loses_nothing_acknowledged);
	tcase_add_test(d, failed_sync_ends_the_process);
	tcase_add_test(d, failed_write_of_the_meta_page_ends_the_process);
	tcase_add_test(d, full_disk_in_a_commit_fails_the_batch_only);
	tcase_add_test(d, thousands_of_deletes_at_once_pass_a_full_store);
	tcase_add_test(d, full_map_refuses_puts_and_not_deletes);
	tcase_add_test(d, full_disk_refuses_puts_and_not_deletes);
	tcase_add_test(d, room_that_comes_back_is_found);
	tcase_add_test(d, file_stays_ahead_of_what_is_used);
	suite_add_tcase(s, d);
	return s;
}

int main(void)
{
	return unit_run(suite());
}
