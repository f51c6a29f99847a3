/*
 * weft.c - the administrator's command: what it can do, and its command line. It talks to the
 * metadata server's HTTP API and shows what it says: tables for people, the server's JSON with
 * --json. See docs/weft.1.
 */
#include "tools/weft.h"
#include "tools/topo.h"
#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ADMIN_DEFAULT "unix:/run/weft-mds/admin"
enum { OPTIONS = 24, ANY = 1 << 20 };

const char *weft_admin;
bool weft_json;

/* ---- what there is ---- */

struct command {
	const char *c_noun, *c_verb; /* verb NULL: none */
	int c_min, c_max;	     /* arguments */
	bool c_path;		     /* the first, where there is one, is a PATH */
	weft_cmd *c_fn;
	const struct weft_opt *c_options;
	const char *c_args, *c_what; /* for the summary */
};
static const struct weft_opt layout_options[] = {{"client", 0, "C"}, {"ds", 0, "DS"}, {0}};
static const struct weft_opt events_options[] = {{"follow", 'f', NULL}, {"since", 0, "TIME"}, {"kind", 0, "KIND"}, {"last", 'n', "N"}, {0}};
static const struct weft_opt add_options[] = {{"group", 'g', "LABELS"}, {"wait", 'w', NULL}, {"recursive", 'r', NULL}, {"to", 0, "N"}, {NULL}};
static const struct weft_opt repair_options[] = {{"recursive", 'r', NULL}, {NULL}};
static const struct weft_opt verify_options[] = {{"recursive", 'r', NULL}, {"mend", 0, NULL}, {"keep", 0, "MIRROR"}, {"yes", 'y', NULL}, {NULL}};
static const struct weft_opt wait_options[] = {{"wait", 'w', NULL}, {NULL}};
static const struct weft_opt move_options[] = {{"group", 'g', "LABELS"}, {"policy", 'p', "POLICY"}, {"from", 'f', "DS"}, {"stripes", 's', "N"}, {"unit", 'u', "SIZE"}, {"cancel", 0, NULL}, {"wait", 'w', NULL}, {"recursive", 'r', NULL}, {NULL}};
static const struct weft_opt find_options[] = {{"on-ds", 0, "DS"}, {"stale", 0, NULL}, {"lost", 0, NULL}, {"degraded", 0, NULL}, {"policy", 0, "TEXT"}, {0}};
static const struct weft_opt top_options[] = {{"times", 'n', "N"}, {"rows", 0, "N"}, {0}};
static const struct weft_opt heat_options[] = {{"rows", 0, "N"}, {0}};
static const struct weft_opt advise_options[] = {{"spread", 0, "PERCENT"}, {0}};
static const struct weft_opt balance_options[] = {{"dry-run", 0, NULL}, {"files", 0, "N"}, {"bytes", 0, "SIZE"}, {"rate", 0, "SIZE"}, {"spread", 0, "PERCENT"}, {"stop", 0, NULL}, {0}};
static const struct weft_opt choose_options[] = {{"copy", 0, "MIRROR"}, {"force", 0, NULL}, {"yes", 'y', NULL}, {0}};
static const struct weft_opt scrub_options[] = {
	{"dry-run", 0, NULL}, {"background", 0, NULL}, {"remove-newer", 0, NULL}, {"status", 0, NULL},
	{"stop", 0, NULL},    {"yes", 'y', NULL},    {0},
};
static const struct weft_opt forget_options[] = {{"force", 0, NULL}, {"yes", 'y', NULL}, {0}};
static const struct weft_opt key_options[] = {{"out", 'o', "FILE"}, {0}};
static const struct weft_opt yes_options[] = {{"yes", 'y', NULL}, {0}};
static const struct weft_opt remove_options[] = {{"wait", 'w', NULL}, {"yes", 'y', NULL}, {0}};
/* A row is a line; the first that fits counts. */
/* clang-format off */
static const struct command commands[] = {
	{"status", NULL, 0, 0, false, cmd_status, NULL, "", "the cluster at a glance"},
	{"ds", "list", 0, 0, false, cmd_ds_list, NULL, "", "the data servers"},
	{"ds", "weight", 2, 2, false, cmd_ds_weight, NULL, "DS WEIGHT", "share of new files; 1 is usual, 0: nothing new"},
	{"ds", "add", 1, ANY, false, cmd_ds_add, NULL, "URL [KEY=VALUE]...", "take in any NFSv3 server, nfs3://HOST[:PORT]/PATH"},
	{"ds", "group", 2, ANY, false, cmd_ds_group, NULL, "DS KEY=VALUE...", "labels that policies go by; KEY= takes one away"},
	{"ds", "drain", 1, 1, false, cmd_ds_drain, wait_options, "DS", "empty a data server while clients keep working: nothing new goes there, what is there is moved away"},
	{"ds", "undrain", 1, 1, false, cmd_ds_undrain, NULL, "DS", "a server like others again"},
	{"ds", "kill", 1, 1, false, cmd_ds_kill, yes_options, "DS", "declare a data server dead and fence it; files with their only copy there cannot be read until \"ds admit\""},
	{"ds", "admit", 1, 1, false, cmd_ds_admit, NULL, "DS", "let one that waits, or was killed, join"},
	{"ds", "forget", 1, 1, false, cmd_ds_forget, forget_options, "DS", "remove a dead server's record; refused while files need it; --force LOSES files of which it has the only copy"},
	{"ds", "key", 1, 1, false, cmd_ds_key, key_options, "DS", "a file with the keys of a data server, for ds.key there; a name that none has: of a new one"},
	{"key", "status", 0, 0, false, cmd_key_status, NULL, "", "the number of the cluster key, and which data servers are without keys from it"},
	{"key", "rotate", 0, 0, false, cmd_key_rotate, yes_options, "", "a new cluster key while all runs; the old key opens no data server any more"},
	{"policy", "get", 1, 1, true, cmd_policy_get, NULL, "PATH", "how files made in a directory are laid out"},
	{"policy", "set", 2, 2, true, cmd_policy_set, NULL, "PATH POLICY", "from now on, by a policy of its own"},
	{"policy", "remove", 1, 1, true, cmd_policy_remove, NULL, "PATH", "inherit from the parent again"},
	{"exports", "reload", 0, 0, false, cmd_exports_reload, NULL, "", "the exports' file again; a bad one changes nothing"},
	{"exports", NULL, 0, 0, false, cmd_exports, NULL, "", "who may use what"},
	{"mirror", "status", 0, 1, true, cmd_mirror_status, NULL, "[PATH]", "copies being made equal again, and those that wait"},
	{"mirror", "repair", 1, 1, true, cmd_mirror_repair, repair_options, "PATH", "a file's copies now, without waiting for a server; -r: of all below"},
	{"mirror", "list", 1, 1, true, cmd_mirror_list, NULL, "PATH", "a file's mirrors, and what state they are in"},
	{"mirror", "add", 1, 1, true, cmd_mirror_add, add_options, "PATH", "one mirror more, which is filled then; --group LABELS: where; -r --to N: of all below that have less than N"},
	{"mirror", "remove", 2, 2, true, cmd_mirror_remove, remove_options, "PATH MIRROR", "delete one copy of a file; refused where it is the only one in sync"},
	{"mirror", "verify", 1, 1, true, cmd_mirror_verify, verify_options, "PATH", "compares copies; -r: all below; --mend: LOSES what only others than the first, or --keep MIRROR, have"},
	{"mirror", "choose", 1, 1, true, cmd_mirror_choose, choose_options, "PATH", "what each copy has; --copy MIRROR: that one is good, and what the others have is LOST"},
	{"move", NULL, 1, 1, true, cmd_move, move_options, "PATH", "a file to other servers: --group LABELS, --policy POLICY, --from DS; or into other stripes; -r: all below; --cancel"},
	{"file", "show", 1, 1, true, cmd_file_show, NULL, "PATH", "where a file's data lies"},
	{"client", "list", 0, 0, false, cmd_client_list, NULL, "", "who mounts this file system, and what each holds"},
	{"client", "evict", 1, 1, false, cmd_client_evict, yes_options, "CLIENT", "put one out as if its lease had run out; what it has written and not committed is LOST"},
	{"layout", "list", 0, 1, true, cmd_layout_list, layout_options, "[PATH]", "layouts that are out: of a file, a client, a data server"},
	{"layout", "recall", 1, 1, true, cmd_layout_recall, NULL, "PATH", "take a file's layouts back; fenced at the deadline"},
	{"find", NULL, 0, 1, true, cmd_find, find_options, "[PATH]", "files on a data server, with copies not in sync, of which no copy is left, or fewer than should be, or of a policy"},
	{"xattr", "show", 1, 2, true, cmd_xattr_show, NULL, "PATH [NAME]", "extended attributes, readable"},
	{"xattr", "set", 2, 3, true, cmd_xattr_set, NULL, "PATH NAME [VALUE]", "0x and digits: bytes"},
	{"xattr", "remove", 2, 2, true, cmd_xattr_remove, NULL, "PATH NAME", "take one away"},
	{"top", NULL, 0, 0, false, cmd_top, top_options, "", "who does how much now, live; -n N: N times, for scripts"},
	{"heat", NULL, 0, 1, true, cmd_heat, heat_options, "[PATH]", "directories and files where most was done lately"},
	{"advise", NULL, 0, 0, false, cmd_advise, advise_options, "", "in words: what is hot, which data servers are behind, and what would move"},
	{"balance", NULL, 0, 0, false, cmd_balance, balance_options, "", "move files until data servers are within the spread of their shares"},
	{"events", NULL, 0, 0, false, cmd_events, events_options, "", "the journal of what happened; -f goes on"},
	{"scrub", NULL, 0, 0, false, cmd_scrub, scrub_options, "", "compares what the data servers have with what it should be, content too, and mends what is safe to mend; --remove-newer LOSES what was written since the backup"},
	/* Their options are their own; see main. */
	{"fsck", NULL, 0, ANY, false, NULL, NULL, "STORE [OPTION]...", "check the metadata store of a stopped server; --online [--dry-run] [--background]: what a running cluster's data servers have"},
	{"topo", NULL, 0, ANY, false, NULL, NULL, "[OPTION]...", "this machine's drives, network cards and GPUs, and their distances"},
};
/* clang-format on */
#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

