/*
 * int.h - what the files of libweft share.
 *
 *   ring.c      rings: submitting and reaping
 *   session.c   a client's life: set-up, connections, recovery, renewal, its end
 *   call.c      one COMPOUND: slots, sending, what its reply means for the session
 *   res.c       results and attributes, by cursor; errors
 *   op.c        operations on names; open.c: on open files; io.c: data through the server
 *   layout.c    layouts: getting them, giving them back; device.c: who a layout names; ds.c: data
 *               straight to and from those; report.c: what the server is
 *               told of those
 *   back.c      calls of the server
 *
 * A call (struct wc_call) is one COMPOUND that is sent until it is answered. It puts its operations
 * anew each time it is begun (k_put), and takes the results apart inside of the reply (k_got);
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
/* of a layout that comes with an OPEN, at most; and of the rest of the reply */
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
	unsigned r_conns; /* that have not ended */
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
	uint32_t r_status; /* of the compound; the first that is not OK ends it */
	bool r_failed;	   /* a result was not OK: it is r_status */
	bool r_bad;
};

struct wc_call;
struct wc_kind {
	void (*k_put)(struct wc_call *c, struct xdr_out *x);
	void (*k_got)(struct wc_call *c, struct wc_res *r);
	void (*k_end)(struct wc_call *c, int err, uint32_t status);
	bool k_cache; /* not idempotent: the server is to keep the reply */
	bool k_bare;  /* no SEQUENCE */
	/* part of a recovery: it does not wait for one's end, and ends with the session's error
	 * instead of waiting for another */
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
	uint64_t c_gen; /* the session that the slot is of */
	bool c_queued, c_null, c_parsed;
	bool c_recalled; /* a layout was recalled since it was put last */
	bool c_given_up; /* it went out in its slot, and its connection was lost */
	uint32_t c_delay_ms, c_rounds;
	uint64_t c_since_ns;
	/* What the reply said. */
	int c_err;
	uint32_t c_status;
	bool c_seq_ok;
	/* Of the kinds. */
	uint32_t c_n, c_at, c_how, c_state_rounds;
	uint64_t c_off, c_verf, c_file_gen;
	uint8_t *c_buf;
	bool c_eof;
	struct wc_stateid c_stateid;
	bool c_lo; /* a layout is asked for, or given back, with it */
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
	uint32_t cs_len; /* the last reply, or 0 */
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
	bool w_no_flex; /* but not of our kind: they are not asked for with an OPEN */
	/* the last OPEN had an mdsthreshold: what is to be asked for is known after it */
	bool w_threshold;
	bool w_no_report, w_no_stats; /* it takes no LAYOUTERROR, no LAYOUTSTATS */
	/* step: a call of the set-up is under way, or its timer runs */
	bool w_have_client, w_have_session, w_step;
	bool w_reclaimed; /* RECLAIM_COMPLETE was answered for w_clientid */
	bool w_lost_state, w_spoiled;
	uint64_t w_clientid;
	uint32_t w_create_seq;
	uint8_t w_session[NFS4_SESSIONID_SIZE];
	uint64_t w_gen;
	struct loop_timer w_setup_timer, w_tick;
	uint32_t w_setup_wait_ms;
	uint64_t w_used_ns; /* when a SEQUENCE was sent last */
	/* Channel and server limits. */
	uint32_t w_max_req, w_max_resp, w_max_cached, w_max_ops, w_lease_s, w_max_read, w_max_write;
	/* Slots: a bit is set while one is in use. */
	struct wc_slot w_slots[WEFT_MAX_SLOTS];
	uint64_t w_busy[WEFT_MAX_SLOTS / 64];
	uint32_t w_nslots, w_target;
	struct wc_call *w_queue, **w_queue_end, *w_urgent;
	struct wc_call *w_all;
	bool w_bind_again, w_renewing;
	struct weft_file *w_files, *w_buckets[WC_BUCKETS]; /* buckets: the same, by handle */
	uint64_t w_next_owner;
	unsigned w_reclaiming;
	bool w_reclaim_cut;
	void (*w_reclaim_done)(struct weft *w, bool cut);
	/* Backchannel */
	struct wc_cb_slot w_cb[WC_CB_SLOTS];
	struct wc_device *w_devices;
	unsigned w_ds_calls; /* under way */
	uint64_t w_nsessions, w_resent, w_callbacks, w_rewritten, w_nlayouts, w_ds_reads,
		w_ds_writes, w_ds_errors, w_ds_rdma, w_ds_direct, w_recalls, w_reports, w_steered;
	uint64_t w_stats_ns; /* when files were looked through last for statistics to tell */
};

/* Data that the server may still lose: WC_MAX_IO bytes at most. A later WRITE takes its part out of
 * it; nothing left: d_len is 0. */
