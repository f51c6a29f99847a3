/* SPDX-License-Identifier: Apache-2.0 */
/* pg_record.c - see pg_record.h. */
#include "mds/pg_record.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int pg_record_writes(const void *data, size_t len, pg_record_fn *check, pg_write_fn *write,
		     void *arg)
{
	uint32_t pos = sizeof(struct kv_redo_rec);
	struct kv_redo_rec *r = malloc(len + 1); /* aligned */
	struct kv_write w;
	int rc, got = 0;

	if (!r)
		return -ENOMEM;
	memcpy(r, data, len);
	rc = check(r, len);
	while (!rc && (got = kv_redo_rec_next(r, &pos, &w)) > 0)
		rc = write(arg, (struct iovec){(void *)w.w_key.s_data, w.w_key.s_len},
			   (struct iovec){w.w_del ? NULL : (void *)w.w_val.s_data, w.w_val.s_len});
	free(r);
	return rc ? rc : got < 0 ? got : 0;
}
