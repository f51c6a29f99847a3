/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_conn.c - private data, inline thresholds, credits, remote invalidation.
 */
#include "rw.h"
#include <stdlib.h>

static void t_private(void)
{
	struct conn *c = conn_open(NULL);

	need(c->priv_found, "the server sends no private data of version 1 (RFC 8797, 4)");
	need(c->call_max >= 1024 && c->reply_max >= 1024, "thresholds of %u and %u", c->call_max,
	     c->reply_max);
	diag("inline: calls %u, replies %u", c->call_max, c->reply_max);
	ping(c);
	conn_close(c);
}

/* A READ of n bytes without chunks: true when data came inline. */
static bool inline_read(struct conn *c, uint32_t n)
{
	struct call *k = nfs_read(c, &run.fh, 0, n);
	struct rd d;
	bool inl;

	call_send(k);
	need(call_try(k, WAIT_MS), "READ of %u inline: %s", n, outcome(k));
	inl = k->r.proc != RDMA_ERROR && !k->r.reply_stat && !k->r.accept_stat;
	if (inl) {
		d = read_result(k);
		need(!d.status && d.inl, "READ of %u inline: status %u", n, d.status);
		pattern_need(d.inl, 0, d.len, "inline READ");
		inl = d.len == n;
	}
	call_free(k);
	return inl;
}

static void t_no_private(void)
{
	struct opt o = {.no_priv = true};
	struct conn *c = conn_open(NULL);

	pattern_file(c, 1);
	c = conn_open(&o);
	ping(c);
	need(inline_read(c, 512), "a READ of 512 bytes does not come inline");
	/* The reply is longer than 1024 bytes: whatever comes, no such message (reply_take looks at
	 * the length). */
	need(!inline_read(c, 1000), "1000 bytes in a reply of 1024");
	ping(c);
}

static void t_private_anywhere(void)
{
	static const uint8_t shifted[] = {1, 2, 3, 0xf6, 0xab, 0x0e, 0x18, 1, 0, 3, 3};
	struct opt o = {.raw = shifted, .nraw = sizeof shifted};
	struct conn *c = conn_open(NULL);

	pattern_file(c, 1);
	c = conn_open(&o);
	need(inline_read(c, 2048),
	     "private data behind three other bytes is not found (RFC 8797, 5.2)");
}

static void t_private_foreign(void)
{
	static const uint8_t vers2[] = {0xf6, 0xab, 0x0e, 0x18, 2, 1, 255, 255},
			     cut[] = {0xf6, 0xab, 0x0e, 0x18, 1, 1};
	static const uint8_t junk[] = "not private data of RPC over RDMA at all";
	const struct opt opts[] = {
		{.raw = vers2, .nraw = sizeof vers2},
		{.raw = junk, .nraw = sizeof junk},
		{.raw = cut, .nraw = sizeof cut},
	};
	struct conn *c = conn_open(NULL);

	pattern_file(c, 1);
	for (unsigned i = 0; i < 3; i++) {
		c = conn_open(&opts[i]);
		c->reply_max = 1024;
		c->inv_ok = false;
		ping(c);
		/* A cut one is filled with zeros on some fabrics: that says 1024 as well. */
		need(!inline_read(c, 1000), "1000 bytes in a reply of 1024");
		ping(c);
		conn_close(c);
	}
}

static void t_small_receives(void)
{
	struct opt o = {.recv_size = 1024};
	struct conn *c = conn_open(NULL);

	pattern_file(c, 1);
	c = conn_open(&o);
	for (uint32_t n = 700; n < 1000; n += 4)
		inline_read(c, n);
	ping(c);
}

static void t_thresholds(void)
{
	struct conn *c = conn_open(NULL);
	uint32_t top = 0;

	pattern_file(c, 1);
	for (uint32_t n = 3600; n < 4200; n += 4)
		if (inline_read(c, n))
			top = n;
	diag("the longest inline READ of this server has %u bytes", top);
	ping(c);
}

