/* SPDX-License-Identifier: Apache-2.0 */
/* ns_sum.c - keeps the sums of directories and users, mutation by mutation, and pushes them up. */
#include "mds/namespace/ns_sum.h"
#include "base/clock.h"
#include "base/log.h"
#include "mds/namespace/ns_sum_rec.h"
#include <errno.h>
#include <urcu/compiler.h>

#define FOLD_ROWS    128u /* rows that one mutation takes */
#define FOLD_MOST    512u /* directories in its list, and their parents */
#define FOLD_STEPS   512u /* in one transaction; what is left is the next round's */
#define FOLD_EVERY   10000u
#define FOLD_REST_MS 10000u /* after a push that failed */
#define FOLD_SOON    4096   /* rows; a question about sums reads all of them */

static unsigned (*sum_copies)(struct kv_slice map);

void ns_sum_set_copies(unsigned (*copies)(struct kv_slice map))
{
	sum_copies = copies;
}

struct ns_sum ns_sum_of(const struct ns_inode *i)
{
	struct ns_sum s = {.sum_dirs = i->i_type == NS_DIR, .sum_files = i->i_type != NS_DIR};

	if (i->i_type != NS_REG)
		return s;
	s.sum_bytes = i->i_size;
	s.sum_stored = i->i_used;
	if (i->i_used && i->i_blob.s_len && sum_copies)
		s.sum_stored *= sum_copies(i->i_blob);
	return s;
}

/* ---- rows ---- */

static struct kv_slice user_key(uint8_t k[NS_KEY_USER], uint32_t uid)
{
	uint32_t v = htobe32(uid);

	k[0] = NS_K_USER;
	memcpy(k + 1, &v, sizeof(v));
	return ns_slice(k, NS_KEY_USER);
}

static int counted_put(struct kv_txn *t, struct kv_slice key, const struct ns_sum_rec *sum)
{
	struct ns_counted_rec r = {.cn_version = NS_VERSION, .cn_sum = *sum};

	return kv_put(t, key, ns_slice(&r, sizeof(r)));
}

int ns_counted_decode(struct kv_slice val, struct ns_sum *out)
{
	struct ns_counted_rec r;

	if (val.s_len != sizeof(r))
		return -EIO;
	memcpy(&r, val.s_data, sizeof(r));
	*out = ns_sum_decode(&r.cn_sum);
	return r.cn_version == NS_VERSION ? 0 : -EIO;
}

int ns_user_put(struct kv_txn *t, uint32_t uid, const struct ns_sum *s)
{
	struct ns_sum_rec rec = ns_sum_encode(s);
	uint8_t k[NS_KEY_USER];
	int err;

	if (!ns_sum_zero(s))
		return counted_put(t, user_key(k, uid), &rec);
	err = kv_del(t, user_key(k, uid));
	return err == -ENOENT ? 0 : err;
}

static _Atomic uint64_t damage;

/*
 * A row of sums that is damaged must stop nothing: mutations meet it when they have written
 * already, and an error then fails all that the batch has. A user's row stays as it is, so that
 * answers still say that what it counts is not known.
 */
void ns_sum_damaged(const char *what, uint64_t of)
{
	static _Atomic uint64_t last;

	atomic_fetch_add_explicit(&damage, 1, memory_order_relaxed);
	if (log_due(&last))
		log_error("ns: the row of %s (%lu) is damaged", what, (unsigned long)of);
}

uint64_t ns_sum_damage(void)
{
	return atomic_load_explicit(&damage, memory_order_relaxed);
}

static int look_unpushed(void *arg, uint64_t ino, struct kv_slice val)
{
	struct ns_sum s;

	++*(int64_t *)arg;
	if (ns_counted_decode(val, &s))
		ns_sum_damaged("what a directory's parent has counted", ino);
	return 0;
}

static int look_user(void *arg, uint32_t uid, const struct ns_sum *s)
{
	(void)arg;
	if (!s)
		ns_sum_damaged("what a user has", uid);
	return 0;
}

int ns_sum_look(struct kv_txn *t, int64_t *unpushed)
{
	int err = ns_unpushed_rows(t, 0, look_unpushed, unpushed);

	if (!err)
		err = ns_user_rows(t, look_user, NULL);
	return err ? err : ns_trash_users(t, look_user, NULL);
}

