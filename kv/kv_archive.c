/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_archive.c - keeps what the redo log had, for incremental backups (docs/backup.md).
 *
 * Required: the archive has every transaction from its first to its last, in order, once. Enforced:
 * a record goes to the archive, durably, before the header is written that makes the record
 * unnecessary for recovery (kv_log.c, step 3). So after a crash either the archive has the record,
 * or recovery replays the record and puts it there. Records that come twice are known by their
 * transaction. If the archive ends before the state that the store is opened with, or behind it,
 * it is none of this store: it goes, and a new one begins under another identity.
 *
 * The folder "archive" of the store has segments. A segment's name is the number of its first
 * transaction, in 16 hexadecimal digits. A head is first; records follow, in the format of the log
 * (kv_log.h) without padding, with the archive's identity, the segment's first transaction as
 * generation, and the offset in the segment. The oldest segments go when the archive has more than
 * ko_archive bytes. Other processes read the archive while it grows.
 *
 * A segment begins when the one before it is durable. So only the last one can be torn. If a crash
 * has torn its head, it has nothing that recovery does not replay: it goes, and the archive ends
 * with the segment before it.
 *
 * A copy of a log elsewhere lets the log trim only what its archive has (kv_archive_spares). The
 * archive takes a batch only if its record is whole, and follows from the one before.
 *
 * The archive is no part of durability. If it cannot be written, it goes, and the store stays. The
 * first checkpoint that finds room for it begins another one. The file "archive-gap" of the store
 * says since when there is a gap, and why. While there is none the file has one line of dashes, so
 * that a full disk has room for the reason.
 */
#include "base/log.h"
#include "kv/kv_int.h"
#include "kv/kv_log.h"
#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define KV_SEGMENT_MIN (1ull << 20)
#define KV_SEGMENT_MAX (256ull << 20)
/* A larger archive has this many segments or more. */
#define KV_SEGMENTS 16u

static const char archive_magic[8] = {'W', 'E', 'F', 'T', 'A', 'R', 'C', 1};

/* Little endian. */
struct kv_archive_head {
	char ah_magic[8]; /* its last byte: the version */
	uint8_t ah_id[KV_LOG_ID];
	uint64_t ah_first;
	uint8_t ah_sum[16]; /* SipHash-2-4 of 128 bits under the identity */
};
_Static_assert(sizeof(struct kv_archive_head) == 48, "format");

struct kv_archive_out {
	char ao_folder[PATH_MAX];
	uint8_t ao_id[KV_LOG_ID];
	int ao_fd;	    /* the last segment; -1: the next record begins one */
	uint64_t ao_first;  /* of the last segment */
	uint64_t ao_at;	    /* its length */
	uint64_t ao_last;   /* newest transaction */
	uint64_t ao_before; /* bytes in other segments */
	uint64_t ao_max;
	bool ao_unsynced, ao_unnamed;
	bool ao_off; /* it could not be written, and went */
	/* why the one before went, until the file says so; or "" */
	char ao_gap[KV_ARCHIVE_WHY];
};

static void archive_sum(const struct kv_archive_head *h, uint8_t sum[16])
{
	crypto_shorthash_siphashx24(sum, (const uint8_t *)h,
				    offsetof(struct kv_archive_head, ah_sum), h->ah_id);
}

/* Segments */

struct segments {
	uint64_t *sg_first;
	size_t sg_n, sg_room;
};

