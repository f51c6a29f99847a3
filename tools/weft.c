/*
 * weft.c - the administrator's command. It talks to the metadata server's HTTP API and shows what
 * it says: tables for people, the server's JSON with --json. See docs/weft.1.
 */
#include "tools/http_get.h"
#include "tools/topo.h"
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_NO_ANSWER = 3 };
#define JSON_STYLE    (JSON_INDENT(2) | JSON_REAL_PRECISION(10))
#define ADMIN_DEFAULT "unix:/run/weft/mds.sock"
#ifndef SBINDIR
#define SBINDIR "/usr/sbin"
#endif

static const char *admin;
static bool json_out;

static void usage(FILE *f)
{
	fputs("usage: weft [--admin ADDR] [--json] COMMAND\n"
	      "  status                    the cluster at a glance\n"
	      "  ds list                   the data servers\n"
	      "  ds weight DS WEIGHT       share of new files; 1 is usual, 0: nothing new\n"
	      "  ds group DS KEY=VALUE...  labels that policies go by; KEY= takes one away\n"
	      "  policy get PATH           how files made in a directory are laid out\n"
	      "  policy set PATH POLICY    POLICY: stripes=N,unit=SIZE,mirrors=N,domain=KEY,group=LABELS,\n"
	      "                            group0=LABELS... in any order\n"
	      "  policy remove PATH        inherit from the parent again\n"
	      "  exports                   who may use what\n"
	      "  exports reload            the exports' file again; a bad one changes nothing\n"
	      "  mirror status [PATH]      copies being made equal again, and those that wait\n"
	      "  mirror repair PATH        a file's copies now, without waiting for a server\n"
	      "  file show PATH            where a file's data lies\n"
	      "  fsck STORE [OPTION]...    check the metadata store of a stopped server\n"
	      "  topo [OPTION]...          this machine's drives, network cards and GPUs, and their distances\n"
	      "PATHs are absolute from the export's root. DS is a name, number or id. ADDR is unix:/path or 127.0.0.1:port; "
	      "WEFT_ADMIN gives a default.\n",
	      f);
}

static int usage_error(const char *what)
{
	fprintf(stderr, "weft: %s\n", what);
	usage(stderr);
	return EXIT_USAGE;
}

/* ---- asking ---- */

/* EXIT_DONE and the answer in *out (the caller's reference), or said what is wrong. */
static int ask(const char *method, const char *target, const char *body, json_t **out)
{
	struct http_answer ha = {0};
	json_error_t je;
	int err = http_ask(admin, method, target, body, &ha);

	*out = NULL;
	if (err) {
		fprintf(stderr, "weft: no answer from %s: %s\n", admin, strerror(-err));
		return EXIT_NO_ANSWER;
	}
	*out = json_loads(ha.ha_body, 0, &je);
	free(ha.ha_body);
	if (!*out) {
		fprintf(stderr, "weft: %s answers %d with something that is not JSON\n", admin,
			ha.ha_status);
		/* A refusal by the HTTP layer (a path that is too long) is an answer. */
		return ha.ha_status == 200 ? EXIT_NO_ANSWER : EXIT_FAILED;
	}
	if (ha.ha_status == 200)
		return EXIT_DONE;
	if (json_is_string(json_object_get(*out, "error")))
		fprintf(stderr, "weft: %s\n", json_string_value(json_object_get(*out, "error")));
	else
		fprintf(stderr, "weft: %s answers %d\n", admin, ha.ha_status);
	if (json_out) {
		json_dumpf(*out, stdout, JSON_STYLE);
		putchar('\n');
	}
	json_decref(*out);
	*out = NULL;
	return EXIT_FAILED;
}

static int ask_about(const char *method, const char *what, const char *arg, const char *value, const char *body, json_t **out)
{
	char *encoded = http_encode(value), *target = NULL;
	int rc = EXIT_FAILED;

	if (encoded && asprintf(&target, "%s?%s=%s", what, arg, encoded) >= 0)
		rc = ask(method, target, body, out);
	free(target);
	free(encoded);
	return rc;
}

