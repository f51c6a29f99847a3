/* SPDX-License-Identifier: Apache-2.0 */
/*
 * status.c - how the data server stands with its MDSs: GET /v1/health, and the gauges of joins,
 * leases and barred clients. A gauge without labels is the worst of all MDSs; where there is one
 * MDS, it is that one's.
 */
#include "ds/ds.h"
#include "base/clock.h"
#include "common/http.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Writes the list of MDSs as JSON. *joined: how many have been joined; *of: how many are to be.
 * Returns malloc'd text; NULL:
 * out of memory. */
static char *status_mds(struct ds *d, unsigned *joined, unsigned *of, char why[256])
{
	unsigned n = atomic_load(&d->d_nmds), shown = 0;
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);

	*joined = *of = 0;
	*why = 0;
	if (!out)
		return NULL;
	for (unsigned i = 0; i < n; i++) {
		struct ds_control_state cs;

		if (!ds_control_state(d, i, &cs))
			continue;
		fprintf(out, "%s{\"address\":\"%s\",\"joined\":%s,\"learned\":%s,\"fs\":",
			shown++ ? "," : "", cs.cs_mds, cs.cs_joined ? "true" : "false",
			cs.cs_learned ? "true" : "false");
		if (cs.cs_fs)
			fprintf(out, "%" PRIu32, ds_fs_number(cs.cs_fs));
		else
			fputs("null", out);
		if (!cs.cs_joined)
			fprintf(out, ",\"why\":\"%s\"", cs.cs_why);
		fputc('}', out);
		*joined += cs.cs_joined;
		*of += !cs.cs_spare;
		if (!cs.cs_joined && !cs.cs_spare && !*why)
			strcpy(why, cs.cs_why);
	}
	if (fclose(out)) {
		free(text);
		return NULL;
	}
	return text;
}

void ds_status_health(struct ds *d, const struct http_req *rq, struct http_reply *rp)
{
	bool ok = atomic_load(&d->d_listening), all;
	char why[256], said[sizeof(why) + 16] = "";
	unsigned joined, of;
	char *mds = status_mds(d, &joined, &of, why);

	all = joined && joined == of;
	if (!all)
		snprintf(said, sizeof(said), ",\"why\":\"%s\"", why);
	/* One MDS that is away leaves the file systems of the others served. */
	rp->rp_status = ok && (joined || !http_has(rq, "ready")) ? 200 : 503;
	if (!mds || asprintf(&rp->rp_body, "{\"ok\":%s,\"joined\":%s%s,\"mds\":[%s]}\n",
			     ok ? "true" : "false", all ? "true" : "false", said, mds) < 0)
		rp->rp_body = NULL;
	free(mds);
}

static double joined_gauge(void *arg)
{
	struct ds *d = arg;
	unsigned n = atomic_load(&d->d_nmds);
	bool all = n;

	for (unsigned i = 0; i < n; i++) {
		struct ds_control_state cs;

		if (ds_control_state(d, i, &cs))
			all &= cs.cs_joined || cs.cs_spare;
	}
	return all;
}

static double lease_left(const struct ds *d, const struct ds_fs *f)
{
	uint64_t end = atomic_load(&d->d_lease[ds_fs_place(f)].le_end_ns), now = clock_boot_ns();

	return end > now ? (double)(end - now) / 1e9 : 0;
}

/* Calls fn for the file system of each MDS that this server knows. */
static void status_each(struct ds *d, void (*fn)(struct ds *d, struct ds_fs *f, void *arg),
			void *arg)
{
	for (unsigned i = 0; i < atomic_load(&d->d_nmds); i++) {
		struct ds_control_state cs;

		if (ds_control_state(d, i, &cs) && cs.cs_fs)
			fn(d, cs.cs_fs, arg);
	}
}

static void lease_least(struct ds *d, struct ds_fs *f, void *arg)
{
	double *least = arg, left = lease_left(d, f);

	if (*least < 0 || left < *least)
		*least = left;
}

static double lease_gauge(void *arg)
{
	double least = -1;

	status_each(arg, lease_least, &least);
	return least < 0 ? 0 : least;
}

static void striped_least(struct ds *d, struct ds_fs *f, void *arg)
{
	uint64_t since = atomic_load(&d->d_lease[ds_fs_place(f)].le_striped2_ns);
	double *least = arg, version = since && clock_boot_ns() >= since ? 2 : 1;

	if (!*least || version < *least)
		*least = version;
}

static double striped_gauge(void *arg)
{
	double least = 0;

	status_each(arg, striped_least, &least);
	return least ? least : 1;
}

static double bars_gauge(void *arg)
{
	struct ds *d = arg;
	double n = 0;
	size_t bytes;

	for (unsigned i = 0; d->d_store && i < DS_FS_MAX; i++) {
		struct ds_fs *f = ds_store_fs_at(d->d_store, i);

		n += f ? (double)ds_store_bars(f, &bytes) : 0;
	}
	return n;
}

/* A series for each MDS. */
static void mds_each(struct metric_out *o, struct ds *d,
		     double (*value)(const struct ds *d, const struct ds_control_state *cs))
{
	for (unsigned i = 0; i < atomic_load(&d->d_nmds); i++) {
		struct ds_control_state cs;
		char labels[128];

		if (!ds_control_state(d, i, &cs))
			continue;
		snprintf(labels, sizeof(labels), "mds=\"%s\"", cs.cs_mds);
		metric_put(o, labels, value(d, &cs));
	}
}

static double joined_of(const struct ds *d, const struct ds_control_state *cs)
{
	(void)d;
	return cs->cs_joined;
}

static double status_lease(const struct ds *d, const struct ds_control_state *cs)
{
	return cs->cs_fs ? lease_left(d, cs->cs_fs) : 0;
}

static void mds_joined(struct metric_out *o, void *arg)
{
	mds_each(o, arg, joined_of);
}

static void mds_lease(struct metric_out *o, void *arg)
{
	mds_each(o, arg, status_lease);
}

void ds_status_metrics(struct ds *d)
{
	metric_gauge("weft_ds_joined", "1 while joined to each MDS.", "", joined_gauge, d);
	metric_family("weft_ds_mds_joined", "1 while joined to this MDS.", mds_joined, d);
	metric_gauge("weft_ds_lease_seconds", "Time left of the lease that ends first.", "",
		     lease_gauge, d);
	metric_family("weft_ds_mds_lease_seconds", "Time left of the lease from this MDS.",
		      mds_lease, d);
	metric_gauge(
		"weft_ds_striped_version",
		"The oldest version of a client's capability that is good for a file with stripes.",
		"", striped_gauge, d);
	metric_gauge("weft_ds_bars", "Runs of barred clients' numbers.", "", bars_gauge, d);
}
