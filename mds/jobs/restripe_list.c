/* SPDX-License-Identifier: Apache-2.0 */
/*
 * restripe_list.c - what of a file is still to be copied to its new layout: a list of ranges, cut
 * into pieces that are in one stripe of both layouts; and the calls that ask data servers for it.
 */
#include "mds/jobs/restripe_int.h"
#include "mds/jobs/repair.h"
#include <stdlib.h>

#define BATCH_BYTES (16u << 20)

static void restripe_answered(struct lo_restripe_io *an, int err);
static bool next_piece(struct job_restripe *r, uint64_t *off, uint64_t *len, unsigned *from);
static bool call_add(struct job_restripe *r, uint64_t off, uint64_t len, unsigned from);
static struct lo_restripe_io *call_for(struct job_restripe *r, unsigned source, unsigned target);

/* ---- questions to data servers, some at a time ---- */

struct lo_restripe_io *restripe_call_new(struct job_restripe *r)
{
	struct lo_restripe_io *an;

	if (r->rs_ncall == r->rs_ccap) {
		unsigned cap = r->rs_ccap ? 2 * r->rs_ccap : 64;
		struct lo_restripe_io **more =
			realloc(r->rs_call, cap * sizeof(struct lo_restripe_io *));

		if (!more)
			return NULL;
		r->rs_call = more;
		r->rs_ccap = cap;
	}
	an = calloc(1, sizeof(*an));
	if (an)
		r->rs_call[r->rs_ncall++] = an;
	return an;
}

void restripe_calls_free(struct job_restripe *r)
{
	for (unsigned i = 0; i < r->rs_ncall; i++)
		free(r->rs_call[i]);
	r->rs_ncall = 0;
}

void restripe_ask(struct job_restripe *r, void (*then)(struct job_restripe *r, int err))
{
	r->rs_err = 0;
	r->rs_left = r->rs_ncall;
	r->rs_then = then;
	for (unsigned i = 0; i < r->rs_ncall; i++) {
		r->rs_call[i]->an_priv = r;
		r->rs_call[i]->an_done = restripe_answered;
	}
}

static void restripe_answered(struct lo_restripe_io *an, int err)
{
	struct job_restripe *r = an->an_priv;

	if (err && !r->rs_err)
		r->rs_err = err;
	if (!--r->rs_left)
		r->rs_then(r, r->rs_err);
}

int restripe_source_at(const struct job_restripe *r, const struct lo_map *map, unsigned stripe)
{
	int k = lo_object_of(map, r->rs_source[stripe].ob_ds, stripe, r->rs_source[stripe].ob_copy);

	return k >= 0 && map->lm_obj[k].ob_state == LO_IN_SYNC ? k : -1;
}

/* ---- the list ---- */

bool restripe_list_add(struct job_restripe *r, uint64_t off, uint64_t end, unsigned stripe)
{
	if (r->rs_n == r->rs_cap) {
		size_t cap = r->rs_cap ? 2 * r->rs_cap : 256;
		struct restripe_range *more = realloc(r->rs_list, cap * sizeof(*more));

		if (!more)
			return false;
		r->rs_list = more;
		r->rs_cap = cap;
	}
	r->rs_list[r->rs_n++] = (struct restripe_range){off, end, stripe};
	return true;
}

void restripe_list_reset(struct job_restripe *r)
{
	r->rs_n = r->rs_at = 0;
	r->rs_pos = 0;
}

/* ---- a batch of it ---- */

uint64_t restripe_batch(struct job_restripe *r, bool *err)
{
	uint64_t bytes = 0, off, len, rate = job_repair_opts(r->rs_m).ro_rate,
		 most = rate && rate < BATCH_BYTES && !r->rs_frozen ? rate : BATCH_BYTES;
	unsigned pieces = 0, from;

	r->rs_back_at = r->rs_at;
	r->rs_back_pos = r->rs_pos;
	restripe_calls_free(r);
	*err = false;
	while (!*err && bytes < most && pieces < CTL_FILL_SPANS &&
	       next_piece(r, &off, &len, &from)) {
		*err = !call_add(r, off, len, from);
		bytes += len;
		pieces++;
	}
	return bytes;
}

/* The next piece that is in one stripe of both layouts. False: the list is done. */
static bool next_piece(struct job_restripe *r, uint64_t *off, uint64_t *len, unsigned *from)
{
	while (r->rs_at < r->rs_n) {
		const struct restripe_range *g = &r->rs_list[r->rs_at];
		uint64_t at = r->rs_pos > g->ran_off ? r->rs_pos : g->ran_off, end;

		if (at >= g->ran_end) {
			r->rs_at++;
			r->rs_pos = 0;
			continue;
		}
		end = restripe_least(
			restripe_least(g->ran_end,
				       (at / r->rs_map.lm_unit + 1) * r->rs_map.lm_unit),
			(at / r->rs_pending.tw_map.lm_unit + 1) * r->rs_pending.tw_map.lm_unit);
		end = restripe_least(end, at + BATCH_BYTES);
		r->rs_pos = end;
		*from = lo_stripe_of(&r->rs_map, at);
		if (g->ran_stripe != ALL_STRIPES && g->ran_stripe != *from)
			continue;
		*off = at;
		*len = end - at;
		return true;
	}
	return false;
}

/* Adds a piece to the calls, for each copy of it. */
static bool call_add(struct job_restripe *r, uint64_t off, uint64_t len, unsigned from)
{
	unsigned source = (unsigned)restripe_source_at(r, &r->rs_map, from),
		 stripe = lo_stripe_of(&r->rs_pending.tw_map, off);

	for (unsigned k = stripe; k < lo_objects(&r->rs_pending.tw_map);
	     k += r->rs_pending.tw_map.lm_stripes) {
		struct lo_restripe_io *an = call_for(r, source, k);
		ctl_span *last = an && an->an_nspan ? &an->an_span[an->an_nspan - 1] : NULL;

		if (!an)
			return false;
		if (last && last->offset + last->length == off)
			last->length += len;
		else
			an->an_span[an->an_nspan++] = (ctl_span){.offset = off, .length = len};
	}
	return true;
}

static struct lo_restripe_io *call_for(struct job_restripe *r, unsigned source, unsigned target)
{
	struct lo_restripe_io *an;

	for (unsigned i = 0; i < r->rs_ncall; i++)
		if (r->rs_call[i]->an_source == source && r->rs_call[i]->an_target == target)
			return r->rs_call[i];
	an = restripe_call_new(r);
	if (an) {
		an->an_source = source;
		an->an_target = target;
	}
	return an;
}
