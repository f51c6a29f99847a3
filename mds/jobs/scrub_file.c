/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scrub_file.c - the phases of a scrub that examine files: whether their objects exist, how long
 * they are, and what is in them (docs/scrub.md).
 *
 * The scrub asks again for whatever a first answer makes suspicious. A suspicious size is asked for
 * once more with the file frozen: all layouts are back, all earlier capabilities are fenced, and
 * nothing is under way. What is wrong then is wrong. A missing object needs no freeze: an object
 * that is known to exist is in its place whatever is under way, and a fence only marks it. An
 * object becomes stale if another copy in sync is better. Repair makes it again, and layouts that
 * name it come back.
 */
#include "base/log.h"
#include "mds/layout/repair_row.h"
#include "mds/jobs/scrub_int.h"
#include <errno.h>
#include <urcu/compiler.h>

#define AGAIN_MS 200
#define FREEZES	 20
#define BIT(k)	 (UINT64_C(1) << (k))

/* ---- what is wrong ---- */

static uint64_t in_sync(const struct lo_map *m, unsigned stripe)
{
	uint64_t bits = 0;
	int k;

	for (unsigned r = 0; (k = lo_copy(m, stripe, r)) >= 0; r++)
		bits |= BIT(k);
	return bits;
}

/* The copies of a stripe that end where the file ends are right. If none does, it is only known
 * that they differ. */
static void judge_stripe(const struct scrub_file *f, uint64_t sync, struct scrub_wrong *w)
{
	const struct lo_stat *ls = &f->f_stat;
	uint64_t at_end = 0, others = 0, first = ls->ls_sizes[__builtin_ctzll(sync)];
	bool equal = true;

	for (uint64_t b = sync; b; b &= b - 1) {
		unsigned k = (unsigned)__builtin_ctzll(b);

		equal &= ls->ls_sizes[k] == first;
		*(ls->ls_sizes[k] == f->f_inode.i_size ? &at_end : &others) |= BIT(k);
	}
	if (equal)
		return;
	w->w_size |= at_end ? others : sync;
	w->w_bad |= at_end ? others : 0;
}

static void judge_sizes(const struct scrub_file *f, struct scrub_wrong *w)
{
	const struct lo_stat *ls = &f->f_stat;
	uint64_t longest = 0;

	for (unsigned s = 0; s < ls->ls_map.lm_stripes; s++)
		if (in_sync(&ls->ls_map, s))
			judge_stripe(f, in_sync(&ls->ls_map, s), w);
	if (w->w_size || ls->ls_size == f->f_inode.i_size)
		return;
	for (unsigned k = 0; k < lo_objects(&ls->ls_map); k++)
		if (ls->ls_map.lm_obj[k].ob_state == LO_IN_SYNC && ls->ls_sizes[k] == ls->ls_size)
			longest |= BIT(k);
	w->w_size |= longest;
}

void scrub_compare(struct mds *m, const struct scrub_file *f, struct scrub_wrong *w)
{
	const struct lo_stat *ls = &f->f_stat;
	const struct lo_map *map = &ls->ls_map;

	*w = (struct scrub_wrong){.w_missing = ls->ls_lost};
	for (unsigned k = 0; k < lo_objects(map); k++)
		w->w_degraded |= map->lm_obj[k].ob_state != LO_ABSENT &&
				 (map->lm_obj[k].ob_state != LO_IN_SYNC ||
				  (m && ds_reg_dead(m->m_dsc, map->lm_obj[k].ob_ds)));
	for (unsigned s = 0; s < map->lm_stripes; s++) {
		uint64_t sync = in_sync(map, s), there = sync & ls->ls_answered & ~ls->ls_lost;
		bool living = false;

		w->w_unasked |= sync & ~ls->ls_answered & ~ls->ls_lost;
		w->w_bad |= there ? sync & ls->ls_lost : 0;
		for (uint64_t b = sync; b && m; b &= b - 1)
			living |= !ds_reg_dead(m->m_dsc, map->lm_obj[__builtin_ctzll(b)].ob_ds);
		w->w_cut |= m && !living ? BIT(s) : 0;
	}
	/* On plain NFSv3 data servers an object of a striped file goes on to where the file
	 * ends. */
	if (!w->w_unasked && !w->w_missing &&
	    !(m && map->lm_stripes > 1 && lo_generic(m->m_lo, map)))
		judge_sizes(f, w);
}

