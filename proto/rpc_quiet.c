/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_quiet.c - tells a peer that is slow from one that is dead, by what moves on a connection with
 * calls of ours out (rs_quiet_ms).
 *
 * A peer lives while bytes of replies come in, and while it takes bytes of calls that wait for room
 * in the socket. Bytes of calls that find room at once say nothing: the kernel of a peer whose
 * program hangs takes them as well. Over RDMA only whole replies are seen.
 *
 * The connection is looked at QUIET_LOOKS times in that time, and ends when so many looks found
 * nothing new. A loop that did not run for a while has missed looks, and so counts only one: the
 * replies that came meanwhile are still to be read.
 */
#include "proto/rpc_int.h"
#include <errno.h>
#include <linux/tcp.h>

#define QUIET_LOOKS 20u

struct rpc_quiet {
	struct loop_timer qt_timer;
	struct rpc_conn *qt_conn;
	unsigned qt_looks; /* that found nothing new, one after another */
	bool qt_full;	   /* at the last look calls waited for room in the socket */
	uint64_t qt_replies, qt_seen_replies, qt_seen_in, qt_seen_out;
	uint64_t qt_passed_ns; /* when the newest call was sent of those that have replies */
};

/* Returns whether anything has moved since the last look. */
static bool quiet_moved(struct rpc_quiet *qt)
{
	struct rpc_conn *c = qt->qt_conn;
	struct tcp_info ti = {0};
	socklen_t len = sizeof ti;
	bool moved = qt->qt_replies != qt->qt_seen_replies, full;

	qt->qt_seen_replies = qt->qt_replies;
	if (c->rcn_is_rdma || getsockopt(c->rcn_fd, IPPROTO_TCP, TCP_INFO, &ti, &len))
		return moved;
	full = c->rcn_sending || ti.tcpi_notsent_bytes;
	moved |= ti.tcpi_bytes_received != qt->qt_seen_in;
	moved |= (full || qt->qt_full) && ti.tcpi_bytes_acked != qt->qt_seen_out;
	qt->qt_full = full;
	qt->qt_seen_in = ti.tcpi_bytes_received;
	qt->qt_seen_out = ti.tcpi_bytes_acked;
	return moved;
}

static uint32_t quiet_step(const struct rpc_conn *c)
{
	uint32_t ms = c->rcn_svc.rs_quiet_ms / QUIET_LOOKS;

	return ms ? ms : 1;
}

static void quiet_tick(struct loop_timer *t)
{
	struct rpc_quiet *qt = caa_container_of(t, struct rpc_quiet, qt_timer);
	struct rpc_conn *c = qt->qt_conn;

	if (c->rcn_dead || !c->rcn_nreqs)
		return;
	/* What we do not send or do not read is no silence of the peer. */
	if (quiet_moved(qt) || c->rcn_paused || !store_lease_live(c->rcn_rl->rl_lease))
		qt->qt_looks = 0;
	else if (++qt->qt_looks >= QUIET_LOOKS) {
		rpc_conn_fail(c, -ETIMEDOUT);
		return;
	}
	loop_timer_start(c->rcn_loop, t, quiet_step(c));
}

bool rpc_quiet_sent(struct rpc_conn *c)
{
	struct rpc_quiet *qt = c->rcn_quiet;

	if (!c->rcn_svc.rs_quiet_ms)
		return true;
	if (!qt) {
		qt = c->rcn_quiet = calloc(1, sizeof *qt);
		if (!qt)
			return false;
		qt->qt_timer.t_fire = quiet_tick;
		qt->qt_conn = c;
	}
	if (c->rcn_nreqs == 1)
		qt->qt_looks = 0;
	if (!qt->qt_timer.t_pos) {
		qt->qt_full = false;
		quiet_moved(qt);
		loop_timer_start(c->rcn_loop, &qt->qt_timer, quiet_step(c));
	}
	return true;
}

void rpc_quiet_reply(const struct rpc_req *q)
{
	struct rpc_quiet *qt = q->q_conn->rcn_quiet;

	if (!qt)
		return;
	qt->qt_replies++;
	if (q->q_sent_ns > qt->qt_passed_ns)
		qt->qt_passed_ns = q->q_sent_ns;
}

bool rpc_quiet_again(struct rpc_req *q)
{
	const struct rpc_quiet *qt = q->q_conn ? q->q_conn->rcn_quiet : NULL;

	if (!qt || q->q_err != -ETIMEDOUT ||
	    qt->qt_passed_ns >= q->q_sent_ns + q->q_limit_ms * 500000ull)
		return false;
	loop_timer_start(q->q_loop, &q->q_timer, q->q_limit_ms);
	return true;
}

void rpc_quiet_quit(struct rpc_conn *c)
{
	if (c->rcn_quiet)
		loop_timer_stop(c->rcn_loop, &c->rcn_quiet->qt_timer);
	free(c->rcn_quiet);
	c->rcn_quiet = NULL;
}
