/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease_gate_test.c - while the store is not held nothing leaves a server on any connection; when
 * it is held again, everything goes out, once and in its order. Peers are plain sockets that count
 * the bytes they get.
 */
#include "common/http.h"
#include "tests/unit/rpc_peer.h"
#include "tests/unit/tls_cert.h"
#include "tests/unit/unit.h"
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#define PEERS 8

static struct store_lease lease;

/* ---- the lease ---- */

static void hold_ms(uint64_t ms)
{
	store_lease_extend(&lease, clock_boot_ns() + ms * 1000000u);
}

static void hold_long(void)
{
	hold_ms(600000);
}

/* Lets it run out. */
static void run_out(void)
{
	ck_assert(atomic_load(&lease.sl_end_ns) != STORE_LEASE_ALWAYS);
	while (store_lease_live(&lease))
		usleep(1000);
}

/* No extension makes a lease shorter: here it runs out at once. */
static void cut_short(void)
{
	atomic_store(&lease.sl_end_ns, 1);
}

static void start(bool gated)
{
	pattern_make();
	ck_assert_int_eq(loop_create(&S, 256), 0);
	store_lease_init(&lease, 0);
	if (gated)
		rpc_use_lease(S, &lease);
	listen_on(S, "127.0.0.1:0");
	pthread_create(&server_thread, NULL, server_main, S);
}

static void start_gated(void)
{
	start(true);
}

/* ---- turns of the server's loop ---- */

struct turn {
	struct loop_msg t_msg;
	_Atomic int t_done;
};

static void turn_run(struct loop_msg *m)
{
	atomic_store(&caa_container_of(m, struct turn, t_msg)->t_done, 1);
}

/* The turn under way, and with it its sends, is over, and one more. */
static void turns(void)
{
	for (int i = 0; i < 2; i++) {
		struct turn t = {.t_msg.m_run = turn_run};

		loop_post(S, &t.t_msg);
		while (!atomic_load(&t.t_done))
			usleep(200);
	}
}

static int sniff(int fd)
{
	int n = -1;

	ck_assert_int_eq(ioctl(fd, FIONREAD, &n), 0);
	return n;
}

/* ---- what is asked ---- */

static void ask(int fd, uint32_t xid, uint32_t proc)
{
	struct xdr_out x;

	put_call(&x, xid, proc);
	if (proc == P_ECHO)
		xdr_put_opaque(&x, &xid, 4);
	if (proc == P_BIG)
		xdr_put_u32(&x, 4096);
	send_record(fd, &x);
}

static void ask_wrong_version(int fd, uint32_t xid)
{
	struct xdr_out x;

	put_head(&x, xid, 99, P_NULL);
	xdr_put_u64(&x, 0);
	xdr_put_u64(&x, 0);
	send_record(fd, &x);
}

static int dial_known(void)
{
	int was = atomic_load(&opened), fd = dial();

	wait_for(&opened, was + 1);
	return fd;
}

/* A reply to xid, or a call of the server's (then its xid is returned in *call). */
static uint32_t hear(int fd, bool *call)
{
	struct xdr_in x = recv_reply(fd);
	uint32_t xid = xdr_get_u32(&x);

	*call = xdr_get_u32(&x) == 0;
	return xid;
}

static void expect(int fd, uint32_t xid)
{
	bool call;

	ck_assert_uint_eq(hear(fd, &call), xid);
	ck_assert(!call);
}

static void answer(int fd, uint32_t xid)
{
	struct xdr_out x;

	xdr_out_init(&x, 100);
	xdr_put_u32(&x, xid);
	xdr_put_u32(&x, 1);
	for (int i = 0; i < 4; i++)
		xdr_put_u32(&x, 0);
	xdr_put_u32(&x, 7);
	send_record(fd, &x);
}

/* Answers, refusals and calls of the server's are on their way to each peer. Returns how many bytes
 * have come to all of them. */
