/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_data.c - READ and WRITE through chunks of every shape.
 */
#include "rw.h"
#include <stdlib.h>

/* ---- WRITE ---- */

/* Sends a WRITE whose Read chunk is made of pieces (their lengths; the data lies in m from 64 on).
 * pad: bytes behind the data that belong to the chunk. */
static void write_pieces(struct conn *c, struct mem *m, uint64_t off, uint32_t n,
			 const uint32_t *piece, unsigned pieces)
{
	uint32_t pos, count, status, at = 64;
	struct call *k = nfs_write(c, &run.fh, off, n, FILE_SYNC, &pos);

	for (unsigned i = 0; i < pieces; i++) {
		read_add(k, pos, m, at, piece[i]);
		at += piece[i];
	}
	call_ok(k);
	status = write_result(k, &count);
	need(!status && count == n, "WRITE of %u bytes in %u pieces: status %u, count %u", n,
	     pieces, status, count);
	call_free(k);
}

static void check_file(struct conn *c, uint64_t off, const uint8_t *want, uint32_t n,
		       const char *what)
{
	uint8_t *got = malloc(n + 1);

	fetch(c, off, got, n);
	for (uint32_t i = 0; i < n; i++)
		need(got[i] == want[i], "%s: byte %u of %u is %#x, want %#x", what, i, n, got[i],
		     want[i]);
	free(got);
}

static struct mem *random_mem(struct conn *c, uint32_t n)
{
	struct mem *m = mem_new(c, n + 128, MEM_RW);

	for (uint32_t i = 0; i < n; i++)
		m->p[64 + i] = (uint8_t)rnd();
	return m;
}

#define AT (32ull << 20) /* where tests write: the pattern is before */

static void t_write_pieces(void)
{
	struct conn *c = conn_open(NULL);
	uint32_t piece[256];

	for (unsigned shape = 0; shape < 6; shape++) {
		static const unsigned count[] = {1, 2, 3, 16, 64, 96};
		unsigned pieces = count[shape];
		struct mem *m;
		uint32_t n = 0;

		for (unsigned i = 0; i < pieces; i++)
			n += piece[i] = 1 + rnd_to(shape == 5 ? 7 : 5000);
		m = random_mem(c, n);
		write_pieces(c, m, AT + shape, n, piece, pieces);
		check_file(c, AT + shape, m->p + 64, n, "WRITE in odd pieces");
		mem_free(m);
	}
}

static void t_write_empty_segments(void)
{
	struct conn *c = conn_open(NULL);
	uint32_t piece[] = {0, 1000, 0, 0, 1, 0, 3099, 0};
	struct mem *m = random_mem(c, 4100);

	write_pieces(c, m, AT, 4100, piece, 8);
	check_file(c, AT, m->p + 64, 4100, "WRITE with empty segments");
}

static void t_write_mib(void)
{
	struct conn *c = conn_open(NULL);
	struct mem *m = random_mem(c, MIB);
	uint32_t piece[9];

	for (unsigned i = 0; i < 9; i++)
		piece[i] = i < 8 ? 30 * 4096
				 : MIB - 8 * 30 * 4096; /* as a client with 30 pages a region */
	write_pieces(c, m, AT, MIB, piece, 9);
	check_file(c, AT, m->p + 64, MIB, "WRITE of 1 MiB");
}

/* Each Read segment takes 24 bytes of the header. */
static void t_write_many(void)
{
	struct conn *c = conn_open(NULL);
	unsigned most = (c->call_max - HEADER_MIN - 200) / 24;
	uint32_t piece[SEGS];
	struct mem *m;

	if (most > 256)
		most = 256;
	m = random_mem(c, most * 4096);
	for (unsigned i = 0; i < most; i++)
		piece[i] = 4096;
	diag("%u segments", most);
	write_pieces(c, m, AT, most * 4096, piece, most);
	check_file(c, AT, m->p + 64, most * 4096, "WRITE from many segments");
}

