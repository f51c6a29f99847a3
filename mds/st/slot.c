/*
 * slot.c - slot tables that grow and shrink, and the replies kept in them (RFC 8881 section 2.10.6.1).
 *
 * A slot costs memory once it is used. A session begins with few; the target rises as the client uses its top slots, and falls when it has not needed them for
 * a lease, or sooner when what is kept for all sessions nears the limit and this one has more than its share. Slots above the target go when the client has
 * shown that it knows the target: a new request on a slot whose last reply told it, with nothing outstanding above. So no reply that a client may still ask
 * for goes. A client begins again at sequence 1 in a slot that it is given anew.
 *
 * At the limit the first slots of every session serve as ever; in others a request whose reply must be kept is put off. The most that is kept is therefore the limit, and
 * ST_SLOTS_LEAST replies a session.
 */
#include "base/clock.h"
#include "mds/st/st.h"
#include <assert.h>

#define SLOTS_START 16u /* granted at CREATE_SESSION */
#define KEPT_STEP 256u   /* bytes */
#define SLOTS_IDLE 4u   /* left to a session that is idle */

struct st_slot *st_slot_get(const struct st_session *s, uint32_t slot)
{
	return slot < s->se_nslot_ptrs ? s->se_slot[slot] : NULL;
}

/* What all sessions keep is told with some room, so that it is not written with every reply: a quarter more than is kept, in steps, when a session keeps more than it told, and
 * anew at a review and when slots go. */
static void kept_tell(struct st *st, struct st_session *s)
{
	uint64_t told = s->se_kept ? (s->se_kept + s->se_kept / 4 + KEPT_STEP - 1) / KEPT_STEP * KEPT_STEP : 0;

	if (told != s->se_told)
		atomic_fetch_add_explicit(&st->st_kept, told - s->se_told, memory_order_relaxed);
	s->se_told = told;
}

static void kept(struct st *st, struct st_session *s, int64_t bytes)
{
	s->se_kept += (uint64_t)bytes;
	if (s->se_kept > s->se_told)
		kept_tell(st, s);
}

bool st_slot_next(const struct st_session *s, uint32_t slot, uint32_t seq)
{
	const struct st_slot *sl = st_slot_get(s, slot);

	if (sl)
		return seq == sl->sl_seq + 1;
	return seq == 1 || (slot < s->se_npast && s->se_past[slot] && seq == s->se_past[slot] + 1);
}

/* The number of a slot that goes. false: no memory */
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

static struct st_slot *slot_new(struct st *st, struct st_session *s, uint32_t slot)
{
	uint32_t n = s->se_nslot_ptrs ? s->se_nslot_ptrs : 1;
	struct st_slot **p;

	while (n <= slot)
		n *= 2;
	if (n > s->se_nslot_ptrs) {
		p = realloc(s->se_slot, n * sizeof(struct st_slot *));
		if (!p)
			return NULL;
		memset(p + s->se_nslot_ptrs, 0, (n - s->se_nslot_ptrs) * sizeof(struct st_slot *));
		s->se_slot = p;
		s->se_nslot_ptrs = n;
	}
	s->se_slot[slot] = calloc(1, sizeof(struct st_slot));
	if (!s->se_slot[slot])
		return NULL;
	st->st_nslots++;
	kept(st, s, sizeof(struct st_slot));
	return s->se_slot[slot];
}

static void slot_free(struct st *st, struct st_session *s, uint32_t slot)
{
	struct st_slot *sl = s->se_slot[slot];

	if (!sl)
		return;
	kept(st, s, -(int64_t)(sizeof(*sl) + sl->sl_len));
	st->st_nslots--;
	free(sl->sl_reply);
	free(sl);
	s->se_slot[slot] = NULL;
	kept_tell(st, s);
}

void st_slots_free(struct st *st, struct st_session *s)
{
	for (uint32_t i = 0; i < s->se_nslot_ptrs; i++)
		slot_free(st, s, i);
	kept(st, s, -(int64_t)(s->se_npast * sizeof(*s->se_past)));
	free(s->se_past);
	assert(s->se_kept == 0);
	kept_tell(st, s);
	free(s->se_slot);
}

uint32_t st_slots_grant(struct st *st, struct st_session *s, uint32_t asked)
{
	s->se_most = asked < ST_SLOTS ? asked : ST_SLOTS;
	s->se_target = s->se_nslots = s->se_most < SLOTS_START ? s->se_most : SLOTS_START;
	s->se_reviewed_ns = clock_mono_ns();
	(void)st;
	return s->se_nslots;
}

