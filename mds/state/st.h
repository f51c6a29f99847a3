/* SPDX-License-Identifier: Apache-2.0 */
/*
 * st.h - state of clients: sessions, opens, locks, delegations and layouts (RFC 8881 chapters 2.10,
 * 8, 9, 10, 12), in memory, and the durable list of clients.
 *
 * What is durable: one row for each confirmed client (owner, verifier, number), so that after a
 * restart exactly these clients may reclaim. Reclaims rebuild all other state. The boot epoch
 * (ns_super.su_boot) is in every clientid, sessionid and stateid, so the server does not mistake
 * one of an earlier boot for one of this boot. So is the store's identity, which keeps other
 * clusters' ids apart. No client can guess an id (ids.h).
 *
 * Locks, held for table look-ups only, never over I/O, a commit or a send (shard.c):
 * - all (st_all_lock): guards clients, the making and destroying of sessions, the durable list, the
 *   end of grace, callbacks and their queues, asynchronous copies, partial_write.c, and walks over
 *   what one client or all clients have. It keeps out every other holder of state.
 * - a file's (st_file_lock): guards the file, its opens, locks, layouts and delegations, the
 *   requests that wait for them, what was lately seen of the file, and the tables that hold all
 *   this. It is the lock of a shard, chosen by inode number, and the thread's own lock: threads
 *   that work on files of different shards share nothing. A holder may look at what all guards
 *   (is the client gone, its sessions, its revoked stateids, f_npartials), and changes none of it.
 *   Rare work that needs more (a recall, a callback) is done once more under all: see st_work.
 * - the thread's own alone (st_look_lock): what all guards does not change meanwhile.
 * - sp_lock, of a client's stripe: guards its lists of opens and layouts, and its counts. It is
 *   taken last, with the file or all locked. A holder of all walks the lists without it.
 * - se_lock, a session's own: see below. A thread that needs it and all takes all first.
 * Functions say "locked" when the caller must hold the lock of the file that they are about, or
 * all; "all locked" when it must be all. For functions about a client, a session, a callback or
 * grace "locked" means all. "Looked at" means st_look_lock or any of these.
 *
 * The order "register the state, then look with a fresh snapshot; commit a change, then look at the
 * state" holds with a file's lock as it does with all: both looks at the state are under it. What a
 * thread looks at without a lock (st_watched, st_others_have) is written before the registration is
 * over, and read after the commit, in one order for all threads (seq_cst).
 *
 * A request that only reads takes no lock. It writes no cache line that another request writes, be
 * that of another session or of another connection of the same session:
 * - It finds its session by RCU (st_session_find), and its slot, which has a cache line of its own.
 *   It takes the slot by compare-and-swap (slot.c) and keeps it until it is answered. What all
 *   slots of a session share is written when it changes, under se_lock. Threads take locks in this
 *   order: all or a file's, cl_lock, se_lock.
 * - Whether a client has requests under way, and when it was last heard, is read from its slots
 *   when this is needed (st_silent_ns).
 * - It asks st_watched() first whether a file has state on which an answer about it depends. That
 *   reads a table of counts, which is written when such state comes and goes.
 */
#ifndef MDS_ST_H
#define MDS_ST_H
#include "base/hash.h"
#include "mds/namespace/ns.h"
#include "mds/state/ids.h"
#include "proto/nfs4.h"
#include "proto/rpc.h"
#include <pthread.h>
#include <urcu/rcuhlist.h>
#include <urcu/urcu-memb.h>

#define ST_SLOTS       1024 /* the most of a session */
#define ST_SLOTS_LEAST 2u   /* every session may have so many */
#define ST_BOUND       64   /* connections of a session with SP4_MACH_CRED */
/* The most of a backchannel. With several slots a callback without an answer holds up no other. */
#define ST_CB_SLOTS  8u
#define ST_OWNER_MAX NFS4_OPAQUE_LIMIT

struct st_stateid {
	uint32_t seqid;
	uint8_t other[NFS4_OTHER_SIZE];
};

static inline void st_sid_bump(struct st_stateid *s)
{
	if (++s->seqid == 0)
		s->seqid = 1;
}

/*
 * The request that made a slot busy owns the slot and its sequence; other threads look at sl_state
 * and sl_renewed_ns only. A thread that found a slot by RCU alone may have one that its session no
 * longer has; it then looks again.
 */
struct st_slot {
	/* state (free, busy, ...; see slot.c) and sequence of its last request */
	_Alignas(64) _Atomic uint64_t sl_state;
	_Atomic uint64_t sl_renewed_ns; /* when its last request began or was answered */
	uint8_t *sl_reply;		/* the COMPOUND results as sent, malloc'd */
	uint32_t sl_len;
	uint32_t sl_told;    /* bytes of it that se_kept counts */
	uint32_t sl_told_in; /* the review (se_reviews) since which it counts them */
	/* Of the request: a retry with other bytes is a false retry (RFC 8881 section
	 * 2.10.6.1.3.1). */
	uint32_t sl_check;
	uint32_t sl_gen; /* r_gen of the target (st_quota) in its last reply */
	bool sl_cached;
	bool sl_fresh; /* it has not had a request yet */
	/* its last reply reported RECALLABLE_STATE_REVOKED: so does the reply to a retry */
	bool sl_revoked;
	struct rcu_head sl_rcu;
};
_Static_assert(sizeof(struct st_slot) == 64, "a line each");

struct st_slots {
	struct rcu_head ss_rcu;
	uint32_t ss_n;
	struct st_slot *_Atomic ss_slot[]; /* NULL: not used yet, or gone */
};

/* How many slots a session has. Read and written as one value. */
struct st_quota {
	uint16_t r_nslots; /* enforced: the client may use slots below it */
	/* what the server asks the client to keep to; r_nslots follows when the client does */
	uint16_t r_target;
	uint32_t r_gen; /* changes with the target */
};

/*
 * The requests that granted a layout or a delegation, as long as the client may not have their
 * replies: until the client uses a request's slot again, the reply may still be on its way, and a
 * callback may overtake it (RFC 8881 section 2.10.6.3). A callback carries these requests as
 * referring calls. And if the client answers that it does not know what it was granted, that does
 * not prove that it never will.
 */
#define ST_GRANTS 2u
struct st_grants {
	struct st_grant {
		uint8_t g_session[NFS4_SESSIONID_SIZE];
		uint32_t g_slot, g_seq;
	} gs_grant[ST_GRANTS];
	uint8_t gs_n;
	bool gs_more;	     /* there were others */
	uint64_t gs_more_ns; /* when the last of them was forgotten */
};

