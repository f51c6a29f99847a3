/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_log_test.c - the store's log: what was answered is there after any kill and any power cut,
 * once; what is damaged is refused.
 *
 * KV_LOG_SEED, KV_LOG_ROUNDS (soak).
 */
#include "base/clock.h"
#include "kv/kv_log.h"
#include "tests/unit/kv_power.h"
#include <lmdb.h>
#include <sys/file.h>

/* The model: what a store has after so many commits, from the seed alone. */

enum { KEYS = 200, VALUE = 9000 };
struct model {
	uint32_t m_val[KEYS]; /* 0: absent; else which value */
};
struct change {
	unsigned c_key;
	uint32_t c_val;
};

/* The changes that commit number i makes, in order. */
static unsigned changes(unsigned seed, uint32_t i, struct change c[8])
{
	unsigned s = seed ^ (i * 2654435761u), n;

	rand_r(&s);
	n = 1 + (unsigned)rand_r(&s) % (i % 50 == 7 ? 8 : 3);
	for (unsigned k = 0; k < n; k++)
		c[k] = (struct change){(unsigned)rand_r(&s) % KEYS,
				       rand_r(&s) % 4 ? i * 8 + k + 8 : 0};
	return n;
}

static size_t value(uint32_t val, char *buf)
{
	unsigned s = val;
	size_t n = val % 40 == 0 ? VALUE : (unsigned)rand_r(&s) % 300;

	memset(buf, 'a' + val % 26, n + 8);
	return (size_t)snprintf(buf, 12, "%08x", val) + n;
}

static void key_of(unsigned k, char key[16])
{
	snprintf(key, 16, "key %u", k);
}

struct commit {
	unsigned seed;
	uint32_t i;
};

static int run_commit(void *arg, struct kv_txn *t)
{
	const struct commit *cm = arg;
	struct change c[8];
	unsigned n = changes(cm->seed, cm->i, c);
	char key[16], val[VALUE + 32];
	int rc = 0, wrote = 0;

	for (unsigned k = 0; k < n && !rc; k++) {
		key_of(c[k].c_key, key);
		if (c[k].c_val)
			rc = kv_put(t, S(key), (struct kv_slice){val, value(c[k].c_val, val)});
		else
			rc = kv_del(t, S(key));
		wrote |= !rc;
		if (rc == -ENOENT)
			rc = 0;
	}
	if (!rc && !wrote) /* so that each is a commit */
		rc = kv_put(t, S("nothing"), S("x"));
	return rc;
}

static void model_run(struct model *m, unsigned seed, uint32_t i)
{
	struct change c[8];
	unsigned n = changes(seed, i, c);

	for (unsigned k = 0; k < n; k++)
		m->m_val[c[k].c_key] = c[k].c_val;
}

static bool model_is(const struct model *m, struct kv *kv)
{
	char key[16], val[VALUE + 32];
	struct kv_slice v, none = {"", 0}, k;
	unsigned there = 0, seen = 0;
	struct kv_scan sc;
	struct kv_txn *t;
	bool same = true;
	int rc;

	ck_assert_int_eq(kv_read_begin(kv, &t), 0);
	for (unsigned i = 0; i < KEYS; i++) {
		key_of(i, key);
		rc = kv_get(t, S(key), &v);
		ck_assert(rc == 0 || rc == -ENOENT);
		if (m->m_val[i])
			same = same && rc == 0 && v.s_len == value(m->m_val[i], val) &&
			       !memcmp(v.s_data, val, v.s_len);
		else
			same = same && rc == -ENOENT;
		there += m->m_val[i] != 0;
	}
	ck_assert_int_eq(kv_scan_begin(t, S("key"), none, &sc), 0);
	while ((rc = kv_scan_next(&sc, &k, &v)) == 1)
		seen++;
	ck_assert_int_eq(rc, 0);
	kv_scan_end(&sc);
	kv_read_end(t);
	return same && seen == there;
}

/* A run */

/* What no run fills, so that the log is kept from the store's begin on. */
#define ARCHIVE (64 * MIB)

static bool keeps_log(unsigned seed)
{
	return seed % 3 != 0;
}

/* Shared with the child. */
static struct told {
	_Atomic uint32_t acked, open;
} * told;

