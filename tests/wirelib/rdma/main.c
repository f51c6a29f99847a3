/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main.c - rdma_wire: runs the tests against a server of NFSv3 over RDMA. See usage. Lines as the
 * lab counts them: "ok - ...", "not ok - ...".
 */
#include "rw.h"
#include "proto/cap.h"
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct run run = {.port = "20049"};
static jmp_buf failed;
static uint64_t state;

void diag(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	printf("#   ");
	vprintf(fmt, ap);
	printf("\n");
	fflush(stdout);
	va_end(ap);
}

static char reason[512];

void fail(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(reason, sizeof reason, fmt, ap);
	va_end(ap);
	longjmp(failed, 1);
}

uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

uint64_t rnd(void)
{
	uint64_t x = state += 0x9e3779b97f4a7c15ull;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

static int hex(const char *s, uint8_t *out, unsigned max)
{
	unsigned n = 0, v;

	for (; s[0] && s[1]; s += 2) {
		if (*s == '\\' && s[1] == 'x') /* as nfsd writes its handles */
			continue;
		if (*s == '-') {
			s--;
			continue;
		}
		if (n >= max || sscanf(s, "%2x", &v) != 1)
			return -1;
		out[n++] = (uint8_t)v;
	}
	return (int)n;
}

/* A handle to an object of its own, as the MDS mints one. */
static void mint(const char *key_file, const char *uuid_hex, unsigned fs, unsigned long ino)
{
	uint8_t cluster[CAP_CLUSTER_KEY_LEN], own[CAP_CLUSTER_KEY_LEN], uuid[16], key[CAP_KEY_LEN];
	struct cap c = {.cp_obj = {.co_ino = ino, .co_fs = (uint16_t)fs, .co_incarnation = 1},
			.cp_rights = CAP_READ | CAP_WRITE,
			.cp_key = 0, /* the key before a rotation */
			.cp_epoch = 1,
			.cp_client = 0x7ffffff0};
	FILE *f = fopen(key_file, "r");
	char line[128] = "";

	if (!f || !fgets(line, sizeof line, f) ||
	    hex(line, cluster, sizeof cluster) != sizeof cluster || hex(uuid_hex, uuid, 16) != 16) {
		fprintf(stderr, "rdma_wire: no key, or no identity\n");
		exit(2);
	}
	fclose(f);
	cap_derive_fs(cluster, c.cp_obj.co_fs, own);
	cap_derive_key(own, uuid, c.cp_key, key);
	cap_mint(&c, key, run.fh.b);
	run.fh.n = CAP_LEN;
}

static bool run_test(const struct test *t)
{
	uint64_t begin = now_ms();
	volatile bool good = true;

	if (setjmp(failed)) {
		good = false;
		printf("not ok - %s: %s\n", t->name, reason);
	} else {
		t->fn();
	}
	conn_close_all();
	if (good)
		printf("ok - %s\n", t->name);
	if (now_ms() - begin > 2000)
		diag("%s took %.1f s", t->name, (double)(now_ms() - begin) / 1000);
	fflush(stdout);
	return good;
}

static int usage(void)
{
	fprintf(stderr, "usage: rdma_wire [-iPs] [-p PORT] [-S SEED] [-n COUNT] (-f FH | -k "
			"KEYFILE -u UUID [-F FS] [-I INO]) HOST [TEST...]\n"
			"-i: iWARP. -P: not weft: what it does its own way is told only. -s: long. "
			"FH, UUID: hexadecimal.\n"
			"TEST: a part of names, @conn, @data, @error or @load, or the whole name "
			"of one that is not run by itself.\n");
	return 2;
}

static unsigned run_all(const char *group, const struct test *t, char **names)
{
	unsigned bad = 0;

	for (; t->name; t++) {
		bool wanted = !*names && !t->only_named;

		for (char **n = names; *n; n++)
			wanted |= t->only_named ? !strcmp(*n, t->name)
						: !strcmp(*n, group) || strstr(t->name, *n);
		if (wanted)
			bad += !run_test(t);
	}
	return bad;
}

int main(int argc, char **argv)
{
	const char *key = NULL, *uuid = NULL, *fh = NULL;
	unsigned fs = 1, bad;
	unsigned long ino = 0x1122334455ul;
	int o, n;

	while ((o = getopt(argc, argv, "iPsp:S:n:f:k:u:F:I:")) != -1)
		switch (o) {
		case 'i':
			run.iwarp = true;
			break;
		case 'P':
			run.peer = true;
			break;
		case 's':
			run.soak = true;
			break;
		case 'p':
			run.port = optarg;
			break;
		case 'S':
			run.seed = strtoull(optarg, NULL, 0);
			break;
		case 'n':
			run.count = (unsigned)atoi(optarg);
			break;
		case 'f':
			fh = optarg;
			break;
		case 'k':
			key = optarg;
			break;
		case 'u':
			uuid = optarg;
			break;
		case 'F':
			fs = (unsigned)atoi(optarg);
			break;
		case 'I':
			ino = strtoul(optarg, NULL, 0);
			break;
		default:
			return usage();
		}
	if (optind >= argc || (!fh && !(key && uuid)))
		return usage();
	run.host = argv[optind];
	if (fh) {
		n = hex(fh, run.fh.b, FH_MAX);
		if (n <= 0)
			return usage();
		run.fh.n = (unsigned)n;
	} else {
		mint(key, uuid, fs, ino);
	}
	signal(SIGPIPE, SIG_IGN);
	if (!run.seed)
		run.seed = (uint64_t)time(NULL);
	state = run.seed;
	diag("seed %lu", (unsigned long)run.seed);
	bad = run_all("@conn", conn_tests, argv + optind + 1);
	bad += run_all("@data", data_tests, argv + optind + 1);
	bad += run_all("@error", error_tests, argv + optind + 1);
	bad += run_all("@load", load_tests, argv + optind + 1);
	return bad ? 1 : 0;
}
