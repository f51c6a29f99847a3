/* SPDX-License-Identifier: Apache-2.0 */
/*
 * balance.c - moves files away from data servers that hold more than their share, or are slow or
 * loaded (docs/balance.md). All of it runs on one loop, a little in each step.
 *
 * A run passes over all files at least twice. The first pass counts what each server holds, which
 * gives each server's share. The next passes look for files of which an object should move, until a
 * pass chooses none: hot files on a slow or loaded server first, then any file whose move makes two
 * servers more even. A chosen file counts as moved at once. So each move lowers the sum of the
 * squares of the servers' deviations, and a run ends. The move itself is in the file's map
 * (mds/layout/relocate.h), and repair's jobs do it.
 */
#include "mds/jobs/balance.h"
#include "base/clock.h"
#include "base/log.h"
#include "mds/layout/repair_row.h"
#include "mds/layout/relocate.h"
#include "mds/layout/pending_layout.h"
#include "mds/jobs/heat.h"
#include "mds/jobs/job_int.h"
#include "mds/jobs/repair.h"
#include <errno.h>
#include <urcu/compiler.h>

#define LOOK_FILES  1024 /* files in a step */
#define STEP_MS	    10
#define WAIT_MS	    100 /* while files move */
#define AT_ONCE	    8	/* files that move at the same time */
#define FORGET_ROWS 256
/* questions in a step whether an object may move to a server: each looks at all servers */
#define TRIES	  64
#define HOT_MOST  64
#define HOT_LEAST 100.0f /* heat of a file that is worth a move */
/* As in mds/layout/read_order.c: load and latency that make no difference between servers. */
#define CALM_LOAD    800
#define CALM_LATENCY 2000

struct job_balance {
	struct mds *b_m;
	struct loop *b_loop;
	struct loop_msg b_msg;
	struct loop_timer b_timer;
	_Atomic uint64_t b_again_s; /* may change at any time */
	pthread_mutex_t b_lock;	    /* protects b_view and b_stop: any thread */
	bool b_stop, b_busy;	    /* busy: a run has begun and is not over */
	struct job_balance_view b_view;
	/* only the loop uses these */
	/* pass: how many files were chosen before this pass over all files */
	uint64_t b_runs, b_cursor, b_next_ms, b_pass;
	unsigned b_tries;
	int b_forgot;
	uint64_t b_hot[HOT_MOST];
	unsigned b_nhot, b_athot;
	uint16_t b_place[DS_REG_MAX + 1]; /* a server's index in bv_server, + 1 */
	struct {
		uint64_t ino, bytes;
		unsigned move; /* index in bv_move, or OP_BALANCE_TOLD */
	} b_moving[AT_ONCE];
	unsigned b_nmoving;
	struct metric *b_files, *b_bytes;
	struct kv_op b_op;
	struct job_balance_move b_one; /* the move that is being committed */
};

const char *job_balance_end_text(enum job_balance_end end)
{
	static const char *const text[] = {
		[OP_BALANCE_EVEN] =
			"no data server deviates from its share by more than the spread",
		[OP_BALANCE_STUCK] = "moving another file would not improve the balance",
		[OP_BALANCE_LIMIT] = "the limit was reached",
		[OP_BALANCE_STOPPED] = "stopped",
		[OP_BALANCE_OFF] = "moving is off: mds.repair_files is 0",
	};

	return text[end];
}

/* ---- the servers ---- */

static struct job_balance_server *server_of(struct job_balance *b, uint32_t ds)
{
	return ds && ds <= DS_REG_MAX && b->b_place[ds] ? &b->b_view.bv_server[b->b_place[ds] - 1]
							: NULL;
}

static void see(void *arg, const struct ds_reg_candidate *se)
{
	struct job_balance *b = arg;
	struct job_balance_server *bs = &b->b_view.bv_server[b->b_view.bv_nserver];

	*bs = (struct job_balance_server){
		.bs_id = se->can_id,
		.bs_weight = se->can_weight,
		.bs_load = se->can_load,
		.bs_latency = se->can_latency,
		.bs_capacity = se->can_capacity,
		.bs_available = se->can_available,
		.bs_counts =
			se->can_alive && se->can_weight && !se->can_draining && !se->can_generic,
	};
	b->b_place[se->can_id] = (uint16_t)++b->b_view.bv_nserver;
}

