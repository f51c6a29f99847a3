/* SPDX-License-Identifier: Apache-2.0 */
/* st_client.h - clients: their leases, their durable records, and grace (RFC 8881 sections 2.4, 8.3
 * and 8.4). */
#ifndef MDS_STATE_ST_CLIENT_H
#define MDS_STATE_ST_CLIENT_H
#include "base/rcu.h"
#include "mds/namespace/ns.h"
#include "mds/state/st_count.h"
#include "proto/nfs4.h"

struct st;
struct st_offload;
struct st_partial;
struct st_revoked;
struct st_session;

#define ST_OWNER_MAX NFS4_OPAQUE_LIMIT

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
	_Atomic bool cl_evicting;   /* no request of it begins (st_client_leaves) */
	_Atomic uint32_t cl_lapses; /* st_lapse.c */
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
	/* The place of its tag in the low 8 bits, above them the generation of the tags when it was
	 * looked up (jobs/tag.c). 0: it was not. Written under st_look_lock or all. */
	_Atomic uint64_t cl_tag;
};

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
	struct hash_link sre_link;
	uint8_t sre_hash[32];
	bool sre_done; /* RECLAIM_COMPLETE came */
	bool sre_back; /* its owner has a client again, or one that is being confirmed */
	/* Its row says that grace ended before its RECLAIM_COMPLETE, at this boot or an earlier
	 * one. */
	bool sre_owes;
	/* Its row said at the start that its lease had run out. Grace waits for it only if it is
	 * back. */
	bool sre_lapsed;
	/* At the end of grace: its row is being marked or deleted, and was. */
	bool sre_closing, sre_closed;
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
/* W: notes that the client's lease has run out, or that it was heard again. Nothing changes if the
 * record is a later incarnation's, is gone, or says so. In a full store the second goes as long as
 * deletes do. 1: it was written; 0; or -errno. */
int st_record_lapse(struct kv_txn *t, const uint8_t key[32], uint32_t number, bool lapsed);
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

/*
 * The end of a lease in the client's record (st_lapse.c): who was past its lease does not hold the
 * grace period of the next start. st_lapsed of struct st puts it there, and a request of the client
 * has it taken out before it begins (sq_lapsed of struct st_seq).
 */
#define ST_LAPSES 64u /* clients in one mutation */
/* Any lock: has the client's lease run out, so that its record has to say so? */
bool st_client_lapses(const struct st *st, struct st_client *c, uint64_t now);
/* locked: the same, and then its record may say so from now on. False: it has been heard. */
bool st_client_lapse(struct st *st, struct st_client *c, uint64_t now);
/* May its record say so? It may be called without a lock. */
bool st_client_lapsed(const struct st_client *c);
/* W: st_record_lapse() of a client that st_client_lapse was true of, unless it is back. Takes a
 * lock. 1: it was written; 0; or -errno. */
int st_lapse_put(struct st *st, struct kv_txn *t, uint64_t clientid);
/* A client is back. *turn is for st_back_done, once a transaction has said so in its record, and
 * was submitted after this call. In an RCU read section. */
void st_back_begin(struct st_client *c, uint32_t *turn);
void st_back_done(struct st *st, uint64_t clientid, uint32_t turn); /* takes the locks */
/* Looked at, in a tick: this recorded client was heard when its last request was. */
void st_heard(struct st *st, const struct st_client *c, uint64_t now);

/* How long a client has been silent */
/* locked: no request of the client begins from now on (cl_evicting). False: one is under way, and
 * nothing changes. */
bool st_client_leaves(struct st_client *c);
/* Nanoseconds of the clock by which clients are silent, which stands still while the process does
 * (st_clock.c). Any thread. */
uint64_t st_now_ns(struct st *st);
void st_clock_tick(struct st *st);
void st_clock_init(struct st *st);
struct store_lease;
/* Before the first clients: the clock stands still while this lease does not live. */
void st_clock_use(struct st *st, const struct store_lease *sl);
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
/* locked: it is heard now, in a request without a slot. That renews no lease that has run out and
 * is in its record: SEQUENCE does. */
void st_client_renew(struct st *st, struct st_client *c);
#endif
