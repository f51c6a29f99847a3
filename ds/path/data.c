/* SPDX-License-Identifier: Apache-2.0 */
/*
 * data.c - READ, WRITE and COMMIT, through the page cache. A READ goes into a page-aligned buffer,
 * which the reply refers to; a WRITE goes out of the record that carried it.
 *
 * The descriptors are the server's. For each call, this file asks the kernel whether the caller has
 * permission.
 */
#include "ds/path/path_int.h"
#include <errno.h>
#include <unistd.h>

/* Gets the handle's file and its attributes, if it is a regular file and the caller has
 * permission. */
static enum nfsstat3 data_file_get(struct path_call *c, bool write, struct path_file **out)
{
	int err = path_file_get(c->pc_path, c->pc_x, &c->pc_fh, out);
	enum nfsstat3 st = NFS3_OK;

	if (err)
		return path_status(err);
	if (fstat((*out)->pf_path, &c->pc_st)) {
		st = NFS3ERR_IO;
	} else if (!c->pc_st.st_nlink) {
		st = NFS3ERR_STALE;
		path_file_forget(c->pc_path, &c->pc_fh);
	} else if (!S_ISREG(c->pc_st.st_mode)) {
		st = NFS3ERR_INVAL; /* RFC 1813 sections 3.3.6 and 3.3.7, also for directories */
	} else {
		err = path_become(&c->pc_ids);
		st = err ? NFS3ERR_SERVERFAULT
			 : path_status(path_may(c, (*out)->pf_path, &c->pc_st, write));
		path_as_server(c);
	}
	if (st == NFS3_OK)
		return st;
	path_file_put(c->pc_path, *out);
	*out = NULL;
	return st;
}

/* ---- READ ---- */

bool path_read_args(struct path_call *c)
{
	c->pc_off = xdr_get_u64(c->pc_in);
	c->pc_count = xdr_get_u32(c->pc_in);
	if (c->pc_count > DS_MAX_IO)
		c->pc_count = DS_MAX_IO;
	c->pc_garbage = c->pc_in->bad;
	return !c->pc_garbage;
}

/* A file returns fewer bytes than asked only at its end. */
static int read_all(struct path_call *c, int fd)
{
	while (c->pc_got < c->pc_count) {
		ssize_t n = pread(fd, c->pc_buf->b_data + c->pc_got, c->pc_count - c->pc_got,
				  (off_t)(c->pc_off + c->pc_got));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (!n) {
			c->pc_eof = true;
			break;
		}
		c->pc_got += (uint32_t)n;
	}
	return 0;
}

void path_read(struct path_call *c)
{
	struct path_file *f = NULL;
	enum nfsstat3 st = data_file_get(c, false, &f);
	int fd;

	if (st == NFS3_OK && c->pc_off > (uint64_t)INT64_MAX - c->pc_count) {
		c->pc_eof = true;
	} else if (st == NFS3_OK) {
		fd = path_file_fd(f, false);
		st = path_status(fd < 0 ? fd : read_all(c, fd));
		if (st == NFS3_OK && fstat(f->pf_path, &c->pc_st))
			st = NFS3ERR_IO;
		if (c->pc_off + c->pc_got >= (uint64_t)c->pc_st.st_size)
			c->pc_eof = true;
	}
	c->pc_put_data = st == NFS3_OK;
	if (!c->pc_put_data) {
		xdr_put_u32(c->pc_out, st);
		path_put_post(c, f ? f->pf_path : -1);
	}
	if (f)
		path_file_put(c->pc_path, f);
}

void path_read_reply(struct path_call *c)
{
	struct xdr_out *x = c->pc_out;
	struct ds_buf *b = c->pc_buf;

	c->pc_buf = NULL;
	xdr_put_u32(x, NFS3_OK);
	path_put_stat(c, &c->pc_st);
	xdr_put_u32(x, c->pc_got);
	xdr_put_bool(x, c->pc_eof);
	xdr_put_u32(x, c->pc_got);
	xdr_put_ref(x, b->b_data, c->pc_got, ds_buf_put, b);
	metric_add(path_m_read_bytes, c->pc_got);
}

