/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_tls_ctx.c - what TLS connections share: certificate, key and authorities, and loading them
 * again. See rpc_tls.h. */
#include "base/conf.h"
#include "base/log.h"
#include "base/priv.h"
#include "proto/ds_key.h"
#include "proto/rpc_int.h"
#include <errno.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define VERIFY_DEPTH	8
#define FAILURES_LOGGED 10					 /* each second */
static const uint8_t alpn[] = {6, 's', 'u', 'n', 'r', 'p', 'c'}; /* RFC 9289 section 7.2 */
/* The uuid follows it if the data server has keys of its own. */
static const char peer_identity[] = "weft";
#define IDENTITY (sizeof(peer_identity) - 1)
_Static_assert(sizeof(((struct rpc_tls_proof *)0)->tp_identity) == IDENTITY + RPC_TLS_PEER_NAME &&
		       RPC_TLS_PSK_LEN == CAP_TLS_KEY_LEN,
	       "what peers prove");

struct rpc_tls_ctx {
	enum rpc_tls_mode tc_mode;
	char *tc_name, *tc_cert, *tc_key, *tc_ca;
	bool tc_peers;
	uint8_t tc_psk[RPC_TLS_PSK_LEN];
	pthread_mutex_t tc_lock; /* of tc_ssl */
	SSL_CTX *tc_ssl;
	_Atomic unsigned tc_gen;
	_Atomic int64_t tc_log_second;
	_Atomic unsigned tc_logged;
};

/* ---- what both ends do ---- */

/* RFC 8446 section 4.2.11: an external key of the cluster. */
static SSL_SESSION *peer_session(SSL *ssl, const uint8_t psk[RPC_TLS_PSK_LEN])
{
	static const uint8_t aes128_gcm_sha256[2] = {0x13, 0x01};
	const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, aes128_gcm_sha256);
	SSL_SESSION *s = cipher ? SSL_SESSION_new() : NULL;

	if (s && SSL_SESSION_set1_master_key(s, psk, RPC_TLS_PSK_LEN) &&
	    SSL_SESSION_set_cipher(s, cipher) &&
	    SSL_SESSION_set_protocol_version(s, TLS1_3_VERSION))
		return s;
	SSL_SESSION_free(s);
	return NULL;
}

