/* SPDX-License-Identifier: Apache-2.0 */
/* admin_client.c - lists clients and what each holds, and evicts one, over the API. */
#include "base/rcu.h"
#include "mds/admin/admin_holders.h"
#include "mds/admin/admin_tag.h"
#include "mds/nfs4/op.h"
#include <errno.h>
#include <stdlib.h>

#define CLIENTS_MOST 10000 /* clients in one answer */

static json_t *addrs_json(const struct st_client_view *v)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < v->cv_naddrs; i++) {
		char text[ST_ADDR_TEXT];

		st_addr_text(v->cv_addr[i], text);
		json_array_append_new(list, json_string(text));
	}
	return list;
}

static const char *admin_client_state_of(const struct st_client_view *v)
{
	if (v->cv_evicting)
		return "evicting";
	if (!v->cv_confirmed)
		return "unconfirmed";
	if (v->cv_expired)
		return "courteous";
	return v->cv_reclaims ? "reclaiming" : "active";
}

/* The protection with which the client's session was made. */
static const char *flavour_of(const struct st_client_view *v)
{
	if (v->cv_sessions)
		return exp_sec_name(v->cv_sec);
	return v->cv_flavor == RPC_AUTH_GSS   ? "krb5"
	       : v->cv_flavor == RPC_AUTH_SYS ? "sys"
					      : "none";
}

static json_t *admin_client_json(struct admin *a, const struct st_client_view *v)
{
	static const char *const tls[] = {
		[EXP_TLS_NONE] = "no", [EXP_TLS_ON] = "server", [EXP_TLS_MUTUAL] = "mutual"};
	uint64_t lease = a->a_ops.ao_mds->m_lease_ms,
		 left = v->cv_silent_ms < lease && !v->cv_evicting ? lease - v->cv_silent_ms : 0;
	json_t *principal = *v->cv_principal ? admin_text(v->cv_principal, strlen(v->cv_principal))
					     : json_null();
	char id[20];

	snprintf(id, sizeof(id), "0x%016llx", (unsigned long long)v->cv_id);
	return json_pack(
		"{s:I, s:s, s:o, s:o, s:o, s:s, s:i, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:s, "
		"s:s, s:o, s:o}",
		"number", (json_int_t)v->cv_number, "clientid", id, "name", admin_client_name(v),
		"owner", admin_text(v->cv_owner, v->cv_owner_len), "addr", addrs_json(v), "state",
		admin_client_state_of(v), "minor", (int)v->cv_minor, "lease_left_s",
		(double)left / 1000, "silent_s", (double)v->cv_silent_ms / 1000, "opens",
		(json_int_t)v->cv_opens, "locks", (json_int_t)v->cv_locks, "delegations",
		(json_int_t)v->cv_delegs, "layouts", (json_int_t)v->cv_layouts, "sessions",
		(json_int_t)v->cv_sessions, "backchannels", (json_int_t)v->cv_backchannels,
		"flavour", flavour_of(v), "tls", tls[v->cv_tls % 3], "principal", principal, "tag",
		admin_tag_json(a, v));
}

/* Reads 0x and hexadecimal digits; 0: the text is something else. */
static uint64_t clientid_of(const char *what)
{
	char *end;
	uint64_t id = what[0] == '0' && what[1] == 'x' ? strtoull(what, &end, 16) : 0;

	return id && !*end ? id : 0;
}

void admin_get_clients(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	struct admin *a = arg;
	struct st *st = a->a_ops.ao_mds->m_st;
	const char *what = http_arg(rq, "client");
	uint64_t only = what ? clientid_of(what) : 0, *ids = NULL;
	json_t *list = json_array();
	struct st_client_view v;
	size_t n = 0;

	/* For the clientid of a client that is gone the list is empty: a caller that waits for an
	 * eviction looks for that. */
	if (what && !only && !(only = admin_client_arg(a, rq, rp))) {
		json_decref(list);
		return;
	}
	if (only && st_client_view(st, only, &v)) {
		json_array_append_new(list, admin_client_json(a, &v));
		n = 1;
	} else if (!only && st_client_ids(st, &ids, &n)) {
		json_decref(list);
		admin_reply_error(rp, 500, "out of memory");
		return;
	}
	for (size_t i = 0; ids && i < n && json_array_size(list) < CLIENTS_MOST; i++)
		if (st_client_view(st, ids[i], &v))
			json_array_append_new(list, admin_client_json(a, &v));
	free(ids);
	admin_reply_json(rp, 200,
			 json_pack("{s:I, s:f, s:o}", "known", (json_int_t)n, "lease_s",
				   a->a_ops.ao_mds->m_lease_ms / 1000.0, "clients", list));
}

static bool is_called(const struct st_client_view *v, const char *what)
{
	json_t *name = admin_client_name(v);
	char text[ST_ADDR_TEXT], *end;
	unsigned long long number = strtoull(what, &end, 0);
	bool is = name && !strcmp(json_string_value(name), what);

	json_decref(name);
	if (*what >= '0' && *what <= '9' && !*end)
		is |= what[1] == 'x' ? number == v->cv_id : number && number == v->cv_number;
	for (unsigned i = 0; i < v->cv_naddrs && !is; i++) {
		st_addr_text(v->cv_addr[i], text);
		is = !strcmp(text, what);
	}
	return is;
}

uint64_t admin_client_arg(struct admin *a, const struct http_req *rq, struct http_reply *rp)
{
	struct st *st = a->a_ops.ao_mds->m_st;
	const char *what = http_arg(rq, "client");
	struct st_client_view v;
	uint64_t *ids, id = 0;
	unsigned found = 0;
	size_t n;

	if (!what || !*what) {
		admin_reply_error(rp, 400,
				  "client: expected a client's number, name, address or clientid");
		return 0;
	}
	if (st_client_ids(st, &ids, &n)) {
		admin_reply_error(rp, 500, "out of memory");
		return 0;
	}
	for (size_t i = 0; i < n; i++) {
		if (!st_client_view(st, ids[i], &v) || !is_called(&v, what))
			continue;
		found++;
		id = ids[i];
	}
	free(ids);
	if (found == 1)
		return id;
	if (found)
		admin_reply_error(rp, 409,
				  "%s: %u clients have that name; give the number or the clientid",
				  what, found);
	else
		admin_reply_error(rp, 404, "%s: no such client", what);
	return 0;
}

/* Begins the eviction: data servers confirm it first. It is over when the client is not listed any
 * more. */
void admin_delete_client(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	struct admin *a = arg;
	struct mds *m = a->a_ops.ao_mds;
	uint64_t id = admin_client_arg(a, rq, rp);
	struct st_client_view v;
	int err;

	if (!id)
		return;
	urcu_memb_register_thread(); /* sessions go to call_rcu */
	err = st_client_view(m->m_st, id, &v)
		      ? file_evict_now(&m->m_file, m->m_thread[0].mt_loop, id)
		      : -ENOENT;
	urcu_memb_unregister_thread();
	if (!err || err == -EALREADY) {
		v.cv_evicting = true;
		admin_reply_json(rp, 200, admin_client_json(a, &v));
	} else if (err == -ENOENT) {
		admin_reply_error(rp, 404, "%s: no such client", http_arg(rq, "client"));
	} else {
		admin_reply_error(rp, 500, "%s: %s", http_arg(rq, "client"), strerror(-err));
	}
}
