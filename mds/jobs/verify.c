/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify.c - compares copies in sync: each data server computes the checksum of a range of its
 * object, and the checksums are compared here (proto/ctl.x, SUM). A job on one loop takes range
 * after range.
 *
 * Clients write meanwhile, so one of two copies may have a write that the other is about to get. A
 * range whose checksums are equal is equal. A range whose checksums differ is asked for again, and
 * if they still differ, once more under a freeze: all layouts are back, older capabilities are
 * fenced, nothing is under way. What differs then is a difference.
 *
 * For an object that is known to exist and is missing no freeze is needed: it is in its place
 * whatever is under way, and a fence only marks it lost. In an earlier release a fence created such
 * an object again, empty, so that it is shorter than the other copies. So where copies end at
 * different places, a vote elects none of the shorter copies. Without a vote no copy is believed
 * except the one that was asked for.
 */
#include "mds/file/file_size.h"
#include "mds/file/mirror_state.h"
#include "mds/jobs/job_int.h"
#include "mds/jobs/verify.h"
#include "base/log.h"
#include "mds/jobs/repair.h"
#include <errno.h>
#include <sodium.h>
#include <urcu/compiler.h>

#define TRIES	     3 /* before the freeze */
#define AGAIN_MS     200
#define SUM_MS	     30000
#define QUEUE_MAX    (1u << 20)
#define TURN_ENTRIES 64 /* entries of a directory in one turn */

struct sum {
	struct ds_reg_ctl su_ctl;
	struct job_verify *su_v;
	unsigned su_obj;
	ctl_status su_status;
	int su_err;
	ctl_sum_res su_res;
};

struct job_verify {
	struct mds *v_m;
	struct loop *v_loop;
	struct loop_msg v_msg;
	struct loop_timer v_timer;
	void (*v_wake)(struct job_verify *v);
	pthread_mutex_t v_lock; /* protects v_view and v_stop: any thread */
	struct job_verify_view v_view;
	bool v_stop;
	/* inodes that are to be examined; of a directory, its entries behind this cookie */
	struct queued {
		uint64_t q_ino, q_after;
	} * v_queue;
	unsigned v_entries; /* entries in this turn */
	uint64_t v_after;
	size_t v_n, v_cap;
	/* the file in hand */
	uint64_t v_ino, v_off, v_most; /* most: the size of this stripe's largest copy */
	uint64_t v_set;		       /* file_size_set */
	/* Two clients wrote the file, and no copy was asked for: believe the first copy, which
	 * readers have seen. */
	bool v_same;
	struct ns_inode v_inode;
	struct lo_map v_map;
	unsigned v_stripe, v_tries, v_asked;
	bool v_frozen;
	struct excl v_freeze;
	struct kv_op v_op;
	struct job_verify_diff v_diff;
	/* for job_verify_run */
	void (*v_done)(void *arg);
	void *v_arg;
	unsigned v_nsum;
	struct sum v_sum[LO_MAX_OBJECTS];
};

static void next_file(struct job_verify *v);
static void ask_range(struct job_verify *v);

static void verify_woken(struct loop_timer *t)
{
	struct job_verify *v = caa_container_of(t, struct job_verify, v_timer);

	v->v_wake(v);
}

static void verify_later(struct job_verify *v, uint32_t ms, void (*wake)(struct job_verify *v))
{
	v->v_wake = wake;
	v->v_timer.t_fire = verify_woken;
	loop_timer_start(v->v_loop, &v->v_timer, ms);
}

static void verify_count(struct job_verify *v, uint64_t *what, uint64_t n)
{
	pthread_mutex_lock(&v->v_lock);
	*what += n;
	pthread_mutex_unlock(&v->v_lock);
}

static void verify_thaw(struct job_verify *v)
{
	excl_end(&v->v_freeze, 0);
	v->v_frozen = false;
}

/* ---- one range ---- */

static void verify_next_range(struct job_verify *v)
{
	uint64_t bytes = 0;

	verify_thaw(v);
	v->v_tries = 0;
	for (unsigned i = 0; i < v->v_nsum; i++)
		bytes += v->v_sum[i].su_res.data;
	verify_count(v, &v->v_view.vv_bytes, bytes);
	v->v_off += CTL_SUM_MAX;
	if (v->v_off >= v->v_most) {
		v->v_off = v->v_most = 0;
		v->v_stripe++;
	}
	verify_later(v, job_repair_pace(v->v_m, bytes), ask_range);
}

