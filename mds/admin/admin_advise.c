/* SPDX-License-Identifier: Apache-2.0 */
/* admin_advise.c - reports over the API, and in words: data servers that are behind, directories
 * that are hot, and what is moved because of that (docs/balance.md). */
#include "mds/admin/admin_holders.h"
#include "mds/jobs/balance.h"
#include "mds/jobs/heat.h"
#include "mds/jobs/job.h"
#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>

#define SPREAD	     10
#define ROWS	     100
#define PATHS_BUDGET 300000 /* directory entries that are read to find paths */
#define HOT_LEAST    100.0  /* heat of a directory that is worth mentioning */
#define HOT_ROWS     5

static const char *admin_advise_name_of(struct admin *a, uint32_t id, char out[65])
{
	struct ds_reg_server sv;

	snprintf(out, 65, "%s", ds_reg_get(a->a_ops.ao_dsc, id, &sv) ? sv.sv_name : "?");
	return out;
}

/* ---- a run ---- */

static json_t *server_json(struct admin *a, const struct job_balance_server *bs)
{
	char name[65];

	return json_pack("{s:I, s:s, s:b, s:f, s:f, s:o, s:I, s:I, s:I, s:I, s:I, s:b, s:b}",
			 "number", (json_int_t)bs->bs_id, "name",
			 admin_advise_name_of(a, bs->bs_id, name), "counts", bs->bs_counts,
			 "weight", bs->bs_weight / 100.0, "load", bs->bs_load / 100.0, "latency_us",
			 admin_known(bs->bs_latency), "capacity", (json_int_t)bs->bs_capacity,
			 "available", (json_int_t)bs->bs_available, "held", (json_int_t)bs->bs_was,
			 "then", (json_int_t)bs->bs_held, "share", (json_int_t)bs->bs_share,
			 "loaded", bs->bs_loaded, "slow", bs->bs_slow);
}

static json_t *moves_json(struct admin *a, const struct job_balance_view *v)
{
	static const char *const state[] = {[OP_BALANCE_PLANNED] = "planned",
					    [OP_BALANCE_MOVING] = "moving",
					    [OP_BALANCE_DONE] = "done",
					    [OP_BALANCE_LEFT] = "left"};
	struct ns *ns = a->a_ops.ao_ns;
	json_t *list = json_array();
	unsigned budget = PATHS_BUDGET;
	char from[65], to[65], path[4096];
	struct kv_txn *t;

	if (kv_read_begin(ns_kv(ns), &t))
		return list;
	for (unsigned i = 0; i < v->bv_nmove && i < ROWS; i++) {
		const struct job_balance_move *bm = &v->bv_move[i];
		bool known = budget && !ns_path_of(ns, t, bm->bm_ino, &budget, path, sizeof(path));

		json_array_append_new(
			list, json_pack("{s:I, s:o, s:i, s:s, s:s, s:I, s:s, s:s}", "inode",
					(json_int_t)bm->bm_ino, "path",
					known ? admin_text(path, strlen(path)) : json_null(),
					"object", (int)bm->bm_obj, "from",
					admin_advise_name_of(a, bm->bm_from, from), "to",
					admin_advise_name_of(a, bm->bm_to, to), "bytes",
					(json_int_t)bm->bm_bytes, "why",
					bm->bm_why == OP_BALANCE_HOT ? "hot" : "share", "state",
					state[bm->bm_state]));
	}
	kv_read_end(t);
	return list;
}

static json_t *admin_advise_view_json(struct admin *a, const struct job_balance_view *v)
{
	static const char *const phase[] = {[OP_BALANCE_COUNTS] = "counts",
					    [OP_BALANCE_MOVES] = "moves",
					    [OP_BALANCE_OVER] = "over"};
	json_t *servers = json_array(), *j;

	for (unsigned i = 0; i < v->bv_nserver; i++)
		json_array_append_new(servers, server_json(a, &v->bv_server[i]));
	j = json_pack("{s:I, s:b, s:s, s:b, s:i, s:I, s:I, s:I, s:I}", "number",
		      (json_int_t)v->bv_number, "running", v->bv_phase != OP_BALANCE_OVER, "phase",
		      phase[v->bv_phase], "dry_run", v->bv_ask.ba_dry, "spread",
		      (int)v->bv_ask.ba_spread, "limit_bytes", (json_int_t)v->bv_ask.ba_bytes,
		      "limit_files", (json_int_t)v->bv_ask.ba_files, "rate",
		      (json_int_t)v->bv_ask.ba_rate, "looked", (json_int_t)v->bv_looked);
	if (!j) {
		json_decref(servers);
		return NULL;
	}
	json_object_set_new(j, "end",
			    v->bv_number && v->bv_phase == OP_BALANCE_OVER
				    ? json_string(job_balance_end_text(v->bv_end))
				    : json_null());
	json_object_set_new(j, "job", admin_run_json(a, JOB_BALANCE, v->bv_number));
	json_object_set_new(j, "files", json_integer((json_int_t)v->bv_files));
	json_object_set_new(j, "bytes", json_integer((json_int_t)v->bv_bytes));
	json_object_set_new(j, "done_files", json_integer((json_int_t)v->bv_done_files));
	json_object_set_new(j, "done_bytes", json_integer((json_int_t)v->bv_done_bytes));
	json_object_set_new(j, "left", json_integer((json_int_t)v->bv_left));
	json_object_set_new(j, "servers", servers);
	json_object_set_new(j, "moves", moves_json(a, v));
	return j;
}

