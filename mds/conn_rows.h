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
#include <netinet/in.h>
#include <stdbool.h>

#define CONN_ROWS_MAX 65536u
/* The id of a row NS_T_CONN (docs/schema.md). IPv4 addresses are ::ffff:a.b.c.d; ports are
 * big-endian. */
struct conn_id {
	uint8_t ci_local[16], ci_lport[2], ci_peer[16], ci_pport[2];
};
_Static_assert(sizeof(struct conn_id) == 36, "id of a connection");

/* False: neither IPv4 nor IPv6. */
bool conn_id_make(struct conn_id *id, const struct sockaddr_storage *local,
		  const struct sockaddr_storage *peer);
/* Any thread. */
void conn_rows_opened(const struct conn_id *id);
void conn_rows_closed(const struct conn_id *id);
/* The others: one thread, not a loop's. Writes what changed: 0, or a negative errno, then it is
 * tried again with the next call. */
int conn_rows_flush(struct kv *kv);
/* The rows of former lives, malloc'd. */
int conn_rows_read(struct kv *kv, struct conn_id **out, size_t *n);
/* Deletes these rows. Connections of this life that have the same id keep theirs. */
int conn_rows_forget(struct kv *kv, const struct conn_id *ids, size_t n);
/* For weft-fsck. */
bool conn_row_ok(struct kv_slice id, struct kv_slice val);
#endif
