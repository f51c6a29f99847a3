/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_log.h - the redo log's records and headers as they lie on the disk, and their decoders, which
 * trust nothing. Only kv/ and the tests include it. kv_log.c says what the log is for.
 */
#ifndef KV_KV_LOG_H
#define KV_KV_LOG_H
#include "kv/kv.h"

#define KV_LOG_BLOCK 4096u
#define KV_LOG_ID    16
#define KV_LOG_META  512u /* of a meta page of LMDB: more than LMDB uses */

/* Little endian. sum is SipHash-2-4, 128 bits, keyed by the log's id, over the rl_len bytes with
 * itself as zeros. */
struct kv_log_rec {
	char rl_magic[8]; /* its last byte: the version */
	uint64_t rl_gen;  /* of the file's records */
	uint64_t rl_at;	  /* offset in the file at which it begins */
	uint64_t rl_base; /* the newest header when it was written */
	uint64_t rl_txnid;
	uint32_t rl_len; /* this header and what follows; the rest of the last block is padding */
	/* writes that follow: uint32_t key's length (top bit: a delete), uint32_t value's length,
	 * key, value */
	uint32_t rl_n;
	uint8_t rl_sum[16];
} __attribute__((packed)); /* a provider's memory may begin anywhere (kv_redo.h) */
_Static_assert(sizeof(struct kv_log_rec) == 64, "format");

/* The first block of a log file: a checkpoint. */
struct kv_log_head {
	char lh_magic[8]; /* its last byte: the version */
	uint8_t lh_id[KV_LOG_ID];
	uint64_t lh_gen;
	uint64_t lh_txnid; /* the state that the meta pages describe */
	uint32_t lh_psize;
	uint32_t lh_clean; /* 1: closed; the data file is that state and durable */
	uint8_t lh_meta[2][KV_LOG_META];
	uint8_t lh_sum[16];
};
_Static_assert(sizeof(struct kv_log_head) == 48 + 1024 + 16, "format");

void kv_log_head_seal(struct kv_log_head *h);
bool kv_log_head_ok(const struct kv_log_head *h);

/* The record to look for. */
struct kv_log_want {
	const uint8_t *lw_id;
	uint64_t lw_gen, lw_at;
};
void kv_log_rec_seal(const struct kv_log_want *want, uint64_t base, uint64_t txnid, uint32_t n,
		     void *rec, uint32_t len);
/* The length of the record that begins with these sizeof(struct kv_log_rec) bytes, at most room; 0:
 * no record begins here. */
uint32_t kv_log_rec_len(const struct kv_log_want *want, const void *rec, uint64_t room);
/* True when the record is whole. kv_log_rec_len() bytes are there; they are unchanged when this
 * returns. */
bool kv_log_rec_ok(const struct kv_log_want *want, void *rec);
/* Reads the write at *pos (begin with sizeof(struct kv_log_rec)) of a whole record. Returns 1: a
 * write; 0: the end; -EIO: malformed. */
int kv_log_rec_next(const void *rec, uint32_t *pos, struct kv_write *w);
#endif