/* The padding in the chunk: in its last segment, and in one of its own (RFC 8166 section
 * 3.4.5.2). */
static void t_write_pad(void)
{
	struct conn *c = conn_open(NULL);

	for (uint32_t n = 5001; n < 5008; n++) {
		struct mem *m = random_mem(c, n);
		uint32_t pad = -n & 3, extended[] = {1000, n - 1000 + pad},
			 own[] = {1000, n - 1000, pad};

		write_pieces(c, m, AT + 1, n, extended, 2);
		check_file(c, AT + 1, m->p + 64, n, "WRITE with its padding in the last segment");
		if (pad)
			write_pieces(c, m, AT + 9001, n, own, 3);
		if (pad)
			check_file(c, AT + 9001, m->p + 64, n,
				   "WRITE with its padding in a segment");
		mem_free(m);
	}
}

/* The whole call is behind an RDMA_NOMSG; data with its padding in it, or in a chunk of its own. */
static void t_position_zero(void)
{
	struct conn *c = conn_open(NULL);

	for (unsigned i = 0; i < 24; i++) {
		bool apart = i % 3 == 2;
		/* nfsd of Linux 7.2 puts no padding behind a data chunk where the call is in a
		 * chunk as well */
		uint32_t n = (4 + rnd_to(i < 12 ? 3000 : 200000)) & (apart && run.peer ? ~3u : ~0u),
			 pos, count, status, head;
		struct mem *data = random_mem(c, n), *body = mem_new(c, n + 1024, MEM_RW);
		struct call *k = nfs_write(c, &run.fh, AT + i, n, FILE_SYNC, &pos);

		k->proc = RDMA_NOMSG;
		head = k->nrpc;
		memcpy(body->p, k->rpc, head);
		if (!apart) {
			memcpy(body->p + head, data->p + 64, n);
			memset(body->p + head + n, 0, 4);
			head += (n + 3) & ~3u;
		}
		for (uint32_t at = 0, len; at < head; at += len) {
			len = i & 1 ? 1 + rnd_to(head < 64 ? 64 : head / 4) : head;
			len = head - at < len ? head - at : len;
			read_add(k, 0, body, at, len);
		}
		if (apart)
			read_add(k, pos, data, 64, n);
		call_ok(k);
		status = write_result(k, &count);
		need(!status && count == n,
		     "WRITE of %u bytes behind position zero: status %u, count %u", n, status,
		     count);
		check_file(c, AT + i, data->p + 64, n, "WRITE behind position zero");
		call_free(k);
		mem_free(data);
		mem_free(body);
	}
}

static void t_position_zero_small(void)
{
	struct conn *c = conn_open(NULL);
	struct call *k = nfs_null(c);
	struct mem *m = mem_new(c, 4096, MEM_RW);

	memcpy(m->p, k->rpc, k->nrpc);
	k->proc = RDMA_NOMSG;
	for (uint32_t at = 0; at < k->nrpc; at++)
		read_add(k, 0, m, at, 1);
	call_ok(k);
	ping(c);
}

static void t_write_inline(void)
{
	struct conn *c = conn_open(NULL);

	for (uint32_t n = 0; n < 2600; n += n < 20 ? 1 : 129) {
		uint8_t data[2600];
		uint32_t pos, count;
		struct call *k = nfs_write(c, &run.fh, AT + n, n, FILE_SYNC, &pos);

		for (uint32_t i = 0; i < n; i++)
			data[i] = (uint8_t)rnd();
		put_bytes(k, data, n);
		put_bytes(k, "\0\0\0", -n & 3);
		call_ok(k);
		need(!write_result(k, &count) && count == n, "WRITE of %u bytes inline: count %u",
		     n, count);
		if (n)
			check_file(c, AT + n, data, n, "inline WRITE");
		call_free(k);
	}
}

/* ---- READ ---- */

