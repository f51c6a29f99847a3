/* SPDX-License-Identifier: Apache-2.0 */
/* on_loop.h - something that is done on a loop's thread, and waited for. */
#ifndef TESTS_UNIT_ON_LOOP_H
#define TESTS_UNIT_ON_LOOP_H
#include "base/loop.h"
#include <semaphore.h>
#include <urcu/compiler.h>

struct on_loop {
	struct loop_msg ol_msg;
	void (*ol_fn)(void *arg);
	void *ol_arg;
	sem_t ol_done;
};

static inline void on_loop_run(struct loop_msg *m)
{
	struct on_loop *ol = caa_container_of(m, struct on_loop, ol_msg);

	ol->ol_fn(ol->ol_arg);
	sem_post(&ol->ol_done);
}

/* fn(arg) on l, which another thread runs; returns when it has run. */
static inline void on_loop(struct loop *l, void (*fn)(void *arg), void *arg)
{
	struct on_loop ol = {.ol_msg.m_run = on_loop_run, .ol_fn = fn, .ol_arg = arg};

	sem_init(&ol.ol_done, 0, 0);
	loop_post(l, &ol.ol_msg);
	while (sem_wait(&ol.ol_done))
		;
	sem_destroy(&ol.ol_done);
}
#endif
