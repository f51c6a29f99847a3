/* SPDX-License-Identifier: Apache-2.0 */
/*
 * system.c - what the product asks of the system (redirect.h): memory, clocks, threads, locks,
 * descriptors. And the log.
 */
#include "tests/sim/redirect.h"
#include "tests/sim/own.h"
#include "tests/sim/sched.h"
#include "base/log.h"
#include <linux/futex.h>
#include <stdarg.h>
#include <stddef.h>

/* ---- memory: each process has its own, and loses it with its end ---- */

struct mem {
	struct mem *m_next, **m_prev;
	size_t m_n;
	uint64_t m_pad;
};
_Static_assert(sizeof(struct mem) % 16 == 0, "alignment");
static struct mem *nobodys;

static void *take(struct sim_proc *p, size_t n, size_t align)
{
	size_t head = (sizeof(struct mem) + align - 1) / align * align;
	struct mem **list = p ? &p->p_mem : &nobodys;
	char *raw = NULL;
	struct mem *m;

	if (align <= 16)
		raw = malloc(head + n);
	else if (posix_memalign((void **)&raw, align, head + n))
		raw = NULL;
	if (!raw)
		abort();
	m = (struct mem *)(raw + head) - 1;
	m->m_n = n;
	m->m_pad = head;
	m->m_next = *list;
	m->m_prev = list;
	if (m->m_next)
		m->m_next->m_prev = &m->m_next;
	*list = m;
	return m + 1;
}

static void mem_free(struct mem *m)
{
	*m->m_prev = m->m_next;
	if (m->m_next)
		m->m_next->m_prev = m->m_prev;
	free((char *)(m + 1) - m->m_pad);
}

void sim_mem_drop(struct sim_proc *p)
{
	struct mem **list = p ? &p->p_mem : &nobodys;

	while (*list)
		mem_free(*list);
}

void *sim_malloc_for(struct sim_proc *p, size_t n)
{
	return memset(take(p, n, 16), 0, n);
}

void *sim_malloc(size_t n)
{
	return take(sim_self(), n, 16);
}

void *sim_calloc(size_t n, size_t m)
{
	return memset(take(sim_self(), n * m, 16), 0, n * m);
}

void *sim_aligned_alloc(size_t align, size_t n)
{
	return take(sim_self(), n, align < 16 ? 16 : align);
}

void *sim_realloc(void *p, size_t n)
{
	void *q = sim_malloc(n);

	if (p) {
		size_t was = ((struct mem *)p - 1)->m_n;

		memcpy(q, p, was < n ? was : n);
		sim_free(p);
	}
	return q;
}

void *sim_reallocarray(void *p, size_t n, size_t m)
{
	return sim_realloc(p, n * m);
}

char *sim_strdup(const char *s)
{
	size_t n = strlen(s) + 1;

	return memcpy(sim_malloc(n), s, n);
}

void sim_free(void *p)
{
	if (p)
		mem_free((struct mem *)p - 1);
}

/* ---- clocks ---- */

int sim_clock_gettime(clockid_t id, struct timespec *ts)
{
	struct sim_proc *p = sim_self();
	uint64_t t;

	(void)id;
	sim_point();
	t = p ? sim_boot(p->p_node) : sim_now;
	ts->tv_sec = (time_t)(t / 1000000000);
	ts->tv_nsec = (long)(t % 1000000000);
	/* Also after the clock was read. */
	sim_point();
	return 0;
}

int sim_usleep(useconds_t us)
{
	sim_sleep((uint64_t)us * 1000);
	return 0;
}

int sim_nanosleep(const struct timespec *t, struct timespec *left)
{
	(void)left;
	sim_sleep((uint64_t)t->tv_sec * 1000000000 + (uint64_t)t->tv_nsec);
	return 0;
}

ssize_t sim_getrandom(void *p, size_t n, unsigned flags)
{
	(void)flags;
	for (size_t at = 0; at < n; at += sizeof(uint64_t)) {
		uint64_t v = sim_rand();

		memcpy((char *)p + at, &v, n - at < sizeof(v) ? n - at : sizeof(v));
	}
	return (ssize_t)n;
}

