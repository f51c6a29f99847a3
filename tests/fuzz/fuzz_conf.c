/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_conf.c - a configuration file, and a KEY=VALUE of the command line, is refused with one
 * line, or gives every key a value of its type. */
#include "base/conf.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static char path[32];
static int fd = -1;

static void one_line(const char *err)
{
	if (!*err || strchr(err, '\n'))
		abort();
}

static void look(const struct conf *c)
{
	for (size_t i = 0; i < conf_nkeys; i++) {
		const struct conf_key *k = &conf_keys[i];

		switch (k->ck_type) {
		case CONF_STR:
			if (!conf_str(c, k->ck_name))
				abort();
			break;
		case CONF_ENUM: { /* one of "a|b|c" */
			const char *v = conf_str(c, k->ck_name), *at = strstr(k->ck_range, v);

			if (!*v || strchr(v, '|') || !at)
				abort();
			break;
		}
		case CONF_INT:
			(void)conf_int(c, k->ck_name);
			break;
		case CONF_BOOL:
			(void)conf_bool(c, k->ck_name);
			break;
		case CONF_SECONDS:
			if (conf_msec(c, k->ck_name) < 0)
				abort();
			break;
		case CONF_SIZE:
			(void)conf_size(c, k->ck_name);
		}
	}
}

/* Bytes up to the first NUL are a file, those behind it assignments, each ended by a NUL. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t n = strnlen((const char *)data, size);
	struct conf *c = NULL;
	char err[512] = "", set[256];

	if (fd < 0) {
		fd = memfd_create("conf", MFD_CLOEXEC);
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	}
	if (fd < 0 || ftruncate(fd, 0) || pwrite(fd, data, n, 0) != (ssize_t)n)
		abort();
	if (conf_load(&c, path, err, sizeof(err))) {
		one_line(err);
		if (c || conf_load(&c, NULL, err, sizeof(err)))
			abort();
	}
	for (n++; n < size; n += strlen(set) + 1) {
		size_t len = strnlen((const char *)data + n, size - n);

		if (len >= sizeof(set))
			break;
		memcpy(set, data + n, len);
		set[len] = 0;
		*err = 0;
		if (conf_set(c, set, err, sizeof(err)))
			one_line(err);
	}
	look(c);
	conf_free(c);
	return 0;
}
