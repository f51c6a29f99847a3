/*
 * st.h - clients, sessions, open and layout state (RFC 8881 chapters 2.10, 8, 9, 12), in memory,
 * and the durable list of clients.
 *
 * What is durable: one row per confirmed client (its owner, verifier, number), so that after a
 * restart exactly those may reclaim. All else is rebuilt by reclaims. The boot epoch
 * (ns_super.su_boot) is in every clientid, sessionid and stateid, so nothing of an earlier boot is
 * mistaken for this one's; and the store's identity, so that nothing of another cluster is. Nobody
 * guesses one (ids.h).
 *
 * Locks, held for table look-ups only, never over I/O, a commit or a send (shard.c):
 * - all (st_all_lock): clients, sessions made and destroyed, the durable list, grace's end,
 *   callbacks and their queues, asynchronous copies, half.c, walks over what a client or all have.
 *   It keeps out every other holder of state.
 * - a file's (st_file_lock): the file, its opens, locks, layouts and delegations, who waits for
 *   them, what was seen of it lately; and the tables they are found in. It is the lock of a shard,
 *   by inode number, and the thread's own: files of different shards share nothing. With it one
 *   looks at what all guards (is the client gone, its sessions, its revoked stateids, f_halves),
 *   and changes none of it. What is rare and needs more (a recall, a callback) is done once more
 *   under all: st_work.
 * - the thread's own alone (st_look_lock): what all guards stays as it is.
 * - sp_lock, a client's stripe: its lists of opens and layouts, and what is counted; taken last,
 *   with the file or all locked. Who has all locked walks the lists without it.
 * - se_lock, a session's own: see below. All, where both are held, is taken first.
 * Functions say "locked" when the caller must hold the lock of the file that they are about, or
 * all; "all locked" when it must be all. Of functions about a client, a session, a callback or
 * grace it is all.
 *
 * The order "register the state, then look with a fresh snapshot; commit a change, then look at the
 * state" holds with a file's lock as it does with all: both looks at the state are under it. What
 * is looked at without a lock (st_watched, st_others_have) is written before the registration is
 * over, and read behind the commit, in one order for all threads (seq_cst).
 *
 * A request that only reads takes no lock, and writes no line that another request writes, be that
 * of another session or of another connection of the same:
 * - its session is found by RCU (st_session_find), and so is its slot, which has a line of its own;
 *   the request takes it by compare-and-swap (slot.c) and keeps it until it is answered. What all
 *   slots of a session share is written when it changes, under se_lock. Locks are taken in this
 *   order: all or a file's, cl_lock, se_lock;
 * - what a client has in hand, and when it was heard last, is read from its slots when somebody
 *   asks (st_silent_ns);
 * - whether a file has state that an answer about it depends on is asked of st_watched() first, a
 *   table of counts that is written when such state comes and goes.
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
#define ST_SLOTS_LEAST 2u   /* that no session is denied */
#define ST_BOUND       64   /* connections of a session with SP4_MACH_CRED */
/* the most of a backchannel: one that is not answered holds up no other */
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
 * A slot and its sequence belong to the request that made it busy; others look at sl_turn and
 * sl_renewed_ns only. Who finds it by RCU alone may find one that is gone (from the session) and
 * then looks again.
 */
struct st_slot {
	/* free, busy, ... (slot.c), and the sequence of its last request */
	_Alignas(64) _Atomic uint64_t sl_turn;
	_Atomic uint64_t sl_renewed_ns; /* when its last request was begun or answered */
	uint8_t *sl_reply;		/* the COMPOUND results as sent, malloc'd */
	uint32_t sl_len;
	uint32_t sl_told;    /* bytes that se_kept has of it */
	uint32_t sl_told_in; /* the review (se_reviews) since which */
	/* of the request: a retry with other bytes is false (RFC 8881 section 2.10.6.1.3.1) */
	uint32_t sl_check;
	uint32_t sl_gen; /* of the target (st_room) that its last reply told */
	bool sl_cached;
	bool sl_fresh;	 /* it has not had a request yet */
	bool sl_revoked; /* its last reply told RECALLABLE_STATE_REVOKED: a retry is told too */
	struct rcu_head sl_rcu;
};
_Static_assert(sizeof(struct st_slot) == 64, "a line each");

struct st_slots {
	struct rcu_head ss_rcu;
	uint32_t ss_n;
	struct st_slot *_Atomic ss_slot[]; /* NULL: not used yet, or gone */
};

/* How many slots a session has: read and written as one. */
struct st_room {
	uint16_t r_nslots; /* enforced: the client may use slots below it */
	uint16_t r_target; /* what it is asked to keep to; r_nslots follows when it does */
	uint32_t r_gen;	   /* changes with the target */
};

/*
 * The requests that gave a layout or a delegation, as far as it is not known that the client has
 * their replies: until a request's slot is used again, its reply may still be on the way, and a
 * callback overtake it (RFC 8881 section 2.10.6.3). Such ones are told with a callback, as
 * referring calls; and that the client knows nothing of what it was given is no proof that it will
 * not.
 */
#define ST_GRANTS 2u
struct st_grants {
	struct st_grant {
		uint8_t g_session[NFS4_SESSIONID_SIZE];
		uint32_t g_slot, g_seq;
	} gs_grant[ST_GRANTS];
	uint8_t gs_n;
	bool gs_more;	     /* there were others */
	uint64_t gs_more_ns; /* the last of them was forgotten then */
};

struct st_client;
struct st_session {
	struct hash_link se_link;
	uint8_t se_id[NFS4_SESSIONID_SIZE];
	struct st_client *se_client;
	struct st_session *se_next; /* of the client */
	struct cds_hlist_node se_node;
	struct rcu_head se_rcu;
	pthread_mutex_t se_lock; /* of what says "own" */
	/* it is in no table any more, and ends when no slot is busy; written with se_lock and all
	 * held */
	_Atomic bool se_dead;
	bool se_ended; /* all */
	/* a bit of 64 for each connection that it came on, by rpc_conn_id: two may share one */
	_Atomic uint64_t se_carried;
	_Atomic bool se_rows; /* the store has rows of its requests (mds/nfs4/once.c) */
	/* who made it, and from where: its connection's address, security (enum exp_sec) and TLS
	 * (enum exp_tls) */
	uint8_t se_addr[16], se_sec, se_tls;
	uint32_t se_minor; /* of the CREATE_SESSION: callbacks carry it */
	/* Written when they change only, with se_lock held, except for se_peak and se_kept. */
	_Atomic struct st_room se_room;
	struct st_slots *_Atomic se_slots;
	_Atomic uint64_t se_reviewed_ns;
	_Atomic uint32_t se_reviews; /* how often */
	_Atomic uint32_t se_peak;    /* slots in use at a time since se_reviewed_ns */
	/* bytes of slots, and, nearly, of replies: what st_kept has of it */
	_Atomic uint64_t se_kept;
	uint32_t se_most;	     /* what it asked for, within bounds */
	uint32_t *se_past, se_npast; /* own; the last sequence of slots that went, or 0 */
	_Atomic bool se_used;
	uint32_t se_maxreq, se_maxresp, se_maxcached, se_maxops;
	/* backchannel */
	uint32_t se_cb_prog, se_cb_flavor, se_cb_uid, se_cb_gid;
	struct rpc_conn *_Atomic se_cb_conn; /* or NULL: path down */
	struct hash_link se_conn_link;	     /* while there is one: by connection */
	/* SP4_MACH_CRED: the connections that may carry the session's requests; no others do */
	/* ST_BOUND times rpc_conn_id, the oldest makes room; from before it is published, or
	 * NULL */
	_Atomic uint64_t *se_bound;
	_Atomic unsigned se_nbound; /* ever; own */
	/* the sequence that a slot's next callback has */
	uint32_t se_cb_nslots, se_cb_next[ST_CB_SLOTS];
	/* slots in use, and those whose last callback has no answer; a bit each */
	uint32_t se_cb_busy, se_cb_doubt;
	struct st_cb *se_cb_head, **se_cb_tail; /* callbacks waiting for a slot */
};

