/* SPDX-License-Identifier: Apache-2.0 */
/*
 * elect.c - where no copy of a stripe is known to be good any more, the administrator says which
 * copy counts. Each object is asked for its size and its last change, and for its checksums if no
 * mirror is chosen yet. For a choice the file is then frozen, and one transaction makes the objects
 * of the chosen mirror in sync and all others stale. Repair makes the stale ones equal to them. The
 * choice covers the stripes that have no good copy; by force, all stripes.
 */
#include "mds/jobs/elect.h"
#include "mds/jobs/job_int.h"
#include "base/log.h"
#include "mds/journal/event_journal.h"
#include "mds/layout/repair_row.h"
#include "mds/jobs/repair.h"
#include <errno.h>
#include <sodium.h>
#include <stdarg.h>
#include <urcu/compiler.h>

#define SUM_MS 30000
#define BIT(k) (UINT64_C(1) << (k))

struct job_elect {
	struct mds *h_m;
	struct loop *h_loop;
	struct loop_msg h_msg;
	struct loop_timer h_timer;
	pthread_mutex_t h_lock; /* protects h_view: any thread */
	struct job_elect_view h_view;
	/* only the loop uses these */
	struct job_elect_view h_v;
	struct ns_inode h_inode;
	struct lo_stat h_stat;
	struct ds_reg_ctl h_ctl;
	ctl_status h_status;
	ctl_sum_res h_sum;
	crypto_generichash_state h_hash;
	unsigned h_obj;
	uint64_t h_off, h_lost; /* lost: a bit for each stripe that the choice covers */
	struct excl h_freeze;
	struct kv_op h_op;
};

static void elect_over(struct job_elect *h)
{
	excl_end(&h->h_freeze, 0);
	pthread_mutex_lock(&h->h_lock);
	job_choose_over(h->h_m, &h->h_v);
	h->h_v.elv_running = false;
	h->h_view = h->h_v;
	pthread_mutex_unlock(&h->h_lock);
}

static void __attribute__((format(printf, 2, 3))) refuse(struct job_elect *h, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(h->h_v.elv_why, sizeof(h->h_v.elv_why), fmt, ap);
	va_end(ap);
	elect_over(h);
}

/* ---- the choice ---- */

static int choose_run(struct kv_op *op, struct kv_txn *t)
{
	struct job_elect *h = caa_container_of(op, struct job_elect, h_op);
	struct mds *m = h->h_m;
	struct st_file *f;
	struct ns_inode i;
	struct lo_map map;
	bool marked;
	int err = ns_get(m->m_ns, t, h->h_v.elv_ask.ca_ino, &i);

	if (!err)
		err = lo_map_decode(i.i_blob, &map);
	if (err)
		return err;
	/* The objects and their states must be those that were examined. */
	if (i.i_incarnation != h->h_inode.i_incarnation ||
	    map.lm_stripes != h->h_v.elv_map.lm_stripes ||
	    map.lm_mirrors != h->h_v.elv_map.lm_mirrors)
		return -EAGAIN;
	for (unsigned k = 0; k < lo_objects(&map); k++) {
		const struct lo_object *was = &h->h_v.elv_map.lm_obj[k];
		struct lo_object *o = &map.lm_obj[k];

		if (o->ob_ds != was->ob_ds || o->ob_copy != was->ob_copy ||
		    o->ob_state != was->ob_state || o->ob_leaving || o->ob_state == LO_ABSENT)
			return -EAGAIN;
		if (!(h->h_lost & BIT(k % map.lm_stripes)))
			continue;
		if ((int)(k / map.lm_stripes) == h->h_v.elv_ask.ca_mirror) {
			o->ob_state = LO_IN_SYNC;
			o->ob_known = 1;
		} else {
			o->ob_state = LO_STALE;
		}
	}
	st_file_lock(m->m_st, i.i_ino);
	f = st_file_get(m->m_st, i.i_ino, false);
	marked = f && f->f_intent;
	st_file_unlock(m->m_st, i.i_ino);
	/* A copy that missed a truncation, or the last write, is set to end where the file ends.
	 * While a writer may know another end, the copy is asked for that end instead. */
	if (!marked)
		err = lo_order_truncate(m->m_lo, t, &i, &map, i.i_size);
	if (!err)
		err = journal_put(t, EV_COPY_CHOSEN, "", i.i_ino,
				  "the administrator chose mirror %d for %d of %u stripes%s",
				  h->h_v.elv_ask.ca_mirror, __builtin_popcountll(h->h_lost),
				  map.lm_stripes, h->h_v.elv_ask.ca_force ? ", by force" : "");
	return err ? err : file_set_map(&m->m_file, t, i.i_ino, &map, file_now());
}

