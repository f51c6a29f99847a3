/* SPDX-License-Identifier: Apache-2.0 */
/* ds_reg.c - the table of data servers. See ds_reg.h, and ds_reg_int.h for the locking. */
#include "base/clock.h"
#include "base/log.h"
#include "mds/journal/event_journal.h"
#include "base/metrics.h"
#include "mds/dataserver/nfs3ds.h"
#include "proto/rpc_tls.h"
#include <assert.h>
#include <errno.h>
#include <time.h>
#include <urcu/compiler.h>

/* How long a latency that clients reported counts. */
#define DS_REG_LATENCY_MS 300000
#define DS_REG_LATENCY_US 60000000u /* the longest latency that counts */

void ds_reg_note_clone(struct ds_reg *d, const struct ds_reg_server *sv)
{
	if (sv->sv_clone_block > atomic_load(&d->d_clone_block))
		atomic_store(&d->d_clone_block, sv->sv_clone_block);
}

uint32_t ds_reg_clone_block(struct ds_reg *d)
{
	return atomic_load_explicit(&d->d_clone_block, memory_order_relaxed);
}

/* ---- views of nodes ---- */

static struct ds_reg_view *view_of(const struct ds_reg *d, uint32_t id)
{
	return id && id <= DS_REG_MAX ? atomic_load_explicit(&d->d_view[id], memory_order_acquire)
				      : NULL;
}

/* The caller holds d_lock. */
static void least_tls(struct ds_reg *d)
{
	unsigned least = RPC_TLS_CERT;

	for (unsigned id = 1; id <= DS_REG_MAX; id++) {
		const struct ds_reg_node *nd = d->d_node[id];

		if (nd && !nd->nd_terms.dt_barred && nd->nd_sv.sv_tls < least)
			least = nd->nd_sv.sv_tls;
	}
	atomic_store(&d->d_least_tls, (uint8_t)least);
}

static void view_begin(struct ds_reg_view *v, bool *begun)
{
	if (!*begun)
		atomic_store_explicit(&v->vw_seq,
				      atomic_load_explicit(&v->vw_seq, memory_order_relaxed) + 1,
				      memory_order_relaxed);
	*begun = true;
}

/* Publishes a node to the readers. Each word is stored with release and loaded with acquire: a
 * reader that sees a new word also sees that vw_seq was odd before it. */
void ds_reg_publish(struct ds_reg *d, uint32_t id)
{
	struct ds_reg_view *v = view_of(d, id);
	struct ds_reg_node *nd = d->d_node[id];
	uint8_t tls = nd && !nd->nd_terms.dt_barred ? nd->nd_sv.sv_tls : UINT8_MAX;
	bool begun = false;

	if (!v)
		return;
	if (atomic_load_explicit(&v->vw_known, memory_order_relaxed) != (nd != NULL)) {
		view_begin(v, &begun);
		atomic_store_explicit(&v->vw_known, nd != NULL, memory_order_release);
	}
	if (nd) {
		nd->nd_may_join = !nd->nd_terms.dt_barred;
		nd->nd_draining = nd->nd_terms.dt_draining;
	}
	for (size_t i = 0; nd && i < DS_REG_NODE_WORDS; i++) {
		uint64_t w;

		memcpy(&w, (const uint8_t *)nd + i * sizeof(w), sizeof(w));
		if (atomic_load_explicit(&v->vw_word[i], memory_order_relaxed) == w)
			continue;
		view_begin(v, &begun);
		atomic_store_explicit(&v->vw_word[i], w, memory_order_release);
	}
	if (begun)
		atomic_store_explicit(&v->vw_seq,
				      atomic_load_explicit(&v->vw_seq, memory_order_relaxed) + 1,
				      memory_order_release);
	if (v->vw_tls != tls) {
		v->vw_tls = tls;
		least_tls(d);
	}
}

void ds_reg_unlock(struct ds_reg *d, const struct ds_reg_node *nd)
{
	if (nd)
		ds_reg_publish(d, nd->nd_sv.sv_id);
	pthread_mutex_unlock(&d->d_lock);
}

#define VIEW_TRIES  64 /* a writer takes no longer than this, unless it was put to sleep */
#define VIEW_HEAD   offsetof(struct ds_reg_node, nd_sv)
#define VIEW_SERVER offsetof(struct ds_reg_node, nd_terms)
#define VIEW_ALL    sizeof(struct ds_reg_node)

