/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_rows.h - writes of transactions as a stream of bytes, which a backup is made of
 * (docs/backup.md). The stream has records in the format of the redo log, without padding; the last
 * record has no writes. The identity and the offset of a record are in its sum, so that a record of
 * another stream, or at another place, is damage.
 */
#ifndef KV_KV_ROWS_H
#define KV_KV_ROWS_H
#include "kv/kv.h"

#define KV_ROWS_ID 16
/* No record is longer: a batch of small writes, or one write of the largest size. */
#define KV_ROWS_RECORD_MAX (2u << 20)

struct kv_rows_out;
/* write: 0 or a negative errno, which the calls below return. at: the offset at which the stream
 * begins. NULL: out of memory. */
struct kv_rows_out *kv_rows_new(const uint8_t id[KV_ROWS_ID], uint64_t at,
				int (*write)(void *arg, const void *data, size_t len), void *arg);
/* Transactions come in order. */
int kv_rows_put(struct kv_rows_out *o, uint64_t txn, const struct kv_write *w);
/* Writes what is left, and the end of the stream. *at: its offset. */
int kv_rows_end(struct kv_rows_out *o, uint64_t *at);
void kv_rows_free(struct kv_rows_out *o);

/* The caller fills the first four, and frees ri_buf in the end. */
struct kv_rows_in {
	uint8_t ri_id[KV_ROWS_ID];
	uint64_t ri_at; /* offset of the next record */
	/* Reads exactly len bytes. 0; -ENODATA: the stream ends before; or another errno. */
	int (*ri_read)(void *arg, void *buf, size_t len);
	void *ri_arg;
	char *ri_buf;
	size_t ri_room;
	uint32_t ri_pos;
	uint64_t ri_txn; /* of the record that was read */
};
/* Reads the next record. Returns 1; 0: the end; -EIO: damage; or another errno. Trusts nothing. */
int kv_rows_next(struct kv_rows_in *in);
/* Gives its next write, which is valid until kv_rows_next. False: no more. */
bool kv_rows_write(struct kv_rows_in *in, struct kv_write *w);
/* Gives its writes again, from the first one. */
void kv_rows_again(struct kv_rows_in *in);
#endif
