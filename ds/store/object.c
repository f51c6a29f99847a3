/* SPDX-License-Identifier: Apache-2.0 */
/*
 * object.c - the table of objects in memory, and opening their files.
 *
 * Connections, not objects, are spread over the loops, so any loop may need any object. The table
 * is cut into shards, each with a lock that is held for a few dozen instructions. A call comes here
 * only for an object that no other call of its loop uses (hold.c).
 *
 * Unused objects stay open. A shard that has more of them than its part of so_max_open closes the
 * oldest one. Before a worker closes the file of an object with unstable data, it syncs the file.
 * The kernel reports a failed write-back only on descriptors that are open then, and that failure
 * must change the verifier.
 *
 * Known cost: the loop itself opens an object that is not in memory, under its shard's lock
 * (openat, in one volume after another, and fgetxattr; for the first object of a folder, also a
 * mkdir). These calls are short if the folder and the inode are cached; else each reads the disk.
 * The cure is to use IORING_OP_OPENAT and FGETXATTR, with the object parked in the table.
 */
#include "base/clock.h"
#include "base/log.h"
#include "ds/store/store_int.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#define COUNTED_SHIFT 32
#define DFD_UNOPENED  (-1)
#define DFD_NONE      (-2)

uint64_t ds_key_hash(const struct cap_object *o)
{
	return hash_u64(hash_u64(o->co_ino) + ((uint64_t)o->co_fs << 32 |
					       (uint32_t)o->co_incarnation << 16 |
					       (uint32_t)o->co_stripe << 8 | o->co_copy));
}

bool ds_key_equal(const struct cap_object *a, const struct cap_object *b)
{
	return a->co_ino == b->co_ino && a->co_fs == b->co_fs &&
	       a->co_incarnation == b->co_incarnation && a->co_stripe == b->co_stripe &&
	       a->co_copy == b->co_copy;
}

/* The low bits of the hash choose the slot in a shard's table. */
static struct ds_shard *shard_of(struct ds_store *s, uint64_t hash)
{
	return &s->s_shard[(hash >> 48) % DS_SHARDS];
}

int ds_objects_init(struct ds_store *s, unsigned max_idle)
{
	for (unsigned i = 0; i < DS_SHARDS; i++) {
		struct ds_shard *sh = &s->s_shard[i];

		pthread_mutex_init(&sh->sh_lock, NULL);
		sh->sh_max_idle = (max_idle + DS_SHARDS - 1) / DS_SHARDS;
		sh->sh_max_idle += !sh->sh_max_idle;
	}
	return ds_claims_init(s);
}

/* ---- folders ---- */

bool ds_dir_is_durable(struct ds_vol *v, uint16_t folder)
{
	return atomic_load_explicit(&v->v_dir_durable[folder / 8], memory_order_relaxed) &
	       1u << folder % 8;
}

void ds_dir_set_durable(struct ds_vol *v, uint16_t folder)
{
	atomic_fetch_or(&v->v_dir_durable[folder / 8], (uint8_t)(1u << folder % 8));
}

