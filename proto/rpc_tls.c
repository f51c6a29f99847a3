/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_tls.c - TLS on one connection (RFC 9289): handshake, decrypting, encrypting, closing. See
 * rpc_tls.h.
 *
 * Bytes from the wire wait in t_in for the library, and bytes for the wire wait in t_out for the
 * socket. Both are bounded. The connection's own input and output run the library, which never
 * waits. The library decrypts straight to where the record cutter (rpc_buf.c) wants the next bytes,
 * so that a bulk payload still lands on its page.
 *
 * rcn_tls changes from NONE when the handshake is complete. No call is ever under way across that
 * moment: the probe is accepted only from a peer that has called nothing but NULL. So a call was
 * received under the protection that rpc_conn_tls() reports while it is served, and bytes that an
 * attacker on the path put in front of the handshake do not pass for the client's.
 */
#include "base/log.h"
#include "proto/rpc_int.h"
#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <stdatomic.h>
#include <stdio.h>

#define TLS_PLAIN 16384u /* RFC 8446 section 5.1: most bytes in a TLS record */
/* a full record, and an answer to a key update in front of it */
#define TLS_ROOM     (TLS_PLAIN + 2048u)
#define TLS_IN_SMALL 16384u
#define TLS_IN_BIG   131072u
#define TLS_OUT	     131072u
#define TLS_HEAD     3u /* type and version: enough to tell a handshake from something else */
#define HANDSHAKE_MS 10000u
/* A step may take two milliseconds of public-key work: other connections come in between. */
#define SHAKES_A_TURN 2u

struct rpc_tls_conn {
	SSL *t_ssl;
	struct rpc_tls_ctx *t_ctx;
	unsigned t_gen;
	bool t_client; /* we connected; both sides prove t_proof */
	struct rpc_tls_proof t_proof;
	bool t_clear; /* data in the clear is still to be sent */
	bool t_begun; /* the peer's first bytes are a handshake's */
	bool t_up;
	bool t_want_write; /* the library cannot go on before t_out has room */
	bool t_broken;	   /* the library must not be called any more */
	bool t_big;	   /* the last receive was a full one */
	bool t_said;	   /* t_out has data of the connection's, not only of TLS */
	struct rpc_buf *t_in, *t_out;
	uint32_t t_in_r, t_in_w, t_out_r, t_out_w;
	struct rpc_conn *t_conn;
	struct loop_timer t_timer;
};

static struct metric *m_up, *m_failed;
static _Atomic int64_t open_now;
static BIO_METHOD *bio_method;

static double open_tls(void *arg)
{
	(void)arg;
	return (double)atomic_load(&open_now);
}

/* ---- between the library and the buffers ---- */

static int bio_read(BIO *b, char *to, size_t n, size_t *got)
{
	struct rpc_tls_conn *t = BIO_get_data(b);
	size_t have = t->t_in_w - t->t_in_r;

	BIO_clear_retry_flags(b);
	if (!have) {
		BIO_set_retry_read(b);
		return 0;
	}
	*got = have < n ? have : n;
	memcpy(to, t->t_in->b_data + t->t_in_r, *got);
	t->t_in_r += (uint32_t)*got;
	return 1;
}

static int bio_write(BIO *b, const char *from, size_t n, size_t *put)
{
	struct rpc_tls_conn *t = BIO_get_data(b);
	size_t room;

	BIO_clear_retry_flags(b);
	if (!t->t_out)
		t->t_out = rpc_buf_new(&t->t_conn->rcn_rl->rl_pool, TLS_OUT);
	room = t->t_out ? rpc_buf_cap(t->t_out) - t->t_out_w : 0;
	if (!room) {
		BIO_set_retry_write(b);
		return 0;
	}
	*put = room < n ? room : n;
	memcpy(t->t_out->b_data + t->t_out_w, from, *put);
	t->t_out_w += (uint32_t)*put;
	return 1;
}

