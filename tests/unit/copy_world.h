/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy_world.h - for copy_model_test.c: a file of few blocks, the data servers of its copies, and
 * clients that write it while a job copies it. Each event names the function of the tree that it
 * stands for. The notes of the data servers are those of base/extents.c. What becomes of the
 * copies in the file's map is decided by mds/layout/layout_map.c.
 *
 * A block has the number of the write that it is from. A write goes to each server that its layout
 * names: it is sent, let in (where it is noted), in the page cache, and on the disk. It is
 * acknowledged when it is on the disk of each copy that counts.
 */
#ifndef TESTS_UNIT_COPY_WORLD_H
#define TESTS_UNIT_COPY_WORLD_H
#include "ds/store/rebuild.h"
#include "mds/layout/lo.h"
#include "tests/unit/unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum server_id { S, T, S2, SERVERS }; /* the source, the target, another source */
#define BLOCKS_MAX 3
#define WRITES_MAX 3
#define CLIENTS	   2
/* what a block has that is of no write of this file */
#define EMPTY	  14 /* a new object's */
#define OLD	  15 /* a stale object's */
#define BIT(n)	  ((uint8_t)(1u << (n)))
#define OLD_EPOCH 1 /* of what was under way before the object became stale */

/* ---- what is tried ---- */

enum notes {
	AT_TARGET, /* ds/store/rebuild.c: clients write the target meanwhile */
	AT_SOURCE, /* ds/store/watch.c: clients do not know the target before the end */
	AT_MDS	   /* mds/dataserver/nfs3ds_copy.c: clients write through the metadata server */
};
enum place {
	IN_PLACE, /* the target is a stale object under its own name */
	NEW,	  /* the target is a new object: repair elsewhere, one more mirror */
	REPLACES  /* a new object takes the source's place: a move, other stripes */
};
struct setup {
	const char *name;
	enum notes notes;
	enum place place;
	bool second;	  /* another copy is in sync */
	bool cuts;	  /* the first write sets a size */
	bool through_mds; /* clients write through the metadata server */
	/* more: writes in the long run */
	uint8_t clients, writes, more, deaths, freezes, disk_errors, mds_crashes, crashes[SERVERS];
	uint8_t cancels; /* how often the job is cancelled, and asked for again */
};

enum fault {
	FAULT_NONE,
	/* notes at the target, or in the metadata server */
	NO_FREEZE,	  /* the job begins while writes are under way */
	NO_NEW_FENCE,	  /* a new session begins without a new fence */
	NO_DRAIN,	  /* BEGIN does not wait for what the target has let in */
	NOTES_IGNORED,	  /* the pull writes over noted bytes */
	NOTED_LATE,	  /* a change is noted after it is in the file */
	NOT_LOCKED,	  /* a client writes a window between the look at the notes and the pull */
	FORGOTTEN_EARLY,  /* notes go before the window is written */
	SESSION_OUTLIVES, /* a session goes on after a crash that took its notes */
	END_NOT_DURABLE,  /* END does not wait for the disk */
	END_EARLY,	  /* END does not wait for noted changes that are under way */
	FAILURE_KEPT,	  /* a noted change failed, and END does not mind */
	T2_BLIND,	  /* in sync, whatever became of the object meanwhile */
	ACK_FIRST,	  /* a write that missed a copy is acknowledged before that is known */
	STALE_SOURCE,	  /* a copy that lacks a write is pulled from */
	/* notes at the source */
	WATCH_LATE,	   /* the copy begins before the watch */
	WATCH_NO_DRAIN,	   /* BEGIN does not wait for what the source has let in */
	TAKE_NO_DRAIN,	   /* TAKE reports changes that are not over */
	NO_LAST_FREEZE,	   /* the map changes while clients write */
	NO_LAST_TAKE,	   /* what was noted last is not copied */
	SOURCE_NOT_LOOKED, /* a source that became stale is believed */
	WATCH_OUTLIVES,	   /* a watch goes on after a crash that took its notes */
	FILL_NOT_DURABLE,  /* FILL answers before it is on the disk */
	RESUMED,	   /* a restarted job goes on with the watch, and what was taken is lost */
	FILL_OVERTAKES,	   /* an older FILL is written after a newer one */
	NOT_KEPT,	   /* no COMMIT before the source goes */
	TARGET_NOT_FENCED, /* in place: an old write reaches the target after it was filled */
	CHANGE_NOT_NOTED,  /* orders are not noted */
	CANCEL_UNSEEN,	   /* the map changes to objects whose deletion was ordered */
	WAITS_THAWED, /* a job that waits for a server thaws the file, and goes on after that */
	/* notes in the metadata server */
	VERIFIER_IGNORED,  /* the target restarted, and nothing begins again */
	LAYOUTS_MEANWHILE, /* clients write the target, and no note is made of it */
	LATE_WINDOW,	   /* a window of an earlier session is written after the next fence */
	/* what an engine cannot do */
	CLIENTS_CANNOT, /* notes at the target, and clients cannot write it: other stripes */
	SOURCE_CANNOT,	/* notes at the source, and the source makes none: an NFSv3 server */
	SOURCE_CHANGES, /* notes at the source, and another source in the middle */
	FAULTS
};
static enum fault fault;
static const struct setup *setup;
static unsigned blocks;

