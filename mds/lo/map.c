/* map.c - a file's placement map as it is stored in the inode. Integers are little-endian. */
#include "mds/lo/lo_int.h"
#include <errno.h>

/* Version 1 has zeros for m_copy and m_next: an object's copy number is its mirror's. */
#define MAP_VERSION 2

struct map_obj_rec {
	uint32_t m_ds;
	uint8_t m_state, m_known, m_copy;
	uint8_t m_next; /* of the file, in its first object; else 0 */
	uint64_t m_writes;
} __attribute__((packed));
struct map_rec {
	uint8_t m_version, m_stripes, m_mirrors, m_unit_log2;
	uint32_t m_epoch;
	struct map_obj_rec m_obj[];
} __attribute__((packed));
_Static_assert(sizeof(struct map_rec) == 8 && sizeof(struct map_obj_rec) == 16,
	       "map record, version 2");
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
	r->m_obj[0].m_next = m->lm_next;
	for (unsigned i = 0; i < n; i++) {
		r->m_obj[i].m_ds = htole32(m->lm_obj[i].ob_ds);
		r->m_obj[i].m_state = m->lm_obj[i].ob_state;
		r->m_obj[i].m_known = m->lm_obj[i].ob_known;
		r->m_obj[i].m_copy = m->lm_obj[i].ob_copy;
		r->m_obj[i].m_writes = htole64(m->lm_obj[i].ob_writes);
	}
	return len;
}

static bool obj_ok(const struct map_rec *r, unsigned i)
{
	const struct map_obj_rec *o = &r->m_obj[i];

	if (r->m_version == 1 && (o->m_copy || o->m_next))
		return false;
	return o->m_state <= LO_REBUILDING && o->m_known <= 1 && (!i || !o->m_next) && o->m_ds && le32toh(o->m_ds) <= DSC_MAX;
}

int lo_map_decode(struct kv_slice s, struct lo_map *m)
{
	const struct map_rec *r = s.s_data;
	unsigned n;

	memset(m, 0, sizeof(*m));
	if (s.s_len < sizeof(*r) || !r->m_version || r->m_version > MAP_VERSION || r->m_unit_log2 < 20 ||
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

		if (!obj_ok(r, i))
			return -EIO;
		m->lm_obj[i].ob_ds = le32toh(o->m_ds);
		m->lm_obj[i].ob_state = o->m_state;
		m->lm_obj[i].ob_known = o->m_known;
		m->lm_obj[i].ob_writes = le64toh(o->m_writes);
		m->lm_obj[i].ob_copy = r->m_version == 1 ? (uint8_t)(i / m->lm_stripes) : o->m_copy;
	}
	m->lm_next = r->m_version == 1 ? m->lm_mirrors : r->m_obj[0].m_next;
	return 0;
}

static unsigned objects(const struct lo_map *m)
{
	return (unsigned)m->lm_stripes * m->lm_mirrors;
}

/* The objects of a stripe that are in that state. */
static uint64_t in_state(const struct lo_map *m, unsigned stripe, enum lo_state state)
{
	uint64_t bits = 0;

	for (unsigned i = stripe; i < objects(m); i += m->lm_stripes)
		bits |= (uint64_t)(m->lm_obj[i].ob_state == state) << i;
	return bits;
}

static void set_stale(struct lo_map *m, uint64_t which)
{
	for (unsigned i = 0; i < objects(m); i++)
		if (which >> i & 1)
			m->lm_obj[i].ob_state = LO_STALE;
}

uint64_t lo_map_make_stale(struct lo_map *m, uint64_t hit, uint64_t *last)
{
	uint64_t done = 0, kept = 0;

	for (unsigned s = 0; s < m->lm_stripes; s++) {
		uint64_t sync = in_state(m, s, LO_IN_SYNC), rebuilding = in_state(m, s, LO_REBUILDING);

		if (sync & ~hit) {
			done |= (sync | rebuilding) & hit;
		} else {
			done |= sync ? rebuilding : rebuilding & hit;
			kept |= sync & hit;
		}
	}
	set_stale(m, done);
	if (last)
		*last = kept;
	return done;
}

uint64_t lo_map_alive(struct lo *lo, const struct lo_map *m)
{
	struct dsc_server sv;
	uint64_t bits = 0;

	for (unsigned i = 0; i < objects(m); i++)
		bits |= (uint64_t)(dsc_get(lo->l_dsc, m->lm_obj[i].ob_ds, &sv) && sv.sv_alive) << i;
	return bits;
}

uint64_t lo_map_mistrust(struct lo_map *m, uint64_t stripes, uint64_t prefer)
{
	uint64_t done = 0;

	for (unsigned s = 0; s < m->lm_stripes; s++) {
		uint64_t sync = in_state(m, s, LO_IN_SYNC), best = sync & prefer ? sync & prefer : sync;

		if (stripes >> s & 1)
			done |= (sync & ~(best & -best)) | in_state(m, s, LO_REBUILDING);
	}
	set_stale(m, done);
	return done;
}

bool lo_map_whole(const struct lo_map *m)
{
	for (unsigned i = 0; i < objects(m); i++)
		if (m->lm_obj[i].ob_state != LO_IN_SYNC)
			return false;
	return true;
}

uint8_t lo_map_new_copy(struct lo_map *m, unsigned stripe)
{
	for (;;) {
		uint8_t copy = m->lm_next++;
		bool taken = false;

		for (unsigned i = stripe; i < objects(m); i += m->lm_stripes)
			taken |= m->lm_obj[i].ob_copy == copy;
		if (!taken)
			return copy;
	}
}

int lo_copy(const struct lo_map *m, unsigned stripe, unsigned r)
{
	for (unsigned i = stripe; i < objects(m); i += m->lm_stripes)
		if (m->lm_obj[i].ob_state == LO_IN_SYNC && r-- == 0)
			return (int)i;
	return -1;
}

int lo_writer(const struct lo_map *m, unsigned stripe, unsigned r)
{
	static const uint8_t order[] = {LO_IN_SYNC, LO_REBUILDING};

	for (unsigned k = 0; k < 2; k++)
		for (unsigned i = stripe; i < objects(m); i += m->lm_stripes)
			if (m->lm_obj[i].ob_state == order[k] && r-- == 0)
				return (int)i;
	return -1;
}

uint64_t lo_writers(const struct lo_map *m)
{
	uint64_t bits = 0;

	for (unsigned s = 0; s < m->lm_stripes; s++)
		bits |= in_state(m, s, LO_IN_SYNC) | in_state(m, s, LO_REBUILDING);
	return bits;
}

int lo_object_of(const struct lo_map *m, uint32_t ds, unsigned stripe, unsigned copy)
{
	for (unsigned i = stripe; stripe < m->lm_stripes && i < objects(m); i += m->lm_stripes)
		if (m->lm_obj[i].ob_ds == ds && m->lm_obj[i].ob_copy == copy)
			return (int)i;
	return -1;
}