static int ask_path(const char *method, const char *what, const char *path, const char *body, json_t **out)
{
	return ask_about(method, what, "path", path, body, out);
}

/* Shows an answer and drops it: as it is with --json, else by table. */
static int show(int rc, json_t *j, void (*table)(const json_t *j))
{
	if (rc)
		return rc;
	if (json_out) {
		json_dumpf(j, stdout, JSON_STYLE);
		putchar('\n');
	} else {
		table(j);
	}
	json_decref(j);
	if (fflush(stdout) || ferror(stdout)) {
		fprintf(stderr, "weft: cannot write the output\n");
		return EXIT_FAILED;
	}
	return EXIT_DONE;
}

/* ---- tables ---- */

static const char *str(const json_t *j, const char *key)
{
	const char *s = json_string_value(json_object_get(j, key));

	return s ? s : "-";
}

static long long num(const json_t *j, const char *key)
{
	return (long long)json_integer_value(json_object_get(j, key));
}

/* Binary units, three digits. Two buffers, so that one line can show two sizes. */
static const char *size(long long bytes)
{
	static const char units[] = "BKMGTPE";
	static char buf[2][24];
	static unsigned turn;
	char *out = buf[turn++ & 1];
	double v = (double)bytes;
	unsigned u = 0;

	for (; v >= 1024 && u < sizeof(units) - 2; u++)
		v /= 1024;
	snprintf(out, sizeof(buf[0]), u && v < 10 ? "%.1f%c" : "%.0f%c", v, units[u]);
	return out;
}

static void addresses(const json_t *list)
{
	size_t i;
	json_t *a;

	json_array_foreach(list, i, a)
		printf("%s%s", i ? "," : "", json_is_string(a) ? json_string_value(a) : "?");
}

static void status_table(const json_t *j)
{
	const json_t *ds = json_object_get(j, "ds"), *cl = json_object_get(j, "clients"),
		     *st = json_object_get(j, "store");
	double per =
		num(st, "commits") ? (double)num(st, "operations") / (double)num(st, "commits") : 0;

	printf("cluster       %s\n", str(j, "cluster"));
	printf("boot epoch    %lld%s\n", num(j, "boot_epoch"),
	       json_is_true(json_object_get(j, "grace")) ? " (in grace)" : "");
	printf("data servers  %lld known, %lld alive\n", num(ds, "known"), num(ds, "alive"));
	printf("space         %s available of %s\n", size(num(ds, "available")),
	       size(num(ds, "capacity")));
	printf("clients       %lld (%lld sessions, %lld opens, %lld layouts)\n", num(cl, "known"),
	       num(cl, "sessions"), num(cl, "opens"), num(cl, "layouts"));
	printf("orders        %lld not done\n", num(j, "orders"));
	printf("store         %lld inodes, %s, %lld commits, %.1f operations each\n",
	       num(st, "inodes"), size(num(st, "bytes_used")), num(st, "commits"), per);
}

static void labels(const json_t *o)
{
	const char *key, *sep = "";
	json_t *v;

	json_object_foreach((json_t *)o, key, v)
	{
		printf("%s%s=%s", sep, key, json_is_string(v) ? json_string_value(v) : "?");
		sep = ",";
	}
	if (!*sep)
		putchar('-');
}

static double real(const json_t *j, const char *key)
{
	return json_number_value(json_object_get(j, key));
}

static void ds_line(const json_t *d)
{
	long long used = num(d, "capacity") - num(d, "available");

	printf("%-6lld %-16s %-6s %6g %9s %9s %6.1f  ", num(d, "number"), str(d, "name"), json_is_true(json_object_get(d, "alive")) ? "alive" : "dead",
	       real(d, "weight"), size(num(d, "capacity")), size(used), real(d, "load"));
	labels(json_object_get(d, "labels"));
	printf("  ");
	addresses(json_object_get(d, "addr"));
	putchar('\n');
}