static unsigned seed_of(void)
{
	const char *s = getenv("KV_LOG_SEED");

	return s ? (unsigned)atol(s) : (unsigned)time(NULL) ^ (unsigned)getpid();
}

static unsigned rounds(unsigned few)
{
	const char *s = getenv("KV_LOG_ROUNDS");

	return s ? (unsigned)atol(s) : getenv("WEFT_SOAK") ? few * 20 : few;
}

/* In a child: opens the store in from, and commits from number first on, until the cut (or to the
 * end). Every other seed's store has no room to grow, so that there are checkpoints within
 * transactions and before each. Two of three stores keep their log. */
static void child(const char *from, unsigned seed, uint32_t first, uint32_t last)
{
	struct kv_opts o = {.ko_create = true,
			    .ko_map_max = seed % 2 ? 9200 << 10 : 0,
			    .ko_archive = keeps_log(seed) ? ARCHIVE : 0};
	struct kv *kv;

	log_set_level((enum log_level) - 1);
	sim.on = true;
	if (kv_open(&kv, from, &o, err, sizeof(err))) {
		fprintf(stderr, "open: %s\n", err);
		_exit(1);
	}
	told->open = 1;
	for (uint32_t i = first; i < last; i++) {
		struct commit cm = {seed, i};

		if (kv_run_sync(kv, run_commit, &cm))
			_exit(2);
		told->acked = i + 1;
		if (i % 64 == 63 && seed % 3 == 0) /* other moments for a checkpoint */
			usleep(1000);
	}
	kv_close(kv);
	_exit(0);
}

static int run_child(const char *from, const char *to, unsigned seed, long left, uint32_t first,
		     uint32_t last)
{
	int status;
	pid_t pid;

	told->acked = first;
	told->open = 0;
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		sim.seed = seed + (unsigned)left;
		sim.left = left;
		snprintf(sim.to, sizeof(sim.to), "%s", to);
		child(from, seed, first, last);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status) && (WEXITSTATUS(status) == 9 || WEXITSTATUS(status) == 0),
		      "seed %u, cut at call %ld: status %x", seed, left, status);
	return WEXITSTATUS(status);
}

static void copy_missing(const char *from, const char *to)
{
	char cmd[4000];

	/* Files that were not written to. */
	snprintf(cmd, sizeof(cmd),
		 "cd %s && for f in data.mdb redo.0 redo.1 archive/*; do [ ! -e $f ] || "
		 "[ -e %s/$f ] || { mkdir -p %s/$(dirname $f) && cp --sparse=always $f %s/$f; }; "
		 "done",
		 from, to, to, to);
	ck_assert_int_eq(system(cmd), 0);
}

/* The archive, written again from its first transaction on, is the store. */
static int written_again(void *arg, uint64_t txn, const struct kv_write *w)
{
	struct model *m = arg;
	char key[16] = "", val[12] = "";
	unsigned k;

	(void)txn;
	if (w->w_key.s_len >= sizeof(key) || (!w->w_del && w->w_val.s_len < 8))
		return w->w_key.s_len == 7 ? 0 : -EPROTO; /* "nothing" */
	memcpy(key, w->w_key.s_data, w->w_key.s_len);
	if (sscanf(key, "key %u", &k) != 1 || k >= KEYS)
		return -EPROTO;
	if (!w->w_del)
		memcpy(val, w->w_val.s_data, 8);
	m->m_val[k] = (uint32_t)strtoul(val, NULL, 16);
	return 0;
}

static void check_archive(const char *folder, const struct model *m, struct kv *kv, unsigned seed,
			  long left)
{
	struct model again = {0};
	struct kv_archive a;
	struct kv_txn *t;
	uint64_t newest;
	int rc;

	ck_assert_int_eq(kv_read_begin(kv, &t), 0);
	newest = kv_read_number(t);
	kv_read_end(t);
	rc = kv_archive_look(folder, &a);
	ck_assert_msg(rc == 0 && a.ka_last == newest,
		      "seed %u, cut at call %ld: the archive has %lu of %lu: %s", seed, left,
		      (unsigned long)a.ka_last, (unsigned long)newest, strerror(-rc));
	if (a.ka_last >= a.ka_first)
		rc = kv_archive_read(folder, a.ka_id, a.ka_first, a.ka_last, written_again, &again);
	ck_assert_msg(!rc && !memcmp(&again, m, sizeof(again)),
		      "seed %u, cut at call %ld: the archive is not the store: %s", seed, left,
		      strerror(-rc));
}

