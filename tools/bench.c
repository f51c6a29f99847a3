/* SPDX-License-Identifier: Apache-2.0 */
/* bench.c - weft-bench: puts load on any NFSv4.1 server, and measures what that costs.
 * docs/weft-bench.1 is its manual. */
#include "tools/bench.h"
#include "base/log.h"
#include "common/version.h"
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_PHASES 32
#define MAX_PIECE  (64u << 20)

struct bench_opts bench;
uint8_t *bench_pattern, *bench_buffers;

_Atomic bool bench_stopping, bench_made;

static void *clean(void *arg)
{
	int err = bench_clean();

	(void)arg;
	if (err)
		fprintf(stderr, "weft-bench: cannot remove the folder weft-bench.%ld: %s\n",
			(long)getpid(), strerror(-err));
	atomic_store(&bench_made, false);
	return NULL;
}

void bench_die(const char *fmt, ...)
{
	static atomic_flag said = ATOMIC_FLAG_INIT;
	pthread_t id;
	va_list ap;

	/* Only the first failure is printed. */
	while (atomic_flag_test_and_set(&said))
		pause();
	va_start(ap, fmt);
	fprintf(stderr, "weft-bench: ");
	vfprintf(stderr, fmt, ap);
	fprintf(stderr, "\n");
	va_end(ap);
	fflush(stdout);
	atomic_store(&bench_stopping, true);
	/* Clean up in another thread: this one may be inside a ring. */
	if (atomic_load(&bench_made) && !pthread_create(&id, NULL, clean, NULL))
		pthread_join(id, NULL);
	_Exit(1); /* other threads are still running */
}

/* Ends the program because its arguments are wrong. */
static __attribute__((format(printf, 1, 2), noreturn)) void misused(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fprintf(stderr, "weft-bench: ");
	vfprintf(stderr, fmt, ap);
	fprintf(stderr, "\n");
	va_end(ap);
	exit(2);
}

static void bench_usage(FILE *f)
{
	fprintf(f,
		"usage: weft-bench null|md|io|small|storm [options]\n"
		"       weft-bench compare A.json B.json\n"
		"       weft-bench --version\n"
		"options:\n"
		"  --server ADDRESS   the server (127.0.0.1:2049)\n"
		"  --dir PATH         existing folder on the server to work in (its root)\n"
		"  --threads N        threads, each with its own ring (1)\n"
		"  --sessions N       clients, each with one session (1)\n"
		"  --conns N          connections per session (1)\n"
		"  --ds-conns N       connections per session to each data server (1)\n"
		"  --depth N          operations in flight per session (1)\n"
		"  --count N          pieces of work per session in each phase (1000)\n"
		"  --time SECONDS     end each phase after this time; a phase that only reads or\n"
		"                     overwrites repeats until then\n"
		"  --phases A,B,...   run these phases. md: "
		"mkdir,rmdir,create,stat,open,readdir,rename,\n"
		"                     unlink; io: write,read,randwrite,randread,remove; small: "
		"create,\n"
		"                     read,reread,remove; storm: write,remove. Default: all, in "
		"this\n"
		"                     order, but io without randwrite, small without reread (see "
		"--reread)\n"
		"  --policy TEXT      policy for everything that is made "
		"(stripes=2,unit=1M,mirrors=2)\n"
		"  --reread TEXT      small: read the files once more, under this policy\n"
		"  --shared           md: all sessions work in one folder; io: on one file\n"
		"  --random           md: stat and open take the files in random order\n"
		"  --body BYTES       md, small: size of each file, written by create and read by "
		"open\n"
		"                     (0; small: 50k)\n"
		"  --file BYTES       io, storm: size of each session's file (64M; storm: 256M)\n"
		"  --size BYTES       io: size of each read or write (1M)\n"
		"  --commit N         io, storm: COMMIT after each N writes of a session (0: once, "
		"at\n"
		"                     the end)\n"
		"  --stable           the server answers a write when it is on stable storage\n"
		"  --verify           compare what is read with what was written\n"
		"  --pid N[,N...]     processes of the server: report their CPU time per "
		"operation\n"
		"  --counts A[,A...]  HTTP addresses of daemons built with --enable-counts: report "
		"what\n"
		"                     they count per operation\n"
		"  --minor N          NFSv4 minor version, 1 or 2 (the highest that the server "
		"has)\n"
		"  --rdma             reach data servers by RDMA where they and this machine have "
		"it\n"
		"  --registered       register the memory of the data (weft_memory_register): RDMA "
		"then\n"
		"                     does not copy it\n"
		"  --no-layouts       send all data through the server\n"
		"  --nfs3             null: call an NFSv3 server, such as a data server\n"
		"  --uid N --gid N    user and group of the calls (0, 0)\n"
		"  --keep             keep the folder that the run makes, and all that is in it\n"
		"  --json FILE        write the results as JSON too (-: to standard output, "
		"instead of\n"
		"                     the table)\n"
		"  --quiet            no progress, and only errors of the library's messages\n");
}

