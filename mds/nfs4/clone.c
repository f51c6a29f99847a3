/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clone.c - CLONE (RFC 7862 section 15.13): reflinks on the data servers. docs/copy.md says when a
 * file can be cloned.
 *
 *	op_clone		may the caller? The sizes of both files are asked for
 *				(clone_src_fresh)
 *	clone_begin		clone_look: may the range be cloned, and where is the target's new
 *				place? Freezes the source, so that every earlier write is over on
 *				every data server and no later one begins
 *	clone_src_frozen	freezes the target as well
 *	clone_both_frozen	counts the writes of clients that returned their layouts
 *	clone_go		looks again. Do the objects of both files exist on the data
 *				servers?
 *	clone_answered		clone_run: one transaction has the target's size and attributes,
 *				and an order for each of its objects (layout/order_int.h)
 *	clone_committed		each data server runs its orders, or loses its lease
 *	clone_ordered		layouts that name copies of the source which became stale come back
 *	clone_end		both files thaw; later the objects are recorded as known
 *
 * After the commit the clone is done, whatever crashes: no client sees the target before the orders
 * have run. A reflink does not leave a data server. So an empty target gets new objects on the
 * source's servers. Its old objects are deleted; the new ones have another incarnation in their
 * names.
 *
 * A lost object is neither cloned nor cloned into: the target's copy becomes stale where its stripe
 * has another copy, otherwise CLONE fails. Where a data server does not answer the query, its order
 * marks the target's object lost if the source's is missing (ds/store/orders.c). An order that
 * waited for a missing object would hold back all later orders.
 */
#include "mds/nfs4/op.h"
#include "mds/nfs4/op_attr.h"
#include "mds/namespace/ns_trash.h"
#include "mds/nfs4/op_state.h"
#include "mds/jobs/drain.h"
#include "mds/layout/pending_layout.h"
#include "base/clock.h"
#include "base/log.h"
#include "mds/layout/mirror_change.h"
#include "mds/layout/repair_row.h"
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

struct clone {
	struct excl src_freeze, dst_freeze;
	struct compound *c;
	struct st_stateid src_sid, dst_sid;
	uint64_t src, dst, from, to, len;
	bool to_end, again; /* to_end: to the source's end. again: the target gets new objects */
	bool same;	    /* the source is contended: clone only its first copies (lo_source) */
	bool reader;	    /* the caller may read the source, not write it */
	/* since when the caller blocks the source's writers; 0: there are none */
	uint64_t frozen_ns;
	bool placing;			   /* job_drain_placing was called */
	struct lo_stat src_stat, dst_stat; /* ls_lost is 0 until the servers answer */
	unsigned asking;
};

/*
 * A freeze of the source blocks its writers, and a caller who may only read the source can start
 * one. After that caller's CLONE the writers run undisturbed for nine times as long as they were
 * blocked, and for CALM_NS at least. Until then the next such CLONE gets NFS4ERR_DELAY.
 */
#define CALM_NS 1000000000ull

static bool reader_may_freeze(struct compound *c, struct clone *k)
{
	struct st *st = c->m->m_st;
	bool writers = false, may = true;
	struct st_file *f;

	if (!k->reader)
		return true;
	st_file_lock(st, k->src);
	f = st_file_get(st, k->src, false);
	if (f) {
		writers = f->f_pins || st_file_has_writers(f);
		for (const struct st_open *o = f->f_opens; o && !writers; o = o->o_fnext)
			writers = o->o_access & OPEN4_SHARE_ACCESS_WRITE;
		may = !writers || clock_mono_ns() >= f->f_calm_ns;
	}
	k->frozen_ns = writers && may ? clock_mono_ns() : 0;
	st_file_unlock(st, k->src);
	return may;
}

static void calm(struct excl *z, uint64_t since)
{
	struct st *st = z->ex_env->fe_st;
	uint64_t now = clock_mono_ns(), calm = (now - since) * 9;

	st_file_lock(st, z->ex_ino);
	/* the freeze keeps the st_file */
	st_file_get(st, z->ex_ino, false)->f_calm_ns = now + (calm > CALM_NS ? calm : CALM_NS);
	st_file_unlock(st, z->ex_ino);
}