/* The store in folder has exactly the first acked commits, or one more: the one that was not
 * answered. Gives their number. */
static uint32_t check_store(const char *folder, unsigned seed, long left, uint32_t acked)
{
	struct model m = {0};
	struct kv *kv = NULL;
	uint32_t has;
	int rc = kv_open(&kv, folder, &(struct kv_opts){.ko_create = true}, err, sizeof(err));

	ck_assert_msg(rc == 0, "seed %u, cut at call %ld: %s", seed, left, err);
	for (has = 0; has < acked; has++)
		model_run(&m, seed, has);
	if (!model_is(&m, kv)) {
		model_run(&m, seed, has++);
		ck_assert_msg(model_is(&m, kv),
			      "seed %u, cut at call %ld: not what was answered, %u commits", seed,
			      left, acked);
	}
	if (left && keeps_log(seed)) /* in a run with cuts */
		check_archive(folder, &m, kv, seed, left);
	kv_close(kv);
	return has;
}

static struct kv *open_at(const char *path)
{
	struct kv *kv = NULL;
	int rc = kv_open(&kv, path, &create, err, sizeof(err));

	ck_assert_msg(rc == 0, "%s", err);
	return kv;
}

static struct kv *open_first(const char *path, unsigned seed)
{
	struct kv_opts o = {.ko_create = true, .ko_archive = keeps_log(seed) ? ARCHIVE : 0};
	struct kv *kv = NULL;
	int rc = kv_open(&kv, path, &o, err, sizeof(err));

	ck_assert_msg(rc == 0, "%s", err);
	return kv;
}

static void one_run(unsigned seed, bool power)
{
	char a[300], b[300], cmd[2000];
	uint32_t has = 0;
	unsigned s = seed;

	snprintf(a, sizeof(a), "%s/a", dir);
	snprintf(b, sizeof(b), "%s/b", dir);
	snprintf(cmd, sizeof(cmd), "rm -rf %s %s; mkdir %s", a, b, b);
	for (int cut = 0; cut < 6; cut++) {
		/* Within recovery as well: there are calls before the first commit. */
		long left = 1 + (rand_r(&s) % 3 == 0 ? rand_r(&s) % 40 : rand_r(&s) % 3000);
		uint32_t last = has + 150 + (unsigned)rand_r(&s) % 300;
		int how;

		if (cut == 0) {
			ck_assert_int_eq(system(cmd), 0);
			kv_close(open_first(a, seed));
		}
		how = run_child(a, power ? b : "", seed, left, has, last);
		if (how == 9 && power) {
			copy_missing(a, b);
			snprintf(cmd, sizeof(cmd), "rm -rf %s; mv %s %s; mkdir %s", a, b, a, b);
			ck_assert_int_eq(system(cmd), 0);
		}
		/* Half of the time what a cut left is cut again before anybody looks at it
		 * whole. */
		if (how == 9 && rand_r(&s) % 2) {
			uint32_t acked = told->acked;

			how = run_child(a, power ? b : "", seed, 1 + rand_r(&s) % 60, acked, acked);
			told->acked = acked;
			if (how == 9 && power) {
				copy_missing(a, b);
				ck_assert_int_eq(system(cmd), 0);
			}
		}
		has = check_store(a, seed, left, told->acked);
	}
	snprintf(cmd, sizeof(cmd), "rm -rf %s %s", a, b);
	ck_assert_int_eq(system(cmd), 0);
}

START_TEST(power_cuts_lose_nothing_and_add_nothing)
{
	unsigned seed = seed_of();

	fprintf(stderr, "# power cuts: KV_LOG_SEED=%u\n", seed);
	for (unsigned i = 0; i < rounds(6); i++)
		one_run(seed + i, true);
}
END_TEST

START_TEST(kills_lose_nothing_and_add_nothing)
{
	unsigned seed = seed_of();

	fprintf(stderr, "# kills: KV_LOG_SEED=%u\n", seed);
	for (unsigned i = 0; i < rounds(6); i++)
		one_run(seed + i, false);
}
END_TEST

static void in_store(char file[300], const char *name)
{
	snprintf(file, 300, "%s/%s", dir, name);
}

