/*
 * ask.h - questions that block (NSS, DNS): asked by a few worker threads, answers kept for a while.
 * A loop never waits.
 *
 * One object is one kind of question. Equal questions at one time are asked once. An answer that
 * has grown old is given once more while it is asked again, so that only the first who asks waits,
 * and nobody for longer than ASK_WAIT_MS: then, and until the question is answered, the answer is
 * "not known" (NULL).
 *
 * A question may fail: then that is the answer, so that nobody takes "cannot be told" for "is not".
 * What was known before counts as long as it would without the failure. It is asked again when
 * somebody wants to know and ASK_FAILED_MS are over, twice that after the next failure, and so on
 * (never longer than answers are kept). Nobody waits for the tries after a failure: what is known
 * meanwhile is the failure, or nothing.
 *
 * Questions that were never answered well have half of the workers, those that failed before a
 * quarter of them (one at least), so that what strangers make us ask does not keep others from
 * their answers.
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
	bool av_failed;	      /* fn's word: it, or a part of it, could not be told now */
	size_t av_len;
	_Alignas(8) uint8_t av_data[];
};
/* One reference, len zeroed bytes; NULL: no memory. */
struct ask_val *ask_val_new(size_t len);
struct ask_val *ask_val_get(struct ask_val *v);
void ask_val_put(struct ask_val *v);

struct ask;
/* fn runs on a worker and may block; NULL: no memory. keep_ms: how long an answer is fresh. */
int ask_open(struct ask **out, unsigned threads, uint32_t keep_ms,
	     struct ask_val *(*fn)(void *arg, const void *key, size_t len), void *arg);
/* Waits for the workers: they must be able to end. Who still waits for an answer hears nothing. */
void ask_close(struct ask *a);
/* Who waits for an answer: the caller's memory until aw_then. The caller sets aw_loop and
 * aw_then. */
struct ask_wait {
	struct loop_msg aw_msg;
	struct ask_wait *aw_next;
	struct loop *aw_loop;
	struct ask_val *aw_val;
	/* on aw_loop; v: its reference, NULL: it is not known now, or no memory */
	void (*aw_then)(struct ask_wait *w, struct ask_val *v);
};
/* Any thread. The answer, the caller's reference; or NULL, and w->aw_then is called later. */
struct ask_val *ask_get(struct ask *a, const void *key, size_t len, struct ask_wait *w);
/* All answers are old from now on, and not given any more. */
void ask_forget(struct ask *a);
#endif
