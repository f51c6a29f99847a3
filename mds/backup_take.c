/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backup_take.c - takes a backup of a store, beside its server or without one (docs/backup.md).
 *
 * A full backup has every row of one snapshot. An incremental one has the writes since the backup
 * before it, from the archive of the store's log (kv_archive.c). Nothing is asked of the server: it
 * goes on as if another process read the store.
 */
#include "mds/backup.h"
#include "base/clock.h"
#include "common/version.h"
#include "mds/layout/lo.h"
#include <errno.h>
#include <inttypes.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* How long the archive may take to reach the snapshot; it lags by the time between checkpoints. */
#define TAKE_WAIT_MS 60000
#define TAKE_POLL_MS 50
/* A server that recovers waits 5 seconds for readers (kv_checkpoint.c). */
#define TAKE_LOOK_MS   500
#define TAKE_LOOKS_BAD 3u

int backup_say(const char *fmt, ...)
{
	va_list ap;

	fflush(stdout);
	fputs("weft: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	return BACKUP_FAILED;
}

/* The store */

/* Ends this process where it keeps a server from starting again after a crash. */
static void *take_watch(void *arg)
{
	const char *store = arg;
	unsigned bad = 0;

	for (;;) {
		usleep(TAKE_LOOK_MS * 1000);
		bad = kv_reader_in_the_way(store) ? bad + 1 : 0;
		if (bad < TAKE_LOOKS_BAD)
			continue;
		backup_say("%s: its server ended without closing the store: this process gives "
			   "way to the server that recovers it; begin again then",
			   store);
		_exit(BACKUP_FAILED);
	}
	return NULL;
}

bool backup_store_open(struct backup_store *s, const char *path)
{
	struct kv_opts o = {.ko_readonly = true};
	char err[512] = "";
	pthread_t t;
	int rc;

	*s = (struct backup_store){.bs_path = path};
	rc = kv_open(&s->bs_kv, path, &o, err, sizeof(err));
	if (rc) {
		backup_say("%s", err[0] ? err : strerror(-rc));
		return false;
	}
	rc = kv_read_begin(s->bs_kv, &s->bs_txn);
	if (!rc)
		rc = ns_super_get(s->bs_txn, &s->bs_super);
	if (!rc)
		rc = -pthread_create(&t, NULL, take_watch, (void *)path);
	if (!rc) {
		pthread_detach(t);
		return true;
	}
	backup_say("%s: %s", path,
		   rc == -ENOENT ? "the store is empty: its server has never started"
				 : strerror(-rc));
	backup_store_close(s);
	return false;
}

void backup_store_close(struct backup_store *s)
{
	if (s->bs_txn)
		kv_read_end(s->bs_txn);
	kv_close(s->bs_kv);
}

/* What goes into a backup */

struct take {
	const struct backup_args *t_args;
	struct backup_store t_store;
	struct backup_head t_head;
	struct backup_out t_out;
	const char *t_name; /* for messages */
	size_t t_removed;   /* older backups */
	bool t_unsure;	    /* a full backup of the folder may be another store's */
};

static void take_head(struct take *t)
{
	struct backup_head *h = &t->t_head;
	struct kv_archive a;
	int rc = kv_archive_look(t->t_store.bs_path, &a);

	/* -EIO: the server may be making the next segment just now. */
	for (unsigned i = 0; rc == -EIO && i < 20; i++) {
		usleep(50000);
		rc = kv_archive_look(t->t_store.bs_path, &a);
	}
	*h = (struct backup_head){.bh_full = true,
				  .bh_to = kv_read_number(t->t_store.bs_txn),
				  .bh_boot = t->t_store.bs_super.su_boot,
				  .bh_incarnation = t->t_store.bs_super.su_incarnation,
				  .bh_made_at = time(NULL)};
	lo_uuid_text(t->t_store.bs_super.su_uuid, h->bh_cluster);
	snprintf(h->bh_program, sizeof(h->bh_program), "%.60s", version_text);
	randombytes_buf(h->bh_id, sizeof(h->bh_id));
	/* An archive that begins after this snapshot has a gap. */
	h->bh_logged = !rc && a.ka_first <= h->bh_to + 1;
	if (h->bh_logged)
		memcpy(h->bh_log, a.ka_id, sizeof(h->bh_log));
}

static int take_full(struct take *t)
{
	struct kv_slice none = {"", 0};
	struct kv_write w = {.w_del = false};
	struct kv_scan sc;
	int rc = kv_scan_begin(t->t_store.bs_txn, none, none, &sc);

	if (rc)
		return rc;
	while ((rc = kv_scan_next(&sc, &w.w_key, &w.w_val)) > 0) {
		rc = backup_out_put(&t->t_out, t->t_head.bh_to, &w);
		if (rc)
			break;
	}
	kv_scan_end(&sc);
	return rc;
}

static int take_write(void *arg, uint64_t txn, const struct kv_write *w)
{
	struct take *t = arg;

	return backup_out_put(&t->t_out, txn, w);
}

/* Why the server's log for backups has no more than it has, or is not there. */
static void take_gap(const struct take *t, char *out, size_t max)
{
	char why[KV_ARCHIVE_WHY], when[32];
	int64_t at;
	time_t s;
	struct tm tm;

	if (!kv_archive_gap(t->t_store.bs_path, &at, why)) {
		snprintf(out, max, "mds.backup_log is 0, or was");
		return;
	}
	s = (time_t)at;
	if (!gmtime_r(&s, &tm) || !strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", &tm))
		snprintf(when, sizeof(when), "%" PRId64 " s", at);
	snprintf(out, max, "it ended at %s: %s", when, why);
}

/* The head of an incremental backup after prev: with what the archive has, this snapshot at least.
 * False: it was said why not. */
static bool take_after(struct take *t, const struct backup_head *prev, const char *name)
{
	const char *full = "make a full backup (weft backup without --incremental)";
	char gap[KV_ARCHIVE_WHY + 80];
	uint64_t want = t->t_head.bh_to, until = clock_mono_ms() + TAKE_WAIT_MS;
	struct kv_archive a = {.ka_last = 0};
	int rc;

	if (strcmp(prev->bh_cluster, t->t_head.bh_cluster) != 0)
		return backup_say("%s is a backup of another store, of cluster %s", name,
				  prev->bh_cluster),
		       false;
	take_gap(t, gap, sizeof(gap));
	if (!prev->bh_logged)
		return backup_say("%s was made while the server kept no log for backups (%s): set "
				  "mds.backup_log, and %s",
				  name, gap, full),
		       false;
	while ((rc = kv_archive_look(t->t_store.bs_path, &a)) == -EIO ||
	       (!rc && a.ka_last < want && !memcmp(a.ka_id, prev->bh_log, 16))) {
		if (clock_mono_ms() >= until)
			return backup_say("%s: the server has not written its log for backups for "
					  "%u s",
					  t->t_store.bs_path, TAKE_WAIT_MS / 1000),
			       false;
		usleep(TAKE_POLL_MS * 1000);
	}
	if (rc == -ENOENT)
		return backup_say("%s: the server keeps no log for backups (%s): set "
				  "mds.backup_log, and %s",
				  t->t_store.bs_path, gap, full),
		       false;
	if (rc)
		return backup_say("%s/archive: %s", t->t_store.bs_path, strerror(-rc)), false;
	if (!memcmp(a.ka_id, prev->bh_log, 16) && a.ka_first > prev->bh_to + 1)
		snprintf(gap, sizeof(gap), "it has no room for more: raise mds.backup_log");
	if (memcmp(a.ka_id, prev->bh_log, 16) != 0 || a.ka_first > prev->bh_to + 1 ||
	    a.ka_last < prev->bh_to)
		return backup_say("the log that the server keeps does not reach back to %s (%s): "
				  "%s",
				  name, gap, full),
		       false;
	t->t_head.bh_full = false;
	t->t_head.bh_logged = true;
	memcpy(t->t_head.bh_log, a.ka_id, sizeof(t->t_head.bh_log));
	t->t_head.bh_from = prev->bh_to;
	t->t_head.bh_to = a.ka_last;
	return true;
}

static bool take_rows(struct take *t, int fd)
{
	int rc = backup_out_begin(&t->t_out, fd, &t->t_head);

	if (!rc)
		rc = t->t_head.bh_full ? take_full(t)
				       : kv_archive_read(t->t_store.bs_path, t->t_head.bh_log,
							 t->t_head.bh_from + 1, t->t_head.bh_to,
							 take_write, t);
	if (!rc)
		rc = backup_out_end(&t->t_out);
	backup_out_free(&t->t_out);
	if (rc == -ESTALE)
		backup_say("the log that the server keeps lost its begin meanwhile: make a full "
			   "backup, and give mds.backup_log more room");
	else if (rc)
		backup_say("%s: %s", t->t_name, strerror(-rc));
	return !rc;
}

/* The server, and weft health, see when the last backup was made. */
static void take_note(const struct take *t)
{
	char path[PATH_MAX], tmp[PATH_MAX + 4], text[200];
	int fd, n, rc;

	if (snprintf(path, sizeof(path), "%s/last-backup", t->t_store.bs_path) >= (int)sizeof(path))
		return;
	snprintf(tmp, sizeof(tmp), "%s.new", path);
	/* One that is there may have another mode, or be open. */
	unlink(tmp);
	n = snprintf(text, sizeof(text), "{\"made_at\":%ld,\"kind\":\"%s\",\"to\":%lu}\n",
		     (long)t->t_head.bh_made_at, t->t_head.bh_full ? "full" : "incremental",
		     (unsigned long)t->t_head.bh_to);
	/* The folder is the service's, and root may run this: no link of its is followed. */
	unlink(tmp);
	fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	rc = fd < 0 ? -errno : backup_write(fd, text, (size_t)n);
	if (fd >= 0 && fchmod(fd, 0644))
		rc = -errno;
	if (fd >= 0)
		close(fd);
	if (!rc && rename(tmp, path))
		rc = -errno;
	if (rc)
		backup_say("%s: %s: weft health does not know of this backup", path, strerror(-rc));
}

static int take_done(const struct take *t)
{
	const struct backup_head *h = &t->t_head;
	const char *kind = h->bh_full ? "full" : "incremental";
	char gap[KV_ARCHIVE_WHY + 80];
	json_t *j;

	if (!strcmp(t->t_name, "-"))
		return BACKUP_DONE;
	take_gap(t, gap, sizeof(gap));
	if (!t->t_args->ba_json) {
		printf("%s: %s backup, transactions %lu to %lu, %lu writes, %lu bytes%s%s%s",
		       t->t_name, kind, (unsigned long)h->bh_from, (unsigned long)h->bh_to,
		       (unsigned long)t->t_out.bo_writes, (unsigned long)t->t_out.bo_bytes,
		       h->bh_logged ? "" : "; no incremental one can follow it (no log: ",
		       h->bh_logged ? "" : gap, h->bh_logged ? "" : ")");
		if (t->t_removed)
			printf("; older ones removed: %zu", t->t_removed);
		putchar('\n');
	} else {
		j = json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:b, s:I}", "file", t->t_name, "kind",
			      kind, "from", (json_int_t)h->bh_from, "to", (json_int_t)h->bh_to,
			      "writes", (json_int_t)t->t_out.bo_writes, "size_bytes",
			      (json_int_t)t->t_out.bo_bytes, "logged", h->bh_logged, "removed",
			      (json_int_t)t->t_removed);
		if (j)
			json_dumpf(j, stdout, JSON_COMPACT);
		putchar('\n');
		json_decref(j);
	}
	return fflush(stdout) ? backup_say("cannot write to standard output") : BACKUP_DONE;
}

