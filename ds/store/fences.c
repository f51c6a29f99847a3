/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fences.c - runs fences and bars on a worker of their own, so that no clone, copy or delete delays
 * them (docs/fencing.md).
 *
 * A fence raises an object's epoch and changes nothing else. It does not mark any order as done,
 * and may run before older orders of its object. Both this worker and the orders worker write
 * xattrs; ob_put holds what the xattr has, and ob_meta_lock serializes the writes.
 *
 * An epoch is unconfirmed (s_owed) from before the object's lookup until it is durable. If the
 * object leaves memory meanwhile, or its drive does not store the epoch, this daemon still refuses
 * older capabilities for as long as it runs. After a restart the MDS sends the fence again before
 * this daemon serves.
 */
#include "base/metrics.h"
#include "ds/store/store_int.h"
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

struct ds_owed {
	struct cap_object ow_key;
	uint32_t ow_epoch;
	struct ds_owed *ow_next;
};

struct fence_item {
	struct cap_object fi_key;
	struct ds_obj *fi_obj;
	bool fi_skip; /* fences_begin() has set its result */
};

/* ---- unconfirmed epochs ---- */

static struct ds_owed **owed_find(struct ds_store *s, const struct cap_object *key)
{
	struct ds_owed **p = &s->s_owed;

	while (*p && !ds_key_equal(&(*p)->ow_key, key))
		p = &(*p)->ow_next;
	return p;
}

int ds_owe(struct ds_store *s, const struct cap_object *key, uint32_t epoch)
{
	struct ds_owed **p;
	int err = 0;

	pthread_mutex_lock(&s->s_owed_lock);
	p = owed_find(s, key);
	if (!*p) {
		*p = calloc(1, sizeof(**p));
		if (*p) {
			(*p)->ow_key = *key;
			atomic_fetch_add(&s->s_nowed, 1);
		}
	}
	if (!*p)
		err = -ENOMEM;
	else if (epoch > (*p)->ow_epoch)
		(*p)->ow_epoch = epoch;
	pthread_mutex_unlock(&s->s_owed_lock);
	return err;
}

void ds_owe_done(struct ds_store *s, const struct cap_object *key, uint32_t epoch)
{
	struct ds_owed **p, *gone = NULL;

	if (!atomic_load(&s->s_nowed))
		return;
	pthread_mutex_lock(&s->s_owed_lock);
	p = owed_find(s, key);
	if (*p && (*p)->ow_epoch <= epoch) {
		gone = *p;
		*p = gone->ow_next;
		atomic_fetch_sub(&s->s_nowed, 1);
	}
	pthread_mutex_unlock(&s->s_owed_lock);
	free(gone);
}

uint32_t ds_owed_epoch(struct ds_store *s, const struct cap_object *key)
{
	struct ds_owed **p;
	uint32_t epoch;

	if (!atomic_load(&s->s_nowed))
		return 0;
	pthread_mutex_lock(&s->s_owed_lock);
	p = owed_find(s, key);
	epoch = *p ? (*p)->ow_epoch : 0;
	pthread_mutex_unlock(&s->s_owed_lock);
	return epoch;
}

void ds_owed_close(struct ds_store *s)
{
	struct ds_owed *w;

	while ((w = s->s_owed)) {
		s->s_owed = w->ow_next;
		free(w);
	}
}

/* ---- a fence ---- */

static int fences_object(struct ds_store *s, const ctl_order *o, struct fence_item *fi)
{
	int err = ds_obj_get_any(s, &fi->fi_key, o->known & CTL_KNOWN ? DS_MAKE_LOST : DS_MAKE_NEW,
				 NULL, &fi->fi_obj);

	if (!err)
		ds_obj_raise(fi->fi_obj, o->epoch);
	if (err == -ESTALE)
		ds_owe_done(s, &fi->fi_key, o->epoch);
	return err;
}

/* Puts the fence into force in memory. -ESTALE: the object is deleted, so there is nothing to
 * fence. */
static int fences_announce(struct ds_store *s, const ctl_order *o, struct fence_item *fi)
{
	int err = ds_owe(s, &fi->fi_key, o->epoch);

	if (!err)
		err = fences_object(s, o, fi);
	if (!err && (o->known & CTL_KNOWN) && !ds_obj_put_epoch(fi->fi_obj))
		ds_lost_tell(fi->fi_obj);
	return err;
}

