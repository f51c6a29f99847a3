/* SPDX-License-Identifier: Apache-2.0 */
/*
 * orphan.c - freeing files. A file whose last name is removed while a client has it open is an
 * orphan, until the last such client gives its opens and delegations up. The sweep frees orphans of
 * clients that are gone, and those that a crash left.
 *
 *	op_give_up	CLOSE, DELEGRETURN: the open or delegation goes. give_up_run frees an
 *			orphan
 *	give_up_done	the answer
 *	given_up	where the trash has the file, and it had layouts: it is fenced
 */
#include "mds/nfs4/op.h"
#include "mds/nfs4/op_state.h"
#include "base/log.h"
#include "mds/layout/repair_row.h"

/* ---- in a mutation that removes a name ---- */

/* On the committer thread. An open that was registered before keeps the inode. A later OPEN sees
 * f_removing and waits. */
static bool keep_open(void *arg, uint64_t ino)
{
	struct op_free_ctx *ctx = arg;
	struct st *st = ctx->ofc_m->m_st;
	struct st_file *f;
	bool keep = false;

	st_file_lock(st, ino);
	f = st_file_get(st, ino, true);
	if (f && f->f_opens) {
		f->f_orphan = keep = true;
		ctx->ofc_orphaned = ino;
	} else if (f) {
		f->f_removing++;
		ctx->ofc_removing = ino;
	}
	st_file_unlock(st, ino);
	return keep;
}

static int free_map(void *arg, struct kv_txn *t, const struct ns_inode *i)
{
	struct op_free_ctx *ctx = arg;
	struct lo_map map;

	/* The directory entry is deleted already, so nothing may be refused any more (ns.h).
	 * fsck finds the objects of a damaged map. */
	if (lo_map_decode(i->i_blob, &map)) {
		log_error("inode %lu was removed, but its layout map is damaged: its objects stay",
			  (unsigned long)i->i_ino);
		return file_intent_del(t, i->i_ino);
	}
	int err = lo_order_free(ctx->ofc_m->m_lo, t, i);

	if (!err)
		err = lo_repair_del(t, i->i_ino);
	return err ? err : file_intent_del(t, i->i_ino);
}

void op_free_ops(struct op_free_ctx *ctx, struct mds *m, struct st_client *client,
		 struct ns_free_ops *fo)
{
	*ctx = (struct op_free_ctx){.ofc_m = m, .ofc_client = client};
	*fo = (struct ns_free_ops){.f_keep_open = keep_open, .f_free_map = free_map, .f_arg = ctx};
}

int op_free_fence(struct op_free_ctx *ctx, struct kv_txn *t)
{
	int err = ctx->ofc_removing ? excl_fence_unused(&ctx->ofc_m->m_file, t, ctx->ofc_removing,
							&ctx->ofc_waits)
				    : 0;

	ctx->ofc_fenced = err > 0;
	return err < 0 ? err : 0;
}

/* locked. The layouts name objects that are being deleted, or fenced. Recalls the other clients'
 * layouts without waiting; the client that removed the file knows. */
static void layouts_end(struct st *st, struct st_file *f, const struct st_client *by)
{
	while (f->f_layouts) {
		if (f->f_layouts->l_client != by)
			st_recall_queue(st, f->f_layouts);
		st_layout_free(st, f->f_layouts);
	}
}

static void not_orphaned(struct st *st, uint64_t ino)
{
	struct st_file *f;

	st_file_lock(st, ino);
	f = st_file_get(st, ino, false);
	if (f) {
		f->f_orphan = false;
		st_file_put(st, f);
	}
	st_file_unlock(st, ino);
}

static void not_removing(struct st *st, const struct op_free_ctx *ctx, int err)
{
	struct st_work w = {0};
	struct st_file *f;

	do {
		st_work_lock(&w, st, ctx->ofc_removing);
		f = st_file_get(st, ctx->ofc_removing, false);
		bool frees = !err && !ctx->ofc_kept, ends = frees || (!err && ctx->ofc_fenced);

		if (!f || (ends && f->f_layouts && !st_needs_all()))
			continue;
		if (frees)
			f->f_intent = f->f_intent_durable = f->f_intent_old = f->f_suspect =
				f->f_suspect_boot = f->f_contended = f->f_diverged = false;
		if (ends)
			layouts_end(st, f, ctx->ofc_client);
		f->f_removing--;
		st_file_put(st, f);
	} while (st_work_again(&w));
}

void op_free_done(struct op_free_ctx *ctx, int err)
{
	if (ctx->ofc_orphaned && err)
		not_orphaned(ctx->ofc_m->m_st, ctx->ofc_orphaned);
	if (!ctx->ofc_removing)
		return;
	not_removing(ctx->ofc_m->m_st, ctx, err);
	if (!err && ctx->ofc_fenced)
		lo_orders_wake(ctx->ofc_m->m_lo);
	if (!err && !ctx->ofc_kept)
		lo_orders_files_gone(ctx->ofc_m->m_lo);
}

bool op_free_waits(struct compound *c, const struct op_free_ctx *ctx)
{
	if (ctx->ofc_waits)
		lo_orders_wait(c->m->m_lo, ctx->ofc_removing, c->th->mt_loop, op_confirm_ms(c->m),
			       op_wake, c);
	return ctx->ofc_waits;
}

