/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rdma_rpc.c - our RPC client and our RPC server over RDMA, in one process, on a device of this
 * machine: rdma_rpc ADDRESS LISTEN [CONNECTIONS] [KEY=VALUE]... Prints "ok - ..." and "not ok -
 * ...".
 */
#include "base/pool.h"
#include "proto/rpc_int.h"
#include "proto/rpc_rdma.h"
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#define PROG 0x20000124u
enum { P_NULL, P_ECHO, P_SIZED, P_BACK, P_DROP, P_N };
#define CALLS 2000u
#define LARGE (1u << 20)

static struct loop *loops[2];
static struct sockaddr_storage addr, on;
static socklen_t addrlen, onlen;
static uint8_t pattern[LARGE];
static _Atomic int listening, failures, opened, closed;

static void say(bool good, const char *what)
{
	printf("%s - %s\n", good ? "ok" : "not ok", what);
	fflush(stdout);
	failures += !good;
}

/* What is registered passes here on its way to the library. */
static _Atomic unsigned pool_registered, pool_access;

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *p, size_t len, uint64_t iova,
				unsigned access)
{
	struct ibv_mr *(*real)(struct ibv_pd *, void *, size_t, uint64_t, unsigned);
	void *sym = dlsym(RTLD_NEXT, "ibv_reg_mr_iova2");

	memcpy(&real, &sym, sizeof real);
	if (p == pool_piece(0)->pp_base) {
		pool_registered++;
		pool_access |= access;
	}
	return real(pd, p, len, iova, access);
}

/* ---- the service, on both ends ---- */

static void back_done(struct rpc_req *q, int err, struct xdr_in *res)
{
	struct rpc_call *call = (struct rpc_call *)(q + 1);

	call = *(struct rpc_call **)call;
	xdr_put_u32(&call->c_reply, err ? 0 : xdr_get_u32(res) + 1);
	rpc_reply(call);
	free(q);
}

static void dispatch(struct rpc_call *call, void *arg)
{
	struct rpc_req *q;
	const uint8_t *p;
	uint32_t n;

	(void)arg;
	switch (call->c_proc) {
	case P_ECHO:
		p = xdr_get_opaque(&call->c_args, LARGE, &n);
		xdr_put_opaque(&call->c_reply, p, n);
		break;
	case P_SIZED:
		n = xdr_get_u32(&call->c_args);
		xdr_put_opaque(&call->c_reply, pattern, n < LARGE ? n : LARGE);
		break;
	case P_BACK: /* asks the caller first, on the same connection */
		q = malloc(sizeof *q + sizeof call);
		memcpy(q + 1, &call, sizeof call);
		rpc_req_init(q, PROG, 1, P_SIZED, NULL, 64, back_done);
		xdr_put_u32(&q->q_args, xdr_get_u32(&call->c_args));
		rpc_req_send(call->c_conn, q, 10000);
		return;
	case P_DROP:
		rpc_conn_close(call->c_conn);
		break;
	default:
		break;
	}
	rpc_reply(call);
}

static void on_opened(struct rpc_conn *c, void *arg)
{
	(void)arg;
	if (!rpc_conn_is_rdma(c))
		say(false, "it is an RDMA connection");
	opened++;
}

static void on_closed(struct rpc_conn *c, void *arg)
{
	(void)c;
	(void)arg;
	closed++;
}

static const struct rpc_program program = {PROG, 1, 1, P_N, dispatch, NULL};
static const struct rpc_service service = {.rs_progs = &program,
					   .rs_nprogs = 1,
					   .rs_max_record = LARGE + 4096,
					   .rs_max_reply = LARGE + 4096,
					   .rs_opened = on_opened,
					   .rs_closed = on_closed};

static void listens(void *arg, bool yes)
{
	(void)arg;
	listening = yes;
}

/* ---- the caller, on loop 0 ---- */

struct call {
	struct rpc_req q;
	uint32_t proc, len, reply_max, want_len;
	int want_err;
};

