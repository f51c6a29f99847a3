/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pg_log.c - the process that holds an instance: append, beat, the lease, and what to do when an
 * outcome is unknown.
 *
 * There is one connection, and it has a session number, or there is none. Each connection begins
 * with `begin`: a synchronous write, guarded by epoch and owner, which gives the row the session
 * number of this connection and returns the number of the last batch. When it is answered,
 * PostgreSQL has replicated all up to that batch (commits are replicated in order), and no
 * statement of an earlier connection can succeed any more: append and beat are guarded by the
 * session.
 * So all doubt is resolved in one way: give the connection up, and begin another.
 *
 * The other connection first ends the server process of the one before. That one may wait for a
 * standby, with the row locked, and statement_timeout does not end this wait.
 *
 * Who: append runs on the thread of its caller, the beat on a thread of its own. l_lock is held for
 * a whole append: one statement is under way at a time.
 */
#include "pg/pg_int.h"
#include "base/log.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

enum { PAUSE_MS = 50, REFUSED_MS = 500, RELEASE_MS = 700, LAST_SETTLE_MS = 5000 };

/* $1 instance, $2 epoch, $3 session; append: $4 batch, $5 part, $6 data, $7 replicas; begin: $4
 * owner. acked: what the process that holds the row knew to be durable when it sent this. */
struct pg_statements pg_statements = {
	.append = "with g as (update instance set batch = $4, acked = $4 - 1"
		  " where id = $1 and epoch = $2 and session = $3 and batch = $4 - 1 and"
		  " ($7 < 2 or current_setting('synchronous_standby_names') <> '') returning id)"
		  " insert into log (part, batch, data) select $5::int8::int, $4, $6 from g",
	.beat = "update instance set beat = beat + 1, acked = batch"
		" where id = $1 and epoch = $2 and session = $3 returning batch, standbys(), turn",
	.begin = "update instance set beat = beat + 1, session = $3"
		 " where id = $1 and epoch = $2 and owner = $4 returning batch, standbys(), turn",
};

struct pg_log {
	struct pg_target l_target;
	char l_owner[PG_CLAIM], l_name[64];
	uint32_t l_inst, l_lease_ms, l_answer_ms, l_replicas;
	uint64_t l_epoch;
	void (*l_on_held)(void *arg, uint64_t end_ns);
	void (*l_on_lost)(void *arg, const char *why);
	void *l_arg;

	pthread_mutex_t l_lock; /* of what follows, up to the next line of this kind */
	struct pg_conn l_conn;
	bool l_begun;	/* the connection is there, and its session is l_session */
	bool l_refused; /* the append under way got an ERROR: a full disk, a missing right */
	uint64_t l_session, l_turn, l_pending;
	int l_old_pid; /* the server process of the connection that was given up; 0: none */

	/* Any thread. */
	_Atomic uint64_t l_batch; /* UINT64_MAX: not known yet */
	_Atomic uint64_t l_lease_end, l_heard;
	_Atomic bool l_stop;
	int l_wake;
	bool l_beats;
	pthread_t l_beater;

	pthread_mutex_t l_said; /* of what follows */
	enum pg_state l_state;
	char l_why[PG_WHY];
};

uint64_t pg_random(void)
{
	uint64_t v = 0;

	while (!v)
		if (getrandom(&v, sizeof(v), 0) != sizeof(v) || !(v >>= 1))
			v = 0;
	return v;
}

/* ---- what others ask ---- */

uint64_t pg_log_batch(const struct pg_log *l)
{
	return atomic_load(&l->l_batch);
}

uint64_t pg_log_epoch(const struct pg_log *l)
{
	return l->l_epoch;
}

uint64_t pg_log_lease_end(const struct pg_log *l)
{
	return atomic_load(&l->l_lease_end);
}

bool pg_log_live(const struct pg_log *l)
{
	return clock_boot_ns() < atomic_load(&l->l_lease_end);
}

enum pg_state pg_log_state(struct pg_log *l, char why[PG_WHY])
{
	enum pg_state s;