static uint32_t grant_for(struct conn *c, uint32_t ask)
{
	struct call *k = nfs_null(c);
	uint32_t grant;

	k->credits = ask;
	call_ok(k);
	grant = k->r.credits;
	call_free(k);
	return grant;
}

static void t_grants(void)
{
	struct conn *c = conn_open(NULL);
	uint32_t ask[] = {128, 0, 1, 7, 0xffffffff, 0x80000000, 128};

	for (unsigned i = 0; i < 7; i++) {
		uint32_t grant = grant_for(c, ask[i]);

		need(grant, "asked %u, no credit granted", ask[i]);
		need(grant <= 4096, "asked %u, granted %u", ask[i], grant);
		if (ask[i] == 128)
			diag("asked 128, granted %u", grant);
	}
}

/* As many calls at once as are granted, again and again. */
static void burst(struct conn *c, unsigned rounds)
{
	struct call *k[1024];

	ping(c);
	for (unsigned r = 0; r < rounds; r++) {
		unsigned n = c->credits;

		need(n <= 1024, "%u credits", n);
		for (unsigned i = 0; i < n; i++) {
			k[i] = nfs_null(c);
			need(call_send_now(k[i]), "lost after %u calls of %u granted: %s", i, n,
			     ibv_wc_status_str(c->wc_status));
		}
		for (unsigned i = 0; i < n; i++) {
			call_ok(k[i]);
			call_free(k[i]);
		}
	}
}

static void t_burst(void)
{
	struct conn *c = conn_open(NULL);

	burst(c, 8);
}

/* The first call goes out with the last message of the connection's set-up: its Receive must be
 * there. */
static void t_first_call(void)
{
	for (unsigned i = 0; i < 30; i++) {
		struct conn *c = conn_open(NULL);

		ping(c);
		conn_close(c);
	}
}

static void t_burst_small(void)
{
	struct opt o = {.no_priv = true, .recvs = 600};
	struct conn *c = conn_open(&o);

	burst(c, 4);
}

/* ---- remote invalidation ---- */

/* Reads n bytes into one window (and a pad that must stay). Returns whether the server
 * invalidated. */
static bool read_invalidating(struct conn *c, uint32_t n, struct mem *pad)
{
	struct mem *m = mem_new_inv(c, n);
	struct call *k = nfs_read(c, &run.fh, 0, n);
	struct rd d;
	bool inv;

	k->nwrites = 1;
	seg_add(&k->writes[0], m, 0, n);
	if (pad) {
		seg_add(&k->writes[0], pad, 0, 4);
		k->no_inv = pad->rkey;
	}
	call_ok(k);
	d = read_result(k);
	need(!d.status && d.len == n, "status %u, %u bytes", d.status, d.len);
	pattern_need(m->p, 0, n, "READ");
	inv = k->r.inv;
	if (pad)
		guard_need(pad->p, pad->n, "the pad segment");
	call_free(k);
	/* siw does not tell: the tag is gone when it can be used no more. */
	if (run.iwarp && !pad) {
		k = nfs_read(c, &run.fh, 0, 8);
		k->nwrites = 1;
		seg_add(&k->writes[0], m, 0, 8);
		call_send(k);
		inv = !call_try(k, WAIT_MS);
		need(!inv || c->dead, "no reply");
		call_free(k);
	}
	mem_free(m);
	return inv;
}

static void t_invalidation(void)
{
	struct opt o = {.flags = PRIV_R};
	struct conn *c = conn_open(NULL);
	unsigned inv = 0;
	bool can;

	pattern_file(c, 1);
	c = conn_open(&o);
	can = c->inv_ok;
	for (unsigned i = 0; i < 20; i++) {
		inv += read_invalidating(c, 65536, NULL);
		if (c->dead)
			c = conn_open(&o);
	}
	diag("%u of 20 replies invalidated%s", inv,
	     can ? "" : " (the server does not say that it can)");
	/* It may; on iWARP, where a client is not told of it, it need not. */
	need(run.peer || inv == (can ? 20 : 0) || (run.iwarp && !inv),
	     "the server says that it %s, and does in %u of 20 replies",
	     can ? "invalidates" : "does not invalidate", inv);
	ping(c);
}

