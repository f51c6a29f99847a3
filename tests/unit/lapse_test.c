/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a lease in the client's record: the record's bytes, and who may change them when. */
#include "base/clock.h"
#include "mds/state/st.h"
#include "tests/unit/ns_store.h"
#include <assert.h>
#include <stdatomic.h>

enum { SENDERS = 3, TIMES = 200 };

static const uint8_t key[32] = "a record's key", verifier[8] = "verifier";
static struct st st;
static struct st_client *client;

static void client_setup(void)
{
	setup();
	memset(&st, 0, sizeof(st));
	st_clock_init(&st);
	st.st_ns = ns;
	st.st_lease_ms = 1000;
	st.st_kept_max = 1 << 20;
	st.st_by_id = calloc(ST_BY_ID, sizeof(*st.st_by_id));
	ck_assert_int_eq(st_shards_new(&st), 0);
	urcu_memb_register_thread();
	client = st_client_new(&st, "o", 1, verifier);
	ck_assert_ptr_nonnull(client);
	client->cl_confirmed = client->cl_recorded = true;
}

static void client_teardown(void)
{
	st_all_lock(&st);
	st_client_destroy(&st, client);
	st_all_unlock(&st);
	urcu_memb_barrier();
	urcu_memb_unregister_thread();
	free(st.st_by_id);
	free(st.st_shards);
	free(st.st_clients.h_slot);
	free(st.st_owners.h_slot);
	free(st.st_sessions.h_slot);
	teardown();
}

/* The record's bytes, as text. */
static const char *record(const uint8_t of[32])
{
	static char hex[64];
	struct kv_slice have;

	if (ns_row_get(snapshot(), NS_T_CLIENT, of, 32, &have))
		return "";
	for (size_t i = 0; i < have.s_len && i < sizeof(hex) / 2 - 1; i++)
		snprintf(hex + 2 * i, 3, "%02x", ((const uint8_t *)have.s_data)[i]);
	return hex;
}

#define ROW(version, number, flags) #version #number "0000007665726966696572" #flags

START_TEST(a_record_says_that_the_lease_has_run_out)
{
	static const uint8_t owes[] = {2, 9, 0, 0, 0, 'v', 'e', 'r', 'i', 'f', 'i', 'e', 'r', 1},
			     other[32] = "another";
	uint32_t number, old, again;

	ck_assert_int_eq(W(st_record_put(&st, wt, key, verifier, &number, &old)), 0);
	ck_assert_uint_eq(number, 1);
	ck_assert_str_eq(record(key), ROW(01, 01, ));
	/* Of a later incarnation, or of a client that is gone: nothing. */
	ck_assert_int_eq(W(st_record_lapse(wt, key, number + 1, true)), 0);
	ck_assert_int_eq(W(st_record_lapse(wt, other, number, true)), 0);
	ck_assert_str_eq(record(key), ROW(01, 01, ));
	ck_assert_int_eq(W(st_record_lapse(wt, key, number, true)), 1);
	ck_assert_str_eq(record(key), ROW(02, 01, 02));
	ck_assert_int_eq(W(st_record_lapse(wt, key, number, true)), 0);
	ck_assert_uint_eq(written, 0);
	ck_assert_str_eq(record(other), "");
	/* It is confirmed again after a restart. */
	ck_assert_int_eq(W(st_record_put(&st, wt, key, verifier, &again, &old)), 0);
	ck_assert_uint_eq(again, number);
	ck_assert_str_eq(record(key), ROW(01, 01, ));
	/* Each flag keeps the other. */
	ck_assert_int_eq(W(ns_row_put(wt, NS_T_CLIENT, other, 32, owes, sizeof(owes))), 0);
	ck_assert_int_eq(W(st_record_lapse(wt, other, 9, true)), 1);
	ck_assert_str_eq(record(other), ROW(02, 09, 03));
	ck_assert_int_eq(W(st_record_complete(wt, other)), 0);
	ck_assert_str_eq(record(other), ROW(02, 09, 02));
	ck_assert_int_eq(W(ns_row_put(wt, NS_T_CLIENT, other, 32, owes, sizeof(owes))), 0);
	ck_assert_int_eq(W(st_record_lapse(wt, other, 9, true)), 1);
	ck_assert_int_eq(W(st_record_lapse(wt, other, 9, false)), 1);
	ck_assert_str_eq(record(other), ROW(02, 09, 01));
}
END_TEST

static char junk[3000];

static int put_junk(struct kv_txn *t, char kind, unsigned n)
{
	char k[32];

	snprintf(k, sizeof(k), "~%c%u", kind, n);
	return kv_put(t, ns_slice(k, strlen(k)), ns_slice(junk, sizeof(junk)));
}