/* A file system of larger blocks than the log's. A file of memory can be open with O_DIRECT since
 * Linux 6.6. */
START_TEST(device_that_wants_larger_writes_loses_nothing)
{
	char file[300];
	struct kv *kv;
	int fd;

	in_store(file, "direct");
	fd = open(file, O_CREAT | O_RDWR | O_DIRECT, 0600);
	if (fd < 0) {
		fprintf(stderr, "# no direct writes here, skipped\n");
		return;
	}
	close(fd);
	sim.demand = 16384;
	kv = open_at(dir);
	ck_assert_int_eq(script(kv, "+a=1"), 0);
	kv_close(kv);
	ck_assert_uint_ge(sim.misaligned, 1);
	ck_assert_uint_le(sim.misaligned, 2); /* once for each file of the log */
	for (unsigned i = 0, seed = seed_of(); i < rounds(2); i++)
		one_run(seed + i, true);
}
END_TEST

/* What is refused, and what is not */

enum { SEED = 7 };

/* A store in dir that n commits were made in, and that was not closed. */
static void killed_store(uint32_t first, uint32_t n)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		struct kv *kv = open_at(dir);

		for (uint32_t i = first; i < n; i++) {
			struct commit cm = {SEED, i};

			if (kv_run_sync(kv, run_commit, &cm))
				_exit(1);
		}
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}

static void read_file(const char *name, char **out, size_t *n)
{
	char file[300];
	struct stat st;
	int fd;

	in_store(file, name);
	fd = open(file, O_RDONLY);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fstat(fd, &st), 0);
	*out = malloc((size_t)st.st_size);
	*n = (size_t)st.st_size;
	ck_assert_int_eq(read(fd, *out, *n), (ssize_t)*n);
	close(fd);
}

static void write_file(const char *name, const void *data, size_t n, off_t at)
{
	char file[300];
	int fd;

	in_store(file, name);
	fd = open(file, O_WRONLY);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pwrite(fd, data, n, at), (ssize_t)n);
	close(fd);
}

/* The newest header's file, and where the records in it begin; at[n] is their end. */
static const char *records(char **log, size_t *size, size_t at[], unsigned n)
{
	char *buf[2];
	size_t len[2];
	unsigned i;

	read_file("redo.0", &buf[0], &len[0]);
	read_file("redo.1", &buf[1], &len[1]);
	i = ((struct kv_log_head *)buf[1])->lh_gen > ((struct kv_log_head *)buf[0])->lh_gen;
	ck_assert(kv_log_head_ok((struct kv_log_head *)buf[i]));
	*log = buf[i];
	*size = len[i];
	free(buf[i ^ 1]);
	at[0] = KV_LOG_BLOCK;
	for (unsigned k = 0; k < n; k++) {
		struct kv_log_rec *r = (struct kv_log_rec *)(*log + at[k]);

		ck_assert_int_eq(memcmp(r->rl_magic, "WEFTREC", 7), 0);
		at[k + 1] = at[k] + (r->rl_len + KV_LOG_BLOCK - 1) / KV_LOG_BLOCK * KV_LOG_BLOCK;
	}
	return i ? "redo.1" : "redo.0";
}

static void all_of(char *data[3], size_t len[3])
{
	read_file("data.mdb", &data[0], &len[0]);
	read_file("redo.0", &data[1], &len[1]);
	read_file("redo.1", &data[2], &len[2]);
}

static void put_all(char *data[3], size_t len[3])
{
	write_file("data.mdb", data[0], len[0], 0);
	write_file("redo.0", data[1], len[1], 0);
	write_file("redo.1", data[2], len[2], 0);
}

static uint32_t commits_in_store(uint32_t most)
{
	return check_store(dir, SEED, 0, most);
}

static int refused(const char *why)
{
	struct kv *kv = NULL;
	int rc = kv_open(&kv, dir, &create, err, sizeof(err));

	ck_assert_msg(rc < 0 && strstr(err, why), "%d: %s", rc, err);
	ck_assert_int_eq(
		kv_open(&kv, dir, &(struct kv_opts){.ko_readonly = true}, err, sizeof(err)), rc);
	ck_assert_ptr_nonnull(strstr(err, why));
	return rc;
}

