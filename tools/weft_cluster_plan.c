/* SPDX-License-Identifier: Apache-2.0 */
/* weft_cluster_plan.c - what weft cluster would do, and doing it: see weft_cluster.h. */
#include "tools/weft_cluster.h"
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sodium.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PLAN_FILE_MAX 65536

extern char **environ;

char *plan_text(const char *fmt, ...)
{
	char *text;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0)
		text = NULL;
	va_end(ap);
	return text;
}

/* ---- what is said ---- */

static void plan_say(json_t *list, const char *how, const char *kind, const char *what)
{
	json_array_append_new(list, json_pack("{s:s, s:s}", kind, how, "what", what));
	if (!weft_json)
		printf("%-11s %s\n", how, what);
}

static void plan_check(struct plan *p, const char *how, const char *fmt, va_list ap)
{
	char what[1000];

	vsnprintf(what, sizeof(what), fmt, ap);
	plan_say(p->pl_checks, how, "state", what);
}

void plan_ok(struct plan *p, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	plan_check(p, "ok", fmt, ap);
	va_end(ap);
}

void plan_warn(struct plan *p, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	plan_check(p, "WARN", fmt, ap);
	va_end(ap);
}

static int plan_refuse_text(struct plan *p, const char *what)
{
	fflush(stdout);
	fprintf(stderr, "weft: %s\n", what);
	json_array_append_new(p->pl_checks,
			      json_pack("{s:s, s:s}", "state", "refused", "what", what));
	return EXIT_FAILED;
}

int plan_refuse(struct plan *p, const char *fmt, ...)
{
	char what[1000];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	return plan_refuse_text(p, what);
}

int plan_unless_forced(struct plan *p, const char *fmt, ...)
{
	char what[900];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	if (!p->pl_force)
		return plan_refuse(p, "%s; --force goes on all the same", what);
	plan_warn(p, "%s", what);
	return EXIT_DONE;
}

/* ---- begin and end ---- */

bool plan_path(const struct plan *p, const char *path, char out[PATH_MAX])
{
	return snprintf(out, PATH_MAX, "%s%s", p->pl_root, path) < PATH_MAX;
}

/* The user weft, as this machine or the folder of --root has it. */
static int plan_user(struct plan *p)
{
	char file[PATH_MAX];
	struct passwd *pw = NULL;
	struct group *gr = NULL;
	FILE *f;

	if (!*p->pl_root) {
		pw = getpwnam("weft");
		gr = getgrnam("weft");
	} else {
		f = plan_path(p, "/etc/passwd", file) ? fopen(file, "re") : NULL;
		while (f && (pw = fgetpwent(f)) && strcmp(pw->pw_name, "weft"))
			;
		if (f)
			fclose(f);
		f = plan_path(p, "/etc/group", file) ? fopen(file, "re") : NULL;
		while (f && (gr = fgetgrent(f)) && strcmp(gr->gr_name, "weft"))
			;
		if (f)
			fclose(f);
	}
	if (!pw || !gr)
		return plan_refuse(p,
				   "there is no %s weft%s%s; the packages make it, or "
				   "systemd-sysusers with /usr/lib/sysusers.d/weft.conf",
				   pw ? "group" : "user", *p->pl_root ? " below " : "", p->pl_root);
	p->pl_uid = pw->pw_uid;
	p->pl_gid = gr->gr_gid;
	return EXIT_DONE;
}

int plan_begin(struct plan *p)
{
	const char *root = weft_option("root");
	struct stat st;

	*p = (struct plan){.pl_root = root ? root : ""};
	p->pl_dry = weft_option("dry-run") != NULL;
	p->pl_force = weft_option("force") != NULL;
	p->pl_checks = json_array();
	p->pl_did = json_array();
	if (root && (root[0] != '/' || stat(root, &st) || !S_ISDIR(st.st_mode)))
		return plan_refuse(p, "--root %s: expected the absolute path of a folder", root);
	if (root && !root[strspn(root, "/")])
		p->pl_root = "";
	p->pl_systemd = !*p->pl_root && !access("/run/systemd/system", F_OK);
	if (geteuid() && !p->pl_dry)
		return plan_refuse(p, "only root can give files to the user weft: run this as root "
				      "(or look at it with --dry-run)");
	return plan_user(p);
}

