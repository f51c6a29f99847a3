/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reserve.c - reserves space for the store's own files: HOME/reserve.
 *
 * Clients fill a disk to its last byte. The journal must still be able to record deletes and the
 * boot number. So this file allocates so_reserve bytes while there is space, and gives them up in
 * steps when the disk is full and the journal needs space: in steps, because clients take the freed
 * space as well. It allocates them again once there is space.
 *
 * A store can start without the reserve: a store older than this file has none if its disk is
 * already full (journal.c).
 */
#include "base/log.h"
#include "ds/store/store_int.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define RESERVE_FILE  "reserve"
#define RESERVE_PART  64u /* at most 1/64 of the file system */
#define RESERVE_STEPS 16
/* Free space needed before the reserve is allocated, as a multiple of its size. */
#define RESERVE_FREE 4u

/* The size of the reserve in whole pages; 0 on a disk that is too small. */
static off_t reserve_wanted(const struct ds_store *s, const struct statvfs *sv)
{
	uint64_t part = (uint64_t)sv->f_blocks * sv->f_frsize / RESERVE_PART;

	return (off_t)((part < s->s_reserve ? part : s->s_reserve) / DS_PAGE * DS_PAGE);
}

void ds_reserve_make(struct ds_store *s)
{
	struct statvfs sv;
	struct stat st;
	off_t want;
	int fd;

	if (fstatvfs(s->s_home->v_dirfd, &sv) < 0)
		return;
	want = reserve_wanted(s, &sv);
	if (fstatat(s->s_home->v_dirfd, RESERVE_FILE, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    st.st_size >= want)
		return;
	if (!want || (uint64_t)sv.f_bavail * sv.f_frsize < (uint64_t)want * RESERVE_FREE)
		return;
	fd = openat(s->s_home->v_dirfd, RESERVE_FILE, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW,
		    0600);
	if (fd < 0)
		return;
	/* A file system without fallocate has no reserve. */
	if (fallocate(fd, 0, 0, want) < 0) {
		if (errno != EOPNOTSUPP)
			log_warn("store: %s/" RESERVE_FILE ": cannot reserve space: %s",
				 s->s_home->v_dir, strerror(errno));
		unlinkat(s->s_home->v_dirfd, RESERVE_FILE, 0);
	} else {
		log_info("store: %s/" RESERVE_FILE ": %" PRIu64
			 " KiB reserved for when the disk is full",
			 s->s_home->v_dir, (uint64_t)want >> 10);
	}
	close(fd);
}

bool ds_reserve_give(struct ds_store *s)
{
	int fd = openat(s->s_home->v_dirfd, RESERVE_FILE, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	struct statvfs sv;
	struct stat st;
	bool given = false;
	off_t step, left;

	if (fd < 0)
		return false;
	if (fstat(fd, &st) == 0 && st.st_size > 0 && fstatvfs(fd, &sv) == 0) {
		step = reserve_wanted(s, &sv) / RESERVE_STEPS + DS_PAGE;
		left = st.st_size > step ? st.st_size - step : 0;
		/* The sync frees the space now; otherwise the file system's next commit would. */
		given = ftruncate(fd, left) == 0 && fsync(fd) == 0;
		if (given)
			log_warn("store: %s: the disk is full; %" PRIu64
				 " KiB of the reserve are left: free some space",
				 s->s_home->v_dir, (uint64_t)left >> 10);
	}
	close(fd);
	return given;
}
