/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_log.c - the redo log, which makes a commit durable.
 *
 * Required: an answered mutation is on the disk, and no reader sees a mutation that is not.
 * Enforced: a batch's write set is one record. One call writes the record through to the log. Only
 * then does LMDB commit the batch, without a sync (MDB_NOSYNC), and only then is the batch
 * answered.
 *
 * Two files, redo.0 and redo.1, take turns. The first block of a file is a header; records follow.
 * A header is a checkpoint: a state N of the data file that a crash cannot harm, so that the
 * records before N are needed no more. Making a checkpoint (kv_checkpoint.c) takes four steps:
 * 1. between two commits: pin N by a read transaction, copy both meta pages, and let the records
 *    go on in the other file, with the next generation;
 * 2. sync the data file;
 * 3. write the header, through, into the file that the records go to since step 1;
 * 4. unpin the state that was pinned before. From here on, the file that records do not go to may
 *    be overwritten.
 * LMDB never writes to a page of a state that a read transaction holds. It uses a page again only
 * if a transaction older than the oldest reader freed it, and only transactions after N free pages
 * of N. So the pages of N stay as they were synced, whatever is written to the file later, and the
 * header has the two meta pages of N.
 *
 * Recovery works on whatever a crash left. It finds the newest whole header, of generation g, and
 * puts its meta pages back, so that the data file is N. It replays the records of generation g in
 * the header's file and then those of g+1 in the other file, one transaction each, in order. Then
 * it makes a checkpoint, as g+2. Until that checkpoint's header is written, nothing that recovery
 * reads is overwritten (the new header replaces the older one), so recovery can be killed and begun
 * again.
 *
 * The log ends at the first record that is not whole: the one that was being written. Transaction
 * numbers have no gaps. Three things are damage: a whole record of the same generation behind that
 * end, a number that does not follow, and a record that knew of a newer header than there is.
 * Recovery refuses damage and does not skip it.
 *
 * A record can be durable although LMDB then could not commit it (no memory, no room), or although
 * the record itself found no room (file systems that copy on write). Such a record is overwritten
 * with zeros, durably, before the batch is answered with the error. Zeros in its first block are
 * enough.
 *
 * Which store a log belongs to: the second half of meta page 0 has the log's id and the generation
 * of the checkpoint under way, synced in step 2. LMDB uses only the first bytes of that page. So a
 * data file that was put back from a copy, and is older than the log's checkpoint, is recognised.
 * Its log is refused when there is something in it.
 *
 * Sizes: files begin at KV_LOG_MIN and double up to KV_LOG_MAX while they fill within
 * KV_LOG_GROW_NS, so they hold a second or two of commits. That much is replayed, and that much of
 * LMDB's freed pages waits before LMDB uses it again. The files are written full of zeros first, so
 * that writing a record allocates nothing and changes no extent. Writes are direct (O_DIRECT) where
 * the file system accepts them. A record that is larger than a file makes the file grow, in line.
 */
#include "kv/kv_log.h"
#include "base/clock.h"
#include "base/crash.h"
#include "base/log.h"
#include "kv/kv_int.h"
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#define KV_LOG_GROW_NS 1000000000ull
#define KV_LOG_DEL     0x80000000u

static const char rec_magic[8] = {'W', 'E', 'F', 'T', 'R', 'E', 'C', 1};
static const char head_magic[8] = {'W', 'E', 'F', 'T', 'L', 'O', 'G', 1};

/* What lies on the disk */

static void head_sum(const struct kv_log_head *h, uint8_t sum[16])
{
	crypto_shorthash_siphashx24(sum, (const uint8_t *)h, offsetof(struct kv_log_head, lh_sum),
				    h->lh_id);
}

void kv_log_head_seal(struct kv_log_head *h)
{
	memcpy(h->lh_magic, head_magic, sizeof(head_magic));
	head_sum(h, h->lh_sum);
}

bool kv_log_head_ok(const struct kv_log_head *h)
{
	uint8_t sum[16];

	head_sum(h, sum);
	return !memcmp(h->lh_magic, head_magic, sizeof(head_magic)) &&
	       !memcmp(h->lh_sum, sum, sizeof(sum)) && le32toh(h->lh_clean) <= 1 &&
	       le32toh(h->lh_psize) >= KV_LOG_BLOCK && le32toh(h->lh_psize) <= 65536;
}

