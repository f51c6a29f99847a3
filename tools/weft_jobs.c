/* SPDX-License-Identifier: Apache-2.0 */
/* weft_jobs.c - weft jobs: lists what runs and waits, waits for jobs, and cancels them. Also waits
 * for other commands' --wait. */
#include "tools/weft_tool.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BAR = 20, TELL_PERCENT = 10, ASK_MOST = 100, BEGUN_MOST = 100, ENDED_SHOWN = 20 };

/* ---- the parts of a job ---- */

static bool jobs_known(const json_t *j, const char *key)
{
	return json_is_number(json_object_get(j, key));
}

static bool jobs_over(const json_t *j)
{
	const char *state = j_str(j, "state");

	return !strcmp(state, "done") || !strcmp(state, "failed") || !strcmp(state, "cancelled");
}

/* What it is about, into the caller's buffer. */
static const char *jobs_subject(const json_t *j, char out[200])
{
	if (json_is_string(json_object_get(j, "path")))
		snprintf(out, 200, "%s", j_str(j, "path"));
	else if (json_is_string(json_object_get(j, "ds")))
		snprintf(out, 200, "%s", j_str(j, "ds"));
	else if (jobs_known(j, "inode"))
		snprintf(out, 200, "inode %lld", j_num(j, "inode"));
	else
		snprintf(out, 200, "-");
	return out;
}

/* Percent that is done, by what is known of it; -1: unknown. */
static int jobs_percent(const json_t *j)
{
	static const char *const key[][2] = {{"done_bytes", "total_bytes"},
					     {"done_objects", "total_objects"},
					     {"done_files", "total_files"}};

	for (unsigned k = 0; k < 3; k++) {
		long long done = j_num(j, key[k][0]), all = j_num(j, key[k][1]);

		if (jobs_known(j, key[k][0]) && all > 0)
			return done < all ? (int)(100.0 * (double)done / (double)all) : 100;
	}
	return -1;
}

/* "1.2G of 3.4G", "3 of 7 objects", "120 files, 4.5G", into the caller's buffer. */
static const char *jobs_amount(const json_t *j, char out[80])
{
	if (jobs_known(j, "done_bytes") && j_num(j, "total_bytes") > 0)
		snprintf(out, 80, "%s of %s", size_text(j_num(j, "done_bytes")),
			 size_text(j_num(j, "total_bytes")));
	else if (jobs_known(j, "done_objects") && jobs_known(j, "total_objects"))
		snprintf(out, 80, "%lld of %lld objects", j_num(j, "done_objects"),
			 j_num(j, "total_objects"));
	else if (jobs_known(j, "done_files") && jobs_known(j, "done_bytes"))
		snprintf(out, 80, "%lld files, %s", j_num(j, "done_files"),
			 size_text(j_num(j, "done_bytes")));
	else if (jobs_known(j, "done_files"))
		snprintf(out, 80, "%lld files", j_num(j, "done_files"));
	else
		snprintf(out, 80, "-");
	return out;
}

/* What it waits for, or what went wrong, or what came of it; NULL: nothing to say. */
static const char *jobs_remark(const json_t *j)
{
	static const char *const key[] = {"error", "waits_for", "result"};

	for (unsigned k = 0; k < 3; k++)
		if (json_is_string(json_object_get(j, key[k])))
			return j_str(j, key[k]);
	return NULL;
}

/* ---- list ---- */

const struct column jobs_columns[] = {{"JOB", COL_RIGHT},
				      {"KIND", 0},
				      {"STATE", COL_STATE},
				      {"PERCENT", COL_RIGHT},
				      {"DONE", 0},
				      {"RATE", COL_RIGHT | COL_FILLED},
				      {"LEFT", COL_RIGHT | COL_FILLED},
				      {"SUBJECT", COL_CUT},
				      {0}};

