/* SPDX-License-Identifier: Apache-2.0 */
/* ds_hold_test.c - objects that loops use (hold.c), and ranges that they lock without a lock
 * (range.c): alone, and all at once with fences and deletes. */
#include "base/clock.h"
#include "tests/unit/ds_store.h"
#include "tests/unit/on_loop.h"

/* ---- objects that loops use ---- */

struct held {
	uint64_t he_ino;
	bool he_create;
	int he_err;
	struct ds_hold *he_hold;
};

static void hold(void *arg)
{
	struct held *he = arg;
	struct cap_object k = key(he->he_ino);

	he->he_err = ds_obj_hold(S, &k, he->he_create, &he->he_hold);
}

static void put(void *arg)
{
	ds_hold_put(((struct held *)arg)->he_hold);
}

static void hold_and_put(void *arg)
{
	hold(arg);
	if (((struct held *)arg)->he_hold)
		put(arg);
}

static ctl_status order(ctl_order_type type, uint64_t ino, uint64_t number, uint32_t epoch)
{
	ctl_order o = {.type = type,
		       .number = number,
		       .object = {.ino = ino, .fs = 1, .incarnation = 1},
		       .epoch = epoch};
	ctl_status res = CTL_INVAL, st = ds_store_orders(F, 1, &o, 1, &res);

	return st == CTL_OK ? res : st;
}

static bool open_at_most(unsigned n)
{
	for (int i = 0; i < 60000 && ds_store_open_objects(S) > n; i++)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	return ds_store_open_objects(S) <= n;
}

START_TEST(all_uses_of_a_loop_at_a_time_are_one_reference)
{
	struct held he[4] = {
		{.he_ino = 1, .he_create = true}, {.he_ino = 1}, {.he_ino = 1}, {.he_ino = 2}};
	struct ds_obj *o;

	for (unsigned i = 0; i < 4; i++)
		on_loop(loops[i == 2 ? 1 : 0], hold, &he[i]);
	ck_assert_int_eq(he[3].he_err, -ENOENT);
	ck_assert_ptr_null(he[3].he_hold);
	ck_assert_ptr_eq(he[0].he_hold, he[1].he_hold);
	ck_assert_ptr_ne(he[0].he_hold, he[2].he_hold);
	o = ds_hold_obj(he[0].he_hold);
	ck_assert_ptr_eq(o, ds_hold_obj(he[2].he_hold));
	ck_assert_uint_eq(o->ob_refs, 2);
	on_loop(loops[0], put, &he[0]);
	ck_assert_uint_eq(o->ob_refs, 2);
	on_loop(loops[0], put, &he[1]);
	ck_assert_uint_eq(o->ob_refs, 1);
	on_loop(loops[1], put, &he[2]);
	/* The last use ends the hold. The object stays in memory. */
	ck_assert_uint_eq(o->ob_refs, 0);
	ck_assert_ptr_null(o->ob_holds);
	ck_assert_uint_eq(ds_store_open_objects(S), 1);
	on_loop(loops[0], hold_and_put, &he[1]);
	ck_assert_uint_eq(o->ob_refs, 0);
}
END_TEST

START_TEST(what_is_deleted_goes_with_its_last_use)
{
	struct held he = {.he_ino = 1, .he_create = true}, used = {.he_ino = 2, .he_create = true},
		    again = {.he_ino = 2, .he_create = true};

	for (unsigned i = 0; i < LOOPS; i++)
		on_loop(loops[i], hold_and_put, &he);
	on_loop(loops[0], hold, &used);
	on_loop(loops[1], hold_and_put, &used);
	on_loop(loops[0], hold, &used);
	ck_assert_uint_eq(ds_store_open_objects(S), 2);
	ck_assert_int_eq(order(CTL_DELETE, 1, 1, 0), CTL_OK);
	ck_assert(open_at_most(1));
	for (unsigned i = 0; i < LOOPS; i++) {
		on_loop(loops[i], hold, &he);
		ck_assert_int_eq(he.he_err, -ESTALE);
	}
	ck_assert_int_eq(order(CTL_DELETE, 2, 2, 0), CTL_OK);
	on_loop(loops[0], hold, &again);
	ck_assert_int_eq(again.he_err, -ESTALE);
	ck_assert(ds_obj_deleted(ds_hold_obj(used.he_hold)));
	ck_assert_uint_eq(ds_store_open_objects(S), 1);
	/* of two uses */
	on_loop(loops[0], put, &used);
	ck_assert_uint_eq(ds_store_open_objects(S), 1);
	on_loop(loops[0], put, &used);
	ck_assert(open_at_most(0));
}
END_TEST