void kv_log_rec_seal(const struct kv_log_want *want, uint64_t base, uint64_t txnid, uint32_t n,
		     void *rec, uint32_t len)
{
	struct kv_log_rec *r = rec;

	memcpy(r->rl_magic, rec_magic, sizeof(rec_magic));
	r->rl_gen = htole64(want->lw_gen);
	r->rl_at = htole64(want->lw_at);
	r->rl_base = htole64(base);
	r->rl_txnid = htole64(txnid);
	r->rl_len = htole32(len);
	r->rl_n = htole32(n);
	memset(r->rl_sum, 0, sizeof(r->rl_sum));
	crypto_shorthash_siphashx24(r->rl_sum, rec, len, want->lw_id);
}

uint32_t kv_log_rec_len(const struct kv_log_want *want, const void *rec, uint64_t room)
{
	struct kv_log_rec r;

	memcpy(&r, rec, sizeof(r));
	if (memcmp(r.rl_magic, rec_magic, sizeof(rec_magic)) || le64toh(r.rl_gen) != want->lw_gen ||
	    le64toh(r.rl_at) != want->lw_at || le32toh(r.rl_len) < sizeof(r) ||
	    le32toh(r.rl_len) > room)
		return 0;
	return le32toh(r.rl_len);
}

bool kv_log_rec_ok(const struct kv_log_want *want, void *rec)
{
	uint8_t was[16], sum[16];
	struct kv_log_rec *r = rec;
	struct kv_write w;
	uint32_t pos = sizeof(*r), n = 0;
	int rc;

	memcpy(was, r->rl_sum, sizeof(was));
	memset(r->rl_sum, 0, sizeof(r->rl_sum));
	crypto_shorthash_siphashx24(sum, rec, le32toh(r->rl_len), want->lw_id);
	memcpy(r->rl_sum, was, sizeof(was));
	if (memcmp(was, sum, sizeof(sum)))
		return false;
	while ((rc = kv_log_rec_next(rec, &pos, &w)) > 0)
		n++;
	return rc == 0 && n == le32toh(r->rl_n);
}

int kv_log_rec_next(const void *rec, uint32_t *pos, struct kv_write *w)
{
	const struct kv_log_rec *r = rec;
	uint32_t len = le32toh(r->rl_len), l[2];
	const char *p = rec;

	if (*pos == len)
		return 0;
	if (len - *pos < sizeof(l))
		return -EIO;
	memcpy(l, p + *pos, sizeof(l));
	l[0] = le32toh(l[0]);
	l[1] = le32toh(l[1]);
	*pos += sizeof(l);
	w->w_del = l[0] & KV_LOG_DEL;
	w->w_key.s_len = l[0] & ~KV_LOG_DEL;
	w->w_val.s_len = l[1];
	if (!w->w_key.s_len || w->w_key.s_len > KV_KEY_MAX || w->w_val.s_len > KV_VALUE_MAX ||
	    w->w_key.s_len + w->w_val.s_len > len - *pos)
		return -EIO;
	w->w_key.s_data = p + *pos;
	w->w_val.s_data = p + *pos + w->w_key.s_len;
	*pos += (uint32_t)(w->w_key.s_len + w->w_val.s_len);
	return 1;
}

/* The batch's record, as it grows */

static int reserve(struct kv_wlog *wl, size_t more)
{
	size_t cap = wl->wl_cap ? wl->wl_cap : 65536;
	char *buf;

	while (cap < wl->wl_len + more)
		cap *= 2;
	if (cap == wl->wl_cap)
		return 0;
	if (cap > 1u << 31)
		return -E2BIG;
	buf = aligned_alloc(KV_LOG_BLOCK, cap);
	if (!buf)
		return -ENOMEM;
	if (wl->wl_buf)
		memcpy(buf, wl->wl_buf, wl->wl_len);
	free(wl->wl_buf);
	wl->wl_buf = buf;
	wl->wl_cap = cap;
	return 0;
}

static void kv_log_append(struct kv_wlog *wl, const void *data, size_t len)
{
	if (len)
		memcpy(wl->wl_buf + wl->wl_len, data, len);
	wl->wl_len += len;
}

