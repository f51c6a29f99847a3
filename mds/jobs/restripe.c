/* SPDX-License-Identifier: Apache-2.0 */
/*
 * restripe.c - the job that gives a file a new layout (docs/restripe.md). All of it runs on one
 * loop.
 *
 *	watch    of each stripe one copy in sync is the source: from here on its data server notes
 *	         what is changed
 *	copy     the whole file: the data servers of the new objects fetch it from the sources
 *	take     what was noted in between is copied, again and again, until it is little
 *	freeze   all layouts are back, every older capability is fenced, nothing is written; what
 *	         was noted last is copied; the new objects get their end, and are durable
 *	commit   the new map is the file's, the old objects are deleted
 * restripe_list.c has the list of what is still to be copied.
 *
 * Only this job has the new objects. So after a failure before the commit the job begins again, and
 * the file is as it was.
 */
#include "mds/file/file_size.h"
#include "mds/file/mirror_state.h"
#include "mds/jobs/job_int.h"
#include "mds/jobs/restripe_int.h"
#include "base/clock.h"
#include "base/log.h"
#include "mds/journal/event_journal.h"
#include "mds/layout/repair_row.h"
#include "mds/jobs/drain.h"
#include "mds/jobs/repair.h"
#include <errno.h>
#include <sodium.h>
#include <urcu/compiler.h>

/* When this much is left, it is copied, and then the freeze comes. It copies only what was changed
 * during that copying. */
#define FINAL_BYTES (32u << 20)
#define ROUNDS	    8 /* then the freeze comes, however much was changed */
#define TAKES	    64
#define REST_MS	    5000 /* after a job that did not reach its end */

/* The steps, in the order of time. */
static void unwatched(struct lo_restripe_io *an, int err);
static int first(void *arg, uint64_t ino, const struct lo_pending *tw);
static void restripe_begin(struct job_work *w);
static void restripe_looked(struct lo_stat *ls, int err);
static bool choose_sources(struct job_restripe *r);
static bool watch_all(struct job_restripe *r, int what,
		      void (*then)(struct job_restripe *r, int err));
static void watched(struct job_restripe *r, int err);
static void first_size(struct lo_stat *ls, int err);
static void restripe_copy(struct job_work *w);
static void filled(struct job_restripe *r, int err);
static void restripe_list_done(struct job_restripe *r);
static void restripe_take(struct job_restripe *r);
static void take_more(struct job_restripe *r);
static void restripe_taken(struct job_restripe *r, int err);
static void taken_size(struct lo_stat *ls, int err);
static void taken_all(struct job_restripe *r);
static void restripe_freeze(struct job_work *w);
static void restripe_frozen(void *arg, int err);
static void old_keep(struct job_restripe *r);
static void old_kept(struct lo_io *io, int err);
static int restripe_unkept_run(struct kv_op *op, struct kv_txn *t);
static void restripe_unkept_done(struct kv_op *op, int err);
static void frozen_size(struct lo_stat *ls, int err);
static void restripe_finish(struct job_restripe *r);
static void restripe_ended(struct job_restripe *r, int err);
static int restripe_commit_run(struct kv_op *op, struct kv_txn *t);
static bool news(const struct job_restripe *r, const struct ns_inode *i, const struct lo_map *was);
static void outdated(struct job_restripe *r);
static void restripe_committed(struct kv_op *op, int err);
static void restripe_again(struct job_restripe *r, int err);
static void restripe_fail(struct job_restripe *r, int err);
static int restripe_replace_run(struct kv_op *op, struct kv_txn *t);
static void replaced(struct kv_op *op, int err);
static int restripe_gone_run(struct kv_op *op, struct kv_txn *t);
static void gone_done(struct kv_op *op, int err);

/* ---- the parts of a job ---- */

static void restripe_thaw(struct job_restripe *r)
{
	excl_end(&r->rs_freeze, 0);
	r->rs_frozen = false;
}

