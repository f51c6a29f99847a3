/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_lmdb.c - opens, reads and writes the store, on LMDB.
 *
 * A store is a folder: data.mdb and lock.mdb are LMDB's; the one writer holds flock on LOCK, which
 * contains its pid. All pairs are in LMDB's unnamed database. One of them is the store's own: the
 * key "\0weft" holds a magic and the version of the format.
 *
 * The redo log makes commits durable (kv_redo.c): LMDB itself does not sync. With ko_nosync there
 * is no log.
 *
 * Caveat: LMDB reads through the map. There, a read error of the disk is a SIGBUS, not an errno.
 */
#include "base/count.h"
#include "base/log.h"
#include "kv/kv_int.h"
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define KV_MAP_DEFAULT (64ull << 30) /* the sanitizers' maps leave no larger piece free */
#else
#define KV_MAP_DEFAULT (1ull << 40)
#endif
#define KV_MAP_LEAST (1ull << 30)
#define KV_READERS   1024
/* Version 1 has no log. A program that knows only version 1 must not open a store that needs its
 * log. */
#define KV_FORMAT 2

/* Counts a part of the committer's time, where it calls LMDB for a member of a batch. */
#define PART(t, part)                                                                              \
	do {                                                                                       \
		if ((t)->t_write)                                                                  \
			COUNT_PART(part);                                                          \
	} while (0)

static const char meta_key[] = {0, 'w', 'e', 'f', 't'};

/* On disk, little endian. */
struct meta {
	char m_magic[8];
	uint8_t m_version[4];
	uint8_t m_zero[4];
};
_Static_assert(sizeof(struct meta) == 16, "format");
static const char meta_magic[8] = "WEFT-KV";

int kv_errno(int rc)
{
	if (rc >= 0)
		return -rc;
	switch (rc) {
	case MDB_NOTFOUND:
		return -ENOENT;
	case MDB_KEYEXIST:
		return -EEXIST;
	case MDB_MAP_FULL:
		return -ENOSPC;
	case MDB_TXN_FULL:
		return -E2BIG;
	case MDB_READERS_FULL:
		return -EUSERS;
	case MDB_VERSION_MISMATCH:
	case MDB_INVALID:
		return -EPROTO;
	case MDB_BAD_TXN:
	case MDB_BAD_VALSIZE:
	case MDB_BAD_RSLOT:
		return -EINVAL;
	}
	return -EIO; /* MDB_CORRUPTED, MDB_PAGE_NOTFOUND, MDB_PANIC and unexpected errors */
}

static MDB_val to_mdb(struct kv_slice s)
{
	return (MDB_val){.mv_size = s.s_len, .mv_data = (void *)s.s_data};
}

static struct kv_slice to_slice(MDB_val v)
{
	return (struct kv_slice){.s_data = v.mv_data, .s_len = v.mv_size};
}

static bool is_meta(const void *key, size_t len)
{
	return len == sizeof(meta_key) && memcmp(key, meta_key, len) == 0;
}

static bool key_ok(struct kv_slice key)
{
	return key.s_len >= 1 && key.s_len <= KV_KEY_MAX && !is_meta(key.s_data, key.s_len);
}

/* Opening */

int kv_fail(struct kv_failure *f, int rc, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	if (f->f_size)
		vsnprintf(f->f_text, f->f_size, fmt, ap);
	va_end(ap);
	return rc;
}

int kv_fsync_folder(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;

	if (fd < 0)
		return -errno;
	if (fsync(fd) < 0)
		rc = -errno;
	close(fd);
	return rc;
}

static int make_folder(const char *path, struct kv_failure *f)
{
	char *copy;
	int rc;

	if (mkdir(path, 0700) < 0) {
		if (errno == EEXIST)
			return 0;
		rc = -errno;
		return kv_fail(f, rc, "%s: cannot make the folder: %s", path, strerror(-rc));
	}
	copy = strdup(path);
	rc = copy ? kv_fsync_folder(dirname(copy)) : -ENOMEM;
	free(copy);
	return rc ? kv_fail(f, rc, "%s: cannot sync the folder above: %s", path, strerror(-rc)) : 0;
}

