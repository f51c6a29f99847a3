/* SPDX-License-Identifier: Apache-2.0 */
/*
 * credentials.h - who asks, from where, by which file handle, and how much one may have: exports,
 * users, file handles and limits (docs/security.md).
 */
#ifndef MDS_NFS4_CREDENTIALS_H
#define MDS_NFS4_CREDENTIALS_H
#include "mds/nfs4/op.h"

#define OP_FH_LEN 28
/* Makes a file handle. export: exp_grant.g_id of the export under which the client gets it.
 * Callbacks must carry the bytes that GETFH returned, so make both with the same export. */
void op_fh_make(struct mds *m, uint16_t export, uint64_t ino, uint8_t out[OP_FH_LEN]);
/* Decodes a file handle. OK; BADHANDLE; STALE if it is from this store, but from before it was
 * restored. */
nfsstat4 op_fh_open(struct mds *m, const uint8_t *fh, uint32_t len, uint16_t *export,
		    uint64_t *ino);
/* May the current operation be done if its current file handle is in no export of the client any
 * more? OK for all other file handles. */
nfsstat4 op_gone(const struct compound *c);
static inline uint16_t op_export(const struct compound *c)
{
	return c->exp->g_id;
}
/* limit.c. Call both on the connection's loop. */
void op_conn_opened(struct mds *m, struct rpc_conn *conn);
void op_conn_closed(struct mds *m, struct rpc_conn *conn);
/* See rs_first in rpc.h. */
bool op_first(struct mds *m, uint32_t prog, uint32_t proc, struct xdr_in *x);
/* Counts and logs that something was refused because of a limit. Returns true. */
bool op_limited(struct mds *m, enum op_limit which);
/* limit.c, with the file locked or under st_look_lock: is this one more than the request's client,
 * its address (of IPv6 its network of 64 bits), or all clients together may have? Then it is
 * counted as refused, and *whose may become OP_OF_ADDR or OP_OF_ALL. Call op_make_room with *whose
 * after unlocking: it evicts the client whose lease ran out first, if there is one. op_make_room
 * takes the lock of all shards. */
bool op_full(struct compound *c, enum st_count what, enum op_limit which,
	     const uint32_t most[OP_SCOPES], enum op_scope *whose);
void op_make_room(struct compound *c, enum op_scope whose);
/* The same for state that the client had before, either before our restart or under a delegation:
 * the client gets it back, however much others have. Only the client's own limit counts. */
bool op_full_again(struct compound *c, enum st_count what, enum op_limit which,
		   const uint32_t most[OP_SCOPES]);
/* Call it once, after the limits are set. */
void op_limits_init(struct mds *m);
/* Returns the export in a handle that op_fh_make made. */
uint16_t op_fh_export(const uint8_t *fh, uint32_t len);
/* credentials.c: finds out which exports the client sees and which groups the user has. False:
 * parked, and go(c) is called when this is known. */
bool op_cred(struct compound *c, void (*go)(struct compound *c));
void op_cred_done(struct compound *c);
/* For a job that goes on after its request was answered, on a file of an export: does the right
 * under which it began still exist, although the exports have changed? */
struct op_still_valid {
	struct ask_wait s_wait;
	struct mds *s_m;
	uint64_t s_generation, s_ino; /* s_generation: the exports that were checked last */
	uint16_t s_export, s_port;
	uint8_t s_addr[16], s_sec;
	enum exp_tls s_tls;
	struct ask_val *s_names; /* NULL: not known */
	bool s_told;		 /* the names were looked up, and s_names is all there is */
	void (*s_then)(void *arg);
	void *s_arg;
};
/* Begins for the compound's client and its current file, which the job writes. then(arg) is called
 * on this loop. */
void op_still_valid_begin(struct op_still_valid *s, const struct compound *c,
			  void (*then)(void *arg), void *arg);
/* 0: the right exists. -EROFS, -ESTALE, -EACCES: not any more. -EAGAIN: cannot be found out now.
 * -EINPROGRESS: then is called, and the caller asks again. */
int op_still_valid(struct op_still_valid *s);
void op_still_valid_end(struct op_still_valid *s);
/* Drops the connection's view of the exports. */
void op_conn_view_drop(struct rpc_conn *conn);
int op_cred_open(struct mds *m, bool server_groups, bool kerberos, uint32_t keep_ms);
/* Drops the exports and groups that the thread keeps. */
void op_thread_forget(struct mds_thread *th);
/* Is it known what g is, and which groups the user has there? If not, answer DELAY: a name service
 * that fails has not said no. */
bool op_enterable(const struct compound *c, const struct exp_grant *g);
/* Makes g the export of cur, and the credential what g makes of it. Call it if
 * op_enterable(c, g). */
void op_enter(struct compound *c, const struct exp_grant *g);
/* Logs for the administrator why the flavour is wrong, at most once a second. */
void op_wrongsec_log(const struct compound *c, const struct exp_grant *g);
static inline bool op_sec_ok(const struct compound *c, const struct exp_grant *g)
{
	return g->g_ok >> c->sec & 1;
}
/* Are the exports still the ones that this compound began with? Call it with the file locked:
 * job_exports_changed then sees whatever is registered under the same lock. */
static inline bool op_exports_stand(const struct compound *c)
{
	return c->view->v_table->xt_generation == export_set_generation(c->m->m_exports);
}
/* Did the request come with integrity or privacy, by Kerberos or TLS? Then its data goes to data
 * servers by TLS. */
bool op_protected(const struct compound *c);
/* May this client have layouts of cur? Only if its data path is as protected as the export demands,
 * or the administrator allowed it. */
bool op_layouts_ok(const struct compound *c);
/* Turns *i into a directory of the pseudo file system, which has nothing of the real one but its
 * number. */
void op_pseudo_inode(const struct compound *c, struct ns_inode *i);
#endif
