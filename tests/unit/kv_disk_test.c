/* SPDX-License-Identifier: Apache-2.0 */
/* kv_disk_test.c - the store keeps what it acknowledged through crashes, and serves beside disks
 * that fail or are full. */
#include "tests/unit/kv_store.h"
#include <dlfcn.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <sys/uio.h>

/* Disk faults: these stand before libc's for LMDB as well. It writes runs of pages by writev, one
 * page by pwrite; the log is written by pwritev2. */
static _Atomic int fail_sync, fail_data, fail_meta, fail_log;
/* bytes until the disk is full, of which one block is kept for what is written over again; -1: it
 * is not */
static _Atomic long log_room = -1;

int fdatasync(int fd)
{
	if (fail_sync) {
		errno = fail_sync;
		return -1;
	}
	return fsync(fd);
}

ssize_t pwrite(int fd, const void *buf, size_t n, off_t at)
{
	static ssize_t (*real)(int, const void *, size_t, off_t);
	int fail = at < 8192 ? fail_meta : fail_data;

	if (fail) {
		errno = fail;
		return -1;
	}
	if (!real)
		real = (ssize_t(*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite");
	return real(fd, buf, n, at);
}

ssize_t writev(int fd, const struct iovec *v, int n)
{
	static ssize_t (*real)(int, const struct iovec *, int);

	if (fail_data) {
		errno = fail_data;
		return -1;
	}
	if (!real)
		real = (ssize_t(*)(int, const struct iovec *, int))dlsym(RTLD_NEXT, "writev");
	return real(fd, v, n);
}

ssize_t pwritev2(int fd, const struct iovec *v, int n, off_t at, int flags)
{
	static ssize_t (*real)(int, const struct iovec *, int, off_t, int);

	if (fail_log) {
		errno = fail_log;
		return -1;
	}
	if (!real)
		real = (ssize_t(*)(int, const struct iovec *, int, off_t, int))dlsym(RTLD_NEXT,
										     "pwritev2");
	if (log_room >= 0 && v->iov_len > 4096) {
		struct iovec some = {v->iov_base,
				     (size_t)log_room < v->iov_len ? (size_t)log_room : v->iov_len};

		log_room -= (long)some.iov_len;
		errno = ENOSPC;
		return some.iov_len ? real(fd, &some, 1, at, flags) : -1;
	}
	return real(fd, v, n, at, flags);
}

/* Writes numbered keys from 8 chains and tells fd each number once it was answered. Never returns.
 */
struct chain {
	struct kv_op c_op;
	struct kv *c_kv;
	int c_fd;
	uint32_t c_n;
};

static int chain_run(struct kv_op *op, struct kv_txn *t)
{
	struct chain *c = caa_container_of(op, struct chain, c_op);
	char key[32];

	snprintf(key, sizeof(key), "n%u", c->c_n);
	return kv_put(t, S(key), (struct kv_slice){key, sizeof(key)});
}

static void chain_done(struct kv_op *op, int rc)
{
	struct chain *c = caa_container_of(op, struct chain, c_op);

	if (rc || write(c->c_fd, &c->c_n, sizeof(c->c_n)) != sizeof(c->c_n))
		_exit(2);
	c->c_n += 8;
	kv_submit(c->c_kv, op);
}

static void write_chains(int fd)
{
	static struct chain c[8];
	struct runner r;
	struct kv *kv;

	if (kv_open(&kv, dir, &create, err, sizeof(err)))
		_exit(3);
	runner_start(&r);
	for (uint32_t i = 0; i < 8; i++) {
		c[i] = (struct chain){.c_kv = kv, .c_fd = fd, .c_n = i};
		c[i].c_op = (struct kv_op){
			.o_run = chain_run, .o_done = chain_done, .o_loop = r.r_loop};
		kv_submit(kv, &c[i].c_op);
	}
	for (;;)
		pause();
}

static void check_acked(int fd, size_t *acked)
{
	struct kv *kv = open_kv(&create);
	struct kv_slice v;
	struct kv_txn *t;
	uint32_t n;

	ck_assert_int_eq(kv_read_begin(kv, &t), 0);
	while (read(fd, &n, sizeof(n)) == sizeof(n)) {
		char key[32];

		snprintf(key, sizeof(key), "n%u", n);
		ck_assert_msg(kv_get(t, S(key), &v) == 0, "%s was acknowledged and is lost", key);
		++*acked;
	}
	kv_read_end(t);
	kv_close(kv);
}

/* Some are acknowledged. */
static void wait_acked(int fd)
{
	int n = 0;

	for (int i = 0; i < 20000 && n < 4 * (int)sizeof(uint32_t); i++) {
		usleep(1000);
		ck_assert_int_eq(ioctl(fd, FIONREAD, &n), 0);
	}
}

START_TEST(killed_process_loses_nothing_acknowledged)
{
	size_t acked = 0;

	for (int round = 0; round < 10; round++) {
		int p[2], status;
		pid_t pid;

		ck_assert_int_eq(pipe(p), 0);
		fcntl(p[1], F_SETPIPE_SZ, 1 << 20);
		pid = fork();
		if (pid == 0) {
			close(p[0]);
			write_chains(p[1]);
		}
		close(p[1]);
		wait_acked(p[0]);
		usleep((useconds_t)round * 7000);
		kill(pid, SIGKILL);
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert_msg(WIFSIGNALED(status), "the child ended with %x", status);
		check_acked(p[0], &acked);
		close(p[0]);
	}
	ck_assert_uint_ge(acked, 40);
}
END_TEST

/* In a child, so that the folder is removed. */
static void commit_kills(_Atomic int *fault, int with)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		struct kv *kv = open_kv(&create);

		*fault = with;
		script(kv, "+b=1");
		kv_close(kv);
		_exit(1);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "status %x", status);
}

