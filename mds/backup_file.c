/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backup_file.c - the format of a backup: a line of JSON that says what it is, records (kv_rows.h),
 * and a line of JSON with a sum of all bytes before it. A backup without its last line is not
 * whole.
 */
#include "mds/backup.h"
#include "mds/backup_json.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int backup_write(int fd, const void *data, size_t len)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = write(fd, (const char *)data + done, len - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		done += (size_t)n;
	}
	return 0;
}

/* The first line */

static void hex(const uint8_t *p, size_t n, char *out)
{
	sodium_bin2hex(out, 2 * n + 1, p, n);
}

int backup_head_text(const struct backup_head *h, char out[BACKUP_LINE_MAX])
{
	char log[33] = "", id[33];
	json_t *j;
	size_t n;

	hex(h->bh_id, sizeof(h->bh_id), id);
	if (h->bh_logged)
		hex(h->bh_log, sizeof(h->bh_log), log);
	j = json_pack("{s:i, s:s, s:s, s:s?, s:s, s:I, s:I, s:I, s:i, s:I, s:s}", "weft_backup",
		      BACKUP_VERSION, "kind", h->bh_full ? "full" : "incremental", "cluster",
		      h->bh_cluster, "log", h->bh_logged ? log : NULL, "id", id, "from",
		      (json_int_t)h->bh_from, "to", (json_int_t)h->bh_to, "boot",
		      (json_int_t)h->bh_boot, "incarnation", (int)h->bh_incarnation, "made_at",
		      (json_int_t)h->bh_made_at, "program", h->bh_program);
	if (!j)
		return -ENOMEM;
	n = json_dumpb(j, out, BACKUP_LINE_MAX - 2, JSON_COMPACT);
	json_decref(j);
	if (!n || n > BACKUP_LINE_MAX - 2)
		return -EINVAL;
	out[n] = '\n';
	out[n + 1] = 0;
	return 0;
}

int backup_head_parse(const char *line, size_t len, struct backup_head *h, char *why, size_t max)
{
	static const char *const kinds[] = {"full", "incremental", NULL};
	struct json_read jr;
	const char *log;

	memset(h, 0, sizeof(*h));
	json_read_line(&jr, line, len);
	if (!jr.jr_bad && !json_read_has(&jr, "weft_backup"))
		json_read_fail(&jr, "", "this is no backup of weft");
	if (json_read_int(&jr, "weft_backup", 1, INT32_MAX) != BACKUP_VERSION)
		json_read_fail(&jr, "weft_backup", "this program knows version 1");
	h->bh_full = json_read_word(&jr, "kind", kinds) == 0;
	snprintf(h->bh_cluster, sizeof(h->bh_cluster), "%s",
		 json_read_text(&jr, "cluster", sizeof(h->bh_cluster) - 1));
	log = json_read_text_null(&jr, "log", 2 * sizeof(h->bh_log));
	h->bh_logged = log;
	if (log && !json_unhex(log, h->bh_log, sizeof(h->bh_log)))
		json_read_fail(&jr, "log", "32 hexadecimal digits are expected");
	json_read_hex(&jr, "id", h->bh_id, sizeof(h->bh_id));
	h->bh_from = (uint64_t)json_read_int(&jr, "from", 0, INT64_MAX - 1);
	h->bh_to = (uint64_t)json_read_int(&jr, "to", (int64_t)h->bh_from, INT64_MAX - 1);
	h->bh_boot = (uint64_t)json_read_int(&jr, "boot", 0, INT64_MAX);
	h->bh_incarnation = (unsigned)json_read_int(&jr, "incarnation", 0, UINT16_MAX);
	h->bh_made_at = json_read_int(&jr, "made_at", 0, INT64_MAX);
	snprintf(h->bh_program, sizeof(h->bh_program), "%s",
		 json_read_text(&jr, "program", sizeof(h->bh_program) - 1));
	if (h->bh_full ? h->bh_from != 0 : !h->bh_logged || !h->bh_from)
		json_read_fail(&jr, "from", "does not fit the kind of backup");
	json_read_end(&jr);
	if (jr.jr_bad)
		snprintf(why, max, "%s", jr.jr_why);
	json_read_free(&jr);
	return jr.jr_bad ? -EINVAL : 0;
}

