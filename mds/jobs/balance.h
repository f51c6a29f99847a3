/* balance.h - data servers that are behind, and files that are moved for it (docs/balance.md). One
 * run at a time, in memory; what it has begun to move is in the files' maps, and so goes on after a
 * restart, and the next run begins with what is then. */
#ifndef MDS_OP_BALANCE_H
#define MDS_OP_BALANCE_H
#include "mds/mds.h"

#define OP_BALANCE_TOLD 1000 /* moves that are kept; all are counted */

struct op_balance_ask {
	bool ba_dry;	   /* nothing is moved */
	uint64_t ba_bytes; /* that are moved at most; 0: no limit. The same for files. */
	uint64_t ba_files;
	uint64_t ba_rate;   /* bytes a second at most; 0: no limit but mds.repair_rate */
	uint32_t ba_spread; /* percent of its share that a server may have more or less */
};
enum op_balance_why { OP_BALANCE_FULL, OP_BALANCE_HOT };
enum op_balance_state {
	OP_BALANCE_PLANNED,
	OP_BALANCE_MOVING,
	OP_BALANCE_DONE,
	OP_BALANCE_LEFT /* not begun: it was changed meanwhile */
};
struct op_balance_move {
	uint64_t bm_ino, bm_bytes;
	unsigned bm_obj;
	uint32_t bm_from, bm_to;
	uint8_t bm_why, bm_state;
};
/* A server, as it was looked at last. */
struct op_balance_server {
	uint32_t bs_id, bs_weight, bs_load, bs_latency; /* as in dsc_seat */
	uint64_t bs_capacity, bs_available;
	/* it lives, has a weight, and is neither drained nor generic: the others give and get
	 * nothing */
	bool bs_counts;
	bool bs_loaded, bs_slow; /* against the others */
	/* bytes that the maps say were there when files were counted; that are there when what was
	 * chosen has moved; that should be */
	double bs_was, bs_held, bs_share;
};
enum op_balance_phase { OP_BALANCE_COUNTS, OP_BALANCE_MOVES, OP_BALANCE_OVER };
enum op_balance_end {
	OP_BALANCE_EVEN,
	OP_BALANCE_STUCK,
	OP_BALANCE_LIMIT,
	OP_BALANCE_STOPPED,
	OP_BALANCE_OFF
};
struct op_balance_view {
	struct op_balance_ask bv_ask;
	uint64_t bv_number; /* rises with each that begins; 0: there was none yet */
	enum op_balance_phase bv_phase;
	enum op_balance_end bv_end;  /* why it is over, or chooses no more */
	uint64_t bv_looked;	     /* files, in this phase */
	uint64_t bv_files, bv_bytes; /* chosen */
	uint64_t bv_done_files, bv_done_bytes, bv_left;
	struct op_balance_move *bv_move; /* malloc'd; of bv_nmove */
	unsigned bv_nmove, bv_nserver;
	struct op_balance_server bv_server[DSC_MAX]; /* by number */
};
/* again_ms: for how long a file that was moved stays where it is. Before the loops run. */
int op_balance_open(struct mds *m, struct loop *loop, uint64_t again_ms);
/* Any thread. False: one is under way, with other arguments. */
bool op_balance_begin(struct mds *m, const struct op_balance_ask *ask);
/* Nothing more is chosen; what moves goes on. */
void op_balance_stop(struct mds *m);
/* NULL: no memory; else free bv_move and the view. */
struct op_balance_view *op_balance_look(struct mds *m);
const char *op_balance_end_text(enum op_balance_end end);
#endif
