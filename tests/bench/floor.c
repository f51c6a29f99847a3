/* SPDX-License-Identifier: Apache-2.0 */
/*
 * floor.c - what this machine's memory, disk and LMDB allow, without a server. Each line of output
 * is a NAME and a number.
 *
 *   floor memory                         memcpy of what no cache holds
 *   floor disk FOLDER SECONDS            4 KiB written and synced, one after the other; and what
 *                                        the smallest commit of LMDB does: three pages, a sync, a
 *                                        page
 *   floor reads FOLDER SECONDS           random direct reads by io_uring, of 4 KiB with 16 and 1
 *                                        MiB with 8 in flight
 *   floor lmdb FOLDER SECONDS BATCH      LMDB alone: durable batches of puts of 200 bytes at random
 *                                        keys, then gets
 *   floor replay FILE FOLDER [nosync]    LMDB alone, with the batches that tests/bench/mds_record
 *                                        wrote to FILE; nosync: none is durable (MDB_NOSYNC)
 *
 * CPU time is this program's, in the kernel and outside.
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <lmdb.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096u
#define MIB  (1u << 20)
#define DATA (256u * MIB)
#define GONE UINT32_MAX /* a length of value that stands for a delete */

static void die(const char *what, int err)
{
	fprintf(stderr, "floor: %s: %s\n", what,
		err < 0 && err > MDB_LAST_ERRCODE ? mdb_strerror(err) : strerror(err));
	exit(1);
}

static double at(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static double now(void)
{
	return at(CLOCK_MONOTONIC);
}

static double cpu(void)
{
	return at(CLOCK_PROCESS_CPUTIME_ID);
}

static void *pages(size_t size)
{
	void *p;

	if (posix_memalign(&p, PAGE, size))
		die("memory", ENOMEM);
	return memset(p, 1, size);
}

static uint64_t rnd(void)
{
	static uint64_t x = 88172645463325252ull;

	x ^= x << 13;
	x ^= x >> 7;
	return x ^= x << 17;
}

static void memory(void)
{
	uint8_t *a = pages(DATA), *b = pages(DATA);
	double best = 1e9;

	for (int i = 0; i < 5; i++) {
		double began = cpu();

		memcpy(i & 1 ? a : b, i & 1 ? b : a, DATA);
		__asm__ volatile("" ::: "memory");
		if (cpu() - began < best)
			best = cpu() - began;
	}
	printf("memcpy_us_per_mib %.2f\n", best * 1e6 / (DATA / MIB));
	free(a);
	free(b);
}

static int file_open(const char *folder, const char *name, int flags)
{
	char path[4096];
	int fd;

	if (snprintf(path, sizeof(path), "%s/%s", folder, name) >= (int)sizeof(path))
		die(folder, ENAMETOOLONG);
	fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC | flags, 0600);
	if (fd < 0)
		die(path, errno);
	return fd;
}

/* One after the other for so long; per second, and the CPU time of one. */
static void syncs(const char *name, int fd, int meta, unsigned n, double seconds)
{
	uint8_t *page = pages(PAGE);
	double began = now(), spent = cpu();
	uint64_t done = 0;

	while (now() - began < seconds) {
		for (unsigned i = 0; i < n; i++)
			if (pwrite(fd, page, PAGE, (off_t)(rnd() % 4096) * PAGE) != PAGE)
				die("write", errno);
		if (fdatasync(fd) || (meta >= 0 && pwrite(meta, page, 256, 0) != 256))
			die("sync", errno);
		done++;
	}
	printf("%s_per_s %.1f\n%s_cpu_us %.1f\n", name, (double)done / (now() - began), name,
	       (cpu() - spent) * 1e6 / (double)done);
	free(page);
}

static void disk(const char *folder, double seconds)
{
	int fd = file_open(folder, "floor.sync", O_TRUNC),
	    meta = file_open(folder, "floor.sync", O_DSYNC);
	uint8_t *some = pages(MIB);

	for (unsigned i = 0; i < 16; i++)
		if (pwrite(fd, some, MIB, (off_t)i * MIB) != MIB)
			die("write", errno);
	fsync(fd);
	syncs("fdatasync", fd, -1, 1, seconds);
	syncs("commit", fd, meta, 3, seconds);
	close(fd);
	close(meta);
	free(some);
}

