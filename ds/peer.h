/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer.h - rebuilding from another data server: the source's side (peer.c) and the target's
 * (pull.c).
 *
 * Both work on threads of their own. A source serves the reads of others with two threads. A target
 * pulls two objects at a time; all steps of one object go to the same thread.
 */
#ifndef DS_PEER_H
#define DS_PEER_H
#include "base/worker.h"
#include "ds/ds.h"
#include "ds/store/rebuild.h"

/* Makes the metrics; before other threads run. */
void ds_peer_init(void);
/* Before the loops run. */
int ds_peer_start(struct ds *d);
/* The service CTL_PEER_PROGRAM; arg is the struct ds. */
void ds_peer_dispatch(struct rpc_call *call, void *arg);

int ds_pull_start(struct ds *d);
/* w_run runs on the thread of this object; it may call the next functions. False: too many wait. */
bool ds_pull_submit(struct ds *d, uint64_t ino, struct work *w);
/* Copies a source's answer to a read of count bytes at ft_off. -EPROTO: the answer contradicts
 * itself; -EBADMSG: a checksum is wrong. */
int ds_pull_answer(struct xdr_in *x, uint32_t count, struct ds_fetch *f);
/* As ds_pull_answer, for the READ of an NFSv3 server, which has no checksums and no holes. */
int ds_pull_foreign(struct xdr_in *x, uint32_t count, struct ds_fetch *f);
/* PULL. Blocks; on the object's thread. */
ctl_status ds_pull(struct ds *d, const ctl_rebuild_args *a, ctl_rebuild_res *res);
/* Fetches what a source has from ft_off on, at most count bytes. Blocks; on the object's thread,
 * which owns the memory that f gets. */
int ds_pull_fetch(struct ds *d, uint64_t ino, const ctl_peer *p, uint32_t count,
		  struct ds_fetch *f);
/* DS_SESSION_MEM bytes of the object's thread. */
uint8_t *ds_pull_memory(uint64_t ino);
/* fill_service.c: FILL. Blocks; on the object's thread. */
ctl_status ds_fill(struct ds *d, const ctl_fill_args *a, ctl_fill_res *res);
/* sum.c: SUM. Blocks; on one of those threads. */
ctl_status ds_sum(struct ds_store *s, const ctl_sum_args *a, ctl_sum_res *res);
#endif