/* What is counted of a client, of all clients of an address, and of all, so that neither one client
 * nor one address takes all of it: opens without delegations, lock-owners' states, their ranges,
 * layouts, delegations. */
enum st_count { ST_N_OPENS, ST_N_LOCKS, ST_N_RANGES, ST_N_LAYOUTS, ST_N_DELEGS, ST_COUNTS };
/* With what was taken ahead (sp_room). */
struct st_counts {
	_Alignas(64) _Atomic uint32_t ct_n[ST_COUNTS];
	/* Of a client: */
	/* its stripes that have room; a bit each, written under sp_lock */
	_Atomic uint8_t ct_roomy;
	_Atomic uint64_t ct_takes; /* how often ct_n rose */
};

/*
 * Of a client, by the thread that opened or laid out: its connections do not meet here. Room is
 * taken of the client's count, its address's and all clients' (struct st_counts) in portions, so
 * that those are not written by each open; what is not used goes back within seconds. Where half of
 * a limit is reached, what is taken is what is used.
 */
struct st_stripe {
	_Alignas(64) pthread_mutex_t sp_lock;
	struct st_open *sp_opens; /* delegations, too */
	struct st_layout *sp_layouts;
	_Atomic uint8_t sp_room[ST_COUNTS]; /* taken, and not used */
	_Atomic uint8_t sp_used;	    /* since the last st_rooms_tick; a bit each */
};
#define ST_STRIPES 8u

/* Where clients come from. */
struct st_place {
	struct hash_link pl_link;
	uint8_t pl_addr[16];
	uint32_t pl_clients;
	struct st_counts pl_counts;
	uint64_t pl_oldest_ns; /* st_client_oldest looked here */
	_Atomic uint64_t pl_gathered_ns[ST_COUNTS];
};

/* A data server that a client does not reach. */
struct st_unreached {
	uint32_t un_ds;	   /* 0: none */
	uint64_t un_at_ms; /* when it said so last */
};
#define ST_UNREACHED 16

struct st_client {
	struct hash_link cl_link, cl_owner_link;
	struct rcu_head cl_rcu;
	uint64_t cl_id;
	uint32_t cl_number;	   /* durable: in capabilities */
	struct st_place *cl_place; /* of its EXCHANGE_ID, or NULL */
	uint8_t cl_tls;		   /* enum rpc_tls, of its EXCHANGE_ID */
	uint8_t *cl_owner;
	uint32_t cl_owner_len;
	uint8_t cl_verifier[8];
	uint32_t cl_flavor, cl_uid; /* principal */
	char *cl_principal;	    /* of RPC_AUTH_GSS: user@REALM; else NULL */
	uint8_t cl_key[32];	    /* of its durable record: a hash of owner and principal */
	/* SP4_MACH_CRED: operations in cl_enforce are the principal's alone, with integrity or
	 * privacy */
	bool cl_mach;
	uint32_t cl_enforce[3], cl_allow[3]; /* bitmap4 of operations (RFC 8881 section 18.35.3) */
	bool cl_confirmed, cl_recorded, cl_dead;
	_Atomic bool cl_reclaim_done, cl_may_reclaim;
	/* it said RECLAIM_COMPLETE, of whatever scope: it may lock (RFC 8881 section 18.51.3) */
	_Atomic bool cl_ready;
	bool cl_notified;      /* it asked to be told when a device changes */
	bool cl_notified_gone; /* and when one goes */
	bool cl_stripes;       /* it is known to read and write striped layouts */
	/* it is from an earlier boot, with layouts of then that are not known */
	bool cl_boot;
	/* it was given layouts: its number must be barred when it is evicted */
	_Atomic bool cl_laid;
	_Atomic bool cl_evicting; /* no request of it begins (st_client_leaves) */
	bool cl_confirming;
	bool cl_parted;	      /* it has destroyed a session */
	bool cl_recalls_wait; /* recalls that found no session */
	uint32_t cl_nsessions;
	struct st *cl_st; /* or NULL: what it has is not counted */
	struct st_stripe cl_stripe[ST_STRIPES];
	struct st_counts cl_counts;
	uint32_t cl_cs_seq;	  /* next CREATE_SESSION sequence */
	uint8_t cl_cs_reply[128]; /* the last CREATE_SESSION's results */
	uint32_t cl_cs_len;
	uint8_t cl_cs_addr[16]; /* of the connection that it came on */
	/* When it was heard last, to a part of a lease: written when that is longer ago, and when
	 * slots or sessions go. To the nanosecond: st_silent_ns. */
	_Atomic uint64_t cl_renewed_ns;
	/* of the lists of sessions; to look, any lock on state does as well */
	pthread_mutex_t cl_lock;
	uint32_t cl_refs;
	_Atomic uint32_t cl_revoked;		     /* SEQ4_STATUS_* to report */
	struct st_session *cl_sessions, *cl_parting; /* parting: dead, with requests in hand */
	struct st_offload *cl_offloads;		     /* the newest first */
	uint32_t cl_noffloads;
	_Atomic uint32_t cl_nrevoked, cl_nrecalled;
	struct st_revoked *cl_dead_sids;
	struct st_half *cl_halves;
	_Atomic uint32_t cl_nhalves;
	struct st_unreached *_Atomic cl_unreached; /* ST_UNREACHED of them, or NULL */
	bool cl_thinned;			   /* CB_RECALL_ANY is under way */
};

/* A write through us that some copies have, and some may not: the client was told to ask again, and
 * has not yet (half.c). */
struct st_half {
	struct st_half *hf_next;
	struct st_file *hf_file;
	uint64_t hf_off, hf_end;
};

