/*
 * op.h - COMPOUND (RFC 8881 section 16.2): executed operation by operation from the receive buffer
 * into the reply buffer.
 *
 * An operation is one function. It decodes its arguments from c->in, puts its result body into
 * c->out (opnum and status are there already) and returns its status; or it parks: it returns
 * OP_PARKED and later somebody calls op_resume(c, status) on the compound's loop. While parked,
 * c->in and c->out keep their places. On an error status what the operation put is cut, unless it
 * set c->keep_body.
 */
#ifndef MDS_OP_H
#define MDS_OP_H
#include "mds/file/evict.h"
#include "mds/file/mirror.h"
#include "mds/file/size.h"
#include "mds/jobs/contend.h"
#include "mds/jobs/dead.h"
#include "mds/mds.h"

#define OP_PARKED  0xffffffffu
#define OP_MAX_OPS 64
#define OP_MAX_IO  (1u << 20)
#define OP_FH_LEN  28

/* The current file handle and stateid that an operation leaves. */
struct op_after {
	uint64_t cur;
	bool have_sid;
	struct st_stateid sid;
};
struct compound;
/* The result body of an operation whose mutation has been done, and what it leaves. It is called
 * twice: in the transaction, for the row that answers a retry after a restart (once.c), on the
 * committer thread, with what the operation changes still as it was; and for the reply. */
typedef void (*op_put_fn)(struct compound *c, struct xdr_out *x, struct op_after *after);

struct compound {
	struct mds *m;
	struct mds_thread *th;
	struct rpc_call *call;
	struct xdr_in *in;
	struct xdr_out *out;
	uint32_t minor, nops, at; /* at: index of the operation in hand */
	uint32_t opnum;
	size_t numres_at, status_at; /* places in out */
	nfsstat4 status;
	bool keep_body;
	uint64_t started_ns;

	/* session */
	struct st_session *session;
	struct st_slot *slot;
	struct st_client *client; /* of the session */
	bool cachethis;
	nfsstat4 fail_next; /* of the operation after SEQUENCE */
	bool replayed;	    /* the reply is a kept one */
	/* the reply is limited by what is cached, not by what is sent */
	bool cached_only;
	size_t seq_end; /* out length after SEQUENCE's result */
	uint32_t once_slot, once_seq, once_slots, once_target;
	const uint8_t *once_args; /* the first operation after SEQUENCE */
	uint8_t once_check[16];	  /* op_once_check, for the mutation in hand */
	/* the mutation in hand: whose orders are waited for after it */
	uint64_t once_orders;
	/* it found nothing that may be done now: no result of it is kept */
	bool once_none;
	/* answered from the row of an earlier boot: only what reads is run */
	bool again;

	/* attr.c: of the operation in hand, the directory whose files' threshold was looked up
	 * last, or 0 */
	uint64_t threshold_dir, threshold;

	/* heat.c: the last directory that was worked in, or 0; c->cur before OPEN */
	uint64_t heat_dir, heat_from;

	/* file handles: inode numbers, 0 is none */
	uint64_t cur, saved;
	/* where they are: set whenever cur and saved are. wrongsec: this request's flavour is not
	 * one of cur's export; only what may follow a put operation then (RFC 8881 section
	 * 2.6.3.1.1) is done. */
	const struct exp_grant *exp, *saved_exp;
	bool wrongsec;
	struct st_stateid cur_sid, saved_sid;
	bool have_sid, saved_have_sid;

	/* what cur is in when it is no export of this client's any more, and the request gives
	 * state back (fs.c) */
	struct exp_grant gone;

	struct ns_cred cred; /* squashed as cur's export says */

	/* peer.c */
	struct exp_view *view;
	struct ask_val *groups, *answer;
	struct ask_wait wait;
	bool no_answer; /* it is not known in time, or no memory for one */
	void (*go)(struct compound *c);
	uint8_t sec; /* enum exp_sec of the request */

	/* names.c: the operation could not be done for want of a name. It has changed nothing, and
	 * is run again from its arguments. */
	bool names_wait;
	unsigned names_tries;
	const uint8_t *args_at;

