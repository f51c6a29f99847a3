/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ns_dir.c - directories: lookup, listing, and the four mutations of names: create, link, remove,
 * rename.
 *
 * Each mutation has the same shape: hold every inode it touches (copies, because a put invalidates
 * what was read), find the names, check everything, and only then put. A mutation that frees
 * something begins with a delete: on a full disk the store admits or refuses a mutation by its
 * first write.
 */
#include "mds/namespace/keys.h"
#include "base/log.h"
#include "mds/namespace/ns_sum.h"
#include <errno.h>
#include <sys/stat.h>

/* Result of a search in a name's window. */
struct find {
	bool f_found;
	uint64_t f_slot; /* the name's slot; else the first free one; 0: the window is full */
	uint64_t f_ino;
	uint8_t f_type;
};

static int ns_dir_damaged(uint64_t dir)
{
	log_error("ns: directory %lu: damaged entry", (unsigned long)dir);
	return -EIO;
}

static int ns_dir_find(struct ns *ns, struct kv_txn *t, uint64_t dir, const char *name, size_t len,
		       struct find *f)
{
	uint64_t hash = ns_name_hash(ns->n_super.su_dir_key, name, len), free = hash, at;
	uint8_t k[NS_KEY_DIRENT];
	struct kv_slice from = ns_key_dirent(k, dir, hash), key, val;
	struct ns_dirent d;
	struct kv_scan sc;
	int rc;

	*f = (struct find){.f_found = false};
	rc = kv_scan_begin(t, ns_slice(k, NS_KEY_INODE), from, &sc);
	if (rc)
		return rc;
	while ((rc = kv_scan_next(&sc, &key, &val)) > 0) {
		if (key.s_len == NS_KEY_DIRENT &&
		    ns_get64((const uint8_t *)key.s_data + NS_KEY_INODE) - hash >= NS_SLOT_WINDOW)
			break;
		if (ns_dirent_decode(key, val, &at, &d)) {
			rc = ns_dir_damaged(dir);
			break;
		}
		if (d.d_cookie == free)
			free++;
		if (d.d_len == len && !memcmp(d.d_name, name, len)) {
			*f = (struct find){.f_found = true,
					   .f_slot = d.d_cookie,
					   .f_ino = d.d_ino,
					   .f_type = d.d_type};
			break;
		}
	}
	kv_scan_end(&sc);
	if (rc < 0)
		return rc;
	if (!f->f_found)
		f->f_slot = free - hash < NS_SLOT_WINDOW ? free : 0;
	return 0;
}

int ns_lookup(struct ns *ns, struct kv_txn *t, uint64_t dir, const char *name, size_t len,
	      uint64_t *ino, uint8_t *type)
{
	struct ns_inode i;
	struct find f;
	int err;

	err = ns_name_check(name, len);
	if (!err)
		err = ns_dir_find(ns, t, dir, name, len, &f);
	if (err)
		return err;
	if (f.f_found) {
		*ino = f.f_ino;
		*type = f.f_type;
		return 0;
	}
	/* Only a miss needs the reason. */
	err = ns_get(ns, t, dir, &i);
	if (err)
		return err;
	return i.i_type == NS_DIR ? -ENOENT : -ENOTDIR;
}

int ns_readdir(struct ns *ns, struct kv_txn *t, uint64_t dir, uint64_t after,
	       int (*fn)(void *arg, const struct ns_dirent *d), void *arg, bool *eof)
{
	uint8_t k[NS_KEY_DIRENT];
	struct kv_slice from, key, val;
	struct ns_inode i;
	struct ns_dirent d;
	struct kv_scan sc;
	uint64_t at;
	int rc;

	*eof = false;
	rc = ns_get(ns, t, dir, &i);
	if (rc)
		return rc;
	if (i.i_type != NS_DIR)
		return -ENOTDIR;
	if (after == UINT64_MAX) {
		*eof = true;
		return 0;
	}
	from = ns_key_dirent(k, dir, after + 1);
	rc = kv_scan_begin(t, ns_slice(k, NS_KEY_INODE), from, &sc);
	if (rc)
		return rc;
	while ((rc = kv_scan_next(&sc, &key, &val)) > 0) {
		rc = ns_dirent_decode(key, val, &at, &d) ? ns_dir_damaged(dir) : fn(arg, &d);
		if (rc)
			break;
	}
	kv_scan_end(&sc);
	*eof = rc == 0; /* neither stopped by fn nor failed */
	return rc < 0 ? rc : 0;
}