/* Writing */

static int out_bytes(void *arg, const void *data, size_t len)
{
	struct backup_out *o = arg;

	crypto_generichash_update(&o->bo_hash, data, len);
	o->bo_bytes += len;
	return backup_write(o->bo_fd, data, len);
}

int backup_out_begin(struct backup_out *o, int fd, const struct backup_head *h)
{
	char line[BACKUP_LINE_MAX];
	int rc = backup_head_text(h, line);

	*o = (struct backup_out){.bo_fd = fd};
	crypto_generichash_init(&o->bo_hash, NULL, 0, BACKUP_HASH);
	if (!rc)
		rc = out_bytes(o, line, strlen(line));
	if (rc)
		return rc;
	o->bo_rows = kv_rows_new(h->bh_id, o->bo_bytes, out_bytes, o);
	return o->bo_rows ? 0 : -ENOMEM;
}

int backup_out_put(struct backup_out *o, uint64_t txn, const struct kv_write *w)
{
	o->bo_writes++;
	return kv_rows_put(o->bo_rows, txn, w);
}

int backup_out_end(struct backup_out *o)
{
	char line[BACKUP_LINE_MAX], sum[2 * BACKUP_HASH + 1];
	uint8_t hash[BACKUP_HASH];
	uint64_t at;
	int rc = kv_rows_end(o->bo_rows, &at);

	if (rc)
		return rc;
	crypto_generichash_final(&o->bo_hash, hash, sizeof(hash));
	hex(hash, sizeof(hash), sum);
	snprintf(line, sizeof(line), "{\"bytes\":%lu,\"writes\":%lu,\"blake2b\":\"%s\"}\n",
		 (unsigned long)at, (unsigned long)o->bo_writes, sum);
	o->bo_bytes += strlen(line);
	return backup_write(o->bo_fd, line, strlen(line));
}

void backup_out_free(struct backup_out *o)
{
	kv_rows_free(o->bo_rows);
	o->bo_rows = NULL;
}

/* Reading */

void backup_in_init(struct backup_in *in, int fd, const char *name)
{
	memset(in, 0, offsetof(struct backup_in, bi_buf));
	in->bi_fd = fd;
	in->bi_name = name;
}

static int in_fail(struct backup_in *in, int rc, const char *what)
{
	snprintf(in->bi_why, sizeof(in->bi_why), "%s, at byte %lu of this backup", what,
		 (unsigned long)in->bi_bytes);
	return rc;
}

/* Returns 1: there are bytes in bi_buf; 0: the end of the file; or -errno. */
static int in_fill(struct backup_in *in)
{
	ssize_t n;

	if (in->bi_at < in->bi_n)
		return 1;
	do
		n = read(in->bi_fd, in->bi_buf, sizeof(in->bi_buf));
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return in_fail(in, -errno, strerror(errno));
	in->bi_at = 0;
	in->bi_n = (size_t)n;
	return n > 0;
}

static int in_bytes(void *arg, void *buf, size_t len)
{
	struct backup_in *in = arg;

	for (size_t done = 0, n; done < len; done += n) {
		int rc = in_fill(in);

		if (rc <= 0)
			return rc ? rc : -ENODATA;
		n = in->bi_n - in->bi_at < len - done ? in->bi_n - in->bi_at : len - done;
		memcpy((char *)buf + done, in->bi_buf + in->bi_at, n);
		crypto_generichash_update(&in->bi_hash, (uint8_t *)in->bi_buf + in->bi_at, n);
		in->bi_at += n;
		in->bi_bytes += n;
	}
	return 0;
}

/* Reads up to the newline. Returns the length without it; 0: the file ends before the first byte;
 * or -errno. */
