/* SPDX-License-Identifier: Apache-2.0 */
/*
 * orders.c - serves ORDERS, STAT and LIST of the MDS, on the workers; all of it may block.
 *
 * A batch of orders is done in passes, so that it costs one wait for writes under way and a few
 * journal commits of the file system, instead of one of each per order:
 *
 *   1. look up or make the objects; raise epochs and bar clients in memory
 *   2. wait until every write that was checked before has ended
 *   3. truncate, extend, delete; note the order's number in the xattr
 *   4. fsync
 *
 * Only then do the numbers count as done. So if a batch fails, its orders are done when the MDS
 * repeats them.
 *
 * Truncating or fencing a missing object creates it, because its file holds the order's number and
 * the epoch: without the number, a repeated truncate would cut data written since. If the MDS knows
 * that the object existed, the new one is marked as lost, so that clients do not take it for an
 * empty one. Truncating a lost object to size 0 ends that, because no file needs its old data any
 * more. The target of a clone whose source is lost is lost as well: the MDS has already answered
 * that the target has data, which exists nowhere.
 */
#include "base/log.h"
#include "ds/store/rebuild_int.h"
#include "ds/store/store_int.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct order_item {
	struct cap_object it_key;
	struct ds_obj *it_obj;	  /* for orders that change an object */
	struct ds_obj *it_source; /* CLONE; NULL: does not exist */
	bool it_source_lost;
	int it_fd;
	bool it_skip; /* its result is already set */
	/* The order's number is done, but its epoch is not: the MDS's store was restored. */
	bool it_raises;
};

ctl_status ds_ctl_status(int err)
{
	switch (-err) {
	case 0:
		return CTL_OK;
	case ENOSPC:
	case EDQUOT:
		return CTL_NOSPC;
	case EFBIG:
	case EINVAL:
		return CTL_INVAL;
	case ENOLINK:
	case ENOBUFS:
		return CTL_REBUILDING;
	default:
		return CTL_IO;
	}
}

bool ds_key_of(const ctl_object *o, struct cap_object *key)
{
	if (o->fs > UINT16_MAX || o->incarnation > UINT16_MAX || o->stripe > UINT8_MAX ||
	    o->mirror > UINT8_MAX)
		return false;
	*key = (struct cap_object){
		.co_ino = o->ino,
		.co_fs = (uint16_t)o->fs,
		.co_incarnation = (uint16_t)o->incarnation,
		.co_stripe = (uint8_t)o->stripe,
		.co_copy = (uint8_t)o->mirror,
	};
	return true;
}

/* ---- pass 1 ---- */

/* Runs before the target's lookup: a missing target is created in the source's volume. */
static int prepare_source(struct ds_store *s, const ctl_order *o, struct order_item *it)
{
	struct cap_object source;
	int err;

	if (!ds_key_of(&o->source, &source))
		return -EINVAL;
	err = ds_obj_get(s, &source, false, &it->it_source);
	/* A lost source is not a source of zeros, and a retry does not find it either. */
	it->it_source_lost = err == -ESTALE || (err == -ENOENT && (o->known & CTL_KNOWN_SOURCE));
	if (err && err != -ENOENT && !it->it_source_lost)
		return err;
	return it->it_source && ds_obj_rebuilding(it->it_source) ? -ENOLINK : 0;
}

static bool empties(const ctl_order *o)
{
	return o->type == CTL_TRUNCATE && !o->size;
}

/* How to create a missing object. A clone's target may be missing because do_clone is remaking it;
 * the clone is then done again. */
static enum ds_make make_as(const ctl_order *o)
{
	return (o->known & CTL_KNOWN) && o->type != CTL_CLONE && !empties(o) ? DS_MAKE_LOST
									     : DS_MAKE_NEW;
}

void ds_lost_tell(const struct ds_obj *o)
{
	char path[OBJPATH_MAX];

	if (!atomic_load(&o->ob_lost))
		return;
	objpath(&o->ob_key, path);
	log_error("object %s is lost: the metadata server knows that it existed, but it is not in "
		  "this store; marked as lost",
		  path);
}

