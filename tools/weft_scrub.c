/* SPDX-License-Identifier: Apache-2.0 */
/* weft_scrub.c - weft scrub, and weft fsck --online: compares what the data servers have with what
 * the metadata server knows. */
#include "tools/weft_tool.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void weft_scrub_found_line(const json_t *f)
{
	const char *kind = j_str(f, "kind"), *done = j_str(f, "done");

	printf("%-10s ", kind);
	if (!strcmp(kind, "away")) {
		printf("%s does not answer: its objects were not checked\n", j_str(f, "ds"));
		return;
	}
	if (json_is_string(json_object_get(f, "path")))
		printf("%s ", j_str(f, "path"));
	printf("(inode %lld", j_num(f, "inode"));
	if (strcmp(kind, "damaged"))
		printf(", stripe %lld, copy %lld on %s", j_num(f, "stripe"), j_num(f, "copy"),
		       j_str(f, "ds"));
	putchar(')');
	if (!strcmp(kind, "size"))
		printf(" ends at byte %lld, the file at byte %lld", j_num(f, "size"),
		       j_num(f, "want"));
	else if (!strcmp(kind, "differs") || !strcmp(kind, "unreadable"))
		printf(" from byte %lld", j_num(f, "size"));
	printf("%s\n", !strcmp(done, "removed") ? ": removed"
		       : !strcmp(done, "stale") ? ": now stale and being repaired"
						: "");
}

static void scrub_table(const json_t *j)
{
	const json_t *list = json_object_get(j, "findings"), *f;
	size_t i;

	if (!j_num(j, "number")) {
		puts("no check has run yet");
		return;
	}
	json_array_foreach(list, i, f) weft_scrub_found_line(f);
	if (j_num(j, "found") > (long long)json_array_size(list))
		printf("and %lld more\n", j_num(j, "found") - (long long)json_array_size(list));
	printf("%s%s: %lld objects and %lld files checked", j_str(j, "what"),
	       json_is_true(json_object_get(j, "dry")) ? " (dry run)" : "", j_num(j, "objects"),
	       j_num(j, "files"));
	if (!strcmp(j_str(j, "what"), "scrub"))
		printf(", %s read", size_text(j_num(j, "bytes")));
	printf("; %lld findings, %lld objects removed, %lld copies to be repaired; %lld files "
	       "degraded, %lld being written, %lld incomplete (a server did not answer)%s\n",
	       j_num(j, "found"), j_num(j, "removed"), j_num(j, "stale"), j_num(j, "degraded"),
	       j_num(j, "busy"), j_num(j, "skipped"),
	       json_is_true(json_object_get(j, "running"))   ? "; still running"
	       : json_is_true(json_object_get(j, "stopped")) ? "; stopped"
							     : "");
}

static int weft_scrub_show(int rc, json_t *j)
{
	bool clean = !rc && !j_num(j, "found") && !j_num(j, "skipped") &&
		     !json_is_true(json_object_get(j, "stopped"));

	rc = weft_show(rc, j, scrub_table);
	return rc ? rc : clean ? EXIT_DONE : EXIT_FAILED;
}

static int weft_scrub_ask(const char *method, json_t **j)
{
	return weft_ask_with(method, "/v1/scrub", NULL, j, "findings", "1", NULL);
}

/* If this command is interrupted, the scrub goes on; the same command shows it again. */
static int weft_scrub_follow(int rc, json_t *j)
{
	bool seen = isatty(STDERR_FILENO);

	while (!rc && json_is_true(json_object_get(j, "running"))) {
		if (seen)
			fprintf(stderr,
				"\r%s: %lld objects, %lld files, %s read, %lld findings\033[K",
				j_str(j, "phase"), j_num(j, "objects"), j_num(j, "files"),
				size_text(j_num(j, "bytes")), j_num(j, "found"));
		json_decref(j);
		usleep(200000);
		rc = weft_ask("GET", "/v1/scrub", NULL, &j);
	}
	if (seen)
		fputs("\r\033[K", stderr);
	if (rc)
		return rc;
	json_decref(j);
	rc = weft_scrub_ask("GET", &j);
	return weft_scrub_show(rc, j);
}

static int weft_scrub_check(bool content, bool dry, bool background, bool newer)
{
	json_t *j;
	int rc = weft_ask_with("PUT", "/v1/scrub", "", &j, "content", content ? "1" : NULL, "dry",
			       dry ? "1" : NULL, "newer", newer ? "1" : NULL, NULL);

	if (rc || !background)
		return weft_scrub_follow(rc, j);
	return weft_show(rc, j, scrub_table);
}

