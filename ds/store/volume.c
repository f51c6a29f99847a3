/* SPDX-License-Identifier: Apache-2.0 */
/*
 * volume.c - the volumes of a store: folders, each best on a drive of its own, over which the
 * objects are spread.
 *
 * An object stays in one volume for as long as it exists (except that CLONE may remake its target
 * in another, object.c). Only the folders know which one: an object that is not in memory is looked
 * for in one volume after another. A new object goes to a volume drawn at random, with chances in
 * proportion to free space. A volume that fails or is full takes no part.
 *
 * An object does not exist only if every volume says so. If it were created a second time while its
 * volume cannot be read, the data written would be lost. But new files must work without the failed
 * volume. The metadata server numbers files upwards, so a volume that never held an object of a
 * file with a number as high cannot hold this one (v_high). The home's file "marks" makes each
 * volume's highest number durable, MARK_STEP ahead of use. So after a crash, at most that many new
 * files are refused while a volume fails.
 *
 * The file "marks" is two sectors, written in place in turn: it needs no space on a full disk.
 */
#include "ds/store/store_int.h"
#include "base/clock.h"
#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include <urcu/compiler.h>

#define MARKS_VERSION 1
#define MARKS_APART   4096
#define MARK_STEP     16384u
#define SPACE_MS      1000u	    /* how old the figure for free space may be */
#define FULL_BYTES    (64ull << 20) /* a volume with less free space gets no new objects */

/* On disk, big-endian, in one sector. mk_ino, indexed by the volume's number: the volume has no
 * object of a file with a higher number. */
struct marks {
	uint8_t mk_version, mk_zero[7];
	uint64_t mk_seq;
	uint64_t mk_ino[16];
	uint64_t mk_sum;
};
_Static_assert(sizeof(struct marks) == 152 && sizeof(struct marks) <= 512, "the format of marks");
_Static_assert(DS_VOLUMES_MAX <= 16, "a mark for each");

/* ---- the list of folders ---- */

static int dirs_add(char **dirs, unsigned *n, const char *at, size_t len, char *err, size_t errlen)
{
	while (len && (*at == ' ' || *at == '\t'))
		at++, len--;
	while (len && (at[len - 1] == ' ' || at[len - 1] == '\t'))
		len--;
	if (!len || memchr(at, '\n', len)) {
		snprintf(err, errlen,
			 "ds.store: expected the names of folders, with commas between them");
		return -EINVAL;
	}
	if (len >= PATH_MAX) {
		snprintf(err, errlen, "ds.store: the name of a folder is too long");
		return -ENAMETOOLONG;
	}
	if (*n == DS_VOLUMES_MAX) {
		snprintf(err, errlen, "ds.store: more than %d folders", DS_VOLUMES_MAX);
		return -EINVAL;
	}
	dirs[*n] = strndup(at, len);
	if (!dirs[*n])
		return -ENOMEM;
	++*n;
	return 0;
}

void ds_dirs_free(char *dirs[DS_VOLUMES_MAX], unsigned n)
{
	while (n)
		free(dirs[--n]);
}

int ds_dirs_parse(const char *list, char *dirs[DS_VOLUMES_MAX], unsigned *n, char *err,
		  size_t errlen)
{
	int e = 0;

	*n = 0;
	for (const char *at = list; at && !e;) {
		const char *end = strchrnul(at, ',');

		e = dirs_add(dirs, n, at, (size_t)(end - at), err, errlen);
		at = *end ? end + 1 : NULL;
	}
	if (e)
		ds_dirs_free(dirs, *n);
	return e;
}

/* ---- one volume ---- */

static struct ds_vol *vol_new(struct ds_store *s, char *dir)
{
	struct ds_vol *v = calloc(1, sizeof(*v));

	if (!v)
		return NULL;
	v->v_store = s;
	v->v_dir = dir;
	v->v_dirfd = v->v_objfd = v->v_lockfd = -1;
	return v;
}

