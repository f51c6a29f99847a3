/* SPDX-License-Identifier: Apache-2.0 */
/* exclusive.c - exclusive access to one file: recall the layouts, wait until the deadline, fence,
 * wait for the orders, release. exclusive.h has the picture of the states. */
#include "mds/file/exclusive.h"
#include "base/log.h"
#include "common/trace.h"
#include "mds/journal/event_journal.h"
#include <errno.h>
#include <stdlib.h>

/* tests/unit/exclusive_test.c plants faults here, and must find each. */
#ifndef EXCL_FAULT
#define EXCL_FAULT(what) false
#endif

static void exclusive_phase(struct excl *x, enum excl_phase phase)
{
	x->ex_phase = phase;
	TRACE(file_phase, x->ex_ino, phase, x->ex_how, x->ex_left);
}

/* ---- what is kept away ---- */

/* The file is locked. by: 1 or -1. */
static void keep_away(struct st_file *f, enum excl_how how, int by)
{
	if (!EXCL_FAULT(NOT_KEPT_AWAY))
		f->f_nexcl += (uint32_t)by;
	if (how <= EXCL_RECALL_AND_FENCE)
		f->f_nrecalling += (uint32_t)by;
	if (how == EXCL_SIZE)
		f->f_nsizing += (uint32_t)by;
	if (how >= EXCL_WRITES)
		f->f_nfrozen += (uint32_t)by;
	if (how >= EXCL_ALL)
		f->f_nhidden += (uint32_t)by;
}

/* A frozen file is not truncated, and a file that is being truncated is not frozen: a freeze is
 * there to copy data, and a truncation reaches one copy before the other. */
static bool is_busy(const struct st_file *f, enum excl_how how)
{
	if (EXCL_FAULT(TWO_HAVE_IT))
		return false;
	return (how >= EXCL_SIZE && f->f_nfrozen) || (how >= EXCL_WRITES && f->f_nsizing);
}

/* -EAGAIN: another exclusion has the file, or there is no memory. -ENOENT: the file has no state,
 * so no layout is out. */
static int excl_enter(struct excl *x)
{
	struct st *st = x->ex_env->fe_st;
	bool make = x->ex_how >= EXCL_SIZE || x->ex_how == EXCL_RECALL_AND_FENCE;
	struct st_file *f;
	int err = 0;

	st_file_lock(st, x->ex_ino);
	f = st_file_get(st, x->ex_ino, make);
	if (!f) {
		err = make ? -EAGAIN : -ENOENT;
	} else if (is_busy(f, x->ex_how)) {
		st_file_put(st, f);
		err = -EAGAIN;
	} else {
		keep_away(f, x->ex_how, 1);
		if (f->f_nhidden)
			st_file_watch(f);
		x->ex_held = true;
	}
	st_file_unlock(st, x->ex_ino);
	return err;
}

static void excl_leave(struct excl *x)
{
	struct st *st = x->ex_env->fe_st;
	struct st_file *f;

	if (!x->ex_held || EXCL_FAULT(NEVER_LET_GO))
		return;
	st_file_lock(st, x->ex_ino);
	f = st_file_get(st, x->ex_ino, false); /* f_nexcl keeps it */
	keep_away(f, x->ex_how, -1);
	f->f_ncutting -= x->ex_cutting;
	st_file_put(st, f);
	st_file_unlock(st, x->ex_ino);
	x->ex_held = x->ex_cutting = false;
}

int excl_block(struct excl_layout_block *h, const struct file_env *fe, uint64_t ino)
{
	struct st *st = fe->fe_st;
	struct st_file *f;

	if (h->eh_env)
		return 0;
	st_file_lock(st, ino);
	f = st_file_get(st, ino, true);
	if (f) {
		keep_away(f, EXCL_RECALL, 1);
		*h = (struct excl_layout_block){fe, ino};
	}
	st_file_unlock(st, ino);
	return f ? 0 : -ENOMEM;
}

