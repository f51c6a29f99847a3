/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_ctl.c - the control protocol after the seal: what a peer says that has the cluster's key,
 * and what one says that has not.
 *
 * The first byte chooses the end that is tried. Against the metadata server (a real one,
 * mds_fuzz.h) the fuzzer is a data server: it makes the handshake and seals messages of the
 * fuzzer's bytes, rightly or not; orders that the server then sends are answered with such bytes as
 * well. Or it is a machine that has a join token, on a channel of the token's key. Against the data
 * server's control.c, with a real store, it is a metadata server that asks. Sealing is written here
 * a second time, from ctl_chan.c's description. Or the bytes are the answer to a JOIN with a list
 * of instances, and a file with such a list.
 *
 * Held: what decodes is answered, sealed, once, and the answer decodes; what does not open or
 * decode ends the connection. A token gives keys to one claim, and the keys open; its channel is
 * good for nothing else.
 */
#include "base/clock.h"
#include "ds/ds.h"
#include "ds/peer.h"
#include "proto/ds_key.h"
#include "tests/fuzz/mds_fuzz.h"

/* Of HELLO: the first input byte says whether the fuzzer's data server speaks the newest or the
 * oldest. */
#define NEW_PROTOCOL CTL_PROTOCOL
#define OLD_PROTOCOL CTL_PROTOCOL_MIN

#define MAX_MSG 65536
enum { TO_MDS = 1, TO_DS = 2 };
enum { IS_CALL = 1, IS_REPLY = 2 };
/* Messages of an input: a byte of these, two of length, bytes. */
enum { M_SEALED, M_TAMPERED, M_OPAQUE, M_PROC, M_ANSWER, M_OLD, M_ORDER, M_KINDS };

static const uint8_t uuid[16] = "the fuzzer's own";

struct peer {
	int p_fd;
	unsigned p_dir; /* of what we send */
	uint32_t p_protocol;
	bool p_token; /* it has a join token, and the channel has the token's key */
	uint8_t p_tx[32], p_rx[32];
	uint64_t p_tx_last, p_rx_last;
	uint8_t p_buf[MAX_MSG * 2];
	size_t p_len;
	uint32_t p_xid;
	/* we answered with the fuzzer's bytes: what waits for a good answer may wait long */
	bool p_spoiled;
};

static struct peer *as_ds, *as_mds;
static const uint8_t *answer; /* for the next call of the metadata server */
static size_t answer_len;

/* The input's join token. One claim is of a secret that we know; another one may have used it. */
static struct ds_reg_token token;
static uint8_t token_key[CAP_CLUSTER_KEY_LEN], token_user[CTL_CLAIM_LEN];
static bool token_used;
static const uint8_t token_secret[CTL_CLAIM_LEN] = "the secret of a claim";

/* ---- sealing ---- */

static uint32_t hello_protocol(const struct peer *p)
{
	return p->p_protocol | (p->p_token ? CTL_HELLO_OWN : 0);
}

static void derive(struct peer *p, const uint8_t *id, const uint8_t *ds_nonce,
		   const uint8_t *mds_nonce)
{
	uint8_t msg[16 + 16 + 32 + 32 + 12] = "weft control v1", out[64];
	const uint32_t asked = htobe32(hello_protocol(p)), said = htobe32(p->p_protocol),
		       fs = htobe32(1);
	unsigned bound = p->p_protocol >= CTL_PROTOCOL_FS ? 2 : p->p_protocol >= 5;

	memcpy(msg + 16, id, 16);
	memcpy(msg + 32, ds_nonce, 32);
	memcpy(msg + 64, mds_nonce, 32);
	memcpy(msg + 96, &asked, 4);
	memcpy(msg + 100, &said, 4);
	memcpy(msg + 104, &fs, 4);
	msg[14] = (uint8_t)('1' + bound);
	crypto_generichash(out, sizeof(out), msg,
			   bound == 2 ? 108
			   : bound    ? 104
				      : 96,
			   p->p_token ? token_key : fz_key, 32);
	memcpy(p->p_dir == TO_MDS ? p->p_tx : p->p_rx, out, 32);
	memcpy(p->p_dir == TO_MDS ? p->p_rx : p->p_tx, out + 32, 32);
	p->p_tx_last = p->p_rx_last = 0;
}

static void params(unsigned dir, unsigned kind, uint64_t answers, uint64_t counter,
		   uint8_t nonce[24], uint8_t ad[16])
{
	uint64_t be = htobe64(counter);

	memset(nonce, 0, 24);
	memcpy(nonce + 16, &be, 8);
	memset(ad, 0, 16);
	ad[0] = (uint8_t)dir;
	ad[1] = (uint8_t)kind;
	be = htobe64(answers);
	memcpy(ad + 8, &be, 8);
}

