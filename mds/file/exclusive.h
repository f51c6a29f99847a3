/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exclusive.h - exclusive use of a file: before a request or a job changes what clients can see
 * through a layout, layouts come back or are fenced, and changes that were under way are over
 * (docs/fencing.md). This is the one place that recalls layouts, waits for them, fences, orders and
 * lets go. It knows no client request.
 *
 * The picture shows the way of one request. Several may be on their way for one file at once: the
 * file's state counts what each of them keeps away (f_nexcl, f_nrecalling, f_nfrozen, f_nhidden,
 * f_nsizing, f_ncutting), and no other source file writes these counters.
 *
 *        begin: no new layouts
 *   OPEN ---------------------+
 *    ^                        v
 *    |                    RESOLVING   fences what an earlier boot, or a lost writer, left
 *    |                        |       (WRITES and those below it; other callers do it before)
 *    |                        v
 *    |                    RECALLING   asks the holders; ends when all layouts are back, or
 *    |                        |       at the deadline with the number of those that are left
 *    |    nothing to fence    |
 *    |    +-------------------+
 *    |    |                   v
 *    |    |               FENCING     one transaction: the epoch goes up, with orders to all data
 *    |    |                   |       servers; if a writer is left, all copies but one are suspect
 *    |    |                   v
 *    |    |               ORDERING    each data server confirms, or its lease runs out;
 *    |    |                   |       then the clients that are left lose their layouts
 *    |    |                   v
 *    |    |               SILENCING   where a change follows: copies of silent data servers
 *    |    v                   |       become stale in a second transaction
 *    | EXCLUSIVE <------------+       the caller has the file, until it lets go
 *    |    |
 *    +----+ let go
 *
 * RECALL, RECALL_AND_FENCE and RESOLVE let go by themselves when they have answered. SIZE and
 * RIGHTS commit the fence with the caller's own change: they answer between RECALLING and FENCING.
 * The caller calls excl_fence in its transaction, and excl_order after the commit.
 */
#ifndef MDS_FILE_EXCLUSIVE_H
#define MDS_FILE_EXCLUSIVE_H
#include "mds/file/file.h"

enum excl_phase {
	EXCL_OPEN,
	EXCL_RESOLVING,
	EXCL_RECALLING,
	EXCL_FENCING,
	EXCL_ORDERING,
	EXCL_SILENCING,
	EXCL_EXCLUSIVE,
};

/* What a caller wants the file for. */
enum excl_how {
	EXCL_RECALL,	       /* layouts come back; a client that keeps one is fenced */
	EXCL_RECALL_AND_FENCE, /* layouts come back, and every capability is fenced */
	/* fences capabilities of an earlier boot and of lost writers, and judges the copies */
	EXCL_RESOLVE,
	EXCL_RIGHTS, /* the caller takes a right on the file from a user */
	EXCL_SIZE,   /* the caller sets the file's size */
	/* No client changes the file's data: write layouts are back or fenced, writes that were
	 * under way are over, and changes through the MDS get DELAY. */
	EXCL_WRITES,
	/* All layouts are back, and every earlier capability is fenced. Reads through the MDS go
	 * on. Copies do not become stale, except those of a server that lives and does not run its
	 * orders. */
	EXCL_LAYOUTS,
	EXCL_ALL, /* as WRITES, and no client reads either: all layouts are back */
	EXCL_HOWS
};

/* Blocks layouts while the current mutation makes objects stale that granted layouts may name.
 * Until excl_unblock no new layout is granted, and no client can write through the MDS, because
 * holders of those layouts might not see the write. Zero the memory before its first use. */
struct excl_layout_block {
	const struct file_env *eh_env;
	uint64_t eh_ino;
};

/* The caller owns the memory from excl_begin or excl_change until excl_end. Zero it before its
 * first use. */
struct excl {
	/* For the caller to read: */
	enum excl_phase ex_phase;
	enum excl_how ex_how;
	uint64_t ex_ino;
	bool ex_held; /* it is counted among what keeps others away */
	/* layouts that were out at the deadline and are not revoked yet */
	unsigned ex_left;
	uint64_t ex_silent; /* objects that became stale because their servers are silent */
	/* For exclusive.c: */
	const struct file_env *ex_env;
	uint64_t ex_request; /* on behalf of which it began (common/trace.h), or 0 */
	struct loop *ex_loop;
	struct st_client *ex_except;
	bool ex_rw_only; /* layouts for reading stay */
	bool ex_changed; /* the caller's own change is committed */
	bool ex_cutting; /* SIZE: from the caller's transaction on */
	bool ex_late;	 /* a server that lives did not confirm in time */
	/* a generic server did not confirm: it may accept what it accepted before */
	bool ex_owed;
	/* a server that lives did not confirm, and its copy is not stale either */
	bool ex_unfenced;
	bool ex_raised; /* RESOLVE: the epoch went up; else the file was only judged */
	/* RESOLVE of a file that is to be judged: asks first which copies are there */
	bool ex_asks, ex_asked;
	uint16_t ex_incarnation; /* likewise */
	uint64_t ex_lost;	 /* of ex_map: copies that were not there when this was asked */
	uint32_t ex_judged;	 /* RESOLVE: f_suspect_gen at the fence */
	struct excl_layout_block ex_hold; /* RESOLVE: holds the file while objects become stale */
	uint64_t ex_quiet;		  /* objects whose servers are silent */
	struct lo_map ex_map;		  /* before the fence */
	struct st_wait ex_wait;
	struct kv_op ex_op;
	struct loop_msg ex_msg;
	int ex_err;
	void (*ex_recalls)(void *arg);
	void (*ex_then)(void *arg, int err);
	void *ex_arg;
};

