/* SPDX-License-Identifier: Apache-2.0 */
/* ns_attr.c - inodes: reading, permission, attributes, layout maps and policies. */
#include "mds/namespace/keys.h"
#include "base/log.h"
#include "mds/namespace/ns_sum.h"
#include <errno.h>
#include <sys/stat.h>

static bool in_groups(const struct ns_groups *g, uint32_t gid)
{
	uint32_t lo = 0, hi = g->g_n;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (g->g_gid[mid] < gid)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < g->g_n && g->g_gid[lo] == gid;
}

bool ns_in_group(const struct ns_cred *cr, uint32_t gid)
{
	if (cr->cr_gid == gid)
		return true;
	if (cr->cr_groups)
		return !(gid == 0 && cr->cr_not_root_group) && in_groups(cr->cr_groups, gid);
	for (uint32_t n = 0; n < cr->cr_ngids && n < NS_MAX_GIDS; n++)
		if (cr->cr_gids[n] == gid)
			return true;
	return false;
}

int ns_get(struct ns *ns, struct kv_txn *t, uint64_t ino, struct ns_inode *out)
{
	uint8_t k[NS_KEY_INODE];
	struct kv_slice val;
	int err;

	(void)ns;
	err = kv_get(t, ns_key_ino(k, NS_K_INODE, ino), &val);
	if (err)
		return err == -ENOENT ? -ESTALE : err;
	err = ns_inode_decode(val, ino, out);
	if (err)
		log_error("ns: inode %lu: damaged record", (unsigned long)ino);
	return err;
}

void ns_inode_hold(struct ns_inode_held *h)
{
	memcpy(h->h_blob, h->h_i.i_blob.s_data, h->h_i.i_blob.s_len);
	h->h_i.i_blob.s_data = h->h_blob;
	memcpy(h->h_acl, h->h_i.i_acl.s_data, h->h_i.i_acl.s_len);
	h->h_i.i_acl.s_data = h->h_acl;
	memcpy(h->h_sums, h->h_i.i_sums.s_data, h->h_i.i_sums.s_len);
	h->h_i.i_sums.s_data = h->h_sums;
}

int ns_inode_copy(struct ns *ns, struct kv_txn *t, uint64_t ino, struct ns_inode_held *h)
{
	int err;

	err = ns_get(ns, t, ino, &h->h_i);
	if (err)
		return err;
	ns_inode_hold(h);
	return 0;
}

int ns_inode_copy_dir(struct ns *ns, struct kv_txn *t, uint64_t ino, struct ns_inode_held *h)
{
	int err;

	err = ns_inode_copy(ns, t, ino, h);
	if (err)
		return err;
	return h->h_i.i_type == NS_DIR ? 0 : -ENOTDIR;
}

void ns_inode_give(struct ns *ns, const struct ns_inode *i, struct ns_inode *out)
{
	*out = *i;
	if (i->i_blob.s_len)
		memcpy(ns->n_blob, i->i_blob.s_data, i->i_blob.s_len);
	out->i_blob.s_data = ns->n_blob;
	if (i->i_acl.s_len)
		memcpy(ns->n_acl, i->i_acl.s_data, i->i_acl.s_len);
	out->i_acl.s_data = ns->n_acl;
	if (i->i_sums.s_len)
		memcpy(ns->n_sums, i->i_sums.s_data, i->i_sums.s_len);
	out->i_sums.s_data = ns->n_sums;
}

int ns_inode_put(struct kv_txn *t, const struct ns_inode *i)
{
	uint8_t k[NS_KEY_INODE], buf[NS_INODE_VAL_MAX];
	/* Before the first put, with which the slices of an inode from ns_get end. */
	size_t len = ns_inode_encode(i, buf);
	int err = ns_stamp_put(t, &i->i_ctime);

	return err ? err : kv_put(t, ns_key_ino(k, NS_K_INODE, i->i_ino), ns_slice(buf, len));
}

