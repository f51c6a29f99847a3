/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_layout_test.c - a store is refused where LMDB, or what LMDB wrote, is not what the redo log
 * knows: each part of a meta page on which the log depends is changed once.
 */
#include "kv/kv_log.h"
#include "kv/kv_meta.h"
#include "tests/unit/kv_store.h"
#include <endian.h>
#include <stddef.h>

/* What the library says of itself. */
static int lies_major, lies_minor;
static size_t lies_txnid;

char *__real_mdb_version(int *major, int *minor, int *patch);
char *__wrap_mdb_version(int *major, int *minor, int *patch);
char *__wrap_mdb_version(int *major, int *minor, int *patch)
{
	char *text = __real_mdb_version(major, minor, patch);

	*major += lies_major;
	*minor += lies_minor;
	return text;
}

int __real_mdb_env_info(MDB_env *env, MDB_envinfo *info);
int __wrap_mdb_env_info(MDB_env *env, MDB_envinfo *info);
int __wrap_mdb_env_info(MDB_env *env, MDB_envinfo *info)
{
	int rc = __real_mdb_env_info(env, info);

	info->me_last_txnid += lies_txnid;
	return rc;
}

static void layout_setup(void)
{
	setup();
	lies_major = lies_minor = 0;
	lies_txnid = 0;
}

static void refused(const char *why)
{
	struct kv *kv;

	err[0] = 0;
	ck_assert_int_eq(kv_open(&kv, dir, &create, err, sizeof(err)), -EPROTO);
	ck_assert_msg(strstr(err, why), "%s: no \"%s\"", err, why);
	ck_assert_msg(strstr(err, "the redo log knows LMDB 0.9 with data version 1; this is LMDB "),
		      "%s", err);
	ck_assert_ptr_null(strchr(err, '\n'));
}

static void layout_store(void)
{
	struct kv *kv = open_kv(&create);

	ck_assert_int_eq(script(kv, "+a=1"), 0);
	kv_close(kv);
}

static void in_store(char file[300], const char *name)
{
	snprintf(file, 300, "%s/%s", dir, name);
}

/* Adds to the byte at this offset of data.mdb. */
static void change(off_t at, uint8_t by)
{
	char file[300];
	uint8_t byte;
	int fd;

	in_store(file, "data.mdb");
	fd = open(file, O_RDWR);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pread(fd, &byte, 1, at), 1);
	byte = (uint8_t)(byte + by);
	ck_assert_int_eq(pwrite(fd, &byte, 1, at), 1);
	close(fd);
}

START_TEST(the_library_here_is_known)
{
	layout_store();
	kv_close(open_kv(&create));
}
END_TEST

START_TEST(library_of_another_version_is_refused)
{
	layout_store();
	lies_minor = 1;
	refused("the library has another version");
	ck_assert_ptr_nonnull(strstr(err, "this is LMDB 0.10."));
	lies_minor = 0;
	lies_major = 1;
	refused("the library has another version");
	lies_major = 0;
	kv_close(open_kv(&create));
}
END_TEST

START_TEST(library_of_another_version_makes_no_store)
{
	char file[300];

	lies_minor = 1;
	refused("the library has another version");
	in_store(file, "data.mdb");
	ck_assert_int_ne(access(file, F_OK), 0);
}
END_TEST

START_TEST(reader_refuses_it_too)
{
	const struct kv_opts o = {.ko_readonly = true};
	struct kv *kv;

	layout_store();
	lies_minor = 1;
	ck_assert_int_eq(kv_open(&kv, dir, &o, err, sizeof(err)), -EPROTO);
	ck_assert_ptr_nonnull(strstr(err, "the library has another version"));
}
END_TEST

START_TEST(another_data_version_is_refused)
{
	layout_store();
	change(offsetof(struct kv_meta_page, mp_version), 1);
	refused("data.mdb has data version 2");
}
END_TEST

START_TEST(page_that_is_used_behind_what_the_log_keeps_is_refused)
{
	layout_store();
	change(KV_META_KEPT, 1);
	refused("LMDB uses bytes that the log does not keep");
	change(KV_META_KEPT, 255);
	change(KV_STAMP_AT + KV_STAMP_LEN, 1);
	refused("LMDB uses bytes that the log does not keep");
	change(KV_STAMP_AT + KV_STAMP_LEN, 255);
	kv_close(open_kv(&create));
}
END_TEST

START_TEST(library_that_reads_another_transaction_is_refused)
{
	layout_store();
	lies_txnid = 1;
	refused("the transaction's number is not where it should be");
}
END_TEST

/* Leaves a store as a crash leaves it. */
static bool layout_crash(void)
{
	struct kv *kv = open_kv(&create);

	ck_assert_int_eq(script(kv, "+b=2"), 0);
	_exit(0);
}