/* A record is whole or is not there, wherever it was torn. */
START_TEST(torn_last_record_is_not_done)
{
	enum { N = 5 };
	char *was[3], *log;
	size_t len[3], size, at[N + 1];
	const char *name;
	uint32_t bytes;

	killed_store(0, N);
	all_of(was, len);
	name = records(&log, &size, at, N);
	bytes = ((struct kv_log_rec *)(log + at[N - 1]))->rl_len;
	for (uint32_t cut = 0; cut <= bytes; cut += cut < 80 || cut + 80 > bytes ? 1 : 37) {
		struct model m = {0};
		struct kv *kv;

		put_all(was, len);
		for (uint32_t k = cut; k < bytes; k++)
			log[at[N - 1] + k] =
				(char)(was[name[5] == '1' ? 2 : 1][at[N - 1] + k] ^ (k % 255 + 1));
		memcpy(log + at[N - 1], was[name[5] == '1' ? 2 : 1] + at[N - 1], cut);
		write_file(name, log, size, 0);
		for (uint32_t k = 0; k + (cut < bytes) < N; k++)
			model_run(&m, SEED, k);
		kv = open_at(dir);
		ck_assert_msg(model_is(&m, kv), "torn at byte %u of %u", cut, bytes);
		kv_close(kv);
	}
	for (int i = 0; i < 3; i++)
		free(was[i]);
	free(log);
}
END_TEST

START_TEST(damaged_record_with_others_behind_it_is_refused)
{
	enum { N = 6 };
	size_t size, at[N + 1];
	const char *name;
	char *log, byte;

	killed_store(0, N);
	name = records(&log, &size, at, N);
	for (unsigned k = 0; k < N - 1; k++) {
		for (unsigned b = 0; b < 80; b += 9) {
			byte = (char)(log[at[k] + b] ^ 0x20);
			write_file(name, &byte, 1, (off_t)(at[k] + b));
			ck_assert_int_eq(refused("the log is damaged"), -EIO);
			write_file(name, log + at[k] + b, 1, (off_t)(at[k] + b));
		}
	}
	free(log);
	ck_assert_uint_eq(commits_in_store(N), N);
}
END_TEST

/* The last whole record is not at the end of one file where the other goes on. */
START_TEST(record_missing_at_the_end_of_a_file_is_refused)
{
	struct kv_log_want want = {.lw_at = KV_LOG_BLOCK};
	size_t len[3], size, at[2];
	struct kv_log_head *h;
	struct kv_log_rec *r;
	char *was[3], *log;
	const char *name;

	killed_store(0, 1);
	all_of(was, len);
	name = records(&log, &size, at, 1);
	h = (struct kv_log_head *)log;
	r = (struct kv_log_rec *)(log + at[0]);
	want.lw_id = h->lh_id;
	want.lw_gen = h->lh_gen + 1;
	kv_log_rec_seal(&want, h->lh_gen, r->rl_txnid + 1, r->rl_n, r, r->rl_len);
	write_file(name[5] == '1' ? "redo.0" : "redo.1", r, r->rl_len, KV_LOG_BLOCK);
	ck_assert_int_eq(kv_log_rec_len(&want, r, size) > 0, true);
	/* It follows: nothing is wrong, and it is done. */
	killed_store(1, 1);
	put_all(was, len);
	kv_log_rec_seal(&want, h->lh_gen, r->rl_txnid + 1, r->rl_n, r, r->rl_len);
	write_file(name[5] == '1' ? "redo.0" : "redo.1", r, r->rl_len, KV_LOG_BLOCK);
	ck_assert_int_eq(refused("a transaction is missing"), -EIO);
	for (int i = 0; i < 3; i++)
		free(was[i]);
	free(log);
}
END_TEST

START_TEST(newest_header_that_is_damaged_is_not_passed_over)
{
	size_t size, at[3];
	const char *name;
	char *log, byte;

	killed_store(0, 300); /* checkpoints were made */
	name = records(&log, &size, at, 2);
	byte = (char)(log[100] ^ 1);
	write_file(name, &byte, 1, 100);
	ck_assert_int_eq(refused("the log is damaged"), -EIO);
	write_file(name, log + 100, 1, 100);
	ck_assert_uint_eq(commits_in_store(300), 300);
	free(log);
}
END_TEST