static int ask_all(int *fd, bool *known)
{
	int before = atomic_load(&dispatched), bytes = 0;

	for (int i = 0; i < PEERS; i++) {
		fd[i] = dial();
		ask(fd[i], 1, P_NULL);
		ask(fd[i], 2, P_ECHO);
		ask(fd[i], 3, P_GARBAGE);
		ask(fd[i], 4, P_TOOWEAK);
		ask_wrong_version(fd[i], 5);
		ask(fd[i], 6, P_CALLBACK);
		ask(fd[i], 7, P_ECHO);
	}
	wait_for(&dispatched, before + 6 * PEERS);
	turns();
	for (int i = 0; i < PEERS; i++)
		bytes += sniff(fd[i]);
	*known = atomic_load(&dispatched) == before + 6 * PEERS;
	return bytes;
}

/* Each in its order and once; what is asked last is answered last. */
static void expect_all(int *fd)
{
	for (int i = 0; i < PEERS; i++) {
		bool call;
		uint32_t xid;

		for (uint32_t n = 1; n <= 5; n++)
			expect(fd[i], n);
		xid = hear(fd[i], &call);
		ck_assert(call);
		expect(fd[i], 7);
		answer(fd[i], xid);
		expect(fd[i], 6);
		ask(fd[i], 8, P_NULL);
		expect(fd[i], 8);
		ck_assert_int_eq(sniff(fd[i]), 0);
	}
}

static void close_all(int *fd)
{
	for (int i = 0; i < PEERS; i++)
		close(fd[i]);
}

START_TEST(nothing_leaves_while_the_store_is_not_held)
{
	int fd[PEERS];
	bool known;

	ck_assert_int_eq(ask_all(fd, &known), 0);
	ck_assert(known);
	hold_long();
	expect_all(fd);
	close_all(fd);
}
END_TEST

/* The same questions without the gate: this is how the test above sees that nothing left. */
START_TEST(without_the_gate_bytes_are_seen)
{
	int fd[PEERS];
	bool known;

	ck_assert_int_gt(ask_all(fd, &known), 0);
	expect_all(fd);
	close_all(fd);
}
END_TEST

/* A lease that ran out is no other than one that has not begun. */
START_TEST(it_shuts_again_each_time)
{
	uint32_t opened = store_lease_opened(&lease), holds = 0;
	int fd = dial();

	for (uint32_t i = 1; i <= 20; i++) {
		hold_ms(5);
		run_out();
		ask(fd, i, P_ECHO);
		wait_for(&dispatched, (int)i);
		turns();
		ck_assert_int_eq(sniff(fd), 0);
		/* A busy machine may need more than one lease for it. */
		while (!sniff(fd)) {
			hold_ms(500);
			holds++;
			while (store_lease_live(&lease) && !sniff(fd))
				usleep(200);
			turns();
		}
		expect(fd, i);
		run_out();
		turns();
		ck_assert_int_eq(sniff(fd), 0);
	}
	ck_assert_uint_eq(store_lease_opened(&lease), opened + 20 + holds);
	close(fd);
}
END_TEST

/* An extension that was asked for too long ago, or ends before the present one, opens nothing. */
START_TEST(an_answer_that_came_too_late_opens_nothing)
{
	int fd = dial();

	ask(fd, 1, P_NULL);
	wait_for(&dispatched, 1);
	store_lease_extend(&lease, clock_boot_ns() - 1);
	turns();
	ck_assert_int_eq(sniff(fd), 0);
	ck_assert(!store_lease_live(&lease));
	hold_long();
	store_lease_extend(&lease, clock_boot_ns() + 1);
	usleep(1000);
	ck_assert(store_lease_live(&lease));
	expect(fd, 1);
	close(fd);
}
END_TEST

/* ---- an answer in several parts ---- */

#define LONG (1u << 20)

