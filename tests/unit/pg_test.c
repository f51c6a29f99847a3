/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pg_test.c - the log in PostgreSQL keeps pg.h's contract, at a real primary with two synchronous
 * standbys. Each trap is shown on a raw connection first. Each test has an instance of its own.
 */
#include "pg/pg_member.h"
#include "tests/unit/pg_world.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

static const char *batch_of(const char *node, uint32_t inst, uint64_t batch)
{
	return sql(
		node,
		"select convert_from(data, 'UTF8') from log where part / 4 = %u and batch = %llu",
		inst, (unsigned long long)batch);
}

/* An instance whose holder has no need to beat while a test runs. */
static struct pg_options quiet(uint32_t inst)
{
	struct pg_options o = world_options("p", inst);

	o.o_lease_ms = 600000;
	o.o_answer_ms = WORLD_L;
	return o;
}

/* How many statements of the instance wait for a standby. */
static bool waits(const char *like)
{
	return atoi(sql("p",
			"select count(*) from pg_stat_activity where wait_event = 'SyncRep'"
			" and application_name like '%s'",
			like)) > 0;
}

static void standbys(const char *what)
{
	char line[64];

	for (int i = 1; i <= 2; i++) {
		snprintf(line, sizeof(line), "%s s%d", what, i);
		world(line);
	}
}

static bool streams(void)
{
	return atoi(sql("p", "select standbys()")) == 2;
}

/* ---- append, read ---- */

static int see(void *arg, uint64_t batch, const void *data, size_t len)
{
	char *out = arg;

	sprintf(out + strlen(out), "%llu=%.*s ", (unsigned long long)batch, (int)len,
		(const char *)data);
	return 0;
}

START_TEST(append_and_read)
{
	struct pg_options o = world_options("p", 1);
	struct pg_watch *w = world_watch(&o);
	struct pg_log *l = world_claim(w);
	struct pg_row row;
	uint64_t at = 0;
	char said[100] = "", why[PG_WHY];

	ck_assert_uint_eq(pg_log_batch(l), 0);
	ck_assert_uint_eq(pg_log_epoch(l), 1);
	ck_assert(pg_log_live(l));
	ck_assert_int_eq(append(l, "a"), 0);
	ck_assert_int_eq(append(l, ""), 0);
	ck_assert_int_eq(append(l, "ccc"), 0);
	ck_assert_int_eq(pg_log_append(l, 3, "x", 1), -EINVAL);
	ck_assert_int_eq(pg_log_append(l, 5, "x", 1), -EINVAL);
	ck_assert_int_eq(pg_log_state(l, why), PG_LOG_LIVE);
	ck_assert_str_eq(why, "");
	/* A beat says that the last one is acknowledged too. */
	WAIT_FOR(!pg_watch_look(w, &row) && row.r_acked == 3);
	ck_assert_int_eq(pg_read_batches(w, &at, 3, 1, see, said), 0);
	ck_assert_uint_eq(at, 1); /* as many bytes as were asked for, or one batch */
	ck_assert_int_eq(pg_read_batches(w, &at, 3, 1000, see, said), 0);
	ck_assert_str_eq(said, "1=a 2= 3=ccc ");
	ck_assert_int_eq(pg_log_close(l, true), 0);
	ck_assert_int_eq(pg_watch_look(w, &row), 0);
	ck_assert(row.r_free && pg_watch_due(w));
	l = world_claim(w);
	ck_assert_uint_eq(pg_log_batch(l), 3);
	ck_assert_uint_eq(pg_log_epoch(l), 2);
	ck_assert_int_eq(pg_log_close(l, false), 0);
	/* What a look or a claim said holds where the row is the same. */
	at = 0;
	ck_assert_int_eq(pg_read_batches(w, &at, 4, 1000, see, said), -EAGAIN);
	sql("p", "update instance set epoch = 7 where id = 1");
	ck_assert_int_eq(pg_read_batches(w, &at, 3, 1000, see, said), -EAGAIN);
	ck_assert_uint_eq(at, 0);
	ck_assert_str_eq(said, "1=a 2= 3=ccc ");
	WAIT_FOR(!pg_watch_look(w, &row));
	ck_assert_int_eq(pg_read_batches(w, &at, 3, 1000, see, said), 0);
	ck_assert_uint_eq(at, 3);
	pg_watch_close(w);
}
END_TEST

