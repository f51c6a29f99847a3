/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ns_trash.h - the trash: what was removed from a directory whose policy keeps it (docs/trash.md).
 *
 * A regular file in the trash keeps its inode, without links, so that every job finds it as it
 * finds other files. An orphan row besides says that clients still have it open. Of a directory or
 * a symbolic link the trash keeps the record of the inode, and the inode is gone: a handle of it is
 * stale without a look here. Devices, sockets and pipes are not kept.
 *
 * What is in the trash is known by its inode number, as long as it is there.
 */
#ifndef MDS_NS_TRASH_H
#define MDS_NS_TRASH_H
#include "mds/namespace/ns.h"

#define NS_TRASH_SECOND 1000000000u /* in tr_removed */
#define NS_TRASH_UP	256	    /* directories of the trash that can lie in each other */

struct ns_trash {
	uint64_t tr_ino, tr_parent; /* tr_parent: the directory of the name, which may be gone */
	uint64_t tr_hash;    /* of the name; with tr_parent and tr_ino the place in the list */
	uint64_t tr_bytes;   /* i_used when it was removed; 0: no regular file */
	uint64_t tr_removed; /* ns of the epoch: two versions of a name may go in one second */
	uint64_t tr_expires; /* s of the epoch */
	uint32_t tr_uid;     /* of the user that removed it */
	uint8_t tr_type;     /* NS_REG, NS_DIR or NS_LNK */
	const char *tr_name; /* points into the transaction, as tr_inode */
	size_t tr_len;
	struct kv_slice tr_inode; /* of a directory or symbolic link: its record */
	/* The row is damaged: the fields of its key alone may be set. tr_key: the key, which points
	 * into the transaction. */
	bool tr_damaged;
	struct kv_slice tr_key;
};
/* A place in the list of all; ta_dir 0: its beginning. */
struct ns_trash_at {
	uint64_t ta_dir, ta_hash, ta_removed, ta_ino;
};
static inline struct ns_trash_at ns_trash_at(const struct ns_trash *e)
{
	return (struct ns_trash_at){e->tr_parent, e->tr_hash, e->tr_removed, e->tr_ino};
}
struct ns_trash_sums {
	uint64_t ts_entries, ts_bytes;
};

/* -ENOENT: it is not in the trash. */
int ns_trash_get(struct kv_txn *t, uint64_t ino, struct ns_trash *out);
/* Calls fn for all behind at: a directory's entries together, of one name the newest first. Also
 * for rows that are damaged (tr_damaged). fn: 0 goes on, positive stops, negative stops and is
 * returned. */
int ns_trash_each(struct kv_txn *t, const struct ns_trash_at *at,
		  int (*fn)(void *arg, const struct ns_trash *e), void *arg);
/* The same in the order in which it expires, behind (expires, ino); 0: from the beginning. */
int ns_trash_by_expiry(struct kv_txn *t, uint64_t expires, uint64_t ino,
		       int (*fn)(void *arg, const struct ns_trash *e), void *arg);
int ns_trash_sums(struct kv_txn *t, struct ns_trash_sums *out);
/* Of what had this name in this directory, what was removed last; -ENOENT. */
int ns_trash_newest(struct ns *ns, struct kv_txn *t, uint64_t dir, const char *name, size_t len,
		    uint64_t *ino);
/* A path of what is in the trash, or of a directory that is not. Several things of the same name
 * may have been removed from the same directory: tp_ino is the one that was removed last, or a
 * directory that has the name now. */
struct ns_trash_top {
	uint64_t tp_ino, tp_dir;
	const char *tp_name; /* points into the path; tp_len 0: the root */
	size_t tp_len;
};
/* Follows directories that are there, and where there is none, what was removed last. -ENOENT. */
int ns_trash_path(struct ns *ns, struct kv_txn *t, const char *path, struct ns_trash_top *top);
/* Is this entry that, or one of its name, or was it below one of them? 1, 0 or -errno. */
int ns_trash_below(struct ns *ns, struct kv_txn *t, uint64_t ino, const struct ns_trash_top *top);
/* Is it an orphan, so that clients may still use it by its handle? */
bool ns_is_orphan(struct kv_txn *t, uint64_t ino);

/* W: ends that it is kept. A regular file becomes an orphan, and the next sweep frees it when no
 * client has it open; anything else is freed. -ENOENT; -ENOTEMPTY: a directory, and something in
 * the trash was in it; -EIO: a row is damaged. What is refused has written nothing. */
int ns_trash_drop(struct kv_txn *t, uint64_t ino);
/* W: sets a damaged row aside, and the entry and its time that belong to it, so that no list or
 * expiry meets them again. The inode is kept. key empty: the entry of ino, although it is whole.
 * ino 0: not known. 1, or 0: it was not there. */
int ns_trash_aside(struct kv_txn *t, struct kv_slice key, uint64_t ino);
/* W: it expires then, and not when it would have. -ENOENT. */
int ns_trash_later(struct kv_txn *t, uint64_t ino, uint64_t expires);
/* What a restore did: the directory that has the name, and how many entries went out of the trash,
 * those of directories of its path among them: at most NS_TRASH_UP. If it was refused: how many it
 * read. */
struct ns_trash_back {
	uint64_t tb_into;
	unsigned tb_out;
};
/* W: gives it a name again: name in dir, or, with dir 0, the name it had in the directory where it
 * was. That directory, and those above it, come out of the trash as well, or are the directories
 * that have their names now. -ENOENT: it is not in the trash. -ESTALE: a directory of its path is
 * gone for good. -EEXIST: the name exists. -ENOTDIR: the name of a directory of its path exists,
 * and is none. -ENOSPC, -EMLINK: as ns_create. -ELOOP: deeper than NS_TRASH_UP. -EIO: a row is
 * damaged. */
int ns_trash_restore(struct ns *ns, struct kv_txn *t, uint64_t ino, uint64_t dir, const char *name,
		     size_t len, struct ns_time now, struct ns_trash_back *back);
/* As ns_get; -ESTALE for what is in the trash. */
int ns_get_live(struct ns *ns, struct kv_txn *t, uint64_t ino, struct ns_inode *i);
#endif
