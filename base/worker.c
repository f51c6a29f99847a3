/* SPDX-License-Identifier: Apache-2.0 */
/* worker.c - see worker.h. */
#include "base/worker.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

struct worker {
	pthread_t wk_thread;
	pthread_mutex_t wk_lock;
	pthread_cond_t wk_more;
	struct work *wk_head, **wk_tail;
	unsigned wk_waiting, wk_most;
	bool wk_ends;
};

static void *worker_run(void *arg)
{
	struct worker *wk = arg;

	pthread_mutex_lock(&wk->wk_lock);
	for (;;) {
		struct work *w = wk->wk_head;

		if (!w && wk->wk_ends)
			break;
		if (!w) {
			pthread_cond_wait(&wk->wk_more, &wk->wk_lock);
			continue;
		}
		wk->wk_head = w->w_next;
		if (!wk->wk_head)
			wk->wk_tail = &wk->wk_head;
		wk->wk_waiting--;
		pthread_mutex_unlock(&wk->wk_lock);
		w->w_run(w);
		pthread_mutex_lock(&wk->wk_lock);
	}
	pthread_mutex_unlock(&wk->wk_lock);
	return NULL;
}

int worker_create(struct worker **out, const char *name, unsigned most)
{
	struct worker *wk = calloc(1, sizeof *wk);
	sigset_t all, old;
	int err;

	if (!wk)
		return -ENOMEM;
	wk->wk_tail = &wk->wk_head;
	wk->wk_most = most;
	pthread_mutex_init(&wk->wk_lock, NULL);
	pthread_cond_init(&wk->wk_more, NULL);
	/* Signals are for the threads that wait for them: block them here. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&wk->wk_thread, NULL, worker_run, wk);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err) {
		free(wk);
		return -err;
	}
	pthread_setname_np(wk->wk_thread, name);
	*out = wk;
	return 0;
}

bool worker_submit(struct worker *wk, struct work *work)
{
	bool room;

	work->w_next = NULL;
	pthread_mutex_lock(&wk->wk_lock);
	room = wk->wk_waiting < wk->wk_most;
	if (room) {
		*wk->wk_tail = work;
		wk->wk_tail = &work->w_next;
		wk->wk_waiting++;
		pthread_cond_signal(&wk->wk_more);
	}
	pthread_mutex_unlock(&wk->wk_lock);
	return room;
}

void worker_destroy(struct worker *wk)
{
	pthread_mutex_lock(&wk->wk_lock);
	wk->wk_ends = true;
	pthread_cond_signal(&wk->wk_more);
	pthread_mutex_unlock(&wk->wk_lock);
	pthread_join(wk->wk_thread, NULL);
	pthread_mutex_destroy(&wk->wk_lock);
	pthread_cond_destroy(&wk->wk_more);
	free(wk);
}