/* The exclusion of the target. */
static struct excl *clone_target(struct clone *k)
{
	return k->src == k->dst ? &k->src_freeze : &k->dst_freeze;
}

static void clone_thaw(struct clone *k)
{
	excl_end(&k->dst_freeze, 0);
	if (k->frozen_ns && k->src_freeze.ex_held)
		calm(&k->src_freeze, k->frozen_ns);
	excl_end(&k->src_freeze, 0);
}

static void clone_fini(void *scratch)
{
	clone_thaw(scratch);
}

/* ---- can it be done? ---- */

static bool can_all(struct mds *m, const struct lo_map *map)
{
	struct ds_reg_server sv;

	for (unsigned i = 0; i < (unsigned)map->lm_stripes * map->lm_mirrors; i++)
		if (map->lm_obj[i].ob_state == LO_IN_SYNC &&
		    (!ds_reg_get(m->m_dsc, map->lm_obj[i].ob_ds, &sv) || !sv.sv_clone_block))
			return false;
	return true;
}

/* Does each copy in sync of the target have the source's bytes on its own server, at the same
 * place of the same stripe? */
static bool in_place(const struct clone *k, const struct lo_map *src, const struct lo_map *dst)
{
	if (!lo_same_row(dst, k->from, k->to))
		return false;
	for (unsigned i = 0; i < (unsigned)dst->lm_stripes * dst->lm_mirrors; i++)
		if (dst->lm_obj[i].ob_state == LO_IN_SYNC &&
		    lo_clone_source(dst, i, src, false) < 0)
			return false;
	return true;
}

/* Where the source's copies may differ, only its first copies are cloned. A copy of the target on
 * another server becomes stale, and repair fills it later. False: a stripe would have no copy
 * left. */
static bool only_first(const struct clone *k, const struct lo_map *src, struct lo_map *map)
{
	uint64_t others = 0, last;

	for (unsigned i = 0; k->same && i < lo_objects(map); i++)
		if (map->lm_obj[i].ob_state == LO_IN_SYNC && lo_clone_source(map, i, src, true) < 0)
			others |= UINT64_C(1) << i;
	lo_map_make_stale(map, others, &last);
	return !last;
}

/* Objects of the target that are being rebuilt are not cloned to: they become stale. */
static void not_rebuilding(struct lo_map *map)
{
	for (unsigned i = 0; i < (unsigned)map->lm_stripes * map->lm_mirrors; i++)
		if (map->lm_obj[i].ob_state == LO_REBUILDING)
			map->lm_obj[i].ob_state = LO_STALE;
}

static bool told_lost(const struct lo_stat *ls, const struct lo_map *map, unsigned obj)
{
	const struct lo_object *o = &map->lm_obj[obj], *was = &ls->ls_map.lm_obj[obj];

	return (ls->ls_lost >> obj & 1) && was->ob_ds == o->ob_ds && was->ob_copy == o->ob_copy;
}

/* Makes each copy of the target stale whose object, or whose source, is lost. -EIO: a stripe would
 * have no copy left. */
static int not_lost(const struct clone *k, const struct lo_map *src, struct lo_map *map)
{
	uint64_t lost = 0, last;

	for (unsigned i = 0; i < lo_objects(map); i++)
		if (map->lm_obj[i].ob_state == LO_IN_SYNC &&
		    (told_lost(&k->src_stat, src,
			       (unsigned)lo_clone_source(map, i, src, k->same)) ||
		     (!k->again && told_lost(&k->dst_stat, map, i))))
			lost |= UINT64_C(1) << i;
	lo_map_make_stale(map, lost, &last);
	return last ? -EIO : 0;
}

/* The target's map: as it is where the source's objects are on the same servers, or, for an empty
 * target, new objects on the source's servers. -EXDEV: neither is possible. */
