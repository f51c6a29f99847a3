/* SPDX-License-Identifier: Apache-2.0 */
/*
 * excl_world.h - for exclusive_test.c: a world of one file, two holders of layouts and two data
 * servers, and replacements of all functions that mds/file/exclusive.c calls outside of its file.
 * That file is compiled here with them in place of the real ones.
 */
#ifndef TESTS_UNIT_EXCL_WORLD_H
#define TESTS_UNIT_EXCL_WORLD_H
#include "base/log.h"
#include "mds/journal/event_journal.h"
#include "mds/file/exclusive.h"
#include "tests/unit/unit.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the planted faults: one is on at a time ---- */

enum fault {
	FAULT_NONE,
	TWO_HAVE_IT, /* freezes a file that another request has, or cuts */
	NOT_REVOKED, /* a fenced client keeps its layout in the table */
	ANSWERED_TWICE,
	TIMEOUT_IS_CONFIRMED, /* takes a server that did not confirm in time for confirmed */
	NOT_CONFIRMED,	      /* waits for no server */
	NO_ORDERS,	      /* the epoch rises, and no server gets an order */
	COMMIT_FAILED,	      /* goes on after a fence whose commit failed */
	/* takes a client that keeps its layout at the deadline for one that returned it */
	LEFT_IS_BACK,
	RETURNED_IS_FENCED, /* the epoch rises although all layouts are back */
	BACK_IS_OVER,	    /* takes a write of a returned layout for complete */
	NOT_KEPT_AWAY,	    /* layouts are given while a request has the file */
	NEVER_LET_GO,
	NOT_SUSPECT, /* trusts the copies of a client that is fenced in the middle of a write */
	EPOCH_GOES_BACK,
	OWED_GOES_ON, /* takes the deadline of a server without a lease for its end */
	FAULTS
};
static enum fault fault;
#define EXCL_FAULT(what) (fault == (what))

/* ---- the world ---- */

#define HOLDERS 2 /* the first writes, the second reads */
#define SERVERS 2 /* one object of the file on each: two copies */
#define CALLERS 2
#define SLOTS	10
#define INO	7
#define WRITES	LAYOUTIOMODE4_RW
#define ANY	(LAYOUTIOMODE4_READ | LAYOUTIOMODE4_RW)

enum kind {
	K_TAKE_BACK,
	K_TAKE_BACK_UNHEARD, /* the client does not get the answer */
	K_FENCED,
	K_SETTLE,
	K_STALE,
	K_RIGHTS,
	K_SIZE,
	K_SIZE_OWN, /* by the client that writes, which keeps its layout */
	K_WRITES,
	K_LAYOUTS,
	K_ALL,
	KINDS
};
static const char *const kind_name[KINDS] = {"take back",
					     "take back, unheard",
					     "take back and fence",
					     "settle",
					     "stale",
					     "rights",
					     "size",
					     "its own size",
					     "writes",
					     "layouts",
					     "all"};

/* How the world begins. */
enum start {
	WRITER_AND_READER,
	READER_ONLY, /* no write since it was counted */
	OLD_BOOT,    /* the writer is of an earlier boot, and not known */
	GENERIC,     /* the second server has no lease */
	STARTS
};

struct store {
	uint32_t epoch, next_order;
	bool clean, stale[SERVERS],
		suspect; /* suspect: a writer was fenced in the middle of a write */
	struct {
		/* orders that are not done: their numbers, and the last one's epoch; first 0:
		 * none */
		uint32_t first, last, epoch;
		bool truncates;
	} todo[SERVERS];
};

struct server {
	uint32_t epoch; /* capabilities below it are denied */
	bool leased, generic;
};

struct holder {
	struct st_client *client;
	uint32_t mode; /* of the layout in the table; 0: none */
	bool has;      /* it has not returned its layout, and believes that it may use it */
	bool recalled;
	/* a bit for each epoch: capabilities that it got, and may still send */
	uint32_t caps, rw_caps;
};

enum stage { NOT_BEGUN, WAITS, CHANGES, HAS_IT, OVER };

struct caller {
	enum kind kind;
	enum stage stage;
	bool gone; /* its COMPOUND is gone */
	unsigned answers;
	int err;
	uint32_t began_epoch;
	bool began_clean;
	bool began_fenced; /* no capability was given since the last fence */
	bool stale;
	struct excl x;
	struct excl_layout_block hold;
	struct kv_op op;
};

struct order_wait {
	void (*done)(void *arg, int err); /* NULL: a free place */
	void *arg;
	bool of[SERVERS];
	uint32_t high;
};

