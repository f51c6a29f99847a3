/* SPDX-License-Identifier: Apache-2.0 */
/*
 * contended.c - a mirrored file that two clients write at the same time (docs/mirrors.md, "Two
 * writers").
 *
 * Two WRITEs that overlap may reach the copies in different orders. Each copy is then right by
 * itself, and the copies differ. From the second writer on the file is *contended*: its mark in the
 * store says so, and all layouts come back. Layouts that are given from then on name one first copy
 * to all clients. When the last write layout is back, everything under way is fenced and the copies
 * are compared. A copy that differs from the first copy becomes stale and is repaired from it. The
 * mark goes when that is done and no write layout was given in between.
 *
 * Writes that all come through the MDS are kept apart here: a write that overlaps another waits.
 *
 * states of a file:
 *	one writer --second writer--> contending (no new layouts; the row is committed, layouts come
 *	back) --> contended --last write layout is back--> compared --> alike (the mark goes)
 *	a write layout that is given to a contended file makes it not alike.
 *
 * A file is uneven if its copies differ in passing (file_size.c, refresh_compare). It is compared
 * here as well, when no client has it for writing. Nothing is recalled for the suspicion alone. If
 * the suspicion holds, and holds under a fence, the copies do differ although no client reported a
 * failed write: that is an event.
 */
#include "base/clock.h"
#include "base/log.h"
#include "mds/file/file_size.h"
#include "mds/jobs/contended.h"
#include "mds/journal/event_journal.h"
#include "mds/jobs/verify.h"
#include <errno.h>

#define CONTEND_AGAIN_MS 2000u /* after a comparison that could not be done */

struct contended {
	uint64_t cn_ino, cn_not_before_ms;
	bool cn_uneven; /* uneven, and not contended */
};

/* The files that are contended or uneven, and the comparison under way. Any thread adds to the
 * list. */
struct job_contended {
	pthread_mutex_t jc_lock;
	struct contended *jc_file;
	size_t jc_n, jc_cap, jc_next;
	struct mds *jc_m;
	struct loop *jc_loop;
	struct job_verify *jc_verify;
	/* the comparison: only the loop uses these */
	bool jc_busy, jc_uneven;
	uint64_t jc_ino;
	uint32_t jc_grants;
	struct excl jc_freeze;
};

struct contend {
	struct kv_op ct_op;
	struct mds *ct_m;
	struct loop *ct_loop;
	uint64_t ct_ino;
	struct excl_layout_block ct_hold;
};

static int contended_add(struct job_contended *co, uint64_t ino, bool uneven)
{
	int err = 0;

	pthread_mutex_lock(&co->jc_lock);
	for (size_t k = 0; k < co->jc_n; k++)
		if (co->jc_file[k].cn_ino == ino) {
			co->jc_file[k].cn_uneven &= uneven;
			goto out;
		}
	if (co->jc_n == co->jc_cap) {
		size_t cap = co->jc_cap ? co->jc_cap * 2 : 64;
		struct contended *v = reallocarray(co->jc_file, cap, sizeof(*v));

		if (!v) {
			err = -ENOMEM;
			goto out;
		}
		co->jc_file = v;
		co->jc_cap = cap;
	}
	co->jc_file[co->jc_n++] = (struct contended){.cn_ino = ino, .cn_uneven = uneven};
out:
	pthread_mutex_unlock(&co->jc_lock);
	return err;
}

/* f_diverged was set: the copies are compared when no client has the file for writing. */
static void contended_uneven(void *contended, uint64_t ino)
{
	if (contended_add(contended, ino, true))
		log_warn("inode %lu: out of memory: its copies are compared only after a restart",
			 (unsigned long)ino);
}

/* ---- the second writer ---- */

static void contend_end(void *arg, int err)
{
	struct contend *j = arg;

	(void)err; /* Ignore the error: data servers fence a layout that did not come back. */
	excl_unblock(&j->ct_hold);
	free(j);
}

static void contend_committed(struct kv_op *op, int err)
{
	struct contend *j = caa_container_of(op, struct contend, ct_op);
	struct st *st = j->ct_m->m_st;
	struct st_file *f;

	st_file_lock(st, j->ct_ino);
	f = st_file_get(st, j->ct_ino, false); /* ct_hold keeps it */
	f->f_contending = false;
	f->f_contended &= !err;
	st_file_unlock(st, j->ct_ino);
	if (!err && contended_add(j->ct_m->m_contended, j->ct_ino, false))
		log_warn("inode %lu: out of memory: its copies are compared only after a restart",
			 (unsigned long)j->ct_ino);
	if (err && err != -ECANCELED && err != -ENOENT)
		log_error("inode %lu: cannot mark that two clients write it: %s",
			  (unsigned long)j->ct_ino, strerror(-err));
	/* Earlier layouts name other first copies. */
	if (err || !excl_recall_stale(&j->ct_hold, &j->ct_m->m_file, j->ct_loop, j->ct_ino, NULL,
				      contend_end, j))
		contend_end(j, 0);
}

