/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libpq.c - the functions of libpq that pg/ uses, over the simulator's network to the model of
 * PostgreSQL. As far as pg/ sees it: one statement at a time, results whole.
 */
#include "tests/sim/engine.h"
#include "tests/sim/redirect.h"
#include <libpq-fe.h>

struct item {
	struct pg_result *i_res;
	bool i_notice, i_lost, i_open;
	struct item *i_next;
};

struct pg_conn_sim {
	struct sim_fd c_fd;
	int c_number;
	unsigned c_node;
	struct pg_server *c_server;
	unsigned c_run;
	int c_pid;
	char c_name[64], c_err[120];
	ConnStatusType c_status;
	bool c_connecting, c_async, c_closed, c_ended, c_backend;
	unsigned c_lock_ms;
	/* The client's side. */
	struct item *c_in, **c_in_end;
	bool c_busy, c_given, c_copy;
	struct pg_result *c_res;
	struct pg_result *c_rows; /* of COPY */
	int c_row;
	PQnoticeReceiver c_on_notice;
	void *c_notice_arg;
	/* The server's. */
	struct stmt *c_cur;
	const char *c_prepared;
	bool c_inside, c_frozen;
	struct pg_state *c_snap;
	struct pg_conn_sim *c_next;
};

static struct pg_conn_sim *conns;
static int next_pid;

void conns_begin(void)
{
	conns = NULL;
	next_pid = 100;
}

static struct pg_conn_sim *mine(const PGconn *c)
{
	return (struct pg_conn_sim *)c;
}

/* ---- results ---- */

struct pg_result *result_new(int status, int rows, int cols)
{
	struct pg_result *r = sim_alloc(sizeof(*r));

	r->r_status = status;
	r->r_rows = rows;
	r->r_cols = cols;
	r->r_cell = sim_alloc(((size_t)rows * (size_t)cols + 1) * sizeof(*r->r_cell));
	for (int i = 0; i < rows * cols; i++)
		r->r_cell[i].c_n = -1;
	return r;
}

void result_bytes(struct pg_result *r, int row, int col, const void *p, size_t n)
{
	r->r_cell[row * r->r_cols + col] = (struct cell){sim_copy(p, n), (int)n};
}

void result_int(struct pg_result *r, int row, int col, int64_t v)
{
	uint8_t be[8];

	for (int i = 0; i < 8; i++)
		be[i] = (uint8_t)((uint64_t)v >> (56 - 8 * i));
	result_bytes(r, row, col, be, sizeof(be));
}

ExecStatusType PQresultStatus(const PGresult *r)
{
	return r ? (ExecStatusType)r->r_status : PGRES_FATAL_ERROR;
}

char *PQresultErrorMessage(const PGresult *r)
{
	return r ? (char *)r->r_msg : "";
}

char *PQresultErrorField(const PGresult *r, int field)
{
	return r && field == PG_DIAG_SQLSTATE && r->r_state[0] ? (char *)r->r_state : NULL;
}

int PQntuples(const PGresult *r)
{
	return r ? r->r_rows : 0;
}

int PQnfields(const PGresult *r)
{
	return r ? r->r_cols : 0;
}

static const struct cell *cell_of(const PGresult *r, int row, int col)
{
	return &r->r_cell[row * r->r_cols + col];
}

char *PQgetvalue(const PGresult *r, int row, int col)
{
	return cell_of(r, row, col)->c_n < 0 ? "" : (char *)cell_of(r, row, col)->c_p;
}

int PQgetlength(const PGresult *r, int row, int col)
{
	return cell_of(r, row, col)->c_n < 0 ? 0 : cell_of(r, row, col)->c_n;
}

int PQgetisnull(const PGresult *r, int row, int col)
{
	return cell_of(r, row, col)->c_n < 0;
}

char *PQcmdTuples(PGresult *r)
{
	return r->r_tuples;
}

