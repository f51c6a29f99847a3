/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scrub.c - the job of a scrub, on one loop, and its first two phases: the data servers' lists of
 * their objects, and the second look at objects that belong to no file (mds/layout/object_owner.c,
 * docs/scrub.md).
 *
 * Each answer is judged by a snapshot that begins after it. An object that belongs to no file is
 * remembered, and examined again after a while. It is garbage if its data server still has it, and
 * if it still belongs to no file in the transaction that orders its deletion. Each transaction
 * records how far the run is. Before all this, the job looks through all lists for objects that
 * show that this store is an old copy.
 */
#include "base/clock.h"
#include "base/log.h"
#include "mds/journal/event_journal.h"
#include "mds/jobs/job_int.h"
#include "mds/jobs/scrub_int.h"
#include <errno.h>
#include <urcu/compiler.h>

#define ASK_MS	   10000
#define AGAIN_MS   500
#define SAVE_EVERY 64 /* answers without anything to record, after which progress is saved */

static struct metric *m_found[JOB_SCRUB_KINDS];

/* ---- the machine ---- */

static void scrub_show(struct job_scrub *c)
{
	pthread_mutex_lock(&c->sb_lock);
	c->sb_view = c->sb_s;
	pthread_mutex_unlock(&c->sb_lock);
}

bool scrub_stopped(struct job_scrub *c)
{
	bool stop;

	pthread_mutex_lock(&c->sb_lock);
	stop = c->sb_stop;
	pthread_mutex_unlock(&c->sb_lock);
	return stop;
}

static void scrub_woken(struct loop_timer *t)
{
	struct job_scrub *c = caa_container_of(t, struct job_scrub, sb_timer);

	c->sb_wake(c);
}

void scrub_later(struct job_scrub *c, uint32_t ms, void (*wake)(struct job_scrub *c))
{
	c->sb_wake = wake;
	c->sb_timer.t_fire = scrub_woken;
	loop_timer_start(c->sb_loop, &c->sb_timer, ms);
}

static int scrub_commit_run(struct kv_op *op, struct kv_txn *t)
{
	struct job_scrub *c = caa_container_of(op, struct job_scrub, sb_op);
	int err;

	c->sb_next = c->sb_s;
	err = c->sb_run ? c->sb_run(c, t) : 0;
	for (unsigned k = 0; k < c->sb_nfirst && !err; k++)
		err = scrub_first_put(t, &c->sb_next, &c->sb_first[k]);
	for (unsigned k = 0; k < c->sb_nfound && !err; k++)
		err = scrub_found_put(t, &c->sb_next, &c->sb_found[k]);
	return err ? err : scrub_state_put(t, &c->sb_next);
}

void scrub_log(const struct job_scrub *c, const struct job_scrub_found *f)
{
	static const char *const done[] = {[JOB_SCRUB_LEFT] = "",
					   [JOB_SCRUB_REMOVED] = "; removed",
					   [JOB_SCRUB_STALE] = "; now stale"};
	struct ds_reg_server sv;

	if (!f->sf_ds || !ds_reg_get(c->sb_m->m_dsc, f->sf_ds, &sv))
		snprintf(sv.sv_name, sizeof(sv.sv_name), "-");
	log_warn("scrub: %s: inode %lu, stripe %u, copy %u, on %s%s",
		 job_scrub_kind_name(f->sf_kind), (unsigned long)f->sf_ino, f->sf_stripe,
		 f->sf_copy, sv.sv_name, done[f->sf_done]);
	metric_add(m_found[f->sf_kind], 1);
}

static void scrub_over(struct job_scrub *c)
{
	const struct job_scrub_state *s = &c->sb_s;
	uint64_t found = 0;

	for (unsigned k = 1; k < JOB_SCRUB_KINDS; k++)
		found += s->ss_counts[k];
	log_info("scrub %lu %s: %lu objects, %lu files, %lu findings", (unsigned long)s->ss_number,
		 s->ss_stopped ? "was stopped" : "is over", (unsigned long)s->ss_objects,
		 (unsigned long)s->ss_files, (unsigned long)found);
	journal_add(EV_SCRUBBED, s->ss_content ? "scrub" : "fsck", 0,
		    "%s: %lu objects and %lu files checked, %lu findings, %lu objects removed, %lu "
		    "copies to be repaired",
		    s->ss_stopped ? "stopped" : "over", (unsigned long)s->ss_objects,
		    (unsigned long)s->ss_files, (unsigned long)found, (unsigned long)s->ss_removed,
		    (unsigned long)s->ss_stale);
	job_scrub_over(c->sb_m, s, NULL);
}

