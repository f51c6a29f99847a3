/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_half.c - records that have begun and not ended: their time limit, their memory, and what
 * admits a long one.
 *
 * Any host can begin a record. From a connection that has proved nothing, only the first RPC_FIRST
 * bytes of a record are taken. Then the service (rs_first) or the RPCSEC_GSS context says whether
 * these bytes come from a known client. If not, the rest of the record is dropped as it comes, and
 * the beginning is served: a client of an earlier boot, whose session is gone, has to hear that.
 *
 * Half records have a memory limit on each loop, one for strangers and one for the others. Beyond
 * it the oldest half records end with their connections. All strangers together have a limit as
 * well, whatever the number of loops. If one address has more than a quarter of that memory, the
 * oldest half record of that address ends.
 *
 * All of it belongs to one loop. An idle connection, and one whose records come whole, is on no
 * list.
 */
#include "base/log.h"
#include "proto/rpc_int.h"
#include <errno.h>

/* A record that began this long ago is slow. Only slow ones make room for connections that have
 * proved something. */
#define HALF_SLOW_NS 5000000000ull
/* When the time of a half record is over, it gets this much more: this process itself may have
 * stood still. */
#define HALF_AGAIN_MS 1000u

static struct metric *m_late, *m_evicted, *m_cut;

/* Runs before main: metrics must exist before any thread runs. */
__attribute__((constructor)) static void half_metrics_make(void)
{
	m_late = metric_counter("weft_rpc_half_records_total",
				"Connections ended because of a record that did not end.",
				"why=\"time\"");
	m_evicted = metric_counter("weft_rpc_half_records_total",
				   "Connections ended because of a record that did not end.",
				   "why=\"memory\"");
	m_cut = metric_counter("weft_rpc_cut_records_total",
			       "Long records of connections that have proved nothing, of which "
			       "only the beginning was kept.",
			       "");
}

/* ---- what lets a record in ---- */

void rpc_half_start(struct rpc_conn *c)
{
	c->rcn_rx.x_gate = c->rcn_svc.rs_first && !c->rcn_client && !c->rcn_is_rdma;
}

void rpc_conn_proven(struct rpc_conn *c)
{
	if (c->rcn_rx.x_gate && !c->rcn_rx.x_skip)
		c->rcn_rx.x_gate = false;
}

bool rpc_half_let(struct rpc_conn *c, const struct rpc_record *r)
{
	struct rpc_head h;
	struct xdr_in x;
	uint32_t xid;
	bool ok;

	xdr_in_init(&x, r->r_data, r->r_len);
	xid = xdr_get_u32(&x);
	if (xdr_get_u32(&x) == 1) {
		ok = rpc_req_is_out(c, xid);
	} else {
		xdr_in_init(&x, r->r_data, r->r_len);
		ok = rpc_call_parse(&x, &h) == RPC_HDR_OK;
		if (ok && h.rhd_cred.rc_flavor == RPC_AUTH_GSS)
			ok = rpc_gss_known(c->rcn_svc.rs_gss, &h.rhd_gss);
		else if (ok)
			ok = c->rcn_svc.rs_first(c, h.rhd_prog, h.rhd_proc, &x, c->rcn_svc.rs_arg);
	}
	if (!ok)
		metric_add(m_cut, 1);
	return ok;
}

/* ---- the lists ---- */

static void half_unlink(struct rpc_conn *c)
{
	struct rpc_halves *hv = c->rcn_half;

	*(c->rcn_half_older ? &c->rcn_half_older->rcn_half_newer : &hv->hv_oldest) =
		c->rcn_half_newer;
	*(c->rcn_half_newer ? &c->rcn_half_newer->rcn_half_older : &hv->hv_newest) =
		c->rcn_half_older;
	hv->hv_bytes -= c->rcn_half_bytes;
	c->rcn_half = NULL;
}

static void half_link(struct rpc_conn *c, struct rpc_halves *hv, size_t bytes)
{
	c->rcn_half = hv;
	c->rcn_half_ns = loop_now_ns(c->rcn_loop);
	c->rcn_half_bytes = bytes;
	c->rcn_half_due = false;
	c->rcn_half_newer = NULL;
	c->rcn_half_older = hv->hv_newest;
	*(hv->hv_newest ? &hv->hv_newest->rcn_half_newer : &hv->hv_oldest) = c;
	hv->hv_newest = c;
	hv->hv_bytes += bytes;
}

void rpc_half_quit(struct rpc_conn *c)
{
	if (c->rcn_half)
		half_unlink(c);
}

static void rpc_half_half_end(struct rpc_conn *c, struct metric *why, int err)
{
	half_unlink(c);
	metric_add(why, 1);
	rpc_conn_fail(c, err);
}

