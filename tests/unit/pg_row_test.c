/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pg_row_test.c - what an instance's row in PostgreSQL tells other processes (pg/pg.h): the lease
 * of the one that holds it; and how the tables come to be. At a real primary with two synchronous
 * standbys.
 */
#include "tests/unit/pg_world.h"
#include <errno.h>

/* The row says how long the holder's lease is: who has a shorter one waits for it all the same. */
START_TEST(a_claim_waits_for_the_lease_of_the_holder)
{
	struct pg_options o = world_options("p", 1), other = o;
	struct pg_watch *w = world_watch(&o), *v;
	struct pg_log *l = world_claim(w);
	struct pg_row row;
	uint64_t end;

	other.o_lease_ms = 300;
	v = world_watch(&other);
	pg_log_stop(l);
	WAIT_FOR((pg_watch_look(v, &row), usleep(5000), pg_watch_due(v)));
	ck_assert_uint_eq(row.r_lease_ms, WORLD_L);
	end = clock_boot_ns();
	ck_assert_uint_gt(end, pg_log_lease_end(l));
	pg_log_close(l, false);
	WAIT_FOR(!pg_watch_look(v, &row) && !pg_watch_claim(v, &l));
	WAIT_FOR(!pg_watch_look(w, &row));
	ck_assert_uint_eq(row.r_lease_ms, 300);
	pg_log_close(l, false);
	pg_watch_close(v);
	pg_watch_close(w);
}
END_TEST

/* The tables of version 1 had no lease in the row. */
START_TEST(older_tables_are_brought_to_this_version)
{
	struct pg_init i = {.i_conninfo = world_text(world_conninfo("p", "postgres")),
			    .i_role = "weft",
			    .i_inst = 2};
	struct pg_options o = world_options("p", 2);
	struct pg_watch *w = world_watch(&o);
	char why[PG_WHY] = "";
	struct pg_row row;
	struct pg_log *l;
	PGconn *old = raw("p");

	sql("p", "update instance set batch = 7, epoch = 3 where id = 2");
	sql("p", "alter table instance drop column lease_ms, drop column restored; update meta set "
		 "version = 1");
	WAIT_FOR(pg_watch_look(w, &row) == -ENOTSUP);
	ck_assert_msg(strstr(pg_watch_why(w), "version 1"), "%s", pg_watch_why(w));
	/* A program of that version has found it, and would not look again. */
	PQclear(PQexec(old, "set application_name = 'weft-watch 2 0123456789abcdef'"));
	ck_assert_int_eq(pg_init(&i, why), -EBUSY);
	ck_assert_msg(strstr(why, "stop weft-mds") && strstr(why, "are weft-watch 2"), "%s", why);
	ck_assert_str_eq(sql("p", "select version from meta"), "1");
	PQfinish(old);
	ck_assert_msg(!pg_init(&i, why), "%s", why);
	ck_assert(!i.i_new);
	WAIT_FOR(!pg_watch_look(w, &row));
	ck_assert_uint_eq(row.r_batch, 7);
	ck_assert_uint_eq(row.r_epoch, 3);
	ck_assert_uint_eq(row.r_lease_ms, 0);
	l = world_claim(w);
	WAIT_FOR(!pg_watch_look(w, &row));
	ck_assert_uint_eq(row.r_lease_ms, WORLD_L);
	pg_log_close(l, false);
	pg_watch_close(w);
}
END_TEST

