/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ns_sum.h - how much is below each directory, and how much each user has: files, directories,
 * bytes, stored bytes. docs/decisions/du.md says why it is kept so.
 *
 * A directory's record has the sum T of what is below it, as far as its subdirectories have pushed
 * theirs. Each mutation changes T of the directory in which it works; it puts that record anyway. A
 * directory whose T its parent has not counted yet is unpushed: a row NS_K_UNPUSHED has what the
 * parent did count. ns_sum_fold() pushes. At all times
 *
 *	T(d) = what is in d itself + for each subdirectory c what T(d) has counted of c
 *
 * and so the whole of d is T(d) and, for each unpushed directory below d, its T less its row. All
 * of it is in the store, so any snapshot gives the exact answer, also after a crash.
 *
 * The parts of users wait in the record of the directory too (at most NS_SUM_USERS of them), until
 * its next push adds them to the users' rows.
 *
 * The directory itself does not count in its own sum. A file counts in the directory of its first
 * name, i_parent; a row NS_K_LINK counts its other names in each directory. An open file without a
 * name counts nowhere. What is in the trash counts in no directory, and is not in what its owner
 * has: rows of the trash count it by its owner.
 */
#ifndef MDS_NS_SUM_H
#define MDS_NS_SUM_H
#include "mds/namespace/ns.h"

struct loop;
struct ns_inode_held;

struct ns_sum {
	uint64_t sum_files, sum_dirs; /* sum_files: all that is no directory */
	uint64_t sum_bytes;	      /* the sizes of regular files */
	/* the room that the data servers reported for one copy, times the copies of the layout */
	uint64_t sum_stored;
};
static inline void ns_sum_plus(struct ns_sum *to, const struct ns_sum *s)
{
	to->sum_files += s->sum_files;
	to->sum_dirs += s->sum_dirs;
	to->sum_bytes += s->sum_bytes;
	to->sum_stored += s->sum_stored;
}
static inline void ns_sum_minus(struct ns_sum *to, const struct ns_sum *s)
{
	to->sum_files -= s->sum_files;
	to->sum_dirs -= s->sum_dirs;
	to->sum_bytes -= s->sum_bytes;
	to->sum_stored -= s->sum_stored;
}
static inline bool ns_sum_zero(const struct ns_sum *s)
{
	return !(s->sum_files | s->sum_dirs | s->sum_bytes | s->sum_stored);
}
static inline bool ns_sum_same(const struct ns_sum *a, const struct ns_sum *b)
{
	return a->sum_files == b->sum_files && a->sum_dirs == b->sum_dirs &&
	       a->sum_bytes == b->sum_bytes && a->sum_stored == b->sum_stored;
}

/* How many copies a layout map keeps of the data. Without a function each file has one. Set it
 * before ns_open or ns_check. */
void ns_sum_set_copies(unsigned (*copies)(struct kv_slice map));
/* Gets a line of progress every few seconds while ns_open computes the sums of an old store. Set it
 * before. Without a function the lines are logged. */
void ns_sum_set_say(void (*say)(const char *line));
extern void (*ns_sum_say)(const char *line);
/* What one inode counts. */
struct ns_sum ns_sum_of(const struct ns_inode *i);

/* Answers: all from one transaction. What a damaged row counts is not known: each sum that it is in
 * is NS_SUM_UNKNOWN. Damage can also give a sum that is too large for a size. ns_sum_sane finds
 * both. */
#define NS_SUM_UNKNOWN ((struct ns_sum){UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX})
struct ns_du;
int ns_du_begin(struct ns_du **out, struct ns *ns, struct kv_txn *t);
/* What is below a directory; of another inode, what it counts. -ESTALE */
int ns_du_get(struct ns_du *du, uint64_t ino, struct ns_sum *out);
/* Calls fn for each user that has something, in no order. trash: what of the user's is in the
 * trash; s does not count it. fn: 0 goes on, negative stops. */
int ns_du_users(struct ns_du *du,
		int (*fn)(void *arg, uint32_t uid, const struct ns_sum *s,
			  const struct ns_sum *trash),
		void *arg);
void ns_du_end(struct ns_du *du);
static inline bool ns_sum_sane(const struct ns_sum *s)
{
	return s->sum_files <= INT64_MAX && s->sum_dirs <= INT64_MAX && s->sum_bytes <= INT64_MAX &&
	       s->sum_stored <= INT64_MAX;
}
/* How many damaged rows of sums ns_open found, and those that were met since then (a row may count
 * more than once). */