void excl_unblock(struct excl_layout_block *h)
{
	struct st_file *f;
	struct st *st;

	if (!h->eh_env)
		return;
	st = h->eh_env->fe_st;
	st_file_lock(st, h->eh_ino);
	f = st_file_get(st, h->eh_ino, false);
	keep_away(f, EXCL_RECALL, -1);
	st_file_put(st, f);
	st_file_unlock(st, h->eh_ino);
	h->eh_env = NULL;
}

bool excl_hidden(const struct file_env *fe, uint64_t ino)
{
	struct st_file *f;
	bool hidden;

	if (!st_watched(ino))
		return false;
	st_file_lock(fe->fe_st, ino);
	f = st_file_get(fe->fe_st, ino, false);
	hidden = f && f->f_nhidden;
	st_file_unlock(fe->fe_st, ino);
	return hidden;
}

/* ---- the answer ---- */

/* The caller makes the fence a part of its own change. */
static bool is_change(const struct excl *x)
{
	return x->ex_how == EXCL_RIGHTS || x->ex_how == EXCL_SIZE;
}

/* Ends RECALL, RECALL_AND_FENCE and RESOLVE, which are over when they are answered: releases the
 * file, then calls ex_then. */
static void detached_end(struct excl *x, int err)
{
	struct st *st = x->ex_env->fe_st;
	struct st_file *f;

	if (err)
		log_error("inode %lu: data servers did not confirm a fence: %s",
			  (unsigned long)x->ex_ino, strerror(-err));
	else if (x->ex_left && !EXCL_FAULT(NOT_REVOKED))
		st_revoke_file(st, x->ex_ino, x->ex_except, false);
	if (!err && x->ex_left)
		journal_add(EV_LAYOUT_FENCED, "", x->ex_ino, "%u layout%s not come back in time",
			    x->ex_left, x->ex_left > 1 ? "s did" : " did");
	if (x->ex_how == EXCL_RESOLVE && !err) {
		st_file_lock(st, x->ex_ino);
		f = st_file_get(st, x->ex_ino, false);
		if (f) {
			f->f_intent_old = false;
			/* f_suspect stays if another writer was lost since the copies were
			 * resolved. */
			f->f_suspect &= f->f_suspect_gen != x->ex_judged;
			f->f_old_epoch = 0;
			st_file_put(st, f);
		}
		st_file_unlock(st, x->ex_ino);
	}
	excl_leave(x);
	excl_unblock(&x->ex_hold);
	if (x->ex_then)
		x->ex_then(x->ex_arg, err);
	free(x);
}

static void excl_told(struct loop_msg *m)
{
	struct excl *x = hash_entry(m, struct excl, ex_msg);

	log_request = x->ex_request;
	x->ex_then(x->ex_arg, x->ex_err);
}

static void excl_answer(struct excl *x, int err)
{
	if (!is_change(x) || x->ex_changed)
		exclusive_phase(x, err && !x->ex_changed ? EXCL_OPEN : EXCL_EXCLUSIVE);
	if (x->ex_how <= EXCL_RESOLVE) {
		detached_end(x, err);
	} else if (x->ex_changed || x->ex_how <= EXCL_SIZE) {
		x->ex_then(x->ex_arg, err);
	} else {
		x->ex_err = err;
		x->ex_msg.m_run = excl_told;
		loop_post(x->ex_loop, &x->ex_msg);
		if (EXCL_FAULT(ANSWERED_TWICE))
			x->ex_then(x->ex_arg, err);
	}
}

/* ---- silent servers: what their copies are worth when they miss a change ---- */

static uint64_t held_now(const struct excl *x)
{
	uint64_t held = 0;
	struct kv_txn *t;

	if (kv_read_begin(x->ex_env->fe_kv, &t) == 0) {
		held = file_held(x->ex_env, t, x->ex_ino);
		kv_read_end(t);
	}
	return held;
}

/* Makes a copy on a silent server stale if its stripe keeps another copy in sync. Otherwise the
 * file gets no layouts until the order is done. */
