/* SPDX-License-Identifier: Apache-2.0 */
/* The journal: its order, its bounds, and what a restart leaves of it. */
#include "mds/journal/event_journal.h"
#include "tests/unit/unit.h"
#include "tests/unit/scratch.h"
#include <stdlib.h>

static char dir[256];
static struct kv *kv;
static struct ns *ns;

static void begin(void)
{
	struct kv_opts o = {.ko_create = true, .ko_nosync = true, .ko_map_max = 1ull << 28};
	char err[512];

	ck_assert_msg(!kv_open(&kv, dir, &o, err, sizeof(err)), "%s", err);
	ck_assert_msg(!ns_open(&ns, kv, err, sizeof(err)), "%s", err);
	ck_assert_int_eq(journal_open(ns), 0);
}

static void end(void)
{
	ns_close(ns);
	kv_close(kv);
}

static void setup(void)
{
	ck_assert(scratch_make(dir, sizeof(dir), "event_test"));
	begin();
}

static void teardown(void)
{
	end();
	scratch_remove(dir);
}

struct seen {
	uint64_t first, last;
	unsigned n, kinds[EV_KINDS];
	struct ev_event e; /* the newest */
};

static int look(void *arg, const struct ev_event *e)
{
	struct seen *s = arg;

	ck_assert_uint_gt(e->e_seq, s->last);
	s->first = s->n++ ? s->first : e->e_seq;
	s->last = e->e_seq;
	s->kinds[e->e_kind]++;
	s->e = *e;
	return 0;
}

static struct seen all(uint64_t after)
{
	struct seen s = {.last = after};
	struct kv_txn *t;

	ck_assert_int_eq(kv_read_begin(kv, &t), 0);
	ck_assert_int_eq(journal_read(t, after, look, &s), 0);
	kv_read_end(t);
	return s;
}

/* As ticks do: until all is written. */
static void written(void)
{
	journal_close();
}

struct put {
	enum ev_kind kind;
	unsigned n;
};

static int put_run(void *arg, struct kv_txn *t)
{
	const struct put *p = arg;
	int err = 0;

	for (unsigned i = 0; i < p->n && !err; i++)
		err = journal_put(t, p->kind, "ds1", 7 + i, "%u", i);
	return err;
}

static void put(enum ev_kind kind, unsigned n)
{
	struct put p = {kind, n};

	ck_assert_int_eq(kv_run_sync(kv, put_run, &p), 0);
}

START_TEST(what_is_told_is_read)
{
	struct seen s;

	journal_add(EV_DS_DEAD, "ds4", 0, "not heard for %d s", 5);
	put(EV_COPY_STALE, 1);
	ck_assert_uint_eq(all(0).n, 1); /* the first waits for its tick */
	written();
	s = all(0);
	ck_assert_uint_eq(s.n, 2);
	ck_assert_str_eq(s.e.e_text, "not heard for 5 s");
	ck_assert_str_eq(s.e.e_subject, "ds4");
	ck_assert_int_eq(s.e.e_kind, EV_DS_DEAD);
	ck_assert_int_gt(s.e.e_sec, 1000000000);
	/* Whoever has read up to one gets what is committed later, also where it was told
	 * before. */
	ck_assert_uint_eq(all(s.first).n, 1);
	ck_assert_uint_eq(all(s.last).n, 0);
}
END_TEST

START_TEST(it_outlives_a_restart)
{
	uint64_t last;

	put(EV_COPY_STALE, 3);
	journal_add(EV_STARTED, "", 0, "boot");
	written();
	last = all(0).last;
	end();
	begin();
	ck_assert_uint_eq(all(0).n, 4);
	put(EV_COPY_REPAIRED, 1);
	ck_assert_uint_gt(all(0).last, last);
	ck_assert_uint_eq(all(last).n, 1);
}
END_TEST

START_TEST(files_do_not_push_out_servers)
{
	struct seen s;

	put(EV_DS_DEAD, 5);
	put(EV_COPY_STALE, EV_RING + 50);
	s = all(0);
	ck_assert_uint_eq(s.kinds[EV_DS_DEAD], 5);
	ck_assert_uint_eq(s.kinds[EV_COPY_STALE], EV_RING);
	ck_assert_uint_eq(s.e.e_ino, 7 + EV_RING + 49);
	end();
	begin();
	put(EV_COPY_STALE, 10);
	put(EV_DS_DEAD, EV_RING + 1);
	s = all(0);
	ck_assert_uint_eq(s.n, 2 * EV_RING);
	ck_assert_uint_eq(s.kinds[EV_DS_DEAD], EV_RING);
}
END_TEST

START_TEST(requests_do_not_push_out_servers)
{
	struct seen s;

	put(EV_DS_DEAD, 5);
	put(EV_AUDIT, EV_RING + 50);
	for (unsigned i = 0; i < EV_PENDING; i++)
		journal_add(EV_AUDIT, "user root", 0, "%u", i);
	journal_add(EV_DS_ALIVE, "ds1", 0, "x");
	written();
	s = all(0);
	ck_assert_uint_eq(s.kinds[EV_DS_DEAD], 5);
	ck_assert_uint_eq(s.kinds[EV_DS_ALIVE], 1);
	ck_assert_uint_eq(s.kinds[EV_AUDIT], EV_RING);
	ck_assert_uint_eq(s.kinds[EV_LOST], 1);
}
END_TEST

START_TEST(too_many_at_once_are_counted)
{
	struct seen s;
	char text[40];

	for (unsigned i = 0; i < EV_PENDING + 30; i++)
		journal_add(EV_POLICY_SET, "/d", 0, "%u", i);
	written();
	journal_add(EV_STARTED, "", 0, "x");
	written();
	s = all(0);
	ck_assert_uint_eq(s.kinds[EV_POLICY_SET], EV_PENDING);
	ck_assert_uint_eq(s.kinds[EV_LOST], 1);
	snprintf(text, sizeof(text), "%u events", 30);
	ck_assert_int_eq(strncmp(s.e.e_text, text, strlen(text)), 0);
}
END_TEST

START_TEST(what_is_long_is_cut)
{
	char text[2 * EV_TEXT_MAX];
	struct seen s;

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = 0;
	journal_add(EV_POLICY_SET, text, UINT64_MAX, "%s", text);
	written();
	s = all(0);
	ck_assert_uint_eq(strlen(s.e.e_text), EV_TEXT_MAX);
	ck_assert_uint_eq(strlen(s.e.e_subject), EV_SUBJECT_MAX);
	ck_assert(s.e.e_ino == UINT64_MAX);
}
END_TEST

START_TEST(every_kind_has_a_name)
{
	for (unsigned k = 1; k < EV_KINDS; k++)
		ck_assert_int_eq(ev_kind_of(ev_kind_name(k)), k);
	ck_assert_int_eq(ev_kind_of("?"), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("journal");
	TCase *t = tcase_create("journal");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, what_is_told_is_read);
	tcase_add_test(t, it_outlives_a_restart);
	tcase_add_test(t, files_do_not_push_out_servers);
	tcase_add_test(t, requests_do_not_push_out_servers);
	tcase_add_test(t, too_many_at_once_are_counted);
	tcase_add_test(t, what_is_long_is_cut);
	tcase_add_test(t, every_kind_has_a_name);
	suite_add_tcase(s, t);
	return unit_run(s);
}
