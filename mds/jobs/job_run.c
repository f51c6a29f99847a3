/* SPDX-License-Identifier: Apache-2.0 */
/* job_run.c - jobs of which there is one run at a time, and drains, for the list of jobs
 * (job.h). */
#include "mds/file/file.h"
#include "mds/jobs/job_int.h"
#include "mds/journal/event_journal.h"
#include <errno.h>
#include <urcu/compiler.h>

/* A cancel that only sets a flag is done at once. */
static int job_run_cancel_done(struct job_cancel *jc)
{
	jc->jc_done(jc, 0);
	return 0;
}

/* Puts the run that find finds, if there is one. */
static int job_run_put_one(struct mds *m, struct kv_txn *t, struct job_sink *s, uint64_t id,
			   int (*find)(struct mds *m, struct kv_txn *t, struct job_name n,
				       struct job *out))
{
	struct job j;

	if (id && !find(m, t, job_name(id), &j) && !job_is_over(&j))
		job_put(s, &j);
	return 0;
}

static bool run_is(struct mds *m, enum job_kind kind, uint64_t number, struct job_name n)
{
	return job_run_id(m, kind, number) == job_id(n.jn_subject, n.jn_turn, n.jn_source);
}

/* ---- drain ---- */

static void job_of_drain(struct mds *m, uint32_t ds, const struct job_drain_view *v, struct job *j)
{
	uint64_t for_ms = 0;
	uint64_t failing = lo_orders_failing(m->m_lo, ds, &for_ms);

	job_blank(j, job_drain_id(ds), JOB_DRAIN);
	j->j_ds = ds;
	j->j_state = JOB_RUNNING;
	j->j_begun = (uint64_t)v->dv_begun;
	if (!v->dv_known) {
		snprintf(j->j_waits, sizeof(j->j_waits), "its objects are being counted");
		return;
	}
	j->j_objects = v->dv_most - v->dv_left;
	j->j_objects_all = v->dv_most;
	job_pace(j, v->dv_counted, job_now());
	if (for_ms > op_confirm_ms(m)) {
		j->j_state = JOB_WAITING;
		snprintf(j->j_waits, sizeof(j->j_waits),
			 "the data server fails %lu orders to fence, truncate or delete objects",
			 (unsigned long)failing);
	} else if (!job_repair_opts(m).ro_files) {
		j->j_state = JOB_WAITING;
		snprintf(j->j_waits, sizeof(j->j_waits), "moving is off: mds.repair_files is 0");
	}
}

int job_drain_list(struct mds *m, struct kv_txn *t, struct job_sink *s)
{
	uint32_t ds[DS_REG_MAX];
	unsigned n = ds_reg_drains(m->m_dsc, ds, DS_REG_MAX);

	for (unsigned i = 0; i < n && !s->js_more; i++)
		job_run_put_one(m, t, s, job_drain_id(ds[i]), job_drain_find);
	return 0;
}

/* A server that is empty is drained, whether it stays in that state or not. */
int job_drain_find(struct mds *m, struct kv_txn *t, struct job_name n, struct job *out)
{
	struct job_drain_view v;

	(void)t;
	if (n.jn_turn || n.jn_subject > DS_REG_MAX ||
	    !job_drain_look(m, (uint32_t)n.jn_subject, &v) || v.dv_empty)
		return -ENOENT;
	job_of_drain(m, (uint32_t)n.jn_subject, &v, out);
	return 0;
}

void job_drain_over(struct mds *m, uint32_t ds, const struct job_drain_view *v)
{
	struct job j;

	job_of_drain(m, ds, v, &j);
	snprintf(j.j_result, sizeof(j.j_result), "the data server holds no objects any more");
	job_over(m, &j, JOB_DONE);
}

static void drain_cancelled(struct ds_reg_command *w, int err)
{
	struct job_cancel *jc = caa_container_of(w, struct job_cancel, jc_word);
	struct ds_reg_server sv;

	if (!err && ds_reg_get(jc->jc_m->m_dsc, w->dw_id, &sv))
		journal_add(EV_DS_CHANGED, sv.sv_name, 0, "no longer draining");
	if (!err)
		job_over(jc->jc_m, &jc->jc_job, JOB_CANCELLED);
	jc->jc_done(jc, err);
}

int job_drain_cancel(struct job_cancel *jc)
{
	jc->jc_word = (struct ds_reg_command){
		.dw_id = jc->jc_job.j_ds, .dw_has_drain = true, .dw_done = drain_cancelled};
	ds_reg_command_start(jc->jc_m->m_dsc, &jc->jc_word);
	return 0;
}

/* ---- balance ---- */

