/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reply.c - decodes what comes from the server, and holds each message to the rules.
 */
#include "rw.h"
#include <stdio.h>
#include <stdlib.h>

struct in {
	const uint8_t *p, *end;
	bool bad;
};

static uint32_t g32(struct in *x)
{
	uint32_t v;

	if (x->end - x->p < 4) {
		x->bad = true;
		return 0;
	}
	v = (uint32_t)x->p[0] << 24 | (uint32_t)x->p[1] << 16 | (uint32_t)x->p[2] << 8 | x->p[3];
	x->p += 4;
	return v;
}

static void gchunk(struct in *x, struct chunk *ch)
{
	ch->n = g32(x);
	if (ch->n > SEGS || (size_t)(x->end - x->p) < ch->n * 16ul) {
		x->bad = true;
		ch->n = 0;
		return;
	}
	for (unsigned i = 0; i < ch->n; i++) {
		ch->s[i].pos = 0;
		ch->s[i].handle = g32(x);
		ch->s[i].length = g32(x);
		ch->s[i].offset = (uint64_t)g32(x) << 32;
		ch->s[i].offset |= g32(x);
	}
}

/* The call's chunk comes back, with lengths of what was written: contiguous from the start (RFC
 * 8166 section 3.4.6). Returns their sum. */
static uint64_t chunk_rules(const struct chunk *mine, const struct chunk *back, const char *what)
{
	bool open = false;
	uint64_t sum = 0;

	need(mine->n == back->n, "%s comes back with %u segments of %u (RFC 8166, 3.4.6)", what,
	     back->n, mine->n);
	for (unsigned i = 0; i < mine->n; i++) {
		const struct seg *m = &mine->s[i], *b = &back->s[i];

		need(m->handle == b->handle && m->offset == b->offset,
		     "segment %u of %s comes back as another (RFC 8166, 3.4.6)", i, what);
		need(b->length <= m->length, "segment %u of %s comes back with %u bytes of %u", i,
		     what, b->length, m->length);
		need(!open || !b->length,
		     "segment %u of %s holds data behind one that is not full (RFC 8166, 3.4.6)", i,
		     what);
		open |= b->length < m->length;
		sum += b->length;
	}
	return sum;
}

static bool rkey_of(const struct chunk *ch, uint32_t rkey)
{
	for (unsigned i = 0; i < ch->n; i++)
		if (ch->s[i].handle == rkey)
			return true;
	return false;
}

/* RFC 8797 section 4.1: only where both sides said so, and only a tag of this call's. */
static void invalidation_rules(const struct call *k)
{
	const struct reply *r = &k->r;
	bool of_call = rkey_of(&k->reads, r->inv_rkey) ||
		       (k->has_chunk && rkey_of(&k->chunk, r->inv_rkey));

	if (!r->inv)
		return;
	for (unsigned i = 0; i < k->nwrites; i++)
		of_call |= rkey_of(&k->writes[i], r->inv_rkey);
	need(k->c->inv_ok,
	     "the server invalidates %#x, and the two did not agree to that (RFC 8797, 4.1)",
	     r->inv_rkey);
	need(of_call, "the server invalidates %#x, which is none of the call's (RFC 8797, 4.1)",
	     r->inv_rkey);
	need(!k->no_inv || k->no_inv != r->inv_rkey,
	     "the server invalidates the rkey of the pad segment");
}

static void take_stream(struct call *k, struct in *x)
{
	struct reply *r = &k->r;
	uint32_t at = 0;

	r->nrpc = (uint32_t)(x->end - x->p);
	if (r->proc == RDMA_NOMSG) {
		need(!r->nrpc, "RDMA_NOMSG with %u bytes behind its header", r->nrpc);
		need(r->has_chunk, "RDMA_NOMSG without a Reply chunk (RFC 8166, 4.2.4)");
		for (unsigned i = 0; i < r->chunk.n; i++)
			r->nrpc += r->chunk.s[i].length;
		r->rpc = malloc(r->nrpc + 1);
		for (unsigned i = 0; i < r->chunk.n; i++) {
			memcpy(r->rpc + at, (const void *)(uintptr_t)r->chunk.s[i].offset,
			       r->chunk.s[i].length);
			at += r->chunk.s[i].length;
		}
		return;
	}
	for (unsigned i = 0; r->has_chunk && i < r->chunk.n; i++)
		need(!r->chunk.s[i].length, "RDMA_MSG with data in the Reply chunk");
	r->rpc = malloc(r->nrpc + 1);
	memcpy(r->rpc, x->p, r->nrpc);
}

