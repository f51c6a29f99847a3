/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lo_test.c - layouts and data servers: policies, maps, placement and encoding; joining, sizes and
 * I/O against fake data servers (lo_fake.h).
 */
#include "base/clock.h"
#include "mds/dataserver/ds_reg_int.h"
#include "mds/layout/order_int.h"
#include "tests/unit/lo_fake.h"
#include "tests/unit/lo_layout.h"
#include "tests/unit/unit.h"

#define PATIENCE_MS 600000

/* ---- policies ---- */

static int parse(const char *text, struct lo_policy *p, char err[200])
{
	return lo_policy_parse(text, strlen(text), p, err, 200);
}

START_TEST(policies_are_read_in_any_order_and_shown_in_one)
{
	static const char *const same[] = {"stripes=4,unit=1M,mirrors=2", "mirrors=2,stripes=4",
					   "unit=1024K,mirrors=2,stripes=4\n",
					   "unit=1048576,stripes=4,mirrors=2"};
	char err[200], text[LO_POLICY_TEXT];
	struct lo_policy p;

	for (unsigned i = 0; i < 4; i++) {
		ck_assert_int_eq(parse(same[i], &p, err), 0);
		lo_policy_format(&p, text);
		ck_assert_str_eq(text, "stripes=4,unit=1M,mirrors=2");
	}
	ck_assert_int_eq(parse("unit=2G", &p, err), 0);
	lo_policy_format(&p, text);
	ck_assert_str_eq(text, "stripes=1,unit=2G,mirrors=1");
	lo_policy_format(&lo_policy_default, text);
	ck_assert_str_eq(text, "stripes=1,unit=1M,mirrors=1");
}
END_TEST

START_TEST(a_threshold_is_a_size_and_stored_as_it_was_said)
{
	static const struct {
		const char *text, *shown;
		uint64_t bytes;
	} good[] = {{"threshold=64K", "threshold=64K", 65536},
		    {"threshold=0", "threshold=0", 0},
		    {"threshold=0K", "threshold=0", 0},
		    {"threshold=1024K", "threshold=1M", 1 << 20},
		    {"threshold=1000", "threshold=1000", 1000},
		    {"threshold=1T", "threshold=1T", UINT64_C(1) << 40},
		    {"threshold=5000000000", "threshold=5000000000", 5000000000},
		    {"threshold=1025K", "threshold=1025K", 1025 << 10}};
	static const char *const more[] = {"", ",domain=rack", ",domain=rack,group=speed=nvme"};
	char err[200], text[LO_POLICY_TEXT], want[LO_POLICY_TEXT];
	uint8_t buf[LO_POLICY_MAX];
	struct lo_policy p, got;

	for (unsigned i = 0; i < sizeof(good) / sizeof(good[0]) * 3; i++) {
		const char *rest = more[i % 3], *group = strstr(rest, ",group");

		snprintf(text, sizeof(text), "%s%s", good[i / 3].text, rest);
		ck_assert_int_eq(parse(text, &p, err), 0);
		ck_assert(p.lp_has_threshold && p.lp_threshold == good[i / 3].bytes);
		lo_policy_format(&p, text);
		snprintf(want, sizeof(want), "stripes=1,unit=1M,mirrors=1%s,%s%s",
			 *rest ? ",domain=rack" : "", good[i / 3].shown, group ? group : "");
		ck_assert_str_eq(text, want);
		ck_assert_int_eq(
			lo_policy_decode(
				(struct kv_slice){buf, lo_policy_encode(&p, buf, sizeof(buf))},
				&got),
			0);
		lo_policy_format(&got, text);
		ck_assert_str_eq(text, want);
		ck_assert(got.lp_has_threshold);
	}
	/* What is not all there is refused. */
	for (size_t n = lo_policy_encode(&p, buf, sizeof(buf)); n-- > 1;)
		if (lo_policy_decode((struct kv_slice){buf, n}, &got) == 0)
			ck_assert(got.lp_threshold == p.lp_threshold &&
				  strcmp(got.lp_groups, p.lp_groups));
	ck_assert_int_eq(parse("stripes=2", &p, err), 0);
	ck_assert(!p.lp_has_threshold);
}
END_TEST

START_TEST(bad_policies_are_refused_with_the_key)
{
	static const struct {
		const char *text, *key;
	} bad[] = {{"", "KEY=VALUE"},
		   {"stripes", "KEY=VALUE"},
		   {"stripes=", "stripes"},
		   {"stripes=0", "stripes"},
		   {"stripes=-1", "stripes"},
		   {"stripes=45", "stripes"},
		   {"stripes=4x", "stripes"},
		   {"stripes= 4", "stripes"},
		   {"mirrors=99999999999999999999", "mirrors"},
		   {"unit=512K", "unit"},
		   {"unit=3M", "unit"},
		   {"unit=4G", "unit"},
		   {"unit=M", "unit"},
		   {"unit=1MB", "unit"},
		   {"unit=4194304G", "unit"},
		   {"threshold=", "threshold"},
		   {"threshold=-1", "threshold"},
		   {"threshold=64k", "threshold"},
		   {"threshold=2T", "threshold"},
		   {"threshold=1025G", "threshold"},
		   {"threshold=16777216T", "threshold"},
		   {"threshold=1,threshold=1", "threshold"},
		   {"colour=red", "colour"},
		   {"stripes=1,", "KEY=VALUE"},
		   {",stripes=1", "KEY=VALUE"},
		   {"stripes=1,stripes=1", "stripes"},
		   {"Stripes=1", "Stripes"}};
	struct lo_policy p;

	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		char err[200] = "";

		ck_assert_msg(parse(bad[i].text, &p, err) == -EINVAL, "%s is taken", bad[i].text);
		ck_assert_msg(strstr(err, bad[i].key), "%s: %s", bad[i].text, err);
	}
}
END_TEST

