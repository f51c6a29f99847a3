/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_archive_test.c - the store's log for incremental backups: what it has is what was committed,
 * in order, once; a crash that tears its end takes nothing that was in it before; it comes back
 * after a full disk.
 */
#include "base/crash.h"
#include "tests/unit/kv_store.h"
#include <dirent.h>
#include <dlfcn.h>
#include <stdarg.h>
#include <sys/mman.h>

#define ARCHIVE (8 * MIB)

static const struct kv_opts keep = {.ko_create = true, .ko_archive = ARCHIVE};

/* A disk that takes nothing more into the archive. */
static _Atomic int fail_archive;

/* A file outside of the archive may be written where it has bytes already. */
static bool refused(int fd, off_t end)
{
	char link[64], path[600];
	struct stat st;
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	path[n > 0 ? n : 0] = 0;
	return strstr(path, "/archive/") ||
	       (strstr(path, "/archive-gap") && !fstat(fd, &st) && end > st.st_size);
}

ssize_t pwrite(int fd, const void *buf, size_t n, off_t at)
{
	static ssize_t (*real)(int, const void *, size_t, off_t);

	if (!real)
		real = (ssize_t(*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite");
	if (fail_archive && refused(fd, at + (off_t)n)) {
		errno = fail_archive;
		return -1;
	}
	return real(fd, buf, n, at);
}

ssize_t write(int fd, const void *buf, size_t n)
{
	static ssize_t (*real)(int, const void *, size_t);

	if (!real)
		real = (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
	if (fail_archive && refused(fd, lseek(fd, 0, SEEK_CUR) + (off_t)n)) {
		errno = fail_archive;
		return -1;
	}
	return real(fd, buf, n);
}

/* Commit number i: one key; every fourth deletes the key of the commit before. */
static size_t big = 100; /* bytes of a value */

static int commit_run(void *arg, struct kv_txn *t)
{
	unsigned i = *(const unsigned *)arg;
	char key[32], *val = malloc(big);
	int rc;

	memset(val, 'a' + (int)(i % 26), big);
	snprintf(key, sizeof(key), "key %u", i);
	rc = kv_put(t, S(key), (struct kv_slice){val, big});
	snprintf(key, sizeof(key), "key %u", i - 1);
	if (!rc && i % 4 == 3)
		rc = kv_del(t, S(key));
	free(val);
	return rc;
}

static void commits(struct kv *kv, unsigned *i, unsigned n)
{
	for (unsigned end = *i + n; *i < end; ++*i)
		ck_assert_int_eq(kv_run_sync(kv, commit_run, i), 0);
}

/* Commits until there was another checkpoint. */
static void checkpoint(struct kv *kv, unsigned *i)
{
	struct kv_stats was, now;

	kv_stats(kv, &was);
	do {
		commits(kv, i, 1);
		usleep(2000);
		kv_stats(kv, &now);
	} while (now.ks_checkpoints == was.ks_checkpoints);
}

/* Reading it back: the next write must be that of the next commit. */
struct reading {
	unsigned r_next;
	uint64_t r_txn;
	bool r_del;
};

static int reading_one(void *arg, uint64_t txn, const struct kv_write *w)
{
	struct reading *r = arg;
	char key[32];

	if (r->r_txn && txn != r->r_txn + !r->r_del)
		return -EPROTO;
	r->r_txn = txn;
	snprintf(key, sizeof(key), "key %u", r->r_next - r->r_del);
	if (w->w_del != r->r_del || w->w_key.s_len != strlen(key) ||
	    memcmp(w->w_key.s_data, key, strlen(key)) != 0)
		return -EBADMSG;
	if (!w->w_del && (!w->w_val.s_len ||
			  *(const char *)w->w_val.s_data != (char)('a' + (int)(r->r_next % 26))))
		return -EILSEQ;
	/* A commit has a second write where it deletes. */
	r->r_del = !r->r_del && r->r_next % 4 == 3;
	r->r_next += !r->r_del;
	return 0;
}

/* The archive has exactly the commits from the one with number first on. Returns the number after
 * the last one. */
static unsigned archived(const struct kv_archive *a, unsigned first)
{
	struct reading r = {.r_next = first};
	int rc = 0;

	if (a->ka_last >= a->ka_first)
		rc = kv_archive_read(dir, a->ka_id, a->ka_first, a->ka_last, reading_one, &r);
	ck_assert_msg(!rc, "commit %u: %s", r.r_next, strerror(-rc));
	return r.r_next;
}

static uint64_t newest(struct kv *kv)
{
	struct kv_txn *t;
	uint64_t n;

	ck_assert_int_eq(kv_read_begin(kv, &t), 0);
	n = kv_read_number(t);
	kv_read_end(t);
	return n;
}

/* Crashes */

static unsigned segments(const char *store)
{
	char path[600];
	struct dirent *e;
	unsigned n = 0;
	DIR *d;

	snprintf(path, sizeof(path), "%s/archive", store);
	d = opendir(path);
	while (d && (e = readdir(d)))
		n += strlen(e->d_name) == 16;
	if (d)
		closedir(d);
	return n;
}

static bool armed;

/* Ends when the checkpoint that began the second segment has written it. */
void crash_hook(const char *point)
{
	if (armed && !strcmp(point, "kv-archived") && segments(dir) >= 2)
		_exit(9);
}

/* A store that crashed so. Returns how many commits were answered. The crash is on another thread:
 * one commit more may be in the log whose answer was not counted. */
static unsigned crashed_store(void)
{
	unsigned *acked = mmap(NULL, sizeof(*acked), PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int status;
	pid_t pid;

	ck_assert_ptr_ne(acked, MAP_FAILED);
	pid = fork();
	if (!pid) {
		struct kv *kv = open_kv(&keep);

		armed = true;
		big = 60000;
		commits(kv, acked, 18); /* the first segment has a megabyte */
		big = 100;
		commits(kv, acked, 6);
		kv_close(kv);
		_exit(1);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 9, "status %x", status);
	ck_assert_uint_eq(segments(dir), 2);
	return *acked;
}

static void shell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void shell(const char *fmt, ...)
{
	char cmd[2000];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(cmd, sizeof(cmd), fmt, ap);
	va_end(ap);
	ck_assert_int_eq(system(cmd), 0);
}

/* The last segment's path and length. */
static long last_segment(char path[900])
{
	char folder[600], last[32] = "";
	struct dirent *e;
	struct stat st;
	DIR *d;

	snprintf(folder, sizeof(folder), "%s/archive", dir);
	d = opendir(folder);
	ck_assert_ptr_nonnull(d);
	while ((e = readdir(d)))
		if (strlen(e->d_name) == 16 && strcmp(e->d_name, last) > 0)
			snprintf(last, sizeof(last), "%.16s", e->d_name);
	closedir(d);
	snprintf(path, 900, "%s/%s", folder, last);
	ck_assert_int_eq(stat(path, &st), 0);
	return st.st_size;
}

/* What the cut leaves is cut off, or filled with zeros where the file's length is durable and its
 * bytes are not. Nothing is missing in the archive after recovery, and it is the same archive.
 * Returns how many commits it has, which are as many as "have" unless that is 0. */
static unsigned torn_at(long cut, long size, bool zeros, unsigned acked, unsigned have)
{
	struct kv_archive was, is;
	char path[900];
	struct kv *kv;
	unsigned n;

	shell("rm -rf %s/archive && cp -r --sparse=always %s.kept/. %s", dir, dir, dir);
	ck_assert_int_eq(last_segment(path), size);
	ck_assert_int_eq(truncate(path, cut), 0);
	if (zeros)
		ck_assert_int_eq(truncate(path, size), 0);
	/* Before recovery: what is whole can be read. */
	ck_assert_int_eq(kv_archive_look(dir, &was), 0);
	ck_assert_uint_ge(archived(&was, 0), 17);
	kv = open_kv(&keep);
	ck_assert_int_eq(kv_archive_look(dir, &is), 0);
	ck_assert_msg(!memcmp(was.ka_id, is.ka_id, sizeof(is.ka_id)),
		      "torn at byte %ld: the archive is another one", cut);
	ck_assert_uint_eq(is.ka_first, was.ka_first);
	ck_assert_uint_eq(is.ka_last, newest(kv));
	n = archived(&is, 0);
	ck_assert_msg(n == acked || n == acked + 1, "%u commits, %u answered", n, acked);
	ck_assert_uint_eq(n, have ? have : n);
	kv_close(kv);
	return n;
}

START_TEST(segment_that_a_crash_tore_takes_nothing_from_those_before)
{
	unsigned acked = crashed_store(), have = 0;
	char path[900];
	long size = last_segment(path);

	shell("cp -r --sparse=always %s %s.kept", dir, dir);
	/* The head, the first record's, and the end: each byte. */
	for (long cut = 0; cut <= size; cut += cut < 60 || cut + 4 > size ? 1 : 43)
		have = torn_at(cut, size, false, acked, have);
	for (long cut = 0; cut < 60; cut += 9)
		torn_at(cut, size, true, acked, have);
	shell("rm -r %s.kept", dir);
}
END_TEST

/* Each byte, without the recovery of the store: what the archive says it has, it gives. */
START_TEST(archive_that_ends_anywhere_can_be_read)
{
	unsigned most = crashed_store(), n;
	struct kv_archive a;
	char path[900];

	for (long cut = last_segment(path); cut >= 0; cut--) {
		ck_assert_int_eq(truncate(path, cut), 0);
		ck_assert_int_eq(kv_archive_look(dir, &a), 0);
		n = archived(&a, 0);
		ck_assert_uint_le(n, most); /* the fewer bytes, the fewer commits */
		most = n;
	}
	/* What the segment before has. */
	ck_assert_uint_ge(most, 17);
}
END_TEST

/* A full disk */

static void gap_is(const char *want)
{
	char why[KV_ARCHIVE_WHY] = "none";
	int64_t at = 0;

	kv_archive_gap(dir, &at, why);
	ck_assert_msg(strstr(why, want) != NULL, "%s", why);
	ck_assert_int_gt(at, time(NULL) - 600);
}

START_TEST(archive_comes_back_when_the_disk_has_room)
{
	struct kv *kv = open_kv(&keep);
	struct kv_archive a, b;
	struct kv_stats ks;
	unsigned i = 0, first;
	char why[KV_ARCHIVE_WHY];
	int64_t at;

	big = 20000;
	ck_assert(!kv_archive_gap(dir, &at, why));
	checkpoint(kv, &i);
	ck_assert_int_eq(kv_archive_look(dir, &a), 0);
	archived(&a, 0);
	fail_archive = ENOSPC;
	checkpoint(kv, &i);
	checkpoint(kv, &i);
	ck_assert_int_eq(kv_archive_look(dir, &b), -ENOENT);
	kv_stats(kv, &ks);
	ck_assert_int_eq(ks.ks_archive_err, -ENOSPC);
	gap_is("No space left on device");
	/* Still full, and then another error: it stays off, and no half of one is left. */
	fail_archive = EIO;
	checkpoint(kv, &i);
	ck_assert_int_eq(kv_archive_look(dir, &b), -ENOENT);
	kv_stats(kv, &ks);
	ck_assert_int_eq(ks.ks_archive_err, -EIO);
	fail_archive = 0;
	do {
		checkpoint(kv, &i);
	} while (kv_archive_look(dir, &b));
	kv_stats(kv, &ks);
	ck_assert_int_eq(ks.ks_archive_err, 0);
	gap_is("No space left on device");
	ck_assert_int_ne(memcmp(a.ka_id, b.ka_id, sizeof(a.ka_id)), 0);
	ck_assert_uint_gt(b.ka_first, a.ka_last + 1);
	/* The store's transactions and these commits go up together. */
	first = i - (unsigned)(newest(kv) - b.ka_first) - 1;
	kv_close(kv);
	ck_assert_int_eq(kv_archive_look(dir, &b), 0);
	ck_assert_uint_eq(archived(&b, first), i);
	kv = open_kv(&keep);
	ck_assert_uint_eq(b.ka_last, newest(kv));
	commits(kv, &i, 3);
	kv_close(kv);
	ck_assert_int_eq(kv_archive_look(dir, &b), 0);
	ck_assert_uint_eq(archived(&b, first), i);
}
END_TEST

START_TEST(archive_that_was_off_at_a_crash_goes_on_with_a_new_identity)
{
	unsigned i = 0;
	struct kv_archive a;
	struct kv *kv;
	int status;
	pid_t pid = fork();

	if (!pid) {
		kv = open_kv(&keep);
		big = 20000;
		checkpoint(kv, &i);
		fail_archive = ENOSPC;
		checkpoint(kv, &i);
		checkpoint(kv, &i);
		commits(kv, &i, 3);
		_exit(9);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 9);
	/* The disk is full at the next start, too. */
	fail_archive = ENOSPC;
	gap_is("No space left on device");
	kv_close(open_kv(&keep));
	ck_assert_int_lt(kv_archive_look(dir, &a), 0);
	fail_archive = 0;
	kv = open_kv(&keep);
	ck_assert_int_eq(kv_archive_look(dir, &a), 0);
	ck_assert_uint_eq(a.ka_last, newest(kv));
	gap_is("No space left on device");
	kv_close(kv);
}
END_TEST

/* Each way to lose the archive on purpose says its reason. */
static uint64_t archive_size(void)
{
	char folder[300], path[900];
	struct dirent *e;
	uint64_t n = 0;
	struct stat st;
	DIR *d;

	snprintf(folder, sizeof(folder), "%s/archive", dir);
	d = opendir(folder);
	ck_assert_ptr_nonnull(d);
	while ((e = readdir(d))) {
		snprintf(path, sizeof(path), "%s/%.16s", folder, e->d_name);
		if (e->d_name[0] != '.' && !stat(path, &st))
			n += (uint64_t)st.st_size;
	}
	closedir(d);
	return n;
}

/* A program that repairs the store, and reads no configuration. */
START_TEST(program_without_a_limit_keeps_that_of_the_server)
{
	struct kv_opts server = {.ko_create = true, .ko_archive = 3 * MIB}, repair = {0};
	unsigned i = 1;
	struct kv *kv;

	kv_close(open_kv(&server));
	big = 100000;
	for (int known = 1; known >= 0; known--) {
		uint64_t max = known ? 5 * MIB : 18 * MIB;

		if (!known)
			shell("rm %s/archive-limit", dir);
		kv = open_kv(&repair);
		commits(kv, &i, 300); /* of 100 kB each */
		kv_close(kv);
		ck_assert_uint_le(archive_size(), max);
		ck_assert_uint_gt(archive_size(), 2 * MIB);
	}
	big = 100;
}
END_TEST

START_TEST(gap_has_its_reason)
{
	struct kv_opts off = {.ko_archive = -1},
		       again = {.ko_archive = ARCHIVE, .ko_archive_new = true};
	char path[900], why[KV_ARCHIVE_WHY];
	unsigned i = 0;
	int64_t at;
	struct kv *kv = open_kv(&keep);

	commits(kv, &i, 3);
	kv_close(kv);
	ck_assert(!kv_archive_gap(dir, &at, why));
	kv_close(open_kv(&off));
	gap_is("without mds.backup_log");
	kv_close(open_kv(&off)); /* there is none to lose: the time stays that of the loss */
	kv_close(open_kv(&keep));
	gap_is("without mds.backup_log");
	kv_close(open_kv(&again));
	gap_is("put back");
	/* The store goes on without the archive being written. */
	last_segment(path);
	shell("cp -r %s/archive %s.old", dir, dir);
	kv = open_kv(&keep);
	commits(kv, &i, 3);
	kv_close(kv);
	shell("rm -r %s/archive && mv %s.old %s/archive", dir, dir, dir);
	kv_close(open_kv(&keep));
	gap_is("not of the state");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("kv_archive");
	TCase *c = tcase_create("kv_archive");

	log_set_level((enum log_level) - 1);
	tcase_add_checked_fixture(c, setup, teardown);
	tcase_set_timeout(c, 120);
	tcase_add_test(c, segment_that_a_crash_tore_takes_nothing_from_those_before);
	tcase_add_test(c, archive_that_ends_anywhere_can_be_read);
	tcase_add_test(c, archive_comes_back_when_the_disk_has_room);
	tcase_add_test(c, archive_that_was_off_at_a_crash_goes_on_with_a_new_identity);
	tcase_add_test(c, program_without_a_limit_keeps_that_of_the_server);
	tcase_add_test(c, gap_has_its_reason);
	suite_add_tcase(s, c);
	return unit_run(s);
}
