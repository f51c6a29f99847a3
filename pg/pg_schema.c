/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pg_schema.c - the tables in PostgreSQL, all in the schema "weft", and who may do what with them.
 *
 * The rows of instance change all the time: fillfactor leaves room for their new versions in the
 * page, and no index has what changes. The log of instance N is in four parts, log_N_0 to log_N_3.
 * A batch is in part (batch / turn) % 4. A part is truncated, never deleted from. fold is apart
 * from instance: folding takes long, and must not hold the row that an append moves.
 */
#include "pg/pg_int.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* All of it has so long; what is in use is tried again for BUSY_MS. */
enum { ANSWER_MS = 30000, BUSY_MS = 5000, PAUSE_MS = 100, NAME_MAX_LEN = 63 };

/* Two at a time: the second waits, and finds all. A statement that waits for a lock on a table
 * holds back all appends that come after it, so it waits a short time only. */
static const char begin[] = "begin; set local client_min_messages = warning;"
			    "select pg_advisory_xact_lock(2004318574);"
			    "set local lock_timeout = '200ms'";

static const char tables[] =
	"create schema if not exists weft;"
	"create table weft.meta (version int8 not null);"
	"create table weft.instance (id int8 primary key, name text not null default '',"
	" ident uuid not null default gen_random_uuid(),"
	" addresses text not null default '', epoch int8 not null default 0,"
	" session int8 not null default 0, batch int8 not null default 0,"
	" acked int8 not null default 0, beat int8 not null default 0,"
	" owner text not null default '', turn int8 not null default 4096,"
	" lease_ms int8 not null default 0, restored int8 not null default 0)"
	" with (fillfactor = 10);"
	"create table weft.log (part int not null, batch int8 not null, data bytea not null,"
	" primary key (part, batch)) partition by list (part);"
	"alter table weft.log alter column data set storage external;"
	"create table weft.kv (inst int8 not null, k bytea not null, v bytea not null,"
	" primary key (inst, k));"
	"create table weft.fold (inst int8 primary key references weft.instance,"
	" folded int8 not null default 0, head bytea not null default '') with (fillfactor = 10);"
	"create table weft.reader (inst int8 not null references weft.instance, name text not null,"
	" batch int8 not null, seen timestamptz not null, primary key (inst, name))"
	" with (fillfactor = 10);"
	/* The synchronous standbys that stream; -1: PostgreSQL waits for none. With the rights of
	 * its owner: others do not see this in pg_stat_replication. */
	"create function weft.standbys() returns int8 language sql stable security definer"
	" set search_path = pg_catalog, pg_temp as $$ select case"
	" when current_setting('synchronous_standby_names') = '' then -1 else"
	" (select count(*) from pg_stat_replication where state = 'streaming'"
	" and sync_state in ('sync', 'quorum')) end $$;"
	/* Truncates a part that the table and all readers have: under its lock, because an append
	 * may just begin to use it. It waits a short time only, for others wait behind it. */
	"create function weft.free_part(part int) returns int8 language plpgsql security definer"
	" set search_path = pg_catalog, pg_temp set lock_timeout = '200ms' as $$"
	" declare t text := format('weft.log_%s_%s', part / 4, part % 4); newest int8; have int8;"
	" begin"
	" for i in 1..2 loop"
	" if i = 2 then execute 'lock table ' || t || ' in access exclusive mode'; end if;"
	" execute 'select max(batch) from ' || t into newest;"
	" select least(f.folded, (select min(r.batch) from weft.reader r where r.inst = f.inst))"
	" into have from weft.fold f where f.inst = part / 4;"
	" if newest is null or have is null or newest > have then return 0; end if;"
	" end loop;"
	" execute 'truncate ' || t; return 1; end $$;"
	"revoke all on function weft.free_part(int), weft.standbys() from public;"
	"insert into weft.meta values (2);";

/* From version 1. A program looks at the version when it connects, and not again. One of version 1
 * would claim by the rules of that version. Who connects from here on waits for the lock, and then
 * finds the new version. */
