/*
 * file.h - what happens to one file, whoever asks for it. The room knows state, layouts, data
 * servers and the store; it knows no COMPOUND and no NFS request.
 *
 * copies.c: which copies of a file are in sync, in its map and in the store (docs/mirrors.md).
 * exclusive.c: a file for oneself (exclusive.h, docs/fencing.md).
 */
#ifndef MDS_FILE_FILE_H
#define MDS_FILE_FILE_H
#include "mds/dataserver/dsc.h"
#include "mds/layout/lo.h"
#include "mds/namespace/ns.h"
#include "mds/state/st.h"

/* What the functions of this room work on. It stays as it is while anything is served. */
struct file_env {
	struct st *fe_st;
	struct ns *fe_ns;
	struct kv *fe_kv;
	struct lo *fe_lo;
	struct dsc *fe_dsc;
	uint32_t fe_recall_ms;	/* how long holders get to return a layout */
	uint32_t fe_confirm_ms; /* how long data servers get to confirm a fence */
};

/* The time that the store keeps: CLOCK_REALTIME. */
struct ns_time file_now(void);

/* W: the file's map as it is to be, and a row for its repair where it is not whole. What changed is
 * in the journal. 0, or what the store says. */
int file_set_map(const struct file_env *fe, struct kv_txn *t, uint64_t ino,
		 const struct lo_map *map, struct ns_time now);
/* W: these objects of that map of the file, which may have another by now, become stale where their
 * stripe keeps one. */
int file_make_stale(const struct file_env *fe, struct kv_txn *t, uint64_t ino,
		    const struct lo_map *was, uint64_t objects);
/* The copies of these stripes may differ: of the map in hand, one that lives stays in sync, one
 * that is not doubted where there is one. Returns those that became stale. Locks the file. */
uint64_t file_mistrust(const struct file_env *fe, uint64_t ino, struct lo_map *map,
		       uint64_t stripes, uint64_t doubted);
/* Asks the servers of the map's copies in sync which of them are lost: known to exist, and not
 * there. then(arg, objects) on the loop, a bit each. Who does not answer says nothing of its copy.
 * 0, or -ENOMEM: then is not called. */
int file_ask_lost(const struct file_env *fe, struct loop *loop, uint64_t ino, uint16_t incarnation,
		  const struct lo_map *map, void (*then)(void *arg, uint64_t objects), void *arg);
/* A write layout is out, of others than except. Locks the file. */
bool file_writers_left(const struct file_env *fe, uint64_t ino, const struct st_client *except);
/* What lo_held_objects says of the file as it is stored in t. */
uint64_t file_held(const struct file_env *fe, struct kv_txn *t, uint64_t ino);
#endif
