/* SPDX-License-Identifier: Apache-2.0 */
/* ids.c - clientids, session ids and stateids that a client cannot guess. */
#include "mds/state/ids.h"
#include "base/format.h"
#include <endian.h>
#include <sodium.h>
#include <string.h>

/* Rounds of a Feistel network. Four rounds make the permutation look random to an attacker with few
 * pairs (Luby and Rackoff). Six do so to an attacker with as many pairs as a half has values. */
#define ROUNDS 6u

struct id_client {
	uint32_t c_epoch, c_counter;
} __attribute__((packed));
FORMAT_AT(struct id_client, c_epoch, 0, 4);
FORMAT_AT(struct id_client, c_counter, 4, 4);

struct id_session {
	uint32_t s_boot, s_counter;
	uint8_t s_mac[8];
} __attribute__((packed));
FORMAT_AT(struct id_session, s_boot, 0, 4);
FORMAT_AT(struct id_session, s_counter, 4, 4);
FORMAT_AT(struct id_session, s_mac, 8, 8);
_Static_assert(sizeof(struct id_session) == NFS4_SESSIONID_SIZE, "a session id");

struct id_state {
	uint32_t ist_epoch;
	uint8_t ist_kind, ist_count[5];
	uint16_t ist_shard;
} __attribute__((packed));
FORMAT_AT(struct id_state, ist_epoch, 0, 4);
FORMAT_AT(struct id_state, ist_kind, 4, 1);
FORMAT_AT(struct id_state, ist_count, 5, 5);
FORMAT_AT(struct id_state, ist_shard, 10, 2);
_Static_assert(sizeof(struct id_state) == NFS4_OTHER_SIZE, "a stateid's other");

/* The label has a version: another way to make ids uses other keys. */
static void ids_derive(uint8_t key[16], const struct ns_super *su, const char *label)
{
	uint16_t of[2] = {htole16(su->su_fs), htole16(su->su_incarnation)};
	crypto_generichash_state h;

	crypto_generichash_init(&h, su->su_fh_key, sizeof(su->su_fh_key), 16);
	crypto_generichash_update(&h, (const uint8_t *)label, strlen(label) + 1);
	crypto_generichash_update(&h, su->su_uuid, sizeof(su->su_uuid));
	crypto_generichash_update(&h, (const uint8_t *)of, sizeof(of));
	crypto_generichash_final(&h, key, 16);
}

void st_ids_init(struct st_ids *k, const struct ns_super *su)
{
	ids_derive(k->id_client, su, "weft client id 1");
	ids_derive(k->id_sid, su, "weft stateid 1");
	ids_derive(k->id_session, su, "weft session id 1");
	ids_derive(k->id_other, su, "weft other client id 1");
}

static void mix(const uint8_t key[16], uint8_t *id, size_t half, unsigned round)
{
	const uint8_t *from = id + (round % 2 ? half : 0);
	uint8_t *to = id + (round % 2 ? 0 : half), in[8] = {0}, out[8];

	memcpy(in, from, half);
	in[7] = (uint8_t)round;
	crypto_shorthash(out, in, sizeof(in), key);
	for (size_t i = 0; i < half; i++)
		to[i] ^= out[i];
}

void st_id_hide(const uint8_t key[16], uint8_t *id, size_t len)
{
	for (unsigned round = 0; round < ROUNDS; round++)
		mix(key, id, len / 2, round);
}

void st_id_show(const uint8_t key[16], uint8_t *id, size_t len)
{
	for (unsigned round = ROUNDS; round-- > 0;)
		mix(key, id, len / 2, round);
}

static uint64_t hidden(const uint8_t key[16], uint64_t id)
{
	id = htobe64(id);
	st_id_hide(key, (uint8_t *)&id, sizeof(id));
	return be64toh(id);
}

uint64_t st_id_client(const struct st_ids *k, uint32_t epoch, uint32_t counter)
{
	struct id_client c = {htobe32(epoch), htobe32(counter)};
	uint64_t id;

	memcpy(&id, &c, sizeof(id));
	return hidden(k->id_client, be64toh(id));
}

uint64_t st_id_other(const struct st_ids *k, uint64_t clientid)
{
	return hidden(k->id_other, clientid);
}

void st_id_session(const struct st_ids *k, uint32_t boot, uint32_t counter,
		   uint8_t out[NFS4_SESSIONID_SIZE])
{
	struct id_session s = {.s_boot = htobe32(boot), .s_counter = htobe32(counter)};

	crypto_shorthash(s.s_mac, (const uint8_t *)&s, offsetof(struct id_session, s_mac),
			 k->id_session);
	memcpy(out, &s, sizeof(s));
}

void st_id_state_put(const struct st_ids *k, const struct st_id_state *s,
		     uint8_t other[NFS4_OTHER_SIZE])
{
	struct id_state t = {.ist_epoch = htobe32(s->is_epoch),
			     .ist_kind = s->is_kind,
			     .ist_shard = htobe16(s->is_shard)};
	uint64_t count = htobe64(s->is_count);

	memcpy(t.ist_count, (const uint8_t *)&count + 3, sizeof(t.ist_count));
	memcpy(other, &t, sizeof(t));
	st_id_hide(k->id_sid, other, NFS4_OTHER_SIZE);
}

void st_id_state_get(const struct st_ids *k, const uint8_t other[NFS4_OTHER_SIZE],
		     struct st_id_state *s)
{
	struct id_state t;
	uint64_t count = 0;

	memcpy(&t, other, sizeof(t));
	st_id_show(k->id_sid, (uint8_t *)&t, sizeof(t));
	memcpy((uint8_t *)&count + 3, t.ist_count, sizeof(t.ist_count));
	*s = (struct st_id_state){be32toh(t.ist_epoch), t.ist_kind, be64toh(count),
				  be16toh(t.ist_shard)};
}
