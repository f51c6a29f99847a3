/* SPDX-License-Identifier: Apache-2.0 */
/* bench_out.c - tables, JSON, and the comparison of two results. */
#include "tools/bench.h"
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct {
	const char *name;
	unsigned per_mille;
} shares[] = {
	{"p50_us", 500}, {"p90_us", 900}, {"p99_us", 990}, {"p999_us", 999}, {"max_us", 1000}};
#define SHARES (sizeof(shares) / sizeof(shares[0]))

void bench_table_head(void)
{
	printf("%-10s %10s %11s %9s %9s %9s %9s %9s %11s %11s %9s %9s\n", "phase", "ops", "ops/s",
	       "p50 us", "p90 us", "p99 us", "p99.9 us", "max us", "server us", "client us",
	       "MiB/s", "slow/fast");
}

static double per_op(double seconds, const struct bench_result *r)
{
	return r->r_units ? seconds * 1e6 / (double)r->r_units : 0;
}

/* CPU is per operation. */
void bench_table(const struct bench_result *r)
{
	printf("%-10s %10llu %11.0f", r->r_name, (unsigned long long)r->r_units,
	       (double)r->r_units / r->r_seconds);
	for (size_t i = 0; i < SHARES; i++)
		printf(" %9.1f", (double)histo_per_mille(&r->r_histo, shares[i].per_mille) / 1e3);
	if (r->r_server_cpu >= 0)
		printf(" %11.2f", per_op(r->r_server_cpu, r));
	else
		printf(" %11s", "-");
	printf(" %11.2f", per_op(r->r_client_cpu, r));
	if (r->r_bytes)
		printf(" %9.1f", (double)r->r_bytes / r->r_seconds / (1 << 20));
	else
		printf(" %9s", "-");
	if (bench.bo_sessions > 1)
		printf(" %9.2f", r->r_slowest);
	else
		printf(" %9s", "-");
	printf("\n");
	bench_counts_table(r->r_counts);
	fflush(stdout);
}

static json_t *result_json(const struct bench_result *r)
{
	json_t *o = json_pack("{s:s, s:I, s:f, s:f, s:f}", "phase", r->r_name, "ops",
			      (json_int_t)r->r_units, "seconds", r->r_seconds, "ops_per_s",
			      (double)r->r_units / r->r_seconds, "client_cpu_us_per_op",
			      per_op(r->r_client_cpu, r));

	for (size_t i = 0; i < SHARES; i++)
		json_object_set_new(
			o, shares[i].name,
			json_real((double)histo_per_mille(&r->r_histo, shares[i].per_mille) / 1e3));
	if (r->r_server_cpu >= 0)
		json_object_set_new(o, "server_cpu_us_per_op",
				    json_real(per_op(r->r_server_cpu, r)));
	if (r->r_counts)
		json_object_set(o, "counts", r->r_counts);
	if (bench.bo_client.wo_rdma) {
		json_object_set_new(o, "rdma_calls", json_integer((json_int_t)r->r_rdma));
		json_object_set_new(o, "direct_calls", json_integer((json_int_t)r->r_direct));
	}
	if (bench.bo_sessions > 1)
		json_object_set_new(o, "slowest_over_fastest", json_real(r->r_slowest));
	if (r->r_bytes)
		json_object_set_new(o, "mib_per_s",
				    json_real((double)r->r_bytes / r->r_seconds / (1 << 20)));
	return o;
}