START_TEST(policies_that_cannot_be_served_are_refused)
{
	struct lo_policy p = {.lp_unit = MIB, .lp_stripes = 44, .lp_mirrors = 1};
	char err[200];

	join_fakes(2);
	ck_assert_int_eq(lo_policy_check(lo, &p, err, sizeof(err)), 0);
	p.lp_stripes = 23, p.lp_mirrors = 2;
	ck_assert_int_eq(lo_policy_check(lo, &p, err, sizeof(err)), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err, "4096"));
	p.lp_stripes = 1, p.lp_mirrors = 3;
	ck_assert_int_eq(lo_policy_check(lo, &p, err, sizeof(err)), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err, "mirrors=3"));
}
END_TEST

/* ---- maps ---- */

START_TEST(maps_come_back_as_they_were_stored)
{
	struct lo_map m = {.lm_unit = 4 * MIB, .lm_stripes = 4, .lm_mirrors = 2, .lm_epoch = 9}, n;
	uint8_t buf[NS_BLOB_MAX];
	size_t len;

	for (unsigned i = 0; i < 8; i++)
		m.lm_obj[i] = (struct lo_object){i + 1,	 i % 3, i & 1, i * 77, (uint8_t)(200 + i),
						 i == 2, false};
	m.lm_next = 255;
	len = lo_map_encode(&m, buf, sizeof(buf));
	ck_assert_uint_gt(len, 0);
	ck_assert_int_eq(lo_map_decode((struct kv_slice){buf, len}, &n), 0);
	ck_assert_mem_eq(&m, &n, sizeof(m));
	/* Cut, or of another version: damaged. */
	for (size_t k = 0; k < len; k++)
		ck_assert_int_eq(lo_map_decode((struct kv_slice){buf, k}, &n), -EIO);
	buf[0]++;
	ck_assert_int_eq(lo_map_decode((struct kv_slice){buf, len}, &n), -EIO);
	ck_assert_uint_eq(lo_map_encode(&m, buf, len - 1), 0);
}
END_TEST

/* Of one stripe: its copies in the order in which they are read, as digits. */
static unsigned order_of(const struct lo_map *m)
{
	unsigned order = 0;
	int k;

	for (unsigned r = 0; (k = lo_copy(m, 0, r)) >= 0; r++)
		order = order * 10 + (unsigned)k + 1;
	return order;
}

/* Repaired while two write: in its old place it would be first again, with other bytes than readers
 * have seen. */
START_TEST(a_copy_that_came_late_into_sync_is_not_first_again)
{
	struct lo_map m = {.lm_unit = MIB, .lm_stripes = 1, .lm_mirrors = 3, .lm_epoch = 1}, n;
	uint8_t buf[NS_BLOB_MAX];
	size_t len;

	for (unsigned i = 0; i < 3; i++)
		m.lm_obj[i] = (struct lo_object){.ob_ds = i + 1, .ob_copy = (uint8_t)i};
	ck_assert_uint_eq(order_of(&m), 123);
	ck_assert_uint_gt(lo_map_encode(&m, buf, sizeof(buf)), 0);
	ck_assert_uint_eq(buf[0], 2);
	m.lm_obj[0].ob_state = LO_REBUILDING;
	lo_map_join(&m, 0, true);
	ck_assert_uint_eq(order_of(&m), 231);
	len = lo_map_encode(&m, buf, sizeof(buf));
	ck_assert_uint_eq(buf[0], 4);
	ck_assert_int_eq(lo_map_decode((struct kv_slice){buf, len}, &n), 0);
	ck_assert_mem_eq(&m, &n, sizeof(m));
	buf[0] = 3;
	ck_assert_int_eq(lo_map_decode((struct kv_slice){buf, len}, &n), -EIO);
	/* All others were lost since: the one that stayed goes before them. */
	m.lm_obj[1].ob_state = m.lm_obj[2].ob_state = LO_STALE;
	ck_assert_uint_eq(order_of(&m), 1);
	lo_map_join(&m, 1, true);
	lo_map_join(&m, 2, true);
	ck_assert_uint_eq(order_of(&m), 123);
	m.lm_obj[0].ob_state = LO_STALE;
	lo_map_join(&m, 0, true);
	ck_assert_uint_eq(order_of(&m), 231);
	/* Nobody else writes: all are the same. */
	m.lm_obj[2].ob_state = LO_STALE;
	lo_map_join(&m, 2, false);
	ck_assert_uint_eq(order_of(&m), 123);
}
END_TEST