static int placement(struct mds *m, struct clone *k, const struct ns_inode *dst,
		     const struct lo_map *src, struct lo_map *map)
{
	int err = lo_map_decode(dst->i_blob, map);
	bool taking;

	/* Within one file each copy has its own bytes, and the copy that is read stays the same. */
	k->same = k->src != k->dst && file_is_contended(&m->m_file, k->src, src, &taking);
	k->again = false;
	if (err)
		return err;
	if (!can_all(m, src))
		return -EXDEV;
	if (in_place(k, src, map) && only_first(k, src, map)) {
		not_rebuilding(map);
		return not_lost(k, src, map);
	}
	if (dst->i_size || k->src == k->dst)
		return -EXDEV;
	uint32_t epoch = map->lm_epoch;

	*map = *src;
	lo_map_settle(map);
	map->lm_epoch = epoch;
	for (unsigned i = 0; i < (unsigned)map->lm_stripes * map->lm_mirrors; i++)
		map->lm_obj[i].ob_known = map->lm_obj[i].ob_writes = map->lm_obj[i].ob_late = 0;
	k->again = true;
	not_rebuilding(map);
	/* A pending move may go to the server that has the only good copy. */
	for (unsigned s = 0; s < map->lm_stripes; s++)
		if (lo_copy(map, s, 0) < 0)
			return -EXDEV;
	return in_place(k, src, map) && only_first(k, src, map) ? not_lost(k, src, map) : -EXDEV;
}

static nfsstat4 clone_range(struct compound *c, struct clone *k, uint64_t size)
{
	uint32_t block = ds_reg_clone_block(c->m->m_dsc);

	if (k->from > size || k->len > size - k->from || k->from % block || k->to % block)
		return NFS4ERR_INVAL;
	if (k->to_end)
		k->len = size - k->from;
	if (k->len % block && k->from + k->len != size)
		return NFS4ERR_INVAL;
	if (k->to > OP_MAX_FILE || k->len > OP_MAX_FILE - k->to)
		return NFS4ERR_FBIG;
	if (k->src == k->dst && k->from < k->to + k->len && k->to < k->from + k->len)
		return NFS4ERR_INVAL;
	return NFS4_OK;
}

static void clone_ask(struct compound *c, struct lo_stat *ls, const struct ns_inode *i,
		      const struct lo_map *map)
{
	ls->ls_loop = c->th->mt_loop;
	ls->ls_ino = i->i_ino;
	ls->ls_incarnation = i->i_incarnation;
	ls->ls_map = *map;
}

/* Reads both files from one fresh snapshot, and prepares the query of their objects. */
static nfsstat4 clone_look(struct compound *c, struct clone *k)
{
	struct ns_inode src, dst;
	struct lo_map from, to, now;
	nfsstat4 st;
	int err;

	op_txn_stale(c->th);
	err = ns_get_live(c->m->m_ns, op_txn(c), k->src, &src);
	if (!err)
		err = lo_map_decode(src.i_blob, &from);
	st = err ? op_status(err) : clone_range(c, k, src.i_size);
	if (!st && !k->len)
		return NFS4_OK;
	if (st || (err = ns_get_live(c->m->m_ns, op_txn(c), k->dst, &dst)))
		return st ? st : op_status(err);
	err = placement(c->m, k, &dst, &from, &to);
	if (err)
		return op_status(err);
	if (lo_map_decode(dst.i_blob, &now) || job_has_orders(c->m, c->th->mt_loop, &src, &from) ||
	    job_has_orders(c->m, c->th->mt_loop, &dst, &now))
		return NFS4ERR_DELAY;
	if (k->same && !file_first_reads(&c->m->m_file, c->th->mt_loop, k->src, &from, 0))
		return NFS4ERR_DELAY;
	clone_ask(c, &k->src_stat, &src, &from);
	clone_ask(c, &k->dst_stat, &dst, &now);
	return NFS4_OK;
}

/* ---- all orders are done: the target's objects exist durably ---- */

/* Most clones that wait for a server that is away. The objects of one more become known when the
 * file's size is queried next. */
#define KNOWN_MOST 1024u
#define KNOWN_MS   600000u

struct known {
	struct kv_op kn_op;
	struct mds *kn_m;
	struct loop *kn_loop;
	uint64_t kn_ino;
	uint16_t kn_incarnation;
	struct lo_map kn_map;
};

static atomic_uint knowns;

static void known_wait(struct known *kn);