static int prepare_object(struct ds_store *s, const ctl_order *o, struct order_item *it,
			  bool *drain)
{
	int serr = o->type == CTL_CLONE ? prepare_source(s, o, it) : 0;
	struct ds_vol *at = it->it_source && ds_vol_has_room(it->it_source->ob_vol)
				    ? it->it_source->ob_vol
				    : NULL;
	int err = ds_obj_get_any(s, &it->it_key, make_as(o), at, &it->it_obj);

	/* Deleted: an order from before the delete has nothing left to change. */
	if (err == -ESTALE) {
		it->it_skip = true;
		ds_owe_done(s, &it->it_key, o->epoch);
	}
	if (err)
		return err == -ESTALE ? 0 : err;
	/* A fence under way may have raised the epoch in memory, or another change may have stored
	 * that epoch, before the earlier writes have ended. So compare with the stored epoch, and
	 * wait for those writes while an epoch is unconfirmed. */
	it->it_raises = o->epoch > ds_obj_put_epoch(it->it_obj);
	*drain |= ds_owed_epoch(s, &it->it_key) != 0;
	if (o->number <= it->it_obj->ob_order && !it->it_raises) {
		it->it_skip = true;
		return 0;
	}
	/* Only for an order that is not done yet: the source of a finished one may be gone. */
	if (serr && o->number > it->it_obj->ob_order)
		return serr;
	if (!it->it_obj->ob_order)
		ds_lost_tell(it->it_obj);
	it->it_obj->ob_order_new = it->it_obj->ob_order;
	it->it_fd = ds_obj_reopen(it->it_obj);
	if (it->it_fd < 0) {
		ds_health_note(it->it_obj->ob_vol, false, it->it_fd);
		return it->it_fd;
	}
	*drain |= it->it_source && it->it_source->ob_vol != it->it_obj->ob_vol;
	if (it->it_raises) {
		ds_obj_raise(it->it_obj, o->epoch);
		*drain = true;
	}
	return 0;
}

/* With several volumes, a volume with another block size, or without reflinks, may have been added
 * since the MDS asked. Then what reflinks cannot do is copied. */
static bool clone_block_ok(const struct ds_store *s, const ctl_order *o)
{
	return s->s_nvols > 1 || (s->s_clone_block && o->offset % s->s_clone_block == 0 &&
				  o->from % s->s_clone_block == 0);
}

static int prepare(struct ds_fs *f, const ctl_order *o, struct order_item *it, bool *drain)
{
	struct ds_store *s = f->fs_store;

	switch (o->type) {
	case CTL_CLONE:
		if (!o->size || o->offset > INT64_MAX - o->size || o->from > INT64_MAX - o->size ||
		    !clone_block_ok(s, o))
			return -EINVAL;
		/* fall through */
	case CTL_TRUNCATE:
	case CTL_EXTEND:
		if (o->size > INT64_MAX)
			return -EINVAL;
		/* fall through */
	case CTL_FENCE:
		return prepare_object(s, o, it, drain);
	case CTL_DELETE:
		return 0;
	case CTL_BAR_CLIENT:
		/* 0 is the MDS itself */
		if (!o->client)
			return -EINVAL;
		*drain = true;
		return ds_bar(f, o->client);
	}
	return -EINVAL;
}

/* ---- pass 3 ---- */

static int do_size(const ctl_order *o, struct order_item *it)
{
	struct stat st;

	if (o->type == CTL_EXTEND) {
		if (fstat(it->it_fd, &st) < 0)
			return -errno;
		if ((uint64_t)st.st_size >= o->size)
			return 0;
	}
	return ds_obj_cut(it->it_fd, o->size);
}

/* A reflink cannot leave its volume. If the target has no data to keep, it is remade in the
 * source's volume; else ds_clone copies. */