/* Who reads the log for long does not make the holders of other instances wait for a new one. */
START_TEST(an_instance_is_made_beside_others)
{
	struct pg_init i = {.i_conninfo = world_text(world_conninfo("p", "postgres")),
			    .i_role = "weft",
			    .i_inst = 11};
	struct pg_options o = world_options("p", 10), other = o;
	struct pg_watch *w = world_watch(&o), *v;
	struct pg_log *l = world_claim(w), *m;
	PGconn *c = raw("p");
	char why[PG_WHY] = "";
	PGresult *r = PQexec(c, "begin; select count(*) from log");

	ck_assert_int_eq(PQresultStatus(r), PGRES_TUPLES_OK);
	PQclear(r);
	ck_assert_msg(!pg_init(&i, why), "%s", why);
	ck_assert_int_eq(append(l, "a"), 0);
	other.o_inst = 11;
	v = world_watch(&other);
	m = world_claim(v);
	ck_assert_int_eq(append(m, "b"), 0);
	pg_log_close(m, true);
	pg_watch_close(v);
	/* What it cannot have soon, it does not wait for. */
	r = PQexec(c, "lock table log in share update exclusive mode");
	ck_assert_int_eq(PQresultStatus(r), PGRES_COMMAND_OK);
	PQclear(r);
	i.i_inst = 12;
	ck_assert_int_eq(pg_init(&i, why), -EBUSY);
	ck_assert_msg(strstr(why, "try again"), "%s", why);
	ck_assert_int_eq(append(l, "c"), 0);
	ck_assert_str_eq(sql("p", "select count(*) from instance where id = 12"), "0");
	PQfinish(c);
	ck_assert_msg(!pg_init(&i, why), "%s", why);
	ck_assert_str_eq(sql("p", "select count(*) from pg_inherits where inhparent = "
				  "'log'::regclass and inhrelid::regclass::text like "
				  "'log_12_%%'"),
			 "4");
	pg_log_close(l, false);
	pg_watch_close(w);
}
END_TEST

static int no_decode(const void *data, size_t len, pg_write_fn *write, void *arg)
{
	return write(arg, (struct iovec){(void *)data, len}, (struct iovec){"", 0});
}

static uint64_t rows_in(uint32_t inst, const char *table)
{
	return strtoull(sql("p", "select count(*) from %s where inst = %u", table, inst), NULL, 10);
}

/* A process that was deposed folds nothing, frees nothing, and says so. Nor is a copy filled from
 * a row that is not the one that was looked at. */
START_TEST(a_deposed_process_does_not_fold)
{
	struct pg_options o = world_options("p", 3);
	struct pg_watch *w = world_watch(&o);
	struct pg_snapshot s = {.s_epoch = 1, .s_batch_seen = 2};
	struct pg_log *l = world_claim(w);
	char why[PG_WHY] = "";
	struct pg_fold *f;
	struct pg_row row;

	ck_assert_int_eq(pg_fold_open(&f, &o, no_decode), 0);
	WAIT_FOR(pg_fold_step(f, 1, 1000) == 0);
	ck_assert_int_eq(append(l, "a"), 0);
	ck_assert_int_eq(append(l, "b"), 0);
	WAIT_FOR(!pg_watch_look(w, &row) && row.r_acked == 2);
	ck_assert_int_eq(pg_snapshot(&o, &s, why), 0);
	s.s_batch_seen = 3;
	ck_assert_int_eq(pg_snapshot(&o, &s, why), -EAGAIN);
	ck_assert_msg(strstr(why, "has moved"), "%s", why);
	pg_log_close(l, false);
	l = world_claim(w);
	s.s_batch_seen = 2;
	ck_assert_int_eq(pg_snapshot(&o, &s, why), -EAGAIN);
	ck_assert_int_eq(pg_read_keep(w, "gone", 1), 0);
	ck_assert_int_eq(pg_fold_step(f, 1, 1000), -ESTALE);
	ck_assert_msg(strstr(pg_fold_why(f), "has claimed"), "%s", pg_fold_why(f));
	ck_assert_uint_eq(rows_in(3, "kv"), 0);
	ck_assert_int_eq(pg_fold_trim(f, 1, 0), -ESTALE);
	ck_assert_uint_eq(rows_in(3, "reader"), 1);
	WAIT_FOR(pg_fold_step(f, 2, 1000) == 2);
	ck_assert_uint_eq(rows_in(3, "kv"), 2);
	WAIT_FOR(pg_fold_trim(f, 2, 0) >= 0);
	ck_assert_uint_eq(rows_in(3, "reader"), 0);
	pg_fold_close(f);
	pg_log_close(l, false);
	pg_watch_close(w);
}
END_TEST

