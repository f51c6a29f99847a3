/* SPDX-License-Identifier: Apache-2.0 */
/*
 * count.c - see count.h. In a build without counts this file is empty.
 *
 * This file defines functions of the C library, of pthreads and of liburing. They are in the
 * program itself, so all callers in the process use them before the libraries' own. Each function
 * counts and calls the library's function. This file uses the compiler's atomic built-ins, since
 * the functions of stdatomic.h count. AddressSanitizer has an allocator of its own: with it,
 * allocations are not counted.
 */
#include "base/count.h"
#ifdef COUNTS_ON
#include <dlfcn.h>
#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define LINES (1u << 16)
#define SITES 1024u /* of a thread; a power of two */

struct site {
	const char *si_name;
	uint64_t si_n[COUNT_WHATS];
};

/* Only its thread writes it. It stays when the thread ends. */
struct counts {
	uint64_t c_n[COUNT_WHATS], c_part_ns[COUNT_PARTS];
	struct site c_site[SITES];
	uint32_t c_id;
	uint64_t c_cpu_ns;
	struct counts *c_next;
};

/* The last thread that wrote a line, and when two different threads wrote it. Direct-mapped: a line
 * forgets another line that falls on it. */
struct line {
	uint64_t ln_addr, ln_shared_ms, ln_ms;
	uint32_t ln_writer;
};

static struct counts *all;
static uint32_t ids;
static struct line lines[LINES];
static _Thread_local struct counts *mine;
_Thread_local const char *count_site;

