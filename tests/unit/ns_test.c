/* SPDX-License-Identifier: Apache-2.0 */
/* ns_test.c - the name space keeps ns.h's contract: stores, names, rows. */
#include "tests/unit/ns_store.h"

/* Opening, numbers, counts */

START_TEST(names_are_checked)
{
	char longest[NS_NAME_MAX + 1];

	memset(longest, 'n', sizeof(longest));
	ck_assert_int_eq(ns_name_check(longest, NS_NAME_MAX), 0);
	ck_assert_int_eq(ns_name_check(longest, NS_NAME_MAX + 1), -ENAMETOOLONG);
	ck_assert_int_eq(ns_name_check("", 0), -EINVAL);
	ck_assert_int_eq(ns_name_check(".", 1), -EINVAL);
	ck_assert_int_eq(ns_name_check("..", 2), -EINVAL);
	ck_assert_int_eq(ns_name_check("...", 3), 0);
	ck_assert_int_eq(ns_name_check(".a", 2), 0);
	ck_assert_int_eq(ns_name_check("a/b", 3), -EINVAL);
	ck_assert_int_eq(ns_name_check("a\0b", 3), -EINVAL);
	ck_assert_int_eq(ns_name_check("\xff", 1), 0);
}
END_TEST

START_TEST(format_makes_root_and_boot_rises)
{
	struct ns_super first = *ns_super(ns);
	struct ns_inode i = get(NS_ROOT_INO);

	ck_assert_uint_eq(first.su_boot, 1);
	ck_assert_uint_eq(i.i_type, NS_DIR);
	ck_assert_uint_eq(i.i_mode, 0755);
	ck_assert_uint_eq(i.i_uid, 0);
	ck_assert_uint_eq(i.i_nlink, 2);
	ck_assert_uint_eq(i.i_change, 1);
	ck_assert_uint_eq(i.i_parent, NS_ROOT_INO);
	snapshot_end();
	crash_store();
	open_store();
	ck_assert_uint_eq(ns_super(ns)->su_boot, 2);
	ck_assert_int_eq(memcmp(first.su_uuid, ns_super(ns)->su_uuid, 16), 0);
	ck_assert_int_eq(memcmp(first.su_fh_key, ns_super(ns)->su_fh_key, 16), 0);
	ck_assert_int_eq(memcmp(first.su_dir_key, ns_super(ns)->su_dir_key, 16), 0);
	ck_assert_ptr_eq(ns_kv(ns), kv);
}
END_TEST

START_TEST(boots_are_told_apart_by_number_and_identity)
{
	struct ns_super one = *ns_super(ns), two;

	ck_assert_uint_ne(one.su_boot_id, 0);
	snapshot_end();
	crash_store();
	open_store();
	two = *ns_super(ns);
	ck_assert_uint_ne(two.su_boot_id, one.su_boot_id);
	ck_assert_int_eq(W(ns_boot_check(ns, wt, one.su_boot, one.su_boot_id)), 0);
	ck_assert_int_eq(W(ns_boot_check(ns, wt, two.su_boot, two.su_boot_id)), 0);
	ck_assert_int_eq(W(ns_boot_check(ns, wt, 0, 0)), 0);
	ck_assert_int_eq(W(ns_boot_check(ns, wt, two.su_boot, 0)), 0);
	ck_assert_int_eq(W(ns_boot_check(ns, wt, one.su_boot, two.su_boot_id)), -ESTALE);
	ck_assert_int_eq(W(ns_boot_check(ns, wt, two.su_boot, one.su_boot_id)), -ESTALE);
	ck_assert_int_eq(W(ns_boot_check(ns, wt, two.su_boot + 1, 0)), -EOVERFLOW);
	ck_assert_int_eq(W(ns_order_check(wt, two.su_order_next - 1)), 0);
	ck_assert_int_eq(W(ns_order_check(wt, two.su_order_next)), -EOVERFLOW);
}
END_TEST

/* The same copy is put back twice: what the first line of time gave, the second does not give. */
START_TEST(a_store_that_is_put_back_gives_no_number_of_another_line)
{
	struct ns_super was = *ns_super(ns), line;
	uint64_t first = was.su_boot;

	for (unsigned n = 1; n <= 2; n++) {
		ck_assert_int_eq(W(ns_restore(ns, wt, n == 1 ? 11 : (1u << 16) + 5)), 0);
		line = *ns_super(ns);
		ck_assert_uint_eq(line.su_boot, (uint64_t)n << 16);
		ck_assert_uint_eq(line.su_incarnation, n + 1);
		ck_assert_uint_eq(line.su_ino_next, (uint64_t)n << 32);
		ck_assert_uint_eq(line.su_order_next, (uint64_t)n << 40);
		ck_assert_uint_eq(line.su_client_next, n << 24);
		ck_assert_uint_eq(ns_timeline_epoch(ns), n << 23);
		ck_assert_uint_eq(ns_timeline_ino(ns), (uint64_t)n << 32);
		/* What was seen of a line that was left says nothing. */
		ck_assert_int_eq(W(ns_boot_check(ns, wt, first, was.su_boot_id)), 0);
		ck_assert_int_eq(W(ns_boot_check(ns, wt, first, ~was.su_boot_id)), 0);
	}
	snapshot_end();
	crash_store();
	open_store();
	ck_assert_uint_eq(ns_super(ns)->su_boot, (2u << 16) + 1);
	ck_assert_int_eq(W(ns_restore(ns, wt, UINT64_C(255) << 16)), -EMFILE);
}
END_TEST

START_TEST(inodes_without_a_super_record_are_not_formatted_over)
{
	struct ns *other;

	damaged = true;
	ck_assert_int_eq(W(kv_del(wt, ns_slice("S", 1))), 0);
	ck_assert_int_eq(ns_open(&other, kv, err, sizeof(err)), -EIO);
	ck_assert_int_eq(raw_put(ns_slice("S", 1), "x", 1), 0);
	ck_assert_int_eq(ns_open(&other, kv, err, sizeof(err)), -EPROTO);
}
END_TEST

