/* SPDX-License-Identifier: Apache-2.0 */
/*
 * learned.c - the addresses of metadata servers that other metadata servers told this server
 * (CTL_MORE_INSTANCES), beside those of ds.mds. So a new instance of the cluster needs no change
 * here. Only who has keys of the cluster can tell: a list comes in the answer to a JOIN.
 *
 * What was told is in the file "instances" of the store (docs/formats.md), with the file system
 * whose instance told it. A later list of the same instance takes the place of the earlier one, and
 * an address that no instance tells any more is forgotten. A list that is not valid, or with which
 * there would be more than LEARNED_MAX rows, changes nothing.
 *
 * A list that the full disk does not take is in force all the same: the instance tells it again at
 * the next join, and until then a start of this server goes by the older one.
 */
#include "ds/ds.h"
#include "base/log.h"
#include "proto/rpc.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEARNED_FILE "instances"
#define LEARNED_HEAD "weft-ds instances\nversion=1\n"
#define LEARNED_TEXT (sizeof(LEARNED_HEAD) + LEARNED_MAX * 80)

static bool learned_has(const struct ds_learned *le, uint16_t fs, const uint8_t *addr)
{
	for (unsigned i = 0; i < le->le_n; i++)
		if (le->le_row[i].lr_fs == fs &&
		    !memcmp(le->le_row[i].lr_addr, addr, CTL_INSTANCE_LEN))
			return true;
	return false;
}

/* ---- the file ---- */

static int learned_store(struct ds *d, const struct ds_learned *le)
{
	char text[LEARNED_TEXT] = LEARNED_HEAD, addr[64];
	size_t at = strlen(text);

	for (unsigned i = 0; i < le->le_n; i++) {
		struct sockaddr_storage ss;
		socklen_t len;

		ctl_instance_addr(le->le_row[i].lr_addr, &ss, &len);
		rpc_addr_text((struct sockaddr *)&ss, addr, sizeof(addr));
		at += (size_t)snprintf(text + at, sizeof(text) - at, "told=%u %s\n",
				       le->le_row[i].lr_fs, addr);
	}
	return ds_store_text_put(d->d_store, LEARNED_FILE, text);
}

static int learned_line(struct ds_learned *le, const char *line)
{
	struct ds_learned_row *r = &le->le_row[le->le_n];
	struct sockaddr_storage ss;
	char addr[64];
	socklen_t len;
	unsigned fs;
	int at = 0;

	if (le->le_n == LEARNED_MAX || sscanf(line, "told=%5u %63s%n", &fs, addr, &at) != 2 ||
	    line[at] || !fs || fs > UINT16_MAX || rpc_addr_parse(addr, 0, &ss, &len) ||
	    !ctl_instance_of(&ss, r->lr_addr) || learned_has(le, (uint16_t)fs, r->lr_addr))
		return -EINVAL;
	r->lr_fs = (uint16_t)fs;
	le->le_n++;
	return 0;
}

int ds_learned_parse(char *text, struct ds_learned *le)
{
	char *save = NULL, *line = strtok_r(text, "\n", &save);
	int version = 0, err = 0;

	le->le_n = 0;
	if (!line || strcmp(line, "weft-ds instances") || !(line = strtok_r(NULL, "\n", &save)) ||
	    sscanf(line, "version=%d", &version) != 1 || version < 1)
		return -EINVAL;
	if (version > 1)
		return -EPROTONOSUPPORT;
	while (!err && (line = strtok_r(NULL, "\n", &save)))
		err = learned_line(le, line);
	if (err)
		le->le_n = 0;
	return err;
}

/* ---- what is in force ---- */

void ds_learned_start(struct ds *d)
{
	char text[LEARNED_TEXT + 1];
	int err = ds_store_text_get(d->d_store, LEARNED_FILE, text, sizeof(text));

	pthread_mutex_init(&d->d_learned.le_told, NULL);
	pthread_mutex_init(&d->d_learned.le_lock, NULL);
	if (err == -ENOENT)
		return;
	if (!err)
		err = ds_learned_parse(text, &d->d_learned);
	/* The instances of ds.mds tell the list again. */
	if (err)
		log_error("%s/" LEARNED_FILE ": %s: this server joins the addresses of ds.mds "
			  "alone until an instance tells it others",
			  ds_store_volume_dir(d->d_store, 0),
			  err == -EPROTONOSUPPORT ? "a newer version" : strerror(-err));
	ds_learned_apply(d);
}

