/* SPDX-License-Identifier: Apache-2.0 */
/* layout.h - layouts (RFC 8435): getting and returning them. */
#ifndef CLIENT_LAYOUT_H
#define CLIENT_LAYOUT_H
#include "base/loop.h"
#include "client/res.h"
#include "client/weft.h"
#include "proto/nfs4.h"

struct ds_call;
struct wc_call;
struct wc_device;
struct wc_dirty;
struct wc_io;
struct weft_file;

#define WC_FHS	   4
#define WC_MIRRORS 16u
#define WC_LO_DS   4096u
#define WC_ERRORS  16u
/* the most bytes of a layout that comes with an OPEN; and of the rest of the reply */
#define WC_OPEN_BYTES 2048u

/* ff_io_latency4 (RFC 8435 section 9.2.1) */
struct wc_lo_traffic {
	uint64_t lt_asked, lt_asked_bytes, lt_done, lt_done_bytes, lt_busy_ns, lt_ns;
	uint64_t lt_since_ns; /* busy since then */
	unsigned lt_under_way;
};

struct wc_lo_ds {
	struct wc_device *ld_dev;
	uint8_t ld_id[NFS4_DEVICEID4_SIZE];
	uint32_t ld_efficiency, ld_uid, ld_gid, ld_nfh, ld_fh_len[WC_FHS];
	uint8_t ld_fh[WC_FHS][64];
	bool ld_usable;
	uint64_t ld_bad_ns; /* as dv_bad_ns, for this object alone */
	struct wc_lo_traffic ld_read, ld_write;
	uint64_t ld_told; /* lt_done of both, when they were last reported */
};

struct wc_lo_error {
	uint64_t le_off, le_len;
	uint32_t le_ds, le_status, le_op;
};

struct wc_layout {
	struct wc_stateid lo_stateid;
	uint64_t lo_off, lo_end, lo_unit;
	uint32_t lo_flags, lo_nmirrors, lo_nds;
	uint32_t lo_first[WC_MIRRORS + 1]; /* index in lo_ds of a mirror's first entry */
	unsigned lo_refs;		   /* calls to data servers in flight */
	struct ds_call *lo_calls;	   /* those for READ, WRITE and COMMIT */
	/* After a recall. 1: no READ or WRITE goes to a data server; 2: nothing does. */
	struct loop_timer lo_timer;
	struct loop *lo_loop;
	unsigned lo_late;
	bool lo_dead; /* the server no longer knows it */
	/* data were written since the last LAYOUTCOMMIT, up to lo_last */
	bool lo_tell;
	uint64_t lo_last;
	uint32_t lo_hint_s; /* how often to report statistics */
	uint64_t lo_since_ns, lo_told_ns;
	struct wc_dirty *lo_dirty, *lo_dirty_last;
	struct wc_lo_error lo_error[WC_ERRORS];
	uint32_t lo_nerrors;
	struct wc_lo_ds lo_ds[];
};

/* True: the operation goes to the data servers. False: it must go through the server. */
bool wc_lo_io(struct wc_io *io);
/* COMMIT of data at a layout's data servers. */
void wc_lo_flush(struct wc_io *io);
/* When all calls of an operation have ended: sends LAYOUTCOMMIT. */
void wc_lo_tell(struct wc_io *io);
/* After a recall: what failed at a data server goes through the server when that has the layout, or
 * the return would wait for its turn behind it. False: it may go now. */
bool wc_lo_later(struct wc_layout *lo, struct wc_io *io, uint64_t off, const uint8_t *buf,
		 uint32_t len);
/* For CLOSE. False: there is no layout to return. */
bool wc_lo_close(struct weft_file *f, struct weft_op *op);
void wc_lo_give_back(struct weft_file *f);
void wc_lo_ref_put(struct weft_file *f, struct wc_layout *lo);
bool wc_lo_dirty(struct weft_file *f, struct wc_layout *lo, const struct wc_dirty *d);
/* The server has lost all layouts. */
void wc_lo_lost(struct weft_file *f);
void wc_lo_free(struct weft_file *f);
/* True when two entries of a layout name one object. */
bool wc_lo_same(const struct wc_layout *lo, uint32_t a, uint32_t b);
/* Devices are known now: continues files that wait. */
void wc_lo_go_on(struct weft *w);
uint32_t wc_lo_recall(struct weft *w, struct xdr_in *x);
/* LAYOUTGET as a part of another call: whether to include it, its arguments, its result (false:
 * there is none, or it failed). */
bool wc_lo_with_open(const struct weft_file *f);
void wc_lo_put_get(struct wc_call *c, struct xdr_out *x, const struct weft_file *f,
		   const struct wc_stateid *si, uint32_t most);
bool wc_lo_res_get(struct wc_res *r, struct weft_file *f, struct wc_stateid *si);
/* OPEN with its LAYOUTGET is over. stale: a recall came meanwhile. */
void wc_lo_opened(struct weft_file *f, const struct wc_stateid *si, int err, uint32_t status,
		  bool stale);
/* LAYOUTRETURN as a part of CLOSE. */
void wc_lo_put_return(struct wc_call *c, struct xdr_out *x, const struct weft_file *f);
bool wc_lo_res_return(struct wc_res *r);
#endif