START_TEST(inode_numbers_are_never_reused)
{
	uint64_t a = mk(1, "a", NS_REG, 0644, &root), b, order, later;
	uint32_t n;

	ck_assert_int_eq(rm(1, "a", 0, &root), 0);
	b = mk(1, "b", NS_REG, 0644, &root);
	ck_assert_uint_gt(b, a);
	ck_assert_int_eq(W(ns_next_order(ns, wt, &order)), 0);
	/* The commit fails: numbers may be skipped, the limit in the store must still be above
	 * those given later. */
	commit_error = -EIO;
	for (unsigned k = 0; k < NS_RANGE / 8192; k++) {
		w_begin();
		ns->n_ino_next += 8192;
		ns->n_order_next += 8192;
		ck_assert_int_eq(ns_ino_reserve(ns, wt, ns_ino_next(ns)), 0);
		ck_assert_int_eq(ns_next_order(ns, wt, &later), 0);
		w_end(0);
	}
	ck_assert_uint_gt(written, 0);
	commit_error = 0;
	a = mk(1, "c", NS_REG, 0644, &root);
	ck_assert_uint_gt(a, b + NS_RANGE);
	ck_assert_int_eq(W(ns_next_order(ns, wt, &later)), 0);
	ck_assert_uint_gt(later, order + NS_RANGE);
	order = later;
	snapshot_end();
	crash_store();
	open_store();
	ck_assert_uint_gt(ns_super(ns)->su_ino_next, a);
	b = mk(1, "d", NS_REG, 0644, &root);
	ck_assert_uint_gt(b, a);
	ck_assert_int_eq(W(ns_next_order(ns, wt, &later)), 0);
	ck_assert_uint_gt(later, order);
	snapshot_end();
	close_store();
	open_store();
	ck_assert_uint_eq(mk(1, "e", NS_REG, 0644, &root),
			  b + 1); /* a clean stop gives the range back */
	ck_assert_int_eq(W(ns_next_client(ns, wt, &n)), 0);
	ck_assert_uint_eq(n, 1);
	ck_assert_int_eq(W(ns_next_client(ns, wt, &n)), 0);
	ck_assert_uint_eq(n, 2);
	ck_assert_int_eq(W(ns_next_ds(ns, wt, &n)), 0);
	ck_assert_uint_eq(n, 1);
}
END_TEST

static uint64_t inodes(void)
{
	struct ns_counts c;

	ck_assert_int_eq(ns_counts(ns, snapshot(), &c), 0);
	return c.nct_inodes;
}

START_TEST(count_is_exact_over_a_clean_stop)
{
	ck_assert_uint_eq(inodes(), 1);
	mk(1, "a", NS_REG, 0644, &root);
	mk(1, "b", NS_DIR, 0755, &root);
	mk(1, "c", NS_LNK, 0755, &root);
	ck_assert_uint_eq(inodes(), 4);
	ck_assert_int_eq(rm(1, "b", 0, &root), 0);
	ck_assert_uint_eq(inodes(), 3);
	snapshot_end();
	close_store();
	open_store();
	ck_assert_uint_eq(inodes(), 3);
}
END_TEST

/* Create, lookup, readdir */

START_TEST(create_writes_inode_entry_and_parent)
{
	struct ns_inode before = get(1), after, i;
	uint64_t ino = mk(1, "f", NS_REG, 0640, &root);

	i = get(ino);
	after = get(1);
	ck_assert_uint_eq(i.i_type, NS_REG);
	ck_assert_uint_eq(i.i_mode, 0640);
	ck_assert_uint_eq(i.i_nlink, 1);
	ck_assert_uint_eq(i.i_change, 1);
	ck_assert_uint_eq(i.i_parent, 1);
	ck_assert_uint_eq(i.i_incarnation, ns_super(ns)->su_incarnation);
	ck_assert_int_eq(i.i_btime.t_sec, i.i_mtime.t_sec);
	ck_assert_uint_eq(look(1, "f"), ino);
	ck_assert_uint_eq(ci.c_before, before.i_change);
	ck_assert_uint_eq(ci.c_after, before.i_change + 1);
	ck_assert_uint_eq(after.i_change, before.i_change + 1);
	ck_assert_uint_eq(after.i_entries, 1);
	ck_assert_uint_eq(after.i_size, 64);
	ck_assert_uint_eq(after.i_nlink, 2);
	ck_assert_int_eq(after.i_mtime.t_sec, i.i_btime.t_sec);
	ck_assert_int_eq(after.i_ctime.t_sec, i.i_btime.t_sec);
	mk(1, "d", NS_DIR, 0755, &root);
	ck_assert_uint_eq(get(out.i_ino).i_nlink, 2);
	ck_assert_uint_eq(get(1).i_nlink, 3);
}
END_TEST

START_TEST(create_refusals)
{
	uint64_t d = mk(1, "d", NS_DIR, 0755, &root), f = mk(1, "f", NS_REG, 0666, &root);
	struct ns_create_args a = {
		.a_dir = d,
		.a_name = "x",
		.a_len = 1,
		.a_cred = &ann,
		.a_attr = {.i_type = NS_REG, .i_mode = 0644, .i_uid = 100, .i_gid = 100}};

	ck_assert_int_eq(new (1, "f", NS_REG, 0644, &root), -EEXIST);
	ck_assert_int_eq(new (1, "d", NS_DIR, 0755, &ann),
			 -EEXIST); /* existence first, as Linux has it */
	ck_assert_int_eq(new (f, "x", NS_REG, 0644, &root), -ENOTDIR);
	ck_assert_int_eq(new (999, "x", NS_REG, 0644, &root), -ESTALE);
	ck_assert_int_eq(new (d, "x", NS_REG, 0644, &ann), -EACCES);
	ck_assert_int_eq(new (1, "..", NS_REG, 0644, &root), -EINVAL);
	ck_assert_int_eq(new (1, "x", 8, 0644, &root), -EINVAL);
	ck_assert_int_eq(chmod_(d, 0777, &root), 0);
	ck_assert_int_eq(new (d, "x", NS_REG, 0644, &ann), 0);
	a.a_name = "y";
	a.a_attr.i_uid = 200;
	ck_assert_int_eq(W(ns_create(ns, wt, &a, &out, blob, &ci)), -EPERM); /* no gifts */
	a.a_attr.i_uid = 100;
	a.a_attr.i_gid = 200;
	ck_assert_int_eq(W(ns_create(ns, wt, &a, &out, blob, &ci)), -EPERM);
	a.a_attr.i_gid = 500;
	ck_assert_int_eq(W(ns_create(ns, wt, &a, &out, blob, &ci)), 0);
	ck_assert_int_eq(chmod_(d, 0776, &root), 0);
	ck_assert_int_eq(new (d, "x", NS_REG, 0644, &ann), -EACCES); /* no search */
}
END_TEST

