/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lo_data.c - operations that data servers do on a file's data without the bytes crossing the wire:
 * finding holes, allocating, deallocating, copying.
 *
 * They are calls of the control protocol (proto/ctl.x) to one object of each copy, or of one copy.
 * Each call covers a bounded length, and an object gets one call after the other.
 */
#include "base/log.h"
#include "mds/layout/lo_int.h"
#include <errno.h>
#include <urcu/compiler.h>

static int ctl_errno(ctl_status st)
{
	switch (st) {
	case CTL_OK:
		return 0;
	case CTL_NOENT:
		return -ESTALE;
	case CTL_NOSPC:
		return -ENOSPC;
	case CTL_FENCED:
		return -EACCES;
	case CTL_NOTSUPP:
		return -EOPNOTSUPP;
	case CTL_NOT_JOINED:
	case CTL_STALE_INSTANCE:
		return -ETIMEDOUT;
	default:
		return -EIO;
	}
}

/* Calls the object's data server. A server that does not seem to live gets less time. */
static void object_call(struct lo *lo, uint32_t ds, struct ds_reg_ctl *c)
{
	struct ds_reg_server sv;

	ds_reg_call(lo->l_dsc, ds, c,
		    ds_reg_get(lo->l_dsc, ds, &sv) && sv.sv_alive ? LO_IO_MS : LO_IO_SHORT_MS);
}

/* ---- seek ---- */

struct seek_part {
	struct ds_reg_ctl sp_ctl;
	struct seek_run *sp_run;
	unsigned sp_stripe, sp_obj;
	uint64_t sp_tried; /* bit per object */
	ctl_status sp_status;
	ctl_seek_res sp_res;
};
struct seek_run {
	struct lo *sr_lo;
	struct lo_seek *sr_seek;
	struct loop_msg sr_msg;
	unsigned sr_left;
	int sr_err;
	struct seek_part sr_part[];
};

static void seek_ask(struct seek_part *sp);

static void seek_end(struct loop_msg *msg)
{
	struct seek_run *sr = caa_container_of(msg, struct seek_run, sr_msg);
	struct lo_seek *lk = sr->sr_seek;
	int err = sr->sr_err;

	free(sr);
	lk->lk_done(lk, err);
}

static void seek_put(struct seek_run *sr)
{
	if (--sr->sr_left)
		return;
	sr->sr_msg.m_run = seek_end;
	loop_post(sr->sr_seek->lk_loop, &sr->sr_msg);
}

static void seek_found(struct seek_part *sp, uint64_t at)
{
	struct lo_seek *lk = sp->sp_run->sr_seek;

	if (!lk->lk_found || at < lk->lk_at)
		lk->lk_at = at;
	lk->lk_found = true;
}

/* The object was never written: it has no data, and a hole begins at the stripe's first byte. */
static void seek_empty(struct seek_part *sp)
{
	const struct lo_seek *lk = sp->sp_run->sr_seek;
	const struct lo_map *m = &lk->lk_map;
	uint64_t k = lk->lk_off / m->lm_unit,
		 own = k + (sp->sp_stripe + m->lm_stripes - k % m->lm_stripes) % m->lm_stripes;

	if (lk->lk_hole)
		seek_found(sp, own == k ? lk->lk_off : own * m->lm_unit);
}

/* Returns the copy to ask next, living servers first. -1: all copies were asked. */
static int seek_copy(const struct seek_part *sp)
{
	const struct lo_seek *lk = sp->sp_run->sr_seek;
	const struct lo_map *m = &lk->lk_map;
	struct ds_reg_server sv;
	int found = -1, obj;

	for (unsigned r = 0; (obj = lo_source(m, sp->sp_stripe, r, lk->lk_same)) >= 0; r++) {
		if (sp->sp_tried >> obj & 1)
			continue;
		if (ds_reg_get(sp->sp_run->sr_lo->l_dsc, m->lm_obj[obj].ob_ds, &sv) && sv.sv_alive)
			return obj;
		found = found < 0 ? obj : found;
	}
	return found;
}

static void seek_next(struct seek_part *sp, int err)
{
	int obj = seek_copy(sp);

	if (obj < 0) {
		sp->sp_run->sr_seek->lk_failed |= sp->sp_tried;
		sp->sp_run->sr_err = lo_plain_err(err);
		seek_put(sp->sp_run);
		return;
	}
	sp->sp_obj = (unsigned)obj;
	sp->sp_tried |= UINT64_C(1) << obj;
	seek_ask(sp);
}

static void seek_take(struct ds_reg_ctl *c, const ctl_response *res)
{
	struct seek_part *sp = caa_container_of(c, struct seek_part, sp_ctl);

	sp->sp_status = res->status;
	if (res->status == CTL_OK)
		sp->sp_res = res->result.ctl_result_u.seek;
}

