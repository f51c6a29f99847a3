/* SPDX-License-Identifier: Apache-2.0 */
/* restripe_int.h - the inside of the job that gives a file a new layout: its steps (restripe.c),
 * and the list of what is still to be copied (restripe_list.c). */
#ifndef MDS_JOBS_RESTRIPE_INT_H
#define MDS_JOBS_RESTRIPE_INT_H
#include "mds/file/exclusive.h"
#include "mds/jobs/restripe.h"
#include "mds/layout/pending_layout.h"

#define ALL_STRIPES UINT32_MAX

struct restripe_range {
	uint64_t ran_off, ran_end;
	unsigned ran_stripe; /* of the old layout, or ALL_STRIPES */
};

struct job_restripe {
	struct mds *rs_m;
	struct loop *rs_loop;
	struct job_work rs_work;
	pthread_mutex_t rs_lock; /* protects rs_view: any thread reads it */
	struct job_restripe_view rs_view;
	uint64_t rs_cursor, rs_rest_ms;
	/* the file in hand */
	/* most: no source ever ended past this offset */
	uint64_t rs_ino, rs_session, rs_size, rs_most;
	struct ns_inode rs_inode;
	struct lo_map rs_map;
	struct lo_pending rs_pending;
	struct lo_object rs_source[LO_MAX_OBJECTS]; /* by stripe */
	uint64_t rs_writes[LO_MAX_OBJECTS];
	struct restripe_range *rs_list;
	size_t rs_n, rs_cap, rs_at, rs_back_at;
	/* pos: in rs_list[rs_at]; back: where the batch under way began */
	uint64_t rs_pos, rs_back_pos;
	unsigned rs_round, rs_takes;
	bool rs_last, rs_frozen;
	struct excl rs_freeze;
	struct lo_stat rs_stat;
	struct lo_io rs_io;
	/* questions under way */
	struct lo_restripe_io **rs_call;
	unsigned rs_ncall, rs_ccap, rs_left;
	int rs_err;
	void (*rs_then)(struct job_restripe *r, int err);
};

static inline uint64_t restripe_least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* ---- restripe_list.c ---- */

/* A question to a data server, of those that are asked next. NULL: no memory. */
struct lo_restripe_io *restripe_call_new(struct job_restripe *r);
void restripe_calls_free(struct job_restripe *r);
/* Call it before the questions are sent: then is called when all are answered, with the first
 * error. */
void restripe_ask(struct job_restripe *r, void (*then)(struct job_restripe *r, int err));
/* The object in the map that is the source of the stripe, if it is in sync; or -1. */
int restripe_source_at(const struct job_restripe *r, const struct lo_map *map, unsigned stripe);
/* False: no memory. */
bool restripe_list_add(struct job_restripe *r, uint64_t off, uint64_t end, unsigned stripe);
void restripe_list_reset(struct job_restripe *r);
/* Collects what takes at most a second at the configured rate. Returns how many bytes of the file
 * that is; *err: no memory. */
uint64_t restripe_batch(struct job_restripe *r, bool *err);
#endif