void PQclear(PGresult *r)
{
	(void)r; /* the schedule's memory */
}

/* ---- what arrives at the client ---- */

struct answer {
	struct pg_conn_sim *a_conn;
	struct item a_item;
};

static void at_client(void *arg)
{
	struct answer *a = arg;
	struct pg_conn_sim *c = a->a_conn;

	if (c->c_closed)
		return;
	*c->c_in_end = &a->a_item;
	c->c_in_end = &a->a_item.i_next;
	sim_wake(&c->c_fd.f_wait);
}

static void tell(struct pg_conn_sim *c, struct item it)
{
	struct answer a = {c, it};

	sim_send(c->c_server->v_at, c->c_node, NULL, at_client, sim_copy(&a, sizeof(a)));
}

static void tell_lost(struct pg_conn_sim *c)
{
	tell(c, (struct item){.i_lost = true});
}

void conn_reply(struct stmt *st, struct pg_result *r, bool notice)
{
	st->st_done = true;
	st->st_conn->c_cur = NULL;
	if (!st->st_conn->c_ended)
		tell(st->st_conn, (struct item){.i_res = r, .i_notice = notice});
}

void conn_fail(struct stmt *st, const char *state, const char *msg)
{
	struct pg_result *r = result_new(PGRES_FATAL_ERROR, 0, 0);

	snprintf(r->r_state, sizeof(r->r_state), "%s", state);
	snprintf(r->r_msg, sizeof(r->r_msg), "%s", msg);
	conn_reply(st, r, false);
}

unsigned conn_lock_ms(const struct pg_conn_sim *c)
{
	return c->c_lock_ms;
}

bool conn_async(const struct pg_conn_sim *c)
{
	return c->c_async;
}

struct pg_state *conn_snapshot(struct pg_conn_sim *c)
{
	if (!c->c_inside || !c->c_frozen)
		return NULL;
	if (!c->c_snap)
		c->c_snap = sim_copy(c->c_server->v_state, sizeof(*c->c_snap));
	return c->c_snap;
}

void conns_lost(struct pg_server *v, bool told)
{
	for (struct pg_conn_sim *c = conns; c; c = c->c_next) {
		if (c->c_server != v || !c->c_backend)
			continue;
		c->c_backend = false;
		c->c_cur = NULL;
		if (told && !c->c_closed)
			tell_lost(c);
	}
}

static bool take_out(struct stmt **list, struct stmt *st)
{
	for (; *list; list = &(*list)->st_next)
		if (*list == st) {
			*list = st->st_next;
			return true;
		}
	return false;
}

unsigned conns_end(struct pg_server *v, const char *name, bool like, int64_t pid,
		   struct pg_conn_sim *but)
{
	unsigned n = 0;

	for (struct pg_conn_sim *c = conns; c; c = c->c_next) {
		struct stmt *st = c->c_cur;

		if (c->c_server != v || !c->c_backend || c == but || (pid && c->c_pid != pid) ||
		    strncmp(c->c_name, name, strlen(name)) != 0 ||
		    (!like && strcmp(c->c_name, name) != 0))
			continue;
		n++;
		sim_log("the server process of \"%s\" is ended%s", c->c_name,
			st ? ", with a statement" : "");
		tell_lost(c);
		c->c_ended = true;
		c->c_backend = false;
		if (!st)
			continue;
		/* It waits for a standby: it is committed here, and seen. */
		if (take_out(&v->v_waits, st))
			sql_committed(st, true);
		else
			take_out(&v->v_queue, st);
		c->c_cur = NULL;
	}
	return n;
}

/* ---- connections ---- */

static bool readable(struct sim_fd *f)
{
	return ((struct pg_conn_sim *)f)->c_in != NULL;
}

static bool server_ready(void *arg)
{
	return !((struct pg_conn_sim *)arg)->c_server->v_paused;
}

