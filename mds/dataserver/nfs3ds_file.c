/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nfs3ds_file.c - makes one object on an NFSv3 data server. The steps: CREATE, which also finds a
 * file that an earlier try made; SETATTR of owners, mode and times; GETATTR; COMMIT. RFC 1813 has
 * servers put CREATE and SETATTR on stable storage before they answer. Not every server does, but
 * all sync a file on COMMIT.
 */
#include "mds/dataserver/nfs3ds.h"
#include <errno.h>
#include <urcu/compiler.h>

static void file_end(struct nfs3ds_file *f, int err, const char *what)
{
	f->gf_err = err;
	f->gf_what = what;
	f->gf_done(f);
}

static void nfs3ds_file_committed(struct nfs3ds_rpc *r)
{
	struct nfs3ds_file *f = caa_container_of(r, struct nfs3ds_file, gf_rpc);

	file_end(f, nfs3ds_errno(r), "COMMIT");
}

/* A server that squashes root answers OK and does nothing, or refuses. */
static void nfs3ds_file_looked(struct nfs3ds_rpc *r)
{
	struct nfs3ds_file *f = caa_container_of(r, struct nfs3ds_file, gf_rpc);
	const struct nfs3_fattr *a = &r->gr_attr;
	int err = nfs3ds_errno(r);

	if (!err && (a->fa_uid != f->gf_uid || a->fa_gid != f->gf_gid ||
		     (a->fa_mode & 07777) != NFS3DS_MODE || a->fa_size || a->fa_type != NF3REG))
		err = -EPERM;
	if (err) {
		file_end(f, err, err == -EPERM ? "SETATTR" : "GETATTR");
		return;
	}
	r->gr_done = nfs3ds_file_committed;
	nfs3ds_commit(f->gf_client, r, &f->gf_fh);
}

static void nfs3ds_file_owned(struct nfs3ds_rpc *r)
{
	struct nfs3ds_file *f = caa_container_of(r, struct nfs3ds_file, gf_rpc);

	if (nfs3ds_errno(r)) {
		file_end(f, nfs3ds_errno(r), "SETATTR");
		return;
	}
	r->gr_done = nfs3ds_file_looked;
	nfs3ds_getattr(f->gf_client, r, &f->gf_fh);
}

/* An object that was never written has time 0, because its mtime is its write count
 * (docs/generic.md). */
static void own(struct nfs3ds_file *f)
{
	struct nfs3_sattr sa = {
		.sa_set = NFS3_SA_MODE | NFS3_SA_UID | NFS3_SA_GID | NFS3_SA_SIZE | NFS3_SA_MTIME,
		.sa_mode = NFS3DS_MODE,
		.sa_uid = f->gf_uid,
		.sa_gid = f->gf_gid,
		.sa_mtime_how = NFS3_SET_TO_CLIENT_TIME,
	};

	f->gf_rpc.gr_done = nfs3ds_file_owned;
	nfs3ds_setattr(f->gf_client, &f->gf_rpc, &f->gf_fh, &sa);
}

static void nfs3ds_file_found(struct nfs3ds_rpc *r)
{
	struct nfs3ds_file *f = caa_container_of(r, struct nfs3ds_file, gf_rpc);

	if (nfs3ds_errno(r)) {
		file_end(f, nfs3ds_errno(r), "LOOKUP");
		return;
	}
	f->gf_fh = r->gr_fh;
	own(f);
}

static void nfs3ds_file_created(struct nfs3ds_rpc *r)
{
	struct nfs3ds_file *f = caa_container_of(r, struct nfs3ds_file, gf_rpc);

	if (nfs3ds_errno(r)) {
		file_end(f, nfs3ds_errno(r), "CREATE");
	} else if (r->gr_fh.f_len) {
		f->gf_fh = r->gr_fh;
		own(f);
	} else {
		r->gr_done = nfs3ds_file_found;
		nfs3ds_lookup(f->gf_client, r, &f->gf_dir, f->gf_name);
	}
}

void nfs3ds_file_make(struct nfs3ds_file *f)
{
	struct nfs3_sattr sa = {.sa_set = NFS3_SA_MODE | NFS3_SA_SIZE, .sa_mode = 0600};

	f->gf_rpc.gr_done = nfs3ds_file_created;
	nfs3ds_create(f->gf_client, &f->gf_rpc, &f->gf_dir, f->gf_name, &sa);
}
