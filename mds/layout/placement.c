/* SPDX-License-Identifier: Apache-2.0 */
/*
 * placement.c - chooses the data servers of a new file (docs/groups.md).
 *
 * Servers take part that live, have a weight, and match the policy. A server's share is its weight
 * times its free space, less when it is busier than the others. The first object of a file, which
 * is the whole of a small file, goes round by smooth weighted round robin: each server's turns are
 * in proportion to its share and evenly mixed, whatever policies the files have. The other objects
 * are drawn at random, with a generator seeded by the inode number (placement_plan.c).
 */
#include "base/log.h"
#include "mds/layout/lo_int.h"
#include "mds/layout/mirror_change.h"
#include <errno.h>
#include <sodium.h>
#include <stdio.h>

/* A server is full when it has less free space than this, or less than a hundredth of its capacity,
 * because the objects it holds may grow. */
#define PLACE_ROOM (64u << 20)
/* Requests in progress, in hundredths, below which load makes no difference between servers. */
#define PLACE_CALM 800.0
/* A very busy server keeps this part of its share. */
#define PLACE_BUSY_LEAST 0.25

enum { LOOK_ALIVE, LOOK_HOPED, LOOK_KNOWN };

/* The servers that a policy may use. */
struct look {
	const struct lo_policy *lk_policy;
	unsigned lk_whom;
	uint32_t lk_patience_ms;
	unsigned lk_n, lk_seen; /* candidates; servers, whatever their labels */
	unsigned lk_generic;	/* servers that take no files with so many objects */
	double lk_load;		/* sum of the candidates' loads */
	uint32_t lk_loads[DS_REG_MAX];
	uint64_t lk_domain[DS_REG_MAX]; /* hash of the server's value of the domain label */
	struct lo_candidate lk_seat[DS_REG_MAX];
};

/* True when the server can take a new file now or, for LOOK_HOPED, may be able to soon. */
static bool placement_may_take(const struct ds_reg_candidate *se, const struct look *lk)
{
	if (!se->can_weight || se->can_draining || (!se->can_ready && se->can_hopeless))
		return false;
	if (lk->lk_whom == LOOK_ALIVE)
		return se->can_alive && se->can_ready;
	return se->can_alive || se->can_unheard_ms <= lk->lk_patience_ms;
}

static void placement_look_at(void *arg, const struct ds_reg_candidate *se)
{
	const char *domain = NULL;
	struct look *lk = arg;
	struct lo_candidate *st = &lk->lk_seat[lk->lk_n];
	uint64_t room = se->can_capacity / 100;
	size_t len = 0;

	/* Handles and owners on an NFSv3 data server are longer than on weft's own, so a layout
	 * with so many objects would be too long. */
	if (se->can_generic &&
	    (lk->lk_policy->lp_mirrors + 1u) * lk->lk_policy->lp_stripes > LO_MAX_GENERIC) {
		lk->lk_generic++;
		return;
	}
	if (lk->lk_whom != LOOK_KNOWN && !placement_may_take(se, lk))
		return;
	lk->lk_seen++;
	st->st_mirrors = lo_group_mirrors(lk->lk_policy, se->can_labels);
	if (!st->st_mirrors)
		return;
	st->st_id = se->can_id;
	st->st_full = se->can_available < (room > PLACE_ROOM ? room : PLACE_ROOM);
	st->st_weight = se->can_weight *
			(double)(se->can_available < 1 << 20 ? 1 << 20 : se->can_available);
	if (*lk->lk_policy->lp_domain)
		domain = labels_get(se->can_labels, lk->lk_policy->lp_domain,
				    strlen(lk->lk_policy->lp_domain), &len);
	lk->lk_domain[lk->lk_n] = domain ? hash_bytes(domain, len) : 0;
	lk->lk_loads[lk->lk_n] = se->can_load;
	lk->lk_load += se->can_load;
	lk->lk_n++;
}

