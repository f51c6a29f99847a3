/* SPDX-License-Identifier: Apache-2.0 */
/* Mirrors that come and go, and objects that move: what the map says of it, and where it is placed
 * (mds/layout/mirror_change.h). */
#pragma GCC diagnostic ignored "-Wunused-function" /* lo_seats.h has more than this test needs */
#include "mds/layout/mirror_change.h"
#include "mds/layout/relocate.h"
#include "tests/unit/lo_seats.h"

static char why[300];

/* Two racks of three. */
static void six(void)
{
	for (unsigned id = 1; id <= 6; id++)
		server(id, id <= 3 ? "rack=a" : "rack=b");
}

static char rack(const struct lo_map *m, unsigned obj)
{
	return rack_of(m->lm_obj[obj].ob_ds);
}

static void same_when_stored(const struct lo_map *m, unsigned version)
{
	uint8_t buf[NS_BLOB_MAX], again[NS_BLOB_MAX];
	size_t len = lo_map_encode(m, buf, sizeof(buf));
	struct lo_map n;

	ck_assert_uint_gt(len, 0);
	ck_assert_uint_eq(buf[0], version);
	ck_assert_int_eq(lo_map_decode((struct kv_slice){buf, len}, &n), 0);
	ck_assert_uint_eq(lo_map_encode(&n, again, sizeof(again)), len);
	ck_assert_mem_eq(buf, again, len);
	ck_assert_uint_eq(lo_map_encode(m, buf, len - 1), 0);
	if (version == 3) /* cut anywhere it is damaged, or has other texts */
		for (size_t k = 0; k < len - strlen(m->lm_domain) - strlen(m->lm_groups); k++)
			ck_assert_int_eq(lo_map_decode((struct kv_slice){buf, k}, &n), -EIO);
}

static void in_sync(struct lo_map *m)
{
	for (unsigned i = 0; i < lo_objects(m); i++)
		if (m->lm_obj[i].ob_state != LO_ABSENT)
			m->lm_obj[i].ob_state = LO_IN_SYNC;
}

START_TEST(what_placed_a_file_is_kept_with_it)
{
	struct lo_policy p = policy("stripes=2,mirrors=2,domain=rack,group=rack=a/b,group1=rack=b"),
			 q;
	struct lo_map m;

	six();
	place(&p, 7, &m);
	ck_assert_int_eq(lo_map_policy(&m, &q), 0);
	ck_assert_mem_eq(&p, &q, sizeof(p));
	same_when_stored(&m, 3);
	strcpy(m.lm_groups, "group=b"); /* no labels */
	ck_assert_int_eq(lo_map_policy(&m, &q), -EIO);
	strcpy(m.lm_groups, "group7=rack=b"); /* no such mirror */
	ck_assert_int_eq(lo_map_policy(&m, &q), -EIO);
	p = policy("stripes=2,mirrors=2");
	place(&p, 8, &m);
	same_when_stored(&m, 2);
}
END_TEST

START_TEST(a_new_copy_is_in_its_group_and_in_no_other_copys_domain)
{
	struct lo_policy p = policy("mirrors=2,domain=rack,group1=rack=b");
	struct lo_map m;

	six();
	place(&p, 7, &m);
	ck_assert_int_eq(rack(&m, 0), 'a');
	for (unsigned i = 0; i < 50; i++) {
		uint32_t ds = lo_place_object(lo, &m, 0, 0, 1, 0);

		ck_assert_int_eq(rack_of(ds), 'a');
		ck_assert_uint_ne(ds, m.lm_obj[0].ob_ds);
		ck_assert_int_eq(rack_of(lo_place_object(lo, &m, 0, 1, 2, 0)), 'b');
	}
	/* Both others of the rack do not do: one is bad, one is drained. */
	for (unsigned id = 1; id <= 3; id++)
		seat_set(id, nd_terms.dt_draining,
			 id != m.lm_obj[0].ob_ds && id != m.lm_obj[0].ob_ds % 3 + 1);
	ck_assert_uint_eq(lo_place_object(lo, &m, 0, 0, 1, m.lm_obj[0].ob_ds % 3 + 1), 0);
	/* Without its group's label none is there; and a full one is none. */
	label(m.lm_obj[0].ob_ds % 3 + 1, "speed=nvme");
	ck_assert_uint_eq(lo_place_object(lo, &m, 0, 0, 1, 0), 0);
	label(m.lm_obj[0].ob_ds % 3 + 1, "rack=a");
	ck_assert_uint_ne(lo_place_object(lo, &m, 0, 0, 1, 0), 0);
	seat_set(m.lm_obj[0].ob_ds % 3 + 1, nd_sv.sv_available, 1000);
	ck_assert_uint_eq(lo_place_object(lo, &m, 0, 0, 1, 0), 0);
	/* Files of before say nothing: any other server. */
	*m.lm_domain = *m.lm_groups = 0;
	ck_assert_int_eq(rack_of(lo_place_object(lo, &m, 0, 0, 1, 0)), 'b');
}
END_TEST

