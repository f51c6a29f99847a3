/* SPDX-License-Identifier: Apache-2.0 */
/* ns_check_test.c - records that are damaged are errors, and the checker finds them. */
#include "tests/unit/ns_store.h"

START_TEST(records_refuse_damage)
{
	struct ns_inode i = {.i_ino = 7,
			     .i_type = NS_REG,
			     .i_mode = 0644,
			     .i_nlink = 1,
			     .i_change = 3,
			     .i_blob = ns_slice("map", 3)},
			back;
	uint8_t v[NS_INODE_VAL_MAX];
	size_t len = ns_inode_encode(&i, v);

	ck_assert_int_eq(ns_inode_decode(ns_slice(v, len), 7, &back), 0);
	ck_assert_uint_eq(back.i_change, 3);
	ck_assert_uint_eq(back.i_blob.s_len, 3);
	ck_assert_int_eq(ns_inode_decode(ns_slice(v, sizeof(struct ns_inode_rec) - 1), 7, &back),
			 -EIO);
	v[0]++;
	ck_assert_int_eq(ns_inode_decode(ns_slice(v, len), 7, &back), -EIO); /* another version */
	v[0]--;
	v[1] = 8;
	ck_assert_int_eq(ns_inode_decode(ns_slice(v, len), 7, &back), -EIO);
	v[1] = NS_FIFO;
	ck_assert_int_eq(ns_inode_decode(ns_slice(v, len), 7, &back),
			 -EIO); /* a fifo with a blob */
	i.i_type = NS_DIR;	/* a blob, but no policy */
	len = ns_inode_encode(&i, v);
	ck_assert_int_eq(ns_inode_decode(ns_slice(v, len), 7, &back), -EIO);
	i.i_type = NS_REG;
	i.i_mtime.t_nsec = 1000000000;
	len = ns_inode_encode(&i, v);
	ck_assert_int_eq(ns_inode_decode(ns_slice(v, len), 7, &back), -EIO);
}
END_TEST

static void expect(const char *what)
{
	ck_assert_msg(violation_count() > 0, "\"%s\" was not found", what);
	ck_assert_msg(strstr(violations, what), "expected \"%s\", got:\n%s", what, violations);
}

/* A damaged inode is found; the sound one comes back. */
static void finds(const struct ns_inode *i, const struct ns_inode_held *sound, const char *what)
{
	put_inode(*i);
	expect(what);
	put_inode(sound->h_i);
}

/* Each damage below is planted, found, named, and taken back. The directory d of the root holds the
 * directory e and the file f. */
struct planted {
	uint64_t d, e, f;
	struct ns_inode_held hd, he, hf; /* as they are sound */
};

static void plant_in_inodes(const struct planted *p)
{
	uint8_t k[NS_KEY_DIRENT];
	struct ns_inode i;

	i = p->hf.h_i;
	i.i_nlink = 2;
	finds(&i, &p->hf, "says 2 links and has 1");
	i = p->hd.h_i;
	i.i_nlink = 7;
	finds(&i, &p->hd, "says 7 links and has 1 subdirectories");
	i = p->hd.h_i;
	i.i_entries = 3;
	i.i_size = 192;
	finds(&i, &p->hd, "says 3 entries and has 2");
	i = p->hd.h_i;
	i.i_size = 1;
	finds(&i, &p->hd, "size 1 does not fit");
	i = p->he.h_i;
	i.i_parent = 1;
	finds(&i, &p->he, "says its parent is 1");
	i = p->hf.h_i;
	i.i_has_xattrs = true;
	finds(&i, &p->hf, "there are none");
	i = p->hf.h_i;
	i.i_incarnation = 9;
	finds(&i, &p->hf, "incarnation 9 is ahead");
	i = p->hf.h_i;
	i.i_ino = UINT64_MAX / 2;
	put_inode(i);
	expect("number not reserved");
	expect("no entry points at it");
	ck_assert_int_eq(W(kv_del(wt, ns_key_ino(k, NS_K_INODE, i.i_ino))), 0);
	ck_assert_uint_eq(violation_count(), 0);
}

static void plant_in_acls(const struct planted *p)
{
	struct ns_inode i = p->hf.h_i;
	uint8_t rec[NS_ACL_REC_MAX];
	struct ns_acl acl;

	ns_acl_of_mode(0644, false, &acl);
	i.i_acl = ns_acl_encode(&acl, rec);
	put_inode(i);
	ck_assert_uint_eq(violation_count(), 0);
	i.i_mode = 0640;
	finds(&i, &p->hf, "mode 640, and its ACL says 644");
}

static void plant_in_entries(const struct planted *p)
{
	uint64_t d = p->d, f = p->f;
	uint8_t k[NS_KEY_DIRENT];

	ck_assert_int_eq(raw_put(ns_key_ino(k, NS_K_INODE, f), "\x01junk", 5), 0);
	expect("record damaged");
	ck_assert_int_eq(W(kv_del(wt, ns_key_ino(k, NS_K_INODE, f))), 0);
	expect("\"f\" points at missing inode");
	put_inode(p->hf.h_i);

	put_entry(d, hash_of("f") + 1, f, NS_REG, "f");
	expect("\"f\" exists twice");
	ck_assert_int_eq(W(kv_del(wt, ns_key_dirent(k, d, hash_of("f") + 1))), 0);
	put_entry(d, hash_of("q") ^ 0x100000, f, NS_REG, "q");
	expect("outside the window");
	ck_assert_int_eq(W(kv_del(wt, ns_key_dirent(k, d, hash_of("q") ^ 0x100000))), 0);
	put_entry(d, hash_of("f"), f, NS_FIFO, "f");
	expect("says type 7");
	put_entry(d, hash_of("f"), f, NS_REG, "f");
	put_entry(f, hash_of("g"), f, NS_REG, "g");
	expect("which is not a directory");
	ck_assert_int_eq(W(kv_del(wt, ns_key_dirent(k, f, hash_of("g")))), 0);
	ck_assert_int_eq(raw_put(ns_key_dirent(k, d, hash_of("z")), "\x01", 1), 0);
	expect("entry damaged");
	ck_assert_int_eq(W(kv_del(wt, ns_key_dirent(k, d, hash_of("z")))), 0);
	ck_assert_uint_eq(violation_count(), 0);
}

