/* SPDX-License-Identifier: Apache-2.0 */
/* pg_read.c - what is in the log: for a process that follows it, and whole, for a new one. */
#include "pg/pg_int.h"
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* COPY may begin with a lock of another, or an index that is read cold. */
enum { READ_MS = 10000, COPY_MS = 60000, READ_BATCHES = 4096, INT4 = 23 };

void pg_parts(uint32_t inst, uint8_t out[PG_PARTS_LEN])
{
	uint32_t head[5] = {htobe32(1), 0, htobe32(INT4), htobe32(PG_TURNS), htobe32(1)};

	memcpy(out, head, sizeof(head));
	for (uint32_t i = 0; i < PG_TURNS; i++) {
		uint32_t one[2] = {htobe32(4), htobe32(inst * PG_TURNS + i)};

		memcpy(out + sizeof(head) + i * sizeof(one), one, sizeof(one));
	}
}

/* The size of a value is in the row: it is not fetched before the row is known to be wanted. */
int pg_batches(struct pg_conn *c, uint32_t inst, uint64_t epoch, uint64_t after, uint64_t last,
	       size_t max, uint64_t deadline, PGresult **res)
{
	uint8_t parts[PG_PARTS_LEN];
	struct pg_args a = {0};

	pg_parts(inst, parts);
	pg_arg_of(&a, PG_INT4_ARRAY, parts, sizeof(parts));
	pg_arg_int(&a, after);
	pg_arg_int(&a, last);
	pg_arg_int(&a, max);
	pg_arg_int(&a, READ_BATCHES);
	pg_arg_int(&a, inst);
	pg_arg_int(&a, epoch);
	return pg_conn_run(c,
			   "select t.batch, t.data from (select 1 from instance where id = $6"
			   " and ($7 < 0 or epoch = $7 and batch >= $3)) i left join (select batch,"
			   " data, sum(octet_length(data)) over (order by batch)"
			   " - octet_length(data) as before from log"
			   " where part = any($1) and batch > $2 and batch <= $3"
			   " order by batch limit $5) t on before < $4 order by t.batch",
			   &a, deadline, res) == PG_DONE
		       ? 0
		       : -EAGAIN;
}

int pg_read_batches(struct pg_watch *w, uint64_t *after, uint64_t last, size_t max, pg_batch_fn *fn,
		    void *arg)
{
	uint64_t deadline = pg_in_ms(READ_MS);
	struct pg_conn *c;
	PGresult *res;
	int err = 0;

	if (*after >= last)
		return 0;
	c = pg_watch_conn(w, deadline);
	if (!c)
		return -EAGAIN;
	if (pg_batches(c, pg_watch_options(w)->o_inst, pg_watch_epoch(w), *after, last, max,
		       deadline, &res)) {
		PQclear(res);
		return pg_watch_lost(w);
	}
	/* A server that lacks what the look or the claim saw, or a row that moved since: `last` is
	 * not from here. */
	if (!PQntuples(res)) {
		PQclear(res);
		snprintf(c->c_why, PG_WHY, "the instance has moved since it was looked at");
		return pg_watch_lost(w);
	}
	/* There is no hole in the log: what is missing was at its begin. */
	if (PQgetisnull(res, 0, 0))
		err = -ESTALE;
	for (int i = 0; i < PQntuples(res) && !err; i++) {
		uint64_t batch = pg_num(res, i, 0);

		err = batch == *after + 1 ? fn(arg, batch, PQgetvalue(res, i, 1),
					       (size_t)PQgetlength(res, i, 1))
					  : -ESTALE;
		if (!err)
			*after = batch;
	}
	PQclear(res);
	return err;
}

int pg_read_keep(struct pg_watch *w, const char *reader, uint64_t batch)
{
	uint64_t deadline = pg_in_ms(READ_MS);
	struct pg_conn *c = pg_watch_conn(w, deadline);
	struct pg_args a = {0};
	PGresult *res;
	enum pg_end end;

	if (!c)
		return -EAGAIN;
	pg_arg_int(&a, pg_watch_options(w)->o_inst);
	pg_arg_text(&a, reader);
	pg_arg_int(&a, batch);
	end = pg_conn_run(c,
			  "insert into reader (inst, name, batch, seen) values ($1, $2, $3, now())"
			  " on conflict (inst, name) do update set batch = $3, seen = now()",
			  &a, deadline, &res);
	PQclear(res);
	return end == PG_DONE ? 0 : pg_watch_lost(w);
}

