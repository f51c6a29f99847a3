/* SPDX-License-Identifier: Apache-2.0 */
/* ns_sum_test.c - the sums of directories and users: what they cost, how they are pushed, old
 * stores, and what the checker says of wrong ones. ns_model_test.c compares them with a model. */
#include "mds/namespace/ns_sum_rec.h"
#include "tests/unit/ns_store.h"

static struct ns_sum sum_at(uint64_t ino)
{
	struct ns_sum s;
	struct ns_du *du;

	ck_assert_int_eq(ns_du_begin(&du, ns, snapshot()), 0);
	ck_assert_int_eq(ns_du_get(du, ino, &s), 0);
	ns_du_end(du);
	return s;
}

static void expect_sum(uint64_t ino, uint64_t files, uint64_t dirs, uint64_t bytes)
{
	struct ns_sum s = sum_at(ino);

	ck_assert_uint_eq(s.sum_files, files);
	ck_assert_uint_eq(s.sum_dirs, dirs);
	ck_assert_uint_eq(s.sum_bytes, bytes);
	ck_assert_uint_eq(s.sum_stored, bytes);
}

static uint32_t asked_uid;
static struct ns_sum user_has, user_trash;

static int on_user(void *arg, uint32_t uid, const struct ns_sum *s, const struct ns_sum *trash)
{
	(void)arg;
	if (uid == asked_uid) {
		ck_assert(ns_sum_zero(&user_has) && ns_sum_zero(&user_trash));
		user_has = *s;
		user_trash = *trash;
	}
	return 0;
}

static struct ns_sum user_sum(uint32_t uid)
{
	struct ns_du *du;

	asked_uid = uid;
	user_has = user_trash = (struct ns_sum){0};
	ck_assert_int_eq(ns_du_begin(&du, ns, snapshot()), 0);
	ck_assert_int_eq(ns_du_users(du, on_user, NULL), 0);
	ns_du_end(du);
	return user_has;
}

static int count_row(void *arg, uint64_t ino, struct kv_slice val)
{
	(void)ino, (void)val;
	++*(unsigned *)arg;
	return 0;
}

static unsigned unpushed(void)
{
	unsigned n = 0;

	ck_assert_int_eq(ns_unpushed_rows(snapshot(), 0, count_row, &n), 0);
	return n;
}

static void push_all(void)
{
	uint64_t from = 0;

	for (unsigned n = 0; n < 100 && unpushed(); n++)
		ck_assert_int_eq(W(ns_sum_fold(ns, wt, &from)), 0);
	ck_assert_uint_eq(unpushed(), 0);
}

static void size(uint64_t ino, uint64_t bytes)
{
	ck_assert_int_eq(set(ino, (struct ns_setattr){.s_mask = NS_S_SIZE, .s_size = bytes}, NULL),
			 0);
}

/* In one chain of directories: d[0] is in the root. */
static void chain(uint64_t d[], unsigned n)
{
	for (unsigned k = 0; k < n; k++)
		d[k] = mk(k ? d[k - 1] : NS_ROOT_INO, "c", NS_DIR, 0777, &root);
}

START_TEST(a_mutation_writes_no_ancestor)
{
	uint64_t d[20], f;
	size_t before;

	chain(d, 20);
	push_all();
	f = mk(d[19], "f", NS_REG, 0644, &root);
	before = written;
	mk(d[19], "g", NS_REG, 0644, &root);
	ck_assert_uint_eq(written + 1, before); /* the row of what waits is there */
	ck_assert_uint_eq(written, 3);		/* inode, entry, directory */
	size(f, 1000);
	ck_assert_uint_eq(written, 2); /* inode, directory */
	expect_sum(NS_ROOT_INO, 2, 20, 1000);
	expect_sum(d[10], 2, 9, 1000);
	ck_assert_uint_eq(unpushed(), 1);
	push_all();
	expect_sum(NS_ROOT_INO, 2, 20, 1000);
	expect_sum(d[10], 2, 9, 1000);
}
END_TEST