/* On the committer thread. The last client has closed it. */
static int free_orphan(struct op_free_ctx *ctx, struct kv_txn *t, uint64_t ino,
		       const struct ns_free_ops *fo)
{
	int err = ns_orphan_free(ctx->ofc_m->m_ns, t, ino, fo);
	struct ns_inode i;

	ctx->ofc_kept = err > 0;
	if (err <= 0)
		return err;
	err = ns_get(ctx->ofc_m->m_ns, t, ino, &i);
	/* With a name it was restored. */
	return err || i.i_nlink ? err : op_free_fence(ctx, t);
}

/* ---- CLOSE and DELEGRETURN ---- */

struct give_up {
	struct op_free_ctx ctx;
	struct ns_free_ops fo;
	uint64_t ino;
};

static int give_up_run(struct kv_op *op, struct kv_txn *t)
{
	struct compound *c = op_of(op);
	struct give_up *k = c->scratch;

	return free_orphan(&k->ctx, t, k->ino, &k->fo);
}

/* A data server that does not confirm has no lease any more, or runs the fence later. */
static nfsstat4 given_up(struct compound *c, int err)
{
	(void)c;
	(void)err;
	return NFS4_OK;
}

static nfsstat4 give_up_done(struct compound *c, int err)
{
	struct give_up *k = c->scratch;

	op_free_done(&k->ctx, err);
	/* The client has given it up in any case; the sweep frees the file. */
	return !err && op_free_waits(c, &k->ctx) ? op_await(c, given_up) : NFS4_OK;
}

nfsstat4 op_give_up(struct compound *c, const struct st_stateid *sid, op_find_fn find)
{
	struct give_up *k = op_scratch(c, sizeof(*k), NULL);
	struct st *st = c->m->m_st;
	struct st_open *o;
	struct st_work w = {0};
	nfsstat4 status;
	bool orphan = false;

	if (!k)
		return NFS4ERR_DELAY;
	do {
		st_work_lock(&w, st, c->cur);
		status = find(c, sid, &o);
		if (!status && st_may_free(o)) {
			struct st_file *f = o->o_file;

			orphan = f->f_orphan && f->f_opens == o && !o->o_fnext;
			if (orphan) {
				f->f_orphan = false;
				f->f_removing++;
			}
			st_open_free(st, o);
		}
	} while (st_work_again(&w));
	if (status || !orphan)
		return status;
	op_free_ops(&k->ctx, c->m, c->client, &k->fo);
	k->ctx.ofc_removing = k->ino = c->cur;
	/* Idempotent: opens and delegations end with the boot, and the sweep frees the file. */
	return op_mutate_again(c, give_up_run, give_up_done);
}

/* ---- orphans of clients that are gone, and of a crash ---- */

#define SWEEP_BATCH 256

struct sweep {
	struct kv_op op;
	struct mds *m;
	uint64_t ino[SWEEP_BATCH], last;
	unsigned n;
	struct op_free_ctx ctx[SWEEP_BATCH];
};

static int sweep_collect(void *arg, uint64_t ino)
{
	struct sweep *s = arg;

	if (ino <= s->last) /* an earlier batch had it: it is open, or gone */
		return 0;
	s->ino[s->n++] = ino;
	return s->n == SWEEP_BATCH;
}

static int orphan_sweep_run(struct kv_op *op, struct kv_txn *t)
{
	struct sweep *s = (struct sweep *)op;
	struct ns_free_ops fo;
	int err = 0;

	for (unsigned i = 0; i < s->n && !err; i++) {
		struct st_file *f;
		bool open;

		op_free_ops(&s->ctx[i], s->m, NULL, &fo);
		st_all_lock(s->m->m_st);
		f = st_file_get(s->m->m_st, s->ino[i], false);
		open = f && f->f_opens;
		if (open) {
			f->f_orphan = true;
		} else if ((f = st_file_get(s->m->m_st, s->ino[i], true))) {
			f->f_removing++; /* no new opens */
			s->ctx[i].ofc_removing = s->ino[i];
		}
		st_all_unlock(s->m->m_st);
		if (!open)
			err = free_orphan(&s->ctx[i], t, s->ino[i], &fo);
	}
	return err;
}

static void sweep_next(struct sweep *s);

static void orphan_sweep_done(struct kv_op *op, int err)
{
	struct sweep *s = (struct sweep *)op;

	for (unsigned i = 0; i < s->n; i++)
		op_free_done(&s->ctx[i], err);
	lo_orders_wake(s->m->m_lo);
	if (err)
		log_error("cannot delete orphans, they stay until the next sweep: %s",
			  strerror(-err));
	if (err || s->n < SWEEP_BATCH)
		free(s);
	else
		sweep_next(s);
}

static void sweep_next(struct sweep *s)
{
	struct kv_txn *t;

	s->n = 0;
	/* A batch that fails early must not count files of the batch before it. */
	memset(s->ctx, 0, sizeof(s->ctx));
	if (kv_read_begin(s->m->m_kv, &t) == 0) {
		ns_orphans(s->m->m_ns, t, sweep_collect, s);
		kv_read_end(t);
	}
	if (!s->n) {
		free(s);
		return;
	}
	s->last = s->ino[s->n - 1];
	kv_submit(s->m->m_kv, &s->op);
}

void op_orphan_sweep(struct mds *m, struct loop *loop)
{
	struct sweep *s = calloc(1, sizeof(*s));

	if (!s)
		return;
	s->m = m;
	s->op.o_run = orphan_sweep_run;
	s->op.o_done = orphan_sweep_done;
	s->op.o_loop = loop;
	sweep_next(s);
}