static int dirent_put(struct kv_txn *t, uint64_t dir, uint64_t slot, uint64_t ino, uint8_t type,
		      const char *name, size_t len)
{
	uint8_t k[NS_KEY_DIRENT], buf[NS_DIRENT_VAL_MAX];

	return kv_put(t, ns_key_dirent(k, dir, slot),
		      ns_slice(buf, ns_dirent_encode(ino, type, name, len, buf)));
}

static int dirent_del(struct kv_txn *t, uint64_t dir, uint64_t slot)
{
	uint8_t k[NS_KEY_DIRENT];

	return kv_del(t, ns_key_dirent(k, dir, slot));
}

/* A directory gains or loses names (entries) and subdirectories (nlink). */
static void dir_change(struct ns_inode *d, int entries, int subdirs, struct ns_time now)
{
	d->i_entries += (uint32_t)entries;
	d->i_nlink += (uint32_t)subdirs;
	d->i_size = d->i_used = (uint64_t)d->i_entries * NS_ENTRY_SIZE;
	d->i_mtime = d->i_ctime = now;
	d->i_change++;
}

/* Whether cr may add a name for a file of this type to the directory. */
static int may_add(const struct ns_inode *dir, uint8_t type, const struct ns_cred *cr)
{
	return ns_access(dir, cr, type == NS_DIR ? NS_R_APPEND : NS_R_WRITE);
}

static int inode_free(struct ns *ns, struct kv_txn *t, const struct ns_inode *i)
{
	uint8_t k[NS_KEY_INODE];
	int err;

	if (i->i_has_xattrs) {
		err = ns_xattrs_del(t, i->i_ino);
		if (err)
			return err;
	}
	err = kv_del(t, ns_key_ino(k, NS_K_INODE, i->i_ino));
	return err ? err : ns_inode_freed(ns, t);
}

/* Removes a link from an inode, and with the last link the inode. The entry is gone already, so
 * f_free_map may no longer refuse: an error from it is one of the store, and fails the batch. at:
 * the link; dir: its directory; other (NULL: none) is also held. */
static int link_drop(struct ns *ns, struct kv_txn *t, struct ns_inode *i, const struct ns_name *at,
		     struct ns_time now, const struct ns_free_ops *fo, struct ns_inode_held *dir,
		     struct ns_inode_held *other)
{
	uint8_t k[NS_KEY_INODE];
	int err;

	i->i_nlink = i->i_type == NS_DIR ? 0 : i->i_nlink - 1;
	i->i_ctime = now;
	i->i_change++;
	err = i->i_nlink ? ns_sum_unname(ns, t, i, dir, other) : ns_sum_leave(ns, t, dir, i);
	if (err)
		return err;
	i->i_sums = ns_slice(NULL, 0); /* of a directory that goes: it is empty, and was counted */
	if (i->i_nlink)
		return ns_inode_put(t, i);
	if (fo->f_keep_s && ns_trash_takes(i))
		return ns_trash_put(ns, t, i, at, now, fo);
	if (i->i_type == NS_REG && fo->f_keep_open(fo->f_arg, i->i_ino)) {
		err = ns_inode_put(t, i);
		return err ? err
			   : kv_put(t, ns_key_ino(k, NS_K_ORPHAN, i->i_ino), ns_slice("\x01", 1));
	}
	if (i->i_type == NS_REG) {
		err = fo->f_free_map(fo->f_arg, t, i);
		if (err)
			return err;
	}
	return inode_free(ns, t, i);
}

static int create_valid(const struct ns_create_args *a)
{
	const struct ns_inode *i = &a->a_attr;
	size_t blob = i->i_blob.s_len;

	if (i->i_type < NS_REG || i->i_type > NS_FIFO || i->i_mode > 07777)
		return -EINVAL;
	if (a->a_acl && ns_acl_fits(a->a_acl, i->i_type))
		return -EPROTONOSUPPORT;
	switch (i->i_type) {
	case NS_REG:
		if (i->i_size > INT64_MAX)
			return -EINVAL;
		return blob > NS_BLOB_MAX ? -E2BIG : 0;
	case NS_DIR:
		return blob > NS_BLOB_MAX ? -E2BIG : 0;
	case NS_LNK:
		if (blob > NS_SYMLINK_MAX)
			return -ENAMETOOLONG;
		return blob == 0 || memchr(i->i_blob.s_data, 0, blob) ? -EINVAL : 0;
	default:
		return blob ? -EINVAL : 0;
	}
}