/* Copies the first bytes of a node as they were at one moment. False: there is no such node.
 * Readers must not follow the node's pointers. */
static bool view_read(struct ds_reg *d, uint32_t id, struct ds_reg_node *out, size_t bytes)
{
	const struct ds_reg_view *v = view_of(d, id);
	bool known;

	for (unsigned n = 0; v && n < VIEW_TRIES; n++) {
		uint32_t seq = atomic_load_explicit(&v->vw_seq, memory_order_acquire);

		known = atomic_load_explicit(&v->vw_known, memory_order_acquire);
		for (size_t i = 0; known && i < bytes / sizeof(uint64_t); i++) {
			uint64_t w = atomic_load_explicit(&v->vw_word[i], memory_order_acquire);

			memcpy((uint8_t *)out + i * sizeof(w), &w, sizeof(w));
		}
		if (!(seq & 1) && seq == atomic_load_explicit(&v->vw_seq, memory_order_relaxed))
			return known;
	}
	if (!v)
		return false;
	pthread_mutex_lock(&d->d_lock);
	known = d->d_node[id] != NULL;
	if (known)
		memcpy(out, d->d_node[id], bytes);
	pthread_mutex_unlock(&d->d_lock);
	return known;
}

/* Returns the id in the n-th place where a uuid's id may be; 0: there are no more places. */
static uint32_t by_uuid(const struct ds_reg *d, const uint8_t uuid[16], unsigned n)
{
	return atomic_load_explicit(&d->d_by_uuid[(hash_bytes(uuid, 16) + n) % DS_REG_BY_UUID],
				    memory_order_acquire);
}

struct ds_reg_node *ds_reg_find_uuid(struct ds_reg *d, const uint8_t uuid[16])
{
	uint32_t id;

	for (unsigned n = 0; (id = by_uuid(d, uuid, n)); n++)
		if (d->d_node[id] && !memcmp(d->d_node[id]->nd_sv.sv_uuid, uuid, 16))
			return d->d_node[id];
	return NULL;
}

int ds_reg_node_add(struct ds_reg *d, uint32_t id, struct ds_reg_node *nd)
{
	struct ds_reg_view *v = aligned_alloc(64, sizeof(*v));
	const uint8_t *uuid = nd->nd_sv.sv_uuid;
	unsigned n = 0;

	if (!v)
		return -ENOMEM;
	memset(v, 0, sizeof(*v));
	v->vw_tls = UINT8_MAX;
	while (by_uuid(d, uuid, n))
		n++;
	d->d_node[id] = nd;
	atomic_fetch_add(&d->d_count, 1);
	assert(!view_of(d, id)); /* ids are never used again */
	atomic_store_explicit(&d->d_view[id], v, memory_order_release);
	ds_reg_publish(d, id);
	atomic_store_explicit(&d->d_by_uuid[(hash_bytes(uuid, 16) + n) % DS_REG_BY_UUID],
			      (uint16_t)id, memory_order_release);
	return 0;
}

void ds_reg_node_del(struct ds_reg *d, uint32_t id)
{
	struct ds_reg_node *nd = d->d_node[id];

	d->d_node[id] = NULL;
	atomic_fetch_sub(&d->d_count, 1);
	ds_reg_publish(d, id);
	free(nd);
}

struct gen *ds_reg_nfs3_of(struct ds_reg *d, uint32_t id)
{
	struct ds_reg_node nd;

	return view_read(d, id, &nd, VIEW_HEAD) ? nd.nd_gen : NULL;
}

uint64_t ds_reg_silent_from(const struct ds_reg *d, const struct ds_reg_node *nd)
{
	uint64_t heard = nd->nd_heard_ms ? nd->nd_heard_ms : d->d_start_ms,
		 shut = atomic_load(&d->d_shut_ms);

	return heard > shut ? heard : shut;
}

static bool alive_at(const struct ds_reg *d, const struct ds_reg_node *nd, uint64_t now)
{
	uint64_t from = ds_reg_silent_from(d, nd);

	return nd->nd_joined && (nd->nd_link || nd->nd_gen) && nd->nd_state < DS_REG_DEAD &&
	       (now < from || now - from < d->d_opts.do_lease_ms);
}

