/* SPDX-License-Identifier: Apache-2.0 */
/* copies.c - which copies of a file are in sync: the map, its row for repair, the journal. See
 * file.h. */
#include "base/log.h"
#include "mds/journal/event_journal.h"
#include "mds/file/file.h"
#include "mds/layout/repair_row.h"
#include <errno.h>

struct ns_time file_now(void)
{
	return ns_now();
}

/* Reports in the journal which objects became stale, and which are in sync again. */
static int note_states(const struct file_env *fe, struct kv_txn *t, uint64_t ino,
		       const struct lo_map *old, const struct lo_map *map)
{
	char stale[EV_SUBJECT_MAX + 1] = "", whole[EV_SUBJECT_MAX + 1] = "";
	unsigned nstale = 0, nwhole = 0;
	int err = 0;

	for (unsigned k = 0; k < (unsigned)map->lm_stripes * map->lm_mirrors; k++) {
		const struct lo_object *o = &map->lm_obj[k];
		int was = lo_object_of(old, o->ob_ds, k % map->lm_stripes, o->ob_copy);
		struct ds_reg_server sv;
		char *to;

		if (was < 0 || old->lm_obj[was].ob_state == o->ob_state ||
		    o->ob_state == LO_REBUILDING)
			continue;
		to = o->ob_state == LO_STALE ? stale : whole;
		*(o->ob_state == LO_STALE ? &nstale : &nwhole) += 1;
		if (ds_reg_get(fe->fe_dsc, o->ob_ds, &sv) &&
		    strlen(to) + strlen(sv.sv_name) + 1 <= EV_SUBJECT_MAX &&
		    !strstr(to, sv.sv_name))
			strcat(strcat(to, *to ? "," : ""), sv.sv_name);
	}
	if (nstale)
		err = journal_put(t, EV_COPY_STALE, stale, ino, "%u object%s became stale", nstale,
				  nstale > 1 ? "s" : "");
	if (nwhole && !err)
		err = journal_put(t, EV_COPY_REPAIRED, whole, ino, "%u object%s in sync again",
				  nwhole, nwhole > 1 ? "s are" : " is");
	return err;
}

/* Once a copy comes into sync, f_moved no longer counts the same writes for all copies: clears
 * f_counts. */
static void counts_are_off(const struct file_env *fe, uint64_t ino, const struct lo_map *old,
			   const struct lo_map *map)
{
	struct st_file *f;
	bool joined = false;

	for (unsigned k = 0; k < lo_objects(map); k++) {
		int was = lo_object_of(old, map->lm_obj[k].ob_ds, k % map->lm_stripes,
				       map->lm_obj[k].ob_copy);

		joined |= map->lm_obj[k].ob_state == LO_IN_SYNC &&
			  (was < 0 || old->lm_obj[was].ob_state != LO_IN_SYNC);
	}
	if (!joined)
		return;
	st_file_lock(fe->fe_st, ino);
	f = st_file_get(fe->fe_st, ino, false);
	if (f)
		f->f_counts = false;
	st_file_unlock(fe->fe_st, ino);
}

int file_set_map(const struct file_env *fe, struct kv_txn *t, uint64_t ino,
		 const struct lo_map *map, struct ns_time now)
{
	uint8_t blob[NS_BLOB_MAX];
	struct ns_inode i;
	struct lo_map old;
	bool had = ns_get(fe->fe_ns, t, ino, &i) == 0 && i.i_type == NS_REG &&
		   lo_map_decode(i.i_blob, &old) == 0;
	int err = had ? lo_can_adopt(fe->fe_lo, t, &old, map) : 0;

	if (!err)
		err = ns_set_blob(fe->fe_ns, t, ino, blob, lo_map_encode(map, blob, sizeof(blob)),
				  false, now);
	if (!err && had)
		err = lo_adopt(fe->fe_lo, t, &i, &old, map);
	if (!err)
		err = lo_repair_note(t, ino, map);
	if (had)
		counts_are_off(fe, ino, &old, map);
	return err || !had || old.lm_stripes != map->lm_stripes
		       ? err
		       : note_states(fe, t, ino, &old, map);
}

