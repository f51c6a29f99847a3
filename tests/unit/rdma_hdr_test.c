/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rdma_hdr_test.c - RPC-over-RDMA headers on plain bytes: what is taken and refused (RFC 8166), how
 * a call's record is put together (against a model of the peer's memory), how payload is dealt to
 * segments, private data (RFC 8797).
 */
#include "proto/rpc_rdma_hdr.h"
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <time.h>

static uint8_t msg[65536];
static size_t at;

static void begin(uint32_t xid, uint32_t vers, uint32_t proc)
{
	at = 0;
	for (unsigned i = 0; i < 4; i++) {
		uint32_t v = htobe32(((uint32_t[]){xid, vers, 32, proc})[i]);

		memcpy(msg + at, &v, 4);
		at += 4;
	}
}

static void put(uint32_t v)
{
	v = htobe32(v);
	memcpy(msg + at, &v, 4);
	at += 4;
}

static void put_seg(uint32_t handle, uint32_t len, uint64_t off)
{
	put(handle);
	put(len);
	put((uint32_t)(off >> 32));
	put((uint32_t)off);
}

static enum rd_verdict parse(struct rd_hdr *h)
{
	return rd_hdr_parse(msg, at, h);
}

static void no_chunks(void)
{
	put(0);
	put(0);
	put(0);
}

START_TEST(short_messages_are_discarded_unread)
{
	struct rd_hdr h;

	begin(7, 9, RD_MSG); /* also of another version */
	ck_assert_int_eq(rd_hdr_parse(msg, 0, &h), RD_DISCARD);
	for (; at < RD_HDR_MIN; put(0))
		ck_assert_int_eq(parse(&h), RD_DISCARD);
}
END_TEST

START_TEST(what_the_header_says_is_taken)
{
	struct rd_hdr h;

	begin(0x01020304, 1, RD_MSG);
	put(1), put(40), put_seg(11, 100, 0x1000);
	put(1), put(40), put_seg(12, 200, 0x2000);
	put(0);
	put(1), put(2), put_seg(21, 300, 1), put_seg(22, 400, 2);
	put(1), put(0);
	put(1), put(1), put_seg(23, 4, 3);
	put(0);
	put(1), put(1), put_seg(31, 5000, 0xfedcba9876543210ull);
	put(0x01020304), put(0);
	ck_assert_int_eq(parse(&h), RD_OK);
	ck_assert_uint_eq(h.h_nreads, 2);
	ck_assert_uint_eq(h.h_nchunks, 3);
	ck_assert_uint_eq(h.h_nsegs, 3);
	ck_assert(h.h_reply);
	ck_assert_uint_eq(h.h_nreply, 1);
	ck_assert_uint_eq(h.h_len, 8);
	ck_assert_uint_eq(h.h_credit, 32);
}
END_TEST

START_TEST(what_makes_no_sense_is_refused_as_the_rfc_says)
{
	struct rd_hdr h;

	begin(5, 2, RD_MSG), no_chunks(), put(5);
	ck_assert_int_eq(parse(&h), RD_BAD_VERS);
	begin(5, 1, RD_MSGP), no_chunks(), put(5);
	ck_assert_int_eq(parse(&h), RD_BAD_CHUNK);
	begin(5, 1, 9), no_chunks(), put(5);
	ck_assert_int_eq(parse(&h), RD_BAD_CHUNK);
	begin(5, 1, RD_DONE), no_chunks();
	ck_assert_int_eq(parse(&h), RD_DISCARD);
	begin(5, 1, RD_NOMSG), no_chunks();
	ck_assert_int_eq(parse(&h), RD_BAD_CHUNK); /* it has no payload anywhere */
	begin(5, 1, RD_MSG), no_chunks(), put(6);
	ck_assert_int_eq(parse(&h), RD_BAD_CHUNK); /* another xid behind it */
	begin(5, 1, RD_MSG), no_chunks();
	ck_assert_int_eq(parse(&h), RD_BAD_CHUNK);
	begin(5, 1, RD_MSG), put(2), put(0), put(0), put(5);
	ck_assert_int_eq(parse(&h), RD_BAD_CHUNK); /* no bool */
	begin(5, 1, RD_MSG), put(0), put(1), put(0x0fffffff), put(0), put(0), put(5);
	ck_assert_int_eq(parse(&h), RD_BAD_CHUNK); /* segments beyond the end */
	begin(5, 1, RD_MSG), put(1), put(0), put(0), put(0), put(5);
	ck_assert_int_eq(parse(&h), RD_BAD_CHUNK); /* a Read list beyond it */
	begin(5, 1, RD_ERROR), put(RD_ERR_CHUNK);
	ck_assert_int_eq(parse(&h), RD_OK);
	ck_assert_uint_eq(h.h_err, RD_ERR_CHUNK);
	begin(5, 1, RD_ERROR), put(77);
	ck_assert_int_eq(parse(&h), RD_DISCARD);
}
END_TEST

