/* SPDX-License-Identifier: Apache-2.0 */
/* job.c - the list of jobs: its table, their numbers, and the jobs that are over. See job.h. */
#include "mds/file/file.h"
#include "mds/jobs/job_int.h"
#include <errno.h>

struct job_frame {
	pthread_mutex_t jf_lock;      /* protects all of it: any thread */
	struct job jf_over[JOB_KEPT]; /* a ring; j_id 0: nothing there */
	unsigned jf_next;	      /* where the next one goes */
};

/* ---- the table ---- */

/* A kind of job. Kinds whose jobs are in the same table have the same functions, and follow each
 * other. */
struct job_row {
	const char *jk_name;
	enum job_source jk_source;
	bool jk_resumes; /* a restart of the server does not end it */
	/* Puts those that run or wait, until the sink is full. t: a snapshot. 0 or -errno. */
	int (*jk_list)(struct mds *m, struct kv_txn *t, struct job_sink *s);
	/* 0; -ENOENT: it neither runs nor waits. */
	int (*jk_find)(struct mds *m, struct kv_txn *t, struct job_name n, struct job *out);
	/* Begins to cancel jc_job. 0: it calls jc_done. Else an error, with a line in jc_why for
	 * -EBUSY. NULL: j_stays says why not. */
	int (*jk_cancel)(struct job_cancel *jc);
};
/* clang-format off */
static const struct job_row rows[JOB_KINDS] = {
	[JOB_REPAIR] = {"repair", JOB_OF_REPAIRS, true,
		job_file_list, job_file_find, job_file_cancel},
	[JOB_MOVE] = {"move", JOB_OF_REPAIRS, true,
		job_file_list, job_file_find, job_file_cancel},
	[JOB_MIRROR_ADD] = {"mirror-add", JOB_OF_REPAIRS, true,
		job_file_list, job_file_find, job_file_cancel},
	[JOB_MIRROR_REMOVE] = {"mirror-remove", JOB_OF_REPAIRS, true,
		job_file_list, job_file_find, job_file_cancel},
	[JOB_RESTRIPE] = {"restripe", JOB_OF_RESTRIPES, true,
		job_restripe_list, job_restripe_find, job_restripe_cancel},
	[JOB_DRAIN] = {"drain", JOB_OF_DRAINS, true,
		job_drain_list, job_drain_find, job_drain_cancel},
	[JOB_BALANCE] = {"balance", JOB_OF_BALANCE, false,
		job_balance_list, job_balance_find, job_balance_cancel},
	[JOB_VERIFY] = {"verify", JOB_OF_VERIFY, false,
		job_verify_list, job_verify_find, job_verify_cancel},
	[JOB_SCRUB] = {"scrub", JOB_OF_SCRUB, true,
		job_scrub_list, job_scrub_find, job_scrub_cancel},
	[JOB_CHOOSE] = {"choose", JOB_OF_CHOOSE, false,
		job_choose_list, job_choose_find, NULL},
	[JOB_REVOKE] = {"revoke", JOB_OF_REVOKE, true,
		job_revoke_list, job_revoke_find, NULL},
	[JOB_PIN] = {"pin", JOB_OF_PINS, true,
		job_pin_list, job_pin_find, job_pin_cancel},
	[JOB_UNPIN] = {"unpin", JOB_OF_PINS, true,
		job_pin_list, job_pin_find, NULL},
	[JOB_TRASH_EXPIRE] = {"trash-expire", JOB_OF_TRASH, true,
		job_trash_list, job_trash_find, NULL},
	[JOB_TRASH_EMPTY] = {"trash-empty", JOB_OF_TRASH, true,
		job_trash_list, job_trash_find, job_trash_stop},
	[JOB_TRASH_RESTORE] = {"trash-restore", JOB_OF_TRASH, true,
		job_trash_list, job_trash_find, job_trash_stop},
};
/* clang-format on */

const char *job_kind_name(enum job_kind kind)
{
	return rows[kind].jk_name;
}

int job_kind_of(const char *name)
{
	for (int k = 0; k < JOB_KINDS; k++)
		if (!strcmp(rows[k].jk_name, name))
			return k;
	return -1;
}

bool job_resumes(enum job_kind kind)
{
	return rows[kind].jk_resumes;
}

