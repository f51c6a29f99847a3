/* SPDX-License-Identifier: Apache-2.0 */
/* admin_ds.c - lists the data servers, and takes the administrator's commands for them
 * (docs/groups.md). */
#include "base/clock.h"
#include "mds/admin/admin_int.h"
#include "mds/admin/admin_holders.h"
#include "mds/admin/admin_health.h"
#include "mds/journal/event_journal.h"
#include "mds/jobs/drain.h"
#include "mds/jobs/job.h"
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <urcu/compiler.h>

/* "rack=r1,speed=nvme" as a JSON object; the caller's reference. */
static json_t *labels_json(const char *labels)
{
	json_t *o = json_object();

	for (const char *p = labels; *p;) {
		const char *eq = strchr(p, '='), *end = eq + strcspn(eq, ",");
		char key[LABELS_KEY_MAX + 1] = "";

		memcpy(key, p, (size_t)(eq - p));
		json_object_set_new(o, key, json_stringn(eq + 1, (size_t)(end - eq - 1)));
		p = *end ? end + 1 : end;
	}
	return o;
}

/* What the server does now, by its own report. */
static void admin_ds_traffic(json_t *j, const struct ds_reg_traffic *tr)
{
	bool known = tr->tr_ms && clock_mono_ms() - tr->tr_ms <= DS_REG_TRAFFIC_MS;
	const struct {
		const char *name;
		double rate;
	} now[] = {{"read_bytes_s", tr->tr_read_rate},
		   {"written_bytes_s", tr->tr_written_rate},
		   {"operations_s", tr->tr_ops_rate}};

	for (size_t i = 0; i < sizeof(now) / sizeof(now[0]); i++)
		json_object_set_new(j, now[i].name, known ? json_real(now[i].rate) : json_null());
}

json_t *admin_ds_json(struct admin *a, const struct ds_reg_server *sv)
{
	struct ds_reg_terms dt = {0};
	struct job_drain_view dv = {0};
	char id[37], why[160];
	uint64_t for_ms;
	json_t *j;

	ds_reg_terms(a->a_ops.ao_dsc, sv->sv_id, &dt);
	lo_uuid_text(sv->sv_uuid, id);
	j = json_pack("{s:I, s:s, s:s, s:s, s:b, s:s, s:I, s:o, s:I, s:I, s:I, s:I, s:f, s:f, s:o, "
		      "s:o, s:o}",
		      "number", (json_int_t)sv->sv_id, "name", sv->sv_name, "id", id, "kind",
		      sv->sv_nfs3 ? "nfs3" : "weft", "alive", sv->sv_alive, "state",
		      ds_reg_state_text(sv->sv_state), "since_at", (json_int_t)sv->sv_since_s,
		      "addr", lo_addrs_json(sv), "capacity", (json_int_t)sv->sv_capacity,
		      "available", (json_int_t)sv->sv_available, "max_read",
		      (json_int_t)sv->sv_max_read, "max_write", (json_int_t)sv->sv_max_write,
		      "weight", dt.dt_weight / 100.0, "load", dt.dt_load / 100.0, "latency_us",
		      admin_known(dt.dt_latency), "labels", labels_json(dt.dt_labels), "labels_set",
		      labels_json(dt.dt_set));
	json_object_set_new(
		j, "space",
		json_string(admin_health_space(&a->a_ops, sv->sv_capacity, sv->sv_available)));
	admin_ds_traffic(j, &dt.dt_traffic);
	json_object_set_new(j, "version",
			    *dt.dt_version ? json_string(dt.dt_version) : json_null());
	if (ds_reg_health_text(a->a_ops.ao_dsc, sv->sv_id, why, sizeof(why)))
		json_object_set_new(j, "why", json_string(why));
	/* Of a server that is being drained: how many objects are left there; null while they are
	 * not counted. Stuck: the server has failed orders for so long that its objects do not
	 * leave. */
	if (job_drain_look(a->a_ops.ao_mds, sv->sv_id, &dv)) {
		json_object_set_new(j, "drain", json_string(dv.dv_empty ? "drained" : "draining"));
		json_object_set_new(j, "left",
				    dv.dv_known ? json_integer((json_int_t)dv.dv_left)
						: json_null());
		json_object_set_new(
			j, "failing",
			json_integer(lo_orders_failing(a->a_ops.ao_mds->m_lo, sv->sv_id, &for_ms)));
		json_object_set_new(j, "stuck",
				    json_boolean(for_ms > op_confirm_ms(a->a_ops.ao_mds)));
		json_object_set_new(j, "job", admin_job_json(job_drain_id(sv->sv_id)));
	}
	return j;
}

