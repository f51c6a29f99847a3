/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_gss.c - RPCSEC_GSS contexts: the table, making a context, and finding the user behind it; see
 * rpc_gss.h. */
#include "proto/rpc_gss_int.h"
#include "base/clock.h"
#include "base/log.h"
#include <errno.h>
#include <gssapi/gssapi_ext.h>
#include <gssapi/gssapi_krb5.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdio.h>

#define CTX_MOST     16384u
#define INIT_MOST    1024u /* calls that wait for the thread */
#define IDS_KEEP_NS  (300 * 1000000000ull)
#define IDS_RETRY_NS (10 * 1000000000ull) /* when the name service did not answer */
#define HALF_MADE_NS (30 * 1000000000ull) /* a client may take this long for its next token */
#define TELL_NS	     (1000000000ull)	  /* between two refusals in the log */
#define NOBODY	     65534u

struct metric *gss_m_made, *gss_m_failed, *gss_m_dropped, *gss_m_evicted;
static _Atomic int64_t gss_contexts;

static const struct rpc_ids nobody = {.id_uid = NOBODY, .id_gid = NOBODY};

/* ---- the table ---- */

static void lru_unlink(struct gss_ctx *x, enum gss_list k)
{
	struct gss_ctx *newer = x->x_on[k].newer, *older = x->x_on[k].older;
	struct gss_lru *r = x->x_on[k].lru;

	*(newer ? &newer->x_on[k].older : &r->lr_newest) = older;
	*(older ? &older->x_on[k].newer : &r->lr_oldest) = newer;
	x->x_on[k].newer = x->x_on[k].older = NULL;
	x->x_on[k].lru = NULL;
	r->lr_count--;
}

static void lru_front(struct gss_lru *r, struct gss_ctx *x, enum gss_list k)
{
	x->x_on[k].lru = r;
	x->x_on[k].newer = NULL;
	x->x_on[k].older = r->lr_newest;
	*(r->lr_newest ? &r->lr_newest->x_on[k].newer : &r->lr_oldest) = x;
	r->lr_newest = x;
	r->lr_count++;
}

/* Puts x on the list of its owner, which is made if it does not exist. Without memory x is on no
 * such list, and counts only in the list of all. */
static void owner_list(struct rpc_gss *g, struct gss_ctx *x, enum gss_list k, const void *name,
		       size_t len)
{
	uint64_t h = hash_bytes(name, len);
	struct gss_owner *ow = NULL;

	for (struct hash_link *l = hash_first(&g->g_owners, h); l && !ow; l = hash_next(l)) {
		ow = hash_entry(l, struct gss_owner, ow_link);
		if (ow->ow_kind != k || ow->ow_len != len || memcmp(ow->ow_name, name, len) != 0)
			ow = NULL;
	}
	if (!ow) {
		ow = calloc(1, sizeof *ow + len);
		if (!ow || hash_add(&g->g_owners, &ow->ow_link, h)) {
			free(ow);
			return;
		}
		ow->ow_kind = k;
		ow->ow_len = len;
		memcpy(ow->ow_name, name, len);
	}
	lru_front(&ow->ow_lru, x, k);
}

static void owner_unlist(struct rpc_gss *g, struct gss_ctx *x, enum gss_list k)
{
	struct gss_lru *r = x->x_on[k].lru;
	struct gss_owner *ow = caa_container_of(r, struct gss_owner, ow_lru);

	lru_unlink(x, k);
	if (r->lr_count)
		return;
	hash_del(&g->g_owners, &ow->ow_link);
	free(ow);
}

static void ctx_free(struct gss_ctx *x)
{
	OM_uint32 minor;

	if (x->x_sec != GSS_C_NO_CONTEXT)
		gss_delete_sec_context(&minor, &x->x_sec, GSS_C_NO_BUFFER);
	pthread_mutex_destroy(&x->x_lock);
	free(x->x_principal);
	free(x);
}