static uint64_t bench_number(const char *text, uint64_t least, uint64_t most, const char *what)
{
	char *end;
	unsigned long long v;

	errno = 0;
	v = strtoull(text, &end, 10);
	if (*end && strchr("kKmMgG", *end)) {
		unsigned shift = *end == 'k' || *end == 'K'   ? 10
				 : *end == 'm' || *end == 'M' ? 20
							      : 30;

		if (v > UINT64_MAX >> shift)
			errno = ERANGE;
		v <<= shift;
		end++;
	}
	if (errno || end == text || *end || *text == '-' || v < least || v > most)
		misused("--%s %s: expected a number from %llu to %llu", what, text,
			(unsigned long long)least, (unsigned long long)most);
	return v;
}

static void pids(char *text)
{
	for (char *save, *p = strtok_r(text, ",", &save); p; p = strtok_r(NULL, ",", &save)) {
		if (bench.bo_npids == BENCH_MAX_PIDS)
			misused("--pid: at most %u processes", BENCH_MAX_PIDS);
		bench.bo_pids[bench.bo_npids++] = (long)bench_number(p, 1, INT32_MAX, "pid");
	}
}

static void bench_counts(char *text)
{
	for (char *save, *p = strtok_r(text, ",", &save); p; p = strtok_r(NULL, ",", &save)) {
		if (bench.bo_ncounts == BENCH_MAX_PIDS)
			misused("--counts: at most %u daemons", BENCH_MAX_PIDS);
		bench.bo_counts[bench.bo_ncounts++] = p;
	}
}

enum {
	O_SERVER = 256,
	O_DIR,
	O_THREADS,
	O_SESSIONS,
	O_CONNS,
	O_DS_CONNS,
	O_DEPTH,
	O_COUNT,
	O_PHASES,
	O_SHARED,
	O_RANDOM,
	O_BODY,
	O_FILE,
	O_SIZE,
	O_STABLE,
	O_VERIFY,
	O_PID,
	O_MINOR,
	O_NFS3,
	O_UID,
	O_GID,
	O_KEEP,
	O_LAYOUTS,
	O_TIME,
	O_POLICY,
	O_REREAD,
	O_COMMIT,
	O_RDMA,
	O_REGISTERED,
	O_COUNTS,
	O_JSON,
	O_QUIET,
	O_HELP
};
static const struct option options[] = {
	{"server", 1, NULL, O_SERVER},	 {"dir", 1, NULL, O_DIR},
	{"threads", 1, NULL, O_THREADS}, {"sessions", 1, NULL, O_SESSIONS},
	{"conns", 1, NULL, O_CONNS},	 {"ds-conns", 1, NULL, O_DS_CONNS},
	{"depth", 1, NULL, O_DEPTH},	 {"count", 1, NULL, O_COUNT},
	{"phases", 1, NULL, O_PHASES},	 {"shared", 0, NULL, O_SHARED},
	{"random", 0, NULL, O_RANDOM},	 {"body", 1, NULL, O_BODY},
	{"file", 1, NULL, O_FILE},	 {"size", 1, NULL, O_SIZE},
	{"stable", 0, NULL, O_STABLE},	 {"verify", 0, NULL, O_VERIFY},
	{"pid", 1, NULL, O_PID},	 {"minor", 1, NULL, O_MINOR},
	{"uid", 1, NULL, O_UID},	 {"gid", 1, NULL, O_GID},
	{"keep", 0, NULL, O_KEEP},	 {"no-layouts", 0, NULL, O_LAYOUTS},
	{"time", 1, NULL, O_TIME},	 {"policy", 1, NULL, O_POLICY},
	{"reread", 1, NULL, O_REREAD},	 {"commit", 1, NULL, O_COMMIT},
	{"rdma", 0, NULL, O_RDMA},	 {"registered", 0, NULL, O_REGISTERED},
	{"json", 1, NULL, O_JSON},	 {"nfs3", 0, NULL, O_NFS3},
	{"counts", 1, NULL, O_COUNTS},	 {"quiet", 0, NULL, O_QUIET},
	{"help", 0, NULL, O_HELP},	 {0}};

/* An option without a value. */
static void option_flag(int o)
{
	switch (o) {
	case O_SHARED:
		bench.bo_shared = true;
		break;
	case O_RANDOM:
		bench.bo_random = true;
		break;
	case O_STABLE:
		bench.bo_stable = true;
		break;
	case O_VERIFY:
		bench.bo_verify = true;
		break;
	case O_NFS3:
		bench.bo_client.wo_nfs3 = true;
		break;
	case O_KEEP:
		bench.bo_keep = true;
		break;
	case O_LAYOUTS:
		bench.bo_client.wo_no_layouts = true;
		break;
	case O_RDMA:
		bench.bo_client.wo_rdma = true;
		break;
	case O_REGISTERED:
		bench.bo_registered = true;
		break;
	case O_QUIET:
		bench.bo_quiet = true;
		break;
	case O_HELP:
		bench_usage(stdout);
		exit(0);
	default:
		bench_usage(stderr);
		exit(2);
	}
}