int ns_user_rows_of(struct kv_txn *t, struct kv_slice prefix,
		    int (*fn)(void *arg, uint32_t uid, const struct ns_sum *s), void *arg)
{
	struct kv_slice key, val;
	struct kv_scan sc;
	int rc = kv_scan_begin(t, prefix, prefix, &sc);

	if (rc)
		return rc;
	while ((rc = kv_scan_next(&sc, &key, &val)) > 0) {
		struct ns_sum s;
		uint32_t uid;

		if (key.s_len != prefix.s_len + sizeof(uid))
			continue; /* the checker reports it */
		memcpy(&uid, (const uint8_t *)key.s_data + prefix.s_len, sizeof(uid));
		rc = fn(arg, be32toh(uid), ns_counted_decode(val, &s) ? NULL : &s);
		if (rc)
			break;
	}
	kv_scan_end(&sc);
	return rc < 0 ? rc : 0;
}

int ns_user_rows(struct kv_txn *t, int (*fn)(void *arg, uint32_t uid, const struct ns_sum *s),
		 void *arg)
{
	const uint8_t prefix = NS_K_USER;

	return ns_user_rows_of(t, ns_slice(&prefix, 1), fn, arg);
}

static int user_row_add(struct kv_txn *t, uint32_t uid, const struct ns_sum *delta)
{
	struct ns_sum s = {0};
	uint8_t k[NS_KEY_USER];
	struct kv_slice val;
	int err = kv_get(t, user_key(k, uid), &val);

	if (!err)
		err = ns_counted_decode(val, &s);
	if (err == -EIO) {
		ns_sum_damaged("what a user has", uid);
		return 0;
	}
	if (err && err != -ENOENT)
		return err;
	ns_sum_plus(&s, delta);
	return ns_user_put(t, uid, &s);
}

static int link_get(struct kv_txn *t, uint64_t ino, uint64_t dir, uint32_t *names)
{
	uint8_t k[NS_KEY_LINK];
	struct kv_slice val;
	int err = kv_get(t, ns_key_link(k, ino, dir), &val);

	*names = 0;
	if (err)
		return err == -ENOENT ? 0 : err;
	if (ns_link_decode(val, names)) {
		ns_sum_damaged("further names of a file", ino);
		*names = 0;
	}
	return 0;
}

int ns_link_decode(struct kv_slice val, uint32_t *names)
{
	struct ns_link_rec r;

	if (val.s_len != sizeof(r))
		return -EIO;
	memcpy(&r, val.s_data, sizeof(r));
	*names = le32toh(r.li_names);
	return r.li_version == NS_VERSION && *names ? 0 : -EIO;
}

int ns_link_put(struct kv_txn *t, uint64_t ino, uint64_t dir, uint32_t names)
{
	struct ns_link_rec r = {.li_version = NS_VERSION, .li_names = htole32(names)};
	uint8_t k[NS_KEY_LINK];

	return names ? kv_put(t, ns_key_link(k, ino, dir), ns_slice(&r, sizeof(r)))
		     : kv_del(t, ns_key_link(k, ino, dir));
}

/* ---- what waits in a directory's record ---- */

static void sums_get(const struct ns_inode *dir, struct ns_sums_rec *r)
{
	*r = (struct ns_sums_rec){.sm_version = NS_VERSION};
	if (dir->i_sums.s_len)
		memcpy(r, dir->i_sums.s_data, sizeof(*r));
}

static void sums_set(struct ns_inode_held *dir, const struct ns_sums_rec *r)
{
	memcpy(dir->h_sums, r, sizeof(*r));
	dir->h_i.i_sums =
		ns_slice(dir->h_sums, sizeof(*r) + r->sm_users * sizeof(struct ns_sum_user_rec));
}

struct ns_sum ns_sums_total(const struct ns_inode *dir)
{
	struct ns_sums_rec r;

	sums_get(dir, &r);
	return ns_sum_decode(&r.sm_total);
}

bool ns_sums_unpushed(const struct ns_inode *dir)
{
	struct ns_sums_rec r;

	sums_get(dir, &r);
	return r.sm_unpushed;
}

unsigned ns_sums_users(const struct ns_inode *dir, struct ns_sum_user out[NS_SUM_USERS])
{
	const uint8_t *at = (const uint8_t *)dir->i_sums.s_data + sizeof(struct ns_sums_rec);
	struct ns_sum_user_rec u;
	struct ns_sums_rec r;

	sums_get(dir, &r);
	for (unsigned n = 0; n < r.sm_users; n++) {
		memcpy(&u, at + n * sizeof(u), sizeof(u));
		out[n] = (struct ns_sum_user){.us_uid = le32toh(u.ur_uid),
					      .us_sum = ns_sum_decode(&u.ur_sum)};
	}
	return r.sm_users;
}

