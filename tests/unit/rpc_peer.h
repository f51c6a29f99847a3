/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_peer.h - the service of rpc_testsrv.h on a thread of its own, and plain sockets as its
 * peers. */
#ifndef TESTS_RPC_PEER_H
#define TESTS_RPC_PEER_H
#include "tests/unit/rpc_testsrv.h"
#include <pthread.h>
#include <unistd.h>

static pthread_t server_thread;

static inline void *server_main(void *arg)
{
	loop_run(arg);
	return NULL;
}

static inline void setup(void)
{
	pattern_make();
	ck_assert_int_eq(loop_create(&S, 256), 0);
	listen_on(S, "127.0.0.1:0");
	pthread_create(&server_thread, NULL, server_main, S);
}

static inline void server_stop(struct loop_msg *m)
{
	(void)m;
	while (atomic_load(&nparked))
		rpc_reply(parked[atomic_fetch_sub(&nparked, 1) - 1]);
	rpc_listener_close(listener);
}

static inline void wait_for(_Atomic int *what, int value)
{
	for (int i = 0; i < 60000 && atomic_load(what) != value; i++)
		usleep(1000);
	ck_assert_int_eq(atomic_load(what), value);
}

static inline void teardown(void)
{
	struct loop_msg m = {.m_run = server_stop};

	wait_for(&closed, atomic_load(&opened));
	loop_post(S, &m);
	usleep(20000);
	loop_stop(S);
	pthread_join(server_thread, NULL);
	loop_destroy(S);
}

/* ---- a peer by plain socket ---- */

/* From this address of 127/8; 0: any. */
static inline int dial_from(uint32_t from)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(from)};
	struct timeval tv = {10, 0};
	int fd = socket(addr.ss_family, SOCK_STREAM, 0);

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
	if (from)
		ck_assert_int_eq(bind(fd, (struct sockaddr *)&in, sizeof in), 0);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&addr, addrlen), 0);
	return fd;
}

static inline int dial(void)
{
	return dial_from(0);
}

static inline void send_all(int fd, const void *data, size_t n)
{
	const uint8_t *p = data;

	while (n) {
		ssize_t got = send(fd, p, n, MSG_NOSIGNAL);

		ck_assert_int_gt(got, 0);
		p += got;
		n -= (size_t)got;
	}
}

static inline bool recv_all(int fd, void *data, size_t n)
{
	uint8_t *p = data;

	while (n) {
		ssize_t got = recv(fd, p, n, 0);

		if (got <= 0)
			return false;
		p += got;
		n -= (size_t)got;
	}
	return true;
}

static inline void put_head(struct xdr_out *x, uint32_t xid, uint32_t vers, uint32_t proc)
{
	xdr_out_init(x, 2 << 20);
	xdr_put_u32(x, xid);
	xdr_put_u32(x, 0);
	xdr_put_u32(x, 2);
	xdr_put_u32(x, PROG);
	xdr_put_u32(x, vers);
	xdr_put_u32(x, proc);
}

static inline void put_call(struct xdr_out *x, uint32_t xid, uint32_t proc)
{
	put_head(x, xid, 3, proc);
	xdr_put_u64(x, 0);
	xdr_put_u64(x, 0);
}

static inline void send_mark(int fd, uint32_t v)
{
	v = htobe32(v);
	send_all(fd, &v, 4);
}

/* In one fragment; frees x. */
static inline void send_record(int fd, struct xdr_out *x)
{
	ck_assert(!x->bad);
	send_mark(fd, RPC_LAST | (uint32_t)x->x_len);
	send_all(fd, x->x_head, x->x_len);
	xdr_out_free(x);
}

static uint8_t reply[(1 << 20) + 8192];

static inline struct xdr_in recv_reply(int fd)
{
	struct xdr_in x;
	uint32_t mark;

	ck_assert_msg(recv_all(fd, &mark, 4), "no reply");
	mark = be32toh(mark);
	ck_assert(mark & RPC_LAST);
	mark &= ~RPC_LAST;
	ck_assert_uint_le(mark, sizeof reply);
	ck_assert(recv_all(fd, reply, mark));
	xdr_in_init(&x, reply, mark);
	return x;
}

/* The words of the reply, and no more. */
static inline void expect_words(struct xdr_in x, unsigned n, const uint32_t *words)
{
	for (unsigned i = 0; i < n; i++) {
		uint32_t w = xdr_get_u32(&x);

		ck_assert_msg(w == words[i], "word %u is %u, not %u", i, w, words[i]);
	}
	ck_assert(!x.bad);
	ck_assert_uint_eq(xdr_left(&x), 0);
}
#define EXPECT(fd, ...)                                                                            \
	expect_words(recv_reply(fd), sizeof((uint32_t[]){__VA_ARGS__}) / 4,                        \
		     (uint32_t[]){__VA_ARGS__})

static inline struct xdr_in results(int fd, uint32_t xid)
{
	struct xdr_in x = recv_reply(fd);

	ck_assert_uint_eq(xdr_get_u32(&x), xid);
	ck_assert_uint_eq(xdr_get_u32(&x), 1);
	for (int i = 0; i < 4; i++)
		ck_assert_uint_eq(xdr_get_u32(&x), 0);
	return x;
}

static inline TCase *cases(Suite *s, const char *name, void (*up)(void), void (*down)(void))
{
	TCase *tc = tcase_create(name);

	tcase_add_checked_fixture(tc, up, down);
	tcase_set_timeout(tc, 30);
	suite_add_tcase(s, tc);
	return tc;
}
#endif
