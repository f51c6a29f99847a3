/* SPDX-License-Identifier: Apache-2.0 */
/*
 * int.h - what the files of libweft share.
 *
 *   ring.c      rings: submitting and reaping
 *   session.c   a client's life: set-up, connections, recovery, renewal, its end
 *   call.c      one COMPOUND: slots, sending, what its reply means for the session
 *   res.c       results and attributes, by cursor; errors
 *   op.c        operations on names; open.c: on open files; io.c: data through the server
 *   layout.c    layouts: getting and returning them; device.c: the data servers of a layout; ds.c:
 *               data straight to and from them; report.c: reports about them to the server
 *   back.c      the backchannel: calls of the server
 *
 * A call (struct wc_call) is one COMPOUND that is sent until it is answered. It encodes its
 * operations each time it is started (k_put), and decodes the results inside the reply (k_got).
 * k_end is called when the call is over and nothing refers to its memory.
 */
#ifndef CLIENT_INT_H
#define CLIENT_INT_H
#include "base/loop.h"
#include "client/weft.h"
#include "proto/nfs4.h"
#include "proto/rpc.h"

#define WC_MAX_IO (1u << 20)
/* Bytes of a COMPOUND around the payload of a READ or WRITE, at most. */
#define WC_FRAME  4096u
#define WC_PLACES 256u
/* the most bytes of a layout that comes with an OPEN; and of the rest of the reply */
#define WC_OPEN_BYTES 2048u
#define WC_BUCKETS    1024u
#define WC_CB_SLOTS   8
#define WC_CB_BYTES   4096u

struct weft_ring {
	struct loop *r_loop;
	struct weft_op *r_ended, **r_ended_end; /* without o_done */
	struct weft_op *r_new, **r_new_end;	/* submitted between two runs */
	struct loop_msg r_msg;
	bool r_posted, r_running, r_once;
	const struct weft_op *r_wait; /* weft_do waits for it */
	uint64_t r_nended;
	unsigned r_conns; /* connections that have not ended */
	bool r_rdma;
	struct loop_timer r_timer;
};

struct wc_stateid {
	uint32_t si_seq;
	uint8_t si_other[NFS4_OTHER_SIZE];
};

/* Results, one after the other. */
struct wc_res {
	struct xdr_in *x;
	uint32_t r_left;   /* results that follow */
	uint32_t r_status; /* of the COMPOUND; the first result that is not OK ends it */
	bool r_failed;	   /* a result was not OK: it is r_status */
	bool r_bad;
};

struct wc_call;
struct wc_kind {
	void (*k_put)(struct wc_call *c, struct xdr_out *x);
	void (*k_got)(struct wc_call *c, struct wc_res *r);
	void (*k_end)(struct wc_call *c, int err, uint32_t status);
	bool k_cache; /* not idempotent: the server must cache the reply */
	bool k_bare;  /* no SEQUENCE */
	/* part of a recovery: does not wait for a recovery's end, and ends with the session's error
	 * instead of waiting for another session */
	bool k_urgent;
};

struct wc_call {
	struct weft *c_w;
	const struct wc_kind *c_kind;
	void *c_arg;
	struct weft_op *c_op;
	struct wc_call *c_next, *c_all_next, *c_all_prev;
	struct rpc_req c_rpc;
	struct wc_conn *c_conn;
	struct loop_timer c_timer;
	unsigned c_holds; /* the reply, and payload that the transport has */
	uint32_t c_nops;
	int c_slot;	/* -1: none */
	uint64_t c_gen; /* the session that the slot belongs to */
	bool c_queued, c_null, c_parsed;
	bool c_recalled; /* a layout was recalled since k_put ran last */
	bool c_given_up; /* it was sent in its slot, and its connection was lost */
	uint32_t c_delay_ms, c_rounds;
	uint64_t c_since_ns;
	/* The reply's result. */
	int c_err;
	uint32_t c_status;
	bool c_seq_ok;
	/* For the kinds. */
	uint32_t c_n, c_at, c_how, c_state_rounds;
	uint64_t c_off, c_verf, c_file_gen;
	uint8_t *c_buf;
	bool c_eof;
	struct wc_stateid c_stateid;
	bool c_lo; /* it asks for a layout, or returns one */
	struct wc_stateid c_lo_stateid;
	uint32_t c_lo_status;
	void *c_more;
};

