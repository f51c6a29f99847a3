/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_copy.c - a store that is a copy of a log elsewhere (kv_redo.h).
 *
 * Required: the pairs are what batches 1..n of the log make, for the n that the store says it
 * holds, in every snapshot and after any crash. Enforced: n and the sum of batch n's record are in
 * the store's own row, which changes in the transaction of each batch. So a crash, which takes the
 * store back to a checkpoint, takes n back with it. A batch is done only if its number is n + 1 and
 * its record names the sum that the store holds. So no batch is done twice, none is left out, and a
 * batch of another history is refused.
 *
 * A copy that opens reads the log behind n. It becomes the writer when it has taken the log, and
 * after that has read the log to its end: nothing can follow but what it writes itself.
 *
 * A new copy may begin with a state that the log keeps (ro_base) and not with the first batch.
 * While it is filled, its row says so, and a start after a crash fills it from the beginning. A
 * copy that lacks what the log no longer has is filled in the same way (ko_refill). Its row changes
 * in the transaction that empties it, and no checkpoint of before is put back over that: the copy
 * counts as closed by then.
 */
#include "base/crash.h"
#include "base/log.h"
#include "kv/kv_int.h"
#include "kv/kv_log.h"
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KV_FORMAT_COPY	3
#define KV_COPY_FILLING UINT64_MAX
/* Pairs in a transaction while a copy is filled. */
#define KV_FILL_PAIRS 4096u

static const char copy_key[] = {0, 'w', 'e', 'f', 't'};
static const char copy_magic[8] = "WEFT-KV";

/* The value of the store's own row. Little endian. */
struct kv_copy_row {
	char cr_magic[8];
	uint32_t cr_version;
	uint8_t cr_zero[4];
	char cr_log[KV_REDO_NAME];
	uint8_t cr_id[KV_REDO_ID];
	uint64_t cr_batch; /* all ones: it is being filled */
	uint8_t cr_sum[KV_REDO_SUM];
} __attribute__((packed));
_Static_assert(sizeof(struct kv_copy_row) == 72, "format");

/* Opening */

/* Is there a file with checkpoints of the other kind of store? */
static bool other_kind(const char *path, bool copy, const char **name)
{
	char file[4096];

	for (unsigned i = 0; i < 2; i++) {
		*name = kv_head_name(copy, i);
		snprintf(file, sizeof(file), "%s/%s", path, *name);
		if (access(file, F_OK) == 0)
			return true;
	}
	return false;
}

int kv_copy_begin(struct kv *kv, const struct kv_opts *o, struct kv_failure *f)
{
	struct kv_copy *co = &kv->k_copy;
	const char *name;
	int rc;

	kv->k_redo = (struct kv_redo){&kv_log_ops, kv};
	if (o->ko_readonly)
		return 0;
	if (!o->ko_redo)
		return other_kind(kv->k_path, true, &name)
			       ? kv_fail(f, -EPROTO,
					 "%s: the store is a copy of a log elsewhere (it has %s): "
					 "open it with that log",
					 kv->k_path, name)
			       : 0;
	kv->k_redo = *o->ko_redo;
	if (o->ko_nosync)
		return kv_fail(f, -EINVAL, "%s: a copy of a log cannot be opened without syncs",
			       kv->k_path);
	if (other_kind(kv->k_path, false, &name))
		return kv_fail(f, -EPROTO,
			       "%s: the store has its log in files (%s), and is no copy of the log "
			       "in %s",
			       kv->k_path, name, kv->k_redo.r_ops->ro_name);
	if (strlen(kv->k_redo.r_ops->ro_name) >= sizeof(co->co_name))
		return kv_fail(f, -EINVAL, "%s: the log's name is too long", kv->k_path);
	snprintf(co->co_name, sizeof(co->co_name), "%s", kv->k_redo.r_ops->ro_name);
	rc = kv->k_redo.r_ops->ro_id(kv->k_redo.r_log, co->co_id, f->f_text, f->f_size);
	return rc;
}