/* Ends the notes of a session that is over, which take memory. Nothing waits for the answers. */
static void restripe_unwatch(struct job_restripe *r)
{
	for (unsigned s = 0; r->rs_session && s < r->rs_map.lm_stripes; s++) {
		int k = lo_object_of(&r->rs_map, r->rs_source[s].ob_ds, s, r->rs_source[s].ob_copy);
		struct lo_restripe_io *an = k >= 0 ? calloc(1, sizeof(*an)) : NULL;

		if (!an)
			continue;
		an->an_done = unwatched;
		lo_watch(r->rs_m->m_lo, an, &r->rs_inode, &r->rs_map, (unsigned)k, CTL_WATCH_END,
			 r->rs_session);
	}
}

static void unwatched(struct lo_restripe_io *an, int err)
{
	(void)err; /* on error the server keeps the notes until it has many */
	free(an);
}

static void restripe_rest(struct job_restripe *r, uint64_t ms)
{
	restripe_thaw(r);
	restripe_unwatch(r);
	restripe_calls_free(r);
	r->rs_ino = 0;
	r->rs_rest_ms = ms ? clock_mono_ms() + ms : 0;
	pthread_mutex_lock(&r->rs_lock);
	r->rs_view = (struct job_restripe_view){0};
	pthread_mutex_unlock(&r->rs_lock);
}

/* Reads the file, its map and its pending layout as they are now. False: the job is over, or put
 * off. */
static bool restripe_load(struct job_restripe *r)
{
	struct kv_txn *t;
	struct lo_pending tw;
	struct ns_inode i;
	struct lo_map map;
	int err = kv_read_begin(r->rs_m->m_kv, &t);

	if (err) {
		restripe_fail(r, err);
		return false;
	}
	err = ns_get(r->rs_m->m_ns, t, r->rs_ino, &i);
	if (!err)
		err = lo_map_decode(i.i_blob, &map);
	if (!err)
		err = lo_pending_get(t, r->rs_ino, &tw);
	kv_read_end(t);
	if (!err && r->rs_session && !lo_pending_same(&tw, &r->rs_pending))
		err = -ESTALE;
	if (!err && tw.tw_incarnation != i.i_incarnation + NS_PLACED_AGAIN)
		err = -ESTALE;
	if (!err) {
		i.i_blob = i.i_acl = (struct kv_slice){0}; /* they point into the snapshot */
		r->rs_inode = i;
		r->rs_map = map;
		r->rs_pending = tw;
		pthread_mutex_lock(&r->rs_lock);
		r->rs_view.rsv_number = tw.tw_number;
		pthread_mutex_unlock(&r->rs_lock);
		return true;
	}
	restripe_thaw(r);
	if (r->rs_session)
		job_work_submit(&r->rs_work, restripe_gone_run, gone_done);
	else
		restripe_rest(r, err == -ENOENT ? 0 : REST_MS);
	return false;
}

/* Whether all sources can still be used. If two clients have begun to write the file, the sources
 * must be the copies that all readers use. */
static bool sources_stand(const struct job_restripe *r, const struct lo_map *map)
{
	bool taking, same = file_is_contended(&r->rs_m->m_file, r->rs_ino, map, &taking);

	for (unsigned s = 0; s < map->lm_stripes; s++) {
		int k = restripe_source_at(r, map, s), may;

		for (unsigned n = 0; (may = lo_source(map, s, n, same)) >= 0 && may != k; n++)
			;
		if (k < 0 || may < 0)
			return false;
	}
	return true;
}

/* Whether no new object is on a server that is dead, forgotten or being drained. */
static bool targets_stand(const struct job_restripe *r)
{
	for (unsigned k = 0; k < lo_objects(&r->rs_pending.tw_map); k++) {
		uint32_t ds = r->rs_pending.tw_map.lm_obj[k].ob_ds;

		if (ds_reg_dead(r->rs_m->m_dsc, ds) || ds_reg_draining(r->rs_m->m_dsc, ds))
			return false;
	}
	return true;
}

/* ---- how far the file goes ---- */

