/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backup_build.c - makes a store in an empty folder.
 *
 * The store is built in a folder of its own below that one. When it is whole and durable, a file
 * "restored" is made, which keeps weft-mds from serving the store without --restored, and data.mdb
 * is renamed into place, last. So a process that is killed leaves no store that looks whole. What
 * it leaves is removed by the next one.
 */
#include "mds/backup.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUILD_FOLDER ".restoring"

static bool build_path(const char *folder, const char *name, char out[PATH_MAX])
{
	return snprintf(out, PATH_MAX, "%s/%s", folder, name) < PATH_MAX;
}

/* Removes a folder without folders in it. */
static void build_remove(const char *folder)
{
	DIR *d = opendir(folder);
	struct dirent *e;

	while (d && (e = readdir(d)))
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			unlinkat(dirfd(d), e->d_name, 0);
	if (d)
		closedir(d);
	rmdir(folder);
}

/* The folder may have what the root of a file system has, and what an earlier process has left. */
static bool build_empty(const char *store)
{
	static const char *const may[] = {".",	  "..",	      "lost+found",
					  "LOCK", "restored", BUILD_FOLDER};
	DIR *d = opendir(store);
	struct dirent *e;
	bool empty = true;

	if (!d)
		return backup_say("%s: %s", store, strerror(errno)), false;
	while (empty && (e = readdir(d))) {
		bool known = false;

		for (size_t i = 0; i < sizeof(may) / sizeof(may[0]); i++)
			known |= !strcmp(e->d_name, may[i]);
		if (!known)
			backup_say("%s: the folder is not empty, it has %s: a store is put back "
				   "into an empty folder only",
				   store, e->d_name);
		empty = known;
	}
	closedir(d);
	return empty;
}

static bool build_lock(struct backup_build *b)
{
	char path[PATH_MAX];

	if (!build_path(b->bb_store, "LOCK", path))
		return backup_say("%s: the path is too long", b->bb_store), false;
	b->bb_lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (b->bb_lock < 0)
		return backup_say("%s: %s", path, strerror(errno)), false;
	if (flock(b->bb_lock, LOCK_EX | LOCK_NB))
		return backup_say("%s: another process uses the folder", b->bb_store), false;
	if (ftruncate(b->bb_lock, 0) || dprintf(b->bb_lock, "%d\n", (int)getpid()) < 0)
		return backup_say("%s: %s", path, strerror(errno)), false;
	return true;
}

/* The store belongs to the owner of the folder, or to mds.user. */
static bool build_owner(struct backup_build *b, const char *user)
{
	struct passwd *pw;
	struct stat st;

	if (stat(b->bb_store, &st))
		return backup_say("%s: %s", b->bb_store, strerror(errno)), false;
	b->bb_uid = st.st_uid;
	b->bb_gid = st.st_gid;
	if (geteuid() || st.st_uid || !*user)
		return true;
	pw = getpwnam(user);
	if (!pw)
		return backup_say("mds.user: %s: there is no such user", user), false;
	b->bb_uid = pw->pw_uid;
	b->bb_gid = pw->pw_gid;
	if (chown(b->bb_store, b->bb_uid, b->bb_gid))
		return backup_say("%s: %s", b->bb_store, strerror(errno)), false;
	return true;
}

bool backup_build_begin(struct backup_build *b, const struct backup_args *a)
{
	*b = (struct backup_build){.bb_store = a->ba_store, .bb_lock = -1};
	if (mkdir(a->ba_store, 0700) && errno != EEXIST)
		return backup_say("%s: %s", a->ba_store, strerror(errno)), false;
	if (!build_empty(a->ba_store) || !build_lock(b))
		return false;
	/* A server may have made a store before the lock was ours. */
	if (!build_empty(a->ba_store) || !build_owner(b, a->ba_user))
		return false;
	if (!build_path(a->ba_store, BUILD_FOLDER, b->bb_work))
		return backup_say("%s: the path is too long", a->ba_store), false;
	build_remove(b->bb_work);
	if (mkdir(b->bb_work, 0700))
		return backup_say("%s: %s", b->bb_work, strerror(errno)), false;
	return true;
}