static void take_rpc(struct call *k)
{
	struct reply *r = &k->r;
	struct in x = {r->rpc, r->rpc + r->nrpc, false};
	uint32_t n;

	need(g32(&x) == k->xid, "the RPC reply has another XID than its header (RFC 8166, 4.2.1)");
	need(g32(&x) == 1, "this is no RPC reply");
	r->reply_stat = g32(&x);
	if (!r->reply_stat) {
		g32(&x);
		n = g32(&x);
		need(n <= 400 && (size_t)(x.end - x.p) >= n, "a verifier of %u bytes", n);
		x.p += (n + 3) & ~3u;
		r->accept_stat = g32(&x);
	}
	need(!x.bad, "the RPC reply is cut off at %u bytes", r->nrpc);
	r->res = x.p;
	r->nres = (uint32_t)(x.end - x.p);
	need(!(r->nrpc & 3), "a payload stream of %u bytes", r->nrpc);
}

static void take_lists(struct call *k, struct in *x)
{
	struct reply *r = &k->r;

	need(!g32(x), "a Read list in a reply (RFC 8166, 4.3.1)");
	while (g32(x) && !x->bad) {
		need(r->nwrites < 4, "a reply with more Write chunks than any call");
		gchunk(x, &r->writes[r->nwrites++]);
	}
	r->has_chunk = g32(x);
	if (r->has_chunk)
		gchunk(x, &r->chunk);
	need(!x->bad, "a reply's header is cut off");
	need(r->nwrites == k->nwrites, "%u Write chunks come back of %u (RFC 8166, 4.3.2)",
	     r->nwrites, k->nwrites);
	for (unsigned i = 0; i < r->nwrites; i++)
		chunk_rules(&k->writes[i], &r->writes[i], "a Write chunk");
	need(r->has_chunk == k->has_chunk, "the Reply chunk is %s (RFC 8166, 4.3.3)",
	     r->has_chunk ? "invented" : "not copied into the reply");
	if (r->has_chunk)
		chunk_rules(&k->chunk, &r->chunk, "the Reply chunk");
}

static void take_error(struct reply *r, struct in *x)
{
	r->err = g32(x);
	need(r->err == ERR_VERS || r->err == ERR_CHUNK, "RDMA_ERROR %u", r->err);
	if (r->err == ERR_VERS) {
		r->low = g32(x);
		r->high = g32(x);
	}
	need(!x->bad && x->p == x->end, "an RDMA_ERROR of a wrong length");
}

void reply_take(struct conn *c, struct msg *m)
{
	struct in x = {m->b, m->b + m->len, false};
	struct call *k, **p;
	struct reply *r;
	uint32_t xid;

	need(m->len >= 16, "a message of %u bytes", m->len);
	need(m->len <= c->reply_max,
	     "a message of %u bytes, over the inline threshold of %u (RFC 8166, 3.3.2)", m->len,
	     c->reply_max);
	xid = g32(&x);
	for (p = &c->calls; *p && (*p)->xid != xid; p = &(*p)->next)
		;
	k = *p;
	need(k, "a message for XID %#x, which is none of ours or answered", xid);
	*p = k->next;
	c->out--;
	r = &k->r;
	r->xid = xid;
	r->vers = g32(&x);
	r->credits = g32(&x);
	r->proc = g32(&x);
	r->inv = m->inv;
	r->inv_rkey = m->inv_rkey;
	need(r->vers == k->vers, "version %u in the reply to version %u (RFC 8166, 4.5)", r->vers,
	     k->vers);
	need(r->credits, "a grant of no credit (RFC 8166, 3.3.1)");
	c->credits = r->credits < k->credits ? r->credits : k->credits;
	if (!c->credits)
		c->credits = 1;
	need(r->proc == RDMA_MSG || r->proc == RDMA_NOMSG || r->proc == RDMA_ERROR,
	     "procedure %u in a reply", r->proc);
	invalidation_rules(k);
	if (r->proc == RDMA_ERROR) {
		take_error(r, &x);
	} else {
		take_lists(k, &x);
		take_stream(k, &x);
		take_rpc(k);
	}
	k->done = true;
	free(m);
}
