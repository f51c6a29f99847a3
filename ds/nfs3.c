/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nfs3.c - the NFSv3 service (RFC 1813): dispatch, file handles, and the procedures that need no
 * disk.
 *
 * A file handle says what its bearer may do (proto/cap.h); this file ignores credentials. A fenced
 * call gets ACCES. A deleted or lost object is STALE. A handle that was not made for this server is
 * BADHANDLE. This file never answers PERM, on which clients disconnect. A WRITE to an object whose
 * rebuild forbids changes at present gets JUKEBOX, on which clients try again; a READ of such an
 * object gets ACCES.
 */
#include "ds/nfs3_service.h"
#include "ds/peer.h"
#include "base/clock.h"
#include "base/log.h"
#include "common/trace.h"
#include "ds/path/path.h"
#include "proto/objname.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/statvfs.h>

static const char *const proc_names[NFS3_NPROCS] = {
	"NULL",	   "GETATTR",	  "SETATTR", "LOOKUP", "ACCESS",   "READLINK", "READ",	 "WRITE",
	"CREATE",  "MKDIR",	  "SYMLINK", "MKNOD",  "REMOVE",   "RMDIR",    "RENAME", "LINK",
	"READDIR", "READDIRPLUS", "FSSTAT",  "FSINFO", "PATHCONF", "COMMIT",
};

const char *ds_nfs3_proc_name(unsigned proc)
{
	return proc < NFS3_NPROCS ? proc_names[proc] : "?";
}

struct metric *ds_m_read_bytes, *ds_m_write_bytes, *ds_m_copied_bytes;
static struct metric *m_ops[NFS3_NPROCS], *m_seconds[NFS3_NPROCS];
static struct metric *m_bad_handle, *m_fenced, *m_misplaced, *m_lost, *m_garbage;

void ds_nfs3_init(void)
{
	struct metric *other;
	char labels[64];

	ds_eof_metrics_init();
	for (unsigned i = 0; i < NFS3_NPROCS; i++) {
		snprintf(labels, sizeof(labels), "proc=\"%s\"", proc_names[i]);
		m_ops[i] = metric_counter("weft_ds_op_total", "NFSv3 calls.", labels);
	}
	other = metric_histogram("weft_ds_op_seconds", "Time from a call to its reply.",
				 "proc=\"OTHER\"");
	for (unsigned i = 0; i < NFS3_NPROCS; i++)
		m_seconds[i] = other;
	m_seconds[NFS3_READ] = metric_histogram("weft_ds_op_seconds",
						"Time from a call to its reply.", "proc=\"READ\"");
	m_seconds[NFS3_WRITE] = metric_histogram(
		"weft_ds_op_seconds", "Time from a call to its reply.", "proc=\"WRITE\"");
	m_seconds[NFS3_COMMIT] = metric_histogram(
		"weft_ds_op_seconds", "Time from a call to its reply.", "proc=\"COMMIT\"");
	ds_m_read_bytes = metric_counter("weft_ds_bytes_total", "Payload bytes.", "dir=\"read\"");
	ds_m_write_bytes = metric_counter("weft_ds_bytes_total", "Payload bytes.", "dir=\"write\"");
	ds_m_copied_bytes = metric_counter("weft_ds_copied_bytes_total",
					   "Payload bytes copied by the daemon.", "");
	m_bad_handle = metric_counter("weft_ds_bad_handle_total",
				      "Handles that were not minted for this server.", "");
	m_fenced = metric_counter("weft_ds_fenced_total",
				  "Calls refused: old epoch, barred client, or no lease.", "");
	m_misplaced =
		metric_counter("weft_ds_misplaced_total",
			       "READs and WRITEs refused: of bytes that are another stripe's.", "");
	m_lost = metric_counter("weft_ds_missing_object_total",
				"Calls for objects that must exist and do not.", "");
	ds_peer_init();
	m_garbage =
		metric_counter("weft_ds_garbage_total", "Calls whose arguments are malformed.", "");
}

uint64_t ds_nfs3_calls(void)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < NFS3_NPROCS; i++)
		n += metric_value(m_ops[i]);
	return n;
}

uint64_t ds_nfs3_busy_us(void)
{
	return metric_sum_us(m_seconds[NFS3_NULL]) + metric_sum_us(m_seconds[NFS3_READ]) +
	       metric_sum_us(m_seconds[NFS3_WRITE]) + metric_sum_us(m_seconds[NFS3_COMMIT]);
}

bool ds_lease_live(const struct ds *d, const struct ds_fs *f)
{
	return clock_boot_ns() < atomic_load(&d->d_lease[ds_fs_place(f)].le_end_ns);
}