/* ---- the world ---- */

enum status { NONE, SENT, LET_IN, CACHED, STABLE, FAILED, FENCED, LOST };

struct server {
	uint8_t cache[BLOCKS_MAX], disk[BLOCKS_MAX];
	uint8_t epoch, up;
};
struct change {
	uint8_t at[SERVERS]; /* enum status */
	uint8_t begun, acked, epoch, names, excused, before, block;
};
enum phase {
	P_IDLE,
	P_FREEZE,
	P_FROZEN,
	P_BEGIN,
	P_COPY,
	P_T2,
	P_KEPT,
	P_LAST, /* notes at the source: copies what was taken under the freeze */
	P_COMMIT,
	P_MOVE, /* in sync, and the source has to go */
	P_DONE
};
struct world {
	struct server server[SERVERS];
	struct change write[WRITES_MAX];
	/* sessions of the target, watches of sources */
	uint8_t session[SERVERS], note[SERVERS];
	/* row: the session is that of the row of repairs */
	uint8_t cursor, flag, row, locked, skip, restarted, note_failed;
	uint8_t fetched, fetched_block, fetched_value;			/* at the target */
	uint8_t ghost, ghost_block, ghost_value, ghost_epoch;		/* an older one */
	uint8_t old_write;						/* to the stale object */
	uint8_t state[SERVERS], epoch, phase, frozen, list, round, src; /* the map; the job */
	uint8_t old_boot, lost, dead, contended;
	uint8_t layout[CLIENTS], named[CLIENTS]; /* the epoch, or 0 */
	uint8_t crashes[SERVERS], mds_crashes, deaths, freezes, disk_errors;
	uint8_t cancels, cancelled; /* cancelled: the row is gone, and the job may not know */
};
static struct world w;
static const char *wrong;

static bool must(bool ok, const char *what)
{
	if (!ok && !wrong)
		wrong = what;
	return ok;
}

/* ---- the real parts ---- */

/* base/extents.c, with a block as a byte. */
static struct extents notes_of(uint8_t mask)
{
	struct extents ns = {0};

	for (unsigned b = 0; b < blocks; b++)
		if (mask >> b & 1)
			extents_add(&ns, b, b + 1);
	return ns;
}

static uint8_t notes_mask(struct extents *ns)
{
	struct extent gap;
	uint8_t mask = 0;

	for (unsigned b = 0; b < blocks; b++)
		mask |= extents_gap(ns, b, b + 1, &gap) ? 0 : BIT(b);
	extents_free(ns);
	return mask;
}

static uint8_t notes_add(uint8_t mask, uint64_t from, uint64_t to)
{
	struct extents ns = notes_of(mask);

	extents_add(&ns, from, to);
	return notes_mask(&ns);
}

static uint8_t notes_forget(uint8_t mask, uint64_t to)
{
	struct extents ns = notes_of(mask);

	extents_forget(&ns, to);
	return notes_mask(&ns);
}

/* mds/layout/layout_map.c: one stripe, a mirror on each server. */
static struct lo_map map = {.lm_stripes = 1, .lm_mirrors = SERVERS};

