/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_turn_test.c - what the connections of one address share: turns, calls in hand, a rate. */
#include "tests/unit/rpc_peer.h"
#include "tests/unit/unit.h"
#include <semaphore.h>

static sem_t asleep;

static void sleep_msg(struct loop_msg *m)
{
	(void)m;
	sem_post(&asleep);
	usleep(100000);
}

/* The loop is kept busy until both have sent all: then it finds them ready at once. */
START_TEST(a_peer_with_a_thousand_calls_does_not_make_another_wait_for_them)
{
	static struct loop_msg m = {.m_run = sleep_msg};
	struct xdr_out all, x;
	int greedy = dial(), modest = dial(), first;

	xdr_out_init(&all, 1 << 24);
	for (uint32_t i = 0; i < 1000; i++) {
		put_call(&x, i, P_NULL);
		xdr_put_u32(&all, RPC_LAST | (uint32_t)x.x_len);
		xdr_put_fixed(&all, x.x_head, x.x_len);
		xdr_out_free(&x);
	}
	sem_init(&asleep, 0, 0);
	loop_post(S, &m);
	sem_wait(&asleep);
	send_all(greedy, all.x_head, all.x_len);
	put_call(&x, 2000, P_NULL);
	send_record(modest, &x);
	results(modest, 2000);
	for (uint32_t i = 0; i < 1000; i++)
		results(greedy, i);
	first = nth[0];
	ck_assert_int_eq(nth[999] - first, nth[2000] < first ? 999 : 1000);
	/* What its address had left of this turn, and its share of the next. */
	ck_assert_int_le(nth[2000] - first, (int)(RPC_HOST_RECORDS + RPC_FEW_RECORDS));
	xdr_out_free(&all);
	close(greedy);
	close(modest);
}
END_TEST

#define FLOODS 60

/* As above, but the greedy one has many connections, and the modest one is at another address. */
START_TEST(an_address_with_many_connections_has_one_turn)
{
	static struct loop_msg m = {.m_run = sleep_msg};
	int greedy[FLOODS], modest = dial_from(0x7f000003);
	struct xdr_out all, x;

	xdr_out_init(&all, 1 << 24);
	for (uint32_t i = 0; i < 100; i++) {
		put_call(&x, i, P_NULL);
		xdr_put_u32(&all, RPC_LAST | (uint32_t)x.x_len);
		xdr_put_fixed(&all, x.x_head, x.x_len);
		xdr_out_free(&x);
	}
	for (int k = 0; k < FLOODS; k++)
		greedy[k] = dial_from(0x7f000002);
	while (atomic_load(&opened) < FLOODS + 1)
		usleep(1000);
	atomic_store(&dispatched, 0);
	sem_init(&asleep, 0, 0);
	loop_post(S, &m);
	sem_wait(&asleep);
	for (int k = 0; k < FLOODS; k++)
		send_all(greedy[k], all.x_head, all.x_len);
	put_call(&x, 2000, P_NULL);
	send_record(modest, &x);
	results(modest, 2000);
	for (int k = 0; k < FLOODS; k++) {
		for (uint32_t i = 0; i < 100; i++)
			results(greedy[k], i);
		close(greedy[k]);
	}
	ck_assert_int_eq(atomic_load(&dispatched), FLOODS * 100 + 1);
	ck_assert_int_le(nth[2000], 2 * (int)RPC_HOST_RECORDS);
	xdr_out_free(&all);
	close(modest);
}
END_TEST

/* So with all connections of one address together; another address is read. */
START_TEST(an_address_with_many_unanswered_calls_is_not_read_until_they_are)
{
	int fd[8], other = dial_from(0x7f000003), seen = 0, now;
	struct xdr_out x;

	for (int k = 0; k < 8; k++) {
		fd[k] = dial_from(0x7f000002);
		for (uint32_t i = 0; i < 200; i++) {
			put_call(&x, i, P_PARK);
			xdr_put_u32(&x, i);
			send_record(fd[k], &x);
		}
	}
	wait_for(&nparked, HOST_CALLS);
	usleep(50000);
	ck_assert_int_eq(atomic_load(&nparked), HOST_CALLS);
	while (seen < 8 * 200) {
		now = atomic_load(&nparked);
		if (now < HOST_CALLS && seen + now < 8 * 200) {
			usleep(1000);
			continue;
		}
		put_call(&x, 5000, P_WAKE);
		send_record(other, &x);
		results(other, 5000);
		seen += now;
	}
	for (int k = 0; k < 8; k++) {
		for (int i = 0; i < 200; i++)
			recv_reply(fd[k]);
		close(fd[k]);
	}
	close(other);
}
END_TEST