	/* the mutation in hand, and whatever the operation needs across its park: malloc'd by
	 * op_scratch, freed when the operation is done */
	struct kv_op kop;
	void *scratch;
	void (*scratch_fini)(void *scratch);
	nfsstat4 (*then)(struct compound *c, int err);
	nfsstat4 (*refreshed)(struct compound *c, int err); /* op_refresh */
	int (*run)(struct kv_op *op, struct kv_txn *t);
	op_put_fn put;
	/* of a file whose holder of a write delegation was asked: its size (deleg.c) */
	uint64_t told_ino, told_size;
	struct ns_acl *acl; /* of the operation's attributes; freed with scratch */
	/* a file that may be marked in the store for a write layout which the compound does not get
	 * (op_mark_unused) */
	uint64_t marked;
	void *sub; /* a job inside the operation (setattr.c): malloc'd, freed with scratch */
};

typedef nfsstat4 (*op_fn)(struct compound *c);

/* The NFS4 program's dispatch. */
void op_dispatch(struct rpc_call *call, void *mds);
/* serve.c. True: it is not time to serve; the call waits, and is dispatched again by op_serve. */
bool op_serve_waits(struct mds *m, struct rpc_call *call);
void op_serve(struct mds *m);
/* Registers the MDS's operation metrics: once, before the first call. */
void op_metrics_init(struct mds *m);
/* The RFC name of an operation number, or NULL where none is defined. */
const char *op_name(unsigned opnum);
/* On the compound's loop. */
void op_resume(struct compound *c, nfsstat4 status);
/* The compound parks until a client has given something back: it does not keep that client's
 * requests from being read (rpc_call_waits). Over when it is resumed, or with false. True. */
static inline bool op_waits(struct compound *c, bool waits)
{
	rpc_call_waits(c->call, waits);
	return true;
}
/* Zeroed memory until the operation ends. NULL: no memory. */
void *op_scratch(struct compound *c, size_t size, void (*fini)(void *));
/* A snapshot for reading, of this turn. */
struct kv_txn *op_txn(struct compound *c);
struct kv_txn *op_thread_txn(struct mds_thread *th);
/* Drops it, so that the next op_txn sees all that is committed now. */
void op_txn_stale(struct mds_thread *th);
/* What the thread holds of the store and of tables, when its loop has ended. */
void op_thread_end(struct mds_thread *th);
/* Runs a mutation, parks; then(c, err) is called on the loop after the commit and gives the
 * operation's status (or OP_PARKED). The same transaction keeps the result, so that a retry is
 * answered alike after a restart: what the operation answers if nothing more of it is done. */
nfsstat4 op_mutate(struct compound *c, int (*run)(struct kv_op *op, struct kv_txn *t),
		   op_put_fn put, nfsstat4 (*then)(struct compound *c, int err));
/* The same, and no result is kept: for what may be done again after a restart. The caller says why
 * it may. */
nfsstat4 op_mutate_again(struct compound *c, int (*run)(struct kv_op *op, struct kv_txn *t),
			 nfsstat4 (*then)(struct compound *c, int err));
/* The result of the mutation in hand goes into the reply, or another's that is put the same way.
 * NFS4_OK. */
nfsstat4 op_result(struct compound *c, op_put_fn put);
/* An op_put_fn, of operations whose status is all there is. */
void op_put_nothing(struct compound *c, struct xdr_out *x, struct op_after *after);
static inline struct compound *op_of(struct kv_op *op)
{
	return (struct compound *)((char *)op - offsetof(struct compound, kop));
}
/* errno to NFS status: the one place. */
nfsstat4 op_status(int err);

/* Room for the result of an operation that fails: number, status, SETATTR's bitmap. Kept free until
 * the last (RFC 8881 section 2.10.6.4). */
#define OP_ERROR_ROOM 12
static inline size_t op_room(const struct xdr_out *x)
{
	return x->bad ? 0 : x->x_limit - x->x_len - x->x_payload;
}
nfsstat4 op_too_big(const struct compound *c);

/* attr.c */
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
/* A fattr4 of the inode. */
void op_put_attrs(struct compound *c, struct xdr_out *x, const struct op_bitmap *want,
		  const struct ns_inode *i);
extern const struct op_bitmap op_attrs_exclcreat;
/* A settable fattr4 from the arguments. set: what was asked, as a bitmap. mask32 from mode_umask
 * applied. */