static void reads_of(const char *name, int fd, unsigned size, unsigned depth, double seconds)
{
	uint8_t *memory = pages((size_t)size * depth);
	struct io_uring ring;
	struct io_uring_cqe *cqe;
	double began = now(), spent = cpu();
	uint64_t done = 0;
	unsigned busy = 0;
	int err = io_uring_queue_init(depth, &ring, 0);

	if (err)
		die("io_uring", -err);
	for (unsigned i = 0; i < depth; i++, busy++) {
		struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);

		io_uring_prep_read(sqe, fd, memory + (size_t)i * size, size,
				   (off_t)(rnd() % (DATA / size)) * size);
		sqe->user_data = i;
	}
	while (busy) {
		err = io_uring_submit_and_wait(&ring, 1);
		if (err < 0)
			die("io_uring", -err);
		while (busy && !io_uring_peek_cqe(&ring, &cqe)) {
			uint64_t i = cqe->user_data;

			if (cqe->res != (int)size)
				die("read", cqe->res < 0 ? -cqe->res : EIO);
			io_uring_cqe_seen(&ring, cqe);
			done++;
			busy--;
			if (now() - began < seconds) {
				struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);

				io_uring_prep_read(sqe, fd, memory + i * size, size,
						   (off_t)(rnd() % (DATA / size)) * size);
				sqe->user_data = i;
				busy++;
			}
		}
	}
	printf("read_%s_per_s %.0f\nread_%s_cpu_us %.2f\n", name, (double)done / (now() - began),
	       name, (cpu() - spent) * 1e6 / (double)done);
	io_uring_queue_exit(&ring);
	free(memory);
}

static void reads(const char *folder, double seconds)
{
	int fd = file_open(folder, "floor.data", O_TRUNC), direct;
	uint8_t *some = pages(MIB);

	for (unsigned i = 0; i < DATA / MIB; i++)
		if (pwrite(fd, some, MIB, (off_t)i * MIB) != MIB)
			die("write", errno);
	if (fsync(fd))
		die("sync", errno);
	close(fd);
	direct = file_open(folder, "floor.data", O_DIRECT);
	reads_of("4k", direct, 4096, 16, seconds);
	reads_of("1m", direct, MIB, 8, seconds);
	close(direct);
	free(some);
}

/* ---- LMDB ---- */

static uint64_t synced;

/* LMDB's too: what a program defines goes before a shared library's. */
int fdatasync(int fd)
{
	synced++;
	return (int)syscall(SYS_fdatasync, fd);
}

static MDB_env *env_open(const char *folder, unsigned flags, MDB_dbi *dbi)
{
	MDB_env *env;
	MDB_txn *txn;
	int err = mkdir(folder, 0700) && errno != EEXIST ? errno : 0;

	if (err || (err = mdb_env_create(&env)) || (err = mdb_env_set_mapsize(env, 16ull << 30)) ||
	    (err = mdb_env_open(env, folder, MDB_NOTLS | MDB_NORDAHEAD | flags, 0600)) ||
	    (err = mdb_txn_begin(env, NULL, 0, &txn)) ||
	    (err = mdb_dbi_open(txn, NULL, MDB_CREATE, dbi)) || (err = mdb_txn_commit(txn)))
		die(folder, err);
	return env;
}

