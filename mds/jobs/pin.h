/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pin.h - pins: files get one more copy on data servers near those that read them, for a time
 * (docs/pin.md). The rows are in mds/layout/pin_row.h. Who changes a pin puts its row, and calls
 * job_pin_reload once that is committed.
 */
#ifndef MDS_JOBS_PIN_H
#define MDS_JOBS_PIN_H
#include "mds/layout/pin_row.h"
#include "mds/mds.h"

/* near_full: the percentage of a server's capacity that no pin fills it beyond. Reads the stored
 * pins. 0 or -errno. */
int job_pins_open(struct mds *m, struct loop *loop, unsigned near_full);
void job_pins_tick(struct mds *m); /* on that loop, often */

/* Any thread from here on. */
void job_pin_reload(struct mds *m, uint64_t number);
uint64_t job_pin_id(const struct lo_pin *p); /* of the job that the pin's state means; 0: none */
/* W: the pin's copies are to go. -ENOENT. */
int job_pin_release(struct kv_txn *t, uint64_t number);

struct job_pin_view {
	struct lo_pin pv_row;
	double pv_begun;	      /* of its job; s of CLOCK_REALTIME */
	uint64_t pv_files, pv_bytes;  /* copies that are made; of LO_PIN_RELEASE: removed */
	uint64_t pv_there, pv_passed; /* files that need none; that got none */
	char pv_waits[300], pv_passed_why[160];
};
/* Calls fn for each pin until it returns something else than 0. */
void job_pins_look(struct mds *m, int (*fn)(void *arg, const struct job_pin_view *v), void *arg);
/* What is free below the limit on the living servers of a group, and how many servers have its
 * labels. */
uint64_t job_pin_room(struct mds *m, const char *group, unsigned *servers);
#endif
