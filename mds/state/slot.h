/* SPDX-License-Identifier: Apache-2.0 */
/* slot.h - the slots of sessions: sequence numbers, replies that are kept, how many slots there are
 * (RFC 8881 section 2.10.6), and the requests that granted something. */
#ifndef MDS_STATE_SLOT_H
#define MDS_STATE_SLOT_H
#include "base/rcu.h"
#include "proto/nfs4.h"
#include <stdatomic.h>
#include <stdbool.h>

struct st;
struct st_session;

#define ST_SLOTS       1024 /* the most of a session */
#define ST_SLOTS_LEAST 2u   /* every session may have so many */

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
	bool sq_lapsed; /* DELAY because of st_client_lapsed() alone */
	struct st_slot *sq_sl;
	struct st_quota sq_room; /* what the reply reports */
};

/*
 * In an RCU read section. NFS4_OK: the caller has sq_sl. For a retry of the slot's last request
 * (sq_retry) it has sq_sl only until st_slot_let, which must follow soon. For a new request the
 * slot is busy until st_slot_done, and its session stays until then. DELAY: the same request is
 * under way, there is no room or memory, or the client is being evicted, or sq_lapsed (of a retry
 * too). SEQ_MISORDERED; BADSLOT; BADSESSION: the session went meanwhile; or sq_refused.
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
#endif
