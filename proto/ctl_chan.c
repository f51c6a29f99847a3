/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctl_chan.c - see ctl_chan.h.
 *
 * A sealed message on the wire is one opaque: counter (8 bytes) | XChaCha20-Poly1305(XDR of the
 * message) with its tag.
 *
 * The nonce is the sender's counter. A receiver accepts a counter only if it is higher than the
 * last one that it saw: it opens no message twice, or out of order. The counter need not be the
 * very next one, because the RPC layer drops a reply that comes after its call timed out, and this
 * layer never sees it. An attacker who holds a message back causes no more than a lost connection,
 * which both sides handle anyway.
 *
 * The additional data of a reply holds the counter of the call that it answers. So an attacker
 * cannot move a reply to another call by exchanging the xids, which are in the clear.
 *
 * Life: three kinds of holders have a reference to the channel: its owner (until ctl_chan_free),
 * every call of ours that the RPC layer still holds, and every request of the peer that is not
 * answered yet. The channel does not touch its rpc_conn after ctl_chan_free.
 */
#include "proto/ctl_chan.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "proto/ds_key.h"
#include <assert.h>
#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

/* From this protocol on, the keys are bound to the numbers that HELLO exchanged in the clear. */
#define CHAN_BOUND    5
#define CHAN_KEY      crypto_aead_xchacha20poly1305_ietf_KEYBYTES
#define CHAN_TAG      crypto_aead_xchacha20poly1305_ietf_ABYTES
#define CHAN_NONCE    crypto_aead_xchacha20poly1305_ietf_NPUBBYTES
#define CHAN_COUNTER  8
#define CHAN_OVERHEAD (CHAN_COUNTER + CHAN_TAG)
/* Size of an RPC message with a full sealed message and the largest RFC 5531 header (credential and
 * verifier). */
#define CHAN_LIMIT	      (CTL_SEALED_MAX + CHAN_OVERHEAD + 2048)
#define CHAN_HELLO_TIMEOUT_MS 5000

static_assert(CHAN_KEY == 32, "two keys come from one 64-byte hash");
static_assert(CHAN_COUNTER <= CHAN_NONCE, "the counter is the nonce");

enum chan_dir { CHAN_TO_MDS = 1, CHAN_TO_DS = 2 };
enum chan_kind { CHAN_CALL = 1, CHAN_REPLY = 2 };

struct chan_key {
	uint8_t k_key[CHAN_KEY];
	uint64_t k_last; /* counter of the last message */
	enum chan_dir k_dir;
};

struct chan_call {
	struct rpc_req cc_rpc;
	struct ctl_chan *cc_chan;
	uint64_t cc_counter;
	void (*cc_done)(void *arg, int err, const ctl_response *res); /* NULL once answered */
	void *cc_arg;
	struct chan_call *cc_next, **cc_prevp;
};

struct ctl_chan {
	struct rpc_conn *ch_conn; /* NULL after ctl_chan_free */
	unsigned ch_refs;
	bool ch_keyed;
	uint32_t ch_asked, ch_protocol; /* asked for in HELLO; spoken by both sides */
	uint32_t ch_fs;			/* ctl_chan_fs */
	/* CTL_HELLO_OWN and the key's number, CTL_HELLO_MEET, CTL_HELLO_ASK, or 0 */
	uint32_t ch_own;
	uint8_t ch_uuid[CTL_UUID_LEN];
	struct chan_key ch_tx, ch_rx;
	ctl_serve_fn ch_serve;
	void *ch_arg;
	struct chan_call *ch_calls; /* unanswered */
	/* client side, until HELLO is answered */
	void (*ch_ready)(struct ctl_chan *ch, int err, void *arg);
	struct rpc_req ch_hello;
	uint8_t ch_cluster[32];
	ctl_pick_fn ch_pick;
	uint32_t ch_want_fs; /* 0: any */
	uint8_t ch_nonce[CTL_NONCE_LEN];
};

