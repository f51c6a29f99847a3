/* SPDX-License-Identifier: Apache-2.0 */
/* weft_mirror.c - weft mirror: shows copies that are not in sync, and adds and removes mirrors. */
#include "tools/weft.h"
#include <string.h>
#include <unistd.h>

#define LOOK_S 3.0 /* at most, to look at all files */

static void repair_table(const json_t *j)
{
	const json_t *e;
	size_t i;

	if (json_object_get(j, "health"))
		wrong_print("", json_object_get(j, "health"), j_num(j, "files"));
	if (!j_num(j, "files") && !json_array_size(json_object_get(j, "running"))) {
		puts(wrong_any(json_object_get(j, "health"))
			     ? "nothing is being repaired or moved"
			     : "no copy is known to be out of sync; nothing is being repaired or "
			       "moved");
		return;
	}
	printf("%lld files have copies to repair or to move; %lld files at a time, ",
	       j_num(j, "files"), j_num(j, "files_at_a_time"));
	printf("%s%s\n", j_num(j, "rate") ? size_text(j_num(j, "rate")) : "no rate limit",
	       j_num(j, "rate") ? "/s" : "");
	printf("%-12s %-6s %-16s %-8s %s\n", "INODE", "OBJECT", "SERVER", "STATE", "PROGRESS");
	json_array_foreach(json_object_get(j, "running"), i, e)
	{
		long long whole = j_num(e, "size");

		printf("%-12lld %-6lld %-16s %-8s %3lld%%  %s of %s from %s, %s/s",
		       j_num(e, "inode"), j_num(e, "object"), j_str(e, "ds"), j_str(e, "step"),
		       whole ? j_num(e, "done") * 100 / whole : 0, size_text(j_num(e, "done")),
		       size_text(whole), j_str(e, "from"), size_text(j_num(e, "rate")));
		if (json_is_integer(json_object_get(e, "seconds_left")))
			printf(", %lld s left", j_num(e, "seconds_left"));
		putchar('\n');
	}
	json_array_foreach(json_object_get(j, "waiting"), i, e)
	{
		printf("%-12lld %-6lld %-16s %-8s %s", j_num(e, "inode"), j_num(e, "object"),
		       j_str(e, "ds"), "waits", j_str(e, "why"));
		if (j_num(e, "seconds_left"))
			printf(", for %lld s more", j_num(e, "seconds_left"));
		putchar('\n');
	}
	json_array_foreach(json_object_get(j, "moving"), i, e)
	{
		printf("%-12lld %-6lld %-16s %-8s ", j_num(e, "inode"), j_num(e, "object"),
		       j_str(e, "ds"), j_str(e, "state"));
		if (json_is_string(json_object_get(e, "to")))
			printf("to %s: ", j_str(e, "to"));
		puts(j_str(e, "why"));
	}
}

/* True if something is under way, or will be. */
static bool weft_mirror_busy(const json_t *j)
{
	return j_num(j, "files") || json_array_size(json_object_get(j, "running"));
}

/* Shows one line that the next one overwrites, on a terminal. */
static void weft_mirror_progress(const json_t *j)
{
	const json_t *run = json_array_get(json_object_get(j, "running"), 0),
		     *e = json_array_get(json_object_get(j, "moving"), 0);
	long long whole = j_num(run, "size");

	if (run)
		fprintf(stderr, "\r%s of object %lld on %s: %s of %s (%lld%%)\033[K",
			j_str(run, "step"), j_num(run, "object"), j_str(run, "ds"),
			size_text(j_num(run, "done")), size_text(whole),
			whole ? j_num(run, "done") * 100 / whole : 0);
	else
		fprintf(stderr, "\r%s\033[K",
			e ? j_str(e, "why")
			  : j_str(json_array_get(json_object_get(j, "waiting"), 0), "why"));
}

int mirror_follow(int rc, json_t *j, const char *path)
{
	bool seen = isatty(STDERR_FILENO);

	while (!rc && weft_option("wait") && weft_mirror_busy(j)) {
		if (seen)
			weft_mirror_progress(j);
		usleep(300000);
		json_decref(j);
		rc = weft_ask_path("GET", "/v1/repair", path, NULL, &j);
	}
	if (seen && weft_option("wait"))
		fputs("\r\033[K", stderr);
	return weft_show(rc, j, repair_table);
}

static void list_table(const json_t *j)
{
	const json_t *mirror, *o;
	size_t m, k;

	printf("%s\n%-6s %-10s %s\n", j_str(j, "policy"), "MIRROR", "STATE", "SERVERS");
	json_array_foreach(json_object_get(j, "mirrors"), m, mirror)
	{
		const char *sep = "";
		char name[12] = "new";

		if (!json_is_true(json_object_get(mirror, "spare")))
			snprintf(name, sizeof(name), "%u", (unsigned)m);
		printf("%-6s %-10s ", name, j_str(mirror, "state"));
		json_array_foreach(json_object_get(mirror, "objects"), k, o)
		{
			printf("%s%s%s", sep, j_str(o, "ds"),
			       json_is_true(json_object_get(o, "leaving")) ? " (leaving)" : "");
			sep = ",";
		}
		putchar('\n');
	}
}

int cmd_mirror_list(char **args)
{
	json_t *j;
	int rc = weft_ask_path("GET", "/v1/file", args[0], NULL, &j);

	return weft_show(rc, j, list_table);
}

