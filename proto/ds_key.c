/* SPDX-License-Identifier: Apache-2.0 */
/* ds_key.c - see ds_key.h. */
#include "proto/ds_key.h"
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_LINE  "weft data server key"
#define KEY_VERSION 2 /* 1: of file system 1; it has no fs */

static void derive(const uint8_t *key, size_t keylen, const char label[16], const uint8_t uuid[16],
		   const uint8_t *number, uint8_t *out, size_t len)
{
	uint8_t msg[33];

	memcpy(msg, label, 16);
	memcpy(msg + 16, uuid, 16);
	if (number)
		msg[32] = *number;
	crypto_generichash(out, len, msg, number ? 33 : 32, key, keylen);
}

void ds_key_derive_control(const uint8_t cluster[CAP_CLUSTER_KEY_LEN], const uint8_t uuid[16],
			   uint8_t number, uint8_t out[CAP_CLUSTER_KEY_LEN])
{
	derive(cluster, CAP_CLUSTER_KEY_LEN, "weft ds ctl  v1", uuid, &number, out,
	       CAP_CLUSTER_KEY_LEN);
}

void ds_key_derive_path(const uint8_t cluster[CAP_CLUSTER_KEY_LEN], const uint8_t uuid[16],
			uint8_t out[CAP_KEY_LEN])
{
	derive(cluster, CAP_CLUSTER_KEY_LEN, "weft path fh v1", uuid, NULL, out, CAP_KEY_LEN);
}

void ds_key_derive_peer(const uint8_t tls[CAP_TLS_KEY_LEN], const uint8_t reader[16],
			uint8_t out[CAP_TLS_KEY_LEN])
{
	derive(tls, CAP_TLS_KEY_LEN, "weft peer tl v1", reader, NULL, out, CAP_TLS_KEY_LEN);
}

void ds_key_derive_token(const uint8_t secret[16], const uint8_t id[16],
			 uint8_t out[CAP_CLUSTER_KEY_LEN])
{
	derive(secret, 16, "weft join tk v1", id, NULL, out, CAP_CLUSTER_KEY_LEN);
}

void ds_key_derive_meet(const uint8_t tls[CAP_TLS_KEY_LEN], const uint8_t uuid[16],
			uint8_t out[CAP_CLUSTER_KEY_LEN])
{
	derive(tls, CAP_TLS_KEY_LEN, "weft ds meet v1", uuid, NULL, out, CAP_CLUSTER_KEY_LEN);
}

/* ---- in an answer to TOKEN2 ---- */

/* The answer does not have the file system: that is the channel's. */
#define SENT offsetof(struct ds_key, dk_zero)
_Static_assert(SENT + crypto_aead_xchacha20poly1305_ietf_ABYTES == CTL_SEALED_KEYS,
	       "the fields without padding, and a tag");
_Static_assert(CTL_CLAIM_LEN == crypto_scalarmult_BYTES, "X25519");

void ds_key_claim(const uint8_t secret[CTL_CLAIM_LEN], uint8_t claim[CTL_CLAIM_LEN])
{
	crypto_scalarmult_base(claim, secret);
}

/* own: the secret of one side, theirs: the public key of the other. */
static int box_key(const uint8_t *token, const uint8_t *own, const uint8_t *theirs,
		   const uint8_t *claim, const uint8_t *given, uint8_t out[32])
{
	uint8_t msg[16 + 3 * CTL_CLAIM_LEN] = "weft join kx v1", *p = msg + 16;
	int err = 0;

	/* It fails for the few values that are the same with each secret. */
	if (crypto_scalarmult(p, own, theirs))
		err = -EINVAL;
	memcpy(p + CTL_CLAIM_LEN, claim, CTL_CLAIM_LEN);
	memcpy(p + 2 * CTL_CLAIM_LEN, given, CTL_CLAIM_LEN);
	crypto_generichash(out, 32, msg, sizeof(msg), token, CAP_CLUSTER_KEY_LEN);
	sodium_memzero(msg, sizeof(msg));
	return err;
}

/* A key seals one message only, so the nonce may be zeros. */
static const uint8_t box_nonce[crypto_aead_xchacha20poly1305_ietf_NPUBBYTES];

