/* SPDX-License-Identifier: Apache-2.0 */
/*
 * st.h - state of clients: sessions, opens, locks, delegations and layouts (RFC 8881 chapters 2.10,
 * 8, 9, 10, 12), in memory, and the durable list of clients.
 *
 * What is durable: one row for each confirmed client (owner, verifier, number), so that after a
 * restart exactly these clients may reclaim. Reclaims rebuild all other state. The boot epoch
 * (ns_super.su_boot) is in every clientid, sessionid and stateid, so the server does not mistake
 * one of an earlier boot for one of this boot. So is the store's identity, which keeps other
 * clusters' ids apart. No client can guess an id (ids.h).
 *
 * Locks, held for table look-ups only, never over I/O, a commit or a send (shard.c):
 * - all (st_all_lock): guards clients, the making and destroying of sessions, the durable list, the
 *   end of grace, callbacks and their queues, asynchronous copies, partial_write.c, and walks over
 *   what one client or all clients have. It keeps out every other holder of state.
 * - a file's (st_file_lock): guards the file, its opens, locks, layouts and delegations, the
 *   requests that wait for them, what was lately seen of the file, and the tables that hold all
 *   this. It is the lock of a shard, chosen by inode number, and the thread's own lock: threads
 *   that work on files of different shards share nothing. A holder may look at what all guards
 *   (is the client gone, its sessions, its revoked stateids, f_npartials), and changes none of it.
 *   Rare work that needs more (a recall, a callback) is done once more under all: see st_work.
 * - the thread's own alone (st_look_lock): what all guards does not change meanwhile.
 * - sp_lock, of a client's stripe: guards its lists of opens and layouts, and its counts. It is
 *   taken last, with the file or all locked. A holder of all walks the lists without it.
 * - se_lock, a session's own: see below. A thread that needs it and all takes all first.
 * Functions say "locked" when the caller must hold the lock of the file that they are about, or
 * all; "all locked" when it must be all. For functions about a client, a session, a callback or
 * grace "locked" means all. "Looked at" means st_look_lock or any of these.
 *
 * The order "register the state, then look with a fresh snapshot; commit a change, then look at the
 * state" holds with a file's lock as it does with all: both looks at the state are under it. What a
 * thread looks at without a lock (st_watched, st_others_have) is written before the registration is
 * over, and read after the commit, in one order for all threads (seq_cst).
 *
 * A request that only reads takes no lock. It writes no cache line that another request writes, be
 * that of another session or of another connection of the same session:
 * - It finds its session by RCU (st_session_find), and its slot, which has a cache line of its own.
 *   It takes the slot by compare-and-swap (slot.c) and keeps it until it is answered. What all
 *   slots of a session share is written when it changes, under se_lock. Threads take locks in this
 *   order: all or a file's, cl_lock, se_lock.
 * - Whether a client has requests under way, and when it was last heard, is read from its slots
 *   when this is needed (st_silent_ns).
 * - It asks st_watched() first whether a file has state on which an answer about it depends. That
 *   reads a table of counts, which is written when such state comes and goes.
 *
 * Each subject has a header: st_client.h, st_session.h, slot.h, callback.h, st_file.h, st_open.h,
 * st_lock.h, st_deleg.h, st_layout.h, offload.h, st_count.h, st_stateid.h, shard.h. They need
 * nothing of this one, which includes them.
 */
#ifndef MDS_ST_H
#define MDS_ST_H
#include "base/hash.h"
#include "mds/namespace/ns.h"
#include "mds/state/callback.h"
#include "mds/state/ids.h"
#include "mds/state/offload.h"
#include "mds/state/shard.h"
#include "mds/state/slot.h"
#include "mds/state/st_client.h"
#include "mds/state/st_count.h"
#include "mds/state/st_deleg.h"
#include "mds/state/st_file.h"
#include "mds/state/st_layout.h"
#include "mds/state/st_lock.h"
#include "mds/state/st_open.h"
#include "mds/state/st_session.h"
#include "mds/state/st_stateid.h"
#include "proto/nfs4.h"
#include "proto/rpc.h"
#include <pthread.h>

/* A part of the files and of their state. A stateid names its shard (st_sid_make). */
enum st_kind { ST_FILE, ST_OPEN, ST_LOCK, ST_LAYOUT };
struct st_shard {
	_Alignas(64) pthread_mutex_t sh_lock;
	struct hash sh_table;	  /* by inode number or stateid; of all kinds (st_each) */
	_Atomic uint64_t sh_next; /* stateid counter */
};
#define ST_SHARDS 65536u /* enough that files in use at the same time rarely share one */

