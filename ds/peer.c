/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer.c - serves PEER_READ (proto/ctl.x), on the NFS port: other data servers read objects here
 * for a rebuild. The caller may read what its capability lets a client read; the reply also says
 * where the holes are. Reader threads read the disk.
 */
#include "ds/peer.h"
#include "ds/nfs3_service.h"
#include <errno.h>
#include <sodium.h>
#include <urcu/compiler.h>

#define READERS	    2
#define WAITING_MAX 64u

_Static_assert(CTL_PEER_SUM == crypto_generichash_BYTES, "BLAKE2b-256");

struct peer_read {
	struct work pr_work;
	struct loop_msg pr_msg;
	struct ds *pr_ds;
	struct rpc_call *pr_call;
	struct ds_hold *pr_hold;
	struct ds_obj *pr_obj; /* NULL: does not exist, reads as empty */
	uint32_t pr_count;
	int pr_err;
	struct ds_fetch pr_f;
	uint8_t pr_sum[CTL_PEER_SUM];
};

static struct metric *m_bytes;
static struct worker *readers[READERS];
static _Atomic unsigned turn;

void ds_peer_init(void)
{
	m_bytes = metric_counter("weft_ds_peer_bytes_total",
				 "Bytes read by other data servers for rebuilds.", "");
}

int ds_peer_start(struct ds *d)
{
	int err = 0;

	(void)d;
	for (unsigned i = 0; i < READERS && !err; i++)
		err = worker_create(&readers[i], "weft-peer", WAITING_MAX);
	return err;
}

static void peer_refuse(struct rpc_call *call, enum nfsstat3 st)
{
	xdr_put_u32(&call->c_reply, st);
	rpc_reply(call);
}

static void read_free(struct peer_read *pr)
{
	if (pr->pr_hold)
		ds_hold_put(pr->pr_hold);
	free(pr->pr_f.ft_data);
	free(pr);
}

static void read_tell(struct loop_msg *m)
{
	struct peer_read *pr = caa_container_of(m, struct peer_read, pr_msg);
	struct xdr_out *x = &pr->pr_call->c_reply;
	struct rpc_call *call = pr->pr_call;
	const struct ds_fetch *f = &pr->pr_f;

	if (pr->pr_err) {
		peer_refuse(call,
			    pr->pr_err == -ENOLINK ? NFS3ERR_ACCES : ds_nfs3_errno(pr->pr_err));
		read_free(pr);
		return;
	}
	xdr_put_u32(x, NFS3_OK);
	xdr_put_u64(x, f->ft_size);
	xdr_put_u64(x, f->ft_to);
	xdr_put_fixed(x, pr->pr_sum, sizeof(pr->pr_sum));
	xdr_put_u32(x, f->ft_nparts);
	for (unsigned i = 0; i < f->ft_nparts; i++) {
		xdr_put_u64(x, f->ft_part[i].pt_off);
		xdr_put_u32(x, f->ft_part[i].pt_len);
	}
	xdr_put_u32(x, f->ft_len);
	xdr_put_ref_plain(x, f->ft_data, f->ft_len, free, f->ft_data);
	metric_add(m_bytes, f->ft_len);
	pr->pr_f.ft_data = NULL;
	read_free(pr);
	rpc_reply(call);
}

static void read_run(struct work *w)
{
	struct peer_read *pr = caa_container_of(w, struct peer_read, pr_work);

	pr->pr_f.ft_data = aligned_alloc(DS_PAGE, DS_FETCH_MEM);
	pr->pr_err =
		pr->pr_f.ft_data ? ds_fetch_read(pr->pr_obj, pr->pr_count, &pr->pr_f) : -ENOMEM;
	/* The object could be read when the request came. A rebuild that has begun since writes
	 * into it. */
	if (!pr->pr_err && pr->pr_obj && ds_obj_rebuilding(pr->pr_obj))
		pr->pr_err = -ENOLINK;
	if (!pr->pr_err)
		crypto_generichash(pr->pr_sum, sizeof(pr->pr_sum), pr->pr_f.ft_data,
				   pr->pr_f.ft_len, NULL, 0);
	loop_post(pr->pr_call->c_loop, &pr->pr_msg);
}

/* The checks of READ, except ds_fh_range: a rebuild reads whole objects. */
static enum nfsstat3 may_read(struct ds *d, const uint8_t *fh, uint32_t len, struct ds_hold **hold)
{
	struct cap cap;
	enum nfsstat3 st = ds_fh_check(d, fh, len, CAP_READ, &cap);

	*hold = NULL;
	if (st == NFS3_OK)
		st = ds_fh_object(d, &cap, false, hold);
	return st == NFS3_OK && *hold && ds_obj_rebuilding(ds_hold_obj(*hold)) ? NFS3ERR_ACCES : st;
}

static void peer_read(struct ds *d, struct rpc_call *call)
{
	struct xdr_in *x = &call->c_args;
	uint32_t len, count;
	const uint8_t *fh = xdr_get_opaque(x, NFS3_FHSIZE, &len);
	uint64_t off = xdr_get_u64(x);
	struct ds_hold *hold = NULL;
	struct peer_read *pr;
	enum nfsstat3 st;

	count = xdr_get_u32(x);
	if (x->bad) {
		rpc_reply_error(call, RPC_A_GARBAGE_ARGS);
		return;
	}
	st = may_read(d, fh, len, &hold);
	if (st == NFS3_OK && (!count || count > DS_MAX_IO || off > (uint64_t)INT64_MAX - count))
		st = NFS3ERR_INVAL;
	pr = st == NFS3_OK ? calloc(1, sizeof(*pr)) : NULL;
	if (pr) {
		pr->pr_work.w_run = read_run;
		pr->pr_msg.m_run = read_tell;
		pr->pr_ds = d;
		pr->pr_call = call;
		pr->pr_hold = hold;
		pr->pr_obj = hold ? ds_hold_obj(hold) : NULL;
		pr->pr_count = count;
		pr->pr_f.ft_off = off;
		rpc_call_expect(call, DS_FETCH_MEM);
		if (worker_submit(readers[atomic_fetch_add(&turn, 1) % READERS], &pr->pr_work))
			return;
		free(pr);
	}
	if (hold)
		ds_hold_put(hold);
	peer_refuse(call, st == NFS3_OK ? NFS3ERR_JUKEBOX : st);
}

void ds_peer_dispatch(struct rpc_call *call, void *arg)
{
	if (call->c_proc == CTL_PEER_READ)
		peer_read(arg, call);
	else
		rpc_reply(call);
}