/* This data is authenticated but not sent: both sides know it. */
struct chan_ad {
	uint8_t a_dir, a_kind, a_zero[6];
	uint64_t a_answers; /* big-endian: counter of the call that a reply answers, 0 in a call */
};
static_assert(sizeof(struct chan_ad) == 16, "no padding in what is authenticated");

static void chan_put(struct ctl_chan *ch)
{
	if (--ch->ch_refs)
		return;
	sodium_memzero(ch, sizeof(*ch));
	free(ch);
}

static struct ctl_chan *chan_new(struct rpc_conn *conn, const uint8_t uuid[CTL_UUID_LEN],
				 ctl_serve_fn serve, void *arg)
{
	struct ctl_chan *ch;

	/* This may run more than once. It must have run before the first random byte. */
	if (sodium_init() < 0)
		return NULL;
	ch = calloc(1, sizeof(*ch));
	if (!ch)
		return NULL;
	ch->ch_conn = conn;
	ch->ch_refs = 1;
	memcpy(ch->ch_uuid, uuid, CTL_UUID_LEN);
	ch->ch_serve = serve;
	ch->ch_arg = arg;
	return ch;
}

static void chan_derive(struct ctl_chan *ch, bool is_ds, const uint8_t cluster[32],
			const uint8_t ds_nonce[CTL_NONCE_LEN],
			const uint8_t mds_nonce[CTL_NONCE_LEN])
{
	static const char label[3][16] = {"weft control v1", "weft control v2", "weft control v3"};
	uint8_t msg[sizeof(label[0]) + CTL_UUID_LEN + 2 * CTL_NONCE_LEN + 12], out[2 * CHAN_KEY],
		*p = msg;
	/* What HELLO says in the clear is bound to the keys, as far as the protocol has it. */
	const uint32_t said[3] = {htobe32(ch->ch_asked), htobe32(ch->ch_protocol),
				  htobe32(ch->ch_fs)};
	unsigned bound = ch->ch_protocol >= CTL_PROTOCOL_FS ? 2 : ch->ch_protocol >= CHAN_BOUND;
	size_t len = bound == 2 ? sizeof(said) : bound ? 2 * sizeof(said[0]) : 0;

	p = memcpy(p, label[bound], sizeof(label[0]));
	p = memcpy(p + sizeof(label[0]), ch->ch_uuid, CTL_UUID_LEN);
	p = memcpy(p + CTL_UUID_LEN, ds_nonce, CTL_NONCE_LEN);
	p = memcpy(p + CTL_NONCE_LEN, mds_nonce, CTL_NONCE_LEN);
	memcpy(p + CTL_NONCE_LEN, said, sizeof(said));
	crypto_generichash(out, sizeof(out), msg, sizeof(msg) - sizeof(said) + len, cluster, 32);
	ch->ch_tx.k_dir = is_ds ? CHAN_TO_MDS : CHAN_TO_DS;
	ch->ch_rx.k_dir = is_ds ? CHAN_TO_DS : CHAN_TO_MDS;
	memcpy(is_ds ? ch->ch_tx.k_key : ch->ch_rx.k_key, out, CHAN_KEY);
	memcpy(is_ds ? ch->ch_rx.k_key : ch->ch_tx.k_key, out + CHAN_KEY, CHAN_KEY);
	sodium_memzero(out, sizeof(out));
	ch->ch_keyed = true;
}

/* ---- sealing ---- */

static void chan_params(const struct chan_key *k, uint64_t counter, enum chan_kind kind,
			uint64_t answers, uint8_t nonce[CHAN_NONCE], struct chan_ad *ad)
{
	uint64_t be = htobe64(counter);

	memset(nonce, 0, CHAN_NONCE);
	memcpy(nonce + CHAN_NONCE - CHAN_COUNTER, &be, CHAN_COUNTER);
	*ad = (struct chan_ad){.a_dir = k->k_dir, .a_kind = kind, .a_answers = htobe64(answers)};
}

/* Encodes v with proc and appends the sealed opaque to x. Returns the counter that was used, or 0
 * if the opaque does not fit. */