static int segment_order(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static bool segment_name(const char *name, uint64_t *first)
{
	char again[17];

	*first = strtoull(name, NULL, 16);
	snprintf(again, sizeof(again), "%016lx", (unsigned long)*first);
	return !strcmp(name, again);
}

static int segment_add(struct segments *sg, uint64_t first)
{
	if (sg->sg_n == sg->sg_room) {
		size_t room = sg->sg_room ? 2 * sg->sg_room : 64;
		uint64_t *more = realloc(sg->sg_first, room * sizeof(*more));

		if (!more)
			return -ENOMEM;
		sg->sg_first = more;
		sg->sg_room = room;
	}
	sg->sg_first[sg->sg_n++] = first;
	return 0;
}

/* In the order of their numbers. The caller frees sg_first. -ENOENT: there is no archive. */
static int segments_list(const char *folder, struct segments *sg)
{
	DIR *d = opendir(folder);
	struct dirent *e;
	uint64_t first;
	int rc = 0;

	memset(sg, 0, sizeof(*sg));
	if (!d)
		return -errno;
	while (!rc && (e = readdir(d)))
		if (segment_name(e->d_name, &first))
			rc = segment_add(sg, first);
	closedir(d);
	if (sg->sg_n)
		qsort(sg->sg_first, sg->sg_n, sizeof(sg->sg_first[0]), segment_order);
	return !rc && !sg->sg_n ? -ENOENT : rc;
}

static bool archive_path(const char *folder, uint64_t first, char out[PATH_MAX])
{
	return snprintf(out, PATH_MAX, "%s/%016lx", folder, (unsigned long)first) < PATH_MAX;
}

static int segment_open(const char *folder, uint64_t first, int flags)
{
	char path[PATH_MAX];
	int fd;

	if (!archive_path(folder, first, path))
		return -ENAMETOOLONG;
	fd = open(path, flags | O_CLOEXEC, 0600);
	return fd < 0 ? -errno : fd;
}

/* Reading */

struct segment_in {
	int sr_fd;
	uint8_t sr_id[KV_LOG_ID];
	struct kv_log_want sr_want; /* the record that is read next */
	uint64_t sr_size;
	char *sr_buf;
	size_t sr_room;
};

static void segment_close(struct segment_in *si)
{
	if (si->sr_fd >= 0)
		close(si->sr_fd);
	free(si->sr_buf);
	si->sr_fd = -1;
	si->sr_buf = NULL;
}

/* -EIO: it has no good head. */
static int segment_begin(struct segment_in *si, const char *folder, uint64_t first)
{
	struct kv_archive_head h;
	uint8_t sum[16];
	ssize_t n;

	*si = (struct segment_in){.sr_fd = segment_open(folder, first, O_RDONLY)};
	if (si->sr_fd < 0)
		return si->sr_fd;
	n = pread(si->sr_fd, &h, sizeof(h), 0);
	if (n < 0)
		return -errno;
	if (n != sizeof(h))
		return -EIO;
	archive_sum(&h, sum);
	if (memcmp(h.ah_magic, archive_magic, sizeof(archive_magic)) ||
	    memcmp(h.ah_sum, sum, sizeof(sum)) || le64toh(h.ah_first) != first)
		return -EIO;
	memcpy(si->sr_id, h.ah_id, sizeof(si->sr_id));
	si->sr_want = (struct kv_log_want){si->sr_id, first, sizeof(h)};
	return 0;
}

/* Returns the next whole record, or NULL: none yet. Sets *rc for an error of the disk. */
static const struct kv_log_rec *segment_next(struct segment_in *si, int *rc)
{
	struct kv_log_rec r;
	struct stat st;
	uint32_t len;
	ssize_t n;

	*rc = 0;
	if (fstat(si->sr_fd, &st) < 0) {
		*rc = -errno;
		return NULL;
	}
	si->sr_want.lw_id = si->sr_id;
	n = pread(si->sr_fd, &r, sizeof(r), (off_t)si->sr_want.lw_at);
	if (n != sizeof(r) || (uint64_t)st.st_size < si->sr_want.lw_at)
		return NULL;
	len = kv_log_rec_len(&si->sr_want, &r, (uint64_t)st.st_size - si->sr_want.lw_at);
	if (len > si->sr_room) {
		free(si->sr_buf);
		si->sr_room = len;
		si->sr_buf = malloc(len);
	}
	if (!len || !si->sr_buf) {
		si->sr_room = si->sr_buf ? si->sr_room : 0;
		*rc = len ? -ENOMEM : 0;
		return NULL;
	}
	n = pread(si->sr_fd, si->sr_buf, len, (off_t)si->sr_want.lw_at);
	if (n != (ssize_t)len || !kv_log_rec_ok(&si->sr_want, si->sr_buf))
		return NULL;
	si->sr_want.lw_at += len;
	return (const struct kv_log_rec *)si->sr_buf;
}

/* Reads a segment to its end. *last: its newest transaction; *at: where its whole records end. */
static int segment_end(const char *folder, uint64_t first, uint8_t id[KV_LOG_ID], uint64_t *last,
		       uint64_t *at)
{
	const struct kv_log_rec *r;
	struct segment_in si;
	int rc = segment_begin(&si, folder, first);

	*last = first - 1;
	while (!rc && (r = segment_next(&si, &rc)))
		*last = le64toh(r->rl_txnid);
	memcpy(id, si.sr_id, KV_LOG_ID);
	*at = si.sr_want.lw_at;
	segment_close(&si);
	return rc;
}

/* Finds the end of the last segment with a good head. Takes the others off sg: a crash has torn
 * the last one, or it is being made just now. */
static int segments_end(const char *folder, struct segments *sg, uint8_t id[KV_LOG_ID],
			uint64_t *last, uint64_t *at)
{
	int rc = segment_end(folder, sg->sg_first[sg->sg_n - 1], id, last, at);

	if (rc != -EIO || sg->sg_n == 1)
		return rc;
	sg->sg_n--;
	return segment_end(folder, sg->sg_first[sg->sg_n - 1], id, last, at);
}

static bool archive_folder(const char *store, char out[PATH_MAX])
{
	return snprintf(out, PATH_MAX, "%s/archive", store) < PATH_MAX;
}

int kv_archive_look(const char *store, struct kv_archive *out)
{
	char folder[PATH_MAX];
	struct segments sg;
	uint64_t at;
	int rc;

	if (!archive_folder(store, folder))
		return -ENAMETOOLONG;
	rc = segments_list(folder, &sg);
	if (!rc) {
		out->ka_first = sg.sg_first[0];
		rc = segments_end(folder, &sg, out->ka_id, &out->ka_last, &at);
	}
	free(sg.sg_first);
	return rc;
}

struct archive_read {
	const char *ar_folder;
	const uint8_t *ar_id;
	uint64_t ar_next, ar_to;
	int (*ar_fn)(void *arg, uint64_t txn, const struct kv_write *w);
	void *ar_arg;
};

static int archive_give(struct archive_read *ar, const struct kv_log_rec *r)
{
	uint32_t pos = sizeof(*r);
	struct kv_write w;
	int rc = 0;

	while (!rc && kv_log_rec_next(r, &pos, &w) > 0)
		rc = ar->ar_fn(ar->ar_arg, le64toh(r->rl_txnid), &w);
	return rc;
}

static int archive_read_segment(struct archive_read *ar, uint64_t first)
{
	const struct kv_log_rec *r;
	struct segment_in si;
	int rc = segment_begin(&si, ar->ar_folder, first);

	if (!rc && memcmp(si.sr_id, ar->ar_id, KV_LOG_ID) != 0)
		rc = -ESTALE;
	while (!rc && ar->ar_next <= ar->ar_to && (r = segment_next(&si, &rc))) {
		uint64_t txn = le64toh(r->rl_txnid);

		if (txn > ar->ar_next)
			rc = -ESTALE;
		else if (txn == ar->ar_next)
			rc = archive_give(ar, r);
		ar->ar_next += txn == ar->ar_next;
	}
	segment_close(&si);
	return rc == -ENOENT ? -ESTALE : rc;
}

int kv_archive_read(const char *store, const uint8_t id[16], uint64_t from, uint64_t to,
		    int (*fn)(void *arg, uint64_t txn, const struct kv_write *w), void *arg)
{
	char folder[PATH_MAX];
	struct archive_read ar = {folder, id, from, to, fn, arg};
	struct segments sg;
	int rc = archive_folder(store, folder) ? segments_list(folder, &sg) : -ENAMETOOLONG;

	if (rc)
		return rc == -ENOENT ? -ESTALE : rc;
	if (sg.sg_first[0] > from)
		rc = -ESTALE;
	for (size_t i = 0; !rc && i < sg.sg_n && ar.ar_next <= to; i++)
		if (i + 1 == sg.sg_n || sg.sg_first[i + 1] > ar.ar_next)
			rc = archive_read_segment(&ar, sg.sg_first[i]);
	free(sg.sg_first);
	return !rc && ar.ar_next <= to ? -ESTALE : rc;
}

/* Writing */

static void archive_close(struct kv_archive_out *ao)
{
	if (ao->ao_fd >= 0)
		close(ao->ao_fd);
	ao->ao_fd = -1;
}

static void archive_remove(const char *folder)
{
	char path[PATH_MAX];
	struct segments sg;

	/* The newest first: what is left after a crash does not reach the store's state. */
	if (!segments_list(folder, &sg))
		for (size_t i = sg.sg_n; i-- > 0;)
			if (archive_path(folder, sg.sg_first[i], path))
				unlink(path);
	free(sg.sg_first);
	rmdir(folder);
}

/* The text of the file, and what follows it in the same room. */
#define GAP_TEXT (KV_ARCHIVE_WHY + 32)

static int gap_open(const char *store)
{
	char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s/archive-gap", store) >= (int)sizeof(path))
		return -1;
	return open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
}

/* Notes why the archive lacks what was before, in the room that the file has. If it has none and
 * the disk is full, kv_archive_again does it; what the file said before is not the reason. */
static bool gap_write(const char *store, const char *why)
{
	char text[GAP_TEXT];
	int n = snprintf(text, sizeof(text), "%ld %s\n", (long)time(NULL), why),
	    fd = gap_open(store);
	bool ok;

	if (fd < 0)
		return false;
	memset(text + n, '-', sizeof(text) - (size_t)n);
	text[sizeof(text) - 1] = '\n';
	ok = pwrite(fd, text, sizeof(text), 0) == sizeof(text) && !fdatasync(fd);
	if (!ok && ftruncate(fd, 0))
		log_warn("kv: %s: archive-gap: %s", store, strerror(errno));
	close(fd);
	return ok;
}

/* Makes room for a reason, while the disk has some. */
static void gap_reserve(const char *store)
{
	int fd = gap_open(store);
	char text[GAP_TEXT];
	struct stat st;

	if (fd < 0)
		return;
	memset(text, '-', sizeof(text));
	text[sizeof(text) - 1] = '\n';
	if (!fstat(fd, &st) && !st.st_size &&
	    (pwrite(fd, text, sizeof(text), 0) != sizeof(text) || fdatasync(fd)) &&
	    ftruncate(fd, 0))
		log_warn("kv: %s: archive-gap: %s", store, strerror(errno));
	close(fd);
}

bool kv_archive_gap(const char *store, int64_t *at, char why[KV_ARCHIVE_WHY])
{
	char path[PATH_MAX], text[GAP_TEXT + 1] = "", *end, *line;
	ssize_t n;
	int fd;

	if (snprintf(path, sizeof(path), "%s/archive-gap", store) >= (int)sizeof(path))
		return false;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	*at = strtol(text, &end, 10);
	line = strchr(text, '\n');
	if (n <= 0 || *end != ' ' || !line)
		return false;
	*line = 0;
	snprintf(why, KV_ARCHIVE_WHY, "%s", end + 1);
	return true;
}

static void archive_gone(struct kv *kv, int rc)
{
	struct kv_archive_out *ao = kv->k_archive;

	archive_close(ao);
	archive_remove(ao->ao_folder);
	ao->ao_off = true;
	ao->ao_unsynced = ao->ao_unnamed = false;
	atomic_store(&kv->k_archive_err, rc);
}

/* The archive has a gap from here on: it is of no use. */
static void archive_give_up(struct kv *kv, int rc)
{
	struct kv_archive_out *ao = kv->k_archive;

	log_error("kv: %s: archive: %s: the log for incremental backups ends here, and begins "
		  "again when it can be written; the next backup has to be a full one",
		  kv->k_path, strerror(-rc));
	archive_gone(kv, rc);
	snprintf(ao->ao_gap, sizeof(ao->ao_gap), "%s", strerror(-rc));
	if (gap_write(kv->k_path, ao->ao_gap))
		ao->ao_gap[0] = 0;
}

static int archive_write(int fd, const void *data, size_t len, uint64_t at)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = pwrite(fd, (const char *)data + done, len - done, (off_t)(at + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		done += (size_t)n;
	}
	return 0;
}

static uint64_t segment_size(const struct kv_archive_out *ao)
{
	uint64_t size = ao->ao_max / KV_SEGMENTS;

	return size < KV_SEGMENT_MIN   ? KV_SEGMENT_MIN
	       : size > KV_SEGMENT_MAX ? KV_SEGMENT_MAX
				       : size;
}

static int segment_make(struct kv_archive_out *ao, uint64_t first)
{
	struct kv_archive_head h = {.ah_first = htole64(first)};
	int rc;

	memcpy(h.ah_magic, archive_magic, sizeof(archive_magic));
	memcpy(h.ah_id, ao->ao_id, sizeof(h.ah_id));
	archive_sum(&h, h.ah_sum);
	ao->ao_fd = segment_open(ao->ao_folder, first, O_RDWR | O_CREAT | O_TRUNC);
	if (ao->ao_fd < 0)
		return ao->ao_fd;
	rc = archive_write(ao->ao_fd, &h, sizeof(h), 0);
	ao->ao_first = first;
	ao->ao_at = sizeof(h);
	ao->ao_unsynced = ao->ao_unnamed = true;
	return rc;
}

/* Removes the oldest segments, but never the last one. */
static void archive_trim(struct kv_archive_out *ao)
{
	struct segments sg;
	char path[PATH_MAX];
	struct stat st;

	if (ao->ao_before + ao->ao_at <= ao->ao_max || segments_list(ao->ao_folder, &sg))
		return;
	for (size_t i = 0; i + 1 < sg.sg_n && ao->ao_before + ao->ao_at > ao->ao_max; i++)
		if (archive_path(ao->ao_folder, sg.sg_first[i], path) && !stat(path, &st) &&
		    !unlink(path))
			ao->ao_before -= (uint64_t)st.st_size < ao->ao_before ? (uint64_t)st.st_size
									      : ao->ao_before;
	free(sg.sg_first);
}

int kv_archive_sync(struct kv *kv)
{
	struct kv_archive_out *ao = kv->k_archive;
	int rc = 0;

	if (!ao || !ao->ao_unsynced)
		return 0;
	if (fdatasync(ao->ao_fd) < 0)
		rc = -errno;
	if (!rc && ao->ao_unnamed)
		rc = kv_fsync_folder(ao->ao_folder);
	ao->ao_unsynced = ao->ao_unnamed = false;
	if (rc)
		archive_give_up(kv, rc);
	else
		archive_trim(ao);
	return rc;
}

static int archive_append(struct kv *kv, const struct kv_log_rec *rec)
{
	struct kv_archive_out *ao = kv->k_archive;
	uint32_t len = le32toh(rec->rl_len);
	uint64_t txn = le64toh(rec->rl_txnid);
	struct kv_log_want want;
	char *copy;
	int rc = 0;

	if (ao->ao_at >= segment_size(ao)) {
		rc = kv_archive_sync(kv);
		if (rc)
			return 0; /* it was given up */
		archive_close(ao);
		ao->ao_before += ao->ao_at;
		rc = segment_make(ao, txn);
	}
	copy = rc ? NULL : malloc(len);
	if (!copy)
		return rc ? rc : -ENOMEM;
	memcpy(copy, rec, len);
	want = (struct kv_log_want){ao->ao_id, ao->ao_first, ao->ao_at};
	kv_log_rec_seal(&want, 0, txn, le32toh(rec->rl_n), copy, len);
	rc = archive_write(ao->ao_fd, copy, len, ao->ao_at);
	free(copy);
	if (rc)
		return rc;
	ao->ao_at += len;
	ao->ao_last = txn;
	ao->ao_unsynced = true;
	return 0;
}

void kv_archive_add(struct kv *kv, const void *rec)
{
	struct kv_archive_out *ao = kv->k_archive;
	const struct kv_log_rec *r = rec;
	int rc;

	if (!ao || ao->ao_off || le64toh(r->rl_txnid) <= ao->ao_last)
		return;
	/* A record between them could not be read. */
	rc = le64toh(r->rl_txnid) == ao->ao_last + 1 ? archive_append(kv, r) : -EIO;
	if (rc)
		archive_give_up(kv, rc);
}

struct taking {
	struct kv *ta_kv;
	uint64_t ta_upto;
	const uint8_t *ta_sum; /* of that batch */
	uint8_t ta_before[KV_REDO_SUM];
	bool ta_any; /* ta_before is the sum of the batch before */
};

/* A record of a log elsewhere is whole, and the records lead to the state that the store has. */
static bool taken_ok(struct taking *ta, uint64_t number, void *rec, uint32_t len)
{
	const struct kv_redo_rec *r = rec;
	uint8_t before[KV_REDO_SUM];

	if (len < sizeof(*r))
		return false;
	memcpy(before, ta->ta_any ? ta->ta_before : r->rr_before, sizeof(before));
	if (!kv_redo_rec_ok(ta->ta_kv->k_copy.co_id, before, number, rec, len))
		return false;
	memcpy(ta->ta_before, r->rr_sum, sizeof(ta->ta_before));
	ta->ta_any = true;
	return number != ta->ta_upto || !memcmp(r->rr_sum, ta->ta_sum, KV_REDO_SUM);
}

static int take_one(void *arg, uint64_t number, void *rec, uint32_t len)
{
	struct taking *ta = arg;

	if (number > ta->ta_upto)
		return 1;
	if (!kv_redo_local(ta->ta_kv) && !taken_ok(ta, number, rec, len)) {
		archive_give_up(ta->ta_kv, -EIO);
		return 1;
	}
	kv_archive_add(ta->ta_kv, rec);
	return ta->ta_kv->k_archive->ao_off;
}

void kv_archive_take(struct kv *kv, uint64_t upto, const uint8_t sum[KV_REDO_SUM])
{
	struct kv_archive_out *ao = kv->k_archive;
	struct taking ta = {.ta_kv = kv, .ta_upto = upto, .ta_sum = sum};
	char err[512] = "";
	int rc;

	if (!ao || ao->ao_off || ao->ao_last >= upto)
		return;
	rc = kv->k_redo.r_ops->ro_read(kv->k_redo.r_log, ao->ao_last, take_one, &ta, err,
				       sizeof(err));
	/* A batch that could not be read is missing: kv_archive_add finds the gap at the next. A
	 * log elsewhere keeps it, and is asked again (kv_archive_spares). */
	if (rc < 0)
		log_error("kv: %s: cannot read the log for the archive: %s", kv->k_path, err);
	/* It is gone from a log elsewhere. */
	if (rc == -ESTALE)
		archive_give_up(kv, rc);
}

uint64_t kv_archive_spares(const struct kv *kv, uint64_t upto)
{
	const struct kv_archive_out *ao = kv->k_archive;

	return ao && !ao->ao_off && ao->ao_last < upto ? ao->ao_last : upto;
}

static uint64_t archive_bytes(const char *folder, const struct segments *sg)
{
	uint64_t bytes = 0;
	char path[PATH_MAX];
	struct stat st;

	for (size_t i = 0; i + 1 < sg->sg_n; i++)
		if (archive_path(folder, sg->sg_first[i], path) && !stat(path, &st))
			bytes += (uint64_t)st.st_size;
	return bytes;
}

/* Opens the archive that is there, and cuts off what was being written. */
static int archive_open(struct kv_archive_out *ao)
{
	struct segments sg;
	char path[PATH_MAX];
	int rc = segments_list(ao->ao_folder, &sg);
	size_t n = sg.sg_n;

	if (!rc)
		rc = segments_end(ao->ao_folder, &sg, ao->ao_id, &ao->ao_last, &ao->ao_at);
	if (!rc && sg.sg_n < n && archive_path(ao->ao_folder, sg.sg_first[n - 1], path) &&
	    unlink(path))
		rc = -errno;
	if (rc) {
		free(sg.sg_first);
		return rc;
	}
	ao->ao_first = sg.sg_first[sg.sg_n - 1];
	ao->ao_before = archive_bytes(ao->ao_folder, &sg);
	free(sg.sg_first);
	ao->ao_fd = segment_open(ao->ao_folder, ao->ao_first, O_RDWR);
	if (ao->ao_fd < 0)
		return ao->ao_fd;
	/* What a killed server wrote may not be on the disk yet, and is not written again. */
	ao->ao_unsynced = ao->ao_unnamed = true;
	return ftruncate(ao->ao_fd, (off_t)ao->ao_at) < 0 ? -errno : 0;
}

/* An archive without anything in it, from the next transaction on. */
static int archive_make(struct kv_archive_out *ao, uint64_t last)
{
	int rc;

	archive_close(ao);
	ao->ao_before = 0;
	if (mkdir(ao->ao_folder, 0700) < 0 && errno != EEXIST)
		return -errno;
	randombytes_buf(ao->ao_id, sizeof(ao->ao_id));
	rc = segment_make(ao, last + 1);
	ao->ao_last = last;
	return rc;
}

/* Why there is to be no archive, or none of before; NULL: it goes on. */
static const char *archive_not(const struct kv_opts *o)
{
	if (o->ko_archive_new)
		return "the store was put back from a backup";
	/* Commits without a log are in no archive either. */
	if (o->ko_nosync)
		return "the store was opened without syncs";
	return o->ko_archive < 0 ? "the server ran without mds.backup_log" : NULL;
}

/* ---- the limit, for programs that have no configuration ---- */

static int limit_open(const char *store, int flags)
{
	char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s/archive-limit", store) >= (int)sizeof(path))
		return -1;
	return open(path, flags | O_NOFOLLOW | O_CLOEXEC, 0600);
}

/* Returns 0 where nothing says it. */
static uint64_t limit_get(const char *store)
{
	int fd = limit_open(store, O_RDONLY);
	char text[32] = "", *end;
	unsigned long max;
	ssize_t n;

	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	max = strtoul(text, &end, 10);
	return n > 1 && *end == '\n' && max <= INT64_MAX ? max : 0;
}

/* It is no part of durability either: a crash in the middle leaves the size of the archive. */
static void limit_put(const char *store, uint64_t max)
{
	char text[32];
	int n, fd;

	if (limit_get(store) == max)
		return;
	n = snprintf(text, sizeof(text), "%lu\n", (unsigned long)max);
	fd = limit_open(store, O_WRONLY | O_CREAT | O_TRUNC);
	if (fd < 0 || write(fd, text, (size_t)n) != n)
		log_warn("kv: %s: archive-limit: %s", store, strerror(errno));
	if (fd >= 0)
		close(fd);
}

/* Of what is there: the limit that the server gave it last, or the size that it has. */
static uint64_t limit_of(const struct kv_archive_out *ao, const char *store)
{
	uint64_t max = limit_get(store), has = ao->ao_before + ao->ao_at;

	if (max)
		return max;
	return has > KV_SEGMENTS * KV_SEGMENT_MIN ? has : KV_SEGMENTS * KV_SEGMENT_MIN;
}

void kv_archive_drop(struct kv *kv, const char *why)
{
	char folder[PATH_MAX];
	struct stat st;

	if (!archive_folder(kv->k_path, folder) || stat(folder, &st))
		return;
	archive_remove(folder);
	gap_write(kv->k_path, why);
}

void kv_archive_open(struct kv *kv, const struct kv_opts *o)
{
	const char *not = archive_not(o);
	struct kv_archive_out *ao;
	char folder[PATH_MAX];
	struct stat st;
	bool there;
	int rc;

	if (!archive_folder(kv->k_path, folder))
		return;
	if (not )
		kv_archive_drop(kv, not );
	there = stat(folder, &st) == 0;
	if (o->ko_archive < 0 || o->ko_nosync || (!there && !o->ko_archive))
		return;
	ao = calloc(1, sizeof(*ao));
	if (!ao)
		return;
	ao->ao_fd = -1;
	ao->ao_max = (uint64_t)o->ko_archive;
	memcpy(ao->ao_folder, folder, sizeof(folder));
	rc = archive_open(ao);
	/* kv_archive_begin makes a new one */
	if (rc)
		ao->ao_last = UINT64_MAX;
	if (rc && rc != -ENOENT)
		snprintf(ao->ao_gap, sizeof(ao->ao_gap), "%s", strerror(-rc));
	if (ao->ao_max)
		limit_put(kv->k_path, ao->ao_max);
	else
		ao->ao_max = limit_of(ao, kv->k_path);
	gap_reserve(kv->k_path);
	kv->k_archive = ao;
}

/* Begins an archive behind that transaction, durably. */
static int archive_begin(struct kv *kv, uint64_t last)
{
	struct kv_archive_out *ao = kv->k_archive;
	int rc;

	if (*ao->ao_gap && gap_write(kv->k_path, ao->ao_gap))
		ao->ao_gap[0] = 0;
	rc = archive_make(ao, last);
	return rc ? rc : kv_fsync_folder(kv->k_path);
}

void kv_archive_begin(struct kv *kv)
{
	struct kv_archive_out *ao = kv->k_archive;
	uint64_t held = kv_held(kv);
	int rc;

	if (!ao || ao->ao_off || ao->ao_last == held)
		return;
	/* A log elsewhere still has what the archive lacks, and has all that it has more. */
	if (!kv_redo_local(kv) && ao->ao_last != UINT64_MAX)
		return;
	if (ao->ao_last != UINT64_MAX)
		snprintf(ao->ao_gap, sizeof(ao->ao_gap),
			 "its log for backups was not of the state that the server found");
	if (*ao->ao_gap)
		log_warn("kv: %s: archive: %s: a new log for incremental backups begins, and the "
			 "next backup has to be a full one",
			 kv->k_path, ao->ao_gap);
	archive_remove(ao->ao_folder);
	rc = archive_begin(kv, held);
	if (rc)
		archive_give_up(kv, rc);
	else
		kv_archive_sync(kv);
}

/* As much as the archive may take, so that it does not fill the disk again. */
static bool archive_has_room(const struct kv *kv)
{
	uint64_t want = kv->k_archive->ao_max;
	struct statvfs sv;

	return !statvfs(kv->k_path, &sv) && (uint64_t)sv.f_bavail * sv.f_frsize >= want;
}

void kv_archive_again(struct kv *kv, uint64_t last)
{
	struct kv_archive_out *ao = kv->k_archive;
	int rc;

	if (!ao || !ao->ao_off || !archive_has_room(kv))
		return;
	rc = archive_begin(kv, last);
	if (!rc && fdatasync(ao->ao_fd) < 0)
		rc = -errno;
	if (!rc)
		rc = kv_fsync_folder(ao->ao_folder);
	if (rc) {
		archive_gone(kv, rc);
		return;
	}
	ao->ao_off = ao->ao_unsynced = ao->ao_unnamed = false;
	atomic_store(&kv->k_archive_err, 0);
	log_warn("kv: %s: archive: the log for incremental backups begins again; the next backup "
		 "has to be a full one",
		 kv->k_path);
}

void kv_archive_close(struct kv *kv)
{
	if (kv->k_archive)
		archive_close(kv->k_archive);
	free(kv->k_archive);
	kv->k_archive = NULL;
}
