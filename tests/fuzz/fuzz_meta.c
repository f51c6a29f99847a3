/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_meta.c - lines of an export are read without trust: any bytes are a row, or an error with a
 * reason. The first byte chooses: the others are a whole export, line by line; or one line; or a
 * row, whose line gives it again.
 */
#include "mds/meta.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t room[KV_VALUE_MAX];

/* Promised: what a line says is a row that the store can have, and its own line says the same. */
static void row_again(const struct meta_row *r)
{
	struct kv_slice key = {r->mr_key, r->mr_key_len}, val = {r->mr_val, r->mr_val_len};
	struct meta_row again = {.mr_val = malloc(val.s_len + 1)};
	struct meta_line l = {.ml_buf = NULL};
	char why[300];
	bool raw;

	if (!key.s_len || key.s_len > KV_KEY_MAX || !r->mr_key[0] || val.s_len > KV_VALUE_MAX ||
	    !again.mr_val)
		abort();
	if (meta_line_of(&l, key, val, &raw) || l.ml_len > META_LINE_MAX ||
	    !meta_row_of(l.ml_buf, l.ml_len - 1, &again, why, sizeof(why), val.s_len) ||
	    again.mr_raw != raw || again.mr_key_len != key.s_len ||
	    memcmp(again.mr_key, key.s_data, key.s_len) != 0 || again.mr_val_len != val.s_len ||
	    (val.s_len && memcmp(again.mr_val, val.s_data, val.s_len) != 0))
		abort();
	free(again.mr_val);
	free(l.ml_buf);
}

static void one_line(const char *line, size_t len)
{
	struct meta_row r = {.mr_val = room};
	struct meta_head h;
	char why[300] = "";

	if (meta_row_of(line, len, &r, why, sizeof(why), sizeof(room)))
		row_again(&r);
	else if (!*why)
		abort();
	why[0] = 0;
	if (!meta_head_parse(line, len, &h, why, sizeof(why)) && !*why)
		abort();
}

/* Promised: the first wrong line ends it, and has a reason; a whole one has both ends. */
static void whole(const char *text, size_t size)
{
	struct meta_check c;
	char why[300] = "";
	int rc = 0;

	if (!meta_check_begin(&c, true))
		abort();
	while (rc >= 0 && size) {
		const char *nl = memchr(text, '\n', size);
		size_t len = nl ? (size_t)(nl - text) : size;

		rc = meta_check_line(&c, text, len, why, sizeof(why));
		if (rc > 0)
			row_again(&c.mc_row);
		text += len + (nl != NULL);
		size -= len + (nl != NULL);
	}
	if (rc < 0 && !*why)
		abort();
	if (rc >= 0 && meta_check_end(&c, why, sizeof(why)) &&
	    (!c.mc_super || !c.mc_root || c.mc_lines < 4))
		abort();
	meta_check_free(&c);
}

static void a_row(const uint8_t *data, size_t size)
{
	size_t key = 1 + data[0] % 40;
	struct meta_row r = {.mr_val = room};

	if (size < 1 + key || !data[1])
		return;
	r.mr_key_len = key;
	memcpy(r.mr_key, data + 1, key);
	r.mr_val_len = size - 1 - key;
	if (r.mr_val_len > sizeof(room))
		return;
	memcpy(room, data + 1 + key, r.mr_val_len);
	row_again(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 2)
		return 0;
	if (data[0] % 3 == 1)
		one_line((const char *)data + 1, size - 1);
	else if (data[0] % 3 == 2)
		a_row(data + 1, size - 1);
	else
		whole((const char *)data + 1, size - 1);
	return 0;
}