static void stat_ask(struct job_restripe *r, void (*done)(struct lo_stat *ls, int err))
{
	memset(&r->rs_stat, 0, sizeof(r->rs_stat));
	r->rs_stat.ls_loop = r->rs_loop;
	r->rs_stat.ls_ino = r->rs_ino;
	r->rs_stat.ls_incarnation = r->rs_inode.i_incarnation;
	r->rs_stat.ls_map = r->rs_map;
	r->rs_stat.ls_done = done;
	lo_stat(r->rs_m->m_lo, &r->rs_stat);
}

static void size_is(struct job_restripe *r)
{
	r->rs_size =
		r->rs_stat.ls_size > r->rs_inode.i_size ? r->rs_stat.ls_size : r->rs_inode.i_size;
	r->rs_most = r->rs_size > r->rs_most ? r->rs_size : r->rs_most;
}

/* ---- watch ---- */

void job_restripe_tick(struct mds *m)
{
	struct job_restripe *r = m->m_restripe;
	struct kv_txn *t;
	uint64_t ino = 0;
	int err;

	if (r->rs_ino || st_in_grace(m->m_st) || !job_repair_opts(m).ro_files ||
	    clock_mono_ms() < r->rs_rest_ms || kv_read_begin(m->m_kv, &t))
		return;
	err = lo_pendings(t, r->rs_cursor, first, &ino);
	if (!err && !ino)
		err = lo_pendings(t, 1, first, &ino);
	kv_read_end(t);
	r->rs_cursor = ino + 1;
	if (err || !ino)
		return;
	r->rs_ino = ino;
	r->rs_session = r->rs_most = 0;
	job_work_take(&r->rs_work, ino);
	restripe_begin(&r->rs_work);
}

static int first(void *arg, uint64_t ino, const struct lo_pending *tw)
{
	(void)tw;
	*(uint64_t *)arg = ino;
	return 1;
}

static void restripe_begin(struct job_work *w)
{
	struct job_restripe *r = caa_container_of(w, struct job_restripe, rs_work);

	job_work_step(&r->rs_work, JOB_STEP_WATCH);
	if (restripe_load(r))
		stat_ask(r, restripe_looked);
}

static void restripe_looked(struct lo_stat *ls, int err)
{
	struct job_restripe *r = caa_container_of(ls, struct job_restripe, rs_stat);

	restripe_unwatch(r);
	if (err || !choose_sources(r)) {
		restripe_again(r, err ? err : -EREMOTEIO);
		return;
	}
	randombytes_buf(&r->rs_session, sizeof(r->rs_session));
	r->rs_session |= 1;
	if (!watch_all(r, CTL_WATCH_BEGIN, watched))
		restripe_fail(r, -ENOMEM);
}

/* Chooses for each stripe a copy in sync whose server lives, that is there if it ever was, and that
 * has no order to be truncated before it is read. A copy that is lost must not be watched: that
 * would create it, and it would then read as zeros. */
static bool choose_sources(struct job_restripe *r)
{
	uint64_t held = lo_objects_with_orders(r->rs_m->m_lo, r->rs_ino, &r->rs_map) |
			r->rs_stat.ls_lost | ~r->rs_stat.ls_answered;
	bool taking, same = file_is_contended(&r->rs_m->m_file, r->rs_ino, &r->rs_map, &taking);

	/* A first copy that cannot be read is waited for, or another copy is first at the next
	 * try. */
	if (same && !file_first_reads(&r->rs_m->m_file, r->rs_loop, r->rs_ino, &r->rs_map,
				      r->rs_stat.ls_lost))
		return false;
	for (unsigned s = 0; s < r->rs_map.lm_stripes; s++) {
		int k, found = -1;

		for (unsigned n = 0; found < 0 && (k = lo_source(&r->rs_map, s, n, same)) >= 0; n++)
			if (!(held >> k & 1) &&
			    !ds_reg_since_heartbeat_ms(r->rs_m->m_dsc, r->rs_map.lm_obj[k].ob_ds))
				found = k;
		if (found < 0)
			return false;
		r->rs_source[s] = r->rs_map.lm_obj[found];
	}
	return true;
}

