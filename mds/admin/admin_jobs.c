/* SPDX-License-Identifier: Apache-2.0 */
/* admin_jobs.c - the list of jobs over the API: what runs, what waits, what is over; and cancel
 * (mds/jobs/job.h). */
#include "mds/admin/admin_holders.h"
#include "mds/jobs/job.h"
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <urcu/compiler.h>

#define ROWS	     1000
#define ROWS_MOST    10000
#define IDS_MOST     256
#define PATHS_BUDGET 300000 /* directory entries that are read to find paths */

struct jobs_listing {
	struct admin *jl_a;
	struct kv_txn *jl_txn; /* NULL: paths are not looked up */
	unsigned jl_budget;
	json_t *jl_list;
};

static json_t *number_json(uint64_t v)
{
	return v == JOB_UNKNOWN ? json_null() : json_integer((json_int_t)v);
}

/* Of a time, 0 is unknown. */
static json_t *time_json(uint64_t s)
{
	return s ? json_integer((json_int_t)s) : json_null();
}

static json_t *words_json(const char *text)
{
	return text && *text ? json_string(text) : json_null();
}

json_t *admin_job_json(uint64_t id)
{
	return id ? json_integer((json_int_t)id) : json_null();
}

json_t *admin_run_json(struct admin *a, int kind, uint64_t number)
{
	if (!number)
		return json_null();
	return admin_job_json(kind == JOB_SCRUB
				      ? job_scrub_id(number)
				      : job_run_id(a->a_ops.ao_mds, (enum job_kind)kind, number));
}

static json_t *job_json(struct jobs_listing *l, const struct job *j)
{
	bool over = job_is_over(j);
	struct ds_reg_server sv;
	json_t *o = json_pack(
		"{s:I, s:s, s:s, s:o, s:o, s:o, s:b, s:b}", "id", (json_int_t)j->j_id, "kind",
		job_kind_name(j->j_kind), "state", job_state_name(j->j_state), "path",
		j->j_ino ? admin_path_json(l->jl_a, l->jl_txn, j->j_ino, &l->jl_budget)
			 : json_null(),
		"inode", time_json(j->j_ino), "ds",
		j->j_ds && ds_reg_get(l->jl_a->a_ops.ao_dsc, j->j_ds, &sv) ? json_string(sv.sv_name)
									   : json_null(),
		"resumes", job_resumes(j->j_kind), "cancellable",
		!over && !j->j_stays && j->j_state != JOB_CANCELLING);

	if (!o)
		return json_null();
	json_object_set_new(o, "begun_at", time_json(j->j_begun));
	json_object_set_new(o, "ended_at", time_json(j->j_ended));
	json_object_set_new(o, "phase", over ? json_null() : words_json(j->j_phase));
	json_object_set_new(o, "done_bytes", number_json(j->j_bytes));
	json_object_set_new(o, "total_bytes", number_json(j->j_bytes_all));
	json_object_set_new(o, "done_objects", number_json(j->j_objects));
	json_object_set_new(o, "total_objects", number_json(j->j_objects_all));
	json_object_set_new(o, "done_files", number_json(j->j_files));
	json_object_set_new(o, "total_files", number_json(j->j_files_all));
	json_object_set_new(o, "rate_bytes_s", number_json(j->j_rate));
	json_object_set_new(o, "eta_s", number_json(j->j_eta));
	json_object_set_new(o, "waits_for", words_json(j->j_waits));
	json_object_set_new(o, "error", words_json(j->j_error));
	json_object_set_new(o, "result", words_json(j->j_result));
	return o;
}

static void jobs_add(void *arg, const struct job *j)
{
	struct jobs_listing *l = arg;

	json_array_append_new(l->jl_list, job_json(l, j));
}

static void jobs_add_ended(struct jobs_listing *l, const struct job_filter *f)
{
	struct job *over = calloc(JOB_KEPT, sizeof(*over));
	unsigned n = over ? job_ended_list(l->jl_a->a_ops.ao_mds, f, over, JOB_KEPT) : 0;

	for (unsigned i = 0; i < n; i++)
		jobs_add(l, &over[i]);
	free(over);
}

/* Answers with the jobs of these numbers, with commas between them; leaves out unknown ones. */
static void jobs_reply_these(struct admin *a, const char *ids, struct http_reply *rp)
{
	struct jobs_listing l = {.jl_a = a, .jl_budget = PATHS_BUDGET, .jl_list = json_array()};
	struct job j;
	char *end;

	if (kv_read_begin(ns_kv(a->a_ops.ao_ns), &l.jl_txn))
		l.jl_txn = NULL;
	for (unsigned n = 0; *ids && n < IDS_MOST; n++) {
		if (!job_find(a->a_ops.ao_mds, strtoull(ids, &end, 10), &j))
			jobs_add(&l, &j);
		ids = end;
		ids += *ids == ',';
		if (!isdigit((unsigned char)*ids))
			break;
	}
	if (l.jl_txn)
		kv_read_end(l.jl_txn);
	if (*ids) {
		json_decref(l.jl_list);
		admin_reply_error(rp, 400, "ids: expected at most %d jobs' numbers, with commas",
				  IDS_MOST);
		return;
	}
	admin_reply_json(rp, 200, json_pack("{s:o}", "jobs", l.jl_list));
}