static void lmdb(const char *folder, double seconds, unsigned batch)
{
	MDB_dbi dbi;
	MDB_env *env = env_open(folder, 0, &dbi);
	MDB_txn *txn;
	static char value[200];
	double began, spent;
	uint64_t n = 0;
	int err;

	for (began = now(), spent = cpu(); now() - began < seconds;) {
		if ((err = mdb_txn_begin(env, NULL, 0, &txn)))
			die("LMDB", err);
		for (unsigned i = 0; i < batch; i++, n++) {
			uint64_t key = rnd() % 1000000;

			if ((err = mdb_put(txn, dbi, &(MDB_val){sizeof(key), &key},
					   &(MDB_val){sizeof(value), value}, 0)))
				die("put", err);
		}
		if ((err = mdb_txn_commit(txn)))
			die("commit", err);
	}
	printf("lmdb_puts_per_cpu_s %.0f\n", (double)n / (cpu() - spent));
	if ((err = mdb_txn_begin(env, NULL, MDB_RDONLY, &txn)))
		die("LMDB", err);
	n = 0;
	for (began = now(), spent = cpu(); now() - began < seconds / 2;)
		for (unsigned i = 0; i < 1000; i++, n++) {
			uint64_t key = rnd() % 1000000;
			MDB_val v;

			err = mdb_get(txn, dbi, &(MDB_val){sizeof(key), &key}, &v);
			if (err && err != MDB_NOTFOUND)
				die("get", err);
		}
	printf("lmdb_gets_per_cpu_s %.0f\n", (double)n / (cpu() - spent));
	mdb_txn_abort(txn);
	mdb_env_close(env);
}

/* One write of a batch. */
static void write_of(FILE *f, MDB_txn *txn, MDB_dbi dbi)
{
	static char key[512], value[1 << 20];
	uint32_t len[2];
	MDB_val k, v;
	int err;

	if (fread(len, sizeof(len), 1, f) != 1 || len[0] > sizeof(key) ||
	    (len[1] != GONE && len[1] > sizeof(value)) || fread(key, len[0], 1, f) != 1 ||
	    (len[1] != GONE && len[1] && fread(value, len[1], 1, f) != 1))
		die("the record is cut", EINVAL);
	k = (MDB_val){len[0], key};
	v = (MDB_val){len[1], value};
	err = len[1] == GONE ? mdb_del(txn, dbi, &k, NULL) : mdb_put(txn, dbi, &k, &v, 0);
	if (err && err != MDB_NOTFOUND)
		die("replay", err);
}

static void replay(const char *path, const char *folder, unsigned flags)
{
	FILE *f = fopen(path, "re");
	MDB_dbi dbi;
	MDB_env *env = env_open(folder, flags, &dbi);
	uint32_t n;
	uint64_t batches = 0, writes = 0, before = synced;
	double spent = cpu();

	if (!f)
		die(path, errno);
	while (fread(&n, sizeof(n), 1, f) == 1) {
		MDB_txn *txn;
		int err = mdb_txn_begin(env, NULL, 0, &txn);

		if (err)
			die("LMDB", err);
		for (uint32_t i = 0; i < n; i++)
			write_of(f, txn, dbi);
		if ((err = mdb_txn_commit(txn)))
			die("commit", err);
		batches++;
		writes += n;
	}
	printf("replay_cpu_us %.0f\nreplay_batches %llu\nreplay_writes %llu\nreplay_syncs %llu\n",
	       (cpu() - spent) * 1e6, (unsigned long long)batches, (unsigned long long)writes,
	       (unsigned long long)(synced - before));
	mdb_env_close(env);
	fclose(f);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	if (argc == 2 && !strcmp(what, "memory"))
		memory();
	else if (argc == 4 && !strcmp(what, "disk"))
		disk(argv[2], atof(argv[3]));
	else if (argc == 4 && !strcmp(what, "reads"))
		reads(argv[2], atof(argv[3]));
	else if (argc == 5 && !strcmp(what, "lmdb") && atoi(argv[4]) > 0)
		lmdb(argv[2], atof(argv[3]), (unsigned)atoi(argv[4]));
	else if ((argc == 4 || (argc == 5 && !strcmp(argv[4], "nosync"))) &&
		 !strcmp(what, "replay"))
		replay(argv[2], argv[3], argc == 5 ? MDB_NOSYNC : 0);
	else {
		fprintf(stderr, "usage: floor memory | disk FOLDER SECONDS | reads FOLDER SECONDS "
				"| lmdb FOLDER SECONDS BATCH | replay FILE FOLDER [nosync]\n");
		return 2;
	}
	return 0;
}
