/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mds_fuzz.h - the metadata server inside a fuzzer's process: real store (LMDB, not synced, best on
 * a tmpfs: TMPDIR), real name space, state, layouts and control protocol, on one loop; and two data
 * servers that are made up.
 *
 * The made-up servers join as real ones do. Their answers follow fz_mood, so that every way out of
 * the I/O path is taken. fz_restore puts the store back to what it was at fz_keep, and forgets all
 * clients: an input does not see the one before it, but for numbers that only rise (inodes,
 * stateids).
 */
#ifndef MDS_FUZZ_H
#define MDS_FUZZ_H
#include "base/log.h"
#include "mds/namespace/keys.h"
#include "mds/jobs/drain.h"
#include "mds/jobs/job.h"
#include "mds/nfs4/credentials.h"
#include "mds/nfs4/op.h"
#include "mds/nfs4/op_state.h"
#include "mds/jobs/pin.h"
#include "mds/jobs/repair.h"
#include "mds/jobs/reply_sweep.h"
#include "mds/jobs/tag.h"
#include "mds/jobs/trash.h"
#include "proto/ctl_chan.h"
#include "proto/nfs3.h"
#include "tests/unit/scratch.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* A fuzzer's own atomic operations are not counted (configure.ac). */
#pragma clang diagnostic ignored "-Watomic-implicit-seq-cst"

#define FZ_RECALL_MS  3
#define FZ_GRACE_MS   4 /* what it refuses waits for a quarter of it */
#define FZ_MAX_RECORD (OP_MAX_IO + 128 * 1024)
#define FZ_SERVERS    2
#define FZ_CONNS      256
#ifndef FZ_LOOPS /* connections are spread over so many loops */
#define FZ_LOOPS 1
#endif
#ifndef FZ_DS_LEASE_MS /* no lease runs out in a fuzzer's time */
#define FZ_DS_LEASE_MS 86400000
#endif
#ifndef FZ_POOL /* files made ahead on each generic data server */
#define FZ_POOL 0
#endif

static struct mds mds;
static struct mds_thread fz_threads[FZ_LOOPS];
static struct loop *fz_loops[FZ_LOOPS], *fz_loop; /* the first one */
static uint16_t fz_port, fz_nfs3_port[FZ_SERVERS];
static char fz_dir[128];
static uint8_t fz_key[32] = "key of the fuzzers' cluster";

/* How the made-up servers answer. */
static struct {
	_Atomic uint32_t nfs3_status[FZ_SERVERS], stat_status;
	_Atomic uint64_t size, writes;
} fz_mood;

__attribute__((noreturn)) static void fz_bug(const char *what)
{
	fprintf(stderr, "fuzz: %s\n", what);
	abort();
}

/* ---- on the loop ---- */

static struct {
	struct loop_msg msg;
	void (*fn)(void);
	sem_t done;
} fz_call;

static void fz_call_run(struct loop_msg *m)
{
	(void)m;
	fz_call.fn();
	sem_post(&fz_call.done);
}

static void fz_on(struct loop *l, void (*fn)(void))
{
	static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;

	pthread_mutex_lock(&one);
	fz_call.fn = fn;
	fz_call.msg.m_run = fz_call_run;
	loop_post(l, &fz_call.msg);
	while (sem_wait(&fz_call.done))
		;
	pthread_mutex_unlock(&one);
}

static void fz_on_loop(void (*fn)(void))
{
	fz_on(fz_loop, fn);
}

static void fz_nothing(void)
{
}

static int fz_nothing_run(void *arg, struct kv_txn *t)
{
	(void)arg;
	(void)t;
	return 0;
}

/* Messages on their way have gone a few steps. */
static void fz_settle(void)
{
	for (int k = 0; k < 3; k++) {
		kv_run_sync(mds.m_kv, fz_nothing_run, NULL);
		for (unsigned i = 0; i < FZ_LOOPS; i++)
			fz_on(fz_loops[i], fz_nothing);
	}
}

static void *fz_loop_run(void *arg)
{
	loop_run(arg);
	return NULL;
}

/* ---- connections: an idle one is known to the kernel only, and the leak checker must find it
 * ---- */

static struct rpc_conn *fz_conns[FZ_CONNS];
static pthread_mutex_t fz_conns_lock = PTHREAD_MUTEX_INITIALIZER;

