/* SPDX-License-Identifier: Apache-2.0 */
/*
 * repair_queue.c - which file is repaired when (docs/repair.md), and what the administrator sees of
 * that.
 *
 * The table of repairs is the queue. A tick reads on in the table where the last tick ended, and
 * takes what can be done now. So while a file waits, its row is all that is remembered of it. A job
 * (repair.c) does one object of the file after the other.
 */
#include "mds/jobs/job_int.h"
#include "mds/jobs/repair_int.h"
#include "base/clock.h"
#include "base/log.h"
#include <errno.h>

#define SCAN_ROWS  4096 /* rows of the table that a tick reads */
#define SCAN_MOVES 512	/* rows that a tick checks for files that can move */
#define REST_MS	   1000

static unsigned room(const struct job_repair *r);
static int repair_scan_row(void *arg, uint64_t ino, const struct lo_repair *row);
static bool under_way(const struct job_repair *r, uint64_t ino);
static bool rests(const struct job_repair *r, uint64_t ino);
static void repair_rest(struct job_repair *r, uint64_t ino);
static void job_start(struct job_repair *r, uint64_t ino);

/* ---- the table ---- */

struct scan {
	struct job_repair *r;
	struct kv_txn *t;
	unsigned rows, looks, n, nmove, room;
	/* move: files that only move come last, as a drain has very many */
	uint64_t last, ino[REPAIR_FILES_MAX], move[REPAIR_FILES_MAX];
	bool more;
};

void job_repair_tick(struct mds *m)
{
	struct job_repair *r = m->m_repair;
	struct scan s = {.r = r, .room = room(r)};
	int err;

	if (!s.room || st_in_grace(m->m_st) || kv_read_begin(m->m_kv, &s.t))
		return;
	err = lo_repairs(s.t, r->jr_cursor, repair_scan_row, &s);
	kv_read_end(s.t);
	if (err < 0)
		log_error("cannot read the table of repairs: %s", strerror(-err));
	r->jr_cursor = s.more ? s.last + 1 : 1;
	for (unsigned i = 0; i < s.n; i++)
		job_start(r, s.ino[i]);
	for (unsigned i = 0; i < s.nmove && s.n + i < s.room; i++)
		job_start(r, s.move[i]);
}

/* Repair is off: one job at a time, which only makes objects stale that nothing rebuilds. */
static unsigned room(const struct job_repair *r)
{
	unsigned busy = 0, files = job_repair_opts(r->jr_m).ro_files, most = files ? files : 1;

	for (unsigned i = 0; i < REPAIR_FILES_MAX; i++)
		busy += r->jr_job[i] != NULL;
	return busy < most ? most - busy : 0;
}

static int repair_scan_row(void *arg, uint64_t ino, const struct lo_repair *row)
{
	struct scan *s = arg;
	struct repair_pick p;
	bool moves;
	int err;

	if (s->n == s->room || s->rows++ == SCAN_ROWS) {
		s->more = true;
		return 1;
	}
	s->last = ino;
	if (under_way(s->r, ino) || rests(s->r, ino))
		return 0;
	moves = s->nmove < s->room && s->looks < SCAN_MOVES;
	s->looks += moves;
	err = repair_pick(s->r, s->t, ino, row, moves, &p);
	if (!err && p.rpk_move > OP_MOVE_WAITS)
		s->move[s->nmove++] = ino;
	else if (!err || err == -ENOENT)
		s->ino[s->n++] = ino;
	else if (p.rpk_vain)
		repair_rest(s->r, ino);
	return 0;
}

static bool under_way(const struct job_repair *r, uint64_t ino)
{
	for (unsigned i = 0; i < REPAIR_FILES_MAX; i++)
		if (r->jr_job[i] && r->jr_job[i]->rpj_ino == ino)
			return true;
	return false;
}

/* The file waits: places are not looked for again and again while there are none. */
static bool rests(const struct job_repair *r, uint64_t ino)
{
	return r->jr_rest[ino % REPAIR_RESTS].ino == ino &&
	       clock_mono_ms() < r->jr_rest[ino % REPAIR_RESTS].until_ms;
}

static void repair_rest(struct job_repair *r, uint64_t ino)
{
	r->jr_rest[ino % REPAIR_RESTS].ino = ino;
	r->jr_rest[ino % REPAIR_RESTS].until_ms = clock_mono_ms() + REST_MS;
}

