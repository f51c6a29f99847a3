/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate.c - detects at the start that this store was restored from an older copy: data servers saw a
 * later state of it (docs/recovery.md).
 *
 * Each join compares. The metadata server serves nothing before one of the servers that joined in
 * the boot before this one has compared well. A server that saw a later state keeps the gate shut.
 * When such a server comes only later, the process logs its name and ends, because it would give
 * out again what was given out before.
 */
#include "base/clock.h"
#include "base/log.h"
#include "mds/dataserver/ds_reg_int.h"
#include "mds/journal/event_journal.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <urcu/compiler.h>

/*
 * ---- the numbers of joins ----
 *
 * Each join of a server has a number, which rises within a boot. This store records the number
 * before the join is answered, and the server stores it before its lease begins. This store also
 * records which join the server's store is known to have: the one that the server reports when it
 * joins, and the last one as soon as a heartbeat comes after it. So even if either side crashes
 * between these steps, the number that the server reports is never below the known one and never
 * above the recorded one, unless one of the stores was restored.
 */

static bool earlier(uint64_t boot, uint32_t joins, uint64_t than_boot, uint32_t than_joins)
{
	return boot < than_boot || (boot == than_boot && joins < than_joins);
}

bool ds_reg_gate_unknown(const struct ds_reg_terms *was, const struct ds_reg_told *to)
{
	/* A row without a join belongs to a server that is new or was forgotten. A join without a
	 * number was made by a release that may not have kept a boot either. */
	return was->dt_boot && to->to_counts && to->to_kept_joins &&
	       earlier(was->dt_boot, was->dt_joins, to->to_kept_boot, to->to_kept_joins);
}

void ds_reg_gate_note(struct ds_reg_terms *dt, const struct ds_reg_terms *was,
		      const struct ds_reg_told *to, uint64_t boot)
{
	uint32_t joins = was && was->dt_boot == boot ? was->dt_joins : 0;

	/* A forgotten server still has its number. A server without a number now may still store
	 * the one before. */
	if (to->to_counts && to->to_kept_boot == boot && to->to_kept_joins > joins)
		joins = to->to_kept_joins;
	dt->dt_boot = boot;
	dt->dt_joins = joins + (to->to_counts && joins < UINT32_MAX);
	dt->dt_had_boot = to->to_counts ? to->to_kept_boot : 0;
	dt->dt_had_joins = to->to_counts ? to->to_kept_joins : 0;
	dt->dt_start = to->to_start;
	dt->dt_start_id = to->to_start_id;
	dt->dt_order = to->to_order;
}

bool ds_reg_gate_proven(struct ds_reg_terms *dt, uint64_t boot, uint32_t joins)
{
	if (dt->dt_barred || dt->dt_boot != boot || dt->dt_joins != joins ||
	    !earlier(dt->dt_had_boot, dt->dt_had_joins, boot, joins))
		return false;
	dt->dt_had_boot = boot;
	dt->dt_had_joins = joins;
	return true;
}

struct proof {
	struct kv_op pf_op;
	struct ds_reg *pf_dsc;
	uint8_t pf_uuid[16];
	uint64_t pf_boot;
	uint32_t pf_id, pf_joins;
};

static int proof_run(struct kv_op *op, struct kv_txn *t)
{
	struct proof *pf = caa_container_of(op, struct proof, pf_op);
	uint8_t row[DS_REG_ROW_MAX];
	struct ds_reg_server sv;
	struct ds_reg_terms dt;
	struct kv_slice val;
	int err = ns_row_get(t, NS_T_DS, pf->pf_uuid, 16, &val);

	if (!err)
		err = ds_reg_row_decode((struct kv_slice){pf->pf_uuid, 16}, val, &sv, &dt);
	if (err || !ds_reg_gate_proven(&dt, pf->pf_boot, pf->pf_joins))
		return err == -ENOENT ? 0 : err;
	return ns_row_put(t, NS_T_DS, pf->pf_uuid, 16, row, ds_reg_row_encode(&sv, &dt, row));
}

