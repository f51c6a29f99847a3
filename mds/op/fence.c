/*
 * fence.c - taking layouts back: recall, wait to the deadline, fence those who kept them (docs/fencing.md).
 *
 * A job is on one loop; compounds wait parked. While it runs, f_excl keeps new layouts of the file away.
 */
#include "base/log.h"
#include "mds/ev/event.h"
#include "mds/op/op.h"
#include <errno.h>

struct fence {
	struct st_wait wait;
	struct kv_op op;
	struct mds *m;
	struct loop *loop;
	uint64_t ino;
	struct st_client *except;
	bool settle, revoke, always; /* always: fence, whoever returned */
	unsigned left;
	uint32_t judged;             /* settle: f_judge_gen then */
	bool raised;                 /* settle: the epoch went up; else it was only judged */
	struct lo_map map;           /* settle: before the fence */
	struct op_hold hold;
	void (*then)(void *arg, int err);
	void *arg;
};

int op_hold(struct op_hold *h, struct mds *m, uint64_t ino)
{
	struct st *st = m->m_st;
	struct st_file *f;

	if (h->h_m)
		return 0;
	st_file_lock(st, ino);
	f = st_file_get(st, ino, true);
	if (f) {
		f->f_excl++;
		f->f_taking++;
		*h = (struct op_hold){m, ino};
	}
	st_file_unlock(st, ino);
	return f ? 0 : -ENOMEM;
}

void op_unhold(struct op_hold *h)
{
	struct st *st = h->h_m ? h->h_m->m_st : NULL;
	struct st_file *f;

	if (!st)
		return;
	st_file_lock(st, h->h_ino);
	f = st_file_get(st, h->h_ino, false);
	f->f_excl--;
	f->f_taking--;
	st_file_put(st, f);
	st_file_unlock(st, h->h_ino);
	h->h_m = NULL;
}

int op_raise_epoch_alone(struct mds *m, struct kv_txn *t, const struct ns_inode *i, struct lo_map *map, struct ns_time now)
{
	map->lm_epoch++;
	map->lm_clean = true;
	return op_set_map(m, t, i->i_ino, map, now);
}

int op_raise_epoch(struct mds *m, struct kv_txn *t, const struct ns_inode *i, struct lo_map *map, struct ns_time now)
{
	int err = op_raise_epoch_alone(m, t, i, map, now);

	return err ? err : lo_order_fence(m->m_lo, t, i, map, map->lm_epoch);
}

static void fence_end(struct fence *j, int err)
{
	struct st *st = j->m->m_st;
	struct st_file *f;

	if (err)
		log_error("inode %lu: the fence is not confirmed: %s", (unsigned long)j->ino, strerror(-err));
	else if (j->revoke)
		st_revoke_file(st, j->ino, j->except, false);
	if (!err && j->revoke)
		ev_add(EV_LAYOUT_FENCED, "", j->ino, "%u layout%s not come back at the deadline", j->left, j->left > 1 ? "s did" : " did");
	st_file_lock(st, j->ino);
	f = st_file_get(st, j->ino, false);
	if (!j->settle) {
		f->f_excl--;
		f->f_taking--;
	} else if (f && !err) {
		f->f_mark_old = false;
		f->f_judge &= f->f_judge_gen != j->judged; /* of a writer that was lost since the others' copies were judged: not yet */
		f->f_old_epoch = 0;
	}
	if (f)
		st_file_put(st, f);
	st_file_unlock(st, j->ino);
	op_unhold(&j->hold);
	if (j->then)
		j->then(j->arg, err);
	free(j);
}

static void fence_confirmed(void *arg, int err)
{
	fence_end(arg, err);
}

static void fence_committed(struct kv_op *op, int err)
{
	struct fence *j = hash_entry(op, struct fence, op);

	/* Others' layouts name what became stale. Nobody waits for them: before they are back no new ones are given, and nothing is written through us (f_taking). */
	if (!err && j->hold.h_m)
		op_take_back(j->m, j->loop, j->ino, NULL, NULL, NULL);
	if (err || (j->settle && !j->raised)) {
		fence_end(j, err == -ENOENT || err == -ESTALE ? 0 : err); /* removed meanwhile: nothing to protect */
		return;
	}
	lo_orders_kick(j->m->m_lo);
	/* What is stale for long is in nobody's layout: a drive that died with it does not keep the file from being used. */
	lo_orders_wait_used(j->m->m_lo, j->ino, j->settle || lo_fence_unheard(j->m->m_lo, &j->map) ? &j->map : NULL, j->loop, op_confirm_ms(j->m), fence_confirmed, j);
}