int repair_pick(struct job_repair *r, struct kv_txn *t, uint64_t ino, const struct lo_repair *row,
		bool moves, struct repair_pick *p)
{
	int err = ns_get(r->jr_m->m_ns, t, ino, &p->rpk_i);
	struct job_repair_opts opts = job_repair_opts(r->jr_m);
	bool waits = false, off = !opts.ro_files;
	enum lo_where where;
	const char *why;
	uint64_t left;

	p->rpk_resume = p->rpk_demote = p->rpk_vain = false;
	p->rpk_move = OP_MOVE_NOTHING;
	if (!err)
		err = lo_map_decode(p->rpk_i.i_blob, &p->rpk_map);
	if (err)
		return err == -ESTALE ? -ENOENT : err;
	for (unsigned n = 0; n < (unsigned)p->rpk_map.lm_stripes * p->rpk_map.lm_mirrors; n++) {
		unsigned k = (lo_repair_first(row) + n) %
			     ((unsigned)p->rpk_map.lm_stripes * p->rpk_map.lm_mirrors);
		const struct lo_object *o = &p->rpk_map.lm_obj[k];
		bool later = off || lo_repair_waits(row, repair_wall_s());

		if (o->ob_state == LO_IN_SYNC || o->ob_state == LO_ABSENT ||
		    (o->ob_leaving && o->ob_state == LO_STALE))
			continue;
		waits = true;
		p->rpk_obj = k;
		p->rpk_ds = o->ob_ds;
		p->rpk_resume = !off && o->ob_state == LO_REBUILDING && row->rr_session &&
				row->rr_object == k &&
				!ds_reg_since_heartbeat_ms(r->jr_m->m_dsc, o->ob_ds);
		if (p->rpk_resume)
			return 0;
		where = later ? LO_WAIT_SERVER
			      : lo_repair_where(r->jr_m->m_lo, &p->rpk_map, k, row, opts.ro_wait_ms,
						&p->rpk_ds, &left);
		if (where <= LO_ELSEWHERE)
			return 0;
		p->rpk_vain |= where == LO_WAIT_SPACE;
		if (o->ob_state == LO_REBUILDING &&
		    clock_mono_ms() - r->jr_started_ms > r->jr_m->m_ds_lease_ms) {
			p->rpk_demote = true;
			p->rpk_ds = o->ob_ds;
			return 0;
		}
	}
	if (!moves)
		return -EAGAIN;
	p->rpk_move = job_move_look(r->jr_m, ino, &p->rpk_map, &why);
	p->rpk_vain |= p->rpk_move == OP_MOVE_WAITS;
	waits |= p->rpk_move != OP_MOVE_NOTHING;
	if (p->rpk_move > OP_MOVE_WAITS && !off && !lo_repair_waits(row, repair_wall_s())) {
		p->rpk_obj = lo_objects(&p->rpk_map) - p->rpk_map.lm_stripes;
		return 0;
	}
	return waits ? -EAGAIN : -ENOENT;
}

static void job_start(struct job_repair *r, uint64_t ino)
{
	struct repair_job *j = calloc(1, sizeof(*j));
	unsigned i = 0;

	if (!j)
		return; /* no memory: the next scan finds the file again */
	j->rpj_r = r;
	j->rpj_m = r->jr_m;
	j->rpj_loop = r->jr_loop;
	j->rpj_ino = ino;
	j->rpj_view.rv_kind = -1;
	job_work_open(&j->rpj_work, j->rpj_m->m_kv, j->rpj_loop, &r->jr_lock,
		      &j->rpj_view.rv_progress);
	job_work_take(&j->rpj_work, ino);
	pthread_mutex_lock(&r->jr_lock);
	while (r->jr_job[i])
		i++;
	r->jr_job[i] = j;
	pthread_mutex_unlock(&r->jr_lock);
	repair_object(&j->rpj_work);
}

void repair_job_end(struct repair_job *j)
{
	struct job_repair *r = j->rpj_r;

	excl_end(&j->rpj_freeze, 0);
	job_file_over(j->rpj_m, &j->rpj_view);
	pthread_mutex_lock(&r->jr_lock);
	for (unsigned i = 0; i < REPAIR_FILES_MAX; i++)
		if (r->jr_job[i] == j)
			r->jr_job[i] = NULL;
	pthread_mutex_unlock(&r->jr_lock);
	/* The next jobs of very many small files do not wait for a tick. */
	if (j->rpj_repaired && !r->jr_next.t_pos)
		loop_timer_start(r->jr_loop, &r->jr_next, 1);
	free(j);
}

/* ---- for the administrator ---- */

unsigned job_repair_list(struct mds *m, struct job_repair_view *out, unsigned max)
{
	struct job_repair *r = m->m_repair;
	unsigned n = 0;

	pthread_mutex_lock(&r->jr_lock);
	for (unsigned i = 0; i < REPAIR_FILES_MAX && n < max; i++)
		if (r->jr_job[i])
			out[n++] = r->jr_job[i]->rpj_view;
	pthread_mutex_unlock(&r->jr_lock);
	return n;
}

/* The three are independent of each other: no order is needed. */
struct job_repair_opts job_repair_opts(const struct mds *m)
{
	struct job_repair *r = m->m_repair;

