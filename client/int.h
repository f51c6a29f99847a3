/*
 * int.h - what the files of libweft share.
 *
 *   ring.c      rings: submitting and reaping
 *   session.c   a client's life: set-up, connections, recovery, renewal, its end
 *   call.c      one COMPOUND: slots, sending, what its reply means for the session
 *   res.c       results and attributes, by cursor; errors
 *   op.c        operations on names; open.c: on open files; io.c: data
 *   back.c      calls of the server
 *
 * A call (struct wc_call) is one COMPOUND that is sent until it is answered. It puts its operations anew each time it is begun
 * (k_put), and takes the results apart inside of the reply (k_got); k_end is called when the call is over and nothing refers to its memory.
 */
#ifndef CLIENT_INT_H
#define CLIENT_INT_H
#include "base/loop.h"
#include "client/weft.h"
#include "proto/nfs4.h"
#include "proto/rpc.h"

#define WC_MAX_IO (1u << 20)
/* Bytes of a COMPOUND around the payload of a READ or WRITE, at most. */
#define WC_FRAME 4096u
#define WC_CB_SLOTS 8
#define WC_CB_BYTES 4096u

struct weft_ring {
	struct loop *r_loop;
	struct weft_op *r_ended, **r_ended_end;	    /* without o_done */
	struct weft_op *r_new, **r_new_end;	    /* submitted between two runs */
	struct loop_msg r_msg;
	bool r_posted, r_running, r_once;
	const struct weft_op *r_wait; /* weft_do waits for it */
	uint64_t r_nended;
	unsigned r_conns; /* that have not ended */
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
	bool k_urgent; /* part of a recovery: it does not wait for one's end, and ends with the session's error instead of waiting for another */
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
	int c_slot; /* -1: none */
	uint64_t c_gen; /* the session that the slot is of */
	bool c_queued, c_null, c_parsed;
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
	bool w_have_client, w_have_session, w_step; /* step: a call of the set-up is under way, or its timer runs */
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
	uint32_t w_max_req, w_max_resp, w_max_ops, w_lease_s, w_max_read, w_max_write;
	/* Slots: a bit is set while one is in use. */
	struct wc_slot w_slots[WEFT_MAX_SLOTS];
	uint64_t w_busy[WEFT_MAX_SLOTS / 64];
	uint32_t w_nslots, w_target;
	struct wc_call *w_queue, **w_queue_end, *w_urgent;
	struct wc_call *w_all;
	bool w_bind_again, w_renewing;
	struct weft_file *w_files;
	uint64_t w_next_owner;
	unsigned w_reclaiming;
	bool w_reclaim_cut;
	void (*w_reclaim_done)(struct weft *w, bool cut);
	/* Backchannel */
	struct wc_cb_slot w_cb[WC_CB_SLOTS];
	uint64_t w_nsessions, w_resent, w_callbacks, w_rewritten;
};

/* Data that the server may still lose. */
struct wc_dirty {
	struct wc_dirty *d_next;
	uint64_t d_off, d_verf;
	const uint8_t *d_buf;
	uint32_t d_len;
};

enum wc_fstate { WC_F_OPEN, WC_F_LOST, WC_F_BAD };
struct weft_file {
	struct weft_file *f_next, *f_prev;
	struct weft *f_w;
	struct weft_fh f_fh;
	struct wc_stateid f_stateid;
	uint64_t f_owner;
	uint32_t f_access; /* OPEN4_SHARE_ACCESS_* */
	enum wc_fstate f_state;
	uint64_t f_gen;	   /* rises with each new stateid */
	struct wc_call *f_reopen; /* under way */
	bool f_linked, f_closing, f_delegated;
	struct wc_stateid f_deleg; /* that nobody asked for */
	struct wc_dirty *f_dirty, *f_dirty_last;
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
struct wc_call *wc_call_new(struct weft *w, const struct wc_kind *kind, struct weft_op *op, void *arg);
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
/* Without a transport, for the fuzzer: the first call that waits, as if it was sent; and its reply. */
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
void wc_put_getattr(struct wc_call *c, struct xdr_out *x);
bool wc_res_attr(struct wc_res *r, struct weft_attr *a);
/* The words of what is asked for; of READDIR with handle. */
void wc_put_mask(struct xdr_out *x, bool readdir);
void wc_put_bits(struct xdr_out *x, const unsigned *bits, unsigned n);
/* Words beyond the third are skipped. */
void wc_get_bits(struct xdr_in *x, uint32_t mask[3]);
/* fattr4. fh may be NULL. */
void wc_get_attrs(struct xdr_in *x, struct weft_attr *a, struct weft_fh *fh);
void wc_put_attrs(struct xdr_out *x, const struct weft_attr *a, uint32_t which);
int wc_errno(uint32_t status);

/* ---- op.c, open.c, io.c ---- */
/* Begins an operation. */
void wc_op_begin(struct weft_op *op);
void wc_open_begin(struct weft_op *op);
void wc_close_begin(struct weft_op *op);
void wc_io_begin(struct weft_op *op);
void wc_commit_begin(struct weft_op *op);
/* The server says that this file's state is none (gen: as it was when the call was put): it is opened again, once for all. */
void wc_file_lost(struct weft_file *f, uint64_t gen);
/* All of a client's are to be reclaimed; then done. cut: a loss came between, and it is to be done again. */
void wc_files_reclaim(struct weft *w, void (*done)(struct weft *w, bool cut));
void wc_file_free(struct weft_file *f);
bool wc_state_error(uint32_t status);

/* ---- back.c ---- */
extern const struct rpc_service wc_back_service;
void wc_back_reset(struct weft *w);
/* CB_COMPOUND. False: its arguments are garbage. */
bool wc_back_compound(struct weft *w, struct xdr_in *x, struct xdr_out *out);
#endif
