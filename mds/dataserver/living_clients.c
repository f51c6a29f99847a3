/* SPDX-License-Identifier: Apache-2.0 */
/*
 * living_clients.c - reports to data servers which clients live, so that they need not keep a row
 * for each client that was evicted (docs/fencing.md, "What a data server keeps of bars").
 *
 * A report describes one moment and stays true: client numbers rise and are never given again, so a
 * number that was given and belongs to no client will never belong to one. So a report may come
 * late, twice, in part or not at all. The metadata server makes a new report for all servers when
 * as many clients were revoked since the last one as lived then, and FEW more. A server that has
 * joined gets the current report.
 */
#include "base/clock.h"
#include "base/log.h"
#include "mds/dataserver/ds_reg_int.h"
#include <errno.h>
#include <stdlib.h>
#include <urcu/compiler.h>

#define FEW	 64 /* revocations */
#define AGAIN_MS 10000
#define TELL_MS	 10000

/* The clients that lived at one moment. Used on the first loop. */
struct ds_reg_living {
	/* the table's reference, and one for each server that is getting the report */
	unsigned dl_refs;
	/* dl_number rises with each report. dl_bars is d_bars from before the moment. */
	uint64_t dl_number, dl_bars;
	uint32_t *dl_client; /* in rising order */
	size_t dl_n;
	uint32_t dl_next; /* the first client number not given yet */
};

struct tell {
	struct ds_reg_ctl te_ctl;
	struct ds_reg *te_dsc;
	struct ds_reg_living *te_living;
	uint32_t te_id, te_join;
	size_t te_at; /* index in dl_client */
	bool te_taken;
};

void ds_reg_set_living_handler(struct ds_reg *d,
			       int (*fn)(void *arg, uint32_t **clients, size_t *n, uint32_t *next),
			       void *arg)
{
	d->d_living_fn = fn;
	d->d_living_arg = arg;
}

void ds_reg_note_bar(struct ds_reg *d)
{
	atomic_fetch_add_explicit(&d->d_bars, 1, memory_order_relaxed);
}

/* ---- the living clients ---- */

static void living_put(struct ds_reg_living *dl)
{
	if (!dl || --dl->dl_refs)
		return;
	free(dl->dl_client);
	free(dl);
}

void ds_reg_bars_close(struct ds_reg *d)
{
	living_put(d->d_living);
}