static uint64_t chan_seal(struct chan_key *k, enum chan_kind kind, uint64_t answers,
			  struct xdr_out *x, xdrproc_t proc, const void *v)
{
	uint8_t nonce[CHAN_NONCE], *plain = malloc(CTL_SEALED_MAX), *p;
	uint64_t counter = 0, be;
	struct chan_ad ad;
	uint32_t n, total;
	XDR xdrs;

	if (!plain)
		return 0;
	xdrmem_create(&xdrs, (char *)plain, CTL_SEALED_MAX, XDR_ENCODE);
	if (!proc(&xdrs, (void *)v))
		goto out;
	n = xdr_getpos(&xdrs);
	total = n + CHAN_OVERHEAD;
	xdr_put_u32(x, total);
	p = xdr_reserve(x, (total + 3) & ~3u);
	if (!p)
		goto out;
	memset(p + total, 0, ((total + 3) & ~3u) - total);
	counter = ++k->k_last;
	be = htobe64(counter);
	memcpy(p, &be, CHAN_COUNTER);
	chan_params(k, counter, kind, answers, nonce, &ad);
	crypto_aead_xchacha20poly1305_ietf_encrypt(p + CHAN_COUNTER, NULL, plain, n,
						   (const uint8_t *)&ad, sizeof(ad), NULL, nonce,
						   k->k_key);
out:
	free(plain);
	return counter;
}

/* Opens the one opaque in x and decodes it with proc into v. The caller zeroes v, and calls
 * xdr_free on it only on success. Returns the counter, or 0 if the message is not from the peer. */
static uint64_t chan_unseal(struct chan_key *k, enum chan_kind kind, uint64_t answers,
			    struct xdr_in *x, xdrproc_t proc, void *v)
{
	uint8_t nonce[CHAN_NONCE], *plain;
	const uint8_t *p;
	uint64_t counter;
	struct chan_ad ad;
	uint32_t n;
	XDR xdrs;

	p = xdr_get_opaque(x, CTL_SEALED_MAX + CHAN_OVERHEAD, &n);
	if (!p || n < CHAN_OVERHEAD || xdr_left(x))
		return 0;
	memcpy(&counter, p, CHAN_COUNTER);
	counter = be64toh(counter);
	if (counter <= k->k_last)
		return 0;
	plain = malloc(n);
	if (!plain)
		return 0;
	chan_params(k, counter, kind, answers, nonce, &ad);
	if (crypto_aead_xchacha20poly1305_ietf_decrypt(plain, NULL, NULL, p + CHAN_COUNTER,
						       n - CHAN_COUNTER, (const uint8_t *)&ad,
						       sizeof(ad), nonce, k->k_key) != 0) {
		counter = 0;
		goto out;
	}
	xdrmem_create(&xdrs, (char *)plain, n - CHAN_OVERHEAD, XDR_DECODE);
	if (!proc(&xdrs, v) || xdr_getpos(&xdrs) != n - CHAN_OVERHEAD) {
		xdr_free(proc, v);
		counter = 0;
		goto out;
	}
	k->k_last = counter;
out:
	free(plain);
	return counter;
}

/* ---- the peer's requests ---- */

#define REFUSED_AGAIN_S 30
#define REFUSED_SLOTS	64

/* Logs one line per address every REFUSED_AGAIN_S seconds: the peer retries again and again, and
 * may be any host. Addresses hash to slots, so that a stranger does not hide the server that cannot
 * join. Addresses in the same slot share its line. Which addresses these are differs from one start
 * of the program to the next. */
static bool refused_due(const char *addr, unsigned *unsaid)
{
	static struct {
		_Atomic uint64_t s;
		_Atomic unsigned unsaid;
	} slots[REFUSED_SLOTS];
	const char *port = strrchr(addr, ':');
	uint64_t host = hash_bytes(addr, port ? (size_t)(port - addr) : strlen(addr));
	size_t at = hash_u64(host ^ (uintptr_t)slots) % REFUSED_SLOTS;
	uint64_t now = clock_mono_ms() / 1000 + 1, before = atomic_load(&slots[at].s);

	if ((before && now - before < REFUSED_AGAIN_S) ||
	    !atomic_compare_exchange_strong(&slots[at].s, &before, now)) {
		atomic_fetch_add(&slots[at].unsaid, 1);
		return false;
	}
	*unsaid = atomic_exchange(&slots[at].unsaid, 0);
	return true;
}

