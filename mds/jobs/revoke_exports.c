/* SPDX-License-Identifier: Apache-2.0 */
/*
 * revoke_exports.c - an export was removed or changed: every capability that was given below its
 * directory ends, also the capabilities of layouts that came back. All of it runs on one loop,
 * except where a comment says otherwise.
 *
 * The store lists these directories, from the transaction that changes the exports
 * (mds/export/export_record.c) until all is over: a server that stops in the middle begins again. A
 * file that was fenced by then is clean, and is not fenced twice.
 *
 * A pass examines all files by their inode numbers, some at a time. A file whose capabilities may
 * be out is fenced if it lies below such a directory. The place of a file is the directory in which
 * it was created, or to which it was last moved. A file with several names may have one of them
 * there: it counts as below. A client that may still use the file asks for a layout again.
 */
#include "mds/jobs/job_int.h"
#include "mds/jobs/revoke_exports.h"
#include "base/clock.h"
#include "base/crash.h"
#include "base/log.h"
#include <errno.h>

#define LOOK_FILES 1024 /* files in a step */
#define PAUSE_MS   5	/* between steps: time for other work */
#define AT_ONCE	   64	/* files that are being fenced */
#define UP_MAX	   4096 /* directories above a file; a file with more of them counts as below */
#define REST_MS	   5000 /* after a pass in which a file could not be fenced */
#define TELL_MS	   10000

struct job_revocation {
	struct mds *jrv_m;
	struct loop *jrv_loop;
	pthread_mutex_t jrv_lock;  /* protects the fields up to jrv_view: any thread */
	bool jrv_again, jrv_asked; /* jrv_asked: the next pass has a caller that knows its number */
	struct job_revocation_view jrv_view;
	uint64_t jrv_rest_until, jrv_began_ms, jrv_told_ms;
	struct export_revocation *jrv_row;
	size_t jrv_nrow, jrv_rowcap;
	/* the pass */
	struct loop_timer jrv_timer;
	struct kv_txn *jrv_txn;
	uint64_t jrv_generation, jrv_cursor;
	/* The directory of the last file, and whether it is below; 0: not known in this
	 * snapshot. */
	uint64_t jrv_dir;
	bool jrv_dir_below;
	bool jrv_waiting, jrv_all, jrv_failed; /* all: no file is left to be examined */
	bool jrv_known;			       /* jrv_asked, of this pass */
	unsigned jrv_seen, jrv_busy, jrv_found;
	uint64_t jrv_ino[AT_ONCE];
	struct kv_op jrv_op;
};

static void revoke_exports_step(struct job_revocation *e);

/* ---- where a file lies ---- */

static bool revoke_exports_is_root(const struct export_revocation *row, size_t n, uint64_t dir)
{
	for (size_t i = 0; i < n; i++)
		if (row[i].en_root == dir)
			return true;
	return false;
}

/* GONE: a directory above it is gone, and may have been below */
enum lies { BESIDE, BELOW, GONE };

/* Where a directory lies relative to the roots of these rows. BELOW: it is a root, or is below
 * one. */
static enum lies lies(struct ns *ns, struct kv_txn *t, uint64_t dir,
		      const struct export_revocation *row, size_t n)
{
	struct ns_inode i;

	for (unsigned up = 0; up < UP_MAX && !revoke_exports_is_root(row, n, dir); up++) {
		if (dir == NS_ROOT_INO)
			return BESIDE;
		if (ns_get(ns, t, dir, &i))
			return GONE;
		dir = i.i_parent;
	}
	return BELOW;
}

struct leaves {
	struct ns *ns;
	struct kv_txn *t;
	uint64_t from, to;
};

static int leaves_one(void *arg, const struct export_revocation *row)
{
	const struct leaves *l = arg;
	bool leaves = lies(l->ns, l->t, l->from, row, 1) == BELOW &&
		      lies(l->ns, l->t, l->to, row, 1) != BELOW;

	return leaves ? -EAGAIN : 0;
}

int job_revocation_stays(struct mds *m, struct kv_txn *t, uint64_t from, uint64_t to)
{
	struct leaves l = {m->m_ns, t, from, to};

	/* Nearly always one look into an empty table. */
	return from == to ? 0 : export_revocations(t, leaves_one, &l);
}

static bool revoke_exports_below(struct job_revocation *e, const struct ns_inode *i)
{
	if (i->i_nlink > 1)
		return true;
	if (!e->jrv_dir || e->jrv_dir != i->i_parent) {
		e->jrv_dir = i->i_parent;
		e->jrv_dir_below = lies(e->jrv_m->m_ns, e->jrv_txn, e->jrv_dir, e->jrv_row,
					e->jrv_nrow) != BESIDE;
	}
	return e->jrv_dir_below;
}

/* ---- the pass ---- */

