/* SPDX-License-Identifier: Apache-2.0 */
/* pin_room.c - where there is room for pinned copies, and which warm copies go when there is none;
 * see pin_int.h. */
#include "mds/jobs/pin_int.h"
#include "base/clock.h"
#include "base/log.h"
#include "mds/layout/lo_int.h"
#include "mds/state/st.h"
#include <stdlib.h>

#define PRESS_MS 1000u
#define CALM_MS	 5000u /* after warm copies went: servers report their room late */

struct looking {
	const char *lk_group;
	unsigned lk_near_full, lk_servers;
	bool lk_over; /* a server is fuller than the limit */
	uint64_t *lk_room;
};

static void look_at(void *arg, const struct ds_reg_candidate *se)
{
	struct looking *lk = arg;
	uint64_t limit = se->can_capacity / 100 * lk->lk_near_full,
		 used = se->can_capacity > se->can_available ? se->can_capacity - se->can_available
							     : 0;

	if (!lo_group_has(lk->lk_group, se->can_labels))
		return;
	lk->lk_servers++;
	if (!se->can_alive || !se->can_weight || se->can_draining)
		return;
	/* No free byte: it is full, or its disks fail. Then it needs its copies elsewhere. */
	lk->lk_over |= se->can_capacity && se->can_available && used > limit;
	if (!se->can_capacity) /* a generic server that does not say */
		lk->lk_room[se->can_id] = se->can_available;
	else if (used < limit)
		lk->lk_room[se->can_id] =
			limit - used < se->can_available ? limit - used : se->can_available;
}

static void less(uint64_t *room, uint64_t n)
{
	*room = *room > n ? *room - n : 0;
}

bool pin_fits(void *arg, uint32_t ds)
{
	struct pin_fits *f = arg;
	bool fits = ds <= DS_REG_MAX && f->pf_room[ds] && f->pf_room[ds] >= f->pf_share;

	f->pf_short |= !fits;
	return fits;
}

uint64_t pin_share(uint64_t size, const struct lo_map *map)
{
	return map->lm_stripes == 1 || size <= map->lm_unit ? size
							    : size / map->lm_stripes + map->lm_unit;
}

bool pin_any_there(struct mds *m, const struct lo_map *map, const char *group)
{
	struct ds_reg_terms dt;

	for (unsigned k = 0; k < lo_objects(map); k++)
		if (map->lm_obj[k].ob_state == LO_IN_SYNC &&
		    ds_reg_terms(m->m_dsc, map->lm_obj[k].ob_ds, &dt) &&
		    lo_group_has(group, dt.dt_labels))
			return true;
	return false;
}

/* What copies under way will take, and what took room too lately to be in a server's report. */
static void less_under_way(struct job_pins *jp, struct kv_txn *t, uint64_t *room)
{
	uint64_t now = clock_mono_ms() / 1000;

	for (const struct pin *p = jp->jp_first; p; p = p->p_next)
		for (unsigned k = 0; p->p_row.pi_state == LO_PIN_MAKE && k < p->p_nout; k++) {
			struct ns_inode i;
			struct lo_map map;

			if (ns_get(jp->jp_m->m_ns, t, p->p_out[k], &i) ||
			    lo_map_decode(i.i_blob, &map) || !map.lm_pin)
				continue;
			for (unsigned s = 0; s < map.lm_stripes; s++) {
				const struct lo_object *o =
					&map.lm_obj[(map.lm_pin - 1u) * map.lm_stripes + s];

				if (o->ob_ds <= DS_REG_MAX)
					less(&room[o->ob_ds], pin_share(i.i_size, &map));
			}
		}
	for (unsigned s = 0; s < PIN_SECONDS && now - jp->jp_second < PIN_SECONDS; s++)
		for (unsigned ds = 1; ds <= DS_REG_MAX; ds++)
			less(&room[ds], jp->jp_lately[s][ds]);
}

