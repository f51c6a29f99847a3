/*
 * weft.h - what the files of weft(1) share: each noun has a file of its own, weft.c has the table
 * of commands. A command is a function that gets the arguments behind its name (no options; they
 * end with NULL, and there are as many as its row in the table allows) and returns the exit status.
 */
#ifndef TOOLS_WEFT_H
#define TOOLS_WEFT_H
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_NO_ANSWER = 3 };
#define WEFT_JSON_STYLE (JSON_INDENT(2) | JSON_REAL_PRECISION(10))

extern const char *weft_admin; /* --admin */
extern bool weft_json;	       /* --json */

/* An option of a command; a list of them ends with one without a name. Commands of one noun that
 * have an option of the same name agree on whether it has an argument. */
struct weft_opt {
	const char *o_name;
	char o_short;	   /* 0: none */
	const char *o_arg; /* as the summary shows it; NULL: a flag */
};
/* The value of an option of this command; "" for a flag that was given, NULL: not given. */
const char *weft_option(const char *name);
/* Before what loses something: says what, and asks, where both ends are a terminal and --yes is not
 * given. A script is not asked. */
bool weft_sure(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Says what is wrong with the command line, and the summary. Returns EXIT_USAGE. */
int weft_usage_error(const char *what);

/* ---- asking; weft_ask.c ---- */

/* EXIT_DONE and the answer in *out (the caller's reference), or said what is wrong. */
int weft_ask(const char *method, const char *target, const char *body, json_t **out);
/* The same with pairs of a query argument's name and value behind out, and NULL at the end. An
 * argument whose value is NULL is not sent. */
int weft_ask_with(const char *method, const char *target, const char *body, json_t **out, ...)
	__attribute__((sentinel));
int weft_ask_path(const char *method, const char *target, const char *path, const char *body,
		  json_t **out);
/* Shows an answer and drops it: as it is with --json, else by table. Returns rc when it is not
 * EXIT_DONE. */
int weft_show(int rc, json_t *j, void (*table)(const json_t *j));
/* Flushes standard output; an error is said. */
int weft_flush(void);
/* Until something that was begun is over: shorter steps first, and on standard error, where that is
 * a terminal, what is waited for. step counts from 0. */
void weft_wait_step(unsigned step, const char *what);
/* Takes that line away again. */
void weft_wait_over(void);

/* ---- the parts of an answer ---- */

const char *j_str(const json_t *j, const char *key); /* "-" where there is none */
long long j_num(const json_t *j, const char *key);
double j_real(const json_t *j, const char *key);
/* Prints a list of strings with commas. */
void j_words(const json_t *list);
/* Prints KEY=VALUE with commas; - when there is none. */
void j_labels(const json_t *o);
/* Binary units, three digits, into the caller's buffer. size_text: into one of the block that it is
 * used in, so that a line can show any number of sizes; a function that returns the text gives a
 * buffer. */
enum { SIZE_TEXT = 24, TIME_TEXT = 32 };
const char *size_into(char out[SIZE_TEXT], long long bytes);
#define size_text(bytes) size_into((char[SIZE_TEXT]){0}, bytes)
/* Lines of columns that are as wide as they have to be. A cell is added with printf's arguments;
 * table_row ends a line; the first has the heads. table_end prints and frees; right: a letter for
 * each column, r where it is flush right. */
struct table {
	char **t_cell;
	unsigned t_n, t_max, t_columns; /* columns: of the first row */
	bool t_failed;
};
void table_cell(struct table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void table_heads(struct table *t, const char *heads); /* separated by spaces */
void table_end(struct table *t, const char *right);
/* 5s, 2m10s, 3h05m, 12d; likewise. */
const char *time_into(char out[TIME_TEXT], double seconds);
#define time_text(seconds) time_into((char[TIME_TEXT]){0}, seconds)

/* ---- commands ---- */

/* weft_wrong.c. {"servers": those that are not alive, "degraded", "lost": files, "looked": at how
 * many, "all": were they all}. Looks for so long. *out is the caller's, whatever is returned. */
int wrong_ask(double seconds, json_t **out);
/* As one line, that begins with head. */
void wrong_print(const char *head, const json_t *w, long long not_in_sync);

/* weft_mirror.c: what is being repaired and moved; and, with --wait, until nothing is, of that
 * path. */
int mirror_follow(int rc, json_t *j, const char *path);

/* weft_tree.c: each regular file at and below a path that fits (a query argument of /v1/find, and
 * its value), as /v1/find tells of it. fn returns TREE_PASSED where nothing is to be done to it;
 * what is refused (EXIT_FAILED) is counted, and another failure ends it. Tells how many there
 * were. */
#define TREE_PASSED (-1)
struct tree_sum {
	long long ts_files, ts_refused;
};
typedef int tree_fn(const json_t *file);
int tree_each(const char *path, const char *key, const char *value, tree_fn *fn);

typedef int weft_cmd(char **args);
weft_cmd cmd_status, cmd_ds_list, cmd_ds_weight, cmd_ds_group, cmd_ds_add;
weft_cmd cmd_scrub, cmd_mirror_choose;
int cmd_fsck_online(int argc, char **argv);
weft_cmd cmd_ds_kill, cmd_ds_admit, cmd_ds_forget;
weft_cmd cmd_ds_key, cmd_key_status, cmd_key_rotate;
weft_cmd cmd_policy_get, cmd_policy_set, cmd_policy_remove;
weft_cmd cmd_mirror_status, cmd_mirror_repair, cmd_mirror_list, cmd_mirror_add, cmd_mirror_remove,
	cmd_mirror_verify;
weft_cmd cmd_move, cmd_ds_drain, cmd_ds_undrain, cmd_advise, cmd_balance;
weft_cmd cmd_file_show;
weft_cmd cmd_exports, cmd_exports_reload;
weft_cmd cmd_client_list, cmd_client_evict;
weft_cmd cmd_layout_list, cmd_layout_recall;
weft_cmd cmd_events, cmd_find, cmd_heat, cmd_top;
weft_cmd cmd_xattr_show, cmd_xattr_set, cmd_xattr_remove;
/* Gets all that stands behind its name: its options are the checker's. */
int cmd_fsck(int argc, char **argv);
#endif