static const char upgrade[] =
	"lock table weft.meta in access exclusive mode;"
	"do $$ declare who text; begin"
	" select string_agg(distinct regexp_replace(application_name, ' [0-9a-f]{16}$', '') ||"
	" coalesce(' from ' || host(client_addr), ''), ', ') into who from pg_stat_activity"
	" where datname = current_database() and application_name ~ '^weft(-[a-z]+)? [0-9]';"
	" if who is not null then raise object_in_use using message ="
	" 'stop weft-mds on all machines first: connected are ' || who; end if; end $$;"
	"alter table weft.instance add column lease_ms int8 not null default 0,"
	" add column restored int8 not null default 0;"
	"update weft.meta set version = 2;";

_Static_assert(PG_VERSION == 2 && PG_TURNS == 4, "the text above has them");

static const char grants[] =
	"grant usage on schema weft to %1$s;"
	"grant select on weft.meta, weft.instance, weft.log, weft.kv, "
	"weft.fold, weft.reader to %1$s;"
	"grant update on weft.instance, weft.fold to %1$s;"
	"grant insert on weft.log to %1$s;"
	"grant insert, update, delete on weft.kv, weft.reader to %1$s;"
	"grant execute on function weft.standbys(), weft.free_part(int) to %1$s;";

static const char instance[] =
	"insert into weft.instance (id) values (%1$lld) on conflict do nothing;"
	"insert into weft.fold (inst) values (%1$lld) on conflict do nothing;"
	/* "partition of" would lock weft.log against the appends of all instances. */
	"do $$ declare t text; begin for i in 0..3 loop"
	" t := 'weft.log_%1$lld_' || i;"
	" if to_regclass(t) is null then"
	" execute 'create table ' || t || ' (like weft.log including all)';"
	" execute 'alter table weft.log attach partition ' || t || ' for values in ('"
	" || %2$lld + i || ')'; end if; end loop; end $$;";

bool pg_has_password(const char *conninfo)
{
	PQconninfoOption *o = PQconninfoParse(conninfo, NULL);
	bool has = false;

	for (const PQconninfoOption *p = o; p && p->keyword; p++)
		has = has || (p->val && (!strcmp(p->keyword, "password") ||
					 !strcmp(p->keyword, "sslpassword")));
	PQconninfoFree(o);
	return has;
}

/* What went wrong, for people. -EBUSY: something is in use. */
static int schema_failed(struct pg_conn *c, const PGresult *res)
{
	const char *said = PQresultErrorField(res, PG_DIAG_MESSAGE_PRIMARY),
		   *state = PQresultErrorField(res, PG_DIAG_SQLSTATE);
	bool locked = state && !strcmp(state, "55P03"); /* lock_not_available */

	if (locked)
		said = "a lock of another program is on the tables: try again";
	else if (!said)
		said = PQresultErrorMessage(res);
	snprintf(c->c_why, PG_WHY, "%.*s", (int)strcspn(said, "\n"), said);
	return locked || (state && !strcmp(state, "55006")) ? -EBUSY : -EIO;
}

/* Several statements at once. A lost connection undoes all of them: the last one is the commit. */
static int run(struct pg_conn *c, const char *sql, uint64_t deadline)
{
	PGresult *res;
	int err = 0;

	if (!PQsendQuery(c->c_pg, sql))
		return -EAGAIN;
	for (;;) {
		while (PQflush(c->c_pg) > 0 || PQisBusy(c->c_pg))
			if (pg_conn_wait(c, PQflush(c->c_pg) > 0, deadline) ||
			    !PQconsumeInput(c->c_pg)) {
				snprintf(c->c_why, PG_WHY,
					 "PostgreSQL does not answer; has it synchronous standbys "
					 "that do not run?");
				return -EAGAIN;
			}
		res = PQgetResult(c->c_pg);
		if (!res)
			return err;
		if (PQresultStatus(res) != PGRES_COMMAND_OK &&
		    PQresultStatus(res) != PGRES_TUPLES_OK)
			err = err ? err : schema_failed(c, res);
		PQclear(res);
	}
}

