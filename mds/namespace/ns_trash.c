/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ns_trash.c - the trash's rows, and what goes in and out (ns_trash.h).
 *
 * Rows, all with the first byte NS_K_TRASH:
 *	0				how much there is
 *	1, parent (8), hash (8), ~when (8),	an entry; hash: of the name; when it was removed
 *		inode (8)
 *	2, expiry (8), inode (8)		the order of expiry
 *	3, inode (8)				where the entry is: parent, hash and when
 *	4, user (4)				what of a user's there is (ns_sum.h)
 *	5, a key from its kind on		a damaged row that was set aside
 *
 * So a directory's entries lie together, and in it those of one name, the newest first.
 */
#include "mds/namespace/keys.h"
#include "mds/namespace/ns_sum_rec.h"
#include "mds/namespace/ns_trash.h"
#include "base/log.h"
#include <errno.h>
#include <stdlib.h>

enum { OF_SUMS = 0, OF_ENTRY = 1, OF_EXPIRY = 2, OF_PLACE = 3, OF_USER = 4, OF_ASIDE = 5 };

/* ---- keys and records ---- */

/* buf: NS_KEY_TRASH_MAX bytes */
static struct kv_slice trash_key(uint8_t *buf, uint8_t of, uint64_t a, uint64_t b)
{
	buf[0] = NS_K_TRASH;
	buf[1] = of;
	ns_put64(buf + 2, a);
	ns_put64(buf + 10, b);
	return ns_slice(buf, of == OF_SUMS ? 2 : of == OF_PLACE ? 10 : 18);
}

static struct kv_slice entry_key(uint8_t *buf, const struct ns_trash *e)
{
	trash_key(buf, OF_ENTRY, e->tr_parent, e->tr_hash);
	ns_put64(buf + 18, ~e->tr_removed);
	ns_put64(buf + 26, e->tr_ino);
	return ns_slice(buf, NS_KEY_TRASH_MAX);
}

static struct kv_slice trash_user_key(uint8_t *buf, uint32_t uid)
{
	uint32_t v = htobe32(uid);

	buf[0] = NS_K_TRASH;
	buf[1] = OF_USER;
	memcpy(buf + 2, &v, sizeof(v));
	return ns_slice(buf, NS_KEY_TRASH_USER);
}

size_t ns_trash_encode(const struct ns_trash *e, uint8_t buf[NS_TRASH_VAL_MAX])
{
	struct ns_trash_rec r = {.t_version = NS_VERSION,
				 .t_type = e->tr_type,
				 .t_len = (uint8_t)e->tr_len,
				 .t_uid = htole32(e->tr_uid),
				 .t_bytes = htole64(e->tr_bytes),
				 .t_removed = htole64(e->tr_removed),
				 .t_expires = htole64(e->tr_expires)};

	memcpy(buf, &r, sizeof(r));
	memcpy(buf + sizeof(r), e->tr_name, e->tr_len);
	if (e->tr_inode.s_len)
		memcpy(buf + sizeof(r) + e->tr_len, e->tr_inode.s_data, e->tr_inode.s_len);
	return sizeof(r) + e->tr_len + e->tr_inode.s_len;
}

int ns_trash_decode(struct kv_slice key, struct kv_slice val, struct ns_trash *out)
{
	const uint8_t *k = key.s_data, *v = val.s_data;
	struct ns_trash_rec r;
	struct ns_inode i;
	size_t rest;

	if (key.s_len != NS_KEY_TRASH_MAX || k[1] != OF_ENTRY || val.s_len < sizeof(r))
		return -EIO;
	memcpy(&r, v, sizeof(r));
	if (r.t_version != NS_VERSION || val.s_len - sizeof(r) < r.t_len)
		return -EIO;
	rest = val.s_len - sizeof(r) - r.t_len;
	*out = (struct ns_trash){.tr_parent = ns_get64(k + 2),
				 .tr_hash = ns_get64(k + 10),
				 .tr_ino = ns_get64(k + 26),
				 .tr_bytes = le64toh(r.t_bytes),
				 .tr_removed = le64toh(r.t_removed),
				 .tr_expires = le64toh(r.t_expires),
				 .tr_uid = le32toh(r.t_uid),
				 .tr_type = r.t_type,
				 .tr_name = (const char *)v + sizeof(r),
				 .tr_len = r.t_len,
				 .tr_inode = ns_slice(v + sizeof(r) + r.t_len, rest)};
	if (ns_name_check(out->tr_name, out->tr_len) || !out->tr_ino || !out->tr_parent ||
	    ns_get64(k + 18) != ~out->tr_removed)
		return -EIO;
	if (out->tr_type == NS_REG)
		return rest ? -EIO : 0;
	if ((out->tr_type != NS_DIR && out->tr_type != NS_LNK) || out->tr_bytes ||
	    ns_inode_decode(out->tr_inode, out->tr_ino, &i) || i.i_type != out->tr_type)
		return -EIO;
	return 0;
}