static void proof_done(struct kv_op *op, int err)
{
	struct proof *pf = caa_container_of(op, struct proof, pf_op);
	struct ds_reg *d = pf->pf_dsc;
	struct ds_reg_node *nd;

	pthread_mutex_lock(&d->d_lock);
	nd = d->d_node[pf->pf_id];
	/* The server's next heartbeat tries again, unless it has joined once more. */
	if (err && nd && nd->nd_terms.dt_joins == pf->pf_joins)
		nd->nd_unproven = pf->pf_joins;
	if (!err && nd)
		log_debug("data server %" PRIu32 " (%s): its store has join %" PRIu32, pf->pf_id,
			  nd->nd_sv.sv_name, pf->pf_joins);
	pthread_mutex_unlock(&d->d_lock);
	free(pf);
}

struct kv_op *ds_reg_gate_prove(struct ds_reg *d, struct ds_reg_node *nd)
{
	struct proof *pf = nd->nd_unproven ? calloc(1, sizeof(*pf)) : NULL;

	if (!pf)
		return NULL;
	pf->pf_dsc = d;
	pf->pf_id = nd->nd_sv.sv_id;
	memcpy(pf->pf_uuid, nd->nd_sv.sv_uuid, 16);
	pf->pf_boot = nd->nd_terms.dt_boot;
	pf->pf_joins = nd->nd_unproven;
	pf->pf_op.o_run = proof_run;
	pf->pf_op.o_done = proof_done;
	nd->nd_unproven = 0;
	return &pf->pf_op;
}

/* ---- comparing this store ---- */

int ds_reg_gate_compare(struct ds_reg *d, struct kv_txn *t, const struct ds_reg_terms *was,
			const struct ds_reg_told *to, char why[128])
{
	uint64_t order = to->to_order > CTL_ORDER_STEP ? to->to_order - CTL_ORDER_STEP : 0;
	int err = ns_boot_check(d->d_ns, t, to->to_boot, to->to_boot_id);

	*why = 0;
	if (err == -EOVERFLOW)
		snprintf(why, 128, "it joined boot %" PRIu64, to->to_boot);
	else if (err == -ESTALE)
		snprintf(why, 128, "the boot %" PRIu64 " that it joined was another one",
			 to->to_boot);
	else if (!err && order && (err = ns_order_check(t, order)) == -EOVERFLOW)
		snprintf(why, 128, "it has done order %" PRIu64, order);
	else if (!err && was && ds_reg_gate_unknown(was, to) &&
		 ns_boot_here(d->d_ns, to->to_kept_boot))
		snprintf(why, 128,
			 "it has had join %" PRIu32 " of boot %" PRIu64
			 ", which this store does not have",
			 to->to_kept_joins, to->to_kept_boot);
	return *why ? 1 : err;
}

/* The caller holds d_lock. True for a server whose report counts: it may join, and is not an NFSv3
 * data server. */
static bool gate_counts(const struct ds_reg_node *nd)
{
	return nd && !nd->nd_gen && !nd->nd_terms.dt_barred;
}

/* The caller holds d_lock. True when one of the servers of the latest boot has compared and none of
 * them is ahead, or when there is no server. all: each server has to report. */
static bool gate_passed(const struct ds_reg *d, bool all)
{
	unsigned n = 0, told = 0;
	uint64_t last = 0;

	for (unsigned id = 1; id <= DS_REG_MAX; id++)
		if (gate_counts(d->d_node[id]) && d->d_node[id]->nd_last_boot > last)
			last = d->d_node[id]->nd_last_boot;
	for (unsigned id = 1; id <= DS_REG_MAX; id++) {
		const struct ds_reg_node *nd = d->d_node[id];

		if (!gate_counts(nd) || (!all && nd->nd_last_boot < last))
			continue;
		if (nd->nd_ahead && !all)
			return false;
		n++;
		told += nd->nd_compared;
	}
	return !n || (all ? told == n : told > 0);
}