/* A write of a mirrored file through us that is under way: two that overlap could reach its copies
 * in different orders. In the memory of whoever writes. */
struct st_write {
	struct st_write *sw_next;
	const struct st_client *sw_client;
	uint64_t sw_off, sw_end;
};

/* State of one file while anybody has some. */
struct st_file {
	struct hash_link f_link;
	uint64_t f_ino;
	struct st_open *f_opens;
	struct st_lock *f_locks; /* each belongs to one of f_opens */
	struct st_waiter *f_waiters;
	uint32_t f_nwaiters;
	/* for layouts or delegations to come back (st_recall_file, st_recall_delegs) */
	struct st_wait *f_waits;
	struct st_layout *f_layouts;
	uint32_t f_removing; /* a mutation that frees it is queued: no new opens (DELAY) */
	/* a shrink or a recall is under way: no new layouts (RECALLCONFLICT) */
	uint32_t f_excl;
	bool f_watched; /* st_file_watch */
	/* a write layout is or was out: size and change must come from the data servers */
	bool f_marked;
	/* the store has the mark: f is kept, so that it is known until the mark is deleted */
	bool f_mark_durable;
	/* a writer of it is lost: one copy is believed, the others become stale, before it is used
	 * again (excl_settle) */
	bool f_judge;
	uint32_t f_judge_gen; /* rises with each: who judged it before knows nothing of this one */
	/* it had writers when an earlier boot ended; who they were is not known */
	bool f_judge_boot;
	/* the mark is an earlier boot's: the epoch goes up before its size is asked or a layout
	 * given (excl_settle) */
	bool f_mark_old;
	uint32_t f_old_epoch; /* what it was raised to for that */
	/* mirrored, and two wrote it at once: its copies may differ (mds/jobs/contend.c). The mark
	 * says so, too */
	bool f_contended;
	bool f_contending;	   /* that is being written down */
	bool f_alike;		   /* contended, and compared since the last grant for writing */
	struct st_write *f_writes; /* of a mirrored file, each pinned */
	/* mirrored: its copies told different ends or writes when nobody wrote it, and are not
	 * compared yet (contend.c) */
	bool f_uneven;
	bool f_counts;	       /* f_moved is of all writes since the mark was put */
	uint64_t f_moved;      /* objects that were written since, a bit each */
	bool f_set;	       /* a size was set in this boot, */
	uint32_t f_set_grants; /* and this was f_grants then */
	bool f_orphan;	       /* last link gone while open */
	/* of f_excl: those in whose way changes of data through the MDS are */
	uint32_t f_frozen;
	uint32_t f_hidden; /* of f_frozen: and reads */
	/* of f_excl: layouts come back, which may name what is stale: no writes through the MDS,
	 * that those would not see */
	uint32_t f_taking;
	uint32_t f_sizing;  /* of f_excl: those that set the size */
	uint32_t f_cutting; /* of f_sizing: those whose size is in the store, or about to be */
	uint32_t f_pins;    /* questions to the data servers under way */
	uint32_t f_halves;  /* writes of it that some copies have (st_half) */
	/* the last copy failed with it: write layouts are refused until f_error_until_ns, so that
	 * the application hears it */
	nfsstat4 f_error;
	uint64_t f_error_until_ns, f_error_client; /* for the client that reported it */
	/* objects (a bit each) that f_unread_client could not read, or not reach, lately: until
	 * f_unread_until_ns */
	uint64_t f_unread, f_unreached;
	uint64_t f_unread_client, f_unread_until_ns;
	/* the epoch, plus 1, in which a live server was reported to deny access: at the second
	 * report that counts */
	uint32_t f_denied;
	uint32_t f_mark_gen; /* rises when the mark is deleted */
	/* rises with each grant for writing: an answer asked for before it does not take the mark
	 * away */
	uint32_t f_grants;
	uint64_t f_calm_ns; /* not frozen again before, for who only reads it (clone.c) */
	/* rises with every size that is set: an answer asked for before it is worth nothing */
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
	/* change attribute that the holder knew when it was given: another in CB_GETATTR says that
	 * it has written */
	uint64_t dg_change;
	struct st_ask *dg_asks;	    /* who waits for the holder's CB_GETATTR */
	uint8_t dg_fh[NFS4_FHSIZE]; /* as GETFH gave it */
	uint32_t dg_fhlen;
	struct st_grants dg_grants;
};

/* What a holder of a write delegation told (RFC 8881 section 20.1). a_then runs on a_loop. */
struct st_ask {
	struct st_ask *a_next;
	struct loop_msg a_msg;
	struct loop *a_loop;
	void (*a_then)(struct st_ask *a);
	int a_err;	 /* not 0: there is no answer */
	bool a_modified; /* it has written since it got the delegation */
	bool a_times;	 /* a_atime, a_mtime are there */
	uint64_t a_size;
	struct ns_time a_atime, a_mtime;
};

/* The attributes of a CB_GETATTR's answer: size and change must be there, times both or none;
 * anything else is no answer (false). given: dg_change. Here for the fuzzer. */
bool st_ask_decode(struct xdr_in *x, uint64_t given, struct st_ask *a);

/* A delegation that was revoked: its stateid answers DELEG_REVOKED until the client frees it (RFC
 * 8881 section 18.38). */
struct st_revoked {
	struct st_revoked *v_next;
	struct st_stateid v_sid;
};

/* A user who opened a file, and for what. */
struct st_user {
	struct st_user *u_next;
	uint32_t u_uid, u_access; /* 0: nobody */
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
	/* who opened it: the first, and others of the same open-owner, each of which counts as one
	 * more open */
	struct st_user o_user;
	struct st_user *o_users;
	uint32_t o_owner_len;
	uint8_t o_owner[];
};

/* What a lock-owner holds of a file: one stateid for both. */
struct st_range {
	/* by offset; they do not overlap, and neighbours of one kind are joined */
	struct st_range *r_next;
	uint64_t r_first, r_last; /* bytes, both in it */
	bool r_write;
};
struct st_lock {
	struct hash_link k_link; /* by stateid */
	struct st_stateid k_sid;
	struct st_open *k_open; /* it came with */
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
	/* queued: a CB_LAYOUTRECALL is on its way or waits in a session */
	bool l_recalled, l_queued;
	/* a bit of 64 for each data server that it names, or has named */
	uint64_t l_servers;
	uint32_t l_granting; /* grants of which it is not known yet which they name: any */
	/* fence epoch of the oldest grant that is out: reports against an older one than the file's
	 * mean nothing */
	uint32_t l_epoch;
	uint8_t l_fh[NFS4_FHSIZE]; /* as GETFH gave it */
	uint32_t l_fhlen;
	struct st_grants l_grants;
};

/* A lock-owner that was denied a lock it waits for: told once, by CB_NOTIFY_LOCK, when it may try
 * again (RFC 8881 section 20.11). */
