/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pg_sql.c - the statements of pg/, as PostgreSQL would do them (READ COMMITTED).
 *
 * An UPDATE of weft.instance is read from its text: its guards are what the product says. Others
 * are known by how they begin. A statement that is not known ends the simulator: somebody changed
 * the product, and the model has to learn it.
 */
#include "tests/sim/engine.h"
#include <ctype.h>
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct column {
	const char *c_name;
	size_t c_at;
} columns[] = {
	{"id", offsetof(struct pg_inst, i_id)},
	{"epoch", offsetof(struct pg_inst, i_epoch)},
	{"batch", offsetof(struct pg_inst, i_batch)},
	{"acked", offsetof(struct pg_inst, i_acked)},
	{"beat", offsetof(struct pg_inst, i_beat)},
	{"turn", offsetof(struct pg_inst, i_turn)},
	{"session", offsetof(struct pg_inst, i_session)},
	{"lease_ms", offsetof(struct pg_inst, i_lease_ms)},
	{"restored", offsetof(struct pg_inst, i_restored)},
};

static void unknown(const char *sql, const char *at)
{
	fprintf(stderr, "cluster_sim: PostgreSQL's model does not know this: %s\nat: %s\n", sql,
		at);
	abort();
}

int64_t stmt_int(const struct stmt *st, int n)
{
	const uint8_t *p = n <= st->st_nargs ? st->st_arg[n - 1].c_p : NULL;
	uint64_t v = 0;

	if (!p || st->st_arg[n - 1].c_n != 8)
		unknown(st->st_sql, "a number among the parameters");
	for (int i = 0; i < 8; i++)
		v = v << 8 | p[i];
	return (int64_t)v;
}

/* ---- a reader of the small language of those UPDATEs ---- */

struct lex {
	const struct stmt *l_st;
	const char *l_p;
	const struct pg_inst *l_row;
};

static void skip(struct lex *l)
{
	while (*l->l_p == ' ')
		l->l_p++;
}

static bool take(struct lex *l, const char *word)
{
	size_t n = strlen(word);

	skip(l);
	if (strncmp(l->l_p, word, n) != 0 ||
	    (isalnum((unsigned char)word[n - 1]) &&
	     (isalnum((unsigned char)l->l_p[n]) || l->l_p[n] == '_')))
		return false;
	l->l_p += n;
	return true;
}

static int64_t *field(struct pg_inst *row, const char *name, size_t n)
{
	for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++)
		if (strlen(columns[i].c_name) == n && !strncmp(columns[i].c_name, name, n))
			return (int64_t *)((char *)row + columns[i].c_at);
	return NULL;
}

static size_t word_len(const char *p)
{
	size_t n = 0;

	while (isalnum((unsigned char)p[n]) || p[n] == '_')
		n++;
	return n;
}

/* column, $n or a number, with + 1 or - 1 behind it. */
static int64_t number(struct lex *l)
{
	int64_t v, *f;
	size_t n;

	skip(l);
	n = word_len(l->l_p);
	if (*l->l_p == '$') {
		v = stmt_int(l->l_st, (int)strtol(l->l_p + 1, (char **)&l->l_p, 10));
	} else if (isdigit((unsigned char)*l->l_p)) {
		v = strtoll(l->l_p, (char **)&l->l_p, 10);
	} else {
		f = field((struct pg_inst *)l->l_row, l->l_p, n);
		if (!f)
			unknown(l->l_st->st_sql, l->l_p);
		v = *f;
		l->l_p += n;
	}
	if (take(l, "+ "))
		v += number(l);
	else if (take(l, "- "))
		v -= number(l);
	return v;
}

static void text(struct lex *l, char out[128])
{
	skip(l);
	out[0] = 0;
	if (take(l, "''"))
		return;
	if (*l->l_p == '$') {
		const struct cell *c =
			&l->l_st->st_arg[strtol(l->l_p + 1, (char **)&l->l_p, 10) - 1];

		snprintf(out, 128, "%.*s", c->c_n, (const char *)c->c_p);
		return;
	}
	unknown(l->l_st->st_sql, l->l_p);
}

