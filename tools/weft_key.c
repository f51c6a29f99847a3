/* SPDX-License-Identifier: Apache-2.0 */
/* weft_key.c - weft ds key, weft key: keys of data servers (docs/security.md, "Keys"). */
#include "tools/weft_tool.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* how long living servers have to get a new key before the table lists those without it */
#define SPREAD_MS 20000
#define STEP_MS	  100

/* Makes a new file that its owner and group may read. The group may read it only when it is
 * whole. */
static int key_write(const char *file, const char *text)
{
	int fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0400);
	size_t n = strlen(text);

	if (fd < 0) {
		fprintf(stderr, "weft: %s: %s\n", file, strerror(errno));
		return EXIT_FAILED;
	}
	errno = 0;
	if (write(fd, text, n) != (ssize_t)n || fchmod(fd, 0440) < 0 || fsync(fd) < 0 ||
	    close(fd) < 0) {
		fprintf(stderr, "weft: %s: %s\n", file, strerror(errno ? errno : EIO));
		unlink(file);
		return EXIT_FAILED;
	}
	return EXIT_DONE;
}

int cmd_ds_key(char **args)
{
	const char *out = weft_option("out");
	char name[300];
	json_t *j;
	int rc = weft_ask_with("PUT", "/v1/ds/key", "", &j, "ds", args[0], NULL);

	if (rc)
		return rc;
	if (!out &&
	    (size_t)snprintf(name, sizeof(name), "%s.key", j_str(j, "name")) < sizeof(name) &&
	    !strchr(name, '/'))
		out = name;
	if (!out) {
		fprintf(stderr,
			"weft: ds key: name a file for this server's keys with --out FILE\n");
		json_decref(j);
		return EXIT_USAGE;
	}
	rc = key_write(out, j_str(j, "key"));
	json_object_del(j, "key");
	if (!rc && !weft_json)
		printf("%s: keys of %s%s, number %lld. Name this file as ds.key on that machine, "
		       "and on no other; the user of weft-ds must be able to read it.\n",
		       out, j_str(j, "name"),
		       json_is_true(json_object_get(j, "known")) ? "" : " (a new data server)",
		       j_num(j, "number"));
	if (!rc && weft_json)
		return weft_show(rc, j, NULL);
	json_decref(j);
	return rc ? rc : weft_flush();
}

static void key_table(const json_t *j)
{
	const json_t *s;
	char since[40] = "never";
	time_t at = (time_t)j_num(j, "rotated_at");
	struct tm tm;
	size_t i;

	if (at && localtime_r(&at, &tm))
		strftime(since, sizeof(since), "%Y-%m-%d %H:%M:%S", &tm);
	printf("cluster key: number %lld, last rotated: %s\n", j_num(j, "number"), since);
	json_array_foreach(json_object_get(j, "servers"), i, s)
		printf("no keys from it: %s (%s)\n", j_str(s, "name"), j_str(s, "why"));
	if (!j_num(j, "behind"))
		printf("all data servers have their own keys from it\n");
}

int cmd_key_status(char **args)
{
	json_t *j;
	int rc = weft_ask("GET", "/v1/key", "", &j);

	(void)args;
	return weft_show(rc, j, key_table);
}

/* True if no living server is without the key. */
static bool spread(const json_t *j)
{
	const json_t *list = json_object_get(j, "servers"), *s;
	size_t i;

	json_array_foreach(list, i, s) if (json_is_true(json_object_get(s, "alive"))) return false;
	return (json_int_t)json_array_size(list) == (json_int_t)j_num(j, "behind");
}

int cmd_key_rotate(char **args)
{
	json_t *j;
	int rc;

	(void)args;
	if (!weft_sure("The metadata server makes a new cluster key and gives all data servers new "
		       "keys from it.\n"
		       "No data server can join with the file of mds.cluster_key any more. If the "
		       "key was\n"
		       "rotated before, all layouts are recalled first."))
		return EXIT_FAILED;
	rc = weft_ask("PUT", "/v1/key/rotate", "", &j);
	for (unsigned i = 0; !rc && !spread(j) && i < SPREAD_MS / STEP_MS; i++) {
		json_decref(j);
		usleep(STEP_MS * 1000);
		rc = weft_ask("GET", "/v1/key", "", &j);
	}
	return weft_show(rc, j, key_table);
}