int ds_key_seal(const struct ds_key *k, const uint8_t token[CAP_CLUSTER_KEY_LEN],
		const uint8_t claim[CTL_CLAIM_LEN], uint8_t given[CTL_CLAIM_LEN],
		uint8_t out[CTL_SEALED_KEYS])
{
	uint8_t once[CTL_CLAIM_LEN], key[32];
	int err;

	randombytes_buf(once, sizeof(once));
	crypto_scalarmult_base(given, once);
	err = box_key(token, once, claim, claim, given, key);
	if (!err)
		crypto_aead_xchacha20poly1305_ietf_encrypt(out, NULL, (const uint8_t *)k, SENT,
							   NULL, 0, NULL, box_nonce, key);
	sodium_memzero(once, sizeof(once));
	sodium_memzero(key, sizeof(key));
	return err;
}

int ds_key_open(struct ds_key *k, const uint8_t token[CAP_CLUSTER_KEY_LEN],
		const uint8_t secret[CTL_CLAIM_LEN], const uint8_t given[CTL_CLAIM_LEN],
		const uint8_t in[CTL_SEALED_KEYS])
{
	uint8_t claim[CTL_CLAIM_LEN], key[32];
	int err;

	memset(k, 0, sizeof(*k));
	ds_key_claim(secret, claim);
	err = box_key(token, secret, given, claim, given, key);
	if (err || crypto_aead_xchacha20poly1305_ietf_decrypt(
			   (uint8_t *)k, NULL, NULL, in, CTL_SEALED_KEYS, NULL, 0, box_nonce, key))
		err = -EBADMSG;
	sodium_memzero(key, sizeof(key));
	return err;
}

void ds_key_derive(const uint8_t cluster[CAP_CLUSTER_KEY_LEN],
		   const uint8_t first[CAP_CLUSTER_KEY_LEN], const uint8_t uuid[16], uint8_t number,
		   uint16_t fs, struct ds_key *k)
{
	memset(k, 0, sizeof(*k));
	k->dk_fs = fs;
	memcpy(k->dk_uuid, uuid, 16);
	k->dk_number = number;
	cap_derive_key(cluster, uuid, number, k->dk_cap);
	ds_key_derive_control(cluster, uuid, number, k->dk_control);
	cap_derive_tls_key(first, uuid, k->dk_tls);
	ds_key_derive_path(first, uuid, k->dk_path);
}

/* ---- the file ---- */

static const struct part {
	const char *pt_name;
	size_t pt_at, pt_len;
} parts[] = {
	{"server", offsetof(struct ds_key, dk_uuid), 16},
	{"cap", offsetof(struct ds_key, dk_cap), CAP_KEY_LEN},
	{"control", offsetof(struct ds_key, dk_control), CAP_CLUSTER_KEY_LEN},
	{"tls", offsetof(struct ds_key, dk_tls), CAP_TLS_KEY_LEN},
	{"path", offsetof(struct ds_key, dk_path), CAP_KEY_LEN},
};
#define PARTS (sizeof(parts) / sizeof(parts[0]))

void ds_key_text(const struct ds_key *k, const char *name, char out[DS_KEY_TEXT])
{
	char hex[2 * CAP_CLUSTER_KEY_LEN + 1];
	int n = snprintf(out, DS_KEY_TEXT, FIRST_LINE "\nversion=%d\nname=%.64s\nnumber=%u\n",
			 k->dk_fs == 1 ? 1 : KEY_VERSION, name, k->dk_number);

	if (k->dk_fs != 1)
		n += snprintf(out + n, DS_KEY_TEXT - (size_t)n, "fs=%u\n", k->dk_fs);
	for (size_t i = 0; i < PARTS; i++)
		n += snprintf(out + n, DS_KEY_TEXT - (size_t)n, "%s=%s\n", parts[i].pt_name,
			      sodium_bin2hex(hex, sizeof(hex), (const uint8_t *)k + parts[i].pt_at,
					     parts[i].pt_len));
	sodium_memzero(hex, sizeof(hex));
}

/* Parses a whole number up to max. Returns it, or -1. */
static int small(const char *s, long max)
{
	char *end;
	long v = *s >= '0' && *s <= '9' ? strtol(s, &end, 10) : -1;

	return v >= 0 && v <= max && !*end ? (int)v : -1;
}

