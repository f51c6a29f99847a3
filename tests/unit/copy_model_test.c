/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy_model_test.c - the engines that copy a file while clients write it, each in a world of few
 * blocks, writes and crashes (copy_world.h), through all orders of events. A copy that the map
 * calls in sync must have every write that was acknowledged, in the page cache and on the disk, and
 * copies in sync must be equal when no write is under way. Each planted fault must be found.
 *
 * The engines are mds/jobs/repair.c with ds/store/rebuild.c and window.c (notes at the target),
 * mds/jobs/restripe.c with ds/store/watch.c and ds/fill_service.c (notes at the source), and
 * mds/dataserver/nfs3ds_copy.c (notes in the metadata server). docs/decisions/copy-engines.md has
 * what follows from it.
 */
#include "tests/unit/copy_world.h"

/* ---- the file is the job's ---- */

/* excl_begin with EXCL_LAYOUTS, of repair.c, move.c and restripe.c */
static bool freeze_begins(void)
{
	bool may = setup->notes == AT_SOURCE ? w.phase == P_COPY && w.round && !w.list && !w.fetched
					     : w.phase == P_IDLE && w.state[T] != LO_IN_SYNC;

	may |= w.phase == P_MOVE;
	if (!may || w.frozen || size_is_set() || w.freezes >= setup->freezes)
		return false;
	if (w.phase == P_MOVE && w.state[T] != LO_IN_SYNC) {
		w.phase = P_IDLE;
		return true;
	}
	w.freezes++;
	w.epoch++;
	w.frozen = 1;
	w.phase = P_FREEZE;
	return true;
}

/* ds_store_fences: a server confirms when what it let in is over. An NFSv3 server does not wait. */
static bool fence_confirmed(unsigned s)
{
	if (!counts(s) || !w.server[s].up || w.server[s].epoch >= w.epoch)
		return false;
	if (!drained(s) && !(s == T && setup->notes == AT_MDS))
		return false;
	w.server[s].epoch = w.epoch;
	return true;
}

/* All have confirmed, or their leases are over. */
static bool freeze_done(void)
{
	bool left = w.lost;

	if (w.phase != P_FREEZE)
		return false;
	for (unsigned s = 0; s < SERVERS; s++)
		if (counts(s) && w.server[s].up && w.server[s].epoch < w.epoch)
			return false;
	for (unsigned k = 0; k < setup->writes; k++)
		left |= w.write[k].begun && !w.write[k].acked && !setup->through_mds;
	memset(w.layout, 0, sizeof(w.layout));
	memset(w.named, 0, sizeof(w.named));
	if (left)
		suspect();
	w.old_boot = 0;
	w.phase = P_FROZEN;
	return true;
}

static void thaw(enum phase p)
{
	w.frozen = 0;
	w.phase = (uint8_t)p;
}

/* A copy in sync whose server lives (lo_repair_source, choose_sources), or -1. */
static int source(void)
{
	int k;

	if (fault == STALE_SOURCE && w.state[S] == LO_STALE && w.server[S].up)
		return S;
	for (unsigned n = 0; (k = lo_copy(map_in(), 0, n)) >= 0; n++)
		if (k != T && w.server[k].up && !order_waits((unsigned)k))
			return k;
	return -1;
}

/* ---- notes at the target, or in the metadata server ---- */

/* t1_run; without a freeze if a fault says so */
static bool t1(void)
{
	bool unfrozen = w.phase == P_IDLE && w.state[T] != LO_IN_SYNC && !size_is_set() &&
			!w.old_boot &&
			((fault == NO_FREEZE) ||
			 (fault == NO_NEW_FENCE && w.state[T] == LO_REBUILDING && !w.session[T]));

	if ((w.phase != P_FROZEN && !unfrozen) || setup->notes == AT_SOURCE)
		return false;
	if (w.state[T] == LO_IN_SYNC) { /* the switch of a move */
		for (unsigned s = 0; s < SERVERS; s++)
			if (w.state[s] == LO_IN_SYNC && !w.server[s].up)
				return false;
		for (unsigned s = 0; s < SERVERS && fault != NOT_KEPT; s++)
			flush(s);
		w.state[S] = LO_ABSENT;
		thaw(P_DONE);
		return true;
	}
	if (source() < 0) {
		thaw(P_IDLE);
		return true;
	}
	w.state[T] = LO_REBUILDING;
	w.row = 0;
	w.phase = P_BEGIN;
	return true;
}

