/*
 * ds_key.h - what one data server has of the cluster key: keys of its own, and nothing that is good
 * at another server (docs/security.md).
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
	/* of the cluster key that they are from, and of the capabilities' key */
	uint8_t dk_number;
	uint8_t dk_cap[CAP_KEY_LEN]; /* cap_derive_key */
	/* seals control connections, as the cluster key does */
	uint8_t dk_control[CAP_CLUSTER_KEY_LEN];
	/* cap_derive_tls_key; of no number: a rotation ends no connection of a daemon */
	uint8_t dk_tls[CAP_TLS_KEY_LEN];
	/* handles of ds.exports; of no number: clients keep them for good */
	uint8_t dk_path[CAP_KEY_LEN];
};

/* cluster: the key of that number; first: that of number 0, from which what no rotation changes is
 * derived. */
void ds_key_derive(const uint8_t cluster[CAP_CLUSTER_KEY_LEN],
		   const uint8_t first[CAP_CLUSTER_KEY_LEN], const uint8_t uuid[16], uint8_t number,
		   struct ds_key *k);
void ds_key_derive_control(const uint8_t cluster[CAP_CLUSTER_KEY_LEN], const uint8_t uuid[16],
			   uint8_t number, uint8_t out[CAP_CLUSTER_KEY_LEN]);
void ds_key_derive_path(const uint8_t cluster[CAP_CLUSTER_KEY_LEN], const uint8_t uuid[16],
			uint8_t out[CAP_KEY_LEN]);
/* What the server reader proves to the server whose dk_tls it is, when it reads there: of no use to
 * be taken for that one by anybody else. */
void ds_key_derive_peer(const uint8_t tls[CAP_TLS_KEY_LEN], const uint8_t reader[16],
			uint8_t out[CAP_TLS_KEY_LEN]);

/* The file's text (docs/formats.md). name is for people. */
#define DS_KEY_TEXT 640
void ds_key_text(const struct ds_key *k, const char *name, char out[DS_KEY_TEXT]);
/* text is changed. Returns 0, -EPROTONOSUPPORT (a newer version), or -EINVAL; what is wrong, in a
 * few words, in *why (static). */
int ds_key_parse(char *text, struct ds_key *k, const char **why);

void ds_key_put(const struct ds_key *k, ctl_key_args *a);
/* False: a number that is none. */
bool ds_key_get(const ctl_key_args *a, struct ds_key *k);
/* Whether number a was given out after b: they rise, and begin again after 255. */
static inline bool ds_key_later(uint8_t a, uint8_t b)
{
	return (uint8_t)(a - b - 1) < 127;
}
#endif