/* Reads the state of all servers, and which of them are loaded or slow beside the others. With
 * b_lock. */
static void see_servers(struct job_balance *b)
{
	struct job_balance_view *v = &b->b_view;
	uint32_t fastest = UINT32_MAX;
	double load = 0;
	unsigned n = 0;

	memset(b->b_place, 0, sizeof(b->b_place));
	v->bv_nserver = 0;
	ds_reg_candidates(b->b_m->m_dsc, see, b);
	for (unsigned i = 0; i < v->bv_nserver; i++) {
		const struct job_balance_server *bs = &v->bv_server[i];

		if (!bs->bs_counts)
			continue;
		n++;
		load += bs->bs_load;
		if (bs->bs_latency && bs->bs_latency < fastest)
			fastest = bs->bs_latency;
	}
	for (unsigned i = 0; i < v->bv_nserver && n > 1; i++) {
		struct job_balance_server *bs = &v->bv_server[i];

		bs->bs_loaded = bs->bs_counts &&
				bs->bs_load > CALM_LOAD + 2 * (load - bs->bs_load) / (n - 1);
		bs->bs_slow = bs->bs_counts && fastest < UINT32_MAX &&
			      bs->bs_latency > CALM_LATENCY + 2ull * fastest;
	}
}

/* Divides what the servers that count hold into shares, by weight and capacity. With b_lock. */
static void share_out(struct job_balance *b)
{
	struct job_balance_view *v = &b->b_view;
	double held = 0, parts = 0;

	for (unsigned i = 0; i < v->bv_nserver; i++) {
		const struct job_balance_server *bs = &v->bv_server[i];

		held += bs->bs_counts ? bs->bs_held : 0;
		parts += bs->bs_counts ? bs->bs_weight * (double)(bs->bs_capacity + 1) : 0;
	}
	for (unsigned i = 0; i < v->bv_nserver; i++) {
		struct job_balance_server *bs = &v->bv_server[i];

		bs->bs_was = bs->bs_held;
		bs->bs_share =
			bs->bs_counts
				? held * (bs->bs_weight * (double)(bs->bs_capacity + 1)) / parts
				: bs->bs_held;
	}
}

/* Bytes that the server holds beyond its share. */
static double balance_over(const struct job_balance_server *bs)
{
	return bs->bs_held - bs->bs_share;
}

static bool off(const struct job_balance *b, const struct job_balance_server *bs)
{
	double most = bs->bs_share * b->b_view.bv_ask.ba_spread / 100;

	return bs->bs_counts && (balance_over(bs) > most || balance_over(bs) < -most);
}

static bool even(const struct job_balance *b)
{
	for (unsigned i = 0; i < b->b_view.bv_nserver; i++)
		if (off(b, &b->b_view.bv_server[i]))
			return false;
	return true;
}

/* ---- which object goes where ---- */

/* Roughly the bytes in each of a file's objects. */
static uint64_t balance_bytes_of(const struct ns_inode *i, const struct lo_map *map)
{
	return i->i_used / map->lm_stripes;
}

static bool has_room(const struct job_balance_server *bs, uint64_t bytes)
{
	return bs->bs_available > bs->bs_capacity / 20 &&
	       bs->bs_available - bs->bs_capacity / 20 > bytes;
}

static bool may(struct job_balance *b, const struct lo_map *map, unsigned obj, uint32_t to)
{
	b->b_tries++;
	return lo_relocate_may(b->b_m->m_lo, map, obj, to);
}

/* A run that moves nothing has chosen this file already. */
static bool chosen(const struct job_balance *b, uint64_t ino)
{
	for (unsigned i = 0; b->b_view.bv_ask.ba_dry && i < b->b_view.bv_nmove; i++)
		if (b->b_view.bv_move[i].bm_ino == ino)
			return true;
	return false;
}