uint64_t ns_sum_damage(void);

/* Pushes now and then, or soon where much waits to be pushed. A loop's thread; always the same. */
void ns_sum_tick(struct ns *ns, struct loop *loop);
/* W: pushes some directories' sums up to the root, from a directory's number on. *from becomes
 * where the next call goes on; 0: the last row was reached. */
int ns_sum_fold(struct ns *ns, struct kv_txn *t, uint64_t *from);

/* ns_sum_rebuild.c: computes all sums from all inodes and entries, and stores them. Blocks. No
 * other mutation may run. say: gets a line of progress now and then. */
int ns_sum_rebuild(struct ns *ns, void (*say)(const char *line));
/* The same for a store that no server has open: kv is open for writing. -ENOENT: it has no super
 * record. A store in which this did not come to its end computes its sums at ns_open. */
int ns_sum_rebuild_store(struct kv *kv, void (*say)(const char *line));

/* For namespace's own mutations. Each is W, and comes after the first write of its mutation. The
 * directories are held; their records are to be put after it. */
/* i gets its first name in dir. */
int ns_sum_enter(struct ns *ns, struct kv_txn *t, struct ns_inode_held *dir,
		 const struct ns_inode *i);
/* i loses its last name, which was in dir. */
int ns_sum_leave(struct ns *ns, struct kv_txn *t, struct ns_inode_held *dir,
		 const struct ns_inode *i);
/* A file with further names gets one in dir. */
int ns_sum_name(struct kv_txn *t, uint64_t ino, uint64_t dir);
/* A file loses a name in dir and keeps others. i->i_parent may change; other (NULL: none) is also
 * held. */
int ns_sum_unname(struct ns *ns, struct kv_txn *t, struct ns_inode *i, struct ns_inode_held *dir,
		  struct ns_inode_held *other);
/* A name of i moves between directories. i->i_parent may change. */
int ns_sum_move(struct ns *ns, struct kv_txn *t, struct ns_inode *i, struct ns_inode_held *from,
		struct ns_inode_held *to);
/* Size, room, copies or owner of an inode changed, in place of the former ones (was, uid). Puts the
 * directory's record. */
int ns_sum_changed(struct ns *ns, struct kv_txn *t, const struct ns_inode *i,
		   const struct ns_sum *was, uint32_t uid);

/* Everything that the sums stand for, from all inodes and entries of a snapshot: for
 * ns_sum_rebuild and ns_check_sums. */
struct ns_sum_dir {
	uint64_t dr_ino, dr_parent;
	/* of what is in the directory itself; for the caller: of all below it */
	struct ns_sum dr_own, dr_all;
};
struct ns_sum_user {
	uint32_t us_uid;
	struct ns_sum us_sum, us_trash; /* us_trash: what is in the trash, which us_sum has not */
};
/* Further names of a file in a directory. */
struct ns_sum_names {
	uint64_t nm_ino, nm_dir;
	uint32_t nm_names;
};
/* A file whose i_parent has no name of it, and a directory that has. */
struct ns_sum_stray {
	uint64_t sy_ino, sy_parent, sy_dir;
};
struct ns_sum_walk {
	struct kv_txn *w_txn;
	void (*w_say)(const char *line); /* NULL: none */
	uint64_t w_rows, w_said_ns;
	uint64_t w_damaged; /* inodes and entries that cannot be read: what they count is missing */
	struct ns_sum_dir *w_dirs;    /* by dr_ino */
	struct ns_sum_user *w_users;  /* by us_uid */
	struct ns_sum_names *w_names; /* by nm_ino, nm_dir */
	struct ns_sum_stray *w_strays;
	size_t w_ndirs, w_nusers, w_nnames, w_nstrays;
	size_t w_dirs_cap, w_users_cap, w_names_cap, w_strays_cap;
};
int ns_sum_walk(struct ns_sum_walk *w);
struct ns_sum_dir *ns_sum_walk_dir(const struct ns_sum_walk *w, uint64_t ino);
/* Adds to what a user has: s, and trash in the trash. Both may be NULL. */
int ns_sum_walk_user(struct ns_sum_walk *w, uint32_t uid, const struct ns_sum *s,
		     const struct ns_sum *trash);
void ns_sum_walk_free(struct ns_sum_walk *w);
#endif
