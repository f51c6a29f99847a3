/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_error.c - headers that are wrong, memory that is not there, and clients that vanish: one
 * connection pays, and no other.
 */
#include "rw.h"
#include <stdlib.h>

/* The server still serves: this connection, or a new one. */
static void alive(struct conn *c)
{
	if (c && !c->dead)
		ping(c);
	c = conn_open(NULL);
	ping(c);
	conn_close(c);
}

static void t_version(void)
{
	struct conn *c = conn_open(NULL);
	uint32_t vers[] = {0, 2, 3, 0x01000000, 0xffffffff};

	for (unsigned i = 0; i < 5; i++) {
		struct call *k = nfs_null(c);

		k->vers = vers[i];
		call_error(k, ERR_VERS);
		need(k->r.low == 1 && k->r.high == 1, "versions %u to %u", k->r.low, k->r.high);
		call_free(k);
		ping(c);
	}
}

static void t_procedure(void)
{
	struct conn *c = conn_open(NULL);
	uint32_t proc[] = {RDMA_MSGP, 5, 6, 0x80000000, 0xffffffff};

	for (unsigned i = 0; i < 5; i++) {
		struct call *k = nfs_null(c);

		k->proc = proc[i];
		call_error(k, ERR_CHUNK);
		call_free(k);
		ping(c);
	}
}

/* Nothing but what is thrown away, as fast as it goes: the server may end this connection, and
 * others find their Receives. */
static void t_discarded_flood(void)
{
	struct conn *other = conn_open(NULL), *c = conn_open(NULL);
	unsigned sent = 0;

	ping(other);
	ping(c);
	for (; sent < 3000 && !c->dead; sent++) {
		struct call *k = nfs_null(c);
		uint8_t b[8192];
		size_t n;

		k->proc = RDMA_DONE;
		n = call_encode(k, b);
		call_free(k);
		if (!conn_send(c, b, n))
			break;
		if (sent % 100 == 0)
			ping(other);
	}
	diag("%u messages of no use: the connection %s", sent, c->dead ? "is ended" : "lives");
	ping(other);
	ping(conn_open(NULL));
}

/* As many calls at once as are granted: every Receive is there. */
static void burst_now(struct conn *c)
{
	unsigned n = c->credits;
	struct call *k[1024];

	need(n <= 1024, "%u credits", n);
	for (unsigned i = 0; i < n; i++) {
		k[i] = nfs_null(c);
		need(call_send_now(k[i]), "lost");
	}
	for (unsigned i = 0; i < n; i++) {
		call_ok(k[i]);
		call_free(k[i]);
	}
}

static void discarded(struct conn *c, const void *p, size_t n)
{
	need(conn_send(c, p, n), "the connection is lost: %s", ibv_wc_status_str(c->wc_status));
}

static void t_discarded(void)
{
	struct conn *c = conn_open(NULL);

	ping(c);
	for (unsigned i = 0; i < 300; i++) {
		struct call *k = nfs_null(c);
		uint8_t b[8192];
		size_t n;

		k->proc = i & 1 ? RDMA_DONE : RDMA_ERROR;
		n = call_encode(k, b);
		discarded(c, b, i % 3 ? n : (size_t)HEADER_MIN);
		call_free(k);
		if (i % 8 == 7)
			ping(c);
	}
	burst_now(c);
}

static void t_short(void)
{
	struct conn *c = conn_open(NULL);

	ping(c);
	for (unsigned i = 0; i < 300; i++) {
		struct call *k = nfs_null(c);
		uint8_t b[8192];

		call_encode(k, b);
		discarded(c, b, 1 + i % (HEADER_MIN - 1));
		call_free(k);
		if (i % 8 == 7)
			ping(c);
	}
	burst_now(c);
}

/* A header that is cut off anywhere: ERR_CHUNK. Where only the RPC call behind it is: an answer of
 * any kind but success, or none. */