struct st_waiter {
	struct st_waiter *wt_next;
	uint64_t wt_client;
	uint64_t wt_first, wt_last;
	bool wt_write;
	uint8_t wt_fh[NFS4_FHSIZE]; /* as GETFH gave it to this client */
	uint32_t wt_fhlen;
	uint32_t wt_owner_len;
	uint8_t wt_owner[];
};

/* One callback under way, and what kind it is. */
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
	enum st_cb_metric k_metric; /* counts those that are sent */
	/* locked: the operation's arguments */
	void (*k_encode)(const struct st_cb *cb, struct xdr_out *x);
	/* locked: the client's answer: the operation's status, or that of what stood before it, or
	 * -1 for none; res stands at the operation's result. True: send it again after a while. */
	bool (*k_done)(struct st *st, struct st_cb *cb, int64_t status, struct xdr_in *res);
	/* locked, or NULL: what the callback is about was given by these; NULL: nothing any more */
	struct st_grants *(*k_grants)(struct st *st, const struct st_cb *cb);
	bool k_brief; /* no answer by the recall deadline is none */
	/* locked, or NULL: its session is gone, and it with it */
	void (*k_lost)(struct st *st, struct st_cb *cb);
};
struct st_cb {
	struct st_cb *cb_next;
	const struct st_cb_kind *cb_kind;
	void *cb_arg; /* the kind's own, malloc'd, freed with the callback */
	bool cb_flag; /* the kind's own */
	/* when it was sent, not all replies that gave it were known to have come */
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
	bool cb_keeps; /* the slot: what was not answered is sent again in it */
};

/* A part of the files and of their state. A stateid names it (st_sid_make). */
enum st_kind { ST_FILE, ST_OPEN, ST_LOCK, ST_LAYOUT };
struct st_shard {
	_Alignas(64) pthread_mutex_t sh_lock;
	struct hash sh_table;	  /* by inode number or stateid; of all kinds (st_each) */
	_Atomic uint64_t sh_next; /* stateid counter */
};
#define ST_SHARDS 65536u /* files that are used at the same time rarely share one */

struct st {
	/* What requests only look at lies on lines that are rarely written. */
	struct ns *st_ns;
	uint64_t st_boot;
	/* Of the store and its incarnation: mixed into ids, so that another cluster at the same
	 * address, or a store that was restored, does not take them for its own at the same boot
	 * epoch. st_epoch is both in one. */
	uint32_t st_salt, st_epoch;
	struct st_ids st_ids;
	uint32_t st_lease_ms, st_grace_ms, st_courtesy_ms, st_recall_ms;
	uint64_t st_started_ns; /* by st_now_ns */
	/* clock.c: when the clock was looked at last, and how long we stood still in all */
	_Atomic uint64_t st_clock_seen_ns, st_paused_ns;
	pthread_mutex_t st_clock_lock;
	_Atomic bool st_in_grace;
	struct cds_hlist_head *st_by_id; /* sessions, for RCU: ST_BY_ID of them */
	uint64_t st_kept_max;
	struct st_shard *st_shards; /* ST_SHARDS of them */
	struct st_heat *st_heat;
	_Alignas(64) _Atomic uint32_t st_nsessions;
	/* in all sessions, and, nearly, the bytes of them and of kept replies */
	_Atomic uint64_t st_nslots;
	_Atomic uint64_t st_kept;
	_Alignas(64) uint32_t st_reclaimers; /* recorded clients that have not finished */
	bool st_closing;		     /* grace is being ended: st_records_close */
	uint64_t st_unclosed_ns;	     /* the store did not take that, then */
	/* of those that had layouts when the earlier boot ended, one does not come back as who it
	 * was */
	bool st_lost;
	struct hash st_clients, st_owners, st_sessions, st_cb_conns, st_records, st_places;
	uint64_t st_next;	      /* clientid and session counter of this boot */
	uint64_t st_verifier;	      /* of this boot */
	uint64_t st_oldest_ns;	      /* st_client_oldest looked */
	_Atomic uint64_t st_rooms_ns; /* the tick looked for room to give back */
	struct st_session *st_ended;  /* sessions without references whose rows are to be deleted */
	size_t st_nended;	      /* of them, those whose rows are being deleted included */
	/* called on the tick's loop, without the lock: grace is over, or is to be ended by
	 * st_records_close; clients that held removed files open are gone */
	void (*st_grace_over)(void *arg);
	void (*st_orphans)(void *arg);
	/* a delegation on it was recalled and did not come back: st_deleg_revoke_overdue */
	void (*st_overdue)(void *arg, uint64_t ino);
	/* its lease, and the courtesy after it, have run out */
	void (*st_expired)(void *arg, uint64_t clientid);
	bool st_orphaned;
	bool st_judge; /* files are to be judged since op_judge_tick looked */
	void *st_arg;
	struct metric *st_callbacks[ST_CB_METRICS], *st_revoked, *st_deleg_given[2],
		*st_deleg_wasted, *st_deleg_revoked;
	uint32_t st_max_delegs;
	uint8_t st_portion[ST_COUNTS]; /* st_set_portion */
	uint32_t st_most[ST_COUNTS][3];
	_Atomic uint64_t st_gathered_ns[ST_COUNTS];
	struct st_counts st_counts; /* of all clients */
};

int st_create(struct st **out, struct ns *ns, uint32_t lease_ms, uint32_t grace_ms,
	      uint32_t courtesy_ms);
#define ST_KEPT_MAX (256ull << 20) /* st_kept_max of a new one */

/* shard.c: locks. A thread has one of them at a time: none is taken where one is held. */
void st_all_lock(struct st *st);
void st_all_unlock(struct st *st);
void st_file_lock(struct st *st, uint64_t ino);
void st_file_unlock(struct st *st, uint64_t ino);
/* The thread's own alone: what all guards stays as it is. */
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
 * The body holds the file's lock first. Where it finds that it needs all, which st_needs_all()
 * asks, it returns as it is, with nothing changed, and is run once more, from the start, under all.
 */
struct st_work {
	struct st *k_st;
	uint64_t k_ino;
	bool k_all;
};
void st_work_lock(struct st_work *w, struct st *st, uint64_t ino);
bool st_work_again(struct st_work *w);
/* True: all is locked already. */
bool st_needs_all(void);
/* Has the calling thread locked the file, or all? And all? */
bool st_has(const struct st *st, uint64_t ino);
bool st_has_all(void);
/* It is fatal if not, in builds with a sanitizer. */
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
/* A small number of the calling thread. */
unsigned st_turn(void);
static inline struct st_shard *st_shard_of(struct st *st, uint64_t ino)
{
	return &st->st_shards[ino % ST_SHARDS];
}
int st_shards_new(struct st *st); /* 0 or -1: no memory */
/* All locked. An upper bound of the files, opens, locks and layouts together. */
size_t st_states(const struct st *st);
/* All locked: each link of the kind; the body may free what it is of, and nothing else of that
 * shard. */