static void commit_done(struct kv_op *op, int err)
{
	struct job_scrub *c = caa_container_of(op, struct job_scrub, sb_op);

	if (err) {
		log_error("scrub: cannot save progress: %s; stopping", strerror(-err));
		c->sb_s.ss_running = false; /* the next start of the server continues it */
		job_scrub_over(c->sb_m, &c->sb_s, "its progress could not be saved");
		excl_end(&c->sb_freeze, 0);
		pthread_mutex_lock(&c->sb_lock);
		c->sb_view = c->sb_s;
		c->sb_starting = false; /* of a run that did not begin */
		pthread_mutex_unlock(&c->sb_lock);
		return;
	}
	for (unsigned k = 0; k < c->sb_nfound; k++)
		scrub_log(c, &c->sb_found[k]);
	c->sb_nfirst = c->sb_nfound = c->sb_unsaved = 0;
	c->sb_s = c->sb_next;
	scrub_show(c);
	if (c->sb_kick)
		lo_orders_wake(c->sb_m->m_lo);
	c->sb_kick = false;
	c->sb_then(c);
}

void scrub_commit(struct job_scrub *c, int (*run)(struct job_scrub *c, struct kv_txn *t),
		  void (*then)(struct job_scrub *c))
{
	c->sb_run = run;
	c->sb_then = then;
	c->sb_op = (struct kv_op){
		.o_run = scrub_commit_run, .o_done = commit_done, .o_loop = c->sb_loop};
	kv_submit(c->sb_m->m_kv, &c->sb_op);
}

void scrub_find(struct job_scrub *c, const struct job_scrub_found *f)
{
	if (c->sb_nfound < CTL_BATCH_MAX)
		c->sb_found[c->sb_nfound++] = *f;
}

static void scrub_ended(struct job_scrub *c)
{
	scrub_over(c);
}

static void stop(struct job_scrub *c)
{
	c->sb_s.ss_running = c->sb_s.ss_skim = false;
	c->sb_s.ss_stopped = true;
	c->sb_s.ss_ended_s = (uint64_t)file_now().t_sec;
	scrub_commit(c, NULL, scrub_ended);
}

static uint32_t scrub_delay(const struct job_scrub *c)
{
	return atomic_load_explicit(&c->sb_delay_ms, memory_order_relaxed);
}

void job_scrub_set_delay(struct mds *m, uint32_t delay_ms)
{
	atomic_store_explicit(&m->m_scrub->sb_delay_ms, delay_ms, memory_order_relaxed);
}

void scrub_phase(struct job_scrub *c, enum job_scrub_phase next)
{
	if (next == JOB_SCRUB_CONTENT && !c->sb_s.ss_content)
		next = JOB_SCRUB_OVER;
	c->sb_s.ss_phase = next;
	c->sb_tries = 0;
	if (next == JOB_SCRUB_SIGHT)
		c->sb_sight_ms = clock_mono_ms() + scrub_delay(c);
	if (next == JOB_SCRUB_FILES || next == JOB_SCRUB_CONTENT)
		c->sb_s.ss_ino = 1;
	if (next == JOB_SCRUB_OVER) {
		c->sb_s.ss_running = false;
		c->sb_s.ss_ended_s = (uint64_t)file_now().t_sec;
	}
	scrub_commit(c, NULL, next == JOB_SCRUB_OVER ? scrub_ended : scrub_go);
}

/* ---- the lists ---- */

static void list_go(struct job_scrub *c);

static void away(struct job_scrub *c, uint32_t ds)
{
	scrub_find(c, &(struct job_scrub_found){.sf_kind = JOB_SCRUB_AWAY, .sf_ds = ds});
}

