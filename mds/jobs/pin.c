/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pin.c - makes the copies of pins and takes them away (docs/pin.md). All of it runs on one loop,
 * except where a comment says otherwise.
 *
 * A pin is counted first: a walk over its tree adds up what needs a copy, and nothing begins where
 * that does not fit. Another walk gives each file a mirror, some files at a time, and the jobs of
 * repair fill it. So nothing but the pin's state is stored with the pin: after a restart the walk
 * begins again, and passes over what is there. When the pin is over, its rows of files say whose
 * copy goes; a row goes when the copy is gone.
 */
#include "mds/file/file.h"
#include "mds/jobs/job_int.h"
#include "mds/jobs/pin_int.h"
#include "base/clock.h"
#include "base/log.h"
#include "mds/layout/lo_int.h"
#include "mds/layout/mirror_change.h"
#include "mds/layout/pending_layout.h"
#include <errno.h>
#include <stdlib.h>
#include <urcu/compiler.h>

/* ---- what a pin does next is committed, and then in force ---- */

static int state_run(struct kv_op *op, struct kv_txn *t)
{
	struct pin *p = caa_container_of(op, struct pin, p_op);
	struct lo_pin row;
	int err = lo_pin_get(t, p->p_number, &row);

	/* The administrator may have changed it meanwhile. */
	if (err || row.pi_state != p->p_from.pi_state)
		return err == -ENOENT ? 0 : err;
	if (p->p_drop)
		return lo_pin_del(t, row.pi_number);
	row.pi_state = p->p_next_state;
	row.pi_files = p->p_from.pi_files;
	row.pi_bytes = p->p_from.pi_bytes;
	row.pi_passed = p->p_from.pi_passed;
	return lo_pin_put(t, &row);
}

static void state_done(struct kv_op *op, int err)
{
	struct pin *p = caa_container_of(op, struct pin, p_op);
	struct job_pins *jp = p->p_pins;
	uint64_t number;

	if (err)
		log_error("pin: cannot store its state: %s", strerror(-err));
	pthread_mutex_lock(&jp->jp_lock);
	p->p_busy = false;
	number = p->p_number;
	pthread_mutex_unlock(&jp->jp_lock);
	job_pin_reload(jp->jp_m, number);
}

static void pin_submit(struct pin *p, int (*run)(struct kv_op *op, struct kv_txn *t),
		       void (*done)(struct kv_op *op, int err))
{
	p->p_busy = true;
	p->p_op = (struct kv_op){.o_run = run, .o_done = done, .o_loop = p->p_pins->jp_loop};
	kv_submit(p->p_pins->jp_m->m_kv, &p->p_op);
}

void pin_to(struct pin *p, enum lo_pin_state state)
{
	p->p_drop = false;
	p->p_from = p->p_row;
	p->p_next_state = (uint8_t)state;
	pin_submit(p, state_run, state_done);
}

static void pin_ends(struct pin *p)
{
	p->p_drop = true;
	p->p_from = p->p_row;
	pin_submit(p, state_run, state_done);
}

/* ---- the walk over the tree ---- */

#define TURN_ENTRIES 64u
#define QUEUE_MAX    1000000u

static bool pin_push(struct pin *p, uint64_t ino, uint64_t after)
{
	if (p->p_n == p->p_cap) {
		size_t cap = p->p_cap ? p->p_cap * 2 : 256;
		struct pin_queued *q =
			cap > QUEUE_MAX ? NULL : reallocarray(p->p_queue, cap, sizeof(*q));

		if (!q) {
			pin_passed(p, "directories are too deep, or there is no memory");
			return false;
		}
		p->p_queue = q;
		p->p_cap = cap;
	}
	p->p_queue[p->p_n++] = (struct pin_queued){ino, after};
	return true;
}

struct turn {
	struct pin *tu_pin;
	unsigned tu_entries;
	uint64_t tu_after;
};

static int push_entry(void *arg, const struct ns_dirent *d)
{
	struct turn *tu = arg;

	if (tu->tu_entries++ == TURN_ENTRIES)
		return 1;
	tu->tu_after = d->d_cookie;
	if (d->d_type == NS_REG || d->d_type == NS_DIR)
		pin_push(tu->tu_pin, d->d_ino, 0);
	return 0;
}

