/* SPDX-License-Identifier: Apache-2.0 */
/* mirror_change.c - adds, removes and moves a file's mirrors and objects; see mirror_change.h. */
#include "mds/layout/mirror_change.h"
#include "mds/layout/lo_int.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

static __attribute__((format(printf, 4, 5))) int
mirror_change_refuse(int why, char *err, size_t errlen, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(err, errlen, fmt, ap);
	va_end(ap);
	return why;
}

static unsigned columns(const struct lo_map *m)
{
	return m->lm_mirrors - m->lm_pending_mirror;
}

bool lo_first_leaves(const struct lo_map *m)
{
	bool leaves = false;
	int k;

	for (unsigned s = 0; s < m->lm_stripes; s++)
		leaves |= (k = lo_copy(m, s, 0)) >= 0 && m->lm_obj[k].ob_leaving;
	return leaves;
}

int lo_leaving(const struct lo_map *m, unsigned stripe)
{
	for (unsigned i = stripe; i < lo_objects(m); i += m->lm_stripes)
		if (m->lm_obj[i].ob_leaving)
			return (int)i;
	return -1;
}

unsigned lo_mirror_of(const struct lo_map *m, unsigned obj)
{
	unsigned mirror = obj / m->lm_stripes;
	int goes = m->lm_pending_mirror && mirror == columns(m) ? lo_leaving(m, obj % m->lm_stripes)
								: -1;

	return goes < 0 ? mirror : (unsigned)goes / m->lm_stripes;
}

static bool anybody_leaves(const struct lo_map *m)
{
	for (unsigned s = 0; s < m->lm_stripes; s++)
		if (lo_leaving(m, s) >= 0)
			return true;
	return false;
}

static int at_rest(const struct lo_map *m, char *err, size_t errlen)
{
	if (m->lm_pending_mirror || m->lm_move || m->lm_from)
		return mirror_change_refuse(
			-EBUSY, err, errlen,
			"its objects are being moved; try again when that is done");
	if (anybody_leaves(m))
		return mirror_change_refuse(
			-EBUSY, err, errlen,
			"one of its mirrors is being removed; try again when that is done");
	return 0;
}

static int room_for_one(const struct lo_map *m, char *err, size_t errlen)
{
	if (lo_shape_ok(m->lm_stripes, m->lm_mirrors + 1u))
		return 0;
	return mirror_change_refuse(
		-EINVAL, err, errlen,
		"stripes=%u,mirrors=%u: with one more copy the layout would not fit in 4096 "
		"bytes (stripes x mirrors can be at most %d)",
		m->lm_stripes, m->lm_mirrors, LO_MAX_OBJECTS);
}

/* ---- adding and removing a mirror ---- */

static void terms_of(struct lo_map *m, const struct lo_policy *p)
{
	strcpy(m->lm_domain, p->lp_domain);
	strcpy(m->lm_groups, p->lp_groups);
}

/* Gives m, whose policy has room for one more, another mirror. */
static int widen(struct lo *lo, struct lo_map *m, const struct lo_fits *f, char *err, size_t errlen)
{
	unsigned first = lo_objects(m);

	m->lm_mirrors++;
	for (unsigned s = 0; s < m->lm_stripes; s++)
		m->lm_obj[first + s] = (struct lo_object){.ob_state = LO_ABSENT};
	for (unsigned s = 0; s < m->lm_stripes; s++) {
		uint32_t ds = lo_place_object_fits(lo, m, s, m->lm_mirrors - 1u, 0, 0, f);

		if (!ds)
			return mirror_change_refuse(
				-ENOSPC, err, errlen,
				"stripe %u: no live data server has free space, no copy of "
				"it yet%s%s",
				s, *m->lm_domain && !f ? ", another domain" : "",
				*m->lm_groups || f ? ", and the labels" : "");
		m->lm_obj[first + s] = (struct lo_object){
			.ob_ds = ds, .ob_state = LO_STALE, .ob_copy = lo_map_new_copy(m, s)};
	}
	return 0;
}

int lo_mirror_add(struct lo *lo, struct lo_map *m, const char *group, char *err, size_t errlen)
{
	struct lo_map wide = *m;
	struct lo_policy p;
	int e = at_rest(m, err, errlen);

	if (!e)
		e = room_for_one(m, err, errlen);
	if (!e && lo_map_policy(m, &p))
		e = mirror_change_refuse(-EINVAL, err, errlen,
					 "the policy stored with the file is damaged");
	if (!e)
		e = lo_policy_mirrors(&p, -1, group, err, errlen);
	if (e)
		return e;
	terms_of(&wide, &p);
	e = widen(lo, &wide, NULL, err, errlen);
	if (!e)
		*m = wide;
	return e;
}

