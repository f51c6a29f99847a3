/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_tls.h - RPC-with-TLS (RFC 9289) by OpenSSL: what a service needs to offer TLS on its port,
 * and what a client needs to use it.
 *
 * TLS 1.3 only, ALPN "sunrpc", no tickets, no resumption, no early data. All loops share a context.
 * Connections take what they need from it when their handshake begins, so that rpc_tls_reload()
 * changes the certificate for later connections and drops none. When a connection whose peer showed
 * a certificate next sends something, the certificate is checked again with the new authorities
 * (section 5.2.1).
 *
 * Peers of the same cluster prove themselves to each other with a pre-shared key (section 5.2.2)
 * and need no certificates for it.
 *
 * Caveats:
 * - The public-key work of a handshake runs on the connection's loop: about 0.1 ms with an EC key,
 *   1 ms and more with an RSA key. A handshake has 10 s to finish. Nothing blocks.
 * - Revocation lists come from the file of authorities; if there is one, the issuer of every client
 *   certificate must have a current list.
 */
#ifndef PROTO_RPC_TLS_H
#define PROTO_RPC_TLS_H
#include "proto/rpc.h"

enum rpc_tls_mode {
	RPC_TLS_OFF,
	RPC_TLS_OPTIONAL,
	RPC_TLS_REQUIRED, /* in the clear only NULL and rs_clear_prog */
	RPC_TLS_CERT,	  /* and the client must show a certificate, or be of the cluster */
};
#define RPC_TLS_PSK_LEN	  32
#define RPC_TLS_PEER_NAME 16

struct rpc_tls_opts {
	const char *to_key_name; /* of the configuration keys, for messages: "mds.tls" */
	const char *to_mode;	 /* off, optional, required or mutual */
	const char *to_cert, *to_key, *to_ca; /* PEM files; "" is none */
};
struct rpc_tls_ctx;

/* *out is NULL for mode off. Returns 0, or a negative errno with one line in err. Copies the
 * strings. */
int rpc_tls_open(struct rpc_tls_ctx **out, const struct rpc_tls_opts *o, char *err, size_t errlen);
/* As rpc_tls_open, with the keys SECTION.tls, .tls_cert, .tls_key and .tls_ca; logs the result. */
struct conf;
int rpc_tls_configure(struct rpc_tls_ctx **out, const struct conf *c, const char *section,
		      char *err, size_t errlen);
/* Before connections come: peers of the cluster know these RPC_TLS_PSK_LEN bytes, which are copied.
 * x may be NULL. */
void rpc_tls_set_peer_key(struct rpc_tls_ctx *x, const uint8_t *psk);
/* For a service whose TLS is off for clients (rpc_tls_mode). There is no certificate. A handshake
 * without proof of the peers' key, which must be set, fails. Returns as rpc_tls_open(). */
int rpc_tls_open_peers(struct rpc_tls_ctx **out, const char *key_name, char *err, size_t errlen);
/* What a client proves to a peer: a key, and the name by which the peer knows it. */
struct rpc_tls_proof {
	uint8_t tp_key[RPC_TLS_PSK_LEN];
	uint8_t tp_identity[4 + RPC_TLS_PEER_NAME];
	uint32_t tp_len;
};
/* self NULL: psk is the server's own; else the one that the server derives for self. */
void rpc_tls_proof_make(struct rpc_tls_proof *p, const uint8_t psk[RPC_TLS_PSK_LEN],
			const uint8_t *self);
/* Reads the files again and logs the result; on an error all stays as it was. Any thread, one at a
 * time. x may be NULL. */
void rpc_tls_reload(struct rpc_tls_ctx *x);
/* Returns when our certificate ends, in s since 1970; 0: there is none. Any thread. x may be
 * NULL. */
int64_t rpc_tls_cert_end(struct rpc_tls_ctx *x);
enum rpc_tls_mode rpc_tls_mode(const struct rpc_tls_ctx *x /* may be NULL */);
#endif