static long long to;

static int add_to(const json_t *f)
{
	const char *mirrors = strstr(j_str(f, "policy"), "mirrors=");
	json_t *j = NULL;
	int rc;

	if (!mirrors || strtoll(mirrors + 8, NULL, 10) >= to)
		return TREE_PASSED;
	rc = weft_ask_with("PUT", "/v1/mirror/add", "", &j, "path", j_str(f, "path"), "group",
			   weft_option("group"), NULL);
	if (!rc)
		json_decref(j);
	return rc;
}

int cmd_mirror_add(char **args)
{
	char *end = NULL;
	json_t *j;
	int rc;

	to = weft_option("to") ? strtoll(weft_option("to"), &end, 10) : 0;
	if (!weft_option("recursive") != !weft_option("to") || (end && (*end || to < 2)))
		return weft_usage_error("mirror add: give -r and --to N (at least 2) together: "
					"each file with fewer than N mirrors gets one more");
	if (weft_option("recursive") && weft_option("wait"))
		return weft_usage_error("mirror add: --wait works for a single file only; \"mirror "
					"status\" shows the progress of all files");
	if (weft_option("recursive"))
		return tree_each(args[0], "files", "1", add_to);
	rc = weft_ask_with("PUT", "/v1/mirror/add", "", &j, "path", args[0], "group",
			   weft_option("group"), NULL);

	return mirror_follow(rc, j, args[0]);
}

int cmd_mirror_remove(char **args)
{
	json_t *j;
	int rc;

	if (!weft_sure("Mirror %s of %s is deleted. The file then has one copy fewer.", args[1],
		       args[0]))
		return EXIT_FAILED;
	rc = weft_ask_with("PUT", "/v1/mirror/remove", "", &j, "path", args[0], "mirror", args[1],
			   NULL);

	return mirror_follow(rc, j, args[0]);
}

int cmd_mirror_status(char **args)
{
	json_t *j, *wrong = NULL;
	int rc = weft_ask_path("GET", "/v1/repair", args[0], NULL, &j);

	if (!rc) {
		rc = wrong_ask(args[0] ? 0 : LOOK_S, &wrong);
		json_object_set_new(j, "health", wrong);
		if (rc)
			json_decref(j);
	}
	return weft_show(rc, j, repair_table);
}

static int repair_one(const json_t *f)
{
	json_t *j = NULL;
	int rc = weft_ask_path("PUT", "/v1/repair", j_str(f, "path"), "", &j);

	if (!rc)
		json_decref(j);
	return rc;
}

int cmd_mirror_repair(char **args)
{
	json_t *j;
	int rc;

	if (weft_option("recursive"))
		return tree_each(args[0], "stale", "1", repair_one);
	rc = weft_ask_path("PUT", "/v1/repair", args[0], "", &j);
	return weft_show(rc, j, repair_table);
}

static void verify_table(const json_t *j)
{
	const json_t *d, *bad;
	size_t i, k;

	printf("%lld files compared (%s read): %lld ranges differ; %lld files skipped (single "
	       "copy), %lld incomplete (not all copies could be read)\n",
	       j_num(j, "files"), size_text(j_num(j, "bytes")), j_num(j, "different"),
	       j_num(j, "single"), j_num(j, "skipped"));
	json_array_foreach(json_object_get(j, "differences"), i, d)
	{
		printf("%s  inode %lld, stripe %lld, from byte %lld: ", j_str(d, "path"),
		       j_num(d, "inode"), j_num(d, "stripe"), j_num(d, "offset"));
		json_array_foreach(json_object_get(d, "differ"), k, bad)
			printf("%s%s", k ? "," : "", j_str(bad, "ds"));
		printf(" not equal to %s%s\n", j_str(d, "kept"),
		       json_is_true(json_object_get(d, "mended")) ? "; now stale and being repaired"
								  : "");
	}
}

/* If this command is interrupted, the comparison goes on; the same command shows it again. */
int cmd_mirror_verify(char **args)
{
	bool seen = isatty(STDERR_FILENO);
	long long different;
	const char *keep = weft_option("keep");
	json_t *j;
	int rc;

	if (weft_option("mend") &&
	    !weft_sure("Where the copies of %s differ, %s%s is kept. Data that only the other "
		       "copies have is lost.",
		       args[0], keep ? "the copy of mirror " : "the first copy in sync",
		       keep ? keep : ""))
		return EXIT_FAILED;
	rc = weft_ask_with("PUT", "/v1/verify", "", &j, "path", args[0], "recursive",
			   weft_option("recursive") ? "1" : NULL, "mend",
			   weft_option("mend") ? "1" : NULL, "keep", keep, NULL);

	while (!rc && json_is_true(json_object_get(j, "running"))) {
		if (seen)
			fprintf(stderr, "\r%lld files, %s: %s\033[K", j_num(j, "files"),
				size_text(j_num(j, "bytes")), j_str(j, "now"));
		json_decref(j);
		usleep(200000);
		rc = weft_ask("GET", "/v1/verify", NULL, &j);
	}
	if (seen)
		fputs("\r\033[K", stderr);
	if (rc)
		return rc;
	different = j_num(j, "different") + j_num(j, "skipped");
	rc = weft_show(rc, j, verify_table);
	return rc ? rc : different ? EXIT_FAILED : EXIT_DONE;
}