static void t_truncated(void)
{
	struct conn *c = conn_open(NULL);
	struct mem *m = mem_new(c, 4096, MEM_RW);
	struct call *k = nfs_read(c, &run.fh, 0, 512);
	unsigned lost = 0;
	uint8_t b[8192];
	size_t n, head;

	k->nwrites = 2;
	seg_add(&k->writes[0], m, 0, 512);
	seg_add(&k->writes[1], m, 512, 512);
	k->has_chunk = true;
	seg_add(&k->chunk, m, 1024, 2048);
	n = call_encode(k, b);
	head = n - k->nrpc;
	for (size_t cut = HEADER_MIN; cut < n; cut += cut < head + 12 ? 4 : 20) {
		struct call *t = nfs_null(c);

		/* the XID of t, in both places */
		memcpy(b, t->rpc, 4);
		memcpy(b + head, t->rpc, 4);
		t->sent = true;
		t->next = c->calls;
		c->calls = t;
		c->out++;
		/* what comes back is checked against the lists that went out */
		t->nwrites = 2;
		t->writes[0] = k->writes[0];
		t->writes[1] = k->writes[1];
		t->has_chunk = true;
		t->chunk = k->chunk;
		need(conn_send(c, b, cut), "lost");
		call_try(t, cut < head ? WAIT_MS : 300);
		if (cut < head)
			need(t->done && t->r.proc == RDMA_ERROR && t->r.err == ERR_CHUNK,
			     "a header of %zu bytes cut off after %zu: %s", head, cut, outcome(t));
		else
			need(!t->done || t->r.proc == RDMA_ERROR || t->r.reply_stat ||
				     t->r.accept_stat,
			     "a call of %zu bytes cut off after %zu: %s", n - head, cut - head,
			     outcome(t));
		lost += c->dead;
		call_free(t);
		if (c->dead)
			c = conn_open(NULL);
		ping(c);
	}
	call_free(k);
	if (lost)
		diag("%u connections were ended", lost);
}

/* Sends these words as the lists of an otherwise good header; wants ERR_CHUNK. */
static void lists_refused(struct conn *c, const uint32_t *w, unsigned n, const char *what)
{
	struct call *k = nfs_null(c);
	uint8_t b[8192], *p;
	size_t len = call_encode(k, b);

	p = b + 16;
	for (unsigned i = 0; i < n; i++, p += 4) {
		p[0] = w[i] >> 24;
		p[1] = w[i] >> 16;
		p[2] = w[i] >> 8;
		p[3] = w[i];
	}
	memcpy(p, k->rpc, k->nrpc);
	len = (size_t)(p - b) + k->nrpc;
	k->sent = true;
	k->next = c->calls;
	c->calls = k;
	c->out++;
	need(conn_send(c, b, len), "lost");
	call_try(k, WAIT_MS);
	need(k->done && k->r.proc == RDMA_ERROR && k->r.err == ERR_CHUNK,
	     "%s: want ERR_CHUNK, got %s", what, outcome(k));
	call_free(k);
	ping(c);
}

static void t_counts(void)
{
	static const uint32_t huge[] = {0xffffffff, 0x10000000, 0x0fffffff,
					0x80000000, 100000,	300};
	struct conn *c = conn_open(NULL);

	for (unsigned i = 0; i < 6; i++) {
		uint32_t write[] = {0, 1, huge[i], 1, 2, 3, 4, 0, 0},
			 chunk[] = {0, 0, 1, huge[i], 1, 2, 3, 4};

		lists_refused(c, write, 9, "a Write chunk of very many segments");
		lists_refused(c, chunk, 8, "a Reply chunk of very many segments");
	}
	{
		/* optional-data that is neither there nor not (RFC 4506 section 4.4: FALSE 0, TRUE
		 * 1) */
		uint32_t endless[6 * 40];

		for (unsigned i = 0; i < 240; i++)
			endless[i] = 1;
		lists_refused(c, endless, 240, "a Read list without an end");
	}
}

static void t_nomsg_nothing(void)
{
	struct conn *c = conn_open(NULL);
	struct call *k = nfs_null(c);

	k->proc = RDMA_NOMSG;
	call_error(k, ERR_CHUNK);
	call_free(k);
	/* a data chunk alone is no call either */
	k = nfs_null(c);
	k->proc = RDMA_NOMSG;
	read_add(k, 40, mem_new(c, 4096, MEM_RW), 0, 100);
	call_error(k, ERR_CHUNK);
	call_free(k);
	/* nor is one of no bytes, or of too few for an XID */
	for (uint32_t n = 0; n < 4; n++) {
		k = nfs_null(c);
		k->proc = RDMA_NOMSG;
		read_add(k, 0, mem_new(c, 4096, MEM_RW), 0, n);
		call_error(k, ERR_CHUNK);
		call_free(k);
	}
	ping(c);
}