static struct lo_map *map_in(void)
{
	for (unsigned s = 0; s < SERVERS; s++)
		map.lm_obj[s] = (struct lo_object){.ob_ds = s + 1, .ob_state = w.state[s]};
	return &map;
}

static void map_out(void)
{
	for (unsigned s = 0; s < SERVERS; s++)
		w.state[s] = map.lm_obj[s].ob_state;
}

static bool counts(unsigned s)
{
	return w.state[s] == LO_IN_SYNC || w.state[s] == LO_REBUILDING;
}

/* Layouts that name a stale copy come back; a write waits for that copy no more. */
static void stale_now(uint64_t which)
{
	map_out();
	for (unsigned k = 0; k < setup->writes; k++)
		if (w.write[k].begun && !w.write[k].acked)
			w.write[k].excused |= (uint8_t)which;
	for (unsigned c = 0; c < CLIENTS; c++)
		if (w.named[c] & which)
			w.layout[c] = w.named[c] = 0;
}

/* A copy missed a write, or failed (mds/file/mirror_state.c). */
static uint64_t make_stale(unsigned s)
{
	uint64_t done = lo_map_make_stale(map_in(), BIT(s), NULL);

	stale_now(done);
	return done;
}

/* A writer is lost: one copy of those in sync is believed (excl_fence). */
static void suspect(void)
{
	uint64_t alive = 0;

	for (unsigned s = 0; s < SERVERS; s++)
		alive |= w.server[s].up ? BIT(s) : 0;
	stale_now(lo_map_suspect(map_in(), 1, alive));
	w.lost = 0;
}

/* ---- what has to hold ---- */

static bool covers(const struct change *c, unsigned b)
{
	return c == &w.write[0] && setup->cuts ? b >= 1 : c->block == b;
}

/* No write that was acknowledged is missing under what a block has. */
static bool fine(uint8_t value, unsigned b)
{
	if (value == EMPTY || value == OLD)
		return false;
	for (unsigned k = 0; k < setup->writes; k++) {
		const struct change *c = &w.write[k];

		if (c->acked && covers(c, b) && value != k + 1 &&
		    (!value || (c->before >> (value - 1) & 1)))
			return false;
	}
	return true;
}

static bool quiet(unsigned b)
{
	for (unsigned k = 0; k < setup->writes; k++)
		if (w.write[k].begun && !w.write[k].acked && covers(&w.write[k], b) &&
		    !(w.dead && k % setup->clients == 1))
			return false;
	return true;
}

static void check_world(void)
{
	for (unsigned s = 0; s < SERVERS; s++)
		for (unsigned b = 0; b < blocks && w.state[s] == LO_IN_SYNC; b++) {
			must(fine(w.server[s].cache[b], b), "a copy in sync lacks a write");
			must(fine(w.server[s].disk[b], b),
			     "a copy in sync lacks a write on its disk");
		}
	for (unsigned b = 0; b < blocks; b++)
		must(w.state[S] != LO_IN_SYNC || w.state[T] != LO_IN_SYNC || w.lost ||
			     w.contended || !quiet(b) ||
			     w.server[S].cache[b] == w.server[T].cache[b],
		     "copies in sync differ at rest");
}

/* ---- data servers ---- */

static uint8_t *at(unsigned k, unsigned s)
{
	return &w.write[k].at[s];
}

/* Whether a change that was let in is still under way (ds_write_drain). */
static bool drained(unsigned s)
{
	for (unsigned k = 0; k < setup->writes; k++)
		if (*at(k, s) == LET_IN)
			return false;
	return s != T || !w.old_write;
}

/* ds_obj_note, ds_change_order, nfs3ds_copy_note: before the file is touched. */
static void note(unsigned s, uint64_t from, uint64_t to)
{
	if (s != T && setup->notes == AT_SOURCE && w.session[s] && fault != SOURCE_CANNOT)
		w.note[s] = notes_add(w.note[s], from, to);
	if (s != T || !w.session[T] || setup->notes == AT_SOURCE || fault == LAYOUTS_MEANWHILE)
		return;
	w.note[T] = notes_add(w.note[T], from > w.cursor ? from : w.cursor, to);
}

/* open_bracket, ds_obj_writable, ds_obj_note (ds/nfs3_io.c); write_send
 * (mds/dataserver/ds_reg_data.c) */
