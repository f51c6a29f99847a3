/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slot.c - slot tables that grow and shrink, and the reply cache in them (RFC 8881 section
 * 2.10.6.1).
 *
 * Size. A slot takes memory from its first use on. A session begins with few slots. The target
 * rises as the client uses its highest slots. It falls when the client has not needed them for a
 * lease, or sooner when the reply caches of all sessions near their limit and this session has more
 * than its share. Slots above the target go when the client has shown that it knows the target: it
 * sends a new request in a slot whose last reply carried the target, and has nothing outstanding
 * above it. So no reply goes that a client may still ask for. When a removed slot is granted again,
 * the client begins at sequence id 1.
 *
 * One request. A request takes its slot by one compare-and-swap of sl_state, from free with the
 * sequence id before its own to busy with its own. All other fields of the slot belong to the
 * request until it stores "free". A retry holds the slot only while it reads the cached reply. Both
 * happen in RCU read sections, so that a slot, its reply and its session stay in memory for
 * readers. A slot is removed by a compare-and-swap as well, from free to gone. So requests of one
 * session share no lock and no written cache line, unless they use the same slot. All requests read
 * the rest of the session, which is written, under se_lock, only when it changes.
 *
 * Ending. A session that ends (se_dead) or a client that is evicted (cl_evicting) is marked first,
 * and then all slots are read. A request makes its slot busy first and then reads these marks. All
 * four accesses are sequentially consistent, so that one side sees the other: no request begins
 * unseen by a thread that found no busy slot. The same holds when a slot is given back: it is free
 * first, then the request reads whether the session is dead, and ends it if no other thread did.
 *
 * A lease that has run out (st_lapse.c). The mark goes the same way: a tick sets it and then reads
 * the slots, and a request that finds it does not begin before the client's record is right. A
 * retry is not answered before that either: it renews the lease first and then reads the mark.
 *
 * Limit. At the limit the first slots of every session serve as always. In other slots, a request
 * whose reply must be cached gets NFS4ERR_DELAY. So at most the limit and ST_SLOTS_LEAST replies
 * per session are cached.
 */
#include "base/clock.h"
#include "mds/state/st.h"
#include <assert.h>
#include <sched.h>

#define SLOTS_START 16u	 /* granted at CREATE_SESSION */
#define KEPT_STEP   256u /* bytes */
#define RENEW_PART  16u	 /* part of a lease by which cl_renewed_ns may lag behind */
#define SLOTS_IDLE  4u	 /* left to a session that is idle */

/* HELD: a retry reads the slot. GONE: the session no longer has the slot. */
enum { FREE, HELD, BUSY, GONE };
#define TURN(state, seq) ((uint64_t)(state) << 32 | (uint32_t)(seq))
#define AGAIN		 ((nfsstat4)-1)

static unsigned slot_state_of(uint64_t turn)
{
	return (unsigned)(turn >> 32);
}

struct st_slot *st_slot_get(const struct st_session *s, uint32_t slot)
{
	const struct st_slots *all = atomic_load_explicit(&s->se_slots, memory_order_acquire);

	return all && slot < all->ss_n
		       ? atomic_load_explicit(&all->ss_slot[slot], memory_order_acquire)
		       : NULL;
}

bool st_slot_busy(const struct st_slot *sl)
{
	return slot_state_of(atomic_load(&sl->sl_state)) == BUSY;
}

uint32_t st_slot_seq(const struct st_slot *sl)
{
	return (uint32_t)atomic_load(&sl->sl_state);
}

bool st_slots_busy(struct st_session *s, uint64_t *last)
{
	const struct st_slots *all;
	bool busy = false;

	pthread_mutex_lock(&s->se_lock); /* keeps slots from being added meanwhile */
	all = atomic_load(&s->se_slots);
	for (uint32_t i = 0; all && i < all->ss_n && !busy; i++) {
		const struct st_slot *sl = atomic_load(&all->ss_slot[i]);
		uint64_t at;

		if (!sl)
			continue;
		busy = st_slot_busy(sl);
		at = atomic_load_explicit(&sl->sl_renewed_ns, memory_order_relaxed);
		if (at > *last)
			*last = at;
	}
	pthread_mutex_unlock(&s->se_lock);
	return busy;
}

static void kept(struct st *st, struct st_session *s, int64_t bytes)
{
	atomic_fetch_add_explicit(&s->se_kept, (uint64_t)bytes, memory_order_relaxed);
	atomic_fetch_add_explicit(&st->st_kept, (uint64_t)bytes, memory_order_relaxed);
}