struct st_client;
struct st_session {
	struct hash_link se_link;
	uint8_t se_id[NFS4_SESSIONID_SIZE];
	struct st_client *se_client;
	struct st_session *se_next; /* of the client */
	struct cds_hlist_node se_node;
	struct rcu_head se_rcu;
	pthread_mutex_t se_lock; /* guards the fields marked "own" */
	/* The session is in no table any more, and ends when no slot is busy. Written with se_lock
	 * and all held. */
	_Atomic bool se_dead;
	bool se_ended; /* guarded by all */
	/* One bit of 64 for each connection that carried the session, by rpc_conn_id: two
	 * connections may share a bit. */
	_Atomic uint64_t se_carried;
	_Atomic bool se_rows; /* the store has rows of its requests (mds/nfs4/replay.c) */
	/* Of the connection that made the session: address, security (enum exp_sec) and TLS (enum
	 * exp_tls). */
	uint8_t se_addr[16], se_sec, se_tls;
	uint32_t se_minor; /* of the CREATE_SESSION: callbacks carry it */
	/* Written only when they change, with se_lock held, except for se_peak and se_kept. */
	_Atomic struct st_quota se_room;
	struct st_slots *_Atomic se_slots;
	_Atomic uint64_t se_reviewed_ns;
	_Atomic uint32_t se_reviews; /* number of reviews */
	_Atomic uint32_t se_peak;    /* slots in use at a time since se_reviewed_ns */
	/* Bytes of slots and, nearly, of kept replies: this session's part of st_kept. */
	_Atomic uint64_t se_kept;
	uint32_t se_most; /* what the client asked for, within bounds */
	/* own; of slots that are gone: the last sequence, or 0 */
	uint32_t *se_past, se_npast;
	_Atomic bool se_used;
	uint32_t se_maxreq, se_maxresp, se_maxcached, se_maxops;
	/* backchannel */
	uint32_t se_cb_prog, se_cb_flavor, se_cb_uid, se_cb_gid;
	struct rpc_conn *_Atomic se_cb_conn; /* NULL: the path is down */
	struct hash_link se_conn_link;	     /* in the table by connection, while there is one */
	/* SP4_MACH_CRED: only these connections may carry the session's requests. */
	/* ST_BOUND times rpc_conn_id, or NULL; set before the session is published. A new one takes
	 * the place of the oldest. */
	_Atomic uint64_t *se_bound;
	_Atomic unsigned se_nbound; /* ever admitted; own */
	/* sequence of each slot's next callback */
	uint32_t se_cb_nslots, se_cb_next[ST_CB_SLOTS];
	/* Slots in use, and slots whose last callback has no answer; a bit each. */
	uint32_t se_cb_busy, se_cb_doubt;
	struct st_cb *se_cb_head, **se_cb_tail; /* callbacks that wait for a slot */
};

/* What is counted for each client, for all clients of an address, and for all clients, so that
 * neither one client nor one address takes all of it: opens without delegations, lock-owners'
 * states, their ranges, layouts, delegations. */
enum st_count { ST_N_OPENS, ST_N_LOCKS, ST_N_RANGES, ST_N_LAYOUTS, ST_N_DELEGS, ST_COUNTS };
/* Includes what threads took ahead (sp_room). */
struct st_counts {
	_Alignas(64) _Atomic uint32_t ct_n[ST_COUNTS];
	/* Of a client only: */
	/* Its stripes that have room; a bit each, written under sp_lock. */
	_Atomic uint8_t ct_roomy;
	_Atomic uint64_t ct_takes; /* how often ct_n rose */
};

/*
 * The part of a client's counts and lists for some threads: a thread that opens files or grants
 * layouts uses its own stripe, so the client's connections do not meet in one place. A stripe takes
 * room ahead, in portions, from the counts of the client, its address and all clients (struct
 * st_counts), so that not every open writes those. Room that is not used goes back within seconds.
 * Once half of a limit is reached, a stripe takes only what it uses.
 */
struct st_stripe {
	_Alignas(64) pthread_mutex_t sp_lock;
	struct st_open *sp_opens; /* and delegations */
	struct st_layout *sp_layouts;
	_Atomic uint8_t sp_room[ST_COUNTS]; /* taken, and not used */
	_Atomic uint8_t sp_used;	    /* kinds used since the last st_quotas_tick */
};
#define ST_STRIPES 8u

/* What clients of one address have. */
struct st_addr_account {
	struct hash_link pl_link;
	uint8_t pl_addr[16];
	uint32_t pl_clients;
	struct st_counts pl_counts;
	uint64_t pl_oldest_ns; /* when st_client_oldest last looked here */
	_Atomic uint64_t pl_gathered_ns[ST_COUNTS];
};

/* A data server that a client cannot reach. */
struct st_unreached {
	uint32_t un_ds;	   /* 0: none */
	uint64_t un_at_ms; /* when the client last reported that, in ms */
};
#define ST_UNREACHED 16

struct st_client {
	struct hash_link cl_link, cl_owner_link;
	struct rcu_head cl_rcu;
	uint64_t cl_id;
	uint32_t cl_number;		  /* durable; it is in capabilities */
	struct st_addr_account *cl_place; /* by the address of its EXCHANGE_ID, or NULL */
	uint8_t cl_tls;			  /* enum rpc_tls, of its EXCHANGE_ID */
	uint8_t *cl_owner;
	uint32_t cl_owner_len;
	uint8_t cl_verifier[8];
	uint32_t cl_flavor, cl_uid; /* principal */
	char *cl_principal;	    /* for RPC_AUTH_GSS: user@REALM; else NULL */
	uint8_t cl_key[32];	    /* of its durable record: a hash of owner and principal */
	/* SP4_MACH_CRED: only the principal, with integrity or privacy, may do the operations of
	 * cl_enforce. */
	bool cl_mach;
	/* bitmap4 of operations (RFC 8881 section 18.35.3) */
	uint32_t cl_enforce[3], cl_allow[3];
	bool cl_confirmed, cl_recorded, cl_dead;
	_Atomic bool cl_reclaim_done, cl_may_reclaim;
	/* It sent a RECLAIM_COMPLETE of any scope, so it may lock (RFC 8881 section 18.51.3). */
	_Atomic bool cl_ready;
	bool cl_notified;      /* it asked for notifications when a device changes */
	bool cl_notified_gone; /* and when a device goes */
	bool cl_stripes;       /* it is known to read and write striped layouts */
	/* It is from an earlier boot, and the layouts that it had then are unknown. */
	bool cl_boot;
	/* It got layouts, so eviction must bar its number. */
	_Atomic bool cl_laid;
	_Atomic bool cl_evicting; /* no request of it begins (st_client_leaves) */
	bool cl_confirming;
	bool cl_parted;	      /* it has destroyed a session */
	bool cl_recalls_wait; /* recalls wait for a session */
	uint32_t cl_nsessions;
	struct st *cl_st; /* or NULL: what it has is not counted */
	struct st_stripe cl_stripe[ST_STRIPES];
	struct st_counts cl_counts;
	uint32_t cl_cs_seq;	  /* sequence of the next CREATE_SESSION */
	uint8_t cl_cs_reply[128]; /* results of the last CREATE_SESSION */
	uint32_t cl_cs_len;
	uint8_t cl_cs_addr[16]; /* of the connection that carried it */
	/* When it was last heard, to a part of a lease: written only when that part has passed, and
	 * when slots or sessions go. st_silent_ns is exact. */
	_Atomic uint64_t cl_renewed_ns;
	/* Guards the lists of sessions; to look, any lock on state is enough. */
	pthread_mutex_t cl_lock;
	uint32_t cl_refs;
	_Atomic uint32_t cl_revoked; /* SEQ4_STATUS_* to report */
	/* cl_dead_sessions: dead sessions with requests under way */
	struct st_session *cl_sessions, *cl_dead_sessions;
	struct st_offload *cl_offloads; /* the newest first */
	uint32_t cl_noffloads;
	_Atomic uint32_t cl_nrevoked, cl_nrecalled;
	struct st_revoked *cl_dead_sids;
	struct st_partial *cl_partials;
	_Atomic uint32_t cl_npartials;
	struct st_unreached *_Atomic cl_unreached; /* array of ST_UNREACHED, or NULL */
	bool cl_thinned;			   /* CB_RECALL_ANY is under way */
};

/* A write through the MDS that some copies have and some may not: the client was asked to repeat
 * it, and has not done so yet (partial_write.c). */
struct st_partial {
	struct st_partial *hf_next;
	struct st_file *hf_file;
	uint64_t hf_off, hf_end;
};

/* A write of a mirrored file through the MDS that is under way. Two that overlap could reach the
 * copies in different orders. The writer owns the memory. */
struct st_write {
	struct st_write *sw_next;
	const struct st_client *sw_client;
	uint64_t sw_off, sw_end;
};

