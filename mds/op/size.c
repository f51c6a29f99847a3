/* Size, change and times from the data servers; changing them (docs/size.md). */
#include "base/log.h"
#include "mds/op/op.h"
#include <errno.h>

#define RETURNED_MS 250
#define USED_MIN 512 /* 0 is a file that nobody asked about: its size counts */
#define RETURNED_ASKING 256 /* files asked about together */

struct refresh {
	struct lo_stat ls;
	struct lo_io pad;
	bool padded;
	struct kv_op op;
	struct compound *c;
	struct mds *m;
	struct loop *loop;
	bool unmark;
	bool uneven;  /* found by refresh_run: its copies are to be compared */
	bool unknown; /* a stripe may reach past the size that is committed: nobody answered for it */
	bool unused; /* nobody has had a layout by the mark: nothing is asked */
	uint32_t grants;
	uint64_t sizegen;
	nfsstat4 (*then)(struct compound *c, int err);
	/* without a compound: the answer about the end of a file */
	void (*reply)(void *arg, int err, uint64_t size);
	void *rarg;
};

static void refresh_unpin(struct refresh *r)
{
	struct st *st = r->m->m_st;
	struct st_file *f;

	st_file_lock(st, r->ls.ls_ino);
	f = st_file_get(st, r->ls.ls_ino, false);
	f->f_pins--;
	st_file_put(st, f);
	st_file_unlock(st, r->ls.ls_ino);
}

/* A size was set since the question, or is about to be in the store: the answer may be of before
 * it. While layouts are recalled for it, what they wrote counts as ever. */
static bool refresh_outdated(struct refresh *r)
{
	struct st *st = r->m->m_st;
	struct st_file *f;
	bool old;

	st_file_lock(st, r->ls.ls_ino);
	f = st_file_get(st, r->ls.ls_ino, false);
	old = f->f_cutting || f->f_sizegen != r->sizegen;
	st_file_unlock(st, r->ls.ls_ino);
	return old;
}

/* Each object that was asked is compared with what it told before, so that servers that are silent, or back again, look like no write. */
static bool refresh_news(const struct refresh *r, const struct ns_inode *i, const struct lo_map *map)
{
	if (r->ls.ls_size > i->i_size)
		return true;
	for (unsigned k = 0; k < (unsigned)map->lm_stripes * map->lm_mirrors; k++) {
		if ((r->ls.ls_answered >> k & 1) && r->ls.ls_writes[k] != map->lm_obj[k].ob_writes)
			return true;
	}
	return false;
}

/* Objects that were written since the map was told. */
static uint64_t refresh_moved(const struct refresh *r, const struct lo_map *map)
{
	uint64_t moved = 0;

	for (unsigned k = 0; k < lo_objects(map); k++) {
		const struct lo_object *was = &r->ls.ls_map.lm_obj[k];

		if ((r->ls.ls_answered >> k & 1) && map->lm_obj[k].ob_ds == was->ob_ds && map->lm_obj[k].ob_copy == was->ob_copy &&
		    r->ls.ls_writes[k] != map->lm_obj[k].ob_writes)
			moved |= UINT64_C(1) << k;
	}
	return moved;
}

/* locked: nobody was given to write the file since its size was set, and what had been given was fenced. */
static bool is_as_set(struct mds *m, const struct st_file *f, const struct lo_map *map)
{
	return f->f_set && f->f_set_grants == f->f_grants && !lo_generic(m->m_lo, map);
}

uint64_t op_size_set(struct mds *m, const struct ns_inode *i, const struct lo_map *map)
{
	const struct st_file *f;
	bool set;

	st_file_lock(m->m_st, i->i_ino);
	f = st_file_get(m->m_st, i->i_ino, false);
	set = f && is_as_set(m, f, map);
	st_file_unlock(m->m_st, i->i_ino);
	return set ? i->i_size : UINT64_MAX;
}

/*
 * On the committer: copies are compared in passing (docs/mirrors.md). What was asked for while somebody could write is no difference: a write may have been
 * at one copy. False: an end past the size that was set is no end of the file, as one copy alone tells it.
 */
