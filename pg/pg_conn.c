/* SPDX-License-Identifier: Apache-2.0 */
/* pg_conn.c - a connection to PostgreSQL that never blocks past a deadline, and counts what
 * PostgreSQL says beside the answer. */
#include "pg/pg_int.h"
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INT8 = 20, BYTEA = 17, TEXT = 25 };

static void why(char out[PG_WHY], const char *text)
{
	size_t n = strcspn(text, "\n");

	snprintf(out, PG_WHY, "%.*s", (int)(n < PG_WHY ? n : PG_WHY - 1), text);
}

/* ---- where to ---- */

static const char *pg_option(const struct pg_target *t, const char *name)
{
	for (const PQconninfoOption *o = t->t_opts; o && o->keyword; o++)
		if (!strcmp(o->keyword, name))
			return o->val && *o->val ? o->val : NULL;
	return NULL;
}

/* The nth of a list with commas; a list of one stands for all. Returns the number of them. */
static unsigned nth(const char *list, unsigned n, char *out, size_t room)
{
	unsigned count = 0;

	out[0] = 0;
	for (const char *p = list; p; count++) {
		size_t len = strcspn(p, ",");

		if (count == n || !count)
			snprintf(out, room, "%.*s", (int)len, p);
		p = p[len] ? p + len + 1 : NULL;
	}
	return count;
}

int pg_target_set(struct pg_target *t, const char *conninfo, char said[PG_WHY])
{
	char *err = NULL, one[256];
	const char *hosts;

	*t = (struct pg_target){.t_wake = -1};
	t->t_opts = PQconninfoParse(conninfo, &err);
	if (!t->t_opts) {
		why(said, err ? err : "the connection string is wrong");
		PQfreemem(err);
		return -EINVAL;
	}
	hosts = pg_option(t, "hostaddr");
	if (!hosts)
		hosts = pg_option(t, "host");
	t->t_nhosts = hosts ? nth(hosts, 0, one, sizeof(one)) : 1;
	return 0;
}

void pg_target_free(struct pg_target *t)
{
	PQconninfoFree(t->t_opts);
	t->t_opts = NULL;
}

int pg_conninfo_check(const char *conninfo, char said[PG_WHY])
{
	struct pg_target t;
	int err = pg_target_set(&t, conninfo, said);

	if (!err)
		pg_target_free(&t);
	return err;
}

/* ---- open, close ---- */

static void on_notice(void *arg, const PGresult *res)
{
	struct pg_conn *c = arg;

	c->c_notices++;
	why(c->c_why, PQresultErrorMessage(res));
}

/* Waits until the socket is ready. 0; -ETIMEDOUT; -ECANCELED. */
static int pg_wait_for(struct pg_conn *c, short events, uint64_t deadline)
{
	struct pollfd p[2] = {{.fd = PQsocket(c->c_pg), .events = events},
			      {.fd = c->c_wake, .events = POLLIN}};

	for (;;) {
		uint64_t now = clock_boot_ns();
		int n;

		if (now >= deadline)
			return -ETIMEDOUT;
		n = poll(p, 2, (int)((deadline - now + 999999) / 1000000));
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0 && p[1].revents) {
			c->c_woken = true;
			return -ECANCELED;
		}
		if (n > 0 && p[0].revents)
			return 0;
	}
}

int pg_conn_wait(struct pg_conn *c, bool write, uint64_t deadline)
{
	return pg_wait_for(c, write ? POLLIN | POLLOUT : POLLIN, deadline);
}

static const char *const ours[] = {"host",    "hostaddr",	  "port",
				   "options", "application_name", "target_session_attrs"};

static bool is_ours(const char *keyword)
{
	for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
		if (!strcmp(ours[i], keyword))
			return true;
	return false;
}

