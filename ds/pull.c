/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pull.c - PULL: fetches an object's bytes from the data server that has them, and writes them
 * (store/rebuild.h). It runs on the pullers, threads of their own. The connection to the source
 * lives on a loop, and stays open for the next PULL.
 */
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "ds/peer.h"
#include "proto/nfs3.h"
#include "proto/rpc_tls.h"
#include <errno.h>
#include <semaphore.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <urcu/compiler.h>

#define PULLERS	    2
#define WAITING_MAX 64u
#define SOURCES	    4 /* connections that a puller keeps */
#define FETCH_MS    10000u
#define FETCH_NS    15000000000ull /* then pull_fetch() tries no further address */
#define PULL_NS	    5000000000ull  /* then PULL answers how far it came */
#define ARGS_MAX    4096

struct source {
	struct rpc_client *sou_client; /* NULL: a free place */
	struct sockaddr_storage sou_addr;
	socklen_t sou_len;
	uint8_t sou_uuid[DS_UUID_LEN];
	bool sou_tls;
	uint64_t sou_used;
};
struct puller {
	struct worker *pl_worker;
	struct loop *pl_loop; /* the loop of its connections */
	struct source pl_source[SOURCES];
	uint64_t pl_uses;
	uint8_t *pl_data, *pl_mem;
};
static struct puller pullers[PULLERS];

int ds_pull_start(struct ds *d)
{
	int err = 0;

	for (unsigned i = 0; i < PULLERS && !err; i++) {
		struct puller *pl = &pullers[i];

		pl->pl_loop = d->d_loops[i % d->d_nloops];
		pl->pl_data = aligned_alloc(DS_PAGE, DS_FETCH_MEM);
		pl->pl_mem = aligned_alloc(DS_PAGE, DS_SESSION_MEM);
		err = pl->pl_data && pl->pl_mem
			      ? worker_create(&pl->pl_worker, "weft-pull", WAITING_MAX)
			      : -ENOMEM;
	}
	return err;
}

static struct puller *puller_of(uint64_t ino)
{
	return &pullers[hash_u64(ino) % PULLERS];
}

bool ds_pull_submit(struct ds *d, uint64_t ino, struct work *w)
{
	(void)d;
	return worker_submit(puller_of(ino)->pl_worker, w);
}

/* ---- asking a source: sent and answered on the puller's loop, while its thread waits ---- */

struct ask {
	struct loop_msg as_msg;
	struct rpc_req as_req;
	struct ds *as_ds;
	struct puller *as_puller;
	const ctl_peer *as_peer;
	struct sockaddr_storage as_addr;
	socklen_t as_len;
	uint64_t as_off;
	uint32_t as_count;
	struct rpc_buf *as_buf; /* the memory that as_res reads */
	struct xdr_in as_res;
	int as_err;
	sem_t as_done;
};

static void on_loop(struct ask *as, void (*run)(struct loop_msg *m))
{
	as->as_msg.m_run = run;
	loop_post(as->as_puller->pl_loop, &as->as_msg);
	while (sem_wait(&as->as_done))
		;
}

static void ask_over(struct loop_msg *m)
{
	sem_post(&caa_container_of(m, struct ask, as_msg)->as_done);
}

/* The RPC layer owns the request until this has returned. */
static void pull_ask_done(struct rpc_req *q, int err, struct xdr_in *res)
{
	struct ask *as = caa_container_of(q, struct ask, as_req);

	as->as_err = err;
	if (!err) {
		as->as_buf = rpc_req_keep(q);
		as->as_res = *res;
	}
	as->as_msg.m_run = ask_over;
	loop_post(as->as_puller->pl_loop, &as->as_msg);
}

/* The key from the MDS with which this server proves itself to the source. */
static bool pull_peer_key(const ctl_peer *p, uint8_t key[CAP_TLS_KEY_LEN])
{
	size_t len;

	for (unsigned i = 0; i < p->addrs.addrs_len; i++) {
		const ctl_addr *a = &p->addrs.addrs_val[i];

		if (!strcmp(a->netid, "key"))
			return !sodium_hex2bin(key, CAP_TLS_KEY_LEN, a->uaddr, strlen(a->uaddr),
					       NULL, &len, NULL) &&
			       len == CAP_TLS_KEY_LEN;
	}
	return false;
}

/* If this server has a key to prove itself with, the source has TLS, for clients or for data
 * servers alone. */
static bool over_tls(const ctl_peer *p)
{
	uint8_t key[CAP_TLS_KEY_LEN];
	bool has = pull_peer_key(p, key);

	sodium_memzero(key, sizeof(key));
	return has || p->tls != RPC_TLS_OFF;
}

