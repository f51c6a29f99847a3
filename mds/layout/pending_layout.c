/* SPDX-License-Identifier: Apache-2.0 */
/* pending_layout.c - the pending layout of a restripe; see pending_layout.h. */
#include "mds/layout/pending_layout.h"
#include "mds/layout/lo_int.h"
#include <errno.h>
#include <stdio.h>
#include <urcu/compiler.h>

#define PENDING_VERSION 1
#define STEP_MS		60000
#define END_MS		300000 /* as in repair: END makes the whole object durable */

struct pending_rec {
	uint8_t per_version, per_number;
	uint16_t per_incarnation;
} __attribute__((packed));
_Static_assert(sizeof(struct pending_rec) == 4,
	       "a pending layout, version 1; its map is behind it");

/* ---- the row ---- */

int lo_pending_decode(struct kv_slice id, struct kv_slice val, uint64_t *ino, struct lo_pending *tw)
{
	struct pending_rec r;

	if (id.s_len != 8 || val.s_len < sizeof(r))
		return -EIO;
	memcpy(ino, id.s_data, 8);
	*ino = be64toh(*ino);
	memcpy(&r, val.s_data, sizeof(r));
	if (!*ino || r.per_version != PENDING_VERSION)
		return -EIO;
	tw->tw_incarnation = le16toh(r.per_incarnation);
	tw->tw_number = r.per_number;
	return lo_map_decode(
		(struct kv_slice){(const uint8_t *)val.s_data + sizeof(r), val.s_len - sizeof(r)},
		&tw->tw_map);
}

int lo_pending_get(struct kv_txn *t, uint64_t ino, struct lo_pending *tw)
{
	uint64_t key = htobe64(ino);
	struct kv_slice val;
	int err = ns_row_get(t, NS_T_PENDING, &key, 8, &val);

	return err ? err : lo_pending_decode((struct kv_slice){&key, 8}, val, &ino, tw);
}

bool lo_pending_is(struct kv_txn *t, uint64_t ino)
{
	uint64_t key = htobe64(ino);
	struct kv_slice val;

	return ns_row_get(t, NS_T_PENDING, &key, 8, &val) == 0;
}

int lo_pending_put(struct kv_txn *t, uint64_t ino, const struct lo_pending *tw)
{
	uint8_t buf[sizeof(struct pending_rec) + NS_BLOB_MAX];
	struct pending_rec r = {.per_version = PENDING_VERSION,
				.per_number = tw->tw_number,
				.per_incarnation = htole16(tw->tw_incarnation)};
	size_t len = lo_map_encode(&tw->tw_map, buf + sizeof(r), sizeof(buf) - sizeof(r));
	uint64_t key = htobe64(ino);

	if (!len)
		return -EIO;
	memcpy(buf, &r, sizeof(r));
	return ns_row_put(t, NS_T_PENDING, &key, 8, buf, sizeof(r) + len);
}

int lo_pending_del(struct kv_txn *t, uint64_t ino)
{
	uint64_t key = htobe64(ino);

	return ns_row_del(t, NS_T_PENDING, &key, 8);
}

int lo_pending_free(struct lo *lo, struct kv_txn *t, const struct ns_inode *i)
{
	struct ns_inode of = *i;
	struct lo_pending tw;
	int err = lo_pending_get(t, i->i_ino, &tw);

	if (err == -ENOENT)
		return 0;
	of.i_incarnation = tw.tw_incarnation;
	for (unsigned k = 0; !err && k < lo_objects(&tw.tw_map); k++)
		err = lo_order_free_object(lo, t, &of, &tw.tw_map, k);
	/* the checker finds the objects that a damaged row names */
	return err && err != -EIO ? err : lo_pending_del(t, i->i_ino);
}

struct pending_walk {
	int (*tn_fn)(void *arg, uint64_t ino, const struct lo_pending *tw);
	void *tn_arg;
};