/* Not all copies could be asked: the rest of this file is skipped. */
static void skip_file(struct job_verify *v)
{
	verify_thaw(v);
	verify_count(v, &v->v_view.vv_skipped, 1);
	verify_later(v, 0, next_file);
}

/* Whether this copy is missing although it is known to exist: it is never believed. */
static bool verify_lost(const struct job_verify *v, unsigned i)
{
	return v->v_sum[i].su_status == CTL_NOENT && v->v_map.lm_obj[v->v_sum[i].su_obj].ob_known;
}

static uint64_t all_lost(const struct job_verify *v)
{
	uint64_t bits = 0;

	for (unsigned i = 0; i < v->v_nsum; i++)
		bits |= verify_lost(v, i) ? UINT64_C(1) << v->v_sum[i].su_obj : 0;
	return bits;
}

/* Whether the server reports, again and again, that it cannot read this copy. Only a vote accepts
 * this. */
static bool unread(const struct job_verify *v, unsigned i)
{
	return v->v_view.vv_ask.va_vote && !v->v_sum[i].su_err && v->v_sum[i].su_status == CTL_IO;
}

static bool verify_same(const struct job_verify *v, unsigned a, unsigned b)
{
	return v->v_sum[a].su_res.size == v->v_sum[b].su_res.size &&
	       !memcmp(v->v_sum[a].su_res.sum, v->v_sum[b].su_res.sum, CTL_SUM_LEN);
}

static uint64_t longest(const struct job_verify *v)
{
	uint64_t most = 0;

	for (unsigned i = 0; i < v->v_nsum; i++)
		most = v->v_sum[i].su_res.size > most ? v->v_sum[i].su_res.size : most;
	return most;
}

/* Whether the sizes of copies are compared. On plain NFSv3 data servers they are not: there an
 * object of a striped file goes on to where the file ends. */
static bool verify_sized(const struct job_verify *v)
{
	return v->v_map.lm_stripes == 1 || !lo_generic(v->v_m->m_lo, &v->v_map);
}

/* Whether the copies that are there end at different places. */
static bool uneven(const struct job_verify *v)
{
	uint64_t most = longest(v);
	bool yes = false;

	for (unsigned i = 0; i < v->v_nsum; i++)
		yes |= !verify_lost(v, i) && !unread(v, i) && v->v_sum[i].su_res.size < most;
	return yes && verify_sized(v);
}

/* Elects a copy: more than half of the readable copies are equal to it, and no copy is longer. All
 * copies in sync have what was acknowledged. v_nsum: no copy is elected. */
static unsigned elected(const struct job_verify *v)
{
	unsigned voters = 0;

	for (unsigned i = 0; i < v->v_nsum; i++)
		voters += !verify_lost(v, i) && !unread(v, i);
	for (unsigned i = 0; i < v->v_nsum; i++) {
		unsigned votes = 0;

		for (unsigned k = 0; k < v->v_nsum; k++)
			votes += !verify_lost(v, k) && !unread(v, k) && verify_same(v, i, k);
		if (!verify_lost(v, i) && !unread(v, i) && 2 * votes > voters &&
		    (!verify_sized(v) || v->v_sum[i].su_res.size == longest(v)))
			return i;
	}
	return v->v_nsum;
}

static bool asked_for(const struct job_verify *v, unsigned i)
{
	return v->v_view.vv_ask.va_keep >= 0 &&
	       v->v_sum[i].su_obj / v->v_map.lm_stripes == (unsigned)v->v_view.vv_ask.va_keep;
}

/* The first of the longest copies that do not exceed the size that was set; where all exceed it,
 * the shortest. */
static unsigned right_end(const struct job_verify *v)
{
	unsigned best = v->v_nsum;

	for (unsigned i = 0; i < v->v_nsum; i++) {
		uint64_t size = v->v_sum[i].su_res.size,
			 most = best < v->v_nsum ? v->v_sum[best].su_res.size : 0;

		if (!verify_lost(v, i) &&
		    (best == v->v_nsum ||
		     (most > v->v_set ? size < most : size > most && size <= v->v_set)))
			best = i;
	}
	return best;
}

/* The copy that is believed: the first one, the elected one or the one with the right end, if that
 * was asked for; else the one of the mirror that was asked for; else the first of the longest.
 * v_nsum: no copy is there. */
