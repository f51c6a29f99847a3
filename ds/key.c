/* SPDX-License-Identifier: Apache-2.0 */
/* key.c - reads, stores and replaces the keys of this data server: see key.h. */
#include "ds/key.h"
#include "base/conf.h"
#include "base/log.h"
#include "common/check.h"
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(CAP_CLUSTER_KEY_LEN == CHECK_KEY_LEN, "the cluster key");

/* Names of the store's files, for file system 1; others have their number behind it. */
enum { KEY_NOW, KEY_BEFORE, KEY_GIVEN };
static const char *const kinds[] = {"key", "key.before", "key.given"};
#define NAME_LEN 32

static const char *name_of(unsigned kind, uint16_t fs, char name[NAME_LEN])
{
	if (fs == 1)
		return kinds[kind];
	snprintf(name, NAME_LEN, "%s.fs%u", kinds[kind], fs);
	return name;
}

/* The file system whose current keys a file of this name has; 0: it is no such file. */
static uint16_t fs_named(const char *file)
{
	char name[NAME_LEN];
	unsigned fs;

	if (!strcmp(file, kinds[KEY_NOW]))
		return 1;
	if (sscanf(file, "key.fs%5u", &fs) != 1 || fs < 2 || fs > UINT16_MAX)
		return 0;
	return strcmp(name_of(KEY_NOW, (uint16_t)fs, name), file) ? 0 : (uint16_t)fs;
}

/* Finds the file systems of which this folder has keys. Returns their number, or a negative
 * errno. */
static int fs_stored(const char *home, uint16_t out[DS_FS_MAX])
{
	DIR *dir = opendir(home);
	struct dirent *e;
	int n = 0;

	if (!dir)
		return -errno;
	while ((e = readdir(dir)) && n < DS_FS_MAX) {
		out[n] = fs_named(e->d_name);
		n += out[n] != 0;
	}
	closedir(dir);
	return n;
}

static bool in_store(const char *home)
{
	uint16_t fs[DS_FS_MAX];

	return fs_stored(home, fs) > 0;
}

int ds_keys_configure(struct ds_keys *ks, const struct conf *c, const char *home, char *err,
		      size_t errlen)
{
	const char *file = conf_str(c, "ds.key"), *cluster = conf_str(c, "ds.cluster_key"), *why;
	char text[DS_KEY_TEXT + 1];
	int e;

	if (*file) {
		e = check_secret_file("ds.key", file, text, sizeof(text), err, errlen);
		if (e)
			return e;
		e = ds_key_parse(text, &ks->ks_file, &why);
		sodium_memzero(text, sizeof(text));
		if (e)
			snprintf(err, errlen, "ds.key: %s: %s", file, why);
		ks->ks_given = !e;
		return e;
	}
	/* A server with its own keys may have lost the cluster key, and should have. */
	if (in_store(home) && (!*cluster || access(cluster, F_OK) < 0))
		return 0;
	return check_cluster_key("ds.cluster_key", cluster, ks->ks_cluster, err, errlen);
}

const uint8_t *ds_keys_uuid(const struct ds_keys *ks)
{
	return ks->ks_given ? ks->ks_file.dk_uuid : NULL;
}

static void cap_set(struct ds_fs_keys *fk, uint8_t number, const uint8_t key[CAP_KEY_LEN])
{
	uint64_t w[2];

	_Static_assert(sizeof(w) == CAP_KEY_LEN, "two words");
	memcpy(w, key, sizeof(w));
	atomic_store_explicit(&fk->fk_cap[number][0], w[0], memory_order_relaxed);
	atomic_store_explicit(&fk->fk_cap[number][1], w[1], memory_order_relaxed);
	sodium_memzero(w, sizeof(w));
}

/* Sets a random key, which nothing knows, for each number that this server has no key of. */
static void caps_own(struct ds_fs_keys *fk, const struct ds_key *now, const struct ds_key *before)
{
	uint8_t none[CAP_KEY_LEN];

	for (unsigned n = 0; n < 256; n++) {
		if ((now && n == now->dk_number) || (before && n == before->dk_number))
			continue;
		randombytes_buf(none, sizeof(none));
		cap_set(fk, (uint8_t)n, none);
	}
	if (before)
		cap_set(fk, before->dk_number, before->dk_cap);
	if (now)
		cap_set(fk, now->dk_number, now->dk_cap);
}

