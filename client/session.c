/* SPDX-License-Identifier: Apache-2.0 */
/*
 * session.c - a client's life (RFC 8881 sections 2.4, 2.10 and 8.4). The setup has these steps, one
 * after the other: EXCHANGE_ID, CREATE_SESSION, reclaims, RECLAIM_COMPLETE, and the server's
 * limits. A loss takes the client back to one of the steps, and it goes on from there. Then come
 * connections, renewal, and the end.
 *
 * The steps' calls are urgent: they go while other calls wait. One step is under way at a time
 * (w_step).
 */
#include "base/clock.h"
#include "base/log.h"
#include "client/back.h"
#include "client/device.h"
#include "client/open.h"
#include "client/report.h"
#include "client/res.h"
#include "client/ring.h"
#include "client/session.h"
#include "client/weft_call.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <urcu/compiler.h>

#define TICK_MS	      1000u
#define AGAIN_MOST_MS 2000u
#define CONNECT_MS    30000u
#define CLOSE_MS      3000
#define MAX_OPS	      64u
#define LEAST_CHANNEL 2048u

static void step_over(struct weft *w)
{
	w->w_step = false;
	w->w_setup_wait_ms = 0;
	wc_setup_go(w);
}

static void setup_timer(struct loop_timer *t)
{
	struct weft *w = caa_container_of(t, struct weft, w_setup_timer);

	w->w_step = false;
	wc_setup_go(w);
}

/* The setup goes on later. A client that never came up reports the reason at once, unless the
 * server asks it to wait. */
static void step_failed(struct weft *w, int err, uint32_t status)
{
	if (w->w_state == WC_CLOSING || w->w_state == WC_FAILED) {
		w->w_step = false;
		return;
	}
	if (!w->w_nsessions && status != NFS4ERR_DELAY && status != NFS4ERR_GRACE &&
	    err != -ETIMEDOUT) {
		wc_fail(w, err);
		return;
	}
	w->w_setup_wait_ms = !w->w_setup_wait_ms		      ? 50
			     : w->w_setup_wait_ms * 2 < AGAIN_MOST_MS ? w->w_setup_wait_ms * 2
								      : AGAIN_MOST_MS;
	loop_timer_start(w->w_loop, &w->w_setup_timer, w->w_setup_wait_ms);
}

/* ---- EXCHANGE_ID (section 18.35) ---- */

static void exchange_put(struct wc_call *c, struct xdr_out *x)
{
	struct weft *w = c->wcl_w;

	wc_call_op(c, x, OP_EXCHANGE_ID);
	xdr_put_fixed(x, w->w_verifier, NFS4_VERIFIER_SIZE);
	xdr_put_opaque(x, w->w_owner, (uint32_t)strlen(w->w_owner));
	xdr_put_u32(x, 0); /* flags */
	xdr_put_u32(x, SP4_NONE);
	/* The implementation: by its name the server decides about striped layouts. */
	xdr_put_u32(x, 1);
	xdr_put_opaque(x, WEFT_CLIENT_DOMAIN, sizeof(WEFT_CLIENT_DOMAIN) - 1);
	xdr_put_opaque(x, WEFT_CLIENT_NAME, sizeof(WEFT_CLIENT_NAME) - 1);
	xdr_put_u64(x, 0); /* its date: none */
	xdr_put_u32(x, 0);
}

static void exchange_got(struct wc_call *c, struct wc_res *r)
{
	uint32_t n;

	if (!wc_res_op(r, OP_EXCHANGE_ID))
		return;
	c->wcl_off = xdr_get_u64(r->x);
	c->wcl_n = xdr_get_u32(r->x);
	c->wcl_w->w_pnfs =
		xdr_get_u32(r->x) & EXCHGID4_FLAG_USE_PNFS_MDS && !c->wcl_w->w_opts.wo_no_layouts;
	if (xdr_get_u32(r->x) != SP4_NONE)
		r->r_bad = true;
	xdr_get_u64(r->x); /* the server's owner and scope */
	xdr_get_opaque(r->x, NFS4_OPAQUE_LIMIT, &n);
	xdr_get_opaque(r->x, NFS4_OPAQUE_LIMIT, &n);
	n = xdr_get_u32(r->x);
	if (n > 1)
		r->x->bad = true;
	if (n == 1 && !r->x->bad) {
		xdr_get_opaque(r->x, NFS4_OPAQUE_LIMIT, &n);
		xdr_get_opaque(r->x, NFS4_OPAQUE_LIMIT, &n);
		xdr_take(r->x, 12);
	}
}