struct wc_dirty {
	struct wc_dirty *d_next;
	struct wc_dirty *d_same, **d_at; /* of its file, in f_places; NULL: it is not there */
	uint64_t d_off, d_verf;
	const uint8_t *d_buf;
	uint32_t d_len;
	uint32_t d_ds; /* of a layout: which of its servers */
	bool d_forced; /* it is to be written again whatever the verifier says */
};

/* An operation on data, of several calls. */
struct wc_io {
	struct weft_op *io_op;
	struct weft_file *io_file; /* NULL: READ without an open */
	struct wc_io *io_next;
	unsigned io_pending;
	uint64_t io_end; /* READ: where the data that are there end */
	bool io_eof;	 /* that is the end of the file */
	/* the server is to be told of what was written elsewhere (LAYOUTCOMMIT), when all calls
	 * have ended */
	bool io_tell;
	int io_err;
	uint32_t io_status;
	uint32_t io_stable;
	/* COMMIT: what it is about, with the server and with a layout's servers */
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
	bool dv_again;	    /* it did not answer: perhaps it is elsewhere by now */
	uint64_t dv_bad_ns; /* until then copies elsewhere are read first */
	char dv_netid[8], dv_uaddr[128];
	/* The same by RDMA; dv_rlen 0: there is none. */
	struct sockaddr_storage dv_raddr;
	socklen_t dv_rlen;
	uint64_t dv_no_rdma_ns; /* until then it is not tried: it failed */
	struct sockaddr_storage dv_addr;
	socklen_t dv_len;
	unsigned dv_version; /* which of the versions, and so of the handles */
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
	uint64_t ld_told; /* lt_done of both, when they were told last */
};

struct wc_lo_error {
	uint64_t le_off, le_len;
	uint32_t le_ds, le_status, le_op;
};

struct wc_layout {
	struct wc_stateid lo_stateid;
	uint64_t lo_off, lo_end, lo_unit;
	uint32_t lo_flags, lo_nmirrors, lo_nds;
	uint32_t lo_first[WC_MIRRORS + 1]; /* of a mirror, in lo_ds */
	unsigned lo_refs;		   /* calls to data servers under way */
	bool lo_dead;			   /* the server knows it no more */
	/* something was written since the last LAYOUTCOMMIT, up to lo_last */
	bool lo_tell;
	uint64_t lo_last;
	uint32_t lo_hint_s; /* how often statistics are told */
	uint64_t lo_since_ns, lo_told_ns;
	struct wc_dirty *lo_dirty, *lo_dirty_last;
	struct wc_lo_error lo_error[WC_ERRORS];
	uint32_t lo_nerrors;
	struct wc_lo_ds lo_ds[];
};

/* NONE: asked for when there is I/O. OFF: not before f_lo_off_ns. */
enum wc_lo_state { WC_LO_NONE, WC_LO_ASKED, WC_LO_DEVICES, WC_LO_HELD, WC_LO_RETURNING, WC_LO_OFF };

/* mdsthreshold (RFC 8881 section 5.12.6) for layouts of our kind: what is less goes through the
 * server. 0: no such limit. */
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
	struct wc_call *f_reopen; /* under way */
	bool f_linked, f_delegated;
	struct wc_stateid f_deleg; /* that nobody asked for */
	struct wc_dirty *f_dirty, *f_dirty_last;
	/* all records by where they begin, wherever they are listed: WC_PLACES chains */
	struct wc_dirty **f_places;
	struct wc_io *f_commits; /* the first is under way */
	int f_commit_err; /* of what was committed without being asked: the next COMMIT tells */
	uint32_t f_commit_status;
	enum wc_lo_state f_lo_state;
	struct wc_layout *f_lo;
	struct wc_io *f_lo_wait, *f_lo_wait_last; /* until it is known whether there is a layout */
	struct weft_op *f_lo_close;		  /* a CLOSE that waits for the layout's end */
	uint64_t f_lo_off_ns;
	unsigned f_lo_failures;
	struct wc_limits f_limits;
	uint64_t f_size;    /* as far as we know */
	bool f_lo_flushing; /* RETURNING, and no I/O is left but that of the way back */
};

/* ---- ring.c ---- */
void wc_op_end(struct weft_op *op, int err, uint32_t status);
/* Lets the ring's loop run until stop says so, or for timeout_ms (-1: any time). */
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
/* Calls end with this, now and from now on. */
void wc_fail(struct weft *w, int err);
/* Of SEQUENCE: sr_status_flags. */
void wc_seq_flags(struct weft *w, uint32_t flags);

/* ---- call.c ---- */
/* NULL without memory. */
struct wc_call *wc_call_new(struct weft *w, const struct wc_kind *kind, struct weft_op *op,
			    void *arg);
