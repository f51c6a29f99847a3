/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_checkpoint.c - makes checkpoints of the store, puts the newest one back after a crash, and
 * opens and closes the files that have them. kv_log.c says what must hold, and why it does.
 *
 * Where the log is elsewhere, the same headers are in copy.0 and copy.1, without records.
 *
 * A checkpoint is due when the log's file is half full, when KV_CHECKPOINT_NS have passed since the
 * first record after the last checkpoint, and when the committer asks for one. A thread makes
 * checkpoints. The committer waits for it only when the log's file or the disk (kv_space.c) is
 * full.
 */
#include "base/clock.h"
#include "base/crash.h"
#include "base/log.h"
#include "kv/kv_int.h"
#include "kv/kv_log.h"
#include "kv/kv_meta.h"
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KV_CHECKPOINT_NS 2000000000ull
#define KV_AGAIN_NS	 100000000ull
/* How long a reader from before the crash may take to end. */
#define KV_READER_WAIT_MS 5000

/* Where it lies: kv_meta.h. */
struct stamp {
	char sp_magic[8];
	uint8_t sp_id[KV_LOG_ID];
	uint64_t sp_gen;
};
_Static_assert(sizeof(struct stamp) == KV_STAMP_LEN, "format");
static const char stamp_magic[8] = {'W', 'E', 'F', 'T', 'D', 'A', 'T', 1};

int kv_open_in(const char *folder, const char *name, int flags)
{
	char file[4096];
	int fd;

	if (snprintf(file, sizeof(file), "%s/%s", folder, name) >= (int)sizeof(file))
		return -ENAMETOOLONG;
	fd = open(file, flags | O_CLOEXEC, 0600);
	return fd < 0 ? -errno : fd;
}

const char *kv_head_name(bool copy, unsigned i)
{
	static const char *const names[2][2] = {{"redo.0", "redo.1"}, {"copy.0", "copy.1"}};

	return names[copy][i];
}

static const char *file_name(const struct kv *kv, unsigned i)
{
	return kv_head_name(!kv_redo_local(kv), i);
}

/* A checkpoint */

static void put_stamp(struct kv *kv, uint64_t gen)
{
	struct stamp st = {.sp_gen = htole64(gen)};

	memcpy(st.sp_magic, stamp_magic, sizeof(stamp_magic));
	memcpy(st.sp_id, kv->k_log.lg_id, sizeof(st.sp_id));
	if (pwrite(kv->k_space.sp_fd, &st, sizeof(st), KV_STAMP_AT) != sizeof(st))
		log_fatal("kv: %s: cannot mark data.mdb: %m", kv->k_path);
}

static int pin(struct kv *kv, MDB_txn **out)
{
	int dead, rc = mdb_txn_begin(kv->k_env, NULL, MDB_RDONLY, out);

	if (rc == MDB_READERS_FULL) {
		mdb_reader_check(kv->k_env, &dead);
		rc = mdb_txn_begin(kv->k_env, NULL, MDB_RDONLY, out);
	}
	return kv_errno(rc);
}

struct checkpoint {
	uint64_t ck_number; /* newest batch in it */
	uint8_t ck_sum[KV_REDO_SUM];
	MDB_txn *ck_pin;
	struct kv_log_head ck_head;
};

/* Step 1 of kv_log.c. The caller holds lg_lock, so no commit is under way. */
static int kv_checkpoint_begin(struct kv *kv, struct checkpoint *ck)
{
	struct kv_log *lg = &kv->k_log;
	int rc;

	memset(ck, 0, sizeof(*ck));
	for (unsigned i = 0; i < 2; i++) {
		ssize_t n = pread(kv->k_space.sp_fd, ck->ck_head.lh_meta[i], KV_LOG_META,
				  (off_t)i * kv->k_psize);

		if (n != KV_LOG_META)
			return n < 0 ? -errno : -EIO;
	}
	rc = pin(kv, &ck->ck_pin);
	if (rc)
		return rc;
	lg->lg_was_file = lg->lg_cur;
	lg->lg_was_gen = lg->lg_gen;
	lg->lg_was_end = lg->lg_pos;
	lg->lg_cur ^= 1;
	lg->lg_gen++;
	lg->lg_pos = KV_LOG_BLOCK;
	lg->lg_first_ns = 0;
	lg->lg_asked = false;
	memcpy(ck->ck_head.lh_id, lg->lg_id, sizeof(lg->lg_id));
	ck->ck_head.lh_gen = htole64(lg->lg_gen);
	ck->ck_head.lh_txnid = htole64(mdb_txn_id(ck->ck_pin));
	ck->ck_head.lh_psize = htole32(kv->k_psize);
	ck->ck_number = kv_held(kv);
	memcpy(ck->ck_sum, kv->k_copy.co_sum, sizeof(ck->ck_sum));
	pthread_cond_broadcast(&lg->lg_done);
	return 0;
}

