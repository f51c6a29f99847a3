/*
 * histo.h - counts of values by size: linear within each power of two, 32 steps of it, so that what is read of it is at most 1/32 too large. Any 64-bit
 * value fits. Zero it before use; it has no owner and no lock.
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

/* Values below 2 * HISTO_STEPS have a bucket each. */
static inline unsigned histo_bucket(uint64_t v)
{
	unsigned shift;

	if (v < 2 * HISTO_STEPS)
		return (unsigned)v;
	shift = 63 - (unsigned)__builtin_clzll(v) - HISTO_STEP_BITS;
	return shift * HISTO_STEPS + (unsigned)(v >> shift);
}

/* The largest value that has this bucket. */
static inline uint64_t histo_upper(unsigned bucket)
{
	unsigned shift;

	if (bucket < 2 * HISTO_STEPS)
		return bucket;
	shift = bucket / HISTO_STEPS - 1;
	return (((uint64_t)(bucket % HISTO_STEPS) + HISTO_STEPS) << shift) + ((1ull << shift) - 1);
}

static inline void histo_add(struct histo *h, uint64_t v)
{
	if (!h->h_count || v < h->h_min)
		h->h_min = v;
	if (v > h->h_max)
		h->h_max = v;
	h->h_count++;
	h->h_sum += v;
	h->h_bucket[histo_bucket(v)]++;
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

/* The value that so many of a thousand are not above; 0 where nothing was counted. */
static inline uint64_t histo_per_mille(const struct histo *h, unsigned per_mille)
{
	uint64_t rank = h->h_count / 1000 * per_mille + (h->h_count % 1000 * per_mille + 999) / 1000, seen = 0;

	rank = rank ? rank : 1;
	for (unsigned i = 0; i < HISTO_BUCKETS && h->h_count; i++) {
		seen += h->h_bucket[i];
		if (seen >= rank)
			return histo_upper(i) < h->h_max ? histo_upper(i) : h->h_max;
	}
	return 0;
}
#endif
