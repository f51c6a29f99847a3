/* SPDX-License-Identifier: Apache-2.0 */
/* job_int.h - the inside of the list of jobs (job.h): the parts of a job's number, what the table's
 * rows are made of, and what an engine calls when one of its jobs is over. */
#ifndef MDS_JOBS_JOB_INT_H
#define MDS_JOBS_JOB_INT_H
#include "mds/jobs/balance.h"
#include "mds/jobs/drain.h"
#include "mds/jobs/elect.h"
#include "mds/jobs/job.h"
#include "mds/jobs/pin.h"
#include "mds/jobs/repair.h"
#include "mds/jobs/restripe.h"
#include "mds/jobs/revoke_exports.h"
#include "mds/jobs/scrub.h"
#include "mds/jobs/trash.h"
#include "mds/jobs/verify.h"

/* Which table or engine has the job. Users see these numbers in the jobs' numbers, so each keeps
 * its meaning. */
enum job_source {
	JOB_OF_REPAIRS = 1,
	JOB_OF_RESTRIPES = 2,
	JOB_OF_DRAINS = 3,
	JOB_OF_BALANCE = 4,
	JOB_OF_VERIFY = 5,
	JOB_OF_SCRUB = 6,
	JOB_OF_CHOOSE = 7,
	JOB_OF_REVOKE = 8,
	JOB_OF_PINS = 9,
	JOB_OF_TRASH = 10
};
/* The parts of a number. */
struct job_name {
	uint64_t jn_subject;
	uint8_t jn_turn; /* tells apart jobs about the same */
	enum job_source jn_source;
};
static inline uint64_t job_id(uint64_t subject, uint8_t turn, enum job_source source)
{
	return subject << 12 | (uint64_t)turn << 4 | source;
}
static inline struct job_name job_name(uint64_t id)
{
	return (struct job_name){id >> 12, (uint8_t)(id >> 4), (enum job_source)(id & 15)};
}

/* Where a list goes. */
struct job_sink {
	struct job_filter js_filter;
	void (*js_fn)(void *arg, const struct job *j);
	void *js_arg;
	unsigned js_n;
	bool js_more;
};
/* Hands on a job that the filter lets through. False: the sink is full. */
bool job_put(struct job_sink *s, const struct job *j);

/* Fills a job with what is the same for all: nothing is known. */
void job_blank(struct job *j, uint64_t id, enum job_kind kind);
/* Fills rate and eta from what was done since begun, where they can be known; now and begun in s of
 * CLOCK_REALTIME. */
void job_pace(struct job *j, double begun, double now);
double job_now(void); /* CLOCK_REALTIME in s */
/* Notes a job that is over. One of the same number goes. */
void job_over(struct mds *m, struct job *j, enum job_state state);
/* A job of this number begins once more: how the last one ended is forgotten. */
void job_again(struct mds *m, uint64_t id);

/* ---- job_file.c: the table of repairs, and the files that are restriped ---- */

int job_file_list(struct mds *m, struct kv_txn *t, struct job_sink *s);
int job_file_find(struct mds *m, struct kv_txn *t, struct job_name n, struct job *out);
int job_file_cancel(struct job_cancel *jc);
int job_restripe_list(struct mds *m, struct kv_txn *t, struct job_sink *s);
int job_restripe_find(struct mds *m, struct kv_txn *t, struct job_name n, struct job *out);
int job_restripe_cancel(struct job_cancel *jc);
/* What a file's row in the table of repairs is about. */
enum job_kind job_file_kind(struct mds *m, const struct lo_repair *row, const struct lo_map *map);
/* Call it when a repair's job lets go of a file: notes it if the file's row is gone. */
void job_file_over(struct mds *m, const struct job_repair_view *v);
/* ended: how. */
void job_restripe_over(struct mds *m, const struct job_restripe_view *v,
		       const struct lo_pending *tw, enum job_state ended);

/* ---- job_pin.c: what makes the copies of pins, and takes them away ---- */

int job_pin_list(struct mds *m, struct kv_txn *t, struct job_sink *s);
int job_pin_find(struct mds *m, struct kv_txn *t, struct job_name n, struct job *out);
int job_pin_cancel(struct job_cancel *jc);
void job_pin_over(struct mds *m, const struct job_pin_view *v, enum job_state state);

/* ---- job_run.c: jobs of which there is one run at a time, and drains ---- */

int job_drain_list(struct mds *m, struct kv_txn *t, struct job_sink *s);
int job_drain_find(struct mds *m, struct kv_txn *t, struct job_name n, struct job *out);
int job_drain_cancel(struct job_cancel *jc);
int job_balance_list(struct mds *m, struct kv_txn *t, struct job_sink *s);
int job_balance_find(struct mds *m, struct kv_txn *t, struct job_name n, struct job *out);
int job_balance_cancel(struct job_cancel *jc);
int job_verify_list(struct mds *m, struct kv_txn *t, struct job_sink *s);
int job_verify_find(struct mds *m, struct kv_txn *t, struct job_name n, struct job *out);
int job_verify_cancel(struct job_cancel *jc);
int job_scrub_list(struct mds *m, struct kv_txn *t, struct job_sink *s);
int job_scrub_find(struct mds *m, struct kv_txn *t, struct job_name n, struct job *out);
int job_scrub_cancel(struct job_cancel *jc);
int job_choose_list(struct mds *m, struct kv_txn *t, struct job_sink *s);
int job_choose_find(struct mds *m, struct kv_txn *t, struct job_name n, struct job *out);
int job_revoke_list(struct mds *m, struct kv_txn *t, struct job_sink *s);
int job_revoke_find(struct mds *m, struct kv_txn *t, struct job_name n, struct job *out);
int job_trash_list(struct mds *m, struct kv_txn *t, struct job_sink *s);
int job_trash_find(struct mds *m, struct kv_txn *t, struct job_name n, struct job *out);
int job_trash_stop(struct job_cancel *jc);
/* Call these when a run is over, with its last state. */
void job_drain_over(struct mds *m, uint32_t ds, const struct job_drain_view *v);
void job_balance_over(struct mds *m, const struct job_balance_view *v);
void job_verify_over(struct mds *m, const struct job_verify_view *v, bool stopped);
void job_scrub_over(struct mds *m, const struct job_scrub_state *s, const char *error);
void job_choose_over(struct mds *m, const struct job_elect_view *v);
void job_revoke_over(struct mds *m, const struct job_revocation_view *v, bool again);
/* error: why it could not go on; NULL: it came to its end, or was cancelled. */
void job_trash_over(struct mds *m, const struct job_trash_view *v, const char *error);
#endif
