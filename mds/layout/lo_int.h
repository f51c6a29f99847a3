/* SPDX-License-Identifier: Apache-2.0 */
/* lo_int.h - the inside of lo. */
#ifndef MDS_LO_INT_H
#define MDS_LO_INT_H
#include "base/hash.h"
#include "mds/layout/lo.h"
#include <pthread.h>
#include <stdatomic.h>

#define LO_LAYOUT_MAX 4096u /* PNFS_LAYOUT_MAXSIZE of Linux clients: they refuse a longer body */
#define LO_HEAD_LEN   20u   /* ff_layout4: stripe unit, count of mirrors, flags, hint */
#define LO_MIRROR_LEN 4u    /* ff_mirror4: count of data servers */
#define LO_ENTRY_LEN  92u   /* ff_data_server4 with our file handle, and owners of one digit */

#define LO_NEAR_MAX    64 /* networks of clients: a bit each */
#define LO_STAT_MS     2000
#define LO_IO_MS       30000
#define LO_IO_SHORT_MS 3000 /* for a server that does not seem to live, but may */

_Static_assert(LO_HEAD_LEN + LO_MIRROR_LEN + LO_MAX_OBJECTS * LO_ENTRY_LEN <= LO_LAYOUT_MAX,
	       "one mirror of most objects fits");
/* With the longest file handle, and owners of ten digits. */
#define LO_GENERIC_LEN (16 + 4 + 16 + 4 + 4 + DS_REG_HANDLE_MAX + 2 * 16u)
#define LO_MAX_GENERIC 28
_Static_assert(LO_HEAD_LEN + LO_MAX_GENERIC * (LO_MIRROR_LEN + LO_GENERIC_LEN) <= LO_LAYOUT_MAX,
	       "a layout of generic data servers fits");

struct lo_orders;
struct lo_stats; /* requests to the data servers, of one loop */

struct lo {
	struct ns *l_ns;
	struct ds_reg *l_dsc;
	pthread_mutex_t l_place_lock;
	/* Smooth weighted round robin, by server; under l_place_lock. */
	double l_credit[DS_REG_MAX + 1];
	_Atomic uint64_t l_lacking_said;
	/* Write verifiers. l_generation rises when a data server's verifier is seen to change. */
	pthread_mutex_t l_verf_lock;
	uint64_t l_verf[DS_REG_MAX + 1];
	_Atomic uint64_t l_generation;
	struct lo_near *l_near; /* set before the loops run (read_order.c) */
	unsigned l_nnear, l_near_factor;
	struct lo_orders *l_orders;
	struct lo_stats **l_stats; /* by loop */
	unsigned l_nloops;
	uint64_t l_threshold; /* mds.threshold */
	/* some directory has, or had, a threshold of its own (mdsthreshold.c) */
	atomic_bool l_has_threshold;
	/* some directory's policy has, or had, the key trash (trash_policy.c) */
	atomic_bool l_has_trash;
};

/* group.c. Is this an expression that a server can meet, with at least one term? */
bool lo_group_ok(const char *p, size_t n);
/* Parses one item of lp_groups: "group=EXPR" (mirror -1) or "group3=EXPR" (mirror 3). Returns the
 * next item, or NULL. */
const char *lo_group_item(const char *p, int *mirror, const char **expr, size_t *len);
/* Returns the mirrors (a bit each) of which a server with these labels may hold objects. */
uint64_t lo_group_mirrors(const struct lo_policy *lp, const char *labels);
/* Is a server with these labels in the group of this expression (lo_group_ok)? */
bool lo_group_has(const char *expr, const char *labels);

/* read_order.c. lo_prefer puts the copies in sync of a stripe into order, first the one that this
 * client should read first, and returns their number. Call it for all stripes, beginning with
 * lo_prefer_from. firsts: the objects, a bit each, that came first for the stripes before. */