int ds_dir_open(struct ds_vol *v, uint16_t folder, bool parent)
{
	char path[8];
	int fd;

	snprintf(path, sizeof(path), parent ? "%02x" : "%02x/%02x", folder >> 8, folder & 255);
	fd = openat(v->v_objfd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int dir_fsync(struct ds_vol *v, uint16_t folder, bool parent)
{
	int fd = ds_dir_open(v, folder, parent), err = 0;

	if (fd < 0)
		return fd;
	if (fsync(fd) < 0)
		err = -errno;
	close(fd);
	return err;
}

bool ds_obj_durable(struct ds_obj *o)
{
	bool durable;

	pthread_mutex_lock(&o->ob_lock);
	durable = !o->ob_dir_unsynced;
	pthread_mutex_unlock(&o->ob_lock);
	return durable;
}

int ds_obj_sync_dirs(struct ds_obj *o)
{
	struct ds_vol *v = o->ob_vol;
	uint16_t folder = objname_folder(o->ob_key.co_ino);
	int err;

	if (ds_obj_durable(o))
		return 0;
	err = dir_fsync(v, folder, false);
	if (!err && !ds_dir_is_durable(v, folder)) {
		err = dir_fsync(v, folder, true);
		if (!err)
			ds_dir_set_durable(v, folder);
	}
	if (err)
		return err;
	pthread_mutex_lock(&o->ob_lock);
	o->ob_dir_unsynced = false;
	pthread_mutex_unlock(&o->ob_lock);
	return 0;
}

/* ---- the xattr ---- */

int ds_meta_put(int fd, uint32_t epoch, uint64_t order, uint8_t flags, uint32_t begun)
{
	struct ds_meta m = {.m_version =
				    flags & DS_META_LOST ? DS_META_VERSION_LOST : DS_META_VERSION,
			    .m_flags = flags,
			    .m_epoch = htobe32(epoch),
			    .m_order = htobe64(order),
			    .m_begun = htobe32(begun)};

	return fsetxattr(fd, DS_XATTR, &m, sizeof(m), 0) < 0 ? -errno : 0;
}

int ds_obj_meta_put(struct ds_obj *o, int fd, uint64_t order, uint8_t flags, uint32_t begun)
{
	uint32_t epoch;
	int err;

	pthread_mutex_lock(&o->ob_meta_lock);
	epoch = atomic_load(&o->ob_epoch);
	err = ds_meta_put(fd, epoch, order, flags, begun);
	if (!err)
		o->ob_put = (struct ds_put){
			.pu_order = order, .pu_epoch = epoch, .pu_begun = begun, .pu_flags = flags};
	pthread_mutex_unlock(&o->ob_meta_lock);
	return err;
}

void ds_obj_raise(struct ds_obj *o, uint32_t epoch)
{
	uint32_t was = atomic_load(&o->ob_epoch);

	while (was < epoch && !atomic_compare_exchange_weak(&o->ob_epoch, &was, epoch))
		;
}

uint32_t ds_obj_put_epoch(struct ds_obj *o)
{
	uint32_t epoch;

	pthread_mutex_lock(&o->ob_meta_lock);
	epoch = o->ob_put.pu_epoch;
	pthread_mutex_unlock(&o->ob_meta_lock);
	return epoch;
}

uint8_t ds_obj_flags(const struct ds_obj *o)
{
	return (uint8_t)((atomic_load(&o->ob_rebuilding) ? DS_META_REBUILDING : 0) |
			 (atomic_load(&o->ob_lost) ? DS_META_LOST : 0));
}

static int meta_get(int fd, struct ds_obj *o)
{
	struct ds_meta m = {0};
	ssize_t n = fgetxattr(fd, DS_XATTR, &m, sizeof(m));

	if (n < 0)
		return errno == ENODATA ? 0 : -errno;
	if (n == DS_META_LEN1 && m.m_version == 1)
		m.m_flags = 0;
	else if (n != sizeof(m) ||
		 (m.m_version != DS_META_VERSION && m.m_version != DS_META_VERSION_LOST))
		return -EPROTONOSUPPORT;
	atomic_init(&o->ob_epoch, be32toh(m.m_epoch));
	atomic_init(&o->ob_rebuilding, m.m_flags & DS_META_REBUILDING);
	atomic_init(&o->ob_lost, m.m_flags & DS_META_LOST);
	o->ob_order = be64toh(m.m_order);
	o->ob_begun = be32toh(m.m_begun);
	o->ob_put = (struct ds_put){.pu_order = o->ob_order,
				    .pu_epoch = be32toh(m.m_epoch),
				    .pu_begun = o->ob_begun,
				    .pu_flags = m.m_flags};
	return 0;
}

/* ---- opening and closing ---- */

/* No readahead: a page that the kernel reads ahead while a direct write changes it would be
 * stale. */
static int no_readahead(int fd)
{
	if (fd >= 0)
		posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
	return fd;
}

/* *made: the file did not exist before. at: the volume in which to make it; NULL: any. */
static int object_file_open(struct ds_store *s, const struct cap_object *key, enum ds_make make,
			    bool *made, struct ds_vol *at, struct ds_vol **vol)
{
	int fd = ds_vol_find(s, key, vol);

	if (fd == -ENOENT && make != DS_MAKE_NOT) {
		fd = ds_vol_make(s, key, make == DS_MAKE_LOST, at, vol);
		*made = fd >= 0;
	}
	return no_readahead(fd);
}

int ds_obj_reopen(const struct ds_obj *o)
{
	char path[OBJPATH_MAX];
	int fd;

	objpath(&o->ob_key, path);
	fd = openat(o->ob_vol->v_dirfd, path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 ? -errno : no_readahead(fd);
}

static void obj_free(struct ds_obj *o)
{
	int dfd = atomic_load(&o->ob_dfd);

	if (dfd >= 0)
		close(dfd);
	close(o->ob_fd);
	atomic_fetch_sub(&o->ob_store->s_open, 1);
	pthread_mutex_destroy(&o->ob_lock);
	pthread_mutex_destroy(&o->ob_meta_lock);
	free(o);
}

static void close_job(struct ds_job *j)
{
	struct ds_obj *o = (struct ds_obj *)((char *)j - offsetof(struct ds_obj, ob_close));

	if (!atomic_load(&o->ob_deleted) && fdatasync(o->ob_fd) < 0) {
		int err = -errno;

		log_error("store: cannot sync object %016" PRIx64 ": %s", o->ob_key.co_ino,
			  strerror(-err));
		metric_add(ds_m_sync_failures, 1);
		ds_health_note(o->ob_vol, true, err);
		ds_verifier_change(o->ob_store);
	}
	obj_free(o);
}

/* The object is in no table and has no references. The last close of a deleted file frees its
 * blocks, which takes time: a worker does it. */
static void obj_close(struct ds_obj *o)
{
	if (!atomic_load(&o->ob_unsynced) && !atomic_load(&o->ob_deleted)) {
		obj_free(o);
		return;
	}
	o->ob_close.jb_run = close_job;
	ds_store_submit(o->ob_store, DS_WORKER_QUERIES, &o->ob_close);
}

/*
 * The MDS compares the write count that STAT reports for inequality only. The count must differ
 * after each write. Without a write it should stay the same, also when this daemon was restarted or
 * killed: the MDS takes a new count for a new mtime.
 *
 * The count is the file's mtime in ns, or a later time that then becomes the mtime. Orders leave
 * the mtime alone; a file that an order made and no client wrote has 0. Only a crash of the machine
 * may lose an mtime whose data is on the disk. So after a crash, the number of the boot that
 * followed it (s_counted, store.c) is added, 4 s for each boot, and all counts change once.
 *
 * A daemon that is started again after a kill knows only the mtime. So no reported count may equal
 * the mtime of a write that ends later. The kernel sets the mtime when a write begins, from a clock
 * that may stand still for 10 ms. So the mtime itself is reported (and kept in ob_stored) only if
 * its tick is over and no write is under way. Otherwise the present time in ns, which no tick has,
 * is reported (ob_told). It is then made the mtime, and any write that begins later changes that.
 * Or, while a write that has set its mtime is under way, the time is reported and not stored: then
 * a kill changes the count once too often, but never once too rarely.
 */
int ds_mtime_set(int fd, uint64_t ns)
{
	struct timespec ts[2] = {
		{.tv_nsec = UTIME_OMIT},
		{.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)}};

	return futimens(fd, ts) < 0 ? -errno : 0;
}

/* True if no write that begins now can get this mtime. Some file systems keep only seconds. */
static bool tick_over(uint64_t ns)
{
	return ns + (ns % 1000000000u ? 0 : 1000000000u) < clock_of(CLOCK_REALTIME_COARSE);
}

/* Makes the reported count the mtime, unless a write came first. shared: there may be writes. */
static void count_store(struct ds_obj *o, struct stat *st, bool shared)
{
	static _Atomic uint64_t last;
	int err = ds_mtime_set(o->ob_fd, o->ob_told);

	if (!err && fstat(o->ob_fd, st) < 0)
		err = -errno;
	if (!err)
		o->ob_stored = ds_mtime_ns(st);
	else if (log_due(&last))
		log_warn("store: object %016" PRIx64 ": cannot store its write count: %s",
			 o->ob_key.co_ino, strerror(-err));
	/* The only trace of a write that began earlier may be the mtime that was just replaced. So
	 * report a count that differs from the stored mtime. */
	if (shared && (ds_range_writing(o) || atomic_load(&o->ob_news)))
		o->ob_told++;
}

/* The count to report. news: a write has ended since the last report. */
static uint64_t object_count_of(struct ds_obj *o, struct stat *st, bool news, bool shared)
{
	uint64_t ns = ds_mtime_ns(st), now, least;
	bool changed = news || ns != o->ob_stored, over, busy;

	if (!changed && o->ob_told == ns)
		return ns;
	/* Check the tick first: a write that begins after the check for writes under way then
	 * begins in a later tick. */
	over = tick_over(ns);
	busy = shared && ds_range_writing(o);
	if (changed) {
		o->ob_stored = ns;
		if (over && !busy && ns > o->ob_told)
			return o->ob_told = ns;
		now = clock_of(CLOCK_REALTIME);
		least = (ns > o->ob_told ? ns : o->ob_told) + 1;
		o->ob_told = now > least ? now : least;
	}
	if (!busy)
		count_store(o, st, shared);
	return o->ob_told;
}

int ds_obj_count(struct ds_obj *o, struct stat *st, uint64_t *count)
{
	/* Before fstat: a write that ends in between changes the count once too often, not once too
	 * rarely. */
	bool news = atomic_exchange(&o->ob_news, false);
	uint64_t ns;

	if (fstat(o->ob_fd, st) < 0)
		return -errno;
	ns = object_count_of(o, st, news, true);
	*count = ns ? ns + ((uint64_t)o->ob_store->s_counted << COUNTED_SHIFT) : 0;
	return 0;
}

/* Under the shard's lock, before a lookup can load the object again: no write is under way. */
static void count_keep(struct ds_obj *o)
{
	bool news = atomic_load(&o->ob_news);
	struct stat st;

	if ((news || o->ob_told != o->ob_stored) && !atomic_load(&o->ob_deleted) &&
	    fstat(o->ob_fd, &st) == 0)
		object_count_of(o, &st, news, false);
}

static int object_count_load(struct ds_obj *o, bool made)
{
	struct stat st;

	if (made)
		return ds_mtime_set(o->ob_fd, 0);
	if (fstat(o->ob_fd, &st) < 0)
		return -errno;
	o->ob_told = o->ob_stored = ds_mtime_ns(&st);
	return 0;
}

void ds_obj_wrote(struct ds_obj *o)
{
	atomic_store(&o->ob_unsynced, atomic_fetch_add(&o->ob_writes, 1) + 1);
	atomic_store(&o->ob_news, true);
}

int ds_obj_cut(int fd, uint64_t size)
{
	struct stat st;

	if (fstat(fd, &st) < 0 || ftruncate(fd, (off_t)size) < 0)
		return -errno;
	return ds_mtime_set(fd, ds_mtime_ns(&st));
}

static int obj_load(struct ds_store *s, struct ds_shard *sh, const struct cap_object *key,
		    enum ds_make make, struct ds_vol *at, bool any, struct ds_obj **out)
{
	struct ds_vol *vol;
	struct ds_obj *o;
	bool made = false;
	int fd, err;

	/* Check the tombstones, not the file: the file may still exist while its delete is under
	 * way. */
	if (ds_tomb_bars(s, key, any && make != DS_MAKE_NOT))
		return -ESTALE;
	fd = object_file_open(s, key, make, &made, at, &vol);
	if (fd < 0)
		return fd;
	o = aligned_alloc(64, sizeof(*o));
	if (!o) {
		close(fd);
		return -ENOMEM;
	}
	memset(o, 0, sizeof(*o));
	ds_range_init(o);
	o->ob_store = s;
	o->ob_vol = vol;
	o->ob_key = *key;
	o->ob_fd = fd;
	err = object_count_load(o, made);
	if (err) {
		ds_health_note(vol, made, err);
		close(fd);
		free(o);
		return err;
	}
	err = meta_get(fd, o);
	if (err) {
		log_error("store: object %016" PRIx64 ": cannot read its extended attribute %s: %s",
			  key->co_ino, DS_XATTR, strerror(-err));
		ds_health_note(vol, false, err);
		close(fd);
		free(o);
		return -EIO;
	}
	ds_obj_raise(o, ds_owed_epoch(s, key));
	atomic_init(&o->ob_dfd, DFD_UNOPENED);
	o->ob_shard = sh;
	o->ob_refs = 1;
	/* Also if the file existed: the boot that made it may have ended before its name was
	 * durable. */
	o->ob_dir_unsynced = true;
	pthread_mutex_init(&o->ob_lock, NULL);
	pthread_mutex_init(&o->ob_meta_lock, NULL);
	atomic_fetch_add(&s->s_open, 1);
	if (any && make != DS_MAKE_NOT)
		ds_tomb_drop(s, key);
	*out = o;
	return 0;
}

int ds_obj_direct_fd(struct ds_obj *o)
{
	struct ds_vol *v = o->ob_vol;
	int fd = atomic_load(&o->ob_dfd), expect = DFD_UNOPENED;
	char path[OBJPATH_MAX];

	if (fd != DFD_UNOPENED)
		return fd;
	if (!atomic_load(&v->v_direct))
		return DFD_NONE;
	objpath(&o->ob_key, path);
	/* Open it by its name, which never names another file; the name is gone if the object was
	 * deleted meanwhile. */
	fd = openat(v->v_dirfd, path, O_RDWR | O_DIRECT | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0) {
		if (errno == EINVAL && atomic_exchange(&v->v_direct, false))
			log_warn("store: %s: the file system has no O_DIRECT; using buffered I/O",
				 v->v_dir);
		fd = DFD_NONE;
	}
	if (!atomic_compare_exchange_strong(&o->ob_dfd, &expect, fd)) {
		if (fd >= 0)
			close(fd);
		return expect;
	}
	return fd;
}

/* ---- the table ---- */

static struct ds_obj *lookup(struct ds_shard *sh, const struct cap_object *key, uint64_t hash)
{
	struct hash_link *l = hash_first(&sh->sh_hash, hash);

	for (; l; l = hash_next(l)) {
		struct ds_obj *o = hash_entry(l, struct ds_obj, ob_link);

		if (ds_key_equal(&o->ob_key, key))
			return o;
	}
	return NULL;
}

static void lru_del(struct ds_shard *sh, struct ds_obj *o)
{
	*(o->ob_newer ? &o->ob_newer->ob_older : &sh->sh_newest) = o->ob_older;
	*(o->ob_older ? &o->ob_older->ob_newer : &sh->sh_oldest) = o->ob_newer;
	o->ob_newer = o->ob_older = NULL;
	sh->sh_idle--;
}

static void lru_add(struct ds_shard *sh, struct ds_obj *o)
{
	o->ob_older = sh->sh_newest;
	o->ob_newer = NULL;
	*(sh->sh_newest ? &sh->sh_newest->ob_newer : &sh->sh_oldest) = o;
	sh->sh_newest = o;
	sh->sh_idle++;
}

/* Takes o out of the table. */
static void unhash(struct ds_shard *sh, struct ds_obj *o)
{
	count_keep(o);
	hash_del(&sh->sh_hash, &o->ob_link);
	o->ob_hashed = false;
}

static struct ds_obj *evict_oldest(struct ds_shard *sh)
{
	struct ds_obj *o = sh->sh_oldest;

	if (o) {
		lru_del(sh, o);
		unhash(sh, o);
	}
	return o;
}

static int load_hashed(struct ds_store *s, struct ds_shard *sh, const struct cap_object *key,
		       uint64_t hash, enum ds_make make, struct ds_vol *at, bool any,
		       struct ds_obj **out)
{
	int err = obj_load(s, sh, key, make, at, any, out);

	/* Out of descriptors: close an unused object of this shard. */
	if ((err == -EMFILE || err == -ENFILE) && sh->sh_oldest) {
		obj_close(evict_oldest(sh));
		err = obj_load(s, sh, key, make, at, any, out);
	}
	if (err)
		return err;
	if (hash_add(&sh->sh_hash, &(*out)->ob_link, hash)) {
		obj_free(*out);
		return -ENOMEM;
	}
	(*out)->ob_hashed = true;
	return 0;
}

/* Out of descriptors: closes the oldest unused object of each shard. */
static void room_make(struct ds_store *s)
{
	for (unsigned i = 0; i < DS_SHARDS; i++) {
		struct ds_shard *sh = &s->s_shard[i];
		struct ds_obj *gone;

		pthread_mutex_lock(&sh->sh_lock);
		gone = evict_oldest(sh);
		pthread_mutex_unlock(&sh->sh_lock);
		if (gone)
			obj_close(gone);
	}
}

static int obj_load_again(struct ds_store *s, struct ds_shard *sh, const struct cap_object *key,
			  uint64_t hash, enum ds_make make, struct ds_vol *at, bool any,
			  struct ds_obj **out)
{
	int err = 0;

	room_make(s);
	pthread_mutex_lock(&sh->sh_lock);
	*out = lookup(sh, key, hash);
	if (!*out)
		err = load_hashed(s, sh, key, hash, make, at, any, out);
	else if (!(*out)->ob_refs++)
		lru_del(sh, *out);
	pthread_mutex_unlock(&sh->sh_lock);
	return err;
}

/* Inline: most calls find the object in memory, where volumes cost them nothing. */
static inline __attribute__((always_inline)) int obj_get(struct ds_store *s,
							 const struct cap_object *key,
							 enum ds_make make, struct ds_vol *at,
							 bool any, struct ds_obj **out)
{
	uint64_t hash = ds_key_hash(key);
	struct ds_shard *sh = shard_of(s, hash);
	struct ds_obj *o;
	int err = 0;

	pthread_mutex_lock(&sh->sh_lock);
	o = lookup(sh, key, hash);
	if (!o)
		err = load_hashed(s, sh, key, hash, make, at, any, &o);
	else if (!o->ob_refs++)
		lru_del(sh, o);
	pthread_mutex_unlock(&sh->sh_lock);
	if (err == -EMFILE || err == -ENFILE)
		err = obj_load_again(s, sh, key, hash, make, at, any, &o);
	if (!err && !any && atomic_load(&o->ob_lost)) {
		ds_obj_put(o);
		err = -ESTALE;
	}
	*out = err ? NULL : o;
	return err;
}

int ds_obj_get(struct ds_store *s, const struct cap_object *key, bool create, struct ds_obj **out)
{
	return obj_get(s, key, create ? DS_MAKE_NEW : DS_MAKE_NOT, NULL, false, out);
}

int ds_obj_get_at(struct ds_store *s, const struct cap_object *key, bool create, struct ds_vol *at,
		  struct ds_obj **out)
{
	return obj_get(s, key, create ? DS_MAKE_NEW : DS_MAKE_NOT, at, false, out);
}

int ds_obj_get_any(struct ds_store *s, const struct cap_object *key, enum ds_make make,
		   struct ds_vol *at, struct ds_obj **out)
{
	return obj_get(s, key, make, at, true, out);
}

bool ds_obj_lost(struct ds_store *s, const struct cap_object *key)
{
	struct ds_obj *o;
	bool lost = !ds_obj_get_any(s, key, DS_MAKE_NOT, NULL, &o) && atomic_load(&o->ob_lost);

	if (o)
		ds_obj_put(o);
	return lost;
}

void ds_obj_put(struct ds_obj *o)
{
	struct ds_shard *sh = o->ob_shard;
	struct ds_obj *gone = NULL;

	pthread_mutex_lock(&sh->sh_lock);
	if (!--o->ob_refs) {
		if (!o->ob_hashed) {
			gone = o;
		} else {
			lru_add(sh, o);
			if (sh->sh_idle > sh->sh_max_idle)
				gone = evict_oldest(sh);
		}
	}
	pthread_mutex_unlock(&sh->sh_lock);
	if (gone)
		obj_close(gone);
}

int ds_obj_kill(struct ds_store *s, const struct cap_object *key, uint64_t order)
{
	uint64_t hash = ds_key_hash(key);
	struct ds_shard *sh = shard_of(s, hash);
	struct ds_obj *o;
	int err;

	pthread_mutex_lock(&sh->sh_lock);
	err = ds_tomb_add(s, key, order);
	o = err ? NULL : lookup(sh, key, hash);
	if (o) {
		atomic_store(&o->ob_deleted, true);
		if (!o->ob_refs++)
			lru_del(sh, o);
		unhash(sh, o);
	}
	pthread_mutex_unlock(&sh->sh_lock);
	if (o)
		ds_obj_put(o);
	return err;
}

/* With ob_meta_lock held. Removes the object's file for good. */
static int remake_unlink(struct ds_obj *o, uint32_t epoch, struct stat *st)
{
	char path[OBJPATH_MAX];
	int err;

	if (atomic_load(&o->ob_epoch) > epoch)
		return -EALREADY;
	count_keep(o);
	objpath(&o->ob_key, path);
	if (fstat(o->ob_fd, st) < 0 ||
	    (unlinkat(o->ob_vol->v_dirfd, path, 0) < 0 && errno != ENOENT))
		return -errno;
	err = dir_fsync(o->ob_vol, objname_folder(o->ob_key.co_ino), false);
	if (err)
		/* Keep the object in the table as long as this daemon runs. A lookup that missed it
		 * would create it again, and the disk may still have the old file. */
		o->ob_refs++;
	else
		atomic_store(&o->ob_deleted, true);
	return err;
}

/*
 * Remakes an object in another volume. The old file is gone for good before the new one exists: if
 * two volumes had the object, nothing could say which one counts. A crash in between leaves no
 * file, and the MDS sends the order again, with its epoch. A higher epoch would then be lost: a
 * fence may be confirmed before an older order runs, and the MDS does not send it again. So an
 * object with a higher epoch is not remade. ob_meta_lock keeps a fence that comes meanwhile from
 * being stored in the old file: the fence finds the new one.
 */
static int remake(struct ds_obj *o, struct ds_vol *v, uint32_t epoch, struct ds_obj **out)
{
	struct ds_shard *sh = o->ob_shard;
	struct stat st;
	int err;

	if (!o->ob_hashed)
		return -ESTALE;
	pthread_mutex_lock(&o->ob_meta_lock);
	err = remake_unlink(o, epoch, &st);
	pthread_mutex_unlock(&o->ob_meta_lock);
	if (err)
		return err;
	unhash(sh, o);
	err = load_hashed(o->ob_store, sh, &o->ob_key, ds_key_hash(&o->ob_key), DS_MAKE_NEW, v,
			  false, out);
	/* Before a lookup can find it: fence the new object as the old one was. */
	if (!err)
		ds_obj_raise(*out, atomic_load(&o->ob_epoch));
	/* No flags: an object that is being rebuilt, or is lost, is never remade. */
	if (!err)
		err = ds_obj_meta_put(*out, (*out)->ob_fd, o->ob_order, 0, o->ob_begun);
	if (!err) {
		err = ds_mtime_set((*out)->ob_fd, ds_mtime_ns(&st));
		(*out)->ob_told = (*out)->ob_stored = ds_mtime_ns(&st);
		(*out)->ob_order = (*out)->ob_order_new = o->ob_order;
		(*out)->ob_begun = o->ob_begun;
	}
	return err;
}

int ds_obj_remake(struct ds_obj *o, struct ds_vol *v, uint32_t epoch, struct ds_obj **out)
{
	int err;

	*out = NULL;
	pthread_mutex_lock(&o->ob_shard->sh_lock);
	err = remake(o, v, epoch, out);
	pthread_mutex_unlock(&o->ob_shard->sh_lock);
	if (err && err != -EALREADY)
		ds_health_note(*out ? v : o->ob_vol, true, err);
	if (err && *out)
		ds_obj_put(*out);
	return err;
}

void ds_objects_drop(struct ds_store *s)
{
	for (unsigned i = 0; i < DS_SHARDS; i++) {
		struct ds_shard *sh = &s->s_shard[i];
		struct ds_obj *o;

		while ((o = evict_oldest(sh)))
			obj_close(o);
		free(sh->sh_hash.h_slot);
	}
}

/* ---- small queries ---- */

uint32_t ds_obj_epoch(const struct ds_obj *o)
{
	return atomic_load(&o->ob_epoch);
}

bool ds_obj_deleted(const struct ds_obj *o)
{
	return atomic_load(&o->ob_deleted);
}

int ds_obj_stat(const struct ds_obj *o, struct stat *st)
{
	return fstat(o->ob_fd, st) < 0 ? -errno : 0;
}
