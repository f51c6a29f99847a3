/* SPDX-License-Identifier: Apache-2.0 */
/* kv_rows.c - writes of transactions as a stream of bytes; see kv_rows.h. */
#include "kv/kv_rows.h"
#include "kv/kv_int.h"
#include "kv/kv_log.h"
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A record is written when it has this length. */
#define ROWS_FULL (256u << 10)
_Static_assert(ROWS_FULL + sizeof(struct kv_log_rec) + 8 + KV_KEY_MAX + KV_VALUE_MAX <=
		       KV_ROWS_RECORD_MAX,
	       "a record that is nearly full has room for one more write");

struct kv_rows_out {
	int (*o_write)(void *arg, const void *data, size_t len);
	void *o_arg;
	uint8_t o_id[KV_ROWS_ID];
	uint64_t o_at, o_txn;
	struct kv_wlog o_log;
};

struct kv_rows_out *kv_rows_new(const uint8_t id[KV_ROWS_ID], uint64_t at,
				int (*write)(void *arg, const void *data, size_t len), void *arg)
{
	struct kv_rows_out *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	o->o_write = write;
	o->o_arg = arg;
	o->o_at = at;
	memcpy(o->o_id, id, sizeof(o->o_id));
	return o;
}

static int rows_seal(struct kv_rows_out *o, void *rec, uint32_t len, uint32_t n)
{
	struct kv_log_want want = {o->o_id, 1, o->o_at};
	int rc;

	kv_log_rec_seal(&want, 0, o->o_txn, n, rec, len);
	rc = o->o_write(o->o_arg, rec, len);
	o->o_at += len;
	return rc;
}

static int rows_flush(struct kv_rows_out *o)
{
	int rc = 0;

	if (o->o_log.wl_n)
		rc = rows_seal(o, o->o_log.wl_buf, (uint32_t)o->o_log.wl_len,
			       (uint32_t)o->o_log.wl_n);
	kv_wlog_reset(&o->o_log);
	return rc;
}

int kv_rows_put(struct kv_rows_out *o, uint64_t txn, const struct kv_write *w)
{
	int rc = 0;

	if (txn != o->o_txn || o->o_log.wl_len >= ROWS_FULL)
		rc = rows_flush(o);
	o->o_txn = txn;
	return rc ? rc : kv_wlog_add(&o->o_log, w->w_key, w->w_val, w->w_del);
}

int kv_rows_end(struct kv_rows_out *o, uint64_t *at)
{
	struct kv_log_rec end = {0};
	int rc = rows_flush(o);

	if (!rc)
		rc = rows_seal(o, &end, sizeof(end), 0);
	*at = o->o_at;
	return rc;
}

void kv_rows_free(struct kv_rows_out *o)
{
	if (o)
		kv_wlog_free(&o->o_log);
	free(o);
}

static int rows_room(struct kv_rows_in *in, size_t len)
{
	char *more;

	if (len <= in->ri_room)
		return 0;
	more = realloc(in->ri_buf, len);
	if (!more)
		return -ENOMEM;
	in->ri_buf = more;
	in->ri_room = len;
	return 0;
}

int kv_rows_next(struct kv_rows_in *in)
{
	struct kv_log_want want = {in->ri_id, 1, in->ri_at};
	struct kv_log_rec *r;
	uint32_t len;
	int rc = rows_room(in, KV_LOG_BLOCK);

	if (!rc)
		rc = in->ri_read(in->ri_arg, in->ri_buf, sizeof(*r));
	if (rc)
		return rc;
	len = kv_log_rec_len(&want, in->ri_buf, KV_ROWS_RECORD_MAX);
	rc = len ? rows_room(in, len) : -EIO;
	if (!rc && len > sizeof(*r))
		rc = in->ri_read(in->ri_arg, in->ri_buf + sizeof(*r), len - sizeof(*r));
	if (rc)
		return rc;
	if (!kv_log_rec_ok(&want, in->ri_buf))
		return -EIO;
	r = (struct kv_log_rec *)in->ri_buf;
	in->ri_at += len;
	in->ri_txn = le64toh(r->rl_txnid);
	in->ri_pos = sizeof(*r);
	return r->rl_n != 0;
}

bool kv_rows_write(struct kv_rows_in *in, struct kv_write *w)
{
	return kv_log_rec_next(in->ri_buf, &in->ri_pos, w) > 0;
}

void kv_rows_again(struct kv_rows_in *in)
{
	in->ri_pos = sizeof(struct kv_log_rec);
}