bool ds_reg_node_alive(const struct ds_reg *d, const struct ds_reg_node *nd)
{
	return alive_at(d, nd, clock_mono_ms());
}

static void node_copy(const struct ds_reg *d, const struct ds_reg_node *nd,
		      struct ds_reg_server *out)
{
	*out = nd->nd_sv;
	out->sv_alive = ds_reg_node_alive(d, nd);
	out->sv_state = (uint8_t)nd->nd_state;
	out->sv_since_s = nd->nd_since_s;
}

/* ---- readers ---- */

/* These functions read the clock after the view, because a heartbeat may come between the two. */
bool ds_reg_get(struct ds_reg *d, uint32_t id, struct ds_reg_server *out)
{
	struct ds_reg_node nd;

	if (!view_read(d, id, &nd, VIEW_SERVER))
		return false;
	node_copy(d, &nd, out);
	return true;
}

bool ds_reg_get_uuid(struct ds_reg *d, const uint8_t uuid[16], struct ds_reg_server *out)
{
	uint32_t id;

	for (unsigned n = 0; (id = by_uuid(d, uuid, n)); n++)
		if (ds_reg_get(d, id, out) && !memcmp(out->sv_uuid, uuid, 16))
			return true;
	return false;
}

uint32_t ds_reg_number(struct ds_reg *d, const uint8_t uuid[16])
{
	struct ds_reg_server sv;

	return ds_reg_get_uuid(d, uuid, &sv) ? sv.sv_id : 0;
}

unsigned ds_reg_list(struct ds_reg *d, struct ds_reg_server *out, unsigned max)
{
	unsigned n = 0;

	pthread_mutex_lock(&d->d_lock);
	for (unsigned id = 1; id <= DS_REG_MAX && n < max; id++)
		if (d->d_node[id])
			node_copy(d, d->d_node[id], &out[n++]);
	pthread_mutex_unlock(&d->d_lock);
	return n;
}

unsigned ds_reg_alive(struct ds_reg *d, uint32_t *ids, uint64_t *available, unsigned max)
{
	unsigned n = 0, seen = 0;

	pthread_mutex_lock(&d->d_lock);
	for (unsigned id = 1; id <= DS_REG_MAX && n < max && seen < atomic_load(&d->d_count);
	     id++) {
		struct ds_reg_node *nd = d->d_node[id];

		if (!nd)
			continue;
		seen++;
		if (!ds_reg_node_alive(d, nd))
			continue;
		ids[n] = id;
		available[n++] = nd->nd_sv.sv_available;
	}
	pthread_mutex_unlock(&d->d_lock);
	return n;
}

/* Reported latencies count for as long as clients go on reporting. */
static uint32_t latency_at(const struct ds_reg_node *nd, uint64_t now)
{
	return now - nd->nd_latency_ms > DS_REG_LATENCY_MS ? 0 : nd->nd_terms.dt_latency;
}

bool ds_reg_terms(struct ds_reg *d, uint32_t id, struct ds_reg_terms *out)
{
	struct ds_reg_node nd;

	if (!view_read(d, id, &nd, VIEW_ALL))
		return false;
	*out = nd.nd_terms;
	out->dt_latency = latency_at(&nd, clock_mono_ms());
	return true;
}

static void seat_show(struct ds_reg *d, const struct ds_reg_node *nd, uint64_t now,
		      void (*fn)(void *arg, const struct ds_reg_candidate *se), void *arg)
{
	struct ds_reg_candidate se = {
		.can_id = nd->nd_sv.sv_id,
		.can_weight = nd->nd_terms.dt_weight,
		.can_load = nd->nd_terms.dt_load,
		.can_latency = latency_at(nd, now),
		.can_capacity = nd->nd_sv.sv_capacity,
		.can_available = nd->nd_sv.sv_available,
		.can_alive = alive_at(d, nd, now),
		.can_draining = nd->nd_terms.dt_draining,
		.can_generic = nd->nd_gen != NULL,
		.can_ready = !nd->nd_gen || atomic_load(&nd->nd_gen->gn_ready),
		.can_hopeless = nd->nd_gen && atomic_load(&nd->nd_gen->gn_said),
		.can_unheard_ms =
			now > ds_reg_silent_from(d, nd) ? now - ds_reg_silent_from(d, nd) : 0,
		.can_labels = nd->nd_terms.dt_labels};

	fn(arg, &se);
}

