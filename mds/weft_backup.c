/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weft_backup.c - weft-backup: backups and exports of a metadata store. "weft backup", "weft
 * restore", "weft export-meta" and "weft import-meta" run it.
 */
#include "base/conf.h"
#include "base/log.h"
#include "common/version.h"
#include "mds/meta.h"
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONF_DEFAULT "/etc/weft/weft.conf"

static const char usage_text[] =
	"usage: weft-backup backup [--incremental | --keep N] FOLDER\n"
	"       weft-backup backup [--incremental --after FILE] -o -\n"
	"       weft-backup backup --verify FOLDER|FILE...\n"
	"       weft-backup restore FOLDER|FILE...|-\n"
	"       weft-backup export-meta FILE|-\n"
	"       weft-backup import-meta [--edited] FILE|-\n"
	"       weft-backup --version\n"
	"Backs up the metadata store, beside a running server too, and puts it back.\n"
	"export-meta writes it as lines of JSON; import-meta makes a store of them.\n"
	"  --incremental   what changed since the newest backup in FOLDER, or since FILE\n"
	"  --keep N        then remove what is older than the newest N full backups there\n"
	"  -o -            write the backup to standard output\n"
	"  --verify        only check backups\n"
	"  --edited        the lines were changed: their sum does not count\n"
	"  --store STORE   the folder of the store (mds.store of the configuration)\n"
	"  -c FILE         the configuration (" CONF_DEFAULT ")\n"
	"  --json          print JSON\n"
	"Exit status: 0 done, 1 not done or not whole, 2 usage error.\n";

static int backup_usage(FILE *f)
{
	fputs(usage_text, f);
	return f == stdout && !fflush(f) ? BACKUP_DONE : BACKUP_USAGE;
}

/* Without --store the configuration says where the store is. */
static bool weft_backup_conf(struct backup_args *a)
{
	struct conf *conf;
	char err[512];

	if (conf_load(&conf, a->ba_conf, err, sizeof(err)))
		return backup_say("%s", err), false;
	/* conf lives as long as the process */
	a->ba_user = conf_str(conf, "mds.user");
	a->ba_log = *conf_str(conf, "mds.log") != 0;
	if (!a->ba_store)
		a->ba_store = conf_str(conf, "mds.store");
	if (!*a->ba_store)
		return backup_say("%s: mds.store is not set: name the store with --store",
				  a->ba_conf),
		       false;
	return true;
}

struct weft_backup_given {
	struct backup_args g_args;
	bool g_verify, g_conf, g_edited;
};

/* 1 to 9999 */
static bool weft_backup_number(const char *text, unsigned *out)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	*out = (unsigned)n;
	return *text >= '1' && *text <= '9' && !*end && n <= 9999;
}

/* Returns -1 to go on, or the exit status. */
static int weft_backup_options(int argc, char **argv, struct weft_backup_given *g)
{
	static const struct option longs[] = {
		{"incremental", 0, NULL, 'i'}, {"verify", 0, NULL, 'v'}, {"output", 1, NULL, 'o'},
		{"store", 1, NULL, 's'},       {"config", 1, NULL, 'c'}, {"after", 1, NULL, 'a'},
		{"json", 0, NULL, 'j'},	       {"help", 0, NULL, 'h'},	 {"version", 0, NULL, 'V'},
		{"edited", 0, NULL, 'e'},      {"keep", 1, NULL, 'k'},	 {0}};
	int opt;

	while ((opt = getopt_long(argc, argv, "o:c:h", longs, NULL)) != -1) {
		if (opt == 'h')
			return backup_usage(stdout);
		if (opt == 'V')
			return version_print("weft-backup") ? BACKUP_FAILED : BACKUP_DONE;
		if (opt == 'i')
			g->g_args.ba_incremental = true;
		else if (opt == 'v')
			g->g_verify = true;
		else if (opt == 'o')
			g->g_args.ba_out = optarg;
		else if (opt == 's')
			g->g_args.ba_store = optarg;
		else if (opt == 'c')
			g->g_args.ba_conf = optarg, g->g_conf = true;
		else if (opt == 'a')
			g->g_args.ba_after = optarg;
		else if (opt == 'j')
			g->g_args.ba_json = true;
		else if (opt == 'e')
			g->g_edited = true;
		else if (opt == 'k' && weft_backup_number(optarg, &g->g_args.ba_keep))
			continue;
		else
			return backup_usage(stderr);
	}
	return -1;
}

static int weft_backup_take(const struct weft_backup_given *g, char **args, int n)
{
	const struct backup_args *a = &g->g_args;

	if (a->ba_keep && (g->g_verify || a->ba_out || a->ba_incremental))
		return backup_usage(stderr);
	if (g->g_verify)
		return n && !a->ba_out && !a->ba_incremental ? backup_verify(args, n, a->ba_json)
							     : backup_usage(stderr);
	if (a->ba_out ? n || strcmp(a->ba_out, "-") != 0 || a->ba_incremental != !!a->ba_after
		      : n != 1 || a->ba_after)
		return backup_usage(stderr);
	return backup_take(a, a->ba_out ? NULL : args[0]);
}

/* -1: the command is another one. */
static int weft_backup_meta(const struct weft_backup_given *g, const char *what, char **args, int n)
{
	const struct backup_args *a = &g->g_args;
	bool in = !strcmp(what, "import-meta");

	if (!in && strcmp(what, "export-meta") != 0)
		return g->g_edited ? backup_usage(stderr) : -1;
	if (n != 1 || g->g_verify || a->ba_out || a->ba_incremental || a->ba_after || a->ba_keep ||
	    (g->g_edited && !in))
		return backup_usage(stderr);
	return in ? meta_import(a, args[0], g->g_edited) : meta_export(a, args[0]);
}

int main(int argc, char **argv)
{
	struct weft_backup_given g = {.g_args = {.ba_conf = CONF_DEFAULT, .ba_user = ""}};
	const char *what;
	int rc = weft_backup_options(argc, argv, &g), n;
	char **args;

	if (rc >= 0)
		return rc;
	n = argc - optind - 1;
	args = argv + optind + 1;
	if (n < 0)
		return backup_usage(stderr);
	what = args[-1];
	log_set_name("weft-backup");
	log_set_level(LOG_L_WARN);
	signal(SIGPIPE, SIG_IGN);
	umask(077);
	if (sodium_init() < 0)
		return backup_say("libsodium cannot be initialized");
	if (!g.g_verify && (!g.g_args.ba_store || g.g_conf) && !weft_backup_conf(&g.g_args))
		return BACKUP_FAILED;
	rc = weft_backup_meta(&g, what, args, n);
	if (rc >= 0)
		return rc;
	if (!strcmp(what, "backup"))
		return weft_backup_take(&g, args, n);
	if (!strcmp(what, "restore") && n > 0 && !g.g_verify && !g.g_args.ba_out &&
	    !g.g_args.ba_keep)
		return backup_restore(&g.g_args, args, n);
	return backup_usage(stderr);
}
