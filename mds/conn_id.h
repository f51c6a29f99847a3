/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conn_id.h - the two ends of a TCP connection, as the store keeps them (docs/schema.md,
 * "Connections") and as weft-addr(8) is told of them. No state, no system call.
 */
#ifndef MDS_CONN_ID_H
#define MDS_CONN_ID_H
#include "kv/kv.h"
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* The id of a row NS_T_CONN. IPv4 addresses are ::ffff:a.b.c.d; ports are big-endian. */
struct conn_id {
	uint8_t ci_local[16], ci_lport[2], ci_peer[16], ci_pport[2];
};
_Static_assert(sizeof(struct conn_id) == 36, "id of a connection");

#define CONN_VERSION 1 /* the value of a row */

/* Room for one line: an address has at most 39 characters here, a port 5. */
#define CONN_ID_LINE (2 * (39 + 1 + 5 + 1) + 1)

/* False: not a connection that conn_id_ok takes. */
bool conn_id_make(struct conn_id *id, const struct sockaddr_storage *local,
		  const struct sockaddr_storage *peer);
/* Two ports and two addresses that hosts have, both of IPv4 or both of IPv6: weft-addr takes such a
 * line, and no other. */
bool conn_id_ok(const struct conn_id *id);
/* An address of 16 bytes that a host has: no wildcard, no multicast, no broadcast. */
bool conn_addr_ok(const uint8_t addr[16]);
bool conn_addr_v4(const uint8_t addr[16]);
/* Of a sockaddr_in or sockaddr_in6; all zeros for another one. */
void conn_addr_of(const struct sockaddr_storage *ss, uint8_t out[16]);
/* Parses an IPv4 or IPv6 address as conn_id has it. False: it is none. */
bool conn_addr_parse(const char *text, uint8_t out[16]);
/* out: INET6_ADDRSTRLEN bytes. Returns out. */
const char *conn_addr_text(const uint8_t addr[16], char *out);
uint16_t conn_port(const uint8_t port[2]);
/* "LOCAL PORT PEER PORT\n", at most CONN_ID_LINE bytes with the NUL. Returns its length. */
size_t conn_id_line(const struct conn_id *id, char out[CONN_ID_LINE]);
/* A row NS_T_CONN that is not damaged. */
bool conn_row_ok(struct kv_slice id, struct kv_slice val);
#endif
