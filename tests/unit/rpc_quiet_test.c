/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_quiet_test.c - rs_quiet_ms: a peer that is slow keeps its connection, one that is dead loses
 * it. Client and server are on one loop, so a loaded machine stops both.
 */
#include "base/clock.h"
#include "tests/unit/rpc_testsrv.h"
#include "tests/unit/unit.h"
#include <unistd.h>

#define MANY_MS 60000u /* for what does not happen */
#define PIECE	(16u << 10)

struct call {
	struct rpc_req q;
	bool over;
	int err;
	uint64_t ms; /* when it ended */
};

static struct rpc_client *cl;
static struct rpc_conn *conn;
static int downs;
static struct call calls[4096];
static unsigned ncalls;
/* Runs each 20 ms, until it returns true or the time is over. */
static bool (*step)(void);
static uint64_t end_ms;
static bool stepped;
/* a peer that is a socket, and no more */
static int lfd = -1, pfd = -1;
static size_t taken;

static void cl_up(struct rpc_client *c, struct rpc_conn *up, void *arg)
{
	(void)c;
	(void)arg;
	conn = up;
}

static void cl_down(struct rpc_client *c, int err, void *arg)
{
	(void)c;
	(void)arg;
	ck_assert_int_eq(err, -ETIMEDOUT);
	downs++;
}

static const struct rpc_client_ops ops = {.cl_up = cl_up, .cl_down = cl_down};

static void client_make(uint32_t quiet_ms)
{
	struct rpc_service svc = {.rs_quiet_ms = quiet_ms};

	ck_assert_int_eq(
		rpc_client_create(&cl, S, (struct sockaddr *)&addr, addrlen, &svc, &ops, NULL), 0);
}

static void setup(void)
{
	pattern_make();
	ck_assert_int_eq(loop_create(&S, 256), 0);
}

static void server_setup(void)
{
	setup();
	listen_on(S, "127.0.0.1:0");
}

static void socket_setup(void)
{
	int small = 64 << 10;

	setup();
	ck_assert_int_eq(rpc_addr_parse("127.0.0.1:0", 0, &addr, &addrlen), 0);
	lfd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(setsockopt(lfd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small), 0);
	ck_assert_int_eq(bind(lfd, (struct sockaddr *)&addr, addrlen), 0);
	ck_assert_int_eq(getsockname(lfd, (struct sockaddr *)&addr, &addrlen), 0);
	ck_assert_int_eq(listen(lfd, 1), 0);
}

static void step_fire(struct loop_timer *t)
{
	stepped = step && step();
	if (stepped || clock_mono_ms() >= end_ms)
		loop_stop(S);
	else
		loop_timer_start(S, t, 20);
}

/* Returns whether fn returned true in time. */
static bool run_until(bool (*fn)(void), uint64_t ms)
{
	struct loop_timer t = {.t_fire = step_fire};

	step = fn;
	stepped = false;
	end_ms = clock_mono_ms() + ms;
	loop_timer_start(S, &t, 0);
	loop_run(S);
	loop_timer_stop(S, &t);
	return stepped;
}

static void teardown(void)
{
	rpc_client_destroy(cl);
	if (listener)
		rpc_listener_close(listener);
	if (pfd >= 0)
		close(pfd);
	if (lfd >= 0)
		close(lfd);
	run_until(NULL, 50);
	while (atomic_load(&nparked))
		rpc_reply(parked[atomic_fetch_sub(&nparked, 1) - 1]);
	run_until(NULL, 50);
	loop_destroy(S);
}

static void done(struct rpc_req *q, int err, struct xdr_in *res)
{
	struct call *c = caa_container_of(q, struct call, q);

	(void)res;
	c->over = true;
	c->err = err;
	c->ms = clock_mono_ms();
}

static struct call *call(uint32_t proc, uint32_t bytes, uint32_t timeout_ms)
{
	struct call *c = &calls[ncalls++];

	ck_assert_uint_lt(ncalls, 4096);
	rpc_req_init(&c->q, PROG, 3, proc, NULL, 2 << 20, done);
	if (bytes) {
		xdr_put_u32(&c->q.q_args, bytes);
		xdr_put_ref(&c->q.q_args, pattern, bytes, NULL, NULL);
	}
	rpc_client_send(cl, &c->q, timeout_ms);
	return c;
}

static bool first_over(void)
{
	return calls[0].over;
}

static bool second_over(void)
{
	return calls[1].over;
}

static bool first_over_and_more_calls(void)
{
	if (!calls[0].over)
		call(P_NULL, 0, 0);
	return calls[0].over;
}

START_TEST(a_peer_that_says_nothing_is_dead_after_its_time)
{
	uint64_t began;

	client_make(400);
	call(P_NULL, 0, 0);
	ck_assert(run_until(first_over, MANY_MS));
	ncalls = 0;
	calls[0].over = false;
	began = clock_mono_ms();
	call(P_BLACKHOLE, 0, 0);
	call(P_BLACKHOLE, 0, 60000);
	ck_assert(run_until(first_over, MANY_MS));
	ck_assert_int_eq(calls[0].err, -ECONNRESET);
	ck_assert(calls[1].over);
	ck_assert_int_eq(calls[1].err, -ECONNRESET);
	ck_assert_uint_ge(calls[0].ms - began + 20, 400);
	ck_assert_int_eq(downs, 1);
}
END_TEST