/* Counts a cached reply in steps of KEPT_STEP, so that few replies write the shared counts: when
 * the slot's reply is longer than every one since the last review. */
static void slot_tell(struct st *st, struct st_session *s, struct st_slot *sl)
{
	uint32_t told = (sl->sl_len + KEPT_STEP - 1) / KEPT_STEP * KEPT_STEP,
		 review = atomic_load_explicit(&s->se_reviews, memory_order_relaxed);

	if (told < sl->sl_told && review == sl->sl_told_in)
		return;
	sl->sl_told_in = review;
	if (told != sl->sl_told)
		kept(st, s, (int64_t)told - sl->sl_told);
	sl->sl_told = told;
}

/* ---- with se_lock held ---- */

static void all_free(struct rcu_head *head)
{
	RCU_TAKEN_OVER(head);
	free(caa_container_of(head, struct st_slots, ss_rcu));
}

static void slot_free(struct rcu_head *head)
{
	struct st_slot *sl = caa_container_of(head, struct st_slot, sl_rcu);

	RCU_TAKEN_OVER(head);
	free(sl->sl_reply);
	free(sl);
}

/* Makes a table for n slots, which may be more or fewer than before. false: no memory */
static bool resize(struct st_session *s, uint32_t n)
{
	struct st_slots *was = atomic_load(&s->se_slots),
			*all = calloc(1, sizeof(*all) + n * sizeof(all->ss_slot[0]));

	if (!all)
		return false;
	all->ss_n = n;
	for (uint32_t i = 0; was && i < n && i < was->ss_n; i++)
		atomic_init(&all->ss_slot[i], atomic_load(&was->ss_slot[i]));
	atomic_store_explicit(&s->se_slots, all, memory_order_release);
	if (was)
		urcu_memb_call_rcu(&was->ss_rcu, all_free);
	return true;
}

static struct st_slot *slot_new(struct st *st, struct st_session *s, uint32_t slot, uint32_t seq)
{
	struct st_slots *all = atomic_load(&s->se_slots);
	uint32_t n = all ? all->ss_n : 1;
	struct st_slot *sl;

	while (n <= slot)
		n *= 2;
	if ((!all || n > all->ss_n) && !resize(s, n))
		return NULL;
	sl = aligned_alloc(_Alignof(struct st_slot), sizeof(*sl));
	if (!sl)
		return NULL;
	memset(sl, 0, sizeof(*sl));
	atomic_init(&sl->sl_state, TURN(BUSY, seq));
	sl->sl_fresh = true;
	all = atomic_load(&s->se_slots);
	atomic_store_explicit(&all->ss_slot[slot], sl, memory_order_release);
	atomic_fetch_add(&st->st_nslots, 1);
	kept(st, s, sizeof(*sl));
	return sl;
}

/* The slot is no longer in the table, or the table goes as well. */
static void slot_gone(struct st *st, struct st_session *s, struct st_slot *sl)
{
	kept(st, s, -(int64_t)(sizeof(*sl) + sl->sl_told));
	atomic_fetch_sub(&st->st_nslots, 1);
	urcu_memb_call_rcu(&sl->sl_rcu, slot_free);
}

void st_slots_free(struct st *st, struct st_session *s)
{
	struct st_slots *all;

	pthread_mutex_lock(&s->se_lock);
	all = atomic_exchange(&s->se_slots, NULL);
	for (uint32_t i = 0; all && i < all->ss_n; i++) {
		if (atomic_load(&all->ss_slot[i]))
			slot_gone(st, s, atomic_load(&all->ss_slot[i]));
	}
	if (all)
		urcu_memb_call_rcu(&all->ss_rcu, all_free);
	kept(st, s, -(int64_t)(s->se_npast * sizeof(*s->se_past)));
	free(s->se_past);
	s->se_past = NULL;
	s->se_npast = 0;
	assert(s->se_kept == 0);
	pthread_mutex_unlock(&s->se_lock);
}

/* Keeps the last sequence id of a slot that is removed. false: no memory */
static bool past_keep(struct st *st, struct st_session *s, uint32_t slot, uint32_t seq)
{
	if (slot >= s->se_npast) {
		uint32_t *p = realloc(s->se_past, (slot + 1) * sizeof(*p));

		if (!p)
			return false;
		memset(p + s->se_npast, 0, (slot + 1 - s->se_npast) * sizeof(*p));
		kept(st, s, (slot + 1 - s->se_npast) * sizeof(*p));
		s->se_past = p;
		s->se_npast = slot + 1;
	}
	s->se_past[slot] = seq;
	return true;
}

