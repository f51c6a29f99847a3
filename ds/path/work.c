/* SPDX-License-Identifier: Apache-2.0 */
/*
 * work.c - the threads that run calls on exported folders, and the ids under which they act.
 *
 * Each thread has its own ids and capabilities: this file makes the system calls that change them
 * without the C library, which would change the ids of all threads. A thread holds a few
 * capabilities. While its file system user is not 0, the kernel takes the capabilities that
 * override permissions out of effect (capabilities(7), "Effect of user ID changes"); with user 0 it
 * puts them back. So a caller may do what a local user with its ids may, and root, if the export
 * does not squash it, what root may.
 */
#include "base/clock.h"
#include "base/log.h"
#include "ds/path/path_int.h"
#include <errno.h>
#include <linux/capability.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <sys/fsuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MOST_WAITING 16384u
#define IDLE_NS	     UINT64_C(1000000000)

#define BIT(cap) (UINT64_C(1) << (cap))
/* The capabilities that user ids switch on and off. CAP_MKNOD is not among those needed, because a
 * container may lack it; then no caller can make devices. */
#define CAPS_FS                                                                                    \
	(BIT(CAP_CHOWN) | BIT(CAP_DAC_OVERRIDE) | BIT(CAP_DAC_READ_SEARCH) | BIT(CAP_FOWNER) |     \
	 BIT(CAP_FSETID))
#define CAPS_NEEDED (CAPS_FS | BIT(CAP_SETUID) | BIT(CAP_SETGID))

/* On machines that once had 16-bit user ids, the 32-bit calls have numbers of their own. */
#ifdef SYS_setfsuid32
#define DO_SETFSUID  SYS_setfsuid32
#define DO_SETFSGID  SYS_setfsgid32
#define DO_SETGROUPS SYS_setgroups32
#else
#define DO_SETFSUID  SYS_setfsuid
#define DO_SETFSGID  SYS_setfsgid
#define DO_SETGROUPS SYS_setgroups
#endif

struct path_work {
	pthread_mutex_t pw_lock;
	pthread_cond_t pw_more;
	struct path_job *pw_head, **pw_tail;
	unsigned pw_waiting;
	unsigned pw_idle_threads;
	bool pw_waking; /* a thread was woken and has not looked yet */
	void (*pw_idle)(void *arg);
	void *pw_arg;
	sem_t pw_started;
	_Atomic int pw_err;
};

uint64_t path_capabilities(void)
{
	return CAPS_NEEDED | BIT(CAP_MKNOD);
}

/* ---- ids ---- */

static __thread struct path_ids acts_as = {.id_uid = UINT32_MAX}; /* not known at first */

static int work_caps_read(uint64_t *effective, uint64_t *permitted)
{
	struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct d[2];

	if (syscall(SYS_capget, &h, d))
		return -errno;
	*effective = d[0].effective | (uint64_t)d[1].effective << 32;
	*permitted = d[0].permitted | (uint64_t)d[1].permitted << 32;
	return 0;
}

static int caps_set(uint64_t caps)
{
	struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct d[2] = {
		{.effective = (uint32_t)caps, .permitted = (uint32_t)caps},
		{.effective = (uint32_t)(caps >> 32), .permitted = (uint32_t)(caps >> 32)},
	};

	return syscall(SYS_capset, &h, d) ? -errno : 0;
}

/* setfsuid and setfsgid always return the previous id, even on failure. Called with -1, which is no
 * valid id, they return the id in force. */
static int work_become(const struct path_ids *ids)
{
	if (syscall(DO_SETGROUPS, (size_t)ids->id_ngids, ids->id_gids))
		return -errno;
	syscall(DO_SETFSGID, ids->id_gid);
	syscall(DO_SETFSUID, ids->id_uid);
	return (uint32_t)syscall(DO_SETFSGID, -1) == ids->id_gid &&
			       (uint32_t)syscall(DO_SETFSUID, -1) == ids->id_uid
		       ? 0
		       : -EPERM;
}

int path_become(const struct path_ids *ids)
{
	static const struct path_ids server /* root without groups */,
		nobody = {.id_uid = EXP_NOBODY, .id_gid = EXP_NOBODY};
	const struct path_ids *to = ids ? ids : &server;
	int err;

	if (memcmp(to, &acts_as, sizeof(*to)) == 0)
		return 0;
	err = work_become(to);
	if (err)
		work_become(&nobody);
	acts_as = err ? nobody : *to;
	return err;
}

/* Drops capabilities that the thread does not need, and proves that a change of ids takes
 * permissions away. */
static int thread_ids(void)
{
	static const struct path_ids other = {.id_uid = EXP_NOBODY, .id_gid = EXP_NOBODY};
	uint64_t effective, permitted;
	int err = work_caps_read(&effective, &permitted);

	if (err || (permitted & CAPS_NEEDED) != CAPS_NEEDED)
		return err ? err : -EPERM;
	/* The thread needs its own umask, 0: clients have applied theirs. */
	if (unshare(CLONE_FS))
		return -errno;
	umask(0);
	err = caps_set(permitted & path_capabilities());
	/* Go by way of user 0: the kernel acts on changes from it and to it. */
	if (!err)
		err = path_become(NULL);
	if (!err)
		err = path_become(&other);
	if (!err)
		err = work_caps_read(&effective, &permitted);
	if (!err && effective & CAPS_FS)
		err = -EPERM;
	if (!err)
		err = path_become(NULL);
	if (!err)
		err = work_caps_read(&effective, &permitted);
	return !err && (effective & CAPS_NEEDED) != CAPS_NEEDED ? -EPERM : err;
}

