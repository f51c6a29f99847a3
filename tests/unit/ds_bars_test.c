/* SPDX-License-Identifier: Apache-2.0 */
/* ds_bars_test.c - barred clients: against a plain set, and what is kept of many. */
#include "base/rcu.h"
#include "tests/unit/ds_store.h"
#include <dirent.h>
#include <sys/stat.h>

#define BRANCH (1u << 20) /* numbers that bars.c keeps in one branch */

/* ---- the plain set: numbers of two spans, around places where something begins or ends ---- */

enum { SPAN = 3000, SPANS = 3 };
static const uint32_t span_at[SPANS] = {1, BRANCH - 1500, UINT32_MAX - SPAN + 1};
static bool model[SPANS][SPAN];
static uint64_t seed;

static uint32_t pick(uint32_t below)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(seed >> 33) % below;
}

static size_t model_runs(void)
{
	size_t n = 0;

	for (int s = 0; s < SPANS; s++)
		for (int i = 0; i < SPAN; i++)
			n += model[s][i] && (!i || !model[s][i - 1]);
	return n;
}

static size_t runs(void)
{
	size_t bytes;

	return ds_store_bars(F, &bytes);
}

static void same_as_model(void)
{
	for (int s = 0; s < SPANS; s++)
		for (int i = 0; i < SPAN; i++)
			ck_assert_msg(ds_store_barred(F, span_at[s] + (uint32_t)i) == model[s][i],
				      "client %u is barred: %d", span_at[s] + (uint32_t)i,
				      !model[s][i]);
	ck_assert_uint_eq(runs(), model_runs());
	ck_assert(!ds_store_barred(F, 0));
	ck_assert(!ds_store_barred(F, BRANCH / 2));
}

static ctl_status dead(uint32_t first, uint32_t last, uint32_t *living, unsigned n)
{
	ctl_dead_args a = {
		.instance_epoch = 1, .fs = 1, .first = first, .last = last, .living = {n, living}};
	ctl_status st;
	unsigned r = 0;

	st = ds_store_dead(F, &a, &r);
	if (st == CTL_OK)
		ck_assert_uint_eq(r, runs());
	return st;
}

static void bar_some(unsigned n)
{
	ctl_order o[CTL_BATCH_MAX];
	ctl_status res[CTL_BATCH_MAX];

	memset(o, 0, sizeof(o));
	for (unsigned i = 0; i < n; i++) {
		unsigned s = pick(SPANS), at = pick(SPAN);

		o[i].type = CTL_BAR_CLIENT;
		o[i].client = span_at[s] + at;
		model[s][at] = true;
	}
	ck_assert_int_eq(ds_store_fences(F, 1, o, n, res), CTL_OK);
	for (unsigned i = 0; i < n; i++)
		ck_assert_int_eq(res[i], CTL_OK);
}

/* Some live in a part of a span; who is barred does not live. */
static void tell_some(void)
{
	unsigned s = pick(SPANS), from = pick(SPAN), to = from + pick(SPAN - from), n = 0,
		 spare = pick(20) + 1;
	static uint32_t living[SPAN];

	for (unsigned i = from; i <= to; i++) {
		if (!model[s][i] && pick(spare) == 0)
			living[n++] = span_at[s] + i;
		else
			model[s][i] = true;
	}
	ck_assert_int_eq(dead(span_at[s] + from, span_at[s] + to, living, n), CTL_OK);
}

START_TEST(a_barred_client_is_refused_for_ever_and_a_living_one_never)
{
	seed = (uint64_t)_i;
	memset(model, 0, sizeof(model));
	for (int round = 0; round < 40; round++) {
		switch (pick(5)) {
		case 0:
			tell_some();
			break;
		case 1:
			reopen();
			break;
		default:
			bar_some(1 + pick(200));
		}
		same_as_model();
	}
	reopen();
	same_as_model();
}
END_TEST

