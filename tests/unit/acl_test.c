/* SPDX-License-Identifier: Apache-2.0 */
/* acl_test.c - ACLs as functions: modes and ACLs make each other, inheritance, and what is stored
 * (RFC 8881 chapter 6). */
#include "mds/namespace/keys.h"
#include "tests/unit/unit.h"
#include <stdlib.h>

#define RWX (NS_R_READ | NS_R_WRITE | NS_R_APPEND | NS_R_EXECUTE)

static struct ns_ace ace(unsigned type, unsigned who, uint32_t id, uint32_t mask, unsigned flags)
{
	return (struct ns_ace){.ace_type = (uint8_t)type,
			       .ace_who = (uint8_t)who,
			       .ace_flags = (uint16_t)flags,
			       .ace_mask = mask,
			       .ace_id = id};
}

static struct ns_acl some(unsigned max, bool dir)
{
	static const unsigned inherit[] = {0,
					   0,
					   NS_ACE_FILE,
					   NS_ACE_DIR,
					   NS_ACE_FILE | NS_ACE_DIR,
					   NS_ACE_FILE | NS_ACE_INHERIT_ONLY,
					   NS_ACE_DIR | NS_ACE_NO_PROPAGATE,
					   NS_ACE_DIR | NS_ACE_INHERIT_ONLY};
	struct ns_acl a = {.acl_n = (unsigned)rand() % (max + 1)};

	for (unsigned n = 0; n < a.acl_n; n++) {
		unsigned who = (unsigned)rand() % 5;

		a.acl_ace[n] =
			ace((unsigned)rand() % 2, who, who >= NS_WHO_UID ? (uint32_t)rand() % 5 : 0,
			    (uint32_t)rand() & NS_R_ALL, dir ? inherit[rand() % 8] : 0);
	}
	return a;
}

/* The rights of a named user that is nobody else, by an ACL. */
static uint32_t named(const struct ns_acl *a, uint32_t uid)
{
	uint8_t buf[NS_ACL_REC_MAX];
	struct ns_inode i = {.i_uid = 1000, .i_gid = 1000, .i_acl = ns_acl_encode(a, buf)};
	struct ns_cred cr = {.cr_uid = uid, .cr_gid = 9999};
	uint32_t denied, allowed = ns_acl_eval(&i, &cr, NS_R_ALL, &denied);

	ck_assert_uint_eq(allowed & denied, 0);
	return allowed;
}

START_TEST(an_acl_of_a_mode_says_that_mode)
{
	for (unsigned mode = 0; mode < 01000; mode++) {
		for (int dir = 0; dir < 2; dir++) {
			struct ns_acl a, b;

			ns_acl_of_mode((uint16_t)mode, dir, &a);
			ck_assert_uint_eq(ns_acl_mode(&a), mode);
			b = a;
			ns_acl_set_mode(&b, (uint16_t)(mode ^ 0777), 0777, dir);
			ck_assert_uint_eq(ns_acl_mode(&b), mode ^ 0777);
			ns_acl_set_mode(&b, (uint16_t)mode, 0777, dir);
			ck_assert_uint_eq(ns_acl_mode(&b), mode);
			ck_assert_uint_eq(named(&a, 5), named(&b, 5));
		}
	}
}
END_TEST

static unsigned inheritable(const struct ns_acl *a)
{
	unsigned count = 0;

	for (unsigned n = 0; n < a->acl_n; n++)
		count += !!(a->acl_ace[n].ace_flags & (NS_ACE_FILE | NS_ACE_DIR));
	return count;
}