static void seal(struct peer *p, unsigned kind, uint64_t answers, struct xdr_out *x,
		 const uint8_t *plain, size_t n)
{
	uint64_t counter = ++p->p_tx_last, be = htobe64(counter);
	uint8_t nonce[24], ad[16];
	static uint8_t box[MAX_MSG + 64];

	params(p->p_dir, kind, answers, counter, nonce, ad);
	memcpy(box, &be, 8);
	crypto_aead_xchacha20poly1305_ietf_encrypt(box + 8, NULL, plain, n, ad, sizeof(ad), NULL,
						   nonce, p->p_tx);
	xdr_put_opaque(x, box, (uint32_t)(n + 24));
}

/* Decodes into v what the other end sealed; its counter. */
static uint64_t unseal(struct peer *p, unsigned kind, uint64_t answers, struct xdr_in *x,
		       xdrproc_t proc, void *v)
{
	static uint8_t plain[MAX_MSG * 2];
	uint8_t nonce[24], ad[16];
	uint64_t counter;
	const uint8_t *box;
	uint32_t n;
	XDR xdrs;

	box = xdr_get_opaque(x, MAX_MSG + 64, &n);
	if (!box || n < 24 || xdr_left(x))
		fz_bug("a message that is no sealed one");
	memcpy(&counter, box, 8);
	counter = be64toh(counter);
	params(p->p_dir == TO_MDS ? TO_DS : TO_MDS, kind, answers, counter, nonce, ad);
	if (counter <= p->p_rx_last ||
	    crypto_aead_xchacha20poly1305_ietf_decrypt(plain, NULL, NULL, box + 8, n - 8, ad,
						       sizeof(ad), nonce, p->p_rx))
		fz_bug("a message that does not open");
	p->p_rx_last = counter;
	xdrmem_create(&xdrs, (char *)plain, n - 24, XDR_DECODE);
	if (!proc(&xdrs, v) || xdr_getpos(&xdrs) != n - 24)
		fz_bug("a message that does not decode");
	return counter;
}

static bool decodes(const uint8_t *p, size_t n, ctl_request *req)
{
	XDR xdrs;

	memset(req, 0, sizeof(*req));
	xdrmem_create(&xdrs, (char *)p, (unsigned)n, XDR_DECODE);
	if (xdr_ctl_request(&xdrs, req) && xdr_getpos(&xdrs) == n)
		return true;
	xdr_free((xdrproc_t)xdr_ctl_request, (char *)req);
	memset(req, 0, sizeof(*req));
	return false;
}

/* ---- records ---- */

static void put_call(struct peer *p, struct xdr_out *x, uint32_t proc)
{
	xdr_out_init(x, MAX_MSG * 2);
	xdr_put_u32(x, 0);
	xdr_put_u32(x, ++p->p_xid);
	xdr_put_u32(x, 0);
	xdr_put_u32(x, 2);
	xdr_put_u32(x, CTL_PROGRAM);
	xdr_put_u32(x, CTL_VERSION);
	xdr_put_u32(x, proc);
	xdr_put_u64(x, 0);
	xdr_put_u64(x, 0);
}

static void put_reply(struct xdr_out *x, uint32_t xid)
{
	xdr_out_init(x, MAX_MSG * 2);
	xdr_put_u32(x, 0);
	xdr_put_u32(x, xid);
	xdr_put_u32(x, 1);
	xdr_put_u32(x, 0);
	xdr_put_u64(x, 0);
	xdr_put_u32(x, RPC_A_SUCCESS);
}

static void send_record(struct peer *p, struct xdr_out *x)
{
	xdr_patch_u32(x, 0, 0x80000000u | (uint32_t)(x->x_len - 4));
	for (size_t at = 0; at < x->x_len;) {
		ssize_t n = write(p->p_fd, x->x_head + at, x->x_len - at);

		if (n < 0 && errno == EINTR) /* libFuzzer's own alarm */
			continue;
		if (n <= 0)
			break;
		at += (size_t)n;
	}
	xdr_out_free(x);
}

static void patience(struct peer *p, unsigned ms)
{
	struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};

	setsockopt(p->p_fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
}

static bool read_all(struct peer *p, void *to, size_t n)
{
	for (size_t at = 0; at < n;) {
		ssize_t got = read(p->p_fd, (char *)to + at, n - at);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0 && errno == EAGAIN && !p->p_spoiled)
			fz_bug("a call without a reply");
		if (got <= 0)
			return false;
		at += (size_t)got;
	}
	return true;
}

