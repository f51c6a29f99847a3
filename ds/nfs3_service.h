/* SPDX-License-Identifier: Apache-2.0 */
/* nfs3_service.h - inside the NFSv3 service: a call in progress. */
#ifndef DS_NFS3_SERVICE_H
#define DS_NFS3_SERVICE_H
#include "ds/ds.h"

struct ds_op {
	struct ds *op_ds;
	struct rpc_call *op_call;
	uint64_t op_start_ns, op_request; /* CLOCK_MONOTONIC; its id (common/trace.h) */
	struct cap op_cap;
	struct ds_hold *op_hold; /* NULL: no object, reads as empty */
	struct ds_obj *op_obj;	 /* the object of op_hold, or NULL */
	uint64_t op_off;
	uint32_t op_count;
	uint32_t op_stable;
	bool op_bracket; /* between ds_write_begin and ds_write_end */
	unsigned op_token;
	uint64_t op_verf;
	union { /* used one after the other */
		struct ds_rw op_rw;
		struct ds_sync op_sync;
		struct ds_buf_wait op_wait;
		struct ds_eof op_eof;
		struct {
			struct ds_job sz_job;
			struct loop_msg sz_msg;
			uint64_t sz_size;
			int sz_err;
		} op_size;
	};
	struct ds_buf *op_buf;
	int op_got;
};

extern struct metric *ds_m_read_bytes, *ds_m_write_bytes, *ds_m_copied_bytes;

enum nfsstat3 ds_nfs3_errno(int err);
/* ds_fh_range: NFS3ERR_INVAL where a client's READ or WRITE of these bytes does not belong to this
 * object.
 * ds_fh_check: checks a file handle: shape, MAC, file system, lease, barred client, rights. */
enum nfsstat3 ds_fh_range(struct ds *d, const struct cap *cap, uint64_t off, uint32_t count);
enum nfsstat3 ds_fh_check(struct ds *d, const uint8_t *fh, uint32_t len, unsigned rights,
			  struct cap *cap);
/* On the call's loop. The object of a checked capability; checks its epoch and whether it is
 * deleted. *out NULL: the object does not exist. */
enum nfsstat3 ds_fh_object(struct ds *d, const struct cap *cap, bool create, struct ds_hold **out);
/* As ds_fh_object, for op_cap, into op_hold and op_obj. */
enum nfsstat3 ds_op_object(struct ds_op *op, bool create);
void ds_fattr(const struct cap *cap, const struct ds_obj *o, struct nfs3_fattr *a);

struct ds_op *ds_op_new(struct ds *d, struct rpc_call *call);
/* Frees the op and sends its reply as it stands. */
void ds_op_reply(struct ds_op *op);
/* Replies that the arguments are malformed, and frees the op. */
void ds_op_garbage(struct ds_op *op);

const char *ds_nfs3_proc_name(unsigned proc);
/* A call whose arguments are malformed, where a trace has the status of others. */
#define DS_TRACE_GARBAGE 0xffffu

void ds_nfs3_read(struct ds_op *op);
void ds_nfs3_write(struct ds_op *op);
void ds_nfs3_commit(struct ds_op *op);
void ds_nfs3_setattr(struct ds_op *op);
#endif