struct wc_slot {
	uint32_t sl_seq; /* of the next call */
	bool sl_retired; /* the server took it away for a while */
};

struct wc_conn {
	struct weft *cn_w;
	struct rpc_client *cn_client;
	struct rpc_conn *cn_conn; /* while it is up */
	bool cn_bound;
};

struct wc_cb_slot {
	uint32_t cs_seq;
	uint32_t cs_len; /* the last reply's length, or 0 */
	uint8_t cs_reply[WC_CB_BYTES];
};

enum wc_state { WC_SETUP, WC_READY, WC_CLOSING, WC_FAILED };

struct weft {
	struct weft_ring *w_ring;
	struct loop *w_loop;
	struct weft_opts w_opts;
	char w_owner[256];
	struct rpc_cred w_cred;
	uint8_t w_verifier[NFS4_VERIFIER_SIZE];
	enum wc_state w_state;
	int w_err; /* WC_FAILED: why */
	unsigned w_minor;
	struct wc_conn w_conns[WEFT_MAX_CONNS];
	unsigned w_nconns, w_turn;
	/* The client and its session. */
	bool w_pnfs;	/* the server gives layouts */
	bool w_no_flex; /* but none of type Flex Files: OPEN does not ask for them */
	/* the last OPEN had an mdsthreshold: only after OPEN is it known what to ask for */
	bool w_threshold;
	bool w_no_report, w_no_stats; /* the server takes no LAYOUTERROR, no LAYOUTSTATS */
	/* w_step: a call of the set-up is in flight, or its timer runs */
	bool w_have_client, w_have_session, w_step;
	bool w_reclaimed; /* RECLAIM_COMPLETE was answered for w_clientid */
	bool w_lost_state, w_spoiled;
	uint64_t w_clientid;
	uint32_t w_create_seq;
	uint8_t w_session[NFS4_SESSIONID_SIZE];
	uint64_t w_gen;
	struct loop_timer w_setup_timer, w_tick;
	uint32_t w_setup_wait_ms;
	uint64_t w_used_ns; /* when the last SEQUENCE was sent */
	/* Channel and server limits. */
	uint32_t w_max_req, w_max_resp, w_max_cached, w_max_ops, w_lease_s, w_max_read, w_max_write;
	/* Slots: a bit is set while one is in use. */
	struct wc_slot w_slots[WEFT_MAX_SLOTS];
	uint64_t w_busy[WEFT_MAX_SLOTS / 64];
	uint32_t w_nslots, w_target;
	struct wc_call *w_queue, **w_queue_end, *w_urgent;
	struct wc_call *w_all;
	bool w_bind_again, w_renewing;
	struct weft_file *w_files, *w_buckets[WC_BUCKETS]; /* buckets: the same files, by handle */
	uint64_t w_next_owner;
	unsigned w_reclaiming;
	bool w_reclaim_cut;
	void (*w_reclaim_done)(struct weft *w, bool cut);
	/* Backchannel */
	struct wc_cb_slot w_cb[WC_CB_SLOTS];
	struct wc_device *w_devices;
	unsigned w_ds_calls; /* in flight */
	uint64_t w_nsessions, w_resent, w_callbacks, w_rewritten, w_nlayouts, w_ds_reads,
		w_ds_writes, w_ds_errors, w_ds_rdma, w_ds_direct, w_recalls, w_reports, w_steered;
	uint64_t w_stats_ns; /* when files were last checked for statistics to report */
};

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

/* ---- layouts (RFC 8435) ---- */

#define WC_FHS	   4
#define WC_MIRRORS 16u
#define WC_LO_DS   4096u
#define WC_ERRORS  16u

enum wc_dev_state { WC_DEV_ASKED, WC_DEV_GOOD, WC_DEV_BAD };
struct wc_device {
	struct wc_device *dv_next;
	uint8_t dv_id[NFS4_DEVICEID4_SIZE];
	enum wc_dev_state dv_state;
	bool dv_again;	    /* it did not answer: it may have another address by now */
	uint64_t dv_bad_ns; /* until then other mirrors are read first */
	char dv_netid[8], dv_uaddr[128];
	/* The same by RDMA; dv_rlen 0: there is none. */
	struct sockaddr_storage dv_raddr;
	socklen_t dv_rlen;
	uint64_t dv_no_rdma_ns; /* until then RDMA is not tried: it failed */
	struct sockaddr_storage dv_addr;
	socklen_t dv_len;
	unsigned dv_version; /* index of the chosen version, and so of the file handle */
	uint32_t dv_rsize, dv_wsize;
	struct rpc_client *dv_client; /* connected to dv_at */
	bool dv_is_rdma;	      /* by RDMA */
	struct sockaddr_storage dv_at;
	socklen_t dv_at_len;
};

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
	bool lo_dead;			   /* the server no longer knows it */
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