START_TEST(a_rename_of_a_tree_writes_no_more_for_a_large_one)
{
	uint64_t small, large, to, d[10];
	size_t before;

	small = mk(NS_ROOT_INO, "small", NS_DIR, 0777, &root);
	large = mk(NS_ROOT_INO, "large", NS_DIR, 0777, &root);
	to = mk(NS_ROOT_INO, "to", NS_DIR, 0777, &root);
	d[0] = large;
	for (unsigned k = 1; k < 10; k++) {
		char name[8];

		d[k] = mk(d[k - 1], "d", NS_DIR, 0777, &root);
		for (unsigned n = 0; n < 20; n++) {
			snprintf(name, sizeof(name), "f%u", n);
			size(mk(d[k], name, NS_REG, 0644, &ann), 10);
		}
	}
	push_all();
	ck_assert_int_eq(mv(NS_ROOT_INO, "small", to, "small", &root), 0);
	before = written;
	push_all();
	/* With some of it unpushed, what was counted moves, and the rest goes where it is now. */
	size(mk(d[9], "late", NS_REG, 0644, &root), 7);
	ck_assert_int_eq(mv(NS_ROOT_INO, "large", to, "large", &root), 0);
	ck_assert_uint_eq(written, before);
	expect_sum(to, 181, 11, 1807);
	expect_sum(NS_ROOT_INO, 181, 12, 1807);
	push_all();
	expect_sum(to, 181, 11, 1807);
	expect_sum(small, 0, 0, 0);
	expect_sum(large, 181, 9, 1807);
	ck_assert_int_eq(mv(to, "large", NS_ROOT_INO, "l", &root), 0);
	expect_sum(to, 0, 1, 0);
	expect_sum(NS_ROOT_INO, 181, 12, 1807);
}
END_TEST

START_TEST(a_file_counts_at_one_name)
{
	uint64_t a = mk(NS_ROOT_INO, "a", NS_DIR, 0777, &root),
		 b = mk(NS_ROOT_INO, "b", NS_DIR, 0777, &root), f;

	f = mk(a, "f", NS_REG, 0644, &ann);
	size(f, 50);
	ck_assert_int_eq(ln(f, a, "f2", &root), 0);
	ck_assert_int_eq(ln(f, b, "f3", &root), 0);
	expect_sum(a, 1, 0, 50);
	expect_sum(b, 0, 0, 0);
	ck_assert_int_eq(rm(a, "f", 0, &root), 0); /* there is another one here */
	expect_sum(a, 1, 0, 50);
	ck_assert_uint_eq(violation_count(), 0);
	/* The target is replaced, and counts where the source is: one record holds both changes. */
	mk(b, "g", NS_REG, 0644, &root);
	ck_assert_int_eq(mv(b, "g", a, "f2", &root), 0);
	expect_sum(a, 1, 0, 0);
	expect_sum(b, 1, 0, 50);
	ck_assert_uint_eq(get(f).i_parent, b);
	ck_assert_uint_eq(user_sum(100).sum_bytes, 50);
	open_now = true;
	ck_assert_int_eq(rm(b, "f3", 0, &root), 0); /* open, without a name */
	size(f, 60);
	expect_sum(NS_ROOT_INO, 1, 2, 0);
	ck_assert(user_sum(100).sum_bytes == 0);
	open_now = false;
	ck_assert_int_eq(W(ns_orphan_free(ns, wt, f, &fo)), 0);
}
END_TEST

