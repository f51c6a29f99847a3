/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ds_reg_data.c - NFSv3 (RFC 1813) READ, WRITE and COMMIT that the metadata server itself sends to
 * data servers.
 *
 * Each loop has its own connection to each data server, made at its first call. The payload of a
 * WRITE goes out by reference: the call ends only when the reply is here (or its time is up) and
 * the transport has released the payload.
 *
 * TLS. Calls to a server that offers clients TLS use TLS, and each side proves the server's key. To
 * a server that does not, a loop has two connections. One uses TLS all the same; it carries calls
 * for requests that came protected, and calls that no request caused. The other carries in the
 * clear what came in the clear, which is cheaper.
 */
#include "base/clock.h"
#include "base/log.h"
#include "mds/dataserver/nfs3ds.h"
#include "proto/nfs3.h"
#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <urcu/compiler.h>

struct data_conn {
	struct rpc_client *dn_client;
	struct sockaddr_storage dn_addr;
	socklen_t dn_len;
};
/* da_heard sums up the read latencies that clients reported to this loop; only this loop writes it.
 * The low LATENCY_N bits count the reports, the bits above sum the microseconds. Both wrap
 * round. */
#define LATENCY_N 24
struct ds_reg_data {
	struct data_conn da_conn[DS_REG_MAX + 1][2]; /* [1]: over TLS */
	bool da_closed;
	_Alignas(64) _Atomic bool da_hears; /* da_heard has reports that are not in d_node yet */
	_Alignas(64) _Atomic uint64_t da_heard[DS_REG_MAX + 1];
	/* da_heard as of the last collection; the first loop's */
	uint64_t da_known[DS_REG_MAX + 1];
};

int ds_reg_data_create(struct ds_reg *d)
{
	d->d_data = calloc(d->d_opts.do_nloops, sizeof(*d->d_data));
	for (unsigned i = 0; d->d_data && i < d->d_opts.do_nloops; i++) {
		d->d_data[i] = aligned_alloc(64, sizeof(*d->d_data[i]));
		if (!d->d_data[i])
			return -ENOMEM;
		memset(d->d_data[i], 0, sizeof(*d->d_data[i]));
	}
	return d->d_data ? 0 : -ENOMEM;
}

void ds_reg_data_close(struct ds_reg *d)
{
	unsigned at = ds_reg_loop_index(d);

	ds_reg_stopped(d);
	for (uint32_t id = 1; !at && id <= DS_REG_MAX; id++)
		if (d->d_node[id] && d->d_node[id]->nd_gen)
			nfs3ds_stop(d->d_node[id]->nd_gen);
	for (uint32_t id = 0; at < d->d_opts.do_nloops && id <= DS_REG_MAX; id++) {
		for (struct data_conn *dn = d->d_data[at]->da_conn[id];
		     dn < d->d_data[at]->da_conn[id] + 2; dn++) {
			if (dn->dn_client)
				rpc_client_destroy(dn->dn_client);
			dn->dn_client = NULL;
		}
	}
	/* No connection is made again, although the liveness check goes on asking. */
	if (at < d->d_opts.do_nloops)
		d->d_data[at]->da_closed = true;
}

struct ending {
	struct loop_msg en_msg;
	struct ds_reg *en_dsc;
	uint32_t en_id;
};

static void ds_reg_data_end_run(struct loop_msg *m)
{
	struct ending *en = caa_container_of(m, struct ending, en_msg);
	struct data_conn *dn =
		en->en_dsc->d_data[ds_reg_loop_index(en->en_dsc)]->da_conn[en->en_id];

	for (unsigned tls = 0; tls < 2; tls++) {
		struct rpc_client *cl = dn[tls].dn_client;

		/* first, because a callback of its calls may make a call */
		dn[tls].dn_client = NULL;
		if (cl)
			rpc_client_destroy(cl);
	}
	free(en);
}

void ds_reg_data_end(struct ds_reg *d, uint32_t id)
{
	for (unsigned i = 0; i < d->d_opts.do_nloops; i++) {
		struct ending *en = calloc(1, sizeof(*en));

		if (!en)
			return; /* then the calls end by their own timeouts */
		en->en_msg.m_run = ds_reg_data_end_run;
		en->en_dsc = d;
		en->en_id = id;
		loop_post(d->d_opts.do_loops[i], &en->en_msg);
	}
}

/* Connections that were not closed belong to loops that have ended. */
void ds_reg_data_destroy(struct ds_reg *d)
{
	for (unsigned i = 0; d->d_data && i < d->d_opts.do_nloops; i++)
		free(d->d_data[i]);
	free(d->d_data);
}