int pg_read_alive(struct pg_watch *w, const char *reader, uint64_t batch)
{
	uint64_t deadline = pg_in_ms(pg_answer_ms(pg_watch_options(w)));
	struct pg_conn *c = pg_watch_conn(w, deadline);
	struct pg_args a = {0};
	PGresult *res;
	enum pg_end end;

	if (!c)
		return -EAGAIN;
	pg_arg_int(&a, pg_watch_options(w)->o_inst);
	pg_arg_text(&a, reader);
	pg_arg_int(&a, batch);
	pg_arg_text(&a, pg_watch_options(w)->o_owner);
	end = pg_conn_run(c,
			  "with d as (delete from reader where inst = $1 and name <> $2"
			  " and (name = $4 or starts_with(name, $4 || ' '))"
			  " and seen < now() - interval '5 minutes')"
			  " insert into reader (inst, name, batch, seen) values ($1, $2, $3, now())"
			  " on conflict (inst, name) do update set seen = now()",
			  &a, deadline, &res);
	PQclear(res);
	return end == PG_DONE ? 0 : pg_watch_lost(w);
}

int pg_read_head(struct pg_watch *w, uint64_t batch, uint8_t head[PG_HEAD], size_t *len)
{
	uint64_t deadline = pg_in_ms(pg_answer_ms(pg_watch_options(w)));
	struct pg_conn *c = pg_watch_conn(w, deadline);
	uint8_t parts[PG_PARTS_LEN];
	struct pg_args a = {0};
	PGresult *res;
	int err = 0;

	if (!c)
		return -EAGAIN;
	pg_parts(pg_watch_options(w)->o_inst, parts);
	pg_arg_int(&a, pg_watch_options(w)->o_inst);
	pg_arg_int(&a, batch);
	pg_arg_of(&a, PG_INT4_ARRAY, parts, sizeof(parts));
	pg_arg_int(&a, PG_HEAD);
	if (pg_conn_run(c,
			"select batch, standbys(), coalesce((select substring(data for $4::int)"
			" from log where part = any($3) and batch = $2), (select head from fold"
			" where inst = $1 and folded = $2)) from instance where id = $1",
			&a, deadline, &res) != PG_DONE) {
		PQclear(res);
		return pg_watch_lost(w);
	}
	if (PQntuples(res) != 1 || PQnfields(res) != 3) {
		err = -EAGAIN;
	} else if (pg_watch_options(w)->o_replicas > 1 && (int64_t)pg_num(res, 0, 1) <= 0) {
		snprintf(c->c_why, PG_WHY, "no synchronous standby streams");
		err = -EAGAIN;
	} else if (pg_num(res, 0, 0) < batch) {
		err = -ENOENT;
	} else if (PQgetisnull(res, 0, 2)) {
		err = -ERANGE;
	} else {
		*len = (size_t)PQgetlength(res, 0, 2);
		*len = *len < PG_HEAD ? *len : PG_HEAD;
		memcpy(head, PQgetvalue(res, 0, 2), *len);
	}
	PQclear(res);
	return err == -EAGAIN ? pg_watch_lost(w) : err;
}

/* ---- a whole instance ---- */