struct op_sattr {
	struct ns_setattr s;
	struct op_bitmap set;
	/* what a delegation's holder kept, and nothing else: s_atime and s_mtime where s_mask says
	 * so */
	bool deleg_times;
	bool has_size, has_umask;
	uint32_t mirrors; /* layout_hint's; 0: none */
	uint16_t umask;	  /* RFC 8275: of mode_umask */
};
/* What ns_create is told of them: mode, or fallback where none was given, owner, group, times,
 * ACL. */
nfsstat4 op_sattr_create(const struct compound *c, const struct op_sattr *sa, uint16_t fallback,
			 struct ns_create_args *a);

/* acl.c: acl, or dacl, from a settable fattr4 into c->acl, and onto the wire. */
nfsstat4 op_get_acl(struct compound *c, struct xdr_in *x, bool dacl, struct ns_acl **out);
void op_put_acl(struct compound *c, struct xdr_out *x, const struct ns_inode *i, bool dacl);
/* Whether the caller may read the ACL, where it is wanted: OK or ACCESS. */
nfsstat4 op_acl_readable(const struct compound *c, const struct op_bitmap *want,
			 const struct ns_inode *i);
/* attr.c: set-only attributes cannot be asked for (section 18.7.3): INVAL. */
nfsstat4 op_want_status(const struct compound *c, const struct op_bitmap *want);

nfsstat4 op_get_sattr(struct compound *c, struct xdr_in *x, struct op_sattr *a, bool create);
/* Does a GETATTR of these need the data servers while a write layout is out? */
bool op_attrs_need_ds(const struct op_bitmap *b);

/* fh */
/* export: exp_grant.g_id of where it is given out. Callbacks carry the bytes that GETFH gave, so
 * they are made with the same. */
void op_fh_make(struct mds *m, uint16_t export, uint64_t ino, uint8_t out[OP_FH_LEN]);
/* OK, BADHANDLE, or STALE: of this store, but from before it was restored. */
nfsstat4 op_fh_open(struct mds *m, const uint8_t *fh, uint32_t len, uint16_t *export,
		    uint64_t *ino);
/* Of a current file handle whose export is no more the client's: may the operation in hand be done?
 * OK for all others. */
nfsstat4 op_gone(const struct compound *c);
/* The current file handle's export. */
static inline uint16_t op_export(const struct compound *c)
{
	return c->exp->g_id;
}

/* atime.c: once, before anything is served; many times a second, on any loop; and i was read, by a
 * client that may: on the compound's loop. */
void op_atime_init(struct mds *m, bool on);
void op_atime_tick(struct loop *loop);
void op_accessed(struct compound *c, const struct ns_inode *i);

/* limit.c. Both on the connection's loop. */
void op_conn_opened(struct mds *m, struct rpc_conn *conn);
void op_conn_closed(struct mds *m, struct rpc_conn *conn);
/* As rs_first of rpc.h. */
bool op_first(struct mds *m, uint32_t prog, uint32_t proc, struct xdr_in *x);
/* What counts as one address: of IPv6 a network of 64 bits. */
/* Counts and tells that something is refused. True. */
bool op_limited(struct mds *m, enum op_limit which);
/* locked, or looked at (st_look_lock): one more of what would be too much for the request's client,
 * for its address, or in all. Then it is counted, and *whose may become an address's, or all:
 * op_make_room then evicts, at times, one whose lease has run out; that takes all. */
bool op_full(struct compound *c, enum st_count what, enum op_limit which,
	     const uint32_t most[OP_SCOPES], enum op_scope *whose);
void op_make_room(struct compound *c, enum op_scope whose);
/* The same for what a client had already, before our restart or under a delegation: nobody else's
 * number keeps it from having that again. */
bool op_full_again(struct compound *c, enum st_count what, enum op_limit which,
		   const uint32_t most[OP_SCOPES]);
/* Once, the limits being set. */
void op_limits_init(struct mds *m);

/* The export in a handle that op_fh_make made. */
uint16_t op_fh_export(const uint8_t *fh, uint32_t len);
/* reload.c: layouts and delegations given under exports that are other ones now come back. Any
 * thread; the work is loop's. */
void op_exports_changed(struct mds *m, struct loop *loop, const struct exp_table *old,
			const struct exp_table *now);

/* peer.c: who asks, from where. False: parked; go(c) is called when it is known. */
bool op_peer(struct compound *c, void (*go)(struct compound *c));
void op_peer_done(struct compound *c);
/* A job that goes on after its request was answered, on a file of an export: whenever the exports
 * have changed, does what it began under still stand? */