/* Sets mode and ACL of a new file or directory (RFC 8881 section 6.4.3). When the request has a
 * umask (RFC 8275), an inherited ACL limits the mode instead of the umask. buf holds the ACL. */
static void init_acl(const struct ns_create_args *a, const struct ns_inode *dir, struct ns_inode *i,
		     uint8_t buf[NS_ACL_REC_MAX])
{
	bool isdir = i->i_type == NS_DIR;
	uint16_t high = i->i_mode & 07000, inherited, asked;
	struct ns_acl acl, plain;

	i->i_acl = ns_slice(NULL, 0);
	if (!a->a_acl && (!dir->i_acl.s_len || !ns_acl_inherit(dir->i_acl, isdir, &acl))) {
		if (a->a_has_umask)
			i->i_mode &= (uint16_t)~a->a_umask;
		return;
	}
	if (a->a_acl) {
		acl = *a->a_acl;
		i->i_mode = high | ns_acl_mode(&acl);
	} else {
		asked = i->i_mode;
		inherited = ns_acl_mode(&acl);
		if (!(inherited & 0700)) /* no ACE is about the owner */
			inherited |= 0700;
		if (a->a_mode_default)
			i->i_mode = ns_acl_mode(&acl);
		else if (a->a_has_umask)
			i->i_mode &= inherited | 07000;
		if (!a->a_mode_default)
			ns_acl_set_mode(&acl, i->i_mode, asked, isdir);
	}
	ns_acl_of_mode(i->i_mode, isdir, &plain);
	plain.acl_flags = acl.acl_flags & NS_ACL_PROTECTED;
	if (!ns_acl_same(&acl, &plain))
		i->i_acl = ns_acl_encode(&acl, buf);
}

/* Makes the new inode as requested, under the rules of its directory: Linux's inode_init_owner and
 * mode_strip_sgid. */
static int inode_init(struct ns *ns, const struct ns_create_args *a, const struct ns_inode *dir,
		      struct ns_inode *i, uint8_t acl[NS_ACL_REC_MAX])
{
	const struct ns_cred *cr = a->a_cred;
	bool root = !cr || cr->cr_uid == 0;

	*i = a->a_attr;
	if (i->i_type != NS_LNK)
		init_acl(a, dir, i, acl);
	i->i_incarnation = ns->n_super.su_incarnation;
	i->i_nlink = i->i_type == NS_DIR ? 2 : 1;
	i->i_change = 1;
	i->i_parent = dir->i_ino;
	i->i_entries = 0;
	i->i_has_xattrs = false;
	i->i_has_policy = i->i_type == NS_DIR && i->i_blob.s_len > 0;
	i->i_sums = ns_slice(NULL, 0);
	if (!(a->a_times & NS_S_ATIME))
		i->i_atime = a->a_now;
	if (!(a->a_times & NS_S_MTIME))
		i->i_mtime = a->a_now;
	if (!(a->a_times & NS_S_BTIME))
		i->i_btime = a->a_now;
	i->i_ctime = a->a_now;
	if (i->i_type != NS_REG)
		i->i_size = i->i_used = 0;
	if (i->i_type == NS_LNK) {
		i->i_size = i->i_used = i->i_blob.s_len;
		i->i_mode = 0777;
	}
	if (i->i_type != NS_BLK && i->i_type != NS_CHR)
		i->i_rdev_major = i->i_rdev_minor = 0;
	if (!root && i->i_uid != cr->cr_uid)
		return -EPERM;
	if (dir->i_mode & S_ISGID) {
		i->i_gid = dir->i_gid;
		if (i->i_type == NS_DIR)
			i->i_mode |= S_ISGID;
	} else if (!root && !ns_in_group(cr, i->i_gid)) {
		return -EPERM;
	}
	if (!root && i->i_type != NS_DIR &&
	    (i->i_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) && !ns_in_group(cr, i->i_gid))
		i->i_mode &= (uint16_t)~S_ISGID;
	return 0;
}

static int map_make(struct ns *ns, struct kv_txn *t, const struct ns_create_args *a,
		    struct ns_inode *i, uint8_t *out_blob)
{
	struct kv_slice policy;
	size_t len = 0;
	int err;

