/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate_test.c - the numbers of joins (mds/dataserver/gate.c): whoever dies at whatever moment of a
 * join, nobody is said to have been put back; and who was put back to before a join that both sides
 * have is found out.
 *
 * A model: what the metadata server's store has of a data server, and what that one's has. Each
 * step of a join may be the last before either side dies. A store that is put back has what it had
 * some steps ago. All orders of events to a depth, and many long ones by chance.
 */
#include "mds/dataserver/ds_reg_int.h"
#include "tests/unit/unit.h"
#include <stdlib.h>
#include <string.h>

enum { DEPTH = 7, LONG = 60, RUNS = 20000 };

struct store {
	uint64_t boot;
	uint32_t joins;
};

struct world {
	uint64_t boot; /* the metadata server's */
	bool known;
	struct ds_reg_terms row;
	struct store ds;    /* durable there */
	struct store given; /* answered and not stored yet; boot 0: none */
	bool serves;	    /* it stored what it was given, and its heartbeats come */
	bool full;	    /* its disk is */
	uint64_t starts;
};

enum step { JOIN, STORE, BEAT, DS_DIES, MDS_DIES, FILL, STEPS };

static struct ds_reg_told told(const struct world *w)
{
	return (struct ds_reg_told){.to_tells = true,
				    .to_counts = !w->full,
				    .to_boot = w->ds.boot,
				    .to_start = w->starts,
				    .to_start_id = w->starts,
				    .to_kept_boot = w->full ? 0 : w->ds.boot,
				    .to_kept_joins = w->full ? 0 : w->ds.joins};
}

static const char *behind(const struct world *w)
{
	struct ds_reg_told to = told(w);

	return w->known ? ds_reg_gate_behind(&w->row, &to) : NULL;
}

static bool unknown(const struct world *w)
{
	struct ds_reg_told to = told(w);

	return w->known && ds_reg_gate_unknown(&w->row, &to);
}

static void join(struct world *w)
{
	struct ds_reg_terms was = w->row;
	struct ds_reg_told to = told(w);

	/* Each ck_assert is a message to its parent: there are millions of these. */
	if (behind(w) || unknown(w))
		ck_abort_msg("a join is refused: %s", behind(w) ? behind(w) : "it is not known");
	ds_reg_gate_note(&w->row, w->known ? &was : NULL, &to, w->boot);
	w->known = true;
	w->serves = false;
	w->given = (struct store){w->boot, to.to_counts ? w->row.dt_joins : 0};
}

static void stored(struct world *w)
{
	if (!w->given.boot)
		return;
	/* As ds_store_join: a number never falls. A disk that is full takes nothing, and the server
	 * says none. */
	if (!w->full && (w->given.boot > w->ds.boot || w->given.joins > w->ds.joins))
		w->ds = w->given;
	w->serves = true;
	w->given.boot = 0;
}

static void step(struct world *w, enum step s)
{
	switch (s) {
	case JOIN:
		join(w);
		break;
	case STORE:
		stored(w);
		break;
	case BEAT:
		if (w->serves && !w->full)
			ds_reg_gate_proven(&w->row, w->boot, w->row.dt_joins);
		break;
	case DS_DIES:
		w->starts++;
		w->serves = false;
		w->given.boot = 0;
		break;
	case MDS_DIES:
		w->boot++;
		w->serves = false;
		/* What it answered may come yet. */
		break;
	case FILL:
		w->full = !w->full;
		w->serves = false; /* it joins anew */
		w->given.boot = 0;
		break;
	case STEPS:
		abort();
	}
}

static struct world fresh(void)
{
	return (struct world){.boot = 1, .starts = 1};
}

START_TEST(whoever_dies_at_whatever_moment_nobody_was_put_back)
{
	enum step s[DEPTH] = {0};
	unsigned runs = 0;

	for (bool more = true; more;) {
		struct world w = fresh();

		for (unsigned i = 0; i < DEPTH; i++)
			step(&w, s[i]);
		join(&w);
		runs++;
		more = false;
		for (unsigned i = 0; i < DEPTH && !more; i++) {
			more = s[i] + 1 < STEPS;
			s[i] = more ? s[i] + 1 : 0;
		}
	}
	ck_assert_uint_eq(runs, 279936); /* 6^7 */
	srandom(16);
	for (unsigned run = 0; run < RUNS; run++) {
		struct world w = fresh();

		for (unsigned i = 0; i < LONG; i++)
			step(&w, (enum step)(random() % STEPS));
	}
}
END_TEST