/* False: the connection has ended. */
static bool read_record(struct peer *p, struct xdr_in *x)
{
	uint32_t mark;

	if (!read_all(p, &mark, 4))
		return false;
	p->p_len = be32toh(mark) & 0x7fffffff;
	if (p->p_len > sizeof(p->p_buf) || p->p_len < 8 || p->p_len % 4)
		fz_bug("a record that is no message");
	if (!read_all(p, p->p_buf, p->p_len))
		return false;
	xdr_in_init(x, p->p_buf, p->p_len);
	return true;
}

/* The metadata server asks: the fuzzer's bytes, or what a good server says. */
static void answer_call(struct peer *p, uint32_t xid, struct xdr_in *x)
{
	static ctl_status results[CTL_BATCH_MAX];
	static uint8_t plain[MAX_MSG];
	ctl_request req = {0};
	ctl_response res = {0};
	struct xdr_out out;
	uint64_t counter;
	XDR xdrs;

	xdr_take(x, 16 + 16);
	counter = unseal(p, IS_CALL, 0, x, (xdrproc_t)xdr_ctl_request, &req);
	if (p->p_token)
		fz_bug("a machine that has a token is asked");
	if (req.op != CTL_OP_ORDERS && req.op != CTL_OP_STAT) /* STAT of nothing: does it live? */
		fz_bug("a question that was not expected");
	put_reply(&out, xid);
	if (answer) {
		seal(p, IS_REPLY, counter, &out, answer, answer_len);
		answer = NULL;
		p->p_spoiled = true;
		patience(p, 20);
	} else {
		res.result.op = req.op;
		if (req.op == CTL_OP_ORDERS) {
			res.result.ctl_result_u.orders.results.results_len =
				req.ctl_request_u.orders.orders.orders_len;
			res.result.ctl_result_u.orders.results.results_val = results;
		}
		xdrmem_create(&xdrs, (char *)plain, sizeof(plain), XDR_ENCODE);
		xdr_ctl_response(&xdrs, &res);
		seal(p, IS_REPLY, counter, &out, plain, xdr_getpos(&xdrs));
	}
	xdr_free((xdrproc_t)xdr_ctl_request, (char *)&req);
	send_record(p, &out);
}

/* The reply to the call just sent: its accept_stat, x at its results; or -1 when the connection
 * ended. */
static int64_t wait_reply(struct peer *p, struct xdr_in *x)
{
	while (read_record(p, x)) {
		uint32_t xid = xdr_get_u32(x), stat;

		if (xdr_get_u32(x) == 0) {
			answer_call(p, xid, x);
			continue;
		}
		if (xid != p->p_xid)
			fz_bug("a reply to another call");
		if (xdr_get_u32(x))
			fz_bug("a call denied");
		xdr_get_u64(x);
		stat = xdr_get_u32(x);
		return x->bad ? -1 : stat;
	}
	return -1;
}

/* ---- against the metadata server ---- */

static bool connect_mds(struct peer *p, const uint8_t *hello, size_t n)
{
	static const uint8_t nonce[32] = "the fuzzer's nonce";
	struct xdr_out x;
	struct xdr_in in;
	uint32_t said;

	p->p_fd = fz_connect();
	p->p_spoiled = false;
	patience(p, 8000);
	p->p_dir = TO_MDS;
	put_call(p, &x, CTL_PROC_HELLO);
	if (hello) {
		xdr_put_fixed(&x, hello, n & ~(size_t)3);
	} else {
		xdr_put_u32(&x, hello_protocol(p));
		xdr_put_fixed(&x, p->p_token ? token.tt_id : uuid, 16);
		xdr_put_fixed(&x, nonce, 32);
	}
	send_record(p, &x);
	if (wait_reply(p, &in) != RPC_A_SUCCESS) {
		if (!hello)
			fz_bug("a good HELLO was refused");
		return false;
	}
	said = xdr_get_u32(&in);
	if (hello || p->p_token) /* it may have named a key of its own */
		said &= ~(uint32_t)CTL_HELLO_OWN;
	if (said % CTL_HELLO_FS >= CTL_PROTOCOL_FS) { /* the fuzzer's store is file system 1 */
		/* An answer without a channel names none. */
		if (said / CTL_HELLO_FS != 1 && (!hello || said / CTL_HELLO_FS))
			fz_bug("a HELLO of another file system");
		said %= CTL_HELLO_FS;
	}
	if ((hello ? said < OLD_PROTOCOL || said > NEW_PROTOCOL : said != p->p_protocol) ||
	    xdr_left(&in) != 32)
		fz_bug("a HELLO without its answer");
	if (!hello)
		derive(p, p->p_token ? token.tt_id : uuid, nonce, in.p);
	return !hello;
}