static int in_line(struct backup_in *in, char line[BACKUP_LINE_MAX])
{
	int rc = in_fill(in);

	if (rc <= 0)
		return rc;
	for (unsigned n = 0; n < BACKUP_LINE_MAX; n++) {
		rc = in_bytes(in, line + n, 1);
		if (rc)
			return rc == -ENODATA ? in_fail(in, rc, "the file ends in a line") : rc;
		if (line[n] == '\n')
			return n ? (int)n : in_fail(in, -EINVAL, "an empty line");
	}
	return in_fail(in, -EINVAL, "no backup of weft: the line is too long");
}

int backup_in_begin(struct backup_in *in)
{
	char line[BACKUP_LINE_MAX], why[250];
	int rc;

	in->bi_bytes = in->bi_writes = 0;
	in->bi_why[0] = 0;
	crypto_generichash_init(&in->bi_hash, NULL, 0, BACKUP_HASH);
	rc = in_line(in, line);
	if (rc <= 0)
		return rc;
	if (backup_head_parse(line, (size_t)rc, &in->bi_head, why, sizeof(why)))
		return in_fail(in, -EINVAL, why);
	in->bi_rows.ri_read = in_bytes;
	in->bi_rows.ri_arg = in;
	in->bi_rows.ri_at = in->bi_bytes;
	memcpy(in->bi_rows.ri_id, in->bi_head.bh_id, sizeof(in->bi_rows.ri_id));
	return 1;
}

static int in_end(struct backup_in *in)
{
	char line[BACKUP_LINE_MAX], want[2 * BACKUP_HASH + 1];
	uint8_t hash[BACKUP_HASH];
	uint64_t bytes = in->bi_bytes, said, writes;
	struct json_read jr;
	bool same;
	int rc;

	crypto_generichash_final(&in->bi_hash, hash, sizeof(hash));
	hex(hash, sizeof(hash), want);
	crypto_generichash_init(&in->bi_hash, NULL, 0, BACKUP_HASH);
	rc = in_line(in, line);
	if (rc <= 0)
		return rc ? rc : in_fail(in, -ENODATA, "the last line is missing");
	json_read_line(&jr, line, (size_t)rc);
	said = (uint64_t)json_read_int(&jr, "bytes", 0, INT64_MAX);
	writes = (uint64_t)json_read_int(&jr, "writes", 0, INT64_MAX);
	same = !strcmp(json_read_text(&jr, "blake2b", 2 * BACKUP_HASH), want) && said == bytes &&
	       writes == in->bi_writes && json_read_end(&jr);
	json_read_free(&jr);
	return same ? 0 : in_fail(in, -EIO, "the sum in the last line is another one: damaged");
}

int backup_in_next(struct backup_in *in)
{
	int rc = kv_rows_next(&in->bi_rows);
	struct kv_write w;

	if (rc == -ENODATA)
		return in_fail(in, rc, "the file ends here: it was not written to its end");
	if (rc == -EIO && !*in->bi_why)
		return in_fail(in, rc, "a record is damaged");
	if (rc < 0)
		return *in->bi_why ? rc : in_fail(in, rc, strerror(-rc));
	if (!rc)
		return in_end(in);
	if (in->bi_rows.ri_txn > in->bi_head.bh_to ||
	    (!in->bi_head.bh_full && in->bi_rows.ri_txn <= in->bi_head.bh_from))
		return in_fail(in, -EIO, "a record of another transaction: damaged");
	while (kv_rows_write(&in->bi_rows, &w))
		in->bi_writes++;
	kv_rows_again(&in->bi_rows);
	return 1;
}

int backup_in_rewind(struct backup_in *in)
{
	in->bi_at = in->bi_n = 0;
	return lseek(in->bi_fd, 0, SEEK_SET) < 0 ? -errno : 0;
}

void backup_in_free(struct backup_in *in)
{
	free(in->bi_rows.ri_buf);
	in->bi_rows.ri_buf = NULL;
	in->bi_rows.ri_room = 0;
}