START_TEST(setgid_directory_gives_its_group)
{
	uint64_t d = mk(1, "d", NS_DIR, 0777, &root), f, sub;

	ck_assert_int_eq(set(d,
			     (struct ns_setattr){
				     .s_mask = NS_S_MODE | NS_S_GID, .s_mode = 02777, .s_gid = 700},
			     &root),
			 0);
	f = mk(d, "f", NS_REG, 02775, &ann);
	ck_assert_uint_eq(get(f).i_gid, 700);
	ck_assert_uint_eq(get(f).i_mode, 0775); /* ann is not in 700 */
	f = mk(d, "g", NS_REG, 02765, &ann);
	ck_assert_uint_eq(get(f).i_mode, 02765); /* without group execute the bit is no privilege */
	sub = mk(d, "sub", NS_DIR, 0755, &ann);
	ck_assert_uint_eq(get(sub).i_gid, 700);
	ck_assert_uint_eq(get(sub).i_mode, 02755);
}
END_TEST

START_TEST(every_type_is_created)
{
	struct ns_create_args a = {
		.a_dir = 1,
		.a_name = "c",
		.a_len = 1,
		.a_cred = &root,
		.a_attr = {
			.i_type = NS_CHR, .i_mode = 0600, .i_rdev_major = 10, .i_rdev_minor = 7}};
	char target[NS_SYMLINK_MAX + 1];
	struct ns_inode i;

	ck_assert_int_eq(W(ns_create(ns, wt, &a, &out, blob, &ci)), 0);
	i = get(out.i_ino);
	ck_assert_uint_eq(i.i_rdev_major, 10);
	ck_assert_uint_eq(i.i_rdev_minor, 7);
	mk(1, "b", NS_BLK, 0600, &root);
	mk(1, "s", NS_SOCK, 0600, &root);
	mk(1, "p", NS_FIFO, 0600, &root);
	memset(target, 't', sizeof(target));
	a.a_attr = (struct ns_inode){
		.i_type = NS_LNK, .i_mode = 0, .i_blob = ns_slice(target, NS_SYMLINK_MAX + 1)};
	a.a_name = "l";
	ck_assert_int_eq(W(ns_create(ns, wt, &a, &out, blob, &ci)), -ENAMETOOLONG);
	a.a_attr.i_blob.s_len = 0;
	ck_assert_int_eq(W(ns_create(ns, wt, &a, &out, blob, &ci)), -EINVAL);
	a.a_attr.i_blob.s_len = NS_SYMLINK_MAX;
	ck_assert_int_eq(W(ns_create(ns, wt, &a, &out, blob, &ci)), 0);
	i = get(out.i_ino);
	ck_assert_uint_eq(i.i_size, NS_SYMLINK_MAX);
	ck_assert_uint_eq(i.i_mode, 0777);
	ck_assert_uint_eq(i.i_blob.s_len, NS_SYMLINK_MAX);
	ck_assert_int_eq(memcmp(i.i_blob.s_data, target, NS_SYMLINK_MAX), 0);
}
END_TEST

static uint64_t map_ino;
static char map_policy[64];
static int map_rc;

static int make_map(void *arg, const struct ns_inode *i, struct kv_slice policy, uint8_t *buf,
		    size_t max, size_t *len)
{
	ck_assert_ptr_eq(arg, &map_ino);
	ck_assert_uint_eq(max, NS_BLOB_MAX);
	map_ino = i->i_ino;
	snprintf(map_policy, sizeof(map_policy), "%.*s", (int)policy.s_len,
		 (const char *)policy.s_data);
	memset(buf, 'M', 300);
	*len = 300;
	return map_rc;
}

START_TEST(map_is_made_under_the_effective_policy)
{
	uint64_t d = mk(1, "d", NS_DIR, 0755, &root), sub = mk(d, "sub", NS_DIR, 0755, &root);
	struct ns_create_args a = {.a_dir = sub,
				   .a_name = "f",
				   .a_len = 1,
				   .a_cred = &root,
				   .a_map = make_map,
				   .a_map_arg = &map_ino,
				   .a_attr = {.i_type = NS_REG, .i_mode = 0644}};
	struct kv_slice p;
	uint64_t change;

	map_rc = 0;
	ck_assert_int_eq(ns_policy(ns, snapshot(), sub, &p), 0);
	ck_assert_uint_eq(p.s_len, 0);
	ck_assert_int_eq(W(ns_set_blob(ns, wt, 1, "from-root", 9, true, now())), 0);
	change = get(d).i_change;
	ck_assert_int_eq(W(ns_set_blob(ns, wt, d, "from-d", 6, true, now())), 0);
	ck_assert_uint_eq(get(d).i_change, change + 1);
	ck_assert(get(d).i_has_policy);
	ck_assert_int_eq(W(ns_create(ns, wt, &a, &out, blob, &ci)), 0);
	ck_assert_str_eq(map_policy, "from-d");
	ck_assert_uint_eq(map_ino, out.i_ino);
	ck_assert_uint_eq(out.i_blob.s_len, 300);
	ck_assert_ptr_eq(out.i_blob.s_data, blob);
	ck_assert_uint_eq(get(out.i_ino).i_blob.s_len, 300);
	ck_assert_int_eq(W(ns_set_blob(ns, wt, d, NULL, 0, true, now())), 0);
	ck_assert_int_eq(ns_policy(ns, snapshot(), sub, &p), 0);
	ck_assert_int_eq(memcmp(p.s_data, "from-root", 9), 0);
	ck_assert_int_eq(ns_policy(ns, snapshot(), out.i_ino, &p), -ENOTDIR);
	ck_assert_int_eq(ns_policy(ns, snapshot(), 999, &p), -ESTALE);
	map_rc = -ENOSPC;
	a.a_name = "g";
	ck_assert_int_eq(W(ns_create(ns, wt, &a, &gone, blob, &ci)), -ENOSPC);
	ck_assert_uint_eq(look(sub, "g"), 0);
	ck_assert_int_eq(W(ns_set_blob(ns, wt, out.i_ino, "new", 3, false, now())), 0);
	ck_assert_uint_eq(get(out.i_ino).i_blob.s_len, 3);
	ck_assert_int_eq(W(ns_set_blob(ns, wt, out.i_ino, "new", 3, true, now())), -ENOTDIR);
	ck_assert_int_eq(W(ns_set_blob(ns, wt, d, "new", 3, false, now())), -EISDIR);
	ck_assert_int_eq(W(ns_set_blob(ns, wt, d, blob, NS_BLOB_MAX + 1, true, now())), -E2BIG);
	ck_assert_int_eq(W(ns_set_blob(ns, wt, 999, "new", 3, false, now())), -ESTALE);
}
END_TEST