/* A data server that has seen more than the store has is one that ends the metadata server
 * (docs/recovery.md): the fuzzer's has not. */
static void join_tame(const uint8_t **data, size_t *n)
{
	static uint8_t tame[8192 + 64];
	ctl_request req;
	ctl_join2_args *j = &req.ctl_request_u.join2;
	XDR xdrs;

	if (!decodes(*data, *n, &req))
		return;
	if (req.op == CTL_OP_JOIN)
		req.ctl_request_u.join.order_high = 0;
	if (req.op == CTL_OP_JOIN2) {
		j->join.order_high = 0;
		for (unsigned i = 0; i < j->more.more_len; i++)
			j->more.more_val[i].kind |=
				j->more.more_val[i].kind == CTL_MORE_SEEN ||
						j->more.more_val[i].kind == CTL_MORE_JOINS
					? 1u << 31
					: 0;
	}
	if (req.op == CTL_OP_JOIN || req.op == CTL_OP_JOIN2) {
		xdrmem_create(&xdrs, (char *)tame, sizeof(tame), XDR_ENCODE);
		if (!xdr_ctl_request(&xdrs, &req))
			fz_bug("what was decoded is not encoded");
		*data = tame;
		*n = xdr_getpos(&xdrs);
	}
	xdr_free((xdrproc_t)xdr_ctl_request, (char *)&req);
}

/* ---- join tokens ---- */

/* False: a data server of an earlier input has the name. */
static bool token_make(void)
{
	token = (struct ds_reg_token){.tt_named = true, .tt_name = "by-token"};
	token_used = false;
	if (ds_reg_token_make(mds.m_dsc, 86400, &token))
		return false;
	ds_key_derive_token(token.tt_secret, token.tt_id, token_key);
	return true;
}

/* Every other claim becomes the one whose secret we know. */
static void token_tame(const uint8_t **data, size_t *n)
{
	static uint8_t tame[128];
	ctl_request req;
	XDR xdrs;

	if (!decodes(*data, *n, &req))
		return;
	if (req.op == CTL_OP_TOKEN2 && req.ctl_request_u.token2.claim[0] % 2 == 0) {
		ds_key_claim(token_secret, (uint8_t *)req.ctl_request_u.token2.claim);
		xdrmem_create(&xdrs, (char *)tame, sizeof(tame), XDR_ENCODE);
		if (!xdr_ctl_request(&xdrs, &req))
			fz_bug("what was decoded is not encoded");
		*data = tame;
		*n = xdr_getpos(&xdrs);
	}
	xdr_free((xdrproc_t)xdr_ctl_request, (char *)&req);
}

static void token_took(const uint8_t *claim, const ctl_token2_res *r)
{
	uint8_t ours[CTL_CLAIM_LEN];
	struct ds_key k;

	if (token_used && memcmp(token_user, claim, sizeof(token_user)) != 0)
		fz_bug("a token gives keys twice");
	token_used = true;
	memcpy(token_user, claim, sizeof(token_user));
	ds_key_claim(token_secret, ours);
	if (memcmp(ours, claim, sizeof(ours)) == 0 &&
	    (ds_key_open(&k, token_key, token_secret, (const uint8_t *)r->given.given_val,
			 (const uint8_t *)r->keys.keys_val) ||
	     memcmp(k.dk_uuid, r->ds_uuid, sizeof(k.dk_uuid)) != 0))
		fz_bug("keys that do not open");
}

static void token_judge(const ctl_request *req, const ctl_response *res)
{
	const ctl_token2_args *a = &req->ctl_request_u.token2;
	const ctl_token2_res *r = &res->result.ctl_result_u.token2;
	bool take = a->step == CTL_TOKEN_TAKE;

	if (req->op != CTL_OP_TOKEN2) {
		if (res->status != (req->op == CTL_OP_TOKEN ? CTL_NOTSUPP : CTL_INVAL))
			fz_bug("a token is good for another question");
		return;
	}
	/* Not every claim is a public key, and a data server may have taken the name. */
	if (res->status == CTL_INVAL || res->status == CTL_NAME_TAKEN)
		return;
	if (res->status == CTL_TOKEN_USED) {
		if (a->step == CTL_TOKEN_WHOSE || !token_used ||
		    memcmp(token_user, a->claim, sizeof(token_user)) == 0)
			fz_bug("a token that was not used by another one is refused");
		return;
	}
	if (res->status != CTL_OK || res->result.op != CTL_OP_TOKEN2 ||
	    strcmp(r->name, token.tt_name) != 0 ||
	    r->given.given_len != (take ? CTL_CLAIM_LEN : 0) ||
	    r->keys.keys_len != (take ? CTL_SEALED_KEYS : 0))
		fz_bug("another answer than TOKEN2's");
	if (take)
		token_took((const uint8_t *)a->claim, r);
}