/* Makes the epoch durable. -EAGAIN: o was deleted or remade meanwhile; look the object up again. */
static int fences_store(struct ds_obj *o)
{
	int fd = ds_obj_reopen(o), err;

	if (fd < 0)
		return ds_obj_deleted(o) ? -EAGAIN : fd;
	pthread_mutex_lock(&o->ob_meta_lock);
	err = ds_obj_deleted(o) ? -EAGAIN
				: ds_meta_put(fd, ds_obj_epoch(o), o->ob_put.pu_order,
					      o->ob_put.pu_flags, o->ob_put.pu_begun);
	pthread_mutex_unlock(&o->ob_meta_lock);
	if (!err && fsync(fd) < 0) {
		err = -errno;
		metric_add(ds_m_sync_failures, 1);
		ds_verifier_change(o->ob_store);
	}
	close(fd);
	if (!err)
		err = ds_obj_sync_dirs(o);
	if (ds_obj_deleted(o))
		return -EAGAIN;
	if (err)
		ds_health_note(o->ob_vol, true, err);
	return err;
}

static int fences_finish(struct ds_store *s, const ctl_order *o, struct fence_item *fi)
{
	int err;

	for (;;) {
		uint32_t epoch = ds_obj_epoch(fi->fi_obj);

		err = fences_store(fi->fi_obj);
		if (!err) {
			pthread_mutex_lock(&fi->fi_obj->ob_meta_lock);
			if (epoch > fi->fi_obj->ob_put.pu_epoch)
				fi->fi_obj->ob_put.pu_epoch = epoch;
			pthread_mutex_unlock(&fi->fi_obj->ob_meta_lock);
			ds_owe_done(s, &fi->fi_key, o->epoch);
		}
		if (err != -EAGAIN)
			return err;
		ds_obj_put(fi->fi_obj);
		fi->fi_obj = NULL;
		err = fences_object(s, o, fi);
		if (err)
			return err == -ESTALE ? 0 : err;
	}
}

/* ---- a batch ---- */

/* Puts all orders into force in memory. -ENOMEM: one of them may not be in force. */
static int fences_begin(struct ds_fs *f, const ctl_order *orders, struct fence_item *it, unsigned n,
			ctl_status *res)
{
	int rc = 0;

	for (unsigned i = 0; i < n; i++) {
		int err = 0;

		res[i] = CTL_OK;
		if (orders[i].type == CTL_BAR_CLIENT)
			err = orders[i].client ? ds_bar(f, orders[i].client)
					       : -EINVAL; /* 0 is the MDS itself */
		else if (orders[i].type != CTL_FENCE ||
			 !ds_key_of(&orders[i].object, &it[i].fi_key))
			err = -EINVAL;
		else
			err = fences_announce(f->fs_store, &orders[i], &it[i]);
		it[i].fi_skip = err;
		if (err && err != -ESTALE)
			res[i] = ds_ctl_status(err);
		if (err == -ENOMEM)
			rc = err;
	}
	return rc;
}

static void batch_free(struct fence_item *it, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (it[i].fi_obj)
			ds_obj_put(it[i].fi_obj);
	free(it);
}

static int journal_bars(struct ds_fs *f, const ctl_order *orders, const struct fence_item *it,
			unsigned n)
{
	struct ds_rec recs[CTL_BATCH_MAX];
	unsigned k = 0;

	for (unsigned i = 0; i < n; i++)
		if (orders[i].type == CTL_BAR_CLIENT && !it[i].fi_skip)
			recs[k++] = ds_rec_bar(f, orders[i].client, orders[i].number);
	return k ? ds_journal_add(f, recs, k) : 0;
}

ctl_status ds_store_fences(struct ds_fs *f, uint64_t instance, const ctl_order *orders, unsigned n,
			   ctl_status *results)
{
	struct fence_item *it;
	ctl_status st =
		ds_batch_begin(f, instance, orders, n, sizeof(*it), ds_journal_add, (void **)&it);
	int err;

	if (st != CTL_OK)
		return st;
	if (ds_tombs_outlived(f, orders, n, true)) {
		free(it);
		return CTL_IO; /* the MDS tries again */
	}
	/* An answer to one order of a batch means that the order is in force, whatever its status.
	 * So answer none of them here. */
	if (fences_begin(f, orders, it, n, results)) {
		batch_free(it, n);
		return CTL_IO; /* the MDS tries again */
	}
	/* Wait for the changes that were checked before the fence. */
	ds_write_drain(f->fs_store);
	err = journal_bars(f, orders, it, n);
	for (unsigned i = 0; i < n; i++)
		if (!it[i].fi_skip)
			results[i] = ds_ctl_status(
				it[i].fi_obj ? fences_finish(f->fs_store, &orders[i], &it[i])
					     : err);
	batch_free(it, n);
	return CTL_OK;
}