static struct job_balance_view *admin_advise_look(struct admin *a, struct http_reply *rp)
{
	struct job_balance_view *v = job_balance_look(a->a_ops.ao_mds);

	if (!v)
		admin_reply_error(rp, 500, "out of memory");
	return v;
}

static void view_free(struct job_balance_view *v)
{
	free(v->bv_move);
	free(v);
}

void admin_get_balance(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	struct job_balance_view *v = admin_advise_look(arg, rp);

	(void)rq;
	if (!v)
		return;
	admin_reply_json(rp, 200, admin_advise_view_json(arg, v));
	view_free(v);
}

/* Reads a number of bytes, with or without K, M, G or T behind it; 0 if it is not there. False:
 * refused. */
static bool bytes_arg(const struct http_req *rq, struct http_reply *rp, const char *name,
		      uint64_t *out)
{
	static const char units[] = "KMGT";
	const char *text = http_arg(rq, name), *u;
	unsigned shift = 0;
	uint64_t v;
	char *end;

	*out = 0;
	if (!text)
		return true;
	v = strtoull(text, &end, 10);
	if (*end && (u = strchr(units, toupper((unsigned char)*end))) && !end[1]) {
		shift = 10 * (unsigned)(u - units + 1);
		end++;
	}
	if (!isdigit((unsigned char)*text) || *end || !v || v > (UINT64_C(1) << 60) >> shift) {
		admin_reply_error(rp, 400, "%s: expected a number of bytes, such as 500M or 2T",
				  name);
		return false;
	}
	*out = v << shift;
	return true;
}

void admin_put_balance(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	struct job_balance_ask ask = {.ba_dry = http_arg(rq, "dry")};
	int64_t files = admin_number_arg(rq, rp, "files", 1, 1000000000, 0), spread;
	struct admin *a = arg;

	if (files < 0)
		return;
	spread = admin_number_arg(rq, rp, "spread", 1, 100, SPREAD);
	if (spread < 0 || !bytes_arg(rq, rp, "bytes", &ask.ba_bytes) ||
	    !bytes_arg(rq, rp, "rate", &ask.ba_rate))
		return;
	ask.ba_files = (uint64_t)files;
	ask.ba_spread = (uint32_t)spread;
	if (job_balance_begin(a->a_ops.ao_mds, &ask))
		admin_get_balance(arg, rq, rp);
	else
		admin_reply_error(rp, 409,
				  "another run is in progress; weft balance --stop ends it");
}

void admin_delete_balance(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	struct admin *a = arg;

	job_balance_stop(a->a_ops.ao_mds);
	admin_get_balance(arg, rq, rp);
}

/* ---- in words ---- */

static void __attribute__((format(printf, 2, 3))) say(json_t *words, const char *fmt, ...)
{
	char *text = NULL;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0)
		text = NULL;
	va_end(ap);
	if (text)
		json_array_append_new(words, admin_text(text, strlen(text)));
	free(text);
}

static const char *size_words(double v, char out[16])
{
	static const char units[] = "BKMGTPE";
	unsigned u = 0;

	for (; v >= 1024 && u < sizeof(units) - 2; u++)
		v /= 1024;
	snprintf(out, 16, v < 10 && u ? "%.1f%c" : "%.0f%c", v, units[u]);
	return out;
}