void gss_ctx_put(struct gss_ctx *x)
{
	struct rpc_gss *g = x->x_gss;
	bool last;

	pthread_mutex_lock(&g->g_lock);
	last = --x->x_refs == 0;
	pthread_mutex_unlock(&g->g_lock);
	if (last)
		ctx_free(x);
}

/* The caller holds g_lock, and gets the table's reference. */
static void table_out(struct rpc_gss *g, struct gss_ctx *x)
{
	hash_del(&g->g_table, &x->x_link);
	lru_unlink(x, GSS_ALL);
	for (enum gss_list k = GSS_ADDR; k < GSS_LISTS; k++)
		if (x->x_on[k].lru)
			owner_unlist(g, x, k);
	x->x_in = false;
	atomic_fetch_sub(&gss_contexts, 1);
}

void gss_ctx_remove(struct gss_ctx *x)
{
	struct rpc_gss *g = x->x_gss;
	bool was;

	pthread_mutex_lock(&g->g_lock);
	was = x->x_in;
	if (was)
		table_out(g, x);
	pthread_mutex_unlock(&g->g_lock);
	if (was)
		gss_ctx_put(x);
}

struct gss_ctx *gss_ctx_find(struct rpc_gss *g, const uint8_t *handle, uint32_t len)
{
	struct gss_ctx *x = NULL;

	if (len != GSS_HANDLE)
		return NULL;
	pthread_mutex_lock(&g->g_lock);
	for (struct hash_link *l = hash_first(&g->g_table, hash_bytes(handle, GSS_HANDLE)); l && !x;
	     l = hash_next(l)) {
		struct gss_ctx *y = hash_entry(l, struct gss_ctx, x_link);

		if (memcmp(y->x_handle, handle, GSS_HANDLE) == 0)
			x = y;
	}
	if (x) {
		x->x_refs++;
		for (enum gss_list k = GSS_ALL; k < GSS_LISTS; k++) {
			struct gss_lru *r = x->x_on[k].lru;

			if (r && r->lr_newest != x) {
				lru_unlink(x, k);
				lru_front(r, x, k);
			}
		}
	}
	pthread_mutex_unlock(&g->g_lock);
	return x;
}

static struct gss_ctx *rpc_gss_ctx_new(struct rpc_gss *g, const struct rpc_conn *c)
{
	struct gss_ctx *x = calloc(1, sizeof *x);

	if (!x)
		return NULL;
	x->x_gss = g;
	x->x_refs = 1;
	x->x_sec = GSS_C_NO_CONTEXT;
	x->x_ids = nobody;
	rpc_conn_host(c, x->x_addr);
	pthread_mutex_init(&x->x_lock, NULL);
	randombytes_buf(x->x_handle, GSS_HANDLE);
	return x;
}

/* The caller holds g_lock. Returns the context that has to go because an address, a principal or
 * the whole table has one too many. */
static struct gss_ctx *too_many(const struct rpc_gss *g, const struct gss_ctx *x)
{
	const unsigned most[GSS_LISTS] = {g->g_opts.go_max, g->g_opts.go_max_addr,
					  g->g_opts.go_max_principal};

	for (unsigned k = GSS_LISTS; k--;) {
		const struct gss_lru *r = x->x_on[k].lru;

		if (r && r->lr_count > most[k])
			return r->lr_oldest;
	}
	return NULL;
}

/* Puts x into the table, with a reference of the table's own, unless it is there. The oldest
 * contexts beyond the limits go. */