/* Adds to a user's part in the record; where there is no room, to the user's row at once. */
static int sums_user_add(struct kv_txn *t, struct ns_inode_held *dir, struct ns_sums_rec *r,
			 uint32_t uid, const struct ns_sum *delta)
{
	uint8_t *at = dir->h_sums + sizeof(*r);
	struct ns_sum_user_rec u;
	struct ns_sum s;

	for (unsigned n = 0; n < r->sm_users; n++, at += sizeof(u)) {
		memcpy(&u, at, sizeof(u));
		if (le32toh(u.ur_uid) != uid)
			continue;
		s = ns_sum_decode(&u.ur_sum);
		ns_sum_plus(&s, delta);
		u.ur_sum = ns_sum_encode(&s);
		memcpy(at, &u, sizeof(u));
		return 0;
	}
	if (r->sm_users == NS_SUM_USERS)
		return user_row_add(t, uid, delta);
	u = (struct ns_sum_user_rec){.ur_uid = htole32(uid), .ur_sum = ns_sum_encode(delta)};
	memcpy(at, &u, sizeof(u));
	r->sm_users++;
	return 0;
}

/* Adds to the sum of a held directory, and to what a user has: both may be NULL. */
static int ns_sum_sums_add(struct ns *ns, struct kv_txn *t, struct ns_inode_held *dir,
			   const struct ns_sum *delta, uint32_t uid, const struct ns_sum *users)
{
	uint8_t k[NS_KEY_INODE];
	struct ns_sums_rec r;
	struct ns_sum s;
	int err = 0;

	sums_get(&dir->h_i, &r);
	if (!r.sm_unpushed) {
		err = counted_put(t, ns_key_ino(k, NS_K_UNPUSHED, dir->h_i.i_ino), &r.sm_total);
		r.sm_unpushed = 1;
		atomic_fetch_add_explicit(&ns->n_unpushed, 1, memory_order_relaxed);
	}
	if (delta) {
		s = ns_sum_decode(&r.sm_total);
		ns_sum_plus(&s, delta);
		r.sm_total = ns_sum_encode(&s);
	}
	if (!err && users)
		err = sums_user_add(t, dir, &r, uid, users);
	sums_set(dir, &r);
	return err;
}

/* What its parent has counted of a directory. */
int ns_sums_counted(struct kv_txn *t, const struct ns_inode *dir, struct ns_sum *out)
{
	uint8_t k[NS_KEY_INODE];
	struct kv_slice val;
	int err;

	if (!ns_sums_unpushed(dir)) {
		*out = ns_sums_total(dir);
		return 0;
	}
	err = kv_get(t, ns_key_ino(k, NS_K_UNPUSHED, dir->i_ino), &val);
	if (err)
		return err == -ENOENT ? -EIO : err;
	return ns_counted_decode(val, out);
}

/*
 * The row of what was counted of a directory is damaged, and that directory leaves its parent: what
 * the parent has too much cannot be known any more. A row of a directory that cannot be, which no
 * push takes away, says so from now on: the sums of all directories are unknown until they are
 * computed again (ns_sum_rebuild.c).
 */
static int sums_lost(struct ns *ns, struct kv_txn *t, uint64_t ino)
{
	uint8_t k[NS_KEY_INODE];
	struct kv_slice key = ns_key_ino(k, NS_K_UNPUSHED, NS_SUM_LOST), val;
	int err = kv_get(t, key, &val);

	ns_sum_damaged("what a directory's parent has counted", ino);
	if (err != -ENOENT)
		return err;
	atomic_fetch_add_explicit(&ns->n_unpushed, 1, memory_order_relaxed);
	return kv_put(t, key, ns_slice("", 1));
}

/* ---- mutations ---- */

static struct ns_sum negative(const struct ns_sum *s)
{
	struct ns_sum n = {0};

	ns_sum_minus(&n, s);
	return n;
}

int ns_sum_enter(struct ns *ns, struct kv_txn *t, struct ns_inode_held *dir,
		 const struct ns_inode *i)
{
	struct ns_sum s = ns_sum_of(i);

	return ns_sum_sums_add(ns, t, dir, &s, i->i_uid, &s);
}

/* A directory that goes is empty: what its parent has counted of it goes too, and the parts of
 * users that wait in it wait in its parent. */
