/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ds_wire.h - a live weft-ds over real sockets. The test is its MDS (the control protocol, on a
 * loop of its own) and its NFS client. Handles are minted here, as the MDS does. Each test program
 * has its own: all is static.
 */
#ifndef TESTS_WIRE_DS_WIRE_H
#define TESTS_WIRE_DS_WIRE_H
#include "base/log.h"
#include "base/metrics.h"
#include "proto/cap.h"
#include "proto/ctl_chan.h"
#include "proto/nfs3.h"
#include "proto/objname.h"
#include "tests/unit/unit.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <urcu/compiler.h>

#define FS  7
#define INO 0x1122334455667788ull
/* an inode number with its file system number, as version 2 of the capability has it */
#define INO2 ((uint64_t)FS << 48 | 99)
#define MIB  (1u << 20)

static const uint8_t cluster_key[32] = "the cluster key of the ds tests";
static const uint8_t cluster_uuid[16] = "test cluster id";

static char dir[64], store[96], admin[96];
static pid_t ds_pid;
static struct loop *L;
static pthread_t loop_thread;
static struct rpc_client *nfs;

/* ---- the MDS; all on L, but for what is atomic ---- */

static struct rpc_listener *mds_listener;
static uint16_t mds_port;
static struct ctl_chan *mds_chan;
static _Atomic uint64_t mds_instance = 5;
static _Atomic uint32_t mds_lease_ms = 30000;
static _Atomic bool mds_mute, eof_mute, mds_bad_uuid;
static _Atomic uint64_t eof_size;
static _Atomic int eof_status, eof_calls, joins;
static _Atomic int beats; /* of the data server that joined last */
static struct ctl_chan *_Atomic joined_by;
static uint8_t ds_uuid[16];
static struct sockaddr_storage ds_addr;
static socklen_t ds_addrlen;
static char ds_name[65];
static uint64_t join_verifier, join_order_high;
static int mds_striped2_ms = -1; /* sent in JOIN2's result; -1: not sent */

/* Requests that the MDS keeps to itself; answered when the test is over. */
static struct ctl_incoming *unanswered[64];
static unsigned nunanswered;
static uint64_t kept_size; /* the answer to kept queries about the end of a file; 0: an error */

static void keep(struct ctl_incoming *in)
{
	ck_assert_uint_lt(nunanswered, 64);
	unanswered[nunanswered++] = in;
}

static void mds_join(struct ctl_incoming *in)
{
	const ctl_join_args *j = &in->in_req.ctl_request_u.join2.join;
	ctl_result res = {.op = CTL_OP_JOIN2};
	ctl_join_res *r = &res.ctl_result_u.join2.join;

	/* the test's thread reads it: do not write it at each join */
	if (memcmp(ds_uuid, j->ds_uuid, 16))
		memcpy(ds_uuid, j->ds_uuid, 16);
	snprintf(ds_name, sizeof ds_name, "%s", j->name);
	join_verifier = j->boot_verifier;
	join_order_high = j->order_high;
	ck_assert_uint_ge(j->addrs.addrs_len, 1);
	ck_assert_int_eq(rpc_uaddr_parse(j->addrs.addrs_val[0].netid, j->addrs.addrs_val[0].uaddr,
					 &ds_addr, &ds_addrlen),
			 0);
	ck_assert_uint_eq(j->max_read, MIB);
	ck_assert_uint_gt(j->capacity, 0);
	memcpy(r->cluster, cluster_uuid, 16);
	if (mds_bad_uuid)
		r->cluster[0] ^= 1;
	r->fs = FS;
	r->ds_id = 3;
	r->instance_epoch = mds_instance;
	r->lease_ms = mds_lease_ms;
	uint64_t in_ms = htobe64((uint64_t)mds_striped2_ms);
	ctl_more more = {.kind = CTL_MORE_STRIPED2,
			 .data = {.data_len = 8, .data_val = (char *)&in_ms}};

	res.ctl_result_u.join2.more.more_len = mds_striped2_ms >= 0;
	res.ctl_result_u.join2.more.more_val = &more;
	joined_by = in->in_chan;
	ctl_chan_reply(in, CTL_OK, &res);
	atomic_fetch_add(&joins, 1);
}