/* NONE: ask when there is I/O. OFF: do not ask before f_lo_off_ns. */
enum wc_lo_state { WC_LO_NONE, WC_LO_ASKED, WC_LO_DEVICES, WC_LO_HELD, WC_LO_RETURNING, WC_LO_OFF };

/* mdsthreshold (RFC 8881 section 5.12.6) for Flex Files layouts: smaller files or I/O go through
 * the server. 0: no such limit. */
struct wc_limits {
	uint64_t th_read_size, th_write_size, th_read_io, th_write_io;
};

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
	struct weft_op *f_lo_close; /* a CLOSE that waits for the layout's end */
	uint64_t f_lo_off_ns;
	unsigned f_lo_failures;
	struct wc_limits f_limits;
	uint64_t f_size;    /* as far as the client knows */
	bool f_lo_flushing; /* RETURNING, and the only I/O left is that of the return */
};

/* ---- ring.c ---- */
void wc_op_end(struct weft_op *op, int err, uint32_t status);
/* Runs the ring's loop until wc_ring_poke, or for timeout_ms (-1: no limit). */
void wc_ring_run(struct weft_ring *r, int timeout_ms);
void wc_ring_poke(struct weft_ring *r); /* ends the run */
struct weft_ring *wc_ring_of(struct loop *l);

/* ---- session.c ---- */
#define WC_STEPS 6
extern const struct wc_kind *const wc_steps[WC_STEPS];
void wc_session_lost(struct weft *w);
void wc_client_lost(struct weft *w);
void wc_setup_go(struct weft *w);
void wc_bind(struct wc_conn *cn);
/* Ends all calls with this error, now and from now on. */
void wc_fail(struct weft *w, int err);
/* The sr_status_flags of a SEQUENCE. */
void wc_seq_flags(struct weft *w, uint32_t flags);

/* ---- call.c ---- */
/* NULL without memory. */
struct wc_call *wc_call_new(struct weft *w, const struct wc_kind *kind, struct weft_op *op,
			    void *arg);
void wc_call_send(struct wc_call *c);
/* Sends a bare call on this connection. */
void wc_call_send_on(struct wc_call *c, struct wc_conn *cn);
/* From k_end: another round of the same call, in its place or after a pause. */
void wc_call_again(struct wc_call *c, uint32_t pause_ms);
void wc_pump(struct weft *w);
void wc_call_op(struct wc_call *c, struct xdr_out *x, uint32_t op);
/* Ends waiting calls that are too old. */
void wc_calls_expire(struct weft *w);
void wc_calls_fail(struct weft *w, int err);
void wc_null(struct weft *w, struct weft_op *op);
void wc_call_parse(struct wc_call *c, struct xdr_in *x);
/* Without a transport, for the fuzzer: takes the first call that waits, as if it was sent; and
 * feeds it a reply. */
struct wc_call *wc_call_take(struct weft *w);
void wc_call_feed(struct wc_call *c, struct xdr_in *x);
/* Puts the payload of a WRITE, by reference. */
void wc_put_payload(struct wc_call *c, struct xdr_out *x, const void *data, uint32_t n);