static bool gate_ahead(const struct ds_reg *d)
{
	bool some = *d->d_ahead != 0;

	for (unsigned id = 1; id <= DS_REG_MAX && !some; id++)
		some = gate_counts(d->d_node[id]) && d->d_node[id]->nd_ahead;
	return some;
}

static void gate_serve(struct loop_msg *m)
{
	struct ds_reg *d = caa_container_of(m, struct ds_reg, d_serve_msg);

	d->d_serve(d->d_serve_arg);
}

void ds_reg_gate_look(struct ds_reg *d)
{
	bool restore = d->d_opts.do_restore;

	if (!d->d_serve)
		/* without a handler this process serves no client */
		atomic_store(&d->d_open, true);
	if (atomic_load(&d->d_open) || (!restore && gate_ahead(d)) || !gate_passed(d, restore))
		return;
	atomic_store(&d->d_open, true);
	d->d_serve_msg.m_run = gate_serve;
	loop_post(d->d_opts.do_loops[0], &d->d_serve_msg);
}

/* Ends the process without cleaning up, because another store is ahead of this one. */
static void gate_end(const char *name, const char *why, uint64_t boot)
{
	log_error("data server %s is ahead of this store: %s, and this is boot %" PRIu64
		  ": the store was restored from an older copy; stopping. Start with --restored; "
		  "or, if the data server is wrong, use weft ds kill and weft ds forget",
		  name, why, boot);
	_exit(1);
}

void ds_reg_gate_reported(struct ds_reg *d, struct ds_reg_node *nd, const char *name,
			  const struct ds_reg_told *to, const char *why)
{
	uint64_t boot = ns_super(d->d_ns)->su_boot;

	if (to->to_boot > d->d_boot_seen)
		d->d_boot_seen = to->to_boot;
	if (d->d_opts.do_restore) {
		if (nd)
			nd->nd_compared = true;
	} else if (!why) {
		if (nd) {
			nd->nd_compared = true;
			nd->nd_ahead = false;
		}
	} else if (atomic_load(&d->d_open)) {
		gate_end(name, why, boot);
	} else if (nd ? !nd->nd_ahead : !*d->d_ahead) {
		if (nd)
			nd->nd_ahead = true;
		else
			snprintf(d->d_ahead, sizeof(d->d_ahead), "data server %s: %s", name, why);
		log_error("data server %s is ahead of this store: %s, and this is boot %" PRIu64
			  ": the store was restored from an older copy; clients are not served. "
			  "Start with --restored; or, if the data server is wrong, use weft ds "
			  "kill and weft ds forget",
			  name, why, boot);
	}
	ds_reg_gate_look(d);
}

void ds_reg_set_serve_handler(struct ds_reg *d, void (*fn)(void *arg), void *arg)
{
	d->d_serve = fn;
	d->d_serve_arg = arg;
}

bool ds_reg_may_serve(struct ds_reg *d, char *why, size_t size)
{
	bool open;

	pthread_mutex_lock(&d->d_lock);
	open = atomic_load(&d->d_open);
	*why = 0;
	if (!open && *d->d_ahead)
		snprintf(why, size,
			 "the store was restored from an older copy (%s): start with --restored",
			 d->d_ahead);
	for (unsigned id = 1; !open && !*why && id <= DS_REG_MAX; id++)
		if (gate_counts(d->d_node[id]) && d->d_node[id]->nd_ahead)
			snprintf(why, size,
				 "the store was restored from an older copy (data server %s has "
				 "seen a later state): start with --restored",
				 d->d_node[id]->nd_sv.sv_name);
	if (!open && !*why)
		snprintf(why, size,
			 d->d_opts.do_restore
				 ? "restoring the store: waiting until every data server has "
				   "reported what it saw, or is killed (weft ds kill)"
				 : "waiting for a data server to confirm that the store is up to "
				   "date");
	pthread_mutex_unlock(&d->d_lock);
	return open;
}