/* Whether the connection goes on. */
static bool say_sealed(struct peer *p, const uint8_t *data, size_t n)
{
	struct xdr_out x;
	struct xdr_in in;
	ctl_request req;
	ctl_response res = {0};
	bool good;
	uint64_t counter;
	int64_t stat;

	if (p->p_token)
		token_tame(&data, &n);
	else
		join_tame(&data, &n);
	good = decodes(data, n, &req);
	put_call(p, &x, CTL_PROC_SEALED);
	seal(p, IS_CALL, 0, &x, data, n);
	counter = p->p_tx_last;
	send_record(p, &x);
	stat = wait_reply(p, &in);
	if (!good) {
		if (stat == RPC_A_SUCCESS)
			fz_bug("what does not decode was answered");
		return false;
	}
	if (stat < 0 && p->p_spoiled) {
		xdr_free((xdrproc_t)xdr_ctl_request, (char *)&req);
		return false;
	}
	if (stat != RPC_A_SUCCESS)
		fz_bug("a good message was not answered");
	unseal(p, IS_REPLY, counter, &in, (xdrproc_t)xdr_ctl_response, &res);
	if (p->p_token)
		token_judge(&req, &res);
	xdr_free((xdrproc_t)xdr_ctl_request, (char *)&req);
	xdr_free((xdrproc_t)xdr_ctl_response, (char *)&res);
	return true;
}

static void say_raw(struct peer *p, uint32_t proc, const uint8_t *data, size_t n, unsigned flip,
		    bool old)
{
	bool fresh = old && p->p_tx_last == 0; /* nothing came before it: it is good */
	struct xdr_out x;
	struct xdr_in in;

	if (fresh)
		join_tame(&data, &n);
	put_call(p, &x, proc);
	if (proc == CTL_PROC_SEALED && (flip || old)) {
		size_t at = x.x_len;

		if (old)
			p->p_tx_last = 0;
		seal(p, IS_CALL, 0, &x, data, n);
		if (flip)
			x.x_head[at + 4 + flip % (n + 24)] ^= 1;
	} else {
		xdr_put_opaque(&x, data, (uint32_t)n);
	}
	send_record(p, &x);
	if (wait_reply(p, &in) == RPC_A_SUCCESS && proc == CTL_PROC_SEALED && !fresh)
		fz_bug("a message that is not the peer's was answered");
}

static int order_run(void *arg, struct kv_txn *t)
{
	return lo_order_bar(mds.m_lo, t, *(uint32_t *)arg);
}

static void order_kick(void)
{
	lo_orders_wake(mds.m_lo);
}

/* An order for every data server that is known: it is sent when we have joined. */
static void order_make(uint32_t client)
{
	if (lo_orders_count(mds.m_lo) > 8)
		return;
	kv_run_sync(mds.m_kv, order_run, &client);
	fz_on_loop(order_kick);
}

static void against_mds(const uint8_t *data, size_t size, bool own_hello)
{
	struct peer *p = as_ds;
	bool on;

	answer = NULL;
	answer_len = 0;
	on = connect_mds(p, own_hello ? data : NULL, own_hello ? size : 0);
	while (on && size >= 3) {
		unsigned kind = data[0] % M_KINDS, flip = data[0] / M_KINDS;
		size_t n = (size_t)data[1] << 8 | data[2];

		data += 3;
		size -= 3;
		n = n < size ? n : size;
		switch (kind) {
		case M_SEALED:
			on = say_sealed(p, data, n);
			break;
		case M_TAMPERED:
			say_raw(p, CTL_PROC_SEALED, data, n, flip + 1, false);
			on = false;
			break;
		case M_OLD:
			say_raw(p, CTL_PROC_SEALED, data, n, 0, true);
			on = false;
			break;
		case M_OPAQUE:
			say_raw(p, CTL_PROC_SEALED, data, n, 0, false);
			on = false;
			break;
		case M_PROC:
			say_raw(p, flip, data, n, 0, false);
			on = flip > CTL_PROC_SEALED || flip == CTL_PROC_NULL;
			break;
		case M_ANSWER:
			answer = data;
			answer_len = n;
			break;
		default:
			order_make(flip);
			break;
		}
		data += n;
		size -= n;
	}
	close(p->p_fd);
	fz_settle();
}