/* One side of "and". */
static bool condition(struct lex *l, const struct pg_server *v)
{
	char want[128];
	int64_t a;
	bool yes;

	if (take(l, "(")) {
		yes = condition(l, v);
		while (take(l, "or"))
			yes = condition(l, v) || yes;
		if (!take(l, ")"))
			unknown(l->l_st->st_sql, l->l_p);
		return yes;
	}
	if (take(l, "current_setting('synchronous_standby_names') <> ''"))
		return !v->v_empty_names;
	if (take(l, "owner =")) {
		text(l, want);
		return !strcmp(l->l_row->i_owner, want);
	}
	a = number(l);
	if (take(l, "="))
		return a == number(l);
	if (take(l, ">="))
		return a >= number(l);
	if (take(l, "<"))
		return a < number(l);
	unknown(l->l_st->st_sql, l->l_p);
	return false;
}

static bool where(struct stmt *st, const struct pg_inst *row, const struct pg_server *v,
		  const char **end)
{
	struct lex l = {st, strstr(st->st_sql, " where "), row};
	bool yes = true;

	if (!l.l_p)
		unknown(st->st_sql, "where");
	l.l_p += 7;
	do
		yes = condition(&l, v) && yes;
	while (take(&l, "and"));
	*end = l.l_p;
	return yes;
}

static void set(struct stmt *st, const struct pg_inst *was, struct pg_inst *now)
{
	struct lex l = {st, strstr(st->st_sql, "update instance set ") + 20, was};

	*now = *was;
	do {
		size_t n;
		int64_t *f;

		skip(&l);
		n = word_len(l.l_p);
		if (take(&l, "owner =")) {
			text(&l, now->i_owner);
			continue;
		}
		f = field(now, l.l_p, n);
		if (!f)
			unknown(st->st_sql, l.l_p);
		l.l_p += n;
		if (!take(&l, "="))
			unknown(st->st_sql, l.l_p);
		*f = number(&l);
	} while (take(&l, ","));
}

/* The list behind "returning" or "select": columns, standbys(), (owner = '')::int::int8, ident,
 * owner. */
static struct pg_result *row_of(struct stmt *st, const struct pg_inst *row, const char *list)
{
	static const uint8_t ident[16] = {7};
	struct pg_result *r = result_new(PGRES_TUPLES_OK, 1, PG_CELLS);
	struct lex l = {st, list, row};
	int col = 0;

	do {
		if (take(&l, "standbys()"))
			result_int(r, 0, col, server_standbys(st->st_server));
		else if (take(&l, "(owner = '')::int::int8"))
			result_int(r, 0, col, !row->i_owner[0]);
		else if (take(&l, "ident"))
			result_bytes(r, 0, col, ident, sizeof(ident));
		else if (take(&l, "owner"))
			result_bytes(r, 0, col, row->i_owner, strlen(row->i_owner));
		else
			result_int(r, 0, col, number(&l));
		col++;
	} while (take(&l, ","));
	return r;
}

/* ---- locks and commits ---- */

static void unlock(struct stmt *st)
{
	if (st->st_lock && *st->st_lock == st)
		*st->st_lock = NULL;
	st->st_lock = NULL;
}

static void lock_over(void *arg, uint64_t run)
{
	struct stmt *st = arg, **p = &st->st_server->v_queue;

	if (st->st_done || st->st_server->v_run != run || !st->st_server->v_up)
		return;
	for (; *p; p = &(*p)->st_next)
		if (*p == st) {
			*p = st->st_next;
			conn_fail(st, "55P03", "canceling statement due to lock timeout");
			return;
		}
}

/* False: it waits in the queue. */
static bool lock(struct stmt *st, struct stmt **what)
{
	struct stmt **p = &st->st_server->v_queue;

	st->st_lock = what;
	if (!*what || *what == st) {
		*what = st;
		return true;
	}
	while (*p)
		p = &(*p)->st_next;
	st->st_next = NULL;
	*p = st;
	if (conn_lock_ms(st->st_conn))
		sim_at(sim_now + SIM_MS(conn_lock_ms(st->st_conn)), lock_over, st,
		       st->st_server->v_run);
	return false;
}

void sql_unlocked(struct pg_server *v)
{
	struct stmt **p = &v->v_queue, *st;

	while ((st = *p)) {
		if (*st->st_lock) {
			p = &st->st_next;
			continue;
		}
		*p = st->st_next;
		sql_run(st);
		p = &v->v_queue;
	}
}

