/* SPDX-License-Identifier: Apache-2.0 */
/* ds_rebuild_test.c - two live data servers: one's object is rebuilt from the other's, while
 * clients write both, and while either of them dies. */
/* Not all of what these have is wanted here. */
#pragma GCC diagnostic ignored "-Wunused-function"
#include "base/clock.h"
#include "tests/unit/tls_cert.h"
#include "tests/wirelib/ds_wire.h"
#include <sodium.h>

enum { SOURCE, TARGET };

/* What ds_wire.h keeps of one daemon. */
static struct server {
	char sv_store[96], sv_admin[96], sv_object[256];
	pid_t sv_pid;
	struct rpc_client *sv_nfs;
	struct ctl_chan *sv_chan;
	uint8_t sv_uuid[16];
	struct sockaddr_storage sv_addr;
	socklen_t sv_len;
	struct fh sv_fh;
} server[2];
static int now; /* the one that ds_wire.h's functions are about */

static void keep_server(void)
{
	struct server *sv = &server[now];

	snprintf(sv->sv_store, sizeof(sv->sv_store), "%s", store);
	snprintf(sv->sv_admin, sizeof(sv->sv_admin), "%s", admin);
	snprintf(sv->sv_object, sizeof(sv->sv_object), "%s", object_path());
	sv->sv_pid = ds_pid;
	sv->sv_nfs = nfs;
	sv->sv_chan = mds_chan;
	memcpy(sv->sv_uuid, ds_uuid, 16);
	sv->sv_addr = ds_addr;
	sv->sv_len = ds_addrlen;
}

/* On the loop, which has them as well. */
static void use_run(struct on_loop *ol)
{
	int which = *(int *)ol->ol_arg;
	struct server *sv = &server[which];

	keep_server();
	now = which;
	snprintf(store, sizeof(store), "%s", sv->sv_store);
	snprintf(admin, sizeof(admin), "%s", sv->sv_admin);
	ds_pid = sv->sv_pid;
	nfs = sv->sv_nfs;
	mds_chan = sv->sv_chan;
	memcpy(ds_uuid, sv->sv_uuid, 16);
	ds_addr = sv->sv_addr;
	ds_addrlen = sv->sv_len;
	sem_post(&ol->ol_done);
}

static void use(int which)
{
	on_loop(use_run, &which);
}

static uint32_t epoch;

static struct fh fh_of(int which, unsigned rights)
{
	struct cap c = cap_make(rights);
	uint8_t key[CAP_KEY_LEN], own[CAP_CLUSTER_KEY_LEN];
	struct fh fh;

	c.cp_epoch = epoch;
	cap_derive_fs(cluster_key, c.cp_obj.co_fs, own);
	cap_derive_key(own, server[which].sv_uuid, c.cp_key, key);
	cap_mint(&c, key, fh.b);
	return fh;
}

static void both_start(void)
{
	snprintf(server[TARGET].sv_store, sizeof(store), "%s/target", dir);
	snprintf(server[TARGET].sv_admin, sizeof(admin), "%s/target.admin", dir);
	ck_assert_int_eq(mkdir(server[TARGET].sv_store, 0700), 0);
	now = SOURCE;
	ds_start();
	use(TARGET);
	ds_options[0] = NULL; /* the source's own */
	nfs_by_tls = false;
	ds_start();
	keep_server();
	epoch = 1;
}

static void setup_both(void)
{
	setup_nothing_running();
	both_start();
}

static void teardown_both(void)
{
	use(SOURCE);
	if (ds_pid > 0)
		ds_kill(SIGKILL);
	use(TARGET);
	teardown();
}

/* ---- the metadata server's steps ---- */

static char uaddr[80], netid[16];
static ctl_addr source_addr = {.netid = netid, .uaddr = uaddr};
static bool source_tls;
static uint64_t instance = 5;

