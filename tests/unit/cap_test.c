/* SPDX-License-Identifier: Apache-2.0 */
/* cap_test.c - the capability's two versions: what is minted opens as it was, byte by byte as
 * docs/formats.md says, and who may read or write what. */
#include "proto/cap.h"
#include "proto/ds_key.h"
#include "tests/unit/unit.h"
#include <errno.h>
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
		ck_assert_uint_eq(cap_fs_number(fh), c.cp_obj.co_fs);
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

static const uint8_t cluster[CAP_CLUSTER_KEY_LEN] = {0,	 1,  2,	 3,  4,	 5,  6,	 7,  8,	 9,  10,
						     11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
						     22, 23, 24, 25, 26, 27, 28, 29, 30, 31};
static const uint8_t uuid[16] = {100, 101, 102, 103, 104, 105, 106, 107,
				 108, 109, 110, 111, 112, 113, 114, 115};

/* Made by another implementation of BLAKE2b. Stores and peers have keys from before there were
 * several file systems, so those of file system 1 never change. */
START_TEST(keys_of_a_file_system_are_those_of_the_page)
{
	static const uint8_t cap1[] = {0xa4, 0xc6, 0x38, 0x03, 0xe9, 0x0e, 0x62, 0x38,
				       0x5a, 0x33, 0x54, 0x58, 0x42, 0x88, 0xad, 0xba},
			     cap2[] = {0xf5, 0x55, 0xe2, 0xe4, 0x7c, 0x08, 0xd4, 0xe3,
				       0x27, 0x7b, 0x28, 0x3f, 0xd9, 0x50, 0x17, 0xea},
			     ctl1[] = {0xa1, 0x96, 0xb8, 0x97, 0x76, 0x8f, 0x6d, 0x90,
				       0xaa, 0x8d, 0x5a, 0x36, 0x56, 0xd1, 0x3c, 0x90,
				       0x3c, 0x7d, 0xdd, 0x6c, 0x20, 0x45, 0xeb, 0xb8,
				       0xa8, 0x91, 0x72, 0x3a, 0x8e, 0x6e, 0x13, 0x66},
			     tls[] = {0xe3, 0x92, 0xf1, 0x30, 0xb8, 0xc8, 0xc8, 0x2f,
				      0x0d, 0x2c, 0x3a, 0xd4, 0xf9, 0x24, 0xb5, 0x10,
				      0x0f, 0xef, 0x6a, 0x1d, 0x09, 0x58, 0xb2, 0x41,
				      0xbc, 0x24, 0x15, 0xc6, 0x73, 0x98, 0x70, 0xdf},
			     meet[] = {0x19, 0x65, 0x2a, 0x2b, 0x79, 0x7c, 0xc7, 0x38,
				       0x72, 0x48, 0x39, 0x43, 0x57, 0xc8, 0xda, 0xdf,
				       0xdd, 0x19, 0x5d, 0x33, 0x4a, 0x93, 0xcf, 0x70,
				       0xb4, 0x9b, 0x05, 0x34, 0xa2, 0x41, 0xdc, 0x0d};
	uint8_t own[CAP_CLUSTER_KEY_LEN], out[CAP_CLUSTER_KEY_LEN];
	struct ds_key k[2];

	cap_derive_fs(cluster, 1, own);
	ck_assert(!memcmp(own, cluster, sizeof(own)));
	ds_key_derive(own, cluster, uuid, 0, 1, &k[0]);
	cap_derive_fs(cluster, 0x0203, own);
	ds_key_derive(own, cluster, uuid, 0, 0x0203, &k[1]);
	ck_assert(!memcmp(k[0].dk_cap, cap1, sizeof(cap1)));
	ck_assert(!memcmp(k[0].dk_control, ctl1, sizeof(ctl1)));
	ck_assert(!memcmp(k[1].dk_cap, cap2, sizeof(cap2)));
	ck_assert(memcmp(k[1].dk_control, ctl1, sizeof(ctl1)) != 0);
	for (unsigned i = 0; i < 2; i++) /* these are the server's at each MDS */
		ck_assert(!memcmp(k[i].dk_tls, tls, sizeof(tls)));
	ck_assert(!memcmp(k[0].dk_path, k[1].dk_path, sizeof(k[0].dk_path)));
	ds_key_derive_meet(tls, uuid, out);
	ck_assert(!memcmp(out, meet, sizeof(meet)));
}
END_TEST

START_TEST(a_key_file_says_its_file_system)
{
	struct ds_key k, got;
	char text[DS_KEY_TEXT], cut[DS_KEY_TEXT];
	const char *why;

	for (unsigned fs = 1; fs <= UINT16_MAX; fs = fs == 2 ? UINT16_MAX : fs + 1) {
		ds_key_derive(cluster, cluster, uuid, 9, (uint16_t)fs, &k);
		ds_key_text(&k, "a name", text);
		ck_assert_int_eq(strstr(text, "version=1\n") != NULL, fs == 1);
		ck_assert_int_eq(strstr(text, "fs=") != NULL, fs != 1);
		strcpy(cut, text);
		ck_assert_int_eq(ds_key_parse(cut, &got, &why), 0);
		ck_assert(!memcmp(&got, &k, sizeof(k)));
		if (fs == UINT16_MAX)
			break;
	}
	strcpy(cut, strstr(text, "server="));
	strcpy(strstr(text, "fs=65535"), cut);
	ck_assert_int_eq(ds_key_parse(text, &got, &why), -EINVAL);
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
	tcase_add_test(c, keys_of_a_file_system_are_those_of_the_page);
	tcase_add_test(c, a_key_file_says_its_file_system);
	tcase_add_test(c, an_inode_number_names_its_file_system);
	tcase_add_test(c, a_stripe_has_its_units_and_no_other_byte);
	suite_add_tcase(s, c);
	return s;
}

int main(void)
{
	return unit_run(suite());
}