START_TEST(whole_branches_give_way)
{
	uint32_t living[] = {5, 3 * BRANCH, 3 * BRANCH + 1, UINT32_MAX};
	size_t bytes, before;

	ds_store_bars(F, &before);
	ck_assert_int_eq(dead(1, UINT32_MAX, living, 4), CTL_OK);
	for (int round = 0; round < 2; round++) {
		ck_assert_uint_eq(ds_store_bars(F, &bytes), 3);
		/* Two branches and their leaves are not whole, and the last. */
		ck_assert_uint_lt(bytes, before + 4 * BRANCH / 64 + 4096);
		ck_assert(ds_store_barred(F, 1) && ds_store_barred(F, 4) && ds_store_barred(F, 6));
		ck_assert(ds_store_barred(F, 2 * BRANCH) && ds_store_barred(F, 3 * BRANCH - 1) &&
			  ds_store_barred(F, UINT32_MAX - 1));
		for (unsigned i = 0; i < 4; i++)
			ck_assert(!ds_store_barred(F, living[i]));
		ck_assert(!ds_store_barred(F, 0));
		reopen();
	}
	ck_assert_int_eq(dead(1, UINT32_MAX, NULL, 0), CTL_OK);
	ck_assert_uint_eq(ds_store_bars(F, &bytes), 1);
	ck_assert_uint_le(bytes, before + 4 * BRANCH / 64);
	ck_assert(!ds_store_barred(F, 0));
}
END_TEST

START_TEST(what_is_no_list_of_the_living_bars_nobody)
{
	uint32_t falling[] = {9, 8}, twice[] = {8, 8}, under[] = {4}, above[] = {11};
	ctl_dead_args old = {.instance_epoch = 1, .fs = 1, .first = 1, .last = 10};
	unsigned r;

	ck_assert_int_eq(dead(0, 10, NULL, 0), CTL_INVAL); /* 0 is the MDS itself */
	ck_assert_int_eq(dead(10, 5, NULL, 0), CTL_INVAL);
	ck_assert_int_eq(dead(5, 10, falling, 2), CTL_INVAL);
	ck_assert_int_eq(dead(5, 10, twice, 2), CTL_INVAL);
	ck_assert_int_eq(dead(5, 10, under, 1), CTL_INVAL);
	ck_assert_int_eq(dead(5, 10, above, 1), CTL_INVAL);
	ck_assert_int_eq(ds_store_join(F, 2, 1, 0), CTL_OK);
	ck_assert_int_eq(ds_store_dead(F, &old, &r), CTL_STALE_INSTANCE);
	ck_assert_uint_eq(runs(), 0);
	for (uint32_t c = 0; c < 20; c++)
		ck_assert(!ds_store_barred(F, c));
}
END_TEST

/* ---- many ---- */

/* Bytes of all segments. */
static uint64_t journal_bytes(void)
{
	char path[512];
	struct dirent *e;
	uint64_t n = 0;
	struct stat st;
	DIR *d;

	snprintf(path, sizeof(path), "%s/journal", dir);
	d = opendir(path);
	ck_assert_ptr_nonnull(d);
	while ((e = readdir(d))) {
		if (*e->d_name == '.')
			continue;
		ck_assert_int_eq(fstatat(dirfd(d), e->d_name, &st, 0), 0);
		n += (uint64_t)st.st_size;
	}
	closedir(d);
	return n;
}

enum { EVICTED = 100000, LIVING = 10, BATCH = 5000 };

/* As a batch of orders does it; so many that the disk's syncs do not count. */
static void evict(uint32_t (*number)(unsigned k), unsigned from)
{
	static struct ds_rec recs[BATCH];

	for (unsigned i = 0; i < BATCH; i++) {
		recs[i] = (struct ds_rec){.dsr_type = DS_REC_BAR,
					  .dsr_client = number(from + i),
					  .dsr_a = from + i + 1};
		ck_assert_int_eq(ds_bar(F, recs[i].dsr_client), 0);
	}
	ck_assert_int_eq(ds_journal_add(F, recs, BATCH), 0);
}

/* Every second number, in no order: clients between them left, or live. */
static uint32_t scattered(unsigned k)
{
	return 2 * (uint32_t)((uint64_t)k * 7919 % EVICTED) + 2;
}

static uint32_t rising(unsigned k)
{
	return 2 * k + 10;
}

static bool lives(uint32_t c)
{
	return c % (2 * EVICTED / LIVING) == 1;
}

static void only_the_living_live(void)
{
	for (uint32_t c = 1; c <= 2 * EVICTED; c++)
		if (ds_store_barred(F, c) == lives(c))
			ck_abort_msg("client %u is barred: %d", c, lives(c));
}

