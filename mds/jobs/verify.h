/* verify.h - copies are compared by what their data servers say they have (docs/moving.md). One at
 * a time, in memory: after a restart it is asked for again. */
#ifndef MDS_OP_VERIFY_H
#define MDS_OP_VERIFY_H
#include "mds/mds.h"

#define OP_VERIFY_TOLD 1000 /* differences that are kept; all are counted */

struct op_verify_ask {
	uint64_t va_ino; /* a file, or a directory and all below it */
	bool va_mend;	 /* what differs from the copy that is believed becomes stale */
	/* the mirror that is believed where it is in sync; -1: the first in sync, where all end at
	 * the same place */
	int va_keep;
	bool va_first; /* the first copy in sync is believed, whatever the others are */
	/* the longest copy is believed, but none that goes past a size that was set since anybody
	 * could write; */
	bool va_ends;
	/* and it was f_grants when it began: what is written since is compared when that is over */
	uint32_t va_grants;
	/* none is believed but what more than half of the copies have; and those that are alone are
	 * read as well */
	bool va_vote;
};
struct op_verify_diff {
	uint64_t vd_ino, vd_off, vd_len; /* of an object */
	unsigned vd_stripe;
	uint64_t vd_bad; /* objects that differ from the one that is believed, which is */
	unsigned vd_kept;
	uint64_t vd_unread;		 /* of those: the ones that their servers cannot read */
	uint8_t vd_copy[LO_MAX_OBJECTS]; /* as ob_copy */
	uint32_t vd_ds[LO_MAX_OBJECTS];
	/* of vd_bad: those that were made stale; mended: all of them */
	uint64_t vd_stale;
	bool vd_mended;
};
struct op_verify_view {
	struct op_verify_ask vv_ask;
	uint64_t vv_number; /* rises with each that begins; 0: there was none yet */
	bool vv_running;
	/* single: without a second copy; skipped: not all could be asked; now: the file in hand */
	uint64_t vv_files, vv_bytes, vv_single, vv_skipped, vv_diffs, vv_now;
	struct op_verify_diff *vv_diff; /* malloc'd; of vv_ndiff */
	unsigned vv_ndiff;
};
int op_verify_open(struct mds *m, struct loop *loop);
/* Another one, for who begins it himself, on that loop: these files, by vote; done(arg) is called
 * there when they have been looked at, and not from inside the call. NULL: no memory. */
struct op_verify *op_verify_new(struct mds *m, struct loop *loop);
void op_verify_run(struct op_verify *v, const uint64_t *ino, unsigned n, bool mend,
		   void (*done)(void *arg), void *arg);
/* One file, on the verify's loop: what differs from its first copy becomes stale. */
void op_verify_run_first(struct op_verify *v, uint64_t ino, void (*done)(void *arg), void *arg);
/* One file, on the verify's loop, whose copies are not known to differ: what differs from the one
 * that has the right end becomes stale. */
void op_verify_run_ends(struct op_verify *v, uint64_t ino, uint32_t grants, void (*done)(void *arg),
			void *arg);
void op_verify_look_at(struct op_verify *v, struct op_verify_view *out);
/* Any thread. False: another one is under way, with other arguments. */
bool op_verify_begin(struct mds *m, const struct op_verify_ask *ask);
void op_verify_end(struct mds *m); /* soon */
void op_verify_look(struct mds *m, struct op_verify_view *out);
#endif
