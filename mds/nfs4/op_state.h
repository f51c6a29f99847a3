/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op_state.h - what operations do to state: stateids, opens, delegations, layouts, and I/O through
 * the metadata server (RFC 8881 sections 8 to 12).
 */
#ifndef MDS_NFS4_OP_STATE_H
#define MDS_NFS4_OP_STATE_H
#include "mds/file/orphan.h"
#include "mds/nfs4/op.h"

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
	struct mds *pin_m;
	uint64_t pin_ino, pin_sizegen;
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
 * reply: the status that the client gets. If it is DELAY, the server remembers the range until the
 * client has repeated the change, and judges the file if the client does not. True: it has begun,
 * and calls op_wake. */
bool op_partial_reported(struct compound *c, uint64_t ino, uint64_t off, uint64_t end,
			 const struct lo_map *map, uint64_t objects, nfsstat4 reply, int why);
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
	uint8_t ode_dev[16];
	uint32_t ode_status, ode_opnum;
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
/* Notes that the compound may leave a mark in the store for ino without a layout to write it. The
 * compound notes one such file at a time. */
void op_intent_doubt(struct compound *c, uint64_t ino);
/* The compound is over: deletes the mark of the noted file soon, without asking the data servers,
 * if no client got a layout by it. Locks the file. */
void op_intent_unused(struct compound *c);
/* op_layout.c. W: a client is about to get a capability of the file's present epoch; clears
 * lm_clean. */
int op_map_given(struct mds *m, struct kv_txn *t, const struct ns_inode *i);
/* op_deleg.c: the answer to a request for a delegation */
struct op_deleg {
	uint32_t dlg_type; /* OPEN_DELEGATE_NONE: none, and dlg_why has the reason */
	uint32_t dlg_why;
	bool dlg_times;
	struct st_stateid dlg_sid;
	uint64_t dlg_limit; /* of a write delegation: bytes up to which the file may grow */
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
 * access, revokes them at the deadline, and goes on with next: at once if there are none. */
nfsstat4 op_deleg_clear(struct compound *c, const uint64_t *ino, unsigned n, uint32_t access,
			uint32_t deny, op_step *next);
/* The same for a caller that goes on in another way where there are none. True: it has begun, and
 * calls op_wake. */
bool op_deleg_clear_begin(struct compound *c, const uint64_t *ino, unsigned n, uint32_t access,
			  uint32_t deny);
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
 * new, then calls op_wake: await it with op_await_client. False: no client has one. */
bool op_deleg_ask(struct compound *c, uint64_t ino);
/* op_lock.c; locked: locks of the file were released or became weaker. Notifies clients that wait
 * for one. */
void op_locks_gone(struct mds *m, struct st_file *f);
/* give_up.c. After file_free_done of a mutation that was committed: does the answer wait for data
 * servers? True: op_wake is called. */
bool op_free_waits(struct compound *c, const struct file_free_ctx *ctx);
/* CLOSE and DELEGRETURN. find (locked) says which of the client's opens and delegations on the
 * current file sid names, or why it may not be given up. op_give_up releases it, and with the last
 * one of a removed file frees the file. The caller has already put its result, which is cut if this
 * fails. */
typedef nfsstat4 (*op_find_fn)(struct compound *c, const struct st_stateid *sid,
			       struct st_open **out);
nfsstat4 op_give_up(struct compound *c, const struct st_stateid *sid, op_find_fn find);
/* Makes the map of a new file: lo_place as ns_create_args.a_map. */
struct op_place {
	struct mds *opl_m;
	struct kv_txn *opl_t; /* the transaction that makes the file */
	bool opl_given;	      /* a layout is granted with the file */
	/* a hint, followed where the policy's other values permit it; 0: none */
	uint32_t opl_mirrors;
	bool opl_stripes;
};
int op_place_map(void *arg, const struct ns_inode *i, struct kv_slice policy, uint8_t *buf,
		 size_t max, size_t *len);
/* Says in the log and in an event why a client could not set a policy, or a reserved name: it sees
 * only the status. Once a second at most. Returns st. */
nfsstat4 op_policy_refused(struct compound *c, nfsstat4 st, const char *why);
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
#endif
