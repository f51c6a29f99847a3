/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weft.c - the administrator's command: the table of its commands, and its command line. It asks
 * the metadata server's HTTP API and shows the answers: tables for people, the server's JSON with
 * --json. See docs/weft.1.
 */
#include "tools/weft.h"
#include "tools/http_get.h"
#include "tools/topo.h"
#include "base/near.h"
#include "base/version.h"
#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ADMIN_DEFAULT "unix:/run/weft-mds/admin"
enum { OPTIONS = 24, COMMON = 8, ANY = 1 << 20 };

const char *weft_admin;
bool weft_json;

/* ---- the commands ---- */

struct command {
	const char *c_noun, *c_verb; /* verb NULL: none */
	int c_min, c_max;	     /* arguments */
	bool c_path;		     /* the first, where there is one, is a PATH */
	weft_cmd *c_fn;
	const struct weft_opt *c_options;
	const char *c_args, *c_what; /* for the summary */
};
static const struct weft_opt layout_options[] = {{"client", 0, "C"}, {"ds", 0, "DS"}, {0}};
static const struct weft_opt events_options[] = {
	{"follow", 'f', NULL}, {"since", 0, "TIME"}, {"kind", 0, "KIND"}, {"last", 'n', "N"}, {0}};
static const struct weft_opt trace_options[] = {{"follow", 'f', NULL},	  {"id", 0, "ID"},
						{"client", 0, "ADDRESS"}, {"inode", 0, "N"},
						{"last", 'n', "N"},	  {0}};
static const struct weft_opt add_options[] = {{"group", 'g', "LABELS"},
					      {"wait", 'w', NULL},
					      {"recursive", 'r', NULL},
					      {"to", 0, "N"},
					      {0}};
static const struct weft_opt repair_options[] = {{"recursive", 'r', NULL}, {0}};
static const struct weft_opt verify_options[] = {{"recursive", 'r', NULL},
						 {"mend", 0, NULL},
						 {"keep", 0, "MIRROR"},
						 {"yes", 'y', NULL},
						 {0}};
static const struct weft_opt wait_options[] = {{"wait", 'w', NULL}, {0}};
static const struct weft_opt move_options[] = {
	{"group", 'g', "LABELS"}, {"policy", 'p', "POLICY"}, {"from", 'f', "DS"},
	{"stripes", 's', "N"},	  {"unit", 'u', "SIZE"},     {"cancel", 0, NULL},
	{"wait", 'w', NULL},	  {"recursive", 'r', NULL},  {0}};
static const struct weft_opt find_options[] = {{"on-ds", 0, "DS"},    {"stale", 0, NULL},
					       {"lost", 0, NULL},     {"degraded", 0, NULL},
					       {"policy", 0, "TEXT"}, {0}};
static const struct weft_opt top_options[] = {{"times", 'n', "N"}, {"rows", 0, "N"}, {0}};
static const struct weft_opt heat_options[] = {{"rows", 0, "N"}, {0}};
static const struct weft_opt advise_options[] = {{"spread", 0, "PERCENT"}, {0}};
static const struct weft_opt balance_options[] = {{"dry-run", 0, NULL},
						  {"files", 0, "N"},
						  {"bytes", 0, "SIZE"},
						  {"rate", 0, "SIZE"},
						  {"spread", 0, "PERCENT"},
						  {"stop", 0, NULL},
						  {0}};
static const struct weft_opt choose_options[] = {
	{"copy", 0, "MIRROR"}, {"force", 0, NULL}, {"yes", 'y', NULL}, {0}};