/* A copy has its header twice. No record of it tells a header that was torn by a crash from one
 * that was whole and got damaged. So one of the two is whole at any time. */
static int write_head(const struct kv *kv, struct kv_log_file *lf, struct kv_log_head *h)
{
	char *block = aligned_alloc(KV_LOG_BLOCK, KV_LOG_BLOCK);
	int rc;

	if (!block)
		return -ENOMEM;
	kv_log_head_seal(h);
	memset(block, 0, KV_LOG_BLOCK);
	memcpy(block, h, sizeof(*h));
	rc = kv_log_write(lf->lf_fd, block, KV_LOG_BLOCK, 0, true);
	if (!rc && !kv_redo_local(kv))
		rc = kv_log_write(lf->lf_fd, block, KV_LOG_BLOCK, KV_LOG_BLOCK, true);
	free(block);
	return rc;
}

/* Steps 2 to 4. Only one checkpoint is made at a time, so lg_cur and lg_gen do not change
 * meanwhile. */
static void kv_checkpoint_finish(struct kv *kv, struct checkpoint *ck, bool clean)
{
	struct kv_log *lg = &kv->k_log;
	uint64_t gen = le64toh(ck->ck_head.lh_gen);
	MDB_txn *old = lg->lg_pin;
	int rc;

	crash_point("kv-pinned");
	put_stamp(kv, gen);
	rc = kv_errno(mdb_env_sync(kv->k_env, 1));
	if (rc)
		log_fatal("kv: %s: a sync failed, what is on the disk is unknown: %s", kv->k_path,
			  strerror(-rc));
	crash_point("kv-synced");
	kv_archive_take(kv, ck->ck_number, ck->ck_sum);
	kv_archive_sync(kv);
	kv_archive_again(kv, ck->ck_number);
	crash_point("kv-archived");
	ck->ck_head.lh_clean = htole32(clean);
	rc = write_head(kv, &lg->lg_file[lg->lg_cur], &ck->ck_head);
	if (rc)
		log_fatal("kv: %s: cannot write a checkpoint: %s", kv->k_path, strerror(-rc));
	crash_point("kv-checkpoint");
	if (kv->k_redo.r_ops->ro_trim)
		kv->k_redo.r_ops->ro_trim(kv->k_redo.r_log, kv_archive_spares(kv, ck->ck_number));
	if (old)
		mdb_txn_abort(old);
	pthread_mutex_lock(&lg->lg_lock);
	lg->lg_pin = ck->ck_pin;
	lg->lg_base = gen;
	pthread_cond_broadcast(&lg->lg_done);
	pthread_mutex_unlock(&lg->lg_lock);
	atomic_fetch_add_explicit(&kv->k_checkpoints, 1, memory_order_relaxed);
}

static bool due(const struct kv_log *lg)
{
	return lg->lg_asked ||
	       (lg->lg_first_ns && clock_mono_ns() - lg->lg_first_ns >= KV_CHECKPOINT_NS);
}

/* Returns false when the thread has to stop. */
static bool wait_due(struct kv_log *lg)
{
	while (!lg->lg_stop && !due(lg)) {
		if (lg->lg_first_ns)
			clock_cond_wait(&lg->lg_work, &lg->lg_lock,
					lg->lg_first_ns + KV_CHECKPOINT_NS);
		else
			pthread_cond_wait(&lg->lg_work, &lg->lg_lock);
	}
	return !lg->lg_stop;
}