static void jobs_rows(const json_t *list)
{
	struct table t;
	char what[200], amount[80];
	const json_t *j;
	size_t i;

	table_begin(&t, jobs_columns);
	json_array_foreach(list, i, j)
	{
		int percent = jobs_percent(j);

		table_cell(&t, "%lld", j_num(j, "id"));
		table_cell(&t, "%s", j_str(j, "kind"));
		table_cell(&t, "%s", j_str(j, "state"));
		table_cell(&t, percent < 0 ? "-" : "%d", percent);
		table_cell(&t, "%s", jobs_amount(j, amount));
		table_cell(&t, jobs_known(j, "rate_bytes_s") ? "%s/s" : "-",
			   size_text(j_num(j, "rate_bytes_s")));
		table_cell(&t, "%s",
			   jobs_known(j, "eta_s") ? time_text((double)j_num(j, "eta_s")) : "-");
		table_cell(&t, "%s%s%s", jobs_subject(j, what), jobs_remark(j) ? ": " : "",
			   jobs_remark(j) ? jobs_remark(j) : "");
	}
	table_end(&t);
}

const struct column jobs_ended_columns[] = {
	{"JOB", COL_RIGHT},  {"KIND", 0},	   {"ENDED", 0}, {"AGO", COL_RIGHT},
	{"TOOK", COL_RIGHT}, {"SUBJECT", COL_CUT}, {0}};

static void jobs_ended_rows(const json_t *list)
{
	struct table t;
	char what[200];
	const json_t *j;
	size_t i;

	table_begin(&t, jobs_ended_columns);
	json_array_foreach(list, i, j)
	{
		double ended = j_real(j, "ended_at"), begun = j_real(j, "begun_at");

		if (i == ENDED_SHOWN)
			break;
		table_cell(&t, "%lld", j_num(j, "id"));
		table_cell(&t, "%s", j_str(j, "kind"));
		table_cell(&t, "%s", j_str(j, "state"));
		table_cell(&t, "%s", ended ? time_text((double)time(NULL) - ended) : "-");
		table_cell(&t, "%s", ended && begun ? time_text(ended - begun) : "-");
		table_cell(&t, "%s%s%s", jobs_subject(j, what), jobs_remark(j) ? ": " : "",
			   jobs_remark(j) ? jobs_remark(j) : "");
	}
	table_end(&t);
}

static void jobs_table(const json_t *j)
{
	const json_t *live = json_object_get(j, "jobs"), *over = json_object_get(j, "finished");

	if (json_array_size(live))
		jobs_rows(live);
	else
		puts("no job runs or waits");
	if (json_is_true(json_object_get(j, "more")))
		puts("there are more; --json, a PATH or --kind shows others");
	if (json_array_size(over)) {
		putchar('\n');
		jobs_ended_rows(over);
	}
}

int cmd_jobs(char **args)
{
	json_t *j;
	int rc = weft_ask_with("GET", "/v1/jobs", NULL, &j, "path", args[0], "kind",
			       weft_option("kind"), NULL);

	return weft_show(rc, j, jobs_table);
}

/* ---- wait ---- */

/* A job that is waited for. */
struct watched {
	long long w_id;
	json_t *w_job;	     /* as it was last seen; NULL: not yet */
	int w_told;	     /* the percentage that the last line showed */
	char w_said[300];    /* and the rest of that line */
	bool w_over, w_lost; /* lost: it was seen, and is not known any more */
};
struct watch {
	struct watched *wa_job;
	size_t wa_n, wa_max;
	bool wa_lines; /* prints lines where there is no terminal */
};

static bool watch_add(struct watch *w, long long id)
{
	for (size_t i = 0; i < w->wa_n; i++)
		if (w->wa_job[i].w_id == id)
			return true;
	if (w->wa_n == w->wa_max) {
		size_t max = w->wa_max ? 2 * w->wa_max : 16;
		struct watched *more = realloc(w->wa_job, max * sizeof(*more));

		if (!more) {
			fputs("weft: out of memory\n", stderr);
			return false;
		}
		w->wa_job = more;
		w->wa_max = max;
	}
	w->wa_job[w->wa_n++] = (struct watched){.w_id = id, .w_told = -1};
	return true;
}

