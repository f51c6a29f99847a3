/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_generic.c - a generic data server that lies: whole jobs of mds/dataserver/nfs3ds_*.c (a
 * server is taken in, orders, sizes, data and holes, a rebuild, a sum) against a made-up NFSv3
 * server whose answers are the fuzzer's.
 *
 * An input's first bytes choose the job and its numbers; then each answer takes a byte from it:
 * honest, a status, cut short, honest with a byte changed, or bytes of the input. Where the input
 * has ended the server is honest. One server is taken in at the start, so that jobs have objects on
 * it; its own questions (does it live?) take answers as well.
 *
 * Held, beyond the sanitizers: each job ends, once, within its time; and what was answered is of
 * the kind that was asked.
 */
#define FZ_POOL	       8
#define FZ_DS_LEASE_MS 2000 /* it is asked whether it lives five times in this */
#include "mds/dataserver/nfs3ds.h"
#include "tests/fuzz/mds_fuzz.h"

#define FILES	4096
#define OBJECTS 3
#define INO	4711

/* ---- the server ---- */

/* The input, from the fuzzer's thread to the loop; the loop alone reads it. */
static const uint8_t *in, *in_end;
static bool taken_in;
static uint64_t last_file = 1;
static struct file {
	uint32_t fi_mode, fi_uid, fi_gid, fi_dir;
	uint64_t fi_size;
	uint32_t fi_ctime;
} files[FILES];
static uint32_t tick;

static uint8_t byte(void)
{
	return in < in_end ? *in++ : 0;
}

static struct nfs3_fattr *attr_of(uint64_t n)
{
	static struct nfs3_fattr fa;
	const struct file *f = &files[n % FILES];

	fa = (struct nfs3_fattr){.fa_type = f->fi_dir ? NF3DIR : NF3REG,
				 .fa_mode = f->fi_mode,
				 .fa_nlink = 1,
				 .fa_uid = f->fi_uid,
				 .fa_gid = f->fi_gid,
				 .fa_size = f->fi_size,
				 .fa_used = f->fi_size,
				 .fa_fileid = n,
				 .fa_mtime = {f->fi_ctime, 0},
				 .fa_ctime = {f->fi_ctime, 0}};
	return &fa;
}

static void put_handle(struct xdr_out *x, uint64_t n)
{
	xdr_put_u32(x, 8);
	xdr_put_u64(x, n);
}

static uint64_t new_file(uint32_t dir)
{
	files[++last_file % FILES] =
		(struct file){.fi_mode = 0644, .fi_dir = dir, .fi_ctime = ++tick};
	return last_file;
}

static void set_attr(uint64_t n, struct xdr_in *x)
{
	struct file *f = &files[n % FILES];
	struct nfs3_sattr sa;

	nfs3_get_sattr(x, &sa);
	if (x->bad)
		fz_bug("a SETATTR that is none");
	if (sa.sa_set & NFS3_SA_MODE)
		f->fi_mode = sa.sa_mode;
	if (sa.sa_set & NFS3_SA_UID)
		f->fi_uid = sa.sa_uid;
	if (sa.sa_set & NFS3_SA_GID)
		f->fi_gid = sa.sa_gid;
	if (sa.sa_set & NFS3_SA_SIZE)
		f->fi_size = sa.sa_size;
	f->fi_ctime = ++tick;
}

static void honest_made(struct rpc_call *call, uint64_t n)
{
	xdr_put_bool(&call->c_reply, true);
	put_handle(&call->c_reply, n);
	nfs3_put_post_op(&call->c_reply, attr_of(n));
	nfs3_put_wcc(&call->c_reply, NULL);
}

static void honest_read(struct rpc_call *call, uint64_t n)
{
	static const uint8_t zeros[65536];
	uint64_t off = xdr_get_u64(&call->c_args), size = files[n % FILES].fi_size;
	uint32_t count = xdr_get_u32(&call->c_args), most = sizeof(zeros);
	uint32_t give = off >= size ? 0 : size - off < count ? (uint32_t)(size - off) : count;

	give = give < most ? give : most;
	nfs3_put_post_op(&call->c_reply, attr_of(n));
	xdr_put_u32(&call->c_reply, give);
	xdr_put_bool(&call->c_reply, off + give >= size);
	xdr_put_opaque(&call->c_reply, zeros, give);
}