static void fz_conns_set(struct rpc_conn *was, struct rpc_conn *is)
{
	unsigned i = 0;

	pthread_mutex_lock(&fz_conns_lock);
	while (i < FZ_CONNS && fz_conns[i] != was)
		i++;
	if (i < FZ_CONNS)
		fz_conns[i] = is;
	pthread_mutex_unlock(&fz_conns_lock);
}

static void fz_opened(struct rpc_conn *c, void *arg)
{
	(void)arg;
	op_conn_opened(&mds, c);
	fz_conns_set(NULL, c);
}

static void fz_closed(struct rpc_conn *c, void *arg)
{
	(void)arg;
	fz_conns_set(c, NULL);
	op_conn_closed(&mds, c);
	if (mds.m_st) {
		st_conn_gone(mds.m_st, c);
		ds_reg_conn_closed(mds.m_dsc, c);
	}
}

/* ---- the made-up data servers ---- */

static void fz_nfs3(struct rpc_call *call, void *arg)
{
	static const uint8_t zeros[OP_MAX_IO];
	uint32_t status = *(_Atomic uint32_t *)arg, len, count, stable;

	if (call->c_proc == NFS3_NULL) { /* a check whether the server is alive */
		rpc_reply(call);
		return;
	}
	xdr_get_opaque(&call->c_args, CAP_LEN, &len);
	xdr_get_u64(&call->c_args);
	count = xdr_get_u32(&call->c_args);
	stable = call->c_proc == NFS3_WRITE ? xdr_get_u32(&call->c_args) : 0;
	if (call->c_args.bad || count > OP_MAX_IO)
		fz_bug("a call to a data server that is none");
	xdr_put_u32(&call->c_reply, status);
	if (call->c_proc == NFS3_READ)
		nfs3_put_post_op(&call->c_reply, NULL);
	else
		nfs3_put_wcc(&call->c_reply, NULL);
	if (status) {
		rpc_reply(call);
		return;
	}
	if (call->c_proc == NFS3_READ) {
		xdr_put_u32(&call->c_reply, count / 2); /* short: the rest is a hole */
		xdr_put_bool(&call->c_reply, true);
		xdr_put_opaque(&call->c_reply, zeros, count / 2);
	} else {
		if (call->c_proc == NFS3_WRITE) {
			xdr_put_u32(&call->c_reply, count);
			xdr_put_u32(&call->c_reply, stable);
		}
		xdr_put_u64(&call->c_reply, fz_mood.writes);
	}
	rpc_reply(call);
}

static struct fz_server {
	uint8_t fs_uuid[16];
	struct rpc_client *fs_client;
	struct ctl_chan *fs_chan;
	struct rpc_program fs_prog;
	_Atomic bool fs_joined;
} fz_servers[FZ_SERVERS];

static void fz_ds_serve(struct ctl_incoming *in, void *arg)
{
	static ctl_status results[CTL_BATCH_MAX];
	static ctl_stat stats[CTL_BATCH_MAX];
	ctl_result res = {.op = in->in_req.op};

	(void)arg;
	if (in->in_req.op == CTL_OP_ORDERS) {
		res.ctl_result_u.orders.results.results_len =
			in->in_req.ctl_request_u.orders.orders.orders_len;
		res.ctl_result_u.orders.results.results_val = results;
		ctl_chan_reply(in, CTL_OK, &res);
	} else if (in->in_req.op == CTL_OP_STAT) {
		for (unsigned i = 0; i < CTL_BATCH_MAX; i++)
			stats[i] = (ctl_stat){.status = (ctl_status)fz_mood.stat_status,
					      .size = fz_mood.size,
					      .used = fz_mood.size,
					      .writes = fz_mood.writes};
		res.ctl_result_u.stat.stats.stats_len =
			in->in_req.ctl_request_u.stat.objects.objects_len;
		res.ctl_result_u.stat.stats.stats_val = stats;
		ctl_chan_reply(in, CTL_OK, &res);
	} else if (in->in_req.op == CTL_OP_SEEK) {
		res.ctl_result_u.seek.found = (ctl_seek_found)(fz_mood.writes % 3);
		res.ctl_result_u.seek.offset = fz_mood.size;
		ctl_chan_reply(in, (ctl_status)fz_mood.stat_status, &res);
	} else if (in->in_req.op == CTL_OP_CHANGE) {
		res.ctl_result_u.change.verifier = 1;
		ctl_chan_reply(in, (ctl_status)fz_mood.stat_status, &res);
	} else {
		ctl_chan_reply(in, CTL_INVAL, NULL);
	}
}