/* Returns 1 if there is a store, or 0 if there is none and the caller has to make it. */
static int find_store(const char *path, const struct kv_opts *o, struct kv_failure *f)
{
	char file[4096];
	struct stat st;
	int rc;

	if (snprintf(file, sizeof(file), "%s/data.mdb", path) >= (int)sizeof(file))
		return kv_fail(f, -ENAMETOOLONG, "%s: the path is too long", path);
	if (stat(file, &st) == 0)
		return 1;
	rc = -errno;
	if (rc != -ENOENT)
		return kv_fail(f, rc, "%s: %s", file, strerror(-rc));
	if (!o->ko_create || o->ko_readonly)
		return kv_fail(f, -ENOENT, "%s: the folder holds no store", path);
	rc = make_folder(path, f);
	return rc;
}

static int say_in_use(int fd, const char *path, struct kv_failure *f)
{
	char pid[32];
	ssize_t n = pread(fd, pid, sizeof(pid) - 1, 0);

	pid[n > 0 ? n : 0] = 0;
	pid[strcspn(pid, "\n")] = 0;
	return kv_fail(f, -EBUSY, "%s: the store is in use by process %s", path,
		       pid[0] ? pid : "(unknown)");
}

static int lock_within(int fd, int wait_ms)
{
	for (int ms = 0; flock(fd, LOCK_EX | LOCK_NB) < 0; ms += 20) {
		if (errno != EWOULDBLOCK || ms >= wait_ms)
			return -errno;
		usleep(20000);
	}
	return 0;
}

/* One writer per store. The lock ends with the process, so a crash leaves nothing behind. A process
 * that reads a store which was not closed (make_readable) holds the lock for a moment too. */
static int lock_store(struct kv *kv, int wait_ms, struct kv_failure *f)
{
	char file[4096];
	int fd, rc;

	snprintf(file, sizeof(file), "%s/LOCK", kv->k_path);
	fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0) {
		rc = -errno;
		return kv_fail(f, rc, "%s: %s", file, strerror(-rc));
	}
	rc = lock_within(fd, wait_ms);
	if (rc) {
		rc = rc == -EWOULDBLOCK
			     ? say_in_use(fd, kv->k_path, f)
			     : kv_fail(f, rc, "%s: cannot lock: %s", file, strerror(-rc));
		close(fd);
		return rc;
	}
	kv->k_lock_fd = fd;
	/* The pid is only for the message above: the start goes on if it cannot be written (disk
	 * full). */
	if (ftruncate(fd, 0) < 0 || dprintf(fd, "%d\n", (int)getpid()) < 0)
		log_warn("kv: %s: cannot write my pid: %m", file);
	return 0;
}

static int try_env(struct kv *kv, const struct kv_opts *o, size_t map)
{
	/* NOTLS: a read transaction belongs to its handle, and one thread has several. NORDAHEAD:
	 * keys are read in random order. */
	unsigned flags = MDB_NOTLS | MDB_NORDAHEAD;
	int rc;

	if (o->ko_readonly)
		flags |= MDB_RDONLY;
	if (o->ko_nosync)
		flags |= MDB_NOSYNC;
	rc = mdb_env_create(&kv->k_env);
	if (rc)
		return rc;
	rc = mdb_env_set_mapsize(kv->k_env, map);
	if (rc == 0)
		rc = mdb_env_set_maxreaders(kv->k_env, KV_READERS);
	if (rc == 0)
		rc = mdb_env_open(kv->k_env, kv->k_path, flags, 0600);
	if (rc) {
		mdb_env_close(kv->k_env);
		kv->k_env = NULL;
	}
	return rc;
}

