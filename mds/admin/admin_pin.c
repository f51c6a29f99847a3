/* SPDX-License-Identifier: Apache-2.0 */
/* admin_pin.c - pins and warm copies over the API (docs/pin.md). A request changes the stored pin;
 * mds/jobs/pin.c makes the copies and takes them away. */
#include "mds/admin/admin_holders.h"
#include "mds/jobs/job.h"
#include "mds/jobs/pin.h"
#include "mds/layout/lo_int.h"
#include <errno.h>
#include <stdlib.h>

#define ENTRIES_MOST 300000	/* directory entries that are read to find paths */
#define FOR_MOST_S   3153600000 /* a hundred years */
#define WARM_S	     86400
#define GROUP_USUAL  "fast"

/* ---- the list ---- */

struct pins {
	struct admin *ps_a;
	struct kv_txn *ps_txn;
	unsigned ps_budget;
	uint64_t ps_only; /* this number; 0: all */
	json_t *ps_list;
};

static json_t *seconds(uint64_t s)
{
	return s ? json_integer((json_int_t)s) : json_null();
}

static json_t *words(const char *text)
{
	return *text ? json_string(text) : json_null();
}

static json_t *pin_json(struct pins *ps, const struct job_pin_view *v)
{
	static const char *const state[LO_PIN_STATES] = {[LO_PIN_COUNT] = "counting",
							 [LO_PIN_MAKE] = "copying",
							 [LO_PIN_HELD] = "held",
							 [LO_PIN_RELEASE] = "ending"};
	const struct lo_pin *p = &v->pv_row;
	bool held = p->pi_state == LO_PIN_HELD, makes = p->pi_state == LO_PIN_MAKE;
	json_t *o = json_pack("{s:I, s:o, s:I, s:s, s:b, s:b, s:s, s:o, s:o}", "id",
			      (json_int_t)p->pi_number, "path",
			      admin_path_json(ps->ps_a, ps->ps_txn, p->pi_ino, &ps->ps_budget),
			      "inode", (json_int_t)p->pi_ino, "group", p->pi_group, "warm",
			      p->pi_warm, "recursive", p->pi_recursive, "state", state[p->pi_state],
			      "made_at", seconds(p->pi_made_s), "ends_at", seconds(p->pi_until_s));

	json_object_set_new(o, "copies",
			    json_integer((json_int_t)(held    ? p->pi_files
						      : makes ? v->pv_files
							      : 0)));
	json_object_set_new(o, "copies_bytes",
			    json_integer((json_int_t)(held    ? p->pi_bytes
						      : makes ? v->pv_bytes
							      : 0)));
	json_object_set_new(o, "total_files",
			    held || makes ? json_integer((json_int_t)p->pi_files) : json_null());
	json_object_set_new(o, "total_bytes",
			    held || makes ? json_integer((json_int_t)p->pi_bytes) : json_null());
	json_object_set_new(o, "without_copy",
			    json_integer((json_int_t)(held    ? p->pi_passed
						      : makes ? v->pv_passed
							      : 0)));
	json_object_set_new(o, "waits_for", words(v->pv_waits));
	json_object_set_new(o, "job", admin_job_json(job_pin_id(p)));
	return o;
}

static int admin_pin_add(void *arg, const struct job_pin_view *v)
{
	struct pins *ps = arg;

	if (!ps->ps_only || ps->ps_only == v->pv_row.pi_number)
		json_array_append_new(ps->ps_list, pin_json(ps, v));
	return 0;
}

static void pins_reply(struct admin *a, uint64_t only, struct http_reply *rp)
{
	struct pins ps = {.ps_a = a, .ps_budget = ENTRIES_MOST, .ps_only = only};
	int err = kv_read_begin(ns_kv(a->a_ops.ao_ns), &ps.ps_txn);

	if (err) {
		admin_reply_error(rp, 500, "%s", strerror(-err));
		return;
	}
	ps.ps_list = json_array();
	job_pins_look(a->a_ops.ao_mds, admin_pin_add, &ps);
	kv_read_end(ps.ps_txn);
	admin_reply_json(rp, 200, json_pack("{s:o}", "pins", ps.ps_list));
}

void admin_get_pins(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	(void)rq;
	pins_reply(arg, 0, rp);
}

/* ---- a pin more ---- */

struct asking {
	struct ns *as_ns;
	struct lo_pin as_pin;
	struct lo_pin as_was; /* one of the same path and group; number 0: there is none */
	unsigned as_n;
};

static int ask_row(void *arg, const struct lo_pin *p)
{
	struct asking *as = arg;

	as->as_n++;
	if (p->pi_ino == as->as_pin.pi_ino && !strcmp(p->pi_group, as->as_pin.pi_group))
		as->as_was = *p;
	return 0;
}

/* A pin of the same path and group is asked for again: what is new there gets a copy too, and its
 * time begins anew. A pin stays a pin when it is only warmed, and stays at least as long. */
static int admin_pin_ask_run(void *arg, struct kv_txn *t)
{
	struct asking *as = arg;
	struct lo_pin *p = &as->as_pin;
	const struct lo_pin *was = &as->as_was;
	int err = lo_pins(t, ask_row, as);

	if (err)
		return err;
	if (was->pi_number) {
		p->pi_number = was->pi_number;
		if (p->pi_warm && !was->pi_warm && was->pi_state != LO_PIN_RELEASE) {
			p->pi_warm = false;
			if (!was->pi_until_s || was->pi_until_s > p->pi_until_s)
				p->pi_until_s = was->pi_until_s;
		}
		p->pi_recursive |= was->pi_recursive;
	} else if (as->as_n >= LO_PINS_MAX) {
		return -EDQUOT;
	} else {
		err = ns_next_order(as->as_ns, t, &p->pi_number);
	}
	return err ? err : lo_pin_put(t, p);
}

