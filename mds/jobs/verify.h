/* SPDX-License-Identifier: Apache-2.0 */
/* verify.h - verify: compares copies by the checksums that their data servers report
 * (docs/moving.md). There is one run at a time, in memory; after a restart the administrator starts
 * it again. */
#ifndef MDS_OP_VERIFY_H
#define MDS_OP_VERIFY_H
#include "mds/mds.h"

#define OP_VERIFY_TOLD 1000 /* differences that are kept; all are counted */

struct job_verify_ask {
	uint64_t va_ino; /* a file, or a directory and all below it */
	bool va_mend;	 /* makes copies stale that differ from the one that is believed */
	/* The mirror that is believed, where it is in sync. -1: the first copy in sync, if all
	 * copies end at the same place. */
	int va_keep;
	bool va_first; /* believes the first copy in sync, whatever the others have */
	/* Believes the longest copy, but none that ends past a size that was set after the last
	 * client could write. */
	bool va_ends;
	/* with va_ends: f_grants at the begin. What clients write after that is compared when they
	 * are done. */
	uint32_t va_grants;
	/* Believes only content that more than half of the copies have. Copies that are alone are
	 * read too. */
	bool va_vote;
};
struct job_verify_diff {
	uint64_t vd_ino, vd_off, vd_len; /* of an object */
	unsigned vd_stripe;
	uint64_t vd_bad; /* objects that differ from the object that is believed, vd_kept */
	unsigned vd_kept;
	uint64_t vd_unread;		 /* of vd_bad: objects that their servers cannot read */
	uint8_t vd_copy[LO_MAX_OBJECTS]; /* as ob_copy */
	uint32_t vd_ds[LO_MAX_OBJECTS];
	/* of vd_bad: objects that became stale; vd_mended: all of them did */
	uint64_t vd_stale;
	bool vd_mended;
};
struct job_verify_view {
	struct job_verify_ask vv_ask;
	uint64_t vv_number;	      /* rises with each run that begins; 0: there was none yet */
	bool vv_running, vv_stopping; /* stopping: job_verify_end was called */
	double vv_begun;	      /* s of CLOCK_REALTIME */
	/* vv_single: files without a second copy; vv_skipped: files of which a server could not be
	 * asked; vv_now: the current file */
	uint64_t vv_files, vv_bytes, vv_single, vv_skipped, vv_diffs, vv_now;
	struct job_verify_diff *vv_diff; /* malloc'd; vv_ndiff of them */
	unsigned vv_ndiff;
};
int job_verify_open(struct mds *m, struct loop *loop);
/* Makes a verify job for a caller on that loop. job_verify_run compares these files, by vote, and
 * calls done(arg) on that loop when this is done, never from inside the call. NULL: no memory. */
struct job_verify *job_verify_new(struct mds *m, struct loop *loop);
void job_verify_run(struct job_verify *v, const uint64_t *ino, unsigned n, bool mend,
		    void (*done)(void *arg), void *arg);
/* Compares one file, on the job's loop: what differs from its first copy becomes stale. */
void job_verify_run_first(struct job_verify *v, uint64_t ino, void (*done)(void *arg), void *arg);
/* Compares one file, on the job's loop, whose copies are not known to differ: what differs from the
 * copy with the right end becomes stale. */
void job_verify_run_ends(struct job_verify *v, uint64_t ino, uint32_t grants,
			 void (*done)(void *arg), void *arg);
void job_verify_look_at(struct job_verify *v, struct job_verify_view *out);
/* Any thread. Begins a run. False: one with other arguments is under way. */
bool job_verify_begin(struct mds *m, const struct job_verify_ask *ask);
void job_verify_end(struct mds *m); /* ends the run soon */
void job_verify_look(struct mds *m, struct job_verify_view *out);
#endif