/* Ends the connection: a sender whose message does not open is not the peer. */
static void chan_refuse(struct ctl_chan *ch, struct rpc_call *call, const char *why)
{
	struct rpc_conn *conn = call->c_conn;
	unsigned unsaid;
	char addr[80];

	rpc_addr_text((const struct sockaddr *)rpc_conn_peer(conn), addr, sizeof(addr));
	if (refused_due(addr, &unsaid))
		log_warn("control: %s: %s; closing the connection (%u more since the last such "
			 "line)",
			 addr, why, unsaid);
	rpc_reply_error(call, RPC_A_GARBAGE_ARGS);
	/* The owner frees the channel when the RPC layer reports that the connection is gone. */
	if (ch->ch_conn)
		rpc_conn_close(conn);
}

/* An incoming request, with the counter of its call: the reply must name it. */
struct chan_incoming {
	struct ctl_incoming ci_in; /* first: ctl_chan_reply gets a pointer to it */
	uint64_t ci_counter;
};

void ctl_chan_sealed(struct ctl_chan *ch, struct rpc_call *call)
{
	struct chan_incoming *ci;

	if (!ch->ch_keyed) {
		chan_refuse(ch, call, "a sealed message before the handshake");
		return;
	}
	ci = calloc(1, sizeof(*ci));
	if (!ci) {
		rpc_reply_error(call, RPC_A_SYSTEM_ERR);
		return;
	}
	ci->ci_counter = chan_unseal(&ch->ch_rx, CHAN_CALL, 0, &call->c_args,
				     (xdrproc_t)xdr_ctl_request, &ci->ci_in.in_req);
	if (!ci->ci_counter) {
		free(ci);
		chan_refuse(ch, call, "cannot decrypt a message: another cluster key?");
		return;
	}
	ci->ci_in.in_chan = ch;
	ci->ci_in.in_call = call;
	ch->ch_refs++;
	ch->ch_serve(&ci->ci_in, ch->ch_arg);
}

void ctl_chan_reply(struct ctl_incoming *in, ctl_status status, const ctl_result *res)
{
	struct chan_incoming *ci = (struct chan_incoming *)in;
	struct ctl_chan *ch = in->in_chan;
	struct rpc_call *call = in->in_call;
	ctl_response rsp = {.status = status};

	/* A union needs a valid arm to be encoded. Heartbeat results of zeros stand for
	 * "nothing". */
	if (res)
		rsp.result = *res;
	else
		rsp.result.op = CTL_OP_HEARTBEAT;
	if (!ch->ch_conn)
		rpc_reply_error(call,
				RPC_A_SYSTEM_ERR); /* frees the call: its connection is gone */
	else if (chan_seal(&ch->ch_tx, CHAN_REPLY, ci->ci_counter, &call->c_reply,
			   (xdrproc_t)xdr_ctl_response, &rsp))
		rpc_reply(call);
	else
		rpc_reply_error(call, RPC_A_SYSTEM_ERR);
	xdr_free((xdrproc_t)xdr_ctl_request, (char *)&in->in_req);
	free(ci);
	chan_put(ch);
}

/* ---- our requests ---- */

static void chan_call_unlink(struct chan_call *cc)
{
	if (!cc->cc_prevp)
		return;
	*cc->cc_prevp = cc->cc_next;
	if (cc->cc_next)
		cc->cc_next->cc_prevp = cc->cc_prevp;
	cc->cc_prevp = NULL;
}

