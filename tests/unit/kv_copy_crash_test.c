/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_copy_crash_test.c - a follower that is killed, or loses its power, at each point while it
 * follows, takes over, writes, and is filled again. After the restart it is what its log makes, and
 * follows to the end of it. The log is in memory (kv_memlog.h).
 *
 * The points are taken in a random order, for KV_CRASH_S seconds in each test (soak: more).
 * KV_COPY_SEED.
 */
#include "base/clock.h"
#include "tests/unit/kv_memlog.h"
#include "tests/unit/kv_power.h"
#include <sys/mman.h>

enum mode { TAKES_OVER, IS_FILLED };
static struct mem_log first_log, second_log = {.ml_who = 1};
static const struct kv_redo first_redo = {&mem_ops, &first_log},
			    second_redo = {&mem_ops, &second_log};
static uint32_t next_change = 1;
static long *points; /* of the whole life, counted by its process */

static struct kv *open_at(const char *name, const struct kv_redo *redo, bool follow, bool fill)
{
	struct kv_opts o = {.ko_create = true,
			    .ko_redo = redo,
			    .ko_follow = follow,
			    .ko_refill = fill,
			    .ko_map_max = 64 << 20};
	struct kv *kv = NULL;
	char path[300];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return kv_open(&kv, path, &o, err, sizeof(err)) ? NULL : kv;
}

static void writer_changes(int n)
{
	struct kv *kv = open_at("a", &first_redo, false, false);

	ck_assert_msg(kv != NULL, "%s", err);
	while (n--) {
		struct change c = {1, next_change++};

		ck_assert_int_eq(kv_run_sync(kv, run_change, &c), 0);
	}
	kv_close(kv);
}

/* A whole life of the follower, which ends at a point. */
static void life(enum mode mode, long left, bool power)
{
	struct change c = {1, next_change};
	struct kv *kv;

	log_set_level((enum log_level) - 1);
	sim.on = true;
	sim.left = left;
	sim.seed = next_change;
	if (power)
		snprintf(sim.to, sizeof(sim.to), "%.200s/b.cut", dir);
	kv = open_at("b", &second_redo, true, mode == IS_FILLED);
	if (!kv || kv_follow(kv, err, sizeof(err)))
		_exit(1);
	if (mode == TAKES_OVER &&
	    (kv_promote(kv, err, sizeof(err)) || kv_run_sync(kv, run_change, &c)))
		_exit(1);
	kv_close(kv);
	*points = -sim.left;
	_exit(0);
}

/* The next life finds what the crash left. closes: it ends as it should. */
static int look(bool closes)
{
	struct kv *kv = open_at("b", &second_redo, true, false);
	int rc;

	if (!kv)
		return 2;
	if (!is_fold(kv))
		return 3;
	rc = kv_follow(kv, err, sizeof(err));
	if (rc == -ESTALE) {
		kv_close(kv);
		kv = open_at("b", &second_redo, true, true);
		rc = kv ? kv_follow(kv, err, sizeof(err)) : -EIO;
	}
	if (rc)
		return 4;
	if (kv_held(kv) != mem->m_last || !is_fold(kv))
		return 5;
	if (closes)
		kv_close(kv);
	return 0;
}

static int run(enum mode mode, long left, bool power)
{
	int status;
	pid_t pid = fork();

	if (pid == 0)
		life(mode, left, power);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static int look_apart(bool closes)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		int rc = look(closes);

		if (rc)
			fprintf(stderr, "# %s\n", err);
		_exit(rc);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 6;
}

/* What a power cut left, with the files that were not written to. */
static void cut(void)
{
	char cmd[1500];

	snprintf(cmd, sizeof(cmd),
		 "cd %s && for f in data.mdb copy.0 copy.1; do [ ! -e b/$f ] || [ -e b.cut/$f ] || "
		 "cp --sparse=always b/$f b.cut/$f; done; rm -rf b; mv b.cut b; mkdir b.cut",
		 dir);
	ck_assert_int_eq(system(cmd), 0);
}

static void more_log(enum mode mode)
{
	writer_changes(3);
	if (mode == IS_FILLED) {
		mem->m_first = mem->m_last - 1;
		mem->m_base = true;
	}
}

static void crash_at_points(enum mode mode, bool power)
{
	const char *s = getenv("KV_CRASH_S"), *env = getenv("KV_COPY_SEED");
	unsigned seed = env ? (unsigned)atol(env) : (unsigned)time(NULL) ^ (unsigned)getpid();
	uint64_t ends = clock_mono_ns() + (s ? (uint64_t)atol(s) : 6) * 1000000000u;
	long n, at, done = 0;
	char cmd[400];

	points = mmap(NULL, sizeof(*points), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	ck_assert_ptr_ne(points, MAP_FAILED);
	snprintf(cmd, sizeof(cmd), "mkdir %s/b.cut", dir);
	ck_assert_int_eq(system(cmd), 0);
	more_log(mode);
	ck_assert_int_eq(look_apart(true), 0);
	more_log(mode);
	ck_assert_int_eq(run(mode, 0, false), 0);
	n = *points;
	ck_assert(n > 20 && n < 7919);
	at = (long)(seed % (unsigned)n);
	for (; done < n && clock_mono_ns() < ends && mem->m_last < MEM_BATCHES - 20; done++) {
		int rc;

		more_log(mode);
		at = (at + 7919) % n; /* a prime: each point comes once */
		rc = run(mode, at + 1, power);
		ck_assert_msg(rc == 9 || rc == 0, "seed %u, point %ld: life ends with %d", seed, at,
			      rc);
		if (rc == 9 && power)
			cut();
		rc = look_apart(done % 2);
		ck_assert_msg(rc == 0, "seed %u, point %ld: the next life finds %d", seed, at, rc);
		next_change++;
	}
	fprintf(stderr, "# %s, %s: %ld of %ld points, KV_COPY_SEED=%u\n",
		mode == IS_FILLED ? "filled again" : "takes over", power ? "power cut" : "kill",
		done, n, seed);
	ck_assert_int_gt(done, 0);
}

START_TEST(follower_that_is_killed_is_what_its_log_makes)
{
	crash_at_points(TAKES_OVER, false);
}
END_TEST

START_TEST(follower_that_loses_power_is_what_its_log_makes)
{
	crash_at_points(TAKES_OVER, true);
}
END_TEST

START_TEST(copy_that_is_killed_while_it_is_filled_again_is_filled)
{
	crash_at_points(IS_FILLED, false);
}
END_TEST

START_TEST(copy_that_loses_power_while_it_is_filled_again_is_filled)
{
	crash_at_points(IS_FILLED, true);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("kv copies that crash");
	TCase *c = tcase_create("crashes");

	tcase_add_checked_fixture(c, mem_setup, teardown);
	tcase_set_timeout(c, getenv("KV_CRASH_S") ? 3000 : 240);
	tcase_add_test(c, follower_that_is_killed_is_what_its_log_makes);
	tcase_add_test(c, follower_that_loses_power_is_what_its_log_makes);
	tcase_add_test(c, copy_that_is_killed_while_it_is_filled_again_is_filled);
	tcase_add_test(c, copy_that_loses_power_while_it_is_filled_again_is_filled);
	suite_add_tcase(s, c);
	return s;
}

int main(void)
{
	if (!getenv("TMPDIR") && access("/dev/shm", W_OK) == 0)
		setenv("TMPDIR", "/dev/shm", 1);
	return unit_run(suite());
}
