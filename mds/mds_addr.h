/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mds_addr.h - the service addresses of this instance, which weft-addr(8) holds for it.
 *
 * Order at start: the server listens (before it opens its store), has its store, and then asks for
 * the addresses; weft-addr drops new connections until it hears LISTENING, and then tickles the
 * connections of former lives. A standby that listens and waits for its store calls mds_addr_start
 * when it has it.
 *
 * From then on weft-addr hears LIVE twice a second, as long as this process holds its store and
 * each of its loops turns. Where it does not, the addresses go from this node until it does again.
 * A server that waits for its store asks for no address.
 *
 * At the stop, and when another instance has claimed the store, the addresses go before anything
 * else ends: no connect is refused, nothing answers at an address that another node may have, and a
 * connection that is closed later tells its peer nothing, so its row stays for the next life.
 *
 * Two threads, neither of which is a loop: one talks to weft-addr and never waits for the store,
 * the other writes the rows (conn_rows.h). Without mds.addresses there are none.
 */
#ifndef MDS_MDS_ADDR_H
#define MDS_MDS_ADDR_H
#include "base/conf.h"
#include "base/loop.h"
#include "common/store_lease.h"
#include "kv/kv.h"
#include "proto/rpc.h"

/* Reads mds.addresses, mds.addr_socket and mds.listen. Returns 0, or -EINVAL with one line in
 * err. */
int mds_addr_open(const struct conf *conf, char *err, size_t errlen);
/* On the connection's loop. */
void mds_addr_opened(const struct rpc_conn *c);
void mds_addr_closed(const struct rpc_conn *c);
/* Once, before the first loop runs; others may. The arguments stay valid until mds_addr_stop
 * returns. Reads the rows and does not wait for weft-addr. Returns 0, or a negative errno where it
 * cannot begin. */
int mds_addr_start(struct kv *kv, const struct store_lease *lease, struct loop **loops, unsigned n);
/* Any thread, also without a start, once; the loops still run. Blocks until the addresses are
 * released (2 s at most, where weft-addr does not answer) and the rows are in the store. */
void mds_addr_stop(void);
#endif
