/*
 * ds_wire_test.c - a live weft-ds over real sockets. The test is its MDS (the control protocol, on a loop of its own) and its
 * NFS client. Handles are minted here, as the MDS does.
 */
#include "base/log.h"
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

#define FS 7
#define INO 0x1122334455667788ull
#define MIB (1u << 20)

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
static _Atomic int eof_status, eof_calls, joins, beats;
static uint8_t ds_uuid[16];
static struct sockaddr_storage ds_addr;
static socklen_t ds_addrlen;
static char ds_name[65];
static uint64_t join_verifier, join_order_high;

/* Requests that the MDS keeps to itself; answered when the test is over. */
static struct ctl_incoming *unanswered[64];
static unsigned nunanswered;
static uint64_t kept_size; /* what kept questions about the end of a file are told; 0: an error */

static void keep(struct ctl_incoming *in)
{
	ck_assert_uint_lt(nunanswered, 64);
	unanswered[nunanswered++] = in;
}

static void mds_join(struct ctl_incoming *in)
{
	const ctl_join_args *j = &in->in_req.ctl_request_u.join;
	ctl_result res = { .op = CTL_OP_JOIN };
	ctl_join_res *r = &res.ctl_result_u.join;

	if (memcmp(ds_uuid, j->ds_uuid, 16)) /* read by the test's thread: not written anew at each join */
		memcpy(ds_uuid, j->ds_uuid, 16);
	snprintf(ds_name, sizeof ds_name, "%s", j->name);
	join_verifier = j->boot_verifier;
	join_order_high = j->order_high;
	ck_assert_uint_ge(j->addrs.addrs_len, 1);
	ck_assert_int_eq(rpc_uaddr_parse(j->addrs.addrs_val[0].netid, j->addrs.addrs_val[0].uaddr, &ds_addr, &ds_addrlen), 0);
	ck_assert_uint_eq(j->max_read, MIB);
	ck_assert_uint_gt(j->capacity, 0);
	memcpy(r->cluster, cluster_uuid, 16);
	if (mds_bad_uuid)
		r->cluster[0] ^= 1;
	r->fs = FS;
	r->ds_id = 3;
	r->instance_epoch = mds_instance;
	r->lease_ms = mds_lease_ms;
	ctl_chan_reply(in, CTL_OK, &res);
	atomic_fetch_add(&joins, 1);
}