	err = ns_policy(ns, t, a->a_dir, &policy);
	if (!err)
		err = a->a_map(a->a_map_arg, i, policy, out_blob, NS_BLOB_MAX, &len);
	if (err)
		return err;
	i->i_blob = ns_slice(out_blob, len);
	return len > NS_BLOB_MAX ? -E2BIG : 0;
}

/* Takes the inode number before the map is made, and reserves it with the puts: a refused map costs
 * a number and no put. A symlink's out->i_blob is the caller's own target. */
int ns_create(struct ns *ns, struct kv_txn *t, const struct ns_create_args *a, struct ns_inode *out,
	      uint8_t *out_blob, struct ns_cinfo *ci)
{
	uint8_t acl[NS_ACL_REC_MAX];
	struct ns_inode_held dir;
	struct ns_inode i;
	struct find f;
	int err;

	err = ns_name_check(a->a_name, a->a_len);
	if (!err)
		err = create_valid(a);
	if (!err)
		err = ns_inode_copy_dir(ns, t, a->a_dir, &dir);
	if (!err)
		err = ns_permission(&dir.h_i, a->a_cred, 1);
	if (!err)
		err = ns_dir_find(ns, t, a->a_dir, a->a_name, a->a_len, &f);
	if (err)
		return err;
	if (f.f_found)
		return -EEXIST;
	err = may_add(&dir.h_i, a->a_attr.i_type, a->a_cred);
	if (!err)
		err = inode_init(ns, a, &dir.h_i, &i, acl);
	if (err)
		return err;
	if (!f.f_slot)
		return -ENOSPC;
	if (dir.h_i.i_entries >= INT32_MAX)
		return -EMLINK;
	i.i_ino = ns_ino_next(ns);
	if (i.i_type == NS_REG && a->a_map) {
		err = map_make(ns, t, a, &i, out_blob);
		if (err)
			return err;
	}
	ci->c_before = dir.h_i.i_change;
	dir_change(&dir.h_i, 1, i.i_type == NS_DIR, a->a_now);
	ci->c_after = dir.h_i.i_change;
	err = ns_inode_put(t, &i);
	if (!err)
		err = dirent_put(t, a->a_dir, f.f_slot, i.i_ino, i.i_type, a->a_name, a->a_len);
	if (!err)
		err = ns_sum_enter(ns, t, &dir, &i);
	if (!err)
		err = ns_inode_put(t, &dir.h_i);
	if (!err)
		err = ns_ino_reserve(ns, t, i.i_ino);
	if (err)
		return err;
	atomic_fetch_add(&ns->n_inodes, 1);
	if (i.i_blob.s_len && i.i_type != NS_LNK && i.i_blob.s_data != out_blob) {
		memmove(out_blob, i.i_blob.s_data, i.i_blob.s_len);
		i.i_blob.s_data = out_blob;
	}
	*out = i;
	out->i_acl = ns_slice(NULL, 0);
	return 0;
}

int ns_link(struct ns *ns, struct kv_txn *t, uint64_t ino, uint64_t dirino, const char *name,
	    size_t len, const struct ns_cred *cr, struct ns_time now, struct ns_cinfo *ci)
{
	struct ns_inode_held dir, h;
	struct find f;
	int err;

	err = ns_name_check(name, len);
	if (!err)
		err = ns_inode_copy(ns, t, ino, &h);
	if (!err)
		err = ns_inode_copy_dir(ns, t, dirino, &dir);
	if (!err)
		err = ns_permission(&dir.h_i, cr, 1);
	if (!err)
		err = ns_dir_find(ns, t, dirino, name, len, &f);
	if (err)
		return err;
	if (f.f_found)
		return -EEXIST;
	err = may_add(&dir.h_i, h.h_i.i_type, cr);
	if (err)
		return err;
	if (h.h_i.i_type == NS_DIR)
		return -EISDIR;
	if (h.h_i.i_nlink == 0)
		return -ENOENT; /* an orphan gets no new name */
	if (h.h_i.i_nlink >= NS_LINK_MAX || dir.h_i.i_entries >= INT32_MAX)
		return -EMLINK;
	if (!f.f_slot)
		return -ENOSPC;
	h.h_i.i_nlink++;
	h.h_i.i_ctime = now;
	h.h_i.i_change++;
	ci->c_before = dir.h_i.i_change;
	dir_change(&dir.h_i, 1, 0, now);
	ci->c_after = dir.h_i.i_change;
	err = ns_inode_put(t, &h.h_i);
	if (!err)
		err = dirent_put(t, dirino, f.f_slot, ino, h.h_i.i_type, name, len);
	if (!err)
		err = ns_sum_name(t, ino, dirino);
	return err ? err : ns_inode_put(t, &dir.h_i);
}

