/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_layout.c - refuses to open a store where LMDB is not the one that the redo log knows
 * (kv_meta.h). Recovery writes meta pages by itself: with another layout it would destroy the
 * store.
 */
#include "kv/kv_int.h"
#include "kv/kv_log.h"
#include "kv/kv_meta.h"
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(KV_META_KEPT == KV_LOG_META, "the log keeps what kv_meta.h says");
_Static_assert(MDB_VERSION_MAJOR == KV_META_MAJOR && MDB_VERSION_MINOR == KV_META_MINOR,
	       "the redo log does not know this version of LMDB");

static int kv_layout_refuse(const char *path, const char *wrong, struct kv_failure *f)
{
	int major, minor, patch;

	mdb_version(&major, &minor, &patch);
	return kv_fail(f, -EPROTO,
		       "%s: %s: the redo log knows LMDB %d.%d with data version %u; this is LMDB "
		       "%d.%d.%d",
		       path, wrong, KV_META_MAJOR, KV_META_MINOR, KV_META_VERSION, major, minor,
		       patch);
}

/* A file that is no LMDB file, or is too short for one, is left to LMDB's own check. */
static int kv_layout_file(const char *path, struct kv_failure *f)
{
	struct kv_meta_page p;
	char file[4096], wrong[80];
	int fd, rc = 0;

	if (snprintf(file, sizeof(file), "%s/data.mdb", path) >= (int)sizeof(file))
		return kv_fail(f, -ENAMETOOLONG, "%s: the path is too long", path);
	fd = open(file, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	if (pread(fd, &p, sizeof(p), 0) == sizeof(p) && p.mp_magic == KV_META_MAGIC &&
	    p.mp_version != KV_META_VERSION) {
		snprintf(wrong, sizeof(wrong), "data.mdb has data version %u", p.mp_version);
		rc = kv_layout_refuse(path, wrong, f);
	}
	close(fd);
	return rc;
}

int kv_layout_look(const char *path, struct kv_failure *f)
{
	int major, minor;

	mdb_version(&major, &minor, NULL);
	return kv_meta_knows(major, minor)
		       ? kv_layout_file(path, f)
		       : kv_layout_refuse(path, "the library has another version", f);
}

int kv_layout_head(const char *path, const struct kv_log_head *h, struct kv_failure *f)
{
	for (unsigned i = 0; i < 2; i++) {
		struct kv_meta_page p;
		const char *wrong;

		memcpy(&p, h->lh_meta[i], sizeof(p));
		wrong = kv_meta_page_wrong(&p, i, le32toh(h->lh_psize));
		if (wrong)
			return kv_layout_refuse(path, wrong, f);
	}
	return 0;
}

int kv_layout_check(struct kv *kv, struct kv_failure *f)
{
	const char *wrong;
	MDB_envinfo info;
	MDB_stat st;
	size_t len = 2 * (size_t)kv->k_psize;
	void *pages = malloc(len);
	ssize_t n;
	int fd;

	if (!pages)
		return kv_fail(f, -ENOMEM, "%s: out of memory", kv->k_path);
	mdb_env_get_fd(kv->k_env, &fd);
	mdb_env_info(kv->k_env, &info);
	mdb_env_stat(kv->k_env, &st);
	n = pread(fd, pages, len, 0);
	if (n < 0)
		n = -errno;
	wrong = n == (ssize_t)len ? kv_meta_wrong(pages, &info, &st)
				  : "data.mdb has no two meta pages";
	free(pages);
	if (n < 0)
		return kv_fail(f, (int)n, "%s/data.mdb: %s", kv->k_path, strerror((int)-n));
	return wrong ? kv_layout_refuse(kv->k_path, wrong, f) : 0;
}
