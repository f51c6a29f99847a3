/* SPDX-License-Identifier: Apache-2.0 */
/* ns_xattr.c - extended attributes. Each has a key of its own, so that an inode may have many and
 * only the requested one is read. */
#include "mds/namespace/keys.h"
#include "base/log.h"
#include <errno.h>
#include <sys/stat.h>

static int xattr_value(struct kv_slice raw, struct kv_slice *val)
{
	const uint8_t *p = raw.s_data;

	if (raw.s_len < 1 || raw.s_len > NS_XATTR_VALUE_MAX + 1 || p[0] != NS_VERSION)
		return -EIO;
	*val = ns_slice(p + 1, raw.s_len - 1);
	return 0;
}

int ns_xattr_get(struct ns *ns, struct kv_txn *t, uint64_t ino, const char *name, size_t len,
		 struct kv_slice *val)
{
	uint8_t k[NS_KEY_XATTR_MAX];
	struct ns_inode i;
	struct kv_slice raw;
	int err;

	err = ns_xattr_name_check(name, len);
	if (!err)
		err = ns_get(ns, t, ino, &i);
	if (err)
		return err;
	if (!i.i_has_xattrs)
		return -ENODATA;
	err = kv_get(t, ns_key_xattr(k, ino, name, len), &raw);
	if (err)
		return err == -ENOENT ? -ENODATA : err;
	err = xattr_value(raw, val);
	if (err)
		log_error("ns: inode %lu: damaged extended attribute", (unsigned long)ino);
	return err;
}

/* Linux's xattr_permission for user.*: regular files and directories only; in a sticky directory's
 * own attributes only the owner writes. */
static int may_write(const struct ns_inode *i, const struct ns_cred *cr)
{
	if (i->i_type != NS_REG && i->i_type != NS_DIR)
		return -EPERM;
	if (i->i_type == NS_DIR && (i->i_mode & S_ISVTX) && !ns_is_owner(i, cr))
		return -EPERM;
	return ns_access(i, cr, NS_R_WRITE_XATTRS);
}

/* The common beginning of set and remove: holds the inode and checks that the writer is allowed.
 * *there: whether the attribute exists. */
static int xattr_begin(struct ns *ns, struct kv_txn *t, struct ns_inode_held *h, uint64_t ino,
		       struct kv_slice key, const struct ns_cred *cr, bool *there)
{
	struct kv_slice old;
	int err;

	err = ns_inode_copy(ns, t, ino, h);
	if (!err && !h->h_i.i_nlink && !ns_is_orphan(t, ino))
		err = -ESTALE; /* it is in the trash */
	if (!err)
		err = may_write(&h->h_i, cr);
	if (err)
		return err;
	err = kv_get(t, key, &old);
	if (err && err != -ENOENT)
		return err;
	*there = !err;
	return 0;
}

static int xattr_commit(struct kv_txn *t, struct ns_inode *i, struct ns_time now,
			struct ns_cinfo *ci)
{
	ci->c_before = i->i_change;
	ci->c_after = ++i->i_change;
	i->i_ctime = now;
	return ns_inode_put(t, i);
}

int ns_xattr_set(struct ns *ns, struct kv_txn *t, uint64_t ino, const char *name, size_t len,
		 struct kv_slice val, unsigned how, const struct ns_cred *cr, struct ns_time now,
		 struct ns_cinfo *ci)
{
	uint8_t k[NS_KEY_XATTR_MAX];
	struct ns_inode_held h;
	struct kv_slice key;
	bool there;
	int err;

	err = ns_xattr_name_check(name, len);
	if (err)
		return err;
	if (val.s_len > NS_XATTR_VALUE_MAX)
		return -E2BIG;
	key = ns_key_xattr(k, ino, name, len);
	err = xattr_begin(ns, t, &h, ino, key, cr, &there);
	if (err)
		return err;
	if (how == NS_X_CREATE && there)
		return -EEXIST;
	if (how == NS_X_REPLACE && !there)
		return -ENODATA;
	ns->n_xattr[0] = NS_VERSION;
	if (val.s_len)
		memcpy(ns->n_xattr + 1, val.s_data, val.s_len);
	err = kv_put(t, key, ns_slice(ns->n_xattr, val.s_len + 1));
	if (err)
		return err;
	h.h_i.i_has_xattrs = true;
	return xattr_commit(t, &h.h_i, now, ci);
}