START_TEST(unused_objects_in_memory_are_bounded)
{
	opts.so_max_open = 64;
	reopen();
	opts.so_max_open = 0;
	for (uint64_t ino = 1; ino < 1000; ino++) {
		struct held he = {.he_ino = ino, .he_create = true};

		on_loop(loops[ino % LOOPS], hold_and_put, &he);
		ck_assert_int_eq(he.he_err, 0);
	}
	ck_assert(open_at_most(64));
}
END_TEST

/* ---- ranges ---- */

struct locker {
	struct loop_msg lk_go;
	struct ds_range lk_range;
	struct loop_timer lk_timer;
	struct ds_hold *lk_hold;
	struct locker *lk_all;
	sem_t *lk_sem;
	_Atomic bool lk_holds;
};

enum { LOCKERS = 300 };
static _Atomic unsigned violations, fast;

static unsigned kind(const struct ds_range *r)
{
	return r->rg_alone ? 2 : r->rg_direct;
}

static void lk_release(struct loop_timer *t)
{
	struct locker *lk = caa_container_of(t, struct locker, lk_timer);

	atomic_store(&lk->lk_holds, false);
	ds_range_unlock(ds_hold_obj(lk->lk_hold), &lk->lk_range);
	ds_hold_put(lk->lk_hold);
	sem_post(lk->lk_sem);
}

static void lk_granted(struct ds_range *r)
{
	struct locker *lk = caa_container_of(r, struct locker, lk_range);

	atomic_store(&lk->lk_holds, true);
	fast += r->rg_fast != NULL;
	for (unsigned i = 0; i < LOCKERS; i++) {
		const struct ds_range *e = &lk->lk_all[i].lk_range;

		if (&lk->lk_all[i] != lk && atomic_load(&lk->lk_all[i].lk_holds) &&
		    e->rg_first <= r->rg_last && r->rg_first <= e->rg_last)
			violations += kind(e) != kind(r) || kind(e) == 2;
		if (&lk->lk_all[i] != lk && atomic_load(&lk->lk_all[i].lk_holds) && e->rg_write &&
		    r->rg_write && e->rg_from < r->rg_to && r->rg_from < e->rg_to)
			violations++;
	}
	lk->lk_timer.t_fire = lk_release;
	loop_timer_start(loop_self(), &lk->lk_timer, r->rg_first % 2);
}

static void lk_start(struct loop_msg *m)
{
	struct locker *lk = caa_container_of(m, struct locker, lk_go);
	struct cap_object k = key(1);

	ck_assert_int_eq(ds_obj_hold(S, &k, true, &lk->lk_hold), 0);
	lk->lk_range.rg_granted = lk_granted;
	/* Some come as those do that have no hold. */
	if (ds_range_lock(ds_hold_obj(lk->lk_hold), &lk->lk_range,
			  lk->lk_range.rg_first % 7 ? lk->lk_hold : NULL))
		lk_granted(&lk->lk_range);
}

static void lk_writes(struct ds_range *r, unsigned pages)
{
	r->rg_first = (uint64_t)rand() % pages;
	r->rg_last = r->rg_first + (uint64_t)rand() % (pages > 40 ? 257 : 5);
	r->rg_from = r->rg_first * DS_PAGE + (uint64_t)rand() % DS_PAGE;
	r->rg_to = r->rg_last * DS_PAGE + 1 + (uint64_t)rand() % DS_PAGE;
	if (r->rg_to <= r->rg_from)
		r->rg_to = r->rg_from + 1;
	r->rg_write = true;
}

static void no_claims_are_left(void)
{
	uint64_t any = 0;

	for (uint64_t i = 0; i < 4 * 65536; i++)
		any |= atomic_load(&S->s_claims[i]);
	ck_assert_uint_eq(any, 0);
}

/* Few pages, where nearly all meet; many; and many where all 1 MiB pieces of an object are one by
 * chance. */
