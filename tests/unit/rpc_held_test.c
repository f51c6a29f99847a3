/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_held_test.c - what peers that do not read their replies hold of the server's memory: with
 * pages that the kernel sends without a copy, with the connection closed on them, with replies that
 * take more than they say. And what a listener keeps that does not serve yet.
 */
#include "base/metrics.h"
#include "proto/rpc_int.h"
#include "tests/unit/unit.h"
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define PROG	0x20000124u
#define MIB	(1u << 20)
#define ASKED	24 /* as many replies as fit into one send */
#define ALL_MIB (int)(RPC_MAX_ALL_HELD / MIB)

static struct loop *S;
static pthread_t server_thread;
static struct rpc_listener *listener;
static struct sockaddr_in addr;
static _Atomic int opened, closed, dispatched, released;
static uint8_t pattern[MIB];
static struct rpc_call *asked, **asked_end = &asked;
static struct loop_msg answer_msg, stop_msg;

static void release(void *arg)
{
	(void)arg;
	atomic_fetch_add(&released, 1);
}

/* Each takes 1 MiB of memory, one buffer of which this counts. */
static int held(void)
{
	return atomic_load(&dispatched) - atomic_load(&released);
}

/* All that came in a turn are answered together, as by a disk. */
static void answer(struct loop_msg *m)
{
	(void)m;
	while (asked) {
		struct rpc_call *call = asked;
		uint32_t n = xdr_get_u32(&call->c_args);

		asked = call->c_priv;
		xdr_put_u32(&call->c_reply, n);
		xdr_put_ref(&call->c_reply, pattern, n, release, NULL);
		rpc_reply(call);
	}
	asked_end = &asked;
}

static void dispatch(struct rpc_call *call, void *arg)
{
	(void)arg;
	atomic_fetch_add(&dispatched, 1);
	rpc_call_expect(call, MIB);
	call->c_priv = NULL;
	if (!asked)
		loop_post(S, &answer_msg);
	*asked_end = call;
	asked_end = (struct rpc_call **)&call->c_priv;
}

static void on_opened(struct rpc_conn *c, void *arg)
{
	(void)c;
	(void)arg;
	atomic_fetch_add(&opened, 1);
}

static void on_closed(struct rpc_conn *c, void *arg)
{
	(void)c;
	(void)arg;
	atomic_fetch_add(&closed, 1);
}

static const struct rpc_program progs[] = {{PROG, 1, 1, 1, dispatch, NULL}};
static const struct rpc_service service = {
	.rs_progs = progs,
	.rs_nprogs = 1,
	.rs_max_record = 4096,
	.rs_max_reply = MIB + 4096,
	.rs_opened = on_opened,
	.rs_closed = on_closed,
	.rs_zerocopy = RPC_ZC_ALWAYS,
};

static void stop(struct loop_msg *m)
{
	(void)m;
	rpc_listener_close(listener);
}

static void *server_main(void *arg)
{
	loop_run(arg);
	return NULL;
}