int lo_mirror_pin(struct lo *lo, struct lo_map *m, const char *group, const struct lo_fits *f,
		  char *err, size_t errlen)
{
	struct lo_map wide = *m;
	int e = at_rest(m, err, errlen);

	if (!e && m->lm_pin)
		e = mirror_change_refuse(-EEXIST, err, errlen, "it has a pinned copy (%s)",
					 m->lm_pin_group);
	if (!e)
		e = room_for_one(m, err, errlen);
	if (e)
		return e;
	wide.lm_pin = (uint8_t)(m->lm_mirrors + 1u);
	snprintf(wide.lm_pin_group, sizeof(wide.lm_pin_group), "%s", group);
	e = widen(lo, &wide, f, err, errlen);
	if (!e)
		*m = wide;
	return e;
}

/* True when each stripe has a copy in sync that is not leaving. */
static bool others_suffice(const struct lo_map *m)
{
	for (unsigned s = 0; s < m->lm_stripes; s++) {
		bool stays = false;

		for (unsigned i = s; i < lo_objects(m); i += m->lm_stripes)
			stays |= m->lm_obj[i].ob_state == LO_IN_SYNC && !m->lm_obj[i].ob_leaving;
		if (!stays)
			return false;
	}
	return true;
}

static void set_leaving(struct lo_map *m, unsigned mirror, bool leaving)
{
	for (unsigned s = 0; s < m->lm_stripes; s++)
		m->lm_obj[mirror * m->lm_stripes + s].ob_leaving = leaving;
}

int lo_mirror_remove(struct lo_map *m, unsigned mirror, char *err, size_t errlen)
{
	int e = at_rest(m, err, errlen);

	if (e)
		return e;
	if (mirror >= m->lm_mirrors)
		return mirror_change_refuse(-EINVAL, err, errlen,
					    "mirror %u: the file has %u mirrors, counted from 0",
					    mirror, m->lm_mirrors);
	set_leaving(m, mirror, true);
	if (others_suffice(m))
		return 0;
	set_leaving(m, mirror, false);
	return mirror_change_refuse(-EBUSY, err, errlen,
				    "mirror %u: without it a stripe would have no copy in sync",
				    mirror);
}

bool lo_mirror_keep(struct lo_map *m)
{
	if (m->lm_pending_mirror || !anybody_leaves(m))
		return false;
	for (unsigned i = 0; i < lo_objects(m); i++)
		m->lm_obj[i].ob_leaving = false;
	return true;
}

/* ---- moving objects ---- */

int lo_move_ask(struct lo *lo, struct lo_map *m, const struct lo_policy *p, uint32_t from,
		char *err, size_t errlen)
{
	int e = 0;

	if (m->lm_pending_mirror || anybody_leaves(m))
		return mirror_change_refuse(
			-EBUSY, err, errlen,
			"its objects are being moved or removed; try again when that is done");
	if (p && m->lm_pin)
		return mirror_change_refuse(
			-EBUSY, err, errlen,
			"mirror %u is a pinned copy: weft unpin it, then move the file",
			m->lm_pin - 1u);
	if (p && (p->lp_stripes != m->lm_stripes || p->lp_unit != m->lm_unit))
		return mirror_change_refuse(
			-EINVAL, err, errlen,
			"it has stripes=%u,unit=%uM: a move to other servers keeps stripes "
			"and unit; change them with weft move --stripes and --unit",
			m->lm_stripes, m->lm_unit >> 20);
	if (p && p->lp_mirrors != m->lm_mirrors)
		return mirror_change_refuse(
			-EINVAL, err, errlen,
			"it has mirrors=%u: change their number with weft mirror add and "
			"weft mirror remove",
			m->lm_mirrors);
	if (p)
		e = lo_policy_check(lo, p, err, errlen);
	if (!e)
		e = room_for_one(m, err, errlen);
	if (e)
		return e;
	if (p) {
		terms_of(m, p);
		m->lm_move = true;
	}
	if (from)
		m->lm_from = from;
	return 0;
}

void lo_move_forget(struct lo_map *m)
{
	m->lm_move = false;
	m->lm_from = 0;
}

uint64_t lo_misplaced(struct lo *lo, const struct lo_map *m)
{
	uint64_t bits = 0;

	for (unsigned i = 0; i < columns(m) * m->lm_stripes; i++) {
		uint32_t ds = m->lm_obj[i].ob_ds;

		if (ds == m->lm_from || ds_reg_draining(lo->l_dsc, ds) ||
		    (m->lm_move && !lo_placed_well(lo, m, i)))
			bits |= UINT64_C(1) << i;
	}
	return bits;
}