START_TEST(errors_are_what_a_peer_can_read)
{
	struct rd_hdr h;

	at = rd_error_put(msg, 99, 1, 8, RD_ERR_CHUNK);
	ck_assert_uint_eq(at, 20);
	ck_assert_int_eq(parse(&h), RD_OK);
	ck_assert_uint_eq(h.h_xid, 99);
	at = rd_error_put(msg, 99, 7, 8, RD_ERR_VERS);
	ck_assert_uint_eq(at, 28);
	ck_assert_int_eq(
		memcmp(msg, "\0\0\0\x63\0\0\0\7\0\0\0\x8\0\0\0\4\0\0\0\1\0\0\0\1\0\0\0\1", 28), 0);
}
END_TEST

/* ---- a call's record, against a model ---- */

#define REMOTE 0x7000000000ull
static uint8_t want[40000], remote[200000], record[50000];

static void fill(uint8_t *p, size_t n)
{
	while (n--)
		*p++ = (uint8_t)random();
}

/* n bytes of data in segments of the peer's memory; entries for the Read list. */
static size_t remote_put(size_t used, uint32_t pos, const uint8_t *data, size_t n)
{
	while (n) {
		size_t len = (size_t)random() % n + 1;

		put(1), put(pos), put_seg(0xabc, (uint32_t)len, REMOTE + used);
		memcpy(remote + used, data, len);
		used += len + (size_t)random() % 50;
		data += len;
		n -= len;
	}
	return used;
}

struct cut {
	size_t at, len;
};

/* Up to three opaques of the message go to chunks. */
static unsigned choose(struct cut *cuts, size_t len)
{
	unsigned n = 0;
	size_t from = 8;

	while (n < 3 && from + 400 < len && random() % 4) {
		cuts[n].at = (from + (size_t)random() % 300) & ~(size_t)3;
		cuts[n].len = (size_t)random() % (len - cuts[n].at - 8) + 1;
		if (n < 2)
			cuts[n].len = cuts[n].len % 200 + 1;
		from = (cuts[n].at + cuts[n].len + 3) & ~(size_t)3;
		/* The roundup is zeros. */
		memset(want + cuts[n].at + cuts[n].len, 0, from - cuts[n].at - cuts[n].len);
		n++;
	}
	return n;
}

static void execute(const struct rd_hdr *h, const struct rd_plan *pl, const struct rd_read *reads,
		    const struct rd_copy *copies)
{
	memset(record, 0xee, sizeof record);
	for (unsigned i = 0; i < pl->pl_nreads; i++) {
		ck_assert_uint_eq(reads[i].rr_handle, 0xabc);
		ck_assert_uint_le(reads[i].rr_at + reads[i].rr_len, pl->pl_len);
		memcpy(record + reads[i].rr_at, remote + (reads[i].rr_offset - REMOTE),
		       reads[i].rr_len);
	}
	for (unsigned i = 0; i < pl->pl_ncopies; i++) {
		const struct rd_copy *cp = &copies[i];

		ck_assert_uint_le(cp->cp_at + cp->cp_len, pl->pl_len);
		if (cp->cp_from == RD_ZEROS)
			memset(record + cp->cp_at, 0, cp->cp_len);
		else
			memcpy(record + cp->cp_at, h->h_body + cp->cp_from, cp->cp_len);
	}
}