/* ---- against the data server ---- */

static struct ds ds;

/* A source is on this machine, at a port that nobody answers. */
static void peer_tame(ctl_peer *p)
{
	for (unsigned i = 0; i < p->addrs.addrs_len; i++) {
		ctl_addr *a = &p->addrs.addrs_val[i];

		free(a->netid);
		free(a->uaddr);
		a->netid = strdup("tcp");
		a->uaddr = strdup("127.0.0.1.0.9");
	}
}

/* Numbers that would end the game for all inputs to come, or fill the store, are kept small. */
static void tame(ctl_request *req)
{
	ctl_orders_args *a = &req->ctl_request_u.orders;
	ctl_stat_args *s = &req->ctl_request_u.stat;

	if (req->op == CTL_OP_ORDERS) {
		a->instance_epoch = 7 - (a->instance_epoch & 1);
		for (unsigned i = 0; i < a->orders.orders_len; i++) {
			a->orders.orders_val[i].object.ino &= 0xf;
			a->orders.orders_val[i].object.fs &= 1;
			a->orders.orders_val[i].client &= 3;
			a->orders.orders_val[i].size &= 0xffffff;
			a->orders.orders_val[i].source.ino &= 0xf;
			a->orders.orders_val[i].source.fs &= 1;
			a->orders.orders_val[i].offset &= 0xffffff;
			a->orders.orders_val[i].from &= 0xffffff;
		}
	} else if (req->op == CTL_OP_STAT) {
		for (unsigned i = 0; i < s->objects.objects_len; i++)
			s->objects.objects_val[i].ino &= 0xf;
	} else if (req->op == CTL_OP_SEEK) {
		req->ctl_request_u.seek.object.ino &= 0xf;
	} else if (req->op == CTL_OP_SUM) {
		req->ctl_request_u.sum.object.ino &= 0xf;
		req->ctl_request_u.sum.object.fs &= 1;
		req->ctl_request_u.sum.offset &= 0xfff000;
		req->ctl_request_u.sum.length &= 0xffffff;
	} else if (req->op == CTL_OP_CHANGE) {
		ctl_change_args *g = &req->ctl_request_u.change;

		g->instance_epoch = 7 - (g->instance_epoch & 1);
		g->object.ino &= 0xf;
		g->source.ino &= 0xf;
		for (unsigned i = 0; i < g->spans.spans_len; i++) {
			g->spans.spans_val[i].offset &= 0xffffff;
			g->spans.spans_val[i].length &= 0xfffff;
			g->spans.spans_val[i].from &= 0xffffff;
		}
	} else if (req->op == CTL_OP_WATCH) {
		req->ctl_request_u.watch.instance_epoch =
			7 - (req->ctl_request_u.watch.instance_epoch & 1);
		req->ctl_request_u.watch.object.ino &= 0xf;
		req->ctl_request_u.watch.object.fs &= 1;
		req->ctl_request_u.watch.session &= 3;
	} else if (req->op == CTL_OP_FILL) {
		ctl_fill_args *f = &req->ctl_request_u.fill;

		f->instance_epoch = 7 - (f->instance_epoch & 1);
		f->object.ino &= 0xf;
		f->object.fs &= 1;
		f->size &= 0xffffff;
		for (unsigned i = 0; i < f->spans.spans_len; i++) {
			f->spans.spans_val[i].offset &= 0xffffff;
			f->spans.spans_val[i].length &= 0xfffff;
		}
		peer_tame(&f->source);
	} else if (req->op == CTL_OP_REBUILD) {
		ctl_rebuild_args *r = &req->ctl_request_u.rebuild;

		r->instance_epoch = 7 - (r->instance_epoch & 1);
		r->object.ino &= 0xf;
		r->object.fs &= 1;
		r->session &= 3;
		r->offset &= 0xffffff;
		r->length &= 0xffffff;
		r->epoch &= 0xffffff;
		peer_tame(&r->source);
	}
}

static void check_answer(const ctl_request *req, const ctl_response *res)
{
	const ctl_result *r = &res->result;

	if (res->status)
		return;
	if (r->op != req->op || req->op < CTL_OP_ORDERS || req->op > CTL_OP_SUM)
		fz_bug("an answer to another question");
	if (req->op == CTL_OP_ORDERS && r->ctl_result_u.orders.results.results_len !=
						req->ctl_request_u.orders.orders.orders_len)
		fz_bug("as many results as orders");
	if (req->op == CTL_OP_STAT &&
	    r->ctl_result_u.stat.stats.stats_len != req->ctl_request_u.stat.objects.objects_len)
		fz_bug("as many answers as objects");
}

