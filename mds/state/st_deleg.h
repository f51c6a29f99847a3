/* SPDX-License-Identifier: Apache-2.0 */
/* st_deleg.h - delegations (RFC 8881 chapter 10), and which files were opened lately. */
#ifndef MDS_STATE_ST_DELEG_H
#define MDS_STATE_ST_DELEG_H
#include "base/loop.h"
#include "mds/namespace/ns.h"
#include "mds/state/slot.h"
#include "mds/state/st_stateid.h"
#include "proto/xdr.h"

struct st;
struct st_client;
struct st_file;
struct st_open;

/*
 * A delegation (RFC 8881 chapter 10) is an open without an owner, whose stateid is a delegation's:
 * it admits I/O and layouts as opens do, and keeps an unlinked file. Share reservations and CLOSE
 * do not see it.
 */
struct st_deleg {
	uint32_t dg_type; /* OPEN_DELEGATE_READ, OPEN_DELEGATE_WRITE */
	bool dg_times;	  /* the holder keeps the times (RFC 9754) */
	bool dg_recalled, dg_queued, dg_asking;
	uint64_t dg_given_ns, dg_recalled_ns;
	/* The change attribute that the holder got with it: another one in CB_GETATTR means that
	 * the holder has written. */
	uint64_t dg_change;
	struct st_deleg_query *dg_asks; /* requests that wait for the holder's CB_GETATTR */
	uint8_t dg_fh[NFS4_FHSIZE];	/* as GETFH returned it */
	uint32_t dg_fhlen;
	struct st_grants dg_grants;
};

/* What a holder of a write delegation answered (RFC 8881 section 20.1). dq_then runs on dq_loop. */
struct st_deleg_query {
	struct st_deleg_query *dq_next;
	struct loop_msg dq_msg;
	struct loop *dq_loop;
	void (*dq_then)(struct st_deleg_query *a);
	int dq_err;	  /* not 0: there is no answer */
	bool dq_modified; /* it has written since it got the delegation */
	bool dq_times;	  /* dq_atime and dq_mtime are valid */
	uint64_t dq_size;
	struct ns_time dq_atime, dq_mtime;
};

/* Decodes the attributes in a CB_GETATTR's answer. False for anything but this: size and change are
 * there, and both times or none. given: dg_change. Here for the fuzzer. */
bool st_ask_decode(struct xdr_in *x, uint64_t given, struct st_deleg_query *a);

/* A revoked delegation: its stateid gets DELEG_REVOKED until the client frees it (RFC 8881 section
 * 18.38). */
struct st_revoked {
	struct st_revoked *v_next;
	struct st_stateid v_sid;
};

/* Delegations; locked */
/* Makes a delegation; the caller has checked opens and other delegations. NULL: no memory. */
struct st_open *st_deleg_new(struct st *st, struct st_file *f, struct st_client *c, uint32_t type,
			     bool times, const uint8_t *fh, uint32_t fhlen);
struct st_open *st_deleg_of(struct st_file *f, const struct st_client *c);
/* Does this delegation, if another client holds it, conflict with such an open? Changes count as
 * opens for writing; reads, and requests for attributes, count as opens for reading. */
bool st_deleg_conflicts(const struct st_open *o, const struct st_client *client, uint32_t access,
			uint32_t deny);
/* The same for all delegations on the file but client's. */
bool st_file_deleg_conflict(const struct st_file *f, const struct st_client *client,
			    uint32_t access, uint32_t deny);
/* All locked. */
void st_deleg_recall(struct st *st, struct st_open *d);
/* All locked: recalls all conflicting ones, and does not wait. */
void st_deleg_recall_file(struct st *st, struct st_file *f, const struct st_client *client,
			  uint32_t access, uint32_t deny);
/* All locked: revokes all that still conflict. True: one of them was for writing. */
bool st_deleg_revoke_file(struct st *st, uint64_t ino, const struct st_client *client,
			  uint32_t access, uint32_t deny);
/* All locked: revokes those of the file that were recalled a recall deadline ago. A request that
 * waits for one has a deadline of its own, but many do not wait. True: one of them was for
 * writing. */
bool st_deleg_revoke_overdue(struct st *st, uint64_t ino);
/* All locked: files with such delegations of this client, at most max. */
unsigned st_deleg_overdue(struct st *st, const struct st_client *c, uint64_t *ino, unsigned max);
/* Is this a revoked stateid of this client? */
bool st_revoked_find(const struct st_client *c, const struct st_stateid *sid);
void st_revoked_free(struct st_client *c, const struct st_stateid *sid);
/* All locked: asks the holder of a write delegation. a->dq_then is called later in any case. */
void st_deleg_ask(struct st *st, struct st_open *d, struct st_deleg_query *a);
void st_asks_fail(struct st_deleg *dg);
/* What is remembered of files that were opened lately: a table of fixed size, in which new entries
 * overwrite old ones. */
int st_heat_new(struct st *st); /* 0, or -1: no memory */
bool st_heat_contended(const struct st *st, uint64_t ino);
void st_heat_conflict(struct st *st, uint64_t ino);
/* The client opens it: returns how many times in a row it did so while no other client did, within
 * a lease. */
unsigned st_heat_opened(struct st *st, uint64_t ino, const struct st_client *c, bool write);
/* Are nearly as many delegations out as may be, counting what was taken ahead (st_tick gives that
 * back first)? Then no client whose lease has run out is kept for its delegations. */
bool st_deleg_many(const struct st *st);
/* All locked: in that case asks clients that hold many to give some back. */
void st_deleg_thin(struct st *st);
#endif