START_TEST(the_schema_is_made_once)
{
	struct pg_init i = {.i_conninfo = world_text(world_conninfo("p", "postgres")),
			    .i_role = "weft",
			    .i_inst = 2};
	struct pg_options o = world_options("p", 2);
	struct pg_watch *w = world_watch(&o);
	static const char *const refused[] = {"drop table weft.log",
					      "create table weft.x ()",
					      "insert into weft.instance values (9)",
					      "delete from weft.instance",
					      "update weft.meta set version = 3",
					      "truncate weft.log_2_0",
					      "select pg_read_file('/etc/passwd')"};
	struct pg_row row;
	char why[PG_WHY] = "";
	PGconn *c;

	sql("p", "update instance set batch = 7 where id = 2");
	ck_assert_int_eq(pg_init(&i, why), 0);
	ck_assert(!i.i_new);
	ck_assert_str_eq(sql("p", "select batch from instance where id = 2"), "7");
	sql("p", "update meta set version = 3");
	ck_assert_int_eq(pg_init(&i, why), -ENOTSUP);
	ck_assert_msg(strstr(why, "version 3"), "%s", why);
	WAIT_FOR(pg_watch_look(w, &row) == -ENOTSUP);
	sql("p", "update meta set version = 2");
	WAIT_FOR(!pg_watch_look(w, &row));
	ck_assert_uint_eq(row.r_batch, 7);
	pg_watch_close(w);
	o.o_inst = 999;
	w = world_watch(&o);
	WAIT_FOR(pg_watch_look(w, &row) == -ENOENT);
	pg_watch_close(w);
	ck_assert(pg_has_password("host=x password=y") && !pg_has_password("host=x user=password"));
	/* The role has the rights that it needs. */
	c = PQconnectdb(o.o_conninfo);
	for (size_t k = 0; k < sizeof(refused) / sizeof(refused[0]); k++) {
		PGresult *r = PQexec(c, refused[k]);
		const char *state = PQresultErrorField(r, PG_DIAG_SQLSTATE);

		ck_assert_msg(state && !strcmp(state, "42501"), "%s: %s", refused[k],
			      PQresultErrorMessage(r));
		PQclear(r);
	}
	PQfinish(c);
}
END_TEST

/* ---- deposed, claims ---- */

START_TEST(a_deposed_holder_changes_nothing)
{
	struct pg_options o = world_options("p", 3);
	struct pg_watch *w = world_watch(&o);
	struct pg_log *a = world_claim(w), *b;

	ck_assert_int_eq(append(a, "of a"), 0);
	b = world_claim(w);
	ck_assert_uint_eq(pg_log_epoch(b), 2);
	ck_assert_int_eq(append(a, "late"), -ESTALE);
	ck_assert(!pg_log_live(a));
	ck_assert_int_eq(pg_log_state(a, NULL), PG_LOG_DEPOSED);
	ck_assert_int_eq(append(b, "of b"), 0);
	ck_assert_str_eq(batch_of("p", 3, 2), "of b");
	ck_assert_int_eq(append(a, "late"), -ESTALE);
	pg_log_close(a, false);
	pg_log_close(b, false);
	pg_watch_close(w);
	/* The role of weft-mds may not write over a batch. */
	o.o_conninfo = world_text(world_conninfo("p", "postgres"));
	w = world_watch(&o);
	/* Without the guard a holder that is deposed writes over it, and calls that durable. */
	a = world_claim(w);
	pg_statements.append = "with g as (update instance set batch = $4 where id = $1 and"
			       " $2 + $3 + $7 > 0 returning id) insert into log select"
			       " $5::int8::int, $4, $6 from g on conflict (part, batch)"
			       " do update set data = excluded.data";
	b = world_claim(w); /* its connection is prepared with this too */
	ck_assert_int_eq(append(b, "of b"), 0);
	if (!append(a, "late"))
		ck_assert_str_eq(batch_of("p", 3, 3), "late");
	else
		ck_assert_int_eq(pg_log_state(a, NULL), PG_LOG_DEPOSED); /* a beat was quicker */
	pg_log_close(a, false);
	pg_log_close(b, false);
	pg_watch_close(w);
}
END_TEST

struct racer {
	struct pg_watch *w;
	struct pg_log *l;
	pthread_barrier_t *both;
	int err;
};

static void *race(void *arg)
{
	struct racer *r = arg;

	pthread_barrier_wait(r->both);
	r->err = pg_watch_claim(r->w, &r->l);
	return NULL;
}

START_TEST(of_two_claims_one_wins)
{
	struct pg_options o = world_options("p", 4);
	pthread_barrier_t both;
	struct racer r[2] = {{.w = world_watch(&o), .both = &both},
			     {.w = world_watch(&o), .both = &both}};
	struct pg_row row[2];
	pthread_t t[2];

	pthread_barrier_init(&both, NULL, 2);
	for (int n = 1; n <= 100; n++) {
		int won = 0;

		WAIT_FOR(!pg_watch_look(r[0].w, &row[0]) && !pg_watch_look(r[1].w, &row[1]));
		for (int i = 0; i < 2; i++)
			pthread_create(&t[i], NULL, race, &r[i]);
		for (int i = 0; i < 2; i++) {
			pthread_join(t[i], NULL);
			ck_assert(!r[i].err == !!r[i].l);
			won += !r[i].err;
			if (r[i].l)
				ck_assert_uint_eq(pg_log_epoch(r[i].l), (unsigned)n);
			if (r[i].l)
				pg_log_close(r[i].l, false);
		}
		ck_assert_msg(won == 1, "claim %d: %d won", n, won);
	}
	pg_watch_close(r[0].w);
	pg_watch_close(r[1].w);
}
END_TEST

