/*
 * worker.h - a thread for calls that block (name services, key tables), so that no loop does.
 *
 * Work is done one after the other, in the order it came. w_run runs on the worker's thread and
 * tells its loop itself, by loop_post.
 */
#ifndef BASE_WORKER_H
#define BASE_WORKER_H
#include <stdbool.h>

struct worker;
struct work {
	void (*w_run)(struct work *w); /* the memory is w_run's from here on */
	struct work *w_next;
};

/* name: at most 15 bytes, shown by ps. most: as many may wait. 0 or a negative errno. */
int worker_create(struct worker **out, const char *name, unsigned most);
/* Any thread. False: as many wait as may; w is the caller's still. */
bool worker_submit(struct worker *w, struct work *work);
/* Waits for the thread; what waits is done first. */
void worker_destroy(struct worker *w);
#endif