START_TEST(a_connection_without_calls_may_be_silent)
{
	client_make(100);
	call(P_NULL, 0, 0);
	ck_assert(run_until(first_over, MANY_MS));
	ck_assert(!run_until(NULL, 500));
	ck_assert_int_eq(downs, 0);
	call(P_NULL, 0, 0);
	ck_assert(run_until(second_over, MANY_MS));
	ck_assert_int_eq(calls[1].err, 0);
	ck_assert_int_eq(downs, 0);
}
END_TEST

START_TEST(replies_to_others_keep_a_connection)
{
	client_make(1000);
	call(P_PARK, 0, 0);
	ck_assert(!run_until(first_over_and_more_calls, 3000));
	ck_assert_int_eq(downs, 0);
	call(P_WAKE, 0, 0);
	ck_assert(run_until(first_over, MANY_MS));
	ck_assert_int_eq(downs, 0);
}
END_TEST

START_TEST(a_call_ends_alone_when_later_ones_were_answered)
{
	uint64_t began = clock_mono_ms();

	client_make(20000);
	call(P_BLACKHOLE, 0, 400);
	ck_assert(run_until(first_over_and_more_calls, MANY_MS));
	ck_assert_int_eq(calls[0].err, -ETIMEDOUT);
	ck_assert_ptr_nonnull(calls[0].q.q_conn);
	ck_assert_uint_ge(calls[0].ms - began + 20, 400);
	ck_assert_int_eq(downs, 0);
}
END_TEST

/* The time of a call is over, and the peer has answered nothing that came later. */
START_TEST(a_call_that_was_not_passed_over_may_wait)
{
	client_make(20000);
	call(P_PARK, 0, 200);
	ck_assert(!run_until(first_over, 1500));
	call(P_WAKE, 0, 0);
	ck_assert(run_until(first_over, MANY_MS));
	ck_assert_int_ne(calls[0].err, -ETIMEDOUT);
	ck_assert_int_eq(downs, 0);
}
END_TEST

/* It had waited for its connection, and little of its time was left when it was sent. */
START_TEST(half_of_the_limit_is_half_of_all_of_it)
{
	uint64_t began;

	client_make(20000);
	call(P_NULL, 0, 30000);
	ck_assert(run_until(first_over, MANY_MS));
	ck_assert_int_eq(calls[0].err, 0);
	ck_assert_uint_eq(calls[0].q.q_limit_ms, 30000);
	ncalls = 0;
	calls[0].over = false;
	began = clock_mono_ms();
	rpc_req_init(&calls[ncalls].q, PROG, 3, P_BLACKHOLE, NULL, 0, done);
	calls[ncalls].q.q_limit_ms = 1200;
	rpc_req_send(conn, &calls[ncalls++].q, 100);
	ck_assert(run_until(first_over_and_more_calls, MANY_MS));
	ck_assert_int_eq(calls[0].err, -ETIMEDOUT);
	ck_assert_uint_ge(calls[0].ms - began + 20, 600);
	ck_assert_int_eq(downs, 0);
}
END_TEST

static bool take(void)
{
	static uint8_t buf[PIECE];
	ssize_t n;

	if (pfd < 0)
		pfd = accept4(lfd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	n = pfd < 0 ? 0 : recv(pfd, buf, sizeof buf, MSG_DONTWAIT);
	taken += n > 0 ? (size_t)n : 0;
	return downs || taken >= 3 << 20;
}

/* 8 MiB, of which 3 MiB are taken in pieces, which takes several times the limit. */
START_TEST(a_peer_that_takes_calls_slowly_lives_until_it_takes_no_more)
{
	uint64_t began = clock_mono_ms();

	client_make(800);
	for (int i = 0; i < 8; i++)
		call(P_BULK, 1 << 20, 60000);
	ck_assert(run_until(take, MANY_MS));
	ck_assert_int_eq(downs, 0);
	ck_assert_uint_ge(clock_mono_ms() - began, 3 * 800);
	ck_assert(run_until(first_over, MANY_MS));
	ck_assert_int_eq(calls[0].err, -ECONNRESET);
}
END_TEST

/* Its kernel takes small calls as long as there is room. */
START_TEST(a_peer_that_hangs_is_dead_while_small_calls_go_out)
{
	client_make(400);
	call(P_NULL, 0, 60000);
	ck_assert(run_until(first_over_and_more_calls, MANY_MS));
	ck_assert_int_eq(calls[0].err, -ECONNRESET);
	ck_assert_int_eq(downs, 1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("rpc_quiet");
	TCase *tc = tcase_create("replies");

	tcase_add_checked_fixture(tc, server_setup, teardown);
	tcase_set_timeout(tc, 200);
	tcase_add_test(tc, a_peer_that_says_nothing_is_dead_after_its_time);
	tcase_add_test(tc, a_connection_without_calls_may_be_silent);
	tcase_add_test(tc, replies_to_others_keep_a_connection);
	tcase_add_test(tc, a_call_ends_alone_when_later_ones_were_answered);
	tcase_add_test(tc, a_call_that_was_not_passed_over_may_wait);
	tcase_add_test(tc, half_of_the_limit_is_half_of_all_of_it);
	suite_add_tcase(s, tc);
	tc = tcase_create("bytes");
	tcase_add_checked_fixture(tc, socket_setup, teardown);
	tcase_set_timeout(tc, 200);
	tcase_add_test(tc, a_peer_that_takes_calls_slowly_lives_until_it_takes_no_more);
	tcase_add_test(tc, a_peer_that_hangs_is_dead_while_small_calls_go_out);
	suite_add_tcase(s, tc);
	return unit_run(s);
}
