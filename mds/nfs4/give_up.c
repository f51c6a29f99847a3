/* SPDX-License-Identifier: Apache-2.0 */
/*
 * give_up.c - CLOSE and DELEGRETURN give an open or a delegation up. With the last one of a removed
 * file the file is freed (file/orphan.h).
 *
 *	op_give_up	CLOSE, DELEGRETURN: the open or delegation goes. give_up_run frees an
 *			orphan
 *	give_up_done	the answer
 *	given_up	where the trash has the file, and it had layouts: it is fenced
 */
#include "mds/nfs4/op.h"
#include "mds/nfs4/op_state.h"

bool op_free_waits(struct compound *c, const struct file_free_ctx *ctx)
{
	if (ctx->ffc_waits)
		lo_orders_wait(c->m->m_lo, ctx->ffc_removing, c->th->mt_loop, op_confirm_ms(c->m),
			       op_wake, c);
	return ctx->ffc_waits;
}

struct give_up {
	struct file_free_ctx ctx;
	struct ns_free_ops fo;
	uint64_t ino;
};

static int give_up_run(struct kv_op *op, struct kv_txn *t)
{
	struct compound *c = op_of(op);
	struct give_up *k = c->scratch;

	return file_free_orphan(&k->ctx, t, k->ino, &k->fo);
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

	file_free_done(&k->ctx, err);
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
	file_free_ops(&k->ctx, &c->m->m_file, c->client, &k->fo);
	k->ctx.ffc_removing = k->ino = c->cur;
	/* Idempotent: opens and delegations end with the boot, and the sweep frees the file. */
	return op_mutate_again(c, give_up_run, give_up_done);
}