/* Numbers the domains from 0 on; equal hashes are one domain. Returns how many there are. */
static unsigned number_domains(struct look *lk)
{
	uint16_t slot[2 * DS_REG_MAX]; /* index of a candidate plus 1, by hash */
	unsigned count = 0;

	if (!*lk->lk_policy->lp_domain) {
		for (unsigned i = 0; i < lk->lk_n; i++)
			lk->lk_seat[i].st_domain = (uint16_t)i;
		return lk->lk_n;
	}
	memset(slot, 0, sizeof(slot));
	for (unsigned i = 0; i < lk->lk_n; i++) {
		unsigned s = (unsigned)(lk->lk_domain[i] % (2 * DS_REG_MAX));

		while (slot[s] && lk->lk_domain[slot[s] - 1] != lk->lk_domain[i])
			s = (s + 1) % (2 * DS_REG_MAX);
		if (!slot[s]) {
			slot[s] = (uint16_t)(i + 1);
			lk->lk_seat[i].st_domain = (uint16_t)count++;
		} else {
			lk->lk_seat[i].st_domain = lk->lk_seat[slot[s] - 1].st_domain;
		}
	}
	return count;
}

/* Fills lk with the candidates. Returns how many domains there are. */
static unsigned placement_look(struct lo *lo, const struct lo_policy *p, unsigned whom,
			       uint32_t patience_ms, struct look *lk)
{
	double mean;

	lk->lk_policy = p;
	lk->lk_whom = whom;
	lk->lk_patience_ms = patience_ms;
	lk->lk_n = lk->lk_seen = lk->lk_generic = 0;
	lk->lk_load = 0;
	ds_reg_candidates(lo->l_dsc, placement_look_at, lk);
	mean = lk->lk_n ? lk->lk_load / lk->lk_n : 0;
	for (unsigned i = 0; i < lk->lk_n; i++) {
		double f = (PLACE_CALM + mean) / (PLACE_CALM + lk->lk_loads[i]);

		lk->lk_seat[i].st_weight *= f > 1 ? 1 : f < PLACE_BUSY_LEAST ? PLACE_BUSY_LEAST : f;
	}
	return number_domains(lk);
}

/* Says for people what is missing. whom: "", or more words on the servers that were considered. */
static void lacking(const struct look *lk, unsigned domains, const char *whom, char *out,
		    size_t len)
{
	const struct lo_policy *p = lk->lk_policy;
	unsigned n = lk->lk_seen;
	uint64_t have = 0;

	if (lk->lk_generic && n < p->lp_mirrors) {
		snprintf(out, len,
			 "stripes=%u,mirrors=%u: %u data server%s%s, and %u generic NFSv3 "
			 "server(s), which hold at most %d objects of a file",
			 p->lp_stripes, p->lp_mirrors, n, n == 1 ? "" : "s", whom, lk->lk_generic,
			 LO_MAX_GENERIC - p->lp_stripes);
		return;
	}
	for (unsigned i = 0; i < lk->lk_n; i++)
		have |= lk->lk_seat[i].st_mirrors;
	if (n < p->lp_mirrors) {
		snprintf(out, len, "mirrors=%u: there %s only %u data server%s%s", p->lp_mirrors,
			 n == 1 ? "is" : "are", n, n == 1 ? "" : "s", whom);
		return;
	}
	for (unsigned m = 0; m < p->lp_mirrors; m++) {
		if (have >> m & 1)
			continue;
		snprintf(out, len,
			 "mirror %u: none of the %u data servers%s has the labels of its group", m,
			 n, whom);
		return;
	}
	if (domains < p->lp_mirrors && *p->lp_domain)
		snprintf(out, len,
			 "mirrors=%u,domain=%s: the data servers%s have only %u value%s of that "
			 "label in the groups",
			 p->lp_mirrors, p->lp_domain, whom, domains, domains == 1 ? "" : "s");
	else if (domains < p->lp_mirrors)
		snprintf(out, len, "mirrors=%u: only %u of the data servers%s %s in the groups",
			 p->lp_mirrors, domains, whom, domains == 1 ? "is" : "are");
	else
		snprintf(out, len,
			 "mirrors=%u: too few data servers%s are in the mirrors' groups to keep "
			 "the copies of a stripe apart",
			 p->lp_mirrors, whom);
}