/* Fills out with what would be in force. False: too many rows. */
static bool learned_merge(const struct ds_learned *le, uint16_t fs, const struct ctl_instances *ci,
			  struct ds_learned *out)
{
	out->le_n = 0;
	for (unsigned i = 0; i < le->le_n; i++)
		if (le->le_row[i].lr_fs != fs)
			out->le_row[out->le_n++] = le->le_row[i];
	if (out->le_n + ci->ci_n > LEARNED_MAX)
		return false;
	for (unsigned i = 0; i < ci->ci_n; i++) {
		out->le_row[out->le_n].lr_fs = fs;
		memcpy(out->le_row[out->le_n++].lr_addr, ci->ci_addr[i], CTL_INSTANCE_LEN);
	}
	return true;
}

static bool learned_same(const struct ds_learned *a, const struct ds_learned *b)
{
	if (a->le_n != b->le_n)
		return false;
	for (unsigned i = 0; i < a->le_n; i++)
		if (!learned_has(b, a->le_row[i].lr_fs, a->le_row[i].lr_addr))
			return false;
	return true;
}

static void learned_refuse(struct ds_learned *le, const struct ds_fs *f, const char *why)
{
	if (le->le_refused[ds_fs_place(f)])
		return;
	le->le_refused[ds_fs_place(f)] = true;
	log_warn("the instance of file system %" PRIu32 " tells addresses of instances that this "
		 "server does not take: %s; it keeps those that it had",
		 ds_fs_number(f), why);
}

void ds_learned_told(struct ds *d, const struct ds_fs *f, int got, const struct ctl_instances *ci)
{
	struct ds_learned *le = &d->d_learned, *now;
	int err;

	if (got == -ENOENT)
		return; /* it is older than such lists */
	now = calloc(1, sizeof(*now));
	if (!now)
		return;
	pthread_mutex_lock(&le->le_told);
	if (got) {
		learned_refuse(le, f,
			       got == -E2BIG ? "there are more than it keeps"
					     : "not all of them are addresses");
	} else if (!learned_merge(le, (uint16_t)ds_fs_number(f), ci, now)) {
		learned_refuse(le, f, "with those of other instances there are too many");
	} else {
		le->le_refused[ds_fs_place(f)] = false;
		if (!learned_same(le, now) || le->le_unkept) {
			err = learned_store(d, now);
			le->le_unkept = err;
			if (err)
				log_warn("%s/" LEARNED_FILE ": %s: the next start goes by the "
					 "addresses of before",
					 ds_store_volume_dir(d->d_store, 0), strerror(-err));
			pthread_mutex_lock(&le->le_lock);
			memcpy(le->le_row, now->le_row, sizeof(le->le_row));
			le->le_n = now->le_n;
			pthread_mutex_unlock(&le->le_lock);
		}
	}
	pthread_mutex_unlock(&le->le_told);
	free(now);
}

static bool learned_any(const struct ds_learned *le, const uint8_t *addr)
{
	for (unsigned i = 0; i < le->le_n; i++)
		if (!memcmp(le->le_row[i].lr_addr, addr, CTL_INSTANCE_LEN))
			return true;
	return false;
}

void ds_learned_apply(struct ds *d)
{
	struct ds_learned *le = &d->d_learned;
	uint8_t addr[CTL_INSTANCE_LEN];
	struct sockaddr_storage ss;
	char text[64];
	socklen_t len;
	int err;

	pthread_mutex_lock(&le->le_lock);
	for (unsigned i = 0; i < atomic_load(&d->d_nmds); i++) {
		if (ds_control_learned(d, i, &ss) && ctl_instance_of(&ss, addr) &&
		    !learned_any(le, addr)) {
			rpc_addr_text((struct sockaddr *)&ss, text, sizeof(text));
			log_info("no instance tells the address %s any more: this server leaves it",
				 text);
			ds_control_stop(d, i);
		}
	}
	for (unsigned i = 0; i < le->le_n; i++) {
		ctl_instance_addr(le->le_row[i].lr_addr, &ss, &len);
		err = ds_control_start(d, (struct sockaddr *)&ss, len, true);
		rpc_addr_text((struct sockaddr *)&ss, text, sizeof(text));
		if (!err)
			log_info("the instance of file system %u tells the address %s: this server "
				 "joins the instance there",
				 le->le_row[i].lr_fs, text);
		else if (err != -EEXIST && err != -EOVERFLOW) /* until those that stop have */
			log_warn("cannot join the instance at %s: %s", text, strerror(-err));
	}
	pthread_mutex_unlock(&le->le_lock);
}
