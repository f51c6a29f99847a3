/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of a capability. All integers are big-endian. The MAC is SipHash-2-4 over the bytes
 * before it. */
#include "proto/cap.h"
#include "base/format.h"
#include <assert.h>
#include <endian.h>
#include <sodium.h>
#include <stddef.h>
#include <string.h>

/* The upper half of the first byte of a data server's file handle. 2 is the handle of an exported
 * file (ds/path). */
enum { CAP_KIND1 = 1, CAP_KIND2 = 3 };

/* Version 1: for data servers of protocol 4, and for handles that they gave out. The file system
 * number is a field of its own. */
struct cap_wire1 {
	uint8_t v1_kind_rights; /* CAP_KIND1 << 4 | rights */
	uint8_t v1_key;
	uint8_t v1_stripe;
	uint8_t v1_mirror;
	uint16_t v1_fs;
	uint16_t v1_incarnation;
	uint64_t v1_ino;
	uint32_t v1_epoch;
	uint32_t v1_client;
	uint8_t v1_mac[8];
} __attribute__((packed));
FORMAT_AT(struct cap_wire1, v1_kind_rights, 0, 1);
FORMAT_AT(struct cap_wire1, v1_key, 1, 1);
FORMAT_AT(struct cap_wire1, v1_stripe, 2, 1);
FORMAT_AT(struct cap_wire1, v1_mirror, 3, 1);
FORMAT_AT(struct cap_wire1, v1_fs, 4, 2);
FORMAT_AT(struct cap_wire1, v1_incarnation, 6, 2);
FORMAT_AT(struct cap_wire1, v1_ino, 8, 8);
FORMAT_AT(struct cap_wire1, v1_epoch, 16, 4);
FORMAT_AT(struct cap_wire1, v1_client, 20, 4);
FORMAT_AT(struct cap_wire1, v1_mac, 24, 8);

/* Version 2 also says which bytes of the file the object holds. The inode number contains the file
 * system number. */
struct cap_wire2 {
	uint8_t v2_kind_rights; /* CAP_KIND2 << 4 | rights */
	uint8_t v2_key;
	uint8_t v2_stripe;
	uint8_t v2_mirror;
	uint8_t v2_unit; /* log2 of the stripe unit */
	uint8_t v2_stripes;
	uint16_t v2_incarnation;
	uint64_t v2_ino;
	uint32_t v2_epoch;
	uint32_t v2_client;
	uint8_t v2_mac[8];
} __attribute__((packed));
FORMAT_AT(struct cap_wire2, v2_kind_rights, 0, 1);
FORMAT_AT(struct cap_wire2, v2_key, 1, 1);
FORMAT_AT(struct cap_wire2, v2_stripe, 2, 1);
FORMAT_AT(struct cap_wire2, v2_mirror, 3, 1);
FORMAT_AT(struct cap_wire2, v2_unit, 4, 1);
FORMAT_AT(struct cap_wire2, v2_stripes, 5, 1);
FORMAT_AT(struct cap_wire2, v2_incarnation, 6, 2);
FORMAT_AT(struct cap_wire2, v2_ino, 8, 8);
FORMAT_AT(struct cap_wire2, v2_epoch, 16, 4);
FORMAT_AT(struct cap_wire2, v2_client, 20, 4);
FORMAT_AT(struct cap_wire2, v2_mac, 24, 8);

static_assert(sizeof(struct cap_wire1) == CAP_LEN && sizeof(struct cap_wire2) == CAP_LEN,
	      "a capability is 32 bytes");
static_assert(crypto_shorthash_BYTES == 8 && crypto_shorthash_KEYBYTES == CAP_KEY_LEN,
	      "SipHash-2-4");
static_assert((CAP_READ | CAP_WRITE | CAP_MUST_EXIST | CAP_STRIPED) < 16,
	      "rights share a byte with the version");

#define CAP_MAC offsetof(struct cap_wire1, v1_mac)
static_assert(CAP_MAC == offsetof(struct cap_wire2, v2_mac) &&
		      offsetof(struct cap_wire1, v1_key) == offsetof(struct cap_wire2, v2_key),
	      "the key and the MAC are where they were");

uint16_t cap_fs_of(uint64_t ino)
{
	return ino >> 48 ? (uint16_t)(ino >> 48) : 1;
}