static int weft_scrub_look(const char *method)
{
	json_t *j;
	int rc = weft_scrub_ask(method, &j);

	return weft_show(rc, j, scrub_table);
}

int cmd_scrub(char **args)
{
	(void)args;
	if (!!weft_option("status") + !!weft_option("stop") +
		    (weft_option("dry-run") || weft_option("background") ||
		     weft_option("remove-newer")) >
	    1)
		return weft_usage_error("scrub: --status and --stop take no other option");
	if (weft_option("status"))
		return weft_scrub_look("GET");
	if (weft_option("stop"))
		return weft_scrub_look("DELETE");
	if (weft_option("remove-newer") && !weft_option("dry-run") &&
	    !weft_sure("Objects newer than the backup of the metadata store are deleted for good.\n"
		       "All data of files that were made since the backup is lost."))
		return EXIT_FAILED;
	return weft_scrub_check(true, weft_option("dry-run"), weft_option("background"),
				weft_option("remove-newer"));
}

/* The options of weft fsck belong to the checker, except for these. */
int cmd_fsck_online(int argc, char **argv)
{
	bool dry = false, background = false;

	for (int i = 0; i < argc; i++) {
		if (!strcmp(argv[i], "--dry-run"))
			dry = true;
		else if (!strcmp(argv[i], "--background"))
			background = true;
		else if (!strcmp(argv[i], "--json"))
			weft_json = true;
		else if (strcmp(argv[i], "--online"))
			return weft_usage_error(
				"fsck --online takes only --dry-run, --background and --json");
	}
	return weft_scrub_check(false, dry, background, false);
}

/* ---- which copy is good ---- */

const struct column choose_columns[] = {{"MIRROR", COL_RIGHT}, {"STRIPE", COL_RIGHT},
					{"SERVER", COL_CUT},   {"IS", COL_STATE | COL_FILLED},
					{"STATE", COL_STATE},  {"HAS", COL_CUT},
					{"SIZE", COL_RIGHT},   {"CHANGED", 0},
					{"SUM", COL_CUT},      {0}};

static void choose_table(const json_t *j)
{
	const json_t *list = json_object_get(j, "copies"), *c;
	struct table t;
	size_t i;

	printf("the file ends at byte %lld\n", j_num(j, "size"));
	table_begin(&t, choose_columns);
	json_array_foreach(list, i, c)
	{
		time_t at = (time_t)j_real(c, "changed_at");
		char when[24] = "-";
		struct tm tm;

		if (at && localtime_r(&at, &tm))
			strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", &tm);
		table_number(&t, c, "mirror");
		table_number(&t, c, "stripe");
		table_cell(&t, "%s", j_str(c, "ds"));
		table_cell(&t, "%s",
			   strcmp(j_str(c, "server"), "alive") ? j_str(c, "server") : "-");
		table_cell(&t, "%s", j_str(c, "state"));
		table_cell(&t, "%s", j_str(c, "has"));
		table_number(&t, c, "size");
		table_cell(&t, "%s", when);
		table_cell(&t, "%.16s", j_str(c, "sum"));
	}
	table_end(&t);
	if (json_is_true(json_object_get(j, "chosen")))
		puts("the copy is chosen; the other copies are now stale and are rebuilt from it");
}

int cmd_mirror_choose(char **args)
{
	json_t *j;
	int rc;

	if (weft_option("force") && !weft_option("copy"))
		return weft_usage_error("mirror choose: --force needs --copy MIRROR");
	if (weft_option("copy") &&
	    !weft_sure("Mirror %s of %s is declared good, and its other copies are "
		       "overwritten.\nData that only they have is lost.",
		       weft_option("copy"), args[0]))
		return EXIT_FAILED;
	rc = weft_ask_with("PUT", "/v1/choose", "", &j, "path", args[0], "mirror",
			   weft_option("copy"), "force", weft_option("force") ? "1" : NULL, NULL);
	for (unsigned step = 0; !rc && json_is_true(json_object_get(j, "running")); step++) {
		json_decref(j);
		weft_wait_step(step, "examining the copies");
		rc = weft_ask("GET", "/v1/choose", NULL, &j);
	}
	weft_wait_over();
	return weft_show(rc, j, choose_table);
}
