/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_client_test.c - RPC clients and calls of ours: client and server on one loop, over real
 * sockets on the loopback; all of it once more over TLS.
 */
#include "tests/unit/rpc_testsrv.h"
#include "tests/unit/tls_cert.h"
#include "tests/unit/unit.h"

static struct rpc_client *cl;
static _Atomic int callbacks;
static int ups, downs, last_err, left;
static uint32_t got_words[4];
static const uint8_t peer_key[RPC_TLS_PSK_LEN] = "a key that both sides know";
static bool over_tls;
static struct rpc_tls_ctx *volatile offered; /* kept where the service loses it */

static void one_setup(void)
{
	pattern_make();
	ck_assert_int_eq(loop_create(&S, 256), 0);
	listen_on(S, "127.0.0.1:0");
}

static void tls_setup(void)
{
	over_tls = true;
	offered = service.rs_tls = cert_context(peer_key);
	one_setup();
}

static void stop_fire(struct loop_timer *t)
{
	(void)t;
	loop_stop(S);
}

static void run_ms(uint64_t ms)
{
	struct loop_timer t = {.t_fire = stop_fire};

	loop_timer_start(S, &t, ms);
	loop_run(S);
	loop_timer_stop(S, &t);
}

static void one_teardown(void)
{
	if (cl)
		rpc_client_destroy(cl);
	if (listener)
		rpc_listener_close(listener);
	run_ms(50);
	while (atomic_load(&nparked))
		rpc_reply(parked[atomic_fetch_sub(&nparked, 1) - 1]);
	run_ms(50);
	ck_assert_int_eq(atomic_load(&opened), atomic_load(&closed));
	loop_destroy(S);
}

static void cl_up(struct rpc_client *c, struct rpc_conn *conn, void *arg)
{
	ck_assert_ptr_eq(c, cl);
	ck_assert_ptr_nonnull(conn);
	ck_assert_int_eq(rpc_conn_tls(conn), over_tls ? RPC_TLS_MUTUAL : RPC_TLS_NONE);
	ck_assert_ptr_eq(arg, &ups);
	ups++;
}

static void cl_down(struct rpc_client *c, int e, void *arg)
{
	ck_assert_ptr_eq(c, cl);
	ck_assert_ptr_eq(arg, &ups);
	ck_assert_int_lt(e, 0);
	downs++;
}

static const struct rpc_client_ops ops = {cl_up, cl_down};

static void client_make(const struct rpc_service *svc)
{
	ck_assert_int_eq(
		rpc_client_create(&cl, S, (struct sockaddr *)&addr, addrlen, svc, &ops, &ups), 0);
	if (over_tls)
		rpc_client_use_tls(cl, PROG, 3, peer_key);
}

static void done(struct rpc_req *q, int e, struct xdr_in *res)
{
	last_err = e;
	for (int i = 0; i < 4 && !e && xdr_left(res) >= 4; i++)
		got_words[i] = xdr_get_u32(res);
	free(q);
	if (!--left)
		loop_stop(S);
}

static struct rpc_req *req(uint32_t proc)
{
	struct rpc_req *q = malloc(sizeof *q);

	left++;
	rpc_req_init(q, PROG, 3, proc, NULL, 1 << 20, done);
	return q;
}

static struct rpc_cred cred = {
	.rc_flavor = RPC_AUTH_SYS, .rc_uid = 7, .rc_gid = 8, .rc_ngids = 2, .rc_gids = {9, 10}};

START_TEST(a_client_connects_on_its_first_call)
{
	struct rpc_req *q = malloc(sizeof *q);

	client_make(NULL);
	run_ms(30);
	ck_assert_int_eq(ups, 0);
	left = 1;
	rpc_req_init(q, PROG, 3, P_CRED, &cred, 100, done);
	rpc_client_send(cl, q, 60000);
	loop_run(S);
	ck_assert_int_eq(last_err, 0);
	ck_assert_int_eq(ups, 1);
	ck_assert_uint_eq(got_words[0], RPC_AUTH_SYS);
	ck_assert_uint_eq(got_words[1], 7);
	ck_assert_uint_eq(got_words[2], 8);
	ck_assert_uint_eq(got_words[3], 2);
}
END_TEST