static ctl_status rebuild_at(ctl_rebuild_step step, uint64_t session, uint64_t off, uint64_t len,
			     const struct sockaddr_storage *at)
{
	struct cap c = cap_make(0);
	ctl_request req = {.op = CTL_OP_REBUILD};
	ctl_rebuild_args *a = &req.ctl_request_u.rebuild;
	struct fh fh = fh_of(SOURCE, CAP_READ);

	a->instance_epoch = instance;
	a->step = step;
	a->object = object_of(&c);
	a->epoch = epoch;
	a->session = session;
	a->offset = off;
	a->length = len;
	ck_assert_int_eq(
		rpc_uaddr((const struct sockaddr *)at, netid, sizeof(netid), uaddr, sizeof(uaddr)),
		0);
	a->source.addrs.addrs_len = 1;
	a->source.addrs.addrs_val = &source_addr;
	memcpy(a->source.handle, fh.b, CAP_LEN);
	memcpy(a->source.ds_uuid, server[SOURCE].sv_uuid, 16);
	a->source.tls = source_tls ? RPC_TLS_REQUIRED : RPC_TLS_OFF;
	return mds_ask(&req);
}

static ctl_status rebuild(ctl_rebuild_step step, uint64_t session, uint64_t off, uint64_t len)
{
	return rebuild_at(step, session, off, len, &server[SOURCE].sv_addr);
}

static ctl_status begin_next(uint64_t session)
{
	epoch++;
	return rebuild(CTL_REBUILD_BEGIN, session, 0, 0);
}

/* All of it, and what was done. */
static ctl_rebuild_res pull_all(uint64_t session)
{
	ctl_rebuild_res sum = {0};

	do {
		ck_assert_int_eq(rebuild(CTL_REBUILD_PULL, session, got_rebuild.next, 8 * MIB),
				 CTL_OK);
		sum.copied += got_rebuild.copied;
		sum.same += got_rebuild.same;
		sum.holes += got_rebuild.holes;
	} while (!got_rebuild.eof);
	sum.size = got_rebuild.size;
	return sum;
}

static void begin_pull_end(uint64_t session)
{
	ck_assert_int_eq(begin_next(session), CTL_OK);
	got_rebuild.next = 0;
	pull_all(session);
	ck_assert_int_eq(rebuild(CTL_REBUILD_END, session, 0, 0), CTL_OK);
}

/* ---- clients ---- */

static uint32_t write_to(int which, struct fh fh, uint64_t off, const void *data, uint32_t n,
			 uint32_t how)
{
	struct nfs_call *c = call_new(NFS3_WRITE);

	c->nc_client = server[which].sv_nfs;
	xdr_put_opaque(&c->nc_args, fh.b, CAP_LEN);
	xdr_put_u64(&c->nc_args, off);
	xdr_put_u32(&c->nc_args, n);
	xdr_put_u32(&c->nc_args, how);
	xdr_put_opaque(&c->nc_args, data, n);
	call_start(c);
	return write_end(c, n, how, NULL);
}

static void put_bytes(int which, uint64_t off, int byte, uint32_t n)
{
	uint8_t *mem = malloc(n);

	memset(mem, byte, n);
	ck_assert_uint_eq(write_to(which, fh_of(which, CAP_WRITE), off, mem, n, NFS3_FILE_SYNC),
			  NFS3_OK);
	free(mem);
}

static uint8_t *file_bytes(const char *path, size_t *n)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint8_t *mem;
	struct stat st;

	*n = 0;
	if (fd < 0)
		return NULL;
	ck_assert_int_eq(fstat(fd, &st), 0);
	mem = malloc((size_t)st.st_size + 1);
	ck_assert_int_eq(read(fd, mem, (size_t)st.st_size), st.st_size);
	close(fd);
	*n = (size_t)st.st_size;
	return mem;
}

static bool same_bytes(void)
{
	size_t n[2];
	uint8_t *mem[2] = {file_bytes(server[SOURCE].sv_object, &n[0]),
			   file_bytes(server[TARGET].sv_object, &n[1])};
	bool same = mem[0] && mem[1] && n[0] == n[1] && !memcmp(mem[0], mem[1], n[0]);

	free(mem[0]);
	free(mem[1]);
	return same;
}

static uint32_t target_read(void)
{
	return read_status(fh_of(TARGET, CAP_READ));
}

/* ---- one after another ---- */