static int mode_permission(const struct ns_inode *i, const struct ns_cred *cr, unsigned rwx)
{
	unsigned bits;

	if (cr->cr_uid == i->i_uid)
		bits = i->i_mode >> 6;
	else if (ns_in_group(cr, i->i_gid))
		bits = i->i_mode >> 3;
	else
		bits = i->i_mode;
	return rwx & ~bits & 7 ? -EACCES : 0;
}

/* Root passes everywhere, but executes only files that some user may execute. */
static int root_permission(const struct ns_inode *i, bool execute)
{
	return execute && i->i_type != NS_DIR && !(i->i_mode & 0111) && !ns_acl_executable(i)
		       ? -EACCES
		       : 0;
}

int ns_permission(const struct ns_inode *i, const struct ns_cred *cr, unsigned rwx)
{
	if (!cr)
		return 0;
	if (cr->cr_uid == 0)
		return root_permission(i, rwx & 1);
	if (!i->i_acl.s_len)
		return mode_permission(i, cr, rwx);
	/* A write may append or overwrite, so a writer needs both rights. */
	return ns_access(i, cr,
			 (rwx & 4 ? NS_R_READ : 0) | (rwx & 2 ? NS_R_WRITE | NS_R_APPEND : 0) |
				 (rwx & 1 ? NS_R_EXECUTE : 0));
}

/* The first are rights that the owner has unless an ACE denies them. The second are rights that
 * nothing takes from the owner (RFC 8881 section 6.3.1.1). */
#define OWNER_UNLESS_DENIED (NS_R_WRITE_ATTRS | NS_R_WRITE_OWNER)
#define OWNER_ALWAYS	    (NS_R_READ_ACL | NS_R_WRITE_ACL)
#define FREE		    (NS_R_READ_ATTRS | NS_R_SYNCHRONIZE) /* denied to no user */

static int mode_access(const struct ns_inode *i, const struct ns_cred *cr, uint32_t want)
{
	unsigned rwx =
		(want & (NS_R_READ | NS_R_READ_XATTRS) ? 4 : 0) |
		(want & (NS_R_WRITE | NS_R_APPEND | NS_R_WRITE_XATTRS | NS_R_DELETE_CHILD) ? 2
											   : 0) |
		(want & NS_R_EXECUTE ? 1 : 0);

	if ((want & (OWNER_UNLESS_DENIED | NS_R_WRITE_ACL)) && cr->cr_uid != i->i_uid)
		return -EACCES;
	/* A mode grants none of these. */
	if (want & (NS_R_DELETE | NS_R_RETENTION | NS_R_RETENTION_HOLD))
		return -EACCES;
	return mode_permission(i, cr, rwx);
}

int ns_access(const struct ns_inode *i, const struct ns_cred *cr, uint32_t want)
{
	uint32_t allowed, denied;

	if (!cr)
		return 0;
	if (cr->cr_uid == 0)
		return root_permission(i, want & NS_R_EXECUTE);
	want &= ~(uint32_t)FREE;
	if (!i->i_acl.s_len)
		return mode_access(i, cr, want);
	if (cr->cr_uid == i->i_uid)
		want &= ~(uint32_t)OWNER_ALWAYS;
	allowed = ns_acl_eval(i, cr, want, &denied);
	if (cr->cr_uid == i->i_uid)
		allowed |= OWNER_UNLESS_DENIED & ~denied;
	return want & ~allowed ? -EACCES : 0;
}

int ns_may_read(const struct ns_inode *i, const struct ns_cred *cr)
{
	return ns_permission(i, cr, 4) && (i->i_type != NS_REG || ns_permission(i, cr, 1)) ? -EACCES
											   : 0;
}

/* In a sticky directory only the owner of the file or of the directory may remove a name. */
static bool sticky_forbids(const struct ns_inode *dir, const struct ns_inode *i,
			   const struct ns_cred *cr)
{
	return (dir->i_mode & S_ISVTX) && !ns_is_owner(dir, cr) && !ns_is_owner(i, cr);
}

