/* exclusive.c - a file for oneself: recall, deadline, fence, orders, and letting go. See
 * exclusive.h. */
#include "mds/file/exclusive.h"
#include "base/log.h"
#include "mds/journal/event.h"
#include <errno.h>
#include <stdlib.h>

/* tests/unit/exclusive_test.c plants faults here, and has to find each. */
#ifndef EXCL_FAULT
#define EXCL_FAULT(what) false
#endif

/* ---- what is kept away ---- */

/* locked; by: 1, or -1 */
static void keep_away(struct st_file *f, enum excl_how how, int by)
{
	if (!EXCL_FAULT(NOT_KEPT_AWAY))
		f->f_excl += (uint32_t)by;
	if (how <= EXCL_TAKE_BACK_FENCED)
		f->f_taking += (uint32_t)by;
	if (how == EXCL_SIZE)
		f->f_sizing += (uint32_t)by;
	if (how >= EXCL_WRITES)
		f->f_frozen += (uint32_t)by;
	if (how >= EXCL_ALL)
		f->f_hidden += (uint32_t)by;
}

/* A frozen file is not cut, and one that is being cut is not frozen: who froze it copies what the
 * other would cut at one copy before the other. */
static bool is_busy(const struct st_file *f, enum excl_how how)
{
	if (EXCL_FAULT(TWO_HAVE_IT))
		return false;
	return (how >= EXCL_SIZE && f->f_frozen) || (how >= EXCL_WRITES && f->f_sizing);
}

/* -EAGAIN: another has the file, or no memory. -ENOENT: the file has no state, so that nothing is
 * out. */
static int excl_enter(struct excl *x)
{
	struct st *st = x->ex_env->fe_st;
	bool make = x->ex_how >= EXCL_SIZE || x->ex_how == EXCL_TAKE_BACK_FENCED;
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
		if (f->f_hidden)
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
	f = st_file_get(st, x->ex_ino, false); /* f_excl keeps it */
	keep_away(f, x->ex_how, -1);
	f->f_cutting -= x->ex_cutting;
	st_file_put(st, f);
	st_file_unlock(st, x->ex_ino);
	x->ex_held = x->ex_cutting = false;
}

int excl_hold(struct excl_hold *h, const struct file_env *fe, uint64_t ino)
{
	struct st *st = fe->fe_st;
	struct st_file *f;

	if (h->eh_env)
		return 0;
	st_file_lock(st, ino);
	f = st_file_get(st, ino, true);
	if (f) {
		keep_away(f, EXCL_TAKE_BACK, 1);
		*h = (struct excl_hold){fe, ino};
	}
	st_file_unlock(st, ino);
	return f ? 0 : -ENOMEM;
}

void excl_unhold(struct excl_hold *h)
{
	struct st_file *f;
	struct st *st;

	if (!h->eh_env)
		return;
	st = h->eh_env->fe_st;
	st_file_lock(st, h->eh_ino);
	f = st_file_get(st, h->eh_ino, false);
	keep_away(f, EXCL_TAKE_BACK, -1);
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
	hidden = f && f->f_hidden;
	st_file_unlock(fe->fe_st, ino);
	return hidden;
}

/* ---- the answer ---- */

/* The caller makes the fence a part of its own change. */
static bool is_change(const struct excl *x)
{
	return x->ex_how == EXCL_RIGHTS || x->ex_how == EXCL_SIZE;
}

/* Of who asked for layouts and waits for no more: it lets go, and then says so. */
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
		ev_add(EV_LAYOUT_FENCED, "", x->ex_ino, "%u layout%s not come back in time",
		       x->ex_left, x->ex_left > 1 ? "s did" : " did");
	if (x->ex_how == EXCL_SETTLE && !err) {
		st_file_lock(st, x->ex_ino);
		f = st_file_get(st, x->ex_ino, false);
		if (f) {
			f->f_mark_old = false;
			/* Of a writer that was lost since the others' copies were judged: not yet.
			 */
			f->f_judge &= f->f_judge_gen != x->ex_judged;
			f->f_old_epoch = 0;
			st_file_put(st, f);
		}
		st_file_unlock(st, x->ex_ino);
	}
	excl_leave(x);
	excl_unhold(&x->ex_hold);
	if (x->ex_then)
		x->ex_then(x->ex_arg, err);
	free(x);
}

