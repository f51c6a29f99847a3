/* SPDX-License-Identifier: Apache-2.0 */
/* ask.c - see ask.h. */
#include "base/ask.h"
#include "base/clock.h"
#include "base/hash.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ENTRIES_MAX 65536u
#define THREADS_MAX 16u
#define WAIT_NS	    (ASK_WAIT_MS * 1000000ull)

/* Questions by their chances: a good answer is known; nothing is known; the last attempt failed.
 * Workers take them in this order. */
enum job_class { JOB_KNOWN, JOB_NEW, JOB_FAILED, JOB_CLASSES };

struct jobs {
	struct entry *j_first, **j_end;
	unsigned j_running;
};

struct entry {
	struct hash_link e_link;
	struct entry *e_next, *e_prev; /* by age of the answer, the oldest first */
	struct entry *e_job;	       /* next in the queue */
	bool e_asked;		       /* queued, or with a worker */
	bool e_good;		       /* answered once */
	uint64_t e_asked_ns;
	/* asked, and still waited for; e_open_at NULL: not */
	struct entry *e_open_next, **e_open_at;
	struct ask_val *e_val;
	unsigned e_fails;    /* in a row */
	uint64_t e_again_ns; /* after a failure: not asked again before then */
	struct ask_wait *e_waiters;
	size_t e_len;
	uint8_t e_key[ASK_KEY_MAX];
};

struct ask {
	pthread_mutex_t a_lock;
	pthread_cond_t a_cond, a_clock_cond;
	struct hash a_entries;
	struct entry a_age; /* head of the ring by age */
	struct jobs a_jobs[JOB_CLASSES];
	struct entry *a_open, **a_open_end; /* what is waited for, in the order of e_asked_ns */
	bool a_ending;
	uint64_t a_keep_ns, a_generation;
	struct ask_val *(*a_fn)(void *arg, const void *key, size_t len);
	void *a_arg;
	unsigned a_nthreads;
	bool a_has_clock;
	pthread_t a_thread[THREADS_MAX], a_clock;
};

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
	for (struct entry *old = a->a_age.e_next;
	     a->a_entries.h_count >= ENTRIES_MAX && old != &a->a_age;) {
		struct entry *next = old->e_next;

		if (!old->e_asked)
			entry_drop(a, old);
		old = next;
	}
	e = a->a_entries.h_count < ENTRIES_MAX ? calloc(1, sizeof(*e)) : NULL;
	if (!e || hash_add(&a->a_entries, &e->e_link, h)) {
		free(e);
		return NULL;
	}
	e->e_len = len;
	memcpy(e->e_key, key, len);
	age_add(a, e);
	return e;
}

/* An answer, good or not, counts no longer than this: a name may come to mean another host or
 * user. */
static bool entry_counts(const struct ask *a, const struct entry *e, uint64_t now)
{
	return e->e_val && now < e->e_val->av_until_ns + a->a_keep_ns;
}

/* True if a caller should wait: an answer may come soon. */
static bool entry_hopes(const struct entry *e, uint64_t now)
{
	return !e->e_fails && !(e->e_asked && now - e->e_asked_ns >= WAIT_NS);
}

static void open_remove(struct ask *a, struct entry *e)
{
	if (!e->e_open_at)
		return;
	*e->e_open_at = e->e_open_next;
	if (e->e_open_next)
		e->e_open_next->e_open_at = e->e_open_at;
	else
		a->a_open_end = e->e_open_at;
	e->e_open_at = NULL;
}

static void open_add(struct ask *a, struct entry *e)
{
	if (!a->a_open)
		pthread_cond_signal(&a->a_clock_cond);
	e->e_open_next = NULL;
	e->e_open_at = a->a_open_end;
	*a->a_open_end = e;
	a->a_open_end = &e->e_open_next;
}

static enum job_class entry_class(const struct entry *e)
{
	return e->e_good ? JOB_KNOWN : e->e_fails ? JOB_FAILED : JOB_NEW;
}

