/* SPDX-License-Identifier: Apache-2.0 */
/* tls_cert.h - a certificate that signs itself, made on the spot, and a TLS context of it. Each
 * test program has its own: all is static. */
#ifndef TESTS_TLS_CERT_H
#define TESTS_TLS_CERT_H
#include "proto/rpc_tls.h"
#include <assert.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <unistd.h>

static void cert_make(const char *cert, const char *key)
{
	EVP_PKEY *pkey = EVP_EC_gen("P-256");
	X509 *x = X509_new();
	X509_NAME *name = X509_get_subject_name(x);
	FILE *c = fopen(cert, "w"), *k = fopen(key, "w");

	assert(pkey && c && k);
	ASN1_INTEGER_set(X509_get_serialNumber(x), 77);
	X509_gmtime_adj(X509_getm_notBefore(x), -3600);
	X509_gmtime_adj(X509_getm_notAfter(x), 3600);
	X509_set_pubkey(x, pkey);
	X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"test", -1, -1,
				   0);
	X509_set_issuer_name(x, name);
	X509_sign(x, pkey, EVP_sha256());
	assert(PEM_write_X509(c, x) && PEM_write_PrivateKey(k, pkey, NULL, NULL, 0, NULL, NULL));
	fclose(c);
	fclose(k);
	X509_free(x);
	EVP_PKEY_free(pkey);
}

static struct rpc_tls_ctx *cert_context(const uint8_t *psk)
{
	char cert[] = "/tmp/weft-cert.XXXXXX", key[] = "/tmp/weft-key.XXXXXX", err[256];
	struct rpc_tls_opts o = {"test.tls", "optional", cert, key, ""};
	struct rpc_tls_ctx *x = NULL;

	close(mkstemp(cert));
	close(mkstemp(key));
	cert_make(cert, key);
	if (rpc_tls_open(&x, &o, err, sizeof(err)))
		fprintf(stderr, "%s\n", err);
	assert(x);
	rpc_tls_set_peer_key(x, psk);
	unlink(cert);
	unlink(key);
	return x;
}
#endif
