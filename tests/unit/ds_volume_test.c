/* SPDX-License-Identifier: Apache-2.0 */
/* ds_volume_test.c - a store of several volumes: which folders it takes, where objects go and are
 * found, a volume that fails. */
#include "tests/unit/ds_store.h"
#include <dlfcn.h>
#include <sodium.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define OTHERS 1000000u /* a file's number above all that have objects */

/* ---- a disk that fails: what is done through these descriptors, and where they lead, is EIO */

static struct {
	_Atomic int dirfd, lockfd;
	_Atomic int full;   /* nothing can be made here */
	_Atomic bool apart; /* no copy_file_range: the volumes are two file systems */
} dead = {.dirfd = -1, .lockfd = -1, .full = -1};

int openat(int fd, const char *path, int flags, ...)
{
	static int (*real)(int, const char *, int, ...);
	va_list ap;
	mode_t mode;

	if (!real)
		real = (int (*)(int, const char *, int, ...))dlsym(RTLD_NEXT, "openat");
	va_start(ap, flags);
	mode = (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(ap, mode_t) : 0;
	va_end(ap);
	if (fd >= 0 && fd == atomic_load(&dead.dirfd)) {
		errno = EIO;
		return -1;
	}
	if (fd >= 0 && fd == atomic_load(&dead.full) && (flags & O_CREAT)) {
		errno = ENOSPC;
		return -1;
	}
	return real(fd, path, flags, mode);
}

int unlinkat(int fd, const char *path, int flags)
{
	static int (*real)(int, const char *, int);

	if (!real)
		real = (int (*)(int, const char *, int))dlsym(RTLD_NEXT, "unlinkat");
	if (fd >= 0 && fd == atomic_load(&dead.dirfd)) {
		errno = EIO;
		return -1;
	}
	return real(fd, path, flags);
}

int fsync(int fd)
{
	static int (*real)(int);

	if (!real)
		real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
	if (fd >= 0 && fd == atomic_load(&dead.lockfd)) {
		errno = EIO;
		return -1;
	}
	return real(fd);
}

int syncfs(int fd)
{
	static int (*real)(int);

	if (!real)
		real = (int (*)(int))dlsym(RTLD_NEXT, "syncfs");
	if (fd >= 0 && fd == atomic_load(&dead.dirfd)) {
		errno = EIO;
		return -1;
	}
	return real(fd);
}

ssize_t copy_file_range(int in, off64_t *at, int out, off64_t *off, size_t n, unsigned flags)
{
	static ssize_t (*real)(int, off64_t *, int, off64_t *, size_t, unsigned);

	if (!real)
		real = (ssize_t(*)(int, off64_t *, int, off64_t *, size_t, unsigned))dlsym(
			RTLD_NEXT, "copy_file_range");
	if (atomic_load(&dead.apart)) {
		errno = EXDEV;
		return -1;
	}
	return real(in, at, out, off, n, flags);
}

static void die(struct ds_vol *v)
{
	atomic_store(&dead.dirfd, v->v_dirfd);
	atomic_store(&dead.lockfd, v->v_lockfd);
	log_set_level((enum log_level) - 1);
}

static void live(void)
{
	atomic_store(&dead.dirfd, -1);
	atomic_store(&dead.lockfd, -1);
	log_set_level(LOG_L_ERROR);
}

/* ---- shorthands ---- */

static char list[4096], err[512];

static void shell(const char *fmt, ...)
{
	char cmd[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(cmd, sizeof(cmd), fmt, ap);
	va_end(ap);
	ck_assert_int_eq(system(cmd), 0);
}

/* The folders of the test's own, by name. */
static void folders(const char *names)
{
	size_t at = 0;

	*list = 0;
	while (*names) {
		size_t n = strcspn(names, " ");

		at += (size_t)snprintf(list + at, sizeof(list) - at, "%s%s/%.*s", at ? ", " : "",
				       dir, (int)n, names);
		names += n + (names[n] == ' ');
	}
	opts.so_dir = list;
}

static void closed(void)
{
	if (S)
		ds_store_close(S);
	S = NULL;
}

static int opened(const char *names)
{
	closed();
	folders(names);
	return try_open(err);
}

/* Refused, with words of both in what is said. */
static void refused(const char *names, const char *one, const char *two)
{
	ck_assert_int_lt(opened(names), 0);
	ck_assert_msg(strstr(err, one) && strstr(err, two), "%s", err);
}

static void volumes_setup(void)
{
	setup();
	closed();
	ck_assert_int_eq(opened("a b c"), 0);
}

static void volumes_teardown(void)
{
	live();
	atomic_store(&dead.apart, false);
	atomic_store(&dead.full, -1);
	teardown();
	opts.so_dir = dir;
}

static struct ds_vol *volume_of(uint64_t ino)
{
	struct cap_object k = key(ino);
	struct ds_vol *v = NULL;
	struct ds_obj *o;

	if (!ds_obj_get(S, &k, false, &o)) {
		v = o->ob_vol;
		ds_obj_put(o);
	}
	return v;
}

static int make_at(uint64_t ino, unsigned vol, struct ds_obj **out)
{
	struct cap_object k = key(ino);

	return ds_obj_get_at(S, &k, true, S->s_vol[vol], out);
}

static void put_at(uint64_t ino, unsigned vol, const char *text)
{
	struct ds_obj *o;

	ck_assert_int_eq(make_at(ino, vol, &o), 0);
	ck_assert_ptr_eq(o->ob_vol, S->s_vol[vol]);
	ck_assert_int_eq(do_rw(o, true, 0, (void *)text, (uint32_t)strlen(text)),
			 (int)strlen(text));
	ds_obj_put(o);
}

static const char *text_of(uint64_t ino)
{
	static uint8_t mem[8192] __attribute__((aligned(4096)));
	struct cap_object k = key(ino);
	struct ds_obj *o;
	int n;

	if (ds_obj_get(S, &k, false, &o))
		return "(not there)";
	n = do_rw(o, false, 0, mem, 4000);
	ds_obj_put(o);
	if (n < 0)
		return strerror(-n);
	mem[n] = 0;
	for (int i = 0; i < n; i++)
		mem[i] = mem[i] ? mem[i] : '.';
	return (const char *)mem;
}

static bool on_disk(unsigned vol, uint64_t ino)
{
	struct cap_object k = key(ino);
	char path[OBJPATH_MAX];

	objpath(&k, path);
	return faccessat(S->s_vol[vol]->v_dirfd, path, F_OK, 0) == 0;
}

static ctl_object object(uint64_t ino)
{
	return (ctl_object){.ino = ino, .fs = 1, .incarnation = 1};
}

static ctl_status order_at(uint64_t instance, ctl_order o)
{
	ctl_status res = CTL_INVAL, st = ds_store_orders(F, instance, &o, 1, &res);

	return st ? st : res;
}

static ctl_status delete (uint64_t ino, uint64_t number)
{
	return order_at(1,
			(ctl_order){.type = CTL_DELETE, .number = number, .object = object(ino)});
}

/* Out of memory, so that it is looked for on the disks. */
static void forget(void)
{
	closed();
	ck_assert_int_eq(try_open(err), 0);
}

/* ---- which folders ---- */

START_TEST(one_folder_keeps_its_format)
{
	struct ds_identity id;

	ck_assert_int_eq(opened("single"), 0);
	ck_assert_int_eq(touch(7), 0);
	id = ds_store_identity(S);
	shell("grep -qx version=1 %s/single/identity && test ! -e %s/single/volumes -a ! -e "
	      "%s/single/marks",
	      dir, dir, dir);
	/* It becomes the home of several, and its objects stay. */
	ck_assert_int_eq(opened("single more"), 0);
	ck_assert_int_eq(memcmp(ds_store_identity(S).id_uuid, id.id_uuid, DS_UUID_LEN), 0);
	ck_assert_ptr_eq(volume_of(7), S->s_home);
	shell("grep -qx version=2 %s/single/identity", dir);
	ck_assert_int_eq(ds_store_set_cluster(S, id.id_uuid, 4), 0);
	shell("grep -qx version=2 %s/single/identity", dir);
	refused("single", "is missing", "/more");
}
END_TEST

START_TEST(a_missing_volume_is_named_and_nothing_is_served)
{
	closed();
	shell("mv %s/b %s/away", dir, dir);
	/* The folder that a file system is mounted on is there, and empty. */
	refused("a b c", "is missing, it was in ", "/b is empty: is its file system mounted?");
	refused("a c", "is missing", "/b");
	shell("test ! -e %s/b/volume", dir);
	/* Nor is one adopted instead. */
	refused("a new c", "is missing", "/new is empty");
	shell("rm -r %s/b %s/new && mv %s/away %s/elsewhere", dir, dir, dir, dir);
	ck_assert_int_eq(opened("a c elsewhere"), 0);
	ck_assert_uint_eq(S->s_vol[1]->v_number, 1);
	ck_assert_ptr_nonnull(strstr(ds_store_volume_dir(S, 1), "/elsewhere"));
	ck_assert_uint_eq(ds_store_volumes(S), 3);
}
END_TEST

START_TEST(a_home_whose_file_system_is_not_mounted_is_not_made_anew)
{
	char uuid[33];

	sodium_bin2hex(uuid, sizeof(uuid), S->s_id.id_uuid, DS_UUID_LEN);
	closed();
	shell("mv %s/a %s/away && mkdir %s/a", dir, dir, dir);
	refused("a b c", "/a holds no store", uuid);
	shell("test -z \"$(ls -A %s/a)\"", dir);
}
END_TEST

START_TEST(folders_of_others_are_refused)
{
	char uuid[33], other[33];

	sodium_bin2hex(uuid, sizeof(uuid), S->s_id.id_uuid, DS_UUID_LEN);
	ck_assert_int_eq(opened("x y"), 0);
	sodium_bin2hex(other, sizeof(other), S->s_id.id_uuid, DS_UUID_LEN);
	refused("a b c y", uuid, other);
	refused("a b c x", "/x holds another store", uuid);
	refused("b a c", "/b is a volume of store", uuid);
	refused("b", "/b is a volume of store", uuid);
	closed();
	shell("mkdir %s/data && touch %s/data/thesis", dir, dir);
	refused("a b c data", "/data is neither empty nor a volume", uuid);
	shell("echo weft-ds volume >%s/data/volume", dir);
	refused("a b c data", "/data/volume", "not the description of a weft-ds volume");
	shell("printf 'weft-ds volume\\nversion=7\\n' >%s/data/volume", dir);
	refused("a b c data", "/data", "version 7");
	ck_assert_int_eq(opened("a b c"), 0);
}
END_TEST

START_TEST(one_folder_twice_is_refused)
{
	refused("a b c b", "/b and ", "are the same folder");
	closed();
	shell("ln -s %s/b %s/link", dir, dir);
	refused("a b c link", "/b and ", "/link are the same folder");
	shell("cp -a %s/b %s/copy", dir, dir);
	refused("a b c copy", "/b and ", "/copy are both volume");
	refused("a copy c b", "/copy and ", "/b are both volume");
	refused("a b c, ", "ds.store", "with commas between them");
	refused("1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17", "ds.store", "more than 16");
	ck_assert_int_eq(opened("1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16"), 0);
	ck_assert_int_eq(opened("a c b"), 0);
	refused("1 2", "is missing", "/3");
}
END_TEST

START_TEST(an_adoption_that_was_cut_short_is_met_again)
{
	closed();
	/* Before the list had it. */
	shell("sed -i /new/d %s/a/volumes && cp -a %s/a %s/before", dir, dir, dir);
	ck_assert_int_eq(opened("a b c new"), 0);
	closed();
	shell("rm -r %s/a && cp -a %s/before %s/a && rmdir %s/new/objects", dir, dir, dir, dir);
	ck_assert_int_eq(opened("a b c new"), 0);
	put_at(9, 3, "nine");
	closed();
	/* The home is one of before, and the volume has objects. */
	shell("rm -r %s/a && cp -a %s/before %s/a", dir, dir, dir);
	refused("a b c new", "/new is a volume that store ", "no longer lists");
	/* The list is lost. */
	shell("rm %s/a/volumes", dir);
	refused("a b c", "/a/volumes", "is missing");
	shell("echo weft-ds >%s/a/volumes", dir);
	refused("a b c", "/a/volumes", "not the list");
}
END_TEST

START_TEST(a_volume_that_is_given_up_leaves_its_number_free)
{
	put_at(5, 1, "five");
	put_at(6, 2, "six");
	closed();
	shell("sed -i '/^volume=1 /d' %s/a/volumes && rm -r %s/b", dir, dir);
	ck_assert_int_eq(opened("a c"), 0);
	ck_assert_uint_eq(S->s_vol[1]->v_number, 2);
	ck_assert_int_eq(lookup(5, false), -ENOENT);
	ck_assert_str_eq(text_of(6), "six");
	ck_assert_int_eq(opened("a c d"), 0);
	ck_assert_uint_eq(S->s_vol[1]->v_number, 1);
	ck_assert_uint_eq(atomic_load(&F->fs_mark[S->s_vol[1]->v_number].mr_high), 0);
	ck_assert_str_eq(text_of(6), "six");
}
END_TEST

/* ---- where objects are ---- */

/* What statvfs would say, from now on for a second. */
static void set_free(unsigned vol, uint64_t bytes)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	atomic_store(&S->s_vol[vol]->v_free, bytes);
	atomic_store(&S->s_vol[vol]->v_free_ms,
		     (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000);
}

START_TEST(new_objects_go_where_there_is_room)
{
	unsigned n[3] = {0};

	/* Three to one, and one with less than 64 MiB: 600 of 800 are expected in the first, with a
	 * deviation of 12. */
	for (uint64_t ino = 1; ino <= 800; ino++) {
		set_free(0, 300ull << 30);
		set_free(1, 100ull << 30);
		set_free(2, 63ull << 20);
		ck_assert_int_eq(lookup(ino, true), 0);
		for (unsigned i = 0; i < 3; i++)
			n[i] += volume_of(ino) == S->s_vol[i];
	}
	ck_assert_uint_eq(n[2], 0);
	ck_assert_uint_ge(n[0], 525);
	ck_assert_uint_le(n[0], 675);
	ck_assert_uint_eq(n[0] + n[1], 800);
	/* All are full: the one that has the most. */
	for (uint64_t ino = 1001; ino <= 1020; ino++) {
		for (unsigned i = 0; i < 3; i++)
			set_free(i, i == 1 ? 40u << 20 : 10u << 20);
		ck_assert_int_eq(lookup(ino, true), 0);
		ck_assert_ptr_eq(volume_of(ino), S->s_vol[1]);
	}
}
END_TEST

START_TEST(a_volume_that_is_fuller_than_it_says_is_passed_over)
{
	atomic_store(&dead.full, S->s_vol[1]->v_dirfd);
	for (uint64_t ino = 1; ino <= 60; ino++) {
		for (unsigned i = 0; i < 3; i++)
			set_free(i, i == 1 ? 1ull << 50 : 1ull << 30);
		ck_assert_int_eq(lookup(ino, true), 0);
		ck_assert_ptr_ne(volume_of(ino), S->s_vol[1]);
	}
	atomic_store(&dead.full, -1);
	ck_assert_int_eq(opened("single"), 0);
	atomic_store(&dead.full, S->s_home->v_dirfd);
	ck_assert_int_eq(lookup(1, true), -ENOSPC);
}
END_TEST

START_TEST(objects_are_found_after_a_restart_in_any_order_of_folders)
{
	char text[3][20] = {"zero", "one", "two"};

	for (unsigned i = 0; i < 60; i++)
		put_at(100 + i, i % 3, text[i % 3]);
	ck_assert_int_eq(opened("a c b"), 0);
	for (unsigned i = 0; i < 60; i++) {
		ck_assert_str_eq(text_of(100 + i), text[i % 3]);
		/* And are not made a second time. */
		ck_assert_int_eq(lookup(100 + i, true), 0);
		for (unsigned v = 0; v < 3; v++)
			ck_assert_int_eq(on_disk(v, 100 + i), v == i % 3);
	}
	ck_assert_int_eq(lookup(99, false), -ENOENT);
}
END_TEST

START_TEST(lists_go_through_all_volumes)
{
	static const unsigned pages[] = {1, 7, 20, 64};
	enum { N = 60 };

	for (unsigned i = 0; i < N; i++)
		put_at(100 + i, i % 3 == 1 ? 2 : i % 3, "x");
	ck_assert_int_eq(ds_store_set_cluster(S, S->s_id.id_uuid, 1), 0);
	for (unsigned p = 0; p < 4; p++) {
		uint8_t cookie[64];
		unsigned len = 0, n, seen[N] = {0}, rounds = 0;

		do {
			ctl_list_entry e[64];

			ck_assert_int_eq(
				ds_store_list(F, cookie, len, pages[p], e, &n, cookie, &len), 0);
			for (unsigned i = 0; i < n; i++) {
				ck_assert_uint_lt(e[i].object.ino - 100, N);
				seen[e[i].object.ino - 100]++;
				ck_assert_uint_eq(e[i].size, 1);
			}
			ck_assert_uint_le(++rounds, N + 1 + 3 * 16);
			/* A cookie outlives the daemon. */
			if (rounds == 3)
				forget();
		} while (len);
		for (unsigned i = 0; i < N; i++)
			ck_assert_uint_eq(seen[i], 1);
		cookie[0] = 1;
		ck_assert_int_eq(ds_store_list(F, cookie, 31, 5, NULL, &n, cookie, &len), -EINVAL);
	}
}
END_TEST

START_TEST(a_delete_reaches_every_volume_and_holds)
{
	struct cap_object k = key(11);
	char path[OBJPATH_MAX];
	int fd;

	put_at(10, 0, "x");
	put_at(11, 2, "x");
	ck_assert_int_eq(delete (10, 1), CTL_OK);
	ck_assert_int_eq(delete (11, 2), CTL_OK);
	ck_assert(!on_disk(0, 10) && !on_disk(2, 11));
	/* The disk forgot it. */
	objpath(&k, path);
	fd = openat(S->s_vol[2]->v_dirfd, path, O_RDWR | O_CREAT, 0600);
	ck_assert_int_ge(fd, 0);
	close(fd);
	forget();
	ck_assert(!on_disk(2, 11));
	ck_assert_int_eq(lookup(11, true), -ESTALE);
}
END_TEST

/* ---- a volume that fails ---- */

static void until_failing(struct ds_vol *v, bool want)
{
	for (unsigned i = 0; i < 60000 && ds_vol_failing(v) != want; i++)
		usleep(1000);
	ck_assert_int_eq(ds_vol_failing(v), want);
}

START_TEST(a_volume_that_fails_takes_nobody_with_it)
{
	struct ds_vol *v = S->s_vol[1];
	uint64_t verifier, capacity, available;

	put_at(10, 0, "zero");
	put_at(11, 1, "one");
	put_at(12, 2, "two");
	put_at(20, 1, "twenty");
	forget();
	v = S->s_vol[1];
	verifier = ds_store_verifier(S);
	die(v);
	ck_assert_str_eq(text_of(10), "zero");
	ck_assert_str_eq(text_of(12), "two");
	/* Not "not there": that would be made anew, or read as empty. */
	ck_assert_int_eq(lookup(11, false), -EIO);
	ck_assert_int_eq(lookup(11, true), -EIO);
	ck_assert_int_eq(lookup(15, true), -EIO);
	for (unsigned i = 0; i < 8; i++)
		lookup(11, false);
	ck_assert(ds_vol_failing(v));
	ck_assert(ds_store_failing(S));
	ck_assert(!ds_vol_failing(S->s_home));
	ds_store_space(S, &capacity, &available);
	ck_assert_uint_gt(available, 0);
	/* New files, numbered above all that it ever had, are made in the others. */
	for (uint64_t ino = OTHERS; ino < OTHERS + 40; ino++) {
		ck_assert_int_eq(lookup(ino, true), 0);
		ck_assert_ptr_ne(volume_of(ino), v);
	}
	ck_assert_int_eq(lookup(OTHERS + 50, false), -ENOENT);
	/* Deletes of what is elsewhere are done; of what may be there not. */
	ck_assert_int_eq(delete (12, 1), CTL_OK);
	ck_assert_int_eq(delete (11, 2), CTL_IO);
	ck_assert_int_eq(delete (OTHERS + 60, 3), CTL_OK);
	ck_assert_uint_eq(ds_store_verifier(S), verifier);
	/* It works again. */
	live();
	log_set_level((enum log_level) - 1);
	atomic_store(&v->v_health.h_again_ms, 0);
	until_failing(v, false);
	ck_assert_int_eq(delete (11, 2), CTL_OK);
	ck_assert_int_eq(lookup(11, true), -ESTALE);
	ck_assert_str_eq(text_of(20), "twenty");
	ck_assert_int_eq(lookup(15, true), 0);
}
END_TEST

START_TEST(a_home_that_fails_has_no_room)
{
	uint64_t capacity, available;

	die(S->s_home);
	for (unsigned i = 0; i < 8; i++)
		ck_assert_int_eq(lookup(OTHERS, true), -EIO);
	ds_store_space(S, &capacity, &available);
	ck_assert_uint_eq(available, 0);
	ck_assert_uint_gt(capacity, 0);
	live();
	atomic_store(&S->s_home->v_health.h_again_ms, 0);
	log_set_level((enum log_level) - 1);
	until_failing(S->s_home, false);
}
END_TEST

START_TEST(a_disk_that_nobody_uses_is_looked_at)
{
	struct ds_vol *v = S->s_vol[2];
	uint64_t capacity, available;

	ds_store_space(S, &capacity, &available);
	for (unsigned i = 0; i < 60000 && atomic_load(&v->v_health.h_probing); i++)
		usleep(1000);
	ck_assert(!ds_store_failing(S));
	die(v);
	/* Not each time. */
	ds_store_space(S, &capacity, &available);
	usleep(20000);
	ck_assert(!ds_vol_failing(v));
	atomic_store(&v->v_health.h_look_ms, 0);
	ds_store_space(S, &capacity, &available);
	until_failing(v, true);
	ck_assert(!ds_vol_failing(S->s_home) && !ds_vol_failing(S->s_vol[1]));
	live();
}
END_TEST

START_TEST(no_tombstone_goes_while_a_volume_cannot_be_synced)
{
	put_at(10, 2, "x");
	ck_assert_int_eq(delete (10, 1), CTL_OK);
	opts.so_tomb_keep_ms = 600000;
	/* It is over, and the next segment would not have it. */
	S->s_journal.j_oldest->t_expires_ns = 0;
	die(S->s_vol[2]);
	S->s_journal.j_broken = true;
	ck_assert_int_eq(
		order_at(2, (ctl_order){.type = CTL_BAR_CLIENT, .number = 2, .client = 33}),
		CTL_OK);
	live();
	forget();
	ck_assert(ds_store_barred(F, 33));
	ck_assert_int_eq(lookup(10, true), -ESTALE);
}
END_TEST

/* ---- marks ---- */

static uint64_t high(unsigned vol)
{
	return atomic_load(&F->fs_mark[S->s_vol[vol]->v_number].mr_high);
}

START_TEST(marks_are_ahead_of_objects_also_after_a_kill)
{
	put_at(5000, 1, "x");
	put_at(7000, 2, "x");
	forget();
	/* To the file, where the daemon ended in order. */
	ck_assert_uint_eq(high(1), 5000);
	ck_assert_uint_eq(high(2), 7000);
	closed();
	for (uint64_t ino = 7001; ino < 50000; ino += 9000) {
		pid_t pid = fork();
		int status;

		if (!pid) {
			struct cap_object k = key(ino);
			struct ds_obj *o;

			_exit(try_open(err) || ds_obj_get_at(S, &k, true, S->s_vol[1], &o));
		}
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert_int_eq(status, 0);
		ck_assert_int_eq(try_open(err), 0);
		ck_assert_uint_ge(high(1), ino);
		ck_assert_uint_le(high(1), ino + 3 * 16384);
		ck_assert_uint_eq(high(2), 7000);
		closed();
	}
}
END_TEST

START_TEST(marks_that_are_torn_are_those_of_before_or_all)
{
	put_at(5000, 1, "x");
	closed();
	/* The sector that was written last. */
	for (unsigned k = 0; k < 2; k++)
		shell("cp %s/a/marks %s/marks.%u && printf xxxx | dd of=%s/marks.%u bs=1 seek=%u "
		      "conv=notrunc 2>/dev/null",
		      dir, dir, k, dir, k, k * 4096 + 30);
	for (unsigned k = 0; k < 2; k++) {
		shell("cp %s/marks.%u %s/a/marks", dir, k, dir);
		ck_assert_int_eq(try_open(err), 0);
		ck_assert_uint_ge(high(1), 5000);
		closed();
	}
	shell("printf xxxx | dd of=%s/a/marks bs=1 seek=30 conv=notrunc 2>/dev/null; printf xxxx | "
	      "dd of=%s/a/marks bs=1 seek=4126 conv=notrunc 2>/dev/null",
	      dir, dir);
	ck_assert_int_eq(try_open(err), 0);
	ck_assert_uint_eq(high(1), UINT64_MAX);
	ds_obj_put(written(OTHERS));
	shell("rm %s/a/marks", dir);
	forget();
	ck_assert_uint_eq(high(1), UINT64_MAX);
}
END_TEST

/* ---- from one volume to another ---- */

static ctl_status clone_order(uint64_t from, uint64_t to, uint64_t number, uint64_t at,
			      uint64_t size)
{
	return order_at(7, (ctl_order){.type = CTL_CLONE,
				       .number = number,
				       .object = object(to),
				       .epoch = 3,
				       .size = size,
				       .source = object(from),
				       .offset = at});
}

/* That a clone is one, where there are reflinks: tests/wire/volumes_test.py. */
START_TEST(a_clone_over_part_of_a_file_elsewhere_is_copied)
{
	char want[4096 + 8];
	struct stat st;

	S->s_clone_block = 4096;
	put_at(10, 1, "source");
	put_at(11, 2, "target");
	atomic_store(&dead.apart, true);
	ck_assert_int_eq(clone_order(10, 11, 1, 4096, 6), CTL_OK);
	memset(want, '.', sizeof(want));
	memcpy(want, "target", 6);
	memcpy(want + 4096, "source", 7);
	ck_assert_ptr_eq(volume_of(11), S->s_vol[2]);
	ck_assert(on_disk(2, 11) && !on_disk(1, 11));
	{
		struct cap_object k = key(11);
		char got[8192] = "";
		struct ds_obj *o;

		ck_assert_int_eq(ds_obj_get(S, &k, false, &o), 0);
		ck_assert_int_eq(ds_obj_stat(o, &st), 0);
		ck_assert_int_eq(st.st_size, 4102);
		ck_assert_int_eq(pread(o->ob_fd, got, sizeof(got), 0), 4102);
		for (unsigned i = 0; i < 4102; i++)
			ck_assert_int_eq(got[i] ? got[i] : '.', want[i]);
		ck_assert_uint_eq(ds_obj_epoch(o), 3);
		ds_obj_put(o);
	}
}
END_TEST

START_TEST(a_target_made_anew_is_in_one_volume_with_its_times_and_fence)
{
	struct ds_obj *o, *new;
	struct stat was, is;
	uint64_t count;

	put_at(11, 2, "target");
	ck_assert_int_eq(order_at(1, (ctl_order){.type = CTL_FENCE,
						 .number = 4,
						 .object = object(11),
						 .epoch = 9}),
			 CTL_OK);
	ck_assert_int_eq(make_at(11, 0, &o), 0);
	ck_assert_ptr_eq(o->ob_vol, S->s_vol[2]);
	ck_assert_int_eq(ds_obj_count(o, &was, &count), 0); /* so that it is told, and stays */
	ck_assert_int_eq(ds_obj_remake(o, S->s_vol[1], 8, &new), -EALREADY);
	ck_assert(!ds_obj_deleted(o) && on_disk(2, 11));
	ck_assert_int_eq(ds_obj_remake(o, S->s_vol[1], 9, &new), 0);
	ck_assert(ds_obj_deleted(o) && !ds_obj_deleted(new));
	ck_assert_int_eq(ds_obj_remake(o, S->s_vol[0], 9, &new), -ESTALE);
	ck_assert(!on_disk(0, 11) && on_disk(1, 11) && !on_disk(2, 11));
	ds_obj_put(o);
	ck_assert_int_eq(make_at(11, 0, &new), 0);
	ck_assert_ptr_eq(new->ob_vol, S->s_vol[1]);
	ck_assert_int_eq(ds_obj_stat(new, &is), 0);
	ck_assert_int_eq(is.st_size, 0);
	ck_assert_uint_eq(ds_mtime_ns(&is), ds_mtime_ns(&was));
	ck_assert_uint_eq(ds_obj_epoch(new), 9);
	ck_assert_uint_eq(new->ob_order, 4);
	ds_obj_put(new);
	ds_obj_put(new);
}
END_TEST

static ctl_status fence(uint64_t ino, uint32_t epoch)
{
	ctl_order o = {.type = CTL_FENCE, .number = 1, .object = object(ino), .epoch = epoch};
	ctl_status res = CTL_INVAL, st = ds_store_fences(F, 7, &o, 1, &res);

	return st == CTL_OK ? res : st;
}

static uint32_t epoch_of(uint64_t ino)
{
	struct cap_object k = key(ino);
	struct ds_obj *o;
	uint32_t epoch;

	ck_assert_int_eq(ds_obj_get_any(S, &k, DS_MAKE_NOT, NULL, &o), 0);
	epoch = ds_obj_epoch(o);
	ds_obj_put(o);
	return epoch;
}

/* The old file is gone, the new one does not come, and the daemon ends there: the metadata server
 * orders the clone again, and no fence that was confirmed. */
START_TEST(a_fence_outlives_a_clone_that_is_cut_short)
{
	S->s_clone_block = 4096;
	put_at(10, 1, "source");
	put_at(11, 2, "target");
	put_at(12, 2, "target");
	ck_assert_int_eq(fence(11, 9), CTL_OK);
	ck_assert_int_eq(fence(12, 3), CTL_OK);
	atomic_store(&dead.apart, true);
	atomic_store(&dead.full, S->s_vol[1]->v_dirfd);
	clone_order(10, 11, 2, 0, 6);
	clone_order(10, 12, 3, 0, 6);
	/* It has the epoch of the clone, and can be removed. */
	ck_assert(!on_disk(2, 12));
	atomic_store(&dead.full, -1);
	reopen();
	S->s_clone_block = 4096;
	ck_assert_int_eq(clone_order(10, 11, 2, 0, 6), CTL_OK);
	ck_assert_int_eq(clone_order(10, 12, 3, 0, 6), CTL_OK);
	ck_assert_uint_eq(epoch_of(11), 9);
	ck_assert_uint_eq(epoch_of(12), 3);
}
END_TEST

START_TEST(a_copy_goes_from_one_volume_to_another)
{
	ctl_span sp = {.length = 6};
	ctl_change_args a = {.instance_epoch = 7,
			     .type = CTL_CHANGE_COPY,
			     .object = object(11),
			     .source = object(10),
			     .total = 6};
	ctl_change_res res;

	put_at(10, 1, "source");
	put_at(11, 2, "target");
	a.spans.spans_len = 1;
	a.spans.spans_val = &sp;
	atomic_store(&dead.apart, true);
	ck_assert_int_eq(ds_store_change(F, &a, &res), CTL_OK);
	ck_assert_str_eq(text_of(11), "source");
	ck_assert_ptr_eq(volume_of(11), S->s_vol[2]);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("ds_volume");
	TCase *t = tcase_create("folders"), *o = tcase_create("objects"),
	      *f = tcase_create("failing");

	tcase_add_checked_fixture(t, volumes_setup, volumes_teardown);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, one_folder_keeps_its_format);
	tcase_add_test(t, a_missing_volume_is_named_and_nothing_is_served);
	tcase_add_test(t, a_home_whose_file_system_is_not_mounted_is_not_made_anew);
	tcase_add_test(t, folders_of_others_are_refused);
	tcase_add_test(t, one_folder_twice_is_refused);
	tcase_add_test(t, an_adoption_that_was_cut_short_is_met_again);
	tcase_add_test(t, a_volume_that_is_given_up_leaves_its_number_free);
	suite_add_tcase(s, t);
	tcase_add_checked_fixture(o, volumes_setup, volumes_teardown);
	tcase_set_timeout(o, 60);
	tcase_add_test(o, new_objects_go_where_there_is_room);
	tcase_add_test(o, a_volume_that_is_fuller_than_it_says_is_passed_over);
	tcase_add_test(o, objects_are_found_after_a_restart_in_any_order_of_folders);
	tcase_add_test(o, lists_go_through_all_volumes);
	tcase_add_test(o, a_delete_reaches_every_volume_and_holds);
	tcase_add_test(o, a_clone_over_part_of_a_file_elsewhere_is_copied);
	tcase_add_test(o, a_fence_outlives_a_clone_that_is_cut_short);
	tcase_add_test(o, a_target_made_anew_is_in_one_volume_with_its_times_and_fence);
	tcase_add_test(o, a_copy_goes_from_one_volume_to_another);
	suite_add_tcase(s, o);
	tcase_add_checked_fixture(f, volumes_setup, volumes_teardown);
	tcase_set_timeout(f, 60);
	tcase_add_test(f, a_volume_that_fails_takes_nobody_with_it);
	tcase_add_test(f, a_home_that_fails_has_no_room);
	tcase_add_test(f, a_disk_that_nobody_uses_is_looked_at);
	tcase_add_test(f, no_tombstone_goes_while_a_volume_cannot_be_synced);
	tcase_add_test(f, marks_are_ahead_of_objects_also_after_a_kill);
	tcase_add_test(f, marks_that_are_torn_are_those_of_before_or_all);
	suite_add_tcase(s, f);
	return s;
}

int main(void)
{
	return unit_run(suite());
}