START_TEST(half_a_log_is_refused)
{
	char file[300], away[320];

	killed_store(0, 20);
	for (int i = 0; i < 2; i++) {
		snprintf(file, sizeof(file), "%s/redo.%d", dir, i);
		snprintf(away, sizeof(away), "%s.away", file);
		ck_assert_int_eq(rename(file, away), 0);
		ck_assert_int_lt(refused("redo."), 0);
		ck_assert_int_eq(rename(away, file), 0);
	}
	ck_assert_uint_eq(commits_in_store(20), 20);
}
END_TEST

START_TEST(log_is_not_applied_to_a_data_file_from_a_copy)
{
	size_t n;
	char *old;

	killed_store(0, 10);
	ck_assert_uint_eq(commits_in_store(10), 10);
	read_file("data.mdb", &old, &n);
	/* Closed since: the log says nothing, and the copy is what it is. */
	for (uint32_t i = 10; i < 20; i++) {
		struct kv *kv = open_at(dir);
		struct commit cm = {SEED, i};

		ck_assert_int_eq(kv_run_sync(kv, run_commit, &cm), 0);
		kv_close(kv);
	}
	write_file("data.mdb", old, n, 0);
	ck_assert_uint_eq(commits_in_store(10), 10);
	killed_store(10, 400);
	write_file("data.mdb", old, n, 0);
	ck_assert_int_eq(refused("another data.mdb"), -ESTALE);
	free(old);
}
END_TEST

START_TEST(copy_of_the_whole_folder_after_a_crash_is_the_store)
{
	char cmd[2000], to[300];

	killed_store(0, 150);
	snprintf(to, sizeof(to), "%s/copy", dir);
	snprintf(cmd, sizeof(cmd), "mkdir %s && cp %s/*.mdb %s/redo.* %s", to, dir, dir, to);
	ck_assert_int_eq(system(cmd), 0);
	ck_assert_uint_eq(check_store(to, SEED, 0, 150), 150);
	ck_assert_uint_eq(commits_in_store(150), 150);
}
END_TEST

START_TEST(read_only_open_after_a_crash_sees_everything)
{
	struct model m = {0};
	struct kv *kv = NULL;

	killed_store(0, 50);
	for (uint32_t i = 0; i < 50; i++)
		model_run(&m, SEED, i);
	ck_assert_int_eq(
		kv_open(&kv, dir, &(struct kv_opts){.ko_readonly = true}, err, sizeof(err)), 0);
	ck_assert(model_is(&m, kv));
	kv_close(kv);
}
END_TEST

START_TEST(reader_of_before_the_crash_is_waited_for_and_named)
{
	struct kv_opts ro = {.ko_readonly = true};
	struct kv *kv = NULL;
	int in[2], status;
	char c, pid_text[32];
	pid_t writer, reader;

	ck_assert_int_eq(pipe(in), 0);
	writer = fork();
	if (writer == 0) {
		kv = open_at(dir);
		script(kv, "+a=1");
		ck_assert_int_eq(write(in[1], "w", 1), 1);
		pause();
	}
	ck_assert_int_eq(read(in[0], &c, 1), 1);
	reader = fork();
	if (reader == 0) {
		if (kv_open(&kv, dir, &ro, err, sizeof(err)) || write(in[1], "r", 1) != 1)
			_exit(1);
		pause();
	}
	ck_assert_int_eq(read(in[0], &c, 1), 1);
	kill(writer, SIGKILL);
	waitpid(writer, &status, 0);
	ck_assert_int_eq(kv_open(&kv, dir, &create, err, sizeof(err)), -ETXTBSY);
	snprintf(pid_text, sizeof(pid_text), "process %d ", (int)reader);
	ck_assert_msg(strstr(err, pid_text) != NULL, "%s", err);
	kill(reader, SIGKILL);
	waitpid(reader, &status, 0);
	kv = open_at(dir);
	ck_assert(has(kv, "a", "1"));
	kv_close(kv);
}
END_TEST

/* Has the store's lock, as one who has just begun to open it has; what LOCK says is of the one
 * before. */
static int lock_file(void)
{
	char file[300];
	int fd;

	in_store(file, "LOCK");
	fd = open(file, O_RDWR);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(flock(fd, LOCK_EX), 0);
	return fd;
}