static bool refresh_compare(struct refresh *r, const struct lo_map *map)
{
	struct st *st = r->m->m_st;
	struct st_file *f;
	bool ends = lo_uneven(r->m->m_lo, &r->ls, 0), quiet, past;

	if (map->lm_mirrors == 1)
		return true;
	st_file_lock(st, r->ls.ls_ino);
	f = st_file_get(st, r->ls.ls_ino, false);
	f->f_moved |= refresh_moved(r, map);
	past = ends && is_as_set(r->m, f, map);
	quiet = r->unmark && !st_file_has_writers(f) && f->f_grants == r->grants && !f->f_contended && !f->f_contending && !f->f_judge &&
		!(f->f_judge_boot && st_in_grace(st));
	r->uneven = quiet && (ends || (f->f_counts && lo_uneven(r->m->m_lo, &r->ls, f->f_moved)));
	f->f_uneven |= r->uneven;
	st_file_unlock(st, r->ls.ls_ino);
	r->unmark &= !r->uneven; /* after a restart the mark has the copies compared again */
	return !past;
}

/* What the map is to remember of the answers; whether it learns that an object exists. Another object than the one that was asked may have its place by now. */
static bool refresh_map(const struct refresh *r, struct lo_map *map)
{
	bool learns = false;

	for (unsigned k = 0; k < (unsigned)map->lm_stripes * map->lm_mirrors; k++) {
		const struct lo_object *was = &r->ls.ls_map.lm_obj[k];
		struct lo_object *o = &map->lm_obj[k];

		if (o->ob_ds != was->ob_ds || o->ob_copy != was->ob_copy)
			continue;
		learns |= !o->ob_known && r->ls.ls_durable >> k & 1;
		o->ob_known |= r->ls.ls_durable >> k & 1; /* or who wrote what a cut of the power takes would meet an object that is lost */
		if (r->ls.ls_answered >> k & 1)
			o->ob_writes = r->ls.ls_writes[k];
	}
	return learns;
}

static void refresh_end(struct refresh *r, int err)
{
	struct compound *c = r->c;
	nfsstat4 st;

	refresh_unpin(r);

	if (!c) {
		struct ns_inode i;
		struct kv_txn *t;
		int e = kv_read_begin(r->m->m_kv, &t);

		if (!e) {
			e = ns_get(r->m->m_ns, t, r->ls.ls_ino, &i);
			/* What a server holds that was declared dead is given up: nobody waits for it. */
			if (!e && r->unknown && !lo_map_cut(r->m->m_lo, &r->ls.ls_map))
				e = -ETIMEDOUT;
			r->reply(r->rarg, e, e ? 0 : i.i_size);
			kv_read_end(t);
		} else {
			r->reply(r->rarg, e, 0);
		}
		free(r);
		return;
	}
	op_txn_stale(c->th);
	st = r->then(c, err);
	free(r);
	if (st != OP_PARKED)
		op_resume(c, st);
}

/* On the committer. False: a writer has the file again, or had it since the question. True: from here on a grant for writing puts the mark again, behind this deletion. */
static bool refresh_unmark(struct refresh *r)
{
	struct st *st = r->m->m_st;
	struct st_file *f;

	st_file_lock(st, r->ls.ls_ino);
	f = st_file_get(st, r->ls.ls_ino, false);
	/* In grace its writers of before may yet stay away: the mark says that it is to be judged then. */
	r->unmark = !st_file_has_writers(f) && f->f_grants == r->grants && !(st_in_grace(st) && f->f_judge_boot) &&
		    !f->f_contending && (!f->f_contended || f->f_alike);
	if (r->unmark) {
		f->f_mark_durable = f->f_judge_boot = f->f_contended = false;
		f->f_mark_gen++;
	}
	st_file_unlock(st, r->ls.ls_ino);
	return r->unmark;
}

