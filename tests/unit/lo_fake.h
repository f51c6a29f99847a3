/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lo_fake.h - for lo_test.c: an MDS side of two loops with its data-server tables and layouts, and
 * fake data servers on a third loop, which speak the control protocol and NFSv3 over loopback
 * sockets and keep their objects in memory.
 */
#ifndef TESTS_UNIT_LO_FAKE_H
#define TESTS_UNIT_LO_FAKE_H
#include "mds/dataserver/ds_reg_int.h"
#include "mds/layout/lo_int.h"
#include "proto/ctl_chan.h"
#include "proto/nfs3.h"
#include "tests/unit/on_loop.h"
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <jansson.h>
#include <semaphore.h>
#include <sodium.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
#include <urcu/compiler.h>

/* How much longer what the tests wait for may take. */
#ifdef __SANITIZE_THREAD__
#define SLOW 4
#else
#define SLOW 1
#endif
#define LEASE_MS (SLOW * 1500)
#define FAKES	 5
#define OBJ_MAX	 (8u << 20)
#define MIB	 (1u << 20)

static uint8_t cluster_key[32] = "the cluster's key of this test..";
static char dir[64];
static uint32_t lease_ms = LEASE_MS;
static struct kv *kv;
static struct ns *ns;
static struct ds_reg *dsc;
static struct lo *lo;
static struct loop *loops[2], *fake_loop;
static pthread_t threads[3];
static struct rpc_listener *listener;
static uint16_t mds_port;

static void *thread(void *l)
{
	loop_run(l);
	return NULL;
}

static void nap(unsigned ms)
{
	usleep(ms * 1000);
}