START_TEST(a_call_is_put_together_again)
{
	unsigned seed = (unsigned)time(NULL) * 512 + (unsigned)_i;
	size_t len, base = 0, used = 0;
	static uint8_t stream[40000];
	struct cut cuts[3];
	bool msg_inline;
	unsigned n;
	struct rd_hdr h;
	struct rd_plan pl;
	struct rd_read *reads;
	struct rd_copy *copies;

	printf("# seed %u\n", seed);
	srandom(seed);
	len = 12 + ((size_t)random() % 30000 & ~(size_t)3);
	fill(want, len);
	memcpy(want, "\0\0\0\5\0\0\0\0", 8);
	n = choose(cuts, len);
	msg_inline = random() % 2;
	for (size_t i = 0, c = 0; i < len;) { /* the stream without what is in chunks */
		if (c < n && i == cuts[c].at) {
			i = (cuts[c].at + cuts[c].len + 3) & ~(size_t)3;
			c++;
		} else {
			stream[base++] = want[i++];
		}
	}
	begin(5, 1, msg_inline ? RD_MSG : RD_NOMSG);
	if (!msg_inline)
		used = remote_put(used, 0, stream, base);
	for (unsigned i = 0; i < n; i++) {
		size_t whole = cuts[i].len;

		if (random() % 2) /* some peers send the roundup */
			whole = (whole + 3) & ~(size_t)3;
		used = remote_put(used, (uint32_t)cuts[i].at, want + cuts[i].at, whole);
	}
	no_chunks();
	if (msg_inline) {
		memcpy(msg + at, stream, base);
		at += base;
	}
	ck_assert_int_eq(parse(&h), RD_OK);
	reads = calloc(RD_PLAN_READS(&h) + 1, sizeof *reads);
	copies = calloc(RD_PLAN_COPIES(&h), sizeof *copies);
	ck_assert_int_eq(rd_plan(&h, len, &pl, reads, copies), 0);
	ck_assert_uint_eq(pl.pl_len, len);
	ck_assert_uint_le(pl.pl_nreads, RD_PLAN_READS(&h));
	ck_assert_uint_le(pl.pl_ncopies, RD_PLAN_COPIES(&h));
	ck_assert_uint_eq(pl.pl_first, n ? cuts[0].at : 0);
	execute(&h, &pl, reads, copies);
	ck_assert_int_eq(memcmp(record, want, len), 0);
	ck_assert_int_eq(rd_plan(&h, len - 1, &pl, reads, copies), -EMSGSIZE);
	free(reads);
	free(copies);
}
END_TEST

static int plan_of(void)
{
	struct rd_read reads[64];
	struct rd_copy copies[65];
	struct rd_plan pl;
	struct rd_hdr h;

	ck_assert_int_eq(parse(&h), RD_OK);
	ck_assert_uint_lt(h.h_nreads, 32);
	return rd_plan(&h, 1 << 20, &pl, reads, copies);
}

START_TEST(chunks_that_fit_nowhere_are_refused)
{
	/* behind the end of the inline part */
	begin(5, 1, RD_MSG), put(1), put(100), put_seg(1, 10, 0), no_chunks(), put(5), put(0);
	ck_assert_int_eq(plan_of(), -EPROTO);
	/* not aligned */
	begin(5, 1, RD_MSG), put(1), put(6), put_seg(1, 10, 0), no_chunks(), put(5), put(0);
	ck_assert_int_eq(plan_of(), -EPROTO);
	/* backwards */
	begin(5, 1, RD_MSG), put(1), put(8), put_seg(1, 8, 0), put(1), put(4), put_seg(1, 8, 0),
		no_chunks(), put(5), put(0);
	ck_assert_int_eq(plan_of(), -EPROTO);
	/* one at position zero, of a message that is inline */
	begin(5, 1, RD_MSG), put(1), put(0), put_seg(1, 8, 0), no_chunks(), put(5), put(0);
	ck_assert_int_eq(plan_of(), -EPROTO);
	/* none at position zero, of one that is not */
	begin(5, 1, RD_NOMSG), put(1), put(8), put_seg(1, 8, 0), no_chunks();
	ck_assert_int_eq(plan_of(), -EPROTO);
	begin(5, 1, RD_NOMSG), put(1), put(0), put_seg(1, 8, 0), put(1), put(64), put_seg(1, 8, 0),
		no_chunks();
	ck_assert_int_eq(plan_of(), -EPROTO);
	/* nothing there either */
	begin(5, 1, RD_NOMSG), put(1), put(0), put_seg(1, 0, 0), no_chunks();
	ck_assert_int_eq(plan_of(), -EPROTO);
	/* lengths that wrap around */
	begin(5, 1, RD_NOMSG);
	for (unsigned i = 0; i < 8; i++)
		put(1), put(0), put_seg(1, 0xffffffff, 0);
	no_chunks();
	ck_assert_int_eq(plan_of(), -EMSGSIZE);
	/* segments of no length are no harm */
	begin(5, 1, RD_MSG), put(1), put(8), put_seg(1, 0, 0), put(1), put(8), put_seg(1, 4, 0),
		no_chunks(), put(5), put(0);
	ck_assert_int_eq(plan_of(), 0);
}
END_TEST