/* Reads the first line of a backup, and checks the last: the one to go on from must be whole. */
static bool take_before(const char *path, struct backup_head *h)
{
	struct backup_in *in = malloc(sizeof(*in));
	int fd = open(path, O_RDONLY | O_CLOEXEC), rc = fd < 0 || !in ? -errno : 0;

	if (in)
		backup_in_init(in, fd, path);
	if (!rc)
		rc = backup_in_begin(in);
	if (rc == 1)
		*h = in->bi_head;
	while (rc == 1)
		rc = backup_in_next(in);
	if (rc)
		backup_say("%s: %s", path, in && *in->bi_why ? in->bi_why : strerror(-rc));
	if (fd >= 0)
		close(fd);
	if (in)
		backup_in_free(in);
	free(in);
	return !rc;
}

static bool take_sync_folder(const char *folder)
{
	int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	bool ok = fd >= 0 && !fsync(fd);

	if (!ok)
		backup_say("%s: %s", folder, strerror(errno));
	if (fd >= 0)
		close(fd);
	return ok;
}

/* Whose store a full backup is of: it has that store's super record, and is read as far as that.
 * 0; or -errno, and one line in why: it cannot be known. */
static int take_whose(const char *path, struct ns_super *su, char *why, size_t max)
{
	struct backup_in *in = malloc(sizeof(*in));
	int fd = open(path, O_RDONLY | O_CLOEXEC), rc = fd < 0 || !in ? -errno : 0;
	bool found = false;
	struct kv_write w;
	uint64_t inodes;

	if (in)
		backup_in_init(in, fd, path);
	if (!rc)
		rc = backup_in_begin(in);
	while (rc == 1 && !found && (rc = backup_in_next(in)) == 1)
		while (!found && kv_rows_write(&in->bi_rows, &w))
			found = w.w_key.s_len == 1 && *(const char *)w.w_key.s_data == NS_K_SUPER;
	if (found)
		rc = w.w_del ? -EIO : ns_super_decode(w.w_val, su, &inodes);
	else if (rc >= 0)
		rc = -ENODATA;
	if (rc)
		snprintf(why, max, "%s", in && *in->bi_why ? in->bi_why : strerror(-rc));
	if (fd >= 0)
		close(fd);
	if (in)
		backup_in_free(in);
	free(in);
	return rc;
}