START_TEST(a_mode_that_is_set_is_the_mode)
{
	srand(5);
	for (unsigned round = 0; round < 20000; round++) {
		bool dir = rand() % 2;
		struct ns_acl was = some(round % 50 ? 8 : NS_ACL_SET_MAX, dir), a = was;
		uint16_t mode = (uint16_t)(rand() & 0777);
		unsigned n;

		ns_acl_set_mode(&a, mode, mode, dir);
		ck_assert_uint_eq(ns_acl_mode(&a), mode);
		ck_assert_uint_le(a.acl_n, NS_ACL_MAX);
		ck_assert_uint_le(inheritable(&a), inheritable(&was));
		/* What named users get from ACEs of their own is bound by the group's bits. */
		for (n = 0; n < a.acl_n; n++) {
			const struct ns_ace *e = &a.acl_ace[n];
			unsigned g = mode >> 3 & 7;
			uint32_t bound = (g & 4 ? NS_R_READ : 0) |
					 (g & 2 ? NS_R_WRITE | NS_R_APPEND : 0) |
					 (g & 1 ? NS_R_EXECUTE : 0);

			if (e->ace_who >= NS_WHO_UID && e->ace_type == NS_ACE_ALLOW &&
			    !(e->ace_flags & NS_ACE_INHERIT_ONLY))
				ck_assert_uint_eq(e->ace_mask & RWX & ~bound, 0);
		}
		n = a.acl_n;
		for (int again = 0; again < 3; again++) {
			ns_acl_set_mode(&a, (uint16_t)(mode ^ (again ? 0 : 0777)), 0777, dir);
			ck_assert_uint_le(a.acl_n, NS_ACL_MAX);
		}
		ck_assert_uint_eq(ns_acl_mode(&a), mode);
		/* it does not grow with every chmod: at most the ACEs of another mode */
		ck_assert_uint_le(a.acl_n, n + 4);
	}
}
END_TEST

START_TEST(room_for_a_mode_is_kept)
{
	struct ns_acl a = {.acl_n = NS_ACL_SET_MAX};

	for (unsigned n = 0; n < a.acl_n; n++)
		a.acl_ace[n] = ace(NS_ACE_ALLOW, NS_WHO_UID, n, NS_R_READ | NS_R_DELETE,
				   NS_ACE_FILE | NS_ACE_DIR);
	for (unsigned mode = 0; mode < 01000; mode++) {
		ns_acl_set_mode(&a, (uint16_t)mode, 0777, true);
		ck_assert_uint_eq(ns_acl_mode(&a), mode);
		ck_assert_uint_eq(named(&a, 77) & NS_R_DELETE, NS_R_DELETE);
	}
	/* More than can have been set (a damaged store): the mode alone counts. */
	a.acl_n = NS_ACL_MAX;
	for (unsigned n = 0; n < a.acl_n; n++)
		a.acl_ace[n] = ace(NS_ACE_ALLOW, NS_WHO_UID, n, NS_R_DELETE, 0);
	ns_acl_set_mode(&a, 0640, 0640, false);
	ck_assert_uint_eq(ns_acl_mode(&a), 0640);
	ck_assert_uint_le(a.acl_n, 5);
}
END_TEST

START_TEST(what_is_inherited_is_never_more)
{
	uint8_t buf[NS_ACL_REC_MAX];

	srand(6);
	for (unsigned round = 0; round < 5000; round++) {
		struct ns_acl parent = some(round % 50 ? 8 : NS_ACL_SET_MAX, true), child;
		bool dir = rand() % 2;

		ck_assert_int_eq(ns_acl_inherit(ns_acl_encode(&parent, buf), dir, &child),
				 child.acl_n > 0);
		ck_assert_uint_le(child.acl_n, inheritable(&parent));
		ck_assert_int_eq(ns_acl_fits(&child, dir ? NS_DIR : NS_REG), 0);
		for (unsigned n = 0; n < child.acl_n; n++)
			ck_assert_uint_eq(child.acl_ace[n].ace_flags &
						  (NS_ACE_NO_PROPAGATE | NS_ACE_INHERITED),
					  NS_ACE_INHERITED);
	}
	ck_assert(!ns_acl_inherit(ns_slice(NULL, 0), true, &(struct ns_acl){.acl_n = 0}));
}
END_TEST

