/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weft-fsck - checks a metadata store and changes nothing, except with --rebuild-sums.
 *
 *	weft-fsck [--json] [--rebuild-sums] STORE
 *	weft-fsck [--json] --log CONNINFO --instance N [STORE]
 *
 * Prints one line per violation on stdout, then a summary. Exit: 0 clean, 1 violations, 2 usage
 * error, 3 the store cannot be read. The rules for the name space are in mds/namespace/ns_check.c,
 * the rules for layout maps and repairs are here. It reads one snapshot: beside a running weft-mds
 * it checks what was committed when it began.
 */
#include "base/log.h"
#include "common/version.h"
#include "mds/conn_rows.h"
#include "mds/pg_check.h"
#include "mds/layout/repair_row.h"
#include "mds/layout/relocate.h"
#include "mds/layout/pending_layout.h"
#include "mds/jobs/tag.h"
#include "mds/jobs/trash.h"
#include "mds/layout/pin_row.h"
#include "mds/namespace/keys.h"
#include "mds/namespace/ns_sum.h"
#include <errno.h>
#include <getopt.h>
#include <grp.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { EXIT_CLEAN = 0, EXIT_VIOLATIONS = 1, EXIT_USAGE = 2, EXIT_UNREADABLE = 3 };

struct report {
	bool re_json, re_any;
};

static void fsck_usage(FILE *f)
{
	fputs("usage: weft-fsck [--json] [--rebuild-sums] STORE\n"
	      "       weft-fsck [--json] --log CONNINFO --instance N [STORE]\n"
	      "       weft-fsck --version\n"
	      "Checks the metadata store in the folder STORE. Changes nothing, except with\n"
	      "--rebuild-sums: that first computes the sums of weft du again. No server may run.\n"
	      "--log: checks the log of instance N in PostgreSQL (weft pg verify).\n"
	      "Exit status: 0 clean, 1 violations, 2 usage error, 3 the store cannot be read.\n",
	      f);
}

static void print_string(const char *s)
{
	json_t *j = json_string(s);

	/* NULL: it is not UTF-8. Only a path on the command line can be that. */
	if (j)
		json_dumpf(j, stdout, JSON_ENCODE_ANY);
	else
		fputs("null", stdout);
	json_decref(j);
}

/* Prints lines as they are found: a damaged store may have millions. */
static void on_violation(void *arg, const char *line)
{
	struct report *r = arg;

	if (!r->re_json) {
		puts(line);
		return;
	}
	fputs(r->re_any ? ",\n  " : "\n  ", stdout);
	r->re_any = true;
	print_string(line);
}

/* ---- layout maps, and the table of repairs ---- */

struct maps {
	struct kv_txn *fma_txn;
	struct report *fma_report;
	struct ns_check_stats *fma_stats;
};