static int do_clone(const ctl_order *o, struct order_item *it)
{
	bool apart = it->it_source && it->it_source->ob_vol != it->it_obj->ob_vol;
	/* An object that is being rebuilt keeps its file, to which its session writes. So does a
	 * watched object: a restripe reads it, and its writes are noted. */
	int all = apart && !ds_obj_rebuilding(it->it_obj) &&
				  !atomic_load(&it->it_obj->ob_watched) &&
				  ds_vol_has_room(it->it_source->ob_vol)
			  ? ds_clone_is_all(o, it->it_fd)
			  : 0;

	/* An order before this one remade the source: the next try finds it. */
	if (it->it_source && atomic_load(&it->it_source->ob_deleted))
		return -EAGAIN;
	if (all < 0)
		return all;
	if (all) {
		struct ds_obj *new;
		int err = ds_obj_remake(it->it_obj, it->it_source->ob_vol, o->epoch, &new);

		if (err == -EALREADY) /* fenced since: ds_clone copies */
			return ds_clone(o, it->it_source, it->it_obj, it->it_fd);
		if (err)
			return err;
		ds_obj_put(it->it_obj);
		close(it->it_fd);
		it->it_obj = new;
		it->it_fd = ds_obj_reopen(new);
		if (it->it_fd < 0)
			return it->it_fd;
	}
	return ds_clone(o, it->it_source, it->it_obj, it->it_fd);
}

/* True if the clone's source is lost. An earlier order of the same batch may have marked it. */
static bool takes_nothing(const ctl_order *o, const struct order_item *it)
{
	return o->type == CTL_CLONE &&
	       (it->it_source_lost || (it->it_source && atomic_load(&it->it_source->ob_lost)));
}

static void tell_nothing(const struct ds_obj *o, const ctl_order *order)
{
	char path[OBJPATH_MAX];

	objpath(&o->ob_key, path);
	log_error("object %s is lost: it is a clone of a lost object (inode %" PRIu64
		  "); marked as lost",
		  path, order->source.ino);
}

static uint8_t flags_after(const struct ds_obj *o, bool found, bool nothing)
{
	uint8_t flags = ds_obj_flags(o);

	if (found)
		flags &= (uint8_t)~DS_META_LOST;
	/* A half rebuilt object keeps its flag, which already forbids reading it. */
	return nothing && !(flags & DS_META_REBUILDING) ? flags | DS_META_LOST : flags;
}

static int do_object(const ctl_order *o, struct order_item *it)
{
	bool lost = atomic_load(&it->it_obj->ob_lost), found = lost && empties(o),
	     nothing = takes_nothing(o, it);
	struct ds_change c;
	uint8_t flags;
	int err;

	/* An earlier order of the same batch remade or deleted the object: it_fd is another
	 * file. */
	if (atomic_load(&it->it_obj->ob_deleted))
		return -EAGAIN;

	/* The order is done, or an earlier one of the same batch had a higher number. Then the MDS
	 * mixed them up, but the rule still holds. */
	if (o->number <= it->it_obj->ob_order_new)
		return !it->it_raises
			       ? 0
			       : ds_obj_meta_put(it->it_obj, it->it_fd, it->it_obj->ob_order_new,
						 ds_obj_flags(it->it_obj), it->it_obj->ob_begun);
	if (nothing && !lost)
		tell_nothing(it->it_obj, o);
	/* End the rebuild: it would take the bytes that the clone should have written for
	 * written. */
	if (nothing)
		ds_session_drop(it->it_obj->ob_store, &it->it_key);
	err = ds_change_order(&c, it->it_obj, o,
			      o->type == CTL_CLONE ? ds_clone_rounds(o, it->it_obj) : 0);
	/* A lost object has nothing to cut, to clone from or to clone into. A clone that becomes
	 * lost may still have data: that goes. */
	if (!err && o->type != CTL_FENCE && (!lost || found) && !nothing)
		err = o->type == CTL_CLONE ? do_clone(o, it) : do_size(o, it);
	ds_change_end(&c);
	flags = flags_after(it->it_obj, found, nothing);
	if (!err)
		err = ds_obj_meta_put(it->it_obj, it->it_fd, o->number, flags,
				      it->it_obj->ob_begun);
	if (!err)
		it->it_obj->ob_order_new = o->number;
	if (!err && (found || nothing))
		atomic_store(&it->it_obj->ob_lost, flags & DS_META_LOST);
	return err;
}

