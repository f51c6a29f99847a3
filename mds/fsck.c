/*
 * weft-fsck - checks a metadata store and changes nothing.
 *
 *	weft-fsck [--json] STORE
 *
 * One line per violation on stdout, then a summary. Exit: 0 clean, 1 violations, 2 usage, 3 the
 *store cannot be read. What it holds true is in mds/ns/check.c. It reads one snapshot; beside a
 *running weft-mds it checks what was committed when it began.
 */
#include "base/log.h"
#include "mds/ns/keys.h"
#include <getopt.h>
#include <jansson.h>
#include <stdlib.h>

enum { EXIT_CLEAN = 0, EXIT_VIOLATIONS = 1, EXIT_USAGE = 2, EXIT_UNREADABLE = 3 };

struct report {
	bool re_json, re_any;
};

static void usage(FILE *f)
{
	fputs("usage: weft-fsck [--json] STORE\n"
	      "Checks the metadata store in the folder STORE; changes nothing.\n"
	      "Exit status: 0 clean, 1 violations, 2 usage, 3 the store cannot be read.\n",
	      f);
}

static void print_string(const char *s)
{
	json_t *j = json_string(s);

	/* Not UTF-8: only a path on the command line can be that. */
	if (j)
		json_dumpf(j, stdout, JSON_ENCODE_ANY);
	else
		fputs("null", stdout);
	json_decref(j);
}

/* Lines go out as they are found: a damaged store may have millions. */
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

static int check(struct kv *kv, const char *path, bool json)
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
	kv_read_end(t);
	if (json)
		printf("],\n \"complete\": %s, \"count\": %lu, \"inodes\": %lu, \"directories\": "
		       "%lu, \"entries\": %lu, \"xattrs\": %lu, \"acls\": %lu,"
		       " \"orphans\": %lu, \"rows\": %lu}\n",
		       err ? "false" : "true", st.cs_violations, st.cs_inodes, st.cs_dirs,
		       st.cs_entries, st.cs_xattrs, st.cs_acls, st.cs_orphans, st.cs_rows);
	else
		printf("%s: %lu inodes, %lu directories, %lu entries, %lu extended attributes, %lu "
		       "ACLs, %lu orphans, %lu other rows: %lu violations%s\n",
		       path, st.cs_inodes, st.cs_dirs, st.cs_entries, st.cs_xattrs, st.cs_acls, st.cs_orphans,
		       st.cs_rows, st.cs_violations, err ? ", not all was read" : "");
	if (err) {
		fprintf(stderr, "weft-fsck: %s: cannot read on: %s\n", path, strerror(-err));
		return EXIT_UNREADABLE;
	}
	return st.cs_violations ? EXIT_VIOLATIONS : EXIT_CLEAN;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"json", no_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'}, {0}};
	struct kv_opts o = {.ko_readonly = true};
	bool json = false;
	char err[256] = "";
	struct kv *kv;
	int opt, rc;

	while ((opt = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		if (opt == 'h') {
			usage(stdout);
			return EXIT_CLEAN;
		}
		if (opt != 'j') {
			usage(stderr);
			return EXIT_USAGE;
		}
		json = true;
	}
	if (optind + 1 != argc) {
		usage(stderr);
		return EXIT_USAGE;
	}
	log_set_name("weft-fsck");
	log_set_level(LOG_L_WARN);
	rc = kv_open(&kv, argv[optind], &o, err, sizeof(err));
	if (rc) {
		fprintf(stderr, "weft-fsck: %s\n", err[0] ? err : strerror(-rc));
		return EXIT_UNREADABLE;
	}
	rc = check(kv, argv[optind], json);
	kv_close(kv);
	if (fflush(stdout) || ferror(stdout)) {
		fprintf(stderr, "weft-fsck: cannot write the report\n");
		return EXIT_UNREADABLE;
	}
	return rc;
}