static void list_take(struct ds_reg_ctl *ctl, const ctl_response *res)
{
	struct job_scrub *c = caa_container_of(ctl, struct job_scrub, sb_ctl);
	const ctl_list_res *r = &res->result.ctl_result_u.list;

	c->sb_status = res->status;
	if (res->status != CTL_OK)
		return;
	if (r->entries.entries_len > CTL_BATCH_MAX || r->cookie.cookie_len > sizeof(c->sb_cookie)) {
		c->sb_status = CTL_INVAL;
		return;
	}
	c->sb_n = r->entries.entries_len;
	if (c->sb_n)
		memcpy(c->sb_entry, r->entries.entries_val, c->sb_n * sizeof(c->sb_entry[0]));
	c->sb_ncookie = r->cookie.cookie_len;
	if (c->sb_ncookie)
		memcpy(c->sb_cookie, r->cookie.cookie_val, c->sb_ncookie);
}

static void found_object(struct job_scrub *c, enum job_scrub_kind kind, enum job_scrub_done done,
			 uint32_t ds, const ctl_object *o, uint64_t size)
{
	scrub_find(c, &(struct job_scrub_found){
			      .sf_kind = kind,
			      .sf_done = done,
			      .sf_ds = ds,
			      .sf_ino = o->ino,
			      .sf_incarnation = (uint16_t)o->incarnation,
			      .sf_stripe = (uint8_t)o->stripe,
			      .sf_copy = (uint8_t)o->mirror,
			      .sf_size = size,
		      });
}

static const enum job_scrub_kind kind_of[LO_OWNERS] = {[LO_NOBODYS] = JOB_SCRUB_ORPHAN,
						       [LO_BESIDE] = JOB_SCRUB_ORPHAN,
						       [LO_FOREIGN] = JOB_SCRUB_FOREIGN,
						       [LO_NOT_YET] = JOB_SCRUB_NOT_YET,
						       [LO_NEWER] = JOB_SCRUB_FOREIGN};

/* Looks only for objects that show that this store is an old copy. A run that may change something
 * does this before, with all lists. */
static void list_skim(struct job_scrub *c, struct kv_txn *t)
{
	for (unsigned k = 0; k < c->sb_n; k++)
		if (lo_owner_of(c->sb_m->m_lo, t, c->sb_s.ss_ds, &c->sb_entry[k].object,
				c->sb_s.ss_newer) == LO_NOT_YET)
			found_object(c, JOB_SCRUB_NOT_YET, JOB_SCRUB_LEFT, c->sb_s.ss_ds,
				     &c->sb_entry[k].object, c->sb_entry[k].size);
}

static void list_judge(struct job_scrub *c, struct kv_txn *t)
{
	for (unsigned k = 0; k < c->sb_n; k++) {
		const ctl_list_entry *e = &c->sb_entry[k];
		enum lo_owner owner =
			lo_owner_of(c->sb_m->m_lo, t, c->sb_s.ss_ds, &e->object, c->sb_s.ss_newer);

		if (owner == LO_OWNED ||
		    lo_order_deletes(c->sb_m->m_lo, t, c->sb_s.ss_ds, &e->object))
			continue;
		if (owner == LO_NOBODYS || owner == LO_BESIDE) {
			c->sb_first[c->sb_nfirst++] =
				(struct scrub_first){c->sb_s.ss_ds, e->object, e->size};
		} else if (owner != LO_NOT_YET || c->sb_s.ss_dry || !c->sb_s.ss_old) {
			found_object(c, kind_of[owner], JOB_SCRUB_LEFT, c->sb_s.ss_ds, &e->object,
				     e->size);
		}
	}
	c->sb_s.ss_objects += c->sb_n;
}

static void list_next_server(struct job_scrub *c)
{
	c->sb_s.ss_ds++;
	c->sb_s.ss_ncookie = 0;
	c->sb_tries = 0;
}

static void scrub_list_done(struct ds_reg_ctl *ctl, int err)
{
	struct job_scrub *c = caa_container_of(ctl, struct job_scrub, sb_ctl);
	struct kv_txn *t;

	if (err || c->sb_status != CTL_OK) {
		if (++c->sb_tries < SCRUB_TRIES) {
			scrub_later(c, AGAIN_MS, list_go);
			return;
		}
		if (!c->sb_s.ss_skim)
			away(c, c->sb_s.ss_ds);
		list_next_server(c);
		scrub_commit(c, NULL, scrub_go);
		return;
	}
	if (kv_read_begin(c->sb_m->m_kv, &t)) {
		scrub_later(c, AGAIN_MS, list_go);
		return;
	}
	(c->sb_s.ss_skim ? list_skim : list_judge)(c, t);
	kv_read_end(t);
	c->sb_tries = 0;
	if (!c->sb_ncookie) {
		list_next_server(c);
	} else {
		c->sb_s.ss_ncookie = (uint8_t)c->sb_ncookie;
		memcpy(c->sb_s.ss_cookie, c->sb_cookie, c->sb_ncookie);
	}
	if (c->sb_nfirst || c->sb_nfound || ++c->sb_unsaved == SAVE_EVERY) {
		scrub_commit(c, NULL, scrub_go);
	} else {
		scrub_show(c);
		scrub_later(c, 0, scrub_go);
	}
}

