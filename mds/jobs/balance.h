/* SPDX-License-Identifier: Apache-2.0 */
/* balance.h - moves files off data servers that are fuller, busier or slower than others
 * (docs/balance.md). There is one run at a time, in memory. A move that a run has begun is in the
 * file's map, so it goes on after a restart. The next run starts from what it finds then. */
#ifndef MDS_OP_BALANCE_H
#define MDS_OP_BALANCE_H
#include "mds/mds.h"

#define OP_BALANCE_TOLD 1000 /* moves that are kept; all are counted */

struct job_balance_ask {
	bool ba_dry;	   /* moves nothing */
	uint64_t ba_bytes; /* at most this many bytes are moved; 0: no limit. The same for files. */
	uint64_t ba_files;
	uint64_t ba_rate;   /* at most this many bytes a second; 0: no limit but mds.repair_rate */
	uint32_t ba_spread; /* percent of its share that a server may have more or less */
};
enum job_balance_why { OP_BALANCE_FULL, OP_BALANCE_HOT };
enum job_balance_state {
	OP_BALANCE_PLANNED,
	OP_BALANCE_MOVING,
	OP_BALANCE_DONE,
	OP_BALANCE_LEFT /* not begun: the file was changed meanwhile */
};
struct job_balance_move {
	uint64_t bm_ino, bm_bytes;
	unsigned bm_obj;
	uint32_t bm_from, bm_to;
	uint8_t bm_why, bm_state;
};
/* A server, as the run last saw it. */
struct job_balance_server {
	uint32_t bs_id, bs_weight, bs_load, bs_latency; /* as in ds_reg_candidate */
	uint64_t bs_capacity, bs_available;
	/* The server lives, has a weight, and is neither drained nor generic. Other servers give
	 * and get nothing. */
	bool bs_counts;
	bool bs_loaded, bs_slow; /* compared with the other servers */
	/* Bytes that the server has by the maps as the run counted them; bytes that it has when the
	 * chosen files have moved; bytes that it should have. */
	double bs_was, bs_held, bs_share;
};
enum job_balance_phase { OP_BALANCE_COUNTS, OP_BALANCE_MOVES, OP_BALANCE_OVER };
enum job_balance_end {
	OP_BALANCE_EVEN,
	OP_BALANCE_STUCK,
	OP_BALANCE_LIMIT,
	OP_BALANCE_STOPPED,
	OP_BALANCE_OFF
};
struct job_balance_view {
	struct job_balance_ask bv_ask;
	uint64_t bv_number; /* rises with each run that begins; 0: there was none yet */
	enum job_balance_phase bv_phase;
	enum job_balance_end bv_end; /* why the run is over, or chooses no more files */
	uint64_t bv_looked;	     /* files looked at in this phase */
	uint64_t bv_files, bv_bytes; /* of files that were chosen */
	uint64_t bv_done_files, bv_done_bytes, bv_left;
	double bv_begun;		  /* s of CLOCK_REALTIME */
	bool bv_stopping;		  /* job_balance_stop was called */
	struct job_balance_move *bv_move; /* malloc'd; bv_nmove of them */
	unsigned bv_nmove, bv_nserver;
	struct job_balance_server bv_server[DS_REG_MAX]; /* by number; bv_nserver of them */
};
/* Call it before the loops run; the job runs on loop. again_ms: for this many milliseconds a file
 * that was moved is not moved again. 0 or -errno. */
int job_balance_open(struct mds *m, struct loop *loop, uint64_t again_ms);
void job_balance_set_again(struct mds *m, uint64_t again_ms); /* any thread */
/* Any thread. Begins a run. False: one with other arguments is under way. */
bool job_balance_begin(struct mds *m, const struct job_balance_ask *ask);
/* Any thread. The run chooses no more files; moves that have begun go on. */
void job_balance_stop(struct mds *m);
/* Any thread. Returns a copy of the run's state: free bv_move and the view. NULL: no memory. */
struct job_balance_view *job_balance_look(struct mds *m);
const char *job_balance_end_text(enum job_balance_end end);
#endif