static void entry_ask(struct ask *a, struct entry *e, uint64_t now)
{
	struct jobs *j = &a->a_jobs[entry_class(e)];

	if (e->e_asked || now < e->e_again_ns)
		return;
	e->e_asked = true;
	e->e_asked_ns = now;
	e->e_job = NULL;
	*j->j_end = e;
	j->j_end = &e->e_job;
	open_add(a, e);
	pthread_cond_signal(&a->a_cond);
}

static void wait_post(struct ask_wait *w, struct ask_val *v)
{
	w->aw_val = v ? ask_val_get(v) : NULL;
	loop_post(w->aw_loop, &w->aw_msg);
}

static void entry_tell(struct entry *e, struct ask_val *v)
{
	struct ask_wait *w = e->e_waiters;

	e->e_waiters = NULL;
	for (struct ask_wait *next; w; w = next) {
		next = w->aw_next;
		wait_post(w, v);
	}
}

/* ---- workers ---- */

static void ask_wait_over(struct loop_msg *m)
{
	struct ask_wait *w = hash_entry(m, struct ask_wait, aw_msg);

	w->aw_then(w, w->aw_val);
}

/* How long a failure counts: twice as long as the failure before it. */
static uint64_t failed_ns(const struct ask *a, const struct entry *e)
{
	uint64_t ms = ASK_FAILED_MS;

	for (unsigned i = 1; i < e->e_fails && ms < ASK_FAILED_MOST_MS; i++)
		ms *= 2;
	ms = ms < ASK_FAILED_MOST_MS ? ms : ASK_FAILED_MOST_MS;
	return ms * 1000000 < a->a_keep_ns ? ms * 1000000 : a->a_keep_ns;
}

static void entry_answer(struct ask *a, struct entry *e, struct ask_val *v, uint64_t generation)
{
	uint64_t now = clock_mono_ns();

	e->e_asked = false;
	open_remove(a, e);
	if (!v || v->av_failed) {
		e->e_fails++;
		e->e_again_ns = now + failed_ns(a, e);
	} else {
		e->e_fails = 0;
		e->e_again_ns = 0;
		e->e_good = true;
	}
	if (v)
		v->av_until_ns = v->av_failed ? e->e_again_ns : now + a->a_keep_ns;
	entry_tell(e, v);
	if (!v)
		return;
	/* Drop the answer if the entry was forgotten while it was asked, or if it is a failure and
	 * the known answer still counts. */
	if (generation != a->a_generation ||
	    (v->av_failed && entry_counts(a, e, now) && !e->e_val->av_failed)) {
		ask_val_put(v);
		return;
	}
	ask_val_put(e->e_val);
	e->e_val = v;
	age_remove(e);
	age_add(a, e);
}

/*
 * Strangers can cause questions that may never get an answer. Such questions have half of the
 * workers together, and those that have failed before a quarter. So a question with a known answer
 * is asked again in time, whatever else is asked.
 */
static bool job_may_run(const struct ask *a, enum job_class c)
{
	unsigned half = a->a_nthreads > 2 ? a->a_nthreads / 2 : 1,
		 quarter = half > 2 ? half / 2 : 1;

	if (c == JOB_KNOWN)
		return true;
	return a->a_jobs[JOB_NEW].j_running + a->a_jobs[JOB_FAILED].j_running < half &&
	       (c == JOB_NEW || a->a_jobs[c].j_running < quarter);
}

static struct entry *job_take(struct ask *a, enum job_class *class)
{
	for (enum job_class c = JOB_KNOWN; c < JOB_CLASSES; c++) {
		struct jobs *j = &a->a_jobs[c];
		struct entry *e = j->j_first;

		if (!e || !job_may_run(a, c))
			continue;
		j->j_first = e->e_job;
		if (!j->j_first)
			j->j_end = &j->j_first;
		j->j_running++;
		*class = c;
		return e;
	}
	return NULL;
}