/* True: only clients may know where the file ends, or an order to truncate it is under way. */
static bool scrub_file_busy(struct mds *m, const struct scrub_file *f)
{
	struct st_file *file;
	bool yes;

	st_file_lock(m->m_st, f->f_inode.i_ino);
	file = st_file_get(m->m_st, f->f_inode.i_ino, false);
	yes = file && (file->f_intent || file->f_pins || file->f_nsizing || file->f_suspect ||
		       st_file_has_writers(file));
	st_file_unlock(m->m_st, f->f_inode.i_ino);
	return yes || lo_objects_with_orders(m->m_lo, f->f_inode.i_ino, &f->f_stat.ls_map);
}

/* ---- one file ---- */

static void file_next(struct job_scrub *c);
static void file_again(struct job_scrub *c);

static void find_in(struct job_scrub *c, const struct scrub_file *f, enum job_scrub_kind kind,
		    enum job_scrub_done done, unsigned obj)
{
	const struct lo_map *m = &f->f_stat.ls_map;

	scrub_find(c, &(struct job_scrub_found){
			      .sf_kind = kind,
			      .sf_done = done,
			      .sf_ds = m->lm_obj[obj].ob_ds,
			      .sf_ino = f->f_inode.i_ino,
			      .sf_incarnation = f->f_inode.i_incarnation,
			      .sf_stripe = (uint8_t)(obj % m->lm_stripes),
			      .sf_copy = m->lm_obj[obj].ob_copy,
			      .sf_size = f->f_stat.ls_sizes[obj],
			      .sf_want = f->f_inode.i_size,
		      });
}

/* The file is done. The next transaction records that it was examined. */
static void file_over(struct job_scrub *c)
{
	struct scrub_file *f = &c->sb_file[c->sb_at++];

	excl_end(&c->sb_freeze, 0);
	c->sb_frozen = false;
	c->sb_tries = 0;
	c->sb_s.ss_files++;
	c->sb_s.ss_ino = f->f_inode.i_ino + 1;
	if (c->sb_nfound > CTL_BATCH_MAX / 2)
		scrub_commit(c, NULL, file_next);
	else
		file_next(c); /* recursion: no deeper than SCRUB_FILES */
}

static void file_skip(struct job_scrub *c, uint64_t *why)
{
	++*why;
	file_over(c);
}

static void brought_back(void *arg, int err)
{
	struct job_scrub *c = arg;

	if (err)
		log_warn("scrub: inode %lu: a client's layout may name a stale copy: %s",
			 (unsigned long)c->sb_file[c->sb_at].f_inode.i_ino, strerror(-err));
	file_over(c);
}

static void verdict_done(struct job_scrub *c)
{
	const struct scrub_file *f = &c->sb_file[c->sb_at];

	if (c->sb_staled && !c->sb_frozen && !lo_fence_hangs(c->sb_m->m_lo, &f->f_stat.ls_map))
		excl_begin(&c->sb_freeze, &c->sb_m->m_file, c->sb_loop, f->f_inode.i_ino, NULL,
			   EXCL_LAYOUTS, brought_back, c);
	else
		file_over(c);
}