START_TEST(writes_of_the_same_bytes_wait_for_each_other)
{
	struct locker *lk = calloc(LOCKERS, sizeof(*lk));
	struct held he = {.he_ino = 1, .he_create = true};
	unsigned seed = (unsigned)time(NULL), most = 0, was;
	uint64_t mask = S->s_claims_mask;
	struct ds_obj *o;
	sem_t sem;

	printf("# seed %u\n", seed);
	srand(seed);
	sem_init(&sem, 0, 0);
	on_loop(loops[0], hold, &he);
	o = ds_hold_obj(he.he_hold);
	for (unsigned round = 0; round < 60; round++) {
		was = fast;
		S->s_claims_mask = round % 3 == 2 ? 0 : mask;
		for (unsigned i = 0; i < LOCKERS; i++) {
			lk[i] = (struct locker){
				.lk_all = lk, .lk_sem = &sem, .lk_go.m_run = lk_start};
			lk_writes(&lk[i].lk_range, round % 3 ? 1u << 24 : 40);
			lk[i].lk_range.rg_write = rand() % 8;
			lk[i].lk_range.rg_direct =
				(round / 9 % 2) ^ (round / 3 % 3 == 2 && rand() % 50 == 0);
			lk[i].lk_range.rg_alone = round / 3 % 3 == 2 && rand() % 60 == 0;
			lk[i].lk_range.rg_write &= !lk[i].lk_range.rg_alone;
		}
		for (unsigned i = 0; i < LOCKERS; i++)
			loop_post(loops[i % LOOPS], &lk[i].lk_go);
		for (unsigned i = 0; i < LOCKERS; i++)
			while (sem_wait(&sem))
				;
		ck_assert_uint_eq(violations, 0);
		ck_assert_ptr_null(o->ob_ranges);
		ck_assert_uint_eq(o->ob_nwrites + o->ob_nbare, 0);
		no_claims_are_left();
		most = fast - was > most ? fast - was : most;
	}
	/* Where they do not meet. */
	ck_assert_uint_gt(most, LOCKERS / 2);
	on_loop(loops[0], put, &he);
	free(lk);
}
END_TEST

START_TEST(ranges_of_another_kind_wait_for_those_that_took_no_lock)
{
	struct locker *lk = calloc(LOCKERS, sizeof(*lk));
	struct held he = {.he_ino = 1, .he_create = true};
	unsigned seed = (unsigned)time(NULL), most = 0, was;
	struct ds_obj *o;
	sem_t sem;

	printf("# seed %u\n", seed);
	srand(seed);
	sem_init(&sem, 0, 0);
	on_loop(loops[0], hold, &he);
	o = ds_hold_obj(he.he_hold);
	for (unsigned round = 0; round < 60; round++) {
		was = fast;
		for (unsigned i = 0; i < LOCKERS; i++) {
			lk[i] = (struct locker){
				.lk_all = lk, .lk_sem = &sem, .lk_go.m_run = lk_start};
			lk[i].lk_range.rg_first = (uint64_t)rand() % 40;
			lk[i].lk_range.rg_last = lk[i].lk_range.rg_first + (uint64_t)rand() % 5;
			/* Long rows of one kind, with one of another now and then. */
			lk[i].lk_range.rg_direct =
				(round / 3 % 2) ^ (round % 3 && rand() % 50 == 0);
			lk[i].lk_range.rg_alone = round % 3 == 2 && rand() % 60 == 0;
		}
		for (unsigned i = 0; i < LOCKERS; i++)
			loop_post(loops[i % LOOPS], &lk[i].lk_go);
		for (unsigned i = 0; i < LOCKERS; i++)
			while (sem_wait(&sem))
				;
		ck_assert_uint_eq(violations, 0);
		ck_assert_ptr_null(o->ob_ranges);
		most = fast - was > most ? fast - was : most;
	}
	/* In rounds of one kind nearly all are. */
	ck_assert_uint_gt(most, LOCKERS / 2);
	on_loop(loops[0], put, &he);
	free(lk);
}
END_TEST

/* ---- all at once ---- */

/*
 * Actors on loops read and write objects as NFS calls do, with the epoch that was the object's a
 * while ago. One thread raises epochs, and deletes. What an actor writes is the epoch it has. After
 * a fence is confirmed, and one write of the new epoch, nobody reads an older epoch, ever.
 */
enum { SLOTS = 12, ACTORS = 18, STRESS_MS = 4000, AT = 512, FEW = 200 };