/* Holds the inode behind an entry. A missing inode is damage, not a stale handle. */
static int hold_entry(struct ns *ns, struct kv_txn *t, uint64_t dir, const struct find *f,
		      struct ns_inode_held *h)
{
	int err;

	err = ns_inode_copy(ns, t, f->f_ino, h);
	if (err == -ESTALE) {
		log_error("ns: directory %lu: an entry points at missing inode %lu",
			  (unsigned long)dir, (unsigned long)f->f_ino);
		return -EIO;
	}
	if (!err && h->h_i.i_type != NS_DIR && h->h_i.i_nlink == 0)
		return ns_dir_damaged(dir);
	return err;
}

int ns_remove(struct ns *ns, struct kv_txn *t, uint64_t dirino, const char *name, size_t len,
	      unsigned want, const struct ns_cred *cr, struct ns_time now,
	      const struct ns_free_ops *fo, struct ns_inode *gone, struct ns_cinfo *ci)
{
	struct ns_inode_held dir, h;
	struct find f;
	bool isdir;
	int err;

	err = ns_name_check(name, len);
	if (!err)
		err = ns_inode_copy_dir(ns, t, dirino, &dir);
	if (!err)
		err = ns_permission(&dir.h_i, cr, 1);
	if (!err)
		err = ns_dir_find(ns, t, dirino, name, len, &f);
	if (err)
		return err;
	if (!f.f_found)
		return -ENOENT;
	err = hold_entry(ns, t, dirino, &f, &h);
	if (!err)
		err = ns_may_unlink(&dir.h_i, &h.h_i, cr);
	if (err)
		return err;
	isdir = h.h_i.i_type == NS_DIR;
	if (want == NS_DIR && !isdir)
		return -ENOTDIR;
	if (want == NS_REG && isdir)
		return -EISDIR;
	if (isdir && h.h_i.i_entries)
		return -ENOTEMPTY;
	err = dirent_del(t, dirino, f.f_slot);
	if (!err)
		err = link_drop(ns, t, &h.h_i, &(struct ns_name){dirino, name, len}, now, fo, &dir,
				NULL);
	if (err)
		return err;
	ci->c_before = dir.h_i.i_change;
	dir_change(&dir.h_i, -1, isdir ? -1 : 0, now);
	ci->c_after = dir.h_i.i_change;
	ns_inode_give(ns, &h.h_i, gone);
	return ns_inode_put(t, &dir.h_i);
}

/* -EINVAL when dir is top or below it. */
static int not_below(struct ns *ns, struct kv_txn *t, uint64_t dir, uint64_t top)
{
	struct ns_inode i;
	int err;

	for (unsigned depth = 0; depth < NS_DEPTH_MAX; depth++) {
		if (dir == top)
			return -EINVAL;
		if (dir == NS_ROOT_INO)
			return 0;
		err = ns_get(ns, t, dir, &i);
		if (err)
			return err == -ESTALE ? -EIO : err;
		dir = i.i_parent;
	}
	return -EIO;
}

/* Everything that a rename holds. rn_dp is rn_s when both names are in one directory: one record,
 * changed once. */
struct rename {
	struct ns_inode_held rn_s, rn_d, rn_moved, rn_target;
	struct ns_inode *rn_dp;
	struct find rn_from, rn_to;
};

