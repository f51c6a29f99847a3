/*
 * peer.h - rebuilding from another data server: the source's side (peer.c) and the target's
 * (pull.c).
 *
 * Both work on threads of their own. A source reads for others with two, a target pulls two objects
 * at a time; all steps of one object go to the same thread.
 */
#ifndef DS_PEER_H
#define DS_PEER_H
#include "base/worker.h"
#include "ds/ds.h"
#include "ds/store/rebuild.h"

/* Metrics; before other threads run. */
void ds_peer_init(void);
/* Before the loops run. */
int ds_peer_start(struct ds *d);
/* The service CTL_PEER_PROGRAM; arg is the struct ds. */
void ds_peer_dispatch(struct rpc_call *call, void *arg);

int ds_pull_start(struct ds *d);
/* w_run runs on the thread of this object; it may call the next. False: too many wait. */
bool ds_pull_submit(struct ds *d, uint64_t ino, struct work *w);
/* Copies a source's answer to a question for count bytes at ft_off. What does not fit together is
 * -EPROTO; a sum that is wrong, -EBADMSG. */
int ds_pull_answer(struct xdr_in *x, uint32_t count, struct ds_fetch *f);
/* The same of an NFSv3 server's READ, which tells no sum and no holes. */
int ds_pull_foreign(struct xdr_in *x, uint32_t count, struct ds_fetch *f);
/* PULL. Blocks; on that thread. */
ctl_status ds_pull(struct ds *d, const ctl_rebuild_args *a, ctl_rebuild_res *res);
/* What a source has from ft_off on, count bytes at most. Blocks; on the thread of that object,
 * whose memory f gets. */
int ds_pull_fetch(struct ds *d, uint64_t ino, const ctl_peer *p, uint32_t count,
		  struct ds_fetch *f);
/* fill.c. The same. */
ctl_status ds_fill(struct ds *d, const ctl_fill_args *a, ctl_fill_res *res);
/* sum.c. Blocks; on one of those threads. */
ctl_status ds_sum(struct ds_store *s, const ctl_sum_args *a, ctl_sum_res *res);
#endif
