/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_count.c - what operations cost the server's threads, as reported by daemons that are built
 * with --enable-counts (base/count.h).
 *
 * weft-bench reads a daemon's counts before and after a phase, and divides the difference by the
 * phase's operations. The difference includes the two requests themselves.
 */
#include "tools/bench.h"
#include "tools/http_get.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BY_MOST 24 /* functions that are listed of each kind */

static json_t *daemon_ask(const char *addr)
{
	struct http_answer a;
	json_t *o;
	int err = http_ask(addr, "GET", "/counts", NULL, &a);

	if (err)
		bench_die("--counts %s: %s", addr, a.ha_why);
	o = a.ha_status == 200 ? json_loads(a.ha_body, 0, NULL) : NULL;
	free(a.ha_body);
	if (!o)
		bench_die("--counts %s: the daemon has no counts: build it with --enable-counts",
			  addr);
	return o;
}

/* to[key] += from[key], for the numbers of one object. */
static void sum_into(json_t *to, json_t *from)
{
	const char *key;
	json_t *v;

	json_object_foreach(from, key, v)
	{
		if (json_is_number(v))
			json_object_set_new(to, key,
					    json_real(json_number_value(json_object_get(to, key)) +
						      json_number_value(v)));
	}
}

static json_t *bench_count_part_of(json_t *o, const char *key)
{
	if (!json_object_get(o, key))
		json_object_set_new(o, key, json_object());
	return json_object_get(o, key);
}

/* Sums sites by name, over all daemons. */
static void sites_into(json_t *to, json_t *sites)
{
	json_t *s;
	size_t i;

	json_array_foreach(sites, i, s)
	{
		const char *name = json_string_value(json_object_get(s, "site"));

		if (name)
			sum_into(bench_count_part_of(to, name), s);
	}
}

void *bench_counts_read(void)
{
	json_t *all;

	if (!bench.bo_ncounts)
		return NULL;
	all = json_object();
	for (unsigned i = 0; i < bench.bo_ncounts; i++) {
		json_t *o = daemon_ask(bench.bo_counts[i]);

		sum_into(bench_count_part_of(all, "counts"), json_object_get(o, "counts"));
		sum_into(bench_count_part_of(all, "committer_ns"),
			 json_object_get(o, "committer_ns"));
		sites_into(bench_count_part_of(all, "sites"), json_object_get(o, "sites"));
		json_decref(o);
	}
	return all;
}

static double grown(json_t *before, json_t *after, const char *key)
{
	return json_number_value(json_object_get(after, key)) -
	       json_number_value(json_object_get(before, key));
}

struct by {
	const char *by_name;
	double by_n;
};

static int by_more(const void *a, const void *b)
{
	const struct by *x = a, *y = b;

	return (x->by_n < y->by_n) - (x->by_n > y->by_n);
}

/* Lists the functions that did most of one kind, and how often per operation. */
static json_t *by_site(json_t *before, json_t *after, const char *what, double units)
{
	struct by *all = calloc(json_object_size(after) + 1, sizeof(*all));
	json_t *o = json_object(), *s;
	const char *name;
	size_t n = 0;

	if (!all)
		bench_die("out of memory");
	json_object_foreach(after, name, s) all[n++] =
		(struct by){name, grown(json_object_get(before, name), s, what) / units};
	qsort(all, n, sizeof(*all), by_more);
	for (size_t i = 0; i < n && i < BY_MOST && all[i].by_n >= 0.005; i++)
		json_object_set_new(o, all[i].by_name, json_real(all[i].by_n));
	free(all);
	return o;
}

void *bench_counts_between(void *a, void *b, uint64_t units)
{
	json_t *before = a, *after = b, *o, *v, *by;
	double n = units ? (double)units : 1;
	const char *key;

	if (!before)
		return NULL;
	o = json_object();
	by = json_object();
	json_object_foreach(json_object_get(after, "counts"), key, v)
	{
		json_object_set_new(o, key,
				    json_real(grown(json_object_get(before, "counts"),
						    json_object_get(after, "counts"), key) /
					      n));
		json_object_set_new(by, key,
				    by_site(json_object_get(before, "sites"),
					    json_object_get(after, "sites"), key, n));
	}
	json_object_foreach(json_object_get(after, "committer_ns"), key, v)
		json_object_set_new(bench_count_part_of(o, "committer_us"), key,
				    json_real(grown(json_object_get(before, "committer_ns"),
						    json_object_get(after, "committer_ns"), key) /
					      n / 1e3));
	json_object_set_new(o, "by", by);
	json_decref(before);
	json_decref(after);
	return o;
}

void bench_counts_table(const void *counts)
{
	const json_t *o = counts;
	const char *key;
	json_t *v;

	if (!o)
		return;
	printf("           each:");
	json_object_foreach((json_t *)(uintptr_t)o, key, v)
	{
		if (json_is_number(v))
			printf(" %s %.2f", key, json_number_value(v));
	}
	printf("\n           committer, us:");
	json_object_foreach(json_object_get(o, "committer_us"), key, v)
		printf(" %s %.2f", key, json_number_value(v));
	printf("\n");
	fflush(stdout);
}

void bench_counts_free(void *counts)
{
	json_decref(counts);
}
