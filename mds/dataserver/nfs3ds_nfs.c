/* SPDX-License-Identifier: Apache-2.0 */
/* nfs3ds_nfs.c - the metadata server's own NFSv3 calls (RFC 1813) to NFSv3 data servers, as root
 * unless gr_uid says otherwise. See nfs3ds.h. */
#include "mds/dataserver/nfs3ds.h"
#include <errno.h>
#include <stdio.h>
#include <urcu/compiler.h>

static void nfs3ds_nfs_get_fh(struct xdr_in *x, struct nfs3ds_fh *fh)
{
	const uint8_t *p = xdr_get_opaque(x, NFS3_FHSIZE, &fh->f_len);

	if (!x->bad && !fh->f_len)
		x->bad = true;
	if (!x->bad)
		memcpy(fh->f_data, p, fh->f_len);
}

static void get_made(struct nfs3ds_rpc *r, struct xdr_in *x)
{
	struct nfs3_fattr dir;

	if (xdr_get_bool(x))
		nfs3ds_nfs_get_fh(x, &r->gr_fh);
	r->gr_has_attr = nfs3_get_post_op(x, &r->gr_attr);
	nfs3_get_wcc(x, &dir);
}

static void get_fsstat(struct nfs3ds_rpc *r, struct xdr_in *x)
{
	r->gr_has_attr = nfs3_get_post_op(x, &r->gr_attr);
	r->gr_total = xdr_get_u64(x);
	xdr_get_u64(x); /* fbytes */
	r->gr_avail = xdr_get_u64(x);
	xdr_take(x, 3 * 8 + 4);
}

static void get_fsinfo(struct nfs3ds_rpc *r, struct xdr_in *x)
{
	r->gr_has_attr = nfs3_get_post_op(x, &r->gr_attr);
	r->gr_rtmax = xdr_get_u32(x);
	xdr_take(x, 2 * 4);
	r->gr_wtmax = xdr_get_u32(x);
	xdr_take(x, 3 * 4 + 8 + 8 + 4);
}

/* Decodes what follows NFS3_OK. */
static void get_results(struct nfs3ds_rpc *r, struct xdr_in *x)
{
	switch (r->gr_proc) {
	case NFS3_GETATTR:
		nfs3_get_fattr(x, &r->gr_attr);
		r->gr_has_attr = !x->bad;
		return;
	case NFS3_LOOKUP:
		nfs3ds_nfs_get_fh(x, &r->gr_fh);
		r->gr_has_attr = nfs3_get_post_op(x, &r->gr_attr);
		return;
	case NFS3_CREATE:
	case NFS3_MKDIR:
		get_made(r, x);
		return;
	case NFS3_FSSTAT:
		get_fsstat(r, x);
		return;
	case NFS3_FSINFO:
		get_fsinfo(r, x);
		return;
	case NFS3_COMMIT:
		r->gr_has_attr = nfs3_get_wcc(x, &r->gr_attr);
		xdr_get_u64(x);
		return;
	default: /* SETATTR, REMOVE, RMDIR */
		r->gr_has_attr = nfs3_get_wcc(x, &r->gr_attr);
	}
}

static void nfs3ds_nfs_reply(struct rpc_req *q, int err, struct xdr_in *x)
{
	struct nfs3ds_rpc *r = caa_container_of(q, struct nfs3ds_rpc, gr_req);

	r->gr_err = err;
	if (!err) {
		r->gr_status = xdr_get_u32(x);
		if (!x->bad && r->gr_status == NFS3_OK)
			get_results(r, x);
		if (x->bad)
			r->gr_err = -EPROTO;
	}
	r->gr_done(r);
}

static struct xdr_out *nfs3ds_nfs_begin(struct nfs3ds_rpc *r, uint32_t proc,
					const struct nfs3ds_fh *fh)
{
	const struct rpc_cred cred = {
		.rc_flavor = RPC_AUTH_SYS, .rc_uid = r->gr_uid, .rc_gid = r->gr_gid};

	r->gr_proc = proc;
	r->gr_err = 0;
	r->gr_status = 0;
	r->gr_fh.f_len = 0;
	r->gr_has_attr = false;
	rpc_req_init(&r->gr_req, NFS3_PROGRAM, NFS3_VERSION, proc, &cred, 512, nfs3ds_nfs_reply);
	xdr_put_opaque(&r->gr_req.q_args, fh->f_data, fh->f_len);
	return &r->gr_req.q_args;
}

static void go(struct rpc_client *cl, struct nfs3ds_rpc *r)
{
	rpc_client_send(cl, &r->gr_req, NFS3DS_RPC_MS);
}

void nfs3ds_getattr(struct rpc_client *cl, struct nfs3ds_rpc *r, const struct nfs3ds_fh *fh)
{
	nfs3ds_nfs_begin(r, NFS3_GETATTR, fh);
	go(cl, r);
}

void nfs3ds_setattr(struct rpc_client *cl, struct nfs3ds_rpc *r, const struct nfs3ds_fh *fh,
		    const struct nfs3_sattr *sa)
{
	struct xdr_out *x = nfs3ds_nfs_begin(r, NFS3_SETATTR, fh);

	nfs3_put_sattr(x, sa);
	xdr_put_bool(x, r->gr_guarded);
	if (r->gr_guarded) {
		xdr_put_u32(x, (uint32_t)r->gr_guard.tv_sec);
		xdr_put_u32(x, (uint32_t)r->gr_guard.tv_nsec);
	}
	go(cl, r);
}

