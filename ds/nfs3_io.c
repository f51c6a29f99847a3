/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nfs3_io.c - READ, WRITE, COMMIT and SETATTR: the procedures that wait for the disk. Each is a
 * chain of callbacks on the call's loop, which ends in ds_op_reply.
 *
 * This file never copies payload. It writes a WRITE from the record that carried it (the call holds
 * the record until the reply), and sends a READ from the buffer into which it was read.
 * ds_m_copied_bytes counts what the transport copied before.
 */
#include "base/log.h"
#include "ds/nfs3_service.h"
#include "ds/store/rebuild.h"
#include "proto/rpc_rdma.h"
#include <errno.h>
#include <urcu/compiler.h>

/* Takes the handle at the head of the arguments; the caller checks c_args.bad before it uses the
 * result. */
static const uint8_t *take_fh(struct ds_op *op, uint32_t *len)
{
	return xdr_get_opaque(&op->op_call->c_args, NFS3_FHSIZE, len);
}

/* Checks inside the bracket: a call either sees a fence, or the drain that follows the fence waits
 * for the call. create: the call will write op_count bytes at op_off. */
static enum nfsstat3 open_bracket(struct ds_op *op, const uint8_t *fh, uint32_t len, bool create)
{
	enum nfsstat3 st;

	op->op_token = ds_write_begin(op->op_ds->d_store);
	op->op_bracket = true;
	st = ds_fh_check(op->op_ds, fh, len, CAP_WRITE, &op->op_cap);
	if (st == NFS3_OK && create)
		st = ds_fh_range(op->op_ds, &op->op_cap, op->op_off, op->op_count);
	return st == NFS3_OK ? ds_op_object(op, create) : st;
}

static void close_bracket(struct ds_op *op)
{
	if (op->op_bracket)
		ds_write_end(op->op_ds->d_store, op->op_token);
	op->op_bracket = false;
}

/* ---- READ ---- */

/* READ_TO_SIZE: the file ends where the object does. */
enum read_end { READ_GOES_ON, READ_ENDS, READ_TO_SIZE };

/* Every successful reply has attributes: clients lay out their receive buffers for them. */
static void nfs3_io_read_reply(struct ds_op *op, enum nfsstat3 st, enum read_end end)
{
	struct xdr_out *x = &op->op_call->c_reply;
	struct ds_buf *b = op->op_buf;
	struct nfs3_fattr a;

	xdr_put_u32(x, st);
	if (st != NFS3_OK) {
		nfs3_put_post_op(x, NULL);
		ds_op_reply(op);
		return;
	}
	ds_fattr(&op->op_cap, op->op_obj, &a);
	nfs3_put_post_op(x, &a);
	xdr_put_u32(x, (uint32_t)op->op_got);
	xdr_put_bool(x, end == READ_TO_SIZE
				? a.fa_size && op->op_off + (uint64_t)op->op_got >= a.fa_size
				: end == READ_ENDS);
	xdr_put_u32(x, (uint32_t)op->op_got);
	if (b) {
		op->op_buf = NULL;
		xdr_put_ref(x, b->b_data, (uint32_t)op->op_got, ds_buf_put, b);
	}
	metric_add(ds_m_read_bytes, (uint64_t)op->op_got);
	ds_op_reply(op);
}

/* A stripe's object ends where this stripe was last written. The file goes on with zeros to the end
 * that the MDS reports. */
static void read_eof_known(struct ds_eof *e, int err, uint64_t size)
{
	struct ds_op *op = caa_container_of(e, struct ds_op, op_eof);
	uint64_t want = size > op->op_off ? size - op->op_off : 0;

	/* A missing answer is neither an error of the file nor its end. */
	if (err) {
		nfs3_io_read_reply(op, err == -ENOENT ? NFS3ERR_STALE : NFS3ERR_JUKEBOX,
				   READ_GOES_ON);
		return;
	}
	if (want > op->op_count)
		want = op->op_count;
	/* The object's own bytes count, even if the MDS does not know of them yet. */
	if (want > (uint64_t)op->op_got) {
		memset(op->op_buf->b_data + op->op_got, 0, want - (uint64_t)op->op_got);
		op->op_got = (int)want;
	}
	nfs3_io_read_reply(op, NFS3_OK,
			   op->op_off + (uint64_t)op->op_got >= size ? READ_ENDS : READ_GOES_ON);
}

