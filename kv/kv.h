/*
 * kv.h - the ordered transactional store under the metadata server: its contract.
 *
 * What it is: one map from byte keys to byte values, ordered by memcmp (a shorter key sorts before
 * its extensions). Keys are 1..KV_KEY_MAX bytes, values 0..KV_VALUE_MAX bytes. One key is the
 * engine's: the five bytes "\0weft" (-EINVAL; scans skip it).
 *
 * What it guarantees:
 * - Snapshot reads. A read transaction sees one committed state, entirely, for as long as it is
 * open; it takes no lock and never waits.
 * - Serial writes. Mutations (struct kv_op) run one after another on the committer thread, each
 * seeing all before it.
 * - Group commit. All mutations that queued up while the last commit was on its way to the disk run
 * in one transaction, which is committed durably once. o_done is called (on the loop of the one who
 * asked) only after that commit: with err 0 the change is durable. A snapshot begun after o_done
 * sees it.
 * - A mutation checks everything before its first kv_put/kv_del and touches only its transaction:
 * one that returns an error has written nothing.
 * - A failed commit aborts the batch: every member's o_done gets that error. A failed sync ends the
 * process (what is on disk is unknown).
 * - A commit is durable by a log (kv_log.c), which is done again when the store is opened after a
 *   crash.
 * - The batch's write set (puts and deletes, in order) is visible to the engine as a value before
 * it is applied (kv_writeset), for replication.
 * - A full disk is met before the commit, one mutation at a time: see kv_put.
 *
 * Caveats, each with its cure:
 * - Values returned point into the store: valid until the transaction is reset or ended (in a
 * mutation: until its next put or del). Copy what must live longer.
 * - An old snapshot keeps freed pages from being reused: reset it at the end of the loop's turn and
 * never hold it across a wait.
 * - One process at a time opens a store for writing (-EBUSY, after 10 seconds, for the second one,
 *   whose err
 * names the holder's pid); read-only opens beside it are allowed, from other processes (of a store
 * that was not closed, and that nobody has open, a read-only open does the log again first, so it
 * writes): a process opens a store once (closing the second would drop LMDB's file locks for both).
 * - A kv does not live across fork(): open after it.
 * - End read handles before kv_close (else it is logged and their map stays until the process
 * ends).
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

struct kv_opts {
	bool ko_readonly;
	bool ko_create; /* make the store when there is none (and the folder, not those above) */
	bool ko_nosync; /* commits are not durable: for benchmarks beside others; logged loudly */
	uint64_t ko_map_max; /* address space to reserve, bytes; 0: 1 TiB (it is not memory) */
};

/* path: a folder. On failure a negative errno (-EBUSY in use, -EPROTO wrong version or no store of
 * ours, -ENOENT no store, -ETXTBSY read by a process from before a crash, -EIO or -ESTALE its log
 * is damaged or another store's) and one line in err. Starts the committer thread, unless
 * read-only: then mutations are answered with -EROFS. */
int kv_open(struct kv **out, const char *path, const struct kv_opts *o, char *err, size_t errlen);
/* Drains the queue, commits, stops the committer. Every answer has been posted when it returns;
 * nothing is submitted after it began. */
void kv_close(struct kv *kv);

/* Reads. A kv_txn belongs to the thread that began it. -EUSERS: 1024 handles are open, in all
 * processes together. */
int kv_read_begin(struct kv *kv, struct kv_txn **out);
/* Drops the snapshot but keeps the handle (cheap). */
void kv_read_reset(struct kv_txn *t);
/* A fresh snapshot on a handle that was reset (or not: then it is reset first). */
int kv_read_renew(struct kv_txn *t);
void kv_read_end(struct kv_txn *t);

/* 0, -ENOENT, or another negative errno (-EIO: the store is damaged). Both kinds of transaction. */
int kv_get(struct kv_txn *t, struct kv_slice key, struct kv_slice *val);

