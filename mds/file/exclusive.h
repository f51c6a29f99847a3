/*
 * exclusive.h - a file for oneself: layouts come back or are fenced, and what was under way is
 * over, before somebody changes what clients can see through a layout (docs/fencing.md). This is
 * the one place that recalls layouts, waits for them, fences, orders and lets go. It knows no
 * request of a client.
 *
 * The way of one request. Several may be on their way for one file at once: what each of them keeps
 * away is counted in the file's state (f_excl, f_taking, f_frozen, f_hidden, f_sizing,
 * f_cutting), which no other file writes.
 *
 *        begin: no new layouts
 *   OPEN ---------------------+
 *    ^                        v
 *    |                    SETTLING    what an earlier boot, or a lost writer, left is fenced
 *    |                        |       (WRITES and those below it; other callers do it before)
 *    |                        v
 *    |                    RECALLING   holders are asked; it ends when all layouts are back,
 *    |                        |       or at the deadline with the number that is left
 *    |    nothing to fence    |
 *    |    +-------------------+
 *    |    |                   v
 *    |    |               FENCING     one transaction: the epoch goes up, with orders to all data
 *    |    |                   |       servers; who is left in the middle of a write is suspect
 *    |    |                   v
 *    |    |               ORDERING    each data server has confirmed, or its lease is over;
 *    |    |                   |       then those that are left lose their layouts
 *    |    |                   v
 *    |    |               SILENCING   where a change follows: copies of silent data servers
 *    |    v                   |       become stale in a second transaction
 *    | EXCLUSIVE <------------+       the file is the caller's, until it lets go
 *    |    |
 *    +----+ let go
 *
 * TAKE_BACK, TAKE_BACK_FENCED and SETTLE let go by themselves when they are answered. SIZE and
 * RIGHTS commit the fence with the caller's own change: they are answered between RECALLING and
 * FENCING, the caller calls excl_fence in its transaction, and excl_order after the commit.
 */
#ifndef MDS_FILE_EXCLUSIVE_H
#define MDS_FILE_EXCLUSIVE_H
#include "mds/file/file.h"

enum excl_phase {
	EXCL_OPEN,
	EXCL_SETTLING,
	EXCL_RECALLING,
	EXCL_FENCING,
	EXCL_ORDERING,
	EXCL_SILENCING,
	EXCL_EXCLUSIVE,
};

/* What a caller wants the file for. */
enum excl_how {
	EXCL_TAKE_BACK,	       /* layouts come back; who keeps one is fenced */
	EXCL_TAKE_BACK_FENCED, /* layouts come back, and every capability is fenced */
	EXCL_SETTLE,	       /* capabilities of an earlier boot, and lost writers' */
	EXCL_RIGHTS,	       /* somebody may do less with the file than before */
	EXCL_SIZE,	       /* its size is set */
	/* Nobody changes its data: write layouts are back or fenced, what they had under way is
	 * over, and changes through the MDS are told DELAY. */
	EXCL_WRITES,
	/* All layouts are back, and every capability of before is fenced; reads through the MDS go
	 * on. No copy is made stale, unless its server lives and does not do its orders. */
	EXCL_LAYOUTS,
	EXCL_ALL, /* as WRITES, and nobody reads either: all layouts are back */
	EXCL_HOWS
};

/* The mutation in hand makes objects stale that layouts which are out may name. Until it is let go
 * no new layout is given and nothing is written through the MDS by who would not see those that are
 * out. Memory begins as zeros. */
struct excl_hold {
	const struct file_env *eh_env;
	uint64_t eh_ino;
};

/* Memory is the caller's, from excl_begin or excl_change until excl_end. It begins as zeros. */
struct excl {
	/* The caller's to read: */
	enum excl_phase ex_phase;
	enum excl_how ex_how;
	uint64_t ex_ino;
	bool ex_held;	    /* it is in other's ways */
	unsigned ex_left;   /* layouts that were out at the deadline, and are not revoked yet */
	uint64_t ex_silent; /* objects that became stale because their servers are silent */
	/* exclusive.c's: */
	const struct file_env *ex_env;
	struct loop *ex_loop;
	struct st_client *ex_except;
	bool ex_rw_only;	  /* who only reads keeps his layout */
	bool ex_changed;	  /* the caller's own change is committed */
	bool ex_cutting;	  /* SIZE: from the caller's transaction on */
	bool ex_late;		  /* a server that lives did not confirm in time */
	bool ex_owed;		  /* a generic one, which may take what it took before */
	bool ex_unfenced;	  /* nor is its copy stale */
	bool ex_raised;		  /* SETTLE: the epoch went up; else it was only judged */
	bool ex_asks, ex_asked;	  /* SETTLE, to be judged: which copies are there is asked first */
	uint16_t ex_incarnation;  /* likewise */
	uint64_t ex_lost;	  /* of ex_map, when that was asked: copies that are not there */
	uint32_t ex_judged;	  /* SETTLE: f_judge_gen then */
	struct excl_hold ex_hold; /* SETTLE: what became stale */
	uint64_t ex_quiet;	  /* objects whose servers are silent */
	struct lo_map ex_map;	  /* before the fence */
	struct st_wait ex_wait;
	struct kv_op ex_op;
	struct loop_msg ex_msg;
	int ex_err;
	void (*ex_recalls)(void *arg);
	void (*ex_then)(void *arg, int err);
	void *ex_arg;
};

