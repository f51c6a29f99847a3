/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file_place.c - where a file's data goes: when it is created, and again while it is empty
 * (docs/groups.md).
 *
 * The steps of a new placement:
 *
 *	op_place_again		the size is asked for
 *	again_begin		may the file be placed again? Freezes it
 *	again_frozen		counts earlier writes
 *	again_go		the file must still be empty. again_run: new objects in the map,
 *				deletes of the old ones
 *	again_committed		the data servers delete the old objects
 *	again_ordered		the old objects are gone; thaws the file
 */
#include "mds/layout/pending_layout.h"
#include "mds/nfs4/op.h"
#include "mds/nfs4/op_attr.h"
#include "mds/nfs4/op_state.h"
#include <errno.h>

int op_place_map(void *arg, const struct ns_inode *i, struct kv_slice policy, uint8_t *buf,
		 size_t max, size_t *len)
{
	struct op_place *p = arg;
	struct lo_policy pol, hinted;
	struct lo_map map;
	char why[256];
	int err = lo_policy_decode(policy, &pol);

	if (err)
		return err;
	hinted = pol;
	hinted.lp_mirrors = p->opl_mirrors < UINT8_MAX ? (uint8_t)p->opl_mirrors : UINT8_MAX;
	if (p->opl_mirrors && lo_policy_check(p->opl_m->m_lo, &hinted, why, sizeof(why)) == 0)
		pol = hinted;
	/* Too few servers may be alive because they restart: wait for one lease before failing. */
	err = lo_place(p->opl_m->m_lo, &pol, i->i_ino, p->opl_m->m_room_ms, &map);
	if (!err)
		err = lo_can_adopt(p->opl_m->m_lo, p->opl_t, NULL, &map);
	if (err)
		return err;
	map.lm_clean = !p->opl_given;
	*len = lo_map_encode(&map, buf, max);
	return *len ? 0 : -EIO;
}

/* ---- again ---- */

/* May the file be placed again, as it is now? */
static int again_check(struct compound *c, const struct ns_inode *i)
{
	if (c->cred.cr_uid && c->cred.cr_uid != i->i_uid)
		return -EPERM;
	return i->i_size ? -EEXIST : 0;
}

static void again_outdated(struct compound *c)
{
	struct st *st = c->m->m_st;

	st_file_lock(st, c->cur);
	st_file_get(st, c->cur, false)->f_sizegen++; /* the freeze keeps the st_file */
	st_file_unlock(st, c->cur);
}

/* Writes through the metadata server to the old objects that are under way are done once more, to
 * the new ones. */
static int again_run(struct kv_op *op, struct kv_txn *t)
{
	struct compound *c = op_of(op);
	struct op_again *a = c->scratch;
	struct mds *m = c->m;
	struct ns_setattr touch = {.s_mask = NS_S_CTIME};
	struct lo_map was, map;
	struct ns_inode i, moved;
	uint8_t blob[NS_BLOB_MAX];
	int err = ns_get(m->m_ns, t, c->cur, &i);

	if (!err)
		err = again_check(c, &i);
	if (!err)
		err = lo_map_decode(i.i_blob, &was);
	if (!err && i.i_incarnation > UINT16_MAX - NS_PLACED_AGAIN)
		err = -EEXIST;
	if (!err && lo_pending_is(t, c->cur))
		err = -EAGAIN; /* a restripe's objects would have the same names; retry */
	if (!err)
		err = lo_place(m->m_lo, &a->ag_policy, i.i_ino, m->m_room_ms, &map);
	if (!err)
		err = lo_can_adopt(m->m_lo, t, NULL, &map);
	if (err)
		return err;
	again_outdated(c);
	map.lm_epoch = was.lm_epoch + 1;
	a->ag_ci->c_before = i.i_change;
	err = lo_order_free(m->m_lo, t, &i);
	if (!err)
		err = ns_place_again(m->m_ns, t, c->cur, blob,
				     lo_map_encode(&map, blob, sizeof(blob)), &moved);
	if (!err)
		err = lo_adopt(m->m_lo, t, &moved, NULL, &map);
	if (!err)
		err = ns_setattr(m->m_ns, t, c->cur, &touch, NULL, file_now(), &moved);
	if (!err)
		a->ag_ci->c_after = moved.i_change;
	c->once_orders = c->cur;
	return err;
}

/* The steps, in the order of time. */
static op_step again_begin, again_frozen, again_go, again_committed, again_ordered;

nfsstat4 op_place_again(struct compound *c)
{
	return op_refresh(c, c->cur, false, again_begin);
}

/* No layout is recalled for a request that would be refused. */
static nfsstat4 again_begin(struct compound *c, int err)
{
	struct op_again *a = c->scratch;
	struct ns_inode i;

	err = ns_get(c->m->m_ns, op_txn(c), c->cur, &i);
	if (!err)
		err = again_check(c, &i);
	if (err == -EEXIST)
		return op_policy_refused(c, NFS4ERR_EXIST, "the file is not empty");
	if (err)
		return op_status(err);
	excl_begin(&a->ag_freeze, &c->m->m_file, c->th->mt_loop, c->cur, NULL, EXCL_ALL, op_wake,
		   c);
	return op_await_client(c, again_frozen);
}

static nfsstat4 again_frozen(struct compound *c, int err)
{
	if (err)
		return op_status(err == -ETIMEDOUT ? -EAGAIN : err);
	return op_refresh_begin(c, c->cur, true, false) ? op_await(c, again_go) : NFS4ERR_DELAY;
}

/* Counts writes by clients that returned their layouts: the file must be empty to be placed
 * again. */
static nfsstat4 again_go(struct compound *c, int err)
{
	struct op_again *a = c->scratch;
	struct ns_inode i;
	struct lo_map map;

	if (err)
		/* A data server did not answer: the file may not be empty. */
		return NFS4ERR_DELAY;
	err = ns_get(c->m->m_ns, op_txn(c), c->cur, &i);
	if (!err)
		err = again_check(c, &i);
	if (!err)
		err = lo_map_decode(i.i_blob, &map);
	if (err)
		return op_status(err);
	if (job_has_orders(c->m, c->th->mt_loop, &i, &map))
		return NFS4ERR_DELAY;
	return op_mutate(c, again_run, a->ag_put, again_committed);
}

static nfsstat4 again_committed(struct compound *c, int err)
{
	if (err)
		return op_status(err);
	excl_order(&((struct op_again *)c->scratch)->ag_freeze, NULL, op_wake, c);
	return op_await(c, again_ordered);
}

/* The old objects are gone, or their server's lease is: no client writes to them any more. */
static nfsstat4 again_ordered(struct compound *c, int err)
{
	struct op_again *a = c->scratch;

	(void)err;
	excl_end(&a->ag_freeze, 0);
	op_deleg_late(c, c->cur);
	return op_result(c, a->ag_put);
}