void wc_call_send(struct wc_call *c);
/* A bare one, on this connection. */
void wc_call_send_on(struct wc_call *c, struct wc_conn *cn);
/* From k_end: another round of the same call, at its place or after a pause. */
void wc_call_again(struct wc_call *c, uint32_t pause_ms);
void wc_pump(struct weft *w);
void wc_call_op(struct wc_call *c, struct xdr_out *x, uint32_t op);
/* The calls that wait end when they are too old. */
void wc_calls_expire(struct weft *w);
void wc_calls_fail(struct weft *w, int err);
void wc_null(struct weft *w, struct weft_op *op);
void wc_call_parse(struct wc_call *c, struct xdr_in *x);
/* Without a transport, for the fuzzer: the first call that waits, as if it was sent; and its
 * reply. */
struct wc_call *wc_call_take(struct weft *w);
void wc_call_feed(struct wc_call *c, struct xdr_in *x);
/* The payload of a WRITE, by reference. */
void wc_put_payload(struct wc_call *c, struct xdr_out *x, const void *data, uint32_t n);

/* ---- res.c ---- */
bool wc_res_op(struct wc_res *r, uint32_t op);
void wc_put_fh(struct wc_call *c, struct xdr_out *x, const struct weft_fh *fh);
bool wc_res_fh(struct wc_res *r, const struct weft_fh *fh);
bool wc_get_fh(struct wc_res *r, struct weft_fh *fh); /* GETFH */
void wc_put_stateid(struct xdr_out *x, const struct wc_stateid *si);
void wc_get_stateid(struct xdr_in *x, struct wc_stateid *si);
/* An owner that is a number as a name (RFC 8881 section 5.9); false: it is another name. */
bool wc_get_id(struct xdr_in *x, uint32_t *id);
void wc_put_getattr(struct wc_call *c, struct xdr_out *x);
bool wc_res_attr(struct wc_res *r, struct weft_attr *a);
/* The same with the limits. */
void wc_put_getattr_limits(struct wc_call *c, struct xdr_out *x);
bool wc_res_attr_limits(struct wc_res *r, struct weft_attr *a, struct wc_limits *th);
/* The words of what is asked for; of READDIR with handle. */
void wc_put_mask(struct xdr_out *x, bool readdir);
void wc_put_bits(struct xdr_out *x, const unsigned *bits, unsigned n);
/* Words beyond the third are skipped. */
void wc_get_bits(struct xdr_in *x, uint32_t mask[3]);
/* fattr4. fh and th may be NULL. */
void wc_get_attrs(struct xdr_in *x, struct weft_attr *a, struct weft_fh *fh, struct wc_limits *th);
void wc_put_attrs(struct xdr_out *x, const struct weft_attr *a, uint32_t which);
int wc_errno(uint32_t status);

/* ---- op.c, open.c, io.c ---- */
/* Begins an operation. */
void wc_op_begin(struct weft_op *op);
void wc_open_begin(struct weft_op *op);
void wc_close_begin(struct weft_op *op);
void wc_io_begin(struct weft_op *op);
void wc_commit_begin(struct weft_op *op);
/* The server says that this file's state is none (gen: as it was when the call was put): it is
 * opened again, once for all. */
void wc_file_lost(struct weft_file *f, uint64_t gen);
/* All of a client's are to be reclaimed; then done. cut: a loss came between, and it is to be done
 * again. */
void wc_files_reclaim(struct weft *w, void (*done)(struct weft *w, bool cut));
void wc_file_free(struct weft_file *f);
/* Of the open files with this handle, the first; then f_bucket, as far as wc_fh_is. */
struct weft_file *wc_files_of(struct weft *w, const struct weft_fh *fh);
bool wc_fh_is(const struct weft_file *f, const struct weft_fh *fh);
/* CLOSE; what layout the file has goes back with it. */
void wc_close_send(struct weft_file *f, struct weft_op *op);
bool wc_state_error(uint32_t status);

void wc_io_put_down(struct wc_io *io);
void wc_io_failed(struct wc_io *io, int err, uint32_t status);
void wc_io_read_ends(struct wc_io *io, uint64_t end);
/* A range of it, through the server. */
void wc_io_through(struct wc_io *io, uint64_t off, const uint8_t *buf, uint32_t len);
/* From its beginning, all of it. */
void wc_io_through_all(struct wc_io *io);
/* A file's size was set: what was written behind it is not written again, nor is the server told of
 * it, by none of the files that have it open. */
void wc_io_cut(struct weft *w, const struct weft_fh *fh, uint64_t size);
void wc_dirty_free(struct wc_dirty *d);
/* A copy of d; the caller lists it. NULL without memory. */
struct wc_dirty *wc_dirty_new(struct weft_file *f, const struct wc_dirty *d);
void wc_close_now(struct weft_file *f, struct weft_op *op);

