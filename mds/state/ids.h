/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ids.h - how the numbers of clients, sessions and states look to clients (docs/formats.md).
 *
 * The server believes any client that shows an id, from any address (RFC 8881 section 2.10.8.3,
 * SP4_NONE). So no client may be able to guess another's id from its own. Numbers are counted up. A
 * client sees a keyed permutation of a client's or state's number; a session's number has a MAC
 * behind it. The keys are derived from the store's own keys, and from its identity and incarnation:
 * so no other store, and not this one once it is restored, takes an id for its own. The keys need
 * not be stored, and are the same after a restart, because the boot is in every id.
 */
#ifndef MDS_ST_IDS_H
#define MDS_ST_IDS_H
#include "mds/namespace/ns.h"
#include "proto/nfs4.h"

struct st_ids {
	uint8_t id_client[16], id_sid[16], id_session[16], id_other[16]; /* SipHash keys */
};
void st_ids_init(struct st_ids *k, const struct ns_super *su);
/* A keyed permutation of len bytes (even, at most 12), in place, and its inverse. */
void st_id_hide(const uint8_t key[16], uint8_t *id, size_t len);
void st_id_show(const uint8_t key[16], uint8_t *id, size_t len);
uint64_t st_id_client(const struct st_ids *k, uint32_t epoch, uint32_t counter);
/* Returns what other clients see instead of a client's id: always the same, and useless as an
 * id. */
uint64_t st_id_other(const struct st_ids *k, uint64_t clientid);
/* The boot comes first, in the clear, because rows of requests are ordered by it
 * (mds/nfs4/replay.c). */
void st_id_session(const struct st_ids *k, uint32_t boot, uint32_t counter,
		   uint8_t out[NFS4_SESSIONID_SIZE]);

/* The number of a state. */
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
