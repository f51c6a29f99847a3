/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_meta.h - LMDB's meta pages, as far as the redo log depends on them: a checkpoint copies the
 * first KV_META_KEPT bytes of both, recovery puts them back, and the log's stamp lies behind what
 * LMDB uses (kv_checkpoint.c). LMDB does not promise this layout. So configure tries it, and
 * kv_open() compares it with what the library says of each store (kv_layout.c).
 */
#ifndef KV_KV_META_H
#define KV_KV_META_H
#include <lmdb.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What this program knows: the library's major and minor version, and the version of its data. */
#define KV_META_MAJOR	0
#define KV_META_MINOR	9
#define KV_META_VERSION 1u
#define KV_META_MAGIC	0xbeefc0deu
#define KV_META_FLAG	0x08u /* of a page: it is a meta page */

#define KV_META_KEPT 512u
/* The stamp's place in meta page 0, behind the bytes that LMDB uses. The stamp lies within one
 * sector, so that a crash leaves either this stamp or the one before. */
#define KV_STAMP_AT  2048u
#define KV_STAMP_LEN 32u

/* In the machine's byte order. */
struct kv_meta_db {
	uint32_t md_pad; /* of the first one: the page size */
	uint16_t md_flags, md_depth;
	uint64_t md_branch, md_leaf, md_overflow, md_entries, md_root;
};
struct kv_meta_page {
	uint64_t mp_number;
	uint16_t mp_pad, mp_flags;
	uint32_t mp_pages;
	uint32_t mp_magic, mp_version;
	uint64_t mp_address, mp_map;
	struct kv_meta_db mp_db[2]; /* free pages; the pairs */
	uint64_t mp_last_page, mp_txnid;
};
_Static_assert(sizeof(size_t) == 8, "LMDB's pages have another layout where pointers have 4 bytes");
_Static_assert(offsetof(struct kv_meta_page, mp_magic) == 16, "format");
_Static_assert(offsetof(struct kv_meta_page, mp_db) == 40, "format");
_Static_assert(sizeof(struct kv_meta_page) == 152, "format");
_Static_assert(sizeof(struct kv_meta_page) <= KV_META_KEPT && KV_META_KEPT <= KV_STAMP_AT,
	       "format");

/* Does the log know this major and minor version of the library? */
static inline bool kv_meta_knows(int major, int minor)
{
	return major == KV_META_MAJOR && minor == KV_META_MINOR;
}

/* Returns what is wrong with meta page number (0 or 1) of a file with pages of psize bytes, or
 * NULL. */
static inline const char *kv_meta_page_wrong(const struct kv_meta_page *p, unsigned number,
					     unsigned psize)
{
	if (p->mp_magic != KV_META_MAGIC)
		return "the magic is not LMDB's";
	if (p->mp_version != KV_META_VERSION)
		return "the data version is not 1";
	if (p->mp_number != number || !(p->mp_flags & KV_META_FLAG))
		return "the page header is not that of a meta page";
	return p->mp_db[0].md_pad == psize ? NULL : "the page size is not where it should be";
}

/* Is all zero that the log does not keep? */
static inline bool kv_meta_rest_unused(const uint8_t *page, unsigned number, unsigned psize)
{
	for (unsigned i = KV_META_KEPT; i < psize; i++)
		if (page[i] && (number || i < KV_STAMP_AT || i >= KV_STAMP_AT + KV_STAMP_LEN))
			return false;
	return true;
}

/* Compares both meta pages, as the file has them, with what the library says. pages: 2 * ms_psize
 * bytes, aligned to 8. Returns what is wrong, or NULL. */
static inline const char *kv_meta_wrong(const void *pages, const MDB_envinfo *info,
					const MDB_stat *st)
{
	const struct kv_meta_page *p[2] = {pages,
					   (const void *)((const uint8_t *)pages + st->ms_psize)},
				  *newest;
	const struct kv_meta_db *db;

	if (st->ms_psize < KV_STAMP_AT + KV_STAMP_LEN)
		return "pages are too small for the log's stamp";
	for (unsigned i = 0; i < 2; i++) {
		const char *wrong = kv_meta_page_wrong(p[i], i, st->ms_psize);

		if (wrong)
			return wrong;
		if (!kv_meta_rest_unused((const void *)p[i], i, st->ms_psize))
			return "LMDB uses bytes that the log does not keep";
	}
	newest = p[p[0]->mp_txnid < p[1]->mp_txnid];
	db = &newest->mp_db[1];
	if (newest->mp_txnid != info->me_last_txnid)
		return "the transaction's number is not where it should be";
	if (newest->mp_last_page != info->me_last_pgno)
		return "the last page's number is not where it should be";
	if (db->md_depth != st->ms_depth || db->md_branch != st->ms_branch_pages ||
	    db->md_leaf != st->ms_leaf_pages || db->md_overflow != st->ms_overflow_pages ||
	    db->md_entries != st->ms_entries)
		return "the counts of the tree are not where they should be";
	return NULL;
}
#endif
