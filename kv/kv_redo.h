/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_redo.h - the redo log behind an interface: what makes a group commit durable.
 *
 * The engine makes one record of each group commit, and gives it to a log. When the log says that
 * the record is durable, LMDB commits the batch, without a sync, and the batch is answered. A crash
 * harms LMDB's file only after the newest checkpoint (kv_checkpoint.c). The engine reads the
 * batches behind that checkpoint from the log again.
 *
 * Two kinds of log:
 * - Two files in the store's folder (kv_log.c), the default. Its batches have the numbers of LMDB's
 *   transactions.
 * - A log elsewhere, which kv_open is given (ko_redo): a database that several machines keep. The
 *   store is then a copy of that log: its pairs are what batches 1..n make, and it knows n. There
 *   may be several copies. At most one of them writes: the one that took the log last. The others
 *   follow (ko_follow). A store belongs to one kind, and kv_open refuses it with the other.
 *
 * What the engine requires of a log elsewhere:
 * - A batch that was answered KV_REDO_DURABLE is read by every later ro_read, with the same bytes,
 *   whatever machine fails, until it is trimmed.
 * - ro_append(n) succeeds only if the newest batch is n - 1 and nothing took the log since this
 *   process did. So no number has a gap, and a writer that was replaced adds nothing.
 * - ro_append returns no guess. If it is unknown whether the batch is in the log (a lost
 *   connection), the log finds out before it returns, however long that takes. Reading may not be
 *   enough for that: a replica can show a batch that is lost later.
 * - ro_read gives only batches that are durable.
 *
 * The record: struct kv_redo_rec and the batch's writes. Each record has the sum of the record
 * before it. So a copy notices a batch that does not follow from what it holds, even where the
 * numbers fit. A log knows bytes only, and need not look at a record.
 */
#ifndef KV_KV_REDO_H
#define KV_KV_REDO_H
#include "kv/kv.h"

#define KV_REDO_ID   16
#define KV_REDO_NAME 16 /* with its 0 */
#define KV_REDO_SUM  16

/* Little endian. The writes follow: uint32_t key's length (top bit: a delete), uint32_t value's
 * length, key, value. */
struct kv_redo_rec {
	char rr_magic[8];		/* its last byte: the version */
	uint8_t rr_before[KV_REDO_SUM]; /* rr_sum of the batch before; zeros: this is the first */
	uint64_t rr_epoch;		/* of the writer */
	uint64_t rr_batch;
	uint32_t rr_len; /* this header and the writes */
	uint32_t rr_n;	 /* how many */
	/* SipHash-2-4, 128 bits, keyed by the log's identity, over rr_len bytes with this as
	 * zeros */
	uint8_t rr_sum[KV_REDO_SUM];
} __attribute__((packed)); /* a provider's memory may begin anywhere */
_Static_assert(sizeof(struct kv_redo_rec) == 64, "format");

/* A group commit. */
struct kv_redo_batch {
	uint64_t rb_number;
	void *rb_rec; /* the record; the engine's memory, for the call */
	uint32_t rb_len;
	uint32_t rb_n; /* writes in it */
};

/* ro_append's answers, or a negative errno: the batch is not in the log and never will be, and its
 * number is used again. Its members are answered with that error. */
enum kv_redo_answer {
	KV_REDO_DURABLE,
	/* Another process took the log. The batch is not in it and never will be. The engine ends
	 * the process, and answers nothing. */
	KV_REDO_DEPOSED,
	/* The log was stopped before it knew. The engine ends the process, and answers
	 * nothing. */
	KV_REDO_STOPPED,
};

struct kv_redo_end {
	uint64_t re_epoch; /* of the one that took the log last; it rises with each */
	uint64_t re_last;  /* newest batch; 0: none yet */
};

/* Returns 0 to go on; anything else ends the reading, which returns it. rec: aligned to 8. */
typedef int (*kv_redo_batch_fn)(void *arg, uint64_t number, void *rec, uint32_t len);
typedef int (*kv_redo_pair_fn)(void *arg, struct kv_slice key, struct kv_slice val);

/* A state to begin a copy with, instead of all batches from the first. */
struct kv_redo_base {
	uint64_t ba_batch;	     /* the pairs are what batches 1..ba_batch make */
	uint8_t ba_sum[KV_REDO_SUM]; /* rr_sum of that batch */
};

struct kv_redo_state {
	bool rs_up;		    /* it answers */
	uint64_t rs_first, rs_last; /* batches that it has, as far as it is known; 0: none */
	char rs_why[160];	    /* why it does not answer; or "" */
};

/*
 * Errors are negative errnos; where there is err, one line about it goes there. log: the log's own.
 *
 * Threads. ro_state comes at any time, on any thread. ro_read (for the archive) and ro_trim come on
 * the checkpoints' thread, while another call may be under way on another thread: also while
 * kv_open, kv_follow, kv_promote and kv_close run, and before ro_take. In kv_open and kv_close they
 * come on the caller's thread too. The other calls come one after another: ro_append on the
 * committer thread, the others on the caller's.
 *
 * Locks. A log may hold a lock of its own over a call, also while ro_read and ro_base call fn: the
 * engine waits there for no call of another thread. The engine holds a lock over ro_append, and
 * over no other call. A provider that calls kv_apply itself must hold no lock there that ro_read or
 * ro_trim needs: kv_apply waits for a checkpoint where the disk is full.
 *
 * Waiting. kv_close and kv_open wait for a call that is under way. So the owner of a log that may
 * be away first stops the log; ro_append then answers KV_REDO_STOPPED, and ro_read and ro_base
 * return an error. ro_trim does not wait for a log that is away: what it could not say is said
 * again at the next checkpoint, with the same number or a higher one.
 *
 * Memory. What fn gets is the log's, and is valid during the call. The log releases it when fn
 * returns, whatever fn returns; there is no other call for that.
 */
