/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rebuild.c - sessions: BEGIN, END and ABORT of a rebuild, and changes of an object meanwhile
 * (rebuild.h).
 *
 * BEGIN and the last step of END run on the orders worker. A session belongs to its object
 * (ob_session, under ob_lock), is in the store's list, and holds a reference to the object, which
 * therefore stays in memory during its rebuild.
 */
#include "base/clock.h"
#include "base/log.h"
#include "ds/store/rebuild_int.h"
#include <errno.h>
#include <inttypes.h>
#include <unistd.h>

/* Beyond this number, a new session ends the one with the oldest step, which the metadata server
 * may have forgotten. */
#define SESSIONS_MAX 256u

bool ds_obj_rebuilding(const struct ds_obj *o)
{
	return atomic_load(&o->ob_rebuilding);
}

bool ds_obj_writable(struct ds_obj *o)
{
	bool yes = !ds_obj_rebuilding(o);

	if (yes)
		return true;
	pthread_mutex_lock(&o->ob_lock);
	yes = o->ob_session || !ds_obj_rebuilding(o);
	pthread_mutex_unlock(&o->ob_lock);
	return yes;
}

unsigned ds_store_sessions(struct ds_store *s)
{
	return atomic_load(&s->s_nsessions);
}

/* ---- range locks for a worker ---- */

static void range_granted(struct ds_range *r)
{
	struct ds_change *c =
		(struct ds_change *)((char *)r - offsetof(struct ds_change, dc_range));

	sem_post(&c->dc_sem);
}

void ds_change_lock(struct ds_change *c, struct ds_obj *o, uint64_t from, uint64_t to,
		    enum ds_lock how)
{
	memset(c, 0, sizeof(*c));
	c->dc_obj = o;
	c->dc_range.rg_first = from / DS_PAGE;
	c->dc_range.rg_last = to == EXTENT_END ? UINT64_MAX
			      : to > from      ? (to - 1) / DS_PAGE
					       : from / DS_PAGE;
	c->dc_range.rg_alone = how == DS_LOCK_ALONE;
	c->dc_range.rg_direct = how == DS_LOCK_DIRECT;
	c->dc_range.rg_granted = range_granted;
	sem_init(&c->dc_sem, 0, 0);
	if (ds_range_lock(o, &c->dc_range, NULL))
		return;
	while (sem_wait(&c->dc_sem))
		;
}

void ds_change_end(struct ds_change *c)
{
	if (!c->dc_obj)
		return;
	ds_range_unlock(c->dc_obj, &c->dc_range);
	sem_destroy(&c->dc_sem);
	c->dc_obj = NULL;
}

/* ---- notes ---- */

/* With ob_lock held. What lies below the cursor needs no note. */
static int rebuild_note(struct ds_session *ss, uint64_t from, uint64_t to, uint64_t least)
{
	int err = extents_add(&ss->ss_notes, from > ss->ss_cursor ? from : ss->ss_cursor, to);

	if (!err && least > ss->ss_least)
		ss->ss_least = least;
	return err;
}

/* -ENOLINK: there is no session. */
static int note_obj(struct ds_obj *o, uint64_t from, uint64_t to, uint64_t least)
{
	int err;

	pthread_mutex_lock(&o->ob_lock);
	/* If END came in between, there is nothing to note. */
	if (!ds_obj_rebuilding(o))
		err = 0;
	else
		err = o->ob_session ? rebuild_note(o->ob_session, from, to, least) : -ENOLINK;
	pthread_mutex_unlock(&o->ob_lock);
	return err;
}

/* The caller checks the flag after its ds_write_begin. So BEGIN's drain waits for every write that
 * did not see the flag. */
int ds_obj_note(struct ds_obj *o, uint64_t off, uint32_t len)
{
	int err = ds_obj_rebuilding(o) ? note_obj(o, off, off + len, off + len) : 0;

	ds_watch_note(o, off, off + len);
	if (!err)
		return 0;
	metric_add(ds_m_put_off, 1);
	/* No room for a note ahead of the pull. A client that waited for room might wait for hours.
	 * So fail the write: the client reports the error, and the MDS makes the object stale. */
	return err == -ENOBUFS ? -EIO : -EAGAIN;
}

void ds_obj_note_failed(struct ds_obj *o, int err)
{
	if (!ds_obj_rebuilding(o))
		return;
	pthread_mutex_lock(&o->ob_lock);
	if (o->ob_session && !o->ob_session->ss_failed)
		o->ob_session->ss_failed = err;
	pthread_mutex_unlock(&o->ob_lock);
}