static const struct weft_opt scrub_options[] = {
	{"dry-run", 0, NULL},
	{"background", 0, NULL},
	{"remove-newer", 0, NULL},
	{"status", 0, NULL},
	{"stop", 0, NULL},
	{"yes", 'y', NULL},
	{0},
};
static const struct weft_opt forget_options[] = {{"force", 0, NULL}, {"yes", 'y', NULL}, {0}};
static const struct weft_opt key_options[] = {{"out", 'o', "FILE"}, {0}};
static const struct weft_opt config_options[] = {{"all", 'a', NULL}, {0}};
static const struct weft_opt yes_options[] = {{"yes", 'y', NULL}, {0}};
static const struct weft_opt remove_options[] = {{"wait", 'w', NULL}, {"yes", 'y', NULL}, {0}};
static const struct weft_opt token_options[] = {
	{"role", 0, "ROLE"}, {"name", 0, "NAME"}, {"days", 0, "N"}, {0}};
/* The first row that fits is the command. */
/* clang-format off */
static const struct command commands[] = {
	{"status", NULL, 0, 0, false, cmd_status, NULL, "",
	 "show the cluster at a glance"},
	{"health", NULL, 0, 0, false, cmd_health, NULL, "",
	 "say whether anything is wrong, and what to do about it: OK, WARN or ERROR. The exit "
	 "status is 0, 1 or 2; 3 if there is no answer"},
	{"ds", "list", 0, 0, false, cmd_ds_list, NULL, "",
	 "list the data servers"},
	{"ds", "weight", 2, 2, false, cmd_ds_weight, NULL, "DS WEIGHT",
	 "set a data server's share of new files: 1 is usual, 0 gives it no new files"},
	{"ds", "add", 1, ANY, false, cmd_ds_add, NULL, "URL [KEY=VALUE]...",
	 "add any NFSv3 server as a data server; URL is nfs3://HOST[:PORT]/PATH"},
	{"ds", "group", 2, ANY, false, cmd_ds_group, NULL, "DS KEY=VALUE...",
	 "set labels that policies select data servers by; KEY= removes a label"},
	{"ds", "drain", 1, 1, false, cmd_ds_drain, wait_options, "DS",
	 "empty a data server while clients keep working: no new files go there, and its "
	 "objects move away"},
	{"ds", "undrain", 1, 1, false, cmd_ds_undrain, NULL, "DS",
	 "end a drain: the data server takes new files again; objects that moved away stay "
	 "away"},
	{"ds", "kill", 1, 1, false, cmd_ds_kill, yes_options, "DS",
	 "declare a data server dead and fence it; undo with \"ds admit\". Until then files "
	 "whose only copy is there can be neither read nor written"},
	{"ds", "admit", 1, 1, false, cmd_ds_admit, NULL, "DS",
	 "let a data server join that was killed or waits for this"},
	{"ds", "forget", 1, 1, false, cmd_ds_forget, forget_options, "DS",
	 "remove the record of a killed or waiting data server; refused while files need it. "
	 "--force removes it all the same: files whose only copy is there ARE LOST"},
	{"ds", "key", 1, 1, false, cmd_ds_key, key_options, "DS",
	 "write a data server's keys to a file, for ds.key on its machine; a name that does "
	 "not exist yet gets the keys of a new data server"},
	{"key", "status", 0, 0, false, cmd_key_status, NULL, "",
	 "show the number of the cluster key, and which data servers have no keys from it yet"},
	{"key", "rotate", 0, 0, false, cmd_key_rotate, yes_options, "",
	 "replace the cluster key while the cluster runs; no data server can join with the "
	 "old key any more"},
	{"policy", "get", 1, 1, true, cmd_policy_get, NULL, "PATH",
	 "show the policy for new files in a directory"},
	{"policy", "set", 2, 2, true, cmd_policy_set, NULL, "PATH POLICY",
	 "set a directory's own policy; it applies to files made from now on"},
	{"policy", "remove", 1, 1, true, cmd_policy_remove, NULL, "PATH",
	 "remove a directory's own policy; it inherits its parent's again"},
	{"config", NULL, 0, 1, false, cmd_config, config_options, "[KEY]",
	 "show the keys of the configuration that are set, or one key; --all: those with their "
	 "default too. With --admin of a data server: its keys"},
	{"set", NULL, 1, 1, false, cmd_set, NULL, "KEY=VALUE",
	 "change a key of the configuration until the daemon starts again; refused for keys that "
	 "take effect only at its start"},
	{"support", NULL, 0, 1, false, cmd_support, NULL, "[FILE]",
	 "collect what the daemons and this machine say about themselves into a tar.gz file, for "
	 "whoever helps; no keys, tokens or data"},
	{"exports", "reload", 0, 0, false, cmd_exports_reload, NULL, "",
	 "reload the exports file; if it has an error, the old exports stay in force"},
	{"exports", NULL, 0, 0, false, cmd_exports, NULL, "",
	 "list the exports and what clients may do with them"},
	{"mirror", "status", 0, 1, true, cmd_mirror_status, NULL, "[PATH]",
	 "show copies that are being repaired or moved, and copies that wait for it"},
	{"mirror", "repair", 1, 1, true, cmd_mirror_repair, repair_options, "PATH",
	 "repair a file's copies now, without waiting for an absent data server to return; "
	 "-r: of all files below PATH"},
	{"mirror", "list", 1, 1, true, cmd_mirror_list, NULL, "PATH",
	 "list a file's mirrors and their states"},
	{"mirror", "add", 1, 1, true, cmd_mirror_add, add_options, "PATH",
	 "add a mirror to a file and fill it in the background. --group LABELS: on data "
	 "servers with these labels; -r --to N: for all files below PATH that have fewer than "
	 "N mirrors"},
	{"mirror", "remove", 2, 2, true, cmd_mirror_remove, remove_options, "PATH MIRROR",
	 "delete one mirror of a file; refused if it is the only copy in sync"},
	{"mirror", "verify", 1, 1, true, cmd_mirror_verify, verify_options, "PATH",
	 "compare a file's copies; -r: of all files below PATH. --mend overwrites copies that "
	 "differ from the first copy in sync, or from --keep MIRROR: data that only the "
	 "overwritten copies have IS LOST"},
	{"mirror", "choose", 1, 1, true, cmd_mirror_choose, choose_options, "PATH",
	 "show what each copy of a file holds. --copy MIRROR declares that copy good and "
	 "overwrites the others: data that only the others have IS LOST"},
	{"move", NULL, 1, 1, true, cmd_move, move_options, "PATH",
	 "move a file to other data servers (--group LABELS, --policy POLICY, --from DS), or "
	 "change its stripes (--stripes N, --unit SIZE), while clients use it; -r: all files "
	 "below PATH; --cancel: stop"},
	{"file", "show", 1, 1, true, cmd_file_show, NULL, "PATH",
	 "show where a file's data is stored"},
	{"client", "list", 0, 0, false, cmd_client_list, NULL, "",
	 "list the clients that mount this file system, and what each holds"},
	{"client", "evict", 1, 1, false, cmd_client_evict, yes_options, "CLIENT",
	 "end a client's lease now: it loses its opens, locks and layouts, and data that it "
	 "has not committed yet MAY BE LOST"},
	{"layout", "list", 0, 1, true, cmd_layout_list, layout_options, "[PATH]",
	 "list the layouts that clients hold: of a file, of a client, or at a data server"},
	{"layout", "recall", 1, 1, true, cmd_layout_recall, NULL, "PATH",
	 "recall a file's layouts; clients that do not return them in time are fenced"},
	{"token", "create", 0, 0, false, cmd_token_create, token_options, "",
	 "make a token for the API, print it once, and keep only a hash of it. ROLE: read, "
	 "operate or admin; --days: it ends after N days"},
	{"token", "list", 0, 0, false, cmd_token_list, NULL, "",
	 "list the tokens: what each may do, until when, and when it was last used"},
	{"token", "revoke", 1, 1, false, cmd_token_revoke, NULL, "NAME",
	 "revoke a token: it counts no more from now on"},
	{"find", NULL, 0, 1, true, cmd_find, find_options, "[PATH]",
	 "print files below PATH: with objects on a data server (--on-ds), with copies not in "
	 "sync (--stale), with no copy left (--lost), with fewer copies than they should have "
	 "(--degraded), or with a policy (--policy)"},
	{"xattr", "show", 1, 2, true, cmd_xattr_show, NULL, "PATH [NAME]",
	 "show the extended attributes of a file or directory"},
	{"xattr", "set", 2, 3, true, cmd_xattr_set, NULL, "PATH NAME [VALUE]",
	 "set an extended attribute; a VALUE of 0x and hexadecimal digits is taken as bytes"},
	{"xattr", "remove", 2, 2, true, cmd_xattr_remove, NULL, "PATH NAME",
	 "remove an extended attribute"},
	{"top", NULL, 0, 0, false, cmd_top, top_options, "",
	 "show the busiest clients, data servers and directories, live; -n N: print N times, "
	 "for scripts"},
	{"heat", NULL, 0, 1, true, cmd_heat, heat_options, "[PATH]",
	 "show the directories and files that were used most lately"},
	{"advise", NULL, 0, 0, false, cmd_advise, advise_options, "",
	 "say which directories are hot, which data servers are behind, and what \"balance\" "
	 "would move"},
	{"balance", NULL, 0, 0, false, cmd_balance, balance_options, "",
	 "move files until each data server is within --spread percent of its share; --stop: "
	 "move no more"},
	{"events", NULL, 0, 0, false, cmd_events, events_options, "",
	 "print the journal of events; -f: keep printing new ones"},
	{"trace", NULL, 0, 0, false, cmd_trace, trace_options, "",
	 "print what the server did for its last requests, step by step; --id: the one that a log "
	 "line names; -f: keep printing those that are answered. With --admin of a data server: "
	 "its NFSv3 calls"},
	{"scrub", NULL, 0, 0, false, cmd_scrub, scrub_options, "",
	 "compare what the data servers hold, content included, with the metadata, and repair "
	 "what is safe to repair. After a restore, --remove-newer also deletes the data of "
	 "files that were made since the backup: IT IS LOST"},
	/* fsck and topo have options of their own; see main. */
	{"fsck", NULL, 0, ANY, false, NULL, NULL, "STORE [OPTION]...",
	 "check the metadata store of a stopped server. fsck --online [--dry-run] "
	 "[--background]: check what a running cluster's data servers hold"},
	{"topo", NULL, 0, ANY, false, NULL, NULL, "[OPTION]...",
	 "show this machine's drives, network cards and GPUs, and the distances between them"},
};
/* clang-format on */
#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