static int silence_run(struct kv_op *op, struct kv_txn *t)
{
	struct excl *x = hash_entry(op, struct excl, ex_op);
	const struct file_env *fe = x->ex_env;
	uint64_t stale;
	struct ns_inode i;
	struct lo_map map;

	if (ns_get(fe->fe_ns, t, x->ex_ino, &i) || lo_map_decode(i.i_blob, &map))
		return 0; /* removed in between */
	stale = lo_map_make_stale(&map, x->ex_quiet, NULL);
	x->ex_unfenced = x->ex_late && lo_objects_with_orders(fe->fe_lo, x->ex_ino, &map);
	if (!stale)
		return 0;
	x->ex_silent |= stale;
	log_warn("inode %lu: data servers do not answer: their copies are now stale",
		 (unsigned long)x->ex_ino);
	return file_set_map(fe, t, x->ex_ino, &map, file_now());
}

static int changed_err(const struct excl *x)
{
	return x->ex_late && (x->ex_left || x->ex_unfenced || !x->ex_silent) ? -ETIMEDOUT : 0;
}

static void exclusive_order(struct excl *x);

/* A plain NFSv3 data server has no lease that ends. Until it has confirmed it may accept what it
 * accepted before, so the caller must wait. By now another copy may be stale, or its server
 * declared dead: read the map again. */
static void wait_on(struct excl *x)
{
	const struct file_env *fe = x->ex_env;
	struct ns_inode i;
	struct kv_txn *t;
	int err = kv_read_begin(fe->fe_kv, &t);

	if (!err) {
		err = ns_get(fe->fe_ns, t, x->ex_ino, &i);
		if (!err)
			err = lo_map_decode(i.i_blob, &x->ex_map);
		kv_read_end(t);
	}
	if (err == -ENOENT || err == -ESTALE)
		excl_answer(x, 0); /* removed in between: nothing to protect */
	else
		exclusive_order(x);
}

static void changed_answer(struct excl *x, int err)
{
	if (err == -ETIMEDOUT && x->ex_owed && !EXCL_FAULT(OWED_GOES_ON))
		wait_on(x);
	else
		excl_answer(x, err);
}

static void changed_taken_back(void *arg, int err)
{
	struct excl *x = arg;

	/* Ignore the error: the change is committed. A client that still holds a layout is fenced
	 * when its data servers run the order. */
	(void)err;
	changed_answer(x, changed_err(x));
}

static void silenced(struct kv_op *op, int err)
{
	struct excl *x = hash_entry(op, struct excl, ex_op);

	if (!x->ex_changed) {
		excl_answer(x, err ? err : x->ex_unfenced ? -ETIMEDOUT : 0);
		return;
	}
	if (err)
		log_error("inode %lu: cannot mark copies that missed a change as stale: %s",
			  (unsigned long)x->ex_ino, strerror(-err));
	/* The layouts of all clients name these copies. */
	if (!err && x->ex_silent &&
	    excl_recall_and_fence(x->ex_env, x->ex_loop, x->ex_ino, NULL, changed_taken_back, x)) {
		if (x->ex_recalls)
			x->ex_recalls(x->ex_arg);
		return;
	}
	changed_answer(x, err ? err : changed_err(x));
}

static void silence(struct excl *x)
{
	exclusive_phase(x, EXCL_SILENCING);
	x->ex_op = (struct kv_op){.o_run = silence_run, .o_done = silenced, .o_loop = x->ex_loop};
	kv_submit(x->ex_env->fe_kv, &x->ex_op);
}

/* ---- orders ---- */

static void changed_ordered(struct excl *x, int err)
{
	x->ex_late = err;
	x->ex_owed = err == -EBUSY;
	x->ex_quiet = x->ex_how == EXCL_RIGHTS && !x->ex_owed ? 0 : held_now(x);
	/* RIGHTS: only copies on servers that were declared dead become stale. An NFSv3 data server
	 * that may live still holds the data from which the right was withdrawn. */
	if (x->ex_how == EXCL_RIGHTS)
		x->ex_quiet &= lo_map_dead(x->ex_env->fe_lo, &x->ex_map);
	if (x->ex_quiet)
		silence(x);
	else
		changed_answer(x, err ? -ETIMEDOUT : 0);
}