void ds_reg_candidates(struct ds_reg *d, void (*fn)(void *arg, const struct ds_reg_candidate *se),
		       void *arg)
{
	unsigned seen = 0;
	uint64_t now;

	pthread_mutex_lock(&d->d_lock);
	now = clock_mono_ms();
	for (unsigned id = 1; id <= DS_REG_MAX && seen < atomic_load(&d->d_count); id++) {
		if (!d->d_node[id])
			continue;
		seen++;
		if (!d->d_node[id]->nd_terms.dt_barred)
			seat_show(d, d->d_node[id], now, fn, arg);
	}
	pthread_mutex_unlock(&d->d_lock);
}

bool ds_reg_candidate(struct ds_reg *d, uint32_t id,
		      void (*fn)(void *arg, const struct ds_reg_candidate *se), void *arg)
{
	struct ds_reg_node nd;

	if (!view_read(d, id, &nd, VIEW_ALL))
		return false;
	seat_show(d, &nd, clock_mono_ms(), fn, arg);
	return true;
}

void ds_reg_fold_latency(struct ds_reg_node *nd, uint64_t us, unsigned n, uint64_t now)
{
	uint32_t was = latency_at(nd, now), mean = (uint32_t)(us / n);

	if (!was) {
		was = mean;
		n--;
	}
	/* After 64 samples the mean from before no longer counts. */
	for (n = n > 64 ? 64 : n; n; n--)
		was = (uint32_t)(((uint64_t)was * 7 + mean + 4) / 8);
	nd->nd_terms.dt_latency = was;
	nd->nd_latency_ms = now;
}

void ds_reg_note_latency(struct ds_reg *d, uint32_t id, uint32_t us)
{
	struct ds_reg_node *nd;

	us = us < 1 ? 1 : us > DS_REG_LATENCY_US ? DS_REG_LATENCY_US : us;
	if (!id || id > DS_REG_MAX || ds_reg_data_latency(d, id, us))
		return;
	pthread_mutex_lock(&d->d_lock);
	nd = d->d_node[id];
	if (nd)
		ds_reg_fold_latency(nd, us, 1, clock_mono_ms());
	ds_reg_unlock(d, nd);
}

uint64_t ds_reg_clock_ms(struct ds_reg *d)
{
	return store_lease_clock_ns(d->d_opts.do_store) / 1000000;
}

uint64_t ds_reg_up_ms(struct ds_reg *d)
{
	return clock_mono_ms() - d->d_start_ms;
}

/* ---- the administrator's commands ---- */

static int word_run(struct kv_op *op, struct kv_txn *t)
{
	struct ds_reg_command *w = caa_container_of(op, struct ds_reg_command, dw_op);
	char both[LABELS_TWO_LEN];
	uint8_t row[DS_REG_ROW_MAX];
	struct ds_reg_server sv;
	struct kv_slice val;
	int err = ns_row_get(t, NS_T_DS, w->dw_uuid, 16, &val);

	if (!err)
		err = ds_reg_row_decode((struct kv_slice){w->dw_uuid, 16}, val, &sv, &w->dw_terms);
	if (err)
		return err;
	if (w->dw_has_weight)
		w->dw_terms.dt_weight = w->dw_weight;
	if (w->dw_has_drain)
		w->dw_terms.dt_draining = w->dw_drain;
	if (w->dw_admit) {
		w->dw_terms.dt_barred = w->dw_terms.dt_why = 0;
		/* accept the server's present numbers, whatever they are */
		w->dw_terms.dt_start = w->dw_terms.dt_start_id = w->dw_terms.dt_order = 0;
		w->dw_terms.dt_had_boot = w->dw_terms.dt_had_joins = 0;
	}
	if (w->dw_kill && w->dw_terms.dt_barred != DS_REG_KILLED) {
		w->dw_terms.dt_barred = DS_REG_KILLED;
		w->dw_terms.dt_why = DS_REG_WHY_NEW;
		w->dw_terms.dt_barred_s = (uint64_t)time(NULL);
	}
	if (w->dw_has_labels) {
		if (labels_merge(w->dw_terms.dt_set, w->dw_labels, both) > LABELS_MAX)
			return -E2BIG;
		strcpy(w->dw_terms.dt_set, both);
	}
	return ns_row_put(t, NS_T_DS, w->dw_uuid, 16, row,
			  ds_reg_row_encode(&sv, &w->dw_terms, row));
}

