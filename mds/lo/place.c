/*
 * place.c - which data servers a new file goes to.
 *
 * First an order of servers is made for the file. Its head, which takes stripe 0 and so all of a
 * small file, goes round by smooth weighted round robin: each server's turns are in proportion to
 * its free space, evenly mixed. The rest is drawn at random by weight, from a generator seeded with
 * the inode number.
 *
 * Then stripe s of mirror m goes to place (s + m * stripes + m / q) mod n of that order, with q = n
 * / gcd(stripes, n). Without the last term the copies of a stripe step through the n / gcd places
 * of one residue class and come back after q mirrors; the term moves on to the next class then. So
 * up to n copies of a stripe are on n servers. Mirrors follow one another without gaps until each
 * place has been used equally often, so servers differ by one object at most.
 */
#include "mds/lo/lo_int.h"
#include <errno.h>

/* A server with less free space takes new files only when there are too few others. */
#define PLACE_ROOM (64u << 20)

struct candidate {
	uint32_t cd_id;
	uint64_t cd_weight;
};

static uint64_t weight_of(uint64_t available)
{
	/* At most 2^40: sums over all servers, and credits, stay far from overflow. */
	uint64_t w = available >> 20;

	return w ? (w < UINT64_C(1) << 40 ? w : UINT64_C(1) << 40) : 1;
}

/* Those with room first; a candidate list long enough for the mirrors, if there are as many alive.
 */
static unsigned candidates(struct lo *lo, unsigned need, struct candidate *cd)
{
	uint32_t ids[DSC_MAX];
	uint64_t available[DSC_MAX];
	unsigned n = dsc_alive(lo->l_dsc, ids, available, DSC_MAX), k = 0;

	for (unsigned i = 0; i < n; i++)
		if (available[i] >= PLACE_ROOM)
			cd[k++] = (struct candidate){ids[i], weight_of(available[i])};
	for (unsigned i = 0; i < n && k < need; i++)
		if (available[i] < PLACE_ROOM)
			cd[k++] = (struct candidate){ids[i], 1};
	return k;
}

static void swap_in(struct candidate *cd, unsigned at, unsigned pick)
{
	struct candidate c = cd[at];

	cd[at] = cd[pick];
	cd[pick] = c;
}

static unsigned next_head(struct lo *lo, const struct candidate *cd, unsigned n)
{
	int64_t total = 0;
	unsigned best = 0;

	pthread_mutex_lock(&lo->l_place_lock);
	for (unsigned i = 0; i < n; i++) {
		lo->l_credit[cd[i].cd_id] += (int64_t)cd[i].cd_weight;
		total += (int64_t)cd[i].cd_weight;
		if (lo->l_credit[cd[i].cd_id] > lo->l_credit[cd[best].cd_id])
			best = i;
	}
	lo->l_credit[cd[best].cd_id] -= total;
	pthread_mutex_unlock(&lo->l_place_lock);
	return best;
}

/* Orders the first `use` places of cd[0..n). */
static void arrange(struct lo *lo, struct candidate *cd, unsigned n, unsigned use, uint64_t seed)
{
	uint64_t total = 0;

	swap_in(cd, 0, next_head(lo, cd, n));
	for (unsigned i = 1; i < n; i++)
		total += cd[i].cd_weight;
	for (unsigned at = 1; at < use; at++) {
		uint64_t r = hash_u64(seed + at * UINT64_C(0x9e3779b97f4a7c15)) % total;
		unsigned pick = at;

		while (r >= cd[pick].cd_weight)
			r -= cd[pick++].cd_weight;
		total -= cd[pick].cd_weight;
		swap_in(cd, at, pick);
	}
}

static unsigned gcd(unsigned a, unsigned b)
{
	while (b) {
		unsigned t = a % b;

		a = b;
		b = t;
	}
	return a;
}

int lo_place(struct lo *lo, const struct lo_policy *p, uint64_t ino, struct lo_map *m)
{
	struct candidate cd[DSC_MAX];
	unsigned objects = (unsigned)p->lp_stripes * p->lp_mirrors, n, q;

	if (!lo_shape_ok(p->lp_stripes, p->lp_mirrors))
		return -EINVAL;
	n = candidates(lo, p->lp_mirrors, cd);
	if (n < p->lp_mirrors || !n)
		return -EAGAIN;
	arrange(lo, cd, n, objects < n ? objects : n, ino);
	memset(m, 0, sizeof(*m));
	m->lm_unit = p->lp_unit;
	m->lm_stripes = p->lp_stripes;
	m->lm_mirrors = p->lp_mirrors;
	m->lm_epoch = 1;
	q = n / gcd(p->lp_stripes, n);
	for (unsigned i = 0; i < objects; i++)
		m->lm_obj[i].ob_ds = cd[(i + i / p->lp_stripes / q) % n].cd_id;
	return 0;
}

int lo_create(struct lo **out, struct ns *ns, struct dsc *dsc)
{
	struct lo *lo = calloc(1, sizeof(*lo));
	int err;

	if (!lo)
		return -ENOMEM;
	lo->l_ns = ns;
	lo->l_dsc = dsc;
	while (dsc_loop(dsc, lo->l_nloops))
		lo->l_nloops++;
	pthread_mutex_init(&lo->l_place_lock, NULL);
	pthread_mutex_init(&lo->l_verf_lock, NULL);
	err = lo_stats_create(lo);
	if (!err)
		err = lo_orders_create(lo);
	if (err) {
		lo_destroy(lo);
		return err;
	}
	*out = lo;
	return 0;
}

void lo_destroy(struct lo *lo)
{
	lo_orders_destroy(lo);
	lo_stats_destroy(lo);
	pthread_mutex_destroy(&lo->l_place_lock);
	pthread_mutex_destroy(&lo->l_verf_lock);
	free(lo);
}