static void exchange_end(struct wc_call *c, int err, uint32_t status)
{
	struct weft *w = c->wcl_w;

	if (status == NFS4ERR_MINOR_VERS_MISMATCH && w->w_minor == 2 && !w->w_opts.wo_minor) {
		w->w_minor = 1;
		step_over(w);
		return;
	}
	if (err) {
		step_failed(w, err, status);
		return;
	}
	if (w->w_clientid != c->wcl_off) {
		w->w_lost_state = w->w_clientid != 0;
		w->w_reclaimed = false;
	}
	w->w_clientid = c->wcl_off;
	w->w_create_seq = c->wcl_n;
	w->w_have_client = true;
	step_over(w);
}

static const struct wc_kind exchange_kind = {
	.k_put = exchange_put, .k_got = exchange_got, .k_end = exchange_end, .k_bare = true};

/* ---- CREATE_SESSION (section 18.36) ---- */

static void put_channel(struct xdr_out *x, uint32_t req, uint32_t resp, uint32_t cached,
			uint32_t ops, uint32_t slots)
{
	xdr_put_u32(x, 0);
	xdr_put_u32(x, req);
	xdr_put_u32(x, resp);
	xdr_put_u32(x, cached);
	xdr_put_u32(x, ops);
	xdr_put_u32(x, slots);
	xdr_put_u32(x, 0);
}

static void session_create_put(struct wc_call *c, struct xdr_out *x)
{
	struct weft *w = c->wcl_w;
	uint32_t bytes = w->w_opts.wo_max_io + WC_FRAME;

	wc_call_op(c, x, OP_CREATE_SESSION);
	xdr_put_u64(x, w->w_clientid);
	xdr_put_u32(x, w->w_create_seq);
	xdr_put_u32(x, CREATE_SESSION4_FLAG_CONN_BACK_CHAN | CREATE_SESSION4_FLAG_PERSIST);
	put_channel(x, bytes, bytes, WC_FRAME, MAX_OPS, w->w_opts.wo_slots);
	put_channel(x, WC_CB_BYTES, WC_CB_BYTES, WC_CB_BYTES, 8, WC_CB_SLOTS);
	xdr_put_u32(x, NFS4_CALLBACK_DEFAULT);
	xdr_put_u32(x, 1); /* one way to call us: AUTH_SYS, with our own uid and gid */
	xdr_put_u32(x, RPC_AUTH_SYS);
	xdr_put_u32(x, 0);
	xdr_put_opaque(x, "weft", 4);
	xdr_put_u32(x, w->w_cred.rc_uid);
	xdr_put_u32(x, w->w_cred.rc_gid);
	xdr_put_u32(x, 0);
}

struct channel {
	uint32_t req, resp, cached, ops, slots;
};

static void get_channel(struct xdr_in *x, struct channel *ch)
{
	uint32_t n;

	xdr_get_u32(x);
	ch->req = xdr_get_u32(x);
	ch->resp = xdr_get_u32(x);
	ch->cached = xdr_get_u32(x);
	ch->ops = xdr_get_u32(x);
	ch->slots = xdr_get_u32(x);
	n = xdr_get_u32(x);
	if (n > 1)
		x->bad = true;
	if (n == 1)
		xdr_get_u32(x);
}

