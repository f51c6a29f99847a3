/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_testsrv.h - the service that the RPC tests call. Each test program has its own: all is
 * static.
 */
#ifndef TESTS_RPC_TESTSRV_H
#define TESTS_RPC_TESTSRV_H
#include "proto/rpc_int.h"
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>

#define PROG 0x20000123u

enum {
	P_NULL,
	P_ECHO,
	P_CRED,
	P_PARK,
	P_WAKE,
	P_BIG,
	P_BULK,
	P_GARBAGE,
	P_REFS,
	P_TOOWEAK,
	P_CLOSE,
	P_CALLBACK,
	P_BLACKHOLE,
	P_WAIT,
	P_APART,
	P_N
};

static struct loop *S;
static struct rpc_listener *listener;
static struct sockaddr_storage addr;
static socklen_t addrlen;
static _Atomic int opened, closed, dispatched, released, unaligned;
/* By the low digits of the xid: how many calls were dispatched before it. */
#define NTH 8192u
static _Atomic int nth[NTH];
static struct rpc_call *parked[8192];
static _Atomic int nparked;
static struct rpc_conn *last_conn;
static uint8_t pattern[1 << 20];

static void on_opened(struct rpc_conn *c, void *arg)
{
	ck_assert_ptr_eq(arg, &opened);
	ck_assert_ptr_null(rpc_conn_priv(c));
	rpc_conn_set_priv(c, &closed);
	last_conn = c;
	atomic_fetch_add(&opened, 1);
}

static void on_closed(struct rpc_conn *c, void *arg)
{
	ck_assert_ptr_eq(arg, &opened);
	ck_assert_ptr_eq(rpc_conn_priv(c), &closed);
	atomic_fetch_add(&closed, 1);
}

static void release(void *arg)
{
	(void)arg;
	atomic_fetch_add(&released, 1);
}

static void buf_release(void *arg)
{
	rpc_buf_put(arg);
	release(NULL);
}

static void do_echo(struct rpc_call *call)
{
	uint32_t n;
	const uint8_t *p = xdr_get_opaque(&call->c_args, 1 << 20, &n);

	if (call->c_args.bad) {
		rpc_reply_error(call, RPC_A_GARBAGE_ARGS);
		return;
	}
	xdr_put_u32(&call->c_reply, n);
	xdr_put_ref(&call->c_reply, p, n, buf_release, rpc_buf_get(call));
	rpc_reply(call);
}

static void do_cred(struct rpc_call *call)
{
	const struct rpc_cred *rc = &call->c_cred;

	xdr_put_u32(&call->c_reply, rc->rc_flavor);
	xdr_put_u32(&call->c_reply, rc->rc_uid);
	xdr_put_u32(&call->c_reply, rc->rc_gid);
	xdr_put_u32(&call->c_reply, rc->rc_ngids);
	for (uint32_t i = 0; i < rc->rc_ngids; i++)
		xdr_put_u32(&call->c_reply, rc->rc_gids[i]);
	rpc_reply(call);
}

/* Parked calls are answered last first, each with its argument, read only now; but for so many, if
 * its own argument says so. */
static void do_wake(struct rpc_call *call)
{
	int left = (int)xdr_get_u32(&call->c_args);

	while (atomic_load(&nparked) > left) {
		struct rpc_call *p = parked[atomic_fetch_sub(&nparked, 1) - 1];

		xdr_put_u32(&p->c_reply, xdr_get_u32(&p->c_args));
		rpc_reply(p);
	}
	rpc_reply(call);
}

static void do_big(struct rpc_call *call)
{
	uint32_t n = xdr_get_u32(&call->c_args);

	for (uint32_t i = 0; i < n / 4; i++)
		xdr_put_u32(&call->c_reply, i);
	rpc_reply(call);
}

