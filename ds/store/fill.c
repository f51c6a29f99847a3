/* SPDX-License-Identifier: Apache-2.0 */
/* fill.c - the end of an object of a pending layout, and its way to the disk (docs/restripe.md). */
#include "base/log.h"
#include "ds/store/rebuild_int.h"
#include <errno.h>
#include <inttypes.h>
#include <unistd.h>

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