static struct rpc_client *client;
static _Atomic int waiting, wrong, ended_with;

static void done(struct rpc_req *q, int err, struct xdr_in *res)
{
	struct call *c = (struct call *)q;
	const uint8_t *p;
	uint32_t n;

	ended_with = err;
	if (err != c->want_err)
		wrong++;
	if (!err && (c->proc == P_ECHO || c->proc == P_SIZED)) {
		p = xdr_get_opaque(res, LARGE, &n);
		if (res->bad || n != c->want_len || memcmp(p, pattern, n))
			wrong++;
	} else if (!err && c->proc == P_BACK && xdr_get_u32(res) != c->len + 1) {
		wrong++;
	}
	free(c);
	waiting--;
}

static void call(uint32_t proc, uint32_t len, uint32_t reply_max, int want_err)
{
	struct call *c = calloc(1, sizeof *c);

	c->proc = proc;
	c->len = c->want_len = len;
	c->want_err = want_err;
	waiting++;
	rpc_req_init(&c->q, PROG, 1, proc, NULL, LARGE + 4096, done);
	c->q.q_reply_max = reply_max;
	if (proc == P_ECHO)
		xdr_put_opaque(&c->q.q_args, pattern, len);
	else
		xdr_put_u32(&c->q.q_args, len);
	rpc_client_send(client, &c->q, 20000);
}

/* Steps run on loop 0; the main thread waits for them. */
struct step {
	struct loop_msg m;
	void (*run)(void);
	_Atomic int over;
};

static void step_run(struct loop_msg *m)
{
	struct step *s = (struct step *)m;

	s->run();
	s->over = 1;
}

static bool step(void (*run)(void))
{
	struct step s = {.m = {.m_run = step_run}, .run = run};

	wrong = 0;
	loop_post(loops[0], &s.m);
	while (!s.over)
		usleep(500);
	for (int i = 0; i < 60000 && waiting; i++)
		usleep(500);
	return !waiting && !wrong;
}

static void begin(void)
{
	rpc_client_create(&client, loops[0], (struct sockaddr *)&addr, addrlen, &service, NULL,
			  NULL);
	rpc_client_use_rdma(client);
}

static void end(void)
{
	rpc_client_destroy(client);
}

static void many_small(void)
{
	for (unsigned i = 0; i < CALLS; i++)
		call(P_ECHO, (uint32_t)random() % 3000, 0, 0);
}

static void large(void)
{
	for (unsigned i = 0; i < 40; i++) {
		call(P_ECHO, 4096 + (uint32_t)random() % 100000, 128 * 1024, 0);
		call(P_SIZED, (uint32_t)random() % 200000, 200 * 1024, 0);
		call(P_SIZED, 100, 4096, 0);
	}
	call(P_SIZED, LARGE - 100, LARGE, 0);
}

static void too_long(void)
{
	call(P_SIZED, 60000, 0, -EPROTO);
	call(P_SIZED, 60000, 50000, -EPROTO);
	call(P_ECHO, 100, 0, 0);
}

static void backwards(void)
{
	for (unsigned i = 0; i < 300; i++)
		call(P_BACK, 1000 + i, 0, 0);
}

/* The caller's loop looks at nothing for a while, once its calls have left, which is in another
 * hook: then there are a call backwards and the completions of all that it sent, and it sees the
 * call first where receives have a queue of their own. */
static bool late;

static void hold_up(struct loop_hook *h)
{
	(void)h;
	if (late)
		usleep(300000);
	late = false;
}

static void backwards_late(void)
{
	static struct loop_hook h = {.h_run = hold_up};

	loop_at_turn_end(loops[0], &h);
	late = true;
	backwards();
}

static void dropped(void)
{
	for (unsigned i = 0; i < 10; i++)
		call(P_DROP, 0, 0, -ECONNRESET);
}

static void one(void)
{
	call(P_ECHO, 100, 0, 0);
}

