/* SPDX-License-Identifier: Apache-2.0 */
/*
 * member.c - see member.h.
 *
 * Who: mb_call is held for each use of the connection, and mb_lock for what the others ask for,
 * never while PostgreSQL is waited for.
 */
#include "mds/member.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "common/store_lease.h"
#include "mds/journal/event_journal.h"
#include "pg/pg_member.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SAY_MS = 500, LOOK_MS = 250, QUICK_MS = 20, LIST_MS = 1000, ANSWER_MS = 1000 };
/* A target has so long to follow the whole log; and to claim what was left to it. */
enum { READY_MS = 5000, LET_GO_MS = 1000, CLAIM_MS = 3000 };
/* Whoever asked for a move waits for 5 s until it begins: an older wish is nobody's any more. */
enum { OLD_MS = 10000 };
/* What the list said for so long is no news. */
enum { SEEN_MS = 10000 };

enum member_role { MEMBER_STANDBY, MEMBER_HOLDER, MEMBER_SERVES };

static struct {
	struct member_opts mb_o;
	struct pg_member *mb_pg; /* NULL: it does not run */
	pthread_mutex_t mb_call;
	pthread_t mb_thread;

	pthread_mutex_t mb_lock; /* of what follows */
	pthread_cond_t mb_wake;
	bool mb_stop, mb_took_due;
	enum member_role mb_role;
	uint64_t mb_has, mb_as_of; /* mono ms */
	uint64_t mb_held_at;
	struct member_took mb_took;
	uint64_t mb_serving_ms;
	uint64_t (*mb_last)(void *arg);
	void *mb_last_arg;
	json_t *mb_seen;	/* this instance's entry of the list; NULL: none yet */
	uint64_t mb_seen_at;	/* or since when it serves */
	struct pg_move mb_move; /* the one that this process works on; mv_seq 0: none */
	uint64_t mb_move_from;