static void fz_ds_dispatch(struct rpc_call *call, void *arg)
{
	ctl_chan_sealed(((struct fz_server *)arg)->fs_chan, call);
}

static void fz_ds_joined(void *arg, int err, const ctl_response *res)
{
	if (err || res->status)
		fz_bug("a data server could not join");
	((struct fz_server *)arg)->fs_joined = true;
}

static void fz_ds_ready(struct ctl_chan *ch, int err, void *arg)
{
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	ctl_request req = {.op = CTL_OP_JOIN2};
	ctl_join_args *j = &req.ctl_request_u.join2.join;
	struct fz_server *fs = arg;
	char netid[9], uaddr[65], name[] = "ds0", labels[] = "rack=r0";
	ctl_addr addr = {netid, uaddr, 0};

	sin.sin_port = htons(fz_nfs3_port[fs - fz_servers]);
	if (err || rpc_uaddr((struct sockaddr *)&sin, netid, sizeof(netid), uaddr, sizeof(uaddr)))
		fz_bug("a data server has no channel");
	memcpy(j->ds_uuid, fs->fs_uuid, 16);
	name[2] += (char)(fs - fz_servers);
	labels[6] += (char)(fs - fz_servers);
	j->name = name;
	j->labels = labels;
	j->addrs.addrs_len = 1;
	j->addrs.addrs_val = &addr;
	j->max_read = j->max_write = OP_MAX_IO;
	j->clone_block = 4096;
	j->capacity = j->available = 1ull << 40;
	if (ctl_chan_call(ch, &req, 5000, fz_ds_joined, fs))
		fz_bug("a data server could not call");
}

static void fz_ds_up(struct rpc_client *cl, struct rpc_conn *conn, void *arg)
{
	struct fz_server *fs = arg;

	(void)cl;
	if (ctl_chan_connect(&fs->fs_chan, conn, fz_key, fs->fs_uuid, fz_ds_serve, fs, fz_ds_ready))
		fz_bug("a data server could not connect");
}

static void fz_ds_down(struct rpc_client *cl, int err, void *arg)
{
	(void)cl;
	(void)err;
	(void)arg;
	fz_bug("a data server lost its connection");
}

static void fz_ds_start(struct fz_server *fs, const struct sockaddr_in *sin)
{
	static const struct rpc_client_ops ops = {fz_ds_up, fz_ds_down};
	struct rpc_service svc = {.rs_progs = &fs->fs_prog,
				  .rs_nprogs = 1,
				  .rs_max_record = 1 << 20,
				  .rs_max_reply = 1 << 20};

	memcpy(fs->fs_uuid, "a data server's", 16);
	fs->fs_uuid[15] = (uint8_t)('1' + (fs - fz_servers));
	fs->fs_prog =
		(struct rpc_program){CTL_PROGRAM, CTL_VERSION, CTL_VERSION, 3, fz_ds_dispatch, fs};
	if (rpc_client_create(&fs->fs_client, fz_loop, (const struct sockaddr *)sin, sizeof(*sin),
			      &svc, &ops, fs))
		fz_bug("no client");
	rpc_client_start(fs->fs_client);
}

/* ---- birth ---- */

static struct rpc_program fz_progs[2], fz_nfs3_progs[FZ_SERVERS];
static struct rpc_listener *fz_listener, *fz_nfs3_listeners[FZ_SERVERS];