/* Returns 1 when the inode has an attribute, 0 when it has none. */
static int any_xattr(struct kv_txn *t, uint64_t ino)
{
	uint8_t k[NS_KEY_INODE];
	struct kv_slice prefix = ns_key_ino(k, NS_K_XATTR, ino), key, val;
	struct kv_scan sc;
	int rc;

	rc = kv_scan_begin(t, prefix, prefix, &sc);
	if (rc)
		return rc;
	rc = kv_scan_next(&sc, &key, &val);
	kv_scan_end(&sc);
	return rc;
}

int ns_xattr_remove(struct ns *ns, struct kv_txn *t, uint64_t ino, const char *name, size_t len,
		    const struct ns_cred *cr, struct ns_time now, struct ns_cinfo *ci)
{
	uint8_t k[NS_KEY_XATTR_MAX];
	struct ns_inode_held h;
	struct kv_slice key;
	bool there;
	int err;

	err = ns_xattr_name_check(name, len);
	if (err)
		return err;
	key = ns_key_xattr(k, ino, name, len);
	err = xattr_begin(ns, t, &h, ino, key, cr, &there);
	if (err)
		return err;
	if (!there)
		return -ENODATA;
	err = kv_del(t, key);
	if (err)
		return err;
	err = any_xattr(t, ino);
	if (err < 0)
		return err;
	h.h_i.i_has_xattrs = err;
	return xattr_commit(t, &h.h_i, now, ci);
}

/* Lists names in the order of their bytes. fn: 0 goes on, positive stops, negative stops and is
 * returned. */
int ns_xattr_list(struct ns *ns, struct kv_txn *t, uint64_t ino,
		  int (*fn)(void *arg, const char *name, size_t len), void *arg)
{
	uint8_t k[NS_KEY_INODE];
	struct kv_slice prefix = ns_key_ino(k, NS_K_XATTR, ino), key, val;
	struct ns_inode i;
	struct kv_scan sc;
	int err;

	err = ns_get(ns, t, ino, &i);
	if (err || !i.i_has_xattrs)
		return err;
	err = kv_scan_begin(t, prefix, prefix, &sc);
	if (err)
		return err;
	while ((err = kv_scan_next(&sc, &key, &val)) > 0) {
		err = fn(arg, (const char *)key.s_data + NS_KEY_INODE, key.s_len - NS_KEY_INODE);
		if (err)
			break;
	}
	kv_scan_end(&sc);
	return err < 0 ? err : 0;
}

/* No delete runs while a scan is open, so keys are collected a few at a time. */
int ns_xattrs_del(struct kv_txn *t, uint64_t ino)
{
	enum { HANDFUL = 16 };
	uint8_t k[NS_KEY_INODE], names[HANDFUL][NS_KEY_XATTR_MAX];
	struct kv_slice prefix = ns_key_ino(k, NS_K_XATTR, ino), key, val;
	size_t lens[HANDFUL];
	struct kv_scan sc;
	int rc, n;

	do {
		rc = kv_scan_begin(t, prefix, prefix, &sc);
		if (rc)
			return rc;
		for (n = 0; n < HANDFUL && (rc = kv_scan_next(&sc, &key, &val)) > 0; n++) {
			if (key.s_len > NS_KEY_XATTR_MAX) {
				rc = -EIO;
				break;
			}
			memcpy(names[n], key.s_data, key.s_len);
			lens[n] = key.s_len;
		}
		kv_scan_end(&sc);
		for (int d = 0; rc >= 0 && d < n; d++) {
			int err = kv_del(t, ns_slice(names[d], lens[d]));

			if (err)
				rc = err;
		}
	} while (rc > 0);
	return rc;
}