/* Unlinks before the tombstone is durable: on a full disk the unlink makes the room for it. After a
 * crash between the two, the order is not confirmed, and this server serves nothing until the MDS
 * repeats it. */
static int do_delete(struct ds_store *s, const ctl_order *o, const struct cap_object *key)
{
	int err = ds_obj_kill(s, key, o->number);

	if (err)
		return err;
	ds_session_drop(s, key);
	ds_watch_drop(s, key);
	return ds_vol_unlink(s, key);
}

/* ---- pass 4 ---- */

static int sync_object(struct ds_store *s, struct order_item *it)
{
	int err = 0;

	if (atomic_load(&it->it_obj->ob_deleted))
		return 0;
	if (fsync(it->it_fd) < 0) {
		err = -errno;
		/* The page cache may have dropped clients' data as well. */
		metric_add(ds_m_sync_failures, 1);
		ds_health_note(it->it_obj->ob_vol, true, err);
		ds_verifier_change(s);
	}
	return err ? err : ds_obj_sync_dirs(it->it_obj);
}

/* Writes the batch's deletes and bars; the same append stores the rest of the state. */
static int journal(struct ds_fs *f, const ctl_order *orders, const struct order_item *it,
		   unsigned n)
{
	struct ds_rec recs[CTL_BATCH_MAX];
	unsigned k = 0;

	for (unsigned i = 0; i < n; i++) {
		if (it[i].it_skip)
			continue;
		if (orders[i].type == CTL_DELETE)
			recs[k++] = ds_rec_object(DS_REC_TOMB, &it[i].it_key, orders[i].number);
		else if (orders[i].type == CTL_BAR_CLIENT)
			recs[k++] = ds_rec_bar(f, orders[i].client, orders[i].number);
	}
	return k ? ds_journal_append(f, recs, k) : 0;
}

/* ---- a batch ---- */

/* Item i failed. Later orders of its object fail with it: if one of them, with its higher number,
 * were done, this one would be ignored when the MDS repeats it. */
static void orders_fail(struct ds_store *s, const ctl_order *orders, struct order_item *it,
			unsigned n, unsigned i, ctl_status *res, int err)
{
	res[i] = ds_ctl_status(err);
	it[i].it_skip = true;
	/* Until its epoch is stored, this daemon refuses older capabilities from memory. */
	if (orders[i].type != CTL_BAR_CLIENT && orders[i].type != CTL_DELETE && orders[i].epoch)
		ds_owe(s, &it[i].it_key, orders[i].epoch);
	for (unsigned j = i + 1; j < n && orders[i].type != CTL_BAR_CLIENT; j++) {
		if (it[j].it_skip || orders[j].type == CTL_BAR_CLIENT ||
		    !ds_key_equal(&it[i].it_key, &it[j].it_key))
			continue;
		res[j] = res[i];
		it[j].it_skip = true;
	}
}