/* LIST walks all folders of the store, half a second: one in five seconds, and always the first. */
static bool too_often(const ctl_request *req)
{
	static uint64_t last;
	uint64_t now = clock_mono_ns();

	if (req->op != CTL_OP_LIST)
		return false;
	if (last && now - last < 5000000000u)
		return true;
	last = now;
	return false;
}

static void against_ds(const uint8_t *data, size_t size)
{
	static uint8_t plain[MAX_MSG];
	struct peer *p = as_mds;

	while (size >= 3) {
		size_t n = (size_t)data[1] << 8 | data[2];
		ctl_response res = {0};
		struct xdr_out x;
		struct xdr_in in;
		ctl_request req;
		uint64_t counter;
		XDR xdrs;

		data += 3;
		size -= 3;
		n = n < size ? n : size;
		if (decodes(data, n, &req) && too_often(&req)) {
			xdr_free((xdrproc_t)xdr_ctl_request, (char *)&req);
		} else if (req.op) { /* 0: it did not decode */
			tame(&req);
			xdrmem_create(&xdrs, (char *)plain, sizeof(plain), XDR_ENCODE);
			if (!xdr_ctl_request(&xdrs, &req))
				fz_bug("what was decoded does not encode");
			put_call(p, &x, CTL_PROC_SEALED);
			seal(p, IS_CALL, 0, &x, plain, xdr_getpos(&xdrs));
			counter = p->p_tx_last;
			send_record(p, &x);
			if (wait_reply(p, &in) != RPC_A_SUCCESS)
				fz_bug("the data server did not answer");
			unseal(p, IS_REPLY, counter, &in, (xdrproc_t)xdr_ctl_response, &res);
			check_answer(&req, &res);
			xdr_free((xdrproc_t)xdr_ctl_response, (char *)&res);
			xdr_free((xdrproc_t)xdr_ctl_request, (char *)&req);
		}
		data += n;
		size -= n;
	}
}

static struct sockaddr_in ds_mds; /* where the data server looks for its MDS */

static void start_control(void)
{
	if (ds_control_start(&ds, (struct sockaddr *)&ds_mds, sizeof(ds_mds), false))
		fz_bug("no control connection");
}

static void answer_hello(struct peer *p, uint32_t xid, struct xdr_in *x)
{
	static const uint8_t nonce[32] = "the other nonce";
	const uint8_t *id, *theirs;
	struct xdr_out out;

	xdr_take(x, 32);
	if (xdr_get_u32(x) != NEW_PROTOCOL)
		fz_bug("another protocol");
	id = xdr_get_fixed(x, 16);
	theirs = xdr_get_fixed(x, 32);
	if (!theirs || xdr_left(x))
		fz_bug("no HELLO");
	p->p_protocol = NEW_PROTOCOL;
	derive(p, id, theirs, nonce);
	put_reply(&out, xid);
	xdr_put_u32(&out, NEW_PROTOCOL | 1 * CTL_HELLO_FS);
	xdr_put_fixed(&out, nonce, 32);
	send_record(p, &out);
}

static void answer_join(struct peer *p, uint32_t xid, struct xdr_in *x)
{
	ctl_response res = {.result.op = CTL_OP_JOIN2};
	ctl_join_res *j = &res.result.ctl_result_u.join2.join;
	ctl_request req = {0};
	struct xdr_out out;
	uint8_t plain[256];
	uint64_t counter;
	XDR xdrs;

	xdr_take(x, 32);
	counter = unseal(p, IS_CALL, 0, x, (xdrproc_t)xdr_ctl_request, &req);
	if (req.op != CTL_OP_JOIN2)
		fz_bug("no JOIN");
	memset(j->cluster, 7, 16);
	j->fs = j->ds_id = 1;
	j->instance_epoch = 7;
	j->lease_ms = 86400000;
	xdrmem_create(&xdrs, (char *)plain, sizeof(plain), XDR_ENCODE);
	xdr_ctl_response(&xdrs, &res);
	put_reply(&out, xid);
	seal(p, IS_REPLY, counter, &out, plain, xdr_getpos(&xdrs));
	send_record(p, &out);
	xdr_free((xdrproc_t)xdr_ctl_request, (char *)&req);
}

