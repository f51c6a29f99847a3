/*
 * key.h - the keys of this data server (docs/security.md, "Keys"): of its own (proto/ds_key.h), or,
 * before it has such, the cluster key.
 *
 * Its own are in the file that ds.key names, which weft ds key made, or in the store, where they
 * are put that the MDS sends (CTL_OP_KEY). What came last counts. Files of the store's home: "key",
 * those in use; "key.before", those before them, of which only capabilities are good; "key.given",
 * what ds.key had last.
 */
#ifndef DS_KEY_H
#define DS_KEY_H
#include "ds/store/store.h"
#include "proto/ds_key.h"
#include <pthread.h>
#include <stdatomic.h>

struct conf;
struct ds_keys {
	bool ks_given; /* ds.key is set: ks_file */
	struct ds_key ks_file;
	uint8_t ks_cluster[CAP_CLUSTER_KEY_LEN]; /* zeros once there are own ones */
	pthread_mutex_t ks_lock;		 /* of the next two: a worker changes them */
	bool ks_own;
	struct ds_key ks_key;		 /* own; before: dk_path, dk_tls and dk_uuid only */
	_Atomic uint64_t ks_cap[256][2]; /* of capabilities, by key number */
};

/* Reads what ds.key or ds.cluster_key names. home: where the store is. 0, or a negative errno and
 * one line in err. */
int ds_keys_configure(struct ds_keys *ks, const struct conf *c, const char *home, char *err,
		      size_t errlen);
/* The uuid that a store that is made now gets; NULL: any. */
const uint8_t *ds_keys_uuid(const struct ds_keys *ks);
/* When the store is open: which keys count. As above. */
int ds_keys_start(struct ds_keys *ks, struct ds_store *s, char *err, size_t errlen);
/* The key of a capability of this number. Any thread. */
static inline void ds_keys_cap(struct ds_keys *ks, uint8_t number, uint64_t out[2])
{
	out[0] = atomic_load_explicit(&ks->ks_cap[number][0], memory_order_relaxed);
	out[1] = atomic_load_explicit(&ks->ks_cap[number][1], memory_order_relaxed);
}
/* On the orders worker: takes what the MDS sent, durably. */
ctl_status ds_keys_take(struct ds_keys *ks, struct ds_store *s, const ctl_key_args *a);
/* What is used now; false: k has no control key, the cluster key seals. */
bool ds_keys_own(struct ds_keys *ks, struct ds_key *k);
#endif