/* ---- placement ---- */

START_TEST(copies_of_a_stripe_never_share_a_server_and_stripes_spread)
{
	unsigned first[FAKES + 1] = {0};

	join_fakes(FAKES);
	for (unsigned stripes = 1; stripes <= 12; stripes++) {
		for (unsigned mirrors = 1; mirrors <= FAKES && stripes * mirrors <= LO_MAX_OBJECTS;
		     mirrors++) {
			struct lo_policy p = {.lp_unit = MIB,
					      .lp_stripes = (uint8_t)stripes,
					      .lp_mirrors = (uint8_t)mirrors};
			unsigned held[FAKES + 1] = {0}, least = 99, most = 0;
			struct lo_map m;

			if (!lo_shape_ok(stripes, mirrors))
				continue;
			ck_assert_int_eq(lo_place(lo, &p, stripes * 100 + mirrors, PATIENCE_MS, &m),
					 0);
			for (unsigned s = 0; s < stripes; s++)
				for (unsigned a = 0; a < mirrors; a++) {
					held[m.lm_obj[a * stripes + s].ob_ds]++;
					for (unsigned b = 0; b < a; b++)
						ck_assert_uint_ne(m.lm_obj[a * stripes + s].ob_ds,
								  m.lm_obj[b * stripes + s].ob_ds);
				}
			for (unsigned d = 1; d <= FAKES; d++) {
				least = held[d] < least ? held[d] : least;
				most = held[d] > most ? held[d] : most;
			}
			ck_assert_uint_le(most - least, 1);
		}
	}
	/* The first stripe, which takes small files, goes round. */
	for (unsigned i = 0; i < FAKES * 20; i++) {
		struct lo_map m;

		ck_assert_int_eq(lo_place(lo, &lo_policy_default, i, PATIENCE_MS, &m), 0);
		first[m.lm_obj[0].ob_ds]++;
	}
	for (unsigned d = 1; d <= FAKES; d++)
		ck_assert_uint_eq(first[d], 20);
}
END_TEST

START_TEST(four_servers_hold_two_objects_each_of_four_stripes_mirrored)
{
	struct lo_policy p = {.lp_unit = MIB, .lp_stripes = 4, .lp_mirrors = 2};
	unsigned held[5] = {0};
	struct lo_map m;

	ck_assert_int_eq(lo_place(lo, &p, 1, PATIENCE_MS, &m), -EAGAIN);
	join_fakes(1);
	ck_assert_int_eq(lo_place(lo, &p, 1, PATIENCE_MS, &m), -EAGAIN);
	join_fakes(4);
	ck_assert_int_eq(lo_place(lo, &p, 1, PATIENCE_MS, &m), 0);
	for (unsigned i = 0; i < 8; i++)
		held[m.lm_obj[i].ob_ds]++;
	for (unsigned d = 1; d <= 4; d++)
		ck_assert_uint_eq(held[d], 2);
}
END_TEST

/* ---- encoding ---- */

START_TEST(layouts_name_every_copy_in_sync_with_the_rights_asked_for)
{
	struct ns_inode i = {.i_ino = 77, .i_type = NS_REG, .i_incarnation = 2};
	struct lo_map m = map_on(4, 2);
	struct entry e[16];
	struct xdr_out x;
	uint64_t unit;

	join_fakes(4);
	m.lm_obj[5].ob_known = 1;
	for (unsigned write = 0; write < 2; write++) {
		unsigned named = 0;

		xdr_out_init(&x, 100000);
		ck_assert_int_eq(lo_encode_layout(lo, &i, &m, true, write,
						  &(struct lo_reader){42, NULL, false}, 5, &x),
				 0);
		ck_assert_uint_le(x.x_len, 4096);
		ck_assert_uint_eq(x.x_len, 20 + 2 * 4 + 8 * 92);
		ck_assert_uint_eq(take_layout(&x, &unit, 4, e), 2);
		ck_assert_uint_eq(unit, MIB);
		for (unsigned k = 0; k < 8; k++) {
			ck_assert_uint_eq(e[k].e_cap.cp_rights,
					  (unsigned)(CAP_READ | CAP_STRIPED |
						     (write ? CAP_WRITE : 0) |
						     (e[k].e_cap.cp_obj.co_stripe == 1 &&
								      e[k].e_cap.cp_obj.co_copy == 1
							      ? CAP_MUST_EXIST
							      : 0)));
			ck_assert_uint_eq(e[k].e_cap.cp_client, 42);
			ck_assert_uint_eq(e[k].e_cap.cp_epoch, 3);
			ck_assert_uint_eq(e[k].e_cap.cp_obj.co_ino, 77);
			ck_assert_uint_eq(e[k].e_cap.cp_obj.co_stripe, k % 4);
			named |= 1u << (e[k].e_cap.cp_obj.co_copy * 4 + k % 4);
			ck_assert_uint_eq(e[k].e_cap.cp_obj.co_incarnation, 2);
		}
		ck_assert_uint_eq(named, 0xff);
		for (unsigned k = 0; k < 4; k++)
			ck_assert_uint_gt(e[k].e_eff, e[4 + k].e_eff);
		xdr_out_free(&x);
	}
}
END_TEST