static int fills(void *n, struct kv_txn *t)
{
	return put_junk(t, 'a', *(unsigned *)n);
}

/* A delete opens the reserve to the puts after it. */
static int fills_the_reserve(void *n, struct kv_txn *t)
{
	char k[32];
	int rc;

	snprintf(k, sizeof(k), "~a%u", *(unsigned *)n);
	rc = kv_del(t, ns_slice(k, strlen(k)));
	for (unsigned i = 0; i < 8 && !rc; i++)
		rc = put_junk(t, (char)('b' + i), *(unsigned *)n);
	return rc;
}

/* Puts the record as it is. */
static int puts_record(void *arg, struct kv_txn *t)
{
	struct kv_slice have;
	char row[32];

	(void)arg;
	if (ns_row_get(t, NS_T_CLIENT, key, 32, &have) || have.s_len > sizeof(row))
		return -EIO;
	memcpy(row, have.s_data, have.s_len);
	return ns_row_put(t, NS_T_CLIENT, key, 32, row, have.s_len);
}

START_TEST(a_client_comes_back_to_a_full_store)
{
	struct kv_opts o = {.ko_create = true, .ko_nosync = true, .ko_map_max = 24 << 20};
	uint32_t number, old;
	int rc;

	snapshot_end();
	close_store();
	ck_assert_int_eq(kv_open(&kv, dir, &o, err, sizeof(err)), 0);
	ck_assert_int_eq(ns_open(&ns, kv, err, sizeof(err)), 0);
	st.st_ns = ns;
	damaged = true; /* by rows of no kind */
	ck_assert_int_eq(W(st_record_put(&st, wt, key, verifier, &number, &old)), 0);
	ck_assert_int_eq(W(st_record_lapse(wt, key, number, true)), 1);
	ck_assert_str_eq(record(key), ROW(02, 01, 02));
	snapshot_end(); /* it keeps pages from being used again */
	for (unsigned n = 0; (rc = kv_run_sync(kv, fills, &n)) == 0;)
		n++;
	ck_assert_int_eq(rc, -ENOSPC);
	ck_assert_int_eq(kv_run_sync(kv, puts_record, NULL), 0);
	for (unsigned n = 0; (rc = kv_run_sync(kv, puts_record, NULL)) == 0; n++)
		ck_assert_int_eq(kv_run_sync(kv, fills_the_reserve, &n), 0);
	ck_assert_int_eq(rc, -ENOSPC);
	ck_assert_int_eq(W(st_record_lapse(wt, key, number, false)), 1);
	ck_assert_str_eq(record(key), ROW(01, 01, ));
}
END_TEST

/* It was last heard two leases ago, and another client since. */
static void falls_silent(void)
{
	uint64_t lease = st.st_lease_ms * UINT64_C(1000000);

	st.st_paused_ns = -3 * lease; /* so that no time is below 0 */
	st_all_lock(&st);
	atomic_store(&client->cl_renewed_ns, st_now_ns(&st) - 2 * lease);
	st_all_unlock(&st);
}

static bool lapses(void)
{
	bool yes;

	st_all_lock(&st);
	yes = st_client_lapse(&st, client, st_now_ns(&st));
	st_all_unlock(&st);
	return yes;
}

START_TEST(only_a_server_that_heard_another_client_since_says_so)
{
	falls_silent();
	ck_assert(!lapses());
	atomic_store(&st.st_heard_ns,
		     client->cl_renewed_ns + st.st_lease_ms * UINT64_C(1000000) - 1);
	ck_assert(!lapses());
	atomic_store(&st.st_heard_ns,
		     client->cl_renewed_ns + st.st_lease_ms * UINT64_C(1000000) + 1);
	ck_assert(lapses() && st_client_lapsed(client) && !lapses());
	/* A request without a slot does not renew the lease then. */
	st_all_lock(&st);
	st_client_renew(&st, client);
	st_all_unlock(&st);
	ck_assert(st_lease_expired(&st, client));
}
END_TEST

/* After a tick in which the other one is heard. */
static bool lapses_when_heard(struct st_client *other)
{
	bool yes;

	st_renewed(other, st_now_ns(&st));
	st_tick(&st);
	st_all_lock(&st);
	yes = st_client_lapses(&st, client, st_now_ns(&st));
	st_all_unlock(&st);
	return yes;
}

