/* SPDX-License-Identifier: Apache-2.0 */
/*
 * histo.h - counts of values by size, log-linear: each power of two has 2^bits equal steps, so that
 * a value read from it is at most 1/2^bits too large. struct histo has 32 steps and takes any
 * 64-bit value. Zero it before use; it has no lock. The metrics (metrics.c) use cells of their own,
 * with fewer steps.
 */
#ifndef BASE_HISTO_H
#define BASE_HISTO_H
#include <stdint.h>

#define HISTO_STEP_BITS 5
#define HISTO_STEPS	(1u << HISTO_STEP_BITS)
#define HISTO_BUCKETS	((64 - HISTO_STEP_BITS) * HISTO_STEPS + HISTO_STEPS)

struct histo {
	uint64_t h_count, h_sum, h_min, h_max;
	uint64_t h_bucket[HISTO_BUCKETS];
};

/* Values below twice the number of steps have a bucket each. */
static inline unsigned histo_bucket(uint64_t v, unsigned bits)
{
	unsigned shift;

	if (v < UINT64_C(2) << bits)
		return (unsigned)v;
	shift = 63 - (unsigned)__builtin_clzll(v) - bits;
	return (shift << bits) + (unsigned)(v >> shift);
}

/* The largest value of this bucket. */
static inline uint64_t histo_upper(unsigned bucket, unsigned bits)
{
	unsigned steps = 1u << bits, shift;

	if (bucket < 2 * steps)
		return bucket;
	shift = bucket / steps - 1;
	return (((uint64_t)(bucket % steps) + steps) << shift) + ((UINT64_C(1) << shift) - 1);
}

static inline void histo_add(struct histo *h, uint64_t v)
{
	if (!h->h_count || v < h->h_min)
		h->h_min = v;
	if (v > h->h_max)
		h->h_max = v;
	h->h_count++;
	h->h_sum += v;
	h->h_bucket[histo_bucket(v, HISTO_STEP_BITS)]++;
}

static inline void histo_merge(struct histo *to, const struct histo *from)
{
	if (!from->h_count)
		return;
	if (!to->h_count || from->h_min < to->h_min)
		to->h_min = from->h_min;
	if (from->h_max > to->h_max)
		to->h_max = from->h_max;
	to->h_count += from->h_count;
	to->h_sum += from->h_sum;
	for (unsigned i = 0; i < HISTO_BUCKETS; i++)
		to->h_bucket[i] += from->h_bucket[i];
}

/* The value at this per mille rank; 0 where nothing was counted. */
static inline uint64_t histo_per_mille(const struct histo *h, unsigned per_mille)
{
	uint64_t rank = h->h_count / 1000 * per_mille +
			(h->h_count % 1000 * per_mille + 999) / 1000,
		 seen = 0;

	rank = rank ? rank : 1;
	for (unsigned i = 0; i < HISTO_BUCKETS && h->h_count; i++) {
		seen += h->h_bucket[i];
		if (seen >= rank)
			return histo_upper(i, HISTO_STEP_BITS) < h->h_max
				       ? histo_upper(i, HISTO_STEP_BITS)
				       : h->h_max;
	}
	return 0;
}
#endif