START_TEST(a_stale_object_is_not_named_and_its_stripe_keeps_a_copy)
{
	struct ns_inode i = {.i_ino = 78, .i_type = NS_REG};
	struct lo_map m = map_on(2, 2);
	struct entry e[16];
	struct xdr_out x;
	uint64_t unit;

	join_fakes(4);
	m.lm_obj[0].ob_state = LO_STALE; /* stripe 0 of mirror 0 */
	xdr_out_init(&x, 100000);
	ck_assert_int_eq(lo_encode_layout(lo, &i, &m, true, true,
					  &(struct lo_reader){1, NULL, false}, 5, &x),
			 0);
	/* Both rows name mirror 1's copy of stripe 0, and each its own of stripe 1: no copy in sync
	 * misses a write. */
	ck_assert_uint_eq(take_layout(&x, &unit, 2, e), 2);
	ck_assert_uint_eq(e[0].e_cap.cp_obj.co_copy, 1);
	ck_assert_uint_eq(e[2].e_cap.cp_obj.co_copy, 1);
	ck_assert_uint_eq(e[1].e_cap.cp_obj.co_copy ^ e[3].e_cap.cp_obj.co_copy, 1);
	xdr_truncate(&x, 0);
	/* A whole mirror stale: one row. */
	m.lm_obj[1].ob_state = LO_STALE;
	ck_assert_int_eq(lo_encode_layout(lo, &i, &m, true, false,
					  &(struct lo_reader){1, NULL, false}, 5, &x),
			 0);
	ck_assert_uint_eq(take_layout(&x, &unit, 2, e), 1);
	xdr_truncate(&x, 0);
	m.lm_obj[3].ob_state = LO_REBUILDING;
	ck_assert_int_eq(lo_encode_layout(lo, &i, &m, true, false,
					  &(struct lo_reader){1, NULL, false}, 5, &x),
			 -EAGAIN);
	ck_assert_uint_eq(x.x_len, 0);
	xdr_out_free(&x);
}
END_TEST

START_TEST(one_server_per_mirror_has_unit_zero_and_a_dead_one_sorts_last)
{
	struct ns_inode i = {.i_ino = 79, .i_type = NS_REG};
	struct lo_map m = map_on(1, 2);
	struct entry e[16];
	struct xdr_out x;
	uint64_t unit;

	join_fakes(4);
	on_loop(fake_loop, fake_disconnect, &fakes[0]);
	eventually(alive() == 3);
	xdr_out_init(&x, 100000);
	ck_assert_int_eq(lo_encode_layout(lo, &i, &m, true, true,
					  &(struct lo_reader){1, NULL, false}, 5, &x),
			 0);
	ck_assert_uint_eq(take_layout(&x, &unit, 1, e), 2);
	ck_assert_uint_eq(unit, 0);
	ck_assert_uint_gt(e[0].e_eff, 2 * e[1].e_eff);
	ck_assert_uint_eq(e[0].e_cap.cp_obj.co_copy, 1);
	xdr_out_free(&x);
}
END_TEST

static struct sockaddr_storage address(const char *text)
{
	struct sockaddr_storage ss;
	socklen_t len;

	ck_assert_int_eq(rpc_addr_parse(text, 1, &ss, &len), 0);
	return ss;
}

START_TEST(a_client_tries_rdma_and_its_own_subnet_first)
{
	static const struct {
		const char *netid, *uaddr;
		uint8_t prefix;
	} addrs[] = {
		{"tcp", "10.1.0.9.8.1", 16},	{"tcp6", "fd00::9.8.1", 64},
		{"rdma", "10.2.0.9.78.53", 16}, {"tcp", "10.2.0.9.8.1", 16},
		{"rdma", "10.3.9.9.78.53", 17}, {"rdma6", "fd00::9.78.53", 64},
		{"rdma", "10.9.0.9.78.53", 0},
	};
	static const struct {
		const char *peer, order[7];
	} cases[] = {
		{"10.1.7.7", {2, 4, 5, 6, 0, 1, 3}},   {"10.2.7.7", {2, 4, 5, 6, 3, 0, 1}},
		{"10.3.127.7", {4, 2, 5, 6, 0, 1, 3}}, {"10.3.128.7", {2, 4, 5, 6, 0, 1, 3}},
		{"[fd00::7]", {5, 2, 4, 6, 1, 0, 3}},  {"10.9.0.9", {2, 4, 5, 6, 0, 1, 3}},
	};
	struct ds_reg_server sv = {.sv_naddrs = 7};
	uint8_t order[DS_REG_ADDRS];

	for (unsigned i = 0; i < 7; i++) {
		strcpy(sv.sv_addrs[i].netid, addrs[i].netid);
		strcpy(sv.sv_addrs[i].uaddr, addrs[i].uaddr);
		sv.sv_addrs[i].prefix = addrs[i].prefix;
	}
	for (unsigned n = 0; n < sizeof(cases) / sizeof(cases[0]); n++) {
		struct sockaddr_storage peer = address(cases[n].peer);

		ck_assert_uint_eq(lo_order_addrs(&sv, &peer, false, order), 7);
		for (unsigned i = 0; i < 7; i++)
			ck_assert_msg(order[i] == cases[n].order[i], "%s: place %u is %u",
				      cases[n].peer, i, order[i]);
		/* Over TLS: those of TCP alone, in the same order. */
		ck_assert_uint_eq(lo_order_addrs(&sv, &peer, true, order), 3);
		for (unsigned i = 0; i < 3; i++)
			ck_assert_uint_eq(order[i], (unsigned)cases[n].order[4 + i]);
	}
}
END_TEST