START_TEST(object_is_made_from_another_servers)
{
	ctl_rebuild_res sum;

	put_bytes(SOURCE, 0, 'a', MIB - 77);
	put_bytes(SOURCE, 30 * MIB + 5, 'b', 3000);
	put_bytes(SOURCE, 50 * MIB, 'c', MIB);
	ck_assert_int_eq(begin_next(7), CTL_OK);
	ck_assert_uint_eq(got_rebuild.size, 0);
	ck_assert_int_eq(stat_object().status, CTL_REBUILDING);
	ck_assert_uint_eq(target_read(), NFS3ERR_ACCES);
	got_rebuild.next = 0;
	sum = pull_all(7);
	ck_assert_uint_eq(sum.size, 51 * MIB);
	ck_assert_uint_lt(sum.copied, 3 * MIB);
	ck_assert_uint_gt(sum.holes, 48 * MIB);
	ck_assert_uint_eq(target_read(), NFS3ERR_ACCES);
	ck_assert_uint_eq(metric("weft_ds_rebuild_sessions"), 1);
	ck_assert_int_eq(rebuild(CTL_REBUILD_END, 7, 0, 0), CTL_OK);
	ck_assert_uint_eq(got_rebuild.size, 51 * MIB);
	/* The count that is told does not make the object a written one. */
	ck_assert_uint_eq(stat_object().writes, got_rebuild.writes);
	ck_assert_int_eq(stat_object().status, CTL_OK);
	ck_assert_uint_eq(target_read(), NFS3_OK);
	ck_assert(same_bytes());
	ck_assert_uint_eq(metric("weft_ds_rebuild_bytes_total{what=\"copied\"}"), sum.copied);
	ck_assert_uint_eq(metric("weft_ds_rebuild_bytes_total{what=\"hole\"}"), sum.holes);
	ck_assert_uint_eq(metric("weft_ds_rebuild_sessions"), 0);
	use(SOURCE);
	ck_assert_uint_ge(metric("weft_ds_peer_bytes_total"), 2 * MIB);
	use(TARGET);
	/* in place: nothing is to be done */
	ck_assert_int_eq(begin_next(8), CTL_OK);
	got_rebuild.next = 0;
	sum = pull_all(8);
	ck_assert_uint_eq(sum.copied, 0);
	ck_assert_int_eq(rebuild(CTL_REBUILD_ABORT, 8, 0, 0), CTL_OK);
	ck_assert_uint_eq(target_read(), NFS3ERR_ACCES);
}
END_TEST

START_TEST(steps_may_be_repeated)
{
	uint64_t was;

	put_bytes(SOURCE, 0, 'a', MIB);
	put_bytes(SOURCE, 20 * MIB, 'b', MIB);
	ck_assert_int_eq(begin_next(7), CTL_OK);
	ck_assert_int_eq(rebuild(CTL_REBUILD_PULL, 7, 0, 8 * MIB), CTL_OK);
	was = got_rebuild.next;
	ck_assert_uint_eq(was, 8 * MIB);
	ck_assert_int_eq(rebuild(CTL_REBUILD_BEGIN, 7, 0, 0), CTL_OK);
	ck_assert_int_eq(rebuild(CTL_REBUILD_PULL, 7, 0, 8 * MIB), CTL_OK);
	ck_assert_uint_eq(got_rebuild.next, was);
	ck_assert_int_eq(rebuild(CTL_REBUILD_PULL, 7, was + 1, MIB), CTL_INVAL);
	ck_assert_int_eq(rebuild(CTL_REBUILD_PULL, 7, was, 0), CTL_INVAL);
	ck_assert_int_eq(rebuild(CTL_REBUILD_END, 7, 0, 0), CTL_INVAL);
	ck_assert_int_eq(rebuild(CTL_REBUILD_PULL, 8, was, MIB), CTL_BAD_SESSION);
	ck_assert_int_eq(rebuild(CTL_REBUILD_PULL, 7, was, UINT64_MAX), CTL_OK);
	ck_assert_uint_eq(got_rebuild.eof, 1);
	ck_assert_int_eq(rebuild(CTL_REBUILD_PULL, 7, got_rebuild.next, 8 * MIB), CTL_OK);
	ck_assert_uint_eq(got_rebuild.eof, 1);
	ck_assert_uint_eq(got_rebuild.next, 21 * MIB);
	ck_assert_int_eq(rebuild((ctl_rebuild_step)9, 7, 0, 0), CTL_INVAL);
	ck_assert_int_eq(rebuild(CTL_REBUILD_END, 7, 0, 0), CTL_OK);
	ck_assert_int_eq(rebuild(CTL_REBUILD_END, 7, 0, 0), CTL_BAD_SESSION);
	ck_assert(same_bytes());
}
END_TEST

