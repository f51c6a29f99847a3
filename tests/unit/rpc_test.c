/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_test.c - RPC servers over real sockets on the loopback: the server on a thread of its own, a
 * plain socket as its peer.
 */
#include "tests/unit/rpc_peer.h"
#include "tests/unit/unit.h"
#include <unistd.h>

static bool is_closed(int fd)
{
	uint8_t b;

	return recv(fd, &b, 1, 0) <= 0;
}

/* ---- rejections ---- */

START_TEST(calls_that_cannot_be_served_get_the_rfc_rejection)
{
	struct xdr_out x;
	int fd = dial();

	put_call(&x, 1, 0);
	xdr_patch_u32(&x, 8, 3); /* rpcvers */
	send_record(fd, &x);
	EXPECT(fd, 1, 1, 1, 0, 2, 2);
	put_call(&x, 2, 0);
	xdr_patch_u32(&x, 12, 400122);
	send_record(fd, &x);
	EXPECT(fd, 2, 1, 0, 0, 0, RPC_A_PROG_UNAVAIL);
	put_call(&x, 3, 0);
	xdr_patch_u32(&x, 16, 4);
	send_record(fd, &x);
	EXPECT(fd, 3, 1, 0, 0, 0, RPC_A_PROG_MISMATCH, 3, 7);
	put_call(&x, 4, P_N);
	send_record(fd, &x);
	EXPECT(fd, 4, 1, 0, 0, 0, RPC_A_PROC_UNAVAIL);
	put_call(&x, 5, 1);
	xdr_patch_u32(&x, 16, 6);
	send_record(fd, &x);
	EXPECT(fd, 5, 1, 0, 0, 0, RPC_A_PROC_UNAVAIL);
	put_call(&x, 6, P_GARBAGE);
	send_record(fd, &x);
	EXPECT(fd, 6, 1, 0, 0, 0, RPC_A_GARBAGE_ARGS);
	put_call(&x, 7, P_TOOWEAK);
	send_record(fd, &x);
	EXPECT(fd, 7, 1, 1, 1, RPC_AUTH_TOOWEAK);
	put_call(&x, 8, 0);
	xdr_truncate(&x, 20); /* no procedure */
	send_record(fd, &x);
	EXPECT(fd, 8, 1, 0, 0, 0, RPC_A_GARBAGE_ARGS);
	put_call(&x, 9, P_NULL);
	send_record(fd, &x);
	EXPECT(fd, 9, 1, 0, 0, 0, 0);
	close(fd);
}
END_TEST

static void put_sys(struct xdr_out *x, uint32_t xid, uint32_t namelen, uint32_t ngids,
		    uint32_t extra)
{
	uint32_t len = 4 + 4 + ((namelen + 3) & ~3u) + 4 + 4 + 4 + 4 * ngids + extra;

	put_head(x, xid, 3, P_CRED);
	xdr_put_u32(x, RPC_AUTH_SYS);
	xdr_put_u32(x, len);
	xdr_put_u32(x, 99);
	xdr_put_opaque(x, pattern, namelen);
	xdr_put_u32(x, 1000);
	xdr_put_u32(x, 100);
	xdr_put_u32(x, ngids);
	for (uint32_t i = 0; i < ngids; i++)
		xdr_put_u32(x, 500 + i);
	for (uint32_t i = 0; i < extra; i += 4)
		xdr_put_u32(x, 0);
	xdr_put_u64(x, 0);
}