static int refresh_run(struct kv_op *op, struct kv_txn *t)
{
	struct refresh *r = hash_entry(op, struct refresh, op);
	struct ns *ns = r->m->m_ns;
	struct ns_setattr s = {.s_mask = NS_S_MTIME_NOW};
	struct ns_time now = op_now();
	struct ns_inode i;
	struct lo_map map;
	uint8_t blob[NS_BLOB_MAX];
	bool news, learns, grows;
	int err = ns_get(ns, t, r->ls.ls_ino, &i);

	if (!err && r->unused)
		return refresh_unmark(r) ? op_mark_del(t, r->ls.ls_ino) : 0;
	if (!err)
		err = lo_map_decode(i.i_blob, &map);
	if (err)
		return err;
	/* The answers are of objects that were the file's; asked again by whoever wants to know next. */
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
		err = ns_set_blob(ns, t, r->ls.ls_ino, blob, lo_map_encode(&map, blob, sizeof(blob)), false, now);
	else if (!err && learns)
		err = ns_note_blob(ns, t, r->ls.ls_ino, blob, lo_map_encode(&map, blob, sizeof(blob)));
	if (err || !r->unmark || !refresh_unmark(r))
		return err;
	return op_mark_del(t, r->ls.ls_ino);
}

static void refresh_committed(struct kv_op *op, int err)
{
	struct refresh *r = hash_entry(op, struct refresh, op);
	struct st *st = r->m->m_st;
	struct st_file *f;

	if (!err && r->unmark) {
		st_file_lock(st, r->ls.ls_ino);
		f = st_file_get(st, r->ls.ls_ino, false);
		if (!f->f_mark_durable && !st_file_has_writers(f) && f->f_grants == r->grants)
			f->f_marked = false; /* refresh_unpin puts f */
		st_file_unlock(st, r->ls.ls_ino);
	}
	if (!err && r->uneven)
		op_uneven(r->m, r->ls.ls_ino);
	refresh_end(r, err ? err : r->ls.ls_missing ? -ETIMEDOUT : 0);
}

/* What was written meanwhile is counted with what was before. */
static void refresh_padded(struct lo_io *io, int err)
{
	struct refresh *r = hash_entry(io, struct refresh, pad);

	r->padded = true;
	if (err || io->io_failed_map)
		refresh_end(r, -ETIMEDOUT);
	else
		lo_stat(r->m->m_lo, &r->ls);
}

/* Before anybody is told of a size, objects of generic data servers reach to it: of who reads them they would tell that the file ends (docs/generic.md). */
static bool refresh_pads(struct refresh *r)
{
	struct ns_inode i;
	uint64_t size = r->ls.ls_size, objects;
	struct kv_txn *t;
	int err;

	if (r->padded || r->ls.ls_map.lm_stripes == 1 || kv_read_begin(r->m->m_kv, &t))
		return false;
	err = ns_get(r->m->m_ns, t, r->ls.ls_ino, &i);
	kv_read_end(t);
	if (err || i.i_incarnation != r->ls.ls_incarnation || refresh_outdated(r))
		return false;
	size = i.i_size > size ? i.i_size : size;
	objects = lo_short(r->m->m_lo, &r->ls, size);
	if (!objects)
		return false;
	r->pad.io_map = r->ls.ls_map;
	op_io_fill(&r->pad, r->loop, &i, size, 0, refresh_padded);
	lo_pad(r->m->m_lo, &r->pad, objects);
	return true;
}

static void refresh_submit(struct refresh *r)
{
	r->op.o_run = refresh_run;
	r->op.o_done = refresh_committed;
	r->op.o_loop = r->loop;
	kv_submit(r->m->m_kv, &r->op);
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
		r->unmark = false; /* somebody did not answer: the mark stays */
	if (!err && !r->unmark && kv_read_begin(r->m->m_kv, &t) == 0) {
		same = ns_get(r->m->m_ns, t, ls->ls_ino, &i) == 0 && lo_map_decode(i.i_blob, &map) == 0 && !refresh_news(r, &i, &map);
		kv_read_end(t);
	}
	if (err || same)
		refresh_end(r, err ? err : ls->ls_missing ? -ETIMEDOUT : 0);
	else
		refresh_submit(r);
}

