/* SPDX-License-Identifier: Apache-2.0 */
/* util.c - shared by the procedures: status, attributes, names, permissions, durability. */
#include "base/log.h"
#include "ds/path/path_int.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

enum nfsstat3 path_status(int err)
{
	switch (-err) {
	case 0:
		return NFS3_OK;
	case EPERM:
		return NFS3ERR_PERM;
	case ENOENT:
		return NFS3ERR_NOENT;
	case ENXIO:
		return NFS3ERR_NXIO;
	case EACCES:
		return NFS3ERR_ACCES;
	case EBUSY:   /* another file system is mounted on it */
	case ETXTBSY: /* this machine executes it */
		return NFS3ERR_ACCES;
	case EEXIST:
		return NFS3ERR_EXIST;
	case EXDEV:
		return NFS3ERR_XDEV;
	case ENODEV:
		return NFS3ERR_NODEV;
	case ENOTDIR:
		return NFS3ERR_NOTDIR;
	case EISDIR:
		return NFS3ERR_ISDIR;
	case EINVAL:
		return NFS3ERR_INVAL;
	case EFBIG:
		return NFS3ERR_FBIG;
	case ENOSPC:
		return NFS3ERR_NOSPC;
	case EROFS:
		return NFS3ERR_ROFS;
	case EMLINK:
		return NFS3ERR_MLINK;
	case ENAMETOOLONG:
		return NFS3ERR_NAMETOOLONG;
	case ENOTEMPTY:
		return NFS3ERR_NOTEMPTY;
	case EDQUOT:
		return NFS3ERR_DQUOT;
	case ESTALE:
		return NFS3ERR_STALE;
	case EOPNOTSUPP:
		return NFS3ERR_NOTSUPP;
	case ENOMEM:
	case EMFILE:
	case ENFILE:
	case EAGAIN:
		return NFS3ERR_JUKEBOX;
	default:
		return NFS3ERR_IO;
	}
}

/* ---- attributes ---- */

static uint32_t type_of(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFDIR:
		return NF3DIR;
	case S_IFBLK:
		return NF3BLK;
	case S_IFCHR:
		return NF3CHR;
	case S_IFLNK:
		return NF3LNK;
	case S_IFSOCK:
		return NF3SOCK;
	case S_IFIFO:
		return NF3FIFO;
	default:
		return NF3REG;
	}
}

void path_fattr(const struct path_export *x, const struct stat *st, struct nfs3_fattr *a)
{
	*a = (struct nfs3_fattr){
		.fa_type = type_of(st->st_mode),
		.fa_mode = st->st_mode & 07777,
		.fa_nlink = (uint32_t)st->st_nlink,
		.fa_uid = st->st_uid,
		.fa_gid = st->st_gid,
		.fa_size = (uint64_t)st->st_size,
		.fa_used = (uint64_t)st->st_blocks * 512,
		.fa_rdev_major = major(st->st_rdev),
		.fa_rdev_minor = minor(st->st_rdev),
		.fa_fsid = x->x_fsid,
		.fa_fileid = st->st_ino,
		.fa_atime = st->st_atim,
		.fa_mtime = st->st_mtim,
		.fa_ctime = st->st_ctim,
	};
}

void path_put_stat(struct path_call *c, const struct stat *st)
{
	struct nfs3_fattr a;

	path_fattr(c->pcl_x, st, &a);
	nfs3_put_post_op(c->pcl_out, &a);
}

void path_put_post(struct path_call *c, int fd)
{
	struct stat st;

	if (fd >= 0 && !fstat(fd, &st))
		path_put_stat(c, &st);
	else
		nfs3_put_post_op(c->pcl_out, NULL);
}

static unsigned lock_of(const struct stat *st)
{
	return hash_u64(st->st_ino ^ (uint64_t)st->st_dev << 40) % PATH_LOCKS;
}

static void wcc_lock(struct path_wcc *w)
{
	pthread_mutex_lock(&w->w_path->p_wcc[w->w_lock]);
	w->w_locked = true;
}

static void wcc_init(struct path_call *c, struct path_wcc *w, int fd)
{
	*w = (struct path_wcc){.w_path = c->pcl_path, .w_fd = fd};
	w->w_before = !fstat(fd, &w->w_pre);
	w->w_lock = w->w_before ? lock_of(&w->w_pre) : 0;
}

void path_wcc_begin(struct path_call *c, struct path_wcc *w, int fd)
{
	wcc_init(c, w, fd);
	wcc_lock(w);
	w->w_before = !fstat(fd, &w->w_pre);
}