START_TEST(reader_waits_until_the_writer_has_done_the_log_again)
{
	struct flock mark = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
	struct kv_opts ro = {.ko_readonly = true};
	struct kv *kv = NULL;
	int fd;

	killed_store(0, 5);
	fd = lock_file();
	ck_assert_int_eq(kv_open(&kv, dir, &ro, err, sizeof(err)), -EBUSY);
	ck_assert_ptr_nonnull(strstr(err, "about to open"));
	ck_assert_int_eq(fcntl(fd, F_OFD_SETLK, &mark), 0);
	ck_assert_int_eq(kv_open(&kv, dir, &ro, err, sizeof(err)), 0);
	kv_close(kv);
	close(fd);
	ck_assert_uint_eq(commits_in_store(5), 5);
}
END_TEST

START_TEST(writer_waits_for_one_who_has_the_store_for_a_moment)
{
	int in[2], status;
	pid_t pid;
	char c;

	killed_store(0, 5);
	ck_assert_int_eq(pipe(in), 0);
	pid = fork();
	if (pid == 0) {
		lock_file();
		ck_assert_int_eq(write(in[1], "l", 1), 1);
		usleep(1000000);
		_exit(0);
	}
	ck_assert_int_eq(read(in[0], &c, 1), 1);
	ck_assert_uint_eq(commits_in_store(5), 5);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	close(in[0]);
	close(in[1]);
}
END_TEST

static bool read_killed(void)
{
	struct model m = {0};
	struct kv *kv;
	bool yes;

	if (kv_open(&kv, dir, &(struct kv_opts){.ko_readonly = true}, err, sizeof(err))) {
		fprintf(stderr, "%s\n", err);
		return false;
	}
	for (uint32_t i = 0; i < 60; i++)
		model_run(&m, SEED, i);
	yes = model_is(&m, kv);
	kv_close(kv);
	return yes;
}

/* One of them does the log again; the others, and the writer, wait for it. */
START_TEST(readers_and_a_writer_may_come_at_once_after_a_crash)
{
	uint64_t until = clock_mono_ns() + 3000000000ull;

	while (clock_mono_ns() < until) {
		pid_t pid[4];
		int status;

		killed_store(0, 60);
		for (int i = 0; i < 4; i++) {
			pid[i] = fork();
			if (pid[i] == 0)
				_exit(read_killed() ? 0 : 1);
		}
		ck_assert_uint_eq(commits_in_store(60), 60);
		for (int i = 0; i < 4; i++) {
			ck_assert_int_eq(waitpid(pid[i], &status, 0), pid[i]);
			ck_assert_int_eq(status, 0);
		}
		scratch_remove(dir);
		setup();
	}
}
END_TEST

START_TEST(sync_and_nosync_take_turns)
{
	struct kv_opts no = {.ko_create = true, .ko_nosync = true};
	struct kv *kv;

	kv = open_kv(&no);
	ck_assert_int_eq(script(kv, "+a=1"), 0);
	kv_close(kv);
	kv = open_kv(&create);
	ck_assert(has(kv, "a", "1"));
	ck_assert_int_eq(script(kv, "-a"), 0);
	kv_close(kv);
	killed_store(0, 30); /* its log is done again, and is of no use after it */
	kv = open_kv(&no);
	for (uint32_t i = 30; i < 60; i++) {
		struct commit cm = {SEED, i};

		ck_assert_int_eq(kv_run_sync(kv, run_commit, &cm), 0);
	}
	kv_close(kv);
	ck_assert_uint_eq(commits_in_store(60), 60);
}
END_TEST

START_TEST(store_without_a_log_gets_one)
{
	char file[300];
	struct kv *kv;

	killed_store(0, 10);
	ck_assert_uint_eq(commits_in_store(10), 10);
	in_store(file, "redo.0");
	ck_assert_int_eq(unlink(file), 0);
	in_store(file, "redo.1");
	ck_assert_int_eq(unlink(file), 0);
	kv = open_kv(&(struct kv_opts){0});
	kv_close(kv);
	ck_assert_int_eq(access(file, F_OK), 0);
	killed_store(10, 30);
	ck_assert_uint_eq(commits_in_store(30), 30);
}
END_TEST

static int run_large(void *arg, struct kv_txn *t)
{
	static char val[KV_VALUE_MAX];
	char key[16];
	int rc = 0;

	(void)arg;
	for (unsigned i = 0; i < 5 && !rc; i++) {
		snprintf(key, sizeof(key), "large %u", i);
		memset(val, 'a' + (int)i, sizeof(val));
		rc = kv_put(t, S(key), (struct kv_slice){val, sizeof(val) - i});
	}
	return rc;
}