START_TEST(more_users_than_wait_in_a_directory)
{
	uint64_t d = mk(NS_ROOT_INO, "d", NS_DIR, 0777, &root), f[10];
	char name[8];

	for (uint32_t n = 0; n < 10; n++) {
		struct ns_cred cr = {.cr_uid = 1000 + n};

		snprintf(name, sizeof(name), "f%u", n);
		f[n] = mk(d, name, NS_REG, 0644, &cr);
		size(f[n], n + 1);
	}
	for (unsigned pushed = 0; pushed < 2; pushed++) {
		for (uint32_t n = 0; n < 10; n++)
			ck_assert_uint_eq(user_sum(1000 + n).sum_bytes, n + 1);
		push_all();
	}
	ck_assert_int_eq(set(f[9], (struct ns_setattr){.s_mask = NS_S_UID, .s_uid = 1000}, NULL),
			 0);
	ck_assert_uint_eq(user_sum(1000).sum_bytes, 11);
	ck_assert_uint_eq(user_sum(1000).sum_files, 2);
	ck_assert(user_sum(1009).sum_files == 0);
	/* What waits in a directory that goes is not lost. */
	for (unsigned n = 0; n < 10; n++) {
		snprintf(name, sizeof(name), "f%u", n);
		ck_assert_int_eq(rm(d, name, 0, &root), 0);
	}
	ck_assert_int_eq(rm(NS_ROOT_INO, "d", 0, &root), 0);
	ck_assert(user_sum(1000).sum_files == 0);
	expect_sum(NS_ROOT_INO, 0, 0, 0);
}
END_TEST

static const struct ns_free_ops keep = {
	.f_keep_open = keep_open, .f_free_map = free_map, .f_keep_s = 1000};

/* To the trash. */
static void throw(uint64_t in, const char *name)
{
	ck_assert_int_eq(
		W(ns_remove(ns, wt, in, name, strlen(name), 0, &root, now(), &keep, &gone, &ci)),
		0);
}

static void expect_user(uint32_t uid, uint64_t files, uint64_t bytes, uint64_t trash_files,
			uint64_t trash_bytes)
{
	struct ns_sum s = user_sum(uid);

	ck_assert_uint_eq(s.sum_files, files);
	ck_assert_uint_eq(s.sum_bytes, bytes);
	ck_assert_uint_eq(user_trash.sum_files, trash_files);
	ck_assert_uint_eq(user_trash.sum_bytes, trash_bytes);
	ck_assert_uint_eq(user_trash.sum_stored, trash_bytes);
}

static void restore(uint64_t ino, uint64_t to, const char *name)
{
	struct ns_trash_back back;

	ck_assert_int_eq(W(ns_trash_restore(ns, wt, ino, to, name, strlen(name), now(), &back)), 0);
}

START_TEST(the_trash_counts_for_its_owner)
{
	uint64_t d = mk(NS_ROOT_INO, "d", NS_DIR, 0777, &root), f = mk(d, "f", NS_REG, 0644, &ann),
		 l = mk(d, "l", NS_LNK, 0777, &ann);

	size(f, 50);
	ck_assert_int_eq(ln(f, NS_ROOT_INO, "f2", &root), 0);
	throw(d, "f"); /* it has another name */
	expect_user(100, 2, 50, 0, 0);
	push_all();
	throw(NS_ROOT_INO, "f2");
	throw(d, "l");
	expect_sum(NS_ROOT_INO, 0, 1, 0);
	expect_user(100, 0, 0, 2, 50);
	push_all();
	/* A directory takes nothing with it that waits in it for its users. */
	size(mk(d, "g", NS_REG, 0644, &bob), 7);
	throw(d, "g");
	throw(NS_ROOT_INO, "d");
	expect_sum(NS_ROOT_INO, 0, 0, 0);
	expect_user(200, 0, 0, 1, 7);
	user_sum(0);
	ck_assert_uint_eq(user_trash.sum_dirs, 1);
	ck_assert_uint_eq(violation_count(), 0);
	/* What is written or given away there. */
	size(f, 60);
	expect_user(100, 0, 0, 2, 60);
	ck_assert_int_eq(set(f, (struct ns_setattr){.s_mask = NS_S_UID, .s_uid = 300}, NULL), 0);
	expect_user(100, 0, 0, 1, 0);
	expect_user(300, 0, 0, 1, 60);
	ck_assert_uint_eq(violation_count(), 0);
	/* Out again: with the directory that it was in, and under another name. */
	restore(l, 0, "");
	expect_sum(NS_ROOT_INO, 1, 1, 0);
	restore(f, d, "h");
	expect_sum(d, 2, 0, 60);
	expect_user(100, 1, 0, 0, 0);
	expect_user(300, 1, 60, 0, 0);
	ck_assert_uint_eq(get(f).i_parent, d);
	push_all();
	expect_sum(NS_ROOT_INO, 2, 1, 60);
	/* Replaced by a rename, while it is open; then dropped. */
	mk(NS_ROOT_INO, "n", NS_REG, 0644, &root);
	open_now = true;
	ck_assert_int_eq(W(ns_rename(ns, wt, NS_ROOT_INO, "n", 1, d, "h", 1, &root, now(), &keep,
				     &gone, &ci, &ci2)),
			 0);
	size(f, 70);
	expect_sum(NS_ROOT_INO, 2, 1, 0);
	expect_user(300, 0, 0, 1, 70);
	ck_assert_int_eq(W(ns_trash_drop(wt, f)), 0);
	expect_user(300, 0, 0, 0, 0);
	size(f, 80); /* an orphan, which counts nowhere */
	expect_user(300, 0, 0, 0, 0);
	open_now = false;
	ck_assert_int_eq(W(ns_orphan_free(ns, wt, f, &fo)), 0);
	expect_sum(NS_ROOT_INO, 2, 1, 0);
}
END_TEST