const char *job_state_name(enum job_state state)
{
	static const char *const name[JOB_STATES] = {
		[JOB_WAITING] = "waiting",	 [JOB_RUNNING] = "running",
		[JOB_CANCELLING] = "cancelling", [JOB_DONE] = "done",
		[JOB_FAILED] = "failed",	 [JOB_CANCELLED] = "cancelled"};

	return name[state];
}

static const struct job_row *job_row_of(enum job_source source)
{
	for (unsigned k = 0; k < JOB_KINDS; k++)
		if (rows[k].jk_source == source)
			return &rows[k];
	return NULL;
}

/* ---- numbers ---- */

uint64_t job_drain_id(uint32_t ds)
{
	return job_id(ds, 0, JOB_OF_DRAINS);
}

uint64_t job_scrub_id(uint64_t number)
{
	return job_id(number, 0, JOB_OF_SCRUB);
}

/* A run is counted in memory, so the boot tells it from those before a restart. A restored store
 * goes on with a boot number whose lower half is zero. */
uint64_t job_run_id(struct mds *m, enum job_kind kind, uint64_t number)
{
	uint64_t boot = ns_super(m->m_ns)->su_boot;

	return job_id(number, (uint8_t)(boot ^ boot >> 16), rows[kind].jk_source);
}

/* ---- what is the same for all ---- */

double job_now(void)
{
	struct ns_time now = file_now();

	return (double)now.t_sec + now.t_nsec * 1e-9;
}

void job_blank(struct job *j, uint64_t id, enum job_kind kind)
{
	*j = (struct job){.j_id = id,
			  .j_kind = kind,
			  .j_bytes = JOB_UNKNOWN,
			  .j_bytes_all = JOB_UNKNOWN,
			  .j_objects = JOB_UNKNOWN,
			  .j_objects_all = JOB_UNKNOWN,
			  .j_files = JOB_UNKNOWN,
			  .j_files_all = JOB_UNKNOWN,
			  .j_rate = JOB_UNKNOWN,
			  .j_eta = JOB_UNKNOWN};
}

/* The seconds that are left, if all goes on as fast as it did. */
static uint64_t job_left(uint64_t done, uint64_t all, double seconds)
{
	if (done == JOB_UNKNOWN || all == JOB_UNKNOWN || !done)
		return JOB_UNKNOWN;
	return done < all ? (uint64_t)((double)(all - done) * seconds / (double)done + 0.5) : 0;
}

void job_pace(struct job *j, double begun, double now)
{
	if (begun <= 0 || now <= begun)
		return;
	if (j->j_bytes != JOB_UNKNOWN)
		j->j_rate = (uint64_t)((double)j->j_bytes / (now - begun));
	j->j_eta = job_left(j->j_bytes, j->j_bytes_all, now - begun);
	if (j->j_eta == JOB_UNKNOWN)
		j->j_eta = job_left(j->j_objects, j->j_objects_all, now - begun);
}

/* ---- jobs that run or wait ---- */

bool job_put(struct job_sink *s, const struct job *j)
{
	if (s->js_filter.jf_kind >= 0 && (int)j->j_kind != s->js_filter.jf_kind)
		return true;
	if (s->js_filter.jf_ino && j->j_ino != s->js_filter.jf_ino)
		return true;
	if (s->js_n >= s->js_filter.jf_max) {
		s->js_more = true;
		return false;
	}
	s->js_n++;
	s->js_fn(s->js_arg, j);
	return true;
}

int job_list(struct mds *m, const struct job_filter *f, void (*fn)(void *arg, const struct job *j),
	     void *arg, bool *more)
{
	struct job_sink s = {.js_filter = *f, .js_fn = fn, .js_arg = arg};
	struct kv_txn *t;
	int err = kv_read_begin(m->m_kv, &t);

	if (err)
		return err;
	for (unsigned k = 0; k < JOB_KINDS && !err && !s.js_more; k++) {
		if (k && rows[k].jk_list == rows[k - 1].jk_list)
			continue;
		if (f->jf_kind < 0 || rows[f->jf_kind].jk_list == rows[k].jk_list)
			err = rows[k].jk_list(m, t, &s);
	}
	kv_read_end(t);
	*more = s.js_more;
	return err;
}

/* ---- jobs that are over ---- */