struct op_stand {
	struct ask_wait s_wait;
	struct mds *s_m;
	uint64_t s_generation, s_ino; /* judged by the exports of that generation */
	uint16_t s_export, s_port;
	uint8_t s_addr[16], s_sec;
	enum exp_tls s_tls;
	struct ask_val *s_names; /* NULL: not known */
	bool s_told;		 /* it was asked for, and this is what there is */
	void (*s_then)(void *arg);
	void *s_arg;
};
/* For who asks and his current file, which he writes. then(arg) on this loop. */
void op_stand_begin(struct op_stand *s, const struct compound *c, void (*then)(void *arg),
		    void *arg);
/* 0; -EROFS, -ESTALE, -EACCES: not any more; -EAGAIN: it cannot be told now; -EINPROGRESS: then is
 * called, and it is to be asked again. */
int op_stand(struct op_stand *s);
void op_stand_end(struct op_stand *s);
/* The connection's view goes. */
void op_conn_view_drop(struct rpc_conn *conn);
int op_peer_open(struct mds *m, bool server_groups, bool kerberos, uint32_t keep_ms);
/* What a thread keeps of exports and groups. */
void op_thread_forget(struct mds_thread *th);
/* Is it known what g is, and who asks there? A name service that fails has not said no: then
 * DELAY. */
bool op_enterable(const struct compound *c, const struct exp_grant *g);
/* cur is in g from now on, and the credential is what g makes of it. g: enterable. */
void op_enter(struct compound *c, const struct exp_grant *g);
/* Says why, for the administrator; at most one a second. */
void op_wrongsec_log(const struct compound *c, const struct exp_grant *g);
static inline bool op_sec_ok(const struct compound *c, const struct exp_grant *g)
{
	return g->g_ok >> c->sec & 1;
}
/* The exports are still those that this compound began with. Its file is locked: what is registered
 * then is seen by op_exports_changed. */
static inline bool op_exports_stand(const struct compound *c)
{
	return c->view->v_table->t_generation == exp_set_generation(c->m->m_exports);
}
/* The request came with privacy or integrity: Kerberos that has it, or TLS. Its data goes on in
 * TLS. */
bool op_protected(const struct compound *c);
/* May this client have layouts of cur: its data path is as protected as the export demands, or the
 * administrator said so. */
bool op_layouts_ok(const struct compound *c);
/* A directory of the pseudo file system: nothing of the real one but its number. */
void op_pseudo_inode(const struct compound *c, struct ns_inode *i);

/* stateids */
void op_put_stateid(struct xdr_out *x, const struct st_stateid *s);
void op_get_stateid(struct xdr_in *x, struct st_stateid *s);
/* The current stateid (seqid 1, other zero) replaced by what is current; BAD_STATEID when there is
 * none. */
nfsstat4 op_resolve_sid(struct compound *c, struct st_stateid *s);
void op_set_current_sid(struct compound *c, const struct st_stateid *s);
/* Looked at. A lock that is no reclaim waits: for the end of grace, or for the client's
 * RECLAIM_COMPLETE (RFC 8881 section 18.51.3). */
static inline bool op_lock_grace(const struct compound *c)
{
	return st_in_grace(c->m->m_st) || !atomic_load(&c->client->cl_ready);
}
/* A stateid's seqid beside the current one (RFC 8881 section 8.2.2); 0 is whatever is current. */
static inline nfsstat4 op_seqid_status(const struct st_stateid *s, uint32_t current)
{
	if (!s->seqid || s->seqid == current)
		return NFS4_OK;
	return s->seqid < current ? NFS4ERR_OLD_STATEID : NFS4ERR_BAD_STATEID;
}
/* io.c; locked: the open of this client and file that an open's or a lock's stateid stands for, its
 * seqid checked. */
nfsstat4 op_open_by_sid(struct compound *c, const struct st_stateid *s, uint64_t ino,
			struct st_open **out);
/* io.c; locked: may this user do I/O of this share access (one bit) on the file under a stateid
 * that its client shows: its owner, who may by its mode, who opened it for that, and any under a
 * delegation. ACCESS */
nfsstat4 op_user_access(struct compound *c, const struct ns_inode *i, uint32_t need);
/* io.c: may I/O of this share access go on under a special stateid: GRACE, LOCKED where an open
 * denies it, DELAY while a dead one is taken away. */