static int contend_run(struct kv_op *op, struct kv_txn *t)
{
	struct contend *j = caa_container_of(op, struct contend, ct_op);
	struct st *st = j->ct_m->m_st;
	struct st_file *f;
	struct ns_inode i;
	bool marked;
	int err = ns_get(j->ct_m->m_ns, t, j->ct_ino, &i);

	if (err)
		return err;
	/* On the committer, like refresh_unmark: both changes to the mark come in the order of the
	 * store. */
	st_file_lock(st, j->ct_ino);
	f = st_file_get(st, j->ct_ino, false);
	marked = f->f_intent_durable;
	f->f_contended = marked;
	f->f_equal = false;
	if (marked)
		st_file_watch(f);
	st_file_unlock(st, j->ct_ino);
	return marked ? file_intent_contended(t, j->ct_ino) : -ECANCELED;
}

void job_contend(struct mds *m, struct loop *loop, uint64_t ino)
{
	struct contend *j = calloc(1, sizeof(*j));
	struct st *st = m->m_st;
	struct st_file *f;
	bool begin;

	if (!j)
		return; /* no memory: the writer was put off, and tries again */
	st_file_lock(st, ino);
	f = st_file_get(st, ino, false);
	begin = f && !f->f_contended && !f->f_contending && f->f_intent_durable;
	if (begin)
		f->f_contending = true;
	st_file_unlock(st, ino);
	if (!begin) {
		free(j);
		return;
	}
	j->ct_m = m;
	j->ct_loop = loop;
	j->ct_ino = ino;
	excl_block(&j->ct_hold, &m->m_file, ino); /* cannot fail: f is there */
	j->ct_op =
		(struct kv_op){.o_run = contend_run, .o_done = contend_committed, .o_loop = loop};
	kv_submit(m->m_kv, &j->ct_op);
}

bool job_contends(const struct st_file *f, const struct st_client *by)
{
	if (f->f_contended)
		return false;
	for (const struct st_layout *l = f->f_layouts; l; l = l->l_fnext)
		if (l->l_client != by && (l->l_iomode & LAYOUTIOMODE4_RW))
			return true;
	return false;
}

/* ---- writes through the MDS ---- */

bool job_write_begin(struct job_write *w, struct mds *m, struct loop *loop, uint64_t ino,
		     const struct st_client *by, uint64_t off, uint64_t end)
{
	struct st *st = m->m_st;
	struct st_file *f;
	bool ok = true, contends;

	if (w->ow_m)
		return true;
	st_file_lock(st, ino);
	f = st_file_get(st, ino, false); /* pinned */
	contends = job_contends(f, by);
	for (const struct st_write *o = f->f_writes; o && ok; o = o->sw_next)
		ok = o->sw_end <= off || o->sw_off >= end;
	ok &= !contends;
	if (ok) {
		w->ow_m = m;
		w->ow_ino = ino;
		w->ow_write = (struct st_write){f->f_writes, by, off, end};
		f->f_writes = &w->ow_write;
	}
	st_file_unlock(st, ino);
	if (contends)
		job_contend(m, loop, ino);
	return ok;
}

void job_write_end(struct job_write *w)
{
	struct st *st = w->ow_m ? w->ow_m->m_st : NULL;
	struct st_write **p;

	if (!st)
		return;
	st_file_lock(st, w->ow_ino);
	p = &st_file_get(st, w->ow_ino, false)->f_writes; /* pinned */
	while (*p != &w->ow_write)
		p = &(*p)->sw_next;
	*p = w->ow_write.sw_next;
	st_file_unlock(st, w->ow_ino);
	w->ow_m = NULL;
}

/* ---- the comparison ---- */

/* The file is compared again after the others, and not at once. */
static void contended_later(struct job_contended *co, uint64_t ino)
{
	pthread_mutex_lock(&co->jc_lock);
	for (size_t k = 0; k < co->jc_n; k++)
		if (co->jc_file[k].cn_ino == ino)
			co->jc_file[k].cn_not_before_ms = clock_mono_ms() + CONTEND_AGAIN_MS;
	pthread_mutex_unlock(&co->jc_lock);
}