static void job_of_balance(struct mds *m, const struct job_balance_view *v, struct job *j)
{
	job_blank(j, job_run_id(m, JOB_BALANCE, v->bv_number), JOB_BALANCE);
	j->j_state = v->bv_stopping ? JOB_CANCELLING : JOB_RUNNING;
	j->j_phase = v->bv_phase == OP_BALANCE_COUNTS ? "counts" : "moves";
	j->j_begun = (uint64_t)v->bv_begun;
	/* What is chosen so far; a later pass may choose more. */
	j->j_files = v->bv_done_files;
	j->j_files_all = v->bv_files;
	j->j_bytes = v->bv_done_bytes;
	j->j_bytes_all = v->bv_bytes;
	job_pace(j, v->bv_begun, job_now());
}

int job_balance_find(struct mds *m, struct kv_txn *t, struct job_name n, struct job *out)
{
	struct job_balance_view *v = job_balance_look(m);
	bool found;

	(void)t;
	if (!v)
		return -ENOMEM;
	found = v->bv_number && v->bv_phase != OP_BALANCE_OVER &&
		run_is(m, JOB_BALANCE, v->bv_number, n);
	if (found)
		job_of_balance(m, v, out);
	free(v->bv_move);
	free(v);
	return found ? 0 : -ENOENT;
}

int job_balance_list(struct mds *m, struct kv_txn *t, struct job_sink *s)
{
	struct job_balance_view *v = job_balance_look(m);
	uint64_t number = v ? v->bv_number : 0;

	if (!v)
		return -ENOMEM;
	free(v->bv_move);
	free(v);
	return job_run_put_one(m, t, s, number ? job_run_id(m, JOB_BALANCE, number) : 0,
			       job_balance_find);
}

void job_balance_over(struct mds *m, const struct job_balance_view *v)
{
	struct job j;

	job_of_balance(m, v, &j);
	snprintf(v->bv_end == OP_BALANCE_OFF ? j.j_error : j.j_result, sizeof(j.j_result), "%s",
		 job_balance_end_text(v->bv_end));
	job_over(m, &j,
		 v->bv_end == OP_BALANCE_OFF	   ? JOB_FAILED
		 : v->bv_end == OP_BALANCE_STOPPED ? JOB_CANCELLED
						   : JOB_DONE);
}

int job_balance_cancel(struct job_cancel *jc)
{
	job_balance_stop(jc->jc_m);
	return job_run_cancel_done(jc);
}

/* ---- verify ---- */

static void job_of_verify(struct mds *m, const struct job_verify_view *v, struct job *j)
{
	job_blank(j, job_run_id(m, JOB_VERIFY, v->vv_number), JOB_VERIFY);
	j->j_state = v->vv_stopping ? JOB_CANCELLING : JOB_RUNNING;
	j->j_ino = v->vv_ask.va_ino;
	j->j_begun = (uint64_t)v->vv_begun;
	j->j_files = v->vv_files + v->vv_single + v->vv_skipped;
	j->j_bytes = v->vv_bytes;
	job_pace(j, v->vv_begun, job_now());
}

static void verify_view(struct mds *m, struct job_verify_view *v)
{
	job_verify_look(m, v);
	free(v->vv_diff);
}

int job_verify_find(struct mds *m, struct kv_txn *t, struct job_name n, struct job *out)
{
	struct job_verify_view v;

	(void)t;
	verify_view(m, &v);
	if (!v.vv_running || !run_is(m, JOB_VERIFY, v.vv_number, n))
		return -ENOENT;
	job_of_verify(m, &v, out);
	return 0;
}

int job_verify_list(struct mds *m, struct kv_txn *t, struct job_sink *s)
{
	struct job_verify_view v;

	verify_view(m, &v);
	return job_run_put_one(m, t, s, v.vv_number ? job_run_id(m, JOB_VERIFY, v.vv_number) : 0,
			       job_verify_find);
}

void job_verify_over(struct mds *m, const struct job_verify_view *v, bool stopped)
{
	struct job j;

	job_of_verify(m, v, &j);
	snprintf(j.j_result, sizeof(j.j_result),
		 "%lu files compared: %lu ranges differ; %lu files could not be compared",
		 (unsigned long)v->vv_files, (unsigned long)v->vv_diffs,
		 (unsigned long)v->vv_skipped);
	job_over(m, &j, stopped ? JOB_CANCELLED : JOB_DONE);
}

int job_verify_cancel(struct job_cancel *jc)
{
	job_verify_end(jc->jc_m);
	return job_run_cancel_done(jc);
}

/* ---- scrub ---- */