static void known_free(struct known *kn)
{
	atomic_fetch_sub(&knowns, 1);
	free(kn);
}

/* Records that the objects exist. A known object that is missing is lost, not empty
 * (docs/scrub.md). */
static int known_run(struct kv_op *op, struct kv_txn *t)
{
	struct known *kn = hash_entry(op, struct known, kn_op);
	uint8_t blob[NS_BLOB_MAX];
	bool learns = false;
	struct lo_map map;
	struct ns_inode i;
	int err = ns_get(kn->kn_m->m_ns, t, kn->kn_ino, &i);

	if (err || i.i_incarnation != kn->kn_incarnation || lo_map_decode(i.i_blob, &map))
		return 0;
	for (unsigned k = 0; k < lo_objects(&map) && k < lo_objects(&kn->kn_map); k++) {
		const struct lo_object *was = &kn->kn_map.lm_obj[k];
		struct lo_object *o = &map.lm_obj[k];

		if (was->ob_state != LO_IN_SYNC || o->ob_state != LO_IN_SYNC ||
		    o->ob_ds != was->ob_ds || o->ob_copy != was->ob_copy || o->ob_known)
			continue;
		o->ob_known = 1;
		learns = true;
	}
	return learns ? ns_set_blob_quietly(kn->kn_m->m_ns, t, kn->kn_ino, blob,
					    lo_map_encode(&map, blob, sizeof(blob)))
		      : 0;
}

static void known_done(struct kv_op *op, int err)
{
	struct known *kn = hash_entry(op, struct known, kn_op);

	if (err)
		log_error("inode %lu: cannot record that its objects exist: %s",
			  (unsigned long)kn->kn_ino, strerror(-err));
	known_free(kn);
}

static void known_ordered(void *arg, int err)
{
	struct known *kn = arg;

	if (err) {
		known_wait(kn);
		return;
	}
	kn->kn_op = (struct kv_op){.o_run = known_run, .o_done = known_done, .o_loop = kn->kn_loop};
	kv_submit(kn->kn_m->m_kv, &kn->kn_op);
}

/* Waits for the orders of the map's objects, but not of those that became stale because their
 * server is away. */
static void known_wait(struct known *kn)
{
	lo_orders_wait_used(kn->kn_m->m_lo, kn->kn_ino, &kn->kn_map, kn->kn_loop, KNOWN_MS,
			    known_ordered, kn);
}

/* Nothing waits for this. After a crash the next query of the file's size records it. */
static void make_known(struct compound *c, uint64_t ino)
{
	struct known *kn = atomic_load(&knowns) < KNOWN_MOST ? calloc(1, sizeof(*kn)) : NULL;
	struct ns_inode i;
	bool any = false;

	if (!kn)
		return;
	atomic_fetch_add(&knowns, 1);
	if (ns_get(c->m->m_ns, op_txn(c), ino, &i) || lo_map_decode(i.i_blob, &kn->kn_map)) {
		known_free(kn);
		return;
	}
	for (unsigned k = 0; k < lo_objects(&kn->kn_map); k++)
		any |= kn->kn_map.lm_obj[k].ob_state == LO_IN_SYNC &&
		       !kn->kn_map.lm_obj[k].ob_known;
	if (!any) {
		known_free(kn);
		return;
	}
	kn->kn_m = c->m;
	kn->kn_loop = c->th->mt_loop;
	kn->kn_ino = ino;
	kn->kn_incarnation = i.i_incarnation;
	known_wait(kn);
}

/* ---- the transaction ---- */

/* Puts the target's map into the store and fences every earlier capability. Where the target gets
 * new objects, its old ones are deleted. */
static int clone_place(struct compound *c, struct clone *k, struct kv_txn *t, struct ns_inode *dst,
		       struct lo_map *map)
{
	uint8_t blob[NS_BLOB_MAX];
	struct ns_inode moved;
	int err;

	if (!k->again)
		return excl_fence(clone_target(k), t, dst, map, true, false, file_now());
	if (!k->placing)
		job_drain_placing(c->m);
	k->placing = true;
	err = lo_order_free(c->m->m_lo, t, dst);
	map->lm_epoch++;
	if (!err)
		err = ns_place_again(c->m->m_ns, t, k->dst, blob,
				     lo_map_encode(map, blob, sizeof(blob)), &moved);
	if (!err)
		err = lo_repair_note(t, k->dst, map);
	dst->i_incarnation += NS_PLACED_AGAIN;
	return err;
}