START_TEST(a_claim_waits_for_the_lease)
{
	struct pg_options o = world_options("p", 5);
	struct pg_watch *w = world_watch(&o);
	struct pg_log *a = world_claim(w);
	struct pg_row row;
	uint64_t end;

	/* A holder that beats is never due. */
	end = pg_in_ms(2 * WORLD_L);
	while (clock_boot_ns() < end) {
		if (!pg_watch_look(w, &row))
			ck_assert(!pg_watch_due(w));
		usleep(WORLD_L * 1000 / 20);
	}
	pg_log_stop(a);
	WAIT_FOR((pg_watch_look(w, &row), usleep(50000), pg_watch_due(w)));
	/* The last lease that it had is over. */
	ck_assert_uint_gt(clock_boot_ns(), pg_log_lease_end(a));
	ck_assert_uint_gt(pg_log_lease_end(a), 0);
	/* A stall of PostgreSQL says nothing about the holder. */
	world("pause p");
	ck_assert_int_eq(pg_watch_look(w, &row), -EAGAIN);
	world("resume p");
	WAIT_FOR(!pg_watch_look(w, &row));
	ck_assert(!pg_watch_due(w));
	pg_log_close(a, false);
	pg_watch_close(w);
}
END_TEST

/* The commit of a claim waits for a standby, and then nobody knows whether it is there. */
START_TEST(a_claim_in_doubt_is_asked_for_again)
{
	struct pg_options o = world_options("p", 31);
	struct pg_watch *w;
	struct pg_log *l = NULL;
	struct pg_row row;
	uint64_t epoch;

	o.o_answer_ms = 500;
	w = world_watch(&o);
	WAIT_FOR(!pg_watch_look(w, &row));
	epoch = row.r_epoch;
	standbys("pause");
	WAIT_FOR((pg_watch_look(w, &row), pg_watch_claim(w, &l)) == -ETIMEDOUT);
	ck_assert_ptr_null(l);
	standbys("resume");
	l = world_claim(w);
	/* A number for each try that is there, and none is given twice. */
	ck_assert_uint_gt(pg_log_epoch(l), epoch);
	ck_assert_int_eq(append(l, "first"), 0);
	ck_assert_str_eq(batch_of("p", 31, 1), "first");
	ck_assert_int_eq(atoi(sql("p", "select count(*) from pg_stat_activity where wait_event ="
				       " 'SyncRep'")),
			 0);
	pg_log_close(l, false);
	pg_watch_close(w);
}
END_TEST

static void on_lost(void *arg, const char *why)
{
	(void)why;
	*(bool *)arg = true;
}

/* A claim that did not happen after all was nobody's: nothing is lost with it. */
START_TEST(a_claim_that_did_not_happen_loses_nothing)
{
	struct pg_options o = world_options("p", 35);
	struct pg_log *l = NULL;
	bool lost = false;

	o.o_lost = on_lost;
	o.o_arg = &lost;
	ck_assert_int_eq(pg_log_start(&l, &o, 1, "nobody 1", pg_in_ms(WORLD_WAIT_MS)), -EAGAIN);
	ck_assert_ptr_null(l);
	ck_assert(!lost);
	/* Who holds it hears of it. */
	sql("p", "update instance set epoch = 1, owner = 'nobody 1' where id = 35");
	ck_assert_int_eq(pg_log_start(&l, &o, 1, "nobody 1", pg_in_ms(WORLD_WAIT_MS)), 0);
	sql("p", "update instance set epoch = 2 where id = 35");
	WAIT_FOR(pg_log_state(l, NULL) == PG_LOG_DEPOSED);
	pg_log_close(l, false);
	ck_assert(lost);
}
END_TEST

struct heard {
	_Atomic uint64_t after, end; /* the end of the first lease that is heard of after that */
};

static void on_held(void *arg, uint64_t end)
{
	struct heard *h = arg;

	if (clock_boot_ns() > atomic_load(&h->after) && !atomic_load(&h->end))
		atomic_store(&h->end, end);
}

/* PostgreSQL stands still for 0.6 L. A beat that left meanwhile is answered afterwards, and its
 * lease is shorter by what the answer took. The next beat is overdue then, and follows at once:
 * only the first one counts. A machine under load may have sent no beat: again. */