static void bench_option(int o)
{
	switch (o) {
	case O_SERVER:
		bench.bo_client.wo_server = optarg;
		break;
	case O_DIR:
		bench.bo_dir = optarg;
		break;
	case O_THREADS:
		bench.bo_threads = (unsigned)bench_number(optarg, 1, 256, "threads");
		break;
	case O_SESSIONS:
		bench.bo_sessions = (unsigned)bench_number(optarg, 1, 65536, "sessions");
		break;
	case O_CONNS:
		bench.bo_client.wo_conns =
			(unsigned)bench_number(optarg, 1, WEFT_MAX_CONNS, "conns");
		break;
	case O_DS_CONNS:
		bench.bo_client.wo_ds_conns =
			(unsigned)bench_number(optarg, 1, WEFT_MAX_CONNS, "ds-conns");
		break;
	case O_DEPTH:
		bench.bo_depth = (unsigned)bench_number(optarg, 1, WEFT_MAX_SLOTS, "depth");
		break;
	case O_COUNT:
		bench.bo_count = bench_number(optarg, 1, 1ull << 40, "count");
		break;
	case O_PHASES:
		bench.bo_phases = optarg;
		break;
	case O_BODY:
		bench.bo_body = (uint32_t)bench_number(optarg, 0, MAX_PIECE, "body");
		break;
	case O_FILE:
		bench.bo_file = bench_number(optarg, 1, 1ull << 50, "file");
		break;
	case O_SIZE:
		bench.bo_size = (uint32_t)bench_number(optarg, 1, MAX_PIECE, "size");
		break;
	case O_PID:
		pids(optarg);
		break;
	case O_COUNTS:
		bench_counts(optarg);
		break;
	case O_MINOR:
		bench.bo_client.wo_minor = (unsigned)bench_number(optarg, 1, 2, "minor");
		break;
	case O_UID:
		bench.bo_client.wo_uid = (uint32_t)bench_number(optarg, 0, UINT32_MAX, "uid");
		break;
	case O_GID:
		bench.bo_client.wo_gid = (uint32_t)bench_number(optarg, 0, UINT32_MAX, "gid");
		break;
	case O_TIME:
		bench.bo_seconds = bench_number(optarg, 1, 1000000, "time");
		break;
	case O_POLICY:
		bench.bo_policy = optarg;
		break;
	case O_REREAD:
		bench.bo_reread = optarg;
		break;
	case O_COMMIT:
		bench.bo_commit = bench_number(optarg, 0, 1ull << 40, "commit");
		break;
	case O_JSON:
		bench.bo_json = optarg;
		break;
	default:
		option_flag(o);
	}
}

static void options_read(int argc, char **argv)
{
	static char name[] = "weft-bench";
	int o;

	bench = (struct bench_opts){.bo_what = argv[1],
				    .bo_dir = "",
				    .bo_threads = 1,
				    .bo_sessions = 1,
				    .bo_depth = 1,
				    .bo_count = 1000,
				    .bo_size = 1 << 20,
				    .bo_file = 64 << 20};
	if (!strcmp(argv[1], "small"))
		bench.bo_body = 50 << 10;
	if (!strcmp(argv[1], "storm")) {
		bench.bo_sessions = 64;
		bench.bo_file = 256 << 20;
	}
	bench.bo_client = (struct weft_opts){
		.wo_server = "127.0.0.1", .wo_conns = 1, .wo_ds_conns = 1, .wo_giveup_ms = 60000};
	argv[1] = name; /* getopt_long prints it */
	while ((o = getopt_long(argc - 1, argv + 1, "", options, NULL)) != -1)
		bench_option(o);
	if (optind != argc - 1) {
		bench_usage(stderr);
		exit(2);
	}
	if (bench.bo_sessions < bench.bo_threads)
		misused("--sessions must be at least --threads");
	if (bench.bo_client.wo_nfs3 && strcmp(bench.bo_what, "null"))
		misused("--nfs3 works with null only");
	bench.bo_client.wo_slots = bench.bo_depth;
	if (bench.bo_reread && !bench.bo_phases && !strcmp(bench.bo_what, "small"))
		bench.bo_phases = "create,read,reread,remove";
	if (!bench.bo_body && !strcmp(bench.bo_what, "small"))
		misused("--body 0: small needs files with data to read");
	if (strcmp(bench.bo_what, "io") && strcmp(bench.bo_what, "storm"))
		return;
	bench.bo_count = bench.bo_file / bench.bo_size;
	if (!bench.bo_count)
		misused("--file must be at least --size");
}