	pthread_mutex_lock(&l->l_said);
	s = l->l_state;
	if (why)
		snprintf(why, PG_WHY, "%s", l->l_why);
	pthread_mutex_unlock(&l->l_said);
	return s;
}

/* Deposed is for ever. */
static void pg_log_say(struct pg_log *l, enum pg_state s, const char *why)
{
	static const char *const is[] = {"answers again", "is away", "has no synchronous standby",
					 "has deposed this process"};
	bool news;

	pthread_mutex_lock(&l->l_said);
	if (l->l_state == PG_LOG_DEPOSED)
		s = PG_LOG_DEPOSED;
	news = l->l_state != s;
	l->l_state = s;
	snprintf(l->l_why, PG_WHY, "%s", why);
	pthread_mutex_unlock(&l->l_said);
	if (!news)
		return;
	if (s == PG_LOG_LIVE)
		log_info("PostgreSQL %s: instance %u, epoch %llu", is[s], l->l_inst,
			 (unsigned long long)l->l_epoch);
	else
		log_warn("PostgreSQL %s: instance %u, epoch %llu: %s", is[s], l->l_inst,
			 (unsigned long long)l->l_epoch, why);
}

/* PostgreSQL has answered the synchronous write that was sent last. */
static void heard(struct pg_log *l)
{
	uint64_t sent = l->l_conn.c_sent, end = sent + (uint64_t)l->l_lease_ms * 750000;

	atomic_store(&l->l_heard, sent);
	if (end > atomic_load(&l->l_lease_end))
		atomic_store(&l->l_lease_end, end);
	if (l->l_on_held)
		l->l_on_held(l->l_arg, end);
	if (!l->l_refused)
		pg_log_say(l, PG_LOG_LIVE, "");
}

static int deposed(struct pg_log *l, const char *why)
{
	atomic_store(&l->l_lease_end, 0);
	pg_conn_close(&l->l_conn);
	l->l_begun = false;
	pg_log_say(l, PG_LOG_DEPOSED, why);
	if (l->l_on_lost)
		l->l_on_lost(l->l_arg, why);
	return -ESTALE;
}

/* ---- the connection ---- */

static void give_up(struct pg_log *l)
{
	if (l->l_conn.c_pg)
		l->l_old_pid = PQbackendPID(l->l_conn.c_pg);
	pg_conn_close(&l->l_conn);
	l->l_begun = false;
}

static void guard_args(const struct pg_log *l, uint64_t session, struct pg_args *a)
{
	*a = (struct pg_args){0};
	pg_arg_int(a, l->l_inst);
	pg_arg_int(a, l->l_epoch);
	pg_arg_int(a, session);
}

/* Ends the server process of the connection before: it may wait for a standby for ever, with the
 * row locked. The name is of this process alone: an old number may be another's by now. */
static enum pg_end end_old(struct pg_log *l, uint64_t deadline)
{
	struct pg_args a = {0};
	PGresult *res;
	enum pg_end end;

	if (!l->l_old_pid)
		return PG_DONE;
	pg_arg_int(&a, (uint64_t)l->l_old_pid);
	pg_arg_text(&a, l->l_name);
	end = pg_conn_run(&l->l_conn,
			  "select pg_terminate_backend(pid) from pg_stat_activity"
			  " where pid = $1 and application_name = $2 and pid <> pg_backend_pid()",
			  &a, deadline, &res);
	PQclear(res);
	if (end == PG_DONE)
		l->l_old_pid = 0;
	return end;
}

/* The types of append's parameters, for PREPARE. */
static void append_args(const struct pg_log *l, uint64_t batch, const void *data, size_t len,
			struct pg_args *a)
{
	guard_args(l, l->l_session, a);
	pg_arg_int(a, batch);
	pg_arg_int(a, l->l_inst * PG_TURNS + batch / (l->l_turn ? l->l_turn : 1) % PG_TURNS);
	pg_arg_bytes(a, data, len);
	pg_arg_int(a, l->l_replicas);
}