static int revoke_exports_look_file(void *arg, const struct ns_inode *i)
{
	struct job_revocation *e = arg;
	struct lo_map map;

	if (e->jrv_found + e->jrv_busy == AT_ONCE || e->jrv_seen == LOOK_FILES) {
		e->jrv_all = false;
		return 1;
	}
	e->jrv_seen++;
	e->jrv_cursor = i->i_ino + 1;
	if (!lo_map_decode(i->i_blob, &map) && !map.lm_clean && revoke_exports_below(e, i))
		e->jrv_ino[e->jrv_found++] = i->i_ino;
	return 0;
}

static void revoke_exports_tell(struct job_revocation *e)
{
	const struct job_revocation_view *v = &e->jrv_view;

	if (clock_mono_ms() - e->jrv_told_ms < TELL_MS)
		return;
	e->jrv_told_ms = clock_mono_ms();
	log_info("changed exports: %lu files examined so far; old capabilities for %lu of them "
		 "are invalid now",
		 (unsigned long)v->ev_looked, (unsigned long)v->ev_ended);
}

static void fenced(void *arg, int err)
{
	struct job_revocation *e = arg;

	/* -ETIMEDOUT: the epoch has risen, and the order stays until it is done. */
	if (err == -ETIMEDOUT)
		log_warn(
			"changed exports: a data server has not confirmed the fence of a file yet");
	else if (err)
		log_error("changed exports: cannot fence a file: %s", strerror(-err));
	e->jrv_failed |= err && err != -ETIMEDOUT;
	e->jrv_busy--;
	pthread_mutex_lock(&e->jrv_lock);
	e->jrv_view.ev_ended += !err || err == -ETIMEDOUT;
	e->jrv_view.ev_unconfirmed += err == -ETIMEDOUT;
	pthread_mutex_unlock(&e->jrv_lock);
	revoke_exports_step(e);
}

static void revoke_exports_look(struct job_revocation *e)
{
	struct mds *m = e->jrv_m;
	int err = kv_read_begin(m->m_kv, &e->jrv_txn);

	e->jrv_seen = e->jrv_found = 0;
	e->jrv_dir = 0;
	if (!err) {
		e->jrv_all = true;
		err = ns_files(m->m_ns, e->jrv_txn, e->jrv_cursor, revoke_exports_look_file, e);
		kv_read_end(e->jrv_txn);
	}
	if (err) {
		log_error("changed exports: cannot read the files: %s", strerror(-err));
		e->jrv_all = e->jrv_failed = true;
	}
	pthread_mutex_lock(&e->jrv_lock);
	e->jrv_view.ev_looked += e->jrv_seen;
	pthread_mutex_unlock(&e->jrv_lock);
	revoke_exports_tell(e);
	e->jrv_busy += e->jrv_found;
	for (unsigned i = 0; i < e->jrv_found; i++)
		excl_recall_and_fence_all(&m->m_file, e->jrv_loop, e->jrv_ino[i], fenced, e);
	crash_point("ending");
	revoke_exports_step(e);
}

static void look_now(struct loop_timer *t)
{
	struct job_revocation *e = hash_entry(t, struct job_revocation, jrv_timer);

	e->jrv_waiting = false;
	revoke_exports_look(e);
}

/* ---- begin and end ---- */

static void revoke_exports_finish(struct job_revocation *e, bool again)
{
	pthread_mutex_lock(&e->jrv_lock);
	/* The first pass after a start, when nothing was left to be done, is no work. */
	if (e->jrv_nrow || e->jrv_view.ev_number || e->jrv_known)
		job_revoke_over(e->jrv_m, &e->jrv_view, again);
	e->jrv_again |= again;
	e->jrv_view.ev_running = false;
	e->jrv_view.ev_number++;
	pthread_mutex_unlock(&e->jrv_lock);
	e->jrv_rest_until = again ? clock_mono_ms() + REST_MS : 0;
}

static int over_run(struct kv_op *op, struct kv_txn *t)
{
	struct job_revocation *e = hash_entry(op, struct job_revocation, jrv_op);
	int err = 0;

	for (size_t i = 0; !err && i < e->jrv_nrow; i++)
		err = export_revocation_over(t, &e->jrv_row[i]);
	return err;
}

static void over_done(struct kv_op *op, int err)
{
	struct job_revocation *e = hash_entry(op, struct job_revocation, jrv_op);
	const struct job_revocation_view *v = &e->jrv_view;

	if (err)
		log_error("changed exports: cannot record that all files were examined, starting "
			  "again: %s",
			  strerror(-err));
	else
		log_info(
			"changed exports: all %lu files examined; old capabilities for %lu of them "
			"are invalid now, after %lu ms",
			(unsigned long)v->ev_looked, (unsigned long)v->ev_ended,
			(unsigned long)(clock_mono_ms() - e->jrv_began_ms));
	revoke_exports_finish(e, err != 0);
}

