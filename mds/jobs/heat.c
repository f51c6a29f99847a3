/* SPDX-License-Identifier: Apache-2.0 */
/*
 * heat.c - see heat.h.
 *
 * A table has sets of four cells. A key belongs to one set, where a new key replaces the coolest
 * one. Only the owner thread writes cells, by plain stores to atomics. A reader on another thread
 * reads the key before and after the counts. Some of the counts that it sees may be older than
 * others: statistics can bear that.
 */
#include "base/clock.h"
#include "mds/jobs/heat.h"
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#define WAYS  4u
#define TICK  100000000u /* ns: counts decay in steps of this length */
#define LASTS 4096u	 /* sums of layouts that one thread remembers */

enum {
	F_OPS,
	F_READ,
	F_WRITTEN,
	F_US,
	F_TIMED,
	F_BUCKET,
	F_HEAT = F_BUCKET + HEAT_BUCKETS,
	FIELDS
};

struct cell {
	_Atomic uint64_t ce_key; /* 0: none */
	_Atomic uint32_t ce_tick;
	_Atomic float ce_v[FIELDS];
};

/* What a client last reported for one layout and data server. */
struct heat_last {
	uint64_t hla_key, hla_ms; /* hla_ms: when, of the loop's clock */
	struct heat_report hla_read, hla_write;
};

static const unsigned sets[HEAT_KINDS] = {
	[HEAT_CLIENT] = 256, [HEAT_SERVER] = 256, [HEAT_DIR] = 512,
	[HEAT_FILE] = 1024,  [HEAT_EXPORT] = 32,  [HEAT_TAG] = 32};
/* Places are numbers from 0 up. So they are spread evenly, and none takes another's cell. */
_Static_assert(EXP_SLOTS <= 32 * WAYS && MDS_TAG_SLOTS <= 32 * WAYS, "a cell for each place");

struct heat {
	struct cell *he_cell[HEAT_KINDS];
	/* of clients only: heat_sum.hs_n by the place of the cell, and of cells that others took */
	_Atomic uint64_t (*he_sum)[3], he_gone[3];
	struct heat_last *he_last;
};

static float get(const struct cell *ce, unsigned f)
{
	return atomic_load_explicit(&ce->ce_v[f], memory_order_relaxed);
}

static void set(struct cell *ce, unsigned f, float v)
{
	atomic_store_explicit(&ce->ce_v[f], v, memory_order_relaxed);
}

static float fade(uint32_t ticks, unsigned half_life_s)
{
	return exp2f(-(float)ticks * (TICK / 1e9f) / (float)half_life_s);
}

static uint32_t tick_of(uint64_t ns)
{
	return (uint32_t)(ns / TICK);
}

static void decay(struct cell *ce, uint32_t tick)
{
	uint32_t past = tick - atomic_load_explicit(&ce->ce_tick, memory_order_relaxed);
	float fast, slow;

	if (!past)
		return;
	fast = fade(past, HEAT_FAST_S);
	slow = fade(past, HEAT_SLOW_S);
	for (unsigned f = 0; f < FIELDS; f++)
		set(ce, f, get(ce, f) * (f == F_HEAT ? slow : fast));
	atomic_store_explicit(&ce->ce_tick, tick, memory_order_relaxed);
}

/* The thread that counts makes it at its first count; it lives as long as the process. */
static struct heat *heat_of(struct mds_thread *th)
{
	struct heat *h = atomic_load_explicit(&th->mt_heat, memory_order_relaxed);
	bool whole = true;

