/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions and their slots, alone and with threads that use, shrink, destroy and bar them at the
 * same time. */
#include "base/clock.h"
#include "mds/state/st.h"
#include "tests/unit/unit.h"
#include <assert.h>
#include <stdlib.h>
#include <unistd.h>

enum { SENDERS = 4, SLOTS = 24, SESSIONS = 2, MOST = 64 };
#define SECONDS 2

static struct st st;
static struct st_client *client;
static uint8_t id[SESSIONS][16]; /* under all */
static _Atomic uint32_t made[SESSIONS];
static _Atomic bool over;
static _Atomic int in_hand, has_begun, was_retried, was_refused, has_gone, has_left;

static struct st_session *session_new(uint32_t slots)
{
	struct st_session *s = st_session_new(&st, client);

	assert(s);
	st_slots_grant(&st, s, slots);
	st_session_publish(&st, s);
	return s;
}

static void setup(void)
{
	memset(&st, 0, sizeof(st));
	st_clock_init(&st);
	st.st_lease_ms = 100000;
	st.st_kept_max = 1 << 20;
	st.st_by_id = calloc(ST_BY_ID, sizeof(*st.st_by_id));
	ck_assert_int_eq(st_shards_new(&st), 0);
	urcu_memb_register_thread();
	client = st_client_new(&st, "o", 1, (const uint8_t *)"verifier");
	ck_assert_ptr_nonnull(client);
	over = false;
}

/* All is gone with the client, and was counted rightly. */
static void teardown(void)
{
	st_all_lock(&st);
	ck_assert_uint_eq(client->cl_refs, 1 + client->cl_nsessions);
	ck_assert_ptr_null(client->cl_dead_sessions);
	st_client_destroy(&st, client);
	st_all_unlock(&st);
	ck_assert_uint_eq(st.st_nslots, 0);
	ck_assert_uint_eq(st.st_kept, 0);
	ck_assert_uint_eq(st.st_nsessions, 0);
	urcu_memb_barrier();
	urcu_memb_unregister_thread();
	free(st.st_by_id);
	free(st.st_shards);
	free(st.st_clients.h_slot);
	free(st.st_owners.h_slot);
	free(st.st_sessions.h_slot);
}

static nfsstat4 take(const uint8_t to[16], uint32_t slot, uint32_t seq, uint32_t highest,
		     struct st_seq *q, struct st_session **s)
{
	nfsstat4 status = NFS4ERR_BADSESSION;

	*q = (struct st_seq){
		.sq_slot = slot, .sq_seq = seq, .sq_highest = highest, .sq_keep = true};
	*s = st_session_find(&st, to);
	if (*s && slot >= ((struct st_quota)(*s)->se_room).r_nslots)
		status = NFS4ERR_BADSLOT;
	else if (*s)
		status = st_slot_take(&st, *s, q);
	return status;
}

static nfsstat4 ask(const uint8_t to[16], uint32_t slot, uint32_t seq, struct st_seq *q)
{
	struct st_session *s;
	nfsstat4 status;

	urcu_memb_read_lock();
	status = take(to, slot, seq, slot, q, &s);
	if (!status && q->sq_retry)
		st_slot_let(q->sq_sl);
	urcu_memb_read_unlock();
	return status;
}

static uint8_t *reply_of(uint32_t slot, uint32_t seq, uint32_t *len)
{
	uint8_t *p;

	*len = 8 + seq * 37 % 700;
	p = malloc(*len);
	assert(p);
	memset(p, (int)seq, *len);
	memcpy(p, &slot, 4);
	memcpy(p + 4, &seq, 4);
	return p;
}

static void done(struct st_session *s, const struct st_seq *q)
{
	uint32_t len;
	uint8_t *p = reply_of(q->sq_slot, q->sq_seq, &len);

	st_slot_done(&st, s, q->sq_sl, p, len);
}

/* The reply is the one of this request. */
static void same_reply(const struct st_seq *q)
{
	uint32_t len;
	uint8_t *p = reply_of(q->sq_slot, q->sq_seq, &len);

	assert(q->sq_sl->sl_cached && q->sq_sl->sl_len == len &&
	       memcmp(p, q->sq_sl->sl_reply, len) == 0);
	free(p);
}

