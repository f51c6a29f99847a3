/* SPDX-License-Identifier: Apache-2.0 */
/* st_session.h - sessions and their connections (RFC 8881 section 2.10). */
#ifndef MDS_STATE_ST_SESSION_H
#define MDS_STATE_ST_SESSION_H
#include "base/hash.h"
#include "base/rcu.h"
#include "mds/state/slot.h"
#include "proto/rpc.h"
#include <pthread.h>

struct st;
struct st_cb;
struct st_client;

#define ST_BOUND 64 /* connections of a session with SP4_MACH_CRED */
/* The most of a backchannel. With several slots a callback without an answer holds up no other. */
#define ST_CB_SLOTS 8u

struct st_session {
	struct hash_link se_link;
	uint8_t se_id[NFS4_SESSIONID_SIZE];
	struct st_client *se_client;
	struct st_session *se_next; /* of the client */
	/* The chain by id, which readers walk under RCU; se_by_id_at: what points here, NULL before
	 * the session is published. Written with all held. */
	struct st_session *_Atomic se_by_id, *_Atomic *se_by_id_at;
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

static inline struct st_quota st_quota(const struct st_session *s)
{
	return atomic_load(&s->se_room);
}

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
/* locked; the memory is freed when no request is under way */
void st_session_destroy(struct st *st, struct st_session *s);
#define ST_BY_ID 16384u /* chains of sessions */
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
void st_conn_gone(struct st *st, struct rpc_conn *c); /* takes the lock */
#endif
