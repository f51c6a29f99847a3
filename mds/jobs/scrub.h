/*
 * scrub.h - what the data servers have is compared with what the maps say (docs/scrub.md): objects
 * that are no file's, files whose objects are not there, sizes, and, where it is asked for,
 * content.
 *
 * One run at a time. How far it is, what it counted and what it found are rows in the store, so it
 * goes on after a restart of anybody; what it found stays until the next one begins.
 */
#ifndef MDS_OP_SCRUB_H
#define MDS_OP_SCRUB_H
#include "mds/mds.h"

#define OP_SCRUB_TOLD 1000 /* findings that are kept; all are counted */

/* Stored: a number keeps its meaning. */
enum op_scrub_kind {
	OP_SCRUB_ORPHAN = 1, /* an object that is no file's */
	/* an object that is in no map, of a stripe of which no other copy was found: it stays */
	OP_SCRUB_NEEDED = 2,
	OP_SCRUB_FOREIGN = 3, /* an object of another file system, or of a later incarnation of this
				 store: it stays */
	/* an object of a file that was never made here: the store is older than it; nothing is
	 * removed */
	OP_SCRUB_NOT_YET = 4,
	OP_SCRUB_MISSING = 5, /* a file's object is not on its server; another copy is */
	OP_SCRUB_LOST = 6,    /* the same, and no other copy is in sync */
	/* an object does not end where the file does, or the other copies do */
	OP_SCRUB_SIZE = 7,
	OP_SCRUB_DIFFERS = 8,	 /* a copy has other content than the others */
	OP_SCRUB_UNREADABLE = 9, /* a data server cannot read its object */
	OP_SCRUB_AWAY = 10,	 /* a data server was not asked: it does not answer */
	/* a stripe has no copy in sync but on servers that are dead or forgotten */
	OP_SCRUB_CUT = 11,
	OP_SCRUB_DAMAGED = 12, /* a file's layout map cannot be read */
	OP_SCRUB_KINDS
};
const char *op_scrub_kind_name(enum op_scrub_kind k);
/* What became of it. REMOVED: its deletion is ordered. STALE: repair makes it anew. */
enum op_scrub_done { OP_SCRUB_LEFT, OP_SCRUB_REMOVED, OP_SCRUB_STALE, OP_SCRUB_DONES };

struct op_scrub_found {
	enum op_scrub_kind sf_kind;
	enum op_scrub_done sf_done;
	uint32_t sf_ds; /* 0: none in particular */
	uint64_t sf_ino;
	uint16_t sf_incarnation;
	uint8_t sf_stripe, sf_copy; /* copy: the number in the object's name */
	/* SIZE: the object's end, and where it should be. DIFFERS: offset and length of the first
	 * such range */
	uint64_t sf_size, sf_want;
};

enum op_scrub_phase {
	OP_SCRUB_LIST,
	OP_SCRUB_SIGHT,
	OP_SCRUB_FILES,
	OP_SCRUB_CONTENT,
	OP_SCRUB_OVER,
	OP_SCRUB_PHASES
};
struct op_scrub_ask {
	bool sa_content; /* copies are compared, too */
	bool sa_dry;	 /* nothing is changed */
	bool sa_newer;	 /* what may be newer than a store that was put back is not kept */
};
/* All of it is stored. */
struct op_scrub_state {
	uint64_t ss_number; /* rises with each that begins; 0: there was none yet */
	uint64_t ss_began_s, ss_ended_s;
	uint64_t ss_objects, ss_files, ss_bytes; /* looked at; bytes: read to be compared */
	uint64_t ss_busy;    /* files that were being written, and so not compared */
	uint64_t ss_skipped; /* files of which not all could be asked */
	/* files with copies that are not in sync, or on servers that are dead */
	uint64_t ss_degraded;
	uint64_t ss_counts[OP_SCRUB_KINDS]; /* findings */
	uint64_t ss_removed, ss_stale;
	uint64_t ss_told;   /* findings that are kept */
	uint64_t ss_ino;    /* FILES and CONTENT: from which on */
	uint64_t ss_firsts; /* objects that were seen once and are no file's */
	uint32_t ss_ds;	    /* LIST: which server */
	enum op_scrub_phase ss_phase;
	bool ss_running, ss_stopped, ss_content, ss_dry, ss_newer;
	bool ss_old;  /* NOT_YET was found: nothing is removed */
	bool ss_skim; /* LIST: the first time, for NOT_YET alone: before anything is removed */
	uint8_t ss_cookie[64]; /* LIST */
	uint8_t ss_ncookie;
};

/* Before the loops run: reads what is stored. delay_ms: between the two looks at an object that is
 * no file's. */
int op_scrub_open(struct mds *m, struct loop *loop, uint32_t delay_ms);
/* Once the loops run: what a restart interrupted goes on. */
void op_scrub_resume(struct mds *m);
/* These are any thread's. -EBUSY: another one is under way, with other arguments; else how it
 * begins is what op_scrub_look shows. */
int op_scrub_begin(struct mds *m, const struct op_scrub_ask *ask);
void op_scrub_end(struct mds *m); /* soon */
void op_scrub_look(struct mds *m, struct op_scrub_state *out);
/* Findings of the last run, in the order in which they were found. fn returns 0 to go on. */
int op_scrub_each(struct kv_txn *t, int (*fn)(void *arg, const struct op_scrub_found *f),
		  void *arg);
#endif