START_TEST(a_call_without_answer_times_out_and_its_late_reply_is_counted)
{
	uint64_t before = metric_value(rpc_m_bad_replies);

	client_make(NULL);
	rpc_client_send(cl, req(P_NULL), 5000); /* a TLS handshake may take longer than the 50 ms */
	loop_run(S);
	rpc_client_send(cl, req(P_BLACKHOLE), 50);
	loop_run(S);
	ck_assert_int_eq(last_err, -ETIMEDOUT);
	rpc_client_send(cl, req(P_WAKE), 60000);
	loop_run(S);
	ck_assert_int_eq(last_err, 0);
	for (int i = 0; i < 6000 && metric_value(rpc_m_bad_replies) == before; i++)
		run_ms(10);
	ck_assert_uint_eq(metric_value(rpc_m_bad_replies), before + 1);
	ck_assert_int_eq(downs, 0);
}
END_TEST

START_TEST(rejected_calls_end_with_eproto)
{
	client_make(NULL);
	rpc_client_send(cl, req(P_GARBAGE), 60000);
	loop_run(S);
	ck_assert_int_eq(last_err, -EPROTO);
	rpc_client_send(cl, req(P_TOOWEAK), 60000);
	loop_run(S);
	ck_assert_int_eq(last_err, -EPROTO);
	rpc_client_send(cl, req(P_N + 1), 60000);
	loop_run(S);
	ck_assert_int_eq(last_err, -EPROTO);
	rpc_client_send(cl, req(P_NULL), 60000);
	loop_run(S);
	ck_assert_int_eq(last_err, 0);
}
END_TEST

START_TEST(calls_lost_with_the_connection_end_with_econnreset_and_it_is_made_again)
{
	client_make(NULL);
	rpc_client_start(cl);
	for (int i = 0; i < 100; i++)
		rpc_client_send(cl, req(P_BLACKHOLE), 60000);
	rpc_client_send(cl, req(P_CLOSE), 60000);
	loop_run(S);
	ck_assert_int_eq(last_err, -ECONNRESET);
	run_ms(300);
	ck_assert_int_eq(downs, 1);
	ck_assert_int_eq(ups, 2);
	rpc_client_send(cl, req(P_NULL), 60000);
	loop_run(S);
	ck_assert_int_eq(last_err, 0);
}
END_TEST

/* Milliseconds that it takes to lose five connections one after the other and have a sixth. */
static uint64_t lose_five(bool proven)
{
	uint64_t began = loop_now_ns(S);

	for (int i = 0; i < 5; i++) {
		rpc_client_send(cl, req(P_CLOSE), 60000);
		loop_run(S);
		if (proven)
			rpc_client_proven(cl);
	}
	rpc_client_send(cl, req(P_NULL), 60000);
	loop_run(S);
	ck_assert_int_eq(last_err, 0);
	return (loop_now_ns(S) - began) / 1000000;
}

START_TEST(pauses_grow_unless_the_connection_was_of_use)
{
	uint64_t took = UINT64_MAX;

	client_make(NULL);
	rpc_client_start(cl);
	ck_assert_uint_gt(lose_five(false), 100 + 200 + 400 + 800);
	rpc_client_proven(cl);
	/* A busy machine takes longer now and then, and these pauses each time. */
	for (int i = 0; took >= 100 + 200 + 400 + 800 && i < 20; i++)
		took = lose_five(true);
	ck_assert_uint_lt(took, 100 + 200 + 400 + 800);
}
END_TEST

START_TEST(a_refused_connection_ends_the_calls_that_wait)
{
	uint16_t port = rpc_listener_port(listener);

	rpc_listener_close(listener);
	listener = NULL;
	run_ms(30);
	client_make(NULL);
	rpc_client_send(cl, req(P_NULL), 60000);
	rpc_client_send(cl, req(P_NULL), 60000);
	loop_run(S);
	ck_assert_int_eq(last_err, -ECONNREFUSED);
	ck_assert_int_eq(downs, 1);
	/* Started, it goes on trying until the server is back. */
	rpc_client_start(cl);
	run_ms(150);
	ck_assert_int_eq(ups, 0);
	ck_assert_int_eq(
		rpc_listen(&listener, S, (struct sockaddr *)&addr, addrlen, &service, &S, 1), 0);
	ck_assert_uint_eq(rpc_listener_port(listener), port);
	/* Before that, the end of a try that began too early would be a call's. */
	for (int i = 0; i < 3000 && !ups; i++)
		run_ms(20);
	rpc_client_send(cl, req(P_NULL), 60000);
	loop_run(S);
	ck_assert_int_eq(last_err, 0);
	ck_assert_int_eq(ups, 1);
}
END_TEST

