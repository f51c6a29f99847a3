/* SPDX-License-Identifier: Apache-2.0 */
/* trace_http.c - GET /v1/trace of both daemons: which requests are shown, and their events as
 * JSON. */
#include "common/http.h"
#include "common/trace.h"
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LAST_MOST    1000
#define LAST_DEFAULT 10
#define EVENTS_MOST  2000 /* of one request */
#define THREADS	     (UINT16_MAX + 1)

/* The events of one request: a run of q_e. Events of no request are the request 0. */
struct group {
	const struct trace_event *g_e;
	size_t g_n;
	uint64_t g_first, g_end; /* g_end: when it was answered; 0: it is under way */
	const struct trace_event *g_start;
	bool g_ino; /* the inode that was asked for is among them */
	bool g_new; /* answered after what the caller has seen; of request 0: some of it is */
};

struct query {
	uint64_t q_request, q_ino, q_addr[2];
	/* the newest event of each thread that the caller has seen, and that it will have; q_after
	 * may be NULL */
	uint64_t *q_after, *q_next;
	uint64_t q_run; /* of the daemon, in which the caller saw them; 0: it did not say */
	bool q_by_addr;
	size_t q_last;
	void (*q_text)(const struct trace_event *e, char out[TRACE_TEXT]);
	struct trace_event *q_e; /* as trace_read orders them */
	size_t q_n;
	struct group *q_g; /* those to be shown, by time */
	size_t q_ng;
	/* batches, by number: requests name them */
	struct trace_event *q_batch;
	size_t q_nbatch;
	int64_t q_clock_ms; /* what the wall clock is ahead of CLOCK_MONOTONIC */
};

/* ---- which requests ---- */

static int by_batch(const void *va, const void *vb)
{
	const struct trace_event *a = va, *b = vb;

	return a->te_v[0] < b->te_v[0] ? -1 : a->te_v[0] > b->te_v[0];
}

static int by_first(const void *va, const void *vb)
{
	const struct group *a = va, *b = vb;

	return a->g_first < b->g_first ? -1 : a->g_first > b->g_first;
}

static bool wanted(const struct query *q, const struct group *g)
{
	uint64_t request = g->g_e->te_request;

	if (!request && !q->q_ino)
		return false;
	if (q->q_request && request != q->q_request)
		return false;
	if (q->q_ino && !g->g_ino)
		return false;
	if (q->q_by_addr && (!g->g_start || memcmp(g->g_start->te_v, q->q_addr, 16)))
		return false;
	return !q->q_after || g->g_new;
}

/* Has the caller not seen it yet? A late event is left to the next time. */
static bool is_new(const struct query *q, const struct trace_event *e)
{
	if (e->te_late)
		return false;
	return e->te_thread >= THREADS || !q->q_after || e->te_seq > q->q_after[e->te_thread];
}

/* A request is shown whole. Of the events of no request, each is shown once. */
static bool event_shown(const struct query *q, const struct trace_event *e)
{
	return e->te_request || (e->te_ino == q->q_ino && is_new(q, e));
}

static void group_add(struct query *q, const struct trace_event *e, size_t n)
{
	struct group g = {.g_e = e, .g_n = n, .g_first = e->te_ns};

	for (size_t i = 0; i < n; i++) {
		if (!event_shown(q, &e[i]))
			continue;
		if (!e->te_request && !g.g_ino)
			g.g_first = e[i].te_ns;
		g.g_ino |= e[i].te_ino == q->q_ino;
		if (e[i].te_kind == TRACE_request_start)
			g.g_start = &e[i];
		if (e[i].te_kind != TRACE_request_end && e[i].te_request)
			continue;
		g.g_end = e[i].te_ns;
		g.g_new |= is_new(q, &e[i]);
	}
	if (wanted(q, &g))
		q->q_g[q->q_ng++] = g;
}

static size_t run_of(const struct query *q, size_t at)
{
	size_t n = 1;

	while (at + n < q->q_n && q->q_e[at + n].te_request == q->q_e[at].te_request)
		n++;
	return n;
}