int ds_change_begin(struct ds_change *c, struct ds_obj *o, uint64_t from, uint64_t to,
		    uint64_t least)
{
	int err;

	c->dc_obj = NULL;
	ds_watch_note(o, from, to);
	if (!ds_obj_rebuilding(o))
		return 0;
	err = note_obj(o, from, to, least);
	if (err)
		return err;
	/* A change that moves the object's end locks up to EXTENT_END, where the pull sets the
	 * size. */
	ds_change_lock(c, o, from, least ? EXTENT_END : to, DS_LOCK_ALONE);
	return 0;
}

int ds_change_order(struct ds_change *c, struct ds_obj *o, const ctl_order *order, uint32_t rounds)
{
	uint64_t end = order->offset + order->size;
	int err = 0;

	c->dc_obj = NULL;
	if (order->type == CTL_TRUNCATE)
		err = ds_change_begin(c, o, order->size, EXTENT_END, 0);
	else if (order->type == CTL_EXTEND)
		err = ds_change_begin(c, o, order->size, order->size, order->size);
	else if (order->type == CTL_CLONE) /* the rest of the last block becomes zeros */
		err = ds_change_begin(c, o, order->offset, end + (rounds - end % rounds) % rounds,
				      end);
	/* Without a session, the change is older than the next session, which fetches
	 * everything. */
	return err == -ENOLINK ? 0 : err;
}

/* ---- sessions ---- */

static struct ds_session *session_new(struct ds_obj *o, uint64_t id, int fd)
{
	struct ds_session *ss = calloc(1, sizeof(*ss));

	if (!ss)
		return NULL;
	ss->ss_obj = o;
	ss->ss_id = id;
	ss->ss_fd = fd;
	ss->ss_refs = 1; /* the list's reference */
	ss->ss_stepped_ns = clock_mono_ns();
	return ss;
}

void ds_session_put(struct ds_session *ss)
{
	struct ds_store *s = ss->ss_obj->ob_store;
	bool last;

	pthread_mutex_lock(&s->s_sessions_lock);
	last = !--ss->ss_refs;
	pthread_mutex_unlock(&s->s_sessions_lock);
	if (!last)
		return;
	extents_free(&ss->ss_notes);
	close(ss->ss_fd);
	ds_obj_put(ss->ss_obj);
	free(ss);
}

/* With s_sessions_lock held. */
static struct ds_session *session_find(struct ds_store *s, const struct cap_object *key)
{
	struct ds_session *ss = s->s_sessions;

	while (ss && !ds_key_equal(&ss->ss_obj->ob_key, key))
		ss = ss->ss_next;
	return ss;
}

/* Takes ss out of the list; the caller gets the list's reference. False: it is not in the list any
 * more. With s_sessions_lock held. */
static bool session_unlist(struct ds_store *s, struct ds_session *ss)
{
	struct ds_session **p = &s->s_sessions;

	while (*p && *p != ss)
		p = &(*p)->ss_next;
	if (!*p)
		return false;
	*p = ss->ss_next;
	atomic_fetch_sub(&s->s_nsessions, 1);
	return true;
}

/* Ends a session that is in no list any more. Waits for a window under way, so that a later step
 * finds the object at rest. */
static void rebuild_session_end(struct ds_session *ss, bool rebuilt)
{
	struct ds_obj *o = ss->ss_obj;
	struct ds_change c;

	pthread_mutex_lock(&o->ob_lock);
	ss->ss_dead = true;
	if (o->ob_session == ss)
		o->ob_session = NULL;
	if (rebuilt)
		atomic_store(&o->ob_rebuilding, false);
	pthread_mutex_unlock(&o->ob_lock);
	ds_change_lock(&c, o, 0, EXTENT_END, DS_LOCK_ALONE);
	ds_change_end(&c);
	ds_session_put(ss);
}

/* Ends the object's session, unless its id is keep. */
static void session_drop(struct ds_store *s, const struct cap_object *key, uint64_t keep)
{
	struct ds_session *ss;

	if (!ds_store_sessions(s))
		return;
	pthread_mutex_lock(&s->s_sessions_lock);
	ss = session_find(s, key);
	if (ss && ss->ss_id == keep)
		ss = NULL;
	if (ss)
		session_unlist(s, ss);
	pthread_mutex_unlock(&s->s_sessions_lock);
	if (ss)
		rebuild_session_end(ss, false);
}

void ds_session_drop(struct ds_store *s, const struct cap_object *key)
{
	session_drop(s, key, 0);
}

/* If there are too many sessions, ends the one whose last step is the oldest. */
static void rebuild_make_room(struct ds_store *s)
{
	struct ds_session *ss, *oldest = NULL;

	pthread_mutex_lock(&s->s_sessions_lock);
	if (ds_store_sessions(s) >= SESSIONS_MAX) {
		for (ss = s->s_sessions; ss; ss = ss->ss_next)
			if (!oldest || ss->ss_stepped_ns < oldest->ss_stepped_ns)
				oldest = ss;
		session_unlist(s, oldest);
	}
	pthread_mutex_unlock(&s->s_sessions_lock);
	if (oldest)
		rebuild_session_end(oldest, false);
}