/*
 * WRITES and those below it. except (may be NULL) keeps its layouts, but writes that it has under
 * way are over too. then(arg, err) is called on loop, once, later. Call excl_end after it, whatever
 * err is. 0: the caller has the file. -EAGAIN: another has it, or there is no memory. -ETIMEDOUT: a
 * data server lives and does not confirm. Any other error is the store's.
 */
void excl_begin(struct excl *x, const struct file_env *fe, struct loop *loop, uint64_t ino,
		struct st_client *except, enum excl_how how, void (*then)(void *arg, int err),
		void *arg);
/*
 * RIGHTS and SIZE, for a file that is settled (excl_resolve). rw_only: layouts for reading stay.
 * Returns 1 if layouts are being recalled: then(arg, 0) is called on loop. Returns 0 if no layouts
 * are out: then is not called. -EAGAIN: the file is frozen, or there is no memory; nothing has
 * begun.
 */
int excl_change(struct excl *x, const struct file_env *fe, struct loop *loop, uint64_t ino,
		struct st_client *except, enum excl_how how, bool rw_only,
		void (*then)(void *arg, int err), void *arg);
/* W, in the caller's own transaction: if a writer is left, makes all copies but one stale in map.
 * With raise, the epoch goes up in map and store, with orders to every server. carried: the caller
 * puts orders to every object that carry the epoch, so that generic servers alone need more. */
int excl_fence(struct excl *x, struct kv_txn *t, const struct ns_inode *i, struct lo_map *map,
	       bool raise, bool carried, struct ns_time now);
/*
 * Call it after the commit of the caller's transaction. It waits for the orders; clients that are
 * left lose their layouts when the caller lets go. If a server is silent, its copy becomes stale,
 * and layouts that name it are recalled and fenced: recalls(arg) is called when that begins to wait
 * for clients. then(arg, err) is called on the loop. 0. -ETIMEDOUT: a server lives and has not
 * confirmed. Else the store's error, when it could not make copies stale.
 */
void excl_order(struct excl *x, void (*recalls)(void *arg), void (*then)(void *arg, int err),
		void *arg);
/* Lets go. err: of the caller's change; if the change was not made, no layout is revoked. Zeroed
 * memory, and a file that was let go already, are left alone. */
void excl_end(struct excl *x, int err);

/* Recalls all layouts of the file but except's (NULL: all clients'), and fences clients that keep
 * one at the deadline. then(arg, err) is called on loop; then may be NULL. False: no such layouts
 * are out, and then is not called. */
bool excl_recall_and_fence(const struct file_env *fe, struct loop *loop, uint64_t ino,
			   struct st_client *except, void (*then)(void *arg, int err), void *arg);
/* Recalls all clients' layouts. Afterwards what they have returned, now or before, is worth
 * nothing: where a client may have a capability, all are fenced. then(arg, err) is called on loop,
 * once, later. */
void excl_recall_and_fence_all(const struct file_env *fe, struct loop *loop, uint64_t ino,
			       void (*then)(void *arg, int err), void *arg);
/* Fences the capabilities of a file that had a write layout out when an earlier boot ended. Judges
 * a file whose writer is lost (mds/file/mirror_state.c). Calls then(arg, err) on loop when this is
 * done. False: the file is neither, and then is not called. */
bool excl_resolve(const struct file_env *fe, struct loop *loop, uint64_t ino,
		  void (*then)(void *arg, int err), void *arg);

/* Call it before the commit, so that excl_recall_and_fence after the commit leaves no gap. Does
 * nothing if *h holds the file already. 0, or -ENOMEM. */
int excl_block(struct excl_layout_block *h, const struct file_env *fe, uint64_t ino);
void excl_unblock(struct excl_layout_block *h);
/* W: makes map, in which objects became stale, the file's map, and holds the file. */
int excl_stale(struct excl_layout_block *h, const struct file_env *fe, struct kv_txn *t,
	       uint64_t ino, const struct lo_map *map, struct ns_time now);
/* After the commit: like excl_recall_and_fence, which takes over from h and holds the file from
 * then on. */
bool excl_recall_stale(struct excl_layout_block *h, const struct file_env *fe, struct loop *loop,
		       uint64_t ino, struct st_client *except, void (*then)(void *arg, int err),
		       void *arg);

/* W: raises the file's epoch in map and store, with the orders that fence all older
 * capabilities. */
int excl_raise(const struct file_env *fe, struct kv_txn *t, const struct ns_inode *i,
	       struct lo_map *map, struct ns_time now);
/* W, for a file that its last user has left and that stays, in the trash: if a client may have
 * writes under way, or a layout, fences all capabilities; if a layout for writing is out, makes all
 * copies but one stale. No layout is granted meanwhile. 1: it did. After the commit the caller ends
 * the layouts, and wakes the orders. *out: there are layouts. 0: no client can write it. Else the
 * store's error. */
int excl_fence_unused(const struct file_env *fe, struct kv_txn *t, uint64_t ino, bool *out);
/* Does an exclusion with ALL make reads wait? Any thread. */
bool excl_hidden(const struct file_env *fe, uint64_t ino);
#endif
