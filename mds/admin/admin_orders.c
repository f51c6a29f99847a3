/* SPDX-License-Identifier: Apache-2.0 */
/* admin_orders.c - the orders to data servers that are not done, over the API. */
#include "mds/admin/admin_holders.h"
#include "proto/ctl_more.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_MOST    1000
#define ENTRIES_MOST 100000 /* directory entries that are read to find paths */

struct listing {
	struct admin *l_a;
	struct kv_txn *l_txn;
	unsigned l_budget;
};

/* The words of ctl_order_name() with "-" between them. */
static json_t *admin_orders_what(uint32_t type)
{
	char what[32];

	snprintf(what, sizeof(what), "%s", ctl_order_name(type));
	for (char *p = what; *p; p++)
		if (*p == ' ')
			*p = '-';
	return json_string(what);
}

static json_t *admin_orders_error(int32_t error)
{
	if (!error)
		return json_null();
	if (error == -ENOTCONN || error == -ECONNRESET)
		return json_string("not connected");
	return json_string(error > 0 ? ctl_status_text((uint32_t)error) : strerror(-error));
}

static json_t *admin_orders_row(struct listing *l, const struct lo_order_view *v)
{
	bool file = v->ov_type != CTL_BAR_CLIENT;
	struct ds_reg_server sv;
	bool known = ds_reg_get(l->l_a->a_ops.ao_dsc, v->ov_ds, &sv);

	return json_pack(
		"{s:I, s:o, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:f, s:I, s:o}", "number",
		(json_int_t)v->ov_number, "ds", known ? json_string(sv.sv_name) : json_null(),
		"ds_number", (json_int_t)v->ov_ds, "what", admin_orders_what(v->ov_type), "inode",
		file ? json_integer((json_int_t)v->ov_ino) : json_null(), "path",
		file ? admin_path_json(l->l_a, l->l_txn, v->ov_ino, &l->l_budget) : json_null(),
		"stripe", file ? json_integer(v->ov_stripe) : json_null(), "mirror",
		file ? json_integer(v->ov_mirror) : json_null(), "client",
		file ? json_null() : json_integer((json_int_t)v->ov_client), "age_s",
		(double)v->ov_age_ms / 1000, "tries", (json_int_t)v->ov_tries, "error",
		admin_orders_error(v->ov_error));
}

/* The age counts from when this run of the server first knew of the order. */
void admin_get_orders(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	struct listing l = {.l_a = arg, .l_budget = ENTRIES_MOST};
	struct lo *lo = l.l_a->a_ops.ao_lo;
	uint32_t ds = http_arg(rq, "ds") ? admin_ds_arg(arg, rq, rp) : 0;
	int64_t most = admin_number_arg(rq, rp, "last", 1, ROWS_MOST, ROWS_MOST);
	struct lo_order_view *v = NULL;
	json_t *list;
	long n;

	if ((http_arg(rq, "ds") && !ds) || most < 0)
		return;
	n = lo_orders_list(lo, ds, (size_t)most, &v);
	if (n < 0) {
		admin_reply_error(rp, 500, "out of memory");
		return;
	}
	list = json_array();
	if (kv_read_begin(ns_kv(l.l_a->a_ops.ao_ns), &l.l_txn))
		l.l_txn = NULL; /* no paths, then */
	for (long i = 0; i < n; i++)
		json_array_append_new(list, admin_orders_row(&l, &v[i]));
	if (l.l_txn)
		kv_read_end(l.l_txn);
	free(v);
	admin_reply_json(
		rp, 200,
		json_pack("{s:I, s:o}", "known", (json_int_t)lo_orders_count(lo), "orders", list));
}
