/* SPDX-License-Identifier: Apache-2.0 */
/*
 * await.h - how an operation waits (docs/decisions/async.md).
 *
 * An operation that waits consists of steps. A step is a function
 *
 *	nfsstat4 step(struct compound *c, int err)
 *
 * that runs on the compound's loop. err is what came of the thing that was waited for: 0, or a
 * negative errno. A step returns the operation's status, or OP_PARKED if the operation waits.
 *
 * A step waits in one way: it begins something that calls op_wake(c, err) once, on the same loop,
 * when it is over, and returns op_await(c, next):
 *
 *	if (excl_resolve(&c->m->m_file, c->th->mt_loop, ino, op_wake, c))
 *		return op_await(c, layoutget_resolved);
 *	return layoutget_resolved(c, 0);
 *
 * Where the completion has another signature, a function of two lines turns it into op_wake. What
 * the steps share is in c->scratch (op_scratch). op_mutate, op_refresh and op_deleg_clear begin and
 * wait in one call. In mds/nfs4, await.c alone resumes an operation and says whether a call waits
 * for a client, except that compound.c runs an operation again that waited for names (names_again);
 * tests/rooms.sh holds that.
 */
#ifndef MDS_NFS4_AWAIT_H
#define MDS_NFS4_AWAIT_H
#include "proto/nfs4.h"
#include <stdbool.h>

struct compound;

#define OP_PARKED 0xffffffffu
/* SEQUENCE has answered the whole COMPOUND with a kept reply, and freed it. */
#define OP_ANSWERED 0xfffffffeu

/* A file declares its steps by it: static op_step a_begun, a_done; */
typedef nfsstat4 op_step(struct compound *c, int err);

/* Parks the operation: next runs when what was begun calls op_wake. Returns OP_PARKED. If op_wake
 * was called already, next runs at once, and its status is returned. */
nfsstat4 op_await(struct compound *c, op_step *next);
/* The same, where a client has to give something back: meanwhile this call does not keep that
 * client's requests from being read (rpc_call_waits). */
nfsstat4 op_await_client(struct compound *c, op_step *next);
/* What was begun is over. Runs the step that awaits it, with a new snapshot, and resumes the
 * COMPOUND if that step ends the operation; then the compound may be freed. Call it once for each
 * op_await, on the compound's loop. The compound comes as a void pointer, so that this is a
 * completion as other rooms call them. */
void op_wake(void *compound, int err);
/* The same for completions without an error. */
void op_wake_ok(void *compound);
/* From here on the parked operation waits for a client. It ends with op_wake, or before that with
 * op_client_came. */
void op_client_waits(void *compound);
void op_client_came(void *compound);

/* await_grace.c. True: op_wake is called with 0 when the grace period is over, or with -EAGAIN
 * after two seconds of it, or a quarter. False: there is none, or the client itself has to
 * reclaim. */
bool op_grace_waits(struct compound *c);

/* Last steps: the status of err; NFS4_OK, whatever err is. */
nfsstat4 op_step_status(struct compound *c, int err);
nfsstat4 op_step_ok(struct compound *c, int err);
#endif