/* The labels that the argument means: a name alone is the label group. False: an error was put into
 * rp. */
static bool group_arg(struct admin *a, const struct http_req *rq, struct http_reply *rp,
		      char out[LO_PIN_GROUP_LEN])
{
	const char *group = http_arg(rq, "group");
	unsigned servers;
	int n;

	if (!group || !*group)
		group = GROUP_USUAL;
	n = snprintf(out, LO_PIN_GROUP_LEN, "%s%s", strchr(group, '=') ? "" : "group=", group);
	if (n >= LO_PIN_GROUP_LEN || !lo_group_ok(out, (size_t)n)) {
		admin_reply_error(rp, 400,
				  "group: expected a name, or labels such as speed=nvme, of at "
				  "most %d characters",
				  LO_PIN_GROUP_LEN - 1);
		return false;
	}
	job_pin_room(a->a_ops.ao_mds, out, &servers);
	if (servers)
		return true;
	admin_reply_error(rp, 409,
			  "no data server has the label %s: set it with weft ds group DS %s, or "
			  "name another group",
			  out, out);
	return false;
}

void admin_put_pin(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	struct admin *a = arg;
	struct asking as = {.as_ns = a->a_ops.ao_ns};
	struct lo_pin *p = &as.as_pin;
	const char *path = http_arg(rq, "path");
	int64_t for_s = admin_number_arg(rq, rp, "for_s", 1, FOR_MOST_S, 0);
	struct ns_inode i;
	int err;

	if (for_s < 0 || !admin_inode_arg(a, rq, rp, &i))
		return;
	p->pi_ino = i.i_ino;
	p->pi_warm = http_arg(rq, "warm");
	p->pi_recursive = i.i_type == NS_DIR;
	if (i.i_type != NS_REG && i.i_type != NS_DIR) {
		admin_reply_error(rp, 400, "%s: neither a file nor a directory", path);
		return;
	}
	if (i.i_type == NS_DIR && !http_arg(rq, "recursive")) {
		admin_reply_error(rp, 400, "%s: a directory; ask for all files below it (-r)",
				  path);
		return;
	}
	if (!group_arg(a, rq, rp, p->pi_group))
		return;
	p->pi_made_s = (uint64_t)file_now().t_sec;
	if (p->pi_warm && !for_s)
		for_s = WARM_S;
	p->pi_until_s = for_s ? p->pi_made_s + (uint64_t)for_s : 0;
	err = kv_run_sync(ns_kv(a->a_ops.ao_ns), admin_pin_ask_run, &as);
	if (err == -EDQUOT) {
		admin_reply_error(rp, 409, "there are %d pins, and no more can be made: unpin some",
				  LO_PINS_MAX);
		return;
	}
	if (err) {
		admin_reply_error(rp, 500, "%s: cannot store the pin: %s", path, strerror(-err));
		return;
	}
	job_pin_reload(a->a_ops.ao_mds, p->pi_number);
	pins_reply(a, p->pi_number, rp);
}

/* ---- a pin less ---- */

struct ending {
	uint64_t en_ino, en_id; /* of one of these; 0: not given */
	const char *en_group;	/* NULL: of any group */
	uint64_t en_number[LO_PINS_MAX];
	unsigned en_n;
};

static int end_row(void *arg, const struct lo_pin *p)
{
	struct ending *en = arg;

	if ((en->en_id ? p->pi_number != en->en_id : p->pi_ino != en->en_ino) ||
	    (en->en_group && strcmp(p->pi_group, en->en_group)))
		return 0;
	en->en_number[en->en_n++] = p->pi_number;
	return en->en_n == LO_PINS_MAX;
}

static int admin_pin_end_run(void *arg, struct kv_txn *t)
{
	struct ending *en = arg;
	int err = lo_pins(t, end_row, en);

	for (unsigned k = 0; k < en->en_n && !err; k++)
		err = job_pin_release(t, en->en_number[k]);
	return err;
}

void admin_delete_pin(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	struct admin *a = arg;
	char group[LO_PIN_GROUP_LEN];
	struct ending en = {0};
	struct ns_inode i;
	int64_t id = admin_number_arg(rq, rp, "id", 1, INT64_MAX, 0);
	int err;

	if (id < 0)
		return;
	en.en_id = (uint64_t)id;
	if (!id) {
		if (!admin_inode_arg(a, rq, rp, &i))
			return;
		en.en_ino = i.i_ino;
	}
	if (http_arg(rq, "group")) {
		if (!group_arg(a, rq, rp, group))
			return;
		en.en_group = group;
	}
	err = kv_run_sync(ns_kv(a->a_ops.ao_ns), admin_pin_end_run, &en);
	if (err) {
		admin_reply_error(rp, 500, "cannot end the pin: %s", strerror(-err));
		return;
	}
	if (!en.en_n && id)
		admin_reply_error(rp, 404, "%ld: no pin has that number", (long)id);
	else if (!en.en_n)
		admin_reply_error(rp, 404, "%s: it is not pinned; weft pin list shows the pins",
				  http_arg(rq, "path"));
	for (unsigned k = 0; k < en.en_n; k++)
		job_pin_reload(a->a_ops.ao_mds, en.en_number[k]);
	if (en.en_n)
		pins_reply(a, en.en_n == 1 ? en.en_number[0] : 0, rp);
}
