/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lo_stat.c - asks the data servers for sizes and write counts.
 *
 * While STAT_FLIGHTS calls of one loop to one server are in progress, further questions are
 * collected, and then go together. So a directory listing of files that are being written asks each
 * server a few times, not once per file.
 */
#include "base/log.h"
#include "mds/layout/lo_int.h"
#include <errno.h>
#include <urcu/compiler.h>

#define STAT_FLIGHTS 2

/* What one caller asks of one server. */
struct stat_part {
	struct stat_part *sp_next;
	struct stat_run *sp_run;
	unsigned sp_n;
	uint8_t sp_obj[LO_MAX_OBJECTS];
};
struct stat_run {
	struct lo *sr_lo;
	struct lo_stat *sr_ls;
	struct loop_msg sr_msg;
	unsigned sr_left; /* parts without an answer */
	bool sr_ending;	  /* sr_msg is posted, or was */
	/* the caller has its result and owns sr_ls again; the remaining parts only end */
	bool sr_told;
	uint64_t sr_deadline_ns;
	uint64_t sr_answered; /* bit per object */
	uint64_t sr_used[LO_MAX_OBJECTS];
	unsigned sr_nparts;
	struct stat_part sr_part[LO_MAX_OBJECTS];
	uint32_t sr_ds[LO_MAX_OBJECTS]; /* by part */
};
struct stat_queue {
	struct lo *sq_lo;
	struct loop *sq_loop;
	uint32_t sq_ds;
	unsigned sq_flights;
	struct stat_part *sq_head, **sq_tail;
};
struct stat_flight {
	struct ds_reg_ctl sf_ctl;
	struct stat_queue *sf_queue;
	struct stat_part *sf_parts;
	unsigned sf_n;
	ctl_status sf_status;
	ctl_object sf_objects[CTL_BATCH_MAX];
	ctl_stat sf_stats[CTL_BATCH_MAX];
};
struct lo_stats {
	struct stat_queue *st_queue[DS_REG_MAX + 1];
};

static void queue_flush(struct stat_queue *sq);

/* ---- one caller ---- */

static int run_err(const struct stat_run *sr)
{
	const struct lo_map *m = &sr->sr_ls->ls_map;

	for (unsigned s = 0; s < m->lm_stripes; s++) {
		bool any = false;

		for (unsigned i = s; i < (unsigned)m->lm_stripes * m->lm_mirrors;
		     i += m->lm_stripes)
			any |= sr->sr_answered >> i & 1;
		if (!any)
			return -ETIMEDOUT;
	}
	return 0;
}

static void lo_stat_run_end(struct loop_msg *msg)
{
	struct stat_run *sr = caa_container_of(msg, struct stat_run, sr_msg);
	struct lo_stat *ls = sr->sr_ls;
	const struct lo_map *m = &ls->ls_map;
	unsigned silent = 0;
	int err = run_err(sr);

	for (unsigned s = 0; s < m->lm_stripes; s++) {
		uint64_t most = 0;

		for (unsigned i = s; i < (unsigned)m->lm_stripes * m->lm_mirrors;
		     i += m->lm_stripes)
			most = sr->sr_used[i] > most ? sr->sr_used[i] : most;
		ls->ls_used += most;
	}
	ls->ls_answered = sr->sr_answered;
	for (unsigned i = 0; sr->sr_left && i < lo_objects(m); i++)
		silent += m->lm_obj[i].ob_state == LO_IN_SYNC && !(sr->sr_answered >> i & 1);
	ls->ls_missing = sr->sr_left ? silent : ls->ls_missing;
	sr->sr_told = true;
	if (!sr->sr_left)
		free(sr);
	ls->ls_done(ls, err);
}