	return (struct job_repair_opts){
		.ro_files = atomic_load_explicit(&r->jr_files, memory_order_relaxed),
		.ro_rate = atomic_load_explicit(&r->jr_rate, memory_order_relaxed),
		.ro_wait_ms = atomic_load_explicit(&r->jr_wait_ms, memory_order_relaxed),
	};
}

static void repair_set_opts(struct job_repair *r, const struct job_repair_opts *o)
{
	atomic_store_explicit(&r->jr_files, o->ro_files, memory_order_relaxed);
	atomic_store_explicit(&r->jr_rate, o->ro_rate, memory_order_relaxed);
	atomic_store_explicit(&r->jr_wait_ms, o->ro_wait_ms, memory_order_relaxed);
}

void job_repair_set_opts(struct mds *m, const struct job_repair_opts *o)
{
	repair_set_opts(m->m_repair, o);
}

/* All jobs together keep to the rate: what one reads delays the next. */
uint32_t job_repair_pace(struct mds *m, uint64_t bytes)
{
	struct job_repair *r = m->m_repair;
	uint64_t now = clock_mono_ns(), rate = job_repair_opts(m).ro_rate;

	if (r->jr_next_ns < now)
		r->jr_next_ns = now;
	if (rate)
		r->jr_next_ns += (uint64_t)((double)bytes * 1e9 / (double)rate);
	return (uint32_t)((r->jr_next_ns - now) / 1000000);
}

const char *job_repair_waits(struct mds *m, const struct lo_repair *row, const struct lo_map *map,
			     unsigned obj, uint64_t *left_ms)
{
	static const char *const wait[] = {
		[LO_IN_PLACE] = "waiting for its turn",
		[LO_ELSEWHERE] = "waiting for its turn",
		[LO_WAIT_SERVER] = "its data server is away and may come back",
		[LO_WAIT_SPACE] = "no data server is available for it",
		[LO_WAIT_SOURCE] = "no copy in sync can be read",
		[LO_WAIT_LEASE] = "a data server of the file is away and may still hold its lease"};
	const struct job_repair_opts opts = job_repair_opts(m);
	uint64_t rest = lo_repair_waits(row, repair_wall_s());
	const char *why;
	uint32_t ds;

	*left_ms = 0;
	why = wait[lo_repair_where(m->m_lo, map, obj, row, opts.ro_wait_ms, &ds, left_ms)];
	if (rest) {
		why = lo_repair_why_text(row->rr_why);
		*left_ms = rest * 1000;
	}
	return opts.ro_files ? why : "repair is off: mds.repair_files is 0";
}

static double repair_gauge_running(void *arg)
{
	struct job_repair_view v[REPAIR_FILES_MAX];

	return job_repair_list(arg, v, REPAIR_FILES_MAX);
}

static int repair_count_row(void *arg, uint64_t ino, const struct lo_repair *row)
{
	(void)ino;
	(void)row;
	++*(uint64_t *)arg;
	return 0;
}

static double gauge_files(void *arg)
{
	struct mds *m = arg;
	struct kv_txn *t;
	uint64_t n = 0;

	if (kv_read_begin(m->m_kv, &t))
		return 0;
	lo_repairs(t, 1, repair_count_row, &n);
	kv_read_end(t);
	return (double)n;
}

static void next_fire(struct loop_timer *t)
{
	job_repair_tick(hash_entry(t, struct job_repair, jr_next)->jr_m);
}

int job_repair_open(struct mds *m, struct loop *loop, const struct job_repair_opts *o)
{
	struct job_repair *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	r->jr_m = m;
	r->jr_loop = loop;
	repair_set_opts(r, o);
	r->jr_cursor = 1;
	r->jr_next.t_fire = next_fire;
	r->jr_started_ms = clock_mono_ms();
	pthread_mutex_init(&r->jr_lock, NULL);
	r->jr_repaired = metric_counter("weft_mds_repaired_total",
					"Objects that were made equal to a copy in sync again", "");
	r->jr_failed = metric_counter(
		"weft_mds_repair_failures_total",
		"Repairs of an object that did not come to an end, and are tried again", "");
	r->jr_copied = metric_counter("weft_mds_repair_written_bytes_total",
				      "Bytes that data servers wrote to repair objects", "");
	r->jr_same = metric_counter(
		"weft_mds_repair_equal_bytes_total",
		"Bytes that data servers compared to repair objects, and found equal", "");
	metric_gauge("weft_mds_repairs", "Files being repaired now", "", repair_gauge_running, m);
	metric_gauge("weft_mds_repair_files",
		     "Files with objects that are not in sync, or that are being moved", "",
		     gauge_files, m);
	m->m_repair = r;
	return 0;
}