/*
 * Either DELETE on the file or DELETE_CHILD on the directory is enough. When no ACE names either,
 * the right to add files stands for DELETE_CHILD; for a directory without an ACL, its mode decides.
 * The sticky bit binds users whom the file's own ACL does not let delete the file.
 */
int ns_may_unlink(const struct ns_inode *dir, const struct ns_inode *i, const struct ns_cred *cr)
{
	uint32_t allowed, denied = 0, own;

	if (!cr || cr->cr_uid == 0)
		return 0;
	if (i->i_acl.s_len && ns_acl_eval(i, cr, NS_R_DELETE, &denied))
		return 0;
	own = denied;
	if (!dir->i_acl.s_len) {
		if (mode_permission(dir, cr, 2))
			return -EACCES;
	} else {
		allowed = ns_acl_eval(dir, cr, NS_R_DELETE_CHILD, &denied);
		if (!allowed && (denied || own || ns_access(dir, cr, NS_R_WRITE)))
			return -EACCES;
	}
	return sticky_forbids(dir, i, cr) ? -EPERM : 0;
}

static bool privileged(const struct ns_cred *cr)
{
	return !cr || cr->cr_uid == 0;
}

/* Linux's setattr_should_drop_suidgid: returns what is left of a mode after a write, or a change of
 * owner, by a user without privilege. The set-group-id bit without group execute once meant
 * mandatory locking; it stays when the user is a member of the group. */
static uint16_t drop_sugid(const struct ns_inode *i, const struct ns_cred *cr, uint16_t mode)
{
	if (privileged(cr))
		return mode;
	mode &= (uint16_t)~S_ISUID;
	if ((mode & S_IXGRP) || !ns_in_group(cr, i->i_gid))
		mode &= (uint16_t)~S_ISGID;
	return mode;
}

static int setattr_valid(const struct ns_inode *i, const struct ns_setattr *s)
{
	if ((s->s_mask & NS_S_MODE) && s->s_mode > 07777)
		return -EINVAL;
	if ((s->s_mask & NS_S_ATIME) && s->s_atime.t_nsec >= 1000000000)
		return -EINVAL;
	if ((s->s_mask & NS_S_MTIME) && s->s_mtime.t_nsec >= 1000000000)
		return -EINVAL;
	if ((s->s_mask & NS_S_BTIME) && s->s_btime.t_nsec >= 1000000000)
		return -EINVAL;
	if (s->s_mask & NS_S_SIZE) {
		if (i->i_type == NS_DIR)
			return -EISDIR;
		if (i->i_type != NS_REG || s->s_size > INT64_MAX)
			return -EINVAL;
	}
	return s->s_mask & NS_S_ACL ? ns_acl_fits(s->s_acl, i->i_type) : 0;
}

/* WRITE_OWNER in an ACL lets other users than the owner make the file their own, and give it to a
 * group of theirs. */
static int chown_allowed(const struct ns_inode *i, const struct ns_setattr *s,
			 const struct ns_cred *cr)
{
	if (ns_access(i, cr, NS_R_WRITE_OWNER))
		return -EPERM;
	if ((s->s_mask & NS_S_UID) && s->s_uid != i->i_uid && s->s_uid != cr->cr_uid)
		return -EPERM;
	return (s->s_mask & NS_S_GID) && s->s_gid != i->i_gid && !ns_in_group(cr, s->s_gid) ? -EPERM
											    : 0;
}

/* The permission checks of Linux's setattr_prepare and notify_change. A right that an ACL can give
 * to other users counts where Linux asks for the owner. */