static bool let_in(unsigned k, unsigned s)
{
	struct change *c = &w.write[k];

	if (c->at[s] != SENT || !w.server[s].up || (setup->cuts && !k))
		return false;
	if (c->epoch < w.server[s].epoch) {
		c->at[s] = FENCED;
		return true;
	}
	if (s == T && setup->notes == AT_TARGET && w.flag && !w.session[T])
		return false; /* NFS3ERR_JUKEBOX */
	if (s == T && setup->notes == AT_MDS && w.locked && fault != LAYOUTS_MEANWHILE)
		return false; /* waits for the window */
	if (fault != NOTED_LATE)
		note(s, c->block, c->block + 1);
	c->at[s] = LET_IN;
	return true;
}

static bool is_written(unsigned k, unsigned s)
{
	struct change *c = &w.write[k];

	if (c->at[s] != LET_IN)
		return false;
	if (s == T && setup->notes == AT_TARGET && w.locked && w.cursor == c->block &&
	    fault != NOT_LOCKED)
		return false; /* ds_range_lock */
	w.server[s].cache[c->block] = (uint8_t)(k + 1);
	c->at[s] = CACHED;
	return true;
}

/* The disk of the target does not take it. What was noted is not there. */
static bool disk_fails(unsigned k, unsigned s)
{
	if (s != T || *at(k, s) != LET_IN || w.disk_errors >= setup->disk_errors)
		return false;
	w.disk_errors++;
	w.note_failed = w.session[T];
	*at(k, s) = FAILED;
	return true;
}

static void flush(unsigned s)
{
	memcpy(w.server[s].disk, w.server[s].cache, BLOCKS_MAX);
	for (unsigned k = 0; k < setup->writes; k++)
		if (*at(k, s) == CACHED)
			*at(k, s) = STABLE;
}

/* COMMIT of one write; another verifier than the write's has it written again. */
static bool is_committed(unsigned k, unsigned s)
{
	struct change *c = &w.write[k];

	if (!w.server[s].up || (c->at[s] != CACHED && c->at[s] != LOST))
		return false;
	if (c->at[s] == LOST) {
		c->at[s] = SENT;
		return true;
	}
	flush(s);
	if (fault == NOTED_LATE)
		note(s, c->block, c->block + 1);
	return true;
}

/* A connection fails, and the client is not patient. */
static bool fails(unsigned k, unsigned s)
{
	if (*at(k, s) != SENT || w.server[s].up || (setup->cuts && !k))
		return false;
	*at(k, s) = FAILED;
	return true;
}

/* lo_order_pending, lo_objects_with_orders */
static bool order_waits(unsigned s)
{
	return setup->cuts && w.write[0].at[s] == SENT;
}

/* lo_order_run, ds_store_orders: an order is durable, and done before the server serves. */
static bool order_runs(unsigned s)
{
	struct change *c = &w.write[0];

	if (!order_waits(s) || !w.server[s].up || !drained(s))
		return false;
	if (s == T && setup->notes != AT_SOURCE && w.locked)
		return false;
	if (c->epoch > w.server[s].epoch)
		w.server[s].epoch = c->epoch;
	if (fault != CHANGE_NOT_NOTED)
		note(s, 1, EXTENT_END);
	if (s == T && setup->notes == AT_MDS) /* nfs3ds_copy_end */
		w.session[T] = w.note[T] = 0;
	for (unsigned b = 1; b < blocks; b++)
		w.server[s].cache[b] = w.server[s].disk[b] = 1;
	c->at[s] = STABLE;
	return true;
}

static void session_ends(unsigned s)
{
	if (s != T) {
		w.note[s] = 0;
		w.session[s] = w.session[s] && fault == WATCH_OUTLIVES;
		return;
	}
	w.fetched = 0;
	if (setup->notes == AT_MDS) {
		w.restarted = 1; /* the write verifier */
		w.locked = 0;
		return;
	}
	w.ghost = w.locked = w.note[T] = 0;
	w.session[T] = w.session[T] && fault == SESSION_OUTLIVES;
}

