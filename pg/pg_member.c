/* SPDX-License-Identifier: Apache-2.0 */
/* pg_member.c - see pg_member.h. */
#include "pg/pg_member.h"
#include "pg/pg_int.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pg_member {
	struct pg_target m_target;
	struct pg_conn m_conn;
	char m_app[64], m_name[128], m_node[PG_NODE];
	uint32_t m_inst, m_answer_ms;
	char m_why[PG_WHY];
};

const char pg_member_tables[] =
	"create table if not exists weft.member (inst int8 not null references weft.instance"
	" on delete cascade,"
	" name text not null, node text not null, role text not null, has int8 not null,"
	" as_of timestamptz not null, seen timestamptz not null, primary key (inst, name))"
	" with (fillfactor = 10);"
	"create table if not exists weft.place (inst int8 primary key references weft.instance"
	" on delete cascade,"
	" preferred text not null default '', seq int8 not null default 0,"
	" state text not null default '', target text not null default '',"
	" why text not null default '', asked timestamptz, changed timestamptz,"
	" leaving timestamptz, left_at timestamptz, done timestamptz, taken timestamptz,"
	" taken_by text, taken_why text, detection int8, claim int8, filling int8, serving int8)"
	" with (fillfactor = 10);"
	"grant select, insert, update, delete on weft.member, weft.place to %1$s;";

int pg_member_open(struct pg_member **out, const struct pg_member_opts *o)
{
	struct pg_member *m = calloc(1, sizeof(*m));
	int err;

	*out = NULL;
	if (!m)
		return -ENOMEM;
	m->m_inst = o->mo_inst;
	m->m_answer_ms = o->mo_answer_ms;
	snprintf(m->m_name, sizeof(m->m_name), "%s", o->mo_name ? o->mo_name : "");
	snprintf(m->m_node, sizeof(m->m_node), "%s", o->mo_node ? o->mo_node : "");
	snprintf(m->m_app, sizeof(m->m_app), "weft-member %u", o->mo_inst);
	err = pg_target_set(&m->m_target, o->mo_conninfo, m->m_why);
	/* Also where it fails: the reason is in it. */
	*out = m;
	return err;
}

void pg_member_close(struct pg_member *m)
{
	if (!m)
		return;
	pg_conn_close(&m->m_conn);
	pg_target_free(&m->m_target);
	free(m);
}

const char *pg_member_why(const struct pg_member *m)
{
	return m ? m->m_why : "out of memory";
}

/* Runs a statement. 0 and *res, the caller's; or an error. */
static int pg_member_run(struct pg_member *m, const char *sql, const struct pg_args *a,
			 PGresult **res)
{
	uint64_t deadline = pg_in_ms(m->m_answer_ms);
	struct pg_conn *c = &m->m_conn;
	const char *state;
	enum pg_end end;
	int err;

	*res = NULL;
	/* A move's states need no standby: see pg_member.h. */
	if (!c->c_pg) {
		err = pg_conn_open(c, &m->m_target, m->m_app, "-c synchronous_commit=local",
				   deadline);
		if (!err)
			err = pg_conn_version(c, deadline);
		if (err) {
			snprintf(m->m_why, PG_WHY, "%s", c->c_why);
			pg_conn_close(c);
			return err == -ENOTSUP ? -ENOENT : -EAGAIN;
		}
	}
	end = pg_conn_run(c, sql, a, deadline, res);
	if (end == PG_DONE)
		return 0;
	state = end == PG_FAILED ? PQresultErrorField(*res, PG_DIAG_SQLSTATE) : NULL;
	err = -EAGAIN;
	snprintf(m->m_why, PG_WHY, "%s", c->c_why);
	if (state && !strcmp(state, "42P01")) { /* undefined_table */
		err = -ENOENT;
		snprintf(m->m_why, PG_WHY,
			 "its tables lack who takes part: run weft pg init again");
	} else if (state && !strcmp(state, "23503")) { /* foreign_key_violation */
		err = -ENOENT;
		snprintf(m->m_why, PG_WHY, "there is no instance with this number");
	}
	PQclear(*res);
	*res = NULL;
	if (end == PG_UNKNOWN)
		pg_conn_close(c);
	return err;
}

/* The same, of a statement whose rows count: -ESTALE: it changed none. */
static int member_change(struct pg_member *m, const char *sql, const struct pg_args *a)
{
	PGresult *res;
	int err = pg_member_run(m, sql, a, &res);

	if (!err && !strcmp(PQcmdTuples(res), "0"))
		err = -ESTALE;
	PQclear(res);
	return err;
}

/* ---- members ---- */

