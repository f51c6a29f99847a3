/*
 * rpc_gss.h - RPCSEC_GSS version 1 (RFC 2203) with Kerberos 5, for a server: krb5, krb5i and krb5p
 * through MIT's GSSAPI.
 *
 * One object serves all listeners and loops that name it in rpc_service.rs_gss. It keeps the table
 * of contexts: a context is made once (INIT) and is then used by its handle on any connection and
 * any loop. Each has a lock of its own, held for one GSSAPI call at a time.
 *
 * What blocks runs on threads of its own: accepting a context reads the key table (one thread
 * here), and finding the user of a principal asks name services (go_names, the caller's worker).
 * Checking, signing, encrypting and decrypting is done on the loop of the connection: pure
 * computing.
 *
 * Handles are 16 random bytes, so that one of before a restart is unknown (RPCSEC_GSS_CREDPROBLEM:
 * the client makes a new context) and none can be guessed. There are at most go_max contexts, fewer
 * of one address and of one principal; when another is made, the least recently used one goes of
 * whoever has too many: nobody makes contexts at the cost of everybody else's. The identity behind
 * a context is asked again every few minutes while the context is in use; until the answer is there
 * the old one counts.
 *
 * There is no replay cache for INIT tokens: who repeats somebody's token gets a context whose key
 * he does not have, so that no call of his carries a valid verifier, and a replayed call is caught
 * by the sequence window. A cache on disk would cost a sync for each context and prove nothing
 * more.
 */
#ifndef PROTO_RPC_GSS_H
#define PROTO_RPC_GSS_H
#include "base/worker.h"
#include "proto/rpc.h"

/* Who a principal is here; other groups are found by the uid. */
struct rpc_ids {
	uint32_t id_uid, id_gid;
};

struct rpc_gss;
struct rpc_gss_opts {
	const char *go_keytab; /* path; the keys of nfs/... in it are used */
	unsigned go_max;       /* contexts; 0: 16384 */
	/* of those, of one address (IPv6: a network of 64 bits) and of one principal; 0: as many */
	unsigned go_max_addr, go_max_principal;
	struct worker *go_names; /* where go_map runs */
	/* Fills ids, on go_names. 0; -ENOENT: no such user, who is nobody then; another error: it
	 * cannot be told now. */
	int (*go_map)(void *arg, const char *principal, struct rpc_ids *ids);
	void *go_arg;
};
/* For rpc_service.rs_gss, which listeners copy. NULL: no memory. It must be open before a loop
 * runs. */
struct rpc_gss *rpc_gss_new(void);
/* Looks into the key table and starts the thread. A negative errno and one line in err on
 * failure. */
int rpc_gss_open(struct rpc_gss *g, const struct rpc_gss_opts *opts, char *err, size_t errlen);
/* Registers the metrics, at start, also where there is no key table. */
void rpc_gss_metrics(void);
/* No call may be under way, and go_names must be idle. */
void rpc_gss_destroy(struct rpc_gss *g);
#endif