static void elect_chosen(struct kv_op *op, int err)
{
	struct job_elect *h = caa_container_of(op, struct job_elect, h_op);

	if (err) {
		refuse(h, "%s",
		       err == -EAGAIN ? "its copies changed meanwhile; try again" : strerror(-err));
		return;
	}
	log_warn("inode %lu: the administrator chose mirror %d for %d of its %u stripes; the other "
		 "copies are now stale",
		 (unsigned long)h->h_v.elv_ask.ca_ino, h->h_v.elv_ask.ca_mirror,
		 __builtin_popcountll(h->h_lost), h->h_v.elv_map.lm_stripes);
	lo_orders_wake(h->h_m->m_lo);
	h->h_v.elv_done = true;
	elect_over(h);
}

static void elect_frozen(void *arg, int err)
{
	struct job_elect *h = arg;

	if (err) {
		refuse(h, "%s",
		       err == -EAGAIN ? "another operation is changing the file; try again"
				      : "cannot recall its layouts now");
		return;
	}
	h->h_op = (struct kv_op){.o_run = choose_run, .o_done = elect_chosen, .o_loop = h->h_loop};
	kv_submit(h->h_m->m_kv, &h->h_op);
}

/* A copy in sync is bad if its server says that the object is missing, or if the server is dead. A
 * server that is only away comes back with its copy. */
static bool may_be_read(const struct job_elect *h, unsigned k)
{
	const struct job_elect_view *v = &h->h_v;

	if (v->elv_map.lm_obj[k].ob_state != LO_IN_SYNC)
		return false;
	return v->elv_there >> k & 1 || (!(v->elv_answered >> k & 1) &&
					 !ds_reg_dead(h->h_m->m_dsc, v->elv_map.lm_obj[k].ob_ds));
}

/* The stripes that the choice covers: those without a good copy; by force, all. */
static uint64_t stripes_lost(const struct job_elect *h)
{
	const struct lo_map *map = &h->h_v.elv_map;
	uint64_t lost = 0;

	for (unsigned s = 0; s < map->lm_stripes; s++)
		lost |= BIT(s);
	for (unsigned k = 0; k < lo_objects(map) && !h->h_v.elv_ask.ca_force; k++)
		lost &= may_be_read(h, k) ? ~BIT(k % map->lm_stripes) : UINT64_MAX;
	return lost;
}