static uint32_t session_least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static void session_create_got(struct wc_call *c, struct wc_res *r)
{
	struct weft *w = c->wcl_w;
	struct channel fore, back;
	const uint8_t *id;

	if (!wc_res_op(r, OP_CREATE_SESSION))
		return;
	id = xdr_get_fixed(r->x, NFS4_SESSIONID_SIZE);
	if (xdr_get_u32(r->x) != w->w_create_seq)
		r->r_bad = true;
	xdr_get_u32(r->x);
	get_channel(r->x, &fore);
	get_channel(r->x, &back);
	/* Less than this is no channel to work with. */
	if (fore.req < LEAST_CHANNEL || fore.resp < LEAST_CHANNEL || fore.ops < 8 || !fore.slots)
		r->r_bad = true;
	if (r->x->bad || r->r_bad)
		return;
	memcpy(w->w_session, id, NFS4_SESSIONID_SIZE);
	w->w_max_req = session_least(fore.req, w->w_opts.wo_max_io + WC_FRAME);
	w->w_max_resp = session_least(fore.resp, w->w_opts.wo_max_io + WC_FRAME);
	w->w_max_cached = session_least(fore.cached, w->w_max_resp);
	w->w_max_ops = session_least(fore.ops, MAX_OPS);
	w->w_no_flex = w->w_threshold = w->w_no_report = w->w_no_stats = false;
	w->w_nslots = session_least(fore.slots, w->w_opts.wo_slots);
}

static void create_end(struct wc_call *c, int err, uint32_t status)
{
	struct weft *w = c->wcl_w;

	if (err) {
		/* Also after a lost reply: EXCHANGE_ID returns the sequence id that is next. */
		w->w_have_client = false;
		step_failed(w, err, status == NFS4ERR_STALE_CLIENTID ? NFS4ERR_DELAY : status);
		return;
	}
	w->w_create_seq++;
	w->w_gen++;
	w->w_nsessions++;
	w->w_have_session = true;
	w->w_spoiled = false;
	w->w_target = w->w_nslots - 1;
	for (uint32_t i = 0; i < WEFT_MAX_SLOTS; i++)
		w->w_slots[i] = (struct wc_slot){.sl_seq = 1};
	memset(w->w_busy, 0, sizeof(w->w_busy));
	wc_back_reset(w);
	for (unsigned i = 0; i < w->w_nconns; i++) {
		struct wc_conn *cn = &w->w_conns[i];

		cn->cn_bound = cn == c->wcl_conn && cn->cn_conn;
		if (cn->cn_conn && !cn->cn_bound)
			wc_bind(cn);
	}
	step_over(w);
}

static const struct wc_kind create_kind = {.k_put = session_create_put,
					   .k_got = session_create_got,
					   .k_end = create_end,
					   .k_bare = true};

/* ---- RECLAIM_COMPLETE (section 18.51) ---- */

static void complete_put(struct wc_call *c, struct xdr_out *x)
{
	wc_call_op(c, x, OP_RECLAIM_COMPLETE);
	xdr_put_bool(x, false);
}

static void complete_got(struct wc_call *c, struct wc_res *r)
{
	(void)c;
	wc_res_op(r, OP_RECLAIM_COMPLETE);
}

static void complete_end(struct wc_call *c, int err, uint32_t status)
{
	struct weft *w = c->wcl_w;

	if (err && status != NFS4ERR_COMPLETE_ALREADY) {
		step_failed(w, err, status);
		return;
	}
	w->w_reclaimed = true;
	step_over(w);
}

static const struct wc_kind complete_kind = {.k_put = complete_put,
					     .k_got = complete_got,
					     .k_end = complete_end,
					     .k_cache = true,
					     .k_urgent = true};

/* ---- the server's limits ---- */

static const unsigned limits[] = {FATTR4_LEASE_TIME, FATTR4_MAXREAD, FATTR4_MAXWRITE};

static void limits_put(struct wc_call *c, struct xdr_out *x)
{
	wc_call_op(c, x, OP_PUTROOTFH);
	wc_call_op(c, x, OP_GETATTR);
	wc_put_bits(x, limits, CAA_ARRAY_SIZE(limits));
}