int pg_member_say(struct pg_member *m, const char *role, uint64_t has, uint64_t as_of_ms)
{
	struct pg_args a = {0};

	pg_arg_int(&a, m->m_inst);
	pg_arg_text(&a, m->m_name);
	pg_arg_text(&a, m->m_node);
	pg_arg_text(&a, role);
	pg_arg_int(&a, has);
	pg_arg_int(&a, as_of_ms);
	return member_change(m,
			     "insert into member (inst, name, node, role, has, as_of, seen) values"
			     " ($1, $2, $3, $4, $5, now() - $6 * interval '1 ms', now())"
			     " on conflict (inst, name) do update set node = $3, role = $4,"
			     " has = $5, as_of = now() - $6 * interval '1 ms', seen = now()",
			     &a);
}

int pg_member_leave(struct pg_member *m)
{
	struct pg_args a = {0};

	pg_arg_int(&a, m->m_inst);
	pg_arg_text(&a, m->m_name);
	return member_change(m, "delete from member where inst = $1 and name = $2", &a);
}

int pg_member_has(struct pg_member *m, const char *node, uint64_t *has)
{
	struct pg_args a = {0};
	PGresult *res;
	int err;

	pg_arg_int(&a, m->m_inst);
	pg_arg_text(&a, node);
	err = pg_member_run(m,
			    "select max(has) from member where inst = $1 and node = $2"
			    " and role = 'standby' and seen > now() - interval '3 s'",
			    &a, &res);
	if (!err && (PQntuples(res) != 1 || PQgetisnull(res, 0, 0)))
		err = -ESRCH;
	if (!err)
		*has = pg_num(res, 0, 0);
	PQclear(res);
	return err;
}

/* ---- moves ---- */

static void member_text(const PGresult *res, int column, char *out, size_t len)
{
	snprintf(out, len, "%.*s", PQgetlength(res, 0, column), PQgetvalue(res, 0, column));
}

int pg_member_move(struct pg_member *m, uint32_t inst, struct pg_move *mv)
{
	struct pg_args a = {0};
	PGresult *res;
	int err;

	*mv = (struct pg_move){0};
	pg_arg_int(&a, inst);
	err = pg_member_run(m,
			    "select seq, state, target, why, greatest(0, coalesce((extract(epoch"
			    " from clock_timestamp() - changed) * 1000)::int8, 0)) from place"
			    " where inst = $1",
			    &a, &res);
	if (!err && PQntuples(res) == 1) {
		mv->mv_seq = pg_num(res, 0, 0);
		member_text(res, 1, mv->mv_state, sizeof(mv->mv_state));
		member_text(res, 2, mv->mv_target, sizeof(mv->mv_target));
		member_text(res, 3, mv->mv_why, sizeof(mv->mv_why));
		mv->mv_age_ms = pg_num(res, 0, 4);
	}
	PQclear(res);
	return err;
}

/* A move that stopped in the middle is not waited for: its holder ended. */
int pg_member_ask(struct pg_member *m, uint32_t inst, const char *node, uint64_t *seq)
{
	struct pg_args a = {0};
	PGresult *res;
	bool none;
	int err;

	pg_arg_int(&a, inst);
	pg_arg_text(&a, node);
	err = pg_member_run(
		m,
		"insert into place as p (inst, seq, state, target, why, asked, changed)"
		" select $1, 1, 'asked', $2, '', now(), now()"
		" where $2 <> '' or exists (select 1 from place where inst = $1 and"
		" preferred <> '') on conflict (inst) do update set seq = p.seq + 1,"
		" state = 'asked', target = case $2 when '' then p.preferred else $2 end,"
		" why = '', asked = now(), changed = now(), leaving = null,"
		" left_at = null, done = null where p.state not in"
		" ('asked', 'begun', 'leaving', 'left')"
		" or p.changed < now() - interval '60 s' returning seq",
		&a, &res);
	if (!err && PQntuples(res) == 1) {
		*seq = pg_num(res, 0, 0);
		PQclear(res);
		return 0;
	}
	PQclear(res);
	if (err)
		return err;
	a = (struct pg_args){0};
	pg_arg_int(&a, inst);
	err = pg_member_run(m, "select 1 from place where inst = $1 and preferred <> ''", &a, &res);
	none = !err && !*node && PQntuples(res) == 0;
	PQclear(res);
	return err ? err : none ? -ESRCH : -EBUSY;
}

int pg_member_step(struct pg_member *m, uint32_t inst, uint64_t seq, const char *from,
		   const char *to, const char *why)
{
	struct pg_args a = {0};

	pg_arg_int(&a, inst);
	pg_arg_int(&a, seq);
	pg_arg_text(&a, from);
	pg_arg_text(&a, to);
	pg_arg_text(&a, why);
	return member_change(
		m,
		"update place set state = $4, why = $5, changed = clock_timestamp(),"
		" leaving = case $4 when 'leaving' then clock_timestamp() else leaving end,"
		" left_at = case $4 when 'left' then clock_timestamp() else left_at end"
		" where inst = $1 and seq = $2 and state = $3",
		&a);
}

