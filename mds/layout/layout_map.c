/* SPDX-License-Identifier: Apache-2.0 */
/* layout_map.c - the layout map as the inode stores it. Integers are little-endian. */
#include "mds/layout/lo_int.h"
#include <errno.h>

/*
 * Versions:
 * - Version 1 has zeros in mor_copy and mor_next: an object's copy number is its mirror's number.
 * - Version 2 uses mor_copy and mor_next.
 * - Version 3 adds a tail, for files whose policy has a domain or groups, or whose objects are
 *   being moved.
 * - Version 4 is version 3 with copies that are late.
 * - Version 5 is version 4, with or without such copies, of a file with a pinned copy.
 */
#define MAP_VERSION 5

#define KNOWN_LEAVING 2 /* from version 3 on */
#define KNOWN_LATE    4 /* from version 4 on */
/* From version 5 on, mta_flags divided by TAIL_PIN is lm_pin. */
enum { TAIL_PENDING_MIRROR = 1, TAIL_MOVE = 2, TAIL_PIN = 4 };
_Static_assert(LO_MAX_OBJECTS *TAIL_PIN <= UINT8_MAX, "lm_pin fits in mta_flags");

struct map_obj_rec {
	uint32_t mor_ds;
	uint8_t mor_state, mor_known, mor_copy;
	uint8_t mor_next; /* the file's next copy number, in its first object; else 0 */
	uint64_t mor_writes;
} __attribute__((packed));
/* mpr_unit holds log2 of the unit, and the flag MAP_CLEAN. A map written before that flag existed
 * has been given out to clients. */
enum { MAP_CLEAN = 0x80 };
struct map_rec {
	uint8_t mpr_version, mpr_stripes, mpr_mirrors, mpr_unit;
	uint32_t mpr_epoch;
	struct map_obj_rec mpr_obj[];
} __attribute__((packed));
_Static_assert(sizeof(struct map_rec) == 8 && sizeof(struct map_obj_rec) == 16,
	       "map record, version 2");
/* The tail of version 3, after the objects. The domain follows; in version 5 the length of the
 * pinned copy's labels (1 byte) and these; then the groups up to the end. */
struct map_tail {
	uint8_t mta_flags, mta_domain;
	uint32_t mta_from;
} __attribute__((packed));
_Static_assert(sizeof(struct map_tail) == 6, "map record, version 3");
_Static_assert(sizeof(struct map_rec) + LO_MAX_OBJECTS * sizeof(struct map_obj_rec) +
			       sizeof(struct map_tail) + LABELS_KEY_MAX + LO_PIN_GROUP_LEN +
			       LO_GROUPS_LEN - 1 <=
		       NS_BLOB_MAX,
	       "a map fits an inode");

static bool is_late(const struct lo_object *o)
{
	return o->ob_late && o->ob_state == LO_IN_SYNC;
}

static bool has_late(const struct lo_map *m)
{
	for (unsigned i = 0; i < lo_objects(m); i++)
		if (is_late(&m->lm_obj[i]))
			return true;
	return false;
}

static bool has_tail(const struct lo_map *m)
{
	for (unsigned i = 0; i < lo_objects(m); i++)
		if (m->lm_obj[i].ob_leaving)
			return true;
	return m->lm_pending_mirror || m->lm_move || m->lm_from || *m->lm_domain || *m->lm_groups ||
	       m->lm_pin || has_late(m);
}

static size_t tail_length(const struct lo_map *m)
{
	return sizeof(struct map_tail) + strlen(m->lm_domain) + strlen(m->lm_groups) +
	       (m->lm_pin ? 1 + strlen(m->lm_pin_group) : 0);
}