/* The first server from ss_ds on, or 0. A plain NFSv3 data server (docs/generic.md) has no list. */
static uint32_t list_server(struct job_scrub *c)
{
	struct ds_reg_server sv;

	for (uint32_t ds = c->sb_s.ss_ds ? c->sb_s.ss_ds : 1; ds <= DS_REG_MAX; ds++)
		if (ds_reg_get(c->sb_m->m_dsc, ds, &sv) && !sv.sv_nfs3)
			return ds;
	return 0;
}

static void list_go(struct job_scrub *c)
{
	uint32_t ds = list_server(c);
	ctl_list_args *a = &c->sb_ctl.dc_req.ctl_request_u.list;

	if (!ds && c->sb_s.ss_skim) {
		c->sb_s.ss_skim = false;
		c->sb_s.ss_ds = 1;
		c->sb_s.ss_ncookie = 0;
		ds = list_server(c);
	}
	if (c->sb_s.ss_firsts >= SCRUB_FIRSTS || (!ds && c->sb_s.ss_firsts)) {
		scrub_phase(c, JOB_SCRUB_SIGHT);
		return;
	}
	if (!ds) {
		scrub_phase(c, JOB_SCRUB_FILES);
		return;
	}
	if (ds != c->sb_s.ss_ds) {
		c->sb_s.ss_ds = ds;
		c->sb_s.ss_ncookie = 0;
	}
	c->sb_ctl.dc_req.op = CTL_OP_LIST;
	a->cookie.cookie_val = (char *)c->sb_s.ss_cookie;
	a->cookie.cookie_len = c->sb_s.ss_ncookie;
	a->max = CTL_BATCH_MAX;
	c->sb_ctl.dc_take = list_take;
	c->sb_ctl.dc_done = scrub_list_done;
	ds_reg_call(c->sb_m->m_dsc, ds, &c->sb_ctl, ASK_MS);
}

/* ---- the second look ---- */

static void sight_go(struct job_scrub *c);

static void sight_take(struct ds_reg_ctl *ctl, const ctl_response *res)
{
	struct job_scrub *c = caa_container_of(ctl, struct job_scrub, sb_ctl);
	const ctl_stat_res *r = &res->result.ctl_result_u.stat;

	c->sb_status = res->status;
	if (res->status == CTL_OK && r->stats.stats_len == c->sb_n)
		memcpy(c->sb_stat, r->stats.stats_val, c->sb_n * sizeof(c->sb_stat[0]));
	else if (res->status == CTL_OK)
		c->sb_status = CTL_INVAL;
}

/* Whether a copy in sync of the object's stripe is on its server. */
static bool copy_is_there(const struct job_scrub *c, unsigned k)
{
	const struct lo_stat *ls = &c->sb_file[c->sb_slot[k] % SCRUB_FILES].f_stat;
	int obj;

	if (c->sb_slot[k] == SCRUB_FILES ||
	    c->sb_first[k].fi_object.stripe >= ls->ls_map.lm_stripes)
		return false;
	for (unsigned r = 0; (obj = lo_copy(&ls->ls_map, c->sb_first[k].fi_object.stripe, r)) >= 0;
	     r++)
		if (ls->ls_exists >> obj & 1)
			return true;
	return false;
}

/* The server still has the object: finds whose it is now, and orders its deletion if it is
 * garbage. */