static void fz_listen(void)
{
	static const struct rpc_service svc = {.rs_progs = fz_progs,
					       .rs_nprogs = 2,
					       .rs_max_record = FZ_MAX_RECORD,
					       .rs_max_reply = FZ_MAX_RECORD,
					       .rs_opened = fz_opened,
					       .rs_closed = fz_closed};
	struct rpc_service nfs3 = svc;
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	if (rpc_listen(&fz_listener, fz_loop, (struct sockaddr *)&sin, sizeof(sin), &svc, fz_loops,
		       FZ_LOOPS))
		fz_bug("cannot listen on the loopback");
	fz_port = rpc_listener_port(fz_listener);
	nfs3.rs_nprogs = 1;
	for (unsigned i = 0; i < FZ_SERVERS; i++) {
		fz_nfs3_progs[i] =
			(struct rpc_program){NFS3_PROGRAM, NFS3_VERSION, NFS3_VERSION,
					     NFS3_NPROCS,  fz_nfs3,	 &fz_mood.nfs3_status[i]};
		nfs3.rs_progs = &fz_nfs3_progs[i];
		if (rpc_listen(&fz_nfs3_listeners[i], fz_loop, (struct sockaddr *)&sin, sizeof(sin),
			       &nfs3, &fz_loop, 1))
			fz_bug("cannot listen on the loopback");
		fz_nfs3_port[i] = rpc_listener_port(fz_nfs3_listeners[i]);
	}
}

static void fz_join(void)
{
	struct sockaddr_in sin = {.sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				  .sin_port = htons(fz_port)};

	for (unsigned i = 0; i < FZ_SERVERS; i++)
		fz_ds_start(&fz_servers[i], &sin);
}

static void fz_cleanup(void)
{
	scratch_remove(fz_dir);
}

static void fz_orphans(void *arg)
{
	(void)arg;
	file_orphan_sweep(&mds.m_file, fz_loop);
}

static void fz_expired(void *arg, uint64_t clientid)
{
	(void)arg;
	file_evict(&mds.m_file, fz_loop, clientid);
}

/* The grace period is over. */
static __attribute__((unused)) void fz_tick(void)
{
	mds.m_st->st_reclaimers = 0;
	st_tick(mds.m_st);
	job_replies_tick(&mds, fz_loop);
}

/* And all leases have run out. */
static __attribute__((unused)) void fz_tick_late(void)
{
	uint32_t lease = mds.m_st->st_lease_ms, courtesy = mds.m_st->st_courtesy_ms;

	mds.m_st->st_lease_ms = mds.m_st->st_courtesy_ms = 0;
	fz_tick();
	mds.m_st->st_lease_ms = lease;
	mds.m_st->st_courtesy_ms = courtesy;
}

/* A folder of this run: on TMPDIR, else in memory. */
static void fz_make_dir(const char *name)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(fz_dir, sizeof(fz_dir), "%s/%s.XXXXXX",
		 tmp			    ? tmp
		 : access("/dev/shm", W_OK) ? "/tmp"
					    : "/dev/shm",
		 name);
	if (!mkdtemp(fz_dir))
		fz_bug("cannot make a folder");
	atexit(fz_cleanup);
}