/* Where to move an object of a hot file that is on a slow or loaded server: of the servers that are
 * neither, the one with the least load. */
static struct job_balance_server *calmer(struct job_balance *b, const struct lo_map *map,
					 unsigned obj, const struct job_balance_server *from,
					 uint64_t bytes)
{
	struct job_balance_server *best = NULL;

	if (!from->bs_loaded && !from->bs_slow)
		return NULL;
	for (unsigned i = 0; i < b->b_view.bv_nserver; i++) {
		struct job_balance_server *bs = &b->b_view.bv_server[i];

		if (!bs->bs_counts || bs->bs_loaded || bs->bs_slow || !has_room(bs, bytes) ||
		    (best &&
		     (bs->bs_load > best->bs_load ||
		      (bs->bs_load == best->bs_load && balance_over(bs) >= balance_over(best)))))
			continue;
		if (may(b, map, obj, bs->bs_id))
			best = bs;
	}
	return best;
}

/* Where to move an object: the server that is farthest below its share, if the move makes the two
 * more even and one of them is off its share. */
static struct job_balance_server *emptier(struct job_balance *b, const struct lo_map *map,
					  unsigned obj, const struct job_balance_server *from,
					  uint64_t bytes)
{
	struct job_balance_server *best = NULL;

	if (!bytes || balance_over(from) <= 0)
		return NULL;
	for (unsigned i = 0; i < b->b_view.bv_nserver; i++) {
		struct job_balance_server *bs = &b->b_view.bv_server[i];

		if (!bs->bs_counts || balance_over(bs) >= 0 || (!off(b, from) && !off(b, bs)) ||
		    (double)bytes >= balance_over(from) - balance_over(bs) || bs->bs_loaded ||
		    bs->bs_slow || !has_room(bs, bytes) ||
		    (best && balance_over(bs) >= balance_over(best)))
			continue;
		if (may(b, map, obj, bs->bs_id))
			best = bs;
	}
	return best;
}

static uint64_t again_s(const struct job_balance *b)
{
	return atomic_load_explicit(&b->b_again_s, memory_order_relaxed);
}

/* False: no object of this file moves. */
static bool balance_choose(struct job_balance *b, struct kv_txn *t, const struct ns_inode *i,
			   enum job_balance_why why, struct job_balance_move *bm)
{
	const struct job_balance_ask *ask = &b->b_view.bv_ask;
	uint64_t bytes, now = (uint64_t)file_now().t_sec, last, again = again_s(b);
	struct lo_map map;

	if (lo_map_decode(i->i_blob, &map) || !lo_relocate_fits(b->b_m->m_lo, &map) ||
	    chosen(b, i->i_ino) || lo_pending_is(t, i->i_ino))
		return false;
	last = lo_relocated(t, i->i_ino);
	bytes = balance_bytes_of(i, &map);
	/* A file with a last move in the future was moved before the clock was set back. */
	if ((last && last <= now && now < last + again) ||
	    (ask->ba_bytes && bytes > ask->ba_bytes - b->b_view.bv_bytes))
		return false;
	for (unsigned k = 0; k < lo_objects(&map); k++) {
		struct job_balance_server *from = server_of(b, map.lm_obj[k].ob_ds), *to;

		if (!from || !from->bs_counts)
			continue;
		to = why == OP_BALANCE_HOT ? calmer(b, &map, k, from, bytes)
					   : emptier(b, &map, k, from, bytes);
		if (!to)
			continue;
		*bm = (struct job_balance_move){.bm_ino = i->i_ino,
						.bm_bytes = bytes,
						.bm_obj = k,
						.bm_from = from->bs_id,
						.bm_to = to->bs_id,
						.bm_why = (uint8_t)why};
		return true;
	}
	return false;
}

/* ---- the run ---- */

static void balance_step(struct job_balance *b);

static void balance_woken(struct loop_timer *t)
{
	balance_step(caa_container_of(t, struct job_balance, b_timer));
}