/* ---- replies ---- */

START_TEST(write_lists_come_back_with_what_was_written)
{
	struct rd_hdr h, back;
	struct rd_call *rc;

	begin(5, 1, RD_MSG), put(0);
	put(1), put(3), put_seg(21, 100, 1), put_seg(22, 200, 2), put_seg(23, 4, 3);
	put(1), put(1), put_seg(24, 50, 4);
	put(0), put(0), put(5);
	ck_assert_int_eq(parse(&h), RD_OK);
	rc = rd_call_new(&h);
	ck_assert_ptr_nonnull(rc);
	ck_assert(!rd_fill(rc->rc_segs, 3, 305));
	ck_assert(rd_fill(rc->rc_segs, 3, 150));
	at = rd_reply_hdr_put(msg, 5, 64, RD_MSG, rc);
	ck_assert_uint_eq(at, rd_reply_hdr_len(rc));
	put(5);
	ck_assert_int_eq(parse(&back), RD_OK);
	ck_assert_uint_eq(back.h_nreads, 0);
	ck_assert_uint_eq(back.h_nchunks, 2);
	ck_assert_uint_eq(back.h_nsegs, 4);
	ck_assert(!back.h_reply);
	free(rc);
	rc = rd_call_new(&back);
	ck_assert_uint_eq(rc->rc_segs[0].ws_seg.sg_length, 100);
	ck_assert_uint_eq(rc->rc_segs[1].ws_seg.sg_length, 50);
	ck_assert_uint_eq(rc->rc_segs[2].ws_seg.sg_length, 0);
	ck_assert_uint_eq(rc->rc_segs[3].ws_seg.sg_length, 0);
	ck_assert_uint_eq(rc->rc_segs[1].ws_seg.sg_handle, 22);
	ck_assert_uint_eq(rc->rc_segs[2].ws_seg.sg_offset, 3);
	free(rc);
}
END_TEST

static struct rd_call *call_of(void)
{
	struct rd_hdr h;

	ck_assert_int_eq(parse(&h), RD_OK);
	return rd_call_new(&h);
}

START_TEST(the_handle_to_invalidate_is_the_calls_own)
{
	struct rd_call *rc;

	begin(5, 1, RD_MSG), put(1), put(8), put_seg(71, 100, 0), put(0), put(0), put(1), put(1),
		put_seg(72, 100, 0), put(5), put(0);
	rc = call_of();
	ck_assert(rc->rc_has_inv && rc->rc_inv == 71);
	free(rc);
	begin(5, 1, RD_MSG), put(0), put(1), put(2), put_seg(73, 101, 0), put_seg(74, 4, 0), put(0),
		put(0), put(5);
	rc = call_of();
	ck_assert(rc->rc_has_inv && rc->rc_inv == 73);
	free(rc);
	/* the place for roundup, which outlives the call */
	begin(5, 1, RD_MSG), put(0), put(1), put(1), put_seg(74, 4, 0), put(0), put(0), put(5);
	rc = call_of();
	ck_assert(!rc->rc_has_inv);
	free(rc);
	begin(5, 1, RD_MSG), put(0), put(0), put(1), put(1), put_seg(75, 100, 0), put(5);
	rc = call_of();
	ck_assert(rc->rc_has_inv && rc->rc_inv == 75 && rc->rc_reply);
	free(rc);
	begin(5, 1, RD_MSG), put(0), put(1), put(0), put(0), put(0), put(5);
	rc = call_of();
	ck_assert(!rc->rc_has_inv);
	free(rc);
}
END_TEST

