/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mirror_state.c - a copy that may lack a write, or hold a write that other copies lack, is not
 * trusted (docs/mirrors.md): it becomes stale in the transaction that finds this out.
 *
 * A client that dies while it holds a write layout leaves copies that may differ. Each of these
 * files must be resolved: one copy stays in sync, and the others become stale. In memory a file
 * waits for that from the moment its writer is given up: f_suspect is set under the same hold of
 * the all-shards lock. excl_resolve comes before each layout, freeze, size and read, and resolves
 * the file first. One row in the store says that some files wait, however many they are
 * (lo_lost_writers_put). The transaction that gives up the writer commits this row. After a crash,
 * if the row is there, every file that had a write layout out is resolved.
 */
#include "base/log.h"
#include "mds/layout/repair_row.h"
#include "mds/file/exclusive.h"
#include "mds/file/mirror_state.h"
#include <errno.h>

#define JUDGING 8 /* files resolved at a time */

/* ---- a change through the MDS failed: some of its objects may have done it, or part of it ---- */

/* An object that was being rebuilt may hold data that its source lacks. */
static uint64_t rebuilding_stale(struct lo_map *map, uint64_t objects)
{
	uint64_t stale = 0, stripes = lo_map_stripes(map, objects);

	for (unsigned i = 0; i < (unsigned)map->lm_stripes * map->lm_mirrors; i++) {
		if (!(stripes >> i % map->lm_stripes & 1) ||
		    map->lm_obj[i].ob_state != LO_REBUILDING)
			continue;
		map->lm_obj[i].ob_state = LO_STALE;
		stale |= 1ull << i;
	}
	return stale;
}

struct half {
	struct kv_op op;
	const struct file_env *fe;
	struct loop *loop;
	uint64_t ino, objects, stale;
	struct excl_layout_block hold;
	struct rpc_call *call; /* parked until the layouts are back; NULL: no request waits */
	int why;
	void (*then)(void *arg);
	void *arg;
};

static int half_run(struct kv_op *op, struct kv_txn *t)
{
	struct half *h = hash_entry(op, struct half, op);
	struct ns_inode i;
	struct lo_map map;
	int err = ns_get(h->fe->fe_ns, t, h->ino, &i);

	h->stale = 0;
	if (!err)
		err = lo_map_decode(i.i_blob, &map);
	if (err)
		return err;
	/* A server was not reached: the change is tried again until the server answers, or until
	 * the client that asked for it is given up. */
	h->stale = h->why == -ETIMEDOUT
			   ? rebuilding_stale(&map, h->objects)
			   : file_suspect(h->fe, h->ino, &map, lo_map_stripes(&map, h->objects), 0);
	if (!h->stale)
		return 0;
	return excl_stale(&h->hold, h->fe, t, h->ino, &map, file_now());
}

static void mirror_state_half_end(void *arg, int err)
{
	struct half *h = arg;

	/* Ignore the error: the stale copies are committed. A client that still holds a layout is
	 * fenced when its data servers run the order. */
	(void)err;
	excl_unblock(&h->hold);
	if (h->call)
		rpc_call_waits(h->call, false);
	h->then(h->arg);
	free(h);
}

static void half_committed(struct kv_op *op, int err)
{
	struct half *h = hash_entry(op, struct half, op);

	if (err)
		log_error("inode %lu: cannot mark copies that may differ as stale: %s",
			  (unsigned long)h->ino, strerror(-err));
	if (err || !h->stale ||
	    !excl_recall_stale(&h->hold, h->fe, h->loop, h->ino, NULL, mirror_state_half_end, h))
		mirror_state_half_end(h, 0);
	else if (h->call)
		rpc_call_waits(h->call, true);
}

bool file_partial_done(const struct file_env *fe, struct loop *loop, struct rpc_call *call,
		       uint64_t ino, const struct lo_map *map, uint64_t objects, int why,
		       void (*then)(void *arg), void *arg)
{
	struct half *h;
	bool rebuilding = false;

	for (unsigned i = 0; i < (unsigned)map->lm_stripes * map->lm_mirrors; i++)
		rebuilding |= (objects >> i & 1) && map->lm_obj[i].ob_state == LO_REBUILDING;
	if (!objects || map->lm_mirrors == 1 || why == -EACCES ||
	    (why == -ETIMEDOUT && !rebuilding))
		return false;
	h = calloc(1, sizeof(*h));
	if (!h)
		log_fatal("out of memory while finding which copies took a write");
	*h = (struct half){.fe = fe,
			   .loop = loop,
			   .call = call,
			   .ino = ino,
			   .objects = objects,
			   .why = why,
			   .then = then,
			   .arg = arg};
	h->op = (struct kv_op){.o_run = half_run, .o_done = half_committed, .o_loop = loop};
	kv_submit(fe->fe_kv, &h->op);
	return true;
}

/* ---- writers that are lost ---- */

void file_lost_writers_begin(const struct file_env *fe)
{
	st_all_lock(fe->fe_st);
	fe->fe_lost->fl_losing++;
	fe->fe_lost->fl_gen++;
	st_all_unlock(fe->fe_st);
}

void file_lost_writers_end(const struct file_env *fe)
{
	st_all_lock(fe->fe_st);
	fe->fe_lost->fl_losing--;
	st_all_unlock(fe->fe_st);
}