/* The directory goes below its entries, and is read on when these are done. */
static void push_dir(struct pin *p, struct kv_txn *t, uint64_t ino, uint64_t after)
{
	struct turn tu = {.tu_pin = p, .tu_after = after};
	size_t at = p->p_n;
	bool eof;
	int err;

	if (!pin_push(p, ino, after))
		return;
	err = ns_readdir(p->p_pins->jp_m->m_ns, t, ino, after, push_entry, &tu, &eof);
	p->p_queue[at].q_after = tu.tu_after;
	if (err)
		pin_passed(p, strerror(-err));
	if (err || eof)
		memmove(&p->p_queue[at], &p->p_queue[at + 1],
			(--p->p_n - at) * sizeof(*p->p_queue));
}

void pin_passed(struct pin *p, const char *why)
{
	p->p_view.pv_passed++;
	if (!*p->p_view.pv_passed_why)
		snprintf(p->p_view.pv_passed_why, sizeof(p->p_view.pv_passed_why), "%s", why);
}

static void pin_walk_begin(struct pin *p)
{
	p->p_n = 0;
	p->p_walks = pin_push(p, p->p_row.pi_ino, 0);
	p->p_again = false;
	p->p_ncand = p->p_nout = 0;
	p->p_have_files = p->p_have_bytes = 0;
	p->p_view.pv_files = p->p_view.pv_bytes = p->p_view.pv_there = p->p_view.pv_passed = 0;
	*p->p_view.pv_passed_why = *p->p_view.pv_waits = 0;
}

/* Are all copies in sync on servers of the group, so that clients read there anyway? */
static bool all_there(struct job_pins *jp, const struct lo_map *map, const char *group)
{
	struct ds_reg_terms dt;
	unsigned n = 0;

	for (unsigned k = 0; k < lo_objects(map); k++) {
		if (map->lm_obj[k].ob_state != LO_IN_SYNC)
			continue;
		n++;
		if (!ds_reg_terms(jp->jp_m->m_dsc, map->lm_obj[k].ob_ds, &dt) ||
		    !lo_group_has(group, dt.dt_labels))
			return false;
	}
	return n;
}

bool pin_filled(const struct lo_map *map)
{
	for (unsigned s = 0; map->lm_pin && s < map->lm_stripes; s++)
		if (map->lm_obj[(map->lm_pin - 1u) * map->lm_stripes + s].ob_state != LO_IN_SYNC)
			return false;
	return map->lm_pin;
}

static bool is_out(const struct pin *p, uint64_t ino)
{
	for (unsigned i = 0; i < p->p_nout; i++)
		if (p->p_out[i] == ino)
			return true;
	return false;
}

static void count_made(struct pin *p, uint64_t bytes)
{
	p->p_view.pv_files++;
	p->p_view.pv_bytes += bytes;
}

/* One file of the walk. */
static void look_at_file(struct pin *p, struct kv_txn *t, const struct ns_inode *i)
{
	struct lo_map map;
	bool counting = p->p_row.pi_state == LO_PIN_COUNT, ours;

	if (lo_map_decode(i->i_blob, &map)) {
		pin_passed(p, "its layout is damaged");
		return;
	}
	ours = map.lm_pin && !strcmp(map.lm_pin_group, p->p_row.pi_group);
	if (counting && ours) {
		p->p_have_files++;
		p->p_have_bytes += i->i_size;
	} else if (counting) {
		if (!all_there(p->p_pins, &map, p->p_row.pi_group))
			count_made(p, i->i_size);
	} else if (ours && lo_pin_file_is(t, p->p_number, i->i_ino)) {
		if (pin_filled(&map))
			count_made(p, i->i_size);
		else if (!is_out(p, i->i_ino))
			p->p_out[p->p_nout++] = i->i_ino;
	} else if (!ours && all_there(p->p_pins, &map, p->p_row.pi_group)) {
		p->p_view.pv_there++;
	} else {
		p->p_cand[p->p_ncand++] = i->i_ino;
	}
}

static bool turn_over(const struct job_pins *jp)
{
	return clock_mono_ns() > jp->jp_until_ns;
}