static void do_bulk(struct rpc_call *call)
{
	uint32_t n;
	const uint8_t *p = xdr_get_opaque(&call->c_args, 1 << 20, &n);

	rpc_call_bulk_hint(call, p);
	if ((uintptr_t)p % 4096)
		atomic_fetch_add(&unaligned, 1);
	xdr_put_bool(&call->c_reply, !memcmp(p, pattern, n));
	rpc_reply(call);
}

/* More references than there are places: the rest is copied. */
static void do_refs(struct rpc_call *call)
{
	for (uint32_t i = 0; i < XDR_SPLICES + 4; i++) {
		xdr_put_u32(&call->c_reply, 1001 + i);
		xdr_put_ref(&call->c_reply, pattern + i, 1001 + i, release, NULL);
	}
	rpc_reply(call);
}

struct back {
	struct rpc_req b_req;
	struct rpc_call *b_call;
};

static void back_done(struct rpc_req *q, int err, struct xdr_in *res)
{
	struct back *b = caa_container_of(q, struct back, b_req);

	xdr_put_u32(&b->b_call->c_reply, err ? 0 : xdr_get_u32(res) + 1);
	rpc_reply(b->b_call);
	free(b);
}

static void do_callback(struct rpc_call *call)
{
	struct back *b = malloc(sizeof *b);

	b->b_call = call;
	rpc_req_init(&b->b_req, PROG + 1, 1, 1, NULL, 100, back_done);
	rpc_req_send(call->c_conn, &b->b_req, 5000);
}

static void dispatch(struct rpc_call *call, void *arg)
{
	ck_assert_ptr_eq(arg, parked);
	ck_assert_ptr_eq(loop_self(), call->c_loop);
	nth[call->c_xid % NTH] = atomic_fetch_add(&dispatched, 1);
	switch (call->c_proc) {
	case P_ECHO:
		return do_echo(call);
	case P_CRED:
		return do_cred(call);
	case P_WAIT:
		rpc_call_waits(call, true);
		/* fall through */
	case P_PARK:
	case P_BLACKHOLE:
		parked[atomic_fetch_add(&nparked, 1)] = call;
		return;
	case P_WAKE:
		return do_wake(call);
	case P_BIG:
		return do_big(call);
	case P_BULK:
		return do_bulk(call);
	case P_GARBAGE:
		xdr_put_u32(&call->c_reply, 42);
		return rpc_reply_error(call, RPC_A_GARBAGE_ARGS);
	case P_REFS:
		return do_refs(call);
	case P_TOOWEAK:
		return rpc_reply_auth_error(call, RPC_AUTH_TOOWEAK);
	case P_CLOSE:
		rpc_conn_close(call->c_conn);
		return rpc_reply(call);
	case P_CALLBACK:
		return do_callback(call);
	case P_APART:
		rpc_conn_apart(call->c_conn);
		return rpc_reply(call);
	default:
		return rpc_reply(call);
	}
}

static const struct rpc_program progs[] = {
	{PROG, 3, 3, P_N, dispatch, parked},
	{PROG, 5, 7, 1, dispatch, parked},
};
#define HOST_CALLS 1500
static struct rpc_service service = {
	.rs_progs = progs,
	.rs_nprogs = 2,
	.rs_max_record = (1 << 20) + 4096,
	.rs_max_reply = (1 << 20) + 4096,
	.rs_host_calls = HOST_CALLS,
	.rs_opened = on_opened,
	.rs_closed = on_closed,
	.rs_arg = &opened,
};

static void pattern_make(void)
{
	for (size_t i = 0; i < sizeof pattern; i++)
		pattern[i] = (uint8_t)(i * 7 + (i >> 8));
}

static void listen_on(struct loop *l, const char *text)
{
	int err;

	ck_assert_int_eq(rpc_addr_parse(text, 0, &addr, &addrlen), 0);
	err = rpc_listen(&listener, l, (struct sockaddr *)&addr, addrlen, &service, &l, 1);
	ck_assert_msg(!err, "%s", strerror(-err));
	((struct sockaddr_in *)&addr)->sin_port = htons(rpc_listener_port(listener));
}
#endif