START_TEST(devices_tell_addresses_and_limits)
{
	struct sockaddr_storage peer = address("127.0.0.1");
	struct xdr_out x;
	struct xdr_in in;
	uint32_t len;
	uint8_t none[16] = {9};

	join_fakes(1);
	xdr_out_init(&x, 1000);
	ck_assert_int_eq(lo_encode_device(lo, none, &peer, false, &x), -ENOENT);
	ck_assert_int_eq(lo_encode_device(lo, fakes[0].f_uuid, &peer, false, &x), 0);
	xdr_in_init(&in, x.x_head, x.x_len);
	ck_assert_uint_eq(xdr_get_u32(&in), 1);
	ck_assert_mem_eq(xdr_get_opaque(&in, 8, &len), "tcp", 3);
	ck_assert_mem_eq(xdr_get_opaque(&in, 64, &len), "127.0.0.1.", 10);
	ck_assert_uint_eq(xdr_get_u32(&in), 1);
	ck_assert_uint_eq(xdr_get_u32(&in), 3);
	ck_assert_uint_eq(xdr_get_u32(&in), 0);
	ck_assert_uint_eq(xdr_get_u32(&in), MIB);
	ck_assert_uint_eq(xdr_get_u32(&in), MIB);
	ck_assert(!xdr_get_bool(&in));
	ck_assert(!in.bad && xdr_left(&in) == 0);
	xdr_out_free(&x);
}
END_TEST

START_TEST(the_layout_is_shown_as_json)
{
	struct ns_inode i = {
		.i_ino = 80, .i_type = NS_REG, .i_incarnation = 1, .i_size = 5 * MIB + 7};
	struct lo_map m = map_on(4, 2);
	json_t *j, *o;
	char *text;
	static const uint64_t ends[4] = {5 * MIB, 5 * MIB + 7, 3 * MIB, 4 * MIB};

	join_fakes(4);
	m.lm_obj[6].ob_state = LO_STALE;
	text = lo_layout_json(lo, NULL, &i, &m);
	j = json_loads(text, 0, NULL);
	ck_assert_int_eq(json_integer_value(json_object_get(j, "version")), 1);
	ck_assert_int_eq(json_integer_value(json_object_get(j, "size")), 5 * MIB + 7);
	ck_assert_int_eq(json_integer_value(json_object_get(j, "unit")), MIB);
	ck_assert_uint_eq(json_array_size(json_object_get(j, "mirrors")), 2);
	for (unsigned s = 0; s < 4; s++) {
		o = json_array_get(json_object_get(json_array_get(json_object_get(j, "mirrors"), 0),
						   "objects"),
				   s);
		ck_assert_int_eq(json_integer_value(json_object_get(o, "size")),
				 (json_int_t)ends[s]);
		ck_assert_str_eq(json_string_value(json_object_get(o, "state")), "in-sync");
	}
	ck_assert_str_eq(json_string_value(json_object_get(o, "ds")), "ds4");
	ck_assert_ptr_nonnull(strstr(json_string_value(json_object_get(o, "object")),
				     "0000000000000050.0001.03.00"));
	ck_assert_str_eq(json_string_value(json_object_get(
				 json_array_get(json_object_get(j, "mirrors"), 1), "state")),
			 "stale");
	json_decref(j);
	free(text);
}
END_TEST

/* ---- joining ---- */

START_TEST(a_server_keeps_its_number_and_dies_with_its_lease)
{
	struct ds_reg_server sv;
	uint32_t id;

	join_fakes(2);
	id = fakes[1].f_id;
	ck_assert_uint_eq(alive(), 2);
	ck_assert(ds_reg_leased(dsc, id));
	on_loop(fake_loop, fake_disconnect, &fakes[1]);
	eventually(alive() == 1);
	ck_assert(ds_reg_leased(dsc, id)); /* it may still honour what it was told */
	eventually(!ds_reg_leased(dsc, id));
	on_loop(fake_loop, fake_connect, &fakes[1]);
	eventually(alive() == 2);
	ck_assert_uint_eq(fakes[1].f_id, id);
	/* Silent on a connection that stands: dead as well. */
	fakes[0].f_no_beats = true;
	eventually(alive() == 1);
	fakes[0].f_no_beats = false;
	eventually(alive() == 2);
	ck_assert(ds_reg_get_uuid(dsc, fakes[1].f_uuid, &sv));
	ck_assert_str_eq(sv.sv_name, "ds2");
	ck_assert_uint_eq(sv.sv_available, 50ull << 30);
}
END_TEST

