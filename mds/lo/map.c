/* map.c - a file's placement map as it is stored in the inode. Integers are little-endian. */
#include "mds/lo/lo_int.h"
#include <errno.h>

#define MAP_VERSION 1

struct map_obj_rec {
	uint32_t m_ds;
	uint8_t m_state, m_known;
	uint8_t m_zero[2];
	uint64_t m_writes;
} __attribute__((packed));
struct map_rec {
	uint8_t m_version, m_stripes, m_mirrors, m_unit_log2;
	uint32_t m_epoch;
	struct map_obj_rec m_obj[];
} __attribute__((packed));
_Static_assert(sizeof(struct map_rec) == 8 && sizeof(struct map_obj_rec) == 16,
	       "map record, version 1");
_Static_assert(sizeof(struct map_rec) + LO_MAX_OBJECTS * sizeof(struct map_obj_rec) <= NS_BLOB_MAX,
	       "a map fits an inode");

size_t lo_map_encode(const struct lo_map *m, uint8_t *out, size_t max)
{
	unsigned n = (unsigned)m->lm_stripes * m->lm_mirrors;
	size_t len = sizeof(struct map_rec) + n * sizeof(struct map_obj_rec);
	struct map_rec *r = (struct map_rec *)out;

	if (!n || n > LO_MAX_OBJECTS || max < len)
		return 0;
	memset(out, 0, len);
	r->m_version = MAP_VERSION;
	r->m_stripes = m->lm_stripes;
	r->m_mirrors = m->lm_mirrors;
	r->m_unit_log2 = (uint8_t)__builtin_ctz(m->lm_unit);
	r->m_epoch = htole32(m->lm_epoch);
	for (unsigned i = 0; i < n; i++) {
		r->m_obj[i].m_ds = htole32(m->lm_obj[i].ob_ds);
		r->m_obj[i].m_state = m->lm_obj[i].ob_state;
		r->m_obj[i].m_known = m->lm_obj[i].ob_known;
		r->m_obj[i].m_writes = htole64(m->lm_obj[i].ob_writes);
	}
	return len;
}

int lo_map_decode(struct kv_slice s, struct lo_map *m)
{
	const struct map_rec *r = s.s_data;
	unsigned n;

	memset(m, 0, sizeof(*m));
	if (s.s_len < sizeof(*r) || r->m_version != MAP_VERSION || r->m_unit_log2 < 20 ||
	    r->m_unit_log2 > 31)
		return -EIO;
	n = (unsigned)r->m_stripes * r->m_mirrors;
	if (!lo_shape_ok(r->m_stripes, r->m_mirrors) ||
	    s.s_len != sizeof(*r) + n * sizeof(r->m_obj[0]))
		return -EIO;
	m->lm_unit = 1u << r->m_unit_log2;
	m->lm_stripes = r->m_stripes;
	m->lm_mirrors = r->m_mirrors;
	m->lm_epoch = le32toh(r->m_epoch);
	for (unsigned i = 0; i < n; i++) {
		const struct map_obj_rec *o = &r->m_obj[i];

		if (o->m_state > LO_REBUILDING || o->m_known > 1 || o->m_zero[0] || o->m_zero[1] ||
		    !o->m_ds || le32toh(o->m_ds) > DSC_MAX)
			return -EIO;
		m->lm_obj[i].ob_ds = le32toh(o->m_ds);
		m->lm_obj[i].ob_state = o->m_state;
		m->lm_obj[i].ob_known = o->m_known;
		m->lm_obj[i].ob_writes = le64toh(o->m_writes);
	}
	return 0;
}

uint64_t lo_map_make_stale(struct lo_map *m, uint64_t hit, uint64_t *last)
{
	uint64_t done = 0, kept = 0;

	for (unsigned s = 0; s < m->lm_stripes; s++) {
		uint64_t sync = 0;

		for (unsigned i = s; i < (unsigned)m->lm_stripes * m->lm_mirrors; i += m->lm_stripes)
			sync |= (uint64_t)(m->lm_obj[i].ob_state == LO_IN_SYNC) << i;
		if (sync & ~hit)
			done |= sync & hit;
		else
			kept |= sync & hit;
	}
	for (unsigned i = 0; i < (unsigned)m->lm_stripes * m->lm_mirrors; i++)
		if (done >> i & 1)
			m->lm_obj[i].ob_state = LO_STALE;
	if (last)
		*last = kept;
	return done;
}

int lo_copy(const struct lo_map *m, unsigned stripe, unsigned r)
{
	for (unsigned i = stripe; i < (unsigned)m->lm_stripes * m->lm_mirrors; i += m->lm_stripes)
		if (m->lm_obj[i].ob_state == LO_IN_SYNC && r-- == 0)
			return (int)i;
	return -1;
}
