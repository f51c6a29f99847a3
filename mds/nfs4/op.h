/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op.h - COMPOUND (RFC 8881 section 16.2): the server runs it operation by operation, from the
 * receive buffer into the reply buffer.
 *
 * An operation is one function. It decodes its arguments from c->in, puts its result body into
 * c->out, where opnum and status already are, and returns its status. Or it waits (await.h): then
 * it returns OP_PARKED, and a later step returns the status. Meanwhile c->in and c->out keep their
 * positions. If the status is an error, the frame cuts what the operation put, unless the operation
 * set c->keep_body.
 */
#ifndef MDS_OP_H
#define MDS_OP_H
#include "mds/file/evict.h"
#include "mds/file/mirror_state.h"
#include "mds/file/file_size.h"
#include "mds/jobs/contended.h"
#include "mds/jobs/dead_server.h"
#include "mds/mds.h"
#include "mds/nfs4/await.h"

#define OP_MAX_OPS 64
#define OP_MAX_IO  (1u << 20)

struct op_after {
	uint64_t cur;
	bool have_sid;
	struct st_stateid sid;
};
struct compound;
/* Puts the result body of an operation whose mutation is done, and sets in *after the current file
 * handle and stateid that the operation leaves. It is called twice. First on the committer thread,
 * inside the transaction, for the row that answers a retry after a restart (replay.c): there, what
 * the operation changes in memory is still as it was before. Then on the loop, for the reply. */
typedef void (*op_put_fn)(struct compound *c, struct xdr_out *x, struct op_after *after);

struct compound {
	struct mds *m;
	struct mds_thread *th;
	struct rpc_call *call;
	struct xdr_in *in;
	struct xdr_out *out;
	uint32_t minor, nops, at; /* at: index of the current operation */
	uint32_t opnum;
	size_t numres_at, status_at; /* positions in out */
	nfsstat4 status;
	bool keep_body;
	uint64_t started_ns;
	uint64_t request;   /* its id (common/trace.h) */
	uint8_t traced[16]; /* numbers of the first operations; of an undefined one 255 */

	struct st_session *session;
	struct st_slot *slot;
	struct st_client *client; /* the session's client */
	bool cachethis;
	nfsstat4 fail_next; /* status of the operation after SEQUENCE, if not NFS4_OK */
	bool replayed;	    /* the reply is a cached one */
	/* The limit of the reply is what the session caches, not what it sends. */
	bool cached_only;
	size_t seq_end; /* length of out after SEQUENCE's result */
	uint32_t once_slot, replay_seq, once_slots, once_target;
	const uint8_t *replay_args; /* arguments from the first operation after SEQUENCE on */
	uint8_t replay_check[16];   /* op_replay_check of the current mutation */
	/* Inode number of the file whose orders the operation waits for after its mutation, or
	 * 0. */
	uint64_t once_orders;
	/* The mutation found nothing that it may do now: no result of it is kept. */
	bool once_none;
	/* A row of an earlier boot answered the mutation: only operations that read are run after
	 * it. */
	bool again;

	/* op_attr.c, of the current operation: the directory of the threshold that was looked up
	 * last, or 0 */
	uint64_t threshold_dir, threshold;

	/* op_heat.c: the last directory that operations worked in, or 0; c->cur before OPEN */
	uint64_t heat_dir, heat_from;

	/* file handles: inode numbers; 0 is none */
	uint64_t cur, saved;
	/* The exports of cur and saved, set whenever cur and saved are. wrongsec: cur's export does
	 * not accept this request's flavour. Then only the operations that may follow a put
	 * operation are done (RFC 8881 section 2.6.3.1.1). */
	const struct exp_grant *exp, *saved_exp;
	bool wrongsec;
	struct st_stateid cur_sid, saved_sid;
	bool have_sid, saved_have_sid;

	/* What exp points to when cur is in no export of this client any more and the request gives
	 * state back (name_ops.c). */
	struct exp_grant gone;

	struct ns_cred cred; /* squashed by cur's export */

	/* see credentials.c */
	struct exp_view *view;
	struct ask_val *groups, *answer;
	struct ask_wait wait;
	bool no_answer; /* the lookup gave no answer in time, or there is no memory for one */
	void (*go)(struct compound *c);
	uint8_t sec; /* enum exp_sec of the request */