static void ds_head(void)
{
	printf("%-6s %-16s %-6s %6s %9s %9s %6s  %s  %s\n", "NUMBER", "NAME", "STATE", "WEIGHT", "CAPACITY", "USED", "LOAD", "LABELS", "ADDRESSES");
}

static void ds_table(const json_t *j)
{
	const json_t *list = json_object_get(j, "ds"), *d;
	size_t i;

	ds_head();
	json_array_foreach(list, i, d)
		ds_line(d);
}

/* One, after a change. */
static void ds_one(const json_t *j)
{
	ds_head();
	ds_line(j);
}

static void policy_table(const json_t *j)
{
	puts(str(j, "policy"));
}

static void file_table(const json_t *j)
{
	const json_t *mirror, *object;
	size_t m, o;

	printf("inode %lld, %lld bytes, unit %s\n", num(j, "inode"), num(j, "size"),
	       size(num(j, "unit")));
	printf("%-6s %-6s %-10s %-16s %12s  %-44s %s\n", "MIRROR", "STRIPE", "STATE", "SERVER",
	       "SIZE", "OBJECT", "ADDRESSES");
	json_array_foreach(json_object_get(j, "mirrors"), m, mirror)
	{
		json_array_foreach(json_object_get(mirror, "objects"), o, object)
		{
			printf("%-6zu %-6zu %-10s %-16s %12lld  %-44s ", m, o, str(object, "state"),
			       str(object, "ds"), num(object, "size"), str(object, "object"));
			addresses(json_object_get(object, "addr"));
			putchar('\n');
		}
	}
}

static void words(const json_t *list)
{
	size_t i;
	json_t *w;

	json_array_foreach(list, i, w)
		printf("%s%s", i ? "," : "", json_is_string(w) ? json_string_value(w) : "?");
}

static void exports_table(const json_t *j)
{
	const json_t *e, *r;
	size_t i, k;

	json_array_foreach(json_object_get(j, "exports"), i, e)
	{
		printf("%s  id %lld%s\n", str(e, "path"), num(e, "id"),
		       json_is_true(json_object_get(e, "served")) ? "" : "  NOT SERVED: no such directory");
		json_array_foreach(json_object_get(e, "rules"), k, r)
		{
			printf("    ");
			words(json_object_get(r, "clients"));
			printf("  %s  squash=%s  anon=%lld:%lld  sec=", str(r, "access"),
			       str(r, "squash"), num(r, "anon_uid"), num(r, "anon_gid"));
			words(json_object_get(r, "sec"));
			printf("  tls=%s  privileged_port=%s  layouts=%s\n", str(r, "tls"),
			       json_is_true(json_object_get(r, "privileged_port")) ? "true"
										   : "false",
			       str(r, "layouts"));
		}
	}
}

/* ---- commands ---- */

static int cmd_exports(char **args)
{
	json_t *j;
	int rc = ask("GET", "/v1/exports", NULL, &j);

	(void)args;
	return show(rc, j, exports_table);
}

static int cmd_exports_reload(char **args)
{
	json_t *j;
	int rc = ask("PUT", "/v1/exports", "", &j);

	(void)args;
	return show(rc, j, exports_table);
}

static int cmd_status(char **args)
{
	json_t *j;
	int rc = ask("GET", "/v1/status", NULL, &j);

	(void)args;
	return show(rc, j, status_table);
}

static int cmd_ds_list(char **args)
{
	json_t *j;
	int rc = ask("GET", "/v1/ds", NULL, &j);

	(void)args;
	return show(rc, j, ds_table);
}

static int cmd_ds_weight(char **args)
{
	json_t *j;
	int rc = ask_about("PUT", "/v1/ds/weight", "ds", args[0], args[1], &j);

	return show(rc, j, ds_one);
}