static int open_env(struct kv *kv, const struct kv_opts *o, struct kv_failure *f)
{
	size_t map = o->ko_map_max ? o->ko_map_max : KV_MAP_DEFAULT;
	MDB_envinfo info;
	MDB_stat st;
	int rc, dead;

	map = map / 65536 * 65536;
	rc = try_env(kv, o, map);
	/* Address space may be limited (ulimit -v, small machines; valgrind gives EINVAL). */
	while ((rc == ENOMEM || rc == EINVAL) && map / 2 >= KV_MAP_LEAST) {
		map /= 2;
		rc = try_env(kv, o, map);
	}
	if (rc == MDB_VERSION_MISMATCH || rc == MDB_INVALID)
		return kv_fail(f, -EPROTO, "%s: data.mdb is no store of this kind: %s", kv->k_path,
			       mdb_strerror(rc));
	if (rc)
		return kv_fail(f, kv_errno(rc), "%s: cannot open: %s", kv->k_path,
			       mdb_strerror(rc));
	mdb_env_info(kv->k_env, &info);
	mdb_env_stat(kv->k_env, &st);
	kv->k_map_bytes = info.me_mapsize;
	kv->k_psize = st.ms_psize;
	mdb_reader_check(kv->k_env, &dead);
	return 0;
}

static int put_meta(MDB_txn *txn, MDB_dbi dbi)
{
	struct meta m = {.m_version = {KV_FORMAT}};
	MDB_val key = {sizeof(meta_key), (void *)meta_key}, val = {sizeof(m), &m};

	memcpy(m.m_magic, meta_magic, sizeof(m.m_magic));
	return kv_errno(mdb_put(txn, dbi, &key, &val, 0));
}

/* Returns the version, or a negative errno. */
static int check_version(MDB_val val, const char *path, struct kv_failure *f)
{
	struct meta m;
	uint32_t v;

	if (val.mv_size != sizeof(m) || memcmp(val.mv_data, meta_magic, sizeof(meta_magic)) != 0)
		return kv_fail(f, -EPROTO, "%s: the store's version record is not understood",
			       path);
	memcpy(&m, val.mv_data, sizeof(m));
	v = m.m_version[0] | m.m_version[1] << 8 | m.m_version[2] << 16 |
	    (uint32_t)m.m_version[3] << 24;
	if (v != 1 && v != KV_FORMAT)
		return kv_fail(f, -EPROTO,
			       "%s: the store has format version %u; this program knows version %d",
			       path, v, KV_FORMAT);
	return (int)v;
}

/* Checks in txn that the store is of this kind and version. An empty store becomes one. */
static int check_meta(struct kv *kv, MDB_txn *txn, const struct kv_opts *o, struct kv_failure *f)
{
	MDB_val key = {sizeof(meta_key), (void *)meta_key}, val;
	MDB_stat st;
	int rc;

	rc = mdb_dbi_open(txn, NULL, 0, &kv->k_dbi);
	if (rc == 0)
		rc = mdb_get(txn, kv->k_dbi, &key, &val);
	kv->k_copy_row = rc == 0 ? kv_copy_is(val) : o->ko_redo != NULL;
	if (rc == 0 && kv->k_copy_row)
		return kv_copy_check(kv, val, f);
	if (rc == 0 && !kv_redo_local(kv))
		return kv_fail(f, -EPROTO, "%s: the store has its log in files, and is no copy",
			       kv->k_path);
	if (rc == 0) {
		rc = check_version(val, kv->k_path, f);
		if (rc == 1 && !o->ko_readonly && !o->ko_nosync)
			rc = put_meta(txn, kv->k_dbi);
		return rc < 0 ? rc : 0;
	}
	if (rc != MDB_NOTFOUND)
		return kv_fail(f, kv_errno(rc), "%s: cannot read the version: %s", kv->k_path,
			       mdb_strerror(rc));
	mdb_stat(txn, kv->k_dbi, &st);
	if (st.ms_entries)
		return kv_fail(f, -EPROTO, "%s: data.mdb is not a weft store (it has no version)",
			       kv->k_path);
	if (!o->ko_create || o->ko_readonly)
		return kv_fail(f, -ENOENT, "%s: the store was never finished: open it with create",
			       kv->k_path);
	rc = kv_redo_local(kv) ? put_meta(txn, kv->k_dbi) : kv_copy_make(kv, txn);
	return rc ? kv_fail(f, rc, "%s: cannot write the version: %s", kv->k_path, strerror(-rc))
		  : 0;
}