static unsigned believed(const struct job_verify *v)
{
	unsigned first = v->v_nsum;

	if (v->v_view.vv_ask.va_first || v->v_same) {
		for (unsigned i = 0; i < v->v_nsum; i++)
			if (!verify_lost(v, i) && !unread(v, i))
				return i;
	}
	if (v->v_view.vv_ask.va_vote && elected(v) < v->v_nsum)
		return elected(v);
	if (v->v_view.vv_ask.va_ends)
		return right_end(v);
	for (unsigned i = 0; i < v->v_nsum; i++) {
		if (verify_lost(v, i) || unread(v, i))
			continue;
		if (asked_for(v, i))
			return i;
		if (first == v->v_nsum ||
		    (verify_sized(v) && v->v_sum[i].su_res.size > v->v_sum[first].su_res.size))
			first = i;
	}
	return first;
}

static uint64_t differing(const struct job_verify *v, unsigned kept)
{
	const ctl_sum_res *k = &v->v_sum[kept].su_res;
	uint64_t bad = 0;

	for (unsigned i = 0; i < v->v_nsum; i++)
		if (verify_lost(v, i) || unread(v, i) ||
		    (verify_sized(v) && v->v_sum[i].su_res.size != k->size) ||
		    memcmp(v->v_sum[i].su_res.sum, k->sum, CTL_SUM_LEN))
			bad |= UINT64_C(1) << v->v_sum[i].su_obj;
	return bad;
}

static int mend_run(struct kv_op *op, struct kv_txn *t)
{
	struct job_verify *v = caa_container_of(op, struct job_verify, v_op);
	struct ns_inode i;
	struct lo_map map;
	uint64_t hit;
	int err;

	v->v_diff.vd_stale = 0;
	err = ns_get(v->v_m->m_ns, t, v->v_ino, &i);

	if (!err)
		err = lo_map_decode(i.i_blob, &map);
	if (!err && i.i_incarnation != v->v_inode.i_incarnation)
		err = -ESTALE;
	if (err)
		return err;
	hit = lo_map_same(&v->v_map, v->v_diff.vd_bad, &map);
	/* An object that is being made may be a copy of the bad object. */
	for (unsigned k = v->v_diff.vd_stripe; hit && k < lo_objects(&map); k += map.lm_stripes)
		hit |= (uint64_t)(map.lm_obj[k].ob_state == LO_REBUILDING) << k;
	hit = lo_map_make_stale(&map, hit, NULL);
	v->v_diff.vd_stale = hit & v->v_diff.vd_bad;
	return hit ? file_set_map(&v->v_m->m_file, t, v->v_ino, &map, file_now()) : 0;
}

static void verify_frozen(void *arg, int err);

static void verify_freeze(struct job_verify *v)
{
	excl_begin(&v->v_freeze, &v->v_m->m_file, v->v_loop, v->v_ino, NULL, EXCL_LAYOUTS,
		   verify_frozen, v);
}

static void verify_note(struct job_verify *v)
{
	struct job_verify_view *w = &v->v_view;

	log_warn("inode %lu: copies of stripe %u differ in bytes %lu to %lu",
		 (unsigned long)v->v_ino, v->v_diff.vd_stripe, (unsigned long)v->v_diff.vd_off,
		 (unsigned long)(v->v_diff.vd_off + v->v_diff.vd_len));
	pthread_mutex_lock(&v->v_lock);
	w->vv_diffs++;
	if (w->vv_ndiff < OP_VERIFY_TOLD)
		w->vv_diff[w->vv_ndiff++] = v->v_diff;
	pthread_mutex_unlock(&v->v_lock);
	/* A missing copy that stays so is reported once for the stripe. */
	if (v->v_diff.vd_bad == all_lost(v) && !v->v_diff.vd_stale)
		v->v_most = 0;
	/* The stale copies are missing objects: recall the layouts that name them. Stale objects
	 * are not fenced, so the fence does not create them. */
	if (!v->v_frozen && v->v_diff.vd_stale && !lo_fence_hangs(v->v_m->m_lo, &v->v_map)) {
		v->v_tries = 0;
		verify_freeze(v);
	} else {
		verify_next_range(v);
	}
}

/* No copy was named as the right one, and the copies do not show which one is right. */
static bool undecided(const struct job_verify *v, unsigned kept)
{
	if (v->v_view.vv_ask.va_first || v->v_view.vv_ask.va_ends || v->v_same)
		return false;
	return v->v_view.vv_ask.va_vote ? elected(v) == v->v_nsum
					: uneven(v) && !asked_for(v, kept);
}

