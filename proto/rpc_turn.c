/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_turn.c - what the connections of one address share: a turn, calls in hand, and a rate. So a
 * flood from one address leaves the other connections of the loop their time and memory. An address
 * is one host's, in IPv6 as well: all hosts of a site may be in one network of 64 bits, and would
 * wait for each other. One host may use many addresses there. The limits of connections, which
 * count networks, bound that.
 *
 * Calls that wait for a client (rpc_call_waits) are counted separately: that client's answer comes
 * as one more call, often from the same address, and must get in.
 *
 * All of it belongs to one loop, and only its thread uses it: a call costs no lock and no cache
 * line that another thread writes. So each loop counts only the connections that an address has
 * there.
 */
#include "base/clock.h"
#include "common/exports.h"
#include "proto/rpc_int.h"

/* Bytes for each call that an address may have in hand, on average. */
#define CALL_BYTES (128u << 10)
/* An address may have this many times as much waiting for clients as it may have in hand. */
#define WAITS 4u
/* What one connection may have, however much its address has: as many calls as a Linux client has
 * slots, and a record of the longest. */
#define LEAST_CALLS 64u
#define LEAST_BYTES (1u << 20)
/* Nanoseconds for which an address may save up its rate. */
#define BURST_NS 100000000u

struct rpc_host {
	struct hash_link ho_link;
	struct rpc_loop *ho_rl;
	uint8_t ho_addr[16];
	bool ho_shared, ho_posted;
	unsigned ho_refs;    /* connections, and the message or timer under way */
	uint64_t ho_turn_ns; /* the turn that ho_records counts */
	unsigned ho_records;
	struct rpc_conn *ho_wait, **ho_wait_end; /* they have more to say, each in its turn */
	/* not read while the address has too much in hand */
	struct rpc_conn *ho_stuck;
	struct rpc_load ho_load, ho_waits; /* in hand; those of them that wait for a client */
	bool ho_waits_full;		   /* what host_wake found last */
	unsigned ho_most;
	uint32_t ho_rate;   /* calls a second; 0: no limit */
	uint64_t ho_due_ns; /* the rate is used up until then */
	struct loop_msg ho_msg;
	struct loop_timer ho_timer;
};

static struct rpc_host *host_make(struct rpc_conn *c)
{
	struct rpc_host *ho = calloc(1, sizeof *ho);

	if (!ho)
		return NULL;
	ho->ho_rl = c->rcn_rl;
	ho->ho_wait_end = &ho->ho_wait;
	ho->ho_most = c->rcn_svc.rs_host_calls;
	ho->ho_rate = c->rcn_svc.rs_host_rate;
	return ho;
}

void rpc_conn_host(const struct rpc_conn *c, uint8_t addr[16])
{
	uint16_t port;

	exp_addr(&c->rcn_peer, addr, &port);
	if (c->rcn_peer.ss_family == AF_INET6)
		memset(addr + 8, 0, 8);
}

bool rpc_host_join(struct rpc_conn *c)
{
	struct rpc_loop *rl = c->rcn_rl;
	struct hash_link *l = NULL;
	struct rpc_host *ho = NULL;
	uint8_t addr[16];
	uint16_t port;
	uint64_t h;

	if (!c->rcn_client && c->rcn_svc.rs_nprogs) { /* a server that we connect to is no flood */
		exp_addr(&c->rcn_peer, addr, &port);
		h = hash_bytes(addr, 16);
		for (l = hash_first(&rl->rl_hosts, h); l; l = hash_next(l))
			if (!memcmp(hash_entry(l, struct rpc_host, ho_link)->ho_addr, addr, 16))
				break;
		ho = l ? hash_entry(l, struct rpc_host, ho_link) : host_make(c);
		if (ho && !l && hash_add(&rl->rl_hosts, &ho->ho_link, h)) {
			free(ho);
			ho = NULL;
		}
		if (ho) {
			memcpy(ho->ho_addr, addr, 16);
			ho->ho_shared = true;
		}
	} else {
		ho = host_make(c);
	}
	if (!ho)
		return false;
	ho->ho_refs++;
	c->rcn_host = ho;
	return true;
}

static void rpc_turn_host_put(struct rpc_host *ho)
{
	if (--ho->ho_refs)
		return;
	if (ho->ho_shared)
		hash_del(&ho->ho_rl->rl_hosts, &ho->ho_link);
	free(ho);
}

void rpc_host_leave(struct rpc_conn *c)
{
	if (c->rcn_host)
		rpc_turn_host_put(c->rcn_host);
	c->rcn_host = NULL;
}

void rpc_hosts_drop(struct rpc_loop *rl)
{
	for (size_t i = 0; i < rl->rl_hosts.h_size; i++) {
		struct hash_link *next;

		for (struct hash_link *l = rl->rl_hosts.h_slot[i]; l; l = next) {
			struct rpc_host *ho = hash_entry(l, struct rpc_host, ho_link);

			next = l->hl_next;
			if (ho->ho_posted)
				rpc_turn_host_put(ho);
		}
	}
	free(rl->rl_hosts.h_slot);
}

