/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mds_addr.h - the service addresses of this instance, which weft-addr(8) holds for it.
 *
 * Order at start: the server listens (before it opens its store), has its store, and then asks for
 * the addresses; weft-addr drops new connections until it hears LISTENING, and tickles the
 * connections of former lives. A standby that listens and waits for its store calls mds_addr_start
 * when it has it. At the stop the addresses go first: no connect is refused, and a connection that
 * is closed later tells its peer nothing, so its row stays for the next life.
 *
 * One thread does all of it, and the rows (conn_rows.h). Without mds.addresses there is none.
 */
#ifndef MDS_MDS_ADDR_H
#define MDS_MDS_ADDR_H
#include "base/conf.h"
#include "kv/kv.h"
#include "proto/rpc.h"

/* Reads mds.addresses, mds.addr_socket and mds.listen. Returns 0, or -EINVAL with one line in
 * err. */
int mds_addr_open(const struct conf *conf, char *err, size_t errlen);
/* On the connection's loop. */
void mds_addr_opened(const struct rpc_conn *c);
void mds_addr_closed(const struct rpc_conn *c);
/* Before the loops run. Waits a few seconds at most: where weft-addr is not there, the server goes
 * on, and the thread asks it again. Returns 0, or a negative errno where it cannot begin. */
int mds_addr_start(struct kv *kv);
/* Any thread, also without a start, once. Blocks until the addresses are released and the rows are
 * in the store. */
void mds_addr_stop(void);
#endif