static int open_meta(struct kv *kv, const struct kv_opts *o, struct kv_failure *f)
{
	MDB_txn *txn;
	int rc;

	rc = mdb_txn_begin(kv->k_env, NULL, o->ko_readonly ? MDB_RDONLY : 0, &txn);
	if (rc)
		return kv_fail(f, kv_errno(rc), "%s: cannot begin: %s", kv->k_path,
			       mdb_strerror(rc));
	rc = check_meta(kv, txn, o, f);
	if (rc) {
		mdb_txn_abort(txn);
		return rc;
	}
	rc = mdb_txn_commit(txn);
	return rc ? kv_fail(f, kv_errno(rc), "%s: cannot commit: %s", kv->k_path, mdb_strerror(rc))
		  : 0;
}

/* A store that does not sync has no log. If an earlier log was there, it has been replayed, and it
 * now says that the store is closed. */
static int open_log(struct kv *kv, const struct kv_opts *o, struct kv_failure *f)
{
	int rc = kv_log_start(kv, f);

	if (o->ko_nosync)
		kv_log_stop(kv);
	return rc;
}

static int open_writer(struct kv *kv, const struct kv_opts *o, bool made, struct kv_failure *f)
{
	bool logs = !o->ko_nosync || (kv->k_log.lg_found && !kv->k_log.lg_clean);
	int rc = 0;

	/* LMDB syncs its files, not their names. */
	if (made)
		rc = kv_fsync_folder(kv->k_path);
	if (rc)
		return kv_fail(f, rc, "%s: cannot sync the folder: %s", kv->k_path, strerror(-rc));
	/* Make the log first: kv_space_open() takes all that is left of a disk that is nearly
	 * full. */
	if (logs)
		rc = kv_log_files(kv, f);
	if (rc)
		return rc;
	rc = kv_space_open(kv);
	if (rc)
		return kv_fail(f, rc, "%s: cannot set space aside: %s", kv->k_path, strerror(-rc));
	if (logs)
		rc = open_log(kv, o, f);
	if (rc == 0 && !kv_redo_local(kv))
		return o->ko_follow ? 0 : kv_promote(kv, f->f_text, f->f_size);
	if (rc)
		return rc;
	rc = kv_committer_start(kv);
	return rc ? kv_fail(f, rc, "%s: cannot start the committer: %s", kv->k_path, strerror(-rc))
		  : 0;
}

static void free_kv(struct kv *kv)
{
	kv_log_free(kv);
	kv_archive_close(kv);
	if (kv->k_env)
		mdb_env_close(kv->k_env);
	if (kv->k_mdb_lock_fd >= 0)
		close(kv->k_mdb_lock_fd);
	if (kv->k_lock_fd >= 0)
		close(kv->k_lock_fd);
	kv_wlog_free(&kv->k_wlog);
	free(kv->k_path);
	free(kv);
}

#define KV_OPEN_WAIT_MS 5000
/* Longer than a process takes that replays the log of a store which was not closed, and before that
 * waits for readers (KV_READER_WAIT_MS). */
#define KV_WRITER_WAIT_MS 10000

/* A lock on the first byte of LOCK says that the log has been replayed. A crash cannot leave a lock
 * behind. */
static const struct flock open_mark = {
	.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};

static void say_open(struct kv *kv)
{
	struct flock mark = open_mark;

	if (fcntl(kv->k_lock_fd, F_OFD_SETLK, &mark) < 0)
		log_warn("kv: %s/LOCK: %m; no other process can read the store", kv->k_path);
}

static bool kv_lmdb_is_open(const char *path)
{
	struct flock mark = open_mark;
	char file[4096];
	bool yes;
	int fd;

	snprintf(file, sizeof(file), "%s/LOCK", path);
	fd = open(file, O_RDONLY | O_CLOEXEC);
	yes = fd >= 0 && fcntl(fd, F_OFD_GETLK, &mark) == 0 && mark.l_type != F_UNLCK;
	if (fd >= 0)
		close(fd);
	return yes;
}

bool kv_reader_in_the_way(const char *store)
{
	struct kv_failure f = {NULL, 0};

	return !kv_lmdb_is_open(store) && kv_log_look(store, &f) != 0;
}