/* Runs on the committer's thread, so in the order of the commits. What the server reports of itself
 * is left as the node has it. */
static void ds_reg_word_done(struct kv_op *op, int err)
{
	struct ds_reg_command *w = caa_container_of(op, struct ds_reg_command, dw_op);
	struct ds_reg *d = w->dw_dsc;

	pthread_mutex_lock(&d->d_lock);
	if (!err && d->d_node[w->dw_id]) {
		struct ds_reg_terms *dt = &d->d_node[w->dw_id]->nd_terms;

		dt->dt_weight = w->dw_terms.dt_weight;
		dt->dt_draining = w->dw_terms.dt_draining;
		if (dt->dt_barred != w->dw_terms.dt_barred)
			ds_reg_bar(d, d->d_node[w->dw_id], w->dw_terms.dt_barred);
		dt->dt_barred_s = w->dw_terms.dt_barred_s;
		dt->dt_why = w->dw_terms.dt_why;
		if (dt->dt_barred)
			d->d_node[w->dw_id]->nd_since_s =
				dt->dt_barred_s; /* the time that a restart would read */
		strcpy(dt->dt_set, w->dw_terms.dt_set);
		labels_merge(dt->dt_own, dt->dt_set, dt->dt_labels);
	}
	ds_reg_gate_look(d);
	ds_reg_unlock(d, d->d_node[w->dw_id]);
	w->dw_done(w, err);
}

int ds_reg_forget_run(struct kv_op *op, struct kv_txn *t)
{
	struct ds_reg_command *w = caa_container_of(op, struct ds_reg_command, dw_op);
	struct ds_reg_server sv;
	struct kv_slice val;
	int err = ns_row_get(t, NS_T_DS, w->dw_uuid, 16, &val);

	if (!err)
		err = ds_reg_row_decode((struct kv_slice){w->dw_uuid, 16}, val, &sv, &w->dw_terms);
	if (!err && !w->dw_terms.dt_barred)
		err = -EBUSY;
	return err ? err : ns_row_del(t, NS_T_DS, w->dw_uuid, 16);
}

static void ds_reg_forget_done(struct kv_op *op, int err)
{
	struct ds_reg_command *w = caa_container_of(op, struct ds_reg_command, dw_op);
	struct ds_reg *d = w->dw_dsc;

	if (!err) {
		pthread_mutex_lock(&d->d_lock);
		ds_reg_node_del(d, w->dw_id); /* it has no link, because it may not join */
		ds_reg_gate_look(d);
		pthread_mutex_unlock(&d->d_lock);
	}
	w->dw_done(w, err);
}

static void word_submit(struct ds_reg *d, struct ds_reg_command *w,
			int (*run)(struct kv_op *op, struct kv_txn *t),
			void (*done)(struct kv_op *op, int err))
{
	bool found;

	pthread_mutex_lock(&d->d_lock);
	found = w->dw_id && w->dw_id <= DS_REG_MAX && d->d_node[w->dw_id];
	if (found)
		memcpy(w->dw_uuid, d->d_node[w->dw_id]->nd_sv.sv_uuid, 16);
	pthread_mutex_unlock(&d->d_lock);
	if (!found) {
		w->dw_done(w, -ENOENT);
		return;
	}
	w->dw_dsc = d;
	w->dw_op.o_run = run;
	w->dw_op.o_done = done;
	kv_submit(ns_kv(d->d_ns), &w->dw_op);
}

void ds_reg_command_start(struct ds_reg *d, struct ds_reg_command *w)
{
	word_submit(d, w, word_run, ds_reg_word_done);
}

void ds_reg_nfs3_drop(struct ds_reg *d, struct gen *g)
{
	bool left = false;

	pthread_mutex_lock(&d->d_lock);
	ds_reg_node_del(d, g->gn_id);
	g->gn_next = d->d_forgotten;
	d->d_forgotten = g;
	for (unsigned id = 1; id <= DS_REG_MAX && !left; id++)
		left = d->d_node[id] && d->d_node[id]->nd_gen;
	atomic_store(&d->d_generic, left);
	pthread_mutex_unlock(&d->d_lock);
}