void admin_get_jobs(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	struct admin *a = arg;
	struct jobs_listing l = {.jl_a = a, .jl_budget = PATHS_BUDGET};
	const char *kind = http_arg(rq, "kind");
	struct job_filter f = {.jf_kind = kind ? job_kind_of(kind) : -1};
	int64_t most = admin_number_arg(rq, rp, "limit", 1, ROWS_MOST, ROWS);
	json_t *live, *ended;
	struct ns_inode i;
	bool more;
	int err;

	if (most < 0)
		return;
	if (kind && f.jf_kind < 0) {
		admin_reply_error(rp, 400, "kind: there are no jobs of the kind \"%s\"", kind);
		return;
	}
	if (http_arg(rq, "path")) {
		if (!admin_inode_arg(a, rq, rp, &i))
			return;
		f.jf_ino = i.i_ino;
	}
	f.jf_max = (unsigned)most;
	if (http_arg(rq, "ids")) {
		jobs_reply_these(a, http_arg(rq, "ids"), rp);
		return;
	}
	if (kv_read_begin(ns_kv(a->a_ops.ao_ns), &l.jl_txn))
		l.jl_txn = NULL;
	l.jl_list = live = json_array();
	err = job_list(a->a_ops.ao_mds, &f, jobs_add, &l, &more);
	l.jl_list = ended = json_array();
	jobs_add_ended(&l, &f);
	if (l.jl_txn)
		kv_read_end(l.jl_txn);
	if (err) {
		json_decref(live);
		json_decref(ended);
		admin_reply_error(rp, 500, "cannot list the jobs: %s", strerror(-err));
		return;
	}
	admin_reply_json(
		rp, 200,
		json_pack("{s:o, s:b, s:o}", "jobs", live, "more", more, "finished", ended));
}

/* The "id" argument; 0: an error was put into rp. */
static uint64_t jobs_id_arg(const struct http_req *rq, struct http_reply *rp)
{
	const char *text = http_arg(rq, "id");
	size_t n = text ? strlen(text) : 0;

	if (n && n < 20 && strspn(text, "0123456789") == n && strtoull(text, NULL, 10))
		return strtoull(text, NULL, 10);
	admin_reply_error(rp, 400, "id: expected a job's number, as weft jobs shows it");
	return 0;
}

static void jobs_unknown(struct http_reply *rp, uint64_t id)
{
	admin_reply_error(rp, 404, "job %lu: no such job, or it ended long ago", (unsigned long)id);
}

static void jobs_reply_one(struct admin *a, const struct job *j, struct http_reply *rp)
{
	struct jobs_listing l = {.jl_a = a, .jl_budget = PATHS_BUDGET};
	json_t *o;

	if (kv_read_begin(ns_kv(a->a_ops.ao_ns), &l.jl_txn))
		l.jl_txn = NULL;
	o = job_json(&l, j);
	if (l.jl_txn)
		kv_read_end(l.jl_txn);
	admin_reply_json(rp, 200, o);
}

void admin_get_job(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	struct admin *a = arg;
	uint64_t id = jobs_id_arg(rq, rp);
	struct job j;
	int err;

	if (!id)
		return;
	err = job_find(a->a_ops.ao_mds, id, &j);
	if (!err)
		jobs_reply_one(a, &j, rp);
	else if (err == -ENOENT)
		jobs_unknown(rp, id);
	else
		admin_reply_error(rp, 500, "job %lu: %s", (unsigned long)id, strerror(-err));
}

struct jobs_stop {
	struct job_cancel js_cancel;
	struct admin_wait js_wait;
};

static void jobs_cancelled(struct job_cancel *jc, int err)
{
	admin_wait_done(&caa_container_of(jc, struct jobs_stop, js_cancel)->js_wait, err);
}

void admin_delete_job(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	struct admin *a = arg;
	uint64_t id = jobs_id_arg(rq, rp);
	struct jobs_stop s;
	int err;

	if (!id)
		return;
	admin_wait_init(&s.js_wait);
	job_cancel(&s.js_cancel, a->a_ops.ao_mds, id, jobs_cancelled);
	err = admin_wait_end(&s.js_wait);
	if (!err) {
		/* Shows it as it is now. If it cannot be found, as it was. */
		(void)job_find(a->a_ops.ao_mds, id, &s.js_cancel.jc_job);
		jobs_reply_one(a, &s.js_cancel.jc_job, rp);
	} else if (err == -ENOENT)
		jobs_unknown(rp, id);
	else if (*s.js_cancel.jc_why)
		admin_reply_error(rp, 409, "job %lu: %s", (unsigned long)id, s.js_cancel.jc_why);
	else
		admin_reply_error(rp, 500, "job %lu: %s", (unsigned long)id, strerror(-err));
}