static void size_outdated(struct st *st, uint64_t ino)
{
	st_file_lock(st, ino);
	st_file_get(st, ino, false)->f_sizegen++; /* the freeze keeps the st_file */
	st_file_unlock(st, ino);
}

static int clone_run(struct kv_op *op, struct kv_txn *t)
{
	struct compound *c = op_of(op);
	struct clone *k = c->scratch;
	struct ns *ns = c->m->m_ns;
	struct ns_inode src, dst;
	struct lo_clone cl = {
		.cl_ino = k->src, .cl_from = k->from, .cl_to = k->to, .cl_len = k->len};
	struct lo_map map;
	bool again = k->again;
	int err = ns_get_live(ns, t, k->src, &src);

	if (!err)
		err = lo_map_decode(src.i_blob, &cl.cl_map);
	/* A SETATTR that began before the freeze may have truncated the source. */
	if (!err && (k->from > src.i_size || k->len > src.i_size - k->from))
		err = -EAGAIN;
	cl.cl_incarnation = src.i_incarnation;
	if (!err)
		err = ns_get(ns, t, k->dst, &dst);
	if (!err)
		err = placement(c->m, k, &dst, &cl.cl_map, &map);
	cl.cl_same = k->same;
	if (!err && k->again != again)
		err = -EAGAIN;
	/* A WRITE to the old objects that is under way is done once more, to the new ones. */
	if (!err && k->again)
		size_outdated(c->m->m_st, k->dst);
	if (!err && k->again && dst.i_incarnation > UINT16_MAX - NS_PLACED_AGAIN)
		err = -EMFILE;
	if (!err && k->again && lo_pending_is(t, k->dst))
		err = -EAGAIN; /* as where a file is placed again (file_place.c) */
	if (!err)
		err = clone_place(c, k, t, &dst, &map);
	if (!err)
		err = op_data_changed(c->m, t, k->dst, &c->cred, k->to + k->len, 0, NULL,
				      NULL); /* no failed objects: makes nothing stale */
	if (!err)
		err = lo_order_clone(c->m->m_lo, t, &dst, &map, &cl);
	c->once_orders = k->dst;
	return err;
}

/* ---- the steps ---- */

static op_step clone_src_fresh, clone_begin, clone_src_frozen, clone_both_frozen, clone_go,
	clone_answered, clone_committed, clone_ordered, clone_end;

nfsstat4 op_clone(struct compound *c)
{
	struct clone *k = op_scratch(c, sizeof(*k), clone_fini);
	struct ns_inode src;
	nfsstat4 st;

	if (!k)
		return NFS4ERR_DELAY;
	op_get_stateid(c->in, &k->src_sid);
	op_get_stateid(c->in, &k->dst_sid);
	k->from = xdr_get_u64(c->in);
	k->to = xdr_get_u64(c->in);
	k->len = xdr_get_u64(c->in);
	k->to_end = !k->len;
	if (c->in->bad)
		return NFS4ERR_BADXDR;
	if (!ds_reg_clone_block(c->m->m_dsc))
		return NFS4ERR_NOTSUPP;
	st = op_two_files(c, &k->src_sid, &k->dst_sid, &src);
	if (st)
		return st;
	k->reader = ns_permission(&src, &c->cred, 2);
	k->src = c->saved;
	k->dst = c->cur;
	return op_refresh(c, k->src, false, clone_src_fresh);
}

static nfsstat4 clone_src_fresh(struct compound *c, int err)
{
	struct clone *k = c->scratch;

	(void)err;
	return k->src != k->dst ? op_refresh(c, k->dst, false, clone_begin) : clone_begin(c, 0);
}

