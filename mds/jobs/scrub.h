/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scrub.h - scrub: compares what the data servers have with what the maps say (docs/scrub.md). It
 * finds objects that belong to no file, files whose objects are missing, and wrong sizes; with
 * sa_content it also compares content.
 *
 * There is one run at a time. The store has rows for its position, its counts and its findings, so
 * the run goes on after a restart of any server. Findings stay until the next run begins.
 */
#ifndef MDS_OP_SCRUB_H
#define MDS_OP_SCRUB_H
#include "mds/mds.h"

#define JOB_SCRUB_KEPT 1000 /* findings that are kept; all are counted */

/* These numbers are stored, so each keeps its meaning. */
enum job_scrub_kind {
	JOB_SCRUB_ORPHAN = 1, /* an object that belongs to no file */
	/* an object in no map, of a stripe of which no other copy was found: it stays */
	JOB_SCRUB_NEEDED = 2,
	/* an object of another file system, or of a later incarnation of this store: it stays */
	JOB_SCRUB_FOREIGN = 3,
	/* an object of a file that this store never had, so the store is older than the object:
	 * nothing is removed */
	JOB_SCRUB_NOT_YET = 4,
	JOB_SCRUB_MISSING = 5, /* a file's object is not on its server; another copy is */
	JOB_SCRUB_LOST = 6,    /* the same, and no other copy is in sync */
	/* an object does not end where its file ends, or where the other copies end */
	JOB_SCRUB_SIZE = 7,
	JOB_SCRUB_DIFFERS = 8,	  /* a copy has other content than the others */
	JOB_SCRUB_UNREADABLE = 9, /* a data server cannot read its object */
	JOB_SCRUB_AWAY = 10,	  /* a data server does not answer, so it was not asked */
	/* a stripe has no copy in sync, except on servers that are dead or forgotten */
	JOB_SCRUB_CUT = 11,
	JOB_SCRUB_DAMAGED = 12, /* a file's layout map cannot be decoded */
	JOB_SCRUB_KINDS
};
const char *job_scrub_kind_name(enum job_scrub_kind k);
/* What the run did about a finding. REMOVED: it ordered the deletion. STALE: it made the copy
 * stale, and repair makes it again. */
enum job_scrub_done { JOB_SCRUB_LEFT, JOB_SCRUB_REMOVED, JOB_SCRUB_STALE, JOB_SCRUB_DONES };

struct job_scrub_found {
	enum job_scrub_kind sf_kind;
	enum job_scrub_done sf_done;
	uint32_t sf_ds; /* 0: no server in particular */
	uint64_t sf_ino;
	uint16_t sf_incarnation;
	uint8_t sf_stripe, sf_copy; /* sf_copy: the number in the object's name */
	/* SIZE: the object's end, and where it should be. DIFFERS: offset and length of the first
	 * range that differs. In bytes. */
	uint64_t sf_size, sf_want;
};

enum job_scrub_phase {
	JOB_SCRUB_LIST,
	JOB_SCRUB_SIGHT,
	JOB_SCRUB_FILES,
	JOB_SCRUB_CONTENT,
	JOB_SCRUB_OVER,
	JOB_SCRUB_PHASES
};
struct job_scrub_ask {
	bool sa_content; /* compares the copies' content too */
	bool sa_dry;	 /* changes nothing */
	bool sa_newer;	 /* removes also what may be newer than a store that was restored */
};
/* All of it is stored. */
struct job_scrub_state {
	uint64_t ss_number; /* rises with each run that begins; 0: there was none yet */
	uint64_t ss_began_s, ss_ended_s;
	uint64_t ss_objects, ss_files, ss_bytes; /* looked at; ss_bytes: read to be compared */
	uint64_t ss_busy;    /* files not compared because clients were writing them */
	uint64_t ss_skipped; /* files of which a server could not be asked */
	/* files with copies that are not in sync, or that are on dead servers */
	uint64_t ss_degraded;
	uint64_t ss_counts[JOB_SCRUB_KINDS]; /* findings */
	uint64_t ss_removed, ss_stale;
	uint64_t ss_kept;   /* findings that are kept */
	uint64_t ss_ino;    /* FILES and CONTENT: the next inode */
	uint64_t ss_firsts; /* objects that belong to no file and were seen once */
	uint32_t ss_ds;	    /* LIST: the server */
	enum job_scrub_phase ss_phase;
	bool ss_running, ss_stopped, ss_content, ss_dry, ss_newer;
	bool ss_old;  /* NOT_YET was found: nothing is removed */
	bool ss_skim; /* LIST: first pass, looks for NOT_YET only, before anything is removed */
	uint8_t ss_cookie[64]; /* LIST */
	uint8_t ss_ncookie;
};

/* Call it before the loops run: reads the stored state. delay_ms: milliseconds between the two
 * looks at an object that belongs to no file. 0 or -errno. */
int job_scrub_open(struct mds *m, struct loop *loop, uint32_t delay_ms);
void job_scrub_set_delay(struct mds *m, uint32_t delay_ms); /* any thread */
/* Call it once the loops run: continues a run that a restart interrupted. */
void job_scrub_resume(struct mds *m);
/* Any thread may call these. job_scrub_begin: 0; -EBUSY: a run with other arguments is under way.
 * job_scrub_look shows whether the run could begin. */
int job_scrub_begin(struct mds *m, const struct job_scrub_ask *ask);
void job_scrub_end(struct mds *m);	/* ends the run soon */
bool job_scrub_stopping(struct mds *m); /* a run is under way, and was told to end */
void job_scrub_look(struct mds *m, struct job_scrub_state *out);
/* Calls fn with each finding of the last run, in the order in which they were found, as long as fn
 * returns 0. */
int job_scrub_each(struct kv_txn *t, int (*fn)(void *arg, const struct job_scrub_found *f),
		   void *arg);
#endif