static int sight_object(struct job_scrub *c, struct kv_txn *t, unsigned k)
{
	const struct scrub_first *f = &c->sb_first[k];
	const ctl_object *o = &f->fi_object;
	enum lo_owner owner = lo_owner_of(c->sb_m->m_lo, t, f->fi_ds, o, c->sb_next.ss_newer);
	bool needed = owner == LO_BESIDE && !copy_is_there(c, k);
	bool remove = (owner == LO_NOBODYS || owner == LO_BESIDE) && !needed &&
		      !c->sb_next.ss_dry && !c->sb_next.ss_old;

	if (owner == LO_OWNED || lo_order_deletes(c->sb_m->m_lo, t, f->fi_ds, o))
		return 0;
	found_object(c, needed ? JOB_SCRUB_NEEDED : kind_of[owner],
		     remove ? JOB_SCRUB_REMOVED : JOB_SCRUB_LEFT, f->fi_ds, o, f->fi_size);
	return remove ? lo_order_delete(c->sb_m->m_lo, t, f->fi_ds, o) : 0;
}

/* c_first has the objects that were asked about: they are done with. */
static int sight_run(struct job_scrub *c, struct kv_txn *t)
{
	int err = 0;

	c->sb_nfound = c->sb_nfirst = 0;
	for (unsigned k = 0; k < c->sb_n && !err; k++) {
		const ctl_stat *st = &c->sb_stat[k];

		if (st->status == CTL_OK || st->status == CTL_REBUILDING || st->status == CTL_LOST)
			err = sight_object(c, t, k);
		else if (st->status != CTL_NOENT)
			found_object(c, JOB_SCRUB_UNREADABLE, JOB_SCRUB_LEFT, c->sb_first[k].fi_ds,
				     &c->sb_first[k].fi_object, c->sb_first[k].fi_size);
		if (!err)
			err = scrub_first_del(t, &c->sb_next, &c->sb_first[k]);
	}
	return err;
}

/* The server does not answer any more: drops its objects, which the next run finds again. */
static int sight_drop(struct job_scrub *c, struct kv_txn *t)
{
	int err = 0;

	c->sb_nfound = c->sb_nfirst = 0;
	for (unsigned k = 0; k < c->sb_n && !err; k++)
		err = scrub_first_del(t, &c->sb_next, &c->sb_first[k]);
	away(c, c->sb_first[0].fi_ds);
	return err;
}

static void sight_judge(struct job_scrub *c)
{
	c->sb_kick = true;
	scrub_commit(c, sight_run, scrub_go);
}

static void beside_done(struct lo_stat *ls, int err)
{
	struct job_scrub *c = caa_container_of(ls, struct scrub_file, f_stat)->f_scrub;

	(void)err; /* an object without an answer counts as missing */
	if (!--c->sb_asked)
		sight_judge(c);
}

/* For found objects that belong to no mirror of their file: asks whether the file's own objects
 * exist, before any is deleted. At most SCRUB_FILES files at a time; the rest of the batch comes
 * later. */
static void sight_beside(struct job_scrub *c, struct kv_txn *t)
{
	c->sb_nfile = 0;
	for (unsigned k = 0; k < c->sb_n; k++) {
		struct scrub_file *f = &c->sb_file[c->sb_nfile % SCRUB_FILES];
		const ctl_object *o = &c->sb_first[k].fi_object;
		struct ns_inode i;

		c->sb_slot[k] = SCRUB_FILES;
		if (lo_owner_of(c->sb_m->m_lo, t, c->sb_first[k].fi_ds, o, c->sb_s.ss_newer) !=
			    LO_BESIDE ||
		    ns_get(c->sb_m->m_ns, t, o->ino, &i))
			continue;
		if (c->sb_nfile == SCRUB_FILES) {
			c->sb_n = k;
			break;
		}
		if (!lo_map_decode(i.i_blob, &f->f_stat.ls_map)) {
			scrub_ask(c, f, &i, beside_done);
			c->sb_slot[k] = (uint8_t)c->sb_nfile++;
		}
	}
}