/* err 0: each server has confirmed, or its lease has run out. Else a server lives and has not
 * confirmed by the deadline (lo_orders_wait). */
static void excl_ordered(void *arg, int err)
{
	struct excl *x = arg;

	log_request = x->ex_request;
	if (EXCL_FAULT(TIMEOUT_IS_CONFIRMED))
		err = 0;
	if (x->ex_changed) {
		changed_ordered(x, err);
		return;
	}
	if (x->ex_how == EXCL_RECALL && err == -EBUSY && !EXCL_FAULT(OWED_GOES_ON)) {
		wait_on(x);
		return;
	}
	if (x->ex_how <= EXCL_RESOLVE) {
		excl_answer(x, err ? -ETIMEDOUT : 0);
		return;
	}
	if (err) {
		log_error("inode %lu: data servers did not confirm a fence: %s",
			  (unsigned long)x->ex_ino, strerror(-err));
	} else if (x->ex_left) {
		st_revoke_file(x->ex_env->fe_st, x->ex_ino, x->ex_except, x->ex_rw_only);
		x->ex_left = 0;
	}
	/* A live server did not run the order (its drive may have died). If no client kept a
	 * layout, no client uses its copy once that is stale, as if the server were dead. */
	x->ex_late = err && !x->ex_left;
	x->ex_quiet = x->ex_late || (!err && x->ex_how != EXCL_LAYOUTS) ? held_now(x) : 0;
	if (x->ex_quiet && (!err || x->ex_late))
		silence(x);
	else
		excl_answer(x, err ? -ETIMEDOUT : 0);
}

/* Objects that are stale in the returned map need not be confirmed; NULL: all must be. A client
 * that kept a layout may read an object that became stale, so such objects are fenced as well. In
 * other cases no layout names an object that has been stale for long: a drive that died with such
 * an object blocks neither the use nor the repair of the file. */
static const struct lo_map *awaited(struct excl *x)
{
	if (x->ex_changed && x->ex_how >= EXCL_WRITES)
		return NULL;
	if (x->ex_changed && !x->ex_left)
		return &x->ex_map;
	if (x->ex_how == EXCL_RESOLVE || (x->ex_how >= EXCL_WRITES && !x->ex_left))
		return &x->ex_map;
	return lo_fence_unconfirmed(x->ex_env->fe_lo, &x->ex_map) ? &x->ex_map : NULL;
}

static void exclusive_order(struct excl *x)
{
	const struct file_env *fe = x->ex_env;

	exclusive_phase(x, EXCL_ORDERING);
	lo_orders_wake(fe->fe_lo);
	if (EXCL_FAULT(NOT_CONFIRMED))
		excl_ordered(x, 0);
	else
		lo_orders_wait_used(fe->fe_lo, x->ex_ino, awaited(x), x->ex_loop, fe->fe_confirm_ms,
				    excl_ordered, x);
}

/* ---- the fence ---- */

static int raise_alone(const struct file_env *fe, struct kv_txn *t, const struct ns_inode *i,
		       struct lo_map *map, struct ns_time now)
{
	map->lm_epoch = EXCL_FAULT(EPOCH_GOES_BACK) ? 0 : map->lm_epoch + 1;
	map->lm_clean = true;
	TRACE(fence, i->i_ino, map->lm_epoch, 0, 0);
	return file_set_map(fe, t, i->i_ino, map, now);
}

int excl_raise(const struct file_env *fe, struct kv_txn *t, const struct ns_inode *i,
	       struct lo_map *map, struct ns_time now)
{
	int err = raise_alone(fe, t, i, map, now);

	return err || EXCL_FAULT(NO_ORDERS) ? err
					    : lo_order_fence(fe->fe_lo, t, i, map, map->lm_epoch);
}