static void mended(struct kv_op *op, int err)
{
	struct job_verify *v = caa_container_of(op, struct job_verify, v_op);

	v->v_diff.vd_stale = err ? 0 : v->v_diff.vd_stale;
	v->v_diff.vd_mended = v->v_diff.vd_stale == v->v_diff.vd_bad;
	if (err)
		log_error("inode %lu: cannot mark a copy that differs as stale: %s",
			  (unsigned long)v->v_ino, strerror(-err));
	verify_note(v);
}

static void verify_differs(struct job_verify *v, unsigned kept, uint64_t bad)
{
	v->v_diff = (struct job_verify_diff){.vd_ino = v->v_ino,
					     .vd_off = v->v_off,
					     .vd_len = CTL_SUM_MAX,
					     .vd_stripe = v->v_stripe,
					     .vd_bad = bad,
					     .vd_kept = v->v_sum[kept].su_obj};
	for (unsigned k = 0; k < lo_objects(&v->v_map); k++) {
		v->v_diff.vd_ds[k] = v->v_map.lm_obj[k].ob_ds;
		v->v_diff.vd_copy[k] = v->v_map.lm_obj[k].ob_copy;
	}
	for (unsigned i = 0; i < v->v_nsum; i++)
		v->v_diff.vd_unread |= unread(v, i) ? UINT64_C(1) << v->v_sum[i].su_obj : 0;
	if (!v->v_view.vv_ask.va_mend || (bad != all_lost(v) && undecided(v, kept))) {
		verify_note(v);
		return;
	}
	v->v_op = (struct kv_op){.o_run = mend_run, .o_done = mended, .o_loop = v->v_loop};
	kv_submit(v->v_m->m_kv, &v->v_op);
}

/* No copy of the stripe can be read: the rest of the stripe is skipped. */
static void none_left(struct job_verify *v)
{
	uint64_t bad = 0;

	for (unsigned i = 0; i < v->v_nsum; i++)
		bad |= unread(v, i) ? UINT64_C(1) << v->v_sum[i].su_obj : 0;
	v->v_most = 0; /* go on with the next stripe */
	if (bad)
		verify_differs(v, 0, bad);
	else
		verify_next_range(v);
}

static void verify_frozen(void *arg, int err)
{
	struct job_verify *v = arg;

	v->v_frozen = !err;
	if (!err)
		ask_range(v);
	else if (excl_end(&v->v_freeze, 0), err != -ETIMEDOUT && v->v_tries++ < 20 * TRIES)
		verify_later(v, AGAIN_MS, ask_range);
	else
		skip_file(v);
}

/* Whether a client was given the file for writing since. A write that the client began and could
 * not end is no difference yet, because the client repeats it. */
static bool overtaken(const struct job_verify *v)
{
	struct st *st = v->v_m->m_st;
	const struct st_file *f;
	bool yes;

	if (!v->v_view.vv_ask.va_ends)
		return false;
	st_file_lock(st, v->v_ino);
	f = st_file_get(st, v->v_ino, false);
	yes = !f || f->f_grants != v->v_view.vv_ask.va_grants;
	st_file_unlock(st, v->v_ino);
	return yes;
}

static void verify_answered(struct job_verify *v)
{
	unsigned kept;
	uint64_t bad;

	for (unsigned i = 0; i < v->v_nsum; i++) {
		struct sum *su = &v->v_sum[i];

		if (su->su_err || (su->su_status != CTL_OK && su->su_status != CTL_NOENT &&
				   (!unread(v, i) || v->v_tries < TRIES))) {
			if (v->v_tries++ < TRIES)
				verify_later(v, AGAIN_MS, ask_range);
			else
				skip_file(v);
			return;
		}
		v->v_most = su->su_res.size > v->v_most ? su->su_res.size : v->v_most;
	}
	kept = believed(v);
	if (kept == v->v_nsum && v->v_view.vv_ask.va_vote) {
		none_left(v);
		return;
	}
	if (kept == v->v_nsum) {
		log_error("inode %lu: no copy of stripe %u exists on its data servers",
			  (unsigned long)v->v_ino, v->v_stripe);
		skip_file(v);
		return;
	}
	bad = differing(v, kept);
	if (!bad)
		verify_next_range(v);
	else if (overtaken(v))
		skip_file(v);
	else if (v->v_frozen)
		verify_differs(v, kept, bad);
	else if (v->v_tries++ < TRIES)
		verify_later(v, AGAIN_MS, ask_range);
	else if (all_lost(v))
		verify_differs(v, kept, all_lost(v));
	else if (lo_fence_hangs(v->v_m->m_lo, &v->v_map))
		skip_file(v);
	else
		verify_freeze(v);
}