static uint64_t ns_of(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static uint64_t count_load(const uint64_t *v)
{
	return __atomic_load_n(v, __ATOMIC_RELAXED);
}

static struct counts *counts_mine(void)
{
	struct counts *c = mine;

	if (c)
		return c;
	c = mmap(NULL, sizeof(*c), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (c == MAP_FAILED)
		abort();
	mine = c;
	c->c_id = __atomic_fetch_add(&ids, 1, __ATOMIC_RELAXED) + 1;
	c->c_next = __atomic_load_n(&all, __ATOMIC_ACQUIRE);
	while (!__atomic_compare_exchange_n(&all, &c->c_next, c, true, __ATOMIC_RELEASE,
					    __ATOMIC_RELAXED))
		;
	return c;
}

static void count_own_add(uint64_t *v, uint64_t n)
{
	__atomic_store_n(v, *v + n, __ATOMIC_RELAXED);
}

/* Returns NULL if the table is full. */
static struct site *site_of(struct counts *c, const char *name)
{
	uint32_t h = (uint32_t)(((uintptr_t)name >> 2) * 2654435761u);

	for (uint32_t i = 0; i < 16; i++) {
		struct site *s = &c->c_site[(h + i) & (SITES - 1)];

		if (!s->si_name)
			__atomic_store_n(&s->si_name, name, __ATOMIC_RELEASE);
		if (s->si_name == name)
			return s;
	}
	return NULL;
}

void count_add(enum count_what what, const char *site)
{
	struct counts *c = counts_mine();
	struct site *s = site_of(c, site ? site : "library");

	count_own_add(&c->c_n[what], 1);
	if (s)
		count_own_add(&s->si_n[what], 1);
}

void count_line(const volatile void *p, const char *site)
{
	uint64_t addr = (uint64_t)(uintptr_t)p >> 6, now = ns_of(CLOCK_MONOTONIC_COARSE) / 1000000;
	struct line *l = &lines[(addr * 0x9e3779b97f4a7c15ull) >> 48];
	uint32_t me = counts_mine()->c_id;
	bool other = __atomic_load_n(&l->ln_writer, __ATOMIC_RELAXED) != me, shared;

	if (count_load(&l->ln_addr) != addr) {
		__atomic_store_n(&l->ln_addr, addr, __ATOMIC_RELAXED);
		__atomic_store_n(&l->ln_shared_ms, 0, __ATOMIC_RELAXED);
		other = false;
	}
	if (other && now - count_load(&l->ln_ms) < COUNT_SHARED_MS)
		__atomic_store_n(&l->ln_shared_ms, now, __ATOMIC_RELAXED);
	shared = count_load(&l->ln_shared_ms) &&
		 now - count_load(&l->ln_shared_ms) < COUNT_SHARED_MS;
	__atomic_store_n(&l->ln_writer, me, __ATOMIC_RELAXED);
	__atomic_store_n(&l->ln_ms, now, __ATOMIC_RELAXED);
	if (shared)
		count_add(COUNT_SHARED, site);
}

void count_wait(const volatile void *lock, const char *site)
{
	count_add(COUNT_SYSCALLS, site);
	count_add(COUNT_LOCKS, site);
	count_line(lock, site);
}

void count_part(enum count_part part)
{
	struct counts *c = counts_mine();
	uint64_t now = ns_of(CLOCK_THREAD_CPUTIME_ID);

	count_own_add(&c->c_part_ns[part], now - c->c_cpu_ns);
	c->c_cpu_ns = now;
}

/* ---- reports ---- */

static const char *const whats[COUNT_WHATS] = {"locks",	      "contended",    "shared_lines",
					       "allocations", "system_calls", "messages"};
static const char *const parts[COUNT_PARTS] = {"members", "store", "commit", "answers", "sleep"};

static uint64_t site_sum(const char *name, unsigned what)
{
	uint64_t n = 0;

	for (struct counts *c = __atomic_load_n(&all, __ATOMIC_ACQUIRE); c; c = c->c_next)
		for (unsigned i = 0; i < SITES; i++)
			if (c->c_site[i].si_name == name)
				n += count_load(&c->c_site[i].si_n[what]);
	return n;
}

/* True if no thread before of has the name: each name is reported with the first thread that has
 * it. */
static bool site_first(const struct counts *of, const char *name)
{
	for (struct counts *c = __atomic_load_n(&all, __ATOMIC_ACQUIRE); c != of; c = c->c_next)
		for (unsigned i = 0; i < SITES; i++)
			if (c->c_site[i].si_name == name)
				return false;
	return true;
}

static void put_sites(FILE *o)
{
	const char *comma = "";

	for (struct counts *c = __atomic_load_n(&all, __ATOMIC_ACQUIRE); c; c = c->c_next)
		for (unsigned i = 0; i < SITES; i++) {
			const char *name = __atomic_load_n(&c->c_site[i].si_name, __ATOMIC_ACQUIRE);

			if (!name || !site_first(c, name))
				continue;
			fprintf(o, "%s\n  {\"site\": \"%s\"", comma, name);
			for (unsigned k = 0; k < COUNT_WHATS; k++)
				fprintf(o, ", \"%s\": %llu", whats[k],
					(unsigned long long)site_sum(name, k));
			fprintf(o, "}");
			comma = ",";
		}
}

char *count_json(void)
{
	uint64_t n[COUNT_WHATS] = {0}, ns[COUNT_PARTS] = {0};
	char *text = NULL;
	size_t len;
	FILE *o = open_memstream(&text, &len);

	if (!o)
		return NULL;
	for (struct counts *c = __atomic_load_n(&all, __ATOMIC_ACQUIRE); c; c = c->c_next) {
		for (unsigned k = 0; k < COUNT_WHATS; k++)
			n[k] += count_load(&c->c_n[k]);
		for (unsigned k = 0; k < COUNT_PARTS; k++)
			ns[k] += count_load(&c->c_part_ns[k]);
	}
	fprintf(o, "{\"counts\": {");
	for (unsigned k = 0; k < COUNT_WHATS; k++)
		fprintf(o, "%s\"%s\": %llu", k ? ", " : "", whats[k], (unsigned long long)n[k]);
	fprintf(o, "},\n \"committer_ns\": {");
	for (unsigned k = 0; k < COUNT_PARTS; k++)
		fprintf(o, "%s\"%s\": %llu", k ? ", " : "", parts[k], (unsigned long long)ns[k]);
	fprintf(o, "},\n \"sites\": [");
	put_sites(o);
	fprintf(o, "]}\n");
	if (fclose(o)) {
		free(text);
		return NULL;
	}
	return text;
}

/* ---- functions in front of the libraries' own ---- */

/* Weak: a test program may have its own. */
#define FRONT __attribute__((weak))
#define REAL(name)                                                                                 \
	static __typeof__(name) *real;                                                             \
	if (!real)                                                                                 \
	real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)
/* Defines RET NAME(ARGS), which is a system call. */
#define SYSCALL(ret, name, args, pass)                                                             \
	FRONT ret name args                                                                        \
	{                                                                                          \
		REAL(name);                                                                        \
		count_add(COUNT_SYSCALLS, #name);                                                  \
		return real pass;                                                                  \
	}

static const char *site_take(void)
{
	const char *site = count_site;

	count_site = NULL;
	return site;
}

/* Defines a lock. It tries the lock first, so that a held lock shows. */
#define LOCK(name, try, type)                                                                      \
	FRONT int(name)(type * m)                                                                  \
	{                                                                                          \
		static __typeof__(try) *attempt;                                                   \
		const char *site = site_take();                                                    \
		int err;                                                                           \
		REAL(name);                                                                        \
		if (!attempt)                                                                      \
			attempt = (__typeof__(try) *)dlsym(RTLD_NEXT, #try);                       \
		count_add(COUNT_LOCKS, site);                                                      \
		count_line(m, site);                                                               \
		err = attempt(m);                                                                  \
		if (err != EBUSY)                                                                  \
			return err;                                                                \
		count_add(COUNT_CONTENDED, site);                                                  \
		count_add(COUNT_SYSCALLS, #name);                                                  \
		return real(m);                                                                    \
	}
LOCK(pthread_mutex_lock, pthread_mutex_trylock, pthread_mutex_t)
LOCK(pthread_rwlock_rdlock, pthread_rwlock_tryrdlock, pthread_rwlock_t)
LOCK(pthread_rwlock_wrlock, pthread_rwlock_trywrlock, pthread_rwlock_t)

FRONT int(pthread_mutex_trylock)(pthread_mutex_t *m)
{
	const char *site = site_take();
	REAL(pthread_mutex_trylock);
	int err = real(m);

	if (!err) {
		count_add(COUNT_LOCKS, site);
		count_line(m, site);
	}
	return err;
}

SYSCALL(ssize_t, read, (int fd, void *p, size_t n), (fd, p, n))
SYSCALL(ssize_t, write, (int fd, const void *p, size_t n), (fd, p, n))
SYSCALL(ssize_t, readv, (int fd, const struct iovec *v, int n), (fd, v, n))
SYSCALL(ssize_t, writev, (int fd, const struct iovec *v, int n), (fd, v, n))
SYSCALL(ssize_t, pread, (int fd, void *p, size_t n, off_t at), (fd, p, n, at))
SYSCALL(ssize_t, pwrite, (int fd, const void *p, size_t n, off_t at), (fd, p, n, at))
SYSCALL(ssize_t, preadv, (int fd, const struct iovec *v, int n, off_t at), (fd, v, n, at))
SYSCALL(ssize_t, pwritev, (int fd, const struct iovec *v, int n, off_t at), (fd, v, n, at))
SYSCALL(ssize_t, pwritev2, (int fd, const struct iovec *v, int n, off_t at, int flags),
	(fd, v, n, at, flags))
SYSCALL(int, fsync, (int fd), (fd))
SYSCALL(int, fdatasync, (int fd), (fd))
SYSCALL(int, msync, (void *p, size_t n, int flags), (p, n, flags))
SYSCALL(ssize_t, send, (int fd, const void *p, size_t n, int flags), (fd, p, n, flags))
SYSCALL(ssize_t, recv, (int fd, void *p, size_t n, int flags), (fd, p, n, flags))
SYSCALL(ssize_t, sendmsg, (int fd, const struct msghdr *m, int flags), (fd, m, flags))
SYSCALL(ssize_t, recvmsg, (int fd, struct msghdr *m, int flags), (fd, m, flags))
SYSCALL(int, poll, (struct pollfd * p, nfds_t n, int ms), (p, n, ms))
SYSCALL(int, epoll_wait, (int fd, struct epoll_event *e, int n, int ms), (fd, e, n, ms))
SYSCALL(int, close, (int fd), (fd))
SYSCALL(int, munmap, (void *p, size_t n), (p, n))
SYSCALL(int, madvise, (void *p, size_t n, int advice), (p, n, advice))

FRONT long syscall(long number, ...)
{
	long a[6];
	va_list ap;
	REAL(syscall);

	va_start(ap, number);
	for (unsigned i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	count_add(COUNT_SYSCALLS, number == SYS_futex ? "futex" : "syscall");
	if (number == SYS_futex && ((int)a[1] & 127) == 1) /* FUTEX_WAKE */
		count_add(COUNT_MESSAGES, "futex");
	return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* Enters the kernel only if there is something to submit. */
FRONT int io_uring_submit(struct io_uring *ring)
{
	REAL(io_uring_submit);

	if (io_uring_sq_ready(ring))
		count_add(COUNT_SYSCALLS, "io_uring_submit");
	return real(ring);
}
SYSCALL(int, io_uring_submit_and_wait, (struct io_uring * ring, unsigned n), (ring, n))
SYSCALL(int, io_uring_submit_and_wait_timeout,
	(struct io_uring * ring, struct io_uring_cqe **cqe, unsigned n,
	 struct __kernel_timespec *ts, sigset_t *set),
	(ring, cqe, n, ts, set))
SYSCALL(int, io_uring_submit_and_get_events, (struct io_uring * ring), (ring))

#ifndef __SANITIZE_ADDRESS__
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

FRONT void *(malloc)(size_t n)
{
	count_add(COUNT_ALLOCS, site_take());
	return __libc_malloc(n);
}

FRONT void *(calloc)(size_t n, size_t size)
{
	count_add(COUNT_ALLOCS, site_take());
	return __libc_calloc(n, size);
}

FRONT void *(realloc)(void *p, size_t n)
{
	count_add(COUNT_ALLOCS, site_take());
	return __libc_realloc(p, n);
}

FRONT void *aligned_alloc(size_t align, size_t n)
{
	count_add(COUNT_ALLOCS, "aligned_alloc");
	return __libc_memalign(align, n);
}
#endif
#endif