struct slot {
	_Alignas(16) uint8_t bytes[sizeof(struct excl)];
};

/* What is copied begins with what is always used; the requests that the engine made come last. */
static struct world {
	struct st_file file;
	struct store store;
	struct server server[SERVERS];
	struct holder holder[HOLDERS];
	struct st_wait *wait[SLOTS];
	unsigned nwait;
	struct kv_op *commit[SLOTS];
	unsigned ncommit;
	struct order_wait order[SLOTS];
	struct order_wait told[SLOTS]; /* confirmations on their way to the loop */
	unsigned ntold;
	struct loop_msg *msg[SLOTS];
	unsigned nmsg;
	struct caller caller[CALLERS];
	bool locked, failed, late, evicted, restarted, lease_over;
	bool used[SLOTS];
	struct slot slot[SLOTS];
} world;
static struct st_client clients[HOLDERS];
static const struct file_env env = {.fe_recall_ms = 1, .fe_confirm_ms = 1};
static const char *wrong; /* what was violated */

static bool must(bool holds, const char *what)
{
	if (!holds && !wrong)
		wrong = what;
	return holds;
}

/* ---- functions that the real file calls ---- */

static void *m_malloc(size_t n)
{
	for (unsigned k = 0; k < SLOTS; k++) {
		if (world.used[k])
			continue;
		must(n <= sizeof(world.slot[k].bytes), "the size of a request");
		world.used[k] = true;
		return world.slot[k].bytes;
	}
	must(false, "too many requests at a time");
	abort();
}

static void m_free(void *p)
{
	for (unsigned k = 0; k < SLOTS; k++) {
		if (p != world.slot[k].bytes)
			continue;
		must(world.used[k], "freed twice");
		world.used[k] = false;
		memset(world.slot[k].bytes, 0, sizeof(world.slot[k].bytes));
		return;
	}
	must(!p, "freed what is not its own");
}

static void m_file_lock(struct st *st, uint64_t ino)
{
	(void)st;
	(void)ino;
	must(!world.locked, "locked twice");
	world.locked = true;
}

static void m_file_unlock(struct st *st, uint64_t ino)
{
	(void)st;
	(void)ino;
	must(world.locked, "unlocked twice");
	world.locked = false;
}

static struct st_file *m_file_get(struct st *st, uint64_t ino, bool make)
{
	(void)st;
	(void)ino;
	(void)make;
	must(world.locked, "looked at without its lock");
	return &world.file;
}

static void m_file_put(struct st *st, struct st_file *f)
{
	(void)st;
	(void)f;
	must(world.locked, "put without its lock");
}

static void m_file_watch(struct st_file *f)
{
	(void)f;
}

static bool m_watched(uint64_t ino)
{
	(void)ino;
	return true;
}

static bool in_way(const struct st_wait *x, const struct holder *h)
{
	return h->mode && h->client != x->w_except && (!x->w_rw_only || (h->mode & WRITES));
}

static unsigned count_left(const struct st_wait *x)
{
	unsigned n = 0;

	for (unsigned h = 0; h < HOLDERS; h++)
		n += in_way(x, &world.holder[h]);
	return n;
}

static void layouts_changed(void)
{
	static struct st_layout any;

	world.file.f_layouts = NULL;
	for (unsigned h = 0; h < HOLDERS; h++)
		if (world.holder[h].mode)
			world.file.f_layouts = &any;
}

static unsigned m_recall_file(struct st *st, uint64_t ino, struct st_client *except, bool rw_only,
			      struct loop *loop, uint32_t deadline_ms, struct st_wait *x)
{
	unsigned n;

	(void)st;
	(void)loop;
	(void)deadline_ms;
	x->w_ino = ino;
	x->w_except = except;
	x->w_rw_only = rw_only;
	n = count_left(x);
	for (unsigned h = 0; h < HOLDERS; h++)
		world.holder[h].recalled |= in_way(x, &world.holder[h]);
	if (n)
		world.wait[world.nwait++] = x;
	return n;
}

static void m_revoke_file(struct st *st, uint64_t ino, struct st_client *except, bool rw_only)
{
	struct st_wait x = {.w_except = except, .w_rw_only = rw_only};

	(void)st;
	(void)ino;
	for (unsigned h = 0; h < HOLDERS; h++)
		if (in_way(&x, &world.holder[h]))
			world.holder[h].mode = 0; /* the client does not know */
	layouts_changed();
}

static void m_submit(struct kv *kv, struct kv_op *op)
{
	(void)kv;
	world.commit[world.ncommit++] = op;
}

