/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench.h - what the files of weft-bench share.
 *
 *   bench.c      options, the order of phases, progress
 *   bench_run.c  threads, sessions and jobs: how a phase is run and measured
 *   bench_md.c   operations on names; bench_io.c: data, and NULL calls
 *   bench_small.c  small files in random order, and checkpoints
 *   bench_clean.c  removes what the program made
 *   bench_count.c  what operations cost the server's threads
 *   bench_out.c  tables, JSON, comparison
 *
 * A thread has a ring and some sessions; a session has as many jobs as its depth. In a phase each
 * job does one piece of work after the other (b_next deals them out) until all are done. A piece is
 * one or several operations, and its time is the time of all of them.
 */
#ifndef TOOLS_BENCH_H
#define TOOLS_BENCH_H
#include "base/histo.h"
#include "client/weft.h"
#include <pthread.h>
#include <stdatomic.h>

#define BENCH_PATTERN  65536u
#define BENCH_MAX_PIDS 16
#define BENCH_MAX_RDMA 64 /* threads */

struct bench_opts {
	struct weft_opts bo_client;
	const char *bo_what; /* null, md, io, small, storm */
	const char *bo_dir, *bo_phases, *bo_json, *bo_policy, *bo_reread;
	unsigned bo_threads, bo_sessions, bo_depth;
	uint64_t bo_count; /* pieces of work of a session in a phase */
	uint32_t bo_body, bo_size;
	/* bo_commit: a COMMIT after so many writes of a session; 0: at the end */
	uint64_t bo_file, bo_seconds, bo_commit;
	bool bo_shared, bo_random, bo_verify, bo_stable, bo_quiet, bo_keep, bo_registered;
	long bo_pids[BENCH_MAX_PIDS];
	unsigned bo_npids;
	const char *bo_counts[BENCH_MAX_PIDS]; /* addresses of daemons that count */
	unsigned bo_ncounts;
};

struct bench_session;
struct bench_job {
	struct weft_op j_op; /* first: o_done casts it back */
	struct bench_session *j_s;
	uint64_t j_i;
	unsigned j_step;
	bool j_first, j_last; /* the job does what comes before or after a session's pieces */
	uint64_t j_began;
	char j_name[32], j_name2[32];
	uint8_t *j_buf;
};

struct bench_phase {
	const char *p_name;
	/* Puts the next operation of a piece into j_op and returns true; false: the piece is done.
	 * step 0 is the first. */
	bool (*p_step)(struct bench_job *j);
	/* Once for each session, before the phase is measured: makes files to work on. May be
	 * NULL. */
	void (*p_before)(struct bench_session *s);
	/* As p_step, before a session's first piece and after its last one; measured, but not as
	 * pieces. May be NULL. */
	bool (*p_first)(struct bench_job *j);
	bool (*p_last)(struct bench_job *j);
	/* After the phase, not measured. May be NULL. */
	void (*p_after)(struct bench_session *s);
	/* How many pieces there are where --time may have cut an earlier phase short. May be
	 * NULL. */
	uint64_t (*p_pieces)(const struct bench_session *s);
	bool p_once;   /* a session has one piece of work, done by its first job */
	bool p_repeat; /* until the time of --time is over */
};

struct bench_session {
	struct bench_thread *s_t;
	struct weft *s_w;
	unsigned s_id;
	struct weft_fh s_dir;
	struct weft_file *s_file;
	struct bench_job *s_jobs;
	uint64_t s_next;
	unsigned s_busy; /* jobs */
	uint64_t s_began, s_ended;
	uint64_t s_dirs, s_files, s_renamed; /* md, small: what exists */
	uint64_t s_writes;
};

struct bench_thread {
	pthread_t t_id;
	unsigned t_first, t_n; /* sessions */
	struct weft_ring *t_ring;
	struct bench_session *t_sessions;
	unsigned t_over; /* sessions */
	struct histo t_histo;
	uint64_t t_units, t_bytes;
	uint64_t t_rdma, t_direct; /* calls to data servers: by RDMA, and of those without a copy */
	_Atomic uint64_t t_seen;   /* pieces that are done, for the progress */
};

struct bench_result {
	const char *r_name;
	struct histo r_histo;
	uint64_t r_rdma, r_direct;
	/* units: what operations per second counts (entries of readdir, else pieces) */
	uint64_t r_units, r_bytes;
	double r_slowest; /* time of the slowest session over that of the fastest one */
	/* CPU in seconds; server: below 0 where no pid was given */
	double r_seconds, r_server_cpu, r_client_cpu;
	void *r_counts; /* bench_counts_between */
};

extern struct bench_opts bench;
extern const struct bench_phase *bench_now;
/* BENCH_PATTERN bytes and the largest piece behind them; never changes, because servers may lose
 * data that are not committed */
extern uint8_t *bench_pattern;
/* memory that jobs read into: bench_piece() bytes each, by session and job */
extern uint8_t *bench_buffers;
size_t bench_piece(void);

extern _Atomic bool bench_stopping; /* no more pieces are begun */
extern _Atomic bool bench_made;	    /* there is a folder */

/* Ends the program, and removes what it made. */
void bench_die(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
/* Does one operation that must not fail. */
void bench_do(struct bench_session *s, struct weft_op *op, const char *what);
uint64_t bench_ns(void);

/* bench_run.c */
void bench_start(void);
void bench_phase(const struct bench_phase *p, struct bench_result *r);
void bench_stop(void);
/* Sets the policy of what is made in the folder from now on. NULL: leaves it. */
void bench_policy(struct bench_session *s, const char *policy);

/* bench_clean.c: returns 0 or a negative errno. */
int bench_clean(void);
/* Makes SIGINT and SIGTERM end the program as failures do. */
void bench_watch(void);

/* bench_md.c, bench_io.c, bench_small.c */
extern const struct bench_phase bench_md[], bench_io[], bench_null[], bench_small[], bench_storm[];
const uint8_t *bench_content(uint64_t off);
/* bench_small.c: maps each i below n to another number below n, in no order. The same in each
 * run. */
uint64_t bench_shuffled(uint64_t i, uint64_t n, uint64_t key);
/* "io" with --shared: all sessions use the first session's file, and it alone removes the file. */
bool bench_one_file(void);
void bench_file_name(const struct bench_session *s, char *name, size_t len);
bool bench_step_write(struct bench_job *j);
bool bench_step_remove(struct bench_job *j);

/* bench_count.c: read returns the counts of all daemons of --counts so far, or NULL without
 * --counts. between returns the difference of two of these (and frees both) for each of so many
 * operations: a json_t. table prints a line of it. */
void *bench_counts_read(void);
void *bench_counts_between(void *before, void *after, uint64_t units);
void bench_counts_table(const void *counts);
void bench_counts_free(void *counts);

/* bench_out.c */
void bench_table_head(void);
void bench_table(const struct bench_result *r);
/* Replaces the contents of the file. Returns 0, or -1: it cannot be written. */
int bench_write_json(int fd, const struct bench_result *r, unsigned n);
int bench_compare(const char *a, const char *b);
#endif