START_TEST(when_a_cut_has_healed_all_have_a_lease_to_come_back)
{
	const uint64_t lease = 100000000000;
	struct st_client *other = st_client_new(&st, "p", 1, verifier);

	ck_assert_ptr_nonnull(other);
	st.st_lease_ms = 100000; /* this test takes none */
	st_tick(&st);		 /* both are heard */
	ck_assert_uint_gt(st.st_heard_ns, 0);
	/* One without a record says nothing of those that have one. */
	for (uint64_t tenths = 20; tenths < 40; tenths += 5) {
		st.st_paused_ns = -tenths * (lease / 10);
		ck_assert(!lapses_when_heard(other));
	}
	/* Nor is it known at once, for the ticks of a lease, when one with a record is heard. */
	other->cl_confirmed = other->cl_recorded = true;
	for (uint64_t tenths = 40; tenths <= 49; tenths++) {
		st.st_paused_ns = -tenths * (lease / 10);
		ck_assert(!lapses_when_heard(other));
	}
	/* Then it is. */
	st.st_paused_ns = -5 * lease - 1;
	ck_assert(lapses_when_heard(other));
	st_all_lock(&st);
	st_client_destroy(&st, other);
	st_all_unlock(&st);
}
END_TEST

static int lapse_put(void)
{
	return W(st_lapse_put(&st, wt, client->cl_id));
}

START_TEST(a_client_that_is_back_wins)
{
	uint32_t old, first, second;

	memcpy(client->cl_key, key, sizeof(key));
	ck_assert_int_eq(W(st_record_put(&st, wt, key, verifier, &client->cl_number, &old)), 0);
	falls_silent();
	atomic_store(&st.st_heard_ns, UINT64_MAX);
	ck_assert(lapses());
	/* It is back before the tick's transaction runs. */
	st_back_begin(client, &first);
	ck_assert_int_eq(lapse_put(), 0);
	ck_assert_str_eq(record(key), ROW(01, 01, ));
	/* The client's own failed: the next request tries again, and no tick comes between. */
	ck_assert(st_client_lapsed(client) && !lapses());
	st_back_begin(client, &second);
	st_back_done(&st, client->cl_id, second);
	ck_assert(!st_client_lapsed(client) && !st_lease_expired(&st, client));
	/* It lapses again, durably. What began before that ends nothing. */
	falls_silent();
	ck_assert(lapses());
	ck_assert_int_eq(lapse_put(), 1);
	ck_assert_int_eq(lapse_put(), 0);
	ck_assert_str_eq(record(key), ROW(02, 01, 02));
	st_back_done(&st, client->cl_id, first);
	ck_assert(st_client_lapsed(client));
	st_back_begin(client, &second);
	st_back_done(&st, client->cl_id, first);
	ck_assert(st_client_lapsed(client));
	st_back_done(&st, client->cl_id, second);
	ck_assert(!st_client_lapsed(client));
}
END_TEST

/* The next start, with the records that are there. */
static struct st *starts(void)
{
	struct st *next;

	ck_assert_int_eq(st_create(&next, ns, 100000, 300000, 0), 0);
	ck_assert(st_in_grace(next));
	return next;
}

static bool grace_after_ms(struct st *next, uint64_t ms)
{
	next->st_paused_ns = -ms * UINT64_C(1000000);
	st_tick(next);
	return st_in_grace(next);
}

static void ends(struct st *next)
{
	hash_each(&next->st_records, i, l, following)
		free(hash_entry(l, struct st_record, sre_link));
	free(next->st_records.h_slot);
	free(next->st_by_id);
	free(next->st_heat);
	free(next->st_shards);
	free(next);
}

static void completes(struct st *next, const uint8_t of[32])
{
	st_all_lock(next);
	st_record_back(next, of);
	st_record_done(next, of);
	st_all_unlock(next);
}

START_TEST(grace_gives_a_lease_where_all_were_past_theirs)
{
	static const uint8_t other[32] = "another";
	uint32_t number, old;
	struct st *next;

	ck_assert_int_eq(W(st_record_put(&st, wt, key, verifier, &number, &old)), 0);
	ck_assert_int_eq(W(st_record_lapse(wt, key, number, true)), 1);
	next = starts();
	ck_assert(grace_after_ms(next, 0) && grace_after_ms(next, 30000));
	ck_assert(!grace_after_ms(next, 101000));
	ends(next);
	/* Less where all are back and done. */
	next = starts();
	completes(next, key);
	ck_assert(!grace_after_ms(next, 0));
	ends(next);
	/* Where one was not, grace waits for that one, and then for nobody. */
	ck_assert_int_eq(W(st_record_put(&st, wt, other, verifier, &number, &old)), 0);
	next = starts();
	ck_assert(grace_after_ms(next, 0) && grace_after_ms(next, 200000));
	completes(next, other);
	ck_assert(!grace_after_ms(next, 0));
	ends(next);
}
END_TEST

static struct st_session *session;

static void session_setup(uint32_t slots)
{
	session = st_session_new(&st, client);
	ck_assert_ptr_nonnull(session);
	st_slots_grant(&st, session, slots);
	st_session_publish(&st, session);
}