/* True: the choice is refused. */
static bool objection(struct job_elect *h)
{
	const struct job_elect_view *v = &h->h_v;
	const struct lo_map *map = &v->elv_map;

	if (v->elv_ask.ca_mirror >= map->lm_mirrors) {
		refuse(h,
		       "mirror: expected its number, counted from 0, as weft mirror list shows it");
		return true;
	}
	h->h_lost = stripes_lost(h);
	for (unsigned k = 0; k < lo_objects(map); k++) {
		unsigned s = k % map->lm_stripes;
		bool mine =
			(int)(k / map->lm_stripes) == v->elv_ask.ca_mirror && h->h_lost & BIT(s);

		if (map->lm_obj[k].ob_leaving || map->lm_obj[k].ob_state == LO_ABSENT)
			refuse(h, "it is being moved, or a mirror is being removed; see weft "
				  "mirror status");
		else if (mine && !(v->elv_answered >> k & 1))
			refuse(h,
			       "stripe %u: the data server of that copy does not answer, or its "
			       "object is half rebuilt",
			       s);
		else if (mine && !(v->elv_there >> k & 1))
			refuse(h,
			       "stripe %u: the object of that copy is missing on its data server",
			       s);
		else
			continue;
		return true;
	}
	if (!h->h_lost)
		refuse(h, "each stripe has a good copy: in sync, and readable or on a data server "
			  "that is away but not dead; --force overrides this");
	return !h->h_lost;
}

static void decide(struct job_elect *h)
{
	if (h->h_v.elv_ask.ca_mirror < 0)
		elect_over(h);
	else if (objection(h))
		return;
	else if (lo_fence_hangs(h->h_m->m_lo, &h->h_v.elv_map))
		refuse(h, "a data server of the file is away and may still hold its lease; try "
			  "again when the lease has ended");
	else
		excl_begin(&h->h_freeze, &h->h_m->m_file, h->h_loop, h->h_v.elv_ask.ca_ino, NULL,
			   EXCL_LAYOUTS, elect_frozen, h);
}

/* ---- what each copy has ---- */

static void sum_next(struct job_elect *h);

static void elect_sum_take(struct ds_reg_ctl *c, const ctl_response *res)
{
	struct job_elect *h = caa_container_of(c, struct job_elect, h_ctl);

	h->h_status = res->status;
	if (res->status == CTL_OK)
		h->h_sum = res->result.ctl_result_u.sum;
}

static void sum_paced(struct loop_timer *t)
{
	sum_next(caa_container_of(t, struct job_elect, h_timer));
}

static void elect_sum_done(struct ds_reg_ctl *c, int err)
{
	struct job_elect *h = caa_container_of(c, struct job_elect, h_ctl);
	uint64_t bytes = 0;

	if (err || h->h_status != CTL_OK) {
		h->h_obj++; /* this object gets no checksum */
		h->h_off = 0;
	} else {
		bytes = h->h_sum.data;
		crypto_generichash_update(&h->h_hash, (const uint8_t *)h->h_sum.sum, CTL_SUM_LEN);
		h->h_off += CTL_SUM_MAX;
	}
	h->h_timer.t_fire = sum_paced;
	loop_timer_start(h->h_loop, &h->h_timer, job_repair_pace(h->h_m, bytes));
}

static void sum_next(struct job_elect *h)
{
	struct job_elect_view *v = &h->h_v;
	ctl_sum_args *a = &h->h_ctl.dc_req.ctl_request_u.sum;

	while (h->h_obj < lo_objects(&v->elv_map)) {
		if (v->elv_there >> h->h_obj & 1 && h->h_off < v->elv_sizes[h->h_obj])
			break;
		if (v->elv_there >> h->h_obj & 1) {
			if (!h->h_off)
				crypto_generichash_init(&h->h_hash, NULL, 0, CTL_SUM_LEN);
			crypto_generichash_final(&h->h_hash, v->elv_sum[h->h_obj], CTL_SUM_LEN);
			v->elv_summed |= BIT(h->h_obj);
		}
		h->h_obj++;
		h->h_off = 0;
	}
	if (h->h_obj == lo_objects(&v->elv_map)) {
		decide(h);
		return;
	}
	if (!h->h_off)
		crypto_generichash_init(&h->h_hash, NULL, 0, CTL_SUM_LEN);
	h->h_ctl.dc_req.op = CTL_OP_SUM;
	h->h_ctl.dc_take = elect_sum_take;
	h->h_ctl.dc_done = elect_sum_done;
	lo_object_name(h->h_m->m_lo, v->elv_ask.ca_ino, h->h_inode.i_incarnation, &v->elv_map,
		       h->h_obj, &a->object);
	a->offset = h->h_off;
	a->length = CTL_SUM_MAX;
	ds_reg_call(h->h_m->m_dsc, v->elv_map.lm_obj[h->h_obj].ob_ds, &h->h_ctl, SUM_MS);
}

