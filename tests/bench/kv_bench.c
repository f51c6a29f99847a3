/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_bench.c - how fast the store commits: N puts in flight from loop threads, each resubmitted
 * when it is answered.
 *
 * kv_bench [-d folder] [-n in flight] [-t loops] [-s seconds] [-v value bytes] [-k distinct keys]
 * [-N]
 *
 * After it, in the same folder, the disk's own rate of what the average commit did: write as many
 * scattered pages, fdatasync, write the meta page with O_DSYNC. "of the disk" is commits per second
 * against that. -N: not durable.
 */
#include "base/log.h"
#include "kv/kv.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <urcu/compiler.h>

static struct {
	const char *dir;
	unsigned inflight, loops, seconds, value, keys;
	bool nosync;
} conf = {.dir = "/tmp/kv_bench",
	  .inflight = 64,
	  .loops = 4,
	  .seconds = 3,
	  .value = 256,
	  .keys = 1000000};

static struct kv *kv;
static char value[KV_VALUE_MAX];
static _Atomic bool stop;
static _Atomic uint64_t running, done, waited_ns;

struct put {
	struct kv_op p_op;
	struct loop_msg p_start;
	uint64_t p_rand, p_begun;
};

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static int put_run(struct kv_op *op, struct kv_txn *t)
{
	struct put *p = caa_container_of(op, struct put, p_op);
	uint64_t key = __builtin_bswap64(p->p_rand % conf.keys);

	return kv_put(t, (struct kv_slice){&key, sizeof(key)},
		      (struct kv_slice){value, conf.value});
}

static void put_start(struct put *p)
{
	p->p_rand = p->p_rand * 6364136223846793005u + 1442695040888963407u;
	p->p_rand ^= p->p_rand >> 29;
	p->p_begun = now_ns();
	kv_submit(kv, &p->p_op);
}

static void put_done(struct kv_op *op, int rc)
{
	struct put *p = caa_container_of(op, struct put, p_op);

	if (rc)
		log_fatal("put: %s", strerror(-rc));
	atomic_fetch_add_explicit(&done, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&waited_ns, now_ns() - p->p_begun, memory_order_relaxed);
	if (atomic_load(&stop))
		atomic_fetch_sub(&running, 1);
	else
		put_start(p);
}

static void start_msg(struct loop_msg *m)
{
	put_start(caa_container_of(m, struct put, p_start));
}

static void *loop_thread(void *arg)
{
	loop_run(arg);
	return NULL;
}

/* Bytes this process has written, by system calls. */
static uint64_t bytes_written(void)
{
	FILE *f = fopen("/proc/self/io", "r");
	unsigned long long n = 0;

	if (!f || fscanf(f, "rchar: %*u wchar: %llu", &n) != 1)
		log_fatal("/proc/self/io: %m");
	fclose(f);
	return n;
}

#define PROBE_PAGES 16384u

static void probe_commit(int fd, int sync_fd, unsigned pages)
{
	static char page[4096];

	for (unsigned i = 0; i < pages; i++) {
		off_t at = (off_t)((unsigned)rand() % PROBE_PAGES) * 4096;

		if (pwrite(fd, page, sizeof(page), at) < 0)
			log_fatal("probe: %m");
	}
	if (fdatasync(fd) < 0 || pwrite(sync_fd, page, 256, 0) < 0)
		log_fatal("probe: %m");
}

/* Commits per second that the disk alone would give. */
static double disk_rate(unsigned pages)
{
	char file[4096];
	uint64_t begun, n = 0;
	int fd, sync_fd;
	double rate;

	snprintf(file, sizeof(file), "%s/probe", conf.dir);
	fd = open(file, O_CREAT | O_RDWR | O_TRUNC, 0600);
	sync_fd = open(file, O_WRONLY | O_DSYNC);
	if (fd < 0 || sync_fd < 0)
		log_fatal("%s: %m", file);
	for (unsigned i = 0; i < PROBE_PAGES; i++)
		if (pwrite(fd, value, 4096, (off_t)i * 4096) < 0)
			log_fatal("%s: %m", file);
	fsync(fd);
	for (begun = now_ns(); now_ns() - begun < 2000000000u; n++)
		probe_commit(fd, sync_fd, pages);
	rate = (double)n * 1e9 / (double)(now_ns() - begun);
	close(fd);
	close(sync_fd);
	unlink(file);
	return rate;
}