/* As a store of version 2: no sums, no rows of them, and a file whose i_parent lost its name. */
static void make_old(const uint64_t *dirs, unsigned n, uint64_t stray)
{
	struct ns_super_rec r;
	struct kv_slice val;

	for (unsigned k = 0; k < n; k++) {
		struct ns_inode_held h;

		ck_assert_int_eq(ns_inode_copy(ns, snapshot(), dirs[k], &h), 0);
		h.h_i.i_sums.s_len = 0;
		ck_assert_int_eq(W(ns_inode_put(wt, &h.h_i)), 0);
	}
	for (const char *kind = "Ulu"; *kind; kind++)
		ck_assert_int_eq(W(ns_prefix_del(wt, ns_slice(kind, 1), 1000) < 0), 0);
	ck_assert_int_eq(W(ns_trash_users_del(wt, 1000) < 0), 0);
	if (stray) {
		struct ns_inode i = get(stray);

		i.i_parent = NS_ROOT_INO;
		put_inode(i);
	}
	ck_assert_int_eq(kv_get(snapshot(), ns_slice("S", 1), &val), 0);
	memcpy(&r, val.s_data, sizeof(r));
	r.s_version = 2;
	r.s_sums = 0;
	ck_assert_int_eq(raw_put(ns_slice("S", 1), &r, sizeof(r)), 0);
	snapshot_end();
}

START_TEST(an_old_store_gets_its_sums)
{
	uint64_t d[6], f, g;

	chain(d, 5);
	f = mk(d[4], "f", NS_REG, 0644, &ann);
	size(f, 100);
	g = mk(d[2], "g", NS_REG, 0644, &bob);
	size(g, 30);
	ck_assert_int_eq(ln(g, d[0], "g2", &root), 0);
	ck_assert_int_eq(ln(g, d[0], "g3", &root), 0);
	ck_assert_int_eq(ln(g, d[3], "g4", &root), 0);
	size(mk(d[1], "t", NS_REG, 0644, &bob), 9);
	mk(d[1], "td", NS_DIR, 0755, &ann);
	throw(d[1], "t");
	throw(d[1], "td");
	d[5] = NS_ROOT_INO;
	make_old(d, 6, f);
	ck_assert_uint_eq(violation_count(), 0); /* nothing is said of sums that are not known */
	snapshot_end();
	crash_store();
	open_store();
	ck_assert_uint_eq(violation_count(), 0);
	expect_sum(NS_ROOT_INO, 2, 5, 130);
	expect_sum(d[2], 2, 2, 130);
	expect_sum(d[3], 1, 1, 100);
	ck_assert_uint_eq(get(f).i_parent, d[4]);
	expect_user(200, 1, 30, 1, 9);
	expect_user(100, 1, 100, 0, 0);
	ck_assert_uint_eq(user_trash.sum_dirs, 1);
	/* The further names are known, too. */
	ck_assert_int_eq(rm(d[2], "g", 0, &root), 0);
	ck_assert_int_eq(rm(d[0], "g2", 0, &root), 0);
	ck_assert_int_eq(rm(d[0], "g3", 0, &root), 0);
	expect_sum(d[3], 2, 1, 130);
}
END_TEST

