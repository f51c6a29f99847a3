/* SPDX-License-Identifier: Apache-2.0 */
/* ns_acl.c - ACLs (RFC 8881 chapter 6): their stored form, their evaluation, and how mode and ACL
 * follow each other. */
#include "mds/namespace/keys.h"
#include <errno.h>

/* The rights that a mode's r, w and x stand for. A directory's w also allows the removal of
 * names. */
#define R_RIGHTS (NS_R_READ | NS_R_READ_XATTRS)
#define W_RIGHTS (NS_R_WRITE | NS_R_APPEND | NS_R_WRITE_XATTRS)
#define X_RIGHTS NS_R_EXECUTE
#define W_DIR	 (W_RIGHTS | NS_R_DELETE_CHILD)
/* The rights of every user, and those of the owner, whatever the mode. */
#define ALL_HAVE    (NS_R_READ_ATTRS | NS_R_READ_ACL | NS_R_SYNCHRONIZE)
#define OWNER_HAS   (ALL_HAVE | NS_R_WRITE_ATTRS | NS_R_WRITE_ACL | NS_R_WRITE_OWNER)
#define INHERITS    (NS_ACE_FILE | NS_ACE_DIR)
#define INHERITANCE (INHERITS | NS_ACE_NO_PROPAGATE | NS_ACE_INHERIT_ONLY)

static struct ns_ace ace_at(struct kv_slice rec, unsigned n)
{
	struct ns_ace_rec r;

	memcpy(&r, (const uint8_t *)rec.s_data + sizeof(struct ns_acl_rec) + n * sizeof(r),
	       sizeof(r));
	return (struct ns_ace){.ace_type = r.acr_type,
			       .ace_who = r.acr_who,
			       .ace_flags = le16toh(r.acr_flags),
			       .ace_mask = le32toh(r.acr_mask),
			       .ace_id = le32toh(r.acr_id)};
}

static unsigned ace_count(struct kv_slice rec)
{
	return rec.s_len ? (unsigned)((rec.s_len - sizeof(struct ns_acl_rec)) /
				      sizeof(struct ns_ace_rec))
			 : 0;
}

size_t ns_acl_rec_len(const uint8_t *p, size_t max, uint8_t type)
{
	struct ns_acl_rec h;
	size_t len;

	if (type == NS_LNK || max < sizeof(h))
		return 0;
	memcpy(&h, p, sizeof(h));
	if (h.alr_version != NS_VERSION ||
	    (h.alr_flags & ~(NS_ACL_AUTO | NS_ACL_PROTECTED | NS_ACL_DEFAULTED)) ||
	    le16toh(h.alr_n) > NS_ACL_MAX)
		return 0;
	len = sizeof(h) + le16toh(h.alr_n) * sizeof(struct ns_ace_rec);
	if (len > max)
		return 0;
	for (unsigned n = 0; n < le16toh(h.alr_n); n++) {
		struct ns_ace e = ace_at(ns_slice(p, len), n);

		if (e.ace_type > NS_ACE_DENY || e.ace_who > NS_WHO_GID ||
		    (e.ace_who < NS_WHO_UID && e.ace_id) ||
		    (e.ace_flags & ~(INHERITANCE | NS_ACE_INHERITED)) || (e.ace_mask & ~NS_R_ALL) ||
		    (type != NS_DIR && (e.ace_flags & INHERITANCE)))
			return 0;
	}
	return len;
}

void ns_acl_decode(struct kv_slice rec, struct ns_acl *out)
{
	out->acl_n = ace_count(rec);
	out->acl_flags = rec.s_len ? ((const uint8_t *)rec.s_data)[1] : 0;
	for (unsigned n = 0; n < out->acl_n; n++)
		out->acl_ace[n] = ace_at(rec, n);
}

struct kv_slice ns_acl_encode(const struct ns_acl *a, uint8_t buf[NS_ACL_REC_MAX])
{
	struct ns_acl_rec h = {.alr_version = NS_VERSION,
			       .alr_flags = (uint8_t)a->acl_flags,
			       .alr_n = htole16((uint16_t)a->acl_n)};
	uint8_t *p = buf + sizeof(h);

	memcpy(buf, &h, sizeof(h));
	for (unsigned n = 0; n < a->acl_n; n++, p += sizeof(struct ns_ace_rec)) {
		const struct ns_ace *e = &a->acl_ace[n];
		struct ns_ace_rec r = {.acr_type = e->ace_type,
				       .acr_who = e->ace_who,
				       .acr_flags = htole16(e->ace_flags),
				       .acr_mask = htole32(e->ace_mask),
				       .acr_id = htole32(e->ace_id)};

		memcpy(p, &r, sizeof(r));
	}
	return ns_slice(buf, (size_t)(p - buf));
}