static void chan_call_finish(struct chan_call *cc, int err, const ctl_response *res)
{
	void (*done)(void *, int, const ctl_response *) = cc->cc_done;

	chan_call_unlink(cc);
	cc->cc_done = NULL;
	if (done)
		done(cc->cc_arg, err, res);
}

static void chan_call_done(struct rpc_req *q, int err, struct xdr_in *res)
{
	struct chan_call *cc = (struct chan_call *)((char *)q - offsetof(struct chan_call, cc_rpc));
	struct ctl_chan *ch = cc->cc_chan;
	ctl_response rsp = {0};

	if (!err && ch->ch_conn) {
		if (chan_unseal(&ch->ch_rx, CHAN_REPLY, cc->cc_counter, res,
				(xdrproc_t)xdr_ctl_response, &rsp)) {
			chan_call_finish(cc, 0, &rsp);
			xdr_free((xdrproc_t)xdr_ctl_response, (char *)&rsp);
		} else {
			struct rpc_conn *conn = ch->ch_conn;

			log_warn("control: cannot decrypt a reply; closing the connection");
			chan_call_finish(cc, -EPROTO, NULL);
			if (ch->ch_conn)
				rpc_conn_close(conn);
		}
	} else {
		chan_call_finish(cc, err ? err : -ECONNRESET, NULL);
	}
	free(cc);
	chan_put(ch);
}

int ctl_chan_call(struct ctl_chan *ch, const ctl_request *req, uint32_t timeout_ms,
		  void (*done)(void *arg, int err, const ctl_response *res), void *arg)
{
	struct chan_call *cc;

	if (!ch->ch_conn || !ch->ch_keyed)
		return -ENOTCONN;
	cc = calloc(1, sizeof(*cc));
	if (!cc)
		return -ENOMEM;
	rpc_req_init(&cc->cc_rpc, CTL_PROGRAM, CTL_VERSION, CTL_PROC_SEALED, NULL, CHAN_LIMIT,
		     chan_call_done);
	cc->cc_counter = chan_seal(&ch->ch_tx, CHAN_CALL, 0, &cc->cc_rpc.q_args,
				   (xdrproc_t)xdr_ctl_request, req);
	if (!cc->cc_counter) {
		xdr_out_free(&cc->cc_rpc.q_args);
		free(cc);
		return -EMSGSIZE;
	}
	cc->cc_chan = ch;
	cc->cc_done = done;
	cc->cc_arg = arg;
	cc->cc_next = ch->ch_calls;
	if (cc->cc_next)
		cc->cc_next->cc_prevp = &cc->cc_next;
	cc->cc_prevp = &ch->ch_calls;
	ch->ch_calls = cc;
	ch->ch_refs++;
	rpc_req_send(ch->ch_conn, &cc->cc_rpc, timeout_ms);
	return 0;
}

/* ---- HELLO ---- */

static void chan_hello_done(struct rpc_req *q, int err, struct xdr_in *res);

static void chan_hello_send(struct ctl_chan *ch, uint32_t protocol)
{
	ch->ch_asked = protocol | ch->ch_own;
	randombytes_buf(ch->ch_nonce, sizeof(ch->ch_nonce));
	rpc_req_init(&ch->ch_hello, CTL_PROGRAM, CTL_VERSION, CTL_PROC_HELLO, NULL, CHAN_LIMIT,
		     chan_hello_done);
	xdr_put_u32(&ch->ch_hello.q_args, ch->ch_asked);
	xdr_put_fixed(&ch->ch_hello.q_args, ch->ch_uuid, CTL_UUID_LEN);
	xdr_put_fixed(&ch->ch_hello.q_args, ch->ch_nonce, CTL_NONCE_LEN);
	rpc_req_send(ch->ch_conn, &ch->ch_hello, CHAN_HELLO_TIMEOUT_MS);
}

/* Returns 0, or -EAGAIN if the MDS knows only a lower protocol, ch_protocol, and has made no
 * channel: ask again with that protocol. */
