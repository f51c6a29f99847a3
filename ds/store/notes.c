/* SPDX-License-Identifier: Apache-2.0 */
/* notes.c - the ranges of an object that were changed during its rebuild: a sorted array with
 * binary search. */
#include "ds/store/rebuild.h"
#include <errno.h>
#include <string.h>

/* The first range whose end is at or after off. */
static unsigned first_to(const struct ds_notes *ns, uint64_t off)
{
	unsigned lo = 0, hi = ns->ns_n;

	while (lo < hi) {
		unsigned mid = lo + (hi - lo) / 2;

		if (ns->ns_note[mid].n_to < off)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static int notes_grow(struct ds_notes *ns)
{
	unsigned cap = ns->ns_cap ? 2 * ns->ns_cap : 64;
	struct ds_note *more;

	if (ns->ns_n < ns->ns_cap)
		return 0;
	if (ns->ns_n >= DS_NOTES_MAX)
		return -ENOBUFS;
	more = realloc(ns->ns_note, cap * sizeof(*more));
	if (!more)
		return -ENOBUFS;
	ns->ns_note = more;
	ns->ns_cap = cap;
	return 0;
}

int ds_note_add(struct ds_notes *ns, uint64_t from, uint64_t to)
{
	unsigned i = first_to(ns, from), k = i;
	struct ds_note *n;

	if (from >= to)
		return 0;
	/* Ranges that touch the new one merge with it. */
	while (k < ns->ns_n && ns->ns_note[k].n_from <= to)
		k++;
	if (k == i && notes_grow(ns))
		return -ENOBUFS;
	n = ns->ns_note ? ns->ns_note + i : NULL;
	if (k == i) {
		memmove(n + 1, n, (ns->ns_n - i) * sizeof(*n));
		*n = (struct ds_note){from, to};
		ns->ns_n++;
		return 0;
	}
	n->n_from = n->n_from < from ? n->n_from : from;
	n->n_to = ns->ns_note[k - 1].n_to > to ? ns->ns_note[k - 1].n_to : to;
	memmove(n + 1, ns->ns_note + k, (ns->ns_n - k) * sizeof(*n));
	ns->ns_n -= k - i - 1;
	return 0;
}

void ds_note_forget(struct ds_notes *ns, uint64_t to)
{
	unsigned i = first_to(ns, to);

	/* A range that ends at `to` is below it. */
	if (i < ns->ns_n && ns->ns_note[i].n_to == to)
		i++;
	if (i)
		memmove(ns->ns_note, ns->ns_note + i, (ns->ns_n - i) * sizeof(*ns->ns_note));
	ns->ns_n -= i;
	if (ns->ns_n && ns->ns_note[0].n_from < to)
		ns->ns_note[0].n_from = to;
}

bool ds_note_gap(const struct ds_notes *ns, uint64_t from, uint64_t to, struct ds_note *gap)
{
	unsigned i = first_to(ns, from);

	for (; i < ns->ns_n && ns->ns_note[i].n_from <= from; i++)
		from = ns->ns_note[i].n_to > from ? ns->ns_note[i].n_to : from;
	if (from >= to)
		return false;
	gap->n_from = from;
	gap->n_to = i < ns->ns_n && ns->ns_note[i].n_from < to ? ns->ns_note[i].n_from : to;
	return true;
}

void ds_notes_free(struct ds_notes *ns)
{
	free(ns->ns_note);
	memset(ns, 0, sizeof(*ns));
}