struct leased_args {
	uint32_t id;
	bool leased;
};

static void *leased_ask(void *arg)
{
	struct leased_args *a = arg;

	a->leased = ds_reg_leased(dsc, a->id);
	return NULL;
}

/* A fence is complete when the lease has run out: one that is renewed while somebody asks has
 * not. */
START_TEST(a_lease_renewed_during_the_question_has_not_run_out)
{
	struct leased_args a = {0};
	pthread_t t;

	join_fakes(1);
	a.id = fakes[0].f_id;
	pthread_mutex_lock(&dsc->d_lock);
	ck_assert_int_eq(pthread_create(&t, NULL, leased_ask, &a), 0);
	usleep(50000);
	dsc->d_node[a.id]->nd_heard_ms = clock_mono_ms();
	pthread_mutex_unlock(&dsc->d_lock);
	pthread_join(t, NULL);
	ck_assert(a.leased);
}
END_TEST

START_TEST(a_server_of_another_cluster_is_refused)
{
	fakes[0].f_other_cluster = true;
	on_loop(fake_loop, fake_connect, &fakes[0]);
	eventually(fakes[0].f_join_status == CTL_BAD_CLUSTER);
	ck_assert_uint_eq(ds_reg_count(dsc), 0);
}
END_TEST

/* ---- data ---- */

struct doing {
	struct lo_io io;
	struct lo_stat st;
	void (*fn)(struct lo *lo, struct lo_io *io);
	sem_t sem;
	int err;
};

static void io_done(struct lo_io *io, int err)
{
	struct doing *d = caa_container_of(io, struct doing, io);

	d->err = err;
	sem_post(&d->sem);
}

static void stat_done(struct lo_stat *st, int err)
{
	struct doing *d = caa_container_of(st, struct doing, st);

	d->err = err;
	sem_post(&d->sem);
}

static void do_io(void *arg)
{
	struct doing *d = arg;

	d->fn(lo, &d->io);
}

static void do_stat(void *arg)
{
	lo_stat(lo, &((struct doing *)arg)->st);
}

static int run_io(struct doing *d, void (*fn)(struct lo *lo, struct lo_io *io))
{
	sem_init(&d->sem, 0, 0);
	d->fn = fn;
	d->io.io_loop = loops[1];
	d->io.io_done = io_done;
	on_loop(loops[1], do_io, d);
	sem_wait(&d->sem);
	return d->err;
}

static bool enough; /* as ls_enough */

static int run_stat(struct doing *d, const struct lo_map *m, uint64_t ino)
{
	sem_init(&d->sem, 0, 0);
	d->st = (struct lo_stat){.ls_loop = loops[1],
				 .ls_ino = ino,
				 .ls_map = *m,
				 .ls_done = stat_done,
				 .ls_enough = enough};
	on_loop(loops[1], do_stat, d);
	sem_wait(&d->sem);
	return d->err;
}

static uint8_t pattern[6 * MIB];

static void fill(void)
{
	for (size_t i = 0; i < sizeof(pattern); i++)
		pattern[i] = (uint8_t)(hash_u64(i / 8) >> (i % 8 * 8));
}

static void io_set(struct doing *d, const struct lo_map *m, uint64_t ino, uint64_t size,
		   uint64_t off, uint32_t count)
{
	memset(d, 0, sizeof(*d));
	d->io.io_inode = (struct ns_inode){.i_ino = ino, .i_type = NS_REG, .i_size = size};
	d->io.io_map = *m;
	d->io.io_off = off;
	d->io.io_count = count;
	d->io.io_data = pattern + off;
}

START_TEST(what_is_written_is_read_over_all_stripes_and_from_any_copy)
{
	struct lo_map m = map_on(4, 2);
	struct doing d;

	fill();
	fakes[2].f_max = 65536; /* one that takes little at a time */
	join_fakes(4);
	/* Across units, unaligned at both ends, leaving a hole at the start. */
	io_set(&d, &m, 900, 0, 12345, 5 * MIB + 77);
	ck_assert_int_eq(run_io(&d, lo_write), 0);
	ck_assert_uint_eq(d.io.io_failed_map, 0);
	ck_assert_uint_eq(d.io.io_committed, 0);
	for (unsigned dead = 0; dead < 3; dead++) {
		io_set(&d, &m, 900, 12345 + 5 * MIB + 77, 0, 6 * MIB);
		ck_assert_int_eq(run_io(&d, lo_read), 0);
		ck_assert_uint_eq(d.io.io_count, 12345 + 5 * MIB + 77);
		for (unsigned i = 0; i < 12345; i++)
			ck_assert_uint_eq(d.io.io_buf[i], 0);
		ck_assert_mem_eq(d.io.io_buf + 12345, pattern + 12345, 5 * MIB + 77);
		lo_buf_free(d.io.io_buf);
		/* Then with servers that fail every call. */
		fakes[dead].f_nfs_error = dead ? 0 : NFS3ERR_IO;
	}
	/* Past the end. */
	io_set(&d, &m, 900, 100, 100, 10);
	ck_assert_int_eq(run_io(&d, lo_read), 0);
	ck_assert_uint_eq(d.io.io_count, 0);
	lo_buf_free(d.io.io_buf);
	/* Zeros up to the size where no object reaches. */
	io_set(&d, &m, 901, 3 * MIB, 0, 3 * MIB);
	fakes[0].f_nfs_error = 0;
	ck_assert_int_eq(run_io(&d, lo_read), 0);
	ck_assert_uint_eq(d.io.io_count, 3 * MIB);
	for (unsigned i = 0; i < 3 * MIB; i += 4096)
		ck_assert_uint_eq(d.io.io_buf[i], 0);
	lo_buf_free(d.io.io_buf);
}
END_TEST