static int hello_res_get(struct ctl_chan *ch, struct xdr_in *res, const uint8_t **nonce)
{
	uint32_t protocol = xdr_get_u32(res), asked = ch->ch_asked & ~ch->ch_own;

	*nonce = xdr_get_fixed(res, CTL_NONCE_LEN);
	if (!*nonce || xdr_left(res))
		return -EPROTO;
	if (ch->ch_own & CTL_HELLO_OWN && !(protocol & CTL_HELLO_OWN))
		return -EKEYREJECTED;
	protocol &= ~(ch->ch_own & CTL_HELLO_OWN);
	ch->ch_fs = 1;
	if (protocol % CTL_HELLO_FS >= CTL_PROTOCOL_FS) {
		ch->ch_fs = protocol / CTL_HELLO_FS;
		protocol %= CTL_HELLO_FS;
		if (ch->ch_fs > UINT16_MAX)
			return -EPROTO;
	}
	if (protocol < CTL_PROTOCOL_MIN || protocol > asked) {
		log_error("control: the MDS speaks protocol %u, this data server %u to %u",
			  protocol, CTL_PROTOCOL_MIN, asked);
		return -EPROTONOSUPPORT;
	}
	if (ch->ch_own == CTL_HELLO_ASK)
		return protocol >= CTL_PROTOCOL_FS && sodium_is_zero(*nonce, CTL_NONCE_LEN)
			       ? 0
			       : -EAGAIN;
	ch->ch_protocol = protocol;
	if (sodium_is_zero(*nonce, CTL_NONCE_LEN))
		return protocol < asked ? -EAGAIN : -EKEYREJECTED;
	/* Our own nonce back is a reflection, not an answer of the peer. */
	if (!memcmp(*nonce, ch->ch_nonce, CTL_NONCE_LEN))
		return -EPROTO;
	return ch->ch_want_fs && ch->ch_want_fs != ch->ch_fs ? -EXDEV : 0;
}

/* Chooses the key for the MDS of ch_want_fs, and sends HELLO. */
static void hello_pick(struct ctl_chan *ch)
{
	uint8_t number = 0;

	switch (ch->ch_pick(ch->ch_arg, (uint16_t)ch->ch_want_fs, &number, ch->ch_cluster)) {
	case CTL_SEAL_OWN:
		ch->ch_own = CTL_HELLO_OWN | number * CTL_HELLO_NUMBER;
		break;
	case CTL_SEAL_MEET:
		ch->ch_own = CTL_HELLO_MEET;
		break;
	default:
		ch->ch_own = 0;
	}
	chan_hello_send(ch, CTL_PROTOCOL);
}

static void chan_hello_done(struct rpc_req *q, int err, struct xdr_in *res)
{
	struct ctl_chan *ch = (struct ctl_chan *)((char *)q - offsetof(struct ctl_chan, ch_hello));
	void (*ready)(struct ctl_chan *, int, void *) = ch->ch_ready;
	const uint8_t *nonce;

	if (!err)
		err = hello_res_get(ch, res, &nonce);
	if (!err && ch->ch_own == CTL_HELLO_ASK && ch->ch_conn) {
		ch->ch_want_fs = ch->ch_fs;
		hello_pick(ch);
		return;
	}
	if (err == -EAGAIN && ch->ch_own != CTL_HELLO_ASK && ch->ch_conn) {
		chan_hello_send(ch, ch->ch_protocol);
		return;
	}
	if (!err)
		chan_derive(ch, true, ch->ch_cluster, ch->ch_nonce, nonce);
	sodium_memzero(ch->ch_cluster, sizeof(ch->ch_cluster));
	/* If the channel was freed while HELLO was under way, no caller waits. */
	if (ch->ch_conn)
		ready(ch, err, ch->ch_arg);
	chan_put(ch);
}

