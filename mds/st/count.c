/* count.c - how much state clients have, and which: lists and counts that are written by all threads, none of them by each operation. */
#include "mds/st/st.h"

#define PORTION_MOST 32u

static struct st_stripe *stripe_of(struct st_client *c)
{
	return &c->cl_stripe[st_turn() % ST_STRIPES];
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

/* The more of them a count is of, the sooner it rises, and the later it falls: st_others_have compares them. */
static void taken(struct st_client *c, enum st_count what, uint32_t more)
{
	struct st_counts *of[3];

	for (unsigned i = counts_of(c, of); i-- > 0;)
		atomic_fetch_add(&of[i]->ct_n[what], more);
}

static void given(struct st_client *c, enum st_count what, uint32_t less)
{
	struct st_counts *of[3];
	unsigned n = counts_of(c, of);

	for (unsigned i = 0; i < n; i++)
		atomic_fetch_sub(&of[i]->ct_n[what], less);
}

static uint8_t portion(const struct st_client *c, enum st_count what)
{
	uint8_t n = c->cl_st ? c->cl_st->st_portion[what] : 1;

	return n ? n : 1;
}

/* The stripe's lock is held, or all is. */
static void count(struct st_client *c, struct st_stripe *sp, enum st_count what, int more)
{
	uint8_t room = sp->sp_room[what], n = portion(c, what);

	if (!sp->sp_used)
		sp->sp_used = true;
	if (more > 0 && !room) {
		taken(c, what, n);
		room = n;
	} else if (more < 0 && room + 1 >= (n == 1 ? 1 : 2 * n)) {
		given(c, what, n);
		room -= n;
	}
	sp->sp_room[what] = (uint8_t)(room - more);
}

void st_count(struct st_client *c, enum st_count what, int more)
{
	struct st_stripe *sp = stripe_of(c);

	pthread_mutex_lock(&sp->sp_lock);
	count(c, sp, what, more);
	pthread_mutex_unlock(&sp->sp_lock);
}

void st_set_portion(struct st *st, enum st_count what, uint32_t of_client, uint32_t of_addr, uint32_t of_all)
{
	uint32_t n = of_client / 256;

	n = of_addr / 4096 < n ? of_addr / 4096 : n;
	n = of_all / 16384 < n ? of_all / 16384 : n;
	st->st_portion[what] = (uint8_t)(n < PORTION_MOST ? n : PORTION_MOST);
}

bool st_has_room(const struct st_client *c, enum st_count what)
{
	return c->cl_stripe[st_turn() % ST_STRIPES].sp_room[what];
}

uint32_t st_client_number(const struct st_client *c, enum st_count what)
{
	uint32_t n = c->cl_counts.ct_n[what];

	for (unsigned i = 0; i < ST_STRIPES; i++)
		n -= c->cl_stripe[i].sp_room[what];
	return n;
}

uint32_t st_number(struct st *st, enum st_count what)
{
	uint32_t n = 0;

	hash_each(&st->st_clients, i, l, next)
		n += st_client_number(hash_entry(l, struct st_client, cl_link), what);
	return n;
}

bool st_others_have(const struct st_client *c, enum st_count what)
{
	uint32_t mine = c->cl_counts.ct_n[what], all = c->cl_st ? c->cl_st->st_counts.ct_n[what] : UINT32_MAX;

	return all > mine || c->cl_counts.ct_n[what] != mine;
}

/* The stripe's lock is held, or all is. */
static void rooms_back(struct st_client *c, struct st_stripe *sp)
{
	for (enum st_count what = 0; what < ST_COUNTS; what++) {
		uint8_t room = sp->sp_room[what];

		if (room)
			given(c, what, room);
		sp->sp_room[what] = 0;
	}
}

void st_rooms_back(struct st_client *c)
{
	for (unsigned i = 0; i < ST_STRIPES; i++)
		rooms_back(c, &c->cl_stripe[i]);
}

static bool has_rooms(const struct st_stripe *sp)
{
	for (enum st_count what = 0; what < ST_COUNTS; what++)
		if (sp->sp_room[what])
			return true;
	return false;
}

void st_rooms_tick(struct st_client *c)
{
	for (unsigned i = 0; i < ST_STRIPES; i++) {
		struct st_stripe *sp = &c->cl_stripe[i];

		if (sp->sp_used) {
			sp->sp_used = false;
		} else if (has_rooms(sp)) {
			pthread_mutex_lock(&sp->sp_lock);
			rooms_back(c, sp);
			pthread_mutex_unlock(&sp->sp_lock);
		}
	}
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
	count(o->o_client, sp, counted_as(o), 1);
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
	count(o->o_client, sp, counted_as(o), -1);
	*o->o_cprev = o->o_cnext;
	if (o->o_cnext)
		o->o_cnext->o_cprev = o->o_cprev;
	pthread_mutex_unlock(&sp->sp_lock);
}

void st_layout_list(struct st_layout *l)
{
	struct st_stripe *sp = stripe_of(l->l_client);

	pthread_mutex_lock(&sp->sp_lock);
	count(l->l_client, sp, ST_N_LAYOUTS, 1);
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
	count(l->l_client, sp, ST_N_LAYOUTS, -1);
	*l->l_cprev = l->l_cnext;
	if (l->l_cnext)
		l->l_cnext->l_cprev = l->l_cprev;
	pthread_mutex_unlock(&sp->sp_lock);
}
