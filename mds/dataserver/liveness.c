/* SPDX-License-Identifier: Apache-2.0 */
/*
 * liveness.c - decides which data servers live (docs/device-failure.md). Runs on the first loop.
 *
 * A server is suspect when its connection is lost, its heartbeats stay away, or a client reports
 * that it cannot reach the server. Then the metadata server asks it again and again in two ways:
 * over its control connection, and by a NULL call on its NFS port. Any answer says that it lives. A
 * server that refuses, or says nothing, is declared dead after a while. So is one whose lease has
 * run out, because it serves no client any more.
 */
#include "base/clock.h"
#include "base/log.h"
#include "common/store_lease.h"
#include "mds/dataserver/nfs3ds.h"
#include "mds/journal/event_journal.h"
#include <errno.h>
#include <time.h>
#include <urcu/compiler.h>

#define WATCH_MS     200
#define ASK_EVERY_MS 400
#define ASK_MS	     1000
/* After our start: a server asks at least once in this time whether it may join (ds/control.c). */
#define START_MS 5000

/* While the store is not held, no server gets an answer to its heartbeats, and none is asked
 * anything (common/store_lease.h). So no server is judged then, nor for WOKE_MS after it, and no
 * silence counts that began before the store was held again. */

/* A timer later than this means that this process did not run: it was stopped, or suspended with
 * the machine. After that, no server is judged until what came meanwhile has been read and each
 * server has been asked again. */
#define PAUSE_MS 1000
#define WOKE_MS	 (ASK_EVERY_MS + 2 * ASK_MS)

struct question {
	struct ds_reg_ctl qu_ctl;
	struct ds_reg_io qu_io;
	struct ds_reg *qu_dsc;
	uint32_t qu_id;
	unsigned qu_left;
	bool qu_said, qu_nfs, qu_refused;
};

const char *ds_reg_state_text(enum ds_reg_state st)
{
	static const char *const text[DS_REG_STATES] = {[DS_REG_ALIVE] = "alive",
							[DS_REG_SUSPECT] = "suspect",
							[DS_REG_DEAD] = "dead",
							[DS_REG_KILLED] = "killed",
							[DS_REG_WAITING] = "waiting"};

	return st < DS_REG_STATES ? text[st] : "?";
}

void ds_reg_set_state(struct ds_reg_node *nd, enum ds_reg_state st)
{
	struct timespec ts;

	if (nd->nd_state == st && nd->nd_since_s)
		return;
	clock_gettime(CLOCK_REALTIME, &ts);
	nd->nd_state = st;
	nd->nd_since_s = (uint64_t)ts.tv_sec;
}

/* Bars the server from joining. What is on the wire to it is lost, and so is its connection; its
 * next join is refused. The next tick reports it to the code that recalls layouts. */
void ds_reg_bar(struct ds_reg *d, struct ds_reg_node *nd, uint8_t barred)
{
	nd->nd_terms.dt_barred = barred;
	ds_reg_set_state(nd, barred ? barred : DS_REG_DEAD);
	nd->nd_barred = barred == DS_REG_KILLED;
	nd->nd_reported_ms = 0;
	nd->nd_unserving = nd->nd_joined = false;
	if (nd->nd_link)
		ds_reg_link_close(d, nd->nd_link->lk_loop, nd->nd_link->lk_id);
	nd->nd_link = NULL;
	if (nd->nd_gen)
		atomic_store(&nd->nd_gen->gn_rejoin, true);
}

/* ---- asking ---- */

static void question_put(struct question *qu)
{
	struct ds_reg *d = qu->qu_dsc;
	struct ds_reg_node *nd;

	if (--qu->qu_left)
		return;
	pthread_mutex_lock(&d->d_lock);
	nd = d->d_node[qu->qu_id];
	if (nd) {
		uint64_t now = clock_mono_ms();

		nd->nd_asking = false;
		nd->nd_silent = !qu->qu_said;
		if (qu->qu_said)
			nd->nd_said_ms = now;
		if (qu->qu_nfs) {
			nd->nd_nfs_ms = now;
			nd->nd_reported_ms = 0;
		}
		nd->nd_refused_ms = qu->qu_refused ? now : 0;
	}
	ds_reg_unlock(d, nd);
	free(qu);
}

/* An empty request: any answer shows that the server lives. */
static void ctl_take(struct ds_reg_ctl *c, const ctl_response *res)
{
	(void)c;
	(void)res;
}

static void ctl_done(struct ds_reg_ctl *c, int err)
{
	struct question *qu = caa_container_of(c, struct question, qu_ctl);

	qu->qu_said |= !err;
	question_put(qu);
}

static void nfs_done(struct ds_reg_io *io, int err)
{
	struct question *qu = caa_container_of(io, struct question, qu_io);

	qu->qu_said |= !err;
	qu->qu_nfs = !err;
	qu->qu_refused = err == -ECONNREFUSED;
	question_put(qu);
}