static struct slot {
	_Atomic uint64_t sl_ino;
	_Atomic uint32_t sl_epoch, sl_floor;
	_Atomic bool sl_dying;
} slots[SLOTS];
static _Atomic bool ended;
static _Atomic uint64_t next_ino = 1, wrote, got, refused, stale, order_number;

struct actor {
	struct loop_msg ac_msg;
	struct ds_rw ac_rw;
	struct ds_hold *ac_hold;
	struct slot *ac_slot;
	uint64_t ac_ino;
	uint32_t ac_epoch, ac_floor;
	unsigned ac_token, ac_seed;
	bool ac_write, ac_direct;
	uint8_t *ac_mem;
	sem_t ac_sem;
	bool ac_once; /* one write, then it ends */
};

static unsigned ac_rnd(struct actor *ac, unsigned n)
{
	return (unsigned)rand_r(&ac->ac_seed) % n;
}

static void ac_next(struct actor *ac)
{
	if (ended || ac->ac_once)
		sem_post(&ac->ac_sem);
	else
		loop_post(loop_self(), &ac->ac_msg);
}

static void ac_end(struct actor *ac)
{
	if (ac->ac_write)
		ds_write_end(S, ac->ac_token);
	if (ac->ac_hold)
		ds_hold_put(ac->ac_hold);
	ac->ac_hold = NULL;
	ac_next(ac);
}

static void ac_done(struct ds_rw *rw, int res)
{
	struct actor *ac = caa_container_of(rw, struct actor, ac_rw);
	uint32_t v;

	ck_assert_int_ge(res, 0);
	if (ac->ac_write) {
		ck_assert_int_eq(res, (int)rw->rw_len);
		wrote++;
	} else if (ac->ac_floor) {
		memcpy(&v, ac->ac_mem + (ac->ac_direct ? AT : 0), sizeof(v));
		ck_assert_msg(res > AT || (!ac->ac_direct && res >= 4), "it is there: %d", res);
		ck_assert_msg(v >= ac->ac_floor, "epoch %u, and %u was fenced", v, ac->ac_floor);
		got++;
	}
	ac_end(ac);
}

static void ac_run(struct loop_msg *m)
{
	struct actor *ac = caa_container_of(m, struct actor, ac_msg);
	struct slot *sl = ac->ac_slot;
	struct cap_object k;
	struct ds_obj *o;
	int err;

	if (!ac->ac_once) {
		sl = ac->ac_slot = &slots[ac_rnd(ac, SLOTS)];
		ac->ac_write = ac_rnd(ac, 3) == 0;
		ac->ac_direct = ac_rnd(ac, 8) != 0;
		ac->ac_epoch = sl->sl_epoch - ac_rnd(ac, 2);
	}
	/* The floor before the number: that of one that took its place is 0 for a while. */
	ac->ac_floor = sl->sl_floor;
	ac->ac_ino = sl->sl_ino;
	k = key(ac->ac_ino);
	if (ac->ac_write)
		ac->ac_token = ds_write_begin(S);
	err = ds_obj_hold(S, &k, ac->ac_write, &ac->ac_hold);
	if (err) {
		ck_assert_msg(err == -ESTALE ? sl->sl_dying || sl->sl_ino != ac->ac_ino
					     : !ac->ac_write && err == -ENOENT,
			      "%s", strerror(-err));
		stale += err == -ESTALE;
		ac_end(ac);
		return;
	}
	o = ds_hold_obj(ac->ac_hold);
	if (ds_obj_deleted(o) || ac->ac_epoch < ds_obj_epoch(o)) {
		refused++;
		ac_end(ac);
		return;
	}
	if (sl->sl_dying || sl->sl_ino != ac->ac_ino)
		ac->ac_floor = 0; /* it was chosen while another took its place */
	for (unsigned i = 0; ac->ac_write && i < DS_PAGE; i += sizeof(ac->ac_epoch))
		memcpy(ac->ac_mem + i, &ac->ac_epoch, sizeof(ac->ac_epoch));
	ac->ac_rw.rw_obj = o;
	ac->ac_rw.rw_hold = ac->ac_hold;
	ac->ac_rw.rw_off = ac->ac_direct ? 0 : AT;
	ac->ac_rw.rw_len = ac->ac_direct ? DS_PAGE : FEW;
	ac->ac_rw.rw_mem = ac->ac_mem;
	ac->ac_rw.rw_done = ac_done;
	if (ac->ac_write)
		ds_obj_write(&ac->ac_rw);
	else
		ds_obj_read(&ac->ac_rw);
}