int sim_gethostname(char *name, size_t n)
{
	snprintf(name, n, "%s", sim_self()->p_name);
	return 0;
}

/* ---- ends ---- */

void sim_exit(int status)
{
	sim_proc_kill(sim_self(), status);
	abort();
}

int sim_pause(void)
{
	sim_wait(NULL, UINT64_MAX);
	return -1;
}

int sim_sigmask(int how, const sigset_t *set, sigset_t *old)
{
	(void)how;
	(void)set;
	(void)old;
	return 0;
}

/* ---- locks ---- */

struct sim_mutex {
	struct co *sm_owner;
	struct waitq sm_wait;
};
_Static_assert(sizeof(struct sim_mutex) <= sizeof(pthread_mutex_t), "its memory");
struct sim_sem {
	uint64_t ss_n;
	struct waitq ss_wait;
};
_Static_assert(sizeof(struct sim_sem) <= sizeof(sem_t), "its memory");

int sim_mutex_init(pthread_mutex_t *m, const pthread_mutexattr_t *a)
{
	(void)a;
	memset(m, 0, sizeof(*m));
	return 0;
}

int sim_mutex_destroy(pthread_mutex_t *m)
{
	(void)m;
	return 0;
}

int sim_mutex_lock(pthread_mutex_t *pm)
{
	struct sim_mutex *m = (struct sim_mutex *)pm;

	if (!sim_running())
		return 0; /* the simulator's own: nobody else runs */
	sim_point();
	while (m->sm_owner)
		sim_wait(&m->sm_wait, UINT64_MAX);
	m->sm_owner = sim_running();
	return 0;
}

int sim_mutex_unlock(pthread_mutex_t *pm)
{
	struct sim_mutex *m = (struct sim_mutex *)pm;

	if (!sim_running())
		return 0;
	m->sm_owner = NULL;
	sim_wake_one(&m->sm_wait);
	sim_point();
	return 0;
}

int sim_cond_init(pthread_cond_t *c, const pthread_condattr_t *a)
{
	(void)a;
	memset(c, 0, sizeof(*c));
	return 0;
}

int sim_cond_destroy(pthread_cond_t *c)
{
	(void)c;
	return 0;
}

static int cond_wait(pthread_cond_t *c, pthread_mutex_t *m, uint64_t ns)
{
	bool woken;

	((struct sim_mutex *)m)->sm_owner = NULL;
	sim_wake_one(&((struct sim_mutex *)m)->sm_wait);
	woken = sim_wait((struct waitq *)c, ns);
	sim_mutex_lock(m);
	return woken ? 0 : ETIMEDOUT;
}

int sim_cond_wait(pthread_cond_t *c, pthread_mutex_t *m)
{
	return cond_wait(c, m, UINT64_MAX);
}

int sim_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *until)
{
	uint64_t t = (uint64_t)until->tv_sec * 1000000000 + (uint64_t)until->tv_nsec;
	uint64_t now = sim_boot(sim_self()->p_node);

	return now >= t ? ETIMEDOUT : cond_wait(c, m, t - now);
}

int sim_cond_signal(pthread_cond_t *c)
{
	sim_wake_one((struct waitq *)c);
	return 0;
}

int sim_sem_init(sem_t *s, int shared, unsigned n)
{
	(void)shared;
	memset(s, 0, sizeof(*s));
	((struct sim_sem *)s)->ss_n = n;
	return 0;
}

int sim_sem_post(sem_t *s)
{
	((struct sim_sem *)s)->ss_n++;
	sim_wake_one(&((struct sim_sem *)s)->ss_wait);
	return 0;
}

int sim_sem_wait(sem_t *s)
{
	struct sim_sem *ss = (struct sim_sem *)s;

	while (!ss->ss_n)
		sim_wait(&ss->ss_wait, UINT64_MAX);
	ss->ss_n--;
	return 0;
}

int sim_sem_destroy(sem_t *s)
{
	(void)s;
	return 0;
}

/* ---- threads ---- */

int sim_thread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg)
{
	(void)a;
	*t = (pthread_t)sim_spawn(sim_self(), fn, arg);
	return 0;
}

int sim_thread_detach(pthread_t t)
{
	(void)t;
	return 0;
}