/* ---- addresses with little ---- */

#define FEW 64 /* calls in hand of an address */

static void few_setup(void)
{
	service.rs_host_calls = FEW;
	setup();
}

static void few_teardown(void)
{
	teardown();
	service.rs_host_calls = HOST_CALLS;
}

static void send_calls(int fd, uint32_t from, uint32_t n, uint32_t proc, uint32_t bytes)
{
	struct xdr_out x;

	for (uint32_t i = from; i < from + n; i++) {
		put_call(&x, i, proc);
		xdr_put_u32(&x, i);
		xdr_put_opaque(&x, pattern, bytes);
		send_record(fd, &x);
	}
}

/* As many as this are parked, and it stays so. */
static void parked_stay(int n)
{
	wait_for(&nparked, n);
	usleep(50000);
	ck_assert_int_eq(atomic_load(&nparked), n);
}

/* Has what is parked answered, until all of them are. */
static void wake_all(int total)
{
	int other = dial_from(0x7f000003);
	struct xdr_out x;

	for (int i = 0; i < 2000 && atomic_load(&dispatched) < total; i++) {
		put_call(&x, 5000, P_WAKE);
		send_record(other, &x);
		total++;
		results(other, 5000);
	}
	put_call(&x, 5000, P_WAKE);
	send_record(other, &x);
	results(other, 5000);
	close(other);
}

static void take(int fd, int n)
{
	for (int i = 0; i < n; i++)
		recv_reply(fd);
}

/* They wait for what comes on these very connections. */
START_TEST(calls_that_wait_for_a_client_do_not_keep_its_address_from_being_read)
{
	int fd[2] = {dial_from(0x7f000002), dial_from(0x7f000002)};
	struct xdr_out x;

	for (int round = 0; round < 2; round++) {
		atomic_store(&dispatched, 0);
		send_calls(fd[0], 0, FEW, P_WAIT, 0);
		send_calls(fd[1], 0, FEW, P_WAIT, 0);
		parked_stay(2 * FEW);
		put_call(&x, 1000, P_NULL);
		send_record(fd[0], &x);
		results(fd[0], 1000);
		/* What waits for nobody is as limited as ever. */
		send_calls(fd[1], 100, 100, P_PARK, 0);
		parked_stay(3 * FEW);
		wake_all(2 * FEW + 1 + 100);
		take(fd[0], FEW);
		take(fd[1], FEW + 100);
	}
	close(fd[0]);
	close(fd[1]);
}
END_TEST

/* Nor is their number without an end; a few of each connection are taken all the same. */
START_TEST(calls_that_wait_for_a_client_are_bounded_by_address)
{
	int fd[5], late, n = 4 * FEW;
	struct xdr_out x;

	for (int k = 0; k < 5; k++)
		fd[k] = dial_from(0x7f000002);
	/* Each has more than a few: the rest of none is read. */
	for (int k = 0; k < 4; k++)
		send_calls(fd[k], 0, FEW, P_WAIT, 0);
	parked_stay(n);
	for (int k = 0; k < 4; k++)
		send_calls(fd[k], 100, 40, P_WAIT, 0);
	parked_stay(n);
	send_calls(fd[4], 0, 100, P_WAIT, 0);
	parked_stay(n + 64);
	late = dial_from(0x7f000002);
	put_call(&x, 1000, P_NULL);
	send_record(late, &x);
	results(late, 1000);
	wake_all(n + 4 * 40 + 100 + 1);
	for (int k = 0; k < 4; k++)
		take(fd[k], FEW + 40);
	take(fd[4], 100);
	for (int k = 0; k < 5; k++)
		close(fd[k]);
	close(late);
}
END_TEST

/* One of those that they wait for has come: each is read, though nearly as many wait as before. */
START_TEST(when_fewer_calls_wait_for_clients_each_connection_is_read_at_once)
{
	int fd[4], other = dial_from(0x7f000003), n = 4 * FEW;
	struct xdr_out x;

	for (int k = 0; k < 4; k++)
		fd[k] = dial_from(0x7f000002);
	for (int k = 0; k < 4; k++) {
		send_calls(fd[k], 0, FEW, P_WAIT, 0);
		wait_for(&nparked, (k + 1) * FEW);
	}
	for (int k = 0; k < 3; k++)
		send_calls(fd[k], 1000, 1, P_NULL, 0);
	parked_stay(n);
	ck_assert_int_eq(atomic_load(&dispatched), n);
	put_call(&x, 5000, P_WAKE);
	xdr_put_u32(&x, (uint32_t)n - 1);
	send_record(other, &x);
	results(other, 5000);
	take(fd[3], 1);
	for (int k = 0; k < 3; k++)
		results(fd[k], 1000);
	parked_stay(n - 1);
	wake_all(0);
	for (int k = 0; k < 4; k++) {
		take(fd[k], k < 3 ? FEW : FEW - 1);
		close(fd[k]);
	}
	close(other);
}
END_TEST