/* A checkpoint whose meta pages are another program's: whole, but of another layout. */
START_TEST(checkpoint_of_another_layout_is_not_put_back)
{
	static const size_t at[] = {
		offsetof(struct kv_meta_page, mp_magic), offsetof(struct kv_meta_page, mp_version),
		offsetof(struct kv_meta_page, mp_number), offsetof(struct kv_meta_page, mp_db)};
	char file[2][300], data[300];
	struct kv_log_head h[2];
	struct stat before, after;
	int fd[2];

	layout_store();
	ck_assert(in_child(layout_crash));
	in_store(data, "data.mdb");
	for (unsigned i = 0; i < 2; i++) {
		in_store(file[i], i ? "redo.1" : "redo.0");
		fd[i] = open(file[i], O_RDWR);
		ck_assert_int_eq(pread(fd[i], &h[i], sizeof(h[i]), 0), sizeof(h[i]));
	}
	for (unsigned k = 0; k < sizeof(at) / sizeof(at[0]); k++) {
		for (unsigned i = 0; i < 2; i++) {
			struct kv_log_head bad = h[i];

			if (!kv_log_head_ok(&h[i]))
				continue;
			bad.lh_meta[1][at[k]] ^= 4;
			kv_log_head_seal(&bad);
			ck_assert_int_eq(pwrite(fd[i], &bad, sizeof(bad), 0), sizeof(bad));
		}
		ck_assert_int_eq(stat(data, &before), 0);
		refused("");
		ck_assert_int_eq(stat(data, &after), 0);
		ck_assert(before.st_mtim.tv_sec == after.st_mtim.tv_sec &&
			  before.st_mtim.tv_nsec == after.st_mtim.tv_nsec);
	}
	for (unsigned i = 0; i < 2; i++) {
		ck_assert_int_eq(pwrite(fd[i], &h[i], sizeof(h[i]), 0), sizeof(h[i]));
		close(fd[i]);
	}
	struct kv *kv = open_kv(&create);

	ck_assert(has(kv, "a", "1") && has(kv, "b", "2"));
	kv_close(kv);
}
END_TEST

/* Each field that kv_meta_wrong() compares, changed in the newest page or in both. */
START_TEST(each_field_is_compared)
{
	static const struct fault {
		size_t at;
		const char *why;
	} faults[] = {
		{offsetof(struct kv_meta_page, mp_magic), "the magic is not LMDB's"},
		{offsetof(struct kv_meta_page, mp_version), "the data version is not 1"},
		{offsetof(struct kv_meta_page, mp_number), "the page header"},
		{offsetof(struct kv_meta_page, mp_flags), "the page header"},
		{offsetof(struct kv_meta_page, mp_db), "the page size"},
		{offsetof(struct kv_meta_page, mp_txnid), "the transaction's number"},
		{offsetof(struct kv_meta_page, mp_last_page), "the last page's number"},
		{offsetof(struct kv_meta_page, mp_db[1].md_depth), "the counts"},
		{offsetof(struct kv_meta_page, mp_db[1].md_branch), "the counts"},
		{offsetof(struct kv_meta_page, mp_db[1].md_leaf), "the counts"},
		{offsetof(struct kv_meta_page, mp_db[1].md_overflow), "the counts"},
		{offsetof(struct kv_meta_page, mp_db[1].md_entries), "the counts"},
		{4000, "LMDB uses bytes"},
	};
	static uint64_t good[2 * 4096 / 8], pages[2 * 4096 / 8];
	const MDB_stat st = {.ms_psize = 4096,
			     .ms_depth = 3,
			     .ms_branch_pages = 5,
			     .ms_leaf_pages = 70,
			     .ms_overflow_pages = 2,
			     .ms_entries = 900};
	const MDB_envinfo info = {.me_last_pgno = 80, .me_last_txnid = 9};
	struct kv_meta_page *p;

	for (unsigned i = 0; i < 2; i++) {
		p = (void *)(good + i * 4096 / 8);
		*p = (struct kv_meta_page){
			.mp_number = i,
			.mp_flags = KV_META_FLAG,
			.mp_magic = KV_META_MAGIC,
			.mp_version = KV_META_VERSION,
			.mp_db = {{.md_pad = 4096},
				  {.md_depth = 3,
				   .md_branch = 5,
				   .md_leaf = 70,
				   .md_overflow = 2,
				   .md_entries = 900}},
			.mp_last_page = 80,
			.mp_txnid = 8 + i,
		};
	}
	memset((uint8_t *)good + KV_STAMP_AT, 1, KV_STAMP_LEN);
	ck_assert_ptr_null(kv_meta_wrong(good, &info, &st));
	for (unsigned k = 0; k < sizeof(faults) / sizeof(faults[0]); k++) {
		const char *why;

		memcpy(pages, good, sizeof(pages));
		((uint8_t *)pages)[4096 + faults[k].at] ^= 8;
		why = kv_meta_wrong(pages, &info, &st);
		ck_assert_msg(why && strstr(why, faults[k].why), "fault %u: %s", k,
			      why ? why : "not seen");
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("kv_layout");
	TCase *c = tcase_create("layout");

	log_set_level(LOG_L_ERROR);
	tcase_add_checked_fixture(c, layout_setup, teardown);
	tcase_add_test(c, the_library_here_is_known);
	tcase_add_test(c, library_of_another_version_is_refused);
	tcase_add_test(c, library_of_another_version_makes_no_store);
	tcase_add_test(c, reader_refuses_it_too);
	tcase_add_test(c, another_data_version_is_refused);
	tcase_add_test(c, page_that_is_used_behind_what_the_log_keeps_is_refused);
	tcase_add_test(c, library_that_reads_another_transaction_is_refused);
	tcase_add_test(c, checkpoint_of_another_layout_is_not_put_back);
	tcase_add_test(c, each_field_is_compared);
	suite_add_tcase(s, c);
	return unit_run(s);
}