/* Looks at an answer to begin or beat: 0; -EAGAIN: alone. */
static int alone(struct pg_log *l, const PGresult *res)
{
	int64_t standbys = (int64_t)pg_num(res, 0, 1);

	if (l->l_replicas < 2 || standbys > 0)
		return 0;
	pg_log_say(l, PG_LOG_ALONE,
		   standbys < 0 ? "synchronous_standby_names is empty"
				: "no synchronous standby streams");
	return -EAGAIN;
}

/* A connection, a session, and the end of all doubt. 0; -EAGAIN: not now; -ESTALE; -ECANCELED. */
static int settle(struct pg_log *l, uint64_t deadline)
{
	uint64_t session = pg_random(), batch, known = atomic_load(&l->l_batch);
	struct pg_args a;
	PGresult *res = NULL;
	int err;

	give_up(l);
	err = pg_conn_open(&l->l_conn, &l->l_target, l->l_name, "", deadline);
	if (!err)
		err = pg_conn_version(&l->l_conn, deadline);
	if (err || end_old(l, deadline) != PG_DONE)
		goto away;
	guard_args(l, session, &a);
	pg_arg_text(&a, l->l_owner);
	if (pg_conn_run(&l->l_conn, pg_statements.begin, &a, deadline, &res) != PG_DONE)
		goto away;
	if (PQntuples(res) != 1) {
		PQclear(res);
		return deposed(l, "another process has claimed the instance, or its row is gone");
	}
	batch = pg_num(res, 0, 0);
	l->l_turn = pg_num(res, 0, 2);
	/* The log has what this process knows of, or the batch that was in doubt too. */
	if (known != UINT64_MAX && batch != known && batch != l->l_pending) {
		PQclear(res);
		return deposed(l, "the log lacks batches that PostgreSQL had acknowledged");
	}
	err = alone(l, res);
	PQclear(res);
	res = NULL;
	if (err) {
		give_up(l);
		return err;
	}
	heard(l);
	l->l_session = session;
	append_args(l, 0, NULL, 0, &a);
	if (pg_conn_prepare(&l->l_conn, "append", pg_statements.append, &a, deadline) != PG_DONE)
		goto away;
	atomic_store(&l->l_batch, batch);
	l->l_begun = true;
	return 0;
away:
	PQclear(res);
	pg_log_say(l, PG_LOG_AWAY, l->l_conn.c_why);
	give_up(l);
	return err == -ECANCELED ? err : -EAGAIN;
}

/* A beat. 0; -EAGAIN: the connection was given up. */
static int beat(struct pg_log *l)
{
	struct pg_args a;
	PGresult *res = NULL;
	int err = -EAGAIN;

	guard_args(l, l->l_session, &a);
	if (pg_conn_run(&l->l_conn, pg_statements.beat, &a, pg_in_ms(l->l_answer_ms), &res) ==
		    PG_DONE &&
	    PQntuples(res) == 1 && !alone(l, res)) {
		heard(l);
		err = 0;
	}
	PQclear(res);
	if (err)
		give_up(l);
	return err;
}

static int send_batch(struct pg_log *l, uint64_t batch, const void *data, size_t len)
{
	struct pg_args a;
	PGresult *res = NULL;
	enum pg_end end;
	int err = -EAGAIN;

	append_args(l, batch, data, len, &a);
	end = pg_conn_run_prepared(&l->l_conn, "append", &a, pg_in_ms(l->l_answer_ms), &res);
	l->l_refused = end == PG_FAILED;
	if (end == PG_DONE && !strcmp(PQcmdTuples(res), "1")) {
		heard(l);
		err = 0;
	}
	PQclear(res);
	if (l->l_refused)
		pg_log_say(l, PG_LOG_AWAY, l->l_conn.c_why);
	if (err)
		give_up(l);
	return err;
}

static void doze(struct pg_log *l, int ms)
{
	struct pollfd p = {.fd = l->l_wake, .events = POLLIN};

	poll(&p, 1, ms);
}

