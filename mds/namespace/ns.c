/* SPDX-License-Identifier: Apache-2.0 */
/* ns.c - opens and formats the store: the super record, counters, the inode count, tables of other
 * components, paths. */
#include "mds/namespace/keys.h"
#include "base/log.h"
#include "mds/namespace/ns_sum_rec.h"
#include <errno.h>
#include <sodium.h>
#include <stdlib.h>

int ns_super_get(struct kv_txn *t, struct ns_super *su)
{
	struct kv_slice val;
	uint64_t inodes;
	int err;

	err = kv_get(t, ns_slice("S", 1), &val);
	if (err)
		return err;
	return ns_super_decode(val, su, &inodes);
}

/* Each write of the super record also writes the inode count. */
int ns_super_put(struct ns *ns, struct kv_txn *t, const struct ns_super *su)
{
	struct ns_super_rec r;

	ns_super_encode(su, atomic_load(&ns->n_inodes), &r);
	ns->n_frees = 0;
	return kv_put(t, ns_slice("S", 1), ns_slice(&r, sizeof(r)));
}

uint64_t ns_fs_ino(uint16_t fs)
{
	return fs == 1 ? 0 : (uint64_t)fs << 48;
}

static int format(struct ns *ns, const struct ns_identity *id, struct kv_txn *t)
{
	struct ns_super *su = &ns->n_super;
	uint8_t k[NS_KEY_INODE];
	struct kv_slice val;
	struct ns_inode root;
	int err;

	err = kv_get(t, ns_key_ino(k, NS_K_INODE, NS_ROOT_INO), &val);
	if (err != -ENOENT)
		/* A root without a super record means a damaged store, not an empty one. */
		return err ? err : -EIO;
	*su = (struct ns_super){
		.su_fs = id->id_fs ? id->id_fs : 1,
		.su_incarnation = 1,
		.su_boot = 1,
		.su_ino_next = ns_fs_ino(id->id_fs ? id->id_fs : 1) + NS_ROOT_INO + 1,
		.su_ds_next = 1,
		.su_client_next = 1,
		.su_order_next = 1,
		.su_sums = true,
	};
	randombytes_buf(su->su_uuid, sizeof(su->su_uuid));
	su->su_uuid[6] = (su->su_uuid[6] & 0x0f) | 0x40; /* RFC 9562: version 4 */
	su->su_uuid[8] = (su->su_uuid[8] & 0x3f) | 0x80;
	if (id->id_cluster)
		memcpy(su->su_uuid, id->id_uuid, sizeof(su->su_uuid));
	randombytes_buf(su->su_fh_key, sizeof(su->su_fh_key));
	randombytes_buf(su->su_dir_key, sizeof(su->su_dir_key));
	root = (struct ns_inode){
		.i_ino = NS_ROOT_INO,
		.i_type = NS_DIR,
		.i_mode = 0755,
		.i_incarnation = su->su_incarnation,
		.i_nlink = 2,
		.i_change = 1,
		.i_parent = NS_ROOT_INO,
		.i_btime = ns_now(),
	};
	root.i_atime = root.i_mtime = root.i_ctime = root.i_btime;
	atomic_store(&ns->n_inodes, 1);
	err = ns_inode_put(t, &root);
	if (!err)
		err = ns_boot_begin(t, su);
	return err ? err : ns_super_put(ns, t, su);
}

struct opening {
	struct ns *op_ns;
	const struct ns_identity *op_id;
};

static bool identity_is(const struct ns_identity *id, const struct ns_super *su)
{
	return (!id->id_fs || id->id_fs == su->su_fs) &&
	       (!id->id_cluster || !memcmp(id->id_uuid, su->su_uuid, sizeof(su->su_uuid)));
}

static int open_run(void *arg, struct kv_txn *t)
{
	struct opening *op = arg;
	struct ns *ns = op->op_ns;
	struct kv_slice val;
	uint64_t inodes;
	int err;

	err = kv_get(t, ns_slice("S", 1), &val);
	if (err == -ENOENT) {
		err = ns_stamp_open(t); /* it has none; the process may have had another store */
		return err ? err : format(ns, op->op_id, t);
	}
	if (err)
		return err;
	err = ns_super_decode(val, &ns->n_super, &inodes);
	if (err)
		return -EPROTO;
	/* Before anything changes: this may be the store of another instance. */
	if (!identity_is(op->op_id, &ns->n_super))
		return -EEXIST;
	err = ns_stamp_open(t);
	if (err)
		return err;
	atomic_store(&ns->n_inodes, inodes);
	ns->n_super.su_boot++;
	err = ns_boot_begin(t, &ns->n_super);
	return err ? err : ns_super_put(ns, t, &ns->n_super);
}

