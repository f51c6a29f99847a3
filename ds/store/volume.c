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
 * file with a number as high cannot hold this one (mr_high). The home's file "marks" makes each
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
#include <inttypes.h>
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

#define MARKS_VERSION	 1
#define MARKS_VERSION_FS 2 /* of a file system that is not the home's */
#define MARKS_APART	 4096
#define MARK_STEP	 16384u
#define SPACE_MS	 1000u	       /* how old the figure for free space may be */
#define FULL_BYTES	 (64ull << 20) /* a volume with less free space gets no new objects */

/*
 * On disk, big-endian, in one sector. mk_ino, indexed by the volume's number: the volume has no
 * object of a file with a higher number. Each file system has marks of its own, since each numbers
 * its files by itself: the home's first, with version 1, and then one pair of sectors for each of
 * the others, with version 2. Programs from before version 2 read the first pair alone.
 */
struct marks {
	uint8_t mk_version, mk_zero;
	uint16_t mk_fs; /* version 1: 0 */
	uint8_t mk_zero2[4];
	uint64_t mk_seq;
	uint64_t mk_ino[16];
	uint64_t mk_sum;
};
_Static_assert(sizeof(struct marks) == 152 && sizeof(struct marks) <= 512, "the format of marks");
_Static_assert(offsetof(struct marks, mk_fs) == 2 && offsetof(struct marks, mk_seq) == 8,
	       "the format of marks");
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

static void marks_seal(const struct ds_fs *f, struct marks *m)
{
	*m = (struct marks){.mk_version = MARKS_VERSION, .mk_seq = htobe64(f->fs_marks_seq)};
	if (f->fs_place) {
		m->mk_version = MARKS_VERSION_FS;
		m->mk_fs = htobe16((uint16_t)ds_fs_number(f));
	}
	for (unsigned i = 0; i < DS_VOLUMES_MAX; i++)
		m->mk_ino[i] = htobe64(f->fs_marked[i]);
	m->mk_sum = htobe64(hash_bytes(m, offsetof(struct marks, mk_sum)));
}

/* Where sector k (0 or 1) of a file system's marks is. */
static off_t marks_at(unsigned place, uint64_t k)
{
	return (off_t)(2 * place + k % 2) * MARKS_APART;
}

/* Writes over the older of the two sectors. With s_marks_lock held, or before other threads run. */
static int marks_write(struct ds_fs *f)
{
	struct ds_store *s = f->fs_store;
	struct marks m;
	int err = 0;

	f->fs_marks_seq++;
	marks_seal(f, &m);
	errno = 0;
	if (pwrite(s->s_marks_fd, &m, sizeof(m), marks_at(f->fs_place, f->fs_marks_seq)) !=
		    (ssize_t)sizeof(m) ||
	    fdatasync(s->s_marks_fd) < 0)
		err = errno ? -errno : -EIO;
	/* The next write goes to the same sector: the other one holds the last good marks. */
	if (err)
		f->fs_marks_seq--;
	return err;
}

/* False: this place of the file has no good marks. *fs: the number in them; 0: the home's. */
static bool marks_read(struct ds_store *s, unsigned place, uint32_t *fs, struct marks *out)
{
	bool found = false;

	for (uint64_t k = 0; k < 2; k++) {
		struct marks m;

		if (pread(s->s_marks_fd, &m, sizeof(m), marks_at(place, k)) != (ssize_t)sizeof(m) ||
		    m.mk_version != (place ? MARKS_VERSION_FS : MARKS_VERSION) ||
		    m.mk_sum != htobe64(hash_bytes(&m, offsetof(struct marks, mk_sum))) ||
		    (found && be64toh(m.mk_seq) <= be64toh(out->mk_seq)))
			continue;
		*out = m;
		*fs = be16toh(m.mk_fs);
		found = true;
	}
	return found;
}

static void marks_use(struct ds_fs *f, const struct marks *m)
{
	f->fs_marks_seq = be64toh(m->mk_seq);
	for (unsigned i = 0; i < DS_VOLUMES_MAX; i++)
		f->fs_marked[i] = be64toh(m->mk_ino[i]);
}

/* Writes the blocks once, so that later writes only overwrite them. */
static int marks_make(struct ds_store *s, unsigned place)
{
	uint8_t zero[2 * MARKS_APART] = {0};

	errno = 0;
	if (pwrite(s->s_marks_fd, zero, sizeof(zero), marks_at(place, 0)) != (ssize_t)sizeof(zero))
		return errno ? -errno : -EIO;
	return fsync(s->s_marks_fd) < 0 || fsync(s->s_home->v_dirfd) < 0 ? -errno : 0;
}