/* Nothing is lost. */
static int m_ask_lost(const struct file_env *fe, struct loop *loop, uint64_t ino,
		      uint16_t incarnation, const struct lo_map *map,
		      void (*then)(void *arg, uint64_t objects), void *arg)
{
	(void)fe;
	(void)loop;
	(void)ino;
	(void)incarnation;
	(void)map;
	then(arg, 0);
	return 0;
}

static int m_read_begin(struct kv *kv, struct kv_txn **t)
{
	(void)kv;
	*t = NULL;
	return 0;
}

static void m_read_end(struct kv_txn *t)
{
	(void)t;
}

static int m_get(struct ns *ns, struct kv_txn *t, uint64_t ino, struct ns_inode *i)
{
	(void)ns;
	(void)t;
	memset(i, 0, sizeof(*i));
	i->i_ino = ino;
	return 0;
}

static int m_map_decode(struct kv_slice s, struct lo_map *map)
{
	(void)s;
	memset(map, 0, sizeof(*map));
	map->lm_stripes = 1;
	map->lm_mirrors = SERVERS;
	map->lm_epoch = world.store.epoch;
	map->lm_clean = world.store.clean;
	for (unsigned s_ = 0; s_ < SERVERS; s_++) {
		map->lm_obj[s_].ob_ds = s_ + 1;
		map->lm_obj[s_].ob_state = world.store.stale[s_] ? LO_STALE : LO_IN_SYNC;
	}
	return 0;
}

/* Where another copy is left. */
static uint64_t m_map_make_stale(struct lo_map *map, uint64_t objects, uint64_t *last)
{
	uint64_t made = 0;

	(void)last;
	for (unsigned k = 0; k < SERVERS; k++) {
		bool other = map->lm_obj[1 - k].ob_state == LO_IN_SYNC;

		if (!(objects >> k & 1) || map->lm_obj[k].ob_state != LO_IN_SYNC || !other)
			continue;
		map->lm_obj[k].ob_state = LO_STALE;
		made |= 1u << k;
	}
	return made;
}

/* The request of the current transaction. */
static const struct excl *fencing(void)
{
	const struct kv_op *op = world.commit[0];

	for (unsigned k = 0; k < SLOTS; k++) {
		const struct excl *x = (const struct excl *)(const void *)world.slot[k].bytes;

		if (world.used[k] && op == &x->ex_op)
			return x;
	}
	for (unsigned k = 0; k < CALLERS; k++)
		if (op == &world.caller[k].op || op == &world.caller[k].x.ex_op)
			return &world.caller[k].x;
	return NULL;
}

/* True when a writer other than the request's keeps its layout, and is fenced now. */
static bool in_the_middle(const struct excl *x)
{
	struct st_wait wait = {.w_except = x->ex_except, .w_rw_only = true};

	return x->ex_left && count_left(&wait);
}

static int m_set_map(const struct file_env *fe, struct kv_txn *t, uint64_t ino,
		     const struct lo_map *map, struct ns_time now)
{
	const struct excl *x = fencing();

	(void)fe;
	(void)t;
	(void)ino;
	(void)now;
	must(map->lm_epoch >= world.store.epoch, "an epoch goes back");
	must(map->lm_epoch <= world.store.epoch + 1, "an epoch is left out");
	if (map->lm_epoch > world.store.epoch) {
		must(x->ex_how != EXCL_RECALL || x->ex_left,
		     "who returned its layout is fenced needlessly");
		world.store.suspect |= in_the_middle(x);
	}
	world.store.epoch = map->lm_epoch;
	world.store.clean = map->lm_clean;
	for (unsigned s = 0; s < SERVERS; s++)
		world.store.stale[s] = map->lm_obj[s].ob_state == LO_STALE;
	return 0;
}

static uint64_t m_mistrust(const struct file_env *fe, uint64_t ino, struct lo_map *map,
			   uint64_t stripes, uint64_t doubted)
{
	bool in_sync =
		map->lm_obj[0].ob_state == LO_IN_SYNC && map->lm_obj[1].ob_state == LO_IN_SYNC;

	(void)fe;
	(void)ino;
	(void)stripes;
	(void)doubted;
	if (in_sync)
		map->lm_obj[1].ob_state = LO_STALE;
	return in_sync ? 2 : 0;
}

static bool m_writers_left(const struct file_env *fe, uint64_t ino, const struct st_client *except)
{
	struct st_wait x = {.w_except = (struct st_client *)(uintptr_t)except, .w_rw_only = true};

	(void)fe;
	(void)ino;
	return count_left(&x);
}

