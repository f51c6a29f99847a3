/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv.h - the ordered transactional store under the metadata server: its contract.
 *
 * What it is: one map from byte keys to byte values, ordered by memcmp (a shorter key sorts before
 * its extensions). Keys have 1..KV_KEY_MAX bytes, values 0..KV_VALUE_MAX bytes. The engine reserves
 * one key, the five bytes "\0weft": get, put and del refuse it with -EINVAL, and scans skip it.
 *
 * What it guarantees:
 * - Snapshot reads. A read transaction sees one committed state, entirely, for as long as it is
 *   open. It takes no lock and never waits.
 * - Serial writes. Mutations (struct kv_op) run one after another on the committer thread; each
 *   sees all before it.
 * - Group commit. All mutations that queued up during the last commit run in one transaction, which
 *   is committed durably once. o_done is called (on the submitter's loop) only after that commit:
 *   with err 0 the change is durable. A snapshot begun after o_done sees it.
 * - A mutation checks everything before its first kv_put or kv_del and touches only its
 *   transaction: a mutation that returns an error has written nothing.
 * - A failed commit aborts the batch: each member's o_done gets that error. A failed sync ends the
 *   process (what is on disk is unknown).
 * - A redo log makes a commit durable (kv_redo.h). kv_open replays the log after a crash.
 * - The batch's write set (puts and deletes, in order) is visible to the engine as a value before
 *   it is applied (kv_writeset), for replication.
 * - The store refuses writes on a full disk before the commit, one mutation at a time: see kv_put.
 *
 * Caveats, each with its cure:
 * - Values returned point into the store. They are valid until the transaction is reset or ended
 *   (in a mutation: until its next put or del). Copy what must live longer.
 * - An old snapshot keeps freed pages from being reused: reset it at the end of the loop's turn and
 *   never hold it across a wait.
 * - One process at a time opens a store for writing. A second one waits 10 seconds and gets -EBUSY,
 *   and err names the holder's pid. Other processes may open it read-only at the same time. A
 *   read-only open of a store that was not closed, and that no process has open, first replays the
 *   log, so it writes. A process opens a store once (closing the second would drop LMDB's file
 *   locks for both).
 * - A kv does not live across fork(): open after it.
 * - End read handles before kv_close (else kv_close logs them, and their map stays until the
 *   process ends).
 */
#ifndef KV_KV_H
#define KV_KV_H
#include "base/loop.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KV_KEY_MAX   480
#define KV_VALUE_MAX (1u << 20)

struct kv;
struct kv_txn; /* a read transaction, or the write transaction inside a mutation */

struct kv_slice {
	const void *s_data;
	size_t s_len;
};

struct kv_redo;
struct kv_opts {
	bool ko_readonly;
	/* create the store when there is none (and its folder, but not the folder's parents) */
	bool ko_create;
	/* commits are not durable: for benchmarks beside others; kv_open logs a warning */
	bool ko_nosync;
	uint64_t ko_map_max; /* address space to reserve, bytes; 0: 1 TiB (it is not memory) */
	/* For writing: keep so many bytes of the log of before, for incremental backups. 0: if the
	 * store has such an archive, it goes on; -1: the archive goes. */
	int64_t ko_archive;
	/* The archive that is there goes: what comes now does not follow from it. */
	bool ko_archive_new;
	/* For writing: the log that the store is a copy of (kv_redo.h). NULL: the store has its log
	 * in files. */
	const struct kv_redo *ko_redo;
	/* With ko_redo: follow the log that another process writes. Mutations get -EROFS until
	 * kv_promote. */
	bool ko_follow;
	/* With ko_redo: empty the copy, and fill it with the state that the log keeps. For a copy
	 * that lacks what the log no longer has (-ESTALE of kv_follow, kv_promote and kv_open).
	 * -ENOENT: the log keeps no state, and the copy is as before. No other process may read the
	 * store meanwhile. */
	bool ko_refill;
};

/* path: a folder. Starts the committer thread, unless read-only: then mutations get -EROFS. On
 * failure returns a negative errno and writes one line into err. -EBUSY: in use; -EPROTO: wrong
 * version or not a store of weft; -ENOENT: no store; -ETXTBSY: a process from before a crash reads
 * it; -EIO, -ESTALE: its log is damaged, or belongs to another store. */
int kv_open(struct kv **out, const char *path, const struct kv_opts *o, char *err, size_t errlen);
/* Drains the queue, commits, and stops the committer. When it returns, every completion is posted.
 * Submit nothing after it began. */
void kv_close(struct kv *kv);

/* Reads. A kv_txn belongs to the thread that began it. -EUSERS: all processes together have 1024
 * handles open. */
int kv_read_begin(struct kv *kv, struct kv_txn **out);
/* Drops the snapshot but keeps the handle (cheap). */
void kv_read_reset(struct kv_txn *t);
/* Takes a new snapshot on a handle; resets the handle first where it was not reset. */
int kv_read_renew(struct kv_txn *t);
/* Ends and frees the handle. */
void kv_read_end(struct kv_txn *t);

/* The number of the last transaction that this snapshot sees; in a copy of a log elsewhere, of the
 * last batch. */
uint64_t kv_read_number(const struct kv_txn *t);
/* Returns 0, -ENOENT, or another negative errno (-EIO: the store is damaged). In both kinds of
 * transaction. */
int kv_get(struct kv_txn *t, struct kv_slice key, struct kv_slice *val);

/* Scans the keys >= from that begin with prefix, in order. The cursor is on the caller's stack.
 * Always call kv_scan_end. In a mutation: no put or del while a scan is open. */
struct kv_scan {
	struct kv_txn *sc_txn;
	void *sc_priv;
	struct kv_slice sc_prefix, sc_from; /* caller's memory, for the life of the scan */
	bool sc_started;
};
/* Returns 0 or a negative errno. */
int kv_scan_begin(struct kv_txn *t, struct kv_slice prefix, struct kv_slice from,
		  struct kv_scan *sc);
/* Returns 1: a pair; 0: no more; or a negative errno. */
int kv_scan_next(struct kv_scan *sc, struct kv_slice *key, struct kv_slice *val);
void kv_scan_end(struct kv_scan *sc);

/* Writes, in a mutation only (-EROFS elsewhere). Returns 0 or a negative errno. key and val must
 * not point into the store. -ENOSPC when the store is full, decided by the mutation's first write:
 * a put of a new key or of a longer value is refused; a put over a value of the same or a greater
 * length may use part of the reserve, a delete nearly all of it, and so may the writes after them.
 * So a mutation that frees (unlink) makes its delete first, and one that adds (create) makes its
 * put of a new key first. An error here (-ENOENT apart) after an earlier write of the same mutation
 * fails the whole batch, whatever o_run returns. */
int kv_put(struct kv_txn *t, struct kv_slice key, struct kv_slice val);
int kv_del(struct kv_txn *t, struct kv_slice key); /* -ENOENT when absent */

/* A mutation. The caller owns the memory and keeps it until o_done. */
struct kv_op {
	/* On the committer thread, exactly once; must not block. Returns 0: take part in the
	 * commit; or a negative errno: checked and refused, nothing written. To write and then
	 * refuse is a programming error: kv logs it, and the whole batch gets that error. */
	int (*o_run)(struct kv_op *op, struct kv_txn *t);
	/* On o_loop's thread, once. err: what o_run returned, or the commit's error. */
	void (*o_done)(struct kv_op *op, int err);
	/* NULL: o_done runs on the committer thread (kv_run_sync) and must not block. */
	struct loop *o_loop;
	/* The engine's own: */
	int o_err;
	uint64_t o_request, o_batch; /* log_request of the submitter; number of its batch */
	struct loop_msg o_msg;
	struct cds_wfcq_node o_node;
};
/* Any thread; the enqueue is wait-free. The completion of a refused mutation comes after its
 * batch's commit as well, so that what the mutation saw is durable. */
void kv_submit(struct kv *kv, struct kv_op *op);
/* For start-up and tools: runs a mutation and waits for it. Not on a loop thread. */
int kv_run_sync(struct kv *kv, int (*run)(void *arg, struct kv_txn *t), void *arg);

/* The write set of the current batch. The committer thread calls the replication hook with it
 * before the commit, if the batch wrote. ws_batch rises by one with each commit and is durable; the
 * number of an aborted batch is used again. Valid during the call. */
struct kv_write {
	struct kv_slice w_key, w_val;
	bool w_del;
};
struct kv_writeset {
	const struct kv_write *ws_v;
	size_t ws_n;
	uint64_t ws_batch;
};
/* The hook may refuse (negative errno): then the batch is aborted with that error. Set before the
 * first submit. */
void kv_set_batch_hook(struct kv *kv, int (*hook)(void *arg, const struct kv_writeset *ws),
		       void *arg);

/* The archive of a store, which any process may read, beside the process that writes it. */
struct kv_archive {
	uint8_t ka_id[16]; /* identity: the numbers of two archives say nothing about each other */
	uint64_t ka_first, ka_last; /* transactions; it lags a running store by some seconds */
};
/* store: the folder. -ENOENT: there is none. -EIO: it has no good segment, or the server makes the
 * first one just now. */
int kv_archive_look(const char *store, struct kv_archive *out);
/* Calls fn for each write of the transactions from..to, in order; fn returns 0 to go on. -ESTALE:
 * the archive has another identity, or lacks one of them. */
int kv_archive_read(const char *store, const uint8_t id[16], uint64_t from, uint64_t to,
		    int (*fn)(void *arg, uint64_t txn, const struct kv_write *w), void *arg);
/* When and why the store's archive ended, the last time that it did so before its room was used up.
 * False: it never did, or nothing says why. */
#define KV_ARCHIVE_WHY 160
bool kv_archive_gap(const char *store, int64_t *at, char why[KV_ARCHIVE_WHY]);
/* A process that reads a store keeps a writer from recovering it after a crash. Is that so now, or
 * about to be: no process has the store open for writing, and its log is needed? */
bool kv_reader_in_the_way(const char *store);

struct kv_stats {
	/* commits that wrote; operations that completed; refused among them */
	uint64_t ks_commits, ks_ops, ks_refused;
	/* the most bytes that the store has held (freed pages are reused, not returned); the map's
	 * size in bytes */
	uint64_t ks_bytes_used, ks_map_bytes;
	/* checkpoints of the log, and how often a commit waited for one */
	uint64_t ks_checkpoints, ks_log_waits;
	/* why the archive cannot be written (-errno); 0: it can, or there is to be none */
	int ks_archive_err;
	/* time in commits; time in o_run and the hook */
	uint64_t ks_sync_ns, ks_run_ns;
};
/* Any thread. */
void kv_stats(struct kv *kv, struct kv_stats *out);
/* In o_run: true while the disk gives the store no more room. Mutations that free are still let
 * in, and should not keep anything. */
bool kv_low(const struct kv *kv);
#endif