START_TEST(what_is_stored_is_what_was)
{
	uint8_t buf[NS_ACL_REC_MAX], inode[NS_INODE_VAL_MAX];

	srand(7);
	for (unsigned round = 0; round < 2000; round++) {
		bool dir = rand() % 2;
		struct ns_acl a = some(round % 50 ? 8 : NS_ACL_SET_MAX, dir), b;
		struct kv_slice rec = ns_acl_encode(&a, buf);
		struct ns_inode i = {.i_ino = 9,
				     .i_type = dir ? NS_DIR : NS_REG,
				     .i_change = 1,
				     .i_acl = rec},
				back;

		i.i_blob = dir ? ns_slice(NULL, 0) : ns_slice("map", 3);
		ck_assert_uint_eq(ns_acl_rec_len(rec.s_data, rec.s_len, i.i_type), rec.s_len);
		ck_assert_int_eq(
			ns_inode_decode(ns_slice(inode, ns_inode_encode(&i, inode)), 9, &back), 0);
		ns_acl_decode(back.i_acl, &b);
		ck_assert(ns_acl_same(&a, &b));
		ck_assert_uint_eq(back.i_blob.s_len, i.i_blob.s_len);
		ck_assert_uint_eq(ns_acl_rec_len(rec.s_data, rec.s_len - 1, i.i_type), 0);
		ck_assert_uint_eq(ns_acl_rec_len(rec.s_data, rec.s_len, NS_LNK), 0);
	}
}
END_TEST

START_TEST(damaged_acls_are_refused)
{
	static const struct ns_ace bad[] = {
		{2, NS_WHO_OWNER, 0, 1, 0},   {0, 5, 0, 1, 0},
		{0, NS_WHO_GROUP, 0, 1, 7},   {0, NS_WHO_UID, 0x40, 1, 7},
		{0, NS_WHO_UID, 0, 0x800, 7}, {0, NS_WHO_UID, NS_ACE_FILE, 1, 7}};
	struct ns_acl a = {.acl_n = 1};
	uint8_t buf[NS_ACL_REC_MAX];
	struct kv_slice rec;

	for (unsigned n = 0; n < sizeof(bad) / sizeof(*bad); n++) {
		a.acl_ace[0] = bad[n];
		rec = ns_acl_encode(&a, buf);
		ck_assert_uint_eq(ns_acl_rec_len(rec.s_data, rec.s_len, NS_REG), 0);
	}
	a.acl_ace[0] = ace(0, NS_WHO_UID, 7, 1, 0);
	rec = ns_acl_encode(&a, buf);
	ck_assert_uint_eq(ns_acl_rec_len(buf, rec.s_len, NS_REG), rec.s_len);
	for (unsigned at = 0; at < 2; at++) { /* version, flags */
		buf[at] ^= 0x10;
		ck_assert_uint_eq(ns_acl_rec_len(buf, rec.s_len, NS_REG), 0);
		buf[at] ^= 0x10;
	}
	buf[3] = 2; /* 513 ACEs */
	ck_assert_uint_eq(ns_acl_rec_len(buf, sizeof(buf), NS_REG), 0);
	ck_assert_uint_eq(ns_acl_rec_len(buf, 3, NS_REG), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("acl");
	TCase *tc = tcase_create("acl");

	tcase_add_test(tc, an_acl_of_a_mode_says_that_mode);
	tcase_add_test(tc, a_mode_that_is_set_is_the_mode);
	tcase_add_test(tc, room_for_a_mode_is_kept);
	tcase_add_test(tc, what_is_inherited_is_never_more);
	tcase_add_test(tc, what_is_stored_is_what_was);
	tcase_add_test(tc, damaged_acls_are_refused);
	suite_add_tcase(s, tc);
	return unit_run(s);
}