START_TEST(failed_write_of_the_log_ends_the_process)
{
	commit_kills(&fail_log, EIO);
}
END_TEST

START_TEST(full_disk_that_cannot_take_the_record_back_ends_the_process)
{
	commit_kills(&fail_log, ENOSPC);
}
END_TEST

/* As on a file system that copies on write: the first blocks of a record find room. */
static bool fill_log_and_go_on(void)
{
	static char big[20000];
	struct kv *kv = open_kv(&create);
	char text[20100];

	memset(big, 'v', sizeof(big) - 1);
	snprintf(text, sizeof(text), "+b=%s", big);
	for (long room = 0; room <= 12288; room += 4096) {
		log_room = room;
		if (script(kv, text) != -ENOSPC || has(kv, "b", big))
			return false;
	}
	log_room = -1;
	return script(kv, "+c=1") == 0;
}

START_TEST(full_disk_in_the_log_fails_the_batch_only)
{
	struct kv *kv = open_kv(&create);

	ck_assert_int_eq(script(kv, "+a=1"), 0);
	kv_close(kv);
	ck_assert(in_child(fill_log_and_go_on));
	kv = open_kv(&create);
	ck_assert(has(kv, "a", "1") && has(kv, "c", "1"));
	ck_assert_int_eq(script(kv, "-b"), -ENOENT);
	kv_close(kv);
}
END_TEST

START_TEST(failed_sync_ends_the_process)
{
	commit_kills(&fail_sync, EIO);
}
END_TEST

START_TEST(failed_write_of_the_meta_page_ends_the_process)
{
	commit_kills(&fail_meta, ENOSPC);
}
END_TEST

static bool fail_and_die(void)
{
	struct kv *kv = open_kv(&create);

	fail_data = ENOSPC;
	return script(kv, "+b=1") == -ENOSPC;
}

static bool fail_go_on_and_die(void)
{
	struct kv *kv = open_kv(&create);

	fail_data = ENOSPC;
	if (script(kv, "+b=1") != -ENOSPC)
		return false;
	fail_data = 0;
	return !has(kv, "b", "1") && script(kv, "+c=1") == 0;
}

/* Nor does the log do it again. */
START_TEST(full_disk_in_a_commit_fails_the_batch_only)
{
	struct kv *kv = open_kv(&create);

	ck_assert_int_eq(script(kv, "+a=1"), 0);
	kv_close(kv);
	ck_assert(in_child(fail_and_die));
	kv = open_kv(&create);
	ck_assert(has(kv, "a", "1") && !has(kv, "b", "1"));
	kv_close(kv);
	ck_assert(in_child(fail_go_on_and_die));
	kv = open_kv(&create);
	ck_assert(has(kv, "a", "1") && !has(kv, "b", "1") && has(kv, "c", "1"));
	kv_close(kv);
}
END_TEST

