/* ask.c - see ask.h. */
#include "base/ask.h"
#include "base/hash.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ENTRIES_MAX 65536u
#define THREADS_MAX 16u

struct entry {
	struct hash_link e_link;
	struct entry *e_next, *e_prev; /* by age of the answer, the oldest first */
	struct entry *e_job;           /* next in the queue */
	bool e_asked;                  /* queued, or a worker has it */
	struct ask_val *e_val;
	uint64_t e_again_ns;           /* after a failure: not asked before */
	struct ask_wait *e_waiters;
	size_t e_len;
	uint8_t e_key[ASK_KEY_MAX];
};

struct ask {
	pthread_mutex_t a_lock;
	pthread_cond_t a_cond;
	struct hash a_entries;
	struct entry a_age;              /* head of the ring by age */
	struct entry *a_jobs, **a_jobs_end;
	bool a_ending;
	uint64_t a_keep_ns, a_generation;
	struct ask_val *(*a_fn)(void *arg, const void *key, size_t len);
	void *a_arg;
	unsigned a_nthreads;
	pthread_t a_thread[THREADS_MAX];
};

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

struct ask_val *ask_val_new(size_t len)
{
	struct ask_val *v = calloc(1, sizeof(*v) + len);

	if (!v)
		return NULL;
	atomic_init(&v->av_refs, 1);
	v->av_len = len;
	return v;
}

struct ask_val *ask_val_get(struct ask_val *v)
{
	atomic_fetch_add_explicit(&v->av_refs, 1, memory_order_relaxed);
	return v;
}

void ask_val_put(struct ask_val *v)
{
	if (v && atomic_fetch_sub_explicit(&v->av_refs, 1, memory_order_acq_rel) == 1)
		free(v);
}

/* ---- entries; all under the lock ---- */

static void age_remove(struct entry *e)
{
	e->e_prev->e_next = e->e_next;
	e->e_next->e_prev = e->e_prev;
}

static void age_add(struct ask *a, struct entry *e)
{
	e->e_prev = a->a_age.e_prev;
	e->e_next = &a->a_age;
	e->e_prev->e_next = e->e_next->e_prev = e;
}

static void entry_drop(struct ask *a, struct entry *e)
{
	hash_del(&a->a_entries, &e->e_link);
	age_remove(e);
	ask_val_put(e->e_val);
	free(e);
}

static struct entry *entry_find(struct ask *a, const void *key, size_t len)
{
	uint64_t h = hash_bytes(key, len);
	struct entry *e;

	for (struct hash_link *l = hash_first(&a->a_entries, h); l; l = hash_next(l)) {
		e = hash_entry(l, struct entry, e_link);
		if (e->e_len == len && memcmp(e->e_key, key, len) == 0)
			return e;
	}
	for (struct entry *old = a->a_age.e_next; a->a_entries.h_count >= ENTRIES_MAX && old != &a->a_age;) {
		struct entry *next = old->e_next;

		if (!old->e_asked)
			entry_drop(a, old);
		old = next;
	}
	e = calloc(1, sizeof(*e));
	if (!e || hash_add(&a->a_entries, &e->e_link, h)) {
		free(e);
		return NULL;
	}
	e->e_len = len;
	memcpy(e->e_key, key, len);
	age_add(a, e);
	return e;
}

/* May the answer that is there be given? */
static bool entry_serves(const struct ask *a, const struct entry *e, uint64_t now)
{
	if (!e->e_val)
		return false;
	return e->e_val->av_failed ? e->e_asked || now < e->e_val->av_until_ns : now < e->e_val->av_until_ns + a->a_keep_ns;
}

static void entry_ask(struct ask *a, struct entry *e)
{
	if (e->e_asked)
		return;
	e->e_asked = true;
	e->e_job = NULL;
	*a->a_jobs_end = e;
	a->a_jobs_end = &e->e_job;
	pthread_cond_signal(&a->a_cond);
}

/* ---- workers ---- */

static void wait_over(struct loop_msg *m)
{
	struct ask_wait *w = hash_entry(m, struct ask_wait, aw_msg);

	w->aw_then(w, w->aw_val);
}

