/* SPDX-License-Identifier: Apache-2.0 */
/* st_lock.h - byte-range locks (RFC 8881 chapter 9). */
#ifndef MDS_STATE_ST_LOCK_H
#define MDS_STATE_ST_LOCK_H
#include "base/hash.h"
#include "mds/state/st_stateid.h"

struct st;
struct st_client;
struct st_file;
struct st_open;

/* What a lock-owner holds of a file, under one stateid. */
struct st_range {
	/* By offset. Ranges do not overlap, and neighbours of one kind are joined. */
	struct st_range *r_next;
	uint64_t r_first, r_last; /* first and last byte */
	bool r_write;
};
struct st_lock {
	struct hash_link k_link; /* by stateid */
	struct st_stateid k_sid;
	struct st_open *k_open; /* with which it came */
	struct st_lock *k_onext, **k_oprev, *k_fnext, **k_fprev;
	struct st_range *k_ranges;
	uint32_t k_owner_len;
	uint8_t k_owner[];
};

/* A lock-owner that waits for a lock that it was denied. One CB_NOTIFY_LOCK says when it may try
 * again (RFC 8881 section 20.11). */
struct st_waiter {
	struct st_waiter *wt_next;
	uint64_t wt_client;
	uint64_t wt_first, wt_last;
	bool wt_write;
	uint8_t wt_fh[NFS4_FHSIZE]; /* as GETFH returned it to this client */
	uint32_t wt_fhlen;
	uint32_t wt_owner_len;
	uint8_t wt_owner[];
};

/* Byte-range locks; locked */
struct st_lock *st_lock_find(struct st *st, const struct st_stateid *sid);
struct st_lock *st_lock_by_owner(struct st_file *f, const struct st_client *c, const void *owner,
				 uint32_t len);
/* NULL: no memory */
struct st_lock *st_lock_new(struct st *st, struct st_open *o, const void *owner, uint32_t len);
void st_lock_free(struct st *st, struct st_lock *k);
/* Returns a range of another owner that conflicts, and its owner's state: of a live client if there
 * is one. NULL: none. */
const struct st_range *st_lock_conflict(struct st *st, struct st_file *f, const struct st_client *c,
					const void *owner, uint32_t len, uint64_t first,
					uint64_t last, bool write, struct st_lock **holder);
/* st_lock_set makes [first, last] this kind, whatever the owner held of it; st_lock_clear releases
 * it. -ENOMEM: nothing changed. */
int st_lock_set(struct st_lock *k, uint64_t first, uint64_t last, bool write);
int st_lock_clear(struct st_lock *k, uint64_t first, uint64_t last);
bool st_open_has_locks(const struct st_open *o);
/* Notes an owner that was denied and waits. fh: the file's, as GETFH returns it. A file keeps a
 * limited number of them; others must poll, as clients do in any case. */
void st_wait_for_lock(struct st_file *f, const struct st_client *c, const void *owner, uint32_t len,
		      uint64_t first, uint64_t last, bool write, const uint8_t *fh, uint32_t fhlen);
/* Call it when locks are gone; all must be locked if f_waiters is not empty. Notifies waiting
 * owners with which nothing conflicts any more. */
void st_locks_gone(struct st *st, struct st_file *f);
/* Returns the open that an open or lock stateid stands for, and the stateid's current seqid. */
struct st_open *st_open_or_lock(struct st *st, const struct st_stateid *sid, uint32_t *seqid);
#endif