/* State of one file, while any client has some. */
struct st_file {
	struct hash_link f_link;
	uint64_t f_ino;
	struct st_open *f_opens;
	struct st_lock *f_locks; /* each belongs to one of f_opens */
	struct st_waiter *f_waiters;
	uint32_t f_nwaiters;
	/* Waits for layouts or delegations to come back (st_recall_file, st_recall_delegs). */
	struct st_wait *f_waits;
	struct st_layout *f_layouts;
	uint32_t f_removing; /* mutations that free it are queued: no new opens (DELAY) */
	/* A shrink or a recall is under way: no new layouts (RECALLCONFLICT). */
	uint32_t f_nexcl;
	bool f_watched; /* see st_file_watch */
	/* A write layout is or was out: size and change attribute must come from the data
	 * servers. */
	bool f_intent;
	/* The store has the mark. f is kept, so that this is known until the mark is deleted. */
	bool f_intent_durable;
	/* A writer of it is lost: before it is used again, excl_resolve believes one copy and makes
	 * the others stale. */
	bool f_suspect;
	/* rises with each lost writer: a verdict from before does not cover it */
	uint32_t f_suspect_gen;
	/* It had writers when an earlier boot ended; which clients is not known. */
	bool f_suspect_boot;
	/* The mark is from an earlier boot: excl_resolve raises the epoch before the file's size is
	 * asked for or a layout is granted. */
	bool f_intent_old;
	uint32_t f_old_epoch; /* what excl_resolve raised it to for that */
	/* It is mirrored, and two clients wrote it at once: its copies may differ
	 * (mds/jobs/contended.c). The mark says so too. */
	bool f_contended;
	bool f_contending; /* the mark is being changed to say so */
	/* contended, and compared since the last grant for writing */
	bool f_equal;
	struct st_write *f_writes; /* of a mirrored file, each pinned */
	/* It is mirrored, and its copies reported different ends or writes when no client wrote it.
	 * They are not compared yet (contended.c). */
	bool f_diverged;
	bool f_counts;	       /* f_moved covers all writes since the mark was put */
	uint64_t f_moved;      /* objects that were written since then, a bit each */
	bool f_set;	       /* a size was set in this boot */
	uint32_t f_set_grants; /* f_grants at that time */
	bool f_orphan;	       /* its last link went while it was open */
	/* Of f_nexcl: exclusions that keep out changes of data through the MDS. */
	uint32_t f_nfrozen;
	uint32_t f_nhidden; /* of f_nfrozen: exclusions that keep out reads too */
	/* Of f_nexcl: layouts that may name stale objects are coming back. No writes through the
	 * MDS meanwhile: readers by those layouts would not see them. */
	uint32_t f_nrecalling;
	uint32_t f_nsizing; /* of f_nexcl: exclusions that set the size */
	/* of f_nsizing: exclusions whose size is in the store, or about to be */
	uint32_t f_ncutting;
	/* questions to data servers, and changes through the MDS, that are under way */
	uint32_t f_pins;
	uint32_t f_npartials; /* writes of it that some copies have (st_partial) */
	/* The error with which the last copy failed. The client that reported it gets no write
	 * layout until f_error_until_ns, so that the application gets the error. */
	nfsstat4 f_error;
	uint64_t f_error_until_ns, f_error_client;
	/* Objects (a bit each) that f_unread_client lately could not read, or not reach; valid
	 * until f_unread_until_ns. */
	uint64_t f_unread, f_unreached;
	uint64_t f_unread_client, f_unread_until_ns;
	/* 1 plus the epoch in which a client reported that a live server denied it access. The
	 * second report counts. */
	uint32_t f_denied;
	uint32_t f_intent_gen; /* rises when the mark is deleted */
	/* Rises with each grant for writing: an answer asked for before a grant does not delete the
	 * mark. */
	uint32_t f_grants;
	/* until then a request that only reads it (clone.c) does not freeze it */
	uint64_t f_calm_ns;
	/* Rises with every size that is set: an answer asked for before that is worth nothing. */
	uint64_t f_sizegen;
};

/*
 * A delegation (RFC 8881 chapter 10) is an open without an owner, whose stateid is a delegation's:
 * it admits I/O and layouts as opens do, and keeps an unlinked file. Share reservations and CLOSE
 * do not see it.
 */
struct st_deleg {
	uint32_t dg_type; /* OPEN_DELEGATE_READ, OPEN_DELEGATE_WRITE */
	bool dg_times;	  /* the holder keeps the times (RFC 9754) */
	bool dg_recalled, dg_queued, dg_asking;
	uint64_t dg_given_ns, dg_recalled_ns;
	/* The change attribute that the holder got with it: another one in CB_GETATTR means that
	 * the holder has written. */
	uint64_t dg_change;
	struct st_deleg_query *dg_asks; /* requests that wait for the holder's CB_GETATTR */
	uint8_t dg_fh[NFS4_FHSIZE];	/* as GETFH returned it */
	uint32_t dg_fhlen;
	struct st_grants dg_grants;
};

/* What a holder of a write delegation answered (RFC 8881 section 20.1). a_then runs on a_loop. */
struct st_deleg_query {
	struct st_deleg_query *a_next;
	struct loop_msg a_msg;
	struct loop *a_loop;
	void (*a_then)(struct st_deleg_query *a);
	int a_err;	 /* not 0: there is no answer */
	bool a_modified; /* it has written since it got the delegation */
	bool a_times;	 /* a_atime and a_mtime are valid */
	uint64_t a_size;
	struct ns_time a_atime, a_mtime;
};

/* Decodes the attributes in a CB_GETATTR's answer. False for anything but this: size and change are
 * there, and both times or none. given: dg_change. Here for the fuzzer. */
bool st_ask_decode(struct xdr_in *x, uint64_t given, struct st_deleg_query *a);

/* A revoked delegation: its stateid gets DELEG_REVOKED until the client frees it (RFC 8881 section
 * 18.38). */
struct st_revoked {
	struct st_revoked *v_next;
	struct st_stateid v_sid;
};

/* A user that opened a file, and the share access. */
struct st_user {
	struct st_user *u_next;
	uint32_t u_uid, u_access; /* 0: no user */
};

struct st_open {
	struct hash_link o_link;  /* by stateid */
	struct st_deleg *o_deleg; /* NULL: an open */
	struct st_stateid o_sid;
	struct st_client *o_client;
	struct st_file *o_file;
	struct st_open *o_cnext, **o_cprev, *o_fnext, **o_fprev;
	struct st_stripe *o_stripe;
	struct st_lock *o_locks;
	uint32_t o_access, o_deny;
	/* The first user that opened it, and others of the same open-owner. Each counts as one more
	 * open. */
	struct st_user o_user;
	struct st_user *o_users;
	uint32_t o_owner_len;
	uint8_t o_owner[];
};

/* What a lock-owner holds of a file, under one stateid. */
struct st_range {
	/* By offset. Ranges do not overlap, and neighbours of one kind are joined. */
	struct st_range *r_next;
	uint64_t r_first, r_last; /* first and last byte */
	bool r_write;
};
struct st_lock {
	struct hash_link k_link; /* by stateid */
	struct st_stateid k_sid;
	struct st_open *k_open; /* with which it came */
	struct st_lock *k_onext, **k_oprev, *k_fnext, **k_fprev;
	struct st_range *k_ranges;
	uint32_t k_owner_len;
	uint8_t k_owner[];
};