/* Here an_source is the stripe. */
static bool watch_all(struct job_restripe *r, int what,
		      void (*then)(struct job_restripe *r, int err))
{
	restripe_calls_free(r);
	for (unsigned s = 0; s < r->rs_map.lm_stripes; s++) {
		struct lo_restripe_io *an = restripe_call_new(r);

		if (!an)
			return false;
		an->an_source = s;
	}
	restripe_ask(r, then);
	for (unsigned i = 0, n = r->rs_ncall; i < n; i++)
		lo_watch(r->rs_m->m_lo, r->rs_call[i], &r->rs_inode, &r->rs_map,
			 (unsigned)restripe_source_at(r, &r->rs_map, r->rs_call[i]->an_source),
			 what, r->rs_session);
	return true;
}

static void watched(struct job_restripe *r, int err)
{
	restripe_calls_free(r);
	if (err)
		restripe_again(r, err);
	else
		stat_ask(r, first_size);
}

static void first_size(struct lo_stat *ls, int err)
{
	struct job_restripe *r = caa_container_of(ls, struct job_restripe, rs_stat);

	if (err) {
		restripe_again(r, err);
		return;
	}
	size_is(r);
	restripe_list_reset(r);
	r->rs_round = 0;
	r->rs_last = false;
	job_work_copies(&r->rs_work, 0, r->rs_size);
	job_work_step(&r->rs_work, JOB_STEP_COPY);
	if (restripe_list_add(r, 0, r->rs_most, ALL_STRIPES))
		restripe_copy(&r->rs_work);
	else
		restripe_fail(r, -ENOMEM);
}

/* ---- copy ---- */

static void restripe_copy(struct job_work *w)
{
	struct job_restripe *r = caa_container_of(w, struct job_restripe, rs_work);
	bool err;

	if (!restripe_load(r))
		return;
	if (!targets_stand(r)) {
		restripe_fail(r, -ENXIO);
		return;
	}
	if (!sources_stand(r, &r->rs_map)) {
		restripe_again(r, -EREMOTEIO);
		return;
	}
	if (!restripe_batch(r, &err) && !err) {
		restripe_list_done(r);
		return;
	}
	if (err) {
		restripe_fail(r, -ENOMEM);
		return;
	}
	restripe_ask(r, filled);
	for (unsigned i = 0, n = r->rs_ncall; i < n; i++)
		lo_fill(r->rs_m->m_lo, r->rs_call[i], &r->rs_inode, &r->rs_map, &r->rs_pending,
			false, 0);
}

static void filled(struct job_restripe *r, int err)
{
	const struct job_progress *p = &r->rs_view.rsv_progress;
	uint64_t copied = 0;

	for (unsigned i = 0; i < r->rs_ncall; i++)
		copied += r->rs_call[i]->an_filled.copied;
	restripe_calls_free(r);
	/* Clients wait for a frozen file: the job does not wait then. */
	if (err && (r->rs_frozen || err == -EIO || err == -ENOSPC ||
		    !job_work_again(&r->rs_work, restripe_copy))) {
		restripe_fail(r, err);
		return;
	}
	if (err) {
		r->rs_at = r->rs_back_at;
		r->rs_pos = r->rs_back_pos;
		return;
	}
	job_work_goes_on(&r->rs_work);
	job_work_copied(&r->rs_work, r->rs_round ? p->wp_done : r->rs_pos, p->wp_size, copied);
	job_work_later(&r->rs_work, r->rs_frozen ? 0 : job_repair_pace(r->rs_m, copied),
		       restripe_copy);
}

static void restripe_list_done(struct job_restripe *r)
{
	if (r->rs_frozen)
		restripe_finish(r);
	else if (r->rs_last)
		restripe_freeze(&r->rs_work);
	else
		restripe_take(r);
}

/* ---- take: what was changed meanwhile ---- */

static void restripe_take(struct job_restripe *r)
{
	restripe_list_reset(r);
	r->rs_takes = 0;
	if (!restripe_load(r))
		return;
	if (sources_stand(r, &r->rs_map))
		take_more(r);
	else
		restripe_again(r, -EREMOTEIO);
}