/* The labels in one request: all of them, or none. */
static int cmd_ds_group(char **args)
{
	size_t len = 0;
	char *body;
	json_t *j;
	int rc;

	for (char **a = args + 1; *a; a++)
		len += strlen(*a) + 1;
	body = calloc(1, len + 1);
	if (!body)
		return EXIT_FAILED;
	for (char **a = args + 1; *a; a++) {
		strcat(body, *a);
		if (a[1])
			strcat(body, ",");
	}
	rc = ask_about("PUT", "/v1/ds/labels", "ds", args[0], body, &j);
	free(body);
	return show(rc, j, ds_one);
}

static int cmd_policy_get(char **args)
{
	json_t *j;
	int rc = ask_path("GET", "/v1/policy", args[0], NULL, &j);

	return show(rc, j, policy_table);
}

static int cmd_policy_set(char **args)
{
	json_t *j;
	int rc;

	/* To the server an empty policy is none, but a script's empty variable must not remove
	 * one. */
	if (!args[1][strspn(args[1], " \n")])
		return usage_error("POLICY is empty: policy remove makes a directory inherit");
	rc = ask_path("PUT", "/v1/policy", args[0], args[1], &j);
	return show(rc, j, policy_table);
}

static int cmd_policy_remove(char **args)
{
	json_t *j;
	int rc = ask_path("PUT", "/v1/policy", args[0], "inherit", &j);

	return show(rc, j, policy_table);
}

static int cmd_file_show(char **args)
{
	json_t *j;
	int rc = ask_path("GET", "/v1/file", args[0], NULL, &j);

	return show(rc, j, file_table);
}

static void repair_table(const json_t *j)
{
	const json_t *e;
	size_t i;

	if (!num(j, "files") && !json_array_size(json_object_get(j, "running"))) {
		puts("all copies are in sync");
		return;
	}
	printf("%lld files with copies that are not in sync; %lld at a time, %s/s\n", num(j, "files"), num(j, "files_at_a_time"), num(j, "rate") ? size(num(j, "rate")) : "any rate");
	printf("%-12s %-6s %-16s %-8s %s\n", "INODE", "OBJECT", "SERVER", "STATE", "PROGRESS");
	json_array_foreach(json_object_get(j, "running"), i, e)
	{
		long long whole = num(e, "size");

		printf("%-12lld %-6lld %-16s %-8s %3lld%%  %s of %s from %s, %s/s", num(e, "inode"), num(e, "object"), str(e, "ds"), str(e, "step"), whole ? num(e, "done") * 100 / whole : 0,
		       size(num(e, "done")), size(whole), str(e, "from"), size(num(e, "rate")));
		if (json_is_integer(json_object_get(e, "seconds_left")))
			printf(", %lld s left", num(e, "seconds_left"));
		putchar('\n');
	}
	json_array_foreach(json_object_get(j, "waiting"), i, e)
	{
		printf("%-12lld %-6lld %-16s %-8s %s", num(e, "inode"), num(e, "object"), str(e, "ds"), "waits", str(e, "why"));
		if (num(e, "seconds_left"))
			printf(", %lld s more", num(e, "seconds_left"));
		putchar('\n');
	}
}

static int cmd_mirror_status(char **args)
{
	json_t *j;
	int rc;

	if (args[0] && (args[1] || args[0][0] != '/'))
		return usage_error(args[1] ? "too many arguments" : "PATH is absolute: it begins with /");
	rc = args[0] ? ask_path("GET", "/v1/repair", args[0], NULL, &j) : ask("GET", "/v1/repair", NULL, &j);
	return show(rc, j, repair_table);
}

static int cmd_mirror_repair(char **args)
{
	json_t *j;
	int rc = ask_path("PUT", "/v1/repair", args[0], "", &j);

	return show(rc, j, repair_table);
}

/* Tries dir/name; comes back when it cannot be run. */
static void try_exec(const char *dir, const char *name, char **argv)
{
	char *path = NULL;

	if (asprintf(&path, "%s/%s", dir, name) >= 0)
		execv(path, argv);
	free(path);
}

/* The checker is a program of its own: beside this one in a build tree, in sbin where it is
 * installed, also where the whole installation was moved. */