static size_t tail_encode(const struct lo_map *m, uint8_t *out)
{
	size_t domain = strlen(m->lm_domain), groups = strlen(m->lm_groups),
	       pin = strlen(m->lm_pin_group);
	struct map_tail *t = (struct map_tail *)out;

	t->mta_flags = (uint8_t)((m->lm_pending_mirror ? TAIL_PENDING_MIRROR : 0) |
				 (m->lm_move ? TAIL_MOVE : 0) | m->lm_pin * TAIL_PIN);
	t->mta_domain = (uint8_t)domain;
	t->mta_from = htole32(m->lm_from);
	out += sizeof(*t);
	memcpy(out, m->lm_domain, domain);
	out += domain;
	if (m->lm_pin) {
		*out++ = (uint8_t)pin;
		memcpy(out, m->lm_pin_group, pin);
		out += pin;
	}
	memcpy(out, m->lm_groups, groups);
	return tail_length(m);
}

size_t lo_map_encode(const struct lo_map *m, uint8_t *out, size_t max)
{
	unsigned n = (unsigned)m->lm_stripes * m->lm_mirrors;
	size_t len = sizeof(struct map_rec) + n * sizeof(struct map_obj_rec);
	struct map_rec *r = (struct map_rec *)out;
	bool tail = has_tail(m);

	if (!n || n > LO_MAX_OBJECTS || max < len + (tail ? tail_length(m) : 0))
		return 0;
	memset(out, 0, len);
	r->mpr_version = m->lm_pin ? 5 : has_late(m) ? 4 : tail ? 3 : 2;
	r->mpr_stripes = m->lm_stripes;
	r->mpr_mirrors = m->lm_mirrors;
	r->mpr_unit = (uint8_t)(__builtin_ctz(m->lm_unit) | (m->lm_clean ? MAP_CLEAN : 0));
	r->mpr_epoch = htole32(m->lm_epoch);
	r->mpr_obj[0].mor_next = m->lm_next;
	for (unsigned i = 0; i < n; i++) {
		r->mpr_obj[i].mor_ds = htole32(m->lm_obj[i].ob_ds);
		r->mpr_obj[i].mor_state = m->lm_obj[i].ob_state;
		r->mpr_obj[i].mor_known = m->lm_obj[i].ob_known |
					  (m->lm_obj[i].ob_leaving ? KNOWN_LEAVING : 0) |
					  (is_late(&m->lm_obj[i]) ? KNOWN_LATE : 0);
		r->mpr_obj[i].mor_copy = m->lm_obj[i].ob_copy;
		r->mpr_obj[i].mor_writes = htole64(m->lm_obj[i].ob_writes);
	}
	return tail ? len + tail_encode(m, out + len) : len;
}

static bool obj_ok(const struct map_rec *r, unsigned i)
{
	const struct map_obj_rec *o = &r->mpr_obj[i];
	unsigned known = 1 | (r->mpr_version >= 3 ? KNOWN_LEAVING : 0) |
			 (r->mpr_version >= 4 && o->mor_state == LO_IN_SYNC ? KNOWN_LATE : 0);

	if (r->mpr_version == 1 && (o->mor_copy || o->mor_next))
		return false;
	/* The tail says whether an object may be absent. */
	if (r->mpr_version >= 3 && o->mor_state == LO_ABSENT)
		return i && !o->mor_ds && !o->mor_known && !o->mor_copy && !o->mor_next &&
		       !o->mor_writes;
	return o->mor_state <= LO_REBUILDING && !(o->mor_known & ~known) && (!i || !o->mor_next) &&
	       o->mor_ds && le32toh(o->mor_ds) <= DS_REG_MAX;
}

/* Checks the pending mirror. It has at least one object, at most one per stripe, and each takes the
 * place of an object of that stripe that is leaving. No object elsewhere is absent. */