static void say_directories(json_t *words, const json_t *dirs)
{
	const json_t *d;
	size_t i;

	json_array_foreach(dirs, i, d)
	{
		const char *path = json_string_value(json_object_get(d, "path"));
		char read[16], written[16];

		if (json_number_value(json_object_get(d, "heat")) < HOT_LEAST)
			break;
		say(words, "%s is hot: %.1f operations a second, %s/s read and %s/s written now",
		    path ? path : "a directory without a path",
		    json_number_value(json_object_get(d, "ops")),
		    size_words(json_number_value(json_object_get(d, "read")), read),
		    size_words(json_number_value(json_object_get(d, "written")), written));
	}
}

static void say_server(json_t *words, struct admin *a, const struct job_balance_view *v,
		       const struct job_balance_server *bs)
{
	uint32_t fastest = UINT32_MAX;
	char name[65], held[16], share[16];
	double load = 0, has = v->bv_ask.ba_dry ? bs->bs_was : bs->bs_held;
	unsigned others = 0;

	admin_advise_name_of(a, bs->bs_id, name);
	if (!bs->bs_counts) {
		say(words, "%s takes no part: it is dead, drained or generic, or its weight is 0",
		    name);
		return;
	}
	for (unsigned i = 0; i < v->bv_nserver; i++) {
		const struct job_balance_server *o = &v->bv_server[i];

		if (!o->bs_counts || o == bs)
			continue;
		others++;
		load += o->bs_load / 100.0;
		if (o->bs_latency && o->bs_latency < fastest)
			fastest = o->bs_latency;
	}
	if (bs->bs_slow)
		say(words,
		    "%s is slow: clients wait %.1f ms for a read of 64 KiB from it, but %.1f ms "
		    "from the fastest server",
		    name, bs->bs_latency / 1000.0, fastest / 1000.0);
	if (bs->bs_loaded)
		say(words,
		    "%s is busy: it has %.1f requests in progress, the others have %.1f on average",
		    name, bs->bs_load / 100.0, others ? load / others : 0);
	if (fabs(has - bs->bs_share) > bs->bs_share * v->bv_ask.ba_spread / 100)
		say(words, "%s holds %s; its share by weight and size is %s", name,
		    size_words(has, held), size_words(bs->bs_share, share));
}

/* One line for all moves from one server to another. */
static void say_moves(json_t *words, struct admin *a, const struct job_balance_view *v)
{
	bool *told = calloc(v->bv_nmove + 1, sizeof(*told));
	char from[65], to[65], size[16];

	for (unsigned i = 0; told && i < v->bv_nmove; i++) {
		const struct job_balance_move *x = &v->bv_move[i];
		double bytes = 0;
		unsigned n = 0;

		for (unsigned k = i; k < v->bv_nmove && !told[i]; k++) {
			const struct job_balance_move *y = &v->bv_move[k];

			if (y->bm_from != x->bm_from || y->bm_to != x->bm_to ||
			    y->bm_why != x->bm_why)
				continue;
			told[k] = k > i;
			bytes += (double)y->bm_bytes;
			n++;
		}
		if (n)
			say(words, "%u file%s (%s) %s from %s to %s%s", n, n > 1 ? "s" : "",
			    size_words(bytes, size), v->bv_ask.ba_dry ? "would move" : "moved",
			    admin_advise_name_of(a, x->bm_from, from),
			    admin_advise_name_of(a, x->bm_to, to),
			    x->bm_why == OP_BALANCE_HOT ? ", because they are hot" : "");
	}
	free(told);
	if (v->bv_files > v->bv_nmove)
		say(words, "more files than those: %lu files, %s in all",
		    (unsigned long)v->bv_files, size_words((double)v->bv_bytes, size));
}

void admin_get_advise(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	struct job_balance_view *v = admin_advise_look(arg, rp);
	json_t *words, *dirs;
	size_t before;

	(void)rq;
	if (!v)
		return;
	words = json_array();
	dirs = admin_hot_directories(arg, HOT_ROWS);
	say_directories(words, dirs);
	before = json_array_size(words);
	for (unsigned i = 0; i < v->bv_nserver; i++)
		say_server(words, arg, v, &v->bv_server[i]);
	if (!v->bv_number)
		say(words, "no files were examined since the metadata server started");
	else if (json_array_size(words) == before)
		say(words, "no data server is behind");
	say_moves(words, arg, v);
	if (v->bv_number)
		say(words,
		    v->bv_phase != OP_BALANCE_OVER     ? "files are still being examined or moved"
		    : v->bv_ask.ba_dry && !v->bv_files ? "nothing would move: %s"
						       : "%s",
		    job_balance_end_text(v->bv_end));
	admin_reply_json(rp, 200,
			 json_pack("{s:o, s:o, s:o}", "words", words, "directories", dirs,
				   "balance", admin_advise_view_json(arg, v)));
	view_free(v);
}
