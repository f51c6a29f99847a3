/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layoutstats.c - what clients report of their I/O: LAYOUTSTATS (RFC 7862 section 15.7) and the
 * statistics in a LAYOUTRETURN (RFC 8435 section 9.2).
 *
 * A client may err or lie, so these reports only steer: the time of reads from a data server is one
 * of the things that choose a client's first copy, within bounds (mds/layout/read_order.c). Linux
 * reports sums since it got the layout.
 */
#include "mds/nfs4/op_heat.h"
#include "mds/nfs4/op_state.h"

/* A larger request counts as several, so that a server of large reads does not look slow. */
#define STATS_UNIT 65536u

struct io_latency {
	uint64_t il_ops, il_bytes, il_us; /* completed; sum of the times that each took */
};

static uint64_t get_us(struct xdr_in *x)
{
	uint64_t s = xdr_get_u64(x);
	uint32_t ns = xdr_get_u32(x);

	return s > UINT64_MAX / 2000000 ? 0 : s * 1000000 + ns / 1000;
}

/* ff_io_latency4 (RFC 8435 section 9.2.1) */
static struct io_latency get_latency(struct xdr_in *x)
{
	struct io_latency il;

	xdr_get_u64(x); /* requested: operations, bytes */
	xdr_get_u64(x);
	il.il_ops = xdr_get_u64(x);
	il.il_bytes = xdr_get_u64(x);
	xdr_get_u64(x); /* bytes not delivered */
	get_us(x);	/* total busy time */
	il.il_us = get_us(x);
	return il;
}

/* ff_layoutupdate4 (section 9.2.2). Returns what it says of reads. held_us: for how long the client
 * had the layout. */
static struct io_latency get_update(struct xdr_in *x, struct io_latency *written, uint64_t *held_us)
{
	struct io_latency read;
	uint32_t len;

	xdr_get_opaque(x, 64, &len);	      /* netid */
	xdr_get_opaque(x, 256, &len);	      /* uaddr */
	xdr_get_opaque(x, NFS4_FHSIZE, &len); /* fh */
	read = get_latency(x);
	*written = get_latency(x);
	*held_us = get_us(x);
	xdr_get_bool(x);
	return read;
}

/* last: the report came with the return of the layout. */
static void layoutstats_note(struct compound *c, const uint8_t dev[16], const struct io_latency *il,
			     const struct io_latency *written, uint64_t held_us, bool last)
{
	const struct heat_report r = {il->il_ops, il->il_bytes, il->il_us},
				 w = {written->il_ops, written->il_bytes, written->il_us};
	uint64_t n = il->il_ops > UINT64_MAX / 2 ? UINT64_MAX / 2 : il->il_ops,
		 more = il->il_bytes / STATS_UNIT, us;
	uint32_t ds = ds_reg_number(c->m->m_dsc, dev);

	if (!ds)
		return;
	if (c->cur)
		op_heat_report(c, ds, &r, &w, held_us / 1000, last);
	n = more > n ? more : n;
	if (!n || !il->il_us)
		return;
	us = il->il_us / n;
	ds_reg_note_latency(c->m->m_dsc, ds, us > UINT32_MAX ? UINT32_MAX : (uint32_t)us);
}

/* ff_iostats4 (section 9.2.3) */
void op_get_iostats(struct compound *c, struct xdr_in *x, bool counts)
{
	const uint8_t *dev;
	struct io_latency il, written;
	uint64_t held_us;

	xdr_get_u64(x); /* offset, length, stateid */
	xdr_get_u64(x);
	xdr_get_fixed(x, 16);
	for (int k = 0; k < 4; k++)
		xdr_get_u64(x); /* read and write: counts and bytes */
	dev = xdr_get_fixed(x, 16);
	il = get_update(x, &written, &held_us);
	if (!x->bad && counts)
		layoutstats_note(c, dev, &il, &written, held_us, true);
}

nfsstat4 op_layoutstats(struct compound *c)
{
	struct io_latency il, written;
	struct st_stateid sid;
	const uint8_t *dev, *data;
	struct xdr_in body;
	uint32_t type, len;
	uint64_t held_us;

	xdr_get_u64(c->in);
	xdr_get_u64(c->in);
	op_get_stateid(c->in, &sid);
	for (int k = 0; k < 4; k++)
		xdr_get_u64(c->in);
	dev = xdr_get_fixed(c->in, 16);
	type = xdr_get_u32(c->in);
	data = xdr_get_opaque(c->in, 65536, &len);
	if (c->in->bad)
		return NFS4ERR_BADXDR;
	if (!c->cur)
		return NFS4ERR_NOFILEHANDLE;
	if (type != LAYOUT4_FLEX_FILES)
		return NFS4_OK;
	xdr_in_init(&body, data, len);
	il = get_update(&body, &written, &held_us);
	if (body.bad)
		return NFS4ERR_BADXDR;
	layoutstats_note(c, dev, &il, &written, held_us, false);
	return NFS4_OK;
}
