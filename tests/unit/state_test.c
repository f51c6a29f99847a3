/* SPDX-License-Identifier: Apache-2.0 */
/* State of files under the locks of their shards: many threads at once, and nothing is left
 * behind. */
#include "base/clock.h"
#include "base/loop.h"
#include "base/metrics.h"
#include "base/rcu.h"
#include "mds/state/st.h"
#include "tests/unit/unit.h"
#include <stdlib.h>
#include <unistd.h>

enum { THREADS = 4, CLIENTS = 6, FILES = 24, STEPS = 60000, MADE = 4096 };

static struct st st;
static struct st_client *_Atomic client[CLIENTS];
static struct st_client *made[MADE]; /* all there ever were; all is locked */
static unsigned nmade;
static _Atomic bool over;
static struct loop *loop;
static struct st_wait waits;
static _Atomic unsigned recalls, works, alls;

/* In two shards, so that files meet there as well as on their own. */
static uint64_t ino_of(unsigned n)
{
	return n % 3 ? 100 + n : 100 + (uint64_t)n * ST_SHARDS;
}

static void setup(void)
{
	memset(&st, 0, sizeof(st));
	st_clock_init(&st);
	ck_assert_int_eq(st_shards_new(&st), 0);
	ck_assert_int_eq(st_heat_new(&st), 0);
	st.st_lease_ms = st.st_courtesy_ms = 1000000;
	st.st_recall_ms = 1;
	st.st_epoch = 7;
	st.st_max_delegs = 1000000;
	for (unsigned i = 0; i < 2; i++)
		st.st_deleg_given[i] = metric_counter("given", "Given", i ? "t=\"w\"" : "t=\"r\"");
	st.st_deleg_wasted = metric_counter("wasted", "Wasted", "");
	st.st_deleg_revoked = metric_counter("revoked", "Revoked", "");
	st.st_revoked = metric_counter("lrevoked", "Revoked", "");
	for (enum st_count what = 0; what < ST_COUNTS; what++)
		st_set_quota_portion(&st, what, 1 << 20, 1 << 24, 1 << 24);
	over = false;
	nmade = 0;
}

static void teardown(void)
{
	for (size_t i = 0; i < ST_SHARDS; i++)
		free(st.st_shards[i].sh_table.h_slot);
	free(st.st_shards);
	free(st.st_heat);
	free(st.st_clients.h_slot);
	free(st.st_owners.h_slot);
	free(st.st_places.h_slot);
}

/* All is locked. Its memory stays until the end: who has it in hand asks st_client_goes. */
static void client_make(unsigned n)
{
	char owner[32];
	int len = snprintf(owner, sizeof(owner), "client %u", nmade);
	struct st_client *c = st_client_new(&st, owner, (uint32_t)len, (const uint8_t *)"verifier");

	ck_assert_ptr_nonnull(c);
	ck_assert_int_eq(st_client_at(&st, c, (const uint8_t *)"an address of 16"), 0);
	c->cl_number = ++nmade;
	c->cl_refs++;
	made[nmade - 1] = c;
	client[n] = c;
}

static void open_some(struct st_file *f, struct st_client *c, unsigned *seed)
{
	uint8_t owner = (uint8_t)(rand_r(seed) % 3);
	struct st_open *o = st_open_by_owner(f, c, &owner, 1);

	if (!o)
		o = st_open_new(&st, f, c, &owner, 1, NULL);
	ck_assert_ptr_nonnull(o);
	o->o_access |= 1 + (uint32_t)rand_r(seed) % 3;
	st_sid_bump(&o->o_sid);
	ck_assert_ptr_eq(st_open_find(&st, &o->o_sid), o);
}

static struct st_open *open_any(struct st_file *f, const struct st_client *c, bool deleg)
{
	struct st_open *o = f->f_opens;

	while (o && (o->o_client != c || (o->o_deleg != NULL) != deleg))
		o = o->o_fnext;
	return o;
}

static void give_up(struct st_file *f, struct st_client *c, bool deleg)
{
	struct st_open *o = open_any(f, c, deleg);

	if (o && st_may_free(o))
		st_open_free(&st, o);
}

static void lay_out(struct st_file *f, struct st_client *c, unsigned *seed)
{
	struct st_layout *l = st_layout_of(f, c);

	if (!l)
		l = st_layout_new(&st, f, c);
	l->l_iomode |= 1 + (uint32_t)rand_r(seed) % 2;
	st_sid_bump(&l->l_sid);
	ck_assert_ptr_eq(st_layout_find(&st, &l->l_sid), l);
}

