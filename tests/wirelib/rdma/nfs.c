/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nfs.c - NFSv3 calls and their results (RFC 1813; what may be in a chunk: RFC 8267 section 4).
 */
#include "rw.h"
#include <stdlib.h>

enum { NFS = 100003, FATTR = 84 };

static uint32_t be32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

struct call *nfs_null(struct conn *c)
{
	return call_new(c, NFS, 3, P_NULL);
}

struct call *nfs_read(struct conn *c, const struct fh *fh, uint64_t off, uint32_t n)
{
	struct call *k = call_new(c, NFS, 3, P_READ);

	put_opaque(k, fh->b, fh->n);
	put64(k, off);
	put32(k, n);
	return k;
}

struct call *nfs_write(struct conn *c, const struct fh *fh, uint64_t off, uint32_t n, uint32_t how,
		       uint32_t *pos)
{
	struct call *k = call_new(c, NFS, 3, P_WRITE);

	put_opaque(k, fh->b, fh->n);
	put64(k, off);
	put32(k, n);
	put32(k, how);
	put32(k, n);
	*pos = k->nrpc;
	return k;
}

/* The results of READ: with attributes (clients lay out their memory for them), and data where the
 * call wants it. */
struct rd read_result(const struct call *k)
{
	const struct reply *r = &k->r;
	bool chunked = k->nwrites && k->writes[0].n;
	uint64_t placed = 0;
	struct rd d = {0};
	uint32_t at = 8 + FATTR;

	need(r->nres >= 8, "READ: %u bytes of results", r->nres);
	d.status = be32(r->res);
	for (unsigned i = 0; i < r->nwrites; i++)
		for (unsigned s = 0; s < r->writes[i].n; s++)
			placed += r->writes[i].s[s].length;
	if (d.status) {
		need(!placed,
		     "READ fails, and the Write chunk is not returned unused (RFC 8166, 4.3.2.2)");
		return d;
	}
	need(be32(r->res + 4) == 1, "READ: no attributes");
	need(r->nres >= at + 12, "READ: %u bytes of results", r->nres);
	d.count = be32(r->res + at);
	d.eof = be32(r->res + at + 4);
	d.len = be32(r->res + at + 8);
	at += 12;
	need(d.len == d.count, "READ: count %u, length %u", d.count, d.len);
	if (chunked) {
		need(placed == d.len, "READ: %u bytes, %lu in the Write chunk (RFC 8166, 3.4.6.2)",
		     d.len, (unsigned long)placed);
		need(r->nres == at, "READ: %u bytes behind the reduced item (RFC 8166, 3.4.4.4)",
		     r->nres - at);
	} else {
		need(!placed, "READ: data in a chunk that was not offered for it");
		need(r->nres == at + ((d.len + 3) & ~3u), "READ: %u bytes in a stream of %u", d.len,
		     r->nres);
		d.inl = r->res + at;
	}
	return d;
}

uint32_t write_result(const struct call *k, uint32_t *count)
{
	const struct reply *r = &k->r;
	uint32_t status, at = 4;

	need(r->nres >= 12, "WRITE: %u bytes of results", r->nres);
	status = be32(r->res);
	at += be32(r->res + at) ? 4 + 24 : 4;
	need(r->nres >= at + 4, "WRITE: %u bytes of results", r->nres);
	at += be32(r->res + at) ? 4 + FATTR : 4;
	if (!status) {
		need(r->nres == at + 16, "WRITE: %u bytes of results", r->nres);
		*count = be32(r->res + at);
	} else {
		need(r->nres == at, "WRITE: %u bytes of results", r->nres);
		*count = 0;
	}
	return status;
}

void ping(struct conn *c)
{
	struct call *k = nfs_null(c);

	call_ok(k);
	need(!k->r.nres, "NULL answers %u bytes", k->r.nres);
	call_free(k);
}

/* Writes by a Read chunk, with one segment for each 64 KiB. */
void store(struct conn *c, uint64_t off, const void *p, uint32_t n)
{
	struct mem *m = mem_new(c, n, MEM_RW);
	uint32_t pos, count;
	struct call *k = nfs_write(c, &run.fh, off, n, FILE_SYNC, &pos);

	memcpy(m->p, p, n);
	for (uint32_t at = 0; at < n; at += 65536)
		read_add(k, pos, m, at, n - at < 65536 ? n - at : 65536);
	call_ok(k);
	need(!write_result(k, &count) && count == n,
	     "WRITE of %u bytes at %lu: status %u, count %u", n, (unsigned long)off,
	     write_result(k, &count), count);
	call_free(k);
	mem_free(m);
}

void fetch(struct conn *c, uint64_t off, void *p, uint32_t n)
{
	struct mem *m = mem_new(c, n, MEM_RW);
	struct call *k = nfs_read(c, &run.fh, off, n);
	struct rd d;

	k->nwrites = 1;
	seg_add(&k->writes[0], m, 0, n);
	call_ok(k);
	d = read_result(k);
	need(!d.status && d.len == n, "READ of %u bytes at %lu: status %u, %u bytes", n,
	     (unsigned long)off, d.status, d.len);
	memcpy(p, m->p, n);
	call_free(k);
	mem_free(m);
}

/* Most of what is compared lies in here. */
enum { TABLE = 9 * MIB };
static const uint8_t *pattern_table(void)
{
	static uint8_t *table;

	if (!table) {
		table = malloc(TABLE);
		for (size_t i = 0; i < TABLE; i++)
			table[i] = pattern_at(i);
	}
	return table;
}

void pattern_fill(uint8_t *p, uint64_t off, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = pattern_at(off + i);
}

void pattern_need(const uint8_t *p, uint64_t off, size_t n, const char *what)
{
	if (off + n <= TABLE && !memcmp(p, pattern_table() + off, n))
		return;
	for (size_t i = 0; i < n; i++)
		need(p[i] == pattern_at(off + i), "%s: byte %lu of the file is %#x, want %#x", what,
		     (unsigned long)(off + i), p[i], pattern_at(off + i));
}

void guard_need(const uint8_t *p, size_t n, const char *what)
{
	if (!n || (p[0] == GUARD && !memcmp(p, p + 1, n - 1)))
		return;
	for (size_t i = 0; i < n; i++)
		need(p[i] == GUARD, "%s: byte %zu outside of the segment was written", what, i);
}

void pattern_file(struct conn *c, unsigned mib)
{
	static unsigned have;
	uint8_t *p;

	if (have >= mib)
		return;
	p = malloc(MIB);
	for (unsigned i = have; i < mib; i++) {
		pattern_fill(p, (uint64_t)i * MIB, MIB);
		store(c, (uint64_t)i * MIB, p, MIB);
	}
	free(p);
	have = mib;
}