static void parse(int argc, char **argv)
{
	int c;

	while ((c = getopt(argc, argv, "d:n:t:s:v:k:N")) != -1) {
		switch (c) {
		case 'd':
			conf.dir = optarg;
			break;
		case 'n':
			conf.inflight = (unsigned)atoi(optarg);
			break;
		case 't':
			conf.loops = (unsigned)atoi(optarg);
			break;
		case 's':
			conf.seconds = (unsigned)atoi(optarg);
			break;
		case 'v':
			conf.value = (unsigned)atoi(optarg);
			break;
		case 'k':
			conf.keys = (unsigned)atoi(optarg);
			break;
		case 'N':
			conf.nosync = true;
			break;
		default:
			exit(2);
		}
	}
	if (!conf.inflight || !conf.loops || !conf.seconds || !conf.keys ||
	    conf.value > KV_VALUE_MAX)
		exit(2);
}

static void report(const struct kv_stats *a, const struct kv_stats *b, double sec, uint64_t bytes)
{
	double ops = (double)(b->ks_ops - a->ks_ops),
	       commits = (double)(b->ks_commits - a->ks_commits);
	unsigned pages = (unsigned)((double)bytes / commits / 4096);
	double disk = disk_rate(pages);

	printf("in flight %u on %u loops, %u-byte values, %u keys%s\n", conf.inflight, conf.loops,
	       conf.value, conf.keys, conf.nosync ? ", NOT durable" : "");
	printf("puts/s %.0f  commits/s %.0f  ops per commit %.1f\n", ops / sec, commits / sec,
	       ops / commits);
	printf("%u pages per commit, which the disk alone does %.0f/s: commits are %.0f%% of the "
	       "disk\n",
	       pages, disk, 100 * commits / sec / disk);
	printf("per put: run %.2f us, answered after %.0f us on average; per commit: %.0f us\n",
	       (double)(b->ks_run_ns - a->ks_run_ns) / ops / 1e3,
	       (double)atomic_load(&waited_ns) / (double)atomic_load(&done) / 1e3,
	       (double)(b->ks_sync_ns - a->ks_sync_ns) / commits / 1e3);
	printf("store %.1f MiB\n", (double)b->ks_bytes_used / 1048576);
}

int main(int argc, char **argv)
{
	struct kv_opts o = {.ko_create = true};
	struct kv_stats a, b;
	struct loop **loops;
	pthread_t *threads;
	struct put *puts;
	uint64_t begun, ended, bytes;
	char err[512];

	parse(argc, argv);
	o.ko_nosync = conf.nosync;
	if (kv_open(&kv, conf.dir, &o, err, sizeof(err)))
		log_fatal("%s", err);
	loops = calloc(conf.loops, sizeof(*loops));
	threads = calloc(conf.loops, sizeof(*threads));
	puts = calloc(conf.inflight, sizeof(*puts));
	for (unsigned i = 0; i < conf.loops; i++)
		if (loop_create(&loops[i], 256) ||
		    pthread_create(&threads[i], NULL, loop_thread, loops[i]))
			log_fatal("no loop");
	atomic_store(&running, conf.inflight);
	kv_stats(kv, &a);
	bytes = bytes_written();
	begun = now_ns();
	for (unsigned i = 0; i < conf.inflight; i++) {
		struct loop *l = loops[i % conf.loops];

		puts[i].p_op = (struct kv_op){.o_run = put_run, .o_done = put_done, .o_loop = l};
		puts[i].p_start.m_run = start_msg;
		puts[i].p_rand = i * 7919 + 1;
		loop_post(l, &puts[i].p_start);
	}
	sleep(conf.seconds);
	kv_stats(kv, &b);
	ended = now_ns();
	bytes = bytes_written() - bytes;
	atomic_store(&stop, true);
	while (atomic_load(&running))
		usleep(1000);
	report(&a, &b, (double)(ended - begun) / 1e9, bytes);
	for (unsigned i = 0; i < conf.loops; i++) {
		loop_stop(loops[i]);
		pthread_join(threads[i], NULL);
		loop_destroy(loops[i]);
	}
	kv_close(kv);
	free(puts);
	free(threads);
	free(loops);
	return 0;
}
