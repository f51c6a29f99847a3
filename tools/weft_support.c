/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weft_support.c - weft support: one file for whoever helps from afar: what the daemons answer, and
 * what this machine is. Keys, tokens and the content of files stay out: the daemons do not give
 * them away, and no file of /etc/weft is read.
 */
#include "tools/weft_tool.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

struct part {
	const char *p_file, *p_target;
};
static const struct part of_mds[] = {
	{"health.json", "/v1/health"},
	{"status.json", "/v1/status"},
	{"ds.json", "/v1/ds"},
	{"config.json", "/v1/config"},
	{"exports.json", "/v1/exports"},
	{"clients.json", "/v1/clients"},
	{"events.json", "/v1/events?last=1000"},
	{"jobs.json", "/v1/jobs"},
	{"orders.json", "/v1/orders?last=1000"},
	{"repair.json", "/v1/repair"},
	{"restripe.json", "/v1/restripe"},
	{"balance.json", "/v1/balance"},
	{"verify.json", "/v1/verify"},
	{"scrub.json", "/v1/scrub"},
	{"key.json", "/v1/key"},
	{"top.json", "/v1/top"},
	{"trace.json", "/v1/trace?last=100"},
	{"metrics.txt", "/metrics"},
};
static const struct part of_ds[] = {
	{"health.json", "/v1/health"},
	{"config.json", "/v1/config"},
	{"trace.json", "/v1/trace?last=100"},
	{"metrics.txt", "/metrics"},
};

struct command {
	const char *c_file;
	char *const *c_args;
};
#define ARGS(...) ((char *const[]){__VA_ARGS__, NULL})
static const struct command commands[] = {
	{"uname.txt", ARGS("uname", "-a")},
	{"os-release.txt", ARGS("cat", "/etc/os-release")},
	{"cpuinfo.txt", ARGS("lscpu")},
	{"memory.txt", ARGS("cat", "/proc/meminfo")},
	{"mounts.txt", ARGS("cat", "/proc/self/mounts")},
	{"df.txt", ARGS("df", "-PT")},
	{"packages.txt", ARGS("dpkg-query", "-W", "weft-*", "libweft*")},
	{"units.txt", ARGS("systemctl", "--no-pager", "--full", "status", "weft-*")},
	{"journal.txt",
	 ARGS("journalctl", "--no-pager", "--lines=20000", "--output=short-iso", "--unit=weft-*")},
};

/* Standard output and error of the command go to fd, or, with fd -1, stay. Returns its status, or
 * -errno. */
static int support_run(char *const *args, int fd)
{
	posix_spawn_file_actions_t fa;
	pid_t pid;
	int e, status;

	posix_spawn_file_actions_init(&fa);
	if (fd >= 0) {
		posix_spawn_file_actions_adddup2(&fa, fd, 1);
		posix_spawn_file_actions_adddup2(&fa, fd, 2);
	}
	e = posix_spawnp(&pid, args[0], &fa, NULL, args, environ);
	posix_spawn_file_actions_destroy(&fa);
	if (e)
		return -e;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -ECHILD;
}

/* A new file in the bundle's folder: a descriptor, or -1 with errno. */
static int support_file(int dir, const char *sub, const char *name)
{
	char path[NAME_MAX];

	if (sub && mkdirat(dir, sub, 0700) && errno != EEXIST)
		return -1;
	snprintf(path, sizeof(path), "%s%s%s", sub ? sub : "", sub ? "/" : "", name);
	return openat(dir, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
}

/* What is not there is said in the file itself. False: the file cannot be written. */
static bool support_ask(int dir, const char *sub, const struct part *p)
{
	char *text = NULL;
	int fd = support_file(dir, sub, p->p_file), rc = weft_ask_text(p->p_target, &text);
	FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
	bool ok = f && (text ? fputs(text, f) : fprintf(f, "no answer, status %d\n", rc)) >= 0;

	free(text);
	if (f)
		return !fclose(f) && ok;
	if (fd >= 0)
		close(fd);
	return false;
}

static bool support_commands(int dir)
{
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		int fd = support_file(dir, NULL, commands[i].c_file), e;

		if (fd < 0)
			return false;
		e = support_run(commands[i].c_args, fd);
		if (e < 0)
			dprintf(fd, "%s: %s\n", commands[i].c_args[0], strerror(-e));
		close(fd);
	}
	return true;
}

