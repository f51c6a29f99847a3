/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meta_test.c - rows to lines of JSON and back: any row comes back as it was; a store with a random
 * tree comes back key by key.
 *
 * META_SEED.
 */
#include "mds/meta.h"
#include "tests/unit/ns_store.h"
#include <sys/random.h>
#include <time.h>

static unsigned seed;

static void seed_set(void)
{
	const char *s = getenv("META_SEED");

	seed = s ? (unsigned)atol(s) : (unsigned)time(NULL) ^ (unsigned)getpid();
	fprintf(stderr, "# META_SEED=%u\n", seed);
}

static unsigned any(unsigned n)
{
	return (unsigned)rand_r(&seed) % n;
}

/* Mostly small numbers, as rows have them; so that many rows are of their kind. */
static void fill(uint8_t *p, size_t n)
{
	bool wild = !any(4);

	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)(wild ? any(256) : !any(3) ? any(3) : 0);
}

/* Promised: the line gives the row again; and a line of its kind has the length that it may. */
static bool comes_back(struct kv_slice key, struct kv_slice val)
{
	static uint8_t room[70000];
	struct meta_row r = {.mr_val = room};
	struct meta_line l = {.ml_buf = NULL};
	char why[300] = "";
	bool raw;

	ck_assert_int_eq(meta_line_of(&l, key, val, &raw), 0);
	ck_assert_uint_le(l.ml_len, META_LINE_MAX);
	ck_assert_int_eq(l.ml_buf[l.ml_len - 1], '\n');
	ck_assert_ptr_null(memchr(l.ml_buf, '\n', l.ml_len - 1));
	ck_assert_msg(meta_row_of(l.ml_buf, l.ml_len - 1, &r, why, sizeof(why), sizeof(room)),
		      "%s: %.*s", why, (int)l.ml_len, l.ml_buf);
	ck_assert_int_eq(r.mr_raw, raw);
	ck_assert(r.mr_key_len == key.s_len && !memcmp(r.mr_key, key.s_data, key.s_len));
	ck_assert(r.mr_val_len == val.s_len &&
		  (!val.s_len || !memcmp(r.mr_val, val.s_data, val.s_len)));
	free(l.ml_buf);
	return !raw;
}

static size_t random_row(const struct meta_kind *mk, uint8_t *key, size_t *len, uint8_t *val)
{
	size_t n = any(8) ? mk->mk_key ? mk->mk_key : 1 + any(100) : 1 + any(KV_KEY_MAX);

	fill(key, n);
	key[0] = mk->mk_table;
	if (mk->mk_sort >= 0 && n > 1)
		key[1] = (uint8_t)mk->mk_sort;
	*len = n;
	n = any(3) ? any(140) : any(600);
	fill(val, n);
	if (n && any(8))
		val[0] = (uint8_t)(1 + any(7));
	return n;
}

START_TEST(any_row_comes_back)
{
	enum { ROUNDS = 3000 };
	uint8_t key[KV_KEY_MAX], val[600];
	size_t len, known = 0;

	seed_set();
	for (size_t i = 0; i < meta_kinds_n; i++)
		for (unsigned k = 0; k < ROUNDS; k++) {
			size_t n = random_row(&meta_kinds[i], key, &len, val);

			known += comes_back((struct kv_slice){key, len}, (struct kv_slice){val, n});
		}
	ck_assert_uint_gt(known, ROUNDS); /* not all of them as bytes */
	for (unsigned k = 0; k < ROUNDS; k++) {
		len = 1 + any(KV_KEY_MAX);
		fill(key, len);
		key[0] |= !key[0];
		comes_back((struct kv_slice){key, len}, (struct kv_slice){val, any(600)});
	}
}
END_TEST