static int trash_damaged(uint64_t ino)
{
	log_error("ns: the trash's entry of inode %lu is damaged", (unsigned long)ino);
	return -EIO;
}

int ns_trash_place_decode(struct kv_slice val, struct ns_trash *out)
{
	struct ns_trash_at_rec r;

	if (val.s_len != sizeof(r))
		return -EIO;
	memcpy(&r, val.s_data, sizeof(r));
	out->tr_parent = le64toh(r.ta_parent);
	out->tr_hash = le64toh(r.ta_hash);
	out->tr_removed = le64toh(r.ta_removed);
	return r.ta_version == NS_VERSION && out->tr_parent ? 0 : -EIO;
}

int ns_trash_get(struct kv_txn *t, uint64_t ino, struct ns_trash *out)
{
	struct ns_trash at = {.tr_ino = ino};
	uint8_t k[NS_KEY_TRASH_MAX];
	struct kv_slice key, val;
	int err = kv_get(t, trash_key(k, OF_PLACE, ino, 0), &val);

	if (err)
		return err;
	if (ns_trash_place_decode(val, &at))
		return trash_damaged(ino);
	key = entry_key(k, &at);
	err = kv_get(t, key, &val);
	if (err && err != -ENOENT)
		return err;
	return err || ns_trash_decode(key, val, out) ? trash_damaged(ino) : 0;
}

bool ns_is_orphan(struct kv_txn *t, uint64_t ino)
{
	uint8_t k[NS_KEY_INODE];
	struct kv_slice val;

	return kv_get(t, ns_key_ino(k, NS_K_ORPHAN, ino), &val) == 0;
}

int ns_get_live(struct ns *ns, struct kv_txn *t, uint64_t ino, struct ns_inode *i)
{
	int err = ns_get(ns, t, ino, i);

	return !err && !i->i_nlink && !ns_is_orphan(t, ino) ? -ESTALE : err;
}

bool ns_trash_expires(struct kv_txn *t, const struct ns_trash *e)
{
	uint8_t k[NS_KEY_TRASH_MAX];
	struct kv_slice val;

	return !kv_get(t, trash_key(k, OF_EXPIRY, e->tr_expires, e->tr_ino), &val);
}

bool ns_trash_row_ok(struct kv_txn *t, struct kv_slice key, struct kv_slice val)
{
	const uint8_t *k = key.s_data, *v = val.s_data;
	struct ns_trash_sums sums;
	struct ns_sum s;
	struct ns_trash e;

	if (key.s_len == NS_KEY_TRASH_USER && k[1] == OF_USER)
		return !ns_counted_decode(val, &s) && !ns_sum_zero(&s);
	if (key.s_len == 2 && k[1] == OF_SUMS)
		return !ns_trash_sums(t, &sums);
	if (key.s_len == 10 && k[1] == OF_PLACE)
		return !ns_trash_get(t, ns_get64(k + 2), &e);
	return key.s_len == 18 && k[1] == OF_EXPIRY && val.s_len == 1 && v[0] == NS_VERSION &&
	       !ns_trash_get(t, ns_get64(k + 10), &e) && e.tr_expires == ns_get64(k + 2);
}

/* ---- sums ---- */

int ns_trash_sums(struct kv_txn *t, struct ns_trash_sums *out)
{
	uint8_t k[NS_KEY_TRASH_MAX];
	struct ns_trash_sum_rec r;
	struct kv_slice val;
	int err = kv_get(t, trash_key(k, OF_SUMS, 0, 0), &val);

	*out = (struct ns_trash_sums){.ts_entries = 0};
	if (err)
		return err == -ENOENT ? 0 : err;
	if (val.s_len != sizeof(r))
		return -EIO;
	memcpy(&r, val.s_data, sizeof(r));
	*out = (struct ns_trash_sums){le64toh(r.ts_entries), le64toh(r.ts_bytes)};
	return r.ts_version == NS_VERSION ? 0 : -EIO;
}

