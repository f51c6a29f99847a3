/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conn_rows.h - a row in the store for each TCP connection to a service address, so that the next
 * life of the server, here or on another node, can make the peers of this one connect again.
 *
 * Nobody waits for a row. What changed is collected in memory and becomes one mutation, at most
 * twice a second (mds_addr.c): it joins the batch that is being collected then, and where no
 * connection comes or goes there is none. A connection that is younger than that when the server
 * dies has no row: its peer waits for TCP or for its renewal.
 *
 * At most CONN_ROWS_MAX connections have a row.
 */
#ifndef MDS_CONN_ROWS_H
#define MDS_CONN_ROWS_H
#include "kv/kv.h"
#include "mds/conn_id.h"
#include <stdbool.h>

#define CONN_ROWS_MAX 65536u
/* Any thread. */
void conn_rows_opened(const struct conn_id *id);
void conn_rows_closed(const struct conn_id *id);
/* The others: one thread, not a loop's. Writes what changed: 0, or a negative errno, then it is
 * tried again with the next call. */
int conn_rows_flush(struct kv *kv);
/* The rows of former lives, malloc'd. They may be more than CONN_ROWS_MAX: those of several lives
 * in which nobody could be told. Damaged ones are left out. */
int conn_rows_read(struct kv *kv, struct conn_id **out, size_t *n);
/* Deletes these rows. Connections of this life that have the same id keep theirs. */
int conn_rows_forget(struct kv *kv, const struct conn_id *ids, size_t n);
#endif