/* True: the walk is done. */
static bool pin_walk(struct pin *p, struct kv_txn *t)
{
	for (unsigned n = 0; p->p_n; n++) {
		struct pin_queued q;
		struct ns_inode i;

		if (n == PIN_LOOKS || (n % 8 == 7 && turn_over(p->p_pins))) {
			p->p_pins->jp_short = true;
			return false;
		}

		if (p->p_ncand == PIN_BATCH || p->p_nout + p->p_ncand >= PIN_WINDOW)
			return false;
		q = p->p_queue[--p->p_n];
		if (ns_get(p->p_pins->jp_m->m_ns, t, q.q_ino, &i))
			continue; /* removed */
		if (i.i_type == NS_DIR && p->p_row.pi_recursive)
			push_dir(p, t, q.q_ino, q.q_after);
		else if (i.i_type == NS_REG)
			look_at_file(p, t, &i);
	}
	return !p->p_n;
}

/* ---- counting ---- */

static void pin_job_over(struct pin *p, enum job_state state)
{
	p->p_view.pv_row = p->p_row;
	job_pin_over(p->p_pins->jp_m, &p->p_view, state);
}

static void count_step(struct pin *p, struct kv_txn *t)
{
	uint64_t room, need;

	if (!p->p_walks)
		pin_walk_begin(p);
	if (!pin_walk(p, t))
		return;
	p->p_walks = false;
	need = p->p_view.pv_bytes;
	p->p_row.pi_files = p->p_view.pv_files + p->p_have_files;
	p->p_row.pi_bytes = need + p->p_have_bytes;
	room = pin_room(p->p_pins, t, p->p_row.pi_group, NULL, NULL) + pin_warmed(p);
	if (need <= room) {
		pin_to(p, LO_PIN_MAKE);
		return;
	}
	snprintf(p->p_view.pv_waits, sizeof(p->p_view.pv_waits),
		 "%s: %lu bytes are needed, and %lu are free below mds.near_full on the data "
		 "servers there",
		 p->p_row.pi_group, (unsigned long)need, (unsigned long)room);
	log_warn("pin of inode %lu refused: %s", (unsigned long)p->p_row.pi_ino,
		 p->p_view.pv_waits);
	p->p_view.pv_files = p->p_view.pv_bytes = 0;
	pin_job_over(p, JOB_FAILED);
	/* What it had made before it was asked for again stays. */
	p->p_row.pi_files = p->p_have_files;
	p->p_row.pi_bytes = p->p_have_bytes;
	if (p->p_renewed)
		pin_to(p, LO_PIN_HELD);
	else
		pin_ends(p);
}

/* ---- making ---- */

static bool pin_goes(const struct lo_map *map)
{
	return map->lm_pin && !map->lm_pending_mirror &&
	       map->lm_obj[(map->lm_pin - 1u) * map->lm_stripes].ob_leaving;
}

/* W: has the file's repair row say what it is for, and run at once. 0, also where there is no row,
 * or the store's error. */
static int pin_asks(struct kv_txn *t, uint64_t ino, enum lo_repair_asked what)
{
	struct lo_repair row;

	if (lo_repair_get(t, ino, &row))
		return 0;
	row.rr_after = 0;
	row.rr_asked = what;
	return lo_repair_put(t, ino, &row);
}

/* W: returns a pin_result, or -errno. */
static int make_one(struct pin *p, struct kv_txn *t, unsigned n)
{
	struct mds *m = p->p_pins->jp_m;
	struct pin_fits fits = {.pf_room = p->p_room};
	const struct lo_fits f = {pin_fits, &fits};
	uint64_t ino = p->p_cand[n];
	struct ns_inode i;
	struct lo_map map;
	int err = ns_get(m->m_ns, t, ino, &i);

	if (!err)
		err = lo_map_decode(i.i_blob, &map);
	if (err)
		return err == -ENOENT || err == -ESTALE ? PIN_GONE : err;
	if (map.lm_pin && strcmp(map.lm_pin_group, p->p_row.pi_group))
		return PIN_ELSEWHERE;
	if (lo_pending_is(t, ino) || pin_goes(&map))
		return PIN_BUSY;
	if (map.lm_pin)
		return lo_pin_file_put(t, p->p_number, ino);
	fits.pf_share = pin_share(i.i_size, &map);
	err = lo_mirror_pin(m->m_lo, &map, p->p_row.pi_group, &f, p->p_say, sizeof(p->p_say));
	if (err == -ENOSPC)
		return fits.pf_short				   ? PIN_NO_ROOM
		       : pin_any_there(m, &map, p->p_row.pi_group) ? PIN_THERE
								   : PIN_NO_SERVER;
	if (err)
		return err == -EBUSY ? PIN_BUSY : err == -EINVAL ? PIN_PASSED : err;
	for (unsigned s = 0; s < map.lm_stripes; s++)
		p->p_room[map.lm_obj[lo_objects(&map) - map.lm_stripes + s].ob_ds] -= fits.pf_share;
	err = file_set_map(&m->m_file, t, ino, &map, file_now());
	if (err == -EAGAIN) /* no file made ahead on a generic server: nothing was written */
		return PIN_BUSY;
	if (!err)
		err = lo_pin_file_put(t, p->p_number, ino);
	return err ? err : pin_asks(t, ino, LO_REPAIR_ASKED_ADD);
}