static bool take_is_full(const char *path)
{
	return strstr(strrchr(path, '/'), "-full.weft") != NULL;
}

/* A folder has the backups of one store: --keep counts its full ones, and weft restore takes the
 * newest. False: there is one of another store, and it was said. */
static bool take_own_folder(struct take *t, const struct backup_set *set)
{
	const struct ns_super *own = &t->t_store.bs_super;
	char uuid[BACKUP_UUID_TEXT], why[400];
	struct ns_super su;

	for (size_t i = 0; i < set->bk_n; i++) {
		const char *path = set->bk_path[i];

		if (!take_is_full(path))
			continue;
		if (take_whose(path, &su, why, sizeof(why))) {
			t->t_unsure = true;
			if (t->t_args->ba_keep)
				backup_say("%s: whose store it is of cannot be read (%s): --keep "
					   "removes nothing until you remove this file",
					   path, why);
			continue;
		}
		if (su.su_fs == own->su_fs && !memcmp(su.su_uuid, own->su_uuid, 16))
			continue;
		lo_uuid_text(su.su_uuid, uuid);
		return backup_say("%s is a backup of another store, of file system %u of cluster "
				  "%s, and this is file system %u of cluster %s: each has a "
				  "folder of its own",
				  path, su.su_fs, uuid, own->su_fs, t->t_head.bh_cluster),
		       false;
	}
	return true;
}