static void lock_some(struct st_file *f, struct st_client *c, unsigned *seed)
{
	struct st_open *o = open_any(f, c, false);
	struct st_lock *k = o ? o->o_locks : NULL;
	uint64_t at = (uint64_t)rand_r(seed) % 100;

	if (o && !k)
		k = st_lock_new(&st, o, "l", 1);
	if (k && rand_r(seed) % 2)
		ck_assert_int_eq(st_lock_set(k, at, at + 10, true), 0);
	else if (k)
		ck_assert_int_eq(st_lock_clear(k, at, at + 10), 0);
}

static void step(struct st_file *f, struct st_client *c, unsigned what, unsigned *seed)
{
	struct st_layout *l;

	switch (what) {
	case 0:
	case 1:
		open_some(f, c, seed);
		break;
	case 2:
	case 3:
		give_up(f, c, false);
		break;
	case 4:
		lay_out(f, c, seed);
		break;
	case 5:
		l = st_layout_of(f, c);
		if (l)
			st_layout_drop(&st, l, 1 + (uint32_t)rand_r(seed) % 3);
		break;
	case 6:
		if (!st_deleg_of(f, c))
			ck_assert_ptr_nonnull(st_deleg_new(&st, f, c, OPEN_DELEGATE_READ, false,
							   (const uint8_t *)"fh", 2));
		break;
	case 7:
		give_up(f, c, true);
		break;
	case 8:
		lock_some(f, c, seed);
		break;
	case 9:
		if (!st_file_deleg_conflict(f, c, OPEN4_SHARE_ACCESS_WRITE, 0) || !st_needs_all())
			break;
		st_deleg_recall_file(&st, f, c, OPEN4_SHARE_ACCESS_WRITE, 0);
		alls++;
	}
	st_heat_opened(&st, f->f_ino, c, false);
}

static void *work(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;

	for (int i = 0; i < STEPS; i++) {
		uint64_t ino = ino_of((unsigned)rand_r(&seed) % FILES),
			 other = ino_of((unsigned)rand_r(&seed) % FILES);
		struct st_client *c = client[(unsigned)rand_r(&seed) % CLIENTS];
		unsigned what = (unsigned)rand_r(&seed) % 10;
		struct st_work w = {0};

		do {
			struct st_file *f;

			st_work_lock(&w, &st, ino);
			ck_assert(st_has(&st, ino) &&
				  (st_has_all() || ino % ST_SHARDS == other % ST_SHARDS ||
				   !st_has(&st, other)));
			f = st_client_goes(c) ? NULL : st_file_get(&st, ino, true);
			if (!f)
				continue;
			f->f_pins++;
			step(f, c, what, &seed);
			f->f_pins--;
			st_file_put(&st, f);
		} while (st_work_again(&w));
		works++;
	}
	return NULL;
}

/* All is locked: what is counted is what is there. */
static void counted(void)
{
	uint32_t n[ST_COUNTS] = {0};

	st_each(&st, ST_OPEN, l)
		n[hash_entry(l, struct st_open, o_link)->o_deleg ? ST_N_DELEGS : ST_N_OPENS]++;
	st_each(&st, ST_LAYOUT, l) n[ST_N_LAYOUTS]++;
	st_each(&st, ST_LOCK, l)
	{
		n[ST_N_LOCKS]++;
		for (struct st_range *r = hash_entry(l, struct st_lock, k_link)->k_ranges; r;
		     r = r->r_next)
			n[ST_N_RANGES]++;
	}
	for (enum st_count what = 0; what < ST_COUNTS; what++) {
		ck_assert_uint_eq(st_number(&st, what), n[what]);
		ck_assert_uint_ge(st.st_counts.ct_n[what], n[what]);
	}
	n[ST_N_OPENS] += n[ST_N_DELEGS];
	for (unsigned i = 0; i < CLIENTS; i++) {
		for (struct st_open *o = st_open_next(client[i], NULL); o;
		     o = st_open_next(client[i], o), n[ST_N_OPENS]--)
			ck_assert_ptr_eq(o->o_client, client[i]);
		for (struct st_layout *l = st_layout_next(client[i], NULL); l;
		     l = st_layout_next(client[i], l), n[ST_N_LAYOUTS]--)
			ck_assert_ptr_eq(l->l_client, client[i]);
	}
	ck_assert_uint_eq(n[ST_N_OPENS], 0);
	ck_assert_uint_eq(n[ST_N_LAYOUTS], 0);
}