static void orders_batch(struct ds_fs *f, const ctl_order *orders, struct order_item *it,
			 unsigned n, ctl_status *res)
{
	struct ds_store *s = f->fs_store;
	bool drain = false;
	int err, jerr;

	for (unsigned i = 0; i < n; i++) {
		it[i].it_fd = -1;
		res[i] = CTL_OK;
		if (orders[i].type != CTL_BAR_CLIENT &&
		    !ds_key_of(&orders[i].object, &it[i].it_key)) {
			res[i] = CTL_INVAL;
			it[i].it_skip = true;
		}
	}
	for (unsigned i = 0; i < n; i++) {
		err = it[i].it_skip ? 0 : prepare(f, &orders[i], &it[i], &drain);
		if (err)
			orders_fail(s, orders, it, n, i, res, err);
	}
	if (drain)
		ds_write_drain(s);
	for (unsigned i = 0; i < n; i++) {
		err = 0;
		if (it[i].it_skip)
			continue;
		if (it[i].it_obj)
			err = do_object(&orders[i], &it[i]);
		else if (orders[i].type == CTL_DELETE)
			err = do_delete(s, &orders[i], &it[i].it_key);
		if (err)
			orders_fail(s, orders, it, n, i, res, err);
	}
	jerr = journal(f, orders, it, n);
	for (unsigned i = 0; i < n; i++) {
		if (it[i].it_skip)
			continue;
		err = it[i].it_obj ? sync_object(s, &it[i]) : jerr;
		if (err)
			orders_fail(s, orders, it, n, i, res, err);
	}
}

/* The orders are durable now, so their numbers count as done. */
static void orders_finish(const ctl_order *orders, struct order_item *it, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		if (it[i].it_obj && !it[i].it_skip && orders[i].number > it[i].it_obj->ob_order)
			it[i].it_obj->ob_order = orders[i].number;
		if (it[i].it_obj && !it[i].it_skip)
			ds_owe_done(it[i].it_obj->ob_store, &it[i].it_key, orders[i].epoch);
	}
	for (unsigned i = 0; i < n; i++) {
		if (it[i].it_fd >= 0)
			close(it[i].it_fd);
		if (it[i].it_obj)
			ds_obj_put(it[i].it_obj);
		if (it[i].it_source)
			ds_obj_put(it[i].it_source);
	}
}

static ctl_status orders_do(struct ds_fs *f, uint64_t instance, const ctl_order *orders, unsigned n,
			    ctl_status *results)
{
	struct order_item *it;
	ctl_status st;

	ds_tomb_expire(f->fs_store);
	st = ds_batch_begin(f, instance, orders, n, sizeof(*it), ds_journal_append, (void **)&it);
	if (st != CTL_OK)
		return st;
	ds_tombs_outlived(f, orders, n, false);
	orders_batch(f, orders, it, n, results);
	orders_finish(orders, it, n);
	free(it);
	return CTL_OK;
}

ctl_status ds_store_orders(struct ds_fs *f, uint64_t instance, const ctl_order *orders, unsigned n,
			   ctl_status *results)
{
	bool deletes = false;
	ctl_status st;

	if (n > CTL_BATCH_MAX)
		return CTL_INVAL;
	for (unsigned i = 0; i < n; i++)
		deletes |= orders[i].type == CTL_DELETE;
	/* Before the check of the instance. A newer instance that finds no deletes counted here
	 * then meets none: any later batch of an older instance fails the check. */
	atomic_fetch_add(&f->fs_deleting, deletes);
	st = orders_do(f, instance, orders, n, results);
	atomic_fetch_sub(&f->fs_deleting, deletes);
	return st;
}

int ds_obj_set_size(struct ds_obj *o, uint64_t size)
{
	int fd = ds_obj_reopen(o), err;
	struct ds_change c;

	if (fd < 0)
		return fd == -ENOENT ? -ESTALE : fd;
	err = ds_change_begin(&c, o, size, EXTENT_END, 0);
	if (!err && ftruncate(fd, (off_t)size) < 0) {
		err = -errno;
		ds_obj_note_failed(o, err);
	}
	ds_change_end(&c);
	if (err) {
		err = err == -ENOLINK || err == -ENOBUFS ? -EAGAIN : err;
	} else if (fsync(fd) < 0) {
		err = -errno;
		metric_add(ds_m_sync_failures, 1);
		ds_health_note(o->ob_vol, true, err);
		ds_verifier_change(o->ob_store);
	}
	close(fd);
	atomic_store(&o->ob_news, true);
	return err ? err : ds_obj_sync_dirs(o);
}

