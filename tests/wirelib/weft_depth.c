/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weft_depth.c - what libweft_slow_test.py has libweft do: weft_depth ADDRESS NAME write|read opens
 * the file. Each line on stdin is a number of operations of 1 MiB, at most 96, which are then under
 * way all at once, side by side from the beginning of the file. When they have ended it prints
 * their time and what failed at data servers: "ms 20312 errors 0". Exit status 0: all was good.
 * $WEFT_DS_CONNS: connections to each data server.
 */
#include "client/weft.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MIB  1048576u
#define MOST 96

static struct weft_ring *ring;
static struct weft *w;
static struct weft_file *file;

static void fail(const char *what, int err, uint32_t status)
{
	fprintf(stderr, "%s: %s, status %u\n", what, strerror(-err), status);
	exit(1);
}

static void good(const char *what, struct weft_op *op)
{
	if (weft_do(w, op))
		fail(what, op->o_err, op->o_status);
}

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* The byte that fills this MiB of a file. */
static int filler(unsigned i)
{
	return (int)(i * 37 + 1) & 255;
}

static void check(const struct weft_op *op, unsigned i)
{
	const uint8_t *p = op->o_buf;

	if (op->o_err || op->o_count != MIB)
		fail("data", op->o_err, op->o_status);
	for (size_t k = 0; op->o_what == WEFT_READ && k < MIB; k++)
		if (p[k] != filler(i)) {
			fprintf(stderr, "other data in MiB %u at %zu\n", i, k);
			exit(1);
		}
}

static void round_of(enum weft_what what, uint8_t *buf, unsigned n)
{
	struct weft_op *ops = calloc(n, sizeof(*ops)), *ended[64];
	struct weft_info was, is;
	uint64_t began = now_ms();

	weft_info(w, &was);
	for (unsigned i = 0; i < n; i++) {
		memset(buf + (size_t)i * MIB, what == WEFT_WRITE ? filler(i) : 0, MIB);
		ops[i] = (struct weft_op){.o_what = what,
					  .o_file = file,
					  .o_off = (uint64_t)i * MIB,
					  .o_buf = buf + (size_t)i * MIB,
					  .o_len = MIB};
		weft_submit(w, &ops[i]);
	}
	for (unsigned left = n; left;)
		left -= (unsigned)weft_reap(ring, ended, 64, -1);
	weft_info(w, &is);
	for (unsigned i = 0; i < n; i++)
		check(&ops[i], i);
	free(ops);
	printf("ms %llu errors %llu\n", (unsigned long long)(now_ms() - began),
	       (unsigned long long)(is.wi_ds_errors - was.wi_ds_errors));
	fflush(stdout);
}

int main(int argc, char **argv)
{
	bool writes = argc == 4 && !strcmp(argv[3], "write");
	const char *conns = getenv("WEFT_DS_CONNS");
	struct weft_opts o = {.wo_server = argc == 4 ? argv[1] : "",
			      .wo_ds_conns = conns ? (unsigned)atoi(conns) : 0};
	struct weft_op op = {.o_what = WEFT_LOOKUP, .o_name = ""};
	uint8_t *buf = malloc((size_t)MOST * MIB);
	char line[64];
	int err;

	if (argc != 4 || !buf) {
		fprintf(stderr, "usage: weft_depth ADDRESS NAME write|read\n");
		return 2;
	}
	err = weft_ring_create(&ring);
	err = err ? err : weft_connect(&w, ring, &o);
	if (err)
		fail("connect", err, 0);
	good("the root", &op);
	op = (struct weft_op){.o_what = WEFT_OPEN,
			      .o_fh = op.o_fh2,
			      .o_name = argv[2],
			      .o_flags = writes ? WEFT_O_WRITE | WEFT_O_CREATE : WEFT_O_READ,
			      .o_attr = {.at_set = WEFT_A_MODE, .at_mode = 0644}};
	good("open", &op);
	file = op.o_file;
	while (fgets(line, sizeof(line), stdin) && atoi(line) > 0 && atoi(line) <= MOST)
		round_of(writes ? WEFT_WRITE : WEFT_READ, buf, (unsigned)atoi(line));
	if (writes) {
		op = (struct weft_op){.o_what = WEFT_COMMIT, .o_file = file};
		good("commit", &op);
	}
	op = (struct weft_op){.o_what = WEFT_CLOSE, .o_file = file};
	good("close", &op);
	weft_close(w);
	weft_ring_destroy(ring);
	free(buf);
	return 0;
}