START_TEST(a_slot_has_one_request_at_a_time_and_keeps_its_reply)
{
	struct st_session *s = session_new(MOST);
	struct st_seq q, r;

	ck_assert_uint_eq(ask(s->se_id, 3, 0, &q), NFS4ERR_SEQ_MISORDERED);
	ck_assert_uint_eq(ask(s->se_id, 3, 2, &q), NFS4ERR_SEQ_MISORDERED);
	ck_assert_uint_eq(ask(s->se_id, 16, 1, &q), NFS4ERR_BADSLOT);
	ck_assert_uint_eq(ask(s->se_id, 3, 1, &q), NFS4_OK);
	ck_assert(!q.sq_retry && st_slot_busy(q.sq_sl) && st_slot_seq(q.sq_sl) == 1);
	ck_assert_uint_eq(ask(s->se_id, 3, 1, &r), NFS4ERR_DELAY);
	ck_assert_uint_eq(ask(s->se_id, 3, 2, &r), NFS4ERR_SEQ_MISORDERED);
	done(s, &q);
	ck_assert_uint_eq(ask(s->se_id, 3, 1, &r), NFS4_OK);
	ck_assert(r.sq_retry);
	same_reply(&r);
	ck_assert_uint_eq(ask(s->se_id, 3, 3, &r), NFS4ERR_SEQ_MISORDERED);
	ck_assert_uint_eq(ask(s->se_id, 3, 2, &q), NFS4_OK);
	ck_assert(!q.sq_retry);
	done(s, &q);
	ck_assert_uint_eq(st.st_nslots, 1);
}
END_TEST

START_TEST(a_session_ends_when_its_last_request_is_answered)
{
	struct st_session *s = session_new(MOST);
	struct st_seq q, r;

	ck_assert_uint_eq(ask(s->se_id, 0, 1, &q), NFS4_OK);
	ck_assert_uint_eq(ask(s->se_id, 9, 1, &r), NFS4_OK);
	st_all_lock(&st);
	st_session_destroy(&st, s);
	st_all_unlock(&st);
	ck_assert_uint_eq(client->cl_refs, 2);
	done(s, &q);
	ck_assert_uint_eq(client->cl_refs, 2);
	ck_assert_uint_eq(st.st_nslots, 2);
	done(s, &r);
	ck_assert_uint_eq(client->cl_refs, 1);
	ck_assert_ptr_null(client->cl_dead_sessions);
	ck_assert_uint_eq(st.st_nslots, 0);
	ck_assert_uint_eq(st.st_kept, 0);
}
END_TEST

/* Be its session alive, or destroyed meanwhile. */
START_TEST(a_lease_runs_from_when_the_last_request_was_answered)
{
	struct st_session *s = session_new(MOST), *t = session_new(MOST);
	uint64_t lease = 20000000, before, after;
	struct st_seq q, r;

	/* No pause is taken off the clock, however long this takes. */
	atomic_store(&st.st_clock_seen_ns, UINT64_MAX / 2);
	st.st_lease_ms = lease / 1000000;
	ck_assert_uint_eq(ask(s->se_id, 0, 1, &q), NFS4_OK);
	ck_assert_uint_eq(ask(t->se_id, 5, 1, &r), NFS4_OK);
	st_all_lock(&st);
	st_session_destroy(&st, s);
	st_all_unlock(&st);
	done(t, &r);
	after = st_now_ns(&st);
	ck_assert(!st_silent_over(client, after + 3 * lease, lease) && !st_client_leaves(client) &&
		  st_silent_ns(client, after + 3 * lease) == 0);
	before = st_now_ns(&st);
	done(s, &q);
	after = st_now_ns(&st);
	ck_assert(!st_silent_over(client, before + lease, lease));
	ck_assert(st_silent_over(client, after + lease + 1, lease));
	usleep(30000);
	ck_assert(st_lease_expired(&st, client));
	/* To the nanosecond, though the client itself is written more rarely. */
	ck_assert_uint_eq(ask(t->se_id, 5, 2, &r), NFS4_OK);
	before = st_now_ns(&st);
	done(t, &r);
	ck_assert(!st_silent_over(client, before + lease, lease));
	st.st_lease_ms = 1000000;
	ck_assert(!st_lease_expired(&st, client));
	ck_assert_uint_eq(ask(t->se_id, 6, 1, &r), NFS4_OK);
	ck_assert_uint_lt(client->cl_renewed_ns, r.sq_sl->sl_renewed_ns);
	done(t, &r);
	ck_assert_uint_eq(st_silent_ns(client, r.sq_sl->sl_renewed_ns + 5), 5);
}
END_TEST

