/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_int.h - what the files of the engine share: kv_lmdb.c (store, reads, writes), kv_commit.c (the
 * committer thread), kv_redo.c (commits by the redo log, whichever it is), kv_log.c and
 * kv_log_read.c (the log in files), kv_copy.c (a store that is a copy of a log elsewhere),
 * kv_checkpoint.c (checkpoints and recovery), kv_archive.c (what the log had, for backups),
 * kv_layout.c (LMDB's meta pages are those that the log knows), kv_space.c (space on the disk). No
 * file outside kv/ includes it.
 */
#ifndef KV_KV_INT_H
#define KV_KV_INT_H
#include "kv/kv.h"
#include "kv/kv_redo.h"
#include <lmdb.h>
#include <pthread.h>
#include <stdatomic.h>

/* Most mutations in one batch: bounds how long the first of them waits for the last. */
#define KV_BATCH_OPS 8192
/* Event loops that get one message each per batch; with more of them a loop may get several. */
#define KV_BATCH_LOOPS 64

struct kv_txn {
	struct kv *t_kv;
	MDB_txn *t_mdb;
	MDB_cursor *t_spare; /* read handles: the last scan's cursor, which the next scan renews */
	bool t_write;
	bool t_live;  /* read handles: has a snapshot */
	bool t_wrote; /* write: the current mutation has written */
	int t_err;    /* write: the error for which the batch cannot be committed */
};

/* Pages, all of them. The reasoning is in kv_space.c. */
struct kv_space {
	int sp_fd;
	uint32_t sp_psize;
	bool sp_statvfs;   /* the file system cannot promise blocks: kv asks for its free space */
	bool sp_cow;	   /* the file system writes elsewhere when it overwrites */
	bool sp_low;	   /* the disk (or the map) gave no more at the last try */
	uint64_t sp_max;   /* the map's end */
	uint64_t sp_alloc; /* pages below this one have blocks on the disk */
	uint64_t sp_retry_ns;
	/* The current batch: */
	uint64_t sp_base; /* first page that was never used */
	uint64_t sp_free; /* pages that LMDB can use again; counted only when low */
	uint64_t sp_tree, sp_depth;
	/* Charged so far: copies, new pages, new pages in runs. */
	uint64_t sp_touched, sp_new, sp_tail;
};

/* A batch's writes, as the log's record (kv_log.h); wl_v: the same as a list, for the hook. */
struct kv_wlog {
	char *wl_buf; /* aligned to KV_LOG_BLOCK */
	size_t wl_len, wl_cap, wl_n;
	struct kv_write *wl_v;
	size_t wl_room;
};
/* A batch is committed when its record has this length. */
#define KV_RECORD_FULL (512u << 10)

#define KV_LOG_MIN (1u << 20)
#define KV_LOG_MAX (32u << 20)

struct kv_log_file {
	int lf_fd;
	uint64_t lf_size; /* blocks are allocated up to here, with zeros or more in them */
};

/* The log of a store that is open for writing and syncs. The reasoning is in kv_log.c. */
struct kv_log {
	/* there is a log, and lg_id, lg_cur and lg_gen come from its newest header */
	bool lg_found;
	bool lg_clean; /* that header says that the store was closed */
	bool lg_on;
	uint8_t lg_id[16];
	struct kv_log_file lg_file[2];
	pthread_t lg_thread;
	uint64_t lg_txnid; /* of the header that was found */
	MDB_txn *lg_pin;   /* the state of the newest header */

	/* Held over a commit: from before the record to after LMDB's commit. Guards all below. */
	pthread_mutex_t lg_lock;
	/* lg_work: for the checkpoint's thread; lg_done: for threads that wait for it */
	pthread_cond_t lg_work, lg_done;
	unsigned lg_cur;	  /* the file that records go to */
	uint64_t lg_gen, lg_base; /* generation of these records; of the newest header */
	uint64_t lg_pos;
	uint64_t lg_first_ns; /* since when there are records without a checkpoint; 0: none */
	bool lg_asked, lg_fast, lg_stop;

	/* The checkpoint's own: the records that it makes unnecessary, their file, generation (0:
	 * there was no checkpoint yet) and end. */
	unsigned lg_was_file;
	uint64_t lg_was_gen, lg_was_end;
};

/* A copy of a log elsewhere: which log, and what it holds of it. Changes under lg_lock. */
struct kv_copy {
	char co_name[KV_REDO_NAME];
	uint8_t co_id[KV_REDO_ID];
	_Atomic uint64_t co_batch;
	uint8_t co_sum[KV_REDO_SUM]; /* of that batch's record */
	uint64_t co_epoch;	     /* with which this process writes */
	/* The follower's own: it applies a batch inside ro_read, and waits for no checkpoint. */
	bool co_inside;
};

struct kv_answer {
	struct loop *a_loop;
	struct kv_op *a_first, *a_last;
};

struct kv {
	char *k_path;
	bool k_readonly;
	bool k_copy_row;       /* the store has the row of a copy */
	_Atomic bool k_writes; /* the committer runs */
	int k_lock_fd;
	int k_mdb_lock_fd; /* -1, or lock.mdb: closing it would drop LMDB's own lock */
	MDB_env *k_env;
	MDB_dbi k_dbi;
	size_t k_map_bytes;
	unsigned k_psize;
	_Atomic int64_t k_readers; /* read handles not ended yet */

	/* Submitters and the committer: */
	struct cds_wfcq_head k_head;
	struct cds_wfcq_tail k_tail __attribute__((aligned(64)));
	_Atomic uint32_t k_asleep
		__attribute__((aligned(64))); /* futex: 1 while the committer sleeps */
	_Atomic bool k_stop;
	pthread_t k_thread;

	_Atomic uint64_t k_commits, k_ops, k_refused, k_sync_ns, k_run_ns;

	/* The committer's own: */
	struct cds_wfcq_head k_own_head; /* spliced, not run yet */
	struct cds_wfcq_tail k_own_tail;
	struct kv_op *k_batch[KV_BATCH_OPS];
	size_t k_batch_n;
	uint64_t k_batches; /* so many have run */
	struct kv_answer k_answers[KV_BATCH_LOOPS];
	struct kv_txn k_txn;
	bool k_dirty; /* the batch has written */
	struct kv_space k_space;
	int (*k_hook)(void *arg, const struct kv_writeset *ws);
	void *k_hook_arg;
	struct kv_wlog k_wlog;
	struct kv_log k_log;
	struct kv_redo k_redo;
	struct kv_copy k_copy;
	struct kv_archive_out *k_archive; /* NULL: none. The checkpoints' thread has it. */
	_Atomic uint64_t k_checkpoints, k_log_waits;
	_Atomic int k_archive_err; /* why it could not be written; 0: it can be, or there is none */
};

/* LMDB's result as a negative errno. */
int kv_errno(int rc);

/* kv_lmdb.c: the write transaction, on the committer thread. kv_txn_commit does not return from a
 * failed sync. */
int kv_fsync_folder(const char *path);
int kv_txn_begin(struct kv *kv);
int kv_txn_commit(struct kv *kv);
void kv_txn_abort(struct kv *kv);

/* kv_log.c */
/* Returns 0, -ENOMEM or -E2BIG. */
int kv_wlog_add(struct kv_wlog *wl, struct kv_slice key, struct kv_slice val, bool del);
/* Makes wl_v, whose slices point into the record: valid until the next kv_wlog_add or
 * kv_wlog_reset. */
int kv_wlog_list(struct kv_wlog *wl);
void kv_wlog_reset(struct kv_wlog *wl);
void kv_wlog_free(struct kv_wlog *wl);
/* The log in files. */
extern const struct kv_redo_ops kv_log_ops;
/* After a record that is committed: wakes the checkpoints' thread where one is due. */
void kv_log_wake(struct kv_log *lg);
/* at and len: multiples of KV_LOG_BLOCK; buf is aligned to it. */
int kv_log_write(int fd, const void *buf, size_t len, uint64_t at, bool through);
int kv_log_grow(struct kv_log_file *lf, uint64_t size);
/* Doubles the file's size, where there is plenty of space. */
void kv_log_double(struct kv_log_file *lf);

/* Functions describe errors in f. */
struct kv_failure {
	char *f_text;
	size_t f_size;
};
int kv_fail(struct kv_failure *f, int rc, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* kv_redo.c */
static inline bool kv_redo_local(const struct kv *kv)
{
	return kv->k_redo.r_ops == &kv_log_ops;
}
/* The number of the batch that is being made. */
uint64_t kv_redo_next(const struct kv *kv);
/* Gives the batch to the log, then does LMDB's commit. After an error neither is in place. */
int kv_redo_commit(struct kv *kv);
/* Does the writes of a record in txn. Returns LMDB's error. */
int kv_redo_do(struct kv *kv, MDB_txn *txn, const void *rec);
/* After a crash, with a log in files: does all batches after that one again. */
int kv_redo_replay(struct kv *kv, uint64_t after, struct kv_failure *f);

/* kv_copy.c: a store that is a copy of a log elsewhere. */
/* Before anything else: which log it is, and that the store is of that kind. */
int kv_copy_begin(struct kv *kv, const struct kv_opts *o, struct kv_failure *f);
/* In a transaction, on the store's own row: puts it into an empty store. */
int kv_copy_make(struct kv *kv, MDB_txn *txn);
/* Is this row that of a copy? */
bool kv_copy_is(MDB_val val);
/* Is it a copy of this log? Then the store holds what the row says. */
int kv_copy_check(struct kv *kv, MDB_val val, struct kv_failure *f);
/* Fills a new copy with the state that the log has to begin with; refill: also one that is
 * there. */
int kv_copy_fill(struct kv *kv, bool refill, struct kv_failure *f);
/* Seals the batch's record, and puts the row into the batch. */
int kv_copy_seal(struct kv *kv, struct kv_redo_batch *b);
/* The batch is committed. */
void kv_copy_done(struct kv *kv, const struct kv_redo_batch *b);
/* The number in a snapshot: the row's, where there is one. */
uint64_t kv_copy_number(struct kv *kv, MDB_txn *txn);

/* kv_log_read.c */
/* Checks all records behind the newest checkpoint. */
int kv_log_check(struct kv *kv, struct kv_failure *f);
int kv_log_read(void *log, uint64_t after, kv_redo_batch_fn fn, void *arg, char *err,
		size_t errlen);

/* kv_checkpoint.c */
/* Returns a descriptor or a negative errno. */
int kv_open_in(const char *folder, const char *name, int flags);
/* The name of file i (0 or 1) with checkpoints. */
const char *kv_head_name(bool copy, unsigned i);
/* Returns 1: there is a log with records; 0: there is none, or the store was closed; or -EIO.
 * Changes nothing. */
int kv_log_look(const char *path, struct kv_failure *f);
/* Before LMDB opens the store: where the store was not closed, restores the newest checkpoint's
 * state in its data file. */
int kv_log_restore(struct kv *kv, struct kv_failure *f);
/* A copy whose checkpoint was put back: from here on that is the state of a store that was closed,
 * and LMDB's commits are durable. */
int kv_log_settle(struct kv *kv, struct kv_failure *f);
/* After LMDB has opened it: replays the log's records. */
int kv_log_replay(struct kv *kv, struct kv_failure *f);
/* Opens the log's files, and makes missing ones: before kv_log_start. */
int kv_log_files(struct kv *kv, struct kv_failure *f);
/* From here on commits go to the log. */
int kv_log_start(struct kv *kv, struct kv_failure *f);
/* Ends what kv_log_start began, and marks the store as closed. No commit runs meanwhile. */
void kv_log_stop(struct kv *kv);
void kv_log_init(struct kv *kv);
void kv_log_free(struct kv *kv);
/* On the thread that commits, without lg_lock. Makes a checkpoint of all that was committed;
 * returns when it is complete. Where a follower is inside ro_read (co_inside) it only asks for
 * one. */
void kv_log_checkpoint(struct kv *kv);

/* kv_layout.c: refuse an LMDB that the log does not know (-EPROTO). */
struct kv_log_head;
/* Before anything of the store is read or written: the library, and the data version of data.mdb,
 * where there is one. */
int kv_layout_look(const char *path, struct kv_failure *f);
/* Before a checkpoint is put back: the meta pages that it has. */
int kv_layout_head(const char *path, const struct kv_log_head *h, struct kv_failure *f);
/* After LMDB has opened the store for writing: what it says against its meta pages. */
int kv_layout_check(struct kv *kv, struct kv_failure *f);

/* kv_archive.c: what the log had, for incremental backups. Errors end the archive only. */
/* Removes the archive, if there is one: what comes now does not follow from it. */
void kv_archive_drop(struct kv *kv, const char *why);
/* Before the log is replayed. */
void kv_archive_open(struct kv *kv, const struct kv_opts *o);
/* After that: makes a new archive, if the one that is there does not end with the store's state. */
void kv_archive_begin(struct kv *kv);
/* Adds a whole record of the log. One that is there already is left out. */
void kv_archive_add(struct kv *kv, const void *rec);
/* Adds what the log has up to that batch, and the archive has not. sum: of that batch's record, in
 * a copy of a log elsewhere. */
void kv_archive_take(struct kv *kv, uint64_t upto, const uint8_t sum[KV_REDO_SUM]);
/* Up to which batch the log may be trimmed: upto, or less where the archive lacks some. */
uint64_t kv_archive_spares(const struct kv *kv, uint64_t upto);
/* Makes durable what was added. Returns an error only after the archive went. */
int kv_archive_sync(struct kv *kv);
/* Begins an archive behind that transaction, if the one before went and there is room. */
void kv_archive_again(struct kv *kv, uint64_t last);
void kv_archive_close(struct kv *kv);

/* kv_commit.c */
int kv_committer_start(struct kv *kv);
void kv_committer_stop(struct kv *kv);

/* kv_space.c */
int kv_space_open(struct kv *kv);
void kv_space_begin(struct kv *kv);
enum kv_write_kind { KV_GROW, KV_UPDATE, KV_DELETE };
/* Before a write. len: of the value put; first: the mutation's first write. Returns 0 or
 * -ENOSPC. */
int kv_space_charge(struct kv *kv, size_t len, enum kv_write_kind kind, bool first);
/* True: commit the batch before it grows more. */
bool kv_space_batch_full(const struct kv *kv);
#endif