static int pending_one(void *arg, struct kv_slice id, struct kv_slice val)
{
	struct pending_walk *tn = arg;
	struct lo_pending tw;
	uint64_t ino;

	return lo_pending_decode(id, val, &ino, &tw) ? 0 : tn->tn_fn(tn->tn_arg, ino, &tw);
}

int lo_pendings(struct kv_txn *t, uint64_t from,
		int (*fn)(void *arg, uint64_t ino, const struct lo_pending *tw), void *arg)
{
	struct pending_walk tn = {fn, arg};
	uint64_t key = htobe64(from);

	return ns_rows(t, NS_T_PENDING, &key, 8, pending_one, &tn);
}

bool lo_pending_same(const struct lo_pending *a, const struct lo_pending *b)
{
	if (a->tw_incarnation != b->tw_incarnation ||
	    a->tw_map.lm_stripes != b->tw_map.lm_stripes ||
	    a->tw_map.lm_mirrors != b->tw_map.lm_mirrors || a->tw_map.lm_unit != b->tw_map.lm_unit)
		return false;
	for (unsigned k = 0; k < lo_objects(&a->tw_map); k++)
		if (a->tw_map.lm_obj[k].ob_ds != b->tw_map.lm_obj[k].ob_ds ||
		    a->tw_map.lm_obj[k].ob_copy != b->tw_map.lm_obj[k].ob_copy)
			return false;
	return true;
}

int lo_pending_place(struct lo *lo, const struct ns_inode *i, const struct lo_map *m,
		     unsigned stripes, uint32_t unit, unsigned copy, uint32_t patience_ms,
		     struct lo_pending *tw, char *err, size_t errlen)
{
	struct lo_policy p;
	int e;

	if (i->i_incarnation > UINT16_MAX - NS_PLACED_AGAIN)
		return snprintf(err, errlen,
				"the file was placed again too often; copy it to a new file"),
		       -EINVAL;
	if (lo_map_policy(m, &p))
		return snprintf(err, errlen, "the policy stored with the file is damaged"), -EINVAL;
	p.lp_stripes = (uint8_t)stripes;
	p.lp_unit = unit;
	e = lo_policy_check(lo, &p, err, errlen);
	if (!e)
		e = lo_place(lo, &p, i->i_ino, patience_ms, &tw->tw_map);
	if (e == -EAGAIN || e == -ENOSPC)
		snprintf(err, errlen, "its policy needs data servers that are not available now");
	if (!e && (lo_generic(lo, m) || lo_generic(lo, &tw->tw_map)))
		return snprintf(
			       err, errlen,
			       "it is or would be on a generic data server, and those cannot copy"),
		       -EINVAL;
	if (e)
		return e;
	tw->tw_incarnation = (uint16_t)(i->i_incarnation + NS_PLACED_AGAIN);
	tw->tw_number = (uint8_t)copy;
	/* Objects of an earlier pending layout may still be on their way to deletion, so use other
	 * copy numbers. */
	for (unsigned k = 0; k < lo_objects(&tw->tw_map); k++)
		tw->tw_map.lm_obj[k].ob_copy = (uint8_t)(copy + k / stripes);
	tw->tw_map.lm_next = (uint8_t)(copy + tw->tw_map.lm_mirrors);
	return 0;
}

/* ---- calls to data servers ---- */

static int anew_err(ctl_status st)
{
	switch (st) {
	case CTL_OK:
		return 0;
	case CTL_BAD_SESSION:
		return -ESTALE;
	case CTL_SOURCE:
		return -EREMOTEIO;
	case CTL_NOSPC:
		return -ENOSPC;
	case CTL_NOT_JOINED:
	case CTL_STALE_INSTANCE:
		return -ETIMEDOUT;
	default:
		return -EIO;
	}
}