static void *checkpoints(void *arg)
{
	static _Atomic uint64_t said;
	struct kv *kv = arg;
	struct kv_log *lg = &kv->k_log;
	struct checkpoint ck;

	pthread_mutex_lock(&lg->lg_lock);
	while (wait_due(lg)) {
		bool grow = lg->lg_fast;
		int rc = kv_checkpoint_begin(kv, &ck);

		if (rc) {
			if (log_due(&said))
				log_error("kv: %s: cannot begin a checkpoint: %s", kv->k_path,
					  strerror(-rc));
			clock_cond_wait(&lg->lg_work, &lg->lg_lock, clock_mono_ns() + KV_AGAIN_NS);
			continue;
		}
		lg->lg_fast = false;
		pthread_mutex_unlock(&lg->lg_lock);
		kv_checkpoint_finish(kv, &ck, false);
		if (grow)
			kv_log_double(&lg->lg_file[lg->lg_cur ^ 1]);
		pthread_mutex_lock(&lg->lg_lock);
	}
	pthread_mutex_unlock(&lg->lg_lock);
	return NULL;
}

void kv_log_checkpoint(struct kv *kv)
{
	struct kv_log *lg = &kv->k_log;

	if (!lg->lg_on)
		return;
	pthread_mutex_lock(&lg->lg_lock);
	while (lg->lg_first_ns || lg->lg_base != lg->lg_gen) {
		lg->lg_asked |= lg->lg_first_ns != 0;
		pthread_cond_signal(&lg->lg_work);
		if (kv->k_copy.co_inside)
			break;
		pthread_cond_wait(&lg->lg_done, &lg->lg_lock);
	}
	pthread_mutex_unlock(&lg->lg_lock);
}

/* The newest header */

struct heads {
	bool hd_copy;
	struct kv_log_head hd_head[2];
	bool hd_there[2], hd_ok[2];
};

/* True if a header newer than gen existed when the first record of this file was written. */
static bool knows_newer(int fd, const uint8_t *id, uint64_t gen, off_t size)
{
	struct kv_log_want want = {.lw_id = id, .lw_at = KV_LOG_BLOCK};
	struct kv_log_rec r;
	bool newer = false;
	uint32_t len;
	char *buf;

	if (pread(fd, &r, sizeof(r), KV_LOG_BLOCK) != sizeof(r) || le64toh(r.rl_base) <= gen)
		return false;
	want.lw_gen = le64toh(r.rl_gen);
	len = kv_log_rec_len(&want, &r, (uint64_t)size - KV_LOG_BLOCK);
	buf = len ? malloc(len) : NULL;
	if (buf)
		newer = pread(fd, buf, len, KV_LOG_BLOCK) == (ssize_t)len &&
			kv_log_rec_ok(&want, buf);
	free(buf);
	return newer;
}

static ssize_t read_head(int fd, struct kv_log_head *h, off_t at, bool *ok)
{
	ssize_t n = pread(fd, h, sizeof(*h), at);

	*ok = n == sizeof(*h) && kv_log_head_ok(h);
	return n < 0 ? -errno : n;
}

static int read_heads(const char *path, struct heads *hd, struct kv_failure *f)
{
	for (unsigned i = 0; i < 2; i++) {
		const char *name = kv_head_name(hd->hd_copy, i);
		int fd = kv_open_in(path, name, O_RDONLY);
		ssize_t n;

		if (fd < 0 && fd != -ENOENT)
			return kv_fail(f, fd, "%s/%s: %s", path, name, strerror(-fd));
		if (fd < 0)
			continue;
		n = read_head(fd, &hd->hd_head[i], 0, &hd->hd_ok[i]);
		if (n >= 0 && hd->hd_copy && !hd->hd_ok[i])
			n = read_head(fd, &hd->hd_head[i], KV_LOG_BLOCK, &hd->hd_ok[i]);
		close(fd);
		if (n < 0)
			return kv_fail(f, (int)n, "%s/%s: %s", path, name, strerror((int)-n));
		hd->hd_there[i] = true;
	}
	return 0;
}

/* Returns the generation of the newest checkpoint of this log that was begun, as data.mdb records
 * it, or 0. */