static unsigned next_first(void *arg, const struct lo_candidate *seat, const uint16_t *pick,
			   unsigned n)
{
	struct lo *lo = arg;
	double total = 0;
	unsigned best = 0;

	pthread_mutex_lock(&lo->l_place_lock);
	for (unsigned i = 0; i < n; i++)
		total += seat[pick[i]].st_weight;
	for (unsigned i = 0; i < n; i++) {
		double *credit = &lo->l_credit[seat[pick[i]].st_id];

		/* Limit a credit that was saved up while shares were larger. */
		*credit = *credit > total ? total : *credit < -total ? -total : *credit;
		*credit += seat[pick[i]].st_weight;
		if (*credit > lo->l_credit[seat[pick[best]].st_id])
			best = i;
	}
	lo->l_credit[seat[pick[best]].st_id] -= total;
	pthread_mutex_unlock(&lo->l_place_lock);
	return best;
}

/* The living servers do not suffice. Returns -EAGAIN when the servers that lived a moment ago
 * would. */
static int cannot(struct lo *lo, const struct lo_policy *p, uint32_t patience_ms, struct look *lk)
{
	char text[LO_POLICY_TEXT], why[256];
	unsigned domains;

	if (ds_reg_up_ms(lo->l_dsc) <= patience_ms)
		return -EAGAIN;
	domains = placement_look(lo, p, LOOK_HOPED, patience_ms, lk);
	if (lo_plan_can(lk->lk_seat, lk->lk_n, p->lp_mirrors))
		return -EAGAIN;
	if (log_due(&lo->l_lacking_said)) {
		lacking(lk, domains, " that are alive and have a weight", why, sizeof(why));
		lo_policy_format(p, text);
		log_warn("cannot place a file: policy %s: %s", text, why);
	}
	return -ENOSPC;
}

int lo_place(struct lo *lo, const struct lo_policy *p, uint64_t ino, uint32_t patience_ms,
	     struct lo_map *m)
{
	struct lo_plan pl = {.pl_stripes = p->lp_stripes,
			     .pl_mirrors = p->lp_mirrors,
			     .pl_seed = hash_u64(ino),
			     .pl_first = next_first,
			     .pl_arg = lo};
	struct look lk;

	if (!lo_shape_ok(p->lp_stripes, p->lp_mirrors))
		return -EINVAL;
	placement_look(lo, p, LOOK_ALIVE, 0, &lk);
	pl.pl_seat = lk.lk_seat;
	pl.pl_n = lk.lk_n;
	if (lo_plan(&pl))
		return cannot(lo, p, patience_ms, &lk);
	memset(m, 0, sizeof(*m));
	m->lm_unit = p->lp_unit;
	m->lm_stripes = p->lp_stripes;
	m->lm_mirrors = p->lp_mirrors;
	m->lm_next = p->lp_mirrors;
	m->lm_epoch = 1;
	strcpy(m->lm_domain, p->lp_domain);
	strcpy(m->lm_groups, p->lp_groups);
	for (unsigned i = 0; i < (unsigned)p->lp_stripes * p->lp_mirrors; i++)
		m->lm_obj[i] = (struct lo_object){.ob_ds = lk.lk_seat[pl.pl_pick[i]].st_id,
						  .ob_copy = (uint8_t)(i / p->lp_stripes)};
	return 0;
}

/* ---- one more object ---- */