static nfsstat4 takes(struct st_seq *q)
{
	nfsstat4 status;

	urcu_memb_read_lock();
	status = st_slot_take(&st, session, q);
	urcu_memb_read_unlock();
	return status;
}

START_TEST(a_retry_is_answered_when_the_record_is_right)
{
	struct st_seq first = {.sq_seq = 1}, retry = first;
	uint32_t turn;

	session_setup(SENDERS);
	ck_assert_int_eq(takes(&first), NFS4_OK);
	st_slot_done(&st, session, first.sq_sl, calloc(1, 1), 1);
	falls_silent();
	atomic_store(&st.st_heard_ns, UINT64_MAX);
	ck_assert(lapses());
	ck_assert_int_eq(takes(&retry), NFS4ERR_DELAY);
	ck_assert(retry.sq_lapsed);
	st_back_begin(client, &turn);
	st_back_done(&st, client->cl_id, turn);
	/* Then the kept reply answers it. */
	retry = (struct st_seq){.sq_seq = 1};
	ck_assert_int_eq(takes(&retry), NFS4_OK);
	ck_assert(retry.sq_retry && !retry.sq_lapsed && retry.sq_sl->sl_cached);
	st_slot_let(retry.sq_sl);
	/* It renews the lease, as any SEQUENCE. */
	st.st_paused_ns = -UINT64_C(10000000000);
	ck_assert(st_lease_expired(&st, client));
	ck_assert_int_eq(takes(&retry), NFS4_OK);
	st_slot_let(retry.sq_sl);
	ck_assert(!st_lease_expired(&st, client));
}
END_TEST

static _Atomic bool over;
static _Atomic unsigned in_hand, were_lapsed, came_back;

static void *sends(void *arg)
{
	struct st_seq q = {.sq_slot = *(const unsigned *)arg, .sq_seq = 1};
	uint32_t turn;

	urcu_memb_register_thread();
	while (!atomic_load(&over)) {
		nfsstat4 status = st_slot_take(&st, session, &q);

		if (status == NFS4_OK) {
			atomic_fetch_add(&in_hand, 1);
			atomic_fetch_sub(&in_hand, 1);
			st_slot_done(&st, session, q.sq_sl, NULL, 0);
			q.sq_seq++;
			usleep(100);
			continue;
		}
		if (status != NFS4ERR_DELAY || !q.sq_lapsed)
			abort();
		st_back_begin(client, &turn);
		st_back_done(&st, client->cl_id, turn);
		atomic_fetch_add(&came_back, 1);
	}
	urcu_memb_unregister_thread();
	return NULL;
}

START_TEST(no_request_is_under_way_when_the_lease_ends)
{
	unsigned number[SENDERS];
	pthread_t t[SENDERS];

	st.st_lease_ms = 0; /* whoever asks nothing at this moment is past it */
	atomic_store(&st.st_heard_ns, UINT64_MAX);
	session_setup(SENDERS);
	for (unsigned i = 0; i < SENDERS; i++) {
		number[i] = i;
		ck_assert_int_eq(pthread_create(&t[i], NULL, sends, &number[i]), 0);
	}
	/* A minute is for a loaded machine. */
	for (uint64_t end = clock_mono_ns() + 60000000000ull;
	     (were_lapsed < TIMES || came_back < TIMES) && clock_mono_ns() < end;) {
		st_all_lock(&st);
		if (st_client_lapse(&st, client, st_now_ns(&st))) {
			were_lapsed++;
			/* Until they are back, which takes this lock. */
			for (unsigned i = 0; i < 1000; i++)
				assert(!atomic_load(&in_hand));
		}
		st_all_unlock(&st);
		usleep(200); /* others have their turn at the lock */
	}
	over = true;
	for (unsigned i = 0; i < SENDERS; i++)
		pthread_join(t[i], NULL);
	ck_assert_uint_ge(were_lapsed, TIMES);
	ck_assert_uint_ge(came_back, TIMES);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("lapse");
	TCase *t = tcase_create("lapse");

	tcase_add_checked_fixture(t, client_setup, client_teardown);
	tcase_set_timeout(t, 300);
	tcase_add_test(t, a_record_says_that_the_lease_has_run_out);
	tcase_add_test(t, a_client_comes_back_to_a_full_store);
	tcase_add_test(t, only_a_server_that_heard_another_client_since_says_so);
	tcase_add_test(t, when_a_cut_has_healed_all_have_a_lease_to_come_back);
	tcase_add_test(t, a_client_that_is_back_wins);
	tcase_add_test(t, grace_gives_a_lease_where_all_were_past_theirs);
	tcase_add_test(t, a_retry_is_answered_when_the_record_is_right);
	tcase_add_test(t, no_request_is_under_way_when_the_lease_ends);
	suite_add_tcase(s, t);
	return unit_run(s);
}
