/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xdr_test.c - what needs no socket: XDR, addresses, and the record cutter against a model.
 */
#include "proto/rpc_int.h"
#include "tests/unit/unit.h"
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <time.h>

static int released;

static void release(void *arg)
{
	(void)arg;
	released++;
}

/* ---- the record cutter against a model ---- */

START_TEST(records_are_cut_the_same_however_the_stream_arrives)
{
	unsigned seed = (unsigned)time(NULL) * 64 + (unsigned)_i;
	struct rpc_pool pool = {0};
	struct {
		size_t at, len;
	} want[64];
	struct rpc_record held[64] = {0};
	uint8_t *flat = malloc(8 << 20), *stream = malloc(9 << 20);
	size_t nflat = 0, nstream = 0, at = 0;
	unsigned nrec = 0, got = 0;
	struct rpc_record r;
	struct rpc_rx x;

	printf("# seed %u\n", seed);
	srandom(seed);
	for (; nrec < 64; nrec++) {
		static const size_t sizes[] = {0, 1, 40, 300, 8191, 8193, 20000, 100000};
		size_t len = (size_t)random() % (sizes[random() % 8] + 1), left_over = len;

		want[nrec].at = nflat;
		want[nrec].len = len;
		do {
			bool last = random() % 3 != 0;
			size_t n = last ? left_over : (size_t)random() % (left_over + 1);
			uint32_t mark = htobe32((uint32_t)n | (last ? RPC_LAST : 0));

			memcpy(stream + nstream, &mark, 4);
			nstream += 4;
			for (size_t i = 0; i < n; i++)
				flat[nflat++] = stream[nstream++] = (uint8_t)random();
			left_over -= n;
			if (last)
				break;
		} while (true);
	}
	rpc_rx_init(&x, &pool, 1 << 20);
	while (got < nrec) {
		size_t n;
		bool all;
		void *p;
		int rc;

		if (random() % 3 == 0)
			rpc_rx_leave(&x);
		ck_assert_int_eq((random() % 2 ? rpc_rx_space : rpc_rx_space_any)(&x, &p, &n, &all),
				 0);
		ck_assert_uint_gt(n, 0);
		if (!p) {
			ck_assert_uint_le(n, RPC_ANY);
			rpc_rx_take(&x, rpc_buf_new(&pool, RPC_ANY));
			p = x.x_rx->b_data;
		}
		if (n > nstream - at)
			n = nstream - at;
		if (random() % 2)
			n = 1 + (size_t)random() % n;
		memcpy(p, stream + at, n);
		at += n;
		rpc_rx_got(&x, n);
		while ((rc = rpc_rx_next(&x, &r)) == 1) {
			ck_assert_uint_eq(r.r_len, want[got].len);
			ck_assert(!memcmp(r.r_data, flat + want[got].at, r.r_len));
			/* Some are kept: the memory must not be used again. */
			if (random() % 2)
				held[got] = r;
			else
				rpc_buf_put(r.r_buf);
			if (random() % 4 == 0)
				rpc_rx_hint(&x, r.r_data, (size_t)random() % (r.r_len + 1) % 300);
			got++;
		}
		ck_assert_int_eq(rc, 0);
	}
	ck_assert_uint_eq(at, nstream);
	for (unsigned i = 0; i < nrec; i++) {
		if (!held[i].r_buf)
			continue;
		ck_assert(!memcmp(held[i].r_data, flat + want[i].at, want[i].len));
		rpc_buf_put(held[i].r_buf);
	}
	rpc_rx_free(&x);
	rpc_pool_drain(&pool);
	free(flat);
	free(stream);
}
END_TEST