static int rising(const void *a, const void *b)
{
	const uint32_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* Sorts the numbers and removes duplicates. Returns how many remain. */
static size_t in_order(uint32_t *c, size_t n)
{
	size_t to = 0;

	if (n)
		qsort(c, n, sizeof(*c), rising);
	for (size_t i = 0; i < n; i++)
		if (!to || c[i] != c[to - 1])
			c[to++] = c[i];
	return to;
}

static struct ds_reg_living *living_now(struct ds_reg *d)
{
	struct ds_reg_living *dl = calloc(1, sizeof(*dl));
	int err = -ENOMEM;

	if (dl) {
		dl->dl_bars = atomic_load_explicit(&d->d_bars, memory_order_relaxed);
		err = d->d_living_fn(d->d_living_arg, &dl->dl_client, &dl->dl_n, &dl->dl_next);
	}
	if (err) {
		log_warn("cannot send the data servers the list of live clients: %s; retrying",
			 strerror(-err));
		free(dl);
		return NULL;
	}
	dl->dl_n = in_order(dl->dl_client, dl->dl_n);
	/* Remove clients that came after the moment. */
	while (dl->dl_n && dl->dl_client[dl->dl_n - 1] >= dl->dl_next)
		dl->dl_n--;
	dl->dl_refs = 1;
	dl->dl_number = d->d_living ? d->d_living->dl_number + 1 : 1;
	return dl;
}

/* ---- the report to one server ---- */

static void tell_next(struct tell *te);

static void living_clients_tell_end(struct tell *te, bool all)
{
	struct ds_reg *d = te->te_dsc;
	struct ds_reg_node *nd;

	pthread_mutex_lock(&d->d_lock);
	nd = d->d_node[te->te_id];
	if (nd) {
		nd->nd_telling = false;
		nd->nd_tell_ms = all ? 0 : clock_mono_ms();
	}
	if (nd && all && nd->nd_join == te->te_join)
		nd->nd_living = te->te_living->dl_number;
	ds_reg_unlock(d, nd);
	living_put(te->te_living);
	free(te);
}

/* Runs on the connection's loop. */
static void tell_take(struct ds_reg_ctl *c, const ctl_response *res)
{
	caa_container_of(c, struct tell, te_ctl)->te_taken = res->status == CTL_OK;
}

static void tell_done(struct ds_reg_ctl *c, int err)
{
	struct tell *te = caa_container_of(c, struct tell, te_ctl);
	const ctl_dead_args *a = &c->dc_req.ctl_request_u.dead;

	te->te_at += a->living.living_len;
	if (err || !te->te_taken || a->last + 1 == te->te_living->dl_next)
		living_clients_tell_end(te, !err && te->te_taken);
	else
		tell_next(te);
}

/* Sends as many living clients as one message holds, and the range of numbers up to the last of
 * them. The last message covers all numbers that were given. */
static void tell_next(struct tell *te)
{
	ctl_dead_args *a = &te->te_ctl.dc_req.ctl_request_u.dead;
	const struct ds_reg_living *dl = te->te_living;
	size_t left = dl->dl_n - te->te_at;

	a->first = a->last + 1;
	/* There is no array where no client lives. */
	a->living.living_val = left ? dl->dl_client + te->te_at : NULL;
	a->living.living_len = left > CTL_LIVING_MAX ? CTL_LIVING_MAX : (unsigned)left;
	a->last = left > CTL_LIVING_MAX ? dl->dl_client[te->te_at + CTL_LIVING_MAX - 1]
					: dl->dl_next - 1;
	te->te_taken = false;
	ds_reg_call(te->te_dsc, te->te_id, &te->te_ctl, TELL_MS);
}

/* The caller holds d_lock. */
static bool living_clients_wanted(const struct ds_reg_node *nd, uint64_t number, uint64_t now)
{
	return nd && !nd->nd_gen && nd->nd_joined && nd->nd_link && nd->nd_takes_bars &&
	       !nd->nd_telling && nd->nd_living != number &&
	       (!nd->nd_tell_ms || now - nd->nd_tell_ms >= AGAIN_MS);
}

static void tell(struct ds_reg *d, uint32_t id)
{
	struct ds_reg_living *dl = d->d_living;
	const struct ns_super *su = ns_super(d->d_ns);
	struct tell *te = NULL;
	struct ds_reg_node *nd;

	pthread_mutex_lock(&d->d_lock);
	nd = d->d_node[id];
	if (living_clients_wanted(nd, dl->dl_number, clock_mono_ms()) &&
	    (te = calloc(1, sizeof(*te)))) {
		nd->nd_telling = true;
		te->te_join = nd->nd_join;
	}
	ds_reg_unlock(d, nd);
	if (!te)
		return;
	dl->dl_refs++;
	te->te_dsc = d;
	te->te_living = dl;
	te->te_id = id;
	te->te_ctl.dc_req.op = CTL_OP_DEAD;
	te->te_ctl.dc_req.ctl_request_u.dead.instance_epoch = su->su_boot;
	te->te_ctl.dc_req.ctl_request_u.dead.fs = su->su_fs;
	te->te_ctl.dc_take = tell_take;
	te->te_ctl.dc_done = tell_done;
	tell_next(te);
}

/* ---- the report to all servers ---- */

static bool any_wants(struct ds_reg *d, uint64_t number)
{
	uint64_t now = clock_mono_ms();
	bool any = false;

	pthread_mutex_lock(&d->d_lock);
	for (uint32_t id = 1; id <= DS_REG_MAX && !any; id++)
		any = living_clients_wanted(d->d_node[id], number, now);
	pthread_mutex_unlock(&d->d_lock);
	return any;
}

void ds_reg_bars_look(struct ds_reg *d)
{
	uint64_t bars = atomic_load_explicit(&d->d_bars, memory_order_relaxed);
	struct ds_reg_living *dl = d->d_living;
	bool old = !dl || bars - dl->dl_bars >= FEW + dl->dl_n;

	if (!d->d_living_fn || !any_wants(d, old ? UINT64_MAX : dl->dl_number))
		return;
	if (old) {
		dl = living_now(d);
		if (!dl)
			return;
		living_put(d->d_living);
		d->d_living = dl;
	}
	if (dl->dl_next <= 1)
		return; /* no number has been given yet */
	for (uint32_t id = 1; id <= DS_REG_MAX; id++)
		if (ds_reg_known(d, id))
			tell(d, id);
}
