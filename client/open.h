/* SPDX-License-Identifier: Apache-2.0 */
/* open.h - open files: OPEN, CLOSE, and their recovery. */
#ifndef CLIENT_OPEN_H
#define CLIENT_OPEN_H
#include "client/res.h"
#include "client/weft.h"

struct wc_call;
struct wc_dirty;
struct wc_io;
struct wc_lo_part;
struct wc_layout;

#define WC_PLACES 256u

/* NONE: ask when there is I/O. OFF: do not ask before f_lo_off_ns. */
enum wc_lo_state { WC_LO_NONE, WC_LO_ASKED, WC_LO_DEVICES, WC_LO_HELD, WC_LO_RETURNING, WC_LO_OFF };

enum wc_fstate { WC_F_OPEN, WC_F_LOST, WC_F_BAD };
struct weft_file {
	struct weft_file *f_next, *f_prev, *f_bucket;
	struct weft *f_w;
	struct weft_fh f_fh;
	struct wc_stateid f_stateid;
	uint64_t f_owner;
	uint32_t f_access; /* OPEN4_SHARE_ACCESS_* */
	enum wc_fstate f_state;
	uint64_t f_gen;		  /* rises with each new stateid */
	struct wc_call *f_reopen; /* in flight */
	bool f_linked, f_delegated;
	struct wc_stateid f_deleg; /* a delegation that the client did not ask for */
	struct wc_dirty *f_dirty, *f_dirty_last;
	/* all records by where they begin, whatever list they are on: WC_PLACES chains */
	struct wc_dirty **f_places;
	struct wc_io *f_commits; /* the first is in flight */
	/* of a COMMIT that the library did itself: the next WEFT_COMMIT reports it */
	int f_commit_err;
	uint32_t f_commit_status;
	enum wc_lo_state f_lo_state;
	struct wc_layout *f_lo;
	/* wait until it is known whether there is a layout */
	struct wc_io *f_lo_wait, *f_lo_wait_last;
	struct wc_lo_part *f_lo_parts; /* for the server, once it has the layout */
	struct weft_op *f_lo_close;    /* a CLOSE that waits for the layout's end */
	uint64_t f_lo_off_ns;
	unsigned f_lo_failures;
	struct wc_limits f_limits;
	uint64_t f_size;    /* as far as the client knows */
	bool f_lo_flushing; /* RETURNING, and the only I/O left is that of the return */
};

/* These begin an operation. */
void wc_open_begin(struct weft_op *op);
void wc_close_begin(struct weft_op *op);
/* The server no longer knows this file's state: opens the file again, once for all calls. gen:
 * f_gen when the call was put. */
void wc_file_lost(struct weft_file *f, uint64_t gen);
/* Reclaims all files of a client, then calls done. cut: state was lost meanwhile, and it must be
 * done again. */
void wc_files_reclaim(struct weft *w, void (*done)(struct weft *w, bool cut));
void wc_file_free(struct weft_file *f);
/* The first of the open files with this handle; go on by f_bucket and check each with wc_fh_is. */
struct weft_file *wc_files_of(struct weft *w, const struct weft_fh *fh);
bool wc_fh_is(const struct weft_file *f, const struct weft_fh *fh);
/* Sends CLOSE, which also returns the file's layout. */
void wc_close_send(struct weft_file *f, struct weft_op *op);
bool wc_state_error(uint32_t status);
void wc_close_now(struct weft_file *f, struct weft_op *op);
#endif