static int kv_lmdb_open_store(struct kv *kv, const struct kv_opts *o, int wait_ms,
			      struct kv_failure *f)
{
	int found, rc = 0;

	found = find_store(kv->k_path, o, f);
	if (found < 0)
		return found;
	rc = kv_layout_look(kv->k_path, f);
	if (rc == 0 && !o->ko_readonly)
		rc = lock_store(kv, wait_ms, f);
	if (rc == 0)
		rc = kv_copy_begin(kv, o, f);
	if (rc == 0 && !o->ko_readonly)
		rc = kv_log_restore(kv, f);
	if (rc == 0)
		rc = open_env(kv, o, f);
	if (rc == 0 && !o->ko_readonly)
		rc = kv_layout_check(kv, f);
	if (rc == 0)
		rc = open_meta(kv, o, f);
	if (rc == 0 && !o->ko_readonly)
		rc = kv_copy_fill(kv, o->ko_refill, f);
	if (rc == 0 && !o->ko_readonly)
		kv_archive_open(kv, o);
	if (rc == 0 && !o->ko_readonly)
		rc = kv_log_replay(kv, f);
	if (rc == 0 && !o->ko_readonly)
		kv_archive_begin(kv);
	if (rc == 0 && !o->ko_readonly)
		rc = open_writer(kv, o, !found || o->ko_create, f);
	if (rc == 0 && !o->ko_readonly)
		say_open(kv);
	return rc;
}

/* Opens a store that is readable, or opens one for writing. For writing it waits up to wait_ms for
 * another writer to end. */
static int open_new(struct kv **out, const char *path, const struct kv_opts *o, int wait_ms,
		    struct kv_failure *f)
{
	struct kv *kv;
	int rc;

	kv = aligned_alloc(64, (sizeof(*kv) + 63) / 64 * 64);
	if (!kv)
		return kv_fail(f, -ENOMEM, "%s: out of memory", path);
	memset(kv, 0, sizeof(*kv));
	kv->k_lock_fd = kv->k_mdb_lock_fd = -1;
	kv_log_init(kv);
	kv->k_readonly = o->ko_readonly;
	kv->k_txn.t_kv = kv;
	kv->k_txn.t_write = true;
	kv->k_path = strdup(path);
	rc = kv->k_path ? kv_lmdb_open_store(kv, o, wait_ms, f)
			: kv_fail(f, -ENOMEM, "%s: out of memory", path);
	if (rc) {
		free_kv(kv);
		return rc;
	}
	*out = kv;
	return 0;
}

/* A reader needs a store that was closed, or one that a writer has open by now: before that, a
 * crash may have left anything in it. Any other store is opened for writing here, and closed. */
static int make_readable(const char *path, const struct kv_opts *o, struct kv_failure *f)
{
	struct kv_opts w = {.ko_map_max = o->ko_map_max};
	struct kv *kv;

	for (int ms = 0; ms < KV_OPEN_WAIT_MS; ms += 20) {
		int rc = kv_log_look(path, f);

		/* A store that looks damaged may be one that a writer is changing. Only the holder
		 * of the lock can say. */
		if (rc == 0)
			return 0;
		rc = open_new(&kv, path, &w, 0, f);
		if (rc == 0)
			kv_close(kv);
		if (rc != -EBUSY)
			return rc;
		if (kv_lmdb_is_open(path))
			return 0;
		usleep(20000);
	}
	return kv_fail(f, -EBUSY, "%s: another process is about to open the store", path);
}

int kv_open(struct kv **out, const char *path, const struct kv_opts *o, char *err, size_t errlen)
{
	struct kv_failure f = {err, errlen};
	int rc = o->ko_readonly ? make_readable(path, o, &f) : 0;

	if (rc == 0)
		rc = open_new(out, path, o, KV_WRITER_WAIT_MS, &f);
	if (rc == 0 && o->ko_nosync)
		log_warn("kv: %s: NOSYNC: commits are NOT durable, a crash may lose or destroy the "
			 "store",
			 path);
	return rc;
}

