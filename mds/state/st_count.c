/* SPDX-License-Identifier: Apache-2.0 */
/* st_count.c - how much state each client has, and the lists of that state. All threads write these
 * lists and counts, but no single operation writes the shared ones. */
#include "base/clock.h"
#include "mds/state/st.h"

#define PORTION_MOST 32u
#define GATHER_NS    1000000000ull

_Static_assert(ST_STRIPES <= 8 && ST_COUNTS <= 8, "ct_roomy and sp_used have a bit for each");

static struct st_stripe *stripe_of(struct st_client *c)
{
	return &c->cl_stripe[st_thread_index() % ST_STRIPES];
}

static unsigned counts_of(struct st_client *c, struct st_counts *of[3])
{
	unsigned n = 0;

	of[n++] = &c->cl_counts;
	if (c->cl_place)
		of[n++] = &c->cl_place->pl_counts;
	if (c->cl_st)
		of[n++] = &c->cl_st->st_counts;
	return n;
}

/* The order matters to st_others_have, which compares the counts: a count of more clients rises
 * earlier, and falls later. */
static void st_count_taken(struct st_client *c, enum st_count what, uint32_t more)
{
	struct st_counts *of[3];

	for (unsigned i = counts_of(c, of); i-- > 0;) {
		/* ct_takes rises after the count of all and before the client's count. */
		if (i == 0)
			atomic_fetch_add(&c->cl_counts.ct_takes, 1);
		atomic_fetch_add(&of[i]->ct_n[what], more);
	}
}

static void given(struct st_client *c, enum st_count what, uint32_t less)
{
	struct st_counts *of[3];
	unsigned n = counts_of(c, of);

	for (unsigned i = 0; i < n; i++)
		atomic_fetch_sub(&of[i]->ct_n[what], less);
}

/* True when more than half of a limit is in use. */
static bool is_tight(const struct st_client *c, enum st_count what)
{
	const struct st *st = c->cl_st;
	const uint32_t *most = st ? st->st_most[what] : NULL;

	return !st || atomic_load(&c->cl_counts.ct_n[what]) > most[0] / 2 ||
	       (c->cl_place && atomic_load(&c->cl_place->pl_counts.ct_n[what]) > most[1] / 2) ||
	       atomic_load(&st->st_counts.ct_n[what]) > most[2] / 2;
}

static uint8_t portion(const struct st_client *c, enum st_count what)
{
	uint8_t n = c->cl_st ? c->cl_st->st_portion[what] : 1;

	return n ? n : 1;
}

static void set_roomy(struct st_client *c, const struct st_stripe *sp, bool has)
{
	uint8_t bit = (uint8_t)(1u << (sp - c->cl_stripe)),
		was = atomic_load(&c->cl_counts.ct_roomy);

	if (has && !(was & bit))
		atomic_fetch_or(&c->cl_counts.ct_roomy, bit);
	else if (!has && (was & bit))
		atomic_fetch_and(&c->cl_counts.ct_roomy, (uint8_t)~bit);
}

/* sp_lock is held. */
static void st_count_count(struct st_client *c, struct st_stripe *sp, enum st_count what, int more)
{
	uint8_t room = atomic_load(&sp->sp_room[what]), n = portion(c, what),
		bit = (uint8_t)(1u << what);

	if (!(atomic_load(&sp->sp_used) & bit))
		atomic_fetch_or(&sp->sp_used, bit);
	if (more > 0 && !room) {
		if (n > 1 && is_tight(c, what))
			n = 1;
		st_count_taken(c, what, n);
		room = n;
	} else if (more < 0 && room + 1 >= (n == 1 ? 1 : 2 * n)) {
		given(c, what, n);
		room -= n;
	}
	atomic_store(&sp->sp_room[what], (uint8_t)(room - more));
	if (atomic_load(&sp->sp_room[what]))
		set_roomy(c, sp, true);
}