static struct xdr_out *named(struct nfs3ds_rpc *r, uint32_t proc, const struct nfs3ds_fh *dir,
			     const char *name)
{
	struct xdr_out *x = nfs3ds_nfs_begin(r, proc, dir);

	xdr_put_opaque(x, name, (uint32_t)strlen(name));
	return x;
}

void nfs3ds_lookup(struct rpc_client *cl, struct nfs3ds_rpc *r, const struct nfs3ds_fh *dir,
		   const char *name)
{
	named(r, NFS3_LOOKUP, dir, name);
	go(cl, r);
}

void nfs3ds_create(struct rpc_client *cl, struct nfs3ds_rpc *r, const struct nfs3ds_fh *dir,
		   const char *name, const struct nfs3_sattr *sa)
{
	struct xdr_out *x = named(r, NFS3_CREATE, dir, name);

	xdr_put_u32(x, NFS3_UNCHECKED);
	nfs3_put_sattr(x, sa);
	go(cl, r);
}

void nfs3ds_mkdir(struct rpc_client *cl, struct nfs3ds_rpc *r, const struct nfs3ds_fh *dir,
		  const char *name)
{
	struct nfs3_sattr sa = {.sa_set = NFS3_SA_MODE, .sa_mode = 0700};

	nfs3_put_sattr(named(r, NFS3_MKDIR, dir, name), &sa);
	go(cl, r);
}

void nfs3ds_remove(struct rpc_client *cl, struct nfs3ds_rpc *r, const struct nfs3ds_fh *dir,
		   const char *name)
{
	named(r, NFS3_REMOVE, dir, name);
	go(cl, r);
}

void nfs3ds_rmdir(struct rpc_client *cl, struct nfs3ds_rpc *r, const struct nfs3ds_fh *dir,
		  const char *name)
{
	named(r, NFS3_RMDIR, dir, name);
	go(cl, r);
}

void nfs3ds_commit(struct rpc_client *cl, struct nfs3ds_rpc *r, const struct nfs3ds_fh *fh)
{
	struct xdr_out *x = nfs3ds_nfs_begin(r, NFS3_COMMIT, fh);

	xdr_put_u64(x, 0);
	xdr_put_u32(x, 0);
	go(cl, r);
}

void nfs3ds_fsstat(struct rpc_client *cl, struct nfs3ds_rpc *r, const struct nfs3ds_fh *fh)
{
	nfs3ds_nfs_begin(r, NFS3_FSSTAT, fh);
	go(cl, r);
}

void nfs3ds_fsinfo(struct rpc_client *cl, struct nfs3ds_rpc *r, const struct nfs3ds_fh *fh)
{
	nfs3ds_nfs_begin(r, NFS3_FSINFO, fh);
	go(cl, r);
}

/* ---- failures ---- */

static const struct {
	uint32_t status;
	int err;
	const char *why;
} statuses[] = {
	{NFS3ERR_PERM, -EPERM, "not permitted"},
	{NFS3ERR_NOENT, -ENOENT, "no such name"},
	{NFS3ERR_IO, -EIO, "I/O error"},
	{NFS3ERR_ACCES, -EPERM, "access denied"},
	{NFS3ERR_EXIST, -EEXIST, "already exists"},
	{NFS3ERR_NOTDIR, -ENOTDIR, "not a directory"},
	{NFS3ERR_NOSPC, -ENOSPC, "no space"},
	{NFS3ERR_DQUOT, -ENOSPC, "over quota"},
	{NFS3ERR_FBIG, -EFBIG, "file too large"},
	{NFS3ERR_ROFS, -EROFS, "read-only file system"},
	{NFS3ERR_STALE, -ESTALE, "stale file handle"},
	{NFS3ERR_BADHANDLE, -ESTALE, "bad file handle"},
	{NFS3ERR_JUKEBOX, -EAGAIN, "try again later"},
	{NFS3ERR_NOTSUPP, -EOPNOTSUPP, "not supported"},
	{NFS3ERR_SERVERFAULT, -EIO, "server fault"},
	{NFS3ERR_NOT_SYNC, -EBUSY, "it keeps changing"},
};

int nfs3ds_errno(const struct nfs3ds_rpc *r)
{
	if (r->gr_err || r->gr_status == NFS3_OK)
		return r->gr_err;
	for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
		if (statuses[i].status == r->gr_status)
			return statuses[i].err;
	return -EIO;
}

bool nfs3ds_sized(const struct nfs3ds_rpc *r)
{
	return !nfs3ds_errno(r) && r->gr_attr.fa_size <= DS_REG_GEN_SIZE_MAX;
}

const char *nfs3ds_why(const struct nfs3ds_rpc *r)
{
	if (r->gr_err == -EPROTO)
		return "the server rejected the call, or its answer is malformed";
	if (r->gr_err)
		return strerror(-r->gr_err);
	for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
		if (statuses[i].status == r->gr_status)
			return statuses[i].why;
	return "unknown error";
}