static void verify_sum_take(struct ds_reg_ctl *c, const ctl_response *res)
{
	struct sum *su = caa_container_of(c, struct sum, su_ctl);

	su->su_status = res->status;
	if (res->status == CTL_OK)
		su->su_res = res->result.ctl_result_u.sum;
}

static void verify_sum_done(struct ds_reg_ctl *c, int err)
{
	struct sum *su = caa_container_of(c, struct sum, su_ctl);

	su->su_err = err;
	if (!err && su->su_status == CTL_NOENT) {
		/* A missing object reads as empty, like an object that was never written. */
		crypto_generichash((uint8_t *)su->su_res.sum, CTL_SUM_LEN, NULL, 0, NULL, 0);
		if (su->su_v->v_map.lm_obj[su->su_obj].ob_known)
			log_warn("inode %lu: object %u is missing on its data server",
				 (unsigned long)su->su_v->v_ino, su->su_obj);
	}
	if (!--su->su_v->v_asked)
		verify_answered(su->su_v);
}

static void sum_ask(struct job_verify *v, struct sum *su)
{
	ctl_sum_args *a = &su->su_ctl.dc_req.ctl_request_u.sum;

	su->su_ctl.dc_req.op = CTL_OP_SUM;
	su->su_ctl.dc_take = verify_sum_take;
	su->su_ctl.dc_done = verify_sum_done;
	lo_object_name(v->v_m->m_lo, v->v_ino, v->v_inode.i_incarnation, &v->v_map, su->su_obj,
		       &a->object);
	a->offset = v->v_off;
	a->length = CTL_SUM_MAX;
	ds_reg_call(v->v_m->m_dsc, v->v_map.lm_obj[su->su_obj].ob_ds, &su->su_ctl, SUM_MS);
}

/* Reads the current map. -EAGAIN: the file has another incarnation. */
static int verify_look(struct job_verify *v)
{
	struct ns_inode i;
	struct kv_txn *t;
	bool taking;
	int err = kv_read_begin(v->v_m->m_kv, &t);

	if (err)
		return err;
	err = ns_get(v->v_m->m_ns, t, v->v_ino, &i);
	if (!err)
		err = lo_map_decode(i.i_blob, &v->v_map);
	if (!err && i.i_incarnation != v->v_inode.i_incarnation)
		err = -EAGAIN;
	if (!err)
		v->v_set = file_size_set(&v->v_m->m_file, &i, &v->v_map);
	v->v_same = !err && v->v_view.vv_ask.va_keep < 0 &&
		    file_is_contended(&v->v_m->m_file, v->v_ino, &v->v_map, &taking);
	kv_read_end(t);
	return err;
}

static bool stopped(struct job_verify *v)
{
	bool stop;

	pthread_mutex_lock(&v->v_lock);
	stop = v->v_stop;
	pthread_mutex_unlock(&v->v_lock);
	return stop;
}

static void ask_range(struct job_verify *v)
{
	int err = verify_look(v), k;

	if (err || stopped(v) || v->v_stripe >= v->v_map.lm_stripes) {
		verify_thaw(v);
		if (!err)
			verify_count(v, &v->v_view.vv_files, 1);
		/* Mostly the file was placed again: those copies were not compared. */
		else if (err != -ESTALE)
			verify_count(v, &v->v_view.vv_skipped, 1);
		next_file(v);
		return;
	}
	v->v_nsum = 0;
	for (unsigned r = 0; (k = lo_copy(&v->v_map, v->v_stripe, r)) >= 0; r++)
		v->v_sum[v->v_nsum++] = (struct sum){.su_v = v, .su_obj = (unsigned)k};
	/* the other copies are stale by now, and repair compares them */
	if (v->v_nsum < (v->v_view.vv_ask.va_vote ? 1 : 2)) {
		verify_thaw(v);
		v->v_off = v->v_most = 0;
		v->v_stripe++;
		verify_later(v, 0, ask_range);
		return;
	}
	v->v_asked = v->v_nsum;
	for (unsigned i = 0; i < v->v_nsum; i++)
		sum_ask(v, &v->v_sum[i]);
}