static void usage(FILE *f)
{
	fputs("usage: weft [--admin ADDR] [--json] COMMAND\n", f);
	for (size_t i = 0; i < COMMANDS; i++) {
		const struct command *c = &commands[i];
		char left[200];
		int n = snprintf(left, sizeof(left), "%s%s%s%s%s", c->c_noun, c->c_verb ? " " : "",
				 c->c_verb ? c->c_verb : "", *c->c_args ? " " : "", c->c_args);

		for (const struct weft_opt *o = c->c_options; o && o->o_name && n < 150; o++)
			n += o->o_short ? snprintf(left + n, sizeof(left) - (size_t)n, " [-%c%s%s]", o->o_short, o->o_arg ? " " : "", o->o_arg ? o->o_arg : "")
					: snprintf(left + n, sizeof(left) - (size_t)n, " [--%s%s%s]", o->o_name, o->o_arg ? " " : "", o->o_arg ? o->o_arg : "");
		fprintf(f, n > 34 ? "  %s\n  %34s %s\n" : "  %-34s%s %s\n", left, "", c->c_what);
	}
	fputs("PATHs are absolute from the export's root. DS is a name, number or id; CLIENT and C are a number, name, address or clientid. POLICY: "
	      "stripes=N,unit=SIZE,mirrors=N,domain=KEY,group=LABELS,group0=LABELS... in any order. ADDR is "
	      "unix:/path or 127.0.0.1:port; WEFT_ADMIN gives a default.\n",
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
	fputs("\nGo on? [y/N] ", stderr);
	fflush(stderr);
	if (fgets(line, sizeof(line), stdin) && (line[0] == 'y' || line[0] == 'Y'))
		return true;
	fputs("weft: nothing was done\n", stderr);
	return false;
}

int weft_usage_error(const char *what)
{
	fprintf(stderr, "weft: %s\n", what);
	usage(stderr);
	return EXIT_USAGE;
}

/* ---- the command line ---- */

static struct {
	const struct weft_opt *g_opt;
	const char *g_value; /* NULL: not given */
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

/* The options that the commands of this noun have. */
static void gather(const char *noun)
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

/* An option that another command of the noun has is refused, not overlooked. */
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

static int dispatch(int argc, char **argv)
{
	for (size_t i = 0; i < COMMANDS; i++) {
		const struct command *c = &commands[i];
		int skip = c->c_verb ? 2 : 1;

		if (!c->c_fn || strcmp(argv[0], c->c_noun) ||
		    (c->c_verb && (argc < 2 || strcmp(argv[1], c->c_verb))))
			continue;
		if (argc - skip < c->c_min || argc - skip > c->c_max)
			return weft_usage_error(argc - skip < c->c_min ? "an argument is missing"
								       : "too many arguments");
		if (c->c_path && argc > skip && argv[skip][0] != '/')
			return weft_usage_error("PATH is absolute: it begins with /");
		return check_options(c) ? EXIT_USAGE : c->c_fn(argv + skip);
	}
	return weft_usage_error("unknown command");
}

enum { OPT_ADMIN = 256, OPT_JSON, OPT_HELP, OPT_COMMAND };

static void take_option(int opt)
{
	switch (opt) {
	case OPT_ADMIN:
		weft_admin = optarg;
		return;
	case OPT_JSON:
		weft_json = true;
		return;
	case OPT_HELP:
	case 'h':
		usage(stdout);
		exit(EXIT_DONE);
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
	usage(stderr);
	exit(EXIT_USAGE);
}

/* mode: "+" ends at the first word that is no option. */
static void parse_options(int argc, char **argv, const char *mode)
{
	struct option longs[OPTIONS + 4] = {{"admin", required_argument, NULL, OPT_ADMIN},
					    {"json", no_argument, NULL, OPT_JSON},
					    {"help", no_argument, NULL, OPT_HELP}};
	char shorts[4 + 2 * OPTIONS], *p = shorts + sprintf(shorts, "%sh", mode);
	int opt;

	for (unsigned i = 0; i < n_given; i++) {
		const struct weft_opt *o = given[i].g_opt;

		longs[3 + i] = (struct option){o->o_name, o->o_arg ? required_argument : no_argument,
					       NULL, (int)(OPT_COMMAND + i)};
		if (o->o_short)
			p += sprintf(p, "%c%s", o->o_short, o->o_arg ? ":" : "");
	}
	optind = 0; /* from the start */
	while ((opt = getopt_long(argc, argv, shorts, longs, NULL)) != -1)
		take_option(opt);
}

int main(int argc, char **argv)
{
	weft_admin = getenv("WEFT_ADMIN");
	if (!weft_admin || !*weft_admin)
		weft_admin = ADMIN_DEFAULT;
	/* Options may stand anywhere, but those of fsck and topo go to them: ours end at their name. */
	parse_options(argc, argv, "+");
	for (int i = optind + 1; optind < argc && i < argc && !strcmp(argv[optind], "fsck"); i++)
		if (!strcmp(argv[i], "--online"))
			return cmd_fsck_online(argc - optind - 1, argv + optind + 1);
	if (optind < argc && !strcmp(argv[optind], "fsck"))
		return cmd_fsck(argc - optind - 1, argv + optind + 1);
	if (optind < argc && !strcmp(argv[optind], "topo"))
		return topo_command(argc - optind, argv + optind, weft_json);
	if (optind < argc)
		gather(argv[optind]);
	parse_options(argc, argv, "");
	if (optind == argc)
		return weft_usage_error("what is to be done?");
	return dispatch(argc - optind, argv + optind);
}
