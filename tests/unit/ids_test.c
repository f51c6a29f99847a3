/* SPDX-License-Identifier: Apache-2.0 */
/* Ids of clients, sessions and states (docs/formats.md): permutations with exact inverses, which
 * tell nothing of one another. */
#include "mds/state/ids.h"
#include "tests/unit/unit.h"
#include <sodium.h>
#include <stdlib.h>

enum { MANY = 20000 };

static struct ns_super su;
static struct st_ids ids;

static void setup(void)
{
	ck_assert_int_ge(sodium_init(), 0);
	su = (struct ns_super){.su_fs = 1, .su_incarnation = 1};
	memset(su.su_fh_key, 7, sizeof(su.su_fh_key));
	memset(su.su_uuid, 9, sizeof(su.su_uuid));
	st_ids_init(&ids, &su);
}

static void teardown(void)
{
}

static unsigned bits(const uint8_t *a, const uint8_t *b, size_t n)
{
	unsigned d = 0;

	for (size_t i = 0; i < n; i++)
		d += (unsigned)__builtin_popcount(a[i] ^ b[i]);
	return d;
}

START_TEST(what_is_hidden_is_shown_again)
{
	for (size_t len = 2; len <= 12; len += 2) {
		for (unsigned i = 0; i < MANY; i++) {
			uint8_t was[12], is[12];

			randombytes_buf(was, sizeof(was));
			memcpy(is, was, sizeof(is));
			st_id_hide(ids.id_sid, is, len);
			ck_assert_mem_eq(is + len, was + len, sizeof(is) - len);
			st_id_show(ids.id_sid, is, len);
			ck_assert_mem_eq(is, was, sizeof(is));
		}
	}
}
END_TEST

/* All of two bytes: each comes out once. */
START_TEST(two_never_become_one)
{
	uint8_t *seen = calloc(1, 65536);

	ck_assert_ptr_nonnull(seen);
	for (unsigned i = 0; i < 65536; i++) {
		uint8_t id[2] = {(uint8_t)(i >> 8), (uint8_t)i};

		st_id_hide(ids.id_client, id, 2);
		ck_assert_uint_eq(seen[id[0] << 8 | id[1]]++, 0);
	}
	free(seen);
}
END_TEST

START_TEST(a_state_is_known_by_its_id)
{
	for (uint64_t i = 0; i < MANY; i++) {
		struct st_id_state was = {0x80000001u + (uint32_t)i, (uint8_t)(1 + i % 5),
					  0xffffffffffull - i, (uint16_t)(65535 - i % 65536)},
				   is;
		uint8_t other[NFS4_OTHER_SIZE];

		st_id_state_put(&ids, &was, other);
		st_id_state_get(&ids, other, &is);
		ck_assert(is.is_epoch == was.is_epoch && is.is_kind == was.is_kind &&
			  is.is_count == was.is_count && is.is_shard == was.is_shard);
	}
}
END_TEST

/* Of neighbours, half of the bits are others, nearly: in all together as exactly as so many coins
 * fall. */
START_TEST(neighbours_have_nothing_in_common)
{
	uint64_t client = 0, session = 0, state = 0;

	for (uint32_t i = 0; i < MANY; i++) {
		uint64_t a = st_id_client(&ids, 1, i), b = st_id_client(&ids, 1, i + 1);
		uint8_t s[2][NFS4_SESSIONID_SIZE], o[2][NFS4_OTHER_SIZE];

		client += bits((uint8_t *)&a, (uint8_t *)&b, sizeof(a));
		for (uint32_t k = 0; k < 2; k++) {
			st_id_session(&ids, 1, i + k, s[k]);
			st_id_state_put(&ids, &(struct st_id_state){1, 1, i + k, 5}, o[k]);
		}
		ck_assert_mem_eq(s[0], s[1], 4); /* the boot */
		session += bits(s[0] + 8, s[1] + 8, 8);
		state += bits(o[0], o[1], NFS4_OTHER_SIZE);
	}
	ck_assert(client > MANY * 31ull && client < MANY * 33ull);
	ck_assert(session > MANY * 31ull && session < MANY * 33ull);
	ck_assert(state > MANY * 47ull && state < MANY * 49ull);
}
END_TEST

/* Another key, cluster, file system or incarnation; a client's id is no stateid's, nor what others
 * are told of it. */
START_TEST(no_other_store_has_the_same)
{
	uint64_t mine = st_id_client(&ids, 1, 1);
	struct ns_super is = su;

	for (unsigned i = 0; i < 4; i++) {
		struct st_ids other;

		su = is;
		if (i == 0)
			su.su_fh_key[15] ^= 1;
		else if (i == 1)
			su.su_uuid[15] ^= 1;
		else if (i == 2)
			su.su_fs++;
		else
			su.su_incarnation++;
		st_ids_init(&other, &su);
		ck_assert_uint_ne(st_id_client(&other, 1, 1), mine);
		ck_assert_mem_ne(other.id_sid, ids.id_sid, 16);
		ck_assert_mem_ne(other.id_session, ids.id_session, 16);
	}
	ck_assert_mem_ne(ids.id_sid, ids.id_client, 16);
	ck_assert_mem_ne(ids.id_session, ids.id_client, 16);
	ck_assert_uint_ne(st_id_other(&ids, mine), mine);
	ck_assert_uint_eq(st_id_other(&ids, mine), st_id_other(&ids, mine));
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		what_is_hidden_is_shown_again, two_never_become_one,
		a_state_is_known_by_its_id,    neighbours_have_nothing_in_common,
		no_other_store_has_the_same,   NULL};
	Suite *s = suite_create("ids");

	unit_add(s, "ids", setup, teardown, 60, tests);
	return unit_run(s);
}