/* Mutations on a full store. Values are small, so that free pages serve them. */
struct filler {
	uint32_t f_n;
	char f_val[1000];
};

static void filler_key(char *key, uint32_t n)
{
	/* Scattered, so that deletes and updates touch many pages. */
	snprintf(key, 32, "%08x", n * 2654435761u);
}

static int run_fill(void *arg, struct kv_txn *t)
{
	struct filler *f = arg;
	char key[32];

	filler_key(key, f->f_n);
	return kv_put(t, S(key), (struct kv_slice){f->f_val, sizeof(f->f_val)});
}

static int run_fill_many(void *arg, struct kv_txn *t)
{
	struct filler *f = arg;

	for (int i = 0; i < 20; i++, f->f_n++) {
		int rc = run_fill(f, t);

		if (rc)
			return rc;
	}
	return 0;
}

static int run_unlink(void *arg, struct kv_txn *t)
{
	struct filler *f = arg;
	char key[32];
	int rc;

	filler_key(key, f->f_n);
	rc = kv_del(t, S(key));
	return rc ? rc : kv_put(t, S("parent"), S("changed"));
}

/* Fills until refused, one put each; every refusal must be clean. */
static uint32_t fill(struct kv *kv, struct filler *f)
{
	int rc;

	while ((rc = kv_run_sync(kv, run_fill_many, f)) == 0)
		;
	ck_assert_int_eq(rc, -ENOSPC);
	f->f_n -= f->f_n % 20;
	/* Bounds are looser for twenty puts at once; find the end with single ones. */
	while ((rc = kv_run_sync(kv, run_fill, f)) == 0)
		f->f_n++;
	ck_assert_int_eq(rc, -ENOSPC);
	return f->f_n;
}

static void works_while_full(struct kv *kv)
{
	struct filler f = {0}, g = {0};
	uint32_t n;
	int rc;

	ck_assert_int_eq(script(kv, "+parent=started"), 0);
	n = fill(kv, &f);
	ck_assert_uint_gt(n, 1000);
	ck_assert_int_eq(script(kv, "+new=1"), -ENOSPC);
	ck_assert_int_eq(script(kv, "+parent=lengthened"), -ENOSPC);
	ck_assert_int_eq(script(kv, "+parent=updated"), 0);
	for (int i = 0; i < 2000; i++) {
		rc = script(kv, i & 1 ? "+parent=updated" : "+parent=UPDATED");
		ck_assert_msg(rc == 0, "update %d: %d", i, rc);
	}
	/* Deletes go on to the very end, each with a put beside it. */
	for (g.f_n = 0; g.f_n < n; g.f_n++) {
		rc = kv_run_sync(kv, run_unlink, &g);
		ck_assert_msg(rc == 0, "delete %u of %u: %d", g.f_n, n, rc);
	}
	ck_assert_int_eq(script(kv, "+new=1"), 0);
	/* And what they freed can be filled again. */
	f.f_n = 0;
	ck_assert_uint_gt(fill(kv, &f), n / 2);
	ck_assert(has(kv, "parent", "changed"));
}

struct unlinker {
	struct kv_op u_op;
	struct filler u_f;
	sem_t *u_sem;
	int u_result;
};

static int unlinker_run(struct kv_op *op, struct kv_txn *t)
{
	return run_unlink(&caa_container_of(op, struct unlinker, u_op)->u_f, t);
}

static void unlinker_done(struct kv_op *op, int rc)
{
	struct unlinker *u = caa_container_of(op, struct unlinker, u_op);

	u->u_result = rc;
	sem_post(u->u_sem);
}

