/* SPDX-License-Identifier: Apache-2.0 */
/*
 * redirect.h - the compiler includes it before the product's files that the simulator runs: what
 * they ask of the system goes to the simulator (sched.c).
 */
#ifndef TESTS_SIM_REDIRECT_H
#define TESTS_SIM_REDIRECT_H
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int sim_clock_gettime(clockid_t id, struct timespec *ts);
int sim_poll(struct pollfd *p, nfds_t n, int ms);
int sim_usleep(useconds_t us);
int sim_nanosleep(const struct timespec *t, struct timespec *left);
ssize_t sim_getrandom(void *p, size_t n, unsigned flags);
int sim_eventfd(unsigned n, int flags);
ssize_t sim_write(int fd, const void *p, size_t n);
int sim_close(int fd);
void sim_exit(int status) __attribute__((noreturn));
int sim_pause(void);
int sim_signalfd(int fd, const sigset_t *set, int flags);
long sim_syscall(long what, ...);
int sim_sigtimedwait(const sigset_t *set, siginfo_t *info, const struct timespec *t);
int sim_gethostname(char *name, size_t n);
int sim_access(const char *path, int mode);

void *sim_malloc(size_t n);
void *sim_calloc(size_t n, size_t m);
void *sim_realloc(void *p, size_t n);
void *sim_reallocarray(void *p, size_t n, size_t m);
void *sim_aligned_alloc(size_t align, size_t n);
char *sim_strdup(const char *s);
void sim_free(void *p);

int sim_mutex_init(pthread_mutex_t *m, const pthread_mutexattr_t *a);
int sim_mutex_destroy(pthread_mutex_t *m);
int sim_mutex_lock(pthread_mutex_t *m);
int sim_mutex_unlock(pthread_mutex_t *m);
int sim_cond_init(pthread_cond_t *c, const pthread_condattr_t *a);
int sim_cond_destroy(pthread_cond_t *c);
int sim_cond_wait(pthread_cond_t *c, pthread_mutex_t *m);
int sim_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *until);
int sim_cond_signal(pthread_cond_t *c);
int sim_thread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg);
int sim_thread_detach(pthread_t t);
int sim_thread_join(pthread_t t, void **out);
int sim_thread_setname(pthread_t t, const char *name);
int sim_sigmask(int how, const sigset_t *set, sigset_t *old);
int sim_sem_init(sem_t *s, int shared, unsigned n);
int sim_sem_post(sem_t *s);
int sim_sem_wait(sem_t *s);
int sim_sem_destroy(sem_t *s);

#define clock_gettime sim_clock_gettime
#define poll	      sim_poll
#define usleep	      sim_usleep
#define nanosleep     sim_nanosleep
#define getrandom     sim_getrandom
#define eventfd	      sim_eventfd
#define signalfd      sim_signalfd
#define write	      sim_write
#define close	      sim_close
#define _exit	      sim_exit
#define exit	      sim_exit
#define pause	      sim_pause
#define syscall	      sim_syscall
#define sigtimedwait  sim_sigtimedwait
#define gethostname   sim_gethostname
#define access	      sim_access
#define malloc	      sim_malloc
#define calloc	      sim_calloc
#define realloc	      sim_realloc
#define reallocarray  sim_reallocarray
#define aligned_alloc sim_aligned_alloc
#undef strdup
#define strdup		       sim_strdup
#define free		       sim_free
#define pthread_mutex_init     sim_mutex_init
#define pthread_mutex_destroy  sim_mutex_destroy
#define pthread_mutex_lock     sim_mutex_lock
#define pthread_mutex_unlock   sim_mutex_unlock
#define pthread_cond_init      sim_cond_init
#define pthread_cond_destroy   sim_cond_destroy
#define pthread_cond_wait      sim_cond_wait
#define pthread_cond_timedwait sim_cond_timedwait
#define pthread_cond_signal    sim_cond_signal
#define pthread_create	       sim_thread_create
#define pthread_detach	       sim_thread_detach
#define pthread_join	       sim_thread_join
#define pthread_setname_np     sim_thread_setname
#define pthread_sigmask	       sim_sigmask
#define sem_init	       sim_sem_init
#define sem_post	       sim_sem_post
#define sem_wait	       sim_sem_wait
#define sem_destroy	       sim_sem_destroy
#endif