/* One host; all that its name stands for. */
static int open_one(struct pg_conn *c, struct pg_target *t, unsigned which, const char *name,
		    const char *gucs, uint64_t deadline)
{
	char host[256] = "", addr[256] = "", port[32] = "", all[512], ms[32];
	const char *k[64] = {NULL}, *v[64] = {NULL};
	PostgresPollingStatusType st = PGRES_POLLING_WRITING;
	unsigned n = 0;
	int err = 0;

	nth(pg_option(t, "host"), which, host, sizeof(host));
	nth(pg_option(t, "hostaddr"), which, addr, sizeof(addr));
	nth(pg_option(t, "port"), which, port, sizeof(port));
	snprintf(all, sizeof(all),
		 "%s -c synchronous_commit=on -c lock_timeout=0 "
		 "-c statement_timeout=0 -c client_min_messages=notice "
		 "-c default_transaction_isolation=read\\ committed -c search_path=weft %s",
		 pg_option(t, "options") ? pg_option(t, "options") : "", gucs);
	snprintf(ms, sizeof(ms), "%lld",
		 (long long)((deadline - clock_boot_ns()) / 1000000 + 1000));
	/* What the conninfo says comes later, and so counts. */
#define PUT(key, value) (k[n] = (key), v[n++] = (value))
	PUT("tcp_user_timeout", ms);
	PUT("keepalives_idle", "5");
	for (const PQconninfoOption *o = t->t_opts; o->keyword; o++)
		if (o->val && !is_ours(o->keyword) && n < 50)
			PUT(o->keyword, o->val);
	PUT("host", host);
	PUT("hostaddr", addr);
	PUT("port", port);
	PUT("options", all);
	PUT("application_name", name);
	PUT("target_session_attrs", pg_option(t, "target_session_attrs")
					    ? pg_option(t, "target_session_attrs")
					    : "read-write");
#undef PUT
	c->c_pg = PQconnectStartParams(k, v, 0);
	if (!c->c_pg)
		return -ENOMEM;
	if (PQstatus(c->c_pg) == CONNECTION_BAD)
		st = PGRES_POLLING_FAILED;
	while (st != PGRES_POLLING_OK && st != PGRES_POLLING_FAILED) {
		err = pg_wait_for(c, st == PGRES_POLLING_READING ? POLLIN : POLLOUT, deadline);
		if (err)
			break;
		st = PQconnectPoll(c->c_pg);
	}
	if (!err && st == PGRES_POLLING_OK && !PQsetnonblocking(c->c_pg, 1)) {
		PQsetNoticeReceiver(c->c_pg, on_notice, c);
		return 0;
	}
	why(c->c_why, err == -ETIMEDOUT ? "PostgreSQL does not answer" : PQerrorMessage(c->c_pg));
	PQfinish(c->c_pg);
	c->c_pg = NULL;
	return err == -ECANCELED ? err : -EAGAIN;
}

int pg_conn_open(struct pg_conn *c, struct pg_target *t, const char *name, const char *gucs,
		 uint64_t deadline)
{
	int err = -EAGAIN;

	*c = (struct pg_conn){.c_wake = t->t_wake};
	for (unsigned i = 0; i < t->t_nhosts && err == -EAGAIN; i++) {
		uint64_t now = clock_boot_ns(), share;

		if (now >= deadline)
			break;
		share = (deadline - now) / (t->t_nhosts - i);
		err = open_one(c, t, t->t_next, name, gucs, now + share);
		/* The one that answered is the first next time. */
		if (err == -EAGAIN)
			t->t_next = (t->t_next + 1) % t->t_nhosts;
	}
	return err;
}

void pg_conn_close(struct pg_conn *c)
{
	if (c->c_pg)
		PQfinish(c->c_pg);
	c->c_pg = NULL;
}

/* ---- statements ---- */

void pg_arg_of(struct pg_args *a, Oid type, const void *p, size_t n)
{
	a->a_type[a->a_n] = type;
	a->a_value[a->a_n] = p;
	a->a_len[a->a_n] = (int)n;
	a->a_format[a->a_n++] = 1;
}

void pg_arg_int(struct pg_args *a, uint64_t v)
{
	a->a_num[a->a_n] = htobe64(v);
	pg_arg_of(a, INT8, NULL, sizeof(v));
}

void pg_arg_bytes(struct pg_args *a, const void *p, size_t n)
{
	pg_arg_of(a, BYTEA, n ? p : "", n);
}

void pg_arg_text(struct pg_args *a, const char *s)
{
	pg_arg_of(a, TEXT, s, strlen(s));
}

uint64_t pg_num(const PGresult *r, int row, int column)
{
	const char *p = PQgetvalue(r, row, column);
	uint64_t v = 0;

	for (int i = 0; i < PQgetlength(r, row, column) && i < 8; i++)
		v = v << 8 | (uint8_t)p[i];
	return v;
}

/* Where the numbers are: a struct pg_args may have been copied. */
static void values(const struct pg_args *a, const char *out[PG_ARGS])
{
	for (int i = 0; i < a->a_n; i++)
		out[i] = a->a_value[i] ? a->a_value[i] : (const char *)&a->a_num[i];
}

/* Reads to the end of the statement that was sent. */
static enum pg_end finish(struct pg_conn *c, uint64_t deadline, PGresult **out)
{
	enum pg_end end = PG_UNKNOWN;
	PGresult *res = NULL, *next;
	int flushing = 1;

