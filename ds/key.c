/* SPDX-License-Identifier: Apache-2.0 */
/* key.c - reads, stores and replaces the keys of this data server: see key.h. */
#include "ds/key.h"
#include "base/check.h"
#include "base/conf.h"
#include "base/log.h"
#include <errno.h>
#include <limits.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

_Static_assert(CAP_CLUSTER_KEY_LEN == CHECK_KEY_LEN, "the cluster key");

static bool in_store(const char *home)
{
	char path[PATH_MAX];

	return snprintf(path, sizeof(path), "%s/key", home) < (int)sizeof(path) &&
	       access(path, F_OK) == 0;
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

static void cap_set(struct ds_keys *ks, uint8_t number, const uint8_t key[CAP_KEY_LEN])
{
	uint64_t w[2];

	_Static_assert(sizeof(w) == CAP_KEY_LEN, "two words");
	memcpy(w, key, sizeof(w));
	atomic_store_explicit(&ks->ks_cap[number][0], w[0], memory_order_relaxed);
	atomic_store_explicit(&ks->ks_cap[number][1], w[1], memory_order_relaxed);
	sodium_memzero(w, sizeof(w));
}

/* Sets a random key, which nothing knows, for each number that this server has no key of. */
static void caps_own(struct ds_keys *ks, const struct ds_key *now, const struct ds_key *before)
{
	uint8_t none[CAP_KEY_LEN];

	for (unsigned n = 0; n < 256; n++) {
		if (n == now->dk_number || (before && n == before->dk_number))
			continue;
		randombytes_buf(none, sizeof(none));
		cap_set(ks, (uint8_t)n, none);
	}
	if (before)
		cap_set(ks, before->dk_number, before->dk_cap);
	cap_set(ks, now->dk_number, now->dk_cap);
}

static void caps_cluster(struct ds_keys *ks, const uint8_t uuid[16])
{
	uint8_t key[CAP_KEY_LEN];

	for (unsigned n = 0; n < 256; n++) {
		cap_derive_key(ks->ks_cluster, uuid, (uint8_t)n, key);
		cap_set(ks, (uint8_t)n, key);
	}
	sodium_memzero(key, sizeof(key));
}

/* Reads a key file of the store. -ENOENT: there is none. */
static int stored(struct ds_store *s, const char *name, struct ds_key *k, char *err, size_t errlen)
{
	char text[DS_KEY_TEXT + 1];
	const char *why = NULL;
	int e = ds_store_text_get(s, name, text, sizeof(text));

	if (!e)
		e = ds_key_parse(text, k, &why);
	sodium_memzero(text, sizeof(text));
	if (e && e != -ENOENT)
		snprintf(err, errlen, "%s/%s: %s", ds_store_volume_dir(s, 0), name,
			 why ? why : strerror(-e));
	return e;
}

static int key_store(struct ds_store *s, const char *name, const struct ds_key *k)
{
	char text[DS_KEY_TEXT];
	int e;

	ds_key_text(k, ds_store_identity(s).id_name, text);
	e = ds_store_text_put(s, name, text);
	sodium_memzero(text, sizeof(text));
	return e;
}

/* Stores the old keys first: after a crash in between, both files hold the old keys. */
static int key_put(struct ds_store *s, const struct ds_key *now, const struct ds_key *before)
{
	int e = before ? key_store(s, "key.before", before) : 0;

	return e ? e : key_store(s, "key", now);
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

int ds_keys_start(struct ds_keys *ks, struct ds_store *s, char *err, size_t errlen)
{
	struct ds_identity id = ds_store_identity(s);
	struct ds_key now, before, given, was;
	int had = stored(s, "key", &now, err, errlen), e = 0;
	bool earlier, replaced = false;

	pthread_mutex_init(&ks->ks_lock, NULL);
	if (had && had != -ENOENT)
		return had;
	if (!had && (e = mine(&now, &id, "the key in the store", err, errlen)))
		return e;
	if (ks->ks_given) {
		e = mine(&ks->ks_file, &id, "ds.key", err, errlen);
		if (e)
			return e;
		e = stored(s, "key.given", &given, err, errlen);
		if (e && e != -ENOENT)
			return e;
		/* If this server took the file at an earlier start, the keys that the MDS sent
		 * since are newer. */
		if (had || e || memcmp(&given, &ks->ks_file, sizeof(given))) {
			e = key_put(s, &ks->ks_file,
				    had || !memcmp(&now, &ks->ks_file, sizeof(now)) ? NULL : &now);
			if (!e)
				e = key_store(s, "key.given", &ks->ks_file);
			/* Go on if the disk is full: deletes must be able to make room. The next
			 * start takes the file again. */
			if (e && e != -ENOSPC && e != -EDQUOT) {
				snprintf(err, errlen, "%s/key: %s", ds_store_volume_dir(s, 0),
					 strerror(-e));
				return e;
			}
			if (e)
				log_warn("%s/key: %s: this server uses the keys of ds.key but "
					 "cannot store them: keep that file until a start without "
					 "this warning",
					 ds_store_volume_dir(s, 0), strerror(-e));
			replaced = e && !had && memcmp(&now, &ks->ks_file, sizeof(now));
			if (replaced)
				was = now;
			now = ks->ks_file;
		}
		had = 0;
	}
	if (had) {
		memcpy(ks->ks_key.dk_uuid, id.id_uuid, 16);
		cap_derive_tls_key(ks->ks_cluster, id.id_uuid, ks->ks_key.dk_tls);
		ds_key_derive_path(ks->ks_cluster, id.id_uuid, ks->ks_key.dk_path);
		caps_cluster(ks, id.id_uuid);
		log_warn("this data server has the cluster key, which gives access to every data "
			 "server: it joins with it once, and then gets its own keys");
		return 0;
	}
	e = stored(s, "key.before", &before, err, errlen);
	if (e && e != -ENOENT)
		return e;
	if (replaced)
		before = was;
	earlier = replaced || (!e && !memcmp(before.dk_uuid, id.id_uuid, 16));
	if (!sodium_is_zero(ks->ks_cluster, sizeof(ks->ks_cluster)))
		log_warn("this data server has its own keys and does not use ds.cluster_key: "
			 "remove that file from this machine");
	sodium_memzero(ks->ks_cluster, sizeof(ks->ks_cluster));
	ks->ks_key = now;
	ks->ks_own = true;
	caps_own(ks, &now, earlier ? &before : NULL);
	return 0;
}

ctl_status ds_keys_take(struct ds_keys *ks, struct ds_fs *f, const ctl_key_args *a)
{
	struct ds_store *s = ds_fs_store(f);
	struct ds_key k, was;
	static _Atomic bool told; /* log once: the MDS offers the keys again every few seconds */
	bool own = ds_keys_own(ks, &was);
	int e;

	memset(&k, 0, sizeof(k));
	if (!ds_store_instance_ok(f, a->instance_epoch))
		return CTL_STALE_INSTANCE;
	if (!ds_key_get(a, &k) || memcmp(k.dk_uuid, was.dk_uuid, 16))
		return CTL_INVAL;
	if (own && !memcmp(&k, &was, sizeof(k)))
		return CTL_OK;
	if (own && !ds_key_later(k.dk_number, was.dk_number))
		return CTL_INVAL;
	e = key_put(s, &k, own ? &was : NULL);
	if (e) {
		if (!atomic_exchange(&told, true))
			log_error("%s/key: cannot store the new keys: %s",
				  ds_store_volume_dir(s, 0), strerror(-e));
		return CTL_IO;
	}
	atomic_store(&told, false);
	pthread_mutex_lock(&ks->ks_lock);
	ks->ks_key = k;
	ks->ks_own = true;
	pthread_mutex_unlock(&ks->ks_lock);
	caps_own(ks, &k, own ? &was : NULL);
	if (own)
		log_info("the MDS sent new keys, number %u", k.dk_number);
	else
		log_warn("the MDS sent this data server its own keys, number %u: it joins with "
			 "them from its next connection on; remove ds.cluster_key and its file "
			 "from this machine",
			 k.dk_number);
	return CTL_OK;
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
