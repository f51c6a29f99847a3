/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_redo.c - commits a batch by way of the redo log, whichever it is (kv_redo.h).
 *
 * Required: an answered mutation is in the log, durably, and no reader sees a mutation that is not.
 * Enforced: the log has the batch's record before LMDB commits the batch, and LMDB has committed it
 * before it is answered. LMDB's commit does not sync: the state of the newest checkpoint and the
 * log make the batch again.
 *
 * Where a batch is in a log elsewhere, and LMDB cannot commit it, the process ends: other copies
 * may have read it, so it is never taken back. The next start reads it from the log.
 */
#include "base/clock.h"
#include "base/crash.h"
#include "base/log.h"
#include "kv/kv_int.h"
#include "kv/kv_log.h"
#include <endian.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

/* Records */

#define KV_REDO_AT(redo, log)                                                                      \
	_Static_assert(offsetof(struct kv_redo_rec, redo) == offsetof(struct kv_log_rec, log),     \
		       "the same record, with rr_before in the place of rl_gen and rl_at")
KV_REDO_AT(rr_before, rl_gen);
KV_REDO_AT(rr_epoch, rl_base);
KV_REDO_AT(rr_batch, rl_txnid);
KV_REDO_AT(rr_len, rl_len);
KV_REDO_AT(rr_n, rl_n);
KV_REDO_AT(rr_sum, rl_sum);
_Static_assert(sizeof(struct kv_redo_rec) == sizeof(struct kv_log_rec), "format");

static struct kv_log_want want_of(const uint8_t *id, const uint8_t *before)
{
	struct kv_log_want want = {.lw_id = id};
	uint64_t half[2];

	memcpy(half, before, sizeof(half));
	want.lw_gen = le64toh(half[0]);
	want.lw_at = le64toh(half[1]);
	return want;
}

void kv_redo_rec_seal(const uint8_t id[KV_REDO_ID], const uint8_t before[KV_REDO_SUM],
		      uint64_t epoch, const struct kv_redo_batch *b)
{
	struct kv_log_want want = want_of(id, before);

	kv_log_rec_seal(&want, epoch, b->rb_number, b->rb_n, b->rb_rec, b->rb_len);
}

bool kv_redo_rec_ok(const uint8_t id[KV_REDO_ID], const uint8_t before[KV_REDO_SUM], uint64_t batch,
		    void *rec, size_t len)
{
	struct kv_log_want want = want_of(id, before);
	const struct kv_redo_rec *r = rec;

	return len >= sizeof(*r) && kv_log_rec_len(&want, rec, len) == len &&
	       le64toh(r->rr_batch) == batch && kv_log_rec_ok(&want, rec);
}

int kv_redo_rec_next(const void *rec, uint32_t *pos, struct kv_write *w)
{
	return kv_log_rec_next(rec, pos, w);
}

/* Numbers */

uint64_t kv_held(struct kv *kv)
{
	MDB_envinfo info;

	if (!kv_redo_local(kv))
		return atomic_load(&kv->k_copy.co_batch);
	mdb_env_info(kv->k_env, &info);
	return info.me_last_txnid;
}

uint64_t kv_redo_next(const struct kv *kv)
{
	return kv_redo_local(kv) ? mdb_txn_id(kv->k_txn.t_mdb)
				 : atomic_load(&kv->k_copy.co_batch) + 1;
}

void kv_redo_state(struct kv *kv, struct kv_redo_state *out)
{
	kv->k_redo.r_ops->ro_state(kv->k_redo.r_log, out);
}

/* Commits */

static void redo_end(struct kv *kv, const struct kv_redo_batch *b, const char *why)
	__attribute__((noreturn));
static void redo_end(struct kv *kv, const struct kv_redo_batch *b, const char *why)
{
	log_error("kv: %s: %s: the process ends; batch %lu is not answered", kv->k_path, why,
		  (unsigned long)b->rb_number);
	_exit(EX_TEMPFAIL);
}

static int redo_put(struct kv *kv, const struct kv_redo_batch *b)
{
	int rc = kv->k_redo.r_ops->ro_append(kv->k_redo.r_log, b);

	switch (rc) {
	case KV_REDO_DEPOSED:
		redo_end(kv, b, "another process has taken the log");
	case KV_REDO_STOPPED:
		redo_end(kv, b, "stopped while it was unknown what the log has");
	}
	return rc;
}