static void limits_got(struct wc_call *c, struct wc_res *r)
{
	struct weft *w = c->wcl_w;
	uint64_t rd = WC_MAX_IO, wr = WC_MAX_IO;
	uint32_t mask[3], n, lease = 90;
	struct xdr_in in;
	const uint8_t *p;

	if (!wc_res_op(r, OP_PUTROOTFH) || !wc_res_op(r, OP_GETATTR))
		return;
	wc_get_bits(r->x, mask);
	p = xdr_get_opaque(r->x, UINT32_MAX, &n);
	if (r->x->bad)
		return;
	xdr_in_init(&in, n ? p : (const uint8_t *)"", n);
	if (mask[0] & 1u << FATTR4_LEASE_TIME)
		lease = xdr_get_u32(&in);
	if (mask[0] & 1u << FATTR4_MAXREAD)
		rd = xdr_get_u64(&in);
	if (mask[0] & 1u << FATTR4_MAXWRITE)
		wr = xdr_get_u64(&in);
	if (in.bad || xdr_left(&in) || !rd || !wr) {
		r->x->bad = true;
		return;
	}
	w->w_lease_s = lease ? lease : 1;
	w->w_max_read = rd > WC_MAX_IO ? WC_MAX_IO : (uint32_t)rd;
	w->w_max_read = session_least(session_least(w->w_max_read, w->w_opts.wo_max_io),
				      w->w_max_resp - 512);
	w->w_max_write = wr > WC_MAX_IO ? WC_MAX_IO : (uint32_t)wr;
	w->w_max_write = session_least(session_least(w->w_max_write, w->w_opts.wo_max_io),
				       w->w_max_req - 768);
}

static void limits_end(struct wc_call *c, int err, uint32_t status)
{
	struct weft *w = c->wcl_w;

	/* Servers answer this to some clients only (NFS4ERR_WRONGSEC and the like). Guess the
	 * limits then. */
	if (err && status && w->w_have_session && status != NFS4ERR_BADSESSION) {
		w->w_lease_s = 30;
		w->w_max_read = w->w_max_write =
			session_least(session_least(w->w_max_req, w->w_max_resp) - 768, 65536);
	} else if (err) {
		step_failed(w, err, status);
		return;
	}
	step_over(w);
}

static const struct wc_kind limits_kind = {
	.k_put = limits_put, .k_got = limits_got, .k_end = limits_end, .k_urgent = true};

/* ---- the steps ---- */

static struct wc_conn *conn_up(struct weft *w)
{
	for (unsigned i = 0; i < w->w_nconns; i++)
		if (w->w_conns[i].cn_conn)
			return &w->w_conns[i];
	return NULL;
}

static void step_send(struct weft *w, const struct wc_kind *kind, struct wc_conn *cn)
{
	struct wc_call *c = wc_call_new(w, kind, NULL, NULL);

	w->w_step = true;
	if (!c)
		step_failed(w, -ENOMEM, NFS4ERR_DELAY);
	else if (kind->k_bare)
		wc_call_send_on(c, cn);
	else
		wc_call_send(c);
}

static void reclaimed(struct weft *w, bool cut)
{
	if (!cut)
		w->w_lost_state = false;
	step_over(w);
}

void wc_setup_go(struct weft *w)
{
	struct wc_conn *cn = conn_up(w);

	if (w->w_state != WC_SETUP || w->w_step || !cn)
		return;
	if (!w->w_have_client) {
		step_send(w, &exchange_kind, cn);
	} else if (!w->w_have_session) {
		step_send(w, &create_kind, cn);
	} else if (w->w_lost_state) {
		w->w_step = true;
		wc_files_reclaim(w, reclaimed);
	} else if (!w->w_reclaimed) {
		step_send(w, &complete_kind, cn);
	} else if (!w->w_lease_s) {
		step_send(w, &limits_kind, cn);
	} else {
		w->w_state = WC_READY;
		wc_ring_poke(w->w_ring);
		wc_pump(w);
	}
}