static uint64_t stamp_of(const char *path, const uint8_t *id)
{
	int fd = kv_open_in(path, "data.mdb", O_RDONLY);
	struct stamp st;
	bool mine;

	if (fd < 0)
		return 0;
	mine = pread(fd, &st, sizeof(st), KV_STAMP_AT) == sizeof(st) &&
	       !memcmp(st.sp_magic, stamp_magic, sizeof(stamp_magic)) &&
	       !memcmp(st.sp_id, id, sizeof(st.sp_id));
	close(fd);
	return mine ? le64toh(st.sp_gen) : 0;
}

/* Makes every check for damage that is possible before the records are read. */
static int check_newest(const char *path, const struct heads *hd, unsigned at, struct kv_failure *f)
{
	const struct kv_log_head *h = &hd->hd_head[at];

	if (hd->hd_ok[at ^ 1] && memcmp(h->lh_id, hd->hd_head[at ^ 1].lh_id, KV_LOG_ID) != 0)
		return kv_fail(f, -EIO, "%s: %s and %s are not of one store", path,
			       kv_head_name(hd->hd_copy, 0), kv_head_name(hd->hd_copy, 1));
	if (!hd->hd_there[at ^ 1] &&
	    (!h->lh_clean || stamp_of(path, h->lh_id) > le64toh(h->lh_gen)))
		return kv_fail(f, -EIO, "%s: the store was not closed, and %s is not there", path,
			       kv_head_name(hd->hd_copy, at ^ 1));
	for (unsigned i = 0; i < 2; i++) {
		int fd = hd->hd_there[i] ? kv_open_in(path, kv_head_name(hd->hd_copy, i), O_RDONLY)
					 : -1;
		struct stat st;
		bool newer;

		if (fd < 0)
			continue;
		newer = fstat(fd, &st) == 0 &&
			knows_newer(fd, h->lh_id, le64toh(h->lh_gen), st.st_size);
		close(fd);
		if (newer)
			return kv_fail(
				f, -EIO,
				"%s: the log is damaged: its newest checkpoint cannot be read",
				path);
	}
	return 0;
}

/* Returns the number of the file with the newest header, or -ENOENT if there is no log. copy: of a
 * copy of a log elsewhere. */
static int newest(const char *path, bool copy, struct heads *hd, struct kv_failure *f)
{
	unsigned at;
	int rc;

	memset(hd, 0, sizeof(*hd));
	hd->hd_copy = copy;
	rc = read_heads(path, hd, f);
	if (rc)
		return rc;
	if (!hd->hd_there[0] && !hd->hd_there[1])
		return -ENOENT;
	if (!hd->hd_ok[0] && !hd->hd_ok[1])
		return kv_fail(f, -EIO,
			       "%s: the log is damaged: %s and %s have no checkpoint that can be "
			       "read",
			       path, kv_head_name(copy, 0), kv_head_name(copy, 1));
	at = !hd->hd_ok[0] ||
	     (hd->hd_ok[1] && le64toh(hd->hd_head[1].lh_gen) > le64toh(hd->hd_head[0].lh_gen));
	rc = check_newest(path, hd, at, f);
	return rc ? rc : (int)at;
}

int kv_log_look(const char *path, struct kv_failure *f)
{
	for (int copy = 0; copy < 2; copy++) {
		struct heads hd;
		int at = newest(path, copy, &hd, f);

		if (at >= 0)
			return !hd.hd_head[at].lh_clean;
		if (at != -ENOENT)
			return at;
	}
	return 0;
}

/* Recovery */

/* Makes sure that no other process has the store open or can open it. A reader from before the
 * crash, or one that opened the store since, would see pages change under it. */
static int keep_readers_out(struct kv *kv, struct kv_failure *f)
{
	struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1}, who;
	int fd = kv_open_in(kv->k_path, "lock.mdb", O_RDWR | O_CREAT);

	if (fd < 0)
		return kv_fail(f, fd, "%s/lock.mdb: %s", kv->k_path, strerror(-fd));
	kv->k_mdb_lock_fd = fd;
	for (int ms = 0; fcntl(fd, F_SETLK, &all) < 0; ms += 50) {
		if (ms < KV_READER_WAIT_MS) {
			usleep(50000);
			continue;
		}
		who = all;
		fcntl(fd, F_GETLK, &who);
		return kv_fail(f, -ETXTBSY,
			       "%s: the store was not closed, and process %d still reads what it "
			       "was before: end that first",
			       kv->k_path, (int)who.l_pid);
	}
	return 0;
}