/* A store from before there were sums gets them now. Of others, how much waits to be pushed, and
 * how much is damaged. */
static int sums_open(struct ns *ns)
{
	struct kv_txn *t;
	int64_t n = 0;
	int err;

	if (!ns->n_super.su_sums) {
		log_info("ns: the store has no sums of what is below its directories yet");
		err = ns_sum_rebuild(ns, ns_sum_say);
		if (!err)
			log_info("ns: the sums of all directories are known");
		return err;
	}
	err = kv_read_begin(ns->n_kv, &t);
	if (err)
		return err;
	err = ns_sum_look(t, &n);
	kv_read_end(t);
	atomic_store(&ns->n_unpushed, n);
	return err;
}

static void other_identity(const struct ns_super *su, char *err, size_t errlen)
{
	char uuid[33];

	sodium_bin2hex(uuid, sizeof(uuid), su->su_uuid, sizeof(su->su_uuid));
	snprintf(err, errlen,
		 "mds.fs or mds.cluster: the store is that of file system %u of cluster %s",
		 su->su_fs, uuid);
}

int ns_identity_check(struct kv *kv, const struct ns_identity *id, char *err, size_t errlen)
{
	struct ns_super su;
	struct kv_slice val;
	struct kv_txn *t;
	uint64_t inodes;
	int rc = kv_read_begin(kv, &t);

	if (rc) {
		snprintf(err, errlen, "%s", strerror(-rc));
		return rc;
	}
	rc = kv_get(t, ns_slice("S", 1), &val);
	if (!rc && ns_super_decode(val, &su, &inodes)) {
		rc = -EPROTO;
		snprintf(err, errlen, "the super record is damaged or of another version");
	} else if (!rc && !identity_is(id, &su)) {
		rc = -EEXIST;
		other_identity(&su, err, errlen);
	} else if (rc && rc != -ENOENT) {
		snprintf(err, errlen, "%s", strerror(-rc));
	}
	sodium_memzero(&su, sizeof(su));
	kv_read_end(t);
	return rc == -ENOENT ? 0 : rc;
}

int ns_open(struct ns **out, struct kv *kv, char *err, size_t errlen)
{
	const struct ns_identity any = {0};

	return ns_open_as(out, kv, &any, err, errlen);
}

int ns_open_as(struct ns **out, struct kv *kv, const struct ns_identity *id, char *err,
	       size_t errlen)
{
	struct opening op = {.op_id = id};
	struct ns *ns;
	int rc;

	if (sodium_init() < 0) {
		snprintf(err, errlen, "cannot initialize libsodium");
		return -EIO;
	}
	ns = calloc(1, sizeof(*ns));
	if (!ns) {
		snprintf(err, errlen, "out of memory");
		return -ENOMEM;
	}
	ns->n_kv = kv;
	op.op_ns = ns;
	rc = kv_run_sync(kv, open_run, &op);
	if (rc == -EEXIST) {
		other_identity(&ns->n_super, err, errlen);
		free(ns);
		return rc;
	}
	if (rc) {
		snprintf(err, errlen, "%s",
			 rc == -EPROTO ? "the super record is damaged or of another version"
			 : rc == -EIO  ? "the store is damaged: no super record, but inodes, or an "
					 "unreadable page"
				       : strerror(-rc));
		free(ns);
		return rc;
	}
	ns->n_ino_next = ns->n_super.su_ino_next;
	ns->n_order_next = ns->n_super.su_order_next;
	rc = sums_open(ns);
	if (rc) {
		snprintf(err, errlen, "cannot compute the sums of directories: %s", strerror(-rc));
		free(ns);
		return rc;
	}
	*out = ns;
	return 0;
}

/* Gives back the unused part of the reserved ranges, and writes the exact inode count. */
static int ns_close_run(void *arg, struct kv_txn *t)
{
	struct ns *ns = arg;
	struct ns_super su;
	int err;

	err = ns_super_get(t, &su);
	if (err)
		return err;
	su.su_ino_next = ns->n_ino_next;
	su.su_order_next = ns->n_order_next;
	return ns_super_put(ns, t, &su);
}

