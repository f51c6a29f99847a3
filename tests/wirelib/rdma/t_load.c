/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_load.c - many calls, many connections, and headers by chance.
 */
#include "rw.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { AT_ONCE = 128, SLOT = 8192 };

/* One of the reads under way: slot i has its memory, with guards. */
static struct call *random_read(struct conn *c, struct mem *m, unsigned i)
{
	uint32_t off = rnd_to(8 * MIB - 4096);
	struct call *k = nfs_read(c, &run.fh, off, 4096);

	memset(m->p + i * SLOT, GUARD, SLOT);
	k->nwrites = 1;
	seg_add(&k->writes[0], m, i * SLOT + 64, 4096);
	k->tag = off;
	need(call_send_now(k), "lost with %u of %u calls in flight: %s", c->out, c->credits,
	     ibv_wc_status_str(c->wc_status));
	return k;
}

static void random_read_done(struct call *k, struct mem *m, unsigned i)
{
	struct rd d;

	need(k->r.proc == RDMA_MSG && !k->r.reply_stat && !k->r.accept_stat, "answered with %s",
	     outcome(k));
	d = read_result(k);
	need(!d.status && d.len == 4096, "status %u, %u bytes", d.status, d.len);
	pattern_need(m->p + i * SLOT + 64, k->tag, 4096, "random READ");
	guard_need(m->p + i * SLOT, 64, "before a segment");
	guard_need(m->p + i * SLOT + 64 + 4096, 64, "behind a segment");
	call_free(k);
}

/* 4 KiB READs at random places, as many at once as are granted of 128. */
static void t_random_reads(void)
{
	unsigned total = run.count  ? run.count
			 : run.soak ? 100000
				    : 4000,
		 sent = 0, done = 0, most = 0, least = ~0u;
	struct conn *c = conn_open(NULL);
	struct call *slot[AT_ONCE] = {0};
	uint64_t begin;
	struct mem *m;

	pattern_file(c, 8);
	m = mem_new(c, AT_ONCE * SLOT, MEM_RW);
	begin = now_ms();
	while (done < total) {
		struct msg *in;

		for (unsigned i = 0; i < AT_ONCE && sent < total && c->out < c->credits; i++)
			if (!slot[i]) {
				slot[i] = random_read(c, m, i);
				sent++;
			}
		most = c->out > most ? c->out : most;
		in = conn_recv(c, WAIT_MS);
		need(in, "%u of %u came, then nothing (%s)", done, total,
		     ibv_wc_status_str(c->wc_status));
		reply_take(c, in);
		least = c->credits < least ? c->credits : least;
		for (unsigned i = 0; i < AT_ONCE; i++)
			if (slot[i] && slot[i]->done) {
				random_read_done(slot[i], m, i);
				slot[i] = NULL;
				done++;
			}
	}
	diag("%u reads, %u at once, never fewer than %u credits, %.0f a second", total, most, least,
	     total * 1000.0 / (double)(now_ms() - begin + 1));
	need(run.peer || least >= AT_ONCE, "%u credits were granted once", least);
	need(run.peer || most >= 100, "no more than %u calls at once: %u credits", most,
	     c->credits);
}

/* Several connections at once, each with all its credits. */
static void t_many_connections(void)
{
	struct opt o = {.recvs = 140};
	enum { CONNS = 8 };
	struct conn *c[CONNS];

	for (unsigned i = 0; i < CONNS; i++) {
		c[i] = conn_open(&o);
		ping(c[i]);
	}
	for (unsigned round = 0; round < 5; round++) {
		for (unsigned i = 0; i < CONNS; i++)
			while (c[i]->out < c[i]->credits)
				need(call_send_now(nfs_null(c[i])), "lost");
		for (unsigned i = 0; i < CONNS; i++)
			while (c[i]->out) {
				struct msg *m = conn_recv(c[i], WAIT_MS);
				struct call *k = c[i]->calls;

				need(m && k, "%u replies are missing", c[i]->out);
				reply_take(c[i], m);
			}
	}
}

/* ---- connects ---- */

