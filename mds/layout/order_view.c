/* SPDX-License-Identifier: Apache-2.0 */
/* order_view.c - shows the orders that are not done. See lo.h. */
#include "base/clock.h"
#include "mds/layout/order_int.h"
#include <errno.h>

static void order_view_fill(struct lo_order_view *v, const struct order *o, uint64_t now)
{
	*v = (struct lo_order_view){
		.ov_number = o->or_number,
		.ov_ino = o->or_file->of_ino,
		.ov_age_ms = now - o->or_since_ms,
		.ov_ds = o->or_ds,
		.ov_type = o->or_type,
		.ov_client = o->or_client,
		.ov_tries = atomic_load_explicit(&o->or_tries, memory_order_relaxed),
		.ov_error = atomic_load_explicit(&o->or_error, memory_order_relaxed),
		.ov_stripe = o->or_stripe,
		.ov_mirror = o->or_mirror,
	};
}

static int order_view_older(const void *a, const void *b)
{
	const struct lo_order_view *v = a, *w = b;

	if (v->ov_age_ms != w->ov_age_ms)
		return v->ov_age_ms < w->ov_age_ms ? 1 : -1;
	if (v->ov_ds != w->ov_ds)
		return v->ov_ds < w->ov_ds ? -1 : 1;
	return v->ov_number < w->ov_number ? -1 : v->ov_number > w->ov_number;
}

/* The orders of an inode are in its list while it is in os_files: both are under os_lock. */
long lo_orders_list(struct lo *lo, uint32_t ds, size_t most, struct lo_order_view **out)
{
	struct lo_orders *os = lo->l_orders;
	uint64_t now;
	size_t n = 0, looked = 0, room;

	/* The loops need the lock for each order: memory comes first, and the walk ends in time. */
	room = atomic_load(&os->os_count);
	room = room < LO_ORDERS_LOOKED ? room + 64 : LO_ORDERS_LOOKED;
	*out = calloc(room, sizeof(**out));
	if (!*out)
		return -ENOMEM;
	now = clock_mono_ms();
	pthread_mutex_lock(&os->os_lock);
	hash_each(&os->os_files, i, l, next)
	{
		const struct order_file *of = hash_entry(l, struct order_file, of_link);

		if (looked >= room)
			break;
		for (const struct order *o = of->of_orders; o && looked < room;
		     o = o->or_file_next) {
			looked++;
			if (!ds || o->or_ds == ds)
				order_view_fill(&(*out)[n++], o, now);
		}
	}
	pthread_mutex_unlock(&os->os_lock);
	qsort(*out, n, sizeof(**out), order_view_older);
	return (long)(n < most ? n : most);
}