/* ds_rebuild_begin, nfs3ds_copy_begin */
static bool begin_done(void)
{
	if (w.phase != P_BEGIN || !w.server[T].up || order_waits(T))
		return false;
	if (setup->notes == AT_TARGET && fault != NO_DRAIN && !drained(T))
		return false;
	w.server[T].epoch = w.epoch;
	w.session[T] = w.row = w.flag = 1;
	w.note[T] = w.cursor = w.fetched = w.locked = w.restarted = w.note_failed = 0;
	if (setup->notes == AT_MDS)
		flush(T);
	thaw(P_COPY);
	return true;
}

/* job_fail, fail_run: the server is away, or the object is not the job's any more */
static bool repair_fails(void)
{
	if ((w.phase != P_BEGIN && w.phase != P_COPY) || setup->notes == AT_SOURCE ||
	    (w.server[T].up && w.state[T] == LO_REBUILDING))
		return false;
	if (w.state[T] == LO_REBUILDING)
		make_stale(T);
	thaw(P_IDLE);
	return true;
}

/* CTL_BAD_SESSION: job_anew. After a restart of the metadata server: job_object, resume. */
static bool session_looked(void)
{
	if (setup->notes == AT_SOURCE || !w.server[T].up || w.state[T] != LO_REBUILDING)
		return false;
	if (w.phase == P_COPY && !w.session[T])
		w.phase = P_IDLE;
	else if (w.phase == P_IDLE && w.session[T] && w.row)
		w.phase = P_COPY;
	else
		return false;
	return true;
}

/* pull_fetch, new_read */
static bool pull_fetched(void)
{
	int k;

	if (w.phase != P_COPY || setup->notes == AT_SOURCE || !w.session[T] || w.fetched ||
	    w.cursor == blocks || w.state[T] != LO_REBUILDING || !w.server[T].up ||
	    (k = source()) < 0)
		return false;
	w.fetched = 1;
	w.fetched_value = w.server[k].cache[w.cursor];
	return true;
}

/* ds_session_write locks; the notes say what stays (window_next_range, window_lock) */
static bool window_locked(void)
{
	if (!w.fetched || w.locked || setup->notes == AT_SOURCE || !w.session[T] || !w.server[T].up)
		return false;
	w.skip = (w.note[T] >> w.cursor & 1) && fault != NOTES_IGNORED;
	w.locked = 1;
	if (fault == FORGOTTEN_EARLY)
		w.note[T] = notes_forget(w.note[T], w.cursor + 1);
	return true;
}

/* window_done: the cursor moves while the window is locked */
static bool window_over(void)
{
	if (!w.locked || !w.server[T].up)
		return false;
	if (!w.skip || fault == FORGOTTEN_EARLY)
		w.server[T].cache[w.cursor] = w.fetched_value;
	w.cursor++;
	w.note[T] = notes_forget(w.note[T], w.cursor);
	w.locked = w.fetched = w.skip = 0;
	return true;
}

/* ds_rebuild_sync and ds_rebuild_end; nfs3ds_copy_committed */
static bool end_done(void)
{
	if (w.phase != P_COPY || setup->notes == AT_SOURCE || !w.session[T] || w.fetched ||
	    w.cursor != blocks || !w.server[T].up || w.state[T] != LO_REBUILDING)
		return false;
	if (!drained(T) && fault != END_EARLY)
		return false;
	if (w.note_failed && fault != FAILURE_KEPT) {
		w.session[T] = w.note[T] = 0;
		make_stale(T);
		w.phase = P_IDLE;
		return true;
	}
	w.session[T] = w.note[T] = w.flag = 0;
	if (w.restarted && fault != VERIFIER_IGNORED) {
		w.phase = P_IDLE;
		return true;
	}
	if (fault != END_NOT_DURABLE)
		flush(T);
	w.phase = P_T2;
	return true;
}

/* t2_run */
static bool t2(void)
{
	if (w.phase != P_T2)
		return false;
	if (w.state[T] != LO_REBUILDING && fault != T2_BLIND) {
		w.phase = P_IDLE;
		return true;
	}
	lo_map_join(map_in(), T, w.contended);
	map_out();
	w.phase = setup->place == REPLACES ? P_MOVE : P_DONE;
	return true;
}

/* ---- notes at the source ---- */

static bool source_stands(void)
{
	return w.state[w.src] == LO_IN_SYNC || fault == SOURCE_NOT_LOOKED;
}