static int check_stamp(struct kv *kv, uint64_t gen, struct kv_failure *f)
{
	uint64_t got = stamp_of(kv->k_path, kv->k_log.lg_id);

	if (got >= gen && got <= gen + 2)
		return 0;
	return kv_fail(f, -ESTALE,
		       "%s: the log (%s, %s) has changes to another data.mdb than this "
		       "one; if this one was put back from a copy, remove the log first",
		       kv->k_path, file_name(kv, 0), file_name(kv, 1));
}

static int checkpoint_put_back(int fd, const struct kv_log_head *h)
{
	for (unsigned i = 0; i < 2; i++) {
		ssize_t n = pwrite(fd, h->lh_meta[i], KV_LOG_META,
				   (off_t)i * (off_t)le32toh(h->lh_psize));

		if (n != KV_LOG_META)
			return n < 0 ? -errno : -EIO;
		crash_point("kv-restore");
	}
	return fdatasync(fd) < 0 ? -errno : 0;
}

/* Changes nothing until the whole log has been checked. */
static int restore(struct kv *kv, const struct kv_log_head *h, struct kv_failure *f)
{
	int rc = check_stamp(kv, le64toh(h->lh_gen), f), fd;

	if (rc == 0)
		rc = kv_layout_head(kv->k_path, h, f);
	if (rc == 0 && kv_redo_local(kv))
		rc = kv_log_check(kv, f);
	if (rc == 0)
		rc = keep_readers_out(kv, f);
	if (rc)
		return rc;
	fd = kv_open_in(kv->k_path, "data.mdb", O_RDWR);
	rc = fd < 0 ? fd : checkpoint_put_back(fd, h);
	if (fd >= 0)
		close(fd);
	return rc ? kv_fail(f, rc, "%s: cannot put the checkpoint back: %s", kv->k_path,
			    strerror(-rc))
		  : 0;
}

int kv_log_restore(struct kv *kv, struct kv_failure *f)
{
	struct kv_log *lg = &kv->k_log;
	const struct kv_log_head *h;
	struct heads hd;
	int at = newest(kv->k_path, !kv_redo_local(kv), &hd, f);

	if (at < 0)
		return at == -ENOENT ? 0 : at;
	h = &hd.hd_head[at];
	lg->lg_found = true;
	lg->lg_clean = h->lh_clean;
	memcpy(lg->lg_id, h->lh_id, sizeof(lg->lg_id));
	lg->lg_cur = (unsigned)at;
	lg->lg_gen = lg->lg_base = le64toh(h->lh_gen);
	lg->lg_txnid = le64toh(h->lh_txnid);
	return lg->lg_clean ? 0 : restore(kv, h, f);
}

/* The header of the checkpoint that was put back gets the mark of a store that was closed. A crash
 * in the middle leaves the second one, which puts the same state back. */
int kv_log_settle(struct kv *kv, struct kv_failure *f)
{
	struct kv_log *lg = &kv->k_log;
	struct kv_log_file lf = {.lf_size = 0};
	struct heads hd;
	int at, rc;

	if (!lg->lg_found || lg->lg_clean)
		return 0;
	at = newest(kv->k_path, true, &hd, f);
	if (at < 0)
		return at;
	hd.hd_head[at].lh_clean = htole32(1);
	lf.lf_fd = kv_open_in(kv->k_path, file_name(kv, (unsigned)at), O_RDWR);
	rc = lf.lf_fd < 0 ? lf.lf_fd : write_head(kv, &lf, &hd.hd_head[at]);
	if (lf.lf_fd >= 0)
		close(lf.lf_fd);
	lg->lg_clean = rc == 0;
	return rc ? kv_fail(f, rc, "%s/%s: %s", kv->k_path, file_name(kv, (unsigned)at),
			    strerror(-rc))
		  : 0;
}