	while (flushing || PQisBusy(c->c_pg)) {
		flushing = PQflush(c->c_pg);
		if (flushing < 0)
			goto lost;
		if (!flushing && !PQisBusy(c->c_pg))
			break;
		if (pg_wait_for(c, flushing ? POLLIN | POLLOUT : POLLIN, deadline)) {
			snprintf(c->c_why, sizeof(c->c_why), "PostgreSQL does not answer");
			return PG_UNKNOWN;
		}
		if (!PQconsumeInput(c->c_pg))
			goto lost;
	}
	while ((next = PQgetResult(c->c_pg))) {
		PQclear(res);
		res = next;
		/* The end of the transaction is still to come. */
		while (PQisBusy(c->c_pg))
			if (pg_wait_for(c, POLLIN, deadline) || !PQconsumeInput(c->c_pg))
				goto lost;
	}
	if (PQstatus(c->c_pg) != CONNECTION_OK ||
	    PQtransactionStatus(c->c_pg) != (c->c_inside ? PQTRANS_INTRANS : PQTRANS_IDLE) ||
	    c->c_notices)
		goto lost;
	switch (PQresultStatus(res)) {
	case PGRES_TUPLES_OK:
	case PGRES_COMMAND_OK:
		end = PG_DONE;
		break;
	default:
		end = PG_FAILED;
		why(c->c_why, PQresultErrorMessage(res));
	}
	*out = res;
	return end;
lost:
	if (!c->c_notices)
		why(c->c_why, PQerrorMessage(c->c_pg));
	PQclear(res);
	return PG_UNKNOWN;
}

/* Before a statement: what came since the last one does not speak of this one, but FATAL does. */
static bool begin(struct pg_conn *c)
{
	if (!c->c_pg || !PQconsumeInput(c->c_pg) || PQstatus(c->c_pg) != CONNECTION_OK)
		return false;
	c->c_notices = 0;
	c->c_sent = clock_boot_ns();
	return true;
}

enum pg_end pg_conn_run(struct pg_conn *c, const char *sql, const struct pg_args *a,
			uint64_t deadline, PGresult **res)
{
	const char *v[PG_ARGS];
	static const struct pg_args none;

	*res = NULL;
	a = a ? a : &none;
	values(a, v);
	if (!begin(c) ||
	    !PQsendQueryParams(c->c_pg, sql, a->a_n, a->a_type, v, a->a_len, a->a_format, 1)) {
		why(c->c_why, PQerrorMessage(c->c_pg));
		return PG_UNKNOWN;
	}
	return finish(c, deadline, res);
}

enum pg_end pg_conn_run_prepared(struct pg_conn *c, const char *name, const struct pg_args *a,
				 uint64_t deadline, PGresult **res)
{
	const char *v[PG_ARGS];

	*res = NULL;
	values(a, v);
	if (!begin(c) || !PQsendQueryPrepared(c->c_pg, name, a->a_n, v, a->a_len, a->a_format, 1)) {
		why(c->c_why, PQerrorMessage(c->c_pg));
		return PG_UNKNOWN;
	}
	return finish(c, deadline, res);
}

enum pg_end pg_conn_prepare(struct pg_conn *c, const char *name, const char *sql,
			    const struct pg_args *types, uint64_t deadline)
{
	PGresult *res = NULL;
	enum pg_end end;

	if (!begin(c) || !PQsendPrepare(c->c_pg, name, sql, types->a_n, types->a_type)) {
		why(c->c_why, PQerrorMessage(c->c_pg));
		return PG_UNKNOWN;
	}
	end = finish(c, deadline, &res);
	PQclear(res);
	return end;
}

int pg_conn_version(struct pg_conn *c, uint64_t deadline)
{
	PGresult *res;
	int err = 0;

	if (PQserverVersion(c->c_pg) < 150000) {
		snprintf(c->c_why, sizeof(c->c_why), "PostgreSQL %d is too old: 15 is needed",
			 PQserverVersion(c->c_pg) / 10000);
		return -ENOTSUP;
	}
	switch (pg_conn_run(c, "select version from meta", NULL, deadline, &res)) {
	case PG_DONE:
		if (PQntuples(res) != 1 || pg_num(res, 0, 0) != PG_VERSION) {
			snprintf(c->c_why, sizeof(c->c_why),
				 "the schema in PostgreSQL has version %llu, this program knows %u",
				 PQntuples(res) ? (unsigned long long)pg_num(res, 0, 0) : 0ull,
				 PG_VERSION);
			err = -ENOTSUP;
		}
		break;
	case PG_FAILED:
		/* Most often: weft pg init did not run. c_why has it. */
		err = -ENOTSUP;
		break;
	default:
		err = -EAGAIN;
	}
	PQclear(res);
	return err;
}