static int make_run(struct kv_op *op, struct kv_txn *t)
{
	struct pin *p = caa_container_of(op, struct pin, p_op);
	struct lo_pin row;
	unsigned n;

	p->p_did = 0;
	p->p_stuck = PIN_MADE;
	if (lo_pin_get(t, p->p_number, &row) || row.pi_state != LO_PIN_MAKE)
		return 0;
	for (n = 0; n < p->p_ncand; n++) {
		int rc = make_one(p, t, n);

		if (rc < 0)
			return rc;
		p->p_result[n] = (uint8_t)rc;
		if (rc == PIN_NO_ROOM || rc == PIN_NO_SERVER)
			break;
	}
	/* What did not find room is tried again; what comes behind it waits. */
	p->p_did = n;
	p->p_stuck = n < p->p_ncand ? p->p_result[n] : PIN_MADE;
	return 0;
}

static void stuck(struct pin *p)
{
	struct ns_inode i = {0};
	struct kv_txn *t;

	if (kv_read_begin(p->p_pins->jp_m->m_kv, &t))
		return;
	if (ns_get(p->p_pins->jp_m->m_ns, t, p->p_cand[0], &i))
		i.i_size = 0;
	kv_read_end(t);
	p->p_rest_ms = clock_mono_ms() + PIN_REST_MS;
	if (p->p_stuck == PIN_NO_SERVER)
		snprintf(p->p_view.pv_waits, sizeof(p->p_view.pv_waits),
			 "%s: no data server there lives and takes new files", p->p_row.pi_group);
	else if (!pin_evict(p->p_pins, p->p_row.pi_group, p, "another pin needs the room"))
		snprintf(p->p_view.pv_waits, sizeof(p->p_view.pv_waits),
			 "%s: no data server there has %lu bytes free below mds.near_full",
			 p->p_row.pi_group, (unsigned long)i.i_size);
}

static void make_done(struct kv_op *op, int err)
{
	struct pin *p = caa_container_of(op, struct pin, p_op);
	struct job_pins *jp = p->p_pins;

	pthread_mutex_lock(&jp->jp_lock);
	p->p_busy = false;
	if (err) {
		log_error("pin: cannot store new copies: %s", strerror(-err));
		p->p_rest_ms = clock_mono_ms() + PIN_REST_MS;
		pthread_mutex_unlock(&jp->jp_lock);
		return;
	}
	*p->p_view.pv_waits = 0;
	for (unsigned n = 0; n < p->p_did; n++) {
		if (p->p_result[n] == PIN_MADE && !is_out(p, p->p_cand[n]))
			p->p_out[p->p_nout++] = p->p_cand[n];
		p->p_again |= p->p_result[n] == PIN_BUSY;
		p->p_view.pv_there += p->p_result[n] == PIN_THERE;
		if (p->p_result[n] == PIN_PASSED)
			pin_passed(p, p->p_say);
		else if (p->p_result[n] == PIN_ELSEWHERE)
			pin_passed(p, "another pin has a copy of it on other data servers");
	}
	p->p_ncand -= p->p_did;
	memmove(p->p_cand, p->p_cand + p->p_did, p->p_ncand * sizeof(p->p_cand[0]));
	if (p->p_ncand && p->p_stuck != PIN_MADE)
		stuck(p);
	pthread_mutex_unlock(&jp->jp_lock);
	lo_orders_wake(jp->jp_m->m_lo);
}

