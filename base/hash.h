/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hash.h - a chained hash table with the link inside the element. It grows by doubling and never
 * shrinks. Not thread-safe: the owner's lock or thread protects it.
 */
#ifndef BASE_HASH_H
#define BASE_HASH_H
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct hash_link {
	struct hash_link *hl_next;
	uint64_t hl_hash;
};
struct hash {
	struct hash_link **h_slot;
	uint32_t h_size, h_count; /* h_size: a power of two */
};
#define hash_entry(link, type, member) ((type *)((char *)(link)-offsetof(type, member)))

static inline uint64_t hash_u64(uint64_t x)
{
	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdULL;
	x ^= x >> 33;
	x *= 0xc4ceb9fe1a85ec53ULL;
	return x ^ x >> 33;
}
/* FNV-1a; no protection against an adversary */
static inline uint64_t hash_bytes(const void *data, size_t n)
{
	const uint8_t *p = data;
	uint64_t h = 0xcbf29ce484222325ULL;

	while (n--)
		h = (h ^ *p++) * 0x100000001b3ULL;
	return hash_u64(h);
}
static inline uint64_t hash_word(uint64_t h, uint64_t w)
{
	w ^= h;
	return (w << 29 | w >> 35) * 0x9e3779b97f4a7c15ULL;
}
/* For much data: four lanes of words, each in a register. No protection against an adversary. */
static inline uint64_t hash_long(const void *data, size_t n)
{
	const uint8_t *p = data;
	uint64_t a = 1, b = 2, c = 3, d = 4, w[4];

	for (; n >= sizeof(w); n -= sizeof(w), p += sizeof(w)) {
		memcpy(w, p, sizeof(w));
		a = hash_word(a, w[0]);
		b = hash_word(b, w[1]);
		c = hash_word(c, w[2]);
		d = hash_word(d, w[3]);
	}
	return hash_u64(a ^ hash_u64(b ^ hash_u64(c ^ hash_u64(d ^ hash_bytes(p, n)))));
}
/* The first candidate with this hash; the caller compares and goes on with hash_next. */
static inline struct hash_link *hash_first(const struct hash *h, uint64_t hash)
{
	struct hash_link *l = h->h_size ? h->h_slot[hash & (h->h_size - 1)] : NULL;

	while (l && l->hl_hash != hash)
		l = l->hl_next;
	return l;
}
static inline struct hash_link *hash_next(struct hash_link *l)
{
	uint64_t hash = l->hl_hash;

	do
		l = l->hl_next;
	while (l && l->hl_hash != hash);
	return l;
}
/* Returns 0, or -1: no memory, and the element is not in the table. */
static inline int hash_add(struct hash *h, struct hash_link *l, uint64_t hash)
{
	if (h->h_count >= h->h_size && h->h_size < 1u << 31) {
		uint32_t n = h->h_size ? h->h_size * 2 : 8;
		struct hash_link **s = calloc(n, sizeof(*s));

		if (!s && !h->h_size)
			return -1;
		if (s) {
			for (size_t i = 0; i < h->h_size; i++) {
				for (struct hash_link *e = h->h_slot[i], *next; e; e = next) {
					next = e->hl_next;
					e->hl_next = s[e->hl_hash & (n - 1)];
					s[e->hl_hash & (n - 1)] = e;
				}
			}
			free(h->h_slot);
			h->h_slot = s;
			h->h_size = n;
		}
	}
	l->hl_hash = hash;
	l->hl_next = h->h_slot[hash & (h->h_size - 1)];
	h->h_slot[hash & (h->h_size - 1)] = l;
	h->h_count++;
	return 0;
}
static inline void hash_del(struct hash *h, struct hash_link *l)
{
	struct hash_link **p = &h->h_slot[l->hl_hash & (h->h_size - 1)];

	while (*p != l)
		p = &(*p)->hl_next;
	*p = l->hl_next;
	h->h_count--;
}
#define hash_each(h, i, l, next)                                                                   \
	for (size_t i = 0; i < (h)->h_size; i++)                                                   \
		for (struct hash_link *l = (h)->h_slot[i], *next; l && (next = l->hl_next, 1);     \
		     l = next)
#endif