static void caps_cluster(struct ds_keys *ks, struct ds_fs_keys *fk, const uint8_t uuid[16])
{
	uint8_t key[CAP_KEY_LEN], cluster[CAP_CLUSTER_KEY_LEN];

	cap_derive_fs(ks->ks_cluster, fk->fk_fs, cluster);
	for (unsigned n = 0; n < 256; n++) {
		cap_derive_key(cluster, uuid, (uint8_t)n, key);
		cap_set(fk, (uint8_t)n, key);
	}
	sodium_memzero(key, sizeof(key));
	sodium_memzero(cluster, sizeof(cluster));
}

/* The keys of a file system; NULL: there are none yet. */
static struct ds_fs_keys *key_find_fs(const struct ds_keys *ks, uint16_t fs)
{
	for (unsigned i = 0; i < ks->ks_nfs; i++)
		if (ks->ks_fs[i]->fk_fs == fs)
			return ks->ks_fs[i];
	return NULL;
}

/* Adds those of another file system, without keys. NULL: memory is short, or there are too many. */
static struct ds_fs_keys *add(struct ds_keys *ks, uint16_t fs)
{
	struct ds_fs_keys *fk = ks->ks_nfs < DS_FS_MAX ? calloc(1, sizeof(*fk)) : NULL;

	if (!fk)
		return NULL;
	fk->fk_fs = fs;
	if (ks->ks_own || sodium_is_zero(ks->ks_cluster, sizeof(ks->ks_cluster)))
		caps_own(fk, NULL, NULL);
	else
		caps_cluster(ks, fk, ks->ks_key.dk_uuid);
	pthread_mutex_lock(&ks->ks_lock);
	ks->ks_fs[ks->ks_nfs++] = fk;
	pthread_mutex_unlock(&ks->ks_lock);
	return fk;
}

int ds_keys_meet(struct ds_keys *ks, const struct ds_fs *f)
{
	uint16_t fs = (uint16_t)ds_fs_number(f);
	struct ds_fs_keys *fk = key_find_fs(ks, fs);

	if (!fk)
		fk = add(ks, fs);
	if (!fk)
		return -ENOMEM;
	atomic_store_explicit(&ks->ks_at[ds_fs_place(f)], fk, memory_order_release);
	return 0;
}

/* Reads a key file of the store. -ENOENT: there is none. */
static int stored(struct ds_store *s, unsigned kind, uint16_t fs, struct ds_key *k, char *err,
		  size_t errlen)
{
	char text[DS_KEY_TEXT + 1], buf[NAME_LEN];
	const char *why = NULL, *name = name_of(kind, fs, buf);
	int e = ds_store_text_get(s, name, text, sizeof(text));

	if (!e)
		e = ds_key_parse(text, k, &why);
	if (!e && k->dk_fs != fs) {
		why = "it has keys of another file system";
		e = -EINVAL;
	}
	sodium_memzero(text, sizeof(text));
	if (e && e != -ENOENT)
		snprintf(err, errlen, "%s/%s: %s", ds_store_volume_dir(s, 0), name,
			 why ? why : strerror(-e));
	return e;
}

static int key_store(struct ds_store *s, unsigned kind, const struct ds_key *k)
{
	char text[DS_KEY_TEXT], name[NAME_LEN];
	int e;

	ds_key_text(k, ds_store_identity(s).id_name, text);
	e = ds_store_text_put(s, name_of(kind, k->dk_fs, name), text);
	sodium_memzero(text, sizeof(text));
	return e;
}

/* Stores the old keys first: after a crash in between, both files hold the old keys. */
static int key_put(struct ds_store *s, const struct ds_key *now, const struct ds_key *before)
{
	int e = before ? key_store(s, KEY_BEFORE, before) : 0;

	return e ? e : key_store(s, KEY_NOW, now);
}

static int mine(const struct ds_key *k, const struct ds_identity *id, const char *what, char *err,
		size_t errlen)
{
	char theirs[33], ours[33];

	if (!memcmp(k->dk_uuid, id->id_uuid, 16))
		return 0;
	sodium_bin2hex(theirs, sizeof(theirs), k->dk_uuid, 16);
	sodium_bin2hex(ours, sizeof(ours), id->id_uuid, 16);
	snprintf(err, errlen,
		 "%s: this is the key of another data server (%s; this store is %s, %s)", what,
		 theirs, ours, id->id_name);
	return -EINVAL;
}

/* If this server took the file at an earlier start, the keys that the MDS sent since are newer.
 * Else the file's keys are put in the place of *now. had: 0 where the store has keys. replaced: the
 * store could not keep that *was was before. */
static int key_take_file(struct ds_keys *ks, struct ds_store *s, struct ds_key *now, int had,
			 struct ds_key *was, bool *replaced, char *err, size_t errlen)
{
	struct ds_key given;
	int e = stored(s, KEY_GIVEN, ks->ks_file.dk_fs, &given, err, errlen);