uint64_t ds_reg_boot_seen(struct ds_reg *d)
{
	uint64_t boot;

	pthread_mutex_lock(&d->d_lock);
	boot = d->d_boot_seen;
	pthread_mutex_unlock(&d->d_lock);
	return boot;
}

/* ---- a data server's store that was restored, or that two processes use ---- */

const char *ds_reg_gate_behind(const struct ds_reg_terms *was, const struct ds_reg_told *to)
{
	/* An older release (no to_tells) reports an order_high that a full disk and a crash can set
	 * back, so that it is not compared. */
	if (to->to_tells && to->to_counts &&
	    earlier(to->to_kept_boot, to->to_kept_joins, was->dt_had_boot, was->dt_had_joins))
		return "it joined again after this state of its store";
	if (!to->to_tells || !was->dt_start)
		return NULL;
	if (to->to_order < was->dt_order)
		return "it has seen fewer orders than at its last join";
	if (to->to_start < was->dt_start)
		return "its store was opened more often at its last join";
	if (to->to_start == was->dt_start && to->to_start_id != was->dt_start_id)
		return "another start of its store had this number";
	return NULL;
}

/*
 * While the joined process sends heartbeats, a second one with the same store waits. After a
 * restart the first has closed its connection, or its heartbeats end soon. When the first sends
 * further heartbeats after the second has come, both live.
 */
enum ds_reg_rival ds_reg_gate_rival(struct ds_reg *d, struct ds_reg_node *nd,
				    const struct ds_reg_link *lk, const struct ds_reg_told *to)
{
	uint64_t now = clock_mono_ms(), heard = nd ? ds_reg_silent_from(d, nd) : 0;

	if (!to->to_tells || !nd || !nd->nd_terms.dt_start ||
	    to->to_start_id == nd->nd_terms.dt_start_id)
		return DS_REG_RIVAL_NONE;
	if (!nd->nd_link || nd->nd_link == lk || !nd->nd_joined ||
	    (now > heard && now - heard >= d->d_opts.do_suspect_ms))
		return nd->nd_two_ms && nd->nd_rival == to->to_start_id ? DS_REG_RIVAL_TWO
									: DS_REG_RIVAL_NONE;
	if (nd->nd_rival != to->to_start_id) {
		nd->nd_rival = to->to_start_id;
		nd->nd_rival_beats = nd->nd_beats;
		nd->nd_two_ms = 0;
	}
	if (nd->nd_beats < nd->nd_rival_beats + 2)
		return DS_REG_RIVAL_WAIT;
	if (!nd->nd_two_ms) {
		log_error("data server %s runs twice: refusing a second process with a copy of its "
			  "store",
			  nd->nd_sv.sv_name);
		journal_add(EV_RESTORED, nd->nd_sv.sv_name, 0,
			    "it runs twice: refused a second process with a copy of its store");
	}
	nd->nd_two_ms = now;
	return DS_REG_RIVAL_TWO;
}

#define TWO_MS 10000u /* after the second process was refused last */

bool ds_reg_health_text(struct ds_reg *d, uint32_t id, char *text, size_t size)
{
	struct ds_reg_node *nd;

	*text = 0;
	pthread_mutex_lock(&d->d_lock);
	nd = id && id <= DS_REG_MAX ? d->d_node[id] : NULL;
	if (nd && nd->nd_terms.dt_barred == DS_REG_WAITING &&
	    nd->nd_terms.dt_why == DS_REG_WHY_RESTORED)
		snprintf(text, size,
			 "its store was restored from an older copy: weft ds admit lets it join, "
			 "and rebuilds its objects from other copies");
	else if (nd && nd->nd_two_ms && clock_mono_ms() - nd->nd_two_ms < TWO_MS)
		snprintf(text, size,
			 "a second process runs with a copy of its store and is refused: stop it");
	else if (nd && nd->nd_ahead && !nd->nd_terms.dt_barred)
		snprintf(text, size,
			 "it has seen a later state of the metadata store: start weft-mds "
			 "--restored");
	pthread_mutex_unlock(&d->d_lock);
	return *text;
}
