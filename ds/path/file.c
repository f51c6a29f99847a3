/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file.c - keeps a bounded number of files open between READs, WRITEs and COMMITs. It closes a file
 * that was not used for some seconds, so that a removed file frees its space; if the removal came
 * through this server, it closes the file at once.
 *
 * The descriptors are opened under the server's ids. Each call proves its own permission before it
 * uses one.
 */
#include "base/clock.h"
#include "ds/path/path_int.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#define FILES_MOST    4096u
#define FILES_KEEP_NS UINT64_C(3000000000)

struct path_files {
	pthread_mutex_t fs_lock; /* guards everything except a file's descriptors */
	struct hash fs_table;
	struct path_file *fs_head, *fs_tail; /* unused ones, oldest first */
	unsigned fs_most;
};
static _Atomic unsigned open_files;

double path_files_gauge(void)
{
	return atomic_load(&open_files);
}

int path_files_open(struct path_files **out)
{
	struct path_files *fs = calloc(1, sizeof(*fs));
	struct rlimit lim;

	if (!fs)
		return -ENOMEM;
	pthread_mutex_init(&fs->fs_lock, NULL);
	fs->fs_most = FILES_MOST;
	/* A file may take three descriptors; connections need most of the limit. */
	if (!getrlimit(RLIMIT_NOFILE, &lim) && lim.rlim_cur / 12 < FILES_MOST)
		fs->fs_most = (unsigned)(lim.rlim_cur / 12);
	*out = fs;
	return 0;
}

static uint64_t fh_hash(const struct path_fh *fh)
{
	return hash_bytes(fh, sizeof(*fh));
}

static struct path_file *file_find(struct path_files *fs, const struct path_fh *fh)
{
	struct hash_link *l = hash_first(&fs->fs_table, fh_hash(fh));

	while (l && memcmp(&hash_entry(l, struct path_file, pf_link)->pf_fh, fh, sizeof(*fh)) != 0)
		l = hash_next(l);
	return l ? hash_entry(l, struct path_file, pf_link) : NULL;
}

static void file_idle_add(struct path_files *fs, struct path_file *f)
{
	f->pf_next = NULL;
	f->pf_prev = fs->fs_tail;
	*(fs->fs_tail ? &fs->fs_tail->pf_next : &fs->fs_head) = f;
	fs->fs_tail = f;
}

static void file_idle_del(struct path_files *fs, struct path_file *f)
{
	*(f->pf_prev ? &f->pf_prev->pf_next : &fs->fs_head) = f->pf_next;
	*(f->pf_next ? &f->pf_next->pf_prev : &fs->fs_tail) = f->pf_prev;
}

static void file_close(struct path_file *f)
{
	if (atomic_load(&f->pf_read) >= 0)
		close(atomic_load(&f->pf_read));
	if (atomic_load(&f->pf_write) >= 0)
		close(atomic_load(&f->pf_write));
	close(f->pf_path);
	free(f);
	atomic_fetch_sub(&open_files, 1);
}

/* Takes f out of the table; the caller closes it when its last use ends. */
static void file_drop(struct path_files *fs, struct path_file *f)
{
	if (f->pf_dropped)
		return;
	f->pf_dropped = true;
	hash_del(&fs->fs_table, &f->pf_link);
}

/* Closes unused files beyond a number or older than a time; closes them after it has released the
 * lock. */
static void tidy(struct path_files *fs, size_t most, uint64_t before_ns)
{
	for (;;) {
		struct path_file *f;

		pthread_mutex_lock(&fs->fs_lock);
		f = fs->fs_head;
		if (f && (fs->fs_table.h_count > most || f->pf_used_ns < before_ns)) {
			file_idle_del(fs, f);
			file_drop(fs, f);
		} else {
			f = NULL;
		}
		pthread_mutex_unlock(&fs->fs_lock);
		if (!f)
			return;
		file_close(f);
	}
}

void path_files_idle(void *arg)
{
	struct path *p = arg;

	tidy(p->p_files, SIZE_MAX, clock_of(CLOCK_MONOTONIC_COARSE) - FILES_KEEP_NS);
}

int path_file_get(struct path *p, const struct path_export *x, const struct path_fh *fh,
		  struct path_file **out)
{
	struct path_files *fs = p->p_files;
	struct path_file *f, *other;
	int fd;

	pthread_mutex_lock(&fs->fs_lock);
	f = file_find(fs, fh);
	if (f && !f->pf_refs++)
		file_idle_del(fs, f);
	pthread_mutex_unlock(&fs->fs_lock);
	if (f) {
		*out = f;
		return 0;
	}
	fd = path_fh_open(x->x_fd, fh);
	if (fd < 0)
		return fd;
	f = calloc(1, sizeof(*f));
	if (!f) {
		close(fd);
		return -ENOMEM;
	}
	f->pf_refs = 1;
	f->pf_fh = *fh;
	f->pf_path = fd;
	atomic_store(&f->pf_read, -1);
	atomic_store(&f->pf_write, -1);
	atomic_fetch_add(&open_files, 1);
	pthread_mutex_lock(&fs->fs_lock);
	/* Another thread may have been faster. Two do no harm: the second lives only for this
	 * call. */
	other = file_find(fs, fh);
	if (other || hash_add(&fs->fs_table, &f->pf_link, fh_hash(fh)))
		f->pf_dropped = true;
	pthread_mutex_unlock(&fs->fs_lock);
	*out = f;
	return 0;
}

void path_file_put(struct path *p, struct path_file *f)
{
	struct path_files *fs = p->p_files;
	bool last = false, many;

	pthread_mutex_lock(&fs->fs_lock);
	if (!--f->pf_refs) {
		last = f->pf_dropped;
		if (!last) {
			f->pf_used_ns = clock_of(CLOCK_MONOTONIC_COARSE);
			file_idle_add(fs, f);
		}
	}
	many = fs->fs_table.h_count > fs->fs_most;
	pthread_mutex_unlock(&fs->fs_lock);
	if (last)
		file_close(f);
	if (many)
		tidy(fs, fs->fs_most, 0);
}

void path_file_forget(struct path *p, const struct path_fh *fh)
{
	struct path_files *fs = p->p_files;
	struct path_file *f;

	pthread_mutex_lock(&fs->fs_lock);
	f = file_find(fs, fh);
	if (f) {
		file_drop(fs, f);
		if (f->pf_refs)
			f = NULL;
		else
			file_idle_del(fs, f);
	}
	pthread_mutex_unlock(&fs->fs_lock);
	if (f)
		file_close(f);
}

int path_file_fd(struct path_file *f, bool write)
{
	_Atomic int *where = write ? &f->pf_write : &f->pf_read;
	char name[PATH_FD_LEN];
	int fd = atomic_load(where), none = -1;

	if (fd >= 0)
		return fd;
	fd = open(path_of_fd(name, f->pf_path),
		  (write ? O_WRONLY : O_RDONLY) | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (atomic_compare_exchange_strong(where, &none, fd))
		return fd;
	close(fd);
	return none;
}
