/*
 * freeze.c - nobody changes a file's data for a while (docs/copy.md): for changes that must find every copy alike, or leave every copy alike.
 *
 * What may be under way elsewhere is over when the epoch has been raised and every data server said so: its writes are done or refused. Where nobody can have any
 * (no write layout since the last one was counted, nothing through the MDS), the epoch stays.
 */
#include "base/log.h"
#include "mds/op/op.h"
#include <errno.h>

static void freeze_tell(struct loop_msg *m)
{
	struct op_freeze *z = hash_entry(m, struct op_freeze, fz_msg);

	z->fz_then(z->fz_arg, z->fz_err);
}

static void freeze_end(struct op_freeze *z, int err)
{
	z->fz_err = err;
	z->fz_msg.m_run = freeze_tell;
	loop_post(z->fz_loop, &z->fz_msg);
}

uint64_t op_silent_stale(struct mds *m, struct kv_txn *t, uint64_t ino, uint64_t held)
{
	struct ns_inode i;
	struct lo_map map;

	if (ns_get(m->m_ns, t, ino, &i) || lo_map_decode(i.i_blob, &map))
		return 0;
	held = lo_map_make_stale(&map, held, NULL);
	if (held && op_set_map(m, t, ino, &map, op_now()))
		return 0;
	if (held)
		log_warn("inode %lu: data servers do not answer: their copies are stale now", (unsigned long)ino);
	return held;
}

static void silent_committed(struct kv_op *op, int err)
{
	struct op_freeze *z = hash_entry(op, struct op_freeze, fz_op);

	freeze_end(z, err ? err : z->fz_unfenced ? -ETIMEDOUT : 0);
}

static int silent_run(struct kv_op *op, struct kv_txn *t)
{
	struct op_freeze *z = hash_entry(op, struct op_freeze, fz_op);

	z->fz_silent = op_silent_stale(z->fz_m, t, z->fz_ino, z->fz_silent);
	z->fz_unfenced = z->fz_late && op_held(z->fz_m, t, z->fz_ino);
	return 0;
}

/* Every server has confirmed, or its lease has run out: what is its copy worth, when the change comes that it does not hear of? */
static void freeze_confirmed(void *arg, int err)
{
	struct op_freeze *z = arg;
	struct kv_txn *t;

	if (err)
		log_error("inode %lu: the fence is not confirmed: %s", (unsigned long)z->fz_ino, strerror(-err));
	else if (z->fz_left)
		st_revoke_file(z->fz_m->m_st, z->fz_ino, z->fz_except, z->fz_how == FREEZE_WRITES);
	/* One that lives and does not do it (its drive died): where nobody kept a layout, nobody uses its copy once that is stale, as if it were dead. */
	z->fz_late = err && !z->fz_left;
	if ((z->fz_late || (!err && z->fz_how != FREEZE_LAYOUTS)) && kv_read_begin(z->fz_m->m_kv, &t) == 0) {
		z->fz_silent = op_held(z->fz_m, t, z->fz_ino);
		kv_read_end(t);
	}
	if ((err && !z->fz_late) || !z->fz_silent) {
		freeze_end(z, err ? -ETIMEDOUT : 0);
		return;
	}
	z->fz_op.o_run = silent_run;
	z->fz_op.o_done = silent_committed;
	z->fz_op.o_loop = z->fz_loop;
	kv_submit(z->fz_m->m_kv, &z->fz_op);
}

static void freeze_committed(struct kv_op *op, int err)
{
	struct op_freeze *z = hash_entry(op, struct op_freeze, fz_op);

	if (err) {
		freeze_end(z, err);
		return;
	}
	lo_orders_kick(z->fz_m->m_lo);
	/* Who kept a layout may read what became stale: that is fenced as well. Else a drive that died with its copy would keep the file from being repaired. */
	lo_orders_wait_used(z->fz_m->m_lo, z->fz_ino, !z->fz_left || lo_fence_unheard(z->fz_m->m_lo, &z->fz_map) ? &z->fz_map : NULL, z->fz_loop, op_confirm_ms(z->fz_m), freeze_confirmed, z);
}

