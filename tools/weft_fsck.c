/* SPDX-License-Identifier: Apache-2.0 */
/* weft_fsck.c - weft fsck, backup and restore: programs of their own, which open a store. */
#include "tools/weft_tool.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Tries to run dir/name. Returns only if that fails. */
static void try_exec(const char *dir, const char *name, char **argv)
{
	char *path = NULL;

	if (asprintf(&path, "%s/%s", dir, name) >= 0)
		execv(path, argv);
	free(path);
}

/* The program lies beside this one in a build tree, and in sbin where it is installed, also if the
 * whole installation was moved. first: an argument before those that were given, or NULL. */
static int run_sbin(const char *name, const char *first, int argc, char **argv)
{
	char **args = calloc((size_t)argc + 4, sizeof(*args)), self[4096], *slash;
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	int k = 0;

	if (!args)
		return EXIT_FAILED;
	args[k++] = (char *)name;
	if (weft_json)
		args[k++] = (char *)"--json";
	if (first)
		args[k++] = (char *)first;
	for (int i = 0; i < argc; i++)
		args[k++] = argv[i];
	self[n > 0 ? n : 0] = 0;
	slash = strrchr(self, '/');
	if (slash) {
		char above[4096 + 16];

		*slash = 0;
		snprintf(above, sizeof(above), "%s/../sbin", self);
		try_exec(self, name, args);
		try_exec(above, name, args);
	}
	try_exec(SBINDIR, name, args);
	fprintf(stderr, "weft: cannot run %s: it is neither in %s nor in %s\n", name,
		slash ? self : "?", SBINDIR);
	free(args);
	return EXIT_FAILED;
}

int cmd_fsck(int argc, char **argv)
{
	return run_sbin("weft-fsck", NULL, argc, argv);
}

int cmd_backup(const char *what, int argc, char **argv)
{
	return run_sbin("weft-backup", what, argc, argv);
}

int weft_check_log(char *conninfo, const char *number, const char *store)
{
	char *args[] = {conninfo, (char *)"--instance", (char *)number, (char *)store};

	return run_sbin("weft-fsck", "--log", store ? 4 : 3, args);
}