bool op_refresh_needed(struct mds *m, uint64_t ino)
{
	struct st_file *f;
	bool need;

	if (m->m_size_mode == OP_SIZE_ALWAYS)
		return true;
	if (!st_watched(ino))
		return false;
	st_file_lock(m->m_st, ino);
	f = st_file_get(m->m_st, ino, false);
	/* One that is to be judged first is not read, whatever is asked about it. */
	need = f && (f->f_judge || (f->f_marked && m->m_size_mode == OP_SIZE_LAYOUT));
	st_file_unlock(m->m_st, ino);
	return need;
}

/* locked: the mark was put for a layout that nobody was given. */
static bool mark_is_unused(struct st_file *f)
{
	return f->f_mark_durable && !f->f_marked && !st_file_has_writers(f);
}

static struct refresh *refresh_new(struct mds *m, struct loop *loop, struct kv_txn *t, uint64_t ino, bool unmark)
{
	struct refresh *r = calloc(1, sizeof(*r));
	struct ns_inode i;
	struct st_file *f;

	if (!r || ns_get(m->m_ns, t, ino, &i) || i.i_type != NS_REG || !i.i_blob.s_len || lo_map_decode(i.i_blob, &r->ls.ls_map)) {
		free(r);
		return NULL;
	}
	r->m = m;
	r->loop = loop;
	r->ls.ls_loop = loop;
	r->ls.ls_ino = ino;
	r->ls.ls_incarnation = i.i_incarnation;
	r->ls.ls_done = refresh_stat;
	st_file_lock(m->m_st, ino);
	f = st_file_get(m->m_st, ino, true);
	r->unmark = unmark;
	r->unused = unmark && f && mark_is_unused(f);
	/* A size is set, and a server may have yet to be told of it: that is the size. */
	if (f && !r->unused && (f->f_cutting || lo_held_objects(m->m_lo, ino, &r->ls.ls_map))) {
		st_file_put(m->m_st, f);
		f = NULL;
	}
	if (f) {
		f->f_pins++;
		r->sizegen = f->f_sizegen;
		r->grants = f->f_grants;
	}
	st_file_unlock(m->m_st, ino);
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
		lo_stat(r->m->m_lo, &r->ls);
}

static void refresh_ask(struct refresh *r)
{
	if (r->unused)
		refresh_submit(r);
	else if (!op_settle(r->m, r->loop, r->ls.ls_ino, refresh_settled, r))
		lo_stat(r->m->m_lo, &r->ls);
}

bool op_refresh(struct compound *c, uint64_t ino, bool force, bool unmark, nfsstat4 (*then)(struct compound *c, int err))
{
	struct refresh *r;

	if (!force && !op_refresh_needed(c->m, ino))
		return false;
	r = refresh_new(c->m, c->th->mt_loop, op_txn(c), ino, unmark);
	if (!r)
		return false;
	r->c = c;
	r->then = then;
	refresh_ask(r);
	return true;
}

/* ---- marks that go ---- */

static void returned_next(struct mds_thread *th);

static void returned_done(void *arg, int err, uint64_t size)
{
	struct mds_thread *th = arg;

	(void)err; /* who did not answer leaves the mark: the size is asked again when somebody wants it, or after a restart */
	(void)size;
	th->mt_asking--;
	returned_next(th);
}

/* Questions that are out together go to a server in few messages, and what they find goes into few commits. */
static void returned_next(struct mds_thread *th)
{
	while (th->mt_asking < RETURNED_ASKING && th->mt_nreturned) {
		uint64_t ino = th->mt_returned[--th->mt_nreturned];
		struct refresh *r = refresh_new(th->mt_mds, th->mt_loop, op_thread_txn(th), ino, true);

		if (!r)
			continue; /* removed, or a size is being set, which asks again */
		r->reply = returned_done;
		r->rarg = th;
		th->mt_asking++;
		refresh_ask(r);
	}
}