static int put_row(struct kv *kv, MDB_txn *txn, uint64_t batch, const uint8_t *sum)
{
	struct kv_copy_row row = {.cr_version = htole32(KV_FORMAT_COPY),
				  .cr_batch = htole64(batch)};
	MDB_val key = {sizeof(copy_key), (void *)copy_key}, val = {sizeof(row), &row};

	memcpy(row.cr_magic, copy_magic, sizeof(row.cr_magic));
	memcpy(row.cr_log, kv->k_copy.co_name, sizeof(row.cr_log));
	memcpy(row.cr_id, kv->k_copy.co_id, sizeof(row.cr_id));
	memcpy(row.cr_sum, sum, sizeof(row.cr_sum));
	return kv_errno(mdb_put(txn, kv->k_dbi, &key, &val, 0));
}

int kv_copy_make(struct kv *kv, MDB_txn *txn)
{
	uint64_t batch = kv->k_redo.r_ops->ro_base ? KV_COPY_FILLING : 0;

	/* Its numbers may be those of another log. It goes before the row is there. */
	kv_archive_drop(kv, "the store was made again, as a copy of its log");
	atomic_store(&kv->k_copy.co_batch, batch);
	return put_row(kv, txn, batch, kv->k_copy.co_sum);
}

bool kv_copy_is(MDB_val val)
{
	struct kv_copy_row row;

	if (val.mv_size != sizeof(row))
		return false;
	memcpy(&row, val.mv_data, sizeof(row));
	return !memcmp(row.cr_magic, copy_magic, sizeof(copy_magic)) &&
	       le32toh(row.cr_version) == KV_FORMAT_COPY;
}

int kv_copy_check(struct kv *kv, MDB_val val, struct kv_failure *f)
{
	struct kv_copy *co = &kv->k_copy;
	struct kv_copy_row row;

	memcpy(&row, val.mv_data, sizeof(row));
	row.cr_log[sizeof(row.cr_log) - 1] = 0;
	if (kv->k_readonly && le64toh(row.cr_batch) == KV_COPY_FILLING)
		return kv_fail(f, -EBUSY, "%s: the copy of the log in %s is not filled yet",
			       kv->k_path, row.cr_log);
	if (kv->k_readonly)
		return 0;
	if (kv_redo_local(kv))
		return kv_fail(f, -EPROTO,
			       "%s: the store is a copy of the log in %s: open it with that log",
			       kv->k_path, row.cr_log);
	if (strcmp(row.cr_log, co->co_name))
		return kv_fail(f, -EPROTO, "%s: the store is a copy of the log in %s, not in %s",
			       kv->k_path, row.cr_log, co->co_name);
	if (memcmp(row.cr_id, co->co_id, sizeof(co->co_id)))
		return kv_fail(f, -ESTALE,
			       "%s: the store is a copy of another log in %s: remove the copy, and "
			       "it is made again",
			       kv->k_path, co->co_name);
	atomic_store(&co->co_batch, le64toh(row.cr_batch));
	memcpy(co->co_sum, row.cr_sum, sizeof(co->co_sum));
	return 0;
}

uint64_t kv_copy_number(struct kv *kv, MDB_txn *txn)
{
	MDB_val key = {sizeof(copy_key), (void *)copy_key}, val;
	struct kv_copy_row row;

	if (mdb_get(txn, kv->k_dbi, &key, &val) || !kv_copy_is(val))
		return mdb_txn_id(txn);
	memcpy(&row, val.mv_data, sizeof(row));
	return le64toh(row.cr_batch);
}

/* Filling */

struct filling {
	struct kv *fi_kv;
	MDB_txn *fi_txn;
	unsigned fi_n;
};

static int fill_pair(void *arg, struct kv_slice key, struct kv_slice val)
{
	struct filling *fi = arg;
	MDB_val k = {key.s_len, (void *)key.s_data}, v = {val.s_len, (void *)val.s_data};
	int rc = 0;

	if (key.s_len < 1 || key.s_len > KV_KEY_MAX || val.s_len > KV_VALUE_MAX ||
	    (key.s_len == sizeof(copy_key) && !memcmp(key.s_data, copy_key, sizeof(copy_key))))
		return -EIO;
	if (fi->fi_n == KV_FILL_PAIRS) {
		rc = mdb_txn_commit(fi->fi_txn);
		fi->fi_txn = NULL;
		fi->fi_n = 0;
		if (rc == 0)
			rc = mdb_txn_begin(fi->fi_kv->k_env, NULL, 0, &fi->fi_txn);
	}
	if (rc == 0)
		rc = mdb_put(fi->fi_txn, fi->fi_kv->k_dbi, &k, &v, 0);
	fi->fi_n++;
	return kv_errno(rc);
}