START_TEST(who_is_deposed_and_who_has_no_lease_rebuilds_nothing)
{
	instance = 4;
	ck_assert_int_eq(begin_next(7), CTL_STALE_INSTANCE);
	instance = 5;
	mds_lease_ms = 0;
	ds_restart(SIGKILL);
	ck_assert_int_eq(begin_next(7), CTL_NOT_JOINED);
	mds_lease_ms = 30000;
	wait_for(target_read() == NFS3_OK);
	ck_assert_int_eq(begin_next(7), CTL_OK);
}
END_TEST

START_TEST(killed_target_keeps_the_flag_and_begins_again)
{
	struct fh fh;

	put_bytes(SOURCE, 0, 'a', MIB);
	put_bytes(SOURCE, 12 * MIB, 'b', MIB);
	put_bytes(TARGET, 4 * MIB, 'x', MIB);
	ck_assert_int_eq(begin_next(7), CTL_OK);
	ck_assert_int_eq(rebuild(CTL_REBUILD_PULL, 7, 0, 8 * MIB), CTL_OK);
	put_bytes(TARGET, 9 * MIB, 'c', 1000); /* and does not come to the source */
	ds_restart(SIGKILL);
	keep_server();
	fh = fh_of(TARGET, CAP_READ | CAP_WRITE);
	ck_assert_uint_eq(do_write(fh, 0, "x", 1, 0), NFS3ERR_JUKEBOX);
	ck_assert_uint_eq(do_commit(fh, NULL), NFS3ERR_JUKEBOX);
	ck_assert_uint_eq(read_status(fh), NFS3ERR_ACCES);
	ck_assert_uint_eq(metric("weft_ds_rebuild_put_off_total"), 1);
	ck_assert_int_eq(stat_object().status, CTL_REBUILDING);
	ck_assert_int_eq(rebuild(CTL_REBUILD_PULL, 7, 8 * MIB, 8 * MIB), CTL_BAD_SESSION);
	ck_assert_int_eq(rebuild(CTL_REBUILD_BEGIN, 8, 0, 0), CTL_FENCED);
	begin_pull_end(8);
	ck_assert(same_bytes());
	fh = fh_of(TARGET, CAP_READ | CAP_WRITE);
	ck_assert_uint_eq(do_write(fh, 0, "x", 1, 0), NFS3_OK);
	ck_assert_uint_eq(do_commit(fh, NULL), NFS3_OK);
}
END_TEST

START_TEST(killed_source_is_told_and_waited_for)
{
	struct timespec a, b;

	put_bytes(SOURCE, 0, 'a', MIB);
	put_bytes(SOURCE, 12 * MIB, 'b', MIB);
	ck_assert_int_eq(begin_next(7), CTL_OK);
	ck_assert_int_eq(rebuild(CTL_REBUILD_PULL, 7, 0, 8 * MIB), CTL_OK);
	use(SOURCE);
	ds_kill(SIGKILL);
	use(TARGET);
	clock_gettime(CLOCK_MONOTONIC, &a);
	ck_assert_int_eq(rebuild(CTL_REBUILD_PULL, 7, 8 * MIB, 8 * MIB), CTL_SOURCE);
	clock_gettime(CLOCK_MONOTONIC, &b);
	ck_assert_int_lt(b.tv_sec - a.tv_sec, 5);
	use(SOURCE);
	ds_start();
	use(TARGET);
	got_rebuild.next = 8 * MIB;
	pull_all(7);
	ck_assert_int_eq(rebuild(CTL_REBUILD_END, 7, 0, 0), CTL_OK);
	ck_assert(same_bytes());
}
END_TEST

/* ---- what a peer may read ---- */

static uint32_t peer_read(struct fh fh, uint64_t off, uint32_t count)
{
	struct nfs_call *c = call_new(CTL_PEER_READ);
	uint32_t st;

	c->nc_prog = CTL_PEER_PROGRAM;
	c->nc_vers = CTL_PEER_VERSION;
	c->nc_client = server[SOURCE].sv_nfs;
	xdr_put_opaque(&c->nc_args, fh.b, CAP_LEN);
	xdr_put_u64(&c->nc_args, off);
	xdr_put_u32(&c->nc_args, count);
	call_start(c);
	st = xdr_get_u32(call_wait(c));
	ck_assert_int_eq(c->nc_err, 0);
	ck_assert(!c->nc_x.bad);
	call_free(c);
	return st;
}