START_TEST(a_copy_that_fails_is_named_and_no_copy_left_is_an_error)
{
	struct lo_map m = map_on(1, 2);
	struct doing d;

	fill();
	join_fakes(2);
	fakes[1].f_nfs_error = NFS3ERR_NOSPC;
	io_set(&d, &m, 910, 0, 0, 1000);
	ck_assert_int_eq(run_io(&d, lo_write), 0);
	ck_assert_uint_eq(d.io.io_failed_map, 2);
	io_set(&d, &m, 910, 0, 0, 0);
	ck_assert_int_eq(run_io(&d, lo_commit), 0);
	ck_assert_uint_eq(d.io.io_failed_map, 2);
	fakes[0].f_nfs_error = NFS3ERR_IO;
	io_set(&d, &m, 910, 0, 0, 1000);
	ck_assert_int_eq(run_io(&d, lo_write), -ENOSPC);
	ck_assert_uint_eq(d.io.io_failed_map, 0);
	/* An object known to exist that is not there is never zeros. */
	fakes[0].f_nfs_error = fakes[1].f_nfs_error = 0;
	m.lm_obj[0].ob_known = m.lm_obj[1].ob_known = 1;
	io_set(&d, &m, 911, 1000, 0, 1000);
	ck_assert_int_eq(run_io(&d, lo_read), -ESTALE);
	ck_assert_ptr_null(d.io.io_buf);
	/* Nobody there. */
	on_loop(fake_loop, fake_disconnect, &fakes[0]);
	on_loop(fake_loop, fake_disconnect, &fakes[1]);
	eventually(!ds_reg_leased(dsc, 1) && !ds_reg_leased(dsc, 2));
	io_set(&d, &m, 910, 1000, 0, 1000);
	ck_assert_int_eq(run_io(&d, lo_read), -ETIMEDOUT);
	io_set(&d, &m, 910, 1000, 0, 1000);
	ck_assert_int_eq(run_io(&d, lo_write), -ETIMEDOUT);
}
END_TEST

START_TEST(a_commit_differs_from_its_writes_when_a_server_restarted)
{
	struct lo_map m = map_on(4, 1);
	struct doing d;
	uint64_t v;

	fill();
	join_fakes(4);
	io_set(&d, &m, 920, 0, 0, MIB);
	ck_assert_int_eq(run_io(&d, lo_write), 0);
	v = d.io.io_verifier;
	io_set(&d, &m, 920, 0, 0, 0);
	ck_assert_int_eq(run_io(&d, lo_commit), 0);
	ck_assert_uint_eq(d.io.io_verifier, v);
	/* The other stripes' servers were asked for the first time: no change. Now one restarts. */
	io_set(&d, &m, 920, 0, 0, MIB);
	ck_assert_int_eq(run_io(&d, lo_write), 0);
	ck_assert_uint_eq(d.io.io_verifier, v);
	fakes[0].f_verifier += 100;
	io_set(&d, &m, 920, 0, 0, 0);
	ck_assert_int_eq(run_io(&d, lo_commit), 0);
	ck_assert_uint_ne(d.io.io_verifier, v);
}
END_TEST

START_TEST(sizes_come_from_the_servers)
{
	struct lo_map m = map_on(4, 2);
	struct doing d;

	fill();
	join_fakes(4);
	ck_assert_int_eq(run_stat(&d, &m, 930), 0);
	ck_assert_uint_eq(d.st.ls_size, 0);
	ck_assert_uint_eq(d.st.ls_exists, 0);
	io_set(&d, &m, 930, 0, MIB, MIB + 5);
	ck_assert_int_eq(run_io(&d, lo_write), 0);
	ck_assert_int_eq(run_stat(&d, &m, 930), 0);
	ck_assert_uint_eq(d.st.ls_size, 2 * MIB + 5);
	ck_assert_uint_eq(d.st.ls_answered, 0xff);
	for (unsigned k = 0; k < 8; k++)
		ck_assert_uint_eq(d.st.ls_writes[k], 0x66 >> k & 1);
	ck_assert_uint_eq(d.st.ls_exists, 0x66); /* stripes 1 and 2 of both mirrors */
	ck_assert_uint_eq(d.st.ls_missing, 0);
	/* A stale object is not asked; a dead server is skipped. */
	m.lm_obj[2].ob_state = LO_STALE;
	on_loop(fake_loop, fake_disconnect, &fakes[0]);
	eventually(alive() == 3);
	ck_assert_int_eq(run_stat(&d, &m, 930), 0);
	ck_assert_uint_eq(d.st.ls_missing, 2);
	ck_assert_uint_eq(d.st.ls_exists, 0x62);
	ck_assert_uint_eq(d.st.ls_answered & 0x66, 0x62);
	on_loop(fake_loop, fake_disconnect, &fakes[1]);
	eventually(alive() == 2);
	/* Stripe 0 lies on servers 1 and 2: nobody can say. */
	ck_assert_int_eq(run_stat(&d, &m, 930), -ETIMEDOUT);
}
END_TEST