START_TEST(thousands_of_deletes_at_once_pass_a_full_store)
{
	enum { N = 5000 };
	struct kv_opts o = {.ko_create = true, .ko_nosync = true, .ko_map_max = 24 * MIB};
	struct unlinker *u = calloc(N, sizeof(*u));
	struct kv *kv = open_kv(&o);
	struct filler f = {0};
	struct gate gate;
	sem_t sem;

	sem_init(&sem, 0, 0);
	ck_assert_int_eq(script(kv, "+parent=started"), 0);
	ck_assert_uint_gt(fill(kv, &f), N);
	gate_close(kv, &gate);
	for (uint32_t i = 0; i < N; i++) {
		u[i].u_op = (struct kv_op){.o_run = unlinker_run, .o_done = unlinker_done};
		u[i].u_f.f_n = i;
		u[i].u_sem = &sem;
		kv_submit(kv, &u[i].u_op);
	}
	gate_open(&gate);
	await(&sem, N);
	for (uint32_t i = 0; i < N; i++)
		ck_assert_msg(u[i].u_result == 0, "delete %u: %d", i, u[i].u_result);
	kv_close(kv);
	free(u);
}
END_TEST

START_TEST(full_map_refuses_puts_and_not_deletes)
{
	struct kv_opts o = {.ko_create = true, .ko_nosync = true, .ko_map_max = 24 * MIB};
	struct kv *kv = open_kv(&o);

	works_while_full(kv);
	kv_close(kv);
}
END_TEST

/* What a checkpoint frees is free before a put is refused: none is refused that would go through a
 * moment later. */
START_TEST(no_put_is_refused_for_pages_that_a_checkpoint_frees)
{
	struct kv_opts o = {.ko_create = true, .ko_map_max = 9200 << 10};
	struct kv *kv = open_kv(&o);
	struct filler f = {0};
	int rc;

	while ((rc = kv_run_sync(kv, run_fill, &f)) == 0)
		f.f_n++;
	ck_assert_int_eq(rc, -ENOSPC);
	ck_assert_int_eq(kv_run_sync(kv, run_fill, &f), -ENOSPC);
	kv_close(kv);
}
END_TEST

static bool mount_small(const char *size)
{
	char opts[64];

	snprintf(opts, sizeof(opts), "size=%s", size);
	return unshare(CLONE_NEWNS) == 0 &&
	       mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
	       mount("kv_test", dir, "tmpfs", 0, opts) == 0;
}

START_TEST(full_disk_refuses_puts_and_not_deletes)
{
	char file[300], junk[65536];
	struct kv *kv;
	int fd;

	if (!mount_small("30m")) {
		fprintf(stderr, "kv_test: full_disk: no mount namespace to be had, skipped\n");
		return;
	}
	kv = open_kv(&create);
	works_while_full(kv);
	/* Something else eats the rest: the store has its own reserve. */
	memset(junk, 1, sizeof(junk));
	snprintf(file, sizeof(file), "%s/junk", dir);
	fd = open(file, O_CREAT | O_WRONLY, 0600);
	while (write(fd, junk, sizeof(junk)) > 0)
		;
	close(fd);
	ck_assert_int_eq(script(kv, "-parent"), 0);
	kv_close(kv);
	kv = open_kv(&create);
	ck_assert_int_eq(script(kv, "-new"), 0);
	ck_assert_int_eq(script(kv, "+y=1"), 0);
	ck_assert_int_eq(script(kv, "-y"), 0);
	kv_close(kv);
	umount(dir);
}
END_TEST

START_TEST(a_log_is_made_on_a_disk_that_has_little_more_than_its_room)
{
	static const struct kv_opts nosync = {.ko_create = true, .ko_nosync = true};
	struct statvfs vfs;
	char file[300];
	struct kv *kv;
	int fd;

	if (!mount_small("30m"))
		return;
	kv = open_kv(&nosync); /* which makes none */
	ck_assert_int_eq(script(kv, "+x=1"), 0);
	kv_close(kv);
	snprintf(file, sizeof(file), "%s/data.mdb", dir);
	ck_assert_int_eq(truncate(file, 64 << 10), 0); /* nor is anything set aside */
	ck_assert_int_eq(statvfs(dir, &vfs), 0);
	snprintf(file, sizeof(file), "%s/junk", dir);
	fd = open(file, O_CREAT | O_WRONLY, 0600);
	ck_assert_int_eq(fallocate(fd, 0, 0, (off_t)(vfs.f_bavail * vfs.f_frsize) - (5 << 20)), 0);
	close(fd);
	kv = open_kv(&create);
	ck_assert_int_eq(script(kv, "-x"), 0);
	kv_close(kv);
	umount(dir);
}
END_TEST

