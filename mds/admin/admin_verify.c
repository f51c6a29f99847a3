/* SPDX-License-Identifier: Apache-2.0 */
/* admin_verify.c - compares copies, over the API (docs/moving.md). */
#include "mds/admin/admin_holders.h"
#include "mds/jobs/job.h"
#include "mds/jobs/verify.h"
#include <errno.h>
#include <stdlib.h>

static json_t *ds_name(struct admin *a, uint32_t id)
{
	struct ds_reg_server sv;

	return ds_reg_get(a->a_ops.ao_dsc, id, &sv) ? json_string(sv.sv_name) : json_null();
}

static json_t *admin_verify_path_of(struct admin *a, uint64_t ino)
{
	struct ns *ns = a->a_ops.ao_ns;
	unsigned budget = 100000;
	struct kv_txn *t;
	char path[4096];
	int err = kv_read_begin(ns_kv(ns), &t);

	if (err)
		return json_null();
	err = ns_path_of(ns, t, ino, &budget, path, sizeof(path));
	kv_read_end(t);
	return err ? json_null() : admin_text(path, strlen(path));
}

static json_t *diff_json(struct admin *a, const struct job_verify_diff *d)
{
	json_t *bad = json_array();

	for (unsigned k = 0; k < LO_MAX_OBJECTS; k++)
		if (d->vd_bad >> k & 1)
			json_array_append_new(bad, json_pack("{s:i, s:o}", "object", (int)k, "ds",
							     ds_name(a, d->vd_ds[k])));
	return json_pack("{s:I, s:o, s:i, s:I, s:I, s:o, s:o, s:b}", "inode", (json_int_t)d->vd_ino,
			 "path", admin_verify_path_of(a, d->vd_ino), "stripe", (int)d->vd_stripe,
			 "offset", (json_int_t)d->vd_off, "length", (json_int_t)d->vd_len, "kept",
			 ds_name(a, d->vd_ds[d->vd_kept]), "differ", bad, "mended", d->vd_mended);
}

void admin_get_verify(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	struct admin *a = arg;
	struct job_verify_view v;
	json_t *diffs = json_array();

	(void)rq;
	job_verify_look(a->a_ops.ao_mds, &v);
	for (unsigned i = 0; i < v.vv_ndiff; i++)
		json_array_append_new(diffs, diff_json(a, &v.vv_diff[i]));
	free(v.vv_diff);
	admin_reply_json(
		rp, 200,
		json_pack("{s:I, s:o, s:b, s:b, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "number",
			  (json_int_t)v.vv_number, "job",
			  admin_run_json(a, JOB_VERIFY, v.vv_number), "running", v.vv_running,
			  "mend", v.vv_ask.va_mend, "files", (json_int_t)v.vv_files, "bytes",
			  (json_int_t)v.vv_bytes, "single", (json_int_t)v.vv_single, "skipped",
			  (json_int_t)v.vv_skipped, "different", (json_int_t)v.vv_diffs, "now",
			  v.vv_now ? admin_verify_path_of(a, v.vv_now) : json_null(), "differences",
			  diffs));
}

void admin_put_verify(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	struct admin *a = arg;
	struct job_verify_ask ask = {.va_mend = http_arg(rq, "mend")};
	int64_t keep = admin_number_arg(rq, rp, "keep", 0, LO_MAX_OBJECTS - 1, LO_MAX_OBJECTS);
	struct ns_inode i;

	if (ask.va_mend && !admin_may(rq, rp, HTTP_ADMIN, "mend"))
		return;
	if (keep < 0 || !admin_inode_arg(a, rq, rp, &i))
		return;
	if (i.i_type != NS_REG && i.i_type != NS_DIR) {
		admin_reply_error(rp, 400, "%s: neither a regular file nor a directory",
				  http_arg(rq, "path"));
		return;
	}
	if (i.i_type == NS_DIR && !http_arg(rq, "recursive")) {
		admin_reply_error(rp, 400,
				  "%s: a directory; --recursive compares all files below it",
				  http_arg(rq, "path"));
		return;
	}
	ask.va_ino = i.i_ino;
	ask.va_keep = keep == LO_MAX_OBJECTS ? -1 : (int)keep;
	if (job_verify_begin(a->a_ops.ao_mds, &ask))
		admin_get_verify(arg, rq, rp);
	else
		admin_reply_error(
			rp, 409, "another verification is running, and only one can run at a time");
}

void admin_delete_verify(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	struct admin *a = arg;

	job_verify_end(a->a_ops.ao_mds);
	admin_get_verify(arg, rq, rp);
}