static long bio_ctrl(BIO *b, int cmd, long num, void *p)
{
	(void)b;
	(void)num;
	(void)p;
	return cmd == BIO_CTRL_FLUSH;
}

/* Runs before main: metrics must exist before any thread runs. */
__attribute__((constructor)) static void tls_init(void)
{
	m_up = metric_counter("weft_rpc_tls_handshakes_total", "TLS handshakes completed.", "");
	m_failed = metric_counter("weft_rpc_tls_failed_total",
				  "TLS connections ended by a failed handshake or broken records.",
				  "");
	metric_gauge("weft_rpc_tls_connections", "TCP connections open over TLS.", "", open_tls,
		     NULL);
	bio_method = BIO_meth_new(BIO_TYPE_SOURCE_SINK | BIO_get_new_index(), "weft");
	if (!bio_method || !BIO_meth_set_read_ex(bio_method, bio_read) ||
	    !BIO_meth_set_write_ex(bio_method, bio_write) ||
	    !BIO_meth_set_ctrl(bio_method, bio_ctrl))
		log_fatal("rpc: out of memory");
}

/* ---- the log ---- */

static const char *peer_text(const struct rpc_conn *c, char out[64])
{
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&c->rcn_peer;
	const struct sockaddr_in *in = (const struct sockaddr_in *)&c->rcn_peer;
	bool v6 = c->rcn_peer.ss_family == AF_INET6;
	char host[INET6_ADDRSTRLEN] = "?";

	inet_ntop(c->rcn_peer.ss_family, v6 ? (const void *)&in6->sin6_addr : &in->sin_addr, host,
		  sizeof(host));
	snprintf(out, 64, v6 ? "[%s]:%u" : "%s:%u", host,
		 ntohs(v6 ? in6->sin6_port : in->sin_port));
	return out;
}

/* RFC 9289 section 6.1: the audit log of security modes. */
void rpc_tls_log_clear(struct rpc_conn *c)
{
	char peer[64];

	log_info("rpc: %s calls in the clear", peer_text(c, peer));
}

static void log_up(struct rpc_conn *c, const char *how)
{
	struct rpc_tls_conn *t = c->rcn_t;
	X509 *cert = SSL_get0_peer_certificate(t->t_ssl);
	char peer[64], issuer[256] = "";
	char *serial = NULL;
	BIGNUM *bn;

	if (!cert) {
		log_info("rpc: %s calls over TLS (%s), %s", peer_text(c, peer),
			 SSL_get_cipher_name(t->t_ssl), how);
		return;
	}
	/* Section 5.2.1: serial number and issuer identify the client. */
	bn = ASN1_INTEGER_to_BN(X509_get0_serialNumber(cert), NULL);
	serial = bn ? BN_bn2hex(bn) : NULL;
	X509_NAME_oneline(X509_get_issuer_name(cert), issuer, sizeof(issuer));
	log_info("rpc: %s calls over TLS (%s), certificate %s of \"%s\"", peer_text(c, peer),
		 SSL_get_cipher_name(t->t_ssl), serial ? serial : "?", issuer);
	OPENSSL_free(serial);
	BN_free(bn);
}

static int broken(struct rpc_conn *c, const char *what)
{
	struct rpc_tls_conn *t = c->rcn_t;
	unsigned long e = ERR_peek_error();
	const char *why = ERR_reason_error_string(e);
	long verify = SSL_get_verify_result(t->t_ssl);
	char peer[64];

	metric_add(m_failed, 1);
	if (t->t_client || rpc_tls_may_log(t->t_ctx))
		log_info("rpc: %s: %s%s%s%s%s", peer_text(c, peer), what, why ? ": " : "",
			 why ? why : "", verify != X509_V_OK ? ": " : "",
			 verify != X509_V_OK ? X509_verify_cert_error_string(verify) : "");
	ERR_clear_error();
	t->t_broken = true;
	return -EPROTO;
}

/* ---- turns ---- */