START_TEST(auth_sys_is_checked_and_auth_none_is_nobody)
{
	struct xdr_out x;
	struct xdr_in in;
	int fd = dial();

	put_sys(&x, 1, 255, 16, 0);
	send_record(fd, &x);
	in = results(fd, 1);
	ck_assert_uint_eq(xdr_get_u32(&in), RPC_AUTH_SYS);
	ck_assert_uint_eq(xdr_get_u32(&in), 1000);
	ck_assert_uint_eq(xdr_get_u32(&in), 100);
	ck_assert_uint_eq(xdr_get_u32(&in), 16);
	for (uint32_t i = 0; i < 16; i++)
		ck_assert_uint_eq(xdr_get_u32(&in), 500 + i);
	put_sys(&x, 2, 0, 0, 0);
	send_record(fd, &x);
	EXPECT(fd, 2, 1, 0, 0, 0, 0, RPC_AUTH_SYS, 1000, 100, 0);
	put_sys(&x, 3, 256, 1, 0);
	send_record(fd, &x);
	EXPECT(fd, 3, 1, 1, 1, RPC_AUTH_BADCRED);
	put_sys(&x, 4, 5, 17, 0);
	send_record(fd, &x);
	EXPECT(fd, 4, 1, 1, 1, RPC_AUTH_BADCRED);
	put_sys(&x, 5, 5, 2, 4);
	send_record(fd, &x);
	EXPECT(fd, 5, 1, 1, 1, RPC_AUTH_BADCRED);
	put_head(&x, 6, 3, P_CRED);
	xdr_put_u32(&x, RPC_AUTH_SYS);
	xdr_put_u64(&x, 0); /* an empty body, and no verifier */
	send_record(fd, &x);
	EXPECT(fd, 6, 1, 1, 1, RPC_AUTH_BADCRED);
	put_head(&x, 7, 3, P_CRED);
	xdr_put_u32(&x, RPC_AUTH_NONE);
	xdr_put_u32(&x, 404);
	send_record(fd, &x);
	EXPECT(fd, 7, 1, 1, 1, RPC_AUTH_BADCRED);
	put_head(&x, 8, 3, P_CRED);
	xdr_put_u64(&x, 0);
	xdr_put_u32(&x, 0);
	xdr_put_u32(&x, 8); /* a verifier that is not there */
	send_record(fd, &x);
	EXPECT(fd, 8, 1, 1, 1, RPC_AUTH_BADVERF);
	put_call(&x, 9, P_CRED);
	send_record(fd, &x);
	EXPECT(fd, 9, 1, 0, 0, 0, 0, RPC_AUTH_NONE, 65534, 65534, 0);
	close(fd);
}
END_TEST

START_TEST(unknown_flavours_are_rejected_and_the_connection_stays)
{
	static const uint32_t flavors[] = {RPC_AUTH_GSS, RPC_AUTH_TLS, 2, 390003};
	struct xdr_out x;
	int fd = dial();

	for (uint32_t i = 0; i < 4; i++) {
		put_head(&x, i, 3, P_NULL);
		xdr_put_u32(&x, flavors[i]);
		xdr_put_opaque(&x, pattern, 20 * i);
		xdr_put_u64(&x, 0);
		send_record(fd, &x);
		EXPECT(fd, i, 1, 1, 1, RPC_AUTH_REJECTEDCRED);
	}
	ck_assert_int_eq(atomic_load(&dispatched), 0);
	put_call(&x, 77, P_NULL);
	send_record(fd, &x);
	EXPECT(fd, 77, 1, 0, 0, 0, 0);
	close(fd);
}
END_TEST

/* ---- records ---- */

START_TEST(many_small_calls_in_one_write_are_all_answered_in_order)
{
	struct xdr_out all, x;
	int fd = dial();

	xdr_out_init(&all, 1 << 24);
	for (uint32_t i = 0; i < 5000; i++) {
		put_call(&x, i, P_ECHO);
		xdr_put_opaque(&x, pattern + i, i % 300);
		xdr_put_u32(&all, RPC_LAST | (uint32_t)x.x_len);
		xdr_put_fixed(&all, x.x_head, x.x_len);
		xdr_out_free(&x);
	}
	send_all(fd, all.x_head, all.x_len);
	xdr_out_free(&all);
	for (uint32_t i = 0; i < 5000; i++) {
		struct xdr_in in = results(fd, i);
		uint32_t n;
		const uint8_t *p = xdr_get_opaque(&in, 300, &n);

		ck_assert_uint_eq(n, i % 300);
		ck_assert(!n || !memcmp(p, pattern + i, n));
		ck_assert_uint_eq(xdr_left(&in), 0);
	}
	close(fd);
}
END_TEST