/* All sessions together keep this part (of 4) of what they may, and this one has more than its share of it. */
static bool crowded(const struct st *st, const struct st_session *s, unsigned part)
{
	uint64_t some = st->st_kept_max / 4 * part;

	return st->st_kept >= some && s->se_kept > some / (st->st_nsessions | 1); /* it may go meanwhile */
}

static void retarget(struct st_session *s, uint32_t target)
{
	if (target == s->se_target)
		return;
	s->se_target = target;
	s->se_gen++;
	if (s->se_nslots < target)
		s->se_nslots = target;
}

/* Once a lease, what was not needed since is asked back; eight times as often in a crowd, and then half of it whether needed or not. */
static void review(struct st *st, struct st_session *s, uint64_t now)
{
	bool crowd = crowded(st, s, 2);
	uint64_t period = st->st_lease_ms * (crowd ? 125000ull : 1000000ull);
	uint32_t least = crowd ? ST_SLOTS_LEAST : SLOTS_IDLE, want = s->se_peak * 2;

	if (now - s->se_reviewed_ns < period)
		return;
	if (crowd)
		want = s->se_target / 2;
	if (want < least)
		want = least;
	if (want < s->se_target)
		retarget(s, want);
	s->se_reviewed_ns = now;
	s->se_peak = 0;
	kept_tell(st, s);
}

/* The client knows the target, and has nothing outstanding above it. A slot that is busy all the same is one it has given up: it stays until it is done. */
static void retire(struct st *st, struct st_session *s)
{
	uint32_t n = s->se_nslots;

	while (n > s->se_target) {
		struct st_slot *sl = st_slot_get(s, n - 1);

		if (sl && (sl->sl_busy || !past_keep(st, s, n - 1, sl->sl_seq)))
			break;
		if (sl)
			slot_free(st, s, n - 1);
		n--;
	}
	s->se_nslots = n;
	if (n <= s->se_nslot_ptrs / 2) {
		struct st_slot **p = realloc(s->se_slot, n * sizeof(struct st_slot *));

		if (p) {
			s->se_slot = p;
			s->se_nslot_ptrs = n;
		}
	}
}

static nfsstat4 slot_begin(struct st *st, struct st_session *s, uint32_t slot, uint32_t seq, uint32_t highest, bool keep, struct st_slot **out)
{
	struct st_slot *sl = st_slot_get(s, slot);
	uint64_t now = clock_mono_ns();
	bool knows = sl && sl->sl_gen == s->se_gen;

	if (keep && slot >= ST_SLOTS_LEAST && st->st_kept >= st->st_kept_max && crowded(st, s, 4))
		return NFS4ERR_DELAY;
	if (!sl)
		sl = slot_new(st, s, slot);
	if (!sl)
		return NFS4ERR_DELAY;
	if (highest < slot)
		highest = slot;
	if (s->se_peak <= highest)
		s->se_peak = highest < s->se_nslots ? highest + 1 : s->se_nslots;
	if (knows && highest < s->se_target && s->se_nslots > s->se_target)
		retire(st, s);
	if (highest + 1 >= s->se_nslots && s->se_nslots == s->se_target && s->se_target < s->se_most && !crowded(st, s, 2))
		retarget(s, s->se_target * 2 < s->se_most ? s->se_target * 2 : s->se_most);
	else
		review(st, s, now);
	sl->sl_seq = seq;
	sl->sl_gen = s->se_gen;
	sl->sl_busy = true;
	sl->sl_cached = false;
	if (!s->se_used)
		s->se_used = true;
	atomic_store(&s->se_client->cl_renewed_ns, now);
	*out = sl;
	return NFS4_OK;
}

nfsstat4 st_slot_begin(struct st *st, struct st_session *s, uint32_t slot, uint32_t seq, uint32_t highest, bool keep, struct st_slot **out)
{
	nfsstat4 status = NFS4ERR_DELAY; /* and its session is gone then */

	atomic_fetch_add(&s->se_client->cl_busy, 1);
	if (!s->se_client->cl_evicting)
		status = slot_begin(st, s, slot, seq, highest, keep, out);
	if (status)
		atomic_fetch_sub(&s->se_client->cl_busy, 1);
	return status;
}

void st_slot_done(struct st *st, struct st_session *s, struct st_slot *sl, uint8_t *reply, uint32_t len)
{
	kept(st, s, (int64_t)len - sl->sl_len);
	free(sl->sl_reply);
	sl->sl_reply = reply;
	sl->sl_len = len;
	sl->sl_cached = reply != NULL;
	sl->sl_busy = false;
	/* A request that we took long over (a recall, a data server that is away) is no silence of the client's: it had no cause to send another. */
	atomic_store(&s->se_client->cl_renewed_ns, clock_mono_ns()); /* before it looks idle */
	atomic_fetch_sub(&s->se_client->cl_busy, 1);
}