static void job_of_scrub(const struct job_scrub_state *s, struct job *j)
{
	static const char *const phase[] = {[JOB_SCRUB_LIST] = "list",
					    [JOB_SCRUB_SIGHT] = "second-look",
					    [JOB_SCRUB_FILES] = "files",
					    [JOB_SCRUB_CONTENT] = "content",
					    [JOB_SCRUB_OVER] = "over"};
	uint64_t found = 0;

	job_blank(j, job_scrub_id(s->ss_number), JOB_SCRUB);
	j->j_state = s->ss_running ? JOB_RUNNING : s->ss_stopped ? JOB_CANCELLED : JOB_DONE;
	j->j_phase = phase[s->ss_phase];
	j->j_begun = s->ss_began_s;
	j->j_ended = s->ss_ended_s;
	j->j_objects = s->ss_objects;
	j->j_files = s->ss_files;
	j->j_bytes = s->ss_bytes;
	for (unsigned k = 1; k < JOB_SCRUB_KINDS; k++)
		found += s->ss_counts[k];
	if (!s->ss_running)
		snprintf(j->j_result, sizeof(j->j_result),
			 "%lu findings, %lu objects removed, %lu copies to be repaired",
			 (unsigned long)found, (unsigned long)s->ss_removed,
			 (unsigned long)s->ss_stale);
}

/* The store has the last run, so its outcome is known also after a restart. */
int job_scrub_find(struct mds *m, struct kv_txn *t, struct job_name n, struct job *out)
{
	struct job_scrub_state s;

	(void)t;
	job_scrub_look(m, &s);
	if (!s.ss_number || n.jn_turn || s.ss_number != n.jn_subject)
		return -ENOENT;
	job_of_scrub(&s, out);
	if (s.ss_running) {
		if (job_scrub_stopping(m))
			out->j_state = JOB_CANCELLING;
		job_pace(out, (double)s.ss_began_s, job_now());
	}
	return 0;
}

int job_scrub_list(struct mds *m, struct kv_txn *t, struct job_sink *s)
{
	struct job_scrub_state st;

	job_scrub_look(m, &st);
	return job_run_put_one(m, t, s, st.ss_number ? job_scrub_id(st.ss_number) : 0,
			       job_scrub_find);
}

void job_scrub_over(struct mds *m, const struct job_scrub_state *s, const char *error)
{
	struct job j;

	job_of_scrub(s, &j);
	if (error)
		snprintf(j.j_error, sizeof(j.j_error), "%s", error);
	job_over(m, &j, error ? JOB_FAILED : j.j_state);
}

int job_scrub_cancel(struct job_cancel *jc)
{
	job_scrub_end(jc->jc_m);
	return job_run_cancel_done(jc);
}

/* ---- choose ---- */

static void job_of_choose(struct mds *m, const struct job_elect_view *v, struct job *j)
{
	job_blank(j, job_run_id(m, JOB_CHOOSE, v->elv_number), JOB_CHOOSE);
	j->j_state = JOB_RUNNING;
	j->j_ino = v->elv_ask.ca_ino;
	j->j_begun = (uint64_t)v->elv_begun;
	j->j_stays = "the copies of one file are being looked at; it ends soon";
}

int job_choose_find(struct mds *m, struct kv_txn *t, struct job_name n, struct job *out)
{
	struct job_elect_view v;

	(void)t;
	job_elect_look(m, &v);
	if (!v.elv_running || !run_is(m, JOB_CHOOSE, v.elv_number, n))
		return -ENOENT;
	job_of_choose(m, &v, out);
	return 0;
}

int job_choose_list(struct mds *m, struct kv_txn *t, struct job_sink *s)
{
	struct job_elect_view v;

	job_elect_look(m, &v);
	return job_run_put_one(m, t, s, v.elv_number ? job_run_id(m, JOB_CHOOSE, v.elv_number) : 0,
			       job_choose_find);
}

void job_choose_over(struct mds *m, const struct job_elect_view *v)
{
	struct job j;

	job_of_choose(m, v, &j);
	snprintf(j.j_error, sizeof(j.j_error), "%s", v->elv_why);
	if (v->elv_done)
		snprintf(j.j_result, sizeof(j.j_result), "mirror %d was chosen",
			 v->elv_ask.ca_mirror);
	job_over(m, &j, *v->elv_why ? JOB_FAILED : JOB_DONE);
}

/* ---- revoke: what an export that is gone or has changed had granted ---- */

static void job_of_revoke(struct mds *m, const struct job_revocation_view *v, struct job *j)
{
	job_blank(j, job_run_id(m, JOB_REVOKE, v->ev_number + 1), JOB_REVOKE);
	j->j_stays = "clients would keep what the exports do not grant any more";
	j->j_state = v->ev_waits ? JOB_WAITING : JOB_RUNNING;
	if (v->ev_waits) {
		snprintf(j->j_waits, sizeof(j->j_waits), "waiting for its turn");
		return;
	}
	j->j_begun = (uint64_t)v->ev_begun;
	j->j_files = v->ev_looked;
}

