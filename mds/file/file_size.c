/* SPDX-License-Identifier: Apache-2.0 */
/* file_size.c - asks the data servers for a file's size, change and times (docs/size.md). Removes
 * the mark (the write intent), which says that they may have news. */
#include "base/log.h"
#include "mds/file/exclusive.h"
#include "mds/file/file_size.h"
#include <errno.h>

#define RETURNED_MS	250
#define USED_MIN	512 /* 0 means that the servers were not asked: then the size counts */
#define RETURNED_ASKING 256 /* files that are asked about together */

struct refresh {
	struct lo_stat ls;
	struct lo_io pad;
	bool padded;
	struct kv_op op;
	const struct file_env *fe;
	struct loop *loop;
	bool unmark;
	bool uneven; /* refresh_run found a difference: the copies must be compared */
	/* no copy of some stripe answered: it may reach past the committed size */
	bool unknown;
	bool unused; /* no client had a layout by this mark: do not ask the servers */
	uint32_t grants;
	uint64_t sizegen;
	void (*then)(void *arg, int err);
	/* called instead of then, with the file's size */
	void (*reply)(void *arg, int err, uint64_t size);
	void *arg;
};

static void refresh_unpin(struct refresh *r)
{
	struct st *st = r->fe->fe_st;
	struct st_file *f;

	st_file_lock(st, r->ls.ls_ino);
	f = st_file_get(st, r->ls.ls_ino, false);
	f->f_pins--;
	st_file_put(st, f);
	st_file_unlock(st, r->ls.ls_ino);
}

/* A size was set since the question, or is about to be in the store: the answer may be from before
 * that. While layouts are recalled for it, writes under these layouts still count. */
static bool refresh_outdated(struct refresh *r)
{
	struct st *st = r->fe->fe_st;
	struct st_file *f;
	bool old;

	st_file_lock(st, r->ls.ls_ino);
	f = st_file_get(st, r->ls.ls_ino, false);
	old = f->f_ncutting || f->f_sizegen != r->sizegen;
	st_file_unlock(st, r->ls.ls_ino);
	return old;
}

bool file_size_is_set(const struct file_env *fe, const struct st_file *f, const struct lo_map *map)
{
	return f->f_set && f->f_set_grants == f->f_grants && !lo_generic(fe->fe_lo, map);
}

uint64_t file_size_set(const struct file_env *fe, const struct ns_inode *i,
		       const struct lo_map *map)
{
	const struct st_file *f;
	bool set;

	st_file_lock(fe->fe_st, i->i_ino);
	f = st_file_get(fe->fe_st, i->i_ino, false);
	set = f && file_size_is_set(fe, f, map);
	st_file_unlock(fe->fe_st, i->i_ino);
	return set ? i->i_size : UINT64_MAX;
}

bool file_refresh_needed(const struct file_env *fe, uint64_t ino)
{
	struct st_file *f;
	bool need;

	if (fe->fe_size_mode == OP_SIZE_ALWAYS)
		return true;
	if (!st_watched(ino))
		return false;
	st_file_lock(fe->fe_st, ino);
	f = st_file_get(fe->fe_st, ino, false);
	/* A file that waits to be resolved is not read before that, whatever the question. */
	need = f && (f->f_suspect || (f->f_intent && fe->fe_size_mode == OP_SIZE_LAYOUT));
	st_file_unlock(fe->fe_st, ino);
	return need;
}

/* Compares each object that answered with its previous answer, so that servers that are silent, or
 * back again, do not look like a write. */
static bool refresh_news(const struct refresh *r, const struct ns_inode *i,
			 const struct lo_map *map)
{
	if (r->ls.ls_size > i->i_size)
		return true;
	for (unsigned k = 0; k < (unsigned)map->lm_stripes * map->lm_mirrors; k++) {
		if ((r->ls.ls_answered >> k & 1) && r->ls.ls_writes[k] != map->lm_obj[k].ob_writes)
			return true;
	}
	return false;
}

/* Objects that were written since the map recorded their write counts. */
static uint64_t refresh_moved(const struct refresh *r, const struct lo_map *map)
{
	uint64_t moved = 0;

	for (unsigned k = 0; k < lo_objects(map); k++) {
		const struct lo_object *was = &r->ls.ls_map.lm_obj[k];

		if ((r->ls.ls_answered >> k & 1) && map->lm_obj[k].ob_ds == was->ob_ds &&
		    map->lm_obj[k].ob_copy == was->ob_copy &&
		    r->ls.ls_writes[k] != map->lm_obj[k].ob_writes)
			moved |= UINT64_C(1) << k;
	}
	return moved;
}

