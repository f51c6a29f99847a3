/* SPDX-License-Identifier: Apache-2.0 */
/*
 * make.c - CREATE, MKDIR, SYMLINK, MKNOD.
 *
 * The verifier of an exclusive CREATE is kept in the seconds of the new file's atime and mtime,
 * half in each, as signed numbers, so that all 32 bits survive on every file system.
 */
#include "ds/path/path_int.h"
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define NEW_FILE 0600
#define NEW_DIR	 0700
#define TRIES	 4

/* What the call makes. */
struct make {
	struct path_name m_name;
	struct nfs3_sattr m_sattr;
	uint32_t m_how;
	struct timespec m_verf[2];
	mode_t m_type; /* S_IF* */
	dev_t m_dev;
	char m_target[PATH_MAX];
	bool m_found; /* CREATE: the file already existed */
};

static mode_t make_mode_of(const struct make *m, mode_t start)
{
	return m->m_sattr.sa_set & NFS3_SA_MODE ? m->m_sattr.sa_mode & 07777 : start;
}

/* Sets all attributes except the mode, which the object was made with (but sets the mode again
 * if a new owner clears its set-id bits). Does not set ids that the object already has: only
 * root may. */
static int apply_rest(struct path_call *c, struct make *m, int fd)
{
	struct nfs3_sattr sa = m->m_sattr;
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode) || !sa.sa_size)
		sa.sa_set &= ~(uint32_t)NFS3_SA_SIZE;
	if (sa.sa_uid == st.st_uid)
		sa.sa_set &= ~(uint32_t)NFS3_SA_UID;
	if (sa.sa_gid == st.st_gid)
		sa.sa_set &= ~(uint32_t)NFS3_SA_GID;
	if (!(sa.sa_set & (NFS3_SA_UID | NFS3_SA_GID)) || !(sa.sa_mode & 06000))
		sa.sa_set &= ~(uint32_t)NFS3_SA_MODE;
	return path_apply(c, fd, &st, &sa);
}

/* ---- CREATE: a descriptor or a negative errno ---- */

static bool verf_matches(const struct make *m, const struct stat *st)
{
	return st->st_atim.tv_sec == m->m_verf[0].tv_sec &&
	       st->st_mtim.tv_sec == m->m_verf[1].tv_sec && !st->st_atim.tv_nsec &&
	       !st->st_mtim.tv_nsec && !st->st_size;
}

static int take_existing(struct path_call *c, struct make *m)
{
	struct nfs3_sattr size = m->m_sattr;
	int fd = path_open_at(c->pcl_fd, m->m_name.n_name), err = 0;
	struct stat st;

	if (fd < 0)
		return fd == -EXDEV ? -EEXIST : fd;
	size.sa_set &= NFS3_SA_SIZE;
	if (fstat(fd, &st))
		err = -errno;
	else if (!S_ISREG(st.st_mode) || (m->m_how == NFS3_EXCLUSIVE && !verf_matches(m, &st)))
		err = -EEXIST;
	else if (m->m_how == NFS3_UNCHECKED)
		err = path_apply(c, fd, &st, &size);
	m->m_found = true;
	if (!err)
		return fd;
	close(fd);
	return err;
}

static int make_file(struct path_call *c, struct make *m)
{
	const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;

	for (unsigned i = 0; i < TRIES; i++) {
		int fd = openat(c->pcl_fd, m->m_name.n_name, flags, make_mode_of(m, NEW_FILE));

		if (fd >= 0) {
			if (m->m_how == NFS3_EXCLUSIVE && futimens(fd, m->m_verf)) {
				int err = -errno;

				unlinkat(c->pcl_fd, m->m_name.n_name, 0);
				close(fd);
				return err;
			}
			return fd;
		}
		if (errno != EEXIST || m->m_how == NFS3_GUARDED)
			return -errno;
		fd = take_existing(c, m);
		if (fd != -ENOENT)
			return fd;
	}
	return -EAGAIN; /* other clients create and remove it all the time */
}

/* ---- all four procedures ---- */

static int make_other(struct path_call *c, struct make *m)
{
	const char *name = m->m_name.n_name;
	int rc, fd;

	if (m->m_type == S_IFDIR)
		rc = mkdirat(c->pcl_fd, name, make_mode_of(m, NEW_DIR));
	else if (m->m_type == S_IFLNK)
		rc = symlinkat(m->m_target, c->pcl_fd, name);
	else
		rc = mknodat(c->pcl_fd, name, m->m_type | make_mode_of(m, NEW_FILE), m->m_dev);
	if (rc)
		return -errno;
	fd = path_open_at(c->pcl_fd, name);
	if (fd < 0)
		unlinkat(c->pcl_fd, name, m->m_type == S_IFDIR ? AT_REMOVEDIR : 0);
	return fd;
}