static void nfs3_io_read_got(struct ds_op *op, int res)
{
	if (res < 0) {
		nfs3_io_read_reply(op, ds_nfs3_errno(res), READ_GOES_ON);
		return;
	}
	op->op_got = res;
	if ((uint32_t)res == op->op_count) {
		nfs3_io_read_reply(op, NFS3_OK,
				   op->op_cap.cp_rights & CAP_STRIPED ? READ_GOES_ON
								      : READ_TO_SIZE);
	} else if (op->op_cap.cp_rights & CAP_STRIPED) {
		op->op_eof.eo_done = read_eof_known;
		op->op_eof.eo_ino = op->op_cap.cp_obj.co_ino;
		op->op_eof.eo_fs = op->op_cap.cp_obj.co_fs;
		op->op_eof.eo_incarnation = op->op_cap.cp_obj.co_incarnation;
		ds_eof_ask(op->op_ds, &op->op_eof);
	} else {
		nfs3_io_read_reply(op, NFS3_OK, READ_ENDS);
	}
}

static void read_done(struct ds_rw *rw, int res)
{
	nfs3_io_read_got(caa_container_of(rw, struct ds_op, op_rw), res);
}

static void read_buf_ready(struct ds_buf_wait *w, struct ds_buf *b)
{
	struct ds_op *op = caa_container_of(w, struct ds_op, op_wait);
	uint64_t before = log_request; /* another call's, if it gave its buffer back */

	op->op_buf = b;
	if (!op->op_obj) {
		nfs3_io_read_got(op, 0);
		return;
	}
	log_request = op->op_request;
	op->op_rw.rw_obj = op->op_obj;
	op->op_rw.rw_hold = op->op_hold;
	op->op_rw.rw_off = op->op_off;
	op->op_rw.rw_len = op->op_count;
	op->op_rw.rw_mem = b->b_data;
	op->op_rw.rw_done = read_done;
	ds_obj_read(&op->op_rw);
	log_request = before;
}

void ds_nfs3_read(struct ds_op *op)
{
	struct xdr_in *x = &op->op_call->c_args;
	const uint8_t *fh;
	uint32_t len;
	enum nfsstat3 st;

	fh = take_fh(op, &len);
	op->op_off = xdr_get_u64(x);
	op->op_count = xdr_get_u32(x);
	if (x->bad) {
		ds_op_garbage(op);
		return;
	}
	st = ds_fh_check(op->op_ds, fh, len, CAP_READ, &op->op_cap);
	if (st == NFS3_OK)
		st = ds_op_object(op, false);
	if (st == NFS3_OK && op->op_obj && ds_obj_rebuilding(op->op_obj))
		st = NFS3ERR_ACCES;
	if (op->op_count > DS_MAX_IO)
		op->op_count = DS_MAX_IO;
	if (st == NFS3_OK)
		st = ds_fh_range(op->op_ds, &op->op_cap, op->op_off, op->op_count);
	if (st != NFS3_OK) {
		nfs3_io_read_reply(op, st, READ_GOES_ON);
		return;
	}
	if (!op->op_count || op->op_off > (uint64_t)INT64_MAX - op->op_count) {
		op->op_got = 0;
		nfs3_io_read_reply(op, NFS3_OK, op->op_count ? READ_ENDS : READ_GOES_ON);
		return;
	}
	rpc_call_expect(op->op_call, ds_buf_takes(op->op_count));
	op->op_wait.bw_ready = read_buf_ready;
	if (rpc_conn_is_rdma(op->op_call->c_conn))
		/* the device knows only the pool's memory */
		ds_buf_get_pooled(&op->op_wait, op->op_count);
	else
		ds_buf_get(&op->op_wait, op->op_count);
}

/* ---- WRITE ---- */

static void nfs3_io_write_reply(struct ds_op *op, enum nfsstat3 st)
{
	struct xdr_out *x = &op->op_call->c_reply;

	xdr_put_u32(x, st);
	nfs3_put_wcc(x, NULL);
	if (st == NFS3_OK) {
		xdr_put_u32(x, op->op_count);
		xdr_put_u32(x, op->op_stable);
		xdr_put_fixed(x, &op->op_verf, NFS3_WRITEVERFSIZE);
		metric_add(ds_m_write_bytes, op->op_count);
	}
	ds_op_reply(op);
}

