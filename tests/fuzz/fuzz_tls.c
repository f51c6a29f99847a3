/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_tls.c - libFuzzer target: the server's side of TLS on a connection, from the first byte
 * behind the probe.
 *
 * An input is a program. A real client, with the cluster's key or without, makes the bytes; steps
 * say how much of them arrives at a time, what is changed, lost, sent twice or put in between, and
 * what the client does once it is up: calls, key updates, its close. What is checked beyond memory:
 * the server never gives out bytes that the client did not encrypt, its buffers keep their bounds,
 * and a connection that was left alone works.
 */
#include "base/log.h"
#include "proto/rpc_int.h"
#include "tests/unit/tls_cert.h"
#include <openssl/err.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MOST_STEPS 64
#define MARK	   0x7e

static struct loop *loop;
static struct rpc_loop *rl;
static struct rpc_tls_ctx *ctx;
static SSL_CTX *client_ctx;
static const uint8_t psk[RPC_TLS_PSK_LEN] = "the fuzzers' key";

struct run {
	struct rpc_conn c;
	SSL *cl;
	BIO *in, *out; /* the client's */
	bool hurt;     /* something was done to the bytes */
	bool over;
	size_t sent, got; /* plaintext of the client's, and what came out of the server */
};

static int use_psk(SSL *ssl, const EVP_MD *md, const unsigned char **id, size_t *len,
		   SSL_SESSION **out)
{
	static const uint8_t suite[2] = {0x13, 0x01};
	SSL_SESSION *s = SSL_SESSION_new();

	(void)md;
	*id = (const unsigned char *)"weft";
	*len = 4;
	SSL_SESSION_set1_master_key(s, psk, sizeof(psk));
	SSL_SESSION_set_cipher(s, SSL_CIPHER_find(ssl, suite));
	SSL_SESSION_set_protocol_version(s, TLS1_3_VERSION);
	*out = s;
	return 1;
}

static void setup(void)
{
	log_set_level(LOG_L_ERROR);
	if (loop_create(&loop, 256))
		abort();
	rl = rpc_loop_get(loop);
	ctx = cert_context(psk);
	client_ctx = SSL_CTX_new(TLS_client_method());
	SSL_CTX_set_alpn_protos(client_ctx, (const unsigned char *)"\6sunrpc", 7);
}

/* What the service would do with plaintext: look at it and let it go. */
static void drain(struct run *r)
{
	struct rpc_rx *x = &r->c.rcn_rx;

	if (!x->x_rx)
		return;
	for (; x->x_r < x->x_w; x->x_r++, r->got++)
		if (x->x_rx->b_data[x->x_r] != MARK)
			abort();
	if (r->got > r->sent)
		abort();
}

/* Everything the server has to send arrives. True: its input waited for that. */
static bool server_out(struct run *r)
{
	bool again = false;
	const void *p;
	size_t n;

	while (!r->over) {
		r->over = rpc_tls_out(&r->c, &p, &n);
		if (r->over || !n)
			break;
		if (n > 160 * 1024)
			abort();
		BIO_write(r->in, p, (int)n);
		again |= rpc_tls_sent(&r->c, n);
	}
	return again;
}

/* Received: the server takes as much as it has room for, and works on it. */
static void server_in(struct run *r, const uint8_t *p, size_t n)
{
	while (n && !r->over) {
		size_t room;
		void *to;
		bool again;
		int rc;

		if (!rpc_tls_takes(&r->c) || rpc_tls_space(&r->c, &to, &room) || !room)
			abort();
		room = room < n ? room : n;
		memcpy(to, p, room);
		rpc_tls_got(&r->c, room);
		p += room;
		n -= room;
		do {
			rc = rpc_tls_pull(&r->c);
			drain(r);
			again = server_out(r);
		} while (rc > 0 || (!rc && again));
		r->over |= rc < 0;
		if (rc < 0 && !r->hurt && rc != -ECONNRESET)
			abort();
	}
}

static void client_work(struct run *r)
{
	uint8_t got[4096];
	int n;

	ERR_clear_error();
	if (!SSL_is_init_finished(r->cl))
		SSL_do_handshake(r->cl);
	else
		while ((n = SSL_read(r->cl, got, sizeof(got))) > 0)
			while (n)
				if (got[--n] != MARK)
					abort();
	ERR_clear_error();
}

/* n bytes of what the client has to send, done to as how says. */
static void deliver(struct run *r, size_t n, uint8_t how, uint8_t arg)
{
	uint8_t buf[70000];
	int have = BIO_read(r->out, buf, (int)(n < sizeof(buf) ? n : sizeof(buf)));

	if (have <= 0)
		return;
	r->hurt |= how > 0;
	switch (how) {
	case 1:
		buf[arg % have] ^= (uint8_t)(1 + arg);
		break;
	case 2:
		return; /* lost */
	case 3:
		server_in(r, buf, (size_t)have); /* twice */
		break;
	default:
		break;
	}
	server_in(r, buf, (size_t)have);
}