static void honest_write(struct rpc_call *call, uint64_t n)
{
	uint64_t off = xdr_get_u64(&call->c_args);
	uint32_t count = xdr_get_u32(&call->c_args);
	struct file *f = &files[n % FILES];

	f->fi_size = off + count > f->fi_size ? off + count : f->fi_size;
	f->fi_ctime = ++tick;
	nfs3_put_wcc(&call->c_reply, attr_of(n));
	xdr_put_u32(&call->c_reply, count);
	xdr_put_u32(&call->c_reply, xdr_get_u32(&call->c_args));
	xdr_put_u64(&call->c_reply, 1);
}

static void honest(struct rpc_call *call, uint64_t n)
{
	struct xdr_out *x = &call->c_reply;

	xdr_put_u32(x, NFS3_OK);
	switch (call->c_proc) {
	case NFS3_GETATTR:
		nfs3_put_fattr(x, attr_of(n));
		break;
	case NFS3_SETATTR:
		set_attr(n, &call->c_args);
		nfs3_put_wcc(x, attr_of(n));
		break;
	case NFS3_LOOKUP:
		put_handle(x, last_file);
		nfs3_put_post_op(x, attr_of(last_file));
		nfs3_put_post_op(x, NULL);
		break;
	case NFS3_CREATE:
		honest_made(call, new_file(0));
		break;
	case NFS3_MKDIR:
		honest_made(call, new_file(1));
		break;
	case NFS3_READ:
		honest_read(call, n);
		break;
	case NFS3_WRITE:
		honest_write(call, n);
		break;
	case NFS3_FSSTAT:
		nfs3_put_post_op(x, NULL);
		for (int i = 0; i < 6; i++)
			xdr_put_u64(x, 1u << 30);
		xdr_put_u32(x, 0);
		break;
	case NFS3_FSINFO:
		nfs3_put_post_op(x, NULL);
		for (int i = 0; i < 7; i++)
			xdr_put_u32(x, 65536);
		xdr_put_u64(x, UINT64_MAX);
		xdr_put_u64(x, 1);
		xdr_put_u32(x, 0x1b);
		break;
	case NFS3_COMMIT:
		nfs3_put_wcc(x, attr_of(n));
		xdr_put_u64(x, 1);
		break;
	default:
		nfs3_put_wcc(x, NULL);
	}
}

static void serve(struct rpc_call *call, void *arg)
{
	struct xdr_out *x = &call->c_reply;
	size_t from = x->x_len, len;
	uint32_t hlen;
	const uint8_t *h;
	uint64_t n = 0;
	uint8_t how;

	(void)arg;
	if (call->c_proc == NFS3_NULL) {
		rpc_reply(call);
		return;
	}
	h = xdr_get_opaque(&call->c_args, NFS3_FHSIZE, &hlen);
	if (call->c_args.bad)
		fz_bug("a call that is none");
	for (uint32_t i = 0; i < hlen; i++)
		n = n << 8 | h[i];
	how = byte();
	/* nothing more is taken in: it would stay for all inputs */
	if (how % 8 == 1 || (taken_in && call->c_proc == NFS3_MKDIR)) {
		xdr_put_u32(x, how % 8 == 1 && how >= 8 ? byte() : NFS3ERR_IO);
		if (call->c_proc == NFS3_READ || call->c_proc == NFS3_FSSTAT ||
		    call->c_proc == NFS3_FSINFO || call->c_proc == NFS3_LOOKUP)
			nfs3_put_post_op(x, NULL);
		else if (call->c_proc != NFS3_GETATTR)
			nfs3_put_wcc(x, NULL);
	} else if (how % 8 == 2) {
		len = (size_t)byte() * 4;
		len = len < (size_t)(in_end - in) ? len : (size_t)(in_end - in) / 4 * 4;
		xdr_put_fixed(x, in, (uint32_t)len);
		in += len;
	} else {
		honest(call, n);
		len = x->x_len - from;
		if (how % 8 == 3)
			x->x_len = from + len * byte() / 1024 * 4;
		/* 4 to 7: so many bytes are others */
		for (int k = how % 8 - 3; k > 0 && x->x_len > from; k--) {
			uint8_t at = byte();

			x->x_head[from + at % (x->x_len - from)] ^= byte();
		}
	}
	rpc_reply(call);
}