static void nowhere(void)
{
	if (addr.ss_family == AF_INET6)
		((struct sockaddr_in6 *)&addr)->sin6_port = htons(9);
	else
		((struct sockaddr_in *)&addr)->sin_port = htons(9);
	begin();
	call(P_ECHO, 100, 0, -ECONNREFUSED);
}

/* The list of devices is looked at each second, which opens some for a moment: the fewest of a few
 * looks. */
static unsigned descriptors(void)
{
	unsigned least = ~0u;

	for (unsigned i = 0; i < 5; i++) {
		DIR *d = opendir("/proc/self/fd");
		unsigned n = 0;

		while (d && readdir(d))
			n++;
		closedir(d);
		least = n < least ? n : least;
		usleep(20000);
	}
	return least;
}

static bool all_closed(void)
{
	for (int i = 0; i < 4000 && opened != closed; i++)
		usleep(1000);
	usleep(300000);
	return opened == closed;
}

static void *run(void *arg)
{
	loop_run(arg);
	return NULL;
}

int main(int argc, char **argv)
{
	struct rpc_rdma_opts opts = {.ro_loops = loops, .ro_nloops = 2};
	unsigned before, after, kept = 0, most = 200;
	bool ended;
	struct conf *conf;
	char err[256];
	pthread_t tid;
	int at = 3;

	setvbuf(stdout, NULL, _IOLBF, 0);
	srandom(1);
	if (argc < 3 || rpc_addr_parse(argv[1], RPC_RDMA_PORT, &addr, &addrlen) ||
	    rpc_addr_parse(argv[2], RPC_RDMA_PORT, &on, &onlen) ||
	    conf_load(&conf, NULL, err, sizeof err) || pool_init(16 << 20, err, sizeof err))
		return 2;
	if (argc > 3 && !strchr(argv[3], '='))
		most = (unsigned)atoi(argv[at++]);
	for (int i = at; i < argc; i++)
		if (conf_set(conf, argv[i], err, sizeof err))
			return 2;
	for (unsigned i = 0; i < LARGE; i++)
		pattern[i] = (uint8_t)(i * 7 + i / 251);
	rpc_rdma_conf(&opts, conf);
	for (unsigned i = 0; i < 2; i++) {
		loop_create(&loops[i], 256);
		pthread_create(&tid, NULL, run, loops[i]);
	}
	rpc_rdma_start(&opts);
	rpc_listen_rdma(loops[0], (struct sockaddr *)&on, onlen, &service, listens, NULL);
	for (int i = 0; i < 100 && !listening; i++)
		usleep(50000);
	say(listening, "the listener is told to be up");

	step(begin);
	say(step(one), "a call is answered");
	say(pool_registered == 1 &&
		    pool_access == (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING),
	    "the pool is registered once, for local access only, and relaxed ordering is asked "
	    "for");
	say(step(many_small), "many at once are");
	say(step(large), "long calls and long replies go in chunks");
	say(step(too_long),
	    "a reply that has no room is an error of its call, and of nothing else");
	say(step(backwards), "calls go backwards on the same connection");
	say(step(dropped), "calls end with their connection");
	say(step(one), "and others go on a new one");
	/* whose other end is on the other loop */
	say(step(backwards_late), "calls go backwards to one who is late to look");
	step(end);
	say(all_closed(), "what was opened is closed");
	before = descriptors();
	for (unsigned i = 0; i < most; i++) {
		step(begin);
		kept += step(one);
		step(end);
	}
	say(kept == most, "connections come and go");
	ended = all_closed();
	after = descriptors();
	if (!ended || after != before)
		printf("#   opened: %d, closed: %d, descriptors: %u before, %u after\n", opened,
		       closed, before, after);
	say(ended && after == before, "and leave nothing open");
	say(step(nowhere), "where nobody listens, calls are refused");
	printf("# last error %s\n", strerror(-ended_with));
	_exit(failures != 0);
}