START_TEST(a_hundred_thousand_evictions_leave_what_the_living_need)
{
	size_t bytes, before, most = 0, most_runs = 0;
	uint32_t living[LIVING];

	ds_store_bars(F, &before);
	for (unsigned i = 0; i < LIVING; i++)
		living[i] = i * (2 * EVICTED / LIVING) + 1;
	for (unsigned k = 0; k < EVICTED; k += BATCH) {
		size_t r;

		evict(scattered, k);
		r = ds_store_bars(F, &bytes);
		most = bytes > most ? bytes : most;
		most_runs = r > most_runs ? r : most_runs;
	}
	/* With an MDS that tells nothing: a bit for each number, and no row is copied for
	 * another. */
	ck_assert_uint_le(most, before + 2 * EVICTED / 8 * 5 / 4 + BRANCH / 32);
	ck_assert_uint_eq(most_runs, EVICTED);
	ck_assert_int_eq(dead(1, 2 * EVICTED, living, LIVING), CTL_OK);
	ck_assert_uint_eq(ds_store_bars(F, &bytes), LIVING);
	ck_assert_uint_le(bytes, before + BRANCH / 32 + 128 * LIVING);
	only_the_living_live();
	reopen();
	/* The state, and a run between two that live. */
	ck_assert_uint_eq(journal_bytes(), 40 * (1 + LIVING));
	ck_assert_uint_eq(ds_store_bars(F, &bytes), LIVING);
	only_the_living_live();
}
END_TEST

START_TEST(the_journal_does_not_grow_with_evictions)
{
	uint64_t most = 0, before = 0, turned = 0;

	/* Clients come and go, one lives; the MDS tells now and then. Nothing is deleted that would
	 * turn the journal. */
	for (unsigned k = 0; k < 3 * EVICTED; k += BATCH) {
		uint32_t one = 7;
		uint64_t n;

		evict(rising, k);
		ck_assert_int_eq(dead(1, rising(k + BATCH) - 1, &one, 1), CTL_OK);
		ck_assert_uint_eq(runs(), 2);
		n = journal_bytes();
		most = n > most ? n : most;
		turned += n < before;
		before = n;
	}
	ck_assert_uint_ge(turned, 2);
	ck_assert_uint_le(most, (4 << 20) + 40 * (BATCH + 8));
}
END_TEST

/* ---- what is stored ---- */

static uint8_t last_type(void)
{
	struct dirent **list;
	char path[768];
	uint8_t rec[40];
	int n, fd;

	snprintf(path, sizeof(path), "%s/journal", dir);
	n = scandir(path, &list, NULL, alphasort);
	ck_assert_int_gt(n, 2);
	snprintf(path, sizeof(path), "%s/journal/%s", dir, list[n - 1]->d_name);
	while (n--)
		free(list[n]);
	free(list);
	fd = open(path, O_RDONLY);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pread(fd, rec, sizeof(rec), lseek(fd, 0, SEEK_END) - (off_t)sizeof(rec)),
			 sizeof(rec));
	close(fd);
	return rec[1];
}

/* The next so many-th calloc fails. */
static unsigned calloc_fails;
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
	return calloc_fails && !--calloc_fails ? NULL : __real_calloc(n, size);
}

/* The metadata server takes any answer to a bar for one that is in force. */
START_TEST(a_bar_for_which_there_is_no_memory_is_not_answered)
{
	ctl_order o[2] = {{.type = CTL_BAR_CLIENT, .number = 1, .client = 1u << 30},
			  {.type = CTL_BAR_CLIENT, .number = 2, .client = 3u << 30}};
	unsigned tries = 0;
	ctl_status res[2];
	ctl_status st;

	do {
		calloc_fails = ++tries;
		st = ds_store_fences(F, 1, o, 2, res);
		if (st == CTL_OK)
			ck_assert(res[0] == CTL_OK && res[1] == CTL_OK &&
				  ds_store_barred(F, 1u << 30) && ds_store_barred(F, 3u << 30));
	} while (!calloc_fails && tries < 100);
	calloc_fails = 0;
	/* Of the batch itself, and of two numbers that are far from each other. */
	ck_assert_uint_ge(tries, 4);
	ck_assert_int_eq(st, CTL_OK);
}
END_TEST

/* A program from before there were runs reads bars, and refuses what it does not know. */
START_TEST(a_single_bar_is_stored_as_it_always_was)
{
	ctl_order o = {.type = CTL_BAR_CLIENT, .number = 1, .client = 33};
	ctl_status res;

	ck_assert_int_eq(ds_store_fences(F, 1, &o, 1, &res), CTL_OK);
	reopen();
	ck_assert_uint_eq(last_type(), DS_REC_BAR);
	o.client = 34;
	ck_assert_int_eq(ds_store_fences(F, 1, &o, 1, &res), CTL_OK);
	reopen();
	ck_assert_uint_eq(last_type(), DS_REC_RUN);
	ck_assert(!ds_store_barred(F, 32) && ds_store_barred(F, 33) && ds_store_barred(F, 34) &&
		  !ds_store_barred(F, 35));
}
END_TEST