static void handshake_later(struct loop_msg *m)
{
	struct rpc_conn *c = caa_container_of(m, struct rpc_conn, rcn_later_msg);

	c->rcn_later = false;
	if (!c->rcn_dead)
		rpc_conn_input(c);
	rpc_conn_put(c);
}

/* Says whether another step of a handshake may run in this turn of the loop. If not, the
 * connection's input goes on in the next turn. */
static bool handshake_turn(struct rpc_conn *c)
{
	struct rpc_loop *rl = c->rcn_rl;
	uint64_t now = loop_now_ns(c->rcn_loop);

	if (rl->rl_shake_ns != now) {
		rl->rl_shake_ns = now;
		rl->rl_shakes = 0;
	}
	if (rl->rl_shakes++ < SHAKES_A_TURN)
		return true;
	c->rcn_later = true;
	c->rcn_later_msg.m_run = handshake_later;
	c->rcn_refs++;
	loop_post(c->rcn_loop, &c->rcn_later_msg);
	return false;
}

/* ---- life ---- */

static void handshake_late(struct loop_timer *timer)
{
	struct rpc_conn *c = caa_container_of(timer, struct rpc_tls_conn, t_timer)->t_conn;

	ERR_clear_error();
	rpc_conn_fail(c, broken(c, "the TLS handshake took too long"));
}

/* Takes over what was received behind the probe. It is part of the handshake, or handshake()
 * refuses it. */
static int take_rest(struct rpc_conn *c)
{
	struct rpc_tls_conn *t = c->rcn_t;
	const uint8_t *p;
	size_t n = rpc_rx_rest(&c->rcn_rx, &p);

	if (n) {
		t->t_in = rpc_buf_new(&c->rcn_rl->rl_pool, n);
		if (!t->t_in)
			return -ENOMEM;
		memcpy(t->t_in->b_data, p, n);
		t->t_in_w = (uint32_t)n;
	}
	rpc_rx_free(&c->rcn_rx);
	return 0;
}

/* With proof, we are the client. */
static int tls_begin(struct rpc_conn *c, const struct rpc_tls_proof *proof)
{
	struct rpc_tls_conn *t = calloc(1, sizeof(*t));
	BIO *bio = BIO_new(bio_method);

	if (!t || !bio)
		goto no_memory;
	t->t_conn = c;
	if (proof) {
		t->t_client = t->t_begun = true;
		t->t_proof = *proof;
		t->t_ssl = rpc_tls_connect_new(&t->t_proof);
	} else {
		t->t_ctx = c->rcn_svc.rs_tls;
		t->t_ssl = rpc_tls_accept_new(t->t_ctx, &t->t_gen);
	}
	if (!t->t_ssl)
		goto no_memory;
	BIO_set_data(bio, t);
	BIO_set_init(bio, 1);
	SSL_set_bio(t->t_ssl, bio, bio);
	c->rcn_t = t;
	t->t_timer.t_fire = handshake_late;
	loop_timer_start(c->rcn_loop, &t->t_timer, HANDSHAKE_MS);
	return take_rest(c);
no_memory:
	BIO_free(bio);
	free(t);
	return -ENOMEM;
}

int rpc_tls_begin(struct rpc_conn *c)
{
	int rc = tls_begin(c, NULL);

	if (!rc)
		c->rcn_t->t_clear = true;
	return rc;
}

/* ---- our own probe ---- */

struct probe {
	struct rpc_out p_out;
	struct xdr_out p_x;
};

static void probe_free(struct rpc_out *o)
{
	struct probe *p = caa_container_of(o, struct probe, p_out);

	xdr_out_free(&p->p_x);
	free(p);
}

