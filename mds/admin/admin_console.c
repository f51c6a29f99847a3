/* SPDX-License-Identifier: Apache-2.0 */
/*
 * admin_console.c - the files of the console, which are read at the start (docs/console.md).
 *
 * Each file of the folder and of its folder vendor gets one row of a table, by the path that serves
 * it. A request is compared with these paths, and no path of a request ever becomes a file's name.
 */
#include "base/log.h"
#include "mds/admin/admin_int.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES_MOST 64
#define FILE_MOST  (1u << 20)

struct console {
	struct http_file c_file[FILES_MOST];
	unsigned c_n;
};

static const char *const console_types[][2] = {
	{".html", "text/html; charset=utf-8"}, {".js", "text/javascript; charset=utf-8"},
	{".css", "text/css; charset=utf-8"},   {".svg", "image/svg+xml"},
	{".json", "application/json"},
};

/* NULL: a file of this name is not served. */
static const char *console_type(const char *name)
{
	size_t n = strlen(name);

	if (*name == '.' || strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
					 "0123456789._-") != n)
		return NULL;
	for (size_t i = 0; i < sizeof(console_types) / sizeof(console_types[0]); i++) {
		size_t m = strlen(console_types[i][0]);

		if (n > m && !strcmp(name + n - m, console_types[i][0]))
			return console_types[i][1];
	}
	return NULL;
}

static void console_free(struct console *c)
{
	for (unsigned i = 0; i < c->c_n; i++) {
		free((void *)c->c_file[i].hf_path);
		free((void *)c->c_file[i].hf_data);
	}
	free(c);
}

/* Adds a row. data is the console's from then on, also where this fails. */
static int console_add(struct console *c, const char *path, const char *type, char *data, size_t n)
{
	struct http_file *f = &c->c_file[c->c_n];
	uint8_t hash[16];
	char hex[33];

	if (c->c_n == FILES_MOST) {
		free(data);
		return -EMFILE;
	}
	*f = (struct http_file){strdup(path), type, data, n, ""};
	if (!f->hf_path) {
		free(data);
		return -ENOMEM;
	}
	if (data) {
		crypto_generichash(hash, sizeof(hash), (unsigned char *)data, n, NULL, 0);
		snprintf(f->hf_etag, sizeof(f->hf_etag), "\"%s\"",
			 sodium_bin2hex(hex, sizeof(hex), hash, sizeof(hash)));
	}
	c->c_n++;
	return 0;
}

static int console_read(struct console *c, int dir, const char *name, const char *under)
{
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK), err;
	FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
	char *data = NULL, *less, path[NAME_MAX + 32];
	struct stat st;
	size_t n = 0;

	if (!f) {
		err = -errno;
		if (fd >= 0)
			close(fd);
		return err;
	}
	err = fstat(fd, &st) ? -errno : !S_ISREG(st.st_mode) ? -EINVAL : 0;
	if (!err && !(data = malloc(FILE_MOST)))
		err = -ENOMEM;
	if (!err) {
		n = fread(data, 1, FILE_MOST, f);
		err = ferror(f) ? -EIO : n == FILE_MOST ? -EFBIG : 0;
	}
	fclose(f);
	if (err) {
		free(data);
		return err;
	}
	snprintf(path, sizeof(path), "%s%s", under, strcmp(name, "index.html") ? name : "");
	/* What is not needed is given back. */
	less = realloc(data, n ? n : 1);
	if (less)
		data = less;
	return console_add(c, path, console_type(name), data, n);
}

static int console_folder(struct console *c, const char *folder, const char *under, char *err,
			  size_t errlen)
{
	DIR *d = opendir(folder);
	struct dirent *e;
	int rc = d ? 0 : -errno;

	if (rc)
		snprintf(err, errlen, "%s: %s", folder, strerror(-rc));
	while (!rc && (e = readdir(d))) {
		if (!console_type(e->d_name))
			continue;
		rc = console_read(c, dirfd(d), e->d_name, under);
		if (rc)
			snprintf(err, errlen, "%s/%s: %s", folder, e->d_name, strerror(-rc));
	}
	if (d)
		closedir(d);
	return rc;
}

static int console_load(struct console **out, const char *folder, char *err, size_t errlen)
{
	struct console *c = calloc(1, sizeof(*c));
	char vendor[4096];
	bool page = false;
	int rc;

	*out = NULL;
	snprintf(err, errlen, "%s", strerror(ENOMEM));
	if (!c)
		return -ENOMEM;
	snprintf(vendor, sizeof(vendor), "%s/vendor", folder);
	rc = console_folder(c, folder, "/console/", err, errlen);
	if (!rc)
		rc = console_folder(c, vendor, "/console/vendor/", err, errlen);
	for (unsigned i = 0; i < c->c_n; i++)
		page |= !strcmp(c->c_file[i].hf_path, "/console/");
	if (!rc && !page) {
		snprintf(err, errlen, "%s: no index.html there", folder);
		rc = -ENOENT;
	}
	if (!rc)
		rc = console_add(c, "/console", NULL, NULL, 0);
	if (rc)
		console_free(c);
	else
		*out = c;
	return rc;
}

int admin_console_check(const char *where, char *err, size_t errlen)
{
	struct console *c;
	char why[400];
	int rc;

	if (!*where || !strcmp(where, "off"))
		return 0;
	rc = console_load(&c, where, why, sizeof(why));
	if (rc)
		snprintf(err, errlen, "mds.console: %s", why);
	else
		console_free(c);
	return rc;
}

int admin_console_open(struct admin *a, const char *where, struct http_opts *opts, char *err,
		       size_t errlen)
{
	char why[400];
	int rc;

	if (!where || !strcmp(where, "off") || !opts->ho_addrs || !*opts->ho_addrs)
		return 0;
	rc = console_load(&a->a_console, *where ? where : CONSOLEDIR, why, sizeof(why));
	if (rc && *where) {
		snprintf(err, errlen, "the console: %s", why);
		return rc;
	}
	if (rc) {
		log_info("no console is served: %s", why);
		return 0;
	}
	opts->ho_files = a->a_console->c_file;
	opts->ho_nfiles = a->a_console->c_n;
	return 0;
}

void admin_console_close(struct admin *a)
{
	if (a->a_console)
		console_free(a->a_console);
	a->a_console = NULL;
}