/* ---- WRITE ---- */

static int data_write_all(int fd, const uint8_t *data, uint32_t count, uint64_t off, uint32_t *done)
{
	for (*done = 0; *done < count;) {
		ssize_t n = pwrite(fd, data + *done, count - *done, (off_t)(off + *done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			/* What was written counts. The client sends the rest again, and then gets
			 * the error. */
			return *done ? 0 : -errno;
		*done += (uint32_t)n;
	}
	return 0;
}

static int sync_to(struct path_call *c, int fd, uint32_t stable)
{
	int err = 0;

	if (stable == NFS3_FILE_SYNC && fsync(fd))
		err = -errno;
	if (stable == NFS3_DATA_SYNC && fdatasync(fd))
		err = -errno;
	if (err)
		path_sync_failed(c->pc_path, err);
	return err;
}

void path_write(struct path_call *c)
{
	uint32_t stable, len, done = 0;
	struct path_file *f = NULL;
	struct path_wcc w = {0};
	const uint8_t *data;
	enum nfsstat3 st;
	uint64_t verf;
	int fd = -1, err;

	c->pc_off = xdr_get_u64(c->pc_in);
	c->pc_count = xdr_get_u32(c->pc_in);
	stable = xdr_get_u32(c->pc_in);
	data = xdr_get_opaque(c->pc_in, DS_MAX_IO, &len);
	if (stable > NFS3_FILE_SYNC || len < c->pc_count)
		c->pc_in->bad = true;
	if (c->pc_in->bad)
		return;
	/* Read it before the write: if a sync fails meanwhile, the client sees that the verifier
	 * differs. */
	verf = atomic_load(&c->pc_path->p_verifier);
	st = data_file_get(c, true, &f);
	if (st == NFS3_OK && c->pc_off > (uint64_t)INT64_MAX - c->pc_count)
		st = NFS3ERR_FBIG;
	if (st == NFS3_OK) {
		fd = path_file_fd(f, true);
		st = path_status(fd < 0 ? fd : 0);
	}
	if (f)
		path_wcc_begin(c, &w, f->pf_path);
	if (st == NFS3_OK) {
		err = path_become(&c->pc_ids);
		st = err ? NFS3ERR_SERVERFAULT
			 : path_status(data_write_all(fd, data, c->pc_count, c->pc_off, &done));
		path_as_server(c);
	}
	if (f)
		path_wcc_end(&w);
	if (st == NFS3_OK && done)
		st = path_status(sync_to(c, fd, stable));
	xdr_put_u32(c->pc_out, st);
	path_wcc_put(c, &w);
	if (st == NFS3_OK) {
		xdr_put_u32(c->pc_out, done);
		xdr_put_u32(c->pc_out, stable);
		xdr_put_fixed(c->pc_out, &verf, NFS3_WRITEVERFSIZE);
		metric_add(path_m_write_bytes, done);
	}
	if (f)
		path_file_put(c->pc_path, f);
}

/* Syncs the whole file, whatever range the client names: RFC 1813 section 3.3.21 allows more. */
void path_commit(struct path_call *c)
{
	struct path_file *f = NULL;
	struct path_wcc w = {0};
	enum nfsstat3 st;
	uint64_t verf;
	int fd;

	xdr_get_u64(c->pc_in);
	xdr_get_u32(c->pc_in);
	if (c->pc_in->bad)
		return;
	st = data_file_get(c, true, &f);
	if (f)
		path_wcc_begin(c, &w, f->pf_path);
	if (f)
		path_wcc_end(&w);
	if (st == NFS3_OK) {
		fd = path_file_fd(f, true);
		st = path_status(fd < 0 ? fd : sync_to(c, fd, NFS3_FILE_SYNC));
	}
	verf = atomic_load(&c->pc_path->p_verifier);
	xdr_put_u32(c->pc_out, st);
	path_wcc_put(c, &w);
	if (st == NFS3_OK)
		xdr_put_fixed(c->pc_out, &verf, NFS3_WRITEVERFSIZE);
	if (f)
		path_file_put(c->pc_path, f);
}