int rpc_tls_probe(struct rpc_conn *c, uint32_t prog, uint32_t vers)
{
	struct probe *p = calloc(1, sizeof(*p));
	const uint32_t words[] = {0, c->rcn_xid,    0, 2, prog, vers, 0, RPC_AUTH_TLS,
				  0, RPC_AUTH_NONE, 0};

	if (!p)
		return -ENOMEM;
	p->p_out = (struct rpc_out){.o_x = &p->p_x, .o_free = probe_free, .o_last_clear = true};
	xdr_out_init(&p->p_x, sizeof(words));
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		xdr_put_u32(&p->p_x, words[i]);
	if (p->p_x.bad) {
		probe_free(&p->p_out);
		return -ENOMEM;
	}
	rpc_out_mark(&p->p_x);
	c->rcn_probing = true;
	rpc_conn_out(c, &p->p_out);
	return 0;
}

/* RFC 9289 section 4.1: wanted is an accepted reply whose verifier says STARTTLS, whatever its
 * status. */
int rpc_tls_probed(struct rpc_conn *c, const struct rpc_record *r,
		   const struct rpc_tls_proof *proof)
{
	struct xdr_in x;
	const uint8_t *token;
	uint32_t len;
	int rc;

	xdr_in_init(&x, r->r_data, r->r_len);
	if (xdr_get_u32(&x) != c->rcn_xid || xdr_get_u32(&x) != 1 || xdr_get_u32(&x) ||
	    xdr_get_u32(&x) != RPC_AUTH_NONE)
		return -EPROTO;
	token = xdr_get_opaque(&x, RPC_MAX_AUTH, &len);
	if (!token || len != 8 || memcmp(token, "STARTTLS", 8) || !proof)
		return -EPROTO;
	c->rcn_xid++;
	c->rcn_probing = false;
	rc = tls_begin(c, proof);
	if (!rc && c->rcn_t->t_in)
		rc = -EPROTO; /* the server spoke before the handshake */
	if (!rc)
		c->rcn_t->t_clear = c->rcn_outs != NULL;
	return rc;
}

void rpc_tls_free(struct rpc_conn *c)
{
	struct rpc_tls_conn *t = c->rcn_t;

	if (!t)
		return;
	c->rcn_t = NULL;
	loop_timer_stop(c->rcn_loop, &t->t_timer);
	if (t->t_up)
		atomic_fetch_sub(&open_now, 1);
	SSL_free(t->t_ssl);
	OPENSSL_cleanse(&t->t_proof, sizeof(t->t_proof));
	if (t->t_in)
		rpc_buf_put(t->t_in);
	if (t->t_out)
		rpc_buf_put(t->t_out);
	free(t);
}

/* Sends what can leave at once: an alert, or close_notify (RFC 8446 section 6.1). Behind a send
 * that is under way it would land in the middle of a record. What is left of an answer does not
 * leave while the store is not held, and nothing leaves behind it. */