struct st {
	/* Requests only look at these fields; their cache lines are rarely written. */
	struct ns *st_ns;
	uint64_t st_boot;
	/* From the identity of the store and its incarnation. Both are mixed into ids. So another
	 * cluster at the same address, or a restored store, does not take ids of the same boot
	 * epoch for its own. st_epoch is both in one. */
	uint32_t st_salt, st_epoch;
	struct st_ids st_ids;
	uint32_t st_lease_ms, st_grace_ms, st_courtesy_ms, st_recall_ms;
	uint64_t st_started_ns; /* by st_now_ns */
	/* st_clock.c: when the clock was last looked at, and how long the process stood still in
	 * all. */
	_Atomic uint64_t st_clock_seen_ns, st_paused_ns;
	const struct store_lease *st_lease; /* NULL: the store is always held */
	pthread_mutex_t st_clock_lock;
	_Atomic bool st_in_grace;
	struct st_session *_Atomic *st_by_id; /* sessions, for RCU: ST_BY_ID chains */
	uint64_t st_kept_max;
	struct st_shard *st_shards; /* ST_SHARDS of them */
	struct st_heat *st_heat;
	_Alignas(64) _Atomic uint32_t st_nsessions;
	/* In all sessions; and, nearly, the bytes of slots and kept replies. */
	_Atomic uint64_t st_nslots;
	_Atomic uint64_t st_kept;
	/* recorded clients that grace waits for: they have not finished reclaiming */
	_Alignas(64) uint32_t st_reclaimers;
	bool st_none_live;	 /* at the start the leases of all recorded clients had run out */
	bool st_closing;	 /* grace is being ended: st_records_close */
	uint64_t st_unclosed_ns; /* when the store last refused that */
	/* A client that had layouts when the earlier boot ended does not come back as the same
	 * client. */
	bool st_lost;
	struct hash st_clients, st_owners, st_sessions, st_cb_conns, st_records, st_places;
	uint64_t st_next;	       /* counter of this boot for clientids and sessionids */
	uint64_t st_verifier;	       /* write verifier of this boot */
	uint64_t st_oldest_ns;	       /* when st_client_oldest last looked at all */
	_Atomic uint64_t st_quotas_ns; /* when the tick last gave room back */
	struct st_session *st_ended;   /* sessions without references whose rows must be deleted */
	/* their number, including sessions whose rows are being deleted */
	size_t st_nended;
	/* Called on the tick's loop, without the lock. st_grace_over: grace is over, or
	 * st_records_close must end it. st_orphans: clients that held removed files open are
	 * gone. */
	void (*st_grace_over)(void *arg);
	void (*st_orphans)(void *arg);
	/* a recalled delegation on ino did not come back: st_deleg_revoke_overdue */
	void (*st_overdue)(void *arg, uint64_t ino);
	/* the client's lease, and the courtesy after it, have run out */
	void (*st_expired)(void *arg, uint64_t clientid);
	/* These clients' leases have run out. A mutation has to call st_lapse_put for each. */
	void (*st_lapsed)(void *arg, const uint64_t *clientids, unsigned n);
	/* When any recorded client was last heard, at the newest tick; and the tick that heard the
	 * first after a lease in which none was. */
	_Atomic uint64_t st_heard_ns;
	uint64_t st_resumed_ns;
	bool st_orphaned;
	bool st_judge; /* files to be judged were added since file_resolve_tick last looked */
	void *st_arg;
	struct metric *st_callbacks[ST_CB_METRICS], *st_revoked, *st_deleg_given[2],
		*st_deleg_wasted, *st_deleg_revoked;
	uint32_t st_max_delegs;
	uint8_t st_portion[ST_COUNTS]; /* see st_set_quota_portion */
	uint32_t st_most[ST_COUNTS][3];
	_Atomic uint64_t st_gathered_ns[ST_COUNTS];
	struct st_counts st_counts; /* of all clients */
};

int st_create(struct st **out, struct ns *ns, uint32_t lease_ms, uint32_t grace_ms,
	      uint32_t courtesy_ms);
#define ST_KEPT_MAX (256ull << 20) /* st_kept_max at first */

static inline struct st_shard *st_shard_of(struct st *st, uint64_t ino)
{
	return &st->st_shards[ino % ST_SHARDS];
}
int st_shards_new(struct st *st); /* 0, or -1: no memory */
/* All locked. An upper bound of files, opens, locks and layouts together. */
size_t st_states(const struct st *st);
/* All locked: walks the links of a kind. The body may free what the link is of, and nothing else of
 * that shard. */
#define st_each(st, kind, l)                                                                       \
	for (size_t l##_shard = 0; l##_shard < ST_SHARDS; l##_shard++)                             \
	hash_each(&(st)->st_shards[l##_shard].sh_table, l##_i, l,                                  \
		  l##_next) if (l->hl_hash >> 62 == (kind))
/* locked. Returns the first candidate; the caller compares, and continues with hash_next. With a
 * file's lock they find only what is in the file's shard. */
struct hash_link *st_first_by_ino(struct st *st, uint64_t ino);
struct hash_link *st_first_by_sid(struct st *st, const struct st_stateid *sid, enum st_kind kind);
int st_add_by_ino(struct st *st, uint64_t ino, struct hash_link *l); /* 0 or -1, as hash_add */
int st_add_by_sid(struct st *st, uint64_t ino, const struct st_stateid *sid, enum st_kind kind,
		  struct hash_link *l);
void st_table_del(struct st *st, uint64_t ino, struct hash_link *l); /* ino: of its file */
#endif
