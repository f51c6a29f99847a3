/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pg_commit.c - how long a bare replicated commit takes: a primary and two synchronous standbys of
 * PostgreSQL on this machine, below TMPDIR, one append at a time.
 *
 *	pg_commit [N]	N appends of each size (500)
 */
#include "tests/unit/pg_world.h"
#include <stdio.h>

static int by_size(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static int measure(struct pg_log *l, size_t len, unsigned n, uint64_t *took)
{
	char *data = malloc(len);
	uint64_t all = clock_mono_ns();
	int err = data ? 0 : -1;

	for (size_t i = 0; !err && i < len; i++)
		data[i] = (char)rand();
	for (unsigned i = 0; !err && i < n; i++) {
		uint64_t began = clock_mono_ns();

		err = pg_log_append(l, pg_log_batch(l) + 1, data, len);
		took[i] = clock_mono_ns() - began;
	}
	all = clock_mono_ns() - all;
	free(data);
	qsort(took, n, sizeof(*took), by_size);
	if (!err)
		printf("%3zu KB: p50 %.2f ms, p99 %.2f ms, %.0f MB/s\n", len / 1000,
		       (double)took[n / 2] / 1e6, (double)took[n * 99 / 100] / 1e6,
		       (double)len * n * 1e3 / (double)all);
	return err;
}

int main(int argc, char **argv)
{
	static const size_t sizes[] = {10000, 40000, 100000};
	unsigned n = argc > 1 ? (unsigned)atoi(argv[1]) : 500;
	uint64_t *took = calloc(n ? n : 1, sizeof(*took));
	struct pg_options o = {
		.o_inst = 1, .o_owner = "bench", .o_lease_ms = WORLD_L, .o_replicas = 2};
	struct pg_init i = {.i_role = "weft", .i_inst = 1};
	struct pg_watch *w;
	struct pg_log *l = NULL;
	struct pg_row row;
	char why[PG_WHY];
	int err = 0;

	if (!n || !took || !world_make()) {
		fputs("pg_commit: no PostgreSQL\n", stderr);
		return 1;
	}
	i.i_conninfo = strdup(world_conninfo("p", "postgres"));
	if (pg_init(&i, why)) {
		fprintf(stderr, "pg_commit: %s\n", why);
		return 1;
	}
	o.o_conninfo = i.i_conninfo;
	if (pg_watch_open(&w, &o))
		return 1;
	while (!l)
		if (!pg_watch_look(w, &row))
			pg_watch_claim(w, &l);
	for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]) && !err; k++)
		err = measure(l, sizes[k], n, took);
	pg_log_close(l, true);
	pg_watch_close(w);
	world_try("end");
	free(took);
	return err ? 1 : 0;
}
