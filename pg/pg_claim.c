/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pg_claim.c - a process that may claim an instance: it looks at the row, and claims it when the
 * row has not changed for L.
 *
 * The clock of "unchanged" starts when an answer has come, and the holder's lease when its beat
 * left: the lease is over before the claim, whatever the network does between. Only quick answers
 * count, and only without a gap between them: where PostgreSQL or this process stood still, the
 * holder may have had no chance to beat, and all starts again.
 *
 * Where the lease of the holder is not in PostgreSQL, an unchanged row says nothing: the holder
 * goes on while PostgreSQL is away. So the end of the owner's name says where it is.
 *
 * A claim is a compare-and-set of epoch, batch and beat: a holder that lives after all wins. The
 * claim alone is not enough: its commit may be in doubt, like any other. pg_log_start() then writes
 * once more, guarded by the new epoch and by the name of this claim, which is used once.
 */
#include "pg/pg_int.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CLAIM_TRIES = 4 };
#define LEASE_IN " etcd:"

struct pg_watch {
	struct pg_options w_o;
	char *w_conninfo, *w_owner;
	struct pg_target w_target;
	struct pg_conn w_conn;
	char w_name[64]; /* of the connection; of this process alone */
	struct pg_row w_row;
	uint64_t w_epoch;	/* pg_watch_epoch() */
	bool w_seen;		/* w_row is one that was read */
	uint64_t w_since, w_at; /* it is unchanged since; the newest look */
	char w_lease[PG_LEASE]; /* pg_watch_lease(); "": in PostgreSQL */
	char w_why[PG_WHY];
};

int pg_watch_open(struct pg_watch **out, const struct pg_options *o)
{
	struct pg_watch *w = calloc(1, sizeof(*w));
	int err = -ENOMEM;

	*out = NULL;
	if (!w)
		return err;
	if (o->o_lease_ms < 100 || o->o_replicas < 1 || o->o_replicas > 2 ||
	    strlen(o->o_owner) >= PG_OWNER) {
		free(w);
		return -EINVAL;
	}
	w->w_o = *o;
	w->w_epoch = PG_ANY_EPOCH;
	w->w_conninfo = strdup(o->o_conninfo);
	w->w_owner = strdup(o->o_owner);
	if (w->w_conninfo && w->w_owner)
		err = pg_target_set(&w->w_target, o->o_conninfo, w->w_why);
	if (err) {
		pg_watch_close(w);
		return err;
	}
	snprintf(w->w_name, sizeof(w->w_name), "weft-watch %u %016llx", o->o_inst,
		 (unsigned long long)pg_random());
	w->w_target.t_wake = pg_wake(o);
	w->w_o.o_conninfo = w->w_conninfo;
	w->w_o.o_owner = w->w_owner;
	*out = w;
	return 0;
}

void pg_watch_close(struct pg_watch *w)
{
	pg_conn_close(&w->w_conn);
	pg_target_free(&w->w_target);
	free(w->w_conninfo);
	free(w->w_owner);
	free(w);
}

const char *pg_watch_why(const struct pg_watch *w)
{
	return w->w_why;
}

struct pg_conn *pg_watch_conn(struct pg_watch *w, uint64_t deadline)
{
	char gucs[64];

	if (w->w_conn.c_pg)
		return &w->w_conn;
	/* A claim meets the lock of a holder that stands still. */
	snprintf(gucs, sizeof(gucs), "-c lock_timeout=%u", w->w_o.o_lease_ms / 4);
	if (pg_conn_open(&w->w_conn, &w->w_target, w->w_name, gucs, deadline) ||
	    pg_conn_version(&w->w_conn, deadline)) {
		pg_watch_lost(w);
		return NULL;
	}
	return &w->w_conn;
}

int pg_watch_lost(struct pg_watch *w)
{
	snprintf(w->w_why, PG_WHY, "%s", w->w_conn.c_why);
	pg_conn_close(&w->w_conn);
	return -EAGAIN;
}

const struct pg_options *pg_watch_options(const struct pg_watch *w)
{
	return &w->w_o;
}

uint64_t pg_watch_epoch(const struct pg_watch *w)
{
	return w->w_epoch;
}