void ds_reg_forget(struct ds_reg *d, struct ds_reg_command *w)
{
	struct gen *g = NULL;

	pthread_mutex_lock(&d->d_lock);
	if (w->dw_id && w->dw_id <= DS_REG_MAX && d->d_node[w->dw_id]) {
		g = d->d_node[w->dw_id]->nd_gen;
		memcpy(w->dw_uuid, d->d_node[w->dw_id]->nd_sv.sv_uuid, 16);
	}
	pthread_mutex_unlock(&d->d_lock);
	if (g)
		nfs3ds_forget(g, w);
	else
		word_submit(d, w, ds_reg_forget_run, ds_reg_forget_done);
}

bool ds_reg_draining(struct ds_reg *d, uint32_t id)
{
	struct ds_reg_node nd;

	return view_read(d, id, &nd, VIEW_HEAD) && nd.nd_draining;
}

unsigned ds_reg_drains(struct ds_reg *d, uint32_t *ids, unsigned max)
{
	unsigned n = 0, seen = 0;

	pthread_mutex_lock(&d->d_lock);
	for (unsigned id = 1; id <= DS_REG_MAX && seen < atomic_load(&d->d_count) && n < max;
	     id++) {
		if (!d->d_node[id])
			continue;
		seen++;
		if (d->d_node[id]->nd_terms.dt_draining)
			ids[n++] = id;
	}
	pthread_mutex_unlock(&d->d_lock);
	return n;
}

bool ds_reg_closed(struct ds_reg *d)
{
	return atomic_load(&d->d_closed);
}

void ds_reg_stopped(struct ds_reg *d)
{
	atomic_store(&d->d_closed, true);
}

unsigned ds_reg_count(struct ds_reg *d)
{
	return atomic_load(&d->d_count);
}

unsigned ds_reg_least_tls(struct ds_reg *d)
{
	return ds_reg_count(d) ? atomic_load(&d->d_least_tls) : RPC_TLS_OFF;
}

bool ds_reg_leased(struct ds_reg *d, uint32_t id)
{
	struct ds_reg_node nd;
	bool known = view_read(d, id, &nd, VIEW_HEAD);
	uint64_t now = clock_mono_ms(); /* after the view, because a heartbeat may come meanwhile */

	/* An NFSv3 data server goes on allowing what it allowed once, until an order changes
	 * that. */
	return (known && nd.nd_gen) ||
	       now - (known && nd.nd_heard_ms ? nd.nd_heard_ms : d->d_start_ms) <
		       d->d_opts.do_lease_ms;
}

uint64_t ds_reg_last_heartbeat_ms(struct ds_reg *d, uint32_t id)
{
	struct ds_reg_node nd;

	return view_read(d, id, &nd, VIEW_HEAD) && ds_reg_node_alive(d, &nd) ? nd.nd_heard_ms : 0;
}

uint64_t ds_reg_since_heartbeat_ms(struct ds_reg *d, uint32_t id)
{
	uint64_t heard, now;
	struct ds_reg_node nd;

	if (!view_read(d, id, &nd, VIEW_HEAD) || !nd.nd_may_join)
		return DS_REG_GONE;
	now = clock_mono_ms();
	if (alive_at(d, &nd, now))
		return 0;
	heard = ds_reg_silent_from(d, &nd);
	if (nd.nd_unserving) { /* it talks to this server, but its NFS port serves no client */
		uint64_t shut = atomic_load(&d->d_shut_ms);

		heard = nd.nd_reported_ms > shut ? nd.nd_reported_ms : shut;
	}
	return now > heard ? now - heard : 1;
}

bool ds_reg_linked(struct ds_reg *d, uint32_t id)
{
	struct ds_reg_node nd;

	if (!view_read(d, id, &nd, VIEW_HEAD))
		return false;
	return nd.nd_gen ? ds_reg_node_alive(d, &nd) : nd.nd_link && nd.nd_joined;
}

bool ds_reg_dead(struct ds_reg *d, uint32_t id)
{
	struct ds_reg_node nd;

	return !view_read(d, id, &nd, VIEW_HEAD) || nd.nd_state >= DS_REG_DEAD;
}