	if (e && e != -ENOENT)
		return e;
	if (!had && !e && !memcmp(&given, &ks->ks_file, sizeof(given)))
		return 0;
	e = key_put(s, &ks->ks_file, had || !memcmp(now, &ks->ks_file, sizeof(*now)) ? NULL : now);
	if (!e)
		e = key_store(s, KEY_GIVEN, &ks->ks_file);
	/* Go on if the disk is full: deletes must be able to make room. The next start takes the
	 * file again. */
	if (e && e != -ENOSPC && e != -EDQUOT) {
		snprintf(err, errlen, "%s/key: %s", ds_store_volume_dir(s, 0), strerror(-e));
		return e;
	}
	if (e)
		log_warn("%s/key: %s: this server uses the keys of ds.key but cannot store them: "
			 "keep that file until a start without this warning",
			 ds_store_volume_dir(s, 0), strerror(-e));
	*replaced = e && !had && memcmp(now, &ks->ks_file, sizeof(*now));
	if (*replaced)
		*was = *now;
	*now = ks->ks_file;
	return 0;
}

/* Sets the keys of one file system from the store and ds.key. */
static int start_fs(struct ds_keys *ks, struct ds_store *s, uint16_t fs, char *err, size_t errlen)
{
	struct ds_identity id = ds_store_identity(s);
	struct ds_key now, before, was;
	struct ds_fs_keys *fk;
	bool earlier, replaced = false;
	int e = stored(s, KEY_NOW, fs, &now, err, errlen);

	if (e && e != -ENOENT)
		return e;
	if (!e && (e = mine(&now, &id, "the key in the store", err, errlen)))
		return e;
	if (ks->ks_given && ks->ks_file.dk_fs == fs &&
	    (e = key_take_file(ks, s, &now, e, &was, &replaced, err, errlen)))
		return e;
	e = stored(s, KEY_BEFORE, fs, &before, err, errlen);
	if (e && e != -ENOENT)
		return e;
	if (replaced)
		before = was;
	earlier = replaced || (!e && !memcmp(before.dk_uuid, id.id_uuid, 16));
	ks->ks_own = true;
	fk = key_find_fs(ks, fs);
	if (!fk && !(fk = add(ks, fs))) {
		snprintf(err, errlen, "keys of file system %u: out of memory", fs);
		return -ENOMEM;
	}
	fk->fk_key = now;
	fk->fk_own = true;
	caps_own(fk, &now, earlier ? &before : NULL);
	return 0;
}

/* What is the server's at each MDS. */
static void set_common(struct ds_keys *ks, const struct ds_key *k)
{
	memset(&ks->ks_key, 0, sizeof(ks->ks_key));
	memcpy(ks->ks_key.dk_uuid, k->dk_uuid, sizeof(k->dk_uuid));
	memcpy(ks->ks_key.dk_tls, k->dk_tls, sizeof(k->dk_tls));
	memcpy(ks->ks_key.dk_path, k->dk_path, sizeof(k->dk_path));
}

static bool common(const struct ds_keys *ks, const struct ds_key *k)
{
	return !memcmp(ks->ks_key.dk_tls, k->dk_tls, sizeof(k->dk_tls)) &&
	       !memcmp(ks->ks_key.dk_path, k->dk_path, sizeof(k->dk_path));
}

/* For the file systems that the store knew before. */
static int start_met(struct ds_keys *ks, struct ds_store *s)
{
	struct ds_fs *f;
	int e = 0;

	for (unsigned i = 0; !e && (f = ds_store_fs_at(s, i)); i++)
		if (ds_fs_number(f))
			e = ds_keys_meet(ks, f);
	return e;
}