/* Two exports, so that borders are crossed; the second has this number. */
#define fz_export 7
static void fz_exports(void)
{
	static const char text[] = "export \"/\" { privileged_port = no sec = {sys, none} client "
				   "\"*\" { access = rw squash = none } }\n"
				   "export \"/exported\" { id = 7 create = yes client \"*\" { sec "
				   "= {sys} privileged_port = no } }\n";
	char path[160], err[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/exports", fz_dir);
	f = fopen(path, "w");
	if (!f || fputs(text, f) < 0 || fclose(f))
		fz_bug("cannot write the exports");
	if (export_set_open(&mds.m_exports, mds.m_ns, path, err, sizeof(err)))
		fz_bug(err);
	if (op_cred_open(&mds, false, false, 60000))
		fz_bug("no threads");
}

/* joins: with the made-up data servers. */
static void fz_start(const char *name, bool joins)
{
	struct kv_opts opts = {.ko_create = true, .ko_nosync = true, .ko_map_max = 1ull << 30};
	struct ds_reg_opts dopts = {.do_cluster_key = fz_key,
				    .do_lease_ms = FZ_DS_LEASE_MS,
				    .do_suspect_ms = 86400000,
				    .do_refused_ms = 86400000,
				    .do_dead_ms = 86400000,
				    .do_loops = fz_loops,
				    .do_nloops = FZ_LOOPS,
				    .do_pool = FZ_POOL};
	char err[512] = "", path[160];
	pthread_t tid;

	/* Fuzzers cause many log lines, also errors: log only what is fatal, or all with
	 * FUZZ_LOG=1. */
	log_set_level(getenv("FUZZ_LOG") ? LOG_L_DEBUG : (enum log_level) - 1);
	signal(SIGPIPE, SIG_IGN);
	sem_init(&fz_call.done, 0, 0);
	fz_make_dir(name);
	op_metrics_init(&mds);
	mds.m_limits = (struct op_limits){.lm_conns = {.rm_max = 1000, .rm_max_addr = 1000},
					  .lm_clients = 1000,
					  .lm_clients_addr = 1000,
					  .lm_opens = {64, 100, 1000},
					  .lm_locks = {64, 100, 1000},
					  .lm_layouts = {64, 100, 1000}};
	op_limits_init(&mds);
	mds.m_lease_ms = 90000;
	mds.m_recall_ms = FZ_RECALL_MS;
	mds.m_ds_lease_ms = 1000;
	mds.m_file.fe_size_mode = OP_SIZE_LAYOUT;
	mds.m_delegations = OP_DELEG_WRITE;
	strcpy(mds.m_scope, "weft-fuzz");
	if (sodium_init() < 0)
		fz_bug("no random numbers");
	mds.m_thread = fz_threads;
	mds.m_nthreads = FZ_LOOPS;
	for (unsigned i = 0; i < FZ_LOOPS; i++) {
		if (loop_create(&fz_loops[i], 1024))
			fz_bug("no loop");
		fz_threads[i].mt_mds = &mds;
		fz_threads[i].mt_loop = fz_loops[i];
	}
	fz_loop = fz_loops[0];
	atomic_store(&mds.m_serving, true);
	snprintf(path, sizeof(path), "%s/kv", fz_dir);
	if (kv_open(&mds.m_kv, path, &opts, err, sizeof(err)) ||
	    ns_open(&mds.m_ns, mds.m_kv, err, sizeof(err)) ||
	    ds_reg_create(&mds.m_dsc, mds.m_ns, &dopts, err, sizeof(err)))
		fz_bug(err);
	if (st_create(&mds.m_st, mds.m_ns, mds.m_lease_ms, FZ_GRACE_MS, 90000) ||
	    lo_create(&mds.m_lo, mds.m_ns, mds.m_dsc))
		fz_bug("no memory");
	op_file_env(&mds);
	/* none at a time */
	if (job_open(&mds))
		fz_bug("jobs");
	if (job_repair_open(&mds, fz_loop, &(struct job_repair_opts){.ro_wait_ms = 60000}))
		fz_bug("repairs");
	if (job_pins_open(&mds, fz_loop, 85))
		fz_bug("pins");
	if (job_trash_open(&mds, fz_loop))
		fz_bug("trash");
	if (job_tags_open(&mds))
		fz_bug("tags");
	if (job_drain_open(&mds))
		fz_bug("drains");
	fz_exports();
	mds.m_st->st_max_delegs = 1000;
	mds.m_st->st_recall_ms = FZ_RECALL_MS;
	mds.m_st->st_grace_over = mds.m_st->st_orphans = fz_orphans;
	mds.m_st->st_expired = fz_expired;
	ds_reg_set_eof_handler(mds.m_dsc, file_eof_handler, &mds.m_file);
	fz_progs[0] = (struct rpc_program){NFS4_PROGRAM, 4, 4, 2, op_dispatch, &mds};
	fz_progs[1] = *ds_reg_program(mds.m_dsc);
	for (unsigned i = 0; i < FZ_LOOPS; i++) {
		if (pthread_create(&tid, NULL, fz_loop_run, fz_loops[i]))
			fz_bug("no thread");
	}
	fz_on_loop(fz_listen);
	if (!joins)
		return;
	fz_on_loop(fz_join);
	for (unsigned i = 0; i < FZ_SERVERS; i++) {
		while (!fz_servers[i].fs_joined)
			usleep(1000);
	}
}

/* A socket to the server. libFuzzer's own alarm may interrupt it. */
static __attribute__((unused)) int fz_connect(void)
{
	struct sockaddr_in sin = {.sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				  .sin_port = htons(fz_port)};
	int fd, one = 1;

	for (;;) {
		fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (fd >= 0 && !connect(fd, (struct sockaddr *)&sin, sizeof(sin)))
			break;
		if (errno != EINTR)
			fz_bug(strerror(errno));
		close(fd);
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

/* ---- back to the beginning ---- */

struct fz_row {
	uint8_t *r_key, *r_val;
	size_t r_klen, r_vlen;
	bool r_seen;
};
struct fz_rows {
	struct fz_row *rs_v;
	size_t rs_n;
};
static struct fz_rows fz_kept;
static uint64_t fz_inodes;

static struct fz_row *fz_row_add(struct fz_rows *rs, struct kv_slice key, struct kv_slice val)
{
	struct fz_row *r;

	rs->rs_v = realloc(rs->rs_v, (rs->rs_n + 1) * sizeof(*rs->rs_v));
	r = &rs->rs_v[rs->rs_n++];
	*r = (struct fz_row){.r_key = malloc(key.s_len),
			     .r_klen = key.s_len,
			     .r_val = malloc(val.s_len + 1),
			     .r_vlen = val.s_len};
	memcpy(r->r_key, key.s_data, key.s_len);
	if (val.s_len)
		memcpy(r->r_val, val.s_data, val.s_len);
	return r;
}

static struct fz_row *fz_row_find(const struct fz_rows *rs, struct kv_slice key)
{
	for (size_t i = 0; i < rs->rs_n; i++) {
		if (rs->rs_v[i].r_klen == key.s_len &&
		    !memcmp(rs->rs_v[i].r_key, key.s_data, key.s_len))
			return &rs->rs_v[i];
	}
	return NULL;
}

static int fz_keep_run(void *arg, struct kv_txn *t)
{
	struct kv_slice key, val;
	struct kv_scan sc;

	(void)arg;
	if (kv_scan_begin(t, ns_slice("", 0), ns_slice("", 0), &sc))
		fz_bug("the store cannot be scanned");
	while (kv_scan_next(&sc, &key, &val) > 0)
		fz_row_add(&fz_kept, key, val);
	kv_scan_end(&sc);
	fz_inodes = atomic_load(&mds.m_ns->n_inodes);
	return 0;
}

static __attribute__((unused)) void fz_keep(void)
{
	fz_settle();
	kv_run_sync(mds.m_kv, fz_keep_run, NULL);
}

static int fz_restore_run(void *arg, struct kv_txn *t)
{
	struct fz_rows fresh = {0};
	struct kv_slice key, val;
	struct kv_scan sc;
	int err = 0;

	(void)arg;
	for (size_t i = 0; i < fz_kept.rs_n; i++)
		fz_kept.rs_v[i].r_seen = false;
	if (kv_scan_begin(t, ns_slice("", 0), ns_slice("", 0), &sc))
		fz_bug("the store cannot be scanned");
	while (kv_scan_next(&sc, &key, &val) > 0) {
		struct fz_row *r = fz_row_find(&fz_kept, key);

		if (!r)
			fz_row_add(&fresh, key, val);
		else
			r->r_seen = r->r_vlen == val.s_len &&
				    (!val.s_len || !memcmp(r->r_val, val.s_data, val.s_len));
	}
	kv_scan_end(&sc);
	for (size_t i = 0; i < fresh.rs_n; i++) {
		if (!err)
			err = kv_del(t, ns_slice(fresh.rs_v[i].r_key, fresh.rs_v[i].r_klen));
		free(fresh.rs_v[i].r_key);
		free(fresh.rs_v[i].r_val);
	}
	free(fresh.rs_v);
	for (size_t i = 0; i < fz_kept.rs_n && !err; i++) {
		struct fz_row *r = &fz_kept.rs_v[i];

		if (!r->r_seen)
			err = kv_put(t, ns_slice(r->r_key, r->r_klen),
				     ns_slice(r->r_val, r->r_vlen));
	}
	atomic_store(&mds.m_ns->n_inodes, fz_inodes);
	return err;
}

static void fz_forget(void)
{
	struct st *st = mds.m_st;

	st_all_lock(st);
	st->st_in_grace = false;
	hash_each(&st->st_clients, i, l, next)
		st_client_destroy(st, hash_entry(l, struct st_client, cl_link));
	st_each(st, ST_FILE, l)
	{
		struct st_file *f = hash_entry(l, struct st_file, f_link);

		f->f_intent = f->f_intent_durable = f->f_intent_old = f->f_orphan = false;
		st_file_put(st, f);
	}
	st_all_unlock(st);
}

static __attribute__((unused)) void fz_restore(void)
{
	fz_settle();
	fz_on_loop(fz_forget);
	fz_settle();
	if (kv_run_sync(mds.m_kv, fz_restore_run, NULL))
		fz_bug("the store cannot be put back");
}
#endif