static void liveness_ask(struct ds_reg *d, uint32_t id, bool generic)
{
	struct question *qu = calloc(1, sizeof(*qu));

	if (!qu) {
		pthread_mutex_lock(&d->d_lock);
		if (d->d_node[id])
			d->d_node[id]->nd_asking = false;
		ds_reg_unlock(d, d->d_node[id]);
		return;
	}
	qu->qu_dsc = d;
	qu->qu_id = id;
	qu->qu_left = generic ? 1 : 2;
	qu->qu_ctl.dc_req.op = CTL_OP_STAT; /* no object */
	qu->qu_ctl.dc_take = ctl_take;
	qu->qu_ctl.dc_done = ctl_done;
	qu->qu_io.di_done = nfs_done;
	ds_reg_ping(d, id, &qu->qu_io, ASK_MS);
	if (!generic)
		ds_reg_call(d, id, &qu->qu_ctl, ASK_MS);
}

void ds_reg_reported(struct ds_reg *d, const uint8_t uuid[16])
{
	struct ds_reg_node *nd;

	pthread_mutex_lock(&d->d_lock);
	nd = ds_reg_find_uuid(d, uuid);
	if (nd && nd->nd_state == DS_REG_ALIVE && !nd->nd_reported_ms)
		nd->nd_reported_ms = clock_mono_ms();
	ds_reg_unlock(d, nd);
}

/* ---- judging ---- */

static uint64_t liveness_later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static bool unserving(const struct ds_reg *d, const struct ds_reg_node *nd, uint64_t now)
{
	return nd->nd_reported_ms &&
	       now - liveness_later(liveness_later(nd->nd_nfs_ms, nd->nd_reported_ms),
				    atomic_load(&d->d_shut_ms)) >=
		       d->d_opts.do_dead_ms;
}

/* The caller holds d_lock. Returns why the server is dead, or NULL. */
static const char *verdict(const struct ds_reg *d, const struct ds_reg_node *nd, uint64_t now)
{
	const struct ds_reg_opts *o = &d->d_opts;
	uint64_t shut = atomic_load(&d->d_shut_ms), heard = ds_reg_silent_from(d, nd),
		 lost = liveness_later(nd->nd_lost_ms ? nd->nd_lost_ms : d->d_start_ms, shut),
		 started = liveness_later(d->d_start_ms, shut) + START_MS;

	/* Our own pause is not a server's silence: what came meanwhile is read first. */
	if (d->d_woke_ms && now - d->d_woke_ms < WOKE_MS)
		return NULL;
	if (now - heard >= o->do_lease_ms)
		return nd->nd_gen ? "it does not answer requests for its free space"
				  : "its lease has run out";
	/* Both sides may have been started just now, and a join may be in progress. */
	if (!nd->nd_heard_ms && now < started)
		return NULL;
	/* An NFSv3 data server has no connection; it counts as lost when a request to it fails. */
	if (!nd->nd_link && nd->nd_refused_ms >= lost && nd->nd_refused_ms &&
	    now - lost >= o->do_refused_ms)
		return "its connection is lost, and its port refuses new ones";
	if (nd->nd_silent &&
	    now - liveness_later(nd->nd_heard_ms ? heard : started, nd->nd_said_ms) >=
		    o->do_dead_ms)
		return "it does not answer";
	/* A client cannot reach the server, and neither can we, although its heartbeats come. */
	if (unserving(d, nd, now))
		return "its NFS port does not answer";
	return NULL;
}

static void declare_dead(struct ds_reg *d, uint32_t id, const struct ds_reg_server *sv,
			 const char *why)
{
	log_warn("data server %u (%s): declared dead: %s", id, sv->sv_name, why);
	journal_add(EV_DS_DEAD, sv->sv_name, 0, "%s", why);
	ds_reg_data_end(d, id);
	if (d->d_dead)
		d->d_dead(d->d_dead_arg, id, sv->sv_uuid);
}

static bool ask_now(struct ds_reg_node *nd, uint64_t now)
{
	if (nd->nd_asking || (nd->nd_asked_ms && now - nd->nd_asked_ms < ASK_EVERY_MS))
		return false;
	nd->nd_asking = true;
	nd->nd_asked_ms = now;
	return true;
}

/* The caller holds d_lock. A dead server lives again when it joins, after it got the orders it
 * missed, or when its NFS port answers again. */
static void look_dead(struct ds_reg_node *nd, uint64_t now, bool *wants)
{
	if (!nd->nd_unserving)
		return;
	if (nd->nd_reported_ms) {
		*wants = ask_now(nd, now);
		return;
	}
	nd->nd_unserving = false;
	if (nd->nd_joined)
		ds_reg_set_state(nd, DS_REG_ALIVE);
}

