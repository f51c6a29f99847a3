/* SPDX-License-Identifier: Apache-2.0 */
/* st_stateid.h - stateids (RFC 8881 section 8.2). */
#ifndef MDS_STATE_ST_STATEID_H
#define MDS_STATE_ST_STATEID_H
#include "proto/nfs4.h"
#include <stdbool.h>
#include <stdint.h>

struct st;

struct st_stateid {
	uint32_t seqid;
	uint8_t other[NFS4_OTHER_SIZE];
};

static inline void st_sid_bump(struct st_stateid *s)
{
	if (++s->seqid == 0)
		s->seqid = 1;
}

enum { ST_SID_OPEN = 1, ST_SID_LOCK = 2, ST_SID_LAYOUT = 3, ST_SID_DELEG = 4, ST_SID_COPY = 5 };
/* Any thread: makes a stateid for state of this file, with seqid 1. */
void st_sid_make(struct st *st, uint64_t ino, unsigned type, struct st_stateid *sid);
/* Is it a stateid of this boot, of that type? */
bool st_sid_ours(struct st *st, const struct st_stateid *sid, unsigned type);
/* other all zeros with seqid 0, or all ones with the largest seqid */
bool st_sid_special(const struct st_stateid *sid);
#endif