static bool is_source(const struct source *so, const struct ask *as)
{
	return so->sou_client && so->sou_len == as->as_len &&
	       !memcmp(&so->sou_addr, &as->as_addr, as->as_len) &&
	       !memcmp(so->sou_uuid, as->as_peer->ds_uuid, DS_UUID_LEN) &&
	       so->sou_tls == over_tls(as->as_peer);
}

static int connect_source(struct source *so, const struct ask *as)
{
	int err;

	if (so->sou_client)
		rpc_client_destroy(so->sou_client);
	so->sou_client = NULL;
	err = rpc_client_create(&so->sou_client, as->as_puller->pl_loop,
				(const struct sockaddr *)&as->as_addr, as->as_len, NULL, NULL,
				NULL);
	if (err)
		return err;
	so->sou_addr = as->as_addr;
	so->sou_len = as->as_len;
	so->sou_tls = over_tls(as->as_peer);
	memcpy(so->sou_uuid, as->as_peer->ds_uuid, DS_UUID_LEN);
	if (so->sou_tls) {
		uint8_t key[CAP_TLS_KEY_LEN];

		struct ds_key own;
		bool has = ds_keys_own(&as->as_ds->d_keys, &own),
		     sent = pull_peer_key(as->as_peer, key);

		if (!sent && !has)
			cap_derive_tls_key(as->as_ds->d_keys.ks_cluster, so->sou_uuid, key);
		else if (!sent)
			/* This proves nothing: the source ends the handshake. */
			randombytes_buf(key, sizeof(key));
		rpc_client_use_tls(so->sou_client, CTL_PEER_PROGRAM, CTL_PEER_VERSION, key);
		if (sent || has)
			rpc_client_tls_as(so->sou_client, own.dk_uuid);
		sodium_memzero(key, sizeof(key));
		sodium_memzero(&own, sizeof(own));
	}
	return 0;
}

/* The connection to this source. If there is none yet, it replaces the one not used for the longest
 * time. */
static struct source *pull_source_of(struct ask *as)
{
	struct puller *pl = as->as_puller;
	struct source *so = &pl->pl_source[0];

	for (unsigned i = 0; i < SOURCES; i++) {
		struct source *one = &pl->pl_source[i];

		if (is_source(one, as)) {
			one->sou_used = ++pl->pl_uses;
			return one;
		}
		if (one->sou_used < so->sou_used)
			so = one;
	}
	as->as_err = connect_source(so, as);
	so->sou_used = ++pl->pl_uses;
	return as->as_err ? NULL : so;
}

static void ask_send(struct loop_msg *m)
{
	struct ask *as = caa_container_of(m, struct ask, as_msg);
	struct source *so = pull_source_of(as);

	if (!so) {
		sem_post(&as->as_done);
		return;
	}
	if (as->as_peer->foreign.foreign_len) {
		struct rpc_cred cred = {.rc_flavor = RPC_AUTH_SYS,
					.rc_uid = as->as_peer->uid,
					.rc_gid = as->as_peer->gid};

		rpc_req_init(&as->as_req, NFS3_PROGRAM, NFS3_VERSION, NFS3_READ, &cred, ARGS_MAX,
			     pull_ask_done);
		xdr_put_opaque(&as->as_req.q_args, as->as_peer->foreign.foreign_val,
			       as->as_peer->foreign.foreign_len);
		xdr_put_u64(&as->as_req.q_args, as->as_off);
		xdr_put_u32(&as->as_req.q_args, as->as_count);
		rpc_client_send(so->sou_client, &as->as_req, FETCH_MS);
		return;
	}
	rpc_req_init(&as->as_req, CTL_PEER_PROGRAM, CTL_PEER_VERSION, CTL_PEER_READ, NULL, ARGS_MAX,
		     pull_ask_done);
	xdr_put_opaque(&as->as_req.q_args, (const uint8_t *)as->as_peer->handle, CTL_HANDLE_LEN);
	xdr_put_u64(&as->as_req.q_args, as->as_off);
	xdr_put_u32(&as->as_req.q_args, as->as_count);
	rpc_client_send(so->sou_client, &as->as_req, FETCH_MS);
}

static void ask_release(struct loop_msg *m)
{
	struct ask *as = caa_container_of(m, struct ask, as_msg);

	rpc_buf_put(as->as_buf);
	sem_post(&as->as_done);
}

/* ---- reading the answer ---- */

