/* SPDX-License-Identifier: Apache-2.0 */
/*
 * eof.c - asks the MDS that has the file where a striped file ends, on loop 0. A READ that finds
 * fewer bytes than asked waits for the answer before it replies.
 *
 * Questions about one file are coalesced: while one call is under way, READs that arrive wait and
 * share the next call. They must not share the one under way. Its answer may be older than their
 * READ, and then also older than a write that a client knows to be done.
 */
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/metrics.h"
#include "ds/ds.h"
#include "proto/ctl_chan.h"
#include <errno.h>
#include <urcu/compiler.h>

/* Longer than the MDS waits for all data servers: its answer comes before this call times out. */
#define EOF_CALL_MS  5000u
#define EOF_RETRY_MS 50u

struct question {
	struct hash_link qu_link;
	struct ds *qu_ds;
	uint64_t qu_ino;
	uint16_t qu_fs, qu_incarnation;
	struct ds_eof *qu_waiting; /* for the next call */
	struct ds_eof *qu_asked;   /* wait for the call under way */
	bool qu_calling;
	struct loop_timer qu_timer; /* the next try */
};

static struct hash questions;	/* loop 0's */
static _Atomic uint32_t parked; /* READs that wait for an answer */
static struct metric *m_eof[3]; /* by result */
enum { EOF_TOLD, EOF_GONE, EOF_PUT_OFF };

static double parked_gauge(void *arg)
{
	(void)arg;
	return atomic_load(&parked);
}

void ds_eof_metrics_init(void)
{
	static const char help[] = "READs that asked the MDS where the file ends, by the answer";

	m_eof[EOF_TOLD] = metric_counter("weft_ds_eof_total", help, "result=\"end\"");
	m_eof[EOF_GONE] = metric_counter("weft_ds_eof_total", help, "result=\"stale\"");
	m_eof[EOF_PUT_OFF] = metric_counter("weft_ds_eof_total", help, "result=\"jukebox\"");
	metric_gauge("weft_ds_eof_parked", "READs that wait until the MDS says where the file ends",
		     "", parked_gauge, NULL);
}

bool ds_eof_waiting(void)
{
	return atomic_load(&parked);
}

static void question_go(struct question *qu);

static void eof_tell(struct loop_msg *m)
{
	struct ds_eof *e = caa_container_of(m, struct ds_eof, eo_msg);

	e->eo_done(e, e->eo_err, e->eo_size);
}

/* Gives e back to its loop, which may free it. */
static void eof_answer(struct ds_eof *e, int err, uint64_t size)
{
	e->eo_err = err;
	e->eo_size = size;
	atomic_fetch_sub(&parked, 1);
	metric_add(m_eof[!err ? EOF_TOLD : err == -ENOENT ? EOF_GONE : EOF_PUT_OFF], 1);
	e->eo_msg.m_run = eof_tell;
	loop_post(e->eo_loop, &e->eo_msg);
}

static void answer_all(struct ds_eof **list, int err, uint64_t size)
{
	struct ds_eof *e;

	while ((e = *list)) {
		*list = e->eo_next;
		eof_answer(e, err, size);
	}
}

/* The call brought no answer: its READs wait again, except those whose deadline has passed. */
static void eof_give_back(struct question *qu)
{
	uint64_t now = clock_boot_ns();
	struct ds_eof *e, **p;

	while ((e = qu->qu_asked)) {
		qu->qu_asked = e->eo_next;
		e->eo_next = qu->qu_waiting;
		qu->qu_waiting = e;
	}
	for (p = &qu->qu_waiting; (e = *p);) {
		if (now < e->eo_deadline_ns) {
			p = &e->eo_next;
			continue;
		}
		*p = e->eo_next;
		eof_answer(e, -ETIMEDOUT, 0);
	}
}

static void retry(struct loop_timer *t)
{
	question_go(caa_container_of(t, struct question, qu_timer));
}

