/* SPDX-License-Identifier: Apache-2.0 */
/* access_times.h - sets the access times of what was read, many in one mutation. */
#ifndef MDS_ACCESS_TIMES_H
#define MDS_ACCESS_TIMES_H
#include "mds/mds.h"

/* Call it once, before anything is served. on false: no access time is set. */
void job_atime_init(struct mds *m, bool on);
/* Call it many times a second, on any loop. */
void job_atime_tick(struct loop *loop);
/* A client has read i, and the time may be set. On the thread's loop. */
void job_accessed(struct mds_thread *th, const struct ns_inode *i);
#endif
