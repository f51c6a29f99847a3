/* SPDX-License-Identifier: Apache-2.0 */
/* shard.h - the locks on state; what each guards is in st.h. */
#ifndef MDS_STATE_SHARD_H
#define MDS_STATE_SHARD_H
#include <stdbool.h>
#include <stdint.h>

struct st;

/* shard.c: locks. A thread holds one of them at a time; taking a second one is fatal. */
void st_all_lock(struct st *st);
void st_all_unlock(struct st *st);
void st_file_lock(struct st *st, uint64_t ino);
void st_file_unlock(struct st *st, uint64_t ino);
/* The thread's own lock alone: what all guards does not change meanwhile. */
void st_look_lock(struct st *st);
void st_look_unlock(struct st *st);
/*
 * Work on a file that seldom needs all:
 *
 *	struct st_work w = {0};
 *
 *	do {
 *		st_work_lock(&w, st, ino);
 *		...
 *	} while (st_work_again(&w));
 *
 * The body holds the file's lock first. If st_needs_all() says that it lacks all, the body must
 * finish without changing anything: it then runs once more, from the start, with all locked.
 */
struct st_work {
	struct st *swo_st;
	uint64_t swo_ino;
	bool swo_all;
};
void st_work_lock(struct st_work *w, struct st *st, uint64_t ino);
bool st_work_again(struct st_work *w);
/* True: all is locked. False: it is not, and st_work_again will run the body again with all
 * locked. */
bool st_needs_all(void);
/* Has the calling thread locked the file, or all? And all? */
bool st_has(const struct st *st, uint64_t ino);
bool st_has_all(void);
/* Fatal if the calling thread has not; in builds with a sanitizer only. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
void st_must_have(const struct st *st, uint64_t ino);
void st_must_have_all(void);
#else
static inline void st_must_have(const struct st *st, uint64_t ino)
{
	(void)st;
	(void)ino;
}
static inline void st_must_have_all(void)
{
}
#endif
/* The thread index: a small number of the calling thread. */
unsigned st_thread_index(void);
#endif
