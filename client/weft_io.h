/* SPDX-License-Identifier: Apache-2.0 */
/* weft_io.h - data through the server, and the data that it may still lose. */
#ifndef CLIENT_WEFT_IO_H
#define CLIENT_WEFT_IO_H
#include "client/weft.h"

struct weft_file;

/* Data that the server may still lose: at most WC_MAX_IO bytes. A later WRITE removes its range
 * from it; when nothing is left, d_len is 0. */
struct wc_dirty {
	struct wc_dirty *d_next;
	struct wc_dirty *d_same, **d_at; /* in f_places of its file; d_at NULL: not there */
	uint64_t d_off, d_verf;
	const uint8_t *d_buf;
	uint32_t d_len;
	uint32_t d_ds; /* of a layout: index of the data server */
	bool d_forced; /* write it again whatever the verifier says */
};

/* An operation on data, of several calls. */
struct wc_io {
	struct weft_op *io_op;
	struct weft_file *io_file; /* NULL: READ without an open */
	struct wc_io *io_next;
	unsigned io_pending;
	uint64_t io_end; /* READ: where the data end */
	bool io_eof;	 /* that is the end of the file */
	/* when all calls have ended: report data written to data servers (LAYOUTCOMMIT) */
	bool io_tell;
	int io_err;
	uint32_t io_status;
	uint32_t io_stable;
	/* COMMIT: the data that it covers, at the server and at a layout's data servers */
	struct wc_dirty *io_through, *io_dirty;
};

/* These begin an operation. */
void wc_io_begin(struct weft_op *op);
void wc_commit_begin(struct weft_op *op);

void wc_io_put_down(struct wc_io *io);
void wc_io_failed(struct wc_io *io, int err, uint32_t status);
void wc_io_read_ends(struct wc_io *io, uint64_t end);
/* Does a range of the operation through the server. */
void wc_io_through(struct wc_io *io, uint64_t off, const uint8_t *buf, uint32_t len);
/* Does the whole operation through the server, from its beginning. */
void wc_io_through_all(struct wc_io *io);
/* A file's size was set: no open file with this handle writes data behind the new end again, or
 * reports them to the server. */
void wc_io_cut(struct weft *w, const struct weft_fh *fh, uint64_t size);
void wc_dirty_free(struct wc_dirty *d);
/* A copy of d, which the caller lists. NULL without memory. */
struct wc_dirty *wc_dirty_new(struct weft_file *f, const struct wc_dirty *d);
#endif
