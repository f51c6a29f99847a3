/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nfs3.h - NFS version 3 (RFC 1813): numbers, and the structures that both sides put and get. Names
 * are the RFC's, with the prefix NFS3. A decoder that fails leaves xdr_in.bad set.
 */
#ifndef PROTO_NFS3_H
#define PROTO_NFS3_H
#include "proto/xdr.h"
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <time.h>

#define NFS3_PROGRAM	    100003u
#define NFS3_VERSION	    3u
#define NFS3_FHSIZE	    64
#define NFS3_COOKIEVERFSIZE 8
#define NFS3_CREATEVERFSIZE 8
#define NFS3_WRITEVERFSIZE  8

enum nfs3_proc {
	NFS3_NULL,
	NFS3_GETATTR,
	NFS3_SETATTR,
	NFS3_LOOKUP,
	NFS3_ACCESS,
	NFS3_READLINK,
	NFS3_READ,
	NFS3_WRITE,
	NFS3_CREATE,
	NFS3_MKDIR,
	NFS3_SYMLINK,
	NFS3_MKNOD,
	NFS3_REMOVE,
	NFS3_RMDIR,
	NFS3_RENAME,
	NFS3_LINK,
	NFS3_READDIR,
	NFS3_READDIRPLUS,
	NFS3_FSSTAT,
	NFS3_FSINFO,
	NFS3_PATHCONF,
	NFS3_COMMIT,
	NFS3_NPROCS
};

/* RFC 1813 section 2.6 */
enum nfsstat3 {
	NFS3_OK = 0,
	NFS3ERR_PERM = 1,
	NFS3ERR_NOENT = 2,
	NFS3ERR_IO = 5,
	NFS3ERR_NXIO = 6,
	NFS3ERR_ACCES = 13,
	NFS3ERR_EXIST = 17,
	NFS3ERR_XDEV = 18,
	NFS3ERR_NODEV = 19,
	NFS3ERR_NOTDIR = 20,
	NFS3ERR_ISDIR = 21,
	NFS3ERR_INVAL = 22,
	NFS3ERR_FBIG = 27,
	NFS3ERR_NOSPC = 28,
	NFS3ERR_ROFS = 30,
	NFS3ERR_MLINK = 31,
	NFS3ERR_NAMETOOLONG = 63,
	NFS3ERR_NOTEMPTY = 66,
	NFS3ERR_DQUOT = 69,
	NFS3ERR_STALE = 70,
	NFS3ERR_REMOTE = 71,
	NFS3ERR_BADHANDLE = 10001,
	NFS3ERR_NOT_SYNC = 10002,
	NFS3ERR_BAD_COOKIE = 10003,
	NFS3ERR_NOTSUPP = 10004,
	NFS3ERR_TOOSMALL = 10005,
	NFS3ERR_SERVERFAULT = 10006,
	NFS3ERR_BADTYPE = 10007,
	NFS3ERR_JUKEBOX = 10008
};

enum ftype3 { NF3REG = 1, NF3DIR, NF3BLK, NF3CHR, NF3LNK, NF3SOCK, NF3FIFO };
enum stable_how { NFS3_UNSTABLE, NFS3_DATA_SYNC, NFS3_FILE_SYNC };
enum time_how { NFS3_DONT_CHANGE, NFS3_SET_TO_SERVER_TIME, NFS3_SET_TO_CLIENT_TIME };
enum createmode3 { NFS3_UNCHECKED, NFS3_GUARDED, NFS3_EXCLUSIVE };
enum {
	NFS3_ACCESS_READ = 1,
	NFS3_ACCESS_LOOKUP = 2,
	NFS3_ACCESS_MODIFY = 4,
	NFS3_ACCESS_EXTEND = 8,
	NFS3_ACCESS_DELETE = 16,
	NFS3_ACCESS_EXECUTE = 32
};
enum {
	NFS3_FSF_LINK = 1,
	NFS3_FSF_SYMLINK = 2,
	NFS3_FSF_HOMOGENEOUS = 8,
	NFS3_FSF_CANSETTIME = 16
};

/* fattr3, RFC 1813 section 2.5. 84 bytes on the wire. */
#define NFS3_FATTR_LEN 84
struct nfs3_fattr {
	uint32_t fa_type, fa_mode, fa_nlink, fa_uid, fa_gid;
	uint64_t fa_size, fa_used;
	uint32_t fa_rdev_major, fa_rdev_minor;
	uint64_t fa_fsid, fa_fileid;
	struct timespec fa_atime, fa_mtime, fa_ctime;
};

