/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unread.c - ends endless retries of clients. A client whose every copy has failed returns its
 * layout with the errors and sends LAYOUTGET again, for ever. So this file remembers for a while
 * what a client could not read (docs/mirrors.md, "Reading"), and which data servers a client does
 * not reach (docs/device-failure.md).
 */
#include "base/clock.h"
#include "mds/nfs4/op.h"
#include "mds/nfs4/op_state.h"
#include "mds/jobs/repair.h"
#include <errno.h>

#define UNREAD_NS 5000000000ull

/* ACCESS comes from a fence, or from a server without a lease: the next layout will be good. */
static bool unread_failed(const struct op_dev_error *e)
{
	return e->ode_opnum == OP_READ && e->ode_status && e->ode_status != NFS4ERR_ACCESS &&
	       e->ode_status != NFS4ERR_NXIO && e->ode_status != NFS4ERR_DELAY;
}

void op_unread_report(struct compound *c, uint64_t ino, const struct op_dev_error *e, unsigned n)
{
	struct st *st = c->m->m_st;
	uint64_t unread = 0, unreached = 0;
	struct ds_reg_server sv;
	struct ns_inode i;
	struct lo_map map;
	struct st_file *f;

	if (!n || ns_get(c->m->m_ns, op_txn(c), ino, &i) || i.i_type != NS_REG ||
	    lo_map_decode(i.i_blob, &map))
		return;
	for (unsigned k = 0; k < n; k++) {
		if (e[k].ode_opnum != OP_READ || !ds_reg_get_uuid(c->m->m_dsc, e[k].ode_dev, &sv))
			continue;
		if (unread_failed(&e[k]))
			unread |= lo_map_on(&map, sv.sv_id);
		else if (e[k].ode_status == NFS4ERR_NXIO)
			unreached |= lo_map_on(&map, sv.sv_id);
	}
	if (!(unread | unreached))
		return;
	st_file_lock(st, ino);
	f = st_file_get(st, ino, false); /* none without open or layout: then no LAYOUTGET comes */
	if (f) {
		if (f->f_unread_client != c->client->cl_id ||
		    clock_mono_ns() >= f->f_unread_until_ns)
			f->f_unread = f->f_unreached = 0;
		f->f_unread |= unread;
		f->f_unreached |= unreached;
		f->f_unread_client = c->client->cl_id;
		f->f_unread_until_ns = clock_mono_ns() + UNREAD_NS;
	}
	st_file_unlock(st, ino);
}

/* Silence alone is no error: a server may come back. A server is gone when an administrator killed
 * or forgot it, or when it was silent for mds.io_error_after. */
bool op_all_gone(struct mds *m, const struct lo_map *map)
{
	uint64_t gone_ms = atomic_load_explicit(&m->m_gone_ms, memory_order_relaxed);

	for (unsigned s = 0; s < map->lm_stripes; s++) {
		bool left = false;
		int k;

		for (unsigned r = 0; (k = lo_copy(map, s, r)) >= 0; r++)
			left |= ds_reg_since_heartbeat_ms(m->m_dsc, map->lm_obj[k].ob_ds) < gone_ms;
		if (!left)
			return true;
	}
	return false;
}

nfsstat4 op_read_status(struct mds *m, const struct lo_map *map, int err)
{
	return err == -ETIMEDOUT && op_all_gone(m, map) ? NFS4ERR_IO : op_data_status(err);
}

nfsstat4 op_unread(struct compound *c, uint64_t ino, const struct lo_map *map)
{
	struct st *st = c->m->m_st;
	uint64_t unread = 0, unreached = 0, alive = lo_map_alive(c->m->m_lo, map);
	nfsstat4 status = NFS4_OK;
	const struct st_file *f;
	bool same;

	if (op_all_gone(c->m, map))
		return NFS4ERR_IO;
	st_file_lock(st, ino);
	f = st_file_get(st, ino, false);
	if (f && f->f_unread_client == c->client->cl_id && clock_mono_ns() < f->f_unread_until_ns) {
		unread = f->f_unread;
		unreached = f->f_unreached;
	}
	same = f && f->f_contended;
	st_file_unlock(st, ino);
	for (unsigned s = 0; (unread | unreached) && s < map->lm_stripes && status != NFS4ERR_IO;
	     s++) {
		uint64_t copies = 0;
		int k;

		for (unsigned r = 0; (k = lo_copy(map, s, r)) >= 0; r++)
			copies |= 1ull << k;
		/* Where the copies may differ only the first one is read. The metadata server tries
		 * that copy as well; if it cannot read it, another copy becomes the first. */
		if (same && (k = lo_copy(map, s, 0)) >= 0 && lo_copy(map, s, 1) >= 0) {
			if ((unread | (unreached & alive)) >> k & 1)
				status = NFS4ERR_LAYOUTUNAVAILABLE;
			continue;
		}
		if (copies & ~(unread | unreached))
			continue;
		/* Where only the metadata server reaches a copy, the client reads through it. A
		 * copy that the metadata server does not reach either may come back. */
		if (copies & ~unread & alive)
			status = NFS4ERR_LAYOUTUNAVAILABLE;
		else if (!(copies & ~unread))
			status = NFS4ERR_IO;
	}
	return status;
}