/* ---- turns ---- */

static bool rate_out(const struct rpc_host *ho, uint64_t now)
{
	return ho->ho_rate && ho->ho_due_ns > now + BURST_NS;
}

static bool host_over(struct rpc_host *ho)
{
	uint64_t turn = loop_now_ns(ho->ho_rl->rl_loop);

	if (ho->ho_turn_ns != turn) {
		ho->ho_turn_ns = turn;
		ho->ho_records = 0;
	}
	if (rate_out(ho, turn))
		return true;
	return ho->ho_records &&
	       (ho->ho_records >= RPC_HOST_RECORDS || clock_mono_ns() - turn > RPC_TURN_NS);
}

static void rpc_turn_wait_unlink(struct rpc_conn *c)
{
	*c->rcn_wait_prev = c->rcn_wait_next;
	*(c->rcn_wait_next ? &c->rcn_wait_next->rcn_wait_prev : &c->rcn_host->ho_wait_end) =
		c->rcn_wait_prev;
	c->rcn_resuming = false;
}

static void host_run(struct rpc_host *ho)
{
	struct rpc_conn *c;

	ho->ho_posted = false;
	while ((c = ho->ho_wait) && !host_over(ho)) {
		rpc_turn_wait_unlink(c);
		if (!c->rcn_dead)
			rpc_conn_turn(c);
		rpc_conn_put(c);
	}
}

static void host_call(struct rpc_host *ho);

static void host_turn(struct rpc_host *ho)
{
	host_run(ho);
	host_call(ho);
	rpc_turn_host_put(ho);
}

static void host_msg(struct loop_msg *m)
{
	host_turn(caa_container_of(m, struct rpc_host, ho_msg));
}

static void host_timer(struct loop_timer *t)
{
	host_turn(caa_container_of(t, struct rpc_host, ho_timer));
}

/* Schedules the address's next turn. */
static void host_call(struct rpc_host *ho)
{
	struct loop *l = ho->ho_rl->rl_loop;
	uint64_t now = loop_now_ns(l);

	if (!ho->ho_wait || ho->ho_posted)
		return;
	ho->ho_posted = true;
	ho->ho_refs++;
	ho->ho_msg.m_run = host_msg;
	ho->ho_timer.t_fire = host_timer;
	if (rate_out(ho, now))
		loop_timer_start(l, &ho->ho_timer, (ho->ho_due_ns - now - BURST_NS) / 1000000u + 1);
	else
		loop_post(l, &ho->ho_msg);
}

void rpc_turn_wait(struct rpc_conn *c)
{
	struct rpc_host *ho = c->rcn_host;

	if (c->rcn_resuming || c->rcn_dead)
		return;
	c->rcn_resuming = true;
	c->rcn_refs++;
	c->rcn_wait_next = NULL;
	c->rcn_wait_prev = ho->ho_wait_end;
	*ho->ho_wait_end = c;
	ho->ho_wait_end = &c->rcn_wait_next;
	host_call(ho);
}

bool rpc_turn_begins(struct rpc_conn *c)
{
	if (c->rcn_resuming)
		return false;
	if (!c->rcn_host->ho_wait && !host_over(c->rcn_host))
		return true;
	rpc_turn_wait(c);
	return false;
}

bool rpc_turn_ends(struct rpc_conn *c, unsigned records)
{
	struct rpc_host *ho = c->rcn_host;

	host_over(ho); /* begins the count of a new turn */
	ho->ho_records++;
	return records >= (ho->ho_wait ? RPC_FEW_RECORDS : RPC_TURN_RECORDS) || host_over(ho);
}

/* ---- calls in hand ---- */

static void load_add(struct rpc_load *of, unsigned calls, size_t bytes)
{
	of->ld_calls += calls;
	of->ld_bytes += bytes;
}

static void load_less(struct rpc_load *of, unsigned calls, size_t bytes)
{
	of->ld_calls -= calls;
	of->ld_bytes -= bytes;
}

static bool too_much(const struct rpc_host *ho, unsigned calls, size_t bytes, unsigned times,
		     unsigned part)
{
	uint64_t most = (uint64_t)ho->ho_most * times / part;

	return ho->ho_most && (calls >= most || bytes >= most * CALL_BYTES);
}

static bool waits_full(const struct rpc_host *ho)
{
	return too_much(ho, ho->ho_waits.ld_calls, ho->ho_waits.ld_bytes, WAITS, 1);
}

/* Counts only what waits for us. */
static bool load_full(const struct rpc_host *ho, unsigned part)
{
	return too_much(ho, ho->ho_load.ld_calls - ho->ho_waits.ld_calls,
			ho->ho_load.ld_bytes - ho->ho_waits.ld_bytes, 1, part);
}