static int over_at(const struct job_frame *jf, uint64_t id)
{
	for (unsigned i = 0; i < JOB_KEPT; i++)
		if (jf->jf_over[i].j_id == id)
			return (int)i;
	return -1;
}

/* locked */
static void over_forget(struct job_frame *jf, uint64_t id)
{
	int was = over_at(jf, id);

	if (was >= 0)
		jf->jf_over[was].j_id = 0;
}

void job_again(struct mds *m, uint64_t id)
{
	pthread_mutex_lock(&m->m_jobs->jf_lock);
	over_forget(m->m_jobs, id);
	pthread_mutex_unlock(&m->m_jobs->jf_lock);
}

void job_over(struct mds *m, struct job *j, enum job_state state)
{
	struct job_frame *jf = m->m_jobs;

	j->j_state = state;
	j->j_ended = (uint64_t)file_now().t_sec;
	j->j_eta = JOB_UNKNOWN;
	*j->j_waits = 0;
	pthread_mutex_lock(&jf->jf_lock);
	over_forget(jf, j->j_id);
	jf->jf_over[jf->jf_next] = *j;
	jf->jf_next = (jf->jf_next + 1) % JOB_KEPT;
	pthread_mutex_unlock(&jf->jf_lock);
}

static void job_listed(void *arg, const struct job *j)
{
	struct job **at = arg;

	*(*at)++ = *j;
}

unsigned job_ended_list(struct mds *m, const struct job_filter *f, struct job *out, unsigned max)
{
	struct job_frame *jf = m->m_jobs;
	struct job *at = out;
	struct job_sink s = {.js_filter = *f, .js_fn = job_listed, .js_arg = &at};

	s.js_filter.jf_max = max;
	pthread_mutex_lock(&jf->jf_lock);
	for (unsigned i = 1; i <= JOB_KEPT; i++) {
		const struct job *j = &jf->jf_over[(jf->jf_next + JOB_KEPT - i) % JOB_KEPT];

		if (j->j_id && !job_put(&s, j))
			break;
	}
	pthread_mutex_unlock(&jf->jf_lock);
	return s.js_n;
}

int job_find(struct mds *m, uint64_t id, struct job *out)
{
	const struct job_row *row = job_row_of(job_name(id).jn_source);
	struct job_frame *jf = m->m_jobs;
	struct kv_txn *t;
	int err = row ? kv_read_begin(m->m_kv, &t) : -ENOENT, at;

	if (err)
		return err;
	err = row->jk_find(m, t, job_name(id), out);
	kv_read_end(t);
	if (err != -ENOENT && (err || !job_is_over(out)))
		return err;
	/* Engines note a job as over before it stops being found, and say there if it failed. */
	pthread_mutex_lock(&jf->jf_lock);
	at = over_at(jf, id);
	if (at >= 0)
		*out = jf->jf_over[at];
	pthread_mutex_unlock(&jf->jf_lock);
	return at >= 0 ? 0 : err;
}

/* ---- cancel ---- */

void job_cancel(struct job_cancel *jc, struct mds *m, uint64_t id,
		void (*done)(struct job_cancel *jc, int err))
{
	int err;

	*jc = (struct job_cancel){.jc_m = m, .jc_done = done};
	err = job_find(m, id, &jc->jc_job);
	if (!err && job_is_over(&jc->jc_job)) {
		snprintf(jc->jc_why, sizeof(jc->jc_why), "it is over: %s",
			 job_state_name(jc->jc_job.j_state));
		err = -EBUSY;
	} else if (!err && jc->jc_job.j_stays) {
		snprintf(jc->jc_why, sizeof(jc->jc_why), "%s", jc->jc_job.j_stays);
		err = -EBUSY;
	}
	if (!err)
		err = rows[jc->jc_job.j_kind].jk_cancel(jc);
	if (err)
		done(jc, err);
}

void job_was_cancelled(struct mds *m, struct job *j)
{
	job_over(m, j, JOB_CANCELLED);
}

int job_open(struct mds *m)
{
	m->m_jobs = calloc(1, sizeof(*m->m_jobs));
	if (!m->m_jobs)
		return -ENOMEM;
	pthread_mutex_init(&m->m_jobs->jf_lock, NULL);
	return 0;
}