int ds_pull_answer(struct xdr_in *x, uint32_t count, struct ds_fetch *f)
{
	const uint8_t *sum, *data;
	uint8_t real[CTL_PEER_SUM];
	uint64_t at = f->ft_off, total = 0;
	uint32_t st = xdr_get_u32(x);

	if (st || x->bad)
		return x->bad ? -EPROTO : st == NFS3ERR_JUKEBOX ? -EAGAIN : -EACCES;
	f->ft_size = xdr_get_u64(x);
	f->ft_to = xdr_get_u64(x);
	sum = xdr_get_fixed(x, CTL_PEER_SUM);
	f->ft_nparts = xdr_get_u32(x);
	if (x->bad || f->ft_nparts > CTL_PEER_PARTS || f->ft_to <= f->ft_off ||
	    f->ft_to > f->ft_off + count || f->ft_size > INT64_MAX)
		return -EPROTO;
	for (unsigned i = 0; i < f->ft_nparts; i++) {
		struct ds_part *pt = &f->ft_part[i];

		pt->pt_off = xdr_get_u64(x);
		pt->pt_len = xdr_get_u32(x);
		if (pt->pt_off < at || pt->pt_off > f->ft_to || !pt->pt_len ||
		    pt->pt_len > f->ft_to - pt->pt_off)
			return -EPROTO;
		at = pt->pt_off + pt->pt_len;
		total += pt->pt_len;
	}
	/* A part that ends past the object's end is malformed. */
	data = xdr_get_opaque(x, DS_MAX_IO, &f->ft_len);
	if (!data || xdr_left(x) || f->ft_len != total || (f->ft_nparts && at > f->ft_size))
		return -EPROTO;
	memcpy(f->ft_data, data, f->ft_len);
	crypto_generichash(real, sizeof(real), f->ft_data, f->ft_len, NULL, 0);
	return sodium_memcmp(real, sum, sizeof(real)) ? -EBADMSG : 0;
}

static bool pull_is_zero(const uint8_t *p, uint32_t n)
{
	return !p[0] && !memcmp(p, p + 1, n - 1);
}

/* Pages of zeros become holes, as long as there is room for another part. */
static void pull_find_parts(const uint8_t *data, uint32_t count, struct ds_fetch *f)
{
	f->ft_nparts = 0;
	f->ft_len = 0;
	for (uint32_t at = 0, n; at < count; at += n) {
		struct ds_part *pt = f->ft_nparts ? &f->ft_part[f->ft_nparts - 1] : NULL;
		uint64_t off = f->ft_off + at;

		n = (uint32_t)(DS_PAGE - off % DS_PAGE);
		n = n < count - at ? n : count - at;
		if (f->ft_nparts == CTL_PEER_PARTS)
			n = count - at;
		else if (pull_is_zero(data + at, n))
			continue;
		if (!pt || (pt->pt_off + pt->pt_len != off && f->ft_nparts < CTL_PEER_PARTS)) {
			f->ft_part[f->ft_nparts++] = (struct ds_part){.pt_off = off, .pt_len = n};
		} else {
			/* The last part that fits takes all further bytes, including zeros. */
			uint32_t from = (uint32_t)(pt->pt_off + pt->pt_len - f->ft_off);

			memcpy(f->ft_data + f->ft_len, data + from, at - from);
			f->ft_len += at - from;
			pt->pt_len += at - from + n;
		}
		memcpy(f->ft_data + f->ft_len, data + at, n);
		f->ft_len += n;
	}
}

int ds_pull_foreign(struct xdr_in *x, uint32_t count, struct ds_fetch *f)
{
	uint32_t st = xdr_get_u32(x), told, len;
	struct nfs3_fattr fa = {0};
	bool known, eof;
	const uint8_t *data;

	if (st || x->bad)
		return x->bad ? -EPROTO : st == NFS3ERR_JUKEBOX ? -EAGAIN : -EACCES;
	known = nfs3_get_post_op(x, &fa);
	told = xdr_get_u32(x);
	eof = xdr_get_bool(x);
	data = xdr_get_opaque(x, count, &len);
	if (x->bad || told != len || (!len && !eof) || (known && fa.fa_size > INT64_MAX))
		return -EPROTO;
	/* Without attributes, only a READ that reaches the end shows where the end is. */
	f->ft_to = f->ft_off + (eof ? count : len);
	f->ft_size = eof			      ? f->ft_off + len
		     : known && fa.fa_size > f->ft_to ? fa.fa_size
						      : f->ft_to + 1;
	pull_find_parts(data, len, f);
	return 0;
}

static int pull_ask_one(struct ask *as, struct ds_fetch *f)
{
	on_loop(as, ask_send);
	if (as->as_err)
		return as->as_err;
	as->as_err = as->as_peer->foreign.foreign_len
			     ? ds_pull_foreign(&as->as_res, as->as_count, f)
			     : ds_pull_answer(&as->as_res, as->as_count, f);
	on_loop(as, ask_release);
	return as->as_err;
}