static bool table_in(struct rpc_gss *g, struct gss_ctx *x, bool established)
{
	struct gss_ctx *old[GSS_LISTS];
	unsigned n = 0;
	bool in;

	pthread_mutex_lock(&g->g_lock);
	in = x->x_in || hash_add(&g->g_table, &x->x_link, hash_bytes(x->x_handle, GSS_HANDLE)) == 0;
	if (in && !x->x_in) {
		x->x_in = true;
		atomic_fetch_add(&gss_contexts, 1);
		x->x_refs++;
		lru_front(&g->g_all, x, GSS_ALL);
		owner_list(g, x, GSS_ADDR, x->x_addr, sizeof x->x_addr);
	}
	if (in && established && !x->x_on[GSS_PRINCIPAL].lru)
		owner_list(g, x, GSS_PRINCIPAL, x->x_principal, strlen(x->x_principal));
	/* Only this context was added, so each list is over its limit by one at most. */
	while (in && n < GSS_LISTS && (old[n] = too_many(g, x)))
		table_out(g, old[n++]);
	pthread_mutex_unlock(&g->g_lock);
	while (n) {
		metric_add(gss_m_evicted, 1);
		gss_ctx_put(old[--n]);
	}
	return in;
}

/* ---- who it is ---- */

struct refresh {
	struct work r_work;
	struct gss_ctx *r_ctx;
};

static void ids_find(struct gss_ctx *x)
{
	const struct rpc_gss_opts *o = &x->x_gss->g_opts;
	struct rpc_ids ids = nobody;
	int err = o->go_map(o->go_arg, x->x_principal, &ids);

	pthread_mutex_lock(&x->x_lock);
	/* While the name service does not answer, a known user stays known. */
	if (!err)
		x->x_ids = ids;
	else if (err == -ENOENT)
		x->x_ids = nobody;
	x->x_ids_due_ns = clock_mono_ns() + (err && err != -ENOENT ? IDS_RETRY_NS : IDS_KEEP_NS);
	x->x_ids_asked = false;
	pthread_mutex_unlock(&x->x_lock);
}

static void rpc_gss_refresh_run(struct work *w)
{
	struct refresh *r = caa_container_of(w, struct refresh, r_work);

	ids_find(r->r_ctx);
	gss_ctx_put(r->r_ctx);
	free(r);
}

void gss_ctx_refresh(struct gss_ctx *x)
{
	struct rpc_gss *g = x->x_gss;
	struct refresh *r;

	if (x->x_ids_asked || clock_mono_ns() < x->x_ids_due_ns)
		return;
	r = malloc(sizeof *r);
	if (!r)
		return;
	*r = (struct refresh){.r_work.w_run = rpc_gss_refresh_run, .r_ctx = x};
	pthread_mutex_lock(&g->g_lock);
	x->x_refs++;
	pthread_mutex_unlock(&g->g_lock);
	x->x_ids_asked = true;
	if (worker_submit(g->g_opts.go_names, &r->r_work))
		return;
	x->x_ids_asked = false;
	x->x_ids_due_ns = clock_mono_ns() + IDS_RETRY_NS;
	free(r);
	pthread_mutex_lock(&g->g_lock);
	x->x_refs--; /* not the last: the caller has one */
	pthread_mutex_unlock(&g->g_lock);
}

/* ---- making a context ---- */

struct job {
	struct work j_work;
	struct loop_msg j_msg;
	struct rpc_gss *j_gss;
	struct rpc_call *j_call;
	struct gss_ctx *j_ctx; /* a reference */
	gss_buffer_desc j_in, j_out;
	OM_uint32 j_major, j_minor;
};

static struct rpc_call_int *rpc_gss_call_int(struct rpc_call *call)
{
	return caa_container_of(call, struct rpc_call_int, ci_call);
}

/* Writes what the library says about a failure, for the log. */
static void rpc_gss_status_text(OM_uint32 major, OM_uint32 minor, char *out, size_t len)
{
	const OM_uint32 code[2] = {major, minor};
	const int type[2] = {GSS_C_GSS_CODE, GSS_C_MECH_CODE};
	size_t at = 0;

	out[0] = 0;
	for (int i = 0; i < 2; i++) {
		OM_uint32 more = 0, min;
		gss_buffer_desc b = GSS_C_EMPTY_BUFFER;

		if ((i && !code[i]) ||
		    GSS_ERROR(gss_display_status(&min, code[i], type[i], GSS_C_NO_OID, &more, &b)))
			continue;
		if (at < len)
			at += (size_t)snprintf(out + at, len - at, "%s%.*s", at ? ": " : "",
					       (int)b.length, (const char *)b.value);
		gss_release_buffer(&min, &b);
	}
}

