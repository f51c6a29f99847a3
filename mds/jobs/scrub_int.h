/* SPDX-License-Identifier: Apache-2.0 */
/* scrub_int.h - the inside of scrub: its rows, and its job, which runs on one loop. */
#ifndef MDS_OP_SCRUB_INT_H
#define MDS_OP_SCRUB_INT_H
#include "mds/jobs/scrub.h"
#include "mds/jobs/verify.h"

/* ---- rows NS_T_SCRUB (scrub_row.c) ---- */

int scrub_state_get(struct kv_txn *t, struct job_scrub_state *s);	/* -ENOENT, -EIO */
int scrub_state_put(struct kv_txn *t, const struct job_scrub_state *s); /* W */
/* W: counts a finding, and keeps it while there is room. */
int scrub_found_put(struct kv_txn *t, struct job_scrub_state *s, const struct job_scrub_found *f);
/* W: deletes all findings, and all objects that were seen once. */
int scrub_rows_clear(struct kv_txn *t);
/* An object on a server that belongs to no file and was seen once. */
struct scrub_first {
	uint32_t fi_ds;
	ctl_object fi_object;
	uint64_t fi_size;
};
/* W */
int scrub_first_put(struct kv_txn *t, struct job_scrub_state *s, const struct scrub_first *f);
/* W */
int scrub_first_del(struct kv_txn *t, struct job_scrub_state *s, const struct scrub_first *f);
/* Reads up to max of them, all of the first server that has any. Returns their number, or
 * -errno. */
int scrub_firsts(struct kv_txn *t, uint16_t fs, struct scrub_first *out, unsigned max);

/* ---- the job ---- */

/* objects seen once that are kept at a time: if there are more, the second look at these comes
 * before the list goes on */
#define SCRUB_FIRSTS 16384
#define SCRUB_FILES  32 /* files that servers are asked about at a time */
#define SCRUB_TRIES  3	/* before a server counts as silent, or before a freeze */

/* A current file, as of the snapshot that led to it, and what the data servers said. */
struct scrub_file {
	struct job_scrub *f_scrub;
	struct ns_inode f_inode;
	struct lo_stat f_stat;
};
/* scrub_file.c: finds what is wrong with the file. Bits per object, of those in sync. m: NULL if
 * the servers' state does not count. */
struct scrub_wrong {
	uint64_t w_missing, w_size; /* w_size: does not end as the others or the file do */
	/* of both: those for which another copy is certainly better */
	uint64_t w_bad;
	uint64_t w_unasked, w_cut; /* w_cut: a bit for each stripe */
	bool w_degraded;
};
void scrub_compare(struct mds *m, const struct scrub_file *f, struct scrub_wrong *w);

struct job_scrub {
	struct mds *sb_m;
	struct loop *sb_loop;
	struct loop_msg sb_msg;
	struct loop_timer sb_timer;
	void (*sb_wake)(struct job_scrub *c);
	_Atomic uint32_t sb_delay_ms; /* may change at any time */
	pthread_mutex_t sb_lock;      /* guards sb_view, sb_stop, sb_ask, for any thread */
	struct job_scrub_state sb_view;
	bool sb_stop, sb_starting;
	bool sb_continue; /* one was running when the store was opened; constant */
	struct job_scrub_ask sb_ask;
	/* only for the loop: */
	/* as stored; as it is after the current transaction */
	struct job_scrub_state sb_s, sb_next;
	struct kv_op sb_op;
	void (*sb_then)(struct job_scrub *c);
	int (*sb_run)(struct job_scrub *c, struct kv_txn *t);
	unsigned sb_tries, sb_unsaved;
	uint64_t sb_sight_ms;
	/* what the next transaction puts */
	struct scrub_first sb_first[CTL_BATCH_MAX];
	unsigned sb_nfirst;
	struct job_scrub_found sb_found[CTL_BATCH_MAX];
	unsigned sb_nfound;
	/* a request to a server */
	struct ds_reg_ctl sb_ctl;
	ctl_status sb_status;
	ctl_list_entry sb_entry[CTL_BATCH_MAX];
	ctl_object sb_object[CTL_BATCH_MAX];
	ctl_stat sb_stat[CTL_BATCH_MAX];
	unsigned sb_n;
	uint8_t sb_cookie[64];
	unsigned sb_ncookie;
	bool sb_kick;
	/* For an object whose file exists: the index of the file in sb_file; else SCRUB_FILES. */
	uint8_t sb_slot[CTL_BATCH_MAX];
	struct scrub_file sb_file[SCRUB_FILES];
	unsigned sb_nfile, sb_asked, sb_at;
	uint64_t sb_last; /* the last of their inodes */
	bool sb_staled;	  /* the verdict made copies stale */
	unsigned sb_base; /* findings that do not belong to the current file */
	bool sb_frozen;
	struct excl sb_freeze;
	struct job_verify *sb_verify;
	struct job_verify_view sb_diffs; /* of the files that were compared last */
	unsigned sb_diff;		 /* the next of those to be reported */
	uint64_t sb_ino[SCRUB_FILES];
};
/* Runs run in a transaction that also puts the new state; then calls then(c). If the store fails,
 * the run ends. */
void scrub_commit(struct job_scrub *c, int (*run)(struct job_scrub *c, struct kv_txn *t),
		  void (*then)(struct job_scrub *c));
void scrub_later(struct job_scrub *c, uint32_t ms, void (*wake)(struct job_scrub *c));
void scrub_find(struct job_scrub *c, const struct job_scrub_found *f);
/* Does a step of the phase. */
void scrub_go(struct job_scrub *c);
/* Ends the phase and begins the next. */
void scrub_phase(struct job_scrub *c, enum job_scrub_phase next);
bool scrub_stopped(struct job_scrub *c);
void scrub_files_go(struct job_scrub *c);
void scrub_content_go(struct job_scrub *c);
/* Prepares f for lo_stat. The map in f_stat must be decoded already. */
void scrub_ask(struct job_scrub *c, struct scrub_file *f, const struct ns_inode *i,
	       void (*done)(struct lo_stat *ls, int err));
void scrub_log(const struct job_scrub *c, const struct job_scrub_found *f);
#endif