int sim_thread_join(pthread_t t, void **out)
{
	struct co *c = (struct co *)t;

	while (c->co_state != CO_DONE)
		sim_wait(&c->co_ended, UINT64_MAX);
	if (out)
		*out = c->co_ret;
	return 0;
}

int sim_thread_setname(pthread_t t, const char *name)
{
	(void)t;
	(void)name;
	return 0;
}

static struct waitq futexes[SIM_NODES];

/* The committer's futex: one word for each process, and who waits looks again. */
long sim_syscall(long what, ...)
{
	const _Atomic uint32_t *word;
	struct waitq *q;
	va_list ap;
	int op;

	if (what != SYS_futex)
		abort();
	va_start(ap, what);
	word = va_arg(ap, const _Atomic uint32_t *);
	op = va_arg(ap, int) & FUTEX_CMD_MASK;
	va_end(ap);
	q = &futexes[sim_self()->p_node];
	if (op == FUTEX_WAKE)
		return sim_wake_one(q);
	if (*word)
		sim_wait(q, UINT64_MAX);
	return 0;
}

/* ---- descriptors ---- */

enum { FDS = 1024, FD0 = 1000 };
static struct sim_fd *fds[FDS];
static unsigned fd_next;

int sim_fd_new(struct sim_fd *f)
{
	for (unsigned i = 0; i < FDS; i++) {
		unsigned at = (fd_next + i) % FDS;

		if (!fds[at]) {
			fds[at] = f;
			fd_next = at + 1;
			return (int)at + FD0;
		}
	}
	abort();
}

static struct sim_fd *fd_of(int fd)
{
	return fd >= FD0 && fd < FD0 + FDS ? fds[fd - FD0] : NULL;
}

void sim_fd_free(int fd)
{
	if (fd_of(fd))
		fds[fd - FD0] = NULL;
}

void sim_fd_reset(void)
{
	memset(fds, 0, sizeof(fds));
	memset(futexes, 0, sizeof(futexes));
	fd_next = 0;
}

static bool event_ready(struct sim_fd *f)
{
	return f->f_count > 0;
}

int sim_eventfd(unsigned n, int flags)
{
	struct sim_fd *f = sim_alloc(sizeof(*f));

	(void)flags;
	f->f_ready = event_ready;
	f->f_count = n;
	return sim_fd_new(f);
}

ssize_t sim_write(int fd, const void *p, size_t n)
{
	struct sim_fd *f = fd_of(fd);

	if (!f || n != sizeof(uint64_t))
		abort();
	(void)p;
	f->f_count++;
	sim_wake(&f->f_wait);
	return (ssize_t)n;
}

int sim_close(int fd)
{
	sim_fd_free(fd);
	return 0;
}

/* A coroutine waits in one queue: that of the first descriptor. The others wake it by way of the
 * end of a short time. */
int sim_poll(struct pollfd *p, nfds_t n, int ms)
{
	uint64_t left = ms < 0 ? UINT64_MAX : SIM_MS((uint64_t)ms);
	uint64_t end = ms < 0 ? UINT64_MAX : sim_now + left;

	for (;;) {
		int got = 0;

		for (nfds_t i = 0; i < n; i++) {
			struct sim_fd *f = fd_of(p[i].fd);

			p[i].revents = 0;
			if (f && ((p[i].events & POLLOUT) || f->f_ready(f)))
				p[i].revents = p[i].events;
			got += p[i].revents != 0;
		}
		if (got || sim_now >= end)
			return got;
		left = end - sim_now;
		sim_wait(fd_of(p[0].fd) ? &fd_of(p[0].fd)->f_wait : NULL,
			 n > 1 && left > SIM_MS(200) ? SIM_MS(200) : left);
	}
}

/* ---- the log ---- */

_Thread_local uint64_t log_request;

void log_msg(enum log_level level, const char *fmt, ...)
{
	static const char *const names[] = {"ERROR", "WARN", "INFO", "DEBUG"};
	char text[512];
	va_list ap;

	if (!sim_verbose)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	sim_log("%s %s", names[level], text);
}

void log_fatal(const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	sim_fail("fatal", "%s", text);
	sim_exit(134);
}