static int count_entry(void *arg, const struct ns_dirent *d)
{
	(void)d;
	++*(unsigned *)arg;
	return 0;
}

static unsigned count_entries(uint64_t in)
{
	unsigned n = 0;
	bool eof;

	ck_assert_int_eq(ns_readdir(ns, snapshot(), in, 0, count_entry, &n, &eof), 0);
	ck_assert(eof);
	return n;
}

START_TEST(colliding_names_share_a_window)
{
	uint64_t h = hash_of("name"), ino = mk(1, "other", NS_REG, 0644, &root);
	char fake[16];

	damaged = true; /* the fakes are far from their own hash */
	for (unsigned n = 0; n < NS_SLOT_WINDOW - 1; n++) {
		snprintf(fake, sizeof(fake), "fake%u", n);
		put_entry(1, h + n, ino, NS_REG, fake);
	}
	ino = mk(1, "name", NS_REG, 0644, &root);
	ck_assert_uint_eq(look(1, "name"), ino);
	/* It stays found when those before it go. */
	for (unsigned n = 0; n < NS_SLOT_WINDOW - 1; n++) {
		uint8_t k[NS_KEY_DIRENT];

		ck_assert_int_eq(W(kv_del(wt, ns_key_dirent(k, 1, h + n))), 0);
		ck_assert_uint_eq(look(1, "name"), ino);
		ck_assert_int_eq(new (1, "name", NS_REG, 0644, &root), -EEXIST);
	}
	ck_assert_int_eq(rm(1, "name", 0, &root), 0);
	for (unsigned n = 0; n < NS_SLOT_WINDOW; n++) {
		snprintf(fake, sizeof(fake), "fake%u", n);
		put_entry(1, h + n, look(1, "other"), NS_REG, fake);
	}
	ck_assert_int_eq(new (1, "name", NS_REG, 0644, &root), -ENOSPC);
	ck_assert_int_eq(ln(look(1, "other"), 1, "name", &root), -ENOSPC);
	ck_assert_int_eq(mv(1, "other", 1, "name", &root), -ENOSPC);
	/* A gap is filled, and what lies behind it stays. */
	for (unsigned n = 0; n < NS_SLOT_WINDOW; n++)
		if (n != 1) {
			uint8_t k[NS_KEY_DIRENT];

			ck_assert_int_eq(W(kv_del(wt, ns_key_dirent(k, 1, h + n))), 0);
		}
	mk(1, "name", NS_REG, 0644, &root);
	ck_assert_uint_eq(count_entries(1), 3);
	ck_assert_int_eq(rm(1, "name", 0, &root), 0);
	/* The next slot belongs to another window. */
	put_entry(1, h + NS_SLOT_WINDOW, look(1, "other"), NS_REG, "name");
	ck_assert_uint_eq(look(1, "name"), 0);
}
END_TEST

START_TEST(lookup_says_why)
{
	uint64_t f = mk(1, "f", NS_REG, 0644, &root), ino;
	uint8_t type;

	ck_assert_int_eq(ns_lookup(ns, snapshot(), 1, "f", 1, &ino, &type), 0);
	ck_assert_uint_eq(ino, f);
	ck_assert_uint_eq(type, NS_REG);
	ck_assert_int_eq(ns_lookup(ns, rt, 1, "g", 1, &ino, &type), -ENOENT);
	ck_assert_int_eq(ns_lookup(ns, rt, f, "g", 1, &ino, &type), -ENOTDIR);
	ck_assert_int_eq(ns_lookup(ns, rt, 999, "g", 1, &ino, &type), -ESTALE);
	ck_assert_int_eq(ns_lookup(ns, rt, 1, "..", 2, &ino, &type), -EINVAL);
	ck_assert_int_eq(ns_get(ns, rt, 999, &out), -ESTALE);
}
END_TEST

START_TEST(path_is_walked)
{
	uint64_t d = mk(1, "d", NS_DIR, 0755, &root), sub = mk(d, "sub", NS_DIR, 0755, &root),
		 f = mk(sub, "f", NS_REG, 0644, &root), ino;

	ck_assert_int_eq(ns_path(ns, snapshot(), "/", &ino), 0);
	ck_assert_uint_eq(ino, 1);
	ck_assert_int_eq(ns_path(ns, rt, "/d/sub", &ino), 0);
	ck_assert_uint_eq(ino, sub);
	ck_assert_int_eq(ns_path(ns, rt, "//d//sub/f", &ino), 0);
	ck_assert_uint_eq(ino, f);
	ck_assert_int_eq(ns_path(ns, rt, "/d/x", &ino), -ENOENT);
	ck_assert_int_eq(ns_path(ns, rt, "/d/sub/f/x", &ino), -ENOTDIR);
	ck_assert_int_eq(ns_path(ns, rt, "d", &ino), -EINVAL);
	ck_assert_int_eq(ns_path(ns, rt, "/d/../d", &ino), -EINVAL);
}
END_TEST

struct listing {
	unsigned l_n, l_max;
	uint64_t l_last;
	bool l_seen[400];
};