static const char *pull_why(int err)
{
	switch (err) {
	case -EACCES:
		return "it refused the request";
	case -EAGAIN:
		return "it is busy";
	case -EPROTO:
		return "its answer is malformed";
	case -EBADMSG:
		return "its data does not match the checksum it sent";
	case -EADDRNOTAVAIL:
		return "it has no TCP address";
	default:
		return strerror(-err);
	}
}

/* Tries the source's addresses in turn. Makes a lost connection again once. */
static int pull_fetch(struct ds *d, struct puller *pl, const ctl_peer *p, uint32_t count,
		      struct ds_fetch *f)
{
	struct ask as = {
		.as_ds = d, .as_puller = pl, .as_peer = p, .as_off = f->ft_off, .as_count = count};
	uint64_t until = clock_boot_ns() + FETCH_NS;
	int err = -EADDRNOTAVAIL;
	bool again = true;

	sem_init(&as.as_done, 0, 0);
	for (unsigned i = 0; i < p->addrs.addrs_len && clock_boot_ns() < until; i++) {
		const ctl_addr *a = &p->addrs.addrs_val[i];

		memset(&as.as_addr, 0, sizeof(as.as_addr));
		if ((strcmp(a->netid, "tcp") && strcmp(a->netid, "tcp6")) ||
		    rpc_uaddr_parse(a->netid, a->uaddr, &as.as_addr, &as.as_len))
			continue;
		as.as_err = 0;
		err = pull_ask_one(&as, f);
		if (err == -ECONNRESET && again) {
			again = false;
			i--;
			continue;
		}
		/* The source would answer the same at another address. */
		if (!err || err == -EACCES || err == -EAGAIN || err == -EPROTO || err == -EBADMSG)
			break;
	}
	sem_destroy(&as.as_done);
	return err;
}

uint8_t *ds_pull_memory(uint64_t ino)
{
	return puller_of(ino)->pl_mem;
}

int ds_pull_fetch(struct ds *d, uint64_t ino, const ctl_peer *p, uint32_t count, struct ds_fetch *f)
{
	struct puller *pl = puller_of(ino);
	static _Atomic uint64_t last;
	int err;

	f->ft_data = pl->pl_data;
	err = pull_fetch(d, pl, p, count, f);
	if (err && log_due(&last))
		log_warn("cannot fetch an object from its source at %s: %s",
			 p->addrs.addrs_len ? p->addrs.addrs_val[0].uaddr : "?", pull_why(err));
	return err;
}

/* ---- PULL ---- */

static ctl_status pull_one(struct ds *d, struct puller *pl, struct ds_session *ss,
			   const ctl_rebuild_args *a, uint64_t at, uint32_t count,
			   ctl_rebuild_res *res)
{
	struct ds_fetch f = {.ft_off = at, .ft_data = pl->pl_data};
	static _Atomic uint64_t last;
	int err = pull_fetch(d, pl, &a->source, count, &f);

	if (err) {
		if (log_due(&last))
			log_warn("cannot fetch data for a rebuild from the source at %s: %s",
				 a->source.addrs.addrs_len ? a->source.addrs.addrs_val[0].uaddr
							   : "?",
				 pull_why(err));
		return CTL_SOURCE;
	}
	res->size = f.ft_size;
	return ds_session_write(ss, &f, pl->pl_mem, res);
}

static ctl_status pull_pull(struct ds *d, struct ds_session *ss, const ctl_rebuild_args *a,
			    ctl_rebuild_res *res)
{
	uint64_t end = a->length < (uint64_t)INT64_MAX - a->offset ? a->offset + a->length
								   : INT64_MAX,
		 until = clock_boot_ns() + PULL_NS, at;
	struct puller *pl = puller_of(a->object.ino);
	ctl_status st = CTL_OK;

	while (st == CTL_OK && (at = ds_session_cursor(ss)) < end && clock_boot_ns() < until) {
		uint64_t n = DS_MAX_IO - at % DS_MAX_IO;

		st = pull_one(d, pl, ss, a, at, (uint32_t)(n < end - at ? n : end - at), res);
	}
	at = ds_session_cursor(ss);
	res->eof = at == EXTENT_END;
	if (res->eof)
		res->size = ds_session_size(ss);
	res->next = res->eof ? res->size : at;
	return st;
}

ctl_status ds_pull(struct ds *d, const ctl_rebuild_args *a, ctl_rebuild_res *res)
{
	struct ds_session *ss = ds_session_get(d->d_store, a);
	ctl_status st;

	if (!ss)
		return CTL_BAD_SESSION;
	if (!a->length || a->offset > INT64_MAX || a->offset > ds_session_cursor(ss))
		st = CTL_INVAL;
	else
		st = ds_session_check(ss);
	if (st == CTL_OK)
		st = pull_pull(d, ss, a, res);
	ds_session_put(ss);
	return st;
}