static int cmd_fsck(int argc, char **argv)
{
	char **args = calloc((size_t)argc + 3, sizeof(*args)), self[4096], *slash;
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	int k = 0;

	if (!args)
		return EXIT_FAILED;
	args[k++] = (char *)"weft-fsck";
	if (json_out)
		args[k++] = (char *)"--json";
	for (int i = 0; i < argc; i++)
		args[k++] = argv[i];
	self[n > 0 ? n : 0] = 0;
	slash = strrchr(self, '/');
	if (slash) {
		*slash = 0;
		try_exec(self, "weft-fsck", args);
		try_exec(self, "../sbin/weft-fsck", args);
	}
	try_exec(SBINDIR, "weft-fsck", args);
	fprintf(stderr, "weft: weft-fsck is neither in %s nor in %s\n", slash ? self : "?",
		SBINDIR);
	free(args);
	return EXIT_FAILED;
}

struct command {
	const char *c_noun, *c_verb; /* verb NULL: none */
	int c_args;		     /* the first is a PATH, but of ds */
	int (*c_fn)(char **args); /* ends with NULL */
	bool c_more;		  /* or more arguments */
};
static const struct command commands[] = {
	{"status", NULL, 0, cmd_status, false},
	{"ds", "list", 0, cmd_ds_list, false},
	{"ds", "weight", 2, cmd_ds_weight, false},
	{"ds", "group", 2, cmd_ds_group, true},
	{"policy", "get", 1, cmd_policy_get, false},
	{"policy", "set", 2, cmd_policy_set, false},
	{"policy", "remove", 1, cmd_policy_remove, false},
	{"mirror", "status", 0, cmd_mirror_status, true},
	{"mirror", "repair", 1, cmd_mirror_repair, false},
	{"file", "show", 1, cmd_file_show, false},
	{"exports", "reload", 0, cmd_exports_reload, false},
	{"exports", NULL, 0, cmd_exports, false},
};

static int dispatch(int argc, char **argv)
{
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		const struct command *c = &commands[i];
		int skip = c->c_verb ? 2 : 1;

		if (strcmp(argv[0], c->c_noun) ||
		    (c->c_verb && (argc < 2 || strcmp(argv[1], c->c_verb))))
			continue;
		if (argc - skip < c->c_args || (argc - skip > c->c_args && !c->c_more))
			return usage_error(argc - skip < c->c_args ? "an argument is missing"
								   : "too many arguments");
		if (c->c_args && strcmp(c->c_noun, "ds") && argv[skip][0] != '/')
			return usage_error("PATH is absolute: it begins with /");
		return c->c_fn(argv + skip);
	}
	return usage_error("unknown command");
}

static void parse_options(int argc, char **argv, const char *shorts)
{
	static const struct option options[] = {{"admin", required_argument, NULL, 'a'},
						{"json", no_argument, NULL, 'j'},
						{"help", no_argument, NULL, 'h'},
						{0}};
	int opt;

	optind = 0; /* from the start */
	while ((opt = getopt_long(argc, argv, shorts, options, NULL)) != -1) {
		switch (opt) {
		case 'a':
			admin = optarg;
			break;
		case 'j':
			json_out = true;
			break;
		case 'h':
			usage(stdout);
			exit(EXIT_DONE);
		default:
			usage(stderr);
			exit(EXIT_USAGE);
		}
	}
}

int main(int argc, char **argv)
{
	admin = getenv("WEFT_ADMIN");
	if (!admin || !*admin)
		admin = ADMIN_DEFAULT;
	/* Options may stand anywhere, but those of fsck and topo go to them: ours end at their name. */
	parse_options(argc, argv, "+h");
	if (optind < argc && !strcmp(argv[optind], "fsck"))
		return cmd_fsck(argc - optind - 1, argv + optind + 1);
	if (optind < argc && !strcmp(argv[optind], "topo"))
		return topo_command(argc - optind, argv + optind, json_out);
	parse_options(argc, argv, "h");
	if (optind == argc)
		return usage_error("what is to be done?");
	return dispatch(argc - optind, argv + optind);
}