void cap_mint(const struct cap *c, const uint8_t key[CAP_KEY_LEN], uint8_t out[CAP_LEN])
{
	const struct cap_object *o = &c->cp_obj;
	const struct cap_wire1 w1 = {
		.v1_kind_rights = CAP_KIND1 << 4 | (c->cp_rights & 15),
		.v1_key = c->cp_key,
		.v1_stripe = o->co_stripe,
		.v1_mirror = o->co_copy,
		.v1_fs = htobe16(o->co_fs),
		.v1_incarnation = htobe16(o->co_incarnation),
		.v1_ino = htobe64(o->co_ino),
		.v1_epoch = htobe32(c->cp_epoch),
		.v1_client = htobe32(c->cp_client),
	};
	const struct cap_wire2 w2 = {
		.v2_kind_rights = CAP_KIND2 << 4 | (c->cp_rights & 15),
		.v2_key = c->cp_key,
		.v2_stripe = o->co_stripe,
		.v2_mirror = o->co_copy,
		.v2_unit = c->cp_unit_log2,
		.v2_stripes = c->cp_stripes,
		.v2_incarnation = htobe16(o->co_incarnation),
		.v2_ino = htobe64(o->co_ino),
		.v2_epoch = htobe32(c->cp_epoch),
		.v2_client = htobe32(c->cp_client),
	};

	memcpy(out, c->cp_version == 2 ? (const void *)&w2 : &w1, CAP_LEN);
	crypto_shorthash(out + CAP_MAC, out, CAP_MAC, key);
}

bool cap_open(const uint8_t in[CAP_LEN], const uint8_t key[CAP_KEY_LEN], struct cap *c)
{
	unsigned kind = in[0] >> 4, version = kind == CAP_KIND2 ? 2 : 1;
	struct cap_wire1 w1;
	struct cap_wire2 w2;
	uint8_t mac[8];

	crypto_shorthash(mac, in, CAP_MAC, key);
	if ((kind != CAP_KIND1 && kind != CAP_KIND2) ||
	    sodium_memcmp(mac, in + CAP_MAC, sizeof(mac)) != 0)
		return false;
	memcpy(&w1, in, CAP_LEN); /* fields that both versions have are in the same places */
	memcpy(&w2, in, CAP_LEN);
	*c = (struct cap){
		.cp_obj =
			{
				.co_ino = be64toh(w1.v1_ino),
				.co_fs = version == 1 ? be16toh(w1.v1_fs)
						      : cap_fs_of(be64toh(w2.v2_ino)),
				.co_incarnation = be16toh(w1.v1_incarnation),
				.co_stripe = w1.v1_stripe,
				.co_copy = w1.v1_mirror,
			},
		.cp_version = (uint8_t)version,
		.cp_rights = w1.v1_kind_rights & 15,
		.cp_key = w1.v1_key,
		.cp_unit_log2 = version == 2 ? w2.v2_unit : 0,
		.cp_stripes = version == 2 ? w2.v2_stripes : 0,
		.cp_epoch = be32toh(w1.v1_epoch),
		.cp_client = be32toh(w1.v1_client),
	};
	return c->cp_unit_log2 < 64;
}

bool cap_has(const struct cap *c, uint64_t off, uint32_t count)
{
	uint64_t unit = off >> c->cp_unit_log2;

	if (c->cp_stripes < 2 || !count)
		return true;
	return unit == (off + count - 1) >> c->cp_unit_log2 &&
	       unit % c->cp_stripes == c->cp_obj.co_stripe;
}

uint8_t cap_key_number(const uint8_t in[CAP_LEN])
{
	return in[offsetof(struct cap_wire1, v1_key)];
}

uint16_t cap_fs_number(const uint8_t in[CAP_LEN])
{
	uint16_t fs;
	uint64_t ino;

	if (in[0] >> 4 == CAP_KIND2) {
		memcpy(&ino, in + offsetof(struct cap_wire2, v2_ino), sizeof(ino));
		return cap_fs_of(be64toh(ino));
	}
	memcpy(&fs, in + offsetof(struct cap_wire1, v1_fs), sizeof(fs));
	return be16toh(fs);
}

void cap_derive_fs(const uint8_t cluster[CAP_CLUSTER_KEY_LEN], uint16_t fs,
		   uint8_t out[CAP_CLUSTER_KEY_LEN])
{
	uint8_t msg[18] = "weft fs key  v1";

	if (fs <= 1) {
		memcpy(out, cluster, CAP_CLUSTER_KEY_LEN);
		return;
	}
	msg[16] = (uint8_t)(fs >> 8);
	msg[17] = (uint8_t)fs;
	crypto_generichash(out, CAP_CLUSTER_KEY_LEN, msg, sizeof(msg), cluster,
			   CAP_CLUSTER_KEY_LEN);
}

void cap_derive_key(const uint8_t cluster[CAP_CLUSTER_KEY_LEN], const uint8_t ds_uuid[16],
		    uint8_t key_number, uint8_t out[CAP_KEY_LEN])
{
	uint8_t msg[33] = "weft data cap v1";

	memcpy(msg + 16, ds_uuid, 16);
	msg[32] = key_number;
	crypto_generichash(out, CAP_KEY_LEN, msg, sizeof(msg), cluster, CAP_CLUSTER_KEY_LEN);
}

void cap_derive_tls_key(const uint8_t cluster[CAP_CLUSTER_KEY_LEN], const uint8_t ds_uuid[16],
			uint8_t out[CAP_TLS_KEY_LEN])
{
	uint8_t msg[32] = "weft data tls v1";

	memcpy(msg + 16, ds_uuid, 16);
	crypto_generichash(out, CAP_TLS_KEY_LEN, msg, sizeof(msg), cluster, CAP_CLUSTER_KEY_LEN);
}
