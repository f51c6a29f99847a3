/* SPDX-License-Identifier: Apache-2.0 */
/* Byte-range locks against a model: an array that says for every byte what each owner holds of
 * it. */
#include "base/clock.h"
#include "mds/state/st.h"
#include "tests/unit/unit.h"
#include <stdlib.h>
#include <unistd.h>

enum { BYTES = 40, OWNERS = 4, STEPS = 20000 };

static struct st st;
static struct st_client client;
static struct st_file file;
static struct st_open open_;
static struct st_lock *lock[OWNERS];
static char model[OWNERS][BYTES]; /* 0, 'r', 'w' */

static void setup(void)
{
	memset(&st, 0, sizeof(st));
	st_clock_init(&st);
	/* No pause is taken off the clock, however long a test takes. */
	atomic_store(&st.st_clock_seen_ns, UINT64_MAX / 2);
	memset(&client, 0, sizeof(client));
	memset(&file, 0, sizeof(file));
	memset(&open_, 0, sizeof(open_));
	memset(model, 0, sizeof(model));
	ck_assert_int_eq(st_shards_new(&st), 0);
	st.st_lease_ms = 1000000;
	client.cl_renewed_ns = clock_mono_ns();
	st_all_lock(&st);
	open_.o_client = &client;
	open_.o_file = &file;
	for (char n = 0; n < OWNERS; n++) {
		lock[(int)n] = st_lock_new(&st, &open_, &n, 1);
		ck_assert_ptr_nonnull(lock[(int)n]);
	}
}

static void teardown(void)
{
	while (open_.o_locks)
		st_lock_free(&st, open_.o_locks);
	ck_assert_ptr_null(file.f_locks);
	st_all_unlock(&st);
	free(st.st_shards[0].sh_table.h_slot);
	free(st.st_shards);
}

/* The ranges are sorted, apart, joined where they can be, and say what the model says. */
static void same_as_model(int n)
{
	char got[BYTES] = {0};
	uint64_t end = 0;
	bool first = true, write = false;

	for (const struct st_range *r = lock[n]->k_ranges; r; r = r->r_next) {
		ck_assert_uint_le(r->r_first, r->r_last);
		ck_assert_uint_lt(r->r_last, BYTES);
		ck_assert(first || r->r_first > end);
		ck_assert(first || r->r_first > end + 1 || r->r_write != write);
		memset(got + r->r_first, r->r_write ? 'w' : 'r', r->r_last - r->r_first + 1);
		end = r->r_last;
		write = r->r_write;
		first = false;
	}
	ck_assert_mem_eq(got, model[n], BYTES);
}

static bool model_conflicts(int n, uint64_t a, uint64_t b, bool write)
{
	for (int k = 0; k < OWNERS; k++) {
		for (uint64_t i = a; k != n && i <= b; i++) {
			if (model[k][i] == 'w' || (write && model[k][i]))
				return true;
		}
	}
	return false;
}

START_TEST(locks_do_as_a_model)
{
	const char *text = getenv("WEFT_SEED");
	unsigned seed = text ? (unsigned)strtoul(text, NULL, 10) : 1, granted = 0, denied = 0;

	srand(seed);
	for (int step = 0; step < STEPS; step++) {
		int n = rand() % OWNERS;
		uint64_t a = (uint64_t)rand() % BYTES, b = a + (uint64_t)rand() % (BYTES - a);
		char name = (char)n;
		int what = rand() % 3;
		struct st_lock *holder = NULL;
		bool conflict;

		if (what == 2) {
			ck_assert_int_eq(st_lock_clear(lock[n], a, b), 0);
			memset(model[n] + a, 0, b - a + 1);
			same_as_model(n);
			continue;
		}
		conflict = st_lock_conflict(&st, &file, &client, &name, 1, a, b, what, &holder) !=
			   NULL;
		ck_assert_msg(conflict == model_conflicts(n, a, b, what),
			      "seed %u step %d: owner %d, %lu to %lu", seed, step, n,
			      (unsigned long)a, (unsigned long)b);
		ck_assert(!conflict || (holder && holder != lock[n]));
		granted += !conflict;
		denied += conflict;
		if (conflict)
			continue;
		ck_assert_int_eq(st_lock_set(lock[n], a, b, what), 0);
		memset(model[n] + a, what ? 'w' : 'r', b - a + 1);
		same_as_model(n);
	}
	ck_assert_uint_gt(granted, 1000);
	ck_assert_uint_gt(denied, 1000);
}
END_TEST