void sql_committed(struct stmt *st, bool notice)
{
	server_see(st->st_server, st->st_upto - 1);
	if (st->st_claims && !notice)
		servers_claimed((uint64_t)st->st_wal.w_row.i_epoch);
	unlock(st);
	conn_reply(st, st->st_res, notice);
	sql_unlocked(st->st_server);
}

static void commit(struct stmt *st, struct pg_result *res)
{
	struct pg_server *v = st->st_server;

	st->st_res = res;
	st->st_upto = server_append(v, &st->st_wal);
	if (st->st_async || conn_async(st->st_conn)) {
		sql_committed(st, false);
		return;
	}
	st->st_next = v->v_waits;
	v->v_waits = st;
}

/* ---- statements ---- */

static struct pg_result *count(int status, int n)
{
	struct pg_result *r = result_new(status, 0, 0);

	snprintf(r->r_tuples, sizeof(r->r_tuples), "%d", n);
	return r;
}

static struct pg_result *none(struct stmt *st)
{
	return strstr(st->st_sql, "returning batch") ? result_new(PGRES_TUPLES_OK, 0, 0)
						     : count(PGRES_COMMAND_OK, 0);
}

static void update_instance(struct stmt *st, bool append)
{
	struct pg_server *v = st->st_server;
	struct pg_inst *row = &v->v_state->s_inst;
	struct pg_result *r = count(PGRES_COMMAND_OK, 1);
	const char *end;

	/* Who does not fit what is seen now waits for no lock. */
	if (!where(st, row, v, &end)) {
		unlock(st);
		conn_reply(st, none(st), false);
		return;
	}
	if (!lock(st, &v->v_lock_inst))
		return;
	st->st_wal = (struct wal){.w_inst = true};
	set(st, row, &st->st_wal.w_row);
	if (append) {
		int64_t batch = stmt_int(st, 4);

		if (batch < PG_BATCHES && v->v_state->s_log[batch]) {
			unlock(st);
			conn_fail(st, "23505", "duplicate key value violates unique constraint");
			sql_unlocked(v);
			return;
		}
		st->st_wal.w_log = true;
		st->st_wal.w_batch = batch;
		st->st_wal.w_part = stmt_int(st, 5) % 4;
		st->st_wal.w_data = blob_of(&st->st_arg[5]);
		sim_log("PostgreSQL %u has batch %lld of epoch %lld, as change %u", v->v_at,
			(long long)batch, (long long)row->i_epoch, v->v_n);
	} else {
		struct lex l = {st, end, row};

		if (take(&l, "returning"))
			r = row_of(st, &st->st_wal.w_row, l.l_p);
	}
	st->st_claims = st->st_wal.w_row.i_epoch != row->i_epoch;
	commit(st, r);
}

static void look(struct stmt *st)
{
	struct lex l = {st, st->st_sql, NULL};
	const struct pg_inst *row = &st->st_server->v_state->s_inst;
	const char *end;

	take(&l, "select");
	conn_reply(st,
		   where(st, row, st->st_server, &end) ? row_of(st, row, l.l_p)
						       : result_new(PGRES_TUPLES_OK, 0, 0),
		   false);
}

/* $2 after, $3 last, $4 bytes, $5 rows, $7 epoch or -1. */
static void batches(struct stmt *st)
{
	struct pg_state *snap = conn_snapshot(st->st_conn);
	struct pg_state *s = snap ? snap : st->st_server->v_state;
	int64_t after = stmt_int(st, 2), last = stmt_int(st, 3), epoch = stmt_int(st, 7), bytes = 0;
	struct pg_result *r;
	int n = 0;

	if (epoch >= 0 && (s->s_inst.i_epoch != epoch || s->s_inst.i_batch < last)) {
		conn_reply(st, result_new(PGRES_TUPLES_OK, 0, 0), false);
		return;
	}
	r = result_new(PGRES_TUPLES_OK, (int)(s->s_newest > after ? s->s_newest - after : 1), 2);
	for (int64_t b = after + 1; b <= last && b <= s->s_newest && bytes < stmt_int(st, 4); b++) {
		const struct blob *d = s->s_log[b];

		if (!d)
			continue;
		result_int(r, n, 0, b);
		result_bytes(r, n++, 1, d->b_data, d->b_n);
		bytes += (int64_t)d->b_n;
	}
	r->r_rows = n ? n : 1;
	conn_reply(st, r, false);
}