struct shape {
	unsigned n;
	uint32_t len[SEGS];
};

/* READ into segments with guards between them; the file holds the pattern. */
static void read_shape(struct conn *c, uint64_t off, uint32_t ask, uint32_t want,
		       const struct shape *s)
{
	size_t size = 64, at = 64;
	struct mem *m;
	struct call *k = nfs_read(c, &run.fh, off, ask);
	struct rd d;
	uint32_t done = 0;

	for (unsigned i = 0; i < s->n; i++)
		size += s->len[i] + 64;
	m = mem_new(c, size, MEM_RW);
	k->nwrites = 1;
	for (unsigned i = 0; i < s->n; i++) {
		seg_add(&k->writes[0], m, at, s->len[i]);
		at += s->len[i] + 64;
	}
	call_send(k);
	need(call_try(k, WAIT_MS) && k->r.proc != RDMA_ERROR,
	     "READ of %u bytes into %u segments: %s", ask, s->n, outcome(k));
	call_ok(k);
	d = read_result(k);
	need(!d.status && d.len == want, "READ of %u bytes at %lu: status %u, %u bytes", ask,
	     (unsigned long)off, d.status, d.len);
	guard_need(m->p, 64, "before the first segment");
	at = 64;
	for (unsigned i = 0; i < s->n; i++) {
		uint32_t n = want - done < s->len[i] ? want - done : s->len[i];

		pattern_need(m->p + at, off + done, n, "READ");
		guard_need(m->p + at + s->len[i], 64, "behind a segment");
		done += n;
		at += s->len[i] + 64;
	}
	call_free(k);
	mem_free(m);
}

/* 256 segments make a header of more than 4 KiB: they fit where the server takes longer calls than
 * that. */
static void read_256(struct conn *c, unsigned segs, uint32_t each, uint64_t off)
{
	struct shape s = {.n = segs};

	for (unsigned i = 0; i < segs; i++)
		s.len[i] = each;
	read_shape(c, off, segs * each, segs * each, &s);
}

static void t_read_256(void)
{
	struct opt o = {.recv_size = 8192};
	struct conn *c = conn_open(&o);
	/* the reply repeats the segments */
	unsigned room = c->call_max < c->reply_max ? c->call_max : c->reply_max,
		 most = (room - HEADER_MIN - 200) / 16;

	pattern_file(c, 3);
	if (most > 256)
		most = 256;
	diag("thresholds of %u and %u: %u segments", c->call_max, c->reply_max, most);
	need(run.peer || most == 256, "256 segments do not fit");
	read_256(c, most, 4096, 0);
	read_256(c, most, 4096, 12345);
	read_256(c, most, 1, 77);
	read_256(c, most, 4095, MIB - 1);
}

static void t_read_ragged(void)
{
	struct conn *c = conn_open(NULL);

	pattern_file(c, 3);
	for (unsigned i = 0; i < (run.soak ? 400 : 40); i++) {
		struct shape s = {.n = 1 + rnd_to(100)};
		uint32_t sum = 0, ask;

		for (unsigned j = 0; j < s.n; j++)
			sum += s.len[j] = rnd_to(8) ? 1 + rnd_to(i & 1 ? 40 : 9000) : 0;
		if (!sum)
			sum = s.len[0] = 1;
		/* what is asked may need less than the chunk has */
		ask = i % 3 ? sum : 1 + rnd_to(sum);
		read_shape(c, rnd_to(2 * MIB), ask, ask, &s);
	}
}

/* Slivers whose source lies across a page of the server's memory: so many that siw sends the last
 * of them from its own thread, which copies such pieces wrongly (docs/rdma.md). */
static void t_read_slivers(void)
{
	struct opt o = {.recv_size = 8192};
	struct conn *c = conn_open(&o);

	pattern_file(c, 1);
	for (uint32_t each = 17; each <= 72; each++)
		read_256(c, 240, each, 4096 * each);
}