int excl_fence_unused(const struct file_env *fe, struct kv_txn *t, uint64_t ino, bool *out)
{
	struct st *st = fe->fe_st;
	struct st_file *f;
	struct ns_inode i;
	struct lo_map map;
	bool may;
	int err;

	st_file_lock(st, ino);
	f = st_file_get(st, ino, false);
	*out = f && f->f_layouts;
	may = *out || (f && f->f_intent);
	st_file_unlock(st, ino);
	if (!may)
		return 0;
	err = ns_get(fe->fe_ns, t, ino, &i);
	if (err)
		return err;
	if (lo_map_decode(i.i_blob, &map)) {
		log_error("inode %lu goes to the trash, but its layout map is damaged: it cannot "
			  "be fenced",
			  (unsigned long)ino);
		return 0;
	}
	if (file_writers_left(fe, ino, NULL))
		file_suspect(fe, ino, &map, UINT64_MAX, 0);
	err = excl_raise(fe, t, &i, &map, file_now());
	return err ? err : 1;
}

/* A client that is fenced in the middle of a write leaves that write on some copies only. */
static void mistrust_left(const struct excl *x, struct lo_map *map)
{
	if (x->ex_left && !EXCL_FAULT(NOT_SUSPECT) &&
	    file_writers_left(x->ex_env, x->ex_ino, x->ex_except))
		file_suspect(x->ex_env, x->ex_ino, map, UINT64_MAX, 0);
}

/* Several exclusions may settle one file at once: the first raises the epoch, and all wait for it.
 * *judge: the copies are suspect. Where data servers do not know clients (NFSv3), the raised epoch
 * also fences a lost writer. */
static bool settle_is_raised(struct excl *x, const struct lo_map *map, bool *judge)
{
	struct st *st = x->ex_env->fe_st;
	struct st_file *f;
	bool raised;

	st_file_lock(st, x->ex_ino);
	f = st_file_get(st, x->ex_ino, false);
	*judge = f && f->f_suspect;
	x->ex_judged = f ? f->f_suspect_gen : 0;
	x->ex_raised =
		f && (f->f_intent_old || (f->f_suspect && lo_generic(x->ex_env->fe_lo, map)));
	raised = !x->ex_raised || (f->f_old_epoch && map->lm_epoch >= f->f_old_epoch);
	if (!raised)
		f->f_old_epoch = map->lm_epoch + 1;
	st_file_unlock(st, x->ex_ino);
	return raised;
}

/* The copies that file_ask_lost reported as lost, where the map still has them. */
static uint64_t lost_copies(const struct excl *x, const struct lo_map *map)
{
	const struct lo_map *was = &x->ex_map;
	uint64_t lost = 0;

	for (unsigned i = 0; i < lo_objects(map) && i < lo_objects(was); i++)
		if (x->ex_lost >> i & 1 && map->lm_obj[i].ob_ds == was->lm_obj[i].ob_ds &&
		    map->lm_obj[i].ob_copy == was->lm_obj[i].ob_copy)
			lost |= UINT64_C(1) << i;
	return lost;
}

static void fence(struct excl *x);

static void exclusive_asked(void *arg, uint64_t objects)
{
	struct excl *x = arg;

	log_request = x->ex_request;
	x->ex_asked = true;
	x->ex_lost = objects;
	fence(x);
}

/* A writer that died in the middle of a write also leaves it on some copies only. A restored store
 * lists copies that were moved and deleted since, so the servers are first asked which copies are
 * lost. -EAGAIN: they must be asked; nothing is changed yet. */
static int settle_fence(struct excl *x, struct kv_txn *t, const struct ns_inode *i,
			struct lo_map *map)
{
	bool judge, raised = settle_is_raised(x, map, &judge);
	uint64_t lost = lost_copies(x, map);
	int err = 0;

