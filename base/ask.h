/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ask.h - queries that block (NSS, DNS): a few worker threads make them and keep the answers for a
 * while. A loop never waits.
 *
 * One object is one kind of query. Equal queries at one time are made once. An old answer is given
 * once more while the query runs again, so that only the first caller waits, and no caller waits
 * for longer than ASK_WAIT_MS: then, and until there is an answer, the answer is "not known"
 * (NULL).
 *
 * A query may fail: then the failure is the answer, so that no caller takes "cannot find out" for
 * "is not". What was known before counts as long as it would without the failure. The next caller
 * after ASK_FAILED_MS repeats the query; after the next failure the pause is twice that, and so on
 * (never longer than answers are kept). No caller waits for the tries after a failure: until one
 * succeeds the answer is the failure, or "not known".
 *
 * Queries that never had a good answer may use half of the workers, and queries that failed before
 * a quarter of them (at least one). So queries that strangers cause do not keep others from their
 * answers.
 */
#ifndef BASE_ASK_H
#define BASE_ASK_H
#include "base/loop.h"
#include <stdatomic.h>
#include <stddef.h>

#define ASK_KEY_MAX	   32
#define ASK_FAILED_MS	   1000
#define ASK_FAILED_MOST_MS 60000
#define ASK_WAIT_MS	   2000

struct ask_val {
	atomic_uint av_refs;
	uint64_t av_until_ns; /* CLOCK_MONOTONIC: fresh until then */
	bool av_failed;	      /* fn could not find out this, or a part of it, now */
	size_t av_len;
	_Alignas(8) uint8_t av_data[];
};
/* Returns one reference to len zeroed bytes; NULL: no memory. */
struct ask_val *ask_val_new(size_t len);
struct ask_val *ask_val_get(struct ask_val *v);
void ask_val_put(struct ask_val *v);

struct ask;
/* fn runs on a worker and may block; it returns NULL without memory. keep_ms: how long an answer is
 * fresh. Returns 0 or a negative errno. */
int ask_open(struct ask **out, unsigned threads, uint32_t keep_ms,
	     struct ask_val *(*fn)(void *arg, const void *key, size_t len), void *arg);
/* Waits for the workers: they must be able to end. aw_then of those still waiting is not called. */
void ask_close(struct ask *a);
/* A caller that waits for an answer. The caller sets aw_loop and aw_then; it owns the memory and
 * keeps it until aw_then. */
struct ask_wait {
	struct loop_msg aw_msg;
	struct ask_wait *aw_next;
	struct loop *aw_loop;
	struct ask_val *aw_val;
	/* on aw_loop; v: the caller's reference, or NULL: not known now, or no memory */
	void (*aw_then)(struct ask_wait *w, struct ask_val *v);
};
/* Any thread. Returns the answer, a reference for the caller; or NULL, and calls w->aw_then
 * later. */
struct ask_val *ask_get(struct ask *a, const void *key, size_t len, struct ask_wait *w);
/* Makes all answers old from now on: they are not given any more. */
void ask_forget(struct ask *a);
#endif
