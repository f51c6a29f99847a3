/* SPDX-License-Identifier: Apache-2.0 */
/*
 * serve.c - holds calls back after a start, until a data server has confirmed that the store is not
 * behind what that server saw (docs/recovery.md). The calls get no reply meanwhile, as if the
 * server were not up yet: a client that gets NFS4ERR_DELAY from SEQUENCE would come back much
 * later.
 */
#include "mds/nfs4/op.h"
#include <stdlib.h>

#define WAITING_MAX 65536u

struct waiting {
	struct loop_msg wt_msg;
	struct mds *wt_m;
	struct rpc_call *wt_call;
	struct waiting *wt_next;
};

static struct {
	pthread_mutex_t lock;
	struct waiting *first, **end;
	unsigned n;
} waiting = {.lock = PTHREAD_MUTEX_INITIALIZER, .end = &waiting.first};

static void waited(struct loop_msg *m)
{
	struct waiting *wt = (struct waiting *)((char *)m - offsetof(struct waiting, wt_msg));

	op_dispatch(wt->wt_call, wt->wt_m);
	free(wt);
}

bool op_serve_waits(struct mds *m, struct rpc_call *call)
{
	struct waiting *wt = calloc(1, sizeof(*wt));
	bool serving;

	pthread_mutex_lock(&waiting.lock);
	serving = atomic_load(&m->m_serving);
	if (!serving && wt && waiting.n < WAITING_MAX) {
		*wt = (struct waiting){.wt_msg.m_run = waited, .wt_m = m, .wt_call = call};
		*waiting.end = wt;
		waiting.end = &wt->wt_next;
		waiting.n++;
		wt = NULL;
		call = NULL;
	}
	pthread_mutex_unlock(&waiting.lock);
	free(wt);
	if (!serving && call)
		rpc_reply_error(call, RPC_A_SYSTEM_ERR);
	return !serving;
}

void op_serve(struct mds *m)
{
	struct waiting *wt;

	pthread_mutex_lock(&waiting.lock);
	atomic_store(&m->m_serving, true);
	wt = waiting.first;
	waiting.first = NULL;
	pthread_mutex_unlock(&waiting.lock);
	while (wt) {
		struct waiting *next = wt->wt_next;

		loop_post(wt->wt_call->c_loop, &wt->wt_msg);
		wt = next;
	}
}