static void at_server(void *arg)
{
	struct pg_conn_sim *c = arg;
	struct pg_server *v = c->c_server;

	if (!v->v_up || !v->v_primary) {
		tell_lost(c);
		return;
	}
	c->c_run = v->v_run;
	c->c_pid = next_pid++;
	c->c_backend = true;
	tell(c, (struct item){.i_open = true});
}

static const char *param(const char *const *k, const char *const *v, const char *name)
{
	const char *found = "";

	for (int i = 0; k[i]; i++)
		if (!strcmp(k[i], name))
			found = v[i];
	return found;
}

PGconn *PQconnectStartParams(const char *const *k, const char *const *v, int expand)
{
	struct pg_conn_sim *c = sim_alloc(sizeof(*c));
	const char *host = param(k, v, "host"), *opts = param(k, v, "options"), *lock;

	(void)expand;
	sim_point();
	c->c_fd.f_ready = readable;
	c->c_number = sim_fd_new(&c->c_fd);
	c->c_node = sim_self()->p_node;
	c->c_server = &pg_servers[(host[2] - '0') % PG_SERVERS];
	c->c_status = CONNECTION_STARTED;
	c->c_connecting = true;
	c->c_in_end = &c->c_in;
	snprintf(c->c_name, sizeof(c->c_name), "%s", param(k, v, "application_name"));
	lock = strstr(opts, "lock_timeout=0")
		       ? strstr(strstr(opts, "lock_timeout=0") + 5, "lock_timeout=")
		       : NULL;
	c->c_lock_ms = lock ? (unsigned)strtoul(lock + 13, NULL, 10) : 0;
	c->c_async = strstr(opts, "synchronous_commit=off") != NULL;
	c->c_next = conns;
	conns = c;
	sim_send(c->c_node, c->c_server->v_at, server_ready, at_server, c);
	return (PGconn *)c;
}

static void lost(struct pg_conn_sim *c)
{
	c->c_status = CONNECTION_BAD;
	snprintf(c->c_err, sizeof(c->c_err), "the server closed the connection");
}

static void take_in(struct pg_conn_sim *c)
{
	struct item *it;

	while ((it = c->c_in)) {
		c->c_in = it->i_next;
		if (!c->c_in)
			c->c_in_end = &c->c_in;
		if (it->i_lost) {
			lost(c);
		} else if (it->i_open) {
			c->c_status = CONNECTION_OK;
			c->c_connecting = false;
		} else {
			if (it->i_notice && c->c_on_notice)
				c->c_on_notice(c->c_notice_arg, it->i_res);
			c->c_res = it->i_res;
		}
	}
}

PostgresPollingStatusType PQconnectPoll(PGconn *pc)
{
	struct pg_conn_sim *c = mine(pc);

	take_in(c);
	return c->c_status == CONNECTION_OK    ? PGRES_POLLING_OK
	       : c->c_status == CONNECTION_BAD ? PGRES_POLLING_FAILED
					       : PGRES_POLLING_READING;
}

void PQfinish(PGconn *pc)
{
	struct pg_conn_sim *c = mine(pc);

	sim_fd_free(c->c_number);
	c->c_closed = true;
}

ConnStatusType PQstatus(const PGconn *pc)
{
	return mine(pc)->c_status;
}

int PQsocket(const PGconn *pc)
{
	return mine(pc)->c_number;
}

int PQsetnonblocking(PGconn *pc, int arg)
{
	(void)pc;
	(void)arg;
	return 0;
}

PQnoticeReceiver PQsetNoticeReceiver(PGconn *pc, PQnoticeReceiver fn, void *arg)
{
	mine(pc)->c_on_notice = fn;
	mine(pc)->c_notice_arg = arg;
	return NULL;
}

char *PQerrorMessage(const PGconn *pc)
{
	return pc ? mine(pc)->c_err : "";
}

int PQserverVersion(const PGconn *pc)
{
	(void)pc;
	return 150020;
}

int PQbackendPID(const PGconn *pc)
{
	return mine(pc)->c_pid;
}

