/* SPDX-License-Identifier: Apache-2.0 */
/*
 * placement_plan.c - chooses the server of each object of a new file (struct lo_plan in lo_int.h
 * states what is guaranteed).
 *
 * The plan goes mirror by mirror, and stripe by stripe within a mirror. It draws a stripe's server
 * among those that may take the stripe and have the fewest objects of this file, fewer than
 * `level`. When there is none, a stripe that was placed before in this mirror makes room
 * (augmenting paths of bipartite matching). When that does not help either, the level rises by one.
 * So no server gets two objects more than another server that could have had one of them. A full
 * server counts as if it had more objects than a file can have.
 *
 * When mirrors have groups of their own, each choice must leave a domain for each later mirror of
 * its stripe. That is a matching of mirrors to domains. It is computed per stripe when a mirror
 * begins, and says which domains may be chosen (wk_may).
 */
#include "mds/layout/lo_int.h"
#include <assert.h>
#include <errno.h>

#define WORDS ((DS_REG_MAX + 63) / 64)
#define FULL  LO_MAX_OBJECTS

struct set {
	uint64_t w[WORDS];
};

struct work {
	struct lo_plan *wk_pl;
	unsigned wk_words;  /* words of a set in use */
	bool wk_groups;	    /* mirrors may use different servers */
	unsigned wk_mirror; /* the mirror that is being placed */
	unsigned wk_level;
	uint64_t wk_draws;
	struct set wk_has[LO_MAX_OBJECTS];  /* by mirror: domains that have a server for it */
	struct set wk_used[LO_MAX_OBJECTS]; /* by stripe: domains of its copies so far */
	struct set wk_may[LO_MAX_OBJECTS];  /* by stripe: domains allowed for this mirror */
	struct set wk_seen;		    /* servers visited in the search for a place */
	uint8_t wk_count[DS_REG_MAX];	    /* objects, by server */
	uint16_t wk_row[LO_MAX_OBJECTS];    /* servers of this mirror, by stripe */
	unsigned wk_placed;		    /* stripes of this mirror placed so far */
};

static bool in(const struct set *s, unsigned b)
{
	return s->w[b / 64] >> (b % 64) & 1;
}

static void placement_plan_put(struct set *s, unsigned b)
{
	s->w[b / 64] |= UINT64_C(1) << (b % 64);
}

/* ---- mirrors to domains ---- */

struct match {
	const struct set *mt_has; /* by mirror */
	unsigned mt_words;
	struct set mt_taken; /* domains that must not be used */
	struct set mt_matched;
	struct set mt_seen;
	uint8_t mt_mirror[DS_REG_MAX]; /* mirror of a matched domain */
};

/* Returns the first domain of a mirror that the search has not visited. free: the domain must also
 * be unmatched. */
static int placement_plan_domain_of(const struct match *mt, unsigned mirror, bool free)
{
	for (unsigned i = 0; i < mt->mt_words; i++) {
		uint64_t w = mt->mt_has[mirror].w[i] & ~mt->mt_taken.w[i] & ~mt->mt_seen.w[i];

		if (free)
			w &= ~mt->mt_matched.w[i];
		if (w)
			return (int)(i * 64 + (unsigned)__builtin_ctzll(w));
	}
	return -1;
}

static bool match_one(struct match *mt, unsigned mirror)
{
	int d = placement_plan_domain_of(mt, mirror, true);

	if (d >= 0) {
		placement_plan_put(&mt->mt_matched, (unsigned)d);
		mt->mt_mirror[d] = (uint8_t)mirror;
		return true;
	}
	while ((d = placement_plan_domain_of(mt, mirror, false)) >= 0) {
		placement_plan_put(&mt->mt_seen, (unsigned)d);
		if (match_one(mt, mt->mt_mirror[d])) {
			mt->mt_mirror[d] = (uint8_t)mirror;
			return true;
		}
	}
	return false;
}