static void take_more(struct job_restripe *r)
{
	if (!watch_all(r, CTL_WATCH_TAKE, restripe_taken))
		restripe_fail(r, -ENOMEM);
}

static void restripe_taken(struct job_restripe *r, int err)
{
	bool fine = true, more = false;

	for (unsigned i = 0; i < r->rs_ncall && !err; i++) {
		struct lo_restripe_io *an = r->rs_call[i];

		for (unsigned k = 0; k < an->an_nspan && fine; k++) {
			const ctl_span *sp = &an->an_span[k];

			fine = restripe_list_add(r, sp->offset,
						 sp->length > UINT64_MAX - sp->offset
							 ? UINT64_MAX
							 : sp->offset + sp->length,
						 an->an_source);
		}
		more |= an->an_taken.more;
	}
	restripe_calls_free(r);
	if (err) /* notes that were taken may be lost */
		restripe_again(r, err);
	else if (!fine)
		restripe_fail(r, -ENOMEM);
	else if (more && (r->rs_frozen || ++r->rs_takes < TAKES))
		take_more(r);
	else
		stat_ask(r, taken_size);
}

/* A note of a truncation reaches up to the largest offset. It is limited to the farthest end that
 * the file has had, its end now included: a client may have truncated the file and then written far
 * beyond that. */
static void taken_size(struct lo_stat *ls, int err)
{
	struct job_restripe *r = caa_container_of(ls, struct job_restripe, rs_stat);

	if (err) { /* the servers report a note only once */
		restripe_again(r, err);
		return;
	}
	size_is(r);
	taken_all(r);
}

static void taken_all(struct job_restripe *r)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < r->rs_n; i++)
		if (r->rs_list[i].ran_end != UINT64_MAX && r->rs_list[i].ran_end > r->rs_most)
			r->rs_most = r->rs_list[i].ran_end;
	for (size_t i = 0; i < r->rs_n; i++) {
		struct restripe_range *g = &r->rs_list[i];

		g->ran_end = restripe_least(g->ran_end, r->rs_most);
		bytes += g->ran_end > g->ran_off ? g->ran_end - g->ran_off : 0;
	}
	r->rs_last = bytes <= FINAL_BYTES || ++r->rs_round >= ROUNDS;
	pthread_mutex_lock(&r->rs_lock);
	r->rs_view.rsv_round = r->rs_round;
	pthread_mutex_unlock(&r->rs_lock);
	job_work_step(&r->rs_work, r->rs_frozen ? JOB_STEP_FREEZE : JOB_STEP_CHANGES);
	restripe_copy(&r->rs_work);
}

/* ---- freeze ---- */

static void restripe_freeze(struct job_work *w)
{
	struct job_restripe *r = caa_container_of(w, struct job_restripe, rs_work);

	job_work_step(&r->rs_work, JOB_STEP_FREEZE);
	excl_begin(&r->rs_freeze, &r->rs_m->m_file, r->rs_loop, r->rs_ino, NULL, EXCL_LAYOUTS,
		   restripe_frozen, r);
}

/* The earlier epoch is fenced: calls from here on carry the new one. */
static void restripe_frozen(void *arg, int err)
{
	struct job_restripe *r = arg;

	if (err) {
		excl_end(&r->rs_freeze, 0);
		if (!job_work_again(&r->rs_work, restripe_freeze))
			restripe_fail(r, err);
		return;
	}
	r->rs_frozen = true;
	if (restripe_load(r))
		old_keep(r);
}

/* A client that wrote through the MDS sends COMMIT later, and that reaches the new objects. So its
 * writes must be on stable storage before, or our verifier changes. */
static void old_keep(struct job_restripe *r)
{
	memset(&r->rs_io, 0, sizeof(r->rs_io));
	lo_io_fill(&r->rs_io, r->rs_loop, &r->rs_inode, 0, 0, old_kept);
	r->rs_io.io_map = r->rs_map;
	lo_commit(r->rs_m->m_lo, &r->rs_io);
}