START_TEST(a_late_answer_counts_from_its_question)
{
	const uint64_t stood = (uint64_t)WORLD_L * 600000, beat = (uint64_t)WORLD_L * 200000;
	struct heard h = {.after = UINT64_MAX};
	struct pg_options o = world_options("p", 32);
	struct pg_watch *w;
	struct pg_log *l;
	bool shown = false;

	o.o_held = on_held;
	o.o_arg = &h;
	w = world_watch(&o);
	l = world_claim(w);
	for (int i = 0; i < 8 && !shown; i++) {
		uint64_t from;

		world("pause p");
		from = clock_boot_ns();
		usleep((useconds_t)(stood / 1000));
		atomic_store(&h.end, 0);
		atomic_store(&h.after, clock_boot_ns());
		world("resume p");
		WAIT_FOR(atomic_load(&h.end));
		shown = atomic_load(&h.end) < from + 2 * beat + (uint64_t)WORLD_L * 750000;
		ck_assert_uint_le(atomic_load(&h.end), pg_log_lease_end(l));
		atomic_store(&h.after, UINT64_MAX);
		WAIT_FOR(pg_log_live(l));
	}
	ck_assert_msg(shown, "leases count from when answers came");
	pg_log_close(l, false);
	pg_watch_close(w);
}
END_TEST