static void unmarked(void *arg, int err, uint64_t size)
{
	(void)arg;
	(void)err; /* the mark stays, and contend.c comes back to it */
	(void)size;
}

void op_unmark(struct mds *m, struct loop *loop, uint64_t ino)
{
	struct refresh *r = NULL;
	struct kv_txn *t;

	if (kv_read_begin(m->m_kv, &t) == 0) {
		r = refresh_new(m, loop, t, ino, true);
		kv_read_end(t);
	}
	if (!r)
		return;
	r->reply = unmarked;
	refresh_ask(r);
}

static void returned_fire(struct loop_timer *t)
{
	returned_next(hash_entry(t, struct mds_thread, mt_returned_timer));
}

void op_unmark_later(struct compound *c, uint64_t ino)
{
	struct mds_thread *th = c->th;

	if (th->mt_nreturned == th->mt_returned_cap) {
		size_t cap = th->mt_returned_cap ? th->mt_returned_cap * 2 : 256;
		uint64_t *v = realloc(th->mt_returned, cap * sizeof(*v));

		if (!v)
			return; /* the mark stays */
		th->mt_returned = v;
		th->mt_returned_cap = cap;
	}
	th->mt_returned[th->mt_nreturned++] = ino;
	th->mt_returned_timer.t_fire = returned_fire;
	if (!th->mt_asking && !th->mt_returned_timer.t_pos)
		loop_timer_start(th->mt_loop, &th->mt_returned_timer, RETURNED_MS);
}

void op_mark_doubt(struct compound *c, uint64_t ino)
{
	if (c->marked && c->marked != ino)
		op_mark_unused(c);
	c->marked = ino;
}

void op_mark_unused(struct compound *c)
{
	struct st *st = c->m->m_st;
	struct st_file *f;
	bool unused;

	st_file_lock(st, c->marked);
	f = st_file_get(st, c->marked, false);
	unused = f && mark_is_unused(f);
	st_file_unlock(st, c->marked);
	if (unused)
		op_unmark_later(c, c->marked);
}

void op_eof_handler(void *arg, struct loop *loop, uint64_t ino, uint16_t inc, void (*reply)(void *rarg, int err, uint64_t size), void *rarg)
{
	struct mds *m = arg;
	struct refresh *r = NULL;
	struct ns_inode i;
	struct kv_txn *t;
	int err = kv_read_begin(m->m_kv, &t);

	if (!err) {
		err = ns_get(m->m_ns, t, ino, &i);
		if (!err && i.i_incarnation != inc)
			err = -ESTALE;
		if (!err && op_refresh_needed(m, ino))
			r = refresh_new(m, loop, t, ino, false);
		kv_read_end(t);
	}
	if (!r) {
		reply(rarg, err, err ? 0 : i.i_size);
		return;
	}
	r->reply = reply;
	r->rarg = rarg;
	/* What is acknowledged every copy has: a READ waits for no other. Generic ones are all to be filled up to the end. */
	r->ls.ls_enough = !lo_generic(m->m_lo, &r->ls.ls_map);
	refresh_ask(r);
}

/* ---- setattr ---- */

struct setattr {
	struct excl excl;
	struct compound *c;
	struct op_sattr a;
	uint64_t ino;
	bool have_write, orders;
	op_put_fn put;
	nfsstat4 (*then)(struct compound *c, int err);
};

/* The last writer's layout came back while nobody could say that the file needs no mark. */
static bool setattr_unmarks(struct st *st, uint64_t ino)
{
	struct st_file *f;
	bool unmark;

	st_file_lock(st, ino);
	f = st_file_get(st, ino, false);
	unmark = f && f->f_marked && !f->f_sizing && !st_file_has_writers(f);
	st_file_unlock(st, ino);
	return unmark;
}