bool ds_reg_data_latency(struct ds_reg *d, uint32_t id, uint32_t us)
{
	unsigned at = ds_reg_loop_index(d);
	struct ds_reg_data *da;
	uint64_t was;

	if (at == d->d_opts.do_nloops)
		return false;
	da = d->d_data[at];
	was = atomic_load_explicit(&da->da_heard[id], memory_order_relaxed);
	atomic_store(&da->da_heard[id], ((was >> LATENCY_N) + us) << LATENCY_N |
						((was + 1) & ((1u << LATENCY_N) - 1)));
	if (!atomic_load(&da->da_hears))
		atomic_store(&da->da_hears, true);
	return true;
}

void ds_reg_data_latencies(struct ds_reg *d)
{
	for (unsigned i = 0; i < d->d_opts.do_nloops; i++) {
		struct ds_reg_data *da = d->d_data[i];

		if (!atomic_load(&da->da_hears))
			continue;
		/* before reading, so that later reports are read next time */
		atomic_store(&da->da_hears, false);
		for (uint32_t id = 1; id <= DS_REG_MAX; id++) {
			uint64_t now = atomic_load(&da->da_heard[id]), was = da->da_known[id],
				 us = ((now >> LATENCY_N) - (was >> LATENCY_N)) << LATENCY_N >>
				      LATENCY_N;
			unsigned n = (unsigned)(now - was) & ((1u << LATENCY_N) - 1);
			struct ds_reg_node *nd;

			if (!n)
				continue;
			da->da_known[id] = now;
			pthread_mutex_lock(&d->d_lock);
			nd = d->d_node[id];
			if (nd)
				ds_reg_fold_latency(nd, us, n, clock_mono_ms());
			ds_reg_unlock(d, nd);
		}
	}
}

/* Finds the first address that TCP can reach. */
static bool data_addr(const struct ds_reg_server *sv, struct sockaddr_storage *ss, socklen_t *len)
{
	for (unsigned i = 0; i < sv->sv_naddrs; i++) {
		const char *netid = sv->sv_addrs[i].netid;

		memset(ss, 0, sizeof(*ss));
		if ((!strcmp(netid, "tcp") || !strcmp(netid, "tcp6")) &&
		    !rpc_uaddr_parse(netid, sv->sv_addrs[i].uaddr, ss, len))
			return true;
	}
	return false;
}

/* Warns, once since our start, about a weft data server of an older release. For NFSv3 data servers
 * the documentation says it (docs/generic.md). */
static void tell_clear(struct ds_reg *d, const struct ds_reg_server *sv)
{
	if (!sv->sv_nfs3 &&
	    !atomic_exchange_explicit(&d->d_told_clear[sv->sv_id], true, memory_order_relaxed))
		log_warn("data server %u (%s): data of protected requests goes to it in "
			 "the clear: upgrade it, or set its ds.tls",
			 sv->sv_id, sv->sv_name);
}

/* Returns the loop's RPC client for a server. It is made again when the server has moved. */
static struct rpc_client *data_client(struct ds_reg *d, uint32_t id, const struct ds_reg_io *io)
{
	unsigned at = ds_reg_loop_index(d);
	struct sockaddr_storage ss;
	struct ds_reg_server sv;
	struct data_conn *dn;
	socklen_t len;
	bool tls;

	if (at == d->d_opts.do_nloops || d->d_data[at]->da_closed || !ds_reg_get(d, id, &sv) ||
	    !data_addr(&sv, &ss, &len))
		return NULL;
	tls = sv.sv_tls != RPC_TLS_OFF || (sv.sv_peers && !io->di_clear);
	if (!tls && !io->di_clear && (io->di_read_to || io->di_data))
		tell_clear(d, &sv);
	dn = &d->d_data[at]->da_conn[id][tls];
	if (dn->dn_client && (dn->dn_len != len || memcmp(&dn->dn_addr, &ss, len))) {
		rpc_client_destroy(dn->dn_client);
		dn->dn_client = NULL;
	}
	if (!dn->dn_client) {
		if (rpc_client_create(&dn->dn_client, loop_self(), (struct sockaddr *)&ss, len,
				      NULL, NULL, NULL)) {
			dn->dn_client = NULL;
			return NULL;
		}
		dn->dn_addr = ss;
		dn->dn_len = len;
		if (tls) {
			uint8_t key[CAP_TLS_KEY_LEN];

			ds_reg_tls_key(d, &sv, key);
			rpc_client_use_tls(dn->dn_client, CTL_PEER_PROGRAM, CTL_PEER_VERSION, key);
			sodium_memzero(key, sizeof(key));
		}
	}
	return dn->dn_client;
}