PGTransactionStatusType PQtransactionStatus(const PGconn *pc)
{
	const struct pg_conn_sim *c = mine(pc);

	return c->c_busy ? PQTRANS_ACTIVE : c->c_inside ? PQTRANS_INTRANS : PQTRANS_IDLE;
}

/* ---- statements ---- */

static void begin_copy(struct stmt *st)
{
	struct pg_state *snap = conn_snapshot(st->st_conn);
	const struct pg_state *s = snap ? snap : st->st_server->v_state;
	struct pg_result *r = result_new(PGRES_COPY_OUT, (int)s->s_nkv, 2);

	for (unsigned i = 0; i < s->s_nkv; i++) {
		result_bytes(r, (int)i, 0, s->s_kv[i].p_k->b_data, s->s_kv[i].p_k->b_n);
		result_bytes(r, (int)i, 1, s->s_kv[i].p_v->b_data, s->s_kv[i].p_v->b_n);
	}
	conn_reply(st, r, false);
}

static bool stmt_ready(void *arg)
{
	return !((struct stmt *)arg)->st_server->v_paused;
}

static void stmt_arrives(void *arg);
static void copy_later(void *arg, uint64_t n)
{
	(void)n;
	stmt_arrives(arg);
}

static void stmt_arrives(void *arg)
{
	struct stmt *st = arg;
	struct pg_conn_sim *c = st->st_conn;
	struct pg_server *v = st->st_server;

	if (!v->v_up || v->v_run != c->c_run || !c->c_backend) {
		tell_lost(c);
		return;
	}
	st->st_run = v->v_run;
	c->c_cur = st;
	if (!strncmp(st->st_sql, "begin", 5)) {
		c->c_inside = true;
		/* The planted fault: each statement sees what is there by then. */
		c->c_frozen = strstr(st->st_sql, "repeatable read") && !sim_planted("torn-refill");
		conn_reply(st, result_new(PGRES_COMMAND_OK, 0, 0), false);
	} else if (!strncmp(st->st_sql, "prepare ", 8)) {
		c->c_prepared = st->st_sql + 8;
		conn_reply(st, result_new(PGRES_COMMAND_OK, 0, 0), false);
	} else if (!strncmp(st->st_sql, "copy (select k, v from kv", 25)) {
		if (sim_planted("torn-refill") && !st->st_async) {
			st->st_async = true; /* a table that takes long */
			sim_at(sim_now + SIM_MS(sim_between(200, 1500)), copy_later, st, 0);
			return;
		}
		begin_copy(st);
	} else {
		sql_run(st);
	}
}

static int send_stmt(struct pg_conn_sim *c, const char *sql, int n, const char *const *values,
		     const int *lens)
{
	struct stmt *st = sim_alloc(sizeof(*st));

	sim_point();
	if (c->c_status != CONNECTION_OK || c->c_busy || n > 8)
		return 0;
	st->st_conn = c;
	st->st_server = c->c_server;
	st->st_sql = sim_copy(sql, strlen(sql));
	st->st_nargs = n;
	for (int i = 0; i < n; i++) {
		size_t len = values[i] ? (size_t)lens[i] : 0;
		struct blob *b = sim_alloc(sizeof(*b) + len + 1);

		b->b_n = len;
		if (len)
			memcpy(b->b_data, values[i], len);
		st->st_arg[i] = (struct cell){b->b_data, (int)len};
	}
	c->c_busy = true;
	c->c_given = false;
	c->c_res = NULL;
	sim_send(c->c_node, c->c_server->v_at, stmt_ready, stmt_arrives, st);
	sim_point();
	return 1;
}

int PQsendQueryParams(PGconn *pc, const char *sql, int n, const Oid *types,
		      const char *const *values, const int *lens, const int *formats, int binary)
{
	(void)types;
	(void)formats;
	(void)binary;
	return send_stmt(mine(pc), sql, n, values, lens);
}

