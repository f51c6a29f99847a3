/* SPDX-License-Identifier: Apache-2.0 */
/* weft_fsck.c - weft fsck: the offline checker is a program of its own. */
#include "tools/weft.h"
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

/* The checker lies beside this program in a build tree, and in sbin where it is installed, also if
 * the whole installation was moved. */
int cmd_fsck(int argc, char **argv)
{
	char **args = calloc((size_t)argc + 3, sizeof(*args)), self[4096], *slash;
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	int k = 0;

	if (!args)
		return EXIT_FAILED;
	args[k++] = (char *)"weft-fsck";
	if (weft_json)
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
	fprintf(stderr, "weft: cannot run weft-fsck: it is neither in %s nor in %s\n",
		slash ? self : "?", SBINDIR);
	free(args);
	return EXIT_FAILED;
}