struct st_layout {
	struct hash_link l_link; /* by stateid */
	struct st_stateid l_sid;
	struct st_client *l_client;
	struct st_file *l_file;
	struct st_layout *l_cnext, **l_cprev, *l_fnext, **l_fprev;
	struct st_stripe *l_stripe;
	uint32_t l_iomode; /* bit 1 READ, bit 2 RW */
	/* l_queued: a CB_LAYOUTRECALL is on its way or waits in a session. */
	bool l_recalled, l_queued;
	/* One bit of 64 for each data server that it names, or has named. */
	uint64_t l_servers;
	uint32_t l_granting; /* grants under way whose servers are not known yet: any */
	/* Fence epoch of the oldest grant that is out. Reports about an older epoch than the file's
	 * mean nothing. */
	uint32_t l_epoch;
	uint8_t l_fh[NFS4_FHSIZE]; /* as GETFH returned it */
	uint32_t l_fhlen;
	struct st_grants l_grants;
};

/* A lock-owner that waits for a lock that it was denied. One CB_NOTIFY_LOCK says when it may try
 * again (RFC 8881 section 20.11). */
struct st_waiter {
	struct st_waiter *wt_next;
	uint64_t wt_client;
	uint64_t wt_first, wt_last;
	bool wt_write;
	uint8_t wt_fh[NFS4_FHSIZE]; /* as GETFH returned it to this client */
	uint32_t wt_fhlen;
	uint32_t wt_owner_len;
	uint8_t wt_owner[];
};

/* One callback under way, and its kind. */
struct st;
struct st_cb;
enum st_cb_metric {
	ST_CB_LAYOUTRECALL,
	ST_CB_NOTIFY_LOCK,
	ST_CB_OFFLOAD,
	ST_CB_RECALL,
	ST_CB_GETATTR,
	ST_CB_RECALL_ANY,
	ST_CB_NOTIFY_DEVICEID,
	ST_CB_METRICS
};
struct st_cb_kind {
	uint32_t k_op;		    /* OP_CB_* */
	enum st_cb_metric k_metric; /* counts sent callbacks */
	/* locked: encodes the operation's arguments */
	void (*k_encode)(const struct st_cb *cb, struct xdr_out *x);
	/* locked: handles the client's answer. status: the operation's, or that of an operation
	 * before it, or -1 for none; res is at the operation's result. True: send it again after a
	 * while. */
	bool (*k_done)(struct st *st, struct st_cb *cb, int64_t status, struct xdr_in *res);
	/* locked, or NULL: returns the grants of what the callback is about; NULL if it is gone. */
	struct st_grants *(*k_grants)(struct st *st, const struct st_cb *cb);
	/* A request waits for the answer: at most until the recall deadline, and only as long as
	 * the connection lives. */
	bool k_brief;
	/* locked, or NULL: the session is gone, and the callback with it. */
	void (*k_lost)(struct st *st, struct st_cb *cb);
};
struct st_cb {
	struct st_cb *cb_next;
	const struct st_cb_kind *cb_kind;
	void *cb_arg; /* the kind's own, malloc'd, freed with the callback */
	bool cb_flag; /* the kind's own */
	/* When it was sent, some replies of the grants might not have arrived. */
	bool cb_referred;
	struct st_stateid cb_sid; /* as sent */
	uint8_t cb_fh[NFS4_FHSIZE];
	uint32_t cb_fhlen;
	uint8_t cb_session[NFS4_SESSIONID_SIZE];
	struct rpc_req cb_req;
	struct loop_msg cb_msg;
	struct st *cb_st;
	struct loop_timer cb_timer;
	unsigned cb_tries;
	uint32_t cb_slot;
	bool cb_keeps; /* it keeps the slot: without an answer it is sent again there */
};

/* A part of the files and of their state. A stateid names its shard (st_sid_make). */
enum st_kind { ST_FILE, ST_OPEN, ST_LOCK, ST_LAYOUT };
struct st_shard {
	_Alignas(64) pthread_mutex_t sh_lock;
	struct hash sh_table;	  /* by inode number or stateid; of all kinds (st_each) */
	_Atomic uint64_t sh_next; /* stateid counter */
};
#define ST_SHARDS 65536u /* enough that files in use at the same time rarely share one */

struct st {
	/* Requests only look at these fields; their cache lines are rarely written. */
	struct ns *st_ns;
	uint64_t st_boot;
	/* From the identity of the store and its incarnation. Both are mixed into ids. So another
	 * cluster at the same address, or a restored store, does not take ids of the same boot
	 * epoch for its own. st_epoch is both in one. */
	uint32_t st_salt, st_epoch;
	struct st_ids st_ids;
	uint32_t st_lease_ms, st_grace_ms, st_courtesy_ms, st_recall_ms;
	uint64_t st_started_ns; /* by st_now_ns */
	/* st_clock.c: when the clock was last looked at, and how long the process stood still in
	 * all. */
	_Atomic uint64_t st_clock_seen_ns, st_paused_ns;
	pthread_mutex_t st_clock_lock;
	_Atomic bool st_in_grace;
	struct cds_hlist_head *st_by_id; /* sessions, for RCU: ST_BY_ID chains */
	uint64_t st_kept_max;
	struct st_shard *st_shards; /* ST_SHARDS of them */
	struct st_heat *st_heat;
	_Alignas(64) _Atomic uint32_t st_nsessions;
	/* In all sessions; and, nearly, the bytes of slots and kept replies. */
	_Atomic uint64_t st_nslots;
	_Atomic uint64_t st_kept;
	/* recorded clients that have not finished reclaiming */
	_Alignas(64) uint32_t st_reclaimers;
	bool st_closing;	 /* grace is being ended: st_records_close */
	uint64_t st_unclosed_ns; /* when the store last refused that */
	/* A client that had layouts when the earlier boot ended does not come back as the same
	 * client. */
	bool st_lost;
	struct hash st_clients, st_owners, st_sessions, st_cb_conns, st_records, st_places;
	uint64_t st_next;	       /* counter of this boot for clientids and sessionids */
	uint64_t st_verifier;	       /* write verifier of this boot */
	uint64_t st_oldest_ns;	       /* when st_client_oldest last looked at all */
	_Atomic uint64_t st_quotas_ns; /* when the tick last gave room back */
	struct st_session *st_ended;   /* sessions without references whose rows must be deleted */
	/* their number, including sessions whose rows are being deleted */
	size_t st_nended;
	/* Called on the tick's loop, without the lock. st_grace_over: grace is over, or
	 * st_records_close must end it. st_orphans: clients that held removed files open are
	 * gone. */
	void (*st_grace_over)(void *arg);
	void (*st_orphans)(void *arg);
	/* a recalled delegation on ino did not come back: st_deleg_revoke_overdue */
	void (*st_overdue)(void *arg, uint64_t ino);
	/* the client's lease, and the courtesy after it, have run out */
	void (*st_expired)(void *arg, uint64_t clientid);
	bool st_orphaned;
	bool st_judge; /* files to be judged were added since file_resolve_tick last looked */
	void *st_arg;
	struct metric *st_callbacks[ST_CB_METRICS], *st_revoked, *st_deleg_given[2],
		*st_deleg_wasted, *st_deleg_revoked;
	uint32_t st_max_delegs;
	uint8_t st_portion[ST_COUNTS]; /* see st_set_quota_portion */
	uint32_t st_most[ST_COUNTS][3];
	_Atomic uint64_t st_gathered_ns[ST_COUNTS];
	struct st_counts st_counts; /* of all clients */
};

int st_create(struct st **out, struct ns *ns, uint32_t lease_ms, uint32_t grace_ms,
	      uint32_t courtesy_ms);
#define ST_KEPT_MAX (256ull << 20) /* st_kept_max at first */