static void elect_looked(struct lo_stat *ls, int err)
{
	struct job_elect *h = caa_container_of(ls, struct job_elect, h_stat);
	struct job_elect_view *v = &h->h_v;

	(void)err; /* the servers that did not answer are missing in ls_answered */
	v->elv_answered = ls->ls_answered | ls->ls_lost;
	v->elv_there = ls->ls_exists;
	for (unsigned k = 0; k < lo_objects(&v->elv_map); k++) {
		v->elv_sizes[k] = ls->ls_sizes[k];
		v->elv_changed[k] = ls->ls_writes[k];
	}
	h->h_obj = 0;
	h->h_off = 0;
	if (v->elv_ask.ca_mirror < 0)
		sum_next(h);
	else
		decide(h);
}

static void elect_begin(struct loop_msg *msg)
{
	struct job_elect *h = caa_container_of(msg, struct job_elect, h_msg);
	struct lo_stat *ls = &h->h_stat;
	struct kv_txn *t;
	int err;

	h->h_v = h->h_view; /* nothing else writes it while this runs */
	err = kv_read_begin(h->h_m->m_kv, &t);
	if (!err) {
		err = ns_get(h->h_m->m_ns, t, h->h_v.elv_ask.ca_ino, &h->h_inode);
		if (!err)
			err = lo_map_decode(h->h_inode.i_blob, &h->h_v.elv_map);
		kv_read_end(t);
	}
	h->h_inode.i_blob = h->h_inode.i_acl = (struct kv_slice){0};
	if (err) {
		refuse(h, "%s", strerror(-err));
		return;
	}
	h->h_v.elv_size = h->h_inode.i_size;
	ls->ls_loop = h->h_loop;
	ls->ls_ino = h->h_inode.i_ino;
	ls->ls_incarnation = h->h_inode.i_incarnation;
	ls->ls_map = h->h_v.elv_map;
	ls->ls_done = elect_looked;
	/* Asks all objects, whatever their state. */
	for (unsigned k = 0; k < lo_objects(&ls->ls_map); k++)
		if (ls->ls_map.lm_obj[k].ob_state != LO_ABSENT)
			ls->ls_map.lm_obj[k].ob_state = LO_IN_SYNC;
	lo_stat(h->h_m->m_lo, ls);
}

uint64_t job_elect_begin(struct mds *m, const struct job_elect_ask *ask)
{
	struct job_elect *h = m->m_choose;
	uint64_t number = 0;

	pthread_mutex_lock(&h->h_lock);
	if (!h->h_view.elv_running) {
		number = h->h_view.elv_number + 1;
		h->h_view = (struct job_elect_view){.elv_ask = *ask,
						    .elv_number = number,
						    .elv_running = true,
						    .elv_begun = job_now()};
	}
	pthread_mutex_unlock(&h->h_lock);
	if (number)
		loop_post(h->h_loop, &h->h_msg);
	return number;
}

void job_elect_look(struct mds *m, struct job_elect_view *out)
{
	pthread_mutex_lock(&m->m_choose->h_lock);
	*out = m->m_choose->h_view;
	pthread_mutex_unlock(&m->m_choose->h_lock);
}

int job_elect_open(struct mds *m, struct loop *loop)
{
	struct job_elect *h = calloc(1, sizeof(*h));

	if (!h)
		return -ENOMEM;
	h->h_m = m;
	h->h_loop = loop;
	h->h_msg.m_run = elect_begin;
	pthread_mutex_init(&h->h_lock, NULL);
	m->m_choose = h;
	return 0;
}