static void starts_again(void)
{
	w.session[w.src] = w.note[w.src] = w.list = w.round = 0;
	if (w.fetched) /* a FILL that was not answered in time: its answer counts no more */
		w.fetched = 2;
	thaw(P_IDLE);
}

/* Another source, and the notes go on there. Only a fault does that. */
static bool source_changes(void)
{
	int k = source();

	if (fault != SOURCE_CHANGES || k < 0 || k == w.src)
		return false;
	w.src = (uint8_t)k;
	w.session[k] = 1;
	return true;
}

static bool source_lost(void)
{
	bool at_work = w.phase == P_COPY || w.phase == P_FROZEN || w.phase == P_KEPT ||
		       w.phase == P_LAST || w.phase == P_COMMIT;

	if (setup->notes != AT_SOURCE || !at_work ||
	    (source_stands() && (w.session[w.src] || !w.server[w.src].up)))
		return false;
	if (w.session[w.src] && source_changes())
		return true;
	if (fault == WATCH_LATE && w.phase == P_COPY && source_stands())
		return false;
	starts_again();
	return true;
}

/* watch_begin. In place the target is fenced before, as BEGIN does it. */
static bool watch_begins(void)
{
	int k = source();

	if (setup->notes != AT_SOURCE || w.phase != P_IDLE || k < 0 || w.frozen ||
	    w.state[T] == LO_IN_SYNC || w.old_boot)
		return false;
	if (setup->place == IN_PLACE && fault != TARGET_NOT_FENCED) {
		if (!w.server[T].up || !drained(T))
			return false;
		w.server[T].epoch = w.epoch;
	}
	if (!drained((unsigned)k) && fault != WATCH_NO_DRAIN)
		return false;
	w.src = (uint8_t)k;
	w.session[k] = fault != WATCH_LATE;
	w.note[k] = 0;
	w.list = (uint8_t)(BIT(blocks) - 1);
	w.round = 0;
	w.phase = P_COPY;
	return true;
}

/* fill_span: the fetch */
static bool fill_fetched(void)
{
	bool copies = w.phase == P_COPY || w.phase == P_LAST;

	if (setup->notes != AT_SOURCE || !copies || !w.list || w.fetched || !w.server[T].up ||
	    !w.server[w.src].up || !source_stands())
		return false;
	while (!(w.list >> w.fetched_block & 1))
		w.fetched_block = (uint8_t)((w.fetched_block + 1) % blocks);
	w.fetched = 1;
	w.fetched_value = w.server[w.src].cache[w.fetched_block];
	return true;
}

/* ds_fill_write, ds_fill_sync */
static bool fill_written(void)
{
	if (setup->notes != AT_SOURCE || !w.fetched || !w.server[T].up)
		return false;
	w.server[T].cache[w.fetched_block] = w.fetched_value;
	if (fault != FILL_NOT_DURABLE)
		w.server[T].disk[w.fetched_block] = w.fetched_value;
	if (w.fetched == 1)
		w.list &= (uint8_t)~BIT(w.fetched_block);
	w.fetched = w.fetched_block = w.fetched_value = 0;
	return true;
}

/* watch_take: once while clients write, and once when they do not */
static bool taken(void)
{
	bool last = w.phase == P_KEPT, live = w.phase == P_COPY && !w.round && !w.list;

	if (setup->notes != AT_SOURCE || (!last && !live) || w.fetched || !source_stands() ||
	    !w.server[w.src].up)
		return false;
	if (fault == WATCH_LATE && live)
		w.session[w.src] = 1;
	if (!w.session[w.src] || (!drained(w.src) && fault != TAKE_NO_DRAIN))
		return false;
	if (!(last && fault == NO_LAST_TAKE))
		w.list = w.note[w.src];
	w.note[w.src] = 0;
	w.round = 1;
	w.phase = last ? P_LAST : P_COPY;
	return true;
}

/* old_keep: COMMIT of the old copies. What one of them lost is written again. */
static bool old_kept(void)
{
	bool lost = false;

	if (setup->notes != AT_SOURCE)
		return false;
	if (fault == NO_LAST_FREEZE && w.phase == P_COPY && w.round && !w.list && !w.fetched) {
		w.phase = P_KEPT;
		return true;
	}
	if (w.phase != P_FROZEN || !w.server[w.src].up)
		return false;
	w.phase = P_KEPT;
	if (fault == NOT_KEPT)
		return true;
	for (unsigned k = 0; k < setup->writes; k++)
		if (*at(k, w.src) == LOST) {
			lost = true;
			*at(k, w.src) = FENCED;
		}
	flush(w.src);
	if (lost)
		starts_again();
	return true;
}

