/* SPDX-License-Identifier: Apache-2.0 */
/*
 * heat.h - load statistics for weft top and weft heat (docs/heat.md): rates and latencies for each
 * client, data server, directory, file, export and tag.
 *
 * Each thread counts in tables of fixed size that no other thread writes. So there is no lock, and
 * no cache line that two threads write. A table forgets what is not among its busiest. All counts
 * decay: with a half-life of HEAT_FAST_S seconds they are present rates, with one of HEAT_SLOW_S
 * seconds they are heat. Of the data between clients and data servers the MDS knows what clients
 * report (LAYOUTSTATS, and in LAYOUTRETURN). Linux reports once a minute, and when it returns a
 * layout. The server cannot check these reports, so it uses them for statistics only.
 */
#ifndef MDS_JOBS_HEAT_H
#define MDS_JOBS_HEAT_H
#include "mds/mds.h"

#define HEAT_FAST_S  5
#define HEAT_SLOW_S  600
#define HEAT_BUCKETS 22	   /* of latency: up to 1 us, 2 us, 4 us ... 2^20 us, more */
#define HEAT_UNIT    65536 /* bytes that count as much as one operation */

enum heat_kind {
	HEAT_CLIENT,
	HEAT_SERVER,
	HEAT_DIR,
	HEAT_FILE,
	HEAT_EXPORT, /* by exp_grant.g_slot */
	HEAT_TAG,    /* by place of the tag, jobs/tag.h */
	HEAT_KINDS
};
/* What a client reported of its I/O with one data server: sums since it got the layout. */
struct heat_report {
	uint64_t ht_ops, ht_bytes, ht_us;
};

/* On the thread's loop. heat_work counts operations. heat_took counts a request that did ops
 * operations in us microseconds. heat_bytes counts bytes that were read and written in the last
 * over_ms milliseconds, evenly as far as is known; 0: now. */
void heat_work(struct mds_thread *th, enum heat_kind kind, uint64_t key, unsigned ops);
void heat_took(struct mds_thread *th, enum heat_kind kind, uint64_t key, unsigned ops, uint64_t us);
void heat_bytes(struct mds_thread *th, enum heat_kind kind, uint64_t key, uint64_t read,
		uint64_t written, uint64_t over_ms);
/* Counts what a client reports of its I/O with a data server. */
void heat_reported(struct mds_thread *th, uint32_t ds, const struct heat_report *read,
		   const struct heat_report *write, uint64_t over_ms);
/* Reduces the sums to what is new since the client's last report of this file and server. If the
 * last sums were forgotten, nothing counts as new. *over_ms: for how long the client has had the
 * layout, or 0; becomes the time in which the new happened, as far as is known. last: the client
 * returns the layout. False: no memory. */
bool heat_news(struct mds_thread *th, uint64_t clientid, uint64_t ino, uint32_t ds,
	       struct heat_report *read, struct heat_report *write, uint64_t *over_ms, bool last);

/* Sums over all threads. Any thread. Rates are per second. */
struct heat_row {
	uint64_t hr_key; /* clientid, number of a data server, inode number, or place */
	float hr_ops, hr_read, hr_written; /* hr_read and hr_written: bytes */
	float hr_us;			   /* mean; 0: nothing was measured */
	float hr_bucket[HEAT_BUCKETS];
	float hr_heat;
};
/* Returns *n rows, those with the most operations and bytes first (heat: the hottest first). The
 * caller frees them. NULL: none, or no memory. */
struct heat_row *heat_rows(struct mds *m, enum heat_kind kind, bool heat, size_t *n);
/* Makes one row of those with the same key, and sorts as heat_rows does. Returns how many are
 * left. */
size_t heat_merge(struct heat_row *rows, size_t n, bool heat);
/* What was counted for a client since it was last forgotten, without decay: operations, bytes read,
 * bytes written. */
struct heat_sum {
	uint64_t hs_key, hs_n[3];
	float hs_heat;
};
/* Returns *n sums of clients over all threads; all gets the sums over all clients, also those that
 * were forgotten. The caller frees them. NULL: none, or no memory. Any thread. */
struct heat_sum *heat_sums(struct mds *m, size_t *n, uint64_t all[3]);
/* Returns the latency in microseconds, to a power of two, that this part (0.5, 0.99) of a row's
 * requests does not exceed. 0: nothing was measured. */
double heat_percentile(const struct heat_row *r, double part);
#endif