static void expect(const char *text)
{
	ck_assert_uint_gt(violation_count(), 0);
	ck_assert_msg(strstr(violations, text), "%s is not in: %s", text, violations);
}

START_TEST(the_checker_finds_wrong_sums)
{
	uint64_t d = mk(NS_ROOT_INO, "d", NS_DIR, 0777, &root), e = mk(d, "e", NS_DIR, 0777, &root),
		 f = mk(e, "f", NS_REG, 0644, &ann);
	struct ns_sum wrong = {.sum_files = 7};
	struct ns_counted_rec row = {.cn_version = 1};
	struct ns_inode_held h;
	uint8_t k[NS_KEY_LINK];
	struct kv_slice val;
	char text[64];

	damaged = true;
	size(f, 10);
	ck_assert_int_eq(ln(f, d, "f2", &root), 0);
	ck_assert_uint_eq(violation_count(), 0);
	/* Unpushed: the row of what was counted. */
	ck_assert_int_eq(kv_get(snapshot(), ns_key_ino(k, NS_K_UNPUSHED, e), &val), 0);
	ck_assert_uint_eq(val.s_len, sizeof(row));
	row.cn_sum.sr_files = htole64(3);
	ck_assert_int_eq(raw_put(ns_key_ino(k, NS_K_UNPUSHED, e), &row, sizeof(row)), 0);
	snprintf(text, sizeof(text), "directory %lu: its sums say", (unsigned long)d);
	expect(text);
	ck_assert_int_eq(W(kv_del(wt, ns_key_ino(k, NS_K_UNPUSHED, e))), 0);
	expect("the row of what was counted is missing");
	row.cn_sum.sr_files = 0;
	ck_assert_int_eq(raw_put(ns_key_ino(k, NS_K_UNPUSHED, e), &row, sizeof(row)), 0);
	ck_assert_uint_eq(violation_count(), 0);
	push_all();
	/* A row of a directory that has nothing to push, and of what is no directory. */
	ck_assert_int_eq(raw_put(ns_key_ino(k, NS_K_UNPUSHED, e), &row, sizeof(row)), 0);
	expect("there is a row of sums to push, and it has none");
	ck_assert_int_eq(W(kv_del(wt, ns_key_ino(k, NS_K_UNPUSHED, e))), 0);
	ck_assert_int_eq(raw_put(ns_key_ino(k, NS_K_UNPUSHED, f), &row, sizeof(row)), 0);
	expect("is not a directory");
	ck_assert_int_eq(W(kv_del(wt, ns_key_ino(k, NS_K_UNPUSHED, f))), 0);
	/* The sum itself. */
	ck_assert_int_eq(ns_inode_copy(ns, snapshot(), e, &h), 0);
	h.h_sums[4] ^= 1;
	ck_assert_int_eq(W(ns_inode_put(wt, &h.h_i)), 0);
	snprintf(text, sizeof(text), "directory %lu: its sums say 0 files", (unsigned long)e);
	expect(text);
	h.h_sums[4] ^= 1;
	ck_assert_int_eq(W(ns_inode_put(wt, &h.h_i)), 0);
	ck_assert_uint_eq(violation_count(), 0);
	/* Users. */
	ck_assert_int_eq(W(ns_user_put(wt, 100, &wrong)), 0);
	expect("user 100: the sums say 7 files");
	wrong = (struct ns_sum){.sum_files = 1, .sum_bytes = 10, .sum_stored = 10};
	ck_assert_int_eq(W(ns_user_put(wt, 100, &wrong)), 0);
	ck_assert_uint_eq(violation_count(), 0);
	ck_assert_int_eq(W(ns_user_put(wt, 101, &wrong)), 0);
	expect("user 101: the sums say 1 files");
	wrong = (struct ns_sum){0};
	ck_assert_int_eq(W(ns_user_put(wt, 101, &wrong)), 0);
	/* Users in the trash. */
	mk(d, "t", NS_REG, 0644, &ann);
	throw(d, "t");
	ck_assert_uint_eq(violation_count(), 0);
	wrong = (struct ns_sum){.sum_files = 2};
	ck_assert_int_eq(W(ns_trash_user_put(wt, 100, &wrong)), 0);
	expect("user 100: the sums of the trash say 2 files");
	ck_assert_int_eq(W(ns_trash_users_del(wt, 10) != 1), 0);
	expect("user 100: the sums of the trash say 0 files");
	wrong = (struct ns_sum){.sum_files = 1};
	ck_assert_int_eq(W(ns_trash_user_put(wt, 100, &wrong)), 0);
	ck_assert_uint_eq(violation_count(), 0);
	ck_assert_int_eq(W(ns_trash_user_put(wt, 102, &wrong)), 0);
	expect("user 102: the sums of the trash say 1 files");
	wrong = (struct ns_sum){0};
	ck_assert_int_eq(W(ns_trash_user_put(wt, 102, &wrong)), 0);
	/* Further names. */
	ck_assert_int_eq(W(ns_link_put(wt, f, d, 2)), 0);
	expect("a row says 2 further names");
	ck_assert_int_eq(W(ns_link_put(wt, f, d, 0)), 0);
	expect("and no row says so");
	ck_assert_int_eq(W(ns_link_put(wt, f, d, 1)), 0);
	ck_assert_int_eq(W(ns_link_put(wt, f, e, 1)), 0);
	expect("and has none");
	ck_assert_int_eq(W(ns_link_put(wt, f, e, 0)), 0);
	ck_assert_uint_eq(violation_count(), 0);
}
END_TEST