static void session_add(struct ds_store *s, struct ds_session *ss)
{
	rebuild_make_room(s);
	pthread_mutex_lock(&s->s_sessions_lock);
	ss->ss_next = s->s_sessions;
	s->s_sessions = ss;
	atomic_fetch_add(&s->s_nsessions, 1);
	pthread_mutex_unlock(&s->s_sessions_lock);
}

void ds_sessions_close(struct ds_store *s)
{
	while (s->s_sessions) {
		struct ds_session *ss = s->s_sessions;

		session_unlist(s, ss);
		rebuild_session_end(ss, false);
	}
}

struct ds_session *ds_session_get(struct ds_store *s, const ctl_rebuild_args *a)
{
	struct ds_session *ss;
	struct cap_object key;

	if (!ds_key_of(&a->object, &key))
		return NULL;
	pthread_mutex_lock(&s->s_sessions_lock);
	ss = session_find(s, &key);
	if (ss && ss->ss_id != a->session)
		ss = NULL;
	if (ss) {
		ss->ss_refs++;
		ss->ss_stepped_ns = clock_mono_ns();
	}
	pthread_mutex_unlock(&s->s_sessions_lock);
	return ss;
}

/* Ends the session, unless another thread has taken it out of the list. */
static void rebuild_session_over(struct ds_session *ss)
{
	struct ds_store *s = ss->ss_obj->ob_store;
	bool listed;

	pthread_mutex_lock(&s->s_sessions_lock);
	listed = session_unlist(s, ss);
	pthread_mutex_unlock(&s->s_sessions_lock);
	if (listed)
		rebuild_session_end(ss, false);
}

ctl_status ds_session_check(struct ds_session *ss)
{
	int failed;

	pthread_mutex_lock(&ss->ss_obj->ob_lock);
	failed = ss->ss_failed;
	pthread_mutex_unlock(&ss->ss_obj->ob_lock);
	if (!failed)
		return CTL_OK;
	log_error("store: object %016" PRIx64 ": its rebuild ends: a write to it failed: %s",
		  ss->ss_obj->ob_key.co_ino, strerror(-failed));
	rebuild_session_over(ss);
	return ds_ctl_status(failed) == CTL_NOSPC ? CTL_NOSPC : CTL_BAD_SESSION;
}

uint64_t ds_session_cursor(struct ds_session *ss)
{
	uint64_t at;

	pthread_mutex_lock(&ss->ss_obj->ob_lock);
	at = ss->ss_cursor;
	pthread_mutex_unlock(&ss->ss_obj->ob_lock);
	return at;
}

uint64_t ds_session_size(struct ds_session *ss)
{
	uint64_t size;

	pthread_mutex_lock(&ss->ss_obj->ob_lock);
	size = ss->ss_size;
	pthread_mutex_unlock(&ss->ss_obj->ob_lock);
	return size;
}

/* ---- BEGIN ---- */

/* Makes the flag durable, and the object's name with it. */
static int flag_put(struct ds_obj *o, int fd, bool flag)
{
	int err = ds_obj_meta_put(o, fd, o->ob_order, flag ? DS_META_REBUILDING : 0, o->ob_begun);

	if (!err && fsync(fd) < 0) {
		err = -errno;
		metric_add(ds_m_sync_failures, 1);
		ds_verifier_change(o->ob_store);
	}
	return err ? err : ds_obj_sync_dirs(o);
}

/* Starts the notes, and then waits for the changes that saw no session. */
static void session_start(struct ds_session *ss, uint32_t epoch)
{
	struct ds_obj *o = ss->ss_obj;

	session_add(o->ob_store, ss);
	pthread_mutex_lock(&o->ob_lock);
	o->ob_session = ss;
	atomic_store(&o->ob_rebuilding, true);
	/* The flag forbids as much: clients cannot read the object before its rebuild ends. */
	atomic_store(&o->ob_lost, false);
	pthread_mutex_unlock(&o->ob_lock);
	ds_obj_raise(o, epoch);
	ds_write_drain(o->ob_store);
}

