/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backup_restore.c - checks backups, and makes a store of them (docs/backup.md). Everything is read
 * and checked before the first row is written; what is written is read and checked once more.
 */
#include "mds/backup.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* A folder of backups */

static bool set_number(const char *name, unsigned *number)
{
	char kind[16] = "", again[64];

	if (sscanf(name, "%9u-%15[a-z].weft", number, kind) != 2 ||
	    (strcmp(kind, "full") != 0 && strcmp(kind, "incremental") != 0))
		return false;
	snprintf(again, sizeof(again), "%04u-%s.weft", *number, kind);
	return !strcmp(again, name);
}

static int set_order(const void *a, const void *b)
{
	const char *x = strrchr(*(char *const *)a, '/'), *y = strrchr(*(char *const *)b, '/');
	unsigned long i = strtoul(x + 1, NULL, 10), k = strtoul(y + 1, NULL, 10);

	return (i > k) - (i < k);
}

static int set_add(struct backup_set *set, const char *folder, const char *name)
{
	char **more = realloc(set->bk_path, (set->bk_n + 1) * sizeof(*more));

	if (!more)
		return -ENOMEM;
	set->bk_path = more;
	if (asprintf(&more[set->bk_n], "%s/%s", folder, name) < 0)
		return -ENOMEM;
	set->bk_n++;
	return 0;
}

int backup_set_list(const char *folder, struct backup_set *set)
{
	DIR *d = opendir(folder);
	unsigned number;
	struct dirent *e;
	int rc = 0;

	*set = (struct backup_set){.bk_n = 0};
	if (!d)
		return -errno;
	while (!rc && (e = readdir(d))) {
		if (!set_number(e->d_name, &number))
			continue;
		rc = set_add(set, folder, e->d_name);
		if (number > set->bk_last)
			set->bk_last = number;
	}
	closedir(d);
	if (set->bk_n)
		qsort(set->bk_path, set->bk_n, sizeof(set->bk_path[0]), set_order);
	if (rc)
		backup_set_free(set);
	return rc;
}

void backup_set_free(struct backup_set *set)
{
	for (size_t i = 0; i < set->bk_n; i++)
		free(set->bk_path[i]);
	free(set->bk_path);
	*set = (struct backup_set){.bk_n = 0};
}

/* What is read */

struct sources {
	struct backup_set s_set; /* files, in order */
	int s_spool;		 /* -1, or a copy of standard input: then there are no files */
	struct backup_in s_in;
	/* The backup that was read last: */
	bool s_any;
	struct backup_head s_head;
	const char *s_name;
	uint64_t s_rows;
};

static void sources_free(struct sources *s)
{
	if (!s)
		return;
	if (s->s_spool >= 0)
		close(s->s_spool);
	backup_in_free(&s->s_in);
	backup_set_free(&s->s_set);
	free(s);
}

/* Of a folder: all backups, or those from the newest full one on. */
static int sources_folder(struct sources *s, const char *folder, bool all)
{
	struct backup_set set;
	size_t first = 0;
	int rc = backup_set_list(folder, &set);

	for (size_t i = 0; !rc && !all && i < set.bk_n; i++)
		if (strstr(strrchr(set.bk_path[i], '/'), "-full.weft"))
			first = i;
	for (size_t i = first; !rc && i < set.bk_n; i++)
		rc = set_add(&s->s_set, folder, strrchr(set.bk_path[i], '/') + 1);
	if (!rc && !set.bk_n)
		rc = backup_say("%s: the folder has no backup", folder);
	else if (rc)
		backup_say("%s: %s", folder, strerror(-rc));
	backup_set_free(&set);
	return rc;
}

static struct sources *sources_of(char **names, int n, bool all)
{
	struct sources *s = calloc(1, sizeof(*s));
	struct stat st;
	int rc = s ? 0 : backup_say("out of memory");

	if (s)
		s->s_spool = -1;
	for (int i = 0; !rc && i < n; i++) {
		char *slash = strrchr(names[i], '/');

		if (stat(names[i], &st)) {
			rc = backup_say("%s: %s", names[i], strerror(errno));
		} else if (S_ISDIR(st.st_mode)) {
			rc = sources_folder(s, names[i], all);
		} else if (slash) {
			char *folder = strndup(names[i], (size_t)(slash - names[i]));

			rc = folder ? set_add(&s->s_set, folder, slash + 1) : -ENOMEM;
			free(folder);
		} else {
			rc = set_add(&s->s_set, ".", names[i]);
		}
	}
	if (!rc)
		return s;
	sources_free(s);
	return NULL;
}