/* The call's answer must not be success unless it may, and the connection goes on (or is ended
 * where that is told). */
static void refused(struct call *k, const char *what, bool may)
{
	struct conn *c = k->c;
	uint32_t count;
	bool bad;

	call_send(k);
	call_try(k, WAIT_MS);
	need(k->done || c->dead, "%s: no reply", what);
	bad = !k->done || k->r.proc == RDMA_ERROR || k->r.reply_stat || k->r.accept_stat;
	if (!bad)
		bad = write_result(k, &count) != 0;
	need(bad || may, "%s: %s", what, outcome(k));
	diag("%s: %s", what, outcome(k));
	call_free(k);
	alive(c);
}

static void t_mismatch(void)
{
	static const struct {
		int pos;
		uint32_t chunk, count;
		const char *what;
		bool may; /* what is left over is behind the last item of the call */
	} tries[] = {
		{0, 96, 100, "a chunk shorter than its item", false},
		{0, 0, 100, "an empty chunk for an item of 100 bytes", false},
		{0, 108, 100, "a chunk longer than its item and its padding", true},
		{0, 4096, 100, "a chunk much longer than its item", true},
		{1, 100, 100, "a position that is no multiple of four", false},
		{-2, 100, 100, "a position that is no multiple of four, before the item", false},
		{4, 100, 100, "a position behind the end of the stream", false},
		{4096, 100, 100, "a position far behind the end", false},
		{-4, 100, 100, "a position at the item's length", false},
		{-24, 100, 100, "a position in the arguments", false},
		{-96, 100, 100, "a position in the credential", false},
	};
	struct conn *c = conn_open(NULL);

	for (unsigned i = 0; i < sizeof tries / sizeof *tries; i++) {
		struct mem *m;
		uint32_t pos;
		struct call *k;

		if (c->dead)
			c = conn_open(NULL);
		m = mem_new(c, 8192, MEM_RW);
		k = nfs_write(c, &run.fh, 64ul << 20, tries[i].count, FILE_SYNC, &pos);
		read_add(k, pos + (uint32_t)tries[i].pos, m, 0, tries[i].chunk);
		refused(k, tries[i].what, tries[i].may);
	}
}

static void t_two_read_chunks(void)
{
	struct conn *c = conn_open(NULL);
	struct mem *m = mem_new(c, 8192, MEM_RW);
	uint32_t pos;
	struct call *k = nfs_write(c, &run.fh, 64ul << 20, 100, FILE_SYNC, &pos);

	/* NFSv3 has one item that may be in a chunk. */
	read_add(k, pos, m, 0, 100);
	read_add(k, pos + 200, m, 100, 100);
	refused(k, "a second Read chunk behind the data", false);
	if (c->dead)
		c = conn_open(NULL);
	m = mem_new(c, 8192, MEM_RW);
	k = nfs_write(c, &run.fh, 64ul << 20, 100, FILE_SYNC, &pos);
	read_add(k, pos, m, 0, 50);
	read_add(k, 40, m, 100, 20);
	read_add(k, pos, m, 50, 50);
	refused(k, "a chunk in the middle of another", false);
}

static void t_huge_lengths(void)
{
	struct conn *c = conn_open(NULL);
	struct mem *m = mem_new(c, 8192, MEM_RW);
	uint32_t pos;
	struct call *k;

	k = nfs_write(c, &run.fh, 64ul << 20, 0xfffffff0, FILE_SYNC, &pos);
	read_add(k, pos, m, 0, 0xfffffff0);
	refused(k, "a WRITE of 4 GiB", false);
	c = conn_open(NULL);
	m = mem_new(c, 8192, MEM_RW);
	k = nfs_write(c, &run.fh, 64ul << 20, 100, FILE_SYNC, &pos);
	for (unsigned i = 0; i < 16; i++)
		read_add(k, pos, m, 0, 0x10000000);
	read_add(k, pos, m, 0, 100);
	refused(k, "a chunk of 4 GiB and 100 bytes", false);
	c = conn_open(NULL);
	m = mem_new(c, 8192, MEM_RW);
	k = nfs_null(c);
	k->proc = RDMA_NOMSG;
	for (unsigned i = 0; i < 100; i++)
		read_add(k, 0, m, 0, 0x7fffffff);
	call_send(k);
	call_try(k, WAIT_MS);
	need(k->done ? k->r.proc == RDMA_ERROR : c->dead, "a call of 200 GiB: %s", outcome(k));
	call_free(k);
	alive(c);
}