/* Gives the reference to o to the session, or drops it. */
static int rebuild_begin(struct ds_obj *o, const ctl_rebuild_args *a)
{
	int fd = ds_obj_reopen(o), err;
	struct ds_session *ss = fd < 0 ? NULL : session_new(o, a->session, fd);

	if (!ss) {
		if (fd >= 0)
			close(fd);
		ds_obj_put(o);
		return fd < 0 ? fd : -ENOMEM;
	}
	session_drop(o->ob_store, &o->ob_key, a->session);
	/* A session's writes are not noted. So the watch ends, and the next TAKE of a restripe that
	 * reads this stale copy fails (CTL_BAD_SESSION). */
	ds_watch_drop(o->ob_store, &o->ob_key);
	session_start(ss, a->epoch);
	o->ob_begun = a->epoch;
	err = flag_put(o, fd, true);
	if (err) {
		log_error("store: object %016" PRIx64 ": cannot begin its rebuild: %s",
			  o->ob_key.co_ino, strerror(-err));
		ds_session_drop(o->ob_store, &o->ob_key);
	}
	return err;
}

static ctl_status rebuild_begun(struct ds_obj *o, ctl_rebuild_res *res)
{
	struct stat st;
	int err = ds_obj_stat(o, &st);

	res->size = err ? 0 : (uint64_t)st.st_size;
	return ds_ctl_status(err);
}

ctl_status ds_rebuild_begin(struct ds_store *s, const ctl_rebuild_args *a, ctl_rebuild_res *res)
{
	struct ds_session *ss;
	struct cap_object key;
	ctl_status st;
	struct ds_obj *o;
	int err;

	if (!ds_key_of(&a->object, &key) || !a->session || !a->epoch)
		return CTL_INVAL;
	ss = ds_session_get(s, a);
	if (ss) {
		st = rebuild_begun(ss->ss_obj, res);
		ds_session_put(ss);
		return st;
	}
	err = ds_obj_get_any(s, &key, DS_MAKE_NEW, NULL, &o);
	if (err)
		return err == -ESTALE ? CTL_NOENT : ds_ctl_status(err);
	/* Changes of the previous session may still be on their way to the source: its epoch must
	 * be fenced. */
	if (a->epoch < ds_obj_epoch(o) || a->epoch <= o->ob_begun) {
		ds_obj_put(o);
		return CTL_FENCED;
	}
	err = rebuild_begin(o, a);
	if (err)
		return ds_ctl_status(err);
	ss = ds_session_get(s, a);
	if (!ss)
		return CTL_BAD_SESSION;
	st = rebuild_begun(ss->ss_obj, res);
	ds_session_put(ss);
	return st;
}

/* ---- the end ---- */

ctl_status ds_rebuild_abort(struct ds_store *s, const ctl_rebuild_args *a)
{
	struct ds_session *ss = ds_session_get(s, a);
	struct cap_object key;

	if (!ds_key_of(&a->object, &key))
		return CTL_INVAL;
	if (ss) {
		ds_session_put(ss);
		ds_session_drop(s, &key);
	}
	return CTL_OK;
}

ctl_status ds_rebuild_sync(struct ds_store *s, const ctl_rebuild_args *a)
{
	struct ds_session *ss = ds_session_get(s, a);
	ctl_status st;

	if (!ss)
		return CTL_BAD_SESSION;
	if (ds_session_cursor(ss) != EXTENT_END) {
		ds_session_put(ss);
		return CTL_INVAL;
	}
	/* Changes that were noted ahead of the pull may still be under way. */
	ds_write_drain(s);
	st = ds_session_check(ss);
	if (st == CTL_OK && fsync(ss->ss_fd) < 0) {
		int err = -errno;

		st = ds_ctl_status(err);
		log_error("store: object %016" PRIx64
			  ": its rebuild starts over: cannot sync it: %s",
			  ss->ss_obj->ob_key.co_ino, strerror(-err));
		metric_add(ds_m_sync_failures, 1);
		ds_verifier_change(s);
		rebuild_session_over(ss);
	}
	ds_session_put(ss);
	return st;
}

ctl_status ds_rebuild_end(struct ds_store *s, const ctl_rebuild_args *a)
{
	struct ds_session *ss = ds_session_get(s, a);
	struct ds_obj *o;
	bool listed;
	int err;

	if (!ss)
		return CTL_BAD_SESSION;
	o = ss->ss_obj;
	pthread_mutex_lock(&s->s_sessions_lock);
	listed = session_unlist(s, ss);
	pthread_mutex_unlock(&s->s_sessions_lock);
	if (!listed) {
		ds_session_put(ss);
		return CTL_BAD_SESSION;
	}
	err = flag_put(o, ss->ss_fd, false);
	/* After an error it is unknown whether the disk has the flag: keep it in memory. */
	rebuild_session_end(ss, !err);
	if (err)
		log_error("store: object %016" PRIx64 ": cannot end its rebuild: %s",
			  o->ob_key.co_ino, strerror(-err));
	ds_session_put(ss);
	return ds_ctl_status(err);
}