static void t_read_empty_segments(void)
{
	struct conn *c = conn_open(NULL);
	struct shape s = {7, {0, 100, 0, 0, 4000, 0, 1}};

	pattern_file(c, 1);
	read_shape(c, 5, 4101, 4101, &s);
	s.len[6] = 0;
	read_shape(c, 5, 4100, 4100, &s);
}

/* READ with a pad segment behind data, as the stock client offers it: nothing is written there (RFC
 * 8166 section 3.4.6.2). */
static void t_read_pad_segment(void)
{
	struct conn *c = conn_open(NULL);
	struct mem *pad = mem_new(c, 4, MEM_RW);

	pattern_file(c, 1);
	for (uint32_t n = 20001; n < 20008; n++) {
		struct mem *m = mem_new(c, n + 64, MEM_RW);
		struct call *k = nfs_read(c, &run.fh, 3, n);
		struct rd d;

		k->nwrites = 1;
		seg_add(&k->writes[0], m, 0, n);
		seg_add(&k->writes[0], pad, 0, 4);
		call_ok(k);
		d = read_result(k);
		need(!d.status && d.len == n, "status %u, %u bytes", d.status, d.len);
		need(!k->r.writes[0].s[1].length, "%u bytes in the pad segment",
		     k->r.writes[0].s[1].length);
		pattern_need(m->p, 3, n, "READ");
		guard_need(m->p + n, 64, "behind the data");
		guard_need(pad->p, 4, "the pad segment");
		call_free(k);
		mem_free(m);
	}
}

/* Beyond the end: less than was asked, and the lengths say so. */
static void t_read_short(void)
{
	struct conn *c = conn_open(NULL);
	struct shape s = {4, {5000, 5000, 5000, 5000}};
	struct mem *m = mem_new(c, 4096, MEM_RW);
	uint64_t end = 96ull << 20;
	struct call *k;
	struct rd d;

	pattern_file(c, 1);
	/* the file's end: a byte of the pattern */
	m->p[0] = pattern_at(end + 7000);
	{
		uint8_t *p = malloc(7001);

		pattern_fill(p, end, 7001);
		store(c, end, p, 7001);
		free(p);
	}
	read_shape(c, end, 20000, 7001, &s);
	k = nfs_read(c, &run.fh, end + 7001, 4096);
	k->nwrites = 1;
	seg_add(&k->writes[0], m, 0, 4096);
	call_ok(k);
	d = read_result(k);
	need(!d.status && !d.len && d.eof, "at the end: status %u, %u bytes, eof %u", d.status,
	     d.len, d.eof);
	call_free(k);
}

/* No data: the Write chunk comes back unused (RFC 8166 section 4.3.2.2; read_result looks at
 * that). */
static void t_read_error(void)
{
	struct conn *c = conn_open(NULL);
	struct mem *m = mem_new(c, 65536, MEM_RW);
	struct fh bad = run.fh;
	struct call *k;
	struct rd d;

	bad.b[bad.n - 1] ^= 1;
	bad.b[bad.n / 2] ^= 0x55;
	k = nfs_read(c, &bad, 0, 65536);
	k->nwrites = 1;
	for (unsigned i = 0; i < 16; i++)
		seg_add(&k->writes[0], m, i * 4096, 4096);
	call_ok(k);
	d = read_result(k);
	need(d.status, "a handle that nobody made is read from");
	guard_need(m->p, 65536, "an unused Write chunk");
	call_free(k);
	ping(c);
}

/* An empty Write chunk: data comes inline (RFC 8166 section 4.3.2.3). */
static void t_read_empty_chunk(void)
{
	struct conn *c = conn_open(NULL);
	struct call *k;
	struct rd d;

	pattern_file(c, 1);
	k = nfs_read(c, &run.fh, 9, 777);
	k->nwrites = 1;
	call_ok(k);
	d = read_result(k);
	need(!d.status && d.inl && d.len == 777, "status %u, %u bytes", d.status, d.len);
	pattern_need(d.inl, 9, 777, "inline READ");
	call_free(k);
}