void rpc_tls_bye(struct rpc_conn *c)
{
	struct rpc_tls_conn *t = c->rcn_t;

	if (c->rcn_sending || t->t_clear || (t->t_said && !store_lease_live(c->rcn_rl->rl_lease)))
		return;
	if (t->t_up && !t->t_broken)
		SSL_shutdown(t->t_ssl);
	ERR_clear_error();
	t->t_broken = true;
	if (t->t_out_w > t->t_out_r)
		(void)!send(c->rcn_fd, t->t_out->b_data + t->t_out_r, t->t_out_w - t->t_out_r,
			    MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* ---- receiving ---- */

bool rpc_tls_takes(const struct rpc_conn *c)
{
	return !c->rcn_t->t_want_write && !c->rcn_later;
}

int rpc_tls_space(struct rpc_conn *c, void **p, size_t *n)
{
	struct rpc_tls_conn *t = c->rcn_t;

	/* The library keeps the part of a record that it has seen. So bytes are left here only
	 * before the handshake has begun. */
	if (t->t_in && t->t_in_r == t->t_in_w && (rpc_buf_cap(t->t_in) >= TLS_IN_BIG) != t->t_big) {
		rpc_buf_put(t->t_in);
		t->t_in = NULL;
	}
	if (!t->t_in || t->t_in_r == t->t_in_w)
		t->t_in_r = t->t_in_w = 0;
	if (!t->t_in)
		t->t_in = rpc_buf_new(&c->rcn_rl->rl_pool, t->t_big ? TLS_IN_BIG : TLS_IN_SMALL);
	if (!t->t_in)
		return -ENOMEM;
	*p = t->t_in->b_data + t->t_in_w;
	*n = rpc_buf_cap(t->t_in) - t->t_in_w;
	return 0;
}

void rpc_tls_got(struct rpc_conn *c, size_t n)
{
	struct rpc_tls_conn *t = c->rcn_t;

	t->t_in_w += (uint32_t)n;
	t->t_big = t->t_in_w >= TLS_IN_SMALL;
}

static int come_up(struct rpc_conn *c)
{
	struct rpc_tls_conn *t = c->rcn_t;
	bool cert =
		SSL_get0_peer_certificate(t->t_ssl) && SSL_get_verify_result(t->t_ssl) == X509_V_OK;
	/* No sessions are kept, so the cluster's key was proved. */
	bool peer = SSL_session_reused(t->t_ssl);

	if (t->t_client && !peer)
		return broken(c, "the data server does not prove the cluster's key");
	loop_timer_stop(c->rcn_loop, &t->t_timer);
	t->t_up = true;
	atomic_fetch_add(&open_now, 1);
	c->rcn_tls = cert || peer ? RPC_TLS_MUTUAL : RPC_TLS_ON;
	metric_add(m_up, 1);
	if (!t->t_client)
		log_up(c, peer ? "with the cluster's key" : "without a certificate");
	else if (c->rcn_client)
		rpc_client_secured(c->rcn_client);
	return 1;
}

/* Returns 1 when the handshake is complete. */
static int handshake(struct rpc_conn *c)
{
	struct rpc_tls_conn *t = c->rcn_t;
	const uint8_t *p = t->t_in ? t->t_in->b_data + t->t_in_r : NULL;
	size_t have = t->t_in_w - t->t_in_r;
	int rc;

	if (!t->t_begun) {
		/* RFC 9289 section 5.1.1: drop what comes between probe and handshake, without an
		 * answer. */
		if ((have > 0 && p[0] != SSL3_RT_HANDSHAKE) ||
		    (have > 1 && p[1] != SSL3_VERSION_MAJOR)) {
			ERR_clear_error();
			return broken(c, "bytes that are no TLS handshake behind the probe");
		}
		if (have < TLS_HEAD)
			return 0;
		t->t_begun = true;
	}
	if (c->rcn_later || !handshake_turn(c))
		return 0;
	ERR_clear_error();
	rc = SSL_do_handshake(t->t_ssl);
	if (rc == 1)
		return come_up(c);
	switch (SSL_get_error(t->t_ssl, rc)) {
	case SSL_ERROR_WANT_WRITE:
		t->t_want_write = true;
		return 0;
	case SSL_ERROR_WANT_READ:
		return 0;
	default:
		return broken(c, "the TLS handshake failed");
	}
}

int rpc_tls_pull(struct rpc_conn *c)
{
	struct rpc_tls_conn *t = c->rcn_t;
	char peer[64];
	size_t n, got;
	bool all;
	void *p;
	int rc;

	if (!t->t_up) {
		rc = handshake(c);
		if (rc <= 0)
			return rc;
	}
	if (c->rcn_dead)
		return 0;
	if (!t->t_client && !rpc_tls_still_trusted(t->t_ctx, t->t_ssl, &t->t_gen)) {
		ERR_clear_error();
		log_warn("rpc: %s: its certificate is no longer trusted: closing the connection",
			 peer_text(c, peer));
		return -EACCES;
	}
	rc = rpc_rx_space(&c->rcn_rx, &p, &n, &all);
	if (rc)
		return rc;
	ERR_clear_error();
	rc = SSL_read_ex(t->t_ssl, p, n, &got);
	if (rc == 1) {
		rpc_rx_got(&c->rcn_rx, got);
		return 1;
	}
	switch (SSL_get_error(t->t_ssl, rc)) {
	case SSL_ERROR_WANT_WRITE:
		t->t_want_write = true;
		return 0;
	case SSL_ERROR_WANT_READ:
		rpc_rx_idle(&c->rcn_rx);
		return 0;
	case SSL_ERROR_ZERO_RETURN: /* close_notify */
		return -ECONNRESET;
	default:
		return broken(c, "the TLS connection broke");
	}
}

/* ---- sending ---- */

bool rpc_tls_sends(const struct rpc_conn *c)
{
	return !c->rcn_t->t_clear;
}

void rpc_tls_clear_sent(struct rpc_conn *c)
{
	/* rcn_t is NULL while our probe is not answered. */
	if (c->rcn_t)
		c->rcn_t->t_clear = false;
}

/* Gets up to a record's worth of the queue in one piece: where it lies, or put together. */
static size_t rpc_tls_gather(struct rpc_conn *c, const void **p)
{
	struct rpc_loop *rl = c->rcn_rl;
	size_t n = 0, skip = c->rcn_sent;
	struct iovec iov[2 * XDR_SPLICES + 1];

	for (struct rpc_out *o = c->rcn_outs; o && n < TLS_PLAIN; o = o->o_next) {
		unsigned cnt = rpc_out_iov(o, skip, iov);

		skip = 0;
		for (unsigned i = 0; i < cnt && n < TLS_PLAIN; i++) {
			size_t len =
				iov[i].iov_len < TLS_PLAIN - n ? iov[i].iov_len : TLS_PLAIN - n;

			if (len == TLS_PLAIN) {
				*p = iov[i].iov_base;
				return len;
			}
			memcpy(rl->rl_stage + n, iov[i].iov_base, len);
			n += len;
		}
	}
	*p = rl->rl_stage;
	return n;
}

static bool stage_get(struct rpc_loop *rl)
{
	if (!rl->rl_stage)
		rl->rl_stage = malloc(TLS_PLAIN);
	return rl->rl_stage;
}

/* Encrypts the queue as far as there is room. */
static int rpc_tls_fill(struct rpc_conn *c)
{
	struct rpc_tls_conn *t = c->rcn_t;

	while (t->t_up && !t->t_broken && c->rcn_outs && !c->rcn_dead) {
		size_t n, put;
		const void *p;

		if (!t->t_out)
			t->t_out = rpc_buf_new(&c->rcn_rl->rl_pool, TLS_OUT);
		if (!t->t_out || !stage_get(c->rcn_rl))
			return -ENOMEM;
		if (rpc_buf_cap(t->t_out) - t->t_out_w < TLS_ROOM)
			break;
		n = rpc_tls_gather(c, &p);
		ERR_clear_error();
		if (SSL_write_ex(t->t_ssl, p, n, &put) != 1 || put != n)
			return broken(c, "TLS cannot send");
		t->t_said = true;
		rpc_conn_outs_advance(c, n);
	}
	return 0;
}

int rpc_tls_out(struct rpc_conn *c, const void **p, size_t *n)
{
	struct rpc_tls_conn *t = c->rcn_t;
	int rc = rpc_tls_fill(c);

	*n = t->t_out_w - t->t_out_r;
	*p = *n ? t->t_out->b_data + t->t_out_r : NULL;
	return rc;
}

bool rpc_tls_said(const struct rpc_conn *c)
{
	return c->rcn_t->t_said;
}

bool rpc_tls_pending(const struct rpc_conn *c)
{
	return c->rcn_t->t_out_w > c->rcn_t->t_out_r;
}

bool rpc_tls_sent(struct rpc_conn *c, size_t n)
{
	struct rpc_tls_conn *t = c->rcn_t;
	bool again;

	t->t_out_r += (uint32_t)n;
	if (t->t_out_r < t->t_out_w)
		return false;
	t->t_out_r = t->t_out_w = 0;
	t->t_said = false;
	rpc_buf_put(t->t_out);
	t->t_out = NULL;
	again = t->t_want_write;
	t->t_want_write = false;
	return again;
}