static bool ace_is_for(const struct ns_ace *e, const struct ns_inode *i, const struct ns_cred *cr)
{
	switch (e->ace_who) {
	case NS_WHO_OWNER:
		return cr->cr_uid == i->i_uid;
	case NS_WHO_GROUP:
		return ns_in_group(cr, i->i_gid);
	case NS_WHO_UID:
		return cr->cr_uid == e->ace_id;
	case NS_WHO_GID:
		return ns_in_group(cr, e->ace_id);
	default:
		return true;
	}
}

/* Section 6.2.1: ACEs count in order, and the first ACE that names a right decides it. */
uint32_t ns_acl_eval(const struct ns_inode *i, const struct ns_cred *cr, uint32_t want,
		     uint32_t *denied)
{
	uint32_t allowed = 0, left = want;
	unsigned count = ace_count(i->i_acl);

	*denied = 0;
	for (unsigned n = 0; n < count && left; n++) {
		struct ns_ace e = ace_at(i->i_acl, n);

		if ((e.ace_flags & NS_ACE_INHERIT_ONLY) || !(e.ace_mask & left) ||
		    !ace_is_for(&e, i, cr))
			continue;
		if (e.ace_type == NS_ACE_ALLOW)
			allowed |= e.ace_mask & left;
		else
			*denied |= e.ace_mask & left;
		left &= ~e.ace_mask;
	}
	return allowed;
}

bool ns_acl_executable(const struct ns_inode *i)
{
	unsigned count = ace_count(i->i_acl);

	for (unsigned n = 0; n < count; n++) {
		struct ns_ace e = ace_at(i->i_acl, n);

		if (e.ace_type == NS_ACE_ALLOW && !(e.ace_flags & NS_ACE_INHERIT_ONLY) &&
		    (e.ace_mask & NS_R_EXECUTE))
			return true;
	}
	return false;
}

/* Returns as three mode bits what the ACEs of one special identifier and of EVERYONE@ grant
 * together. */
static unsigned ns_acl_mode_of(const struct ns_acl *a, unsigned who)
{
	uint32_t allowed = 0, decided = 0;

	for (unsigned n = 0; n < a->acl_n; n++) {
		const struct ns_ace *e = &a->acl_ace[n];

		if ((e->ace_flags & NS_ACE_INHERIT_ONLY) ||
		    (e->ace_who != who && e->ace_who != NS_WHO_EVERYONE))
			continue;
		if (e->ace_type == NS_ACE_ALLOW)
			allowed |= e->ace_mask & ~decided;
		decided |= e->ace_mask;
	}
	return (allowed & NS_R_READ ? 4u : 0) | (~allowed & (NS_R_WRITE | NS_R_APPEND) ? 0 : 2u) |
	       (allowed & NS_R_EXECUTE ? 1u : 0);
}

uint16_t ns_acl_mode(const struct ns_acl *a)
{
	return (uint16_t)(ns_acl_mode_of(a, NS_WHO_OWNER) << 6 |
			  ns_acl_mode_of(a, NS_WHO_GROUP) << 3 |
			  ns_acl_mode_of(a, NS_WHO_EVERYONE));
}

static uint32_t rights_of(unsigned rwx, bool dir)
{
	return (rwx & 4 ? R_RIGHTS : 0) | (rwx & 2 ? dir ? W_DIR : W_RIGHTS : 0) |
	       (rwx & 1 ? X_RIGHTS : 0);
}

static void ace_add(struct ns_acl *a, unsigned type, unsigned who, uint32_t mask)
{
	if (mask && a->acl_n < NS_ACL_MAX)
		a->acl_ace[a->acl_n++] = (struct ns_ace){
			.ace_type = (uint8_t)type, .ace_who = (uint8_t)who, .ace_mask = mask};
}

/* Adds the owner's ACEs. They come before all others, so that no other user's ACE gives the owner
 * what the mode denies the owner. */
static void add_owner(struct ns_acl *a, uint16_t mode, bool dir, uint32_t more)
{
	unsigned u = mode >> 6 & 7, g = mode >> 3 & 7, o = mode & 7;

	ace_add(a, NS_ACE_DENY, NS_WHO_OWNER, rights_of((g | o) & ~u, dir));
	ace_add(a, NS_ACE_ALLOW, NS_WHO_OWNER, rights_of(u, dir) | more);
}

static void add_others(struct ns_acl *a, uint16_t mode, bool dir, uint32_t more)
{
	unsigned g = mode >> 3 & 7, o = mode & 7;

	ace_add(a, NS_ACE_DENY, NS_WHO_GROUP, rights_of(o & ~g, dir));
	ace_add(a, NS_ACE_ALLOW, NS_WHO_GROUP, rights_of(g, dir) | more);
	ace_add(a, NS_ACE_ALLOW, NS_WHO_EVERYONE, rights_of(o, dir) | more);
}