bool ds_reg_known(struct ds_reg *d, uint32_t id)
{
	const struct ds_reg_view *v = view_of(d, id);

	return v && atomic_load(&v->vw_known);
}

bool ds_reg_reached(struct ds_reg *d, uint32_t id, uint64_t since_ms)
{
	struct ds_reg_node nd;

	return view_read(d, id, &nd, VIEW_HEAD) && ds_reg_node_alive(d, &nd) &&
	       nd.nd_joined_ms <= since_ms &&
	       clock_mono_ms() - nd.nd_heard_ms < d->d_opts.do_suspect_ms;
}

struct loop *ds_reg_link_loop(struct ds_reg *d, uint32_t id, struct ds_reg_link **lk,
			      struct gen **g)
{
	struct ds_reg_node nd;

	*lk = NULL;
	*g = NULL;
	if (!view_read(d, id, &nd, VIEW_HEAD))
		return NULL;
	*g = nd.nd_gen;
	*lk = nd.nd_gen ? NULL : nd.nd_link;
	return nd.nd_gen ? ds_reg_loop(d, 0) : nd.nd_link ? nd.nd_loop : NULL;
}

struct loop *ds_reg_loop(struct ds_reg *d, unsigned n)
{
	return n < d->d_opts.do_nloops ? d->d_opts.do_loops[n] : NULL;
}

unsigned ds_reg_loop_index(struct ds_reg *d)
{
	struct loop *l = loop_self();
	unsigned i = 0;

	while (i < d->d_opts.do_nloops && d->d_opts.do_loops[i] != l)
		i++;
	return i;
}

const struct rpc_program *ds_reg_program(struct ds_reg *d)
{
	return &d->d_program;
}

void ds_reg_set_eof_handler(struct ds_reg *d,
			    void (*fn)(void *arg, struct loop *loop, uint64_t ino, uint16_t inc,
				       void (*reply)(void *rarg, int err, uint64_t size),
				       void *rarg),
			    void *arg)
{
	d->d_eof = fn;
	d->d_eof_arg = arg;
}

void ds_reg_set_change_handler(struct ds_reg *d, void (*fn)(void *arg, const uint8_t uuid[16]),
			       void *arg)
{
	d->d_change = fn;
	d->d_change_arg = arg;
}

void ds_reg_set_dead_handler(struct ds_reg *d,
			     void (*fn)(void *arg, uint32_t id, const uint8_t uuid[16]), void *arg)
{
	d->d_dead = fn;
	d->d_dead_arg = arg;
}

void ds_reg_set_owed_handler(struct ds_reg *d, uint64_t (*fn)(void *arg, uint32_t id), void *arg)
{
	d->d_owed = fn;
	d->d_owed_arg = arg;
}

void ds_reg_set_join_handler(struct ds_reg *d,
			     void (*fn)(void *arg, uint32_t id, void (*ready)(void *rarg),
					void *rarg),
			     void *arg)
{
	d->d_join = fn;
	d->d_join_arg = arg;
}

static void start(struct loop_msg *m)
{
	struct ds_reg *d = caa_container_of(m, struct ds_reg, d_start);

	for (unsigned id = 1; id <= DS_REG_MAX; id++)
		if (d->d_node[id] && d->d_node[id]->nd_gen)
			nfs3ds_start(d->d_node[id]->nd_gen);
	loop_timer_start(d->d_opts.do_loops[0], &d->d_timer, 1);
	pthread_mutex_lock(&d->d_lock);
	ds_reg_gate_look(d);
	pthread_mutex_unlock(&d->d_lock);
}

static double gauge_alive(void *arg)
{
	uint32_t ids[DS_REG_MAX];
	uint64_t available[DS_REG_MAX];

	return ds_reg_alive(arg, ids, available, DS_REG_MAX);
}

static double gauge_known(void *arg)
{
	return ds_reg_count(arg);
}

/* ---- start ---- */

struct load {
	struct ds_reg *ld_dsc;
	int ld_err;
};

