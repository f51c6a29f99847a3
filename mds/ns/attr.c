/* Inodes: reading, permission, attributes, blobs and policies. */
#include "mds/ns/keys.h"
#include "base/log.h"
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

int ns_hold(struct ns *ns, struct kv_txn *t, uint64_t ino, struct ns_held *h)
{
	int err;

	err = ns_get(ns, t, ino, &h->h_i);
	if (err)
		return err;
	memcpy(h->h_blob, h->h_i.i_blob.s_data, h->h_i.i_blob.s_len);
	h->h_i.i_blob.s_data = h->h_blob;
	return 0;
}

int ns_hold_dir(struct ns *ns, struct kv_txn *t, uint64_t ino, struct ns_held *h)
{
	int err;

	err = ns_hold(ns, t, ino, h);
	if (err)
		return err;
	return h->h_i.i_type == NS_DIR ? 0 : -ENOTDIR;
}

void ns_give(struct ns *ns, const struct ns_inode *i, struct ns_inode *out)
{
	*out = *i;
	if (i->i_blob.s_len)
		memcpy(ns->n_blob, i->i_blob.s_data, i->i_blob.s_len);
	out->i_blob.s_data = ns->n_blob;
}

int ns_inode_put(struct kv_txn *t, const struct ns_inode *i)
{
	uint8_t k[NS_KEY_INODE], buf[NS_INODE_VAL_MAX];

	return kv_put(t, ns_key_ino(k, NS_K_INODE, i->i_ino),
		      ns_slice(buf, ns_inode_encode(i, buf)));
}

int ns_permission(const struct ns_inode *i, const struct ns_cred *cr, unsigned rwx)
{
	unsigned bits;

	if (!cr)
		return 0;
	if (cr->cr_uid == 0)
		return (rwx & 1) && i->i_type != NS_DIR && !(i->i_mode & 0111) ? -EACCES : 0;
	if (cr->cr_uid == i->i_uid)
		bits = i->i_mode >> 6;
	else if (ns_in_group(cr, i->i_gid))
		bits = i->i_mode >> 3;
	else
		bits = i->i_mode;
	return rwx & ~bits & 7 ? -EACCES : 0;
}

static bool privileged(const struct ns_cred *cr)
{
	return !cr || cr->cr_uid == 0;
}

/* Linux's setattr_should_drop_suidgid: what a write by, or a change of owner asked by, someone
 * without privilege leaves of a mode. The set-group-id bit without group execute once meant
 * mandatory locking; it stays with members of the group. */
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
	if (s->s_mask & NS_S_SIZE) {
		if (i->i_type == NS_DIR)
			return -EISDIR;
		if (i->i_type != NS_REG || s->s_size > INT64_MAX)
			return -EINVAL;
	}
	return 0;
}

/* Linux's setattr_prepare and notify_change, permissions only. */
static int setattr_allowed(const struct ns_inode *i, const struct ns_setattr *s,
			   const struct ns_cred *cr)
{
	bool owner = ns_is_owner(i, cr);

	if (privileged(cr))
		return 0;
	if ((s->s_mask & NS_S_UID) && !(owner && s->s_uid == i->i_uid))
		return -EPERM;
	if ((s->s_mask & NS_S_GID) &&
	    !(owner && (s->s_gid == i->i_gid || ns_in_group(cr, s->s_gid))))
		return -EPERM;
	if ((s->s_mask & (NS_S_MODE | NS_S_ATIME | NS_S_MTIME | NS_S_VERIFIER)) && !owner)
		return -EPERM;
	if ((s->s_mask & NS_S_SIZE) && !(s->s_mask & NS_S_HAS_WRITE) && ns_permission(i, cr, 2))
		return -EACCES;
	if ((s->s_mask & (NS_S_ATIME_NOW | NS_S_MTIME_NOW)) && !owner && ns_permission(i, cr, 2))
		return -EACCES;
	return 0;
}

int ns_setattr_check(const struct ns_inode *i, const struct ns_setattr *s, const struct ns_cred *cr)
{
	int err = setattr_valid(i, s);

	return err ? err : setattr_allowed(i, s, cr);
}

