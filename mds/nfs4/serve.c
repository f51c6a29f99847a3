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
	struct loop_msg wg_msg;
	struct mds *wg_m;
	struct rpc_call *wg_call;
	struct waiting *wg_next;
};

static struct {
	pthread_mutex_t lock;
	struct waiting *first, **end;
	unsigned n;
} waiting = {.lock = PTHREAD_MUTEX_INITIALIZER, .end = &waiting.first};

static void waited(struct loop_msg *m)
{
	struct waiting *wt = (struct waiting *)((char *)m - offsetof(struct waiting, wg_msg));

	op_dispatch(wt->wg_call, wt->wg_m);
	free(wt);
}

bool op_serve_waits(struct mds *m, struct rpc_call *call)
{
	struct waiting *wt = calloc(1, sizeof(*wt));
	bool serving;

	pthread_mutex_lock(&waiting.lock);
	serving = atomic_load(&m->m_serving);
	if (!serving && wt && waiting.n < WAITING_MAX) {
		*wt = (struct waiting){.wg_msg.m_run = waited, .wg_m = m, .wg_call = call};
		*waiting.end = wt;
		waiting.end = &wt->wg_next;
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
		struct waiting *next = wt->wg_next;

		loop_post(wt->wg_call->c_loop, &wt->wg_msg);
		wt = next;
	}
}
