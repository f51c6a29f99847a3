/* SPDX-License-Identifier: Apache-2.0 */
/* admin_elect.c - lists the copies of a file and takes the choice of the good one, over the API
 * (docs/scrub.md). */
#include "mds/admin/admin_holders.h"
#include "mds/jobs/elect.h"
#include "mds/jobs/job.h"
#include <sodium.h>

static json_t *copy_json(struct admin *a, const struct job_elect_view *v, unsigned k)
{
	static const char *const state[] = {[LO_IN_SYNC] = "in-sync",
					    [LO_STALE] = "stale",
					    [LO_REBUILDING] = "rebuilding",
					    [LO_ABSENT] = "absent"};
	const struct lo_object *o = &v->elv_map.lm_obj[k];
	bool told = v->elv_answered >> k & 1, there = v->elv_there >> k & 1;
	char sum[2 * CTL_SUM_LEN + 1];
	struct ds_reg_server sv;
	bool known = ds_reg_get(a->a_ops.ao_dsc, o->ob_ds, &sv);

	sodium_bin2hex(sum, sizeof(sum), v->elv_sum[k], CTL_SUM_LEN);
	return json_pack(
		"{s:i, s:i, s:o, s:s, s:s, s:s, s:o, s:o, s:o}", "mirror",
		(int)(k / v->elv_map.lm_stripes), "stripe", (int)(k % v->elv_map.lm_stripes), "ds",
		known ? json_string(sv.sv_name) : json_null(), "server",
		known ? ds_reg_state_text(sv.sv_state) : "forgotten", "state", state[o->ob_state],
		"has",
		there  ? "it"
		: told ? "nothing"
		       : "unknown",
		"size", there ? json_integer((json_int_t)v->elv_sizes[k]) : json_null(),
		"changed_at", there ? json_real((double)v->elv_changed[k] / 1e9) : json_null(),
		"sum", v->elv_summed >> k & 1 ? json_string(sum) : json_null());
}

void admin_get_elect(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	struct admin *a = arg;
	json_t *copies = json_array();
	struct job_elect_view v;

	(void)rq;
	job_elect_look(a->a_ops.ao_mds, &v);
	if (!v.elv_running && v.elv_number && *v.elv_why) {
		json_decref(copies);
		admin_reply_error(rp, 409, "%s", v.elv_why);
		return;
	}
	for (unsigned k = 0; !v.elv_running && k < lo_objects(&v.elv_map); k++)
		json_array_append_new(copies, copy_json(a, &v, k));
	admin_reply_json(rp, 200,
			 json_pack("{s:I, s:o, s:b, s:b, s:I, s:o}", "number",
				   (json_int_t)v.elv_number, "job",
				   admin_run_json(a, JOB_CHOOSE, v.elv_number), "running",
				   v.elv_running, "chosen", v.elv_done, "size",
				   (json_int_t)v.elv_size, "copies", copies));
}

void admin_put_elect(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	struct admin *a = arg;
	int64_t mirror = admin_number_arg(rq, rp, "mirror", 0, LO_MAX_OBJECTS - 1, LO_MAX_OBJECTS);
	struct job_elect_ask ask = {.ca_force = http_arg(rq, "force")};

	if (mirror < 0)
		return;
	ask.ca_mirror = mirror == LO_MAX_OBJECTS ? -1 : (int)mirror;
	ask.ca_ino = admin_file_arg(a, rq, rp);
	if (!ask.ca_ino)
		return;
	if (job_elect_begin(a->a_ops.ao_mds, &ask))
		admin_get_elect(arg, rq, rp);
	else
		admin_reply_error(rp, 409,
				  "the server is examining the copies of another file; try again "
				  "when that is done");
}
