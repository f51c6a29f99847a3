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
	c->c_rx.x_gate = c->c_svc.rs_first && !c->c_client && !c->c_is_rdma;
}

void rpc_conn_proven(struct rpc_conn *c)
{
	if (c->c_rx.x_gate && !c->c_rx.x_skip)
		c->c_rx.x_gate = false;
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
		if (ok && h.h_cred.rc_flavor == RPC_AUTH_GSS)
			ok = rpc_gss_known(c->c_svc.rs_gss, &h.h_gss);
		else if (ok)
			ok = c->c_svc.rs_first(c, h.h_prog, h.h_proc, &x, c->c_svc.rs_arg);
	}
	if (!ok)
		metric_add(m_cut, 1);
	return ok;
}

/* ---- the lists ---- */

static void half_unlink(struct rpc_conn *c)
{
	struct rpc_halves *hv = c->c_half;

	*(c->c_half_older ? &c->c_half_older->c_half_newer : &hv->hv_oldest) = c->c_half_newer;
	*(c->c_half_newer ? &c->c_half_newer->c_half_older : &hv->hv_newest) = c->c_half_older;
	hv->hv_bytes -= c->c_half_bytes;
	c->c_half = NULL;
}

static void half_link(struct rpc_conn *c, struct rpc_halves *hv, size_t bytes)
{
	c->c_half = hv;
	c->c_half_ns = loop_now_ns(c->c_loop);
	c->c_half_bytes = bytes;
	c->c_half_due = false;
	c->c_half_newer = NULL;
	c->c_half_older = hv->hv_newest;
	*(hv->hv_newest ? &hv->hv_newest->c_half_newer : &hv->hv_oldest) = c;
	hv->hv_newest = c;
	hv->hv_bytes += bytes;
}

void rpc_half_quit(struct rpc_conn *c)
{
	if (c->c_half)
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
	return c->c_paused || c->c_resuming || c->c_later || (c->c_t && !rpc_tls_takes(c));
}

static uint64_t due_ns(const struct rpc_conn *c)
{
	return c->c_half_ns + (c->c_half_due ? HALF_AGAIN_MS : c->c_svc.rs_record_ms) * 1000000ull;
}

/* Moves the connection to the newer end of the list. It is due when its time, or its extra time, is
 * over. */
static void half_again(struct rpc_conn *c, bool due)
{
	struct rpc_halves *hv = c->c_half;

	half_unlink(c);
	half_link(c, hv, c->c_half_bytes);
	c->c_half_due = due;
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
			newer = c == last ? NULL : c->c_half_newer;
			if (due_ns(c) <= now) {
				if (c->c_half_due && !held_up(c)) {
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

	while (c && c->c_host != ho)
		c = c->c_half_newer;
	return c;
}

static size_t rpc_half_bytes_of(const struct rpc_halves *hv, const struct rpc_host *ho)
{
	size_t n = 0;

	for (const struct rpc_conn *c = hv->hv_oldest; c; c = c->c_half_newer)
		n += c->c_host == ho ? c->c_half_bytes : 0;
	return n;
}

static size_t most_of_strangers(void)
{
	size_t share = RPC_ALL_HALF_FIRST / rpc_loops();

	return share < RPC_MAX_HALF_FIRST ? share : RPC_MAX_HALF_FIRST;
}

static void rpc_half_make_room(struct rpc_conn *c)
{
	struct rpc_halves *hv = c->c_half;
	bool first = hv == &c->c_rl->rl_halves[0];
	size_t most = first ? most_of_strangers() : RPC_MAX_HALF;
	uint64_t now = loop_now_ns(c->c_loop);
	struct rpc_conn *old;

	while (hv->hv_bytes > most) {
		old = first && rpc_half_bytes_of(hv, c->c_host) > most / 4
			      ? oldest_of(hv, c->c_host)
			      : hv->hv_oldest;
		if (!first && now - old->c_half_ns < HALF_SLOW_NS)
			return;
		rpc_half_half_end(old, m_evicted, -ENOBUFS);
	}
}

/* ---- for rpc_conn.c ---- */

void rpc_half_note(struct rpc_conn *c, bool over)
{
	size_t bytes = c->c_is_rdma ? 0 : rpc_rx_half(&c->c_rx);
	struct rpc_halves *hv;

	if (!bytes || c->c_dead || c->c_client || !c->c_svc.rs_record_ms) {
		rpc_half_quit(c);
		return;
	}
	hv = &c->c_rl->rl_halves[!c->c_rx.x_gate];
	if (c->c_half && c->c_half == hv && !over) {
		hv->hv_bytes += bytes - c->c_half_bytes;
		c->c_half_bytes = bytes;
	} else {
		rpc_half_quit(c);
		half_link(c, hv, bytes);
	}
	if (!c->c_rl->rl_half_timed) {
		c->c_rl->rl_half_timer.t_fire = half_timer;
		timer_arm(c->c_rl, c->c_svc.rs_record_ms);
	}
	rpc_half_make_room(c);
}
