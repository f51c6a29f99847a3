/* SPDX-License-Identifier: Apache-2.0 */
/*
 * msg.c - calls: their headers, and who may send one when.
 */
#include "rw.h"
#include <stdlib.h>

void put32(struct call *k, uint32_t v)
{
	uint8_t b[4] = {v >> 24, v >> 16, v >> 8, v};

	put_bytes(k, b, 4);
}

void put64(struct call *k, uint64_t v)
{
	put32(k, v >> 32);
	put32(k, (uint32_t)v);
}

void put_bytes(struct call *k, const void *p, uint32_t n)
{
	need(k->nrpc + n <= sizeof k->rpc, "the test's call is too long");
	memcpy(k->rpc + k->nrpc, p, n);
	k->nrpc += n;
}

void put_opaque(struct call *k, const void *p, uint32_t n)
{
	put32(k, n);
	put_bytes(k, p, n);
	put_bytes(k, "\0\0\0", -n & 3);
}

struct call *call_new(struct conn *c, uint32_t prog, uint32_t vers, uint32_t proc)
{
	struct call *k = malloc(sizeof *k);

	/* Nearly all of it is room for segments. */
	memset(k, 0, offsetof(struct call, reads));
	memset(&k->r, 0, offsetof(struct reply, writes));
	k->reads.n = k->chunk.n = 0;
	for (unsigned i = 0; i < 4; i++)
		k->writes[i].n = 0;
	k->c = c;
	k->xid = c->xid++;
	k->vers = 1;
	k->credits = 128;
	k->proc = RDMA_MSG;
	put32(k, k->xid);
	put32(k, 0); /* CALL */
	put32(k, 2);
	put32(k, prog);
	put32(k, vers);
	put32(k, proc);
	put32(k, 1); /* AUTH_SYS */
	put32(k, 4 + 4 + 4 + 4 + 4 + 4);
	put32(k, 0);
	put_opaque(k, "lab", 3);
	put32(k, 0);
	put32(k, 0);
	put32(k, 0);
	put32(k, 0); /* the verifier: AUTH_NONE */
	put32(k, 0);
	return k;
}

static void unlist(struct call *k)
{
	struct call **p;

	if (!k->c || !k->sent || k->done)
		return;
	for (p = &k->c->calls; *p; p = &(*p)->next)
		if (*p == k) {
			*p = k->next;
			k->c->out--;
			return;
		}
}

void call_free(struct call *k)
{
	unlist(k);
	free(k->r.rpc);
	free(k);
}

void seg_add(struct chunk *ch, struct mem *m, size_t off, uint32_t len)
{
	need(ch->n < SEGS, "the test has too many segments");
	ch->s[ch->n++] = (struct seg){0, m->rkey, len, (uintptr_t)m->p + off};
}

void read_add(struct call *k, uint32_t pos, struct mem *m, size_t off, uint32_t len)
{
	seg_add(&k->reads, m, off, len);
	k->reads.s[k->reads.n - 1].pos = pos;
}

static uint8_t *w32(uint8_t *p, uint32_t v)
{
	p[0] = v >> 24;
	p[1] = v >> 16;
	p[2] = v >> 8;
	p[3] = v;
	return p + 4;
}

static uint8_t *wseg(uint8_t *p, const struct seg *s)
{
	p = w32(p, s->handle);
	p = w32(p, s->length);
	p = w32(p, s->offset >> 32);
	return w32(p, (uint32_t)s->offset);
}

static uint8_t *wchunk(uint8_t *p, const struct chunk *ch)
{
	p = w32(p, 1);
	p = w32(p, ch->n);
	for (unsigned i = 0; i < ch->n; i++)
		p = wseg(p, &ch->s[i]);
	return p;
}

size_t call_encode(const struct call *k, uint8_t *out)
{
	uint8_t *p = out;

	p = w32(p, k->xid);
	p = w32(p, k->vers);
	p = w32(p, k->credits);
	p = w32(p, k->proc);
	for (unsigned i = 0; i < k->reads.n; i++) {
		p = w32(p, 1);
		p = w32(p, k->reads.s[i].pos);
		p = wseg(p, &k->reads.s[i]);
	}
	p = w32(p, 0);
	for (unsigned i = 0; i < k->nwrites; i++)
		p = wchunk(p, &k->writes[i]);
	p = w32(p, 0);
	p = k->has_chunk ? wchunk(p, &k->chunk) : w32(p, 0);
	if (k->proc != RDMA_NOMSG) {
		memcpy(p, k->rpc, k->nrpc);
		p += k->nrpc;
	}
	return (size_t)(p - out);
}

bool call_send_now(struct call *k)
{
	static uint8_t b[32768];
	size_t n = call_encode(k, b);

	k->sent = true;
	k->next = k->c->calls;
	k->c->calls = k;
	k->c->out++;
	return conn_send(k->c, b, n);
}

void call_send(struct call *k)
{
	struct conn *c = k->c;
	uint64_t end = now_ms() + WAIT_MS;

	while (c->out >= c->credits && !c->dead && now_ms() < end) {
		struct msg *m = conn_recv(c, 1000);

		if (m)
			reply_take(c, m);
	}
	need(c->out < c->credits || c->dead, "no credit came back: %u calls in flight, %u granted",
	     c->out, c->credits);
	need(call_send_now(k), "the connection was lost (%s) before a call could be sent",
	     ibv_wc_status_str(c->wc_status));
}

bool call_try(struct call *k, int ms)
{
	struct conn *c = k->c;
	uint64_t end = now_ms() + (uint64_t)ms;

	if (!k->sent && !call_send_now(k))
		return false;
	while (!k->done) {
		uint64_t now = now_ms();
		struct msg *m = conn_recv(c, now < end ? (int)(end - now) : 0);

		if (m)
			reply_take(c, m);
		else if (c->dead || now_ms() >= end)
			return false;
	}
	return true;
}

const char *outcome(const struct call *k)
{
	static char text[64];

	if (!k->done)
		return k->c && k->c->dead ? "a lost connection" : "no reply";
	if (k->r.proc == RDMA_ERROR)
		return k->r.err == ERR_VERS    ? "ERR_VERS"
		       : k->r.err == ERR_CHUNK ? "ERR_CHUNK"
					       : "an unknown RDMA_ERROR";
	if (k->r.reply_stat)
		return "an RPC reply MSG_DENIED";
	if (k->r.accept_stat == 4)
		return "an RPC reply GARBAGE_ARGS";
	strcpy(text, "an RPC reply SUCCESS");
	if (k->r.accept_stat)
		strcpy(text, "an RPC reply with another accept_stat");
	return text;
}

void call_reply(struct call *k)
{
	if (!k->sent)
		call_send(k);
	need(call_try(k, WAIT_MS), "%s (%s)", outcome(k), ibv_wc_status_str(k->c->wc_status));
	need(k->r.proc != RDMA_ERROR, "answered with %s", outcome(k));
}

void call_ok(struct call *k)
{
	call_reply(k);
	need(!k->r.reply_stat && !k->r.accept_stat, "answered with %s", outcome(k));
}

void call_error(struct call *k, uint32_t err)
{
	if (!k->sent)
		call_send(k);
	call_try(k, WAIT_MS);
	need(k->done && k->r.proc == RDMA_ERROR && k->r.err == err, "want %s, got %s",
	     err == ERR_VERS ? "ERR_VERS" : "ERR_CHUNK", outcome(k));
}