enum { TEXT_COLUMN = 37, LINE_COLUMNS = 100 };

/* Prints the words of what from TEXT_COLUMN on, in lines of at most LINE_COLUMNS. column: where the
 * line is now. */
static void put_text(FILE *f, int column, const char *what)
{
	while (*what) {
		int n = (int)strcspn(what, " ");

		if (column > TEXT_COLUMN && column + 1 + n > LINE_COLUMNS) {
			fputc('\n', f);
			column = 0;
		}
		if (column <= TEXT_COLUMN)
			column += fprintf(f, "%*s", TEXT_COLUMN - column, "");
		else
			column += fprintf(f, " ");
		column += fprintf(f, "%.*s", n, what);
		what += n + (what[n] == ' ');
	}
	fputc('\n', f);
}

static void usage(FILE *f)
{
	fputs("usage: weft [--admin ADDR] [--token-file FILE] [--cacert FILE] [--cert FILE --key "
	      "FILE] [--json]\n"
	      "       COMMAND\n"
	      "       weft --version\n",
	      f);
	for (size_t i = 0; i < COMMANDS; i++) {
		const struct command *c = &commands[i];
		char left[200];
		int n = snprintf(left, sizeof(left), "%s%s%s%s%s", c->c_noun, c->c_verb ? " " : "",
				 c->c_verb ? c->c_verb : "", *c->c_args ? " " : "", c->c_args);

		for (const struct weft_opt *o = c->c_options; o && o->o_name && n < 150; o++)
			n += o->o_short ? snprintf(left + n, sizeof(left) - (size_t)n, " [-%c%s%s]",
						   o->o_short, o->o_arg ? " " : "",
						   o->o_arg ? o->o_arg : "")
					: snprintf(left + n, sizeof(left) - (size_t)n,
						   " [--%s%s%s]", o->o_name, o->o_arg ? " " : "",
						   o->o_arg ? o->o_arg : "");
		fprintf(f, n > TEXT_COLUMN - 3 ? "  %s\n" : "  %s", left);
		put_text(f, n > TEXT_COLUMN - 3 ? 0 : 2 + n, c->c_what);
	}
	fputs("PATH is absolute, from the root of the exports. DS is a name, number or id. CLIENT "
	      "and C are\na number, name, address or clientid. POLICY is a list, in any order, of "
	      "stripes=N,unit=SIZE,\nmirrors=N,domain=KEY,group=LABELS,group0=LABELS... ADDR is "
	      "unix:/path, 127.0.0.1:port or\nhttps://HOST:port; its default is the environment "
	      "variable "
	      "WEFT_ADMIN. WEFT_TOKEN has a token, and\n--token-file a file with one.\n",
	      f);
}