static SSL_CTX *rpc_tls_ctx_ctx_new(const SSL_METHOD *method)
{
	SSL_CTX *s = SSL_CTX_new(method);

	if (!s || !SSL_CTX_set_min_proto_version(s, TLS1_3_VERSION)) {
		SSL_CTX_free(s);
		return NULL;
	}
	SSL_CTX_set_options(s, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
	SSL_CTX_set_session_cache_mode(s, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_num_tickets(s, 0);
	SSL_CTX_set_mode(s, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	return s;
}

/* ---- the server's callbacks ---- */

/*
 * RFC 9289 section 5: a client must offer ALPN with "sunrpc" in it, and gets that as the answer.
 * The handshake daemon of the stock Linux client (ktls-utils 1.0) offers no ALPN at all. This
 * function is not called then, and the client is let in, because the probe already said which
 * protocol it speaks. A client that offers something else is refused.
 */
static int alpn_cb(SSL *ssl, const unsigned char **out, unsigned char *outlen,
		   const unsigned char *in, unsigned inlen, void *arg)
{
	(void)ssl;
	(void)arg;
	/* The library has checked the lengths in the list. */
	for (unsigned i = 0; i + sizeof(alpn) <= inlen; i += in[i] + 1u)
		if (!memcmp(in + i, alpn, sizeof(alpn))) {
			*out = in + i + 1;
			*outlen = sizeof(alpn) - 1;
			return SSL_TLSEXT_ERR_OK;
		}
	return SSL_TLSEXT_ERR_ALERT_FATAL;
}

/* RFC 9289 section 5.2.1.1, id-kp-rpcTLSClient: a certificate may be for RPC clients alone. The
 * library does not know that purpose. */
static bool for_rpc_clients(X509 *cert)
{
	EXTENDED_KEY_USAGE *eku = X509_get_ext_d2i(cert, NID_ext_key_usage, NULL, NULL);
	bool found = false;
	char oid[64];

	for (int i = 0; i < sk_ASN1_OBJECT_num(eku) && !found; i++)
		found = OBJ_obj2txt(oid, sizeof(oid), sk_ASN1_OBJECT_value(eku, i), 1) > 0 &&
			!strcmp(oid, "1.3.6.1.5.5.7.3.33");
	EXTENDED_KEY_USAGE_free(eku);
	return found && (X509_get_key_usage(cert) & KU_DIGITAL_SIGNATURE);
}

static int verify_cb(int ok, X509_STORE_CTX *store)
{
	if (!ok && X509_STORE_CTX_get_error(store) == X509_V_ERR_INVALID_PURPOSE &&
	    X509_STORE_CTX_get_error_depth(store) == 0 &&
	    for_rpc_clients(X509_STORE_CTX_get_current_cert(store))) {
		X509_STORE_CTX_set_error(store, X509_V_OK);
		return 1;
	}
	return ok;
}

static int psk_find_cb(SSL *ssl, const unsigned char *identity, size_t len, SSL_SESSION **out)
{
	const struct rpc_tls_ctx *x = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));

	uint8_t key[RPC_TLS_PSK_LEN];

	/* Another identity is no error: the handshake goes on with certificates. */
	*out = NULL;
	if (!x->tc_peers || (len != IDENTITY && len != IDENTITY + RPC_TLS_PEER_NAME) ||
	    memcmp(identity, peer_identity, IDENTITY))
		return 1;
	if (len == IDENTITY) {
		*out = peer_session(ssl, x->tc_psk);
		return *out != NULL;
	}
	ds_key_derive_peer(x->tc_psk, identity + IDENTITY, key);
	*out = peer_session(ssl, key);
	OPENSSL_cleanse(key, sizeof(key));
	return *out != NULL;
}

static int no_passphrase(char *buf, int size, int rwflag, void *arg)
{
	(void)buf;
	(void)size;
	(void)rwflag;
	(void)arg;
	return -1;
}

/* ---- loading ---- */

static int complain(const struct rpc_tls_ctx *x, const char *key, const char *file, char *err,
		    size_t errlen)
{
	unsigned long e = ERR_peek_last_error();
	const char *why = ERR_reason_error_string(e);
	struct stat st;

	if (!*file)
		snprintf(err, errlen, "%s%s: names no file; a PEM file is wanted", x->tc_name, key);
	else if (access(file, R_OK) || stat(file, &st))
		snprintf(err, errlen, "%s%s: %s: %s", x->tc_name, key, file, strerror(errno));
	else
		snprintf(err, errlen, "%s%s: %s: %s", x->tc_name, key, file,
			 why ? why : "holds nothing in PEM that is wanted here");
	ERR_clear_error();
	return -EINVAL;
}

static int load_own(const struct rpc_tls_ctx *x, SSL_CTX *s, char *err, size_t errlen)
{
	ERR_clear_error();
	if (!*x->tc_cert || SSL_CTX_use_certificate_chain_file(s, x->tc_cert) != 1)
		return complain(x, "_cert", x->tc_cert, err, errlen);
	SSL_CTX_set_default_passwd_cb(s, no_passphrase);
	if (!*x->tc_key || SSL_CTX_use_PrivateKey_file(s, x->tc_key, SSL_FILETYPE_PEM) != 1) {
		if (ERR_GET_REASON(ERR_peek_last_error()) != X509_R_KEY_VALUES_MISMATCH)
			return complain(x, "_key", x->tc_key, err, errlen);
		ERR_clear_error();
		snprintf(err, errlen, "%s_key: %s: is not the key of the certificate in %s",
			 x->tc_name, x->tc_key, x->tc_cert);
		return -EINVAL;
	}
	if (X509_cmp_time(X509_get0_notAfter(SSL_CTX_get0_certificate(s)), NULL) < 0)
		log_warn("%s_cert: %s: the certificate has expired; clients will refuse it",
			 x->tc_name, x->tc_cert);
	return 0;
}

/* Loads authorities and revocation lists from one file. */
static int load_ca(const struct rpc_tls_ctx *x, SSL_CTX *s, char *err, size_t errlen)
{
	X509_STORE *store = SSL_CTX_get_cert_store(s);
	X509_LOOKUP *lookup = X509_STORE_add_lookup(store, X509_LOOKUP_file());
	STACK_OF(X509_OBJECT) * objects;
	STACK_OF(X509_NAME) * names;
	bool certs = false, crls = false;

	ERR_clear_error();
	if (!lookup || X509_load_cert_crl_file(lookup, x->tc_ca, X509_FILETYPE_PEM) < 1)
		return complain(x, "_ca", x->tc_ca, err, errlen);
	objects = X509_STORE_get0_objects(store);
	for (int i = 0; i < sk_X509_OBJECT_num(objects); i++) {
		X509_LOOKUP_TYPE type = X509_OBJECT_get_type(sk_X509_OBJECT_value(objects, i));

		certs |= type == X509_LU_X509;
		crls |= type == X509_LU_CRL;
	}
	names = certs ? SSL_load_client_CA_file(x->tc_ca) : NULL;
	if (!names)
		return complain(x, "_ca", x->tc_ca, err, errlen);
	SSL_CTX_set_client_CA_list(s, names);
	if (crls)
		X509_STORE_set_flags(store, X509_V_FLAG_CRL_CHECK);
	SSL_CTX_set_verify_depth(s, VERIFY_DEPTH);
	SSL_CTX_set_verify(
		s,
		SSL_VERIFY_PEER |
			(x->tc_mode == RPC_TLS_CERT ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0),
		verify_cb);
	return 0;
}

static int rpc_tls_ctx_load(struct rpc_tls_ctx *x, char *err, size_t errlen)
{
	SSL_CTX *s = rpc_tls_ctx_ctx_new(TLS_server_method()), *old;
	int rc;

	if (!s) {
		snprintf(err, errlen, "%s: OpenSSL does not offer TLS 1.3 here", x->tc_name);
		return -ENOTSUP;
	}
	SSL_CTX_set_app_data(s, x);
	SSL_CTX_set_session_id_context(s, alpn + 1, sizeof(alpn) - 1);
	SSL_CTX_set_alpn_select_cb(s, alpn_cb, NULL);
	SSL_CTX_set_psk_find_session_callback(s, psk_find_cb);
	rc = x->tc_mode == RPC_TLS_OFF ? 0 : load_own(x, s, err, errlen);
	if (!rc && *x->tc_ca)
		rc = load_ca(x, s, err, errlen);
	if (rc) {
		SSL_CTX_free(s);
		return rc;
	}
	pthread_mutex_lock(&x->tc_lock);
	old = x->tc_ssl;
	x->tc_ssl = s;
	pthread_mutex_unlock(&x->tc_lock);
	atomic_fetch_add(&x->tc_gen, 1);
	SSL_CTX_free(old);
	return 0;
}

static int mode_parse(const char *text, enum rpc_tls_mode *out)
{
	static const char *const names[] = {"off", "optional", "required", "mutual"};

	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(text, names[i])) {
			*out = (enum rpc_tls_mode)i;
			return 0;
		}
	return -EINVAL;
}