static void seek_answer(struct ds_reg_ctl *c, int err)
{
	struct seek_part *sp = caa_container_of(c, struct seek_part, sp_ctl);
	struct seek_run *sr = sp->sp_run;
	struct lo_seek *lk = sr->sr_seek;
	ctl_seek_args *a = &c->dc_req.ctl_request_u.seek;

	if (!err && sp->sp_status == CTL_NOENT && !lk->lk_map.lm_obj[sp->sp_obj].ob_known) {
		seek_empty(sp);
		seek_put(sr);
		return;
	}
	if (!err)
		err = ctl_errno(sp->sp_status);
	if (!err && sp->sp_res.found == CTL_SEEK_FOUND && sp->sp_res.offset < lk->lk_off)
		err = -EIO; /* the server answered for an offset that was not asked */
	if (err) {
		seek_next(sp, err);
		return;
	}
	/* Continue only up to what another stripe has found already. */
	if (sp->sp_res.found == CTL_SEEK_AGAIN && sp->sp_res.offset > a->offset &&
	    (!lk->lk_found || sp->sp_res.offset < lk->lk_at)) {
		a->offset = sp->sp_res.offset;
		object_call(sr->sr_lo, lk->lk_map.lm_obj[sp->sp_obj].ob_ds, c);
		return;
	}
	if (sp->sp_res.found == CTL_SEEK_FOUND)
		seek_found(sp, sp->sp_res.offset);
	seek_put(sr);
}

static void seek_ask(struct seek_part *sp)
{
	const struct lo_seek *lk = sp->sp_run->sr_seek;
	struct lo *lo = sp->sp_run->sr_lo;
	ctl_seek_args *a = &sp->sp_ctl.dc_req.ctl_request_u.seek;

	sp->sp_ctl.dc_req.op = CTL_OP_SEEK;
	sp->sp_ctl.dc_take = seek_take;
	sp->sp_ctl.dc_done = seek_answer;
	lo_ctl_object(lo, lk->lk_ino, lk->lk_incarnation, &lk->lk_map, sp->sp_obj, &a->object);
	a->offset = lk->lk_off;
	a->hole = lk->lk_hole;
	a->unit = lk->lk_map.lm_unit;
	a->stripes = lk->lk_map.lm_stripes;
	object_call(lo, lk->lk_map.lm_obj[sp->sp_obj].ob_ds, &sp->sp_ctl);
}

void lo_seek(struct lo *lo, struct lo_seek *lk)
{
	unsigned n = lk->lk_map.lm_stripes;
	struct seek_run *sr = calloc(1, sizeof(*sr) + n * sizeof(sr->sr_part[0]));

	if (!sr)
		log_fatal("out of memory while looking for holes");
	lk->lk_found = false;
	lk->lk_failed = 0;
	lk->lk_priv = sr;
	sr->sr_lo = lo;
	sr->sr_seek = lk;
	sr->sr_left = n + 1;
	for (unsigned s = 0; s < n; s++) {
		sr->sr_part[s].sp_run = sr;
		sr->sr_part[s].sp_stripe = s;
		seek_next(&sr->sr_part[s], -ETIMEDOUT);
	}
	seek_put(sr);
}

/* ---- changes ---- */

struct change_part {
	struct ds_reg_ctl chp_ctl;
	struct change_run *chp_run;
	unsigned chp_obj;
	uint64_t chp_at; /* spans before this offset have been requested */
	ctl_status chp_status;
	uint64_t chp_verifier;
	ctl_span *chp_spans; /* spans of the call in progress */
	unsigned chp_nspans;
};
struct change_run {
	struct lo *cr_lo;
	struct lo_change *cr_change;
	struct loop_msg cr_msg;
	unsigned cr_left;
	uint64_t cr_touched, cr_bad; /* bit per object */
	int cr_err, cr_errs[LO_MAX_OBJECTS];
	uint64_t cr_generation;
	unsigned cr_nparts;
	struct change_part cr_part[LO_MAX_OBJECTS];
};

static int change_err(const struct change_run *cr)
{
	const struct lo_change *lc = cr->cr_change;

	if (cr->cr_err)
		return cr->cr_err;
	/* When one copy cannot do the operation, or has no room for an ALLOCATE, the whole
	 * operation fails: either every copy keeps a promise of space, or there is none. */
	for (unsigned i = 0; i < LO_MAX_OBJECTS; i++)
		if ((cr->cr_bad >> i & 1) && lc->lc_map.lm_obj[i].ob_state == LO_IN_SYNC &&
		    (cr->cr_errs[i] == -EOPNOTSUPP ||
		     (lc->lc_kind == LO_ALLOCATE && cr->cr_errs[i] == -ENOSPC)))
			return cr->cr_errs[i];
	return lo_copies_err(&lc->lc_map, cr->cr_touched, cr->cr_bad, false, cr->cr_errs);
}