static void t_xid(void)
{
	struct conn *c = conn_open(NULL);
	struct call *k = nfs_null(c);

	/* ERR_CHUNK (RFC 8166 section 4.5.2), or the RPC's is not looked at (section 4.2.1) */
	k->rpc[0] ^= 0x55;
	call_send(k);
	call_try(k, WAIT_MS);
	need(k->done && k->r.proc == RDMA_ERROR && k->r.err == ERR_CHUNK, "two XIDs: %s",
	     outcome(k));
	call_free(k);
	ping(c);
}

/* The chunks are too short for the answer: an error, or less data; nothing beyond them is
 * written. */
static void t_reply_too_long(void)
{
	struct conn *c = conn_open(NULL);
	struct mem *m;
	struct call *k;

	pattern_file(c, 1);
	for (unsigned i = 0; i < 3; i++) {
		if (c->dead)
			c = conn_open(NULL);
		m = mem_new(c, 65536, MEM_RW);
		k = nfs_read(c, &run.fh, 0, 16384);
		if (i == 0) {
			k->nwrites = 1;
			seg_add(&k->writes[0], m, 0, 4096);
		} else if (i == 1) {
			k->has_chunk = true;
			seg_add(&k->chunk, m, 0, 4096);
		} /* else there is no chunk at all */
		call_send(k);
		call_try(k, WAIT_MS);
		need(k->done || c->dead, "no reply");
		if (k->done && k->r.proc != RDMA_ERROR && !k->r.reply_stat && !k->r.accept_stat) {
			struct rd d = read_result(k);

			need(d.status || (d.len <= 4096 && !d.eof), "%u bytes in a chunk of 4096",
			     d.len);
			diag("a READ of 16384 bytes, and room for 4096: status %u, %u bytes",
			     d.status, d.len);
		} else {
			diag("a READ of 16384 bytes, and %s: %s",
			     i == 2 ? "no chunk" : "room for 4096", outcome(k));
		}
		guard_need(m->p + 4096, 61440, "behind the chunk");
		call_free(k);
		alive(c);
	}
}

static void t_rpc_errors(void)
{
	struct conn *c = conn_open(NULL);
	struct call *k = call_new(c, 400122, 1, 0);

	call_reply(k);
	need(!k->r.reply_stat && k->r.accept_stat == 1, "program 400122: %s, want PROG_UNAVAIL",
	     outcome(k));
	call_free(k);
	k = call_new(c, 100003, 77, 0);
	call_reply(k);
	need(!k->r.reply_stat && k->r.accept_stat == 2, "version 77: %s, want PROG_MISMATCH",
	     outcome(k));
	call_free(k);
	k = call_new(c, 100003, 3, 99);
	call_reply(k);
	need(!k->r.reply_stat && k->r.accept_stat == 3, "procedure 99: %s, want PROC_UNAVAIL",
	     outcome(k));
	call_free(k);
	k = nfs_null(c);
	k->rpc[11] = 3;
	call_reply(k);
	need(k->r.reply_stat == 1, "RPC version 3: %s, want RPC_MISMATCH", outcome(k));
	call_free(k);
	ping(c);
}

/* An RPC reply from a client that was asked nothing: thrown away. */
static void t_reply_from_client(void)
{
	struct conn *c = conn_open(NULL);

	ping(c);
	for (unsigned i = 0; i < 40 && !c->dead; i++) {
		struct call *k = nfs_null(c);
		uint8_t b[8192];
		size_t n;

		k->rpc[7] = 1;
		n = call_encode(k, b);
		if (!conn_send(c, b, n))
			break;
		call_free(k);
	}
	if (c->dead) {
		diag("the connection is ended");
	} else {
		/* its answer says that those before it were taken: no credit pays for their
		 * Receives */
		ping(c);
		burst_now(c);
	}
	alive(c);
}