static void *destroy(void *arg)
{
	unsigned n = 0;

	(void)arg;
	while (!over) {
		usleep(2000);
		st_all_lock(&st);
		counted();
		if (nmade < MADE && ++n % 4 == 0) {
			st_client_destroy(&st, client[n / 4 % CLIENTS]);
			client_make(n / 4 % CLIENTS);
		}
		st_all_unlock(&st);
		st_tick(&st);
	}
	return NULL;
}

static void recall_next(struct loop_timer *t);
static struct loop_timer next = {.t_fire = recall_next};

static void came_back(struct st_wait *w, unsigned left)
{
	if (left)
		st_revoke_file(&st, w->w_ino, NULL, false);
	recalls++;
	loop_timer_start(loop, &next, 1);
}

static void recall_next(struct loop_timer *t)
{
	uint64_t ino = ino_of(recalls % FILES);

	if (over) {
		loop_stop(loop);
		return;
	}
	memset(&waits, 0, sizeof(waits));
	waits.w_then = came_back;
	if (recalls % 2 ? !st_recall_delegs(&st, ino, NULL, OPEN4_SHARE_ACCESS_WRITE, 0, loop, 2,
					    &waits)
			: !st_recall_file(&st, ino, NULL, false, loop, 2, &waits)) {
		recalls++;
		loop_timer_start(loop, t, 1);
	}
}

static void *recall(void *arg)
{
	(void)arg;
	loop_timer_start(loop, &next, 1);
	loop_run(loop);
	return NULL;
}

static void clients_end(void)
{
	st_all_lock(&st);
	for (unsigned i = 0; i < CLIENTS; i++)
		st_client_destroy(&st, client[i]);
	for (unsigned i = 0; i < nmade; i++)
		st_client_put(made[i]);
	st_all_unlock(&st);
}

START_TEST(what_many_threads_do_at_once_leaves_nothing_behind)
{
	pthread_t t[THREADS], d, r;

	ck_assert_int_eq(loop_create(&loop, 64), 0);
	st_all_lock(&st);
	for (unsigned i = 0; i < CLIENTS; i++)
		client_make(i);
	st_all_unlock(&st);
	for (uintptr_t i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, work, (void *)(i + 1)), 0);
	ck_assert_int_eq(pthread_create(&d, NULL, destroy, NULL), 0);
	ck_assert_int_eq(pthread_create(&r, NULL, recall, NULL), 0);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	over = true;
	pthread_join(d, NULL);
	pthread_join(r, NULL);
	ck_assert_uint_gt(recalls, 1);
	ck_assert_uint_gt(nmade, CLIENTS);
	ck_assert_uint_gt(alls, 0);
	clients_end();
	ck_assert_uint_eq(st_states(&st), 0);
	for (enum st_count what = 0; what < ST_COUNTS; what++)
		ck_assert_uint_eq(st.st_counts.ct_n[what], 0);
	for (unsigned i = 0; i < FILES; i++)
		ck_assert(!st_watched(ino_of(i)));
	loop_destroy(loop);
}
END_TEST

/* ---- */

static struct st_open *opened(uint64_t ino, struct st_client *c)
{
	struct st_open *o;

	st_file_lock(&st, ino);
	o = st_open_new(&st, st_file_get(&st, ino, true), c, "o", 1, NULL);
	st_file_unlock(&st, ino);
	return o;
}

START_TEST(a_stateid_of_another_file_is_not_found)
{
	struct st_open *o;
	struct st_stateid sid;

	st_all_lock(&st);
	client_make(0);
	st_all_unlock(&st);
	o = opened(5, client[0]);
	sid = o->o_sid;
	st_file_lock(&st, 6);
	ck_assert_ptr_null(st_open_find(&st, &sid));
	st_file_unlock(&st, 6);
	st_look_lock(&st);
	ck_assert_ptr_null(st_open_find(&st, &sid));
	st_look_unlock(&st);
	st_file_lock(&st, 5);
	ck_assert_ptr_eq(st_open_find(&st, &sid), o);
	st_file_unlock(&st, 5);
	st_all_lock(&st);
	ck_assert_ptr_eq(st_open_find(&st, &sid), o);
	st_all_unlock(&st);
	memset(sid.other, 255, sizeof(sid.other));
	st_all_lock(&st);
	ck_assert_ptr_null(st_open_find(&st, &sid));
	st_all_unlock(&st);
	for (unsigned i = 0; i < CLIENTS; i++)
		client[i] = client[0];
	clients_end();
}
END_TEST