/* What is wrong is certain: makes bad copies stale, and records the findings. */
static int verdict_run(struct job_scrub *c, struct kv_txn *t)
{
	const struct scrub_file *f = &c->sb_file[c->sb_at];
	struct mds *m = c->sb_m;
	struct scrub_wrong w;
	struct ns_inode i;
	struct lo_map map;
	uint64_t hit, stale = 0;
	int err = ns_get(m->m_ns, t, f->f_inode.i_ino, &i);

	if (!err)
		err = lo_map_decode(i.i_blob, &map);
	c->sb_nfound = c->sb_base;
	c->sb_staled = false;
	if (err == -ESTALE || err == -ENOENT ||
	    (!err && i.i_incarnation != f->f_inode.i_incarnation))
		return 0;
	if (err)
		return err;
	scrub_compare(m, f, &w);
	hit = lo_map_same(&f->f_stat.ls_map, w.w_bad, &map);
	/* An object that is being made may be a copy of the bad object. */
	for (unsigned k = 0; k < lo_objects(&map); k++)
		for (unsigned b = k % map.lm_stripes;
		     b < lo_objects(&map) && map.lm_obj[k].ob_state == LO_REBUILDING;
		     b += map.lm_stripes)
			hit |= hit & BIT(b) ? BIT(k) : 0;
	if (!c->sb_next.ss_dry)
		stale = lo_map_make_stale(&map, hit, NULL);
	c->sb_staled = stale;
	if (stale)
		err = file_set_map(&m->m_file, t, i.i_ino, &map, file_now());
	for (unsigned k = 0; k < lo_objects(&f->f_stat.ls_map) && !err; k++) {
		uint64_t here = lo_map_same(&f->f_stat.ls_map, BIT(k), &map);
		enum job_scrub_done done = here & stale ? JOB_SCRUB_STALE : JOB_SCRUB_LEFT;

		if (w.w_missing & BIT(k))
			find_in(c, f, w.w_bad & BIT(k) ? JOB_SCRUB_MISSING : JOB_SCRUB_LOST, done,
				k);
		else if (w.w_size & BIT(k))
			find_in(c, f, JOB_SCRUB_SIZE, done, k);
	}
	return err;
}

static void file_frozen(void *arg, int err)
{
	struct job_scrub *c = arg;

	c->sb_frozen = !err;
	if (!err) {
		file_again(c);
		return;
	}
	excl_end(&c->sb_freeze, 0);
	if (err == -EAGAIN && c->sb_tries++ < FREEZES)
		scrub_later(c, AGAIN_MS, file_again);
	else
		file_skip(c, &c->sb_s.ss_skipped);
}

static void file_judge(struct job_scrub *c)
{
	const struct scrub_file *f = &c->sb_file[c->sb_at];
	struct scrub_wrong w;

	scrub_compare(c->sb_m, f, &w);
	if (w.w_size && scrub_file_busy(c->sb_m, f)) {
		file_skip(c, &c->sb_s.ss_busy);
	} else if (!w.w_missing && !w.w_size) {
		for (unsigned s = 0; s < f->f_stat.ls_map.lm_stripes; s++)
			if (w.w_cut & BIT(s))
				find_in(c, f, JOB_SCRUB_CUT, JOB_SCRUB_LEFT, s);
		c->sb_s.ss_degraded += w.w_degraded && !w.w_cut;
		c->sb_s.ss_skipped += w.w_unasked && !w.w_cut;
		file_over(c);
	} else if (c->sb_frozen || (w.w_missing && c->sb_tries >= SCRUB_TRIES)) {
		c->sb_base = c->sb_nfound;
		scrub_commit(c, verdict_run, verdict_done);
	} else if (c->sb_tries++ < SCRUB_TRIES) {
		scrub_later(c, AGAIN_MS, file_again);
	} else if (lo_fence_hangs(c->sb_m->m_lo, &f->f_stat.ls_map)) {
		file_skip(c, &c->sb_s.ss_skipped);
	} else {
		excl_begin(&c->sb_freeze, &c->sb_m->m_file, c->sb_loop, f->f_inode.i_ino, NULL,
			   EXCL_LAYOUTS, file_frozen, c);
	}
}

static void again_done(struct lo_stat *ls, int err)
{
	(void)err; /* ls says which objects did not answer */
	file_judge(caa_container_of(ls, struct scrub_file, f_stat)->f_scrub);
}

