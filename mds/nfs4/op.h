/*
 * op.h - COMPOUND (RFC 8881 section 16.2): the server runs it operation by operation, from the
 * receive buffer into the reply buffer.
 *
 * An operation is one function. It decodes its arguments from c->in, puts its result body into
 * c->out, where opnum and status already are, and returns its status. Or it parks: it returns
 * OP_PARKED, and a completion later calls op_resume(c, status) on the compound's loop. While an
 * operation is parked, c->in and c->out keep their positions. If the status is an error, the frame
 * cuts what the operation put, unless the operation set c->keep_body.
 */
#ifndef MDS_OP_H
#define MDS_OP_H
#include "mds/file/evict.h"
#include "mds/file/mirror_state.h"
#include "mds/file/file_size.h"
#include "mds/jobs/contended.h"
#include "mds/jobs/dead_server.h"
#include "mds/mds.h"

#define OP_PARKED  0xffffffffu
#define OP_MAX_OPS 64
#define OP_MAX_IO  (1u << 20)
#define OP_FH_LEN  28

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

	/* The current mutation, and the memory that the operation needs while it is parked:
	 * op_scratch allocates it, and the frame frees it when the operation is done. */
	struct kv_op kop;
	void *scratch;
	void (*scratch_fini)(void *scratch);
	nfsstat4 (*then)(struct compound *c, int err);
	nfsstat4 (*refreshed)(struct compound *c, int err); /* see op_refresh */
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
/* Registers the MDS's operation metrics. Call it once, before the first call is served. */
void op_metrics_init(struct mds *m);
/* Returns the RFC's name of an operation number, or NULL if none is defined. */
const char *op_name(unsigned opnum);
/* Resumes a parked compound. Call it on the compound's loop. */
void op_resume(struct compound *c, nfsstat4 status);
/* waits: the compound parks until a client has given something back, and meanwhile does not keep
 * that client's requests from being read (rpc_call_waits). This ends when the compound is resumed,
 * or with waits false. Returns true. */
static inline bool op_set_parked(struct compound *c, bool waits)
{
	rpc_call_waits(c->call, waits);
	return true;
}
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
/* Submits a mutation and parks. After the commit, then(c, err) is called on the loop and returns
 * the operation's status (or OP_PARKED). The same transaction stores the result that put makes, so
 * that a retry after a restart gets the same answer: what the operation answers if nothing more of
 * it is done. Returns OP_PARKED. */
nfsstat4 op_mutate(struct compound *c, int (*run)(struct kv_op *op, struct kv_txn *t),
		   op_put_fn put, nfsstat4 (*then)(struct compound *c, int err));
/* The same without a stored result, for mutations that may be done again after a restart. Each
 * caller has a comment that says why its mutation may. */
nfsstat4 op_mutate_again(struct compound *c, int (*run)(struct kv_op *op, struct kv_txn *t),
			 nfsstat4 (*then)(struct compound *c, int err));
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

/* see op_attr.c */
struct op_bitmap {
	uint32_t w[NFS4_ATTRS_WORDS];
};
static inline bool op_bit(const struct op_bitmap *b, unsigned n)
{
	return b->w[n / 32] >> (n % 32) & 1;
}
static inline void op_bit_set(struct op_bitmap *b, unsigned n)
{
	b->w[n / 32] |= 1u << (n % 32);
}
void op_get_bitmap(struct xdr_in *x, struct op_bitmap *b, bool *extra);
void op_put_bitmap(struct xdr_out *x, const struct op_bitmap *b);
/* Puts the inode's attributes of want as a fattr4. */
void op_put_attrs(struct compound *c, struct xdr_out *x, const struct op_bitmap *want,
		  const struct ns_inode *i);
extern const struct op_bitmap op_attrs_exclcreat;
/* The settable attributes of a fattr4 from the arguments, with the mask of mode_umask applied. set:
 * the attributes that were asked for. */
struct op_sattr {
	struct ns_setattr s;
	struct op_bitmap set;
	/* Only the times that a delegation's holder kept: s_atime and s_mtime, where s_mask has
	 * them. */
	bool deleg_times;
	bool has_size, has_umask;
	uint32_t mirrors; /* of layout_hint; 0: none */
	uint16_t umask;	  /* of mode_umask (RFC 8275) */
};
/* Fills in the part of ns_create's arguments that comes from attributes: mode (fallback if none was
 * given), owner, group, times, ACL. */
