/* SPDX-License-Identifier: Apache-2.0 */
/*
 * worker.h - a thread for calls that block (name services, key tables), so that no loop blocks.
 *
 * The worker does the work in the order it came, one at a time. w_run runs on the worker's thread
 * and posts its result to a loop itself, by loop_post.
 */
#ifndef BASE_WORKER_H
#define BASE_WORKER_H
#include <stdbool.h>

struct worker;
struct work {
	void (*w_run)(struct work *w); /* w_run owns the memory from here on */
	struct work *w_next;
};

/* name: at most 15 bytes, shown by ps. most: so many may wait. Returns 0 or a negative errno. */
int worker_create(struct worker **out, const char *name, unsigned most);
/* Any thread. False: as many wait as may; w stays the caller's. */
bool worker_submit(struct worker *w, struct work *work);
/* Does all waiting work, then waits for the thread to end. */
void worker_destroy(struct worker *w);
#endif
