/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pg.h - the log of an instance in PostgreSQL.
 *
 * An instance is a number. It has one row with an epoch, the number of its last batch and a beat,
 * and one row in the log for each batch: bytes, which this room does not look into. A process
 * claims an instance (its epoch rises), appends batches, and beats where it has none. PostgreSQL
 * answers when a synchronous standby has the commit too.
 *
 * What holds:
 * - pg_log_append() returns 0 only when the batch is durable at PostgreSQL and at a synchronous
 *   standby, and in the epoch of this process: a statement of a deposed process changes nothing.
 * - An append is one statement and one round trip. No transaction is left open: a process that
 *   stops in the middle keeps no lock.
 * - A lost connection, a time-out, an error and any notice leave the outcome unknown. Only a
 *   synchronous write that returns the number of the batch resolves it, never a read: a primary
 *   shows after its restart what no standby has. This write also gives the row a new session
 *   number, so that a statement of an earlier connection that is still under way changes nothing.
 * - While pg_log_live() is true, no other process has claimed the instance. It ends 0.75 L after
 *   the moment at which the newest answered statement was sent (CLOCK_BOOTTIME); another process
 *   claims when it has seen the row unchanged for the L that the row has, and for its own. Only the
 *   rates of the clocks matter.
 *   Look at the state first, then at pg_log_live(), then answer.
 *
 * What to know:
 * - Without synchronous standbys PostgreSQL commits alone and says nothing. With o_replicas 2 each
 *   append and each beat looks at synchronous_standby_names, and each beat counts the standbys. In
 *   state PG_LOG_ALONE nothing is acknowledged. An administrator who empties
 *   synchronous_standby_names in the middle of a commit makes that one commit succeed alone.
 * - Who promotes a standby by hand must take the one that is furthest: with ANY 1 (a, b) one of
 *   them may lack what was acknowledged. Nothing here can find that out afterwards.
 * - Names of hosts are resolved by the C library, which may take long: use addresses.
 * - A pooler between the two that shares sessions breaks this: connect to PostgreSQL itself.
 *
 * Errors are negative errno. Functions of one handle may be called by any thread where it says so.
 */
#ifndef PG_PG_H
#define PG_PG_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define PG_VERSION 2u /* of the schema */
#define PG_WHY	   240
#define PG_HEAD	   128
#define PG_LEASE   48
#define PG_OWNER   96

struct pg_options {
	const char *o_conninfo; /* libpq's; several hosts; kept by the caller while it is used */
	uint32_t o_inst;
	const char *o_owner;  /* who claims, for people; UTF-8 with less than PG_OWNER bytes */
	uint32_t o_lease_ms;  /* L, at least 100. A claim writes it into the row, and the others
			       * wait for it where their own is shorter */
	uint32_t o_answer_ms; /* a statement has so long, then its outcome is unknown; 0: L */
	uint32_t o_replicas;  /* 2: a commit is at a synchronous standby too; 1: it may be alone */
	uint32_t o_rank_ms;   /* a claim waits so much longer than L */
	int o_wake; /* a descriptor; readable: what a process that holds nothing waits for ends with
		     * -EAGAIN or -ECANCELED, also a claim. 0: none */
	/* Of the process that holds the instance; NULL: nobody listens. On the thread that got
	 * the answer; must not block. o_held: pg_log_live() is true until end_ns
	 * (CLOCK_BOOTTIME). o_lost: deposed. o_lost may end the process. */
	void (*o_held)(void *arg, uint64_t end_ns);
	void (*o_lost)(void *arg, const char *why);
	void *o_arg;
};

/* The row of an instance. */
struct pg_row {
	uint64_t r_epoch, r_batch, r_beat;
	uint64_t r_acked;    /* the process that holds it knew that this batch was durable */
	bool r_free;	     /* no process holds it: it was released, or never claimed */
	uint32_t r_lease_ms; /* of the process that claimed it last; 0: not known */
	uint8_t r_ident[16]; /* of the log: one that was set back must get another */
	bool r_restored;     /* pg_log_renew() was called, and pg_log_renewed() was not */
	/* Where the lease of the process that holds it is, "etcd:" and a number; "": in
	 * PostgreSQL. */
	char r_lease[PG_LEASE];
};

/* ---- the process that holds the instance; pg_log.c ---- */

struct pg_log;
enum pg_state {
	PG_LOG_LIVE,
	PG_LOG_AWAY,   /* PostgreSQL does not answer, or refuses an append; appends wait */
	PG_LOG_ALONE,  /* it has no synchronous standby; appends wait */
	PG_LOG_DEPOSED /* for ever */
};

/* Makes data the batch of this number, which is the last one's + 1. Waits until it is durable,
 * however long PostgreSQL is away. One at a time; any thread.
 * 0: durable. -ESTALE: deposed; it is not known whether the batch is in the log. -ECANCELED:
 * pg_log_stop() was called, and the same holds. -EINVAL: the number is another. */
