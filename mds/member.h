/* SPDX-License-Identifier: Apache-2.0 */
/*
 * member.h - what this process is in its instance (pg/pg_member.h), and what it sees of the others.
 *
 * A thread writes this process's row twice a second, and looks for a move that an administrator
 * asked for. A holder that is to move the instance looks whether its target follows the log, and
 * then ends this process in order, as SIGTERM does; member_let_go() lets the others know. The
 * process that takes the instance says how long each part took.
 *
 * Without a log in PostgreSQL all of this does nothing. A PostgreSQL that does not answer here
 * holds up nothing.
 */
#ifndef MDS_MEMBER_H
#define MDS_MEMBER_H
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* weft-mds ends with this status after it gave its instance away on command: its supervisor starts
 * it again, and then it stands by. */
enum { MEMBER_MOVED = 75 };

struct member_opts {
	const char *mo_conninfo, *mo_node, *mo_name; /* the caller's until member_stop */
	uint32_t mo_inst, mo_lease_ms;
};
/* Begins, as a standby. 0 or -errno. */
int member_start(const struct member_opts *o);
void member_stop(void);

/* ---- a standby ---- */

/* The copy has all up to this batch, which is all that there was just now. */
void member_follows(uint64_t batch);
/* The time until the next look, ms: shorter while a move to here is under way. */
uint32_t member_pause_ms(uint32_t usual);
/* The instance was let go: is it meant for another node, which has had little time to take it? */
bool member_yields(void);

/* ---- the holder ---- */

struct member_took {
	bool mt_free; /* it was let go, or never held */
	uint64_t mt_detection_ms, mt_claim_ms, mt_filling_ms;
};
void member_holds(const struct member_took *t);
/* The last batch of its log; any thread asks for it. */
void member_log(uint64_t (*last)(void *arg), void *arg);
/* On the loop, at the moment at which clients are served. Does not wait. */
void member_serves(void);
/* Nothing is written any more; before the instance is released. Waits at most a second until the
 * target of a move has what it can have. last: the last batch. */
void member_let_go(uint64_t last);
/* Did this process give its instance away on command? */
bool member_moved(void);

/* ---- what others ask; any thread ---- */

/* For /v1/status: the instance's entry of the list, with this process's lease and when it was
 * seen; NULL: the log is in files. */
json_t *member_json(void);
struct member_view {
	bool mv_on;	      /* the log is in PostgreSQL, and the list was read once; or mv_old */
	bool mv_old;	      /* not for 10 s of service: no standby is known to follow */
	unsigned mv_standbys; /* that are up */
	unsigned mv_gone;     /* that were, within a day */
	double mv_lag_s;      /* of the one that is nearest */
	double mv_lag_batches, mv_lag_bytes;
	double mv_worst_s;     /* of the one that is farthest */
	char mv_worst[64];     /* its node */
	char mv_preferred[64]; /* the preferred node, where it is another one than this */
	double mv_lease_age_s; /* since PostgreSQL answered */
	struct member_took mv_took;
	uint64_t mv_serving_ms;
};
void member_look(struct member_view *v);
/* A standby is behind that is further away than this. */
#define MEMBER_LAGS_S 10.0
/* lease: of the store */
struct store_lease;
void member_metrics(const struct store_lease *lease);
#endif
