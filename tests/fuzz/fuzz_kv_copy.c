/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_kv_copy.c - records that a log gives to a follower: any bytes are refused, or are applied
 * whole as the next batch. Without a sum that fits nothing would get far, so the second half of the
 * inputs has it set.
 *
 * Held: a batch that is refused leaves the number that the store holds, and one that is applied
 * raises it by one; the store's own row is never the log's.
 */
#include "base/log.h"
#include "kv/kv_redo.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t id[KV_REDO_ID] = "fuzz";
static uint8_t sum[KV_REDO_SUM];
static char path[64];
static struct kv *kv;

static int log_id(void *log, uint8_t out[KV_REDO_ID], char *err, size_t errlen)
{
	(void)log, (void)err, (void)errlen;
	memcpy(out, id, sizeof(id));
	return 0;
}

static int log_read(void *log, uint64_t after, kv_redo_batch_fn fn, void *arg, char *err,
		    size_t errlen)
{
	(void)log, (void)after, (void)fn, (void)arg, (void)err, (void)errlen;
	return 0;
}

static void log_trim(void *log, uint64_t upto)
{
	(void)log, (void)upto;
}

static void clean_up(void)
{
	char cmd[128];

	snprintf(cmd, sizeof(cmd), "rm -rf %s", path);
	if (system(cmd))
		_exit(1);
}

static void open_follower(void)
{
	static const struct kv_redo_ops ops = {
		.ro_name = "fuzz", .ro_id = log_id, .ro_read = log_read, .ro_trim = log_trim};
	static const struct kv_redo redo = {&ops, NULL};
	struct kv_opts o = {
		.ko_create = true, .ko_redo = &redo, .ko_follow = true, .ko_map_max = 256 << 20};
	char err[256];

	snprintf(path, sizeof(path), "%s/fuzz_kv_copy.XXXXXX",
		 access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
	log_set_level(LOG_L_ERROR);
	if (!mkdtemp(path) || kv_open(&kv, path, &o, err, sizeof(err)))
		abort();
	atexit(clean_up);
}

static void own_row(struct kv_txn *t)
{
	struct kv_slice key = {"\0weft", 5}, val;

	if (kv_get(t, key, &val) != -EINVAL || kv_read_number(t) != kv_held(kv))
		abort();
}

static void give(const uint8_t *data, size_t size, bool seal)
{
	uint64_t held = kv_held(kv);
	struct kv_redo_batch b = {.rb_number = held + 1, .rb_len = (uint32_t)size};
	struct kv_redo_rec *r;
	struct kv_txn *t;
	int rc;

	b.rb_rec = malloc(size + 1);
	memcpy(b.rb_rec, data, size);
	r = b.rb_rec;
	if (seal && size >= sizeof(*r)) {
		b.rb_n = r->rr_n;
		kv_redo_rec_seal(id, sum, 1, &b);
	}
	rc = kv_apply(kv, held + 1, b.rb_rec, size);
	if (rc == 0)
		memcpy(sum, r->rr_sum, sizeof(sum));
	if (kv_held(kv) != held + !rc || (rc && rc != -EIO && rc != -ENOSPC))
		abort();
	if (kv_read_begin(kv, &t))
		abort();
	own_row(t);
	kv_read_end(t);
	free(b.rb_rec);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!kv)
		open_follower();
	if (size)
		give(data + 1, size - 1, data[0] % 2);
	return 0;
}