bool weft_sure(const char *fmt, ...)
{
	char line[16] = "";
	va_list ap;

	if (weft_option("yes") || !isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
		return true;
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputs("\nContinue? [y/N] ", stderr);
	fflush(stderr);
	if (fgets(line, sizeof(line), stdin) && (line[0] == 'y' || line[0] == 'Y'))
		return true;
	fputs("weft: cancelled; nothing was changed\n", stderr);
	return false;
}

/* The last line of a usage error. */
static int weft_where_help_is(void)
{
	fputs("\"weft --help\" lists the commands, their arguments and their options.\n", stderr);
	return EXIT_USAGE;
}

int weft_usage_error(const char *what)
{
	fprintf(stderr, "weft: %s\n", what);
	return weft_where_help_is();
}

/* Keeps in *best the name with the fewest edits. A short name has to be nearer than a long one. */
static void weft_nearer(const char *typed, const char *name, unsigned *least, const char **best)
{
	unsigned edits = near_distance(typed, name);

	if (edits < *least && edits * 2 <= strlen(name)) {
		*least = edits;
		*best = name;
	}
}

/* Prints the nearest verb of a noun that exists, or all its verbs. False: there is no such noun. */
static bool weft_verbs(const char *noun, const char *verb)
{
	const char *near = NULL, *before = "is followed by one of: ";
	unsigned least = NEAR_EDITS + 1;
	bool any = false;

	for (size_t i = 0; i < COMMANDS; i++) {
		const struct command *c = &commands[i];

		if (c->c_verb && !strcmp(c->c_noun, noun)) {
			any = true;
			weft_nearer(verb, c->c_verb, &least, &near);
		}
	}
	if (near)
		fprintf(stderr, "Did you mean \"weft %s %s\"?\n", noun, near);
	if (near || !any)
		return any;
	fprintf(stderr, "\"weft %s\" ", noun);
	for (size_t i = 0; i < COMMANDS; i++) {
		if (!commands[i].c_verb || strcmp(commands[i].c_noun, noun))
			continue;
		fprintf(stderr, "%s%s", before, commands[i].c_verb);
		before = ", ";
	}
	fputc('\n', stderr);
	return true;
}

static int weft_unknown_command(int argc, char **argv)
{
	const char *verb = argc > 1 ? argv[1] : "", *near = NULL;
	unsigned least = NEAR_EDITS + 1;

	fprintf(stderr, "weft: unknown command \"%s%s%s\"\n", argv[0], *verb ? " " : "", verb);
	if (!weft_verbs(argv[0], verb)) {
		for (size_t i = 0; i < COMMANDS; i++)
			weft_nearer(argv[0], commands[i].c_noun, &least, &near);
		if (near)
			fprintf(stderr, "Did you mean \"weft %s\"?\n", near);
	}
	return weft_where_help_is();
}

/* ---- the command line ---- */

static struct {
	const struct weft_opt *g_opt;
	const char *g_value; /* NULL: was not given */
} given[OPTIONS];
static unsigned n_given;

static int option_index(const char *name)
{
	for (unsigned i = 0; i < n_given; i++)
		if (!strcmp(given[i].g_opt->o_name, name))
			return (int)i;
	return -1;
}

const char *weft_option(const char *name)
{
	int i = option_index(name);

	return i < 0 ? NULL : given[i].g_value;
}

/* Collects the options of all commands with this noun. */
static void weft_gather(const char *noun)
{
	n_given = 0;
	for (size_t i = 0; i < COMMANDS; i++) {
		const struct weft_opt *o = commands[i].c_options;

		for (; o && o->o_name && !strcmp(commands[i].c_noun, noun); o++)
			if (option_index(o->o_name) < 0 && n_given < OPTIONS)
				given[n_given++].g_opt = o;
	}
}

static bool has_option(const struct command *c, const struct weft_opt *want)
{
	for (const struct weft_opt *o = c->c_options; o && o->o_name; o++)
		if (!strcmp(o->o_name, want->o_name))
			return true;
	return false;
}

/* Refuses an option of another command of the noun. */
static int check_options(const struct command *c)
{
	char what[100];

	for (unsigned i = 0; i < n_given; i++) {
		if (!given[i].g_value || has_option(c, given[i].g_opt))
			continue;
		snprintf(what, sizeof(what), "%s%s%s has no option --%s", c->c_noun,
			 c->c_verb ? " " : "", c->c_verb ? c->c_verb : "", given[i].g_opt->o_name);
		return weft_usage_error(what);
	}
	return EXIT_DONE;
}

static int command_error(const struct command *c, const char *why)
{
	char what[200];

	snprintf(what, sizeof(what), "%s%s%s: %s", c->c_noun, c->c_verb ? " " : "",
		 c->c_verb ? c->c_verb : "", why);
	return weft_usage_error(what);
}

static int weft_dispatch(int argc, char **argv)
{
	for (size_t i = 0; i < COMMANDS; i++) {
		const struct command *c = &commands[i];
		int skip = c->c_verb ? 2 : 1;

		if (!c->c_fn || strcmp(argv[0], c->c_noun) ||
		    (c->c_verb && (argc < 2 || strcmp(argv[1], c->c_verb))))
			continue;
		if (argc - skip < c->c_min || argc - skip > c->c_max)
			return command_error(c, argc - skip < c->c_min ? "an argument is missing"
								       : "too many arguments");
		if (c->c_path && argc > skip && argv[skip][0] != '/')
			return command_error(c, "PATH must be absolute: begin it with /");
		return check_options(c) ? EXIT_USAGE : c->c_fn(argv + skip);
	}
	return weft_unknown_command(argc, argv);
}

enum {
	OPT_ADMIN = 256,
	OPT_JSON,
	OPT_HELP,
	OPT_VERSION,
	OPT_TOKEN_FILE,
	OPT_CACERT,
	OPT_CERT,
	OPT_KEY,
	OPT_COMMAND
};

/* getopt_long() has said which option is unknown, or lacks its argument. */
static void weft_option_error(const char *typed)
{
	static const char *const common[] = {"admin",	   "json",   "help", "version",
					     "token-file", "cacert", "cert", "key"};
	const char *near = NULL;
	unsigned least = NEAR_EDITS + 1;
	char name[NEAR_NAME];

	/* optopt is 0 for a long option that does not exist. */
	if (!optopt && !strncmp(typed, "--", 2)) {
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(typed + 2, "="), typed + 2);
		for (size_t i = 0; i < sizeof(common) / sizeof(common[0]); i++)
			weft_nearer(name, common[i], &least, &near);
		for (unsigned i = 0; i < n_given; i++)
			weft_nearer(name, given[i].g_opt->o_name, &least, &near);
	}
	if (near)
		fprintf(stderr, "Did you mean \"--%s\"?\n", near);
	exit(weft_where_help_is());
}

