/* SPDX-License-Identifier: Apache-2.0 */
/* check.c - see check.h. */
#include "common/check.h"
#include "base/conf.h"
#include "common/http.h"
#include <errno.h>
#include <limits.h>
#include <pwd.h>
#include <sodium.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* The name of this process's user, for messages. */
static const char *user_name(void)
{
	static _Thread_local char text[64];
	struct passwd *pw = getpwuid(geteuid());

	snprintf(text, sizeof(text), pw ? "%s" : "%.0s%u", pw ? pw->pw_name : "",
		 (unsigned)geteuid());
	return text;
}

const char *check_hint(int err, const char *path)
{
	static _Thread_local char text[PATH_MAX + 160];
	bool systemd = getenv("INVOCATION_ID") != NULL;

	switch (err < 0 ? -err : err) {
	case EROFS:
		snprintf(text, sizeof(text),
			 systemd ? ": the unit's sandbox forbids writing there; add [Service] "
				   "ReadWritePaths=%s in a drop-in of the unit"
				 : ": the file system of %s is read-only",
			 path);
		return text;
	case EACCES:
	case EPERM:
		snprintf(text, sizeof(text), ": user %s%s must own it: chown -R %s: %s",
			 user_name(), systemd ? " (User= of the unit)" : "", user_name(), path);
		return text;
	case ENOENT:
		return systemd ? ": it does not exist, or the unit's sandbox hides it "
				 "(ProtectHome=, PrivateTmp=)"
			       : "";
	default:
		return "";
	}
}

static int key_denied(const char *key, const char *path, char *err, size_t errlen)
{
	snprintf(err, errlen,
		 "%s: %s: Permission denied: user %s%s must be able to read it: owner root, that "
		 "user's group, mode 0440",
		 key, path, user_name(), getenv("INVOCATION_ID") ? " (User= of the unit)" : "");
	return -EACCES;
}

/* A reader of this file controls the cluster. So only the owner may write it, and at most the group
 * may read it. */
static int check_secret(const char *key, const char *path, FILE *f, char *err, size_t errlen)
{
	struct stat st;

	if (fstat(fileno(f), &st) < 0 || !S_ISREG(st.st_mode)) {
		snprintf(err, errlen, "%s: %s: not a regular file", key, path);
		return -EINVAL;
	}
	if (!(st.st_mode & 027))
		return 0;
	snprintf(err, errlen,
		 "%s: %s: mode %04o lets others read or change it: chmod 0440 (or 0400)", key, path,
		 (unsigned)st.st_mode & 07777);
	return -EPERM;
}

int check_secret_file(const char *key, const char *path, char *text, size_t size, char *err,
		      size_t errlen)
{
	FILE *f = fopen(path, "re");
	size_t n;
	int e;

	if (!f && errno == EACCES)
		return key_denied(key, path, err, errlen);
	if (!f) {
		e = -errno;
		snprintf(err, errlen, "%s: %s: %s", key, path, strerror(-e));
		return e;
	}
	e = check_secret(key, path, f, err, errlen);
	if (e) {
		fclose(f);
		return e;
	}
	n = fread(text, 1, size - 1, f);
	fclose(f);
	text[n] = 0;
	return 0;
}

int check_cluster_key(const char *key, const char *path, uint8_t out[CHECK_KEY_LEN], char *err,
		      size_t errlen)
{
	char text[128];
	size_t n, len;
	int e;

	if (!*path) {
		snprintf(err, errlen,
			 "%s: not set; expected the path of the cluster key file, 64 hexadecimal "
			 "digits",
			 key);
		return -EINVAL;
	}
	e = check_secret_file(key, path, text, sizeof(text), err, errlen);
	if (e)
		return e;
	n = strlen(text);
	while (n && strchr("\n\r ", text[n - 1]))
		n--;
	if (n != 2 * CHECK_KEY_LEN ||
	    sodium_hex2bin(out, CHECK_KEY_LEN, text, n, NULL, &len, NULL) || len != CHECK_KEY_LEN)
		e = -EINVAL;
	if (e)
		snprintf(err, errlen, "%s: %s: not 64 hexadecimal digits", key, path);
	sodium_memzero(text, sizeof(text));
	return e;
}

/* Gets the folder that path is in; "." for a path without a slash. */
static void above(const char *path, char out[PATH_MAX])
{
	char *slash;

	snprintf(out, PATH_MAX, "%s", path);
	slash = out + strlen(out);
	while (slash > out + 1 && slash[-1] == '/')
		*--slash = 0;
	slash = strrchr(out, '/');
	if (!slash)
		strcpy(out, ".");
	else
		slash[slash == out] = 0;
}

static int is_folder(const char *path)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return -errno;
	return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
}

/* A unit's RuntimeDirectory= exists only while the unit runs: a check may come before that. */
static bool unit_makes(const char *dir)
{
	return !strncmp(dir, "/run/", 5) && dir[5] && !strchr(dir + 5, '/');
}

