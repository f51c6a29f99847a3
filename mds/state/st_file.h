/* SPDX-License-Identifier: Apache-2.0 */
/* st_file.h - the state of a file: what keeps others away from it, its marks (docs/size.md), writes
 * that are under way, and writes that some copies have. */
#ifndef MDS_STATE_ST_FILE_H
#define MDS_STATE_ST_FILE_H
#include "base/hash.h"
#include "kv/kv.h"
#include "proto/nfs4.h"

struct st;
struct st_client;
struct st_layout;
struct st_lock;
struct st_open;
struct st_wait;
struct st_waiter;

/* A write through the MDS that some copies have and some may not: the client was asked to repeat
 * it, and has not done so yet (partial_write.c). */
struct st_partial {
	struct st_partial *hf_next;
	struct st_file *hf_file;
	uint64_t hf_off, hf_end;
};

/* A write of a mirrored file through the MDS that is under way. Two that overlap could reach the
 * copies in different orders. The writer owns the memory. */
struct st_write {
	struct st_write *sw_next;
	const struct st_client *sw_client;
	uint64_t sw_off, sw_end;
};

/* State of one file, while any client has some. */
struct st_file {
	struct hash_link f_link;
	uint64_t f_ino;
	struct st_open *f_opens;
	struct st_lock *f_locks; /* each belongs to one of f_opens */
	struct st_waiter *f_waiters;
	uint32_t f_nwaiters;
	/* Waits for layouts or delegations to come back (st_recall_file, st_recall_delegs). */
	struct st_wait *f_waits;
	struct st_layout *f_layouts;
	uint32_t f_removing; /* mutations that free it are queued: no new opens (DELAY) */
	/* A shrink or a recall is under way: no new layouts (RECALLCONFLICT). */
	uint32_t f_nexcl;
	bool f_watched; /* see st_file_watch */
	/* A write layout is or was out: size and change attribute must come from the data
	 * servers. */
	bool f_intent;
	/* The store has the mark. f is kept, so that this is known until the mark is deleted. */
	bool f_intent_durable;
	/* A writer of it is lost: before it is used again, excl_resolve believes one copy and makes
	 * the others stale. */
	bool f_suspect;
	/* rises with each lost writer: a verdict from before does not cover it */
	uint32_t f_suspect_gen;
	/* It had writers when an earlier boot ended; which clients is not known. */
	bool f_suspect_boot;
	/* The mark is from an earlier boot: excl_resolve raises the epoch before the file's size is
	 * asked for or a layout is granted. */
	bool f_intent_old;
	uint32_t f_old_epoch; /* what excl_resolve raised it to for that */
	/* It is mirrored, and two clients wrote it at once: its copies may differ
	 * (mds/jobs/contended.c). The mark says so too. */
	bool f_contended;
	bool f_contending; /* the mark is being changed to say so */
	/* contended, and compared since the last grant for writing */
	bool f_equal;
	struct st_write *f_writes; /* of a mirrored file, each pinned */
	/* It is mirrored, and its copies reported different ends or writes when no client wrote it.
	 * They are not compared yet (contended.c). */
	bool f_diverged;
	bool f_counts;	       /* f_moved covers all writes since the mark was put */
	uint64_t f_moved;      /* objects that were written since then, a bit each */
	bool f_set;	       /* a size was set in this boot */
	uint32_t f_set_grants; /* f_grants at that time */
	bool f_orphan;	       /* its last link went while it was open */
	/* Of f_nexcl: exclusions that keep out changes of data through the MDS. */
	uint32_t f_nfrozen;
	uint32_t f_nhidden; /* of f_nfrozen: exclusions that keep out reads too */
	/* Of f_nexcl: layouts that may name stale objects are coming back. No writes through the
	 * MDS meanwhile: readers by those layouts would not see them. */
	uint32_t f_nrecalling;
	uint32_t f_nsizing; /* of f_nexcl: exclusions that set the size */
	/* of f_nsizing: exclusions whose size is in the store, or about to be */
	uint32_t f_ncutting;
	/* questions to data servers, and changes through the MDS, that are under way */
	uint32_t f_pins;
	uint32_t f_npartials; /* writes of it that some copies have (st_partial) */
	/* The error with which the last copy failed. The client that reported it gets no write
	 * layout until f_error_until_ns, so that the application gets the error. */
	nfsstat4 f_error;
	uint64_t f_error_until_ns, f_error_client;
	/* Objects (a bit each) that f_unread_client lately could not read, or not reach; valid
	 * until f_unread_until_ns. */
	uint64_t f_unread, f_unreached;
	uint64_t f_unread_client, f_unread_until_ns;
	/* 1 plus the epoch in which a client reported that a live server denied it access. The
	 * second report counts. */
	uint32_t f_denied;
	uint32_t f_intent_gen; /* rises when the mark is deleted */
	/* Rises with each grant for writing: an answer asked for before a grant does not delete the
	 * mark. */
	uint32_t f_grants;
	/* until then a request that only reads it (clone.c) does not freeze it */
	uint64_t f_calm_ns;
	/* Rises with every size that is set: an answer asked for before that is worth nothing. */
	uint64_t f_sizegen;
};

/* Files */
struct st_file *st_file_get(struct st *st, uint64_t ino, bool make); /* locked */
/* locked: frees it when nothing is left */
void st_file_put(struct st *st, struct st_file *f);

/* locked. Call it when f_intent, f_intent_old, f_suspect, f_nhidden or f_contended was set: from
 * then on st_watched(f_ino) is true, until none of them is set. */
void st_file_watch(struct st_file *f);
/* Any thread, without a lock. False: no delegation on the file is out, and it is not marked, not to
 * be judged, and not hidden. True may rarely be wrong. */
bool st_watched(uint64_t ino);
/* Any thread. It changes when a file is no longer watched, or a delegation has gone. A snapshot
 * from before that may be older than answers that were given about the file since. */
uint32_t st_unwatches(void);
/* locked: a writer of the file is lost. */
static inline void st_file_suspect(struct st_file *f)
{
	f->f_suspect = true;
	st_file_watch(f);
	f->f_suspect_gen++;
}

/* The marks */
/* locked, or before anything is served: a writer of an earlier boot is lost. All files that had one
 * then are to be judged. */
void st_intents_suspect(struct st *st);
/* The row of a mark (docs/size.md): in version 1 that byte alone; version 2 has a byte of flags. */
enum { ST_INTENT_CONTENDED = 1 };
static inline bool st_intent_contended(struct kv_slice row)
{
	const uint8_t *p = row.s_data;

	return row.s_len >= 2 && p[0] == 2 && (p[1] & ST_INTENT_CONTENDED);
}

/* partial_write.c; all locked. The client was asked to repeat a change of [off, end), which some
 * copies may have already. This is remembered until st_partial_over reports that the change was
 * done. If the client goes first, or closes the file, the file is to be judged (f_suspect). False:
 * no room; the caller judges. */
bool st_partial_note(struct st *st, struct st_client *c, uint64_t ino, uint64_t off, uint64_t end);
void st_partial_over(struct st *st, struct st_client *c, uint64_t ino, uint64_t off, uint64_t end);
/* The changes will not be repeated: of this file, or of all files (NULL). */
void st_partial_lost(struct st *st, struct st_client *c, struct st_file *f);
#endif