/* Two Write chunks: the first takes the data, the second comes back unused. */
static void t_read_two_chunks(void)
{
	struct conn *c = conn_open(NULL);
	struct mem *m;
	struct call *k;
	struct rd d;

	pattern_file(c, 1);
	m = mem_new(c, 16384, MEM_RW);
	k = nfs_read(c, &run.fh, 0, 5000);
	k->nwrites = 2;
	seg_add(&k->writes[0], m, 0, 8192);
	seg_add(&k->writes[1], m, 8192, 4096);
	seg_add(&k->writes[1], m, 12288, 4096);
	call_send(k);
	call_try(k, WAIT_MS);
	if (k->done && k->r.proc == RDMA_ERROR) {
		diag("refused with %s", outcome(k));
	} else {
		call_ok(k);
		d = read_result(k);
		need(!d.status && d.len == 5000, "status %u, %u bytes", d.status, d.len);
		need(!k->r.writes[1].s[0].length && !k->r.writes[1].s[1].length,
		     "the second chunk is used");
		pattern_need(m->p, 0, 5000, "READ");
		guard_need(m->p + 8192, 8192, "the unused chunk");
	}
	call_free(k);
	ping(c);
}

/* A Write chunk for data and a Reply chunk for the rest. */
static void t_read_both(void)
{
	struct conn *c = conn_open(NULL);
	struct mem *m;
	struct call *k;
	struct rd d;

	pattern_file(c, 1);
	m = mem_new(c, 65536, MEM_RW);
	k = nfs_read(c, &run.fh, 100, 30000);
	k->nwrites = 1;
	seg_add(&k->writes[0], m, 0, 32768);
	k->has_chunk = true;
	seg_add(&k->chunk, m, 32768, 4096);
	seg_add(&k->chunk, m, 36864, 4096);
	call_ok(k);
	d = read_result(k);
	need(!d.status && d.len == 30000, "status %u, %u bytes", d.status, d.len);
	pattern_need(m->p, 100, 30000, "READ");
	call_free(k);
}

/* Without a Write list, data is part of the stream: in the Reply chunk, with its padding (RFC 8166
 * section 3.5.3). */
static void t_read_reply_chunk(void)
{
	struct conn *c = conn_open(NULL);

	pattern_file(c, 1);
	for (unsigned i = 0; i < 30; i++) {
		uint32_t n = i < 10 ? 8000 + i : 1 + rnd_to(200000), at = 64;
		struct mem *m = mem_new(c, n + 1024 + 64 * 66, MEM_RW);
		struct call *k = nfs_read(c, &run.fh, i, n);
		struct rd d;

		k->has_chunk = true;
		for (unsigned s = 0; s < 64 && at < n + 600; s++) {
			uint32_t len = s == 63 || i & 1 ? n + 600 - at : 1 + rnd_to(n / 16 + 300);

			if (len > n + 600 - at)
				len = n + 600 - at;
			seg_add(&k->chunk, m, at, len);
			at += len;
		}
		call_ok(k);
		d = read_result(k);
		need(!d.status && d.len == n && d.inl, "status %u, %u bytes", d.status, d.len);
		pattern_need(d.inl, i, n, "READ in a Reply chunk");
		guard_need(m->p, 64, "before the Reply chunk");
		guard_need(m->p + at, m->n - at, "behind the Reply chunk");
		if (n > c->reply_max)
			need(k->r.proc == RDMA_NOMSG, "procedure %u", k->r.proc);
		call_free(k);
		mem_free(m);
	}
}

