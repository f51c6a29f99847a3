/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fs.c - what a store keeps for each file system that it serves: the instance of the metadata
 * server that joined, its orders, the clients that it barred, the marks of volumes. A cluster may
 * have several metadata servers, each with a file system of its own, and no number of one means
 * anything to another.
 *
 * The first file system that a store joins is its home file system; the identity names it, and the
 * journal's oldest record types are about it. A store learns the others from their first joins.
 * Before its first join, a store has a home file system without a number.
 */
#include "ds/store/store_int.h"
#include <errno.h>
#include <stdlib.h>

/* The highest order is stored in steps: otherwise every batch would need an append to the
 * journal. */
#define ORDER_STEP ((uint64_t)CTL_ORDER_STEP)

static struct ds_fs *fs_new(struct ds_store *s, uint32_t number)
{
	struct ds_fs *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->fs_store = s;
	f->fs_place = atomic_load(&s->s_nfs);
	atomic_store(&f->fs_number, number);
	pthread_mutex_init(&f->fs_state_lock, NULL);
	if (!ds_bars_open(f))
		return f;
	pthread_mutex_destroy(&f->fs_state_lock);
	free(f);
	return NULL;
}

int ds_fs_open(struct ds_store *s)
{
	pthread_mutex_init(&s->s_fs_lock, NULL);
	s->s_fs[0] = fs_new(s, 0);
	if (!s->s_fs[0])
		return -ENOMEM;
	atomic_store(&s->s_nfs, 1);
	return 0;
}

void ds_fs_close(struct ds_store *s)
{
	for (unsigned i = 0; i < atomic_load(&s->s_nfs); i++) {
		ds_bars_close(s->s_fs[i]);
		pthread_mutex_destroy(&s->s_fs[i]->fs_state_lock);
		free(s->s_fs[i]);
	}
	pthread_mutex_destroy(&s->s_fs_lock);
}

/* There are few, and the home's is first. */
struct ds_fs *ds_store_fs(struct ds_store *s, uint32_t number)
{
	unsigned n = atomic_load_explicit(&s->s_nfs, memory_order_acquire);

	for (unsigned i = 0; i < n; i++)
		if (atomic_load_explicit(&s->s_fs[i]->fs_number, memory_order_relaxed) == number)
			return s->s_fs[i];
	return NULL;
}

struct ds_fs *ds_store_fs_home(struct ds_store *s)
{
	return s->s_fs[0];
}

struct ds_fs *ds_store_fs_at(struct ds_store *s, unsigned place)
{
	return place < atomic_load_explicit(&s->s_nfs, memory_order_acquire) ? s->s_fs[place]
									     : NULL;
}

uint32_t ds_fs_number(const struct ds_fs *f)
{
	return atomic_load_explicit(&f->fs_number, memory_order_relaxed);
}

unsigned ds_fs_place(const struct ds_fs *f)
{
	return f->fs_place;
}

struct ds_store *ds_fs_store(const struct ds_fs *f)
{
	return f->fs_store;
}

/* With s_fs_lock held. */
static int fs_meet(struct ds_store *s, uint32_t number, struct ds_fs **out)
{
	unsigned n = atomic_load(&s->s_nfs);
	struct ds_fs *f = ds_store_fs(s, number);

	*out = f;
	if (f)
		return 0;
	if (!ds_fs_number(s->s_fs[0]))
		return -ENOTCONN;
	if (n == DS_FS_MAX)
		return -EOVERFLOW;
	f = fs_new(s, number);
	if (!f)
		return -ENOMEM;
	*out = s->s_fs[n] = f;
	ds_marks_meet(f);
	atomic_store_explicit(&s->s_nfs, n + 1, memory_order_release);
	return 0;
}

int ds_store_fs_meet(struct ds_store *s, uint32_t number, struct ds_fs **out)
{
	int err;

	*out = NULL;
	if (!number || number > UINT16_MAX)
		return -EINVAL;
	pthread_mutex_lock(&s->s_fs_lock);
	err = fs_meet(s, number, out);
	pthread_mutex_unlock(&s->s_fs_lock);
	return err;
}

/* ---- small queries ---- */

uint64_t ds_store_order_high(struct ds_fs *f)
{
	return atomic_load(&f->fs_order_durable);
}

