/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_log_read.c - reads the records of the log's two files: behind the newest checkpoint, to replay
 * them, and those that a checkpoint makes free, for the archive.
 */
#include "kv/kv_int.h"
#include "kv/kv_log.h"
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int kv_log_damaged(struct kv *kv, unsigned file, uint64_t at, const char *what,
			  struct kv_failure *f)
{
	return kv_fail(f, -EIO, "%s: the log is damaged: %s at byte %lu: %s", kv->k_path,
		       kv_head_name(false, file), (unsigned long)at, what);
}

struct log_in {
	kv_redo_batch_fn li_fn; /* NULL: only check */
	void *li_arg;
	int li_fd;
	unsigned li_file;
	uint64_t li_size, li_next; /* size of the file; next transaction */
	struct kv_log_want li_want;
	char *li_buf;
	size_t li_cap;
};

/* Reads the whole record at li_want.lw_at into li_buf. Returns its length, 0 if there is no whole
 * record, or the disk's error. */
static int read_record(struct log_in *in)
{
	struct kv_log_rec r;
	uint32_t len;
	ssize_t n = pread(in->li_fd, &r, sizeof(r), (off_t)in->li_want.lw_at);

	if (n != sizeof(r))
		return n < 0 ? -errno : 0;
	len = kv_log_rec_len(&in->li_want, &r, in->li_size - in->li_want.lw_at);
	if (!len)
		return 0;
	if (len > in->li_cap) {
		free(in->li_buf);
		in->li_cap = len;
		in->li_buf = malloc(len);
		if (!in->li_buf) {
			in->li_cap = 0;
			return -ENOMEM;
		}
	}
	n = pread(in->li_fd, in->li_buf, len, (off_t)in->li_want.lw_at);
	if (n < 0)
		return -errno;
	return n == (ssize_t)len && kv_log_rec_ok(&in->li_want, in->li_buf) ? (int)len : 0;
}

static uint64_t blocks(int len)
{
	return ((uint64_t)len + KV_LOG_BLOCK - 1) / KV_LOG_BLOCK * KV_LOG_BLOCK;
}

static int log_read_give(struct log_in *in, int len)
{
	const struct kv_log_rec *r = (const struct kv_log_rec *)in->li_buf;

	return in->li_fn ? in->li_fn(in->li_arg, le64toh(r->rl_txnid), in->li_buf, (uint32_t)len)
			 : 0;
}

/* Checks that no record follows the end of the records. */
static int check_tail(struct kv *kv, struct log_in *in, struct kv_failure *f)
{
	uint64_t end = in->li_want.lw_at;

	while ((in->li_want.lw_at += KV_LOG_BLOCK) < in->li_size) {
		int len = read_record(in);

		if (len < 0)
			return kv_fail(f, len, "%s/%s: %s", kv->k_path,
				       kv_head_name(false, in->li_file), strerror(-len));
		if (len)
			return kv_log_damaged(kv, in->li_file, end,
					      "no whole record, and others follow it", f);
	}
	return 0;
}

static int walk_records(struct kv *kv, struct log_in *in, struct kv_failure *f)
{
	for (;;) {
		const struct kv_log_rec *r;
		int len = read_record(in), rc;

		if (len < 0)
			return kv_fail(f, len, "%s/%s: %s", kv->k_path,
				       kv_head_name(false, in->li_file), strerror(-len));
		if (!len)
			return check_tail(kv, in, f);
		r = (const struct kv_log_rec *)in->li_buf;
		if (le64toh(r->rl_txnid) != in->li_next || le64toh(r->rl_base) > kv->k_log.lg_base)
			return kv_log_damaged(kv, in->li_file, in->li_want.lw_at,
					      "a transaction is missing before this one", f);
		rc = log_read_give(in, len);
		if (rc)
			return rc;
		in->li_next++;
		in->li_want.lw_at += blocks(len);
	}
}

static int walk_file(struct kv *kv, struct log_in *in, unsigned file, uint64_t gen,
		     struct kv_failure *f)
{
	struct stat st;
	int rc;

	in->li_file = file;
	in->li_fd = kv_open_in(kv->k_path, kv_head_name(false, file), O_RDONLY);
	in->li_want = (struct kv_log_want){kv->k_log.lg_id, gen, KV_LOG_BLOCK};
	if (in->li_fd < 0)
		return kv_fail(f, in->li_fd, "%s/%s: %s", kv->k_path, kv_head_name(false, file),
			       strerror(-in->li_fd));
	rc = fstat(in->li_fd, &st) < 0
		     ? kv_fail(f, -errno, "%s/%s: %m", kv->k_path, kv_head_name(false, file))
		     : 0;
	in->li_size = rc ? 0 : (uint64_t)st.st_size;
	if (rc == 0)
		rc = walk_records(kv, in, f);
	close(in->li_fd);
	return rc;
}

/* The records of both files, from the newest header on. */
static int walk_both(struct kv *kv, struct log_in *in, struct kv_failure *f)
{
	struct kv_log *lg = &kv->k_log;
	int rc;

	in->li_next = lg->lg_txnid + 1;
	rc = walk_file(kv, in, lg->lg_cur, lg->lg_base, f);
	if (rc == 0)
		rc = walk_file(kv, in, lg->lg_cur ^ 1, lg->lg_base + 1, f);
	free(in->li_buf);
	return rc;
}

int kv_log_check(struct kv *kv, struct kv_failure *f)
{
	struct log_in in = {.li_fn = NULL};

	return walk_both(kv, &in, f);
}

/* The records of the file that the checkpoint under way makes free. No commit writes to that file
 * before the checkpoint is complete. */
static int walk_freed(struct kv *kv, struct log_in *in, struct kv_failure *f)
{
	struct kv_log *lg = &kv->k_log;
	const char *name = kv_head_name(false, lg->lg_was_file);
	int len = 1, rc = 0;

	if (lg->lg_was_end <= KV_LOG_BLOCK)
		return 0;
	in->li_size = lg->lg_was_end;
	in->li_want = (struct kv_log_want){lg->lg_id, lg->lg_was_gen, KV_LOG_BLOCK};
	in->li_fd = kv_open_in(kv->k_path, name, O_RDONLY);
	while (rc == 0 && in->li_fd >= 0 && in->li_want.lw_at < in->li_size &&
	       (len = read_record(in)) > 0) {
		rc = log_read_give(in, len);
		in->li_want.lw_at += blocks(len);
	}
	if (in->li_fd < 0)
		len = in->li_fd;
	if (len <= 0)
		rc = kv_fail(f, len ? len : -EIO, "%s: %s", name, strerror(len ? -len : EIO));
	if (in->li_fd >= 0)
		close(in->li_fd);
	free(in->li_buf);
	return rc;
}

struct behind {
	uint64_t be_after;
	kv_redo_batch_fn be_fn;
	void *be_arg;
};

static int skip_before(void *arg, uint64_t number, void *rec, uint32_t len)
{
	const struct behind *be = arg;

	return number > be->be_after ? be->be_fn(be->be_arg, number, rec, len) : 0;
}

int kv_log_read(void *log, uint64_t after, kv_redo_batch_fn fn, void *arg, char *err, size_t errlen)
{
	struct kv *kv = log;
	struct kv_failure f = {err, errlen};
	struct behind be = {after, fn, arg};
	struct log_in in = {.li_fn = skip_before, .li_arg = &be};

	return kv->k_log.lg_was_gen ? walk_freed(kv, &in, &f) : walk_both(kv, &in, &f);
}
