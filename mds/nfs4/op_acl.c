/* SPDX-License-Identifier: Apache-2.0 */
/* ACLs on the wire (RFC 8881 sections 6.2.1 to 6.2.3): acl and dacl. There are no ALARM and AUDIT
 * entries, and so no sacl. */
#include "mds/nfs4/state_protect.h"
#include "mds/nfs4/op_attr.h"
#include <errno.h>

#define ACE_GROUP 0x40 /* ACE4_IDENTIFIER_GROUP */
#define ACE_FLAGS_SET                                                                              \
	(NS_ACE_FILE | NS_ACE_DIR | NS_ACE_NO_PROPAGATE | NS_ACE_INHERIT_ONLY | NS_ACE_INHERITED | \
	 ACE_GROUP)
#define ACE_MIN 16 /* nfsace4 at its shortest */

static const char *const special[] = {
	[NS_WHO_OWNER] = "OWNER@", [NS_WHO_GROUP] = "GROUP@", [NS_WHO_EVERYONE] = "EVERYONE@"};
/* Other names of section 6.2.1.5: the server cannot know whether a user is one of these. */
static const char *const unknown[] = {"INTERACTIVE@", "NETWORK@",	"DIALUP@", "BATCH@",
				      "ANONYMOUS@",   "AUTHENTICATED@", "SERVICE@"};

static bool who_is(const uint8_t *p, uint32_t len, const char *name)
{
	return len == strlen(name) && memcmp(p, name, len) == 0;
}

static nfsstat4 get_who(struct compound *c, const uint8_t *p, uint32_t len, bool group,
			struct ns_ace *e)
{
	for (unsigned w = 0; w < sizeof(special) / sizeof(*special); w++) {
		if (who_is(p, len, special[w])) {
			e->ace_who = (uint8_t)w;
			return NFS4_OK;
		}
	}
	for (unsigned w = 0; w < sizeof(unknown) / sizeof(*unknown); w++) {
		if (who_is(p, len, unknown[w]))
			return NFS4ERR_ATTRNOTSUPP;
	}
	e->ace_who = group ? NS_WHO_GID : NS_WHO_UID;
	return op_get_who(c, p, len, group, &e->ace_id);
}

/* Decodes all of it. Refuses what cannot be stored, or would not be enforced (section 6.2.1.2). */
static nfsstat4 get_ace(struct compound *c, struct xdr_in *x, bool dacl, struct ns_ace *e)
{
	uint32_t type = xdr_get_u32(x), flags = xdr_get_u32(x), mask = xdr_get_u32(x), len;
	const uint8_t *who = xdr_get_opaque(x, NFS4_OPAQUE_LIMIT, &len);

	if (x->bad)
		return NFS4ERR_BADXDR;
	if (type > NS_ACE_DENY || flags & ~(uint32_t)ACE_FLAGS_SET || mask & ~(uint32_t)NS_R_ALL)
		return NFS4ERR_ATTRNOTSUPP;
	if ((flags & NS_ACE_INHERIT_ONLY) && !(flags & (NS_ACE_FILE | NS_ACE_DIR)))
		return NFS4ERR_ATTRNOTSUPP;
	/* Every user may read attributes, as with stat(2). So a DENY of that is refused, and not
	 * stored in vain (section 6.2.1). */
	if (type == NS_ACE_DENY && (mask & NS_R_READ_ATTRS))
		return NFS4ERR_ATTRNOTSUPP;
	*e = (struct ns_ace){.ace_type = (uint8_t)type,
			     .ace_flags = (uint16_t)(flags & ~(uint32_t)ACE_GROUP),
			     .ace_mask = mask};
	if (!dacl) /* section 6.2.1.4.1 */
		e->ace_flags &= (uint16_t)~NS_ACE_INHERITED;
	return get_who(c, who, len, flags & ACE_GROUP, e);
}

nfsstat4 op_get_acl(struct compound *c, struct xdr_in *x, bool dacl, struct ns_acl **out)
{
	uint32_t flags = dacl ? xdr_get_u32(x) : NS_ACL_PROTECTED /* section 6.4.3.2 */,
		 n = xdr_get_u32(x);
	nfsstat4 st = NFS4_OK, st2;
	struct ns_acl *a;

	if (x->bad || n > xdr_left(x) / ACE_MIN)
		return NFS4ERR_BADXDR;
	if (flags & ~(uint32_t)(NS_ACL_AUTO | NS_ACL_PROTECTED | NS_ACL_DEFAULTED))
		return NFS4ERR_INVAL;
	if (n > NS_ACL_SET_MAX)
		return NFS4ERR_NOSPC;
	if (c->acl) /* acl and dacl in one request (section 6.4.1) */
		return NFS4ERR_ATTRNOTSUPP;
	a = c->acl = malloc(sizeof(*a));
	if (!a)
		return NFS4ERR_DELAY;
	a->acl_flags = flags;
	a->acl_n = n;
	for (uint32_t i = 0; i < n; i++) {
		st2 = get_ace(c, x, dacl, &a->acl_ace[i]);
		if (st2 == NFS4ERR_BADXDR)
			return st2;
		st = st ? st : st2;
	}
	*out = a;
	return st;
}

static void put_ace(struct compound *c, struct xdr_out *x, const struct ns_ace *e, bool dacl)
{
	uint32_t flags = e->ace_flags;

	if (!dacl)
		flags &= ~(uint32_t)NS_ACE_INHERITED;
	if (e->ace_who == NS_WHO_GID)
		flags |= ACE_GROUP;
	xdr_put_u32(x, e->ace_type);
	xdr_put_u32(x, flags);
	xdr_put_u32(x, e->ace_mask);
	if (e->ace_who <= NS_WHO_EVERYONE)
		xdr_put_opaque(x, special[e->ace_who], (uint32_t)strlen(special[e->ace_who]));
	else
		op_put_who(c, x, e->ace_id, e->ace_who == NS_WHO_GID);
}

void op_put_acl(struct compound *c, struct xdr_out *x, const struct ns_inode *i, bool dacl)
{
	struct ns_acl a;

	ns_acl_get(i, &a);
	if (dacl)
		xdr_put_u32(x, a.acl_flags);
	xdr_put_u32(x, a.acl_n);
	for (uint32_t n = 0; n < a.acl_n; n++)
		put_ace(c, x, &a.acl_ace[n], dacl);
}

nfsstat4 op_acl_readable(const struct compound *c, const struct op_bitmap *want,
			 const struct ns_inode *i)
{
	if (!i->i_acl.s_len || !(op_bit(want, FATTR4_ACL) || op_bit(want, FATTR4_DACL)))
		return NFS4_OK;
	return op_status(ns_access(i, &c->cred, NS_R_READ_ACL));
}