/* ---- look ---- */

/* The owner's last word. */
static void lease_of(const char *owner, char lease[PG_LEASE])
{
	const char *last = strrchr(owner, ' ');

	snprintf(lease, PG_LEASE, "%s",
		 last && !strncmp(last, LEASE_IN, strlen(LEASE_IN)) ? last + 1 : "");
}

static int read_row(struct pg_watch *w, struct pg_row *row, uint64_t deadline)
{
	struct pg_conn *c = pg_watch_conn(w, deadline);
	struct pg_args a = {0};
	PGresult *res;
	int err = 0;

	if (!c)
		return strstr(w->w_why, "this program knows") ? -ENOTSUP : -EAGAIN;
	pg_arg_int(&a, w->w_o.o_inst);
	if (pg_conn_run(c,
			"select epoch, batch, beat, acked, (owner = '')::int::int8, ident,"
			" lease_ms, restored, owner"
			" from instance where id = $1",
			&a, deadline, &res) != PG_DONE) {
		PQclear(res);
		return pg_watch_lost(w);
	}
	if (PQntuples(res) == 1)
		*row = (struct pg_row){.r_epoch = pg_num(res, 0, 0),
				       .r_batch = pg_num(res, 0, 1),
				       .r_beat = pg_num(res, 0, 2),
				       .r_acked = pg_num(res, 0, 3),
				       .r_free = pg_num(res, 0, 4),
				       .r_lease_ms = (uint32_t)pg_num(res, 0, 6),
				       .r_restored = pg_num(res, 0, 7)};
	else
		err = -ENOENT;
	if (!err && PQgetlength(res, 0, 5) == sizeof(row->r_ident))
		memcpy(row->r_ident, PQgetvalue(res, 0, 5), sizeof(row->r_ident));
	if (!err)
		lease_of(PQgetvalue(res, 0, 8), row->r_lease);
	if (err)
		snprintf(w->w_why, PG_WHY, "there is no instance %u: weft pg init --instance %u",
			 w->w_o.o_inst, w->w_o.o_inst);
	PQclear(res);
	return err;
}

static bool same(const struct pg_row *a, const struct pg_row *b)
{
	return a->r_epoch == b->r_epoch && a->r_batch == b->r_batch && a->r_beat == b->r_beat;
}

int pg_watch_look(struct pg_watch *w, struct pg_row *row)
{
	uint64_t began = clock_boot_ns(), quick = (uint64_t)w->w_o.o_lease_ms * 250000, now;
	struct pg_row seen;
	int err = read_row(w, &seen, began + quick);

	now = clock_boot_ns();
	if (!err && now - began > quick) {
		snprintf(w->w_why, PG_WHY, "PostgreSQL answers too slowly");
		err = -EAGAIN;
	}
	if (err) {
		w->w_seen = false;
		return err;
	}
	/* The gap between two looks: from the answer of one to the question of the next. */
	if (!w->w_seen || !same(&seen, &w->w_row) || began - w->w_at > quick)
		w->w_since = now;
	w->w_row = *row = seen;
	w->w_epoch = seen.r_epoch;
	w->w_at = now;
	w->w_seen = true;
	return 0;
}

bool pg_watch_due(const struct pg_watch *w)
{
	uint32_t own = w->w_o.o_lease_ms, its = w->w_row.r_lease_ms;
	uint64_t wait = (uint64_t)(its > own ? its : own) + w->w_o.o_rank_ms;

	if (!w->w_seen || w->w_row.r_free)
		return w->w_seen;
	if (*w->w_row.r_lease)
		return !strcmp(w->w_row.r_lease, w->w_lease);
	return w->w_at - w->w_since >= wait * 1000000;
}

void pg_watch_lease(struct pg_watch *w, const char *where)
{
	snprintf(w->w_lease, sizeof(w->w_lease), "%s", where);
}

bool pg_watch_free(const struct pg_watch *w)
{
	return w->w_seen && w->w_row.r_free;
}

uint64_t pg_watch_quiet_ms(const struct pg_watch *w)
{
	return w->w_seen ? (w->w_at - w->w_since) / 1000000 : 0;
}

/* ---- claim ---- */