/* What comes until nothing comes any more. */
static size_t drain(int fd)
{
	static uint8_t bytes[1 << 16];
	struct timeval tv = {1, 0}, was = {60, 0};
	size_t n = 0;
	ssize_t got;

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
	while ((got = recv(fd, bytes, sizeof bytes, 0)) > 0)
		n += (size_t)got;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &was, sizeof was);
	return n;
}

/* The sockets hold a part of the answer when the lease runs out, and the peer reads only then. The
 * rest waits, and comes when the store is held again. */
START_TEST(the_rest_of_a_long_answer_waits)
{
	static uint8_t rest[LONG];
	int room = 1 << 16, fd = dial_known();
	size_t all = 4 + 24 + LONG, first;
	struct xdr_out x;

	hold_long();
	ck_assert_int_eq(setsockopt(last_conn->rcn_fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room),
			 0);
	put_call(&x, 1, P_BIG);
	xdr_put_u32(&x, LONG);
	send_record(fd, &x);
	wait_for(&dispatched, 1);
	turns();
	ck_assert_int_gt(sniff(fd), 0);
	cut_short();
	first = drain(fd);
	ck_assert_uint_gt(first, 0);
	ck_assert_uint_lt(first, all);
	turns();
	ck_assert_int_eq(sniff(fd), 0);
	hold_long();
	ck_assert(recv_all(fd, rest, all - first));
	ck_assert_uint_eq(rest[all - first - 1], (LONG / 4 - 1) & 0xff);
	ck_assert_int_eq(sniff(fd), 0);
	close(fd);
}
END_TEST

/* ---- many ---- */

#define MANY 10000u

static void *ask_many(void *arg)
{
	for (uint32_t i = 1; i <= MANY; i++)
		ask(*(int *)arg, i, P_BIG);
	return NULL;
}

static int most_held(void)
{
	return (int)((RPC_MAX_QUEUED + RPC_LEAST_HELD) / 4096 + 2 * RPC_MAX_CALLS);
}

/* The connection stops reading when what waits is as much as for a peer that reads no replies. The
 * rest is asked when it is answered. */
START_TEST(ten_thousand_wait_within_bounds)
{
	pthread_t asker;
	int fd = dial(), seen = -1;

	pthread_create(&asker, NULL, ask_many, &fd);
	while (seen != atomic_load(&dispatched) || seen < 100) {
		seen = atomic_load(&dispatched);
		turns();
		usleep(50000);
	}
	ck_assert_int_lt(seen, most_held());
	ck_assert_int_eq(sniff(fd), 0);
	hold_long();
	for (uint32_t i = 1; i <= MANY; i++)
		expect(fd, i);
	turns();
	ck_assert_int_eq(sniff(fd), 0);
	ck_assert_int_eq(atomic_load(&dispatched), (int)MANY);
	pthread_join(asker, NULL);
	close(fd);
}
END_TEST

/* The lease comes and goes under load: each answer comes once, in its order. */
static _Atomic int flaps;

static void *flap(void *arg)
{
	while (!atomic_load(&flaps)) {
		hold_ms(2);
		run_out();
		usleep(1000);
	}
	hold_long();
	return arg;
}

START_TEST(each_answer_comes_once_while_the_lease_comes_and_goes)
{
	pthread_t asker, flapper;
	uint32_t opened;
	int fd = dial();

	atomic_store(&flaps, 0);
	pthread_create(&flapper, NULL, flap, NULL);
	pthread_create(&asker, NULL, ask_many, &fd);
	for (uint32_t i = 1; i <= MANY; i++)
		expect(fd, i);
	opened = store_lease_opened(&lease);
	atomic_store(&flaps, 1);
	pthread_join(asker, NULL);
	pthread_join(flapper, NULL);
	turns();
	ck_assert_int_eq(sniff(fd), 0);
	ck_assert_uint_gt(opened, 3);
	close(fd);
}
END_TEST

