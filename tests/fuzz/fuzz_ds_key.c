/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_ds_key.c - a data server's key file, and keys in the answer to a JOIN, are decoded without
 * trust: any bytes are none, or keys of a file system that make the same text again. An input's
 * first byte chooses which.
 */
#include "proto/ds_key.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void file(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1), again[DS_KEY_TEXT];
	struct ds_key k, l;
	const char *why = NULL;
	int rc;

	memcpy(text, data, size);
	text[size] = 0;
	rc = ds_key_parse(text, &k, &why);
	if (rc && (rc != -EINVAL && rc != -EPROTONOSUPPORT))
		abort();
	if (rc && !why)
		abort();
	if (!rc) {
		if (!k.dk_fs)
			abort();
		ds_key_text(&k, "fuzz", again);
		if (ds_key_parse(again, &l, &why) || memcmp(&k, &l, sizeof(k)))
			abort();
	}
	free(text);
}

/* Entries: a kind, a length, and so many bytes. */
static void given(const uint8_t *data, size_t size)
{
	static const uint8_t uuid[16] = "fuzz";
	uint8_t buf[DS_KEY_GIVEN];
	ctl_more list[CTL_MORE_MAX], one;
	struct ds_key k, l;
	unsigned n = 0;

	while (size >= 2 && n < CTL_MORE_MAX) {
		size_t len = data[1] < size - 2 ? data[1] : size - 2;

		list[n].kind = data[0] % 16;
		list[n].data.data_len = (unsigned)len;
		list[n].data.data_val = malloc(len ? len : 1);
		memcpy(list[n++].data.data_val, data + 2, len);
		data += 2 + len;
		size -= 2 + len;
	}
	if (ds_key_more_get(list, n, uuid, 7, &k)) {
		if (k.dk_fs != 7 || memcmp(k.dk_uuid, uuid, 16))
			abort();
		ds_key_more_put(&k, &one, buf);
		if (!ds_key_more_get(&one, 1, uuid, 7, &l) || memcmp(&k, &l, sizeof(k)))
			abort();
	}
	while (n)
		free(list[--n].data.data_val);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size && data[0] % 2)
		given(data + 1, size - 1);
	else if (size)
		file(data + 1, size - 1);
	return 0;
}
