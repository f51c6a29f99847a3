/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export.c - the table of exported folders: finds them, holds them open, and rejects overlaps.
 *
 * A folder is opened once, when the table is loaded; later changes to its path have no effect. No
 * folder may lie in another export's folder, or in a folder of objects, or have a folder of objects
 * in it. So a file has the permissions of one export only, and objects can be reached by
 * capabilities alone.
 */
#include "base/log.h"
#include "ds/path/path_int.h"
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <unistd.h>

#define UP_MAX 4096

struct path_table *path_table_get(struct path *p)
{
	struct path_table *t;

	pthread_mutex_lock(&p->p_lock);
	t = p->p_table;
	atomic_fetch_add(&t->t_refs, 1);
	pthread_mutex_unlock(&p->p_lock);
	return t;
}

void path_table_put(struct path_table *t)
{
	if (!t || atomic_fetch_sub(&t->t_refs, 1) != 1)
		return;
	for (unsigned i = 0; t->t_exports && i < t->t_exports->xt_n; i++)
		if (t->t_x[i].x_fd >= 0)
			close(t->t_x[i].x_fd);
	exp_put(t->t_exports);
	free(t);
}

/* ---- options that a data server lacks ---- */

static int rule_check(const struct exp *e, const struct exp_rule *r, char *err, size_t errlen)
{
	bool plain = false;

	for (unsigned i = 0; i < r->r_nsec; i++)
		plain |= r->r_sec[i] <= EXP_SYS;
	if (r->r_layouts != EXP_LAYOUTS_AUTO)
		snprintf(err, errlen,
			 "export \"%s\": layouts: a data server grants no layouts by path; remove "
			 "this option",
			 e->e_path);
	else if (!plain)
		snprintf(err, errlen,
			 "export \"%s\": sec: a data server serves paths only with sys and none",
			 e->e_path);
	else
		return 0;
	return -EINVAL;
}

static int exports_check(const struct exp_table *t, char *err, size_t errlen)
{
	for (unsigned i = 0; i < t->xt_n; i++) {
		const struct exp *e = &t->xt_exp[i];

		if (e->e_create) {
			snprintf(err, errlen,
				 "export \"%s\": create: a data server makes no folders; remove "
				 "this option",
				 e->e_path);
			return -EINVAL;
		}
		for (unsigned k = 0; k < e->e_nrules; k++)
			if (rule_check(e, &e->e_rule[k], err, errlen))
				return -EINVAL;
	}
	return 0;
}

/* ---- folders ---- */

static void fsid_make(const struct path *p, struct path_export *x)
{
	uint8_t msg[16 + 2];

	memcpy(msg, p->p_uuid, 16);
	msg[16] = (uint8_t)(x->x_exp->e_id >> 8);
	msg[17] = (uint8_t)x->x_exp->e_id;
	crypto_shorthash((uint8_t *)&x->x_fsid, msg, sizeof(msg), p->p_key);
}

/* A missing folder is no error: its file system may be mounted later, and a reload then finds
 * it. */