START_TEST(a_record_may_come_in_any_fragments_and_pieces)
{
	struct xdr_out x;
	struct xdr_in in;
	uint32_t n;
	int fd = dial();

	/* byte by byte */
	put_call(&x, 1, P_ECHO);
	xdr_put_opaque(&x, pattern, 50);
	uint32_t mark = htobe32(RPC_LAST | (uint32_t)x.x_len);
	for (int i = 0; i < 4; i++)
		send_all(fd, (uint8_t *)&mark + i, 1);
	for (size_t i = 0; i < x.x_len; i++)
		send_all(fd, x.x_head + i, 1);
	xdr_out_free(&x);
	in = results(fd, 1);
	xdr_get_opaque(&in, 300, &n);
	ck_assert_uint_eq(n, 50);
	/* fragments of 1, 0, 2, 3, ... bytes, the last one empty */
	put_call(&x, 2, P_ECHO);
	xdr_put_opaque(&x, pattern, 1 << 20);
	for (size_t at = 0, step = 1; at < x.x_len; step += step / 4 + 1) {
		size_t len = x.x_len - at < step ? x.x_len - at : step;

		send_mark(fd, (uint32_t)len);
		send_all(fd, x.x_head + at, len);
		send_mark(fd, 0);
		at += len;
	}
	send_mark(fd, RPC_LAST);
	xdr_out_free(&x);
	in = results(fd, 2);
	ck_assert_mem_eq(xdr_get_opaque(&in, 1 << 20, &n), pattern, 1 << 20);
	close(fd);
	wait_for(&released, 2);
}
END_TEST

START_TEST(a_record_over_the_cap_ends_the_connection_and_is_counted)
{
	uint64_t before = metric_value(rpc_m_garbage);
	int fd = dial();

	send_mark(fd, RPC_LAST | (uint32_t)(service.rs_max_record + 1));
	ck_assert(is_closed(fd));
	close(fd);
	fd = dial();
	for (size_t sum = 0; sum <= service.rs_max_record; sum += 1 << 16) {
		send_mark(fd, 1 << 16);
		if (send(fd, pattern, 1 << 16, MSG_NOSIGNAL) < 0)
			break;
	}
	ck_assert(is_closed(fd));
	close(fd);
	wait_for(&closed, 2);
	ck_assert_uint_eq(metric_value(rpc_m_garbage), before + 2);
}
END_TEST

START_TEST(what_is_no_rpc_message_ends_the_connection)
{
	static const uint32_t words[][4] = {{1, 7, 2, PROG}, {1, 0, 0, 0}, {0, 0, 0, 0}};
	static const size_t lens[] = {16, 8, 0};

	for (int i = 0; i < 3; i++) {
		uint32_t be[4];
		int fd = dial();

		for (int j = 0; j < 4; j++)
			be[j] = htobe32(words[i][j]);
		send_mark(fd, RPC_LAST | (uint32_t)lens[i]);
		send_all(fd, be, lens[i]);
		ck_assert(is_closed(fd));
		close(fd);
	}
}
END_TEST

START_TEST(payload_of_bulk_calls_lands_on_page_boundaries)
{
	struct xdr_out x;
	int fd = dial();

	for (uint32_t i = 0; i < 20; i++) {
		put_call(&x, i, P_BULK);
		xdr_put_opaque(&x, pattern, (1 << 20) - i * 40000);
		send_record(fd, &x);
		EXPECT(fd, i, 1, 0, 0, 0, 0, 1);
	}
	ck_assert_int_le(atomic_load(&unaligned), 1);
	/* A small call in between costs nothing but one copy. */
	put_call(&x, 100, P_NULL);
	send_record(fd, &x);
	EXPECT(fd, 100, 1, 0, 0, 0, 0);
	put_call(&x, 101, P_BULK);
	xdr_put_opaque(&x, pattern, 1 << 20);
	send_record(fd, &x);
	EXPECT(fd, 101, 1, 0, 0, 0, 0, 1);
	ck_assert_int_le(atomic_load(&unaligned), 1);
	close(fd);
}
END_TEST