static void sight_done(struct ds_reg_ctl *ctl, int err)
{
	struct job_scrub *c = caa_container_of(ctl, struct job_scrub, sb_ctl);
	struct kv_txn *t;

	if ((err || c->sb_status != CTL_OK) && ++c->sb_tries < SCRUB_TRIES) {
		scrub_later(c, AGAIN_MS, sight_go);
		return;
	}
	c->sb_tries = 0;
	if (err || c->sb_status != CTL_OK) {
		scrub_commit(c, sight_drop, scrub_go);
		return;
	}
	if (kv_read_begin(c->sb_m->m_kv, &t)) {
		scrub_later(c, AGAIN_MS, sight_go);
		return;
	}
	sight_beside(c, t);
	kv_read_end(t);
	c->sb_asked = c->sb_nfile;
	if (!c->sb_nfile)
		sight_judge(c);
	for (unsigned k = 0, n = c->sb_nfile; k < n; k++)
		lo_stat(c->sb_m->m_lo, &c->sb_file[k].f_stat);
}

static void sight_go(struct job_scrub *c)
{
	uint64_t now = clock_mono_ms();
	struct kv_txn *t;
	int n;

	if (now < c->sb_sight_ms) {
		uint64_t left = c->sb_sight_ms - now;

		scrub_later(c, left < AGAIN_MS ? (uint32_t)left + 1 : AGAIN_MS, scrub_go);
		return;
	}
	if (kv_read_begin(c->sb_m->m_kv, &t)) {
		scrub_later(c, AGAIN_MS, sight_go);
		return;
	}
	n = scrub_firsts(t, ns_super(c->sb_m->m_ns)->su_fs, c->sb_first, CTL_BATCH_MAX);
	kv_read_end(t);
	if (n <= 0) {
		c->sb_s.ss_firsts = 0;
		scrub_phase(c, list_server(c) ? JOB_SCRUB_LIST : JOB_SCRUB_FILES);
		return;
	}
	c->sb_n = (unsigned)n;
	for (unsigned k = 0; k < c->sb_n; k++)
		c->sb_object[k] = c->sb_first[k].fi_object;
	c->sb_ctl.dc_req.op = CTL_OP_STAT;
	c->sb_ctl.dc_req.ctl_request_u.stat.objects.objects_len = c->sb_n;
	c->sb_ctl.dc_req.ctl_request_u.stat.objects.objects_val = c->sb_object;
	c->sb_ctl.dc_take = sight_take;
	c->sb_ctl.dc_done = sight_done;
	ds_reg_call(c->sb_m->m_dsc, c->sb_first[0].fi_ds, &c->sb_ctl, ASK_MS);
}

void scrub_go(struct job_scrub *c)
{
	if (scrub_stopped(c)) {
		stop(c);
		return;
	}
	switch (c->sb_s.ss_phase) {
	case JOB_SCRUB_LIST:
		list_go(c);
		break;
	case JOB_SCRUB_SIGHT:
		sight_go(c);
		break;
	case JOB_SCRUB_FILES:
		scrub_files_go(c);
		break;
	case JOB_SCRUB_CONTENT:
		scrub_content_go(c);
		break;
	default:
		break;
	}
}

/* ---- for the administrator ---- */

static int scrub_begin_run(struct job_scrub *c, struct kv_txn *t)
{
	struct job_scrub_ask ask;

	pthread_mutex_lock(&c->sb_lock);
	ask = c->sb_ask;
	pthread_mutex_unlock(&c->sb_lock);
	c->sb_next = (struct job_scrub_state){
		.ss_number = c->sb_s.ss_number + 1,
		.ss_began_s = (uint64_t)file_now().t_sec,
		.ss_running = true,
		.ss_content = ask.sa_content,
		.ss_dry = ask.sa_dry,
		.ss_newer = ask.sa_newer,
		.ss_skim = !ask.sa_dry,
		.ss_ds = 1,
	};
	return scrub_rows_clear(t);
}

static void scrub_begun(struct job_scrub *c)
{
	journal_add(EV_SCRUBBED, c->sb_s.ss_content ? "scrub" : "fsck", 0, "begins%s",
		    c->sb_s.ss_dry ? ", and changes nothing" : "");
	pthread_mutex_lock(&c->sb_lock);
	c->sb_starting = false;
	pthread_mutex_unlock(&c->sb_lock);
	scrub_go(c);
}

static void scrub_begin(struct loop_msg *m)
{
	struct job_scrub *c = caa_container_of(m, struct job_scrub, sb_msg);

	c->sb_nfirst = c->sb_nfound = 0;
	scrub_commit(c, scrub_begin_run, scrub_begun);
}

