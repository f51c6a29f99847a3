/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pg_record.h - the writes of a batch of the log in PostgreSQL, for a fold and for a check of it.
 */
#ifndef MDS_PG_RECORD_H
#define MDS_PG_RECORD_H
#include "kv/kv_redo.h"
#include "pg/pg.h"

/* Is the record whole, and the one that is wanted? 0 or -errno. len: of all of it, which may be
 * shorter than its head. */
typedef int pg_record_fn(struct kv_redo_rec *r, size_t len);

/* Calls write with each write of the record at data, in order, if check allows the record; a value
 * without a base is a delete. 0, or the first error: that of check or write, -ENOMEM, or -EIO. */
int pg_record_writes(const void *data, size_t len, pg_record_fn *check, pg_write_fn *write,
		     void *arg);
#endif