static int on_entry(void *arg, const struct ns_dirent *d)
{
	struct listing *l = arg;
	char name[16];
	int n;

	if (l->l_n == l->l_max)
		return 1;
	ck_assert_uint_gt(d->d_cookie, 2);
	ck_assert_uint_gt(d->d_cookie, l->l_last);
	snprintf(name, sizeof(name), "%.*s", (int)d->d_len, d->d_name);
	ck_assert_int_eq(sscanf(name, "f%d", &n), 1);
	ck_assert(!l->l_seen[n]);
	l->l_seen[n] = true;
	l->l_last = d->d_cookie;
	l->l_n++;
	return 0;
}

START_TEST(listing_goes_on_where_it_stopped)
{
	uint64_t d = mk(1, "d", NS_DIR, 0755, &root);
	struct listing l = {.l_max = 0};
	unsigned total = 0;
	char name[16];
	bool eof;

	for (int n = 0; n < 300; n++) {
		snprintf(name, sizeof(name), "f%d", n);
		mk(d, name, n % 2 ? NS_REG : NS_DIR, 0755, &root);
	}
	do {
		l.l_n = 0;
		l.l_max = 7;
		ck_assert_int_eq(ns_readdir(ns, snapshot(), d, l.l_last, on_entry, &l, &eof), 0);
		total += l.l_n;
		/* A file that goes and one that comes harm no other. */
		if (total == 21) {
			for (int n = 0; n < 300; n++) {
				if (!l.l_seen[n]) {
					snprintf(name, sizeof(name), "f%d", n);
					ck_assert_int_eq(rm(d, name, 0, &root), 0);
					total++;
					break;
				}
			}
		}
	} while (!eof);
	ck_assert_uint_eq(total, 300);
	l.l_n = 0;
	ck_assert_int_eq(ns_readdir(ns, snapshot(), d, l.l_last, on_entry, &l, &eof), 0);
	ck_assert(eof && l.l_n == 0);
	ck_assert_int_eq(ns_readdir(ns, rt, d, UINT64_MAX, on_entry, &l, &eof), 0);
	ck_assert(eof);
	ck_assert_int_eq(ns_readdir(ns, rt, d, 0, fails, NULL, &eof), -ENOMEM);
	ck_assert(!eof);
	ck_assert_int_eq(ns_readdir(ns, rt, 999, 0, on_entry, &l, &eof), -ESTALE);
	mk(1, "f", NS_REG, 0644, &root);
	ck_assert_int_eq(ns_readdir(ns, snapshot(), out.i_ino, 0, on_entry, &l, &eof), -ENOTDIR);
}
END_TEST

/* Link and remove */

START_TEST(link_adds_a_name)
{
	uint64_t d = mk(1, "d", NS_DIR, 0777, &root), f = mk(1, "f", NS_REG, 0644, &root), full;
	struct ns_inode before = get(f), i;

	ck_assert_int_eq(ln(f, d, "g", &ann), 0);
	i = get(f);
	ck_assert_uint_eq(i.i_nlink, 2);
	ck_assert_uint_eq(i.i_change, before.i_change + 1);
	ck_assert_int_gt(i.i_ctime.t_sec, before.i_ctime.t_sec);
	ck_assert_int_eq(i.i_mtime.t_sec, before.i_mtime.t_sec);
	ck_assert_uint_eq(look(d, "g"), f);
	ck_assert_uint_eq(ci.c_after, ci.c_before + 1);
	ck_assert_int_eq(ln(f, d, "g", &root), -EEXIST);
	ck_assert_int_eq(ln(d, 1, "h", &root), -EISDIR);
	ck_assert_int_eq(ln(999, 1, "h", &root), -ESTALE);
	ck_assert_int_eq(ln(f, f, "h", &root), -ENOTDIR);
	ck_assert_int_eq(ln(f, 1, "h", &ann), -EACCES);
	ck_assert_int_eq(ln(f, 1, ".", &root), -EINVAL);
	ck_assert_int_eq(rm(1, "f", NS_REG, &root), 0);
	ck_assert_uint_eq(gone.i_nlink, 1);
	ck_assert_uint_eq(get(f).i_nlink, 1);
	full = mk(1, "full", NS_REG, 0644, &root);
	i = get(full);
	i.i_nlink = NS_LINK_MAX;
	put_inode(i);
	ck_assert_int_eq(ln(full, 1, "h", &root), -EMLINK);
	i.i_nlink = 1;
	put_inode(i);
}
END_TEST

START_TEST(remove_frees_the_last_link)
{
	struct ns_inode before;
	uint64_t f, d;

	open_now = false;
	freed = 0;
	f = mk(1, "f", NS_REG, 0644, &root);
	d = mk(1, "d", NS_DIR, 0755, &root);
	before = get(1);
	ck_assert_int_eq(rm(1, "f", NS_DIR, &root), -ENOTDIR);
	ck_assert_int_eq(rm(1, "d", NS_REG, &root), -EISDIR);
	ck_assert_int_eq(rm(1, "x", 0, &root), -ENOENT);
	ck_assert_int_eq(rm(f, "x", 0, &root), -ENOTDIR);
	ck_assert_int_eq(rm(999, "x", 0, &root), -ESTALE);
	ck_assert_int_eq(rm(1, "..", 0, &root), -EINVAL);
	ck_assert_int_eq(rm(1, "f", 0, &ann), -EACCES);
	ck_assert_int_eq(rm(1, "f", NS_REG, &root), 0);
	ck_assert_uint_eq(freed, 1);
	ck_assert_uint_eq(freed_ino, f);
	ck_assert_uint_eq(gone.i_ino, f);
	ck_assert_uint_eq(gone.i_nlink, 0);
	ck_assert_int_eq(ns_get(ns, snapshot(), f, &out), -ESTALE);
	mk(d, "in", NS_FIFO, 0644, &root);
	ck_assert_int_eq(rm(1, "d", NS_DIR, &root), -ENOTEMPTY);
	ck_assert_int_eq(rm(d, "in", 0, &root), 0);
	ck_assert_int_eq(rm(1, "d", NS_DIR, &root), 0);
	ck_assert_uint_eq(freed, 1);
	ck_assert_uint_eq(get(1).i_nlink, 2);
	ck_assert_uint_eq(get(1).i_entries, 0);
	ck_assert_uint_eq(get(1).i_change, before.i_change + 2);
	ck_assert_uint_eq(ci.c_after, before.i_change + 2);
	ck_assert_int_eq(new (d, "x", NS_REG, 0644, &root), -ESTALE);
}
END_TEST

