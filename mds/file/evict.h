/* SPDX-License-Identifier: Apache-2.0 */
/*
 * evict.h - eviction: the server takes away all that a client has (docs/fencing.md).
 */
#ifndef MDS_FILE_EVICT_H
#define MDS_FILE_EVICT_H
#include "mds/file/file.h"
#include "mds/journal/event_journal.h"

/* Starts to evict a client whose lease has run out. Does nothing to a client that is alive. Any
 * thread; loop does the work. */
void file_evict(const struct file_env *fe, struct loop *loop, uint64_t clientid);
/* Starts to evict a client that may be alive. Any thread; loop does the work. 0; -ENOENT;
 * -EALREADY: an eviction is under way; -ENOMEM. If the client's record cannot be deleted, the
 * client stays, without its sessions. */
int file_evict_now(const struct file_env *fe, struct loop *loop, uint64_t clientid);
/* Starts to evict all clients whose leases have run out and whose opens of the file deny this
 * access or are denied by this deny. If both are 0: all such clients that hold locks of the
 * file. */
void file_evict_in_way(const struct file_env *fe, struct loop *loop, uint64_t ino, uint32_t access,
		       uint32_t deny);
/* The grace period is over: evicts the clients that did not come back (grace.c). loop does the
 * work. */
void file_grace_over(const struct file_env *fe, struct loop *loop);
/* The leases of these clients (ST_LAPSES at most) have run out: puts that into their records
 * (lapse.c). loop does the work. */
void file_lapsed(const struct file_env *fe, struct loop *loop, const uint64_t *clientids,
		 unsigned n);
/* Puts the end of the client's owner string as the journal may have it. */
void evict_name_of(const struct st_client *cl, char name[EV_SUBJECT_MAX + 1]);
#endif