/* restripe_ended: each new object is durable */
static bool fill_ended(void)
{
	if (setup->notes != AT_SOURCE || w.phase != P_LAST || w.list || w.fetched ||
	    !w.server[T].up)
		return false;
	memcpy(w.server[T].disk, w.server[T].cache, BLOCKS_MAX);
	w.phase = P_COMMIT;
	return true;
}

/* A COMMIT of the client goes to the new objects from here on. */
static void commits_go_to(unsigned s)
{
	for (unsigned k = 0; k < setup->writes && setup->through_mds; k++) {
		struct change *c = &w.write[k];

		if (c->begun && !c->acked && (c->at[S] == CACHED || c->at[S] == LOST)) {
			c->names = BIT(s);
			memset(c->at, 0, sizeof(c->at));
			c->at[s] = CACHED;
		}
	}
}

/* filled, restripe_fail: a server of a new object does not answer. Clients wait for a frozen file,
 * so the job does not: it thaws the file and begins again. */
static bool freeze_fails(void)
{
	bool frozen = w.phase == P_FROZEN || w.phase == P_KEPT || w.phase == P_LAST;

	if (setup->notes != AT_SOURCE || !frozen || !w.frozen || w.server[T].up)
		return false;
	if (fault == WAITS_THAWED)
		w.frozen = 0;
	else
		starts_again();
	return true;
}

/* restripe_cancel_run: the row is gone, and the deletion of the new objects is ordered. */
static bool is_cancelled(void)
{
	if (setup->notes != AT_SOURCE || w.cancelled || w.phase == P_DONE ||
	    w.cancels >= setup->cancels)
		return false;
	w.cancels++;
	w.cancelled = 1;
	memset(w.server[T].cache, EMPTY, BLOCKS_MAX);
	memset(w.server[T].disk, EMPTY, BLOCKS_MAX);
	return true;
}

/* restripe_load: the job sees it. Asked for once more, the file gets new objects of other names, so
 * what is under way to the earlier ones counts no more. */
static bool cancel_seen(void)
{
	if (!w.cancelled)
		return false;
	starts_again();
	w.cancelled = w.fetched = w.fetched_block = w.fetched_value = w.ghost = 0;
	memset(w.server[T].cache, EMPTY, BLOCKS_MAX);
	memset(w.server[T].disk, EMPTY, BLOCKS_MAX);
	return true;
}

/* restripe_commit_run */
static bool restripe_committed(void)
{
	if (setup->notes != AT_SOURCE || w.phase != P_COMMIT ||
	    (w.cancelled && fault != CANCEL_UNSEEN))
		return false;
	if (!source_stands()) {
		starts_again();
		return true;
	}
	for (unsigned b = 0; b < blocks && w.frozen; b++)
		must(w.server[T].cache[b] == w.server[w.src].cache[b] || !w.server[w.src].up ||
			     !w.server[T].up,
		     "the new copy is not what the old one is, at rest");
	lo_map_join(map_in(), T, false);
	map_out();
	if (setup->place == REPLACES) {
		w.state[S] = w.state[S2] = LO_ABSENT;
		commits_go_to(T);
	}
	w.server[T].epoch = ++w.epoch;
	w.session[w.src] = w.note[w.src] = 0;
	thaw(P_DONE);
	return true;
}

/* What an earlier attempt sent arrives late. */
static bool ghost_writes(void)
{
	if (!w.ghost || !w.server[T].up)
		return false;
	if (setup->notes == AT_SOURCE || w.server[T].epoch <= w.ghost_epoch || fault == LATE_WINDOW)
		w.server[T].cache[w.ghost_block] = w.ghost_value;
	w.ghost = w.ghost_block = w.ghost_value = w.ghost_epoch = 0;
	return true;
}

/* ---- all orders ---- */

static bool (*const job_event[])(void) = {
	freeze_begins,	    freeze_done,   t1,		 begin_done,  repair_fails, session_looked,
	pull_fetched,	    window_locked, window_over,	 end_done,    t2,	    source_lost,
	watch_begins,	    fill_fetched,  fill_written, taken,	      old_kept,	    fill_ended,
	restripe_committed, freeze_fails,  is_cancelled, cancel_seen, ghost_writes, old_write_ends,
	size_begins,	    client_dies,   is_judged,	 is_resolved, mds_crashes};
