/* SPDX-License-Identifier: Apache-2.0 */
/* ns_attr_test.c - permission, attributes, extended attributes. */
#include "tests/unit/ns_store.h"

START_TEST(permission_bits)
{
	struct ns_inode f = {.i_type = NS_REG, .i_mode = 0640, .i_uid = 100, .i_gid = 500};
	struct ns_cred eve = {.cr_uid = 300, .cr_gid = 500};

	ck_assert(ns_in_group(&ann, 500) && ns_in_group(&ann, 100) && !ns_in_group(&ann, 200));
	ck_assert_int_eq(ns_permission(&f, &ann, 6), 0);
	ck_assert_int_eq(ns_permission(&f, &ann, 1), -EACCES);
	ck_assert_int_eq(ns_permission(&f, &eve, 4), 0);
	ck_assert_int_eq(ns_permission(&f, &eve, 2), -EACCES);
	ck_assert_int_eq(ns_permission(&f, &bob, 4), -EACCES);
	ck_assert_int_eq(ns_permission(&f, &root, 6), 0);
	ck_assert_int_eq(ns_permission(&f, &root, 1), -EACCES);
	f.i_mode = 0001;
	ck_assert_int_eq(ns_permission(&f, &root, 7), 0);
	/* The first class that fits decides, even when a later one would allow more. */
	f.i_mode = 0007;
	ck_assert_int_eq(ns_permission(&f, &ann, 4), -EACCES);
	ck_assert_int_eq(ns_permission(&f, &eve, 4), -EACCES);
	ck_assert_int_eq(ns_permission(&f, &bob, 7), 0);
	f.i_mode = 0;
	f.i_type = NS_DIR;
	ck_assert_int_eq(ns_permission(&f, &root, 7), 0);
	ck_assert_int_eq(ns_permission(&f, NULL, 7), 0);
}
END_TEST

START_TEST(setattr_permissions)
{
	uint64_t f = mk(1, "f", NS_REG, 0644, &root);
	struct ns_setattr uid = {.s_mask = NS_S_UID, .s_uid = 200},
			  gid = {.s_mask = NS_S_GID, .s_gid = 500};
	struct ns_setattr size = {.s_mask = NS_S_SIZE, .s_size = 10},
			  touch = {.s_mask = NS_S_ATIME_NOW | NS_S_MTIME_NOW};
	struct ns_setattr mtime = {.s_mask = NS_S_MTIME, .s_mtime = {.t_sec = 5}};

	ck_assert_int_eq(
		set(f,
		    (struct ns_setattr){.s_mask = NS_S_UID | NS_S_GID, .s_uid = 100, .s_gid = 100},
		    &root),
		0);
	ck_assert_int_eq(chmod_(f, 0600, &bob), -EPERM);
	ck_assert_int_eq(chmod_(f, 0600, &ann), 0);
	ck_assert_int_eq(set(f, uid, &ann), -EPERM);
	uid.s_uid = 100;
	ck_assert_int_eq(set(f, uid, &ann), 0);
	ck_assert_int_eq(set(f, uid, &bob), -EPERM);
	ck_assert_int_eq(set(f, gid, &ann), 0);
	ck_assert_uint_eq(get(f).i_gid, 500);
	gid.s_gid = 200;
	ck_assert_int_eq(set(f, gid, &ann), -EPERM);
	ck_assert_int_eq(set(f, gid, &bob), -EPERM);
	ck_assert_int_eq(set(f, mtime, &bob), -EPERM);
	ck_assert_int_eq(set(f, mtime, &ann), 0);
	ck_assert_int_eq(get(f).i_mtime.t_sec, 5);
	ck_assert_int_eq(set(f, touch, &bob), -EACCES);
	ck_assert_int_eq(set(f, size, &bob), -EACCES);
	size.s_mask |= NS_S_HAS_WRITE;
	ck_assert_int_eq(set(f, size, &bob), 0);
	ck_assert_int_eq(chmod_(f, 0602, &ann), 0);
	ck_assert_int_eq(set(f, touch, &bob), 0); /* write permission is enough for "now" */
	ck_assert_int_eq(set(f, mtime, &bob), -EPERM);
	ck_assert_int_eq(
		set(f, (struct ns_setattr){.s_mask = NS_S_VERIFIER, .s_verifier = 77}, &bob),
		-EPERM);
	ck_assert_int_eq(
		set(f, (struct ns_setattr){.s_mask = NS_S_VERIFIER, .s_verifier = 77}, NULL), 0);
	ck_assert_uint_eq(get(f).i_verifier, 77);
	ck_assert_int_eq(set(999, touch, &root), -ESTALE);
	ck_assert_int_eq(chmod_(f, 010000, &root), -EINVAL);
	mtime.s_mtime.t_nsec = 1000000000;
	ck_assert_int_eq(set(f, mtime, &root), -EINVAL);
	size.s_size = UINT64_MAX;
	ck_assert_int_eq(set(f, size, &root), -EINVAL);
	size.s_size = 1;
	ck_assert_int_eq(set(1, size, &root), -EISDIR);
	ck_assert_int_eq(set(mk(1, "p", NS_FIFO, 0666, &root), size, &root), -EINVAL);
}
END_TEST