	x->ex_map = *map;
	if (judge && !x->ex_asked) {
		x->ex_asks = true;
		x->ex_incarnation = i->i_incarnation;
		return -EAGAIN;
	}
	if (judge)
		judge = file_suspect(x->ex_env, x->ex_ino, map, UINT64_MAX, lost);
	if (judge)
		err = excl_block(&x->ex_hold, x->ex_env, x->ex_ino);
	if (err)
		return err;
	if (raised)
		return judge ? file_set_map(x->ex_env, t, x->ex_ino, map, file_now()) : 0;
	return excl_raise(x->ex_env, t, i, map, file_now());
}

static int fence_run(struct kv_op *op, struct kv_txn *t)
{
	struct excl *x = hash_entry(op, struct excl, ex_op);
	struct ns_inode i;
	struct lo_map map;
	int err = ns_get(x->ex_env->fe_ns, t, x->ex_ino, &i);

	if (!err)
		err = lo_map_decode(i.i_blob, &map);
	if (err)
		return err;
	if (x->ex_how == EXCL_RESOLVE)
		return settle_fence(x, t, &i, &map);
	x->ex_map = map;
	/* Every capability is fenced already. The orders for that may still be under way. */
	if (x->ex_how == EXCL_RECALL_AND_FENCE && map.lm_clean && !x->ex_left)
		return 0;
	mistrust_left(x, &map);
	return excl_raise(x->ex_env, t, &i, &map, file_now());
}

static void exclusive_ask(struct excl *x)
{
	int err = file_ask_lost(x->ex_env, x->ex_loop, x->ex_ino, x->ex_incarnation, &x->ex_map,
				exclusive_asked, x);

	if (err)
		excl_answer(x, err);
}

static void fence_committed(struct kv_op *op, int err)
{
	struct excl *x = hash_entry(op, struct excl, ex_op);
	bool detached = x->ex_how <= EXCL_RESOLVE;

	if (x->ex_asks && !x->ex_asked) {
		exclusive_ask(x);
		return;
	}
	if (EXCL_FAULT(COMMIT_FAILED))
		err = 0;
	/* Layouts of other clients name the objects that became stale. This recall runs alone:
	 * until they are back, f_nrecalling prevents new layouts and writes through the MDS. */
	if (!err && x->ex_hold.eh_env)
		excl_recall_and_fence(x->ex_env, x->ex_loop, x->ex_ino, NULL, NULL, NULL);
	if (detached && (err == -ENOENT || err == -ESTALE))
		excl_answer(x, 0); /* removed in between: nothing to protect */
	else if (err || (x->ex_how == EXCL_RESOLVE && !x->ex_raised))
		excl_answer(x, err);
	else
		exclusive_order(x);
}

static void fence(struct excl *x)
{
	exclusive_phase(x, EXCL_FENCING);
	x->ex_op =
		(struct kv_op){.o_run = fence_run, .o_done = fence_committed, .o_loop = x->ex_loop};
	kv_submit(x->ex_env->fe_kv, &x->ex_op);
}

/* False: nothing can be under way, so the epoch stays. There was no write layout since the writes
 * of the last one were counted, and there is no request through the MDS. */
static bool may_be_written(const struct excl *x)
{
	struct st *st = x->ex_env->fe_st;
	struct st_file *f;
	bool may;

	st_file_lock(st, x->ex_ino);
	f = st_file_get(st, x->ex_ino, false); /* f_nexcl keeps it */
	may = f->f_intent || f->f_layouts || f->f_pins;
	st_file_unlock(st, x->ex_ino);
	return may;
}

static bool needs_fence(const struct excl *x)
{
	switch (x->ex_how) {
	case EXCL_RECALL:
		return (x->ex_left && !EXCL_FAULT(LEFT_IS_BACK)) || EXCL_FAULT(RETURNED_IS_FENCED);
	case EXCL_WRITES:
	case EXCL_ALL:
		return x->ex_left || (may_be_written(x) && !EXCL_FAULT(BACK_IS_OVER));
	default:
		return true;
	}
}

/* ---- recall ---- */

static void exclusive_all_back(struct excl *x)
{
	if (is_change(x)) {
		exclusive_phase(x, EXCL_FENCING); /* the caller fences with its own change */
		excl_answer(x, 0);
	} else if (needs_fence(x)) {
		fence(x);
	} else {
		excl_answer(x, 0);
	}
}