/* The marks in memory become those of the file. */
static void marks_begin(struct ds_fs *f)
{
	struct ds_store *s = f->fs_store;

	for (unsigned i = 1; i < s->s_nvols; i++) {
		struct ds_vol *v = s->s_vol[i];
		struct ds_mark *mr = &f->fs_mark[v->v_number];

		mr->mr_fs = f;
		mr->mr_vol = v;
		atomic_store(&mr->mr_high, f->fs_marked[v->v_number]);
		atomic_store(&mr->mr_mark, f->fs_marked[v->v_number]);
	}
}

/* Reads the marks of the file systems that are not the home's. */
static int marks_others(struct ds_store *s)
{
	for (unsigned place = 1; place < DS_FS_MAX; place++) {
		struct marks m;
		struct ds_fs *f;
		uint32_t fs;
		int err;

		/* The places are in use from the first on, in the order of s_fs. */
		if (!marks_read(s, place, &fs, &m))
			return 0;
		err = ds_store_fs_meet(s, fs, &f);
		/* What does not fit was never used: ds_marks_settle writes over it. */
		if (err || f->fs_place != place)
			return err == -ENOMEM ? err : 0;
		marks_use(f, &m);
		f->fs_marks_there = true;
	}
	return 0;
}

int ds_marks_open(struct ds_store *s, const bool new[DS_VOLUMES_MAX])
{
	struct ds_fs *home = s->s_fs[0];
	bool write = false;
	struct marks m;
	struct stat st;
	uint32_t fs;
	int err = 0;

	s->s_marks_fd = openat(s->s_home->v_dirfd, "marks", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (s->s_marks_fd < 0 || fstat(s->s_marks_fd, &st) < 0)
		return -errno;
	s->s_marks_new = true;
	for (unsigned i = 1; i < s->s_nvols; i++)
		s->s_marks_new &= new[s->s_vol[i]->v_number];
	home->fs_marks_there = true;
	if (marks_read(s, 0, &fs, &m)) {
		marks_use(home, &m);
		err = marks_others(s);
	} else {
		memset(home->fs_marked, s->s_marks_new ? 0 : 0xff, sizeof(home->fs_marked));
		if (!s->s_marks_new)
			log_warn("store: %s/marks is unreadable: while a volume fails, this server "
				 "takes no new files",
				 s->s_home->v_dir);
		write = true;
		if (st.st_size < 2 * MARKS_APART)
			err = marks_make(s, 0);
	}
	for (unsigned k = 0; k < atomic_load(&s->s_nfs) && !err; k++) {
		bool changed = write && !k;

		for (unsigned i = 1; i < s->s_nvols; i++) {
			unsigned v = s->s_vol[i]->v_number;

			if (new[v])
				s->s_fs[k]->fs_marked[v] = 0;
			changed |= new[v];
		}
		marks_begin(s->s_fs[k]);
		err = changed ? marks_write(s->s_fs[k]) : 0;
	}
	return err;
}

/* A file system that has no marks in the file. Unless all its volumes are new, nothing says how
 * high its files are numbered. */
static int marks_add(struct ds_fs *f, bool none)
{
	struct ds_store *s = f->fs_store;
	int err;

	memset(f->fs_marked, none ? 0 : 0xff, sizeof(f->fs_marked));
	err = marks_make(s, f->fs_place);
	if (!err)
		err = marks_write(f);
	f->fs_marks_there = !err;
	marks_begin(f);
	return err;
}

int ds_marks_settle(struct ds_store *s)
{
	int err = 0;

	s->s_marks_met = true;
	for (unsigned k = 0; k < atomic_load(&s->s_nfs) && s->s_nvols > 1 && !err; k++)
		if (!s->s_fs[k]->fs_marks_there)
			err = marks_add(s->s_fs[k], s->s_marks_new);
	return err;
}

/* While the store is opened, ds_marks_open and ds_marks_settle do it. */
void ds_marks_meet(struct ds_fs *f)
{
	struct ds_store *s = f->fs_store;
	int err;

	if (s->s_nvols == 1 || !s->s_marks_met)
		return;
	pthread_mutex_lock(&s->s_marks_lock);
	err = marks_add(f, true);
	pthread_mutex_unlock(&s->s_marks_lock);
	if (err)
		log_warn("store: %s/marks: %s: while a volume fails, this server takes no new "
			 "files of file system %" PRIu32 " after a restart",
			 s->s_home->v_dir, strerror(-err), ds_fs_number(f));
}

static int mark_raise(struct ds_mark *mr, uint64_t ino)
{
	struct ds_fs *f = mr->mr_fs;
	struct ds_store *s = f->fs_store;
	unsigned v = mr->mr_vol->v_number;
	int err = 0;

	pthread_mutex_lock(&s->s_marks_lock);
	if (ino > atomic_load(&mr->mr_mark)) {
		uint64_t old = f->fs_marked[v], high = atomic_load(&mr->mr_high);

		if (ino < high)
			ino = high;
		f->fs_marked[v] = ino <= UINT64_MAX - MARK_STEP ? ino + MARK_STEP : UINT64_MAX;
		err = marks_write(f);
		if (err)
			f->fs_marked[v] = old;
		else
			atomic_store(&mr->mr_mark, f->fs_marked[v]);
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
	struct ds_mark *mr = caa_container_of(j, struct ds_mark, mr_job);

	/* Nothing is above UINT64_MAX. */
	if (atomic_load(&mr->mr_mark) != UINT64_MAX)
		mark_raise(mr, atomic_load(&mr->mr_mark) + 1);
	atomic_store(&mr->mr_marking, false);
}

/* The file system that counts for the object's mark. A store that has joined none yet has only the
 * home's. NULL: the store has not met it. */
static struct ds_fs *mark_fs(struct ds_store *s, const struct cap_object *key)
{
	struct ds_fs *f = ds_store_fs(s, key->co_fs), *home = ds_store_fs_home(s);

	return f || ds_fs_number(home) ? f : home;
}

/*
 * Called before an object of file ino is made in v. Raises mr_high first, and then reads mr_mark.
 * ds_marks_close works in the opposite order. So either this function waits for ds_marks_close, or
 * ds_marks_close writes a mark that includes ino.
 */
static int mark_admit(struct ds_vol *v, const struct cap_object *key)
{
	uint64_t ino = key->co_ino, high, mark;
	struct ds_mark *mr;
	struct ds_fs *f;

	if (v == v->v_store->s_home)
		return 0;
	f = mark_fs(v->v_store, key);
	if (!f)
		return -EINVAL;
	mr = &f->fs_mark[v->v_number];
	high = atomic_load(&mr->mr_high);
	while (ino > high && !atomic_compare_exchange_weak(&mr->mr_high, &high, ino))
		;
	mark = atomic_load(&mr->mr_mark);
	if (ino > mark)
		return mark_raise(mr, ino);
	if (mark - ino < MARK_STEP / 2 && mark != UINT64_MAX &&
	    !atomic_exchange(&mr->mr_marking, true)) {
		mr->mr_job.jb_run = mark_job;
		ds_store_submit(v->v_store, DS_WORKER_HEALTH, &mr->mr_job);
	}
	return 0;
}

/* With s_marks_lock held. */
static int marks_close(struct ds_fs *f)
{
	struct ds_store *s = f->fs_store;
	int err;

	for (unsigned i = 1; i < s->s_nvols; i++) {
		struct ds_mark *mr = &f->fs_mark[s->s_vol[i]->v_number];

		atomic_store(&mr->mr_mark, 0);
		f->fs_marked[s->s_vol[i]->v_number] = atomic_load(&mr->mr_high);
	}
	err = f->fs_marks_there ? marks_write(f) : 0;
	for (unsigned i = 1; i < s->s_nvols && !err; i++)
		atomic_store(&f->fs_mark[s->s_vol[i]->v_number].mr_mark,
			     f->fs_marked[s->s_vol[i]->v_number]);
	return err;
}

/* The daemon ends in order: store the exact highest numbers. */
void ds_marks_close(struct ds_store *s)
{
	int err = 0;

	if (s->s_nvols == 1)
		return;
	pthread_mutex_lock(&s->s_marks_lock);
	for (unsigned k = 0; k < atomic_load(&s->s_nfs); k++) {
		int e = marks_close(s->s_fs[k]);

		err = err ? err : e;
	}
	pthread_mutex_unlock(&s->s_marks_lock);
	if (err)
		log_warn("store: %s/marks: %s", s->s_home->v_dir, strerror(-err));
}

/* ---- looking for an object ---- */

/* True if, despite error err in v, the object may be there. A file system that the store has not
 * met has no objects in it. */
static bool volume_may_have(const struct ds_vol *v, const struct cap_object *key, int err)
{
	struct ds_fs *f;

	if (v == v->v_store->s_home || !ds_of_the_disk(err))
		return true;
	f = mark_fs(v->v_store, key);
	return f && key->co_ino <= atomic_load(&f->fs_mark[v->v_number].mr_high);
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
		if (!unknown && volume_may_have(*vol, key, err))
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
		if (err && err != -ENOENT && !unknown && volume_may_have(s->s_vol[i], key, err))
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
	int fd = mark_admit(v, key);

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
