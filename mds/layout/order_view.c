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

/* Where the table has grown, what was in one slot when the walk began is in several: their numbers
 * have the same low bits. The orders of an inode are in its list while it is in os_files. */
bool lo_order_walk(struct lo_orders *os, struct order_walk *w)
{
	const struct hash *h = &os->os_files;
	unsigned looked = 0;

	if (!w->wk_size)
		w->wk_size = h->h_size;
	for (; w->wk_at < w->wk_size && looked < ORDER_STEP; w->wk_at++) {
		for (size_t s = w->wk_at; s < h->h_size; s += w->wk_size) {
			looked++;
			for (struct hash_link *l = h->h_slot[s]; l; l = l->hl_next) {
				const struct order_file *of =
					hash_entry(l, struct order_file, of_link);

				for (const struct order *o = of->of_orders; o;
				     o = o->or_file_next) {
					looked++;
					w->wk_fn(w->wk_arg, o);
				}
			}
		}
	}
	return w->wk_at < w->wk_size;
}

struct order_list {
	struct lo_order_view *ol_v;
	size_t ol_n, ol_room;
	uint64_t ol_now;
	uint32_t ol_ds;
};

static void order_list_add(void *arg, const struct order *o)
{
	struct order_list *ol = arg;

	if (ol->ol_n < ol->ol_room && (!ol->ol_ds || o->or_ds == ol->ol_ds))
		order_view_fill(&ol->ol_v[ol->ol_n++], o, ol->ol_now);
}

long lo_orders_list(struct lo *lo, uint32_t ds, size_t most, struct lo_order_view **out)
{
	struct lo_orders *os = lo->l_orders;
	struct order_list ol = {.ol_room = atomic_load(&os->os_count), .ol_ds = ds};
	struct order_walk w = {.wk_fn = order_list_add, .wk_arg = &ol};
	bool more = ol.ol_room;

	/* Memory comes first: none is taken under the lock. */
	ol.ol_room = ol.ol_room < LO_ORDERS_LOOKED ? ol.ol_room + 64 : LO_ORDERS_LOOKED;
	*out = ol.ol_v = calloc(ol.ol_room, sizeof(**out));
	if (!*out)
		return -ENOMEM;
	ol.ol_now = ds_reg_clock_ms(lo->l_dsc);
	while (more && ol.ol_n < ol.ol_room) {
		pthread_mutex_lock(&os->os_lock);
		more = lo_order_walk(os, &w);
		pthread_mutex_unlock(&os->os_lock);
	}
	qsort(ol.ol_v, ol.ol_n, sizeof(*ol.ol_v), order_view_older);
	return (long)(ol.ol_n < most ? ol.ol_n : most);
}