START_TEST(peer_reads_what_its_capability_lets_it)
{
	struct fh fh = fh_of(SOURCE, CAP_READ), must = fh_of(SOURCE, CAP_READ | CAP_MUST_EXIST);
	struct nfs_call *call = call_new(CTL_PEER_READ);

	ck_assert_uint_eq(peer_read(fh, 0, MIB), NFS3_OK); /* not there: empty */
	ck_assert_uint_eq(peer_read(must, 0, MIB), NFS3ERR_STALE);
	put_bytes(SOURCE, 0, 'a', MIB);
	ck_assert_uint_eq(peer_read(must, 0, MIB), NFS3_OK);
	ck_assert_uint_eq(peer_read(fh, 100 * MIB, 1), NFS3_OK);
	ck_assert_uint_eq(peer_read(fh, 0, 0), NFS3ERR_INVAL);
	ck_assert_uint_eq(peer_read(fh, 0, MIB + 1), NFS3ERR_INVAL);
	ck_assert_uint_eq(peer_read(fh, INT64_MAX, 1), NFS3ERR_INVAL);
	ck_assert_uint_eq(peer_read(fh, UINT64_MAX, MIB), NFS3ERR_INVAL);
	ck_assert_uint_eq(peer_read(fh_of(SOURCE, CAP_WRITE), 0, MIB), NFS3ERR_ACCES);
	ck_assert_uint_eq(peer_read(fh_of(TARGET, CAP_READ), 0, MIB), NFS3ERR_BADHANDLE);
	fh.b[30] ^= 1;
	ck_assert_uint_eq(peer_read(fh, 0, MIB), NFS3ERR_BADHANDLE);
	/* A handle with nothing behind it. */
	call->nc_prog = CTL_PEER_PROGRAM;
	call->nc_vers = CTL_PEER_VERSION;
	call->nc_client = server[SOURCE].sv_nfs;
	xdr_put_opaque(&call->nc_args, fh.b, CAP_LEN);
	call_start(call);
	call_wait(call);
	ck_assert_int_eq(call->nc_err, -EPROTO);
	call_free(call);
	use(SOURCE);
	ck_assert_int_eq(order(CTL_FENCE, 1, 2), CTL_OK);
	use(TARGET);
	ck_assert_uint_eq(peer_read(fh_of(SOURCE, CAP_READ), 0, MIB), NFS3ERR_ACCES);
	epoch = 2;
	ck_assert_uint_eq(peer_read(fh_of(SOURCE, CAP_READ), 0, MIB), NFS3_OK);
	use(SOURCE);
	ck_assert_int_eq(order(CTL_BAR_CLIENT, 2, 42), CTL_OK);
	use(TARGET);
	ck_assert_uint_eq(peer_read(fh_of(SOURCE, CAP_READ), 0, MIB), NFS3ERR_ACCES);
}
END_TEST

/* What is being rebuilt is no source. */
START_TEST(flagged_object_is_no_source)
{
	put_bytes(SOURCE, 0, 'a', MIB);
	epoch++;
	use(SOURCE);
	{
		struct cap c = cap_make(0);
		ctl_request req = {.op = CTL_OP_REBUILD};

		req.ctl_request_u.rebuild = (ctl_rebuild_args){.instance_epoch = 5,
							       .step = CTL_REBUILD_BEGIN,
							       .object = object_of(&c),
							       .epoch = 2,
							       .session = 1};
		ck_assert_int_eq(mds_ask(&req), CTL_OK);
	}
	use(TARGET);
	ck_assert_uint_eq(peer_read(fh_of(SOURCE, CAP_READ), 0, MIB), NFS3ERR_ACCES);
	ck_assert_int_eq(begin_next(7), CTL_OK);
	ck_assert_int_eq(rebuild(CTL_REBUILD_PULL, 7, 0, MIB), CTL_SOURCE);
}
END_TEST

/* ---- a source that lies ---- */