/* A pass that was asked for while another is under way has the number behind it. */
int job_revoke_find(struct mds *m, struct kv_txn *t, struct job_name n, struct job *out)
{
	struct job_revocation_view v;

	(void)t;
	job_revocation_look(m, &v);
	if (v.ev_running && run_is(m, JOB_REVOKE, v.ev_number + 1, n)) {
		job_of_revoke(m, &v, out);
		return 0;
	}
	if (!v.ev_next || !run_is(m, JOB_REVOKE, v.ev_next, n))
		return -ENOENT;
	v = (struct job_revocation_view){.ev_number = v.ev_next - 1, .ev_waits = true};
	job_of_revoke(m, &v, out);
	return 0;
}

int job_revoke_list(struct mds *m, struct kv_txn *t, struct job_sink *s)
{
	struct job_revocation_view v;

	job_revocation_look(m, &v);
	job_run_put_one(m, t, s, job_run_id(m, JOB_REVOKE, v.ev_number + 1), job_revoke_find);
	if (v.ev_next > v.ev_number + 1)
		job_run_put_one(m, t, s, job_run_id(m, JOB_REVOKE, v.ev_next), job_revoke_find);
	return 0;
}

void job_revoke_over(struct mds *m, const struct job_revocation_view *v, bool again)
{
	struct job j;

	job_of_revoke(m, v, &j);
	if (again)
		snprintf(j.j_error, sizeof(j.j_error),
			 "not all files could be examined; another pass follows");
	else
		snprintf(j.j_result, sizeof(j.j_result),
			 "old capabilities for %lu files are invalid now",
			 (unsigned long)v->ev_ended);
	job_over(m, &j, again ? JOB_FAILED : JOB_DONE);
}

/* ---- the trash ---- */

static void job_of_trash(const struct job_trash_view *v, struct job *j)
{
	job_blank(j, job_id(v->tv_number, 0, JOB_OF_TRASH), v->tv_kind);
	j->j_state = v->tv_cancelled ? JOB_CANCELLING : v->tv_waits ? JOB_WAITING : JOB_RUNNING;
	if (v->tv_kind == JOB_TRASH_EXPIRE)
		j->j_stays = "what has expired goes";
	j->j_ino = v->tv_ino;
	j->j_begun = v->tv_begun;
	j->j_files = v->tv_done;
	j->j_bytes = v->tv_bytes;
	snprintf(j->j_error, sizeof(j->j_error), "%s", v->tv_error);
	if (v->tv_waits)
		snprintf(j->j_waits, sizeof(j->j_waits), "another job about the trash is running");
}

int job_trash_find(struct mds *m, struct kv_txn *t, struct job_name n, struct job *out)
{
	struct job_trash_view v[JOB_TRASH_MOST + 1];
	unsigned k = job_trash_look(m, v);

	(void)t;
	while (k--) {
		if (v[k].tv_number != n.jn_subject || n.jn_turn)
			continue;
		job_of_trash(&v[k], out);
		return 0;
	}
	return -ENOENT;
}

int job_trash_list(struct mds *m, struct kv_txn *t, struct job_sink *s)
{
	struct job_trash_view v[JOB_TRASH_MOST + 1];
	unsigned n = job_trash_look(m, v);
	struct job j;

	(void)t;
	for (unsigned k = 0; k < n && !s->js_more; k++) {
		job_of_trash(&v[k], &j);
		job_put(s, &j);
	}
	return 0;
}

void job_trash_over(struct mds *m, const struct job_trash_view *v, const char *error)
{
	struct job j;

	job_of_trash(v, &j);
	if (error)
		snprintf(j.j_error, sizeof(j.j_error), "%s", error);
	else if (v->tv_kind == JOB_TRASH_RESTORE)
		snprintf(j.j_result, sizeof(j.j_result), "%lu restored; %lu could not be",
			 (unsigned long)v->tv_done, (unsigned long)v->tv_failed);
	else
		snprintf(j.j_result, sizeof(j.j_result), "%lu removed for good",
			 (unsigned long)v->tv_done);
	job_over(m, &j,
		 error		   ? JOB_FAILED
		 : v->tv_cancelled ? JOB_CANCELLED
		 : v->tv_failed	   ? JOB_FAILED
				   : JOB_DONE);
}

int job_trash_stop(struct job_cancel *jc)
{
	if (!job_trash_cancel(jc->jc_m, job_name(jc->jc_job.j_id).jn_subject))
		return -ENOENT;
	return job_run_cancel_done(jc);
}