/* ---- jobs ---- */

static struct rpc_program prog = {NFS3_PROGRAM, NFS3_VERSION, NFS3_VERSION,
				  NFS3_NPROCS,	serve,	      NULL};
static struct rpc_listener *listener;
static struct sockaddr_in where = {.sin_family = AF_INET};
static sem_t ended;
static int ended_err;
static uint32_t id;
static uint64_t number;

static void listen_here(void)
{
	static struct rpc_service svc = {.rs_progs = &prog,
					 .rs_nprogs = 1,
					 .rs_max_record = FZ_MAX_RECORD,
					 .rs_max_reply = FZ_MAX_RECORD,
					 .rs_opened = fz_opened,
					 .rs_closed = fz_closed};

	where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (rpc_listen(&listener, fz_loop, (struct sockaddr *)&where, sizeof(where), &svc, &fz_loop,
		       1))
		fz_bug("cannot listen on the loopback");
	where.sin_port = htons(rpc_listener_port(listener));
}

static void await(void)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 60;
	while (sem_timedwait(&ended, &until)) {
		if (errno != EINTR)
			fz_bug("a job has no end");
	}
	if (!sem_trywait(&ended))
		fz_bug("a job ended twice");
}

static void added(struct ds_reg_add *a, int err)
{
	(void)a;
	ended_err = err;
	sem_post(&ended);
}

static uint32_t add(uint8_t root)
{
	static struct ds_reg_add a;

	a = (struct ds_reg_add){.da_len = sizeof(where),
				.da_path = "/x",
				.da_name = "generic",
				.da_root = {.dh_len = 8},
				.da_done = added};
	memcpy(&a.da_addr, &where, sizeof(where));
	a.da_root.dh_data[7] = 1;
	a.da_root.dh_data[0] = root;
	ds_reg_add(mds.m_dsc, &a);
	await();
	if (ended_err && !*a.da_why && ended_err != -EEXIST)
		fz_bug("a server is not taken in, and nobody says why");
	return a.da_id;
}

static struct ds_reg_ctl ctl;
static ctl_order orders[3];
static ctl_object objects[OBJECTS];

static void take(struct ds_reg_ctl *c, const ctl_response *res)
{
	if (res->status == CTL_OK && res->result.op != c->dc_req.op)
		fz_bug("an answer to another question");
	if (res->status == CTL_OK && c->dc_req.op == CTL_OP_ORDERS &&
	    res->result.ctl_result_u.orders.results.results_len !=
		    c->dc_req.ctl_request_u.orders.orders.orders_len)
		fz_bug("orders without results");
	if (res->status == CTL_OK && c->dc_req.op == CTL_OP_STAT &&
	    res->result.ctl_result_u.stat.stats.stats_len !=
		    c->dc_req.ctl_request_u.stat.objects.objects_len)
		fz_bug("objects without sizes");
}

static void called(struct ds_reg_ctl *c, int err)
{
	(void)c;
	ended_err = err;
	sem_post(&ended);
}

static void call(void)
{
	ds_reg_call(mds.m_dsc, id, &ctl, 20000);
}

static ctl_object object(unsigned k)
{
	/* one that is not there */
	return (ctl_object){.ino = INO + k % (OBJECTS + 1), .incarnation = 1};
}

static void make_orders(void)
{
	static const ctl_order_type types[] = {CTL_TRUNCATE, CTL_EXTEND, CTL_FENCE, CTL_BAR_CLIENT,
					       CTL_TRUNCATE, CTL_DELETE, CTL_CLONE, CTL_FENCE};
	unsigned n = 1 + byte() % 3;

	for (unsigned i = 0; i < n; i++)
		orders[i] = (ctl_order){.type = types[byte() % 8],
					.number = ++number,
					.object = object(byte()),
					.size = (uint64_t)byte() << byte() % 40,
					.epoch = byte() % 8,
					.client = byte() % 4,
					.source = object(byte()),
					.known = byte() & 3};
	ctl.dc_req.op = CTL_OP_ORDERS;
	ctl.dc_req.ctl_request_u.orders.instance_epoch = 1;
	ctl.dc_req.ctl_request_u.orders.orders.orders_len = n;
	ctl.dc_req.ctl_request_u.orders.orders.orders_val = orders;
}