/*
 * WRITES and those below it. except keeps its layouts, but what it wrote under them is over, too.
 * then(arg, err) is called on loop, once, later; excl_end comes after it in either case.
 * 0: the file is the caller's. -EAGAIN: another has it, or there is no memory. -ETIMEDOUT: a data
 * server lives and does not confirm. Else what the store says.
 */
void excl_begin(struct excl *x, const struct file_env *fe, struct loop *loop, uint64_t ino,
		struct st_client *except, enum excl_how how, void (*then)(void *arg, int err),
		void *arg);
/*
 * RIGHTS and SIZE, from a file that is settled (excl_settle). rw_only: layouts for reading stay.
 * 1: layouts are recalled; then(arg, 0) on loop. 0: there are none, and then is not called.
 * -EAGAIN: the file is frozen, or there is no memory; nothing is begun.
 */
int excl_change(struct excl *x, const struct file_env *fe, struct loop *loop, uint64_t ino,
		struct st_client *except, enum excl_how how, bool rw_only,
		void (*then)(void *arg, int err), void *arg);
/* W, in the caller's own transaction: who is left is suspect, and, with raise, the epoch goes up in
 * map and store, with orders to every server. carried: the caller puts orders to every object that
 * carry the epoch. */
int excl_fence(struct excl *x, struct kv_txn *t, const struct ns_inode *i, struct lo_map *map,
	       bool raise, bool carried, struct ns_time now);
/*
 * After the commit of the caller's transaction: waits for its orders; who is left loses its layouts
 * when the caller lets go. Where a server is silent its copy becomes stale, and layouts that name
 * it are taken back; recalls(arg) is called when that begins to wait for clients. then(arg, err) on
 * the loop: 0; -ETIMEDOUT: a server lives and has not confirmed; what the store said when copies
 * could not be made stale.
 */
void excl_order(struct excl *x, void (*recalls)(void *arg), void (*then)(void *arg, int err),
		void *arg);
/* Lets go. err: of the caller's change; where it was not made, nobody's layout is revoked. Zeroed
 * memory, and what was let go already, is left alone. */
void excl_end(struct excl *x, int err);

/* Takes back all layouts of the file but except's (NULL: everybody's): recall, deadline, fence.
 * then(arg, err) on loop; NULL: nobody waits. False: there are none, and then is not called. */
bool excl_take_back(const struct file_env *fe, struct loop *loop, uint64_t ino,
		    struct st_client *except, void (*then)(void *arg, int err), void *arg);
/* Everybody's, and what they return, or returned before, is worth nothing afterwards. Where a
 * client may have a capability all are fenced. then(arg, err) on loop, once, later. */
void excl_take_back_fenced(const struct file_env *fe, struct loop *loop, uint64_t ino,
			   void (*then)(void *arg, int err), void *arg);
/* A file for which a write layout was out when an earlier boot ended: those capabilities are
 * fenced. One whose writer is lost: it is judged (mds/file/truth.c). Then then(arg, err) on loop.
 * False: it is neither. */
bool excl_settle(const struct file_env *fe, struct loop *loop, uint64_t ino,
		 void (*then)(void *arg, int err), void *arg);

/* From before the commit, so that excl_take_back after it leaves no gap. Held already: nothing.
 * -ENOMEM. */
int excl_hold(struct excl_hold *h, const struct file_env *fe, uint64_t ino);
void excl_unhold(struct excl_hold *h);
/* W: the map, in which objects became stale, is the file's, and it is held. */
int excl_stale(struct excl_hold *h, const struct file_env *fe, struct kv_txn *t, uint64_t ino,
	       const struct lo_map *map, struct ns_time now);
/* After the commit: as excl_take_back, which holds the file from then on in h's place. */
bool excl_recall_stale(struct excl_hold *h, const struct file_env *fe, struct loop *loop,
		       uint64_t ino, struct st_client *except, void (*then)(void *arg, int err),
		       void *arg);

/* W: raises the file's epoch in map and store, with the orders that fence all older capabilities.
 */
int excl_raise(const struct file_env *fe, struct kv_txn *t, const struct ns_inode *i,
	       struct lo_map *map, struct ns_time now);
/* ALL: reads wait. Any thread. */
bool excl_hidden(const struct file_env *fe, uint64_t ino);
#endif