START_TEST(sticky_directory_protects_names)
{
	uint64_t d = mk(1, "d", NS_DIR, 0777, &root), other = mk(1, "other", NS_DIR, 0777, &root),
		 own = mk(d, "own", NS_DIR, 0777, &ann);

	ck_assert_int_eq(chmod_(d, 01777, &root), 0);
	mk(d, "f", NS_REG, 0666, &ann);
	ck_assert_int_eq(rm(d, "f", 0, &bob), -EPERM);
	ck_assert_int_eq(mv(d, "f", other, "f", &bob), -EPERM);
	mk(other, "g", NS_REG, 0666, &bob);
	ck_assert_int_eq(mv(other, "g", d, "f", &bob), -EPERM); /* would take ann's name away */
	ck_assert_int_eq(chmod_(own, 01777, &ann), 0);
	mk(own, "h", NS_REG, 0666, &bob);
	ck_assert_int_eq(rm(own, "h", 0, &ann), 0); /* the directory's owner may */
	ck_assert_int_eq(rm(d, "f", 0, &ann), 0);
}
END_TEST

static int count_orphan(void *arg, uint64_t ino)
{
	(void)ino;
	return ++*(int *)arg > 100;
}

static int orphan_count(void)
{
	int n = 0;

	ck_assert_int_eq(ns_orphans(ns, snapshot(), count_orphan, &n), 0);
	return n;
}

START_TEST(open_file_becomes_an_orphan)
{
	uint64_t f = mk(1, "f", NS_REG, 0644, &root), change = get(f).i_change;

	freed = 0;
	open_now = true;
	ck_assert_int_eq(W(ns_xattr_set(ns, wt, f, "k", 1, ns_slice("v", 1), 0, &root, now(), &ci)),
			 0);
	ck_assert_int_eq(rm(1, "f", 0, &root), 0);
	ck_assert_uint_eq(gone.i_nlink, 0);
	ck_assert_uint_eq(freed, 0);
	ck_assert_uint_eq(get(f).i_nlink, 0);
	ck_assert_uint_eq(get(f).i_change, change + 2);
	ck_assert_int_eq(orphan_count(), 1);
	ck_assert_int_eq(ln(f, 1, "back", &root), -ENOENT);
	ck_assert_int_eq(set(f, (struct ns_setattr){.s_mask = NS_S_SIZE, .s_size = 9}, &root), 0);
	ck_assert_uint_eq(violation_count(), 0);
	ck_assert_int_eq(W(ns_orphan_free(ns, wt, f, &fo)), 0);
	ck_assert_uint_eq(freed, 1);
	ck_assert_int_eq(ns_get(ns, snapshot(), f, &out), -ESTALE);
	ck_assert_int_eq(orphan_count(), 0);
	ck_assert_int_eq(W(ns_orphan_free(ns, wt, f, &fo)), 0); /* absent is done */
	ck_assert_uint_eq(freed, 1);
	f = mk(1, "f", NS_FIFO, 0644, &root);
	ck_assert_int_eq(rm(1, "f", 0, &root), 0); /* only regular files are open at the server */
	ck_assert_int_eq(orphan_count(), 0);
	open_now = false;
}
END_TEST

START_TEST(removed_inode_takes_its_xattrs_along)
{
	struct ns_check_stats st;
	uint64_t f = mk(1, "f", NS_REG, 0644, &root), g = mk(1, "g", NS_REG, 0644, &root);
	char name[32];

	open_now = false;
	for (int n = 0; n < 100; n++) {
		snprintf(name, sizeof(name), "attribute%d", n);
		ck_assert_int_eq(W(ns_xattr_set(ns, wt, f, name, strlen(name), ns_slice("v", 1), 0,
						&root, now(), &ci)),
				 0);
	}
	ck_assert_int_eq(W(ns_xattr_set(ns, wt, g, "k", 1, ns_slice("v", 1), 0, &root, now(), &ci)),
			 0);
	ck_assert_int_eq(rm(1, "f", 0, &root), 0);
	ck_assert_int_eq(ns_check(snapshot(), on_violation, NULL, &st), 0);
	ck_assert_uint_eq(st.cs_xattrs, 1);
}
END_TEST

/* Rename */

START_TEST(rename_moves_and_replaces)
{
	uint64_t a = mk(1, "a", NS_DIR, 0755, &root), b = mk(1, "b", NS_DIR, 0755, &root),
		 f = mk(a, "f", NS_REG, 0644, &root), g;
	struct ns_inode before = get(f);

	freed = 0;
	ck_assert_int_eq(mv(a, "f", a, "g", &root), 0);
	ck_assert_uint_eq(look(a, "g"), f);
	ck_assert_uint_eq(look(a, "f"), 0);
	ck_assert_uint_eq(get(a).i_entries, 1);
	ck_assert_uint_eq(get(f).i_change, before.i_change + 1);
	ck_assert_int_gt(get(f).i_ctime.t_sec, before.i_ctime.t_sec);
	ck_assert_uint_eq(gone.i_ino, 0);
	ck_assert_uint_eq(ci.c_after, ci.c_before + 1);
	ck_assert_uint_eq(ci2.c_after, ci.c_after);
	ck_assert_int_eq(mv(a, "g", b, "h", &root), 0);
	ck_assert_uint_eq(get(a).i_entries, 0);
	ck_assert_uint_eq(get(b).i_entries, 1);
	ck_assert_uint_eq(ci.c_after, get(a).i_change);
	ck_assert_uint_eq(ci2.c_after, get(b).i_change);
	g = mk(a, "g", NS_REG, 0644, &root);
	ck_assert_int_eq(mv(a, "g", b, "h", &root), 0);
	ck_assert_uint_eq(gone.i_ino, f);
	ck_assert_uint_eq(gone.i_nlink, 0);
	ck_assert_uint_eq(freed, 1);
	ck_assert_uint_eq(look(b, "h"), g);
	ck_assert_uint_eq(get(b).i_entries, 1);
	/* Replacing keeps the open file. */
	open_now = true;
	mk(a, "n", NS_REG, 0644, &root);
	ck_assert_int_eq(mv(a, "n", b, "h", &root), 0);
	ck_assert_uint_eq(get(g).i_nlink, 0);
	ck_assert_int_eq(orphan_count(), 1);
	open_now = false;
}
END_TEST