/* Twice, so that both files do. */
START_TEST(log_grows_for_a_batch_that_is_larger)
{
	int status;
	pid_t pid = fork();
	struct kv_slice v;
	struct kv_txn *t;
	struct kv *kv;

	if (pid == 0) {
		kv = open_kv(&create);
		for (int i = 0; i < 3; i++)
			if (script(kv, "+a=1") || kv_run_sync(kv, run_large, NULL))
				_exit(1);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	ck_assert_int_eq(status, 0);
	kv = open_kv(&create);
	ck_assert_int_eq(kv_read_begin(kv, &t), 0);
	for (unsigned i = 0; i < 5; i++) {
		char key[16];

		snprintf(key, sizeof(key), "large %u", i);
		ck_assert_int_eq(kv_get(t, S(key), &v), 0);
		ck_assert(v.s_len == KV_VALUE_MAX - i && *(const char *)v.s_data == 'a' + (char)i &&
			  ((const char *)v.s_data)[v.s_len - 1] == 'a' + (char)i);
	}
	kv_read_end(t);
	kv_close(kv);
}
END_TEST

START_TEST(checkpoint_comes_by_itself)
{
	struct kv *kv = open_kv(&create);
	struct kv_stats st;

	ck_assert_int_eq(script(kv, "+a=1"), 0);
	kv_stats(kv, &st);
	ck_assert_uint_eq(st.ks_checkpoints, 1);
	for (int i = 0; i < 80 && st.ks_checkpoints == 1; i++) {
		usleep(100000);
		kv_stats(kv, &st);
	}
	ck_assert_uint_eq(st.ks_checkpoints, 2);
	kv_close(kv);
}
END_TEST

static void setup_log(void)
{
	setup();
	told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(told, MAP_FAILED);
	log_set_level(LOG_L_ERROR);
}

static Suite *suite(void)
{
	Suite *s = suite_create("kv log");
	TCase *c = tcase_create("crashes"), *d = tcase_create("damage and copies");

	tcase_add_checked_fixture(c, setup_log, teardown);
	tcase_set_timeout(c, getenv("WEFT_SOAK") || getenv("KV_LOG_ROUNDS") ? 3000 : 120);
	tcase_add_test(c, power_cuts_lose_nothing_and_add_nothing);
	tcase_add_test(c, kills_lose_nothing_and_add_nothing);
	tcase_add_test(c, device_that_wants_larger_writes_loses_nothing);
	suite_add_tcase(s, c);
	tcase_add_checked_fixture(d, setup_log, teardown);
	tcase_set_timeout(d, 60);
	tcase_add_test(d, torn_last_record_is_not_done);
	tcase_add_test(d, damaged_record_with_others_behind_it_is_refused);
	tcase_add_test(d, record_missing_at_the_end_of_a_file_is_refused);
	tcase_add_test(d, newest_header_that_is_damaged_is_not_passed_over);
	tcase_add_test(d, half_a_log_is_refused);
	tcase_add_test(d, log_is_not_applied_to_a_data_file_from_a_copy);
	tcase_add_test(d, copy_of_the_whole_folder_after_a_crash_is_the_store);
	tcase_add_test(d, read_only_open_after_a_crash_sees_everything);
	tcase_add_test(d, reader_of_before_the_crash_is_waited_for_and_named);
	tcase_add_test(d, reader_waits_until_the_writer_has_done_the_log_again);
	tcase_add_test(d, writer_waits_for_one_who_has_the_store_for_a_moment);
	tcase_add_test(d, readers_and_a_writer_may_come_at_once_after_a_crash);
	tcase_add_test(d, sync_and_nosync_take_turns);
	tcase_add_test(d, store_without_a_log_gets_one);
	tcase_add_test(d, log_grows_for_a_batch_that_is_larger);
	tcase_add_test(d, checkpoint_comes_by_itself);
	suite_add_tcase(s, d);
	return s;
}

int main(void)
{
	/* Thousands of commits: memory syncs fast. */
	if (!getenv("TMPDIR") && access("/dev/shm", W_OK) == 0)
		setenv("TMPDIR", "/dev/shm", 1);
	return unit_run(suite());
}