/* ---- data servers that only this client does not reach ---- */

/* A report comes some time after the failure. A server that was restarted shortly before the report
 * may be reachable now, so it does not count. */
#define STOOD_MS 5000u

/* locked: finds the entry of a data server, or the one to use for it. */
static struct st_unreached *unreached_entry(struct st_unreached *list, uint32_t ds)
{
	struct st_unreached *oldest = list;

	for (unsigned k = 0; k < ST_UNREACHED; k++) {
		if (list[k].un_ds == ds)
			return &list[k];
		if (list[k].un_at_ms < oldest->un_at_ms)
			oldest = &list[k];
	}
	return oldest;
}

static void note_unreached(struct compound *c, uint32_t ds, uint64_t now)
{
	struct st *st = c->m->m_st;
	struct st_client *cl = c->client;

	st_all_lock(st);
	if (!atomic_load(&cl->cl_unreached))
		atomic_store(&cl->cl_unreached, calloc(ST_UNREACHED, sizeof(*cl->cl_unreached)));
	if (atomic_load(&cl->cl_unreached))
		*unreached_entry(atomic_load(&cl->cl_unreached), ds) =
			(struct st_unreached){ds, now};
	st_all_unlock(st);
}

void op_unreached_report(struct compound *c, const struct op_dev_error *e, unsigned n)
{
	uint64_t now = clock_mono_ms();
	struct ds_reg_server sv;

	for (unsigned k = 0; k < n; k++) {
		if (e[k].ode_status != NFS4ERR_NXIO)
			continue;
		ds_reg_reported(c->m->m_dsc,
				e[k].ode_dev); /* then a query shows whether it lives */
		if (now > STOOD_MS && ds_reg_get_uuid(c->m->m_dsc, e[k].ode_dev, &sv) &&
		    ds_reg_reached(c->m->m_dsc, sv.sv_id, now - STOOD_MS))
			note_unreached(c, sv.sv_id, now);
	}
}

bool op_unreached(struct compound *c, const struct lo_map *map)
{
	uint64_t now = clock_mono_ms(), bits = lo_writers(map);
	struct st_unreached list[ST_UNREACHED];
	struct st *st = c->m->m_st;
	uint32_t unreached_ms;

	if (!atomic_load(&c->client->cl_unreached))
		return false;
	unreached_ms = atomic_load_explicit(&c->m->m_unreached_ms, memory_order_relaxed);
	/* Writers of cl_unreached hold all locks, so any one lock is enough to read it. */
	st_look_lock(st);
	memcpy(list, atomic_load(&c->client->cl_unreached), sizeof(list));
	st_look_unlock(st);
	for (unsigned i = 0; i < lo_objects(map); i++)
		for (unsigned k = 0; bits >> i & 1 && k < ST_UNREACHED; k++)
			if (list[k].un_ds == map->lm_obj[i].ob_ds &&
			    now - list[k].un_at_ms < unreached_ms &&
			    ds_reg_reached(c->m->m_dsc, list[k].un_ds, list[k].un_at_ms))
				return true;
	return false;
}

nfsstat4 op_dead_status(struct mds *m, const struct lo_map *map, bool write)
{
	uint64_t dead = lo_map_dead(m->m_lo, map);

	if (!dead)
		return NFS4_OK;
	if (op_all_gone(m, map))
		return NFS4ERR_IO;
	if (lo_map_unavailable(m->m_lo, map))
		return NFS4ERR_LAYOUTTRYLATER;
	/* A server died after this LAYOUTGET began. At the next one the object is stale. */
	return write ? NFS4ERR_RECALLCONFLICT : NFS4_OK;
}
