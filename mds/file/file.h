/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file.h - what happens to one file, whichever request or job wants it. This room knows state,
 * layouts, data servers and the store. It knows no COMPOUND and no NFS request.
 *
 * copies.c: which copies of a file are in sync, in its map and in the store (docs/mirrors.md).
 * exclusive.c: exclusive use of a file (exclusive.h, docs/fencing.md).
 */
#ifndef MDS_FILE_FILE_H
#define MDS_FILE_FILE_H
#include "mds/dataserver/ds_reg.h"
#include "mds/layout/lo.h"
#include "mds/namespace/ns.h"
#include "mds/state/st.h"

enum op_size_mode { OP_SIZE_ALWAYS, OP_SIZE_LAYOUT, OP_SIZE_NEVER };

/* Clients that are lost while they may have been writing. */
struct file_lost {
	/* Written under the lock of all shards: transactions under way that give up a writer. */
	unsigned fl_losing;
	uint64_t fl_gen; /* likewise; rises with each of them */
	/* Any thread: writers are lost, so files may wait for mirror_state.c to judge them. The
	 * store has a row that says so, except where only st_judge has said it: a crash forgets
	 * that. */
	_Atomic bool fl_lost;
	bool fl_judging; /* used by the tick's loop only */
};

/* What the functions of this room work on. It does not change while anything is served, but for
 * what fe_lost points to. */
struct file_env {
	struct st *fe_st;
	struct ns *fe_ns;
	struct kv *fe_kv;
	struct lo *fe_lo;
	struct ds_reg *fe_dsc;
	struct file_lost *fe_lost;
	enum op_size_mode fe_size_mode;
	/* Any thread calls it after f_diverged of a file was set. */
	void (*fe_diverged)(void *arg, uint64_t ino);
	void *fe_diverged_arg;
	uint32_t fe_recall_ms;	/* how long clients get to return a layout */
	uint32_t fe_confirm_ms; /* how long data servers get to confirm a fence */
};

/* Returns the time of the store: ns_now(). */
struct ns_time file_now(void);

/* W: makes map the file's map, puts a row for its repair if the map is not whole, and writes what
 * changed to the journal. 0, or the store's error. */
int file_set_map(const struct file_env *fe, struct kv_txn *t, uint64_t ino,
		 const struct lo_map *map, struct ns_time now);
/* W: makes these objects of map was stale, where their stripe keeps another copy in sync. The file
 * may have another map by now. 0, or the store's error. */
int file_make_stale(const struct file_env *fe, struct kv_txn *t, uint64_t ino,
		    const struct lo_map *was, uint64_t objects);
/* The copies of these stripes may differ: of each, keeps one in sync in map and makes the others
 * stale. It keeps one whose server lives, and one that is not in doubted, where there is such a
 * copy. For a contended file it keeps the first copy. Returns the objects that became stale. Locks
 * the file. */
uint64_t file_suspect(const struct file_env *fe, uint64_t ino, struct lo_map *map, uint64_t stripes,
		      uint64_t doubted);
/* Asks the servers of the copies in sync which of them are lost: known to exist, and gone. Calls
 * then(arg, objects) on the loop, with one bit for each lost object. A server that does not answer
 * counts as if its copy were there. 0, or -ENOMEM: then is not called. */
int file_ask_lost(const struct file_env *fe, struct loop *loop, uint64_t ino, uint16_t incarnation,
		  const struct lo_map *map, void (*then)(void *arg, uint64_t objects), void *arg);
/* Does a client other than except have a write layout? Locks the file. */
bool file_writers_left(const struct file_env *fe, uint64_t ino, const struct st_client *except);
/* Returns lo_objects_with_orders of the file's map in t. */
uint64_t file_held(const struct file_env *fe, struct kv_txn *t, uint64_t ino);
#endif