static int leave_dir(struct ns *ns, struct kv_txn *t, struct ns_inode_held *dir,
		     const struct ns_inode *i)
{
	struct ns_sum_user users[NS_SUM_USERS];
	unsigned n = ns_sums_users(i, users);
	uint8_t k[NS_KEY_INODE];
	struct ns_sum counted;
	int err = ns_sums_counted(t, i, &counted);

	if (err == -EIO) {
		counted = ns_sums_total(i);
		err = sums_lost(ns, t, i->i_ino);
	}
	if (err || !ns_sums_unpushed(i))
		return err; /* pushed: the sum of an empty directory is zero */
	counted = negative(&counted);
	err = kv_del(t, ns_key_ino(k, NS_K_UNPUSHED, i->i_ino));
	if (err == -ENOENT)
		err = 0;
	atomic_fetch_sub_explicit(&ns->n_unpushed, 1, memory_order_relaxed);
	if (!err)
		err = ns_sum_sums_add(ns, t, dir, &counted, 0, NULL);
	while (!err && n--)
		if (!ns_sum_zero(&users[n].us_sum))
			err = ns_sum_sums_add(ns, t, dir, NULL, users[n].us_uid, &users[n].us_sum);
	return err;
}

int ns_sum_leave(struct ns *ns, struct kv_txn *t, struct ns_inode_held *dir,
		 const struct ns_inode *i)
{
	struct ns_sum s = ns_sum_of(i);
	int err = i->i_type == NS_DIR ? leave_dir(ns, t, dir, i) : 0;

	s = negative(&s);
	return err ? err : ns_sum_sums_add(ns, t, dir, &s, i->i_uid, &s);
}

int ns_sum_name(struct kv_txn *t, uint64_t ino, uint64_t dir)
{
	uint32_t names;
	int err = link_get(t, ino, dir, &names);

	return err ? err : ns_link_put(t, ino, dir, names + 1);
}

/* Adds to the sum of a directory that is not held. One that is missing is damage, which the checker
 * names; it must not stop users. */
static int sums_add_to(struct ns *ns, struct kv_txn *t, uint64_t ino, const struct ns_sum *delta,
		       uint32_t uid, const struct ns_sum *users)
{
	struct ns_inode_held dir;
	int err = ns_inode_copy_dir(ns, t, ino, &dir);

	if (err)
		return err == -ESTALE || err == -ENOTDIR || err == -EIO ? 0 : err;
	err = ns_sum_sums_add(ns, t, &dir, delta, uid, users);
	return err ? err : ns_inode_put(t, &dir.h_i);
}

/* Finds a directory that has a further name of the file; 0: none. */
static int link_any(struct kv_txn *t, uint64_t ino, uint64_t *dir, uint32_t *names)
{
	uint8_t k[NS_KEY_INODE];
	struct kv_slice prefix = ns_key_ino(k, NS_K_LINK, ino), key, val;
	struct kv_scan sc;
	int rc = kv_scan_begin(t, prefix, prefix, &sc);

	*dir = 0;
	if (rc)
		return rc;
	rc = kv_scan_next(&sc, &key, &val);
	if (rc > 0 && key.s_len == NS_KEY_LINK) {
		*dir = ns_get64((const uint8_t *)key.s_data + NS_KEY_INODE);
		rc = ns_link_decode(val, names);
	}
	kv_scan_end(&sc);
	return rc < 0 ? rc : 0;
}

int ns_sum_unname(struct ns *ns, struct kv_txn *t, struct ns_inode *i, struct ns_inode_held *dir,
		  struct ns_inode_held *other)
{
	struct ns_sum s = ns_sum_of(i), less = negative(&s);
	uint32_t names;
	uint64_t to;
	int err = link_get(t, i->i_ino, dir->h_i.i_ino, &names);

	if (err || names)
		return err ? err : ns_link_put(t, i->i_ino, dir->h_i.i_ino, names - 1);
	err = link_any(t, i->i_ino, &to, &names);
	if (err || !to)
		return err;
	err = ns_link_put(t, i->i_ino, to, names - 1);
	if (!err)
		err = ns_sum_sums_add(ns, t, dir, &less, 0, NULL);
	if (err)
		return err;
	i->i_parent = to;
	if (other && other->h_i.i_ino == to)
		return ns_sum_sums_add(ns, t, other, &s, 0, NULL);
	return sums_add_to(ns, t, to, &s, 0, NULL);
}