	/* idmap.c: a name was missing, so the operation could not be done. It has changed nothing,
	 * and it is run again from its arguments. */
	bool names_wait;
	unsigned names_tries;
	const uint8_t *args_at;

	/* await_grace.c: the next that waits; how long; grace_asked: the operation has waited */
	struct compound *grace_next;
	uint64_t grace_until_ns;
	bool grace_asked;

	/* The current mutation, and the memory that the operation needs while it is parked:
	 * op_scratch allocates it, and the frame frees it when the operation is done. */
	struct kv_op kop;
	void *scratch;
	void (*scratch_fini)(void *scratch);
	op_step *then; /* await.c: the step that runs when what is waited for is over; or NULL */
	bool woken;    /* await.c: it was over before the operation waited for it, with woken_err */
	int woken_err;
	int (*run)(struct kv_op *op, struct kv_txn *t);
	op_put_fn put;
	/* op_deleg.c: the size that the holder of a write delegation reported for this file */
	uint64_t told_ino, told_size;
	struct ns_acl *acl; /* of the operation's attributes; freed with scratch */
	/* A file that may have a mark in the store for a write layout which the compound does not
	 * get (op_intent_unused), or 0. */
	uint64_t marked;
	void *sub; /* a job inside the operation (setattr.c): malloc'd, freed with scratch */
};

typedef nfsstat4 (*op_fn)(struct compound *c);

/* The dispatch function of the NFS4 program. */
void op_dispatch(struct rpc_call *call, void *mds);
/* serve.c. True: the server does not serve yet. The call is queued, and op_serve dispatches it
 * again; if too many calls wait, it gets a SYSTEM_ERR reply. Any thread. */
bool op_serve_waits(struct mds *m, struct rpc_call *call);
void op_serve(struct mds *m);
/* Puts the event that ends the request in the trace. client: its number, or 0. */
void op_trace_end(const struct compound *c, uint32_t client);
/* Registers the MDS's operation metrics. Call it once, before the first call is served. */
void op_metrics_init(struct mds *m);
/* Returns the RFC's name of an operation number, or NULL if none is defined. */
const char *op_name(unsigned opnum);
/* Closes the result of a parked operation and runs the next ones. Only await.c and compound.c call
 * it, on the compound's loop. */
void op_resume(struct compound *c, nfsstat4 status);
/* Allocates zeroed memory that lives until the operation ends; fini (may be NULL) is called before
 * it is freed. NULL: no memory. */
void *op_scratch(struct compound *c, size_t size, void (*fini)(void *));
/* Returns this turn's snapshot for reading. It is valid until the turn ends, or op_txn_stale. */
struct kv_txn *op_txn(struct compound *c);
struct kv_txn *op_thread_txn(struct mds_thread *th);
/* Drops the snapshot, so that the next op_txn sees everything that is committed by then. */
void op_txn_stale(struct mds_thread *th);
/* Releases what the thread holds of the store and of the exports. Call it after its loop has
 * ended. */
void op_thread_end(struct mds_thread *th);
/* Submits a mutation and awaits its commit; the step then gets the error. The same transaction
 * stores the result that put makes, so that a retry after a restart gets the same answer: what the
 * operation answers if nothing more of it is done. */
nfsstat4 op_mutate(struct compound *c, int (*run)(struct kv_op *op, struct kv_txn *t),
		   op_put_fn put, op_step *then);
/* The same without a stored result, for mutations that may be done again after a restart. Each
 * caller has a comment that says why its mutation may. */
nfsstat4 op_mutate_again(struct compound *c, int (*run)(struct kv_op *op, struct kv_txn *t),
			 op_step *then);
/* Puts the result of the current mutation, or any other that an op_put_fn makes, into the reply.
 * Returns NFS4_OK. */
nfsstat4 op_result(struct compound *c, op_put_fn put);
/* An op_put_fn for operations whose result is a status only. */
void op_put_nothing(struct compound *c, struct xdr_out *x, struct op_after *after);
static inline struct compound *op_of(struct kv_op *op)
{
	return (struct compound *)((char *)op - offsetof(struct compound, kop));
}
/* Maps an errno to an NFS status. No other place does. */
nfsstat4 op_status(int err);