/* Several may settle one file at once: the first raises the epoch, all wait for it. *judge: its copies are not to be trusted. Where data servers do not know clients, a lost writer is kept
 * out by that as well. */
static bool settle_is_raised(struct fence *j, const struct lo_map *map, bool *judge)
{
	struct st *st = j->m->m_st;
	struct st_file *f;
	bool raised, needed;

	st_file_lock(st, j->ino);
	f = st_file_get(st, j->ino, false);
	*judge = f && f->f_judge;
	j->judged = f ? f->f_judge_gen : 0;
	needed = f && (f->f_mark_old || (f->f_judge && lo_generic(j->m->m_lo, map)));
	j->raised = needed;
	raised = !needed || (f->f_old_epoch && map->lm_epoch >= f->f_old_epoch);
	if (!raised)
		f->f_old_epoch = map->lm_epoch + 1;
	st_file_unlock(st, j->ino);
	return raised;
}

static int fence_run(struct kv_op *op, struct kv_txn *t)
{
	struct fence *j = hash_entry(op, struct fence, op);
	struct ns_inode i;
	struct lo_map map;
	bool judge = false, raised;
	int err = ns_get(j->m->m_ns, t, j->ino, &i);

	if (!err)
		err = lo_map_decode(i.i_blob, &map);
	if (err)
		return err;
	j->map = map;
	raised = j->settle && settle_is_raised(j, &map, &judge);
	/* Who is fenced in the middle of a write, or died in it, leaves it on some copies. */
	if (judge || (j->revoke && op_writers_left(j->m, j->ino, j->except)))
		judge = op_mistrust(j->m, j->ino, &map, UINT64_MAX, 0);
	if (judge && j->settle)
		err = op_hold(&j->hold, j->m, j->ino);
	if (err)
		return err;
	if (raised)
		return judge ? op_set_map(j->m, t, j->ino, &map, op_now()) : 0;
	return op_raise_epoch(j->m, t, &i, &map, op_now());
}

static void fence_submit(struct fence *j)
{
	j->op.o_run = fence_run;
	j->op.o_done = fence_committed;
	j->op.o_loop = j->loop;
	kv_submit(j->m->m_kv, &j->op);
}

static struct fence *fence_new(struct mds *m, struct loop *loop, uint64_t ino, void (*then)(void *, int), void *arg)
{
	struct fence *j = calloc(1, sizeof(*j));

	if (!j)
		log_fatal("no memory to take layouts back");
	j->m = m;
	j->loop = loop;
	j->ino = ino;
	j->then = then;
	j->arg = arg;
	return j;
}

static void recalled(struct st_wait *w, unsigned left)
{
	struct fence *j = hash_entry(w, struct fence, wait);

	if (!left && !j->always) {
		fence_end(j, 0);
		return;
	}
	j->revoke = left;
	j->left = left;
	fence_submit(j);
}

static bool take_back(struct mds *m, struct loop *loop, uint64_t ino, struct st_client *except, bool always, void (*then)(void *arg, int err), void *arg)
{
	struct st *st = m->m_st;
	struct fence *j;
	struct st_file *f;

	st_file_lock(st, ino);
	f = st_file_get(st, ino, false);
	if (f) {
		f->f_excl++;
		f->f_taking++;
	}
	st_file_unlock(st, ino);
	if (!f)
		return false;
	j = fence_new(m, loop, ino, then, arg);
	j->except = except;
	j->always = always;
	j->wait.w_then = recalled;
	if (st_recall_file(st, ino, except, false, loop, m->m_recall_ms, &j->wait))
		return true;
	st_file_lock(st, ino);
	f->f_excl--;
	f->f_taking--;
	st_file_put(st, f);
	st_file_unlock(st, ino);
	free(j);
	return false;
}

bool op_take_back(struct mds *m, struct loop *loop, uint64_t ino, struct st_client *except, void (*then)(void *arg, int err), void *arg)
{
	return take_back(m, loop, ino, except, false, then, arg);
}

bool op_take_back_fenced(struct mds *m, struct loop *loop, uint64_t ino, void (*then)(void *arg, int err), void *arg)
{
	return take_back(m, loop, ino, NULL, true, then, arg);
}

bool op_settle(struct mds *m, struct loop *loop, uint64_t ino, void (*then)(void *arg, int err), void *arg)
{
	struct st *st = m->m_st;
	struct st_file *f;
	struct fence *j;
	bool old;

	if (!st_watched(ino))
		return false;
	st_file_lock(st, ino);
	f = st_file_get(st, ino, false);
	old = f && (f->f_mark_old || f->f_judge);
	st_file_unlock(st, ino);
	if (!old)
		return false;
	j = fence_new(m, loop, ino, then, arg);
	j->settle = true;
	fence_submit(j);
	return true;
}