/* Empties the store, except that its row says that it is being filled. */
static int fill_begin(struct filling *fi)
{
	static const uint8_t none[KV_REDO_SUM];
	struct kv *kv = fi->fi_kv;
	int rc = kv_errno(mdb_txn_begin(kv->k_env, NULL, 0, &fi->fi_txn));

	if (rc == 0)
		rc = kv_errno(mdb_drop(fi->fi_txn, kv->k_dbi, 0));
	if (rc == 0)
		rc = put_row(kv, fi->fi_txn, KV_COPY_FILLING, none);
	return rc;
}

static int fill_end(struct filling *fi, const struct kv_redo_base *base)
{
	int rc = base->ba_batch == KV_COPY_FILLING
			 ? -EIO
			 : put_row(fi->fi_kv, fi->fi_txn, base->ba_batch, base->ba_sum);

	if (rc == 0) {
		rc = kv_errno(mdb_txn_commit(fi->fi_txn));
		fi->fi_txn = NULL;
	}
	if (rc == 0) {
		memcpy(fi->fi_kv->k_copy.co_sum, base->ba_sum, KV_REDO_SUM);
		atomic_store(&fi->fi_kv->k_copy.co_batch, base->ba_batch);
	}
	return rc;
}

int kv_copy_fill(struct kv *kv, bool refill, struct kv_failure *f)
{
	const struct kv_redo_ops *ops = kv->k_redo.r_ops;
	struct filling fi = {.fi_kv = kv};
	struct kv_redo_base base = {0};
	int rc;

	refill = refill && !kv_redo_local(kv) && kv_held(kv) != KV_COPY_FILLING;
	if (kv_redo_local(kv) || (!refill && kv_held(kv) != KV_COPY_FILLING))
		return 0;
	if (f->f_size)
		f->f_text[0] = 0;
	if (refill && (rc = kv_log_settle(kv, f)))
		return rc;
	rc = fill_begin(&fi);
	if (rc == 0)
		rc = ops->ro_base ? ops->ro_base(kv->k_redo.r_log, fill_pair, &fi, &base, f->f_text,
						 f->f_size)
				  : -ENOENT;
	/* There is none: a new copy begins before the first batch. */
	if (rc == -ENOENT && fi.fi_n == 0 && !refill)
		rc = 0;
	if (rc == 0)
		rc = fill_end(&fi, &base);
	if (fi.fi_txn)
		mdb_txn_abort(fi.fi_txn);
	if (rc && f->f_size && !f->f_text[0])
		kv_fail(f, rc, "%s: cannot fill the copy: %s", kv->k_path, strerror(-rc));
	return rc;
}

/* A batch that this process makes */

int kv_copy_seal(struct kv *kv, struct kv_redo_batch *b)
{
	struct kv_copy *co = &kv->k_copy;
	const struct kv_redo_rec *r = b->rb_rec;

	kv_redo_rec_seal(co->co_id, co->co_sum, co->co_epoch, b);
	return put_row(kv, kv->k_txn.t_mdb, b->rb_number, r->rr_sum);
}

void kv_copy_done(struct kv *kv, const struct kv_redo_batch *b)
{
	const struct kv_redo_rec *r = b->rb_rec;

	memcpy(kv->k_copy.co_sum, r->rr_sum, KV_REDO_SUM);
	atomic_store(&kv->k_copy.co_batch, b->rb_number);
	kv->k_log.lg_pos += b->rb_len;
}

/* A batch that another process made */

/* They were admitted where they were made: they may use all of the reserve. This may wait for a
 * checkpoint (kv_space.c), so the caller does not hold lg_lock. */
static int copy_charge(struct kv *kv, const void *rec)
{
	uint32_t pos = sizeof(struct kv_redo_rec);
	struct kv_write w;
	int rc = 0;

	while (!rc && kv_redo_rec_next(rec, &pos, &w) > 0)
		rc = kv_space_charge(kv, w.w_val.s_len, w.w_del ? KV_DELETE : KV_UPDATE, false);
	return rc;
}