/* Matches mirrors from..to (to excluded) to domains that are not taken. */
static bool match_all(struct match *mt, unsigned from, unsigned to)
{
	memset(&mt->mt_matched, 0, sizeof(mt->mt_matched));
	for (unsigned m = from; m < to; m++) {
		memset(&mt->mt_seen, 0, sizeof(mt->mt_seen));
		if (!match_one(mt, m))
			return false;
	}
	return true;
}

/* Whether the mirror that has domain d finds another domain when this mirror takes d. */
static bool yields(const struct match *mt, unsigned d)
{
	struct match m = *mt;
	unsigned other = m.mt_mirror[d];

	placement_plan_put(&m.mt_taken, d);
	memset(&m.mt_seen, 0, sizeof(m.mt_seen));
	return match_one(&m, other);
}

/* Computes wk_may: the domains that this mirror of a stripe may take. */
static bool domains(struct work *wk, unsigned stripe)
{
	struct lo_plan *pl = wk->wk_pl;
	struct match mt = {
		.mt_has = wk->wk_has, .mt_words = wk->wk_words, .mt_taken = wk->wk_used[stripe]};
	struct set *may = &wk->wk_may[stripe];

	/* Match the later mirrors alone. A domain that none of them got is then free to take. */
	if (!match_all(&mt, wk->wk_mirror + 1, pl->pl_mirrors))
		return false;
	for (unsigned i = 0; i < wk->wk_words; i++) {
		uint64_t w = wk->wk_has[wk->wk_mirror].w[i] & ~wk->wk_used[stripe].w[i];

		may->w[i] = w & ~mt.mt_matched.w[i];
		for (w &= mt.mt_matched.w[i]; w; w &= w - 1) {
			unsigned d = i * 64 + (unsigned)__builtin_ctzll(w);

			if (yields(&mt, d))
				placement_plan_put(may, d);
		}
	}
	return true;
}

/* ---- stripes to servers ---- */

static bool placement_plan_may_take(const struct work *wk, unsigned stripe, unsigned seat)
{
	const struct lo_candidate *st = &wk->wk_pl->pl_seat[seat];

	return (st->st_mirrors >> wk->wk_mirror & 1) && !in(&wk->wk_used[stripe], st->st_domain) &&
	       (!wk->wk_groups || in(&wk->wk_may[stripe], st->st_domain));
}

/* Returns a number in [0, 1). */
static double placement_plan_draw(struct work *wk)
{
	return (double)(hash_u64(wk->wk_pl->pl_seed +
				 ++wk->wk_draws * UINT64_C(0x9e3779b97f4a7c15)) >>
			11) *
	       0x1p-53;
}

static unsigned placement_plan_choose(struct work *wk, const uint16_t *pick, unsigned n, bool first)
{
	const struct lo_candidate *seat = wk->wk_pl->pl_seat;
	double total = 0, r;

	if (first)
		return wk->wk_pl->pl_first(wk->wk_pl->pl_arg, seat, pick, n);
	for (unsigned i = 0; i < n; i++)
		total += seat[pick[i]].st_weight;
	r = placement_plan_draw(wk) * total;
	for (unsigned i = 0; i + 1 < n; i++) {
		r -= seat[pick[i]].st_weight;
		if (r < 0)
			return i;
	}
	return n - 1;
}

static unsigned level_of(const struct work *wk, unsigned seat)
{
	return wk->wk_count[seat] + (wk->wk_pl->pl_seat[seat].st_full ? FULL : 0);
}

/* Returns a server below the level among those with the fewest objects; -1: none. */
static int free_seat(struct work *wk, unsigned stripe)
{
	unsigned least = wk->wk_level, n = 0;
	uint16_t pick[DS_REG_MAX];

	for (unsigned i = 0; i < wk->wk_pl->pl_n; i++) {
		unsigned level = level_of(wk, i);

		if (level > least || level >= wk->wk_level ||
		    !placement_plan_may_take(wk, stripe, i))
			continue;
		if (level < least)
			n = 0;
		least = level;
		pick[n++] = (uint16_t)i;
	}
	return n ? pick[placement_plan_choose(wk, pick, n, !wk->wk_mirror && !stripe)] : -1;
}