START_TEST(one_object_goes_where_it_is_sent_if_it_may)
{
	struct lo_policy p = policy("stripes=2,mirrors=2,domain=rack");
	struct lo_map m, was;
	uint32_t other = 0;

	six();
	place(&p, 7, &m);
	was = m;
	for (uint32_t id = 1; id <= 6; id++) {
		bool may = rack_of(id) == rack(&m, 1) && id != m.lm_obj[1].ob_ds;

		ck_assert_int_eq(lo_relocate_may(lo, &m, 1, id), may);
		other = may ? id : other;
		if (!may)
			ck_assert_int_eq(lo_relocate(lo, &m, 1, id), -EAGAIN);
	}
	ck_assert_mem_eq(&m, &was, sizeof(m));
	ck_assert(!lo_relocate_may(lo, &m, 4, other) && !lo_relocate_may(lo, &m, 1, 0));
	seat_set(other, nd_sv.sv_available, 1000);
	ck_assert_int_eq(lo_relocate(lo, &m, 1, other), -EAGAIN);
	seat_set(other, nd_sv.sv_available, dsc->d_node[1]->nd_sv.sv_available ? 1ull << 40 : 0);
	ck_assert_int_eq(lo_relocate(lo, &m, 1, other), 0);
	ck_assert(m.lm_pending_mirror && m.lm_mirrors == 3 && m.lm_obj[1].ob_leaving);
	ck_assert_uint_eq(m.lm_obj[5].ob_ds, other);
	ck_assert_int_eq(m.lm_obj[5].ob_state, LO_STALE);
	ck_assert_int_eq(m.lm_obj[4].ob_state, LO_ABSENT);
	same_when_stored(&m, 3);
	ck_assert_int_eq(lo_relocate(lo, &m, 0, other), -EAGAIN); /* one at a time */
	in_sync(&m);
	ck_assert(lo_switch_ready(&m));
	/* Nor where the layout has no room. */
	p = policy("stripes=22,mirrors=2");
	place(&p, 8, &m);
	ck_assert(!lo_relocate_fits(lo, &m));
}
END_TEST

START_TEST(a_mirror_more_and_one_less)
{
	struct lo_policy p = policy("stripes=2,mirrors=2,group0=rack=a,group1=rack=b");
	struct lo_map m;

	six();
	place(&p, 7, &m);
	ck_assert_int_eq(lo_mirror_add(lo, &m, "rack=a", why, sizeof(why)), 0);
	ck_assert_uint_eq(m.lm_mirrors, 3);
	ck_assert_str_eq(m.lm_groups, "group0=rack=a,group1=rack=b,group2=rack=a");
	for (unsigned s = 0; s < 2; s++) {
		ck_assert_int_eq(m.lm_obj[4 + s].ob_state, LO_STALE);
		ck_assert_int_eq(rack(&m, 4 + s), 'a');
		ck_assert_uint_ne(m.lm_obj[4 + s].ob_ds, m.lm_obj[s].ob_ds);
		ck_assert_uint_gt(m.lm_obj[4 + s].ob_copy, 1);
	}
	ck_assert(!lo_map_whole(&m) && !lo_switch_ready(&m));
	ck_assert_int_eq(lo_mirror_add(lo, &m, "rack=c", why, sizeof(why)), -ENOSPC);
	ck_assert_int_eq(lo_mirror_add(lo, &m, "rack", why, sizeof(why)), -EINVAL);
	ck_assert_uint_eq(m.lm_mirrors, 3);
	/* One that would leave only what is not filled yet. */
	m.lm_obj[2].ob_state = LO_STALE;
	ck_assert_int_eq(lo_mirror_remove(&m, 0, why, sizeof(why)), -EBUSY);
	ck_assert_int_eq(lo_leaving(&m, 0), -1);
	m.lm_obj[2].ob_state = LO_IN_SYNC;
	ck_assert_int_eq(lo_mirror_remove(&m, 3, why, sizeof(why)), -EINVAL);
	ck_assert_int_eq(lo_mirror_remove(&m, 0, why, sizeof(why)), 0);
	ck_assert(lo_switch_ready(&m));
	ck_assert_int_eq(lo_mirror_remove(&m, 1, why, sizeof(why)), -EBUSY);
	ck_assert_int_eq(lo_mirror_add(lo, &m, "", why, sizeof(why)), -EBUSY);
	same_when_stored(&m, 3);
	/* Nor does it go while what stays is on a server that is away. */
	ck_assert(lo_switch_lives(lo, &m));
	seat_set(m.lm_obj[3].ob_ds, nd_joined, false);
	ck_assert(!lo_switch_lives(lo, &m));
	seat_set(m.lm_obj[3].ob_ds, nd_joined, true);
	/* What was the only other one in sync is not any more: it waits. */
	m.lm_obj[3].ob_state = LO_STALE;
	ck_assert(!lo_switch_ready(&m));
}
END_TEST

