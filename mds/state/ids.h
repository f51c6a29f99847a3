/*
 * ids.h - what a client is told for the number of a client, of a session, of a state
 * (docs/formats.md).
 *
 * Whoever shows an id is believed, from any address (RFC 8881 section 2.10.8.3, SP4_NONE), so
 * nobody may guess another's from his own. Numbers are counted, as ever; what is told of a client's
 * and a state's is a keyed permutation of it, of a session's a MAC stands behind it. The keys are
 * derived from the store's own, and from its identity and incarnation: no other store, and not this
 * one restored, takes an id for its own. They need not be kept, and a restart has the same: the
 * boot is in every id.
 */
#ifndef MDS_ST_IDS_H
#define MDS_ST_IDS_H
#include "mds/namespace/ns.h"
#include "proto/nfs4.h"

struct st_ids {
	uint8_t id_client[16], id_sid[16], id_session[16], id_other[16]; /* SipHash's keys */
};
void st_ids_init(struct st_ids *k, const struct ns_super *su);
/* A permutation of len bytes (even, 12 at most), in place, and its inverse. */
void st_id_hide(const uint8_t key[16], uint8_t *id, size_t len);
void st_id_show(const uint8_t key[16], uint8_t *id, size_t len);
uint64_t st_id_client(const struct st_ids *k, uint32_t epoch, uint32_t counter);
/* What another client is told instead of a client's id: the same each time, and good for
 * nothing. */
uint64_t st_id_other(const struct st_ids *k, uint64_t clientid);
/* The boot comes first, in the clear: rows of requests are ordered by it (mds/nfs4/once.c). */
void st_id_session(const struct st_ids *k, uint32_t boot, uint32_t counter,
		   uint8_t out[NFS4_SESSIONID_SIZE]);

/* A state's number. */
struct st_id_state {
	uint32_t is_epoch;
	uint8_t is_kind;   /* ST_SID_OPEN, ... */
	uint64_t is_count; /* 40 bits */
	uint16_t is_shard;
};
void st_id_state_put(const struct st_ids *k, const struct st_id_state *s,
		     uint8_t other[NFS4_OTHER_SIZE]);
void st_id_state_get(const struct st_ids *k, const uint8_t other[NFS4_OTHER_SIZE],
		     struct st_id_state *s);
#endif