/* ---- layout.c ---- */
/* True: it goes on there. Else it is one for the server. */
bool wc_lo_io(struct wc_io *io);
/* COMMIT of what a layout's servers have. */
void wc_lo_flush(struct wc_io *io);
/* When all calls of an operation have ended: tells the server of it. */
void wc_lo_tell(struct wc_io *io);
/* A CLOSE: false when there is nothing to give back. */
bool wc_lo_close(struct weft_file *f, struct weft_op *op);
void wc_lo_give_back(struct weft_file *f);
void wc_lo_ref_put(struct weft_file *f, struct wc_layout *lo);
bool wc_lo_dirty(struct weft_file *f, struct wc_layout *lo, const struct wc_dirty *d);
/* The server has lost all layouts. */
void wc_lo_lost(struct weft_file *f);
void wc_lo_free(struct weft_file *f);
/* Whether two places of a layout name one object. */
bool wc_lo_same(const struct wc_layout *lo, uint32_t a, uint32_t b);
/* Devices are known now: files that wait go on. */
void wc_lo_go_on(struct weft *w);
uint32_t wc_lo_recall(struct weft *w, struct xdr_in *x);
/* LAYOUTGET as a part of another call: whether it is to be one, its arguments, its result (false:
 * there is none, or it failed). */
bool wc_lo_with_open(const struct weft_file *f);
void wc_lo_put_get(struct wc_call *c, struct xdr_out *x, const struct weft_file *f,
		   const struct wc_stateid *si, uint32_t most);
bool wc_lo_res_get(struct wc_res *r, struct weft_file *f, struct wc_stateid *si);
/* OPEN is over, and LAYOUTGET in it. stale: a recall came meanwhile. */
void wc_lo_opened(struct weft_file *f, const struct wc_stateid *si, int err, uint32_t status,
		  bool stale);
/* LAYOUTRETURN as a part of CLOSE. */
void wc_lo_put_return(struct wc_call *c, struct xdr_out *x, const struct weft_file *f);
bool wc_lo_res_return(struct wc_res *r);

/* ---- report.c ---- */
/* Goes with the layout's return. */
void wc_lo_error(struct wc_layout *lo, uint32_t ds, uint64_t off, uint64_t len, uint32_t status,
		 uint32_t op);
/* Goes at once, and the layout stays. False: the server takes no such report. */
bool wc_lo_report(struct weft_file *f, const struct wc_layout *lo, uint32_t ds, uint64_t off,
		  uint64_t len, uint32_t status, uint32_t op);
void wc_lo_begins(struct weft *w, struct wc_lo_traffic *lt, uint32_t bytes);
/* began_ns: of this request; bytes 0: it failed. */
void wc_lo_ends(struct weft *w, struct wc_lo_traffic *lt, uint64_t began_ns, uint32_t bytes);
/* ff_layoutreturn4 (RFC 8435 section 9.3) */
void wc_lo_put_reports(struct weft *w, struct xdr_out *x, const struct wc_layout *lo);
/* Now and then: of layouts whose time has come. */
void wc_lo_tell_stats(struct weft *w);
extern const struct wc_kind wc_report_kind, wc_stats_kind;

/* ---- device.c ---- */
/* By its id; asked for when it is not known. NULL without memory. */
struct wc_device *wc_device_get(struct weft *w, const uint8_t id[NFS4_DEVICEID4_SIZE]);
/* Calls end; none begins again once the client is closing. */
void wc_devices_drop(struct weft *w);
void wc_devices_free(struct weft *w);
struct rpc_client *wc_device_client(struct weft *w, struct wc_device *dv);
bool wc_device_may_rdma(const struct weft *w, const struct wc_device *dv);
/* It failed there: TCP for a while. */
void wc_device_no_rdma(struct weft *w, struct wc_device *dv);

/* ---- ds.c ---- */
/* A part of an operation, within one stripe unit. */
void wc_ds_read(struct wc_io *io, struct wc_layout *lo, uint64_t off, uint8_t *buf, uint32_t len);
void wc_ds_write(struct wc_io *io, struct wc_layout *lo, uint64_t off, const uint8_t *buf,
		 uint32_t len);
/* Of what io_dirty has of this server. */
void wc_ds_commit(struct wc_io *io, struct wc_layout *lo, uint32_t ds);
uint32_t wc_lo_index(const struct wc_layout *lo, unsigned mirror, uint64_t off);

/* ---- back.c ---- */
extern const struct rpc_service wc_back_service;
void wc_back_reset(struct weft *w);
/* CB_COMPOUND. False: its arguments are garbage. */
bool wc_back_compound(struct weft *w, struct xdr_in *x, struct xdr_out *out);
#endif