void wc_session_lost(struct weft *w)
{
	if (!w->w_have_session)
		return;
	w->w_have_session = false;
	/* The next session is asked for its limits again. */
	w->w_lease_s = 0;
	w->w_gen++;
	if (w->w_state == WC_READY)
		w->w_state = WC_SETUP;
	wc_setup_go(w);
}

void wc_fail(struct weft *w, int err)
{
	w->w_state = WC_FAILED;
	w->w_err = err;
	w->w_step = false;
	wc_ring_poke(w->w_ring);
	wc_calls_fail(w, err);
}

void wc_seq_flags(struct weft *w, uint32_t flags)
{
	if (flags & (SEQ4_STATUS_CB_PATH_DOWN | SEQ4_STATUS_CB_PATH_DOWN_SESSION |
		     SEQ4_STATUS_BACKCHANNEL_FAULT))
		w->w_bind_again = true;
	if (flags & SEQ4_STATUS_RESTART_RECLAIM_NEEDED && w->w_state == WC_READY) {
		w->w_lost_state = true;
		w->w_reclaimed = false;
		w->w_state = WC_SETUP;
		wc_setup_go(w);
	}
}

/* ---- connections: BIND_CONN_TO_SESSION (section 18.34) ---- */

static void bind_put(struct wc_call *c, struct xdr_out *x)
{
	wc_call_op(c, x, OP_BIND_CONN_TO_SESSION);
	xdr_put_fixed(x, c->wcl_w->w_session, NFS4_SESSIONID_SIZE);
	xdr_put_u32(x, CDFC4_FORE_OR_BOTH);
	xdr_put_bool(x, false);
}

static void bind_got(struct wc_call *c, struct wc_res *r)
{
	(void)c;
	if (!wc_res_op(r, OP_BIND_CONN_TO_SESSION))
		return;
	xdr_get_fixed(r->x, NFS4_SESSIONID_SIZE);
	xdr_get_u32(r->x);
	xdr_get_bool(r->x);
}

static void bind_end(struct wc_call *c, int err, uint32_t status)
{
	struct wc_conn *cn = c->wcl_conn;
	struct weft *w = c->wcl_w;

	if (w->w_state == WC_CLOSING || c->wcl_gen != w->w_gen)
		return;
	if (status == NFS4ERR_BADSESSION || status == NFS4ERR_DEADSESSION) {
		wc_session_lost(w);
		return;
	}
	/* Use the connection after any other refusal: SEQUENCE binds it as well. */
	if (cn->cn_conn && cn->cn_conn == c->wcl_more && (!err || status)) {
		cn->cn_bound = true;
		wc_pump(w);
	}
}

static const struct wc_kind bind_kind = {
	.k_put = bind_put, .k_got = bind_got, .k_end = bind_end, .k_bare = true};

void wc_bind(struct wc_conn *cn)
{
	struct weft *w = cn->cn_w;
	struct wc_call *c = wc_call_new(w, &bind_kind, NULL, NULL);

	if (!c) {
		rpc_conn_close(cn->cn_conn);
		return;
	}
	c->wcl_gen = w->w_gen;
	c->wcl_more = cn->cn_conn;
	wc_call_send_on(c, cn);
}

/* NFSv3 has no session to bind to. */
static void nfs3_up(struct wc_conn *cn)
{
	struct weft *w = cn->cn_w;

	cn->cn_bound = true;
	w->w_state = WC_READY;
	wc_ring_poke(w->w_ring);
	wc_pump(w);
}

static void conn_is_up(struct rpc_client *cl, struct rpc_conn *conn, void *arg)
{
	struct wc_conn *cn = arg;
	struct weft *w = cn->cn_w;

	(void)cl;
	cn->cn_conn = conn;
	cn->cn_bound = false;
	rpc_conn_set_priv(conn, w);
	if (w->w_state == WC_CLOSING || w->w_state == WC_FAILED)
		return;
	if (w->w_opts.wo_nfs3)
		nfs3_up(cn);
	else if (w->w_have_session)
		wc_bind(cn);
	else
		wc_setup_go(w);
}