/* What SQL says it should be, as one number; -1: no row. */
static int64_t schema_ask(struct pg_conn *c, const char *sql, const char *text, uint64_t deadline)
{
	PGresult *res = NULL;
	int64_t v = -1;
	const char *value[1] = {text};

	if (!PQsendQueryParams(c->c_pg, sql, text ? 1 : 0, NULL, value, NULL, NULL, 0))
		return -2;
	while (PQflush(c->c_pg) > 0 || PQisBusy(c->c_pg))
		if (pg_conn_wait(c, PQflush(c->c_pg) > 0, deadline) || !PQconsumeInput(c->c_pg))
			return -2;
	res = PQgetResult(c->c_pg);
	if (PQresultStatus(res) != PGRES_TUPLES_OK)
		v = -2;
	else if (PQntuples(res))
		v = strtoll(PQgetvalue(res, 0, 0), NULL, 10);
	if (v == -2)
		snprintf(c->c_why, PG_WHY, "%.*s", (int)strcspn(PQresultErrorMessage(res), "\n"),
			 PQresultErrorMessage(res));
	PQclear(res);
	while ((res = PQgetResult(c->c_pg)))
		PQclear(res);
	return v;
}

static int make(struct pg_conn *c, struct pg_init *i, uint64_t deadline)
{
	char sql[2048], *role = PQescapeIdentifier(c->c_pg, i->i_role, strlen(i->i_role));
	long long n = i->i_inst;
	int64_t version = 0;
	int err;

	if (!role)
		return -EINVAL;
	i->i_new = false;
	err = run(c, begin, deadline);
	if (!err)
		version = schema_ask(c, "select (to_regclass('weft.meta') is not null)::int", NULL,
				     deadline);
	if (!err && version < 0)
		err = -EIO;
	if (!err && version > 0) {
		version = schema_ask(c, "select max(version) from weft.meta", NULL, deadline);
		if (version < 1)
			err = -EIO;
		if (version > PG_VERSION) {
			snprintf(c->c_why, PG_WHY,
				 "the schema in PostgreSQL has version %lld, this program knows %u",
				 (long long)version, PG_VERSION);
			err = -ENOTSUP;
		} else if (!err && version < PG_VERSION) {
			err = run(c, upgrade, deadline);
		}
	} else if (!err) {
		i->i_new = true;
		err = run(c, tables, deadline);
	}
	if (!err) {
		version = schema_ask(c, "select 1 from pg_roles where rolname = $1", i->i_role,
				     deadline);
		if (version == -1) {
			snprintf(sql, sizeof(sql), "create role %s login", role);
			err = run(c, sql, deadline);
		}
	}
	if (!err) {
		snprintf(sql, sizeof(sql), grants, role);
		err = run(c, sql, deadline);
	}
	if (!err) {
		snprintf(sql, sizeof(sql), pg_member_tables, role);
		err = run(c, sql, deadline);
	}
	if (!err && n >= 0) {
		snprintf(sql, sizeof(sql), instance, n, 4 * n);
		err = run(c, sql, deadline);
	}
	PQfreemem(role);
	return err;
}

int pg_init(struct pg_init *i, char why[PG_WHY])
{
	uint64_t deadline = pg_in_ms(ANSWER_MS), busy = pg_in_ms(BUSY_MS);
	struct pg_target t;
	struct pg_conn c;
	int err;

	if (i->i_inst > 65535) {
		snprintf(why, PG_WHY, "an instance is a number up to 65535");
		return -EINVAL;
	}
	/* PostgreSQL would cut it short, and not find it the next time. */
	if (!*i->i_role || strlen(i->i_role) > NAME_MAX_LEN) {
		snprintf(why, PG_WHY, "a role has a name of 1 to %d bytes", NAME_MAX_LEN);
		return -EINVAL;
	}
	err = pg_target_set(&t, i->i_conninfo, why);
	if (err)
		return err;
	err = pg_conn_open(&c, &t, "weft pg init", "", deadline);
	if (!err && PQserverVersion(c.c_pg) < 150000) {
		snprintf(c.c_why, PG_WHY, "PostgreSQL %d is too old: 15 is needed",
			 PQserverVersion(c.c_pg) / 10000);
		err = -ENOTSUP;
	}
	while (!err && (err = make(&c, i, deadline)) == -EBUSY && clock_boot_ns() < busy)
		err = run(&c, "rollback", deadline) || usleep(PAUSE_MS * 1000) ? -EAGAIN : 0;
	/* Not sent, the commit leaves nothing behind. */
	if (!err)
		err = run(&c, "commit", deadline);
	if (!err && c.c_notices)
		err = -EAGAIN;
	if (err)
		snprintf(why, PG_WHY, "%s", c.c_why);
	pg_conn_close(&c);
	pg_target_free(&t);
	return err;
}
