/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adopt.c - finds and checks the volumes of a store when it opens, and adopts new ones.
 *
 * The first folder of ds.store is the home: it holds the identity, the journal and the marks, and
 * objects as the other folders do. The home's file "volumes" lists the others by number and uuid;
 * each of them has a file "volume", which names the store and the volume. The store opens only if
 * all listed volumes are present. With some of them missing, the server would take their objects
 * for missing ones and create them a second time.
 *
 * Adopting a new folder takes these steps in order, each durable before the next:
 *
 *   1. write its file "volume"
 *   2. write its mark (volume.c)
 *   3. write its line in the list
 *   4. set the identity's version to 2: a program that does not know volumes must not open the
 *      home alone
 *
 * Only then may an object be created in it. So a folder whose adoption was interrupted has no
 * objects, and the next start that finds it adopts it.
 */
#include "ds/store/store_int.h"
#include "base/log.h"
#include "common/check.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define VOLUME_VERSION 1
#define LIST_VERSION   1
#define LIST_TEXT      (DS_VOLUMES_MAX * (PATH_MAX + 64))

/* The contents of the file "volume", if there is one. */
struct claim {
	bool cl_there;
	uint8_t cl_store[DS_UUID_LEN], cl_own[DS_UUID_LEN];
};

/* A line of the home's list. */
struct listed {
	unsigned li_number;
	uint8_t li_uuid[DS_UUID_LEN];
	char *li_dir; /* the folder at the last start */
};

struct adopt {
	struct ds_store *ad_store;
	struct claim ad_claim[DS_VOLUMES_MAX];
	struct listed ad_list[DS_VOLUMES_MAX];
	unsigned ad_nlist;
	char *ad_err;
	size_t ad_errlen;
};

static int adopt_refuse(struct adopt *a, int e, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(a->ad_err, a->ad_errlen, fmt, ap);
	va_end(ap);
	return e;
}

static int refuse_path(struct adopt *a, int error, const char *dir, const char *name)
{
	return adopt_refuse(a, -error, "%s%s: %s%s", dir, name, strerror(error),
			    check_hint(error, dir));
}

static const char *adopt_uuid_text(const uint8_t uuid[DS_UUID_LEN], char out[DS_UUID_TEXT])
{
	return sodium_bin2hex(out, DS_UUID_TEXT, uuid, DS_UUID_LEN);
}

static bool uuid_parse(const char *text, uint8_t uuid[DS_UUID_LEN])
{
	size_t len;

	return strlen(text) == DS_UUID_TEXT - 1 &&
	       !sodium_hex2bin(uuid, DS_UUID_LEN, text, DS_UUID_TEXT - 1, NULL, &len, NULL) &&
	       len == DS_UUID_LEN;
}

/* ---- small files ---- */

int ds_file_put(int dirfd, const char *name, const char *text)
{
	size_t n = strlen(text);
	char temp[32];
	int fd, err = 0;

	snprintf(temp, sizeof(temp), "%s.new", name);
	fd = openat(dirfd, temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	errno = 0;
	if (write(fd, text, n) != (ssize_t)n || fsync(fd) < 0)
		err = errno ? -errno : -EIO;
	close(fd);
	if (!err && (renameat(dirfd, temp, dirfd, name) < 0 || fsync(dirfd) < 0))
		err = -errno;
	return err;
}

ssize_t ds_file_get(int dirfd, const char *name, char *text, size_t size)
{
	int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC);
	size_t at = 0;
	ssize_t n = 1;

	if (fd < 0)
		return -errno;
	while (n > 0 && at < size - 1) {
		n = read(fd, text + at, size - 1 - at);
		at += n > 0 ? (size_t)n : 0;
	}
	if (n < 0)
		n = -errno;
	close(fd);
	text[at] = 0;
	return n < 0 ? n : (ssize_t)at;
}

static int claim_read(struct adopt *a, const struct ds_vol *v, struct claim *c)
{
	char text[512], store[DS_UUID_TEXT], own[DS_UUID_TEXT];
	ssize_t n = ds_file_get(v->v_dirfd, "volume", text, sizeof(text));
	int version = 0;

	c->cl_there = false;
	if (n == -ENOENT)
		return 0;
	if (n < 0)
		return adopt_refuse(a, (int)n, "%s/volume: %s", v->v_dir, strerror((int)-n));
	if (sscanf(text, "weft-ds volume\nversion=%d\nstore=%32s\nuuid=%32s\n", &version, store,
		   own) >= 1 &&
	    version != VOLUME_VERSION)
		return adopt_refuse(a, -EPROTONOSUPPORT,
				    "%s: the volume has version %d, this weft-ds knows version %d",
				    v->v_dir, version, VOLUME_VERSION);
	if (sscanf(text, "weft-ds volume\nversion=%d\nstore=%32s\nuuid=%32s\n", &version, store,
		   own) != 3 ||
	    !uuid_parse(store, c->cl_store) || !uuid_parse(own, c->cl_own))
		return adopt_refuse(a, -EINVAL,
				    "%s/volume: not the description of a weft-ds volume", v->v_dir);
	c->cl_there = true;
	return 0;
}