/* Asks again for the READs that wait, or ends the question if there are none. */
static void question_next(struct question *qu, bool later)
{
	if (!qu->qu_waiting) {
		hash_del(&questions, &qu->qu_link);
		free(qu);
	} else if (later) {
		loop_timer_start(loop_self(), &qu->qu_timer, EOF_RETRY_MS);
	} else {
		question_go(qu);
	}
}

static void question_done(void *arg, int err, const ctl_response *res)
{
	struct question *qu = arg;
	bool told = !err && res->status == CTL_OK && res->result.op == CTL_OP_EOF;

	qu->qu_calling = false;
	if (told)
		answer_all(&qu->qu_asked, 0, res->result.ctl_result_u.eof.size);
	else if (!err && res->status == CTL_NOENT)
		answer_all(&qu->qu_asked, -ENOENT, 0);
	else
		eof_give_back(qu);
	question_next(qu, !told);
}

/* How long the call may take, so that the READ with the nearest deadline gets its reply in time. */
static uint32_t question_ms(const struct question *qu)
{
	uint64_t now = clock_boot_ns(), ms = EOF_CALL_MS;

	for (const struct ds_eof *e = qu->qu_asked; e; e = e->eo_next) {
		uint64_t left =
			e->eo_deadline_ns > now ? (e->eo_deadline_ns - now) / 1000000 + 1 : 1;

		ms = left < ms ? left : ms;
	}
	return (uint32_t)ms;
}

static void question_go(struct question *qu)
{
	struct ds_fs *f = ds_store_fs(qu->qu_ds->d_store, qu->qu_fs);
	struct ctl_chan *ch = f ? ds_control_chan(qu->qu_ds, f) : NULL;
	ctl_request req = {.op = CTL_OP_EOF};

	req.ctl_request_u.eof.ino = qu->qu_ino;
	req.ctl_request_u.eof.incarnation = qu->qu_incarnation;
	qu->qu_asked = qu->qu_waiting;
	qu->qu_waiting = NULL;
	qu->qu_calling = true;
	if (ch && !ctl_chan_call(ch, &req, question_ms(qu), question_done, qu))
		return;
	qu->qu_calling = false;
	eof_give_back(qu);
	question_next(qu, true);
}

static struct question *question_find(const struct ds_eof *e, uint64_t hash)
{
	for (struct hash_link *l = hash_first(&questions, hash); l; l = hash_next(l)) {
		struct question *qu = hash_entry(l, struct question, qu_link);

		if (qu->qu_ino == e->eo_ino && qu->qu_fs == e->eo_fs &&
		    qu->qu_incarnation == e->eo_incarnation)
			return qu;
	}
	return NULL;
}

static void eof_ask(struct loop_msg *m)
{
	struct ds_eof *e = caa_container_of(m, struct ds_eof, eo_msg);
	uint64_t hash = hash_u64(e->eo_ino + e->eo_incarnation + ((uint64_t)e->eo_fs << 32));
	struct question *qu = question_find(e, hash);

	e->eo_next = NULL;
	if (qu) {
		e->eo_next = qu->qu_waiting;
		qu->qu_waiting = e;
		return;
	}
	qu = calloc(1, sizeof(*qu));
	if (!qu || hash_add(&questions, &qu->qu_link, hash)) {
		free(qu);
		eof_answer(e, -ENOMEM, 0);
		return;
	}
	qu->qu_ds = e->eo_ds;
	qu->qu_ino = e->eo_ino;
	qu->qu_fs = e->eo_fs;
	qu->qu_incarnation = e->eo_incarnation;
	qu->qu_timer.t_fire = retry;
	qu->qu_waiting = e;
	question_go(qu);
}

void ds_eof_ask(struct ds *d, struct ds_eof *e)
{
	e->eo_ds = d;
	e->eo_loop = loop_self();
	e->eo_deadline_ns = clock_boot_ns() + (uint64_t)d->d_eof_wait_ms * 1000000;
	atomic_fetch_add(&parked, 1);
	e->eo_msg.m_run = eof_ask;
	loop_post(d->d_loops[0], &e->eo_msg);
}