static void listens(void)
{
	addr = (struct sockaddr_in){.sin_family = AF_INET,
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	stop_msg.m_run = stop;
	ck_assert_int_eq(loop_create(&S, 256), 0);
	ck_assert_int_eq(
		rpc_listen(&listener, S, (struct sockaddr *)&addr, sizeof addr, &service, &S, 1),
		0);
	addr.sin_port = htons(rpc_listener_port(listener));
}

static void serves(void)
{
	pthread_create(&server_thread, NULL, server_main, S);
}

static void setup(void)
{
	for (size_t i = 0; i < sizeof pattern; i++)
		pattern[i] = (uint8_t)(i * 7 + (i >> 8));
	answer_msg.m_run = answer;
	listens();
	serves();
}

static bool becomes(int (*what)(void), int value)
{
	for (int i = 0; i < 60000 && what() != value; i++)
		usleep(1000);
	return what() == value;
}

static int still_open(void)
{
	return atomic_load(&opened) - atomic_load(&closed);
}

static void teardown(void)
{
	ck_assert(becomes(still_open, 0));
	loop_post(S, &stop_msg);
	usleep(20000);
	loop_stop(S);
	pthread_join(server_thread, NULL);
	loop_destroy(S);
}

static int connections(void)
{
	char *text = metrics_render(), *at = strstr(text, "\nweft_rpc_connections ");
	int n = at ? atoi(at + strlen("\nweft_rpc_connections ")) : -1;

	free(text);
	return n;
}

/* Pages handed to the kernel count as locked memory; where little of that is allowed, it copies. */
static bool may_pin(void)
{
	size_t n = (size_t)512 << 20;
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		       -1, 0);
	bool may = p != MAP_FAILED && !mlock2(p, n, MLOCK_ONFAULT);

	if (p != MAP_FAILED)
		munmap(p, n);
	if (!may)
		printf("# not so much memory may be locked\n");
	return may;
}

/* ---- peers ---- */

static int dial(int mss)
{
	struct timeval tv = {10, 0};
	int fd = socket(AF_INET, SOCK_STREAM, 0), small = 65536;

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof tv);
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
	if (mss)
		ck_assert_int_eq(setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &mss, sizeof mss), 0);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&addr, sizeof addr), 0);
	return fd;
}

#define CALL_WORDS 12

/* ncalls replies of n bytes each. False: not all of it could be sent. */
static bool ask(int fd, unsigned ncalls, uint32_t n)
{
	uint32_t(*all)[CALL_WORDS] = calloc(ncalls, sizeof *all);
	size_t at = 0, len = ncalls * sizeof *all;

	for (uint32_t i = 0; i < ncalls; i++) {
		const uint32_t call[CALL_WORDS] = {
			RPC_LAST | (sizeof call - 4), i, 0, 2, PROG, 1, 0, 0, 0, 0, 0, n};

		for (unsigned w = 0; w < CALL_WORDS; w++)
			all[i][w] = htobe32(call[w]);
	}
	for (int tries = 0; at < len && tries < 100; tries++) {
		ssize_t got = send(fd, (uint8_t *)all + at, len - at, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (got > 0) {
			at += (size_t)got;
			tries = 0;
		} else {
			usleep(2000);
		}
	}
	free(all);
	return at == len;
}

static void take(int fd, size_t n)
{
	static uint8_t buf[MIB];

	while (n) {
		ssize_t got = recv(fd, buf, n < sizeof buf ? n : sizeof buf, 0);

		ck_assert_int_gt(got, 0);
		n -= (size_t)got;
	}
}

#define REPLY (RPC_REPLY_HEAD + 4 + MIB)

/* Reads all but so much of what it has asked for, and then nothing more: the last send stays in the
 * socket. */
#define LEFT ((size_t)2 << 20) /* what a socket takes at once */
static int deaf(unsigned ncalls)
{
	int fd = dial(0);

	ck_assert(ask(fd, ncalls, MIB));
	take(fd, (size_t)ncalls * REPLY - LEFT);
	return fd;
}

START_TEST(pages_that_the_kernel_still_has_are_held)
{
	enum { PEERS = 20 };
	int fd[PEERS], one;

	for (int i = 0; i < PEERS; i++)
		fd[i] = deaf(ASKED);
	usleep(50000);
	printf("# %d MiB are held\n", held());
	if (may_pin())
		ck_assert_int_gt(held(), ALL_MIB / 2);
	ck_assert_int_le(held(), ALL_MIB + 2 * PEERS);
	/* A peer that reads gets its replies, and so do these once they read. */
	one = dial(0);
	ck_assert(ask(one, ASKED, MIB));
	take(one, (size_t)ASKED * REPLY);
	close(one);
	for (int i = 0; i < PEERS; i++)
		take(fd[i], LEFT);
	ck_assert(becomes(held, 0));
	ck_assert_int_eq(atomic_load(&dispatched), (PEERS + 1) * ASKED);
	for (int i = 0; i < PEERS; i++)
		close(fd[i]);
}
END_TEST

START_TEST(a_connection_that_we_close_lets_go_at_once)
{
	static const uint32_t garbage[2] = {~0u, ~0u};
	int fd[12];

	for (int i = 0; i < 12; i++) {
		fd[i] = deaf(12); /* not so much that it would not be read any more */
		if (i % 3 != 2)
			continue;
		usleep(20000);
		if (may_pin())
			ck_assert_int_gt(held(), 3 * 6);
		ck_assert_int_eq(connections(), 3);
		for (int j = i - 2; j <= i; j++)
			ck_assert_int_eq(send(fd[j], garbage, sizeof garbage, MSG_NOSIGNAL),
					 sizeof garbage);
		/* The peers' sockets are open, and full. */
		ck_assert_msg(becomes(held, 0), "%d MiB are held", held());
		ck_assert(becomes(connections, 0));
	}
	for (int i = 0; i < 12; i++)
		close(fd[i]);
}
END_TEST

/* The buffer is there for what was asked, and the reply is short: at the end of a file. */
START_TEST(a_short_reply_counts_with_the_memory_it_has)
{
	int fd = dial(536);
	unsigned i = 0;

	while (i < 400 && ask(fd, 1000, 4))
		i++;
	usleep(50000);
	printf("# %d answered, %d MiB are held\n", atomic_load(&dispatched), held());
	ck_assert_uint_lt(i, 400);
	ck_assert_int_le(held(), (int)(RPC_MAX_HELD / MIB));
	close(fd);
	ck_assert(becomes(held, 0));
}
END_TEST

/* ---- a listener whose loop does not run yet ---- */

static int kept(void)
{
	return (int)rpc_listener_hold(listener);
}

static bool has_gone(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLRDHUP};

	return poll(&p, 1, 0) > 0;
}