static void __attribute__((format(printf, 2, 3))) bad(struct maps *m, const char *fmt, ...)
{
	char line[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	m->fma_stats->cs_violations++;
	on_violation(m->fma_report, line);
}

static void check_stripe(struct maps *m, uint64_t ino, const struct lo_map *map, unsigned stripe)
{
	unsigned n = (unsigned)map->lm_stripes * map->lm_mirrors;

	if (lo_copy(map, stripe, 0) < 0)
		bad(m, "inode %lu: stripe %u has no copy in sync", (unsigned long)ino, stripe);
	for (unsigned a = stripe; a < n; a += map->lm_stripes) {
		if (map->lm_obj[a].ob_state == LO_ABSENT)
			continue;
		for (unsigned b = stripe; b < a; b += map->lm_stripes) {
			if (map->lm_obj[a].ob_ds == map->lm_obj[b].ob_ds)
				bad(m, "inode %lu: two copies of stripe %u are on data server %u",
				    (unsigned long)ino, stripe, map->lm_obj[a].ob_ds);
			if (map->lm_obj[a].ob_copy == map->lm_obj[b].ob_copy)
				bad(m, "inode %lu: two copies of stripe %u have the number %u",
				    (unsigned long)ino, stripe, map->lm_obj[a].ob_copy);
		}
	}
}

static void check_map(struct maps *m, const struct ns_inode *i)
{
	struct lo_repair rr;
	struct lo_policy p;
	struct lo_map map;

	if (lo_map_decode(i->i_blob, &map)) {
		bad(m, "inode %lu: layout map damaged", (unsigned long)i->i_ino);
		return;
	}
	if (lo_map_policy(&map, &p))
		bad(m, "inode %lu: the policy in its layout map is damaged",
		    (unsigned long)i->i_ino);
	for (unsigned s = 0; s < map.lm_stripes; s++)
		check_stripe(m, i->i_ino, &map, s);
	if (map.lm_pin && !lo_pin_shares(m->fma_txn, i->i_ino, 0, map.lm_pin_group))
		bad(m, "inode %lu: mirror %u is a pinned copy, and no pin knows of it",
		    (unsigned long)i->i_ino, map.lm_pin - 1u);
	if (!lo_map_whole(&map) && lo_repair_get(m->fma_txn, i->i_ino, &rr) == -ENOENT)
		bad(m,
		    "inode %lu: some of its objects are not in sync, but it is not in the table of "
		    "repairs",
		    (unsigned long)i->i_ino);
}

static void fsck_check_inode(struct maps *m, struct kv_slice key, struct kv_slice val)
{
	struct ns_inode i;

	/* ns_check has reported damaged inodes. */
	if (key.s_len == NS_KEY_INODE &&
	    !ns_inode_decode(val, ns_get64((const uint8_t *)key.s_data + 1), &i) &&
	    i.i_type == NS_REG)
		check_map(m, &i);
}

static void check_repair(struct maps *m, struct kv_slice key, struct kv_slice val)
{
	struct kv_slice id = {(const uint8_t *)key.s_data + 1, key.s_len - 1}, have;
	uint8_t buf[NS_KEY_INODE];
	struct lo_repair rr;
	struct ns_inode i;
	uint64_t ino;

	if (id.s_len == 8 && !ns_get64(id.s_data) && val.s_len == 1)
		return; /* the row of lo_lost_writers_put */
	if (lo_repair_decode(id, val, &ino, &rr)) {
		bad(m, "table of repairs: record damaged");
		return;
	}
	if (kv_get(m->fma_txn, ns_key_ino(buf, NS_K_INODE, ino), &have) ||
	    ns_inode_decode(have, ino, &i) || i.i_type != NS_REG)
		bad(m, "table of repairs: inode %lu is not a file", (unsigned long)ino);
}

/* The row of a file that is gone stays until it is old. */
static void check_shifted(struct maps *m, struct kv_slice key, struct kv_slice val)
{
	struct kv_slice id = {(const uint8_t *)key.s_data + 1, key.s_len - 1};
	uint64_t ino, when;

	if (lo_relocated_decode(id, val, &ino, &when))
		bad(m, "files moved lately: record damaged");
}

static void check_pending(struct maps *m, struct kv_slice key, struct kv_slice val)
{
	struct kv_slice id = {(const uint8_t *)key.s_data + 1, key.s_len - 1}, have;
	uint8_t buf[NS_KEY_INODE];
	struct lo_pending tw;
	struct ns_inode i;
	uint64_t ino;

	if (lo_pending_decode(id, val, &ino, &tw))
		bad(m, "files being restriped: record damaged");
	else if (kv_get(m->fma_txn, ns_key_ino(buf, NS_K_INODE, ino), &have) ||
		 ns_inode_decode(have, ino, &i) || i.i_type != NS_REG)
		bad(m, "files being restriped: inode %lu is not a file", (unsigned long)ino);
	else if (tw.tw_incarnation != i.i_incarnation + NS_PLACED_AGAIN)
		bad(m,
		    "inode %lu: the objects of its other layout are not those of its next "
		    "incarnation",
		    (unsigned long)ino);
}

static void check_pin(struct maps *m, struct kv_slice key, struct kv_slice val)
{
	struct kv_slice id = {(const uint8_t *)key.s_data + 1, key.s_len - 1};
	struct lo_pin p, of;
	uint64_t ino;

	/* The row of a file that is gone stays until the pin is over. */
	if (lo_pin_decode(id, val, &p, &ino))
		bad(m, "pins: record damaged");
	else if (ino && lo_pin_get(m->fma_txn, p.pi_number, &of))
		bad(m, "pins: inode %lu belongs to pin %lu, which is not there", (unsigned long)ino,
		    (unsigned long)p.pi_number);
}

static void check_tag(struct maps *m, struct kv_slice key, struct kv_slice val)
{
	struct kv_slice id = {(const uint8_t *)key.s_data + 1, key.s_len - 1};
	struct job_tag_row r;

	if (job_tag_decode(id, val, &r))
		bad(m, "tags: record damaged");
}

static void check_trash_job(struct maps *m, struct kv_slice key, struct kv_slice val)
{
	struct kv_slice id = {(const uint8_t *)key.s_data + 1, key.s_len - 1};

	if (job_trash_row_check(id, val))
		bad(m, "jobs about the trash: record damaged");
}

static void check_conn(struct maps *m, struct kv_slice key, struct kv_slice val)
{
	struct kv_slice id = {(const uint8_t *)key.s_data + 1, key.s_len - 1};

	if (!conn_row_ok(id, val))
		bad(m, "connections: record damaged");
}

static int check_kind(struct maps *m, uint8_t prefix,
		      void (*fn)(struct maps *m, struct kv_slice key, struct kv_slice val))
{
	struct kv_slice p = ns_slice(&prefix, 1), key, val;
	struct kv_scan sc;
	int rc = kv_scan_begin(m->fma_txn, p, p, &sc);

	if (rc)
		return rc;
	while ((rc = kv_scan_next(&sc, &key, &val)) > 0)
		fn(m, key, val);
	kv_scan_end(&sc);
	return rc;
}

static int check_maps(struct kv_txn *t, struct report *r, struct ns_check_stats *st)
{
	struct maps m = {t, r, st};
	int rc = check_kind(&m, NS_K_INODE, fsck_check_inode);

	if (!rc)
		rc = check_kind(&m, NS_T_REPAIR, check_repair);
	if (!rc)
		rc = check_kind(&m, NS_T_RELOCATED, check_shifted);
	if (!rc)
		rc = check_kind(&m, NS_T_PIN, check_pin);
	if (!rc)
		rc = check_kind(&m, NS_T_TAG, check_tag);
	if (!rc)
		rc = check_kind(&m, NS_T_TRASH_JOB, check_trash_job);
	if (!rc)
		rc = check_kind(&m, NS_T_CONN, check_conn);
	return rc ? rc : check_kind(&m, NS_T_PENDING, check_pending);
}

static int fsck_check(struct kv *kv, const char *path, bool json)
{
	struct report r = {.re_json = json};
	struct ns_check_stats st;
	struct kv_txn *t;
	int err;

	err = kv_read_begin(kv, &t);
	if (err) {
		fprintf(stderr, "weft-fsck: %s: %s\n", path, strerror(-err));
		return EXIT_UNREADABLE;
	}
	if (json) {
		fputs("{\"store\": ", stdout);
		print_string(path);
		fputs(", \"violations\": [", stdout);
	}
	err = ns_check(t, on_violation, &r, &st);
	if (!err)
		err = check_maps(t, &r, &st);
	kv_read_end(t);
	if (json)
		printf("],\n \"complete\": %s, \"count\": %lu, \"inodes\": %lu, \"directories\": "
		       "%lu, \"entries\": %lu, \"xattrs\": %lu, \"acls\": %lu,"
		       " \"orphans\": %lu, \"trash\": %lu, \"rows\": %lu, \"sum_rows\": %lu, "
		       "\"events\": %lu}\n",
		       err ? "false" : "true", st.cs_violations, st.cs_inodes, st.cs_dirs,
		       st.cs_entries, st.cs_xattrs, st.cs_acls, st.cs_orphans, st.cs_trash,
		       st.cs_rows, st.cs_sums, st.cs_events);
	else
		printf("%s: %lu inodes, %lu directories, %lu entries, %lu extended attributes, %lu "
		       "ACLs, %lu orphans, %lu in the trash, %lu events, %lu sums, %lu other rows: "
		       "%lu "
		       "violations%s\n",
		       path, st.cs_inodes, st.cs_dirs, st.cs_entries, st.cs_xattrs, st.cs_acls,
		       st.cs_orphans, st.cs_trash, st.cs_events, st.cs_sums, st.cs_rows,
		       st.cs_violations, err ? ", incomplete" : "");
	if (err) {
		fprintf(stderr, "weft-fsck: %s: cannot read the rest: %s\n", path, strerror(-err));
		return EXIT_UNREADABLE;
	}
	return st.cs_violations ? EXIT_VIOLATIONS : EXIT_CLEAN;
}

/* The store's files stay those of the server's user. False: errno says why not. */
static bool become_owner(const char *path)
{
	struct stat st;

	if (geteuid())
		return true;
	if (stat(path, &st))
		return false;
	return !st.st_uid || (!setgroups(0, NULL) && !setgid(st.st_gid) && !setuid(st.st_uid));
}

static void say_progress(const char *line)
{
	fprintf(stderr, "weft-fsck: %s\n", line);
}

/* Returns an exit status. */
static int rebuild_sums(const char *path)
{
	struct kv_opts o = {.ko_readonly = false};
	char err[256] = "";
	struct kv *kv;
	int rc;

	if (!become_owner(path)) {
		fprintf(stderr, "weft-fsck: %s: %s\n", path, strerror(errno));
		return EXIT_UNREADABLE;
	}
	rc = kv_open(&kv, path, &o, err, sizeof(err));
	if (rc) {
		fprintf(stderr, "weft-fsck: %s\n", err[0] ? err : strerror(-rc));
		return EXIT_UNREADABLE;
	}
	rc = ns_sum_rebuild_store(kv, say_progress);
	kv_close(kv);
	if (rc)
		fprintf(stderr, "weft-fsck: %s: the sums were not computed: %s\n", path,
			rc == -ENOENT ? "it has no super record" : strerror(-rc));
	return rc ? EXIT_UNREADABLE : EXIT_CLEAN;
}

/* --log. Prints, and returns the exit status. */
static int check_log(const char *conninfo, uint32_t inst, const char *store, bool json)
{
	int rc = pg_check(conninfo, inst, store, json);

	if (rc == PG_CHECK_WRONG || fflush(stdout))
		return EXIT_VIOLATIONS;
	return rc == PG_CHECK_NOT_COMPARED ? EXIT_UNREADABLE : EXIT_CLEAN;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"json", no_argument, NULL, 'j'},
						{"rebuild-sums", no_argument, NULL, 's'},
						{"log", required_argument, NULL, 'l'},
						{"instance", required_argument, NULL, 'i'},
						{"help", no_argument, NULL, 'h'},
						{"version", no_argument, NULL, 'V'},
						{0}};
	struct kv_opts o = {.ko_readonly = true};
	bool json = false, sums = false;
	const char *log = NULL;
	long inst = 0;
	char err[256] = "";
	struct kv *kv;
	int opt, rc;

	while ((opt = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		if (opt == 'h') {
			fsck_usage(stdout);
			return EXIT_CLEAN;
		}
		if (opt == 'V')
			return version_print("weft-fsck") ? EXIT_UNREADABLE : EXIT_CLEAN;
		if (opt != 'j' && opt != 's' && opt != 'l' && opt != 'i') {
			fsck_usage(stderr);
			return EXIT_USAGE;
		}
		json |= opt == 'j';
		sums |= opt == 's';
		log = opt == 'l' ? optarg : log;
		inst = opt == 'i' ? strtol(optarg, NULL, 10) : inst;
	}
	if (log ? optind + 1 < argc || sums || inst < 1 || inst > 65535 : optind + 1 != argc) {
		fsck_usage(stderr);
		return EXIT_USAGE;
	}
	log_set_name("weft-fsck");
	log_set_level(LOG_L_WARN);
	if (log)
		return check_log(log, (uint32_t)inst, argv[optind], json);
	ns_sum_set_copies(lo_map_copies);
	rc = sums ? rebuild_sums(argv[optind]) : EXIT_CLEAN;
	if (rc)
		return rc;
	rc = kv_open(&kv, argv[optind], &o, err, sizeof(err));
	if (rc) {
		fprintf(stderr, "weft-fsck: %s\n", err[0] ? err : strerror(-rc));
		return EXIT_UNREADABLE;
	}
	rc = fsck_check(kv, argv[optind], json);
	kv_close(kv);
	if (fflush(stdout) || ferror(stdout)) {
		fprintf(stderr, "weft-fsck: cannot write the report\n");
		return EXIT_UNREADABLE;
	}
	return rc;
}
