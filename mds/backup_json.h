/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backup_json.h - reads an object of JSON that comes from outside: each member is taken once, with
 * its type and range, and what was not taken is an error. After the first error the functions
 * return zeros, and jr_why names the member and what was expected.
 */
#ifndef MDS_BACKUP_JSON_H
#define MDS_BACKUP_JSON_H
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* No object has more members. */
#define JSON_READ_MEMBERS 40
struct json_read {
	json_t *jr_object;
	const char *jr_taken[JSON_READ_MEMBERS];
	size_t jr_n;
	bool jr_bad;
	char jr_why[200];
};
/* Parses one line; the caller calls json_read_end. A line that is no object is an error. */
void json_read_line(struct json_read *jr, const char *line, size_t len);
/* Reads an object that another one has: the caller keeps the reference. */
void json_read_object(struct json_read *jr, json_t *object);
/* Everything must have been taken. Returns true without an error. */
bool json_read_end(struct json_read *jr);
/* After json_read_line too: frees the object. */
void json_read_free(struct json_read *jr);

bool json_read_has(const struct json_read *jr, const char *name);
int64_t json_read_int(struct json_read *jr, const char *name, int64_t min, int64_t max);
bool json_read_bool(struct json_read *jr, const char *name);
/* At most max bytes, without NULs; valid as long as the object. "" after an error. */
const char *json_read_text(struct json_read *jr, const char *name, size_t max);
/* A text or null; NULL for null and after an error. */
const char *json_read_text_null(struct json_read *jr, const char *name, size_t max);
/* Hexadecimal digits. Exactly n bytes; zeros after an error. */
void json_read_hex(struct json_read *jr, const char *name, uint8_t *out, size_t n);
/* At most max bytes. Returns their number. */
size_t json_read_hex_any(struct json_read *jr, const char *name, uint8_t *out, size_t max);
/* 16 hexadecimal digits, the highest first. */
uint64_t json_read_id(struct json_read *jr, const char *name);
/* One of the texts of a list that NULL ends: its place; 0 after an error. */
unsigned json_read_word(struct json_read *jr, const char *name, const char *const *words);
/* Whatever it is; NULL after an error. */
json_t *json_read_any(struct json_read *jr, const char *name);
/* An array; NULL after an error. */
json_t *json_read_array(struct json_read *jr, const char *name, size_t max);
/* The first error counts. */
void json_read_fail(struct json_read *jr, const char *name, const char *what);

/* false: the text is not hexadecimal digits of n bytes */
bool json_unhex(const char *text, uint8_t *out, size_t n);
#endif