static struct rpc_listener *liar_listener;
static struct sockaddr_storage liar_addr;
static int liar_how;
enum {
	HONEST,
	BAD_SUM,
	TOO_LONG,
	BACKWARDS,
	PAST,
	NOTHING,
	EMPTY_PART,
	SHORT,
	OVERFLOW,
	MANY,
	HUGE,
	GARBAGE,
	MORE,
	LIES
};

static void liar_dispatch(struct rpc_call *call, void *arg)
{
	static uint8_t data[MIB], sum[32];
	struct xdr_out *x = &call->c_reply;
	uint32_t len = 8192, parts = 2;
	uint64_t off, to;

	(void)arg;
	if (call->c_proc == CTL_PEER_NULL) {
		rpc_reply(call);
		return;
	}
	xdr_get_opaque(&call->c_args, 64, &(uint32_t){0});
	off = xdr_get_u64(&call->c_args);
	to = off + xdr_get_u32(&call->c_args);
	memset(data, 'L', len);
	crypto_generichash(sum, sizeof(sum), data, len, NULL, 0);
	sum[5] ^= liar_how == BAD_SUM;
	xdr_put_u32(x, NFS3_OK);
	xdr_put_u64(x, liar_how == PAST ? 6000 : liar_how == HUGE ? 1ull << 63 : 20000);
	xdr_put_u64(x, liar_how == TOO_LONG ? to + 1 : liar_how == NOTHING ? off : to);
	xdr_put_fixed(x, sum, sizeof(sum));
	if (liar_how == GARBAGE) {
		rpc_reply(call);
		return;
	}
	xdr_put_u32(x, liar_how == MANY ? 0x10000000 : parts);
	xdr_put_u64(x, liar_how == BACKWARDS ? 8192 : 0);
	xdr_put_u32(x, liar_how == EMPTY_PART ? 0 : 4096);
	xdr_put_u64(x, liar_how == BACKWARDS ? 0 : liar_how == OVERFLOW ? UINT64_MAX - 100 : 8192);
	xdr_put_u32(x, liar_how == EMPTY_PART ? 8192 : 4096);
	xdr_put_opaque(x, data, liar_how == SHORT ? len - 4 : len);
	if (liar_how == MORE)
		xdr_put_u32(x, 0);
	rpc_reply(call);
}

static const struct rpc_program liar_prog = {
	CTL_PEER_PROGRAM, CTL_PEER_VERSION, CTL_PEER_VERSION, 2, liar_dispatch, NULL};
static const struct rpc_service liar_svc = {
	.rs_progs = &liar_prog, .rs_nprogs = 1, .rs_max_record = 2 * MIB, .rs_max_reply = 2 * MIB};

static void liar_start(struct on_loop *ol)
{
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	ol->ol_err = rpc_listen(&liar_listener, L, (struct sockaddr *)&sin, sizeof sin, &liar_svc,
				&L, 1);
	sin.sin_port = htons(rpc_listener_port(liar_listener));
	memcpy(&liar_addr, &sin, sizeof(sin));
	sem_post(&ol->ol_done);
}

START_TEST(answers_that_make_no_sense_change_nothing)
{
	put_bytes(TARGET, 0, 'x', 50000);
	ck_assert_int_eq(on_loop(liar_start, NULL), 0);
	ck_assert_int_eq(begin_next(7), CTL_OK);
	for (liar_how = HONEST + 1; liar_how < LIES; liar_how++) {
		ctl_status st = rebuild_at(CTL_REBUILD_PULL, 7, 0, MIB, &liar_addr);
		size_t n;
		uint8_t *mem;

		ck_assert_msg(st == CTL_SOURCE, "lie %d: status %d", liar_how, st);
		mem = file_bytes(server[TARGET].sv_object, &n);
		ck_assert_uint_eq(n, 50000);
		for (size_t i = 0; i < n; i++)
			ck_assert(mem[i] == 'x');
		free(mem);
	}
	liar_how = HONEST;
	ck_assert_int_eq(rebuild_at(CTL_REBUILD_PULL, 7, 0, MIB, &liar_addr), CTL_OK);
	ck_assert_uint_eq(got_rebuild.size, 20000);
	ck_assert_uint_eq(got_rebuild.copied, 8192);
	ck_assert_uint_eq(stat_object().size, 20000);
}
END_TEST

/* ---- TLS ---- */