static int trace_choose(struct query *q)
{
	size_t groups = 0;

	for (size_t i = 0; i < q->q_n; i += run_of(q, i))
		groups++;
	q->q_next = calloc(THREADS, sizeof(*q->q_next));
	q->q_g = calloc(groups + 1, sizeof(*q->q_g));
	q->q_batch = malloc((q->q_n + 1) * sizeof(*q->q_batch));
	if (!q->q_g || !q->q_batch || !q->q_next)
		return -ENOMEM;
	if (q->q_after)
		memcpy(q->q_next, q->q_after, THREADS * sizeof(*q->q_next));
	for (size_t i = 0; i < q->q_n; i++)
		if (q->q_e[i].te_thread < THREADS && !q->q_e[i].te_late &&
		    q->q_e[i].te_seq > q->q_next[q->q_e[i].te_thread])
			q->q_next[q->q_e[i].te_thread] = q->q_e[i].te_seq;
	for (size_t i = 0; i < q->q_n; i++)
		if (q->q_e[i].te_kind == TRACE_commit_batch)
			q->q_batch[q->q_nbatch++] = q->q_e[i];
	qsort(q->q_batch, q->q_nbatch, sizeof(*q->q_batch), by_batch);
	for (size_t i = 0, n; i < q->q_n; i += n) {
		n = run_of(q, i);
		group_add(q, &q->q_e[i], n);
	}
	qsort(q->q_g, q->q_ng, sizeof(*q->q_g), by_first);
	return 0;
}

/* ---- as JSON ---- */

static void event_add(const struct query *q, json_t *list, const struct trace_event *e,
		      uint64_t first)
{
	char text[TRACE_TEXT] = "";

	q->q_text(e, text);
	json_array_append_new(
		list, json_pack("{s:f, s:I, s:s, s:o, s:s}", "us",
				((double)e->te_ns - (double)first) / 1000, "thread",
				(json_int_t)e->te_thread, "kind",
				trace_kind_name((enum trace_kind)e->te_kind), "inode",
				e->te_ino ? json_integer((json_int_t)e->te_ino) : json_null(),
				"text", text));
}

/* A request names the batch that its mutation was in. */
static void batch_add(const struct query *q, json_t *list, const struct trace_event *e,
		      uint64_t first)
{
	const struct trace_event *b =
		e->te_kind == TRACE_mutation_done
			? bsearch(e, q->q_batch, q->q_nbatch, sizeof(*e), by_batch)
			: NULL;

	if (b)
		event_add(q, list, b, first);
}

static json_t *client_json(const struct group *g)
{
	struct in6_addr in6;
	uint64_t a[2];
	char text[INET6_ADDRSTRLEN + 16] = "";
	uint16_t port;
	json_t *j;
	int n;

	if (!g->g_start)
		return json_null();
	a[0] = htobe64(g->g_start->te_v[0]);
	a[1] = htobe64(g->g_start->te_v[1]);
	memcpy(&in6, a, sizeof(in6));
	port = (uint16_t)g->g_start->te_v[2];
	if (IN6_IS_ADDR_V4MAPPED(&in6))
		inet_ntop(AF_INET, (const uint8_t *)&in6 + 12, text, INET6_ADDRSTRLEN);
	else
		inet_ntop(AF_INET6, &in6, text, INET6_ADDRSTRLEN);
	n = (int)strlen(text);
	j = json_sprintf(strchr(text, ':') ? "[%.*s]:%u" : "%.*s:%u", n, text, port);
	return j ? j : json_null();
}

static json_t *group_json(const struct query *q, const struct group *g)
{
	json_t *list = json_array();
	char id[TRACE_ID_TEXT];
	size_t shown = 0;

	for (size_t i = 0; i < g->g_n && shown < EVENTS_MOST; i++) {
		if (!event_shown(q, &g->g_e[i]))
			continue;
		batch_add(q, list, &g->g_e[i], g->g_first);
		event_add(q, list, &g->g_e[i], g->g_first);
		shown++;
	}
	return json_pack("{s:o, s:o, s:f, s:o, s:b, s:o}", "request",
			 g->g_e->te_request ? json_string(trace_id_text(id, g->g_e->te_request))
					    : json_null(),
			 "client", client_json(g), "began_at",
			 (double)(q->q_clock_ms + (int64_t)(g->g_first / 1000000)) / 1000, "us",
			 g->g_end && g->g_e->te_request
				 ? json_real(((double)g->g_end - (double)g->g_first) / 1000)
				 : json_null(),
			 "whole", g->g_start && g->g_end, "events", list);
}

/* The run, and the newest event of each thread: "0.1893456000123456789-1.5026-3.18". */
static json_t *next_json(const struct query *q)
{
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);
	json_t *j;

	if (f)
		fprintf(f, "0.%" PRIu64, trace_run());
	for (unsigned t = 1; f && t < THREADS; t++)
		if (q->q_next[t])
			fprintf(f, "-%u.%" PRIu64, t, q->q_next[t]);
	j = f && !fclose(f) ? json_string(text) : NULL;
	free(text);
	return j ? j : json_string("");
}

