/* SPDX-License-Identifier: Apache-2.0 */
/* sched.h - what sched.c and system.c share. */
#ifndef TESTS_SIM_SCHED_H
#define TESTS_SIM_SCHED_H
#include "tests/sim/sim.h"
#include <setjmp.h>
#include <ucontext.h>

enum co_state { CO_FREE, CO_READY, CO_RUNNING, CO_WAITS, CO_DONE };
struct co {
	jmp_buf co_ctx;
	ucontext_t co_first;
	char *co_stack;
	struct sim_proc *co_proc;
	void *(*co_fn)(void *arg);
	void *co_arg, *co_ret;
	enum co_state co_state;
	bool co_begun, co_woken;
	uint64_t co_gen; /* rises when what was to wake it is void */
	struct waitq *co_q;
	struct co *co_next, *co_all;
	struct waitq co_ended;
};
struct co *sim_running(void);
void sim_mem_drop(struct sim_proc *p); /* NULL: of all */
void sim_fd_reset(void);
#endif