static bool all_insane;

static int on_insane(void *arg, uint32_t uid, const struct ns_sum *s, const struct ns_sum *trash)
{
	(void)arg, (void)uid, (void)trash;
	all_insane &= !ns_sum_sane(s);
	return 0;
}

static bool users_unknown(void)
{
	struct ns_du *du;

	all_insane = true;
	ck_assert_int_eq(ns_du_begin(&du, ns, snapshot()), 0);
	ck_assert_int_eq(ns_du_users(du, on_insane, NULL), 0);
	ns_du_end(du);
	snapshot_end();
	return all_insane;
}

static bool sum_known(uint64_t ino)
{
	struct ns_sum s = sum_at(ino);

	return ns_sum_sane(&s);
}

/* Which directories are above one whose record is damaged is not known. */
START_TEST(a_damaged_row_makes_unknown_what_it_counts)
{
	uint64_t d = mk(NS_ROOT_INO, "d", NS_DIR, 0777, &root), e = mk(d, "e", NS_DIR, 0777, &root),
		 other = mk(NS_ROOT_INO, "other", NS_DIR, 0777, &root),
		 f = mk(other, "f", NS_REG, 0644, &ann);
	uint64_t before = ns_sum_damage();
	uint8_t k[NS_KEY_INODE];

	damaged = true;
	size(mk(e, "g", NS_REG, 0644, &bob), 10);
	/* A row of what is no directory counts nothing. */
	ck_assert_int_eq(raw_put(ns_key_ino(k, NS_K_UNPUSHED, f), "", 1), 0);
	expect_sum(NS_ROOT_INO, 2, 3, 10);
	ck_assert_uint_gt(ns_sum_damage(), before);
	ck_assert_int_eq(raw_put(ns_key_ino(k, NS_K_UNPUSHED, e), "", 1), 0);
	ck_assert(!sum_known(NS_ROOT_INO) && !sum_known(d));
	expect_sum(e, 1, 0, 10);
	expect_sum(other, 1, 0, 0);
	expect_user(200, 1, 10, 0, 0);
	/* Nor does it stop a rename, or a removal. */
	ck_assert_int_eq(W(ns_rename(ns, wt, d, "e", 1, other, "e", 1, &root, now(), &keep, &gone,
				     &ci, &ci2)),
			 0);
	ck_assert(!sum_known(other) && !sum_known(e));
	ck_assert_int_eq(raw_put(ns_key_ino(k, NS_K_INODE, e), "", 1), 0);
	ck_assert(!sum_known(d) && !sum_known(NS_ROOT_INO));
	ck_assert(users_unknown());
}
END_TEST