START_TEST(arguments_over_the_limit_end_with_emsgsize)
{
	struct rpc_req *q = malloc(sizeof *q);

	client_make(NULL);
	left = 1;
	rpc_req_init(q, PROG, 3, P_ECHO, &cred, 8, done);
	xdr_put_u64(&q->q_args, 0);
	xdr_put_u32(&q->q_args, 0);
	rpc_client_send(cl, q, 60000);
	ck_assert_int_eq(left, 1); /* not from inside */
	loop_run(S);
	ck_assert_int_eq(last_err, -EMSGSIZE);
}
END_TEST

START_TEST(destroying_a_client_ends_its_calls_later)
{
	client_make(NULL);
	rpc_client_send(cl, req(P_BLACKHOLE), 60000);
	run_ms(30);
	rpc_client_send(cl, req(P_BLACKHOLE), 60000);
	rpc_client_destroy(cl);
	cl = NULL;
	ck_assert_int_eq(left, 2);
	loop_run(S);
	ck_assert_int_eq(last_err, -ECONNRESET);
	ck_assert_int_eq(left, 0);
	/* And one that has not connected yet. */
	client_make(NULL);
	rpc_client_send(cl, req(P_NULL), 60000);
	rpc_client_destroy(cl);
	cl = NULL;
	loop_run(S);
	ck_assert_int_eq(last_err, -ECONNRESET);
}
END_TEST

static void back_dispatch(struct rpc_call *call, void *arg)
{
	(void)arg;
	atomic_fetch_add(&callbacks, 1);
	xdr_put_u32(&call->c_reply, 41);
	rpc_reply(call);
}

START_TEST(the_server_calls_back_on_the_same_connection)
{
	static const struct rpc_program back = {PROG + 1, 1, 1, 2, back_dispatch, NULL};
	static const struct rpc_service svc = {
		.rs_progs = &back, .rs_nprogs = 1, .rs_max_record = 65536, .rs_max_reply = 65536};

	client_make(&svc);
	rpc_client_send(cl, req(P_CALLBACK), 60000);
	loop_run(S);
	ck_assert_int_eq(last_err, 0);
	ck_assert_uint_eq(got_words[0], 42);
	ck_assert_int_eq(atomic_load(&callbacks), 1);
}
END_TEST

START_TEST(a_client_without_service_rejects_callbacks)
{
	client_make(NULL);
	rpc_client_send(cl, req(P_CALLBACK), 60000);
	loop_run(S);
	ck_assert_int_eq(last_err, 0);
	ck_assert_uint_eq(got_words[0], 0);
}
END_TEST

static int big_ok;

static void big_done(struct rpc_req *q, int e, struct xdr_in *res)
{
	uint32_t n;
	const uint8_t *p = xdr_get_opaque(res, 1 << 20, &n);

	ck_assert_int_eq(e, 0);
	big_ok += p && n == 1 << 20 && !memcmp(p, pattern, n);
	rpc_buf_put(rpc_req_keep(q));
	done(q, e, res);
}

START_TEST(large_calls_and_replies_pass_unchanged)
{
	client_make(NULL);
	for (int i = 0; i < 50; i++) {
		struct rpc_req *q = req(P_ECHO);

		q->q_args.x_limit += 4;
		q->q_done = big_done;
		xdr_put_u32(&q->q_args, 1 << 20);
		xdr_put_ref(&q->q_args, pattern, 1 << 20, release, NULL);
		rpc_client_send(cl, q, 20000);
	}
	loop_run(S);
	ck_assert_int_eq(big_ok, 50);
	ck_assert_int_eq(atomic_load(&released), 100);
}
END_TEST

START_TEST(an_address_that_is_taken_is_an_error_and_one_that_is_not_here_is_none)
{
	struct rpc_listener *ls;
	struct sockaddr_storage ss;
	socklen_t len;

	ck_assert_int_eq(rpc_listen(&ls, S, (struct sockaddr *)&addr, addrlen, &service, &S, 1),
			 -EADDRINUSE);
	ck_assert_int_eq(rpc_addr_parse("192.0.2.77:0", 0, &ss, &len), 0);
	ck_assert_int_eq(rpc_listen(&ls, S, (struct sockaddr *)&ss, len, &service, &S, 1), 0);
	rpc_listener_close(ls);
	ck_assert_int_eq(rpc_addr_parse("[2001:db8::7]:0", 0, &ss, &len), 0);
	ck_assert_int_eq(rpc_listen(&ls, S, (struct sockaddr *)&ss, len, &service, &S, 1), 0);
	rpc_listener_close(ls);
}
END_TEST