int ns_trash_user(struct kv_txn *t, uint32_t uid, struct ns_sum *out)
{
	uint8_t k[NS_KEY_TRASH_USER];
	struct kv_slice val;
	int err = kv_get(t, trash_user_key(k, uid), &val);

	*out = (struct ns_sum){0};
	return err ? (err == -ENOENT ? 0 : err) : ns_counted_decode(val, out);
}

int ns_trash_user_put(struct kv_txn *t, uint32_t uid, const struct ns_sum *s)
{
	struct ns_counted_rec r = {.cn_version = NS_VERSION, .cn_sum = ns_sum_encode(s)};
	uint8_t k[NS_KEY_TRASH_USER];
	int err;

	if (!ns_sum_zero(s))
		return kv_put(t, trash_user_key(k, uid), ns_slice(&r, sizeof(r)));
	err = kv_del(t, trash_user_key(k, uid));
	return err == -ENOENT ? 0 : err;
}

int ns_trash_users(struct kv_txn *t, int (*fn)(void *arg, uint32_t uid, const struct ns_sum *s),
		   void *arg)
{
	const uint8_t prefix[2] = {NS_K_TRASH, OF_USER};

	return ns_user_rows_of(t, ns_slice(prefix, sizeof(prefix)), fn, arg);
}

int ns_trash_users_del(struct kv_txn *t, unsigned max)
{
	uint8_t prefix[2] = {NS_K_TRASH, OF_USER};

	return ns_prefix_del(t, ns_slice(prefix, 2), max);
}

static int user_change(struct kv_txn *t, uint32_t uid, const struct ns_sum *more,
		       const struct ns_sum *less)
{
	struct ns_sum s;
	int err = ns_trash_user(t, uid, &s);

	if (err == -EIO) {
		ns_sum_damaged("what a user has in the trash", uid);
		return 0;
	}
	if (err)
		return err;
	if (more)
		ns_sum_plus(&s, more);
	if (less)
		ns_sum_minus(&s, less);
	return ns_trash_user_put(t, uid, &s);
}

int ns_trash_changed(struct kv_txn *t, const struct ns_inode *i, const struct ns_sum *was,
		     uint32_t uid)
{
	struct ns_sum is = ns_sum_of(i);
	uint8_t k[NS_KEY_TRASH_MAX];
	struct kv_slice val;
	int err = kv_get(t, trash_key(k, OF_PLACE, i->i_ino, 0), &val);

	if (err)
		return err == -ENOENT ? 0 : err;
	if (uid == i->i_uid)
		return ns_sum_same(&is, was) ? 0 : user_change(t, uid, &is, was);
	err = user_change(t, uid, NULL, was);
	return err ? err : user_change(t, i->i_uid, &is, NULL);
}

/* What an entry counts of its owner's. */
int ns_trash_counts(struct kv_txn *t, const struct ns_trash *e, uint32_t *uid, struct ns_sum *out)
{
	struct kv_slice rec = e->tr_inode;
	uint8_t k[NS_KEY_INODE];
	struct ns_inode i;
	int err = 0;

	if (e->tr_type == NS_REG)
		err = kv_get(t, ns_key_ino(k, NS_K_INODE, e->tr_ino), &rec);
	if (!err)
		err = ns_inode_decode(rec, e->tr_ino, &i);
	if (err)
		return err == -ENOENT ? -EIO : err;
	*uid = i.i_uid;
	*out = ns_sum_of(&i);
	return 0;
}

