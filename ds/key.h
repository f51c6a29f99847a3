/* SPDX-License-Identifier: Apache-2.0 */
/*
 * key.h - the keys of this data server (docs/security.md, "Keys"): its own (proto/ds_key.h), or the
 * cluster key before it has its own.
 *
 * Its own keys are in the file that ds.key names (made by weft ds key), or in the store, which
 * keeps those that the MDS sends (CTL_OP_KEY). The latest keys count. Files of the store's home:
 * "key", the current keys; "key.before", the previous ones, of which only capabilities are good;
 * "key.given", the last contents of ds.key.
 */
#ifndef DS_KEY_H
#define DS_KEY_H
#include "ds/store/store.h"
#include "proto/ds_key.h"
#include <pthread.h>
#include <stdatomic.h>

struct conf;
struct ds_keys {
	bool ks_given; /* ds.key is set, and ks_file has its keys */
	struct ds_key ks_file;
	uint8_t ks_cluster[CAP_CLUSTER_KEY_LEN]; /* zeros once there are own keys */
	pthread_mutex_t ks_lock;		 /* guards the next two: a worker changes them */
	bool ks_own;
	/* own; before that, only dk_path, dk_tls and dk_uuid are set */
	struct ds_key ks_key;
	_Atomic uint64_t ks_cap[256][2]; /* keys of capabilities, by key number */
};

/* Reads the file that ds.key or ds.cluster_key names. home: the store's home. Returns 0, or a
 * negative errno and one line in err. */
int ds_keys_configure(struct ds_keys *ks, const struct conf *c, const char *home, char *err,
		      size_t errlen);
/* The uuid for a new store; NULL: any. */
const uint8_t *ds_keys_uuid(const struct ds_keys *ks);
/* Once the store is open: finds out which keys count. Returns 0, or a negative errno and one line
 * in err. */
int ds_keys_start(struct ds_keys *ks, struct ds_store *s, char *err, size_t errlen);
/* Copies the key of capabilities with this key number. Any thread. */
static inline void ds_keys_cap(struct ds_keys *ks, uint8_t number, uint64_t out[2])
{
	out[0] = atomic_load_explicit(&ks->ks_cap[number][0], memory_order_relaxed);
	out[1] = atomic_load_explicit(&ks->ks_cap[number][1], memory_order_relaxed);
}
/* On the orders worker: takes keys that the MDS sent; durable when it returns CTL_OK. */
ctl_status ds_keys_take(struct ds_keys *ks, struct ds_fs *f, const ctl_key_args *a);
/* The keys in use. False: k has no control key; the cluster key seals the control connection. */
bool ds_keys_own(struct ds_keys *ks, struct ds_key *k);
#endif
