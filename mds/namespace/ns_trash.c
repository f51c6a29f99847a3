/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ns_trash.c - the trash's rows, and what goes in and out (ns_trash.h).
 *
 * Rows, all with the first byte NS_K_TRASH:
 *	0				how much there is
 *	1, parent (8), hash (8), inode (8)	an entry; hash: of the name
 *	2, expiry (8), inode (8)		the order of expiry
 *	3, inode (8)				where the entry is: parent and hash
 *	4, user (4)				what of a user's there is (ns_sum.h)
 *
 * So a directory's entries lie together, and in it those of one name.
 */
#include "mds/namespace/keys.h"
#include "mds/namespace/ns_sum_rec.h"
#include "mds/namespace/ns_trash.h"
#include "base/log.h"
#include <errno.h>

enum { OF_SUMS = 0, OF_ENTRY = 1, OF_EXPIRY = 2, OF_PLACE = 3, OF_USER = 4 };

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

static struct kv_slice entry_key(uint8_t *buf, uint64_t parent, uint64_t hash, uint64_t ino)
{
	trash_key(buf, OF_ENTRY, parent, hash);
	ns_put64(buf + 18, ino);
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

static size_t trash_encode(const struct ns_trash *e, uint8_t buf[NS_TRASH_VAL_MAX])
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
				 .tr_ino = ns_get64(k + 18),
				 .tr_bytes = le64toh(r.t_bytes),
				 .tr_removed = le64toh(r.t_removed),
				 .tr_expires = le64toh(r.t_expires),
				 .tr_uid = le32toh(r.t_uid),
				 .tr_type = r.t_type,
				 .tr_name = (const char *)v + sizeof(r),
				 .tr_len = r.t_len,
				 .tr_inode = ns_slice(v + sizeof(r) + r.t_len, rest)};
	if (ns_name_check(out->tr_name, out->tr_len) || !out->tr_ino || !out->tr_parent)
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

static int place_decode(struct kv_slice val, uint64_t *parent, uint64_t *hash)
{
	struct ns_trash_at_rec r;

	if (val.s_len != sizeof(r))
		return -EIO;
	memcpy(&r, val.s_data, sizeof(r));
	*parent = le64toh(r.ta_parent);
	*hash = le64toh(r.ta_hash);
	return r.ta_version == NS_VERSION && *parent ? 0 : -EIO;
}

int ns_trash_get(struct kv_txn *t, uint64_t ino, struct ns_trash *out)
{
	uint8_t k[NS_KEY_TRASH_MAX];
	uint64_t parent, hash;
	struct kv_slice key, val;
	int err = kv_get(t, trash_key(k, OF_PLACE, ino, 0), &val);

	if (err)
		return err;
	if (place_decode(val, &parent, &hash))
		return trash_damaged(ino);
	key = entry_key(k, parent, hash, ino);
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
	uint8_t prefix[2] = {NS_K_TRASH, OF_USER};
	struct kv_slice p = ns_slice(prefix, 2), key, val;
	struct kv_scan sc;
	int rc = kv_scan_begin(t, p, p, &sc);

	if (rc)
		return rc;
	while ((rc = kv_scan_next(&sc, &key, &val)) > 0) {
		struct ns_sum s;
		uint32_t uid;

		rc = key.s_len == NS_KEY_TRASH_USER ? ns_counted_decode(val, &s) : -EIO;
		if (!rc) {
			memcpy(&uid, (const uint8_t *)key.s_data + 2, sizeof(uid));
			rc = fn(arg, be32toh(uid), &s);
		}
		if (rc)
			break;
	}
	kv_scan_end(&sc);
	return rc < 0 ? rc : 0;
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

	if (err)
		return err;
	s.ts_entries += more ? 1 : -UINT64_C(1);
	s.ts_bytes += more ? e->tr_bytes : -e->tr_bytes;
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

static int entry_put(struct kv_txn *t, const struct ns_trash *e, const struct ns_inode *i)
{
	uint8_t k[NS_KEY_TRASH_MAX], buf[NS_TRASH_VAL_MAX];
	struct ns_trash_at_rec r = {.ta_version = NS_VERSION,
				    .ta_parent = htole64(e->tr_parent),
				    .ta_hash = htole64(e->tr_hash)};
	struct ns_sum own = ns_sum_of(i);
	int err = kv_put(t, entry_key(k, e->tr_parent, e->tr_hash, e->tr_ino),
			 ns_slice(buf, trash_encode(e, buf)));

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
		return err ? err : entry_put(t, &e, i);
	}
	e.tr_inode = ns_slice(buf, ns_inode_encode(i, buf));
	err = kv_del(t, ns_key_ino(k, NS_K_INODE, i->i_ino));
	if (!err)
		err = ns_inode_freed(ns, t);
	return err ? err : entry_put(t, &e, i);
}

/* ---- out ---- */