/* If ready(err) reports an error, the channel is of no use. The owner still calls ctl_chan_free. */
static int chan_connect(struct ctl_chan **out, struct rpc_conn *conn, const uint8_t key[32],
			uint32_t own, const uint8_t ds_uuid[16], ctl_serve_fn serve, void *arg,
			void (*ready)(struct ctl_chan *, int err, void *arg))
{
	struct ctl_chan *ch = chan_new(conn, ds_uuid, serve, arg);

	if (!ch)
		return -ENOMEM;
	ch->ch_ready = ready;
	ch->ch_own = own;
	memcpy(ch->ch_cluster, key, sizeof(ch->ch_cluster));
	*out = ch;
	ch->ch_refs++;
	chan_hello_send(ch, CTL_PROTOCOL);
	return 0;
}

int ctl_chan_connect(struct ctl_chan **out, struct rpc_conn *conn, const uint8_t cluster_key[32],
		     const uint8_t ds_uuid[16], ctl_serve_fn serve, void *arg,
		     void (*ready)(struct ctl_chan *, int err, void *arg))
{
	return chan_connect(out, conn, cluster_key, 0, ds_uuid, serve, arg, ready);
}

int ctl_chan_connect_own(struct ctl_chan **out, struct rpc_conn *conn,
			 const uint8_t control_key[32], uint8_t number, const uint8_t ds_uuid[16],
			 ctl_serve_fn serve, void *arg,
			 void (*ready)(struct ctl_chan *, int err, void *arg))
{
	return chan_connect(out, conn, control_key, CTL_HELLO_OWN | number * CTL_HELLO_NUMBER,
			    ds_uuid, serve, arg, ready);
}

int ctl_chan_connect_pick(struct ctl_chan **out, struct rpc_conn *conn, uint16_t fs,
			  ctl_pick_fn pick, const uint8_t ds_uuid[16], ctl_serve_fn serve,
			  void *arg, void (*ready)(struct ctl_chan *, int err, void *arg))
{
	struct ctl_chan *ch = chan_new(conn, ds_uuid, serve, arg);

	if (!ch)
		return -ENOMEM;
	ch->ch_ready = ready;
	ch->ch_pick = pick;
	ch->ch_want_fs = fs;
	*out = ch;
	ch->ch_refs++;
	if (fs) {
		hello_pick(ch);
		return 0;
	}
	ch->ch_own = CTL_HELLO_ASK;
	chan_hello_send(ch, CTL_PROTOCOL);
	return 0;
}

static bool find_cluster(void *arg, const uint8_t ds_uuid[16], enum ctl_seal seal, uint8_t number,
			 uint8_t key[32])
{
	uint8_t tls[CAP_TLS_KEY_LEN];

	if (seal == CTL_SEAL_MEET) {
		cap_derive_tls_key(arg, ds_uuid, tls);
		ds_key_derive_meet(tls, ds_uuid, key);
	} else if (seal == CTL_SEAL_OWN)
		ds_key_derive_control(arg, ds_uuid, number, key);
	else
		memcpy(key, arg, 32);
	return true;
}

int ctl_chan_accept(struct ctl_chan **out, struct rpc_call *hello, uint16_t fs,
		    const uint8_t cluster_key[32], ctl_serve_fn serve, void *arg)
{
	return ctl_chan_accept_by(out, hello, fs, find_cluster, (void *)cluster_key, serve, arg);
}

/* Returns the part of HELLO's number that says what seals the channel (ch_own), or 0 if there is
 * none. A number with other high bits belongs to a later protocol. */
static uint32_t hello_own(uint32_t asked)
{
	uint32_t own = asked & ~(CTL_HELLO_NUMBER - 1u);

	return asked >> 24 == 1 || own == CTL_HELLO_ASK || own == CTL_HELLO_MEET ? own : 0;
}

static enum ctl_seal seal_of(uint32_t own)
{
	return own == CTL_HELLO_MEET ? CTL_SEAL_MEET : own ? CTL_SEAL_OWN : CTL_SEAL_CLUSTER;
}