START_TEST(calls_of_ours_say_where_they_lie)
{
	struct rd_seg call = {81, 5000, 0x1122334455667788ull}, reply = {82, 9000, 0x99};
	struct rd_read reads[4];
	struct rd_copy copies[4];
	struct rd_plan pl;
	struct rd_hdr h;

	at = rd_call_hdr_put(msg, 5, 16, &(struct rd_chunks){.ck_call = &call, .ck_reply = &reply});
	ck_assert_int_eq(parse(&h), RD_OK);
	ck_assert_uint_eq(h.h_proc, RD_NOMSG);
	ck_assert_uint_eq(h.h_credit, 16);
	ck_assert_uint_eq(h.h_len, 0);
	ck_assert_int_eq(rd_plan(&h, 5000, &pl, reads, copies), 0);
	ck_assert(pl.pl_nreads == 1 && reads[0].rr_handle == 81 && reads[0].rr_len == 5000 &&
		  reads[0].rr_offset == 0x1122334455667788ull);
	ck_assert(h.h_reply && h.h_nreply == 1);
	at = rd_call_hdr_put(msg, 5, 16, &(struct rd_chunks){.ck_reply = &reply});
	put(5), put(0);
	ck_assert_int_eq(parse(&h), RD_OK);
	ck_assert(h.h_proc == RD_MSG && !h.h_nreads && h.h_len == 8 && h.h_reply);
}
END_TEST

START_TEST(payload_of_calls_of_ours_has_chunks_of_its_own)
{
	struct rd_seg data = {83, 1001, 0x77}, place = {84, 4096, 0x1000};
	struct rd_read reads[4];
	struct rd_copy copies[4];
	struct rd_plan pl;
	struct rd_call *rc;
	struct rd_hdr h;

	at = rd_call_hdr_put(msg, 5, 16,
			     &(struct rd_chunks){.ck_data = &data, .ck_at = 8, .ck_place = &place});
	ck_assert_uint_le(at, RD_HDR_MIN + 48);
	put(5), put(0);
	ck_assert_int_eq(parse(&h), RD_OK);
	ck_assert(h.h_proc == RD_MSG && h.h_len == 8 && !h.h_reply && h.h_nchunks == 1 &&
		  h.h_nsegs == 1);
	ck_assert_int_eq(rd_plan(&h, 5000, &pl, reads, copies), 0);
	ck_assert(pl.pl_len == 8 + 1004 && pl.pl_nreads == 1 && reads[0].rr_at == 8 &&
		  reads[0].rr_len == 1001 && reads[0].rr_handle == 83 &&
		  reads[0].rr_offset == 0x77);
	rc = rd_call_new(&h);
	ck_assert(rc && rc->rc_nchunks == 1 && rc->rc_segs[0].ws_seg.sg_handle == 84 &&
		  rc->rc_segs[0].ws_seg.sg_length == 4096 &&
		  rc->rc_segs[0].ws_seg.sg_offset == 0x1000);
	free(rc);
}
END_TEST