int kv_wlog_add(struct kv_wlog *wl, struct kv_slice key, struct kv_slice val, bool del)
{
	uint32_t l[2] = {htole32((uint32_t)key.s_len | (del ? KV_LOG_DEL : 0)),
			 htole32((uint32_t)val.s_len)};
	int rc;

	if (!wl->wl_len)
		wl->wl_len = sizeof(struct kv_log_rec);
	/* Ask for one block more, so that the padding has room. */
	rc = reserve(wl, sizeof(l) + key.s_len + val.s_len + KV_LOG_BLOCK);
	if (rc)
		return rc;
	kv_log_append(wl, l, sizeof(l));
	kv_log_append(wl, key.s_data, key.s_len);
	kv_log_append(wl, val.s_data, val.s_len);
	wl->wl_n++;
	return 0;
}

int kv_wlog_list(struct kv_wlog *wl)
{
	uint32_t pos = sizeof(struct kv_log_rec);

	if (wl->wl_n > wl->wl_room) {
		struct kv_write *v = realloc(wl->wl_v, wl->wl_n * sizeof(*v));

		if (!v)
			return -ENOMEM;
		wl->wl_v = v;
		wl->wl_room = wl->wl_n;
	}
	((struct kv_log_rec *)wl->wl_buf)->rl_len = htole32((uint32_t)wl->wl_len);
	for (size_t i = 0; i < wl->wl_n; i++)
		if (kv_log_rec_next(wl->wl_buf, &pos, &wl->wl_v[i]) != 1)
			return -EIO;
	return 0;
}

/* Frees the memory that an unusually large batch took. */
void kv_wlog_reset(struct kv_wlog *wl)
{
	wl->wl_n = 0;
	wl->wl_len = 0;
	if (wl->wl_cap > 4 * KV_RECORD_FULL) {
		free(wl->wl_buf);
		wl->wl_buf = NULL;
		wl->wl_cap = 0;
	}
}

void kv_wlog_free(struct kv_wlog *wl)
{
	free(wl->wl_buf);
	free(wl->wl_v);
}

/* Writing */

/* The device may demand a larger alignment of direct writes than a block of the log. It then
 * refuses such a write as a whole. */
static void leave_direct(int fd)
{
	static atomic_flag said = ATOMIC_FLAG_INIT;
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || !(flags & O_DIRECT) || fcntl(fd, F_SETFL, flags & ~O_DIRECT) < 0)
		return;
	if (!atomic_flag_test_and_set(&said))
		log_info("kv: the disk accepts no direct writes of %u bytes: writing the log "
			 "through the page cache",
			 KV_LOG_BLOCK);
}

int kv_log_write(int fd, const void *buf, size_t len, uint64_t at, bool through)
{
	bool refused = false;

	for (size_t done = 0; done < len;) {
		struct iovec io = {(char *)buf + done, len - done};
		ssize_t n = pwritev2(fd, &io, 1, (off_t)(at + done), through ? RWF_DSYNC : 0);

		if (n < 0 && errno == EINTR)
			continue;
		/* Try once again in any case: the other thread that writes to this file may have
		 * turned direct writes off meanwhile. */
		if (n < 0 && errno == EINVAL && !refused) {
			refused = true;
			leave_direct(fd);
			continue;
		}
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		done += (size_t)n;
	}
	return 0;
}

/* Allocates blocks for size bytes and writes zeros into them. With -ENOSPC the file is
 * unchanged. */
int kv_log_grow(struct kv_log_file *lf, uint64_t size)
{
	const size_t step = 256 << 10;
	char *zeros;
	int rc = 0;

	if (fallocate(lf->lf_fd, 0, (off_t)lf->lf_size, (off_t)(size - lf->lf_size)) < 0 &&
	    errno != EOPNOTSUPP)
		return -errno;
	zeros = aligned_alloc(KV_LOG_BLOCK, step);
	if (!zeros)
		return -ENOMEM;
	memset(zeros, 0, step);
	for (uint64_t at = lf->lf_size; at < size && !rc; at += step)
		rc = kv_log_write(lf->lf_fd, zeros, size - at < step ? size - at : step, at, false);
	free(zeros);
	if (!rc && fdatasync(lf->lf_fd) < 0)
		rc = -errno;
	if (!rc)
		lf->lf_size = size;
	return rc;
}

/* Doubles the file only if the disk has plenty of room: the store is worth more than a large
 * log. */
void kv_log_double(struct kv_log_file *lf)
{
	uint64_t size = lf->lf_size * 2;
	struct statvfs vfs;

	if (size > KV_LOG_MAX || fstatvfs(lf->lf_fd, &vfs) < 0 ||
	    (uint64_t)vfs.f_bavail * vfs.f_frsize < 64 * size)
		return;
	kv_log_grow(lf, size); /* on an error the file keeps its size */
}