static void setattr_end(struct setattr *j, int err)
{
	struct compound *c = j->c;
	bool had = j->excl.ex_held;
	nfsstat4 status;

	excl_end(&j->excl, err);
	if (had && setattr_unmarks(c->m->m_st, j->ino)) /* a return meanwhile could not */
		op_unmark_later(c, j->ino);
	if (!err)
		op_deleg_late(c, j->ino);
	op_txn_stale(c->th);
	status = j->then(c, err);
	if (status != OP_PARKED)
		op_resume(c, status);
}

/* Every server has confirmed, or its lease has run out. */
static void setattr_ordered(void *arg, int err)
{
	(void)err; /* the change is made; a server that could not store it refuses from memory */
	setattr_end(arg, 0);
}

/* Layouts that name copies which do not have the change come back. */
static void setattr_recalls(void *arg)
{
	struct setattr *j = arg;

	op_waits(j->c, true);
}

/* Whether somebody may do less with the file than before. A capability allows no more than what its
 * user could be given again, unless a right was taken. */
static bool setattr_takes(const struct ns_setattr *s, const struct ns_inode *old, const struct ns_inode *now)
{
	return (s->s_mask & NS_S_ACL) || now->i_uid != old->i_uid || now->i_gid != old->i_gid ||
	       (old->i_mode & ~now->i_mode & 0777);
}

static int setattr_run(struct kv_op *op, struct kv_txn *t)
{
	struct compound *c = op_of(op);
	struct setattr *j = c->sub;
	struct ns *ns = c->m->m_ns;
	struct ns_setattr s = j->a.s;
	struct ns_time now = op_now();
	struct ns_inode i, old;
	struct lo_map map;
	bool file, takes, raise;
	int err = ns_get(ns, t, j->ino, &old);

	if (err)
		return err;
	file = old.i_type == NS_REG;
	if (j->a.has_size && old.i_type != NS_REG)
		return old.i_type == NS_DIR ? -EISDIR : -EINVAL;
	if (j->have_write)
		s.s_mask |= NS_S_HAS_WRITE;
	if (file) {
		err = lo_map_decode(old.i_blob, &map);
		if (err)
			return err;
	}
	err = ns_setattr(ns, t, j->ino, &s, &c->cred, now, &i);
	if (err || !file)
		return err;
	takes = j->a.has_size || setattr_takes(&s, &old, &i);
	/* A write by a layout that came back, or is the caller's own, may be under way still. */
	raise = j->excl.ex_left || (!map.lm_clean && takes);
	/* Where another has raised the epoch just now, its orders are waited for. */
	if (!takes && !raise)
		return 0;
	/* The order to cut carries the epoch. */
	err = excl_fence(&j->excl, t, &i, &map, raise, j->a.has_size, now);
	if (!err && j->a.has_size)
		err = lo_order_truncate(c->m->m_lo, t, &i, &map, s.s_size);
	j->orders = true;
	c->once_orders = j->ino;
	return err;
}

static nfsstat4 setattr_committed(struct compound *c, int err)
{
	struct setattr *j = c->sub;

	if (err || !j->orders)
		setattr_end(j, err);
	else
		excl_order(&j->excl, setattr_recalls, setattr_ordered, j);
	return OP_PARKED;
}

static void setattr_commit(struct setattr *j)
{
	struct compound *c = j->c;

	op_mutate(c, setattr_run, j->put, setattr_committed);
}

static nfsstat4 setattr_counted(struct compound *c, int err)
{
	(void)err;
	setattr_commit(c->sub);
	return OP_PARKED;
}

static void setattr_recalled(void *arg, int err)
{
	struct setattr *j = arg;

	(void)err;
	op_waits(j->c, false);
	setattr_commit(j);
}

/*
 * Whether the caller's own layout is taken back as well: its capabilities are about to be fenced. A stock client whose WRITE is
 * refused writes those pages later, behind the close that should have had them written. Set-id bits that are set must fall with
 * the next write: the caller's client has no layout to write it unseen (layoutget_rights).
 */
