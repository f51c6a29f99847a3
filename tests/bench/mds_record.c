/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mds_record.c - a weft-mds that writes down what it commits, for "floor replay": the file that
 * WEFT_RECORD names gets, for each batch, the number of its writes, and for each write the lengths
 * of key and value (GONE of floor.c: a delete) and their bytes. weft-mds itself is mds/main.c,
 * linked with --wrap=kv_open.
 */
#include "kv/kv.h"
#include <stdio.h>
#include <stdlib.h>

int __real_kv_open(struct kv **out, const char *path, const struct kv_opts *o, char *err,
		   size_t errlen);
int __wrap_kv_open(struct kv **out, const char *path, const struct kv_opts *o, char *err,
		   size_t errlen);

static int record(void *arg, const struct kv_writeset *ws)
{
	FILE *f = arg;
	uint32_t n = (uint32_t)ws->ws_n;

	fwrite(&n, sizeof(n), 1, f);
	for (size_t i = 0; i < ws->ws_n; i++) {
		const struct kv_write *w = &ws->ws_v[i];
		uint32_t len[2] = {(uint32_t)w->w_key.s_len,
				   w->w_del ? UINT32_MAX : (uint32_t)w->w_val.s_len};

		fwrite(len, sizeof(len), 1, f);
		fwrite(w->w_key.s_data, w->w_key.s_len, 1, f);
		if (!w->w_del && w->w_val.s_len)
			fwrite(w->w_val.s_data, w->w_val.s_len, 1, f);
	}
	return fflush(f) ? -5 : 0;
}

int __wrap_kv_open(struct kv **out, const char *path, const struct kv_opts *o, char *err,
		   size_t errlen)
{
	const char *file = getenv("WEFT_RECORD");
	int rc = __real_kv_open(out, path, o, err, errlen);
	FILE *f = file && !rc && !o->ko_readonly ? fopen(file, "we") : NULL;

	if (f)
		kv_set_batch_hook(*out, record, f);
	return rc;
}