/* Goes on where it can: examines more files, or ends when nothing is under way. */
static void revoke_exports_step(struct job_revocation *e)
{
	if (e->jrv_waiting)
		return;
	if (!e->jrv_all) {
		if (e->jrv_busy == AT_ONCE)
			return;
		e->jrv_waiting = true;
		e->jrv_timer.t_fire = look_now;
		loop_timer_start(e->jrv_loop, &e->jrv_timer, PAUSE_MS);
		return;
	}
	if (e->jrv_busy)
		return;
	if (e->jrv_failed) {
		revoke_exports_finish(e, true);
		return;
	}
	e->jrv_op = (struct kv_op){.o_run = over_run, .o_done = over_done, .o_loop = e->jrv_loop};
	kv_submit(e->jrv_m->m_kv, &e->jrv_op);
}

/* Skips a change that is committed and not in force yet: until it is, layouts are given under the
 * earlier exports. Its pass comes after that. */
static int take_row(void *arg, const struct export_revocation *row)
{
	struct job_revocation *e = arg;

	if (row->en_boot == ns_super(e->jrv_m->m_ns)->su_boot &&
	    row->en_generation > e->jrv_generation)
		return 0;
	if (e->jrv_nrow == e->jrv_rowcap) {
		size_t cap = e->jrv_rowcap ? e->jrv_rowcap * 2 : EXP_MAX;
		struct export_revocation *v = reallocarray(e->jrv_row, cap, sizeof(*v));

		if (!v)
			return -ENOMEM;
		e->jrv_row = v;
		e->jrv_rowcap = cap;
	}
	e->jrv_row[e->jrv_nrow++] = *row;
	return 0;
}

/* Reads which directories have capabilities to end. */
static int read_rows(struct job_revocation *e)
{
	struct mds *m = e->jrv_m;
	struct kv_txn *t;
	int err;

	e->jrv_nrow = 0;
	e->jrv_generation = export_set_generation(m->m_exports); /* before the snapshot */
	err = kv_read_begin(m->m_kv, &t);
	if (err)
		return err;
	err = export_revocations(t, take_row, e);
	kv_read_end(t);
	return err;
}

static void revoke_exports_begin(struct job_revocation *e)
{
	int err = read_rows(e);

	if (err || !e->jrv_nrow) {
		if (err)
			log_error("changed exports: cannot read their record: %s", strerror(-err));
		revoke_exports_finish(e, err != 0);
		return;
	}
	e->jrv_began_ms = e->jrv_told_ms = clock_mono_ms();
	e->jrv_cursor = NS_ROOT_INO;
	e->jrv_all = e->jrv_failed = false;
	pthread_mutex_lock(&e->jrv_lock);
	e->jrv_view.ev_exports = e->jrv_nrow;
	pthread_mutex_unlock(&e->jrv_lock);
	log_info("changed exports: ending the capabilities given below %zu of their directories; "
		 "examining all files",
		 e->jrv_nrow);
	revoke_exports_step(e);
}

void job_revocation_tick(struct mds *m)
{
	struct job_revocation *e = m->m_ending;
	bool begins = false;

	if (e->jrv_rest_until && clock_mono_ms() < e->jrv_rest_until)
		return;
	pthread_mutex_lock(&e->jrv_lock);
	if (e->jrv_again && !e->jrv_view.ev_running) {
		e->jrv_view = (struct job_revocation_view){.ev_running = true,
							   .ev_number = e->jrv_view.ev_number,
							   .ev_begun = job_now()};
		e->jrv_known = e->jrv_asked;
		e->jrv_again = e->jrv_asked = false;
		begins = true;
	}
	pthread_mutex_unlock(&e->jrv_lock);
	if (begins)
		revoke_exports_begin(e);
}

/* ---- called by other files ---- */

uint64_t job_revocation_look_again(struct mds *m)
{
	uint64_t number;

	pthread_mutex_lock(&m->m_ending->jrv_lock);
	m->m_ending->jrv_again = m->m_ending->jrv_asked = true;
	number = m->m_ending->jrv_view.ev_number + 1 + m->m_ending->jrv_view.ev_running;
	pthread_mutex_unlock(&m->m_ending->jrv_lock);
	return number;
}

void job_revocation_look(struct mds *m, struct job_revocation_view *out)
{
	pthread_mutex_lock(&m->m_ending->jrv_lock);
	*out = m->m_ending->jrv_view;
	out->ev_next = out->ev_running || m->m_ending->jrv_again
			       ? out->ev_number + 1 + (out->ev_running && m->m_ending->jrv_again)
			       : 0;
	out->ev_waits = m->m_ending->jrv_again && !out->ev_running;
	out->ev_running |= m->m_ending->jrv_again;
	pthread_mutex_unlock(&m->m_ending->jrv_lock);
}

int job_revocation_open(struct mds *m, struct loop *loop)
{
	struct job_revocation *e = calloc(1, sizeof(*e));

	if (!e)
		return -ENOMEM;
	e->jrv_m = m;
	e->jrv_loop = loop;
	e->jrv_again = true; /* for changes made before the start, or not finished then */
	pthread_mutex_init(&e->jrv_lock, NULL);
	m->m_ending = e;
	return 0;
}