static int rename_check(struct ns *ns, struct kv_txn *t, struct rename *r, const struct ns_cred *cr)
{
	struct ns_inode *s = &r->rn_s.h_i, *d = r->rn_dp, *moved = &r->rn_moved.h_i,
			*target = &r->rn_target.h_i;
	bool cross = s != d, isdir = moved->i_type == NS_DIR;
	int err, err2;

	if (isdir && cross) {
		err = not_below(ns, t, d->i_ino, moved->i_ino);
		if (err)
			return err;
	}
	err = ns_may_unlink(s, moved, cr);
	err2 = r->rn_to.f_found ? ns_may_unlink(d, target, cr) : 0;
	if (err == -EACCES || err2 == -EACCES || may_add(d, moved->i_type, cr))
		return -EACCES;
	if (err || err2)
		return -EPERM;
	if (isdir && cross && ns_permission(moved, cr, 2))
		return -EACCES; /* its ".." changes */
	if (!r->rn_to.f_found) {
		if (cross && d->i_entries >= INT32_MAX)
			return -EMLINK;
		return r->rn_to.f_slot ? 0 : -ENOSPC;
	}
	if (isdir && target->i_type != NS_DIR)
		return -ENOTDIR;
	if (!isdir && target->i_type == NS_DIR)
		return -EISDIR;
	return target->i_type == NS_DIR && target->i_entries ? -ENOTEMPTY : 0;
}

/* Holds both directories and finds both names. */
static int rename_find(struct ns *ns, struct kv_txn *t, struct rename *r, uint64_t sdir,
		       const char *sname, size_t slen, uint64_t ddir, const char *dname,
		       size_t dlen, const struct ns_cred *cr)
{
	int err;

	err = ns_name_check(sname, slen);
	if (!err)
		err = ns_name_check(dname, dlen);
	if (!err)
		err = ns_inode_copy_dir(ns, t, sdir, &r->rn_s);
	r->rn_dp = &r->rn_s.h_i;
	if (!err && ddir != sdir) {
		err = ns_inode_copy_dir(ns, t, ddir, &r->rn_d);
		r->rn_dp = &r->rn_d.h_i;
	}
	if (!err)
		err = ns_permission(&r->rn_s.h_i, cr, 1);
	if (!err)
		err = ns_permission(r->rn_dp, cr, 1);
	if (!err)
		err = ns_dir_find(ns, t, sdir, sname, slen, &r->rn_from);
	if (err)
		return err;
	if (!r->rn_from.f_found)
		return -ENOENT;
	err = ns_dir_find(ns, t, ddir, dname, dlen, &r->rn_to);
	if (!err)
		err = hold_entry(ns, t, sdir, &r->rn_from, &r->rn_moved);
	if (!err && r->rn_to.f_found)
		err = hold_entry(ns, t, ddir, &r->rn_to, &r->rn_target);
	return err;
}

static int ns_dir_rename_put(struct ns *ns, struct kv_txn *t, struct rename *r, const char *dname,
			     size_t dlen, struct ns_time now, const struct ns_free_ops *fo)
{
	struct ns_inode *s = &r->rn_s.h_i, *d = r->rn_dp, *moved = &r->rn_moved.h_i;
	struct ns_inode_held *to = s == d ? &r->rn_s : &r->rn_d;
	bool replaces = r->rn_to.f_found;
	int isdir = moved->i_type == NS_DIR, err;

	err = dirent_del(t, s->i_ino, r->rn_from.f_slot);
	if (!err && replaces)
		err = link_drop(ns, t, &r->rn_target.h_i, &(struct ns_name){d->i_ino, dname, dlen},
				now, fo, to, s == d ? NULL : &r->rn_s);
	if (!err)
		err = dirent_put(t, d->i_ino, r->rn_to.f_slot, moved->i_ino, moved->i_type, dname,
				 dlen);
	if (err)
		return err;
	if (s == d) {
		dir_change(s, replaces ? -1 : 0, replaces && isdir ? -1 : 0, now);
	} else {
		dir_change(s, -1, -isdir, now);
		dir_change(d, replaces ? 0 : 1, replaces ? 0 : isdir, now);
		err = ns_sum_move(ns, t, moved, &r->rn_s, to);
		if (err)
			return err;
	}
	moved->i_ctime = now;
	moved->i_change++;
	err = ns_inode_put(t, moved);
	if (!err)
		err = ns_inode_put(t, s);
	if (!err && s != d)
		err = ns_inode_put(t, d);
	return err;
}

int ns_rename(struct ns *ns, struct kv_txn *t, uint64_t sdir, const char *sname, size_t slen,
	      uint64_t ddir, const char *dname, size_t dlen, const struct ns_cred *cr,
	      struct ns_time now, const struct ns_free_ops *fo, struct ns_inode *replaced,
	      struct ns_cinfo *sci, struct ns_cinfo *dci)
{
	struct rename r;
	int err;