static int ns_attr_setattr_allowed(const struct ns_inode *i, const struct ns_setattr *s,
				   const struct ns_cred *cr)
{
	if (privileged(cr))
		return 0;
	if ((s->s_mask & (NS_S_UID | NS_S_GID)) && chown_allowed(i, s, cr))
		return -EPERM;
	if ((s->s_mask & (NS_S_MODE | NS_S_ACL)) && ns_access(i, cr, NS_R_WRITE_ACL))
		return -EPERM;
	if ((s->s_mask & (NS_S_ATIME | NS_S_MTIME | NS_S_BTIME)) &&
	    ns_access(i, cr, NS_R_WRITE_ATTRS))
		return -EPERM;
	if ((s->s_mask & NS_S_VERIFIER) && !ns_is_owner(i, cr))
		return -EPERM;
	if ((s->s_mask & NS_S_SIZE) && !(s->s_mask & NS_S_HAS_WRITE) && ns_permission(i, cr, 2))
		return -EACCES;
	if ((s->s_mask & (NS_S_ATIME_NOW | NS_S_MTIME_NOW)) && ns_access(i, cr, NS_R_WRITE_ATTRS) &&
	    ns_access(i, cr, NS_R_WRITE))
		return -EACCES;
	return 0;
}

int ns_setattr_check(const struct ns_inode *i, const struct ns_setattr *s, const struct ns_cred *cr)
{
	int err = setattr_valid(i, s);

	return err ? err : ns_attr_setattr_allowed(i, s, cr);
}

uint16_t ns_mode_written(const struct ns_inode *i, const struct ns_cred *cr)
{
	return i->i_type == NS_REG ? drop_sugid(i, cr, i->i_mode) : i->i_mode;
}

/* Only the owner may set the set-user-id and set-group-id bits. */
static void set_mode(struct ns_inode *i, const struct ns_setattr *s, const struct ns_cred *cr,
		     uint32_t gid)
{
	uint16_t old = i->i_mode;

	i->i_mode = (uint16_t)((old & s->s_mode_keep) | (s->s_mode & ~s->s_mode_keep));
	if (!ns_is_owner(i, cr))
		i->i_mode &= (uint16_t)(old | ~(S_ISUID | S_ISGID));
	if (!privileged(cr) && !ns_in_group(cr, gid))
		i->i_mode &= (uint16_t)~S_ISGID;
}

/* The ACL follows a mode that is set, and the mode follows an ACL that is set (RFC 8881 section
 * 6.4.1). An ACL that grants exactly what the mode grants is not stored. rec holds the bytes that
 * i->i_acl points to. */
static void set_acl(struct ns_inode *i, const struct ns_setattr *s, uint8_t rec[NS_ACL_REC_MAX])
{
	bool dir = i->i_type == NS_DIR;
	struct ns_acl a;

	if (s->s_mask & NS_S_ACL) {
		i->i_mode = (uint16_t)((i->i_mode & ~0777) | ns_acl_mode(s->s_acl));
		ns_acl_of_mode(i->i_mode, dir, &a);
		/* The other flags are of no use to an ACL that equals the mode. */
		a.acl_flags = s->s_acl->acl_flags & NS_ACL_PROTECTED;
		i->i_acl =
			ns_acl_same(&a, s->s_acl) ? ns_slice(rec, 0) : ns_acl_encode(s->s_acl, rec);
	} else if ((s->s_mask & NS_S_MODE) && i->i_acl.s_len && (~s->s_mode_keep & 0777)) {
		ns_acl_decode(i->i_acl, &a);
		ns_acl_set_mode(&a, i->i_mode, i->i_mode, dir);
		i->i_acl = ns_acl_encode(&a, rec);
	}
}

static void set_times(struct ns_inode *i, const struct ns_setattr *s, struct ns_time now)
{
	if (s->s_mask & NS_S_ATIME_NOW)
		i->i_atime = now;
	if (s->s_mask & NS_S_MTIME_NOW)
		i->i_mtime = now;
	if (s->s_mask & NS_S_ATIME)
		i->i_atime = s->s_atime;
	if (s->s_mask & NS_S_MTIME)
		i->i_mtime = s->s_mtime;
	if (s->s_mask & NS_S_BTIME)
		i->i_btime = s->s_btime;
}

/* When the server records an access (cr NULL, access time alone), the file does not change: ctime
 * and the change attribute stay. */