static int claim_write(const struct ds_vol *v, const uint8_t store[DS_UUID_LEN])
{
	char text[256], s[DS_UUID_TEXT], own[DS_UUID_TEXT];

	snprintf(text, sizeof(text), "weft-ds volume\nversion=%d\nstore=%s\nuuid=%s\n",
		 VOLUME_VERSION, adopt_uuid_text(store, s), adopt_uuid_text(v->v_uuid, own));
	return ds_file_put(v->v_dirfd, "volume", text);
}

/* ---- the home's list ---- */

static int list_line(struct adopt *a, const char *line)
{
	struct listed *l = &a->ad_list[a->ad_nlist];
	char uuid[DS_UUID_TEXT];
	int at = 0;

	if (a->ad_nlist == DS_VOLUMES_MAX - 1 ||
	    sscanf(line, "volume=%u %32s %n", &l->li_number, uuid, &at) != 2 || !at ||
	    !uuid_parse(uuid, l->li_uuid) || !l->li_number || l->li_number >= DS_VOLUMES_MAX)
		return -EINVAL;
	for (unsigned i = 0; i < a->ad_nlist; i++)
		if (a->ad_list[i].li_number == l->li_number ||
		    !memcmp(a->ad_list[i].li_uuid, l->li_uuid, DS_UUID_LEN))
			return -EINVAL;
	l->li_dir = strdup(line + at);
	if (!l->li_dir)
		return -ENOMEM;
	a->ad_nlist++;
	return 0;
}

static int list_parse(struct adopt *a, char *text)
{
	char *save = NULL, *line = strtok_r(text, "\n", &save);
	const char *dir = a->ad_store->s_home->v_dir;
	int version = 0, err = 0;

	if (!line || strcmp(line, "weft-ds volumes") || !(line = strtok_r(NULL, "\n", &save)) ||
	    sscanf(line, "version=%d", &version) != 1)
		return adopt_refuse(a, -EINVAL, "%s/volumes: not the list of a store's volumes",
				    dir);
	if (version != LIST_VERSION)
		return adopt_refuse(a, -EPROTONOSUPPORT,
				    "%s/volumes: it has version %d, this weft-ds knows version %d",
				    dir, version, LIST_VERSION);
	while (!err && (line = strtok_r(NULL, "\n", &save)))
		err = list_line(a, line);
	return err ? adopt_refuse(a, err, "%s/volumes: %s", dir,
				  err == -ENOMEM ? "out of memory"
						 : "not the list of a store's volumes")
		   : 0;
}

static int list_read(struct adopt *a)
{
	struct ds_store *s = a->ad_store;
	char *text = malloc(LIST_TEXT);
	ssize_t n = text ? ds_file_get(s->s_home->v_dirfd, "volumes", text, LIST_TEXT) : -ENOMEM;
	int err = 0;

	if (n == -ENOENT && s->s_listed)
		err = adopt_refuse(a, -ENOENT,
				   "%s/volumes: the list of the store's volumes is missing",
				   s->s_home->v_dir);
	else if (n < 0 && n != -ENOENT)
		err = adopt_refuse(a, (int)n, "%s/volumes: %s", s->s_home->v_dir,
				   strerror((int)-n));
	else if (n >= 0)
		err = list_parse(a, text);
	free(text);
	return err;
}

static int list_write(struct ds_store *s)
{
	char *text = malloc(LIST_TEXT), uuid[DS_UUID_TEXT];
	size_t at;
	int err;

	if (!text)
		return -ENOMEM;
	at = (size_t)snprintf(text, LIST_TEXT, "weft-ds volumes\nversion=%d\n", LIST_VERSION);
	for (unsigned i = 1; i < s->s_nvols; i++)
		at += (size_t)snprintf(
			text + at, LIST_TEXT - at, "volume=%u %s %s\n", s->s_vol[i]->v_number,
			adopt_uuid_text(s->s_vol[i]->v_uuid, uuid), s->s_vol[i]->v_dir);
	err = ds_file_put(s->s_home->v_dirfd, "volumes", text);
	free(text);
	return err;
}

