/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_space.c - room on the disk.
 *
 * Required: a full disk refuses mutations that put, one by one and cleanly; deletes go on; no
 * commit meets a full disk. (LMDB reports a pwrite inside mdb_txn_commit that comes up short as
 * EIO, the same as a dying disk. That ends the daemon, so it must not happen for want of space.)
 *
 * How: the map only reserves addresses, so blocks are what runs out. The data file is kept
 * allocated (fallocate) ahead of what LMDB uses, by at least KV_RESERVE. Every put and del is
 * charged, before it is made, with the most pages it can take. When the batch's charge plus the
 * reserve passes what is allocated, more is allocated at once. When the disk refuses, the store is
 * low, and the first write of a mutation decides for the whole mutation. A put that adds or
 * lengthens is refused if it would touch the reserve. A put over a value as long (an update) may
 * use half of the reserve, and a delete seven eighths. Later writes of an admitted mutation may use
 * all of it, since refusing one would fail the batch.
 *
 * While low:
 * - Pages on LMDB's free list count as room, except for runs of pages (values above half a page): a
 *   run may find no place there and then comes from the end of the file. An eighth of the reserve
 *   stays at the end for the free list's own runs. So while low, large values may be refused
 *   although pages are free.
 * - An old snapshot or a stopped reader keeps LMDB from using freed pages: in the end deletes are
 *   refused as well.
 * - A checkpoint of the log (kv_log.c) is such a snapshot. So a checkpoint is made when the store
 *   becomes low, and before each batch while the store is low.
 * - LMDB uses a freed page again two commits later. So a batch ends when it may take a quarter of
 *   the reserve: an endless stream of deletes then lives on the pages that it frees.
 * - The store asks the disk again every KV_RETRY_NS.
 *
 * The charge is an upper bound. It is dropped at the next batch, when LMDB says what it really
 * took. Known cost: up to the bound of the largest batch is allocated early.
 *
 * Where blocks cannot be promised (no fallocate, or a file system that writes elsewhere when it
 * overwrites), statvfs is asked once per batch. That is weaker: others may take the space between
 * the question and the write. If they take all of it, deletes are refused as well.
 */
#include "base/clock.h"
#include "base/log.h"
#include "kv/kv_int.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>

#define KV_RESERVE   (8u << 20)
#define KV_CHUNK     (16u << 20)
#define KV_CHUNK_MIN (256u << 10)
#define KV_RETRY_NS  100000000ull
/* LMDB spills dirty pages early beyond 131071 of them; a batch stays below. */
#define KV_BATCH_PAGES 100000u
#define ZFS_MAGIC      0x2fc12fc1
#define BCACHEFS_MAGIC 0xca451a4e

static uint64_t reserve_pages(const struct kv_space *sp)
{
	return KV_RESERVE / sp->sp_psize;
}

static uint64_t min64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Returns the most pages that the batch may take, as charged. LMDB's free list is a tree too, and
 * changes with every commit. */
static uint64_t charged(const struct kv_space *sp)
{
	uint64_t n = min64(sp->sp_touched, sp->sp_tree) + sp->sp_new;

	return n + n / 32 + 16;
}

static bool overwrites_in_place(int fd)
{
	struct statfs fs;

	if (fstatfs(fd, &fs) < 0)
		return false;
	switch ((unsigned long)fs.f_type) {
	case BTRFS_SUPER_MAGIC:
	case ZFS_MAGIC:
	case BCACHEFS_MAGIC:
		return false;
	}
	return true;
}

static void ask_statvfs(struct kv_space *sp)
{
	struct statvfs vfs;
	uint64_t pages = 0;

	if (fstatvfs(sp->sp_fd, &vfs) == 0)
		pages = (uint64_t)vfs.f_bavail * vfs.f_frsize / sp->sp_psize;
	sp->sp_alloc = min64(sp->sp_base + pages, sp->sp_max);
}