/* Returns a hash of the server's value of the domain label; 0: it has none. */
static uint64_t placement_domain_of(struct lo *lo, const char *key, uint32_t ds)
{
	struct ds_reg_terms dt;
	const char *v;
	size_t len;

	if (!*key || !ds_reg_terms(lo->l_dsc, ds, &dt))
		return 0;
	v = labels_get(dt.dt_labels, key, strlen(key), &len);
	return v ? hash_bytes(v, len) : 0;
}

/* A pinned copy is in no domain: it is for speed, and the others keep the file safe. */
static bool is_pinned(const struct lo_map *m, unsigned mirror)
{
	return m->lm_pin && mirror + 1 == m->lm_pin;
}

/* Servers and domains of a stripe's copies. */
struct taken {
	unsigned tk_n, tk_ndomains;
	uint32_t tk_ds[LO_MAX_OBJECTS];
	uint64_t tk_domain[LO_MAX_OBJECTS];
};

static void taken_by(struct lo *lo, const struct lo_map *m, unsigned stripe, uint64_t without,
		     struct taken *tk)
{
	tk->tk_n = tk->tk_ndomains = 0;
	for (unsigned i = stripe; i < lo_objects(m); i += m->lm_stripes) {
		uint64_t domain;

		if (m->lm_obj[i].ob_state == LO_ABSENT)
			continue;
		tk->tk_ds[tk->tk_n++] = m->lm_obj[i].ob_ds;
		domain = without >> i & 1 || is_pinned(m, lo_mirror_of(m, i))
				 ? 0
				 : placement_domain_of(lo, m->lm_domain, m->lm_obj[i].ob_ds);
		if (domain)
			tk->tk_domain[tk->tk_ndomains++] = domain;
	}
}

static bool is_taken(const struct taken *tk, uint32_t ds, uint64_t domain)
{
	for (unsigned i = 0; i < tk->tk_n; i++)
		if (tk->tk_ds[i] == ds)
			return true;
	for (unsigned i = 0; domain && i < tk->tk_ndomains; i++)
		if (tk->tk_domain[i] == domain)
			return true;
	return false;
}

/* Draws one of the candidates by weight. */
static uint32_t draw_seat(const struct lo_candidate *seat, const uint16_t *pick, unsigned n)
{
	double total = 0, at;

	for (unsigned i = 0; i < n; i++)
		total += seat[pick[i]].st_weight;
	at = total * randombytes_uniform(1u << 30) / (1u << 30);
	for (unsigned i = 0; i + 1 < n; i++) {
		at -= seat[pick[i]].st_weight;
		if (at < 0)
			return seat[pick[i]].st_id;
	}
	return n ? seat[pick[n - 1]].st_id : 0;
}

static bool placement_may_have(const struct look *lk, unsigned i, const struct lo_map *m,
			       unsigned mirror, const struct taken *tk, uint32_t bad)
{
	const struct lo_candidate *st = &lk->lk_seat[i];

	return !st->st_full && st->st_id != bad && (st->st_mirrors >> mirror & 1) &&
	       !is_taken(tk, st->st_id,
			 *m->lm_domain && !is_pinned(m, mirror) ? lk->lk_domain[i] : 0);
}

bool lo_place_may(struct lo *lo, const struct lo_map *m, unsigned stripe, unsigned mirror,
		  uint64_t without, uint32_t ds)
{
	struct lo_policy p;
	struct taken tk;
	struct look lk;

	if (lo_map_policy(m, &p) || mirror >= p.lp_mirrors)
		return false;
	taken_by(lo, m, stripe, without, &tk);
	placement_look(lo, &p, LOOK_ALIVE, 0, &lk);
	for (unsigned i = 0; i < lk.lk_n; i++)
		if (lk.lk_seat[i].st_id == ds)
			return placement_may_have(&lk, i, m, mirror, &tk, 0);
	return false;
}

uint32_t lo_place_object(struct lo *lo, const struct lo_map *m, unsigned stripe, unsigned mirror,
			 uint64_t without, uint32_t bad)
{
	return lo_place_object_fits(lo, m, stripe, mirror, without, bad, NULL);
}