	_Atomic bool mb_quick, mb_moved;
	const struct store_lease *mb_lease;
	/* of the thread */
	bool mb_said, mb_lagged, mb_none;
	unsigned mb_up;
} the_member = {.mb_call = PTHREAD_MUTEX_INITIALIZER, .mb_lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- what is written ---- */

/* Each reason once. */
static void member_said(int err)
{
	if (err && err != -ESTALE && err != -ESRCH && !the_member.mb_said)
		log_warn("instance %u: cannot tell in PostgreSQL what this process is: %s",
			 the_member.mb_o.mo_inst, pg_member_why(the_member.mb_pg));
	the_member.mb_said = err && err != -ESTALE && err != -ESRCH;
}

static void member_say(void)
{
	uint64_t has, as_of, now = clock_mono_ms();
	enum member_role role;
	int err;

	pthread_mutex_lock(&the_member.mb_lock);
	role = the_member.mb_role;
	has = the_member.mb_has;
	as_of = the_member.mb_as_of;
	if (role != MEMBER_STANDBY && the_member.mb_last) {
		has = the_member.mb_last(the_member.mb_last_arg);
		as_of = now;
	}
	pthread_mutex_unlock(&the_member.mb_lock);
	pthread_mutex_lock(&the_member.mb_call);
	err = pg_member_say(the_member.mb_pg, role == MEMBER_STANDBY ? "standby" : "holder", has,
			    as_of ? now - as_of : 0);
	pthread_mutex_unlock(&the_member.mb_call);
	member_said(err);
}

static void member_say_took(void)
{
	struct pg_takeover t;
	struct member_took took;
	bool due;
	int err;

	pthread_mutex_lock(&the_member.mb_lock);
	due = the_member.mb_took_due;
	took = the_member.mb_took;
	t = (struct pg_takeover){.to_why = took.mt_free ? "released" : "lease",
				 .to_detection = took.mt_detection_ms,
				 .to_claim = took.mt_claim_ms,
				 .to_filling = took.mt_filling_ms,
				 .to_serving = the_member.mb_serving_ms};
	pthread_mutex_unlock(&the_member.mb_lock);
	if (!due)
		return;
	pthread_mutex_lock(&the_member.mb_call);
	err = pg_member_took(the_member.mb_pg, &t);
	pthread_mutex_unlock(&the_member.mb_call);
	member_said(err);
	if (err && err != -ENOENT)
		return;
	pthread_mutex_lock(&the_member.mb_lock);
	the_member.mb_took_due = false;
	pthread_mutex_unlock(&the_member.mb_lock);
	journal_add(EV_TAKEOVER, the_member.mb_o.mo_node, 0,
		    "instance %u, %s: detection %lu ms, claim %lu ms, filling %lu ms, serving %lu "
		    "ms",
		    the_member.mb_o.mo_inst, took.mt_free ? "it was free" : "its lease was over",
		    (unsigned long)t.to_detection, (unsigned long)t.to_claim,
		    (unsigned long)t.to_filling, (unsigned long)t.to_serving);
}

/* ---- moves ---- */

static int member_step(const struct pg_move *mv, const char *from, const char *to, const char *why)
{
	int err;

	pthread_mutex_lock(&the_member.mb_call);
	err = pg_member_step(the_member.mb_pg, the_member.mb_o.mo_inst, mv->mv_seq, from, to, why);
	pthread_mutex_unlock(&the_member.mb_call);
	return err;
}

static int member_target(const char *node, uint64_t *has)
{
	int err;

	pthread_mutex_lock(&the_member.mb_call);
	err = pg_member_has(the_member.mb_pg, node, has);
	pthread_mutex_unlock(&the_member.mb_call);
	return err;
}

static void move_refuse(const struct pg_move *mv, const char *from, const char *why)
{
	if (!member_step(mv, from, "refused", why))
		journal_add(EV_INSTANCE_MOVE, mv->mv_target, 0, "refused: %s", why);
	pthread_mutex_lock(&the_member.mb_lock);
	the_member.mb_move.mv_seq = 0;
	pthread_mutex_unlock(&the_member.mb_lock);
	atomic_store(&the_member.mb_quick, false);
}

static void move_leave(const struct pg_move *mv)
{
	log_info("instance %u moves to %s, which follows its log: stopping",
		 the_member.mb_o.mo_inst, mv->mv_target);
	journal_add(EV_INSTANCE_MOVE, mv->mv_target, 0, "stopping here");
	atomic_store(&the_member.mb_moved, true);
	kill(getpid(), SIGTERM);
}

/* The target is ready when it has what the log had a look ago, but for the newest batch: a standby
 * reads up to what the holder is known to have. It reads the rest when it claims. */
static void move_begun(const struct pg_move *mv, uint64_t last, uint64_t from)
{
	uint64_t has = 0;
	char why[160];
	int err = member_target(mv->mv_target, &has);

	if (!err && has + 1 >= last) {
		if (!member_step(mv, "begun", "leaving", ""))
			move_leave(mv);
		return;
	}
	if (err == -ESRCH)
		snprintf(why, sizeof(why), "no standby on %s is up", mv->mv_target);
	else if (err)
		return;
	else
		snprintf(why, sizeof(why), "the standby on %s lacks %lu batches after %d s",
			 mv->mv_target, (unsigned long)(last - has), READY_MS / 1000);
	if (err || clock_mono_ms() - from > READY_MS)
		move_refuse(mv, "begun", why);
}

/* It began so many ms ago. */
static void move_take_up(const struct pg_move *mv, uint64_t ago)
{
	journal_add(EV_INSTANCE_MOVE, mv->mv_target, 0, "begins: instance %u, from %s",
		    the_member.mb_o.mo_inst, the_member.mb_o.mo_node);
	pthread_mutex_lock(&the_member.mb_lock);
	the_member.mb_move = *mv;
	the_member.mb_move_from = clock_mono_ms() - ago;
	pthread_mutex_unlock(&the_member.mb_lock);
	atomic_store(&the_member.mb_quick, true);
}

static void move_asked(const struct pg_move *mv)
{
	uint64_t has;
	char why[160];
	int err;

	if (mv->mv_age_ms > OLD_MS) {
		move_refuse(mv, "asked", "it was asked for too long ago");
		return;
	}
	if (!strcmp(mv->mv_target, the_member.mb_o.mo_node)) {
		move_refuse(mv, "asked", "it is there already");
		return;
	}
	err = member_target(mv->mv_target, &has);
	if (err == -ESRCH) {
		snprintf(why, sizeof(why), "no standby on %s is up", mv->mv_target);
		move_refuse(mv, "asked", why);
	} else if (!err && !member_step(mv, "asked", "begun", "")) {
		move_take_up(mv, 0);
	}
}

/* What PostgreSQL has of a move. A step whose answer was lost may have been made: then it goes on
 * from there. Nobody but this process makes one while it serves. */
static void move_goes_on(const struct pg_move *mv, const struct pg_move *mine, uint64_t last,
			 uint64_t from)
{
	bool begun = !strcmp(mv->mv_state, "begun"), leaving = !strcmp(mv->mv_state, "leaving");

	if (!strcmp(mv->mv_state, "asked")) {
		move_asked(mv);
	} else if ((begun || leaving) && mv->mv_age_ms > OLD_MS) {
		move_refuse(mv, mv->mv_state, "it took too long");
	} else if (begun && mine->mv_seq != mv->mv_seq) {
		move_take_up(mv, mv->mv_age_ms);
	} else if (begun) {
		move_begun(mv, last, from);
	} else if (leaving && mine->mv_seq == mv->mv_seq) {
		move_leave(mv);
	} else {
		atomic_store(&the_member.mb_quick, false);
	}
}

static void member_moves(enum member_role role)
{
	struct pg_move mv, mine;
	uint64_t last, from;
	bool under_way, due;
	int err;

	pthread_mutex_lock(&the_member.mb_lock);
	last = the_member.mb_last ? the_member.mb_last(the_member.mb_last_arg) : 0;
	mine = the_member.mb_move;
	from = the_member.mb_move_from;
	due = the_member.mb_took_due;
	pthread_mutex_unlock(&the_member.mb_lock);
	if (atomic_load(&the_member.mb_moved))
		return;
	pthread_mutex_lock(&the_member.mb_call);
	err = pg_member_move(the_member.mb_pg, the_member.mb_o.mo_inst, &mv);
	pthread_mutex_unlock(&the_member.mb_call);
	member_said(err);
	if (err)
		return;
	under_way = !strcmp(mv.mv_state, "begun") || !strcmp(mv.mv_state, "leaving") ||
		    !strcmp(mv.mv_state, "left");
	if (role == MEMBER_STANDBY)
		atomic_store(&the_member.mb_quick,
			     under_way && !strcmp(mv.mv_target, the_member.mb_o.mo_node) &&
				     mv.mv_age_ms < 4 * READY_MS);
	/* Until the takeover is told, a move may be that of the holder before. */
	else if (role == MEMBER_SERVES && !due)
		move_goes_on(&mv, &mine, last, from);
}

bool member_yields(void)
{
	struct pg_move mv;
	int err;

	if (!the_member.mb_pg)
		return false;
	pthread_mutex_lock(&the_member.mb_call);
	err = pg_member_move(the_member.mb_pg, the_member.mb_o.mo_inst, &mv);
	pthread_mutex_unlock(&the_member.mb_call);
	return !err && (!strcmp(mv.mv_state, "leaving") || !strcmp(mv.mv_state, "left")) &&
	       strcmp(mv.mv_target, the_member.mb_o.mo_node) != 0 &&
	       mv.mv_age_ms < CLAIM_MS + 2 * the_member.mb_o.mo_lease_ms;
}

void member_let_go(uint64_t last)
{
	uint64_t until = clock_mono_ms() + LET_GO_MS, has = 0;
	struct pg_move mv;

	if (!the_member.mb_pg || !atomic_load(&the_member.mb_moved))
		return;
	pthread_mutex_lock(&the_member.mb_lock);
	mv = the_member.mb_move;
	pthread_mutex_unlock(&the_member.mb_lock);
	while (clock_mono_ms() < until && (member_target(mv.mv_target, &has) || has + 1 < last))
		usleep(QUICK_MS * 1000);
	if (has + 1 < last)
		log_warn("instance %u: the standby on %s lacks %lu batches, which it reads now",
			 the_member.mb_o.mo_inst, mv.mv_target, (unsigned long)(last - has));
	member_step(&mv, "leaving", "left", "");
}

bool member_moved(void)
{
	return atomic_load(&the_member.mb_moved);
}

/* ---- what is seen ---- */

static double real(const json_t *o, const char *key)
{
	return json_number_value(json_object_get(o, key));
}

static const char *member_string(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

static void view_standbys(struct member_view *v, const json_t *list)
{
	bool first = true;
	const json_t *s;
	size_t i;

	json_array_foreach(list, i, s)
	{
		double lag = real(s, "lag_s");

		if (!json_is_true(json_object_get(s, "up"))) {
			v->mv_gone++;
			continue;
		}
		v->mv_standbys++;
		if (first || lag < v->mv_lag_s) {
			v->mv_lag_s = lag;
			v->mv_lag_batches = real(s, "lag_batches");
			v->mv_lag_bytes = real(s, "lag_bytes");
		}
		if (first || lag > v->mv_worst_s) {
			v->mv_worst_s = lag;
			snprintf(v->mv_worst, sizeof(v->mv_worst), "%s", member_string(s, "node"));
		}
		first = false;
	}
}

static double lease_age(void)
{
	uint64_t end = the_member.mb_lease ? atomic_load(&the_member.mb_lease->sl_end_ns) : 0;
	uint64_t keeps = (uint64_t)the_member.mb_o.mo_lease_ms * 750000, now = clock_boot_ns();

	return end && now + keeps > end ? (double)(now + keeps - end) / 1e9 : 0;
}

void member_look(struct member_view *v)
{
	*v = (struct member_view){0};
	if (!the_member.mb_pg)
		return;
	pthread_mutex_lock(&the_member.mb_lock);
	v->mv_took = the_member.mb_took;
	v->mv_serving_ms = the_member.mb_serving_ms;
	v->mv_old = the_member.mb_role == MEMBER_SERVES &&
		    clock_mono_ms() - the_member.mb_seen_at > SEEN_MS;
	v->mv_on = the_member.mb_seen || v->mv_old;
	if (!v->mv_old)
		view_standbys(v, json_object_get(the_member.mb_seen, "standbys"));
	if (strcmp(member_string(the_member.mb_seen, "preferred"), the_member.mb_o.mo_node))
		snprintf(v->mv_preferred, sizeof(v->mv_preferred), "%s",
			 member_string(the_member.mb_seen, "preferred"));
	pthread_mutex_unlock(&the_member.mb_lock);
	v->mv_lease_age_s = lease_age();
}

json_t *member_json(void)
{
	json_t *j;

	if (!the_member.mb_pg)
		return NULL;
	pthread_mutex_lock(&the_member.mb_lock);
	j = the_member.mb_seen ? json_deep_copy(the_member.mb_seen) : json_object();
	json_object_set_new(j, "instance", json_integer(the_member.mb_o.mo_inst));
	json_object_set_new(j, "node", json_string(the_member.mb_o.mo_node));
	json_object_set_new(
		j, "seen_s",
		the_member.mb_seen
			? json_real((double)(clock_mono_ms() - the_member.mb_seen_at) / 1e3)
			: json_null());
	pthread_mutex_unlock(&the_member.mb_lock);
	json_object_set_new(j, "lease_age_s", json_real(lease_age()));
	return j;
}

/* Standbys that come, go, and fall behind. The first look tells nothing but that there is none. */
static void member_tell(void)
{
	struct member_view v;
	bool lags;

	member_look(&v);
	lags = v.mv_standbys && v.mv_worst_s > MEMBER_LAGS_S;
	if (!v.mv_standbys && !the_member.mb_none)
		journal_add(EV_STANDBY, "", 0, "instance %u has no standby that follows",
			    the_member.mb_o.mo_inst);
	else if (v.mv_standbys < the_member.mb_up)
		journal_add(EV_STANDBY, "", 0, "a standby of instance %u is gone: %u follow",
			    the_member.mb_o.mo_inst, v.mv_standbys);
	else if (v.mv_standbys > the_member.mb_up)
		journal_add(EV_STANDBY, "", 0, "%u follow instance %u", v.mv_standbys,
			    the_member.mb_o.mo_inst);
	if (lags != the_member.mb_lagged)
		journal_add(EV_STANDBY, v.mv_worst, 0,
			    lags ? "it is %.0f s behind" : "it has the log again (%.0f s behind)",
			    v.mv_worst_s);
	the_member.mb_none = !v.mv_standbys;
	the_member.mb_up = v.mv_standbys;
	the_member.mb_lagged = lags;
}

static void member_see(void)
{
	char *got = NULL;
	json_t *all, *one;
	int err;

	pthread_mutex_lock(&the_member.mb_call);
	err = pg_member_list(the_member.mb_pg, the_member.mb_o.mo_inst, &got);
	pthread_mutex_unlock(&the_member.mb_call);
	member_said(err);
	if (err)
		return;
	all = json_loads(got, 0, NULL);
	free(got);
	one = json_incref(json_array_get(all, 0));
	json_decref(all);
	if (!one)
		return;
	pthread_mutex_lock(&the_member.mb_lock);
	json_decref(the_member.mb_seen);
	the_member.mb_seen = one;
	the_member.mb_seen_at = clock_mono_ms();
	pthread_mutex_unlock(&the_member.mb_lock);
	member_tell();
}

/* ---- the thread ---- */

/* False: the end. */
static bool member_sleep(enum member_role *role)
{
	uint32_t ms = atomic_load(&the_member.mb_quick) ? QUICK_MS : LOOK_MS;
	struct timespec until;
	bool stop;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += (long)ms * 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	pthread_mutex_lock(&the_member.mb_lock);
	if (!the_member.mb_stop)
		pthread_cond_timedwait(&the_member.mb_wake, &the_member.mb_lock, &until);
	stop = the_member.mb_stop;
	*role = the_member.mb_role;
	pthread_mutex_unlock(&the_member.mb_lock);
	return !stop;
}

static void *member_run(void *arg)
{
	uint64_t said = 0, seen = 0;
	enum member_role role = MEMBER_STANDBY, was = role;

	(void)arg;
	do {
		uint64_t now = clock_mono_ms();

		if (now - said >= SAY_MS || role != was || atomic_load(&the_member.mb_quick)) {
			member_say();
			said = now;
		}
		was = role;
		member_say_took();
		member_moves(role);
		if (role == MEMBER_SERVES && now - seen >= LIST_MS) {
			member_see();
			seen = now;
		}
	} while (member_sleep(&role));
	return NULL;
}

int member_start(const struct member_opts *o)
{
	const struct pg_member_opts po = {.mo_conninfo = o->mo_conninfo,
					  .mo_inst = o->mo_inst,
					  .mo_name = o->mo_name,
					  .mo_node = o->mo_node,
					  .mo_answer_ms = ANSWER_MS};
	pthread_condattr_t attr;
	struct pg_member *m;
	int err = pg_member_open(&m, &po);

	if (!err) {
		pthread_condattr_init(&attr);
		pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
		pthread_cond_init(&the_member.mb_wake, &attr);
		pthread_condattr_destroy(&attr);
		the_member.mb_o = *o;
		the_member.mb_pg = m;
		/* What has followed nothing yet is as old as this process at least. */
		the_member.mb_as_of = clock_mono_ms();
		err = -pthread_create(&the_member.mb_thread, NULL, member_run, NULL);
	}
	if (err) {
		the_member.mb_pg = NULL;
		pg_member_close(m);
	}
	return err;
}

void member_stop(void)
{
	struct pg_member *m = the_member.mb_pg;

	if (!m)
		return;
	pthread_mutex_lock(&the_member.mb_lock);
	the_member.mb_stop = true;
	pthread_cond_signal(&the_member.mb_wake);
	pthread_mutex_unlock(&the_member.mb_lock);
	pthread_join(the_member.mb_thread, NULL);
	if (!the_member.mb_said)
		pg_member_leave(m);
	the_member.mb_pg = NULL;
	pg_member_close(m);
	json_decref(the_member.mb_seen);
	the_member.mb_seen = NULL;
}

void member_follows(uint64_t batch)
{
	pthread_mutex_lock(&the_member.mb_lock);
	the_member.mb_has = batch;
	the_member.mb_as_of = clock_mono_ms();
	pthread_mutex_unlock(&the_member.mb_lock);
}

uint32_t member_pause_ms(uint32_t usual)
{
	return atomic_load(&the_member.mb_quick) && usual > QUICK_MS ? QUICK_MS : usual;
}

void member_holds(const struct member_took *t)
{
	pthread_mutex_lock(&the_member.mb_lock);
	the_member.mb_role = MEMBER_HOLDER;
	the_member.mb_took = *t;
	the_member.mb_held_at = clock_mono_ms();
	pthread_mutex_unlock(&the_member.mb_lock);
	atomic_store(&the_member.mb_quick, false);
}

void member_log(uint64_t (*last)(void *arg), void *arg)
{
	pthread_mutex_lock(&the_member.mb_lock);
	the_member.mb_last = last;
	the_member.mb_last_arg = arg;
	pthread_mutex_unlock(&the_member.mb_lock);
}

void member_serves(void)
{
	if (!the_member.mb_pg)
		return;
	pthread_mutex_lock(&the_member.mb_lock);
	the_member.mb_role = MEMBER_SERVES;
	the_member.mb_seen_at = clock_mono_ms();
	the_member.mb_serving_ms = the_member.mb_seen_at - the_member.mb_held_at;
	the_member.mb_took_due = true;
	pthread_cond_signal(&the_member.mb_wake);
	pthread_mutex_unlock(&the_member.mb_lock);
}

/* ---- metrics ---- */

static double gauge_view(void *arg)
{
	size_t at = (size_t)(uintptr_t)arg;
	struct member_view v;
	double figure;

	member_look(&v);
	memcpy(&figure, (const char *)&v + at, sizeof(figure));
	return figure;
}

static double gauge_standbys(void *arg)
{
	struct member_view v;

	(void)arg;
	member_look(&v);
	return v.mv_standbys;
}

static double gauge_part(void *arg)
{
	size_t at = (size_t)(uintptr_t)arg;
	struct member_view v;

	member_look(&v);
	return (double)*(const uint64_t *)((const char *)&v + at) / 1e3;
}

static void *at(size_t offset)
{
	return (void *)(uintptr_t)offset;
}

void member_metrics(const struct store_lease *lease)
{
	static const char takeover[] = "weft_mds_takeover_seconds",
			  what[] = "Parts of the takeover by which this process got its instance.";

	if (!the_member.mb_pg)
		return;
	the_member.mb_lease = lease;
	metric_gauge("weft_mds_standbys", "Standbys of this instance that are up.", "",
		     gauge_standbys, NULL);
	metric_gauge("weft_mds_standby_lag_seconds",
		     "How old the copy of the standby is that lacks most.", "", gauge_view,
		     at(offsetof(struct member_view, mv_worst_s)));
	metric_gauge("weft_mds_standby_lag_batches",
		     "Batches of the log that the nearest standby lacks.", "", gauge_view,
		     at(offsetof(struct member_view, mv_lag_batches)));
	metric_gauge("weft_mds_standby_lag_bytes",
		     "Bytes of the log that the nearest standby lacks.", "", gauge_view,
		     at(offsetof(struct member_view, mv_lag_bytes)));
	metric_gauge("weft_mds_lease_age_seconds",
		     "Since a statement left that PostgreSQL has answered.", "", gauge_view,
		     at(offsetof(struct member_view, mv_lease_age_s)));
	metric_gauge(takeover, what, "part=\"detection\"", gauge_part,
		     at(offsetof(struct member_view, mv_took.mt_detection_ms)));
	metric_gauge(takeover, what, "part=\"claim\"", gauge_part,
		     at(offsetof(struct member_view, mv_took.mt_claim_ms)));
	metric_gauge(takeover, what, "part=\"filling\"", gauge_part,
		     at(offsetof(struct member_view, mv_took.mt_filling_ms)));
	metric_gauge(takeover, what, "part=\"serving\"", gauge_part,
		     at(offsetof(struct member_view, mv_serving_ms)));
}
