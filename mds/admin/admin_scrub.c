/* SPDX-License-Identifier: Apache-2.0 */
/* admin_scrub.c - weft fsck --online and weft scrub over the API (docs/scrub.md). */
#include "mds/admin/admin_holders.h"
#include "mds/jobs/job.h"
#include "mds/jobs/scrub.h"
#include <errno.h>

#define NAMES_MANY 1000000u /* directory entries that are read for the paths of one answer */

struct listing {
	struct admin *l_a;
	struct kv_txn *l_txn;
	unsigned l_budget;
	json_t *l_list;
};

static json_t *admin_scrub_path_of(struct listing *l, uint64_t ino)
{
	char path[4096];

	if (!ino || !l->l_budget ||
	    ns_path_of(l->l_a->a_ops.ao_ns, l->l_txn, ino, &l->l_budget, path, sizeof(path)))
		return json_null();
	return admin_text(path, strlen(path));
}

static int add_found(void *arg, const struct job_scrub_found *f)
{
	static const char *const done[] = {[JOB_SCRUB_LEFT] = "left",
					   [JOB_SCRUB_REMOVED] = "removed",
					   [JOB_SCRUB_STALE] = "stale"};
	struct listing *l = arg;
	struct ds_reg_server sv;
	json_t *ds = f->sf_ds && ds_reg_get(l->l_a->a_ops.ao_dsc, f->sf_ds, &sv)
			     ? json_string(sv.sv_name)
			     : json_null();

	json_array_append_new(l->l_list,
			      json_pack("{s:s, s:s, s:o, s:I, s:o, s:i, s:i, s:i, s:I, s:I}",
					"kind", job_scrub_kind_name(f->sf_kind), "done",
					done[f->sf_done], "ds", ds, "inode", (json_int_t)f->sf_ino,
					"path", admin_scrub_path_of(l, f->sf_ino), "incarnation",
					(int)f->sf_incarnation, "stripe", (int)f->sf_stripe, "copy",
					(int)f->sf_copy, "size", (json_int_t)f->sf_size, "want",
					(json_int_t)f->sf_want));
	return 0;
}

static json_t *findings(struct admin *a)
{
	struct listing l = {.l_a = a, .l_budget = NAMES_MANY, .l_list = json_array()};

	if (kv_read_begin(ns_kv(a->a_ops.ao_ns), &l.l_txn))
		return l.l_list;
	job_scrub_each(l.l_txn, add_found, &l);
	kv_read_end(l.l_txn);
	return l.l_list;
}

static json_t *state_json(const struct job_scrub_state *s)
{
	static const char *const phase[] = {[JOB_SCRUB_LIST] = "list",
					    [JOB_SCRUB_SIGHT] = "second-look",
					    [JOB_SCRUB_FILES] = "files",
					    [JOB_SCRUB_CONTENT] = "content",
					    [JOB_SCRUB_OVER] = "over"};
	json_t *counts = json_object();
	uint64_t found = 0;

	for (unsigned k = 1; k < JOB_SCRUB_KINDS; k++) {
		found += s->ss_counts[k];
		json_object_set_new(counts, job_scrub_kind_name((enum job_scrub_kind)k),
				    json_integer((json_int_t)s->ss_counts[k]));
	}
	return json_pack("{s:I, s:b, s:b, s:s, s:b, s:s, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, "
			 "s:I, s:I, s:I, s:o}",
			 "number", (json_int_t)s->ss_number, "running", s->ss_running, "stopped",
			 s->ss_stopped, "what", s->ss_content ? "scrub" : "fsck", "dry", s->ss_dry,
			 "phase", phase[s->ss_phase], "began_at", admin_known(s->ss_began_s),
			 "ended_at", admin_known(s->ss_ended_s), "objects",
			 (json_int_t)s->ss_objects, "files", (json_int_t)s->ss_files, "bytes",
			 (json_int_t)s->ss_bytes, "busy", (json_int_t)s->ss_busy, "skipped",
			 (json_int_t)s->ss_skipped, "degraded", (json_int_t)s->ss_degraded,
			 "removed", (json_int_t)s->ss_removed, "stale", (json_int_t)s->ss_stale,
			 "found", (json_int_t)found, "counts", counts);
}

void admin_get_scrub(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	struct admin *a = arg;
	struct job_scrub_state s;
	json_t *j;

	job_scrub_look(a->a_ops.ao_mds, &s);
	j = state_json(&s);
	if (j)
		json_object_set_new(j, "job", admin_run_json(a, JOB_SCRUB, s.ss_number));
	if (j && http_arg(rq, "findings"))
		json_object_set_new(j, "findings", findings(a));
	admin_reply_json(rp, 200, j);
}

void admin_put_scrub(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	struct admin *a = arg;
	struct job_scrub_ask ask = {.sa_content = http_arg(rq, "content"),
				    .sa_dry = http_arg(rq, "dry"),
				    .sa_newer = http_arg(rq, "newer")};

	if (ask.sa_newer && !admin_may(rq, rp, HTTP_ADMIN, "newer"))
		return;
	if (job_scrub_begin(a->a_ops.ao_mds, &ask))
		admin_reply_error(rp, 409,
				  "another check is running, and only one can run at a time: see "
				  "weft scrub --status, or stop it with weft scrub --stop");
	else
		admin_get_scrub(arg, rq, rp);
}

void admin_delete_scrub(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	struct admin *a = arg;

	job_scrub_end(a->a_ops.ao_mds);
	admin_get_scrub(arg, rq, rp);
}
