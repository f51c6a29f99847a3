/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_bytes_test.c - the store's files, byte for byte: a fixed series of mutations leaves the
 * records, headers and archive that programs before this one left.
 *
 * The digests are of the files that commit 58fabe15 wrote. They change only with a version of a
 * format. The meta pages in a header are LMDB's, and are left out.
 */
#include "kv/kv_log.h"
#include "tests/unit/kv_store.h"
#include <endian.h>
#include <sodium.h>

enum { ARCHIVE = 8 << 20, COMMITS = 40, TRIES = 20 };

/* Identities are the same in each run. */
void __wrap_randombytes_buf(void *buf, size_t n);
void __wrap_randombytes_buf(void *buf, size_t n)
{
	memset(buf, 0x5a, n);
}

static int put_some(void *arg, struct kv_txn *t)
{
	unsigned i = *(unsigned *)arg;
	char key[16], val[10000];
	int rc = 0;

	for (unsigned k = 0; k < 1 + i % 4 && !rc; k++) {
		struct kv_slice v = {val, (i * 37 + k * 501) % (i % 10 == 3 ? sizeof(val) : 400)};

		memset(val, 'a' + (int)((i + k) % 26), sizeof(val));
		snprintf(key, sizeof(key), "key %u", (i * 7 + k) % 50);
		rc = kv_put(t, S(key), v);
	}
	if (i % 5 == 4 && !rc) {
		snprintf(key, sizeof(key), "key %u", ((i - 1) * 7) % 50);
		rc = kv_del(t, S(key));
	}
	return rc;
}

/* False: a checkpoint came by itself, so that the files are other ones. */
static bool session(unsigned first, bool closes)
{
	struct kv *kv = open_kv(&(struct kv_opts){
		.ko_create = true, .ko_map_max = 64 << 20, .ko_archive = ARCHIVE});
	struct kv_stats st;

	for (unsigned i = first; i < first + COMMITS; i++)
		ck_assert_int_eq(kv_run_sync(kv, put_some, &i), 0);
	kv_stats(kv, &st);
	if (closes)
		kv_close(kv);
	return st.ks_checkpoints == 1;
}

static bool series(void)
{
	return session(0, true) && session(COMMITS, false);
}

static char *whole(const char *name, size_t *n)
{
	char file[300], *buf;
	struct stat st;
	int fd;

	snprintf(file, sizeof(file), "%s/%s", dir, name);
	fd = open(file, O_RDONLY);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fstat(fd, &st), 0);
	*n = (size_t)st.st_size;
	buf = malloc(*n + 1);
	ck_assert_int_eq(read(fd, buf, *n), (ssize_t)*n);
	close(fd);
	return buf;
}

static void same(const char *name, const char *want)
{
	uint8_t sum[16];
	char hex[33];
	size_t n;
	char *buf = whole(name, &n);

	if (name[0] == 'r') {
		struct kv_log_head *h = (struct kv_log_head *)buf;

		ck_assert(kv_log_head_ok(h));
		memset(h->lh_meta, 0, sizeof(h->lh_meta));
		memset(h->lh_sum, 0, sizeof(h->lh_sum));
	}
	crypto_generichash(sum, sizeof(sum), (uint8_t *)buf, n, NULL, 0);
	sodium_bin2hex(hex, sizeof(hex), sum, sizeof(sum));
	ck_assert_msg(!strcmp(hex, want), "%s: %zu bytes, %s", name, n, hex);
	/* Another byte anywhere is another digest. */
	buf[n / 2] ^= 1;
	crypto_generichash(sum, sizeof(sum), (uint8_t *)buf, n, NULL, 0);
	sodium_bin2hex(hex, sizeof(hex), sum, sizeof(sum));
	ck_assert_str_ne(hex, want);
	free(buf);
}

START_TEST(files_are_those_of_before)
{
	unsigned tries = 0;

	while (!in_child(series)) {
		ck_assert_msg(++tries < TRIES, "no series without a checkpoint in %u", tries);
		scratch_remove(dir);
		setup();
	}
	same("redo.0", "cfe9c378302c843a90a3926dfeebbb07");
	same("redo.1", "bee7f6ad03aaaf67406bb1ca5d622a3f");
	same("archive/0000000000000002", "1c52351b7a484acc573332e196d03cd1");
	/* Recovery, and a clean end. */
	kv_close(open_kv(&(struct kv_opts){.ko_map_max = 64 << 20}));
	same("redo.0", "ac198a028a7af41631c4c98c71fdf383");
	same("redo.1", "4e3d15b7c0d8ee95b20f9694db8093ac");
	same("archive/0000000000000002", "53770f787fd8b60606201d703b1dcbaa");
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("kv bytes");
	TCase *c = tcase_create("files");

	tcase_add_checked_fixture(c, setup, teardown);
	tcase_set_timeout(c, 120);
	tcase_add_test(c, files_are_those_of_before);
	suite_add_tcase(s, c);
	return s;
}

int main(void)
{
	if (!getenv("TMPDIR") && access("/dev/shm", W_OK) == 0)
		setenv("TMPDIR", "/dev/shm", 1);
	return unit_run(suite());
}