static int freeze_run(struct kv_op *op, struct kv_txn *t)
{
	struct op_freeze *z = hash_entry(op, struct op_freeze, fz_op);
	struct ns_inode i;
	struct lo_map map;
	int err = ns_get(z->fz_m->m_ns, t, z->fz_ino, &i);

	if (!err)
		err = lo_map_decode(i.i_blob, &map);
	if (err)
		return err;
	z->fz_map = map;
	/* Who is fenced in the middle of a write leaves it on some copies. */
	if (z->fz_left && op_writers_left(z->fz_m, z->fz_ino, z->fz_except))
		op_mistrust(z->fz_m, z->fz_ino, &map, UINT64_MAX, 0);
	return op_raise_epoch(z->fz_m, t, &i, &map, op_now());
}

static bool freeze_may_be_written(struct op_freeze *z)
{
	struct st *st = z->fz_m->m_st;
	struct st_file *f;
	bool may;

	st_file_lock(st, z->fz_ino);
	f = st_file_get(st, z->fz_ino, false); /* f_excl keeps it */
	may = f->f_marked || f->f_layouts || f->f_pins;
	st_file_unlock(st, z->fz_ino);
	return may;
}

static void freeze_fence(struct op_freeze *z)
{
	if (z->fz_how == FREEZE_GONE || (!z->fz_left && z->fz_how != FREEZE_LAYOUTS && !freeze_may_be_written(z))) {
		freeze_end(z, 0);
		return;
	}
	z->fz_op.o_run = freeze_run;
	z->fz_op.o_done = freeze_committed;
	z->fz_op.o_loop = z->fz_loop;
	kv_submit(z->fz_m->m_kv, &z->fz_op);
}

static void freeze_recalled(struct st_wait *w, unsigned left)
{
	struct op_freeze *z = hash_entry(w, struct op_freeze, fz_wait);

	z->fz_left = left;
	freeze_fence(z);
}

static void freeze_settled(void *arg, int err)
{
	struct op_freeze *z = arg;

	if (err) {
		freeze_end(z, err);
		return;
	}
	z->fz_wait.w_then = freeze_recalled;
	if (!st_recall_file(z->fz_m->m_st, z->fz_ino, z->fz_except, z->fz_how == FREEZE_WRITES, z->fz_loop, z->fz_m->m_recall_ms, &z->fz_wait))
		freeze_fence(z);
}

void op_freeze(struct op_freeze *z, struct mds *m, struct loop *loop, uint64_t ino, struct st_client *except, enum op_freeze_how how, void (*then)(void *arg, int err), void *arg)
{
	struct st *st = m->m_st;
	struct st_file *f;

	memset(z, 0, sizeof(*z));
	z->fz_m = m;
	z->fz_loop = loop;
	z->fz_ino = ino;
	z->fz_except = except;
	z->fz_how = how;
	z->fz_then = then;
	z->fz_arg = arg;
	st_file_lock(st, ino);
	f = st_file_get(st, ino, true);
	z->fz_held = f && !f->f_frozen && !f->f_sizing;
	if (z->fz_held) {
		f->f_excl++;
		f->f_frozen++;
		f->f_hidden += how >= FREEZE_ALL;
		if (f->f_hidden)
			st_file_watch(f);
	} else if (f) {
		st_file_put(st, f);
	}
	st_file_unlock(st, ino);
	if (!z->fz_held)
		freeze_end(z, -EAGAIN);
	else if (!op_settle(m, loop, ino, freeze_settled, z))
		freeze_settled(z, 0);
}

void op_thaw(struct op_freeze *z)
{
	struct st *st = z->fz_m ? z->fz_m->m_st : NULL;
	struct st_file *f;

	if (!st || !z->fz_held)
		return;
	st_file_lock(st, z->fz_ino);
	f = st_file_get(st, z->fz_ino, false);
	f->f_excl--;
	f->f_frozen--;
	f->f_hidden -= z->fz_how >= FREEZE_ALL;
	st_file_put(st, f);
	st_file_unlock(st, z->fz_ino);
	z->fz_held = false;
}

bool op_hidden(struct mds *m, uint64_t ino)
{
	struct st_file *f;
	bool hidden;

	if (!st_watched(ino))
		return false;
	st_file_lock(m->m_st, ino);
	f = st_file_get(m->m_st, ino, false);
	hidden = f && f->f_hidden;
	st_file_unlock(m->m_st, ino);
	return hidden;
}