bool backup_build_open(struct backup_build *b)
{
	struct kv_opts o = {.ko_create = true};
	char err[512] = "";
	int rc = kv_open(&b->bb_kv, b->bb_work, &o, err, sizeof(err));

	if (rc)
		backup_say("%s", err[0] ? err : strerror(-rc));
	return !rc;
}

static bool build_sync(const char *path, const struct backup_build *b)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	bool ok = fd >= 0 && !fstat(fd, &st);

	if (ok && !geteuid() && (st.st_uid != b->bb_uid || st.st_gid != b->bb_gid))
		ok = !fchown(fd, b->bb_uid, b->bb_gid);
	ok = ok && !fsync(fd);
	if (!ok)
		backup_say("%s: %s", path, strerror(errno));
	if (fd >= 0)
		close(fd);
	return ok;
}

static bool build_mark(const struct backup_build *b)
{
	char path[PATH_MAX];
	int fd;

	if (!build_path(b->bb_store, "restored", path))
		return false;
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return backup_say("%s: %s", path, strerror(errno)), false;
	close(fd);
	return build_sync(path, b) && build_sync(b->bb_store, b);
}

bool backup_build_end(struct backup_build *b)
{
	char from[PATH_MAX], to[PATH_MAX], lock[PATH_MAX];

	kv_close(b->bb_kv);
	b->bb_kv = NULL;
	if (!build_path(b->bb_work, "data.mdb", from) || !build_path(b->bb_store, "data.mdb", to) ||
	    !build_path(b->bb_store, "LOCK", lock))
		return backup_say("%s: the path is too long", b->bb_store), false;
	if (!build_sync(from, b) || !build_sync(lock, b) || !build_mark(b))
		return false;
	if (rename(from, to))
		return backup_say("%s: %s", to, strerror(errno)), false;
	if (!build_sync(b->bb_store, b))
		return false;
	build_remove(b->bb_work);
	close(b->bb_lock);
	return true;
}

void backup_build_undo(struct backup_build *b)
{
	char path[PATH_MAX];

	if (b->bb_kv)
		kv_close(b->bb_kv);
	if (*b->bb_work)
		build_remove(b->bb_work);
	if (*b->bb_work && build_path(b->bb_store, "restored", path))
		unlink(path);
	if (b->bb_lock >= 0 && build_path(b->bb_store, "LOCK", path)) {
		if (*b->bb_work)
			unlink(path);
		close(b->bb_lock);
	}
}

/* What the unit that has this configuration is called, and its folder in /run: "weft-mds@N" and
 * "weft-mds-N" for that of weft instance make. */
static void next_unit(const char *conf, char unit[32], char run[32])
{
	char again[40];
	unsigned n = 0;

	snprintf(unit, 32, "weft-mds");
	snprintf(run, 32, "weft-mds");
	if (sscanf(conf, "/etc/weft/mds-%5u.conf", &n) != 1)
		return;
	snprintf(again, sizeof(again), "/etc/weft/mds-%u.conf", n);
	if (strcmp(again, conf) != 0)
		return;
	snprintf(unit, 32, "weft-mds@%u", n);
	snprintf(run, 32, "weft-mds-%u", n);
}

int backup_build_next(const struct backup_args *a, const char *what)
{
	char unit[32], run[32], next[PATH_MAX + 40];
	json_t *j;

	next_unit(a->ba_conf, unit, run);
	snprintf(next, sizeof(next), "weft-mds -c %s --restored=only", a->ba_conf);
	if (!a->ba_json) {
		printf("%s: %s.\n", a->ba_store, what);
		if (a->ba_log)
			printf("It has its log in files: first take mds.log out of %s, and "
			       "mds.log_lease_in if it is there.\n",
			       a->ba_conf);
		printf("The next commands make the store fit for service, as the user that the "
		       "service runs as, and start it. The second waits for every data server:\n"
		       "    install -d -o weft -g weft /run/%s\n"
		       "    runuser -u weft -- %s\n"
		       "    systemctl start %s\n",
		       run, next, unit);
	} else {
		j = json_pack("{s:s, s:s}", "store", a->ba_store, "next", next);
		if (j)
			json_dumpf(j, stdout, JSON_COMPACT);
		putchar('\n');
		json_decref(j);
	}
	return fflush(stdout) ? backup_say("cannot write to standard output") : BACKUP_DONE;
}
