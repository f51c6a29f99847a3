/* SPDX-License-Identifier: Apache-2.0 */
/*
 * move.c - moves objects to other servers, and removes mirrors (docs/moving.md): the steps beside
 * repair. The file's map says what is to be done, and repair.c's jobs call this.
 *
 * The switch changes which object is which copy, and deletes some objects. So all layouts are back
 * and all earlier capabilities fenced. Requests under way through the MDS are done again
 * (f_sizegen), as they would count objects as they were. Before the switch all copies are on stable
 * storage (COMMIT). A client that wrote through the MDS, and has not sent COMMIT yet, sends it to
 * the copies that stay.
 */
#include "mds/file/mirror_state.h"
#include "mds/jobs/repair.h"
#include "mds/journal/event_journal.h"
#include "mds/layout/mirror_change.h"
#include <errno.h>

enum job_move_what job_move_look(struct mds *m, uint64_t ino, const struct lo_map *map,
				 const char **why)
{
	struct lo_map wide = *map;
	bool taking;
	int n;

	*why = "waiting for its turn";
	if (lo_switch_ready(map)) {
		*why = "one of its data servers is away and still has its lease";
		if (lo_fence_hangs(m->m_lo, map))
			return OP_MOVE_WAITS;
		/* Readers use this copy, and its server lives. */
		*why = "two clients write it, and the copy that readers use would be removed";
		if (lo_first_leaves(map) && file_is_contended(&m->m_file, ino, map, &taking))
			return OP_MOVE_WAITS;
		*why = "a data server of the remaining copies is away";
		return lo_switch_lives(m->m_lo, map) ? OP_MOVE_SWITCH : OP_MOVE_WAITS;
	}
	if (map->lm_pending_mirror) {
		*why = "waiting for the copy";
		return OP_MOVE_WAITS;
	}
	for (unsigned s = 0; s < map->lm_stripes; s++) {
		if (lo_leaving(map, s) >= 0) {
			*why = "no other copy is in sync";
			return OP_MOVE_WAITS;
		}
	}
	n = lo_move_begin(m->m_lo, &wide);
	if (n > 0 || (!n && (map->lm_move || map->lm_from)))
		return OP_MOVE_BEGIN;
	if (!n)
		return OP_MOVE_NOTHING;
	*why = n == -EFBIG ? "its layout has no room for one more copy"
			   : "no data server is alive that has free space, no copy of it, and fits "
			     "its policy";
	return OP_MOVE_WAITS;
}

static void move_end(struct op_move *mv, int err)
{
	excl_end(&mv->mv_freeze, 0);
	mv->mv_then(mv->mv_arg, err);
}

static void move_outdated(struct op_move *mv)
{
	struct st *st = mv->mv_m->m_st;
	struct st_file *f;

	st_file_lock(st, mv->mv_ino);
	f = st_file_get(st, mv->mv_ino, false); /* the freeze keeps it */
	f->f_sizegen++;
	f->f_unread = f->f_unreached = 0; /* bits by object index, which changes */
	st_file_unlock(st, mv->mv_ino);
}

static void add_name(struct mds *m, uint32_t ds, char out[EV_SUBJECT_MAX + 1])
{
	struct ds_reg_server sv;

	if (ds_reg_get(m->m_dsc, ds, &sv) &&
	    strlen(out) + strlen(sv.sv_name) + 1 <= EV_SUBJECT_MAX && !strstr(out, sv.sv_name))
		strcat(strcat(out, *out ? "," : ""), sv.sv_name);
}

/* Writes the event: what the switch is about to do. */
static int move_note(struct mds *m, struct kv_txn *t, uint64_t ino, const struct lo_map *map)
{
	char from[EV_SUBJECT_MAX + 1] = "", to[EV_SUBJECT_MAX + 1] = "";
	unsigned n = 0, mirror = 0;

	for (unsigned k = 0; k < lo_objects(map); k++) {
		if (map->lm_obj[k].ob_leaving) {
			add_name(m, map->lm_obj[k].ob_ds, from);
			mirror = k / map->lm_stripes;
			n++;
		} else if (map->lm_pending_mirror && k / map->lm_stripes == map->lm_mirrors - 1u) {
			add_name(m, map->lm_obj[k].ob_ds, to);
		}
	}
	if (!map->lm_pending_mirror)
		return journal_put(t, EV_FILE_MOVED, from, ino, "mirror %u was removed", mirror);
	return journal_put(t, EV_FILE_MOVED, from, ino, "%u object%s moved to %s", n,
			   n > 1 ? "s" : "", to);
}