START_TEST(init_tells_what_it_cannot_do)
{
	char name[80], why[PG_WHY] = "";
	struct pg_init i = {.i_conninfo = world_text(world_conninfo("p", "postgres")),
			    .i_role = "weft \"x\"; drop table a",
			    .i_inst = 33};

	/* A name is a name, whatever is in it. */
	ck_assert_msg(!pg_init(&i, why), "%s", why);
	ck_assert_int_eq(atoi(sql("p", "select count(*) from pg_roles where rolname ="
				       " 'weft \"x\"; drop table a'")),
			 1);
	i.i_inst = 34;
	ck_assert_msg(!pg_init(&i, why), "%s", why);
	ck_assert_int_eq(atoi(sql("p", "select count(*) from instance where id in (33, 34)")), 2);
	memset(name, 'r', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	i.i_role = name;
	ck_assert_int_eq(pg_init(&i, why), -EINVAL);
	ck_assert_msg(strstr(why, "63"), "%s", why);
	/* Who does not own the tables. */
	i.i_role = "weft";
	i.i_conninfo = world_text(world_conninfo("p", "weft"));
	ck_assert_int_lt(pg_init(&i, why), 0);
	ck_assert_msg(strstr(why, "denied") || strstr(why, "owner"), "%s", why);
}
END_TEST

/* The holder that stops: appends, and says each batch that is durable. */
static void holder(const struct pg_options *o, int out)
{
	struct pg_watch *w = world_watch(o);
	struct pg_log *l = world_claim(w);

	for (;;) {
		uint64_t n = pg_log_batch(l) + 1;

		if (append(l, "of the holder"))
			_exit(3);
		if (write(out, &n, sizeof(n)) != sizeof(n))
			_exit(4);
	}
}

START_TEST(a_holder_that_stood_still_says_durable_no_more)
{
	struct pg_options o = world_options("p", 6);
	struct pg_watch *w = world_watch(&o);
	uint64_t n = 0, began;
	struct pg_log *b = NULL;
	struct pg_row row;
	int out[2], status;
	pid_t pid;

	ck_assert_int_eq(pipe(out), 0);
	pid = fork();
	if (!pid)
		holder(&o, out[1]);
	close(out[1]);
	while (n < 20)
		ck_assert_int_eq(read(out[0], &n, sizeof(n)), sizeof(n));
	kill(pid, SIGSTOP);
	began = clock_boot_ns();
	WAIT_FOR(
		(pg_watch_look(w, &row), usleep(20000), pg_watch_due(w) && !pg_watch_claim(w, &b)));
	ck_assert_uint_gt(clock_boot_ns() - began, (uint64_t)WORLD_L * 750000);
	ck_assert_int_eq(append(b, "of b"), 0);
	kill(pid, SIGCONT);
	/* What it says now was there before the claim. */
	while (read(out[0], &n, sizeof(n)) == sizeof(n))
		ck_assert_uint_lt(n, pg_log_batch(b));
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(WEXITSTATUS(status), 3);
	ck_assert_str_eq(batch_of("p", 6, pg_log_batch(b)), "of b");
	pg_log_close(b, false);
	pg_watch_close(w);
}
END_TEST

/* ---- the four traps ---- */

/* A commit that waits for a standby, without this room. */
static PGconn *raw_commit(uint32_t inst)
{
	char text[128];
	PGconn *c = raw("p");

	snprintf(text, sizeof(text), "update instance set batch = 99 where id = %u", inst);
	PQclear(PQexec(c, "set application_name = raw"));
	ck_assert(PQsendQuery(c, text));
	PQflush(c);
	WAIT_FOR(waits("raw"));
	return c;
}

START_TEST(a_read_at_a_restarted_primary_lies)
{
	struct pg_options o = quiet(7);
	struct pg_watch *w = world_watch(&o);
	struct pg_log *l = world_claim(w);
	struct appender a;
	uint32_t raw_inst = world_options("p", 8).o_inst;
	const char *begin = pg_statements.begin;
	PGconn *c;

	ck_assert_int_eq(append(l, "first"), 0);
	standbys("kill");
	c = raw_commit(raw_inst);
	append_begin(&a, l, "second");
	WAIT_FOR(waits("weft 7 %"));
	world("kill p");
	world("start p");
	PQfinish(c);
	/* No standby has either of them. A read shows both. */
	ck_assert_str_eq(sql("p", "select batch from instance where id = %u", raw_inst), "99");
	ck_assert_str_eq(batch_of("p", 7, 2), "second");
	WAIT_FOR(waits("weft 7 %"));
	ck_assert(!a.done);
	ck_assert_uint_eq(pg_log_batch(l), 1);
	/* With doubt resolved by a read it is called durable: this is what the rule is for. */
	pg_statements.begin = "select batch, 1::int8, turn from instance where id = $1 and"
			      " epoch = $2 and $3 > 0 and owner = $4";
	ck_assert_int_eq(append_end(&a), 0);
	ck_assert_int_eq(atoi(sql("p", "select standbys()")), 0);
	pg_log_close(l, false);
	/* The same with the rule: it ends when a standby has the batch. */
	pg_statements.begin = begin;
	standbys("start");
	WAIT_FOR(streams());
	l = world_claim(w);
	standbys("kill");
	append_begin(&a, l, "third");
	WAIT_FOR(waits("weft 7 %"));
	world("kill p");
	world("start p");
	WAIT_FOR(waits("weft 7 %"));
	ck_assert(!a.done);
	standbys("start");
	ck_assert_int_eq(append_end(&a), 0);
	ck_assert_str_eq(batch_of("p", 7, 3), "third");
	ck_assert_uint_eq(pg_log_epoch(l), 2);
	WAIT_FOR(streams());
	pg_log_close(l, false);
	pg_watch_close(w);
}
END_TEST

START_TEST(a_warning_at_commit_is_no_success)
{
	struct pg_options o = quiet(9);
	uint32_t raw_inst = world_options("p", 10).o_inst;
	struct pg_watch *w;
	struct pg_log *l;
	struct appender a;
	PGresult *r;
	PGconn *c;

	o.o_answer_ms = WORLD_WAIT_MS; /* this is not about the watchdog */
	w = world_watch(&o);
	l = world_claim(w);
	standbys("pause");
	c = raw_commit(raw_inst);
	sql("p", "select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'"
		 " and application_name = 'raw'");
	r = PQgetResult(c);
	ck_assert_int_eq(PQresultStatus(r), PGRES_COMMAND_OK); /* and no standby has it */
	PQclear(r);
	PQfinish(c);
	append_begin(&a, l, "in doubt");
	WAIT_FOR(waits("weft 9 %"));
	sql("p", "select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'"
		 " and application_name like 'weft 9 %%'");
	/* The synchronous write that finds out waits now. */
	WAIT_FOR(atoi(sql("p",
			  "select count(*) from pg_stat_activity where wait_event = 'SyncRep'"
			  " and application_name like 'weft 9 %%' and query like '%%session = $3 "
			  "where%%'")));
	ck_assert(!a.done);
	standbys("resume");
	ck_assert_int_eq(append_end(&a), 0);
	ck_assert_str_eq(batch_of("p", 9, 1), "in doubt");
	pg_log_close(l, false);
	pg_watch_close(w);
}
END_TEST

START_TEST(an_open_transaction_does_not_keep_the_claim_out)
{
	struct pg_options o = world_options("p", 11);
	struct pg_watch *w = world_watch(&o);
	struct pg_log *l;
	PGconn *c = PQconnectdb(o.o_conninfo), *d = raw("p");
	PGresult *r;

	PQclear(PQexec(c, "set application_name = 'weft 11 still'"));
	PQclear(PQexec(c, "begin; update weft.instance set beat = beat + 1 where id = 11"));
	PQclear(PQexec(d, "set lock_timeout = 300"));
	r = PQexec(d, "update instance set epoch = epoch + 1 where id = 11");
	ck_assert_str_eq(PQresultErrorField(r, PG_DIAG_SQLSTATE), "55P03");
	PQclear(r);
	PQfinish(d);
	l = world_claim(w);
	ck_assert_int_eq(append(l, "a"), 0);
	r = PQexec(c, "commit");
	ck_assert_int_ne(PQresultStatus(r), PGRES_COMMAND_OK);
	PQclear(r);
	PQfinish(c);
	pg_log_close(l, false);
	pg_watch_close(w);
}
END_TEST

/* It leaves p behind: it is the last one. */
START_TEST(a_promoted_standby_may_lack_what_was_acknowledged)
{
	struct pg_options o = world_options("p,s1", 12);
	struct pg_watch *w = world_watch(&o);
	struct pg_log *l = world_claim(w);
	char why[PG_WHY];

	ck_assert_int_eq(append(l, "on all"), 0);
	world("kill s1");
	ck_assert_int_eq(append(l, "on s2"), 0);
	world("kill p");
	world("start s1");
	world("promote s1");
	ck_assert_str_eq(sql("s1", "select batch from instance where id = 12"), "1");
	WAIT_FOR(pg_log_state(l, why) == PG_LOG_DEPOSED);
	ck_assert_msg(strstr(why, "lacks batches"), "%s", why);
	ck_assert(!pg_log_live(l));
	ck_assert_int_eq(append(l, "more"), -ESTALE);
	pg_log_close(l, false);
	pg_watch_close(w);
}
END_TEST

/* ---- PostgreSQL alone, slow, gone ---- */

static void set_names(const char *names)
{
	sql("p", "alter system set synchronous_standby_names = '%s'", names);
	sql("p", "select pg_reload_conf()");
	WAIT_FOR(!strcmp(sql("p", "show synchronous_standby_names"), names));
}

START_TEST(without_synchronous_standbys_nothing_is_acknowledged)
{
	struct pg_options o = world_options("p", 13), one = world_options("p", 14);
	struct pg_watch *w = world_watch(&o), *v;
	struct pg_log *l = world_claim(w), *m;
	struct appender a;
	char why[PG_WHY];

	one.o_replicas = 1;
	v = world_watch(&one);
	m = world_claim(v);
	set_names("");
	standbys("pause");
	/* PostgreSQL commits alone, and says nothing. */
	sql("p", "update instance set name = 'alone' where id = 13");
	ck_assert_int_eq(append(m, "alone is enough"), 0);
	append_begin(&a, l, "not alone");
	WAIT_FOR(pg_log_state(l, why) == PG_LOG_ALONE);
	ck_assert_str_eq(why, "synchronous_standby_names is empty");
	WAIT_FOR(!pg_log_live(l));
	ck_assert(!a.done);
	ck_assert_str_eq(batch_of("p", 13, 1), "");
	standbys("resume");
	set_names("ANY 1 (s1, s2)");
	ck_assert_int_eq(append_end(&a), 0);
	WAIT_FOR(pg_log_live(l));
	ck_assert_uint_eq(pg_log_epoch(l), 1);
	pg_log_close(l, false);
	pg_log_close(m, false);
	pg_watch_close(w);
	pg_watch_close(v);
}
END_TEST

START_TEST(the_watchdog_ends_a_wait_for_a_standby)
{
	struct pg_options o = quiet(15);
	struct pg_watch *w;
	struct pg_log *l;
	struct appender a;
	int pid;

	o.o_answer_ms = 500;
	w = world_watch(&o);
	l = world_claim(w);
	standbys("pause");
	append_begin(&a, l, "late");
	WAIT_FOR(waits("weft 15 %"));
	pid = atoi(sql("p", "select pid from pg_stat_activity where wait_event = 'SyncRep' and"
			    " application_name like 'weft 15 %%'"));
	/* The process that waited is gone, and another one waits in its place, alone. */
	WAIT_FOR(!atoi(sql("p", "select count(*) from pg_stat_activity where pid = %d", pid)));
	WAIT_FOR(waits("weft 15 %"));
	ck_assert_int_le(atoi(sql("p", "select count(*) from pg_stat_activity where"
				       " application_name like 'weft 15 %%'")),
			 2);
	ck_assert(!a.done);
	standbys("resume");
	ck_assert_int_eq(append_end(&a), 0);
	ck_assert_str_eq(batch_of("p", 15, 1), "late");
	pg_log_close(l, false);
	pg_watch_close(w);
}
END_TEST

START_TEST(an_append_that_is_refused_goes_on_later)
{
	struct pg_options o = world_options("p", 18);
	struct pg_watch *w = world_watch(&o);
	struct pg_log *l = world_claim(w);
	struct appender a;
	char why[PG_WHY];

	sql("p", "revoke insert on log from weft");
	append_begin(&a, l, "a");
	WAIT_FOR(pg_log_state(l, why) == PG_LOG_AWAY);
	sql("p", "grant insert on log to weft");
	ck_assert_msg(strstr(why, "permission denied"), "%s", why);
	ck_assert_int_eq(append_end(&a), 0);
	WAIT_FOR(pg_log_state(l, why) == PG_LOG_LIVE);
	pg_log_close(l, false);
	pg_watch_close(w);
}
END_TEST

struct stream {
	struct pg_log *l;
	_Atomic uint64_t n;
	int err;
};

static void *stream(void *arg)
{
	struct stream *s = arg;
	char data[64];

	while (!s->err) {
		snprintf(data, sizeof(data), "batch %llu", (unsigned long long)s->n + 1);
		s->err = append(s->l, data);
		s->n += !s->err;
	}
	return NULL;
}

START_TEST(what_was_acknowledged_outlives_a_crash_of_the_primary)
{
	struct pg_options o = world_options("p", 16);
	struct pg_watch *w = world_watch(&o);
	struct stream s = {.l = world_claim(w)};
	uint64_t n;
	pthread_t t;

	pthread_create(&t, NULL, stream, &s);
	for (int i = 0; i < 2; i++) {
		PGconn *c = raw("p");

		n = s.n;
		WAIT_FOR(s.n > n + 20);
		PQsendQuery(c, "checkpoint");
		PQflush(c);
		world("kill p");
		PQfinish(c);
		n = s.n;
		world("start p");
		WAIT_FOR(s.n > n + 20);
	}
	pg_log_stop(s.l);
	pthread_join(t, NULL);
	ck_assert_int_eq(s.err, -ECANCELED);
	ck_assert_uint_eq(pg_log_epoch(s.l), 1);
	ck_assert_int_eq(atoi(sql("p",
				  "select count(*) from log where part / 4 = 16 and batch <= %llu"
				  " and convert_from(data, 'UTF8') = 'batch ' || batch",
				  (unsigned long long)s.n)),
			 (int)s.n);
	pg_log_close(s.l, false);
	pg_watch_close(w);
	WAIT_FOR(streams());
}
END_TEST

/* ---- the table ---- */

enum { KEYS = 40, BATCHES = 120 };
static char model[KEYS][16]; /* "": it is not there */

/* A batch is a list of "KEY VALUE\n"; "KEY \n" deletes. */
static int decode(const void *data, size_t len, pg_write_fn *write, void *arg)
{
	const char *p = data, *end = p + len;
	int err = 0;

	while (p < end && !err) {
		const char *sp = memchr(p, ' ', (size_t)(end - p)), *nl = memchr(sp, '\n', 99);
		struct iovec k = {(void *)p, (size_t)(sp - p)}, v = {NULL, 0};

		if (nl > sp + 1)
			v = (struct iovec){(void *)(sp + 1), (size_t)(nl - sp - 1)};
		err = write(arg, k, v);
		p = nl + 1;
	}
	return err;
}

static void model_digest(struct pg_digest *d)
{
	char key[8];

	*d = (struct pg_digest){0};
	for (int i = 0; i < KEYS; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		if (*model[i])
			pg_digest_add(d, (struct iovec){key, strlen(key)},
				      (struct iovec){model[i], strlen(model[i])});
	}
}

static char copy[KEYS][16];

static int copy_write(void *arg, struct iovec k, struct iovec v)
{
	char key[8] = "";

	(void)arg;
	memcpy(key, k.iov_base, k.iov_len);
	snprintf(copy[atoi(key + 1)], 16, "%.*s", (int)v.iov_len, (const char *)v.iov_base);
	return 0;
}

static int copy_batch(void *arg, uint64_t batch, const void *data, size_t len)
{
	uint64_t *last = arg;

	ck_assert_uint_eq(batch, *last + 1);
	*last = batch;
	return decode(data, len, copy_write, NULL);
}

static bool verified(const struct pg_options *o)
{
	struct pg_verified is = {.v_upto = 0};
	struct pg_digest should;
	char why[PG_WHY];

	ck_assert_msg(!pg_verify(o, decode, &is, why), "%s", why);
	ck_assert_uint_eq(is.v_last, BATCHES);
	model_digest(&should);
	return !memcmp(&is.v_digest, &should, sizeof(should));
}

static void fill(struct pg_log *l)
{
	for (int n = 0; n < BATCHES; n++) {
		char data[256];
		int len = 0;

		for (int i = 0; i < 4; i++) {
			int k = rand() % KEYS;

			snprintf(model[k], sizeof(model[k]), "%.*d", rand() % 3 ? 7 : 0, n + 1);
			if (rand() % 4 == 0)
				model[k][0] = 0;
			len += sprintf(data + len, "k%d %s\n", k, model[k]);
		}
		ck_assert_int_eq(append(l, data), 0);
	}
}

START_TEST(the_table_follows_the_log)
{
	struct pg_options o = world_options("p", 17);
	struct pg_watch *w = world_watch(&o);
	struct pg_snapshot s = {.s_row = copy_write, .s_batch = copy_batch};
	char said[4096] = "", why[PG_WHY];
	struct pg_fold *f, *g;
	struct pg_log *l;
	struct pg_row row;
	uint64_t at = 0;
	int64_t n, all = 0;

	sql("p", "update instance set turn = 8 where id = 17");
	srand(17);
	l = world_claim(w);
	fill(l);
	WAIT_FOR(!pg_watch_look(w, &row) && row.r_acked == BATCHES);
	ck_assert_int_eq(pg_fold_open(&f, &o, decode), 0);
	ck_assert_int_eq(pg_fold_open(&g, &o, decode), 0);
	ck_assert(verified(&o));
	/* Two fold, in steps. */
	for (int i = 0; (n = pg_fold_step(i % 2 ? f : g, 1, 500)) > 0; i++) {
		ck_assert_int_lt(n, 30);
		all += n;
		if (i == 3) {
			ck_assert(verified(&o));
			s.s_arg = &s.s_folded;
			ck_assert_msg(!pg_snapshot(&o, &s, why), "%s", why);
			ck_assert_uint_eq(s.s_folded, BATCHES); /* the last that copy_batch saw */
			for (int k = 0; k < KEYS; k++)
				ck_assert_str_eq(copy[k], model[k]);
		}
	}
	ck_assert_int_eq(n, 0);
	ck_assert_int_eq(all, BATCHES);
	ck_assert(verified(&o));
	/* A row that is not as the log says is found. */
	sql("p", "update kv set v = v || 'x' where inst = 17 and k in (select k from kv where"
		 " inst = 17 limit 1)");
	ck_assert(!verified(&o));
	/* The log stays for those who read it. */
	ck_assert_int_eq(pg_read_keep(w, "other", 50), 0);
	pg_fold_trim(f, 1, 3600);
	at = 50;
	ck_assert_int_eq(pg_read_batches(w, &at, 60, 100000, see, said), 0);
	ck_assert_uint_eq(at, 60);
	ck_assert_int_eq(pg_read_keep(w, "other", BATCHES), 0);
	ck_assert_int_gt(pg_fold_trim(f, 1, 3600), 0);
	at = 50;
	ck_assert_int_eq(pg_read_batches(w, &at, BATCHES, 100000, see, said), -ESTALE);
	/* And it goes on. */
	ck_assert_int_eq(append(l, "k1 more\n"), 0);
	pg_fold_close(f);
	pg_fold_close(g);
	pg_log_close(l, false);
	pg_watch_close(w);
}
END_TEST

START_TEST(a_list_reads_a_bounded_part_of_the_log)
{
	struct pg_options o = world_options("p", 19);
	struct pg_member_opts mo = {.mo_conninfo = o.o_conninfo,
				    .mo_inst = 19,
				    .mo_name = "n:/s",
				    .mo_node = "n",
				    .mo_answer_ms = WORLD_WAIT_MS};
	struct pg_member *m;
	char *json;

	sql("p", "insert into log select 76, n, 'xy' from generate_series(1, 10005) n");
	sql("p", "update instance set batch = 10005, acked = 10005 where id = 19");
	ck_assert_int_eq(pg_member_open(&m, &mo), 0);
	ck_assert_int_eq(pg_member_say(m, "standby", 0, 0), 0);
	/* However late the question comes. */
	sql("p", "update member set seen = now() + interval '1 hour' where inst = 19");
	ck_assert_int_eq(pg_member_list(m, 19, &json), 0);
	ck_assert_msg(strstr(json, "\"lag_batches\":10005,\"lag_bytes\":20000,"), "%s", json);
	free(json);
	sql("p", "update member set seen = now() - interval '1 min' where inst = 19");
	ck_assert_int_eq(pg_member_list(m, 19, &json), 0);
	ck_assert_msg(strstr(json, "\"lag_batches\":10005,\"lag_bytes\":null,"), "%s", json);
	free(json);
	pg_member_close(m);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {append_and_read,
				      the_schema_is_made_once,
				      a_deposed_holder_changes_nothing,
				      of_two_claims_one_wins,
				      a_claim_waits_for_the_lease,
				      a_claim_in_doubt_is_asked_for_again,
				      a_claim_that_did_not_happen_loses_nothing,
				      a_late_answer_counts_from_its_question,
				      init_tells_what_it_cannot_do,
				      a_holder_that_stood_still_says_durable_no_more,
				      the_table_follows_the_log,
				      a_list_reads_a_bounded_part_of_the_log,
				      an_open_transaction_does_not_keep_the_claim_out,
				      a_warning_at_commit_is_no_success,
				      without_synchronous_standbys_nothing_is_acknowledged,
				      the_watchdog_ends_a_wait_for_a_standby,
				      an_append_that_is_refused_goes_on_later,
				      what_was_acknowledged_outlives_a_crash_of_the_primary,
				      a_read_at_a_restarted_primary_lies,
				      a_promoted_standby_may_lack_what_was_acknowledged,
				      NULL};

	return world_run("pg", 60, tests);
}