/* One connection's life; each ends another way. */
static void live(unsigned how)
{
	struct opt o = {.recvs = 4, .no_priv = how % 7 == 0};
	struct conn *c = conn_open(&o);

	switch (how % 6) {
	case 0:
		ping(c);
		conn_close(c);
		return;
	case 1:
		ping(c);
		conn_drop(c);
		return;
	case 2:
		conn_close(c);
		return;
	case 3:
		conn_drop(c);
		return;
	case 4: { /* with a call under way */
		struct mem *m = mem_new(c, 65536, MEM_RW);
		struct call *k = nfs_read(c, &run.fh, 0, 65536);

		k->nwrites = 1;
		seg_add(&k->writes[0], m, 0, 65536);
		call_send_now(k);
		conn_drop(c);
		free(k);
		return;
	}
	default: { /* ended by the server */
		struct mem *m = mem_new(c, 65536, MEM_RW);
		struct call *k = nfs_read(c, &run.fh, 0, 65536);

		k->nwrites = 1;
		seg_add(&k->writes[0], m, 0, 65536);
		k->writes[0].s[0].handle ^= 0x77700;
		call_send_now(k);
		conn_wait_dead(c, 10000);
		call_free(k);
		conn_drop(c);
	}
	}
}

static void t_connects(void)
{
	unsigned n = run.count ? run.count : run.soak ? 10000 : 300;
	uint64_t begin = now_ms();

	pattern_file(conn_open(NULL), 1);
	for (unsigned i = 0; i < n; i++)
		live(i);
	diag("%u connections, %.1f ms each", n, (double)(now_ms() - begin) / n);
	ping(conn_open(NULL));
}

/* Against a server of few receives: connections come until all are granted, each has as many as it
 * was told, and there is room again when they go. */
static void t_full(void)
{
	struct conn *c[64];
	enum rdma_cm_event_type why;
	uint64_t end;
	unsigned n = 0;

	while (n < 64 && (c[n] = conn_try(NULL, &why)))
		n++;
	need(n && n < 64, "%u connections", n);
	need(why == RDMA_CM_EVENT_REJECTED, "%s", rdma_event_str(why));
	for (unsigned i = 0; i < n; i++)
		ping(c[i]);
	diag("%u connections, the last one of %u credits", n, c[n - 1]->credits);
	need(c[n - 1]->credits < c[0]->credits, "%u credits, and %u", c[0]->credits,
	     c[n - 1]->credits);
	for (unsigned i = 0; i < n; i++)
		conn_close(c[i]);
	for (end = now_ms() + WAIT_MS; !(c[0] = conn_try(NULL, &why));)
		need(now_ms() < end, "no connection any more");
	ping(c[0]);
}

/* Against a server of which one address has so many connections (-n): no more than that, and there
 * is room again when one goes. */
static void t_full_address(void)
{
	struct conn *c[64];
	enum rdma_cm_event_type why;
	unsigned n = 0;
	uint64_t end;

	while (n < 64 && (c[n] = conn_try(NULL, &why)))
		n++;
	need(n == run.count, "%u connections", n);
	need(why == RDMA_CM_EVENT_REJECTED, "%s", rdma_event_str(why));
	for (unsigned i = 0; i < n; i++)
		ping(c[i]);
	conn_close(c[0]);
	for (end = now_ms() + WAIT_MS; !(c[0] = conn_try(NULL, &why));)
		need(now_ms() < end, "no connection any more");
	ping(c[0]);
	need(!conn_try(NULL, &why), "one more than before");
}

/* Connections that are there for a while, with nothing under way, and are as good as before. */
static void t_stand(void)
{
	unsigned n = run.count ? run.count : 16;
	struct conn *c[64];

	need(n <= 64, "at most 64");
	for (unsigned i = 0; i < n; i++) {
		c[i] = conn_open(NULL);
		ping(c[i]);
	}
	usleep(3000000);
	for (unsigned i = 0; i < n; i++)
		ping(c[i]);
}

/* Connects, and calls only after so many seconds (-n). */
static void t_silent(void)
{
	struct conn *c = conn_open(NULL);

	usleep(run.count * 1000000);
	ping(c);
}

/* For so many seconds (-n), and nobody looks at it meanwhile. */
static void t_idle(void)
{
	ping(conn_open(NULL));
	usleep(run.count * 1000000);
}

/* Announces all it may, and then answers no RDMA Read: what the server keeps for that is looked at
 * from outside. */
