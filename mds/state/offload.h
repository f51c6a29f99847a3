/* SPDX-License-Identifier: Apache-2.0 */
/* offload.h - asynchronous copies (RFC 7862 section 4.8). */
#ifndef MDS_STATE_OFFLOAD_H
#define MDS_STATE_OFFLOAD_H
#include "base/loop.h"
#include "mds/state/st_stateid.h"

struct st;
struct st_client;

/* Asynchronous copies (RFC 7862 section 4.8). A state ends with its client, with the client's
 * answer to CB_OFFLOAD, or when it is cancelled. The job that copies polls st_offload_is_over, and
 * ends the state in any case by st_offload_end. */
struct st_offload_end {
	nfsstat4 oe_status;
	uint64_t oe_count;
	uint32_t oe_how; /* stable_how4 */
	uint64_t oe_verifier;
};
/* A request that waits for the end of a cancelled job. */
struct st_offload_wait {
	struct loop_msg ow_msg;
	struct loop *ow_loop;
	void *ow_arg;
};
struct st_offload {
	struct st_client *of_client; /* NULL: over */
	struct st_offload *of_next, **of_prev;
	struct st_stateid of_sid;
	uint64_t of_ino; /* the destination */
	uint32_t of_uid; /* the owner: no other user may cancel it (section 4.2) */
	uint8_t of_fh[NFS4_FHSIZE];
	uint32_t of_fhlen;
	uint64_t of_count;
	bool of_done;
	struct st_offload_end of_end;
	struct st_offload_wait *of_wait;
};
/* These take the lock. NULL: the client has no backchannel, or too many copies. */
struct st_offload *st_offload_new(struct st *st, struct st_client *c, uint64_t ino, uint32_t uid,
				  const uint8_t *fh, uint32_t fhlen, struct st_stateid *sid);
void st_offload_progress(struct st *st, struct st_offload *of, uint64_t count);
bool st_offload_is_over(struct st *st, struct st_offload *of);
/* Queues CB_OFFLOAD; the job must not use of after this. */
void st_offload_end(struct st *st, struct st_offload *of, const struct st_offload_end *end);
/* These are locked. BAD_STATEID: there is none of that file and user. */
nfsstat4 st_offload_find(struct st_client *c, const struct st_stateid *sid, uint64_t ino,
			 uint32_t uid, struct st_offload **of);
/* False: it is done already. Else w's message comes when the job has ended. */
bool st_offload_cancel(struct st_offload *of, struct st_offload_wait *w);
void st_offloads_drop(struct st_client *c);
#endif