static int copy_apply(struct kv *kv, const struct kv_redo_batch *b)
{
	const struct kv_redo_rec *r = b->rb_rec;
	int rc = copy_charge(kv, b->rb_rec);

	if (rc == 0)
		rc = kv_errno(kv_redo_do(kv, kv->k_txn.t_mdb, b->rb_rec));
	/* It deletes what is not there. */
	if (rc == -ENOENT)
		rc = -EIO;
	if (rc == 0)
		rc = put_row(kv, kv->k_txn.t_mdb, b->rb_number, r->rr_sum);
	if (rc) {
		kv_txn_abort(kv);
		return rc;
	}
	crash_point("kv-apply");
	pthread_mutex_lock(&kv->k_log.lg_lock);
	rc = kv_txn_commit(kv);
	if (rc == 0) {
		kv_copy_done(kv, b);
		kv_log_wake(&kv->k_log);
	}
	pthread_mutex_unlock(&kv->k_log.lg_lock);
	crash_point("kv-applied");
	return rc;
}

int kv_apply(struct kv *kv, uint64_t number, void *rec, size_t len)
{
	struct kv_copy *co = &kv->k_copy;
	struct kv_redo_batch b = {.rb_number = number, .rb_rec = rec, .rb_len = (uint32_t)len};
	uint64_t held = kv_held(kv);
	int rc;

	if (kv_redo_local(kv) || kv->k_readonly || atomic_load(&kv->k_writes))
		return -EROFS;
	if (number <= held)
		return 0;
	if (number != held + 1)
		return -ERANGE;
	if (!kv_redo_rec_ok(co->co_id, co->co_sum, number, rec, len))
		return -EIO;
	rc = kv_txn_begin(kv);
	return rc ? rc : copy_apply(kv, &b);
}

/*
 * A batch is applied inside ro_read, where the log may hold a lock that ro_trim and the archive's
 * ro_read need. These two come on the checkpoints' thread. So nothing waits for a checkpoint there
 * (co_inside): where the store is low, the reading ends behind each batch, the checkpoint is made,
 * and the log is read again.
 */
#define FOLLOW_AGAIN 1

struct following {
	struct kv *fo_kv;
	struct kv_failure fo_f;
	bool fo_full; /* a batch found no room, and is given again behind a checkpoint */
};

static int follow_one(void *arg, uint64_t number, void *rec, uint32_t len)
{
	struct following *fo = arg;
	struct kv *kv = fo->fo_kv;
	bool was_full = fo->fo_full;
	int rc;

	kv->k_copy.co_inside = true;
	rc = kv_apply(kv, number, rec, len);
	kv->k_copy.co_inside = false;
	fo->fo_full = rc == -ENOSPC;
	if (rc == 0)
		return kv_low(kv) ? FOLLOW_AGAIN : 0;
	if (rc == -ENOSPC && !was_full)
		return FOLLOW_AGAIN;
	return kv_fail(&fo->fo_f, rc,
		       "%s: batch %" PRIu64 " of the log in %s, after batch %" PRIu64 ": %s",
		       kv->k_path, number, kv->k_copy.co_name, kv_held(kv),
		       rc == -ERANGE ? "batches are missing before it"
		       : rc == -EIO  ? "it is damaged, or does not follow from what the copy holds"
				     : strerror(-rc));
}

int kv_follow(struct kv *kv, char *err, size_t errlen)
{
	struct following fo = {.fo_kv = kv, .fo_f = {err, errlen}};
	int rc;

	if (kv_redo_local(kv) || kv->k_readonly || atomic_load(&kv->k_writes))
		return kv_fail(&fo.fo_f, -EROFS, "%s: the store does not follow", kv->k_path);
	do {
		if (kv_low(kv))
			kv_log_checkpoint(kv);
		rc = kv->k_redo.r_ops->ro_read(kv->k_redo.r_log, kv_held(kv), follow_one, &fo, err,
					       errlen);
	} while (rc == FOLLOW_AGAIN);
	if (rc == -ESTALE)
		kv_fail(&fo.fo_f, rc,
			"%s: the copy holds batch %" PRIu64 ", and the log in %s no longer has "
			"what follows: the copy has to be filled again",
			kv->k_path, kv_held(kv), kv->k_copy.co_name);
	return rc;
}

/* Becoming the writer */

struct last_sum {
	uint64_t ls_batch;
	uint8_t ls_sum[KV_REDO_SUM];
	bool ls_seen;
};