/* Allocates up to page end, or as far as it goes. */
static void kv_space_extend(struct kv_space *sp, uint64_t end)
{
	uint64_t step = KV_CHUNK / sp->sp_psize;

	end = min64(end, sp->sp_max);
	while (sp->sp_alloc < end && step >= KV_CHUNK_MIN / sp->sp_psize) {
		uint64_t n = min64(step, sp->sp_max - sp->sp_alloc);

		if (fallocate(sp->sp_fd, 0, (off_t)(sp->sp_alloc * sp->sp_psize),
			      (off_t)(n * sp->sp_psize)) == 0)
			sp->sp_alloc += n;
		else if (errno != EINTR)
			step /= 2;
	}
}

struct oldest {
	size_t o_txnid;
};

/* Parses one line of mdb_reader_list: "pid thread txnid", with "-" for an idle reader. LMDB has no
 * other interface for that. */
static int oldest_line(const char *msg, void *ctx)
{
	struct oldest *o = ctx;
	size_t txnid;

	if (sscanf(msg, "%*d %*x %zu", &txnid) == 1 && txnid < o->o_txnid)
		o->o_txnid = txnid;
	return 0;
}

/* Counts the pages that LMDB may use again in this batch. Only a read transaction can read its free
 * list (handle 0). */
static uint64_t count_free(struct kv *kv)
{
	struct oldest oldest;
	MDB_cursor *cur;
	MDB_txn *txn;
	MDB_val key, val;
	uint64_t n = 0;

	if (mdb_txn_begin(kv->k_env, NULL, MDB_RDONLY, &txn))
		return 0;
	oldest.o_txnid = mdb_txn_id(txn);
	mdb_reader_list(kv->k_env, oldest_line, &oldest);
	if (mdb_cursor_open(txn, 0, &cur) == 0) {
		while (mdb_cursor_get(cur, &key, &val, MDB_NEXT) == 0) {
			size_t id, count;

			memcpy(&id, key.mv_data, sizeof(id));
			if (id >= oldest.o_txnid)
				break;
			memcpy(&count, val.mv_data, sizeof(count));
			n += count;
		}
		mdb_cursor_close(cur);
	}
	mdb_txn_abort(txn);
	return n;
}

static void set_low(struct kv *kv, bool low)
{
	struct kv_space *sp = &kv->k_space;

	if (low && !sp->sp_low)
		log_warn("kv: %s: no room to grow; new entries can only replace deleted ones",
			 kv->k_path);
	if (!low && sp->sp_low)
		log_info("kv: %s: there is room again", kv->k_path);
	sp->sp_low = low;
	sp->sp_free = 0;
}

/* Tries to have want pages, including the reserve. A low store stays low until there is one chunk
 * more: otherwise the state would change back and forth. */
static void kv_space_make_room(struct kv *kv, uint64_t want)
{
	struct kv_space *sp = &kv->k_space;
	uint64_t now = clock_mono_ns(), enough = (KV_RESERVE + KV_CHUNK) / sp->sp_psize;
	bool low;

	if (sp->sp_low && want < enough)
		want = enough;
	if (!sp->sp_statvfs && (!sp->sp_low || now >= sp->sp_retry_ns)) {
		int dead;

		/* A reader that was killed pins pages. Remove it now, when the file is about to
		 * grow. */
		mdb_reader_check(kv->k_env, &dead);
		kv_space_extend(sp, sp->sp_base + want);
		sp->sp_retry_ns = now + KV_RETRY_NS;
	}
	low = sp->sp_alloc < sp->sp_base + want;
	/* This helps inside a transaction as well: the transaction uses pages that are freed from
	 * here on. */
	if (low && !sp->sp_low)
		kv_log_checkpoint(kv);
	set_low(kv, low);
	/* On a file system that never overwrites, a reused page takes a new block. */
	if (sp->sp_low && !sp->sp_cow)
		sp->sp_free = count_free(kv);
}

static void read_base(struct kv *kv)
{
	MDB_envinfo info;

	mdb_env_info(kv->k_env, &info);
	kv->k_space.sp_base = info.me_last_pgno + 1;
}