static void lo_stat_run_put(struct stat_run *sr)
{
	bool last = !--sr->sr_left;

	if (last && sr->sr_told) {
		free(sr);
		return;
	}
	if (sr->sr_ending || (!last && (!sr->sr_ls->ls_enough || run_err(sr))))
		return;
	sr->sr_ending = true;
	sr->sr_msg.m_run = lo_stat_run_end;
	loop_post(sr->sr_ls->ls_loop, &sr->sr_msg);
}

static void object_answer(struct stat_run *sr, unsigned obj, const ctl_stat *st)
{
	struct lo_stat *ls = sr->sr_ls;

	if (st->status == CTL_OK) {
		ls->ls_exists |= UINT64_C(1) << obj;
		ls->ls_durable |= (uint64_t)(st->durable != 0) << obj;
		ls->ls_size = st->size > ls->ls_size ? st->size : ls->ls_size;
		ls->ls_writes[obj] = st->writes;
		ls->ls_sizes[obj] = st->size;
		sr->sr_used[obj] = st->used;
	} else if (st->status != CTL_NOENT && st->status != CTL_LOST) {
		ls->ls_missing++;
		return;
	} else if (st->status == CTL_LOST || ls->ls_map.lm_obj[obj].ob_known) {
		log_error("inode %llu: object %u on data server %u is known to exist and is not "
			  "there",
			  (unsigned long long)ls->ls_ino, obj, ls->ls_map.lm_obj[obj].ob_ds);
		ls->ls_lost |= UINT64_C(1) << obj;
		ls->ls_missing++;
		return;
	}
	sr->sr_answered |= UINT64_C(1) << obj;
}

/* stats NULL: the server did not answer. */
static void part_answer(struct stat_part *sp, const ctl_stat *stats)
{
	struct stat_run *sr = sp->sp_run;

	for (unsigned i = 0; i < sp->sp_n && !sr->sr_told; i++) {
		if (stats)
			object_answer(sr, sp->sp_obj[i], &stats[i]);
		else
			sr->sr_ls->ls_missing++;
	}
	lo_stat_run_put(sr);
}

/* ---- one server ---- */

static void flight_take(struct ds_reg_ctl *c, const ctl_response *res)
{
	struct stat_flight *sf = caa_container_of(c, struct stat_flight, sf_ctl);
	const ctl_stat_res *r = &res->result.ctl_result_u.stat;

	sf->sf_status = res->status;
	if (res->status != CTL_OK)
		return;
	if (r->stats.stats_len != sf->sf_n) {
		sf->sf_status = CTL_INVAL;
		return;
	}
	memcpy(sf->sf_stats, r->stats.stats_val, sf->sf_n * sizeof(sf->sf_stats[0]));
}

static void flight_done(struct ds_reg_ctl *c, int err)
{
	struct stat_flight *sf = caa_container_of(c, struct stat_flight, sf_ctl);
	struct stat_queue *sq = sf->sf_queue;
	const ctl_stat *stats = !err && sf->sf_status == CTL_OK ? sf->sf_stats : NULL;

	for (struct stat_part *sp = sf->sf_parts, *next; sp; sp = next) {
		unsigned n = sp->sp_n;

		next = sp->sp_next;
		part_answer(sp, stats);
		stats = stats ? stats + n : NULL;
	}
	free(sf);
	sq->sq_flights--;
	queue_flush(sq);
}

static struct stat_part *queue_pop(struct stat_queue *sq)
{
	struct stat_part *sp = sq->sq_head;

	sq->sq_head = sp->sp_next;
	if (!sq->sq_head)
		sq->sq_tail = &sq->sq_head;
	sp->sp_next = NULL;
	return sp;
}

static void flight_add(struct stat_flight *sf, struct stat_part *sp)
{
	const struct lo_stat *ls = sp->sp_run->sr_ls;

	for (unsigned i = 0; i < sp->sp_n; i++)
		lo_ctl_object(sf->sf_queue->sq_lo, ls->ls_ino, ls->ls_incarnation, &ls->ls_map,
			      sp->sp_obj[i], &sf->sf_objects[sf->sf_n++]);
}

