/* SPDX-License-Identifier: Apache-2.0 */
/* extents.h - a set of bytes of a file or an object, as extents. Not locked. */
#ifndef BASE_EXTENTS_H
#define BASE_EXTENTS_H
#include <stdbool.h>
#include <stdint.h>

#define EXTENTS_MAX 65536u
#define EXTENT_END  UINT64_MAX /* as an extent's end: everything from e_from on */

struct extent {
	uint64_t e_from, e_to; /* without e_to itself */
};
/* All zeros: the empty set. */
struct extents {
	struct extent *es_at; /* ascending; no two meet */
	unsigned es_n, es_cap;
};
/* Nothing where from is not below to. -ENOBUFS: no room; the set is as before. */
int extents_add(struct extents *es, uint64_t from, uint64_t to);
/* Removes all bytes below to. */
void extents_forget(struct extents *es, uint64_t to);
/* The first bytes at or after from, and below to, that are not in the set. False: none. */
bool extents_gap(const struct extents *es, uint64_t from, uint64_t to, struct extent *gap);
/* Leaves the empty set. */
void extents_free(struct extents *es);
#endif