void scrub_ask(struct job_scrub *c, struct scrub_file *f, const struct ns_inode *i,
	       void (*done)(struct lo_stat *ls, int err))
{
	f->f_scrub = c;
	f->f_inode = *i;
	f->f_inode.i_blob = f->f_inode.i_acl = (struct kv_slice){0};
	f->f_stat.ls_loop = c->sb_loop;
	f->f_stat.ls_ino = i->i_ino;
	f->f_stat.ls_incarnation = i->i_incarnation;
	f->f_stat.ls_done = done;
}

static void file_again(struct job_scrub *c)
{
	struct scrub_file *f = &c->sb_file[c->sb_at];
	struct ns_inode i;
	struct kv_txn *t;
	int err = kv_read_begin(c->sb_m->m_kv, &t);

	if (err) {
		scrub_later(c, AGAIN_MS, file_again);
		return;
	}
	err = ns_get(c->sb_m->m_ns, t, f->f_inode.i_ino, &i);
	if (!err)
		err = lo_map_decode(i.i_blob, &f->f_stat.ls_map);
	if (!err)
		scrub_ask(c, f, &i, again_done);
	kv_read_end(t);
	if (err)
		file_over(c); /* removed */
	else
		lo_stat(c->sb_m->m_lo, &f->f_stat);
}

/* ---- some files ---- */

static void file_next(struct job_scrub *c)
{
	if (c->sb_at < c->sb_nfile && !scrub_stopped(c)) {
		file_judge(c);
		return;
	}
	if (c->sb_at >= c->sb_nfile)
		c->sb_s.ss_ino = c->sb_last + 1;
	if (c->sb_nfound || ++c->sb_unsaved >= 64)
		scrub_commit(c, NULL, scrub_go);
	else
		scrub_go(c);
}

static void first_done(struct lo_stat *ls, int err)
{
	struct job_scrub *c = caa_container_of(ls, struct scrub_file, f_stat)->f_scrub;

	(void)err;
	if (--c->sb_asked)
		return;
	c->sb_at = c->sb_tries = 0;
	file_next(c);
}

struct look {
	struct job_scrub *c;
	bool more;
};

static int scrub_file_take_file(void *arg, const struct ns_inode *i)
{
	struct look *l = arg;
	struct job_scrub *c = l->c;
	struct scrub_file *f = &c->sb_file[c->sb_nfile];

	if (c->sb_nfile == SCRUB_FILES || c->sb_nfound >= CTL_BATCH_MAX / 2) {
		l->more = true;
		return 1;
	}
	if (lo_map_decode(i->i_blob, &f->f_stat.ls_map)) {
		scrub_find(c, &(struct job_scrub_found){.sf_kind = JOB_SCRUB_DAMAGED,
							.sf_ino = i->i_ino,
							.sf_incarnation = i->i_incarnation});
		c->sb_last = i->i_ino;
		return 0;
	}
	scrub_ask(c, f, i, first_done);
	c->sb_last = i->i_ino;
	c->sb_nfile++;
	return 0;
}

void scrub_files_go(struct job_scrub *c)
{
	struct look l = {.c = c};
	struct kv_txn *t;
	int err = kv_read_begin(c->sb_m->m_kv, &t);

	if (err) {
		scrub_later(c, AGAIN_MS, scrub_go);
		return;
	}
	c->sb_nfile = c->sb_at = 0;
	err = ns_files(c->sb_m->m_ns, t, c->sb_s.ss_ino, scrub_file_take_file, &l);
	kv_read_end(t);
	if (err)
		log_error("scrub: cannot read the files: %s", strerror(-err));
	if (!c->sb_nfile && !l.more) {
		scrub_phase(c, JOB_SCRUB_CONTENT);
		return;
	}
	c->sb_asked = c->sb_nfile + 1;
	for (unsigned k = 0; k < c->sb_nfile; k++)
		lo_stat(c->sb_m->m_lo, &c->sb_file[k].f_stat);
	if (!--c->sb_asked)
		file_next(c);
}

/* ---- content ---- */