static bool server_crashes(unsigned s)
{
	if (!w.server[s].up || w.crashes[s] >= setup->crashes[s])
		return false;
	w.crashes[s]++;
	w.server[s].up = 0;
	memcpy(w.server[s].cache, w.server[s].disk, BLOCKS_MAX);
	for (unsigned k = 0; k < setup->writes; k++) {
		if (*at(k, s) == LET_IN)
			*at(k, s) = SENT;
		if (*at(k, s) == CACHED)
			*at(k, s) = setup->through_mds ? LOST : SENT;
	}
	if (s == T)
		w.old_write = 0;
	session_ends(s);
	return true;
}

/* It runs its orders before it serves. */
static bool server_restarts(unsigned s)
{
	if (w.server[s].up)
		return false;
	w.server[s].up = 1;
	order_runs(s);
	if (w.state[s] != LO_ABSENT)
		w.server[s].epoch = w.epoch;
	return true;
}

/* A write from before the object was stale reaches the file. */
static bool old_write_ends(void)
{
	if (!w.old_write)
		return false;
	w.old_write = 0;
	w.server[T].cache[0] = OLD;
	return true;
}

/* ---- clients, and the metadata server for them ---- */

static bool size_is_set(void)
{
	return setup->cuts && w.write[0].begun && !w.write[0].acked;
}

/* LAYOUTGET; or a WRITE through the metadata server. */
static bool may_write(void)
{
	return !w.frozen && !w.old_boot && !size_is_set();
}

static uint8_t written_copies(void)
{
	uint64_t all = lo_writers(map_in());

	if (fault == CLIENTS_CANNOT)
		all &= ~(uint64_t)BIT(T);
	return (uint8_t)all;
}

static void send_to(struct change *c, uint8_t names, uint8_t epoch)
{
	c->epoch = epoch;
	c->names = names;
	c->excused = 0;
	for (unsigned s = 0; s < SERVERS; s++)
		c->at[s] = names >> s & 1 ? SENT : NONE;
}

/* A client has one write of a block under way at a time. */
static bool write_begins(unsigned k, unsigned b)
{
	struct change *c = &w.write[k];
	unsigned client = k % setup->clients;

	/* Writes begin in their order; a size is set at any time. */
	if (c->begun || (setup->cuts && !k) || (k > setup->cuts && !w.write[k - 1].begun) ||
	    (w.dead && client == 1))
		return false;
	if (!setup->through_mds && w.layout[client]) {
		send_to(c, w.named[client], w.layout[client]);
	} else {
		if (!may_write())
			return false;
		send_to(c, written_copies(), w.epoch);
		w.layout[client] = w.epoch;
		w.named[client] = c->names;
	}
	for (unsigned j = 0; j < k; j++) {
		const struct change *o = &w.write[j];

		if (o->acked)
			c->before |= BIT(j);
		else if (o->begun && j % setup->clients == client && covers(o, b))
			return false;
		else if (o->begun && covers(o, b))
			w.contended = 1;
	}
	c->block = (uint8_t)b;
	c->begun = 1;
	return true;
}

/* A SETATTR of a size: recalls and raises the epoch; orders go to each copy. */
static bool size_begins(void)
{
	struct change *c = &w.write[0];

	if (!setup->cuts || c->begun || !may_write())
		return false;
	send_to(c, (uint8_t)lo_writers(map_in()), ++w.epoch);
	c->begun = 1;
	for (unsigned j = 1; j < setup->writes; j++)
		c->before |= w.write[j].acked ? BIT(j) : 0;
	memset(w.layout, 0, sizeof(w.layout));
	memset(w.named, 0, sizeof(w.named));
	return true;
}

static bool is_acked(unsigned k)
{
	struct change *c = &w.write[k];
	bool any = false;

	if (!c->begun || c->acked || (w.dead && k % setup->clients == 1))
		return false;
	for (unsigned s = 0; s < SERVERS; s++) {
		if (!(c->names >> s & 1) || (c->excused >> s & 1))
			continue;
		any |= c->at[s] == STABLE;
		if (c->at[s] != STABLE && !(fault == ACK_FIRST && c->at[s] == FAILED))
			return false;
	}
	c->acked = any;
	if (any) {
		memset(c->at, 0, sizeof(c->at));
		c->names = c->excused = c->epoch = 0;
	}
	return any;
}