static void excl_told(struct loop_msg *m)
{
	struct excl *x = hash_entry(m, struct excl, ex_msg);

	x->ex_then(x->ex_arg, x->ex_err);
}

static void excl_answer(struct excl *x, int err)
{
	if (!is_change(x) || x->ex_changed)
		x->ex_phase = err && !x->ex_changed ? EXCL_OPEN : EXCL_EXCLUSIVE;
	if (x->ex_how <= EXCL_SETTLE) {
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

/* ---- silent servers: what is their copy worth, when a change comes that they do not hear of? ----
 */

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

/* Stale where a copy is left; where none is, the file has no layouts until the order is done. */
static int silence_run(struct kv_op *op, struct kv_txn *t)
{
	struct excl *x = hash_entry(op, struct excl, ex_op);
	const struct file_env *fe = x->ex_env;
	uint64_t stale;
	struct ns_inode i;
	struct lo_map map;

	if (ns_get(fe->fe_ns, t, x->ex_ino, &i) || lo_map_decode(i.i_blob, &map))
		return 0; /* removed meanwhile */
	stale = lo_map_make_stale(&map, x->ex_quiet, NULL);
	x->ex_unfenced = x->ex_late && lo_held_objects(fe->fe_lo, x->ex_ino, &map);
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

static void order(struct excl *x);

/* A generic data server has no lease that ends: until it has confirmed it may take what it took
 * before, and nobody goes on. By now another copy may be stale, or its server declared dead. */
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
		excl_answer(x, 0); /* removed meanwhile: nothing to protect */
	else
		order(x);
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

	(void)err; /* the change is made; who kept a layout is fenced as soon as the servers do it
		    */
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
	/* Everybody's layouts name them. */
	if (!err && x->ex_silent &&
	    excl_take_back(x->ex_env, x->ex_loop, x->ex_ino, NULL, changed_taken_back, x)) {
		if (x->ex_recalls)
			x->ex_recalls(x->ex_arg);
		return;
	}
	changed_answer(x, err ? err : changed_err(x));
}

static void silence(struct excl *x)
{
	x->ex_phase = EXCL_SILENCING;
	x->ex_op = (struct kv_op){.o_run = silence_run, .o_done = silenced, .o_loop = x->ex_loop};
	kv_submit(x->ex_env->fe_kv, &x->ex_op);
}

/* ---- orders ---- */

static void changed_ordered(struct excl *x, int err)
{
	x->ex_late = err;
	x->ex_owed = err == -EBUSY;
	x->ex_quiet = x->ex_how == EXCL_RIGHTS && !x->ex_owed ? 0 : held_now(x);
	/* What a generic one has that may live is what the right was taken of. */
	if (x->ex_how == EXCL_RIGHTS)
		x->ex_quiet &= lo_map_dead(x->ex_env->fe_lo, &x->ex_map);
	if (x->ex_quiet)
		silence(x);
	else
		changed_answer(x, err ? -ETIMEDOUT : 0);
}

/* Every server has confirmed, or its lease has run out; or one lives and has not confirmed at the
 * deadline (lo_orders_wait). */
static void excl_ordered(void *arg, int err)
{
	struct excl *x = arg;

	if (EXCL_FAULT(TIMEOUT_IS_CONFIRMED))
		err = 0;
	if (x->ex_changed) {
		changed_ordered(x, err);
		return;
	}
	if (x->ex_how == EXCL_TAKE_BACK && err == -EBUSY && !EXCL_FAULT(OWED_GOES_ON)) {
		wait_on(x);
		return;
	}
	if (x->ex_how <= EXCL_SETTLE) {
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
	/* One that lives and does not do it (its drive died): where nobody kept a layout, nobody
	 * uses its copy once that is stale, as if it were dead. */
	x->ex_late = err && !x->ex_left;
	x->ex_quiet = x->ex_late || (!err && x->ex_how != EXCL_LAYOUTS) ? held_now(x) : 0;
	if (x->ex_quiet && (!err || x->ex_late))
		silence(x);
	else
		excl_answer(x, err ? -ETIMEDOUT : 0);
}

/* What is not waited for is stale in the map; NULL: everything is waited for. Who kept a layout may
 * read what became stale: that is fenced as well. Else what is stale for long is in nobody's
 * layout: a drive that died with it keeps the file neither from being used nor from being repaired.
 */
static const struct lo_map *awaited(struct excl *x)
{
	if (x->ex_changed && x->ex_how >= EXCL_WRITES)
		return NULL;
	if (x->ex_changed && !x->ex_left)
		return &x->ex_map;
	if (x->ex_how == EXCL_SETTLE || (x->ex_how >= EXCL_WRITES && !x->ex_left))
		return &x->ex_map;
	return lo_fence_unheard(x->ex_env->fe_lo, &x->ex_map) ? &x->ex_map : NULL;
}

static void order(struct excl *x)
{
	const struct file_env *fe = x->ex_env;

	x->ex_phase = EXCL_ORDERING;
	lo_orders_kick(fe->fe_lo);
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
	return file_set_map(fe, t, i->i_ino, map, now);
}

int excl_raise(const struct file_env *fe, struct kv_txn *t, const struct ns_inode *i,
	       struct lo_map *map, struct ns_time now)
{
	int err = raise_alone(fe, t, i, map, now);

	return err || EXCL_FAULT(NO_ORDERS) ? err
					    : lo_order_fence(fe->fe_lo, t, i, map, map->lm_epoch);
}

/* Who is fenced in the middle of a write leaves it on some copies. */
static void mistrust_left(const struct excl *x, struct lo_map *map)
{
	if (x->ex_left && !EXCL_FAULT(NOT_SUSPECT) &&
	    file_writers_left(x->ex_env, x->ex_ino, x->ex_except))
		file_mistrust(x->ex_env, x->ex_ino, map, UINT64_MAX, 0);
}

/* Several may settle one file at once: the first raises the epoch, all wait for it. *judge: its
 * copies are not to be trusted. Where data servers do not know clients, a lost writer is kept out
 * by that as well. */
static bool settle_is_raised(struct excl *x, const struct lo_map *map, bool *judge)
{
	struct st *st = x->ex_env->fe_st;
	struct st_file *f;
	bool raised;

	st_file_lock(st, x->ex_ino);
	f = st_file_get(st, x->ex_ino, false);
	*judge = f && f->f_judge;
	x->ex_judged = f ? f->f_judge_gen : 0;
	x->ex_raised = f && (f->f_mark_old || (f->f_judge && lo_generic(x->ex_env->fe_lo, map)));
	raised = !x->ex_raised || (f->f_old_epoch && map->lm_epoch >= f->f_old_epoch);
	if (!raised)
		f->f_old_epoch = map->lm_epoch + 1;
	st_file_unlock(st, x->ex_ino);
	return raised;
}

/* The copies that were lost when that was asked, where the map still has them. */
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

static void asked(void *arg, uint64_t objects)
{
	struct excl *x = arg;

	x->ex_asked = true;
	x->ex_lost = objects;
	fence(x);
}

/* Who died in the middle of a write leaves it on some copies, too. A store that was put back
 * believes in copies that were moved and deleted since: which are lost is asked first. -EAGAIN:
 * nothing is changed yet. */
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
		judge = file_mistrust(x->ex_env, x->ex_ino, map, UINT64_MAX, lost);
	if (judge)
		err = excl_hold(&x->ex_hold, x->ex_env, x->ex_ino);
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
	if (x->ex_how == EXCL_SETTLE)
		return settle_fence(x, t, &i, &map);
	x->ex_map = map;
	/* Whatever was given is fenced. The orders may be under way still. */
	if (x->ex_how == EXCL_TAKE_BACK_FENCED && map.lm_clean && !x->ex_left)
		return 0;
	mistrust_left(x, &map);
	return excl_raise(x->ex_env, t, &i, &map, file_now());
}

static void ask(struct excl *x)
{
	int err = file_ask_lost(x->ex_env, x->ex_loop, x->ex_ino, x->ex_incarnation, &x->ex_map,
				asked, x);

	if (err)
		excl_answer(x, err);
}

static void fence_committed(struct kv_op *op, int err)
{
	struct excl *x = hash_entry(op, struct excl, ex_op);
	bool detached = x->ex_how <= EXCL_SETTLE;

	if (x->ex_asks && !x->ex_asked) {
		ask(x);
		return;
	}
	if (EXCL_FAULT(COMMIT_FAILED))
		err = 0;
	/* Others' layouts name what became stale. Nobody waits for them: before they are back no
	 * new ones are given, and nothing is written through the MDS (f_taking). */
	if (!err && x->ex_hold.eh_env)
		excl_take_back(x->ex_env, x->ex_loop, x->ex_ino, NULL, NULL, NULL);
	if (detached && (err == -ENOENT || err == -ESTALE))
		excl_answer(x, 0); /* removed meanwhile: nothing to protect */
	else if (err || (x->ex_how == EXCL_SETTLE && !x->ex_raised))
		excl_answer(x, err);
	else
		order(x);
}

static void fence(struct excl *x)
{
	x->ex_phase = EXCL_FENCING;
	x->ex_op =
		(struct kv_op){.o_run = fence_run, .o_done = fence_committed, .o_loop = x->ex_loop};
	kv_submit(x->ex_env->fe_kv, &x->ex_op);
}

/* Where nobody can have anything under way (no write layout since the last one was counted, nothing
 * through the MDS), the epoch stays. */
static bool may_be_written(const struct excl *x)
{
	struct st *st = x->ex_env->fe_st;
	struct st_file *f;
	bool may;

	st_file_lock(st, x->ex_ino);
	f = st_file_get(st, x->ex_ino, false); /* f_excl keeps it */
	may = f->f_marked || f->f_layouts || f->f_pins;
	st_file_unlock(st, x->ex_ino);
	return may;
}

static bool needs_fence(const struct excl *x)
{
	switch (x->ex_how) {
	case EXCL_TAKE_BACK:
		return (x->ex_left && !EXCL_FAULT(LEFT_IS_BACK)) || EXCL_FAULT(RETURNED_IS_FENCED);
	case EXCL_WRITES:
	case EXCL_ALL:
		return x->ex_left || (may_be_written(x) && !EXCL_FAULT(BACK_IS_OVER));
	default:
		return true;
	}
}

/* ---- recall ---- */

static void all_back(struct excl *x)
{
	if (is_change(x)) {
		x->ex_phase = EXCL_FENCING; /* the caller does it, with its own change */
		excl_answer(x, 0);
	} else if (needs_fence(x)) {
		fence(x);
	} else {
		excl_answer(x, 0);
	}
}

static void recalled(struct st_wait *w, unsigned left)
{
	struct excl *x = hash_entry(w, struct excl, ex_wait);

	x->ex_left = left;
	all_back(x);
}

/* False: no layout is out that stands in the way. */
static bool recall(struct excl *x)
{
	x->ex_phase = EXCL_RECALLING;
	x->ex_wait.w_then = recalled;
	return st_recall_file(x->ex_env->fe_st, x->ex_ino, x->ex_except, x->ex_rw_only, x->ex_loop,
			      x->ex_env->fe_recall_ms, &x->ex_wait);
}

static void excl_init(struct excl *x, const struct file_env *fe, struct loop *loop, uint64_t ino,
		      struct st_client *except, enum excl_how how, void (*then)(void *arg, int err),
		      void *arg)
{
	memset(x, 0, sizeof(*x));
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

bool excl_take_back(const struct file_env *fe, struct loop *loop, uint64_t ino,
		    struct st_client *except, void (*then)(void *arg, int err), void *arg)
{
	struct excl *x;

	if (!has_state(fe->fe_st, ino)) /* most files that are removed */
		return false;
	x = excl_new(fe, loop, ino, except, EXCL_TAKE_BACK, then, arg);
	if (!excl_enter(x) && recall(x))
		return true;
	excl_leave(x);
	free(x);
	return false;
}

void excl_take_back_fenced(const struct file_env *fe, struct loop *loop, uint64_t ino,
			   void (*then)(void *arg, int err), void *arg)
{
	struct excl *x = excl_new(fe, loop, ino, NULL, EXCL_TAKE_BACK_FENCED, then, arg);

	if (excl_enter(x))
		log_fatal("out of memory while recalling layouts");
	if (!recall(x))
		all_back(x);
}

bool excl_settle(const struct file_env *fe, struct loop *loop, uint64_t ino,
		 void (*then)(void *arg, int err), void *arg)
{
	struct st *st = fe->fe_st;
	struct st_file *f;
	bool old;

	if (!st_watched(ino))
		return false;
	st_file_lock(st, ino);
	f = st_file_get(st, ino, false);
	old = f && (f->f_mark_old || f->f_judge);
	st_file_unlock(st, ino);
	if (old)
		fence(excl_new(fe, loop, ino, NULL, EXCL_SETTLE, then, arg));
	return old;
}

/* ---- a copy that became stale ---- */

int excl_stale(struct excl_hold *h, const struct file_env *fe, struct kv_txn *t, uint64_t ino,
	       const struct lo_map *map, struct ns_time now)
{
	int err = excl_hold(h, fe, ino);

	return err ? err : file_set_map(fe, t, ino, map, now);
}

bool excl_recall_stale(struct excl_hold *h, const struct file_env *fe, struct loop *loop,
		       uint64_t ino, struct st_client *except, void (*then)(void *arg, int err),
		       void *arg)
{
	bool waits = excl_take_back(fe, loop, ino, except, then, arg);

	excl_unhold(h);
	return waits;
}

/* ---- a file for oneself ---- */

static void settled(void *arg, int err)
{
	struct excl *x = arg;

	if (err)
		excl_answer(x, err);
	else if (!recall(x))
		all_back(x);
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
	x->ex_phase = EXCL_SETTLING;
	if (!excl_settle(fe, loop, ino, settled, x))
		settled(x, 0);
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
	if (!err && recall(x))
		return 1;
	x->ex_phase = EXCL_FENCING;
	return 0;
}

/* An answer about the size that was asked for before this is worth nothing; nor is one, until the
 * caller lets go, that data servers give which have yet to hear of it. A transaction may run twice.
 */
static void size_is_set(struct excl *x)
{
	struct st *st = x->ex_env->fe_st;
	struct st_file *f;

	st_file_lock(st, x->ex_ino);
	f = st_file_get(st, x->ex_ino, false);
	f->f_sizegen++; /* f_excl keeps it */
	f->f_cutting += !x->ex_cutting;
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
	/* A generic data server knows no epoch, and is fenced by an order of its own. */
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
	/* The objects that such a layout names are being deleted, or nobody has one. */
	if (x->ex_how >= EXCL_ALL)
		st_revoke_file(x->ex_env->fe_st, x->ex_ino, NULL, false);
	order(x);
}

void excl_end(struct excl *x, int err)
{
	if (!x->ex_env)
		return;
	/* Who is not fenced keeps its layout in the table: others wait for that, or fence it. */
	if (x->ex_left && !err && !x->ex_late && x->ex_how <= EXCL_SIZE)
		st_revoke_file(x->ex_env->fe_st, x->ex_ino, x->ex_except, x->ex_rw_only);
	x->ex_left = 0;
	excl_leave(x);
	x->ex_phase = EXCL_OPEN;
}