/* ---- stat ---- */

void ds_store_stat(struct ds_store *s, const ctl_object *obj, ctl_stat *out)
{
	struct cap_object key;
	struct ds_obj *o;
	struct stat st;
	int err;

	memset(out, 0, sizeof(*out));
	out->status = CTL_INVAL;
	if (!ds_key_of(obj, &key))
		return;
	err = ds_obj_get_any(s, &key, DS_MAKE_NOT, NULL, &o);
	if (err) {
		out->status = err == -ENOENT || err == -ESTALE ? CTL_NOENT : ds_ctl_status(err);
		return;
	}
	err = ds_obj_count(o, &st, &out->writes);
	if (!err) {
		out->durable = ds_obj_durable(o);
		out->size = (uint64_t)st.st_size;
		out->used = (uint64_t)st.st_blocks * 512;
		out->epoch = ds_obj_epoch(o);
	}
	out->status = err			 ? ds_ctl_status(err)
		      : ds_obj_rebuilding(o)	 ? CTL_REBUILDING
		      : atomic_load(&o->ob_lost) ? CTL_LOST
						 : CTL_OK;
	ds_obj_put(o);
}

/* ---- list ---- */

/* The cookie: version, number of the volume, folder (2 bytes), name of the last object listed. */
#define LIST_VERSION 2
/* The limit for one answer: other requests wait for this worker. */
#define LIST_FOLDERS 4096
struct list_cookie {
	uint8_t lc_version, lc_volume, lc_folder[2];
	char lc_name[OBJNAME_LEN];
};
_Static_assert(sizeof(struct list_cookie) == 31 && sizeof(struct list_cookie) <= 64,
	       "ctl_list_args.cookie");

static bool name_parse(const char *name, uint16_t folder, struct cap_object *key)
{
	char check[OBJNAME_LEN + 1];
	unsigned inc, stripe, mirror;
	uint64_t ino;

	if (strlen(name) != OBJNAME_LEN ||
	    sscanf(name, "%16" SCNx64 ".%4x.%2x.%2x", &ino, &inc, &stripe, &mirror) != 4)
		return false;
	*key = (struct cap_object){
		.co_ino = ino,
		.co_fs = cap_fs_of(ino),
		.co_incarnation = (uint16_t)inc,
		.co_stripe = (uint8_t)stripe,
		.co_copy = (uint8_t)mirror,
	};
	objname(key, check);
	return !strcmp(check, name) && objname_folder(ino) == folder;
}