/* Copies the spans, because they belong to the connection. */
static void anew_take(struct ds_reg_ctl *c, const ctl_response *res)
{
	struct lo_restripe_io *an = caa_container_of(c, struct lo_restripe_io, an_ctl);

	an->an_status = res->status;
	if (res->status != CTL_OK)
		return;
	if (c->dc_req.op == CTL_OP_FILL) {
		an->an_filled = res->result.ctl_result_u.fill;
		return;
	}
	an->an_taken = res->result.ctl_result_u.watch;
	an->an_nspan = an->an_taken.spans.spans_len < CTL_SPANS_MAX ? an->an_taken.spans.spans_len
								    : CTL_SPANS_MAX;
	if (an->an_nspan)
		memcpy(an->an_span, an->an_taken.spans.spans_val,
		       an->an_nspan * sizeof(an->an_span[0]));
}

static void anew_done(struct ds_reg_ctl *c, int err)
{
	struct lo_restripe_io *an = caa_container_of(c, struct lo_restripe_io, an_ctl);

	an->an_done(an, err ? -ETIMEDOUT : anew_err(an->an_status));
}

void lo_watch(struct lo *lo, struct lo_restripe_io *an, const struct ns_inode *i,
	      const struct lo_map *m, unsigned obj, int step, uint64_t session)
{
	ctl_watch_args *a = &an->an_ctl.dc_req.ctl_request_u.watch;

	memset(&an->an_ctl, 0, sizeof(an->an_ctl));
	an->an_ctl.dc_req.op = CTL_OP_WATCH;
	an->an_ctl.dc_take = anew_take;
	an->an_ctl.dc_done = anew_done;
	a->instance_epoch = ns_super(lo->l_ns)->su_boot;
	a->step = (ctl_watch_step)step;
	a->session = session;
	lo_ctl_object(lo, i->i_ino, i->i_incarnation, m, obj, &a->object);
	ds_reg_call(lo->l_dsc, m->lm_obj[obj].ob_ds, &an->an_ctl, STEP_MS);
}

/* Fills in the source. The target refuses an unknown source. */
static void pending_layout_source_of(struct lo *lo, struct lo_restripe_io *an,
				     const struct ns_inode *i, const struct lo_map *m,
				     uint32_t reader, ctl_peer *p)
{
	struct ds_reg_server *sv = &an->an_peer;

	if (!lo_ctl_peer(lo, m->lm_obj[an->an_source].ob_ds, reader, sv, an->an_addrs, an->an_key,
			 p))
		return;
	lo_mint(lo, sv, i->i_ino, i->i_incarnation, m, an->an_source,
		CAP_READ | (m->lm_stripes > 1 ? CAP_STRIPED : 0), 0, (uint8_t *)p->handle);
}

void lo_fill(struct lo *lo, struct lo_restripe_io *an, const struct ns_inode *i,
	     const struct lo_map *m, const struct lo_pending *tw, bool end, uint64_t size)
{
	ctl_fill_args *a = &an->an_ctl.dc_req.ctl_request_u.fill;

	memset(&an->an_ctl, 0, sizeof(an->an_ctl));
	memset(&an->an_filled, 0, sizeof(an->an_filled));
	an->an_ctl.dc_req.op = CTL_OP_FILL;
	an->an_ctl.dc_take = anew_take;
	an->an_ctl.dc_done = anew_done;
	a->instance_epoch = ns_super(lo->l_ns)->su_boot;
	lo_ctl_object(lo, i->i_ino, tw->tw_incarnation, &tw->tw_map, an->an_target, &a->object);
	a->spans.spans_len = an->an_nspan;
	a->spans.spans_val = an->an_span;
	a->end = end;
	a->size = size;
	if (an->an_nspan)
		pending_layout_source_of(lo, an, i, m, tw->tw_map.lm_obj[an->an_target].ob_ds,
					 &a->source);
	ds_reg_call(lo->l_dsc, tw->tw_map.lm_obj[an->an_target].ob_ds, &an->an_ctl,
		    end ? END_MS : STEP_MS);
}