void pin_filled_now(struct job_pins *jp, const struct lo_map *map, uint64_t size)
{
	uint64_t now = clock_mono_ms() / 1000;

	for (; jp->jp_second < now; jp->jp_second++) {
		if (now - jp->jp_second > PIN_SECONDS)
			jp->jp_second = now - PIN_SECONDS;
		memset(jp->jp_lately[(jp->jp_second + 1) % PIN_SECONDS], 0,
		       sizeof(jp->jp_lately[0]));
	}
	for (unsigned s = 0; s < map->lm_stripes; s++)
		jp->jp_lately[now % PIN_SECONDS]
			     [map->lm_obj[(map->lm_pin - 1u) * map->lm_stripes + s].ob_ds] +=
			pin_share(size, map);
}

uint64_t pin_room(struct job_pins *jp, struct kv_txn *t, const char *group, uint64_t *room,
		  unsigned *servers)
{
	uint64_t own[DS_REG_MAX + 1], sum = 0;
	struct looking lk = {
		.lk_group = group, .lk_near_full = jp->jp_near_full, .lk_room = room ? room : own};

	memset(lk.lk_room, 0, sizeof(own));
	ds_reg_candidates(jp->jp_m->m_dsc, look_at, &lk);
	less_under_way(jp, t, lk.lk_room);
	for (unsigned ds = 0; ds <= DS_REG_MAX; ds++)
		sum += lk.lk_room[ds];
	if (servers)
		*servers = lk.lk_servers;
	return sum;
}

uint64_t job_pin_room(struct mds *m, const char *group, unsigned *servers)
{
	struct kv_txn *t;
	uint64_t sum;

	*servers = 0;
	if (kv_read_begin(m->m_kv, &t))
		return 0;
	pthread_mutex_lock(&m->m_pins->jp_lock);
	sum = pin_room(m->m_pins, t, group, NULL, servers);
	pthread_mutex_unlock(&m->m_pins->jp_lock);
	kv_read_end(t);
	return sum;
}

/* ---- warm copies ---- */

static bool goes_for(const struct pin *p, const char *group, const struct pin *than)
{
	return p != than && p->p_row.pi_warm && !strcmp(p->p_row.pi_group, group);
}

uint64_t pin_warmed(const struct pin *p)
{
	uint64_t sum = 0;

	for (const struct pin *o = p->p_pins->jp_first; o; o = o->p_next)
		if (goes_for(o, p->p_row.pi_group, p))
			sum += o->p_row.pi_state == LO_PIN_HELD ? o->p_row.pi_bytes
								: o->p_view.pv_bytes;
	return sum;
}

bool pin_evict(struct job_pins *jp, const char *group, const struct pin *than, const char *why)
{
	struct pin *oldest = NULL;

	for (struct pin *p = jp->jp_first; p; p = p->p_next) {
		if (!goes_for(p, group, than))
			continue;
		if (p->p_row.pi_state == LO_PIN_RELEASE || p->p_busy)
			return true;
		if (!oldest || p->p_row.pi_made_s < oldest->p_row.pi_made_s ||
		    (p->p_row.pi_made_s == oldest->p_row.pi_made_s &&
		     p->p_row.pi_number < oldest->p_row.pi_number))
			oldest = p;
	}
	if (!oldest)
		return clock_mono_ms() - jp->jp_evicted_ms < CALM_MS && jp->jp_evicted_ms;
	log_info("the warm copies of inode %lu on %s go: %s", (unsigned long)oldest->p_row.pi_ino,
		 group, why);
	jp->jp_evicted_ms = clock_mono_ms();
	pin_to(oldest, LO_PIN_RELEASE);
	return true;
}

void pin_pressure(struct job_pins *jp)
{
	uint64_t now = clock_mono_ms(), room[DS_REG_MAX + 1];

	if (now - jp->jp_pressed_ms < PRESS_MS ||
	    (jp->jp_evicted_ms && now - jp->jp_evicted_ms < CALM_MS))
		return;
	jp->jp_pressed_ms = now;
	for (struct pin *p = jp->jp_first; p; p = p->p_next) {
		struct looking lk = {.lk_group = p->p_row.pi_group,
				     .lk_near_full = jp->jp_near_full,
				     .lk_room = room};

		if (!p->p_row.pi_warm || p->p_row.pi_state != LO_PIN_HELD)
			continue;
		ds_reg_candidates(jp->jp_m->m_dsc, look_at, &lk);
		if (lk.lk_over) {
			pin_evict(jp, p->p_row.pi_group, NULL,
				  "a data server is fuller than mds.near_full");
			return;
		}
	}
}