/* ---- replies ---- */

START_TEST(parked_calls_are_answered_in_any_order_with_their_arguments_intact)
{
	struct xdr_out x;
	int fd = dial();

	for (uint32_t i = 0; i < 200; i++) {
		put_call(&x, i, P_PARK);
		xdr_put_u32(&x, i * 3);
		xdr_put_opaque(&x, pattern, 900);
		send_record(fd, &x);
	}
	wait_for(&nparked, 200);
	put_call(&x, 1000, P_WAKE);
	send_record(fd, &x);
	for (uint32_t i = 200; i--;)
		EXPECT(fd, i, 1, 0, 0, 0, 0, i * 3);
	EXPECT(fd, 1000, 1, 0, 0, 0, 0);
	close(fd);
}
END_TEST

START_TEST(a_reply_that_does_not_fit_becomes_system_err)
{
	struct xdr_out x;
	struct xdr_in in;
	int fd = dial();

	put_call(&x, 1, P_BIG);
	xdr_put_u32(&x, 2 << 20);
	send_record(fd, &x);
	EXPECT(fd, 1, 1, 0, 0, 0, RPC_A_SYSTEM_ERR);
	put_call(&x, 2, P_BIG);
	xdr_put_u32(&x, (1 << 20) + 4096);
	send_record(fd, &x);
	in = results(fd, 2);
	ck_assert_uint_eq(xdr_left(&in), (1 << 20) + 4096);
	close(fd);
}
END_TEST

START_TEST(references_are_sent_in_place_and_released_once)
{
	struct xdr_out x;
	struct xdr_in in;
	int fd = dial();

	put_call(&x, 1, P_REFS);
	send_record(fd, &x);
	in = results(fd, 1);
	for (uint32_t i = 0; i < XDR_SPLICES + 4; i++) {
		uint32_t n;
		const uint8_t *p = xdr_get_opaque(&in, 2000, &n);

		ck_assert_uint_eq(n, 1001 + i);
		ck_assert_mem_eq(p, pattern + i, n);
	}
	ck_assert_uint_eq(xdr_left(&in), 0);
	wait_for(&released, XDR_SPLICES + 4);
	close(fd);
}
END_TEST

START_TEST(a_peer_that_does_not_read_loses_nothing_and_is_not_read_either)
{
	struct xdr_out x;
	int fd = dial(), sent = 0;

	/* Until the socket stays full: the server has stopped reading. */
	for (; sent < 400; sent++) {
		size_t at = 0;
		int tries = 0;

		put_call(&x, (uint32_t)sent, P_ECHO);
		xdr_put_opaque(&x, pattern, 256 << 10);
		uint32_t mark = htobe32(RPC_LAST | (uint32_t)x.x_len);
		uint8_t *all = malloc(x.x_len + 4);
		memcpy(all, &mark, 4);
		memcpy(all + 4, x.x_head, x.x_len);
		while (at < x.x_len + 4 && tries < 100) {
			ssize_t n =
				send(fd, all + at, x.x_len + 4 - at, MSG_NOSIGNAL | MSG_DONTWAIT);

			if (n > 0) {
				at += (size_t)n;
				tries = 0;
			} else {
				tries++;
				usleep(5000);
			}
		}
		if (at < x.x_len + 4) {
			/* Now read everything; the rest of this call follows on the way. */
			int done = atomic_load(&dispatched);

			ck_assert_int_lt(done - atomic_load(&released), 40);
			for (int i = 0; i < done; i++)
				results(fd, (uint32_t)i);
			send_all(fd, all + at, x.x_len + 4 - at);
			for (int i = done; i <= sent; i++) {
				struct xdr_in in = results(fd, (uint32_t)i);
				uint32_t n;

				ck_assert_mem_eq(xdr_get_opaque(&in, 1 << 20, &n), pattern,
						 256 << 10);
			}
			free(all);
			xdr_out_free(&x);
			break;
		}
		free(all);
		xdr_out_free(&x);
	}
	ck_assert_int_lt(sent, 400);
	close(fd);
	wait_for(&released, sent + 1);
}
END_TEST