void kv_close(struct kv *kv)
{
	if (atomic_load(&kv->k_writes))
		kv_committer_stop(kv);
	kv_log_stop(kv);
	if (atomic_load(&kv->k_readers)) {
		/* Leave the map until the process ends: that is better than closing it under a
		 * reader. */
		log_error("kv: %s: closed with %lld read handles open", kv->k_path,
			  (long long)atomic_load(&kv->k_readers));
		kv->k_env = NULL;
	}
	free_kv(kv);
}

bool kv_low(const struct kv *kv)
{
	return kv->k_space.sp_low;
}

void kv_stats(struct kv *kv, struct kv_stats *out)
{
	MDB_envinfo info;

	mdb_env_info(kv->k_env, &info);
	*out = (struct kv_stats){
		.ks_commits = atomic_load_explicit(&kv->k_commits, memory_order_relaxed),
		.ks_ops = atomic_load_explicit(&kv->k_ops, memory_order_relaxed),
		.ks_refused = atomic_load_explicit(&kv->k_refused, memory_order_relaxed),
		.ks_bytes_used = (uint64_t)(info.me_last_pgno + 1) * kv->k_psize,
		.ks_map_bytes = info.me_mapsize,
		.ks_sync_ns = atomic_load_explicit(&kv->k_sync_ns, memory_order_relaxed),
		.ks_checkpoints = atomic_load_explicit(&kv->k_checkpoints, memory_order_relaxed),
		.ks_log_waits = atomic_load_explicit(&kv->k_log_waits, memory_order_relaxed),
		.ks_run_ns = atomic_load_explicit(&kv->k_run_ns, memory_order_relaxed),
		.ks_archive_err = atomic_load_explicit(&kv->k_archive_err, memory_order_relaxed),
	};
}

/* Reading */

static int begin_reader(struct kv *kv, MDB_txn **out)
{
	int dead, rc = mdb_txn_begin(kv->k_env, NULL, MDB_RDONLY, out);

	if (rc != MDB_READERS_FULL)
		return kv_errno(rc);
	/* Processes that were killed may have left some of them. */
	mdb_reader_check(kv->k_env, &dead);
	return kv_errno(mdb_txn_begin(kv->k_env, NULL, MDB_RDONLY, out));
}

int kv_read_begin(struct kv *kv, struct kv_txn **out)
{
	struct kv_txn *t = calloc(1, sizeof(*t));
	int rc;

	if (!t)
		return -ENOMEM;
	rc = begin_reader(kv, &t->t_mdb);
	if (rc) {
		free(t);
		return rc;
	}
	t->t_kv = kv;
	t->t_live = true;
	atomic_fetch_add(&kv->k_readers, 1);
	*out = t;
	return 0;
}

void kv_read_reset(struct kv_txn *t)
{
	if (t->t_live)
		mdb_txn_reset(t->t_mdb);
	t->t_live = false;
}

int kv_read_renew(struct kv_txn *t)
{
	int rc;

	kv_read_reset(t);
	rc = kv_errno(mdb_txn_renew(t->t_mdb));
	t->t_live = rc == 0;
	return rc;
}

uint64_t kv_read_number(const struct kv_txn *t)
{
	return t->t_kv->k_copy_row ? kv_copy_number(t->t_kv, t->t_mdb) : mdb_txn_id(t->t_mdb);
}

void kv_read_end(struct kv_txn *t)
{
	if (t->t_spare)
		mdb_cursor_close(t->t_spare);
	mdb_txn_abort(t->t_mdb);
	atomic_fetch_sub(&t->t_kv->k_readers, 1);
	free(t);
}

int kv_get(struct kv_txn *t, struct kv_slice key, struct kv_slice *val)
{
	MDB_val k = to_mdb(key), v;
	int rc;

	if (!key_ok(key))
		return -EINVAL;
	PART(t, COUNT_PART_MEMBERS);
	rc = mdb_get(t->t_mdb, t->t_kv->k_dbi, &k, &v);
	PART(t, COUNT_PART_STORE);
	if (rc == 0)
		*val = to_slice(v);
	return kv_errno(rc);
}