/*
 * On the committer: compares the copies in passing (docs/mirrors.md). An answer from a time when a
 * client could write proves no difference: the write may have reached one copy only so far. False:
 * the answers end past the size that was set. That is not the end of the file, because one copy
 * alone reports it.
 */
static bool refresh_compare(struct refresh *r, const struct lo_map *map)
{
	struct st *st = r->fe->fe_st;
	struct st_file *f;
	bool ends = lo_uneven(r->fe->fe_lo, &r->ls, 0), quiet, past;

	if (map->lm_mirrors == 1)
		return true;
	st_file_lock(st, r->ls.ls_ino);
	f = st_file_get(st, r->ls.ls_ino, false);
	f->f_moved |= refresh_moved(r, map);
	past = ends && file_size_is_set(r->fe, f, map);
	quiet = r->unmark && !st_file_has_writers(f) && f->f_grants == r->grants &&
		!f->f_contended && !f->f_contending && !f->f_suspect &&
		!(f->f_suspect_boot && st_in_grace(st));
	r->uneven = quiet && (ends || (f->f_counts && lo_uneven(r->fe->fe_lo, &r->ls, f->f_moved)));
	f->f_diverged |= r->uneven;
	st_file_unlock(st, r->ls.ls_ino);
	r->unmark &= !r->uneven; /* the mark stays: after a restart the copies are compared again */
	return !past;
}

/* Records in the map what it must remember of the answers. True: the map learns that an object
 * exists. By now another object may have the place of the object that answered. */
static bool refresh_map(const struct refresh *r, struct lo_map *map)
{
	bool learns = false;

	for (unsigned k = 0; k < (unsigned)map->lm_stripes * map->lm_mirrors; k++) {
		const struct lo_object *was = &r->ls.ls_map.lm_obj[k];
		struct lo_object *o = &map->lm_obj[k];

		if (o->ob_ds != was->ob_ds || o->ob_copy != was->ob_copy)
			continue;
		learns |= !o->ob_known && r->ls.ls_durable >> k & 1;
		/* Only an object that survives a loss of power becomes known. Otherwise a client
		 * could lose its writes in such a loss and then find an object that counts as
		 * lost. */
		o->ob_known |= r->ls.ls_durable >> k & 1;
		if (r->ls.ls_answered >> k & 1)
			o->ob_writes = r->ls.ls_writes[k];
	}
	return learns;
}

static void refresh_end(struct refresh *r, int err)
{
	refresh_unpin(r);

	if (r->reply) {
		struct ns_inode i;
		struct kv_txn *t;
		int e = kv_read_begin(r->fe->fe_kv, &t);

		if (!e) {
			e = ns_get(r->fe->fe_ns, t, r->ls.ls_ino, &i);
			/* Data of which only dead servers have a copy is given up: do not wait for
			 * it. */
			if (!e && r->unknown && !lo_map_unavailable(r->fe->fe_lo, &r->ls.ls_map))
				e = -ETIMEDOUT;
			r->reply(r->arg, e, e ? 0 : i.i_size);
			kv_read_end(t);
		} else {
			r->reply(r->arg, e, 0);
		}
		free(r);
		return;
	}
	r->then(r->arg, err);
	free(r);
}

/* On the committer. False: a writer has the file again, or had it since the question. True: from
 * here on a grant for writing puts the mark again, after this deletion. */
static bool refresh_unmark(struct refresh *r)
{
	struct st *st = r->fe->fe_st;
	struct st_file *f;

	st_file_lock(st, r->ls.ls_ino);
	f = st_file_get(st, r->ls.ls_ino, false);
	/* During grace the writers of the earlier boot may still fail to return: the mark records
	 * that the file is to be resolved then. */
	r->unmark = !st_file_has_writers(f) && f->f_grants == r->grants &&
		    !(st_in_grace(st) && f->f_suspect_boot) && !f->f_contending &&
		    (!f->f_contended || f->f_equal);
	if (r->unmark) {
		f->f_intent_durable = f->f_suspect_boot = f->f_contended = false;
		f->f_intent_gen++;
	}
	st_file_unlock(st, r->ls.ls_ino);
	return r->unmark;
}