/* own: what the entry counts of the user's */
static int sums_change(struct kv_txn *t, const struct ns_trash *e, uint32_t uid,
		       const struct ns_sum *own, bool more)
{
	uint8_t k[NS_KEY_TRASH_MAX];
	struct ns_trash_sum_rec r = {.ts_version = NS_VERSION};
	struct ns_trash_sums s;
	int err = ns_trash_sums(t, &s);

	/* A row that is damaged must stop no removal. weft-fsck says that the sums are wrong. */
	if (err == -EIO) {
		log_error("ns: the trash's sums are damaged, and begin at 0");
		s = (struct ns_trash_sums){.ts_entries = 0};
	} else if (err) {
		return err;
	}
	s.ts_entries = more ? s.ts_entries + 1 : s.ts_entries - (s.ts_entries > 0);
	s.ts_bytes = more ? s.ts_bytes + e->tr_bytes
			  : s.ts_bytes - (s.ts_bytes < e->tr_bytes ? s.ts_bytes : e->tr_bytes);
	r.ts_entries = htole64(s.ts_entries);
	r.ts_bytes = htole64(s.ts_bytes);
	err = kv_put(t, trash_key(k, OF_SUMS, 0, 0), ns_slice(&r, sizeof(r)));
	return err ? err : user_change(t, uid, more ? own : NULL, more ? NULL : own);
}

/* ---- in ---- */

static int expiry_put(struct kv_txn *t, uint64_t expires, uint64_t ino)
{
	static const uint8_t version = NS_VERSION;
	uint8_t k[NS_KEY_TRASH_MAX];

	return kv_put(t, trash_key(k, OF_EXPIRY, expires, ino), ns_slice(&version, 1));
}

static int ns_trash_entry_put(struct kv_txn *t, const struct ns_trash *e, const struct ns_inode *i)
{
	uint8_t k[NS_KEY_TRASH_MAX], buf[NS_TRASH_VAL_MAX];
	struct ns_trash_at_rec r = {.ta_version = NS_VERSION,
				    .ta_parent = htole64(e->tr_parent),
				    .ta_hash = htole64(e->tr_hash),
				    .ta_removed = htole64(e->tr_removed)};
	struct ns_sum own = ns_sum_of(i);
	int err = kv_put(t, entry_key(k, e), ns_slice(buf, ns_trash_encode(e, buf)));

	if (!err)
		err = kv_put(t, trash_key(k, OF_PLACE, e->tr_ino, 0), ns_slice(&r, sizeof(r)));
	if (!err)
		err = expiry_put(t, e->tr_expires, e->tr_ino);
	return err ? err : sums_change(t, e, i->i_uid, &own, true);
}

bool ns_trash_takes(const struct ns_inode *i)
{
	return i->i_type == NS_REG || i->i_type == NS_DIR || i->i_type == NS_LNK;
}

/* The inode's last link is gone; i says so. */
int ns_trash_put(struct ns *ns, struct kv_txn *t, struct ns_inode *i, const struct ns_name *at,
		 struct ns_time now, const struct ns_free_ops *fo)
{
	struct ns_trash e = {.tr_ino = i->i_ino,
			     .tr_parent = at->nm_dir,
			     .tr_hash =
				     ns_name_hash(ns->n_super.su_dir_key, at->nm_name, at->nm_len),
			     .tr_removed = (uint64_t)now.t_sec * NS_TRASH_SECOND + now.t_nsec,
			     .tr_expires = (uint64_t)now.t_sec + fo->f_keep_s,
			     .tr_uid = fo->f_uid,
			     .tr_type = i->i_type,
			     .tr_name = at->nm_name,
			     .tr_len = at->nm_len};
	uint8_t k[NS_KEY_INODE], buf[NS_INODE_VAL_MAX];
	int err;

	i->i_parent = at->nm_dir;
	if (i->i_type == NS_REG) {
		e.tr_bytes = i->i_used ? i->i_used : i->i_size;
		err = ns_inode_put(t, i);
		if (!err && fo->f_keep_open(fo->f_arg, i->i_ino))
			err = kv_put(t, ns_key_ino(k, NS_K_ORPHAN, i->i_ino), ns_slice("\x01", 1));
		return err ? err : ns_trash_entry_put(t, &e, i);
	}
	e.tr_inode = ns_slice(buf, ns_inode_encode(i, buf));
	err = kv_del(t, ns_key_ino(k, NS_K_INODE, i->i_ino));
	if (!err)
		err = ns_inode_freed(ns, t);
	return err ? err : ns_trash_entry_put(t, &e, i);
}

/* ---- out ---- */

