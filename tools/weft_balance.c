/* SPDX-License-Identifier: Apache-2.0 */
/* weft_balance.c - weft advise and weft balance: which data servers are behind, and what moves
 * because of that. */
#include "tools/weft_tool.h"
#include <unistd.h>

static void weft_balance_progress(const json_t *j)
{
	if (!isatty(STDERR_FILENO))
		return;
	if (j_num(j, "files"))
		fprintf(stderr, "\r%lld of %lld files moved, %s of %s\033[K",
			j_num(j, "done_files"), j_num(j, "files"),
			size_text(j_num(j, "done_bytes")), size_text(j_num(j, "bytes")));
	else
		fprintf(stderr, "\r%lld files examined\033[K", j_num(j, "looked"));
}

/* Shows the run until it is over. If this command is interrupted, the run goes on in the server,
 * and the same command shows it again. */
static int weft_balance_follow(int rc, json_t **j)
{
	bool shown = false;

	while (!rc && json_is_true(json_object_get(*j, "running"))) {
		weft_balance_progress(*j);
		shown = true;
		json_decref(*j);
		usleep(100000);
		rc = weft_ask("GET", "/v1/balance", NULL, j);
	}
	if (shown && isatty(STDERR_FILENO))
		fputs("\r\033[K", stderr);
	return rc;
}

const struct column balance_columns[] = {{"SIZE", COL_RIGHT},
					 {"FROM", COL_CUT},
					 {"TO", COL_CUT},
					 {"WHY", COL_CUT},
					 {"STATE", 0},
					 {"FILE", COL_CUT | COL_TAIL},
					 {0}};

static void balance_table(const json_t *j)
{
	bool dry = json_is_true(json_object_get(j, "dry_run"));
	struct table t;
	const json_t *m;
	size_t i;

	if (j_num(j, "files") + j_num(j, "left")) {
		table_begin(&t, balance_columns);
		json_array_foreach(json_object_get(j, "moves"), i, m)
		{
			table_cell(&t, "%s", size_text(j_num(m, "bytes")));
			table_cell(&t, "%s", j_str(m, "from"));
			table_cell(&t, "%s", j_str(m, "to"));
			table_cell(&t, "%s", j_str(m, "why"));
			table_cell(&t, "%s", j_str(m, "state"));
			table_path(&t, m);
		}
		table_end(&t);
	}
	printf("%lld files, %s %s; %s\n", j_num(j, "files"), size_text(j_num(j, "bytes")),
	       dry ? "would move" : "moved",
	       json_is_string(json_object_get(j, "end")) ? j_str(j, "end") : "still running");
}

int cmd_balance(char **args)
{
	json_t *j;
	int rc;

	(void)args;
	if (weft_option("stop")) {
		rc = weft_ask("DELETE", "/v1/balance", NULL, &j);
		return weft_show(rc, j, balance_table);
	}
	rc = weft_ask_with("PUT", "/v1/balance", "", &j, "dry", weft_option("dry-run") ? "1" : NULL,
			   "bytes", weft_option("bytes"), "files", weft_option("files"), "rate",
			   weft_option("rate"), "spread", weft_option("spread"), NULL);
	rc = weft_balance_follow(rc, &j);
	return weft_show(rc, j, balance_table);
}

static void advise_table(const json_t *j)
{
	const json_t *w;
	size_t i;

	json_array_foreach(json_object_get(j, "words"), i, w) puts(json_string_value(w));
}

/* While a run moves files, this shows that run. */
int cmd_advise(char **args)
{
	json_t *j;
	int rc = weft_ask("GET", "/v1/balance", NULL, &j);

	(void)args;
	if (!rc && !json_is_true(json_object_get(j, "running"))) {
		json_decref(j);
		rc = weft_ask_with("PUT", "/v1/balance", "", &j, "dry", "1", "spread",
				   weft_option("spread"), NULL);
	}
	if (!rc && json_is_true(json_object_get(j, "dry_run")))
		rc = weft_balance_follow(rc, &j);
	if (!rc) {
		json_decref(j);
		rc = weft_ask("GET", "/v1/advise", NULL, &j);
	}
	return weft_show(rc, j, advise_table);
}