static int redo_commit_locked(struct kv *kv, struct kv_redo_batch *b)
{
	const struct kv_redo_ops *ops = kv->k_redo.r_ops;
	int rc = kv_redo_local(kv) ? 0 : kv_copy_seal(kv, b);

	if (rc == 0)
		rc = redo_put(kv, b);
	if (rc) {
		kv_txn_abort(kv);
		return rc;
	}
	crash_point("kv-logged");
	rc = kv_txn_commit(kv);
	if (rc && !ops->ro_undo)
		log_fatal("kv: %s: batch %lu is in the log, and cannot be committed: %s",
			  kv->k_path, (unsigned long)b->rb_number, strerror(-rc));
	if (rc) {
		ops->ro_undo(kv->k_redo.r_log, b);
		return rc;
	}
	if (!kv_redo_local(kv))
		kv_copy_done(kv, b);
	kv_log_wake(&kv->k_log);
	return 0;
}

int kv_redo_commit(struct kv *kv)
{
	uint64_t txnid = mdb_txn_id(kv->k_txn.t_mdb);
	struct kv_redo_batch b = {.rb_number = kv_redo_next(kv),
				  .rb_rec = kv->k_wlog.wl_buf,
				  .rb_len = (uint32_t)kv->k_wlog.wl_len,
				  .rb_n = (uint32_t)kv->k_wlog.wl_n};
	MDB_envinfo info;
	int rc;

	pthread_mutex_lock(&kv->k_log.lg_lock);
	rc = redo_commit_locked(kv, &b);
	pthread_mutex_unlock(&kv->k_log.lg_lock);
	mdb_env_info(kv->k_env, &info);
	if (!rc && info.me_last_txnid != txnid)
		log_fatal("kv: %s: transaction %lu was committed as %lu", kv->k_path,
			  (unsigned long)txnid, (unsigned long)info.me_last_txnid);
	return rc;
}

/* Doing a batch again */

int kv_redo_do(struct kv *kv, MDB_txn *txn, const void *rec)
{
	uint32_t pos = sizeof(struct kv_log_rec);
	struct kv_write w;

	while (kv_log_rec_next(rec, &pos, &w) > 0) {
		MDB_val k = {w.w_key.s_len, (void *)w.w_key.s_data},
			v = {w.w_val.s_len, (void *)w.w_val.s_data};
		int rc = w.w_del ? mdb_del(txn, kv->k_dbi, &k, NULL)
				 : mdb_put(txn, kv->k_dbi, &k, &v, 0);

		if (rc)
			return rc;
	}
	return 0;
}

struct replaying {
	struct kv *rp_kv;
	struct kv_failure *rp_f;
	uint64_t rp_done;
};

static int redo_one(void *arg, uint64_t number, void *rec, uint32_t len)
{
	struct replaying *rp = arg;
	struct kv *kv = rp->rp_kv;
	MDB_txn *txn;
	int rc = mdb_txn_begin(kv->k_env, NULL, 0, &txn);

	(void)len;
	if (rc == 0) {
		rc = kv_redo_do(kv, txn, rec);
		crash_point("kv-redo");
		if (rc)
			mdb_txn_abort(txn);
		else
			rc = mdb_txn_commit(txn);
	}
	if (rc)
		return kv_fail(rp->rp_f, kv_errno(rc),
			       "%s: cannot do transaction %lu of the log again: %s", kv->k_path,
			       (unsigned long)number, mdb_strerror(rc));
	crash_point("kv-redone");
	kv_archive_add(kv, rec);
	rp->rp_done++;
	return 0;
}

int kv_redo_replay(struct kv *kv, uint64_t after, struct kv_failure *f)
{
	struct replaying rp = {kv, f, 0};
	int rc = kv->k_redo.r_ops->ro_read(kv->k_redo.r_log, after, redo_one, &rp, f->f_text,
					   f->f_size);

	if (rc == 0)
		log_info("kv: %s: the store was not closed cleanly: replayed %lu commits",
			 kv->k_path, (unsigned long)rp.rp_done);
	return rc;
}