/* It keeps so many, and none goes because another one comes. */
START_TEST(a_listener_that_waits_keeps_who_stays)
{
	enum { KEPT = 1024, GO = 20, ALL = KEPT + GO };
	struct rlimit r = {0};
	int fd[ALL];

	getrlimit(RLIMIT_NOFILE, &r);
	r.rlim_cur = r.rlim_max;
	if (r.rlim_max < 3 * KEPT || setrlimit(RLIMIT_NOFILE, &r)) {
		printf("# not so many files may be open\n");
		return;
	}
	listens();
	for (int i = 0; i < ALL; i++)
		fd[i] = dial(0);
	for (int times = 0; times < 2; times++)
		ck_assert_int_eq(kept(), KEPT);
	for (int i = 0; i < ALL; i++)
		ck_assert_msg(!has_gone(fd[i]), "%d", i);
	/* Where some go, others come out of the backlog. */
	for (int i = 0; i < GO; i++)
		close(fd[i]);
	ck_assert_int_eq(kept(), KEPT);
	close(fd[GO]);
	ck_assert(becomes(kept, KEPT - 1));
	rpc_listener_unhold(listener);
	serves();
	ck_assert(becomes(still_open, KEPT - 1));
	for (int i = GO + 1; i < ALL; i++)
		close(fd[i]);
	teardown();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("rpc_held");
	TCase *tc = tcase_create("held"), *waits = tcase_create("waits");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	suite_add_tcase(s, tc);
	tcase_add_test(tc, pages_that_the_kernel_still_has_are_held);
	tcase_add_test(tc, a_connection_that_we_close_lets_go_at_once);
	tcase_add_test(tc, a_short_reply_counts_with_the_memory_it_has);
	tcase_set_timeout(waits, 180);
	suite_add_tcase(s, waits);
	tcase_add_test(waits, a_listener_that_waits_keeps_who_stays);
	return unit_run(s);
}