static int entry_del(struct kv_txn *t, const struct ns_trash *at)
{
	uint8_t k[NS_KEY_TRASH_MAX];
	struct ns_trash e = *at; /* its slices end with the first write */
	struct ns_sum own;
	uint32_t uid;
	int err = ns_trash_counts(t, &e, &uid, &own);

	if (!err)
		err = kv_del(t, entry_key(k, e.tr_parent, e.tr_hash, e.tr_ino));
	if (!err)
		err = kv_del(t, trash_key(k, OF_EXPIRY, e.tr_expires, e.tr_ino));
	if (!err)
		err = kv_del(t, trash_key(k, OF_PLACE, e.tr_ino, 0));
	return err ? err : sums_change(t, &e, uid, &own, false);
}

static int found_one(void *arg, const struct ns_trash *e)
{
	*(uint64_t *)arg = e->tr_parent;
	return 1;
}

/* Was something that is in the trash in this directory? */
static int has_entries(struct kv_txn *t, uint64_t dir)
{
	uint64_t parent = 0;
	int err = ns_trash_each(t, dir, 0, 0, found_one, &parent);

	return err ? err : parent == dir;
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
	len = trash_encode(&e, buf);
	err = kv_del(t, trash_key(k, OF_EXPIRY, was, ino));
	if (!err)
		err = kv_put(t, entry_key(k, e.tr_parent, e.tr_hash, ino), ns_slice(buf, len));
	return err ? err : expiry_put(t, expires, ino);
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
		     size_t len, struct ns_time now, uint64_t *into)
{
	struct plan p = {.pl_base = dir};
	struct ns_trash e;
	int err = ns_trash_get(t, ino, &e);

	if (!err && dir)
		err = ns_name_check(name, len);
	if (!err && !dir)
		err = plan_up(ns, t, e.tr_parent, &p);
	if (!err && !dir)
		err = plan_down(ns, t, &p);
	/* A directory that comes out of the trash is empty. */
	if (!err && !p.pl_n)
		err = ns_dir_room(ns, t, p.pl_base, dir ? name : e.tr_name, dir ? len : e.tr_len);
	while (!err && p.pl_n) {
		uint64_t up = p.pl_up[--p.pl_n];

		err = entry_attach(ns, t, up, p.pl_base, NULL, 0, now);
		p.pl_base = up;
	}
	*into = p.pl_base;
	return err ? err : entry_attach(ns, t, ino, p.pl_base, dir ? name : NULL, len, now);
}

/* ---- lists and paths ---- */

struct walk {
	int (*wk_fn)(void *arg, const struct ns_trash *e);
	void *wk_arg;
};

static int trash_scan(struct kv_txn *t, uint8_t of, struct kv_slice from, const struct walk *w)
{
	uint8_t prefix[2] = {NS_K_TRASH, of};
	struct kv_slice key, val;
	struct ns_trash e;
	struct kv_scan sc;
	int rc = kv_scan_begin(t, ns_slice(prefix, 2), from, &sc);

	if (rc)
		return rc;
	while ((rc = kv_scan_next(&sc, &key, &val)) > 0) {
		if (of == OF_ENTRY)
			rc = ns_trash_decode(key, val, &e);
		else if (key.s_len == 18)
			rc = ns_trash_get(t, ns_get64((const uint8_t *)key.s_data + 10), &e);
		else
			rc = -EIO;
		if (!rc)
			rc = w->wk_fn(w->wk_arg, &e);
		if (rc)
			break;
	}
	kv_scan_end(&sc);
	return rc == -ENOENT ? -EIO : rc < 0 ? rc : 0;
}

int ns_trash_each(struct kv_txn *t, uint64_t parent, uint64_t hash, uint64_t ino,
		  int (*fn)(void *arg, const struct ns_trash *e), void *arg)
{
	uint8_t k[NS_KEY_TRASH_MAX];

	return trash_scan(t, OF_ENTRY, entry_key(k, parent, hash, ino + (ino != UINT64_MAX)),
			  &(struct walk){fn, arg});
}

int ns_trash_by_expiry(struct kv_txn *t, uint64_t expires, uint64_t ino,
		       int (*fn)(void *arg, const struct ns_trash *e), void *arg)
{
	uint8_t k[NS_KEY_TRASH_MAX];

	return trash_scan(t, OF_EXPIRY, trash_key(k, OF_EXPIRY, expires, ino + (ino != UINT64_MAX)),
			  &(struct walk){fn, arg});
}

struct named {
	uint64_t nd_dir, nd_hash, nd_ino, nd_removed;
	const char *nd_name;
	size_t nd_len;
};

static int named_one(void *arg, const struct ns_trash *e)
{
	struct named *n = arg;

	if (e->tr_parent != n->nd_dir || e->tr_hash != n->nd_hash)
		return 1;
	/* Of those of one moment the one with the higher number. */
	if (e->tr_len == n->nd_len && !memcmp(e->tr_name, n->nd_name, n->nd_len) &&
	    e->tr_removed >= n->nd_removed) {
		n->nd_ino = e->tr_ino;
		n->nd_removed = e->tr_removed;
	}
	return 0;
}

int ns_trash_newest(struct ns *ns, struct kv_txn *t, uint64_t dir, const char *name, size_t len,
		    uint64_t *ino)
{
	struct named n = {.nd_dir = dir,
			  .nd_hash = ns_name_hash(ns->n_super.su_dir_key, name, len),
			  .nd_name = name,
			  .nd_len = len};
	int err = ns_trash_each(t, dir, n.nd_hash, 0, named_one, &n);

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