/* Files whose copies were being filled, or emptied, when they were last looked at. */
static void look_at_out(struct pin *p, struct kv_txn *t)
{
	struct mds *m = p->p_pins->jp_m;
	bool release = p->p_row.pi_state == LO_PIN_RELEASE;
	unsigned n = 0;

	for (unsigned k = 0; k < p->p_nout; k++) {
		struct ns_inode i;
		struct lo_map map;
		uint64_t ino = p->p_out[k];

		if (ns_get(m->m_ns, t, ino, &i) || lo_map_decode(i.i_blob, &map))
			continue;
		if (release ? map.lm_pin : map.lm_pin && !pin_filled(&map)) {
			p->p_out[n++] = ino;
		} else if (!release && !map.lm_pin) {
			pin_passed(p, "its copy was cancelled");
		} else if (!release) {
			count_made(p, i.i_size);
			pin_filled_now(p->p_pins, &map, i.i_size);
			/* Clients that hold layouts read elsewhere until they ask again. */
			excl_recall_and_fence(&m->m_file, p->p_pins->jp_loop, ino, NULL, NULL,
					      NULL);
		}
	}
	p->p_nout = n;
}

static void make_step(struct pin *p, struct kv_txn *t)
{
	bool all;

	look_at_out(p, t);
	if (clock_mono_ms() < p->p_rest_ms)
		return;
	if (!p->p_walks)
		pin_walk_begin(p);
	all = pin_walk(p, t);
	if (p->p_ncand) {
		pin_room(p->p_pins, t, p->p_row.pi_group, p->p_room, NULL);
		pin_submit(p, make_run, make_done);
	} else if (all && !p->p_nout) {
		p->p_walks = false;
		p->p_rest_ms = clock_mono_ms() + PIN_REST_MS;
		if (p->p_again) {
			snprintf(p->p_view.pv_waits, sizeof(p->p_view.pv_waits),
				 "files are being moved or changed otherwise");
			return;
		}
		p->p_row.pi_files = p->p_view.pv_files;
		p->p_row.pi_bytes = p->p_view.pv_bytes;
		p->p_row.pi_passed = p->p_view.pv_passed;
		pin_job_over(p, JOB_DONE);
		pin_to(p, LO_PIN_HELD);
	}
}

/* ---- taking away ---- */

static int release_one(struct pin *p, struct kv_txn *t, uint64_t ino)
{
	struct mds *m = p->p_pins->jp_m;
	struct ns_inode i;
	struct lo_map map;
	int err = ns_get(m->m_ns, t, ino, &i);

	if (!err)
		err = lo_map_decode(i.i_blob, &map);
	/* Gone, or no longer ours: then another pin's copy stays. */
	if (err || !map.lm_pin || strcmp(map.lm_pin_group, p->p_row.pi_group) ||
	    lo_pin_shares(t, ino, p->p_number, p->p_row.pi_group)) {
		err = lo_pin_file_del(t, p->p_number, ino);
		return err ? err : PIN_GONE;
	}
	if (pin_goes(&map))
		return PIN_MADE;
	err = lo_mirror_remove(&map, map.lm_pin - 1u, p->p_say, sizeof(p->p_say));
	if (err)
		return err == -EBUSY ? PIN_BUSY : err;
	err = file_set_map(&m->m_file, t, ino, &map, file_now());
	return err ? err : pin_asks(t, ino, LO_REPAIR_ASKED_REMOVE);
}

static int release_run(struct kv_op *op, struct kv_txn *t)
{
	struct pin *p = caa_container_of(op, struct pin, p_op);
	struct lo_pin row;

	p->p_did = 0;
	if (lo_pin_get(t, p->p_number, &row) || row.pi_state != LO_PIN_RELEASE)
		return 0;
	for (unsigned n = 0; n < p->p_ncand; n++) {
		int rc = release_one(p, t, p->p_cand[n]);

		if (rc < 0)
			return rc;
		p->p_result[n] = (uint8_t)rc;
	}
	p->p_did = p->p_ncand;
	return 0;
}