static const char *const job_name[] = {
	"freeze",      "frozen",      "T1",	    "BEGIN",	    "the repair fails",
	"session",     "fetch",	      "lock",	    "window",	    "END",
	"T2",	       "source lost", "WATCH",	    "fill: fetch",  "fill: write",
	"TAKE",	       "COMMIT",      "fill: end",  "the new map",  "thaw",
	"cancel",      "asked again", "a late one", "an old write", "SETATTR",
	"client dies", "judge",	      "resolve",    "MDS crash"};
static bool (*const server_event[])(unsigned s) = {fence_confirmed, server_crashes, server_restarts,
						   order_runs, is_silent};
static const char *const server_name[] = {"fenced", "crash", "restart", "order", "silent"};
static bool (*const write_event[])(unsigned k, unsigned s) = {
	let_in, is_written, is_committed, fails, disk_fails, is_reported, write_begins};
static const char *const write_name[] = {"let in",     "written",  "committed", "fails",
					 "disk fails", "reported", "begins at"};
static bool (*const client_event[])(unsigned k) = {is_acked, is_done_again};
_Static_assert(sizeof(write_name) / sizeof(write_name[0]) ==
		       sizeof(write_event) / sizeof(write_event[0]),
	       "a name for each");
static const char *const client_name[] = {"acked", "again"};

#define N(a)	(sizeof(a) / sizeof((a)[0]))
#define SERVED	(N(job_event))
#define WRITTEN (SERVED + SERVERS * N(server_event))
#define CLIENT	(WRITTEN + SERVERS * WRITES_MAX * N(write_event))
#define EVENTS	(CLIENT + WRITES_MAX * N(client_event))

static bool happens(unsigned e)
{
	unsigned k;

	if (e < SERVED)
		return job_event[e]();
	if (e < WRITTEN)
		return server_event[(e - SERVED) / SERVERS]((e - SERVED) % SERVERS);
	k = (e - (e < CLIENT ? WRITTEN : CLIENT)) % WRITES_MAX;
	if (k >= setup->writes)
		return false;
	if (e >= CLIENT)
		return client_event[(e - CLIENT) / WRITES_MAX](k);
	e = (e - WRITTEN) / WRITES_MAX;
	/* A write begins at a block. */
	if (e / SERVERS == N(write_event) - 1 && e % SERVERS >= blocks)
		return false;
	return write_event[e / SERVERS](k, e % SERVERS);
}

static int event_text(unsigned e, char *out, size_t max)
{
	if (e < SERVED)
		return snprintf(out, max, " %s;", job_name[e]);
	if (e < WRITTEN)
		return snprintf(out, max, " %s %u;", server_name[(e - SERVED) / SERVERS],
				(unsigned)((e - SERVED) % SERVERS));
	if (e < CLIENT)
		return snprintf(out, max, " %u %s %u;", (unsigned)((e - WRITTEN) % WRITES_MAX + 1),
				write_name[(e - WRITTEN) / WRITES_MAX / SERVERS],
				(unsigned)((e - WRITTEN) / WRITES_MAX % SERVERS));
	return snprintf(out, max, " %u %s;", (unsigned)((e - CLIENT) % WRITES_MAX + 1),
			client_name[(e - CLIENT) / WRITES_MAX]);
}

/* The states that were seen: a set of hashes. */
static uint64_t *seen;
static size_t seen_bits, states, done_states;
#define DEPTH_MAX 4000
static uint8_t way[DEPTH_MAX];
static unsigned way_len;

static uint64_t world_hash(void)
{
	const uint8_t *p = (const uint8_t *)&w;
	uint64_t h = 1, v;

	for (size_t i = 0; i < sizeof(w); i += sizeof(v)) {
		size_t n = sizeof(w) - i < sizeof(v) ? sizeof(w) - i : sizeof(v);

		v = 0;
		memcpy(&v, p + i, n);
		h = (h ^ v) * 0x9e3779b97f4a7c15ull;
		h ^= h >> 29;
	}
	return h ? h : 1;
}

static bool is_new(void)
{
	uint64_t h = world_hash();
	size_t mask = ((size_t)1 << seen_bits) - 1;

	for (size_t i = (h * 0x9e3779b97f4a7c15ull >> 32) & mask;; i = (i + 1) & mask) {
		if (seen[i] == h)
			return false;
		if (seen[i])
			continue;
		seen[i] = h;
		done_states += w.phase == P_DONE;
		return must(++states < mask / 8 * 7, "more states than there is room for");
	}
}

