/* SPDX-License-Identifier: Apache-2.0 */
/* pg_world.h - a primary "p" and the standbys "s1" and "s2" of PostgreSQL, for a test program. */
#ifndef TESTS_UNIT_PG_WORLD_H
#define TESTS_UNIT_PG_WORLD_H
#include "pg/pg_int.h"
#include "tests/unit/unit.h"
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORLD_L = 1500, WORLD_WAIT_MS = 60000 };

static char world_dir[160];

/* pgcluster's command. */
static inline bool world_try(const char *what)
{
	const char *top = getenv("top_srcdir");
	char line[512];

	snprintf(line, sizeof(line), "bash %s/tests/ha/pgcluster %s %s >&2", top ? top : "..",
		 world_dir, what);
	return system(line) == 0;
}

static inline void world(const char *what)
{
	ck_assert_msg(world_try(what), "pgcluster %s", what);
}

/* False: all users here are one, and PostgreSQL does not run as root. */
static inline bool world_may_run(void)
{
	int status = 1;
	pid_t pid;

	if (access("/usr/lib/postgresql", X_OK))
		return false;
	if (getuid())
		return true;
	pid = fork();
	if (!pid)
		_exit(setuid(65534) ? 1 : 0);
	return waitpid(pid, &status, 0) == pid && !status;
}

/* False: there is no PostgreSQL here, or it cannot run. */
static inline bool world_make(void)
{
	return access("/usr/lib/postgresql", X_OK) == 0 &&
	       scratch_make(world_dir, sizeof(world_dir), "pg") && world_try("make");
}

/* What main() does: runs the tests with a PostgreSQL of their own, each with this limit in seconds.
 * Returns the status of the program. */
static inline int world_run(const char *name, int seconds, const TTest *const *tests)
{
	Suite *s = suite_create(name);
	int status;

	if (!world_may_run()) {
		puts("1..0 # SKIP no PostgreSQL that may run here (tools/setup tests)");
		return 0;
	}
	if (!world_make()) {
		puts("1..1\nnot ok 1 - PostgreSQL starts");
		world_try("end");
		return 1;
	}
	unit_add(s, name, NULL, NULL, seconds, tests);
	status = unit_run(s);
	world_try("end");
	return status;
}

static inline const char *world_conninfo(const char *nodes, const char *user)
{
	static char out[600];
	char name[16];
	size_t n = (size_t)snprintf(out, sizeof(out), "dbname=postgres user=%s host=", user);

	for (const char *p = nodes; sscanf(p, "%15[^,]", name) == 1; p += strlen(name) + 1) {
		n += (size_t)snprintf(out + n, sizeof(out) - n, "%s%s/%s", p == nodes ? "" : ",",
				      world_dir, name);
		if (!p[strlen(name)])
			break;
	}
	return out;
}

/* A connection as the superuser: what a program would do without the rules of this room. */
static inline PGconn *raw(const char *node)
{
	PGconn *c = PQconnectdb(world_conninfo(node, "postgres"));

	ck_assert_msg(PQstatus(c) == CONNECTION_OK, "%s", PQerrorMessage(c));
	PQclear(PQexec(c, "set search_path = weft"));
	return c;
}

/* A copy of the text that stays: a process ends with each test. */
static inline const char *world_text(const char *text)
{
	static char *kept[64];
	static unsigned n;

	ck_assert_uint_lt(n, 64);
	kept[n] = strdup(text);
	ck_assert_ptr_nonnull(kept[n]);
	return kept[n++];
}

/* The first value that the statement gives at this server. The connection stays. */
static inline const char *sql(const char *node, const char *fmt, ...)
{
	static char out[512], at[16];
	static PGconn *c;
	char text[1024];
	PGresult *r = NULL;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	for (int i = 0;
	     i < 2 && PQresultStatus(r) != PGRES_TUPLES_OK && PQresultStatus(r) != PGRES_COMMAND_OK;
	     i++) {
		if (i || !c || strcmp(at, node) || PQstatus(c) != CONNECTION_OK) {
			PQfinish(c);
			c = raw(node);
			snprintf(at, sizeof(at), "%s", node);
		}
		PQclear(r);
		r = PQexec(c, text);
	}
	ck_assert_msg(PQresultStatus(r) == PGRES_TUPLES_OK || PQresultStatus(r) == PGRES_COMMAND_OK,
		      "%s: %s", text, PQresultErrorMessage(r));
	snprintf(out, sizeof(out), "%s", PQntuples(r) ? PQgetvalue(r, 0, 0) : "");
	PQclear(r);
	return out;
}

/* Waits until the condition holds. */
#define WAIT_FOR(cond)                                                                             \
	do {                                                                                       \
		uint64_t until_ = pg_in_ms(WORLD_WAIT_MS);                                         \
		while (!(cond)) {                                                                  \
			ck_assert_msg(clock_boot_ns() < until_, "%s", "waited for " #cond);        \
			usleep(10000);                                                             \
		}                                                                                  \
	} while (0)

static inline struct pg_options world_options(const char *nodes, uint32_t inst)
{
	struct pg_init i = {.i_conninfo = world_text(world_conninfo(nodes, "postgres")),
			    .i_role = "weft",
			    .i_inst = inst};
	char why[PG_WHY] = "";

	ck_assert_msg(!pg_init(&i, why), "%s", why);
	return (struct pg_options){.o_conninfo = world_text(world_conninfo(nodes, "weft")),
				   .o_inst = inst,
				   .o_owner = "test",
				   .o_lease_ms = WORLD_L,
				   .o_replicas = 2};
}

static inline struct pg_watch *world_watch(const struct pg_options *o)
{
	struct pg_watch *w;

	ck_assert_int_eq(pg_watch_open(&w, o), 0);
	return w;
}

/* Claims without a wait, as one does who knows that the holder is gone. */
static inline struct pg_log *world_claim(struct pg_watch *w)
{
	struct pg_log *l = NULL;
	struct pg_row row;

	WAIT_FOR(!pg_watch_look(w, &row) && !pg_watch_claim(w, &l));
	return l;
}

/* An append on a thread of its own. */
struct appender {
	struct pg_log *l;
	uint64_t batch;
	const char *data;
	_Atomic int done; /* 0: not yet; 1: err is there */
	int err;
	pthread_t t;
};

static inline void *appender_run(void *arg)
{
	struct appender *a = arg;

	a->err = pg_log_append(a->l, a->batch, a->data, strlen(a->data));
	atomic_store(&a->done, 1);
	return NULL;
}

static inline void append_begin(struct appender *a, struct pg_log *l, const char *data)
{
	*a = (struct appender){.l = l, .batch = pg_log_batch(l) + 1, .data = data};
	ck_assert_int_eq(pthread_create(&a->t, NULL, appender_run, a), 0);
}

static inline int append_end(struct appender *a)
{
	WAIT_FOR(atomic_load(&a->done));
	pthread_join(a->t, NULL);
	return a->err;
}

static inline int append(struct pg_log *l, const char *data)
{
	return pg_log_append(l, pg_log_batch(l) + 1, data, strlen(data));
}
#endif