static void start_ds(void)
{
	struct sockaddr_in *sin = &ds_mds;
	struct ds_store_opts opts = {.so_name = "fuzz", .so_tomb_keep_ms = 1000};
	socklen_t len = sizeof(*sin);
	char err[256], path[160];
	struct ds_control_state cs;
	struct xdr_in x;
	uint32_t xid;
	int fd;

	snprintf(path, sizeof(path), "%s/ds", fz_dir);
	opts.so_dir = path;
	ds_store_metrics_init();
	if (ds_store_open(&ds.d_store, &opts, err, sizeof(err)))
		fz_bug(err);
	memcpy(ds.d_keys.ks_cluster, fz_key, 32);
	if (ds_keys_start(&ds.d_keys, ds.d_store, err, sizeof(err)))
		fz_bug(err);
	ds.d_loops = &fz_loop;
	ds.d_nloops = 1;
	ds.d_heartbeat_ms = ds.d_lease_ms = 86400000;
	sin->sin_family = AF_INET;
	sin->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(fd, (struct sockaddr *)sin, sizeof(*sin)) || listen(fd, 1) ||
	    getsockname(fd, (struct sockaddr *)sin, &len))
		fz_bug("cannot listen");
	if (ds_pull_start(&ds))
		fz_bug("no threads");
	fz_on_loop(start_control);
	as_mds->p_fd = accept(fd, NULL, NULL);
	as_mds->p_dir = TO_DS;
	patience(as_mds, 8000);
	for (int k = 0; k < 2; k++) {
		if (!read_record(as_mds, &x))
			fz_bug("the data server went away");
		xid = xdr_get_u32(&x);
		xdr_get_u32(&x);
		if (k == 0)
			answer_hello(as_mds, xid, &x);
		else
			answer_join(as_mds, xid, &x);
	}
	do {
		usleep(1000);
		ds_control_state(&ds, 0, &cs);
	} while (!cs.cs_joined);
}

/* ---- a list of instances ---- */

static void list_check(const struct ctl_instances *ci)
{
	static struct ctl_instances again;
	ctl_more more[CTL_INSTANCES_PARTS];
	uint8_t back[CTL_INSTANCE_LEN];
	struct sockaddr_storage ss;
	char text[64], err[256];
	socklen_t len;

	if (ci->ci_n > CTL_INSTANCES_MAX)
		fz_bug("a list that is too long");
	for (unsigned i = 0; i < ci->ci_n; i++) {
		if (!ctl_instance_addr(ci->ci_addr[i], &ss, &len) || !ctl_instance_of(&ss, back) ||
		    memcmp(back, ci->ci_addr[i], sizeof(back)))
			fz_bug("an address that is none");
		rpc_addr_text((struct sockaddr *)&ss, text, sizeof(text));
		if (ctl_instances_parse("x", text, 1, &again, err, sizeof(err)) ||
		    again.ci_n != 1 || memcmp(again.ci_addr[0], back, sizeof(back)))
			fz_bug("an address that is not read as it is written");
	}
	if (ctl_instances_get(more, ctl_instances_put(ci, more), &again) ||
	    again.ci_n != ci->ci_n || memcmp(again.ci_addr, ci->ci_addr, sizeof(back) * ci->ci_n))
		fz_bug("a list that does not come back");
}

/* Entries: a byte of kind, one of length, bytes. */
static void against_list(const uint8_t *data, size_t size)
{
	static struct ds_learned learned;
	static struct ctl_instances ci;
	ctl_more more[CTL_MORE_MAX];
	char *text = strndup((const char *)data, size);
	unsigned n = 0;
	size_t len;

	if (text && !ds_learned_parse(text, &learned) && learned.le_n > LEARNED_MAX)
		fz_bug("a file that is too long");
	free(text);
	for (; size >= 2 && n < CTL_MORE_MAX; n++, data += len, size -= len) {
		more[n].kind = data[0];
		len = data[1];
		data += 2;
		size -= 2;
		len = len < size ? len : size;
		more[n].data.data_len = (unsigned)len;
		more[n].data.data_val = (char *)data;
	}
	if (!ctl_instances_get(more, n, &ci))
		list_check(&ci);
}

#define AS_LIST 0xf0 /* the first byte of such an input */

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	as_ds = calloc(1, sizeof(*as_ds));
	as_mds = calloc(1, sizeof(*as_mds));
	fz_start("fuzz_ctl", false);
	start_ds();
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 4 || size > 8192)
		return 0;
	if (data[0] == AS_LIST) {
		against_list(data + 1, size - 1);
		return 0;
	}
	as_ds->p_token = (data[0] & 11) == 8;
	as_ds->p_protocol = data[0] & 4 || as_ds->p_token ? NEW_PROTOCOL : OLD_PROTOCOL;
	if (as_ds->p_token && !token_make())
		return 0;
	if (data[0] & 1)
		against_ds(data + 1, size - 1);
	else
		against_mds(data + 1, size - 1, data[0] & 2);
	return 0;
}