START_TEST(a_connection_with_many_unanswered_calls_is_not_read_until_they_are)
{
	struct xdr_out x;
	int fd = dial(), fd2 = dial();

	for (uint32_t i = 0; i < 1000; i++) {
		put_call(&x, i, P_PARK);
		xdr_put_u32(&x, i);
		send_record(fd, &x);
	}
	wait_for(&nparked, RPC_MAX_CALLS);
	usleep(50000);
	ck_assert_int_eq(atomic_load(&nparked), RPC_MAX_CALLS);
	for (int seen = 0; seen < 1000;) {
		int now = atomic_load(&nparked);

		if (!now || (now < (int)RPC_MAX_CALLS && seen + now < 1000)) {
			usleep(1000);
			continue;
		}
		put_call(&x, 5000, P_WAKE);
		send_record(fd2, &x);
		results(fd2, 5000);
		for (int i = 0; i < now; i++, seen++)
			recv_reply(fd);
	}
	close(fd);
	close(fd2);
}
END_TEST

static struct loop_hook late_hook;
static struct rpc_call *late_call;

static void late_reply(struct loop_hook *h)
{
	(void)h;
	if (late_call)
		rpc_reply(late_call);
	late_call = NULL;
}

static void late_take(struct loop_msg *m)
{
	(void)m;
	if (!late_hook.h_run) {
		late_hook.h_run = late_reply;
		loop_at_turn_end(S, &late_hook);
	}
	late_call = parked[atomic_fetch_sub(&nparked, 1) - 1];
}

START_TEST(a_reply_from_the_last_hook_of_a_turn_leaves_at_once)
{
	struct loop_msg m = {.m_run = late_take};
	struct xdr_out x;
	int fd = dial();

	/* The RPC layer's own hook is there first. */
	put_call(&x, 1, P_NULL);
	send_record(fd, &x);
	results(fd, 1);
	for (uint32_t i = 0; i < 20; i++) {
		put_call(&x, i, P_PARK);
		send_record(fd, &x);
		wait_for(&nparked, 1);
		loop_post(S, &m);
		results(fd, i);
	}
	close(fd);
}
END_TEST

static _Atomic int recalled;

static void recall_done(struct rpc_req *q, int err, struct xdr_in *res)
{
	(void)res;
	atomic_store(&recalled, err ? -1 : 1);
	free(q);
}

static void recall_send(struct loop_msg *m)
{
	struct rpc_req *q = malloc(sizeof *q);

	(void)m;
	rpc_req_init(q, PROG + 1, 1, 1, NULL, 100, recall_done);
	rpc_req_send(last_conn, q, 5000);
}

START_TEST(a_full_connection_still_reads_the_reply_to_our_call)
{
	struct loop_msg m = {.m_run = recall_send};
	struct xdr_out x;
	struct xdr_in in;
	uint32_t xid;
	int fd = dial();

	for (uint32_t i = 0; i < RPC_MAX_CALLS + 10; i++) {
		put_call(&x, i, P_PARK);
		send_record(fd, &x);
	}
	wait_for(&nparked, RPC_MAX_CALLS);
	loop_post(S, &m);
	in = recv_reply(fd);
	xid = xdr_get_u32(&in);
	ck_assert_uint_eq(xdr_get_u32(&in), 0);
	xdr_out_init(&x, 100);
	xdr_put_u32(&x, xid);
	xdr_put_u32(&x, 1);
	xdr_put_u32(&x, 0);
	xdr_put_u64(&x, 0);
	xdr_put_u32(&x, 0);
	send_record(fd, &x);
	wait_for(&recalled, 1);
	wait_for(&nparked, RPC_MAX_CALLS + 10);
	close(fd);
	/* Full again, it is not read; the answers find out that the peer is gone. */
	fd = dial();
	put_call(&x, 1, P_WAKE);
	send_record(fd, &x);
	results(fd, 1);
	close(fd);
}
END_TEST