static void write_synced(struct ds_sync *sy, int err)
{
	nfs3_io_write_reply(caa_container_of(sy, struct ds_op, op_sync), ds_nfs3_errno(err));
}

static void nfs3_io_write_done(struct ds_rw *rw, int res)
{
	struct ds_op *op = caa_container_of(rw, struct ds_op, op_rw);

	if (res < (int)rw->rw_len)
		ds_obj_note_failed(op->op_obj, res < 0 ? res : -EIO);
	close_bracket(op);
	if (res < 0) {
		nfs3_io_write_reply(op, ds_nfs3_errno(res));
		return;
	}
	op->op_count = (uint32_t)res;
	if (op->op_stable == NFS3_UNSTABLE) {
		nfs3_io_write_reply(op, NFS3_OK);
		return;
	}
	op->op_sync.sy_obj = op->op_obj;
	op->op_sync.sy_full = op->op_stable == NFS3_FILE_SYNC;
	op->op_sync.sy_done = write_synced;
	ds_obj_sync(&op->op_sync);
}

void ds_nfs3_write(struct ds_op *op)
{
	struct xdr_in *x = &op->op_call->c_args;
	const uint8_t *fh, *data;
	uint32_t len, ndata;
	enum nfsstat3 st;

	fh = take_fh(op, &len);
	op->op_off = xdr_get_u64(x);
	op->op_count = xdr_get_u32(x);
	op->op_stable = xdr_get_u32(x);
	if (op->op_call->c_cut && !x->bad) {
		st = ds_fh_check(op->op_ds, fh, len, 0, &op->op_cap);
		nfs3_io_write_reply(op, st == NFS3_OK ? NFS3ERR_JUKEBOX : st);
		return;
	}
	data = xdr_get_opaque(x, DS_MAX_IO, &ndata);
	if (x->bad || op->op_stable > NFS3_FILE_SYNC || ndata < op->op_count) {
		ds_op_garbage(op);
		return;
	}
	if (op->op_count) {
		metric_add(ds_m_copied_bytes, rpc_call_copied(op->op_call, data));
		rpc_call_bulk_hint(op->op_call, data);
	}
	st = open_bracket(op, fh, len, op->op_count);
	if (st == NFS3_OK && op->op_off > (uint64_t)INT64_MAX - op->op_count)
		st = NFS3ERR_FBIG;
	if (st == NFS3_OK && op->op_count)
		st = ds_nfs3_errno(ds_obj_note(op->op_obj, op->op_off, op->op_count));
	op->op_verf = ds_store_verifier(op->op_ds->d_store);
	if (st != NFS3_OK || !op->op_count) {
		nfs3_io_write_reply(op, st);
		return;
	}
	op->op_rw.rw_obj = op->op_obj;
	op->op_rw.rw_hold = op->op_hold;
	op->op_rw.rw_off = op->op_off;
	op->op_rw.rw_len = op->op_count;
	op->op_rw.rw_mem = (uint8_t *)data;
	op->op_rw.rw_done = nfs3_io_write_done;
	ds_obj_write(&op->op_rw);
}

/* ---- COMMIT ---- */

static void nfs3_io_commit_reply(struct ds_op *op, enum nfsstat3 st)
{
	struct xdr_out *x = &op->op_call->c_reply;
	uint64_t verf = ds_store_verifier(op->op_ds->d_store);

	xdr_put_u32(x, st);
	nfs3_put_wcc(x, NULL);
	if (st == NFS3_OK)
		xdr_put_fixed(x, &verf, NFS3_WRITEVERFSIZE);
	ds_op_reply(op);
}

static void commit_synced(struct ds_sync *sy, int err)
{
	nfs3_io_commit_reply(caa_container_of(sy, struct ds_op, op_sync), ds_nfs3_errno(err));
}