/* Removes all backups that are older than the newest --keep full ones, the last of them first: what
 * a kill leaves is still full backups, each with those that follow it. set: those that were there
 * before this one. False: it was said why. */
static bool take_keep(struct take *t, const char *folder, const struct backup_set *set)
{
	unsigned full = 1;
	size_t i;
	int rc = 0;

	if (t->t_unsure)
		return false;
	for (i = set->bk_n; i && full < t->t_args->ba_keep; i--)
		full += take_is_full(set->bk_path[i - 1]);
	for (; !rc && i; i--) {
		rc = unlink(set->bk_path[i - 1]) ? -errno : 0;
		if (rc)
			backup_say("%s is too old to keep, and cannot be removed: %s",
				   set->bk_path[i - 1], strerror(-rc));
		else
			t->t_removed++;
	}
	return !rc && (!t->t_removed || take_sync_folder(folder));
}

/* The backup is written under another name, and renamed when it is durable. */
static int backup_take_file(struct take *t, const char *folder, const char *path,
			    const struct backup_set *set)
{
	char tmp[PATH_MAX + 8];
	int fd;
	bool ok;

	snprintf(tmp, sizeof(tmp), "%s.new", path);
	fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	t->t_name = path;
	if (fd < 0)
		return backup_say("%s: %s", tmp, strerror(errno));
	ok = take_rows(t, fd);
	if (ok && fsync(fd)) {
		backup_say("%s: %s", tmp, strerror(errno));
		ok = false;
	}
	close(fd);
	if (ok && rename(tmp, path)) {
		backup_say("%s: %s", path, strerror(errno));
		ok = false;
	}
	if (!ok)
		unlink(tmp);
	if (!ok || !take_sync_folder(folder))
		return BACKUP_FAILED;
	take_note(t);
	ok = !t->t_args->ba_keep || take_keep(t, folder, set);
	return take_done(t) == BACKUP_DONE && ok ? BACKUP_DONE : BACKUP_FAILED;
}