static int file_size_refresh_run(struct kv_op *op, struct kv_txn *t)
{
	struct refresh *r = hash_entry(op, struct refresh, op);
	struct ns *ns = r->fe->fe_ns;
	struct ns_setattr s = {.s_mask = NS_S_MTIME_NOW};
	struct ns_time now = file_now();
	struct ns_inode i;
	struct lo_map map;
	uint8_t blob[NS_BLOB_MAX];
	bool news, learns, grows;
	int err = ns_get(ns, t, r->ls.ls_ino, &i);

	if (!err && r->unused)
		return refresh_unmark(r) ? file_intent_del(t, r->ls.ls_ino) : 0;
	if (!err)
		err = lo_map_decode(i.i_blob, &map);
	if (err)
		return err;
	/* The answers are about objects that the file had before; the next request for the size
	 * asks again. */
	if (refresh_outdated(r) || i.i_incarnation != r->ls.ls_incarnation) {
		r->unmark = false;
		return 0;
	}
	news = refresh_news(r, &i, &map);
	grows = refresh_compare(r, &map);
	if (news) {
		if (!r->ls.ls_missing) {
			s.s_mask |= NS_S_USED;
			s.s_used = r->ls.ls_used > USED_MIN ? r->ls.ls_used : USED_MIN;
		}
		if (grows && r->ls.ls_size > i.i_size) {
			s.s_mask |= NS_S_SIZE | NS_S_GROW_ONLY;
			s.s_size = r->ls.ls_size;
		}
		err = ns_setattr(ns, t, r->ls.ls_ino, &s, NULL, now, &i);
	}
	learns = refresh_map(r, &map);
	if (!err && news)
		err = ns_set_blob(ns, t, r->ls.ls_ino, blob,
				  lo_map_encode(&map, blob, sizeof(blob)), false, now);
	else if (!err && learns)
		err = ns_set_blob_quietly(ns, t, r->ls.ls_ino, blob,
					  lo_map_encode(&map, blob, sizeof(blob)));
	if (err || !r->unmark || !refresh_unmark(r))
		return err;
	return file_intent_del(t, r->ls.ls_ino);
}

static void refresh_committed(struct kv_op *op, int err)
{
	struct refresh *r = hash_entry(op, struct refresh, op);
	struct st *st = r->fe->fe_st;
	struct st_file *f;

	if (!err && r->unmark) {
		st_file_lock(st, r->ls.ls_ino);
		f = st_file_get(st, r->ls.ls_ino, false);
		if (!f->f_intent_durable && !st_file_has_writers(f) && f->f_grants == r->grants)
			f->f_intent = false; /* refresh_unpin calls st_file_put */
		st_file_unlock(st, r->ls.ls_ino);
	}
	if (!err && r->uneven)
		r->fe->fe_diverged(r->fe->fe_diverged_arg, r->ls.ls_ino);
	refresh_end(r, err ? err : r->ls.ls_missing ? -ETIMEDOUT : 0);
}

/* Asks again: what clients wrote during the padding counts together with what was there before. */
static void refresh_padded(struct lo_io *io, int err)
{
	struct refresh *r = hash_entry(io, struct refresh, pad);

	r->padded = true;
	if (err || io->io_failed_map)
		refresh_end(r, -ETIMEDOUT);
	else
		lo_stat(r->fe->fe_lo, &r->ls);
}

/* Pads the objects on NFSv3 data servers up to the size before that size is reported. To a client
 * that reads it, a shorter object would end the file (docs/generic.md). */
static bool refresh_pads(struct refresh *r)
{
	struct ns_inode i;
	uint64_t size = r->ls.ls_size, objects;
	struct kv_txn *t;
	int err;

	if (r->padded || r->ls.ls_map.lm_stripes == 1 || kv_read_begin(r->fe->fe_kv, &t))
		return false;
	err = ns_get(r->fe->fe_ns, t, r->ls.ls_ino, &i);
	kv_read_end(t);
	if (err || i.i_incarnation != r->ls.ls_incarnation || refresh_outdated(r))
		return false;
	size = i.i_size > size ? i.i_size : size;
	objects = lo_short(r->fe->fe_lo, &r->ls, size);
	if (!objects)
		return false;
	r->pad.io_map = r->ls.ls_map;
	lo_io_fill(&r->pad, r->loop, &i, size, 0, refresh_padded);
	lo_pad(r->fe->fe_lo, &r->pad, objects);
	return true;
}