/* Runs as the caller. A descriptor, or a negative errno and nothing made. */
static int make_entry(struct path_call *c, struct make *m)
{
	int fd = m->m_type == S_IFREG ? make_file(c, m) : make_other(c, m), err;

	if (fd < 0 || m->m_found)
		return fd;
	err = apply_rest(c, m, fd);
	if (!err)
		return fd;
	close(fd);
	unlinkat(c->pcl_fd, m->m_name.n_name, m->m_type == S_IFDIR ? AT_REMOVEDIR : 0);
	return err;
}

static void put_made(struct path_call *c, int fd)
{
	uint8_t wire[NFS3_FHSIZE];
	struct path_fh fh;
	bool known = !path_fh_of(fd, "", c->pcl_fh.fh_export, &fh);

	xdr_put_bool(c->pcl_out, known);
	if (known)
		xdr_put_opaque(c->pcl_out, wire, path_fh_write(c->pcl_path, &fh, wire));
	path_put_post(c, fd);
}

static void make_reply(struct path_call *c, struct make *m)
{
	enum nfsstat3 st = m->m_name.n_status;
	struct path_wcc w;
	int fd = -1;

	if (st == NFS3_OK && path_is_dots(&m->m_name))
		st = NFS3ERR_EXIST;
	if (!S_ISDIR(c->pcl_st.st_mode))
		st = NFS3ERR_NOTDIR;
	path_wcc_begin(c, &w, c->pcl_fd);
	if (st == NFS3_OK) {
		fd = path_become(&c->pcl_ids);
		if (!fd)
			fd = make_entry(c, m);
		path_as_server(c);
		st = fd < 0 ? path_status(fd) : NFS3_OK;
	}
	path_wcc_end(&w);
	/* Sync an existing file too: the call that made it may not be durable yet. */
	if (st == NFS3_OK)
		st = path_status(path_sync(c, fd));
	if (st == NFS3_OK)
		st = path_status(path_sync(c, c->pcl_fd));
	xdr_put_u32(c->pcl_out, st);
	if (st == NFS3_OK)
		put_made(c, fd);
	path_wcc_put(c, &w);
	if (fd >= 0)
		close(fd);
}

void path_create(struct path_call *c)
{
	struct make m = {.m_type = S_IFREG};

	path_get_name(c, &m.m_name);
	m.m_how = xdr_get_u32(c->pcl_in);
	if (m.m_how == NFS3_EXCLUSIVE) {
		m.m_verf[0].tv_sec = (int32_t)xdr_get_u32(c->pcl_in);
		m.m_verf[1].tv_sec = (int32_t)xdr_get_u32(c->pcl_in);
	} else {
		nfs3_get_sattr(c->pcl_in, &m.m_sattr);
	}
	if (m.m_how > NFS3_EXCLUSIVE)
		c->pcl_in->bad = true;
	if (!c->pcl_in->bad)
		make_reply(c, &m);
}

void path_mkdir(struct path_call *c)
{
	struct make m = {.m_type = S_IFDIR};

	path_get_name(c, &m.m_name);
	nfs3_get_sattr(c->pcl_in, &m.m_sattr);
	if (!c->pcl_in->bad)
		make_reply(c, &m);
}

void path_symlink(struct path_call *c)
{
	struct make m = {.m_type = S_IFLNK};
	const uint8_t *p;
	uint32_t len;

	path_get_name(c, &m.m_name);
	nfs3_get_sattr(c->pcl_in, &m.m_sattr);
	p = xdr_get_opaque(c->pcl_in, UINT32_MAX, &len);
	if (c->pcl_in->bad)
		return;
	if (len >= sizeof(m.m_target))
		m.m_name.n_status = NFS3ERR_NAMETOOLONG;
	else if (!len || memchr(p, 0, len))
		m.m_name.n_status = NFS3ERR_ACCES;
	else
		memcpy(m.m_target, p, len);
	make_reply(c, &m);
}

void path_mknod(struct path_call *c)
{
	struct make m = {0};
	uint32_t type, maj, min;

	path_get_name(c, &m.m_name);
	type = xdr_get_u32(c->pcl_in);
	if (type < NF3REG || type > NF3FIFO)
		c->pcl_in->bad = true;
	if (type == NF3CHR || type == NF3BLK || type == NF3SOCK || type == NF3FIFO)
		nfs3_get_sattr(c->pcl_in, &m.m_sattr);
	if (type == NF3CHR || type == NF3BLK) {
		maj = xdr_get_u32(c->pcl_in);
		min = xdr_get_u32(c->pcl_in);
		m.m_dev = makedev(maj, min);
	}
	if (c->pcl_in->bad)
		return;
	m.m_type = type == NF3CHR    ? S_IFCHR
		   : type == NF3BLK  ? S_IFBLK
		   : type == NF3SOCK ? S_IFSOCK
				     : S_IFIFO;
	if (type == NF3REG || type == NF3DIR || type == NF3LNK)
		m.m_name.n_status = NFS3ERR_BADTYPE;
	make_reply(c, &m);
}
