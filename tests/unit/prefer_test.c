/* SPDX-License-Identifier: Apache-2.0 */
/* Which copy a client reads: weights, load, latency, and the map of networks. The servers are made
 * in memory; nothing is asked of them. */
#pragma GCC diagnostic ignored "-Wunused-function" /* lo_seats.h has more than this test needs */
#include "tests/unit/lo_seats.h"

enum { READERS = 20000 };

/* How many of many clients have server 1, 2 and 3 first for a file that is on all of them. */
static void readers(const struct sockaddr_storage *peer, double *first)
{
	struct lo_map m = {.lm_unit = MIB, .lm_stripes = 1, .lm_mirrors = 3};

	for (unsigned i = 0; i < 3; i++) {
		m.lm_obj[i] = (struct lo_object){.ob_ds = i + 1, .ob_copy = (uint8_t)i};
		first[i] = 0;
	}
	for (uint32_t c = 0; c < READERS; c++) {
		struct lo_reader rd = {c, peer, false};
		uint8_t order[LO_MAX_OBJECTS], again[LO_MAX_OBJECTS];

		ck_assert_uint_eq(lo_prefer(lo, &m, 4711, 0, &rd, 0, order), 3);
		ck_assert_uint_eq(lo_prefer(lo, &m, 4711, 0, &rd, 0, again), 3);
		ck_assert(!memcmp(order, again, 3));
		ck_assert_uint_eq(1u << order[0] | 1u << order[1] | 1u << order[2], 7);
		first[order[0]] += 1.0 / READERS;
	}
}

/* A part is within 4 sigma of what it should be. */
static void part(double have, double want)
{
	ck_assert_msg(fabs(have - want) <= 4 * sqrt(want * (1 - want) / READERS) + 1e-9,
		      "%f, want %f", have, want);
}

START_TEST(reads_of_one_file_spread_over_its_copies_by_weight)
{
	struct lo_map m = {.lm_unit = MIB, .lm_stripes = 1, .lm_mirrors = 3};
	struct lo_reader rd = {7, NULL, false};
	double first[3], other = 0;
	uint8_t order[LO_MAX_OBJECTS];

	for (unsigned i = 0; i < 3; i++) {
		server(i + 1, "")->nd_terms.dt_weight = DS_REG_WEIGHT_ONE << i;
		seats_said();
		m.lm_obj[i] = (struct lo_object){.ob_ds = i + 1, .ob_copy = (uint8_t)i};
	}
	readers(NULL, first);
	for (unsigned i = 0; i < 3; i++)
		part(first[i], (1 << i) / 7.0);
	/* The same client reads other files elsewhere. */
	for (uint64_t ino = 0; ino < READERS; ino++) {
		lo_prefer(lo, &m, ino, 0, &rd, 0, order);
		other += (order[0] == 2) * 1.0 / READERS;
	}
	part(other, 4 / 7.0);
	/* What nothing new is placed on is read when no other lives; the dead come last. */
	seat_set(3, nd_terms.dt_weight, 0);
	readers(NULL, first);
	part(first[0], 1 / 3.0);
	part(first[2], 0);
	seat_set(1, nd_joined, false);
	seat_set(2, nd_joined, false);
	readers(NULL, first);
	part(first[2], 1);
}
END_TEST

/* Four stripes of two copies on four servers, as a ring: how many stripes of each client's are
 * first on each server. */