/* A peer that goes away while its answers wait takes them with it, and nobody else's. */
START_TEST(a_peer_goes_while_its_answers_wait)
{
	int fd[PEERS], stays = dial();
	bool known;

	ask(stays, 1, P_ECHO);
	wait_for(&dispatched, 1);
	ck_assert_int_eq(ask_all(fd, &known), 0);
	close_all(fd);
	wait_for(&closed, PEERS);
	hold_long();
	expect(stays, 1);
	close(stays);
}
END_TEST

/* ---- time limits of calls of ours ---- */

/* Longer than a loaded machine takes over a few steps. */
#define OUR_MS 3000

struct our {
	struct loop_msg o_msg;
	struct rpc_req o_req;
	uint32_t o_limit;
	_Atomic int o_done;
	int o_err;
};

static void our_done(struct rpc_req *q, int err, struct xdr_in *res)
{
	struct our *o = caa_container_of(q, struct our, o_req);

	(void)res;
	o->o_err = err;
	atomic_store(&o->o_done, 1);
}

static void our_send(struct loop_msg *m)
{
	struct our *o = caa_container_of(m, struct our, o_msg);

	rpc_req_init(&o->o_req, PROG + 1, 1, 1, NULL, 100, our_done);
	rpc_req_send(last_conn, &o->o_req, o->o_limit);
}

START_TEST(a_time_limit_begins_again_when_the_store_is_held)
{
	struct our o = {.o_msg.m_run = our_send, .o_limit = OUR_MS};
	int fd = dial_known();
	uint32_t xid;
	bool call;

	loop_post(S, &o.o_msg);
	usleep(1000 * (OUR_MS + 250)); /* more than the limit */
	ck_assert_int_eq(atomic_load(&o.o_done), 0);
	ck_assert_int_eq(sniff(fd), 0);
	hold_long();
	xid = hear(fd, &call);
	ck_assert(call);
	answer(fd, xid);
	wait_for(&o.o_done, 1);
	ck_assert_int_eq(o.o_err, 0);
	close(fd);
}
END_TEST

/* It was sent while the store was held, and its answer may be long there: time does not run out
 * while nobody would act on it. Later it does. */
START_TEST(a_peer_that_says_nothing_is_given_its_time)
{
	struct our o = {.o_msg.m_run = our_send, .o_limit = OUR_MS};
	int fd = dial_known();
	uint64_t at;
	bool call;

	hold_long();
	loop_post(S, &o.o_msg);
	hear(fd, &call);
	ck_assert(call);
	cut_short();
	usleep(1000 * (OUR_MS + 250));
	ck_assert_int_eq(atomic_load(&o.o_done), 0);
	at = clock_boot_ns();
	hold_long();
	wait_for(&o.o_done, 1);
	ck_assert_int_eq(o.o_err, -ETIMEDOUT);
	ck_assert_uint_ge(clock_boot_ns() - at, (OUR_MS - 10) * 1000000ull);
	close(fd);
}
END_TEST

/* ---- TLS: what is encrypted has passed the gate ---- */

static const uint8_t peer_key[RPC_TLS_PSK_LEN] = "a key that both sides know";
static struct loop *B; /* the peer's, without a gate */
static struct rpc_client *peer;
static int peer_err, peer_left;

static void peer_stop(struct loop_timer *t)
{
	(void)t;
	loop_stop(B);
}

static void peer_run_ms(uint64_t ms)
{
	struct loop_timer t = {.t_fire = peer_stop};

	loop_timer_start(B, &t, ms);
	loop_run(B);
	loop_timer_stop(B, &t);
}

static void peer_done(struct rpc_req *q, int err, struct xdr_in *res)
{
	(void)res;
	peer_err = err;
	free(q);
	if (!--peer_left)
		loop_stop(B);
}

static void peer_ask(void)
{
	struct rpc_req *q = malloc(sizeof *q);

	peer_left++;
	peer_err = 1;
	rpc_req_init(q, PROG, 3, P_NULL, NULL, 100, peer_done);
	rpc_client_send(peer, q, 60000);
}