static void refresh_submit(struct refresh *r)
{
	r->op.o_run = file_size_refresh_run;
	r->op.o_done = refresh_committed;
	r->op.o_loop = r->loop;
	kv_submit(r->fe->fe_kv, &r->op);
}

static void refresh_stat(struct lo_stat *ls, int err)
{
	struct refresh *r = hash_entry(ls, struct refresh, ls);
	struct ns_inode i;
	struct lo_map map;
	struct kv_txn *t;
	bool same = false;

	r->unknown = err;
	if (!err && refresh_pads(r))
		return;
	if (err || ls->ls_missing)
		r->unmark = false; /* a server did not answer: the mark stays */
	if (!err && !r->unmark && kv_read_begin(r->fe->fe_kv, &t) == 0) {
		same = ns_get(r->fe->fe_ns, t, ls->ls_ino, &i) == 0 &&
		       lo_map_decode(i.i_blob, &map) == 0 && !refresh_news(r, &i, &map);
		kv_read_end(t);
	}
	if (err || same)
		refresh_end(r, err ? err : ls->ls_missing ? -ETIMEDOUT : 0);
	else
		refresh_submit(r);
}

bool file_intent_is_unused(struct st_file *f)
{
	return f->f_intent_durable && !f->f_intent && !st_file_has_writers(f);
}

static struct refresh *refresh_new(const struct file_env *fe, struct loop *loop, struct kv_txn *t,
				   uint64_t ino, bool unmark)
{
	struct refresh *r = calloc(1, sizeof(*r));
	struct ns_inode i;
	struct st_file *f;

	if (!r || ns_get(fe->fe_ns, t, ino, &i) || i.i_type != NS_REG || !i.i_blob.s_len ||
	    lo_map_decode(i.i_blob, &r->ls.ls_map)) {
		free(r);
		return NULL;
	}
	r->fe = fe;
	r->loop = loop;
	r->ls.ls_loop = loop;
	r->ls.ls_ino = ino;
	r->ls.ls_incarnation = i.i_incarnation;
	r->ls.ls_done = refresh_stat;
	st_file_lock(fe->fe_st, ino);
	f = st_file_get(fe->fe_st, ino, true);
	r->unmark = unmark;
	r->unused = unmark && f && file_intent_is_unused(f);
	/* A size is set, and a server may not have it yet: the size in the store is right. */
	if (f && !r->unused &&
	    (f->f_ncutting || lo_objects_with_orders(fe->fe_lo, ino, &r->ls.ls_map))) {
		st_file_put(fe->fe_st, f);
		f = NULL;
	}
	if (f) {
		f->f_pins++;
		r->sizegen = f->f_sizegen;
		r->grants = f->f_grants;
	}
	st_file_unlock(fe->fe_st, ino);
	if (!f) {
		free(r);
		return NULL;
	}
	return r;
}

static void refresh_settled(void *arg, int err)
{
	struct refresh *r = arg;

	r->unknown = err;
	if (err)
		refresh_end(r, err);
	else
		lo_stat(r->fe->fe_lo, &r->ls);
}

static void refresh_ask(struct refresh *r)
{
	if (r->unused)
		refresh_submit(r);
	else if (!excl_resolve(r->fe, r->loop, r->ls.ls_ino, refresh_settled, r))
		lo_stat(r->fe->fe_lo, &r->ls);
}

bool file_refresh(const struct file_env *fe, struct loop *loop, struct kv_txn *t, uint64_t ino,
		  bool unmark, void (*then)(void *arg, int err), void *arg)
{
	struct refresh *r = refresh_new(fe, loop, t, ino, unmark);

	if (!r)
		return false;
	r->then = then;
	r->arg = arg;
	refresh_ask(r);
	return true;
}

/* ---- removal of marks ---- */

/* A question that takes the mark away, about the file as it is stored now. NULL: the file is
 * removed; or a size is being set, which asks again; or the store cannot be read, and the mark
 * stays. */
static struct refresh *refresh_now(const struct file_env *fe, struct loop *loop, uint64_t ino)
{
	struct refresh *r;
	struct kv_txn *t;

	if (kv_read_begin(fe->fe_kv, &t))
		return NULL;
	r = refresh_new(fe, loop, t, ino, true);
	kv_read_end(t);
	return r;
}