/* The data servers of this machine, by their sockets. */
static bool support_data_servers(int dir)
{
	const char *mds = weft_admin;
	bool ok = true;
	glob_t g;

	if (glob("/run/weft-ds*/admin", 0, NULL, &g))
		return true;
	for (size_t i = 0; i < g.gl_pathc && ok; i++) {
		char addr[PATH_MAX], sub[NAME_MAX];

		snprintf(addr, sizeof(addr), "unix:%s", g.gl_pathv[i]);
		snprintf(sub, sizeof(sub), "%.*s", (int)strcspn(g.gl_pathv[i] + 5, "/"),
			 g.gl_pathv[i] + 5);
		weft_admin = addr;
		for (size_t k = 0; k < sizeof(of_ds) / sizeof(of_ds[0]) && ok; k++)
			ok = support_ask(dir, sub, &of_ds[k]);
	}
	globfree(&g);
	weft_admin = mds;
	return ok;
}

/* Removes the folder and what is in it, two levels deep. */
static void support_remove(const char *path)
{
	support_run(ARGS("rm", "-r", "--", (char *)path), -1);
}

static int support_pack(const char *folder, const char *name, const char *out)
{
	char *const args[] = {"tar",	     "--create",     "--gzip", "--file",     (char *)out,
			      "--directory", (char *)folder, "--",     (char *)name, NULL};
	int e = support_run(args, -1);

	if (!e)
		return EXIT_DONE;
	fprintf(stderr, "weft: %s: cannot be made%s%s\n", out, e < 0 ? ": tar: " : "",
		e < 0 ? strerror(-e) : "");
	unlink(out);
	return EXIT_FAILED;
}

int cmd_support(char **args)
{
	char folder[] = "/var/tmp/weft-support.XXXXXX", name[96], path[PATH_MAX], out[PATH_MAX];
	char host[65] = "";
	time_t now = time(NULL);
	struct tm tm;
	bool ok = true;
	int dir, rc;

	gethostname(host, sizeof(host) - 1);
	snprintf(name, sizeof(name), "weft-support-%.60s-", host);
	strftime(name + strlen(name), sizeof(name) - strlen(name), "%Y%m%dT%H%M%SZ",
		 gmtime_r(&now, &tm));
	snprintf(out, sizeof(out), "%s%s", args[0] ? args[0] : name, args[0] ? "" : ".tar.gz");
	if (!access(out, F_OK)) {
		fprintf(stderr, "weft: %s: is there already\n", out);
		return EXIT_FAILED;
	}
	if (!mkdtemp(folder)) {
		fprintf(stderr, "weft: %s: %s\n", folder, strerror(errno));
		return EXIT_FAILED;
	}
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	dir = mkdir(path, 0700) ? -1 : open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	umask(077);
	ok = dir >= 0 && support_commands(dir);
	for (size_t i = 0; i < sizeof(of_mds) / sizeof(of_mds[0]) && ok; i++)
		ok = support_ask(dir, "weft-mds", &of_mds[i]);
	ok = ok && support_data_servers(dir);
	if (ok)
		rc = support_pack(folder, name, out);
	else
		fprintf(stderr, "weft: %s: %s\n", path, strerror(errno)), rc = EXIT_FAILED;
	if (dir >= 0)
		close(dir);
	support_remove(folder);
	if (!rc && weft_json)
		printf("{\"file\": \"%s\"}\n", out);
	else if (!rc)
		printf("%s\nIt names files, clients and addresses, and holds no key, token or "
		       "data. Look "
		       "into it before you send it.\n",
		       out);
	return rc ? rc : weft_flush();
}