START_TEST(what_is_misplaced_leaves_one_object_of_a_stripe_at_a_time)
{
	struct lo_policy p = policy("stripes=2,mirrors=2"),
			 q = policy("stripes=2,mirrors=2,domain=rack,group0=rack=a,group1=rack=b");
	struct lo_map m;

	six();
	place(&p, 7, &m);
	/* Stripe 0 on 4 and 5, stripe 1 on 1 and 5. */
	m.lm_obj[0].ob_ds = 4;
	m.lm_obj[1].ob_ds = 1;
	m.lm_obj[2].ob_ds = m.lm_obj[3].ob_ds = 5;
	ck_assert_uint_eq(lo_misplaced(lo, &m), 0);
	ck_assert_int_eq(lo_move_begin(lo, &m), 0);
	ck_assert_int_eq(lo_move_ask(lo, &m, &q, 0, why, sizeof(why)), 0);
	ck_assert_uint_eq(lo_misplaced(lo, &m), 5); /* in its group, but with the other one */
	ck_assert_int_eq(lo_move_begin(lo, &m), 1);
	ck_assert(m.lm_pending_mirror && m.lm_mirrors == 3 && m.lm_obj[0].ob_leaving);
	ck_assert_int_eq(rack(&m, 4), 'a');
	ck_assert_int_eq(m.lm_obj[4].ob_state, LO_STALE);
	ck_assert_int_eq(m.lm_obj[5].ob_state, LO_ABSENT);
	ck_assert_uint_eq(lo_mirror_of(&m, 4), 0);
	same_when_stored(&m, 3);
	/* It is named for writing as soon as it is rebuilt, and nothing is where nothing is. */
	m.lm_obj[4].ob_state = LO_REBUILDING;
	ck_assert_uint_eq(lo_writers(&m), 0x1f);
	ck_assert(!lo_switch_ready(&m) && !lo_map_whole(&m));
	ck_assert_int_eq(lo_move_ask(lo, &m, &q, 0, why, sizeof(why)), -EBUSY);
	ck_assert_int_eq(lo_mirror_add(lo, &m, "", why, sizeof(why)), -EBUSY);
	m.lm_obj[4].ob_state = LO_IN_SYNC;
	ck_assert(lo_switch_ready(&m) && !lo_map_whole(&m) && lo_switch_lives(lo, &m));
	seat_set(m.lm_obj[4].ob_ds, nd_joined, false); /* the new place */
	ck_assert(!lo_switch_lives(lo, &m));
	seat_set(m.lm_obj[4].ob_ds, nd_joined, true);
	ck_assert_uint_eq(lo_map_make_stale(&m, 1, NULL), 1); /* it leaves anyway */
	ck_assert(lo_switch_ready(&m));
	/* For a clone it is a file like others. */
	lo_map_settle(&m);
	in_sync(&m);
	ck_assert(lo_map_whole(&m));
	ck_assert_uint_eq(m.lm_mirrors, 2);
}
END_TEST

START_TEST(a_drained_server_and_one_that_is_named_are_left)
{
	struct lo_policy p = policy("mirrors=2");
	struct lo_map m;

	six();
	place(&p, 7, &m);
	seat_set(m.lm_obj[1].ob_ds, nd_terms.dt_draining, true);
	ck_assert_uint_eq(lo_misplaced(lo, &m), 2);
	ck_assert_int_eq(lo_move_ask(lo, &m, NULL, m.lm_obj[0].ob_ds, why, sizeof(why)), 0);
	ck_assert_uint_eq(lo_misplaced(lo, &m), 3);
	for (unsigned i = 0; i < 50; i++) {
		struct lo_map n = m;

		ck_assert_int_eq(lo_move_begin(lo, &n), 1);
		ck_assert_uint_eq(lo_mirror_of(&n, 2), 0);
		ck_assert_uint_ne(n.lm_obj[2].ob_ds, m.lm_obj[0].ob_ds);
		ck_assert_uint_ne(n.lm_obj[2].ob_ds, m.lm_obj[1].ob_ds);
	}
	/* Nowhere to go: it stays, and that is told. */
	for (unsigned id = 1; id <= 6; id++)
		seat_set(id, nd_terms.dt_draining, true);
	ck_assert_int_eq(lo_move_begin(lo, &m), -ENOSPC);
	ck_assert(!m.lm_pending_mirror);
	for (unsigned id = 1; id <= 6; id++)
		seat_set(id, nd_terms.dt_draining, false);
	m.lm_from = 0;
	m.lm_move = true; /* and all is well: that is forgotten */
	ck_assert_int_eq(lo_move_begin(lo, &m), 0);
	ck_assert(!m.lm_move && lo_map_whole(&m));
}
END_TEST