static int take_to_pipe(struct take *t)
{
	struct backup_head prev;

	t->t_name = "-";
	if (isatty(STDOUT_FILENO))
		return backup_say("a backup is no text for a terminal: redirect it");
	if (t->t_args->ba_incremental && (!take_before(t->t_args->ba_after, &prev) ||
					  !take_after(t, &prev, t->t_args->ba_after)))
		return BACKUP_FAILED;
	if (!take_rows(t, STDOUT_FILENO))
		return BACKUP_FAILED;
	take_note(t);
	return BACKUP_DONE;
}

/* What a process that was killed has left of the backup that comes next. The folder is locked. */
static void take_tidy(const char *folder, unsigned number)
{
	char path[PATH_MAX];

	for (unsigned full = 0; full < 2; full++)
		if (snprintf(path, sizeof(path), "%s/%04u-%s.weft.new", folder, number,
			     full ? "full" : "incremental") < (int)sizeof(path))
			unlink(path);
}

static int take_to_folder(struct take *t, const char *folder)
{
	struct backup_head prev;
	struct backup_set set;
	char path[PATH_MAX];
	int rc, dir;
	bool ok = true;

	if (mkdir(folder, 0700) && errno != EEXIST)
		return backup_say("%s: %s", folder, strerror(errno));
	dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0 || flock(dir, LOCK_EX | LOCK_NB))
		return backup_say("%s: %s", folder,
				  errno == EWOULDBLOCK ? "another backup is being made there"
						       : strerror(errno));
	rc = backup_set_list(folder, &set);
	if (rc)
		return backup_say("%s: %s", folder, strerror(-rc));
	take_tidy(folder, set.bk_last + 1);
	if (t->t_args->ba_incremental && !set.bk_n)
		ok = backup_say("%s: there is no backup that an incremental one could follow: "
				"make a full one first",
				folder) == BACKUP_DONE;
	else if (t->t_args->ba_incremental)
		ok = take_before(set.bk_path[set.bk_n - 1], &prev) &&
		     take_after(t, &prev, set.bk_path[set.bk_n - 1]);
	else
		ok = take_own_folder(t, &set);
	snprintf(path, sizeof(path), "%s/%04u-%s.weft", folder, set.bk_last + 1,
		 t->t_head.bh_full ? "full" : "incremental");
	rc = ok ? backup_take_file(t, folder, path, &set) : BACKUP_FAILED;
	backup_set_free(&set);
	close(dir);
	return rc;
}

int backup_take(const struct backup_args *a, const char *folder)
{
	struct take t = {.t_args = a};
	int rc;

	if (!backup_store_open(&t.t_store, a->ba_store))
		return BACKUP_FAILED;
	take_head(&t);
	rc = folder ? take_to_folder(&t, folder) : take_to_pipe(&t);
	backup_store_close(&t.t_store);
	return rc;
}