int pg_log_append(struct pg_log *l, uint64_t batch, const void *data, size_t len);
uint64_t pg_log_batch(const struct pg_log *l); /* the last durable one; any thread */
uint64_t pg_log_epoch(const struct pg_log *l);
/* Is the lease live now? Any thread; some tens of nanoseconds. */
bool pg_log_live(const struct pg_log *l);
uint64_t pg_log_lease_end(const struct pg_log *l); /* CLOCK_BOOTTIME, ns; 0: deposed */
/* why: what is wrong, for people; empty if it is PG_LOG_LIVE. Any thread. */
enum pg_state pg_log_state(struct pg_log *l, char why[PG_WHY]);
/* The database was put back to an earlier time: this makes the log another one, which copies of the
 * one before do not take for theirs, and marks the row. All readers are forgotten. The table must
 * have all batches: what is in the log has the identity of before. 0; -EAGAIN: no answer, or
 * batches are not folded yet; -ESTALE. */
int pg_log_renew(struct pg_log *l);
/* Takes the mark away. 0; -EAGAIN; -ESTALE. */
int pg_log_renewed(struct pg_log *l);
/* Ends the waits of pg_log_append(): it returns -ECANCELED from now on. Any thread. */
void pg_log_stop(struct pg_log *l);
/* Stops and frees. release: gives the instance up first, so that another process need not wait
 * for L. Returns 0; release: -EAGAIN if PostgreSQL did not say that it is free. */
int pg_log_close(struct pg_log *l, bool release);

/* ---- a process that may claim it; pg_claim.c ---- */

/* One thread uses it. */
struct pg_watch;
int pg_watch_open(struct pg_watch **out, const struct pg_options *o);
void pg_watch_close(struct pg_watch *w);
/* Reads the row; waits L / 4 at most. 0: row is as of now. -EAGAIN: no quick answer, which says
 * nothing about the holder; pg_watch_why() has more. -ENOENT: there is no such instance. -ENOTSUP:
 * the schema's version is another. Call it every L / 20 or so. */
int pg_watch_look(struct pg_watch *w, struct pg_row *row);
const char *pg_watch_why(const struct pg_watch *w);
/* Where this process has its lease, if not in PostgreSQL: as r_lease, which a claim sets. Who has
 * the lease there may claim while a process that had it there before holds the row; the caller
 * knows. */
void pg_watch_lease(struct pg_watch *w, const char *where);
/* Has the row been free, or unchanged in quick answers without a gap for L and o_rank_ms? L is the
 * longer one of the row's and its own. Or has its holder the lease where this process has it? False
 * if the holder has it elsewhere, and not in PostgreSQL. */
bool pg_watch_due(const struct pg_watch *w);
/* What the newest looks saw: is the row free, and for how long (ms) is it unchanged? */
bool pg_watch_free(const struct pg_watch *w);
uint64_t pg_watch_quiet_ms(const struct pg_watch *w);
/* Claims the row as pg_watch_look() has seen it last. Call it when pg_watch_due() says so; or at
 * once, if it is certain that the holder runs no more (it ran on this machine, and its lock on
 * the store is free). 0: this process holds it. -EAGAIN: the row has moved. -ETIMEDOUT: it is
 * unknown, or PostgreSQL has no standby; look and claim again. -ECANCELED: o_wake; it is unknown.
 */
int pg_watch_claim(struct pg_watch *w, struct pg_log **out);

/* ---- what is in the log; pg_read.c ---- */

typedef int pg_batch_fn(void *arg, uint64_t batch, const void *data, size_t len);
/* Calls fn for the batches after `after` up to `last`, in order; so many that their data is max
 * bytes at most, but one at least. The end of the call: fn's error, or the batch that was the last
 * one in *after. 0: fine, whatever is there. -ESTALE: the log begins later than after + 1: a
 * snapshot is needed. -EAGAIN: no answer, or one of a server where the instance has another epoch
 * than the newest look or claim of this watch saw, or lacks `last`: look again.
 * A process that does not hold the instance reads up to r_acked: what comes after it may vanish. */
int pg_read_batches(struct pg_watch *w, uint64_t *after, uint64_t last, size_t max, pg_batch_fn *fn,
		    void *arg);
/* Says that this reader has all up to batch: the log is kept behind it for it. */
int pg_read_keep(struct pg_watch *w, const char *reader, uint64_t batch);
/* Says that this reader is alive. One that is not known, or is so no more, has all up to batch. A
 * reader's name is its place, o_owner, and behind a space what tells it from others there: one that
 * was in this place before and says nothing for some minutes is forgotten. A synchronous write. */
int pg_read_alive(struct pg_watch *w, const char *reader, uint64_t batch);
/* The first bytes of a batch, from the log, or as the table keeps them of the batch that it is as
 * of. Also of one that is not acknowledged. What it says is certain if pg_read_alive() was answered
 * just before on the same connection: a server that was left behind answers no write. 0; -ENOENT:
 * the log ends before that batch; -ERANGE: it was trimmed; -EAGAIN: no answer, or PostgreSQL has no
 * synchronous standby. */
