/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meta_export.c - writes a metadata store as lines of JSON, beside its server or without one. All
 * lines are of one snapshot.
 */
#include "common/version.h"
#include "mds/layout/lo.h"
#include "mds/meta.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EXPORT_BUF   (1u << 20)
#define EXPORT_SHOWN 5u /* rows that are named because they are written as bytes */

struct export
{
	const char *x_name; /* for messages */
	int x_fd;
	crypto_generichash_state x_hash;
	char *x_buf;
	size_t x_n;
	uint64_t x_rows, x_raw, x_bytes;
};

static int export_flush(struct export *x)
{
	int rc = backup_write(x->x_fd, x->x_buf, x->x_n);

	x->x_n = 0;
	return rc;
}

static int export_text(struct export *x, const char *text, size_t len)
{
	int rc = x->x_n + len > EXPORT_BUF ? export_flush(x) : 0;

	crypto_generichash_update(&x->x_hash, (const uint8_t *)text, len);
	x->x_bytes += len;
	if (rc)
		return rc;
	if (len > EXPORT_BUF)
		return backup_write(x->x_fd, text, len);
	memcpy(x->x_buf + x->x_n, text, len);
	x->x_n += len;
	return 0;
}

static int export_head(struct export *x, const struct backup_store *s)
{
	struct meta_head h = {.mh_boot = s->bs_super.su_boot,
			      .mh_incarnation = s->bs_super.su_incarnation,
			      .mh_made_at = time(NULL)};
	char line[BACKUP_LINE_MAX];
	int rc;

	lo_uuid_text(s->bs_super.su_uuid, h.mh_cluster);
	snprintf(h.mh_program, sizeof(h.mh_program), "%.60s", version_text);
	rc = meta_head_text(&h, line);
	return rc ? rc : export_text(x, line, strlen(line));
}

static int meta_export_row(struct export *x, struct meta_line *l, struct kv_slice key,
			   struct kv_slice val)
{
	char shown[2 * 20 + 1];
	bool raw;
	int rc = meta_line_of(l, key, val, &raw);

	if (rc)
		return rc;
	x->x_rows++;
	if (raw && x->x_raw++ < EXPORT_SHOWN)
		backup_say("the row %s%s is damaged, or newer than this program: its line has its "
			   "bytes",
			   sodium_bin2hex(shown, sizeof(shown), key.s_data,
					  key.s_len < 20 ? key.s_len : 20),
			   key.s_len > 20 ? "..." : "");
	return export_text(x, l->ml_buf, l->ml_len);
}

/* The row of the cluster comes first: what follows is checked with its keys. */
static int export_rows(struct export *x, struct kv_txn *t)
{
	const uint8_t super = NS_K_SUPER;
	struct kv_slice none = {"", 0}, key = {&super, 1}, val;
	struct meta_line l = {.ml_buf = NULL};
	struct kv_scan sc;
	int rc = kv_get(t, key, &val);

	if (!rc)
		rc = meta_export_row(x, &l, key, val);
	if (!rc)
		rc = kv_scan_begin(t, none, none, &sc);
	if (rc) {
		free(l.ml_buf);
		return rc;
	}
	while ((rc = kv_scan_next(&sc, &key, &val)) > 0) {
		if (key.s_len == 1 && *(const uint8_t *)key.s_data == NS_K_SUPER)
			continue;
		/* They mean something to the next life of this store alone. */
		if (*(const uint8_t *)key.s_data == NS_T_CONN)
			continue;
		rc = meta_export_row(x, &l, key, val);
		if (rc)
			break;
	}
	kv_scan_end(&sc);
	free(l.ml_buf);
	return rc;
}

static int export_last(struct export *x)
{
	char line[BACKUP_LINE_MAX], sum[2 * BACKUP_HASH + 1];
	uint8_t hash[BACKUP_HASH];
	int n, rc;

	crypto_generichash_final(&x->x_hash, hash, sizeof(hash));
	sodium_bin2hex(sum, sizeof(sum), hash, sizeof(hash));
	crypto_generichash_init(&x->x_hash, NULL, 0, BACKUP_HASH);
	n = snprintf(line, sizeof(line), "{\"kind\":\"end\",\"rows\":%lu,\"blake2b\":\"%s\"}\n",
		     (unsigned long)x->x_rows, sum);
	rc = export_text(x, line, (size_t)n);
	return rc ? rc : export_flush(x);
}

static bool export_write(struct export *x, const struct backup_store *s)
{
	int rc = x->x_buf ? export_head(x, s) : -ENOMEM;

	if (!rc)
		rc = export_rows(x, s->bs_txn);
	if (!rc)
		rc = export_last(x);
	if (rc)
		backup_say("%s: %s", x->x_name, strerror(-rc));
	return !rc;
}

/* The file gets its name when it is whole and on the disk. */
static bool export_file(struct export *x, const struct backup_store *s)
{
	char tmp[PATH_MAX + 8];
	bool ok;

	snprintf(tmp, sizeof(tmp), "%s.new", x->x_name);
	/* One that is there may have another mode, or be open. */
	unlink(tmp);
	x->x_fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (x->x_fd < 0)
		return backup_say("%s: %s", tmp, strerror(errno)), false;
	ok = export_write(x, s);
	if (ok && (fsync(x->x_fd) || rename(tmp, x->x_name))) {
		backup_say("%s: %s", x->x_name, strerror(errno));
		ok = false;
	}
	close(x->x_fd);
	if (!ok)
		unlink(tmp);
	return ok;
}

static int export_done(const struct export *x, const struct backup_args *a)
{
	json_t *j;

	if (x->x_raw)
		backup_say("%lu rows are lines of kind raw: check the store with weft-fsck",
			   (unsigned long)x->x_raw);
	if (!strcmp(x->x_name, "-"))
		return BACKUP_DONE;
	if (!a->ba_json) {
		printf("%s: %lu rows, %lu bytes\n", x->x_name, (unsigned long)x->x_rows,
		       (unsigned long)x->x_bytes);
	} else {
		j = json_pack("{s:s, s:I, s:I, s:I}", "file", x->x_name, "rows",
			      (json_int_t)x->x_rows, "raw", (json_int_t)x->x_raw, "size_bytes",
			      (json_int_t)x->x_bytes);
		if (j)
			json_dumpf(j, stdout, JSON_COMPACT);
		putchar('\n');
		json_decref(j);
	}
	return fflush(stdout) ? backup_say("cannot write to standard output") : BACKUP_DONE;
}

int meta_export(const struct backup_args *a, const char *to)
{
	struct export x = {.x_name = to, .x_fd = STDOUT_FILENO, .x_buf = malloc(EXPORT_BUF)};
	struct backup_store s;
	bool ok;

	if (!backup_store_open(&s, a->ba_store)) {
		free(x.x_buf);
		return BACKUP_FAILED;
	}
	crypto_generichash_init(&x.x_hash, NULL, 0, BACKUP_HASH);
	ok = strcmp(to, "-") ? export_file(&x, &s) : export_write(&x, &s);
	backup_store_close(&s);
	free(x.x_buf);
	return ok ? export_done(&x, a) : BACKUP_FAILED;
}
