/* SPDX-License-Identifier: Apache-2.0 */
/* extents.c - a set of bytes, as extents: a sorted array with binary search. */
#include "base/extents.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The first range whose end is at or after off. */
static unsigned first_to(const struct extents *es, uint64_t off)
{
	unsigned lo = 0, hi = es->es_n;

	while (lo < hi) {
		unsigned mid = lo + (hi - lo) / 2;

		if (es->es_at[mid].e_to < off)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static int extents_grow(struct extents *es)
{
	unsigned cap = es->es_cap ? 2 * es->es_cap : 64;
	struct extent *more;

	if (es->es_n < es->es_cap)
		return 0;
	if (es->es_n >= EXTENTS_MAX)
		return -ENOBUFS;
	more = realloc(es->es_at, cap * sizeof(*more));
	if (!more)
		return -ENOBUFS;
	es->es_at = more;
	es->es_cap = cap;
	return 0;
}

int extents_add(struct extents *es, uint64_t from, uint64_t to)
{
	unsigned i = first_to(es, from), k = i;
	struct extent *n;

	if (from >= to)
		return 0;
	/* Ranges that touch the new one merge with it. */
	while (k < es->es_n && es->es_at[k].e_from <= to)
		k++;
	if (k == i && extents_grow(es))
		return -ENOBUFS;
	n = es->es_at ? es->es_at + i : NULL;
	if (k == i) {
		memmove(n + 1, n, (es->es_n - i) * sizeof(*n));
		*n = (struct extent){from, to};
		es->es_n++;
		return 0;
	}
	n->e_from = n->e_from < from ? n->e_from : from;
	n->e_to = es->es_at[k - 1].e_to > to ? es->es_at[k - 1].e_to : to;
	memmove(n + 1, es->es_at + k, (es->es_n - k) * sizeof(*n));
	es->es_n -= k - i - 1;
	return 0;
}

void extents_forget(struct extents *es, uint64_t to)
{
	unsigned i = first_to(es, to);

	/* A range that ends at `to` is below it. */
	if (i < es->es_n && es->es_at[i].e_to == to)
		i++;
	if (i)
		memmove(es->es_at, es->es_at + i, (es->es_n - i) * sizeof(*es->es_at));
	es->es_n -= i;
	if (es->es_n && es->es_at[0].e_from < to)
		es->es_at[0].e_from = to;
}

bool extents_gap(const struct extents *es, uint64_t from, uint64_t to, struct extent *gap)
{
	unsigned i = first_to(es, from);

	for (; i < es->es_n && es->es_at[i].e_from <= from; i++)
		from = es->es_at[i].e_to > from ? es->es_at[i].e_to : from;
	if (from >= to)
		return false;
	gap->e_from = from;
	gap->e_to = i < es->es_n && es->es_at[i].e_from < to ? es->es_at[i].e_from : to;
	return true;
}

void extents_free(struct extents *es)
{
	free(es->es_at);
	memset(es, 0, sizeof(*es));
}
