/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine.h - PostgreSQL as it is seen from outside, as far as the log of an instance goes: one
 * primary and two standbys, ANY 1 of which has to have a commit.
 *
 * Each server has its list of changes (its WAL) and a state. A transaction of the primary appends
 * to the list; it is seen, and its locks are free, when a standby has that part of the list, or
 * when the primary starts again, or when somebody ends the wait.
 */
#ifndef TESTS_SIM_ENGINE_H
#define TESTS_SIM_ENGINE_H
#include "tests/sim/sim.h"

struct blob {
	size_t b_n;
	uint8_t b_data[];
};

struct cell {
	const void *c_p;
	int c_n; /* -1: null */
};
/* Of a statement's parameter. */
static inline const struct blob *blob_of(const struct cell *c)
{
	return (const struct blob *)((const char *)c->c_p - offsetof(struct blob, b_data));
}

struct pg_inst {
	int64_t i_epoch, i_session, i_batch, i_acked, i_beat, i_turn, i_id, i_lease_ms, i_restored;
	char i_owner[128];
};
struct pg_pair {
	const struct blob *p_k, *p_v;
};

/* A transaction's changes. */
struct wal {
	uint64_t w_number; /* rises with each transaction of the schedule */
	bool w_inst, w_log, w_fold, w_keep, w_free;
	struct pg_inst w_row;
	int64_t w_batch, w_part; /* w_log; w_free: the part */
	const struct blob *w_data;
	int64_t w_folded; /* w_fold */
	const struct blob *w_head;
	unsigned w_npairs; /* w_fold; p_v NULL: deleted */
	struct pg_pair *w_pairs;
	char w_reader[128]; /* w_keep */
	bool w_alive;	    /* w_keep: one that is there stays as it is */
	int64_t w_kept;
};

enum { PG_BATCHES = 4096, PG_PAIRS = 512, PG_READERS = 12 };
struct pg_state {
	struct pg_inst s_inst;
	const struct blob *s_log[PG_BATCHES];
	int8_t s_part[PG_BATCHES];
	int64_t s_newest;
	int64_t s_folded;
	const struct blob *s_head;
	struct pg_pair s_kv[PG_PAIRS];
	unsigned s_nkv;
	struct {
		char r_name[128];
		int64_t r_batch;
	} s_reader[PG_READERS];
	unsigned s_nreaders;
};

struct stmt;
struct pg_server {
	unsigned v_at; /* its number, and its node */
	bool v_up, v_paused, v_primary, v_empty_names;
	unsigned v_run; /* rises when its connections end */
	struct wal **v_wal;
	unsigned v_n, v_flushed, v_room;
	bool *v_seen; /* primary: the state has it; by place in v_wal */
	struct pg_state *v_state;
	/* Of a primary: what each standby has, and when it was heard of last. */
	unsigned v_acked[PG_SERVERS];
	bool v_streams[PG_SERVERS];
	uint64_t v_heard[PG_SERVERS];
	/* Of a standby: whom it follows; -1: nobody. */
	int v_from;
	unsigned v_timeline;
	struct stmt *v_waits; /* for a standby */
	struct stmt *v_lock_inst, *v_lock_fold;
	struct stmt *v_queue;	 /* for a lock */
	uint64_t v_back, v_lost; /* when it starts again; since when it was not seen */
};
extern struct pg_server pg_servers[PG_SERVERS];

/* ---- pg_server.c ---- */

/* Appends to the primary's list; returns the place behind it. */
unsigned server_append(struct pg_server *v, const struct wal *w);
void state_apply(struct pg_state *s, const struct wal *w);
int server_standbys(const struct pg_server *v);
/* Has a standby that counts the list up to there? */
bool server_synced(const struct pg_server *v, unsigned upto);
void server_see(struct pg_server *v, unsigned at);

/* ---- libpq.c: a connection, and what a statement is answered ---- */

enum { PG_CELLS = 10, CONN_ROWS = 4096 };
struct pg_result {
	int r_status, r_rows, r_cols;
	struct cell *r_cell;
	char r_tuples[8], r_state[6], r_msg[120];
};
struct pg_conn_sim;

/* A statement on its way. */
struct stmt {
	struct pg_conn_sim *st_conn;
	struct pg_server *st_server;
	unsigned st_run; /* v_run */
	const char *st_sql;
	int st_nargs;
	struct cell st_arg[8];
	bool st_async, st_claims, st_done;
	bool st_looked, st_fits; /* what it looks at only as of its begin */
	struct wal st_wal;
	unsigned st_upto;
	struct stmt **st_lock; /* the one that it has, or waits for */
	struct pg_result *st_res;
	struct stmt *st_next;
};
int64_t stmt_int(const struct stmt *st, int n); /* $n */
/* pg_sql.c: begins it, on its server. */
void sql_run(struct stmt *st);
/* It waits no longer for a standby: how it ended there. notice: it is a guess. */
void sql_committed(struct stmt *st, bool notice);
/* Those that wait for a lock: which of them may have it. */
void sql_unlocked(struct pg_server *v);
/* libpq.c */
void conn_reply(struct stmt *st, struct pg_result *r, bool notice);
void conn_fail(struct stmt *st, const char *state, const char *msg);
/* pg_terminate_backend of the connections of that name (like: of all that begin so), pid 0: any. */
unsigned conns_end(struct pg_server *v, const char *name, bool like, int64_t pid,
		   struct pg_conn_sim *but);
unsigned conn_lock_ms(const struct pg_conn_sim *c);
bool conn_async(const struct pg_conn_sim *c);
struct pg_result *result_new(int status, int rows, int cols);
void result_int(struct pg_result *r, int row, int col, int64_t v);
void result_bytes(struct pg_result *r, int row, int col, const void *p, size_t n);
void conns_lost(struct pg_server *v, bool told);
void conns_begin(void);
/* A transaction of a snapshot: the state as of its begin. */
struct pg_state *conn_snapshot(struct pg_conn_sim *c);
#endif