static void entry_answer(struct ask *a, struct entry *e, struct ask_val *v, uint64_t generation)
{
	struct ask_wait *w = e->e_waiters;
	uint64_t now = now_ns(), failed_ns = ASK_FAILED_MS * 1000000ull;

	e->e_waiters = NULL;
	e->e_asked = false;
	if (failed_ns > a->a_keep_ns)
		failed_ns = a->a_keep_ns;
	if (v)
		v->av_until_ns = now + (v->av_failed ? failed_ns : a->a_keep_ns);
	e->e_again_ns = v && v->av_failed ? v->av_until_ns : 0;
	for (struct ask_wait *next; w; w = next) {
		next = w->aw_next;
		w->aw_val = v ? ask_val_get(v) : NULL;
		loop_post(w->aw_loop, &w->aw_msg);
	}
	if (!v)
		return;
	/* Forgotten while it was asked, or it failed, and what is known still counts. */
	if (generation != a->a_generation || (v->av_failed && e->e_val && !e->e_val->av_failed && entry_serves(a, e, now))) {
		ask_val_put(v);
		return;
	}
	ask_val_put(e->e_val);
	e->e_val = v;
	age_remove(e);
	age_add(a, e);
}

static void *worker(void *arg)
{
	struct ask *a = arg;

	pthread_mutex_lock(&a->a_lock);
	while (!a->a_ending) {
		struct entry *e = a->a_jobs;
		struct ask_val *v;
		uint64_t generation;

		if (!e) {
			pthread_cond_wait(&a->a_cond, &a->a_lock);
			continue;
		}
		a->a_jobs = e->e_job;
		if (!a->a_jobs)
			a->a_jobs_end = &a->a_jobs;
		generation = a->a_generation;
		pthread_mutex_unlock(&a->a_lock);
		v = a->a_fn(a->a_arg, e->e_key, e->e_len); /* the key never changes, and what is asked is not dropped */
		pthread_mutex_lock(&a->a_lock);
		entry_answer(a, e, v, generation);
	}
	pthread_mutex_unlock(&a->a_lock);
	return NULL;
}

/* ---- the interface ---- */

int ask_open(struct ask **out, unsigned threads, uint32_t keep_ms, struct ask_val *(*fn)(void *arg, const void *key, size_t len), void *arg)
{
	struct ask *a = calloc(1, sizeof(*a));
	sigset_t all, before;
	int err = 0;

	if (!a)
		return -ENOMEM;
	pthread_mutex_init(&a->a_lock, NULL);
	pthread_cond_init(&a->a_cond, NULL);
	a->a_age.e_next = a->a_age.e_prev = &a->a_age;
	a->a_jobs_end = &a->a_jobs;
	a->a_keep_ns = (uint64_t)keep_ms * 1000000;
	a->a_fn = fn;
	a->a_arg = arg;
	if (threads > THREADS_MAX)
		threads = THREADS_MAX;
	sigfillset(&all); /* signals are not the workers' */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (a->a_nthreads < threads && !(err = pthread_create(&a->a_thread[a->a_nthreads], NULL, worker, a)))
		a->a_nthreads++;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (err) {
		ask_close(a);
		return -err;
	}
	*out = a;
	return 0;
}

void ask_close(struct ask *a)
{
	pthread_mutex_lock(&a->a_lock);
	a->a_ending = true;
	pthread_cond_broadcast(&a->a_cond);
	pthread_mutex_unlock(&a->a_lock);
	while (a->a_nthreads)
		pthread_join(a->a_thread[--a->a_nthreads], NULL);
	while (a->a_age.e_next != &a->a_age)
		entry_drop(a, a->a_age.e_next);
	free(a->a_entries.h_slot);
	pthread_cond_destroy(&a->a_cond);
	pthread_mutex_destroy(&a->a_lock);
	free(a);
}

struct ask_val *ask_get(struct ask *a, const void *key, size_t len, struct ask_wait *w)
{
	struct ask_val *v = NULL;
	uint64_t now = now_ns();
	struct entry *e;

	w->aw_msg.m_run = wait_over;
	w->aw_val = NULL;
	pthread_mutex_lock(&a->a_lock);
	e = entry_find(a, key, len);
	if (e && entry_serves(a, e, now)) {
		v = ask_val_get(e->e_val);
		if (now >= v->av_until_ns && now >= e->e_again_ns)
			entry_ask(a, e);
	} else if (e) {
		w->aw_next = e->e_waiters;
		e->e_waiters = w;
		entry_ask(a, e);
	} else {
		loop_post(w->aw_loop, &w->aw_msg);
	}
	pthread_mutex_unlock(&a->a_lock);
	return v;
}

void ask_forget(struct ask *a)
{
	pthread_mutex_lock(&a->a_lock);
	a->a_generation++;
	for (struct entry *e = a->a_age.e_next, *next; e != &a->a_age; e = next) {
		next = e->e_next;
		if (e->e_asked) {
			ask_val_put(e->e_val);
			e->e_val = NULL;
		} else {
			entry_drop(a, e);
		}
	}
	pthread_mutex_unlock(&a->a_lock);
}