static void mds_serve(struct ctl_incoming *in, void *arg)
{
	ctl_result res = {.op = in->in_req.op};
	bool last;

	(void)arg;
	switch (in->in_req.op) {
	case CTL_OP_JOIN2:
		mds_join(in);
		return;
	case CTL_OP_HEARTBEAT:
		if (mds_mute) {
			keep(in);
			return;
		}
		res.ctl_result_u.heartbeat.instance_epoch = mds_instance;
		res.ctl_result_u.heartbeat.lease_ms = mds_lease_ms;
		last = in->in_chan == joined_by;
		ctl_chan_reply(in, CTL_OK, &res);
		atomic_fetch_add(&beats, last);
		return;
	case CTL_OP_EOF:
		atomic_fetch_add(&eof_calls, 1);
		if (eof_mute) {
			keep(in);
			return;
		}
		ck_assert_uint_eq(in->in_req.ctl_request_u.eof.ino, INO);
		res.ctl_result_u.eof.size = eof_size;
		ctl_chan_reply(in, (ctl_status)eof_status, &res);
		return;
	default:
		ctl_chan_reply(in, CTL_INVAL, NULL);
	}
}

static void mds_dispatch(struct rpc_call *call, void *arg)
{
	struct ctl_chan *ch = rpc_conn_priv(call->c_conn);
	struct rpc_conn *conn = call->c_conn;

	(void)arg;
	if (call->c_proc == CTL_PROC_HELLO) {
		if (!ctl_chan_accept(&ch, call, FS, cluster_key, mds_serve, NULL)) {
			rpc_conn_set_priv(conn, ch);
			mds_chan = ch;
		}
	} else if (call->c_proc == CTL_PROC_SEALED && ch) {
		ctl_chan_sealed(ch, call);
	} else {
		rpc_reply_error(call, RPC_A_PROC_UNAVAIL);
	}
}

static void mds_opened(struct rpc_conn *c, void *arg)
{
	(void)c;
	(void)arg;
}

static void mds_closed(struct rpc_conn *c, void *arg)
{
	struct ctl_chan *ch = rpc_conn_priv(c);

	(void)arg;
	if (ch && ch == mds_chan)
		mds_chan = NULL;
	if (ch)
		ctl_chan_free(ch);
}

static const struct rpc_program mds_prog = {CTL_PROGRAM, CTL_VERSION,  CTL_VERSION,
					    3,		 mds_dispatch, NULL};
static const struct rpc_service mds_svc = {
	.rs_progs = &mds_prog,
	.rs_nprogs = 1,
	.rs_max_record = 1 << 20,
	.rs_max_reply = 1 << 20,
	.rs_opened = mds_opened,
	.rs_closed = mds_closed,
};

/* ---- running things on L and waiting for them ---- */

struct on_loop {
	struct loop_msg ol_msg;
	void (*ol_fn)(struct on_loop *ol);
	sem_t ol_done;
	void *ol_arg;
	int ol_err;
};

static void on_loop_run(struct loop_msg *m)
{
	struct on_loop *ol = caa_container_of(m, struct on_loop, ol_msg);

	ol->ol_fn(ol);
}

static void sem_down(sem_t *s)
{
	while (sem_wait(s))
		;
}

/* fn posts ol_done, now or later. */
static int on_loop(void (*fn)(struct on_loop *), void *arg)
{
	struct on_loop ol = {.ol_msg.m_run = on_loop_run, .ol_fn = fn, .ol_arg = arg};

	sem_init(&ol.ol_done, 0, 0);
	loop_post(L, &ol.ol_msg);
	sem_down(&ol.ol_done);
	return ol.ol_err;
}