unsigned lo_prefer(struct lo *lo, const struct lo_map *m, uint64_t ino, unsigned stripe,
		   const struct lo_reader *reader, uint64_t firsts, uint8_t *order);
unsigned lo_prefer_from(const struct lo_map *m, uint64_t ino, const struct lo_reader *reader);
void lo_near_free(struct lo *lo);

/*
 * placement_plan.c: chooses servers for stripes x mirrors objects.
 *
 * Copies of a stripe differ in their domain (a number below DS_REG_MAX), and each is on a server
 * that may hold its mirror. Within that, each server gets as few objects of the file as possible,
 * and a full server (st_full) none that another may take. Among servers that are equal in this the
 * choice is drawn by weight, without replacement, with random numbers that follow from the seed.
 * pl_first chooses the first object's server.
 */
struct lo_candidate {
	uint32_t st_id;
	uint16_t st_domain;
	bool st_full;
	uint64_t st_mirrors; /* a bit each */
	double st_weight;    /* more than 0 */
};
struct lo_plan {
	const struct lo_candidate *pl_seat;
	unsigned pl_n, pl_stripes, pl_mirrors;
	uint64_t pl_seed;
	/* Chooses one of pick[0..n). */
	unsigned (*pl_first)(void *arg, const struct lo_candidate *seat, const uint16_t *pick,
			     unsigned n);
	void *pl_arg;
	/* the result: indexes of pl_seat by [mirror * stripes + stripe] */
	uint16_t pl_pick[LO_MAX_OBJECTS];
};
/* 0, or -EAGAIN: impossible. */
int lo_plan(struct lo_plan *pl);
/* Only asks whether it is possible. lo_shape_ok must accept the shape. */
bool lo_plan_can(const struct lo_candidate *seat, unsigned n, unsigned mirrors);

bool lo_shape_ok(unsigned stripes, unsigned mirrors);
/* lo_handle fills in the file handle and credential to reach an object with these rights, for
 * client: 0, or -ESTALE: there is no such object. lo_mint makes the capability. */
int lo_handle(struct lo *lo, const struct ds_reg_server *sv, uint64_t ino, uint16_t incarnation,
	      const struct lo_map *m, unsigned obj, unsigned rights, uint32_t client,
	      struct ds_reg_handle *h);
void lo_mint(struct lo *lo, const struct ds_reg_server *sv, uint64_t ino, uint16_t incarnation,
	     const struct lo_map *m, unsigned obj, unsigned rights, uint32_t client,
	     uint8_t fh[CAP_LEN]);
/* repair_row.c. Fills in p, by which another data server (reader) can read from ds. The addresses
 * of p are in addrs, and point into sv. False: ds is unknown. */
#define LO_PEER_KEY (2 * CAP_TLS_KEY_LEN + 1)
bool lo_ctl_peer(struct lo *lo, uint32_t ds, uint32_t reader, struct ds_reg_server *sv,
		 ctl_addr addrs[DS_REG_ADDRS], char key[LO_PEER_KEY], ctl_peer *p);
void lo_ctl_object(struct lo *lo, uint64_t ino, uint16_t incarnation, const struct lo_map *m,
		   unsigned obj, ctl_object *out);

/* lo_io.c: the error of a whole I/O, from the objects that were touched, the objects that failed,
 * and their errors. */
int lo_copies_err(const struct lo_map *m, uint64_t touched, uint64_t bad, bool denied,
		  const int *errs);
int lo_plain_err(int err);
/* lo_io.c. lo_verifier_seen: a server sent this write verifier. lo_verifier_of: the one that a
 * client gets. */
void lo_verifier_seen(struct lo *lo, uint32_t ds, uint64_t verifier);
uint64_t lo_verifier_of(struct lo *lo, uint64_t generation);

int lo_orders_create(struct lo *lo);
void lo_orders_destroy(struct lo *lo);
int lo_stats_create(struct lo *lo);
void lo_stats_destroy(struct lo *lo);
#endif