static void change_end(struct loop_msg *msg)
{
	struct change_run *cr = caa_container_of(msg, struct change_run, cr_msg);
	struct lo_change *lc = cr->cr_change;
	int err = change_err(cr);

	lc->lc_failed_map = err ? 0 : cr->cr_bad;
	lc->lc_half_map = err ? cr->cr_touched : 0;
	lc->lc_verifier = lo_verifier_of(cr->cr_lo, cr->cr_generation);
	for (unsigned i = 0; i < cr->cr_nparts; i++)
		free(cr->cr_part[i].chp_spans);
	free(cr);
	lc->lc_done(lc, err);
}

static void change_put(struct change_run *cr)
{
	if (--cr->cr_left)
		return;
	cr->cr_msg.m_run = change_end;
	loop_post(cr->cr_change->lc_loop, &cr->cr_msg);
}

static void lo_data_change_failed(struct change_part *cp, int err)
{
	struct change_run *cr = cp->chp_run;

	cr->cr_bad |= UINT64_C(1) << cp->chp_obj;
	cr->cr_errs[cp->chp_obj] = err;
	change_put(cr);
}

/* Fills the spans of the next call. For a striped file these are only the object's own units. A
 * hole takes the whole range, because the other units are holes in this object anyway. False: no
 * spans are left. */
static bool change_spans(struct change_part *cp)
{
	const struct lo_change *lc = cp->chp_run->cr_change;
	const struct lo_map *m = &lc->lc_map;
	uint64_t end = lc->lc_off + lc->lc_len;
	bool whole = m->lm_stripes == 1 || lc->lc_kind == LO_DEALLOCATE;

	cp->chp_nspans = 0;
	while (cp->chp_at < end && cp->chp_nspans < CTL_SPANS_MAX) {
		uint64_t next = whole ? end : (cp->chp_at / m->lm_unit + 1) * m->lm_unit;

		next = next < end ? next : end;
		if (whole || lo_stripe_of(m, cp->chp_at) == cp->chp_obj % m->lm_stripes)
			cp->chp_spans[cp->chp_nspans++] =
				(ctl_span){.offset = cp->chp_at,
					   .length = next - cp->chp_at,
					   .from = cp->chp_at - lc->lc_off + lc->lc_from};
		cp->chp_at = next;
	}
	return cp->chp_nspans;
}

/* Returns how many bytes of the file, from an offset to the end of the change, are in this
 * object. */
static uint64_t change_left(const struct change_part *cp, uint64_t from)
{
	const struct lo_change *lc = cp->chp_run->cr_change;
	const struct lo_map *m = &lc->lc_map;
	uint64_t row = (uint64_t)m->lm_unit * m->lm_stripes,
		 rows = (lc->lc_off + lc->lc_len - from) / row, left = rows * m->lm_unit;

	for (uint64_t at = from + rows * row, end = lc->lc_off + lc->lc_len, next; at < end;
	     at = next) {
		next = (at / m->lm_unit + 1) * m->lm_unit;
		next = next < end ? next : end;
		left += lo_stripe_of(m, at) == cp->chp_obj % m->lm_stripes ? next - at : 0;
	}
	return left;
}

static void change_take(struct ds_reg_ctl *c, const ctl_response *res)
{
	struct change_part *cp = caa_container_of(c, struct change_part, chp_ctl);

	cp->chp_status = res->status;
	if (res->status == CTL_OK)
		cp->chp_verifier = res->result.ctl_result_u.change.verifier;
}

static void change_go(struct change_part *cp)
{
	struct change_run *cr = cp->chp_run;
	struct lo_change *lc = cr->cr_change;
	ctl_change_args *a = &cp->chp_ctl.dc_req.ctl_request_u.change;

	a->total = change_left(cp, cp->chp_at);
	if (!change_spans(cp)) {
		change_put(cr);
		return;
	}
	cr->cr_touched |= UINT64_C(1) << cp->chp_obj;
	a->spans.spans_len = cp->chp_nspans;
	a->spans.spans_val = cp->chp_spans;
	object_call(cr->cr_lo, lc->lc_map.lm_obj[cp->chp_obj].ob_ds, &cp->chp_ctl);
}