static void old_kept(struct lo_io *io, int err)
{
	struct job_restripe *r = caa_container_of(io, struct job_restripe, rs_io);

	if (err || io->io_failed_map)
		lo_may_have_lost(r->rs_m->m_lo);
	io->io_failed_map &= lo_map_alive(r->rs_m->m_lo, &io->io_map); /* as in move.c */
	if (err)
		restripe_again(r, err);
	else if (io->io_failed_map)
		job_work_submit(&r->rs_work, restripe_unkept_run, restripe_unkept_done);
	else
		stat_ask(r, frozen_size);
}

/* A copy that could not keep what was written lacks it for every reader: it becomes stale. */
static int restripe_unkept_run(struct kv_op *op, struct kv_txn *t)
{
	struct job_restripe *r = caa_container_of(op, struct job_restripe, rs_work.jw_op);

	return file_make_stale(&r->rs_m->m_file, t, r->rs_ino, &r->rs_map, r->rs_io.io_failed_map);
}

static void restripe_unkept_done(struct kv_op *op, int err)
{
	restripe_again(caa_container_of(op, struct job_restripe, rs_work.jw_op),
		       err ? err : -EREMOTEIO);
}

static void frozen_size(struct lo_stat *ls, int err)
{
	struct job_restripe *r = caa_container_of(ls, struct job_restripe, rs_stat);

	if (err) {
		restripe_fail(r, err);
		return;
	}
	size_is(r);
	restripe_take(r);
}

static void restripe_finish(struct job_restripe *r)
{
	struct lo_restripe_io *an = NULL;

	job_work_step(&r->rs_work, JOB_STEP_END);
	restripe_calls_free(r);
	for (unsigned k = 0; k < lo_objects(&r->rs_pending.tw_map); k++) {
		an = restripe_call_new(r);
		if (!an)
			break;
		an->an_target = k;
	}
	if (!an) {
		restripe_fail(r, -ENOMEM);
		return;
	}
	restripe_ask(r, restripe_ended);
	for (unsigned i = 0, n = r->rs_ncall; i < n; i++)
		lo_fill(r->rs_m->m_lo, r->rs_call[i], &r->rs_inode, &r->rs_map, &r->rs_pending,
			true, r->rs_size);
}

static void restripe_ended(struct job_restripe *r, int err)
{
	for (unsigned i = 0; i < r->rs_ncall; i++)
		r->rs_writes[r->rs_call[i]->an_target] = r->rs_call[i]->an_filled.writes;
	restripe_calls_free(r);
	if (err) {
		restripe_fail(r, err);
		return;
	}
	job_drain_placing(r->rs_m);
	job_work_submit(&r->rs_work, restripe_commit_run, restripe_committed);
}

/* ---- commit ---- */

static int restripe_commit_run(struct kv_op *op, struct kv_txn *t)
{
	struct job_restripe *r = caa_container_of(op, struct job_restripe, rs_work.jw_op);
	struct mds *m = r->rs_m;
	struct lo_map was, map = r->rs_pending.tw_map;
	uint8_t blob[NS_BLOB_MAX];
	struct ns_setattr s = {.s_mask = NS_S_MTIME_NOW | NS_S_SIZE | NS_S_GROW_ONLY,
			       .s_size = r->rs_size};
	struct ns_inode i, out;
	struct lo_pending tw;
	int err = ns_get(m->m_ns, t, r->rs_ino, &i);
	bool written;

	if (!err)
		err = lo_map_decode(i.i_blob, &was);
	if (!err)
		err = lo_pending_get(t, r->rs_ino, &tw);
	if (err)
		return err;
	written = news(r, &i, &was);
	if (!lo_pending_same(&tw, &r->rs_pending) || i.i_incarnation != r->rs_inode.i_incarnation ||
	    !sources_stand(r, &was))
		return -EAGAIN;
	if (!targets_stand(r))
		return -ENXIO;
	map.lm_epoch = was.lm_epoch + 1;
	for (unsigned k = 0; k < lo_objects(&map); k++) {
		map.lm_obj[k].ob_state = LO_IN_SYNC;
		map.lm_obj[k].ob_known = 1;
		map.lm_obj[k].ob_writes = r->rs_writes[k]; /* the copying is no write */
	}
	outdated(r);
	err = lo_pending_del(t, r->rs_ino);
	if (!err)
		err = lo_order_free(m->m_lo, t, &i);
	if (!err)
		err = ns_place_again(m->m_ns, t, r->rs_ino, blob,
				     lo_map_encode(&map, blob, sizeof(blob)), &out);
	if (!err && written)
		err = ns_setattr(m->m_ns, t, r->rs_ino, &s, NULL, file_now(), &out);
	if (!err)
		err = lo_repair_del(t, r->rs_ino);
	return err ? err
		   : journal_put(t, EV_FILE_MOVED, "", r->rs_ino,
				 "restriped: stripes=%u,unit=%uM, before stripes=%u,unit=%uM",
				 map.lm_stripes, map.lm_unit >> 20, was.lm_stripes,
				 was.lm_unit >> 20);
}