nfsstat4 op_special_io(struct compound *c, uint64_t ino, uint32_t need);
/* io.c: OK for a regular file, else what I/O and locks answer (sections 18.10.3, 18.22.3, 18.32.3,
 * 18.3.3). */
nfsstat4 op_regular(const struct ns_inode *i);

/* io.c: the stateid of an I/O: special ones are checked by permission, others by their open. */
nfsstat4 op_io_access(struct compound *c, struct st_stateid *sid, const struct ns_inode *i,
		      bool write);
/* io.c: likewise, whoever asks: of operations that the stock client sends as the user who calls,
 * and not as the one who opened the file (RFC 7862: ALLOCATE, DEALLOCATE, SEEK, COPY, CLONE). */
nfsstat4 op_any_io_access(struct compound *c, struct st_stateid *sid, const struct ns_inode *i,
			  bool write);
/* A change of data through the MDS under way. A size that is set beside it is seen by f_sizegen:
 * the change is then done again whole, because under the old epoch it may be cut, or not. Zeroed
 * before its first use. False: a size is being set, layouts are taken back, or the file is frozen;
 * what was pinned stays so. */
struct op_pin {
	struct mds *p_m;
	uint64_t p_ino, p_sizegen;
};
bool op_pin(struct op_pin *p, struct mds *m, uint64_t ino);
bool op_pin_outdated(const struct op_pin *p);
void op_unpin(struct op_pin *p);
/* What READ and READ_PLUS begin with: their arguments, whether that stateid may read (a current
 * stateid becomes what it stands for), and the answer that is to be expected. */
nfsstat4 op_read_args(struct compound *c, struct st_stateid *sid, uint64_t *off, uint32_t *count);
/* What the data servers' failure is to a client. One that cannot be reached now may come back: the
 * client waits, as for any NFS server. */
nfsstat4 op_data_status(int err);
/* The data servers say that objects are gone: is the file gone as well? Else its handle is as good
 * as ever, and its data is lost: -EIO, and the log says so. */
int op_lost_err(struct compound *c, uint64_t ino, int err);
/* op_half_done (mds/file/mirror.h) of a change of [off, end) by the compound's client, who is told
 * this: a DELAY is remembered until the client has done it again, and judged where it does not. */
bool op_half_told(struct compound *c, uint64_t ino, uint64_t off, uint64_t end,
		  const struct lo_map *map, uint64_t objects, nfsstat4 told, int why,
		  void (*then)(void *arg), void *arg);
/* The client has done it, in every copy that counts. */
void op_half_over(struct compound *c, uint64_t ino, uint64_t off, uint64_t end);
/* I/O by that map of that incarnation may be of two states of the file, or of none: it was fenced,
 * or placed again, since. */
bool op_io_outdated(struct compound *c, const struct ns_inode *i, const struct lo_map *map);
/* W: the file's data changed, it goes up to end at least, and the objects of failed (of the map
 * that it was done by) did not take it. */
int op_data_changed(struct mds *m, struct kv_txn *t, uint64_t ino, const struct ns_cred *cred,
		    uint64_t end, uint64_t failed, const struct lo_map *by, struct excl_hold *hold);

/* copy.c: may the saved file be read and the current one written? Two regular files. */
nfsstat4 op_two_files(struct compound *c, struct st_stateid *src_sid, struct st_stateid *dst_sid,
		      struct ns_inode *src);

/* stats.c: takes one ff_iostats4, and, if it counts, what it tells. */
void op_get_iostats(struct compound *c, struct xdr_in *x, bool counts);

/* unread.c: what clients could not read. */
#define OP_DEV_ERRORS 64
struct op_dev_error {
	uint8_t dev[16];
	uint32_t status, opnum;
};
/* The client's report about a layout of the file: its errors of READ are remembered for a while. */
void op_unread_report(struct compound *c, uint64_t ino, const struct op_dev_error *e, unsigned n);
/* OK; or what a LAYOUTGET for reading is answered where a stripe has no copy that this client can
 * read. */
nfsstat4 op_unread(struct compound *c, uint64_t ino, const struct lo_map *map);
/* Its errors of any kind: data servers that it does not reach are remembered, where we do. */
void op_unreached_report(struct compound *c, const struct op_dev_error *e, unsigned n);
/* True where a layout for writing would name a server that this client does not reach, and we do:
 * it writes through us. */