/* Runs on the loop of the call. */
static void rpc_gss_job_done(struct loop_msg *m)
{
	struct job *j = caa_container_of(m, struct job, j_msg);
	struct rpc_call_int *ci = rpc_gss_call_int(j->j_call);
	struct gss_ctx *x = j->j_ctx;
	bool good = !GSS_ERROR(j->j_major),
	     complete = good && !(j->j_major & GSS_S_CONTINUE_NEEDED);
	uint32_t window = htobe32(GSS_WINDOW);
	gss_buffer_desc text = {sizeof window, &window}, mic = GSS_C_EMPTY_BUFFER;
	struct xdr_out *r = &j->j_call->c_reply;
	OM_uint32 minor;

	pthread_mutex_lock(&x->x_lock);
	x->x_accepting = false;
	if (complete &&
	    (gss_get_mic(&minor, x->x_sec, GSS_C_QOP_DEFAULT, &text, &mic) != GSS_S_COMPLETE ||
	     mic.length > RPC_MAX_AUTH))
		good = false;
	else if (complete)
		x->x_established = true;
	pthread_mutex_unlock(&x->x_lock);
	if (good && !table_in(j->j_gss, x, complete))
		good = false;
	if (!good) {
		metric_add(gss_m_failed, 1);
		gss_ctx_remove(x);
		if (!GSS_ERROR(j->j_major))
			j->j_major = GSS_S_FAILURE;
	} else if (complete) {
		metric_add(gss_m_made, 1);
		memcpy(ci->ci_verf, mic.value, mic.length);
		ci->ci_verf_len = (uint32_t)mic.length;
	}
	gss_release_buffer(&minor, &mic);
	rpc_reply_head(j->j_call, RPC_A_SUCCESS);
	/* Without a context there is no handle and no token (RFC 2203 section 5.2.3.1). */
	xdr_put_opaque(r, x->x_handle, good ? GSS_HANDLE : 0);
	xdr_put_u32(r, j->j_major);
	xdr_put_u32(r, j->j_minor);
	xdr_put_u32(r, good ? GSS_WINDOW : 0);
	xdr_put_opaque(r, j->j_out.value, good ? (uint32_t)j->j_out.length : 0);
	rpc_reply(j->j_call);
	gss_release_buffer(&minor, &j->j_out);
	gss_ctx_put(x);
	free(j);
}

static void rpc_gss_job_map(struct work *w)
{
	struct job *j = caa_container_of(w, struct job, j_work);

	ids_find(j->j_ctx);
	loop_post(j->j_call->c_loop, &j->j_msg);
}

/* Returns NULL for a principal that could be mistaken for another one. */
static char *principal_of(gss_name_t name)
{
	gss_buffer_desc b = GSS_C_EMPTY_BUFFER;
	OM_uint32 minor;
	char *out = NULL;

	if (gss_display_name(&minor, name, &b, NULL) == GSS_S_COMPLETE && b.length &&
	    b.length < 1024 && !memchr(b.value, 0, b.length))
		out = strndup(b.value, b.length);
	gss_release_buffer(&minor, &b);
	return out;
}