static void conn_is_down(struct rpc_client *cl, int err, void *arg)
{
	struct wc_conn *cn = arg;
	struct weft *w = cn->cn_w;

	(void)cl;
	cn->cn_conn = NULL;
	cn->cn_bound = false;
	if (!w->w_nsessions && w->w_state == WC_SETUP && cn == &w->w_conns[0])
		wc_fail(w, err);
}

/* ---- renewal (section 8.3) ---- */

static void renew_put(struct wc_call *c, struct xdr_out *x)
{
	(void)c;
	(void)x;
}

static void renew_got(struct wc_call *c, struct wc_res *r)
{
	(void)c;
	(void)r;
}

static void renew_end(struct wc_call *c, int err, uint32_t status)
{
	(void)err;
	(void)status;
	c->wcl_w->w_renewing = false;
}

static const struct wc_kind renew_kind = {
	.k_put = renew_put, .k_got = renew_got, .k_end = renew_end};

static void session_tick(struct loop_timer *t)
{
	struct weft *w = caa_container_of(t, struct weft, w_tick);
	uint64_t now = loop_now_ns(w->w_loop);
	struct wc_conn *cn = conn_up(w);

	loop_timer_start(w->w_loop, t, TICK_MS);
	wc_calls_expire(w);
	wc_lo_tell_stats(w);
	if (w->w_spoiled && w->w_have_session && cn) {
		w->w_spoiled = false;
		wc_session_lost(w);
	}
	if (w->w_bind_again && w->w_have_session && cn) {
		w->w_bind_again = false;
		wc_bind(cn);
	}
	if (w->w_have_session && w->w_state == WC_READY && !w->w_renewing &&
	    now - w->w_used_ns > w->w_lease_s * 1000000000ull / 3) {
		struct wc_call *c = wc_call_new(w, &renew_kind, NULL, NULL);

		w->w_renewing = c != NULL;
		if (c)
			wc_call_send(c);
	}
}

/* ---- beginning ---- */

static void name_make(struct weft *w)
{
	static _Atomic uint32_t count;
	uint64_t now = clock_of(CLOCK_REALTIME);
	char host[64] = "";

	memcpy(w->w_verifier, &now, sizeof(w->w_verifier));
	if (w->w_opts.wo_owner) {
		snprintf(w->w_owner, sizeof(w->w_owner), "%s", w->w_opts.wo_owner);
		return;
	}
	gethostname(host, sizeof(host) - 1);
	snprintf(w->w_owner, sizeof(w->w_owner), "libweft %s %ld.%u.%llx", host, (long)getpid(),
		 atomic_fetch_add(&count, 1) + 1, (unsigned long long)now);
}

static int opts_check(struct weft *w)
{
	struct weft_opts *o = &w->w_opts;

	if (o->wo_minor > 2 || o->wo_conns > WEFT_MAX_CONNS || o->wo_ds_conns > WEFT_MAX_CONNS ||
	    o->wo_slots > WEFT_MAX_SLOTS || o->wo_ngids > WEFT_MAX_GIDS ||
	    o->wo_max_io > WC_MAX_IO || (o->wo_max_io && o->wo_max_io < 4096) || !o->wo_server ||
	    (o->wo_owner && strlen(o->wo_owner) > 200))
		return -EINVAL;
	o->wo_conns = o->wo_conns ? o->wo_conns : 1;
	o->wo_ds_conns = o->wo_ds_conns ? o->wo_ds_conns : 1;
	o->wo_slots = o->wo_slots ? o->wo_slots : 64;
	o->wo_max_io = o->wo_max_io ? o->wo_max_io : WC_MAX_IO;
	o->wo_timeout_ms = o->wo_timeout_ms ? o->wo_timeout_ms : 60000;
	w->w_minor = o->wo_minor ? o->wo_minor : 2;
	w->w_cred = (struct rpc_cred){.rc_flavor = RPC_AUTH_SYS,
				      .rc_uid = o->wo_uid,
				      .rc_gid = o->wo_gid,
				      .rc_ngids = o->wo_ngids};
	memcpy(w->w_cred.rc_gids, o->wo_gids, o->wo_ngids * sizeof(o->wo_gids[0]));
	return 0;
}