static void whole_join(struct world *w)
{
	join(w);
	stored(w);
	step(w, BEAT);
}

START_TEST(who_was_put_back_to_before_a_join_is_found_out)
{
	unsigned found[2] = {0}, known = 0;

	srandom(16);
	for (unsigned run = 0; run < RUNS; run++) {
		struct world w = fresh(), was;
		unsigned before = (unsigned)random() % LONG, after = (unsigned)random() % LONG;

		for (unsigned i = 0; i < before; i++)
			step(&w, (enum step)(random() % FILL));
		was = w;
		for (unsigned i = 0; i < after; i++)
			step(&w, (enum step)(random() % FILL));
		whole_join(&w);
		/* Its own store, however often it is started then. */
		struct world one = w;

		one.ds = was.ds;
		one.starts += (unsigned)random() % 3;
		found[0] += behind(&one) && !unknown(&one);
		/* The metadata server's. */
		if (was.known) {
			one = w;
			one.row = was.row;
			one.boot = was.boot + 1;
			found[1] += unknown(&one) && !behind(&one);
			known++;
		}
	}
	ck_assert_uint_eq(found[0], RUNS);
	ck_assert_uint_eq(found[1], known);
	ck_assert_uint_gt(known, RUNS / 2);
}
END_TEST

START_TEST(one_that_tells_no_numbers_is_judged_as_before)
{
	struct ds_reg_terms row = {0}, next = {0};
	struct ds_reg_told to = {.to_tells = true,
				 .to_start = 4,
				 .to_start_id = 44,
				 .to_order = 9,
				 .to_kept_boot = 7,
				 .to_kept_joins = 1};
	struct world w = fresh();

	whole_join(&w);
	whole_join(&w);
	row = w.row;
	ck_assert_uint_eq(row.dt_had_joins, 2);
	row.dt_start = row.dt_start_id = 4;
	ck_assert_ptr_nonnull(ds_reg_gate_behind(&row, &to)); /* another start 4 */
	row.dt_start = 3;
	ck_assert_ptr_null(ds_reg_gate_behind(&row, &to));
	ck_assert(!ds_reg_gate_unknown(&row, &to));
	ds_reg_gate_note(&next, &row, &to, 1);
	/* Its number goes on in this boot: the program of before may come again, with the one that
	 * it has. */
	ck_assert(next.dt_joins == 2 && !next.dt_had_joins && !next.dt_had_boot);
	to.to_counts = true;
	to.to_kept_boot = 1;
	to.to_kept_joins = 2;
	ck_assert_ptr_null(ds_reg_gate_behind(&next, &to));
	ck_assert(!ds_reg_gate_unknown(&next, &to));
	/* A record of before joins were kept, and a store of that time. */
	row = (struct ds_reg_terms){0};
	to.to_kept_joins = 0;
	ck_assert_ptr_null(ds_reg_gate_behind(&row, &to));
	ck_assert(!ds_reg_gate_unknown(&row, &to));
	/* One that was forgotten goes on above what it has. */
	to.to_kept_joins = 9;
	ds_reg_gate_note(&next, NULL, &to, 1);
	ck_assert_uint_eq(next.dt_joins, 10);
	/* So does one that was seen again since, and waits to be admitted. */
	ck_assert(!ds_reg_gate_unknown(&row, &to));
	ds_reg_gate_note(&next, &row, &to, 1);
	ck_assert_uint_eq(next.dt_joins, 10);
	/* Not proven: another join's, another boot's, one that may not join. */
	ck_assert(!ds_reg_gate_proven(&next, 1, 9) && !ds_reg_gate_proven(&next, 2, 10));
	next.dt_barred = DS_REG_WAITING;
	ck_assert(!ds_reg_gate_proven(&next, 1, 10));
	next.dt_barred = 0;
	ck_assert(ds_reg_gate_proven(&next, 1, 10) && !ds_reg_gate_proven(&next, 1, 10));
}
END_TEST

int main(void)
{
	static const TTest *tests[4];
	Suite *s = suite_create("gate");

	tests[0] = whoever_dies_at_whatever_moment_nobody_was_put_back;
	tests[1] = who_was_put_back_to_before_a_join_is_found_out;
	tests[2] = one_that_tells_no_numbers_is_judged_as_before;
	unit_add(s, "joins", NULL, NULL, 120, tests);
	return unit_run(s);
}