START_TEST(no_request_of_a_client_that_leaves_begins)
{
	struct st_session *s = session_new(MOST);
	struct st_seq q;

	ck_assert_uint_eq(ask(s->se_id, 0, 1, &q), NFS4_OK);
	ck_assert(!st_client_leaves(client));
	done(s, &q);
	ck_assert(st_client_leaves(client));
	ck_assert_uint_eq(ask(s->se_id, 0, 2, &q), NFS4ERR_DELAY);
	ck_assert_uint_eq(ask(s->se_id, 1, 1, &q), NFS4ERR_DELAY);
	ck_assert_uint_eq(ask(s->se_id, 0, 1, &q), NFS4_OK); /* a retry */
	ck_assert(q.sq_retry);
	client->cl_evicting = false;
	/* its first was refused: no retry of that */
	ck_assert_uint_eq(ask(s->se_id, 1, 0, &q), NFS4ERR_SEQ_MISORDERED);
	ck_assert_uint_eq(ask(s->se_id, 1, 1, &q), NFS4_OK);
	done(s, &q);
	ck_assert_uint_eq(ask(s->se_id, 0, 2, &q), NFS4_OK);
	done(s, &q);
}
END_TEST

/* ---- all at once ---- */

static uint32_t rnd(unsigned *seed)
{
	return (uint32_t)rand_r(seed);
}

static void current(unsigned which, uint8_t out[16], uint32_t *made_as)
{
	st_all_lock(&st);
	memcpy(out, id[which], 16);
	*made_as = made[which];
	st_all_unlock(&st);
}

/* A request that is the caller's: in hand for a while. */
static void serve(struct st_session *s, const struct st_seq *q, unsigned *seed)
{
	in_hand++;
	has_begun++;
	assert(st_slot_busy(q->sq_sl) && st_slot_seq(q->sq_sl) == q->sq_seq);
	assert(q->sq_room.r_nslots > q->sq_slot && q->sq_room.r_target);
	if (rnd(seed) % 64 == 0)
		usleep(rnd(seed) % 300);
	in_hand--;
	done(s, q);
}

/* Somebody else's last request again. */
static void pry(const uint8_t to[16], unsigned *seed)
{
	uint32_t slot = rnd(seed) % SLOTS;
	struct st_session *s;
	struct st_slot *sl;
	struct st_seq q;
	uint64_t turn;

	urcu_memb_read_lock();
	s = st_session_find(&st, to);
	sl = s ? st_slot_get(s, slot) : NULL;
	/* above 2, free: not one that may yet be refused, and asked for anew */
	turn = sl ? sl->sl_state : 0;
	if (turn > 2 && turn <= UINT32_MAX && !take(to, slot, (uint32_t)turn, slot, &q, &s)) {
		assert(q.sq_retry);
		same_reply(&q);
		st_slot_let(q.sq_sl);
		was_retried++;
	}
	urcu_memb_read_unlock();
}

/* Slots are dealt to the senders: each knows the sequence of its own. */
static void *sender(void *arg)
{
	unsigned me = *(unsigned *)arg, seed = me + 1;
	uint32_t seq[SESSIONS][SLOTS] = {{0}}, as[SESSIONS] = {0};
	uint8_t to[SESSIONS][16];

	urcu_memb_register_thread();
	while (!over) {
		unsigned which = rnd(&seed) % SESSIONS;
		uint32_t slot = rnd(&seed) % (SLOTS / SENDERS) * SENDERS + me;
		bool again = rnd(&seed) % 4 == 0 && seq[which][slot];
		struct st_session *s;
		struct st_seq q;
		nfsstat4 status;

		if (as[which] != made[which]) {
			current(which, to[which], &as[which]);
			memset(seq[which], 0, sizeof(seq[which]));
			continue;
		}
		urcu_memb_read_lock();
		status = take(to[which], slot, seq[which][slot] + !again, rnd(&seed) % 8 ? slot : 0,
			      &q, &s);
		if (!status && q.sq_retry) {
			assert(again);
			same_reply(&q);
			st_slot_let(q.sq_sl);
		}
		urcu_memb_read_unlock();
		if (!status && !q.sq_retry) {
			serve(s, &q, &seed);
			seq[which][slot] = q.sq_seq;
		} else if (status == NFS4ERR_SEQ_MISORDERED) {
			assert(again); /* the slot went */
		} else {
			was_refused += status == NFS4ERR_DELAY;
			has_gone += status == NFS4ERR_BADSESSION;
			assert(!status || status == NFS4ERR_DELAY || status == NFS4ERR_BADSESSION ||
			       status == NFS4ERR_BADSLOT);
		}
		pry(to[which], &seed);
		if (rnd(&seed) % 32 == 0)
			usleep(rnd(&seed) % 300);
	}
	urcu_memb_unregister_thread();
	return NULL;
}