/* Whether seq may be the first sequence id in a slot that does not exist. */
static bool first_of(const struct st_session *s, uint32_t slot, uint32_t seq)
{
	return seq == 1 || (slot < s->se_npast && s->se_past[slot] && seq == s->se_past[slot] + 1);
}

static void retarget(struct st_session *s, uint32_t target)
{
	struct st_quota r = st_quota(s);

	if (target == r.r_target)
		return;
	r.r_target = (uint16_t)target;
	r.r_gen++;
	if (r.r_nslots < target)
		r.r_nslots = (uint16_t)target;
	atomic_store(&s->se_room, r);
}

/* False: the slot is busy, or memory is short. */
static bool slot_retire(struct st *st, struct st_session *s, uint32_t slot)
{
	struct st_slot *sl = st_slot_get(s, slot);
	struct st_slots *all = atomic_load(&s->se_slots);
	uint64_t turn;

	if (!sl)
		return true;
	turn = atomic_load(&sl->sl_state);
	if (slot_state_of(turn) != FREE || !past_keep(st, s, slot, (uint32_t)turn) ||
	    !atomic_compare_exchange_strong(&sl->sl_state, &turn, TURN(GONE, turn)))
		return false;
	st_renewed(s->se_client, atomic_load_explicit(&sl->sl_renewed_ns, memory_order_relaxed));
	atomic_store_explicit(&all->ss_slot[slot], NULL, memory_order_release);
	slot_gone(st, s, sl);
	return true;
}

/* The client knows the target and has nothing outstanding above it. A busy slot there is one that
 * the client has given up; it stays until its request is done. */
static void retire(struct st *st, struct st_session *s)
{
	struct st_quota r = st_quota(s);
	const struct st_slots *all = atomic_load(&s->se_slots);

	while (r.r_nslots > r.r_target && slot_retire(st, s, r.r_nslots - 1u))
		r.r_nslots--;
	atomic_store(&s->se_room, r);
	if (all && r.r_nslots <= all->ss_n / 2)
		resize(s, r.r_nslots);
}

uint32_t st_slots_grant(struct st *st, struct st_session *s, uint32_t asked)
{
	struct st_quota r = {0};

	s->se_most = asked < ST_SLOTS ? asked : ST_SLOTS;
	r.r_target = r.r_nslots = (uint16_t)(s->se_most < SLOTS_START ? s->se_most : SLOTS_START);
	atomic_store(&s->se_room, r);
	atomic_store(&s->se_reviewed_ns, st_now_ns(st));
	(void)st;
	return r.r_nslots;
}

/* ---- what a request does ---- */

/* True when all sessions together use at least this part (in quarters) of their limit, and this
 * session uses more than its share of that part. */
static bool crowded(const struct st *st, const struct st_session *s, unsigned part)
{
	uint64_t some = st->st_kept_max / 4 * part;

	/* sessions may end meanwhile, so that the count may be 0 */
	return atomic_load(&st->st_kept) >= some &&
	       atomic_load(&s->se_kept) > some / (atomic_load(&st->st_nsessions) | 1);
}

static uint64_t review_period(const struct st *st, bool crowd)
{
	return st->st_lease_ms * (crowd ? 125000ull : 1000000ull);
}

/* Once a lease, lowers the target by the slots that the client did not need. In a crowd, halves it
 * eight times as often, whether the slots are needed or not. */
static void review(struct st *st, struct st_session *s, uint64_t now, bool crowd)
{
	uint32_t least = crowd ? ST_SLOTS_LEAST : SLOTS_IDLE, want = atomic_load(&s->se_peak) * 2,
		 target = st_quota(s).r_target;

	if (now < atomic_load(&s->se_reviewed_ns) + review_period(st, crowd))
		return;
	if (crowd)
		want = target / 2;
	if (want < least)
		want = least;
	if (want < target)
		retarget(s, want);
	atomic_store(&s->se_reviewed_ns, now);
	atomic_store(&s->se_peak, 0);
	atomic_fetch_add(&s->se_reviews, 1);
}

static void peak(struct st_session *s, uint32_t used)
{
	uint32_t was = atomic_load_explicit(&s->se_peak, memory_order_relaxed);

	while (was < used && !atomic_compare_exchange_weak(&s->se_peak, &was, used))
		;
}

static bool grows(const struct st_session *s, uint32_t highest, bool crowd)
{
	struct st_quota r = st_quota(s);

	return highest + 1 >= r.r_nslots && r.r_nslots == r.r_target && r.r_target < s->se_most &&
	       !crowd;
}

