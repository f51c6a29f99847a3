/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conf.h - configuration: a table of keys, a file (libconfuse), and KEY=VALUE overrides.
 *
 * Keys are "section.name". In the file: section { name = value }. The table, conf_keys, is not of
 * base: the product that uses this parser has it.
 * Errors name file, line, key and what was expected; for an unknown key they suggest similar ones.
 */
#ifndef BASE_CONF_H
#define BASE_CONF_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
enum conf_type {
	CONF_STR,
	CONF_INT,
	CONF_BOOL,
	CONF_SECONDS /* float seconds or 90s, 500ms */,
	CONF_SIZE /* K M G */,
	CONF_ENUM
};
struct conf_key {
	const char *ck_name; /* "section.name" */
	enum conf_type ck_type;
	const char *ck_default; /* text */
	/* CONF_ENUM: "this|that"; INT, SECONDS and SIZE: "min..max"; else NULL */
	const char *ck_range;
};
extern const struct conf_key conf_keys[];
extern const size_t conf_nkeys;
extern const char conf_file_name[]; /* of the file, for messages */
struct conf;
/* Where a value comes from. */
enum conf_from { CONF_FROM_DEFAULT, CONF_FROM_FILE, CONF_FROM_OPTION, CONF_FROM_LIVE };
/* path NULL: defaults only. On error returns a negative errno and err holds one line. */
int conf_load(struct conf **out, const char *path, char *err, size_t errlen);
/* assignment: "KEY=VALUE" */
int conf_set(struct conf *c, const char *assignment, char *err, size_t errlen);
/* conf_read: a whole file in libconfuse's grammar, at most 1 MiB, with its comments blanked;
 * malloc'd. conf_text: the same for a text in memory, changed in place. */
int conf_read(const char *path, char **out, char *err, size_t errlen);
int conf_text(char *text, const char *name, char *err, size_t errlen);
void conf_free(struct conf *c);
/* The place of a key in conf_keys, or conf_nkeys and one line in err, with near names. */
size_t conf_find(const char *name, char *err, size_t errlen);
/* The value of the key at that place, as it was written. Lives until the key is set again. */
const char *conf_value(const struct conf *c, size_t key);
enum conf_from conf_from(const struct conf *c, size_t key);
/* Sets the key at that place. 0, or -errno and one line in err: then nothing has changed. */
int conf_put(struct conf *c, size_t key, const char *text, enum conf_from from, char *err,
	     size_t errlen);
/* The key must be in the table with that type (asserted: a programming error). conf_msec returns
 * milliseconds. */
const char *conf_str(const struct conf *c, const char *key);
int64_t conf_int(const struct conf *c, const char *key);
bool conf_bool(const struct conf *c, const char *key);
int64_t conf_msec(const struct conf *c, const char *key);
uint64_t conf_size(const struct conf *c, const char *key);
#endif