/* The server process of the holder has the row locked: it may belong to a process that stands
 * still, or wait for a standby. */
static void end_holder(struct pg_conn *c, uint32_t inst, uint64_t deadline)
{
	char like[32];
	struct pg_args a = {0};
	PGresult *res;

	snprintf(like, sizeof(like), "weft %u %%", inst);
	pg_arg_text(&a, like);
	pg_conn_run(c,
		    "select pg_terminate_backend(pid) from pg_stat_activity"
		    " where application_name like $1",
		    &a, deadline, &res);
	PQclear(res);
}

/* The server process of a claim in doubt: it may wait for a standby, with the row locked. */
static void end_claim(struct pg_watch *w, uint64_t pid, uint64_t deadline)
{
	struct pg_conn *c = pg_watch_conn(w, deadline);
	struct pg_args a = {0};
	PGresult *res;

	if (!c)
		return;
	pg_arg_int(&a, pid);
	pg_arg_text(&a, w->w_name);
	pg_conn_run(c,
		    "select pg_terminate_backend(pid) from pg_stat_activity"
		    " where pid = $1 and application_name = $2",
		    &a, deadline, &res);
	PQclear(res);
}

/* 0: it is claimed, or that is in doubt; -EAGAIN: it is not. */
static int claim_row(struct pg_watch *w, struct pg_conn *c, const char *owner, uint64_t deadline,
		     bool *doubt)
{
	for (int i = 0; i < CLAIM_TRIES; i++) {
		const char *state;
		PGresult *res;
		struct pg_args a = {0};
		enum pg_end end;
		bool one, locked;

		pg_arg_int(&a, w->w_o.o_inst);
		pg_arg_int(&a, w->w_row.r_epoch);
		pg_arg_int(&a, w->w_row.r_batch);
		pg_arg_int(&a, w->w_row.r_beat);
		pg_arg_text(&a, owner);
		pg_arg_int(&a, pg_random());
		pg_arg_int(&a, w->w_o.o_lease_ms);
		end = pg_conn_run(c,
				  "update instance set epoch = epoch + 1, beat = beat + 1,"
				  " owner = $5, session = $6, lease_ms = $7"
				  " where id = $1 and epoch = $2 and batch = $3 and beat = $4",
				  &a, deadline, &res);
		one = end == PG_DONE && !strcmp(PQcmdTuples(res), "1");
		state = end == PG_FAILED ? PQresultErrorField(res, PG_DIAG_SQLSTATE) : NULL;
		locked = state && !strcmp(state, "55P03"); /* lock_not_available */
		PQclear(res);
		*doubt = end == PG_UNKNOWN;
		if (*doubt || one)
			return 0;
		if (!locked)
			return -EAGAIN;
		end_holder(c, w->w_o.o_inst, deadline);
	}
	return -EAGAIN;
}

int pg_watch_claim(struct pg_watch *w, struct pg_log **out)
{
	uint64_t deadline = pg_in_ms(2 * w->w_o.o_lease_ms + pg_answer_ms(&w->w_o));
	struct pg_conn *c;
	char owner[PG_CLAIM];
	bool doubt = false;
	uint64_t pid;
	int err;

	*out = NULL;
	if (!w->w_seen)
		return -EAGAIN;
	c = pg_watch_conn(w, pg_in_ms(pg_answer_ms(&w->w_o)));
	if (!c)
		return -EAGAIN;
	/* It is used once. */
	snprintf(owner, sizeof(owner), "%s %016llx%s%s", w->w_o.o_owner,
		 (unsigned long long)pg_random(), *w->w_lease ? " " : "", w->w_lease);
	pid = (uint64_t)PQbackendPID(c->c_pg);
	err = claim_row(w, c, owner, deadline, &doubt);
	if (err)
		snprintf(w->w_why, PG_WHY, "another process was quicker, or holds it");
	if (doubt) {
		pg_watch_lost(w);
		end_claim(w, pid, deadline);
	}
	w->w_seen = false;
	if (!err)
		err = pg_log_start(out, &w->w_o, w->w_row.r_epoch + 1, owner, deadline);
	if (!err)
		w->w_epoch = w->w_row.r_epoch + 1;
	return err;
}