static int conns_make(struct weft *w)
{
	static const struct rpc_client_ops ops = {.cl_up = conn_is_up, .cl_down = conn_is_down};
	struct sockaddr_storage ss;
	socklen_t len;
	int err = rpc_addr_parse(w->w_opts.wo_server, 2049, &ss, &len);

	for (unsigned i = 0; i < w->w_opts.wo_conns && !err; i++) {
		struct wc_conn *cn = &w->w_conns[i];

		cn->cn_w = w;
		err = rpc_client_create(&cn->cn_client, w->w_loop, (struct sockaddr *)&ss, len,
					&wc_back_service, &ops, cn);
		if (!err)
			w->w_nconns++;
	}
	for (unsigned i = 0; i < w->w_nconns && !err; i++)
		rpc_client_start(w->w_conns[i].cn_client);
	return err;
}

static void conns_drop(struct weft *w)
{
	for (unsigned i = 0; i < w->w_nconns; i++) {
		struct rpc_client *cl = w->w_conns[i].cn_client;

		w->w_conns[i].cn_client = NULL;
		w->w_conns[i].cn_conn = NULL;
		if (cl)
			rpc_client_destroy(cl);
	}
}

/* The client's calls come back from the transport, in turns of the loop. */
static void weft_free(struct weft *w)
{
	conns_drop(w);
	loop_timer_stop(w->w_loop, &w->w_tick);
	loop_timer_stop(w->w_loop, &w->w_setup_timer);
	wc_devices_drop(w);
	wc_calls_fail(w, w->w_state == WC_FAILED ? w->w_err : -ECANCELED);
	/* What ends may begin something else, which ends as well. */
	while (w->w_all || w->w_ds_calls) {
		wc_ring_run(w->w_ring, 1);
		wc_calls_fail(w, -ECANCELED);
	}
	while (w->w_files)
		wc_file_free(w->w_files);
	wc_devices_free(w);
	free(w);
}

int weft_connect(struct weft **out, struct weft_ring *r, const struct weft_opts *o)
{
	struct weft *w = calloc(1, sizeof(*w));
	uint64_t end;
	int err;

	if (!w)
		return -ENOMEM;
	w->w_ring = r;
	w->w_loop = r->r_loop;
	w->w_opts = *o;
	w->w_queue_end = &w->w_queue;
	w->w_setup_timer.t_fire = setup_timer;
	w->w_tick.t_fire = session_tick;
	err = opts_check(w);
	if (err) {
		free(w);
		return err;
	}
	name_make(w);
	err = conns_make(w);
	w->w_opts.wo_server = w->w_opts.wo_owner = NULL; /* the caller's own */
	loop_timer_start(w->w_loop, &w->w_tick, TICK_MS);
	end = clock_mono_ms() + (o->wo_giveup_ms ? o->wo_giveup_ms : CONNECT_MS);
	while (!err && w->w_state == WC_SETUP && clock_mono_ms() < end)
		wc_ring_run(r, (int)(end - clock_mono_ms()));
	if (!err && w->w_state != WC_READY)
		err = w->w_state == WC_FAILED ? w->w_err : -ETIMEDOUT;
	if (err) {
		w->w_state = WC_CLOSING;
		weft_free(w);
		return err;
	}
	*out = w;
	return 0;
}

/* ---- the end: DESTROY_SESSION and DESTROY_CLIENTID (sections 18.37 and 18.50) ---- */