static bool spare_ok(const struct lo_map *m)
{
	unsigned first = lo_objects(m) - m->lm_stripes, there = 0;

	if (m->lm_pending_mirror && m->lm_mirrors < 2)
		return false;
	for (unsigned i = 0; i < lo_objects(m); i++) {
		const struct lo_object *o = &m->lm_obj[i];
		unsigned leaving = 0;

		if (o->ob_state == LO_ABSENT && (!m->lm_pending_mirror || i < first))
			return false;
		if (!m->lm_pending_mirror || i < first)
			continue;
		for (unsigned k = i % m->lm_stripes; k < first; k += m->lm_stripes)
			leaving += m->lm_obj[k].ob_leaving;
		if (o->ob_leaving || leaving != (o->ob_state != LO_ABSENT))
			return false;
		there += leaving;
	}
	return !m->lm_pending_mirror || there;
}

/* The pinned copy's labels; *at moves behind them. */
static bool layout_map_pin_decode(const uint8_t *p, size_t n, size_t *at, struct lo_map *m)
{
	size_t len = *at < n ? p[*at] : 0;

	if (!m->lm_pin || m->lm_pin > m->lm_mirrors - m->lm_pending_mirror || !len ||
	    len >= LO_PIN_GROUP_LEN || n - *at - 1 < len ||
	    !lo_group_ok((const char *)p + *at + 1, len))
		return false;
	memcpy(m->lm_pin_group, p + *at + 1, len);
	*at += 1 + len;
	return true;
}

/* Does not check the domain and group texts; their user does (lo_map_policy). */
static bool tail_decode(const uint8_t *p, size_t n, bool pins, struct lo_map *m)
{
	const struct map_tail *t = (const struct map_tail *)p;
	size_t at = sizeof(*t);

	if (n < sizeof(*t) || (!pins && t->mta_flags >= TAIL_PIN) ||
	    le32toh(t->mta_from) > DS_REG_MAX || t->mta_domain > LABELS_KEY_MAX ||
	    n - sizeof(*t) < t->mta_domain)
		return false;
	m->lm_pending_mirror = t->mta_flags & TAIL_PENDING_MIRROR;
	m->lm_move = t->mta_flags & TAIL_MOVE;
	m->lm_from = le32toh(t->mta_from);
	m->lm_pin = t->mta_flags / TAIL_PIN;
	memcpy(m->lm_domain, p + at, t->mta_domain);
	at += t->mta_domain;
	if (pins && !layout_map_pin_decode(p, n, &at, m))
		return false;
	if (n - at >= LO_GROUPS_LEN || memchr(p + at, 0, n - at) ||
	    memchr(m->lm_domain, 0, t->mta_domain))
		return false;
	memcpy(m->lm_groups, p + at, n - at);
	return has_tail(m);
}

int lo_map_decode(struct kv_slice s, struct lo_map *m)
{
	const struct map_rec *r = s.s_data;
	unsigned n, unit;

	memset(m, 0, sizeof(*m));
	if (s.s_len < sizeof(*r) || !r->mpr_version || r->mpr_version > MAP_VERSION)
		return -EIO;
	unit = r->mpr_unit & ~MAP_CLEAN;
	if (unit < 20 || unit > 31 || (r->mpr_version == 1 && r->mpr_unit != unit))
		return -EIO;
	n = (unsigned)r->mpr_stripes * r->mpr_mirrors;
	if (!lo_shape_ok(r->mpr_stripes, r->mpr_mirrors) ||
	    s.s_len < sizeof(*r) + n * sizeof(r->mpr_obj[0]) ||
	    (r->mpr_version < 3 && s.s_len != sizeof(*r) + n * sizeof(r->mpr_obj[0])))
		return -EIO;
	m->lm_unit = 1u << unit;
	m->lm_clean = r->mpr_unit & MAP_CLEAN;
	m->lm_stripes = r->mpr_stripes;
	m->lm_mirrors = r->mpr_mirrors;
	m->lm_epoch = le32toh(r->mpr_epoch);
	for (unsigned i = 0; i < n; i++) {
		const struct map_obj_rec *o = &r->mpr_obj[i];

		if (!obj_ok(r, i))
			return -EIO;
		m->lm_obj[i].ob_ds = le32toh(o->mor_ds);
		m->lm_obj[i].ob_state = o->mor_state;
		m->lm_obj[i].ob_known = o->mor_known & 1;
		m->lm_obj[i].ob_leaving = o->mor_known & KNOWN_LEAVING;
		m->lm_obj[i].ob_late = o->mor_known & KNOWN_LATE;
		m->lm_obj[i].ob_writes = le64toh(o->mor_writes);
		m->lm_obj[i].ob_copy =
			r->mpr_version == 1 ? (uint8_t)(i / m->lm_stripes) : o->mor_copy;
	}
	m->lm_next = r->mpr_version == 1 ? m->lm_mirrors : r->mpr_obj[0].mor_next;
	if (r->mpr_version < 3)
		return 0;
	if (r->mpr_version < 5 && has_late(m) != (r->mpr_version == 4))
		return -EIO;
	return tail_decode((const uint8_t *)&r->mpr_obj[n],
			   s.s_len - sizeof(*r) - n * sizeof(r->mpr_obj[0]), r->mpr_version == 5,
			   m) &&
			       spare_ok(m)
		       ? 0
		       : -EIO;
}