/* Every length of a value, and of the texts of each kind. */
START_TEST(texts_of_any_bytes_come_back)
{
	static const char *const texts[] = {"plain",
					    "",
					    "\"\\/",
					    "\b\f\n\r\t\x01\x1f\x7f",
					    "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80",
					    "\xc0\x80",
					    "\xed\xa0\x80",
					    "\xf4\x90\x80\x80",
					    "\xff",
					    "\xe2\x82",
					    "\xef\xbf\xbf"};
	static uint8_t val[65537] = {1}, key[KV_KEY_MAX] = "x\0\0\0\0\0\0\0\1name";

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		size_t n = strlen(texts[i]);

		memcpy(val + 1, texts[i], n);
		ck_assert(comes_back(ns_slice(key, 13), ns_slice(val, 1 + n)));
		ck_assert(comes_back(ns_slice(key, 13), ns_slice(val, 2 + n))); /* a NUL */
		memcpy(key + 9, texts[i], n);
		ck_assert(comes_back(ns_slice(key, 9 + n), ns_slice(val, 1)));
		memset(val, 0, 50);
		val[0] = 1;
	}
	memset(val + 1, 1, 65536); /* the longest, as escapes and as digits */
	ck_assert(comes_back(ns_slice(key, 13), ns_slice(val, 65537)));
	memset(val + 1, 0xff, 65536);
	ck_assert(comes_back(ns_slice(key, 13), ns_slice(val, 65537)));
}
END_TEST

/* A random tree */

static int a_map(void *arg, const struct ns_inode *i, struct kv_slice policy, uint8_t *buf,
		 size_t max, size_t *len)
{
	/* Version 2, one stripe, one mirror; an object on data server 1. */
	static const uint8_t map[24] = {2, 1, 1, 0x80 | 20, 3, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 1};

	(void)arg, (void)i, (void)policy, (void)max;
	memcpy(buf, map, sizeof(map));
	*len = sizeof(map);
	return 0;
}

static size_t any_name(char *name)
{
	size_t n = any(10) ? 1 + any(4) : 1 + any(NS_NAME_MAX);

	for (size_t i = 0; i < n; i++) {
		do
			name[i] = (char)(any(5) ? 'a' + (int)any(6) : (int)any(256));
		while (!name[i] || name[i] == '/');
	}
	if (name[0] == '.')
		name[0] = ',';
	return n;
}

enum { DIRS = 40 };
struct tree {
	uint64_t t_dir[DIRS], t_file[DIRS];
	unsigned t_dirs, t_files;
	int64_t t_now;
};

static void tree_make(struct tree *tr)
{
	static const uint8_t types[] = {NS_REG, NS_REG, NS_DIR, NS_DIR, NS_LNK, NS_FIFO, NS_CHR};
	char name[NS_NAME_MAX], target[40];
	size_t n = any_name(name);
	struct ns_create_args a = {
		.a_dir = tr->t_dir[any(tr->t_dirs)],
		.a_name = name,
		.a_len = n,
		.a_cred = &root,
		.a_attr = {.i_type = types[any(sizeof(types))], .i_mode = (uint16_t)any(010000)},
		.a_now = {.t_sec = tr->t_now, .t_nsec = any(1000000000)},
		.a_map = a_map};
	struct ns_inode out;
	struct ns_cinfo ci;
	uint8_t blob[NS_SYMLINK_MAX];
	int rc;

	fill((uint8_t *)target, sizeof(target));
	for (size_t i = 0; i < sizeof(target); i++)
		target[i] |= !target[i];
	if (a.a_attr.i_type == NS_LNK)
		a.a_attr.i_blob = ns_slice(target, 1 + any(sizeof(target)));
	a.a_attr.i_size = a.a_attr.i_blob.s_len;
	rc = W(ns_create(ns, wt, &a, &out, blob, &ci));
	if (rc)
		return;
	if (out.i_type == NS_DIR && tr->t_dirs < DIRS)
		tr->t_dir[tr->t_dirs++] = out.i_ino;
	if (out.i_type == NS_REG && tr->t_files < DIRS)
		tr->t_file[tr->t_files++] = out.i_ino;
}