nfsstat4 op_sattr_create(const struct compound *c, const struct op_sattr *sa, uint16_t fallback,
			 struct ns_create_args *a);

/* op_acl.c: op_get_acl decodes acl, or dacl, of a settable fattr4 into c->acl; op_put_acl puts
 * it. */
nfsstat4 op_get_acl(struct compound *c, struct xdr_in *x, bool dacl, struct ns_acl **out);
void op_put_acl(struct compound *c, struct xdr_out *x, const struct ns_inode *i, bool dacl);
/* If want has an ACL attribute: may the caller read the ACL? OK or ACCESS. */
nfsstat4 op_acl_readable(const struct compound *c, const struct op_bitmap *want,
			 const struct ns_inode *i);
/* op_attr.c: INVAL if want has an attribute that can only be set (RFC 8881 section 18.7.3). */
nfsstat4 op_want_status(const struct compound *c, const struct op_bitmap *want);

nfsstat4 op_get_sattr(struct compound *c, struct xdr_in *x, struct op_sattr *a, bool create);
/* Does a GETATTR of these attributes need the data servers while a write layout is out? */
bool op_attrs_need_ds(const struct op_bitmap *b);

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

/* atime.c. op_atime_init: call it once, before anything is served. op_atime_tick: call it many
 * times a second, on any loop. op_accessed: a client that may read i has read it; call it on the
 * compound's loop. */
void op_atime_init(struct mds *m, bool on);
void op_atime_tick(struct loop *loop);
void op_accessed(struct compound *c, const struct ns_inode *i);

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
/* reload.c: recalls layouts and delegations that were granted under exports which have changed. Any
 * thread; loop does the work. */
void op_exports_changed(struct mds *m, struct loop *loop, const struct exp_table *old,
			const struct exp_table *now);

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
 * op_exports_changed then sees whatever is registered under the same lock. */