int bench_write_json(int fd, const struct bench_result *r, unsigned n)
{
	json_t *phases = json_array(), *o;
	int err;

	for (unsigned i = 0; i < n; i++)
		json_array_append_new(phases, result_json(&r[i]));
	o = json_pack(
		"{s:i, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:I, s:i, s:i, s:b, s:b, s:b, s:b, s:b, "
		"s:I, s:I, s:I, s:s*, s:s*, s:b, s:b, s:i, s:b, s:I, s:I, s:o}",
		"version", 1, "bench", bench.bo_what, "server", bench.bo_client.wo_server,
		"threads", bench.bo_threads, "sessions", bench.bo_sessions, "conns",
		bench.bo_client.wo_conns, "ds_conns", bench.bo_client.wo_ds_conns, "depth",
		bench.bo_depth, "count", (json_int_t)bench.bo_count, "body", bench.bo_body, "size",
		bench.bo_size, "shared", bench.bo_shared, "stable", bench.bo_stable, "layouts",
		!bench.bo_client.wo_no_layouts, "rdma", bench.bo_client.wo_rdma, "registered",
		bench.bo_registered, "file", (json_int_t)bench.bo_file, "seconds",
		(json_int_t)bench.bo_seconds, "commit", (json_int_t)bench.bo_commit, "policy",
		bench.bo_policy, "reread", bench.bo_reread, "random", bench.bo_random, "verify",
		bench.bo_verify, "minor", bench.bo_client.wo_minor, "nfs3", bench.bo_client.wo_nfs3,
		"uid", (json_int_t)bench.bo_client.wo_uid, "gid",
		(json_int_t)bench.bo_client.wo_gid, "phases", phases);
	/* A pipe or a device has no length. */
	err = fd != STDOUT_FILENO && ftruncate(fd, 0) && errno != EINVAL
		      ? -1
		      : json_dumpfd(o, fd, JSON_INDENT(1));
	if (!err && write(fd, "\n", 1) != 1)
		err = -1;
	json_decref(o);
	return err;
}

/* ---- comparison ---- */

static json_t *bench_out_load(const char *path)
{
	json_error_t e;
	json_t *o = json_load_file(path, 0, &e);

	if (!o)
		fprintf(stderr, "weft-bench: %s: %s\n", path, e.text);
	else if (!json_is_array(json_object_get(o, "phases"))) {
		fprintf(stderr, "weft-bench: %s: not a result of weft-bench\n", path);
		json_decref(o);
		o = NULL;
	}
	return o;
}

static json_t *phase_of(json_t *o, const char *name)
{
	json_t *p;
	size_t i;

	json_array_foreach(json_object_get(o, "phases"), i, p)
	{
		const char *n = json_string_value(json_object_get(p, "phase"));

		if (n && !strcmp(n, name))
			return p;
	}
	return NULL;
}

static void ratio(json_t *a, json_t *b, const char *key)
{
	json_t *x = json_object_get(a, key), *y = json_object_get(b, key);

	if (json_is_number(x) && json_is_number(y) && json_number_value(x) > 0)
		printf(" %12.3f", json_number_value(y) / json_number_value(x));
	else
		printf(" %12s", "-");
}

static bool alike(json_t *a, json_t *b)
{
	static const char *const keys[] = {
		"bench",   "threads", "sessions", "conns",   "depth",  "count",	     "body",
		"size",	   "shared",  "stable",	  "layouts", "rdma",   "registered", "file",
		"seconds", "commit",  "policy",	  "reread",  "random", "verify",     "minor",
		"nfs3",	   "uid",     "gid",	  "ds_conns"};
	bool same = true;

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		json_t *x = json_object_get(a, keys[i]), *y = json_object_get(b, keys[i]);

		if ((x || y) && !json_equal(x, y)) {
			fprintf(stderr,
				"weft-bench: the two results differ in %s: their ratios say less\n",
				keys[i]);
			same = false;
		}
	}
	return same;
}

int bench_compare(const char *a, const char *b)
{
	static const char *const keys[] = {
		"ops_per_s", "p50_us", "p99_us", "server_cpu_us_per_op", "client_cpu_us_per_op",
		"mib_per_s"};
	json_t *x = bench_out_load(a), *y = bench_out_load(b), *p;
	unsigned n = 0;
	size_t i;

	if (!x || !y) {
		json_decref(x);
		json_decref(y);
		return 1;
	}
	alike(x, y);
	printf("%s over %s\n%-10s %12s %12s %12s %12s %12s %12s\n", b, a, "phase", "ops/s", "p50",
	       "p99", "server CPU", "client CPU", "MiB/s");
	json_array_foreach(json_object_get(x, "phases"), i, p)
	{
		const char *name = json_string_value(json_object_get(p, "phase"));
		json_t *q = name ? phase_of(y, name) : NULL;

		if (!q)
			continue;
		printf("%-10s", name);
		for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++)
			ratio(p, q, keys[k]);
		printf("\n");
		n++;
	}
	json_decref(x);
	json_decref(y);
	if (!n)
		fprintf(stderr, "weft-bench: the two results have no phase in common\n");
	return n ? 0 : 1;
}