static void queue_flush(struct stat_queue *sq)
{
	uint64_t now = loop_now_ns(sq->sq_loop);
	struct stat_flight *sf = NULL;
	struct stat_part **tail = NULL;

	while (sq->sq_head && sq->sq_flights < STAT_FLIGHTS) {
		if (sq->sq_head->sp_run->sr_told || sq->sq_head->sp_run->sr_deadline_ns <= now) {
			part_answer(queue_pop(sq), NULL);
			continue;
		}
		if (!sf) {
			sf = calloc(1, sizeof(*sf));
			if (!sf) {
				part_answer(queue_pop(sq), NULL);
				continue;
			}
			sf->sf_queue = sq;
			tail = &sf->sf_parts;
		}
		if (sf->sf_n + sq->sq_head->sp_n > CTL_BATCH_MAX)
			break;
		*tail = queue_pop(sq);
		flight_add(sf, *tail);
		tail = &(*tail)->sp_next;
	}
	if (!sf)
		return;
	sq->sq_flights++;
	sf->sf_ctl.dc_req.op = CTL_OP_STAT;
	sf->sf_ctl.dc_req.ctl_request_u.stat.objects.objects_len = sf->sf_n;
	sf->sf_ctl.dc_req.ctl_request_u.stat.objects.objects_val = sf->sf_objects;
	sf->sf_ctl.dc_take = flight_take;
	sf->sf_ctl.dc_done = flight_done;
	ds_reg_call(sq->sq_lo->l_dsc, sq->sq_ds, &sf->sf_ctl, LO_STAT_MS);
}

static struct stat_queue *queue_get(struct lo *lo, struct loop *loop, uint32_t ds)
{
	unsigned at = ds_reg_loop_index(lo->l_dsc);
	struct stat_queue **p;

	if (at >= lo->l_nloops || !ds || ds > DS_REG_MAX)
		return NULL;
	p = &lo->l_stats[at]->st_queue[ds];
	if (!*p) {
		*p = calloc(1, sizeof(**p));
		if (!*p)
			return NULL;
		(*p)->sq_lo = lo;
		(*p)->sq_loop = loop;
		(*p)->sq_ds = ds;
		(*p)->sq_tail = &(*p)->sq_head;
	}
	return *p;
}

/* ---- the call ---- */

static struct stat_part *lo_stat_part_of(struct stat_run *sr, uint32_t ds)
{
	for (unsigned p = 0; p < sr->sr_nparts; p++)
		if (sr->sr_ds[p] == ds)
			return &sr->sr_part[p];
	sr->sr_ds[sr->sr_nparts] = ds;
	sr->sr_part[sr->sr_nparts].sp_run = sr;
	return &sr->sr_part[sr->sr_nparts++];
}

static void part_ask(struct stat_run *sr, unsigned p)
{
	struct lo *lo = sr->sr_lo;
	struct stat_part *sp = &sr->sr_part[p];
	struct stat_queue *sq = NULL;
	struct ds_reg_server sv;

	if (ds_reg_get(lo->l_dsc, sr->sr_ds[p], &sv) && sv.sv_alive)
		sq = queue_get(lo, sr->sr_ls->ls_loop, sr->sr_ds[p]);
	if (!sq) {
		part_answer(sp, NULL);
		return;
	}
	*sq->sq_tail = sp;
	sq->sq_tail = &sp->sp_next;
	queue_flush(sq);
}