static void t_announce(void)
{
	struct conn *c = conn_open(NULL);
	struct ibv_qp_attr dead = {.qp_state = IBV_QPS_ERR};
	struct mem *m;
	uint32_t pos;

	pattern_file(c, 1);
	m = mem_new(c, MIB, MEM_RW);
	for (unsigned i = 0; i < 64 && c->out < c->credits; i++) {
		struct call *k = nfs_write(c, &run.fh, 0, MIB, UNSTABLE, &pos);

		read_add(k, pos, m, 0, MIB);
		need(call_send_now(k), "lost");
	}
	need(!ibv_modify_qp(c->id->qp, &dead, IBV_QP_STATE), "the queue pair does not end");
	usleep(2500000);
	conn_drop(c);
}

/* ---- headers by chance ---- */

static uint32_t odd_number(void)
{
	static const uint32_t odd[] = {0,	   1,	       2,	   3,	      4,
				       5,	   7,	       16,	   255,	      256,
				       257,	   1024,       4095,	   4096,      4097,
				       0xffff,	   0x10000,    0x100000,   0x100001,  0x7fffffff,
				       0x80000000, 0xfffffffc, 0xfffffffe, 0xffffffff};

	return rnd() & 3 ? odd[rnd_to(sizeof odd / sizeof *odd)] : (uint32_t)rnd();
}

/* Lists by chance: memory that is there, mostly. */
static void random_chunk(struct chunk *ch, struct mem *m, uint32_t pos)
{
	unsigned n = rnd_to(4) ? 1 + rnd_to(4) : rnd_to(60);
	size_t at = 4096;

	while (n--) {
		uint32_t len = rnd_to(3) ? 1 + rnd_to(3000) : rnd_to(70000);

		if (at + len > m->n - 4096)
			break;
		seg_add(ch, m, at, len);
		ch->s[ch->n - 1].pos = rnd_to(12) ? pos : odd_number();
		if (!rnd_to(60))
			ch->s[ch->n - 1].length = odd_number();
		if (!rnd_to(150))
			ch->s[ch->n - 1].handle = odd_number();
		if (!rnd_to(150))
			ch->s[ch->n - 1].offset += odd_number();
		at += len;
	}
}

static struct call *random_call(struct conn *c, struct mem *m)
{
	uint32_t pos = 0, n = rnd_to(2) ? rnd_to(5000) : rnd_to(60000);
	struct call *k;

	switch (rnd_to(6)) {
	case 0:
		k = nfs_null(c);
		break;
	case 1:
	case 2:
		k = nfs_write(c, &run.fh, 120ull << 20, n, rnd_to(3), &pos);
		break;
	case 3:
		k = call_new(c, 100003, rnd_to(10) ? 3 : odd_number(), rnd_to(25));
		put_opaque(k, run.fh.b, run.fh.n);
		for (unsigned i = rnd_to(20); i; i--)
			put32(k, odd_number());
		break;
	default:
		k = nfs_read(c, &run.fh, rnd_to(8 * MIB), n);
	}
	if (pos ? rnd_to(8) : !rnd_to(8)) {
		random_chunk(&k->reads, m, pos);
		if (pos && k->reads.n && rnd_to(2)) /* often one that fits */
			k->reads.n = 1, k->reads.s[0].length = n, k->reads.s[0].pos = pos;
	}
	if (!rnd_to(6)) { /* the call behind position zero */
		memcpy(m->p, k->rpc, k->nrpc < 4096 ? k->nrpc : 4096);
		memmove(&k->reads.s[1], &k->reads.s[0],
			sizeof k->reads.s[0] * (k->reads.n < SEGS - 1 ? k->reads.n : SEGS - 1));
		k->reads.s[0] = (struct seg){0, m->rkey, k->nrpc, (uintptr_t)m->p};
		k->reads.n += k->reads.n < SEGS - 1;
		k->proc = rnd_to(8) ? RDMA_NOMSG : RDMA_MSG;
	}
	k->nwrites = rnd_to(3) ? 1 : rnd_to(4);
	for (unsigned i = 0; i < k->nwrites; i++)
		random_chunk(&k->writes[i], m, 0);
	k->has_chunk = !rnd_to(3);
	if (k->has_chunk)
		random_chunk(&k->chunk, m, 0);
	if (!rnd_to(25))
		k->proc = odd_number();
	if (!rnd_to(25))
		k->vers = odd_number();
	if (!rnd_to(10))
		k->credits = odd_number();
	return k;
}