enum nfsstat3 ds_nfs3_errno(int err)
{
	switch (-err) {
	case 0:
		return NFS3_OK;
	case ENOSPC:
	case EDQUOT: /* of the file system under the store; a client knows no such quota */
		return NFS3ERR_NOSPC;
	case EFBIG:
		return NFS3ERR_FBIG;
	case EROFS:
		return NFS3ERR_ROFS;
	case ESTALE:
		return NFS3ERR_STALE;
	case EAGAIN: /* the object's rebuild forbids changes at present */
		return NFS3ERR_JUKEBOX;
	default:
		return NFS3ERR_IO;
	}
}

/* ---- handles ---- */

enum nfsstat3 ds_fh_check(struct ds *d, const uint8_t *fh, uint32_t len, unsigned rights,
			  struct cap *cap)
{
	struct ds_fs *f;

	if (len != CAP_LEN || !ds_cap_open(d, fh, cap)) {
		metric_add(m_bad_handle, 1);
		return NFS3ERR_BADHANDLE;
	}
	/* A store that has not joined an MDS yet has no lease of it either. */
	f = ds_store_fs(d->d_store, cap->cp_obj.co_fs);
	if (!f) {
		metric_add(m_bad_handle, 1);
		return NFS3ERR_BADHANDLE;
	}
	if (!ds_lease_live(d, f) || ds_store_barred(f, cap->cp_client)) {
		metric_add(m_fenced, 1);
		return NFS3ERR_ACCES;
	}
	return (cap->cp_rights & rights) == rights ? NFS3_OK : NFS3ERR_ACCES;
}

/* The MDS and other data servers (client 0) read whole objects, also bytes between the stripe's own
 * units. */
enum nfsstat3 ds_fh_range(struct ds *d, const struct cap *cap, uint64_t off, uint32_t count)
{
	struct ds_fs *f = ds_store_fs(d->d_store, cap->cp_obj.co_fs);
	uint64_t since;

	if (!cap->cp_client || !(cap->cp_rights & CAP_STRIPED))
		return NFS3_OK;
	if (cap->cp_version == 2) {
		if (cap_has(cap, off, count))
			return NFS3_OK;
		metric_add(m_misplaced, 1);
		return NFS3ERR_INVAL;
	}
	since = atomic_load_explicit(&d->d_lease[ds_fs_place(f)].le_striped2_ns,
				     memory_order_relaxed);
	if (!since || clock_boot_ns() < since)
		return NFS3_OK;
	metric_add(m_fenced, 1);
	return NFS3ERR_ACCES;
}

/* Logs a lost object for people: one line a second is enough, and the metric counts them all. */
static void nfs3_lost(const struct cap *cap)
{
	static _Atomic uint64_t last;
	char path[OBJPATH_MAX];

	metric_add(m_lost, 1);
	if (!log_due(&last))
		return;
	objpath(&cap->cp_obj, path);
	log_error("object %s is lost: the metadata server knows that it was written, but it is not "
		  "in this store",
		  path);
}

enum nfsstat3 ds_fh_object(struct ds *d, const struct cap *cap, bool create, struct ds_hold **out)
{
	bool must = cap->cp_rights & CAP_MUST_EXIST;
	int err = ds_obj_hold(d->d_store, &cap->cp_obj, create && !must, out);
	enum nfsstat3 st = NFS3_OK;

	/* A capability without CAP_MUST_EXIST, from before the object was known to exist, must not
	 * read a lost object as zeros either. */
	if ((err == -ENOENT && must) || (err == -ESTALE && ds_obj_lost(d->d_store, &cap->cp_obj))) {
		nfs3_lost(cap);
		return NFS3ERR_STALE;
	}
	if (err == -ENOENT)
		return NFS3_OK;
	if (err)
		return ds_nfs3_errno(err);
	if (ds_obj_deleted(ds_hold_obj(*out)))
		st = NFS3ERR_STALE;
	else if (cap->cp_epoch < ds_obj_epoch(ds_hold_obj(*out)))
		st = NFS3ERR_ACCES;
	if (st == NFS3_OK)
		return st;
	ds_hold_put(*out);
	*out = NULL;
	if (st == NFS3ERR_ACCES)
		metric_add(m_fenced, 1);
	return st;
}

enum nfsstat3 ds_op_object(struct ds_op *op, bool create)
{
	enum nfsstat3 st = ds_fh_object(op->op_ds, &op->op_cap, create, &op->op_hold);

	op->op_obj = op->op_hold ? ds_hold_obj(op->op_hold) : NULL;
	return st;
}