START_TEST(payload_is_cut_at_the_segments)
{
	unsigned seed = (unsigned)time(NULL) * 512 + (unsigned)_i, nsegs, nsrc, ncuts, npieces,
		 max_sge;
	struct rd_wseg segs[300];
	struct rd_src src[17], pieces[RD_PIECES(300, 17)];
	struct rd_cut cuts[RD_CUTS(300, 17)];
	uint64_t total = 0, done = 0;

	printf("# seed %u\n", seed);
	srandom(seed);
	nsrc = (unsigned)random() % 17 + 1;
	max_sge = (unsigned)random() % 5 + 1;
	for (unsigned i = 0; i < nsrc; i++) {
		src[i] = (struct rd_src){want + total, (uint32_t)random() % 2000, i};
		total += src[i].sr_len;
	}
	fill(want, total);
	for (nsegs = 0; done < total && nsegs < 299; nsegs++) {
		segs[nsegs] = (struct rd_wseg){
			.ws_seg = {nsegs, (uint32_t)random() % 900, (uint64_t)nsegs * 100}};
		done += segs[nsegs].ws_seg.sg_length;
	}
	segs[nsegs++] = (struct rd_wseg){.ws_seg = {299, 40000, 29900}};
	ck_assert(rd_fill(segs, nsegs, total));
	ncuts = rd_cut(segs, nsegs, src, nsrc, max_sge, cuts, pieces, &npieces);
	ck_assert_uint_le(ncuts, RD_CUTS(nsegs, nsrc));
	ck_assert_uint_le(npieces, RD_PIECES(nsegs, nsrc));
	done = 0;
	for (unsigned i = 0; i < ncuts; i++) {
		uint64_t len = 0;

		ck_assert_uint_ge(cuts[i].ct_n, 1);
		ck_assert_uint_le(cuts[i].ct_n, max_sge);
		for (unsigned k = 0; k < cuts[i].ct_n; k++) {
			ck_assert_ptr_eq(pieces[cuts[i].ct_first + k].sr_p, want + done);
			done += pieces[cuts[i].ct_first + k].sr_len;
			len += pieces[cuts[i].ct_first + k].sr_len;
		}
		/* inside of its segment */
		ck_assert_uint_ge(cuts[i].ct_offset, cuts[i].ct_handle * 100);
		ck_assert_uint_le(
			cuts[i].ct_offset - cuts[i].ct_handle * 100 + len,
			segs[cuts[i].ct_handle < 299 ? cuts[i].ct_handle : nsegs - 1].ws_used);
	}
	ck_assert_uint_eq(done, total);
}
END_TEST

START_TEST(private_data_is_found_wherever_it_stands)
{
	struct rd_private pv = {.pv_inv = true, .pv_send = 4096, .pv_recv = 8192}, got;
	uint8_t p[56] = {0};

	rd_private_put(p, &pv);
	ck_assert_int_eq(memcmp(p, "\xf6\xab\x0e\x18\1\1\3\7", 8), 0);
	rd_private_parse(p, sizeof p, &got);
	ck_assert(got.pv_inv && got.pv_send == 4096 && got.pv_recv == 8192);
	memset(p, 0, sizeof p);
	rd_private_put(p + 7, &pv);
	rd_private_parse(p, sizeof p, &got);
	ck_assert(got.pv_inv && got.pv_recv == 8192);
	rd_private_parse(p, 14, &got); /* cut off */
	ck_assert(!got.pv_inv && got.pv_recv == 1024 && got.pv_send == 1024);
	p[7 + 4] = 2; /* another version */
	rd_private_parse(p, sizeof p, &got);
	ck_assert(!got.pv_inv && got.pv_recv == 1024);
	rd_private_parse(NULL, 0, &got);
	ck_assert_uint_eq(got.pv_send, 1024);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("rdma_hdr");
	SRunner *sr = srunner_create(s);
	TCase *tc = tcase_create("headers");
	int failed;

	suite_add_tcase(s, tc);
	tcase_add_test(tc, short_messages_are_discarded_unread);
	tcase_add_test(tc, what_the_header_says_is_taken);
	tcase_add_test(tc, what_makes_no_sense_is_refused_as_the_rfc_says);
	tcase_add_test(tc, errors_are_what_a_peer_can_read);
	tcase_add_loop_test(tc, a_call_is_put_together_again, 0, 200);
	tcase_add_test(tc, chunks_that_fit_nowhere_are_refused);
	tcase_add_test(tc, write_lists_come_back_with_what_was_written);
	tcase_add_test(tc, the_handle_to_invalidate_is_the_calls_own);
	tcase_add_test(tc, calls_of_ours_say_where_they_lie);
	tcase_add_test(tc, payload_of_calls_of_ours_has_chunks_of_its_own);
	tcase_add_loop_test(tc, payload_is_cut_at_the_segments, 0, 100);
	tcase_add_test(tc, private_data_is_found_wherever_it_stands);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