static int check_unix(const char *key, const char *addr, char *err, size_t errlen)
{
	char dir[PATH_MAX];
	struct stat st;
	int e;

	if (addr[5] != '/' || strlen(addr + 5) >= sizeof(((struct sockaddr_un *)0)->sun_path)) {
		snprintf(err, errlen,
			 "%s: %s: expected unix: and the absolute path of a socket, shorter than "
			 "%zu characters",
			 key, addr, sizeof(((struct sockaddr_un *)0)->sun_path));
		return -EINVAL;
	}
	above(addr + 5, dir);
	e = is_folder(dir);
	if (e == -ENOENT && unit_makes(dir))
		return 0;
	if (e) {
		snprintf(err, errlen, "%s: cannot listen on %s: %s: %s", key, addr, dir,
			 strerror(-e));
		return e;
	}
	if (lstat(addr + 5, &st) == 0 && !S_ISSOCK(st.st_mode)) {
		snprintf(err, errlen,
			 "%s: cannot listen on %s: a file of that name exists and is not a socket",
			 key, addr);
		return -EEXIST;
	}
	return 0;
}

static int check_addr(const char *key, const char *addr, bool https, bool *tls, char *err,
		      size_t errlen)
{
	bool is_tls = !strncmp(addr, "https://", 8), loopback;
	struct sockaddr_storage ss;

	if (!strncmp(addr, "unix:", 5))
		return check_unix(key, addr, err, errlen);
	if ((is_tls && !https) || http_tcp_parse(is_tls ? addr + 8 : addr, &ss, &loopback)) {
		snprintf(err, errlen,
			 "%s: \"%s\" is not an address; expected unix:/path%s 127.0.0.1:PORT%s",
			 key, addr, https ? "," : " or", https ? " or https://ADDRESS:PORT" : "");
		return -EINVAL;
	}
	*tls |= is_tls;
	if (!loopback && !is_tls) {
		snprintf(err, errlen,
			 "%s: %s: refused, because the network does not protect it; only "
			 "unix:/path and 127.0.0.0/8%s are possible",
			 key, addr, https ? " without https://" : "");
		return -EACCES;
	}
	return 0;
}

static int check_certs(const struct conf *conf, bool tls, char *err, size_t errlen)
{
	char bad[256];

	if (http_certs_check(conf_str(conf, "mds.admin_certs"), bad, sizeof(bad))) {
		snprintf(err, errlen,
			 "mds.admin_certs: \"%s\": expected read, operate or admin, a space, and a "
			 "name in the certificate",
			 bad);
		return -EINVAL;
	}
	if (tls && (!*conf_str(conf, "mds.tls_cert") || !*conf_str(conf, "mds.tls_key"))) {
		snprintf(err, errlen, "mds.admin: https:// needs mds.tls_cert and mds.tls_key");
		return -EINVAL;
	}
	return 0;
}

int check_admin(const struct conf *conf, const char *section, char *err, size_t errlen)
{
	bool mds = !strcmp(section, "mds"), tls = false;
	const char *key = mds ? "mds.admin" : "ds.admin", *addrs = conf_str(conf, key);
	char addr[256];
	int e = 0;

	while (!e && (addrs = http_addr(addrs, addr, sizeof(addr))))
		e = check_addr(key, addr, mds, &tls, err, errlen);
	return e || !mds ? e : check_certs(conf, tls, err, errlen);
}

int check_token(const char *key, const char *path, char out[CHECK_TOKEN_MAX + 1], char *err,
		size_t errlen)
{
	char text[CHECK_TOKEN_MAX + 3];
	size_t n = 0;
	FILE *f;
	int e;

	*out = 0;
	if (!*path)
		return 0;
	f = fopen(path, "re");
	if (!f) {
		e = -errno;
		snprintf(err, errlen, "%s: %s: %s", key, path, strerror(-e));
		return e;
	}
	e = check_secret(key, path, f, err, errlen);
	if (!e)
		n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	if (e)
		return e;
	while (n && strchr("\n\r ", text[n - 1]))
		n--;
	text[n] = 0;
	for (size_t i = 0; i < n; i++)
		if (text[i] <= ' ' || text[i] > '~')
			n = 0;
	if (n < 16 || n > CHECK_TOKEN_MAX) {
		snprintf(err, errlen, "%s: %s: expected one line of 16 to %d printable characters",
			 key, path, CHECK_TOKEN_MAX);
		e = -EINVAL;
	} else {
		memcpy(out, text, n + 1);
	}
	sodium_memzero(text, sizeof(text));
	return e;
}

int check_folder(const char *key, const char *path, char *err, size_t errlen)
{
	char dir[PATH_MAX];
	const char *want = path;
	struct statvfs sv;
	int e = is_folder(path);

	if (!*path) {
		snprintf(err, errlen, "%s: not set; expected the folder of the store", key);
		return -EINVAL;
	}
	if (e == -ENOENT) {
		above(path, dir);
		e = is_folder(dir);
		path = dir;
	}
	/* Check the mount first: access() does not report a read-only mount to a user that may not
	 * write to the folder either. */
	if (!e && statvfs(path, &sv) == 0 && (sv.f_flag & ST_RDONLY))
		e = -EROFS;
	if (!e && geteuid() && access(path, W_OK) < 0)
		e = -errno;
	if (e && path == dir)
		snprintf(err, errlen,
			 "%s: %s does not exist and cannot be made in %s: %s; make it, and let "
			 "user %s own it",
			 key, want, dir, strerror(-e), user_name());
	else if (e)
		snprintf(err, errlen, "%s: %s: %s%s", key, path, strerror(-e), check_hint(e, path));
	return e;
}