static uint16_t mode_after(uint64_t f, uint16_t mode, struct ns_setattr s, const struct ns_cred *cr)
{
	ck_assert_int_eq(chmod_(f, mode, &root), 0);
	ck_assert_int_eq(set(f, s, cr), 0);
	return get(f).i_mode;
}

START_TEST(setid_bits_are_dropped)
{
	struct ns_setattr own = {.s_mask = NS_S_GID, .s_gid = 500}, cut = {.s_mask = NS_S_SIZE},
			  mode = {.s_mask = NS_S_MODE};
	uint64_t f = mk(1, "f", NS_REG, 0644, &root), d = mk(1, "d", NS_DIR, 0755, &root);

	ck_assert_int_eq(
		set(f,
		    (struct ns_setattr){.s_mask = NS_S_UID | NS_S_GID, .s_uid = 100, .s_gid = 500},
		    &root),
		0);
	ck_assert_int_eq(
		set(d,
		    (struct ns_setattr){.s_mask = NS_S_UID | NS_S_GID, .s_uid = 100, .s_gid = 500},
		    &root),
		0);
	ck_assert_uint_eq(mode_after(f, 06755, own, &ann), 0755);
	ck_assert_uint_eq(mode_after(f, 06745, own, &ann),
			  02745); /* no group execute, and ann is in the group */
	ck_assert_uint_eq(mode_after(d, 06755, own, &ann), 06755);
	ck_assert_uint_eq(mode_after(f, 06777, cut, &ann), 0777);
	ck_assert_uint_eq(mode_after(f, 06777, cut, &bob), 0777);
	ck_assert_uint_eq(mode_after(f, 06767, cut, &ann), 02767);
	ck_assert_uint_eq(mode_after(f, 06767, cut, &bob), 0767);
	ck_assert_uint_eq(mode_after(f, 06777, cut, &root), 06777);
	ck_assert_uint_eq(mode_after(f, 06777, own, &root), 0777); /* whoever changes the owner */
	ck_assert_uint_eq(mode_after(f, 06767, own, &root), 02767);
	ck_assert_uint_eq(mode_after(f, 06777, cut, NULL), 06777);
	mode.s_mode = 06755;
	ck_assert_uint_eq(mode_after(f, 0644, mode, &ann), 06755);
	ck_assert_int_eq(set(f, (struct ns_setattr){.s_mask = NS_S_GID, .s_gid = 900}, &root), 0);
	ck_assert_uint_eq(mode_after(f, 0644, mode, &ann), 04755); /* not a member of 900 */
	/* Both at once: the bits go from the mode that is asked for. */
	mode = (struct ns_setattr){.s_mask = NS_S_MODE | NS_S_GID, .s_mode = 06755, .s_gid = 500};
	ck_assert_uint_eq(mode_after(f, 0644, mode, &ann), 0755);
}
END_TEST