	if (h)
		return h;
	h = calloc(1, sizeof(*h));
	if (!h)
		return NULL;
	for (unsigned k = 0; k < HEAT_KINDS; k++)
		whole &= (h->he_cell[k] = calloc(sets[k] * WAYS, sizeof(struct cell))) != NULL;
	h->he_sum = calloc((size_t)sets[HEAT_CLIENT] * WAYS, sizeof(*h->he_sum));
	h->he_last = calloc(LASTS, sizeof(*h->he_last));
	if (!whole || !h->he_last || !h->he_sum) {
		for (unsigned k = 0; k < HEAT_KINDS; k++)
			free(h->he_cell[k]);
		free(h->he_sum);
		free(h->he_last);
		free(h);
		return NULL;
	}
	atomic_store_explicit(&th->mt_heat, h, memory_order_release);
	return h;
}

static void sum_add(_Atomic uint64_t *sum, uint64_t n)
{
	atomic_store_explicit(sum, atomic_load_explicit(sum, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

static _Atomic uint64_t *sums_of(const struct heat *h, const struct cell *ce)
{
	return h->he_sum[ce - h->he_cell[HEAT_CLIENT]];
}

static void heat_sums_add(const struct mds_thread *th, enum heat_kind kind, const struct cell *ce,
			  uint64_t ops, uint64_t read, uint64_t written)
{
	_Atomic uint64_t *sum;

	if (kind != HEAT_CLIENT)
		return;
	sum = sums_of(atomic_load_explicit(&th->mt_heat, memory_order_relaxed), ce);
	sum_add(&sum[0], ops);
	sum_add(&sum[1], read);
	sum_add(&sum[2], written);
}

static void cell_take(struct heat *h, enum heat_kind kind, struct cell *ce, uint64_t key,
		      uint32_t tick)
{
	_Atomic uint64_t *sum = kind == HEAT_CLIENT ? sums_of(h, ce) : NULL;

	atomic_store_explicit(&ce->ce_key, 0, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	for (unsigned f = 0; f < FIELDS; f++)
		set(ce, f, 0);
	for (unsigned i = 0; sum && i < 3; i++) {
		sum_add(&h->he_gone[i], atomic_load_explicit(&sum[i], memory_order_relaxed));
		atomic_store_explicit(&sum[i], 0, memory_order_relaxed);
	}
	atomic_store_explicit(&ce->ce_tick, tick, memory_order_relaxed);
	atomic_store_explicit(&ce->ce_key, key, memory_order_release);
}

/* The key's cell, decayed to now; NULL: no memory. */
static struct cell *cell_of(struct mds_thread *th, enum heat_kind kind, uint64_t key)
{
	uint32_t tick = tick_of(loop_now_ns(th->mt_loop));
	struct heat *h = heat_of(th);
	struct cell *ce, *coolest = NULL;
	float least = 0;

	if (!h || !key)
		return NULL;
	ce = h->he_cell[kind] +
	     ((kind < HEAT_EXPORT ? hash_u64(key) : key) & (sets[kind] - 1)) * WAYS;
	for (unsigned w = 0; w < WAYS; w++, ce++) {
		if (atomic_load_explicit(&ce->ce_key, memory_order_relaxed) != key)
			continue;
		decay(ce, tick);
		return ce;
	}
	ce -= WAYS;
	for (unsigned w = 0; w < WAYS; w++, ce++) {
		float heat = get(ce, F_HEAT) *
			     fade(tick - atomic_load_explicit(&ce->ce_tick, memory_order_relaxed),
				  HEAT_SLOW_S);

		if (coolest && heat >= least)
			continue;
		coolest = ce;
		least = heat;
	}
	cell_take(h, kind, coolest, key, tick);
	return coolest;
}

/* What is left of a count now, if it came evenly over a time that ends now. */
static float left_of(uint64_t over_ms, unsigned half_life_s)
{
	float x = (float)over_ms / 1e3f * (float)M_LN2 / (float)half_life_s;

	return x > 1e-3f ? (1 - expf(-x)) / x : 1;
}

static void heat_add(struct cell *ce, unsigned f, float v)
{
	set(ce, f, get(ce, f) + v);
}

static void add_time(struct cell *ce, uint64_t us)
{
	unsigned b = us <= 1 ? 0 : 64 - (unsigned)__builtin_clzll(us - 1);

	heat_add(ce, F_US, (float)us);
	heat_add(ce, F_TIMED, 1);
	heat_add(ce, F_BUCKET + (b < HEAT_BUCKETS ? b : HEAT_BUCKETS - 1), 1);
}

/* ---- what is counted ---- */

static void add_ops(struct cell *ce, unsigned ops)
{
	heat_add(ce, F_OPS, (float)ops);
	heat_add(ce, F_HEAT, (float)ops);
}

void heat_work(struct mds_thread *th, enum heat_kind kind, uint64_t key, unsigned ops)
{
	struct cell *ce = cell_of(th, kind, key);

	if (ce)
		add_ops(ce, ops);
}

void heat_took(struct mds_thread *th, enum heat_kind kind, uint64_t key, unsigned ops, uint64_t us)
{
	struct cell *ce = cell_of(th, kind, key);

	if (!ce)
		return;
	add_ops(ce, ops);
	add_time(ce, us);
	heat_sums_add(th, kind, ce, ops, 0, 0);
}

void heat_bytes(struct mds_thread *th, enum heat_kind kind, uint64_t key, uint64_t read,
		uint64_t written, uint64_t over_ms)
{
	struct cell *ce = cell_of(th, kind, key);
	float left = left_of(over_ms, HEAT_FAST_S);

	if (!ce)
		return;
	heat_sums_add(th, kind, ce, 0, read, written);
	heat_add(ce, F_READ, (float)read * left);
	heat_add(ce, F_WRITTEN, (float)written * left);
	heat_add(ce, F_HEAT, (float)(read + written) / HEAT_UNIT * left_of(over_ms, HEAT_SLOW_S));
}

void heat_reported(struct mds_thread *th, uint32_t ds, const struct heat_report *read,
		   const struct heat_report *write, uint64_t over_ms)
{
	float left = left_of(over_ms, HEAT_FAST_S);
	struct cell *ce;

	heat_bytes(th, HEAT_SERVER, ds, read->ht_bytes, write->ht_bytes, over_ms);
	ce = cell_of(th, HEAT_SERVER, ds);
	if (!ce)
		return;
	heat_add(ce, F_OPS, (float)(read->ht_ops + write->ht_ops) * left);
	heat_add(ce, F_US, (float)(read->ht_us + write->ht_us) * left);
	heat_add(ce, F_TIMED, (float)(read->ht_ops + write->ht_ops) * left);
}

static uint64_t at_most(uint64_t v, uint64_t most)
{
	return v < most ? v : most;
}

/* What is new since the client's last report, within limits, as only the client vouches for it.
 * Sums that have fallen are those of another layout. */
static struct heat_report since(struct heat_report *last, const struct heat_report *now)
{
	bool restarted = now->ht_bytes < last->ht_bytes || now->ht_ops < last->ht_ops;
	struct heat_report d = {now->ht_ops - (restarted ? 0 : last->ht_ops),
				now->ht_bytes - (restarted ? 0 : last->ht_bytes),
				restarted || now->ht_us < last->ht_us ? now->ht_us
								      : now->ht_us - last->ht_us};

	*last = *now;
	return (struct heat_report){at_most(d.ht_ops, 1ull << 40), at_most(d.ht_bytes, 1ull << 50),
				    d.ht_ops ? at_most(d.ht_us, 1ull << 50) : 0};
}

bool heat_news(struct mds_thread *th, uint64_t clientid, uint64_t ino, uint32_t ds,
	       struct heat_report *read, struct heat_report *write, uint64_t *over_ms, bool last)
{
	uint64_t key = hash_u64(clientid) ^ hash_u64(ino) * 3 ^ hash_u64(ds) * 5,
		 now = loop_now_ns(th->mt_loop) / 1000000;
	struct heat *h = heat_of(th);
	struct heat_last *la = h ? &h->he_last[key & (LASTS - 1)] : NULL;

	if (!la)
		return false;
	if (la->hla_key && la->hla_key != key) {
		*la = (struct heat_last){key, now, *read, *write};
		*read = *write = (struct heat_report){0};
	} else {
		if (la->hla_key && (!*over_ms || *over_ms > now - la->hla_ms))
			*over_ms = now - la->hla_ms;
		la->hla_key = key;
		la->hla_ms = now;
		*read = since(&la->hla_read, read);
		*write = since(&la->hla_write, write);
	}
	/* The next layout's sums begin at 0, and in an empty place all of them count as new. */
	if (last)
		*la = (struct heat_last){0};
	return true;
}

/* ---- reading ---- */

static int by_key(const void *a, const void *b)
{
	const struct heat_row *x = a, *y = b;

	return x->hr_key < y->hr_key ? -1 : x->hr_key > y->hr_key;
}

static float work(const struct heat_row *r)
{
	return r->hr_ops + (r->hr_read + r->hr_written) / HEAT_UNIT;
}

static int by_work(const void *a, const void *b)
{
	float x = work(a), y = work(b);

	return x > y ? -1 : x < y;
}

static int by_heat(const void *a, const void *b)
{
	const struct heat_row *x = a, *y = b;

	return x->hr_heat > y->hr_heat ? -1 : x->hr_heat < y->hr_heat;
}

/* A cell's counts as rates, decayed to now. False: the cell is empty, or was taken by another key
 * in between. */
static bool heat_row_of(const struct cell *ce, uint32_t tick, struct heat_row *r)
{
	uint64_t key = atomic_load_explicit(&ce->ce_key, memory_order_acquire);
	uint32_t past = tick - atomic_load_explicit(&ce->ce_tick, memory_order_relaxed);
	float fast, rate;

	if (!key)
		return false;
	/* the owner's clock may be ahead by one turn of its loop */
	past = past > UINT32_MAX / 2 ? 0 : past;
	fast = fade(past, HEAT_FAST_S);
	rate = fast * (float)M_LN2 / HEAT_FAST_S;
	*r = (struct heat_row){key,
			       get(ce, F_OPS) * rate,
			       get(ce, F_READ) * rate,
			       get(ce, F_WRITTEN) * rate,
			       get(ce, F_US) * fast,
			       {0},
			       get(ce, F_HEAT) * fade(past, HEAT_SLOW_S)};
	for (unsigned b = 0; b < HEAT_BUCKETS; b++)
		r->hr_bucket[b] = get(ce, F_BUCKET + b) * fast;
	/* A count that has faded to almost nothing is no divisor. */
	r->hr_us = get(ce, F_TIMED) > 0 ? fminf(get(ce, F_US) / get(ce, F_TIMED), 1e12f) : 0;
	atomic_thread_fence(memory_order_acquire);
	return atomic_load_explicit(&ce->ce_key, memory_order_relaxed) == key;
}

/* Adds b to a; both have the same key. Means are weighted by operations. */
static void heat_join(struct heat_row *a, const struct heat_row *b)
{
	float n = a->hr_ops + b->hr_ops;

	a->hr_us = !a->hr_us || !b->hr_us || n <= 0
			   ? a->hr_us + b->hr_us
			   : (a->hr_us * a->hr_ops + b->hr_us * b->hr_ops) / n;
	a->hr_ops = n;
	a->hr_read += b->hr_read;
	a->hr_written += b->hr_written;
	a->hr_heat += b->hr_heat;
	for (unsigned k = 0; k < HEAT_BUCKETS; k++)
		a->hr_bucket[k] += b->hr_bucket[k];
}

size_t heat_merge(struct heat_row *rows, size_t n, bool heat)
{
	size_t left = 0;

	if (!n)
		return 0;
	qsort(rows, n, sizeof(*rows), by_key);
	for (size_t i = 0; i < n; i++) {
		if (left && rows[left - 1].hr_key == rows[i].hr_key)
			heat_join(&rows[left - 1], &rows[i]);
		else
			rows[left++] = rows[i];
	}
	qsort(rows, left, sizeof(*rows), heat ? by_heat : by_work);
	return left;
}

struct heat_row *heat_rows(struct mds *m, enum heat_kind kind, bool heat, size_t *n)
{
	size_t cells = sets[kind] * WAYS, have = 0;
	struct heat_row *rows = malloc(m->m_nthreads * cells * sizeof(*rows));
	uint32_t tick = tick_of(clock_mono_ns());

	*n = 0;
	for (unsigned t = 0; rows && t < m->m_nthreads; t++) {
		const struct heat *h =
			atomic_load_explicit(&m->m_thread[t].mt_heat, memory_order_acquire);

		for (size_t i = 0; h && i < cells; i++)
			have += heat_row_of(&h->he_cell[kind][i], tick, &rows[have]);
	}
	if (!have) {
		free(rows);
		return NULL;
	}
	*n = heat_merge(rows, have, heat);
	return rows;
}

static int sums_by_key(const void *a, const void *b)
{
	const struct heat_sum *x = a, *y = b;

	return x->hs_key < y->hs_key ? -1 : x->hs_key > y->hs_key;
}

/* One cell's sums. False: it is empty, or was taken by another key in between. */
static bool heat_sum_of(const struct heat *h, const struct cell *ce, uint32_t tick,
			struct heat_sum *s)
{
	struct heat_row r;

	if (!heat_row_of(ce, tick, &r))
		return false;
	*s = (struct heat_sum){.hs_key = r.hr_key, .hs_heat = r.hr_heat};
	for (unsigned i = 0; i < 3; i++)
		s->hs_n[i] = atomic_load_explicit(&sums_of(h, ce)[i], memory_order_relaxed);
	atomic_thread_fence(memory_order_acquire);
	return atomic_load_explicit(&ce->ce_key, memory_order_relaxed) == s->hs_key;
}

struct heat_sum *heat_sums(struct mds *m, size_t *n, uint64_t all[3])
{
	size_t cells = sets[HEAT_CLIENT] * WAYS, have = 0;
	struct heat_sum *sums = malloc(m->m_nthreads * cells * sizeof(*sums));
	uint32_t tick = tick_of(clock_mono_ns());

	*n = 0;
	memset(all, 0, 3 * sizeof(*all));
	for (unsigned t = 0; sums && t < m->m_nthreads; t++) {
		const struct heat *h =
			atomic_load_explicit(&m->m_thread[t].mt_heat, memory_order_acquire);

		for (unsigned i = 0; h && i < 3; i++)
			all[i] += atomic_load_explicit(&h->he_gone[i], memory_order_relaxed);
		for (size_t i = 0; h && i < cells; i++)
			have += heat_sum_of(h, &h->he_cell[HEAT_CLIENT][i], tick, &sums[have]);
	}
	if (!have) {
		free(sums);
		return NULL;
	}
	qsort(sums, have, sizeof(*sums), sums_by_key);
	for (size_t k = 0; k < have; k++) {
		struct heat_sum *to =
			*n && sums[*n - 1].hs_key == sums[k].hs_key ? &sums[*n - 1] : NULL;

		for (unsigned i = 0; i < 3; i++) {
			all[i] += sums[k].hs_n[i];
			if (to)
				to->hs_n[i] += sums[k].hs_n[i];
		}
		if (to)
			to->hs_heat += sums[k].hs_heat;
		else
			sums[(*n)++] = sums[k];
	}
	return sums;
}

double heat_percentile(const struct heat_row *r, double part)
{
	double all = 0, sum = 0;

	for (unsigned b = 0; b < HEAT_BUCKETS; b++)
		all += r->hr_bucket[b];
	for (unsigned b = 0; b < HEAT_BUCKETS && all > 0; b++) {
		sum += r->hr_bucket[b];
		if (sum >= part * all)
			return (double)(1u << b);
	}
	return 0;
}