static void balance_later(struct job_balance *b, uint64_t ms)
{
	b->b_timer.t_fire = balance_woken;
	loop_timer_start(b->b_loop, &b->b_timer, ms);
}

static void balance_end(struct job_balance *b, enum job_balance_end why)
{
	log_info("balancing ended: %s; %lu files moved", job_balance_end_text(why),
		 (unsigned long)b->b_view.bv_done_files);
	pthread_mutex_lock(&b->b_lock);
	b->b_view.bv_end = why;
	job_balance_over(b->b_m, &b->b_view);
	b->b_view.bv_phase = OP_BALANCE_OVER;
	b->b_busy = false;
	pthread_mutex_unlock(&b->b_lock);
}

/* Counts the object as moved from here on, unless the move was left. Returns its index in bv_move,
 * or OP_BALANCE_TOLD if the list is full. */
static unsigned count_move(struct job_balance *b, const struct job_balance_move *bm,
			   enum job_balance_state st)
{
	struct job_balance_view *v = &b->b_view;
	unsigned at = OP_BALANCE_TOLD;

	pthread_mutex_lock(&b->b_lock);
	if (st == OP_BALANCE_LEFT) {
		v->bv_left++;
	} else {
		v->bv_files++;
		v->bv_bytes += bm->bm_bytes;
		server_of(b, bm->bm_from)->bs_held -= (double)bm->bm_bytes;
		server_of(b, bm->bm_to)->bs_held += (double)bm->bm_bytes;
		server_of(b, bm->bm_to)->bs_available -= bm->bm_bytes;
	}
	if (v->bv_nmove < OP_BALANCE_TOLD) {
		at = v->bv_nmove++;
		v->bv_move[at] = *bm;
		v->bv_move[at].bm_state = (uint8_t)st;
	}
	pthread_mutex_unlock(&b->b_lock);
	return at;
}

static int balance_move_run(struct kv_op *op, struct kv_txn *t)
{
	struct job_balance *b = caa_container_of(op, struct job_balance, b_op);
	const struct job_balance_move *bm = &b->b_one;
	struct ns_inode i;
	struct lo_map map;
	int err = ns_get(b->b_m->m_ns, t, bm->bm_ino, &i);

	if (!err)
		err = lo_map_decode(i.i_blob, &map);
	if (!err && (bm->bm_obj >= lo_objects(&map) || map.lm_obj[bm->bm_obj].ob_ds != bm->bm_from))
		err = -EAGAIN;
	if (!err)
		err = lo_relocate(b->b_m->m_lo, &map, bm->bm_obj, bm->bm_to);
	if (!err)
		err = file_set_map(&b->b_m->m_file, t, bm->bm_ino, &map, file_now());
	return err ? err : lo_relocated_put(t, bm->bm_ino, (uint64_t)file_now().t_sec);
}

static void balance_move_done(struct kv_op *op, int err)
{
	struct job_balance *b = caa_container_of(op, struct job_balance, b_op);
	const struct job_balance_move *bm = &b->b_one;
	unsigned at = count_move(b, bm, err ? OP_BALANCE_LEFT : OP_BALANCE_MOVING);

	if (!err) {
		metric_add(b->b_files, 1);
		metric_add(b->b_bytes, bm->bm_bytes);
		b->b_moving[b->b_nmoving].ino = bm->bm_ino;
		b->b_moving[b->b_nmoving].bytes = bm->bm_bytes;
		b->b_moving[b->b_nmoving++].move = at;
	}
	if (b->b_view.bv_ask.ba_rate && !err)
		b->b_next_ms = clock_mono_ms() + bm->bm_bytes * 1000 / b->b_view.bv_ask.ba_rate;
	balance_later(b, 0);
}

static void begin_move(struct job_balance *b, const struct job_balance_move *bm)
{
	if (b->b_view.bv_ask.ba_dry) {
		count_move(b, bm, OP_BALANCE_PLANNED);
		balance_later(b, 0);
		return;
	}
	b->b_one = *bm;
	b->b_op = (struct kv_op){
		.o_run = balance_move_run, .o_done = balance_move_done, .o_loop = b->b_loop};
	kv_submit(b->b_m->m_kv, &b->b_op);
}