/* ---- which file ---- */

static bool queue(struct job_verify *v, uint64_t ino, uint64_t after)
{
	if (v->v_n == v->v_cap) {
		size_t cap = v->v_cap ? v->v_cap * 2 : 256;
		struct queued *q =
			cap > QUEUE_MAX ? NULL : reallocarray(v->v_queue, cap, sizeof(*q));

		if (!q) {
			verify_count(v, &v->v_view.vv_skipped, 1);
			return false;
		}
		v->v_queue = q;
		v->v_cap = cap;
	}
	v->v_queue[v->v_n++] = (struct queued){ino, after};
	return true;
}

static int queue_entry(void *arg, const struct ns_dirent *d)
{
	struct job_verify *v = arg;

	if (v->v_entries++ == TURN_ENTRIES)
		return 1;
	v->v_after = d->d_cookie;
	if (d->d_type == NS_REG || d->d_type == NS_DIR)
		queue(v, d->d_ino, 0);
	return 0;
}

/* Queues the directory for its rest, and then some of its entries. The entries are taken first, so
 * the queue stays short. */
static void take_dir(struct job_verify *v, struct kv_txn *t, uint64_t after)
{
	size_t at = v->v_n;
	bool eof, room = queue(v, v->v_ino, after);
	int err = 0;

	if (!room)
		return;
	v->v_entries = 0;
	v->v_after = after;
	err = ns_readdir(v->v_m->m_ns, t, v->v_ino, after, queue_entry, v, &eof);
	v->v_queue[at].q_after = v->v_after;
	if (err)
		verify_count(v, &v->v_view.vv_skipped, 1);
	if (err || eof) /* no entries are left */
		memmove(&v->v_queue[at], &v->v_queue[at + 1],
			(--v->v_n - at) * sizeof(*v->v_queue));
}

/* 1: a file to compare; 0: nothing; a directory's entries are queued. */
static int take_inode(struct job_verify *v, struct kv_txn *t, uint64_t after)
{
	int err = ns_get(v->v_m->m_ns, t, v->v_ino, &v->v_inode);

	if (err)
		return 0; /* removed */
	if (v->v_inode.i_type == NS_DIR) {
		take_dir(v, t, after);
		return 0;
	}
	if (v->v_inode.i_type != NS_REG || lo_map_decode(v->v_inode.i_blob, &v->v_map))
		return 0;
	if (v->v_map.lm_mirrors - v->v_map.lm_pending_mirror < 2) {
		verify_count(v, &v->v_view.vv_single, 1);
		return v->v_view.vv_ask.va_vote;
	}
	return 1;
}

static void verify_finish(struct job_verify *v)
{
	free(v->v_queue);
	v->v_queue = NULL;
	v->v_n = v->v_cap = 0;
	pthread_mutex_lock(&v->v_lock);
	if (v == v->v_m->m_verify)
		job_verify_over(v->v_m, &v->v_view, v->v_stop);
	v->v_view.vv_running = false;
	v->v_view.vv_now = 0;
	pthread_mutex_unlock(&v->v_lock);
	if (v->v_done)
		v->v_done(v->v_arg);
}

static void next_file(struct job_verify *v)
{
	struct queued q;
	struct kv_txn *t;
	int found;

	if (!v->v_n || stopped(v) || kv_read_begin(v->v_m->m_kv, &t)) {
		verify_finish(v);
		return;
	}
	q = v->v_queue[--v->v_n];
	v->v_ino = q.q_ino;
	found = take_inode(v, t, q.q_after);
	kv_read_end(t);
	v->v_inode.i_blob = v->v_inode.i_acl = (struct kv_slice){0};
	v->v_off = v->v_most = 0;
	v->v_stripe = v->v_tries = 0;
	pthread_mutex_lock(&v->v_lock);
	v->v_view.vv_now = v->v_ino;
	pthread_mutex_unlock(&v->v_lock);
	verify_later(v, 0, found ? ask_range : next_file);
}

static void verify_begin_run(struct loop_msg *m)
{
	next_file(caa_container_of(m, struct job_verify, v_msg));
}

