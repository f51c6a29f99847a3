/* SPDX-License-Identifier: Apache-2.0 */
/* job_pin.c - pins in the list of jobs (job.h): what makes the copies of a pin, and what takes them
 * away, is a job each. */
#include "mds/jobs/job_int.h"
#include "mds/jobs/pin_int.h"
#include <errno.h>
#include <urcu/compiler.h>

enum { TURN_MAKE, TURN_RELEASE };

static uint64_t job_pin_id_of(uint64_t number, bool release)
{
	return job_id(number, release ? TURN_RELEASE : TURN_MAKE, JOB_OF_PINS);
}

uint64_t job_pin_id(const struct lo_pin *p)
{
	return p->pi_state == LO_PIN_HELD
		       ? 0
		       : job_pin_id_of(p->pi_number, p->pi_state == LO_PIN_RELEASE);
}

/* What repair has done of the files that are being filled now. */
static uint64_t half_done(struct mds *m, const struct lo_pin *row)
{
	struct job_repair_view run[REPAIR_FILES_MAX];
	unsigned n = job_repair_list(m, run, REPAIR_FILES_MAX);
	uint64_t bytes = 0;
	struct kv_txn *t;

	if (!n || kv_read_begin(m->m_kv, &t))
		return 0;
	for (unsigned i = 0; i < n; i++)
		if (run[i].rv_kind == JOB_MIRROR_ADD &&
		    lo_pin_file_is(t, row->pi_number, run[i].rv_progress.wp_ino))
			bytes += run[i].rv_bytes + run[i].rv_progress.wp_done;
	kv_read_end(t);
	return bytes;
}

static void job_of_pin(const struct job_pin_view *v, bool release, struct job *j)
{
	static const char *const phase[LO_PIN_STATES] = {
		[LO_PIN_COUNT] = "count", [LO_PIN_MAKE] = "copy", [LO_PIN_RELEASE] = "remove"};
	const struct lo_pin *row = &v->pv_row;

	job_blank(j, job_pin_id_of(row->pi_number, release), release ? JOB_UNPIN : JOB_PIN);
	j->j_ino = row->pi_ino;
	j->j_begun = (uint64_t)v->pv_begun;
	j->j_phase = phase[row->pi_state];
	j->j_state = *v->pv_waits ? JOB_WAITING : JOB_RUNNING;
	snprintf(j->j_waits, sizeof(j->j_waits), "%s", v->pv_waits);
	j->j_files = row->pi_state == LO_PIN_COUNT ? 0 : v->pv_files;
	if (release) {
		j->j_stays = "the pin is over; pin the path again to make the copies again";
		return;
	}
	if (row->pi_state == LO_PIN_COUNT)
		return;
	j->j_bytes = v->pv_bytes;
	j->j_files_all = row->pi_files;
	j->j_bytes_all = row->pi_bytes;
}

struct finding {
	struct job_name fi_name;
	struct job_pin_view fi_view;
	bool fi_found;
};

static bool has_job(const struct job_pin_view *v)
{
	return v->pv_row.pi_state != LO_PIN_HELD;
}

static int find_one(void *arg, const struct job_pin_view *v)
{
	struct finding *f = arg;

	if (v->pv_row.pi_number != f->fi_name.jn_subject || !has_job(v) ||
	    (v->pv_row.pi_state == LO_PIN_RELEASE) != (f->fi_name.jn_turn == TURN_RELEASE))
		return 0;
	f->fi_view = *v;
	f->fi_found = true;
	return 1;
}

static void job_of_pin_now(struct mds *m, const struct job_pin_view *v, struct job *out)
{
	bool release = v->pv_row.pi_state == LO_PIN_RELEASE;

	job_of_pin(v, release, out);
	if (out->j_bytes != JOB_UNKNOWN) {
		out->j_bytes += half_done(m, &v->pv_row);
		if (out->j_bytes > out->j_bytes_all)
			out->j_bytes = out->j_bytes_all;
	}
	job_pace(out, v->pv_begun, job_now());
}

int job_pin_find(struct mds *m, struct kv_txn *t, struct job_name n, struct job *out)
{
	struct finding f = {.fi_name = n};

	(void)t;
	job_pins_look(m, find_one, &f);
	if (!f.fi_found)
		return -ENOENT;
	job_of_pin_now(m, &f.fi_view, out);
	return 0;
}

struct pin_listing {
	struct mds *pl_m;
	struct job_sink *pl_sink;
};

static int list_one(void *arg, const struct job_pin_view *v)
{
	struct pin_listing *pl = arg;
	struct job j;

	if (!has_job(v))
		return 0;
	job_of_pin_now(pl->pl_m, v, &j);
	return !job_put(pl->pl_sink, &j);
}

int job_pin_list(struct mds *m, struct kv_txn *t, struct job_sink *s)
{
	struct pin_listing pl = {m, s};

	(void)t;
	job_pins_look(m, list_one, &pl);
	return 0;
}

void job_pin_over(struct mds *m, const struct job_pin_view *v, enum job_state state)
{
	bool release = v->pv_row.pi_state == LO_PIN_RELEASE;
	struct job j;

	job_of_pin(v, release, &j);
	if (state != JOB_DONE)
		snprintf(j.j_error, sizeof(j.j_error), "%s", v->pv_waits);
	else if (release)
		snprintf(j.j_result, sizeof(j.j_result), "%lu copies are gone",
			 (unsigned long)v->pv_files);
	else
		snprintf(j.j_result, sizeof(j.j_result),
			 "%lu copies are made; %lu files needed none; %lu got none%s%s",
			 (unsigned long)v->pv_files, (unsigned long)v->pv_there,
			 (unsigned long)v->pv_passed, v->pv_passed ? ": " : "", v->pv_passed_why);
	job_over(m, &j, state);
}

/* ---- cancel ---- */

int job_pin_release(struct kv_txn *t, uint64_t number)
{
	struct lo_pin row;
	int err = lo_pin_get(t, number, &row);

	if (err)
		return err;
	row.pi_state = LO_PIN_RELEASE;
	return lo_pin_put(t, &row);
}

static int cancel_run(struct kv_op *op, struct kv_txn *t)
{
	struct job_cancel *jc = caa_container_of(op, struct job_cancel, jc_op);
	struct lo_pin row;
	int err = lo_pin_get(t, job_name(jc->jc_job.j_id).jn_subject, &row);

	if (!err && row.pi_state == LO_PIN_HELD) {
		snprintf(jc->jc_why, sizeof(jc->jc_why), "it is done: weft unpin ends the pin");
		return -EBUSY;
	}
	return err ? err : job_pin_release(t, row.pi_number);
}

static void job_pin_cancel_done(struct kv_op *op, int err)
{
	struct job_cancel *jc = caa_container_of(op, struct job_cancel, jc_op);

	if (!err) {
		job_over(jc->jc_m, &jc->jc_job, JOB_CANCELLED);
		job_pin_reload(jc->jc_m, job_name(jc->jc_job.j_id).jn_subject);
	}
	jc->jc_done(jc, err);
}

int job_pin_cancel(struct job_cancel *jc)
{
	jc->jc_op = (struct kv_op){.o_run = cancel_run, .o_done = job_pin_cancel_done};
	kv_submit(jc->jc_m->m_kv, &jc->jc_op);
	return 0;
}