/* As the metric says. */
static int connections(void)
{
	char *text = metrics_render(), *at = strstr(text, "\nweft_rpc_connections ");
	int n = at ? atoi(at + strlen("\nweft_rpc_connections ")) : -1;

	free(text);
	return n;
}

START_TEST(replies_after_the_connection_is_gone_only_free)
{
	struct xdr_out x;
	int fd = dial(), fd2;

	for (uint32_t i = 0; i < 100; i++) {
		put_call(&x, i, P_PARK);
		xdr_put_u32(&x, i);
		send_record(fd, &x);
	}
	wait_for(&nparked, 100);
	close(fd);
	wait_for(&closed, 1);
	usleep(20000);
	ck_assert_int_eq(connections(), 0);
	fd2 = dial();
	put_call(&x, 7, P_WAKE);
	send_record(fd2, &x);
	results(fd2, 7);
	close(fd2);
}
END_TEST

START_TEST(nothing_is_dispatched_after_close)
{
	struct xdr_out all, x;
	int fd = dial();

	xdr_out_init(&all, 1 << 20);
	for (uint32_t i = 0; i < 10; i++) {
		put_call(&x, i, i == 4 ? P_CLOSE : P_NULL);
		xdr_put_u32(&all, RPC_LAST | (uint32_t)x.x_len);
		xdr_put_fixed(&all, x.x_head, x.x_len);
		xdr_out_free(&x);
	}
	send_all(fd, all.x_head, all.x_len);
	xdr_out_free(&all);
	wait_for(&closed, 1);
	ck_assert_int_eq(atomic_load(&dispatched), 5);
	close(fd);
}
END_TEST

/* ---- shared memory of receives ---- */

#define CROWD 20

static void doze(struct loop_msg *m)
{
	(void)m;
	usleep(300000);
}

/* While the loop sleeps, as many connections get data as do not all find shared memory. */
START_TEST(more_connections_than_share_memory_may_speak_at_once)
{
	struct loop_msg m = {.m_run = doze};
	int fds[CROWD];

	rpc_any_n = 2;
	for (int i = 0; i < CROWD; i++)
		fds[i] = dial();
	for (uint32_t round = 0; round < 3; round++) {
		struct xdr_out x;

		loop_post(S, &m);
		for (uint32_t i = 0; i < CROWD; i++) {
			put_call(&x, round * CROWD + i, P_NULL);
			send_record(fds[i], &x);
		}
		for (uint32_t i = 0; i < CROWD; i++)
			results(fds[i], round * CROWD + i);
	}
	ck_assert_int_eq(atomic_load(&closed), 0);
	for (int i = 0; i < CROWD; i++)
		close(fds[i]);
}
END_TEST

/* ---- several loops ---- */

#define DEAL_LOOPS 3
static _Atomic int dealt[DEAL_LOOPS];
static struct loop *deal_loops[DEAL_LOOPS];

static void deal_opened(struct rpc_conn *c, void *arg)
{
	(void)arg;
	for (int i = 0; i < DEAL_LOOPS; i++)
		if (loop_self() == deal_loops[i] && rpc_conn_loop(c) == deal_loops[i])
			atomic_fetch_add(&dealt[i], 1);
}

static void deal_closed(struct rpc_conn *c, void *arg)
{
	(void)c;
	(void)arg;
	atomic_fetch_add(&closed, 1);
}