static void plant_what_belongs_to_inodes(const struct planted *p)
{
	uint8_t k[NS_KEY_DIRENT], xk[NS_KEY_XATTR_MAX];
	uint64_t f = p->f;

	ck_assert_int_eq(raw_put(ns_key_xattr(xk, f, "k", 1), "\x01v", 2), 0);
	expect("says it has no extended attributes");
	ck_assert_int_eq(W(kv_del(wt, ns_key_xattr(xk, f, "k", 1))), 0);
	ck_assert_int_eq(raw_put(ns_key_xattr(xk, 999, "k", 1), "\x01v", 2), 0);
	expect("extended attribute of missing inode 999");
	ck_assert_int_eq(W(kv_del(wt, ns_key_xattr(xk, 999, "k", 1))), 0);
	ck_assert_int_eq(raw_put(ns_key_ino(k, NS_K_ORPHAN, f), "\x01", 1), 0);
	expect("has 1 links");
	ck_assert_int_eq(W(kv_del(wt, ns_key_ino(k, NS_K_ORPHAN, f))), 0);
	ck_assert_int_eq(raw_put(ns_key_ino(k, NS_K_ORPHAN, 999), "\x01", 1), 0);
	expect("orphan 999: no such inode");
	ck_assert_int_eq(W(kv_del(wt, ns_key_ino(k, NS_K_ORPHAN, 999))), 0);
	ck_assert_int_eq(raw_put(ns_slice("?", 1), "x", 1), 0);
	expect("unknown kind 0x3f");
	ck_assert_int_eq(W(kv_del(wt, ns_slice("?", 1))), 0);
}

/* A loop away from the root: e holds d, and the root lost it. */
static void plant_a_loop(const struct planted *p)
{
	struct ns_inode i = p->hd.h_i;
	uint64_t d = p->d, e = p->e;
	uint8_t k[NS_KEY_DIRENT];
	struct kv_slice key;

	key = ns_key_dirent(k, 1, hash_of("d"));
	ck_assert_int_eq(W(kv_del(wt, key)), 0);
	expect("no entry points at it");
	put_entry(e, hash_of("d"), d, NS_DIR, "d");
	i.i_parent = e;
	finds(&i, &p->hd, "not below the root");
	ck_assert_int_eq(W(kv_del(wt, ns_key_dirent(k, e, hash_of("d")))), 0);
	put_entry(1, hash_of("d"), d, NS_DIR, "d");
	ck_assert_uint_eq(violation_count(), 0);
}

START_TEST(checker_finds_planted_damage)
{
	struct planted p;

	p.d = mk(1, "d", NS_DIR, 0755, &root);
	p.e = mk(p.d, "e", NS_DIR, 0755, &root);
	p.f = mk(p.d, "f", NS_REG, 0644, &root);
	ck_assert_int_eq(ns_inode_copy(ns, snapshot(), p.d, &p.hd), 0);
	ck_assert_int_eq(ns_inode_copy(ns, rt, p.e, &p.he), 0);
	ck_assert_int_eq(ns_inode_copy(ns, rt, p.f, &p.hf), 0);
	ck_assert_uint_eq(violation_count(), 0);
	plant_in_inodes(&p);
	plant_in_acls(&p);
	plant_in_entries(&p);
	plant_what_belongs_to_inodes(&p);
	plant_a_loop(&p);
}
END_TEST

START_TEST(damaged_records_are_errors_not_answers)
{
	uint64_t f = mk(1, "f", NS_REG, 0644, &root);
	uint8_t k[NS_KEY_DIRENT], type;
	uint64_t ino;
	bool eof;

	damaged = true;
	log_set_level(LOG_L_ERROR);
	ck_assert_int_eq(W(kv_del(wt, ns_key_ino(k, NS_K_INODE, f))), 0);
	ck_assert_int_eq(rm(1, "f", 0, &root), -EIO);
	ck_assert_int_eq(mv(1, "f", 1, "g", &root), -EIO);
	ck_assert_int_eq(raw_put(ns_key_ino(k, NS_K_INODE, f), "?", 1), 0);
	ck_assert_int_eq(ns_get(ns, snapshot(), f, &out), -EIO);
	ck_assert_int_eq(raw_put(ns_key_dirent(k, 1, hash_of("f")), "?", 1), 0);
	ck_assert_int_eq(ns_lookup(ns, snapshot(), 1, "f", 1, &ino, &type), -EIO);
	ck_assert_int_eq(ns_readdir(ns, rt, 1, 0, fails, NULL, &eof), -EIO);
	ck_assert(!eof);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("ns records");
	TCase *c = tcase_create("records");

	tcase_add_checked_fixture(c, setup, teardown);
	tcase_set_timeout(c, 60);
	tcase_add_test(c, records_refuse_damage);
	tcase_add_test(c, checker_finds_planted_damage);
	tcase_add_test(c, damaged_records_are_errors_not_answers);
	suite_add_tcase(s, c);
	return s;
}

int main(void)
{
	return unit_run(suite());
}