static void mds_serve(struct ctl_incoming *in, void *arg)
{
	ctl_result res = { .op = in->in_req.op };

	(void)arg;
	switch (in->in_req.op) {
	case CTL_OP_JOIN:
		mds_join(in);
		return;
	case CTL_OP_HEARTBEAT:
		if (mds_mute) {
			keep(in);
			return;
		}
		res.ctl_result_u.heartbeat.instance_epoch = mds_instance;
		res.ctl_result_u.heartbeat.lease_ms = mds_lease_ms;
		ctl_chan_reply(in, CTL_OK, &res);
		atomic_fetch_add(&beats, 1);
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
		if (!ctl_chan_accept(&ch, call, cluster_key, mds_serve, NULL)) {
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

static const struct rpc_program mds_prog = { CTL_PROGRAM, CTL_VERSION, CTL_VERSION, 3, mds_dispatch, NULL };
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
	struct on_loop ol = { .ol_msg.m_run = on_loop_run, .ol_fn = fn, .ol_arg = arg };

	sem_init(&ol.ol_done, 0, 0);
	loop_post(L, &ol.ol_msg);
	sem_down(&ol.ol_done);
	return ol.ol_err;
}

static void msleep(unsigned ms)
{
	nanosleep(&(struct timespec){ ms / 1000, ms % 1000 * 1000000L }, NULL);
}

/* Until cond, at most 10 s. */
#define wait_for(cond)                                                                                                     \
	do {                                                                                                               \
		for (int i_ = 0; !(cond) && i_ < 1000; i_++)                                                               \
			msleep(10);                                                                                        \
		ck_assert_msg(cond, "waited in vain: " #cond);                                                             \
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
		.cp_obj = { .co_ino = INO, .co_fs = FS, .co_incarnation = 1, .co_stripe = 2, .co_mirror = 1 },
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
	uint8_t key[CAP_KEY_LEN];
	struct fh fh;

	cap_derive_key(cluster_key, ds_uuid, c->cp_key, key);
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
	return (ctl_object){ c->cp_obj.co_ino, c->cp_obj.co_fs, c->cp_obj.co_incarnation, c->cp_obj.co_stripe,
			     c->cp_obj.co_mirror };
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

static struct nfs_call *write_start(struct fh fh, uint64_t off, const void *data, uint32_t n, uint32_t how)
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

		ck_assert_uint_eq(xdr_get_u32(x), n);
		ck_assert_uint_ge(xdr_get_u32(x), how);
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
	struct nfs3_fattr a;
	const uint8_t *v;
	struct xdr_in *x;
	uint32_t st;

	xdr_put_opaque(&c->nc_args, fh.b, CAP_LEN);
	xdr_put_u64(&c->nc_args, 0);
	xdr_put_u32(&c->nc_args, 0);
	call_start(c);
	x = call_wait(c);
	ck_assert_int_eq(c->nc_err, 0);
	st = xdr_get_u32(x);
	nfs3_get_wcc(x, &a);
	if (st == NFS3_OK) {
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
		ck_assert_uint_eq(a.fa_fileid, INO);
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
static unsigned got_n, got_cookie_len;

static void mds_done(void *arg, int err, const ctl_response *res)
{
	struct mds_call *mc = arg;

	mc->mc_ol->ol_err = err;
	if (!err) {
		mc->mc_status = res->status;
		if (res->status == CTL_OK && res->result.op == CTL_OP_ORDERS) {
			got_n = res->result.ctl_result_u.orders.results.results_len;
			memcpy(got_results, res->result.ctl_result_u.orders.results.results_val, got_n * sizeof *got_results);
		} else if (res->status == CTL_OK && res->result.op == CTL_OP_STAT) {
			got_n = res->result.ctl_result_u.stat.stats.stats_len;
			memcpy(got_stats, res->result.ctl_result_u.stat.stats.stats_val, got_n * sizeof *got_stats);
		} else if (res->status == CTL_OK && res->result.op == CTL_OP_LIST) {
			const ctl_list_res *r = &res->result.ctl_result_u.list;

			got_n = r->entries.entries_len;
			if (got_n)
				memcpy(got_entries, r->entries.entries_val, got_n * sizeof *got_entries);
			got_cookie_len = r->cookie.cookie_len;
			if (got_cookie_len)
				memcpy(got_cookie, r->cookie.cookie_val, got_cookie_len);
		}
	}
	sem_post(&mc->mc_ol->ol_done);
}

static void mds_send(struct on_loop *ol)
{
	struct mds_call *mc = ol->ol_arg;

	mc->mc_ol = ol;
	ol->ol_err = mds_chan ? ctl_chan_call(mds_chan, mc->mc_req, 20000, mds_done, mc) : -ENOTCONN;
	if (ol->ol_err)
		sem_post(&ol->ol_done);
}

static ctl_status mds_ask(const ctl_request *req)
{
	struct mds_call mc = { .mc_req = req };

	ck_assert_int_eq(on_loop(mds_send, &mc), 0);
	return mc.mc_status;
}

static ctl_status orders(const ctl_order *o, unsigned n)
{
	ctl_request req = { .op = CTL_OP_ORDERS };

	req.ctl_request_u.orders.instance_epoch = mds_instance;
	req.ctl_request_u.orders.orders.orders_len = n;
	req.ctl_request_u.orders.orders.orders_val = (ctl_order *)o;
	return mds_ask(&req);
}

static ctl_status order(ctl_order_type type, uint64_t number, uint64_t arg)
{
	struct cap c = cap_make(0);
	ctl_order o = { .type = type, .number = number, .object = object_of(&c) };
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

static ctl_stat stat_object(void)
{
	struct cap c = cap_make(0);
	ctl_object o = object_of(&c);
	ctl_request req = { .op = CTL_OP_STAT };

	req.ctl_request_u.stat.objects.objects_len = 1;
	req.ctl_request_u.stat.objects.objects_val = &o;
	ck_assert_int_eq(mds_ask(&req), CTL_OK);
	ck_assert_uint_eq(got_n, 1);
	return got_stats[0];
}

/* ---- the daemon ---- */

static bool on_tmpfs; /* its store is a small tmpfs, in a mount namespace of its own */

static void ds_exec(void)
{
	char o_store[256], o_key[256], o_mds[64], o_admin[256], path[512];
	const char *top = getenv("top_builddir"), *bin = getenv("WEFT_DS");

	if (on_tmpfs && (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
			 mount("tmpfs", store, "tmpfs", 0, "size=2m")))
		_exit(77);
	snprintf(path, sizeof path, "%s/weft-ds", top ? top : ".");
	snprintf(o_store, sizeof o_store, "ds.store=%s", store);
	snprintf(o_key, sizeof o_key, "ds.cluster_key=%s/key", dir);
	snprintf(o_mds, sizeof o_mds, "ds.mds=127.0.0.1:%u", mds_port);
	snprintf(o_admin, sizeof o_admin, "ds.admin=unix:%s", admin);
	execl(bin ? bin : path, "weft-ds", "-o", o_store, "-o", o_key, "-o", o_mds, "-o", o_admin, "-o", "ds.listen=127.0.0.1:0",
	      "-o", "ds.name=unit-one", "-o", "ds.threads=2", "-o", "ds.heartbeat=100ms", "-o", "log.level=warn", NULL);
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
	ol->ol_err = rpc_client_create(&nfs, L, (struct sockaddr *)&ds_addr, ds_addrlen, NULL, NULL, NULL);
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
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	static char text[1 << 20];
	size_t n = 0;
	ssize_t got;
	char *p, key[256];
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(sun.sun_path, sizeof sun.sun_path, "%s", admin);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&sun, sizeof sun), 0);
	ck_assert_int_gt(dprintf(fd, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"), 0);
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
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

	ol->ol_err = rpc_listen(&mds_listener, L, (struct sockaddr *)&sin, sizeof sin, &mds_svc, &L, 1);
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
		ctl_result res = { .op = CTL_OP_EOF };

		res.ctl_result_u.eof.size = kept_size;
		if (in->in_req.op == CTL_OP_EOF && kept_size)
			ctl_chan_reply(in, CTL_OK, &res);
		else
			ctl_chan_reply(in, CTL_IO, NULL);
	}
	sem_post(&ol->ol_done);
}

static void teardown(void)
{
	if (ds_pid > 0)
		ds_kill(SIGKILL);
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

/* ---- tests: data ---- */

START_TEST(null_answers_and_unknown_programs_get_a_rejection)
{
	struct nfs_call *c = call_new(NFS3_NULL);

	call_start(c);
	call_wait(c);
	ck_assert_int_eq(c->nc_err, 0);
	ck_assert_uint_eq(c->nc_len, 0);
	call_free(c);
	c = call_new(0);
	c->nc_prog = 400122; /* what kernels with LOCALIO ask */
	c->nc_vers = 1;
	call_start(c);
	call_wait(c);
	ck_assert_int_eq(c->nc_err, -EPROTO);
	call_free(c);
	ck_assert_uint_eq(read_status(rw()), NFS3_OK);
	ck_assert_str_eq(ds_name, "unit-one");
}
END_TEST

START_TEST(object_never_written_reads_as_empty)
{
	struct nfs3_fattr a;
	uint8_t buf[4096];
	uint32_t n = sizeof buf;
	bool eof = false;

	ck_assert_uint_eq(do_read(rw(), 0, buf, &n, &eof), NFS3_OK);
	ck_assert_uint_eq(n, 0);
	ck_assert(eof);
	ck_assert_uint_eq(do_getattr(rw(), &a), NFS3_OK);
	ck_assert_uint_eq(a.fa_size, 0);
	ck_assert_uint_eq(do_commit(rw(), NULL), NFS3_OK);
	ck_assert_int_ne(access(object_path(), F_OK), 0);
	ck_assert_int_eq(stat_object().status, CTL_NOENT);
}
END_TEST

START_TEST(what_is_written_is_read_back)
{
	static const struct {
		uint32_t off, len;
	} io[] = { { 0, 1 },	   { 0, 4096 },	     { 4096, MIB },	{ 100, 5000 },	   { 8191, 2 },	      { 1u << 20, 65536 },
		   { 12288, 8192 }, { 500000, 300001 }, { 3 * MIB, MIB }, { 3 * MIB + 7, 9999 }, { 2 * MIB - 1, MIB } };
	uint8_t *model = calloc(1, 5 * MIB), *data = malloc(MIB), *back = malloc(MIB);
	uint64_t size = 0, direct = metric("weft_ds_disk_io_total{path=\"direct\"}");
	struct stat st;

	for (unsigned i = 0; i < sizeof io / sizeof io[0]; i++) {
		fill(data, io[i].len, i);
		ck_assert_uint_eq(do_write(rw(), io[i].off, data, io[i].len, i % 3), NFS3_OK);
		memcpy(model + io[i].off, data, io[i].len);
		if (io[i].off + io[i].len > size)
			size = io[i].off + io[i].len;
		for (unsigned j = 0; j <= i; j++) {
			uint32_t n = io[j].len;
			bool eof;

			ck_assert_uint_eq(do_read(rw(), io[j].off, back, &n, &eof), NFS3_OK);
			ck_assert_uint_eq(n, io[j].len);
			ck_assert(!memcmp(back, model + io[j].off, n));
			ck_assert_int_eq(eof, io[j].off + n == size);
		}
	}
	/* past the end, and across it */
	for (uint64_t off = size - 100; off <= size + 5000; off += 50) {
		uint32_t n = 4096, want = off < size ? (uint32_t)(size - off) : 0;
		bool eof = false;

		ck_assert_uint_eq(do_read(rw(), off, back, &n, &eof), NFS3_OK);
		ck_assert_uint_eq(n, want);
		ck_assert(eof);
		ck_assert(!memcmp(back, model + off, n));
	}
	ck_assert_int_eq(stat(object_path(), &st), 0);
	ck_assert_int_eq(st.st_size, (off_t)size);
	/* Not on a file system without O_DIRECT, which these tests do not run on. */
	ck_assert_uint_gt(metric("weft_ds_disk_io_total{path=\"direct\"}"), direct);
	ck_assert_uint_eq(metric("weft_ds_copied_bytes_total"), 0);
	free(model);
	free(data);
	free(back);
}
END_TEST

/* Many at once, none overlapping in bytes, most sharing pages with others that go another way to the disk. */
START_TEST(direct_and_buffered_writes_at_once_do_not_mix_up)
{
	enum { ROUNDS = 12, CALLS = 64, AREA = 2 * MIB };
	uint8_t *model = calloc(1, AREA), *back = malloc(MIB), *data = malloc(AREA);
	unsigned done = 0;

	srand(1);
	for (unsigned r = 0; r < ROUNDS; r++) {
		struct nfs_call *calls[CALLS];
		uint32_t len[CALLS], off = (uint32_t)rand() % 5000;
		unsigned n = 0;

		fill(data, AREA, r);
		while (n < CALLS) {
			uint32_t want = rand() % 2 ? 1 + (uint32_t)rand() % 9000 : 4096u * (1 + (uint32_t)rand() % 8);

			if (rand() % 3 == 0)
				off = (off + 4095) & ~4095u;
			if (off + want > AREA)
				break;
			memcpy(model + off, data + off, want);
			len[n] = want;
			calls[n++] = write_start(rw(), off, data + off, want, NFS3_UNSTABLE);
			off += want;
		}
		for (unsigned i = 0; i < n; i++, done++)
			ck_assert_uint_eq(write_end(calls[i], len[i], NFS3_UNSTABLE, NULL), NFS3_OK);
		ck_assert_uint_eq(do_commit(rw(), NULL), NFS3_OK);
		for (uint32_t o = 0; o < AREA; o += MIB) {
			uint32_t got = MIB;
			bool eof;

			ck_assert_uint_eq(do_read(rw(), o, back, &got, &eof), NFS3_OK);
			ck_assert(!memcmp(back, model + o, got));
		}
	}
	ck_assert_uint_gt(done, 300);
	ck_assert_uint_eq(metric("weft_ds_sync_failures_total"), 0);
	free(model);
	free(back);
	free(data);
}
END_TEST

START_TEST(verifier_stays_and_changes_with_the_restart)
{
	uint64_t v1, v2, v3;

	ck_assert_uint_eq(write_end(write_start(rw(), 0, "abcd", 4, NFS3_UNSTABLE), 4, NFS3_UNSTABLE, &v1), NFS3_OK);
	ck_assert_uint_eq(do_commit(rw(), &v2), NFS3_OK);
	ck_assert_uint_eq(v1, v2);
	ck_assert_uint_eq(join_verifier, be64toh(v1) == join_verifier ? be64toh(v1) : v1);
	ds_restart(SIGKILL);
	ck_assert_uint_eq(do_commit(rw(), &v3), NFS3_OK);
	ck_assert_uint_ne(v1, v3);
}
END_TEST

START_TEST(stable_data_survives_a_kill)
{
	uint8_t data[10000], back[10000];
	uint32_t n = sizeof back;
	bool eof;

	fill(data, sizeof data, 9);
	ck_assert_uint_eq(do_write(rw(), 3, data, sizeof data, NFS3_FILE_SYNC), NFS3_OK);
	ds_restart(SIGKILL);
	ck_assert_uint_eq(do_read(rw(), 3, back, &n, &eof), NFS3_OK);
	ck_assert_uint_eq(n, sizeof data);
	ck_assert(!memcmp(data, back, n));
}
END_TEST

START_TEST(full_disk_is_nospc_and_deletes_make_room)
{
	uint8_t *data = calloc(1, MIB);
	uint32_t st = NFS3_OK;
	int status;

	on_tmpfs = true;
	ds_pid = fork();
	if (!ds_pid)
		ds_exec();
	msleep(300);
	if (waitpid(ds_pid, &status, WNOHANG) == ds_pid) {
		/* no rights to mount, or a tmpfs without xattrs */
		ds_pid = 0;
		free(data);
		return;
	}
	wait_for(beats > 0);
	ck_assert_int_eq(on_loop(nfs_connect, NULL), 0);
	for (unsigned i = 0; i < 4 && st == NFS3_OK; i++)
		st = do_write(rw(), (uint64_t)i * MIB, data, MIB, NFS3_FILE_SYNC);
	ck_assert_uint_eq(st, NFS3ERR_NOSPC);
	ck_assert_int_eq(order(CTL_DELETE, 9, 0), CTL_OK);
	ck_assert_uint_eq(read_status(rw()), NFS3ERR_STALE);
	free(data);
}
END_TEST

/* ---- tests: rights and fences ---- */

START_TEST(handles_of_others_are_bad_handles)
{
	struct cap c = cap_make(CAP_READ | CAP_WRITE);
	uint8_t key[CAP_KEY_LEN], other_uuid[16] = "another server";
	struct nfs_call *call;
	struct fh fh = rw();

	fh.b[31] ^= 1;
	ck_assert_uint_eq(read_status(fh), NFS3ERR_BADHANDLE);
	fh = rw();
	fh.b[20] ^= 1; /* the epoch: not covered by luck */
	ck_assert_uint_eq(do_write(fh, 0, "x", 1, 0), NFS3ERR_BADHANDLE);
	cap_derive_key(cluster_key, other_uuid, 1, key);
	cap_mint(&c, key, fh.b);
	ck_assert_uint_eq(read_status(fh), NFS3ERR_BADHANDLE);
	c.cp_obj.co_fs = FS + 1;
	ck_assert_uint_eq(read_status(mint(&c)), NFS3ERR_BADHANDLE);
	for (unsigned len = 0; len <= 64; len += 31) {
		uint8_t zero[64] = { 0 };

		call = call_new(NFS3_GETATTR);
		xdr_put_opaque(&call->nc_args, zero, len);
		call_start(call);
		ck_assert_uint_eq(xdr_get_u32(call_wait(call)), NFS3ERR_BADHANDLE);
		call_free(call);
	}
	ck_assert_uint_ge(metric("weft_ds_bad_handle_total"), 4);
}
END_TEST

START_TEST(rights_are_held)
{
	struct cap c = cap_make(CAP_READ);
	struct nfs3_fattr a;

	ck_assert_uint_eq(do_write(mint(&c), 0, "x", 1, 0), NFS3ERR_ACCES);
	ck_assert_uint_eq(do_commit(mint(&c), NULL), NFS3ERR_ACCES);
	c.cp_rights = CAP_WRITE;
	ck_assert_uint_eq(do_write(mint(&c), 0, "x", 1, 0), NFS3_OK);
	ck_assert_uint_eq(read_status(mint(&c)), NFS3ERR_ACCES);
	ck_assert_uint_eq(do_getattr(mint(&c), &a), NFS3_OK);
	ck_assert_uint_eq(a.fa_size, 1);
}
END_TEST

START_TEST(fence_refuses_older_epochs_also_after_a_restart)
{
	struct cap c = cap_make(CAP_READ | CAP_WRITE);
	struct fh before = rw(), after;

	c.cp_epoch = 2;
	after = mint(&c);
	ck_assert_uint_eq(do_write(before, 0, "x", 1, 0), NFS3_OK);
	ck_assert_int_eq(order(CTL_FENCE, 1, 2), CTL_OK);
	for (int boot = 0; boot < 2; boot++) {
		ck_assert_uint_eq(do_write(before, 0, "y", 1, 0), NFS3ERR_ACCES);
		ck_assert_uint_eq(do_commit(before, NULL), NFS3ERR_ACCES);
		ck_assert_uint_eq(read_status(before), NFS3ERR_ACCES);
		ck_assert_uint_eq(do_write(after, 0, "z", 1, 0), NFS3_OK);
		if (!boot)
			ds_restart(SIGKILL);
	}
	ck_assert_uint_eq(stat_object().epoch, 2);
	/* A lower epoch never comes back. */
	ck_assert_int_eq(order(CTL_FENCE, 2, 1), CTL_OK);
	ck_assert_uint_eq(do_write(before, 0, "y", 1, 0), NFS3ERR_ACCES);
	ck_assert_uint_ge(metric("weft_ds_fenced_total"), 3);
}
END_TEST

START_TEST(fence_of_an_object_not_there_holds)
{
	ck_assert_int_eq(order(CTL_FENCE, 1, 5), CTL_OK);
	ck_assert_uint_eq(do_write(rw(), 0, "x", 1, 0), NFS3ERR_ACCES);
}
END_TEST

#define FENCE_WRITES 48

/* Returns how many of the writes that were under way when the fence came were refused. */
static unsigned fence_among_writes(uint32_t epoch, uint8_t *one, uint8_t *two)
{
	struct cap c = cap_make(CAP_READ | CAP_WRITE);
	struct nfs_call *calls[FENCE_WRITES];
	uint8_t *data = malloc(MIB);
	unsigned refused = 0;
	uint32_t n = MIB;
	bool eof;

	c.cp_epoch = epoch;
	for (unsigned i = 0; i < FENCE_WRITES; i++) {
		memset(data, 'b' + (int)i % 20, MIB);
		calls[i] = write_start(mint(&c), 0, data, MIB, 0);
	}
	ck_assert_int_eq(order(CTL_FENCE, epoch, epoch + 1), CTL_OK);
	c.cp_epoch = epoch + 1;
	ck_assert_uint_eq(do_read(mint(&c), 0, one, &n, &eof), NFS3_OK);
	for (unsigned i = 0; i < FENCE_WRITES; i++)
		refused += write_end(calls[i], MIB, 0, NULL) == NFS3ERR_ACCES;
	ck_assert_uint_eq(do_read(mint(&c), 0, two, &n, &eof), NFS3_OK);
	free(data);
	return refused;
}

/* A fence is told to be done: no write that was let in before lands after it. */
START_TEST(fence_waits_for_writes_under_way)
{
	uint8_t *one = malloc(MIB), *two = malloc(MIB);
	unsigned refused = 0, rounds = 0;

	memset(one, 'a', MIB);
	ck_assert_uint_eq(do_write(rw(), 0, one, MIB, 0), NFS3_OK);
	/* A fence that came when all were done, or before all of them, shows nothing. */
	for (; rounds < 50 && (refused == 0 || refused == rounds * FENCE_WRITES); rounds++) {
		refused += fence_among_writes(rounds + 1, one, two);
		ck_assert(!memcmp(one, two, MIB));
	}
	ck_assert_uint_gt(refused, 0);
	ck_assert_uint_lt(refused, rounds * FENCE_WRITES);
	free(one);
	free(two);
}
END_TEST

START_TEST(barred_client_harms_no_other_and_stays_barred)
{
	struct cap other = cap_make(CAP_READ | CAP_WRITE);

	other.cp_client = 43;
	ck_assert_uint_eq(do_write(rw(), 0, "x", 1, 0), NFS3_OK);
	ck_assert_int_eq(order(CTL_BAR_CLIENT, 1, 42), CTL_OK);
	ck_assert_int_eq(order(CTL_BAR_CLIENT, 2, 0), CTL_INVAL);
	for (int boot = 0; boot < 2; boot++) {
		ck_assert_uint_eq(do_write(rw(), 0, "y", 1, 0), NFS3ERR_ACCES);
		ck_assert_uint_eq(read_status(rw()), NFS3ERR_ACCES);
		ck_assert_uint_eq(do_write(mint(&other), 0, "z", 1, 0), NFS3_OK);
		if (!boot)
			ds_restart(SIGKILL);
	}
}
END_TEST

START_TEST(lease_that_runs_out_stops_the_service_and_comes_back)
{
	mds_lease_ms = 800;
	msleep(300);
	ck_assert_uint_eq(do_write(rw(), 0, "x", 1, 0), NFS3_OK);
	mds_mute = true;
	msleep(1000);
	ck_assert_uint_eq(do_write(rw(), 0, "y", 1, 0), NFS3ERR_ACCES);
	ck_assert_uint_eq(read_status(rw()), NFS3ERR_ACCES);
	mds_mute = false;
	for (int i = 0; i < 1000 && read_status(rw()) != NFS3_OK; i++)
		msleep(10);
	ck_assert_uint_eq(do_write(rw(), 0, "z", 1, 0), NFS3_OK);
}
END_TEST

START_TEST(no_lease_before_pending_orders_are_done)
{
	mds_lease_ms = 0;
	ds_restart(SIGKILL);
	ck_assert_uint_eq(do_write(rw(), 0, "x", 1, 0), NFS3ERR_ACCES);
	ck_assert_int_eq(order(CTL_FENCE, 1, 1), CTL_OK);
	mds_lease_ms = 30000;
	wait_for(read_status(rw()) == NFS3_OK);
}
END_TEST

START_TEST(lost_object_is_stale_and_an_alarm)
{
	struct cap c = cap_make(CAP_READ | CAP_WRITE | CAP_MUST_EXIST);
	struct nfs3_fattr a;

	ck_assert_uint_eq(read_status(mint(&c)), NFS3ERR_STALE);
	ck_assert_uint_eq(do_write(mint(&c), 0, "x", 1, 0), NFS3ERR_STALE);
	ck_assert_uint_eq(do_commit(mint(&c), NULL), NFS3ERR_STALE);
	ck_assert_uint_eq(do_getattr(mint(&c), &a), NFS3ERR_STALE);
	ck_assert_int_ne(access(object_path(), F_OK), 0);
	ck_assert_uint_eq(metric("weft_ds_missing_object_total"), 4);
	ck_assert_uint_eq(do_write(rw(), 0, "x", 1, 0), NFS3_OK);
	ck_assert_uint_eq(read_status(mint(&c)), NFS3_OK);
}
END_TEST

/* ---- tests: orders ---- */

START_TEST(deleted_object_is_stale_and_does_not_come_back)
{
	ck_assert_uint_eq(do_write(rw(), 0, "x", 1, NFS3_FILE_SYNC), NFS3_OK);
	ck_assert_int_eq(access(object_path(), F_OK), 0);
	ck_assert_int_eq(order(CTL_DELETE, 5, 0), CTL_OK);
	for (int boot = 0; boot < 2; boot++) {
		struct nfs3_fattr a;

		ck_assert_int_ne(access(object_path(), F_OK), 0);
		ck_assert_uint_eq(do_write(rw(), 0, "y", 1, 0), NFS3ERR_STALE);
		ck_assert_uint_eq(read_status(rw()), NFS3ERR_STALE);
		ck_assert_uint_eq(do_getattr(rw(), &a), NFS3ERR_STALE);
		/* Orders from before the delete are done with. */
		ck_assert_int_eq(order(CTL_TRUNCATE, 4, 100), CTL_OK);
		ck_assert_int_eq(order(CTL_DELETE, 5, 0), CTL_OK);
		ck_assert_int_ne(access(object_path(), F_OK), 0);
		if (!boot)
			ds_restart(SIGKILL);
	}
	ck_assert_uint_ge(join_order_high, 5);
}
END_TEST

START_TEST(order_done_before_is_ignored)
{
	ck_assert_uint_eq(do_write(rw(), 0, "0123456789", 10, 0), NFS3_OK);
	ck_assert_int_eq(order(CTL_TRUNCATE, 3, 4), CTL_OK);
	ck_assert_uint_eq(stat_object().size, 4);
	ck_assert_uint_eq(do_write(rw(), 4, "456789", 6, NFS3_FILE_SYNC), NFS3_OK);
	ck_assert_int_eq(order(CTL_TRUNCATE, 3, 4), CTL_OK);
	ck_assert_uint_eq(stat_object().size, 10);
	ds_restart(SIGKILL);
	ck_assert_int_eq(order(CTL_TRUNCATE, 2, 0), CTL_OK);
	ck_assert_int_eq(order(CTL_TRUNCATE, 3, 4), CTL_OK);
	ck_assert_uint_eq(stat_object().size, 10);
	ck_assert_int_eq(order(CTL_TRUNCATE, 4, 2), CTL_OK);
	ck_assert_uint_eq(stat_object().size, 2);
}
END_TEST

/* The number must be kept somewhere, or the repeated truncate would cut the write. */
START_TEST(truncate_of_an_object_not_there_is_not_repeated_later)
{
	ck_assert_int_eq(order(CTL_TRUNCATE, 3, 0), CTL_OK);
	ck_assert_uint_eq(do_write(rw(), 0, "data", 4, 0), NFS3_OK);
	ck_assert_int_eq(order(CTL_TRUNCATE, 3, 0), CTL_OK);
	ck_assert_uint_eq(stat_object().size, 4);
}
END_TEST

START_TEST(extend_makes_zeros_and_never_cuts)
{
	uint8_t back[100];
	uint32_t n = sizeof back;
	bool eof;

	ck_assert_uint_eq(do_write(rw(), 0, "abc", 3, 0), NFS3_OK);
	ck_assert_int_eq(order(CTL_EXTEND, 1, 50), CTL_OK);
	ck_assert_uint_eq(do_read(rw(), 0, back, &n, &eof), NFS3_OK);
	ck_assert_uint_eq(n, 50);
	ck_assert(!memcmp(back, "abc\0\0\0", 6));
	ck_assert_int_eq(order(CTL_EXTEND, 2, 10), CTL_OK);
	ck_assert_uint_eq(stat_object().size, 50);
	ck_assert_int_eq(order(CTL_EXTEND, 3, UINT64_MAX), CTL_INVAL);
}
END_TEST

START_TEST(truncate_down_and_up_reads_zeros)
{
	uint8_t data[20000], back[20000], zero[20000] = { 0 };
	uint32_t n = sizeof back;
	bool eof;

	fill(data, sizeof data, 4);
	ck_assert_uint_eq(do_write(rw(), 0, data, sizeof data, 0), NFS3_OK);
	ck_assert_int_eq(order(CTL_TRUNCATE, 1, 5000), CTL_OK);
	ck_assert_int_eq(order(CTL_EXTEND, 2, sizeof data), CTL_OK);
	ck_assert_uint_eq(do_read(rw(), 0, back, &n, &eof), NFS3_OK);
	ck_assert_uint_eq(n, sizeof data);
	ck_assert(!memcmp(back, data, 5000));
	ck_assert(!memcmp(back + 5000, zero, sizeof data - 5000));
}
END_TEST

START_TEST(deposed_instance_is_refused_also_after_a_restart)
{
	mds_instance = 9;
	ck_assert_int_eq(order(CTL_FENCE, 1, 1), CTL_OK);
	mds_instance = 8;
	for (int boot = 0; boot < 2; boot++) {
		struct cap c = cap_make(0);
		ctl_order o = { .type = CTL_DELETE, .number = 2, .object = object_of(&c) };

		wait_for(mds_chan != NULL);
		ck_assert_int_eq(orders(&o, 1), CTL_STALE_INSTANCE);
		if (!boot) {
			ds_kill(SIGKILL);
			joins = 0;
			ds_pid = fork();
			if (!ds_pid)
				ds_exec();
			wait_for(joins > 0);
			ck_assert_int_eq(on_loop(nfs_connect, NULL), 0);
			ck_assert_uint_eq(read_status(rw()), NFS3ERR_ACCES);
		}
	}
}
END_TEST

START_TEST(other_cluster_gives_no_lease)
{
	ds_kill(SIGKILL);
	mds_bad_uuid = true;
	joins = 0;
	ds_pid = fork();
	if (!ds_pid)
		ds_exec();
	wait_for(joins > 1);
	ck_assert_int_eq(on_loop(nfs_connect, NULL), 0);
	ck_assert_uint_eq(read_status(rw()), NFS3ERR_ACCES);
	mds_bad_uuid = false;
	wait_for(read_status(rw()) == NFS3_OK);
}
END_TEST

START_TEST(batch_of_orders_answers_each)
{
	static ctl_order o[CTL_BATCH_MAX];
	struct cap c = cap_make(0);

	for (unsigned i = 0; i < CTL_BATCH_MAX; i++) {
		o[i] = (ctl_order){ .type = i % 2 ? CTL_DELETE : CTL_EXTEND, .number = i + 1, .object = object_of(&c), .size = 10 };
		o[i].object.ino += i / 2;
		if (i == 100)
			o[i].object.stripe = 256; /* no object has it */
		if (i == 102)
			o[i].type = (ctl_order_type)77;
	}
	ck_assert_int_eq(orders(o, CTL_BATCH_MAX), CTL_OK);
	ck_assert_uint_eq(got_n, CTL_BATCH_MAX);
	for (unsigned i = 0; i < CTL_BATCH_MAX; i++) {
		/* 103 deletes the object that 102 could not handle: later orders of an object wait for the earlier. */
		bool bad = i == 100 || i == 102 || i == 103;

		ck_assert_msg(got_results[i] == (bad ? CTL_INVAL : CTL_OK), "%u: %d", i, got_results[i]);
	}
}
END_TEST

START_TEST(write_count_moves_with_every_write_and_only_then)
{
	ctl_stat a, b, d;

	ck_assert_uint_eq(do_write(rw(), 0, "x", 1, 0), NFS3_OK);
	a = stat_object();
	ck_assert_int_eq(a.status, CTL_OK);
	ck_assert_uint_eq(a.size, 1);
	b = stat_object();
	ck_assert_uint_eq(a.writes, b.writes);
	ck_assert_uint_eq(do_write(rw(), 0, "y", 1, 0), NFS3_OK);
	b = stat_object();
	ck_assert_uint_ne(b.writes, a.writes);
	/* A daemon that is killed forgets nothing: the MDS would take a new count for a write. */
	ds_restart(SIGKILL);
	d = stat_object();
	ck_assert_uint_eq(d.writes, b.writes);
	ck_assert_uint_eq(do_write(rw(), 0, "z", 1, 0), NFS3_OK);
	d = stat_object();
	ck_assert_uint_ne(d.writes, b.writes);
}
END_TEST

START_TEST(list_tells_every_object_once)
{
	enum { N = 300 };
	struct cap c = cap_make(CAP_WRITE);
	unsigned seen[N] = { 0 }, total = 0, asks = 0;
	ctl_request req = { .op = CTL_OP_LIST };
	uint8_t cookie[64];

	for (unsigned i = 0; i < N; i++) {
		c.cp_obj.co_ino = INO + i / 3;
		c.cp_obj.co_stripe = (uint8_t)(i % 3);
		ck_assert_uint_eq(do_write(mint(&c), 0, "xyz", i % 3 + 1, 0), NFS3_OK);
	}
	req.ctl_request_u.list.max = 7;
	do {
		ck_assert_int_eq(mds_ask(&req), CTL_OK);
		for (unsigned i = 0; i < got_n; i++) {
			const ctl_object *o = &got_entries[i].object;

			ck_assert_uint_lt((o->ino - INO) * 3 + o->stripe, N);
			ck_assert_uint_eq(o->fs, FS);
			ck_assert_uint_eq(o->incarnation, 1);
			ck_assert_uint_eq(o->mirror, 1);
			ck_assert_uint_eq(got_entries[i].size, o->stripe + 1);
			seen[(o->ino - INO) * 3 + o->stripe]++;
			total++;
		}
		memcpy(cookie, got_cookie, got_cookie_len);
		req.ctl_request_u.list.cookie.cookie_val = (char *)cookie;
		req.ctl_request_u.list.cookie.cookie_len = got_cookie_len;
		asks++;
	} while (got_cookie_len);
	ck_assert_uint_eq(total, N);
	for (unsigned i = 0; i < N; i++)
		ck_assert_uint_eq(seen[i], 1);
	ck_assert_uint_ge(asks, N / 7);
	memset(cookie, 0xff, sizeof cookie);
	req.ctl_request_u.list.cookie.cookie_len = 13;
	ck_assert_int_eq(mds_ask(&req), CTL_INVAL);
}
END_TEST

/* ---- tests: the end of striped files ---- */

static struct fh striped(void)
{
	struct cap c = cap_make(CAP_READ | CAP_WRITE | CAP_STRIPED);

	return mint(&c);
}

START_TEST(striped_read_goes_on_with_zeros_to_the_end_of_the_file)
{
	uint8_t back[16384], zero[16384] = { 0 };
	uint32_t n = sizeof back;
	bool eof = true;

	/* no object at all, and a file that goes on */
	eof_size = 1 << 30;
	memset(back, 1, sizeof back);
	ck_assert_uint_eq(do_read(striped(), 4096, back, &n, &eof), NFS3_OK);
	ck_assert_uint_eq(n, sizeof back);
	ck_assert(!eof);
	ck_assert(!memcmp(back, zero, n));
	/* a short object */
	ck_assert_uint_eq(do_write(striped(), 0, "hello", 5, 0), NFS3_OK);
	eof_size = 9000;
	memset(back, 1, sizeof back);
	ck_assert_uint_eq(do_read(striped(), 0, back, &n, &eof), NFS3_OK);
	ck_assert_uint_eq(n, 9000);
	ck_assert(eof);
	ck_assert(!memcmp(back, "hello", 5));
	ck_assert(!memcmp(back + 5, zero, 8995));
	/* past the end */
	n = 100;
	ck_assert_uint_eq(do_read(striped(), 9000, back, &n, &eof), NFS3_OK);
	ck_assert_uint_eq(n, 0);
	ck_assert(eof);
	/* what is here counts where the MDS does not know of it yet */
	eof_size = 2;
	n = 100;
	ck_assert_uint_eq(do_read(striped(), 0, back, &n, &eof), NFS3_OK);
	ck_assert_uint_eq(n, 5);
	ck_assert(eof);
}
END_TEST

START_TEST(full_read_of_a_stripe_asks_nobody)
{
	uint8_t data[8192] = { 1 };
	uint32_t n = 4096;
	bool eof = true;

	ck_assert_uint_eq(do_write(striped(), 0, data, sizeof data, 0), NFS3_OK);
	ck_assert_uint_eq(do_read(striped(), 0, data, &n, &eof), NFS3_OK);
	ck_assert_uint_eq(n, 4096);
	ck_assert(!eof);
	ck_assert_int_eq(eof_calls, 0);
}
END_TEST

START_TEST(silent_mds_makes_a_short_striped_read_an_error_in_time)
{
	struct timespec a, b;
	double s;

	eof_mute = true;
	clock_gettime(CLOCK_MONOTONIC, &a);
	ck_assert_uint_eq(read_status(striped()), NFS3ERR_IO);
	clock_gettime(CLOCK_MONOTONIC, &b);
	s = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9;
	ck_assert_double_ge(s, 1.5);
	ck_assert_double_le(s, 5);
	/* The connection survives replies that were too late. */
	eof_mute = false;
	ck_assert_uint_eq(read_status(striped()), NFS3_OK);
	eof_status = CTL_NOENT;
	ck_assert_uint_eq(read_status(striped()), NFS3ERR_STALE);
}
END_TEST

/* An answer from before a read may be from before a write that its client knows to be done. */
START_TEST(question_under_way_is_not_shared_with_later_reads)
{
	struct nfs_call *first, *second;
	uint8_t back[64];
	uint32_t n;
	bool eof;

	eof_mute = true;
	eof_size = 10;
	first = read_start(striped(), 0, 64);
	wait_for(eof_calls == 1);
	second = read_start(striped(), 0, 64);
	/* It has come, and waits. */
	ck_assert_uint_eq(do_write(striped(), 4096, "x", 1, 0), NFS3_OK);
	msleep(50);
	eof_mute = false;
	/* The MDS told the first of the old end, and only then hears of the new one. */
	kept_size = 10;
	eof_size = 30;
	ck_assert_int_eq(on_loop(answer_kept, NULL), 0);
	ck_assert_uint_eq(read_end(first, back, &n, &eof), NFS3_OK);
	ck_assert_uint_eq(n, 10);
	ck_assert_uint_eq(read_end(second, back, &n, &eof), NFS3_OK);
	ck_assert_uint_eq(n, 30);
}
END_TEST

START_TEST(questions_about_one_file_are_shared)
{
	enum { CALLS = 200 };
	struct nfs_call *calls[CALLS];
	uint8_t back[64];

	eof_size = 64;
	for (unsigned i = 0; i < CALLS; i++)
		calls[i] = read_start(striped(), 0, 64);
	for (unsigned i = 0; i < CALLS; i++) {
		uint32_t n;
		bool eof;

		ck_assert_uint_eq(read_end(calls[i], back, &n, &eof), NFS3_OK);
		ck_assert_uint_eq(n, 64);
	}
	ck_assert_int_lt(eof_calls, CALLS / 2);
}
END_TEST

/* ---- tests: the other procedures, and garbage ---- */

START_TEST(procedures_not_served_say_so_in_their_shape)
{
	static const struct {
		uint32_t proc;
		size_t len;
	} shape[] = { { NFS3_LOOKUP, 8 },  { NFS3_ACCESS, 8 },	{ NFS3_READLINK, 8 }, { NFS3_CREATE, 12 },  { NFS3_MKDIR, 12 },
		      { NFS3_SYMLINK, 12 }, { NFS3_MKNOD, 12 },	{ NFS3_REMOVE, 12 },  { NFS3_RMDIR, 12 },   { NFS3_RENAME, 20 },
		      { NFS3_LINK, 16 },   { NFS3_READDIR, 8 }, { NFS3_READDIRPLUS, 8 }, { NFS3_PATHCONF, 8 } };

	for (unsigned i = 0; i < sizeof shape / sizeof shape[0]; i++) {
		struct nfs_call *c = call_new(shape[i].proc);
		struct fh fh = rw();

		xdr_put_opaque(&c->nc_args, fh.b, CAP_LEN);
		call_start(c);
		ck_assert_uint_eq(xdr_get_u32(call_wait(c)), NFS3ERR_NOTSUPP);
		ck_assert_uint_eq(c->nc_len, shape[i].len);
		call_free(c);
	}
	ck_assert_uint_eq(metric("weft_ds_op_total{proc=\"READDIRPLUS\"}"), 1);
	ck_assert_uint_eq(metric("weft_ds_op_total{proc=\"READ\"}"), 0);
}
END_TEST

START_TEST(fsinfo_and_fsstat_are_whole)
{
	struct nfs_call *c = call_new(NFS3_FSINFO);
	struct fh fh = rw();
	struct nfs3_fattr a;
	struct xdr_in *x;

	xdr_put_opaque(&c->nc_args, fh.b, CAP_LEN);
	call_start(c);
	x = call_wait(c);
	ck_assert_uint_eq(xdr_get_u32(x), NFS3_OK);
	nfs3_get_post_op(x, &a);
	ck_assert_uint_eq(xdr_get_u32(x), MIB);
	ck_assert_uint_eq(xdr_left(x), 44);
	call_free(c);
	c = call_new(NFS3_FSSTAT);
	xdr_put_opaque(&c->nc_args, fh.b, CAP_LEN);
	call_start(c);
	x = call_wait(c);
	ck_assert_uint_eq(xdr_get_u32(x), NFS3_OK);
	nfs3_get_post_op(x, &a);
	ck_assert_uint_gt(xdr_get_u64(x), 0);
	ck_assert_uint_eq(xdr_left(x), 44);
	call_free(c);
}
END_TEST

static uint32_t do_setattr(struct fh fh, const struct nfs3_sattr *sa)
{
	struct nfs_call *c = call_new(NFS3_SETATTR);
	uint32_t st;

	xdr_put_opaque(&c->nc_args, fh.b, CAP_LEN);
	nfs3_put_sattr(&c->nc_args, sa);
	xdr_put_bool(&c->nc_args, false);
	call_start(c);
	st = xdr_get_u32(call_wait(c));
	ck_assert_uint_eq(c->nc_len, 12);
	call_free(c);
	return st;
}

START_TEST(setattr_is_the_size_and_the_mds_only)
{
	struct nfs3_sattr sa = { .sa_set = NFS3_SA_SIZE, .sa_size = 77 };
	struct cap mds = cap_make(CAP_WRITE);

	mds.cp_client = 0;
	ck_assert_uint_eq(do_setattr(rw(), &sa), NFS3ERR_ACCES);
	ck_assert_int_ne(access(object_path(), F_OK), 0);
	ck_assert_uint_eq(do_setattr(mint(&mds), &sa), NFS3_OK);
	ck_assert_uint_eq(stat_object().size, 77);
	sa.sa_set |= NFS3_SA_MODE;
	ck_assert_uint_eq(do_setattr(mint(&mds), &sa), NFS3ERR_NOTSUPP);
	mds.cp_rights = CAP_READ;
	sa.sa_set = NFS3_SA_SIZE;
	ck_assert_uint_eq(do_setattr(mint(&mds), &sa), NFS3ERR_ACCES);
}
END_TEST

START_TEST(limits_of_offsets_are_errors)
{
	uint8_t buf[16];
	uint32_t n = 16;
	bool eof = false;

	ck_assert_uint_eq(do_write(rw(), UINT64_MAX - 3, "abcd", 4, 0), NFS3ERR_FBIG);
	ck_assert_uint_eq(do_write(rw(), INT64_MAX - 3, "abcd", 4, 0), NFS3ERR_FBIG);
	ck_assert_uint_eq(do_read(rw(), UINT64_MAX, buf, &n, &eof), NFS3_OK);
	ck_assert_uint_eq(n, 0);
	ck_assert(eof);
	n = 16;
	ck_assert_uint_eq(do_read(rw(), INT64_MAX - 4095, buf, &n, &eof), NFS3_OK);
	ck_assert_uint_eq(n, 0);
	ck_assert_uint_eq(do_write(rw(), 0, "", 0, NFS3_FILE_SYNC), NFS3_OK);
}
END_TEST

START_TEST(garbage_ends_the_call_and_not_the_connection)
{
	for (unsigned proc = 1; proc < NFS3_NPROCS; proc++) {
		for (unsigned len = 0; len < 64; len += 4) {
			struct nfs_call *c = call_new(proc);
			uint8_t junk[64];

			fill(junk, sizeof junk, proc * 64 + len);
			xdr_put_fixed(&c->nc_args, junk, len);
			call_start(c);
			call_wait(c);
			ck_assert_msg(c->nc_err == 0 || c->nc_err == -EPROTO, "proc %u: %d", proc, c->nc_err);
			call_free(c);
		}
	}
	ck_assert_uint_gt(metric("weft_ds_garbage_total"), 50);
	ck_assert_uint_eq(read_status(rw()), NFS3_OK);
}
END_TEST

START_TEST(ends_cleanly_on_sigterm)
{
	ck_assert_uint_eq(do_write(rw(), 0, "x", 1, 0), NFS3_OK);
	ds_restart(SIGTERM);
	ck_assert_uint_eq(read_status(rw()), NFS3_OK);
}
END_TEST

START_TEST(second_daemon_on_one_store_is_refused)
{
	int status;
	pid_t pid = fork();

	if (!pid)
		ds_exec();
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	ck_assert_uint_eq(read_status(rw()), NFS3_OK);
}
END_TEST

static void add(Suite *s, const char *name, void (*set)(void), const TTest *const *tests)
{
	TCase *tc = tcase_create(name);

	tcase_add_checked_fixture(tc, set, teardown);
	tcase_set_timeout(tc, 60);
	for (; *tests; tests++)
		tcase_add_test(tc, *tests);
	suite_add_tcase(s, tc);
}

static Suite *suite(void)
{
	Suite *s = suite_create("ds_wire");
	static const TTest *data[8], *fences[12], *ord[16], *eof[8], *rest[10], *full[2];
	unsigned n = 0;

	data[n++] = null_answers_and_unknown_programs_get_a_rejection;
	data[n++] = object_never_written_reads_as_empty;
	data[n++] = what_is_written_is_read_back;
	data[n++] = direct_and_buffered_writes_at_once_do_not_mix_up;
	data[n++] = verifier_stays_and_changes_with_the_restart;
	data[n++] = stable_data_survives_a_kill;
	add(s, "data", setup, data);
	n = 0;
	fences[n++] = handles_of_others_are_bad_handles;
	fences[n++] = rights_are_held;
	fences[n++] = fence_refuses_older_epochs_also_after_a_restart;
	fences[n++] = fence_of_an_object_not_there_holds;
	fences[n++] = fence_waits_for_writes_under_way;
	fences[n++] = barred_client_harms_no_other_and_stays_barred;
	fences[n++] = lease_that_runs_out_stops_the_service_and_comes_back;
	fences[n++] = no_lease_before_pending_orders_are_done;
	fences[n++] = lost_object_is_stale_and_an_alarm;
	add(s, "fences", setup, fences);
	n = 0;
	ord[n++] = deleted_object_is_stale_and_does_not_come_back;
	ord[n++] = order_done_before_is_ignored;
	ord[n++] = truncate_of_an_object_not_there_is_not_repeated_later;
	ord[n++] = extend_makes_zeros_and_never_cuts;
	ord[n++] = truncate_down_and_up_reads_zeros;
	ord[n++] = deposed_instance_is_refused_also_after_a_restart;
	ord[n++] = other_cluster_gives_no_lease;
	ord[n++] = batch_of_orders_answers_each;
	ord[n++] = write_count_moves_with_every_write_and_only_then;
	ord[n++] = list_tells_every_object_once;
	add(s, "orders", setup, ord);
	n = 0;
	eof[n++] = striped_read_goes_on_with_zeros_to_the_end_of_the_file;
	eof[n++] = full_read_of_a_stripe_asks_nobody;
	eof[n++] = silent_mds_makes_a_short_striped_read_an_error_in_time;
	eof[n++] = question_under_way_is_not_shared_with_later_reads;
	eof[n++] = questions_about_one_file_are_shared;
	add(s, "end of file", setup, eof);
	n = 0;
	rest[n++] = procedures_not_served_say_so_in_their_shape;
	rest[n++] = fsinfo_and_fsstat_are_whole;
	rest[n++] = setattr_is_the_size_and_the_mds_only;
	rest[n++] = limits_of_offsets_are_errors;
	rest[n++] = garbage_ends_the_call_and_not_the_connection;
	rest[n++] = ends_cleanly_on_sigterm;
	rest[n++] = second_daemon_on_one_store_is_refused;
	add(s, "rest", setup, rest);
	full[0] = full_disk_is_nospc_and_deletes_make_room;
	add(s, "full", setup_nothing_running, full);
	return s;
}

int main(void)
{
	return unit_run(suite());
}