static int name_compare(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* All names of a folder, sorted; malloc'd. A missing folder is empty. */
static int folder_names(struct ds_vol *v, uint16_t folder, char (**names)[OBJNAME_LEN + 1],
			size_t *n)
{
	int fd = ds_dir_open(v, folder, false);
	size_t cap = 0;
	struct dirent *d;
	DIR *dir;

	*names = NULL;
	*n = 0;
	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	dir = fdopendir(fd);
	if (!dir) {
		close(fd);
		return -ENOMEM;
	}
	while ((d = readdir(dir))) {
		if (strlen(d->d_name) != OBJNAME_LEN)
			continue;
		if (*n == cap) {
			char(*more)[OBJNAME_LEN + 1] =
				realloc(*names, (cap = cap ? 2 * cap : 64) * sizeof(**names));

			if (!more) {
				closedir(dir);
				free(*names);
				return -ENOMEM;
			}
			*names = more;
		}
		strcpy((*names)[(*n)++], d->d_name);
	}
	closedir(dir);
	if (*n)
		qsort(*names, *n, sizeof(**names), name_compare);
	return 0;
}

/* False: no object of this file system. */
static bool list_entry(struct ds_vol *v, uint32_t fs, const char *name, uint16_t folder,
		       ctl_list_entry *e)
{
	struct cap_object key;
	char path[OBJPATH_MAX];
	struct stat st;

	if (!name_parse(name, folder, &key) || key.co_fs != fs)
		return false;
	objpath(&key, path);
	if (fstatat(v->v_dirfd, path, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
		return false;
	*e = (ctl_list_entry){
		.object = {.ino = key.co_ino,
			   .fs = key.co_fs,
			   .incarnation = key.co_incarnation,
			   .stripe = key.co_stripe,
			   .mirror = key.co_copy},
		.size = (uint64_t)st.st_size,
	};
	return true;
}

static void list_here(struct ds_vol *v, struct list_cookie *c, unsigned folder)
{
	c->lc_volume = (uint8_t)v->v_number;
	c->lc_folder[0] = (uint8_t)(folder >> 8);
	c->lc_folder[1] = (uint8_t)folder;
}

/* True if XX of XX/YY does not exist: a small store has few of them. */
static bool no_parent(const struct ds_vol *v, uint16_t folder)
{
	char path[3];

	snprintf(path, sizeof(path), "%02x", folder >> 8);
	return faccessat(v->v_objfd, path, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
}

/* Lists one volume, from the place in c. *left: how many more folders it may read. 1: there may be
 * more objects, and c says where. */
static int list_volume(struct ds_vol *v, uint32_t fs, struct list_cookie *c, unsigned max,
		       ctl_list_entry *entries, unsigned *n, unsigned *left)
{
	char last[OBJNAME_LEN + 1] = "";

	memcpy(last, c->lc_name, OBJNAME_LEN);
	for (unsigned f = (unsigned)c->lc_folder[0] << 8 | c->lc_folder[1]; f <= UINT16_MAX;
	     f++, *last = 0) {
		char(*names)[OBJNAME_LEN + 1];
		size_t count;
		int err;

		if (!*left) {
			if (!*last)
				memset(c->lc_name, 0, OBJNAME_LEN);
			list_here(v, c, f);
			return 1;
		}
		--*left;
		if (!*last && !(f & 255) && no_parent(v, (uint16_t)f)) {
			f |= 255;
			continue;
		}
		err = folder_names(v, (uint16_t)f, &names, &count);
		if (err)
			return err;
		for (size_t i = 0; i < count && *n < max; i++) {
			if (strcmp(names[i], last) <= 0 ||
			    !list_entry(v, fs, names[i], (uint16_t)f, &entries[*n]))
				continue;
			++*n;
			memcpy(c->lc_name, names[i], OBJNAME_LEN);
		}
		free(names);
		if (*n == max) {
			list_here(v, c, f);
			return 1;
		}
	}
	return 0;
}

int ds_store_list(struct ds_fs *f, const void *cookie_in, unsigned inlen, unsigned max,
		  ctl_list_entry *entries, unsigned *n, uint8_t cookie_out[64], unsigned *outlen)
{
	struct ds_store *s = f->fs_store;
	struct list_cookie c = {.lc_version = LIST_VERSION};
	unsigned left = LIST_FOLDERS;
	int more = 0;

	*n = *outlen = 0;
	if (!max || (inlen && inlen != sizeof(c)))
		return -EINVAL;
	if (inlen)
		memcpy(&c, cookie_in, sizeof(c));
	if (c.lc_version != LIST_VERSION)
		return -EINVAL;
	for (unsigned i = 0; i < s->s_nvols && !more; i++) {
		struct ds_vol *v = s->s_vol[i];

		if (v->v_number < c.lc_volume)
			continue;
		if (v->v_number > c.lc_volume)
			c = (struct list_cookie){.lc_version = LIST_VERSION,
						 .lc_volume = (uint8_t)v->v_number};
		more = list_volume(v, ds_fs_number(f), &c, max, entries, n, &left);
		if (more < 0)
			return more;
	}
	if (more) {
		memcpy(cookie_out, &c, sizeof(c));
		*outlen = sizeof(c);
	}
	return 0;
}