START_TEST(room_that_comes_back_is_found)
{
	char file[300];
	struct filler f = {0};
	struct kv *kv;
	uint32_t n;
	int fd;

	if (!mount_small("40m"))
		return;
	snprintf(file, sizeof(file), "%s/junk", dir);
	fd = open(file, O_CREAT | O_WRONLY, 0600);
	ck_assert_int_eq(fallocate(fd, 0, 0, 20 << 20), 0);
	close(fd);
	kv = open_kv(&create);
	n = fill(kv, &f);
	unlink(file);
	usleep(200000);
	ck_assert_int_eq(kv_run_sync(kv, run_fill, &f), 0);
	ck_assert_uint_gt(fill(kv, &f), n + 1000);
	kv_close(kv);
	umount(dir);
}
END_TEST

/* Spread is taken by bounds, not luck: a whole batch of the largest and most scattered writes never
 * takes more than charged. */
static int run_scatter(void *arg, struct kv_txn *t)
{
	static char val[5000];
	unsigned *seed = arg;
	char key[KV_KEY_MAX];

	for (int i = 0; i < 300; i++) {
		size_t klen = 8 + (size_t)rand_r(seed) % (KV_KEY_MAX - 8),
		       vlen = (size_t)rand_r(seed) % sizeof(val);
		int rc;

		memset(key, 'k', sizeof(key));
		snprintf(key, 9, "%08x", (unsigned)rand_r(seed) % 3000 * 2654435761u);
		key[8] = 'k';
		rc = rand_r(seed) % 3
			     ? kv_put(t, (struct kv_slice){key, klen}, (struct kv_slice){val, vlen})
			     : kv_del(t, (struct kv_slice){key, klen});
		if (rc && rc != -ENOENT)
			return rc;
	}
	return 0;
}

START_TEST(file_stays_ahead_of_what_is_used)
{
	struct kv_opts o = {.ko_create = true, .ko_nosync = true};
	struct kv *kv = open_kv(&o);
	unsigned seed = 1;
	char file[300];

	snprintf(file, sizeof(file), "%s/data.mdb", dir);
	for (int i = 0; i < 100; i++) {
		struct kv_stats st;
		struct stat s;

		ck_assert_int_eq(kv_run_sync(kv, run_scatter, &seed), 0);
		kv_stats(kv, &st);
		ck_assert_int_eq(stat(file, &s), 0);
		ck_assert_uint_ge((uint64_t)s.st_size, st.ks_bytes_used + 8 * MIB);
		ck_assert_uint_ge((uint64_t)s.st_blocks * 512, st.ks_bytes_used);
	}
	kv_close(kv);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("kv disk");
	TCase *d = tcase_create("crashes and disks");

	tcase_add_checked_fixture(d, setup, teardown);
	tcase_set_timeout(d, 180);
	tcase_add_test(d, killed_process_loses_nothing_acknowledged);
	tcase_add_test(d, failed_write_of_the_log_ends_the_process);
	tcase_add_test(d, full_disk_that_cannot_take_the_record_back_ends_the_process);
	tcase_add_test(d, full_disk_in_the_log_fails_the_batch_only);
	tcase_add_test(d, failed_sync_ends_the_process);
	tcase_add_test(d, failed_write_of_the_meta_page_ends_the_process);
	tcase_add_test(d, full_disk_in_a_commit_fails_the_batch_only);
	tcase_add_test(d, thousands_of_deletes_at_once_pass_a_full_store);
	tcase_add_test(d, full_map_refuses_puts_and_not_deletes);
	tcase_add_test(d, no_put_is_refused_for_pages_that_a_checkpoint_frees);
	tcase_add_test(d, full_disk_refuses_puts_and_not_deletes);
	tcase_add_test(d, a_log_is_made_on_a_disk_that_has_little_more_than_its_room);
	tcase_add_test(d, room_that_comes_back_is_found);
	tcase_add_test(d, file_stays_ahead_of_what_is_used);
	suite_add_tcase(s, d);
	return s;
}

int main(void)
{
	return unit_run(suite());
}