int ds_keys_start(struct ds_keys *ks, struct ds_store *s, char *err, size_t errlen)
{
	struct ds_identity id = ds_store_identity(s);
	uint16_t fs[DS_FS_MAX + 1];
	int e, n = fs_stored(ds_store_volume_dir(s, 0), fs);
	bool first = true;

	pthread_mutex_init(&ks->ks_lock, NULL);
	memcpy(ks->ks_key.dk_uuid, id.id_uuid, 16);
	if (n < 0) {
		snprintf(err, errlen, "%s: %s", ds_store_volume_dir(s, 0), strerror(-n));
		return n;
	}
	if (ks->ks_given && (e = mine(&ks->ks_file, &id, "ds.key", err, errlen)))
		return e;
	for (int i = 0; ks->ks_given && i < n && first; i++)
		first = fs[i] != ks->ks_file.dk_fs;
	if (ks->ks_given && first)
		fs[n++] = ks->ks_file.dk_fs;
	for (int i = 0; i < n; i++)
		if ((e = start_fs(ks, s, fs[i], err, errlen)))
			return e;
	if (ks->ks_own) {
		/* A file of ds.key is the newest. */
		set_common(ks, ks->ks_given ? &ks->ks_file : &ks->ks_fs[0]->fk_key);
		if (!sodium_is_zero(ks->ks_cluster, sizeof(ks->ks_cluster)))
			log_warn("this data server has its own keys and does not use "
				 "ds.cluster_key: remove that file from this machine");
		sodium_memzero(ks->ks_cluster, sizeof(ks->ks_cluster));
	} else {
		cap_derive_tls_key(ks->ks_cluster, id.id_uuid, ks->ks_key.dk_tls);
		ds_key_derive_path(ks->ks_cluster, id.id_uuid, ks->ks_key.dk_path);
		log_warn("this data server has the cluster key, which gives access to every data "
			 "server: it joins with it once, and then gets its own keys");
	}
	e = start_met(ks, s);
	if (e)
		snprintf(err, errlen, "keys: %s", strerror(-e));
	return e;
}

ctl_status ds_keys_take_key(struct ds_keys *ks, struct ds_fs *f, const struct ds_key *k)
{
	struct ds_store *s = ds_fs_store(f);
	struct ds_key was;
	static _Atomic bool told; /* log once: the MDS offers the keys again every few seconds */
	bool own = ds_keys_of(ks, k->dk_fs, &was), others;
	struct ds_fs_keys *fk = key_find_fs(ks, k->dk_fs);
	int e;

	if (!fk || k->dk_fs != ds_fs_number(f) || memcmp(k->dk_uuid, ks->ks_key.dk_uuid, 16))
		return CTL_INVAL;
	if (own && !memcmp(k, &was, sizeof(*k)))
		return CTL_OK;
	if (own && !ds_key_later(k->dk_number, was.dk_number))
		return CTL_INVAL;
	pthread_mutex_lock(&ks->ks_lock);
	others = false;
	for (unsigned i = 0; i < ks->ks_nfs; i++)
		others |= ks->ks_fs[i] != fk && ks->ks_fs[i]->fk_own;
	pthread_mutex_unlock(&ks->ks_lock);
	/* What is the server's at each MDS, none of them changes. */
	if (others && !common(ks, k))
		return CTL_INVAL;
	e = key_put(s, k, own ? &was : NULL);
	if (e) {
		if (!atomic_exchange(&told, true))
			log_error("%s/key: cannot store the new keys: %s",
				  ds_store_volume_dir(s, 0), strerror(-e));
		return CTL_IO;
	}
	atomic_store(&told, false);
	pthread_mutex_lock(&ks->ks_lock);
	fk->fk_key = *k;
	fk->fk_own = true;
	set_common(ks, k);
	ks->ks_own = true;
	pthread_mutex_unlock(&ks->ks_lock);
	caps_own(fk, k, own ? &was : NULL);
	if (own)
		log_info("the MDS of file system %u sent new keys, number %u", k->dk_fs,
			 k->dk_number);
	else if (others)
		log_info("the MDS of file system %u sent this data server keys, number %u",
			 k->dk_fs, k->dk_number);
	else
		log_warn("the MDS sent this data server its own keys, number %u: it joins with "
			 "them from its next connection on; remove ds.cluster_key and its file "
			 "from this machine",
			 k->dk_number);
	return CTL_OK;
}

ctl_status ds_keys_take(struct ds_keys *ks, struct ds_fs *f, const ctl_key_args *a)
{
	struct ds_key k;
	ctl_status st = CTL_INVAL;

	if (!ds_store_instance_ok(f, a->instance_epoch))
		return CTL_STALE_INSTANCE;
	if (ds_key_get(a, (uint16_t)ds_fs_number(f), &k))
		st = ds_keys_take_key(ks, f, &k);
	sodium_memzero(&k, sizeof(k));
	return st;
}

bool ds_keys_own(struct ds_keys *ks, struct ds_key *k)
{
	bool own;

	pthread_mutex_lock(&ks->ks_lock);
	*k = ks->ks_key;
	own = ks->ks_own;
	pthread_mutex_unlock(&ks->ks_lock);
	return own;
}

bool ds_keys_of(struct ds_keys *ks, uint16_t fs, struct ds_key *k)
{
	struct ds_fs_keys *fk;
	bool own;

	memset(k, 0, sizeof(*k));
	pthread_mutex_lock(&ks->ks_lock);
	fk = key_find_fs(ks, fs);
	own = fk && fk->fk_own;
	if (own)
		*k = fk->fk_key;
	pthread_mutex_unlock(&ks->ks_lock);
	return own;
}