/* What costs the server receives and the client nothing, without an end: this connection's end, and
 * nobody else's. */
static void flood(uint32_t proc, bool reply, size_t n)
{
	struct conn *other = conn_open(NULL), *c = conn_open(NULL);
	struct call *k = nfs_null(c);
	uint8_t b[8192];
	size_t len;
	unsigned sent = 0;

	ping(c);
	k->proc = proc;
	k->rpc[7] = reply;
	len = call_encode(k, b);
	call_free(k);
	while (sent < 20000 && conn_send(c, b, n ? n : len))
		sent++;
	need(c->dead || conn_wait_dead(c, WAIT_MS), "%u of them are taken", sent);
	diag("ended after %u or fewer", sent);
	conn_drop(c);
	alive(other);
}

static void t_flood(void)
{
	flood(RDMA_MSG, true, 0);
	flood(RDMA_DONE, false, 0);
	flood(RDMA_ERROR, false, 0);
	flood(RDMA_MSG, false, HEADER_MIN - 1);
}

/* ---- memory that is not there ---- */

enum { KEY_WRONG, KEY_FOREIGN, KEY_GONE, KEY_RIGHTS, KEY_BEYOND, KEY_LENGTH, KEYS };
static const char *const key_names[] = {
	"a key that is none",	    "a key of another connection", "a key of memory that is gone",
	"memory without the right", "an address outside",	   "a length beyond the end"};
enum { IN_WRITE, IN_READ, IN_ZERO, IN_REPLY, INS };
static const char *const in_names[] = {"READ's Write chunk", "WRITE's Read chunk", "position zero",
				       "the Reply chunk"};

static void bad_key(struct conn *other, unsigned how, unsigned where)
{
	struct conn *c = conn_open(NULL);
	int access = how == KEY_RIGHTS ? IBV_ACCESS_LOCAL_WRITE : MEM_RW;
	struct mem *m = mem_new(how == KEY_FOREIGN ? other : c, 65536, access);
	struct seg s = {0, m->rkey, 32768, (uintptr_t)m->p};
	uint32_t pos;
	struct call *k;

	if (how == KEY_WRONG)
		s.handle ^= 0xabcd00;
	if (how == KEY_GONE) {
		s.offset = (uintptr_t)m->p;
		mem_free(m);
		m = NULL;
	}
	if (how == KEY_BEYOND)
		s.offset += 65536 + 4096;
	if (how == KEY_LENGTH)
		s.offset += 65536 - 32768 + 4096;
	k = where == IN_READ ? nfs_write(c, &run.fh, 80ul << 20, 32768, UNSTABLE, &pos)
			     : nfs_read(c, &run.fh, 0, 32768);
	if (where == IN_READ) {
		s.pos = pos;
		k->reads = (struct chunk){1, {s}};
	} else if (where == IN_ZERO) {
		k->proc = RDMA_NOMSG;
		k->reads = (struct chunk){1, {s}};
	} else if (where == IN_REPLY) {
		k->has_chunk = true;
		s.length = 65536;
		k->chunk = (struct chunk){1, {s}};
	} else {
		k->nwrites = 1;
		k->writes[0] = (struct chunk){1, {s}};
	}
	call_send(k);
	call_try(k, WAIT_MS);
	need(!k->done || k->r.proc == RDMA_ERROR || k->r.reply_stat || k->r.accept_stat,
	     "%s in %s: %s", key_names[how], in_names[where], outcome(k));
	if (!k->done)
		need(conn_wait_dead(c, WAIT_MS),
		     "%s in %s: no reply, and the connection is not ended", key_names[how],
		     in_names[where]);
	if (m && how != KEY_LENGTH)
		guard_need(m->p, m->n, "memory that the server has no right to");
	call_free(k);
	ping(other);
	conn_drop(c);
}