int ns_sum_move(struct ns *ns, struct kv_txn *t, struct ns_inode *i, struct ns_inode_held *from,
		struct ns_inode_held *to)
{
	struct ns_sum s = ns_sum_of(i), below, less;
	uint32_t names = 0;
	int err = 0;

	if (i->i_type == NS_DIR) {
		err = ns_sums_counted(t, i, &below);
		if (err == -EIO) {
			below = ns_sums_total(i);
			err = sums_lost(ns, t, i->i_ino);
		}
		if (!err)
			ns_sum_plus(&s, &below);
	} else if (i->i_nlink > 1) {
		err = link_get(t, i->i_ino, from->h_i.i_ino, &names);
	}
	if (!err && names) {
		err = ns_link_put(t, i->i_ino, from->h_i.i_ino, names - 1);
		return err ? err : ns_sum_name(t, i->i_ino, to->h_i.i_ino);
	}
	i->i_parent = to->h_i.i_ino;
	less = negative(&s);
	if (!err)
		err = ns_sum_sums_add(ns, t, from, &less, 0, NULL);
	return err ? err : ns_sum_sums_add(ns, t, to, &s, 0, NULL);
}

int ns_sum_changed(struct ns *ns, struct kv_txn *t, const struct ns_inode *i,
		   const struct ns_sum *was, uint32_t uid)
{
	struct ns_sum is = ns_sum_of(i), delta = is, less = negative(was);
	struct ns_inode_held dir;
	int err;

	if (i->i_ino == NS_ROOT_INO)
		return 0;
	if (!i->i_nlink)
		return ns_trash_changed(t, i, was, uid);
	ns_sum_minus(&delta, was);
	if (uid == i->i_uid)
		return ns_sum_zero(&delta) ? 0
					   : sums_add_to(ns, t, i->i_parent, &delta, uid, &delta);
	err = ns_inode_copy_dir(ns, t, i->i_parent, &dir);
	if (err)
		return err == -ESTALE || err == -ENOTDIR || err == -EIO ? 0 : err;
	err = ns_sum_sums_add(ns, t, &dir, &delta, uid, &less);
	if (!err)
		err = ns_sum_sums_add(ns, t, &dir, NULL, i->i_uid, &is);
	return err ? err : ns_inode_put(t, &dir.h_i);
}

/* ---- pushing ---- */

/* Directories to push, by number. The highest comes first: mostly a directory has a higher number
 * than its parent, so that the parent's turn comes after that of all below it. */
struct fold_list {
	uint64_t fl_ino[FOLD_MOST];
	unsigned fl_n;
};

static void fold_list_add(struct fold_list *l, uint64_t ino)
{
	unsigned at = l->fl_n;

	while (at && l->fl_ino[at - 1] >= ino)
		at--;
	if (l->fl_n == FOLD_MOST || (at < l->fl_n && l->fl_ino[at] == ino))
		return;
	memmove(&l->fl_ino[at + 1], &l->fl_ino[at], (l->fl_n - at) * sizeof(ino));
	l->fl_ino[at] = ino;
	l->fl_n++;
}

/* Adds what a directory has more than its parent counted, and marks the parent. */
static int push_to_parent(struct ns *ns, struct kv_txn *t, uint64_t parent,
			  const struct ns_sum *delta, struct fold_list *l)
{
	struct ns_inode_held up;
	int err = ns_inode_copy_dir(ns, t, parent, &up);

	if (err)
		return err == -ESTALE || err == -ENOTDIR || err == -EIO ? 0 : err;
	err = ns_sum_sums_add(ns, t, &up, delta, 0, NULL);
	if (!err)
		err = ns_inode_put(t, &up.h_i);
	fold_list_add(l, parent);
	return err;
}

/* A row of a directory that is missing or damaged stays: the checker names it. */
static int ns_sum_push_one(struct ns *ns, struct kv_txn *t, uint64_t ino, struct fold_list *l)
{
	struct ns_sum_user users[NS_SUM_USERS];
	struct ns_inode_held dir;
	struct ns_sum counted, delta;
	struct ns_sums_rec r;
	uint8_t k[NS_KEY_INODE];
	unsigned n;

	if (ns_inode_copy_dir(ns, t, ino, &dir) || !ns_sums_unpushed(&dir.h_i) ||
	    ns_sums_counted(t, &dir.h_i, &counted))
		return 0;
	int err = kv_del(t, ns_key_ino(k, NS_K_UNPUSHED, ino));

	if (err)
		return err;
	atomic_fetch_sub_explicit(&ns->n_unpushed, 1, memory_order_relaxed);
	n = ns_sums_users(&dir.h_i, users);
	while (!err && n--)
		if (!ns_sum_zero(&users[n].us_sum))
			err = user_row_add(t, users[n].us_uid, &users[n].us_sum);
	delta = ns_sums_total(&dir.h_i);
	ns_sum_minus(&delta, &counted);
	sums_get(&dir.h_i, &r);
	r.sm_unpushed = r.sm_users = 0;
	sums_set(&dir, &r);
	if (!err)
		err = ns_inode_put(t, &dir.h_i);
	if (err || ino == NS_ROOT_INO || ns_sum_zero(&delta))
		return err;
	return push_to_parent(ns, t, dir.h_i.i_parent, &delta, l);
}