void lo_stat(struct lo *lo, struct lo_stat *ls)
{
	const struct lo_map *m = &ls->ls_map;
	struct stat_run *sr = calloc(1, sizeof(*sr));

	if (!sr)
		log_fatal("out of memory while asking for a file's size");
	ls->ls_size = ls->ls_used = ls->ls_exists = ls->ls_durable = ls->ls_lost = 0;
	memset(ls->ls_sizes, 0, sizeof(ls->ls_sizes));
	memset(ls->ls_writes, 0, sizeof(ls->ls_writes));
	memset(ls->ls_sizes, 0, sizeof(ls->ls_sizes));
	ls->ls_missing = 0;
	ls->ls_priv = sr;
	sr->sr_lo = lo;
	sr->sr_ls = ls;
	sr->sr_deadline_ns = loop_now_ns(ls->ls_loop) + LO_STAT_MS * UINT64_C(1000000);
	for (unsigned i = 0; i < (unsigned)m->lm_stripes * m->lm_mirrors; i++) {
		struct stat_part *sp;

		if (m->lm_obj[i].ob_state != LO_IN_SYNC)
			continue;
		sp = lo_stat_part_of(sr, m->lm_obj[i].ob_ds);
		sp->sp_obj[sp->sp_n++] = (uint8_t)i;
	}
	/* One more for this function, so that the run ends after the last part was asked. */
	sr->sr_left = sr->sr_nparts + 1;
	for (unsigned p = 0; p < sr->sr_nparts; p++)
		part_ask(sr, p);
	lo_stat_run_put(sr);
}

/* Whether the copies of a stripe end at the same place, and either all or none were written. */
static bool stripe_even(const struct lo_stat *ls, unsigned stripe, uint64_t moved)
{
	const struct lo_map *m = &ls->ls_map;
	int first = -1;

	for (unsigned i = stripe; i < lo_objects(m); i += m->lm_stripes) {
		if (m->lm_obj[i].ob_state != LO_IN_SYNC)
			continue;
		if (first < 0)
			first = (int)i;
		else if (ls->ls_sizes[i] != ls->ls_sizes[first] ||
			 (moved >> i & 1) != (moved >> first & 1))
			return false;
	}
	return true;
}

bool lo_uneven(struct lo *lo, const struct lo_stat *ls, uint64_t moved)
{
	const struct lo_map *m = &ls->ls_map;
	bool even = true;

	if (m->lm_mirrors == 1 || ls->ls_missing || (m->lm_stripes > 1 && lo_generic(lo, m)))
		return false;
	for (unsigned s = 0; s < m->lm_stripes && even; s++)
		even = stripe_even(ls, s, moved);
	return !even;
}

uint64_t lo_short(struct lo *lo, const struct lo_stat *ls, uint64_t size)
{
	const struct lo_map *m = &ls->ls_map;
	struct ds_reg_server sv;
	uint64_t bits = 0;

	for (unsigned i = 0;
	     size && m->lm_stripes > 1 && ds_reg_has_generic(lo->l_dsc) && i < lo_objects(m); i++)
		if ((ls->ls_answered >> i & 1) && ls->ls_sizes[i] < size &&
		    lo_stripe_of(m, size - 1) != i % m->lm_stripes &&
		    ds_reg_get(lo->l_dsc, m->lm_obj[i].ob_ds, &sv) && sv.sv_nfs3)
			bits |= UINT64_C(1) << i;
	return bits;
}

int lo_stats_create(struct lo *lo)
{
	lo->l_stats = calloc(lo->l_nloops, sizeof(*lo->l_stats));
	for (unsigned i = 0; lo->l_stats && i < lo->l_nloops; i++) {
		lo->l_stats[i] = calloc(1, sizeof(*lo->l_stats[i]));
		if (!lo->l_stats[i])
			return -ENOMEM;
	}
	return lo->l_stats ? 0 : -ENOMEM;
}

void lo_stats_destroy(struct lo *lo)
{
	for (unsigned i = 0; lo->l_stats && i < lo->l_nloops; i++) {
		for (unsigned ds = 0; lo->l_stats[i] && ds <= DS_REG_MAX; ds++)
			free(lo->l_stats[i]->st_queue[ds]);
		free(lo->l_stats[i]);
	}
	free(lo->l_stats);
}