int kv_space_open(struct kv *kv)
{
	struct kv_space *sp = &kv->k_space;
	struct stat st;
	int rc;

	rc = mdb_env_get_fd(kv->k_env, &sp->sp_fd);
	if (rc)
		return kv_errno(rc);
	if (fstat(sp->sp_fd, &st) < 0)
		return -errno;
	sp->sp_psize = kv->k_psize;
	sp->sp_max = kv->k_map_bytes / sp->sp_psize - 1;
	read_base(kv);
	sp->sp_alloc = sp->sp_base;
	sp->sp_cow = sp->sp_statvfs = !overwrites_in_place(sp->sp_fd);
	/* Allocate the whole file, not only its end: a copy put back from a backup may have
	 * holes. */
	if (!sp->sp_statvfs && fallocate(sp->sp_fd, 0, 0, st.st_size) == 0)
		sp->sp_alloc = min64((uint64_t)st.st_size / sp->sp_psize, sp->sp_max);
	else if (errno == EOPNOTSUPP)
		sp->sp_statvfs = true;
	if (sp->sp_statvfs) {
		log_warn("kv: %s: this file system cannot reserve space for the store", kv->k_path);
		ask_statvfs(sp);
	}
	kv_space_make_room(kv, reserve_pages(sp) + 1);
	return 0;
}

void kv_space_begin(struct kv *kv)
{
	struct kv_space *sp = &kv->k_space;
	MDB_stat st;

	read_base(kv);
	mdb_stat(kv->k_txn.t_mdb, kv->k_dbi, &st);
	sp->sp_tree = st.ms_branch_pages + st.ms_leaf_pages + st.ms_overflow_pages;
	sp->sp_depth = st.ms_depth + 1;
	sp->sp_touched = sp->sp_new = sp->sp_tail = 0;
	sp->sp_free = 0;
	if (sp->sp_statvfs)
		ask_statvfs(sp);
	if (sp->sp_low || sp->sp_statvfs)
		kv_space_make_room(kv, reserve_pages(sp) + 1);
}

/* A write copies its path and, when it rebalances, the pages beside it; a put may split every
 * level. */
static void charge(struct kv_space *sp, size_t len, bool put)
{
	sp->sp_touched += 2 * sp->sp_depth;
	if (!put)
		return;
	sp->sp_new += sp->sp_depth + 1;
	if (len + KV_KEY_MAX > sp->sp_psize / 2 - 64) {
		uint64_t run = len / sp->sp_psize + 2;

		sp->sp_new += run;
		sp->sp_tail += run;
	}
}

static bool fits(const struct kv_space *sp, uint64_t keep)
{
	uint64_t end = sp->sp_alloc > sp->sp_base ? sp->sp_alloc - sp->sp_base : 0;
	uint64_t need = charged(sp), at_end;

	if (!sp->sp_low)
		return need + keep <= end;
	at_end = sp->sp_tail + (need > sp->sp_free ? need - sp->sp_free : 0);
	return need + keep <= end + sp->sp_free && at_end + reserve_pages(sp) / 8 <= end;
}

/* Returns what a write must leave of the reserve. Only the first write of a mutation is refused
 * while the reserve has anything left. */
static uint64_t must_leave(const struct kv_space *sp, enum kv_write_kind kind, bool first)
{
	if (!first)
		return 0;
	switch (kind) {
	case KV_GROW:
		return reserve_pages(sp);
	case KV_UPDATE:
		return reserve_pages(sp) / 2;
	case KV_DELETE:
		break;
	}
	return reserve_pages(sp) / 8;
}

int kv_space_charge(struct kv *kv, size_t len, enum kv_write_kind kind, bool first)
{
	struct kv_space *sp = &kv->k_space;
	struct kv_space before = *sp;

	charge(sp, len, kind != KV_DELETE);
	if (!sp->sp_low && !fits(sp, reserve_pages(sp)))
		kv_space_make_room(kv, charged(sp) + reserve_pages(sp));
	if (fits(sp, must_leave(sp, kind, first)))
		return 0;
	sp->sp_touched = before.sp_touched;
	sp->sp_new = before.sp_new;
	sp->sp_tail = before.sp_tail;
	return -ENOSPC;
}

bool kv_space_batch_full(const struct kv *kv)
{
	const struct kv_space *sp = &kv->k_space;

	return charged(sp) > (sp->sp_low ? reserve_pages(sp) / 4 : KV_BATCH_PAGES);
}
