/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dir.c - READDIR and READDIRPLUS.
 *
 * A cookie is the file system's own position behind an entry (d_off), which stays valid whatever
 * happens to the directory. So the cookie verifier never changes, and a cookie with another
 * verifier is not this server's.
 */
#include "ds/path/path_int.h"
#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define MOST_REPLY (256u << 10)
#define CHUNK	   (32u << 10)
/* attributes, verifier, no more entries, eof */
#define FRAME (4 + NFS3_FATTR_LEN + NFS3_COOKIEVERFSIZE + 4 + 4)
static const uint8_t verifier[NFS3_COOKIEVERFSIZE] = "weft d1";

struct listing {
	struct path_call *l_call;
	int l_fd;
	bool l_plus, l_eof;
	size_t l_used, l_most;	      /* bytes of the result: so far, at most */
	size_t l_names, l_most_names; /* READDIRPLUS: bytes of what READDIR would return */
	unsigned l_n;
};

static size_t padded(size_t n)
{
	return (n + 3) & ~(size_t)3;
}

/* The attributes and the handle of an entry, if the caller may look it up. False: none. */
static bool entry_look(struct listing *l, const char *name, struct stat *st, struct path_fh *fh)
{
	struct path_call *c = l->l_call;
	int fd;
	bool ok;

	if (name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2])))
		return false;
	fd = path_open_at(l->l_fd, name);
	if (fd < 0)
		return false;
	ok = !fstat(fd, st) && !path_fh_of(fd, "", c->pcl_fh.fh_export, fh);
	close(fd);
	return ok;
}

/* False: the entry does not fit. */
static bool dir_entry_put(struct listing *l, uint64_t ino, uint64_t cookie, const char *name)
{
	struct path_call *c = l->l_call;
	size_t len = strlen(name), plain = 4 + 8 + 4 + padded(len) + 8, more = 0;
	uint8_t wire[NFS3_FHSIZE];
	uint32_t wlen = 0;
	struct path_fh fh;
	struct stat st;
	bool known = l->l_plus && entry_look(l, name, &st, &fh);

	if (known)
		wlen = path_fh_write(c->pcl_path, &fh, wire);
	if (l->l_plus)
		more = 4 + 4 + (known ? NFS3_FATTR_LEN + 4 + padded(wlen) : 0);
	/* READDIRPLUS: a first entry larger than dircount is better than none. */
	if (l->l_used + plain + more > l->l_most ||
	    (l->l_plus && l->l_n && l->l_names + plain > l->l_most_names))
		return false;
	l->l_used += plain + more;
	l->l_names += plain;
	l->l_n++;
	xdr_put_bool(c->pcl_out, true);
	xdr_put_u64(c->pcl_out, ino ? ino : 1);
	xdr_put_opaque(c->pcl_out, name, (uint32_t)len);
	xdr_put_u64(c->pcl_out, cookie);
	if (!l->l_plus)
		return true;
	if (known)
		path_put_stat(c, &st);
	else
		nfs3_put_post_op(c->pcl_out, NULL);
	xdr_put_bool(c->pcl_out, known);
	if (known)
		xdr_put_opaque(c->pcl_out, wire, wlen);
	return true;
}

/* Runs as the caller. 0 or a negative errno. */
static int entries_put(struct listing *l)
{
	struct path_call *c = l->l_call;
	bool root = c->pcl_st.st_dev == c->pcl_x->x_dev && c->pcl_st.st_ino == c->pcl_x->x_ino;
	_Alignas(struct dirent64) char buf[CHUNK];

	for (;;) {
		ssize_t n = getdents64(l->l_fd, buf, sizeof(buf));

		if (n < 0)
			return -errno;
		if (!n) {
			l->l_eof = true;
			return 0;
		}
		for (ssize_t at = 0; at < n;) {
			const struct dirent64 *d = (const struct dirent64 *)(buf + at);
			/* Hide the inode number of the directory above the export's folder. */
			uint64_t ino =
				root && strcmp(d->d_name, "..") == 0 ? c->pcl_x->x_ino : d->d_ino;

			if (!dir_entry_put(l, ino, (uint64_t)d->d_off, d->d_name))
				return 0;
			at += d->d_reclen;
		}
	}
}

static int dir_list(struct listing *l, uint64_t cookie)
{
	struct path_call *c = l->l_call;
	char name[PATH_FD_LEN];
	int err;

	l->l_fd = open(path_of_fd(name, c->pcl_fd), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (l->l_fd < 0)
		return -errno;
	if (cookie && lseek(l->l_fd, (off_t)cookie, SEEK_SET) < 0)
		err = errno == EINVAL ? -ERANGE : -errno;
	else
		err = entries_put(l);
	close(l->l_fd);
	return err;
}

static void readdir_fail(struct path_call *c, enum nfsstat3 st)
{
	xdr_truncate(c->pcl_out, c->pcl_rpc->c_body);
	xdr_put_u32(c->pcl_out, st);
	path_put_post(c, c->pcl_fd);
}

static void readdir_do(struct path_call *c, struct listing *l)
{
	uint64_t cookie = xdr_get_u64(c->pcl_in);
	const uint8_t *verf = xdr_get_fixed(c->pcl_in, NFS3_COOKIEVERFSIZE);
	int err;

	if (l->l_plus)
		l->l_most_names = xdr_get_u32(c->pcl_in);
	l->l_most = xdr_get_u32(c->pcl_in);
	if (c->pcl_in->bad)
		return;
	if (!S_ISDIR(c->pcl_st.st_mode)) {
		readdir_fail(c, NFS3ERR_NOTDIR);
		return;
	}
	if (cookie > INT64_MAX || (cookie && memcmp(verf, verifier, sizeof(verifier)) != 0)) {
		readdir_fail(c, NFS3ERR_BAD_COOKIE);
		return;
	}
	if (l->l_most > MOST_REPLY)
		l->l_most = MOST_REPLY;
	l->l_used = FRAME;
	xdr_put_u32(c->pcl_out, NFS3_OK);
	path_put_stat(c, &c->pcl_st);
	xdr_put_fixed(c->pcl_out, verifier, sizeof(verifier));
	if (!path_as_caller(c))
		return;
	err = dir_list(l, cookie);
	path_as_server(c);
	if (err == -ERANGE)
		readdir_fail(c, NFS3ERR_BAD_COOKIE);
	else if (err)
		readdir_fail(c, path_status(err));
	else if (!l->l_eof && !l->l_n)
		readdir_fail(c, NFS3ERR_TOOSMALL);
	else if (l->l_used > l->l_most)
		readdir_fail(c, NFS3ERR_TOOSMALL); /* not even an empty list fits */
	else {
		xdr_put_bool(c->pcl_out, false);
		xdr_put_bool(c->pcl_out, l->l_eof);
	}
}

void path_readdir(struct path_call *c)
{
	struct listing l = {.l_call = c};

	readdir_do(c, &l);
}

void path_readdirplus(struct path_call *c)
{
	struct listing l = {.l_call = c, .l_plus = true};

	readdir_do(c, &l);
}