/* Copies standard input to a file without a name. */
static struct sources *sources_stdin(const char *folder)
{
	struct sources *s = calloc(1, sizeof(*s));
	char buf[65536];
	ssize_t n = 1;

	if (!s) {
		backup_say("out of memory");
		return NULL;
	}
	s->s_spool = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	while (s->s_spool >= 0 && (n = read(STDIN_FILENO, buf, sizeof(buf))) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		errno = n < 0 ? errno : -backup_write(s->s_spool, buf, (size_t)n);
		if (errno)
			break;
	}
	if (s->s_spool >= 0 && !n)
		return s;
	backup_say("%s: standard input: %s", folder, strerror(errno));
	sources_free(s);
	return NULL;
}

/* Does this backup follow the one that was read last? chain: one full backup, and what follows
 * it. */
static bool sources_follows(struct sources *s, bool chain)
{
	const struct backup_head *h = &s->s_in.bi_head, *was = &s->s_head;
	const char *name = s->s_in.bi_name;

	if (h->bh_full && !(chain && s->s_any))
		return true;
	if (h->bh_full)
		return backup_say("%s: a full backup cannot follow another backup", name), false;
	if (!s->s_any)
		return backup_say("%s: an incremental backup comes first; the full backup that it "
				  "follows is missing",
				  name),
		       false;
	if (strcmp(h->bh_cluster, was->bh_cluster) != 0)
		return backup_say("%s: is of cluster %s, and %s is of cluster %s", name,
				  h->bh_cluster, s->s_name, was->bh_cluster),
		       false;
	if (!was->bh_logged || memcmp(h->bh_log, was->bh_log, sizeof(h->bh_log)) != 0)
		return backup_say("%s: follows another log than that of %s", name, s->s_name),
		       false;
	if (h->bh_from != was->bh_to)
		return backup_say("%s: follows transaction %lu, and %s ends with transaction %lu: "
				  "a backup is missing between them, or the order is wrong",
				  name, (unsigned long)h->bh_from, s->s_name,
				  (unsigned long)was->bh_to),
		       false;
	return true;
}

struct reading {
	struct sources *r_s;
	bool r_chain;
	bool (*r_record)(void *arg, struct kv_rows_in *rows); /* NULL: only check */
	void (*r_backup)(void *arg, const struct backup_in *in);
	void *r_arg;
};

static bool reading_backup(struct reading *r)
{
	struct sources *s = r->r_s;
	struct backup_in *in = &s->s_in;
	int rc;

	if (!sources_follows(s, r->r_chain))
		return false;
	while ((rc = backup_in_next(in)) > 0)
		if (r->r_record && !r->r_record(r->r_arg, &in->bi_rows))
			return false;
	if (rc)
		return backup_say("%s: %s", in->bi_name, in->bi_why), false;
	s->s_any = true;
	s->s_head = in->bi_head;
	s->s_name = in->bi_name;
	s->s_rows += in->bi_writes;
	if (r->r_backup)
		r->r_backup(r->r_arg, in);
	return true;
}

/* A file may have several backups, one behind the other. */
static bool reading_file(struct reading *r, int fd, const char *name)
{
	struct backup_in *in = &r->r_s->s_in;
	bool any = false;
	int rc;

	backup_in_free(in);
	backup_in_init(in, fd, name);
	while ((rc = backup_in_begin(in)) > 0) {
		any = true;
		if (!reading_backup(r))
			return false;
	}
	if (rc)
		return backup_say("%s: %s", name, in->bi_why), false;
	if (!any)
		return backup_say("%s: the file is empty", name), false;
	return true;
}

static bool reading_all(struct reading *r)
{
	struct sources *s = r->r_s;
	bool ok = true;

	s->s_any = false;
	s->s_rows = 0;
	if (s->s_spool >= 0)
		return lseek(s->s_spool, 0, SEEK_SET) == 0 &&
		       reading_file(r, s->s_spool, "standard input");
	for (size_t i = 0; ok && i < s->s_set.bk_n; i++) {
		int fd = open(s->s_set.bk_path[i], O_RDONLY | O_CLOEXEC);

		if (fd < 0)
			return backup_say("%s: %s", s->s_set.bk_path[i], strerror(errno)), false;
		ok = reading_file(r, fd, s->s_set.bk_path[i]);
		close(fd);
	}
	return ok;
}