/* A file whose repair row is gone is where it should be. */
static void balance_reap(struct job_balance *b, struct kv_txn *t)
{
	struct lo_repair row;

	for (unsigned i = 0; i < b->b_nmoving;) {
		if (lo_repair_get(t, b->b_moving[i].ino, &row) != -ENOENT) {
			i++;
			continue;
		}
		pthread_mutex_lock(&b->b_lock);
		b->b_view.bv_done_files++;
		b->b_view.bv_done_bytes += b->b_moving[i].bytes;
		if (b->b_moving[i].move < b->b_view.bv_nmove)
			b->b_view.bv_move[b->b_moving[i].move].bm_state = OP_BALANCE_DONE;
		pthread_mutex_unlock(&b->b_lock);
		b->b_moving[i] = b->b_moving[--b->b_nmoving];
	}
}

/* ---- passes over all files ---- */

struct glance {
	struct job_balance *b;
	struct kv_txn *t;
	unsigned n;
	bool more, chosen;
	struct job_balance_move bm;
};

/* A file that this run moves already is not chosen: its row is there (lo_relocated_put). */
static int balance_look_file(void *arg, const struct ns_inode *i)
{
	struct glance *g = arg;
	struct job_balance *b = g->b;

	if (g->n++ == LOOK_FILES || b->b_tries >= TRIES) {
		g->more = true;
		return 1;
	}
	b->b_cursor = i->i_ino + 1;
	b->b_view.bv_looked++;
	g->chosen = balance_choose(b, g->t, i, OP_BALANCE_FULL, &g->bm);
	g->more = g->chosen;
	return g->chosen;
}

static int count_file(void *arg, const struct ns_inode *i)
{
	struct glance *g = arg;
	struct job_balance *b = g->b;
	struct lo_map map;

	if (g->n++ == LOOK_FILES) {
		g->more = true;
		return 1;
	}
	b->b_cursor = i->i_ino + 1;
	b->b_view.bv_looked++;
	for (unsigned k = 0; !lo_map_decode(i->i_blob, &map) && k < lo_objects(&map); k++) {
		struct job_balance_server *bs = server_of(b, map.lm_obj[k].ob_ds);

		if (bs && !map.lm_obj[k].ob_leaving)
			bs->bs_held += (double)balance_bytes_of(i, &map);
	}
	return 0;
}

static void find_hot(struct job_balance *b)
{
	struct heat_row *rows;
	size_t n;

	rows = heat_rows(b->b_m, HEAT_FILE, true, &n);
	b->b_nhot = b->b_athot = 0;
	for (size_t i = 0; i < n && b->b_nhot < HOT_MOST && rows[i].hr_heat >= HOT_LEAST; i++)
		b->b_hot[b->b_nhot++] = rows[i].hr_key;
	free(rows);
}

static void step_counts(struct job_balance *b, struct kv_txn *t)
{
	struct glance g = {.b = b, .t = t};
	int err;

	pthread_mutex_lock(&b->b_lock);
	err = ns_files(b->b_m->m_ns, t, b->b_cursor, count_file, &g);
	if (!err && !g.more) {
		share_out(b);
		b->b_view.bv_phase = OP_BALANCE_MOVES;
		b->b_view.bv_looked = 0;
		b->b_cursor = 1;
	}
	pthread_mutex_unlock(&b->b_lock);
	if (err)
		log_error("balance: cannot read the files: %s", strerror(-err));
	if (!err && !g.more)
		find_hot(b);
	balance_later(b, STEP_MS);
}