static void setup_tls(void)
{
	static char cert[128], key[128], o_cert[192], o_key[192];

	setup_nothing_running();
	snprintf(cert, sizeof(cert), "%s/cert", dir);
	snprintf(key, sizeof(key), "%s/certkey", dir);
	snprintf(o_cert, sizeof(o_cert), "ds.tls_cert=%s", cert);
	snprintf(o_key, sizeof(o_key), "ds.tls_key=%s", key);
	cert_make(cert, key);
	ds_options[0] = "ds.tls=required";
	ds_options[1] = o_cert;
	ds_options[2] = o_key;
	nfs_by_tls = true;
	both_start();
}

START_TEST(source_that_demands_tls_gets_it)
{
	put_bytes(SOURCE, 0, 'a', MIB);
	ck_assert_int_eq(begin_next(7), CTL_OK);
	ck_assert_int_eq(rebuild(CTL_REBUILD_PULL, 7, 0, MIB), CTL_SOURCE);
	source_tls = true;
	got_rebuild.next = 0;
	pull_all(7);
	ck_assert_int_eq(rebuild(CTL_REBUILD_END, 7, 0, 0), CTL_OK);
	ck_assert(same_bytes());
}
END_TEST

/* ---- clients that write both, as one with a layout does ---- */

enum { WRITERS = 3, LEAST_ROUNDS = 10 };
#define RACE_NS 60000000000u

static struct {
	_Atomic bool ra_stop;
	uint32_t ra_slot, ra_slots, ra_size;
	struct fh ra_fh[2];
	uint64_t ra_seed;
	_Atomic unsigned ra_writes, ra_again;
} ra;

static uint32_t rnd(uint32_t n)
{
	static _Thread_local uint64_t x;
	static _Atomic uint64_t threads;

	if (!x)
		x = (ra.ra_seed + atomic_fetch_add(&threads, 1)) * 0x9e3779b97f4a7c15ull + 1;
	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return (uint32_t)(x >> 20) % n;
}

static void race_write(int which, uint64_t off, const void *mem, uint32_t n)
{
	uint32_t st;

	while ((st = write_to(which, ra.ra_fh[which], off, mem, n,
			      rnd(8) ? NFS3_UNSTABLE : NFS3_DATA_SYNC)) == NFS3ERR_JUKEBOX) {
		atomic_fetch_add(&ra.ra_again, 1);
		msleep(1);
	}
	ck_assert_uint_eq(st, NFS3_OK);
}

/* In any order, with a pause between; bytes that no other writer writes. */
static void *writer(void *arg)
{
	unsigned me = (unsigned)(uintptr_t)arg;
	uint8_t *mem = malloc(ra.ra_slot);

	while (!ra.ra_stop) {
		uint64_t off = (uint64_t)(rnd(ra.ra_slots) / WRITERS * WRITERS + me) * ra.ra_slot;
		uint32_t skip = rnd(2) ? rnd(ra.ra_slot) : 0, n = 1 + rnd(ra.ra_slot - skip);
		int first = (int)rnd(2);

		memset(mem, (int)(1 + rnd(255)), n);
		race_write(first, off + skip, mem, n);
		if (rnd(3) == 0)
			nanosleep(&(struct timespec){.tv_nsec = (long)rnd(2000000)}, NULL);
		race_write(!first, off + skip, mem, n);
		atomic_fetch_add(&ra.ra_writes, 1);
	}
	free(mem);
	return NULL;
}

static void old_contents(void)
{
	for (unsigned i = 0; i < 4; i++) {
		put_bytes(SOURCE, rnd(ra.ra_size), (int)rnd(256), 1 + rnd(100000));
		if (rnd(2))
			put_bytes(TARGET, rnd(ra.ra_size), (int)rnd(256), 1 + rnd(100000));
	}
}

static void race_start(pthread_t t[WRITERS], unsigned round, bool anew)
{
	static const uint32_t slots[] = {700, 4096, 9000, 70000, 300000};

	ra.ra_slot = slots[round % 5];
	ra.ra_size = 1 + rnd(2 * MIB);
	ra.ra_slots = ra.ra_size / ra.ra_slot + WRITERS;
	ra.ra_stop = false;
	if (anew)
		old_contents();
	ck_assert_int_eq(begin_next(round + 1), CTL_OK);
	for (int k = 0; k < 2; k++)
		ra.ra_fh[k] = fh_of(k, CAP_WRITE);
	for (uintptr_t i = 0; i < WRITERS; i++)
		pthread_create(&t[i], NULL, writer, (void *)i);
}