#define eventually(cond)                                                                           \
	do {                                                                                       \
		unsigned tries_ = 0;                                                               \
		while (!(cond) && tries_++ < 6000)                                                 \
			nap(10);                                                                   \
		ck_assert_msg(cond, "never: %s", #cond);                                           \
	} while (0)

/* ---- a fake data server ---- */

struct object {
	struct cap_object ob_key;
	uint8_t *ob_data; /* NULL: it was never written to */
	uint64_t ob_room, ob_size, ob_writes, ob_order;
	_Atomic uint32_t ob_epoch;
	bool ob_gone;
};
struct fake {
	unsigned f_n;
	uint8_t f_uuid[16], f_key[16];
	struct rpc_client *f_client;
	struct ctl_chan *_Atomic f_chan;
	struct rpc_program f_ctl, f_nfs;
	struct rpc_listener *f_listener;
	struct object f_obj[64];
	_Atomic unsigned f_nobj;
	_Atomic uint64_t f_verifier;
	/* settings */
	_Atomic int f_order_status;   /* ctl_status */
	_Atomic uint32_t f_nfs_error; /* answered to each NFS call */
	_Atomic bool f_no_beats, f_other_cluster;
	/* so many batches of orders are answered with another operation's result */
	_Atomic unsigned f_babble;
	_Atomic bool f_hold_rest;    /* batches have no answer but those of fences and bars */
	_Atomic uint32_t f_lease_ms; /* as the last heartbeat's answer has it */
	_Atomic bool f_hold;	     /* orders have no answer: the request is */
	struct ctl_incoming *_Atomic f_held;
	_Atomic uint32_t f_max;
	/* what was seen */
	ctl_order f_clone;
	_Atomic unsigned f_clone_at, f_cut_at; /* good orders: which was it? */
	_Atomic unsigned f_joins, f_orders, f_cuts, f_reads, f_writes, f_commits, f_stats;
	_Atomic int f_join_status; /* -1: none yet */
	_Atomic uint32_t f_id;
	uint8_t f_order_types[64], f_order_known[64]; /* of the orders that f_orders counts */
	_Atomic bool f_orders_before_join;
	struct loop_timer f_beat;
	bool f_up;
};
static struct fake fakes[FAKES];

static struct object *object_get(struct fake *f, uint64_t ino, unsigned stripe, unsigned mirror,
				 bool make)
{
	struct object *o;

	for (unsigned i = 0; i < f->f_nobj; i++) {
		o = &f->f_obj[i];
		if (o->ob_key.co_ino == ino && o->ob_key.co_stripe == stripe &&
		    o->ob_key.co_copy == mirror)
			return o;
	}
	if (!make)
		return NULL;
	ck_assert_uint_lt(f->f_nobj, 64);
	o = &f->f_obj[f->f_nobj];
	o->ob_key = (struct cap_object){
		.co_ino = ino, .co_stripe = (uint8_t)stripe, .co_copy = (uint8_t)mirror};
	f->f_nobj++;
	return o;
}

/* No larger than it has to be: for ThreadSanitizer each byte costs several. */
static void object_grow(struct object *o, uint64_t size)
{
	uint64_t room = o->ob_room ? o->ob_room : 4096;

	while (room < size)
		room *= 2;
	if (room == o->ob_room)
		return;
	o->ob_data = realloc(o->ob_data, room);
	ck_assert_ptr_nonnull(o->ob_data);
	memset(o->ob_data + o->ob_room, 0, room - o->ob_room);
	o->ob_room = room;
}

static uint32_t check_handle(struct fake *f, struct xdr_in *x, struct cap *c, bool write)
{
	const uint8_t *fh;
	uint32_t len;

	fh = xdr_get_opaque(x, 64, &len);
	ck_assert_uint_eq(len, CAP_LEN);
	if (!cap_open(fh, f->f_key, c))
		return NFS3ERR_BADHANDLE;
	ck_assert_uint_eq(c->cp_client, 0);
	if (f->f_nfs_error)
		return f->f_nfs_error;
	return write && !(c->cp_rights & CAP_WRITE) ? NFS3ERR_ACCES : 0;
}

static void fake_read(struct fake *f, struct rpc_call *call)
{
	struct xdr_in *x = &call->c_args;
	struct cap c;
	uint32_t st = check_handle(f, x, &c, false), n;
	uint64_t off = xdr_get_u64(x);
	struct object *o =
		object_get(f, c.cp_obj.co_ino, c.cp_obj.co_stripe, c.cp_obj.co_copy, false);

	n = xdr_get_u32(x);
	atomic_fetch_add(&f->f_reads, 1);
	if (!st && !o && (c.cp_rights & CAP_MUST_EXIST))
		st = NFS3ERR_STALE;
	xdr_put_u32(&call->c_reply, st);
	xdr_put_bool(&call->c_reply, false);
	if (!st) {
		uint64_t size = o ? o->ob_size : 0;

		ck_assert_uint_le(n, f->f_max);
		n = off >= size ? 0 : size - off < n ? (uint32_t)(size - off) : n;
		xdr_put_u32(&call->c_reply, n);
		xdr_put_bool(&call->c_reply, off + n >= size);
		xdr_put_opaque(&call->c_reply, n ? o->ob_data + off : (uint8_t *)"", n);
	}
	rpc_reply(call);
}

static void fake_write(struct fake *f, struct rpc_call *call)
{
	struct xdr_in *x = &call->c_args;
	struct cap c;
	uint32_t st = check_handle(f, x, &c, true), n, stable, len;
	uint64_t off = xdr_get_u64(x);
	const uint8_t *p;

	n = xdr_get_u32(x);
	stable = xdr_get_u32(x);
	p = xdr_get_opaque(x, UINT32_MAX, &len);
	ck_assert_uint_eq(n, len);
	ck_assert_uint_le(n, f->f_max);
	ck_assert_uint_le(off + n, OBJ_MAX);
	atomic_fetch_add(&f->f_writes, 1);
	xdr_put_u32(&call->c_reply, st);
	nfs3_put_wcc(&call->c_reply, NULL);
	if (!st) {
		struct object *o =
			object_get(f, c.cp_obj.co_ino, c.cp_obj.co_stripe, c.cp_obj.co_copy, true);

		object_grow(o, off + n);
		memcpy(o->ob_data + off, p, n);
		o->ob_size = off + n > o->ob_size ? off + n : o->ob_size;
		o->ob_writes++;
		xdr_put_u32(&call->c_reply, n);
		xdr_put_u32(&call->c_reply, stable);
		xdr_put_u64(&call->c_reply, f->f_verifier);
	}
	rpc_reply(call);
}

static void fake_commit(struct fake *f, struct rpc_call *call)
{
	struct cap c;
	uint32_t st = check_handle(f, &call->c_args, &c, true);

	atomic_fetch_add(&f->f_commits, 1);
	xdr_put_u32(&call->c_reply, st);
	nfs3_put_wcc(&call->c_reply, NULL);
	if (!st)
		xdr_put_u64(&call->c_reply, f->f_verifier);
	rpc_reply(call);
}

static void fake_nfs(struct rpc_call *call, void *arg)
{
	struct fake *f = arg;

	if (call->c_proc == NFS3_READ)
		fake_read(f, call);
	else if (call->c_proc == NFS3_WRITE)
		fake_write(f, call);
	else if (call->c_proc == NFS3_COMMIT)
		fake_commit(f, call);
	else
		rpc_reply(call);
}

static ctl_status fake_order(struct fake *f, const ctl_order *a)
{
	struct object *o = object_get(f, a->object.ino, a->object.stripe, a->object.mirror, true);
	unsigned n = f->f_orders;

	f->f_order_types[n % 64] = (uint8_t)a->type;
	f->f_order_known[n % 64] = (uint8_t)a->known;
	f->f_orders = n + 1;
	f->f_cuts += a->type == CTL_TRUNCATE;
	if (f->f_order_status != CTL_OK)
		return (ctl_status)f->f_order_status;
	if (a->type == CTL_CLONE) {
		f->f_clone = *a;
		f->f_clone_at = n;
	}
	if (a->type == CTL_TRUNCATE && a->object.ino == 700)
		f->f_cut_at = n;
	/* A fence of number 0 has overtaken others, and says nothing of them. */
	ck_assert_msg(a->number > o->ob_order || (!a->number && a->type == CTL_FENCE),
		      "orders of one object run in order");
	o->ob_order = a->number ? a->number : o->ob_order;
	if (a->type == CTL_TRUNCATE && o->ob_size > a->size)
		o->ob_size = a->size;
	if (a->type == CTL_FENCE)
		o->ob_epoch = a->epoch;
	if (a->type == CTL_DELETE)
		o->ob_gone = true;
	return CTL_OK;
}

static void fake_serve(struct ctl_incoming *in, void *arg)
{
	static ctl_status results[CTL_BATCH_MAX];
	static ctl_stat stats[CTL_BATCH_MAX];
	struct fake *f = arg;
	ctl_result res = {.op = in->in_req.op};
	const ctl_orders_args *oa = &in->in_req.ctl_request_u.orders;
	const ctl_stat_args *sa = &in->in_req.ctl_request_u.stat;

	for (unsigned i = 0;
	     f->f_hold_rest && in->in_req.op == CTL_OP_ORDERS && i < oa->orders.orders_len; i++) {
		if (oa->orders.orders_val[i].type == CTL_FENCE ||
		    oa->orders.orders_val[i].type == CTL_BAR_CLIENT)
			continue;
		f->f_held = in;
		return;
	}
	if (in->in_req.op == CTL_OP_ORDERS && f->f_hold) {
		f->f_held = in;
		return;
	}
	if (in->in_req.op == CTL_OP_ORDERS && f->f_babble) {
		atomic_fetch_sub(&f->f_babble, 1);
		res.op = CTL_OP_JOIN;
	} else if (in->in_req.op == CTL_OP_ORDERS) {
		if (f->f_join_status < 0)
			f->f_orders_before_join = true;
		for (unsigned i = 0; i < oa->orders.orders_len; i++)
			results[i] = fake_order(f, &oa->orders.orders_val[i]);
		res.ctl_result_u.orders.results.results_len = oa->orders.orders_len;
		res.ctl_result_u.orders.results.results_val = results;
	} else {
		atomic_fetch_add(&f->f_stats, 1);
		for (unsigned i = 0; i < sa->objects.objects_len; i++) {
			const ctl_object *k = &sa->objects.objects_val[i];
			struct object *o = object_get(f, k->ino, k->stripe, k->mirror, false);

			stats[i] = (ctl_stat){.status = o ? CTL_OK : CTL_NOENT};
			if (o) {
				stats[i].durable = true;
				stats[i].size = o->ob_size;
				stats[i].used = o->ob_size;
				stats[i].writes = o->ob_writes;
			}
		}
		res.ctl_result_u.stat.stats.stats_len = sa->objects.objects_len;
		res.ctl_result_u.stat.stats.stats_val = stats;
	}
	ctl_chan_reply(in, CTL_OK, &res);
}

static void fake_ctl(struct rpc_call *call, void *arg)
{
	struct fake *f = arg;

	if (f->f_chan)
		ctl_chan_sealed(f->f_chan, call);
	else
		rpc_reply_error(call, RPC_A_SYSTEM_ERR);
}

static void fake_joined(void *arg, int err, const ctl_response *res)
{
	struct fake *f = arg;

	if (err)
		return;
	if (res->status == CTL_OK) {
		f->f_id = res->result.ctl_result_u.join2.join.ds_id;
		ck_assert_uint_eq(res->result.ctl_result_u.join2.join.lease_ms, lease_ms);
		ck_assert_uint_eq(res->result.ctl_result_u.join2.join.instance_epoch,
				  ns_super(ns)->su_boot);
	}
	atomic_store(&f->f_join_status, (int)res->status);
	atomic_fetch_add(&f->f_joins, 1);
}

static void fake_join(struct fake *f)
{
	char netid[8], uaddr[64], name[8], labels[] = "rack=r1";
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	ctl_addr addr = {netid, uaddr, 0};
	ctl_request req = {.op = CTL_OP_JOIN2};
	ctl_join_args *j = &req.ctl_request_u.join2.join;

	in.sin_port = htons(rpc_listener_port(f->f_listener));
	rpc_uaddr((struct sockaddr *)&in, netid, sizeof(netid), uaddr, sizeof(uaddr));
	snprintf(name, sizeof(name), "ds%u", f->f_n + 1);
	memcpy(j->ds_uuid, f->f_uuid, 16);
	if (f->f_other_cluster)
		memset(j->cluster, 7, 16);
	j->name = name;
	j->addrs.addrs_len = 1;
	j->addrs.addrs_val = &addr;
	j->max_read = j->max_write = f->f_max;
	j->capacity = 100ull << 30;
	j->available = 50ull << 30;
	j->labels = labels;
	ctl_chan_call(f->f_chan, &req, 8000, fake_joined, f);
}

static inline void fake_join_again(void *arg)
{
	fake_join(arg);
}

static inline void fake_answer_held(void *arg)
{
	struct fake *f = arg;

	f->f_hold = f->f_hold_rest = false;
	fake_serve(f->f_held, f);
}

static void fake_ready(struct ctl_chan *ch, int err, void *arg)
{
	(void)ch;
	ck_assert_int_eq(err, 0);
	fake_join(arg);
}

static void beat_done(void *arg, int err, const ctl_response *res)
{
	struct fake *f = arg;

	if (!err && res->result.op == CTL_OP_HEARTBEAT)
		f->f_lease_ms = res->result.ctl_result_u.heartbeat.lease_ms;
}

static void fake_beat(struct loop_timer *t)
{
	struct fake *f = caa_container_of(t, struct fake, f_beat);
	ctl_request req = {.op = CTL_OP_HEARTBEAT};

	req.ctl_request_u.heartbeat.capacity = 100ull << 30;
	req.ctl_request_u.heartbeat.available = 50ull << 30;
	if (f->f_chan && !f->f_no_beats && f->f_join_status == CTL_OK)
		ctl_chan_call(f->f_chan, &req, 2000, beat_done, f);
	loop_timer_start(fake_loop, t, LEASE_MS / 5);
}

static void fake_conn_up(struct rpc_client *cl, struct rpc_conn *conn, void *arg)
{
	struct fake *f = arg;
	struct ctl_chan *ch;

	(void)cl;
	atomic_store(&f->f_join_status, -1);
	ck_assert_int_eq(
		ctl_chan_connect(&ch, conn, cluster_key, f->f_uuid, fake_serve, f, fake_ready), 0);
	f->f_chan = ch;
}

static void fake_conn_down(struct rpc_client *cl, int err, void *arg)
{
	struct fake *f = arg;
	struct ctl_chan *ch = f->f_chan;

	(void)cl;
	(void)err;
	f->f_chan = NULL;
	if (ch)
		ctl_chan_free(ch);
}

static void fake_connect(void *arg)
{
	struct fake *f = arg;
	struct rpc_service svc = {.rs_progs = &f->f_ctl,
				  .rs_nprogs = 1,
				  .rs_max_record = 100000,
				  .rs_max_reply = 100000};
	struct rpc_client_ops ops = {fake_conn_up, fake_conn_down};
	struct sockaddr_in in = {.sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				 .sin_port = htons(mds_port)};

	ck_assert_int_eq(rpc_client_create(&f->f_client, fake_loop, (struct sockaddr *)&in,
					   sizeof(in), &svc, &ops, f),
			 0);
	rpc_client_start(f->f_client);
	f->f_up = true;
}

static void fake_disconnect(void *arg)
{
	struct fake *f = arg;

	fake_conn_down(NULL, 0, f);
	rpc_client_destroy(f->f_client);
	f->f_client = NULL;
	f->f_up = false;
}

static void fake_born(void *arg)
{
	struct fake *f = arg;
	struct rpc_service svc = {.rs_progs = &f->f_nfs,
				  .rs_nprogs = 1,
				  .rs_max_record = 2 * MIB,
				  .rs_max_reply = 2 * MIB};
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	memset(f, 0, sizeof(*f));
	f->f_n = (unsigned)(f - fakes);
	memset(f->f_uuid, 0x10 + (int)f->f_n, 16);
	cap_derive_key(cluster_key, f->f_uuid, 0, f->f_key);
	f->f_verifier = 1000 + f->f_n;
	f->f_max = MIB;
	f->f_join_status = -1;
	f->f_ctl = (struct rpc_program){CTL_PROGRAM,	     CTL_VERSION, CTL_VERSION,
					CTL_PROC_SEALED + 1, fake_ctl,	  f};
	f->f_nfs = (struct rpc_program){NFS3_PROGRAM, 3, 3, NFS3_NPROCS, fake_nfs, f};
	ck_assert_int_eq(rpc_listen(&f->f_listener, fake_loop, (struct sockaddr *)&in, sizeof(in),
				    &svc, &fake_loop, 1),
			 0);
	f->f_beat.t_fire = fake_beat;
	loop_timer_start(fake_loop, &f->f_beat, LEASE_MS / 5);
}

static void join_fakes(unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		if (fakes[i].f_up)
			continue;
		on_loop(fake_loop, fake_connect, &fakes[i]);
		eventually(fakes[i].f_join_status == CTL_OK);
	}
}