static void msleep(unsigned ms)
{
	nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

/* Until cond, at most 30 s. */
#define wait_for(cond)                                                                             \
	do {                                                                                       \
		for (int i_ = 0; !(cond) && i_ < 3000; i_++)                                       \
			msleep(10);                                                                \
		ck_assert_msg(cond, "waited in vain: " #cond);                                     \
	} while (0)

/* ---- calls ---- */

/* A call under way; results are copied, for the test's thread to walk. */
struct nfs_call {
	struct rpc_req nc_req;
	struct on_loop *nc_ol;
	uint32_t nc_prog, nc_vers, nc_proc;
	struct xdr_out nc_args;
	uint8_t *nc_res;
	size_t nc_len;
	int nc_err;
	sem_t nc_done;
	struct loop_msg nc_msg;
	struct xdr_in nc_x;
	struct rpc_client *nc_client;
};

static void nfs_done(struct rpc_req *q, int err, struct xdr_in *res)
{
	struct nfs_call *c = caa_container_of(q, struct nfs_call, nc_req);

	c->nc_err = err;
	c->nc_len = xdr_left(res);
	c->nc_res = malloc(c->nc_len + 1);
	memcpy(c->nc_res, res->p, c->nc_len);
	xdr_in_init(&c->nc_x, c->nc_res, c->nc_len);
	sem_post(&c->nc_done);
}

static void nfs_send(struct loop_msg *m)
{
	struct nfs_call *c = caa_container_of(m, struct nfs_call, nc_msg);
	struct iovec iov[2 * XDR_SPLICES + 1];
	unsigned n;

	rpc_req_init(&c->nc_req, c->nc_prog, c->nc_vers, c->nc_proc, NULL, 2 * MIB, nfs_done);
	n = xdr_out_iov(&c->nc_args, iov);
	for (unsigned i = 0; i < n; i++)
		xdr_put_fixed(&c->nc_req.q_args, iov[i].iov_base, iov[i].iov_len);
	xdr_out_free(&c->nc_args);
	rpc_client_send(c->nc_client, &c->nc_req, 20000);
}

static struct nfs_call *call_new(uint32_t proc)
{
	struct nfs_call *c = calloc(1, sizeof *c);

	c->nc_prog = NFS3_PROGRAM;
	c->nc_vers = NFS3_VERSION;
	c->nc_proc = proc;
	c->nc_client = nfs;
	xdr_out_init(&c->nc_args, 2 * MIB);
	sem_init(&c->nc_done, 0, 0);
	return c;
}

static void call_start(struct nfs_call *c)
{
	c->nc_msg.m_run = nfs_send;
	loop_post(L, &c->nc_msg);
}

static struct xdr_in *call_wait(struct nfs_call *c)
{
	sem_down(&c->nc_done);
	return &c->nc_x;
}

static void call_free(struct nfs_call *c)
{
	free(c->nc_res);
	free(c);
}

/* ---- handles ---- */

static struct cap cap_make(unsigned rights)
{
	return (struct cap){
		.cp_obj = {.co_ino = INO,
			   .co_fs = FS,
			   .co_incarnation = 1,
			   .co_stripe = 2,
			   .co_copy = 1},
		.cp_rights = (uint8_t)rights,
		.cp_key = 1,
		.cp_epoch = 1,
		.cp_client = 42,
	};
}

struct fh {
	uint8_t b[CAP_LEN];
};

static struct fh mint(const struct cap *c)
{
	uint8_t key[CAP_KEY_LEN], own[CAP_CLUSTER_KEY_LEN];
	struct fh fh;

	cap_derive_fs(cluster_key, c->cp_obj.co_fs, own);
	cap_derive_key(own, ds_uuid, c->cp_key, key);
	cap_mint(c, key, fh.b);
	return fh;
}

static struct fh rw(void)
{
	struct cap c = cap_make(CAP_READ | CAP_WRITE);

	return mint(&c);
}

static ctl_object object_of(const struct cap *c)
{
	return (ctl_object){c->cp_obj.co_ino, c->cp_obj.co_fs, c->cp_obj.co_incarnation,
			    c->cp_obj.co_stripe, c->cp_obj.co_copy};
}

static const char *object_path(void)
{
	static char path[256];
	struct cap c = cap_make(0);
	char p[OBJPATH_MAX];

	objpath(&c.cp_obj, p);
	snprintf(path, sizeof path, "%s/%s", store, p);
	return path;
}

/* ---- NFS procedures ---- */

static struct nfs_call *write_start(struct fh fh, uint64_t off, const void *data, uint32_t n,
				    uint32_t how)
{
	struct nfs_call *c = call_new(NFS3_WRITE);

	xdr_put_opaque(&c->nc_args, fh.b, CAP_LEN);
	xdr_put_u64(&c->nc_args, off);
	xdr_put_u32(&c->nc_args, n);
	xdr_put_u32(&c->nc_args, how);
	xdr_put_opaque(&c->nc_args, data, n);
	call_start(c);
	return c;
}

/* The reply to COMMIT, or to a WRITE of n bytes; verf may be NULL. */
static uint32_t write_end(struct nfs_call *c, uint32_t n, uint32_t how, uint64_t *verf)
{
	struct xdr_in *x = call_wait(c);
	struct nfs3_fattr a;
	uint32_t st;

	ck_assert_int_eq(c->nc_err, 0);
	st = xdr_get_u32(x);
	nfs3_get_wcc(x, &a);
	if (st == NFS3_OK) {
		const uint8_t *v;

		if (c->nc_proc == NFS3_WRITE) {
			ck_assert_uint_eq(xdr_get_u32(x), n);
			ck_assert_uint_ge(xdr_get_u32(x), how);
		}
		v = xdr_get_fixed(x, 8);
		ck_assert_ptr_nonnull(v);
		if (verf)
			memcpy(verf, v, 8);
	}
	ck_assert(!x->bad);
	ck_assert_uint_eq(xdr_left(x), 0);
	call_free(c);
	return st;
}

static uint32_t do_write(struct fh fh, uint64_t off, const void *data, uint32_t n, uint32_t how)
{
	return write_end(write_start(fh, off, data, n, how), n, how, NULL);
}

static uint32_t do_commit(struct fh fh, uint64_t *verf)
{
	struct nfs_call *c = call_new(NFS3_COMMIT);

	xdr_put_opaque(&c->nc_args, fh.b, CAP_LEN);
	xdr_put_u64(&c->nc_args, 0);
	xdr_put_u32(&c->nc_args, 0);
	call_start(c);
	return write_end(c, 0, 0, verf);
}

static struct nfs_call *read_start(struct fh fh, uint64_t off, uint32_t n)
{
	struct nfs_call *c = call_new(NFS3_READ);

	xdr_put_opaque(&c->nc_args, fh.b, CAP_LEN);
	xdr_put_u64(&c->nc_args, off);
	xdr_put_u32(&c->nc_args, n);
	call_start(c);
	return c;
}

/* data has room for what was asked; *n is what came. */
static uint32_t read_end(struct nfs_call *c, void *data, uint32_t *n, bool *eof)
{
	struct xdr_in *x = call_wait(c);
	struct nfs3_fattr a;
	uint32_t st, len, count;
	const uint8_t *p;
	bool attrs;

	ck_assert_int_eq(c->nc_err, 0);
	st = xdr_get_u32(x);
	attrs = nfs3_get_post_op(x, &a);
	*n = 0;
	if (st == NFS3_OK) {
		/* clients lay out their buffers for them */
		ck_assert(attrs);
		ck_assert_uint_eq(a.fa_type, NF3REG);
		ck_assert_uint_ne(a.fa_uid, UINT32_MAX);
		ck_assert(a.fa_fileid == INO || a.fa_fileid == INO2);
		count = xdr_get_u32(x);
		*eof = xdr_get_bool(x);
		p = xdr_get_opaque(x, MIB, &len);
		ck_assert_ptr_nonnull(p);
		ck_assert_uint_eq(len, count);
		memcpy(data, p, len);
		*n = len;
	}
	ck_assert(!x->bad);
	ck_assert_uint_eq(xdr_left(x), 0);
	call_free(c);
	return st;
}

static uint32_t do_read(struct fh fh, uint64_t off, void *data, uint32_t *n, bool *eof)
{
	return read_end(read_start(fh, off, *n), data, n, eof);
}

static uint32_t read_status(struct fh fh)
{
	uint8_t buf[64];
	uint32_t n = sizeof buf;
	bool eof;

	return do_read(fh, 0, buf, &n, &eof);
}

static uint32_t do_getattr(struct fh fh, struct nfs3_fattr *a)
{
	struct nfs_call *c = call_new(NFS3_GETATTR);
	struct xdr_in *x;
	uint32_t st;

	xdr_put_opaque(&c->nc_args, fh.b, CAP_LEN);
	call_start(c);
	x = call_wait(c);
	ck_assert_int_eq(c->nc_err, 0);
	st = xdr_get_u32(x);
	if (st == NFS3_OK)
		nfs3_get_fattr(x, a);
	ck_assert(!x->bad);
	ck_assert_uint_eq(xdr_left(x), 0);
	call_free(c);
	return st;
}

/* ---- the MDS's requests ---- */

struct mds_call {
	const ctl_request *mc_req;
	ctl_status mc_status;
	ctl_result mc_res;
	struct on_loop *mc_ol;
};

/* The result's arrays go with the response: keep what the tests look at. */
static ctl_status got_results[CTL_BATCH_MAX];
static ctl_stat got_stats[CTL_BATCH_MAX];
static ctl_list_entry got_entries[CTL_BATCH_MAX];
static uint8_t got_cookie[64];
static ctl_rebuild_res got_rebuild;
static unsigned got_n, got_cookie_len;

static void mds_done(void *arg, int err, const ctl_response *res)
{
	struct mds_call *mc = arg;

	mc->mc_ol->ol_err = err;
	if (!err) {
		mc->mc_status = res->status;
		if (res->status == CTL_OK && res->result.op == CTL_OP_ORDERS) {
			got_n = res->result.ctl_result_u.orders.results.results_len;
			memcpy(got_results, res->result.ctl_result_u.orders.results.results_val,
			       got_n * sizeof *got_results);
		} else if (res->status == CTL_OK && res->result.op == CTL_OP_STAT) {
			got_n = res->result.ctl_result_u.stat.stats.stats_len;
			memcpy(got_stats, res->result.ctl_result_u.stat.stats.stats_val,
			       got_n * sizeof *got_stats);
		} else if (res->status == CTL_OK && res->result.op == CTL_OP_LIST) {
			const ctl_list_res *r = &res->result.ctl_result_u.list;

			got_n = r->entries.entries_len;
			if (got_n)
				memcpy(got_entries, r->entries.entries_val,
				       got_n * sizeof *got_entries);
			got_cookie_len = r->cookie.cookie_len;
			if (got_cookie_len)
				memcpy(got_cookie, r->cookie.cookie_val, got_cookie_len);
		} else if (res->status == CTL_OK && res->result.op == CTL_OP_REBUILD) {
			got_rebuild = res->result.ctl_result_u.rebuild;
		}
	}
	sem_post(&mc->mc_ol->ol_done);
}

static void mds_send(struct on_loop *ol)
{
	struct mds_call *mc = ol->ol_arg;

	mc->mc_ol = ol;
	ol->ol_err =
		mds_chan ? ctl_chan_call(mds_chan, mc->mc_req, 20000, mds_done, mc) : -ENOTCONN;
	if (ol->ol_err)
		sem_post(&ol->ol_done);
}

static ctl_status mds_ask(const ctl_request *req)
{
	struct mds_call mc = {.mc_req = req};

	ck_assert_int_eq(on_loop(mds_send, &mc), 0);
	return mc.mc_status;
}

static ctl_status orders(const ctl_order *o, unsigned n)
{
	ctl_request req = {.op = CTL_OP_ORDERS};

	req.ctl_request_u.orders.instance_epoch = mds_instance;
	req.ctl_request_u.orders.orders.orders_len = n;
	req.ctl_request_u.orders.orders.orders_val = (ctl_order *)o;
	return mds_ask(&req);
}

static ctl_status order(ctl_order_type type, uint64_t number, uint64_t arg)
{
	struct cap c = cap_make(0);
	ctl_order o = {.type = type, .number = number, .object = object_of(&c)};
	ctl_status st;

	if (type == CTL_FENCE)
		o.epoch = (uint32_t)arg;
	else if (type == CTL_BAR_CLIENT)
		o.client = (uint32_t)arg;
	else
		o.size = arg;
	st = orders(&o, 1);
	ck_assert_int_eq(st, CTL_OK);
	ck_assert_uint_eq(got_n, 1);
	return got_results[0];
}

static ctl_stat stat_of(const struct cap *c)
{
	ctl_object o = object_of(c);
	ctl_request req = {.op = CTL_OP_STAT};

	req.ctl_request_u.stat.objects.objects_len = 1;
	req.ctl_request_u.stat.objects.objects_val = &o;
	ck_assert_int_eq(mds_ask(&req), CTL_OK);
	ck_assert_uint_eq(got_n, 1);
	return got_stats[0];
}

static ctl_stat stat_object(void)
{
	struct cap c = cap_make(0);

	return stat_of(&c);
}

/* ---- the daemon ---- */

static const char *ds_options[8]; /* more, KEY=VALUE */
static bool nfs_by_tls;		  /* its clients use it, as peers of the cluster */
static bool on_tmpfs;		  /* its store is a small tmpfs, in a mount namespace of its own */

static void ds_exec(void)
{
	char o_store[256], o_key[256], o_mds[64], o_admin[256], path[512];
	const char *top = getenv("top_builddir"), *bin = getenv("WEFT_DS");

	if (on_tmpfs &&
	    (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	     mount("tmpfs", store, "tmpfs", 0, "size=2m")))
		_exit(77);
	snprintf(path, sizeof path, "%s/weft-ds", top ? top : ".");
	snprintf(o_store, sizeof o_store, "ds.store=%s", store);
	snprintf(o_key, sizeof o_key, "ds.cluster_key=%s/key", dir);
	snprintf(o_mds, sizeof o_mds, "ds.mds=127.0.0.1:%u", mds_port);
	snprintf(o_admin, sizeof o_admin, "ds.admin=unix:%s", admin);
	const char *argv[64] = {"weft-ds",
				"-o",
				o_store,
				"-o",
				o_key,
				"-o",
				o_mds,
				"-o",
				o_admin,
				"-o",
				"ds.listen=127.0.0.1:0",
				"-o",
				"ds.name=unit-one",
				"-o",
				"ds.threads=2",
				"-o",
				"ds.heartbeat=100ms",
				"-o",
				"ds.eof_wait=2s",
				"-o",
				"log.level=warn"};
	unsigned n = 0;

	while (argv[n])
		n++;
	for (unsigned i = 0; ds_options[i]; i++) {
		argv[n++] = "-o";
		argv[n++] = ds_options[i];
	}
	execv(bin ? bin : path, (char **)argv);
	perror(bin ? bin : path);
	_exit(127);
}

static void ds_kill(int sig)
{
	int status;

	kill(ds_pid, sig);
	ck_assert_int_eq(waitpid(ds_pid, &status, 0), ds_pid);
	if (sig == SIGTERM)
		ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	ds_pid = 0;
}

static void nfs_connect(struct on_loop *ol)
{
	if (nfs)
		rpc_client_destroy(nfs);
	nfs = NULL;
	ol->ol_err = rpc_client_create(&nfs, L, (struct sockaddr *)&ds_addr, ds_addrlen, NULL, NULL,
				       NULL);
	if (!ol->ol_err && nfs_by_tls) {
		uint8_t tls_key[CAP_TLS_KEY_LEN];

		cap_derive_tls_key(cluster_key, ds_uuid, tls_key);
		rpc_client_use_tls(nfs, NFS3_PROGRAM, NFS3_VERSION, tls_key);
	}
	sem_post(&ol->ol_done);
}

static void ds_start(void)
{
	int before = joins, first_beat;

	ds_pid = fork();
	if (!ds_pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		ds_exec();
	}
	wait_for(joins > before);
	first_beat = beats;
	/* The lease is in force when the first heartbeat comes. */
	wait_for(beats > first_beat || mds_mute);
	ck_assert_int_eq(on_loop(nfs_connect, NULL), 0);
}

static void ds_restart(int sig)
{
	ds_kill(sig);
	ds_start();
}

/* A metric of the daemon, by its full series name. */
static uint64_t metric(const char *series)
{
	struct sockaddr_un sun = {.sun_family = AF_UNIX};
	static char text[1 << 20];
	size_t n = 0;
	ssize_t got;
	char *p, key[256];
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(sun.sun_path, sizeof sun.sun_path, "%s", admin);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&sun, sizeof sun), 0);
	ck_assert_int_gt(
		dprintf(fd, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"), 0);
	while (n < sizeof text - 1 && (got = read(fd, text + n, sizeof text - 1 - n)) > 0)
		n += (size_t)got;
	close(fd);
	text[n] = 0;
	snprintf(key, sizeof key, "\n%s ", series);
	p = strstr(text, key);
	ck_assert_msg(p, "no metric %s", series);
	return strtoull(p + strlen(key), NULL, 10);
}

/* ---- fixture ---- */

static void *thread_run(void *arg)
{
	loop_run(arg);
	return NULL;
}

static void mds_start(struct on_loop *ol)
{
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	ol->ol_err =
		rpc_listen(&mds_listener, L, (struct sockaddr *)&sin, sizeof sin, &mds_svc, &L, 1);
	if (!ol->ol_err)
		mds_port = rpc_listener_port(mds_listener);
	sem_post(&ol->ol_done);
}

static void setup_nothing_running(void)
{
	char path[192];
	FILE *f;

	ck_assert(scratch_make(dir, sizeof(dir), "ds_wire"));
	snprintf(store, sizeof store, "%s/store", dir);
	snprintf(admin, sizeof admin, "%s/admin", dir);
	ck_assert_int_eq(mkdir(store, 0700), 0);
	snprintf(path, sizeof path, "%s/key", dir);
	f = fopen(path, "w");
	ck_assert_int_eq(fchmod(fileno(f), 0600), 0);
	for (unsigned i = 0; i < 32; i++)
		fprintf(f, "%02x", cluster_key[i]);
	fclose(f);
	log_set_level(LOG_L_ERROR);
	ck_assert_int_eq(loop_create(&L, 256), 0);
	ck_assert_int_eq(pthread_create(&loop_thread, NULL, thread_run, L), 0);
	ck_assert_int_eq(on_loop(mds_start, NULL), 0);
}

static void setup(void)
{
	setup_nothing_running();
	ds_start();
}

static void answer_kept(struct on_loop *ol)
{
	while (nunanswered) {
		struct ctl_incoming *in = unanswered[--nunanswered];
		ctl_result res = {.op = CTL_OP_EOF};

		res.ctl_result_u.eof.size = kept_size;
		if (in->in_req.op == CTL_OP_EOF && kept_size)
			ctl_chan_reply(in, CTL_OK, &res);
		else
			ctl_chan_reply(in, CTL_IO, NULL);
	}
	sem_post(&ol->ol_done);
}

/* How many TCP connections this process has. */
static long connections(void)
{
	char *text = metrics_render(), *p = strstr(text, "\nweft_rpc_connections ");
	long n = p ? strtol(strchr(p + 1, ' '), NULL, 10) : -1;

	free(text);
	return n;
}

static void teardown(void)
{
	if (ds_pid > 0)
		ds_kill(SIGKILL);
	/* LeakSanitizer does not see a connection that only io_uring knows. */
	wait_for(!connections());
	on_loop(answer_kept, NULL);
	scratch_remove(dir);
}

static void fill(uint8_t *p, size_t n, unsigned seed)
{
	uint64_t x = seed * 0x9e3779b97f4a7c15ull + 1;

	for (size_t i = 0; i < n; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		p[i] = (uint8_t)x;
	}
}

/* ---- suites ---- */

static void add(Suite *s, const char *name, void (*set)(void), const TTest *const *tests)
{
	TCase *tc = tcase_create(name);

	tcase_add_checked_fixture(tc, set, teardown);
	tcase_set_timeout(tc, 60);
	for (; *tests; tests++)
		tcase_add_test(tc, *tests);
	suite_add_tcase(s, tc);
}
#endif
