/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weft_tool.h - what the files of weft(1) share: each noun has a file of its own; weft.c has the
 * table of commands. A command is a function. It gets the arguments behind its name (no options;
 * they end with NULL, and there are as many as its row in the table allows) and returns the exit
 * status.
 */
#ifndef TOOLS_WEFT_H
#define TOOLS_WEFT_H
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_NO_ANSWER = 3 };
#define WEFT_JSON_STYLE (JSON_INDENT(2) | JSON_REAL_PRECISION(16))

extern const char *weft_admin; /* --admin */
extern bool weft_json;	       /* --json */

/* An option of a command; a list of options ends with one without a name. Commands of one noun that
 * have an option of the same name agree on whether it has an argument. */
struct weft_opt {
	const char *o_name;
	char o_short;	   /* 0: none */
	const char *o_arg; /* as the help shows it; NULL: a flag */
	const char *o_text;
};
/* The value of an option of this command; "" for a flag that was given; NULL: not given. */
const char *weft_option(const char *name);
/* Before a command loses something: prints what, and asks, where both ends are a terminal and --yes
 * is not given. Does not ask a script. */
bool weft_sure(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Prints what is wrong with the command line, and where help is. Returns EXIT_USAGE. */
int weft_usage_error(const char *what);

/* ---- requests; weft_ask.c ---- */

/* Returns EXIT_DONE and the answer in *out (the caller's reference), or prints the error. */
int weft_ask(const char *method, const char *target, const char *body, json_t **out);
/* Returns EXIT_DONE also where the answer is no 200: *status says what it is. */
int weft_ask_status(const char *method, const char *target, const char *body, int *status,
		    json_t **out);
/* Prints such an answer as an error, and drops it. Returns EXIT_FAILED. */
int weft_refused(int status, json_t *j);
/* As weft_ask, with pairs of a query argument's name and value behind out, and NULL at the end.
 * Does not send an argument whose value is NULL. */
int weft_ask_with(const char *method, const char *target, const char *body, json_t **out, ...)
	__attribute__((sentinel));
int weft_ask_path(const char *method, const char *target, const char *path, const char *body,
		  json_t **out);
/* GET; the answer's text, malloc'd, whatever its status is; NULL: there is none. Prints no error.
 * Returns the HTTP status, or 0. */
int weft_ask_text(const char *target, char **out);
/* Prints an answer and drops it: unchanged with --json, else by table. Returns rc when it is not
 * EXIT_DONE. */
int weft_show(int rc, json_t *j, void (*table)(const json_t *j));
/* Flushes standard output; prints an error. */
int weft_flush(void);
/* Sleeps until the next look at work that was begun: the first steps are shorter. Prints what on
 * standard error, where that is a terminal. step counts from 0. */
void weft_wait_step(unsigned step, const char *what);
/* Removes that line. */
void weft_wait_over(void);

/* ---- the parts of an answer ---- */

const char *j_str(const json_t *j, const char *key); /* "-" where there is none */
long long j_num(const json_t *j, const char *key);
double j_real(const json_t *j, const char *key);
enum { SIZE_TEXT = 24, TIME_TEXT = 32 };
/* Formats bytes in binary units with three digits into the caller's buffer. size_text: into a
 * buffer of the block that uses it, so that a line can show any number of sizes; a function that
 * returns the text passes a buffer. */
const char *size_into(char out[SIZE_TEXT], long long bytes);
#define size_text(bytes) size_into((char[SIZE_TEXT]){0}, bytes)
/* 5s, 2m10s, 3h05m, 12d; likewise. */
const char *time_into(char out[TIME_TEXT], double seconds);
#define time_text(seconds) time_into((char[TIME_TEXT]){0}, seconds)
/* 850us, 1.1ms, 143ms, 2.5s; "-" for 0, which is unknown. */
const char *latency_into(char out[TIME_TEXT], long long us);
#define latency_text(us) latency_into((char[TIME_TEXT]){0}, us)
/* A column of a table. */
struct column {
	const char *co_name; /* its head; --columns takes it in any case */
	unsigned co_flags;
};
enum {
	COL_RIGHT = 1,	/* flush right */
	COL_CUT = 2,	/* may be cut short where the line is too long */
	COL_TAIL = 4,	/* its end stays then: a path */
	COL_FILLED = 8, /* only where a row has something else than "-" there */
	COL_ROOM = 16,	/* only where the others stay readable */
	COL_MORE = 32,	/* only when --columns names it */
	COL_STATE = 64, /* a state: in red or yellow on a terminal where it is bad */
	COLUMNS_MAX = 20,
	WIDTH_DEFAULT = 80,
};
/* A table is as wide as the terminal at most, or as $COLUMNS, or 80 columns. Where --columns
 * chooses and the output is no terminal, nothing is cut. table_begin takes a list that ends with a
 * column without a name; the table keeps it. table_cell adds a cell with printf's arguments; a row
 * has as many cells as there are columns; "-" stands for what is unknown. table_end prints and
 * frees. */
struct table {
	const struct column *t_columns;
	char **t_cell;
	unsigned t_n, t_max, t_ncolumns;
	bool t_failed;
};
/* Before anything is printed: which letters the terminal has. */
void weft_locale(void);
void table_begin(struct table *t, const struct column *columns);
void table_cell(struct table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A cell of strings with commas: "-" when there is none; and of KEY=VALUE. */
void table_words(struct table *t, const json_t *list);
void table_labels(struct table *t, const json_t *labels);
/* A cell of a whole number; "-" where it is absent or null. */
void table_number(struct table *t, const json_t *o, const char *key);
void table_path(struct table *t, const json_t *o); /* "inode N" where the path is not known */
void table_end(struct table *t);
/* How wide a line may be. */
int weft_width(void);
/* Prints the words of a text in lines of that width, the second and later ones indented. column:
 * where the line is now. */
void weft_wrap(FILE *f, int width, int column, int indent, const char *text);
/* As printf, wrapped to weft_width(), on standard output; puts the end of the line. */
void weft_note(int indent, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- commands ---- */

/* weft_wrong.c. {"servers": those that are not alive, "degraded", "lost": files, "looked": at how
 * many files, "all": were they all}. Looks for so many seconds. *out is the caller's, whatever is
 * returned. */
int wrong_ask(double seconds, json_t **out);
/* Is a server not alive, or was a file found that is degraded or lost? */
bool wrong_any(const json_t *w);
/* Prints it as one line that begins with head. */
void wrong_print(const char *head, const json_t *w, long long not_in_sync);

/* weft_mirror.c: prints what is being repaired and moved; with --wait, first waits until nothing of
 * that path is. */
int mirror_follow(int rc, json_t *j, const char *path);

/* weft_jobs.c: waits until the job is over, with a progress bar on a terminal. id 0: there is
 * nothing to wait for. EXIT_FAILED, with a line: it failed or was cancelled. */
int jobs_wait_one(long long id);
/* For commands that begin a job for each of many files: jobs_begun notes one; it waits while very
 * many run. jobs_wait_begun waits for all that are noted and says how they ended. Both return what
 * jobs_wait_one returns. */
struct jobs_sum {
	long long js_done, js_failed, js_cancelled;
};
int jobs_begun(long long id);
int jobs_wait_begun(struct jobs_sum *sum);

/* weft_tree.c: calls fn for each regular file at and below a path that fits (a query argument of
 * /v1/find, and its value), with the file as /v1/find reports it. fn returns TREE_PASSED where
 * there is nothing to do. Counts refused files (EXIT_FAILED); another failure ends the walk. Prints
 * how many files there were. */
#define TREE_PASSED (-1)
struct tree_sum {
	long long ts_files, ts_refused;
};
typedef int tree_fn(const json_t *file);
/* For fn: drops the answer to the request of one file. With --wait, notes the job that it began. */
int tree_begun(json_t *answer);
int tree_each(const char *path, const char *key, const char *value, tree_fn *fn);

/* The columns of the commands' tables. */
extern const struct column ds_columns[], client_columns[], layout_columns[], file_columns[],
	exports_columns[], balance_columns[], choose_columns[], restripe_columns[];
extern const struct column top_tag_columns[], top_client_columns[], top_server_columns[],
	top_export_columns[], top_directory_columns[], heat_directory_columns[],
	heat_file_columns[];
extern const struct column instance_columns[];
extern const struct weft_opt instance_options[], instance_move_options[], instance_make_options[];
extern const struct column du_columns[], du_user_columns[];
extern const struct column tag_columns[], tag_client_columns[], config_columns[], token_columns[],
	pin_columns[];
extern const struct column jobs_columns[], jobs_ended_columns[];
extern const struct column trash_columns[], orders_columns[], mirror_columns[], repair_columns[],
	waiting_columns[], moving_columns[];

typedef int weft_cmd(char **args);
weft_cmd cmd_config, cmd_set, cmd_support;
weft_cmd cmd_cluster_init, cmd_cluster_join, cmd_cluster_key;
weft_cmd cmd_health, cmd_status, cmd_ds_list, cmd_ds_weight, cmd_ds_group, cmd_ds_add;
weft_cmd cmd_scrub, cmd_mirror_choose;
int cmd_fsck_online(int argc, char **argv);
weft_cmd cmd_ds_kill, cmd_ds_admit, cmd_ds_forget;
weft_cmd cmd_orders;
weft_cmd cmd_ds_key, cmd_key_status, cmd_key_rotate;
weft_cmd cmd_trash_list, cmd_trash_restore, cmd_trash_empty;
weft_cmd cmd_policy_get, cmd_policy_set, cmd_policy_remove;
weft_cmd cmd_mirror_status, cmd_mirror_repair, cmd_mirror_list, cmd_mirror_add, cmd_mirror_remove,
	cmd_mirror_verify;
weft_cmd cmd_jobs, cmd_jobs_wait, cmd_jobs_cancel;
weft_cmd cmd_move, cmd_ds_drain, cmd_ds_undrain, cmd_advise, cmd_balance;
weft_cmd cmd_file_show, cmd_pin, cmd_pin_list, cmd_warm, cmd_unpin;
weft_cmd cmd_job_list, cmd_job_tag, cmd_job_untag;
weft_cmd cmd_exports, cmd_exports_reload;
weft_cmd cmd_client_list, cmd_client_evict;
weft_cmd cmd_layout_list, cmd_layout_recall;
weft_cmd cmd_du, cmd_events, cmd_find, cmd_heat, cmd_top, cmd_trace;
weft_cmd cmd_pg_init;
weft_cmd cmd_pg_verify;
weft_cmd cmd_instance_list, cmd_instance_make, cmd_instance_move, cmd_instance_drain;
weft_cmd cmd_token_create, cmd_token_list, cmd_token_revoke;
weft_cmd cmd_xattr_show, cmd_xattr_set, cmd_xattr_remove;
/* Gets all arguments behind its name: its options are the checker's. */
int cmd_fsck(int argc, char **argv);
/* The log of an instance in PostgreSQL; store: of a copy, or NULL. */
int weft_check_log(char *conninfo, const char *number, const char *store);
/* what: the name of the command */
int cmd_backup(const char *what, int argc, char **argv);
#endif