/* Received as they come, in pieces of any length, and held while others are received. */
START_TEST(small_records_of_one_size_are_not_moved)
{
	enum { LEN = 4096 + 220, RECORDS = 400 };
	struct rpc_pool pool = {0};
	struct rpc_buf *held[8] = {0};
	uint8_t *stream = malloc(RECORDS * (LEN + 4)), *end = stream, *at = stream;
	unsigned got = 0;
	struct rpc_record r;
	struct rpc_rx x;

	ck_assert_ptr_nonnull(stream);
	for (unsigned i = 0; i < RECORDS; i++, end += LEN + 4) {
		uint32_t mark = htobe32(LEN | RPC_LAST);

		memcpy(end, &mark, 4);
		memset(end + 4, (int)i, LEN);
	}
	rpc_rx_init(&x, &pool, 1 << 20);
	while (got < RECORDS) {
		size_t n;
		bool all;
		void *p;

		ck_assert_int_eq(rpc_rx_space(&x, &p, &n, &all), 0);
		if (n > (size_t)(end - at))
			n = (size_t)(end - at);
		if (random() % 4 == 0)
			n = 1 + (size_t)random() % n;
		memcpy(p, at, n);
		at += n;
		rpc_rx_got(&x, n);
		for (; rpc_rx_next(&x, &r) == 1; got++) {
			ck_assert_uint_eq(r.r_len, LEN);
			ck_assert_uint_eq(r.r_data[0], got % 256);
			ck_assert_uint_eq(r.r_data[LEN - 1], got % 256);
			/* Nothing is known before the first; of a header, a few bytes may be. */
			ck_assert(got < 8 || r.r_copied <= 256);
			if (held[got % 8])
				rpc_buf_put(held[got % 8]);
			held[got % 8] = r.r_buf;
		}
	}
	for (unsigned i = 0; i < 8; i++)
		rpc_buf_put(held[i]);
	rpc_rx_free(&x);
	rpc_pool_drain(&pool);
	free(stream);
}
END_TEST

/* ---- XDR and addresses ---- */

START_TEST(xdr_reading_stops_at_the_end_and_stays_bad)
{
	static const uint8_t bytes[] = {0, 0, 0, 5, 'h', 'e', 'l', 'l', 'o', 0, 0, 0, 0, 0, 0, 2};
	struct xdr_in x;
	uint32_t n;

	xdr_in_init(&x, bytes, sizeof bytes);
	ck_assert_mem_eq(xdr_get_opaque(&x, 5, &n), "hello", 5);
	ck_assert_uint_eq(n, 5);
	ck_assert(!xdr_get_bool(&x));
	ck_assert(x.bad); /* 2 is no boolean */
	xdr_in_init(&x, bytes, sizeof bytes);
	ck_assert_ptr_null(xdr_get_opaque(&x, 4, &n));
	ck_assert_uint_eq(n, 0);
	ck_assert_uint_eq(xdr_get_u32(&x), 0);
	xdr_in_init(&x, bytes, 10); /* the padding is cut off */
	ck_assert_ptr_null(xdr_get_opaque(&x, 5, &n));
	ck_assert(x.bad);
	xdr_in_init(&x, bytes, sizeof bytes);
	ck_assert_ptr_null(xdr_get_fixed(&x, SIZE_MAX));
	ck_assert(x.bad);
}
END_TEST

START_TEST(xdr_writing_keeps_to_its_limit_and_truncates)
{
	struct iovec iov[2 * XDR_SPLICES + 1];
	struct xdr_out x;
	size_t at;

	xdr_out_init(&x, 40);
	xdr_put_u32(&x, 1);
	xdr_put_opaque(&x, "hello", 5);
	ck_assert_uint_eq(x.x_len, 16);
	xdr_put_u32(&x, 7);
	xdr_put_ref(&x, "payload", 7, release, NULL);
	ck_assert_uint_eq(x.x_len + x.x_payload, 28);
	ck_assert_uint_eq(xdr_out_iov(&x, iov), 3);
	ck_assert_uint_eq(iov[0].iov_len, 20);
	ck_assert_uint_eq(iov[1].iov_len, 7);
	ck_assert_uint_eq(iov[2].iov_len, 1);
	at = x.x_len;
	xdr_put_ref(&x, "0123456789ab", 12, release, NULL);
	ck_assert(!x.bad);
	xdr_put_u32(&x, 1);
	ck_assert(x.bad);
	xdr_truncate(&x, at);
	ck_assert(!x.bad);
	ck_assert_uint_eq(x.x_nsplice, 2); /* it stands exactly at the cut */
	xdr_truncate(&x, 16);
	ck_assert_uint_eq(x.x_nsplice, 0);
	ck_assert_uint_eq(x.x_payload, 0);
	ck_assert_int_eq(released, 2);
	xdr_put_ref(&x, "0123456789012345678901234567", 28, release, NULL);
	ck_assert(x.bad);
	ck_assert_int_eq(released, 3);
	xdr_out_free(&x);
	ck_assert_int_eq(released, 3);
}
END_TEST