static int export_folder_open(struct path *p, struct exp *e, struct path_export *x, char *err,
			      size_t errlen)
{
	struct stat st;
	int rc;

	x->x_exp = e;
	x->x_fd = open(e->e_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (x->x_fd < 0 || fstat(x->x_fd, &st)) {
		log_warn("export \"%s\": %s: not served until a reload finds the folder", e->e_path,
			 strerror(errno));
		return 0;
	}
	x->x_dev = st.st_dev;
	x->x_ino = st.st_ino;
	rc = path_fh_of(x->x_fd, "", e->e_id, &x->x_fh);
	if (!rc) {
		int fd = path_fh_open(x->x_fd, &x->x_fh);

		rc = fd < 0 ? fd : 0;
		if (fd >= 0)
			close(fd);
	}
	if (rc) {
		snprintf(err, errlen,
			 "export \"%s\": its file system has no persistent file handles: %s",
			 e->e_path, strerror(-rc));
		return rc;
	}
	e->e_root = st.st_ino;
	fsid_make(p, x);
	return 0;
}

int path_is_above(dev_t dev, ino_t ino, int fd)
{
	struct stat st, last = {0};
	int at = openat(fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC), rc = 0;

	for (unsigned n = 0; at >= 0 && n < UP_MAX; n++) {
		int up;

		if (fstat(at, &st))
			break;
		if (st.st_dev == dev && st.st_ino == ino) {
			rc = 1;
			break;
		}
		if (n && st.st_dev == last.st_dev && st.st_ino == last.st_ino)
			break;
		last = st;
		up = openat(at, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
		close(at);
		at = up;
	}
	if (at < 0)
		rc = -errno;
	else
		close(at);
	return rc;
}

static int overlap(dev_t adev, ino_t aino, int afd, dev_t bdev, ino_t bino, int bfd)
{
	int rc = path_is_above(adev, aino, bfd);

	return rc ? rc : path_is_above(bdev, bino, afd);
}

/* No export may lead to a folder of objects. */
static int store_check(struct path_table *t, const char *dir, char *err, size_t errlen)
{
	int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC), rc = 0;
	struct stat st;

	if (fd < 0 || fstat(fd, &st)) {
		rc = -errno;
		snprintf(err, errlen, "ds.store = %s: %s", dir, strerror(errno));
	}
	for (unsigned i = 0; i < t->t_exports->xt_n && !rc; i++) {
		struct path_export *x = &t->t_x[i];

		if (x->x_fd < 0)
			continue;
		rc = overlap(x->x_dev, x->x_ino, x->x_fd, st.st_dev, st.st_ino, fd);
		if (rc)
			snprintf(err, errlen,
				 "export \"%s\": overlaps ds.store = %s, whose objects must not be "
				 "reachable by path",
				 x->x_exp->e_path, dir);
	}
	if (fd >= 0)
		close(fd);
	return rc;
}

static int overlaps_check(struct path *p, struct path_table *t, char *err, size_t errlen)
{
	char *dirs[DS_VOLUMES_MAX];
	unsigned n;
	int rc = ds_dirs_parse(p->p_store, dirs, &n, err, errlen);

	if (rc)
		return rc;
	for (unsigned i = 0; i < n && !rc; i++)
		rc = store_check(t, dirs[i], err, errlen);
	ds_dirs_free(dirs, n);
	for (unsigned i = 0; i < t->t_exports->xt_n && !rc; i++) {
		struct path_export *x = &t->t_x[i];

		for (unsigned k = 0; k < i && !rc && x->x_fd >= 0; k++) {
			struct path_export *y = &t->t_x[k];

			if (y->x_fd >= 0)
				rc = overlap(x->x_dev, x->x_ino, x->x_fd, y->x_dev, y->x_ino,
					     y->x_fd);
			if (rc)
				snprintf(err, errlen,
					 "export \"%s\": overlaps export \"%s\"; export only the "
					 "upper one",
					 x->x_exp->e_path, y->x_exp->e_path);
		}
	}
	return rc > 0 ? -EINVAL : rc;
}

int path_table_load(struct path *p, struct path_table **out, char *err, size_t errlen)
{
	struct path_table *t = calloc(1, sizeof(*t));
	int rc;

	if (!t) {
		snprintf(err, errlen, "exports: out of memory");
		return -ENOMEM;
	}
	atomic_init(&t->t_refs, 1);
	for (unsigned i = 0; i < EXP_MAX; i++)
		t->t_x[i].x_fd = -1;
	rc = exp_read(p->p_exports, &t->t_exports, err, errlen);
	if (!rc)
		rc = exports_check(t->t_exports, err, errlen);
	for (unsigned i = 0; !rc && i < t->t_exports->xt_n; i++)
		rc = export_folder_open(p, &t->t_exports->xt_exp[i], &t->t_x[i], err, errlen);
	if (!rc)
		rc = overlaps_check(p, t, err, errlen);
	if (rc) {
		path_table_put(t);
		return rc;
	}
	*out = t;
	return 0;
}