/* Clients of a Flex Files data server ignore these attributes; only their encoding matters. */
void ds_fattr(const struct cap *cap, const struct ds_obj *o, struct nfs3_fattr *a)
{
	struct stat st = {0};

	if (o)
		ds_obj_stat(o, &st);
	*a = (struct nfs3_fattr){
		.fa_type = NF3REG,
		.fa_mode = 0600,
		.fa_nlink = 1,
		.fa_size = (uint64_t)st.st_size,
		.fa_used = (uint64_t)st.st_blocks * 512,
		.fa_fsid = cap->cp_obj.co_fs,
		.fa_fileid = cap->cp_obj.co_ino,
		.fa_atime = st.st_atim,
		.fa_mtime = st.st_mtim,
		.fa_ctime = st.st_ctim,
	};
}

/* ---- a call's life ---- */

struct ds_op *ds_op_new(struct ds *d, struct rpc_call *call)
{
	struct ds_op *op = malloc(sizeof(*op));

	if (!op)
		return NULL;
	op->op_ds = d;
	op->op_call = call;
	op->op_start_ns = clock_mono_ns();
	op->op_hold = NULL;
	op->op_obj = NULL;
	op->op_buf = NULL;
	op->op_bracket = false;
	op->op_count = 0;
	op->op_off = 0;
	op->op_cap = (struct cap){0};
	return op;
}

static void nfs3_trace_begin(struct ds_op *op)
{
	const struct rpc_call *call = op->op_call;
	uint64_t from[2];
	uint16_t port = trace_address(rpc_conn_peer(call->c_conn), from);

	op->op_request = log_request = trace_request();
	TRACE_TURN(request_start, 0, from[0], from[1], trace_call(call->c_xid, call->c_proc, port));
}

/* Every result but NULL's begins with its status. */
static void trace_finish(const struct ds_op *op, uint64_t now, bool garbage)
{
	const struct rpc_call *call = op->op_call;
	uint32_t st = 0;

	if (garbage)
		st = htobe32(DS_TRACE_GARBAGE);
	else if (call->c_reply.x_len >= call->c_body + sizeof(st))
		memcpy(&st, call->c_reply.x_head + call->c_body, sizeof(st));
	log_request = op->op_request;
	TRACE_AT(now, request_end, op->op_cap.cp_obj.co_ino,
		 trace_end(op->op_cap.cp_client, call->c_proc, be32toh(st)), op->op_off,
		 op->op_count);
}

static void op_free(struct ds_op *op)
{
	if (op->op_bracket)
		ds_write_end(op->op_ds->d_store, op->op_token);
	if (op->op_hold)
		ds_hold_put(op->op_hold);
	if (op->op_buf)
		ds_buf_put(op->op_buf);
	free(op);
}

void ds_op_reply(struct ds_op *op)
{
	struct rpc_call *call = op->op_call;
	uint64_t now = clock_mono_ns();

	if (op->op_hold)
		rpc_conn_proven(call->c_conn);
	metric_observe_us(m_seconds[call->c_proc], (now - op->op_start_ns) / 1000);
	trace_finish(op, now, false);
	op_free(op);
	rpc_reply(call);
}

void ds_op_garbage(struct ds_op *op)
{
	struct rpc_call *call = op->op_call;

	metric_add(m_garbage, 1);
	trace_finish(op, clock_mono_ns(), true);
	op_free(op);
	rpc_reply_error(call, RPC_A_GARBAGE_ARGS);
}

/* ---- procedures that answer at once ---- */

static const uint8_t *nfs3_get_fh(struct rpc_call *call, uint32_t *len)
{
	return xdr_get_opaque(&call->c_args, NFS3_FHSIZE, len);
}

static enum nfsstat3 get_cap(struct ds_op *op)
{
	uint32_t len;
	const uint8_t *fh = nfs3_get_fh(op->op_call, &len);

	return fh ? ds_fh_check(op->op_ds, fh, len, 0, &op->op_cap) : NFS3_OK;
}

static void nfs3_getattr(struct ds_op *op)
{
	struct xdr_out *x = &op->op_call->c_reply;
	enum nfsstat3 st = get_cap(op);
	struct nfs3_fattr a;

	if (op->op_call->c_args.bad) {
		ds_op_garbage(op);
		return;
	}
	if (st == NFS3_OK)
		st = ds_op_object(op, false);
	xdr_put_u32(x, st);
	if (st == NFS3_OK) {
		ds_fattr(&op->op_cap, op->op_obj, &a);
		nfs3_put_fattr(x, &a);
	}
	ds_op_reply(op);
}