static const struct {
	const char *text;
	uint16_t defport;
	const char *netid, *uaddr; /* NULL: an error */
} addrs[] = {
	{"1.2.3.4:2049", 1, "tcp", "1.2.3.4.8.1"},
	{"1.2.3.4", 2049, "tcp", "1.2.3.4.8.1"},
	{"[::1]:2049", 1, "tcp6", "::1.8.1"},
	{"[fe80::1]", 255, "tcp6", "fe80::1.0.255"},
	{"2001:db8::1", 256, "tcp6", "2001:db8::1.1.0"},
	{"1.2.3.4:65536", 1, NULL, NULL},
	{"1.2.3.4:", 1, NULL, NULL},
	{"1.2.3:1", 1, NULL, NULL},
	{"1.2.3.4:1x", 1, NULL, NULL},
	{"[::1", 1, NULL, NULL},
	{"[::1]x", 1, NULL, NULL},
	{"[1.2.3.4]:1", 1, NULL, NULL},
	{"host:1", 1, NULL, NULL},
	{"", 1, NULL, NULL},
};

START_TEST(addresses_and_universal_addresses_convert)
{
	static const char *const bad[] = {"1.2.3.4.8",	"1.2.3.4.256.1", "1.2.3.4.8.",
					  "1.2.3.4..1", "1.2.3.4.8.1x",	 "",
					  ".",		"1.2.3.4.-1.1"};
	struct sockaddr_storage ss, back;
	socklen_t len, blen;
	char netid[8], uaddr[64];

	for (size_t i = 0; i < sizeof addrs / sizeof addrs[0]; i++) {
		int rc = rpc_addr_parse(addrs[i].text, addrs[i].defport, &ss, &len);

		ck_assert_msg((rc == 0) == (addrs[i].netid != NULL), "\"%s\": %d", addrs[i].text,
			      rc);
		if (rc)
			continue;
		ck_assert_int_eq(
			rpc_uaddr((struct sockaddr *)&ss, netid, sizeof netid, uaddr, sizeof uaddr),
			0);
		ck_assert_str_eq(netid, addrs[i].netid);
		ck_assert_str_eq(uaddr, addrs[i].uaddr);
		ck_assert_int_eq(rpc_uaddr_parse(netid, uaddr, &back, &blen), 0);
		ck_assert_uint_eq(len, blen);
		ck_assert_mem_eq(&ss, &back, len);
		ck_assert_int_eq(rpc_uaddr((struct sockaddr *)&ss, netid, sizeof netid, uaddr, 7),
				 -ENOSPC);
	}
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		ck_assert_msg(rpc_uaddr_parse("tcp", bad[i], &ss, &len) < 0, "%s", bad[i]);
	ck_assert_int_eq(rpc_uaddr_parse("udp", "1.2.3.4.8.1", &ss, &len), -EPROTONOSUPPORT);
}
END_TEST

static TCase *cases(Suite *s, const char *name, void (*up)(void), void (*down)(void))
{
	TCase *tc = tcase_create(name);

	tcase_add_checked_fixture(tc, up, down);
	tcase_set_timeout(tc, 30);
	suite_add_tcase(s, tc);
	return tc;
}

int main(void)
{
	Suite *s = suite_create("xdr");
	TCase *tc;

	tc = cases(s, "xdr", NULL, NULL);
	tcase_add_loop_test(tc, records_are_cut_the_same_however_the_stream_arrives, 0, 30);
	tcase_add_test(tc, small_records_of_one_size_are_not_moved);
	tcase_add_test(tc, xdr_reading_stops_at_the_end_and_stays_bad);
	tcase_add_test(tc, xdr_writing_keeps_to_its_limit_and_truncates);
	tcase_add_test(tc, addresses_and_universal_addresses_convert);
	return unit_run(s);
}