static int fold_collect(void *arg, uint64_t ino, struct kv_slice val)
{
	struct fold_list *l = arg;

	(void)val;
	l->fl_ino[l->fl_n++] = ino;
	return l->fl_n == FOLD_ROWS;
}

int ns_unpushed_rows(struct kv_txn *t, uint64_t from,
		     int (*fn)(void *arg, uint64_t ino, struct kv_slice val), void *arg)
{
	uint8_t k[NS_KEY_INODE], prefix = NS_K_UNPUSHED;
	struct kv_slice key, val;
	struct kv_scan sc;
	int rc = kv_scan_begin(t, ns_slice(&prefix, 1), ns_key_ino(k, NS_K_UNPUSHED, from), &sc);

	if (rc)
		return rc;
	while ((rc = kv_scan_next(&sc, &key, &val)) > 0) {
		if (key.s_len != NS_KEY_INODE)
			continue; /* the checker reports it */
		rc = fn(arg, ns_get64((const uint8_t *)key.s_data + 1), val);
		if (rc)
			break;
	}
	kv_scan_end(&sc);
	return rc < 0 ? rc : 0;
}

int ns_sum_fold(struct ns *ns, struct kv_txn *t, uint64_t *from)
{
	struct fold_list l = {.fl_n = 0};
	int err = ns_unpushed_rows(t, *from, fold_collect, &l);

	if (!err && !l.fl_n && !*from)
		atomic_store(&ns->n_unpushed, 0);
	*from = l.fl_n == FOLD_ROWS ? l.fl_ino[l.fl_n - 1] + 1 : 0;
	for (unsigned step = 0; !err && l.fl_n && step < FOLD_STEPS; step++)
		err = ns_sum_push_one(ns, t, l.fl_ino[--l.fl_n], &l);
	return err;
}

/* ---- the tick ---- */

/* Not in struct ns: the committer may still post the answer when ns_close returns. */
static struct ns_sum_fold {
	struct kv_op fo_op;
	struct ns *fo_ns;
	uint64_t fo_from, fo_next_ms, fo_failed_ms;
	bool fo_busy;
} fold;

static int fold_run(struct kv_op *op, struct kv_txn *t)
{
	struct ns_sum_fold *f = caa_container_of(op, struct ns_sum_fold, fo_op);

	return ns_sum_fold(f->fo_ns, t, &f->fo_from);
}

static void fold_done(struct kv_op *op, int err)
{
	struct ns_sum_fold *f = caa_container_of(op, struct ns_sum_fold, fo_op);

	f->fo_busy = !err && f->fo_from;
	if (err)
		f->fo_failed_ms = clock_mono_ns() / 1000000;
	if (err)
		log_warn("ns: cannot push the sums of directories: %s", strerror(-err));
	if (f->fo_busy)
		kv_submit(f->fo_ns->n_kv, op);
}

void ns_sum_tick(struct ns *ns, struct loop *loop)
{
	int64_t rows = atomic_load_explicit(&ns->n_unpushed, memory_order_relaxed);
	uint64_t now = clock_mono_ns() / 1000000;
	struct ns_sum_fold *f = &fold;

	f->fo_ns = ns;
	if (f->fo_busy || !rows || (rows < FOLD_SOON && now < f->fo_next_ms) ||
	    (f->fo_failed_ms && now - f->fo_failed_ms < FOLD_REST_MS))
		return;
	f->fo_busy = true;
	f->fo_from = 0;
	f->fo_next_ms = now + FOLD_EVERY;
	f->fo_op = (struct kv_op){.o_run = fold_run, .o_done = fold_done, .o_loop = loop};
	kv_submit(ns->n_kv, &f->fo_op);
}