/* ---- time ---- */

/* True if we ourselves do not read the connection now. */
static bool held_up(const struct rpc_conn *c)
{
	return c->rcn_paused || c->rcn_resuming || c->rcn_later || (c->rcn_t && !rpc_tls_takes(c));
}

static uint64_t due_ns(const struct rpc_conn *c)
{
	return c->rcn_half_ns +
	       (c->rcn_half_due ? HALF_AGAIN_MS : c->rcn_svc.rs_record_ms) * 1000000ull;
}

/* Moves the connection to the newer end of the list. It is due when its time, or its extra time, is
 * over. */
static void half_again(struct rpc_conn *c, bool due)
{
	struct rpc_halves *hv = c->rcn_half;

	half_unlink(c);
	half_link(c, hv, c->rcn_half_bytes);
	c->rcn_half_due = due;
}

static void timer_arm(struct rpc_loop *rl, uint64_t ms)
{
	rl->rl_half_timed = true;
	loop_timer_start(rl->rl_loop, &rl->rl_half_timer, ms);
}

static void half_timer(struct loop_timer *t)
{
	struct rpc_loop *rl = caa_container_of(t, struct rpc_loop, rl_half_timer);
	uint64_t now = loop_now_ns(rl->rl_loop), next = UINT64_MAX;
	struct rpc_conn *c, *newer;

	rl->rl_half_timed = false;
	for (unsigned i = 0; i < 2; i++) {
		struct rpc_conn *last = rl->rl_halves[i].hv_newest;

		for (c = rl->rl_halves[i].hv_oldest; c; c = newer) {
			newer = c == last ? NULL : c->rcn_half_newer;
			if (due_ns(c) <= now) {
				if (c->rcn_half_due && !held_up(c)) {
					rpc_half_half_end(c, m_late, -ETIMEDOUT);
					continue;
				}
				half_again(c, !held_up(c));
			}
			if (due_ns(c) < next)
				next = due_ns(c);
		}
	}
	if (next != UINT64_MAX)
		timer_arm(rl, (next - now) / 1000000u + 1);
}

/* ---- memory ---- */

static struct rpc_conn *oldest_of(const struct rpc_halves *hv, const struct rpc_host *ho)
{
	struct rpc_conn *c = hv->hv_oldest;

	while (c && c->rcn_host != ho)
		c = c->rcn_half_newer;
	return c;
}

static size_t rpc_half_bytes_of(const struct rpc_halves *hv, const struct rpc_host *ho)
{
	size_t n = 0;

	for (const struct rpc_conn *c = hv->hv_oldest; c; c = c->rcn_half_newer)
		n += c->rcn_host == ho ? c->rcn_half_bytes : 0;
	return n;
}

static size_t most_of_strangers(void)
{
	size_t share = RPC_ALL_HALF_FIRST / rpc_loops();

	return share < RPC_MAX_HALF_FIRST ? share : RPC_MAX_HALF_FIRST;
}

static void rpc_half_make_room(struct rpc_conn *c)
{
	struct rpc_halves *hv = c->rcn_half;
	bool first = hv == &c->rcn_rl->rl_halves[0];
	size_t most = first ? most_of_strangers() : RPC_MAX_HALF;
	uint64_t now = loop_now_ns(c->rcn_loop);
	struct rpc_conn *old;

	while (hv->hv_bytes > most) {
		old = first && rpc_half_bytes_of(hv, c->rcn_host) > most / 4
			      ? oldest_of(hv, c->rcn_host)
			      : hv->hv_oldest;
		if (!first && now - old->rcn_half_ns < HALF_SLOW_NS)
			return;
		rpc_half_half_end(old, m_evicted, -ENOBUFS);
	}
}

/* ---- for rpc_conn.c ---- */

void rpc_half_note(struct rpc_conn *c, bool over)
{
	size_t bytes = c->rcn_is_rdma ? 0 : rpc_rx_half(&c->rcn_rx);
	struct rpc_halves *hv;

	if (!bytes || c->rcn_dead || c->rcn_client || !c->rcn_svc.rs_record_ms) {
		rpc_half_quit(c);
		return;
	}
	hv = &c->rcn_rl->rl_halves[!c->rcn_rx.x_gate];
	if (c->rcn_half && c->rcn_half == hv && !over) {
		hv->hv_bytes += bytes - c->rcn_half_bytes;
		c->rcn_half_bytes = bytes;
	} else {
		rpc_half_quit(c);
		half_link(c, hv, bytes);
	}
	if (!c->rcn_rl->rl_half_timed) {
		c->rcn_rl->rl_half_timer.t_fire = half_timer;
		timer_arm(c->rcn_rl, c->rcn_svc.rs_record_ms);
	}
	rpc_half_make_room(c);
}