static unsigned alive(void)
{
	uint32_t ids[DS_REG_MAX];
	uint64_t available[DS_REG_MAX];

	return ds_reg_alive(dsc, ids, available, DS_REG_MAX);
}

/* ---- the MDS ---- */

static void mds_closed(struct rpc_conn *c, void *arg)
{
	(void)arg;
	ds_reg_conn_closed(dsc, c);
}

static void mds_opened(struct rpc_conn *c, void *arg)
{
	(void)c;
	(void)arg;
}

static void mds_listen(void *arg)
{
	struct rpc_service svc = {.rs_progs = ds_reg_program(dsc),
				  .rs_nprogs = 1,
				  .rs_max_record = 100000,
				  .rs_max_reply = 100000,
				  .rs_opened = mds_opened,
				  .rs_closed = mds_closed};
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	(void)arg;
	ck_assert_int_eq(
		rpc_listen(&listener, loops[0], (struct sockaddr *)&in, sizeof(in), &svc, loops, 2),
		0);
	mds_port = rpc_listener_port(listener);
}

static void setup(void)
{
	struct kv_opts ko = {.ko_create = true, .ko_nosync = true, .ko_map_max = 1ull << 30};
	struct ds_reg_opts o = {.do_cluster_key = cluster_key,
				.do_lease_ms = lease_ms,
				.do_dead_ms = lease_ms,
				.do_loops = loops,
				.do_nloops = 2};
	char err[256] = "";

	ck_assert_int_ge(sodium_init(), 0);
	strcpy(dir, "/tmp/lo_test.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	ck_assert_msg(!kv_open(&kv, dir, &ko, err, sizeof(err)), "%s", err);
	ck_assert_msg(!ns_open(&ns, kv, err, sizeof(err)), "%s", err);
	for (unsigned i = 0; i < 2; i++)
		ck_assert_int_eq(loop_create(&loops[i], 256), 0);
	ck_assert_int_eq(loop_create(&fake_loop, 256), 0);
	ck_assert_msg(!ds_reg_create(&dsc, ns, &o, err, sizeof(err)), "%s", err);
	ck_assert_int_eq(lo_create(&lo, ns, dsc), 0);
	pthread_create(&threads[0], NULL, thread, loops[0]);
	pthread_create(&threads[1], NULL, thread, loops[1]);
	pthread_create(&threads[2], NULL, thread, fake_loop);
	on_loop(loops[0], mds_listen, NULL);
	for (unsigned i = 0; i < FAKES; i++)
		on_loop(fake_loop, fake_born, &fakes[i]);
}

static void fake_gone(void *arg)
{
	struct fake *f = arg;

	if (f->f_up)
		fake_disconnect(f);
	rpc_listener_close(f->f_listener);
	loop_timer_stop(fake_loop, &f->f_beat);
}

static void watch_stop(void *arg)
{
	loop_timer_stop(loops[0], arg);
}

static void mds_unlisten(void *arg)
{
	(void)arg;
	rpc_listener_close(listener);
}

static void mds_close(void *arg)
{
	(void)arg;
	ds_reg_data_close(dsc);
}

static void pass(void *arg)
{
	(void)arg;
}

/* Waits until each loop has run the messages that it had, and those that came of them. */
static void loops_settle(void)
{
	for (unsigned round = 0; round < 4; round++) {
		on_loop(loops[0], pass, NULL);
		on_loop(loops[1], pass, NULL);
		on_loop(fake_loop, pass, NULL);
	}
}

/* A clean end, so that the leak checker sees what is really lost. */
static void teardown(void)
{
	char cmd[100];

	/* While the registry watches, it asks the data servers and judges them. */
	on_loop(loops[0], watch_stop, &dsc->d_timer);
	for (unsigned i = 0; i < FAKES; i++)
		on_loop(fake_loop, fake_gone, &fakes[i]);
	on_loop(loops[0], mds_unlisten, NULL);
	on_loop(loops[0], mds_close, NULL);
	on_loop(loops[1], mds_close, NULL);
	eventually(!dsc->d_nlinks);
	loops_settle();
	loop_stop(loops[0]);
	loop_stop(loops[1]);
	loop_stop(fake_loop);
	for (unsigned i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	for (unsigned i = 0; i < FAKES; i++)
		for (unsigned o = 0; o < fakes[i].f_nobj; o++)
			free(fakes[i].f_obj[o].ob_data);
	ns_close(ns);
	kv_close(kv);
	lo_destroy(lo);
	ds_reg_destroy(dsc);
	loop_destroy(loops[0]);
	loop_destroy(loops[1]);
	loop_destroy(fake_loop);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	ck_assert_int_eq(system(cmd), 0);
}
#endif