static void nfs3_fsstat(struct ds_op *op)
{
	struct xdr_out *x = &op->op_call->c_reply;
	enum nfsstat3 st = get_cap(op);
	struct statvfs v;

	if (op->op_call->c_args.bad) {
		ds_op_garbage(op);
		return;
	}
	if (st == NFS3_OK)
		st = ds_nfs3_errno(ds_store_statvfs(op->op_ds->d_store, &v));
	xdr_put_u32(x, st);
	nfs3_put_post_op(x, NULL);
	if (st == NFS3_OK)
		nfs3_put_fsstat(x, &v);
	ds_op_reply(op);
}

static void nfs3_fsinfo(struct ds_op *op)
{
	struct xdr_out *x = &op->op_call->c_reply;
	enum nfsstat3 st = get_cap(op);

	if (op->op_call->c_args.bad) {
		ds_op_garbage(op);
		return;
	}
	xdr_put_u32(x, st);
	nfs3_put_post_op(x, NULL);
	if (st == NFS3_OK) {
		for (int i = 0; i < 2; i++) { /* rtmax, rtpref, rtmult, then the same for writes */
			xdr_put_u32(x, DS_MAX_IO);
			xdr_put_u32(x, DS_MAX_IO);
			xdr_put_u32(x, DS_PAGE);
		}
		xdr_put_u32(x, DS_PAGE); /* dtpref */
		xdr_put_u64(x, INT64_MAX);
		xdr_put_u32(x, 0); /* time_delta: 1 ns */
		xdr_put_u32(x, 1);
		xdr_put_u32(x, NFS3_FSF_HOMOGENEOUS);
	}
	ds_op_reply(op);
}

/* Refuses a procedure that a data server does not need, with the result that RFC 1813 gives its
 * failure. */
static void nfs3_notsupp(struct ds_op *op)
{
	struct xdr_out *x = &op->op_call->c_reply;

	xdr_put_u32(x, NFS3ERR_NOTSUPP);
	switch (op->op_call->c_proc) {
	case NFS3_RENAME:
		nfs3_put_wcc(x, NULL);
		nfs3_put_wcc(x, NULL);
		break;
	case NFS3_LINK:
		nfs3_put_post_op(x, NULL);
		nfs3_put_wcc(x, NULL);
		break;
	case NFS3_CREATE:
	case NFS3_MKDIR:
	case NFS3_SYMLINK:
	case NFS3_MKNOD:
	case NFS3_REMOVE:
	case NFS3_RMDIR:
		nfs3_put_wcc(x, NULL);
		break;
	default: /* LOOKUP, ACCESS, READLINK, READDIR, READDIRPLUS, PATHCONF */
		nfs3_put_post_op(x, NULL);
	}
	ds_op_reply(op);
}

static void nfs3_null(struct ds_op *op)
{
	ds_op_reply(op);
}

/* ---- dispatch ---- */

static void (*const procs[NFS3_NPROCS])(struct ds_op *op) = {
	[NFS3_NULL] = nfs3_null,	  [NFS3_GETATTR] = nfs3_getattr,
	[NFS3_SETATTR] = ds_nfs3_setattr, [NFS3_READ] = ds_nfs3_read,
	[NFS3_WRITE] = ds_nfs3_write,	  [NFS3_COMMIT] = ds_nfs3_commit,
	[NFS3_FSSTAT] = nfs3_fsstat,	  [NFS3_FSINFO] = nfs3_fsinfo,
};

/* Every procedure but NULL begins with a file handle. True if its first byte says that it names an
 * exported file. */
static bool is_by_path(const struct rpc_call *call)
{
	struct xdr_in x = call->c_args;
	uint32_t len;
	const uint8_t *fh = xdr_get_opaque(&x, NFS3_FHSIZE, &len);

	return call->c_proc != NFS3_NULL && fh && path_is_fh(fh, len);
}

/* The RPC layer has already refused procedure numbers beyond the last. */
void ds_nfs3_dispatch(struct rpc_call *call, void *arg)
{
	struct ds *d = arg;
	struct ds_op *op;

	metric_add(m_ops[call->c_proc], 1);
	if (d->d_path && is_by_path(call)) {
		path_nfs3(d->d_path, call);
		return;
	}
	op = ds_op_new(d, call);
	if (!op) {
		rpc_reply_error(call, RPC_A_SYSTEM_ERR);
		return;
	}
	nfs3_trace_begin(op);
	if (procs[call->c_proc])
		procs[call->c_proc](op);
	else
		nfs3_notsupp(op);
	log_request = 0; /* more of its connection's requests may follow in this turn */
}