/* The caller holds d_lock. *wants: the server is to be asked. */
static const char *liveness_look(struct ds_reg *d, struct ds_reg_node *nd, uint64_t now,
				 bool *wants)
{
	uint64_t heard = ds_reg_silent_from(d, nd);
	bool well = nd->nd_joined && !nd->nd_reported_ms &&
		    (nd->nd_gen ? !nd->nd_gen->gn_failed
				: nd->nd_link && now - heard < d->d_opts.do_suspect_ms);
	const char *why;

	*wants = false;
	if (nd->nd_terms.dt_barred) {
		why = nd->nd_barred ? "the administrator killed it" : NULL;
		nd->nd_barred = false;
		return why;
	}
	if (nd->nd_state == DS_REG_DEAD) {
		look_dead(nd, now, wants);
		return NULL;
	}
	if (well) {
		ds_reg_set_state(nd, DS_REG_ALIVE);
		return NULL;
	}
	ds_reg_set_state(nd, DS_REG_SUSPECT);
	why = verdict(d, nd, now);
	if (why) {
		ds_reg_set_state(nd, DS_REG_DEAD);
		nd->nd_unserving = unserving(d, nd, now);
		/* The death explains the client's report, which does not count when the server is
		 * back. */
		if (!nd->nd_unserving)
			nd->nd_reported_ms = 0;
		/* The server gets the orders that it missed when it joins, so it must join again. A
		 * server that is joining now goes on. */
		if (nd->nd_link && nd->nd_joined && !nd->nd_unserving)
			ds_reg_link_close(d, nd->nd_link->lk_loop, nd->nd_link->lk_id);
		if (nd->nd_gen && !nd->nd_unserving) {
			nd->nd_joined = false;
			atomic_store(&nd->nd_gen->gn_rejoin, true);
		}
		return why;
	}
	*wants = ask_now(nd, now);
	return NULL;
}

static void liveness_tell(struct ds_reg *d, uint32_t id, const struct ds_reg_server *sv,
			  enum ds_reg_state was)
{
	if (sv->sv_state == DS_REG_ALIVE)
		log_info("data server %u (%s): alive", id, sv->sv_name);
	if (sv->sv_state == DS_REG_ALIVE && d->d_told_dead[id])
		journal_add(EV_DS_ALIVE, sv->sv_name, 0, "it answers again");
	if (sv->sv_state == DS_REG_SUSPECT && was == DS_REG_ALIVE && d->d_told_alive[id])
		journal_add(EV_DS_SUSPECT, sv->sv_name, 0,
			    "no heartbeat; checking whether it is alive");
	d->d_told_alive[id] |= sv->sv_state == DS_REG_ALIVE;
	d->d_told_dead[id] =
		sv->sv_state != DS_REG_ALIVE && (d->d_told_dead[id] || sv->sv_state >= DS_REG_DEAD);
}

/* True: the store is not held, or was not for a part of the time since the last look. */
static bool store_was_shut(struct ds_reg *d)
{
	bool live = store_lease_live(d->d_opts.do_store);
	uint32_t opened = store_lease_opened(d->d_opts.do_store);
	bool was = !live || opened != d->d_store_opened;

	d->d_store_opened = opened;
	return was;
}

void ds_reg_watch(struct loop_timer *t)
{
	struct ds_reg *d = caa_container_of(t, struct ds_reg, d_timer);
	struct ds_reg_server *sv = malloc(sizeof(*sv));
	uint64_t fired = clock_mono_ms();

	if (store_was_shut(d)) {
		atomic_store(&d->d_shut_ms, fired);
		d->d_woke_ms = fired;
	}
	if (d->d_watched_ms && fired - d->d_watched_ms > WATCH_MS + PAUSE_MS)
		d->d_woke_ms = fired;
	d->d_watched_ms = fired;
	ds_reg_data_latencies(d);
	ds_reg_bars_look(d);
	ds_reg_meets_look(d);
	for (uint32_t id = 1; sv && id <= DS_REG_MAX; id++) {
		enum ds_reg_state was;
		struct ds_reg_node *nd;
		const char *why;
		bool wants;

		if (!ds_reg_known(d, id))
			continue;
		pthread_mutex_lock(&d->d_lock);
		nd = d->d_node[id];
		if (!nd) {
			pthread_mutex_unlock(&d->d_lock);
			continue;
		}
		was = nd->nd_told;
		why = liveness_look(d, nd, clock_mono_ms(), &wants);
		nd->nd_told = nd->nd_state;
		*sv = nd->nd_sv;
		sv->sv_state = (uint8_t)nd->nd_state;
		ds_reg_unlock(d, nd);
		ds_reg_key_look(d, id);
		if (why)
			declare_dead(d, id, sv, why);
		if (why)
			d->d_told_dead[id] = true;
		else if (sv->sv_state != was)
			liveness_tell(d, id, sv, was);
		if (wants)
			liveness_ask(d, id, sv->sv_nfs3);
	}
	free(sv);
	loop_timer_start(d->d_opts.do_loops[0], t, WATCH_MS);
}
