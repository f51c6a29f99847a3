/* SPDX-License-Identifier: Apache-2.0 */
/* pin_int.h - the inside of pins: pin.c makes and removes copies, pin_room.c says where there is
 * room for them. */
#ifndef MDS_JOBS_PIN_INT_H
#define MDS_JOBS_PIN_INT_H
#include "mds/jobs/pin.h"

#define PIN_WINDOW  256u  /* files of a pin that are being filled, or emptied */
#define PIN_BATCH   64u	  /* files in a mutation */
#define PIN_LOOKS   1024u /* steps of a walk in a turn */
#define PIN_US	    1000u /* that a turn takes, for all pins; then the thread does other work */
#define PIN_REST_MS 1000u /* before it is tried again */

/* What came of a file. PIN_MADE: it is being filled, or emptied. */
enum pin_result {
	PIN_MADE,
	PIN_GONE,
	PIN_BUSY,
	PIN_THERE,
	PIN_PASSED,
	PIN_ELSEWHERE,
	PIN_NO_ROOM,
	PIN_NO_SERVER
};
struct pin_queued {
	uint64_t q_ino, q_after; /* after: a directory's last cookie */
};
struct pin {
	struct job_pins *p_pins;
	struct pin *p_next;
	uint64_t p_number;
	struct lo_pin p_row; /* as stored last; p_from: as a mutation under way expects it */
	struct lo_pin p_from;
	struct job_pin_view p_view;
	bool p_renewed; /* it had made copies when it was asked for again */
	/* the walk; again: a file could not be changed now */
	struct pin_queued *p_queue;
	size_t p_n, p_cap;
	bool p_walks, p_again, p_any;
	uint64_t p_after, p_rest_ms;
	uint64_t p_have_files, p_have_bytes; /* counted: those that have a copy already */
	uint64_t p_out[2 * PIN_WINDOW];	     /* files that are being filled, or emptied */
	unsigned p_nout;
	/* the mutation; while it is under way (busy), the loop leaves these alone */
	struct kv_op p_op;
	bool p_busy, p_drop;
	uint8_t p_next_state, p_stuck, p_result[PIN_BATCH];
	uint64_t p_cand[PIN_BATCH];
	unsigned p_ncand, p_did;
	char p_say[160];
	uint64_t p_room[DS_REG_MAX + 1];
};
#define PIN_SECONDS 4u
struct job_pins {
	struct mds *jp_m;
	struct loop *jp_loop;
	unsigned jp_near_full;
	pthread_mutex_t jp_lock; /* protects the list and all pins */
	struct pin *jp_first;
	/* Bytes that were put on servers within the last seconds, by the second: their reports of
	 * free room may be older. */
	uint64_t jp_lately[PIN_SECONDS][DS_REG_MAX + 1], jp_second;
	uint64_t jp_pressed_ms; /* when room was last looked at */
	uint64_t jp_evicted_ms;
	/* the turn; next: of the pin that it begins with */
	uint64_t jp_until_ns, jp_next;
	struct loop_msg jp_msg;
	bool jp_posted, jp_short; /* short: a walk had no time for its end */
};

/* pin.c */
void pin_passed(struct pin *p, const char *why);
void pin_to(struct pin *p, enum lo_pin_state state);
bool pin_filled(const struct lo_map *map);

/* pin_room.c; locked, but for pin_fits and pin_share */
struct pin_fits {
	uint64_t *pf_room, pf_share;
	bool pf_short; /* a server was refused */
};
bool pin_fits(void *arg, uint32_t ds);
/* What an object of the file takes, at most. */
uint64_t pin_share(uint64_t size, const struct lo_map *map);
/* Is any copy in sync on a server of the group? */
bool pin_any_there(struct mds *m, const struct lo_map *map, const char *group);
/* Fills room by server (may be NULL) with what is free below the limit on living servers of the
 * group, less what copies under way will take. Returns the sum. *servers (may be NULL): those with
 * the labels, alive or not. */
uint64_t pin_room(struct job_pins *jp, struct kv_txn *t, const char *group, uint64_t *room,
		  unsigned *servers);
/* Bytes of warm copies in the pin's group that would go for it. */
uint64_t pin_warmed(const struct pin *p);
/* Ends the pin of warm copies in the group that was warmed first, unless one is ending already.
 * False: there is none. */
bool pin_evict(struct job_pins *jp, const char *group, const struct pin *than, const char *why);
/* Now and then: where a server is fuller than the limit, warm copies there go. */
void pin_pressure(struct job_pins *jp);
/* A copy was filled. */
void pin_filled_now(struct job_pins *jp, const struct lo_map *map, uint64_t size);
#endif
