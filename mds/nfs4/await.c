/* SPDX-License-Identifier: Apache-2.0 */
/* await.c - how an operation waits: see await.h. */
#include "base/log.h"
#include "mds/nfs4/op.h"
#include <assert.h>

nfsstat4 op_await(struct compound *c, op_step *next)
{
	assert(!c->then);
	if (c->woken) {
		c->woken = false;
		op_txn_stale(c->th);
		return next(c, c->woken_err);
	}
	c->then = next;
	return OP_PARKED;
}

nfsstat4 op_await_client(struct compound *c, op_step *next)
{
	if (!c->woken)
		op_client_waits(c);
	return op_await(c, next);
}

void op_wake(void *compound, int err)
{
	struct compound *c = compound;
	op_step *next = c->then;
	nfsstat4 st;

	if (!next) { /* it was over before the step that began it has returned */
		assert(!c->woken);
		c->woken = true;
		c->woken_err = err;
		return;
	}
	c->then = NULL;
	rpc_call_waits(c->call, false);
	/* What was waited for may have changed the file. */
	op_txn_stale(c->th);
	log_request = c->request; /* what the step begins carries it */
	st = next(c, err);
	if (st != OP_PARKED && st != OP_ANSWERED)
		op_resume(c, st);
}

void op_wake_ok(void *compound)
{
	op_wake(compound, 0);
}

void op_client_waits(void *compound)
{
	rpc_call_waits(((struct compound *)compound)->call, true);
}

void op_client_came(void *compound)
{
	rpc_call_waits(((struct compound *)compound)->call, false);
}

nfsstat4 op_step_status(struct compound *c, int err)
{
	(void)c;
	return op_status(err);
}

nfsstat4 op_step_ok(struct compound *c, int err)
{
	(void)c;
	(void)err;
	return NFS4_OK;
}