static void watch_free(struct watch *w)
{
	for (size_t i = 0; i < w->wa_n; i++)
		json_decref(w->wa_job[i].w_job);
	free(w->wa_job);
	*w = (struct watch){0};
}

static size_t watch_live(const struct watch *w)
{
	size_t n = 0;

	for (size_t i = 0; i < w->wa_n; i++)
		n += !w->wa_job[i].w_over;
	return n;
}

/* Takes what the server said of up to ASK_MOST jobs from *at on, and moves *at behind them. */
static int watch_ask_some(struct watch *w, size_t *at)
{
	char ids[ASK_MOST * 21 + 1] = "";
	size_t from = *at, i, n = 0, len = 0;
	json_t *got, *j;
	int rc;

	for (; *at < w->wa_n && n < ASK_MOST; ++*at) {
		if (w->wa_job[*at].w_over)
			continue;
		len += (size_t)snprintf(ids + len, sizeof(ids) - len, "%s%lld", n++ ? "," : "",
					w->wa_job[*at].w_id);
	}
	if (!n)
		return EXIT_DONE;
	rc = weft_ask_with("GET", "/v1/jobs", NULL, &got, "ids", ids, NULL);
	if (rc)
		return rc;
	for (size_t k = from; k < *at; k++) {
		struct watched *x = &w->wa_job[k];
		bool found = false;

		if (x->w_over)
			continue;
		json_array_foreach(json_object_get(got, "jobs"), i, j)
		{
			if (j_num(j, "id") != x->w_id)
				continue;
			found = true;
			json_decref(x->w_job);
			x->w_job = json_incref(j);
			x->w_over = jobs_over(j);
		}
		x->w_lost = !found;
		x->w_over |= !found;
	}
	json_decref(got);
	return EXIT_DONE;
}

static int watch_ask(struct watch *w)
{
	int rc = EXIT_DONE;

	for (size_t at = 0; at < w->wa_n && !rc;)
		rc = watch_ask_some(w, &at);
	return rc;
}

static void bar_into(char out[BAR + 8], int percent)
{
	int n = percent * BAR / 100;

	if (percent < 0)
		*out = 0;
	else
		sprintf(out, "[%.*s%*s] ", n, "####################", BAR - n, "");
}

/* The one job that is waited for, as a line. */
static void watch_line_one(const json_t *j, char out[500])
{
	char what[200], amount[80], bar[BAR + 8];
	int percent = jobs_percent(j), n;

	bar_into(bar, percent);
	n = snprintf(out, 500, "%s", bar);
	if (percent >= 0)
		n += snprintf(out + n, 500 - (size_t)n, "%d%% ", percent);
	n += snprintf(out + n, 500 - (size_t)n, "%s", jobs_amount(j, amount));
	if (jobs_known(j, "rate_bytes_s"))
		n += snprintf(out + n, 500 - (size_t)n, ", %s/s",
			      size_text(j_num(j, "rate_bytes_s")));
	if (jobs_known(j, "eta_s"))
		n += snprintf(out + n, 500 - (size_t)n, ", %s left",
			      time_text((double)j_num(j, "eta_s")));
	n += snprintf(out + n, 500 - (size_t)n, "  %s %s", j_str(j, "kind"), jobs_subject(j, what));
	if (json_is_string(json_object_get(j, "waits_for")) && n < 400)
		snprintf(out + n, 500 - (size_t)n, ": %s", j_str(j, "waits_for"));
}