int rpc_tls_open(struct rpc_tls_ctx **out, const struct rpc_tls_opts *o, char *err, size_t errlen)
{
	struct rpc_tls_ctx *x = calloc(1, sizeof(*x));
	int rc = -ENOMEM;

	*out = NULL;
	snprintf(err, errlen, "%s: no memory", o->to_key_name);
	if (!x)
		return rc;
	pthread_mutex_init(&x->tc_lock, NULL);
	x->tc_name = strdup(o->to_key_name);
	x->tc_cert = strdup(o->to_cert);
	x->tc_key = strdup(o->to_key);
	x->tc_ca = strdup(o->to_ca);
	if (!x->tc_name || !x->tc_cert || !x->tc_key || !x->tc_ca)
		goto bad;
	rc = mode_parse(o->to_mode, &x->tc_mode);
	if (rc) {
		snprintf(err, errlen, "%s: %s: expected off, optional, required or mutual",
			 x->tc_name, o->to_mode);
		goto bad;
	}
	if (x->tc_mode == RPC_TLS_OFF)
		goto bad;
	if (x->tc_mode == RPC_TLS_CERT && !*x->tc_ca) {
		snprintf(err, errlen,
			 "%s_ca: names no file; %s = mutual needs the authorities that vouch for "
			 "clients",
			 x->tc_name, x->tc_name);
		rc = -EINVAL;
		goto bad;
	}
	rc = rpc_tls_ctx_load(x, err, errlen);
	if (rc)
		goto bad;
	*out = x;
	return 0;
bad:
	free(x->tc_name);
	free(x->tc_cert);
	free(x->tc_key);
	free(x->tc_ca);
	free(x);
	return rc;
}