START_TEST(locks_reach_to_the_last_byte)
{
	struct st_lock *holder;
	char other = 1;

	ck_assert_int_eq(st_lock_set(lock[0], 100, UINT64_MAX, true), 0);
	ck_assert_ptr_nonnull(st_lock_conflict(&st, &file, &client, &other, 1, UINT64_MAX,
					       UINT64_MAX, false, &holder));
	ck_assert_ptr_null(st_lock_conflict(&st, &file, &client, &other, 1, 0, 99, true, &holder));
	ck_assert_int_eq(st_lock_set(lock[0], 0, 99, true), 0);
	ck_assert_uint_eq(lock[0]->k_ranges->r_last, UINT64_MAX);
	ck_assert_ptr_null(lock[0]->k_ranges->r_next);
	ck_assert_int_eq(st_lock_clear(lock[0], 5, UINT64_MAX), 0);
	ck_assert_uint_eq(lock[0]->k_ranges->r_last, 4);
}
END_TEST

/* An owner is a client's: the same bytes of another client are another owner. */
START_TEST(the_living_are_told_before_the_dead)
{
	struct st_client dead = {.cl_renewed_ns = clock_mono_ns() - 2000000000ull}, asks = {0};
	struct st_open o = {.o_client = &dead, .o_file = &file};
	struct st_lock *k = st_lock_new(&st, &o, "\0", 1), *holder = NULL;

	st.st_lease_ms = 1000;
	asks.cl_renewed_ns = client.cl_renewed_ns = clock_mono_ns() + 3600000000000ull;
	ck_assert_int_eq(st_lock_set(k, 0, 9, false), 0);
	ck_assert_ptr_nonnull(st_lock_conflict(&st, &file, &asks, "\0", 1, 0, 0, true, &holder));
	ck_assert_ptr_eq(holder, k);
	ck_assert_int_eq(st_lock_set(lock[0], 0, 9, false), 0);
	ck_assert_ptr_nonnull(st_lock_conflict(&st, &file, &asks, "\0", 1, 0, 0, true, &holder));
	ck_assert_ptr_eq(holder, lock[0]);
	ck_assert_ptr_null(st_lock_conflict(&st, &file, &asks, "\0", 1, 0, 0, false, &holder));
	st_lock_free(&st, k);
}
END_TEST

static void *tick(void *arg)
{
	st_tick(arg);
	return NULL;
}

/* While the tick waits for the lock. */
START_TEST(a_lease_renewed_during_a_tick_has_not_run_out)
{
	struct st_client *c = st_client_new(&st, "o", 1, (const uint8_t *)"verifier");
	uint64_t id = c->cl_id;
	pthread_t t;

	st.st_lease_ms = 10000;
	ck_assert_int_eq(pthread_create(&t, NULL, tick, &st), 0);
	usleep(50000);
	c->cl_renewed_ns = clock_mono_ns();
	st_all_unlock(&st);
	pthread_join(t, NULL);
	ck_assert_ptr_eq(st_client_get(&st, id), c);
	c->cl_renewed_ns -= st.st_lease_ms * 1000000ull + 1;
	st_tick(&st);
	ck_assert_ptr_null(st_client_get(&st, id));
	free(st.st_clients.h_slot);
	free(st.st_owners.h_slot);
	st_all_lock(&st);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("lock");
	TCase *t = tcase_create("ranges");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, locks_do_as_a_model);
	tcase_add_test(t, locks_reach_to_the_last_byte);
	tcase_add_test(t, the_living_are_told_before_the_dead);
	tcase_add_test(t, a_lease_renewed_during_a_tick_has_not_run_out);
	suite_add_tcase(s, t);
	return unit_run(s);
}
