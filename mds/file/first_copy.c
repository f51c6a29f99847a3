/* SPDX-License-Identifier: Apache-2.0 */
/*
 * first_copy.c - the first copy of a contended file (docs/mirrors.md, "Two writers").
 *
 * The copies of a contended file may differ, so all readers read the same copy of each stripe. The
 * map alone decides which: the first copy in sync. Whether that copy's server answers at the moment
 * must not decide. Otherwise a server that is silent for a while would be first, then another, then
 * the same one again, and readers would see a byte change to and fro. So a first copy that cannot
 * be read becomes stale, durably, like a copy that missed a write. Layouts that name it come back
 * or are fenced, and repair makes the copy equal before any client reads it again.
 */
#include "base/log.h"
#include "mds/file/exclusive.h"
#include "mds/file/mirror_state.h"
#include <errno.h>

struct first {
	struct kv_op op;
	const struct file_env *fe;
	struct loop *loop;
	struct rpc_call *call; /* waits for the layouts; NULL: no request waits */
	uint64_t ino, failed, stale;
	struct lo_map map; /* the bits of failed refer to this map */
	struct excl_layout_block hold;
	void (*then)(void *arg, int err);
	void *arg;
};

bool file_is_contended(const struct file_env *fe, uint64_t ino, const struct lo_map *map,
		       bool *taking)
{
	const struct st_file *f;
	bool yes;

	*taking = false;
	if (map->lm_mirrors == 1 || !st_watched(ino))
		return false;
	st_file_lock(fe->fe_st, ino);
	f = st_file_get(fe->fe_st, ino, false);
	yes = f && f->f_contended;
	*taking = yes && f->f_nrecalling;
	st_file_unlock(fe->fe_st, ino);
	return yes;
}

static int first_run(struct kv_op *op, struct kv_txn *t)
{
	struct first *w = hash_entry(op, struct first, op);
	struct ns_inode i;
	struct lo_map map;
	bool taking;
	int err = ns_get(w->fe->fe_ns, t, w->ino, &i);

	w->stale = 0;
	if (!err)
		err = lo_map_decode(i.i_blob, &map);
	/* If the copies were compared in between, they are the same. */
	if (err || !file_is_contended(w->fe, w->ino, &map, &taking))
		return err;
	w->stale = lo_map_make_stale(
		&map, lo_first_lost(w->fe->fe_lo, &map, lo_map_same(&w->map, w->failed, &map)),
		NULL);
	if (!w->stale)
		return 0;
	log_warn("inode %lu: two clients write it, and its first copy is unreadable: that copy is "
		 "now stale",
		 (unsigned long)w->ino);
	return excl_stale(&w->hold, w->fe, t, w->ino, &map, file_now());
}

static void first_end(void *arg, int err)
{
	struct first *w = arg;

	excl_unblock(&w->hold);
	if (w->call)
		rpc_call_waits(w->call, false);
	if (w->then)
		w->then(w->arg, err);
	free(w);
}

static void first_back(void *arg, int err)
{
	/* Ignore the error: the stale copy is committed. A client that still holds a layout is
	 * fenced when its data servers run the order. */
	(void)err;
	first_end(arg, 0);
}

static void first_committed(struct kv_op *op, int err)
{
	struct first *w = hash_entry(op, struct first, op);

	if (err && err != -ENOENT && err != -ESTALE)
		log_error("inode %lu: cannot mark its unreadable first copy as stale: %s",
			  (unsigned long)w->ino, strerror(-err));
	if (err || !w->stale) {
		first_end(w, err);
	} else if (!w->call) {
		excl_recall_stale(&w->hold, w->fe, w->loop, w->ino, NULL, NULL, NULL);
		first_end(w, 0);
	} else if (excl_recall_stale(&w->hold, w->fe, w->loop, w->ino, NULL, first_back, w)) {
		rpc_call_waits(w->call, true);
	} else {
		first_end(w, 0);
	}
}

bool file_first_lost(const struct file_env *fe, struct loop *loop, struct rpc_call *call,
		     uint64_t ino, const struct lo_map *map, uint64_t failed,
		     void (*then)(void *arg, int err), void *arg)
{
	struct first *w;

	if (!lo_first_lost(fe->fe_lo, map, failed))
		return false;
	w = calloc(1, sizeof(*w));
	if (!w)
		return false; /* no memory: the client's next try does this */
	*w = (struct first){.fe = fe,
			    .loop = loop,
			    .call = call,
			    .ino = ino,
			    .failed = failed,
			    .map = *map,
			    .then = then,
			    .arg = arg};
	w->op = (struct kv_op){.o_run = first_run, .o_done = first_committed, .o_loop = loop};
	kv_submit(fe->fe_kv, &w->op);
	return true;
}

bool file_first_reads(const struct file_env *fe, struct loop *loop, uint64_t ino,
		      const struct lo_map *map, uint64_t failed)
{
	uint64_t reads = lo_map_alive(fe->fe_lo, map) & ~failed;

	file_first_lost(fe, loop, NULL, ino, map, failed, NULL, NULL);
	for (unsigned s = 0; s < map->lm_stripes; s++) {
		int k = lo_copy(map, s, 0);

		if (k < 0 || (!(reads >> k & 1) && lo_copy(map, s, 1) >= 0))
			return false;
	}
	return true;
}