int rpc_tls_open_peers(struct rpc_tls_ctx **out, const char *key_name, char *err, size_t errlen)
{
	struct rpc_tls_ctx *x = calloc(1, sizeof(*x));
	int rc = -ENOMEM;

	*out = NULL;
	snprintf(err, errlen, "%s: no memory", key_name);
	if (!x)
		return rc;
	pthread_mutex_init(&x->tc_lock, NULL);
	x->tc_name = strdup(key_name);
	x->tc_ca = strdup("");
	if (x->tc_name && x->tc_ca)
		rc = rpc_tls_ctx_load(x, err, errlen);
	if (!rc) {
		*out = x;
		return 0;
	}
	free(x->tc_name);
	free(x->tc_ca);
	free(x);
	return rc;
}

/* Logs one line: mode, certificate, authorities. */
static void log_loaded(struct rpc_tls_ctx *x)
{
	static const char *const modes[] = {"off", "optional", "required",
					    "required with a client certificate"};
	char subject[256] = "", until[32] = "";
	struct tm tm;
	X509 *cert;

	pthread_mutex_lock(&x->tc_lock);
	cert = SSL_CTX_get0_certificate(x->tc_ssl);
	X509_NAME_oneline(X509_get_subject_name(cert), subject, sizeof(subject));
	if (ASN1_TIME_to_tm(X509_get0_notAfter(cert), &tm))
		strftime(until, sizeof(until), "%Y-%m-%dT%H:%M:%SZ", &tm);
	pthread_mutex_unlock(&x->tc_lock);
	log_info("%s: TLS 1.3 is %s, certificate \"%s\" until %s, client certificates are %s%s",
		 x->tc_name, modes[x->tc_mode], subject, until,
		 *x->tc_ca ? "asked for and checked by " : "not asked for", x->tc_ca);
}

void rpc_tls_reload(struct rpc_tls_ctx *x)
{
	char err[512];

	if (rpc_tls_mode(x) == RPC_TLS_OFF)
		return; /* there are no files */
	if (rpc_tls_ctx_load(x, err, sizeof(err)))
		log_error("%s%s%s; the certificates loaded before stay in use", err,
			  *priv_user() ? ", as user " : "", priv_user());
	else
		log_loaded(x);
}

void rpc_tls_set_peer_key(struct rpc_tls_ctx *x, const uint8_t *psk)
{
	if (!x)
		return;
	memcpy(x->tc_psk, psk, sizeof(x->tc_psk));
	x->tc_peers = true;
}

int64_t rpc_tls_cert_end(struct rpc_tls_ctx *x)
{
	const X509 *cert;
	struct tm tm = {0};
	int64_t end = 0;

	if (rpc_tls_mode(x) == RPC_TLS_OFF)
		return 0;
	pthread_mutex_lock(&x->tc_lock);
	cert = x->tc_ssl ? SSL_CTX_get0_certificate(x->tc_ssl) : NULL;
	if (cert && ASN1_TIME_to_tm(X509_get0_notAfter(cert), &tm))
		end = timegm(&tm);
	pthread_mutex_unlock(&x->tc_lock);
	return end;
}

enum rpc_tls_mode rpc_tls_mode(const struct rpc_tls_ctx *x)
{
	return x ? x->tc_mode : RPC_TLS_OFF;
}

int rpc_tls_configure(struct rpc_tls_ctx **out, const struct conf *c, const char *section,
		      char *err, size_t errlen)
{
	static const char *const names[] = {"", "_cert", "_key", "_ca"};
	const char *value[4];
	char name[4][32];
	int rc;

	for (unsigned i = 0; i < 4; i++) {
		snprintf(name[i], sizeof(name[i]), "%s.tls%s", section, names[i]);
		value[i] = conf_str(c, name[i]);
	}
	rc = rpc_tls_open(out,
			  &(struct rpc_tls_opts){name[0], value[0], value[1], value[2], value[3]},
			  err, errlen);
	if (*out)
		log_loaded(*out);
	return rc;
}

/* ---- for connections ---- */