/* Reports as many differences as one transaction takes; then the next ones. */
static void content_told(struct job_scrub *c)
{
	struct job_verify_view *v = &c->sb_diffs;

	while (c->sb_diff < v->vv_ndiff && c->sb_nfound + LO_MAX_OBJECTS <= CTL_BATCH_MAX) {
		const struct job_verify_diff *d = &v->vv_diff[c->sb_diff++];

		for (uint64_t b = d->vd_bad; b; b &= b - 1) {
			unsigned k = (unsigned)__builtin_ctzll(b);

			scrub_find(c,
				   &(struct job_scrub_found){
					   .sf_kind = d->vd_unread & BIT(k) ? JOB_SCRUB_UNREADABLE
									    : JOB_SCRUB_DIFFERS,
					   .sf_done = d->vd_stale & BIT(k) ? JOB_SCRUB_STALE
									   : JOB_SCRUB_LEFT,
					   .sf_ds = d->vd_ds[k],
					   .sf_ino = d->vd_ino,
					   .sf_stripe = (uint8_t)d->vd_stripe,
					   .sf_copy = d->vd_copy[k],
					   .sf_size = d->vd_off,
					   .sf_want = d->vd_len,
				   });
		}
	}
	if (c->sb_diff < v->vv_ndiff) {
		scrub_commit(c, NULL, content_told);
		return;
	}
	free(v->vv_diff);
	v->vv_diff = NULL;
	scrub_commit(c, NULL, scrub_go);
}

static void content_done(void *arg)
{
	struct job_scrub *c = arg;

	free(c->sb_diffs.vv_diff); /* left by a run that ended because the store failed */
	job_verify_look_at(c->sb_verify, &c->sb_diffs);
	c->sb_diff = 0;
	c->sb_s.ss_bytes += c->sb_diffs.vv_bytes;
	c->sb_s.ss_skipped += c->sb_diffs.vv_skipped;
	/* differences that were counted and not kept */
	c->sb_s.ss_counts[JOB_SCRUB_DIFFERS] += c->sb_diffs.vv_diffs - c->sb_diffs.vv_ndiff;
	content_told(c);
}

/* A plain NFSv3 data server cannot compute checksums. */
static bool can_sum(struct mds *m, const struct lo_map *map)
{
	struct ds_reg_server sv;

	for (unsigned k = 0; k < lo_objects(map); k++)
		if (ds_reg_get(m->m_dsc, map->lm_obj[k].ob_ds, &sv) && sv.sv_nfs3)
			return false;
	return true;
}

static int take_ino(void *arg, const struct ns_inode *i)
{
	struct look *l = arg;
	struct job_scrub *c = l->c;
	struct scrub_file *f = &c->sb_file[0];

	if (c->sb_nfile == SCRUB_FILES) {
		l->more = true;
		return 1;
	}
	c->sb_s.ss_ino = i->i_ino + 1;
	if (lo_map_decode(i->i_blob, &f->f_stat.ls_map) || !can_sum(c->sb_m, &f->f_stat.ls_map))
		return 0;
	f->f_inode = *i;
	if (scrub_file_busy(c->sb_m, f))
		c->sb_s.ss_busy++;
	else
		c->sb_ino[c->sb_nfile++] = i->i_ino;
	return 0;
}

void scrub_content_go(struct job_scrub *c)
{
	struct look l = {.c = c};
	struct kv_txn *t;
	int err;

	if (!c->sb_verify && !(c->sb_verify = job_verify_new(c->sb_m, c->sb_loop))) {
		scrub_later(c, 10 * AGAIN_MS, scrub_go);
		return;
	}
	err = kv_read_begin(c->sb_m->m_kv, &t);
	if (err) {
		scrub_later(c, AGAIN_MS, scrub_go);
		return;
	}
	c->sb_nfile = 0;
	err = ns_files(c->sb_m->m_ns, t, c->sb_s.ss_ino, take_ino, &l);
	kv_read_end(t);
	if (c->sb_nfile)
		job_verify_run(c->sb_verify, c->sb_ino, c->sb_nfile, !c->sb_s.ss_dry, content_done,
			       c);
	else
		scrub_phase(c, JOB_SCRUB_OVER);
}