/* The volumes take over dirs, or they are freed. */
int ds_volumes_make(struct ds_store *s, const char *list, char *err, size_t errlen)
{
	char *dirs[DS_VOLUMES_MAX];
	unsigned n;
	int e = ds_dirs_parse(list, dirs, &n, err, errlen);

	if (e)
		return e;
	for (unsigned i = 0; i < n; i++) {
		struct ds_vol *v = e ? NULL : vol_new(s, dirs[i]);

		if (v)
			s->s_vol[s->s_nvols++] = v;
		else
			free(dirs[i]);
		e = v ? 0 : -ENOMEM;
	}
	s->s_home = s->s_vol[0];
	pthread_mutex_init(&s->s_marks_lock, NULL);
	return e;
}

void ds_volumes_close(struct ds_store *s)
{
	for (unsigned i = 0; i < s->s_nvols; i++) {
		struct ds_vol *v = s->s_vol[i];
		const int fds[] = {v->v_objfd, v->v_lockfd, v->v_dirfd};

		for (unsigned k = 0; k < sizeof(fds) / sizeof(fds[0]); k++)
			if (fds[k] >= 0)
				close(fds[k]);
		free(v->v_dir);
		free(v);
	}
	if (s->s_marks_fd >= 0)
		close(s->s_marks_fd);
}

int ds_vol_subfolder(struct ds_vol *v)
{
	if (mkdirat(v->v_dirfd, "objects", 0700) < 0 && errno != EEXIST)
		return -errno;
	if (fsync(v->v_dirfd) < 0)
		return -errno;
	v->v_objfd = openat(v->v_dirfd, "objects", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return v->v_objfd < 0 ? -errno : 0;
}

/* Finds out what O_DIRECT requires, on the lock file, which is in the same file system. */
static void probe_direct(struct ds_vol *v, bool never)
{
	int fd = never ? -1 : openat(v->v_dirfd, "lock", O_RDWR | O_DIRECT | O_CLOEXEC);

	v->v_dio_mem = DS_PAGE;
	atomic_store(&v->v_direct, fd >= 0);
	if (fd < 0) {
		log_info("store: %s: buffered I/O only (%s)", v->v_dir,
			 never ? "configured" : "no O_DIRECT in its file system");
		return;
	}
#ifdef STATX_DIOALIGN
	struct statx sx;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &sx) == 0 &&
	    (sx.stx_mask & STATX_DIOALIGN)) {
		if (!sx.stx_dio_offset_align || sx.stx_dio_offset_align > DS_PAGE) {
			atomic_store(&v->v_direct, false);
			log_info("store: %s: buffered I/O only (O_DIRECT needs blocks of %u)",
				 v->v_dir, sx.stx_dio_offset_align);
		} else if (sx.stx_dio_mem_align && sx.stx_dio_mem_align <= DS_PAGE) {
			v->v_dio_mem = sx.stx_dio_mem_align;
		}
	}
#endif
	close(fd);
}

/* Finds out whether the drive has queues to poll. A partition's folder in sysfs is below its
 * drive's. */
static void probe_poll(struct ds_vol *v)
{
	static const char *const where[] = {"", "/.."};
	char path[96], c = '0';
	FILE *f;

	for (unsigned i = 0; i < 2 && c != '1'; i++) {
		snprintf(path, sizeof(path), "/sys/dev/block/%u:%u%s/queue/io_poll",
			 major(v->v_dev), minor(v->v_dev), where[i]);
		f = fopen(path, "re");
		if (!f)
			continue;
		if (fread(&c, 1, 1, f) != 1)
			c = '0';
		fclose(f);
	}
	atomic_store(&v->v_polled, c == '1' && atomic_load(&v->v_direct));
	if (atomic_load(&v->v_polled))
		log_info("store: %s: polling its drive", v->v_dir);
	else
		log_warn("store: %s: not polling its drive (ds.iopoll): it has no queues to poll; "
			 "see nvme.poll_queues and nvme connect --nr-poll-queues",
			 v->v_dir);
}

