/* SPDX-License-Identifier: Apache-2.0 */
/* priv.c - see priv.h. */
#include "base/priv.h"
#include "base/log.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/resource.h>
#include <unistd.h>

static struct {
	const char *key;
	char name[64];
	uid_t uid;
	gid_t gid;
	bool change;
	uint64_t keep;
	const char *keep_for; /* a configuration key */
} p;

int priv_prepare(const char *key, const char *name, char *err, size_t errlen)
{
	struct passwd *pw;

	p.key = key;
	p.change = false;
	if (!*name)
		return 0;
	errno = 0;
	pw = getpwnam(name);
	if (!pw || strlen(name) >= sizeof(p.name)) {
		snprintf(err, errlen, "%s: %s: %s", key, name,
			 errno ? strerror(errno) : "no such user");
		return -ENOENT;
	}
	p.uid = pw->pw_uid;
	p.gid = pw->pw_gid;
	if (!geteuid() && !p.uid) {
		snprintf(err, errlen,
			 "%s: user %s has the privileges of root; name another user, "
			 "or none",
			 key, name);
		return -EINVAL;
	}
	if (geteuid() && (geteuid() != p.uid || getuid() != p.uid)) {
		snprintf(err, errlen, "%s: %s: only root can become another user", key, name);
		return -EPERM;
	}
	strcpy(p.name, name);
	p.change = !geteuid();
	return 0;
}

/* True if the folder is empty, except for what mkfs makes. */
static bool priv_folder_empty(int fd)
{
	int copy = dup(fd);
	DIR *d = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *e;
	bool empty = d;

	while (d && (e = readdir(d)))
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") &&
		    strcmp(e->d_name, "lost+found"))
			empty = false;
	if (d)
		closedir(d);
	else if (copy >= 0)
		close(copy);
	return empty;
}

int priv_own_folder(const char *path, char *err, size_t errlen)
{
	int fd, rc = 0;

	if (!p.change)
		return 0;
	if (mkdir(path, 0700) && errno != EEXIST)
		goto failed;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && (errno == ELOOP || errno == ENOTDIR))
		return 0; /* a link: its maker takes care of its target */
	if (fd < 0)
		goto failed;
	if (priv_folder_empty(fd) && fchown(fd, p.uid, p.gid))
		rc = -errno;
	close(fd);
	errno = -rc;
	if (!rc)
		return 0;
failed:
	snprintf(err, errlen, "%s: %s", path, strerror(errno));
	return -errno;
}

/* Drops what not even a setuid program could give back then. A kernel that knows fewer capabilities
 * answers EINVAL for the rest. */
static int bounding_drop(void)
{
	for (unsigned long cap = 0; cap < 64; cap++)
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) && errno != EINVAL)
			return -errno;
	return 0;
}

static int priv_caps_read(uint64_t *effective, uint64_t *permitted, uint64_t *inheritable)
{
	struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct d[2];

	if (syscall(SYS_capget, &h, d))
		return -errno;
	*effective = d[0].effective | (uint64_t)d[1].effective << 32;
	*permitted = d[0].permitted | (uint64_t)d[1].permitted << 32;
	*inheritable = d[0].inheritable | (uint64_t)d[1].inheritable << 32;
	return 0;
}

/* Permits caps, with no capability in effect and none to inherit. */
static int caps_permit(uint64_t caps)
{
	struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct d[2] = {{.permitted = (uint32_t)caps},
					      {.permitted = (uint32_t)(caps >> 32)}};

	return syscall(SYS_capset, &h, d) ? -errno : 0;
}

/* True if there is a capability beyond those to keep, or one in effect or to inherit. */
static bool any_capability(uint64_t keep)
{
	uint64_t e, m, i;

	return priv_caps_read(&e, &m, &i) || e || m & ~keep || i;
}

static int priv_become(void)
{
	uint64_t e, permitted, i, keep;
	int rc = bounding_drop();

	if (!rc)
		rc = priv_caps_read(&e, &permitted, &i);
	if (rc)
		return rc;
	keep = p.keep & permitted;
	if (keep && prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0))
		return -errno;
	if (initgroups(p.name, p.gid) || setresgid(p.gid, p.gid, p.gid) ||
	    setresuid(p.uid, p.uid, p.uid))
		return -errno;
	rc = caps_permit(keep);
	if (rc)
		return rc;
	return !setuid(0) || any_capability(keep) ? -EPERM : 0;
}

void priv_keep(uint64_t caps, const char *key)
{
	p.keep = caps;
	p.keep_for = key;
}

int priv_keep_no_more(void)
{
	uint64_t e, permitted, i;
	int rc = priv_caps_read(&e, &permitted, &i);

	/* Leave a root that is to stay root as it is. A process that was started as a user with
	 * capabilities had them for its threads, which exist by now. */
	if (rc || !geteuid() || !permitted)
		return rc;
	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	return caps_permit(0);
}

int priv_drop(char *err, size_t errlen)
{
	int rc = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ? -errno : 0;

	if (!rc && p.change)
		rc = priv_become();
	if (rc)
		snprintf(err, errlen, "%s: cannot give up privileges: %s", p.key, strerror(-rc));
	else if (p.change)
		log_info("running as %s (user %u, group %u) without capabilities%s%s", p.name,
			 (unsigned)p.uid, (unsigned)p.gid,
			 p.keep ? ", except for the threads of " : "", p.keep ? p.keep_for : "");
	return rc;
}

const char *priv_user(void)
{
	return p.name;
}

void priv_no_core(void)
{
	/*
 * core(5) names no limit for a dump that is piped to a program. But the kernel makes no such dump
 * for a limit of 1 byte, and a file of 1 byte is too small for a dump. If the hard limit is 0, not
 * every process can raise it to 1. A limit of 0 still keeps dumps out of files.
 */
	static const struct rlimit one = {1, 1}, none = {0, 0};

	if (setrlimit(RLIMIT_CORE, &one) && setrlimit(RLIMIT_CORE, &none))
		log_warn("cannot turn off core dumps, which contain keys: %s", strerror(errno));
}