static int entry_del(struct kv_txn *t, const struct ns_trash *at)
{
	uint8_t k[NS_KEY_TRASH_MAX];
	struct ns_trash e = *at; /* its slices end with the first write */
	struct ns_sum own;
	uint32_t uid;
	int err = ns_trash_counts(t, &e, &uid, &own);

	if (err)
		return err;
	err = kv_del(t, entry_key(k, &e));
	if (!err)
		err = kv_del(t, trash_key(k, OF_EXPIRY, e.tr_expires, e.tr_ino));
	if (!err || err == -ENOENT) /* its place in that order was damaged, and set aside */
		err = kv_del(t, trash_key(k, OF_PLACE, e.tr_ino, 0));
	return err ? err : sums_change(t, &e, uid, &own, false);
}

/* Was something that is in the trash in this directory? A damaged entry counts. */
static int has_entries(struct kv_txn *t, uint64_t dir)
{
	uint8_t k[NS_KEY_TRASH_MAX];
	struct kv_slice prefix = ns_slice(trash_key(k, OF_ENTRY, dir, 0).s_data, 10), key, val;
	struct kv_scan sc;
	int rc = kv_scan_begin(t, prefix, prefix, &sc);

	if (rc)
		return rc;
	rc = kv_scan_next(&sc, &key, &val);
	kv_scan_end(&sc);
	return rc;
}

int ns_trash_drop(struct kv_txn *t, uint64_t ino)
{
	uint8_t k[NS_KEY_INODE];
	struct ns_inode i = {.i_has_xattrs = false};
	struct ns_trash e;
	uint8_t type;
	int err = ns_trash_get(t, ino, &e);

	if (!err && e.tr_type == NS_DIR)
		err = has_entries(t, ino);
	if (err)
		return err > 0 ? -ENOTEMPTY : err;
	type = e.tr_type;
	if (type != NS_REG && ns_inode_decode(e.tr_inode, ino, &i))
		return trash_damaged(ino);
	err = entry_del(t, &e);
	if (err)
		return err;
	if (type == NS_REG)
		return kv_put(t, ns_key_ino(k, NS_K_ORPHAN, ino), ns_slice("\x01", 1));
	return i.i_has_xattrs ? ns_xattrs_del(t, ino) : 0;
}

int ns_trash_later(struct kv_txn *t, uint64_t ino, uint64_t expires)
{
	uint8_t k[NS_KEY_TRASH_MAX], buf[NS_TRASH_VAL_MAX];
	struct ns_trash e;
	uint64_t was;
	size_t len;
	int err = ns_trash_get(t, ino, &e);

	if (err)
		return err;
	was = e.tr_expires;
	e.tr_expires = expires;
	len = ns_trash_encode(&e, buf);
	err = kv_del(t, trash_key(k, OF_EXPIRY, was, ino));
	if (!err || err == -ENOENT)
		err = kv_put(t, entry_key(k, &e), ns_slice(buf, len));
	return err ? err : expiry_put(t, expires, ino);
}

const uint8_t *ns_trash_aside_kind(struct kv_slice key)
{
	const uint8_t *k = key.s_data;

	return key.s_len > 2 && k[1] == OF_ASIDE ? k + 2 : NULL;
}

/* 1: the row was there, and now has a key under which nothing looks for it. */
static int ns_trash_row_aside(struct kv_txn *t, struct kv_slice key)
{
	uint8_t k[KV_KEY_MAX], *copy;
	struct kv_slice val;
	int err = key.s_len < 2 || key.s_len >= sizeof(k) ? -EINVAL : kv_get(t, key, &val);

	if (err)
		return err == -ENOENT ? 0 : err;
	copy = malloc(val.s_len ? val.s_len : 1);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, val.s_data, val.s_len);
	k[0] = NS_K_TRASH;
	k[1] = OF_ASIDE;
	memcpy(k + 2, (const uint8_t *)key.s_data + 1, key.s_len - 1);
	/* A full store has room for the row only where another one went. */
	err = kv_del(t, key);
	if (!err)
		err = kv_put(t, ns_slice(k, key.s_len + 1), ns_slice(copy, val.s_len));
	free(copy);
	return err ? err : 1;
}