int ctl_chan_accept_by(struct ctl_chan **out, struct rpc_call *hello, uint16_t fs, ctl_key_fn find,
		       void *find_arg, ctl_serve_fn serve, void *arg)
{
	uint32_t asked = xdr_get_u32(&hello->c_args), own = hello_own(asked);
	uint32_t protocol = (asked & ~own) < CTL_PROTOCOL ? asked & ~own : CTL_PROTOCOL;
	const uint8_t *uuid = xdr_get_fixed(&hello->c_args, CTL_UUID_LEN);
	const uint8_t *ds_nonce = xdr_get_fixed(&hello->c_args, CTL_NONCE_LEN);
	uint8_t nonce[CTL_NONCE_LEN] = {0}, key[32];
	struct ctl_chan *ch = NULL;
	bool known;

	/* Before CHAN_BOUND, the seal does not cover what HELLO says about the key. */
	if (!uuid || !ds_nonce || xdr_left(&hello->c_args) || (own && protocol < CHAN_BOUND)) {
		rpc_reply_error(hello, RPC_A_GARBAGE_ARGS);
		return -EBADMSG;
	}
	/* An older data server takes each MDS for that of file system 1. */
	if (protocol < CTL_PROTOCOL_FS && fs != 1)
		protocol = 0;
	if (own == CTL_HELLO_ASK && protocol >= CTL_PROTOCOL_FS) {
		xdr_put_u32(&hello->c_reply, protocol | fs * CTL_HELLO_FS);
		xdr_put_fixed(&hello->c_reply, nonce, CTL_NONCE_LEN);
		rpc_reply(hello);
		return -EAGAIN;
	}
	known = own != CTL_HELLO_ASK &&
		find(find_arg, uuid, seal_of(own), (uint8_t)(own / CTL_HELLO_NUMBER), key);
	if (protocol >= CTL_PROTOCOL_MIN && known) {
		ch = chan_new(hello->c_conn, uuid, serve, arg);
		if (!ch) {
			rpc_reply_error(hello, RPC_A_SYSTEM_ERR);
			return -ENOMEM;
		}
		randombytes_buf(nonce, sizeof(nonce));
		ch->ch_asked = asked;
		ch->ch_protocol = protocol;
		ch->ch_own = own;
		ch->ch_fs = fs;
		chan_derive(ch, false, key, ds_nonce, nonce);
		*out = ch;
	}
	sodium_memzero(key, sizeof(key));
	/* Without a channel the answer is our highest protocol and a nonce of zeros: a data server
	 * that shares no protocol with us learns no more. */
	xdr_put_u32(&hello->c_reply,
		    (ch ? protocol : CTL_PROTOCOL) | (own & CTL_HELLO_OWN) |
			    (ch && protocol >= CTL_PROTOCOL_FS ? fs * CTL_HELLO_FS : 0));
	xdr_put_fixed(&hello->c_reply, nonce, CTL_NONCE_LEN);
	rpc_reply(hello);
	return ch ? 0 : known ? -EPROTONOSUPPORT : -EKEYREJECTED;
}

/* ---- the rest ---- */

const uint8_t *ctl_chan_uuid(const struct ctl_chan *ch)
{
	return ch->ch_uuid;
}

bool ctl_chan_own(const struct ctl_chan *ch, uint8_t *number)
{
	*number = (uint8_t)(ch->ch_own / CTL_HELLO_NUMBER);
	return seal_of(ch->ch_own) == CTL_SEAL_OWN;
}

enum ctl_seal ctl_chan_seal(const struct ctl_chan *ch)
{
	return seal_of(ch->ch_own);
}

uint32_t ctl_chan_protocol(const struct ctl_chan *ch)
{
	return ch->ch_protocol;
}

uint32_t ctl_chan_fs(const struct ctl_chan *ch)
{
	return ch->ch_fs;
}

struct rpc_conn *ctl_chan_conn(const struct ctl_chan *ch)
{
	return ch->ch_conn;
}

void ctl_chan_free(struct ctl_chan *ch)
{
	ch->ch_conn = NULL;
	/* The RPC layer keeps the memory of a call until it gives it back. Report the error to the
	 * caller now. */
	while (ch->ch_calls)
		chan_call_finish(ch->ch_calls, -ECONNRESET, NULL);
	chan_put(ch);
}