/* A time after 2106 or before 1970 does not fit: it is truncated, not refused. */
static inline void nfs3_put_time(struct xdr_out *x, const struct timespec *t)
{
	xdr_put_u32(x, (uint32_t)t->tv_sec);
	xdr_put_u32(x, (uint32_t)t->tv_nsec);
}
static inline void nfs3_get_time(struct xdr_in *x, struct timespec *t)
{
	t->tv_sec = xdr_get_u32(x);
	t->tv_nsec = xdr_get_u32(x);
	if (t->tv_nsec >= 1000000000)
		x->bad = true;
}

static inline void nfs3_put_fattr(struct xdr_out *x, const struct nfs3_fattr *a)
{
	xdr_put_u32(x, a->fa_type);
	xdr_put_u32(x, a->fa_mode);
	xdr_put_u32(x, a->fa_nlink);
	xdr_put_u32(x, a->fa_uid);
	xdr_put_u32(x, a->fa_gid);
	xdr_put_u64(x, a->fa_size);
	xdr_put_u64(x, a->fa_used);
	xdr_put_u32(x, a->fa_rdev_major);
	xdr_put_u32(x, a->fa_rdev_minor);
	xdr_put_u64(x, a->fa_fsid);
	xdr_put_u64(x, a->fa_fileid);
	nfs3_put_time(x, &a->fa_atime);
	nfs3_put_time(x, &a->fa_mtime);
	nfs3_put_time(x, &a->fa_ctime);
}
static inline void nfs3_get_fattr(struct xdr_in *x, struct nfs3_fattr *a)
{
	a->fa_type = xdr_get_u32(x);
	a->fa_mode = xdr_get_u32(x);
	a->fa_nlink = xdr_get_u32(x);
	a->fa_uid = xdr_get_u32(x);
	a->fa_gid = xdr_get_u32(x);
	a->fa_size = xdr_get_u64(x);
	a->fa_used = xdr_get_u64(x);
	a->fa_rdev_major = xdr_get_u32(x);
	a->fa_rdev_minor = xdr_get_u32(x);
	a->fa_fsid = xdr_get_u64(x);
	a->fa_fileid = xdr_get_u64(x);
	nfs3_get_time(x, &a->fa_atime);
	nfs3_get_time(x, &a->fa_mtime);
	nfs3_get_time(x, &a->fa_ctime);
	if (a->fa_type < NF3REG || a->fa_type > NF3FIFO)
		x->bad = true;
}

/* post_op_attr; a NULL: no attributes */
static inline void nfs3_put_post_op(struct xdr_out *x, const struct nfs3_fattr *a)
{
	xdr_put_bool(x, a != NULL);
	if (a)
		nfs3_put_fattr(x, a);
}
/* True: *a has the attributes. */
static inline bool nfs3_get_post_op(struct xdr_in *x, struct nfs3_fattr *a)
{
	if (!xdr_get_bool(x))
		return false;
	nfs3_get_fattr(x, a);
	return !x->bad;
}
/* wcc_data without attributes before */
static inline void nfs3_put_wcc(struct xdr_out *x, const struct nfs3_fattr *after)
{
	xdr_put_bool(x, false);
	nfs3_put_post_op(x, after);
}
/* wcc_data; before NULL: not known */
static inline void nfs3_put_wcc_data(struct xdr_out *x, const struct nfs3_fattr *before,
				     const struct nfs3_fattr *after)
{
	xdr_put_bool(x, before != NULL);
	if (before) { /* wcc_attr */
		xdr_put_u64(x, before->fa_size);
		nfs3_put_time(x, &before->fa_mtime);
		nfs3_put_time(x, &before->fa_ctime);
	}
	nfs3_put_post_op(x, after);
}
/* wcc_data; skips the attributes before. True: *a has the attributes after. */
static inline bool nfs3_get_wcc(struct xdr_in *x, struct nfs3_fattr *a)
{
	if (xdr_get_bool(x))
		xdr_take(x, 8 + 8 + 8); /* wcc_attr: size, mtime, ctime */
	return nfs3_get_post_op(x, a);
}