/* ---- res.c ---- */
bool wc_res_op(struct wc_res *r, uint32_t op);
void wc_put_fh(struct wc_call *c, struct xdr_out *x, const struct weft_fh *fh);
bool wc_res_fh(struct wc_res *r, const struct weft_fh *fh);
bool wc_get_fh(struct wc_res *r, struct weft_fh *fh); /* GETFH */
void wc_put_stateid(struct xdr_out *x, const struct wc_stateid *si);
void wc_get_stateid(struct xdr_in *x, struct wc_stateid *si);
/* Reads an owner whose name is a number (RFC 8881 section 5.9); false: it is another name. */
bool wc_get_id(struct xdr_in *x, uint32_t *id);
void wc_put_getattr(struct wc_call *c, struct xdr_out *x);
bool wc_res_attr(struct wc_res *r, struct weft_attr *a);
/* As the two above, with the limits. */
void wc_put_getattr_limits(struct wc_call *c, struct xdr_out *x);
bool wc_res_attr_limits(struct wc_res *r, struct weft_attr *a, struct wc_limits *th);
/* Puts the bitmap of the attributes to ask for; readdir: with the file handle. */
void wc_put_mask(struct xdr_out *x, bool readdir);
void wc_put_bits(struct xdr_out *x, const unsigned *bits, unsigned n);
/* Skips words beyond the third. */
void wc_get_bits(struct xdr_in *x, uint32_t mask[3]);
/* Reads fattr4. fh and th may be NULL. */
void wc_get_attrs(struct xdr_in *x, struct weft_attr *a, struct weft_fh *fh, struct wc_limits *th);
void wc_put_attrs(struct xdr_out *x, const struct weft_attr *a, uint32_t which);
int wc_errno(uint32_t status);

/* ---- op.c, open.c, io.c ---- */
/* These begin an operation. */
void wc_op_begin(struct weft_op *op);
void wc_open_begin(struct weft_op *op);
void wc_close_begin(struct weft_op *op);
void wc_io_begin(struct weft_op *op);
void wc_commit_begin(struct weft_op *op);
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
void wc_close_now(struct weft_file *f, struct weft_op *op);

/* ---- layout.c ---- */
/* True: the operation goes to the data servers. False: it must go through the server. */
bool wc_lo_io(struct wc_io *io);
/* COMMIT of data at a layout's data servers. */
void wc_lo_flush(struct wc_io *io);
/* When all calls of an operation have ended: sends LAYOUTCOMMIT. */
void wc_lo_tell(struct wc_io *io);
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

/* ---- report.c ---- */
/* Records an error that is reported with the layout's return. */
void wc_lo_error(struct wc_layout *lo, uint32_t ds, uint64_t off, uint64_t len, uint32_t status,
		 uint32_t op);
/* Reports an error at once; the layout stays. False: the server takes no such report. */
bool wc_lo_report(struct weft_file *f, const struct wc_layout *lo, uint32_t ds, uint64_t off,
		  uint64_t len, uint32_t status, uint32_t op);
void wc_lo_begins(struct weft *w, struct wc_lo_traffic *lt, uint32_t bytes);
/* began_ns: of this request; bytes 0: it failed. */
void wc_lo_ends(struct weft *w, struct wc_lo_traffic *lt, uint64_t began_ns, uint32_t bytes);
/* ff_layoutreturn4 (RFC 8435 section 9.3) */
void wc_lo_put_reports(struct weft *w, struct xdr_out *x, const struct wc_layout *lo);
/* Reports statistics of layouts whose time has come; called now and then. */
void wc_lo_tell_stats(struct weft *w);
extern const struct wc_kind wc_report_kind, wc_stats_kind;

/* ---- device.c ---- */
/* Finds a device by its id; asks the server for an unknown one. NULL without memory. */
struct wc_device *wc_device_get(struct weft *w, const uint8_t id[NFS4_DEVICEID4_SIZE]);
/* Ends calls; none begins again once the client is closing. */
void wc_devices_drop(struct weft *w);
void wc_devices_free(struct weft *w);
struct rpc_client *wc_device_client(struct weft *w, struct wc_device *dv);
bool wc_device_may_rdma(const struct weft *w, const struct wc_device *dv);
/* RDMA failed there: use TCP for a while. */
void wc_device_no_rdma(struct weft *w, struct wc_device *dv);

/* ---- ds.c ---- */
/* A part of an operation, within one stripe unit. */
void wc_ds_read(struct wc_io *io, struct wc_layout *lo, uint64_t off, uint8_t *buf, uint32_t len);
void wc_ds_write(struct wc_io *io, struct wc_layout *lo, uint64_t off, const uint8_t *buf,
		 uint32_t len);
/* Commits the data of io_dirty at this data server. */
void wc_ds_commit(struct wc_io *io, struct wc_layout *lo, uint32_t ds);
uint32_t wc_lo_index(const struct wc_layout *lo, unsigned mirror, uint64_t off);

/* ---- back.c ---- */
extern const struct rpc_service wc_back_service;
void wc_back_reset(struct weft *w);
/* CB_COMPOUND. False: its arguments are garbage. */
bool wc_back_compound(struct weft *w, struct xdr_in *x, struct xdr_out *out);
#endif