/* Whether there are writes by layout that the file's times do not show yet. The counts of the old
 * objects go with the objects. */
static bool news(const struct job_restripe *r, const struct ns_inode *i, const struct lo_map *was)
{
	const struct lo_stat *ls = &r->rs_stat;

	if (!file_refresh_needed(&r->rs_m->m_file, r->rs_ino))
		return false;
	if (r->rs_size > i->i_size)
		return true;
	for (unsigned k = 0; k < lo_objects(was); k++)
		if (was->lm_obj[k].ob_ds == ls->ls_map.lm_obj[k].ob_ds &&
		    was->lm_obj[k].ob_copy == ls->ls_map.lm_obj[k].ob_copy &&
		    (ls->ls_answered >> k & 1) && ls->ls_writes[k] != was->lm_obj[k].ob_writes)
			return true;
	return false;
}

static void outdated(struct job_restripe *r)
{
	struct st *st = r->rs_m->m_st;
	struct st_file *f;

	st_file_lock(st, r->rs_ino);
	f = st_file_get(st, r->rs_ino, false); /* the freeze keeps it */
	f->f_sizegen++;
	f->f_unread = f->f_unreached = 0; /* bits by object index, which changes */
	st_file_unlock(st, r->rs_ino);
}

static void restripe_committed(struct kv_op *op, int err)
{
	struct job_restripe *r = caa_container_of(op, struct job_restripe, rs_work.jw_op);

	job_drain_placed(r->rs_m);
	if (err == -EAGAIN) {
		restripe_again(r, err);
		return;
	}
	if (err && err != -ENOENT && err != -ESTALE) {
		restripe_fail(r, err);
		return;
	}
	lo_orders_wake(r->rs_m->m_lo);
	if (!err)
		log_info("inode %lu: restriped", (unsigned long)r->rs_ino);
	job_restripe_over(r->rs_m, &r->rs_view, &r->rs_pending, err ? JOB_CANCELLED : JOB_DONE);
	restripe_rest(r, 0);
}

/* ---- failures ---- */

/* Begins again: notes are lost, or a source cannot be used any more. */
static void restripe_again(struct job_restripe *r, int err)
{
	restripe_thaw(r);
	pthread_mutex_lock(&r->rs_lock);
	r->rs_view.rsv_restarts++;
	pthread_mutex_unlock(&r->rs_lock);
	if (!job_work_again(&r->rs_work, restripe_begin))
		restripe_fail(r, err);
}

/* If a server of the new objects fails or does not come back, they are placed again. Otherwise the
 * job begins again later. */