static void client_send(struct run *r, size_t n)
{
	static uint8_t marks[65536];

	memset(marks, MARK, sizeof(marks));
	if (!SSL_is_init_finished(r->cl))
		return;
	if (SSL_write(r->cl, marks, (int)(n % sizeof(marks) + 1)) > 0)
		r->sent += n % sizeof(marks) + 1;
	ERR_clear_error();
}

static void out_free(struct rpc_out *o)
{
	xdr_out_free(o->o_x);
	free(o->o_x);
	free(o);
}

static void server_send(struct run *r, size_t n)
{
	struct rpc_out *o = calloc(1, sizeof(*o));
	uint8_t *p;

	*o = (struct rpc_out){
		.o_x = calloc(1, sizeof(struct xdr_out)), .o_free = out_free, .o_reply = true};
	xdr_out_init(o->o_x, 1 << 20);
	p = xdr_reserve(o->o_x, n + 1);
	memset(p, MARK, n + 1);
	*r->c.rcn_outs_end = o;
	r->c.rcn_outs_end = &o->o_next;
	r->c.rcn_queued += rpc_out_len(o);
	server_out(r);
}

static void step(struct run *r, uint8_t op, uint8_t a, uint8_t b)
{
	size_t n = (size_t)a << (b & 7);

	switch (op % 8) {
	case 0:
	case 1:
		client_work(r);
		deliver(r, n + 1, op & 8 ? 1 + (b >> 3) % 3 : 0, b);
		break;
	case 2:
		client_send(r, n);
		break;
	case 3:
		if (SSL_is_init_finished(r->cl))
			SSL_key_update(r->cl, a & 1 ? SSL_KEY_UPDATE_REQUESTED
						    : SSL_KEY_UPDATE_NOT_REQUESTED);
		client_send(r, b);
		break;
	case 4:
		server_send(r, n);
		client_work(r);
		break;
	case 5: /* a record of somebody else's */
		r->hurt = true;
		server_in(r, (const uint8_t[]){a, 3, 3, 0, 4, b, a, b, a}, 9);
		break;
	case 6:
		if (SSL_is_init_finished(r->cl))
			SSL_shutdown(r->cl);
		break;
	case 7:
		client_work(r);
		deliver(r, 70000, 0, 0);
		break;
	}
	ERR_clear_error();
}

static void begin(struct run *r, bool with_psk)
{
	r->c.rcn_loop = loop;
	r->c.rcn_rl = rl;
	r->c.rcn_fd = -1;
	r->c.rcn_refs = 1;
	r->c.rcn_svc.rs_tls = ctx;
	r->c.rcn_outs_end = &r->c.rcn_outs;
	rpc_rx_init(&r->c.rcn_rx, &rl->rl_pool, 1 << 20);
	SSL_CTX_set_psk_use_session_callback(client_ctx, with_psk ? use_psk : NULL);
	r->cl = SSL_new(client_ctx);
	r->in = BIO_new(BIO_s_mem());
	r->out = BIO_new(BIO_s_mem());
	SSL_set_bio(r->cl, r->in, r->out);
	SSL_set_connect_state(r->cl);
	if (with_psk)
		SSL_set_ciphersuites(r->cl, "TLS_AES_128_GCM_SHA256");
	if (rpc_tls_begin(&r->c))
		abort();
	rpc_tls_clear_sent(&r->c);
}

static void end(struct run *r)
{
	if (!r->over)
		rpc_tls_bye(&r->c);
	rpc_tls_free(&r->c);
	rpc_rx_free(&r->c.rcn_rx);
	while (r->c.rcn_outs) {
		struct rpc_out *o = r->c.rcn_outs;

		r->c.rcn_outs = o->o_next;
		o->o_free(o);
	}
	SSL_free(r->cl);
	ERR_clear_error();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct run r;
	unsigned steps = 0;

	if (!loop)
		setup();
	if (!size)
		return 0;
	memset(&r, 0, sizeof(r));
	begin(&r, data[0] & 1);
	if (data[0] & 2) { /* bytes as they are */
		r.hurt = true;
		server_in(&r, data + 1, size - 1);
		end(&r);
		return 0;
	}
	if (data[0] & 4) /* begin behind the handshake */
		for (int i = 0; i < 4 && !r.over; i++) {
			client_work(&r);
			deliver(&r, 70000, 0, 0);
		}
	for (size_t at = 1; at + 3 <= size && steps++ < MOST_STEPS && !r.over; at += 3)
		step(&r, data[at], data[at + 1], data[at + 2]);
	if (!r.hurt && !r.over) {
		for (int i = 0; i < 4 && !r.over; i++) {
			client_work(&r);
			deliver(&r, 70000, 0, 0);
			client_work(&r);
			deliver(&r, 70000, 0, 0);
		}
		while (!r.over && BIO_ctrl_pending(r.out))
			deliver(&r, 70000, 0, 0);
		if (r.got != r.sent || (r.c.rcn_tls == RPC_TLS_NONE && !r.over))
			abort();
	}
	end(&r);
	return 0;
}