static int sum_of(void *arg, uint64_t number, void *rec, uint32_t len)
{
	struct last_sum *ls = arg;
	const struct kv_redo_rec *r = rec;

	if (number != ls->ls_batch || len < sizeof(*r))
		return -EIO;
	memcpy(ls->ls_sum, r->rr_sum, KV_REDO_SUM);
	ls->ls_seen = true;
	return 0;
}

static int say_other_history(struct kv *kv, uint64_t batch, struct kv_failure *f)
{
	return kv_fail(f, -ESTALE,
		       "%s: the copy is of another history: its batch %" PRIu64
		       " is not the one in the log in %s",
		       kv->k_path, batch, kv->k_copy.co_name);
}

/* The copy holds the log's newest batch by its number. Is it the same batch? A log that lost
 * batches, and got others under their numbers, has another. Where the log has trimmed it, the state
 * that new copies begin with has its sum. 0; -ESTALE: it is another; or another error. */
static int same_batch(struct kv *kv, uint64_t last, struct kv_failure *f)
{
	const struct kv_redo_ops *ops = kv->k_redo.r_ops;
	struct last_sum ls = {.ls_batch = last};
	struct kv_redo_base base = {0};
	int rc;

	if (last == 0)
		return 0;
	rc = ops->ro_read(kv->k_redo.r_log, last - 1, sum_of, &ls, f->f_text, f->f_size);
	if (rc == -ESTALE && ops->ro_base) {
		rc = ops->ro_base(kv->k_redo.r_log, NULL, NULL, &base, f->f_text, f->f_size);
		ls.ls_seen = rc == 0 && base.ba_batch == last;
		memcpy(ls.ls_sum, base.ba_sum, KV_REDO_SUM);
	}
	if (rc == 0 && !ls.ls_seen)
		return kv_fail(f, -EAGAIN, "%s: the log in %s does not show its batch %" PRIu64,
			       kv->k_path, kv->k_copy.co_name, last);
	if (rc)
		return rc;
	return memcmp(ls.ls_sum, kv->k_copy.co_sum, KV_REDO_SUM) ? say_other_history(kv, last, f)
								 : 0;
}

static int copy_take(struct kv *kv, struct kv_failure *f)
{
	struct kv_redo_end end;
	int rc = kv->k_redo.r_ops->ro_take(kv->k_redo.r_log, &end, f->f_text, f->f_size);

	if (rc == 0)
		rc = kv_follow(kv, f->f_text, f->f_size);
	if (rc)
		return rc;
	if (kv_held(kv) != end.re_last)
		return kv_fail(f, -ESTALE,
			       "%s: the copy holds batch %" PRIu64 ", and the log in %s ends at "
			       "batch %" PRIu64,
			       kv->k_path, kv_held(kv), kv->k_copy.co_name, end.re_last);
	rc = same_batch(kv, end.re_last, f);
	if (rc == 0)
		kv->k_copy.co_epoch = end.re_epoch;
	return rc;
}

int kv_fits(struct kv *kv, char *err, size_t errlen)
{
	const struct kv_redo_ops *ops = kv->k_redo.r_ops;
	struct kv_failure f = {err, errlen};
	uint64_t held = kv_held(kv);
	int rc = ops->ro_has && held
			 ? ops->ro_has(kv->k_redo.r_log, held, kv->k_copy.co_sum, err, errlen)
			 : 0;

	if (rc == -ENOENT)
		return kv_fail(&f, -ESTALE,
			       "%s: the copy holds batch %" PRIu64
			       ", and the log in %s ends before it",
			       kv->k_path, held, kv->k_copy.co_name);
	return rc == -ESTALE ? say_other_history(kv, held, &f) : rc;
}

int kv_promote(struct kv *kv, char *err, size_t errlen)
{
	struct kv_failure f = {err, errlen};
	/* Most of it before the log is taken. A copy that cannot write must not take it: another
	 * one could. */
	int rc = kv_follow(kv, err, errlen);

	if (rc == 0)
		rc = kv_fits(kv, err, errlen);
	if (rc == 0)
		rc = copy_take(kv, &f);
	if (rc)
		return rc;
	rc = kv_committer_start(kv);
	return rc ? kv_fail(&f, rc, "%s: cannot start the committer: %s", kv->k_path, strerror(-rc))
		  : 0;
}