static void take_option(int opt, const char *typed)
{
	switch (opt) {
	case OPT_ADMIN:
		weft_admin = optarg;
		return;
	case OPT_JSON:
		weft_json = true;
		return;
	case OPT_TOKEN_FILE:
		http_creds.hc_token_file = optarg;
		return;
	case OPT_CACERT:
		http_creds.hc_cacert = optarg;
		return;
	case OPT_CERT:
		http_creds.hc_cert = optarg;
		return;
	case OPT_KEY:
		http_creds.hc_key = optarg;
		return;
	case OPT_HELP:
	case 'h':
		usage(stdout);
		exit(EXIT_DONE);
	case OPT_VERSION:
		exit(version_print("weft") ? EXIT_FAILED : EXIT_DONE);
	}
	if (opt >= OPT_COMMAND) {
		given[opt - OPT_COMMAND].g_value = optarg ? optarg : "";
		return;
	}
	for (unsigned i = 0; i < n_given; i++) {
		if (given[i].g_opt->o_short == opt) {
			given[i].g_value = optarg ? optarg : "";
			return;
		}
	}
	weft_option_error(typed);
}

/* mode: "+" ends at the first word that is no option. */
static void parse_options(int argc, char **argv, const char *mode)
{
	struct option longs[OPTIONS + COMMON + 1] = {
		{"admin", required_argument, NULL, OPT_ADMIN},
		{"json", no_argument, NULL, OPT_JSON},
		{"help", no_argument, NULL, OPT_HELP},
		{"version", no_argument, NULL, OPT_VERSION},
		{"token-file", required_argument, NULL, OPT_TOKEN_FILE},
		{"cacert", required_argument, NULL, OPT_CACERT},
		{"cert", required_argument, NULL, OPT_CERT},
		{"key", required_argument, NULL, OPT_KEY}};
	char shorts[4 + 2 * OPTIONS], *p = shorts + sprintf(shorts, "%sh", mode);
	int opt;

	for (unsigned i = 0; i < n_given; i++) {
		const struct weft_opt *o = given[i].g_opt;

		longs[COMMON + i] =
			(struct option){o->o_name, o->o_arg ? required_argument : no_argument, NULL,
					(int)(OPT_COMMAND + i)};
		if (o->o_short)
			p += sprintf(p, "%c%s", o->o_short, o->o_arg ? ":" : "");
	}
	optind = 0; /* from the start */
	while ((opt = getopt_long(argc, argv, shorts, longs, NULL)) != -1)
		take_option(opt, argv[optind - 1]);
}

