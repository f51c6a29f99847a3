/* SPDX-License-Identifier: Apache-2.0 */
/* orphan.c - see orphan.h. */
#include "mds/file/orphan.h"
#include "mds/file/exclusive.h"
#include "mds/file/file_size.h"
#include "mds/layout/repair_row.h"
#include "base/log.h"
#include <stdlib.h>
#include <string.h>

/* ---- in a mutation that removes a name ---- */

/* On the committer thread. An open that was registered before keeps the inode. A later OPEN sees
 * f_removing and waits. */
static bool keep_open(void *arg, uint64_t ino)
{
	struct file_free_ctx *ctx = arg;
	struct st *st = ctx->ffc_fe->fe_st;
	struct st_file *f;
	bool keep = false;

	st_file_lock(st, ino);
	f = st_file_get(st, ino, true);
	if (f && f->f_opens) {
		f->f_orphan = keep = true;
		ctx->ffc_orphaned = ino;
	} else if (f) {
		f->f_removing++;
		ctx->ffc_removing = ino;
	}
	st_file_unlock(st, ino);
	return keep;
}

static int free_map(void *arg, struct kv_txn *t, const struct ns_inode *i)
{
	struct file_free_ctx *ctx = arg;
	struct lo_map map;

	/* The directory entry is deleted already, so nothing may be refused any more (ns.h).
	 * fsck finds the objects of a damaged map. */
	if (lo_map_decode(i->i_blob, &map)) {
		log_error("inode %lu was removed, but its layout map is damaged: its objects stay",
			  (unsigned long)i->i_ino);
		return file_intent_del(t, i->i_ino);
	}
	int err = lo_order_free(ctx->ffc_fe->fe_lo, t, i);

	if (!err)
		err = lo_repair_del(t, i->i_ino);
	return err ? err : file_intent_del(t, i->i_ino);
}

void file_free_ops(struct file_free_ctx *ctx, const struct file_env *fe, struct st_client *client,
		   struct ns_free_ops *fo)
{
	*ctx = (struct file_free_ctx){.ffc_fe = fe, .ffc_client = client};
	*fo = (struct ns_free_ops){.f_keep_open = keep_open, .f_free_map = free_map, .f_arg = ctx};
}

int file_free_fence(struct file_free_ctx *ctx, struct kv_txn *t)
{
	int err = ctx->ffc_removing
			  ? excl_fence_unused(ctx->ffc_fe, t, ctx->ffc_removing, &ctx->ffc_waits)
			  : 0;

	ctx->ffc_fenced = err > 0;
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

static void not_removing(struct st *st, const struct file_free_ctx *ctx, int err)
{
	struct st_work w = {0};
	struct st_file *f;

	do {
		st_work_lock(&w, st, ctx->ffc_removing);
		f = st_file_get(st, ctx->ffc_removing, false);
		bool frees = !err && !ctx->ffc_kept, ends = frees || (!err && ctx->ffc_fenced);

		if (!f || (ends && f->f_layouts && !st_needs_all()))
			continue;
		if (frees)
			f->f_intent = f->f_intent_durable = f->f_intent_old = f->f_suspect =
				f->f_suspect_boot = f->f_contended = f->f_diverged = false;
		if (ends)
			layouts_end(st, f, ctx->ffc_client);
		f->f_removing--;
		st_file_put(st, f);
	} while (st_work_again(&w));
}

void file_free_done(struct file_free_ctx *ctx, int err)
{
	if (ctx->ffc_orphaned && err)
		not_orphaned(ctx->ffc_fe->fe_st, ctx->ffc_orphaned);
	if (!ctx->ffc_removing)
		return;
	not_removing(ctx->ffc_fe->fe_st, ctx, err);
	if (!err && ctx->ffc_fenced)
		lo_orders_wake(ctx->ffc_fe->fe_lo);
	if (!err && !ctx->ffc_kept)
		lo_orders_files_gone(ctx->ffc_fe->fe_lo);
}

int file_free_orphan(struct file_free_ctx *ctx, struct kv_txn *t, uint64_t ino,
		     const struct ns_free_ops *fo)
{
	int err = ns_orphan_free(ctx->ffc_fe->fe_ns, t, ino, fo);
	struct ns_inode i;

	ctx->ffc_kept = err > 0;
	if (err <= 0)
		return err;
	err = ns_get(ctx->ffc_fe->fe_ns, t, ino, &i);
	/* With a name it was restored. */
	return err || i.i_nlink ? err : file_free_fence(ctx, t);
}

/* ---- orphans of clients that are gone, and of a crash ---- */

#define SWEEP_BATCH 256

struct sweep {
	struct kv_op op;
	const struct file_env *fe;
	uint64_t ino[SWEEP_BATCH], last;
	unsigned n;
	struct file_free_ctx ctx[SWEEP_BATCH];
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

		file_free_ops(&s->ctx[i], s->fe, NULL, &fo);
		st_all_lock(s->fe->fe_st);
		f = st_file_get(s->fe->fe_st, s->ino[i], false);
		open = f && f->f_opens;
		if (open) {
			f->f_orphan = true;
		} else if ((f = st_file_get(s->fe->fe_st, s->ino[i], true))) {
			f->f_removing++; /* no new opens */
			s->ctx[i].ffc_removing = s->ino[i];
		}
		st_all_unlock(s->fe->fe_st);
		if (!open)
			err = file_free_orphan(&s->ctx[i], t, s->ino[i], &fo);
	}
	return err;
}

static void sweep_next(struct sweep *s);

static void orphan_sweep_done(struct kv_op *op, int err)
{
	struct sweep *s = (struct sweep *)op;

	for (unsigned i = 0; i < s->n; i++)
		file_free_done(&s->ctx[i], err);
	lo_orders_wake(s->fe->fe_lo);
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
	if (kv_read_begin(s->fe->fe_kv, &t) == 0) {
		ns_orphans(s->fe->fe_ns, t, sweep_collect, s);
		kv_read_end(t);
	}
	if (!s->n) {
		free(s);
		return;
	}
	s->last = s->ino[s->n - 1];
	kv_submit(s->fe->fe_kv, &s->op);
}

void file_orphan_sweep(const struct file_env *fe, struct loop *loop)
{
	struct sweep *s = calloc(1, sizeof(*s));

	if (!s)
		return;
	s->fe = fe;
	s->op.o_run = orphan_sweep_run;
	s->op.o_done = orphan_sweep_done;
	s->op.o_loop = loop;
	sweep_next(s);
}