/* ---- TLS only ---- */

START_TEST(a_server_that_does_not_know_the_key_gets_no_call)
{
	static const uint8_t other[RPC_TLS_PSK_LEN] = "a key of another cluster";

	client_make(NULL);
	rpc_client_use_tls(cl, PROG, 3, other);
	rpc_client_send(cl, req(P_NULL), 60000);
	loop_run(S);
	ck_assert_int_lt(last_err, 0);
	ck_assert_int_eq(ups, 0);
	ck_assert_int_ge(downs, 1);
	ck_assert_int_eq(atomic_load(&dispatched), 0);
	rpc_client_use_tls(cl, PROG, 3, peer_key);
	rpc_client_send(cl, req(P_NULL), 60000);
	loop_run(S);
	ck_assert_int_eq(last_err, 0);
}
END_TEST

START_TEST(a_server_without_tls_gets_no_call)
{
	rpc_listener_close(listener);
	service.rs_tls = NULL;
	listen_on(S, "127.0.0.1:0");
	client_make(NULL);
	rpc_client_send(cl, req(P_NULL), 60000);
	loop_run(S);
	ck_assert_int_eq(last_err, -ECONNREFUSED);
	ck_assert_int_eq(ups, 0);
	ck_assert_int_eq(atomic_load(&dispatched), 0);
}
END_TEST

START_TEST(a_server_that_does_not_answer_the_probe_is_given_up)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof in;

	ck_assert_int_eq(bind(fd, (struct sockaddr *)&in, sizeof in) | listen(fd, 1) |
				 getsockname(fd, (struct sockaddr *)&in, &len),
			 0);
	memcpy(&addr, &in, sizeof in);
	client_make(NULL);
	rpc_client_send(cl, req(P_NULL), 20000);
	loop_run(S);
	ck_assert_int_eq(last_err, -ETIMEDOUT);
	ck_assert_int_eq(downs, 1);
	close(fd);
}
END_TEST

START_TEST(destroying_a_client_in_its_handshake_ends_its_calls)
{
	for (uint64_t us = 0; us < 40; us++) {
		client_make(NULL);
		rpc_client_send(cl, req(P_NULL), 60000);
		run_ms(us / 8);
		if (left) {
			rpc_client_destroy(cl);
			cl = NULL;
			loop_run(S);
		} else {
			rpc_client_destroy(cl);
			cl = NULL;
		}
	}
	client_make(NULL);
	rpc_client_send(cl, req(P_NULL), 60000);
	loop_run(S);
	ck_assert_int_eq(last_err, 0);
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
	Suite *s = suite_create("rpc_client");
	TCase *tc;

	for (int i = 0; i < 2; i++) {
		tc = i ? cases(s, "tls", tls_setup, one_teardown)
		       : cases(s, "client", one_setup, one_teardown);
		tcase_add_test(tc, a_client_connects_on_its_first_call);
		tcase_add_test(tc, a_call_without_answer_times_out_and_its_late_reply_is_counted);
		tcase_add_test(tc, rejected_calls_end_with_eproto);
		tcase_add_test(
			tc,
			calls_lost_with_the_connection_end_with_econnreset_and_it_is_made_again);
		tcase_add_test(tc, pauses_grow_unless_the_connection_was_of_use);
		tcase_add_test(tc, a_refused_connection_ends_the_calls_that_wait);
		tcase_add_test(tc, arguments_over_the_limit_end_with_emsgsize);
		tcase_add_test(tc, destroying_a_client_ends_its_calls_later);
		tcase_add_test(tc, the_server_calls_back_on_the_same_connection);
		tcase_add_test(tc, a_client_without_service_rejects_callbacks);
		tcase_add_test(tc, large_calls_and_replies_pass_unchanged);
		tcase_add_test(
			tc, an_address_that_is_taken_is_an_error_and_one_that_is_not_here_is_none);
	}
	tc = cases(s, "tls only", tls_setup, one_teardown);
	tcase_add_test(tc, a_server_that_does_not_know_the_key_gets_no_call);
	tcase_add_test(tc, a_server_without_tls_gets_no_call);
	tcase_add_test(tc, a_server_that_does_not_answer_the_probe_is_given_up);
	tcase_add_test(tc, destroying_a_client_in_its_handshake_ends_its_calls);
	return unit_run(s);
}