static void job_accept(struct work *w)
{
	struct job *j = caa_container_of(w, struct job, j_work);
	struct gss_ctx *x = j->j_ctx;
	gss_name_t name = GSS_C_NO_NAME;
	OM_uint32 seconds = 0, minor;
	char text[256];

	pthread_mutex_lock(&x->x_lock);
	j->j_major = gss_accept_sec_context(&j->j_minor, &x->x_sec, j->j_gss->g_cred, &j->j_in,
					    GSS_C_NO_CHANNEL_BINDINGS, &name, NULL, &j->j_out, NULL,
					    &seconds, NULL);
	x->x_expires_ns =
		clock_mono_ns() +
		(j->j_major & GSS_S_CONTINUE_NEEDED ? HALF_MADE_NS : seconds * 1000000000ull);
	pthread_mutex_unlock(&x->x_lock);
	/* A context that needs another round needs a token to send (RFC 2743 section 2.2.2). MIT's
	 * krb5 asks for another round without a token after a token of an unknown type. */
	if (!GSS_ERROR(j->j_major) && (j->j_major & GSS_S_CONTINUE_NEEDED) && !j->j_out.length)
		j->j_major = GSS_S_DEFECTIVE_TOKEN;
	if (j->j_major == GSS_S_COMPLETE) {
		x->x_principal = principal_of(name);
		if (!x->x_principal)
			j->j_major = GSS_S_BAD_NAME;
	}
	if (name != GSS_C_NO_NAME)
		gss_release_name(&minor, &name);
	if (GSS_ERROR(j->j_major) && clock_mono_ns() >= j->j_gss->g_told_ns) {
		j->j_gss->g_told_ns = clock_mono_ns() + TELL_NS;
		rpc_gss_status_text(j->j_major, j->j_minor, text, sizeof text);
		log_info("gss: refused a client's context: %s", text);
	}
	j->j_work.w_run = rpc_gss_job_map;
	if (j->j_major == GSS_S_COMPLETE && worker_submit(j->j_gss->g_opts.go_names, &j->j_work))
		return;
	loop_post(j->j_call->c_loop, &j->j_msg);
}

enum rpc_gss_verdict gss_init(struct rpc_gss *g, struct rpc_call *call, struct rpc_head *h)
{
	const struct rpc_gss_head *gh = &h->rhd_gss;
	bool more = gh->gh_proc == RPC_GSS_CONTINUE_INIT, idle;
	struct gss_ctx *x;
	struct job *j;
	uint32_t len;
	const uint8_t *token = xdr_get_opaque(&call->c_args, GSS_MAX_TOKEN, &len);

	h->rhd_auth = RPC_AUTH_BADCRED;
	if (h->rhd_proc != 0 || (!more && gh->gh_handle_len))
		return RPC_GSS_AUTH;
	if (!token)
		return RPC_GSS_ARGS;
	x = more ? gss_ctx_find(g, gh->gh_handle, gh->gh_handle_len)
		 : rpc_gss_ctx_new(g, call->c_conn);
	if (!x)
		return RPC_GSS_AUTH;
	pthread_mutex_lock(&x->x_lock);
	/* The context must be half made, no other call may be using it, and it must not have been
	 * idle for too long. */
	idle = !x->x_established && !x->x_accepting &&
	       (!more || clock_mono_ns() <= x->x_expires_ns);
	if (idle)
		x->x_accepting = true;
	pthread_mutex_unlock(&x->x_lock);
	if (!idle) {
		gss_ctx_put(x);
		return RPC_GSS_AUTH;
	}
	j = malloc(sizeof *j);
	if (j)
		*j = (struct job){.j_work.w_run = job_accept,
				  .j_msg.m_run = rpc_gss_job_done,
				  .j_gss = g,
				  .j_call = call,
				  .j_ctx = x,
				  .j_in = {len, (void *)token}};
	if (j && worker_submit(g->g_worker, &j->j_work))
		return RPC_GSS_TAKEN;
	free(j);
	pthread_mutex_lock(&x->x_lock);
	x->x_accepting = false;
	pthread_mutex_unlock(&x->x_lock);
	gss_ctx_put(x);
	metric_add(gss_m_failed, 1);
	h->rhd_auth = RPC_AUTH_REJECTEDCRED;
	return RPC_GSS_AUTH;
}