int job_scrub_begin(struct mds *m, const struct job_scrub_ask *ask)
{
	struct job_scrub *c = m->m_scrub;
	bool busy, same;

	pthread_mutex_lock(&c->sb_lock);
	busy = c->sb_view.ss_running || c->sb_starting;
	same = c->sb_starting ? c->sb_ask.sa_content == ask->sa_content &&
					c->sb_ask.sa_dry == ask->sa_dry &&
					c->sb_ask.sa_newer == ask->sa_newer
			      : c->sb_view.ss_content == ask->sa_content &&
					c->sb_view.ss_dry == ask->sa_dry &&
					c->sb_view.ss_newer == ask->sa_newer;
	if (!busy) {
		c->sb_ask = *ask;
		c->sb_starting = true;
		c->sb_stop = false;
	}
	pthread_mutex_unlock(&c->sb_lock);
	if (!busy)
		loop_post(c->sb_loop, &c->sb_msg);
	return busy && !same ? -EBUSY : 0;
}

void job_scrub_end(struct mds *m)
{
	pthread_mutex_lock(&m->m_scrub->sb_lock);
	m->m_scrub->sb_stop = true;
	pthread_mutex_unlock(&m->m_scrub->sb_lock);
}

bool job_scrub_stopping(struct mds *m)
{
	return scrub_stopped(m->m_scrub);
}

void job_scrub_look(struct mds *m, struct job_scrub_state *out)
{
	struct job_scrub *c = m->m_scrub;

	pthread_mutex_lock(&c->sb_lock);
	*out = c->sb_view;
	if (c->sb_starting) { /* the next run is about to begin */
		*out = (struct job_scrub_state){.ss_number = c->sb_view.ss_number + 1,
						.ss_running = true,
						.ss_content = c->sb_ask.sa_content,
						.ss_dry = c->sb_ask.sa_dry};
		out->ss_began_s = (uint64_t)file_now().t_sec;
	}
	pthread_mutex_unlock(&c->sb_lock);
}

static void resume(struct loop_msg *m)
{
	struct job_scrub *c = caa_container_of(m, struct job_scrub, sb_msg);

	c->sb_msg.m_run = scrub_begin;
	log_info("scrub %lu continues", (unsigned long)c->sb_s.ss_number);
	if (c->sb_s.ss_phase == JOB_SCRUB_SIGHT)
		c->sb_sight_ms = clock_mono_ms() + scrub_delay(c);
	/* Data servers join again first: a server that has not joined yet is not away. */
	scrub_later(c, c->sb_m->m_ds_lease_ms, scrub_go);
}

static double scrub_gauge_running(void *arg)
{
	struct job_scrub_state s;

	job_scrub_look(arg, &s);
	return s.ss_running;
}

int job_scrub_open(struct mds *m, struct loop *loop, uint32_t delay_ms)
{
	struct job_scrub *c = calloc(1, sizeof(*c));
	struct kv_txn *t;
	int err;

	if (!c)
		return -ENOMEM;
	c->sb_m = m;
	c->sb_loop = loop;
	atomic_init(&c->sb_delay_ms, delay_ms);
	c->sb_msg.m_run = scrub_begin;
	pthread_mutex_init(&c->sb_lock, NULL);
	err = kv_read_begin(m->m_kv, &t);
	if (!err) {
		err = scrub_state_get(t, &c->sb_s);
		kv_read_end(t);
	}
	if (err == -EIO)
		log_error("cannot read the state of a scrub: it does not continue");
	c->sb_view = c->sb_s;
	c->sb_continue = c->sb_s.ss_running;
	for (unsigned k = 1; k < JOB_SCRUB_KINDS; k++) {
		char label[40];

		snprintf(label, sizeof(label), "kind=\"%s\"",
			 job_scrub_kind_name((enum job_scrub_kind)k));
		m_found[k] =
			metric_counter("weft_mds_scrub_found_total", "What scrubs found", label);
	}
	metric_gauge("weft_mds_scrub_running", "1 while a scrub is under way", "",
		     scrub_gauge_running, m);
	m->m_scrub = c;
	return 0;
}

void job_scrub_resume(struct mds *m)
{
	/* The admin API may have begun one meanwhile: that runs by itself. */
	if (!m->m_scrub->sb_continue)
		return;
	m->m_scrub->sb_msg.m_run = resume;
	loop_post(m->m_scrub->sb_loop, &m->m_scrub->sb_msg);
}