/* $2 reader, $3 batch. alive: one that is known has said what it has; five minutes, after which
 * those before it in its place are forgotten, are not simulated. */
static void keep(struct stmt *st, bool alive)
{
	struct wal *w = &st->st_wal;

	*w = (struct wal){.w_keep = true, .w_alive = alive, .w_kept = stmt_int(st, 3)};
	snprintf(w->w_reader, sizeof(w->w_reader), "%.*s", st->st_arg[1].c_n,
		 (const char *)st->st_arg[1].c_p);
	commit(st, count(PGRES_COMMAND_OK, 1));
}

/* $2 batch, $4 bytes: of the log, or what the table keeps of the batch that it is as of. */
static void head_of(struct stmt *st)
{
	const struct pg_state *s = st->st_server->v_state;
	struct pg_result *r = result_new(PGRES_TUPLES_OK, 1, 3);
	int64_t batch = stmt_int(st, 2), room = stmt_int(st, 4);
	const struct blob *d = batch < PG_BATCHES ? s->s_log[batch] : NULL;

	if (!d && s->s_folded == batch)
		d = s->s_head;
	result_int(r, 0, 0, s->s_inst.i_batch);
	result_int(r, 0, 1, server_standbys(st->st_server));
	if (d)
		result_bytes(r, 0, 2, d->b_data, d->b_n < (size_t)room ? d->b_n : (size_t)room);
	conn_reply(st, r, false);
}

/* Of a fold: folded, acked, epoch. Of a snapshot: folded, where the log ends, head, epoch, batch,
 * acked. */
static void folded(struct stmt *st)
{
	struct pg_state *snap = conn_snapshot(st->st_conn);
	struct pg_state *s = snap ? snap : st->st_server->v_state;
	const struct pg_inst *row = &s->s_inst;
	struct pg_result *r = result_new(PGRES_TUPLES_OK, 1, 6);
	bool whole = strstr(st->st_sql, "greatest") != NULL;

	result_int(r, 0, 0, s->s_folded);
	if (!whole) {
		result_int(r, 0, 1, row->i_acked);
		result_int(r, 0, 2, row->i_epoch);
		conn_reply(st, r, false);
		return;
	}
	result_int(r, 0, 1, s->s_folded > row->i_acked ? s->s_folded : row->i_acked);
	result_bytes(r, 0, 2, s->s_head ? s->s_head->b_data : NULL, s->s_head ? s->s_head->b_n : 0);
	result_int(r, 0, 3, row->i_epoch);
	result_int(r, 0, 4, row->i_batch);
	result_int(r, 0, 5, row->i_acked);
	conn_reply(st, r, false);
}

static uint32_t be32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* The elements of a bytea[]; returns their number. */
static unsigned elements(const struct cell *c, const struct blob **out, unsigned room)
{
	const uint8_t *p = c->c_p;
	unsigned n = c->c_n > 12 ? be32(p + 12) : 0;

	p += 20;
	for (unsigned i = 0; i < n; i++) {
		uint32_t len = be32(p);
		struct blob *b = sim_alloc(sizeof(*b) + len);

		b->b_n = len;
		memcpy(b->b_data, p + 4, len);
		p += 4 + len;
		if (i < room)
			out[i] = b;
	}
	return n < room ? n : room;
}

/* $2 from, $3 to, $4 deleted keys, $5 keys, $6 values, $7 head, $8 epoch, which is looked at as of
 * the statement's begin, also where it waits for the lock. */