/* FEW times 128 KiB, of which each of these is four: and one more on each connection. */
START_TEST(the_bytes_of_calls_in_hand_are_bounded_by_address)
{
	int fd[20], now;

	for (int k = 0; k < 20; k++) {
		fd[k] = dial_from(0x7f000002);
		send_calls(fd[k], 0, 1, P_PARK, 512 << 10);
	}
	wait_for(&nparked, 20);
	for (int k = 0; k < 4; k++)
		send_calls(fd[k], 10, 1, P_PARK, 100);
	parked_stay(20);
	now = dial_from(0x7f000002);
	send_calls(now, 0, 2, P_PARK, 100);
	parked_stay(21);
	wake_all(20 + 4 + 2);
	for (int k = 0; k < 20; k++) {
		take(fd[k], k < 4 ? 2 : 1);
		close(fd[k]);
	}
	take(now, 2);
	close(now);
}
END_TEST

/* Behind a few calls more its answer may stand; who never answers has no more than these. */
START_TEST(where_a_call_of_ours_is_out_a_few_calls_of_a_full_address_are_read)
{
	int full = dial_from(0x7f000002), asked = dial_from(0x7f000002);
	struct xdr_out x;
	struct xdr_in in;
	uint32_t xid;

	put_call(&x, 1, P_CALLBACK);
	send_record(asked, &x);
	in = recv_reply(asked);
	xid = xdr_get_u32(&in);
	send_calls(full, 0, FEW, P_PARK, 0);
	wait_for(&nparked, FEW - 1);
	send_calls(asked, 100, 63 + 20, P_PARK, 0);
	parked_stay(FEW - 1 + 63);
	xdr_out_init(&x, 100);
	xdr_put_u32(&x, xid);
	xdr_put_u32(&x, 1);
	for (int i = 0; i < 4; i++)
		xdr_put_u32(&x, 0);
	xdr_put_u32(&x, 41);
	send_record(asked, &x);
	wake_all(1 + FEW + 63 + 20);
	take(asked, 1 + 63 + 20);
	take(full, FEW);
	close(full);
	close(asked);
}
END_TEST

/* ---- a rate ---- */

#define RATE 20

static void rate_setup(void)
{
	service.rs_host_rate = RATE;
	setup();
}

