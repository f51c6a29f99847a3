/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_power.h - power cuts and kills, in user space, for one program of tests.
 *
 * All writes and syncs of the store come by this file; it keeps, for each file of the store, what
 * the disk has for certain (as of the last sync) and the writes since then. A cut, at any call of
 * either kind, makes a folder with what such a disk may have: of the writes since the last sync any
 * subset, sector by sector.
 */
#ifndef TESTS_UNIT_KV_POWER_H
#define TESTS_UNIT_KV_POWER_H
#include "base/crash.h"
#include "tests/unit/kv_store.h"
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define SECTOR 512u

struct pending {
	struct pending *p_next;
	uint64_t p_at;
	size_t p_len;
	bool p_sure; /* it was written through */
	char p_data[];
};

struct disk {
	char d_name[32]; /* below the store's folder */
	ino_t d_ino;
	char *d_sure; /* as of the last sync */
	size_t d_size;
	struct pending *d_first, **d_last;
	unsigned long d_came, d_gone; /* writes, so far; those no longer in the list */
};

static struct {
	pthread_mutex_t lock;
	bool on;
	long left; /* calls until the cut */
	unsigned seed;
	/* the folder that is made; empty: a kill, and all that was written is there */
	char to[256];
	struct disk disk[32];
	unsigned n;
	/* alignment of direct writes, where the device wants more than memory does; 0: none */
	size_t demand;
	_Atomic unsigned misaligned;
} sim = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void grow_sure(struct disk *d, size_t size)
{
	if (size <= d->d_size)
		return;
	d->d_sure = realloc(d->d_sure, size);
	memset(d->d_sure + d->d_size, 0, size - d->d_size);
	d->d_size = size;
}

/* What is there when it is first written to is sure. */
static struct disk *disk_of(int fd)
{
	char link[64], path[300];
	bool in_archive;
	struct disk *d;
	struct stat st;
	ssize_t n;

	if (!sim.on || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return NULL;
	for (unsigned i = 0; i < sim.n; i++)
		if (sim.disk[i].d_ino == st.st_ino)
			return &sim.disk[i];
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n < 0)
		return NULL;
	path[n] = 0;
	in_archive = strstr(path, "/archive/") != NULL;
	if (!in_archive && !strstr(path, "data.mdb") && !strstr(path, "redo.") &&
	    !strstr(path, "copy."))
		return NULL;
	if (sim.n == sizeof(sim.disk) / sizeof(sim.disk[0]))
		abort();
	d = &sim.disk[sim.n++];
	*d = (struct disk){.d_ino = st.st_ino};
	d->d_last = &d->d_first;
	snprintf(d->d_name, sizeof(d->d_name), "%s%.16s", in_archive ? "archive/" : "",
		 strrchr(path, '/') + 1);
	grow_sure(d, (size_t)st.st_size);
	n = open(path, O_RDONLY);
	for (size_t at = 0; at < d->d_size;) {
		ssize_t got = pread((int)n, d->d_sure + at, d->d_size - at, (off_t)at);

		if (got <= 0)
			abort();
		at += (size_t)got;
	}
	close((int)n);
	return d;
}

static void keep(struct disk *d, const void *data, size_t len, uint64_t at)
{
	struct pending *p = malloc(sizeof(*p) + len);

	*p = (struct pending){.p_at = at, .p_len = len};
	memcpy(p->p_data, data, len);
	*d->d_last = p;
	d->d_last = &p->p_next;
	d->d_came++;
}

static void put(struct disk *d, const struct pending *p, size_t from, size_t n)
{
	grow_sure(d, p->p_at + from + n);
	memcpy(d->d_sure + p->p_at + from, p->p_data + from, n);
}

static void drop_first(struct disk *d)
{
	struct pending *p = d->d_first;

	put(d, p, 0, p->p_len);
	d->d_first = p->p_next;
	if (!d->d_first)
		d->d_last = &d->d_first;
	free(p);
}

/* All that was written before the sync began is sure; later writes are not. */
static void settle(struct disk *d, unsigned long before)
{
	while (d->d_first && d->d_gone < before) {
		drop_first(d);
		d->d_gone++;
	}
}

/* The last write was written through, and only that. */
static void settle_last(struct disk *d)
{
	caa_container_of(d->d_last, struct pending, p_next)->p_sure = true;
	while (d->d_first && d->d_first->p_sure) {
		drop_first(d);
		d->d_gone++;
	}
}

/* How much of what is on its way arrives: nothing, everything, or some. */
static void cut_disk(struct disk *d)
{
	unsigned part = (unsigned)rand_r(&sim.seed) % 101, how = (unsigned)rand_r(&sim.seed) % 4;

	if (how == 0)
		part = 0;
	if (how == 1)
		part = 100;
	for (struct pending *p = d->d_first; p; p = p->p_next)
		for (size_t from = 0, n; from < p->p_len; from += n) {
			n = SECTOR - (p->p_at + from) % SECTOR;
			if (n > p->p_len - from)
				n = p->p_len - from;
			if (p->p_sure || (unsigned)rand_r(&sim.seed) % 100 < part)
				put(d, p, from, n);
		}
}