static struct ds_reg_server *admin_ds_servers(struct admin *a, unsigned *n)
{
	struct ds_reg_server *sv = calloc(DS_REG_MAX, sizeof(*sv));

	*n = sv ? ds_reg_list(a->a_ops.ao_dsc, sv, DS_REG_MAX) : 0;
	return sv;
}

void admin_get_ds(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	unsigned n;
	struct ds_reg_server *sv = admin_ds_servers(arg, &n);
	json_t *list = json_array();

	(void)rq;
	for (unsigned i = 0; i < n; i++)
		json_array_append_new(list, admin_ds_json(arg, &sv[i]));
	free(sv);
	admin_reply_json(rp, 200, json_pack("{s:o}", "ds", list));
}

static bool digits(const char *s)
{
	if (!*s)
		return false;
	for (; *s; s++)
		if (!isdigit((unsigned char)*s))
			return false;
	return true;
}

uint32_t admin_ds_named(struct admin *a, const char *what, struct http_reply *rp)
{
	unsigned n, found = 0;
	struct ds_reg_server *sv = admin_ds_servers(a, &n);
	uint32_t id = 0;

	if (!what || !*what) {
		admin_reply_error(rp, 400, "ds: expected a data server's name, number or id");
		free(sv);
		return 0;
	}
	for (unsigned i = 0; i < n; i++) {
		char text[37];

		lo_uuid_text(sv[i].sv_uuid, text);
		if (strcmp(sv[i].sv_name, what) && strcmp(text, what) &&
		    !(digits(what) && strtoul(what, NULL, 10) == sv[i].sv_id))
			continue;
		found++;
		id = sv[i].sv_id;
	}
	free(sv);
	if (found == 1)
		return id;
	if (found)
		admin_reply_error(rp, 409,
				  "%s: %u data servers have that name; give the number or the id",
				  what, found);
	else
		admin_reply_error(rp, 404, "%s: no such data server", what);
	return 0;
}

uint32_t admin_ds_arg(struct admin *a, const struct http_req *rq, struct http_reply *rp)
{
	return admin_ds_named(a, http_arg(rq, "ds"), rp);
}

struct word {
	struct ds_reg_command wo_word;
	struct admin_wait wo_wait;
};

static void admin_ds_word_done(struct ds_reg_command *w, int err)
{
	admin_wait_done(&caa_container_of(w, struct word, wo_word)->wo_wait, err);
}

/* Commits the command, and answers with the server as it is then. */
static void word_say(struct admin *a, struct word *wo, struct http_reply *rp)
{
	struct ds_reg_server sv;
	int err;

	admin_wait_init(&wo->wo_wait);
	wo->wo_word.dw_done = admin_ds_word_done;
	ds_reg_command_start(a->a_ops.ao_dsc, &wo->wo_word);
	err = admin_wait_end(&wo->wo_wait);
	if (!err && ds_reg_get(a->a_ops.ao_dsc, wo->wo_word.dw_id, &sv)) {
		if (wo->wo_word.dw_has_weight)
			journal_add(EV_DS_CHANGED, sv.sv_name, 0, "weight %g",
				    wo->wo_word.dw_weight / 100.0);
		else if (wo->wo_word.dw_has_drain)
			journal_add(EV_DS_CHANGED, sv.sv_name, 0,
				    wo->wo_word.dw_drain ? "draining" : "no longer draining");
		else
			journal_add(EV_DS_CHANGED, sv.sv_name, 0, "labels %s",
				    wo->wo_word.dw_labels);
	}
	if (!err && ds_reg_get(a->a_ops.ao_dsc, wo->wo_word.dw_id, &sv))
		admin_reply_json(rp, 200, admin_ds_json(a, &sv));
	else if (err == -E2BIG)
		admin_reply_error(
			rp, 409,
			"labels: an administrator can set at most %d labels of a data server",
			LABELS_MAX);
	else if (err == -ENOSPC)
		admin_reply_error(rp, 409, "the metadata store is full");
	else
		admin_reply_error(rp, 500, "%s", strerror(-err));
}