struct kv_redo_ops {
	/* Goes into the store: names the kind of log for ever. */
	const char *ro_name;
	/* Whose log it is: the same for all copies, and for no other log. A log that was set back
	 * to an earlier state is another log. */
	int (*ro_id)(void *log, uint8_t id[KV_REDO_ID], char *err, size_t errlen);
	/* NULL: kv_promote finds it out after ro_take. Before it: has the log, as this batch, the
	 * record with this sum? 0: yes. -ESTALE: it has another one. -ENOENT: it ends before that
	 * batch. -EAGAIN: that is not certain now. */
	int (*ro_has)(void *log, uint64_t batch, const uint8_t sum[KV_REDO_SUM], char *err,
		      size_t errlen);
	/* From here on only this process appends: every append of others that was not answered yet
	 * is either in the log by now, or fails. end: the state after that. -EBUSY: the one that
	 * has it is alive. */
	int (*ro_take)(void *log, struct kv_redo_end *end, char *err, size_t errlen);
	/* Answers enum kv_redo_answer, or a negative errno. On the committer thread. May take as
	 * long as the log is away. */
	int (*ro_append)(void *log, const struct kv_redo_batch *b);
	/* NULL: what is durable stays. Removes the newest batch, which LMDB could not commit. */
	void (*ro_undo)(void *log, const struct kv_redo_batch *b);
	/* Calls fn for each batch after that number, in order and without a gap, up to the newest
	 * one that is durable. The record is fn's memory during the call. -ESTALE: the log has
	 * trimmed the next one. */
	int (*ro_read)(void *log, uint64_t after, kv_redo_batch_fn fn, void *arg, char *err,
		       size_t errlen);
	/* NULL: a new copy reads all batches. Gives all pairs of a state, in any order, each key
	 * once, and says at the end which state it was. fn NULL: only says which state it would be,
	 * at once. -ENOENT: there is none: read all. */
	int (*ro_base)(void *log, kv_redo_pair_fn fn, void *arg, struct kv_redo_base *base,
		       char *err, size_t errlen);
	/* This copy needs no batch up to that one again: a checkpoint has them, and its archive too
	 * where it keeps one, durably. Other copies may need them, and their archives. A copy says
	 * so while it follows, and goes on when it writes. The log keeps its newest batch, or
	 * ro_base says its sum: kv_promote compares it with the copy's. */
	void (*ro_trim)(void *log, uint64_t upto);
	/* Any thread; does not block. */
	void (*ro_state)(void *log, struct kv_redo_state *out);
};

/* The caller owns both, and keeps them until after kv_close. */
struct kv_redo {
	const struct kv_redo_ops *r_ops;
	void *r_log;
};

/* Seals a record: b's rb_rec has the writes behind the header, which this fills. */
void kv_redo_rec_seal(const uint8_t id[KV_REDO_ID], const uint8_t before[KV_REDO_SUM],
		      uint64_t epoch, const struct kv_redo_batch *b);
/* Is this the record of that batch, whole, and does it follow on the one with the sum before?
 * Trusts nothing. rec is unchanged when this returns. */
bool kv_redo_rec_ok(const uint8_t id[KV_REDO_ID], const uint8_t before[KV_REDO_SUM], uint64_t batch,
		    void *rec, size_t len);
/* Reads the write at *pos (begin with sizeof(struct kv_redo_rec)) of a record that is ok. Returns
 * 1: a write; 0: the end; -EIO. */
int kv_redo_rec_next(const void *rec, uint32_t *pos, struct kv_write *w);

/* Copies. The caller serialises these calls, and kv_close after them; each may come on another
 * thread. Readers read at any time, and see whole batches. */

/* What the store holds: its batch number. With a log of files: the newest transaction. */
uint64_t kv_held(struct kv *kv);
/* A follower: commits a batch to its LMDB. Returns 0: it holds the batch (also where it did
 * before); -ERANGE: batches are missing before it; -EIO: the record is damaged, or does not follow
 * from what the store holds; -EROFS: the store does not follow; or another error, and then the
 * batch may be given again. */
int kv_apply(struct kv *kv, uint64_t number, void *rec, size_t len);
/* A follower: reads the log behind what it holds, and applies that. Returns 0 or a negative errno.
 * -ESTALE: the log has trimmed what follows, and nothing was applied over the gap. No later call
 * helps: close the store, and open it with ko_refill. */
int kv_follow(struct kv *kv, char *err, size_t errlen);
/* Makes the follower the writer: takes the log, applies the rest of it, and starts the committer.
 * After an error it follows as before. -ESTALE: as in kv_follow, or the copy holds what the log
 * lacks, or has another batch under the newest number; ko_refill mends all three. */
int kv_promote(struct kv *kv, char *err, size_t errlen);
/* A follower: has the log what it holds? Nothing is taken. 0; -ESTALE: no, as in kv_promote, which
 * asks too before it takes the log. Or the log's error. */
int kv_fits(struct kv *kv, char *err, size_t errlen);
/* The log's state. */
void kv_redo_state(struct kv *kv, struct kv_redo_state *out);
#endif
