/* scrub_int.h - inside scrub: its rows, and its job, which is on one loop. */
#ifndef MDS_OP_SCRUB_INT_H
#define MDS_OP_SCRUB_INT_H
#include "mds/jobs/scrub.h"
#include "mds/jobs/verify.h"

/* ---- rows NS_T_SCRUB (scrub_row.c) ---- */

int scrub_state_get(struct kv_txn *t, struct op_scrub_state *s);       /* -ENOENT, -EIO */
int scrub_state_put(struct kv_txn *t, const struct op_scrub_state *s); /* W */
/* W: counts it, and keeps it while there is room. */
int scrub_found_put(struct kv_txn *t, struct op_scrub_state *s, const struct op_scrub_found *f);
/* W: all findings, and all objects that were seen once. */
int scrub_rows_clear(struct kv_txn *t);
/* An object of a server that was seen once and is no file's. */
struct scrub_first {
	uint32_t fi_ds;
	ctl_object fi_object;
	uint64_t fi_size;
};
/* W */
int scrub_first_put(struct kv_txn *t, struct op_scrub_state *s, const struct scrub_first *f);
/* W */
int scrub_first_del(struct kv_txn *t, struct op_scrub_state *s, const struct scrub_first *f);
/* Up to max of them, all of the first server that has any. How many, or a negative errno. */
int scrub_firsts(struct kv_txn *t, uint16_t fs, struct scrub_first *out, unsigned max);

/* ---- the job ---- */

/* objects seen once at a time: with more, those are seen again before the list goes on */
#define SCRUB_FIRSTS 16384
#define SCRUB_FILES  32 /* files asked for at a time */
#define SCRUB_TRIES  3	/* before it counts that somebody does not answer, or before a freeze */

/* A file in hand: as of the snapshot that led to it, and what the data servers said. */
struct scrub_file {
	struct op_scrub *f_scrub;
	struct ns_inode f_inode;
	struct lo_stat f_stat;
};
/* scrub_file.c: what is wrong with it. Bits per object, of those in sync. m: NULL, servers are not
 * looked at. */
struct scrub_wrong {
	uint64_t w_missing, w_size; /* size: not as the others, or the file */
	/* of both: those that another copy is better than, for certain */
	uint64_t w_bad;
	uint64_t w_unasked, w_cut; /* cut: a bit per stripe */
	bool w_degraded;
};
void scrub_judge(struct mds *m, const struct scrub_file *f, struct scrub_wrong *w);

struct op_scrub {
	struct mds *c_m;
	struct loop *c_loop;
	struct loop_msg c_msg;
	struct loop_timer c_timer;
	void (*c_wake)(struct op_scrub *c);
	uint32_t c_delay_ms;
	pthread_mutex_t c_lock; /* c_view, c_stop, c_ask: any thread */
	struct op_scrub_state c_view;
	bool c_stop, c_starting;
	struct op_scrub_ask c_ask;
	/* the loop's */
	/* as stored; and as it is after the transaction in hand */
	struct op_scrub_state c_s, c_next;
	struct kv_op c_op;
	void (*c_then)(struct op_scrub *c);
	int (*c_run)(struct op_scrub *c, struct kv_txn *t);
	unsigned c_tries, c_unsaved;
	uint64_t c_sight_ms;
	/* what the next transaction puts */
	struct scrub_first c_first[CTL_BATCH_MAX];
	unsigned c_nfirst;
	struct op_scrub_found c_found[CTL_BATCH_MAX];
	unsigned c_nfound;
	/* a question to a server */
	struct dsc_ctl c_ctl;
	ctl_status c_status;
	ctl_list_entry c_entry[CTL_BATCH_MAX];
	ctl_object c_object[CTL_BATCH_MAX];
	ctl_stat c_stat[CTL_BATCH_MAX];
	unsigned c_n;
	uint8_t c_cookie[64];
	unsigned c_ncookie;
	bool c_kick;
	/* of objects that are beside a file's: that file, in c_file; else SCRUB_FILES */
	uint8_t c_slot[CTL_BATCH_MAX];
	/* files */
	struct scrub_file c_file[SCRUB_FILES];
	unsigned c_nfile, c_asked, c_at;
	uint64_t c_last; /* the last inode of those */
	bool c_staled;	 /* the verdict made copies stale */
	unsigned c_base; /* findings that are not of the file in hand */
	bool c_frozen;
	struct excl c_freeze;
	struct op_verify *c_verify;
	struct op_verify_view c_diffs; /* of the files that it looked at last */
	unsigned c_diff;	       /* the next of those to be told */
	uint64_t c_ino[SCRUB_FILES];
};
/* Runs run in a transaction, which puts the state after it; then(c). What cannot be stored ends the
 * run. */
void scrub_commit(struct op_scrub *c, int (*run)(struct op_scrub *c, struct kv_txn *t),
		  void (*then)(struct op_scrub *c));
void scrub_later(struct op_scrub *c, uint32_t ms, void (*wake)(struct op_scrub *c));
void scrub_find(struct op_scrub *c, const struct op_scrub_found *f);
/* A step of the phase. */
void scrub_go(struct op_scrub *c);
/* The phase is over. */
void scrub_phase(struct op_scrub *c, enum op_scrub_phase next);
bool scrub_stopped(struct op_scrub *c);
void scrub_files_go(struct op_scrub *c);
void scrub_content_go(struct op_scrub *c);
/* Before lo_stat: its map is decoded already. */
void scrub_ask(struct op_scrub *c, struct scrub_file *f, const struct ns_inode *i,
	       void (*done)(struct lo_stat *ls, int err));
void scrub_log(const struct op_scrub *c, const struct op_scrub_found *f);
#endif