static void striped_readers(double part_of[4], double *unused)
{
	struct lo_map m = {.lm_unit = MIB, .lm_stripes = 4, .lm_mirrors = 2};

	for (unsigned k = 0; k < 8; k++)
		m.lm_obj[k] = (struct lo_object){.ob_ds = (k + k / 4) % 4 + 1,
						 .ob_copy = (uint8_t)(k / 4)};
	memset(part_of, 0, 4 * sizeof(*part_of));
	*unused = 0;
	for (uint32_t c = 0; c < READERS; c++) {
		struct lo_reader rd = {c, NULL, false};
		unsigned has[4] = {0}, from = lo_prefer_from(&m, 4711, &rd);
		uint8_t order[LO_MAX_OBJECTS];
		uint64_t firsts = 0;

		for (unsigned k = 0; k < 4; k++) {
			ck_assert_uint_eq(
				lo_prefer(lo, &m, 4711, (from + k) % 4, &rd, firsts, order), 2);
			firsts |= UINT64_C(1) << order[0];
			has[m.lm_obj[order[0]].ob_ds - 1]++;
		}
		for (unsigned i = 0; i < 4; i++) {
			part_of[i] += has[i] / (4.0 * READERS);
			*unused += !has[i] / (4.0 * READERS);
		}
	}
}

START_TEST(stripes_of_one_file_are_read_from_as_many_servers_as_can_be)
{
	double have[4], unused;

	for (unsigned i = 0; i < 4; i++)
		server(i + 1, "");
	striped_readers(have, &unused);
	/* Drawn for each stripe by itself, a quarter is passed over. */
	ck_assert_msg(unused < 0.18, "%f of the servers are passed over", unused);
	for (unsigned i = 0; i < 4; i++)
		part(have[i], 0.25);
	/* And yet as the weights say, to within a tenth: the first has two parts of three of both
	 * of its stripes. */
	seat_set(1, nd_terms.dt_weight, 2 * DS_REG_WEIGHT_ONE);
	striped_readers(have, &unused);
	ck_assert_msg(fabs(have[0] - 4 / 12.0) < 0.1 * 4 / 12.0, "%f", have[0]);
	ck_assert_msg(fabs(have[2] - 3 / 12.0) < 0.1 * 3 / 12.0, "%f", have[2]);
}
END_TEST

START_TEST(a_change_of_weight_moves_no_more_clients_than_it_must)
{
	struct lo_map m = {.lm_unit = MIB, .lm_stripes = 1, .lm_mirrors = 3};
	uint8_t was[READERS], order[LO_MAX_OBJECTS];
	unsigned moved = 0;

	for (unsigned i = 0; i < 3; i++) {
		server(i + 1, "");
		m.lm_obj[i] = (struct lo_object){.ob_ds = i + 1, .ob_copy = (uint8_t)i};
	}
	for (uint32_t c = 0; c < READERS; c++) {
		lo_prefer(lo, &m, 1, 0, &(struct lo_reader){c, NULL, false}, 0, order);
		was[c] = order[0];
	}
	seat_set(2, nd_terms.dt_weight, 2 * DS_REG_WEIGHT_ONE);
	for (uint32_t c = 0; c < READERS; c++) {
		lo_prefer(lo, &m, 1, 0, &(struct lo_reader){c, NULL, false}, 0, order);
		ck_assert(order[0] == was[c] || order[0] == 1);
		moved += order[0] != was[c];
	}
	part((double)moved / READERS, 1 / 2.0 - 1 / 3.0);
}
END_TEST