void ns_close(struct ns *ns)
{
	int err;

	if (!ns)
		return;
	err = kv_run_sync(ns->n_kv, ns_close_run, ns);
	if (err)
		log_warn("ns: cannot save the inode count: %s", strerror(-err));
	sodium_memzero(&ns->n_super, sizeof(ns->n_super));
	free(ns);
}

const struct ns_super *ns_super(const struct ns *ns)
{
	return &ns->n_super;
}

struct kv *ns_kv(const struct ns *ns)
{
	return ns->n_kv;
}

uint64_t ns_ino_next(struct ns *ns)
{
	return ns->n_ino_next++;
}

/* This costs one read of a hot record per create. A remembered limit would rely on a put that may
 * be aborted. */
int ns_ino_reserve(struct ns *ns, struct kv_txn *t, uint64_t ino)
{
	struct ns_super su;
	int err;

	err = ns_super_get(t, &su);
	if (err)
		return err == -ENOENT ? -EIO : err;
	if (ino < su.su_ino_next)
		return 0;
	su.su_ino_next = ino + NS_RANGE;
	return ns_super_put(ns, t, &su);
}

int ns_ino_limit(struct kv_txn *t, uint64_t *limit)
{
	struct ns_super su;
	int err = ns_super_get(t, &su);

	if (err)
		return err == -ENOENT ? -EIO : err;
	*limit = su.su_ino_next;
	return 0;
}

int ns_next_order(struct ns *ns, struct kv_txn *t, uint64_t *number)
{
	struct ns_super su;
	uint64_t n;
	int err;

	err = ns_super_get(t, &su);
	if (err)
		return err == -ENOENT ? -EIO : err;
	n = ns->n_order_next++;
	if (n >= su.su_order_next) {
		su.su_order_next = n + NS_RANGE;
		err = ns_super_put(ns, t, &su);
		if (err)
			return err;
	}
	*number = n;
	return 0;
}

/* Data servers and clients get their numbers one at a time: they are few, and small numbers are
 * easy to read. */
int ns_next_ds(struct ns *ns, struct kv_txn *t, uint32_t *id)
{
	struct ns_super su;
	int err;

	err = ns_super_get(t, &su);
	if (err)
		return err == -ENOENT ? -EIO : err;
	if (su.su_ds_next == UINT32_MAX)
		return -ENOSPC;
	*id = su.su_ds_next++;
	return ns_super_put(ns, t, &su);
}

int ns_next_client(struct ns *ns, struct kv_txn *t, uint32_t *id)
{
	struct ns_super su;
	int err;

	err = ns_super_get(t, &su);
	if (err)
		return err == -ENOENT ? -EIO : err;
	if (su.su_client_next == UINT32_MAX)
		return -ENOSPC;
	*id = su.su_client_next++;
	return ns_super_put(ns, t, &su);
}

int ns_clients_given(struct kv_txn *t, uint32_t *next)
{
	struct ns_super su;
	int err = ns_super_get(t, &su);

	*next = err ? 0 : su.su_client_next;
	return err == -ENOENT ? -EIO : err;
}

int ns_inode_freed(struct ns *ns, struct kv_txn *t)
{
	struct ns_super su;
	int err;

	atomic_fetch_sub(&ns->n_inodes, 1);
	if (++ns->n_frees < NS_COUNT_FREES)
		return 0;
	err = ns_super_get(t, &su);
	if (err)
		return err == -ENOENT ? -EIO : err;
	return ns_super_put(ns, t, &su);
}

/*
 * The inode count is kept in memory and written with the super record: when numbers are reserved,
 * after NS_COUNT_FREES frees, and at ns_close. It is exact from one clean stop to the next. Each
 * crash leaves it off by at most NS_RANGE creates and NS_COUNT_FREES frees, and each aborted batch
 * by the inodes of that batch. It is good enough for statfs, never for a decision. An exact count
 * would cost every create a put.
 */
int ns_counts(struct ns *ns, struct kv_txn *t, struct ns_counts *out)
{
	uint64_t n = atomic_load(&ns->n_inodes);

	(void)t;
	out->nct_inodes = n && n <= INT64_MAX ? n : 1;
	return 0;
}

static int row_key(uint8_t k[KV_KEY_MAX], enum ns_table tab, const void *id, size_t idlen,
		   struct kv_slice *key)
{
	if (idlen >= KV_KEY_MAX)
		return -EINVAL;
	k[0] = (uint8_t)tab;
	if (idlen)
		memcpy(k + 1, id, idlen);
	*key = ns_slice(k, idlen + 1);
	return 0;
}

