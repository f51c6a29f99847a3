/*
 * kv_int.h - what the three files of the LMDB engine share: kv_lmdb.c (store, reads, writes),
 * kv_commit.c (the committer thread), kv_space.c (room on the disk). Nobody outside kv/ includes
 * it.
 */
#ifndef KV_KV_INT_H
#define KV_KV_INT_H
#include "kv/kv.h"
#include <lmdb.h>
#include <pthread.h>
#include <stdatomic.h>

/* Most mutations in one batch: bounds how long the first of them waits for the last. */
#define KV_BATCH_OPS 8192
/* Event loops answered with one message each per batch; with more of them a loop may get several.
 */
#define KV_BATCH_LOOPS 64

struct kv_txn {
	struct kv *t_kv;
	MDB_txn *t_mdb;
	MDB_cursor *t_spare; /* read handles: the last scan's cursor, renewed by the next */
	bool t_write;
	bool t_live;  /* read handles: has a snapshot */
	bool t_wrote; /* write: the mutation in hand has written */
	int t_err;    /* write: the batch cannot be committed, for this reason */
};

/* Pages, all of them. The reasoning is in kv_space.c. */
struct kv_space {
	int sp_fd;
	uint32_t sp_psize;
	bool sp_statvfs;   /* the file system cannot promise blocks: its free space is asked */
	bool sp_cow;	   /* it writes elsewhere when it overwrites */
	bool sp_low;	   /* the disk (or the map) gave no more at the last try */
	uint64_t sp_max;   /* the map's end */
	uint64_t sp_alloc; /* pages below this one have blocks on the disk */
	uint64_t sp_retry_ns;
	/* The batch in hand: */
	uint64_t sp_base; /* first page that was never used */
	uint64_t sp_free; /* pages LMDB can use again; counted only when low */
	uint64_t sp_tree, sp_depth;
	/* Charged so far: copies, new pages, new pages in runs. */
	uint64_t sp_touched, sp_new, sp_tail;
};

/* Copies of what a batch wrote. Chunks never move, so that slices may point into them. */
struct kv_chunk {
	struct kv_chunk *c_next;
	size_t c_used, c_size;
	char c_data[];
};
struct kv_wlog {
	struct kv_write *wl_v;
	size_t wl_n, wl_cap;
	struct kv_chunk *wl_chunks;
};

struct kv_answer {
	struct loop *a_loop;
	struct kv_op *a_first, *a_last;
};

struct kv {
	char *k_path;
	bool k_readonly;
	int k_lock_fd;
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
	struct kv_answer k_answers[KV_BATCH_LOOPS];
	struct kv_txn k_txn;
	bool k_dirty; /* the batch has written */
	struct kv_space k_space;
	int (*k_hook)(void *arg, const struct kv_writeset *ws);
	void *k_hook_arg;
	struct kv_wlog k_wlog;
};

/* LMDB's answer as a negative errno. */
int kv_errno(int rc);

/* kv_lmdb.c: the write transaction, on the committer thread. kv_txn_commit does not return from a
 * failed sync. */
int kv_txn_begin(struct kv *kv);
int kv_txn_commit(struct kv *kv);
void kv_txn_abort(struct kv *kv);
void kv_wlog_reset(struct kv_wlog *wl);
void kv_wlog_free(struct kv_wlog *wl);

/* kv_commit.c */
int kv_committer_start(struct kv *kv);
void kv_committer_stop(struct kv *kv);

/* kv_space.c */
int kv_space_open(struct kv *kv);
void kv_space_begin(struct kv *kv);
enum kv_write_kind { KV_GROW, KV_UPDATE, KV_DELETE };
/* Before a write. len: of the value put; first: the mutation's first write. 0 or -ENOSPC. */
int kv_space_charge(struct kv *kv, size_t len, enum kv_write_kind kind, bool first);
/* The batch should be committed before it grows more. */
bool kv_space_batch_full(const struct kv *kv);
#endif