static void returned_next(struct file_returned *fr);

static void returned_done(void *arg, int err, uint64_t size)
{
	struct file_returned *fr = arg;

	/* Where a server did not answer the mark stays: the size is asked again when a client wants
	 * it, or after a restart. */
	(void)err;
	(void)size;
	fr->fr_asking--;
	returned_next(fr);
}

/* Asks about many files together: their questions go to a server in few messages, and the results
 * into few commits. */
static void returned_next(struct file_returned *fr)
{
	while (fr->fr_asking < RETURNED_ASKING && fr->fr_n) {
		uint64_t ino = fr->fr_ino[--fr->fr_n];
		struct refresh *r = refresh_now(fr->fr_env, fr->fr_loop, ino);

		if (!r)
			/* the file is removed, or a size is being set, which asks again */
			continue;
		r->reply = returned_done;
		r->arg = fr;
		fr->fr_asking++;
		refresh_ask(r);
	}
}

static void unmarked(void *arg, int err, uint64_t size)
{
	(void)arg;
	(void)err; /* the mark stays, and contended.c comes back to it */
	(void)size;
}

void file_intent_clear(const struct file_env *fe, struct loop *loop, uint64_t ino)
{
	struct refresh *r = refresh_now(fe, loop, ino);

	if (!r)
		return;
	r->reply = unmarked;
	refresh_ask(r);
}

static void returned_fire(struct loop_timer *t)
{
	returned_next(hash_entry(t, struct file_returned, fr_timer));
}

void file_intent_clear_later(struct file_returned *fr, uint64_t ino)
{
	if (fr->fr_n == fr->fr_cap) {
		size_t cap = fr->fr_cap ? fr->fr_cap * 2 : 256;
		uint64_t *v = realloc(fr->fr_ino, cap * sizeof(*v));

		if (!v)
			return; /* the mark stays */
		fr->fr_ino = v;
		fr->fr_cap = cap;
	}
	fr->fr_ino[fr->fr_n++] = ino;
	fr->fr_timer.t_fire = returned_fire;
	if (!fr->fr_asking && !fr->fr_timer.t_pos)
		loop_timer_start(fr->fr_loop, &fr->fr_timer, RETURNED_MS);
}

void file_eof_handler(void *arg, struct loop *loop, uint64_t ino, uint16_t inc,
		      void (*reply)(void *rarg, int err, uint64_t size), void *rarg)
{
	const struct file_env *fe = arg;
	struct refresh *r = NULL;
	struct ns_inode i;
	struct kv_txn *t;
	int err = kv_read_begin(fe->fe_kv, &t);

	if (!err) {
		err = ns_get(fe->fe_ns, t, ino, &i);
		if (!err && i.i_incarnation != inc)
			err = -ESTALE;
		if (!err && file_refresh_needed(fe, ino))
			r = refresh_new(fe, loop, t, ino, false);
		kv_read_end(t);
	}
	if (!r) {
		reply(rarg, err, err ? 0 : i.i_size);
		return;
	}
	r->reply = reply;
	r->arg = rarg;
	/* Every copy has all acknowledged data, so a READ waits for one answer per stripe. On NFSv3
	 * data servers all objects must be filled up to the end, so all are asked. */
	r->ls.ls_enough = !lo_generic(fe->fe_lo, &r->ls.ls_map);
	refresh_ask(r);
}

/* ---- the mark ---- */

int file_intent_put(struct kv_txn *t, uint64_t ino)
{
	uint64_t id = htobe64(ino);
	uint8_t version = 1;
	struct kv_slice have;

	/* A contended file's row stays contended: only a comparison of the copies removes it. */
	if (!ns_row_get(t, NS_T_WRITE_INTENT, &id, 8, &have) && st_intent_contended(have))
		return 0;
	return ns_row_put(t, NS_T_WRITE_INTENT, &id, 8, &version, 1);
}

int file_intent_contended(struct kv_txn *t, uint64_t ino)
{
	uint64_t id = htobe64(ino);
	const uint8_t row[2] = {2, ST_INTENT_CONTENDED};

	return ns_row_put(t, NS_T_WRITE_INTENT, &id, 8, row, sizeof(row));
}

int file_intent_del(struct kv_txn *t, uint64_t ino)
{
	uint64_t id = htobe64(ino);

	return ns_row_del(t, NS_T_WRITE_INTENT, &id, 8);
}
