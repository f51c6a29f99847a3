/* SPDX-License-Identifier: Apache-2.0 */
/* name.c - LOOKUP, REMOVE, RMDIR, RENAME, LINK. */
#include "ds/path/path_int.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static bool name_is_root(const struct path_call *c, const struct stat *st)
{
	return st->st_dev == c->pcl_x->x_dev && st->st_ino == c->pcl_x->x_ino;
}

/* ---- LOOKUP ---- */

/* The way up ends at the export's folder, also from a directory that was moved out of that folder
 * on this machine. */
static int open_parent(struct path_call *c)
{
	int fd, rc;

	if (name_is_root(c, &c->pcl_st))
		return path_open_at(c->pcl_fd, ".");
	fd = path_open_at(c->pcl_fd, "..");
	if (fd < 0)
		return fd;
	path_as_server(c);
	rc = path_is_above(c->pcl_x->x_dev, c->pcl_x->x_ino, fd);
	if (rc > 0)
		return fd;
	close(fd);
	return rc ? rc : -EACCES;
}

void path_lookup(struct path_call *c)
{
	struct path_name n;
	struct path_fh fh;
	struct stat st;
	int fd = -1, err = 0;
	enum nfsstat3 status;

	path_get_name(c, &n);
	if (c->pcl_in->bad)
		return;
	if (!S_ISDIR(c->pcl_st.st_mode))
		n.n_status = NFS3ERR_NOTDIR;
	status = n.n_status;
	if (status == NFS3_OK) {
		if (!path_as_caller(c))
			return;
		fd = strcmp(n.n_name, "..") == 0 ? open_parent(c)
						 : path_open_at(c->pcl_fd, n.n_name);
		path_as_server(c);
		err = fd < 0 ? fd : 0;
		if (!err && fstat(fd, &st))
			err = -errno;
		if (!err)
			err = path_fh_of(fd, "", c->pcl_fh.fh_export, &fh);
		/* another file system is mounted there: it is not exported */
		status = err == -EXDEV ? NFS3ERR_ACCES : path_status(err);
	}
	xdr_put_u32(c->pcl_out, status);
	if (status == NFS3_OK) {
		uint8_t wire[NFS3_FHSIZE];

		xdr_put_opaque(c->pcl_out, wire, path_fh_write(c->pcl_path, &fh, wire));
		path_put_stat(c, &st);
	}
	path_put_post(c, c->pcl_fd);
	if (fd >= 0)
		close(fd);
}

/* ---- REMOVE, RMDIR ---- */

/* "." and "..": RFC 1813 section 3.3.13 has two answers for RMDIR. */
static enum nfsstat3 dots_status(const struct path_name *n, bool dir)
{
	if (!path_is_dots(n))
		return NFS3_OK;
	if (!dir)
		return NFS3ERR_ISDIR;
	return n->n_name[1] ? NFS3ERR_EXIST : NFS3ERR_INVAL;
}

static void unlink_at(struct path_call *c, bool dir)
{
	struct path_name n;
	struct path_wcc w;
	struct path_fh gone;
	bool known;
	int err;

	path_get_name(c, &n);
	if (c->pcl_in->bad)
		return;
	if (!S_ISDIR(c->pcl_st.st_mode))
		n.n_status = NFS3ERR_NOTDIR;
	if (n.n_status == NFS3_OK)
		n.n_status = dots_status(&n, dir);
	path_wcc_begin(c, &w, c->pcl_fd);
	if (n.n_status == NFS3_OK) {
		err = path_become(&c->pcl_ids);
		known = !err && !path_fh_of(c->pcl_fd, n.n_name, c->pcl_fh.fh_export, &gone);
		if (!err && unlinkat(c->pcl_fd, n.n_name, dir ? AT_REMOVEDIR : 0))
			err = -errno;
		path_as_server(c);
		if (!err && known)
			path_file_forget(c->pcl_path, &gone);
		n.n_status = path_status(err);
	}
	path_wcc_end(&w);
	if (n.n_status == NFS3_OK)
		n.n_status = path_status(path_sync(c, c->pcl_fd));
	xdr_put_u32(c->pcl_out, n.n_status);
	path_wcc_put(c, &w);
}

void path_remove(struct path_call *c)
{
	unlink_at(c, false);
}

void path_rmdir(struct path_call *c)
{
	unlink_at(c, true);
}

/* ---- RENAME, LINK ---- */

/* Reads the second handle. It must be of the same export: nothing may move from one export to
 * another. */
static enum nfsstat3 second(struct path_call *c, const uint8_t *fh, uint32_t len,
			    struct path_fh *to)
{
	if (!path_fh_read(c->pcl_path, fh, len, to))
		return NFS3ERR_BADHANDLE;
	return to->fh_export == c->pcl_fh.fh_export ? NFS3_OK : NFS3ERR_XDEV;
}

