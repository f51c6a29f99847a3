/* The capability's bytes. All integers big-endian; the MAC is SipHash-2-4 over what is before it. */
#include "proto/cap.h"
#include <assert.h>
#include <endian.h>
#include <sodium.h>
#include <stddef.h>
#include <string.h>

#define CAP_VERSION 1

struct cap_wire {
	uint8_t w_version_rights; /* version << 4 | rights */
	uint8_t w_key;
	uint8_t w_stripe, w_mirror;
	uint16_t w_fs, w_incarnation;
	uint64_t w_ino;
	uint32_t w_epoch;
	uint32_t w_client;
	uint8_t w_mac[8];
} __attribute__((packed));

static_assert(sizeof(struct cap_wire) == CAP_LEN, "a capability is 32 bytes");
static_assert(crypto_shorthash_BYTES == 8 && crypto_shorthash_KEYBYTES == CAP_KEY_LEN, "SipHash-2-4");
static_assert((CAP_READ | CAP_WRITE | CAP_MUST_EXIST | CAP_STRIPED) < 16, "rights share a byte with the version");

static void cap_mac(const uint8_t in[CAP_LEN], const uint8_t key[CAP_KEY_LEN], uint8_t mac[8])
{
	crypto_shorthash(mac, in, offsetof(struct cap_wire, w_mac), key);
}

void cap_mint(const struct cap *c, const uint8_t key[CAP_KEY_LEN], uint8_t out[CAP_LEN])
{
	struct cap_wire w = {
		.w_version_rights = CAP_VERSION << 4 | (c->cp_rights & 15),
		.w_key = c->cp_key,
		.w_stripe = c->cp_obj.co_stripe,
		.w_mirror = c->cp_obj.co_mirror,
		.w_fs = htobe16(c->cp_obj.co_fs),
		.w_incarnation = htobe16(c->cp_obj.co_incarnation),
		.w_ino = htobe64(c->cp_obj.co_ino),
		.w_epoch = htobe32(c->cp_epoch),
		.w_client = htobe32(c->cp_client),
	};

	memcpy(out, &w, CAP_LEN);
	cap_mac(out, key, out + offsetof(struct cap_wire, w_mac));
}

bool cap_open(const uint8_t in[CAP_LEN], const uint8_t key[CAP_KEY_LEN], struct cap *c)
{
	struct cap_wire w;
	uint8_t mac[8];

	memcpy(&w, in, CAP_LEN);
	cap_mac(in, key, mac);
	if (w.w_version_rights >> 4 != CAP_VERSION || sodium_memcmp(mac, w.w_mac, 8) != 0)
		return false;
	*c = (struct cap){
		.cp_obj = {
			.co_ino = be64toh(w.w_ino),
			.co_fs = be16toh(w.w_fs),
			.co_incarnation = be16toh(w.w_incarnation),
			.co_stripe = w.w_stripe,
			.co_mirror = w.w_mirror,
		},
		.cp_rights = w.w_version_rights & 15,
		.cp_key = w.w_key,
		.cp_epoch = be32toh(w.w_epoch),
		.cp_client = be32toh(w.w_client),
	};
	return true;
}

uint8_t cap_key_number(const uint8_t in[CAP_LEN])
{
	return in[offsetof(struct cap_wire, w_key)];
}

void cap_derive_key(const uint8_t cluster[CAP_CLUSTER_KEY_LEN], const uint8_t ds_uuid[16], uint8_t key_number, uint8_t out[CAP_KEY_LEN])
{
	uint8_t msg[33] = "weft data cap v1";

	memcpy(msg + 16, ds_uuid, 16);
	msg[32] = key_number;
	crypto_generichash(out, CAP_KEY_LEN, msg, sizeof(msg), cluster, CAP_CLUSTER_KEY_LEN);
}

void cap_derive_tls_key(const uint8_t cluster[CAP_CLUSTER_KEY_LEN], const uint8_t ds_uuid[16], uint8_t out[CAP_TLS_KEY_LEN])
{
	uint8_t msg[32] = "weft data tls v1";

	memcpy(msg + 16, ds_uuid, 16);
	crypto_generichash(out, CAP_TLS_KEY_LEN, msg, sizeof(msg), cluster, CAP_CLUSTER_KEY_LEN);
}