/* Turns the NFSv3 status of these calls into an errno. nfs3ds_errno does so for the calls of
 * nfs3ds_nfs.c. */
static int data_errno(uint32_t st)
{
	switch (st) {
	case NFS3_OK:
		return 0;
	case NFS3ERR_ACCES:
	case NFS3ERR_PERM:
		return -EACCES;
	case NFS3ERR_NOSPC:
	case NFS3ERR_DQUOT:
		return -ENOSPC;
	case NFS3ERR_FBIG:
		return -EFBIG;
	case NFS3ERR_STALE:
	case NFS3ERR_NOENT:
		return -ESTALE;
	case NFS3ERR_BADHANDLE:
		return -EBADF;
	case NFS3ERR_JUKEBOX:
		return -EAGAIN;
	case NFS3ERR_ROFS:
		return -EROFS;
	default:
		return -EIO;
	}
}

static void io_release(struct ds_reg_io *io)
{
	if (--io->di_holds)
		return;
	if (io->di_noted)
		nfs3ds_copy_noted(io);
	io->di_done(io, io->di_err);
}

static void io_sent(void *arg)
{
	io_release(arg);
}

static void io_fail(struct rpc_req *q, int err, struct xdr_in *res)
{
	struct ds_reg_io *io = caa_container_of(q, struct ds_reg_io, di_rpc);

	(void)res;
	io->di_err = err;
	io_release(io);
}

/* Decodes the results after the status. Sets x->bad when they do not fit the request. */
static void ds_reg_data_get_read(struct ds_reg_io *io, struct xdr_in *x)
{
	struct nfs3_fattr fa;
	const uint8_t *p;
	uint32_t count, len;

	nfs3_get_post_op(x, &fa);
	count = xdr_get_u32(x);
	io->di_eof = xdr_get_bool(x);
	p = xdr_get_opaque(x, io->di_asked, &len);
	if (x->bad || count != len || (!len && !io->di_eof)) {
		x->bad = true;
		return;
	}
	if (len)
		memcpy(io->di_read_to, p, len);
	io->di_count = len;
}

static void ds_reg_data_get_write(struct ds_reg_io *io, struct xdr_in *x)
{
	struct nfs3_fattr fa;

	nfs3_get_wcc(x, &fa);
	io->di_count = xdr_get_u32(x);
	io->di_stable = xdr_get_u32(x);
	io->di_verifier = xdr_get_u64(x);
	if (io->di_stable > NFS3_FILE_SYNC || io->di_count > io->di_asked || !io->di_count)
		x->bad = true;
}

static void ds_reg_data_get_commit(struct ds_reg_io *io, struct xdr_in *x)
{
	struct nfs3_fattr fa;

	nfs3_get_wcc(x, &fa);
	io->di_verifier = xdr_get_u64(x);
}

static void io_reply(struct rpc_req *q, int err, struct xdr_in *x,
		     void (*get)(struct ds_reg_io *io, struct xdr_in *x))
{
	struct ds_reg_io *io = caa_container_of(q, struct ds_reg_io, di_rpc);

	if (!err) {
		err = data_errno(xdr_get_u32(x));
		if (!err)
			get(io, x);
		if (x->bad)
			err = -EPROTO;
	}
	io->di_err = err;
	io_release(io);
}

static void ds_reg_data_read_reply(struct rpc_req *q, int err, struct xdr_in *x)
{
	io_reply(q, err, x, ds_reg_data_get_read);
}

static void ds_reg_data_write_reply(struct rpc_req *q, int err, struct xdr_in *x)
{
	struct ds_reg_io *io = caa_container_of(q, struct ds_reg_io, di_rpc);

	/* The transport still holds the payload, because the peer takes nothing any more. Only the
	 * end of the connection releases it. */
	if (err == -ETIMEDOUT && io->di_holds > 1 && q->q_conn)
		rpc_conn_close(q->q_conn);
	io_reply(q, err, x, ds_reg_data_get_write);
}

static void ds_reg_data_commit_reply(struct rpc_req *q, int err, struct xdr_in *x)
{
	io_reply(q, err, x, ds_reg_data_get_commit);
}