static json_t *trace_json(const struct query *q)
{
	size_t from = q->q_last && q->q_ng > q->q_last ? q->q_ng - q->q_last : 0;
	json_t *list = json_array();

	for (size_t i = from; i < q->q_ng; i++)
		json_array_append_new(list, group_json(q, &q->q_g[i]));
	return json_pack("{s:o, s:o, s:b, s:I, s:I}", "requests", list, "next", next_json(q),
			 "restarted", q->q_after && q->q_run != trace_run(), "left_out",
			 (json_int_t)from, "kept", (json_int_t)q->q_n);
}

/* ---- the request ---- */

static void trace_reply(struct http_reply *rp, int status, json_t *j)
{
	rp->rp_status = j ? status : 500;
	rp->rp_body = j ? json_dumps(j, JSON_COMPACT | JSON_REAL_PRECISION(16)) : NULL;
	json_decref(j);
	if (!rp->rp_body) {
		rp->rp_status = 500;
		rp->rp_body = strdup("{\"error\":\"out of memory\"}");
	}
}

static bool number_arg(const struct http_req *rq, const char *name, uint64_t least, uint64_t most,
		       uint64_t *out)
{
	const char *text = http_arg(rq, name);
	unsigned long long v;
	char *end;

	if (!text)
		return true;
	errno = 0;
	v = strtoull(text, &end, 10);
	if (!isdigit((unsigned char)*text) || *end || errno || v < least || v > most)
		return false;
	*out = v;
	return true;
}

static bool address_arg(const char *text, uint64_t out[2])
{
	struct sockaddr_storage ss = {0};

	if (inet_pton(AF_INET, text, &((struct sockaddr_in *)&ss)->sin_addr) == 1)
		ss.ss_family = AF_INET;
	else if (inet_pton(AF_INET6, text, &((struct sockaddr_in6 *)&ss)->sin6_addr) == 1)
		ss.ss_family = AF_INET6;
	if (!ss.ss_family)
		return false;
	trace_address(&ss, out);
	return true;
}

/* What next_json put, maybe in an earlier run: then all events of this one are new. */
static bool after_arg(const char *text, struct query *q)
{
	char *end = (char *)text;

	q->q_after = calloc(THREADS, sizeof(*q->q_after));
	while (q->q_after && *text) {
		unsigned long long thread, seq;

		errno = 0;
		thread = isdigit((unsigned char)*text) ? strtoull(text, &end, 10) : THREADS;
		if (thread >= THREADS || *end != '.' || !isdigit((unsigned char)end[1]))
			return false;
		seq = strtoull(end + 1, &end, 10);
		if (errno || (*end && (*end != '-' || !end[1])))
			return false;
		q->q_after[thread] = seq;
		text = *end ? end + 1 : end;
	}
	if (!q->q_after)
		return false;
	q->q_run = q->q_after[0];
	if (q->q_run != trace_run())
		memset(q->q_after, 0, THREADS * sizeof(*q->q_after));
	return true;
}

/* Returns NULL, or what is wrong. */
static const char *args(const struct http_req *rq, struct query *q)
{
	const char *id = http_arg(rq, "id"), *client = http_arg(rq, "client"),
		   *after = http_arg(rq, "after");
	uint64_t last = LAST_DEFAULT;

	if (id && !(q->q_request = trace_id_parse(id)))
		return "id: expected a request's id, such as 3.4711";
	if (client && !address_arg(client, q->q_addr))
		return "client: expected an IP address";
	if (!number_arg(rq, "inode", 1, INT64_MAX, &q->q_ino))
		return "inode: expected an inode number";
	if (after && !after_arg(after, q))
		return "after: expected what the last answer had as next";
	if (!number_arg(rq, "last", 1, LAST_MOST, &last))
		return "last: expected a number from 1 to 1000";
	q->q_by_addr = client;
	q->q_last = q->q_after && !http_arg(rq, "last") ? LAST_MOST : last;
	return NULL;
}

void trace_get(const struct http_req *rq, struct http_reply *rp,
	       void (*text)(const struct trace_event *e, char out[TRACE_TEXT]))
{
	struct query q = {
		.q_text = text,
		.q_clock_ms = (int64_t)(clock_of(CLOCK_REALTIME) / 1000000) -
			      (int64_t)(clock_mono_ns() / 1000000),
	};
	const char *wrong = args(rq, &q);
	int err;

	if (wrong) {
		trace_reply(rp, 400, json_pack("{s:s}", "error", wrong));
	} else {
		err = trace_read(&q.q_e, &q.q_n);
		if (!err)
			err = trace_choose(&q);
		trace_reply(rp, 200, err ? NULL : trace_json(&q));
	}
	free(q.q_after);
	free(q.q_next);
	free(q.q_e);
	free(q.q_g);
	free(q.q_batch);
}