/* Decides again in the transaction: so far only a snapshot said that this step can be done. */
static int move_run(struct kv_op *op, struct kv_txn *t)
{
	struct op_move *mv = hash_entry(op, struct op_move, mv_op);
	struct mds *m = mv->mv_m;
	struct lo_repair row;
	struct lo_map map;
	struct ns_inode i;
	const char *why;
	int err = ns_get(m->m_ns, t, mv->mv_ino, &i);

	if (!err)
		err = lo_map_decode(i.i_blob, &map);
	if (err)
		return err;
	switch (job_move_look(m, mv->mv_ino, &map, &why)) {
	case OP_MOVE_SWITCH:
		if (!mv->mv_freeze.ex_held)
			return -EAGAIN;
		move_outdated(mv);
		err = move_note(m, t, mv->mv_ino, &map);
		if (!err)
			err = lo_switch(m->m_lo, t, &i, &map);
		mv->mv_switched = true;
		break;
	case OP_MOVE_BEGIN:
		err = lo_move_begin(m->m_lo, &map) < 0 ? -EAGAIN : 0;
		break;
	default:
		return -EAGAIN;
	}
	if (!err)
		err = file_set_map(&m->m_file, t, mv->mv_ino, &map, file_now());
	if (err)
		return err;
	/* The row names an object by its index, so it starts from zero. */
	row = (struct lo_repair){0};
	if (lo_repair_get(t, mv->mv_ino, &row) == 0)
		row = (struct lo_repair){.rr_now = row.rr_now};
	return lo_map_whole(&map) && !lo_misplaced(m->m_lo, &map)
		       ? lo_repair_del(t, mv->mv_ino)
		       : lo_repair_put(t, mv->mv_ino, &row);
}

static void move_done(struct kv_op *op, int err)
{
	struct op_move *mv = hash_entry(op, struct op_move, mv_op);

	if (!err && mv->mv_switched)
		lo_orders_wake(mv->mv_m->m_lo);
	move_end(mv, err);
}

static void move_submit(struct op_move *mv)
{
	mv->mv_op = (struct kv_op){.o_run = move_run, .o_done = move_done, .o_loop = mv->mv_loop};
	kv_submit(mv->mv_m->m_kv, &mv->mv_op);
}

/* Makes stale the copies that stay and could not keep what was written: the move cannot go on with
 * them. */
static int move_unkept_run(struct kv_op *op, struct kv_txn *t)
{
	struct op_move *mv = hash_entry(op, struct op_move, mv_op);

	return file_make_stale(&mv->mv_m->m_file, t, mv->mv_ino, &mv->mv_io.io_map,
			       mv->mv_io.io_failed_map);
}

static void move_unkept_done(struct kv_op *op, int err)
{
	move_end(hash_entry(op, struct op_move, mv_op), err ? err : -EAGAIN);
}

static void move_kept(struct lo_io *io, int err)
{
	struct op_move *mv = hash_entry(io, struct op_move, mv_io);
	uint64_t stays = 0;

	for (unsigned k = 0; k < lo_objects(&io->io_map); k++)
		stays |= io->io_map.lm_obj[k].ob_leaving ? 0 : UINT64_C(1) << k;
	if (err || io->io_failed_map)
		lo_may_have_lost(mv->mv_m->m_lo);
	/* A copy whose server is away may have kept it. If it lacks data, clients that find our
	 * verifier changed write that data again, and then the copy becomes stale. */
	io->io_failed_map &= stays & lo_map_alive(mv->mv_m->m_lo, &io->io_map);
	if (err) {
		move_end(mv, err);
	} else if (io->io_failed_map) {
		mv->mv_op = (struct kv_op){.o_run = move_unkept_run,
					   .o_done = move_unkept_done,
					   .o_loop = mv->mv_loop};
		kv_submit(mv->mv_m->m_kv, &mv->mv_op);
	} else {
		move_submit(mv);
	}
}

static void move_frozen(void *arg, int err)
{
	struct op_move *mv = arg;
	struct ns_inode i;
	struct kv_txn *t;

	if (!err)
		err = kv_read_begin(mv->mv_m->m_kv, &t);
	if (err) {
		move_end(mv, err);
		return;
	}
	err = ns_get(mv->mv_m->m_ns, t, mv->mv_ino, &i);
	if (!err)
		err = lo_map_decode(i.i_blob, &mv->mv_io.io_map);
	if (!err)
		lo_io_fill(&mv->mv_io, mv->mv_loop, &i, 0, 0, move_kept);
	kv_read_end(t);
	if (err)
		move_end(mv, err);
	else
		lo_commit(mv->mv_m->m_lo, &mv->mv_io);
}

void job_move_step(struct op_move *mv, struct mds *m, struct loop *loop, uint64_t ino,
		   enum job_move_what what, void (*then)(void *arg, int err), void *arg)
{
	memset(mv, 0, sizeof(*mv));
	mv->mv_m = m;
	mv->mv_loop = loop;
	mv->mv_ino = ino;
	mv->mv_then = then;
	mv->mv_arg = arg;
	if (what == OP_MOVE_SWITCH)
		excl_begin(&mv->mv_freeze, &m->m_file, loop, ino, NULL, EXCL_LAYOUTS, move_frozen,
			   mv);
	else
		move_submit(mv);
}