static void actor_init(struct actor *ac, unsigned n)
{
	ac->ac_msg.m_run = ac_run;
	ac->ac_seed = n;
	ac->ac_mem = aligned_alloc(DS_PAGE, DS_PAGE);
	sem_init(&ac->ac_sem, 0, 0);
}

static void slot_new(struct slot *sl)
{
	sl->sl_floor = 0;
	sl->sl_epoch = 1;
	sl->sl_ino = next_ino++;
	sl->sl_dying = false;
}

/* It is confirmed; then one write of the new epoch makes it the least that is read. */
static void fence(struct slot *sl, struct actor *own)
{
	uint32_t epoch = sl->sl_epoch + 1;

	ck_assert_int_eq(order(CTL_FENCE, sl->sl_ino, ++order_number, epoch), CTL_OK);
	sl->sl_epoch = epoch;
	own->ac_slot = sl;
	own->ac_epoch = epoch;
	own->ac_once = own->ac_write = own->ac_direct = true;
	loop_post(loops[epoch % LOOPS], &own->ac_msg);
	while (sem_wait(&own->ac_sem))
		;
	sl->sl_floor = epoch;
}

static void delete (struct slot *sl)
{
	struct held he = {.he_ino = sl->sl_ino, .he_create = true};

	sl->sl_dying = true;
	sl->sl_floor = 0;
	ck_assert_int_eq(order(CTL_DELETE, sl->sl_ino, ++order_number, 0), CTL_OK);
	on_loop(loops[he.he_ino % LOOPS], hold, &he);
	ck_assert_int_eq(he.he_err, -ESTALE);
	slot_new(sl);
}

START_TEST(objects_are_used_fenced_deleted_and_evicted_at_once)
{
	struct actor *ac = calloc(ACTORS + 1, sizeof(*ac));
	unsigned seed = (unsigned)time(NULL);
	uint64_t until;

	printf("# seed %u\n", seed);
	opts.so_max_open = 4; /* one unused object for each of the 64 shards */
	reopen();
	opts.so_max_open = 0;
	for (unsigned i = 0; i < SLOTS; i++)
		slot_new(&slots[i]);
	until = clock_mono_ms() + STRESS_MS;
	for (unsigned i = 0; i <= ACTORS; i++)
		actor_init(&ac[i], seed + i);
	for (unsigned i = 0; i < ACTORS; i++)
		loop_post(loops[i % LOOPS], &ac[i].ac_msg);
	srand(seed);
	while (clock_mono_ms() < until || order_number < 12) { /* of a disk that is busy, fewer */
		struct slot *sl = &slots[rand() % SLOTS];

		if (rand() % 4)
			fence(sl, &ac[ACTORS]);
		else
			delete (sl);
	}
	ended = true;
	for (unsigned i = 0; i < ACTORS; i++)
		while (sem_wait(&ac[i].ac_sem))
			;
	printf("# %lu writes, %lu reads of what was fenced, %lu refused, %lu stale, %lu orders\n",
	       (unsigned long)wrote, (unsigned long)got, (unsigned long)refused,
	       (unsigned long)stale, (unsigned long)order_number);
	ck_assert_uint_gt(wrote, 100);
	ck_assert_uint_gt(got, 50);
	ck_assert_uint_gt(refused, 10);
	for (unsigned i = 0; i < SLOTS; i++)
		ck_assert_int_eq(order(CTL_DELETE, slots[i].sl_ino, ++order_number, 0), CTL_OK);
	ck_assert_msg(open_at_most(0), "%u objects are still in use", ds_store_open_objects(S));
	for (unsigned i = 0; i <= ACTORS; i++)
		free(ac[i].ac_mem);
	free(ac);
}
END_TEST

int main(void)
{
	static const TTest *tests[7];
	Suite *s = suite_create("ds_hold");

	tests[0] = all_uses_of_a_loop_at_a_time_are_one_reference;
	tests[1] = what_is_deleted_goes_with_its_last_use;
	tests[2] = unused_objects_in_memory_are_bounded;
	tests[3] = ranges_of_another_kind_wait_for_those_that_took_no_lock;
	tests[5] = writes_of_the_same_bytes_wait_for_each_other;
	tests[4] = objects_are_used_fenced_deleted_and_evicted_at_once;
	unit_add(s, "holds", setup, teardown, 60, tests);
	return unit_run(s);
}