static void put_order(unsigned s, uint32_t epoch, bool truncates)
{
	world.store.todo[s].last = ++world.store.next_order;
	if (!world.store.todo[s].first)
		world.store.todo[s].first = world.store.next_order;
	if (epoch > world.store.todo[s].epoch)
		world.store.todo[s].epoch = epoch;
	world.store.todo[s].truncates |= truncates;
}

static int m_order_fence(struct lo *lo, struct kv_txn *t, const struct ns_inode *i,
			 const struct lo_map *map, uint32_t epoch)
{
	(void)lo;
	(void)t;
	(void)i;
	(void)map;
	for (unsigned s = 0; s < SERVERS; s++)
		put_order(s, epoch, false);
	return 0;
}

static uint64_t m_held_objects(struct lo *lo, uint64_t ino, const struct lo_map *map)
{
	uint64_t held = 0;

	(void)lo;
	(void)ino;
	for (unsigned s = 0; s < SERVERS; s++)
		if (world.store.todo[s].first && map->lm_obj[s].ob_state != LO_STALE &&
		    (world.server[s].leased || world.store.todo[s].truncates))
			held |= 1u << s;
	return held;
}

/* No server is declared dead. */
static uint64_t m_map_dead(struct lo *lo, const struct lo_map *map)
{
	(void)lo;
	(void)map;
	return 0;
}

static uint64_t m_held(const struct file_env *fe, struct kv_txn *t, uint64_t ino)
{
	struct lo_map map;

	(void)t;
	m_map_decode((struct kv_slice){0}, &map);
	return m_held_objects(fe->fe_lo, ino, &map);
}

static bool m_generic(struct lo *lo, const struct lo_map *map)
{
	(void)lo;
	(void)map;
	return world.server[1].generic;
}

static bool m_fence_unheard(struct lo *lo, struct lo_map *map)
{
	(void)lo;
	(void)map;
	return false;
}

static void m_orders_kick(struct lo *lo)
{
	(void)lo;
}

static bool order_wait_over(const struct order_wait *o)
{
	for (unsigned s = 0; s < SERVERS; s++)
		if (o->of[s] && world.server[s].leased && world.store.todo[s].first &&
		    world.store.todo[s].first <= o->high)
			return false;
	return true;
}

static void m_orders_wait_used(struct lo *lo, uint64_t ino, const struct lo_map *map,
			       struct loop *loop, uint32_t ms, void (*done)(void *arg, int err),
			       void *arg)
{
	struct order_wait o = {.done = done, .arg = arg, .high = world.store.next_order};
	unsigned k = 0;

	(void)lo;
	(void)ino;
	(void)loop;
	(void)ms;
	for (unsigned s = 0; s < SERVERS; s++)
		o.of[s] = !map || !map->lm_stripes || map->lm_obj[s].ob_state != LO_STALE;
	while (world.order[k].done)
		k++;
	world.order[k] = o;
}

static void m_post(struct loop *l, struct loop_msg *m)
{
	(void)l;
	world.msg[world.nmsg++] = m;
}

static struct ns_time m_now(void)
{
	return (struct ns_time){0};
}

static void m_add(enum ev_kind kind, const char *subject, uint64_t ino, const char *fmt, ...)
{
	(void)kind;
	(void)subject;
	(void)ino;
	(void)fmt;
}

#define malloc		       m_malloc
#define free		       m_free
#define st_file_lock	       m_file_lock
#define st_file_unlock	       m_file_unlock
#define st_file_get	       m_file_get
#define st_file_put	       m_file_put
#define st_file_watch	       m_file_watch
#define st_watched	       m_watched
#define st_recall_file	       m_recall_file
#define st_revoke_file	       m_revoke_file
#define kv_submit	       m_submit
#define kv_read_begin	       m_read_begin
#define kv_read_end	       m_read_end
#define ns_get		       m_get
#define lo_map_decode	       m_map_decode
#define lo_map_make_stale      m_map_make_stale
#define lo_objects_with_orders m_held_objects
#define lo_generic	       m_generic
#define lo_map_dead	       m_map_dead
#define lo_fence_unconfirmed   m_fence_unheard
#define lo_order_fence	       m_order_fence
#define lo_orders_wake	       m_orders_kick
#define lo_orders_wait_used    m_orders_wait_used
#define loop_post	       m_post
#define journal_add	       m_add
#define file_set_map	       m_set_map
#define file_suspect	       m_mistrust
#define file_ask_lost	       m_ask_lost
#define file_writers_left      m_writers_left
#define file_held	       m_held
#define file_now	       m_now
#undef log_error
#undef log_warn
#define log_error(...) ((void)0)
#define log_warn(...)  ((void)0)
#include "mds/file/exclusive.c"
#undef malloc
#undef free
#endif