/* Syncs the whole object, whatever range the client names: RFC 1813 section 3.3.21 allows more. */
void ds_nfs3_commit(struct ds_op *op)
{
	struct xdr_in *x = &op->op_call->c_args;
	const uint8_t *fh;
	uint32_t len;
	enum nfsstat3 st;

	fh = take_fh(op, &len);
	xdr_get_u64(x);
	xdr_get_u32(x);
	if (x->bad) {
		ds_op_garbage(op);
		return;
	}
	st = ds_fh_check(op->op_ds, fh, len, CAP_WRITE, &op->op_cap);
	if (st == NFS3_OK)
		st = ds_op_object(op, false);
	if (st == NFS3_OK && op->op_obj && !ds_obj_writable(op->op_obj))
		st = NFS3ERR_JUKEBOX;
	/* The object was never written: nothing to make durable. */
	if (st != NFS3_OK || !op->op_obj) {
		nfs3_io_commit_reply(op, st);
		return;
	}
	op->op_sync.sy_obj = op->op_obj;
	op->op_sync.sy_full = false;
	op->op_sync.sy_done = commit_synced;
	ds_obj_sync(&op->op_sync);
}

/* ---- SETATTR ---- */

static void setattr_reply(struct ds_op *op, enum nfsstat3 st)
{
	struct xdr_out *x = &op->op_call->c_reply;

	xdr_put_u32(x, st);
	nfs3_put_wcc(x, NULL);
	ds_op_reply(op);
}

static void nfs3_io_setattr_done(struct loop_msg *m)
{
	struct ds_op *op = caa_container_of(m, struct ds_op, op_size.sz_msg);

	setattr_reply(op, ds_nfs3_errno(op->op_size.sz_err));
}

static void setattr_job(struct ds_job *j)
{
	struct ds_op *op = caa_container_of(j, struct ds_op, op_size.sz_job);

	op->op_size.sz_err = ds_obj_set_size(op->op_obj, op->op_size.sz_size);
	loop_post(op->op_call->c_loop, &op->op_size.sz_msg);
}

/* The MDS keeps the attributes. Only the MDS may set one here, the size; a client (number not 0)
 * may set none. */
static enum nfsstat3 nfs3_io_setattr_allowed(const struct ds_op *op, const struct nfs3_sattr *s)
{
	if (op->op_cap.cp_client)
		return NFS3ERR_ACCES;
	if (s->sa_set != NFS3_SA_SIZE)
		return NFS3ERR_NOTSUPP;
	return s->sa_size > INT64_MAX ? NFS3ERR_FBIG : NFS3_OK;
}

static bool guard_holds(const struct ds_op *op, const struct timespec *ctime)
{
	struct nfs3_fattr a;

	ds_fattr(&op->op_cap, op->op_obj, &a);
	return (uint32_t)a.fa_ctime.tv_sec == (uint32_t)ctime->tv_sec &&
	       a.fa_ctime.tv_nsec == ctime->tv_nsec;
}

void ds_nfs3_setattr(struct ds_op *op)
{
	struct xdr_in *x = &op->op_call->c_args;
	struct timespec ctime = {0};
	struct nfs3_sattr sa;
	const uint8_t *fh;
	enum nfsstat3 st;
	uint32_t len;
	bool guard;

	fh = take_fh(op, &len);
	nfs3_get_sattr(x, &sa);
	guard = xdr_get_bool(x);
	if (guard)
		nfs3_get_time(x, &ctime);
	if (x->bad) {
		ds_op_garbage(op);
		return;
	}
	/* Make the object only after the attributes are allowed: a refused call must not create
	 * it. */
	st = open_bracket(op, fh, len, false);
	if (st == NFS3_OK)
		st = nfs3_io_setattr_allowed(op, &sa);
	if (st == NFS3_OK && guard && !guard_holds(op, &ctime))
		st = NFS3ERR_NOT_SYNC;
	if (st == NFS3_OK && !op->op_obj)
		st = ds_op_object(op, true);
	if (st != NFS3_OK) {
		setattr_reply(op, st);
		return;
	}
	op->op_size.sz_size = sa.sa_size;
	op->op_size.sz_job.jb_run = setattr_job;
	op->op_size.sz_msg.m_run = nfs3_io_setattr_done;
	ds_store_submit(op->op_ds->d_store, DS_WORKER_QUERIES, &op->op_size.sz_job);
}