static const struct bench_phase *phase_find(const struct bench_phase *all, const char *name)
{
	for (; all->p_name; all++)
		if (!strcmp(all->p_name, name))
			return all;
	misused("%s has no phase %s", bench.bo_what, name);
}

static const struct kind {
	const char *k_name;
	const struct bench_phase *k_all;
	const char *k_phases;
} kinds[] = {{"null", bench_null, "null"},
	     {"md", bench_md, "mkdir,rmdir,create,stat,open,readdir,rename,unlink"},
	     {"io", bench_io, "write,read,randread,remove"},
	     {"small", bench_small, "create,read,remove"},
	     {"storm", bench_storm, "write,remove"}};

static const struct kind *kind_find(const char *name)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(kinds[i].k_name, name))
			return &kinds[i];
	return NULL;
}

static unsigned phases_choose(const struct kind *kind, const struct bench_phase **chosen)
{
	char text[512];
	unsigned n = 0;

	snprintf(text, sizeof(text), "%s", bench.bo_phases ? bench.bo_phases : kind->k_phases);
	for (char *save, *p = strtok_r(text, ",", &save); p; p = strtok_r(NULL, ",", &save)) {
		if (n == MAX_PHASES)
			misused("--phases: at most %u", MAX_PHASES);
		chosen[n++] = phase_find(kind->k_all, p);
	}
	return n;
}

size_t bench_piece(void)
{
	return bench.bo_what[0] == 'i' || !strcmp(bench.bo_what, "storm")
		       ? bench.bo_size
		       : bench.bo_body + (size_t)1;
}

static size_t buffers_len(void)
{
	return bench_piece() * bench.bo_sessions * bench.bo_depth;
}

/* Untouched pages cost nothing, unless they are registered. */
static uint8_t *pages(size_t n)
{
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		       -1, 0);
	int err = p == MAP_FAILED ? -errno : bench.bo_registered ? weft_memory_register(p, n) : 0;

	if (err)
		bench_die("%s%zu bytes of memory: %s", bench.bo_registered ? "--registered: " : "",
			  n, strerror(-err));
	return p;
}

static void pages_free(uint8_t *p, size_t n)
{
	if (bench.bo_registered)
		weft_memory_unregister(p);
	munmap(p, n);
}

static size_t pattern_len(void)
{
	return BENCH_PATTERN + bench_piece();
}

static void pattern_make(void)
{
	size_t n = pattern_len();
	uint64_t x = 88172645463325252ull;

	bench_buffers = pages(buffers_len());
	bench_pattern = pages(n);
	for (size_t i = 0; i < n; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		bench_pattern[i] = (uint8_t)x;
	}
}

int main(int argc, char **argv)
{
	const struct bench_phase *chosen[MAX_PHASES];
	const struct kind *kind;
	struct bench_result *results;
	bool table;
	unsigned n;
	int out = STDOUT_FILENO;

	if (argc == 4 && !strcmp(argv[1], "compare"))
		return bench_compare(argv[2], argv[3]);
	if (argc == 2 && !strcmp(argv[1], "--help")) {
		bench_usage(stdout);
		return 0;
	}
	if (argc == 2 && !strcmp(argv[1], "--version"))
		return version_print("weft-bench");
	kind = argc < 2 ? NULL : kind_find(argv[1]);
	if (!kind) {
		bench_usage(stderr);
		return 2;
	}
	options_read(argc, argv);
	n = phases_choose(kind, chosen);
	results = calloc(n + 1, sizeof(*results));
	if (!results)
		bench_die("out of memory");
	pattern_make();
	table = !bench.bo_json || strcmp(bench.bo_json, "-");
	if (bench.bo_json && table)
		out = open(bench.bo_json, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
	if (out < 0)
		bench_die("%s: %s", bench.bo_json, strerror(errno));
	if (bench.bo_quiet)
		log_set_level(LOG_L_ERROR);
	bench_watch();
	bench_start();
	if (table)
		bench_table_head();
	for (unsigned i = 0; i < n; i++) {
		bench_phase(chosen[i], &results[i]);
		while (atomic_load(&bench_stopping))
			pause(); /* the thread that stopped it ends it */
		if (table)
			bench_table(&results[i]);
	}
	bench_stop();
	clean(NULL);
	pages_free(bench_pattern, pattern_len());
	pages_free(bench_buffers, buffers_len());
	if (bench.bo_json && (bench_write_json(out, results, n) || (table && close(out))))
		bench_die("cannot write %s", bench.bo_json);
	for (unsigned i = 0; i < n; i++)
		bench_counts_free(results[i].r_counts);
	free(results);
	return 0;
}