START_TEST(setattr_times_size_and_change)
{
	uint64_t f = mk(1, "f", NS_REG, 0644, &root);
	struct ns_inode a = get(f), b;

	ck_assert_int_eq(set(f, (struct ns_setattr){.s_mask = NS_S_SIZE, .s_size = 100}, &root), 0);
	b = get(f);
	ck_assert_uint_eq(b.i_size, 100);
	ck_assert_uint_eq(b.i_change, a.i_change + 1);
	ck_assert_int_gt(b.i_mtime.t_sec, a.i_mtime.t_sec);
	ck_assert_int_eq(b.i_mtime.t_sec, b.i_ctime.t_sec);
	ck_assert_uint_eq(out.i_size, 100);
	a = b;
	ck_assert_int_eq(set(f, (struct ns_setattr){.s_mask = NS_S_SIZE, .s_size = 100}, &root), 0);
	b = get(f);
	ck_assert_int_gt(b.i_mtime.t_sec,
			 a.i_mtime.t_sec); /* the same size is a truncate all the same */
	a = b;
	ck_assert_int_eq(
		set(f, (struct ns_setattr){.s_mask = NS_S_SIZE | NS_S_GROW_ONLY, .s_size = 50},
		    NULL),
		0);
	b = get(f);
	ck_assert_uint_eq(b.i_size, 100);
	ck_assert_uint_eq(b.i_change, a.i_change);
	ck_assert_int_eq(
		set(f,
		    (struct ns_setattr){.s_mask = NS_S_SIZE | NS_S_GROW_ONLY | NS_S_MTIME_NOW,
					.s_size = 50},
		    NULL),
		0);
	b = get(f);
	ck_assert_uint_eq(b.i_change, a.i_change + 1);
	ck_assert_int_gt(b.i_mtime.t_sec, a.i_mtime.t_sec);
	ck_assert_int_eq(
		set(f, (struct ns_setattr){.s_mask = NS_S_SIZE | NS_S_GROW_ONLY, .s_size = 150},
		    NULL),
		0);
	ck_assert_uint_eq(get(f).i_size, 150);
	ck_assert_int_eq(set(f,
			     (struct ns_setattr){.s_mask = NS_S_SIZE | NS_S_MTIME,
						 .s_size = 1,
						 .s_mtime = {7, 8}},
			     &root),
			 0);
	a = get(f);
	ck_assert_int_eq(a.i_mtime.t_sec, 7);
	ck_assert_uint_eq(a.i_mtime.t_nsec, 8);
	ck_assert_int_eq(set(f,
			     (struct ns_setattr){.s_mask = NS_S_ATIME, .s_atime = {-1, 999999999}},
			     &root),
			 0);
	b = get(f);
	ck_assert_int_eq(b.i_atime.t_sec, -1);
	ck_assert_uint_eq(b.i_change, a.i_change + 1);
	ck_assert_int_eq(set(f, (struct ns_setattr){.s_mask = NS_S_ATIME_NOW}, NULL), 0);
	ck_assert_uint_eq(get(f).i_change, b.i_change); /* the server's own note of an access */
	ck_assert_int_gt(get(f).i_atime.t_sec, 0);
	ck_assert_int_eq(set(f, (struct ns_setattr){.s_mask = NS_S_CTIME}, NULL), 0);
	ck_assert_uint_eq(get(f).i_change, b.i_change + 1);
	ck_assert_int_eq(set(f, (struct ns_setattr){.s_mask = 0}, &bob), 0);
	ck_assert_uint_eq(written, 0);
	ck_assert_uint_eq(out.i_ino, f);
}
END_TEST

/* Extended attributes */

static int xset(uint64_t ino, const char *name, const void *v, size_t len, unsigned how,
		const struct ns_cred *cr)
{
	return W(ns_xattr_set(ns, wt, ino, name, strlen(name), ns_slice(v, len), how, cr, now(),
			      &ci));
}

static int xrm(uint64_t ino, const char *name, const struct ns_cred *cr)
{
	return W(ns_xattr_remove(ns, wt, ino, name, strlen(name), cr, now(), &ci));
}

static int add_name(void *arg, const char *name, size_t len)
{
	strncat(arg, name, len);
	strcat(arg, ",");
	return 0;
}