static void *worker(void *arg)
{
	struct ask *a = arg;
	enum job_class class;

	pthread_mutex_lock(&a->a_lock);
	while (!a->a_ending) {
		struct entry *e = job_take(a, &class);
		struct ask_val *v;
		uint64_t generation;

		if (!e) {
			pthread_cond_wait(&a->a_cond, &a->a_lock);
			continue;
		}
		generation = a->a_generation;
		pthread_mutex_unlock(&a->a_lock);
		/* The key never changes, and an entry is not dropped while it is asked. */
		v = a->a_fn(a->a_arg, e->e_key, e->e_len);
		pthread_mutex_lock(&a->a_lock);
		/* This worker looks at the queue next: a job that had to stay there may run now. */
		a->a_jobs[class].j_running--;
		entry_answer(a, e, v, generation);
	}
	pthread_mutex_unlock(&a->a_lock);
	return NULL;
}

/* Lets the callers that have waited long enough go on without an answer. */
static void *clock_run(void *arg)
{
	struct ask *a = arg;

	pthread_mutex_lock(&a->a_lock);
	while (!a->a_ending) {
		struct entry *e = a->a_open;
		uint64_t end = e ? e->e_asked_ns + WAIT_NS : 0;

		if (!e) {
			pthread_cond_wait(&a->a_clock_cond, &a->a_lock);
		} else if (clock_mono_ns() < end) {
			clock_cond_wait(&a->a_clock_cond, &a->a_lock, end);
		} else {
			open_remove(a, e);
			entry_tell(e, NULL);
		}
	}
	pthread_mutex_unlock(&a->a_lock);
	return NULL;
}

/* ---- the interface ---- */

int ask_open(struct ask **out, unsigned threads, uint32_t keep_ms,
	     struct ask_val *(*fn)(void *arg, const void *key, size_t len), void *arg)
{
	struct ask *a = calloc(1, sizeof(*a));
	sigset_t all, before;
	int err = 0;

	if (!a)
		return -ENOMEM;
	pthread_mutex_init(&a->a_lock, NULL);
	pthread_cond_init(&a->a_cond, NULL);
	clock_cond_init(&a->a_clock_cond);
	a->a_age.e_next = a->a_age.e_prev = &a->a_age;
	for (unsigned c = 0; c < JOB_CLASSES; c++)
		a->a_jobs[c].j_end = &a->a_jobs[c].j_first;
	a->a_open_end = &a->a_open;
	a->a_keep_ns = (uint64_t)keep_ms * 1000000;
	a->a_fn = fn;
	a->a_arg = arg;
	if (threads > THREADS_MAX)
		threads = THREADS_MAX;
	sigfillset(&all); /* workers take no signals */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&a->a_clock, NULL, clock_run, a);
	a->a_has_clock = !err;
	while (!err && a->a_nthreads < threads &&
	       !(err = pthread_create(&a->a_thread[a->a_nthreads], NULL, worker, a)))
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
	pthread_cond_broadcast(&a->a_clock_cond);
	pthread_mutex_unlock(&a->a_lock);
	if (a->a_has_clock)
		pthread_join(a->a_clock, NULL);
	while (a->a_nthreads)
		pthread_join(a->a_thread[--a->a_nthreads], NULL);
	while (a->a_age.e_next != &a->a_age)
		entry_drop(a, a->a_age.e_next);
	free(a->a_entries.h_slot);
	pthread_cond_destroy(&a->a_cond);
	pthread_cond_destroy(&a->a_clock_cond);
	pthread_mutex_destroy(&a->a_lock);
	free(a);
}

struct ask_val *ask_get(struct ask *a, const void *key, size_t len, struct ask_wait *w)
{
	struct ask_val *v = NULL;
	struct entry *e;
	uint64_t now;

	w->aw_msg.m_run = ask_wait_over;
	w->aw_val = NULL;
	pthread_mutex_lock(&a->a_lock);
	now = clock_mono_ns();
	e = entry_find(a, key, len);
	if (e && entry_counts(a, e, now)) {
		v = ask_val_get(e->e_val);
		if (now >= v->av_until_ns)
			entry_ask(a, e, now);
	} else if (e && entry_hopes(e, now)) {
		w->aw_next = e->e_waiters;
		e->e_waiters = w;
		entry_ask(a, e, now);
	} else {
		if (e)
			entry_ask(a, e, now);
		wait_post(w, NULL);
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
			e->e_fails = 0;
		} else {
			entry_drop(a, e);
		}
	}
	pthread_mutex_unlock(&a->a_lock);
}
