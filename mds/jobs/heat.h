/*
 * heat.h - who does how much, where: rates and latencies by client, data server, directory and
 * file, for weft top and weft heat (docs/heat.md).
 *
 * Every thread counts in tables of its own, of fixed size, which only it writes: no lock, and no
 * line that another thread writes. What is not among the busiest of its table is forgotten. All
 * counts decay: with a half-life of HEAT_FAST_S they are rates of now, with one of HEAT_SLOW_S they
 * are heat. Data that goes past us, between clients and data servers, is known as far as clients
 * tell (LAYOUTSTATS, and with LAYOUTRETURN): Linux does once a minute, and when it returns a
 * layout. It is a client's word, and counts for statistics only.
 */
#ifndef MDS_JOBS_HEAT_H
#define MDS_JOBS_HEAT_H
#include "mds/mds.h"

#define HEAT_FAST_S  5
#define HEAT_SLOW_S  600
#define HEAT_BUCKETS 22	   /* of latency: up to 1 us, 2 us, 4 us ... 2^20 us, more */
#define HEAT_UNIT    65536 /* bytes that are as hot as an operation */

enum heat_kind { HEAT_CLIENT, HEAT_SERVER, HEAT_DIR, HEAT_FILE, HEAT_KINDS };
/* What clients told of their I/O with one data server, as sums since their layout was made. */
struct heat_told {
	uint64_t ht_ops, ht_bytes, ht_us;
};

/* On the thread's loop: so many operations were done; they took so long all together, as one
 * request; bytes were read and written. */
void heat_work(struct mds_thread *th, enum heat_kind kind, uint64_t key, unsigned ops);
void heat_took(struct mds_thread *th, enum heat_kind kind, uint64_t key, unsigned ops, uint64_t us);
void heat_bytes(struct mds_thread *th, enum heat_kind kind, uint64_t key, uint64_t read,
		uint64_t written);
/* What a client says it has done at a data server. */
void heat_reported(struct mds_thread *th, uint32_t ds, const struct heat_told *read,
		   const struct heat_told *write);
/* Of sums, what is new since the client told of this file and server last. Of one whose sums were
 * forgotten that is not known: nothing is. False: no memory. */
bool heat_news(struct mds_thread *th, uint64_t clientid, uint64_t ino, uint32_t ds,
	       struct heat_told *read, struct heat_told *write, bool last);

/* Sums of all threads, any thread. Rates are per second. */
struct heat_row {
	uint64_t hr_key;		   /* clientid, data server's number, or inode */
	float hr_ops, hr_read, hr_written; /* bytes */
	float hr_us;			   /* mean; 0: nothing was measured */
	float hr_bucket[HEAT_BUCKETS];
	float hr_heat;
};
/* Up to max rows, those with the most operations and bytes first (heat: the hottest first).
 * Malloc'd; NULL: none, or no memory. */
struct heat_row *op_heat_rows(struct mds *m, enum heat_kind kind, bool heat, size_t *n);
/* Of the latencies of a row, the one that this part (0.5, 0.99) is below: microseconds, by powers
 * of two; 0: nothing was measured. */
double op_heat_percentile(const struct heat_row *r, double part);
#endif