static nfsstat4 clone_begin(struct compound *c, int err)
{
	struct clone *k = c->scratch;
	nfsstat4 st = clone_look(c, k);

	(void)err;
	if (st || !k->len)
		return st;
	if (!reader_may_freeze(c, k))
		return NFS4ERR_DELAY;
	k->c = c;
	excl_begin(&k->src_freeze, &c->m->m_file, c->th->mt_loop, k->src, NULL,
		   k->src == k->dst ? EXCL_ALL : EXCL_WRITES, op_wake, c);
	return op_await_client(c, clone_src_frozen);
}

static nfsstat4 clone_src_frozen(struct compound *c, int err)
{
	struct clone *k = c->scratch;

	if (err || k->src == k->dst)
		return clone_both_frozen(c, err);
	/*
	 * Recall the caller's layouts as well: a fence would make the data servers refuse the
	 * caller's next write in the middle of its work. Where the target gets new objects the old
	 * ones are fenced too, although they are deleted: the deletes wait behind other orders, and
	 * a write to an old object until then would be lost.
	 */
	excl_begin(&k->dst_freeze, &c->m->m_file, c->th->mt_loop, k->dst, NULL, EXCL_ALL, op_wake,
		   c);
	return op_await_client(c, clone_both_frozen);
}

/* Both files are frozen. Counts the writes of clients that returned their layouts: the target must
 * still be empty. */
static nfsstat4 clone_both_frozen(struct compound *c, int err)
{
	struct clone *k = c->scratch;

	if (err)
		return op_status(err == -ETIMEDOUT ? -EAGAIN : err);
	return op_refresh(c, k->dst, false, clone_go);
}

static void clone_told(struct clone *k)
{
	if (!--k->asking)
		op_wake(k->c, 0);
}

static void clone_src_told(struct lo_stat *ls, int err)
{
	(void)err;
	clone_told(hash_entry(ls, struct clone, src_stat));
}

static void clone_dst_told(struct lo_stat *ls, int err)
{
	(void)err;
	clone_told(hash_entry(ls, struct clone, dst_stat));
}

static nfsstat4 clone_go(struct compound *c, int err)
{
	struct clone *k = c->scratch;
	nfsstat4 st = clone_look(c, k);

	(void)err;
	if (st || !k->len)
		return st;
	k->src_stat.ls_done = clone_src_told;
	k->dst_stat.ls_done = clone_dst_told;
	k->asking = 2;
	lo_stat(c->m->m_lo, &k->src_stat);
	lo_stat(c->m->m_lo, &k->dst_stat);
	return op_await(c, clone_answered);
}

static nfsstat4 clone_answered(struct compound *c, int err)
{
	(void)err; /* a server that did not answer is taken to have its objects */
	return op_mutate(c, clone_run, op_put_nothing, clone_committed);
}

static nfsstat4 clone_committed(struct compound *c, int err)
{
	struct clone *k = c->scratch;

	if (k->placing)
		job_drain_placed(c->m);
	k->placing = false;
	/* The first copy is lost. Another copy is the first when the client retries. */
	if (err == -EIO && k->same &&
	    !file_first_reads(&c->m->m_file, c->th->mt_loop, k->src, &k->src_stat.ls_map,
			      k->src_stat.ls_lost))
		return NFS4ERR_DELAY;
	if (err)
		return err == -EMFILE ? NFS4ERR_XDEV : op_status(err);
	excl_order(clone_target(k), op_client_waits, op_wake, c);
	return op_await(c, clone_ordered);
}

/* Each data server has run its orders, or its lease has run out: then it runs them before it serves
 * again. Layouts for reading may name copies of the source that became stale: those layouts come
 * back. */
static nfsstat4 clone_ordered(struct compound *c, int err)
{
	struct clone *k = c->scratch;

	/* Ignore the error: the clone is committed. A client that still holds a layout is fenced
	 * when its data servers run the order. */
	(void)err;
	return k->src_freeze.ex_silent && excl_recall_and_fence(&c->m->m_file, c->th->mt_loop,
								k->src, NULL, op_wake, c)
		       ? op_await_client(c, clone_end)
		       : clone_end(c, 0);
}

static nfsstat4 clone_end(struct compound *c, int err)
{
	struct clone *k = c->scratch;

	(void)err;
	make_known(c, k->dst);
	clone_thaw(k);
	return NFS4_OK;
}