void plan_free(struct plan *p)
{
	for (unsigned i = 0; i < p->pl_n; i++) {
		struct plan_step *s = &p->pl_step[i];

		if (s->ps_text)
			sodium_memzero(s->ps_text, strlen(s->ps_text));
		free(s->ps_text);
		free(s->ps_what);
	}
	json_decref(p->pl_checks);
	json_decref(p->pl_did);
}

int plan_end(struct plan *p, int rc)
{
	json_t *j;

	if (weft_json) {
		j = json_pack("{s:b, s:b, s:O, s:O}", "done", !rc && !p->pl_dry, "dry_run",
			      p->pl_dry, "checks", p->pl_checks, "steps", p->pl_did);
		json_dumpf(j, stdout, WEFT_JSON_STYLE);
		putchar('\n');
		json_decref(j);
	}
	plan_free(p);
	return weft_flush() ? EXIT_FAILED : rc;
}

/* ---- the steps ---- */

static struct plan_step *plan_add(struct plan *p, enum plan_kind kind, char *what)
{
	struct plan_step *s = &p->pl_step[p->pl_n];

	if (p->pl_n == PLAN_STEPS || !what) {
		p->pl_failed = true;
		free(what);
		return NULL;
	}
	p->pl_n++;
	*s = (struct plan_step){.ps_kind = kind, .ps_what = what};
	return s;
}

void plan_folder(struct plan *p, const char *path, enum plan_owner owner, mode_t mode)
{
	struct plan_step *s = plan_add(p, PLAN_FOLDER, strdup(path));

	if (s) {
		s->ps_owner = owner;
		s->ps_mode = mode;
	}
}

void plan_file(struct plan *p, const char *path, enum plan_owner owner, mode_t mode, char *text,
	       bool secret)
{
	struct plan_step *s = plan_add(p, PLAN_FILE, strdup(path));

	p->pl_failed |= !text;
	if (!s) {
		free(text);
		return;
	}
	s->ps_owner = owner;
	s->ps_mode = mode;
	s->ps_text = text;
	s->ps_secret = secret;
}

void plan_command(struct plan *p, const char *fmt, ...)
{
	char *text;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0)
		text = NULL;
	va_end(ap);
	plan_add(p, PLAN_COMMAND, text);
}

bool plan_there(const struct plan *p, const char *path)
{
	char full[PATH_MAX];
	struct stat st;

	return plan_path(p, path, full) && !lstat(full, &st);
}

/* ---- looking at them ---- */

static uid_t plan_uid(const struct plan *p, const struct plan_step *s)
{
	return s->ps_owner == PLAN_WEFT ? p->pl_uid : 0;
}

static gid_t plan_gid(const struct plan *p, const struct plan_step *s)
{
	return s->ps_owner == PLAN_ROOT ? 0 : p->pl_gid;
}