/* Updates the session's slot counts after this request arrived. */
static void room_review(struct st *st, struct st_session *s, struct st_seq *q, uint64_t now)
{
	struct st_quota r = st_quota(s);
	uint32_t highest = q->sq_highest < q->sq_slot ? q->sq_slot : q->sq_highest;
	bool knows = !q->sq_sl->sl_fresh && q->sq_sl->sl_gen == r.r_gen, crowd = crowded(st, s, 2),
	     retires, grow;

	peak(s, highest < r.r_nslots ? highest + 1 : r.r_nslots);
	retires = knows && highest < r.r_target && r.r_nslots > r.r_target;
	grow = grows(s, highest, crowd);
	if (retires || grow || now >= atomic_load(&s->se_reviewed_ns) + review_period(st, crowd)) {
		pthread_mutex_lock(&s->se_lock);
		r = st_quota(s);
		/* Another thread may have changed the target meanwhile, and the client does not
		 * know the new one. */
		if (retires && q->sq_sl->sl_gen == r.r_gen)
			retire(st, s);
		if (grows(s, highest, crowd))
			retarget(s, r.r_target * 2u < s->se_most ? r.r_target * 2u : s->se_most);
		else
			review(st, s, now, crowd);
		r = st_quota(s);
		pthread_mutex_unlock(&s->se_lock);
	}
	q->sq_room = r;
}

/* Frees the slot: its request was answered, or did not begin. */
static void slot_leave(struct st *st, struct st_session *s, struct st_slot *sl, uint32_t seq)
{
	atomic_store(&sl->sl_state, TURN(FREE, seq));
	if (atomic_load(&s->se_dead))
		st_session_over(st, s);
}

/* The caller has made sq_sl busy. */
static nfsstat4 slot_begin(struct st *st, struct st_session *s, struct st_seq *q)
{
	struct st_client *c = s->se_client;
	struct st_slot *sl = q->sq_sl;
	uint64_t now;

	if (atomic_load(&s->se_dead) || atomic_load(&c->cl_evicting)) {
		nfsstat4 status = atomic_load(&s->se_dead) ? NFS4ERR_BADSESSION : NFS4ERR_DELAY;

		slot_leave(st, s, sl, q->sq_seq - 1);
		return status;
	}
	q->sq_lapsed = st_client_lapsed(c);
	if (q->sq_lapsed) {
		slot_leave(st, s, sl, q->sq_seq - 1);
		return NFS4ERR_DELAY;
	}
	now = st_now_ns(st);
	room_review(st, s, q, now);
	sl->sl_fresh = false;
	sl->sl_cached = false;
	sl->sl_gen = q->sq_room.r_gen;
	atomic_store_explicit(&sl->sl_renewed_ns, now, memory_order_relaxed);
	if (now > atomic_load(&c->cl_renewed_ns) + st->st_lease_ms * 1000000ull / RENEW_PART)
		st_renewed(c, now);
	if (!atomic_load(&s->se_used))
		atomic_store(&s->se_used, true);
	return NFS4_OK;
}

static bool slot_refused(const struct st *st, const struct st_session *s, struct st_seq *q)
{
	if (!q->sq_refused && q->sq_keep && q->sq_slot >= ST_SLOTS_LEAST &&
	    atomic_load(&st->st_kept) >= st->st_kept_max && crowded(st, s, 4))
		q->sq_refused = NFS4ERR_DELAY;
	return q->sq_refused;
}

/* The slot does not exist. AGAIN: another thread has just made it. */
static nfsstat4 slot_first(struct st *st, struct st_session *s, struct st_seq *q)
{
	nfsstat4 status = NFS4_OK;

	q->sq_retry = false;
	pthread_mutex_lock(&s->se_lock);
	if (atomic_load(&s->se_dead))
		status = NFS4ERR_BADSESSION;
	else if (q->sq_slot >= st_quota(s).r_nslots)
		status = NFS4ERR_BADSLOT;
	else if (st_slot_get(s, q->sq_slot))
		status = AGAIN;
	else if (!first_of(s, q->sq_slot, q->sq_seq))
		status = NFS4ERR_SEQ_MISORDERED;
	else if (slot_refused(st, s, q))
		status = q->sq_refused;
	else if (!(q->sq_sl = slot_new(st, s, q->sq_slot, q->sq_seq)))
		status = NFS4ERR_DELAY;
	pthread_mutex_unlock(&s->se_lock);
	return status;
}