/* ---- the folders ---- */

/* Makes a new folder's name durable in the parent folder, if the parent can be opened. */
static void parent_sync(const struct ds_vol *v)
{
	int fd = openat(v->v_dirfd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0 && fsync(fd) < 0)
		log_warn("store: %s: cannot sync the parent folder: %s", v->v_dir, strerror(errno));
	if (fd >= 0)
		close(fd);
}

static int adopt_folder_open(struct adopt *a, struct ds_vol *v)
{
	bool made = mkdir(v->v_dir, 0700) == 0;
	struct stat st;

	if (!made && errno != EEXIST)
		return refuse_path(a, errno, v->v_dir, "");
	v->v_dirfd = open(v->v_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (v->v_dirfd < 0 || fstat(v->v_dirfd, &st) < 0)
		return refuse_path(a, errno, v->v_dir, "");
	if (made)
		parent_sync(v);
	v->v_dev = st.st_dev;
	v->v_ino = st.st_ino;
	for (unsigned i = 0; a->ad_store->s_vol[i] != v; i++) {
		const struct ds_vol *w = a->ad_store->s_vol[i];

		if (w->v_dev == v->v_dev && w->v_ino == v->v_ino)
			return adopt_refuse(a, -EINVAL, "ds.store: %s and %s are the same folder",
					    w->v_dir, v->v_dir);
		v->v_shares |= w->v_dev == v->v_dev;
	}
	return 0;
}

static int folder_lock(struct adopt *a, struct ds_vol *v)
{
	int err;

	v->v_lockfd = openat(v->v_dirfd, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (v->v_lockfd < 0)
		return refuse_path(a, errno, v->v_dir, "/lock");
	if (flock(v->v_lockfd, LOCK_EX | LOCK_NB) < 0)
		return adopt_refuse(a, -EBUSY, "%s: another weft-ds uses this store", v->v_dir);
	/* An attribute on the lock file proves that the file system has them. Setting one again
	 * needs room, which a full disk lacks. */
	err = fgetxattr(v->v_lockfd, DS_XATTR, NULL, 0) >= 0
		      ? 0
		      : ds_meta_put(v->v_lockfd, 0, 0, false, 0);
	if (err == -ENOSPC || err == -EDQUOT)
		return adopt_refuse(
			a, err,
			"%s: no room for an extended attribute (%s): free some space in its "
			"file system",
			v->v_dir, strerror(-err));
	if (err)
		return adopt_refuse(
			a, -ENOTSUP,
			"%s: its file system has no extended attributes (%s); use XFS or ext4",
			v->v_dir, strerror(-err));
	return 0;
}

/* 1 if the folder holds only what a file system or an interrupted adoption put there, else 0, or
 * -errno. */
static int folder_new(const struct ds_vol *v)
{
	static const char *const ours[] = {".",	     "..",	   "lock",   "lost+found",
					   "volume", "volume.new", "objects"};
	int fd = openat(v->v_dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), is = 1;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *d;

	if (!dir) {
		if (fd >= 0)
			close(fd);
		return -errno;
	}
	while (is && (d = readdir(dir))) {
		is = 0;
		for (unsigned i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
			is |= !strcmp(d->d_name, ours[i]);
	}
	closedir(dir);
	/* If it is not empty, it holds objects. */
	if (is && unlinkat(v->v_dirfd, "objects", AT_REMOVEDIR) < 0 && errno != ENOENT)
		return errno == ENOTEMPTY || errno == EEXIST ? 0 : -errno;
	return is;
}

static bool adopt_there(const struct ds_vol *v, const char *name)
{
	return faccessat(v->v_dirfd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* A home without an identity becomes a new store. It must be empty, or it is a folder of something
 * else. */
static int home_new(struct adopt *a)
{
	static const char *const ours[] = {".", "..", "lock", "lost+found", "identity.new", NULL};
	const struct ds_vol *v = a->ad_store->s_home;
	int fd, err = 0;
	struct dirent *d;
	DIR *dir;

	if (adopt_there(v, "identity"))
		return 0;
	if (adopt_there(v, "data.mdb"))
		return adopt_refuse(
			a, -EEXIST,
			"%s is the metadata store of a weft-mds; give ds.store its own folder",
			v->v_dir);
	fd = openat(v->v_dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir) {
		err = refuse_path(a, errno, v->v_dir, "");
		if (fd >= 0)
			close(fd);
		return err;
	}
	while (!err && (d = readdir(dir))) {
		unsigned i = 0;

		while (ours[i] && strcmp(d->d_name, ours[i]))
			i++;
		if (!ours[i])
			err = adopt_refuse(
				a, -ENOTEMPTY,
				"%s holds no weft-ds store (no file identity) and is not "
				"empty (%.64s): give ds.store its own folder",
				v->v_dir, d->d_name);
	}
	closedir(dir);
	return err;
}

/* Runs before anything is written, also into the home: a home whose file system is not mounted
 * looks empty. */
static int folders_look(struct adopt *a)
{
	struct ds_store *s = a->ad_store;
	char uuid[DS_UUID_TEXT];

	for (unsigned i = 0; i < s->s_nvols; i++) {
		int err = adopt_folder_open(a, s->s_vol[i]);

		if (!err)
			err = claim_read(a, s->s_vol[i], &a->ad_claim[i]);
		if (err)
			return err;
	}
	if (a->ad_claim[0].cl_there)
		return adopt_refuse(
			a, -EINVAL,
			"%s is a volume of store %s: name that store's first folder first in "
			"ds.store",
			s->s_home->v_dir, adopt_uuid_text(a->ad_claim[0].cl_store, uuid));
	for (unsigned i = 1; i < s->s_nvols; i++)
		if (a->ad_claim[i].cl_there && !adopt_there(s->s_home, "identity"))
			return adopt_refuse(
				a, -EINVAL,
				"%s holds no store, and %s is a volume of store %s: is the "
				"file system of the first one mounted?",
				s->s_home->v_dir, s->s_vol[i]->v_dir,
				adopt_uuid_text(a->ad_claim[i].cl_store, uuid));
	return home_new(a);
}

/* Checks whether v can be a volume of this store. Leaves v_number 0 if v is to be adopted. */
static int folder_check(struct adopt *a, unsigned i)
{
	struct ds_store *s = a->ad_store;
	struct ds_vol *v = s->s_vol[i];
	const struct claim *c = &a->ad_claim[i];
	char uuid[DS_UUID_TEXT], mine[DS_UUID_TEXT];
	int new;

	adopt_uuid_text(s->s_id.id_uuid, mine);
	if (adopt_there(v, "identity"))
		return adopt_refuse(a, -EINVAL,
				    "%s holds another store, and is not a volume of store %s in %s",
				    v->v_dir, mine, s->s_home->v_dir);
	if (c->cl_there && memcmp(c->cl_store, s->s_id.id_uuid, DS_UUID_LEN))
		return adopt_refuse(a, -EINVAL, "%s is a volume of store %s, not of %s in %s",
				    v->v_dir, adopt_uuid_text(c->cl_store, uuid), mine,
				    s->s_home->v_dir);
	for (unsigned k = 1; k < i && c->cl_there; k++)
		if (a->ad_claim[k].cl_there &&
		    !memcmp(a->ad_claim[k].cl_own, c->cl_own, DS_UUID_LEN))
			return adopt_refuse(
				a, -EINVAL, "%s and %s are both volume %s: one is a copy",
				s->s_vol[k]->v_dir, v->v_dir, adopt_uuid_text(c->cl_own, uuid));
	for (unsigned k = 0; k < a->ad_nlist && c->cl_there; k++)
		if (!memcmp(a->ad_list[k].li_uuid, c->cl_own, DS_UUID_LEN))
			v->v_number = a->ad_list[k].li_number;
	memcpy(v->v_uuid, c->cl_own, DS_UUID_LEN);
	if (v->v_number)
		return 0;
	new = folder_new(v);
	if (new < 0)
		return adopt_refuse(a, new, "%s: %s", v->v_dir, strerror(-new));
	if (!new && c->cl_there)
		return adopt_refuse(
			a, -EINVAL,
			"%s is a volume that store %s in %s no longer lists, and it holds "
			"objects: empty it to use it again",
			v->v_dir, mine, s->s_home->v_dir);
	return new ? 0
		   : adopt_refuse(a, -EINVAL, "%s is neither empty nor a volume of store %s in %s",
				  v->v_dir, mine, s->s_home->v_dir);
}

static int none_missing(struct adopt *a)
{
	struct ds_store *s = a->ad_store;
	const char *empty = NULL;
	char uuid[DS_UUID_TEXT];

	for (unsigned i = 1; i < s->s_nvols; i++)
		if (!s->s_vol[i]->v_number)
			empty = s->s_vol[i]->v_dir;
	for (unsigned k = 0; k < a->ad_nlist; k++) {
		const struct listed *l = &a->ad_list[k];
		bool found = false;

		for (unsigned i = 1; i < s->s_nvols; i++)
			found |= s->s_vol[i]->v_number == l->li_number;
		if (!found)
			return adopt_refuse(
				a, -ENOENT,
				"volume %s of the store in %s is missing, it was in %s%s%s%s",
				adopt_uuid_text(l->li_uuid, uuid), s->s_home->v_dir, l->li_dir,
				empty ? "; " : "", empty ? empty : "",
				empty ? " is empty: is its file system mounted?" : "");
	}
	return 0;
}

/* ---- adopting ---- */

static int by_number(const void *x, const void *y)
{
	const struct ds_vol *const *v = x, *const *w = y;

	return (int)(*v)->v_number - (int)(*w)->v_number;
}

static void number_new(struct adopt *a, struct ds_vol *v)
{
	bool used[DS_VOLUMES_MAX] = {true};

	for (unsigned i = 1; i < a->ad_store->s_nvols; i++)
		used[a->ad_store->s_vol[i]->v_number] = true;
	while (used[v->v_number])
		v->v_number++;
}

static int adopt_one(struct adopt *a, unsigned i)
{
	struct ds_store *s = a->ad_store;
	struct ds_vol *v = s->s_vol[i];
	int err = 0;

	number_new(a, v);
	parent_sync(v);
	if (!a->ad_claim[i].cl_there) {
		randombytes_buf(v->v_uuid, DS_UUID_LEN);
		err = claim_write(v, s->s_id.id_uuid);
	}
	if (err)
		return adopt_refuse(a, err, "%s/volume: %s", v->v_dir, strerror(-err));
	log_info("store: %s is a new volume of the store in %s", v->v_dir, s->s_home->v_dir);
	return 0;
}

/* True if the list has the right line for v already: it is in the same folder as before. */
static bool list_holds(const struct adopt *a, const struct ds_vol *v)
{
	for (unsigned k = 0; k < a->ad_nlist; k++)
		if (a->ad_list[k].li_number == v->v_number)
			return !strcmp(a->ad_list[k].li_dir, v->v_dir);
	return false;
}

static int adopt_all(struct adopt *a)
{
	struct ds_store *s = a->ad_store;
	bool new[DS_VOLUMES_MAX] = {false}, changed = false;
	int err = 0;

	for (unsigned i = 1; i < s->s_nvols && !err; i++) {
		bool adopt = !s->s_vol[i]->v_number;

		if (adopt)
			err = adopt_one(a, i);
		if (!err)
			new[s->s_vol[i]->v_number] = adopt;
	}
	if (err)
		return err;
	err = ds_marks_open(s, new);
	if (err)
		return adopt_refuse(a, err, "%s/marks: %s", s->s_home->v_dir, strerror(-err));
	for (unsigned i = 1; i < s->s_nvols; i++)
		changed |= !list_holds(a, s->s_vol[i]);
	if (changed)
		err = list_write(s);
	if (err)
		return adopt_refuse(a, err, "%s/volumes: %s", s->s_home->v_dir, strerror(-err));
	if (!s->s_listed) {
		s->s_listed = true;
		err = ds_identity_write(s, &s->s_id);
	}
	return err ? adopt_refuse(a, err, "%s/identity: %s", s->s_home->v_dir, strerror(-err)) : 0;
}

static int volumes(struct adopt *a)
{
	struct ds_store *s = a->ad_store;
	int err = list_read(a);

	for (unsigned i = 1; i < s->s_nvols && !err; i++) {
		err = folder_lock(a, s->s_vol[i]);
		if (!err)
			err = folder_check(a, i);
	}
	if (!err)
		err = none_missing(a);
	if (!err && s->s_nvols > 1)
		err = adopt_all(a);
	for (unsigned k = 0; k < a->ad_nlist; k++)
		free(a->ad_list[k].li_dir);
	if (!err)
		qsort(s->s_vol, s->s_nvols, sizeof(s->s_vol[0]), by_number);
	return err;
}

int ds_volumes_open(struct ds_store *s,
		    int (*identity)(struct ds_store *s, void *arg, char *err, size_t errlen),
		    void *arg, char *err, size_t errlen)
{
	struct adopt a = {.ad_store = s, .ad_err = err, .ad_errlen = errlen};
	int e = folders_look(&a);

	if (!e)
		e = folder_lock(&a, s->s_home);
	if (!e)
		e = identity(s, arg, err, errlen);
	return e ? e : volumes(&a);
}