/* Returns a file's text, malloc'd, or NULL. */
static char *plan_read(const char *full)
{
	int fd = open(full, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	char *text = fd >= 0 ? calloc(1, PLAN_FILE_MAX + 1) : NULL;
	ssize_t n = text ? read(fd, text, PLAN_FILE_MAX) : -1;

	if (fd >= 0)
		close(fd);
	if (n < 0) {
		free(text);
		return NULL;
	}
	return text;
}

static int plan_look_file(struct plan *p, struct plan_step *s, const char *full)
{
	char before[PATH_MAX], *text;
	struct stat st;

	if (lstat(full, &st)) {
		if (errno == ENOENT)
			return EXIT_DONE;
		return plan_refuse(p, "%s: %s", full, strerror(errno));
	}
	if (!S_ISREG(st.st_mode))
		return plan_refuse(p, "%s: is there, and is no file: move it away", full);
	text = plan_read(full);
	if (!text)
		return plan_refuse(p, "%s: %s", full, strerror(errno));
	s->ps_there = !strcmp(text, s->ps_text);
	sodium_memzero(text, strlen(text));
	free(text);
	if (s->ps_there)
		return EXIT_DONE;
	if (!p->pl_force)
		return plan_refuse(p,
				   "%s: is there already, with another text than this command "
				   "would write; with --force it is kept as %s.before",
				   full, full);
	if (snprintf(before, sizeof(before), "%s.before", full) >= (int)sizeof(before) ||
	    !lstat(before, &st))
		return plan_refuse(p, "%s.before: is there already: move it away", full);
	s->ps_aside = true;
	return EXIT_DONE;
}

int plan_look(struct plan *p)
{
	char full[PATH_MAX];
	struct stat st;
	int rc = EXIT_DONE;

	if (p->pl_failed)
		return plan_refuse(p, "out of memory");
	for (unsigned i = 0; i < p->pl_n && !rc; i++) {
		struct plan_step *s = &p->pl_step[i];

		if (s->ps_kind == PLAN_COMMAND)
			continue;
		if (!plan_path(p, s->ps_what, full))
			return plan_refuse(p, "%s%s: too long", p->pl_root, s->ps_what);
		if (s->ps_kind == PLAN_FILE) {
			rc = plan_look_file(p, s, full);
			continue;
		}
		if (stat(full, &st))
			continue;
		if (!S_ISDIR(st.st_mode))
			rc = plan_refuse(p, "%s: is there, and is no folder: move it away", full);
		s->ps_there = st.st_uid == plan_uid(p, s) && st.st_gid == plan_gid(p, s) &&
			      (st.st_mode & 07777) == s->ps_mode;
		s->ps_set = !s->ps_there;
	}
	return rc;
}

bool plan_replaces(const struct plan *p)
{
	for (unsigned i = 0; i < p->pl_n; i++)
		if (p->pl_step[i].ps_aside)
			return true;
	return false;
}

/* ---- doing them ---- */

static const char *plan_owner_name(enum plan_owner o)
{
	return o == PLAN_ROOT ? "root:root" : o == PLAN_ROOT_WEFT ? "root:weft" : "weft:weft";
}

static int plan_give(const struct plan *p, int fd, const struct plan_step *s)
{
	/* first the owner: a change of the owner may take bits of the mode away */
	return fchown(fd, plan_uid(p, s), plan_gid(p, s)) || fchmod(fd, s->ps_mode) ? -errno : 0;
}

static int plan_parents(char *full)
{
	for (char *slash = strchr(full + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		int err;

		*slash = 0;
		err = mkdir(full, 0755) && errno != EEXIST ? -errno : 0;
		*slash = '/';
		if (err)
			return err;
	}
	return 0;
}

static int plan_do_folder(const struct plan *p, const struct plan_step *s, char *full)
{
	int err = plan_parents(full), fd;

	if (err)
		return err;
	if (mkdir(full, 0700) && errno != EEXIST)
		return -errno;
	fd = open(full, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	err = plan_give(p, fd, s);
	close(fd);
	return err;
}

/* The folder of a path: durable with what was made in it. */
static int plan_sync_folder(char *full)
{
	char *slash = strrchr(full, '/');
	int fd, err = 0;

	*slash = 0;
	fd = open(*full ? full : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	*slash = '/';
	if (fd < 0)
		return -errno;
	if (fsync(fd))
		err = -errno;
	close(fd);
	return err;
}

/* A file appears whole, with its owner and mode, or not at all; and never over another one. */
static int plan_do_file(const struct plan *p, const struct plan_step *s, char *full)
{
	char part[PATH_MAX + 8], before[PATH_MAX + 8];
	size_t n = strlen(s->ps_text);
	int err = plan_parents(full), fd;

	if (err)
		return err;
	snprintf(part, sizeof(part), "%s.XXXXXX", full);
	snprintf(before, sizeof(before), "%s.before", full);
	fd = mkstemp(part);
	if (fd < 0)
		return -errno;
	errno = 0;
	if (write(fd, s->ps_text, n) != (ssize_t)n)
		err = errno ? -errno : -EIO;
	if (!err)
		err = plan_give(p, fd, s);
	if (!err && fsync(fd))
		err = -errno;
	close(fd);
	if (!err && s->ps_aside && (link(full, before) || rename(part, full)))
		err = -errno;
	else if (!err && !s->ps_aside && link(part, full))
		err = -errno;
	if (err || !s->ps_aside)
		unlink(part);
	return err ? err : plan_sync_folder(full);
}

static int plan_do_command(const char *command)
{
	char *const argv[] = {"sh", "-c", (char *)command, NULL};
	posix_spawn_file_actions_t say;
	int status = -1, err;
	pid_t pid;

	/* what it says is no part of the JSON */
	if (posix_spawn_file_actions_init(&say))
		return -ENOMEM;
	fflush(stdout);
	err = posix_spawn_file_actions_adddup2(&say, STDERR_FILENO, STDOUT_FILENO);
	if (!err)
		err = posix_spawn(&pid, "/bin/sh", &say, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&say);
	if (err || waitpid(pid, &status, 0) != pid)
		return -ECHILD;
	return WIFEXITED(status) && !WEXITSTATUS(status) ? 0 : -EIO;
}

static void plan_show_text(const struct plan_step *s)
{
	const char *p = s->ps_secret ? "(secret)\n" : s->ps_text;

	while (*p) {
		size_t n = strcspn(p, "\n");

		printf("            | %.*s\n", (int)n, p);
		p += n + (p[n] != 0);
	}
}

static void plan_told(struct plan *p, const struct plan_step *s, const char *how)
{
	char what[PATH_MAX + 100];
	json_t *j;

	if (s->ps_kind == PLAN_COMMAND)
		snprintf(what, sizeof(what), "%s", s->ps_what);
	else
		snprintf(what, sizeof(what), "%s%s%s (%s, mode %04o)%s", p->pl_root, s->ps_what,
			 s->ps_kind == PLAN_FOLDER ? "/" : "", plan_owner_name(s->ps_owner),
			 (unsigned)s->ps_mode,
			 s->ps_aside ? "; what is there is kept as NAME.before" : "");
	plan_say(p->pl_did, how, "state", what);
	j = json_array_get(p->pl_did, json_array_size(p->pl_did) - 1);
	if (s->ps_kind != PLAN_FILE || s->ps_there)
		return;
	json_object_set_new(j, "text", json_string(s->ps_secret ? "(secret)" : s->ps_text));
	if (p->pl_dry && !weft_json)
		plan_show_text(s);
}

static int plan_step_do(struct plan *p, struct plan_step *s)
{
	char full[PATH_MAX];
	int err;

	if (s->ps_kind == PLAN_COMMAND) {
		if (p->pl_dry || !p->pl_systemd) {
			plan_told(p, s, p->pl_dry && p->pl_systemd ? "would run" : "to do");
			return EXIT_DONE;
		}
		plan_told(p, s, "run");
		if (plan_do_command(s->ps_what))
			return plan_refuse(p,
					   "\"%s\" failed, and journalctl says why; run this "
					   "command again when the cause is gone",
					   s->ps_what);
		return EXIT_DONE;
	}
	if (s->ps_there || p->pl_dry) {
		plan_told(p, s, s->ps_there ? "is there" : s->ps_set ? "would set" : "would make");
		return EXIT_DONE;
	}
	plan_path(p, s->ps_what, full);
	err = s->ps_kind == PLAN_FOLDER ? plan_do_folder(p, s, full) : plan_do_file(p, s, full);
	if (err)
		return plan_refuse(p, "%s: %s; run this command again when its cause is gone", full,
				   strerror(-err));
	plan_told(p, s, s->ps_set ? "set" : "made");
	s->ps_there = true;
	return EXIT_DONE;
}

int plan_run(struct plan *p, unsigned to)
{
	int rc = EXIT_DONE;

	for (; p->pl_done < to && !rc; p->pl_done += !rc)
		rc = plan_step_do(p, &p->pl_step[p->pl_done]);
	return rc;
}

void plan_give_text(struct plan *p, unsigned step, char *text)
{
	p->pl_failed |= !text;
	free(p->pl_step[step].ps_text);
	p->pl_step[step].ps_text = text;
}

char *plan_text_of(const struct plan *p, const char *path)
{
	char full[PATH_MAX];

	return plan_path(p, path, full) ? plan_read(full) : NULL;
}