static bool setattr_own(struct setattr *j)
{
	const struct ns_setattr *s = &j->a.s;
	struct compound *c = j->c;
	struct ns_inode old, now;

	if (j->a.has_size || ns_get(c->m->m_ns, op_txn(c), j->ino, &old))
		return true;
	now = old;
	if (s->s_mask & NS_S_MODE)
		now.i_mode = (uint16_t)((old.i_mode & s->s_mode_keep) | (s->s_mode & ~s->s_mode_keep));
	if (s->s_mask & NS_S_UID)
		now.i_uid = s->s_uid;
	if (s->s_mask & NS_S_GID)
		now.i_gid = s->s_gid;
	return ((s->s_mask & NS_S_MODE) && (s->s_mode & ~s->s_mode_keep & 06000)) || setattr_takes(s, &old, &now);
}

/* Takes back what stands against the change, counts what was written before it, and commits. */
static nfsstat4 setattr_start(struct setattr *j)
{
	struct compound *c = j->c;
	/* A change of mode, ACL or owner takes back what was granted under the old one. */
	bool rights = j->a.s.s_mask & (NS_S_MODE | NS_S_ACL | NS_S_UID | NS_S_GID);
	enum excl_how how = j->a.has_size ? EXCL_SIZE : EXCL_RIGHTS;

	if (j->a.has_size || rights) {
		int waits = excl_change(&j->excl, &c->m->m_file, c->th->mt_loop, j->ino, setattr_own(j) ? NULL : c->client, how, !rights, setattr_recalled, j);

		if (waits < 0)
			return j->then(c, waits);
		if (waits && op_waits(c, true))
			return OP_PARKED;
	}
	/* A time that is set stands against the writes before it: they are counted first, so that nobody finds them new later. */
	if ((j->a.s.s_mask & (NS_S_MTIME | NS_S_MTIME_NOW)) && op_refresh(c, j->ino, false, false, setattr_counted))
		return OP_PARKED;
	setattr_commit(j);
	return OP_PARKED;
}

static void setattr_settled(void *arg, int err)
{
	struct setattr *j = arg;
	struct compound *c = j->c;
	nfsstat4 st;

	op_txn_stale(c->th);
	if (err) {
		setattr_end(j, err == -ETIMEDOUT ? -EAGAIN : err);
		return;
	}
	st = setattr_start(j);
	if (st != OP_PARKED)
		op_resume(c, st);
}

/* Others' delegations are back. */
static nfsstat4 setattr_cleared(struct compound *c, int err)
{
	struct setattr *j = c->sub;

	(void)err;
	return op_settle(c->m, c->th->mt_loop, j->ino, setattr_settled, j) ? OP_PARKED : setattr_start(j);
}

nfsstat4 op_do_setattr(struct compound *c, uint64_t ino, const struct op_sattr *a, bool have_write, op_put_fn put, nfsstat4 (*then)(struct compound *c, int err))
{
	struct setattr *j;
	struct ns_setattr s = a->s;
	struct ns_inode i;
	struct lo_map map;
	int err = ns_get(c->m->m_ns, op_txn(c), ino, &i);

	/* Nobody's layout is taken back for what is refused in the end; the commit checks again. */
	if (have_write)
		s.s_mask |= NS_S_HAS_WRITE;
	if (!err)
		err = ns_setattr_check(&i, &s, &c->cred);
	if (err)
		return op_status(err);
	if (op_deleg_grace(c, ino))
		return NFS4ERR_GRACE;
	/* One cut at a time: orders for a server that does not answer must not pile up. */
	if (a->has_size && (lo_map_decode(i.i_blob, &map) || op_is_held(c->m, c->th->mt_loop, &i, &map)))
		return NFS4ERR_DELAY;
	j = calloc(1, sizeof(*j));
	if (!j)
		return NFS4ERR_DELAY;
	c->sub = j;
	j->c = c;
	j->a = *a;
	j->ino = ino;
	j->have_write = have_write;
	j->put = put;
	j->then = then;
	if (op_deleg_clear(c, &ino, 1, OPEN4_SHARE_ACCESS_WRITE, 0, setattr_cleared))
		return OP_PARKED;
	return setattr_cleared(c, 0);
}