static void destroy_put(struct wc_call *c, struct xdr_out *x)
{
	struct weft *w = c->wcl_w;

	wc_call_op(c, x, c->wcl_n);
	if (c->wcl_n == OP_DESTROY_SESSION)
		xdr_put_fixed(x, w->w_session, NFS4_SESSIONID_SIZE);
	else
		xdr_put_u64(x, w->w_clientid);
}

static void destroy_got(struct wc_call *c, struct wc_res *r)
{
	wc_res_op(r, c->wcl_n);
}

static void destroy_end(struct wc_call *c, int err, uint32_t status)
{
	(void)err;
	(void)status;
	c->wcl_w->w_step = false;
	wc_ring_poke(c->wcl_w->w_ring);
}

static const struct wc_kind destroy_kind = {
	.k_put = destroy_put, .k_got = destroy_got, .k_end = destroy_end, .k_bare = true};

const struct wc_kind *const wc_steps[WC_STEPS] = {&exchange_kind, &create_kind, &complete_kind,
						  &limits_kind,	  &bind_kind,	&destroy_kind};

static void session_destroy(struct weft *w, uint32_t op)
{
	struct wc_conn *cn = conn_up(w);
	struct wc_call *c = cn ? wc_call_new(w, &destroy_kind, NULL, NULL) : NULL;
	uint64_t end = clock_mono_ms() + CLOSE_MS;

	if (!c)
		return;
	c->wcl_n = op;
	w->w_step = true;
	wc_call_send_on(c, cn);
	while (w->w_step && clock_mono_ms() < end)
		wc_ring_run(w->w_ring, (int)(end - clock_mono_ms()));
}

/* The server keeps a client that has files open until its lease ends. So close them. */
static void files_close(struct weft *w)
{
	uint64_t end = clock_mono_ms() + CLOSE_MS;

	while (w->w_files && w->w_state == WC_READY && clock_mono_ms() < end) {
		struct weft_op op = {.o_what = WEFT_CLOSE, .o_file = w->w_files};

		w->w_opts.wo_giveup_ms = CLOSE_MS;
		weft_do(w, &op);
	}
}

void weft_close(struct weft *w)
{
	if (w->w_state == WC_READY) {
		w->w_state = WC_CLOSING;
		wc_calls_fail(w, -ECANCELED);
		w->w_state = WC_READY;
		files_close(w);
	}
	loop_timer_stop(w->w_loop, &w->w_setup_timer);
	w->w_state = WC_CLOSING;
	if (w->w_have_session)
		session_destroy(w, OP_DESTROY_SESSION);
	if (w->w_have_client)
		session_destroy(w, OP_DESTROY_CLIENTID);
	weft_free(w);
}

void weft_info(const struct weft *w, struct weft_info *info)
{
	*info = (struct weft_info){.wi_minor = w->w_minor,
				   .wi_slots = w->w_target + 1 < w->w_nslots ? w->w_target + 1
									     : w->w_nslots,
				   .wi_lease_s = w->w_lease_s,
				   .wi_max_read = w->w_max_read,
				   .wi_max_write = w->w_max_write,
				   .wi_sessions = w->w_nsessions,
				   .wi_resent = w->w_resent,
				   .wi_callbacks = w->w_callbacks,
				   .wi_rewritten = w->w_rewritten,
				   .wi_layouts = w->w_nlayouts,
				   .wi_ds_reads = w->w_ds_reads,
				   .wi_ds_writes = w->w_ds_writes,
				   .wi_ds_errors = w->w_ds_errors,
				   .wi_ds_rdma = w->w_ds_rdma,
				   .wi_ds_direct = w->w_ds_direct,
				   .wi_recalls = w->w_recalls,
				   .wi_reports = w->w_reports,
				   .wi_steered = w->w_steered};
	for (unsigned i = 0; i < w->w_nconns; i++)
		info->wi_conns += w->w_conns[i].cn_conn && w->w_conns[i].cn_bound;
}