/* ---- threads ---- */

/*
 * Wakes one thread at a time. That thread wakes the next one when it has taken a job and there are
 * more. A needless wake-up, because other threads came back first, costs more than a call that
 * finds all its data in the page cache. With the lock held. True: the caller signals after it has
 * released the lock.
 */
static bool wake_wanted(struct path_work *w)
{
	if (!w->pw_head || !w->pw_idle_threads || w->pw_waking)
		return false;
	return w->pw_waking = true;
}

/* With the lock held. False: the time ran out. */
static bool sleep_a_while(struct path_work *w)
{
	bool in_time = true;

	w->pw_idle_threads++;
	if (path_files_gauge() == 0)
		pthread_cond_wait(&w->pw_more, &w->pw_lock);
	else
		in_time = clock_cond_wait(&w->pw_more, &w->pw_lock, clock_mono_ns() + IDLE_NS);
	w->pw_idle_threads--;
	w->pw_waking = false;
	return in_time;
}

/* The next job. While there is none, calls pw_idle from time to time. */
static struct path_job *work_take(struct path_work *w)
{
	struct path_job *j;
	bool wake;

	pthread_mutex_lock(&w->pw_lock);
	while (!w->pw_head) {
		if (!sleep_a_while(w) && !w->pw_head) {
			pthread_mutex_unlock(&w->pw_lock);
			w->pw_idle(w->pw_arg);
			pthread_mutex_lock(&w->pw_lock);
		}
	}
	j = w->pw_head;
	w->pw_head = j->pj_next;
	if (!w->pw_head)
		w->pw_tail = &w->pw_head;
	w->pw_waiting--;
	wake = wake_wanted(w);
	pthread_mutex_unlock(&w->pw_lock);
	if (wake)
		pthread_cond_signal(&w->pw_more);
	return j;
}

static void *work_run(void *arg)
{
	struct path_work *w = arg;
	int err = thread_ids();

	if (err)
		atomic_store(&w->pw_err, err);
	sem_post(&w->pw_started);
	while (!err) {
		struct path_job *j = work_take(w);

		j->pj_run(j);
	}
	return NULL;
}

static int work_start_threads(struct path_work *w, unsigned threads)
{
	unsigned started = 0;
	sigset_t all, old;
	int err = 0;

	/* Keep signals for the threads that wait for them. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	while (started < threads && !err) {
		pthread_t t;

		err = -pthread_create(&t, NULL, work_run, w);
		if (err)
			break;
		pthread_setname_np(t, "weft-path");
		pthread_detach(t);
		started++;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	while (started--)
		while (sem_wait(&w->pw_started))
			;
	return err ? err : atomic_load(&w->pw_err);
}

int path_work_open(struct path_work **out, unsigned threads, void (*idle)(void *arg), void *arg,
		   char *err, size_t errlen)
{
	struct path_work *w = calloc(1, sizeof(*w));
	int rc;

	if (!w) {
		snprintf(err, errlen, "ds.export_threads: %s", strerror(ENOMEM));
		return -ENOMEM;
	}
	w->pw_tail = &w->pw_head;
	w->pw_idle = idle;
	w->pw_arg = arg;
	pthread_mutex_init(&w->pw_lock, NULL);
	clock_cond_init(&w->pw_more);
	sem_init(&w->pw_started, 0, 0);
	rc = work_start_threads(w, threads);
	/* Some threads may run: w stays, and the process ends. */
	if (rc == -EPERM)
		snprintf(err, errlen,
			 "ds.exports: serving files of other users needs privileges: start weft-ds "
			 "as root (ds.user drops the rest), "
			 "or with CAP_SETUID, CAP_SETGID, CAP_CHOWN, CAP_DAC_OVERRIDE, "
			 "CAP_DAC_READ_SEARCH, CAP_FOWNER and CAP_FSETID");
	else if (rc)
		snprintf(err, errlen, "ds.export_threads: %s", strerror(-rc));
	else
		*out = w;
	return rc;
}

bool path_work_submit(struct path_work *w, struct path_job *j)
{
	bool room, wake;

	j->pj_next = NULL;
	pthread_mutex_lock(&w->pw_lock);
	room = w->pw_waiting < MOST_WAITING;
	if (room) {
		*w->pw_tail = j;
		w->pw_tail = &j->pj_next;
		w->pw_waiting++;
	}
	wake = wake_wanted(w);
	pthread_mutex_unlock(&w->pw_lock);
	if (wake)
		pthread_cond_signal(&w->pw_more);
	return room;
}

struct wait {
	struct path_job w_job;
	void (*w_fn)(void *arg);
	void *w_arg;
	sem_t w_done;
};

static void wait_run(struct path_job *j)
{
	struct wait *w = (struct wait *)((char *)j - offsetof(struct wait, w_job));

	w->w_fn(w->w_arg);
	sem_post(&w->w_done);
}

void path_work_wait(struct path_work *w, void (*fn)(void *arg), void *arg)
{
	struct wait k = {.w_job.pj_run = wait_run, .w_fn = fn, .w_arg = arg};

	sem_init(&k.w_done, 0, 0);
	while (!path_work_submit(w, &k.w_job))
		usleep(1000);
	while (sem_wait(&k.w_done))
		;
	sem_destroy(&k.w_done);
}