uint16_t ns_mode_written(const struct ns_inode *i, const struct ns_cred *cr)
{
	return i->i_type == NS_REG ? drop_sugid(i, cr, i->i_mode) : i->i_mode;
}

static void set_mode(struct ns_inode *i, const struct ns_setattr *s, const struct ns_cred *cr,
		     uint32_t gid)
{
	i->i_mode = s->s_mode;
	if (!privileged(cr) && !ns_in_group(cr, gid))
		i->i_mode &= (uint16_t)~S_ISGID;
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
}

/* The server noting an access (cr NULL, access time alone) is no change of the file: neither ctime
 * nor change move. */
static bool is_touch_of_atime(const struct ns_setattr *s, const struct ns_cred *cr)
{
	return !cr && !(s->s_mask & ~(NS_S_ATIME | NS_S_ATIME_NOW));
}

/* A size that is set counts as a modification even when it is the same (ftruncate), unless it may
 * only grow and does not. out->i_blob is good until the next W function. Nothing to do (no bit, or
 * no growth): 0, and nothing is written. */
int ns_setattr(struct ns *ns, struct kv_txn *t, uint64_t ino, const struct ns_setattr *s,
	       const struct ns_cred *cr, struct ns_time now, struct ns_inode *out)
{
	unsigned what = s->s_mask & ~(unsigned)(NS_S_HAS_WRITE | NS_S_GROW_ONLY);
	struct ns_inode i;
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
		ns_give(ns, &i, out);
		return 0;
	}
	if (what & NS_S_MODE)
		set_mode(&i, s, cr, what & NS_S_GID ? s->s_gid : i.i_gid);
	/* A change of owner takes the set-id bits whoever asks for it (Linux's chown_common). */
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
	ns_give(ns, &i, out);
	return ns_inode_put(t, out);
}

static bool time_after(const struct ns_time *a, const struct ns_time *b)
{
	return a->t_sec != b->t_sec ? a->t_sec > b->t_sec : a->t_nsec > b->t_nsec;
}

int ns_deleg_times(struct ns *ns, struct kv_txn *t, uint64_t ino, const struct ns_time *atime,
		   const struct ns_time *mtime, struct ns_time now)
{
	struct ns_inode i, out;
	bool changed = false;
	int err;

	err = ns_get(ns, t, ino, &i);
	if (err)
		return err;
	if (atime && time_after(atime, &i.i_atime)) {
		i.i_atime = time_after(atime, &now) ? now : *atime;
		changed = true;
	}
	if (mtime && time_after(mtime, &i.i_mtime)) {
		i.i_mtime = time_after(mtime, &now) ? now : *mtime;
		if (time_after(&i.i_mtime, &i.i_ctime))
			i.i_ctime = i.i_mtime;
		i.i_change++;
		changed = true;
	}
	if (!changed)
		return 0;
	ns_give(ns, &i, &out);
	return ns_inode_put(t, &out);
}

int ns_set_blob(struct ns *ns, struct kv_txn *t, uint64_t ino, const void *blob, size_t len,
		bool policy, struct ns_time now)
{
	struct ns_inode i;
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
	i.i_blob = ns_slice(blob, len);
	i.i_has_policy = policy && len > 0;
	i.i_ctime = now;
	i.i_change++;
	return ns_inode_put(t, &i);
}

/* One read per level up to the policy: paths are short and their records hot. */
int ns_policy(struct ns *ns, struct kv_txn *t, uint64_t dir, struct kv_slice *policy)
{
	struct ns_inode i;
	int err;

	for (unsigned depth = 0; depth < NS_DEPTH_MAX; depth++) {
		err = ns_get(ns, t, dir, &i);
		if (err)
			return err;
		if (i.i_type != NS_DIR)
			return -ENOTDIR;
		if (i.i_has_policy || dir == NS_ROOT_INO) {
			*policy = i.i_blob;
			return 0;
		}
		dir = i.i_parent;
	}
	return -EIO;
}