void ns_acl_of_mode(uint16_t mode, bool dir, struct ns_acl *out)
{
	out->acl_flags = out->acl_n = 0;
	add_owner(out, mode, dir, OWNER_HAS);
	add_others(out, mode, dir, ALL_HAVE);
}

/*
 * Sets a mode. The rights that a mode stands for are removed from the ACEs of the special
 * identifiers, and new ACEs grant them. Named users and groups keep these rights, up to those of
 * the group. Other rights stay, and so do the DENY ACEs of named users and groups and ACEs that are
 * only inherited.
 *
 * An ACE that applies here and is also inherited by new files is split, so that what new files
 * inherit does not change. Where there is no room for the split, new files inherit the changed ACE.
 */
void ns_acl_set_mode(struct ns_acl *a, uint16_t mode, uint16_t named, bool dir)
{
	const uint32_t all = rights_of(7, dir), bound = rights_of(named >> 3 & 7, dir);
	struct ns_acl out = {.acl_flags = a->acl_flags};
	unsigned left = a->acl_n, own;

	add_owner(&out, mode, dir, 0);
	own = out.acl_n;
	for (unsigned n = 0; n < a->acl_n; n++) {
		struct ns_ace e = a->acl_ace[n], was = e;

		left--;
		if (!(e.ace_flags & NS_ACE_INHERIT_ONLY)) {
			if (e.ace_who < NS_WHO_UID)
				e.ace_mask &= ~all;
			else if (e.ace_type == NS_ACE_ALLOW)
				e.ace_mask &= ~(all & ~bound);
		}
		if (e.ace_mask != was.ace_mask && (e.ace_flags & NS_ACE_INHERITED))
			out.acl_flags |= NS_ACL_PROTECTED; /* section 6.4.3.2 */
		if (e.ace_mask != was.ace_mask && (e.ace_flags & INHERITS) &&
		    out.acl_n - own + 2 + left <= NS_ACL_SET_MAX) {
			was.ace_flags |= NS_ACE_INHERIT_ONLY;
			out.acl_ace[out.acl_n++] = was;
			e.ace_flags &= (uint16_t)~INHERITANCE;
		}
		if (!e.ace_mask)
			continue;
		/* There are more ACEs than can have been set: section 6.4.1.1 allows the server to
		 * discard the ACL. */
		if (out.acl_n - own >= NS_ACL_SET_MAX) {
			ns_acl_of_mode(mode, dir, a);
			return;
		}
		out.acl_ace[out.acl_n++] = e;
	}
	add_others(&out, mode, dir, 0);
	*a = out;
}

bool ns_acl_inherit(struct kv_slice parent, bool dir, struct ns_acl *out)
{
	unsigned count = ace_count(parent);

	out->acl_n = 0;
	out->acl_flags = parent.s_len ? ((const uint8_t *)parent.s_data)[1] & NS_ACL_AUTO : 0;
	for (unsigned n = 0; n < count; n++) {
		struct ns_ace e = ace_at(parent, n);

		if (!(e.ace_flags & (dir ? INHERITS : NS_ACE_FILE)))
			continue;
		if (!dir || (e.ace_flags & NS_ACE_NO_PROPAGATE)) {
			if (dir && !(e.ace_flags & NS_ACE_DIR))
				continue;
			e.ace_flags = 0;
		} else if (e.ace_flags & NS_ACE_DIR) {
			e.ace_flags &= INHERITS;
		} else {
			e.ace_flags = NS_ACE_FILE | NS_ACE_INHERIT_ONLY;
		}
		e.ace_flags |= NS_ACE_INHERITED;
		out->acl_ace[out->acl_n++] = e;
	}
	return out->acl_n > 0;
}

int ns_acl_fits(const struct ns_acl *a, uint8_t type)
{
	if (type == NS_LNK)
		return -EPROTONOSUPPORT;
	for (unsigned n = 0; n < a->acl_n && type != NS_DIR; n++) {
		if (a->acl_ace[n].ace_flags & INHERITANCE)
			return -EPROTONOSUPPORT;
	}
	return 0;
}

bool ns_acl_same(const struct ns_acl *a, const struct ns_acl *b)
{
	if (a->acl_n != b->acl_n || a->acl_flags != b->acl_flags)
		return false;
	for (unsigned n = 0; n < a->acl_n; n++) {
		const struct ns_ace *x = &a->acl_ace[n], *y = &b->acl_ace[n];

		if (x->ace_type != y->ace_type || x->ace_who != y->ace_who ||
		    x->ace_flags != y->ace_flags || x->ace_mask != y->ace_mask ||
		    x->ace_id != y->ace_id)
			return false;
	}
	return true;
}

void ns_acl_get(const struct ns_inode *i, struct ns_acl *out)
{
	if (i->i_acl.s_len)
		ns_acl_decode(i->i_acl, out);
	else
		ns_acl_of_mode(i->i_mode, i->i_type == NS_DIR, out);
}