static int ds_reg_load_row(void *arg, struct kv_slice id, struct kv_slice val)
{
	struct load *ld = arg;
	struct ds_reg_node *nd = calloc(1, sizeof(*nd));

	if (!nd)
		return ld->ld_err = -ENOMEM;
	ld->ld_err = ds_reg_row_decode(id, val, &nd->nd_sv, &nd->nd_terms);
	if (!ld->ld_err && ld->ld_dsc->d_node[nd->nd_sv.sv_id])
		ld->ld_err = -EIO;
	if (!ld->ld_err)
		ld->ld_err = ds_reg_node_add(ld->ld_dsc, nd->nd_sv.sv_id, nd);
	if (ld->ld_err) {
		free(nd);
		return ld->ld_err;
	}
	ds_reg_set_key(ld->ld_dsc, &nd->nd_sv);
	/* no heartbeat yet */
	ds_reg_set_state(nd, nd->nd_terms.dt_barred ? nd->nd_terms.dt_barred : DS_REG_SUSPECT);
	if (nd->nd_terms.dt_barred)
		nd->nd_since_s = nd->nd_terms.dt_barred_s;
	nd->nd_last_boot = nd->nd_terms.dt_boot;
	ds_reg_note_clone(ld->ld_dsc, &nd->nd_sv);
	return 0;
}

static int ds_reg_load(struct ds_reg *d)
{
	struct load ld = {.ld_dsc = d};
	struct kv_txn *t;
	int err = kv_read_begin(ns_kv(d->d_ns), &t);

	if (err)
		return err;
	err = ns_rows(t, NS_T_DS, "", 0, ds_reg_load_row, &ld);
	kv_read_end(t);
	return ld.ld_err ? ld.ld_err : err;
}

int ds_reg_create(struct ds_reg **out, struct ns *ns, const struct ds_reg_opts *o, char *err,
		  size_t errlen)
{
	struct ds_reg *d = calloc(1, sizeof(*d));
	int e;

	if (!d) {
		snprintf(err, errlen, "out of memory");
		return -ENOMEM;
	}
	assert(o->do_nloops && o->do_cluster_key);
	d->d_ns = ns;
	d->d_opts = *o;
	d->d_start_ms = clock_mono_ms();
	atomic_init(&d->d_least_tls, RPC_TLS_CERT);
	d->d_program = (struct rpc_program){.pr_prog = CTL_PROGRAM,
					    .pr_vers_lo = CTL_VERSION,
					    .pr_vers_hi = CTL_VERSION,
					    .pr_nprocs = CTL_PROC_SEALED + 1,
					    .pr_dispatch = ds_reg_dispatch,
					    .pr_arg = d};
	pthread_mutex_init(&d->d_lock, NULL);
	e = ds_reg_data_create(d);
	if (!e)
		e = ds_reg_ring_load(d);
	if (!e)
		e = ds_reg_load(d);
	if (!e)
		e = nfs3ds_load(d);
	for (uint32_t id = 1; !e && id <= DS_REG_MAX; id++)
		ds_reg_publish(d, id);
	if (e) {
		snprintf(err, errlen, "cannot read the records of the data servers: %s",
			 strerror(-e));
		ds_reg_destroy(d);
		return e;
	}
	metric_gauge("weft_mds_ds_alive",
		     "Data servers that are joined and were heard within the lease.", "",
		     gauge_alive, d);
	metric_gauge("weft_mds_ds_known", "Data servers that ever joined.", "", gauge_known, d);
	d->d_timer.t_fire = ds_reg_watch;
	d->d_start.m_run = start;
	loop_post(o->do_loops[0], &d->d_start);
	*out = d;
	return 0;
}

void ds_reg_destroy(struct ds_reg *d)
{
	hash_each(&d->d_links, i, l, next) free(hash_entry(l, struct ds_reg_link, lk_link));
	free(d->d_links.h_slot);
	ds_reg_data_destroy(d);
	ds_reg_bars_close(d);
	for (unsigned id = 1; id <= DS_REG_MAX; id++) {
		if (d->d_node[id])
			nfs3ds_free(d->d_node[id]->nd_gen);
		free(d->d_node[id]);
		free(view_of(d, id));
	}
	while (d->d_forgotten) {
		struct gen *g = d->d_forgotten;

		d->d_forgotten = g->gn_next;
		nfs3ds_free(g);
	}
	pthread_mutex_destroy(&d->d_lock);
	free(d);
}