void rpc_tls_proof_make(struct rpc_tls_proof *p, const uint8_t psk[RPC_TLS_PSK_LEN],
			const uint8_t *self)
{
	memcpy(p->tp_key, psk, sizeof(p->tp_key));
	memcpy(p->tp_identity, peer_identity, IDENTITY);
	if (self)
		memcpy(p->tp_identity + IDENTITY, self, RPC_TLS_PEER_NAME);
	p->tp_len = IDENTITY + (self ? RPC_TLS_PEER_NAME : 0);
}

static SSL_CTX *client_ctx;
static pthread_once_t client_once = PTHREAD_ONCE_INIT;

static int psk_use_cb(SSL *ssl, const EVP_MD *md, const unsigned char **identity, size_t *len,
		      SSL_SESSION **out)
{
	const struct rpc_tls_proof *p = SSL_get_app_data(ssl);

	(void)md; /* the only cipher suite on offer has one */
	*identity = p->tp_identity;
	*len = p->tp_len;
	*out = peer_session(ssl, p->tp_key);
	return *out != NULL;
}

static void client_make(void)
{
	SSL_CTX *s = rpc_tls_ctx_ctx_new(TLS_client_method());

	/* Offer only the suite that goes with the key. Otherwise a server would choose a suite of
	 * its own, and the key would be void. */
	if (!s || !SSL_CTX_set_ciphersuites(s, "TLS_AES_128_GCM_SHA256") ||
	    SSL_CTX_set_alpn_protos(s, alpn, sizeof(alpn)))
		log_fatal("rpc: OpenSSL does not offer TLS 1.3 here");
	SSL_CTX_set_psk_use_session_callback(s, psk_use_cb);
	client_ctx = s;
}

/* Asks for no certificate: rpc_tls.c ends the connection unless the peer proved the key. */
SSL *rpc_tls_connect_new(const struct rpc_tls_proof *proof)
{
	SSL *ssl;

	pthread_once(&client_once, client_make);
	ssl = SSL_new(client_ctx);
	if (ssl) {
		SSL_set_app_data(ssl, (void *)proof);
		SSL_set_connect_state(ssl);
	}
	return ssl;
}

SSL *rpc_tls_accept_new(struct rpc_tls_ctx *x, unsigned *gen)
{
	SSL *ssl;

	*gen = atomic_load(&x->tc_gen);
	pthread_mutex_lock(&x->tc_lock);
	ssl = SSL_new(x->tc_ssl);
	pthread_mutex_unlock(&x->tc_lock);
	if (ssl)
		SSL_set_accept_state(ssl);
	return ssl;
}

bool rpc_tls_still_trusted(struct rpc_tls_ctx *x, SSL *ssl, unsigned *gen)
{
	unsigned now = atomic_load(&x->tc_gen);
	X509 *cert = SSL_get0_peer_certificate(ssl);
	X509_STORE_CTX *sc;
	SSL_CTX *s;
	bool ok;

	if (*gen == now)
		return true;
	*gen = now;
	if (!cert)
		return true;
	pthread_mutex_lock(&x->tc_lock);
	s = x->tc_ssl;
	SSL_CTX_up_ref(s);
	pthread_mutex_unlock(&x->tc_lock);
	sc = X509_STORE_CTX_new();
	ok = sc &&
	     X509_STORE_CTX_init(sc, SSL_CTX_get_cert_store(s), cert,
				 SSL_get_peer_cert_chain(ssl)) &&
	     X509_STORE_CTX_set_default(sc, "ssl_client");
	if (ok) {
		X509_STORE_CTX_set_depth(sc, VERIFY_DEPTH);
		X509_STORE_CTX_set_verify_cb(sc, verify_cb);
		ok = X509_verify_cert(sc) == 1;
	}
	X509_STORE_CTX_free(sc);
	SSL_CTX_free(s);
	ERR_clear_error();
	return ok;
}

/* Keeps a peer that fails all the time from filling the log. */
bool rpc_tls_may_log(struct rpc_tls_ctx *x)
{
	int64_t now = (int64_t)time(NULL);

	if (atomic_exchange(&x->tc_log_second, now) != now)
		atomic_store(&x->tc_logged, 0);
	return atomic_fetch_add(&x->tc_logged, 1) < FAILURES_LOGGED;
}