static void release_done(struct kv_op *op, int err)
{
	struct pin *p = caa_container_of(op, struct pin, p_op);
	struct job_pins *jp = p->p_pins;

	if (err)
		log_error("pin: cannot take copies away: %s", strerror(-err));
	pthread_mutex_lock(&jp->jp_lock);
	p->p_busy = false;
	*p->p_view.pv_waits = 0;
	for (unsigned n = 0; n < p->p_did && !err; n++) {
		p->p_view.pv_files += p->p_result[n] == PIN_GONE;
		if (p->p_result[n] == PIN_MADE && !is_out(p, p->p_cand[n]))
			p->p_out[p->p_nout++] = p->p_cand[n];
		if (p->p_result[n] == PIN_BUSY)
			snprintf(p->p_view.pv_waits, sizeof(p->p_view.pv_waits), "a file: %s",
				 p->p_say);
	}
	p->p_ncand = 0;
	pthread_mutex_unlock(&jp->jp_lock);
	lo_orders_wake(jp->jp_m->m_lo);
}

static int release_row(void *arg, uint64_t ino)
{
	struct pin *p = arg;

	p->p_any = true;
	if (p->p_ncand == PIN_BATCH || p->p_nout + p->p_ncand >= PIN_WINDOW)
		return 1;
	p->p_after = ino;
	if (!is_out(p, ino))
		p->p_cand[p->p_ncand++] = ino;
	return 0;
}

static void release_step(struct pin *p, struct kv_txn *t)
{
	bool first = !p->p_after;

	if (!p->p_walks) {
		pin_walk_begin(p);
		p->p_n = 0;
		p->p_after = 0;
		first = true;
	}
	look_at_out(p, t);
	p->p_any = false;
	p->p_ncand = 0;
	if (first && clock_mono_ms() < p->p_rest_ms)
		return;
	if (lo_pin_files(t, p->p_number, p->p_after + 1, release_row, p))
		return;
	if (p->p_ncand) {
		pin_submit(p, release_run, release_done);
	} else if (!p->p_any && !first) { /* from the begin again */
		p->p_after = 0;
		p->p_rest_ms = clock_mono_ms() + PIN_REST_MS / 4;
	} else if (!p->p_any) {
		pin_job_over(p, JOB_DONE);
		pin_ends(p);
	}
}

/* ---- all pins ---- */

static bool pin_over(struct pin *p, struct kv_txn *t)
{
	struct ns_inode i;
	int err = ns_get(p->p_pins->jp_m->m_ns, t, p->p_row.pi_ino, &i);

	return err == -ENOENT || err == -ESTALE ||
	       (p->p_row.pi_until_s && (uint64_t)file_now().t_sec >= p->p_row.pi_until_s);
}

static void pin_step(struct pin *p, struct kv_txn *t)
{
	if (p->p_busy)
		return;
	if (p->p_row.pi_state != LO_PIN_RELEASE && pin_over(p, t)) {
		if (p->p_row.pi_state != LO_PIN_HELD) {
			snprintf(p->p_view.pv_waits, sizeof(p->p_view.pv_waits),
				 "its time was over, or its path was removed");
			pin_job_over(p, JOB_CANCELLED);
		}
		pin_to(p, LO_PIN_RELEASE);
		return;
	}
	switch (p->p_row.pi_state) {
	case LO_PIN_COUNT:
		count_step(p, t);
		break;
	case LO_PIN_MAKE:
		make_step(p, t);
		break;
	case LO_PIN_RELEASE:
		release_step(p, t);
		break;
	default:
		break;
	}
	p->p_view.pv_row = p->p_row;
}

static void turn_again(struct loop_msg *msg);

/* locked. A turn begins with the pin that the one before did not come to. */
static void pins_turn(struct job_pins *jp, struct kv_txn *t)
{
	struct pin *first = jp->jp_first, *p;

	while (first && first->p_number != jp->jp_next)
		first = first->p_next;
	if (!first)
		first = jp->jp_first;
	jp->jp_until_ns = clock_mono_ns() + PIN_US * UINT64_C(1000);
	jp->jp_short = false;
	p = first;
	do {
		pin_step(p, t);
		p = p->p_next ? p->p_next : jp->jp_first;
	} while (p != first && !turn_over(jp));
	jp->jp_next = p->p_number;
	/* Those that were not reached, and walks that go on, get the next turn soon. */
	if ((p == first && !jp->jp_short) || jp->jp_posted)
		return;
	jp->jp_posted = true;
	jp->jp_msg.m_run = turn_again;
	loop_post(jp->jp_loop, &jp->jp_msg);
}

static void turn_again(struct loop_msg *msg)
{
	struct job_pins *jp = caa_container_of(msg, struct job_pins, jp_msg);

	jp->jp_posted = false;
	job_pins_tick(jp->jp_m);
}