/* Several jobs as one line. */
static void watch_line(const struct watch *w, char out[500])
{
	long long done = 0, all = 0, rate = 0;
	size_t over = w->wa_n - watch_live(w);
	char bar[BAR + 8];
	int n;

	for (size_t i = 0; i < w->wa_n; i++) {
		const json_t *j = w->wa_job[i].w_job;

		done += j_num(j, "done_bytes");
		all += j_num(j, "total_bytes");
		rate += w->wa_job[i].w_over ? 0 : j_num(j, "rate_bytes_s");
	}
	bar_into(bar, (int)(over * 100 / w->wa_n));
	n = snprintf(out, 500, "%s%zu of %zu jobs, %s of %s", bar, over, w->wa_n, size_text(done),
		     size_text(all > done ? all : done));
	if (rate)
		snprintf(out + n, 500 - (size_t)n, ", %s/s, %s left", size_text(rate),
			 time_text(all > done ? (double)(all - done) / (double)rate : 0));
}

/* Where there is no terminal: a line for each job whose state or remark has changed, or that has
 * got on by some percent. */
static void watch_tell(struct watched *x)
{
	const json_t *j = x->w_job;
	const char *waits =
		json_is_string(json_object_get(j, "waits_for")) ? j_str(j, "waits_for") : NULL;
	char said[300], line[500];
	int percent = jobs_percent(j);

	snprintf(said, sizeof(said), "%s %s", j_str(j, "state"), waits ? waits : "");
	if (!strcmp(said, x->w_said) && percent < x->w_told + TELL_PERCENT)
		return;
	strcpy(x->w_said, said);
	x->w_told = percent;
	watch_line_one(j, line);
	fprintf(stderr, "job %lld %s: %s\n", x->w_id, j_str(j, "state"), line);
}

/* Shows how far they are, and sleeps. */
static void watch_step(struct watch *w, unsigned step)
{
	char line[500] = "";

	if (isatty(STDERR_FILENO)) {
		if (w->wa_n == 1)
			watch_line_one(w->wa_job[0].w_job, line);
		else
			watch_line(w, line);
	} else if (w->wa_lines) {
		for (size_t i = 0; i < w->wa_n; i++)
			if (!w->wa_job[i].w_over)
				watch_tell(&w->wa_job[i]);
	}
	weft_wait_step(step, line);
}

/* Waits until at most so many run. */
static int watch_wait(struct watch *w, size_t most)
{
	int rc = watch_ask(w);

	for (unsigned step = 0; !rc && watch_live(w) > most; step++) {
		watch_step(w, step);
		rc = watch_ask(w);
	}
	weft_wait_over();
	return rc;
}

/* Counts how they ended, and says so of each that did not end well. */
static int watch_ended(const struct watch *w, struct jobs_sum *sum)
{
	for (size_t i = 0; i < w->wa_n; i++) {
		const struct watched *x = &w->wa_job[i];
		const char *state = j_str(x->w_job, "state");
		char what[200];

		if (!x->w_over)
			continue;
		if (x->w_lost) {
			fprintf(stderr,
				x->w_job ? "weft: job %lld ended, and how is not known any "
					   "more\n"
					 : "weft: job %lld: no such job, or it ended long "
					   "ago\n",
				x->w_id);
			sum->js_failed++;
		} else if (!strcmp(state, "done")) {
			sum->js_done++;
		} else {
			fprintf(stderr, "weft: job %lld (%s %s) %s%s%s\n", x->w_id,
				j_str(x->w_job, "kind"), jobs_subject(x->w_job, what),
				!strcmp(state, "failed") ? "failed" : "was cancelled",
				jobs_remark(x->w_job) ? ": " : "",
				jobs_remark(x->w_job) ? jobs_remark(x->w_job) : "");
			if (!strcmp(state, "failed"))
				sum->js_failed++;
			else
				sum->js_cancelled++;
		}
	}
	return sum->js_failed || sum->js_cancelled ? EXIT_FAILED : EXIT_DONE;
}

int jobs_wait_one(long long id)
{
	struct watch w = {0};
	struct jobs_sum sum = {0};
	int rc;

	if (!id)
		return EXIT_DONE;
	rc = watch_add(&w, id) ? watch_wait(&w, 0) : EXIT_FAILED;
	if (!rc)
		rc = watch_ended(&w, &sum);
	watch_free(&w);
	return rc;
}

