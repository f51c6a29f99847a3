/* SPDX-License-Identifier: Apache-2.0 */
/* session.h - a client's life: set-up, connections, recovery, renewal, its end. */
#ifndef CLIENT_SESSION_H
#define CLIENT_SESSION_H
#include "base/loop.h"
#include "client/weft.h"
#include "proto/nfs4.h"
#include "proto/rpc.h"

struct wc_call;
struct wc_device;
struct wc_kind;

#define WC_MAX_IO (1u << 20)
/* Bytes of a COMPOUND around the payload of a READ or WRITE, at most. */
#define WC_FRAME    4096u
#define WC_BUCKETS  1024u
#define WC_CB_SLOTS 8
#define WC_CB_BYTES 4096u

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
#endif