static void explore(unsigned depth)
{
	struct world was = w;

	for (unsigned e = 0; e < EVENTS && !wrong; e++) {
		if (!happens(e)) {
			w = was;
			continue;
		}
		way[depth] = (uint8_t)e;
		way_len = depth + 1;
		check_world();
		if (!wrong && is_new() && must(depth + 1 < DEPTH_MAX, "there is no end"))
			explore(depth + 1);
		if (!wrong)
			w = was;
	}
}

static void world_begins(void)
{
	memset(&w, 0, sizeof(w));
	wrong = NULL;
	w.epoch = OLD_EPOCH + 1;
	for (unsigned s = 0; s < SERVERS; s++) {
		bool old = s == T && setup->place == IN_PLACE;

		w.server[s].up = 1;
		w.server[s].epoch = s == T ? OLD_EPOCH : w.epoch;
		w.state[s] = s == S || (s == S2 && setup->second) ? LO_IN_SYNC
			     : s == T				  ? LO_STALE
								  : LO_ABSENT;
		memset(w.server[s].cache, s != T ? 0 : old ? OLD : EMPTY, BLOCKS_MAX);
		memcpy(w.server[s].disk, w.server[s].cache, BLOCKS_MAX);
	}
	/* It was let in before the object was stale. A plain NFSv3 server has no such thing that
	 * outlives a new owner of the object. */
	w.old_write = setup->place == IN_PLACE && setup->notes != AT_MDS;
}

/* NULL: nothing is violated. */
static const char *try_all(const struct setup *s, unsigned nblocks, char *text, size_t max)
{
	size_t n;

	setup = s;
	blocks = nblocks;
	states = done_states = 0;
	memset(seen, 0, sizeof(*seen) << seen_bits);
	world_begins();
	explore(0);
	if (!wrong)
		return NULL;
	n = (size_t)snprintf(text, max, "%s: %s:", s->name, wrong);
	for (unsigned k = 0; k < way_len && n < max; k++)
		n += (size_t)event_text(way[k], text + n, max - n);
	return wrong;
}

/* ---- what is tried ---- */