static void bad_keys(unsigned where)
{
	struct conn *other = conn_open(NULL);

	pattern_file(other, 1);
	for (unsigned how = 0; how < KEYS; how++) {
		/* siw reads from memory whatever its rights are. */
		if (run.iwarp && how == KEY_RIGHTS && (where == IN_READ || where == IN_ZERO))
			continue;
		bad_key(other, how, where);
	}
	ping(other);
	alive(NULL);
}

static void t_bad_key_write(void)
{
	bad_keys(IN_WRITE);
}
static void t_bad_key_read(void)
{
	bad_keys(IN_READ);
}
static void t_bad_key_zero(void)
{
	bad_keys(IN_ZERO);
}
static void t_bad_key_reply(void)
{
	bad_keys(IN_REPLY);
}

/* A bad key among good calls: the connection ends for all of them, and another one reads on all the
 * while. */
static void t_bad_key_among(void)
{
	struct conn *other = conn_open(NULL);
	uint8_t *p = malloc(65536);

	pattern_file(other, 1);
	for (unsigned i = 0; i < 10; i++) {
		struct conn *c = conn_open(NULL);
		struct mem *m = mem_new(c, 16 * 65536, MEM_RW);

		ping(c);
		for (unsigned j = 0; j < 16 && j < c->credits; j++) {
			struct call *k = nfs_read(c, &run.fh, j * 65536, 65536);

			k->nwrites = 1;
			seg_add(&k->writes[0], m, j * 65536, 65536);
			if (j == 7)
				k->writes[0].s[0].handle ^= 0x123400;
			if (!call_send_now(k))
				break;
		}
		fetch(other, 4096 * i, p, 65536);
		pattern_need(p, 4096 * i, 65536, "the other connection's READ");
		need(conn_wait_dead(c, WAIT_MS), "the connection is not ended");
		conn_drop(c);
	}
	free(p);
	alive(other);
}

/* ---- clients that vanish ---- */

static void vanish(bool writes, unsigned round)
{
	struct conn *c = conn_open(NULL);
	struct mem *m = mem_new(c, 8 * MIB, MEM_RW);
	unsigned n;

	ping(c);
	n = c->credits < 8 ? c->credits : 8;
	for (unsigned i = 0; i < n; i++) {
		uint32_t pos;
		struct call *k;

		if (writes) {
			k = nfs_write(c, &run.fh, (100ul + i) << 20, MIB, UNSTABLE, &pos);
			for (unsigned s = 0; s < 9; s++)
				read_add(k, pos, m, i * MIB + s * 122880,
					 s < 8 ? 122880 : MIB - 8 * 122880);
		} else {
			k = nfs_read(c, &run.fh, 0, MIB);
			k->nwrites = 1;
			for (unsigned s = 0; s < 9; s++)
				seg_add(&k->writes[0], m, i * MIB + s * 122880,
					s < 8 ? 122880 : MIB - 8 * 122880);
		}
		if (!call_send_now(k))
			break;
	}
	for (unsigned i = 0; i < round; i++)
		conn_poll(c, 1);
	if (round & 1)
		conn_close(c);
	else
		conn_drop(c);
}

static void t_vanish(void)
{
	struct conn *other = conn_open(NULL);
	unsigned n = run.count ? run.count : run.soak ? 200 : 10;

	pattern_file(other, 3);
	for (unsigned i = 0; i < n; i++) {
		vanish(i & 1, i / 2 % 12);
		ping(other);
	}
	alive(other);
}

/* No Receive for any reply. rnr 0: the server's send fails, and the connection ends. 7: it waits
 * for ever, and nobody else with it. */
static void deaf(uint8_t rnr)
{
	struct opt o = {.recvs = NONE, .rnr = rnr};
	struct conn *other = conn_open(NULL), *c = conn_open(&o);
	uint8_t *p = malloc(65536);

	pattern_file(other, 1);
	need(call_send_now(nfs_null(c)), "lost");
	for (unsigned i = 0; i < 20; i++) {
		fetch(other, i * 4096, p, 65536);
		pattern_need(p, i * 4096, 65536, "the other connection's READ");
	}
	if (!rnr || run.iwarp)
		need(conn_wait_dead(c, 60000), "a connection without Receives is not ended");
	conn_drop(c);
	free(p);
	alive(other);
}

