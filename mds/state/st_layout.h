/* SPDX-License-Identifier: Apache-2.0 */
/* st_layout.h - layouts and their recall (RFC 8881 chapter 12). */
#ifndef MDS_STATE_ST_LAYOUT_H
#define MDS_STATE_ST_LAYOUT_H
#include "base/hash.h"
#include "base/loop.h"
#include "mds/state/slot.h"
#include "mds/state/st_stateid.h"

struct st;
struct st_client;
struct st_file;
struct st_stripe;

struct st_layout {
	struct hash_link l_link; /* by stateid */
	struct st_stateid l_sid;
	struct st_client *l_client;
	struct st_file *l_file;
	struct st_layout *l_cnext, **l_cprev, *l_fnext, **l_fprev;
	struct st_stripe *l_stripe;
	uint32_t l_iomode; /* bit 1 READ, bit 2 RW */
	/* l_queued: a CB_LAYOUTRECALL is on its way or waits in a session. */
	bool l_recalled, l_queued;
	/* One bit of 64 for each data server that it names, or has named. */
	uint64_t l_servers;
	uint32_t l_granting; /* grants under way whose servers are not known yet: any */
	/* Fence epoch of the oldest grant that is out. Reports about an older epoch than the file's
	 * mean nothing. */
	uint32_t l_epoch;
	uint8_t l_fh[NFS4_FHSIZE]; /* as GETFH returned it */
	uint32_t l_fhlen;
	struct st_grants l_grants;
};

/* Layouts */
struct st_layout *st_layout_find(struct st *st, const struct st_stateid *sid);		/* locked */
struct st_layout *st_layout_of(struct st_file *f, struct st_client *c);			/* locked */
struct st_layout *st_layout_new(struct st *st, struct st_file *f, struct st_client *c); /* locked */
/* locked; wakes waiters */
void st_layout_free(struct st *st, struct st_layout *l);
/* locked: takes modes off; frees it when none is left, wakes waiters */
void st_layout_drop(struct st *st, struct st_layout *l, uint32_t iomode);
/* locked: a RW layout is out */
bool st_file_has_writers(struct st_file *f);
/* Recalls the layouts of the file that clients other than except (NULL: all clients) hold; with
 * rw_only only RW ones. then(arg, nleft) is called on loop when all have come back, or at the
 * deadline with the number still out: the caller fences, then calls st_revoke_file. Returns how
 * many were recalled; 0: then is not called. Takes the lock. */
struct st_wait {
	struct st_wait *w_next;
	struct st *w_st;
	uint64_t w_ino;
	struct st_client *w_except;
	bool w_rw_only, w_done;
	uint64_t w_until_ns;	   /* the deadline, by st_now_ns */
	bool w_delegs;		   /* it waits for delegations */
	uint32_t w_access, w_deny; /* the access with which they conflict */
	struct loop *w_loop;
	struct loop_timer w_timer;
	struct loop_msg w_msg;
	void (*w_then)(struct st_wait *w, unsigned left);
	unsigned w_left;
};
unsigned st_recall_file(struct st *st, uint64_t ino, struct st_client *except, bool rw_only,
			struct loop *loop, uint32_t deadline_ms, struct st_wait *w);
/* The same for delegations that conflict with such an open. */
unsigned st_recall_delegs(struct st *st, uint64_t ino, struct st_client *except, uint32_t access,
			  uint32_t deny, struct loop *loop, uint32_t deadline_ms,
			  struct st_wait *w);
/* Revokes what is still out after a fence. Takes the lock. */
void st_revoke_file(struct st *st, uint64_t ino, struct st_client *except, bool rw_only);
#endif