static void change_answer(struct ds_reg_ctl *c, int err)
{
	struct change_part *cp = caa_container_of(c, struct change_part, chp_ctl);
	struct lo_change *lc = cp->chp_run->cr_change;

	/* The object was never written, so there is nothing to punch. */
	if (!err && cp->chp_status == CTL_NOENT && lc->lc_kind == LO_DEALLOCATE &&
	    !lc->lc_map.lm_obj[cp->chp_obj].ob_known)
		cp->chp_status = CTL_OK;
	if (!err)
		err = ctl_errno(cp->chp_status);
	if (err) {
		lo_data_change_failed(cp, err);
		return;
	}
	lo_verifier_seen(cp->chp_run->cr_lo, lc->lc_map.lm_obj[cp->chp_obj].ob_ds,
			 cp->chp_verifier);
	change_go(cp);
}

static void lo_data_change_start(struct change_run *cr, unsigned obj)
{
	static const ctl_change_type types[] = {[LO_ALLOCATE] = CTL_CHANGE_ALLOCATE,
						[LO_EXTEND] = CTL_CHANGE_EXTEND,
						[LO_DEALLOCATE] = CTL_CHANGE_DEALLOCATE,
						[LO_COPY] = CTL_CHANGE_COPY};
	struct change_part *cp = &cr->cr_part[cr->cr_nparts++];
	struct lo_change *lc = cr->cr_change;
	ctl_change_args *a = &cp->chp_ctl.dc_req.ctl_request_u.change;

	cp->chp_run = cr;
	cp->chp_obj = obj;
	cp->chp_at = lc->lc_off;
	cp->chp_ctl.dc_req.op = CTL_OP_CHANGE;
	cp->chp_ctl.dc_take = change_take;
	cp->chp_ctl.dc_done = change_answer;
	a->instance_epoch = ns_super(cr->cr_lo->l_ns)->su_boot;
	a->type = types[lc->lc_kind];
	a->epoch = lc->lc_map.lm_epoch;
	lo_ctl_object(cr->cr_lo, lc->lc_ino, lc->lc_incarnation, &lc->lc_map, obj, &a->object);
	a->known = lc->lc_map.lm_obj[obj].ob_known ? CTL_KNOWN : 0;
	if (lc->lc_kind == LO_COPY) {
		unsigned source = (unsigned)lo_clone_source(&lc->lc_map, obj, &lc->lc_src_map,
							    lc->lc_src_same);

		lo_ctl_object(cr->cr_lo, lc->lc_src, lc->lc_src_incarnation, &lc->lc_src_map,
			      source, &a->source);
		a->known |= lc->lc_src_map.lm_obj[source].ob_known ? CTL_KNOWN_SOURCE : 0;
	}
	cp->chp_spans = calloc(CTL_SPANS_MAX, sizeof(*cp->chp_spans));
	cr->cr_left++;
	if (cp->chp_spans)
		change_go(cp);
	else
		lo_data_change_failed(cp, -ENOMEM);
}

bool lo_same_row(const struct lo_map *m, uint64_t from, uint64_t to)
{
	return m->lm_stripes == 1 ||
	       (from > to ? from - to : to - from) % ((uint64_t)m->lm_unit * m->lm_stripes) == 0;
}

bool lo_copy_is_local(const struct lo_map *dst, const struct lo_map *src, bool same, uint64_t from,
		      uint64_t to)
{
	if (!lo_same_row(dst, from, to))
		return false;
	for (unsigned s = 0; s < dst->lm_stripes; s++) {
		int obj = lo_copy(dst, s, 0);

		if (obj < 0 || lo_writer(dst, s, 1) >= 0 ||
		    lo_clone_source(dst, (unsigned)obj, src, same) < 0)
			return false;
	}
	return true;
}

void lo_change(struct lo *lo, struct lo_change *lc)
{
	const struct lo_map *m = &lc->lc_map;
	struct change_run *cr = calloc(1, sizeof(*cr));

	if (!cr)
		log_fatal("out of memory for a change of data");
	lc->lc_priv = cr;
	cr->cr_lo = lo;
	cr->cr_generation = atomic_load(&lo->l_generation);
	cr->cr_change = lc;
	cr->cr_left = 1;
	for (unsigned s = 0; s < m->lm_stripes; s++)
		if (lo_copy(m, s, 0) < 0)
			/* no copy in sync: the stripe is unavailable now */
			cr->cr_err = -ETIMEDOUT;
	/* An NFSv3 data server has none of these operations, and the other servers must not do them
	 * alone. */
	if (lo_generic(lo, m))
		cr->cr_err = -EOPNOTSUPP;
	for (unsigned i = 0; !cr->cr_err && i < (unsigned)m->lm_stripes * m->lm_mirrors; i++)
		if (lo_writers(m) >> i & 1)
			lo_data_change_start(cr, i);
	change_put(cr);
}