START_TEST(xattrs_are_kept)
{
	uint64_t f = mk(1, "f", NS_REG, 0644, &root), change = get(f).i_change;
	static uint8_t big[NS_XATTR_VALUE_MAX + 1];
	char names[64] = "", longname[NS_XATTR_NAME_MAX + 2];
	struct kv_slice v;

	ck_assert_int_eq(ns_xattr_get(ns, snapshot(), f, "k", 1, &v), -ENODATA);
	ck_assert_int_eq(xset(f, "k", "v", 1, NS_X_REPLACE, &root), -ENODATA);
	ck_assert_int_eq(xset(f, "k", "v", 1, NS_X_CREATE, &root), 0);
	ck_assert_uint_eq(ci.c_before, change);
	ck_assert_uint_eq(ci.c_after, change + 1);
	ck_assert_uint_eq(get(f).i_change, change + 1);
	ck_assert(get(f).i_has_xattrs);
	ck_assert_int_eq(xset(f, "k", "v", 1, NS_X_CREATE, &root), -EEXIST);
	ck_assert_int_eq(xset(f, "k", "longer", 6, NS_X_REPLACE, &root), 0);
	ck_assert_int_eq(ns_xattr_get(ns, snapshot(), f, "k", 1, &v), 0);
	ck_assert(v.s_len == 6 && !memcmp(v.s_data, "longer", 6));
	ck_assert_int_eq(xset(f, "a", "", 0, NS_X_EITHER, &root), 0);
	ck_assert_int_eq(ns_xattr_get(ns, snapshot(), f, "a", 1, &v), 0);
	ck_assert_uint_eq(v.s_len, 0);
	ck_assert_int_eq(ns_xattr_list(ns, rt, f, add_name, names), 0);
	ck_assert_str_eq(names, "a,k,");
	memset(big, 'b', sizeof(big));
	ck_assert_int_eq(xset(f, "big", big, NS_XATTR_VALUE_MAX, 0, &root), 0);
	ck_assert_int_eq(xset(f, "big", big, NS_XATTR_VALUE_MAX + 1, 0, &root), -E2BIG);
	ck_assert_int_eq(ns_xattr_get(ns, snapshot(), f, "big", 3, &v), 0);
	ck_assert_uint_eq(v.s_len, NS_XATTR_VALUE_MAX);
	memset(longname, 'n', sizeof(longname) - 1);
	longname[NS_XATTR_NAME_MAX + 1] = 0;
	ck_assert_int_eq(xset(f, longname, "v", 1, 0, &root), -ENAMETOOLONG);
	longname[NS_XATTR_NAME_MAX] = 0;
	ck_assert_int_eq(xset(f, longname, "v", 1, 0, &root), 0);
	ck_assert_int_eq(xset(f, "", "v", 1, 0, &root), -EINVAL);
	ck_assert_int_eq(xrm(f, "none", &root), -ENODATA);
	ck_assert_int_eq(xrm(f, "k", &root), 0);
	ck_assert_int_eq(xrm(f, "a", &root), 0);
	ck_assert_int_eq(xrm(f, "big", &root), 0);
	ck_assert(get(f).i_has_xattrs);
	ck_assert_int_eq(xrm(f, longname, &root), 0);
	ck_assert(!get(f).i_has_xattrs);
	ck_assert_int_eq(ns_xattr_get(ns, snapshot(), 999, "k", 1, &v), -ESTALE);
	ck_assert_int_eq(ns_xattr_list(ns, rt, 999, add_name, names), -ESTALE);
}
END_TEST

START_TEST(xattr_permissions)
{
	uint64_t f = mk(1, "f", NS_REG, 0644, &root), d = mk(1, "d", NS_DIR, 01777, &root),
		 l = mk(1, "l", NS_LNK, 0777, &root);

	ck_assert_int_eq(xset(f, "k", "v", 1, 0, &ann), -EACCES);
	ck_assert_int_eq(xset(l, "k", "v", 1, 0, &root), -EPERM);
	ck_assert_int_eq(xset(d, "k", "v", 1, 0, &ann), -EPERM); /* sticky */
	ck_assert_int_eq(xset(d, "k", "v", 1, 0, &root), 0);
	ck_assert_int_eq(xrm(d, "k", &ann), -EPERM);
	ck_assert_int_eq(chmod_(d, 0777, &root), 0);
	ck_assert_int_eq(xset(d, "k", "v", 1, 0, &ann), 0);
	ck_assert_int_eq(xset(999, "k", "v", 1, 0, &root), -ESTALE);
	ck_assert_int_eq(xset(f, "k", "v", 1, 0, NULL), 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("ns attributes");
	TCase *a = tcase_create("attributes");

	tcase_add_checked_fixture(a, setup, teardown);
	tcase_set_timeout(a, 60);
	tcase_add_test(a, permission_bits);
	tcase_add_test(a, setattr_permissions);
	tcase_add_test(a, setid_bits_are_dropped);
	tcase_add_test(a, setattr_times_size_and_change);
	tcase_add_test(a, xattrs_are_kept);
	tcase_add_test(a, xattr_permissions);
	suite_add_tcase(s, a);
	return s;
}

int main(void)
{
	return unit_run(suite());
}