int ns_trash_aside(struct kv_txn *t, struct kv_slice key, uint64_t ino)
{
	uint8_t k[NS_KEY_TRASH_MAX], from[NS_KEY_TRASH_MAX];
	struct ns_trash e = {.tr_ino = ino}, got;
	struct kv_slice val, entry;
	int rc = key.s_len ? ns_trash_row_aside(t, key) : 1;

	if (rc <= 0 || !ino)
		return rc;
	/* What led to the row, or what it leads to. The place stays: the inode is still kept. */
	rc = kv_get(t, trash_key(k, OF_PLACE, ino, 0), &val);
	if (rc || ns_trash_place_decode(val, &e))
		return rc && rc != -ENOENT ? rc : 1;
	entry = entry_key(from, &e);
	rc = kv_get(t, entry, &val);
	if (rc)
		return rc == -ENOENT ? 1 : rc;
	if (!ns_trash_decode(entry, val, &got)) {
		if (key.s_len && ((const uint8_t *)key.s_data)[1] == OF_EXPIRY)
			return 1; /* it is whole, and only its time was wrong */
		rc = kv_del(t, trash_key(k, OF_EXPIRY, got.tr_expires, ino));
		if (rc && rc != -ENOENT)
			return rc;
	}
	rc = ns_trash_row_aside(t, entry);
	return rc < 0 ? rc : 1;
}

/* What a restore does: the entry, and the directories of its path that come out of the trash with
 * it, the one nearest to the root last. */
struct plan {
	uint64_t pl_up[NS_TRASH_UP], pl_base;
	unsigned pl_n;
};

/* Finds the directory that is there (pl_base), and those below it that are in the trash. */
static int plan_up(struct ns *ns, struct kv_txn *t, uint64_t dir, struct plan *p)
{
	struct ns_inode i;
	struct ns_trash e;
	int err;

	for (p->pl_n = 0; p->pl_n < NS_TRASH_UP;) {
		err = ns_get(ns, t, dir, &i);
		if (!err) {
			p->pl_base = dir;
			return i.i_type == NS_DIR ? 0 : -EIO;
		}
		if (err == -ESTALE)
			err = ns_trash_get(t, dir, &e);
		if (err)
			return err == -ENOENT ? -ESTALE : err;
		p->pl_up[p->pl_n++] = dir;
		dir = e.tr_parent;
	}
	return -ELOOP;
}

/* Goes down again: where a directory has the name now, it is that one, and the one in the trash
 * stays there. */
static int plan_down(struct ns *ns, struct kv_txn *t, struct plan *p)
{
	while (p->pl_n) {
		struct ns_trash e;
		uint64_t ino;
		uint8_t type;
		int err = ns_trash_get(t, p->pl_up[p->pl_n - 1], &e);

		if (err)
			return err;
		err = ns_lookup(ns, t, p->pl_base, e.tr_name, e.tr_len, &ino, &type);
		if (err == -ENOENT)
			return ns_dir_room(ns, t, p->pl_base, e.tr_name, e.tr_len);
		if (!err && type != NS_DIR)
			err = -ENOTDIR;
		if (err)
			return err;
		p->pl_base = ino;
		p->pl_n--;
	}
	return 0;
}

/* Holds what is no regular file, from the entry. */
static int inode_hold(const struct ns_trash *e, struct ns_inode_held *h)
{
	if (ns_inode_decode(e->tr_inode, e->tr_ino, &h->h_i))
		return trash_damaged(e->tr_ino);
	ns_inode_hold(h);
	return 0;
}

/* Takes one entry out, and puts its name into a directory that is there. */
static int entry_attach(struct ns *ns, struct kv_txn *t, uint64_t ino, uint64_t dir,
			const char *name, size_t len, struct ns_time now)
{
	uint8_t k[NS_KEY_INODE], own[NS_NAME_MAX];
	struct ns_inode_held h;
	struct ns_trash e;
	int err = ns_trash_get(t, ino, &e);

	if (err)
		return err;
	if (!name) {
		len = e.tr_len;
		name = memcpy(own, e.tr_name, len);
	}
	err = e.tr_type == NS_REG ? ns_inode_copy(ns, t, ino, &h) : inode_hold(&e, &h);
	if (err)
		return err;
	h.h_i.i_nlink = h.h_i.i_type == NS_DIR ? 2 : 1;
	h.h_i.i_parent = dir;
	h.h_i.i_ctime = now;
	h.h_i.i_change++;
	err = entry_del(t, &e);
	if (!err && h.h_i.i_type == NS_REG && ns_is_orphan(t, ino))
		err = kv_del(t, ns_key_ino(k, NS_K_ORPHAN, ino));
	if (!err)
		err = ns_inode_put(t, &h.h_i);
	if (err)
		return err;
	if (h.h_i.i_type != NS_REG)
		atomic_fetch_add(&ns->n_inodes, 1);
	return ns_dir_attach(ns, t, &(struct ns_name){dir, name, len}, &h.h_i, now);
}