/* ---- life ---- */

static double gauge_contexts(void *arg)
{
	(void)arg;
	return (double)atomic_load(&gss_contexts);
}

void rpc_gss_metrics(void)
{
	if (gss_m_made)
		return;
	metric_gauge("weft_rpc_gss_contexts", "RPCSEC_GSS contexts.", "", gauge_contexts, NULL);
	gss_m_made = metric_counter("weft_rpc_gss_made_total", "RPCSEC_GSS contexts made.", "");
	gss_m_failed =
		metric_counter("weft_rpc_gss_failed_total", "RPCSEC_GSS contexts refused.", "");
	gss_m_dropped = metric_counter(
		"weft_rpc_gss_dropped_total",
		"Calls dropped because their RPCSEC_GSS sequence number was used or is too old.",
		"");
	gss_m_evicted = metric_counter("weft_rpc_gss_evicted_total",
				       "RPCSEC_GSS contexts dropped to make room.", "");
}

/* Accepts any key of the service nfs: the clients and the key table decide the name of this
 * server. */
static int cred_acquire(struct rpc_gss *g, char *err, size_t errlen)
{
	gss_key_value_element_desc e[2] = {{"keytab", g->g_opts.go_keytab}, {"rcache", "none:"}};
	gss_key_value_set_desc store = {2, e};
	gss_OID_set_desc mechs = {1, (gss_OID)gss_mech_krb5};
	gss_buffer_desc service = {3, (void *)"nfs"};
	gss_name_t name = GSS_C_NO_NAME;
	OM_uint32 major, minor, min;
	char text[256];

	major = gss_import_name(&minor, &service, GSS_C_NT_HOSTBASED_SERVICE, &name);
	if (!GSS_ERROR(major))
		major = gss_acquire_cred_from(&minor, name, GSS_C_INDEFINITE, &mechs, GSS_C_ACCEPT,
					      &store, &g->g_cred, NULL, NULL);
	if (name != GSS_C_NO_NAME)
		gss_release_name(&min, &name);
	if (!GSS_ERROR(major))
		return 0;
	rpc_gss_status_text(major, minor, text, sizeof text);
	snprintf(err, errlen, "%s: no keys of nfs/...: %s", g->g_opts.go_keytab, text);
	return -ENOKEY;
}

struct rpc_gss *rpc_gss_new(void)
{
	struct rpc_gss *g = calloc(1, sizeof *g);

	if (!g)
		return NULL;
	rpc_gss_metrics();
	pthread_mutex_init(&g->g_lock, NULL);
	return g;
}

int rpc_gss_open(struct rpc_gss *g, const struct rpc_gss_opts *opts, char *err, size_t errlen)
{
	int e;

	g->g_opts = *opts;
	if (!g->g_opts.go_max)
		g->g_opts.go_max = CTX_MOST;
	if (!g->g_opts.go_max_addr)
		g->g_opts.go_max_addr = g->g_opts.go_max;
	if (!g->g_opts.go_max_principal)
		g->g_opts.go_max_principal = g->g_opts.go_max;
	e = cred_acquire(g, err, errlen);
	if (e)
		return e;
	e = worker_create(&g->g_worker, "weft-gss", INIT_MOST);
	if (e)
		snprintf(err, errlen, "Kerberos: %s", strerror(-e));
	return e;
}

void rpc_gss_destroy(struct rpc_gss *g)
{
	OM_uint32 minor;

	if (g->g_worker)
		worker_destroy(g->g_worker);
	while (g->g_all.lr_oldest)
		gss_ctx_remove(g->g_all.lr_oldest);
	free(g->g_table.h_slot);
	free(g->g_owners.h_slot);
	gss_release_cred(&minor, &g->g_cred);
	pthread_mutex_destroy(&g->g_lock);
	free(g);
}