/* A copy that says that it lives keeps its place in the log. Another one that was in the same
 * folder before is forgotten when it says nothing more, and copies elsewhere are not. */
START_TEST(a_copy_that_lives_keeps_its_place)
{
	struct pg_options o = world_options("p", 4);
	struct pg_watch *w;
	const char *seen;

	o.o_owner = "host:/store";
	w = world_watch(&o);
	ck_assert_int_eq(pg_read_alive(w, "host:/store b", 5), 0);
	ck_assert_str_eq(sql("p", "select batch from reader where inst = 4"), "5");
	ck_assert_int_eq(pg_read_keep(w, "host:/store b", 9), 0);
	seen = world_text(sql("p", "select seen from reader where inst = 4"));
	ck_assert_int_eq(pg_read_alive(w, "host:/store b", 7), 0);
	ck_assert_str_eq(sql("p", "select batch from reader where inst = 4"), "9");
	ck_assert_str_eq(sql("p", "select seen > '%s' from reader where inst = 4", seen), "t");
	for (const char *const *n = (const char *const[]){"host:/store", "host:/store a",
							  "host:/store2", "other:/store a", NULL};
	     *n; n++)
		ck_assert_int_eq(pg_read_keep(w, *n, 1), 0);
	ck_assert_int_eq(pg_read_alive(w, "host:/store b", 9), 0);
	ck_assert_uint_eq(rows_in(4, "reader"), 5);
	sql("p", "update reader set seen = seen - interval '1 hour' where inst = 4");
	ck_assert_int_eq(pg_read_alive(w, "host:/store b", 9), 0);
	ck_assert_str_eq(
		sql("p", "select string_agg(name, ',' order by name) from reader where inst = 4"),
		"host:/store b,host:/store2,other:/store a");
	pg_watch_close(w);
}
END_TEST

static void *append_one(void *arg)
{
	return (void *)(intptr_t)append(arg, "a");
}

/* What the end breaks off does not keep the row: who waits for it need not wait for the lease. */
START_TEST(an_end_while_a_statement_is_under_way_gives_the_instance_up)
{
	struct pg_options o = world_options("p", 5);
	struct pg_watch *w;
	struct pg_log *l;
	struct pg_row row;
	PGconn *c = raw("p");
	pthread_t t;
	void *rc;

	/* The statement waits for longer than a loaded machine needs here. */
	o.o_lease_ms = WORLD_WAIT_MS;
	w = world_watch(&o);
	l = world_claim(w);
	PQclear(PQexec(c, "begin; update instance set beat = beat where id = 5"));
	ck_assert_int_eq(pthread_create(&t, NULL, append_one, l), 0);
	WAIT_FOR(atoi(sql("p", "select count(*) from pg_stat_activity where wait_event_type ="
			       " 'Lock' and application_name like 'weft 5 %%'")));
	pg_log_stop(l);
	ck_assert_int_eq(pthread_join(t, &rc), 0);
	ck_assert_int_eq((int)(intptr_t)rc, -ECANCELED);
	PQfinish(c);
	pg_log_close(l, true);
	WAIT_FOR(!pg_watch_look(w, &row) && row.r_free);
	ck_assert_uint_eq(row.r_epoch, 1);
	/* The batch may be there, or not; the row knows. */
	ck_assert_uint_eq(row.r_acked, row.r_batch);
	pg_watch_close(w);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {a_claim_waits_for_the_lease_of_the_holder,
				      older_tables_are_brought_to_this_version,
				      an_instance_is_made_beside_others,
				      a_deposed_process_does_not_fold,
				      a_copy_that_lives_keeps_its_place,
				      an_end_while_a_statement_is_under_way_gives_the_instance_up,
				      NULL};

	return world_run("pg_row", 180, tests);
}