void st_count(struct st_client *c, enum st_count what, int more)
{
	struct st_stripe *sp = stripe_of(c);

	pthread_mutex_lock(&sp->sp_lock);
	st_count_count(c, sp, what, more);
	pthread_mutex_unlock(&sp->sp_lock);
}

void st_set_quota_portion(struct st *st, enum st_count what, uint32_t of_client, uint32_t of_addr,
			  uint32_t of_all)
{
	uint32_t n = of_client / 256;

	memcpy(st->st_most[what], (uint32_t[]){of_client, of_addr, of_all},
	       sizeof(st->st_most[what]));
	n = of_addr / 4096 < n ? of_addr / 4096 : n;
	n = of_all / 16384 < n ? of_all / 16384 : n;
	st->st_portion[what] = (uint8_t)(n < PORTION_MOST ? n : PORTION_MOST);
}

bool st_has_quota(const struct st_client *c, enum st_count what)
{
	return atomic_load(&c->cl_stripe[st_thread_index() % ST_STRIPES].sp_room[what]);
}

uint32_t st_client_number(const struct st_client *c, enum st_count what)
{
	uint32_t n = atomic_load(&c->cl_counts.ct_n[what]);

	for (unsigned i = 0; i < ST_STRIPES; i++)
		n -= atomic_load(&c->cl_stripe[i].sp_room[what]);
	return n;
}

uint32_t st_number(struct st *st, enum st_count what)
{
	uint32_t n = 0;

	hash_each(&st->st_clients, i, l, next) n +=
		st_client_number(hash_entry(l, struct st_client, cl_link), what);
	return n;
}

/*
 * All these reads and writes are in one order (seq_cst). What the client takes is counted in the
 * count of all, then in ct_takes, then in the client's own count. What the client gives back leaves
 * its own count before the count of all.
 *
 * So while ct_takes did not change, everything that raised the client's own count was in the count
 * of all before. The count of all, which is read first, was then at least `mine`, and greater when
 * another client had some.
 */
bool st_others_have(const struct st_client *c, enum st_count what)
{
	uint64_t takes = atomic_load(&c->cl_counts.ct_takes);
	uint32_t all = c->cl_st ? atomic_load(&c->cl_st->st_counts.ct_n[what]) : UINT32_MAX,
		 mine = atomic_load(&c->cl_counts.ct_n[what]);

	return all > mine || atomic_load(&c->cl_counts.ct_takes) != takes;
}

bool st_any_has(const struct st_client *c, enum st_count what)
{
	return !c->cl_st || atomic_load(&c->cl_st->st_counts.ct_n[what]);
}

/* Gives back the quota taken ahead for the kinds in `which`, a bit each. With `unused`, also for
 * the kinds that were not used since the last call. */
static void rooms_back(struct st_client *c, uint8_t which, bool unused)
{
	for (unsigned i = 0; i < ST_STRIPES && atomic_load(&c->cl_counts.ct_roomy); i++) {
		struct st_stripe *sp = &c->cl_stripe[i];
		uint8_t back = which;
		bool has = false;

		if (!(atomic_load(&c->cl_counts.ct_roomy) >> i & 1))
			continue;
		if (unused)
			back |= (uint8_t)~atomic_exchange(&sp->sp_used, 0);
		if (!back)
			continue;
		pthread_mutex_lock(&sp->sp_lock);
		for (enum st_count what = 0; what < ST_COUNTS; what++) {
			uint8_t room = back >> what & 1 ? atomic_load(&sp->sp_room[what]) : 0;

			if (room) {
				atomic_store(&sp->sp_room[what], 0);
				given(c, what, room);
			}
			has |= atomic_load(&sp->sp_room[what]);
		}
		set_roomy(c, sp, has);
		pthread_mutex_unlock(&sp->sp_lock);
	}
}

void st_quotas_back(struct st_client *c)
{
	rooms_back(c, UINT8_MAX, false);
}

void st_quota_back(struct st_client *c, enum st_count what)
{
	rooms_back(c, (uint8_t)(1u << what), false);
}