static void start_tls(void)
{
	service.rs_tls = cert_context(peer_key);
	start(true);
	ck_assert_int_eq(loop_create(&B, 256), 0);
	ck_assert_int_eq(
		rpc_client_create(&peer, B, (struct sockaddr *)&addr, addrlen, NULL, NULL, NULL),
		0);
	rpc_client_use_tls(peer, PROG, 3, peer_key);
}

static void end_tls(void)
{
	rpc_client_destroy(peer);
	peer_run_ms(50);
	loop_destroy(B);
	teardown();
}

START_TEST(over_tls_answers_wait_as_well)
{
	hold_long();
	peer_ask();
	loop_run(B);
	ck_assert_int_eq(peer_err, 0);
	cut_short();
	for (int i = 0; i < 3; i++)
		peer_ask();
	peer_run_ms(300);
	ck_assert_int_eq(atomic_load(&dispatched), 4);
	ck_assert_int_eq(peer_left, 3);
	hold_long();
	loop_run(B);
	ck_assert_int_eq(peer_left, 0);
	ck_assert_int_eq(peer_err, 0);
	ck_assert_int_eq(atomic_load(&opened), 1);
}
END_TEST

START_TEST(who_connects_over_tls_meanwhile_is_served_later)
{
	peer_ask();
	peer_run_ms(300);
	ck_assert_int_eq(peer_left, 1);
	hold_long();
	loop_run(B);
	ck_assert_int_eq(peer_err, 0);
	ck_assert_int_eq(atomic_load(&opened), 1);
}
END_TEST

/* ---- the HTTP API: it refuses, and tells what is the process's ---- */

static struct http *web;
static _Atomic int web_asked;
static _Atomic bool web_loses; /* the lease runs out while the handler works */

static void web_handler(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	(void)arg;
	(void)rq;
	atomic_fetch_add(&web_asked, 1);
	rp->rp_body = strdup("{\"told\":1}");
	if (atomic_load(&web_loses))
		cut_short();
}

static const struct http_route web_routes[] = {
	{"GET", "/v1/state", HTTP_OPEN, web_handler},
	{"POST", "/v1/state", HTTP_OPEN, web_handler},
	{"GET", "/v1/health", HTTP_OPEN, web_handler},
};

static void start_web(void)
{
	struct http_opts opts = {.ho_addrs = "127.0.0.1:0", .ho_lease = &lease};
	char err[256];

	store_lease_init(&lease, 0);
	ck_assert_msg(!http_start(&web, &opts, web_routes, 3, NULL, err, sizeof err), "%s", err);
	addr = (struct sockaddr_storage){0};
	*(struct sockaddr_in *)&addr = (struct sockaddr_in){.sin_family = AF_INET,
							    .sin_port = htons(http_port(web)),
							    .sin_addr = {htonl(INADDR_LOOPBACK)}};
	addrlen = sizeof(struct sockaddr_in);
}

static void end_web(void)
{
	http_stop(web);
}

/* The status of an answer, whose text says this. */
static int web_ask(const char *method, const char *path, const char *says)
{
	char text[65536];
	size_t n = 0;
	ssize_t got;
	int fd = dial();

	snprintf(text, sizeof text, "%s %s HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n", method, path);
	send_all(fd, text, strlen(text));
	while ((got = recv(fd, text + n, sizeof text - 1 - n, 0)) > 0)
		n += (size_t)got;
	text[n] = 0;
	close(fd);
	ck_assert_msg(strstr(text, says), "%s %s: %s", method, path, text);
	return atoi(text + strlen("HTTP/1.0 "));
}

START_TEST(the_api_begins_nothing_while_the_store_is_not_held)
{
	ck_assert_int_eq(web_ask("GET", "/v1/state", "does not hold its store"), 503);
	ck_assert_int_eq(web_ask("POST", "/v1/state", "nothing was done"), 503);
	ck_assert_int_eq(atomic_load(&web_asked), 0);
	ck_assert_int_eq(web_ask("GET", "/v1/health", "told"), 200);
	ck_assert_int_eq(web_ask("GET", "/metrics", "weft_rpc_parked_total"), 200);
	hold_long();
	ck_assert_int_eq(web_ask("GET", "/v1/state", "told"), 200);
	ck_assert_int_eq(web_ask("POST", "/v1/state", "told"), 200);
	ck_assert_int_eq(atomic_load(&web_asked), 3);
}
END_TEST

