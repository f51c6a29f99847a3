/* SPDX-License-Identifier: Apache-2.0 */
/* reply_sweep.c - see reply_sweep.h. */
#include "mds/jobs/reply_sweep.h"
#include "base/crash.h"
#include "base/log.h"
#include "mds/state/st_session.h"
#include <endian.h>
#include <stdlib.h>
#include <string.h>

struct once_sweep {
	struct kv_op op;
	struct mds *m;
	/* deletes rows of earlier boots; otherwise those of sessions that have ended */
	bool earlier;
	struct st_session *ended, *at; /* at: the first session with rows left to delete */
	bool more;
};

static int reply_sweep_run(struct kv_op *op, struct kv_txn *t)
{
	struct once_sweep *s = (struct once_sweep *)op;
	static const uint8_t first[1];
	uint32_t boot = htobe32((uint32_t)s->m->m_st->st_boot - 1);
	int n = 0, room = NS_REPLY_DEL_MAX;

	if (s->earlier)
		n = ns_reply_del(t, first, 0, (const uint8_t *)&boot, sizeof(boot),
				 NS_REPLY_DEL_MAX);
	while (s->at && room && n >= 0) {
		n = ns_reply_del(t, s->at->se_id, sizeof(s->at->se_id), s->at->se_id,
				 sizeof(s->at->se_id), (unsigned)room);
		room -= n;
		if (n >= 0 && room)
			s->at = s->at->se_next;
	}
	crash_point("once-sweep");
	s->more = s->earlier ? n == NS_REPLY_DEL_MAX : s->at != NULL;
	return n < 0 ? n : 0;
}

static void ended_free(struct mds *m, struct st_session *e)
{
	size_t n = 0;

	for (struct st_session *next; e; e = next, n++) {
		next = e->se_next;
		st_session_free(e);
	}
	st_all_lock(m->m_st);
	m->m_st->st_nended -= n;
	st_all_unlock(m->m_st);
}

static void reply_sweep_done(struct kv_op *op, int err)
{
	struct once_sweep *s = (struct once_sweep *)op;

	if (err)
		log_warn("cannot delete stored replies of ended sessions, they stay until the next "
			 "start: %s",
			 strerror(-err));
	if (!err && s->more) {
		kv_submit(s->m->m_kv, op);
		return;
	}
	ended_free(s->m, s->ended);
	free(s);
}

static void reply_sweep(struct mds *m, struct loop *loop, struct st_session *ended)
{
	struct once_sweep *s = calloc(1, sizeof(*s));

	if (!s) { /* the rows stay until the next start */
		ended_free(m, ended);
		return;
	}
	s->op = (struct kv_op){
		.o_run = reply_sweep_run, .o_done = reply_sweep_done, .o_loop = loop};
	s->m = m;
	s->earlier = !ended;
	s->ended = s->at = ended;
	kv_submit(m->m_kv, &s->op);
}

void job_replies_tick(struct mds *m, struct loop *loop)
{
	struct st *st = m->m_st;
	struct st_session *ended;
	bool earlier, due;

	st_look_lock(st);
	due = st->st_ended || (!m->m_once_swept && !st_in_grace(st));
	st_look_unlock(st);
	if (!due)
		return;
	st_all_lock(st);
	ended = st_sessions_ended(st);
	/* A client that may reclaim has a session of this boot by now, or never will. */
	earlier = !m->m_once_swept && !st_in_grace(st);
	m->m_once_swept |= earlier;
	st_all_unlock(st);
	if (ended)
		reply_sweep(m, loop, ended);
	if (earlier)
		reply_sweep(m, loop, NULL);
}