START_TEST(who_is_busy_or_slow_is_read_less_and_who_is_near_more)
{
	struct sockaddr_storage near, far;
	double first[3];
	char err[256] = "";
	socklen_t len;

	for (unsigned i = 0; i < 3; i++)
		server(i + 1, i ? "rack=r2" : "rack=r1");
	ck_assert(!rpc_addr_parse("10.1.2.3", 1, &near, &len) &&
		  !rpc_addr_parse("10.2.2.3", 1, &far, &len));
	/* Half of what can be lost by load: 8 of 16 in progress. */
	seat_set(2, nd_terms.dt_load, 800);
	readers(&near, first);
	part(first[1], 1 / 5.0);
	seat_set(2, nd_terms.dt_load, 1000000);
	readers(&near, first);
	part(first[1], 0.25 / 2.25);
	seat_set(2, nd_terms.dt_load, 0);
	/* Slow, as clients tell; of the others one is known to be fast and one not known. */
	ds_reg_note_latency(dsc, 3, 4500);
	ds_reg_note_latency(dsc, 1, 500);
	readers(&near, first);
	part(first[2], 2.5 / 6.5 / (2 + 2.5 / 6.5));
	/* One word of many does little, and what is old counts no more. */
	for (unsigned i = 0; i < 100; i++)
		ds_reg_note_latency(dsc, 1, UINT32_MAX);
	ds_reg_note_latency(dsc, 1, 0);
	ds_reg_note_latency(dsc, 0, 1); /* nobody */
	ds_reg_note_latency(dsc, 99, 1);
	ck_assert_uint_gt(dsc->d_node[1]->nd_terms.dt_latency, 40000000);
	for (unsigned i = 1; i <= 3; i++)
		seat_set(i, nd_latency_ms, dsc->d_node[i]->nd_latency_ms - 300001);
	readers(&near, first);
	part(first[2], 1 / 3.0);
	/* Near. */
	ck_assert_int_eq(
		lo_near_set(lo, "10.1.0.0/16 rack=r1, 10.3.0.0/16 rack=r2", 8, err, sizeof(err)),
		0);
	readers(&near, first);
	part(first[0], 8 / 10.0);
	readers(&far, first);
	part(first[0], 1 / 3.0);
	/* But for the dead. */
	seat_set(1, nd_joined, false);
	readers(&near, first);
	part(first[0], 0);
}
END_TEST

START_TEST(a_bad_map_of_networks_is_refused_with_what_is_wrong)
{
	static const char *const bad[][2] = {
		{"10.1.0.0/33 rack=r1", "10.1.0.0/33"},
		{"10.1.0.0/16", "10.1.0.0/16"},
		{"10.1.0.0/16 rack", "rack"},
		{"10.1.0.0/16 rack=r1 x", "10.1.0.0/16"},
		{"x rack=r1", "x"},
		{"10.0.0.0/8 rack=r1,, ", "nothing"},
	};
	char err[256], many[4096] = "";

	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		*err = 0;
		lo->l_nnear = 0;
		ck_assert_int_eq(lo_near_check(bad[i][0], err, sizeof(err)), -EINVAL);
		ck_assert_int_eq(lo_near_set(lo, bad[i][0], 16, err, sizeof(err)), -EINVAL);
		ck_assert_msg(strstr(err, "mds.near") && strstr(err, bad[i][1]), "%s: %s",
			      bad[i][0], err);
	}
	lo->l_nnear = 0;
	for (unsigned i = 0; i < 65; i++)
		snprintf(many + strlen(many), sizeof(many) - strlen(many), "%s10.%u.0.0/16 a=b",
			 i ? "," : "", i);
	ck_assert_int_eq(lo_near_set(lo, many, 16, err, sizeof(err)), -E2BIG);
	*strrchr(many, ',') = 0;
	lo->l_nnear = 0;
	ck_assert_int_eq(lo_near_set(lo, many, 16, err, sizeof(err)), 0);
	lo->l_nnear = 0;
	ck_assert_int_eq(lo_near_set(lo, "", 16, err, sizeof(err)), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("prefer");
	TCase *live = tcase_create("servers");

	tcase_set_timeout(live, 60);
	tcase_add_checked_fixture(live, setup, teardown);
	tcase_add_test(live, reads_of_one_file_spread_over_its_copies_by_weight);
	tcase_add_test(live, stripes_of_one_file_are_read_from_as_many_servers_as_can_be);
	tcase_add_test(live, a_change_of_weight_moves_no_more_clients_than_it_must);
	tcase_add_test(live, who_is_busy_or_slow_is_read_less_and_who_is_near_more);
	tcase_add_test(live, a_bad_map_of_networks_is_refused_with_what_is_wrong);
	suite_add_tcase(s, live);
	return unit_run(s);
}