/* LAYOUTERROR; file_make_stale for a write through the metadata server */
static bool is_reported(unsigned k, unsigned s)
{
	struct change *c = &w.write[k];

	if (c->at[s] != FAILED || w.old_boot || c->epoch != w.epoch || !counts(s) ||
	    (c->excused >> s & 1) || fault == ACK_FIRST)
		return false;
	return make_stale(s) != 0;
}

/* A size, and a server that is silent. */
static bool is_silent(unsigned s)
{
	if (!order_waits(s) || w.server[s].up || !counts(s))
		return false;
	return make_stale(s) != 0;
}

/* The client writes again, with a new layout, what was refused. */
static bool is_done_again(unsigned k)
{
	struct change *c = &w.write[k];
	unsigned client = k % setup->clients;
	bool refused = false;

	if (!c->begun || c->acked || (setup->cuts && !k) || !may_write() || (w.dead && client == 1))
		return false;
	for (unsigned s = 0; s < SERVERS; s++) {
		if (c->at[s] == LET_IN)
			return false;
		refused |= (c->names >> s & 1) && !(c->excused >> s & 1) &&
			   (c->at[s] == FENCED || c->at[s] == FAILED);
	}
	if (!refused && (c->names & ~c->excused))
		return false;
	send_to(c, written_copies(), w.epoch);
	w.layout[client] = w.epoch;
	w.named[client] = c->names;
	return true;
}

/* The second client. */
static bool client_dies(void)
{
	bool under_way = false;

	for (unsigned k = 1; setup->clients > 1 && k < setup->writes; k += setup->clients)
		under_way |= w.write[k].begun && !w.write[k].acked;
	if (w.dead || w.deaths >= setup->deaths || !under_way)
		return false;
	w.deaths++;
	w.dead = w.lost = 1;
	return true;
}

/* All servers confirm the epoch at once: another's fence. False: a server is not at rest. */
static bool fence_all(void)
{
	for (unsigned s = 0; s < SERVERS; s++)
		if (counts(s) && w.server[s].up && !drained(s))
			return false;
	w.epoch++;
	for (unsigned s = 0; s < SERVERS; s++)
		if (counts(s) && w.server[s].up)
			w.server[s].epoch = w.epoch;
	memset(w.layout, 0, sizeof(w.layout));
	memset(w.named, 0, sizeof(w.named));
	return true;
}

/* Judges the file of a lost writer (file_resolve_tick, excl_resolve). */
static bool is_judged(void)
{
	if (!w.lost || !may_write() || !fence_all())
		return false;
	suspect();
	return true;
}

/* excl_resolve: fences what an earlier boot left. */
static bool is_resolved(void)
{
	if (!w.old_boot || w.frozen || size_is_set() || !fence_all())
		return false;
	w.old_boot = 0;
	return true;
}

static bool mds_crashes(void)
{
	if (w.mds_crashes >= setup->mds_crashes)
		return false;
	w.mds_crashes++;
	w.old_boot = 1;
	w.frozen = 0;
	for (unsigned k = 0; setup->through_mds && k < setup->writes; k++)
		for (unsigned s = 0; s < SERVERS && !(setup->cuts && !k); s++)
			if (*at(k, s) == SENT || *at(k, s) == LOST)
				*at(k, s) = FENCED;
	if (setup->notes == AT_MDS) {
		if (w.locked && !w.skip) { /* its WRITE may be under way */
			w.ghost = 1;
			w.ghost_block = w.cursor;
			w.ghost_value = w.fetched_value;
			w.ghost_epoch = w.epoch;
		}
		w.session[T] = w.note[T] = w.locked = w.fetched = 0;
	} else if (setup->notes == AT_SOURCE && w.fetched) {
		/* The target goes on by itself; its next FILL comes after this one. */
		w.fetched = fault == FILL_OVERTAKES ? 0 : 2;
		w.ghost = fault == FILL_OVERTAKES;
		w.ghost_block = w.fetched_block;
		w.ghost_value = w.fetched_value;
	}
	if (w.phase == P_DONE || (fault == RESUMED && w.phase == P_COPY)) {
		w.list = 0;
		return true;
	}
	/* The row has the session: see j_resume. */
	w.phase = w.state[T] == LO_IN_SYNC && setup->place == REPLACES ? P_MOVE : P_IDLE;
	w.list = w.round = 0;
	return true;
}
#endif