START_TEST(what_is_too_wide_stays)
{
	struct lo_policy p = policy("stripes=22,mirrors=2");
	struct lo_map m;

	six();
	place(&p, 7, &m);
	ck_assert_int_eq(lo_mirror_add(lo, &m, "", why, sizeof(why)), -EINVAL);
	ck_assert_ptr_nonnull(strstr(why, "would not fit"));
	ck_assert_int_eq(lo_move_ask(lo, &m, NULL, 1, why, sizeof(why)), -EINVAL);
	m.lm_from = 1;
	ck_assert_int_eq(lo_move_begin(lo, &m), -EFBIG);
	p.lp_stripes = 11;
	ck_assert_int_eq(lo_move_ask(lo, &m, &p, 0, why, sizeof(why)), -EINVAL);
	ck_assert_ptr_nonnull(strstr(why, "stripes=22"));
}
END_TEST

START_TEST(the_spare_column_fits_what_leaves_or_the_map_is_damaged)
{
	struct lo_policy p = policy("stripes=2,mirrors=2");
	uint8_t buf[NS_BLOB_MAX];
	struct lo_map m, n, bad;

	six();
	place(&p, 7, &m);
	ck_assert_int_eq(lo_move_ask(lo, &m, NULL, m.lm_obj[0].ob_ds, why, sizeof(why)), 0);
	ck_assert_int_gt(lo_move_begin(lo, &m), 0);
	same_when_stored(&m, 3);
	for (unsigned k = 0; k < 4; k++) {
		bad = m;
		if (k == 0)
			bad.lm_obj[0].ob_leaving = false;
		else if (k == 1)
			bad.lm_obj[2].ob_leaving = true;
		else if (k == 2)
			bad.lm_obj[4].ob_leaving = true;
		else
			bad.lm_obj[1] = (struct lo_object){.ob_state = LO_ABSENT};
		ck_assert_int_eq(
			lo_map_decode((struct kv_slice){buf, lo_map_encode(&bad, buf, sizeof(buf))},
				      &n),
			-EIO);
	}
}
END_TEST

START_TEST(what_is_known_of_objects_is_of_them_wherever_they_are)
{
	struct lo_policy p = policy("stripes=2,mirrors=3");
	struct lo_map m, n;

	six();
	place(&p, 7, &m);
	n = m;
	/* The second mirror is gone. */
	memmove(&n.lm_obj[2], &n.lm_obj[4], 2 * sizeof(n.lm_obj[0]));
	n.lm_mirrors = 2;
	ck_assert_uint_eq(lo_map_same(&m, 0x3f, &n), 0xf);
	ck_assert_uint_eq(lo_map_same(&m, 0x10, &n), 0x4);
	ck_assert_uint_eq(lo_map_same(&m, 0x0c, &n), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("column");
	TCase *live = tcase_create("live");

	tcase_add_checked_fixture(live, setup, teardown);
	tcase_add_test(live, what_placed_a_file_is_kept_with_it);
	tcase_add_test(live, a_new_copy_is_in_its_group_and_in_no_other_copys_domain);
	tcase_add_test(live, one_object_goes_where_it_is_sent_if_it_may);
	tcase_add_test(live, a_mirror_more_and_one_less);
	tcase_add_test(live, what_is_misplaced_leaves_one_object_of_a_stripe_at_a_time);
	tcase_add_test(live, a_drained_server_and_one_that_is_named_are_left);
	tcase_add_test(live, what_is_too_wide_stays);
	tcase_add_test(live, the_spare_column_fits_what_leaves_or_the_map_is_damaged);
	tcase_add_test(live, what_is_known_of_objects_is_of_them_wherever_they_are);
	suite_add_tcase(s, live);
	return unit_run(s);
}