static void deal_stop(struct loop_msg *m)
{
	(void)m;
	rpc_listener_close(listener);
}

START_TEST(connections_are_dealt_to_the_loops_in_turn)
{
	struct rpc_service svc = service;
	struct loop_msg m = {.m_run = deal_stop};
	pthread_t t[DEAL_LOOPS];
	int fds[30];

	svc.rs_opened = deal_opened;
	svc.rs_closed = deal_closed;
	for (int i = 0; i < DEAL_LOOPS; i++)
		ck_assert_int_eq(loop_create(&deal_loops[i], 256), 0);
	ck_assert_int_eq(rpc_addr_parse("[::1]:0", 0, &addr, &addrlen), 0);
	ck_assert_int_eq(rpc_listen(&listener, deal_loops[0], (struct sockaddr *)&addr, addrlen,
				    &svc, deal_loops, DEAL_LOOPS),
			 0);
	((struct sockaddr_in6 *)&addr)->sin6_port = htons(rpc_listener_port(listener));
	for (int i = 0; i < DEAL_LOOPS; i++)
		pthread_create(&t[i], NULL, server_main, deal_loops[i]);
	for (int i = 0; i < 30; i++)
		fds[i] = dial();
	for (uint32_t i = 0; i < 30; i++) {
		struct xdr_out x;

		put_call(&x, i, P_NULL);
		send_record(fds[i], &x);
		results(fds[i], i);
	}
	for (int i = 0; i < DEAL_LOOPS; i++)
		ck_assert_int_eq(atomic_load(&dealt[i]), 10);
	for (int i = 0; i < 30; i++)
		close(fds[i]);
	wait_for(&closed, 30);
	loop_post(deal_loops[0], &m);
	usleep(20000);
	for (int i = 0; i < DEAL_LOOPS; i++) {
		loop_stop(deal_loops[i]);
		pthread_join(t[i], NULL);
		loop_destroy(deal_loops[i]);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("rpc");
	TCase *tc;

	tc = cases(s, "server", setup, teardown);
	tcase_add_test(tc, calls_that_cannot_be_served_get_the_rfc_rejection);
	tcase_add_test(tc, auth_sys_is_checked_and_auth_none_is_nobody);
	tcase_add_test(tc, unknown_flavours_are_rejected_and_the_connection_stays);
	tcase_add_test(tc, many_small_calls_in_one_write_are_all_answered_in_order);
	tcase_add_test(tc, a_record_may_come_in_any_fragments_and_pieces);
	tcase_add_test(tc, a_record_over_the_cap_ends_the_connection_and_is_counted);
	tcase_add_test(tc, what_is_no_rpc_message_ends_the_connection);
	tcase_add_test(tc, payload_of_bulk_calls_lands_on_page_boundaries);
	tcase_add_test(tc, parked_calls_are_answered_in_any_order_with_their_arguments_intact);
	tcase_add_test(tc, a_reply_that_does_not_fit_becomes_system_err);
	tcase_add_test(tc, references_are_sent_in_place_and_released_once);
	tcase_add_test(tc, a_peer_that_does_not_read_loses_nothing_and_is_not_read_either);
	tcase_add_test(tc, a_connection_with_many_unanswered_calls_is_not_read_until_they_are);
	tcase_add_test(tc, a_reply_from_the_last_hook_of_a_turn_leaves_at_once);
	tcase_add_test(tc, a_full_connection_still_reads_the_reply_to_our_call);
	tcase_add_test(tc, replies_after_the_connection_is_gone_only_free);
	tcase_add_test(tc, nothing_is_dispatched_after_close);
	tcase_add_test(tc, more_connections_than_share_memory_may_speak_at_once);
	tc = cases(s, "loops", NULL, NULL);
	tcase_add_test(tc, connections_are_dealt_to_the_loops_in_turn);
	return unit_run(s);
}
