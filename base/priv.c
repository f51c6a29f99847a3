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
#include <unistd.h>

static struct {
	const char *key;
	char name[64];
	uid_t uid;
	gid_t gid;
	bool change;
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
		snprintf(err, errlen, "%s: %s: %s", key, name, errno ? strerror(errno) : "there is no such user");
		return -ENOENT;
	}
	p.uid = pw->pw_uid;
	p.gid = pw->pw_gid;
	if (!geteuid() && !p.uid) {
		snprintf(err, errlen, "%s: %s: is root; a user without privileges is wanted, or nothing", key, name);
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

static bool folder_empty(int fd)
{
	int copy = dup(fd);
	DIR *d = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *e;
	bool empty = d;

	while (d && (e = readdir(d)))
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
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
		return 0; /* a link: whoever made it sees to what it points to */
	if (fd < 0)
		goto failed;
	if (folder_empty(fd) && fchown(fd, p.uid, p.gid))
		rc = -errno;
	close(fd);
	errno = -rc;
	if (!rc)
		return 0;
failed:
	snprintf(err, errlen, "%s: %s", path, strerror(errno));
	return -errno;
}

/* What no setuid program could give back either. Of a kernel that knows fewer, the rest is EINVAL. */
static int bounding_drop(void)
{
	for (unsigned long cap = 0; cap < 64; cap++)
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) && errno != EINVAL)
			return -errno;
	return 0;
}

static bool any_capability(void)
{
	struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct d[2];

	if (syscall(SYS_capget, &h, d))
		return true;
	return d[0].effective | d[1].effective | d[0].permitted | d[1].permitted | d[0].inheritable | d[1].inheritable;
}

static int become(void)
{
	struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct none[2] = {{0}, {0}};
	int rc = bounding_drop();

	if (rc)
		return rc;
	if (initgroups(p.name, p.gid) || setresgid(p.gid, p.gid, p.gid) || setresuid(p.uid, p.uid, p.uid) || syscall(SYS_capset, &h, none))
		return -errno;
	return !setuid(0) || any_capability() ? -EPERM : 0;
}

int priv_drop(char *err, size_t errlen)
{
	int rc = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ? -errno : 0;

	if (!rc && p.change)
		rc = become();
	if (rc)
		snprintf(err, errlen, "%s: privileges cannot be given up: %s", p.key, strerror(-rc));
	else if (p.change)
		log_info("runs as %s (user %u, group %u) without capabilities", p.name, (unsigned)p.uid, (unsigned)p.gid);
	return rc;
}

const char *priv_user(void)
{
	return p.name;
}