static void save_disk(const struct disk *d)
{
	char file[600];
	int fd;

	snprintf(file, sizeof(file), "%s/archive", sim.to);
	if (d->d_name[0] == 'a' && mkdir(file, 0700) && errno != EEXIST)
		abort();
	snprintf(file, sizeof(file), "%s/%s", sim.to, d->d_name);
	fd = open(file, O_CREAT | O_TRUNC | O_WRONLY, 0600);
	if (fd < 0 || ftruncate(fd, (off_t)d->d_size) < 0)
		abort();
	for (size_t at = 0; at < d->d_size; at += 4096) {
		static const char zeros[4096];
		size_t n = d->d_size - at < 4096 ? d->d_size - at : 4096;

		if (memcmp(d->d_sure + at, zeros, n) &&
		    syscall(SYS_pwrite64, fd, d->d_sure + at, n, at) != (long)n)
			abort();
	}
	close(fd);
}

static void end_now(void)
{
	for (unsigned i = 0; sim.to[0] && i < sim.n; i++) {
		cut_disk(&sim.disk[i]);
		save_disk(&sim.disk[i]);
	}
	_exit(9);
}

static void step(void)
{
	if (sim.on && --sim.left == 0)
		end_now();
}

void crash_hook(const char *point)
{
	(void)point;
	pthread_mutex_lock(&sim.lock);
	step();
	pthread_mutex_unlock(&sim.lock);
}

/* As a device refuses such a write when its file is open with O_DIRECT. */
static bool refused_direct(int fd, const struct iovec *v, int n, off_t at)
{
	bool bad = sim.demand && (size_t)at % sim.demand;

	for (int i = 0; sim.demand && i < n; i++)
		bad |= v[i].iov_len % sim.demand || (uintptr_t)v[i].iov_base % sim.demand;
	bad = bad && fcntl(fd, F_GETFL) & O_DIRECT;
	sim.misaligned += bad;
	return bad;
}

static ssize_t write_at(int fd, const struct iovec *v, int n, off_t at, int flags)
{
	struct disk *d;
	ssize_t rc;

	if (refused_direct(fd, v, n, at)) {
		errno = EINVAL;
		return -1;
	}
	pthread_mutex_lock(&sim.lock);
	d = disk_of(fd);
	if (d) {
		off_t pos = at;

		for (int i = 0; i < n; pos += (off_t)v[i++].iov_len)
			keep(d, v[i].iov_base, v[i].iov_len, (uint64_t)pos);
		if (sim.left == 1 && !sim.to[0]) { /* a kill in the middle of it */
			syscall(SYS_pwrite64, fd, v[0].iov_base, v[0].iov_len / 2, at);
			_exit(9);
		}
		step();
	}
	rc = syscall(SYS_pwritev2, fd, v, n, at, 0, flags);
	if (d && rc > 0 && (flags & RWF_DSYNC))
		settle_last(d);
	pthread_mutex_unlock(&sim.lock);
	return rc;
}

ssize_t pwritev2(int fd, const struct iovec *v, int n, off_t at, int flags)
{
	return write_at(fd, v, n, at, flags);
}

ssize_t pwrite(int fd, const void *buf, size_t n, off_t at)
{
	struct iovec v = {(void *)buf, n};

	/* LMDB's own descriptor for synchronous writes. */
	return write_at(fd, &v, 1, at, fcntl(fd, F_GETFL) & O_DSYNC ? RWF_DSYNC : 0);
}

ssize_t writev(int fd, const struct iovec *v, int n)
{
	ssize_t rc = write_at(fd, v, n, lseek(fd, 0, SEEK_CUR), 0);

	if (rc > 0)
		lseek(fd, rc, SEEK_CUR);
	return rc;
}

static int sync_file(int fd, long what)
{
	unsigned long before = 0;
	struct disk *d;
	int rc;

	pthread_mutex_lock(&sim.lock);
	d = disk_of(fd);
	if (d) {
		step();
		before = d->d_came;
	}
	pthread_mutex_unlock(&sim.lock);
	if (before % 4) /* a disk takes its time, and commits go on */
		usleep((useconds_t)(before % 16) * 1000);
	rc = (int)syscall(what, fd);
	pthread_mutex_lock(&sim.lock);
	if (d && rc == 0)
		settle(d, before);
	if (d)
		step();
	pthread_mutex_unlock(&sim.lock);
	return rc;
}

int fdatasync(int fd)
{
	return sync_file(fd, SYS_fdatasync);
}

int fsync(int fd)
{
	return sync_file(fd, SYS_fsync);
}
#endif