void path_wcc_begin2(struct path_call *c, struct path_wcc *a, int afd, struct path_wcc *b, int bfd)
{
	wcc_init(c, a, afd);
	wcc_init(c, b, bfd);
	if (a->w_lock <= b->w_lock)
		wcc_lock(a);
	if (a->w_lock != b->w_lock)
		wcc_lock(b);
	if (a->w_lock > b->w_lock)
		wcc_lock(a);
	a->w_before = !fstat(afd, &a->w_pre);
	b->w_before = !fstat(bfd, &b->w_pre);
}

static void wcc_unlock(struct path_wcc *w)
{
	if (w->w_locked)
		pthread_mutex_unlock(&w->w_path->p_wcc[w->w_lock]);
	w->w_locked = false;
}

void path_wcc_end(struct path_wcc *w)
{
	w->w_after = !fstat(w->w_fd, &w->w_post);
	wcc_unlock(w);
}

void path_wcc_end2(struct path_wcc *a, struct path_wcc *b)
{
	a->w_after = !fstat(a->w_fd, &a->w_post);
	b->w_after = !fstat(b->w_fd, &b->w_post);
	wcc_unlock(a);
	wcc_unlock(b);
}

void path_wcc_put(struct path_call *c, const struct path_wcc *w)
{
	struct nfs3_fattr before, after;

	if (w->w_before)
		path_fattr(c->pcl_x, &w->w_pre, &before);
	if (w->w_after)
		path_fattr(c->pcl_x, &w->w_post, &after);
	nfs3_put_wcc_data(c->pcl_out, w->w_before ? &before : NULL, w->w_after ? &after : NULL);
}

/* ---- names and descriptors ---- */

void path_get_name(struct path_call *c, struct path_name *n)
{
	uint32_t len;
	const uint8_t *p = xdr_get_opaque(c->pcl_in, UINT32_MAX, &len);

	n->n_status = NFS3_OK;
	n->n_name[0] = 0;
	if (!p)
		return; /* not valid XDR */
	if (len > NAME_MAX) {
		n->n_status = NFS3ERR_NAMETOOLONG;
		return;
	}
	/* RFC 1813 section 3.2 */
	if (!len || memchr(p, 0, len) || memchr(p, '/', len)) {
		n->n_status = NFS3ERR_ACCES;
		return;
	}
	memcpy(n->n_name, p, len);
	n->n_name[len] = 0;
}

int path_open_at(int dirfd, const char *name)
{
	struct open_how how = {.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC,
			       .resolve = RESOLVE_NO_XDEV | RESOLVE_NO_MAGICLINKS};
	long fd = syscall(SYS_openat2, dirfd, name, &how, sizeof(how));

	return fd < 0 ? -errno : (int)fd;
}

const char *path_of_fd(char buf[PATH_FD_LEN], int fd)
{
	snprintf(buf, PATH_FD_LEN, "/proc/self/fd/%d", fd);
	return buf;
}

/* ---- permissions ---- */

int path_access(int fd, int mode)
{
	/* The C library's own emulation would check the real ids. */
	return syscall(SYS_faccessat2, fd, "", mode, AT_EMPTY_PATH | AT_EACCESS) ? -errno : 0;
}

int path_may(struct path_call *c, int fd, const struct stat *st, bool write)
{
	int err = path_access(fd, write ? W_OK : R_OK);

	if (err != -EACCES || st->st_uid == c->pcl_ids.id_uid)
		return err == -EACCES ? 0 : err;
	return write ? err : path_access(fd, X_OK);
}

/* ---- durability ---- */

void path_sync_failed(struct path *p, int err)
{
	static _Atomic uint64_t last;

	if (log_due(&last))
		log_error("exports: cannot sync data to disk: %s", strerror(-err));
	atomic_fetch_add(&p->p_verifier, 1);
}

int path_sync(struct path_call *c, int fd)
{
	char name[PATH_FD_LEN];
	struct stat st;
	int real, err = 0;

	if (fstat(fd, &st))
		return -errno;
	/* If an object cannot be opened without side effects, sync its whole file system. */
	if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
		return syncfs(c->pcl_x->x_fd) ? -errno : 0;
	real = open(path_of_fd(name, fd), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (real < 0)
		return -errno;
	if (fsync(real)) {
		err = -errno;
		path_sync_failed(c->pcl_path, err);
	}
	close(real);
	return err;
}