int pg_log_append(struct pg_log *l, uint64_t batch, const void *data, size_t len)
{
	int err = -EAGAIN;

	pthread_mutex_lock(&l->l_lock);
	if (batch != atomic_load(&l->l_batch) + 1)
		err = -EINVAL;
	else
		l->l_pending = batch;
	while (err == -EAGAIN) {
		if (pg_log_state(l, NULL) == PG_LOG_DEPOSED) {
			err = -ESTALE;
		} else if (atomic_load(&l->l_stop)) {
			err = -ECANCELED;
		} else if (l->l_begun) {
			err = send_batch(l, batch, data, len);
			/* The lease goes on: each try settles first, which is a beat. */
			if (l->l_refused)
				doze(l, (int)(l->l_lease_ms / 5 < REFUSED_MS ? l->l_lease_ms / 5
									     : REFUSED_MS));
		} else {
			int got = settle(l, pg_in_ms(l->l_answer_ms));

			if (!got && atomic_load(&l->l_batch) == batch)
				err = 0; /* it was in doubt, and it is there */
			else if (got == -EAGAIN)
				doze(l, PAUSE_MS);
			else if (got)
				err = got;
		}
	}
	l->l_refused = false;
	if (!err)
		atomic_store(&l->l_batch, batch);
	pthread_mutex_unlock(&l->l_lock);
	return err;
}

static void *beats(void *arg)
{
	struct pg_log *l = arg;
	uint64_t every = (uint64_t)l->l_lease_ms * 200000;

	while (!atomic_load(&l->l_stop) && pg_log_state(l, NULL) != PG_LOG_DEPOSED) {
		uint64_t now = clock_boot_ns(), due = atomic_load(&l->l_heard) + every;
		int err = 0;

		if (now < due) {
			doze(l, (int)((due - now + 999999) / 1000000));
			continue;
		}
		pthread_mutex_lock(&l->l_lock);
		/* An append may have been answered while this waited for the lock. */
		if (clock_boot_ns() >= atomic_load(&l->l_heard) + every &&
		    pg_log_state(l, NULL) != PG_LOG_DEPOSED)
			err = l->l_begun ? beat(l) : settle(l, pg_in_ms(l->l_answer_ms));
		pthread_mutex_unlock(&l->l_lock);
		if (err)
			doze(l, PAUSE_MS);
	}
	return NULL;
}

/* A statement of the holder that says how many rows it has changed. */
static int change_row(struct pg_log *l, const char *sql)
{
	struct pg_args a;
	PGresult *res = NULL;
	int err = -EAGAIN;

	pthread_mutex_lock(&l->l_lock);
	if (pg_log_state(l, NULL) == PG_LOG_DEPOSED)
		err = -ESTALE;
	else if (l->l_begun) {
		guard_args(l, l->l_session, &a);
		if (pg_conn_run(&l->l_conn, sql, &a, pg_in_ms(l->l_answer_ms), &res) != PG_DONE)
			give_up(l);
		else if (PQntuples(res) == 1 && pg_num(res, 0, 0) == 1)
			err = 0;
	}
	PQclear(res);
	pthread_mutex_unlock(&l->l_lock);
	return err;
}

int pg_log_renew(struct pg_log *l)
{
	return change_row(l, "with g as (update instance set ident = gen_random_uuid(),"
			     " restored = 1 where id = $1 and epoch = $2 and session = $3"
			     " and batch = (select folded from fold where inst = $1)"
			     " returning id), d as (delete from reader using g where inst = g.id)"
			     " select count(*) from g");
}

int pg_log_renewed(struct pg_log *l)
{
	return change_row(l, "with g as (update instance set restored = 0 where id = $1"
			     " and epoch = $2 and session = $3 returning id)"
			     " select count(*) from g");
}

/* ---- begin and end ---- */

static void free_log(struct pg_log *l)
{
	pg_conn_close(&l->l_conn);
	pg_target_free(&l->l_target);
	if (l->l_wake >= 0)
		close(l->l_wake);
	pthread_mutex_destroy(&l->l_lock);
	pthread_mutex_destroy(&l->l_said);
	free(l);
}