static void exclusive_recalled(struct st_wait *w, unsigned left)
{
	struct excl *x = hash_entry(w, struct excl, ex_wait);

	log_request = x->ex_request;
	x->ex_left = left;
	exclusive_all_back(x);
}

/* False: no layout has to come back. */
static bool exclusive_recall(struct excl *x)
{
	exclusive_phase(x, EXCL_RECALLING);
	x->ex_wait.w_then = exclusive_recalled;
	return st_recall_file(x->ex_env->fe_st, x->ex_ino, x->ex_except, x->ex_rw_only, x->ex_loop,
			      x->ex_env->fe_recall_ms, &x->ex_wait);
}

static void excl_init(struct excl *x, const struct file_env *fe, struct loop *loop, uint64_t ino,
		      struct st_client *except, enum excl_how how, void (*then)(void *arg, int err),
		      void *arg)
{
	memset(x, 0, sizeof(*x));
	x->ex_request = log_request;
	x->ex_env = fe;
	x->ex_loop = loop;
	x->ex_ino = ino;
	x->ex_except = except;
	x->ex_how = how;
	x->ex_rw_only = how == EXCL_WRITES;
	x->ex_then = then;
	x->ex_arg = arg;
}

static struct excl *excl_new(const struct file_env *fe, struct loop *loop, uint64_t ino,
			     struct st_client *except, enum excl_how how,
			     void (*then)(void *arg, int err), void *arg)
{
	struct excl *x = malloc(sizeof(*x));

	if (!x)
		log_fatal("out of memory while recalling layouts");
	excl_init(x, fe, loop, ino, except, how, then, arg);
	return x;
}

static bool has_state(struct st *st, uint64_t ino)
{
	bool has;

	st_file_lock(st, ino);
	has = st_file_get(st, ino, false);
	st_file_unlock(st, ino);
	return has;
}

bool excl_recall_and_fence(const struct file_env *fe, struct loop *loop, uint64_t ino,
			   struct st_client *except, void (*then)(void *arg, int err), void *arg)
{
	struct excl *x;

	if (!has_state(fe->fe_st, ino)) /* so it is for most files that are removed */
		return false;
	x = excl_new(fe, loop, ino, except, EXCL_RECALL, then, arg);
	if (!excl_enter(x) && exclusive_recall(x))
		return true;
	excl_leave(x);
	free(x);
	return false;
}

void excl_recall_and_fence_all(const struct file_env *fe, struct loop *loop, uint64_t ino,
			       void (*then)(void *arg, int err), void *arg)
{
	struct excl *x = excl_new(fe, loop, ino, NULL, EXCL_RECALL_AND_FENCE, then, arg);

	if (excl_enter(x))
		log_fatal("out of memory while recalling layouts");
	if (!exclusive_recall(x))
		exclusive_all_back(x);
}

bool excl_resolve(const struct file_env *fe, struct loop *loop, uint64_t ino,
		  void (*then)(void *arg, int err), void *arg)
{
	struct st *st = fe->fe_st;
	struct st_file *f;
	bool old;

	if (!st_watched(ino))
		return false;
	st_file_lock(st, ino);
	f = st_file_get(st, ino, false);
	old = f && (f->f_intent_old || f->f_suspect);
	st_file_unlock(st, ino);
	if (old)
		fence(excl_new(fe, loop, ino, NULL, EXCL_RESOLVE, then, arg));
	return old;
}

/* ---- a copy that became stale ---- */

int excl_stale(struct excl_layout_block *h, const struct file_env *fe, struct kv_txn *t,
	       uint64_t ino, const struct lo_map *map, struct ns_time now)
{
	int err = excl_block(h, fe, ino);

	return err ? err : file_set_map(fe, t, ino, map, now);
}