/* Scans keys >= from that begin with prefix, in order. The cursor is on the caller's stack;
 * kv_scan_end always. In a mutation: no put or del while a scan is open. */
struct kv_scan {
	struct kv_txn *sc_txn;
	void *sc_priv;
	struct kv_slice sc_prefix, sc_from; /* caller's memory, for the life of the scan */
	bool sc_started;
};
int kv_scan_begin(struct kv_txn *t, struct kv_slice prefix, struct kv_slice from,
		  struct kv_scan *sc);
/* 1: a pair; 0: no more; negative errno */
int kv_scan_next(struct kv_scan *sc, struct kv_slice *key, struct kv_slice *val);
void kv_scan_end(struct kv_scan *sc);

/* Writes, in a mutation only (-EROFS elsewhere). 0 or a negative errno. key and val are not memory
 * of the store. -ENOSPC when the store is full, decided by the mutation's first write: a put of a
 * new key or a longer value is refused; a put over a value as long or longer goes on with part of
 * the reserve, a delete with nearly all of it, and so do the writes after them. So a mutation that
 * frees (unlink) makes its delete first, and one that adds (create) makes its put of a new key
 * first. An error here (-ENOENT apart) after an earlier write of the same mutation fails the whole
 * batch, whatever o_run returns. */
int kv_put(struct kv_txn *t, struct kv_slice key, struct kv_slice val);
int kv_del(struct kv_txn *t, struct kv_slice key); /* -ENOENT when absent */

/* A mutation. Memory is the caller's until o_done. */
struct kv_op {
	/* On the committer thread. 0: take part in the commit. Negative errno: checked and refused;
	 * nothing was written. It must not block. (Wrote and refused is a programming error: it is
	 * logged and the whole batch gets that error.) May run twice? No: exactly once. */
	int (*o_run)(struct kv_op *op, struct kv_txn *t);
	/* On o_loop's thread, once. err: what o_run returned, or the commit's error. */
	void (*o_done)(struct kv_op *op, int err);
	/* NULL: o_done runs on the committer thread (kv_run_sync) and must not block. */
	struct loop *o_loop;
	/* The engine's: */
	int o_err;
	struct loop_msg o_msg;
	struct cds_wfcq_node o_node;
};
/* Any thread. Wait-free enqueue; a refused mutation is answered with its batch as well (so that
 * what it saw is durable). */
void kv_submit(struct kv *kv, struct kv_op *op);
/* For start-up and tools: runs and waits. Not on a loop thread. */
int kv_run_sync(struct kv *kv, int (*run)(void *arg, struct kv_txn *t), void *arg);

/* The write set of the batch in hand: for the replication hook, called on the committer thread
 * before the commit, when the batch wrote. ws_batch rises by one with each commit and is durable;
 * an aborted batch's number is used again. Valid during the call. */
struct kv_write {
	struct kv_slice w_key, w_val;
	bool w_del;
};
struct kv_writeset {
	const struct kv_write *ws_v;
	size_t ws_n;
	uint64_t ws_batch;
};
/* hook may refuse (negative errno): the batch is aborted with that error. Set before the first
 * submit. */
void kv_set_batch_hook(struct kv *kv, int (*hook)(void *arg, const struct kv_writeset *ws),
		       void *arg);

struct kv_stats {
	/* commits that wrote; operations answered; refused among them */
	uint64_t ks_commits, ks_ops, ks_refused;
	/* the most the store has held (freed pages are used again, not returned); the map's size */
	uint64_t ks_bytes_used, ks_map_bytes;
	/* of the log, and how often a commit waited for one */
	uint64_t ks_checkpoints, ks_log_waits;
	/* sums: in commits; in o_run and the hook */
	uint64_t ks_sync_ns, ks_run_ns;
};
/* Any thread. */
void kv_stats(struct kv *kv, struct kv_stats *out);
#endif
