/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_kv_log.c - records and headers of the store's log are decoded without trust: any bytes are
 * none, or one that keeps its promises. Without a sum that fits nothing would get far, so the
 * second half of the inputs has it set.
 */
#include "kv/kv_log.h"
#include "kv/kv_int.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t id[KV_LOG_ID] = "fuzz";

/* Promised: the writes of a whole record are within it, with lengths that the store takes, and make
 * the same record again. */
static void whole(const struct kv_log_want *want, const char *rec, uint32_t len)
{
	struct kv_log_rec *r = (struct kv_log_rec *)rec, *again;
	uint32_t pos = sizeof(*r);
	struct kv_wlog wl = {0};
	struct kv_write w;
	int rc;

	while ((rc = kv_log_rec_next(rec, &pos, &w)) > 0) {
		const char *k = w.w_key.s_data, *v = w.w_val.s_data;

		if (k < rec + sizeof(*r) || k + w.w_key.s_len != v ||
		    v + w.w_val.s_len > rec + len || !w.w_key.s_len || w.w_key.s_len > KV_KEY_MAX)
			abort();
		if (kv_wlog_add(&wl, w.w_key, w.w_val, w.w_del))
			abort();
	}
	if (rc || wl.wl_n != r->rl_n || (wl.wl_n && wl.wl_len != len))
		abort();
	if (wl.wl_n) {
		again = (struct kv_log_rec *)wl.wl_buf;
		memset(again, 0, sizeof(*again));
		kv_log_rec_seal(want, r->rl_base, r->rl_txnid, r->rl_n, again, len);
		if (memcmp(again, rec, len))
			abort();
	}
	kv_wlog_free(&wl);
}

static void record(const uint8_t *data, size_t size, bool seal)
{
	struct kv_log_want want = {id, 3, KV_LOG_BLOCK};
	char *rec = malloc(size);
	struct kv_log_rec *r = (struct kv_log_rec *)rec;
	uint32_t len;

	memcpy(rec, data, size);
	if (seal)
		kv_log_rec_seal(&want, r->rl_base, r->rl_txnid, r->rl_n, rec, (uint32_t)size);
	len = kv_log_rec_len(&want, rec, size);
	if (len > size || (seal && len != size))
		abort();
	if (len && kv_log_rec_ok(&want, rec))
		whole(&want, rec, len);
	free(rec);
}

static void head(const uint8_t *data, size_t size, bool seal)
{
	struct kv_log_head h = {.lh_psize = KV_LOG_BLOCK};

	memcpy(&h, data, size < sizeof(h) ? size : sizeof(h));
	if (seal)
		kv_log_head_seal(&h);
	if (kv_log_head_ok(&h) &&
	    (h.lh_psize < KV_LOG_BLOCK || h.lh_psize > 65536 || h.lh_clean > 1))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!size)
		return 0;
	if (data[0] & 1)
		head(data + 1, size - 1, data[0] & 2);
	else if (size - 1 >= sizeof(struct kv_log_rec))
		record(data + 1, size - 1, data[0] & 2);
	return 0;
}
