/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client.c - the clients, and the checker. A client asks one thing at a time, and asks again when
 * no answer comes. Half of them ask where the service address was announced last; the others ask
 * either server, so an old server that woke gets questions too.
 *
 * Each register counts. So the checker knows, for each question, what was acknowledged before it
 * was asked (rq_floor): a look may not give less, an addition must give more, no two additions give
 * the same, and an operation that is asked again has its old answer.
 */
#include "tests/sim/sim.h"
#include <stdio.h>
#include <string.h>

enum { SLOTS = 4, VALUES = 4096, IDS = 16384, AGAIN_MS = 250 };

struct slot {
	struct request c_rq;
	bool c_asks;
	uint64_t c_seq, c_value; /* of the newest operation; its answer */
	unsigned c_server;
	unsigned c_after; /* operations since all was healed */
};
static struct slot slots[SLOTS];
static uint64_t acked[REGS], begun[REGS], nacked;
static uint64_t owner[REGS][VALUES]; /* which operation made the value */
static uint64_t ids[IDS];
static bool finishing;
static unsigned seen_regs;

static void ask(struct slot *c);

static void next_op(void *arg, uint64_t n)
{
	struct slot *c = arg;
	unsigned i = (unsigned)(c - slots);
	uint64_t r = sim_below(100), reg = sim_below(REGS);

	(void)n;
	/* Each thing that is random has a statement of its own: compilers differ in the order
	 * within one, and a seed gives the same run with all of them. */
	if (finishing)
		reg = (c->c_seq + i) % REGS;
	c->c_seq++;
	c->c_rq = (struct request){
		.rq_kind = r < 45   ? ASK_ADD
			   : r < 90 ? ASK_READ
				    : ASK_ID,
		.rq_reg = (unsigned)reg,
		.rq_id = (uint64_t)(i + 1) << 32 | c->c_seq,
		.rq_by_address = i % 2,
		.rq_asked = sim_now,
	};
	c->c_rq.rq_floor = acked[c->c_rq.rq_reg];
	if (c->c_rq.rq_kind == ASK_ADD)
		begun[c->c_rq.rq_reg]++;
	c->c_asks = true;
	ask(c);
}

static void again(void *arg, uint64_t n)
{
	struct slot *c = arg;

	if (!c->c_asks || n != (c->c_seq << 8 | c->c_rq.rq_try))
		return;
	if (!c->c_rq.rq_by_address)
		c->c_server = (c->c_server + 1) % MDS_MAX;
	ask(c);
}

static void ask(struct slot *c)
{
	c->c_rq.rq_try = (c->c_rq.rq_try + 1) & 255;
	if (c->c_rq.rq_by_address)
		c->c_server = addr_where();
	server_ask(c->c_server, &c->c_rq);
	/* Some go on talking to the other one as well. */
	if (!c->c_rq.rq_by_address && sim_chance(150))
		server_ask((c->c_server + 1) % MDS_MAX, &c->c_rq);
	sim_at(sim_now + SIM_MS(AGAIN_MS), again, c, c->c_seq << 8 | c->c_rq.rq_try);
}

/* ---- the checker ---- */

static void check_add(const struct request *rq, uint64_t v)
{
	uint64_t *who = v < VALUES ? &owner[rq->rq_reg][v] : NULL;

	if (v <= rq->rq_floor)
		sim_fail("lost",
			 "an addition to register %u gave %llu, after %llu was acknowledged",
			 rq->rq_reg, (unsigned long long)v, (unsigned long long)rq->rq_floor);
	else if (who && *who && *who != rq->rq_id)
		sim_fail("lost", "two additions to register %u gave %llu", rq->rq_reg,
			 (unsigned long long)v);
	else if (v > begun[rq->rq_reg])
		sim_fail("made-up", "register %u is %llu after %llu additions", rq->rq_reg,
			 (unsigned long long)v, (unsigned long long)begun[rq->rq_reg]);
	if (who)
		*who = rq->rq_id;
}

static void check_id(const struct request *rq, uint64_t v)
{
	size_t at = (size_t)((v * 0x9e3779b97f4a7c15u) >> 50);

	/* The same question again is another open, and has another number. */
	while (ids[at] && ids[at] != v)
		at = (at + 1) % IDS;
	if (ids[at])
		sim_fail("twice", "stateid %llx was given out twice, to operation %llx",
			 (unsigned long long)v, (unsigned long long)rq->rq_id);
	ids[at] = v;
}

static void check(const struct request *rq, uint64_t v)
{
	switch (rq->rq_kind) {
	case ASK_READ:
		if (v < rq->rq_floor)
			sim_fail("stale",
				 "register %u is said to be %llu, and %llu was acknowledged before "
				 "the question",
				 rq->rq_reg, (unsigned long long)v,
				 (unsigned long long)rq->rq_floor);
		else if (v > begun[rq->rq_reg])
			sim_fail("made-up", "register %u is %llu after %llu additions", rq->rq_reg,
				 (unsigned long long)v, (unsigned long long)begun[rq->rq_reg]);
		break;
	case ASK_ADD:
		check_add(rq, v);
		break;
	case ASK_ID:
		check_id(rq, v);
		break;
	}
}

struct answer {
	struct request a_rq;
	unsigned a_server;
	uint64_t a_value, a_looked;
};

static void arrives(void *arg)
{
	const struct answer *a = arg;
	const struct request *rq = &a->a_rq;
	struct slot *c = &slots[(rq->rq_id >> 32) - 1];
	bool current = c->c_asks && c->c_rq.rq_id == rq->rq_id;

	check(rq, a->a_value);
	if (!current)
		return;
	nacked++;
	c->c_server = a->a_server;
	c->c_asks = false;
	if (rq->rq_kind != ASK_ID && a->a_value > acked[rq->rq_reg])
		acked[rq->rq_reg] = a->a_value;
	if (finishing) {
		c->c_after++;
		if (rq->rq_kind == ASK_READ)
			seen_regs |= 1u << rq->rq_reg;
	}
	sim_at(sim_now + SIM_MS(sim_between(2, 90)), next_op, c, 0);
}

void client_answer(const struct request *rq, unsigned server, uint64_t epoch, uint64_t value,
		   uint64_t looked)
{
	struct answer a = {*rq, server, value, looked};

	(void)epoch;
	sim_send(MDS_NODE0 + server, CLIENT_NODE, NULL, arrives, sim_copy(&a, sizeof(a)));
}

/* ---- begin and end ---- */

void clients_begin(void)
{
	memset(slots, 0, sizeof(slots));
	memset(acked, 0, sizeof(acked));
	memset(begun, 0, sizeof(begun));
	memset(owner, 0, sizeof(owner));
	memset(ids, 0, sizeof(ids));
	finishing = false;
	seen_regs = 0;
	nacked = 0;
	for (unsigned i = 0; i < SLOTS; i++)
		sim_at(sim_now + SIM_MS(sim_between(1, 50)), next_op, &slots[i], 0);
}

void clients_finish(void)
{
	finishing = true;
}

bool clients_done(void)
{
	for (unsigned i = 0; i < SLOTS; i++)
		if (slots[i].c_after < 3)
			return false;
	return seen_regs == (1u << REGS) - 1;
}

uint64_t clients_acked(void)
{
	return nacked;
}