uint32_t lo_place_object_fits(struct lo *lo, const struct lo_map *m, unsigned stripe,
			      unsigned mirror, uint64_t without, uint32_t bad,
			      const struct lo_fits *f)
{
	unsigned least = LO_MAX_OBJECTS + 1, n = 0;
	uint16_t pick[DS_REG_MAX];
	struct lo_policy p;
	struct taken tk;
	struct look lk;

	if (lo_map_policy(m, &p) || mirror >= p.lp_mirrors)
		return 0;
	taken_by(lo, m, stripe, without, &tk);
	placement_look(lo, &p, LOOK_ALIVE, 0, &lk);
	for (unsigned i = 0; i < lk.lk_n; i++) {
		const struct lo_candidate *st = &lk.lk_seat[i];
		unsigned has = 0;

		if (!placement_may_have(&lk, i, m, mirror, &tk, bad) ||
		    (f && !f->lf_fits(f->lf_arg, st->st_id)))
			continue;
		for (unsigned k = 0; k < lo_objects(m); k++)
			has += m->lm_obj[k].ob_state != LO_ABSENT &&
			       m->lm_obj[k].ob_ds == st->st_id;
		if (has > least)
			continue;
		if (has < least)
			n = 0;
		least = has;
		pick[n++] = (uint16_t)i;
	}
	return draw_seat(lk.lk_seat, pick, n);
}

bool lo_placed_well(struct lo *lo, const struct lo_map *m, unsigned obj)
{
	unsigned mirror = obj / m->lm_stripes;
	struct ds_reg_terms dt;
	struct lo_policy p;
	uint64_t domain;

	if (lo_map_policy(m, &p) || mirror >= p.lp_mirrors ||
	    !ds_reg_terms(lo->l_dsc, m->lm_obj[obj].ob_ds, &dt))
		return true; /* no policy, group or labels to check against */
	if (!(lo_group_mirrors(&p, dt.dt_labels) >> mirror & 1))
		return false;
	domain = is_pinned(m, mirror) ? 0
				      : placement_domain_of(lo, m->lm_domain, m->lm_obj[obj].ob_ds);
	for (unsigned i = obj % m->lm_stripes; domain && i < obj; i += m->lm_stripes)
		if (!is_pinned(m, i / m->lm_stripes) &&
		    placement_domain_of(lo, m->lm_domain, m->lm_obj[i].ob_ds) == domain)
			return false;
	return true;
}

int lo_policy_check(struct lo *lo, const struct lo_policy *p, char *err, size_t errlen)
{
	struct look lk;
	unsigned domains;

	if (!lo_shape_ok(p->lp_stripes, p->lp_mirrors)) {
		snprintf(err, errlen,
			 "stripes=%u,mirrors=%u: the layout would not fit in 4096 bytes (stripes x "
			 "mirrors can be at most %d)",
			 p->lp_stripes, p->lp_mirrors, LO_MAX_OBJECTS);
		return -EINVAL;
	}
	/* One copy on any server is always a valid policy, even before the first server joins. */
	if (p->lp_mirrors == 1 && !*p->lp_domain && !*p->lp_groups)
		return 0;
	domains = placement_look(lo, p, LOOK_KNOWN, 0, &lk);
	if (lo_plan_can(lk.lk_seat, lk.lk_n, p->lp_mirrors))
		return 0;
	lacking(&lk, domains, "", err, errlen);
	return -EINVAL;
}

int lo_create(struct lo **out, struct ns *ns, struct ds_reg *dsc)
{
	struct lo *lo = calloc(1, sizeof(*lo));
	int err;

	if (!lo)
		return -ENOMEM;
	lo->l_ns = ns;
	lo->l_dsc = dsc;
	while (ds_reg_loop(dsc, lo->l_nloops))
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
	lo_near_free(lo);
	free(lo);
}