START_TEST(the_api_says_when_an_outcome_is_not_known)
{
	atomic_store(&web_loses, true);
	hold_long();
	ck_assert_int_eq(web_ask("GET", "/v1/state", "does not hold its store now: try"), 503);
	hold_long();
	ck_assert_int_eq(web_ask("POST", "/v1/state", "it is not known"), 503);
	ck_assert_int_eq(atomic_load(&web_asked), 2);
}
END_TEST

/* ---- the clock ---- */

static uint64_t the_clock(void)
{
	return store_lease_clock_ns(&lease);
}

START_TEST(the_clock_stands_still_while_the_store_is_not_held)
{
	uint64_t at, began, late, stood;

	store_lease_init(&lease, STORE_LEASE_ALWAYS);
	at = clock_mono_ns();
	ck_assert_uint_ge(the_clock(), at);
	store_lease_init(&lease, 0);
	began = the_clock();
	usleep(20000);
	ck_assert_uint_eq(the_clock(), began);
	late = clock_boot_ns();
	hold_ms(100);
	late = clock_boot_ns() - late;
	run_out();
	usleep(1000); /* the two clocks are not read at the same moment */
	at = the_clock();
	ck_assert_uint_ge(at - began + late, 90000000);
	ck_assert_uint_le(at - began, 101000000);
	usleep(300000);
	ck_assert_uint_eq(the_clock(), at);
	stood = clock_mono_ns();
	hold_long();
	ck_assert_uint_ge(the_clock(), at);
	usleep(1000);
	ck_assert_uint_gt(the_clock(), at);
	ck_assert_uint_le(the_clock() - at, clock_mono_ns() - stood);
}
END_TEST

static void *watch_clock(void *arg)
{
	uint64_t was = the_clock(), now;

	while (!atomic_load(&flaps)) {
		now = the_clock();
		ck_assert_uint_ge(now, was);
		was = now;
	}
	return arg;
}

START_TEST(the_clock_never_goes_back)
{
	pthread_t watcher[2];

	store_lease_init(&lease, 0);
	atomic_store(&flaps, 0);
	for (int i = 0; i < 2; i++)
		pthread_create(&watcher[i], NULL, watch_clock, NULL);
	for (int i = 0; i < 200; i++) {
		hold_ms(1);
		run_out();
		usleep(1000);
	}
	atomic_store(&flaps, 1);
	for (int i = 0; i < 2; i++)
		pthread_join(watcher[i], NULL);
}
END_TEST

/* ---- an instance that is no longer the one ---- */

static void child(int out)
{
	int before;

	start(true);
	ck_assert_int_eq(write(out, &addr, sizeof addr), (ssize_t)sizeof addr);
	for (before = 0; before < 2; before = atomic_load(&dispatched))
		usleep(1000);
	turns();
	store_lease_lost("a test claimed it");
}

START_TEST(a_deposed_instance_ends_and_sends_nothing)
{
	int at[2], fd, status;
	char byte;
	pid_t pid;

	ck_assert_int_eq(pipe(at), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid)
		child(at[1]);
	ck_assert_int_eq(read(at[0], &addr, sizeof addr), (ssize_t)sizeof addr);
	addrlen = sizeof(struct sockaddr_in);
	fd = dial();
	ask(fd, 1, P_NULL);
	ask(fd, 2, P_ECHO);
	ck_assert_int_le(recv(fd, &byte, 1, 0), 0); /* the end, and not a byte before it */
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	close(fd);
	close(at[0]);
	close(at[1]);
}
END_TEST