/* True, with the reason: no more is chosen. False: more may be. */
static bool no_more(struct job_balance *b, enum job_balance_end *why)
{
	const struct job_balance_view *v = &b->b_view;
	const struct job_balance_ask *ask = &v->bv_ask;

	if (v->bv_end != OP_BALANCE_EVEN)
		*why = v->bv_end;
	else if (b->b_stop)
		*why = OP_BALANCE_STOPPED;
	else if ((ask->ba_files && v->bv_files >= ask->ba_files) ||
		 (ask->ba_bytes && v->bv_bytes >= ask->ba_bytes))
		*why = OP_BALANCE_LIMIT;
	else if (b->b_athot == b->b_nhot && even(b))
		*why = OP_BALANCE_EVEN;
	else
		return false;
	return true;
}

static bool next_hot(struct job_balance *b, struct kv_txn *t, struct job_balance_move *bm)
{
	struct ns_inode i;

	while (b->b_athot < b->b_nhot)
		if (!ns_get(b->b_m->m_ns, t, b->b_hot[b->b_athot++], &i) && i.i_type == NS_REG &&
		    balance_choose(b, t, &i, OP_BALANCE_HOT, bm))
			return true;
	return false;
}

/* The pass is over. If it chose a file there is one more pass, because other files may fit then. */
static void looked_through(struct job_balance *b)
{
	pthread_mutex_lock(&b->b_lock);
	if (b->b_view.bv_files == b->b_pass || b->b_view.bv_ask.ba_dry)
		b->b_view.bv_end = OP_BALANCE_STUCK;
	b->b_pass = b->b_view.bv_files;
	b->b_cursor = 1;
	pthread_mutex_unlock(&b->b_lock);
}

static void step_moves(struct job_balance *b, struct kv_txn *t)
{
	struct glance g = {.b = b, .t = t};
	enum job_balance_end why;
	bool over;

	b->b_tries = 0;
	balance_reap(b, t);
	pthread_mutex_lock(&b->b_lock);
	over = no_more(b, &why);
	pthread_mutex_unlock(&b->b_lock);
	if (over && (!b->b_nmoving || why == OP_BALANCE_STOPPED)) {
		balance_end(b, why);
		return;
	}
	if (over || b->b_nmoving == AT_ONCE || clock_mono_ms() < b->b_next_ms) {
		balance_later(b, WAIT_MS);
		return;
	}
	if (next_hot(b, t, &g.bm)) {
		begin_move(b, &g.bm);
		return;
	}
	pthread_mutex_lock(&b->b_lock);
	over = ns_files(b->b_m->m_ns, t, b->b_cursor, balance_look_file, &g) == 0 && !g.more;
	pthread_mutex_unlock(&b->b_lock);
	if (over)
		looked_through(b);
	if (g.chosen)
		begin_move(b, &g.bm);
	else
		balance_later(b, STEP_MS);
}

static void balance_step(struct job_balance *b)
{
	struct kv_txn *t;

	if (kv_read_begin(b->b_m->m_kv, &t)) {
		balance_later(b, WAIT_MS);
		return;
	}
	if (b->b_view.bv_phase == OP_BALANCE_COUNTS)
		step_counts(b, t);
	else
		step_moves(b, t);
	kv_read_end(t);
}

/* ---- the begin of a run ---- */

static int balance_forget_run(struct kv_op *op, struct kv_txn *t)
{
	struct job_balance *b = caa_container_of(op, struct job_balance, b_op);
	uint64_t now = (uint64_t)file_now().t_sec, again = again_s(b);
	int n = now > again ? lo_relocated_forget(t, now - again, FORGET_ROWS) : 0;

	b->b_forgot = n;
	return n < 0 ? n : 0;
}

static void forget_old(struct job_balance *b);

static void forgotten(struct kv_op *op, int err)
{
	struct job_balance *b = caa_container_of(op, struct job_balance, b_op);

	if (err)
		log_error("balance: cannot delete the records of files moved long ago: %s",
			  strerror(-err));
	if (!err && b->b_forgot == FORGET_ROWS)
		forget_old(b);
	else
		balance_step(b);
}

static void forget_old(struct job_balance *b)
{
	b->b_op = (struct kv_op){
		.o_run = balance_forget_run, .o_done = forgotten, .o_loop = b->b_loop};
	kv_submit(b->b_m->m_kv, &b->b_op);
}