unsigned lo_map_copies(struct kv_slice s)
{
	const struct map_rec *r = s.s_data;
	const struct map_tail *t;
	size_t at;

	if (s.s_len < sizeof(*r) || !r->mpr_mirrors)
		return 1;
	at = sizeof(*r) + (size_t)r->mpr_stripes * r->mpr_mirrors * sizeof(r->mpr_obj[0]);
	if (r->mpr_version < 3 || r->mpr_mirrors == 1 || s.s_len < at + sizeof(*t))
		return r->mpr_mirrors;
	t = (const struct map_tail *)((const uint8_t *)s.s_data + at);
	return r->mpr_mirrors - !!(t->mta_flags & TAIL_PENDING_MIRROR);
}

/* Returns the objects of a stripe in this state. */
static uint64_t in_state(const struct lo_map *m, unsigned stripe, enum lo_state state)
{
	uint64_t bits = 0;

	for (unsigned i = stripe; i < lo_objects(m); i += m->lm_stripes)
		bits |= (uint64_t)(m->lm_obj[i].ob_state == state) << i;
	return bits;
}

static void set_stale(struct lo_map *m, uint64_t which)
{
	for (unsigned i = 0; i < lo_objects(m); i++)
		if (which >> i & 1)
			m->lm_obj[i].ob_state = LO_STALE;
}