static void record_write(uint8_t type, uint32_t client, uint64_t last)
{
	struct ds_rec r = {.dsr_version = 1,
			   .dsr_type = type,
			   .dsr_client = htobe32(client),
			   .dsr_a = htobe64(last)};
	char path[512];
	int fd;

	r.dsr_sum = htobe32((uint32_t)hash_bytes(&r, offsetof(struct ds_rec, dsr_sum)));
	snprintf(path, sizeof(path), "%s/journal/fffffffffffffff0", dir);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, &r, sizeof(r)), sizeof(r));
	close(fd);
}

START_TEST(a_record_that_is_not_known_is_refused_in_one_line)
{
	char err[512];

	ds_store_close(S);
	S = NULL;
	record_write(DS_REC_STATE_OF + 1, 1, 2);
	ck_assert_int_ne(try_open(err), 0);
	ck_assert_ptr_nonnull(strstr(err, "type 6"));
	ck_assert_ptr_null(strchr(err, '\n'));
	/* Client 0 is the metadata server: as a run's first one it would be refused at the next
	 * start. */
	record_write(DS_REC_BAR, 0, 0);
	ck_assert_int_ne(try_open(err), 0);
	ck_assert_ptr_nonnull(strstr(err, "bars clients 0 to 0,"));
	record_write(DS_REC_RUN, 9, 8);
	ck_assert_int_ne(try_open(err), 0);
	ck_assert_ptr_nonnull(strstr(err, "bars clients 9 to 8,"));
	record_write(DS_REC_RUN, 0, 8);
	ck_assert_int_ne(try_open(err), 0);
	record_write(DS_REC_RUN, 8, (uint64_t)UINT32_MAX + 1);
	ck_assert_int_ne(try_open(err), 0);
	record_write(DS_REC_RUN, 8, 9);
	ck_assert_int_eq(try_open(err), 0);
	ck_assert(!ds_store_barred(F, 7) && ds_store_barred(F, 8) && ds_store_barred(F, 9) &&
		  !ds_store_barred(F, 10));
}
END_TEST

/* ---- who asks while all is changed ---- */

static _Atomic bool stop;
static _Atomic unsigned wrong;

static void *asker(void *arg)
{
	bool seen = false;

	(void)arg;
	urcu_memb_register_thread();
	while (!atomic_load(&stop)) {
		bool now = ds_store_barred(F, 600);

		atomic_fetch_add(&wrong, (unsigned)((seen && !now) || ds_store_barred(F, 601)));
		seen = now;
	}
	urcu_memb_unregister_thread();
	return NULL;
}

START_TEST(who_asks_sees_no_bar_go)
{
	uint32_t lives = 601;
	pthread_t t[2];

	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, asker, NULL), 0);
	for (uint32_t round = 0; round < 300; round++) {
		uint32_t base = 10 * BRANCH + round * 1024;

		ck_assert_int_eq(ds_bar(F, base + 3), 0);
		ck_assert_int_eq(dead(base, base + 1023, NULL, 0), CTL_OK);
		if (round == 20)
			ck_assert_int_eq(ds_bar(F, 600), 0);
		if (round == 40)
			ck_assert_int_eq(dead(513, 1024, &lives, 1), CTL_OK);
		if (round > 40)
			ck_assert_int_eq(dead(1024 + round * 7, 1024 + round * 9, NULL, 0), CTL_OK);
	}
	atomic_store(&stop, true);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	ck_assert_uint_eq(atomic_load(&wrong), 0);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {whole_branches_give_way,
				      what_is_no_list_of_the_living_bars_nobody,
				      a_hundred_thousand_evictions_leave_what_the_living_need,
				      the_journal_does_not_grow_with_evictions,
				      a_bar_for_which_there_is_no_memory_is_not_answered,
				      a_single_bar_is_stored_as_it_always_was,
				      a_record_that_is_not_known_is_refused_in_one_line,
				      who_asks_sees_no_bar_go,
				      NULL};
	Suite *s = suite_create("ds bars");
	TCase *tc = tcase_create("model");

	unit_add(s, "bars", setup, teardown, 120, tests);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, a_barred_client_is_refused_for_ever_and_a_living_one_never, 0, 4);
	suite_add_tcase(s, tc);
	return unit_run(s);
}
