/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pg_member.h - who takes part in an instance, and where it is to be: in PostgreSQL, beside its
 * log.
 *
 * Each process of an instance has a row in weft.member that it writes twice a second: its node,
 * what it is, and how far its copy is. An instance has a row in weft.place: its preferred node, a
 * move that was asked for and how far that is, and the last takeover.
 *
 * Nothing here decides who holds an instance: pg.h does, and works without these tables. So they
 * are written without waiting for a standby of PostgreSQL, and what is lost with a primary costs a
 * move, and no more.
 *
 * Errors are negative errno; pg_member_why() has a line. -EAGAIN: no answer. -ENOENT: the tables
 * are not there, or not the instance: "weft pg init" makes them.
 */
#ifndef PG_PG_MEMBER_H
#define PG_PG_MEMBER_H
#include <stdbool.h>
#include <stdint.h>

#define PG_NODE 64

/* One thread uses it at a time. */
struct pg_member;
struct pg_member_opts {
	const char *mo_conninfo; /* copied, like the others */
	uint32_t mo_inst;	 /* 0: of no instance; only lists and asks */
	const char *mo_name;	 /* of this copy only: o_owner of pg.h */
	const char *mo_node;
	uint32_t mo_answer_ms; /* for each call */
};
int pg_member_open(struct pg_member **out, const struct pg_member_opts *o);
void pg_member_close(struct pg_member *m);
/* m: NULL where pg_member_open had no memory. */
const char *pg_member_why(const struct pg_member *m);

/* role: "holder" or "standby". has: the copy has all up to this batch; as_of_ms: which was all that
 * there was, so many ms ago. */
int pg_member_say(struct pg_member *m, const char *role, uint64_t has, uint64_t as_of_ms);
/* This process is no more. */
int pg_member_leave(struct pg_member *m);
/* How far the copies on that node are: the furthest of those that spoke within 3 s. -ESRCH: none
 * did. */
int pg_member_has(struct pg_member *m, const char *node, uint64_t *has);

/* A move. "asked": by an administrator; "begun": the holder looks whether its target is ready;
 * "leaving": the holder stops; "left": it let go; "done"; "refused": the instance stays, mv_why. */
struct pg_move {
	uint64_t mv_seq; /* of this move; 0: none was ever asked for */
	char mv_state[16], mv_target[PG_NODE], mv_why[160];
	uint64_t mv_age_ms; /* since the state changed */
};
int pg_member_move(struct pg_member *m, uint32_t inst, struct pg_move *mv);
/* -EBUSY: another move is under way. node: "" for the preferred one; -ESRCH: there is none. */
int pg_member_ask(struct pg_member *m, uint32_t inst, const char *node, uint64_t *seq);
/* From the state `from` to another one. -ESTALE: it is not in that state. */
int pg_member_step(struct pg_member *m, uint32_t inst, uint64_t seq, const char *from,
		   const char *to, const char *why);
int pg_member_prefer(struct pg_member *m, uint32_t inst, const char *node);

/* The last takeover, ms. */
struct pg_takeover {
	const char *to_why; /* "released": the holder let go; "lease": its lease was over */
	uint64_t to_detection, to_claim, to_filling, to_serving;
};
/* Of the process that holds the instance and serves. Ends a move that is under way. */
int pg_member_took(struct pg_member *m, const struct pg_takeover *t);

/* All instances, or one (inst not 0), as a JSON list; malloc'd. docs/ha.md has its fields. */
int pg_member_list(struct pg_member *m, uint32_t inst, char **json);
#endif