int ns_trash_restore(struct ns *ns, struct kv_txn *t, uint64_t ino, uint64_t dir, const char *name,
		     size_t len, struct ns_time now, struct ns_trash_back *back)
{
	struct plan p = {.pl_base = dir};
	struct ns_inode i;
	struct ns_trash e;
	int err = ns_trash_get(t, ino, &e);

	/* What is refused is refused before the first write. */
	if (!err && e.tr_type == NS_REG && ns_get(ns, t, ino, &i))
		err = -EIO;
	if (!err && dir)
		err = ns_name_check(name, len);
	if (!err && !dir)
		err = plan_up(ns, t, e.tr_parent, &p);
	if (!err && !dir)
		err = plan_down(ns, t, &p);
	/* A directory that comes out of the trash is empty. */
	if (!err && !p.pl_n)
		err = ns_dir_room(ns, t, p.pl_base, dir ? name : e.tr_name, dir ? len : e.tr_len);
	back->tb_out = p.pl_n + 1;
	while (!err && p.pl_n) {
		uint64_t up = p.pl_up[--p.pl_n];

		err = entry_attach(ns, t, up, p.pl_base, NULL, 0, now);
		p.pl_base = up;
	}
	back->tb_into = p.pl_base;
	return err ? err : entry_attach(ns, t, ino, p.pl_base, dir ? name : NULL, len, now);
}

/* ---- lists and paths ---- */

/* Behind which key a scan goes on. */
static struct kv_slice ns_trash_behind(uint8_t *buf, struct kv_slice key)
{
	if (key.s_data != buf)
		memcpy(buf, key.s_data, key.s_len);
	buf[key.s_len] = 0;
	return ns_slice(buf, key.s_len + 1);
}

/* What a damaged row still says about itself. */
static void damaged_entry(struct kv_slice key, struct ns_trash *e)
{
	const uint8_t *k = key.s_data;

	*e = (struct ns_trash){.tr_damaged = true, .tr_key = key};
	if (k[1] == OF_ENTRY && key.s_len == NS_KEY_TRASH_MAX) {
		e->tr_parent = ns_get64(k + 2);
		e->tr_hash = ns_get64(k + 10);
		e->tr_removed = ~ns_get64(k + 18);
		e->tr_ino = ns_get64(k + 26);
	} else if (k[1] == OF_EXPIRY && key.s_len == 18) {
		e->tr_expires = ns_get64(k + 2);
		e->tr_ino = ns_get64(k + 10);
	}
}

static int trash_scan(struct kv_txn *t, struct kv_slice prefix, struct kv_slice from,
		      int (*fn)(void *arg, const struct ns_trash *e), void *arg)
{
	uint8_t of = ((const uint8_t *)prefix.s_data)[1];
	struct kv_slice key, val;
	struct ns_trash e;
	struct kv_scan sc;
	int rc = kv_scan_begin(t, prefix, from, &sc);

	if (rc)
		return rc;
	while ((rc = kv_scan_next(&sc, &key, &val)) > 0) {
		if (of == OF_ENTRY)
			rc = ns_trash_decode(key, val, &e);
		else if (key.s_len == 18)
			rc = ns_trash_get(t, ns_get64((const uint8_t *)key.s_data + 10), &e);
		else
			rc = -EIO;
		if (!rc && of == OF_EXPIRY &&
		    e.tr_expires != ns_get64((const uint8_t *)key.s_data + 2))
			rc = -EIO; /* another row has its place */
		if (rc == -EIO || rc == -ENOENT) {
			damaged_entry(key, &e);
			rc = 0;
		}
		if (!rc)
			rc = fn(arg, &e);
		if (rc)
			break;
	}
	kv_scan_end(&sc);
	return rc < 0 ? rc : 0;
}