static int simple(struct pg_conn *c, const char *sql)
{
	uint64_t deadline = pg_in_ms(COPY_MS);
	PGresult *res;
	enum pg_end end;
	int err = 0;

	/* In a transaction: pg_conn_run() wants none. */
	c->c_notices = 0;
	if (!PQsendQuery(c->c_pg, sql))
		return -EAGAIN;
	while (PQflush(c->c_pg) > 0 || PQisBusy(c->c_pg))
		if ((err = pg_conn_wait(c, PQflush(c->c_pg) > 0, deadline)) ||
		    !PQconsumeInput(c->c_pg))
			return err == -ECANCELED ? err : -EAGAIN;
	res = PQgetResult(c->c_pg);
	end = PQresultStatus(res) == PGRES_COMMAND_OK || PQresultStatus(res) == PGRES_COPY_OUT
		      ? PG_DONE
		      : PG_FAILED;
	if (end == PG_FAILED)
		snprintf(c->c_why, PG_WHY, "%.*s", (int)strcspn(PQresultErrorMessage(res), "\n"),
			 PQresultErrorMessage(res));
	else if (PQresultStatus(res) == PGRES_COPY_OUT) {
		PQclear(res);
		return 0;
	}
	PQclear(res);
	while ((res = PQgetResult(c->c_pg)))
		PQclear(res);
	return end == PG_DONE ? 0 : -EAGAIN;
}

static uint32_t be32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* A row of COPY's binary format with two fields. 1: a row; 0: the end; -EPROTO. */
static int copy_row(const uint8_t *p, size_t len, bool first, struct iovec *k, struct iovec *v)
{
	static const uint8_t magic[11] = "PGCOPY\n\377\r\n";
	struct iovec *field[2] = {k, v};
	size_t at = 0;

	if (first) {
		if (len < 19 || memcmp(p, magic, sizeof(magic)) || be32(p + 15) > len - 19)
			return -EPROTO;
		at = 19 + be32(p + 15);
	}
	if (len - at < 2)
		return -EPROTO;
	if (p[at] == 0xff && p[at + 1] == 0xff)
		return 0;
	if (p[at] != 0 || p[at + 1] != 2)
		return -EPROTO;
	at += 2;
	for (int i = 0; i < 2; i++) {
		uint32_t n;

		if (len - at < 4)
			return -EPROTO;
		n = be32(p + at);
		at += 4;
		if (n > len - at)
			return -EPROTO;
		*field[i] = (struct iovec){(void *)(p + at), n};
		at += n;
	}
	return at == len ? 1 : -EPROTO;
}

static int copy_table(struct pg_conn *c, uint32_t inst, struct pg_snapshot *s)
{
	char sql[160];
	bool first = true, ended = false;
	PGresult *res;
	int err;

	snprintf(sql, sizeof(sql),
		 "copy (select k, v from kv where inst = %u order by k) to stdout (format binary)",
		 inst);
	err = simple(c, sql);
	while (!err) {
		struct iovec k, v;
		char *p = NULL;
		int n = PQgetCopyData(c->c_pg, &p, 1), got;

		if (n == 0) {
			err = pg_conn_wait(c, false, pg_in_ms(COPY_MS));
			if (err != -ECANCELED)
				err = err || !PQconsumeInput(c->c_pg) ? -EAGAIN : 0;
			continue;
		}
		if (n < 0) {
			err = n == -1 && ended ? 0 : -EAGAIN;
			break;
		}
		got = copy_row((const uint8_t *)p, (size_t)n, first, &k, &v);
		first = false;
		ended = got == 0;
		err = got < 0 ? got : got ? s->s_row(s->s_arg, k, v) : 0;
		PQfreemem(p);
	}
	if (err)
		return err;
	while ((res = PQgetResult(c->c_pg))) {
		if (PQresultStatus(res) != PGRES_COMMAND_OK)
			err = -EAGAIN;
		PQclear(res);
	}
	return err;
}

/* The batches, some at a time, in the same transaction. */
static int copy_log(struct pg_conn *c, uint32_t inst, struct pg_snapshot *s)
{
	uint64_t after = s->s_folded;
	int err = 0;

	while (!err && after < s->s_last) {
		PGresult *res;

		err = pg_batches(c, inst, PG_ANY_EPOCH, after, s->s_last, 4 << 20,
				 pg_in_ms(READ_MS), &res);
		if (!err && (!PQntuples(res) || PQgetisnull(res, 0, 0)))
			err = -EIO;
		for (int i = 0; !err && i < PQntuples(res); i++) {
			uint64_t batch = pg_num(res, i, 0);

			err = batch == after + 1
				      ? s->s_batch(s->s_arg, batch, PQgetvalue(res, i, 1),
						   (size_t)PQgetlength(res, i, 1))
				      : -EIO;
			after = batch;
		}
		if (err == -EIO)
			snprintf(c->c_why, PG_WHY, "the log lacks batch %llu",
				 (unsigned long long)after + 1);
		PQclear(res);
	}
	return err;
}