/* ---- for commands that begin a job for each file ---- */

static struct watch begun;
static struct jobs_sum begun_sum;

/* Drops those that are over. */
static void begun_count(void)
{
	size_t n = 0;

	watch_ended(&begun, &begun_sum);
	for (size_t i = 0; i < begun.wa_n; i++) {
		if (begun.wa_job[i].w_over)
			json_decref(begun.wa_job[i].w_job);
		else
			begun.wa_job[n++] = begun.wa_job[i];
	}
	begun.wa_n = n;
}

/* The server remembers only so many jobs that are over: this one must see them end. */
int jobs_begun(long long id)
{
	int rc;

	if (!id) {
		begun_sum.js_done++;
		return EXIT_DONE;
	}
	if (!watch_add(&begun, id))
		return EXIT_NO_ANSWER;
	if (begun.wa_n < BEGUN_MOST)
		return EXIT_DONE;
	rc = watch_wait(&begun, BEGUN_MOST / 2);
	begun_count();
	return rc ? EXIT_NO_ANSWER : EXIT_DONE;
}

int jobs_wait_begun(struct jobs_sum *sum)
{
	int rc = watch_wait(&begun, 0);

	begun_count();
	*sum = begun_sum;
	watch_free(&begun);
	if (rc)
		return EXIT_NO_ANSWER;
	return sum->js_failed || sum->js_cancelled ? EXIT_FAILED : EXIT_DONE;
}

/* ---- the commands ---- */

/* 0: it is no job's number. */
static long long jobs_id(const char *text)
{
	size_t n = strlen(text);

	return n && n < 19 && strspn(text, "0123456789") == n ? atoll(text) : 0;
}

static int jobs_no_id(void)
{
	return weft_usage_error("jobs: ID is a job's number, as \"weft jobs\" shows it");
}

static void watch_print(const struct watch *w)
{
	json_t *list = json_array();

	for (size_t i = 0; i < w->wa_n; i++)
		if (w->wa_job[i].w_job)
			json_array_append(list, w->wa_job[i].w_job);
	if (weft_json) {
		json_t *o = json_pack("{s:O}", "jobs", list);

		json_dumpf(o, stdout, WEFT_JSON_STYLE);
		putchar('\n');
		json_decref(o);
	} else if (json_array_size(list)) {
		jobs_ended_rows(list);
	}
	json_decref(list);
}

int cmd_jobs_wait(char **args)
{
	struct watch w = {.wa_lines = !weft_json};
	struct jobs_sum sum = {0};
	int rc = EXIT_DONE;

	for (char **a = args; *a && !rc; a++) {
		if (!jobs_id(*a))
			rc = jobs_no_id();
		else if (!watch_add(&w, jobs_id(*a)))
			rc = EXIT_FAILED;
	}
	if (!rc)
		rc = watch_wait(&w, 0);
	if (!rc) {
		watch_print(&w);
		rc = watch_ended(&w, &sum);
	}
	watch_free(&w);
	return rc ? rc : weft_flush();
}

static void jobs_table_one(const json_t *j)
{
	char what[200];

	printf("job %lld (%s %s): %s\n", j_num(j, "id"), j_str(j, "kind"), jobs_subject(j, what),
	       j_str(j, "state"));
}

int cmd_jobs_cancel(char **args)
{
	int worst = EXIT_DONE;

	for (char **a = args; *a; a++)
		if (!jobs_id(*a))
			return jobs_no_id();
	for (char **a = args; *a; a++) {
		json_t *j;
		int rc = weft_ask_with("DELETE", "/v1/jobs", NULL, &j, "id", *a, NULL);

		rc = weft_show(rc, j, jobs_table_one);
		worst = rc > worst ? rc : worst;
	}
	return worst;
}
