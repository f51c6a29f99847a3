/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ns_stamp.c - the times that the store gives go one way.
 *
 * Requirement: no ctime is older than one that was given before, though the store is opened on
 * another machine, whose clock is behind, or the clock of this one was set back meanwhile.
 *
 * A row says up to when times may have been given. A mutation whose ctime is later puts the row, in
 * its own transaction, STAMP_AHEAD_NS past that time: so the row is put once a second at most. The
 * clock of a store that was opened begins where the row ends. While the store is open, its clock
 * goes on from the newest time that it gave. As long as the machine's clock is behind, the store's
 * goes half as fast: times still differ, and the machine's catches up.
 *
 * Times that a client sets do not count, and a ctime counts up to the store's clock: nobody can set
 * the clock forward.
 */
#include "mds/namespace/keys.h"
#include "base/clock.h"
#include "base/log.h"
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#define SECOND_NS      INT64_C(1000000000)
#define STAMP_AHEAD_NS SECOND_NS
#define STAMP_TELL_NS  (2 * SECOND_NS) /* a restart alone makes less than this */

/* Two threads read the machine's clock, and the later one may be the first to say so. */
#define STAMP_RACE_NS (SECOND_NS / 1000)

/* The clock of the store that was opened last: a process serves one. */
static _Atomic int64_t given_ns;  /* CLOCK_REALTIME: the newest time that was given */
static _Atomic bool stamp_behind; /* the machine's clock is behind given_ns */
static pthread_mutex_t stamp_lock = PTHREAD_MUTEX_INITIALIZER; /* to be behind, and no more */
static uint64_t stepped_boot; /* stamp_behind: clock_boot_ns() when given_ns last moved */

static _Atomic int64_t opened_until; /* what the row of the store said when it was opened */

static int64_t stamp_real_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (int64_t)ts.tv_sec * SECOND_NS + ts.tv_nsec;
}

/* Under stamp_lock. */
static void stamp_fall_behind(int64_t behind)
{
	stepped_boot = clock_boot_ns();
	atomic_store(&stamp_behind, true);
	if (behind > STAMP_TELL_NS)
		log_warn("the clock is %" PRId64 ".%" PRId64 " s behind times that this store has "
			 "given: times go on from those, half as fast, until the clock is there",
			 behind / SECOND_NS, behind % SECOND_NS / (SECOND_NS / 10));
}

/* Returns the newest time that was given, this one included. */
static int64_t stamp_raise(int64_t ns)
{
	int64_t given = atomic_load(&given_ns);

	while (ns > given && !atomic_compare_exchange_weak(&given_ns, &given, ns))
		;
	return ns > given ? ns : given;
}

static int64_t stamp_behind_ns(void)
{
	int64_t real, given, ns;
	uint64_t boot;

	pthread_mutex_lock(&stamp_lock);
	real = stamp_real_ns();
	given = atomic_load(&given_ns);
	ns = given;
	if (real >= given) {
		atomic_store(&stamp_behind, false);
		ns = real;
	} else if (!atomic_load(&stamp_behind)) {
		stamp_fall_behind(given - real);
	} else {
		boot = clock_boot_ns();
		ns = given + (int64_t)((boot - stepped_boot) / 2);
		stepped_boot = boot;
	}
	ns = stamp_raise(ns);
	pthread_mutex_unlock(&stamp_lock);
	return ns;
}

/* Without a lock, which all mutations would share, where the machine's clock is right. */
static int64_t stamp_now_ns(void)
{
	int64_t real, given;

	if (!atomic_load(&stamp_behind)) {
		real = stamp_real_ns();
		given = stamp_raise(real);
		if (given - real < STAMP_RACE_NS)
			return given;
	}
	return stamp_behind_ns();
}

struct ns_time ns_now(void)
{
	int64_t ns = stamp_now_ns();

	return (struct ns_time){ns / SECOND_NS, (uint32_t)(ns % SECOND_NS)};
}

static const uint8_t stamp_id[1];

int ns_stamp_decode(struct kv_slice val, int64_t *ns)
{
	const struct ns_stamp_rec *r = val.s_data;

	/* The version first: a later one may have another length. */
	if (!val.s_len)
		return -EIO;
	if (r->sm_version != NS_VERSION)
		return r->sm_version > NS_VERSION ? -EPROTONOSUPPORT : -EIO;
	if (val.s_len != sizeof(*r))
		return -EIO;
	*ns = (int64_t)le64toh(r->sm_until);
	return *ns < 0 ? -EIO : 0;
}

/* *ns is 0 where the store has none. */
static int stamp_get(struct kv_txn *t, int64_t *ns)
{
	struct kv_slice val;
	int err = ns_row_get(t, NS_T_STAMP, stamp_id, sizeof(stamp_id), &val);

	*ns = 0;
	if (err)
		return err == -ENOENT ? 0 : err;
	return ns_stamp_decode(val, ns);
}

/* This costs a read of a hot row for each inode with a later ctime than the store had when it was
 * opened. A remembered row would rely on a put that may be aborted. */
int ns_stamp_put(struct kv_txn *t, const struct ns_time *ctime)
{
	struct ns_stamp_rec r = {.sm_version = NS_VERSION};
	int64_t at, now = stamp_now_ns(), until;
	int err;

	at = ctime->t_sec <= now / SECOND_NS ? ctime->t_sec * SECOND_NS + ctime->t_nsec : now;
	at = at < now ? at : now;
	if (at <= atomic_load(&opened_until))
		return 0;
	err = stamp_get(t, &until);
	if (err || at <= until)
		return err;
	r.sm_until = htole64((uint64_t)(at + STAMP_AHEAD_NS));
	return ns_row_put(t, NS_T_STAMP, stamp_id, sizeof(stamp_id), &r, sizeof(r));
}

int ns_stamp_open(struct kv_txn *t)
{
	int64_t until, real;
	int err = stamp_get(t, &until);

	if (err)
		return err;
	atomic_store(&opened_until, until);
	pthread_mutex_lock(&stamp_lock);
	atomic_store(&given_ns, until);
	atomic_store(&stamp_behind, false);
	real = stamp_real_ns();
	if (real < until)
		stamp_fall_behind(until - real);
	pthread_mutex_unlock(&stamp_lock);
	return 0;
}