/* shard.c: locks. A thread holds one of them at a time; taking a second one is fatal. */
void st_all_lock(struct st *st);
void st_all_unlock(struct st *st);
void st_file_lock(struct st *st, uint64_t ino);
void st_file_unlock(struct st *st, uint64_t ino);
/* The thread's own lock alone: what all guards does not change meanwhile. */
void st_look_lock(struct st *st);
void st_look_unlock(struct st *st);
/*
 * Work on a file that seldom needs all:
 *
 *	struct st_work w = {0};
 *
 *	do {
 *		st_work_lock(&w, st, ino);
 *		...
 *	} while (st_work_again(&w));
 *
 * The body holds the file's lock first. If st_needs_all() says that it lacks all, the body must
 * finish without changing anything: it then runs once more, from the start, with all locked.
 */
struct st_work {
	struct st *k_st;
	uint64_t k_ino;
	bool k_all;
};
void st_work_lock(struct st_work *w, struct st *st, uint64_t ino);
bool st_work_again(struct st_work *w);
/* True: all is locked. False: it is not, and st_work_again will run the body again with all
 * locked. */
bool st_needs_all(void);
/* Has the calling thread locked the file, or all? And all? */
bool st_has(const struct st *st, uint64_t ino);
bool st_has_all(void);
/* Fatal if the calling thread has not; in builds with a sanitizer only. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
void st_must_have(const struct st *st, uint64_t ino);
void st_must_have_all(void);
#else
static inline void st_must_have(const struct st *st, uint64_t ino)
{
	(void)st;
	(void)ino;
}
static inline void st_must_have_all(void)
{
}
#endif
/* The thread index: a small number of the calling thread. */
unsigned st_thread_index(void);
static inline struct st_shard *st_shard_of(struct st *st, uint64_t ino)
{
	return &st->st_shards[ino % ST_SHARDS];
}
int st_shards_new(struct st *st); /* 0, or -1: no memory */
/* All locked. An upper bound of files, opens, locks and layouts together. */
size_t st_states(const struct st *st);
/* All locked: walks the links of a kind. The body may free what the link is of, and nothing else of
 * that shard. */
