/* SPDX-License-Identifier: Apache-2.0 */
/*
 * count.h - counts what an operation costs that other threads could feel, in a build that is
 * configured with --enable-counts. In any other build it is nothing.
 *
 * It counts locks taken (pthread mutexes and read-write locks, those of libraries too), locks that
 * another thread held at that moment, writes of shared cache lines, allocations, system calls, and
 * messages from thread to thread. A line is shared when another thread also wrote it within the
 * last COUNT_SHARED_MS; every lock taken and every atomic operation of these sources that writes
 * counts as a write. System calls are those of the C library's functions and of liburing's; a wait
 * for a mutex counts as one.
 *
 * The compiler includes this file in front of every source file of such a build. Then
 * pthread_mutex_lock() and the like, and the functions of stdatomic.h, are macros that remember the
 * calling function, so that the counts can be shown by function.
 */
#ifndef BASE_COUNT_H
#define BASE_COUNT_H
#include <stdatomic.h>
#include <stdint.h>

enum count_what {
	COUNT_LOCKS,
	COUNT_CONTENDED,
	COUNT_SHARED,
	COUNT_ALLOCS,
	COUNT_SYSCALLS,
	COUNT_MESSAGES,
	COUNT_WHATS
};
/* Parts of the committing thread's CPU time: members of a batch, the store's part of them, the
 * commit (pages written and synced), answers to other threads, and sleep (falling asleep and waking
 * up). */
enum count_part {
	COUNT_PART_MEMBERS,
	COUNT_PART_STORE,
	COUNT_PART_COMMIT,
	COUNT_PART_ANSWERS,
	COUNT_PART_SLEEP,
	COUNT_PARTS
};

#ifdef COUNTS_ON
#include <liburing.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#define COUNT_SHARED_MS 100

/* For the calling thread. site: the function, a string that stays. */
void count_add(enum count_what what, const char *site);
/* The thread is about to write p, by an atomic operation or as a lock. */
void count_line(const volatile void *p, const char *site);
/* The thread is about to wait for a condition, and takes the lock again. */
void count_wait(const volatile void *lock, const char *site);
/* The CPU time of the thread since its last call belongs to part. */
void count_part(enum count_part part);
/* All threads' counts as JSON; malloc'd, the caller frees it. NULL: no memory. */
char *count_json(void);
/* The function that does the next lock or allocation. */
extern _Thread_local const char *count_site;

#define COUNT(what)	 count_add(what, __func__)
#define COUNT_LINE(p)	 count_line(p, __func__)
#define COUNT_PART(part) count_part(part)

#define pthread_mutex_lock(m)	 (count_site = __func__, pthread_mutex_lock(m))
#define pthread_mutex_trylock(m) (count_site = __func__, pthread_mutex_trylock(m))
#define pthread_rwlock_rdlock(m) (count_site = __func__, pthread_rwlock_rdlock(m))
#define pthread_rwlock_wrlock(m) (count_site = __func__, pthread_rwlock_wrlock(m))
#define pthread_cond_wait(c, m)	 (count_wait(m, __func__), pthread_cond_wait(c, m))
#define pthread_cond_timedwait(c, m, until)                                                        \
	(count_wait(m, __func__), pthread_cond_timedwait(c, m, until))
#define pthread_cond_signal(c)	  (COUNT(COUNT_MESSAGES), pthread_cond_signal(c))
#define pthread_cond_broadcast(c) (COUNT(COUNT_MESSAGES), pthread_cond_broadcast(c))
#ifndef __SANITIZE_ADDRESS__
#define malloc(n)	(count_site = __func__, malloc(n))
#define calloc(n, size) (count_site = __func__, calloc(n, size))
#define realloc(p, n)	(count_site = __func__, realloc(p, n))
#endif

#undef atomic_store
#undef atomic_store_explicit
#undef atomic_exchange
#undef atomic_exchange_explicit
#undef atomic_fetch_add
#undef atomic_fetch_add_explicit
#undef atomic_fetch_sub
#undef atomic_fetch_sub_explicit
#undef atomic_fetch_and
#undef atomic_fetch_or
#undef atomic_fetch_or_explicit
#undef atomic_compare_exchange_strong
#undef atomic_compare_exchange_weak
#define COUNT_SEQ				__ATOMIC_SEQ_CST
#define COUNT_DO(p, does)			(COUNT_LINE(p), (does))
#define atomic_store(p, v)			COUNT_DO(p, count_c11_store(p, v, COUNT_SEQ))
#define atomic_store_explicit(p, v, o)		COUNT_DO(p, count_c11_store(p, v, o))
#define atomic_exchange(p, v)			COUNT_DO(p, count_c11_exchange(p, v))
#define atomic_exchange_explicit(p, v, o)	COUNT_DO(p, count_c11_exchange(p, v))
#define atomic_fetch_add(p, v)			COUNT_DO(p, __atomic_fetch_add(p, v, COUNT_SEQ))
#define atomic_fetch_add_explicit(p, v, o)	COUNT_DO(p, __atomic_fetch_add(p, v, o))
#define atomic_fetch_sub(p, v)			COUNT_DO(p, __atomic_fetch_sub(p, v, COUNT_SEQ))
#define atomic_fetch_sub_explicit(p, v, o)	COUNT_DO(p, __atomic_fetch_sub(p, v, o))
#define atomic_fetch_and(p, v)			COUNT_DO(p, __atomic_fetch_and(p, v, COUNT_SEQ))
#define atomic_fetch_or(p, v)			COUNT_DO(p, __atomic_fetch_or(p, v, COUNT_SEQ))
#define atomic_fetch_or_explicit(p, v, o)	COUNT_DO(p, __atomic_fetch_or(p, v, o))
#define atomic_compare_exchange_strong(p, e, v) COUNT_DO(p, count_c11_exchange_if(p, e, v, 0))
#define atomic_compare_exchange_weak(p, e, v)	COUNT_DO(p, count_c11_exchange_if(p, e, v, 1))
/* As in gcc's stdatomic.h: for any type that can be assigned. */
#define count_c11_store(p, v, o)                                                                   \
	({                                                                                         \
		__auto_type cp = (p);                                                              \
		__typeof__((void)0, *cp) cv = (v);                                                 \
		__atomic_store(cp, &cv, o);                                                        \
	})
#define count_c11_exchange(p, v)                                                                   \
	({                                                                                         \
		__auto_type cp = (p);                                                              \
		__typeof__((void)0, *cp) cv = (v), co;                                             \
		__atomic_exchange(cp, &cv, &co, COUNT_SEQ);                                        \
		co;                                                                                \
	})
#define count_c11_exchange_if(p, e, v, weak)                                                       \
	({                                                                                         \
		__auto_type cp = (p);                                                              \
		__typeof__((void)0, *cp) cv = (v);                                                 \
		__atomic_compare_exchange(cp, e, &cv, weak, COUNT_SEQ, COUNT_SEQ);                 \
	})
#else
#define COUNT(what)	 ((void)0)
#define COUNT_LINE(p)	 ((void)0)
#define COUNT_PART(part) ((void)0)
#endif
#endif