static int open_cursor(struct kv_txn *t, MDB_cursor **out)
{
	int rc;

	if (!t->t_spare)
		return kv_errno(mdb_cursor_open(t->t_mdb, t->t_kv->k_dbi, out));
	rc = mdb_cursor_renew(t->t_mdb, t->t_spare);
	if (rc == 0) {
		*out = t->t_spare;
		t->t_spare = NULL;
	}
	return kv_errno(rc);
}

int kv_scan_begin(struct kv_txn *t, struct kv_slice prefix, struct kv_slice from,
		  struct kv_scan *sc)
{
	MDB_cursor *cur = NULL;
	int rc;

	*sc = (struct kv_scan){.sc_txn = t, .sc_prefix = prefix, .sc_from = from};
	if (!t->t_write && !t->t_live)
		return -EINVAL;
	rc = open_cursor(t, &cur);
	sc->sc_priv = cur;
	return rc;
}

static int kv_lmdb_compare(struct kv_slice a, struct kv_slice b)
{
	size_t n = a.s_len < b.s_len ? a.s_len : b.s_len;
	int c = n ? memcmp(a.s_data, b.s_data, n) : 0;

	return c ? c : (a.s_len > b.s_len) - (a.s_len < b.s_len);
}

static int scan_first(struct kv_scan *sc, MDB_val *k, MDB_val *v)
{
	struct kv_slice at =
		kv_lmdb_compare(sc->sc_prefix, sc->sc_from) > 0 ? sc->sc_prefix : sc->sc_from;

	*k = to_mdb(at);
	return mdb_cursor_get(sc->sc_priv, k, v, at.s_len ? MDB_SET_RANGE : MDB_FIRST);
}

static bool has_prefix(MDB_val k, struct kv_slice prefix)
{
	return k.mv_size >= prefix.s_len &&
	       (prefix.s_len == 0 || memcmp(k.mv_data, prefix.s_data, prefix.s_len) == 0);
}

int kv_scan_next(struct kv_scan *sc, struct kv_slice *key, struct kv_slice *val)
{
	MDB_val k, v;
	int rc;

	if (!sc->sc_priv)
		return 0;
	rc = sc->sc_started ? mdb_cursor_get(sc->sc_priv, &k, &v, MDB_NEXT)
			    : scan_first(sc, &k, &v);
	sc->sc_started = true;
	if (rc == 0 && is_meta(k.mv_data, k.mv_size))
		rc = mdb_cursor_get(sc->sc_priv, &k, &v, MDB_NEXT);
	if (rc == 0 && has_prefix(k, sc->sc_prefix)) {
		*key = to_slice(k);
		*val = to_slice(v);
		return 1;
	}
	/* Nothing follows. LMDB does not promise the same answer when the cursor is moved again. */
	kv_scan_end(sc);
	return rc == MDB_NOTFOUND ? 0 : kv_errno(rc);
}

void kv_scan_end(struct kv_scan *sc)
{
	struct kv_txn *t = sc->sc_txn;
	MDB_cursor *cur = sc->sc_priv;

	sc->sc_priv = NULL;
	if (!cur)
		return;
	if (!t->t_write && !t->t_spare)
		t->t_spare = cur;
	else
		mdb_cursor_close(cur);
}

/* Writing */

/* After an error the mutation may return 0 nevertheless, or it is unknown how far LMDB got. In both
 * cases the batch must not commit. */
static int write_failed(struct kv_txn *t, int rc)
{
	if (t->t_wrote && !t->t_err)
		t->t_err = rc;
	return rc;
}

static int written(struct kv_txn *t, int mdb_rc, struct kv_slice key, struct kv_slice val, bool del)
{
	int rc = kv_errno(mdb_rc);

	t->t_wrote = true;
	if (rc == 0 && (t->t_kv->k_log.lg_on || t->t_kv->k_hook))
		rc = kv_wlog_add(&t->t_kv->k_wlog, key, val, del);
	return rc ? write_failed(t, rc) : 0;
}

/* An update: the key is there, and its value is as long or longer. Used only when space is
 * short. */