/* Writes the event: which copies differ from the copy that is kept, in the first of n ranges. */
static void tell_difference(struct job_contended *co, const struct job_verify_diff *d, uint64_t n)
{
	char bad[EV_SUBJECT_MAX + 1] = "";
	struct ds_reg_server sv;

	for (unsigned k = 0; k < LO_MAX_OBJECTS; k++)
		if ((d->vd_bad >> k & 1) && ds_reg_get(co->jc_m->m_dsc, d->vd_ds[k], &sv) &&
		    strlen(bad) + strlen(sv.sv_name) + 1 <= EV_SUBJECT_MAX)
			strcat(strcat(bad, *bad ? "," : ""), sv.sv_name);
	journal_add(EV_COPIES_DIFFER, bad, co->jc_ino,
		    "%lu ranges differ from the copy on %s, from byte %lu of stripe %u on",
		    (unsigned long)n,
		    ds_reg_get(co->jc_m->m_dsc, d->vd_ds[d->vd_kept], &sv) ? sv.sv_name : "?",
		    (unsigned long)d->vd_off, d->vd_stripe);
}

/* Whether the copies were found equal, or made equal: a copy that differed is stale now, and repair
 * has the file's row. */
static bool contended_result(struct job_contended *co)
{
	struct job_verify_view v;
	bool ok;

	job_verify_look_at(co->jc_verify, &v);
	ok = v.vv_skipped == 0 && v.vv_diffs == v.vv_ndiff;
	for (unsigned k = 0; k < v.vv_ndiff; k++)
		ok &= v.vv_diff[k].vd_mended;
	if (ok && v.vv_ndiff && !co->jc_uneven)
		log_info("inode %lu: copies that two clients wrote at the same time differed in %u "
			 "ranges; "
			 "the first copy was kept",
			 (unsigned long)co->jc_ino, v.vv_ndiff);
	if (v.vv_ndiff)
		tell_difference(co, &v.vv_diff[0], v.vv_diffs);
	free(v.vv_diff);
	return ok;
}

static void contended_compared(void *arg)
{
	struct job_contended *co = arg;
	struct st *st = co->jc_m->m_st;
	bool ok = contended_result(co);
	struct st_file *f;

	st_file_lock(st, co->jc_ino);
	f = st_file_get(st, co->jc_ino, false);
	ok = ok && f && (co->jc_uneven ? f->f_diverged : f->f_contended) &&
	     f->f_grants == co->jc_grants;
	if (ok && co->jc_uneven) {
		f->f_diverged = false;
		f->f_moved = 0;
	} else if (ok) {
		f->f_equal = true;
	}
	st_file_unlock(st, co->jc_ino);
	contended_later(co, co->jc_ino);
	co->jc_busy = false;
	if (ok)
		file_intent_clear(&co->jc_m->m_file, co->jc_loop, co->jc_ino);
}

/* Whether a copy is being made. Writes of two clients may have reached that copy in another order.
 * It is compared only when it is in sync. */
static bool is_rebuilding(struct mds *m, uint64_t ino)
{
	struct ns_inode i;
	struct lo_map map;
	struct kv_txn *t;
	bool yes = false;

	if (kv_read_begin(m->m_kv, &t))
		return true;
	if (ns_get(m->m_ns, t, ino, &i) == 0 && lo_map_decode(i.i_blob, &map) == 0)
		for (unsigned k = 0; k < lo_objects(&map); k++)
			yes |= map.lm_obj[k].ob_state == LO_REBUILDING;
	kv_read_end(t);
	return yes;
}

/* Nothing is under way any more. Each write from here on needs a new grant. */
static void contended_frozen(void *arg, int err)
{
	struct job_contended *co = arg;
	struct st *st = co->jc_m->m_st;
	struct st_file *f;
	bool go;

	st_file_lock(st, co->jc_ino);
	f = st_file_get(st, co->jc_ino, false);
	go = !err && f && f->f_contended && !st_file_has_writers(f);
	co->jc_grants = f ? f->f_grants : 0;
	st_file_unlock(st, co->jc_ino);
	go = go && !is_rebuilding(co->jc_m, co->jc_ino);
	excl_end(&co->jc_freeze, 0);
	if (go) {
		job_verify_run_first(co->jc_verify, co->jc_ino, contended_compared, co);
		return;
	}
	contended_later(co, co->jc_ino);
	co->jc_busy = false;
}