void st_quotas_tick(struct st_client *c)
{
	uint8_t tight = 0;

	if (!atomic_load(&c->cl_counts.ct_roomy))
		return;
	for (enum st_count what = 0; what < ST_COUNTS; what++)
		if (is_tight(c, what))
			tight |= (uint8_t)(1u << what);
	rooms_back(c, tight, true);
}

bool st_quotas_gather(struct st *st, struct st_addr_account *at, enum st_count what)
{
	_Atomic uint64_t *last = at ? &at->pl_gathered_ns[what] : &st->st_gathered_ns[what];
	uint64_t now = clock_mono_ns(), was = atomic_load(last);

	if (now - was < GATHER_NS || !atomic_compare_exchange_strong(last, &was, now))
		return false;
	hash_each(&st->st_clients, i, l, next)
	{
		struct st_client *c = hash_entry(l, struct st_client, cl_link);

		if (!at || c->cl_place == at)
			st_quota_back(c, what);
	}
	return true;
}

/* ---- lists ---- */

struct st_open *st_open_next(const struct st_client *c, const struct st_open *o)
{
	const struct st_stripe *sp = o ? o->o_stripe + 1 : c->cl_stripe;

	if (o && o->o_cnext)
		return o->o_cnext;
	while (sp < c->cl_stripe + ST_STRIPES && !sp->sp_opens)
		sp++;
	return sp < c->cl_stripe + ST_STRIPES ? sp->sp_opens : NULL;
}

struct st_layout *st_layout_next(const struct st_client *c, const struct st_layout *l)
{
	const struct st_stripe *sp = l ? l->l_stripe + 1 : c->cl_stripe;

	if (l && l->l_cnext)
		return l->l_cnext;
	while (sp < c->cl_stripe + ST_STRIPES && !sp->sp_layouts)
		sp++;
	return sp < c->cl_stripe + ST_STRIPES ? sp->sp_layouts : NULL;
}

static enum st_count counted_as(const struct st_open *o)
{
	return o->o_deleg ? ST_N_DELEGS : ST_N_OPENS;
}

void st_open_list(struct st_open *o)
{
	struct st_stripe *sp = stripe_of(o->o_client);

	pthread_mutex_lock(&sp->sp_lock);
	st_count_count(o->o_client, sp, counted_as(o), 1);
	o->o_stripe = sp;
	o->o_cnext = sp->sp_opens;
	o->o_cprev = &sp->sp_opens;
	if (o->o_cnext)
		o->o_cnext->o_cprev = &o->o_cnext;
	sp->sp_opens = o;
	pthread_mutex_unlock(&sp->sp_lock);
}

void st_open_unlist(struct st_open *o)
{
	struct st_stripe *sp = o->o_stripe;

	pthread_mutex_lock(&sp->sp_lock);
	st_count_count(o->o_client, sp, counted_as(o), -1);
	*o->o_cprev = o->o_cnext;
	if (o->o_cnext)
		o->o_cnext->o_cprev = o->o_cprev;
	pthread_mutex_unlock(&sp->sp_lock);
}

void st_layout_list(struct st_layout *l)
{
	struct st_stripe *sp = stripe_of(l->l_client);

	pthread_mutex_lock(&sp->sp_lock);
	st_count_count(l->l_client, sp, ST_N_LAYOUTS, 1);
	l->l_stripe = sp;
	l->l_cnext = sp->sp_layouts;
	l->l_cprev = &sp->sp_layouts;
	if (l->l_cnext)
		l->l_cnext->l_cprev = &l->l_cnext;
	sp->sp_layouts = l;
	pthread_mutex_unlock(&sp->sp_lock);
}

void st_layout_unlist(struct st_layout *l)
{
	struct st_stripe *sp = l->l_stripe;

	pthread_mutex_lock(&sp->sp_lock);
	st_count_count(l->l_client, sp, ST_N_LAYOUTS, -1);
	*l->l_cprev = l->l_cnext;
	if (l->l_cnext)
		l->l_cnext->l_cprev = l->l_cprev;
	pthread_mutex_unlock(&sp->sp_lock);
}