bool op_unreached(struct compound *c, const struct lo_map *map);
/* op_data_status by that map: a server that is away is waited for, but not for ever. */
nfsstat4 op_read_status(struct mds *m, const struct lo_map *map, int err);

/* OK; or what LAYOUTGET is answered for a file with objects on dead servers. */
nfsstat4 op_dead_status(struct mds *m, const struct lo_map *map, bool write);
/* unread.c: a stripe has no copy in sync but on servers that are killed or forgotten, or have been
 * away for mds.io_error_after. */
bool op_all_gone(struct mds *m, const struct lo_map *map);

/* names: a component4 from the arguments. */
nfsstat4 op_get_name(struct xdr_in *x, const char **name, size_t *len);

/* setattr.c: brings the inode's size, change and mtime up to date from the data servers, parks as
 * needed, then calls then(c, err). force: even when no write layout is out. Returns true when it
 * parked; false when nothing was to do (then is not called). */
bool op_refresh(struct compound *c, uint64_t ino, bool force, bool unmark,
		nfsstat4 (*then)(struct compound *c, int err));
/* The compound may leave ino marked in the store without a layout to write it; it knows one such
 * file at a time. */
void op_mark_doubt(struct compound *c, uint64_t ino);
/* The compound is over: a mark that nobody has got a layout by goes soon, without a question. Locks
 * the file. */
void op_mark_unused(struct compound *c);

/* layout.c. W: a client is about to be given a capability of the epoch that the file has. */
int op_map_given(struct mds *m, struct kv_txn *t, const struct ns_inode *i);
/* Fills m_file: once, when what it names is there. */
void op_file_env(struct mds *m);
/* deleg.c: an answer about a delegation */
struct op_deleg {
	uint32_t d_type; /* OPEN_DELEGATE_NONE: there is none, d_why says why */
	uint32_t d_why;
	bool d_times;
	struct st_stateid d_sid;
	uint64_t d_limit; /* bytes the file may grow to, under one for writing */
};
/* Gives the client a delegation on a file it may access so, if it wants one and nothing stands
 * against it. What it is told after this is of a new snapshot. */
void op_deleg_give(struct compound *c, const struct ns_inode *i, uint32_t access, uint32_t want,
		   struct op_deleg *d);
void op_deleg_reclaim(struct compound *c, const struct ns_inode *i, uint32_t type,
		      struct op_deleg *d);
/* locked: would a delegation of this type stand against another client's opens or delegations? */
bool op_deleg_conflicts(const struct st_file *f, const struct st_client *c, uint32_t type);
void op_put_deleg(struct xdr_out *x, const struct op_deleg *d, bool told);
/* locked: the client's delegation on the current file */
nfsstat4 op_deleg_by_sid(struct compound *c, const struct st_stateid *sid, struct st_open **out);
/* Another client has any at all: else there is nothing to look for. */
bool op_delegs_out(struct compound *c);
/* Others' delegations on up to two files (0: none) that stand against such an access are recalled,
 * revoked at the deadline; then(c, err) after that. False: there are none, and then is not
 * called. */
bool op_deleg_clear(struct compound *c, const uint64_t *ino, unsigned n, uint32_t access,
		    uint32_t deny, nfsstat4 (*then)(struct compound *c, int err));
/* In grace: another client may have a delegation on this file that it has not reclaimed yet, and
 * that nobody can recall (section 8.4.2.1). Nobody else has one beside the caller's open or
 * delegation for writing. */
bool op_deleg_grace(struct compound *c, uint64_t ino);
/* Recalls what stands against it without waiting. True: something does. */
bool op_deleg_stands(struct compound *c, uint64_t ino, uint32_t access);
/* A delegation on the file was recalled, and its time is over: it is revoked, and layouts are taken
 * back where it was for writing. */
void op_deleg_overdue(struct mds *m, struct loop *loop, uint64_t ino);
/* After the commit of a change: what was given to others meanwhile is recalled. ino 0: nothing. */
void op_deleg_late(struct compound *c, uint64_t ino);
/* Asks another client that holds the file for writing for its size and times, commits what is new,
 * then calls then(c, err). False: nobody does, and then is not called. */
