/* SPDX-License-Identifier: Apache-2.0 */
/* cap_test.c - the capability's two versions: what is minted opens as it was, byte by byte as
 * docs/formats.md says, and who may read or write what. */
#include "proto/cap.h"
#include "tests/unit/unit.h"
#include <string.h>

static const uint8_t key[CAP_KEY_LEN] = "a server's key.";

static struct cap make(unsigned version)
{
	return (struct cap){
		.cp_obj = {.co_ino = version == 2 ? UINT64_C(0x0203000000000005) : 5,
			   .co_fs = version == 2 ? 0x0203 : 7,
			   .co_incarnation = 0x0908,
			   .co_stripe = 3,
			   .co_copy = 2},
		.cp_version = (uint8_t)version,
		.cp_rights = CAP_READ | CAP_STRIPED,
		.cp_key = 6,
		.cp_unit_log2 = version == 2 ? 20 : 0,
		.cp_stripes = version == 2 ? 4 : 0,
		.cp_epoch = 0x0a0b0c0d,
		.cp_client = 0x01020304,
	};
}

START_TEST(bytes_are_where_the_page_says)
{
	static const uint8_t want[2][24] = {
		{0x19, 6, 3, 2, 0, 7, 9, 8, 0, 0, 0, 0, 0, 0, 0, 5, 10, 11, 12, 13, 1, 2, 3, 4},
		{0x39, 6, 3, 2, 20, 4, 9, 8, 2, 3, 0, 0, 0, 0, 0, 5, 10, 11, 12, 13, 1, 2, 3, 4},
	};
	uint8_t fh[CAP_LEN];

	for (unsigned v = 1; v <= 2; v++) {
		struct cap c = make(v);

		cap_mint(&c, key, fh);
		ck_assert(!memcmp(fh, want[v - 1], 24));
		ck_assert_uint_eq(cap_key_number(fh), 6);
	}
}
END_TEST

START_TEST(what_is_minted_opens_as_it_was_and_nothing_else_does)
{
	uint8_t fh[CAP_LEN];

	for (unsigned v = 1; v <= 2; v++) {
		struct cap c = make(v), got;

		cap_mint(&c, key, fh);
		ck_assert(cap_open(fh, key, &got));
		ck_assert_uint_eq(got.cp_obj.co_ino, c.cp_obj.co_ino);
		ck_assert_uint_eq(got.cp_obj.co_fs, c.cp_obj.co_fs);
		ck_assert_uint_eq(got.cp_obj.co_incarnation, c.cp_obj.co_incarnation);
		ck_assert_uint_eq(got.cp_obj.co_stripe, 3);
		ck_assert_uint_eq(got.cp_obj.co_copy, 2);
		ck_assert_uint_eq(got.cp_version, v);
		ck_assert_uint_eq(got.cp_rights, c.cp_rights);
		ck_assert_uint_eq(got.cp_unit_log2, c.cp_unit_log2);
		ck_assert_uint_eq(got.cp_stripes, c.cp_stripes);
		ck_assert_uint_eq(got.cp_epoch, c.cp_epoch);
		ck_assert_uint_eq(got.cp_client, c.cp_client);
		for (unsigned i = 0; i < CAP_LEN * 8; i++) {
			fh[i / 8] ^= (uint8_t)(1u << i % 8);
			ck_assert_msg(!cap_open(fh, key, &got), "version %u, bit %u", v, i);
			fh[i / 8] ^= (uint8_t)(1u << i % 8);
		}
	}
}
END_TEST

START_TEST(an_inode_number_names_its_file_system)
{
	ck_assert_uint_eq(cap_fs_of(0), 1);
	ck_assert_uint_eq(cap_fs_of((UINT64_C(1) << 48) - 1), 1);
	ck_assert_uint_eq(cap_fs_of(UINT64_C(1) << 48), 1);
	ck_assert_uint_eq(cap_fs_of(UINT64_C(2) << 48 | 9), 2);
	ck_assert_uint_eq(cap_fs_of(UINT64_MAX), 0xffff);
}
END_TEST

START_TEST(a_stripe_has_its_units_and_no_other_byte)
{
	struct cap c = make(2), one = make(1);
	const uint64_t unit = 1 << 20;

	for (uint64_t n = 0; n < 12; n++) {
		ck_assert(cap_has(&c, n * unit, 1) == (n % 4 == 3));
		ck_assert(cap_has(&c, n * unit, (uint32_t)unit) == (n % 4 == 3));
		ck_assert(cap_has(&c, n * unit + unit - 1, 1) == (n % 4 == 3));
		ck_assert(!cap_has(&c, n * unit + unit - 1, 2));
		ck_assert(!cap_has(&c, n * unit + 1, (uint32_t)unit));
		ck_assert(cap_has(&one, n * unit + 1, (uint32_t)unit));
	}
	ck_assert(!cap_has(&c, UINT64_MAX, 2));
	ck_assert(cap_has(&c, 0, 0));
	c.cp_stripes = 1;
	c.cp_unit_log2 = 0;
	ck_assert(cap_has(&c, 5, 1 << 20));
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("cap");
	TCase *c = tcase_create("cap");

	tcase_add_test(c, bytes_are_where_the_page_says);
	tcase_add_test(c, what_is_minted_opens_as_it_was_and_nothing_else_does);
	tcase_add_test(c, an_inode_number_names_its_file_system);
	tcase_add_test(c, a_stripe_has_its_units_and_no_other_byte);
	suite_add_tcase(s, c);
	return s;
}

int main(void)
{
	return unit_run(suite());
}