static void race_stop(pthread_t t[WRITERS], unsigned round)
{
	ra.ra_stop = true;
	for (unsigned i = 0; i < WRITERS; i++)
		pthread_join(t[i], NULL);
	ck_assert_msg(same_bytes(), "round %u of seed %lu", round, (unsigned long)ra.ra_seed);
}

static void seed_from_env(void)
{
	ra.ra_seed = getenv("WEFT_TEST_SEED") ? strtoull(getenv("WEFT_TEST_SEED"), NULL, 0) : 1;
}

/* So many rounds; of those that nobody asked for, on a slow machine, as many as there is time
 * for. */
START_TEST(pull_and_mirrored_writes_end_equal)
{
	const char *asked = getenv("WEFT_TEST_ROUNDS");
	unsigned rounds = asked ? (unsigned)atoi(asked) : 100, round;
	uint64_t end = clock_mono_ns() + RACE_NS;
	pthread_t t[WRITERS];

	seed_from_env();
	for (round = 0; round < rounds && (asked || round < LEAST_ROUNDS || clock_mono_ns() < end);
	     round++) {
		race_start(t, round, true);
		for (uint64_t next = 0;; next = got_rebuild.next) {
			ck_assert_int_eq(rebuild(CTL_REBUILD_PULL, round + 1, next, 1 + rnd(MIB)),
					 CTL_OK);
			if (got_rebuild.eof)
				break;
		}
		ck_assert_int_eq(rebuild(CTL_REBUILD_END, round + 1, 0, 0), CTL_OK);
		race_stop(t, round);
	}
	ck_assert_uint_gt(ra.ra_writes, round);
}
END_TEST

/* Writers are fenced between two sessions, as the metadata server does it; what they had under way
 * on one side only is made equal. */
START_TEST(killed_target_among_writes_ends_equal)
{
	pthread_t t[WRITERS];

	seed_from_env();
	for (unsigned round = 0; round < 6; round++) {
		race_start(t, 2 * round, true);
		ck_assert_int_eq(rebuild(CTL_REBUILD_PULL, 2 * round + 1, 0, 1 + rnd(MIB)), CTL_OK);
		ra.ra_stop = true;
		for (unsigned i = 0; i < WRITERS; i++)
			pthread_join(t[i], NULL);
		/* the source never hears of it */
		put_bytes(TARGET, rnd(ra.ra_size), 'n', 1 + rnd(50000));
		ds_restart(SIGKILL);
		keep_server();
		ck_assert_uint_eq(do_write(fh_of(TARGET, CAP_WRITE), 0, "x", 1, 0),
				  NFS3ERR_JUKEBOX);
		race_start(t, 2 * round + 1, false);
		got_rebuild.next = 0;
		pull_all(2 * round + 2);
		ck_assert_int_eq(rebuild(CTL_REBUILD_END, 2 * round + 2, 0, 0), CTL_OK);
		race_stop(t, round);
	}
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("ds_rebuild");
	static const TTest *steps[8], *peers[4], *tls[2], *races[4];
	unsigned n = 0;

	steps[n++] = object_is_made_from_another_servers;
	steps[n++] = steps_may_be_repeated;
	steps[n++] = who_is_deposed_and_who_has_no_lease_rebuilds_nothing;
	steps[n++] = killed_target_keeps_the_flag_and_begins_again;
	steps[n++] = killed_source_is_told_and_waited_for;
	unit_add(s, "steps", setup_both, teardown_both, 120, steps);
	n = 0;
	peers[n++] = peer_reads_what_its_capability_lets_it;
	peers[n++] = flagged_object_is_no_source;
	peers[n++] = answers_that_make_no_sense_change_nothing;
	unit_add(s, "peers", setup_both, teardown_both, 120, peers);
	tls[0] = source_that_demands_tls_gets_it;
	unit_add(s, "TLS", setup_tls, teardown_both, 120, tls);
	n = 0;
	races[n++] = pull_and_mirrored_writes_end_equal;
	races[n++] = killed_target_among_writes_ends_equal;
	unit_add(s, "races", setup_both, teardown_both, 150, races);
	return s;
}

int main(void)
{
	return unit_run(suite());
}
