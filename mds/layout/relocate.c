/* SPDX-License-Identifier: Apache-2.0 */
/* relocate.c - relocates one object to a chosen server; see relocate.h. */
#include "mds/layout/relocate.h"
#include "mds/layout/mirror_change.h"
#include "mds/layout/lo_int.h"
#include <errno.h>

#define SHIFTED_VERSION 1
#define FORGET_MAX	256u

struct shifted_rec {
	uint8_t s_version, s_zero[7];
	uint64_t s_when;
} __attribute__((packed));
_Static_assert(sizeof(struct shifted_rec) == 16, "record of a file that was moved, version 1");

bool lo_relocate_fits(struct lo *lo, const struct lo_map *m)
{
	return lo_map_whole(m) && lo_shape_ok(m->lm_stripes, m->lm_mirrors + 1u) &&
	       !lo_misplaced(lo, m);
}

bool lo_relocate_may(struct lo *lo, const struct lo_map *m, unsigned obj, uint32_t to)
{
	return obj < lo_objects(m) && lo_place_may(lo, m, obj % m->lm_stripes, obj / m->lm_stripes,
						   UINT64_C(1) << obj, to);
}

int lo_relocate(struct lo *lo, struct lo_map *m, unsigned obj, uint32_t to)
{
	unsigned first = lo_objects(m), stripe;

	if (!lo_relocate_fits(lo, m) || !lo_relocate_may(lo, m, obj, to))
		return -EAGAIN;
	stripe = obj % m->lm_stripes;
	m->lm_mirrors++;
	m->lm_pending_mirror = true;
	for (unsigned s = 0; s < m->lm_stripes; s++)
		m->lm_obj[first + s] = (struct lo_object){.ob_state = LO_ABSENT};
	m->lm_obj[obj].ob_leaving = true;
	m->lm_obj[first + stripe] = (struct lo_object){
		.ob_ds = to, .ob_state = LO_STALE, .ob_copy = lo_map_new_copy(m, stripe)};
	return 0;
}

/* ---- files that were moved lately ---- */

int lo_relocated_decode(struct kv_slice id, struct kv_slice val, uint64_t *ino, uint64_t *when_s)
{
	struct shifted_rec r;

	if (id.s_len != 8 || val.s_len != sizeof(r))
		return -EIO;
	memcpy(ino, id.s_data, 8);
	*ino = be64toh(*ino);
	memcpy(&r, val.s_data, sizeof(r));
	if (!*ino || r.s_version != SHIFTED_VERSION)
		return -EIO;
	*when_s = le64toh(r.s_when);
	return 0;
}

int lo_relocated_put(struct kv_txn *t, uint64_t ino, uint64_t now_s)
{
	struct shifted_rec r = {.s_version = SHIFTED_VERSION, .s_when = htole64(now_s)};
	uint64_t key = htobe64(ino);

	return ns_row_put(t, NS_T_RELOCATED, &key, 8, &r, sizeof(r));
}

uint64_t lo_relocated(struct kv_txn *t, uint64_t ino)
{
	uint64_t key = htobe64(ino), when;
	struct kv_slice val;

	return ns_row_get(t, NS_T_RELOCATED, &key, 8, &val) ||
			       lo_relocated_decode((struct kv_slice){&key, 8}, val, &ino, &when)
		       ? 0
		       : when;
}

struct old {
	uint64_t o_before, o_ino[FORGET_MAX];
	unsigned o_n, o_max;
};

static int old_row(void *arg, struct kv_slice id, struct kv_slice val)
{
	struct old *o = arg;
	uint64_t ino, when;

	if (lo_relocated_decode(id, val, &ino, &when) == 0 && when < o->o_before)
		o->o_ino[o->o_n++] = ino;
	return o->o_n == o->o_max;
}

int lo_relocated_forget(struct kv_txn *t, uint64_t before_s, unsigned max)
{
	struct old o = {.o_before = before_s, .o_max = max < FORGET_MAX ? max : FORGET_MAX};
	int err = ns_rows(t, NS_T_RELOCATED, NULL, 0, old_row, &o);

	for (unsigned i = 0; i < o.o_n && err >= 0; i++) {
		uint64_t key = htobe64(o.o_ino[i]);

		err = ns_row_del(t, NS_T_RELOCATED, &key, 8);
	}
	return err < 0 ? err : (int)o.o_n;
}