bool excl_recall_stale(struct excl_layout_block *h, const struct file_env *fe, struct loop *loop,
		       uint64_t ino, struct st_client *except, void (*then)(void *arg, int err),
		       void *arg)
{
	bool waits = excl_recall_and_fence(fe, loop, ino, except, then, arg);

	excl_unblock(h);
	return waits;
}

/* ---- exclusive access to one file ---- */

static void exclusive_settled(void *arg, int err)
{
	struct excl *x = arg;

	if (err)
		excl_answer(x, err);
	else if (!exclusive_recall(x))
		exclusive_all_back(x);
}

void excl_begin(struct excl *x, const struct file_env *fe, struct loop *loop, uint64_t ino,
		struct st_client *except, enum excl_how how, void (*then)(void *arg, int err),
		void *arg)
{
	excl_init(x, fe, loop, ino, except, how, then, arg);
	if (excl_enter(x)) {
		excl_answer(x, -EAGAIN);
		return;
	}
	exclusive_phase(x, EXCL_RESOLVING);
	if (!excl_resolve(fe, loop, ino, exclusive_settled, x))
		exclusive_settled(x, 0);
}

int excl_change(struct excl *x, const struct file_env *fe, struct loop *loop, uint64_t ino,
		struct st_client *except, enum excl_how how, bool rw_only,
		void (*then)(void *arg, int err), void *arg)
{
	int err;

	excl_init(x, fe, loop, ino, except, how, then, arg);
	x->ex_rw_only = rw_only;
	err = excl_enter(x);
	if (err == -EAGAIN)
		return err;
	if (!err && exclusive_recall(x))
		return 1;
	exclusive_phase(x, EXCL_FENCING);
	return 0;
}

/* An answer to an earlier question for the size is outdated (f_sizegen). So is every answer until
 * the caller releases the file: some data servers have not run the order yet (f_ncutting). A
 * transaction may run twice. */
static void size_is_set(struct excl *x)
{
	struct st *st = x->ex_env->fe_st;
	struct st_file *f;

	st_file_lock(st, x->ex_ino);
	f = st_file_get(st, x->ex_ino, false);
	f->f_sizegen++; /* f_nexcl keeps it */
	f->f_ncutting += !x->ex_cutting;
	x->ex_cutting = true;
	f->f_set = true;
	f->f_set_grants = f->f_grants;
	st_file_unlock(st, x->ex_ino);
}

int excl_fence(struct excl *x, struct kv_txn *t, const struct ns_inode *i, struct lo_map *map,
	       bool raise, bool carried, struct ns_time now)
{
	const struct file_env *fe = x->ex_env;

	x->ex_map = *map;
	if (x->ex_how == EXCL_SIZE)
		size_is_set(x);
	mistrust_left(x, map);
	if (!raise)
		return 0;
	/* An NFSv3 data server knows no epoch: it needs a fence order of its own. */
	if (carried && !lo_generic(fe->fe_lo, map))
		return raise_alone(fe, t, i, map, now);
	return excl_raise(fe, t, i, map, now);
}

void excl_order(struct excl *x, void (*recalls)(void *arg), void (*then)(void *arg, int err),
		void *arg)
{
	x->ex_changed = true;
	x->ex_recalls = recalls;
	x->ex_then = then;
	x->ex_arg = arg;
	x->ex_late = x->ex_unfenced = false;
	/* The objects that such a layout names are being deleted, or there is no such layout. */
	if (x->ex_how >= EXCL_ALL)
		st_revoke_file(x->ex_env->fe_st, x->ex_ino, NULL, false);
	exclusive_order(x);
}

void excl_end(struct excl *x, int err)
{
	if (!x->ex_env)
		return;
	/* A client that is not fenced keeps its layout in the table: other exclusions wait for that
	 * layout, or fence it. */
	if (x->ex_left && !err && !x->ex_late && x->ex_how <= EXCL_SIZE)
		st_revoke_file(x->ex_env->fe_st, x->ex_ino, x->ex_except, x->ex_rw_only);
	x->ex_left = 0;
	excl_leave(x);
	exclusive_phase(x, EXCL_OPEN);
}