static void tree_step(struct tree *tr)
{
	struct ns_time now = {.t_sec = tr->t_now++, .t_nsec = any(1000000000)};
	uint64_t dir = tr->t_dir[any(tr->t_dirs)];
	uint64_t file = tr->t_files ? tr->t_file[any(tr->t_files)] : dir;
	struct ns_free_ops to = fo; /* removes at once, or to the trash */
	char name[NS_NAME_MAX];
	uint8_t value[300];
	size_t n = any_name(name);
	struct ns_inode gone;
	struct ns_cinfo ci;

	to.f_keep_s = any(2) ? 1000 : 0;
	switch (any(6)) {
	case 0:
		W(ns_link(ns, wt, file, dir, name, n, &root, now, &ci));
		break;
	case 1:
		fill(value, sizeof(value));
		W(ns_xattr_set(ns, wt, any(2) ? file : dir, name, n,
			       ns_slice(value, any(sizeof(value))), 0, &root, now, &ci));
		break;
	case 2:
		W(ns_remove(ns, wt, dir, name, n, 0, &root, now, &to, &gone, &ci));
		break;
	default:
		tree_make(tr);
	}
}

static struct kv *open_only(const char *path)
{
	struct kv_opts o = {.ko_readonly = true};
	struct kv *k = NULL;
	int rc = kv_open(&k, path, &o, err, sizeof(err));

	ck_assert_msg(rc == 0, "%s", err);
	return k;
}

/* Every key of both stores, and its value. Returns their number. */
static unsigned same_stores(const char *one, const char *two)
{
	struct kv *a = open_only(one), *b = open_only(two);
	struct kv_slice none = {"", 0}, ka, va, kb, vb;
	struct kv_scan sa, sb;
	struct kv_txn *ta, *tb;
	unsigned n = 0;

	ck_assert_int_eq(kv_read_begin(a, &ta), 0);
	ck_assert_int_eq(kv_read_begin(b, &tb), 0);
	ck_assert_int_eq(kv_scan_begin(ta, none, none, &sa), 0);
	ck_assert_int_eq(kv_scan_begin(tb, none, none, &sb), 0);
	while (kv_scan_next(&sa, &ka, &va) == 1) {
		ck_assert_int_eq(kv_scan_next(&sb, &kb, &vb), 1);
		ck_assert(ka.s_len == kb.s_len && !memcmp(ka.s_data, kb.s_data, ka.s_len));
		ck_assert(va.s_len == vb.s_len &&
			  (!va.s_len || !memcmp(va.s_data, vb.s_data, va.s_len)));
		n++;
	}
	ck_assert_int_eq(kv_scan_next(&sb, &kb, &vb), 0);
	kv_scan_end(&sa);
	kv_scan_end(&sb);
	kv_read_end(ta);
	kv_read_end(tb);
	kv_close(a);
	kv_close(b);
	return n;
}

START_TEST(random_tree_comes_back)
{
	struct tree tr = {.t_dir = {NS_ROOT_INO}, .t_dirs = 1, .t_now = 1000};
	static char lines[300], other[300];
	struct backup_args a = {.ba_store = dir, .ba_user = "", .ba_conf = "", .ba_json = true};

	seed_set();
	tr.t_dir[tr.t_dirs++] = mk(NS_ROOT_INO, "first", NS_DIR, 0755, &root);
	for (unsigned i = 0; i < 600; i++)
		tree_step(&tr);
	ck_assert_uint_gt(tr.t_files, 5);
	snapshot_end();
	close_store();
	snprintf(lines, sizeof(lines), "%s/lines", dir);
	snprintf(other, sizeof(other), "%s/other", dir);
	ck_assert_int_eq(meta_export(&a, lines), BACKUP_DONE);
	a.ba_store = other;
	ck_assert_int_eq(meta_import(&a, lines, false), BACKUP_DONE);
	ck_assert_uint_gt(same_stores(dir, other), 400);
	/* Into the same folder again: it has a store. */
	ck_assert_int_eq(meta_import(&a, lines, false), BACKUP_FAILED);
	open_store();
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {any_row_comes_back, texts_of_any_bytes_come_back,
				      random_tree_comes_back, NULL};
	Suite *s = suite_create("meta");

	if (sodium_init() < 0)
		return EXIT_FAILURE;
	unit_add(s, "meta", setup, teardown, 60, tests);
	return unit_run(s);
}