static void verify_begin_own(struct job_verify *v, struct job_verify_ask ask, const uint64_t *ino,
			     unsigned n, void (*done)(void *arg), void *arg)
{
	struct job_verify_view *w = &v->v_view;

	v->v_done = done;
	v->v_arg = arg;
	pthread_mutex_lock(&v->v_lock);
	*w = (struct job_verify_view){.vv_ask = ask,
				      .vv_number = w->vv_number + 1,
				      .vv_running = true,
				      .vv_diff = w->vv_diff};
	pthread_mutex_unlock(&v->v_lock);
	for (unsigned k = n; k > 0; k--)
		queue(v, ino[k - 1], 0);
	v->v_msg.m_run = verify_begin_run;
	loop_post(v->v_loop, &v->v_msg);
}

void job_verify_run(struct job_verify *v, const uint64_t *ino, unsigned n, bool mend,
		    void (*done)(void *arg), void *arg)
{
	verify_begin_own(v,
			 (struct job_verify_ask){.va_mend = mend, .va_keep = -1, .va_vote = true},
			 ino, n, done, arg);
}

void job_verify_run_first(struct job_verify *v, uint64_t ino, void (*done)(void *arg), void *arg)
{
	verify_begin_own(v,
			 (struct job_verify_ask){.va_mend = true, .va_keep = -1, .va_first = true},
			 &ino, 1, done, arg);
}

void job_verify_run_ends(struct job_verify *v, uint64_t ino, uint32_t grants,
			 void (*done)(void *arg), void *arg)
{
	verify_begin_own(
		v,
		(struct job_verify_ask){
			.va_mend = true, .va_keep = -1, .va_ends = true, .va_grants = grants},
		&ino, 1, done, arg);
}

static void verify_begin(struct loop_msg *m)
{
	struct job_verify *v = caa_container_of(m, struct job_verify, v_msg);

	if (queue(v, v->v_view.vv_ask.va_ino, 0))
		next_file(v);
	else
		verify_finish(v);
}

/* ---- for the administrator ---- */

bool job_verify_begin(struct mds *m, const struct job_verify_ask *ask)
{
	struct job_verify *v = m->m_verify;
	struct job_verify_view *w = &v->v_view;
	bool same, free_;

	pthread_mutex_lock(&v->v_lock);
	free_ = !w->vv_running;
	same = w->vv_ask.va_ino == ask->va_ino && w->vv_ask.va_mend == ask->va_mend &&
	       w->vv_ask.va_keep == ask->va_keep;
	if (free_) {
		struct job_verify_diff *diff = w->vv_diff;

		*w = (struct job_verify_view){.vv_ask = *ask,
					      .vv_number = w->vv_number + 1,
					      .vv_begun = job_now(),
					      .vv_running = true,
					      .vv_diff = diff};
		v->v_stop = false;
	}
	pthread_mutex_unlock(&v->v_lock);
	if (free_)
		loop_post(v->v_loop, &v->v_msg);
	return free_ || same;
}

void job_verify_end(struct mds *m)
{
	pthread_mutex_lock(&m->m_verify->v_lock);
	m->m_verify->v_stop = true;
	pthread_mutex_unlock(&m->m_verify->v_lock);
}

void job_verify_look(struct mds *m, struct job_verify_view *out)
{
	job_verify_look_at(m->m_verify, out);
}

void job_verify_look_at(struct job_verify *v, struct job_verify_view *out)
{
	pthread_mutex_lock(&v->v_lock);
	*out = v->v_view;
	out->vv_stopping = v->v_stop;
	out->vv_diff = calloc(out->vv_ndiff + 1, sizeof(*out->vv_diff));
	if (out->vv_diff)
		memcpy(out->vv_diff, v->v_view.vv_diff, out->vv_ndiff * sizeof(*out->vv_diff));
	else
		out->vv_ndiff = 0;
	pthread_mutex_unlock(&v->v_lock);
}

struct job_verify *job_verify_new(struct mds *m, struct loop *loop)
{
	struct job_verify *v = calloc(1, sizeof(*v));

	if (!v)
		return NULL;
	v->v_view.vv_diff = calloc(OP_VERIFY_TOLD, sizeof(*v->v_view.vv_diff));
	if (!v->v_view.vv_diff) {
		free(v);
		return NULL;
	}
	v->v_m = m;
	v->v_loop = loop;
	v->v_msg.m_run = verify_begin;
	pthread_mutex_init(&v->v_lock, NULL);
	return v;
}

int job_verify_open(struct mds *m, struct loop *loop)
{
	m->m_verify = job_verify_new(m, loop);
	return m->m_verify ? 0 : -ENOMEM;
}
