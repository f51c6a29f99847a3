/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_nfs3.c - the data server's NFSv3 service over a socket, with arguments made by the fuzzer;
 * and the decoders of what peers answer.
 *
 * The first byte chooses: a procedure of objects (with or without a good handle put in front of the
 * arguments), one of an exported folder (with the handle of the folder or of a file in it, where
 * there are the privileges), one of MOUNT, what data servers ask of each other, or a decoder.
 */
#include "base/log.h"
#include "ds/ds.h"
#include "ds/path/path_int.h"
#include "ds/peer.h"
#include "proto/ctl.h"
#include "tests/unit/scratch.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#include <urcu/compiler.h>

#define MAX_REPLY   (DS_MAX_IO + 4096)
#define FIRST_PATH  128
#define FIRST_MOUNT (FIRST_PATH + 2 * NFS3_NPROCS)
#define FIRST_PEER  (FIRST_MOUNT + 32)

static struct ds ds;
static char dir[64];
static int sock = -1;
static struct fuzz_start {
	struct loop_msg fs_msg;
	uint16_t fs_port;
	sem_t fs_done;
} start;

/* An idle connection is known to the kernel only: the leak checker must find it somewhere. */
static struct rpc_listener *listener;
static struct rpc_conn *conn;

static void opened(struct rpc_conn *c, void *arg)
{
	(void)arg;
	conn = c;
}

static void closed(struct rpc_conn *c, void *arg)
{
	(void)c;
	(void)arg;
}

static void mount_dispatch(struct rpc_call *rpc, void *arg)
{
	(void)arg;
	if (ds.d_path)
		path_mount3(ds.d_path, rpc);
	else
		rpc_reply_error(rpc, RPC_A_PROG_UNAVAIL);
}

static const struct rpc_program progs[] = {
	{NFS3_PROGRAM, NFS3_VERSION, NFS3_VERSION, NFS3_NPROCS, ds_nfs3_dispatch, &ds},
	{CTL_PEER_PROGRAM, CTL_PEER_VERSION, CTL_PEER_VERSION, CTL_PEER_READ + 1, ds_peer_dispatch,
	 &ds},
	{MOUNT3_PROGRAM, MOUNT3_VERSION, MOUNT3_VERSION, MOUNT3_NPROCS, mount_dispatch, NULL},
};
static const struct rpc_service svc = {
	.rs_progs = progs,
	.rs_nprogs = 3,
	.rs_max_record = MAX_REPLY,
	.rs_max_reply = MAX_REPLY,
	.rs_opened = opened,
	.rs_closed = closed,
};

/* A control connection is not made: a question about a striped file ends in its deadline, so no
 * such handle is given. */
struct ctl_chan *ds_control_chan(struct ds *d, const struct ds_fs *f)
{
	(void)d;
	(void)f;
	return NULL;
}

static char tree[128];

static void cleanup(void)
{
	char exports[160];

	snprintf(exports, sizeof(exports), "%s.exports", tree);
	scratch_remove(dir);
	scratch_remove(tree);
	unlink(exports);
}

static void *thread_run(void *arg)
{
	loop_run(arg);
	return NULL;
}

static void start_run(struct loop_msg *m)
{
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	(void)m;
	if (rpc_listen(&listener, ds.d_loops[0], (struct sockaddr *)&sin, sizeof(sin), &svc,
		       ds.d_loops, 1))
		abort();
	start.fs_port = rpc_listener_port(listener);
	sem_post(&start.fs_done);
}

static uint8_t file_fh[NFS3_FHSIZE], root_fh[NFS3_FHSIZE];
static uint32_t file_fh_len, root_fh_len;