static bool place_stripe(struct work *wk, unsigned stripe)
{
	int seat = free_seat(wk, stripe);

	if (seat >= 0) {
		wk->wk_count[seat]++;
		wk->wk_row[stripe] = (uint16_t)seat;
		return true;
	}
	for (unsigned other = 0; other < wk->wk_placed; other++) {
		unsigned s = wk->wk_row[other];

		if (in(&wk->wk_seen, s) || !placement_plan_may_take(wk, stripe, s))
			continue;
		placement_plan_put(&wk->wk_seen, s);
		for (unsigned one = other; one < wk->wk_placed; one++) {
			if (wk->wk_row[one] != s || !place_stripe(wk, one))
				continue;
			wk->wk_row[stripe] = (uint16_t)s;
			return true;
		}
	}
	return false;
}

static void place_mirror(struct work *wk)
{
	struct lo_plan *pl = wk->wk_pl;

	wk->wk_level = 1;
	for (wk->wk_placed = 0; wk->wk_placed < pl->pl_stripes; wk->wk_placed++) {
		for (;;) {
			memset(&wk->wk_seen, 0, sizeof(wk->wk_seen));
			if (place_stripe(wk, wk->wk_placed))
				break;
			wk->wk_level++;
			/* some server may take the stripe, and is below that level */
			assert(wk->wk_level <= 2 * LO_MAX_OBJECTS);
		}
	}
	for (unsigned s = 0; s < pl->pl_stripes; s++) {
		placement_plan_put(&wk->wk_used[s], pl->pl_seat[wk->wk_row[s]].st_domain);
		pl->pl_pick[wk->wk_mirror * pl->pl_stripes + s] = wk->wk_row[s];
	}
}

/* ---- the whole plan ---- */

/* Collects the domains of each mirror. Returns how many words of a set are in use. */
static unsigned domains_of(const struct lo_candidate *seat, unsigned n, unsigned mirrors,
			   struct set *has, bool *groups)
{
	unsigned last = 0;

	*groups = false;
	memset(has, 0, mirrors * sizeof(*has));
	for (unsigned i = 0; i < n; i++) {
		uint64_t all = (UINT64_C(1) << mirrors) - 1, may = seat[i].st_mirrors & all;

		if (may && may != all)
			*groups = true;
		if (seat[i].st_domain > last)
			last = seat[i].st_domain;
		for (; may; may &= may - 1)
			placement_plan_put(&has[__builtin_ctzll(may)], seat[i].st_domain);
	}
	return last / 64 + 1;
}

bool lo_plan_can(const struct lo_candidate *seat, unsigned n, unsigned mirrors)
{
	struct set has[LO_MAX_OBJECTS];
	struct match mt = {.mt_has = has};
	bool groups;

	mt.mt_words = domains_of(seat, n, mirrors, has, &groups);
	return match_all(&mt, 0, mirrors);
}

int lo_plan(struct lo_plan *pl)
{
	struct work wk;
	struct match mt;

	wk.wk_pl = pl;
	wk.wk_draws = 0;
	wk.wk_words = domains_of(pl->pl_seat, pl->pl_n, pl->pl_mirrors, wk.wk_has, &wk.wk_groups);
	mt.mt_has = wk.wk_has;
	mt.mt_words = wk.wk_words;
	memset(&mt.mt_taken, 0, sizeof(mt.mt_taken));
	if (!match_all(&mt, 0, pl->pl_mirrors))
		return -EAGAIN;
	memset(wk.wk_used, 0, pl->pl_stripes * sizeof(wk.wk_used[0]));
	memset(wk.wk_count, 0, pl->pl_n);
	for (wk.wk_mirror = 0; wk.wk_mirror < pl->pl_mirrors; wk.wk_mirror++) {
		for (unsigned s = 0; wk.wk_groups && s < pl->pl_stripes; s++)
			if (!domains(&wk, s))
				return -EAGAIN;
		place_mirror(&wk);
	}
	return 0;
}