static void *destroyer(void *arg)
{
	unsigned seed = 77;

	(void)arg;
	urcu_memb_register_thread();
	while (!over) {
		unsigned which = rnd(&seed) % SESSIONS;

		st_all_lock(&st);
		st_session_destroy(&st, st_session_get(&st, id[which]));
		memcpy(id[which], session_new(MOST)->se_id, 16);
		made[which]++;
		st_all_unlock(&st);
		usleep(rnd(&seed) % 3000);
	}
	urcu_memb_unregister_thread();
	return NULL;
}

static void *evictor(void *arg)
{
	(void)arg;
	while (!over) {
		st_all_lock(&st);
		if (st_client_leaves(client)) {
			assert(!in_hand);
			for (unsigned i = 0; i < 100; i++)
				assert(!in_hand);
			has_left++;
			client->cl_evicting = false;
		} else {
			assert(!client->cl_evicting);
		}
		st_all_unlock(&st);
		st_lease_expired(&st, client);
		usleep(100);
	}
	return NULL;
}

static bool enough(void)
{
	return has_begun > 1000 && was_retried > 10 && has_gone > 10 && has_left;
}

START_TEST(slots_are_used_shrunk_destroyed_and_barred_at_the_same_time)
{
	unsigned number[SENDERS];
	pthread_t t[SENDERS + 2];

	st.st_lease_ms = 4; /* slots are asked back as often */
	for (unsigned i = 0; i < SESSIONS; i++) {
		memcpy(id[i], session_new(MOST)->se_id, 16);
		made[i] = 1;
	}
	for (unsigned i = 0; i < SENDERS; i++) {
		number[i] = i;
		ck_assert_int_eq(pthread_create(&t[i], NULL, sender, &number[i]), 0);
	}
	ck_assert_int_eq(pthread_create(&t[SENDERS], NULL, destroyer, NULL), 0);
	ck_assert_int_eq(pthread_create(&t[SENDERS + 1], NULL, evictor, NULL), 0);
	sleep(SECONDS);
	/* On a loaded machine it takes longer until each has come about often enough. */
	for (int i = 0; i < 600 && !enough(); i++)
		usleep(100000);
	over = true;
	for (unsigned i = 0; i < SENDERS + 2; i++)
		pthread_join(t[i], NULL);
	printf("# %d begun, %d retried, %d refused, %d met a session that went, %d times the "
	       "client could leave\n",
	       has_begun, was_retried, was_refused, has_gone, has_left);
	ck_assert_int_eq(in_hand, 0);
	ck_assert(enough());
}
END_TEST

/* They are looked at between the session's being found and the slot's being busy. */
START_TEST(a_client_that_goes_stays_for_who_has_found_its_session)
{
	uint8_t who[16];
	struct st_session *s = session_new(MOST);
	struct st_client *was = client;
	struct st_seq q;

	memcpy(who, s->se_id, 16);
	ck_assert_uint_eq(ask(who, 0, 1, &q), NFS4_OK);
	st_slot_done(&st, s, q.sq_sl, NULL, 0);
	urcu_memb_read_lock();
	ck_assert_uint_eq(take(who, 0, 1, 0, &q, &s), NFS4_OK);
	ck_assert(q.sq_retry);
	st_all_lock(&st);
	st_client_destroy(&st, was);
	client = st_client_new(&st, "p", 1, (const uint8_t *)"verifier");
	st_all_unlock(&st);
	ck_assert_ptr_eq(s->se_client, was);
	ck_assert(!was->cl_mach && !was->cl_revoked);
	st_slot_let(q.sq_sl);
	urcu_memb_read_unlock();
}
END_TEST

static _Atomic int asking;

/* Until the thread that set "asking" last sleeps: it waits for the lock. */
static void until_it_waits(void)
{
	char path[64], stat[256], state = 0;

	for (int i = 0; i < 60000 && state != 'S'; i++) {
		size_t n = 0;
		FILE *f;

		usleep(1000);
		snprintf(path, sizeof(path), "/proc/self/task/%d/stat", asking);
		f = fopen(path, "r");
		if (f)
			n = fread(stat, 1, sizeof(stat) - 1, f), fclose(f);
		stat[n] = 0;
		if (strrchr(stat, ')'))
			state = strrchr(stat, ')')[2];
	}
	ck_assert_int_eq(state, 'S');
	asking = 0;
}

