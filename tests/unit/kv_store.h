/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_store.h - a folder for each test's store, mutations that are written as strings, and ways to
 * have many of them in one batch. Each test program has its own: all is static, and inline where
 * not every program needs it.
 */
#ifndef TESTS_UNIT_KV_STORE_H
#define TESTS_UNIT_KV_STORE_H
#include "base/log.h"
#include "kv/kv.h"
#include "tests/unit/unit.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <urcu/compiler.h>

#define MIB (1ull << 20)

static char dir[256];
static char err[512];
static const struct kv_opts create = {.ko_create = true};

static struct kv_slice S(const char *s) {
	return (struct kv_slice){s, strlen(s)};
}

static void
setup(void)
{
	ck_assert(scratch_make(dir, sizeof(dir), "kv_test"));
}

static void teardown(void)
{
	scratch_remove(dir);
}

static inline struct kv *open_kv(const struct kv_opts *o)
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

static inline int script(struct kv *kv, const char *text)
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

static inline bool has(struct kv *kv, const char *key, const char *val)
{
	struct kv_txn *t;
	bool yes;

	ck_assert_int_eq(kv_read_begin(kv, &t), 0);
	yes = txn_has(t, key, val);
	kv_read_end(t);
	return yes;
}

/* Runs body in a child; true when it returned true there. */
static inline bool in_child(bool (*body)(void))
{
	pid_t pid = fork();
	int status;

	ck_assert_int_ge(pid, 0);
	if (pid == 0)
		_exit(body() ? 0 : 1);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
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

static inline void runner_start(struct runner *r)
{
	ck_assert_int_eq(loop_create(&r->r_loop, 256), 0);
	ck_assert_int_eq(pthread_create(&r->r_thread, NULL, runner_main, r), 0);
}

static inline void runner_stop(struct runner *r)
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

static inline struct job *submit(struct kv *kv, struct loop *loop, sem_t *sem, const char *text)
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

static inline void gate_close(struct kv *kv, struct gate *g)
{
	*g = (struct gate){.g_op = {.o_run = gate_run, .o_done = gate_done}};
	sem_init(&g->g_in, 0, 0);
	sem_init(&g->g_open, 0, 0);
	kv_submit(kv, &g->g_op);
	await(&g->g_in, 1);
}

static inline void gate_open(struct gate *g)
{
	sem_post(&g->g_open);
}
#endif