static bool filled_fast(const struct kv_log *lg)
{
	return clock_mono_ns() - lg->lg_first_ns < KV_LOG_GROW_NS;
}

/* Makes room for a record of len bytes at lg_pos. Where there is none, waits for a checkpoint. */
static int make_place(struct kv *kv, uint64_t len)
{
	struct kv_log *lg = &kv->k_log;

	for (;;) {
		struct kv_log_file *lf = &lg->lg_file[lg->lg_cur];
		int rc;

		if (lg->lg_pos + len <= lf->lf_size)
			return 0;
		if (lg->lg_pos == KV_LOG_BLOCK) {
			rc = kv_log_grow(lf, KV_LOG_BLOCK + (len + KV_LOG_MIN - 1) / KV_LOG_MIN *
								    KV_LOG_MIN);
			if (rc)
				return rc;
			continue;
		}
		lg->lg_asked = true;
		pthread_cond_signal(&lg->lg_work);
		atomic_fetch_add_explicit(&kv->k_log_waits, 1, memory_order_relaxed);
		pthread_cond_wait(&lg->lg_done, &lg->lg_lock);
	}
}

/* Wakes the checkpoint thread at the first record, from which its time counts, and when the file is
 * half full. */
void kv_log_wake(struct kv_log *lg)
{
	bool half = lg->lg_pos > lg->lg_file[lg->lg_cur].lf_size / 2 && !lg->lg_asked;

	if (half)
		lg->lg_fast = filled_fast(lg);
	if (lg->lg_first_ns && !half)
		return;
	if (!lg->lg_first_ns)
		lg->lg_first_ns = clock_mono_ns();
	lg->lg_asked |= half;
	pthread_cond_signal(&lg->lg_work);
}

/* Removes the record at at: the last one, or one that was written in part. */
static void take_back(struct kv *kv, uint64_t at)
{
	static const char zeros[KV_LOG_BLOCK] __attribute__((aligned(KV_LOG_BLOCK)));
	struct kv_log *lg = &kv->k_log;
	int rc = kv_log_write(lg->lg_file[lg->lg_cur].lf_fd, zeros, sizeof(zeros), at, true);

	if (rc)
		log_fatal("kv: %s: cannot remove uncommitted data from the log: %s", kv->k_path,
			  strerror(-rc));
	lg->lg_pos = at;
}

/* The log behind the interface of kv_redo.h. What is different from a log elsewhere: the record is
 * sealed here, where it lies in the file, and its memory has room for the rest of its last block.
 */

static uint64_t log_blocks(const struct kv_redo_batch *b)
{
	return ((uint64_t)b->rb_len + KV_LOG_BLOCK - 1) / KV_LOG_BLOCK * KV_LOG_BLOCK;
}

static int log_append(void *log, const struct kv_redo_batch *b)
{
	struct kv *kv = log;
	struct kv_log *lg = &kv->k_log;
	size_t len = log_blocks(b);
	struct kv_log_want want = {.lw_id = lg->lg_id};
	int rc = make_place(kv, len);

	if (rc)
		return rc;
	want.lw_gen = lg->lg_gen;
	want.lw_at = lg->lg_pos;
	memset((char *)b->rb_rec + b->rb_len, 0, len - b->rb_len);
	kv_log_rec_seal(&want, lg->lg_base, b->rb_number, b->rb_n, b->rb_rec, b->rb_len);
	rc = kv_log_write(lg->lg_file[lg->lg_cur].lf_fd, b->rb_rec, len, lg->lg_pos, true);
	if (rc == -ENOSPC || rc == -EDQUOT) {
		take_back(kv, lg->lg_pos);
		return rc;
	}
	if (rc)
		log_fatal("kv: %s: a write to the log failed, what is on the disk is unknown: %s",
			  kv->k_path, strerror(-rc));
	lg->lg_pos += len;
	return KV_REDO_DURABLE;
}

static void log_undo(void *log, const struct kv_redo_batch *b)
{
	struct kv *kv = log;

	take_back(kv, kv->k_log.lg_pos - log_blocks(b));
}

static void log_state(void *log, struct kv_redo_state *out)
{
	*out = (struct kv_redo_state){.rs_up = true, .rs_last = kv_held(log)};
}

const struct kv_redo_ops kv_log_ops = {
	.ro_name = "files",
	.ro_append = log_append,
	.ro_undo = log_undo,
	.ro_read = kv_log_read,
	.ro_state = log_state,
};
