/* SPDX-License-Identifier: Apache-2.0 */
/* fill.c - writes an object of a pending layout (docs/restripe.md). Only the job that fills the
 * object uses it yet, so nothing is locked. */
#include "base/log.h"
#include "ds/store/rebuild_int.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <unistd.h>

static int fill_put_data(struct ds_obj *o, int fd, const uint8_t *mem, size_t n, uint64_t off)
{
	for (size_t done = 0; done < n;) {
		ssize_t put = pwrite(fd, mem + done, n - done, (off_t)(off + done));

		if (put < 0 && errno == EINTR)
			continue;
		ds_health_note(o->ob_vol, true, put < 0 ? -errno : 0);
		if (put <= 0)
			return put ? -errno : -EIO;
		done += (size_t)put;
	}
	return 0;
}

/* Punches a hole. Does nothing where the object ends before it. */
static int fill_put_hole(int fd, uint64_t from, uint64_t to)
{
	struct stat st;

	if (from >= to)
		return 0;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (from >= (uint64_t)st.st_size)
		return 0;
	return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from,
			 (off_t)(to - from)) < 0
		       ? -errno
		       : 0;
}

int ds_fill_write(struct ds_obj *o, int fd, const struct ds_fetch *f)
{
	uint64_t at = f->ft_off;
	uint32_t pos = 0;
	int err = 0;

	for (unsigned i = 0; i < f->ft_nparts && !err; i++) {
		const struct ds_part *pt = &f->ft_part[i];

		err = fill_put_hole(fd, at, pt->pt_off);
		if (!err)
			err = fill_put_data(o, fd, f->ft_data + pos, pt->pt_len, pt->pt_off);
		pos += pt->pt_len;
		at = pt->pt_off + pt->pt_len;
	}
	if (!err)
		err = fill_put_hole(fd, at, f->ft_to);
	ds_obj_wrote(o);
	return err;
}

/* The MDS does not copy again what a FILL reports as copied: it must survive a loss of power. */
int ds_fill_sync(struct ds_obj *o, int fd)
{
	int err = 0;

	if (fsync(fd) < 0) {
		err = -errno;
		metric_add(ds_m_sync_failures, 1);
		ds_verifier_change(o->ob_store);
	}
	if (!err)
		err = ds_obj_sync_dirs(o);
	if (err)
		log_error("store: object %016" PRIx64 ": cannot make it durable: %s",
			  o->ob_key.co_ino, strerror(-err));
	return err;
}

int ds_fill_end(int fd, uint64_t size)
{
	return ftruncate(fd, (off_t)size) < 0 ? -errno : 0;
}