/* Bytes for the result of an operation that fails: number, status, SETATTR's bitmap. They stay free
 * until the last operation (RFC 8881 section 2.10.6.4). */
#define OP_ERROR_ROOM 12
static inline size_t op_reply_room(const struct xdr_out *x)
{
	return x->bad ? 0 : x->x_limit - x->x_len - x->x_payload;
}
nfsstat4 op_too_big(const struct compound *c);

/* Decodes and checks a component4 from the arguments. */
nfsstat4 op_get_name(struct xdr_in *x, const char **name, size_t *len);

/* Fills in m_file. Call it once, when the fields that it copies are set. */
void op_file_env(struct mds *m);

/* replay.c: hashes the caller and all bytes after SEQUENCE. */
void op_replay_check(const struct compound *c, uint8_t out[16]);
/* W: puts the row of the current mutation. */
int op_replay_put(struct compound *c, struct kv_txn *t);
/* Does an earlier boot's row answer this session, slot and sequence? Any thread. */
bool op_replay_kept(struct mds *m, const uint8_t *id, uint32_t seq, uint32_t slot);
/* For a SEQUENCE of an unknown session, after its arguments were decoded: continues from the row of
 * an earlier boot. BADSESSION if there is none; DELAY if the exports or groups are not known
 * yet. */
nfsstat4 op_replay_retry(struct compound *c, const uint8_t *id, uint32_t seq, uint32_t slot);

/* the operations */
nfsstat4 op_access(struct compound *c), op_close(struct compound *c), op_commit(struct compound *c),
	op_create(struct compound *c), op_getattr(struct compound *c), op_getfh(struct compound *c),
	op_link(struct compound *c), op_lookup(struct compound *c), op_lookupp(struct compound *c),
	op_open(struct compound *c), op_open_downgrade(struct compound *c),
	op_putfh(struct compound *c), op_putrootfh(struct compound *c), op_read(struct compound *c),
	op_readdir(struct compound *c), op_readlink(struct compound *c),
	op_remove(struct compound *c), op_rename(struct compound *c),
	op_restorefh(struct compound *c), op_savefh(struct compound *c),
	op_secinfo(struct compound *c), op_setattr(struct compound *c),
	op_verify(struct compound *c), op_nverify(struct compound *c), op_write(struct compound *c),
	op_bind_conn(struct compound *c), op_exchange_id(struct compound *c),
	op_create_session(struct compound *c), op_destroy_session(struct compound *c),
	op_free_stateid(struct compound *c), op_getdeviceinfo(struct compound *c),
	op_layoutcommit(struct compound *c), op_layoutget(struct compound *c),
	op_layoutreturn(struct compound *c), op_lock(struct compound *c),
	op_lockt(struct compound *c), op_locku(struct compound *c),
	op_secinfo_no_name(struct compound *c), op_sequence(struct compound *c),
	op_test_stateid(struct compound *c), op_destroy_clientid(struct compound *c),
	op_reclaim_complete(struct compound *c), op_layouterror(struct compound *c),
	op_layoutstats(struct compound *c), op_getxattr(struct compound *c),
	op_setxattr(struct compound *c), op_listxattrs(struct compound *c),
	op_removexattr(struct compound *c), op_backchannel_ctl(struct compound *c),
	op_set_ssv(struct compound *c), op_allocate(struct compound *c),
	op_deallocate(struct compound *c), op_seek(struct compound *c),
	op_read_plus(struct compound *c), op_io_advise(struct compound *c),
	op_copy(struct compound *c), op_clone(struct compound *c),
	op_layout_wcc(struct compound *c), op_offload_status(struct compound *c),
	op_offload_cancel(struct compound *c), op_delegreturn(struct compound *c),
	op_want_delegation(struct compound *c);

/* op_open.c: do OPEN's arguments, from here on, claim by a component name? */
bool op_open_has_name(struct xdr_in *x);
/* Reads the inode of c->cur. NOFILEHANDLE, STALE. */
nfsstat4 op_cur_inode(struct compound *c, struct ns_inode *i);
/* The slot's request ends: stores the reply. */
void op_slot_done(struct compound *c);
/* Copies everything that was put after position from of the head. */
void op_reply_copy(const struct xdr_out *x, size_t from, uint8_t *to);
#endif