/*
 * A connection that has nothing in hand is always read, so that each of them goes on, however long
 * the calls of the others wait. Calls that wait for a client do not count here: the client's
 * answer, or the state that it gives back, may come on this connection. Where a call of ours is
 * out, or too much waits, a few more calls are taken, because that answer may stand behind them.
 */
static bool few_in_hand(const struct rpc_conn *c)
{
	unsigned calls = c->rcn_ncalls;
	size_t bytes = c->rcn_bytes;
	bool full = waits_full(c->rcn_host);

	if (!full) {
		calls -= c->rcn_waits.ld_calls;
		bytes -= c->rcn_waits.ld_bytes;
	}
	return !calls || ((full || c->rcn_nreqs) && calls < LEAST_CALLS && bytes < LEAST_BYTES);
}

static void stuck_unlink(struct rpc_conn *c)
{
	*c->rcn_stuck_prev = c->rcn_stuck_next;
	if (c->rcn_stuck_next)
		c->rcn_stuck_next->rcn_stuck_prev = c->rcn_stuck_prev;
	c->rcn_stuck = false;
}

bool rpc_host_full(struct rpc_conn *c)
{
	struct rpc_host *ho = c->rcn_host;

	if ((!load_full(ho, 1) && !waits_full(ho)) || few_in_hand(c))
		return false;
	if (!c->rcn_stuck) {
		c->rcn_stuck = true;
		c->rcn_refs++;
		c->rcn_stuck_next = ho->ho_stuck;
		c->rcn_stuck_prev = &ho->ho_stuck;
		if (ho->ho_stuck)
			ho->ho_stuck->rcn_stuck_prev = &c->rcn_stuck_next;
		ho->ho_stuck = c;
	}
	return true;
}

/* What waits for us ends soon: all connections are read again when half of it has ended. What waits
 * for clients may stay for as long as a recall, and ends piece by piece: as soon as it is not too
 * much, those connections are read that have nothing else in hand. */
static void host_wake(struct rpc_host *ho)
{
	bool full = waits_full(ho), fewer = ho->ho_waits_full && !full,
	     all = !full && !load_full(ho, 2);
	struct rpc_conn *next;

	ho->ho_waits_full = full;
	if (!all && !fewer)
		return;
	for (struct rpc_conn *s = ho->ho_stuck; s; s = next) {
		next = s->rcn_stuck_next;
		if (!all && !few_in_hand(s))
			continue;
		stuck_unlink(s);
		if (s->rcn_paused)
			rpc_turn_wait(s);
		rpc_conn_put(s);
	}
}

void rpc_host_call(struct rpc_conn *c, size_t bytes)
{
	struct rpc_host *ho = c->rcn_host;
	uint64_t now;

	c->rcn_ncalls++;
	c->rcn_bytes += bytes;
	load_add(&ho->ho_load, 1, bytes);
	if (ho->ho_rate) {
		now = loop_now_ns(c->rcn_loop);
		ho->ho_due_ns =
			(ho->ho_due_ns > now ? ho->ho_due_ns : now) + 1000000000u / ho->ho_rate;
	}
}

void rpc_host_call_done(struct rpc_conn *c, size_t bytes)
{
	c->rcn_ncalls--;
	c->rcn_bytes -= bytes;
	load_less(&c->rcn_host->ho_load, 1, bytes);
	host_wake(c->rcn_host);
}

void rpc_host_call_waits(struct rpc_conn *c, size_t bytes, bool waits)
{
	(waits ? load_add : load_less)(&c->rcn_waits, 1, bytes);
	(waits ? load_add : load_less)(&c->rcn_host->ho_waits, 1, bytes);
	host_wake(c->rcn_host);
}

/* ---- ends, and connections apart ---- */

void rpc_host_quit(struct rpc_conn *c)
{
	if (c->rcn_resuming) {
		rpc_turn_wait_unlink(c);
		rpc_conn_put(c);
	}
	if (c->rcn_stuck) {
		stuck_unlink(c);
		rpc_conn_put(c);
	}
}

void rpc_conn_apart(struct rpc_conn *c)
{
	struct rpc_host *old = c->rcn_host,
			*ho = c->rcn_dead || !old->ho_shared ? NULL : host_make(c);

	rpc_conn_proven(c);
	if (!ho)
		return;
	c->rcn_refs++;
	rpc_host_quit(c);
	ho->ho_most = 0;
	ho->ho_rate = 0;
	ho->ho_refs = 1;
	ho->ho_load = (struct rpc_load){c->rcn_ncalls, c->rcn_bytes};
	ho->ho_waits = c->rcn_waits;
	load_less(&old->ho_load, c->rcn_ncalls, c->rcn_bytes);
	load_less(&old->ho_waits, c->rcn_waits.ld_calls, c->rcn_waits.ld_bytes);
	c->rcn_host = ho;
	host_wake(old);
	rpc_turn_host_put(old);
	rpc_turn_wait(c); /* it may have waited at the old address */
	rpc_conn_put(c);
}