bool op_deleg_ask(struct compound *c, uint64_t ino, nfsstat4 (*then)(struct compound *c, int err));

/* lock.c; locked: locks of the file have gone or become weaker; those who wait for it are told. */
void op_locks_gone(struct mds *m, struct st_file *f);

/* setattr.c: change attributes of c->cur, with recall, fence and orders when the size shrinks;
 * then(c, err). */
nfsstat4 op_do_setattr(struct compound *c, uint64_t ino, const struct op_sattr *a, bool have_write,
		       op_put_fn put, nfsstat4 (*then)(struct compound *c, int err));

/* once.c: a hash of who asks, and of what comes after SEQUENCE */
void op_once_check(const struct compound *c, uint8_t out[16]);
/* W: the row of the mutation in hand */
int op_once_put(struct compound *c, struct kv_txn *t);
/* A request of an earlier boot, of that session, sequence and slot, has a row that answers it. Any
 * thread. */
bool op_once_kept(struct mds *m, const uint8_t *id, uint32_t seq, uint32_t slot);
/* SEQUENCE of a session that is not known, its arguments read: goes on from the row of an earlier
 * boot, or BADSESSION. */
nfsstat4 op_once_retry(struct compound *c, const uint8_t *id, uint32_t seq, uint32_t slot);
/* Every tick: rows of sessions that have ended are deleted, and those of earlier boots when grace
 * is over. */
void op_once_tick(struct mds *m, struct loop *loop);

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

/* open.c: OPEN's arguments from here on claim by a component's name. */
bool op_open_has_name(struct xdr_in *x);
/* the inode of c->cur, or an error (NOFILEHANDLE, STALE) */
nfsstat4 op_cur_inode(struct compound *c, struct ns_inode *i);
/* orphan.c. Freeing inodes in ns_remove and ns_rename: keeps what is open, queues deletions, blocks
 * new opens until op_free_done. */
struct op_free_ctx {
	struct mds *m;
	struct st_client *client; /* who removes; NULL: nobody */
	uint64_t removing, orphaned;
};
void op_free_ops(struct op_free_ctx *ctx, struct mds *m, struct st_client *client,
		 struct ns_free_ops *fo);
/* On the loop, after the mutation. */
void op_free_done(struct op_free_ctx *ctx, int err);
/* CLOSE and DELEGRETURN: find (locked) says which of the client's opens and delegations on the
 * current file sid names, or why it may not be given up. It goes, and with the last one of a
 * removed file the file. The caller has put its result already, which is cut again where this
 * fails. */
typedef nfsstat4 (*op_find_fn)(struct compound *c, const struct st_stateid *sid,
			       struct st_open **out);
nfsstat4 op_give_up(struct compound *c, const struct st_stateid *sid, op_find_fn find);
/* Frees orphans that nobody has open: after the grace period and after clients that are gone. */
void op_orphan_sweep(struct mds *m, struct loop *loop);
/* The file system's space, summed over the data servers that live. */
void op_space(struct mds *m, uint64_t *total, uint64_t *avail);
void op_put_cinfo(struct xdr_out *x, const struct ns_cinfo *ci);
/* the map of a file for a new inode: lo_place as ns_create_args.a_map */
struct op_place {
	struct mds *m;
	struct kv_txn *t; /* the one that makes the file */
	bool given;	  /* a layout goes out with it */
	uint32_t mirrors; /* a hint, followed where the policy's other values permit it; 0: none */
	bool stripes;
};
int op_place_map(void *arg, const struct ns_inode *i, struct kv_slice policy, uint8_t *buf,
		 size_t max, size_t *len);
/* SETXATTR of user.weft.policy on a file that is empty: it is placed again, by that policy. It is
 * frozen for it, and its objects of before are deleted. EXIST: it is not empty. c->scratch begins
 * with this; ag_put puts the result. The scratch's end thaws. */
struct op_again {
	struct excl ag_freeze;
	struct lo_policy ag_policy;
	struct ns_cinfo *ag_ci;
	op_put_fn ag_put;
};
nfsstat4 op_place_again(struct compound *c);
/* virtual xattrs */
bool op_xattr_virtual(const char *name, size_t len);
/* slot end: store the reply */
void op_slot_done(struct compound *c);
/* All of what is put, from a place in the head on. */
void op_reply_copy(const struct xdr_out *x, size_t from, uint8_t *to);
#endif