static bool is_touch_of_atime(const struct ns_setattr *s, const struct ns_cred *cr)
{
	return !cr && !(s->s_mask & ~(NS_S_ATIME | NS_S_ATIME_NOW));
}

/* A SETATTR of size counts as a modification even when the size stays the same (ftruncate), unless
 * NS_S_GROW_ONLY is set and the file does not grow. out->i_blob is valid until the next W function.
 * When there is nothing to do (no bit, or no growth), the function returns 0 and writes nothing. */
int ns_setattr(struct ns *ns, struct kv_txn *t, uint64_t ino, const struct ns_setattr *s,
	       const struct ns_cred *cr, struct ns_time now, struct ns_inode *out)
{
	unsigned what = s->s_mask & ~(unsigned)(NS_S_HAS_WRITE | NS_S_GROW_ONLY);
	uint8_t acl[NS_ACL_REC_MAX];
	struct ns_inode i;
	struct ns_sum was = {0};
	bool counts;
	uint32_t uid;
	int err;

	err = ns_get(ns, t, ino, &i);
	if (err)
		return err;
	err = ns_setattr_check(&i, s, cr);
	if (err)
		return err;
	if ((what & NS_S_SIZE) && (s->s_mask & NS_S_GROW_ONLY) && s->s_size <= i.i_size)
		what &= ~(unsigned)NS_S_SIZE;
	if (!what) {
		ns_inode_give(ns, &i, out);
		return 0;
	}
	counts = what & (NS_S_SIZE | NS_S_USED | NS_S_UID);
	if (counts)
		was = ns_sum_of(&i);
	uid = i.i_uid;
	if (what & NS_S_MODE)
		set_mode(&i, s, cr, what & NS_S_GID ? s->s_gid : i.i_gid);
	/* A change of owner clears the set-id bits, also for a privileged user (Linux's
	 * chown_common). */
	if ((what & (NS_S_UID | NS_S_GID)) && i.i_type != NS_DIR && cr) {
		i.i_mode = drop_sugid(&i, cr, i.i_mode) & (uint16_t)~S_ISUID;
		if (i.i_mode & S_IXGRP)
			i.i_mode &= (uint16_t)~S_ISGID;
	}
	if (what & NS_S_SIZE) {
		i.i_mode = drop_sugid(&i, cr, i.i_mode);
		i.i_size = i.i_used = s->s_size;
		i.i_mtime = now;
	}
	if (what & NS_S_USED)
		i.i_used = s->s_used;
	if (what & (NS_S_MODE | NS_S_ACL))
		set_acl(&i, s, acl);
	if (what & NS_S_UID)
		i.i_uid = s->s_uid;
	if (what & NS_S_GID)
		i.i_gid = s->s_gid;
	if (what & NS_S_VERIFIER)
		i.i_verifier = s->s_verifier;
	set_times(&i, s, now);
	if (!is_touch_of_atime(s, cr)) {
		i.i_ctime = now;
		i.i_change++;
	}
	ns_inode_give(ns, &i, out);
	err = ns_inode_put(t, out);
	return err || !counts ? err : ns_sum_changed(ns, t, out, &was, uid);
}

int ns_deleg_times(struct ns *ns, struct kv_txn *t, uint64_t ino, const struct ns_time *atime,
		   const struct ns_time *mtime, bool written, struct ns_time now)
{
	struct ns_inode i, out;
	bool changed = written;
	int err;

	err = ns_get(ns, t, ino, &i);
	if (err)
		return err;
	if (atime && ns_time_after(atime, &i.i_atime)) {
		i.i_atime = ns_time_after(atime, &now) ? now : *atime;
		changed = true;
	}
	if (mtime && ns_time_after(mtime, &i.i_mtime)) {
		i.i_mtime = ns_time_after(mtime, &now) ? now : *mtime;
		if (ns_time_after(&i.i_mtime, &i.i_ctime))
			i.i_ctime = i.i_mtime;
		written = changed = true;
	}
	if (written)
		i.i_change++;
	if (!changed)
		return 0;
	ns_inode_give(ns, &i, &out);
	return ns_inode_put(t, &out);
}