static bool is_update(struct kv_txn *t, struct kv_slice key, size_t len)
{
	struct kv_slice old;

	return kv_get(t, key, &old) == 0 && old.s_len >= len;
}

static int charge_put(struct kv_txn *t, struct kv_slice key, size_t len)
{
	int rc = kv_space_charge(t->t_kv, len, KV_GROW, !t->t_wrote);

	if (rc == -ENOSPC && !t->t_wrote && is_update(t, key, len))
		rc = kv_space_charge(t->t_kv, len, KV_UPDATE, true);
	return rc;
}

int kv_put(struct kv_txn *t, struct kv_slice key, struct kv_slice val)
{
	MDB_val k = to_mdb(key), v = to_mdb(val);
	int rc;

	if (!t->t_write)
		return -EROFS;
	if (!key_ok(key) || val.s_len > KV_VALUE_MAX)
		return write_failed(t, -EINVAL);
	rc = charge_put(t, key, val.s_len);
	if (rc)
		return write_failed(t, rc);
	PART(t, COUNT_PART_MEMBERS);
	rc = mdb_put(t->t_mdb, t->t_kv->k_dbi, &k, &v, 0);
	PART(t, COUNT_PART_STORE);
	return written(t, rc, key, val, false);
}

int kv_del(struct kv_txn *t, struct kv_slice key)
{
	MDB_val k = to_mdb(key);
	int rc;

	if (!t->t_write)
		return -EROFS;
	if (!key_ok(key))
		return write_failed(t, -EINVAL);
	rc = kv_space_charge(t->t_kv, 0, KV_DELETE, !t->t_wrote);
	if (rc)
		return write_failed(t, rc);
	PART(t, COUNT_PART_MEMBERS);
	rc = mdb_del(t->t_mdb, t->t_kv->k_dbi, &k, NULL);
	PART(t, COUNT_PART_STORE);
	if (rc == MDB_NOTFOUND)
		return -ENOENT;
	return written(t, rc, key, (struct kv_slice){"", 0}, true);
}

/* The batch's transaction */

/* After a failed commit: true if the state on the disk is known and has nothing of this batch. If
 * the meta page may have been written, LMDB refuses every later transaction (MDB_PANIC). */
static bool survivable(struct kv *kv, int rc)
{
	MDB_txn *probe;

	if (rc != ENOSPC && rc != EDQUOT && rc != ENOMEM && rc != MDB_MAP_FULL &&
	    rc != MDB_TXN_FULL)
		return false;
	rc = mdb_txn_begin(kv->k_env, NULL, MDB_RDONLY, &probe);
	if (rc == 0)
		mdb_txn_abort(probe);
	return rc != MDB_PANIC;
}

int kv_txn_begin(struct kv *kv)
{
	struct kv_txn *t = &kv->k_txn;
	int rc;

	/* On a full disk this batch needs the pages that the last batch freed. */
	if (kv->k_space.sp_low)
		kv_log_checkpoint(kv);
	rc = mdb_txn_begin(kv->k_env, NULL, 0, &t->t_mdb);
	if (rc && rc != ENOMEM)
		log_fatal("kv: %s: cannot begin a transaction: %s", kv->k_path, mdb_strerror(rc));
	t->t_wrote = false;
	t->t_err = 0;
	if (rc == 0)
		kv_space_begin(kv);
	/* The row that says what the copy holds. */
	if (rc == 0 && !kv_redo_local(kv))
		kv_space_charge(kv, 0, KV_UPDATE, false);
	return kv_errno(rc);
}

int kv_txn_commit(struct kv *kv)
{
	int rc = mdb_txn_commit(kv->k_txn.t_mdb);

	kv->k_txn.t_mdb = NULL;
	if (rc && !survivable(kv, rc))
		log_fatal("kv: %s: a commit failed, what is on the disk is unknown: %s", kv->k_path,
			  mdb_strerror(rc));
	return kv_errno(rc);
}

void kv_txn_abort(struct kv *kv)
{
	mdb_txn_abort(kv->k_txn.t_mdb);
	kv->k_txn.t_mdb = NULL;
}