START_TEST(rename_of_directories)
{
	uint64_t a = mk(1, "a", NS_DIR, 0755, &root), b = mk(1, "b", NS_DIR, 0755, &root),
		 s = mk(a, "s", NS_DIR, 0755, &root), e;

	ck_assert_int_eq(mv(a, "s", b, "t", &root), 0);
	ck_assert_uint_eq(get(s).i_parent, b);
	ck_assert_uint_eq(get(a).i_nlink, 2);
	ck_assert_uint_eq(get(b).i_nlink, 3);
	e = mk(a, "e", NS_DIR, 0755, &root);
	ck_assert_int_eq(mv(b, "t", a, "e", &root), 0); /* over an empty directory */
	ck_assert_uint_eq(gone.i_ino, e);
	ck_assert_int_eq(ns_get(ns, snapshot(), e, &out), -ESTALE);
	ck_assert_uint_eq(get(a).i_nlink, 3);
	ck_assert_uint_eq(get(b).i_nlink, 2);
	mk(1, "e2", NS_DIR, 0755, &root);
	ck_assert_int_eq(mv(1, "b", 1, "e2", &root), 0); /* within one directory */
	ck_assert_uint_eq(get(1).i_nlink, 4);
	ck_assert_uint_eq(get(1).i_entries, 2);
}
END_TEST

START_TEST(rename_refusals)
{
	uint64_t a = mk(1, "a", NS_DIR, 0755, &root), b = mk(a, "b", NS_DIR, 0755, &root),
		 c = mk(b, "c", NS_DIR, 0755, &root);
	uint64_t open = mk(1, "open", NS_DIR, 0777, &root),
		 open2 = mk(1, "open2", NS_DIR, 0777, &root), f = mk(1, "f", NS_REG, 0644, &root),
		 change;

	ck_assert_int_eq(mv(1, "x", 1, "y", &root), -ENOENT);
	ck_assert_int_eq(mv(1, "a", c, "x", &root), -EINVAL);
	ck_assert_int_eq(mv(1, "a", a, "x", &root), -EINVAL);
	ck_assert_int_eq(mv(b, "c", 1, "a", &root), -ENOTEMPTY);
	ck_assert_int_eq(mv(1, "a", 1, "f", &root), -ENOTDIR);
	ck_assert_int_eq(mv(1, "f", 1, "a", &root), -EISDIR);
	ck_assert_int_eq(mv(1, "open", 1, "a", &root), -ENOTEMPTY);
	ck_assert_int_eq(mv(f, "x", 1, "y", &root), -ENOTDIR);
	ck_assert_int_eq(mv(1, "f", f, "y", &root), -ENOTDIR);
	ck_assert_int_eq(mv(999, "x", 1, "y", &root), -ESTALE);
	ck_assert_int_eq(mv(1, ".", 1, "y", &root), -EINVAL);
	ck_assert_int_eq(mv(1, "f", 1, "..", &root), -EINVAL);
	ck_assert_int_eq(mv(1, "f", open, "f", &ann), -EACCES);
	mk(open, "g", NS_REG, 0644, &ann);
	ck_assert_int_eq(mv(open, "g", 1, "g", &ann), -EACCES);
	mk(open, "d", NS_DIR, 0755, &bob);
	ck_assert_int_eq(mv(open, "d", open2, "d", &ann), -EACCES); /* its ".." would change */
	ck_assert_int_eq(mv(open, "d", open, "e", &ann), 0);
	/* Two names of one file: nothing happens. */
	ck_assert_int_eq(ln(f, 1, "f2", &root), 0);
	change = get(1).i_change;
	ck_assert_int_eq(mv(1, "f", 1, "f2", &root), 0);
	ck_assert_int_eq(mv(1, "f", 1, "f", &root), 0);
	ck_assert_uint_eq(get(1).i_change, change);
	ck_assert_uint_eq(ci.c_after, change);
	ck_assert_uint_eq(look(1, "f"), f);
	ck_assert_uint_eq(look(1, "f2"), f);
}
END_TEST

/* Rows */

static int add_row(void *arg, struct kv_slice id, struct kv_slice val)
{
	strncat(arg, id.s_data, id.s_len);
	strcat(arg, "=");
	strncat(arg, val.s_data, val.s_len);
	strcat(arg, ",");
	return 0;
}

static int stop_at_first(void *arg, struct kv_slice id, struct kv_slice val)
{
	add_row(arg, id, val);
	return 1;
}

START_TEST(rows_of_other_rooms)
{
	char all[64] = "", some[64] = "", one[64] = "";
	uint8_t id[KV_KEY_MAX] = "";
	struct kv_slice v;

	ck_assert_int_eq(W(ns_row_put(wt, NS_T_CLIENT, "aa", 2, "1", 1)), 0);
	ck_assert_int_eq(W(ns_row_put(wt, NS_T_CLIENT, "bb", 2, "2", 1)), 0);
	ck_assert_int_eq(W(ns_row_put(wt, NS_T_DS, "cc", 2, "3", 1)), 0);
	ck_assert_int_eq(W(ns_row_put(wt, NS_T_CLIENT, "cc", 2, "4", 1)), 0);
	ck_assert_int_eq(ns_rows(snapshot(), NS_T_CLIENT, NULL, 0, add_row, all), 0);
	ck_assert_str_eq(all, "aa=1,bb=2,cc=4,");
	ck_assert_int_eq(ns_rows(rt, NS_T_CLIENT, "ab", 2, add_row, some), 0);
	ck_assert_str_eq(some, "bb=2,cc=4,");
	ck_assert_int_eq(ns_rows(rt, NS_T_CLIENT, NULL, 0, stop_at_first, one), 0);
	ck_assert_str_eq(one, "aa=1,");
	ck_assert_int_eq(ns_row_get(rt, NS_T_DS, "cc", 2, &v), 0);
	ck_assert_int_eq(memcmp(v.s_data, "3", 1), 0);
	ck_assert_int_eq(ns_row_get(rt, NS_T_WRITE_INTENT, "cc", 2, &v), -ENOENT);
	ck_assert_int_eq(W(ns_row_del(wt, NS_T_DS, "cc", 2)), 0);
	ck_assert_int_eq(W(ns_row_del(wt, NS_T_DS, "cc", 2)), 0);
	ck_assert_int_eq(W(ns_row_put(wt, NS_T_DS, id, sizeof(id), "x", 1)), -EINVAL);
}
END_TEST