/* Finds out whether there are reflinks, on two files without a name. */
static void probe_clone(struct ds_vol *v)
{
	int from = openat(v->v_dirfd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600),
	    to = openat(v->v_dirfd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	struct stat st;

	v->v_clone_block = 0;
	if (from >= 0 && to >= 0 && ftruncate(from, DS_PAGE) == 0 &&
	    ioctl(to, FICLONE, from) == 0 && fstat(from, &st) == 0)
		v->v_clone_block = (uint32_t)st.st_blksize;
	if (from >= 0)
		close(from);
	if (to >= 0)
		close(to);
	log_info("store: %s: %s", v->v_dir,
		 v->v_clone_block ? "cloning files by reflink"
				  : "its file system has no reflinks: no files are cloned");
}

void ds_volumes_probe(struct ds_store *s, bool no_direct, bool poll)
{
	bool all = true;

	s->s_clone_block = 0;
	for (unsigned i = 0; i < s->s_nvols; i++) {
		struct ds_vol *v = s->s_vol[i];

		probe_direct(v, no_direct);
		if (poll)
			probe_poll(v);
		probe_clone(v);
		all = all && v->v_clone_block;
		if (v->v_clone_block > s->s_clone_block)
			s->s_clone_block = v->v_clone_block;
		if (v->v_shares)
			log_warn("store: %s is on the same file system as another volume: both "
				 "fill up and fail together",
				 v->v_dir);
	}
	/* Blocks are powers of two, so the largest is a multiple of all. */
	if (!all)
		s->s_clone_block = 0;
}

uint32_t ds_store_clone_block(struct ds_store *s)
{
	return s->s_clone_block;
}

int ds_volumes_sync(struct ds_store *s, struct ds_vol **bad)
{
	int err = 0;

	for (unsigned i = 0; i < s->s_nvols; i++) {
		struct ds_vol *v = s->s_vol[i];
		/* After ext4 shuts down, syncfs syncs nothing, and reports that only once. */
		int e = syncfs(v->v_dirfd) < 0		      ? -errno
			: v != s->s_home && ds_vol_failing(v) ? -EIO
							      : 0;

		if (e && !err)
			*bad = v;
		err = err ? err : e;
	}
	return err;
}

/* ---- marks ---- */

static void marks_seal(struct ds_store *s, struct marks *m)
{
	*m = (struct marks){.mk_version = MARKS_VERSION, .mk_seq = htobe64(s->s_marks_seq)};
	for (unsigned i = 0; i < 16; i++)
		m->mk_ino[i] = htobe64(s->s_mark[i]);
	m->mk_sum = htobe64(hash_bytes(m, offsetof(struct marks, mk_sum)));
}

/* Writes over the older of the two sectors. With s_marks_lock held, or before other threads run. */
static int marks_write(struct ds_store *s)
{
	struct marks m;
	int err = 0;

	s->s_marks_seq++;
	marks_seal(s, &m);
	errno = 0;
	if (pwrite(s->s_marks_fd, &m, sizeof(m), (off_t)(s->s_marks_seq % 2 * MARKS_APART)) !=
		    (ssize_t)sizeof(m) ||
	    fdatasync(s->s_marks_fd) < 0)
		err = errno ? -errno : -EIO;
	/* The next write goes to the same sector: the other one holds the last good marks. */
	if (err)
		s->s_marks_seq--;
	return err;
}

static bool marks_read(struct ds_store *s)
{
	bool found = false;

	for (unsigned k = 0; k < 2; k++) {
		struct marks m;

		if (pread(s->s_marks_fd, &m, sizeof(m), (off_t)(k * MARKS_APART)) !=
			    (ssize_t)sizeof(m) ||
		    m.mk_version != MARKS_VERSION ||
		    m.mk_sum != htobe64(hash_bytes(&m, offsetof(struct marks, mk_sum))) ||
		    (found && be64toh(m.mk_seq) <= s->s_marks_seq))
			continue;
		s->s_marks_seq = be64toh(m.mk_seq);
		for (unsigned i = 0; i < 16; i++)
			s->s_mark[i] = be64toh(m.mk_ino[i]);
		found = true;
	}
	return found;
}

/* Writes the file's blocks once, so that later writes only overwrite them. */
static int marks_make(struct ds_store *s)
{
	uint8_t zero[2 * MARKS_APART] = {0};

	errno = 0;
	if (pwrite(s->s_marks_fd, zero, sizeof(zero), 0) != (ssize_t)sizeof(zero))
		return errno ? -errno : -EIO;
	return fsync(s->s_marks_fd) < 0 || fsync(s->s_home->v_dirfd) < 0 ? -errno : 0;
}

int ds_marks_open(struct ds_store *s, const bool new[DS_VOLUMES_MAX])
{
	bool all_new = true, write = false;
	struct stat st;
	int err = 0;

	s->s_marks_fd = openat(s->s_home->v_dirfd, "marks", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (s->s_marks_fd < 0 || fstat(s->s_marks_fd, &st) < 0)
		return -errno;
	for (unsigned i = 1; i < s->s_nvols; i++)
		all_new &= new[s->s_vol[i]->v_number];
	if (!marks_read(s)) {
		memset(s->s_mark, all_new ? 0 : 0xff, sizeof(s->s_mark));
		if (!all_new)
			log_warn("store: %s/marks is unreadable: while a volume fails, this server "
				 "takes no new files",
				 s->s_home->v_dir);
		write = true;
		if (st.st_size < 2 * MARKS_APART)
			err = marks_make(s);
	}
	for (unsigned i = 1; i < s->s_nvols; i++) {
		struct ds_vol *v = s->s_vol[i];

		if (new[v->v_number]) {
			s->s_mark[v->v_number] = 0;
			write = true;
		}
		atomic_store(&v->v_high, s->s_mark[v->v_number]);
		atomic_store(&v->v_mark, s->s_mark[v->v_number]);
	}
	return err || !write ? err : marks_write(s);
}

static int mark_raise(struct ds_vol *v, uint64_t ino)
{
	struct ds_store *s = v->v_store;
	int err = 0;

	pthread_mutex_lock(&s->s_marks_lock);
	if (ino > atomic_load(&v->v_mark)) {
		uint64_t old = s->s_mark[v->v_number], high = atomic_load(&v->v_high);

		if (ino < high)
			ino = high;
		s->s_mark[v->v_number] =
			ino <= UINT64_MAX - MARK_STEP ? ino + MARK_STEP : UINT64_MAX;
		err = marks_write(s);
		if (err)
			s->s_mark[v->v_number] = old;
		else
			atomic_store(&v->v_mark, s->s_mark[v->v_number]);
	}
	pthread_mutex_unlock(&s->s_marks_lock);
	if (err) {
		log_error("store: %s/marks: %s", s->s_home->v_dir, strerror(-err));
		ds_health_note(s->s_home, true, err);
	}
	return err;
}

static void mark_job(struct ds_job *j)
{
	struct ds_vol *v = caa_container_of(j, struct ds_vol, v_mark_job);

	/* Nothing is above UINT64_MAX. */
	if (atomic_load(&v->v_mark) != UINT64_MAX)
		mark_raise(v, atomic_load(&v->v_mark) + 1);
	atomic_store(&v->v_marking, false);
}

/*
 * Called before an object of file ino is made in v. Raises v_high first, and then reads v_mark.
 * ds_marks_close works in the opposite order. So either this function waits for ds_marks_close, or
 * ds_marks_close writes a mark that includes ino.
 */
static int mark_admit(struct ds_vol *v, uint64_t ino)
{
	uint64_t high = atomic_load(&v->v_high), mark;

	if (v == v->v_store->s_home)
		return 0;
	while (ino > high && !atomic_compare_exchange_weak(&v->v_high, &high, ino))
		;
	mark = atomic_load(&v->v_mark);
	if (ino > mark)
		return mark_raise(v, ino);
	if (mark - ino < MARK_STEP / 2 && mark != UINT64_MAX &&
	    !atomic_exchange(&v->v_marking, true)) {
		v->v_mark_job.jb_run = mark_job;
		ds_store_submit(v->v_store, DS_WORKER_HEALTH, &v->v_mark_job);
	}
	return 0;
}

/* The daemon ends in order: store the exact highest numbers. */
void ds_marks_close(struct ds_store *s)
{
	int err;

	if (s->s_nvols == 1)
		return;
	pthread_mutex_lock(&s->s_marks_lock);
	for (unsigned i = 1; i < s->s_nvols; i++) {
		struct ds_vol *v = s->s_vol[i];

		atomic_store(&v->v_mark, 0);
		s->s_mark[v->v_number] = atomic_load(&v->v_high);
	}
	err = marks_write(s);
	for (unsigned i = 1; i < s->s_nvols && !err; i++)
		atomic_store(&s->s_vol[i]->v_mark, s->s_mark[s->s_vol[i]->v_number]);
	pthread_mutex_unlock(&s->s_marks_lock);
	if (err)
		log_warn("store: %s/marks: %s", s->s_home->v_dir, strerror(-err));
}

/* ---- looking for an object ---- */

/* True if, despite error err in v, an object of file ino may be there. */
static bool volume_may_have(const struct ds_vol *v, uint64_t ino, int err)
{
	return v == v->v_store->s_home || !ds_of_the_disk(err) || ino <= atomic_load(&v->v_high);
}

int ds_vol_find(struct ds_store *s, const struct cap_object *key, struct ds_vol **vol)
{
	char path[OBJPATH_MAX];
	int unknown = 0;

	objpath(key, path);
	for (unsigned i = 0; i < s->s_nvols; i++) {
		int fd = openat(s->s_vol[i]->v_dirfd, path, O_RDWR | O_CLOEXEC | O_NOFOLLOW),
		    err = fd < 0 ? -errno : 0;

		*vol = s->s_vol[i];
		if (fd >= 0)
			return fd;
		if (err == -ENOENT)
			continue;
		ds_health_note(*vol, false, err);
		if (!unknown && volume_may_have(*vol, key->co_ino, err))
			unknown = err;
	}
	return unknown ? unknown : -ENOENT;
}

/* The name under which make_lost makes its file; no object has such a name. */
#define LOST_PATH_MAX (OBJPATH_MAX + 5)
static void lost_path(const char *path, char other[LOST_PATH_MAX])
{
	snprintf(other, LOST_PATH_MAX, "%s.lost", path);
}

int ds_vol_unlink(struct ds_store *s, const struct cap_object *key)
{
	char path[OBJPATH_MAX], other[LOST_PATH_MAX];
	bool gone = false;
	int unknown = 0;

	objpath(key, path);
	lost_path(path, other);
	for (unsigned i = 0; i < s->s_nvols; i++) {
		int err = unlinkat(s->s_vol[i]->v_dirfd, path, 0) < 0 ? -errno : 0;

		/* a crash during make_lost may have left it */
		unlinkat(s->s_vol[i]->v_dirfd, other, 0);
		gone |= !err;
		if (err && err != -ENOENT)
			ds_health_note(s->s_vol[i], true, err);
		if (err && err != -ENOENT && !unknown &&
		    volume_may_have(s->s_vol[i], key->co_ino, err))
			unknown = err;
	}
	return gone ? 0 : unknown;
}

/* ---- where a new one goes ---- */

static int folder_make(int objfd, uint16_t folder)
{
	char path[8];

	/* Sync XX at once, as there are only 256 of them. YY is synced together with an object in
	 * it. */
	snprintf(path, sizeof(path), "%02x", folder >> 8);
	if (mkdirat(objfd, path, 0700) == 0) {
		if (fsync(objfd) < 0)
			return -errno;
	} else if (errno != EEXIST) {
		return -errno;
	}
	snprintf(path, sizeof(path), "%02x/%02x", folder >> 8, folder & 255);
	return mkdirat(objfd, path, 0700) < 0 && errno != EEXIST ? -errno : 0;
}

/* Marks the file as lost under another name and then renames it: under the object's own name, a
 * file without the mark would count as good. A retry uses the other name again, and ds_vol_unlink
 * removes it together with the object. */
static int make_lost(struct ds_vol *v, const char *path)
{
	char other[LOST_PATH_MAX];
	int fd, err;

	lost_path(path, other);
	fd = openat(v->v_dirfd, other, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_CREAT | O_TRUNC, 0600);
	if (fd < 0)
		return -errno;
	err = ds_meta_put(fd, 0, 0, DS_META_LOST, 0);
	if (!err && renameat(v->v_dirfd, other, v->v_dirfd, path) < 0)
		err = -errno;
	if (!err)
		return fd;
	close(fd);
	unlinkat(v->v_dirfd, other, 0);
	return err;
}

static int make_in(struct ds_vol *v, const struct cap_object *key, bool lost)
{
	char path[OBJPATH_MAX];
	int err, fd;

	objpath(key, path);
	for (int tries = 0;; tries++) {
		fd = lost ? make_lost(v, path)
			  : openat(v->v_dirfd, path,
				   O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_CREAT | O_EXCL, 0600);
		err = fd >= 0 ? 0 : lost ? fd : -errno;
		if (err != -ENOENT || tries)
			return err ? err : fd;
		err = folder_make(v->v_objfd, objname_folder(key->co_ino));
		if (err)
			return err;
	}
}

/* The free space for new objects. A file system without free inodes is full. */
static uint64_t vol_free(struct ds_vol *v)
{
	uint64_t now = clock_mono_ms(), at = atomic_load(&v->v_free_ms);
	struct statvfs st;

	if (now - at < SPACE_MS || !atomic_compare_exchange_strong(&v->v_free_ms, &at, now))
		return atomic_load(&v->v_free);
	if (fstatvfs(v->v_dirfd, &st) < 0 || (st.f_files && !st.f_favail))
		atomic_store(&v->v_free, 0);
	else
		atomic_store(&v->v_free, (uint64_t)st.f_bavail * st.f_frsize);
	return atomic_load(&v->v_free);
}

bool ds_vol_has_room(struct ds_vol *v)
{
	return !ds_vol_failing(v) && vol_free(v) >= FULL_BYTES;
}

static struct ds_vol *volume_draw(struct ds_vol *const *vols, const uint64_t *free_mib, unsigned n,
				  uint64_t sum)
{
	uint64_t at;

	randombytes_buf(&at, sizeof(at));
	at %= sum;
	for (unsigned i = 0; i < n; i++) {
		if (at < free_mib[i])
			return vols[i];
		at -= free_mib[i];
	}
	return vols[n - 1];
}

/* Never NULL. If all are full, the one with the most space; if all fail, the home, whose error
 * tells why. */
static struct ds_vol *volume_choose(struct ds_store *s)
{
	struct ds_vol *vols[DS_VOLUMES_MAX], *best = NULL;
	uint64_t mib[DS_VOLUMES_MAX], sum = 0, most = 0;
	unsigned n = 0;

	for (unsigned i = 0; i < s->s_nvols; i++) {
		struct ds_vol *v = s->s_vol[i];
		uint64_t bytes = vol_free(v);

		if (ds_vol_failing(v))
			continue;
		if (!best || bytes > most) {
			best = v;
			most = bytes;
		}
		if (bytes < FULL_BYTES)
			continue;
		vols[n] = v;
		mib[n] = bytes >> 20;
		sum += mib[n++];
	}
	return n ? volume_draw(vols, mib, n, sum) : best ? best : s->s_home;
}

/* An error of the marks is the home's, and mark_raise has noted it. */
static int admit_and_make(struct ds_vol *v, const struct cap_object *key, bool lost)
{
	int fd = mark_admit(v, key->co_ino);

	if (fd < 0)
		return fd == -ENOSPC ? -EIO : fd;
	fd = make_in(v, key, lost);
	if (fd < 0)
		ds_health_note(v, true, fd);
	return fd;
}

int ds_vol_make(struct ds_store *s, const struct cap_object *key, bool lost, struct ds_vol *at,
		struct ds_vol **vol)
{
	int fd = -ENOSPC;

	if (s->s_nvols == 1 || at) {
		*vol = at ? at : s->s_home;
		return admit_and_make(*vol, key, lost);
	}
	for (unsigned tries = 0; tries < s->s_nvols && fd == -ENOSPC; tries++) {
		*vol = volume_choose(s);
		fd = admit_and_make(*vol, key, lost);
		/* The volume had less space than its figure. Look again after SPACE_MS. */
		if (fd == -ENOSPC) {
			atomic_store(&(*vol)->v_free_ms, clock_mono_ms());
			atomic_store(&(*vol)->v_free, 0);
		}
	}
	return fd;
}

/* ---- space ---- */

unsigned ds_store_volumes(const struct ds_store *s)
{
	return s->s_nvols;
}

const char *ds_store_volume_dir(const struct ds_store *s, unsigned i)
{
	return s->s_vol[i]->v_dir;
}

/* True if volume i counts for space. Each file system that works counts once; the home's counts
 * always. */
static bool volume_counts(const struct ds_store *s, unsigned i)
{
	struct ds_vol *v = s->s_vol[i];

	if (v != s->s_home && ds_vol_failing(v))
		return false;
	for (unsigned k = 0; k < i; k++)
		if (s->s_vol[k]->v_dev == v->v_dev && (k == 0 || !ds_vol_failing(s->s_vol[k])))
			return false;
	return true;
}

int ds_store_statvfs(struct ds_store *s, struct statvfs *sum)
{
	if (fstatvfs(s->s_home->v_dirfd, sum) < 0)
		return -errno;
	for (unsigned i = 1; i < s->s_nvols; i++) {
		struct statvfs v;

		if (!volume_counts(s, i) || fstatvfs(s->s_vol[i]->v_dirfd, &v) < 0)
			continue;
		sum->f_blocks += (fsblkcnt_t)((uint64_t)v.f_blocks * v.f_frsize / sum->f_frsize);
		sum->f_bfree += (fsblkcnt_t)((uint64_t)v.f_bfree * v.f_frsize / sum->f_frsize);
		sum->f_bavail += (fsblkcnt_t)((uint64_t)v.f_bavail * v.f_frsize / sum->f_frsize);
		sum->f_files += v.f_files;
		sum->f_ffree += v.f_ffree;
		sum->f_favail += v.f_favail;
	}
	return 0;
}

void ds_store_space(struct ds_store *s, uint64_t *capacity, uint64_t *available)
{
	struct statvfs v;

	*capacity = *available = 0;
	ds_health_look(s);
	if (ds_store_statvfs(s, &v))
		return;
	*capacity = (uint64_t)v.f_blocks * v.f_frsize;
	*available = ds_vol_failing(s->s_home) ? 0 : (uint64_t)v.f_bavail * v.f_frsize;
}

/* ---- metrics ---- */

static double total_gauge(void *arg)
{
	const struct ds_vol *v = arg;
	struct statvfs st;

	return fstatvfs(v->v_dirfd, &st) < 0 ? 0 : (double)st.f_blocks * (double)st.f_frsize;
}

static double free_gauge(void *arg)
{
	const struct ds_vol *v = arg;
	struct statvfs st;

	return fstatvfs(v->v_dirfd, &st) < 0 ? 0 : (double)st.f_bavail * (double)st.f_frsize;
}

static double volume_failing_gauge(void *arg)
{
	return ds_vol_failing(arg);
}

/* The text of a label (OpenMetrics): quotes and backslashes are escaped. */
static void label_text(const char *dir, char *out, size_t size)
{
	size_t at = 0;

	for (; *dir && at + 3 < size; dir++) {
		if (*dir == '"' || *dir == '\\')
			out[at++] = '\\';
		out[at++] = *dir;
	}
	out[at] = 0;
}

void ds_store_volume_metrics(struct ds_store *s)
{
	for (unsigned i = 0; i < s->s_nvols; i++) {
		char dir[2 * PATH_MAX], label[2 * PATH_MAX + 32];

		label_text(s->s_vol[i]->v_dir, dir, sizeof(dir));
		snprintf(label, sizeof(label), "volume=\"%s\",space=\"total\"", dir);
		metric_gauge("weft_ds_volume_bytes", "Space of the file system of each volume.",
			     label, total_gauge, s->s_vol[i]);
		snprintf(label, sizeof(label), "volume=\"%s\",space=\"free\"", dir);
		metric_gauge("weft_ds_volume_bytes", "Space of the file system of each volume.",
			     label, free_gauge, s->s_vol[i]);
		snprintf(label, sizeof(label), "volume=\"%s\"", dir);
		metric_gauge("weft_ds_volume_failing", "1 while the volume's disk does not work.",
			     label, volume_failing_gauge, s->s_vol[i]);
	}
}