bool file_lost_client(struct st *st, struct st_client *cl)
{
	bool any = cl->cl_boot || cl->cl_partials;

	st_partial_lost(st, cl, NULL);
	for (struct st_layout *l = st_layout_next(cl, NULL); l; l = st_layout_next(cl, l)) {
		if (!(l->l_iomode & LAYOUTIOMODE4_RW))
			continue;
		st_file_suspect(l->l_file);
		any = true;
	}
	if (cl->cl_boot)
		st_intents_suspect(st);
	return any;
}

bool file_lost_writes(const struct file_env *fe, uint64_t ino, const struct lo_map *map)
{
	const struct st_file *f;
	bool judge;

	if (!atomic_load(&fe->fe_lost->fl_lost) || !lo_generic(fe->fe_lo, map))
		return false;
	st_file_lock(fe->fe_st, ino);
	f = st_file_get(fe->fe_st, ino, false);
	judge = f && f->f_suspect;
	st_file_unlock(fe->fe_st, ino);
	return judge;
}

struct judge {
	const struct file_env *fe;
	struct loop *loop;
	struct kv_op op;
	uint64_t *ino;
	size_t n, next;
	unsigned busy;
	bool clean;
	uint64_t gen;
};

static void judge_go(struct judge *j);

static void judged(void *arg, int err)
{
	struct judge *j = arg;

	(void)err; /* the next tick takes the files that are not resolved yet */
	j->busy--;
	judge_go(j);
}

/* On the committer. Deletes the row if no client is being given up and no file waits. */
static int clean_run(struct kv_op *op, struct kv_txn *t)
{
	struct judge *j = hash_entry(op, struct judge, op);
	struct st *st = j->fe->fe_st;

	st_all_lock(st);
	j->clean = !j->fe->fe_lost->fl_losing && !atomic_load(&st->st_in_grace);
	j->gen = j->fe->fe_lost->fl_gen;
	st_each(st, ST_FILE, l)
	{
		const struct st_file *f = hash_entry(l, struct st_file, f_link);

		j->clean &= !f->f_suspect;
	}
	st_all_unlock(st);
	return j->clean ? lo_lost_writers_del(t) : 0;
}

static void judge_end(struct judge *j)
{
	j->fe->fe_lost->fl_judging = false;
	free(j->ino);
	free(j);
}

static void clean_done(struct kv_op *op, int err)
{
	struct judge *j = hash_entry(op, struct judge, op);

	/* A client lost since clean_run re-created the row (fl_gen rose): keep fl_lost set. */
	st_all_lock(j->fe->fe_st);
	if (!err && j->clean && j->gen == j->fe->fe_lost->fl_gen)
		atomic_store(&j->fe->fe_lost->fl_lost, false);
	st_all_unlock(j->fe->fe_st);
	judge_end(j);
}

static void judge_go(struct judge *j)
{
	while (j->next < j->n && j->busy < JUDGING) {
		j->busy++;
		if (!excl_resolve(j->fe, j->loop, j->ino[j->next++], judged, j))
			j->busy--;
	}
	if (j->busy)
		return;
	j->op = (struct kv_op){.o_run = clean_run, .o_done = clean_done, .o_loop = j->loop};
	kv_submit(j->fe->fe_kv, &j->op);
}

/* Every tick, while files may wait to be resolved. */
void file_resolve_tick(const struct file_env *fe, struct loop *loop)
{
	struct st *st = fe->fe_st;
	struct judge *j;
	bool some;

	st_look_lock(st);
	some = st->st_judge;
	st_look_unlock(st);
	if (some) { /* not in the store: a crash forgets these */
		st_all_lock(st);
		atomic_store(&fe->fe_lost->fl_lost, true);
		fe->fe_lost->fl_gen++;
		st->st_judge = false;
		st_all_unlock(st);
	}
	if (!atomic_load(&fe->fe_lost->fl_lost) || fe->fe_lost->fl_judging)
		return;
	j = calloc(1, sizeof(*j));
	if (!j)
		return; /* no memory: the next tick tries again */
	j->fe = fe;
	j->loop = loop;
	st_all_lock(st);
	j->ino = atomic_load(&st->st_in_grace) ? NULL : calloc(st_states(st) + 1, sizeof(*j->ino));
	st_each(st, ST_FILE, l)
	{
		const struct st_file *f = hash_entry(l, struct st_file, f_link);

		if (j->ino && f->f_suspect)
			j->ino[j->n++] = f->f_ino;
	}
	st_all_unlock(st);
	if (!j->ino) {
		free(j);
		return;
	}
	fe->fe_lost->fl_judging = true;
	if (j->n)
		log_info("checking the copies of %zu files whose writers are lost", j->n);
	judge_go(j);
}

int file_resolve_open(const struct file_env *fe)
{
	struct st *st = fe->fe_st;
	struct kv_txn *t;
	int err = kv_read_begin(fe->fe_kv, &t);

	if (err)
		return err;
	atomic_store(&fe->fe_lost->fl_lost, lo_lost_writers_get(t));
	kv_read_end(t);
	st->st_lost = atomic_load(&fe->fe_lost->fl_lost);
	if (st->st_lost && !atomic_load(&st->st_in_grace))
		st_intents_suspect(st);
	return 0;
}