static void fold(struct stmt *st)
{
	static const struct blob *dels[PG_PAIRS], *keys[PG_PAIRS], *vals[PG_PAIRS];
	struct pg_server *v = st->st_server;
	struct pg_result *r = result_new(PGRES_TUPLES_OK, 1, 1);
	struct wal *w = &st->st_wal;
	struct blob *head;
	unsigned nd, n;

	if (!st->st_looked)
		st->st_fits = v->v_state->s_inst.i_epoch == stmt_int(st, 8);
	st->st_looked = true;
	if (!lock(st, &v->v_lock_fold))
		return;
	if (!st->st_fits || v->v_state->s_folded != stmt_int(st, 2)) {
		result_int(r, 0, 0, 0);
		unlock(st);
		conn_reply(st, r, false);
		sql_unlocked(v);
		return;
	}
	nd = elements(&st->st_arg[3], dels, PG_PAIRS);
	n = elements(&st->st_arg[4], keys, PG_PAIRS);
	elements(&st->st_arg[5], vals, PG_PAIRS);
	*w = (struct wal){.w_fold = true, .w_folded = stmt_int(st, 3), .w_npairs = nd + n};
	w->w_pairs = sim_alloc((nd + n + 1) * sizeof(*w->w_pairs));
	for (unsigned i = 0; i < nd; i++)
		w->w_pairs[i].p_k = dels[i];
	for (unsigned i = 0; i < n; i++)
		w->w_pairs[nd + i] = (struct pg_pair){keys[i], vals[i]};
	head = sim_alloc(sizeof(*head) + (size_t)st->st_arg[6].c_n);
	head->b_n = (size_t)st->st_arg[6].c_n;
	memcpy(head->b_data, st->st_arg[6].c_p, head->b_n);
	w->w_head = head;
	result_int(r, 0, 0, 1);
	commit(st, r);
}

static void free_part(struct stmt *st)
{
	struct pg_state *s = st->st_server->v_state;
	int64_t part = stmt_int(st, 1) % 4, newest = -1, have = s->s_folded;
	struct pg_result *r = result_new(PGRES_TUPLES_OK, 1, 1);

	for (int64_t b = 0; b <= s->s_newest; b++)
		if (s->s_log[b] && s->s_part[b] == part)
			newest = b;
	for (unsigned i = 0; i < s->s_nreaders; i++)
		have = s->s_reader[i].r_batch < have ? s->s_reader[i].r_batch : have;
	/* An append that is under way has the table's lock. */
	if (newest < 0 || !s->s_nreaders || newest > have || st->st_server->v_lock_inst) {
		result_int(r, 0, 0, 0);
		conn_reply(st, r, false);
		return;
	}
	sim_log("the part with batch %lld is freed", (long long)newest);
	result_int(r, 0, 0, 1);
	st->st_wal = (struct wal){.w_free = true, .w_part = part};
	commit(st, r);
}

static void terminate(struct stmt *st)
{
	bool like = strstr(st->st_sql, "like $1") != NULL;
	const struct cell *c = &st->st_arg[like ? 0 : 1];
	char name[128];
	unsigned n;

	snprintf(name, sizeof(name), "%.*s", c->c_n, (const char *)c->c_p);
	if (like && strchr(name, '%'))
		*strchr(name, '%') = 0;
	n = conns_end(st->st_server, name, like, like ? 0 : stmt_int(st, 1), st->st_conn);
	conn_reply(st, result_new(PGRES_TUPLES_OK, (int)n, 1), false);
}

static bool begins(const struct stmt *st, const char *with)
{
	return !strncmp(st->st_sql, with, strlen(with));
}

void sql_run(struct stmt *st)
{
	struct pg_result *r;

	if (begins(st, "select version from meta")) {
		r = result_new(PGRES_TUPLES_OK, 1, 1);
		result_int(r, 0, 0, 2); /* PG_VERSION */
		conn_reply(st, r, false);
	} else if (begins(st, "update instance set ")) {
		update_instance(st, false);
	} else if (begins(st, "with g as (update instance set ")) {
		update_instance(st, true);
	} else if (begins(st, "select t.batch, t.data")) {
		batches(st);
	} else if (begins(st, "insert into reader")) {
		keep(st, false);
	} else if (begins(st, "with d as (delete from reader")) {
		keep(st, true);
	} else if (begins(st, "select batch, standbys(), coalesce(")) {
		head_of(st);
	} else if (begins(st, "delete from reader")) {
		conn_reply(st, count(PGRES_COMMAND_OK, 0), false); /* a day is not simulated */
	} else if (begins(st, "select free_part")) {
		free_part(st);
	} else if (begins(st, "select folded")) {
		folded(st);
	} else if (begins(st, "with f as (update fold")) {
		fold(st);
	} else if (begins(st, "select pg_terminate_backend")) {
		terminate(st);
	} else if (strstr(st->st_sql, " from instance where ")) {
		look(st);
	} else {
		unknown(st->st_sql, st->st_sql);
	}
}