/* Taken ahead in portions, given back by the ticks; where few may be had, nothing is taken
 * ahead. */
START_TEST(room_that_is_not_used_goes_back)
{
	uint64_t few;

	client_make(0);
	for (unsigned i = 0; i < CLIENTS; i++)
		client[i] = client[0];
	opened(1, client[0]);
	st_all_lock(&st);
	ck_assert_uint_eq(st.st_counts.ct_n[ST_N_OPENS], 32);
	ck_assert_uint_eq(client[0]->cl_place->pl_counts.ct_n[ST_N_OPENS], 32);
	ck_assert_uint_eq(st_number(&st, ST_N_OPENS), 1);
	ck_assert(st_has_quota(client[0], ST_N_OPENS));
	ck_assert(!st_others_have(client[0], ST_N_OPENS));
	st_all_unlock(&st);
	st_tick(&st);
	ck_assert_uint_eq(st.st_counts.ct_n[ST_N_OPENS], 32);
	st_tick(&st);
	ck_assert_uint_eq(st.st_counts.ct_n[ST_N_OPENS], 32); /* too soon after the other */
	st.st_quotas_ns = 0;
	st_tick(&st);
	ck_assert_uint_eq(st.st_counts.ct_n[ST_N_OPENS], 1);
	ck_assert_uint_eq(st_number(&st, ST_N_OPENS), 1);
	st_set_quota_portion(&st, ST_N_OPENS, 100, 100, 100);
	for (few = 2; few < 50; few++) {
		opened(few, client[0]);
		ck_assert_uint_eq(st.st_counts.ct_n[ST_N_OPENS], few);
		ck_assert(!st_has_quota(client[0], ST_N_OPENS));
	}
	clients_end();
	ck_assert_uint_eq(st.st_counts.ct_n[ST_N_OPENS], 0);
	ck_assert_uint_eq(st_states(&st), 0);
}
END_TEST

static void unlock_at_once(struct st_open *o)
{
	struct st_lock *k;

	st_file_lock(&st, o->o_file->f_ino);
	k = st_lock_new(&st, o, "l", 1);
	st_lock_set(k, 0, 9, true);
	st_lock_clear(k, 0, 9);
	st_file_unlock(&st, o->o_file->f_ino);
}

START_TEST(room_of_one_kind_goes_back_though_another_is_in_use)
{
	struct st_open *o;

	client_make(0);
	for (unsigned i = 0; i < CLIENTS; i++)
		client[i] = client[0];
	o = opened(1, client[0]);
	unlock_at_once(o);
	ck_assert_uint_eq(st.st_counts.ct_n[ST_N_RANGES], 32);
	for (unsigned tick = 0; tick < 2; tick++) {
		opened(2 + tick, client[0]);
		st.st_quotas_ns = 0;
		st_tick(&st);
	}
	ck_assert_uint_eq(st.st_counts.ct_n[ST_N_RANGES], 0);
	ck_assert_uint_eq(st.st_counts.ct_n[ST_N_OPENS], 32);
	clients_end();
}
END_TEST

START_TEST(beyond_half_of_a_limit_only_what_is_used_is_counted)
{
	client_make(0);
	for (unsigned i = 0; i < CLIENTS; i++)
		client[i] = client[0];
	st_set_quota_portion(&st, ST_N_OPENS, 1024, 1 << 24, 1 << 24); /* portions of 4 */
	for (unsigned n = 1; n <= 601; n++)
		opened(n, client[0]);
	ck_assert_uint_eq(st.st_counts.ct_n[ST_N_OPENS], 601);
	ck_assert(!st_has_quota(client[0], ST_N_OPENS));
	clients_end();
}
END_TEST

START_TEST(what_all_took_ahead_is_gathered_where_it_is_looked_for)
{
	for (unsigned i = 0; i < CLIENTS; i++)
		client_make(i);
	for (unsigned i = 0; i < CLIENTS; i++)
		unlock_at_once(opened(1 + i, client[i]));
	ck_assert_uint_eq(st.st_counts.ct_n[ST_N_RANGES], 32 * CLIENTS);
	st_look_lock(&st);
	ck_assert(st_quotas_gather(&st, NULL, ST_N_RANGES));
	ck_assert(!st_quotas_gather(&st, NULL, ST_N_RANGES));
	st_look_unlock(&st);
	ck_assert_uint_eq(st.st_counts.ct_n[ST_N_RANGES], 0);
	ck_assert_uint_eq(st.st_counts.ct_n[ST_N_OPENS], 32 * CLIENTS);
	clients_end();
}
END_TEST

