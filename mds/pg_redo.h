/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pg_redo.h - an instance's log in PostgreSQL (pg/pg.h) as the redo log of a store (kv/kv_redo.h).
 *
 * A batch of the store is a batch of the log. The process follows the log until it takes it
 * (ro_take: a claim), and appends after that. Two connections: that of the holder appends and
 * beats; another one looks at the row, reads, and says what this copy needs no longer.
 *
 * Doubt: ro_append returns only when the outcome is known, or when this process is deposed or
 * stopped. A deposed process does not know what became of its last batch, so it answers
 * KV_REDO_STOPPED, and never KV_REDO_DEPOSED.
 *
 * The lease: each statement that PostgreSQL answered extends the store's lease, counted from the
 * moment at which it was sent. With po_key the key extends it, and this process takes the key
 * before it claims. A process that is deposed ends at once.
 *
 * Errors are negative errno, with one line in err. -EAGAIN: no answer now; try again.
 */
#ifndef MDS_PG_REDO_H
#define MDS_PG_REDO_H
#include "common/store_lease.h"
#include "kv/kv_redo.h"

struct lease_key;

struct pg_redo_opts {
	const char *po_conninfo; /* libpq's. These three are the caller's until pg_redo_close */
	const char *po_owner;	 /* where this copy is: machine, store's folder, identity */
	const char *po_copy;	 /* names this copy to the log: the same, with more of the folder */
	uint32_t po_inst;
	uint32_t po_lease_ms; /* the same for all processes of the instance; at least 100 */
	uint32_t po_rank_ms;  /* waits so much longer than the lease before it claims */
	/* pg_redo_restore is called; else a log that waits for it is not taken. */
	bool po_restoring;
	uint32_t po_replicas; /* 2: a commit is at a synchronous standby too; 1: not */
	/* A descriptor; readable: this process is to end, and waits no more. 0: none. */
	int po_wake;
	struct store_lease *po_lease;
	/* The lease is this key in etcd, and not in PostgreSQL; NULL: it is not. The caller's until
	 * after pg_redo_close, and its lk_held extends po_lease. */
	struct lease_key *po_key;
};

struct pg_redo;
/* -EINVAL: the conninfo is wrong, or has a password in it. Connects to nothing. */
int pg_redo_check(const char *conninfo, char *err, size_t errlen);
int pg_redo_open(struct pg_redo **out, const struct pg_redo_opts *o, char *err, size_t errlen);
/* For kv_open. */
const struct kv_redo *pg_redo_kv(struct pg_redo *pr);
/* A follower: looks at the instance's row. Call it every 1/20 of the lease. due: ro_take can
 * succeed now: nobody holds the instance, or the holder's lease is over. -ENOENT: there is no such
 * instance. */
int pg_redo_look(struct pg_redo *pr, bool *due, char *err, size_t errlen);
/* What the newest look saw: is nobody the holder, and for how long (ms) is the row unchanged? On
 * the thread that looks. */
void pg_redo_seen(struct pg_redo *pr, bool *free, uint64_t *quiet_ms);
/* How long the claim took, ms; 0: there was none. */
uint64_t pg_redo_claim_ms(const struct pg_redo *pr);
/* Before kv_open: the database was put back to an earlier time. Claims the instance as soon as
 * nobody holds it, folds its log into the table, makes it another log, and gives it up. has_copy:
 * the store is not empty. 0: that is done, or an attempt before has done it; the claim is not made.
 * -EEXIST: it is to be done, and the store has a copy of the log of before. -EAGAIN. */
int pg_redo_restore(struct pg_redo *pr, bool has_copy, char *err, size_t errlen);
/* The holder: the store was made whole, so others may take the log from now on. */
int pg_redo_whole(struct pg_redo *pr, char *err, size_t errlen);
/* The holder: folds the log into the table from now on, on a thread of its own, and frees what all
 * copies have. */
int pg_redo_fold(struct pg_redo *pr);
/* Any thread: waits for PostgreSQL end: ro_append returns KV_REDO_STOPPED. */
void pg_redo_stop(struct pg_redo *pr);
/* After kv_close. A holder gives the instance up, so that another process need not wait. Returns
 * -EAGAIN if PostgreSQL did not say that it is free. */
int pg_redo_close(struct pg_redo *pr);
#endif