enum {
	IN_PLACE_TARGET,
	IN_PLACE_DISK,
	IN_PLACE_SOURCE,
	TWO_COPIES,
	MIRROR_MDS,
	MIRROR_WRITERS,
	MOVE,
	REPAIR_SIZE,
	RESTRIPE_SOURCE,
	RESTRIPE_TARGET,
	RESTRIPE_MDS,
	RESTRIPE_THROUGH,
	RESTRIPE_TWO,
	RESTRIPE_SIZE,
	RESTRIPE_CANCEL,
	SINGLE_IN_PLACE,
	SINGLE_MIRROR,
	NFS3_TARGET,
	NFS3_MDS,
	NFS3_DISK,
	NFS3_SIZE,
	TRIED
};
static const struct setup tried[TRIED] = {
	[IN_PLACE_TARGET] = {.name = "repair in place, the target crashes",
			     .notes = AT_TARGET,
			     .place = IN_PLACE,
			     .clients = 1,
			     .writes = 1,
			     .more = 2,
			     .freezes = 2,
			     .crashes = {0, 1, 0}},
	[IN_PLACE_DISK] = {.name = "repair in place, its disk fails",
			   .notes = AT_TARGET,
			   .place = IN_PLACE,
			   .clients = 1,
			   .writes = 2,
			   .more = 2,
			   .freezes = 1,
			   .disk_errors = 1},
	[IN_PLACE_SOURCE] = {.name = "repair in place, the source crashes",
			     .notes = AT_TARGET,
			     .place = IN_PLACE,
			     .clients = 1,
			     .writes = 1,
			     .more = 2,
			     .freezes = 1,
			     .crashes = {1, 0, 0}},
	[TWO_COPIES] = {.name = "repair from two copies",
			.notes = AT_TARGET,
			.place = NEW,
			.second = true,
			.clients = 1,
			.writes = 1,
			.more = 2,
			.freezes = 2,
			.crashes = {1, 0, 0}},
	[MIRROR_MDS] = {.name = "one more mirror, the metadata server crashes",
			.notes = AT_TARGET,
			.place = NEW,
			.clients = 1,
			.writes = 1,
			.more = 2,
			.freezes = 2,
			.mds_crashes = 1},
	[MIRROR_WRITERS] = {.name = "one more mirror, two writers",
			    .notes = AT_TARGET,
			    .place = NEW,
			    .clients = 2,
			    .writes = 2,
			    .more = 2,
			    .freezes = 1,
			    .deaths = 1},
	[MOVE] = {.name = "a move",
		  .notes = AT_TARGET,
		  .place = REPLACES,
		  .clients = 1,
		  .writes = 2,
		  .more = 2,
		  .freezes = 2},
	[REPAIR_SIZE] = {.name = "repair, a size is set",
			 .notes = AT_TARGET,
			 .place = NEW,
			 .clients = 1,
			 .writes = 2,
			 .more = 3,
			 .freezes = 2,
			 .cuts = true},
	[RESTRIPE_SOURCE] = {.name = "restripe, the source crashes",
			     .notes = AT_SOURCE,
			     .place = REPLACES,
			     .clients = 1,
			     .writes = 2,
			     .more = 3,
			     .freezes = 2,
			     .crashes = {1, 0, 0}},
	[RESTRIPE_TARGET] = {.name = "restripe, a new object crashes",
			     .notes = AT_SOURCE,
			     .place = REPLACES,
			     .clients = 1,
			     .writes = 2,
			     .more = 3,
			     .freezes = 1,
			     .crashes = {0, 1, 0}},
	[RESTRIPE_MDS] = {.name = "restripe, the metadata server crashes",
			  .notes = AT_SOURCE,
			  .place = REPLACES,
			  .clients = 1,
			  .writes = 2,
			  .more = 3,
			  .freezes = 2,
			  .mds_crashes = 1},
	[RESTRIPE_THROUGH] = {.name = "restripe through the metadata server",
			      .notes = AT_SOURCE,
			      .place = REPLACES,
			      .clients = 1,
			      .writes = 2,
			      .more = 3,
			      .freezes = 2,
			      .crashes = {1, 0, 0},
			      .through_mds = true},
	[RESTRIPE_TWO] = {.name = "restripe from one of two copies",
			  .notes = AT_SOURCE,
			  .place = REPLACES,
			  .second = true,
			  .clients = 1,
			  .writes = 1,
			  .more = 2,
			  .freezes = 2,
			  .crashes = {1, 0, 0}},
	[RESTRIPE_SIZE] = {.name = "restripe, a size is set",
			   .notes = AT_SOURCE,
			   .place = REPLACES,
			   .clients = 1,
			   .writes = 2,
			   .more = 3,
			   .freezes = 2,
			   .cuts = true},
	[RESTRIPE_CANCEL] = {.name = "restripe, cancelled and asked for again",
			     .notes = AT_SOURCE,
			     .place = REPLACES,
			     .clients = 1,
			     .writes = 2,
			     .more = 3,
			     .freezes = 2,
			     .cancels = 1},
	[SINGLE_IN_PLACE] = {.name = "repair in place, with notes at the source",
			     .notes = AT_SOURCE,
			     .place = IN_PLACE,
			     .clients = 1,
			     .writes = 2,
			     .more = 2,
			     .freezes = 2,
			     .crashes = {0, 1, 0}},
	[SINGLE_MIRROR] = {.name = "one more mirror, with notes at the source",
			   .notes = AT_SOURCE,
			   .place = NEW,
			   .clients = 2,
			   .writes = 2,
			   .more = 3,
			   .freezes = 2,
			   .deaths = 1},
	[NFS3_TARGET] = {.name = "NFSv3 server, it restarts",
			 .notes = AT_MDS,
			 .place = IN_PLACE,
			 .clients = 1,
			 .writes = 1,
			 .more = 2,
			 .freezes = 2,
			 .through_mds = true,
			 .crashes = {0, 1, 0}},
	[NFS3_MDS] = {.name = "NFSv3 server, the metadata server crashes",
		      .notes = AT_MDS,
		      .place = IN_PLACE,
		      .clients = 1,
		      .writes = 1,
		      .more = 2,
		      .freezes = 2,
		      .through_mds = true,
		      .mds_crashes = 1},
	[NFS3_DISK] = {.name = "NFSv3 server, its disk fails",
		       .notes = AT_MDS,
		       .place = IN_PLACE,
		       .clients = 1,
		       .writes = 2,
		       .more = 2,
		       .freezes = 1,
		       .through_mds = true,
		       .disk_errors = 1},
	[NFS3_SIZE] = {.name = "NFSv3 server, a size is set",
		       .notes = AT_MDS,
		       .place = IN_PLACE,
		       .clients = 1,
		       .writes = 2,
		       .more = 3,
		       .freezes = 2,
		       .through_mds = true,
		       .cuts = true},
};

