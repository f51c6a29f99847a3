/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_gss.h - RPCSEC_GSS version 1 (RFC 2203) with Kerberos 5, for a server: krb5, krb5i and krb5p
 * through MIT's GSSAPI.
 *
 * One object serves all listeners and loops that name it in rpc_service.rs_gss. It keeps the table
 * of contexts: a client makes a context once (INIT) and then uses it by its handle on any
 * connection and any loop. Each context has a lock of its own, held for one GSSAPI call at a time.
 *
 * Work that blocks runs on other threads: accepting a context reads the key table (one thread
 * here), and finding the user of a principal asks name services (go_names, the caller's worker).
 * The loop of the connection checks, signs, encrypts and decrypts, which is pure computing.
 *
 * Handles are 16 random bytes: a handle from before a restart is unknown (RPCSEC_GSS_CREDPROBLEM:
 * the client makes a new context), and no handle can be guessed. There are at most go_max contexts,
 * fewer of one address and of one principal. When a new one exceeds a limit, the least recently
 * used context of that limit goes (of the address, of the principal, or of all): no client makes
 * contexts at the cost of the others. While a context is in use, its identity is looked up again
 * every few minutes; until the answer comes the old one counts.
 *
 * There is no replay cache for INIT tokens. An attacker that repeats a token gets a context whose
 * key it does not have, so that none of its calls carries a valid verifier, and the sequence window
 * catches a replayed call. A cache on disk would cost a sync for each context and prove nothing
 * more.
 */
#ifndef PROTO_RPC_GSS_H
#define PROTO_RPC_GSS_H
#include "base/worker.h"
#include "proto/rpc.h"

/* The user of a principal on this machine; other groups are found by the uid. */
struct rpc_ids {
	uint32_t id_uid, id_gid;
};

struct rpc_gss;
struct rpc_gss_opts {
	const char *go_keytab; /* path; its keys of nfs/... are used */
	unsigned go_max;       /* contexts; 0: 16384 */
	/* of those, of one address (IPv6: a network of 64 bits) and of one principal; 0: as many */
	unsigned go_max_addr, go_max_principal;
	struct worker *go_names; /* where go_map runs */
	/* Fills ids, on go_names. Returns 0; -ENOENT: no such user, which makes the principal
	 * nobody; another error: cannot find out now. */
	int (*go_map)(void *arg, const char *principal, struct rpc_ids *ids);
	void *go_arg;
};
/* For rpc_service.rs_gss, which listeners copy. NULL: no memory. It must be open before a loop
 * runs. */
struct rpc_gss *rpc_gss_new(void);
/* Reads the key table and starts the thread. On failure returns a negative errno and one line in
 * err. */
int rpc_gss_open(struct rpc_gss *g, const struct rpc_gss_opts *opts, char *err, size_t errlen);
/* Registers the metrics, at start, also where there is no key table. */
void rpc_gss_metrics(void);
/* No call may be in progress, and go_names must be idle. */
void rpc_gss_destroy(struct rpc_gss *g);
#endif