static void t_deaf(void)
{
	deaf(0);
}
static void t_deaf_waiting(void)
{
	deaf(7);
}

/* It goes on calling: it has its credits once, and what the server posts for it. */
static void t_deaf_calling(void)
{
	struct opt o = {.recvs = NONE, .rnr = 7};
	struct conn *other = conn_open(NULL), *c = conn_open(&o);
	unsigned n = 0;

	for (; n < 1000 && call_send_now(nfs_null(c)); n++)
		conn_poll(c, 1);
	need(n < 1000, "%u calls were taken of one who takes no answer", n);
	diag("ended after %u calls", n);
	conn_drop(c);
	alive(other);
}

/* Nor does it wait for ever: the server looks twice a minute. rxe gives up by itself after
 * seconds. */
static void t_deaf_end(void)
{
	struct opt o = {.recvs = NONE, .rnr = 7};
	struct conn *other = conn_open(NULL), *c = conn_open(&o);
	uint64_t begin = now_ms();

	need(call_send_now(nfs_null(c)), "lost");
	need(conn_wait_dead(c, 90000), "a connection without Receives is not ended");
	diag("ended after %lu s", (unsigned long)(now_ms() - begin) / 1000);
	conn_drop(c);
	alive(other);
}

/* More than granted: the server may end this connection, or serve it; no other one feels it. */
static void t_over_credit(void)
{
	struct conn *good = conn_open(NULL);
	struct opt o = {.recvs = 600};
	struct conn *c = conn_open(&o);
	unsigned n, answered = 0;

	ping(good);
	ping(c);
	n = c->credits * 2 + 16;
	if (n > 500)
		n = 500;
	for (unsigned i = 0; i < n; i++) {
		struct call *k = nfs_null(c);

		if (!call_send_now(k))
			break;
	}
	for (;;) {
		struct msg *m = conn_recv(c, 1500);

		if (!m)
			break;
		reply_take(c, m);
		answered++;
	}
	diag("%u calls at once, %u granted: %u answered, the connection %s", n, c->credits,
	     answered, c->dead ? "ended" : "lives");
	ping(good);
	ping(conn_open(NULL));
}

const struct test error_tests[] = {
	{"more calls than granted harm no other connection", t_over_credit, false},
	{"another version: ERR_VERS", t_version, false},
	{"another procedure: ERR_CHUNK", t_procedure, false},
	{"RDMA_DONE and RDMA_ERROR are thrown away", t_discarded, false},
	{"a flood of messages that are thrown away harms no other connection", t_discarded_flood,
	 false},
	{"messages shorter than a header are thrown away", t_short, false},
	{"a header that is cut off: ERR_CHUNK", t_truncated, false},
	{"counts that a message cannot hold: ERR_CHUNK", t_counts, false},
	{"RDMA_NOMSG without a call: ERR_CHUNK", t_nomsg_nothing, false},
	{"chunks that do not fit their call are refused", t_mismatch, false},
	{"more Read chunks than items are refused", t_two_read_chunks, false},
	{"lengths of gigabytes are refused", t_huge_lengths, false},
	{"two XIDs in a call: ERR_CHUNK", t_xid, false},
	{"replies longer than their room", t_reply_too_long, false},
	{"RPC errors come as over TCP", t_rpc_errors, false},
	{"a reply from the client is thrown away", t_reply_from_client, false},
	{"a flood of what is thrown away ends one connection", t_flood, false},
	{"bad memory in a Write chunk ends one connection", t_bad_key_write, false},
	{"bad memory in a Read chunk ends one connection", t_bad_key_read, false},
	{"bad memory behind position zero ends one connection", t_bad_key_zero, false},
	{"bad memory in a Reply chunk ends one connection", t_bad_key_reply, false},
	{"a bad key among good calls", t_bad_key_among, false},
	{"clients that vanish in the middle of transfers", t_vanish, false},
	{"a client without Receives", t_deaf, false},
	{"a client without Receives that lets the server wait", t_deaf_waiting, false},
	{"a client without Receives that goes on calling", t_deaf_calling, false},
	{"a client without Receives that lets the server wait is ended", t_deaf_end, false},
	{NULL, NULL, false},
};
