/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_backup.c - backups of the metadata store are read without trust: any bytes are a whole
 * backup, or an error. The first byte chooses: the others are a file; or a first line; or the
 * writes of a backup, which reads back as it was written, and not after a bit has changed.
 */
#include "mds/backup.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct backup_in in;

/* Promised: an error has a reason, and a whole backup ends where it says. Returns the writes, or
 * -1. */
static int64_t read_file(int fd, void (*each)(void *arg, const struct kv_write *w), void *arg)
{
	struct kv_write w;
	int64_t n = 0;
	int rc;

	backup_in_init(&in, fd, "fuzz");
	if (backup_in_rewind(&in))
		abort();
	rc = backup_in_begin(&in);
	if (rc == 1) {
		while ((rc = backup_in_next(&in)) > 0)
			while (kv_rows_write(&in.bi_rows, &w)) {
				if (!w.w_key.s_len || w.w_key.s_len > KV_KEY_MAX ||
				    w.w_val.s_len > KV_VALUE_MAX)
					abort();
				n++;
				if (each)
					each(arg, &w);
			}
		if (!rc && (uint64_t)n != in.bi_writes)
			abort();
	} else if (!rc) {
		n = -1;
	}
	if (rc < 0 && !*in.bi_why)
		abort();
	backup_in_free(&in);
	return rc < 0 ? -1 : n;
}

static int file_of(const uint8_t *data, size_t size)
{
	int fd = memfd_create("fuzz", 0);

	if (fd < 0 || backup_write(fd, data, size))
		abort();
	return fd;
}

/* Promised: what is understood is written again, and understood as the same. */
static void first_line(const uint8_t *data, size_t size)
{
	struct backup_head h, again;
	char line[BACKUP_LINE_MAX], why[200] = "";

	if (backup_head_parse((const char *)data, size, &h, why, sizeof(why))) {
		if (!*why)
			abort();
		return;
	}
	if (backup_head_text(&h, line))
		return; /* escapes make it too long */
	if (backup_head_parse(line, strlen(line) - 1, &again, why, sizeof(why)) ||
	    memcmp(&h, &again, sizeof(h)) != 0)
		abort();
}

struct pairs {
	const uint8_t *p_data;
	size_t p_size, p_at;
};

/* The input as writes: one byte for lengths and the kind, then the key and the value. */
static bool pairs_next(struct pairs *p, struct kv_write *w)
{
	uint8_t b = p->p_at < p->p_size ? p->p_data[p->p_at] : 0;
	size_t key = 1 + (b & 7), val = b & 64 ? 0 : (size_t)(b >> 3 & 7) * 9;

	if (p->p_at >= p->p_size || p->p_size - p->p_at - 1 < key + val)
		return false;
	w->w_key = (struct kv_slice){p->p_data + p->p_at + 1, key};
	w->w_val = (struct kv_slice){p->p_data + p->p_at + 1 + key, val};
	w->w_del = b & 64;
	p->p_at += 1 + key + val;
	return true;
}

static void pairs_same(void *arg, const struct kv_write *got)
{
	struct kv_write w;

	if (!pairs_next(arg, &w) || w.w_del != got->w_del || w.w_key.s_len != got->w_key.s_len ||
	    w.w_val.s_len != got->w_val.s_len ||
	    memcmp(w.w_key.s_data, got->w_key.s_data, w.w_key.s_len) != 0 ||
	    (w.w_val.s_len && memcmp(w.w_val.s_data, got->w_val.s_data, w.w_val.s_len) != 0))
		abort();
}

static void whole(const uint8_t *data, size_t size, uint8_t flip)
{
	static const struct backup_head h = {
		.bh_logged = true, .bh_from = 1, .bh_to = 1u << 20, .bh_program = "fuzz"};
	struct pairs p = {data, size, 0}, again = {data, size, 0};
	int fd = memfd_create("fuzz", 0);
	struct backup_out o;
	struct kv_write w;
	uint64_t n = 0;
	uint8_t b;
	off_t at;

	if (fd < 0 || backup_out_begin(&o, fd, &h))
		abort();
	while (pairs_next(&p, &w))
		if (backup_out_put(&o, 2 + n++ / 3, &w))
			abort();
	if (backup_out_end(&o))
		abort();
	backup_out_free(&o);
	if (read_file(fd, pairs_same, &again) != (int64_t)n)
		abort();
	at = (off_t)(flip * o.bo_bytes / 256);
	if (pread(fd, &b, 1, at) != 1)
		abort();
	b ^= 1;
	if (pwrite(fd, &b, 1, at) != 1 || read_file(fd, NULL, NULL) >= 0)
		abort();
	close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int fd;

	if (size < 2)
		return 0;
	if (data[0] % 3 == 1) {
		first_line(data + 1, size - 1);
	} else if (data[0] % 3 == 2) {
		whole(data + 2, size - 2, data[1]);
	} else {
		fd = file_of(data + 1, size - 1);
		read_file(fd, NULL, NULL);
		close(fd);
	}
	return 0;
}