/* Which batches the log has. */
static int count_log(struct pg_conn *c, uint32_t inst, struct pg_snapshot *s)
{
	uint8_t parts[PG_PARTS_LEN];
	struct pg_args a = {0};
	PGresult *res = NULL;
	int err = 0;

	pg_parts(inst, parts);
	pg_arg_of(&a, PG_INT4_ARRAY, parts, sizeof(parts));
	if (pg_conn_run(c,
			"select count(*), coalesce(min(batch), 0), coalesce(max(batch), 0) from log"
			" where part = any($1)",
			&a, pg_in_ms(COPY_MS), &res) != PG_DONE ||
	    PQntuples(res) != 1) {
		err = -EAGAIN;
	} else {
		s->s_n = pg_num(res, 0, 0);
		s->s_first = pg_num(res, 0, 1);
		s->s_max = pg_num(res, 0, 2);
	}
	PQclear(res);
	return err;
}

int pg_snapshot(const struct pg_options *o, struct pg_snapshot *s, char why[PG_WHY])
{
	uint64_t deadline = pg_in_ms(READ_MS);
	struct pg_args a = {0};
	struct pg_target t;
	struct pg_conn c;
	PGresult *res = NULL;
	char name[64];
	int err;

	err = pg_target_set(&t, o->o_conninfo, why);
	if (err)
		return err;
	t.t_wake = pg_wake(o);
	snprintf(name, sizeof(name), "weft-snapshot %u", o->o_inst);
	/* It ends by itself if this process stops in the middle. */
	err = pg_conn_open(&c, &t, name, "-c idle_in_transaction_session_timeout=60000", deadline);
	if (!err)
		err = pg_conn_version(&c, deadline);
	if (!err)
		err = simple(&c, "begin isolation level repeatable read read only");
	c.c_inside = true;
	pg_arg_int(&a, o->o_inst);
	if (!err && pg_conn_run(&c,
				"select folded, greatest(folded, acked), head, epoch, batch, acked"
				" from instance join fold on inst = id where id = $1",
				&a, deadline, &res) != PG_DONE)
		err = -EAGAIN;
	if (!err && PQntuples(res) != 1) {
		snprintf(c.c_why, PG_WHY, "there is no instance %u", o->o_inst);
		err = -ENOENT;
	}
	if (!err && s->s_epoch &&
	    (pg_num(res, 0, 3) != s->s_epoch || pg_num(res, 0, 4) < s->s_batch_seen)) {
		snprintf(c.c_why, PG_WHY, "the instance has moved since it was looked at");
		err = -EAGAIN;
	}
	if (!err) {
		s->s_folded = pg_num(res, 0, 0);
		s->s_last = pg_num(res, 0, 1);
		if (s->s_upto && s->s_upto < s->s_last)
			s->s_last = s->s_upto > s->s_folded ? s->s_upto : s->s_folded;
		s->s_batch_now = pg_num(res, 0, 4);
		s->s_acked = pg_num(res, 0, 5);
		s->s_headlen = (size_t)PQgetlength(res, 0, 2);
		s->s_headlen = s->s_headlen < PG_HEAD ? s->s_headlen : PG_HEAD;
		memcpy(s->s_head, PQgetvalue(res, 0, 2), s->s_headlen);
	}
	PQclear(res);
	if (!err && s->s_log_first)
		err = count_log(&c, o->o_inst, s);
	if (!err && s->s_batch && s->s_log_first)
		err = copy_log(&c, o->o_inst, s);
	if (!err && s->s_row)
		err = copy_table(&c, o->o_inst, s);
	if (!err && s->s_batch && !s->s_log_first)
		err = copy_log(&c, o->o_inst, s);
	snprintf(why, PG_WHY, "%s", err ? c.c_why : "");
	pg_conn_close(&c);
	pg_target_free(&t);
	return err;
}