void job_pins_tick(struct mds *m)
{
	struct job_pins *jp = m->m_pins;
	struct kv_txn *t;

	if (st_in_grace(m->m_st))
		return;
	pthread_mutex_lock(&jp->jp_lock);
	if (jp->jp_first && !kv_read_begin(m->m_kv, &t)) {
		pin_pressure(jp);
		pins_turn(jp, t);
		kv_read_end(t);
	}
	pthread_mutex_unlock(&jp->jp_lock);
}

/* locked */
static void pin_free(struct job_pins *jp, struct pin *gone)
{
	for (struct pin **at = &jp->jp_first; *at; at = &(*at)->p_next)
		if (*at == gone) {
			*at = gone->p_next;
			break;
		}
	free(gone->p_queue);
	free(gone);
}

/* locked: the row as it is now. */
static void pin_set(struct job_pins *jp, const struct lo_pin *row)
{
	struct pin *p = jp->jp_first;

	while (p && p->p_number != row->pi_number)
		p = p->p_next;
	if (!p) {
		p = calloc(1, sizeof(*p));
		if (!p)
			return; /* the next start finds it */
		p->p_pins = jp;
		p->p_number = row->pi_number;
		strcpy(p->p_row.pi_group, row->pi_group);
		p->p_next = jp->jp_first;
		jp->jp_first = p;
	} else if (p->p_row.pi_state >= LO_PIN_MAKE && row->pi_state == LO_PIN_COUNT) {
		p->p_renewed = true;
	}
	if (p->p_row.pi_state != row->pi_state || !p->p_view.pv_begun) {
		if (row->pi_state != LO_PIN_MAKE || !p->p_view.pv_begun)
			p->p_view.pv_begun = job_now();
		p->p_walks = false;
		p->p_ncand = p->p_busy ? p->p_ncand : 0;
		p->p_rest_ms = 0;
	}
	/* The committer may be reading the group: it is as it was. */
	memcpy(&p->p_row, row, offsetof(struct lo_pin, pi_group));
	p->p_view.pv_row = *row;
}

void job_pin_reload(struct mds *m, uint64_t number)
{
	struct job_pins *jp = m->m_pins;
	struct lo_pin row;
	struct kv_txn *t;
	struct pin *p;
	int err = kv_read_begin(m->m_kv, &t);

	if (err)
		return;
	err = lo_pin_get(t, number, &row);
	kv_read_end(t);
	pthread_mutex_lock(&jp->jp_lock);
	for (p = jp->jp_first; p && p->p_number != number; p = p->p_next)
		;
	if (!err)
		pin_set(jp, &row);
	else if (err == -ENOENT && p && !p->p_busy)
		pin_free(jp, p);
	pthread_mutex_unlock(&jp->jp_lock);
}

void job_pins_look(struct mds *m, int (*fn)(void *arg, const struct job_pin_view *v), void *arg)
{
	struct job_pins *jp = m->m_pins;
	struct job_pin_view *v;
	unsigned n = 0, have = 0;

	pthread_mutex_lock(&jp->jp_lock);
	for (const struct pin *p = jp->jp_first; p; p = p->p_next)
		n++;
	v = calloc(n ? n : 1, sizeof(*v));
	for (const struct pin *p = jp->jp_first; v && p; p = p->p_next)
		v[have++] = p->p_view;
	pthread_mutex_unlock(&jp->jp_lock);
	/* fn may take other locks. */
	for (unsigned i = 0; i < have; i++)
		if (fn(arg, &v[i]))
			break;
	free(v);
}

static int pin_load_row(void *arg, const struct lo_pin *row)
{
	pin_set(arg, row);
	return 0;
}

int job_pins_open(struct mds *m, struct loop *loop, unsigned near_full)
{
	struct job_pins *jp = calloc(1, sizeof(*jp));
	struct kv_txn *t;
	int err = jp ? kv_read_begin(m->m_kv, &t) : -ENOMEM;

	if (err) {
		free(jp);
		return err;
	}
	jp->jp_m = m;
	jp->jp_loop = loop;
	jp->jp_near_full = near_full;
	pthread_mutex_init(&jp->jp_lock, NULL);
	m->m_pins = jp;
	err = lo_pins(t, pin_load_row, jp);
	kv_read_end(t);
	return err;
}