struct ds_seen ds_store_seen(struct ds_fs *f)
{
	struct ds_seen sn = {
		.sn_instance = atomic_load(&f->fs_instance),
		.sn_boot_id = atomic_load(&f->fs_boot_id),
		.sn_start = f->fs_store->s_boot,
		.sn_start_id = f->fs_store->s_start_id,
	};

	pthread_mutex_lock(&f->fs_state_lock);
	sn.sn_kept_instance = f->fs_kept_instance;
	sn.sn_kept_joins = f->fs_kept_joins;
	sn.sn_unkept = f->fs_join_unkept;
	pthread_mutex_unlock(&f->fs_state_lock);
	return sn;
}

bool ds_store_instance_ok(struct ds_fs *f, uint64_t epoch)
{
	return epoch >= atomic_load(&f->fs_instance);
}

/* ---- joining ---- */

/* True if joins is higher than the last join's number. No other number is stored. */
static bool joins_more(struct ds_fs *f, uint32_t joins)
{
	bool more;

	pthread_mutex_lock(&f->fs_state_lock);
	more = joins > f->fs_joins;
	pthread_mutex_unlock(&f->fs_state_lock);
	return more;
}

ctl_status ds_store_join(struct ds_fs *f, uint64_t instance, uint64_t boot_id, uint32_t joins)
{
	uint64_t was = atomic_load(&f->fs_instance), id = atomic_load(&f->fs_boot_id);
	int err = 0;

	if (instance < was || (instance == was && id && boot_id && id != boot_id))
		return CTL_STALE_INSTANCE;
	if (instance != was || (boot_id && boot_id != id) || joins_more(f, joins) ||
	    ds_journal_behind(f->fs_store)) {
		pthread_mutex_lock(&f->fs_state_lock);
		f->fs_joins = instance != was || joins > f->fs_joins ? joins : f->fs_joins;
		atomic_store(&f->fs_instance, instance);
		atomic_store(&f->fs_boot_id, boot_id);
		pthread_mutex_unlock(&f->fs_state_lock);
		err = ds_journal_append(f, NULL, 0);
		if (err == -ENOSPC) {
			pthread_mutex_lock(&f->fs_state_lock);
			f->fs_join_unkept = true;
			pthread_mutex_unlock(&f->fs_state_lock);
		}
	}
	/* A full disk must not keep deletes from making room. The journal is behind, and the next
	 * order writes it again. */
	return err && err != -ENOSPC ? CTL_IO : CTL_OK;
}

/* ---- the begin of a batch of orders ---- */

/* Raises the marks that the journal must hold before the batch changes anything. True: they
 * changed. */
static bool raise_marks(struct ds_fs *f, uint64_t instance, const ctl_order *orders, unsigned n)
{
	uint64_t high = 0;
	bool changed = false;

	pthread_mutex_lock(&f->fs_state_lock);
	for (unsigned i = 0; i < n; i++)
		high = orders[i].number > high ? orders[i].number : high;
	if (high > atomic_load(&f->fs_order_high))
		atomic_store(&f->fs_order_high,
			     high <= UINT64_MAX - ORDER_STEP ? high + ORDER_STEP : UINT64_MAX);
	/* The other worker may have raised it without having written it yet. */
	if (high > atomic_load(&f->fs_order_durable))
		changed = true;
	if (instance > atomic_load(&f->fs_instance)) {
		atomic_store(&f->fs_boot_id, 0);
		atomic_store(&f->fs_instance, instance);
		f->fs_joins = 0;
		changed = true;
	}
	pthread_mutex_unlock(&f->fs_state_lock);
	return changed;
}

ctl_status ds_batch_begin(struct ds_fs *f, uint64_t instance, const ctl_order *orders, unsigned n,
			  size_t item, int (*add)(struct ds_fs *, struct ds_rec *, unsigned),
			  void **items)
{
	int err = 0;

	if (!ds_store_instance_ok(f, instance))
		return CTL_STALE_INSTANCE;
	if (n > CTL_BATCH_MAX)
		return CTL_INVAL;
	*items = calloc(n ? n : 1, item);
	if (!*items)
		return CTL_IO;
	/* Also write marks that are in memory only, because an earlier append failed. */
	if (raise_marks(f, instance, orders, n) || ds_journal_behind(f->fs_store))
		err = add(f, NULL, 0);
	/* A full disk keeps the marks out of the journal. It must not keep deletes from making
	 * room, or fences from taking effect. */
	if (!err || err == -ENOSPC)
		return CTL_OK;
	free(*items);
	return CTL_IO;
}