/* What is kept of a request, in the slot of a session of this boot. */
static int put_once(uint8_t boot, uint32_t slot, const char *results)
{
	uint8_t buf[NS_REPLY_HEAD + 16], session[16] = {0, 0, 0, boot}, key[NS_REPLY_KEY];
	struct ns_reply o = {
		.on_seq = slot + 1,
		.on_slots = 4,
		.on_target = 5,
		.on_limit = 1000,
		.on_at = 2,
		.on_flags = NS_REPLY_HAVE_SID,
		.on_in = 8,
		.on_last = 4,
		.on_cur = 7,
		.on_saved = 8,
		.on_orders = 9,
		.on_check = "fifteen letters",
		.on_cur_sid = "sid",
		.on_saved_sid = "other",
		.on_results = {.s_len = strlen(results)},
	};

	memcpy(buf + NS_REPLY_HEAD, results, strlen(results));
	ns_reply_key(key, session, slot);
	return ns_row_put(wt, NS_T_REPLY, key, sizeof(key), buf, ns_reply_encode(&o, buf));
}

static int get_once(uint8_t boot, uint32_t slot, struct ns_reply *o)
{
	uint8_t session[16] = {0, 0, 0, boot};

	return ns_reply_get(snapshot(), session, slot, o);
}

START_TEST(requests_are_kept_and_deleted_by_boot_and_session)
{
	uint8_t old[4] = {0, 0, 0, 2}, session[16] = {0, 0, 0, 3};
	struct ns_reply o;

	for (uint8_t boot = 1; boot <= 4; boot++) {
		for (uint32_t slot = 0; slot < 3; slot++)
			ck_assert_int_eq(W(put_once(boot, slot, "0123456789ab")), 0);
	}
	ck_assert_int_eq(W(put_once(4, 2, "other results")), 0); /* not of whole words */
	ck_assert_int_eq(get_once(4, 2, &o), -EIO);
	ck_assert_uint_eq(violation_count(), 1);
	ck_assert_int_eq(W(put_once(4, 2, "short")), 0);
	ck_assert_int_eq(get_once(4, 2, &o), -EIO);
	ck_assert_int_eq(W(put_once(4, 2, "the other result")), 0);
	ck_assert_uint_eq(violation_count(), 0);
	ck_assert_int_eq(get_once(4, 2, &o), 0);
	ck_assert_uint_eq(o.on_seq, 3);
	ck_assert_uint_eq(o.on_orders, 9);
	ck_assert_int_eq(memcmp(o.on_check, "fifteen letters", 16), 0);
	ck_assert_int_eq(memcmp(o.on_saved_sid, "other", 6), 0);
	ck_assert_uint_eq(o.on_results.s_len, 16);
	ck_assert_int_eq(memcmp(o.on_results.s_data, "the other result", 16), 0);
	ck_assert_int_eq(get_once(4, 3, &o), -ENOENT);
	ck_assert_int_eq(W(ns_reply_del(wt, old, 0, old, 4, 4) - 4), 0);
	ck_assert_int_eq(get_once(2, 0, &o), -ENOENT);
	ck_assert_int_eq(get_once(2, 1, &o), 0);
	ck_assert_int_eq(W(ns_reply_del(wt, old, 0, old, 4, NS_REPLY_DEL_MAX) - 2), 0);
	ck_assert_int_eq(W(ns_reply_del(wt, old, 0, old, 4, NS_REPLY_DEL_MAX) - 0), 0);
	ck_assert_int_eq(W(ns_reply_del(wt, session, 16, session, 16, NS_REPLY_DEL_MAX) - 3), 0);
	ck_assert_int_eq(get_once(4, 0, &o), 0);
	ck_assert_uint_eq(violation_count(), 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("ns");
	TCase *o = tcase_create("store"), *d = tcase_create("names");

	tcase_add_checked_fixture(o, setup, teardown);
	tcase_set_timeout(o, 60);
	tcase_add_test(o, names_are_checked);
	tcase_add_test(o, format_makes_root_and_boot_rises);
	tcase_add_test(o, boots_are_told_apart_by_number_and_identity);
	tcase_add_test(o, a_store_that_is_put_back_gives_no_number_of_another_line);
	tcase_add_test(o, inodes_without_a_super_record_are_not_formatted_over);
	tcase_add_test(o, inode_numbers_are_never_reused);
	tcase_add_test(o, count_is_exact_over_a_clean_stop);
	tcase_add_test(o, rows_of_other_rooms);
	tcase_add_test(o, requests_are_kept_and_deleted_by_boot_and_session);
	suite_add_tcase(s, o);

	tcase_add_checked_fixture(d, setup, teardown);
	tcase_set_timeout(d, 60);
	tcase_add_test(d, create_writes_inode_entry_and_parent);
	tcase_add_test(d, create_refusals);
	tcase_add_test(d, setgid_directory_gives_its_group);
	tcase_add_test(d, every_type_is_created);
	tcase_add_test(d, map_is_made_under_the_effective_policy);
	tcase_add_test(d, colliding_names_share_a_window);
	tcase_add_test(d, lookup_says_why);
	tcase_add_test(d, path_is_walked);
	tcase_add_test(d, listing_goes_on_where_it_stopped);
	tcase_add_test(d, link_adds_a_name);
	tcase_add_test(d, remove_frees_the_last_link);
	tcase_add_test(d, sticky_directory_protects_names);
	tcase_add_test(d, open_file_becomes_an_orphan);
	tcase_add_test(d, removed_inode_takes_its_xattrs_along);
	tcase_add_test(d, rename_moves_and_replaces);
	tcase_add_test(d, rename_of_directories);
	tcase_add_test(d, rename_refusals);
	suite_add_tcase(s, d);

	return s;
}

int main(void)
{
	return unit_run(suite());
}
