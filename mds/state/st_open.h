/* SPDX-License-Identifier: Apache-2.0 */
/* st_open.h - opens and share reservations (RFC 8881 chapter 9). A delegation is an open, too. */
#ifndef MDS_STATE_ST_OPEN_H
#define MDS_STATE_ST_OPEN_H
#include "base/hash.h"
#include "mds/state/shard.h"
#include "mds/state/st_file.h"
#include "mds/state/st_stateid.h"

struct st;
struct st_client;
struct st_deleg;
struct st_lock;
struct st_stripe;

/* A user that opened a file, and the share access. */
struct st_user {
	struct st_user *u_next;
	uint32_t u_uid, u_access; /* 0: no user */
};

struct st_open {
	struct hash_link o_link;  /* by stateid */
	struct st_deleg *o_deleg; /* NULL: an open */
	struct st_stateid o_sid;
	struct st_client *o_client;
	struct st_file *o_file;
	struct st_open *o_cnext, **o_cprev, *o_fnext, **o_fprev;
	struct st_stripe *o_stripe;
	struct st_lock *o_locks;
	uint32_t o_access, o_deny;
	/* The first user that opened it, and others of the same open-owner. Each counts as one more
	 * open. */
	struct st_user o_user;
	struct st_user *o_users;
	uint32_t o_owner_len;
	uint8_t o_owner[];
};

struct st_open *st_open_find(struct st *st, const struct st_stateid *sid); /* locked, by other */
/* locked */
struct st_open *st_open_by_owner(struct st_file *f, struct st_client *c, const void *owner,
				 uint32_t len);
/* locked; sid: made for it before, or NULL */
struct st_open *st_open_new(struct st *st, struct st_file *f, struct st_client *c,
			    const void *owner, uint32_t len, const struct st_stateid *sid);
/* locked: notes that the user opened it with this access. False: no memory. */
bool st_open_by_user(struct st_open *o, uint32_t uid, uint32_t access);
/* locked: may this user of the client do this (a bit of share access) with what the client has of
 * the file? Yes if the user has opened it so, or under a delegation. */
bool st_file_opened(const struct st_file *f, const struct st_client *c, uint32_t uid,
		    uint32_t access);
void st_open_free(struct st *st, struct st_open *o); /* locked; st_may_free was true */
/* locked: is all locked, if freeing the open needs that (st_needs_all)? */
static inline bool st_may_free(const struct st_open *o)
{
	return !o->o_file->f_npartials || st_needs_all();
}
/* locked: returns an open that conflicts, of a live client if there is one; NULL: none */
struct st_open *st_share_conflict(struct st *st, struct st_file *f, uint32_t access, uint32_t deny);
#endif