/* Checks that the restored state is the one that the header names, and that all of its pages are
 * there. */
static int check_restored(struct kv *kv, struct kv_failure *f)
{
	MDB_envinfo info;
	struct stat st;
	int fd;

	mdb_env_info(kv->k_env, &info);
	mdb_env_get_fd(kv->k_env, &fd);
	if (info.me_last_txnid == kv->k_log.lg_txnid && fstat(fd, &st) == 0 &&
	    (uint64_t)st.st_size >= (info.me_last_pgno + 1) * kv->k_psize)
		return 0;
	return kv_fail(f, -EIO, "%s: data.mdb is not what its checkpoint says", kv->k_path);
}

int kv_log_replay(struct kv *kv, struct kv_failure *f)
{
	struct kv_log *lg = &kv->k_log;
	int rc;

	if (!lg->lg_found || lg->lg_clean)
		return 0;
	rc = check_restored(kv, f);
	if (rc || !kv_redo_local(kv))
		return rc;
	rc = pin(kv, &lg->lg_pin);
	if (rc)
		return kv_fail(f, rc, "%s: cannot begin to read: %s", kv->k_path, strerror(-rc));
	mdb_env_set_flags(kv->k_env, MDB_NOSYNC, 1);
	rc = kv_redo_replay(kv, lg->lg_txnid, f);
	lg->lg_gen = lg->lg_base + 1; /* the log may hold records of it */
	return rc;
}

/* Opening and closing */

static int kv_checkpoint_make_file(struct kv *kv, unsigned i)
{
	char tmp[16], from[4096], to[4096];
	struct kv_log_file lf = {.lf_size = 0};
	struct kv_log_head h = {
		.lh_gen = htole64(1), .lh_clean = htole32(1), .lh_psize = htole32(kv->k_psize)};
	int rc;

	snprintf(tmp, sizeof(tmp), "%s.new", file_name(kv, i));
	snprintf(from, sizeof(from), "%s/%s", kv->k_path, tmp);
	snprintf(to, sizeof(to), "%s/%s", kv->k_path, file_name(kv, i));
	lf.lf_fd = kv_open_in(kv->k_path, tmp, O_RDWR | O_CREAT | O_TRUNC);
	if (lf.lf_fd < 0)
		return lf.lf_fd;
	memcpy(h.lh_id, kv->k_log.lg_id, sizeof(h.lh_id));
	rc = kv_log_grow(&lf, kv_redo_local(kv) ? KV_LOG_MIN : 2 * KV_LOG_BLOCK);
	if (rc == 0 && i == 0)
		rc = write_head(kv, &lf, &h);
	if (rc == 0 && fsync(lf.lf_fd) < 0)
		rc = -errno;
	close(lf.lf_fd);
	if (rc == 0 && rename(from, to) < 0)
		rc = -errno;
	if (rc)
		unlink(from);
	return rc;
}

static int kv_checkpoint_open_file(struct kv *kv, unsigned i)
{
	struct kv_log_file *lf = &kv->k_log.lg_file[i];
	struct stat st;

	lf->lf_fd = kv_open_in(kv->k_path, file_name(kv, i), O_RDWR | O_DIRECT);
	if (lf->lf_fd == -EINVAL)
		lf->lf_fd = kv_open_in(kv->k_path, file_name(kv, i), O_RDWR);
	if (lf->lf_fd < 0)
		return lf->lf_fd;
	if (fstat(lf->lf_fd, &st) < 0)
		return -errno;
	/* A copy's file has no records. A checkpoint is due when half of this has gone to the
	 * log. */
	if (!kv_redo_local(kv)) {
		lf->lf_size = KV_LOG_MAX;
		return 0;
	}
	lf->lf_size = (uint64_t)st.st_size / KV_LOG_BLOCK * KV_LOG_BLOCK;
	return lf->lf_size < KV_LOG_MIN ? kv_log_grow(lf, KV_LOG_MIN) : 0;
}

/* A missing log file is made only for a store that was closed: see check_newest(). So the first
 * file's name is on the disk before the second file is made. */