int file_make_stale(const struct file_env *fe, struct kv_txn *t, uint64_t ino,
		    const struct lo_map *was, uint64_t objects)
{
	struct ns_inode i;
	struct lo_map map;
	int err = ns_get(fe->fe_ns, t, ino, &i);

	if (!err)
		err = lo_map_decode(i.i_blob, &map);
	if (!err && lo_map_make_stale(&map, lo_map_same(was, objects, &map), NULL))
		err = file_set_map(fe, t, ino, &map, file_now());
	return err;
}

/* All readers of a contended file have seen its first copies, so file_suspect keeps those. */
static bool is_contended(const struct file_env *fe, uint64_t ino)
{
	const struct st_file *f;
	bool yes;

	st_file_lock(fe->fe_st, ino);
	f = st_file_get(fe->fe_st, ino, false);
	yes = f && f->f_contended;
	st_file_unlock(fe->fe_st, ino);
	return yes;
}

uint64_t file_suspect(const struct file_env *fe, uint64_t ino, struct lo_map *map, uint64_t stripes,
		      uint64_t doubted)
{
	uint64_t first = is_contended(fe, ino) ? lo_map_first(fe->fe_lo, map, doubted) : 0;
	uint64_t stale = lo_map_suspect(map, stripes & lo_map_stripes(map, first), first);

	stale |= lo_map_suspect(map, stripes & ~lo_map_stripes(map, first),
				lo_map_last_heartbeat(fe->fe_lo, map, doubted));

	if (stale)
		log_warn("inode %lu: its copies may differ: keeping one, the others are now stale",
			 (unsigned long)ino);
	return stale;
}

bool file_writers_left(const struct file_env *fe, uint64_t ino, const struct st_client *except)
{
	struct st *st = fe->fe_st;
	const struct st_file *f;
	bool left = false;

	st_file_lock(st, ino);
	f = st_file_get(st, ino, false);
	for (const struct st_layout *l = f ? f->f_layouts : NULL; l; l = l->l_fnext)
		left |= l->l_client != except && (l->l_iomode & LAYOUTIOMODE4_RW);
	st_file_unlock(st, ino);
	return left;
}

uint64_t file_held(const struct file_env *fe, struct kv_txn *t, uint64_t ino)
{
	struct ns_inode i;
	struct lo_map map;

	return ns_get(fe->fe_ns, t, ino, &i) || lo_map_decode(i.i_blob, &map)
		       ? 0
		       : lo_objects_with_orders(fe->fe_lo, ino, &map);
}

struct lost_ask {
	struct lo_stat la_stat;
	void (*la_then)(void *arg, uint64_t objects);
	void *la_arg;
};

static void lost_told(struct lo_stat *ls, int err)
{
	struct lost_ask *la = hash_entry(ls, struct lost_ask, la_stat);

	(void)err; /* no copy of some stripe answered: its objects do not count as lost */
	la->la_then(la->la_arg, ls->ls_lost);
	free(la);
}

int file_ask_lost(const struct file_env *fe, struct loop *loop, uint64_t ino, uint16_t incarnation,
		  const struct lo_map *map, void (*then)(void *arg, uint64_t objects), void *arg)
{
	struct lost_ask *la = calloc(1, sizeof(*la));

	if (!la)
		return -ENOMEM;
	la->la_stat.ls_loop = loop;
	la->la_stat.ls_ino = ino;
	la->la_stat.ls_incarnation = incarnation;
	la->la_stat.ls_map = *map;
	la->la_stat.ls_done = lost_told;
	la->la_then = then;
	la->la_arg = arg;
	lo_stat(fe->fe_lo, &la->la_stat);
	return 0;
}
