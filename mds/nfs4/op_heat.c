/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op_heat.c - what a COMPOUND does, counted by client, directory, file, export and tag
 * (mds/jobs/heat.h, mds/jobs/tag.h).
 */
#include "mds/nfs4/op_heat.h"
#include "mds/jobs/tag.h"

#define EXPORT_ONE_IN 8u

/* Operations that are work in a directory: the current file handle before them. */
static bool names_something(uint32_t opnum)
{
	switch (opnum) {
	case OP_LOOKUP:
	case OP_CREATE:
	case OP_REMOVE:
	case OP_RENAME:
	case OP_LINK:
	case OP_READDIR:
		return true;
	}
	return false;
}

static void once(struct compound *c, enum heat_kind kind, uint64_t ino)
{
	if (kind == HEAT_DIR)
		c->heat_dir = ino;
	heat_work(c->th, kind, ino, 1);
}

void op_heat_op(struct compound *c)
{
	c->heat_from = c->cur;
	if (c->session)
		job_tag_of(c->m, c->client);
	if (c->cur && c->session && names_something(c->opnum) && !exp_is_pseudo(c->exp))
		once(c, HEAT_DIR, c->cur);
}

/* OPEN came by a name in a directory, or by the file's own handle. */
void op_heat_opened(struct compound *c)
{
	if (c->heat_from && c->heat_from != c->cur)
		once(c, HEAT_DIR, c->heat_from);
	once(c, HEAT_FILE, c->cur);
}

/* what: of mds_thread.mt_export */
static void export_add(struct compound *c, unsigned what, uint64_t n)
{
	_Atomic uint64_t *p = &c->th->mt_export[c->exp->g_slot][what];

	atomic_store_explicit(p, atomic_load_explicit(p, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

void op_heat_compound(struct compound *c, uint64_t us)
{
	unsigned tag;

	if (!c->session)
		return;
	if (c->cur) {
		export_add(c, 0, c->at);
		/* The metrics count all; for weft top one in a few stands for them, as its rates
		 * need no more. */
		if (c->th->mt_heat_turn++ % EXPORT_ONE_IN == 0)
			heat_took(c->th, HEAT_EXPORT, c->exp->g_slot, c->at * EXPORT_ONE_IN, us);
	}
	heat_took(c->th, HEAT_CLIENT, c->client->cl_id, c->at, us);
	tag = job_tag_of(c->m, c->client);
	if (tag) {
		job_tag_count(c->th, tag, c->at, 0, 0);
		heat_took(c->th, HEAT_TAG, tag, c->at, us);
	}
	if (c->heat_dir)
		heat_took(c->th, HEAT_DIR, c->heat_dir, 0, us);
}

/* The tag was looked up when the operation began (op_heat_op). */
static void data(struct compound *c, const struct ns_inode *i, uint64_t read, uint64_t written,
		 uint64_t over_ms)
{
	unsigned tag = job_tag_seen(c->client);

	export_add(c, 1, read);
	export_add(c, 2, written);
	heat_bytes(c->th, HEAT_EXPORT, c->exp->g_slot, read, written, over_ms);
	if (tag) {
		job_tag_count(c->th, tag, 0, read, written);
		heat_bytes(c->th, HEAT_TAG, tag, read, written, over_ms);
	}
	heat_bytes(c->th, HEAT_CLIENT, c->client->cl_id, read, written, over_ms);
	heat_bytes(c->th, HEAT_FILE, i->i_ino, read, written, over_ms);
	heat_bytes(c->th, HEAT_DIR, i->i_parent, read, written, over_ms);
}

void op_heat_io(struct compound *c, const struct ns_inode *i, uint64_t bytes, bool write)
{
	data(c, i, write ? 0 : bytes, write ? bytes : 0, 0);
}

void op_heat_report(struct compound *c, uint32_t ds, const struct heat_report *read,
		    const struct heat_report *write, uint64_t held_ms, bool last)
{
	struct heat_report r = *read, w = *write;
	struct ns_inode i;

	if (ns_get(c->m->m_ns, op_txn(c), c->cur, &i) ||
	    !heat_news(c->th, c->client->cl_id, c->cur, ds, &r, &w, &held_ms, last))
		return;
	data(c, &i, r.ht_bytes, w.ht_bytes, held_ms);
	heat_reported(c->th, ds, &r, &w, held_ms);
}
