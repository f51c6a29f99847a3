/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meta_import.c - makes a store of an export, in an empty folder (docs/meta-export.md). The lines
 * are read once, as they come. The store gets its name when the last line was right
 * (backup_build.c); before that there is none.
 */
#include "mds/meta.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Rows that one transaction puts. */
#define IMPORT_ROWS  2000u
#define IMPORT_BYTES (4u << 20)

struct import_row {
	size_t ir_key, ir_key_len, ir_val_len; /* ir_key: offset in im_bytes; the value follows */
	uint64_t ir_line;
};

struct import {
	const char *im_name;
	struct backup_build im_build;
	struct meta_check im_check;
	struct import_row im_row[IMPORT_ROWS];
	size_t im_n, im_used;
	uint8_t *im_bytes;
	uint64_t im_twice; /* line of a row that is there already */
	/* input: */
	int im_fd;
	char *im_buf;
	size_t im_have, im_at;
	bool im_eof;
};

static int import_run(void *arg, struct kv_txn *t)
{
	struct import *im = arg;
	struct kv_slice had;
	int rc = 0;

	for (size_t i = 0; !rc && i < im->im_n; i++) {
		const struct import_row *r = &im->im_row[i];
		struct kv_slice key = {im->im_bytes + r->ir_key, r->ir_key_len};
		struct kv_slice val = {im->im_bytes + r->ir_key + r->ir_key_len, r->ir_val_len};

		rc = kv_get(t, key, &had);
		if (!rc)
			im->im_twice = r->ir_line;
		rc = !rc ? -EEXIST : rc == -ENOENT ? kv_put(t, key, val) : rc;
	}
	return rc;
}

static bool import_flush(struct import *im)
{
	int rc = im->im_n ? kv_run_sync(im->im_build.bb_kv, import_run, im) : 0;

	im->im_n = im->im_used = 0;
	if (im->im_twice)
		backup_say("%s: line %" PRIu64 ": the row of an earlier line again", im->im_name,
			   im->im_twice);
	else if (rc)
		backup_say("%s: %s", im->im_build.bb_store, strerror(-rc));
	return !rc;
}

static bool import_row(struct import *im)
{
	const struct meta_row *r = &im->im_check.mc_row;
	size_t len = r->mr_key_len + r->mr_val_len;

	if ((im->im_n == IMPORT_ROWS || im->im_used + len > IMPORT_BYTES) && !import_flush(im))
		return false;
	im->im_row[im->im_n++] = (struct import_row){im->im_used, r->mr_key_len, r->mr_val_len,
						     im->im_check.mc_lines};
	memcpy(im->im_bytes + im->im_used, r->mr_key, r->mr_key_len);
	memcpy(im->im_bytes + im->im_used + r->mr_key_len, r->mr_val, r->mr_val_len);
	im->im_used += len;
	return true;
}

/* The next line, without its newline. Returns 1; 0: the end; -1: it was said what is wrong. */
static int import_line(struct import *im, char **line, size_t *len)
{
	for (size_t looked = 0;;) {
		char *nl = memchr(im->im_buf + im->im_at + looked, '\n',
				  im->im_have - im->im_at - looked);
		ssize_t n;

		if (nl) {
			*line = im->im_buf + im->im_at;
			*len = (size_t)(nl - *line);
			im->im_at += *len + 1;
			return 1;
		}
		looked = im->im_have - im->im_at;
		memmove(im->im_buf, im->im_buf + im->im_at, looked);
		im->im_at = 0;
		im->im_have = looked;
		if (looked == META_LINE_MAX) {
			backup_say("%s: line %" PRIu64 ": is longer than %u bytes", im->im_name,
				   im->im_check.mc_lines + 1, META_LINE_MAX);
			return -1;
		}
		n = read(im->im_fd, im->im_buf + looked, META_LINE_MAX - looked);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			backup_say("%s: %s", im->im_name, strerror(errno));
			return -1;
		}
		if (!n && looked)
			backup_say("%s: line %" PRIu64 ": ends without a newline: the file was cut "
				   "off",
				   im->im_name, im->im_check.mc_lines + 1);
		if (!n)
			return looked ? -1 : 0;
		im->im_have += (size_t)n;
	}
}

static bool import_lines(struct import *im)
{
	char why[300] = "";
	size_t len = 0;
	char *line;
	int rc;

	while ((rc = import_line(im, &line, &len)) > 0) {
		rc = meta_check_line(&im->im_check, line, len, why, sizeof(why));
		if (rc < 0)
			return backup_say("%s: line %" PRIu64 ": %s", im->im_name,
					  im->im_check.mc_lines, why),
			       false;
		if (rc && !import_row(im))
			return false;
	}
	if (rc < 0 || !import_flush(im))
		return false;
	if (!meta_check_end(&im->im_check, why, sizeof(why)))
		return backup_say("%s: %s", im->im_name, why), false;
	return true;
}

static bool import_into(struct import *im, const struct backup_args *a, bool edited)
{
	bool ok = meta_check_begin(&im->im_check, edited);

	im->im_bytes = malloc(IMPORT_BYTES);
	im->im_buf = malloc(META_LINE_MAX);
	if (!ok || !im->im_bytes || !im->im_buf) {
		backup_say("out of memory");
		ok = false;
	}
	ok = ok && backup_build_begin(&im->im_build, a) && backup_build_open(&im->im_build) &&
	     import_lines(im) && backup_build_end(&im->im_build);
	if (!ok && im->im_build.bb_store)
		backup_build_undo(&im->im_build);
	free(im->im_bytes);
	free(im->im_buf);
	meta_check_free(&im->im_check);
	return ok;
}

static int import_done(const struct import *im, const struct backup_args *a)
{
	const struct meta_head *h = &im->im_check.mc_head;
	time_t at = (time_t)h->mh_made_at;
	char what[200], when[32];
	struct tm tm;

	if (im->im_check.mc_raw)
		backup_say("%" PRIu64 " rows came as bytes (kind raw): check the store with "
			   "weft-fsck",
			   im->im_check.mc_raw);
	if (!gmtime_r(&at, &tm) || !strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", &tm))
		snprintf(when, sizeof(when), "%" PRId64 " s", h->mh_made_at);
	snprintf(what, sizeof(what), "the store is as it was at %s (%" PRIu64 " rows)", when,
		 im->im_check.mc_lines - 2);
	return backup_build_next(a, what);
}

int meta_import(const struct backup_args *a, const char *from, bool edited)
{
	bool piped = !strcmp(from, "-");
	struct import *im = calloc(1, sizeof(*im));
	int rc = BACKUP_FAILED;

	if (!im)
		return backup_say("out of memory");
	im->im_name = piped ? "standard input" : from;
	im->im_fd = piped ? STDIN_FILENO : open(from, O_RDONLY | O_CLOEXEC);
	if (im->im_fd < 0)
		backup_say("%s: %s", from, strerror(errno));
	else if (import_into(im, a, edited))
		rc = import_done(im, a);
	if (im->im_fd > 0 && !piped)
		close(im->im_fd);
	free(im);
	return rc;
}