int ns_trash_each(struct kv_txn *t, const struct ns_trash_at *at,
		  int (*fn)(void *arg, const struct ns_trash *e), void *arg)
{
	static const uint8_t prefix[2] = {NS_K_TRASH, OF_ENTRY};
	uint8_t k[NS_KEY_TRASH_MAX + 1];
	struct ns_trash e = {.tr_parent = at->ta_dir,
			     .tr_hash = at->ta_hash,
			     .tr_removed = at->ta_removed,
			     .tr_ino = at->ta_ino};
	struct kv_slice from =
		at->ta_dir ? ns_trash_behind(k, entry_key(k, &e)) : ns_slice(prefix, 2);

	return trash_scan(t, ns_slice(prefix, 2), from, fn, arg);
}

int ns_trash_by_expiry(struct kv_txn *t, uint64_t expires, uint64_t ino,
		       int (*fn)(void *arg, const struct ns_trash *e), void *arg)
{
	static const uint8_t prefix[2] = {NS_K_TRASH, OF_EXPIRY};
	uint8_t k[NS_KEY_TRASH_MAX + 1];
	struct kv_slice from = expires ? ns_trash_behind(k, trash_key(k, OF_EXPIRY, expires, ino))
				       : ns_slice(prefix, 2);

	return trash_scan(t, ns_slice(prefix, 2), from, fn, arg);
}

struct named {
	uint64_t nd_ino;
	const char *nd_name;
	size_t nd_len;
};

static int named_one(void *arg, const struct ns_trash *e)
{
	struct named *n = arg;

	if (e->tr_damaged || e->tr_len != n->nd_len || memcmp(e->tr_name, n->nd_name, n->nd_len))
		return 0; /* another name of the same hash, so rarely that it costs nothing */
	n->nd_ino = e->tr_ino;
	return 1;
}

int ns_trash_newest(struct ns *ns, struct kv_txn *t, uint64_t dir, const char *name, size_t len,
		    uint64_t *ino)
{
	struct named n = {.nd_name = name, .nd_len = len};
	uint8_t k[NS_KEY_TRASH_MAX];
	struct kv_slice prefix =
		trash_key(k, OF_ENTRY, dir, ns_name_hash(ns->n_super.su_dir_key, name, len));
	int err = trash_scan(t, prefix, prefix, named_one, &n);

	*ino = n.nd_ino;
	return err ? err : n.nd_ino ? 0 : -ENOENT;
}

int ns_trash_path(struct ns *ns, struct kv_txn *t, const char *path, struct ns_trash_top *top)
{
	uint64_t *ino = &top->tp_ino;

	*top = (struct ns_trash_top){.tp_ino = NS_ROOT_INO};
	for (path += strspn(path, "/"); *path; path += strspn(path, "/")) {
		size_t len = strcspn(path, "/");
		bool last = !path[len + strspn(path + len, "/")];
		uint64_t dir = *ino;
		uint8_t type;
		int err = ns_name_check(path, len);

		if (!err)
			err = ns_lookup(ns, t, dir, path, len, ino, &type);
		if ((err == -ENOENT || err == -ESTALE) || (!err && type != NS_DIR && last))
			err = ns_trash_newest(ns, t, dir, path, len, ino);
		if (err)
			return err;
		*top = (struct ns_trash_top){*ino, dir, path, len};
		path += len;
	}
	return 0;
}

int ns_trash_below(struct ns *ns, struct kv_txn *t, uint64_t ino, const struct ns_trash_top *top)
{
	struct ns_inode i;
	struct ns_trash e;
	int err;

	if (top->tp_ino == NS_ROOT_INO)
		return 1;
	for (unsigned up = 0; up < NS_POLICY_UP && ino != NS_ROOT_INO; up++) {
		if (ino == top->tp_ino)
			return 1;
		err = ns_get(ns, t, ino, &i);
		if (!err && i.i_nlink) {
			ino = i.i_parent;
			continue;
		}
		if (!err || err == -ESTALE)
			err = ns_trash_get(t, ino, &e);
		if (err)
			return err == -ENOENT ? 0 : err; /* a directory above it is gone */
		if (e.tr_parent == top->tp_dir && e.tr_len == top->tp_len &&
		    !memcmp(e.tr_name, top->tp_name, top->tp_len))
			return 1;
		ino = e.tr_parent;
	}
	return 0;
}