/* 1: compare the file now; 0: later; -1: it is neither contended nor uneven any more. settle:
 * clears f_diverged where that is over. */
static int contended_due(struct st *st, const struct contended *cn, bool settle)
{
	struct st_file *f;
	bool uneven;
	int due;

	st_file_lock(st, cn->cn_ino);
	f = st_file_get(st, cn->cn_ino, false);
	/* A file that is given for writing again is not uneven any more: its writes are counted
	 * again after that. */
	uneven = f && f->f_diverged && !f->f_contended && !st_file_has_writers(f);
	if (f && settle)
		f->f_diverged = uneven;
	if (!f || (!f->f_contended && !uneven))
		due = -1;
	else
		due = cn->cn_not_before_ms <= clock_mono_ms() && !st_file_has_writers(f) &&
		      !f->f_nexcl && !f->f_pins && !f->f_removing;
	st_file_unlock(st, cn->cn_ino);
	return due;
}

/* Sets the fields with which a comparison begins. True: the file is uneven only, and nothing is
 * fenced before a difference is found. */
static bool contended_is_uneven(struct job_contended *co)
{
	struct st *st = co->jc_m->m_st;
	const struct st_file *f;

	st_file_lock(st, co->jc_ino);
	f = st_file_get(st, co->jc_ino, false);
	co->jc_uneven = f && !f->f_contended;
	co->jc_grants = f ? f->f_grants : 0;
	st_file_unlock(st, co->jc_ino);
	return co->jc_uneven;
}

void job_contended_tick(struct mds *m)
{
	struct job_contended *co = m->m_contended;
	uint64_t ino = 0;

	/* During grace the earlier writers may still fail to return. Then the file is resolved,
	 * which decides the copy that is kept. */
	if (co->jc_busy || st_in_grace(m->m_st))
		return;
	pthread_mutex_lock(&co->jc_lock);
	for (size_t left = co->jc_n; left && !ino; left--) {
		size_t at = co->jc_next % co->jc_n;
		int due = contended_due(m->m_st, &co->jc_file[at], true);

		if (due < 0) {
			co->jc_file[at] = co->jc_file[--co->jc_n];
			if (!co->jc_n)
				break;
		} else {
			co->jc_next = at + 1;
		}
		if (due > 0)
			ino = co->jc_file[at].cn_ino;
	}
	pthread_mutex_unlock(&co->jc_lock);
	if (!ino)
		return;
	co->jc_ino = ino;
	if (!contended_is_uneven(co) && is_rebuilding(m, ino)) {
		/* recall no layouts for a comparison that cannot be done */
		contended_later(co, ino);
		return;
	}
	co->jc_busy = true;
	if (co->jc_uneven) {
		job_verify_run_ends(co->jc_verify, ino, co->jc_grants, contended_compared, co);
		return;
	}
	excl_begin(&co->jc_freeze, &m->m_file, co->jc_loop, ino, NULL, EXCL_LAYOUTS,
		   contended_frozen, co);
}

static double gauge_contended(void *arg)
{
	struct job_contended *co = arg;
	size_t n = 0;

	/* A file that is not contended any more stays in the list until a tick finds it. */
	pthread_mutex_lock(&co->jc_lock);
	for (size_t k = 0; k < co->jc_n; k++)
		n += !co->jc_file[k].cn_uneven &&
		     contended_due(co->jc_m->m_st, &co->jc_file[k], false) >= 0;
	pthread_mutex_unlock(&co->jc_lock);
	return (double)n;
}

int job_contended_open(struct mds *m, struct loop *loop)
{
	struct job_contended *co = calloc(1, sizeof(*co));
	struct st *st = m->m_st;
	int err = 0;

	if (!co)
		return -ENOMEM;
	pthread_mutex_init(&co->jc_lock, NULL);
	co->jc_m = m;
	co->jc_loop = loop;
	co->jc_verify = job_verify_new(m, loop);
	m->m_contended = co;
	m->m_file.fe_diverged = contended_uneven;
	m->m_file.fe_diverged_arg = co;
	metric_gauge("weft_mds_contended_files",
		     "Mirrored files that two clients wrote at once, and whose copies are not "
		     "compared yet",
		     "", gauge_contended, co);
	if (!co->jc_verify)
		return -ENOMEM;
	st_all_lock(st);
	st_each(st, ST_FILE, l)
	{
		const struct st_file *f = hash_entry(l, struct st_file, f_link);

		if (f->f_contended && !err)
			err = contended_add(co, f->f_ino, false);
	}
	st_all_unlock(st);
	return err;
}