static void rate_teardown(void)
{
	teardown();
	service.rs_host_rate = 0;
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

START_TEST(a_rate_is_of_calls_and_not_of_replies)
{
	int fd = dial_from(0x7f000002);
	double began = seconds();
	struct xdr_out x;

	/* To no call of ours: that is counted, and no more. */
	for (uint32_t i = 0; i < 20 * RATE; i++) {
		xdr_out_init(&x, 100);
		xdr_put_u32(&x, i);
		xdr_put_u32(&x, 1);
		for (int k = 0; k < 4; k++)
			xdr_put_u32(&x, 0);
		send_record(fd, &x);
	}
	put_call(&x, 1000, P_NULL);
	send_record(fd, &x);
	results(fd, 1000);
	/* At the rate they would take 20 s. */
	ck_assert_msg(seconds() - began < 10, "%.1f s", seconds() - began);
	began = seconds();
	for (uint32_t i = 0; i < RATE; i++) {
		put_call(&x, i, P_NULL);
		send_record(fd, &x);
	}
	for (uint32_t i = 0; i < RATE; i++)
		results(fd, i);
	ck_assert_msg(seconds() - began > 0.7, "%.1f s", seconds() - began);
	close(fd);
}
END_TEST

/* Nor does it wait behind its address's others, or for what they have in hand. */
START_TEST(a_connection_apart_shares_nothing_with_its_address)
{
	int apart = dial_from(0x7f000002), fd[20];
	struct xdr_out x;
	double began;

	put_call(&x, 1, P_PARK);
	xdr_put_u32(&x, 1);
	send_record(apart, &x);
	put_call(&x, 2, P_APART);
	send_record(apart, &x);
	results(apart, 2);
	for (int k = 0; k < 20; k++) {
		fd[k] = dial_from(0x7f000002);
		send_calls(fd[k], 0, 5, P_NULL, 0);
	}
	usleep(100000);
	began = seconds();
	send_calls(apart, 10, 30 * RATE, P_NULL, 0);
	take(apart, 30 * RATE);
	/* At the rate they would take 30 s. */
	ck_assert_msg(seconds() - began < 10, "%.1f s", seconds() - began);
	put_call(&x, 1000, P_WAKE);
	send_record(apart, &x);
	results(apart, 1);
	results(apart, 1000);
	close(apart);
	for (int k = 0; k < 20; k++) {
		take(fd[k], 5);
		close(fd[k]);
	}
}
END_TEST

static struct rpc_conn *watched;
static _Atomic int seen;

static void close_msg(struct loop_msg *m)
{
	(void)m;
	watched = last_conn;
	watched->rcn_refs++;
	atomic_store(&seen, watched->rcn_resuming ? 1 : 2);
	rpc_conn_close(watched);
}

static void refs_msg(struct loop_msg *m)
{
	(void)m;
	atomic_store(&seen, 10 + (int)watched->rcn_refs);
	rpc_conn_put(watched);
}

/* However long its turn is in coming. */
START_TEST(a_connection_that_has_ended_waits_for_no_turn)
{
	static struct loop_msg close_it = {.m_run = close_msg}, look = {.m_run = refs_msg};
	int fd = dial_from(0x7f000002);

	send_calls(fd, 0, 2 * RATE, P_NULL, 0);
	take(fd, 4);
	loop_post(S, &close_it);
	wait_for(&closed, 1);
	ck_assert_int_eq(atomic_load(&seen), 1);
	loop_post(S, &look);
	wait_for(&seen, 11);
	close(fd);
}
END_TEST

/* ---- addresses ---- */

static struct rpc_conn *at(struct rpc_loop *rl, const char *text)
{
	struct rpc_conn *c = calloc(1, sizeof *c);
	socklen_t len;

	ck_assert_int_eq(rpc_addr_parse(text, 0, &c->rcn_peer, &len), 0);
	c->rcn_rl = rl;
	c->rcn_svc = service;
	ck_assert(rpc_host_join(c));
	return c;
}

START_TEST(of_ipv6_an_address_is_one_hosts)
{
	struct rpc_loop rl = {0};
	struct rpc_conn *c[] = {at(&rl, "[fd00::1]:700"), at(&rl, "[fd00::1]:800"),
				at(&rl, "[fd00::2]:700"), at(&rl, "10.0.0.1:700"),
				at(&rl, "10.0.0.2:700")};

	ck_assert_ptr_eq(c[0]->rcn_host, c[1]->rcn_host);
	for (int i = 1; i < 5; i++)
		for (int k = 1; k < i; k++)
			ck_assert_ptr_ne(c[i]->rcn_host, c[k]->rcn_host);
	for (int i = 0; i < 5; i++) {
		rpc_host_leave(c[i]);
		free(c[i]);
	}
	free(rl.rl_hosts.h_slot);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("rpc turns");
	TCase *tc;

	tc = cases(s, "server", setup, teardown);
	tcase_add_test(tc, a_peer_with_a_thousand_calls_does_not_make_another_wait_for_them);
	tcase_add_test(tc, an_address_with_many_connections_has_one_turn);
	tcase_add_test(tc, an_address_with_many_unanswered_calls_is_not_read_until_they_are);
	tc = cases(s, "few", few_setup, few_teardown);
	tcase_add_test(tc, calls_that_wait_for_a_client_do_not_keep_its_address_from_being_read);
	tcase_add_test(tc, calls_that_wait_for_a_client_are_bounded_by_address);
	tcase_add_test(tc, when_fewer_calls_wait_for_clients_each_connection_is_read_at_once);
	tcase_add_test(tc, the_bytes_of_calls_in_hand_are_bounded_by_address);
	tcase_add_test(tc, where_a_call_of_ours_is_out_a_few_calls_of_a_full_address_are_read);
	tc = cases(s, "rate", rate_setup, rate_teardown);
	tcase_add_test(tc, a_rate_is_of_calls_and_not_of_replies);
	tcase_add_test(tc, a_connection_apart_shares_nothing_with_its_address);
	tcase_add_test(tc, a_connection_that_has_ended_waits_for_no_turn);
	tcase_add_test(tc, of_ipv6_an_address_is_one_hosts);
	return unit_run(s);
}