/* Nobody reads the log, so that the line that says why cannot be written. */
static void fill(int fd)
{
	static char page[4096];
	int flags = fcntl(fd, F_GETFL);

	ck_assert_int_eq(fcntl(fd, F_SETFL, flags | O_NONBLOCK), 0);
	for (size_t n = sizeof page; n; n /= 2)
		while (write(fd, page, n) > 0)
			;
	ck_assert_int_eq(fcntl(fd, F_SETFL, flags), 0);
}

static void *lose(void *arg)
{
	store_lease_lost(arg);
}

/* The lease has minutes left when the store is lost, and two threads hear of it. */
static void child_of_a_slow_log(int log, int out)
{
	pthread_t loser[2];

	store_lease_init(&lease, 0);
	hold_long();
	fill(log);
	ck_assert_int_eq(dup2(log, STDERR_FILENO), STDERR_FILENO);
	for (int i = 0; i < 2; i++)
		pthread_create(&loser[i], NULL, lose, "a test claimed it");
	while (store_lease_live(&lease))
		usleep(1000);
	store_lease_extend(&lease, clock_boot_ns() + 1200000000000);
	ck_assert_int_eq(write(out, store_lease_live(&lease) ? "open" : "shut", 4), 4);
	pthread_join(loser[0], NULL);
}

START_TEST(nothing_passes_between_the_loss_and_the_end_of_the_process)
{
	char text[1 << 20] = "", word[5] = "";
	int said[2], log[2], status;
	size_t n = 0;
	ssize_t got;
	pid_t pid;

	ck_assert_int_eq(pipe(said), 0);
	ck_assert_int_eq(pipe(log), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid)
		child_of_a_slow_log(log[1], said[1]);
	close(log[1]);
	close(said[1]);
	ck_assert_int_eq(read(said[0], word, 4), 4);
	ck_assert_str_eq(word, "shut");
	while ((got = read(log[0], text + n, sizeof text - 1 - n)) > 0)
		n += (size_t)got;
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	ck_assert_ptr_nonnull(memmem(text, n, "another instance holds the store: a test claimed",
				     strlen("another instance holds the store: a test claimed")));
	close(log[0]);
	close(said[0]);
}
END_TEST

static void start_open(void)
{
	start(false);
}

int main(void)
{
	const TTest *const gated[] = {nothing_leaves_while_the_store_is_not_held,
				      it_shuts_again_each_time,
				      an_answer_that_came_too_late_opens_nothing,
				      the_rest_of_a_long_answer_waits,
				      ten_thousand_wait_within_bounds,
				      each_answer_comes_once_while_the_lease_comes_and_goes,
				      a_peer_goes_while_its_answers_wait,
				      a_time_limit_begins_again_when_the_store_is_held,
				      a_peer_that_says_nothing_is_given_its_time,
				      NULL};
	const TTest *const open[] = {without_the_gate_bytes_are_seen, NULL};
	const TTest *const clock[] = {the_clock_stands_still_while_the_store_is_not_held,
				      the_clock_never_goes_back, NULL};
	const TTest *const lost[] = {a_deposed_instance_ends_and_sends_nothing,
				     nothing_passes_between_the_loss_and_the_end_of_the_process,
				     NULL};
	const TTest *const tls[] = {over_tls_answers_wait_as_well,
				    who_connects_over_tls_meanwhile_is_served_later, NULL};
	const TTest *const api[] = {the_api_begins_nothing_while_the_store_is_not_held,
				    the_api_says_when_an_outcome_is_not_known, NULL};
	Suite *s = suite_create("lease gate");

	unit_add(s, "gated", start_gated, teardown, 60, gated);
	unit_add(s, "tls", start_tls, end_tls, 60, tls);
	unit_add(s, "api", start_web, end_web, 60, api);
	unit_add(s, "open", start_open, teardown, 60, open);
	unit_add(s, "clock", NULL, NULL, 60, clock);
	unit_add(s, "lost", NULL, NULL, 60, lost);
	return unit_run(s);
}
