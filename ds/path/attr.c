/* SPDX-License-Identifier: Apache-2.0 */
/* attr.c - GETATTR, SETATTR, ACCESS, READLINK, FSSTAT, FSINFO, PATHCONF. */
#include "ds/path/path_int.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

void path_getattr(struct path_call *c)
{
	struct nfs3_fattr a;

	path_fattr(c->pcl_x, &c->pcl_st, &a);
	xdr_put_u32(c->pcl_out, NFS3_OK);
	nfs3_put_fattr(c->pcl_out, &a);
}

/* ---- SETATTR ---- */

static int set_size(struct path_call *c, int fd, const struct stat *st, uint64_t size)
{
	char name[PATH_FD_LEN];
	int err, real, again;

	if (!S_ISREG(st->st_mode))
		return S_ISDIR(st->st_mode) ? -EISDIR : -EINVAL;
	if (size > INT64_MAX)
		return -EFBIG;
	err = path_may(c, fd, st, true);
	if (err)
		return err;
	/* Open the file as the server, as path_may has proved the right, and change it as the
	 * caller: then the kernel clears set-id bits and counts quotas. */
	path_as_server(c);
	real = open(path_of_fd(name, fd), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
	if (real < 0)
		err = -errno;
	/* In any case: the thread goes on as the caller or, if that fails, as nobody. */
	again = path_become(&c->pcl_ids);
	if (!err)
		err = again;
	if (!err && ftruncate(real, (off_t)size))
		err = -errno;
	if (real >= 0)
		close(real);
	return err;
}

static struct timespec time_arg(uint32_t how, const struct timespec *t)
{
	if (how == NFS3_SET_TO_CLIENT_TIME)
		return *t;
	return (struct timespec){.tv_nsec =
					 how == NFS3_SET_TO_SERVER_TIME ? UTIME_NOW : UTIME_OMIT};
}

/* Tries changes that may lack permission before those that cannot be undone. */
int path_apply(struct path_call *c, int fd, const struct stat *st, const struct nfs3_sattr *sa)
{
	bool mode = sa->sa_set & NFS3_SA_MODE, size = sa->sa_set & NFS3_SA_SIZE;
	uid_t uid = sa->sa_set & NFS3_SA_UID ? sa->sa_uid : (uid_t)-1;
	gid_t gid = sa->sa_set & NFS3_SA_GID ? sa->sa_gid : (gid_t)-1;
	char name[PATH_FD_LEN];
	int err = 0;

	if ((sa->sa_set & NFS3_SA_UID && uid == (uid_t)-1) ||
	    (sa->sa_set & NFS3_SA_GID && gid == (gid_t)-1))
		return -EINVAL;
	if (mode && S_ISLNK(st->st_mode))
		return -EOPNOTSUPP;
	if (sa->sa_set & (NFS3_SA_UID | NFS3_SA_GID) && fchownat(fd, "", uid, gid, AT_EMPTY_PATH))
		return -errno;
	if (mode && chmod(path_of_fd(name, fd), sa->sa_mode & 07777))
		return -errno;
	if (size)
		err = set_size(c, fd, st, sa->sa_size);
	/* The new size cleared the set-id bits. */
	if (!err && size && mode && sa->sa_mode & 06000 &&
	    chmod(path_of_fd(name, fd), sa->sa_mode & 07777))
		err = -errno;
	if (!err && sa->sa_set & (NFS3_SA_ATIME | NFS3_SA_MTIME)) {
		const struct timespec ts[2] = {
			time_arg(sa->sa_set & NFS3_SA_ATIME ? sa->sa_atime_how : NFS3_DONT_CHANGE,
				 &sa->sa_atime),
			time_arg(sa->sa_set & NFS3_SA_MTIME ? sa->sa_mtime_how : NFS3_DONT_CHANGE,
				 &sa->sa_mtime),
		};

		if (utimensat(fd, "", ts, AT_EMPTY_PATH))
			err = -errno;
	}
	return err;
}

/* True if the times are equal in the wire's 32 bits of seconds. */
static bool same_time(const struct timespec *wire, const struct timespec *t)
{
	return (uint32_t)wire->tv_sec == (uint32_t)t->tv_sec && wire->tv_nsec == t->tv_nsec;
}

void path_setattr(struct path_call *c)
{
	struct timespec ctime = {0};
	struct nfs3_sattr sa;
	enum nfsstat3 st;
	struct path_wcc w;
	bool guard;
	int err;

	nfs3_get_sattr(c->pcl_in, &sa);
	guard = xdr_get_bool(c->pcl_in);
	if (guard)
		nfs3_get_time(c->pcl_in, &ctime);
	if (c->pcl_in->bad)
		return;
	path_wcc_begin(c, &w, c->pcl_fd);
	if (!w.w_before) {
		st = NFS3ERR_IO;
	} else if (guard && !same_time(&ctime, &w.w_pre.st_ctim)) {
		st = NFS3ERR_NOT_SYNC;
	} else {
		err = path_become(&c->pcl_ids);
		st = err ? NFS3ERR_SERVERFAULT
			 : path_status(path_apply(c, c->pcl_fd, &w.w_pre, &sa));
		path_as_server(c);
	}
	path_wcc_end(&w);
	if (st == NFS3_OK)
		st = path_status(path_sync(c, c->pcl_fd));
	xdr_put_u32(c->pcl_out, st == NFS3ERR_ISDIR ? NFS3ERR_INVAL : st);
	path_wcc_put(c, &w);
}

/* ---- ACCESS ---- */

void path_access_proc(struct path_call *c)
{
	uint32_t want = xdr_get_u32(c->pcl_in), may = 0;
	bool dir = S_ISDIR(c->pcl_st.st_mode), r, w, x;

	if (c->pcl_in->bad || !path_as_caller(c))
		return;
	r = !path_access(c->pcl_fd, R_OK);
	w = !c->pcl_rule->r_ro && !path_access(c->pcl_fd, W_OK);
	x = !path_access(c->pcl_fd, X_OK);
	path_as_server(c);
	if (r)
		may |= NFS3_ACCESS_READ;
	if (w && (x || !dir))
		may |= NFS3_ACCESS_MODIFY | NFS3_ACCESS_EXTEND | (dir ? NFS3_ACCESS_DELETE : 0);
	if (x)
		may |= dir ? NFS3_ACCESS_LOOKUP : NFS3_ACCESS_EXECUTE;
	xdr_put_u32(c->pcl_out, NFS3_OK);
	path_put_stat(c, &c->pcl_st);
	xdr_put_u32(c->pcl_out, may & want);
}

void path_readlink(struct path_call *c)
{
	char text[PATH_MAX];
	ssize_t n = -1;

	if (S_ISLNK(c->pcl_st.st_mode))
		n = readlinkat(c->pcl_fd, "", text, sizeof(text));
	else
		errno = EINVAL;
	xdr_put_u32(c->pcl_out, n < 0 ? path_status(-errno) : NFS3_OK);
	path_put_post(c, c->pcl_fd);
	if (n >= 0)
		rpc_put_item(c->pcl_rpc, c->pcl_out, text, (uint32_t)n);
}

/* ---- the file system ---- */

void path_fsstat(struct path_call *c)
{
	struct xdr_out *x = c->pcl_out;
	struct statvfs v;
	int err = fstatvfs(c->pcl_fd, &v) ? -errno : 0;

	xdr_put_u32(x, path_status(err));
	path_put_stat(c, &c->pcl_st);
	if (!err)
		nfs3_put_fsstat(x, &v);
}

/* ext4 counts blocks in 32 bits. */
static uint64_t largest_file(int fd)
{
	struct statfs s;

	if (!fstatfs(fd, &s) && s.f_type == EXT4_SUPER_MAGIC && s.f_bsize > 0)
		return (uint64_t)UINT32_MAX * (uint64_t)s.f_bsize;
	return INT64_MAX;
}

void path_fsinfo(struct path_call *c)
{
	struct xdr_out *x = c->pcl_out;

	xdr_put_u32(x, NFS3_OK);
	path_put_stat(c, &c->pcl_st);
	for (int i = 0; i < 2; i++) { /* rtmax, rtpref, rtmult, then the same for writes */
		xdr_put_u32(x, DS_MAX_IO);
		xdr_put_u32(x, DS_MAX_IO);
		xdr_put_u32(x, DS_PAGE);
	}
	xdr_put_u32(x, 64 * 1024); /* dtpref */
	xdr_put_u64(x, largest_file(c->pcl_fd));
	xdr_put_u32(x, 0); /* time_delta: 1 ns */
	xdr_put_u32(x, 1);
	xdr_put_u32(x,
		    NFS3_FSF_LINK | NFS3_FSF_SYMLINK | NFS3_FSF_HOMOGENEOUS | NFS3_FSF_CANSETTIME);
}

void path_pathconf(struct path_call *c)
{
	struct xdr_out *x = c->pcl_out;
	long links = fpathconf(c->pcl_x->x_fd, _PC_LINK_MAX),
	     name = fpathconf(c->pcl_x->x_fd, _PC_NAME_MAX);

	xdr_put_u32(x, NFS3_OK);
	path_put_stat(c, &c->pcl_st);
	xdr_put_u32(x, links > 0 && links < UINT32_MAX ? (uint32_t)links : UINT32_MAX);
	xdr_put_u32(x, name > 0 && name < NAME_MAX ? (uint32_t)name : NAME_MAX);
	xdr_put_bool(x, true);	/* no_trunc */
	xdr_put_bool(x, true);	/* chown_restricted */
	xdr_put_bool(x, false); /* case_insensitive */
	xdr_put_bool(x, true);	/* case_preserving */
}