static void *asks_first(void *arg)
{
	struct st_seq q;

	(void)arg;
	asking = gettid();
	urcu_memb_register_thread();
	ck_assert_uint_eq(ask(id[0], 0, 2, &q), NFS4_OK);
	urcu_memb_unregister_thread();
	return NULL;
}

static void *asks_second(void *arg)
{
	struct st_seq q;

	(void)arg;
	asking = gettid();
	urcu_memb_register_thread();
	ck_assert_uint_eq(ask(id[0], 1, 3, &q), NFS4_OK);
	urcu_memb_unregister_thread();
	return NULL;
}

START_TEST(slots_stay_until_the_client_was_told_of_the_target)
{
	struct st_session *s = session_new(MOST);
	pthread_t a, b;
	struct st_quota r;
	struct st_seq q;

	memcpy(id[0], s->se_id, 16);
	for (unsigned i = 0; i < 4; i++) {
		ck_assert_uint_eq(ask(id[0], i, 1, &q), NFS4_OK);
		done(s, &q);
	}
	r = s->se_room;
	r.r_target = 8;
	r.r_gen++;
	s->se_room = r;
	ck_assert_uint_eq(ask(id[0], 1, 2, &q), NFS4_OK);
	done(s, &q);
	st_slot_get(s, 0)->sl_gen = r.r_gen; /* the last reply of slot 0 told of it */
	ck_assert_uint_eq(ask(id[0], 6, 1, &q), NFS4_OK);
	done(s, &q);
	/* Slot 1's request, which was told nothing, lowers the target: a review is due; slot 0's
	 * knows the one before. */
	s->se_peak = 1;
	s->se_reviewed_ns = 1;
	st_slot_get(s, 1)->sl_gen = 0;
	pthread_mutex_lock(&s->se_lock);
	pthread_create(&a, NULL, asks_second, NULL);
	until_it_waits();
	pthread_create(&b, NULL, asks_first, NULL);
	until_it_waits();
	pthread_mutex_unlock(&s->se_lock);
	pthread_join(a, NULL);
	pthread_join(b, NULL);
	ck_assert_uint_eq(ask(id[0], 6, 1, &q), NFS4_OK);
	ck_assert(q.sq_retry);
	done(s, &(struct st_seq){.sq_slot = 0, .sq_seq = 2, .sq_sl = st_slot_get(s, 0)});
	done(s, &(struct st_seq){.sq_slot = 1, .sq_seq = 3, .sq_sl = st_slot_get(s, 1)});
}
END_TEST

/* There is room for two; a third is taken to be seen a lease after it had no room. */
START_TEST(grants_without_room_are_believed_seen_after_a_lease)
{
	struct st_session *s = session_new(8);
	struct st_seq q[3];
	struct st_grants g = {0};

	for (uint32_t i = 0; i < 3; i++) {
		ck_assert_int_eq(ask(s->se_id, i, 1, &q[i]), NFS4_OK);
		st_granted(&st, &g, s, i, 1);
	}
	ck_assert(!st_grants_seen(&st, &g));
	for (uint32_t i = 0; i < 3; i++) {
		st_slot_done(&st, s, q[i].sq_sl, NULL, 0);
		ck_assert_int_eq(ask(s->se_id, i, 2, &q[i]), NFS4_OK);
		st_slot_done(&st, s, q[i].sq_sl, NULL, 0);
	}
	ck_assert(!st_grants_seen(&st, &g));
	st.st_paused_ns = -UINT64_C(101000000000);
	ck_assert(st_grants_seen(&st, &g));
	st_all_lock(&st);
	st_session_destroy(&st, s);
	st_all_unlock(&st);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("session");
	TCase *t = tcase_create("slots");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, a_slot_has_one_request_at_a_time_and_keeps_its_reply);
	tcase_add_test(t, a_session_ends_when_its_last_request_is_answered);
	tcase_add_test(t, a_lease_runs_from_when_the_last_request_was_answered);
	tcase_add_test(t, no_request_of_a_client_that_leaves_begins);
	tcase_add_test(t, a_client_that_goes_stays_for_who_has_found_its_session);
	tcase_add_test(t, grants_without_room_are_believed_seen_after_a_lease);
	tcase_add_test(t, slots_stay_until_the_client_was_told_of_the_target);
	tcase_add_test(t, slots_are_used_shrunk_destroyed_and_barred_at_the_same_time);
	suite_add_tcase(s, t);
	return unit_run(s);
}