/* Verify */

static void verify_one(void *arg, const struct backup_in *in)
{
	const struct backup_head *h = &in->bi_head;
	char when[32];
	time_t at = (time_t)h->bh_made_at;
	struct tm tm;
	json_t *j;

	if (!*(const bool *)arg) {
		strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&at, &tm));
		printf("%s: whole: %s of %s, transactions %lu to %lu, %lu writes\n", in->bi_name,
		       h->bh_full ? "full" : "incremental", when, (unsigned long)h->bh_from,
		       (unsigned long)h->bh_to, (unsigned long)in->bi_writes);
		return;
	}
	j = json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I}", "file", in->bi_name, "kind",
		      h->bh_full ? "full" : "incremental", "cluster", h->bh_cluster, "from",
		      (json_int_t)h->bh_from, "to", (json_int_t)h->bh_to, "made_at",
		      (json_int_t)h->bh_made_at, "writes", (json_int_t)in->bi_writes);
	if (j)
		json_dumpf(j, stdout, JSON_COMPACT);
	putchar('\n');
	json_decref(j);
}

int backup_verify(char **names, int n, bool json)
{
	struct sources *s = sources_of(names, n, true);
	struct reading r = {.r_s = s, .r_backup = verify_one, .r_arg = &json};
	bool ok = s && reading_all(&r);

	sources_free(s);
	if (fflush(stdout))
		return backup_say("cannot write to standard output");
	return ok ? BACKUP_DONE : BACKUP_FAILED;
}

/* Restore */

struct load {
	struct kv *l_kv;
	struct kv_rows_in *l_rows;
};

static int backup_restore_load_run(void *arg, struct kv_txn *t)
{
	struct load *l = arg;
	struct kv_write w;
	int rc = 0;

	while (!rc && kv_rows_write(l->l_rows, &w))
		rc = w.w_del ? kv_del(t, w.w_key) : kv_put(t, w.w_key, w.w_val);
	return rc;
}

static bool load_record(void *arg, struct kv_rows_in *rows)
{
	struct load *l = arg;
	int rc;

	l->l_rows = rows;
	rc = kv_run_sync(l->l_kv, backup_restore_load_run, l);
	if (rc)
		backup_say("transaction %lu cannot be put back: %s", (unsigned long)rows->ri_txn,
			   rc == -ENOENT ? "it does not fit what comes before it" : strerror(-rc));
	return !rc;
}

static bool restore_into(struct backup_build *b, struct sources *s)
{
	struct reading check = {.r_s = s, .r_chain = true};
	struct load l = {.l_kv = NULL};
	struct reading load = {.r_s = s, .r_chain = true, .r_record = load_record, .r_arg = &l};

	if (!reading_all(&check) || !backup_build_open(b))
		return false;
	l.l_kv = b->bb_kv;
	return reading_all(&load) && backup_build_end(b);
}

int backup_restore(const struct backup_args *a, char **names, int n)
{
	bool piped = n == 1 && !strcmp(names[0], "-");
	struct sources *s = piped ? NULL : sources_of(names, n, false);
	struct backup_build b;
	char what[200], when[32];
	struct tm tm;
	time_t at;

	if (!piped && !s)
		return BACKUP_FAILED;
	if (!backup_build_begin(&b, a)) {
		backup_build_undo(&b);
		sources_free(s);
		return BACKUP_FAILED;
	}
	if (piped)
		s = sources_stdin(b.bb_work);
	if (!s || !restore_into(&b, s)) {
		backup_build_undo(&b);
		sources_free(s);
		return BACKUP_FAILED;
	}
	at = (time_t)s->s_head.bh_made_at;
	strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&at, &tm));
	snprintf(what, sizeof(what), "the store is as it was at %s (transaction %lu, %lu writes)",
		 when, (unsigned long)s->s_head.bh_to, (unsigned long)s->s_rows);
	sources_free(s);
	return backup_build_next(a, what);
}