#define st_each(st, kind, l)                                                                       \
	for (size_t l##_shard = 0; l##_shard < ST_SHARDS; l##_shard++)                             \
	hash_each(&(st)->st_shards[l##_shard].sh_table, l##_i, l,                                  \
		  l##_next) if (l->hl_hash >> 62 == (kind))
/* locked. Candidates; the caller compares, and goes on with hash_next. With a file's lock only what
 * is of its shard is found. */
struct hash_link *st_first_by_ino(struct st *st, uint64_t ino);
struct hash_link *st_first_by_sid(struct st *st, const struct st_stateid *sid, enum st_kind kind);
int st_add_by_ino(struct st *st, uint64_t ino, struct hash_link *l); /* 0 or -1, as hash_add */
int st_add_by_sid(struct st *st, uint64_t ino, const struct st_stateid *sid, enum st_kind kind,
		  struct hash_link *l);
void st_table_del(struct st *st, uint64_t ino, struct hash_link *l); /* ino: its file's */

/* Clients */
/* locked */
struct st_client *st_client_get(struct st *st, uint64_t id);
/* locked */
struct st_client *st_client_by_owner(struct st *st, const void *owner, uint32_t len,
				     bool confirmed);
/* locked; NULL: no memory */
struct st_client *st_client_new(struct st *st, const void *owner, uint32_t len,
				const uint8_t verifier[8]);
/* locked: how many clients an address has; and a new one is there. -ENOMEM */
uint32_t st_clients_at(const struct st *st, const uint8_t addr[16]);
int st_client_at(struct st *st, struct st_client *c, const uint8_t addr[16]);
/* locked: it has one more, or one less, of what; its address and all have as well. */
void st_count(struct st_client *c, enum st_count what, int more);
/* Before anything is counted: most of one client, of an address, of all; what is taken ahead is a
 * small part of the least. */
void st_set_portion(struct st *st, enum st_count what, uint32_t of_client, uint32_t of_addr,
		    uint32_t of_all);
/* Any thread, without a lock: one more is room that the thread has already. */
bool st_has_room(const struct st_client *c, enum st_count what);
/* All locked: how many the client, and all, really have. */
uint32_t st_client_number(const struct st_client *c, enum st_count what);
uint32_t st_number(struct st *st, enum st_count what);
/* All locked: what the client took ahead is given back. */
void st_rooms_back(struct st_client *c);
/* Looked at, now and then: what it took ahead and has not used since the last time is given back;
 * where half of a limit is reached, all of it. */
void st_rooms_tick(struct st_client *c);
/* Looked at: of one kind, all of it. */
void st_room_back(struct st_client *c, enum st_count what);
/* Looked at: the same for all clients of the place (NULL: for all clients), at most once a second.
 * False: it is too soon. */
bool st_rooms_gather(struct st *st, struct st_place *at, enum st_count what);
/* Any thread: might another client have some? Never false where one has. */
bool st_others_have(const struct st_client *c, enum st_count what);
/* All locked: its next open or delegation, layout; NULL: the first, and the end. */
struct st_open *st_open_next(const struct st_client *c, const struct st_open *o);
struct st_layout *st_layout_next(const struct st_client *c, const struct st_layout *l);
/* locked: into its list, and counted; and out of it. */
void st_open_list(struct st_open *o);
void st_open_unlist(struct st_open *o);
void st_layout_list(struct st_layout *l);
void st_layout_unlist(struct st_layout *l);
/* locked: of those whose lease has run out, at addr where that is not NULL, the one that was heard
 * last the longest time ago; 0: none. Looks at all, once a second for each address. */
uint64_t st_client_oldest(struct st *st, const uint8_t *addr);
/* locked: whose it is, before it is confirmed. False: no memory. */
bool st_client_principal(struct st_client *c, uint32_t flavor, uint32_t uid, const char *principal);
bool st_lease_expired(struct st *st, struct st_client *c); /* takes cl_lock, where it may be so */
/* locked: it is gone, or its number is being barred: a COMPOUND of it that was parked registers
 * nothing any more. */
static inline bool st_client_goes(const struct st_client *c)
{
	return c->cl_dead || atomic_load(&c->cl_evicting);
}
/* locked. Takes it out of all tables with its sessions, opens and layouts. Orphans it held open are
 * freed by the next tick's sweep (st_orphans). */
void st_client_destroy(struct st *st, struct st_client *c);
void st_client_put(struct st_client *c); /* locked: drops a reference */
/* The durable record: rows NS_T_CLIENT, keyed by cl_key. */
struct st_record {
	struct hash_link r_link;
	uint8_t r_hash[32];
	bool r_done; /* RECLAIM_COMPLETE */
	bool r_back; /* its owner has a client again, or one that is being confirmed */
	/* its row says that grace ended before its RECLAIM_COMPLETE, at this boot or an earlier
	 * one */
	bool r_owes;
	/* the end of grace: its row is being marked or deleted, and was */
	bool r_closing, r_closed;
};
/* W: number: the client's in capabilities, kept over our restarts. A client that was itself
 * restarted (another verifier) gets a new one, and *old is the one to bar from the data servers:
 * writes under it may still be on the wire. *old is 0 otherwise. */
int st_record_put(struct st *st, struct kv_txn *t, const uint8_t key[32], const uint8_t verifier[8],
		  uint32_t *number, uint32_t *old);
/* W: unless it is a later incarnation's: its number is another. */
int st_record_del(struct st *st, struct kv_txn *t, const uint8_t key[32], uint32_t number);
/* W: RECLAIM_COMPLETE came: what it locks from now on it may reclaim at the next start. */
int st_record_complete(struct kv_txn *t, const uint8_t key[32]);
/* Which client numbers may yet be in a capability, of all below *next: those in rows, and those of
 * clients in memory; malloc'd, in any order, a number perhaps twice. No other one below *next is
 * ever a client's again. 0, or a negative errno. Takes the locks. */
int st_living(struct st *st, uint32_t **numbers, size_t *n, uint32_t *next);
/* locked: was the owner recorded by an earlier boot; has it not finished reclaiming; and does, or
 * may, its row say that a RECLAIM_COMPLETE is owed */
bool st_record_known(struct st *st, const uint8_t key[32]);
bool st_record_reclaims(struct st *st, const uint8_t key[32]);
bool st_record_owes(struct st *st, const uint8_t key[32]);
/* Looked at. May the client reclaim? NO_GRACE: not now, or not any more (RFC 8881 sections 8.4.3
 * and 18.51.3). RECLAIM_BAD: it had nothing when the earlier boot ended. */
nfsstat4 st_reclaim_check(struct st *st, const struct st_client *c);
/* locked, or before anything is served: a writer of an earlier boot is lost, so all files that had
 * one then are to be judged. */
void st_marks_judge(struct st *st);
/* A mark's row (docs/size.md): version 1 is that byte alone; version 2 has a byte of flags. */
enum { ST_MARK_CONTENDED = 1 };
static inline bool st_mark_contended(struct kv_slice row)
{
	const uint8_t *p = row.s_data;

	return row.s_len >= 2 && p[0] == 2 && (p[1] & ST_MARK_CONTENDED);
}
/* locked: its owner is being confirmed again: what is recorded stays */
void st_record_back(struct st *st, const uint8_t key[32]);
/* locked: that failed: unless the owner has a client of this record that is confirmed, or is being
 * confirmed, it is not back */
void st_record_away(struct st *st, const void *owner, uint32_t len, const uint8_t key[32]);
/* locked: RECLAIM_COMPLETE by this owner; ends grace when it was the last. And its row says so,
 * where that said otherwise. */
void st_record_done(struct st *st, const uint8_t key[32]);
void st_record_paid(struct st *st, const uint8_t key[32]);
/* locked */
bool st_in_grace(struct st *st);
/* Every second on one loop: expires leases, ends grace. */
void st_tick(struct st *st);

/*
 * The end of grace, begun by the tick (st_grace_over): no client reclaims any more, and none locks
 * anew before the store says who may not reclaim at the next start.
 *
 * W: of up to 64 recorded clients: forgets those that did not come back, and evict(arg, t, number)
 * bars each from the data servers; marks those that are back and owe a RECLAIM_COMPLETE. Returns
 * how many were forgotten, or a negative errno. *more: there were some; once this is committed,
 * again.
 */
int st_records_close(struct st *st, struct kv_txn *t,
		     int (*evict)(void *arg, struct kv_txn *t, uint32_t number), void *arg,
		     bool *more);
/* It is committed (err 0), or was not. Grace ends when there are no more; where it failed, a tick
 * begins anew after a second. Takes the lock. */
void st_records_closed(struct st *st, int err, bool more);

/* Sessions */
struct st_session *st_session_get(struct st *st, const uint8_t id[16]); /* locked */
/* In an RCU read section (urcu-memb), to the end of which it stays: the one of this id that is not
 * dead. NULL: there is none. */
struct st_session *st_session_find(struct st *st, const uint8_t id[16]);
/* In one as well: a slot of a dead session is not busy any more. Locks all. */
void st_session_over(struct st *st, struct st_session *s);
struct st_session *st_session_new(struct st *st, struct st_client *c); /* locked */
/* locked: it is made; st_session_find finds it from now on */
void st_session_publish(struct st *st, struct st_session *s);
/* of st_sessions_ended: its memory, when nobody looks at it any more */
void st_session_free(struct st_session *s);
/* locked: no request of the client begins from now on (cl_evicting). False: one is in hand, and
 * nothing is changed. */
bool st_client_leaves(struct st_client *c);
/* Nanoseconds, of the clock that stands still while we do (clock.c): all times by which a client is
 * silent. Any thread. */
uint64_t st_now_ns(struct st *st);
void st_clock_tick(struct st *st);
void st_clock_init(struct st *st);
/* Nanoseconds from then to now, both of st_now_ns; 0 where the clock went back between them. */
static inline uint64_t st_since(uint64_t then, uint64_t now)
{
	return now > then ? now - then : 0;
}
/* How long a client was silent, at now; 0 while a request of it is in hand. Its lease may have been
 * renewed since. Looks at all its slots; takes cl_lock. */
uint64_t st_silent_ns(struct st_client *c, uint64_t now);
/* for longer than ns; mostly without looking at slots */
bool st_silent_over(struct st_client *c, uint64_t now, uint64_t ns);
void st_renewed(struct st_client *c, uint64_t at_ns); /* it was heard then */
/* locked; memory goes when no request is in hand */
void st_session_destroy(struct st *st, struct st_session *s);
#define ST_BY_ID 16384u /* chains of sessions */
/* Slots (slot.c). locked: how many a new session has, of those it asks for. */
uint32_t st_slots_grant(struct st *st, struct st_session *s, uint32_t asked);
/* In an RCU read section, or with se_lock held. NULL: not used yet, or gone. */
struct st_slot *st_slot_get(const struct st_session *s, uint32_t slot);
bool st_slot_busy(const struct st_slot *sl);	/* a request is in hand */
uint32_t st_slot_seq(const struct st_slot *sl); /* of its last request */
/* A SEQUENCE, and what became of it. */
struct st_seq {
	uint32_t sq_slot, sq_seq, sq_highest;
	bool sq_keep;	     /* its reply must be kept */
	nfsstat4 sq_refused; /* what it is answered if it is a new request; or NFS4_OK */
	bool sq_retry;
	struct st_slot *sq_sl;
	struct st_room sq_room; /* what the reply tells */
};
static inline struct st_room st_room(const struct st_session *s)
{
	return atomic_load(&s->se_room);
}
/*
 * In an RCU read section. NFS4_OK: sq_sl is the caller's. If it is a retry of the slot's last
 * request (sq_retry), for a moment, until st_slot_let; else it is busy with a new request until
 * st_slot_done, and its session stays until then. Else DELAY (it is in hand, there is no room or
 * memory, or the client goes), SEQ_MISORDERED, BADSLOT, BADSESSION (it went meanwhile), or
 * sq_refused.
 */
nfsstat4 st_slot_take(struct st *st, struct st_session *s, struct st_seq *q);
void st_slot_let(struct st_slot *sl);
/* reply: malloc'd, the slot's from now on; NULL: it is not kept. The client's lease begins anew, as
 * at st_slot_take; in between it does not run. The session may be gone after this. On a thread that
 * RCU knows. */
void st_slot_done(struct st *st, struct st_session *s, struct st_slot *sl, uint8_t *reply,
		  uint32_t len);
/* Is any busy? *last: becomes the time of the last request, if that is later. Takes se_lock. */
bool st_slots_busy(struct st_session *s, uint64_t *last);
/* With what they belong to locked, on a thread that RCU knows: one more. */
void st_granted(struct st *st, struct st_grants *g, const struct st_session *s, uint32_t slot,
		uint32_t seq);
/* Likewise: forgets those whose replies the client has. True: all; of those that there was no room
 * for it is taken to be so after a lease. */
bool st_grants_seen(struct st *st, struct st_grants *g);
/* locked; none is busy, and the session is dead */
void st_slots_free(struct st *st, struct st_session *s);
/* locked: some of those that have ended with rows in the store, by se_next, or NULL: nobody else
 * knows them any more, and they are the caller's to free. */
struct st_session *st_sessions_ended(struct st *st);
/* locked: c may carry callbacks of the session from now on; what waits is sent. */
void st_session_bind(struct st *st, struct st_session *s, struct rpc_conn *c);
/* locked: it came on c, so that c is the session's (RFC 8881 section 2.10.3.1); false, for sure,
 * where it never did, and has another connection that lives. */
void st_session_came(struct st_session *s, const struct rpc_conn *c);
bool st_session_carried(const struct st_session *s, const struct rpc_conn *c);
/* locked; SP4_MACH_CRED: lets the connection carry the session's requests, until it ends. False: no
 * memory. */
bool st_session_admit(struct st_session *s, const struct rpc_conn *c);
bool st_session_admits(const struct st_session *s, const struct rpc_conn *c);
/* all locked: queues CB_LAYOUTRECALL of a recalled layout on one of its client's sessions. */
void st_recall_queue(struct st *st, struct st_layout *l);
/* locked: a callback for one of the client's sessions, one with a backchannel where there is one;
 * about a file, or fhlen 0. NULL: it has none, or no memory. */
struct st_cb *st_cb_new(struct st_client *c, const struct st_cb_kind *kind, const uint8_t *fh,
			uint32_t fhlen, struct st_session **s);
void st_cb_queue(struct st *st, struct st_session *s, struct st_cb *cb); /* locked */
/* locked: tells its kind, and frees it */
void st_cb_lost(struct st *st, struct st_cb *cb);
/* locked: queues CB_NOTIFY_LOCK. w is the callback's now. */
void st_notify_queue(struct st *st, struct st_client *c, struct st_waiter *w);
/* Tells all clients that asked for it that a device (a data server's addresses, or its limits) is
 * another now: CB_NOTIFY_DEVICEID. Takes the lock. */
void st_device_changed(struct st *st, const uint8_t deviceid[NFS4_DEVICEID4_SIZE]);
/* Likewise that it is gone. No layout names it any more. */
void st_device_gone(struct st *st, const uint8_t deviceid[NFS4_DEVICEID4_SIZE]);
/* locked: the session's connection for callbacks is gone: what cannot wait for another is lost. */
void st_cb_path_lost(struct st *st, struct st_session *s);
/* locked: sends the next waiting callback when the slot is free. */
void st_cb_pump(struct st *st, struct st_session *s);
/* A client's answer to a callback of this operation: its status, or that of what stood before it;
 * -1: not a CB_COMPOUND reply. *sequenced: CB_SEQUENCE was done, so the slot moves on. res stands
 * at the operation's result. Here for the fuzzer. */
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
/* locked: the user has opened it for this. False: no memory. */
bool st_open_by_user(struct st_open *o, uint32_t uid, uint32_t access);
/* locked: may one of the client's users do this (a bit of share access) with what the client has of
 * the file: has he opened it, or is it under a delegation? */
bool st_file_opened(const struct st_file *f, const struct st_client *c, uint32_t uid,
		    uint32_t access);
void st_open_free(struct st *st, struct st_open *o); /* locked; st_may_free was true */
/* locked: all is, where freeing the open needs that (st_needs_all). */
static inline bool st_may_free(const struct st_open *o)
{
	return !o->o_file->f_halves || st_needs_all();
}
/* locked: an open that conflicts, of a client that is alive where there is one; NULL: none */
struct st_open *st_share_conflict(struct st *st, struct st_file *f, uint32_t access, uint32_t deny);
enum { ST_SID_OPEN = 1, ST_SID_LOCK = 2, ST_SID_LAYOUT = 3, ST_SID_DELEG = 4, ST_SID_COPY = 5 };
/* Any thread: a new one for state of this file, seqid 1 */
void st_sid_make(struct st *st, uint64_t ino, unsigned type, struct st_stateid *sid);
/* A stateid of this boot, of that type? */
bool st_sid_ours(struct st *st, const struct st_stateid *sid, unsigned type);
/* all zeros or all ones other with seqid 0 / max */
bool st_sid_special(const struct st_stateid *sid);

/* Delegations; locked */
/* Gives one; opens and other delegations were looked at. NULL: no memory. */
struct st_open *st_deleg_new(struct st *st, struct st_file *f, struct st_client *c, uint32_t type,
			     bool times, const uint8_t *fh, uint32_t fhlen);
struct st_open *st_deleg_of(struct st_file *f, const struct st_client *c);
/* Does this delegation of another than client stand against such an open? Changes count as opens
 * for writing, reads and attributes as opens for reading. */
bool st_deleg_conflicts(const struct st_open *o, const struct st_client *client, uint32_t access,
			uint32_t deny);
/* Anybody's but client's. */
bool st_file_deleg_conflict(const struct st_file *f, const struct st_client *client,
			    uint32_t access, uint32_t deny);
/* All locked. */
void st_deleg_recall(struct st *st, struct st_open *d);
/* All locked: recalls what stands against it, and does not wait. */
void st_deleg_recall_file(struct st *st, struct st_file *f, const struct st_client *client,
			  uint32_t access, uint32_t deny);
/* All locked: takes away what still stands against it. True: one of them was for writing. */
bool st_deleg_revoke_file(struct st *st, uint64_t ino, const struct st_client *client,
			  uint32_t access, uint32_t deny);
/* All locked: takes away those of the file that were recalled a recall deadline ago: whoever waits
 * for one has a deadline of its own, but many do not wait. True: one of them was for writing. */
bool st_deleg_revoke_overdue(struct st *st, uint64_t ino);
/* All locked: files with such ones of this client's, at most max. */
unsigned st_deleg_overdue(struct st *st, const struct st_client *c, uint64_t *ino, unsigned max);
/* A stateid of this client's that was revoked. */
bool st_revoked_find(const struct st_client *c, const struct st_stateid *sid);
void st_revoked_free(struct st_client *c, const struct st_stateid *sid);
/* All locked: asks the holder of a write delegation; a->a_then comes later in any case. */
void st_deleg_ask(struct st *st, struct st_open *d, struct st_ask *a);
void st_asks_fail(struct st_deleg *dg);
/* What is remembered of files that were opened lately: a table of fixed size that forgets by being
 * overwritten. */
int st_heat_new(struct st *st); /* 0 or -1: no memory */
bool st_heat_contended(const struct st *st, uint64_t ino);
void st_heat_conflict(struct st *st, uint64_t ino);
/* The client opens it: how many times in a row it did so while nobody else did, within a lease. */
unsigned st_heat_opened(struct st *st, uint64_t ino, const struct st_client *c, bool write);
/* Nearly as many are out as may be, with what was taken ahead (st_tick gives that back first): a
 * client whose lease has run out is not kept for those it holds. */
bool st_deleg_many(const struct st *st);
/* All locked: then asks clients that hold many to give some back. */
void st_deleg_thin(struct st *st);

/* Byte-range locks; locked */
struct st_lock *st_lock_find(struct st *st, const struct st_stateid *sid);
struct st_lock *st_lock_by_owner(struct st_file *f, const struct st_client *c, const void *owner,
				 uint32_t len);
/* NULL: no memory */
struct st_lock *st_lock_new(struct st *st, struct st_open *o, const void *owner, uint32_t len);
void st_lock_free(struct st *st, struct st_lock *k);
/* A range of another owner that stands against this one, and whose it is: of a client that is alive
 * where there is one. NULL: none. */
const struct st_range *st_lock_conflict(struct st *st, struct st_file *f, const struct st_client *c,
					const void *owner, uint32_t len, uint64_t first,
					uint64_t last, bool write, struct st_lock **holder);
/* [first, last] becomes this kind, whatever of it the owner held; or nothing. -ENOMEM: nothing is
 * changed. */
int st_lock_set(struct st_lock *k, uint64_t first, uint64_t last, bool write);
int st_lock_clear(struct st_lock *k, uint64_t first, uint64_t last);
bool st_open_has_locks(const struct st_open *o);
/* Remembers who was denied and waits; fh: the file's, as GETFH gives it. A file keeps so many;
 * others ask again by themselves, as all do in the end. */
void st_wait_for_lock(struct st_file *f, const struct st_client *c, const void *owner, uint32_t len,
		      uint64_t first, uint64_t last, bool write, const uint8_t *fh, uint32_t fhlen);
/* Locks have gone (all is locked where anybody waits, f_waiters): those who wait, and whom nothing
 * stands against any more, are told. */
void st_locks_gone(struct st *st, struct st_file *f);
/* The open that an open's or a lock's stateid stands for, and the stateid's own seqid. */
struct st_open *st_open_or_lock(struct st *st, const struct st_stateid *sid, uint32_t *seqid);

/* Layouts */
struct st_layout *st_layout_find(struct st *st, const struct st_stateid *sid);		/* locked */
struct st_layout *st_layout_of(struct st_file *f, struct st_client *c);			/* locked */
struct st_layout *st_layout_new(struct st *st, struct st_file *f, struct st_client *c); /* locked */
/* locked; wakes waiters */
void st_layout_free(struct st *st, struct st_layout *l);
/* locked: takes modes off; frees it when none is left, wakes waiters */
void st_layout_drop(struct st *st, struct st_layout *l, uint32_t iomode);
/* locked: f_marked, f_mark_old, f_judge, f_hidden or f_contended was set: from here on
 * st_watched(f_ino) is true, until none of them is any more. */
void st_file_watch(struct st_file *f);
/* Any thread, without a lock. False: no delegation on the file is out, it is not marked, not to be
 * judged, and not hidden. True, rarely, for one of which that is so as well. */
bool st_watched(uint64_t ino);
/* Any thread: it changes when a file is watched no more, or a delegation has gone. What the store
 * had before that may be older than what was told of the file since. */
uint32_t st_unwatches(void);
/* locked: a writer of it is lost. */
static inline void st_file_judge(struct st_file *f)
{
	f->f_judge = true;
	st_file_watch(f);
	f->f_judge_gen++;
}
/* locked: a RW layout is out */
bool st_file_has_writers(struct st_file *f);
/* Recalls the layouts of the file held by others than except (NULL: all): only RW ones when
 * rw_only. then(arg, nleft) is called on loop when all have come back, or at the deadline with the
 * number still out (the caller fences, then calls st_revoke_file). Returns how many were asked; 0:
 * then is not called. Takes the lock. */
struct st_wait {
	struct st_wait *w_next;
	struct st *w_st;
	uint64_t w_ino;
	struct st_client *w_except;
	bool w_rw_only, w_done;
	uint64_t w_until_ns;	   /* the deadline, by st_now_ns */
	bool w_delegs;		   /* it waits for delegations */
	uint32_t w_access, w_deny; /* that stand against this */
	struct loop *w_loop;
	struct loop_timer w_timer;
	struct loop_msg w_msg;
	void (*w_then)(struct st_wait *w, unsigned left);
	unsigned w_left;
};
unsigned st_recall_file(struct st *st, uint64_t ino, struct st_client *except, bool rw_only,
			struct loop *loop, uint32_t deadline_ms, struct st_wait *w);
/* The same for delegations that stand against such an open. */
unsigned st_recall_delegs(struct st *st, uint64_t ino, struct st_client *except, uint32_t access,
			  uint32_t deny, struct loop *loop, uint32_t deadline_ms,
			  struct st_wait *w);
/* Takes away what is still out after a fence. Takes the lock. */
void st_revoke_file(struct st *st, uint64_t ino, struct st_client *except, bool rw_only);

/* half.c; under all's lock. The client was told to do a change of [off, end) again, and some copies
 * may have it already. It is remembered until st_half_over says that it was done, or the client is
 * gone, or closes the file: then the file is to be judged (f_judge). False: no room; the caller
 * judges. */
bool st_half_note(struct st *st, struct st_client *c, uint64_t ino, uint64_t off, uint64_t end);
void st_half_over(struct st *st, struct st_client *c, uint64_t ino, uint64_t off, uint64_t end);
/* It will not be done again: of this file, or of all (NULL). */
void st_half_lost(struct st *st, struct st_client *c, struct st_file *f);

/* Asynchronous copies (RFC 7862 section 4.8). A state ends with its client, when the client
 * answered CB_OFFLOAD, or is cancelled; the job that copies finds out by st_offload_is_over, and
 * ends it in any case by st_offload_end. */
struct st_offload_end {
	nfsstat4 oe_status;
	uint64_t oe_count;
	uint32_t oe_how; /* stable_how4 */
	uint64_t oe_verifier;
};
/* Who waits for the end of a job that was cancelled. */
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
	uint32_t of_uid; /* whose it is: nobody else cancels it (section 4.2) */
	uint8_t of_fh[NFS4_FHSIZE];
	uint32_t of_fhlen;
	uint64_t of_count;
	bool of_done;
	struct st_offload_end of_end;
	struct st_offload_wait *of_wait;
};
/* These take the lock. NULL: the client has no backchannel, or too many. */
struct st_offload *st_offload_new(struct st *st, struct st_client *c, uint64_t ino, uint32_t uid,
				  const uint8_t *fh, uint32_t fhlen, struct st_stateid *sid);
void st_offload_progress(struct st *st, struct st_offload *of, uint64_t count);
bool st_offload_is_over(struct st *st, struct st_offload *of);
/* Queues CB_OFFLOAD; of is not the job's any more. */
void st_offload_end(struct st *st, struct st_offload *of, const struct st_offload_end *end);
/* These are locked. BAD_STATEID: none of that file and user. */
nfsstat4 st_offload_find(struct st_client *c, const struct st_stateid *sid, uint64_t ino,
			 uint32_t uid, struct st_offload **of);
/* False: it is done already. Else w's message comes when the job has ended. */
bool st_offload_cancel(struct st_offload *of, struct st_offload_wait *w);
void st_offloads_drop(struct st_client *c);
#endif