int pg_member_prefer(struct pg_member *m, uint32_t inst, const char *node)
{
	struct pg_args a = {0};

	pg_arg_int(&a, inst);
	pg_arg_text(&a, node);
	return member_change(m,
			     "insert into place (inst, preferred) values ($1, $2)"
			     " on conflict (inst) do update set preferred = $2",
			     &a);
}

int pg_member_took(struct pg_member *m, const struct pg_takeover *t)
{
	struct pg_args a = {0};

	pg_arg_int(&a, m->m_inst);
	pg_arg_text(&a, m->m_node);
	pg_arg_text(&a, t->to_why);
	pg_arg_int(&a, t->to_detection);
	pg_arg_int(&a, t->to_claim);
	pg_arg_int(&a, t->to_filling);
	pg_arg_int(&a, t->to_serving);
	return member_change(
		m,
		"insert into place as p (inst, taken, taken_by, taken_why, detection, claim,"
		" filling, serving) values ($1, clock_timestamp(), $2, $3, $4, $5, $6, $7)"
		" on conflict (inst) do update set taken = clock_timestamp(), taken_by = $2,"
		" taken_why = $3, detection = $4, claim = $5, filling = $6, serving = $7,"
		" done = case when p.state in ('begun', 'leaving', 'left') then clock_timestamp()"
		" else p.done end, why = case when p.state in ('begun', 'leaving', 'left')"
		" and p.target <> $2 then $2 || ' took it instead' else p.why end,"
		" changed = case when p.state in ('begun', 'leaving', 'left')"
		" then clock_timestamp() else p.changed end,"
		" state = case when p.state in ('begun', 'leaving', 'left') then case"
		" when p.target = $2 then 'done' else 'refused' end else p.state end",
		&a);
}

/* ---- the list ---- */

/* The size of a batch is known without its bytes. A holder asks once a second, so what one answer
 * reads is bounded: the log behind who is up, and 10,000 batches of that. */
static const char list[] =
	"select coalesce(json_agg(x order by x.instance), '[]')::text from (select"
	" i.id as instance, i.epoch, i.batch, i.acked, i.owner <> '' as held,"
	" h.node as holder, extract(epoch from clock_timestamp() - h.seen)::float8 as heard_s,"
	" nullif(p.preferred, '') as preferred,"
	" case when p.seq > 0 then json_build_object('number', p.seq, 'state', p.state,"
	" 'to', p.target, 'why', nullif(p.why, ''), 'asked_at', extract(epoch from p.asked),"
	" 'stopping_ms', (extract(epoch from p.left_at - p.leaving) * 1000)::int8,"
	" 'away_ms', (extract(epoch from p.done - p.leaving) * 1000)::int8) end as move,"
	" case when p.taken is not null then json_build_object('at', extract(epoch from p.taken),"
	" 'by', p.taken_by, 'why', p.taken_why, 'detection_ms', p.detection, 'claim_ms', p.claim,"
	" 'filling_ms', p.filling, 'serving_ms', p.serving) end as takeover,"
	" (select coalesce(json_agg(s order by s.node, s.name), '[]') from (select m.node, m.name,"
	" m.has as batch, greatest(i.acked - m.has, 0) as lag_batches,"
	" case when m.seen > now() - interval '5 s' then (select coalesce(sum(d.n), 0)::int8 from"
	" (select octet_length(l.data) as n from log l where l.part = any(array["
	"(i.id * 4)::int, (i.id * 4 + 1)::int, (i.id * 4 + 2)::int, (i.id * 4 + 3)::int])"
	" and l.batch > m.has and l.batch <= i.acked limit 10000) d) end as lag_bytes,"
	" case when m.has >= i.acked"
	" then 0 else greatest(0, extract(epoch from clock_timestamp() - m.as_of)) end::float8"
	" as lag_s, greatest(0, extract(epoch from clock_timestamp() - m.seen))::float8 as seen_s,"
	" m.seen > now() - interval '5 s' as up from member m where m.inst = i.id"
	" and m.role = 'standby' and m.seen > now() - interval '1 day') s) as standbys"
	" from instance i left join place p on p.inst = i.id left join member h on h.inst = i.id"
	" and i.owner <> '' and h.name = regexp_replace(i.owner,"
	" ' [0-9a-f]{16}( etcd:[^ ]*)?$', '')"
	" where $1 = 0 or i.id = $1) x";

int pg_member_list(struct pg_member *m, uint32_t inst, char **json)
{
	struct pg_args a = {0};
	PGresult *res;
	int err;

	*json = NULL;
	pg_arg_int(&a, inst);
	err = pg_member_run(m, list, &a, &res);
	if (!err && PQntuples(res) == 1)
		*json = strndup(PQgetvalue(res, 0, 0), (size_t)PQgetlength(res, 0, 0));
	PQclear(res);
	return err || *json ? err : -ENOMEM;
}