static void make_rebuild(ctl_addr *addr)
{
	static uint8_t foreign[8] = {[7] = 5};
	static char netid[9], uaddr[65];
	ctl_rebuild_args *r = &ctl.dc_req.ctl_request_u.rebuild;

	rpc_uaddr((struct sockaddr *)&where, netid, sizeof(netid), uaddr, sizeof(uaddr));
	*addr = (ctl_addr){netid, uaddr, 0};
	ctl.dc_req.op = CTL_OP_REBUILD;
	*r = (ctl_rebuild_args){.instance_epoch = 1,
				.step = (ctl_rebuild_step)(1 + byte() % 4),
				.object = object(byte()),
				.epoch = byte() % 8,
				.session = byte() % 4,
				.offset = (uint64_t)byte() << 12,
				.length = 1 + ((uint64_t)byte() << 12)};
	r->source.addrs.addrs_len = 1;
	r->source.addrs.addrs_val = addr;
	r->source.foreign.foreign_len = sizeof(foreign);
	r->source.foreign.foreign_val = (char *)foreign;
}

/* On the loop, which reads the input. */
static void make_job(void)
{
	static ctl_addr addr;

	memset(&ctl, 0, sizeof(ctl));
	ctl.dc_take = take;
	ctl.dc_done = called;
	switch (byte() % 6) {
	case 0:
		make_rebuild(&addr);
		break;
	case 1:
		for (unsigned i = 0; i < OBJECTS; i++)
			objects[i] = object(byte());
		ctl.dc_req.op = CTL_OP_STAT;
		ctl.dc_req.ctl_request_u.stat.objects.objects_len = OBJECTS;
		ctl.dc_req.ctl_request_u.stat.objects.objects_val = objects;
		break;
	case 2:
		ctl.dc_req.op = CTL_OP_SEEK;
		ctl.dc_req.ctl_request_u.seek = (ctl_seek_args){.object = object(byte()),
								.offset = byte(),
								.hole = byte() & 1,
								.unit = 4096,
								.stripes = 1};
		break;
	case 3:
		ctl.dc_req.op = CTL_OP_SUM;
		ctl.dc_req.ctl_request_u.sum =
			(ctl_sum_args){.object = object(byte()),
				       .offset = (uint64_t)byte() << 12,
				       .length = 1 + ((uint64_t)byte() << 10)};
		break;
	default:
		make_orders();
	}
	call();
}

static int take_run(void *arg, struct kv_txn *t)
{
	int err = 0;

	(void)arg;
	for (unsigned i = 0; i < OBJECTS && !err; i++)
		err = ds_reg_nfs3_take(
			mds.m_dsc, t, id,
			&(struct cap_object){.co_ino = INO + i, .co_incarnation = 1});
	return err;
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	sem_init(&ended, 0, 0);
	fz_start("fuzz_generic", false);
	files[1] = (struct file){.fi_mode = 0777, .fi_dir = 1};
	fz_on_loop(listen_here);
	id = add(0);
	if (!id)
		fz_bug("an honest server is not taken in");
	for (int k = 0; kv_run_sync(mds.m_kv, take_run, NULL); k++) {
		if (k > 3000)
			fz_bug("no files are made ahead");
		usleep(10000);
	}
	taken_in = true;
	fz_keep();
	return 0;
}

static const uint8_t *job;
static size_t job_size;

static void begin_input(void)
{
	in = job;
	in_end = job + job_size;
	make_job();
}

static void begin_add(void)
{
	in = job + 2;
	in_end = job + job_size;
}

static void end_input(void)
{
	in = in_end = NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 2 || size > 4096)
		return 0;
	fz_restore();
	job = data;
	job_size = size;
	if (data[0] >= 0xc0) {
		fz_on_loop(begin_add);
		add(data[1]);
	} else {
		fz_on_loop(begin_input);
		await();
	}
	fz_on_loop(end_input);
	return 0;
}