static int open_dir(struct path_call *c, const struct path_fh *fh, enum nfsstat3 *status)
{
	int fd = path_fh_open(c->pcl_x->x_fd, fh);
	struct stat st;

	if (fd < 0)
		*status = path_status(fd);
	else if (fstat(fd, &st))
		*status = NFS3ERR_IO;
	else if (!st.st_nlink)
		*status = NFS3ERR_STALE;
	else if (!S_ISDIR(st.st_mode))
		*status = NFS3ERR_NOTDIR;
	return fd;
}

/* RFC 1813 section 3.3.14: EXIST if the source cannot replace the target, or the target is a
 * directory that is not empty. */
static enum nfsstat3 rename_status(int err)
{
	return err == -EISDIR || err == -ENOTDIR || err == -ENOTEMPTY ? NFS3ERR_EXIST
								      : path_status(err);
}

static enum nfsstat3 do_rename(struct path_call *c, const char *from, int todir, const char *to)
{
	struct path_fh gone;
	int err = path_become(&c->pcl_ids);
	bool known = !err && !path_fh_of(todir, to, c->pcl_fh.fh_export, &gone);

	if (!err && renameat(c->pcl_fd, from, todir, to))
		err = -errno;
	path_as_server(c);
	if (!err && known)
		path_file_forget(c->pcl_path, &gone);
	return rename_status(err);
}

void path_rename(struct path_call *c)
{
	struct path_wcc wfrom, wto;
	struct path_name from, to;
	struct path_fh dir;
	const uint8_t *fh;
	enum nfsstat3 st;
	uint32_t len;
	int todir = -1;

	path_get_name(c, &from);
	fh = xdr_get_opaque(c->pcl_in, NFS3_FHSIZE, &len);
	path_get_name(c, &to);
	if (c->pcl_in->bad)
		return;
	st = second(c, fh, len, &dir);
	if (st == NFS3_OK)
		todir = open_dir(c, &dir, &st);
	if (st == NFS3_OK && !S_ISDIR(c->pcl_st.st_mode))
		st = NFS3ERR_NOTDIR;
	if (st == NFS3_OK)
		st = from.n_status ? from.n_status : to.n_status;
	if (st == NFS3_OK && (path_is_dots(&from) || path_is_dots(&to)))
		st = NFS3ERR_INVAL;
	if (todir < 0) {
		path_fail(c, st);
		return;
	}
	path_wcc_begin2(c, &wfrom, c->pcl_fd, &wto, todir);
	if (st == NFS3_OK)
		st = do_rename(c, from.n_name, todir, to.n_name);
	path_wcc_end2(&wfrom, &wto);
	if (st == NFS3_OK)
		st = path_status(path_sync(c, todir));
	if (st == NFS3_OK && wfrom.w_post.st_ino != wto.w_post.st_ino)
		st = path_status(path_sync(c, c->pcl_fd));
	xdr_put_u32(c->pcl_out, st);
	path_wcc_put(c, &wfrom);
	path_wcc_put(c, &wto);
	close(todir);
}

static enum nfsstat3 do_link(struct path_call *c, int dir, const char *name)
{
	char from[PATH_FD_LEN];
	int err = path_become(&c->pcl_ids);

	if (!err && linkat(AT_FDCWD, path_of_fd(from, c->pcl_fd), dir, name, AT_SYMLINK_FOLLOW))
		err = -errno;
	path_as_server(c);
	return path_status(err);
}

void path_link(struct path_call *c)
{
	struct path_name n;
	struct path_wcc w;
	struct path_fh to;
	const uint8_t *fh;
	enum nfsstat3 st;
	uint32_t len;
	int dir = -1;

	fh = xdr_get_opaque(c->pcl_in, NFS3_FHSIZE, &len);
	path_get_name(c, &n);
	if (c->pcl_in->bad)
		return;
	st = second(c, fh, len, &to);
	if (st == NFS3_OK)
		dir = open_dir(c, &to, &st);
	if (st == NFS3_OK)
		st = n.n_status;
	if (st == NFS3_OK && path_is_dots(&n))
		st = NFS3ERR_EXIST;
	if (st == NFS3_OK && S_ISDIR(c->pcl_st.st_mode))
		st = NFS3ERR_INVAL;
	if (dir < 0) {
		path_fail(c, st);
		return;
	}
	path_wcc_begin(c, &w, dir);
	if (st == NFS3_OK)
		st = do_link(c, dir, n.n_name);
	path_wcc_end(&w);
	if (st == NFS3_OK)
		st = path_status(path_sync(c, c->pcl_fd));
	if (st == NFS3_OK)
		st = path_status(path_sync(c, dir));
	xdr_put_u32(c->pcl_out, st);
	path_put_post(c, c->pcl_fd);
	path_wcc_put(c, &w);
	close(dir);
}
