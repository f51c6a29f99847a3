/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op_attr.h - attributes: from the arguments of an operation, and into its results (RFC 8881
 * sections 3.3 and 5).
 */
#ifndef MDS_NFS4_OP_ATTR_H
#define MDS_NFS4_OP_ATTR_H
#include "mds/nfs4/op.h"

/* see op_attr.c */
struct op_bitmap {
	uint32_t w[NFS4_ATTRS_WORDS];
};
static inline bool op_bit(const struct op_bitmap *b, unsigned n)
{
	return b->w[n / 32] >> (n % 32) & 1;
}
static inline void op_bit_set(struct op_bitmap *b, unsigned n)
{
	b->w[n / 32] |= 1u << (n % 32);
}
void op_get_bitmap(struct xdr_in *x, struct op_bitmap *b, bool *extra);
void op_put_bitmap(struct xdr_out *x, const struct op_bitmap *b);
/* Puts the inode's attributes of want as a fattr4. */
void op_put_attrs(struct compound *c, struct xdr_out *x, const struct op_bitmap *want,
		  const struct ns_inode *i);
extern const struct op_bitmap op_attrs_exclcreat;
/* The settable attributes of a fattr4 from the arguments, with the mask of mode_umask applied. set:
 * the attributes that were asked for. */
struct op_sattr {
	struct ns_setattr s;
	struct op_bitmap set;
	/* Only the times that a delegation's holder kept: s_atime and s_mtime, where s_mask has
	 * them. */
	bool deleg_times;
	bool has_size, has_umask;
	uint32_t mirrors; /* of layout_hint; 0: none */
	uint16_t umask;	  /* of mode_umask (RFC 8275) */
};
/* Fills in the part of ns_create's arguments that comes from attributes: mode (fallback if none was
 * given), owner, group, times, ACL. */
nfsstat4 op_sattr_create(const struct compound *c, const struct op_sattr *sa, uint16_t fallback,
			 struct ns_create_args *a);
/* op_acl.c: op_get_acl decodes acl, or dacl, of a settable fattr4 into c->acl; op_put_acl puts
 * it. */
nfsstat4 op_get_acl(struct compound *c, struct xdr_in *x, bool dacl, struct ns_acl **out);
void op_put_acl(struct compound *c, struct xdr_out *x, const struct ns_inode *i, bool dacl);
/* If want has an ACL attribute: may the caller read the ACL? OK or ACCESS. */
nfsstat4 op_acl_readable(const struct compound *c, const struct op_bitmap *want,
			 const struct ns_inode *i);
/* op_attr.c: INVAL if want has an attribute that can only be set (RFC 8881 section 18.7.3). */
nfsstat4 op_want_status(const struct compound *c, const struct op_bitmap *want);
nfsstat4 op_get_sattr(struct compound *c, struct xdr_in *x, struct op_sattr *a, bool create);
/* Does a GETATTR of these attributes need the data servers while a write layout is out? */
bool op_attrs_need_ds(const struct op_bitmap *b);
/* A client that may read i has read it: its access time is set later, unless its export is for
 * reading only (jobs/access_times.h). Call it on the compound's loop. */
void op_accessed(struct compound *c, const struct ns_inode *i);
/* setattr.c: brings the inode's size, change attribute and mtime up to date from the data servers,
 * and goes on with next: at once, with err 0, if there is nothing to ask. force: even if no write
 * layout is out. */
nfsstat4 op_refresh(struct compound *c, uint64_t ino, bool force, op_step *next);
/* The same for a caller that goes on in another way where nothing is asked. True: it has begun, and
 * calls op_wake. unmark: see file_refresh. */
bool op_refresh_begin(struct compound *c, uint64_t ino, bool force, bool unmark);
/* setattr.c: sets attributes of ino. If the size shrinks or a right is taken, recalls and fences
 * layouts and waits for orders. Then goes on with the step then. */
nfsstat4 op_do_setattr(struct compound *c, uint64_t ino, const struct op_sattr *a, bool have_write,
		       op_put_fn put, op_step *then);
/* Returns the file system's space in bytes, summed over the data servers that live. */
void op_space(struct mds *m, uint64_t *total, uint64_t *avail);
void op_put_cinfo(struct xdr_out *x, const struct ns_cinfo *ci);
/* Is this the name of a virtual xattr? */
bool op_xattr_virtual(const char *name, size_t len);
/* Does it begin with weft. and mean nothing? Then it cannot be set; why says so. */
bool op_xattr_reserved(const char *name, size_t len);
void op_xattr_reserved_why(const char *name, size_t len, char *why, size_t max);
#endif
