/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_copy_archive_test.c - the archive of a store that is a copy of a log elsewhere (kv_memlog.h):
 * it has what the log has, and the log keeps what it lacks.
 */
#include "tests/unit/kv_memlog.h"

static struct mem_log first_log, second_log = {.ml_who = 1};
static const struct kv_redo first_redo = {&mem_ops, &first_log},
			    second_redo = {&mem_ops, &second_log};

/* The first copy is behind then. */
static void change_of_another(void)
{
	struct kv_opts o = {.ko_create = true, .ko_redo = &second_redo, .ko_map_max = 64 << 20};
	struct kv *kv = NULL;
	char path[300];

	snprintf(path, sizeof(path), "%s/b", dir);
	ck_assert_msg(kv_open(&kv, path, &o, err, sizeof(err)) == 0, "%s", err);
	ck_assert_int_eq(change(kv, 1), 0);
	kv_close(kv);
}

static int count_txn(void *arg, uint64_t txn, const struct kv_write *w)
{
	uint64_t *seen = arg; /* newest, number */

	(void)w;
	if (txn != seen[0] && txn != seen[0] + 1)
		return -EPROTO;
	seen[1] += txn != seen[0];
	seen[0] = txn;
	return 0;
}

START_TEST(archive_takes_its_batches_from_the_log)
{
	struct kv_opts o = {.ko_create = true, .ko_redo = &first_redo, .ko_archive = 8 * MIB};
	uint64_t seen[2] = {0, 0};
	struct kv_archive ka;
	struct kv *kv = open_kv(&o);

	for (uint32_t i = 1; i <= 40; i++)
		ck_assert_int_eq(change(kv, i), 0);
	kv_close(kv);
	change_of_another();
	kv = open_kv(&o);
	ck_assert_int_eq(change(kv, 41), 0);
	kv_close(kv);
	ck_assert_int_eq(kv_archive_look(dir, &ka), 0);
	ck_assert_uint_eq(ka.ka_first, 1);
	ck_assert_uint_eq(ka.ka_last, 42);
	ck_assert_int_eq(kv_archive_read(dir, ka.ka_id, 1, 42, count_txn, seen), 0);
	ck_assert_uint_eq(seen[1], 42);
}
END_TEST

static struct kv *open_archived(unsigned changes)
{
	struct kv_opts o = {.ko_create = true, .ko_redo = &first_redo, .ko_archive = 8 * MIB};
	struct kv *kv = open_kv(&o);

	for (uint32_t i = 1; i <= changes; i++)
		ck_assert_int_eq(change(kv, i), 0);
	return kv;
}

static void archive_is(uint64_t first, uint64_t last, struct kv_archive *ka)
{
	uint64_t seen[2] = {first - 1, 0};

	ck_assert_int_eq(kv_archive_look(dir, ka), 0);
	ck_assert_uint_eq(ka->ka_first, first);
	ck_assert_uint_eq(ka->ka_last, last);
	ck_assert_int_eq(kv_archive_read(dir, ka->ka_id, first, last, count_txn, seen), 0);
	ck_assert_uint_eq(seen[1], last - first + 1);
}

START_TEST(log_is_trimmed_only_as_far_as_the_archive_has_it)
{
	struct kv_archive ka;
	struct kv *kv;

	kv_close(open_archived(10));
	ck_assert_uint_eq(mem->m_trim[0], 10);
	kv = open_archived(5);
	mem->m_wrong = MEM_AWAY;
	ck_assert_int_eq(change(kv, 6), 0);
	kv_close(kv);
	ck_assert_uint_ge(mem->m_trim[0], 10);
	ck_assert_int_eq(kv_archive_look(dir, &ka), 0);
	ck_assert_uint_lt(ka.ka_last, 16);
	ck_assert_uint_eq(mem->m_trim[0], ka.ka_last);
	mem->m_wrong = MEM_RIGHT;
	kv_close(open_archived(1));
	archive_is(1, 17, &ka);
	ck_assert_uint_eq(mem->m_trim[0], 17);
}
END_TEST

START_TEST(archive_takes_no_damaged_batch_and_none_of_another_log)
{
	struct kv_archive ka, again;
	char cmd[400], why[KV_ARCHIVE_WHY];
	struct kv *kv;
	int64_t at;

	kv_close(open_archived(10));
	kv = open_archived(0);
	mem->m_wrong = MEM_BIT;
	ck_assert_int_eq(change(kv, 11), 0);
	kv_close(kv);
	mem->m_wrong = MEM_RIGHT;
	ck_assert(kv_archive_gap(dir, &at, why));
	ck_assert_str_eq(why, strerror(EIO));
	kv_close(open_archived(3));
	archive_is(12, 14, &ka);
	/* The same numbers, of another history: the folder is left over. */
	snprintf(cmd, sizeof(cmd), "cd %s && rm data.mdb lock.mdb copy.*", dir);
	ck_assert_int_eq(system(cmd), 0);
	mem->m_id[0] ^= 1;
	mem->m_last = mem->m_end = 0;
	kv_close(open_archived(14));
	archive_is(1, 14, &again);
	ck_assert_int_ne(memcmp(ka.ka_id, again.ka_id, sizeof(ka.ka_id)), 0);
	ck_assert(kv_archive_gap(dir, &at, why));
	ck_assert_ptr_nonnull(strstr(why, "made again"));
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("kv archives of copies");
	TCase *c = tcase_create("archives");

	tcase_add_checked_fixture(c, mem_setup, teardown);
	tcase_set_timeout(c, 120);
	tcase_add_test(c, archive_takes_its_batches_from_the_log);
	tcase_add_test(c, log_is_trimmed_only_as_far_as_the_archive_has_it);
	tcase_add_test(c, archive_takes_no_damaged_batch_and_none_of_another_log);
	suite_add_tcase(s, c);
	return s;
}

int main(void)
{
	if (!getenv("TMPDIR") && access("/dev/shm", W_OK) == 0)
		setenv("TMPDIR", "/dev/shm", 1);
	return unit_run(suite());
}