int PQsendQueryPrepared(PGconn *pc, const char *name, int n, const char *const *values,
			const int *lens, const int *formats, int binary)
{
	(void)name;
	(void)formats;
	(void)binary;
	return send_stmt(mine(pc), mine(pc)->c_prepared, n, values, lens);
}

int PQsendPrepare(PGconn *pc, const char *name, const char *sql, int n, const Oid *types)
{
	char *text = sim_alloc(strlen(sql) + 16);

	(void)name;
	(void)n;
	(void)types;
	sprintf(text, "prepare %s", sql);
	return send_stmt(mine(pc), text, 0, NULL, NULL);
}

int PQsendQuery(PGconn *pc, const char *sql)
{
	return send_stmt(mine(pc), sql, 0, NULL, NULL);
}

int PQconsumeInput(PGconn *pc)
{
	take_in(mine(pc));
	return mine(pc)->c_status != CONNECTION_BAD;
}

int PQisBusy(PGconn *pc)
{
	const struct pg_conn_sim *c = mine(pc);

	return c->c_busy && !c->c_res && !c->c_given && c->c_status == CONNECTION_OK;
}

int PQflush(PGconn *pc)
{
	(void)pc;
	return 0;
}

PGresult *PQgetResult(PGconn *pc)
{
	struct pg_conn_sim *c = mine(pc);
	struct pg_result *r = c->c_res;

	if (r && r->r_status == PGRES_COPY_OUT && !c->c_copy) {
		c->c_copy = true;
		c->c_rows = r;
		c->c_row = -1;
	} else {
		c->c_res = NULL;
		c->c_given = r != NULL;
	}
	if (!r)
		c->c_busy = false;
	return r;
}

static char *copy_bytes(const void *p, size_t n, char **at)
{
	memcpy(*at, p, n);
	*at += n;
	return *at;
}

int PQgetCopyData(PGconn *pc, char **out, int async)
{
	static const uint8_t head[19] = "PGCOPY\n\377\r\n";
	static const uint8_t tail[2] = {0xff, 0xff}, two[2] = {0, 2};
	struct pg_conn_sim *c = mine(pc);
	struct pg_result *r = c->c_rows;
	char *p, *at;
	int row = c->c_row + 1;

	(void)async;
	*out = NULL;
	if (row > r->r_rows) {
		c->c_copy = false;
		c->c_res = result_new(PGRES_COMMAND_OK, 0, 0);
		return -1;
	}
	p = at = sim_malloc(
		64 + (row < r->r_rows ? (size_t)(cell_of(r, row, 0)->c_n + cell_of(r, row, 1)->c_n)
				      : 0));
	if (!row)
		copy_bytes(head, sizeof(head), &at);
	if (row == r->r_rows) {
		copy_bytes(tail, 2, &at);
	} else {
		copy_bytes(two, 2, &at);
		for (int i = 0; i < 2; i++) {
			const struct cell *f = cell_of(r, row, i);
			const uint8_t n[4] = {0, 0, (uint8_t)(f->c_n >> 8), (uint8_t)f->c_n};

			copy_bytes(n, 4, &at);
			copy_bytes(f->c_p, (size_t)f->c_n, &at);
		}
	}
	c->c_row = row;
	*out = p;
	return (int)(at - p);
}

/* ---- connection strings ---- */

PQconninfoOption *PQconninfoParse(const char *info, char **err)
{
	PQconninfoOption *o = sim_calloc(2, sizeof(*o));

	(void)err;
	/* "host=LIST" is all that the simulator gives. */
	o->keyword = "host";
	o->val = sim_strdup(strncmp(info, "host=", 5) ? info : info + 5);
	return o;
}

void PQconninfoFree(PQconninfoOption *o)
{
	if (o)
		sim_free(o->val);
	sim_free(o);
}

void PQfreemem(void *p)
{
	sim_free(p);
}