int ns_row_put(struct kv_txn *t, enum ns_table tab, const void *id, size_t idlen, const void *val,
	       size_t len)
{
	uint8_t k[KV_KEY_MAX];
	struct kv_slice key;
	int err;

	if (len > KV_VALUE_MAX)
		return -E2BIG;
	err = row_key(k, tab, id, idlen, &key);
	return err ? err : kv_put(t, key, ns_slice(val, len));
}

int ns_row_del(struct kv_txn *t, enum ns_table tab, const void *id, size_t idlen)
{
	uint8_t k[KV_KEY_MAX];
	struct kv_slice key;
	int err;

	err = row_key(k, tab, id, idlen, &key);
	if (err)
		return err;
	err = kv_del(t, key);
	return err == -ENOENT ? 0 : err;
}

int ns_row_get(struct kv_txn *t, enum ns_table tab, const void *id, size_t idlen,
	       struct kv_slice *val)
{
	uint8_t k[KV_KEY_MAX];
	struct kv_slice key;
	int err;

	err = row_key(k, tab, id, idlen, &key);
	return err ? err : kv_get(t, key, val);
}

int ns_prefix_del(struct kv_txn *t, struct kv_slice p, unsigned max)
{
	struct kv_slice key, val;
	struct kv_scan sc;
	uint8_t k[KV_KEY_MAX];
	unsigned n = 0;
	size_t len;
	int err;

	/* No delete while a scan is open. */
	for (;; n++) {
		err = kv_scan_begin(t, p, p, &sc);
		if (err)
			return err;
		err = n < max ? kv_scan_next(&sc, &key, &val) : 0;
		len = err > 0 ? key.s_len : 0;
		memcpy(k, err > 0 ? key.s_data : "", len);
		kv_scan_end(&sc);
		if (err > 0)
			err = kv_del(t, ns_slice(k, len));
		if (err || !len)
			return err ? err : (int)n;
	}
}

/* Rows with id >= from, in order. fn: 0 goes on, positive stops, negative stops and is returned. */
int ns_rows(struct kv_txn *t, enum ns_table tab, const void *from, size_t fromlen,
	    int (*fn)(void *arg, struct kv_slice id, struct kv_slice val), void *arg)
{
	struct kv_slice start, key, val;
	uint8_t k[KV_KEY_MAX];
	struct kv_scan sc;
	int err;

	err = row_key(k, tab, from, fromlen, &start);
	if (err)
		return err;
	err = kv_scan_begin(t, ns_slice(k, 1), start, &sc);
	if (err)
		return err;
	while ((err = kv_scan_next(&sc, &key, &val)) > 0) {
		err = fn(arg, ns_slice((const uint8_t *)key.s_data + 1, key.s_len - 1), val);
		if (err)
			break;
	}
	kv_scan_end(&sc);
	return err < 0 ? err : 0;
}

int ns_files(struct ns *ns, struct kv_txn *t, uint64_t from,
	     int (*fn)(void *arg, const struct ns_inode *i), void *arg)
{
	uint8_t k[NS_KEY_INODE], prefix = NS_K_INODE;
	struct kv_slice key, val;
	struct kv_scan sc;
	int err = kv_scan_begin(t, ns_slice(&prefix, 1), ns_key_ino(k, NS_K_INODE, from), &sc);

	(void)ns;
	if (err)
		return err;
	while ((err = kv_scan_next(&sc, &key, &val)) > 0) {
		struct ns_inode i;

		if (key.s_len != NS_KEY_INODE ||
		    ns_inode_decode(val, ns_get64((const uint8_t *)key.s_data + 1), &i) ||
		    i.i_type != NS_REG)
			continue; /* the checker reports damaged records */
		err = fn(arg, &i);
		if (err)
			break;
	}
	kv_scan_end(&sc);
	return err < 0 ? err : 0;
}

int ns_path(struct ns *ns, struct kv_txn *t, const char *path, uint64_t *ino)
{
	uint64_t at = NS_ROOT_INO;
	uint8_t type;
	size_t len;
	int err;

	if (path[0] != '/')
		return -EINVAL;
	for (;;) {
		path += strspn(path, "/");
		len = strcspn(path, "/");
		if (len == 0)
			break;
		err = ns_lookup(ns, t, at, path, len, &at, &type);
		if (err)
			return err;
		path += len;
	}
	*ino = at;
	return 0;
}