static void t_invalidation_pad(void)
{
	struct opt o = {.flags = PRIV_R};
	struct conn *c = conn_open(NULL);
	struct mem *pad;
	struct call *k;

	pattern_file(c, 1);
	c = conn_open(&o);
	pad = mem_new_inv(c, 4);
	for (uint32_t n = 60001; n < 60021; n++)
		read_invalidating(c, n, pad);
	/* It is as good as it was. */
	k = nfs_read(c, &run.fh, 0, 4);
	k->nwrites = 1;
	seg_add(&k->writes[0], pad, 0, 4);
	call_ok(k);
	pattern_need(pad->p, 0, 4, "READ into the pad's memory");
	call_free(k);
	ping(c);
}

/* Several calls at once: each reply takes away a tag of its own call only (reply_take looks at
 * that). */
static void t_invalidation_many(void)
{
	struct opt o = {.flags = PRIV_R};
	struct conn *c = conn_open(NULL);
	struct mem *m[16];
	struct call *k[16];

	pattern_file(c, 1);
	c = conn_open(&o);
	ping(c);
	for (unsigned i = 0; i < 16; i++) {
		m[i] = mem_new_inv(c, 8192);
		k[i] = nfs_read(c, &run.fh, i * 8192, 8192);
		k[i]->nwrites = 1;
		seg_add(&k[i]->writes[0], m[i], 0, 8192);
	}
	for (unsigned i = 0; i < 16; i++)
		call_send(k[i]);
	for (unsigned i = 0; i < 16; i++) {
		call_ok(k[i]);
		pattern_need(m[i]->p, i * 8192, 8192, "READ");
		call_free(k[i]);
	}
}

/* WRITE's Read chunk and a call in a position-zero chunk may be invalidated as well; an error's
 * chunks may. */
static void t_invalidation_write(void)
{
	struct opt o = {.flags = PRIV_R};
	struct conn *c = conn_open(&o);
	unsigned inv = 0;
	uint32_t pos, count;

	for (unsigned i = 0; i < 8; i++) {
		struct mem *m = mem_new_inv(c, 16384);
		struct call *k = nfs_write(c, &run.fh, 0, 16384, FILE_SYNC, &pos);

		pattern_fill(m->p, 0, 16384);
		read_add(k, pos, m, 0, 16384);
		call_ok(k);
		need(!write_result(k, &count) && count == 16384, "WRITE: status %u",
		     write_result(k, &count));
		inv += k->r.inv;
		call_free(k);
		mem_free(m);
	}
	diag("%u of 8 replies to WRITE invalidated", inv);
	ping(c);
}

const struct test conn_tests[] = {
	{"private data is exchanged", t_private, false},
	{"without private data: nothing longer than 1024 bytes comes", t_no_private, false},
	{"private data is found behind other bytes", t_private_anywhere, false},
	{"private data that is not ours counts as none", t_private_foreign, false},
	{"Receives of 1024 bytes hold every reply", t_small_receives, false},
	{"inline replies end at the threshold", t_thresholds, false},
	{"grants are never zero, and bounded", t_grants, false},
	{"the first call of a connection finds a Receive", t_first_call, false},
	{"as many calls at once as granted", t_burst, false},
	{"as many calls at once as granted, without private data", t_burst_small, false},
	{"remote invalidation: the call's own tag", t_invalidation, false},
	{"remote invalidation: never that of the pad", t_invalidation_pad, false},
	{"remote invalidation: many calls at once", t_invalidation_many, false},
	{"remote invalidation: WRITE", t_invalidation_write, false},
	{NULL, NULL, false},
};