int lo_move_begin(struct lo *lo, struct lo_map *m)
{
	uint64_t bits = lo_misplaced(lo, m), chosen = 0;
	unsigned first = lo_objects(m);
	struct lo_map wide = *m;
	int n = 0;

	if (m->lm_pending_mirror || anybody_leaves(m))
		return 0;
	if (!bits) {
		lo_move_forget(m);
		return 0;
	}
	if (!lo_shape_ok(m->lm_stripes, m->lm_mirrors + 1u))
		return -EFBIG;
	wide.lm_mirrors++;
	wide.lm_pending_mirror = true;
	for (unsigned s = 0; s < m->lm_stripes; s++)
		wide.lm_obj[first + s] = (struct lo_object){.ob_state = LO_ABSENT};
	for (unsigned i = 0; i < first; i++) {
		unsigned s = i % m->lm_stripes;
		uint32_t ds;

		if (!(bits >> i & 1) || (chosen >> s & 1))
			continue;
		ds = lo_place_object(lo, &wide, s, i / m->lm_stripes, UINT64_C(1) << i, m->lm_from);
		if (!ds)
			continue;
		chosen |= UINT64_C(1) << s;
		wide.lm_obj[i].ob_leaving = true;
		wide.lm_obj[first + s] = (struct lo_object){
			.ob_ds = ds, .ob_state = LO_STALE, .ob_copy = lo_map_new_copy(&wide, s)};
		n++;
	}
	if (!n)
		return -ENOSPC;
	*m = wide;
	return n;
}

/* ---- the switch ---- */

bool lo_switch_ready(const struct lo_map *m)
{
	unsigned first = columns(m) * m->lm_stripes;

	if (!m->lm_pending_mirror)
		return anybody_leaves(m) && others_suffice(m);
	for (unsigned i = first; i < lo_objects(m); i++)
		if (m->lm_obj[i].ob_state != LO_IN_SYNC && m->lm_obj[i].ob_state != LO_ABSENT)
			return false;
	return true;
}

bool lo_switch_lives(struct lo *lo, const struct lo_map *m)
{
	unsigned first = columns(m) * m->lm_stripes;

	for (unsigned s = 0; s < m->lm_stripes; s++) {
		bool stays = false;

		for (unsigned i = s; i < lo_objects(m); i += m->lm_stripes) {
			bool lives = !ds_reg_since_heartbeat_ms(lo->l_dsc, m->lm_obj[i].ob_ds);

			if (m->lm_obj[i].ob_state == LO_IN_SYNC && !m->lm_obj[i].ob_leaving)
				stays |= lives;
			if (i >= first && m->lm_obj[i].ob_state == LO_IN_SYNC && !lives)
				return false;
		}
		if (!stays && lo_leaving(m, s) >= 0)
			return false;
	}
	return true;
}

static int fill_places(struct lo *lo, struct kv_txn *t, const struct ns_inode *i, struct lo_map *m)
{
	unsigned first = columns(m) * m->lm_stripes;
	int err = 0;

	for (unsigned s = 0; s < m->lm_stripes && !err; s++) {
		int goes = lo_leaving(m, s);

		if (goes < 0)
			continue;
		err = lo_order_free_object(lo, t, i, m, (unsigned)goes);
		m->lm_obj[goes] = m->lm_obj[first + s];
	}
	m->lm_mirrors--;
	m->lm_pending_mirror = false;
	return err;
}

/* Takes a mirror out of the map. */
static void cut_mirror(struct lo_map *m, unsigned mirror)
{
	unsigned at = mirror * m->lm_stripes, n = m->lm_stripes;
	struct lo_policy p;
	char why[256];

	/* A damaged policy text names no mirror, and stays as it is. */
	if (lo_map_policy(m, &p) == 0 &&
	    lo_policy_mirrors(&p, (int)mirror, NULL, why, sizeof(why)) == 0)
		terms_of(m, &p);
	memmove(&m->lm_obj[at], &m->lm_obj[at + n],
		(lo_objects(m) - at - n) * sizeof(m->lm_obj[0]));
	m->lm_mirrors--;
	if (mirror + 1 == m->lm_pin) {
		m->lm_pin = 0;
		memset(m->lm_pin_group, 0, sizeof(m->lm_pin_group));
	}
	m->lm_pin -= mirror + 1 < m->lm_pin;
}

static int drop_mirror(struct lo *lo, struct kv_txn *t, const struct ns_inode *i, struct lo_map *m,
		       unsigned mirror)
{
	int err = 0;

	for (unsigned s = 0; s < m->lm_stripes && !err; s++)
		err = lo_order_free_object(lo, t, i, m, mirror * m->lm_stripes + s);
	cut_mirror(m, mirror);
	return err;
}

int lo_switch(struct lo *lo, struct kv_txn *t, const struct ns_inode *i, struct lo_map *m)
{
	int goes = lo_leaving(m, 0);

	if (m->lm_pending_mirror)
		return fill_places(lo, t, i, m);
	return goes < 0 ? -EIO : drop_mirror(lo, t, i, m, (unsigned)goes / m->lm_stripes);
}

void lo_map_settle(struct lo_map *m)
{
	for (unsigned i = 0; i < lo_objects(m); i++)
		m->lm_obj[i].ob_leaving = false;
	m->lm_mirrors -= m->lm_pending_mirror;
	m->lm_pending_mirror = m->lm_move = false;
	m->lm_from = 0;
	if (m->lm_pin)
		cut_mirror(m, m->lm_pin - 1u);
}