START_TEST(copies_are_compared_by_what_servers_can_agree_on)
{
	struct lo_stat ls = {.ls_map = map_on(2, 2), .ls_answered = 0xf};

	join_fakes(4);
	/* Objects 0 and 2 are the first stripe's, 1 and 3 the second's. */
	ls.ls_sizes[0] = ls.ls_sizes[2] = 100;
	ls.ls_sizes[1] = ls.ls_sizes[3] = 7;
	ls.ls_writes[0] = 1; /* its server's own count */
	ck_assert(!lo_uneven(lo, &ls, 0));
	ck_assert(!lo_uneven(lo, &ls, 0x5));
	ck_assert(!lo_uneven(lo, &ls, 0xf));
	ck_assert(lo_uneven(lo, &ls, 0x1));
	ck_assert(lo_uneven(lo, &ls, 0xd));
	ls.ls_sizes[3] = 8;
	ck_assert(lo_uneven(lo, &ls, 0));
	/* Who did not answer, and what is not in sync, is not compared. */
	ls.ls_missing = 1;
	ck_assert(!lo_uneven(lo, &ls, 0));
	ls.ls_missing = 0;
	ls.ls_map.lm_obj[3].ob_state = LO_STALE;
	ck_assert(!lo_uneven(lo, &ls, 0x8));
	ls.ls_map.lm_obj[3].ob_state = LO_REBUILDING;
	ck_assert(!lo_uneven(lo, &ls, 0x2));
}
END_TEST

START_TEST(one_copy_of_each_stripe_is_enough_where_it_is_said_to_be)
{
	struct lo_map m = map_on(4, 2);
	struct doing d;

	fill();
	join_fakes(4);
	io_set(&d, &m, 931, 0, MIB, 5);
	ck_assert_int_eq(run_io(&d, lo_write), 0);
	enough = true;
	ck_assert_int_eq(run_stat(&d, &m, 931), 0);
	enough = false;
	ck_assert_uint_eq(d.st.ls_size, MIB + 5);
	/* Who was not waited for counts as one that did not answer. */
	ck_assert_uint_eq(d.st.ls_missing, 8 - (unsigned)__builtin_popcountll(d.st.ls_answered));
	for (unsigned s = 0; s < 4; s++)
		ck_assert(d.st.ls_answered & 0x11u << s);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("lo");
	TCase *plain = tcase_create("plain"), *live = tcase_create("live");

	tcase_add_test(plain, policies_are_read_in_any_order_and_shown_in_one);
	tcase_add_test(plain, a_threshold_is_a_size_and_stored_as_it_was_said);
	tcase_add_test(plain, bad_policies_are_refused_with_the_key);
	tcase_add_test(plain, maps_come_back_as_they_were_stored);
	tcase_add_test(plain, a_copy_that_came_late_into_sync_is_not_first_again);
	tcase_add_checked_fixture(live, setup, teardown);
	tcase_add_test(live, policies_that_cannot_be_served_are_refused);
	tcase_add_test(live, copies_of_a_stripe_never_share_a_server_and_stripes_spread);
	tcase_add_test(live, four_servers_hold_two_objects_each_of_four_stripes_mirrored);
	tcase_add_test(live, layouts_name_every_copy_in_sync_with_the_rights_asked_for);
	tcase_add_test(live, a_stale_object_is_not_named_and_its_stripe_keeps_a_copy);
	tcase_add_test(live, one_server_per_mirror_has_unit_zero_and_a_dead_one_sorts_last);
	tcase_add_test(live, a_client_tries_rdma_and_its_own_subnet_first);
	tcase_add_test(live, devices_tell_addresses_and_limits);
	tcase_add_test(live, the_layout_is_shown_as_json);
	tcase_add_test(live, a_server_keeps_its_number_and_dies_with_its_lease);
	tcase_add_test(live, a_lease_renewed_during_the_question_has_not_run_out);
	tcase_add_test(live, a_server_of_another_cluster_is_refused);
	tcase_add_test(live, what_is_written_is_read_over_all_stripes_and_from_any_copy);
	tcase_add_test(live, a_copy_that_fails_is_named_and_no_copy_left_is_an_error);
	tcase_add_test(live, a_commit_differs_from_its_writes_when_a_server_restarted);
	tcase_add_test(live, sizes_come_from_the_servers);
	tcase_add_test(live, copies_are_compared_by_what_servers_can_agree_on);
	tcase_add_test(live, one_copy_of_each_stripe_is_enough_where_it_is_said_to_be);
	suite_add_tcase(s, plain);
	suite_add_tcase(s, live);
	return unit_run(s);
}