static bool part_get(struct ds_key *k, const struct part *pt, const char *value)
{
	size_t len;

	return strlen(value) == 2 * pt->pt_len &&
	       !sodium_hex2bin((uint8_t *)k + pt->pt_at, pt->pt_len, value, strlen(value), NULL,
			       &len, NULL) &&
	       len == pt->pt_len;
}

int ds_key_parse(char *text, struct ds_key *k, const char **why)
{
	char *save = NULL, *line = strtok_r(text, "\n", &save), *eq;
	int version = -1, number = -1, fs = -1;
	unsigned seen = 0;

	memset(k, 0, sizeof(*k));
	*why = "not a data server's key (weft ds key makes one)";
	if (!line || strcmp(line, FIRST_LINE))
		return -EINVAL;
	while ((line = strtok_r(NULL, "\n", &save))) {
		eq = strchr(line, '=');
		if (!eq)
			return -EINVAL;
		*eq++ = 0;
		if (!strcmp(line, "version"))
			version = small(eq, 255);
		else if (!strcmp(line, "number"))
			number = small(eq, 255);
		else if (!strcmp(line, "fs"))
			fs = small(eq, UINT16_MAX);
		for (size_t i = 0; i < PARTS; i++) {
			if (strcmp(line, parts[i].pt_name))
				continue;
			if (!part_get(k, &parts[i], eq))
				return -EINVAL;
			seen |= 1u << i;
		}
	}
	if (version > KEY_VERSION) {
		*why = "a key of a newer version than 2, which is all that this weft-ds knows";
		return -EPROTONOSUPPORT;
	}
	if (version == 1)
		fs = 1;
	if (version < 1 || fs < 1 || number < 0 || seen != (1u << PARTS) - 1 ||
	    sodium_is_zero(k->dk_uuid, 16))
		return -EINVAL;
	k->dk_number = (uint8_t)number;
	k->dk_fs = (uint16_t)fs;
	return 0;
}

/* ---- over the control channel ---- */

void ds_key_put(const struct ds_key *k, ctl_key_args *a)
{
	a->number = k->dk_number;
	memcpy(a->ds_uuid, k->dk_uuid, sizeof(a->ds_uuid));
	memcpy(a->cap, k->dk_cap, sizeof(a->cap));
	memcpy(a->control, k->dk_control, sizeof(a->control));
	memcpy(a->tls, k->dk_tls, sizeof(a->tls));
	memcpy(a->path, k->dk_path, sizeof(a->path));
}

bool ds_key_get(const ctl_key_args *a, uint16_t fs, struct ds_key *k)
{
	memset(k, 0, sizeof(*k));
	k->dk_fs = fs;
	k->dk_number = (uint8_t)a->number;
	memcpy(k->dk_uuid, a->ds_uuid, sizeof(a->ds_uuid));
	memcpy(k->dk_cap, a->cap, sizeof(a->cap));
	memcpy(k->dk_control, a->control, sizeof(a->control));
	memcpy(k->dk_tls, a->tls, sizeof(a->tls));
	memcpy(k->dk_path, a->path, sizeof(a->path));
	return a->number <= 255;
}

/* The number, and the keys in the order of struct ds_key. The uuid is the server's own. */
_Static_assert(SENT - offsetof(struct ds_key, dk_number) == DS_KEY_GIVEN &&
		       offsetof(struct ds_key, dk_number) == 16 && DS_KEY_GIVEN <= CTL_MORE_LEN,
	       "without padding");

void ds_key_more_put(const struct ds_key *k, ctl_more *m, uint8_t buf[DS_KEY_GIVEN])
{
	memcpy(buf, &k->dk_number, DS_KEY_GIVEN);
	m->kind = CTL_MORE_GIVEN;
	m->data.data_len = DS_KEY_GIVEN;
	m->data.data_val = (char *)buf;
}

bool ds_key_more_get(const ctl_more *list, unsigned len, const uint8_t uuid[16], uint16_t fs,
		     struct ds_key *k)
{
	memset(k, 0, sizeof(*k));
	for (unsigned i = 0; i < len; i++) {
		if (list[i].kind != CTL_MORE_GIVEN || list[i].data.data_len < DS_KEY_GIVEN)
			continue;
		memcpy(&k->dk_number, list[i].data.data_val, DS_KEY_GIVEN);
		memcpy(k->dk_uuid, uuid, 16);
		k->dk_fs = fs;
		return true;
	}
	return false;
}