static int open_files(struct kv *kv)
{
	struct kv_log *lg = &kv->k_log;
	int rc = 0;

	if (!lg->lg_found) {
		randombytes_buf(lg->lg_id, sizeof(lg->lg_id));
		lg->lg_gen = 1;
		lg->lg_cur = 0;
	}
	for (unsigned i = 0; i < 2 && rc == 0; i++) {
		rc = lg->lg_found ? kv_checkpoint_open_file(kv, i) : -ENOENT;
		if (rc != -ENOENT)
			continue;
		rc = kv_checkpoint_make_file(kv, i);
		if (rc == 0)
			rc = kv_fsync_folder(kv->k_path);
		if (rc == 0)
			rc = kv_checkpoint_open_file(kv, i);
	}
	return rc;
}

static int start_thread(struct kv *kv)
{
	sigset_t all, old;
	int rc;

	/* The main thread handles all signals. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&kv->k_log.lg_thread, NULL, checkpoints, kv);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc == 0)
		pthread_setname_np(kv->k_log.lg_thread, "kv-checkpoint");
	return -rc;
}

int kv_log_files(struct kv *kv, struct kv_failure *f)
{
	int rc = open_files(kv);

	if (rc && !kv_redo_local(kv))
		return kv_fail(f, rc, "%s: cannot make %s and %s: %s", kv->k_path, file_name(kv, 0),
			       file_name(kv, 1), strerror(-rc));
	return rc ? kv_fail(f, rc, "%s: cannot make the log, which takes %u MiB: %s", kv->k_path,
			    2 * KV_LOG_MIN >> 20, strerror(-rc))
		  : 0;
}

int kv_log_start(struct kv *kv, struct kv_failure *f)
{
	struct kv_log *lg = &kv->k_log;
	struct checkpoint ck;
	int rc;

	rc = kv_checkpoint_begin(kv, &ck);
	if (rc)
		return kv_fail(f, rc, "%s: cannot begin a checkpoint: %s", kv->k_path,
			       strerror(-rc));
	kv_checkpoint_finish(kv, &ck, false);
	mdb_env_set_flags(kv->k_env, MDB_NOSYNC, 1);
	rc = start_thread(kv);
	if (rc)
		return kv_fail(f, rc, "%s: cannot start checkpoints: %s", kv->k_path,
			       strerror(-rc));
	lg->lg_on = true;
	return 0;
}

static void kv_checkpoint_unpin(struct kv_log *lg)
{
	if (lg->lg_pin)
		mdb_txn_abort(lg->lg_pin);
	lg->lg_pin = NULL;
}

void kv_log_stop(struct kv *kv)
{
	struct kv_log *lg = &kv->k_log;
	struct checkpoint ck;
	int rc;

	if (!lg->lg_on)
		return;
	pthread_mutex_lock(&lg->lg_lock);
	lg->lg_stop = true;
	pthread_cond_signal(&lg->lg_work);
	pthread_mutex_unlock(&lg->lg_lock);
	pthread_join(lg->lg_thread, NULL);
	lg->lg_on = false;
	rc = kv_checkpoint_begin(kv, &ck);
	if (rc == 0)
		kv_checkpoint_finish(kv, &ck, true);
	else
		log_error("kv: %s: cannot close it cleanly, the next start replays its log: %s",
			  kv->k_path, strerror(-rc));
	kv_checkpoint_unpin(lg);
}

void kv_log_init(struct kv *kv)
{
	struct kv_log *lg = &kv->k_log;

	lg->lg_file[0].lf_fd = lg->lg_file[1].lf_fd = -1;
	pthread_mutex_init(&lg->lg_lock, NULL);
	clock_cond_init(&lg->lg_work);
	pthread_cond_init(&lg->lg_done, NULL);
}

void kv_log_free(struct kv *kv)
{
	struct kv_log *lg = &kv->k_log;

	kv_log_stop(kv);
	kv_checkpoint_unpin(lg);
	for (unsigned i = 0; i < 2; i++)
		if (lg->lg_file[i].lf_fd >= 0)
			close(lg->lg_file[i].lf_fd);
	pthread_cond_destroy(&lg->lg_work);
	pthread_cond_destroy(&lg->lg_done);
	pthread_mutex_destroy(&lg->lg_lock);
}