/* Reads a number with at most two decimals, in hundredths; -1: it is none. */
static long weight_of(const char *s, size_t len)
{
	long v = 0;
	int decimals = -1;

	while (len && (s[len - 1] == '\n' || s[len - 1] == ' '))
		len--;
	if (!len || *s == '.' || s[len - 1] == '.')
		return -1;
	for (; len; s++, len--) {
		if (*s == '.' && decimals < 0) {
			decimals = 0;
			continue;
		}
		if (!isdigit((unsigned char)*s) || (decimals >= 0 && ++decimals > 2))
			return -1;
		v = v * 10 + (*s - '0');
		if (v > DS_REG_WEIGHT_MAX)
			return -1;
	}
	v *= decimals < 1 ? 100 : decimals < 2 ? 10 : 1;
	return v > DS_REG_WEIGHT_MAX ? -1 : v;
}

void admin_put_weight(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	struct word wo = {.wo_word.dw_has_weight = true};
	long w = weight_of(rq->rq_body, rq->rq_len);

	wo.wo_word.dw_id = admin_ds_arg(arg, rq, rp);
	if (!wo.wo_word.dw_id)
		return;
	if (w < 0) {
		admin_reply_error(rp, 400,
				  "weight: expected a number from 0 to %u with at most two "
				  "decimals; with 0 no new files go there",
				  DS_REG_WEIGHT_MAX / DS_REG_WEIGHT_ONE);
		return;
	}
	wo.wo_word.dw_weight = (uint32_t)w;
	word_say(arg, &wo, rp);
}

void admin_put_labels(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	struct word wo = {.wo_word.dw_has_labels = true};
	size_t len = rq->rq_len;
	char err[256];

	while (len && (rq->rq_body[len - 1] == '\n' || rq->rq_body[len - 1] == ' '))
		len--;
	wo.wo_word.dw_id = admin_ds_arg(arg, rq, rp);
	if (!wo.wo_word.dw_id)
		return;
	if (!len || labels_parse(rq->rq_body, len, true, wo.wo_word.dw_labels, err, sizeof(err))) {
		admin_reply_error(rp, 400, "%s",
				  len ? err
				      : "labels: expected KEY=VALUE, or KEY= to remove a label, "
					"separated by commas");
		return;
	}
	word_say(arg, &wo, rp);
}

static void say_drain(struct admin *a, const struct http_req *rq, struct http_reply *rp, bool drain)
{
	struct word wo = {.wo_word.dw_has_drain = true, .wo_word.dw_drain = drain};
	struct mds *m = a->a_ops.ao_mds;
	struct job j;
	bool runs;

	wo.wo_word.dw_id = admin_ds_arg(a, rq, rp);
	if (!wo.wo_word.dw_id)
		return;
	runs = !job_find(m, job_drain_id(wo.wo_word.dw_id), &j) && !job_is_over(&j);
	if (drain && !ds_reg_draining(a->a_ops.ao_dsc, wo.wo_word.dw_id))
		job_drain_begin(m, wo.wo_word.dw_id);
	word_say(a, &wo, rp);
	if (!drain && runs && rp->rp_status == 200)
		job_was_cancelled(m, &j);
}

void admin_put_drain(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	say_drain(arg, rq, rp, true);
}

void admin_put_undrain(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	say_drain(arg, rq, rp, false);
}

void admin_get_one(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	struct admin *a = arg;
	uint32_t id = admin_ds_arg(a, rq, rp);
	struct ds_reg_server sv;

	if (id && ds_reg_get(a->a_ops.ao_dsc, id, &sv))
		admin_reply_json(rp, 200, admin_ds_json(a, &sv));
	else if (id)
		admin_reply_error(rp, 404, "%s: no such data server", http_arg(rq, "ds"));
}

void admin_put_kill(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	struct word wo = {.wo_word.dw_kill = true};

	wo.wo_word.dw_id = admin_ds_arg(arg, rq, rp);
	if (wo.wo_word.dw_id)
		word_say(arg, &wo, rp);
}

/* The objects of a restored store become stale where another copy is in sync: that copy is
 * believed, and the restored one is compared before a client reads it. */
void admin_put_admit(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	struct word wo = {.wo_word.dw_admit = true};
	struct ds_reg_terms dt;
	int err = 0;

	wo.wo_word.dw_id = admin_ds_arg(arg, rq, rp);
	if (!wo.wo_word.dw_id)
		return;
	if (ds_reg_terms(((struct admin *)arg)->a_ops.ao_dsc, wo.wo_word.dw_id, &dt) &&
	    dt.dt_barred == DS_REG_WAITING && dt.dt_why == DS_REG_WHY_RESTORED)
		err = admin_ds_stale(arg, wo.wo_word.dw_id);
	if (err)
		admin_reply_error(rp, 500, "cannot mark its objects as stale: %s", strerror(-err));
	else
		word_say(arg, &wo, rp);
}