static void restripe_fail(struct job_restripe *r, int err)
{
	bool lost = err == -ENOSPC || err == -EIO || err == -ENXIO;

	restripe_thaw(r);
	log_warn("inode %lu: cannot restripe it now: %s", (unsigned long)r->rs_ino, strerror(-err));
	for (unsigned k = 0; k < lo_objects(&r->rs_pending.tw_map); k++)
		lost |= ds_reg_since_heartbeat_ms(r->rs_m->m_dsc,
						  r->rs_pending.tw_map.lm_obj[k].ob_ds) >
			job_repair_opts(r->rs_m).ro_wait_ms;
	if (lost)
		job_work_submit(&r->rs_work, restripe_replace_run, replaced);
	else
		restripe_rest(r, REST_MS);
}

/* Places the new objects again: the server of one is gone, or fails. */
static int restripe_replace_run(struct kv_op *op, struct kv_txn *t)
{
	struct job_restripe *r = caa_container_of(op, struct job_restripe, rs_work.jw_op);
	struct mds *m = r->rs_m;
	struct lo_pending was, tw;
	struct ns_inode i;
	struct lo_map map;
	char why[256];
	int err = ns_get(m->m_ns, t, r->rs_ino, &i);

	if (!err)
		err = lo_map_decode(i.i_blob, &map);
	if (!err)
		err = lo_pending_get(t, r->rs_ino, &was);
	if (!err)
		err = lo_pending_place(m->m_lo, &i, &map, was.tw_map.lm_stripes, was.tw_map.lm_unit,
				       64 + randombytes_uniform(128), m->m_room_ms, &tw, why,
				       sizeof(why));
	if (!err)
		tw.tw_number = was.tw_number; /* it is the same job */
	if (!err && lo_pending_same(&was, &tw))
		err = -EAGAIN;
	if (!err)
		err = lo_pending_free(m->m_lo, t, &i);
	return err ? err : lo_pending_put(t, r->rs_ino, &tw);
}

static void replaced(struct kv_op *op, int err)
{
	struct job_restripe *r = caa_container_of(op, struct job_restripe, rs_work.jw_op);

	lo_orders_wake(r->rs_m->m_lo);
	if (err && err != -EAGAIN && err != -ENOENT && err != -ESTALE)
		log_warn("inode %lu: cannot place its new layout again: %s",
			 (unsigned long)r->rs_ino, strerror(-err));
	restripe_rest(r, REST_MS);
}

/* The row is gone. The transaction that removed the row ordered the deletion of the new objects,
 * but a server may have made an object since: their deletion is ordered again. */
static int restripe_gone_run(struct kv_op *op, struct kv_txn *t)
{
	struct job_restripe *r = caa_container_of(op, struct job_restripe, rs_work.jw_op);
	struct ns_inode i = r->rs_inode;
	int err = 0;

	i.i_incarnation = r->rs_pending.tw_incarnation;
	for (unsigned k = 0; !err && k < lo_objects(&r->rs_pending.tw_map); k++)
		err = lo_order_free_object(r->rs_m->m_lo, t, &i, &r->rs_pending.tw_map, k);
	return err;
}

static void gone_done(struct kv_op *op, int err)
{
	struct job_restripe *r = caa_container_of(op, struct job_restripe, rs_work.jw_op);

	if (err)
		log_error("inode %lu: cannot delete the objects of an abandoned layout: %s",
			  (unsigned long)r->rs_ino, strerror(-err));
	lo_orders_wake(r->rs_m->m_lo);
	job_restripe_over(r->rs_m, &r->rs_view, &r->rs_pending, JOB_CANCELLED);
	restripe_rest(r, 0);
}

/* ---- for the administrator ---- */

void job_restripe_look(struct mds *m, struct job_restripe_view *out)
{
	pthread_mutex_lock(&m->m_restripe->rs_lock);
	*out = m->m_restripe->rs_view;
	pthread_mutex_unlock(&m->m_restripe->rs_lock);
}

int job_restripe_open(struct mds *m, struct loop *loop)
{
	struct job_restripe *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	r->rs_m = m;
	r->rs_loop = loop;
	pthread_mutex_init(&r->rs_lock, NULL);
	job_work_open(&r->rs_work, m->m_kv, loop, &r->rs_lock, &r->rs_view.rsv_progress);
	m->m_restripe = r;
	return 0;
}