/* Damage to the bytes: words, bits, the length. */
static size_t damage(uint8_t *b, size_t n, size_t max)
{
	if (!rnd_to(6))
		n = rnd_to((uint32_t)n + 1);
	if (!rnd_to(8) && n + 200 < max)
		for (unsigned i = rnd_to(200); i; i--)
			b[n++] = (uint8_t)rnd();
	for (unsigned i = rnd_to(3) ? 0 : 1 + rnd_to(4); i && n >= 20; i--) {
		uint32_t v = odd_number();
		size_t at = 4 * (size_t)rnd_to((uint32_t)(n / 4 < 60 ? n / 4 : 60));

		if (rnd_to(2))
			memcpy(b + at, (uint8_t[]){v >> 24, v >> 16, v >> 8, v}, 4);
		else
			b[at + rnd_to(4)] ^= (uint8_t)(1 << rnd_to(8));
	}
	return n ? n : 1;
}

struct tally {
	unsigned sent, lost, errors, replies;
};

/* Sends a message by chance, and a good call behind it. The replies are not looked at (the message
 * is no valid call), but that they are none longer than agreed. False: the connection was ended. */
static bool fuzz_one(struct conn *c, struct mem *m, struct tally *t)
{
	static uint8_t b[65536];
	struct call *k = random_call(c, m);
	size_t n = call_encode(k, b);
	uint32_t good;
	bool ok = true;

	if (n > c->call_max)
		n = c->call_max;
	n = damage(b, n, c->call_max);
	call_free(k);
	t->sent++;
	ok = conn_send(c, b, n);
	k = nfs_null(c);
	good = k->xid;
	n = call_encode(k, b);
	call_free(k);
	ok = ok && conn_send(c, b, n);
	for (uint64_t end = now_ms() + WAIT_MS; ok;) {
		struct msg *in = conn_recv(c, 1000);
		uint32_t xid;

		if (!in) {
			need(c->dead || now_ms() < end,
			     "message %u: the server does not answer any more", t->sent);
			ok = !c->dead;
			continue;
		}
		need(in->len <= c->reply_max && in->len >= 16, "message %u: a reply of %u bytes",
		     t->sent, in->len);
		xid = (uint32_t)in->b[0] << 24 | (uint32_t)in->b[1] << 16 |
		      (uint32_t)in->b[2] << 8 | in->b[3];
		t->errors += in->b[15] == RDMA_ERROR;
		t->replies += in->b[15] != RDMA_ERROR && xid != good;
		free(in);
		if (xid == good)
			break;
	}
	t->lost += !ok;
	return ok;
}

static void t_fuzz(void)
{
	unsigned n = run.count ? run.count : run.soak ? 50000 : 2000;
	struct tally t = {0};
	uint64_t begin = now_ms();
	struct conn *c = NULL;
	struct mem *m = NULL;

	c = conn_open(NULL);
	pattern_file(c, 1);
	conn_close(c);
	c = NULL;
	while (t.sent < n) {
		if (!c) {
			c = conn_open(NULL);
			m = mem_new(c, 4 * 70000 + 8192, MEM_RW);
			ping(c);
		}
		if (!fuzz_one(c, m, &t)) {
			conn_drop(c);
			c = NULL;
		}
	}
	diag("%u messages: %u RDMA_ERROR, %u replies, %u connections lost, %.1f s", t.sent,
	     t.errors, t.replies, t.lost, (double)(now_ms() - begin) / 1000);
	ping(conn_open(NULL));
}

static void t_vanish_connecting(void)
{
	/* Only the name service of the connection is asked, then the client is gone. */
	for (unsigned i = 0; i < (run.count ? run.count : 30); i++) {
		struct opt o = {.recvs = 1};
		struct conn *c = conn_try(&o, NULL);

		if (c)
			conn_drop(c);
	}
	ping(conn_open(NULL));
}

const struct test load_tests[] = {
	{"random READs of 4 KiB, 128 at once", t_random_reads, false},
	{"all credits of several connections", t_many_connections, false},
	{"clients that connect and vanish", t_vanish_connecting, false},
	{"connects", t_connects, true},
	{"connections until all receives are granted", t_full, true},
	{"connections until an address has no more", t_full_address, true},
	{"connections that stand", t_stand, true},
	{"a connection that is silent at first", t_silent, true},
	{"a connection that is idle", t_idle, true},
	{"announces much, and answers nothing", t_announce, true},
	{"fuzz", t_fuzz, true},
	{NULL, NULL, false},
};