static void *toggle(void *arg)
{
	uint64_t ino = 70000 + (uintptr_t)arg;

	while (!over) {
		struct st_open *o = opened(ino, client[0]);

		st_file_lock(&st, ino);
		st_open_free(&st, o);
		st_file_unlock(&st, ino);
	}
	return NULL;
}

START_TEST(who_asks_is_never_told_that_another_has_none_though_it_has)
{
	pthread_t t[2];
	uint64_t end = clock_mono_ns() + 4000000000ull, wrong = 0;

	for (unsigned i = 0; i < CLIENTS; i++)
		client_make(i);
	st_set_quota_portion(&st, ST_N_OPENS, 0, 0, 0);
	opened(1, client[1]);
	for (uintptr_t i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, toggle, (void *)i), 0);
	while (clock_mono_ns() < end)
		for (unsigned i = 0; i < 1000; i++)
			wrong += !st_others_have(client[0], ST_N_OPENS);
	over = true;
	for (unsigned i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	ck_assert_uint_eq(wrong, 0);
	clients_end();
}
END_TEST

/* The clock was looked at so long ago. */
static void looked_ms_ago(uint64_t ms)
{
	atomic_store(&st.st_clock_seen_ns, clock_mono_ns() - ms * 1000000);
}

START_TEST(a_pause_ends_no_recall_no_grace_and_no_lease)
{
	struct st_open *o;
	uint64_t ino;

	st.st_lease_ms = st.st_courtesy_ms = st.st_recall_ms = st.st_grace_ms = 5000;
	client_make(0);
	for (unsigned i = 0; i < CLIENTS; i++)
		client[i] = client[0];
	o = opened(5, client[0]);
	st_file_lock(&st, 5);
	ck_assert_ptr_nonnull(st_deleg_new(&st, o->o_file, client[0], OPEN_DELEGATE_READ, false,
					   (const uint8_t *)"fh", 2));
	st_file_unlock(&st, 5);
	/* All of it is stamped when the clock was last looked at a while ago. The pause is found
	 * later, and takes that while off as well. */
	looked_ms_ago(900);
	st_all_lock(&st);
	st_deleg_recall_file(&st, o->o_file, NULL, OPEN4_SHARE_ACCESS_WRITE, 0);
	st_all_unlock(&st);
	st_renewed(client[0], st_now_ns(&st));
	st.st_reclaimers = 1;
	st.st_started_ns = st_now_ns(&st);
	st.st_in_grace = true;
	looked_ms_ago(1100);
	st_all_lock(&st);
	ck_assert_uint_eq(st_deleg_overdue(&st, client[0], &ino, 1), 0);
	st_all_unlock(&st);
	st_tick(&st);
	ck_assert(st.st_in_grace);
	ck_assert(!st_lease_expired(&st, client[0]));
	/* So is one that is longer than a lease. */
	looked_ms_ago(20000);
	ck_assert(!st_lease_expired(&st, client[0]));
	/* Time in which we were there counts. */
	st.st_paused_ns = -UINT64_C(7000000000);
	ck_assert(st_lease_expired(&st, client[0]));
	st_all_lock(&st);
	ck_assert_uint_eq(st_deleg_overdue(&st, client[0], &ino, 1), 1);
	ck_assert_uint_eq(ino, 5);
	st_all_unlock(&st);
	clients_end();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("state");
	TCase *t = tcase_create("state");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 300);
	tcase_add_test(t, what_many_threads_do_at_once_leaves_nothing_behind);
	tcase_add_test(t, a_stateid_of_another_file_is_not_found);
	tcase_add_test(t, room_that_is_not_used_goes_back);
	tcase_add_test(t, room_of_one_kind_goes_back_though_another_is_in_use);
	tcase_add_test(t, beyond_half_of_a_limit_only_what_is_used_is_counted);
	tcase_add_test(t, what_all_took_ahead_is_gathered_where_it_is_looked_for);
	tcase_add_test(t, who_asks_is_never_told_that_another_has_none_though_it_has);
	tcase_add_test(t, a_pause_ends_no_recall_no_grace_and_no_lease);
	suite_add_tcase(s, t);
	return unit_run(s);
}