/* A folder whose every caller is nobody; without the privileges there is none. */
static void export_tree(void)
{
	char exports[160], text[400], err[512];
	struct path_opts opts = {.po_exports = exports,
				 .po_store = dir,
				 .po_threads = 2,
				 .po_replies = 65536,
				 .po_names_keep_ms = 1000};
	const struct path_export *x;
	struct path_fh fh;
	struct path *p;
	int fd;

	snprintf(exports, sizeof(exports), "%s.exports", tree);
	snprintf(text, sizeof(text),
		 "export \"%s\" { client \"*\" { access = rw  squash = all  privileged_port = no  "
		 "sec = {sys, none} } }\n",
		 tree);
	fd = open(exports, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	if (mkdir(tree, 0777) || chmod(tree, 0777) || fd < 0 || write(fd, text, strlen(text)) < 0)
		abort();
	close(fd);
	if (path_open(&p, &opts, err, sizeof(err)))
		return;
	if (path_start(p, ds.d_keys.ks_key.dk_path, ds_store_identity(ds.d_store).id_uuid, err,
		       sizeof(err))) {
		fprintf(stderr, "%s\n", err);
		abort();
	}
	x = &p->p_table->t_x[0];
	root_fh_len = path_fh_write(p, &x->x_fh, root_fh);
	fd = openat(x->x_fd, "f", O_CREAT | O_RDWR | O_CLOEXEC, 0666);
	if (fd < 0 || fchmod(fd, 0666) || path_fh_of(fd, "", x->x_exp->e_id, &fh))
		abort();
	close(fd);
	file_fh_len = path_fh_write(p, &fh, file_fh);
	ds.d_path = p;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	struct ds_store_opts opts = {.so_dir = dir, .so_name = "fuzz", .so_tomb_keep_ms = 1000};
	static struct loop *loops[1];
	struct ds_fs *fs;
	pthread_t t;
	char err[256];

	(void)argc;
	(void)argv;
	log_set_level(LOG_L_ERROR);
	if (!scratch_make(dir, sizeof(dir), "fuzz_nfs3"))
		abort();
	atexit(cleanup);
	ds_store_metrics_init();
	ds_nfs3_init();
	path_metrics_init();
	/* Where a sync costs nothing, if there is such a place. */
	snprintf(tree, sizeof(tree), "/dev/shm%s.tree", strrchr(dir, '/'));
	if (access("/dev/shm", W_OK))
		snprintf(tree, sizeof(tree), "%s.tree", dir);
	if (ds_store_open(&ds.d_store, &opts, err, sizeof(err))) {
		fprintf(stderr, "%s\n", err);
		abort();
	}
	if (ds_keys_start(&ds.d_keys, ds.d_store, err, sizeof(err))) {
		fprintf(stderr, "%s\n", err);
		abort();
	}
	export_tree();
	if (ds_store_set_cluster(ds.d_store, (const uint8_t *)"the fuzzers' own", 1) ||
	    ds_store_fs_meet(ds.d_store, 1, &fs) || ds_keys_meet(&ds.d_keys, fs))
		abort();
	atomic_store(&ds.d_lease[ds_fs_place(fs)].le_end_ns, UINT64_MAX);
	ds.d_loops = loops;
	ds.d_nloops = 1;
	if (loop_create(&loops[0], 256) || ds_peer_start(&ds) ||
	    pthread_create(&t, NULL, thread_run, loops[0]))
		abort();
	sem_init(&start.fs_done, 0, 0);
	start.fs_msg.m_run = start_run;
	loop_post(loops[0], &start.fs_msg);
	sem_wait(&start.fs_done);
	return 0;
}

static void reconnect(void)
{
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	if (sock >= 0)
		close(sock);
	sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	sin.sin_port = htons(start.fs_port);
	if (connect(sock, (struct sockaddr *)&sin, sizeof(sin)))
		abort();
}

static bool read_all(void *p, size_t n)
{
	for (size_t at = 0; at < n;) {
		ssize_t got = read(sock, (char *)p + at, n - at);

		if (got < 0 && errno == EINTR) /* libFuzzer's own alarm */
			continue;
		if (got <= 0)
			return false;
		at += (size_t)got;
	}
	return true;
}

/* Every call gets a reply that is whole; a lost connection is a bug as well. */
static void call(uint32_t prog, uint32_t proc, const uint8_t *fh, uint32_t len, const uint8_t *data,
		 size_t size)
{
	static uint8_t reply[MAX_REPLY];
	static uint32_t xid;
	struct xdr_out x;
	uint32_t mark, head[2];
	ssize_t sent;

	xdr_out_init(&x, 1 << 20);
	xdr_put_u32(&x, 0);
	xdr_put_u32(&x, ++xid);
	xdr_put_u32(&x, 0);
	xdr_put_u32(&x, 2);
	xdr_put_u32(&x, prog);
	xdr_put_u32(&x, prog == CTL_PEER_PROGRAM ? CTL_PEER_VERSION : 3);
	xdr_put_u32(&x, proc);
	xdr_put_u64(&x, 0);
	xdr_put_u64(&x, 0);
	if (fh)
		xdr_put_opaque(&x, fh, len);
	xdr_put_fixed(&x, data, size & ~(size_t)3);
	xdr_patch_u32(&x, 0, 0x80000000u | (uint32_t)(x.x_len - 4));
	if (sock < 0)
		reconnect();
	do
		sent = write(sock, x.x_head, x.x_len);
	while (sent < 0 && errno == EINTR);
	if (sent != (ssize_t)x.x_len || !read_all(&mark, 4))
		abort();
	mark = ntohl(mark) & 0x7fffffff;
	if (mark > sizeof(reply) || mark < 24 || mark % 4 || !read_all(reply, mark))
		abort();
	memcpy(head, reply, 8);
	if (ntohl(head[0]) != xid || ntohl(head[1]) != 1)
		abort();
	xdr_out_free(&x);
}

/* A source's to a question of ours: what is taken fits together. */
static void answer(struct xdr_in *in,
		   int (*take)(struct xdr_in *x, uint32_t count, struct ds_fetch *f))
{
	static uint8_t mem[DS_FETCH_MEM];
	struct ds_fetch f = {.ft_off = 4096, .ft_data = mem};
	uint64_t at = f.ft_off, total = 0;

	if (take(in, 65536, &f))
		return;
	for (unsigned i = 0; i < f.ft_nparts; i++) {
		if (f.ft_part[i].pt_off < at)
			abort();
		at = f.ft_part[i].pt_off + f.ft_part[i].pt_len;
		total += f.ft_part[i].pt_len;
	}
	if (at > 4096 + 65536 || f.ft_to > 4096 + 65536 || total != f.ft_len)
		abort();
}

static void decode(unsigned which, const uint8_t *data, size_t size)
{
	struct nfs3_fattr a;
	struct nfs3_sattr sa;
	struct xdr_out x;
	struct xdr_in in;
	ctl_request req = {0};
	ctl_response res = {0};
	XDR xdrs;

	xdr_in_init(&in, data, size);
	switch (which % 6) {
	case 0:
		nfs3_get_wcc(&in, &a);
		break;
	case 1:
		nfs3_get_sattr(&in, &sa);
		if (in.bad)
			break;
		/* What was read is written the same way. */
		xdr_out_init(&x, 4096);
		nfs3_put_sattr(&x, &sa);
		if (x.bad || memcmp(x.x_head, data, x.x_len))
			abort();
		xdr_out_free(&x);
		break;
	case 2:
		nfs3_get_post_op(&in, &a);
		break;
	case 3:
		xdrmem_create(&xdrs, (char *)data, (unsigned)size, XDR_DECODE);
		xdr_ctl_request(&xdrs, &req);
		xdr_free((xdrproc_t)xdr_ctl_request, (char *)&req);
		break;
	case 5:
		answer(&in, ds_pull_answer);
		xdr_in_init(&in, data, size);
		answer(&in, ds_pull_foreign);
		break;
	case 4:
		xdrmem_create(&xdrs, (char *)data, (unsigned)size, XDR_DECODE);
		xdr_ctl_response(&xdrs, &res);
		xdr_free((xdrproc_t)xdr_ctl_response, (char *)&res);
		break;
	}
}

/* By the number's second half the handle is the file's. RENAME's and LINK's second handle stands
 * where the byte after the number says, in fours. */
static void path_call(unsigned which, uint8_t at, const uint8_t *data, size_t size)
{
	uint32_t proc = which % NFS3_NPROCS;
	bool file = which >= NFS3_NPROCS;
	struct xdr_out x;
	size_t cut = (size_t)at * 4 < size ? (size_t)at * 4 : size & ~(size_t)3;

	if (!ds.d_path)
		return;
	xdr_out_init(&x, 1 << 20);
	if (proc == NFS3_RENAME || proc == NFS3_LINK) {
		if (cut)
			xdr_put_fixed(&x, data, cut);
		xdr_put_opaque(&x, root_fh, root_fh_len);
		data += cut;
		size -= cut;
	}
	if (size >= 4)
		xdr_put_fixed(&x, data, size & ~(size_t)3);
	call(NFS3_PROGRAM, proc, file ? file_fh : root_fh, file ? file_fh_len : root_fh_len,
	     x.x_head, x.x_len);
	xdr_out_free(&x);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct cap cap = {
		.cp_obj = {.co_ino = 1, .co_fs = 1, .co_incarnation = 1},
		.cp_rights = CAP_READ | CAP_WRITE,
		.cp_epoch = 1,
	};
	uint64_t key[2];
	uint8_t fh[CAP_LEN];

	if (size < 2 || size > 65536)
		return 0;
	cap.cp_client = data[1] & 1;
	cap.cp_obj.co_ino = data[1] >> 5;
	if (data[1] & 2)
		cap.cp_rights = data[1] >> 2 & (CAP_READ | CAP_WRITE | CAP_MUST_EXIST);
	/* Version 2 of the capability, of a file with stripes: bytes that are another's are
	 * refused, and no object is made. */
	if (data[1] & 16) {
		cap.cp_version = 2;
		cap.cp_rights |= CAP_STRIPED;
		cap.cp_unit_log2 = 20 + (data[1] >> 5);
		cap.cp_stripes = 2 + (data[1] >> 6);
		cap.cp_obj.co_stripe = data[1] >> 7;
	}
	ds_keys_cap(&ds.d_keys, ds_store_fs(ds.d_store, cap.cp_obj.co_fs), cap.cp_key, key);
	cap_mint(&cap, (const uint8_t *)key, fh);
	if (data[0] < 2 * NFS3_NPROCS)
		call(NFS3_PROGRAM, data[0] % NFS3_NPROCS, data[0] < NFS3_NPROCS ? fh : NULL,
		     CAP_LEN, data + 2, size - 2);
	else if (data[0] < FIRST_PATH)
		decode(data[0], data + 2, size - 2);
	else if (data[0] < FIRST_MOUNT)
		path_call(data[0] - FIRST_PATH, data[1], data + 2, size - 2);
	else if (data[0] >= FIRST_PEER)
		call(CTL_PEER_PROGRAM, CTL_PEER_READ, data[0] & 1 ? fh : NULL, CAP_LEN, data + 2,
		     size - 2);
	else
		call(MOUNT3_PROGRAM, data[0] % MOUNT3_NPROCS, NULL, 0, data + 2, size - 2);
	return 0;
}