/* The slot exists. AGAIN: another thread changes it at this moment. */
static nfsstat4 slot_next(struct st *st, struct st_session *s, struct st_seq *q, struct st_slot *sl)
{
	uint64_t turn = atomic_load(&sl->sl_state);
	uint32_t last = (uint32_t)turn;

	q->sq_sl = sl;
	q->sq_retry = q->sq_seq == last;
	switch (slot_state_of(turn)) {
	case BUSY:
		return q->sq_retry ? NFS4ERR_DELAY : NFS4ERR_SEQ_MISORDERED;
	case HELD:
		sched_yield();
		return AGAIN;
	case GONE:
		return slot_first(st, s, q);
	}
	if (!q->sq_retry && q->sq_seq != last + 1)
		return NFS4ERR_SEQ_MISORDERED;
	if (!q->sq_retry && slot_refused(st, s, q))
		return q->sq_refused;
	return atomic_compare_exchange_strong(&sl->sl_state, &turn,
					      TURN(q->sq_retry ? HELD : BUSY, q->sq_seq))
		       ? NFS4_OK
		       : AGAIN;
}

nfsstat4 st_slot_take(struct st *st, struct st_session *s, struct st_seq *q)
{
	struct st_slot *sl;
	nfsstat4 status;

	do {
		sl = st_slot_get(s, q->sq_slot);
		status = sl ? slot_next(st, s, q, sl) : slot_first(st, s, q);
	} while (status == AGAIN);
	if (status)
		return status;
	if (!q->sq_retry)
		return slot_begin(st, s, q);
	if (!q->sq_sl->sl_fresh) {
		/* In this order: a tick sets the mark and then reads when the client was heard. */
		st_client_renew(st, s->se_client);
		q->sq_lapsed = st_client_lapsed(s->se_client);
		if (!q->sq_lapsed)
			return NFS4_OK;
	}
	st_slot_let(q->sq_sl);
	return q->sq_lapsed ? NFS4ERR_DELAY : NFS4ERR_SEQ_MISORDERED;
}

void st_slot_let(struct st_slot *sl)
{
	atomic_store(&sl->sl_state, TURN(FREE, atomic_load(&sl->sl_state)));
}

/* ---- grants ---- */

/* A session that has ended carries no replies any more: its client has received them all, or never
 * will. */
static bool grant_seen(struct st *st, const struct st_grant *g)
{
	const struct st_session *s = st_session_find(st, g->g_session);
	const struct st_slot *sl = s ? st_slot_get(s, g->g_slot) : NULL;

	return !sl || st_slot_seq(sl) != g->g_seq;
}

bool st_grants_seen(struct st *st, struct st_grants *g)
{
	unsigned n = 0;

	urcu_memb_read_lock();
	for (unsigned i = 0; i < g->gs_n; i++) {
		if (!grant_seen(st, &g->gs_grant[i]))
			g->gs_grant[n++] = g->gs_grant[i];
	}
	urcu_memb_read_unlock();
	g->gs_n = (uint8_t)n;
	if (!n && g->gs_more &&
	    st_since(g->gs_more_ns, st_now_ns(st)) > st->st_lease_ms * 1000000ull)
		g->gs_more = false;
	return !n && !g->gs_more;
}

void st_granted(struct st *st, struct st_grants *g, const struct st_session *s, uint32_t slot,
		uint32_t seq)
{
	if (g->gs_n == ST_GRANTS)
		st_grants_seen(st, g);
	if (g->gs_n == ST_GRANTS) {
		g->gs_more = true;
		g->gs_more_ns = st_now_ns(st);
		g->gs_n--;
		memmove(g->gs_grant, g->gs_grant + 1, g->gs_n * sizeof(g->gs_grant[0]));
	}
	memcpy(g->gs_grant[g->gs_n].g_session, s->se_id, NFS4_SESSIONID_SIZE);
	g->gs_grant[g->gs_n].g_slot = slot;
	g->gs_grant[g->gs_n++].g_seq = seq;
}

void st_slot_done(struct st *st, struct st_session *s, struct st_slot *sl, uint8_t *reply,
		  uint32_t len)
{
	free(sl->sl_reply);
	sl->sl_reply = reply;
	sl->sl_len = len;
	sl->sl_cached = reply != NULL;
	slot_tell(st, s, sl);
	/* Renews the lease. The client was not silent while the server took long over its request
	 * (a recall, a data server that is away): it had no reason to send another. Stored before
	 * the slot looks idle. */
	atomic_store_explicit(&sl->sl_renewed_ns, st_now_ns(st), memory_order_relaxed);
	urcu_memb_read_lock();
	slot_leave(st, s, sl, (uint32_t)atomic_load(&sl->sl_state));
	urcu_memb_read_unlock();
}