int main(int argc, char **argv)
{
	char wrong[400];

	weft_admin = getenv("WEFT_ADMIN");
	if (!weft_admin || !*weft_admin)
		weft_admin = ADMIN_DEFAULT;
	/* Options may stand anywhere, but options behind fsck and topo belong to these: ours end at
	 * their name. */
	parse_options(argc, argv, "+");
	for (int i = optind + 1; optind < argc && i < argc && !strcmp(argv[optind], "fsck"); i++)
		if (!strcmp(argv[i], "--online"))
			return cmd_fsck_online(argc - optind - 1, argv + optind + 1);
	if (optind < argc && !strcmp(argv[optind], "fsck"))
		return cmd_fsck(argc - optind - 1, argv + optind + 1);
	if (optind < argc && !strcmp(argv[optind], "topo"))
		return topo_command(argc - optind, argv + optind, weft_json);
	if (optind < argc)
		weft_gather(argv[optind]);
	parse_options(argc, argv, "");
	if (http_addr_wrong(weft_admin)) {
		snprintf(wrong, sizeof(wrong), "%s \"%.200s\": %s",
			 weft_admin == getenv("WEFT_ADMIN") ? "WEFT_ADMIN" : "--admin", weft_admin,
			 http_addr_wrong(weft_admin));
		return weft_usage_error(wrong);
	}
	if (optind == argc)
		return weft_usage_error("no command was given");
	return weft_dispatch(argc - optind, argv + optind);
}
