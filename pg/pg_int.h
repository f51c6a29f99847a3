/* SPDX-License-Identifier: Apache-2.0 */
/* pg_int.h - what the files of this room share. */
#ifndef PG_PG_INT_H
#define PG_PG_INT_H
#include "pg/pg.h"
#include "base/clock.h"
#include <libpq-fe.h>

#define PG_TURNS 4 /* parts of an instance's log */

/* ---- pg_conn.c: a connection that never blocks past a deadline ---- */

/* A claim's name: o_owner, a number, and where its lease is. */
enum { PG_CLAIM = PG_OWNER + 18 + PG_LEASE };
enum { PG_HOSTS = 16 };
struct pg_target {
	PQconninfoOption *t_opts;
	unsigned t_nhosts, t_next; /* one of them is tried at a time, from t_next on */
	int t_wake;		   /* readable: waits end with -ECANCELED; -1: none */
};
/* -EINVAL: the conninfo is wrong. */
int pg_target_set(struct pg_target *t, const char *conninfo, char why[PG_WHY]);
void pg_target_free(struct pg_target *t);

struct pg_conn {
	PGconn *c_pg; /* NULL: closed */
	int c_wake;
	bool c_woken;	    /* a wait ended by it */
	bool c_inside;	    /* a transaction was begun on purpose */
	unsigned c_notices; /* since the last statement began */
	uint64_t c_sent;    /* CLOCK_BOOTTIME: when the last statement began to leave */
	char c_why[PG_WHY]; /* of the last failure */
};
/* gucs: "-c name=value ..." besides our own. All ends at the deadline (clock_boot_ns()); each host
 * has its share of the time. -EAGAIN: no answer. -ECANCELED. */
int pg_conn_open(struct pg_conn *c, struct pg_target *t, const char *name, const char *gucs,
		 uint64_t deadline);
void pg_conn_close(struct pg_conn *c);

/* Parameters in binary. Bytes and texts are the caller's until the statement has ended. */
enum { PG_ARGS = 8 };
struct pg_args {
	int a_n;
	Oid a_type[PG_ARGS];
	const char *a_value[PG_ARGS];
	int a_len[PG_ARGS], a_format[PG_ARGS];
	uint64_t a_num[PG_ARGS];
};
void pg_arg_int(struct pg_args *a, uint64_t v);		       /* bigint */
void pg_arg_bytes(struct pg_args *a, const void *p, size_t n); /* bytea */
void pg_arg_text(struct pg_args *a, const char *s);
void pg_arg_of(struct pg_args *a, Oid type, const void *p, size_t n);

/* What became of a statement. */
enum pg_end {
	PG_DONE,   /* it is committed, without a notice */
	PG_FAILED, /* PostgreSQL says ERROR, and goes on */
	PG_UNKNOWN /* anything else; close the connection */
};
/* Runs one statement. *res is the caller's to PQclear, NULL unless PG_DONE or PG_FAILED. */
enum pg_end pg_conn_run(struct pg_conn *c, const char *sql, const struct pg_args *a,
			uint64_t deadline, PGresult **res);
/* The same of a statement that was prepared as name; and prepares it. */
enum pg_end pg_conn_run_prepared(struct pg_conn *c, const char *name, const struct pg_args *a,
				 uint64_t deadline, PGresult **res);
enum pg_end pg_conn_prepare(struct pg_conn *c, const char *name, const char *sql,
			    const struct pg_args *types, uint64_t deadline);
/* For results that come bit by bit: waits until the socket is ready. 0; -ETIMEDOUT; -ECANCELED. */
int pg_conn_wait(struct pg_conn *c, bool write, uint64_t deadline);
/* Looks at the version of the schema. -ENOTSUP, -EAGAIN. */
int pg_conn_version(struct pg_conn *c, uint64_t deadline);
/* pg_member.c: its tables, where they are not there, and their grants; %1$s is the role. */
extern const char pg_member_tables[];
/* An integer of any width of a binary result. */
uint64_t pg_num(const PGresult *r, int row, int column);

static inline uint64_t pg_in_ms(uint32_t ms)
{
	return clock_boot_ns() + (uint64_t)ms * 1000000;
}

static inline int pg_wake(const struct pg_options *o)
{
	return o->o_wake > 0 ? o->o_wake : -1;
}

static inline uint32_t pg_answer_ms(const struct pg_options *o)
{
	return o->o_answer_ms ? o->o_answer_ms : o->o_lease_ms;
}

/* ---- the statements of the holder; pg_log.c. Tests replace one to show what it is for. ---- */

struct pg_statements {
	const char *append, *beat, *begin;
};
extern struct pg_statements pg_statements;

/* Of a claim that was made, or may have been. owner is copied. Waits until the deadline for a
 * synchronous write that says so. 0; -EAGAIN: the claim is not ours; -ETIMEDOUT. */
int pg_log_start(struct pg_log **out, const struct pg_options *o, uint64_t epoch, const char *owner,
		 uint64_t deadline);
/* pg_claim.c: the connection of a watch, made if it is not there; NULL: no answer. And gives it up,
 * with what went wrong; returns -EAGAIN. */
struct pg_conn *pg_watch_conn(struct pg_watch *w, uint64_t deadline);
int pg_watch_lost(struct pg_watch *w);
const struct pg_options *pg_watch_options(const struct pg_watch *w);
/* The epoch of the row as the newest look or claim saw it; PG_ANY_EPOCH: none did. */
#define PG_ANY_EPOCH UINT64_MAX
uint64_t pg_watch_epoch(const struct pg_watch *w);
/* pg_read.c: the batches of pg_read_batches(). No row at all: at this server the instance has
 * another epoch, or less than `last`. One row whose batch is null: there is none of them. -EAGAIN.
 * *res is the caller's in any case. */
int pg_batches(struct pg_conn *c, uint32_t inst, uint64_t epoch, uint64_t after, uint64_t last,
	       size_t max, uint64_t deadline, PGresult **res);
/* 63 random bits that are not 0. */
uint64_t pg_random(void);

/* The parts that have an instance's batches, as an int4[] in binary. */
enum { PG_PARTS_LEN = 20 + PG_TURNS * 8 };
void pg_parts(uint32_t inst, uint8_t out[PG_PARTS_LEN]);
#define PG_INT4_ARRAY  1007
#define PG_BYTEA_ARRAY 1001
#endif
