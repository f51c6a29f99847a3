/* SPDX-License-Identifier: Apache-2.0 */
/*
 * key.h - the keys of this data server (docs/security.md, "Keys"): its own (proto/ds_key.h), or the
 * cluster key before it has its own.
 *
 * Each MDS gives it keys of its file system: those of capabilities and of the control connection.
 * The other keys are the same from each MDS.
 *
 * Its own keys are in the file that ds.key names (made by weft ds key), or in the store, which
 * keeps those that the MDS sends (CTL_OP_KEY, or the answer to a JOIN). The latest keys of each
 * file system count. Files of the store's home: "key", the current keys of file system 1;
 * "key.before", the previous ones, of which only capabilities are good; "key.given", the last
 * contents of ds.key. Those of another file system have its number behind them: "key.fs2",
 * "key.before.fs2", "key.given.fs2".
 */
#ifndef DS_KEY_H
#define DS_KEY_H
#include "ds/store/store.h"
#include "proto/ds_key.h"
#include <pthread.h>
#include <stdatomic.h>

struct conf;
/* The keys of one file system. */
struct ds_fs_keys {
	uint16_t fk_fs;
	bool fk_own; /* with ks_lock */
	struct ds_key fk_key;
	_Atomic uint64_t fk_cap[256][2]; /* keys of capabilities, by key number */
};

struct ds_keys {
	bool ks_given; /* ds.key is set, and ks_file has its keys */
	struct ds_key ks_file;
	uint8_t ks_cluster[CAP_CLUSTER_KEY_LEN]; /* zeros once there are own keys */
	pthread_mutex_t ks_lock;		 /* guards what is below: a worker changes it */
	bool ks_own;				 /* of some file system */
	/* own; before that, only dk_path, dk_tls and dk_uuid are set */
	struct ds_key ks_key;
	struct ds_fs_keys *ks_fs[DS_FS_MAX]; /* in the order in which they came */
	unsigned ks_nfs;
	_Atomic(struct ds_fs_keys *) ks_at[DS_FS_MAX]; /* by ds_fs_place; they stay */
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
/* Copies the key of capabilities of a file system with this key number. False: this server has
 * none. Any thread. */
static inline bool ds_keys_cap(struct ds_keys *ks, const struct ds_fs *f, uint8_t number,
			       uint64_t out[2])
{
	struct ds_fs_keys *fk =
		atomic_load_explicit(&ks->ks_at[ds_fs_place(f)], memory_order_acquire);

	if (!fk)
		return false;
	out[0] = atomic_load_explicit(&fk->fk_cap[number][0], memory_order_relaxed);
	out[1] = atomic_load_explicit(&fk->fk_cap[number][1], memory_order_relaxed);
	return true;
}
/* On the orders worker: the store has met this file system, and its number is known. -ENOMEM. */
int ds_keys_meet(struct ds_keys *ks, const struct ds_fs *f);
/* On the orders worker: takes keys of the file system that its MDS sent; durable when it returns
 * CTL_OK. */
ctl_status ds_keys_take(struct ds_keys *ks, struct ds_fs *f, const ctl_key_args *a);
ctl_status ds_keys_take_key(struct ds_keys *ks, struct ds_fs *f, const struct ds_key *k);
/* The keys that are the server's at each MDS: dk_uuid, dk_tls and dk_path; zeros for the others.
 * False: it has no keys of its own, of any file system. */
bool ds_keys_own(struct ds_keys *ks, struct ds_key *k);
/* The keys of one file system. False: it has none of its own. */
bool ds_keys_of(struct ds_keys *ks, uint16_t fs, struct ds_key *k);
#endif
