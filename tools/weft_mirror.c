/* SPDX-License-Identifier: Apache-2.0 */
/* weft_mirror.c - weft mirror: shows copies that are not in sync, and adds and removes mirrors. */
#include "tools/weft_tool.h"
#include <string.h>
#include <unistd.h>

#define LOOK_S 3.0 /* at most, to look at all files */

const struct column repair_columns[] = {{"SERVER", COL_CUT},
					{"OBJECT", COL_RIGHT | COL_MORE},
					{"STATE", COL_STATE},
					{"FROM", COL_CUT},
					{"DONE", COL_RIGHT},
					{"SIZE", COL_RIGHT},
					{"RATE", COL_RIGHT},
					{"LEFT", COL_RIGHT},
					{"INODE", COL_RIGHT | COL_MORE},
					{"PATH", COL_CUT | COL_TAIL},
					{0}};
const struct column waiting_columns[] = {{"SERVER", COL_CUT},
					 {"OBJECT", COL_RIGHT | COL_MORE},
					 {"STATE", COL_STATE},
					 {"LEFT", COL_RIGHT | COL_FILLED},
					 {"INODE", COL_RIGHT | COL_MORE},
					 {"PATH", COL_CUT | COL_TAIL},
					 {"WHY", COL_CUT},
					 {0}};
const struct column moving_columns[] = {{"SERVER", COL_CUT},
					{"OBJECT", COL_RIGHT | COL_MORE},
					{"STATE", COL_STATE},
					{"TO", COL_CUT | COL_FILLED},
					{"INODE", COL_RIGHT | COL_MORE},
					{"PATH", COL_CUT | COL_TAIL},
					{"WHY", COL_CUT},
					{0}};

static void left_cell(struct table *t, const json_t *e)
{
	if (json_is_integer(json_object_get(e, "left_s")) && j_num(e, "left_s"))
		table_cell(t, "%s", time_text(j_real(e, "left_s")));
	else
		table_cell(t, "-");
}

static void running_line(struct table *t, const json_t *e)
{
	long long whole = j_num(e, "size");

	table_cell(t, "%s", j_str(e, "ds"));
	table_number(t, e, "object");
	table_cell(t, "%s", j_str(e, "step"));
	table_cell(t, "%s", j_str(e, "from"));
	table_cell(t, "%lld%%", whole ? j_num(e, "done") * 100 / whole : 0);
	table_cell(t, "%s", size_text(whole));
	table_cell(t, "%s/s", size_text(j_num(e, "rate")));
	left_cell(t, e);
	table_number(t, e, "inode");
	table_path(t, e);
}

static void waiting_line(struct table *t, const json_t *e)
{
	table_cell(t, "%s", j_str(e, "ds"));
	table_number(t, e, "object");
	table_cell(t, "%s", j_str(e, "state"));
	left_cell(t, e);
	table_number(t, e, "inode");
	table_path(t, e);
	table_cell(t, "%s", j_str(e, "why"));
}

static void moving_line(struct table *t, const json_t *e)
{
	table_cell(t, "%s", j_str(e, "ds"));
	table_number(t, e, "object");
	table_cell(t, "%s", j_str(e, "state"));
	table_cell(t, "%s", j_str(e, "to"));
	table_number(t, e, "inode");
	table_path(t, e);
	table_cell(t, "%s", j_str(e, "why"));
}

static void repair_part(const char *head, const json_t *list, const struct column *columns,
			void (*line)(struct table *t, const json_t *e))
{
	struct table t;
	const json_t *e;
	size_t i;

	if (!json_array_size(list))
		return;
	printf("\n%s: %zu\n", head, json_array_size(list));
	table_begin(&t, columns);
	json_array_foreach(list, i, e) line(&t, e);
	table_end(&t);
}

/* What is damaged, and what moves, are tables apart: a move is no damage. */
static void repair_table(const json_t *j)
{
	const json_t *running = json_object_get(j, "running");

	if (json_object_get(j, "health"))
		wrong_print("", json_object_get(j, "health"), j_num(j, "files"));
	if (!j_num(j, "files") && !json_array_size(running)) {
		puts(wrong_any(json_object_get(j, "health"))
			     ? "nothing is being repaired or moved"
			     : "no copy is known to be out of sync; nothing is being repaired or "
			       "moved");
		return;
	}
	weft_note(2, "%lld files have copies to repair or to move; %lld files at a time, %s%s",
		  j_num(j, "files"), j_num(j, "files_at_a_time"),
		  j_num(j, "rate") ? size_text(j_num(j, "rate")) : "no rate limit",
		  j_num(j, "rate") ? "/s" : "");
	repair_part("Copies being repaired", running, repair_columns, running_line);
	repair_part("Copies whose repair waits", json_object_get(j, "waiting"), waiting_columns,
		    waiting_line);
	repair_part("Objects that move", json_object_get(j, "moving"), moving_columns, moving_line);
}

int mirror_follow(int rc, json_t *j, const char *path)
{
	int ended = EXIT_DONE;

	if (!rc && weft_option("wait")) {
		ended = jobs_wait_one(j_num(j, "job"));
		json_decref(j);
		rc = weft_ask_path("GET", "/v1/repair", path, NULL, &j);
	}
	rc = weft_show(rc, j, repair_table);
	return rc ? rc : ended;
}

const struct column mirror_columns[] = {
	{"MIRROR", COL_RIGHT}, {"STATE", COL_STATE}, {"SERVERS", COL_CUT}, {0}};

/* Takes rows enough to show all servers: a file may have one on each of 44. */
static void mirror_lines(struct table *t, size_t m, const json_t *mirror)
{
	enum { SERVERS = 48 };
	char line[300] = "";
	const json_t *o;
	size_t k, n = 0;

	if (json_is_true(json_object_get(mirror, "spare")))
		table_cell(t, "new");
	else
		table_cell(t, "%zu", m);
	table_cell(t, "%s", j_str(mirror, "state"));
	json_array_foreach(json_object_get(mirror, "objects"), k, o)
	{
		bool leaves = json_is_true(json_object_get(o, "leaving"));

		if (n && n + strlen(j_str(o, "ds")) > SERVERS) {
			table_cell(t, "%s,", line);
			table_cell(t, "%s", "");
			table_cell(t, "%s", "");
			n = 0;
		}
		n += (size_t)snprintf(line + n, sizeof(line) - n, "%s%.200s%s", n ? "," : "",
				      j_str(o, "ds"), leaves ? " (leaving)" : "");
	}
	table_cell(t, "%s", line);
}

static void list_table(const json_t *j)
{
	const json_t *mirror;
	struct table t;
	size_t m;

	puts(j_str(j, "policy"));
	table_begin(&t, mirror_columns);
	json_array_foreach(json_object_get(j, "mirrors"), m, mirror) mirror_lines(&t, m, mirror);
	table_end(&t);
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
	return rc ? rc : tree_begun(j);
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