/* Segments that lie over each other: the client's own affair; the lengths must be right. */
static void t_read_overlap(void)
{
	struct conn *c = conn_open(NULL);
	struct mem *m;
	struct call *k;
	struct rd d;

	pattern_file(c, 1);
	m = mem_new(c, 16384, MEM_RW);
	k = nfs_read(c, &run.fh, 0, 12000);
	k->nwrites = 1;
	seg_add(&k->writes[0], m, 64, 8000);
	seg_add(&k->writes[0], m, 64, 4000);
	call_ok(k);
	d = read_result(k);
	need(!d.status && d.len == 12000, "status %u, %u bytes", d.status, d.len);
	guard_need(m->p, 64, "before");
	guard_need(m->p + 64 + 8000, 1000, "behind");
	call_free(k);
}

/* Write, then read at lengths and offsets that are no multiples of anything: each of 1 to 4099 in
 * the long run, else some of them. */
static void t_odd(void)
{
	struct conn *c = conn_open(NULL);
	struct mem *w, *r;
	unsigned pairs = 0;

	pattern_file(c, 1);
	w = mem_new(c, 3 * 4100, MEM_RW);
	r = mem_new(c, 3 * 4100, MEM_RW);
	for (uint32_t n = 1; n < 4100; n += run.soak || n < 18 || n > 4090 ? 1 : 1 + rnd_to(24)) {
		uint32_t off = 1 + n * 7919 % 4099, pos, count, shift = n % 61;
		struct call *k = nfs_write(c, &run.fh, AT + off, n, UNSTABLE, &pos);
		struct rd d;

		for (uint32_t i = 0; i < n; i++)
			w->p[shift + i] = (uint8_t)rnd();
		read_add(k, pos, w, shift, n);
		call_ok(k);
		need(!write_result(k, &count) && count == n, "WRITE of %u at %u: count %u", n, off,
		     count);
		call_free(k);
		memset(r->p, GUARD, n + 256);
		k = nfs_read(c, &run.fh, AT + off, n);
		k->nwrites = 1;
		seg_add(&k->writes[0], r, 64 + shift, n);
		call_ok(k);
		d = read_result(k);
		need(!d.status && d.len == n, "READ of %u at %u: status %u, %u bytes", n, off,
		     d.status, d.len);
		need(!memcmp(r->p + 64 + shift, w->p + shift, n), "%u bytes at %u are others", n,
		     off);
		guard_need(r->p, 64 + shift, "before the segment");
		guard_need(r->p + 64 + shift + n, 64, "behind the segment");
		call_free(k);
		pairs++;
	}
	diag("%u lengths", pairs);
}

const struct test data_tests[] = {
	{"WRITE inline", t_write_inline, false},
	{"WRITE from pieces of odd lengths", t_write_pieces, false},
	{"WRITE with empty segments between", t_write_empty_segments, false},
	{"WRITE of 1 MiB from nine segments", t_write_mib, false},
	{"WRITE from as many segments as a header holds", t_write_many, false},
	{"WRITE with padding in its chunk", t_write_pad, false},
	{"a whole WRITE behind position zero", t_position_zero, false},
	{"a call behind position zero in segments of one byte", t_position_zero_small, false},
	{"READ into 256 segments, each byte compared", t_read_256, false},
	{"READ into ragged segments", t_read_ragged, false},
	{"READ into slivers", t_read_slivers, false},
	{"READ with empty segments between", t_read_empty_segments, false},
	{"READ with a pad segment", t_read_pad_segment, false},
	{"READ past the end of the file", t_read_short, false},
	{"READ that fails returns its chunk unused", t_read_error, false},
	{"READ with an empty Write chunk comes inline", t_read_empty_chunk, false},
	{"READ with two Write chunks", t_read_two_chunks, false},
	{"READ with a Write list and a Reply chunk", t_read_both, false},
	{"READ into a Reply chunk", t_read_reply_chunk, false},
	{"READ into segments that overlap", t_read_overlap, false},
	{"odd lengths and offsets", t_odd, false},
	{NULL, NULL, false},
};