static inline bool op_exports_stand(const struct compound *c)
{
	return c->view->v_table->t_generation == export_set_generation(c->m->m_exports);
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

/* stateids */
void op_put_stateid(struct xdr_out *x, const struct st_stateid *s);
void op_get_stateid(struct xdr_in *x, struct st_stateid *s);
/* Replaces the special stateid that means the current one (seqid 1, other zero; RFC 8881 section
 * 8.2.3). BAD_STATEID if there is no current stateid. */
nfsstat4 op_resolve_sid(struct compound *c, struct st_stateid *s);
void op_set_current_sid(struct compound *c, const struct st_stateid *s);
/* Under st_look_lock or a lock that excludes it: must a LOCK that is not a reclaim wait, for the
 * end of the grace period or for the client's RECLAIM_COMPLETE (RFC 8881 section 18.51.3)? */
static inline bool op_lock_grace(const struct compound *c)
{
	return st_in_grace(c->m->m_st) || !atomic_load(&c->client->cl_ready);
}
/* Compares a stateid's seqid with the current one (RFC 8881 section 8.2.2). 0 stands for the
 * current one. */
static inline nfsstat4 op_seqid_status(const struct st_stateid *s, uint32_t current)
{
	if (!s->seqid || s->seqid == current)
		return NFS4_OK;
	return s->seqid < current ? NFS4ERR_OLD_STATEID : NFS4ERR_BAD_STATEID;
}
/* op_io.c; locked: finds the client's open of the file that an open or lock stateid stands for, and
 * checks the seqid. BAD_STATEID, OLD_STATEID, DELEG_REVOKED. */
nfsstat4 op_open_by_sid(struct compound *c, const struct st_stateid *s, uint64_t ino,
			struct st_open **out);
/* op_io.c; locked: may this user do I/O with this share access (one bit) on the file, under a
 * stateid of its client? Yes for the file's owner, a user whom the mode or ACL permits, a user who
 * opened the file for it, and any user under a delegation. Else ACCESS. */
nfsstat4 op_user_access(struct compound *c, const struct ns_inode *i, uint32_t need);
/* op_io.c: may I/O with this share access use a special stateid? GRACE; LOCKED if another open
 * denies it; DELAY while a client whose lease has run out is evicted, or a delegation is
 * recalled. */
nfsstat4 op_special_io(struct compound *c, uint64_t ino, uint32_t need);
/* op_io.c: OK for a regular file, else the error of I/O and locks for this file type (RFC 8881
 * sections 18.10.3, 18.22.3, 18.32.3, 18.3.3). */
nfsstat4 op_regular(const struct ns_inode *i);

/* op_io.c: checks the stateid of an I/O: special ones by permission, others by their open. */
nfsstat4 op_io_access(struct compound *c, struct st_stateid *sid, const struct ns_inode *i,
		      bool write);
/* op_io.c: the same without a check of the user, for operations that the stock client sends as the
 * calling user and not as the user who opened the file (RFC 7862: ALLOCATE, DEALLOCATE, SEEK, COPY,
 * CLONE). */
nfsstat4 op_any_io_access(struct compound *c, struct st_stateid *sid, const struct ns_inode *i,
			  bool write);
/* Pins a file while the MDS changes its data. f_sizegen shows whether a size was set meanwhile:
 * then the whole change is done again, because under the old epoch it may be cut, or not. Zero *p
 * before its first use. False: a size is being set, layouts are being recalled and fenced, or the
 * file is frozen; a pin that *p already has stays. */
struct op_pin {
	struct mds *p_m;
	uint64_t p_ino, p_sizegen;
};
bool op_pin(struct op_pin *p, struct mds *m, uint64_t ino);
bool op_pin_outdated(const struct op_pin *p);
void op_unpin(struct op_pin *p);
/* How READ and READ_PLUS begin: decodes the arguments, checks that the stateid may read (a current
 * stateid is resolved in *sid), and checks that the expected reply has room. */
nfsstat4 op_read_args(struct compound *c, struct st_stateid *sid, uint64_t *off, uint32_t *count);
/* Maps the data servers' errors to a status. A server that cannot be reached now may come back: the
 * client gets DELAY and waits, as it would for any NFS server. */
nfsstat4 op_data_status(int err);
/* err is -ESTALE when data servers report that objects are gone. If the file is gone too, err
 * stays. Else the file handle is good and the data is lost: this logs it and returns -EIO. Other
 * errors stay. */
int op_lost_err(struct compound *c, uint64_t ino, int err);
/* file_partial_done (mds/file/mirror_state.h) for a change of [off, end) by the compound's client.
 * told: the status that the client gets. If it is DELAY, the server remembers the range until the
 * client has repeated the change, and judges the file if the client does not. */
bool op_partial_reported(struct compound *c, uint64_t ino, uint64_t off, uint64_t end,
			 const struct lo_map *map, uint64_t objects, nfsstat4 told, int why,
			 void (*then)(void *arg), void *arg);
/* The client has repeated the change in every copy that counts. */
void op_partial_over(struct compound *c, uint64_t ino, uint64_t off, uint64_t end);
/* Has the file been fenced or placed again since i and map were read? Then I/O by them may be of
 * two states of the file, or of none. */
bool op_io_outdated(struct compound *c, const struct ns_inode *i, const struct lo_map *map);
/* W: records that the file's data changed and reaches at least to end, and that the objects of
 * failed (of map by, which the change used) did not take it. */
int op_data_changed(struct mds *m, struct kv_txn *t, uint64_t ino, const struct ns_cred *cred,
		    uint64_t end, uint64_t failed, const struct lo_map *by,
		    struct excl_layout_block *hold);

/* copy.c: may the compound read the saved file and write the current one? Both must be regular
 * files. */
nfsstat4 op_two_files(struct compound *c, struct st_stateid *src_sid, struct st_stateid *dst_sid,
		      struct ns_inode *src);

/* layoutstats.c: decodes one ff_iostats4, and notes its figures if counts is true. */
void op_get_iostats(struct compound *c, struct xdr_in *x, bool counts);

/* unread.c: what clients could not read. */
#define OP_DEV_ERRORS 64
struct op_dev_error {
	uint8_t dev[16];
	uint32_t status, opnum;
};
/* Remembers for a few seconds the READ errors that the client reported for a layout of the file. */
void op_unread_report(struct compound *c, uint64_t ino, const struct op_dev_error *e, unsigned n);
/* OK, or the status of a LAYOUTGET for reading if a stripe has no copy that this client can
 * read. */
nfsstat4 op_unread(struct compound *c, uint64_t ino, const struct lo_map *map);
/* Remembers the data servers that this client reports as unreachable, in any operation, if we reach
 * them. */
void op_unreached_report(struct compound *c, const struct op_dev_error *e, unsigned n);
/* Would a write layout name a server that this client does not reach, and we do? Then the client
 * has to write through us. */
bool op_unreached(struct compound *c, const struct lo_map *map);
/* op_data_status for I/O by this map: DELAY for a server that is away, but IO once op_all_gone. */
nfsstat4 op_read_status(struct mds *m, const struct lo_map *map, int err);

/* OK, or the status of a LAYOUTGET for a file with objects on dead servers. */
nfsstat4 op_dead_status(struct mds *m, const struct lo_map *map, bool write);
/* unread.c: does a stripe have no copy in sync, except on servers that are killed or forgotten, or
 * silent for mds.io_error_after? */
bool op_all_gone(struct mds *m, const struct lo_map *map);

/* Decodes and checks a component4 from the arguments. */
nfsstat4 op_get_name(struct xdr_in *x, const char **name, size_t *len);

/* setattr.c: brings the inode's size, change attribute and mtime up to date from the data servers.
 * True: parked, and then(c, err) is called. False: there was nothing to do, and then is not called.
 * force: even if no write layout is out. unmark: see file_refresh. */
bool op_refresh(struct compound *c, uint64_t ino, bool force, bool unmark,
		nfsstat4 (*then)(struct compound *c, int err));
/* Notes that the compound may leave a mark in the store for ino without a layout to write it. The
 * compound notes one such file at a time. */
void op_intent_doubt(struct compound *c, uint64_t ino);
/* The compound is over: deletes the mark of the noted file soon, without asking the data servers,
 * if no client got a layout by it. Locks the file. */
void op_intent_unused(struct compound *c);

/* op_layout.c. W: a client is about to get a capability of the file's present epoch; clears
 * lm_clean. */
int op_map_given(struct mds *m, struct kv_txn *t, const struct ns_inode *i);
/* Fills in m_file. Call it once, when the fields that it copies are set. */
void op_file_env(struct mds *m);
/* op_deleg.c: the answer to a request for a delegation */
struct op_deleg {
	uint32_t d_type; /* OPEN_DELEGATE_NONE: none, and d_why has the reason */
	uint32_t d_why;
	bool d_times;
	struct st_stateid d_sid;
	uint64_t d_limit; /* of a write delegation: bytes up to which the file may grow */
};
/* Grants the client a delegation on a file that it may access in this way, if it wants one and
 * nothing conflicts. Take what the client learns after this from a new snapshot. */
void op_deleg_give(struct compound *c, const struct ns_inode *i, uint32_t access, uint32_t want,
		   struct op_deleg *d);
void op_deleg_reclaim(struct compound *c, const struct ns_inode *i, uint32_t type,
		      struct op_deleg *d);
/* locked: would a delegation of this type conflict with another client's opens, layouts or
 * delegations? */
bool op_deleg_conflicts(const struct st_file *f, const struct st_client *c, uint32_t type);
void op_put_deleg(struct xdr_out *x, const struct op_deleg *d, bool told);
/* locked: finds the client's delegation on the current file. BAD_STATEID, OLD_STATEID,
 * DELEG_REVOKED. */
nfsstat4 op_deleg_by_sid(struct compound *c, const struct st_stateid *sid, struct st_open **out);
/* Does another client hold any delegation? If not, there is nothing to look for. */
bool op_delegs_out(struct compound *c);
/* Recalls other clients' delegations on up to two files (ino 0: none) that conflict with such an
 * access, and revokes them at the deadline; then calls then(c, err). False: there are none, and
 * then is not called. */
bool op_deleg_clear(struct compound *c, const uint64_t *ino, unsigned n, uint32_t access,
		    uint32_t deny, nfsstat4 (*then)(struct compound *c, int err));
/* In grace: may another client have a delegation on this file that it has not reclaimed yet, and
 * that we therefore cannot recall (RFC 8881 section 8.4.2.1)? Not if the caller's client has an
 * open or a delegation for writing: then no other client has a delegation. */
bool op_deleg_grace(struct compound *c, uint64_t ino);
/* Does another client's delegation conflict with this access? Recalls it without waiting. */
bool op_deleg_stands(struct compound *c, uint64_t ino, uint32_t access);
/* The deadline of a recalled delegation on the file has passed: revokes it, and if it was for
 * writing recalls and fences the file's layouts. */
void op_deleg_overdue(struct mds *m, struct loop *loop, uint64_t ino);
/* After the commit of a change: recalls the delegations that other clients got meanwhile. ino 0:
 * none. */
void op_deleg_late(struct compound *c, uint64_t ino);
/* Asks another client that holds a write delegation for the file's size and times, commits what is
 * new, then calls then(c, err). False: no client has one, and then is not called. */
bool op_deleg_ask(struct compound *c, uint64_t ino, nfsstat4 (*then)(struct compound *c, int err));

/* op_lock.c; locked: locks of the file were released or became weaker. Notifies clients that wait
 * for one. */
void op_locks_gone(struct mds *m, struct st_file *f);

/* setattr.c: sets attributes of ino. If the size shrinks or a right is taken, recalls and fences
 * layouts and waits for orders. Then calls then(c, err). */
nfsstat4 op_do_setattr(struct compound *c, uint64_t ino, const struct op_sattr *a, bool have_write,
		       op_put_fn put, nfsstat4 (*then)(struct compound *c, int err));

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
/* Call it every tick. Deletes the rows of ended sessions, and once grace is over those of earlier
 * boots. */
void op_replay_tick(struct mds *m, struct loop *loop);

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
/* orphan.c: frees inodes in ns_remove and ns_rename. An inode that is open stays as an orphan. For
 * others deletions are queued, and new opens are blocked until op_free_done. */
struct op_free_ctx {
	struct mds *m;
	struct st_client *client; /* the client that removes; NULL: none */
	uint64_t removing, orphaned;
};
void op_free_ops(struct op_free_ctx *ctx, struct mds *m, struct st_client *client,
		 struct ns_free_ops *fo);
/* Call it on the loop, after the mutation. */
void op_free_done(struct op_free_ctx *ctx, int err);
/* CLOSE and DELEGRETURN. find (locked) says which of the client's opens and delegations on the
 * current file sid names, or why it may not be given up. op_give_up releases it, and with the last
 * one of a removed file frees the file. The caller has already put its result, which is cut if this
 * fails. */
typedef nfsstat4 (*op_find_fn)(struct compound *c, const struct st_stateid *sid,
			       struct st_open **out);
nfsstat4 op_give_up(struct compound *c, const struct st_stateid *sid, op_find_fn find);
/* Frees orphans that no client has open. Call it after the grace period and after evictions. */
void op_orphan_sweep(struct mds *m, struct loop *loop);
/* Returns the file system's space in bytes, summed over the data servers that live. */
void op_space(struct mds *m, uint64_t *total, uint64_t *avail);
void op_put_cinfo(struct xdr_out *x, const struct ns_cinfo *ci);
/* Makes the map of a new file: lo_place as ns_create_args.a_map. */
struct op_place {
	struct mds *m;
	struct kv_txn *t; /* the transaction that makes the file */
	bool given;	  /* a layout is granted with the file */
	/* a hint, followed where the policy's other values permit it; 0: none */
	uint32_t mirrors;
	bool stripes;
};
int op_place_map(void *arg, const struct ns_inode *i, struct kv_slice policy, uint8_t *buf,
		 size_t max, size_t *len);
/* SETXATTR of user.weft.policy on an empty file: places the file again by that policy. The file is
 * frozen meanwhile, and orders delete its former objects. EXIST: the file is not empty. c->scratch
 * must begin with this struct; ag_put puts the result. The scratch's fini thaws the file. */
struct op_again {
	struct excl ag_freeze;
	struct lo_policy ag_policy;
	struct ns_cinfo *ag_ci;
	op_put_fn ag_put;
};
nfsstat4 op_place_again(struct compound *c);
/* Is this the name of a virtual xattr? */
bool op_xattr_virtual(const char *name, size_t len);
/* The slot's request ends: stores the reply. */
void op_slot_done(struct compound *c);
/* Copies everything that was put after position from of the head. */
void op_reply_copy(const struct xdr_out *x, size_t from, uint8_t *to);
#endif