#define st_each(st, kind, l)                                                                       \
	for (size_t l##_shard = 0; l##_shard < ST_SHARDS; l##_shard++)                             \
	hash_each(&(st)->st_shards[l##_shard].sh_table, l##_i, l,                                  \
		  l##_next) if (l->hl_hash >> 62 == (kind))
/* locked. Returns the first candidate; the caller compares, and continues with hash_next. With a
 * file's lock they find only what is in the file's shard. */
struct hash_link *st_first_by_ino(struct st *st, uint64_t ino);
struct hash_link *st_first_by_sid(struct st *st, const struct st_stateid *sid, enum st_kind kind);
int st_add_by_ino(struct st *st, uint64_t ino, struct hash_link *l); /* 0 or -1, as hash_add */
int st_add_by_sid(struct st *st, uint64_t ino, const struct st_stateid *sid, enum st_kind kind,
		  struct hash_link *l);
void st_table_del(struct st *st, uint64_t ino, struct hash_link *l); /* ino: of its file */

/* Clients */
/* locked */
struct st_client *st_client_get(struct st *st, uint64_t id);
/* locked */
struct st_client *st_client_by_owner(struct st *st, const void *owner, uint32_t len,
				     bool confirmed);
/* locked; NULL: no memory */
struct st_client *st_client_new(struct st *st, const void *owner, uint32_t len,
				const uint8_t verifier[8]);
/* locked. st_clients_at: the number of clients at an address. st_client_at: places a new client
 * there; 0 or -ENOMEM. */
uint32_t st_clients_at(const struct st *st, const uint8_t addr[16]);
int st_client_at(struct st *st, struct st_client *c, const uint8_t addr[16]);
/* locked: counts one more (1) or one less (-1) of what for the client, its address and all
 * clients. */
void st_count(struct st_client *c, enum st_count what, int more);
/* Call it before anything is counted: the limits of one client, of an address and of all clients.
 * What is taken ahead is a small part of the lowest. */
void st_set_quota_portion(struct st *st, enum st_count what, uint32_t of_client, uint32_t of_addr,
			  uint32_t of_all);
/* Any thread, without a lock: does the thread have room for one more already? */
bool st_has_quota(const struct st_client *c, enum st_count what);
/* All locked: the exact number that the client has, and that all clients have. */
uint32_t st_client_number(const struct st_client *c, enum st_count what);
uint32_t st_number(struct st *st, enum st_count what);
/* All locked: gives back what the client took ahead. */
void st_quotas_back(struct st_client *c);
/* Looked at. Call it now and then: gives back what the client took ahead and did not use since the
 * last call; where half of a limit is reached, all of it. */
void st_quotas_tick(struct st_client *c);
/* Looked at: gives back all of one kind. */
void st_quota_back(struct st_client *c, enum st_count what);
/* Looked at: the same for all clients of the address (NULL: all clients), at most once a second.
 * False: it is too soon. */
bool st_quotas_gather(struct st *st, struct st_addr_account *at, enum st_count what);
/* Any thread: may another client have some? Never false if one has. */
bool st_others_have(const struct st_client *c, enum st_count what);
/* All locked: the client's next open or delegation, or layout. NULL: the first, and the end. */
struct st_open *st_open_next(const struct st_client *c, const struct st_open *o);
struct st_layout *st_layout_next(const struct st_client *c, const struct st_layout *l);
/* locked: adds it to, or removes it from, its client's list and counts. */
void st_open_list(struct st_open *o);
void st_open_unlist(struct st_open *o);
void st_layout_list(struct st_layout *l);
void st_layout_unlist(struct st_layout *l);
/* locked: of the clients whose lease has run out, at addr (NULL: anywhere), returns the id of the
 * one that has been silent longest; 0: none. Looks at all clients, at most once a second for each
 * address. */
uint64_t st_client_oldest(struct st *st, const uint8_t *addr);
/* locked: sets the client's principal, before it is confirmed. False: no memory. */
bool st_client_principal(struct st_client *c, uint32_t flavor, uint32_t uid, const char *principal);
bool st_lease_expired(struct st *st, struct st_client *c); /* may take cl_lock */
/* locked: the client is gone, or its number is being barred. A parked COMPOUND of it must register
 * nothing any more. */
static inline bool st_client_goes(const struct st_client *c)
{
	return c->cl_dead || atomic_load(&c->cl_evicting);
}
/* locked. Takes the client out of all tables, with its sessions, opens and layouts. The next tick's
 * sweep frees orphans that it held open (st_orphans). */
void st_client_destroy(struct st *st, struct st_client *c);
void st_client_put(struct st_client *c); /* locked: drops a reference */
/* The durable record: rows NS_T_CLIENT, keyed by cl_key. */
struct st_record {
	struct hash_link r_link;
	uint8_t r_hash[32];
	bool r_done; /* RECLAIM_COMPLETE came */
	bool r_back; /* its owner has a client again, or one that is being confirmed */
	/* Its row says that grace ended before its RECLAIM_COMPLETE, at this boot or an earlier
	 * one. */
	bool r_owes;
	/* At the end of grace: its row is being marked or deleted, and was. */
	bool r_closing, r_closed;
};
/* W: *number: the client's number in capabilities, which survives our restarts. A client that
 * itself restarted (another verifier) gets a new number, and *old is the number to bar from the
 * data servers, because writes under it may still be on the wire. Else *old is 0. 0 or -errno. */
int st_record_put(struct st *st, struct kv_txn *t, const uint8_t key[32], const uint8_t verifier[8],
		  uint32_t *number, uint32_t *old);
/* W: unless the record is a later incarnation's, which has another number. */
int st_record_del(struct st *st, struct kv_txn *t, const uint8_t key[32], uint32_t number);
/* W: RECLAIM_COMPLETE came: the client may reclaim at the next start what it locks from now on. */
int st_record_complete(struct kv_txn *t, const uint8_t key[32]);
/* Which client numbers may still be in a capability, of all below *next: those in rows, and those
 * of clients in memory. *numbers is malloc'd, in any order, perhaps with a number twice. No other
 * number below *next will ever be a client's again. 0 or -errno. Takes the locks. */
int st_living(struct st *st, uint32_t **numbers, size_t *n, uint32_t *next);
/* locked. Did an earlier boot record the owner? Has it not finished reclaiming? Does its row say,
 * or may it say, that it owes a RECLAIM_COMPLETE? */
bool st_record_known(struct st *st, const uint8_t key[32]);
bool st_record_reclaims(struct st *st, const uint8_t key[32]);
bool st_record_owes(struct st *st, const uint8_t key[32]);
/* Looked at. May the client reclaim? NO_GRACE: not now, or not any more (RFC 8881 sections 8.4.3
 * and 18.51.3). RECLAIM_BAD: it had nothing when the earlier boot ended. */
nfsstat4 st_reclaim_check(struct st *st, const struct st_client *c);
/* locked, or before anything is served: a writer of an earlier boot is lost. All files that had one
 * then are to be judged. */
void st_intents_suspect(struct st *st);
/* The row of a mark (docs/size.md): in version 1 that byte alone; version 2 has a byte of flags. */
enum { ST_INTENT_CONTENDED = 1 };
static inline bool st_intent_contended(struct kv_slice row)
{
	const uint8_t *p = row.s_data;

	return row.s_len >= 2 && p[0] == 2 && (p[1] & ST_INTENT_CONTENDED);
}
/* locked: the owner is being confirmed again, so its record stays. */
void st_record_back(struct st *st, const uint8_t key[32]);
/* locked: that failed. The owner is not back, unless it has a client of this record that is
 * confirmed or being confirmed. */
void st_record_away(struct st *st, const void *owner, uint32_t len, const uint8_t key[32]);
/* locked. st_record_done: the owner sent RECLAIM_COMPLETE; the last one ends grace. st_record_paid:
 * its row no longer says that it owes one. */
void st_record_done(struct st *st, const uint8_t key[32]);
void st_record_paid(struct st *st, const uint8_t key[32]);
/* locked */
bool st_in_grace(struct st *st);
/* Call it every second on one loop: expires leases, ends grace. */
void st_tick(struct st *st);

/*
 * The end of grace, which the tick begins (st_grace_over). From then on no client reclaims, and
 * none gets new locks before the store says which clients may not reclaim at the next start.
 *
 * W: handles up to 64 recorded clients. It deletes the records of clients that did not come back;
 * for each, evict(arg, t, number) bars the number from the data servers. It marks clients that are
 * back and owe a RECLAIM_COMPLETE. Returns the number of deleted records, or -errno. *more: there
 * were some: call it again once this is committed.
 */
int st_records_close(struct st *st, struct kv_txn *t,
		     int (*evict)(void *arg, struct kv_txn *t, uint32_t number), void *arg,
		     bool *more);
/* The transaction was committed (err 0) or failed. Grace ends when there are no more; if it failed,
 * a tick begins again after a second. Takes the lock. */
void st_records_closed(struct st *st, int err, bool more);

/* Sessions */
struct st_session *st_session_get(struct st *st, const uint8_t id[16]); /* locked */
/* In an RCU read section (urcu-memb): finds the session of this id that is not dead, and which
 * stays until the section ends. NULL: there is none. */
struct st_session *st_session_find(struct st *st, const uint8_t id[16]);
/* In an RCU read section: call it when a slot of a dead session is no longer busy. Locks all. */
void st_session_over(struct st *st, struct st_session *s);
struct st_session *st_session_new(struct st *st, struct st_client *c); /* locked */
/* locked: the session is complete; st_session_find finds it from now on. */
void st_session_publish(struct st *st, struct st_session *s);
/* For those of st_sessions_ended: frees one when no thread looks at it any more. */
void st_session_free(struct st_session *s);
/* locked: no request of the client begins from now on (cl_evicting). False: one is under way, and
 * nothing changes. */
bool st_client_leaves(struct st_client *c);
/* Nanoseconds of the clock by which clients are silent, which stands still while the process does
 * (st_clock.c). Any thread. */
uint64_t st_now_ns(struct st *st);
void st_clock_tick(struct st *st);
void st_clock_init(struct st *st);
/* Nanoseconds between two times of st_now_ns; 0 if the clock went back between them. */
static inline uint64_t st_since(uint64_t then, uint64_t now)
{
	return now > then ? now - then : 0;
}
/* How many nanoseconds the client has been silent at now; 0 while one of its requests is under way.
 * Its lease may have been renewed since. Looks at all its slots; takes cl_lock. */
uint64_t st_silent_ns(struct st_client *c, uint64_t now);
/* for longer than ns; mostly without looking at slots */
bool st_silent_over(struct st_client *c, uint64_t now, uint64_t ns);
void st_renewed(struct st_client *c, uint64_t at_ns); /* it was heard then */
/* locked; the memory is freed when no request is under way */
void st_session_destroy(struct st *st, struct st_session *s);
#define ST_BY_ID 16384u /* chains of sessions */
/* Slots (slot.c). locked: returns how many of the slots that it asks for a new session gets. */
uint32_t st_slots_grant(struct st *st, struct st_session *s, uint32_t asked);
/* In an RCU read section, or with se_lock held. NULL: not used yet, or gone. */
struct st_slot *st_slot_get(const struct st_session *s, uint32_t slot);
bool st_slot_busy(const struct st_slot *sl);	/* a request is under way */
uint32_t st_slot_seq(const struct st_slot *sl); /* of its last request */
/* A SEQUENCE, and its outcome. */
struct st_seq {
	uint32_t sq_slot, sq_seq, sq_highest;
	bool sq_keep;	     /* its reply must be kept */
	nfsstat4 sq_refused; /* the error of a new request, or NFS4_OK */
	bool sq_retry;
	struct st_slot *sq_sl;
	struct st_quota sq_room; /* what the reply reports */
};
static inline struct st_quota st_quota(const struct st_session *s)
{
	return atomic_load(&s->se_room);
}
/*
 * In an RCU read section. NFS4_OK: the caller has sq_sl. For a retry of the slot's last request
 * (sq_retry) it has sq_sl only until st_slot_let, which must follow soon. For a new request the
 * slot is busy until st_slot_done, and its session stays until then. DELAY: the same request is
 * under way, there is no room or memory, or the client is being evicted. SEQ_MISORDERED; BADSLOT;
 * BADSESSION: the session went meanwhile; or sq_refused.
 */
nfsstat4 st_slot_take(struct st *st, struct st_session *s, struct st_seq *q);
void st_slot_let(struct st_slot *sl);
/* reply: malloc'd, owned by the slot from now on; NULL: it is not kept. The client's lease begins
 * again, as at st_slot_take; in between it does not run. The session may be gone after this. Call
 * it on a thread that RCU knows. */
void st_slot_done(struct st *st, struct st_session *s, struct st_slot *sl, uint8_t *reply,
		  uint32_t len);
/* Is any slot busy? *last becomes the time of the last request, if that is later. Takes se_lock. */
bool st_slots_busy(struct st_session *s, uint64_t *last);
/* With the layout or delegation locked, on a thread that RCU knows: adds a request to its
 * grants. */
void st_granted(struct st *st, struct st_grants *g, const struct st_session *s, uint32_t slot,
		uint32_t seq);
/* Likewise: forgets the requests whose replies the client has. True: all of them. A request for
 * which there was no room counts as such after a lease. */
bool st_grants_seen(struct st *st, struct st_grants *g);
/* locked; no slot is busy, and the session is dead */
void st_slots_free(struct st *st, struct st_session *s);
/* locked: returns some ended sessions that have rows in the store, linked by se_next, or NULL.
 * Nothing else refers to them any more, and the caller frees them. */
struct st_session *st_sessions_ended(struct st *st);
/* locked: c may carry the session's callbacks from now on; sends the ones that wait. */
void st_session_bind(struct st *st, struct st_session *s, struct rpc_conn *c);
/* locked. st_session_came: the session came on c, so c is associated with it (RFC 8881 section
 * 2.10.3.1). st_session_carried: false if it certainly never came on c, and has another connection
 * that lives. */
void st_session_came(struct st_session *s, const struct rpc_conn *c);
bool st_session_carried(const struct st_session *s, const struct rpc_conn *c);
/* locked; SP4_MACH_CRED: lets the connection carry the session's requests, until it ends. False: no
 * memory. */
bool st_session_admit(struct st_session *s, const struct rpc_conn *c);
bool st_session_admits(const struct st_session *s, const struct rpc_conn *c);
/* all locked: queues the CB_LAYOUTRECALL of a recalled layout on one of its client's sessions. */
void st_recall_queue(struct st *st, struct st_layout *l);
/* locked: makes a callback for one of the client's sessions, one with a backchannel if there is
 * one; about a file, or fhlen 0. NULL: the client has no session, or no memory. */
struct st_cb *st_cb_new(struct st_client *c, const struct st_cb_kind *kind, const uint8_t *fh,
			uint32_t fhlen, struct st_session **s);
void st_cb_queue(struct st *st, struct st_session *s, struct st_cb *cb); /* locked */
/* locked: calls its kind's k_lost, and frees it */
void st_cb_lost(struct st *st, struct st_cb *cb);
/* locked: queues CB_NOTIFY_LOCK. The callback owns w from now on. */
void st_notify_queue(struct st *st, struct st_client *c, struct st_waiter *w);
/* Sends CB_NOTIFY_DEVICEID to all clients that asked for it: a device (a data server's addresses,
 * or its limits) has changed. Takes the lock. */
void st_device_changed(struct st *st, const uint8_t deviceid[NFS4_DEVICEID4_SIZE]);
/* The same for a device that is gone. No layout names it any more. */
void st_device_gone(struct st *st, const uint8_t deviceid[NFS4_DEVICEID4_SIZE]);
/* locked: the session's connection for callbacks is gone. Callbacks that cannot wait for another
 * are lost. */
void st_cb_path_lost(struct st *st, struct st_session *s);
/* locked: sends the next waiting callback when a slot is free. */
void st_cb_pump(struct st *st, struct st_session *s);
/* Decodes a client's answer to a callback of this operation. Returns its status, or that of an
 * operation before it; -1: not a CB_COMPOUND reply. *sequenced: CB_SEQUENCE was done, so the slot
 * moves on. res is at the operation's result. Here for the fuzzer. */
int64_t st_cb_decode(struct xdr_in *res, uint32_t op, bool *sequenced);
void st_conn_gone(struct st *st, struct rpc_conn *c); /* takes the lock */

/* Files, opens */
struct st_file *st_file_get(struct st *st, uint64_t ino, bool make); /* locked */
/* locked: frees it when nothing is left */
void st_file_put(struct st *st, struct st_file *f);
struct st_open *st_open_find(struct st *st, const struct st_stateid *sid); /* locked, by other */
/* locked */
struct st_open *st_open_by_owner(struct st_file *f, struct st_client *c, const void *owner,
				 uint32_t len);
/* locked; sid: made for it before, or NULL */
struct st_open *st_open_new(struct st *st, struct st_file *f, struct st_client *c,
			    const void *owner, uint32_t len, const struct st_stateid *sid);
/* locked: notes that the user opened it with this access. False: no memory. */
bool st_open_by_user(struct st_open *o, uint32_t uid, uint32_t access);
/* locked: may this user of the client do this (a bit of share access) with what the client has of
 * the file? Yes if the user has opened it so, or under a delegation. */
bool st_file_opened(const struct st_file *f, const struct st_client *c, uint32_t uid,
		    uint32_t access);
void st_open_free(struct st *st, struct st_open *o); /* locked; st_may_free was true */
/* locked: is all locked, if freeing the open needs that (st_needs_all)? */
static inline bool st_may_free(const struct st_open *o)
{
	return !o->o_file->f_npartials || st_needs_all();
}
/* locked: returns an open that conflicts, of a live client if there is one; NULL: none */
struct st_open *st_share_conflict(struct st *st, struct st_file *f, uint32_t access, uint32_t deny);
enum { ST_SID_OPEN = 1, ST_SID_LOCK = 2, ST_SID_LAYOUT = 3, ST_SID_DELEG = 4, ST_SID_COPY = 5 };
/* Any thread: makes a stateid for state of this file, with seqid 1. */
void st_sid_make(struct st *st, uint64_t ino, unsigned type, struct st_stateid *sid);
/* Is it a stateid of this boot, of that type? */
bool st_sid_ours(struct st *st, const struct st_stateid *sid, unsigned type);
/* other all zeros with seqid 0, or all ones with the largest seqid */
bool st_sid_special(const struct st_stateid *sid);

/* Delegations; locked */
/* Makes a delegation; the caller has checked opens and other delegations. NULL: no memory. */
struct st_open *st_deleg_new(struct st *st, struct st_file *f, struct st_client *c, uint32_t type,
			     bool times, const uint8_t *fh, uint32_t fhlen);
struct st_open *st_deleg_of(struct st_file *f, const struct st_client *c);
/* Does this delegation, if another client holds it, conflict with such an open? Changes count as
 * opens for writing; reads, and requests for attributes, count as opens for reading. */
bool st_deleg_conflicts(const struct st_open *o, const struct st_client *client, uint32_t access,
			uint32_t deny);
/* The same for all delegations on the file but client's. */
bool st_file_deleg_conflict(const struct st_file *f, const struct st_client *client,
			    uint32_t access, uint32_t deny);
/* All locked. */
void st_deleg_recall(struct st *st, struct st_open *d);
/* All locked: recalls all conflicting ones, and does not wait. */
void st_deleg_recall_file(struct st *st, struct st_file *f, const struct st_client *client,
			  uint32_t access, uint32_t deny);
/* All locked: revokes all that still conflict. True: one of them was for writing. */
bool st_deleg_revoke_file(struct st *st, uint64_t ino, const struct st_client *client,
			  uint32_t access, uint32_t deny);
/* All locked: revokes those of the file that were recalled a recall deadline ago. A request that
 * waits for one has a deadline of its own, but many do not wait. True: one of them was for
 * writing. */
bool st_deleg_revoke_overdue(struct st *st, uint64_t ino);
/* All locked: files with such delegations of this client, at most max. */
unsigned st_deleg_overdue(struct st *st, const struct st_client *c, uint64_t *ino, unsigned max);
/* Is this a revoked stateid of this client? */
bool st_revoked_find(const struct st_client *c, const struct st_stateid *sid);
void st_revoked_free(struct st_client *c, const struct st_stateid *sid);
/* All locked: asks the holder of a write delegation. a->a_then is called later in any case. */
void st_deleg_ask(struct st *st, struct st_open *d, struct st_deleg_query *a);
void st_asks_fail(struct st_deleg *dg);
/* What is remembered of files that were opened lately: a table of fixed size, in which new entries
 * overwrite old ones. */
int st_heat_new(struct st *st); /* 0, or -1: no memory */
bool st_heat_contended(const struct st *st, uint64_t ino);
void st_heat_conflict(struct st *st, uint64_t ino);
/* The client opens it: returns how many times in a row it did so while no other client did, within
 * a lease. */
unsigned st_heat_opened(struct st *st, uint64_t ino, const struct st_client *c, bool write);
/* Are nearly as many delegations out as may be, counting what was taken ahead (st_tick gives that
 * back first)? Then no client whose lease has run out is kept for its delegations. */
bool st_deleg_many(const struct st *st);
/* All locked: in that case asks clients that hold many to give some back. */
void st_deleg_thin(struct st *st);

/* Byte-range locks; locked */
struct st_lock *st_lock_find(struct st *st, const struct st_stateid *sid);
struct st_lock *st_lock_by_owner(struct st_file *f, const struct st_client *c, const void *owner,
				 uint32_t len);
/* NULL: no memory */
struct st_lock *st_lock_new(struct st *st, struct st_open *o, const void *owner, uint32_t len);
void st_lock_free(struct st *st, struct st_lock *k);
/* Returns a range of another owner that conflicts, and its owner's state: of a live client if there
 * is one. NULL: none. */
const struct st_range *st_lock_conflict(struct st *st, struct st_file *f, const struct st_client *c,
					const void *owner, uint32_t len, uint64_t first,
					uint64_t last, bool write, struct st_lock **holder);
/* st_lock_set makes [first, last] this kind, whatever the owner held of it; st_lock_clear releases
 * it. -ENOMEM: nothing changed. */
int st_lock_set(struct st_lock *k, uint64_t first, uint64_t last, bool write);
int st_lock_clear(struct st_lock *k, uint64_t first, uint64_t last);
bool st_open_has_locks(const struct st_open *o);
/* Notes an owner that was denied and waits. fh: the file's, as GETFH returns it. A file keeps a
 * limited number of them; others must poll, as clients do in any case. */
void st_wait_for_lock(struct st_file *f, const struct st_client *c, const void *owner, uint32_t len,
		      uint64_t first, uint64_t last, bool write, const uint8_t *fh, uint32_t fhlen);
/* Call it when locks are gone; all must be locked if f_waiters is not empty. Notifies waiting
 * owners with which nothing conflicts any more. */
void st_locks_gone(struct st *st, struct st_file *f);
/* Returns the open that an open or lock stateid stands for, and the stateid's current seqid. */
struct st_open *st_open_or_lock(struct st *st, const struct st_stateid *sid, uint32_t *seqid);

/* Layouts */
struct st_layout *st_layout_find(struct st *st, const struct st_stateid *sid);		/* locked */
struct st_layout *st_layout_of(struct st_file *f, struct st_client *c);			/* locked */
struct st_layout *st_layout_new(struct st *st, struct st_file *f, struct st_client *c); /* locked */
/* locked; wakes waiters */
void st_layout_free(struct st *st, struct st_layout *l);
/* locked: takes modes off; frees it when none is left, wakes waiters */
void st_layout_drop(struct st *st, struct st_layout *l, uint32_t iomode);
/* locked. Call it when f_intent, f_intent_old, f_suspect, f_nhidden or f_contended was set: from
 * then on st_watched(f_ino) is true, until none of them is set. */
void st_file_watch(struct st_file *f);
/* Any thread, without a lock. False: no delegation on the file is out, and it is not marked, not to
 * be judged, and not hidden. True may rarely be wrong. */
bool st_watched(uint64_t ino);
/* Any thread. It changes when a file is no longer watched, or a delegation has gone. A snapshot
 * from before that may be older than answers that were given about the file since. */
uint32_t st_unwatches(void);
/* locked: a writer of the file is lost. */
static inline void st_file_suspect(struct st_file *f)
{
	f->f_suspect = true;
	st_file_watch(f);
	f->f_suspect_gen++;
}
/* locked: a RW layout is out */
bool st_file_has_writers(struct st_file *f);
/* Recalls the layouts of the file that clients other than except (NULL: all clients) hold; with
 * rw_only only RW ones. then(arg, nleft) is called on loop when all have come back, or at the
 * deadline with the number still out: the caller fences, then calls st_revoke_file. Returns how
 * many were recalled; 0: then is not called. Takes the lock. */
struct st_wait {
	struct st_wait *w_next;
	struct st *w_st;
	uint64_t w_ino;
	struct st_client *w_except;
	bool w_rw_only, w_done;
	uint64_t w_until_ns;	   /* the deadline, by st_now_ns */
	bool w_delegs;		   /* it waits for delegations */
	uint32_t w_access, w_deny; /* the access with which they conflict */
	struct loop *w_loop;
	struct loop_timer w_timer;
	struct loop_msg w_msg;
	void (*w_then)(struct st_wait *w, unsigned left);
	unsigned w_left;
};
unsigned st_recall_file(struct st *st, uint64_t ino, struct st_client *except, bool rw_only,
			struct loop *loop, uint32_t deadline_ms, struct st_wait *w);
/* The same for delegations that conflict with such an open. */
unsigned st_recall_delegs(struct st *st, uint64_t ino, struct st_client *except, uint32_t access,
			  uint32_t deny, struct loop *loop, uint32_t deadline_ms,
			  struct st_wait *w);
/* Revokes what is still out after a fence. Takes the lock. */
void st_revoke_file(struct st *st, uint64_t ino, struct st_client *except, bool rw_only);

/* partial_write.c; all locked. The client was asked to repeat a change of [off, end), which some
 * copies may have already. This is remembered until st_partial_over reports that the change was
 * done. If the client goes first, or closes the file, the file is to be judged (f_suspect). False:
 * no room; the caller judges. */
bool st_partial_note(struct st *st, struct st_client *c, uint64_t ino, uint64_t off, uint64_t end);
void st_partial_over(struct st *st, struct st_client *c, uint64_t ino, uint64_t off, uint64_t end);
/* The changes will not be repeated: of this file, or of all files (NULL). */
void st_partial_lost(struct st *st, struct st_client *c, struct st_file *f);

/* Asynchronous copies (RFC 7862 section 4.8). A state ends with its client, with the client's
 * answer to CB_OFFLOAD, or when it is cancelled. The job that copies polls st_offload_is_over, and
 * ends the state in any case by st_offload_end. */
struct st_offload_end {
	nfsstat4 oe_status;
	uint64_t oe_count;
	uint32_t oe_how; /* stable_how4 */
	uint64_t oe_verifier;
};
/* A request that waits for the end of a cancelled job. */
struct st_offload_wait {
	struct loop_msg ow_msg;
	struct loop *ow_loop;
	void *ow_arg;
};
struct st_offload {
	struct st_client *of_client; /* NULL: over */
	struct st_offload *of_next, **of_prev;
	struct st_stateid of_sid;
	uint64_t of_ino; /* the destination */
	uint32_t of_uid; /* the owner: no other user may cancel it (section 4.2) */
	uint8_t of_fh[NFS4_FHSIZE];
	uint32_t of_fhlen;
	uint64_t of_count;
	bool of_done;
	struct st_offload_end of_end;
	struct st_offload_wait *of_wait;
};
/* These take the lock. NULL: the client has no backchannel, or too many copies. */
struct st_offload *st_offload_new(struct st *st, struct st_client *c, uint64_t ino, uint32_t uid,
				  const uint8_t *fh, uint32_t fhlen, struct st_stateid *sid);
void st_offload_progress(struct st *st, struct st_offload *of, uint64_t count);
bool st_offload_is_over(struct st *st, struct st_offload *of);
/* Queues CB_OFFLOAD; the job must not use of after this. */
void st_offload_end(struct st *st, struct st_offload *of, const struct st_offload_end *end);
/* These are locked. BAD_STATEID: there is none of that file and user. */
nfsstat4 st_offload_find(struct st_client *c, const struct st_stateid *sid, uint64_t ino,
			 uint32_t uid, struct st_offload **of);
/* False: it is done already. Else w's message comes when the job has ended. */
bool st_offload_cancel(struct st_offload *of, struct st_offload_wait *w);
void st_offloads_drop(struct st_client *c);
#endif