/* Begins a call with the handle in it. di_holds is 1, for the reply. */
static struct xdr_out *io_begin(struct ds_reg_io *io, uint32_t proc, const struct ds_reg_handle *h,
				size_t limit, void (*done)(struct rpc_req *, int, struct xdr_in *))
{
	struct rpc_cred cred = {
		.rc_flavor = RPC_AUTH_SYS, .rc_uid = h->dh_uid, .rc_gid = h->dh_gid};

	io->di_asked = io->di_count;
	io->di_holds = 1;
	io->di_err = 0;
	io->di_noted = 0;
	rpc_req_init(&io->di_rpc, NFS3_PROGRAM, NFS3_VERSION, proc, &cred, limit, done);
	xdr_put_opaque(&io->di_rpc.q_args, h->dh_data, h->dh_len);
	xdr_put_u64(&io->di_rpc.q_args, io->di_off);
	return &io->di_rpc.q_args;
}

/* Ends a call whose server has no address. It runs from the loop, like the end of any other
 * call. */
static void unreachable_fire(struct loop_timer *t)
{
	struct rpc_req *q = caa_container_of(t, struct rpc_req, q_timer);

	xdr_out_free(&q->q_args);
	io_fail(q, -ENOTCONN, NULL);
}

static void io_send(struct ds_reg *d, uint32_t id, struct ds_reg_io *io, uint32_t timeout_ms)
{
	struct rpc_client *cl = data_client(d, id, io);

	if (cl) {
		rpc_client_send(cl, &io->di_rpc, timeout_ms);
		return;
	}
	io->di_rpc.q_timer.t_fire = unreachable_fire;
	loop_timer_start(loop_self(), &io->di_rpc.q_timer, 0);
}

static void ping_reply(struct rpc_req *q, int err, struct xdr_in *x)
{
	io_fail(q, err == -EPROTO ? 0 : err, x);
}

void ds_reg_ping(struct ds_reg *d, uint32_t id, struct ds_reg_io *io, uint32_t timeout_ms)
{
	io->di_holds = 1;
	io->di_err = 0;
	io->di_noted = 0;
	io->di_clear = true;
	rpc_req_init(&io->di_rpc, NFS3_PROGRAM, NFS3_VERSION, NFS3_NULL, NULL, 64, ping_reply);
	io_send(d, id, io, timeout_ms);
}

void ds_reg_read(struct ds_reg *d, uint32_t id, const struct ds_reg_handle *h, struct ds_reg_io *io,
		 uint32_t timeout_ms)
{
	struct xdr_out *x = io_begin(io, NFS3_READ, h, 128, ds_reg_data_read_reply);

	xdr_put_u32(x, io->di_count);
	io->di_count = 0;
	io_send(d, id, io, timeout_ms);
}

static void write_send(struct ds_reg *d, uint32_t id, const struct ds_reg_handle *h,
		       struct ds_reg_io *io, uint32_t timeout_ms, bool by_copy)
{
	struct xdr_out *x =
		io_begin(io, NFS3_WRITE, h, 256 + (size_t)io->di_count, ds_reg_data_write_reply);

	xdr_put_u32(x, io->di_count);
	xdr_put_u32(x, io->di_stable);
	xdr_put_u32(x, io->di_count);
	io->di_holds++;
	xdr_put_ref(x, io->di_data, io->di_count, io_sent, io);
	io->di_dsc = d;
	io->di_loop = loop_self();
	io->di_id = id;
	io->di_timeout_ms = timeout_ms;
	if (by_copy || !nfs3ds_copy_note(d, id, h, io))
		io_send(d, id, io, timeout_ms);
}

void ds_reg_write(struct ds_reg *d, uint32_t id, const struct ds_reg_handle *h,
		  struct ds_reg_io *io, uint32_t timeout_ms)
{
	write_send(d, id, h, io, timeout_ms, false);
}

void nfs3ds_copy_write(struct ds_reg *d, uint32_t id, const struct ds_reg_handle *h,
		       struct ds_reg_io *io, uint32_t timeout_ms)
{
	write_send(d, id, h, io, timeout_ms, true);
}

static void let_go(struct loop_msg *m)
{
	struct ds_reg_io *io = caa_container_of(m, struct ds_reg_io, di_msg);

	io_send(io->di_dsc, io->di_id, io, io->di_timeout_ms);
}

void nfs3ds_copy_let_go(struct ds_reg_io *io)
{
	io->di_msg.m_run = let_go;
	loop_post(io->di_loop, &io->di_msg);
}

void ds_reg_commit(struct ds_reg *d, uint32_t id, const struct ds_reg_handle *h,
		   struct ds_reg_io *io, uint32_t timeout_ms)
{
	struct xdr_out *x = io_begin(io, NFS3_COMMIT, h, 128, ds_reg_data_commit_reply);

	xdr_put_u32(x, io->di_count);
	io_send(d, id, io, timeout_ms);
}