/* sattr3; sa_set has a bit for each field that is set */
enum {
	NFS3_SA_MODE = 1,
	NFS3_SA_UID = 2,
	NFS3_SA_GID = 4,
	NFS3_SA_SIZE = 8,
	NFS3_SA_ATIME = 16,
	NFS3_SA_MTIME = 32
};
struct nfs3_sattr {
	uint32_t sa_set;
	uint32_t sa_mode, sa_uid, sa_gid;
	uint64_t sa_size;
	uint32_t sa_atime_how, sa_mtime_how; /* enum time_how */
	struct timespec sa_atime, sa_mtime;
};
static inline void nfs3_get_sattr(struct xdr_in *x, struct nfs3_sattr *s)
{
	memset(s, 0, sizeof(*s));
	if (xdr_get_bool(x)) {
		s->sa_set |= NFS3_SA_MODE;
		s->sa_mode = xdr_get_u32(x);
	}
	if (xdr_get_bool(x)) {
		s->sa_set |= NFS3_SA_UID;
		s->sa_uid = xdr_get_u32(x);
	}
	if (xdr_get_bool(x)) {
		s->sa_set |= NFS3_SA_GID;
		s->sa_gid = xdr_get_u32(x);
	}
	if (xdr_get_bool(x)) {
		s->sa_set |= NFS3_SA_SIZE;
		s->sa_size = xdr_get_u64(x);
	}
	s->sa_atime_how = xdr_get_u32(x);
	if (s->sa_atime_how == NFS3_SET_TO_CLIENT_TIME)
		nfs3_get_time(x, &s->sa_atime);
	s->sa_mtime_how = xdr_get_u32(x);
	if (s->sa_mtime_how == NFS3_SET_TO_CLIENT_TIME)
		nfs3_get_time(x, &s->sa_mtime);
	if (s->sa_atime_how > NFS3_SET_TO_CLIENT_TIME || s->sa_mtime_how > NFS3_SET_TO_CLIENT_TIME)
		x->bad = true;
	if (s->sa_atime_how)
		s->sa_set |= NFS3_SA_ATIME;
	if (s->sa_mtime_how)
		s->sa_set |= NFS3_SA_MTIME;
}
static inline void nfs3_put_sattr(struct xdr_out *x, const struct nfs3_sattr *s)
{
	xdr_put_bool(x, s->sa_set & NFS3_SA_MODE);
	if (s->sa_set & NFS3_SA_MODE)
		xdr_put_u32(x, s->sa_mode);
	xdr_put_bool(x, s->sa_set & NFS3_SA_UID);
	if (s->sa_set & NFS3_SA_UID)
		xdr_put_u32(x, s->sa_uid);
	xdr_put_bool(x, s->sa_set & NFS3_SA_GID);
	if (s->sa_set & NFS3_SA_GID)
		xdr_put_u32(x, s->sa_gid);
	xdr_put_bool(x, s->sa_set & NFS3_SA_SIZE);
	if (s->sa_set & NFS3_SA_SIZE)
		xdr_put_u64(x, s->sa_size);
	xdr_put_u32(x, s->sa_set & NFS3_SA_ATIME ? s->sa_atime_how : NFS3_DONT_CHANGE);
	if (s->sa_set & NFS3_SA_ATIME && s->sa_atime_how == NFS3_SET_TO_CLIENT_TIME)
		nfs3_put_time(x, &s->sa_atime);
	xdr_put_u32(x, s->sa_set & NFS3_SA_MTIME ? s->sa_mtime_how : NFS3_DONT_CHANGE);
	if (s->sa_set & NFS3_SA_MTIME && s->sa_mtime_how == NFS3_SET_TO_CLIENT_TIME)
		nfs3_put_time(x, &s->sa_mtime);
}
/* The part of FSSTAT3resok after the attributes (section 3.3.18). */
static inline void nfs3_put_fsstat(struct xdr_out *x, const struct statvfs *v)
{
	xdr_put_u64(x, (uint64_t)v->f_blocks * v->f_frsize);
	xdr_put_u64(x, (uint64_t)v->f_bfree * v->f_frsize);
	xdr_put_u64(x, (uint64_t)v->f_bavail * v->f_frsize);
	xdr_put_u64(x, v->f_files);
	xdr_put_u64(x, v->f_ffree);
	xdr_put_u64(x, v->f_favail);
	xdr_put_u32(x, 0); /* invarsec */
}
#endif
