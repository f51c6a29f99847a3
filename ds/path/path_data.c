/* SPDX-License-Identifier: Apache-2.0 */
/*
 * path_data.c - READ, WRITE and COMMIT, through the page cache. A READ goes into a page-aligned
 * buffer, which the reply refers to; a WRITE goes out of the record that carried it.
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
	int err = path_file_get(c->pcl_path, c->pcl_x, &c->pcl_fh, out);
	enum nfsstat3 st = NFS3_OK;

	if (err)
		return path_status(err);
	if (fstat((*out)->pf_path, &c->pcl_st)) {
		st = NFS3ERR_IO;
	} else if (!c->pcl_st.st_nlink) {
		st = NFS3ERR_STALE;
		path_file_forget(c->pcl_path, &c->pcl_fh);
	} else if (!S_ISREG(c->pcl_st.st_mode)) {
		st = NFS3ERR_INVAL; /* RFC 1813 sections 3.3.6 and 3.3.7, also for directories */
	} else {
		err = path_become(&c->pcl_ids);
		st = err ? NFS3ERR_SERVERFAULT
			 : path_status(path_may(c, (*out)->pf_path, &c->pcl_st, write));
		path_as_server(c);
	}
	if (st == NFS3_OK)
		return st;
	path_file_put(c->pcl_path, *out);
	*out = NULL;
	return st;
}

/* ---- READ ---- */

bool path_read_args(struct path_call *c)
{
	c->pcl_off = xdr_get_u64(c->pcl_in);
	c->pcl_count = xdr_get_u32(c->pcl_in);
	if (c->pcl_count > DS_MAX_IO)
		c->pcl_count = DS_MAX_IO;
	c->pcl_garbage = c->pcl_in->bad;
	return !c->pcl_garbage;
}

/* A file returns fewer bytes than asked only at its end. */
static int read_all(struct path_call *c, int fd)
{
	while (c->pcl_got < c->pcl_count) {
		ssize_t n = pread(fd, c->pcl_buf->b_data + c->pcl_got, c->pcl_count - c->pcl_got,
				  (off_t)(c->pcl_off + c->pcl_got));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (!n) {
			c->pcl_eof = true;
			break;
		}
		c->pcl_got += (uint32_t)n;
	}
	return 0;
}

void path_read(struct path_call *c)
{
	struct path_file *f = NULL;
	enum nfsstat3 st = data_file_get(c, false, &f);
	int fd;

	if (st == NFS3_OK && c->pcl_off > (uint64_t)INT64_MAX - c->pcl_count) {
		c->pcl_eof = true;
	} else if (st == NFS3_OK) {
		fd = path_file_fd(f, false);
		st = path_status(fd < 0 ? fd : read_all(c, fd));
		if (st == NFS3_OK && fstat(f->pf_path, &c->pcl_st))
			st = NFS3ERR_IO;
		if (c->pcl_off + c->pcl_got >= (uint64_t)c->pcl_st.st_size)
			c->pcl_eof = true;
	}
	c->pcl_put_data = st == NFS3_OK;
	if (!c->pcl_put_data) {
		xdr_put_u32(c->pcl_out, st);
		path_put_post(c, f ? f->pf_path : -1);
	}
	if (f)
		path_file_put(c->pcl_path, f);
}

void path_read_reply(struct path_call *c)
{
	struct xdr_out *x = c->pcl_out;
	struct ds_buf *b = c->pcl_buf;

	c->pcl_buf = NULL;
	xdr_put_u32(x, NFS3_OK);
	path_put_stat(c, &c->pcl_st);
	xdr_put_u32(x, c->pcl_got);
	xdr_put_bool(x, c->pcl_eof);
	xdr_put_u32(x, c->pcl_got);
	xdr_put_ref(x, b->b_data, c->pcl_got, ds_buf_put, b);
	metric_add(path_m_read_bytes, c->pcl_got);
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
		path_sync_failed(c->pcl_path, err);
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

	c->pcl_off = xdr_get_u64(c->pcl_in);
	c->pcl_count = xdr_get_u32(c->pcl_in);
	stable = xdr_get_u32(c->pcl_in);
	data = xdr_get_opaque(c->pcl_in, DS_MAX_IO, &len);
	if (stable > NFS3_FILE_SYNC || len < c->pcl_count)
		c->pcl_in->bad = true;
	if (c->pcl_in->bad)
		return;
	/* Read it before the write: if a sync fails meanwhile, the client sees that the verifier
	 * differs. */
	verf = atomic_load(&c->pcl_path->p_verifier);
	st = data_file_get(c, true, &f);
	if (st == NFS3_OK && c->pcl_off > (uint64_t)INT64_MAX - c->pcl_count)
		st = NFS3ERR_FBIG;
	if (st == NFS3_OK) {
		fd = path_file_fd(f, true);
		st = path_status(fd < 0 ? fd : 0);
	}
	if (f)
		path_wcc_begin(c, &w, f->pf_path);
	if (st == NFS3_OK) {
		err = path_become(&c->pcl_ids);
		st = err ? NFS3ERR_SERVERFAULT
			 : path_status(data_write_all(fd, data, c->pcl_count, c->pcl_off, &done));
		path_as_server(c);
	}
	if (f)
		path_wcc_end(&w);
	if (st == NFS3_OK && done)
		st = path_status(sync_to(c, fd, stable));
	xdr_put_u32(c->pcl_out, st);
	path_wcc_put(c, &w);
	if (st == NFS3_OK) {
		xdr_put_u32(c->pcl_out, done);
		xdr_put_u32(c->pcl_out, stable);
		xdr_put_fixed(c->pcl_out, &verf, NFS3_WRITEVERFSIZE);
		metric_add(path_m_write_bytes, done);
	}
	if (f)
		path_file_put(c->pcl_path, f);
}

/* Syncs the whole file, whatever range the client names: RFC 1813 section 3.3.21 allows more. */
void path_commit(struct path_call *c)
{
	struct path_file *f = NULL;
	struct path_wcc w = {0};
	enum nfsstat3 st;
	uint64_t verf;
	int fd;

	xdr_get_u64(c->pcl_in);
	xdr_get_u32(c->pcl_in);
	if (c->pcl_in->bad)
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
	verf = atomic_load(&c->pcl_path->p_verifier);
	xdr_put_u32(c->pcl_out, st);
	path_wcc_put(c, &w);
	if (st == NFS3_OK)
		xdr_put_fixed(c->pcl_out, &verf, NFS3_WRITEVERFSIZE);
	if (f)
		path_file_put(c->pcl_path, f);
}