	*replaced = (struct ns_inode){.i_ino = 0};
	err = rename_find(ns, t, &r, sdir, sname, slen, ddir, dname, dlen, cr);
	if (err)
		return err;
	sci->c_before = sci->c_after = r.rn_s.h_i.i_change;
	dci->c_before = dci->c_after = r.rn_dp->i_change;
	if (r.rn_to.f_found && r.rn_to.f_ino == r.rn_from.f_ino)
		return 0;
	err = rename_check(ns, t, &r, cr);
	if (!err)
		err = ns_dir_rename_put(ns, t, &r, dname, dlen, now, fo);
	if (err)
		return err;
	sci->c_after = r.rn_s.h_i.i_change;
	dci->c_after = r.rn_dp->i_change;
	if (r.rn_to.f_found)
		ns_inode_give(ns, &r.rn_target.h_i, replaced);
	return 0;
}

int ns_dir_room(struct ns *ns, struct kv_txn *t, uint64_t dir, const char *name, size_t len)
{
	struct ns_inode d;
	struct find f;
	int err = ns_get(ns, t, dir, &d);

	if (!err && d.i_type != NS_DIR)
		err = -ENOTDIR;
	if (!err)
		err = ns_dir_find(ns, t, dir, name, len, &f);
	if (err)
		return err;
	if (f.f_found)
		return -EEXIST;
	return d.i_entries >= INT32_MAX ? -EMLINK : f.f_slot ? 0 : -ENOSPC;
}

int ns_dir_attach(struct ns *ns, struct kv_txn *t, const struct ns_name *at,
		  const struct ns_inode *i, struct ns_time now)
{
	struct ns_inode_held dir;
	struct find f;
	int err = ns_inode_copy_dir(ns, t, at->nm_dir, &dir);

	if (!err)
		err = ns_dir_find(ns, t, at->nm_dir, at->nm_name, at->nm_len, &f);
	if (!err)
		err = dirent_put(t, at->nm_dir, f.f_slot, i->i_ino, i->i_type, at->nm_name,
				 at->nm_len);
	if (!err)
		err = ns_sum_enter(ns, t, &dir, i);
	if (err)
		return err;
	dir_change(&dir.h_i, 1, i->i_type == NS_DIR, now);
	return ns_inode_put(t, &dir.h_i);
}

int ns_orphan_free(struct ns *ns, struct kv_txn *t, uint64_t ino, const struct ns_free_ops *fo)
{
	uint8_t k[NS_KEY_INODE];
	struct kv_slice val;
	struct ns_inode_held h;
	struct ns_trash kept;
	bool in_trash;
	int err;

	err = kv_get(t, ns_key_ino(k, NS_K_ORPHAN, ino), &val);
	if (err == -ENOENT) {
		err = ns_get(ns, t, ino, &h.h_i);
		return err == -ESTALE ? 0 : err ? err : 1;
	}
	if (!err)
		err = ns_inode_copy(ns, t, ino, &h);
	if (err)
		return err == -ESTALE ? -EIO : err;
	if (h.h_i.i_nlink)
		return -EIO; /* never free an inode that has a name */
	err = ns_trash_get(t, ino, &kept);
	if (err && err != -ENOENT && err != -EIO)
		return err;
	in_trash = err != -ENOENT; /* also where its entry is damaged */
	err = kv_del(t, ns_key_ino(k, NS_K_ORPHAN, ino));
	if (!err && in_trash)
		return 1;
	if (!err && h.h_i.i_type == NS_REG)
		err = fo->f_free_map(fo->f_arg, t, &h.h_i);
	return err ? err : inode_free(ns, t, &h.h_i);
}

/* fn: 0 goes on, positive stops, negative stops and is returned. */
int ns_orphans(struct ns *ns, struct kv_txn *t, int (*fn)(void *arg, uint64_t ino), void *arg)
{
	struct kv_slice prefix = ns_slice("O", 1), key, val;
	struct kv_scan sc;
	int rc;

	(void)ns;
	rc = kv_scan_begin(t, prefix, prefix, &sc);
	if (rc)
		return rc;
	while ((rc = kv_scan_next(&sc, &key, &val)) > 0) {
		rc = key.s_len == NS_KEY_INODE ? fn(arg, ns_get64((const uint8_t *)key.s_data + 1))
					       : -EIO;
		if (rc)
			break;
	}
	kv_scan_end(&sc);
	return rc < 0 ? rc : 0;
}