static void balance_begin(struct loop_msg *msg)
{
	struct job_balance *b = caa_container_of(msg, struct job_balance, b_msg);

	if (!b->b_view.bv_ask.ba_dry && !job_repair_opts(b->b_m).ro_files) {
		balance_end(b, OP_BALANCE_OFF);
		return;
	}
	pthread_mutex_lock(&b->b_lock);
	see_servers(b);
	pthread_mutex_unlock(&b->b_lock);
	b->b_cursor = 1;
	b->b_next_ms = b->b_pass = 0;
	b->b_nmoving = 0;
	forget_old(b);
}

static bool balance_same(const struct job_balance_ask *x, const struct job_balance_ask *y)
{
	return x->ba_dry == y->ba_dry && x->ba_bytes == y->ba_bytes && x->ba_files == y->ba_files &&
	       x->ba_rate == y->ba_rate && x->ba_spread == y->ba_spread;
}

bool job_balance_begin(struct mds *m, const struct job_balance_ask *ask)
{
	struct job_balance *b = m->m_balance;
	struct job_balance_view *v = &b->b_view;
	bool fine;

	pthread_mutex_lock(&b->b_lock);
	fine = !b->b_busy || balance_same(&v->bv_ask, ask);
	if (fine && !b->b_busy) {
		struct job_balance_move *moves = v->bv_move;

		memset(v, 0, offsetof(struct job_balance_view, bv_move));
		v->bv_move = moves;
		v->bv_nmove = v->bv_nserver = 0;
		v->bv_ask = *ask;
		v->bv_number = ++b->b_runs;
		v->bv_begun = job_now();
		b->b_busy = true;
		b->b_stop = false;
		b->b_msg.m_run = balance_begin;
		loop_post(b->b_loop, &b->b_msg);
	}
	pthread_mutex_unlock(&b->b_lock);
	return fine;
}

void job_balance_stop(struct mds *m)
{
	pthread_mutex_lock(&m->m_balance->b_lock);
	m->m_balance->b_stop = true;
	pthread_mutex_unlock(&m->m_balance->b_lock);
}

struct job_balance_view *job_balance_look(struct mds *m)
{
	struct job_balance *b = m->m_balance;
	struct job_balance_view *v = malloc(sizeof(*v));
	struct job_balance_move *moves = calloc(OP_BALANCE_TOLD, sizeof(*moves));

	if (!v || !moves) {
		free(v);
		free(moves);
		return NULL;
	}
	pthread_mutex_lock(&b->b_lock);
	*v = b->b_view;
	v->bv_stopping = b->b_busy && b->b_stop;
	memcpy(moves, b->b_view.bv_move, v->bv_nmove * sizeof(*moves));
	pthread_mutex_unlock(&b->b_lock);
	v->bv_move = moves;
	return v;
}

void job_balance_set_again(struct mds *m, uint64_t again_ms)
{
	atomic_store_explicit(&m->m_balance->b_again_s, again_ms / 1000, memory_order_relaxed);
}

int job_balance_open(struct mds *m, struct loop *loop, uint64_t again_ms)
{
	struct job_balance *b = calloc(1, sizeof(*b));

	if (!b)
		return -ENOMEM;
	b->b_m = m;
	b->b_loop = loop;
	atomic_init(&b->b_again_s, again_ms / 1000);
	b->b_view.bv_phase = OP_BALANCE_OVER;
	b->b_view.bv_move = calloc(OP_BALANCE_TOLD, sizeof(*b->b_view.bv_move));
	if (!b->b_view.bv_move) {
		free(b);
		return -ENOMEM;
	}
	pthread_mutex_init(&b->b_lock, NULL);
	b->b_files = metric_counter("weft_mds_balanced_files_total",
				    "Files of which weft balance began to move an object", "");
	b->b_bytes =
		metric_counter("weft_mds_balanced_bytes_total",
			       "Bytes in the objects that weft balance began to move, about", "");
	m->m_balance = b;
	return 0;
}