/* What a directory counted of one that leaves it while that row is damaged stays unknown, also
 * where no sum looks wrong, and until the sums are computed again. */
START_TEST(a_directory_that_leaves_with_a_damaged_row_leaves_no_wrong_sum)
{
	uint64_t d = mk(NS_ROOT_INO, "d", NS_DIR, 0777, &root), e = mk(d, "e", NS_DIR, 0777, &root),
		 other = mk(NS_ROOT_INO, "other", NS_DIR, 0777, &root);
	bool removed = _i;
	uint64_t from = 0;
	uint8_t k[NS_KEY_INODE];

	damaged = true;
	size(mk(d, "f", NS_REG, 0644, &ann), 1000);
	for (unsigned i = 0; i < 5; i++)
		mk(e, (char[]){'a' + (char)i, 0}, NS_REG, 0644, &bob);
	push_all();
	expect_sum(d, 6, 1, 1000);
	/* Five are counted; one is left, or none. */
	for (unsigned i = 0; i < (removed ? 5u : 4u); i++)
		throw(e, (char[]){'a' + (char)i, 0});
	ck_assert_int_eq(raw_put(ns_key_ino(k, NS_K_UNPUSHED, e), "", 1), 0);
	ck_assert(!sum_known(d) && !sum_known(NS_ROOT_INO));
	if (removed)
		throw(d, "e");
	else
		ck_assert_int_eq(W(ns_rename(ns, wt, d, "e", 1, other, "e", 1, &root, now(), &keep,
					     &gone, &ci, &ci2)),
				 0);
	for (unsigned n = 0; n < 10; n++)
		ck_assert_int_eq(W(ns_sum_fold(ns, wt, &from)), 0);
	ck_assert(!sum_known(d) && !sum_known(NS_ROOT_INO) && !sum_known(other));
	snapshot_end();
	close_store();
	open_store();
	ck_assert_uint_gt(ns_sum_damage(), 0);
	ck_assert(!sum_known(d) && !sum_known(NS_ROOT_INO));
	ck_assert_uint_gt(violation_count(), 0);
	snapshot_end();
	close_store();
	open_bare();
	ck_assert_int_eq(ns_sum_rebuild_store(kv, NULL), 0);
	kv_close(kv);
	open_store();
	expect_sum(d, 1, 0, 1000);
	expect_sum(NS_ROOT_INO, removed ? 1 : 2, removed ? 2 : 3, 1000);
	ck_assert_uint_eq(violation_count(), 0);
}
END_TEST

/* What is below a directory whose record is damaged is counted nowhere, and the sums say so. */
START_TEST(a_repair_beside_a_damaged_record_leaves_sums_unknown)
{
	uint64_t d = mk(NS_ROOT_INO, "d", NS_DIR, 0777, &root), e = mk(d, "e", NS_DIR, 0777, &root);
	char record[1024];
	struct kv_slice val;
	uint8_t k[NS_KEY_INODE];
	size_t len;

	size(mk(e, "f", NS_REG, 0644, &bob), 1000);
	ck_assert_int_eq(kv_get(snapshot(), ns_key_ino(k, NS_K_INODE, e), &val), 0);
	len = val.s_len;
	ck_assert_uint_le(len, sizeof(record));
	memcpy(record, val.s_data, len);
	snapshot_end();
	ck_assert_int_eq(raw_put(ns_key_ino(k, NS_K_INODE, e), "", 1), 0);
	for (int mended = 0; mended < 2; mended++) {
		if (mended)
			ck_assert_int_eq(raw_put(ns_key_ino(k, NS_K_INODE, e), record, len), 0);
		snapshot_end();
		close_store();
		open_bare();
		ck_assert_int_eq(ns_sum_rebuild_store(kv, NULL), 0);
		kv_close(kv);
		open_store();
		ck_assert_int_eq(sum_known(d), mended);
		ck_assert_int_eq(sum_known(NS_ROOT_INO), mended);
	}
	expect_sum(d, 1, 1, 1000);
	ck_assert_uint_eq(violation_count(), 0);
}
END_TEST

