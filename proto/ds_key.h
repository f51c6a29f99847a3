/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ds_key.h - a data server's own keys, derived from the cluster key; none is good at another server
 * (docs/security.md).
 *
 * The MDS derives them from the cluster key of a number and the server's uuid. The server has them
 * in a file: one that weft ds key made (ds.key), or the one in its store that the MDS sent over the
 * control channel.
 */
#ifndef PROTO_DS_KEY_H
#define PROTO_DS_KEY_H
#include "proto/cap.h"
#include "proto/ctl.h"
#include <stddef.h>

struct ds_key {
	uint8_t dk_uuid[16];
	/* of the cluster key from which they derive, and of the capabilities' key */
	uint8_t dk_number;
	uint8_t dk_cap[CAP_KEY_LEN]; /* cap_derive_key */
	/* seals control connections, as the cluster key does */
	uint8_t dk_control[CAP_CLUSTER_KEY_LEN];
	/* cap_derive_tls_key; has no number: a rotation ends no connection of a daemon */
	uint8_t dk_tls[CAP_TLS_KEY_LEN];
	/* file handles of ds.exports; has no number: clients keep them for good */
	uint8_t dk_path[CAP_KEY_LEN];
	uint8_t dk_zero;
	/* dk_cap and dk_control are good at the MDS of this file system; the others are the
	 * server's at each. */
	uint16_t dk_fs;
};

/* cluster: the key of that number of file system fs (number 0: cap_derive_fs); first: the cluster
 * key of number 0, from which come the keys that no rotation changes. */
void ds_key_derive(const uint8_t cluster[CAP_CLUSTER_KEY_LEN],
		   const uint8_t first[CAP_CLUSTER_KEY_LEN], const uint8_t uuid[16], uint8_t number,
		   uint16_t fs, struct ds_key *k);
void ds_key_derive_control(const uint8_t cluster[CAP_CLUSTER_KEY_LEN], const uint8_t uuid[16],
			   uint8_t number, uint8_t out[CAP_CLUSTER_KEY_LEN]);
/* Seals the control connection of a server to the MDS of a file system of which it has no keys yet;
 * tls is its dk_tls, which it has from another MDS of the cluster. */
void ds_key_derive_meet(const uint8_t tls[CAP_TLS_KEY_LEN], const uint8_t uuid[16],
			uint8_t out[CAP_CLUSTER_KEY_LEN]);
void ds_key_derive_path(const uint8_t cluster[CAP_CLUSTER_KEY_LEN], const uint8_t uuid[16],
			uint8_t out[CAP_KEY_LEN]);
/* The key that the server reader proves to another server when it reads there; tls is the dk_tls of
 * that server. The key does not let its holder pose as that server. */
void ds_key_derive_peer(const uint8_t tls[CAP_TLS_KEY_LEN], const uint8_t reader[16],
			uint8_t out[CAP_TLS_KEY_LEN]);

/* The key of the channel over which the holder of a join token gets keys (CTL_OP_TOKEN2). */
void ds_key_derive_token(const uint8_t secret[16], const uint8_t id[16],
			 uint8_t out[CAP_CLUSTER_KEY_LEN]);
/*
 * The keys in an answer to TOKEN2 (docs/formats.md, "Keys"). token: the key of the channel; claim:
 * the public key of who asks; given: the public key of this answer, whose secret ds_key_seal
 * forgets. So who records all that is sent, and learns the token later, cannot open the keys.
 * -EINVAL: the claim is no public key. ds_key_open: -EBADMSG: not of this token and claim.
 */
void ds_key_claim(const uint8_t secret[CTL_CLAIM_LEN], uint8_t claim[CTL_CLAIM_LEN]);
int ds_key_seal(const struct ds_key *k, const uint8_t token[CAP_CLUSTER_KEY_LEN],
		const uint8_t claim[CTL_CLAIM_LEN], uint8_t given[CTL_CLAIM_LEN],
		uint8_t out[CTL_SEALED_KEYS]);
int ds_key_open(struct ds_key *k, const uint8_t token[CAP_CLUSTER_KEY_LEN],
		const uint8_t secret[CTL_CLAIM_LEN], const uint8_t given[CTL_CLAIM_LEN],
		const uint8_t in[CTL_SEALED_KEYS]);

/* Writes the file's text (docs/formats.md). name is for people. */
#define DS_KEY_TEXT 640
void ds_key_text(const struct ds_key *k, const char *name, char out[DS_KEY_TEXT]);
/* Changes text. Returns 0, -EPROTONOSUPPORT (a newer version), or -EINVAL; *why says what is wrong
 * in a few words (static). */
int ds_key_parse(char *text, struct ds_key *k, const char **why);

/* fs: of the channel, which the arguments do not name. False: the number is not valid. */
void ds_key_put(const struct ds_key *k, ctl_key_args *a);
bool ds_key_get(const ctl_key_args *a, uint16_t fs, struct ds_key *k);
/* In an answer to a JOIN (CTL_MORE_GIVEN). m's data is in buf. False: there is none. */
#define DS_KEY_GIVEN 97
void ds_key_more_put(const struct ds_key *k, ctl_more *m, uint8_t buf[DS_KEY_GIVEN]);
bool ds_key_more_get(const ctl_more *list, unsigned len, const uint8_t uuid[16], uint16_t fs,
		     struct ds_key *k);
/* True when number a was given out after b: numbers rise, and begin again after 255. */
static inline bool ds_key_later(uint8_t a, uint8_t b)
{
	return (uint8_t)(a - b - 1) < 127;
}
#endif
