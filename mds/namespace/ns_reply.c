/* SPDX-License-Identifier: Apache-2.0 */
/* ns_reply.c - the durable reply cache: what a mutation's transaction keeps of its request. Each
 * slot of a session has a row NS_T_REPLY for its last mutation. The protocol defines the meaning;
 * this file encodes the bytes. */
#include "mds/namespace/keys.h"
#include <errno.h>

#define ONCE_VERSION 1

struct reply_rec {
	uint8_t o_version, o_flags, o_at, o_zero;
	uint32_t o_seq;
	uint8_t o_check[16];
	uint32_t o_slots, o_target, o_limit, o_in, o_last;
	uint64_t o_cur, o_saved, o_orders;
	uint8_t o_cur_sid[16], o_saved_sid[16];
	uint16_t o_cur_exp, o_saved_exp;
} __attribute__((packed)); /* the results follow */
_Static_assert(sizeof(struct reply_rec) == 104, "what is kept of a request, version 1");
_Static_assert(sizeof(struct reply_rec) == NS_REPLY_HEAD,
	       "its size is known to those who make room");

size_t ns_reply_encode(const struct ns_reply *o, uint8_t *buf)
{
	struct reply_rec r = {
		.o_version = ONCE_VERSION,
		.o_flags = o->on_flags,
		.o_at = o->on_at,
		.o_seq = htole32(o->on_seq),
		.o_slots = htole32(o->on_slots),
		.o_target = htole32(o->on_target),
		.o_limit = htole32(o->on_limit),
		.o_in = htole32(o->on_in),
		.o_last = htole32(o->on_last),
		.o_cur = htole64(o->on_cur),
		.o_saved = htole64(o->on_saved),
		.o_orders = htole64(o->on_orders),
		.o_cur_exp = htole16(o->on_cur_exp),
		.o_saved_exp = htole16(o->on_saved_exp),
	};

	memcpy(r.o_check, o->on_check, sizeof(r.o_check));
	memcpy(r.o_cur_sid, o->on_cur_sid, sizeof(r.o_cur_sid));
	memcpy(r.o_saved_sid, o->on_saved_sid, sizeof(r.o_saved_sid));
	memcpy(buf, &r, sizeof(r));
	return sizeof(r) + o->on_results.s_len;
}

int ns_reply_decode(struct kv_slice val, struct ns_reply *o)
{
	struct reply_rec r;

	if (val.s_len < sizeof(r) || val.s_len > sizeof(r) + NS_REPLY_RESULTS_MAX)
		return -EIO;
	memcpy(&r, val.s_data, sizeof(r));
	*o = (struct ns_reply){
		.on_flags = r.o_flags,
		.on_at = r.o_at,
		.on_seq = le32toh(r.o_seq),
		.on_slots = le32toh(r.o_slots),
		.on_target = le32toh(r.o_target),
		.on_limit = le32toh(r.o_limit),
		.on_in = le32toh(r.o_in),
		.on_last = le32toh(r.o_last),
		.on_cur = le64toh(r.o_cur),
		.on_saved = le64toh(r.o_saved),
		.on_orders = le64toh(r.o_orders),
		.on_cur_exp = le16toh(r.o_cur_exp),
		.on_saved_exp = le16toh(r.o_saved_exp),
		.on_results =
			ns_slice((const uint8_t *)val.s_data + sizeof(r), val.s_len - sizeof(r)),
	};
	memcpy(o->on_check, r.o_check, sizeof(r.o_check));
	memcpy(o->on_cur_sid, r.o_cur_sid, sizeof(r.o_cur_sid));
	memcpy(o->on_saved_sid, r.o_saved_sid, sizeof(r.o_saved_sid));
	/* The last result begins with its operation's number and its status. Results are XDR, so
	 * lengths are multiples of 4. */
	if (r.o_version != ONCE_VERSION || r.o_zero || (r.o_flags & ~NS_REPLY_FLAGS) ||
	    r.o_at < 2 || o->on_slots == 0 || o->on_target == 0 ||

	    o->on_results.s_len % 4 || o->on_last % 4 ||
	    o->on_last + UINT64_C(8) > o->on_results.s_len)
		return -EIO;
	return 0;
}

void ns_reply_key(uint8_t key[NS_REPLY_KEY], const uint8_t session[16], uint32_t slot)
{
	slot = htobe32(slot);
	memcpy(key, session, 16);
	memcpy(key + 16, &slot, 4);
}

int ns_reply_get(struct kv_txn *t, const uint8_t session[16], uint32_t slot, struct ns_reply *o)
{
	uint8_t key[NS_REPLY_KEY];
	struct kv_slice val;
	int err;

	ns_reply_key(key, session, slot);
	err = ns_row_get(t, NS_T_REPLY, key, sizeof(key), &val);
	return err ? err : ns_reply_decode(val, o);
}

struct once_keys {
	const uint8_t *to;
	size_t tolen;
	unsigned n, max;
	uint8_t key[NS_REPLY_DEL_MAX][NS_REPLY_KEY];
};

static int once_collect(void *arg, struct kv_slice id, struct kv_slice val)
{
	struct once_keys *k = arg;

	(void)val;
	if (id.s_len != NS_REPLY_KEY)
		return 0; /* the checker reports it */
	if (memcmp(id.s_data, k->to, k->tolen) > 0)
		return 1;
	memcpy(k->key[k->n++], id.s_data, NS_REPLY_KEY);
	return k->n == k->max;
}

int ns_reply_del(struct kv_txn *t, const uint8_t *from, size_t fromlen, const uint8_t *to,
		 size_t tolen, unsigned max)
{
	struct once_keys k = {
		.to = to, .tolen = tolen, .max = max < NS_REPLY_DEL_MAX ? max : NS_REPLY_DEL_MAX};
	int err = ns_rows(t, NS_T_REPLY, from, fromlen, once_collect, &k);

	for (unsigned i = 0; i < k.n && !err; i++)
		err = ns_row_del(t, NS_T_REPLY, k.key[i], NS_REPLY_KEY);
	return err ? err : (int)k.n;
}