int pg_read_head(struct pg_watch *w, uint64_t batch, uint8_t head[PG_HEAD], size_t *len);

struct pg_snapshot {
	/* A row of the table, in the order of the keys; NULL: the table is not read. */
	int (*s_row)(void *arg, struct iovec k, struct iovec v);
	pg_batch_fn *s_batch; /* the batches behind it; NULL: they are not read */
	void *s_arg;
	bool s_log_first; /* the batches come before the rows; else after them */
	/* What a look has seen; 0: none looked. The epoch of the instance must be that one, and its
	 * newest batch no earlier one: else -EAGAIN, of a server that was left behind, say. */
	uint64_t s_epoch, s_batch_seen;
	uint64_t s_upto; /* no batch after this one, unless the table has it; 0: all */
	/* out: the row's numbers; with s_log_first, the batches that the log has:
	 * the first, the last, how many */
	uint64_t s_batch_now, s_acked, s_first, s_max, s_n;
	uint64_t s_folded, s_last; /* out: the table is as of s_folded; the last batch */
	uint8_t s_head[PG_HEAD];   /* out: the first bytes of batch s_folded */
	size_t s_headlen;
};
/* Reads an instance whole, as it was at one moment: what is acknowledged then. Takes as long as it
 * takes. -EAGAIN: the connection was lost in the middle. */
int pg_snapshot(const struct pg_options *o, struct pg_snapshot *s, char why[PG_WHY]);

/* ---- the table that follows the log; pg_fold.c ---- */

/* Calls write for each write of a batch's data, in order. v.iov_base NULL: k is deleted. */
typedef int pg_write_fn(void *arg, struct iovec k, struct iovec v);
typedef int pg_decode_fn(const void *data, size_t len, pg_write_fn *write, void *arg);

struct pg_fold;
/* o_wake, readable: what waits for PostgreSQL ends with -ECANCELED. */
int pg_fold_open(struct pg_fold **out, const struct pg_options *o, pg_decode_fn *decode);
void pg_fold_close(struct pg_fold *f);
const char *pg_fold_why(const struct pg_fold *f);
/* Folds batches of max bytes at most (one at least) into the table, while the instance has this
 * epoch: the process that holds it folds. Returns the number of batches; 0: none is behind;
 * -ESTALE: the instance has another epoch, and nothing was folded; -EAGAIN: no answer, or another
 * process was quicker; decode's error. pg_fold_why() says what it was. */
int64_t pg_fold_step(struct pg_fold *f, uint64_t epoch, size_t max);
/* Frees the parts of the log that the table and all readers have, while the instance has this
 * epoch. Readers that have not called pg_read_keep() or pg_read_alive() for idle_s seconds are
 * forgotten. Returns the number of parts that were freed; -ESTALE, -EAGAIN as above. */
int pg_fold_trim(struct pg_fold *f, uint64_t epoch, uint32_t idle_s);

/* The digest of a set of rows, in any order. */
struct pg_digest {
	uint64_t d_sum[4], d_rows;
};
void pg_digest_add(struct pg_digest *d, struct iovec k, struct iovec v);
struct pg_verified {
	uint64_t v_upto;	   /* in: as s_upto */
	struct pg_digest v_digest; /* of table and log together, as of batch v_last */
	uint64_t v_last, v_folded; /* the table is as of v_folded */
	/* The row's; and the batches that the log has, of those the first and the last. */
	uint64_t v_batch, v_acked, v_n, v_first, v_max;
	uint8_t v_head[PG_HEAD]; /* the first bytes of batch v_folded */
	size_t v_headlen;
};
/* 0. -EIO: the log lacks a batch behind the table; or decode's error. All but v_digest is there
 * then too. -EAGAIN. */
int pg_verify(const struct pg_options *o, pg_decode_fn *decode, struct pg_verified *v,
	      char why[PG_WHY]);

/* ---- the schema; pg_schema.c ---- */

struct pg_init {
	const char *i_conninfo;
	const char *i_role; /* made if it is not there: what weft-mds connects as */
	int64_t i_inst;	    /* an instance to make, if it is not there; -1: none */
	bool i_new;	    /* out: the schema was made now */
};
/* Makes the schema, brings an older one to this version, or sees that it is there; nothing is
 * changed if it fails. Where it makes weft.member and weft.place, the appends of other instances
 * wait until it has committed, at a standby of PostgreSQL too; else it takes no lock for which they
 * would wait. It waits 200 ms for a lock. 0; or negative, with the reason in why. -EBUSY: an older
 * one is there, and programs are connected that may be as old; or another program has a lock on
 * the tables. */
int pg_init(struct pg_init *i, char why[PG_WHY]);
/* True when the conninfo has a password in it: others see it in the list of processes. */
bool pg_has_password(const char *conninfo);
/* 0; or -EINVAL, and what is wrong with the conninfo in why. Connects to nothing. */
int pg_conninfo_check(const char *conninfo, char why[PG_WHY]);
#endif