int ns_accessed(struct ns *ns, struct kv_txn *t, uint64_t ino, struct ns_time at)
{
	struct ns_inode i, out;
	int err = ns_get(ns, t, ino, &i);

	if (err || !ns_atime_due(&i, &at) || ns_time_after(&i.i_ctime, &at) ||
	    !ns_time_after(&at, &i.i_atime))
		return err;
	i.i_atime = at;
	ns_inode_give(ns, &i, &out);
	err = ns_inode_put(t, &out);
	return err ? err : 1;
}

/* Puts an inode with a new blob, which may keep another number of copies. */
static int blob_put(struct ns *ns, struct kv_txn *t, struct ns_inode *i, const struct ns_sum *was)
{
	struct ns_sum is = ns_sum_of(i);
	int err = ns_inode_put(t, i);

	return err || ns_sum_same(&is, was) ? err : ns_sum_changed(ns, t, i, was, i->i_uid);
}

int ns_set_blob(struct ns *ns, struct kv_txn *t, uint64_t ino, const void *blob, size_t len,
		bool policy, struct ns_time now)
{
	struct ns_inode i;
	struct ns_sum was;
	int err;

	err = ns_get(ns, t, ino, &i);
	if (err)
		return err;
	if (policy && i.i_type != NS_DIR)
		return -ENOTDIR;
	if (!policy && i.i_type != NS_REG)
		return i.i_type == NS_DIR ? -EISDIR : -EINVAL;
	if (len > NS_BLOB_MAX)
		return -E2BIG;
	was = ns_sum_of(&i);
	i.i_blob = ns_slice(blob, len);
	i.i_has_policy = policy && len > 0;
	i.i_ctime = now;
	i.i_change++;
	return blob_put(ns, t, &i, &was);
}

int ns_set_blob_quietly(struct ns *ns, struct kv_txn *t, uint64_t ino, const void *blob, size_t len)
{
	struct ns_inode i;
	struct ns_sum was;
	int err = ns_get(ns, t, ino, &i);

	if (err)
		return err;
	if (i.i_type != NS_REG || len > NS_BLOB_MAX)
		return -EINVAL;
	was = ns_sum_of(&i);
	i.i_blob = ns_slice(blob, len);
	return blob_put(ns, t, &i, &was);
}

int ns_place_again(struct ns *ns, struct kv_txn *t, uint64_t ino, const void *blob, size_t len,
		   struct ns_inode *out)
{
	struct ns_inode i;
	struct ns_sum was;
	int err = ns_get(ns, t, ino, &i);

	if (err)
		return err;
	if (i.i_type != NS_REG || len > NS_BLOB_MAX)
		return -EINVAL;
	was = ns_sum_of(&i);
	if (i.i_incarnation > UINT16_MAX - NS_PLACED_AGAIN)
		return -EMFILE;
	i.i_incarnation += NS_PLACED_AGAIN;
	i.i_blob = ns_slice(blob, len);
	ns_inode_give(ns, &i, out);
	return blob_put(ns, t, out, &was);
}

/* Reads one record per level, up to the policy: paths are short and their records hot. */
int ns_policy(struct ns *ns, struct kv_txn *t, uint64_t dir, struct kv_slice *policy)
{
	struct ns_inode i;
	int err;

	for (unsigned up = 0; up <= NS_POLICY_UP; up++) {
		err = ns_get(ns, t, dir, &i);
		if (err)
			return err;
		if (i.i_type != NS_DIR)
			return -ENOTDIR;
		if (i.i_has_policy || dir == NS_ROOT_INO)
			break;
		/* A very deep directory must not slow down other users, so go on at the root. */
		dir = up < NS_POLICY_UP - 1 ? i.i_parent : NS_ROOT_INO;
	}
	*policy = i.i_blob;
	return 0;
}