/* Where each fault is found. */
static const uint8_t found_in[FAULTS] = {
	[NO_FREEZE] = MIRROR_WRITERS,
	[NO_NEW_FENCE] = IN_PLACE_TARGET,
	[NO_DRAIN] = IN_PLACE_DISK,
	[NOTES_IGNORED] = IN_PLACE_DISK,
	[NOTED_LATE] = IN_PLACE_DISK,
	[NOT_LOCKED] = IN_PLACE_DISK,
	[FORGOTTEN_EARLY] = IN_PLACE_DISK,
	[SESSION_OUTLIVES] = IN_PLACE_TARGET,
	[END_NOT_DURABLE] = IN_PLACE_TARGET,
	[END_EARLY] = NFS3_DISK,
	[FAILURE_KEPT] = IN_PLACE_DISK,
	[T2_BLIND] = IN_PLACE_TARGET,
	[ACK_FIRST] = IN_PLACE_TARGET,
	[STALE_SOURCE] = TWO_COPIES,
	[WATCH_LATE] = RESTRIPE_SOURCE,
	[WATCH_NO_DRAIN] = RESTRIPE_SOURCE,
	[TAKE_NO_DRAIN] = RESTRIPE_SOURCE,
	[NO_LAST_FREEZE] = RESTRIPE_SOURCE,
	[NO_LAST_TAKE] = RESTRIPE_SOURCE,
	[SOURCE_NOT_LOOKED] = RESTRIPE_TWO,
	[WATCH_OUTLIVES] = RESTRIPE_SOURCE,
	[FILL_NOT_DURABLE] = RESTRIPE_TARGET,
	[RESUMED] = RESTRIPE_MDS,
	[FILL_OVERTAKES] = RESTRIPE_MDS,
	[NOT_KEPT] = RESTRIPE_THROUGH,
	[TARGET_NOT_FENCED] = SINGLE_IN_PLACE,
	[CHANGE_NOT_NOTED] = RESTRIPE_SIZE,
	[CANCEL_UNSEEN] = RESTRIPE_CANCEL,
	[WAITS_THAWED] = RESTRIPE_TARGET,
	[VERIFIER_IGNORED] = NFS3_TARGET,
	[LAYOUTS_MEANWHILE] = NFS3_DISK,
	[LATE_WINDOW] = NFS3_MDS,
	[CLIENTS_CANNOT] = MOVE,
	[SOURCE_CANNOT] = SINGLE_IN_PLACE,
	[SOURCE_CHANGES] = RESTRIPE_TWO,
};

static void setup_seen(void)
{
	seen_bits = getenv("WEFT_SOAK") ? 26 : 20;
	seen = calloc((size_t)1 << seen_bits, sizeof(*seen));
	ck_assert_ptr_nonnull(seen);
}

static void teardown(void)
{
	free(seen);
	fault = FAULT_NONE;
}

START_TEST(a_copy_that_is_in_sync_has_every_acknowledged_write)
{
	char text[4096] = "";
	struct setup one = tried[_i];
	const char *bad;

	one.writes = getenv("WEFT_SOAK") ? one.more : one.writes;
	bad = try_all(&one, 2, text, sizeof(text));

	printf("# %s: %zu states, %zu of them at the end\n", tried[_i].name, states, done_states);
	ck_assert_msg(!bad, "%s", text);
	ck_assert_uint_gt(done_states, 20);
}
END_TEST

START_TEST(a_planted_fault_is_found)
{
	char text[4096] = "";
	const char *bad;

	fault = (enum fault)_i;
	bad = try_all(&tried[found_in[_i]], 2, text, sizeof(text));
	printf("# fault %d, after %zu states: %.900s\n", _i, states, text);
	ck_assert_msg(bad != NULL, "planted fault %d is not found", _i);
	ck_assert_msg(strstr(text, "copy"), "%s", text);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("copy model");
	TCase *tc = tcase_create("orders of events");

	tcase_add_checked_fixture(tc, setup_seen, teardown);
	tcase_set_timeout(tc, getenv("WEFT_SOAK") ? 3600 : 120);
	tcase_add_loop_test(tc, a_copy_that_is_in_sync_has_every_acknowledged_write, 0, TRIED);
	tcase_add_loop_test(tc, a_planted_fault_is_found, FAULT_NONE + 1, FAULTS);
	suite_add_tcase(s, tc);
	return unit_run(s);
}