uint64_t lo_map_make_stale(struct lo_map *m, uint64_t hit, uint64_t *last)
{
	uint64_t done = 0, kept = 0;

	for (unsigned s = 0; s < m->lm_stripes; s++) {
		uint64_t sync = in_state(m, s, LO_IN_SYNC),
			 rebuilding = in_state(m, s, LO_REBUILDING);

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
	struct ds_reg_server sv;
	uint64_t bits = 0;

	for (unsigned i = 0; i < lo_objects(m); i++)
		bits |= (uint64_t)(ds_reg_get(lo->l_dsc, m->lm_obj[i].ob_ds, &sv) && sv.sv_alive)
			<< i;
	return bits;
}

uint64_t lo_map_dead(struct lo *lo, const struct lo_map *m)
{
	uint64_t bits = lo_writers(m);

	for (unsigned i = 0; i < lo_objects(m); i++)
		if ((bits >> i & 1) && !ds_reg_dead(lo->l_dsc, m->lm_obj[i].ob_ds))
			bits &= ~(UINT64_C(1) << i);
	return bits;
}

bool lo_map_unavailable(struct lo *lo, const struct lo_map *m)
{
	uint64_t dead = lo_map_dead(lo, m);

	for (unsigned s = 0; dead && s < m->lm_stripes; s++)
		if (!(in_state(m, s, LO_IN_SYNC) & ~dead))
			return true;
	return false;
}

enum lo_condition lo_map_condition(struct lo *lo, const struct lo_map *m)
{
	unsigned n = lo_objects(m) - (m->lm_pending_mirror ? m->lm_stripes : 0);
	enum lo_condition c = LO_FINE;

	for (unsigned s = 0; s < m->lm_stripes; s++) {
		bool any = false;

		for (unsigned k = s; k < lo_objects(m); k += m->lm_stripes) {
			bool good = m->lm_obj[k].ob_state == LO_IN_SYNC &&
				    !ds_reg_dead(lo->l_dsc, m->lm_obj[k].ob_ds);

			any |= good;
			if (!good && k < n && m->lm_obj[k].ob_state != LO_ABSENT)
				c = LO_DEGRADED;
		}
		if (!any)
			return LO_LOST;
	}
	return c;
}

uint64_t lo_map_on(const struct lo_map *m, uint32_t ds)
{
	uint64_t bits = 0;

	for (unsigned i = 0; i < lo_objects(m); i++)
		bits |= (uint64_t)(m->lm_obj[i].ob_ds == ds) << i;
	return bits;
}

uint64_t lo_map_stripes(const struct lo_map *m, uint64_t objects)
{
	uint64_t stripes = 0;

	for (unsigned i = 0; i < lo_objects(m); i++)
		stripes |= (objects >> i & 1) << i % m->lm_stripes;
	return stripes;
}

uint64_t lo_map_servers(const struct lo_map *m)
{
	uint64_t bits = lo_writers(m), servers = 0;

	for (unsigned i = 0; i < lo_objects(m); i++)
		if (bits >> i & 1)
			servers |= lo_server_bit(m->lm_obj[i].ob_ds);
	return servers;
}

uint64_t lo_map_last_heartbeat(struct lo *lo, const struct lo_map *m, uint64_t doubted)
{
	uint64_t bits = 0;

	for (unsigned s = 0; s < m->lm_stripes; s++) {
		uint64_t last = 0, best = 0;

		for (unsigned i = 0; i < lo_objects(m); i++) {
			uint64_t heard =
				in_state(m, s, LO_IN_SYNC) >> i & 1
					? ds_reg_last_heartbeat_ms(lo->l_dsc, m->lm_obj[i].ob_ds)
					: 0;

			if (heard && !(doubted >> i & 1))
				heard |= UINT64_C(1) << 63;
			if (heard > last) {
				last = heard;
				best = UINT64_C(1) << i;
			}
		}
		bits |= best;
	}
	return bits;
}

uint64_t lo_map_first(struct lo *lo, const struct lo_map *m, uint64_t doubted)
{
	uint64_t alive = lo_map_alive(lo, m) & ~doubted, bits = 0;

	for (unsigned s = 0; s < m->lm_stripes; s++) {
		int k;

		for (unsigned r = 0; (k = lo_copy(m, s, r)) >= 0 && !(alive >> k & 1); r++)
			;
		bits |= k < 0 ? 0 : UINT64_C(1) << k;
	}
	return bits;
}

/* True when the server is away, and may come back before its lease is over. */
static bool may_come_back(struct lo *lo, uint32_t ds)
{
	struct ds_reg_server sv;

	return ds_reg_get(lo->l_dsc, ds, &sv) && !sv.sv_alive && sv.sv_state < DS_REG_DEAD &&
	       ds_reg_leased(lo->l_dsc, ds);
}

uint64_t lo_first_lost(struct lo *lo, const struct lo_map *m, uint64_t failed)
{
	uint64_t alive = lo_map_alive(lo, m), bits = 0;

	for (unsigned s = 0; s < m->lm_stripes; s++) {
		uint64_t before = 0;
		int k;

		for (unsigned r = 0;
		     (k = lo_copy(m, s, r)) >= 0 && !(alive & ~failed & UINT64_C(1) << k) &&
		     !may_come_back(lo, m->lm_obj[k].ob_ds);
		     r++)
			before |= UINT64_C(1) << k;
		if (k >= 0 && (alive >> k & 1))
			bits |= before;
	}
	return bits;
}

void lo_map_join(struct lo_map *m, unsigned obj, bool late)
{
	/* others: another copy is in sync; all: all of these are late */
	bool others = false, all = true;

	for (unsigned i = obj % m->lm_stripes; i < lo_objects(m); i += m->lm_stripes) {
		if (i == obj || m->lm_obj[i].ob_state != LO_IN_SYNC)
			continue;
		others = true;
		all &= m->lm_obj[i].ob_late;
	}
	/* Late copies keep their order, that of the mirrors. */
	for (unsigned i = obj % m->lm_stripes; i < lo_objects(m) && (all || !late);
	     i += m->lm_stripes)
		m->lm_obj[i].ob_late = false;
	m->lm_obj[obj].ob_state = LO_IN_SYNC;
	m->lm_obj[obj].ob_late = late && others;
}

uint64_t lo_map_suspect(struct lo_map *m, uint64_t stripes, uint64_t prefer)
{
	uint64_t done = 0;

	for (unsigned s = 0; s < m->lm_stripes; s++) {
		uint64_t sync = in_state(m, s, LO_IN_SYNC),
			 best = sync & prefer ? sync & prefer : sync;

		if (stripes >> s & 1)
			done |= (sync & ~(best & -best)) | in_state(m, s, LO_REBUILDING);
	}
	set_stale(m, done);
	return done;
}

bool lo_map_whole(const struct lo_map *m)
{
	if (m->lm_pending_mirror || m->lm_move || m->lm_from)
		return false;
	for (unsigned i = 0; i < lo_objects(m); i++)
		if (m->lm_obj[i].ob_state != LO_IN_SYNC || m->lm_obj[i].ob_leaving)
			return false;
	return true;
}

uint8_t lo_map_new_copy(struct lo_map *m, unsigned stripe)
{
	for (;;) {
		uint8_t copy = m->lm_next++;
		bool taken = false;

		for (unsigned i = stripe; i < lo_objects(m); i += m->lm_stripes)
			taken |= m->lm_obj[i].ob_copy == copy;
		if (!taken)
			return copy;
	}
}

int lo_copy(const struct lo_map *m, unsigned stripe, unsigned r)
{
	for (unsigned late = 0; late < 2; late++)
		for (unsigned i = stripe; i < lo_objects(m); i += m->lm_stripes)
			if (m->lm_obj[i].ob_state == LO_IN_SYNC && m->lm_obj[i].ob_late == late &&
			    r-- == 0)
				return (int)i;
	return -1;
}

int lo_source(const struct lo_map *m, unsigned stripe, unsigned r, bool same)
{
	return same && r ? -1 : lo_copy(m, stripe, r);
}

int lo_writer(const struct lo_map *m, unsigned stripe, unsigned r)
{
	static const uint8_t order[] = {LO_IN_SYNC, LO_REBUILDING};

	for (unsigned k = 0; k < 2; k++)
		for (unsigned i = stripe; i < lo_objects(m); i += m->lm_stripes)
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
	for (unsigned i = stripe; stripe < m->lm_stripes && i < lo_objects(m); i += m->lm_stripes)
		if (m->lm_obj[i].ob_ds == ds && m->lm_obj[i].ob_copy == copy)
			return (int)i;
	return -1;
}

uint64_t lo_map_same(const struct lo_map *was, uint64_t objects, const struct lo_map *is)
{
	uint64_t bits = 0;

	for (; objects; objects &= objects - 1) {
		unsigned k = (unsigned)__builtin_ctzll(objects);
		int at = lo_object_of(is, was->lm_obj[k].ob_ds, k % was->lm_stripes,
				      was->lm_obj[k].ob_copy);

		bits |= at < 0 ? 0 : UINT64_C(1) << at;
	}
	return bits;
}