int pg_log_start(struct pg_log **out, const struct pg_options *o, uint64_t epoch, const char *owner,
		 uint64_t deadline)
{
	struct pg_log *l = calloc(1, sizeof(*l));
	char why[PG_WHY];
	int err = -ENOMEM;

	*out = NULL;
	if (!l)
		return -ENOMEM;
	pthread_mutex_init(&l->l_lock, NULL);
	pthread_mutex_init(&l->l_said, NULL);
	l->l_inst = o->o_inst;
	l->l_lease_ms = o->o_lease_ms;
	l->l_answer_ms = pg_answer_ms(o);
	l->l_replicas = o->o_replicas;
	l->l_epoch = epoch;
	l->l_on_held = o->o_held;
	l->l_arg = o->o_arg;
	l->l_state = PG_LOG_AWAY;
	snprintf(l->l_owner, sizeof(l->l_owner), "%s", owner);
	snprintf(l->l_name, sizeof(l->l_name), "weft %u %016llx", o->o_inst,
		 (unsigned long long)pg_random());
	l->l_wake = eventfd(0, EFD_CLOEXEC);
	if (l->l_wake < 0)
		goto fail;
	err = pg_target_set(&l->l_target, o->o_conninfo, why);
	if (err)
		goto fail;
	l->l_target.t_wake = pg_wake(o);
	atomic_store(&l->l_batch, UINT64_MAX);
	for (;;) {
		uint64_t now = clock_boot_ns(), until = pg_in_ms(l->l_answer_ms);

		/* The first begin says which batch is the last. */
		err = now >= deadline ? -ETIMEDOUT : settle(l, until < deadline ? until : deadline);
		if (err != -EAGAIN)
			break;
		doze(l, PAUSE_MS);
	}
	if (!err) {
		l->l_conn.c_wake = l->l_target.t_wake = l->l_wake;
		/* Before this nothing was held, and nothing could be lost. */
		l->l_on_lost = o->o_lost;
		err = -pthread_create(&l->l_beater, NULL, beats, l);
		l->l_beats = !err;
	}
	if (!err) {
		*out = l;
		return 0;
	}
fail:
	free_log(l);
	return err == -ESTALE ? -EAGAIN : err;
}

void pg_log_stop(struct pg_log *l)
{
	uint64_t one = 1;

	atomic_store(&l->l_stop, true);
	/* It is never read: all waits end from now on. */
	if (write(l->l_wake, &one, sizeof(one)) != sizeof(one))
		log_error("eventfd: %s", strerror(errno));
}

/* The end broke off what was under way: PostgreSQL has answered until now, and does not know this
 * connection. Nobody hears of it: it must not make the lease longer that is given up. */
static void settle_at_end(struct pg_log *l)
{
	uint32_t ms = l->l_answer_ms < LAST_SETTLE_MS ? l->l_answer_ms : LAST_SETTLE_MS;

	l->l_on_held = NULL;
	l->l_on_lost = NULL;
	l->l_target.t_wake = -1;
	settle(l, pg_in_ms(ms));
}

static int release(struct pg_log *l)
{
	struct pg_args a = {0};
	PGresult *res = NULL;
	enum pg_end end;

	if (!l->l_begun && pg_log_state(l, NULL) == PG_LOG_LIVE)
		settle_at_end(l);
	if (!l->l_begun)
		return -EAGAIN;
	/* Nothing is answered any more before PostgreSQL says that the row is free. */
	atomic_store(&l->l_lease_end, 0);
	guard_args(l, l->l_session, &a);
	l->l_conn.c_wake = -1;
	end = pg_conn_run(&l->l_conn,
			  "update instance set beat = beat + 1, acked = batch, owner = ''"
			  " where id = $1 and epoch = $2 and session = $3",
			  &a, pg_in_ms(RELEASE_MS), &res);
	if (end == PG_DONE && strcmp(PQcmdTuples(res), "1"))
		end = PG_FAILED;
	PQclear(res);
	return end == PG_DONE ? 0 : -EAGAIN;
}

int pg_log_close(struct pg_log *l, bool give)
{
	int err = 0;

	pg_log_stop(l);
	if (l->l_beats)
		pthread_join(l->l_beater, NULL);
	/* An append that is under way ends now. */
	pthread_mutex_lock(&l->l_lock);
	if (give)
		err = release(l);
	pthread_mutex_unlock(&l->l_lock);
	free_log(l);
	return err;
}