/* A store with more directories than one mutation writes. Returns one of them. */
static uint64_t wide_store(void)
{
	uint64_t d = 0;
	char name[16];

	for (unsigned k = 0; k < 700; k++) {
		snprintf(name, sizeof(name), "d%u", k);
		d = mk(NS_ROOT_INO, name, NS_DIR, 0777, &root);
	}
	size(mk(d, "f", NS_REG, 0644, &bob), 50);
	return d;
}

START_TEST(a_repair_that_is_killed_is_made_up_for)
{
	uint64_t d = wide_store();
	struct ns_sum wrong = {.sum_files = 7};
	unsigned stop = 0;
	int rc;

	/* The repair ends with its commit number stop, until it needs no more than that. */
	do {
		unsigned at = ++stop;

		ck_assert_int_eq(W(ns_user_put(wt, 200, &wrong)), 0);
		snapshot_end();
		crash_store();
		open_bare();
		commits_left = at;
		rc = ns_sum_rebuild_store(kv, NULL);
		commits_left = 0;
		kv_close(kv);
		open_store();
		if (at > 1) {
			expect_user(200, 1, 50, 0, 0);
			expect_sum(NS_ROOT_INO, 1, 700, 50);
			expect_sum(d, 1, 0, 50);
			ck_assert_uint_eq(violation_count(), 0);
		}
	} while (rc);
	ck_assert_uint_gt(stop, 4);
}
END_TEST

START_TEST(a_repair_begins_no_boot)
{
	uint64_t boot = ns_super(ns)->su_boot, inodes;
	struct ns_super su;
	struct kv_slice val;

	mk(NS_ROOT_INO, "d", NS_DIR, 0755, &root);
	snapshot_end();
	close_store();
	open_bare();
	ck_assert_int_eq(ns_sum_rebuild_store(kv, NULL), 0);
	ck_assert_int_eq(kv_get(snapshot(), ns_slice("S", 1), &val), 0);
	ck_assert_int_eq(ns_super_decode(val, &su, &inodes), 0);
	ck_assert_uint_eq(su.su_boot, boot);
	ck_assert_uint_eq(inodes, 2);
	snapshot_end();
	kv_close(kv);
	open_store();
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("ns sums");
	TCase *c = tcase_create("sums");

	tcase_add_checked_fixture(c, setup, teardown);
	tcase_set_timeout(c, 60);
	tcase_add_test(c, a_mutation_writes_no_ancestor);
	tcase_add_test(c, a_rename_of_a_tree_writes_no_more_for_a_large_one);
	tcase_add_test(c, a_file_counts_at_one_name);
	tcase_add_test(c, more_users_than_wait_in_a_directory);
	tcase_add_test(c, the_trash_counts_for_its_owner);
	tcase_add_test(c, an_old_store_gets_its_sums);
	tcase_add_test(c, the_checker_finds_wrong_sums);
	tcase_add_test(c, a_repair_that_is_killed_is_made_up_for);
	tcase_add_test(c, a_repair_beside_a_damaged_record_leaves_sums_unknown);
	tcase_add_test(c, a_repair_begins_no_boot);
	tcase_add_test(c, a_damaged_row_makes_unknown_what_it_counts);
	tcase_add_loop_test(c, a_directory_that_leaves_with_a_damaged_row_leaves_no_wrong_sum, 0,
			    2);
	suite_add_tcase(s, c);
	return s;
}

int main(void)
{
	return unit_run(suite());
}