struct op_setattr_args {
	struct op_sattr a;
};

static void setattr_put(struct compound *c, struct xdr_out *x, struct op_after *after)
{
	struct op_setattr_args *k = c->scratch;

	(void)after;
	op_put_bitmap(x, &k->a.set);
}

static nfsstat4 setattr_done(struct compound *c, int err)
{
	if (!err)
		return op_result(c, setattr_put);
	xdr_put_u32(c->out, 0);
	c->keep_body = true; /* attrsset is there in either case */
	return op_status(err);
}

static int deleg_times_run(struct kv_op *op, struct kv_txn *t)
{
	struct compound *c = op_of(op);
	const struct ns_setattr *s = &((struct op_setattr_args *)c->scratch)->a.s;

	return ns_deleg_times(c->m->m_ns, t, c->cur, s->s_mask & NS_S_ATIME ? &s->s_atime : NULL, s->s_mask & NS_S_MTIME ? &s->s_mtime : NULL, false, op_now());
}

/* What the holder of a delegation kept while it had it (RFC 9754 section 5): nobody else may say so. */
static nfsstat4 setattr_deleg_times(struct compound *c, const struct st_stateid *sid)
{
	struct st *st = c->m->m_st;
	struct st_open *o;
	nfsstat4 status;

	st_file_lock(st, c->cur);
	status = op_deleg_by_sid(c, sid, &o);
	if (!status && !o->o_deleg->dg_times)
		status = NFS4ERR_BAD_STATEID;
	/* Who may only read modifies nothing. */
	if (!status && o->o_deleg->dg_type != OPEN_DELEGATE_WRITE && (((struct op_setattr_args *)c->scratch)->a.s.s_mask & NS_S_MTIME))
		status = NFS4ERR_INVAL;
	st_file_unlock(st, c->cur);
	return status ? status : op_mutate(c, deleg_times_run, setattr_put, setattr_done);
}

nfsstat4 op_setattr(struct compound *c)
{
	struct op_setattr_args *k = op_scratch(c, sizeof(*k), NULL);
	struct st *st = c->m->m_st;
	struct st_stateid sid;
	struct ns_inode i;
	struct st_open *o;
	bool have_write = false;
	nfsstat4 status;

	if (!k)
		return NFS4ERR_DELAY;
	op_get_stateid(c->in, &sid);
	status = op_get_sattr(c, c->in, &k->a, false);
	if (!status && !c->cur)
		status = NFS4ERR_NOFILEHANDLE;
	if (!status)
		status = op_resolve_sid(c, &sid);
	if (!status && k->a.deleg_times) {
		status = setattr_deleg_times(c, &sid);
		if (status == OP_PARKED)
			return status;
	} else if (!status && k->a.has_size && st_sid_special(&sid)) {
		status = op_cur_inode(c, &i);
		if (!status) /* who may not takes nothing from others */
			status = op_status(ns_setattr_check(&i, &k->a.s, &c->cred));
		if (!status)
			status = op_special_io(c, c->cur, OPEN4_SHARE_ACCESS_WRITE);
	} else if (!status && k->a.has_size) {
		status = op_cur_inode(c, &i);
		st_file_lock(st, c->cur);
		if (!status)
			status = st_in_grace(st) ? NFS4ERR_GRACE : op_open_by_sid(c, &sid, c->cur, &o);
		if (!status && !(o->o_access & OPEN4_SHARE_ACCESS_WRITE))
			status = NFS4ERR_OPENMODE;
		if (!status)
			status = op_user_access(c, &i, OPEN4_SHARE_ACCESS_WRITE);
		st_file_unlock(st, c->cur);
		have_write = true; /* where the status is good */
	}
	if (!status && !k->a.deleg_times)
		return op_do_setattr(c, c->cur, &k->a, have_write, setattr_put, setattr_done);
	xdr_put_u32(c->out, 0);
	c->keep_body = true;
	return status;
}
