/* SPDX-License-Identifier: Apache-2.0 */
/* trace_test.c - the rings of events: what stays, what a reader sees, ids. */
#include "base/http.h"
#include "base/trace.h"
#include "tests/unit/unit.h"
#include <jansson.h>
#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EVENTS 64u

static void trace_setup(void)
{
	trace_open(EVENTS - 1); /* rounded up */
}

/* Each test is a process of its own: only its own threads have rings. */
static size_t read_all(struct trace_event **e)
{
	size_t n;

	ck_assert_int_eq(trace_read(e, &n), 0);
	return n;
}

START_TEST(the_newest_events_stay)
{
	struct trace_event *e;
	size_t n;

	for (uint64_t i = 0; i < 3 * EVENTS + 5; i++)
		TRACE_AT(i, io_start, i * 10, i, 2 * i, 3 * i);
	n = read_all(&e);
	ck_assert_uint_eq(n, EVENTS);
	for (uint64_t i = 0; i < n; i++) {
		uint64_t want = 2 * EVENTS + 5 + i;

		ck_assert_uint_eq(e[i].te_ns, want);
		ck_assert_uint_eq(e[i].te_ino, 10 * want);
		ck_assert_uint_eq(e[i].te_v[0], want);
		ck_assert_uint_eq(e[i].te_v[1], 2 * want);
		ck_assert_uint_eq(e[i].te_v[2], 3 * want);
		ck_assert_uint_eq(e[i].te_kind, TRACE_io_start);
		ck_assert_uint_eq(e[i].te_request, 0);
	}
	free(e);
}
END_TEST

START_TEST(events_come_by_request_and_then_by_time)
{
	static const uint64_t want[][2] = {{0, 7}, {1, 6}, {1, 5}, {1, 9}, {2, 8}};
	struct trace_event *e;

	log_request = 2;
	TRACE_AT(8, io_done, 0, 0, 0, 0);
	log_request = 1;
	TRACE_AT(9, io_done, 0, 0, 0, 0);
	TRACE_AT(5, io_start, 0, 0, 0, 0);
	TRACE_AT(6, request_start, 0, 0, 0, 0); /* a start goes first */
	log_request = 0;
	TRACE_AT(7, commit_batch, 0, 0, 0, 0);
	ck_assert_uint_eq(read_all(&e), 5);
	for (unsigned i = 0; i < 5; i++) {
		ck_assert_uint_eq(e[i].te_request, want[i][0]);
		ck_assert_uint_eq(e[i].te_ns, want[i][1]);
	}
	free(e);
}
END_TEST

static _Atomic bool stop;
static _Atomic unsigned running;

/* All values of an event follow from one number. */
static void *writer(void *arg)
{
	atomic_fetch_add(&running, 1);
	for (uint64_t i = 1; !atomic_load(&stop); i++) {
		log_request = i;
		TRACE_AT(i, sync_done, i ^ 0x5555, ~i, i << 7, i + (uintptr_t)arg);
	}
	return NULL;
}

START_TEST(a_reader_sees_whole_events_only)
{
	pthread_t threads[3];
	size_t seen = 0;

	for (uintptr_t k = 0; k < 3; k++)
		ck_assert_int_eq(pthread_create(&threads[k], NULL, writer, (void *)(k + 1)), 0);
	while (atomic_load(&running) < 3)
		usleep(100);
	for (unsigned times = 0; times < 200 || seen < 200; times++) {
		struct trace_event *e;
		size_t n = read_all(&e);

		for (size_t k = 0; k < n; k++) {
			uint64_t i = e[k].te_ns;

			ck_assert_uint_eq(e[k].te_request, i);
			ck_assert_uint_eq(e[k].te_ino, i ^ 0x5555);
			ck_assert_uint_eq(e[k].te_v[0], ~i);
			ck_assert_uint_eq(e[k].te_v[1], i << 7);
			ck_assert_uint_ge(e[k].te_v[2], i + 1);
			ck_assert_uint_le(e[k].te_v[2], i + 3);
			ck_assert_uint_eq(e[k].te_seq, 2 * i);
		}
		seen += n;
		free(e);
	}
	atomic_store(&stop, true);
	for (unsigned k = 0; k < 3; k++)
		pthread_join(threads[k], NULL);
}
END_TEST

/* ---- GET /v1/trace ---- */

static const char *after;

/* The request has this argument only. */
enum MHD_Result MHD_lookup_connection_value_n(struct MHD_Connection *conn, enum MHD_ValueKind kind,
					      const char *key, size_t key_len, const char **value,
					      size_t *len)
{
	(void)conn, (void)kind, (void)key_len;
	if (strcmp(key, "after") || !after)
		return MHD_NO;
	*value = after;
	*len = strlen(after);
	return MHD_YES;
}

static const struct http_req rq = {.rq_method = "GET", .rq_path = "/v1/trace", .rq_body = ""};

static void no_text(const struct trace_event *e, char out[TRACE_TEXT])
{
	(void)e;
	*out = '\0';
}

/* The ids of the requests that are answered after what was seen; goes on behind them. */
static void answered(char ids[128])
{
	static char next[256];
	struct http_reply rp = {0};
	json_t *j, *r;
	size_t i;

	trace_get(&rq, &rp, no_text);
	ck_assert_int_eq(rp.rp_status, 200);
	j = json_loads(rp.rp_body, 0, NULL);
	ck_assert_ptr_nonnull(j);
	*ids = '\0';
	json_array_foreach(json_object_get(j, "requests"), i, r)
	{
		strcat(ids, " ");
		strcat(ids, json_string_value(json_object_get(r, "request")));
	}
	snprintf(next, sizeof(next), "%s", json_string_value(json_object_get(j, "next")));
	after = next;
	json_decref(j);
	free(rp.rp_body);
}

static void *answer_one(void *at)
{
	log_request = trace_request();
	TRACE_AT(*(uint64_t *)at, request_start, 0, 0, 0, 0);
	TRACE_AT(*(uint64_t *)at, request_end, 0, 0, 0, 0);
	log_request = 0;
	return NULL;
}

/* An event has the time of its loop's turn: what was stored later may be from earlier. */
START_TEST(a_follower_sees_each_answer_once_whatever_its_time)
{
	static const char *const bad[] = {
		"x",	   "1",	      "1.",   ".1",   "1.2-",
		"65536.1", "1.2,2.3", "-1.2", "1.-2", "1.99999999999999999999"};
	uint64_t early = 50, late = 100;
	struct http_reply rp;
	pthread_t thread;
	char ids[128];

	answer_one(&late);
	answered(ids);
	ck_assert_str_eq(ids, " 1.1");
	ck_assert_int_eq(pthread_create(&thread, NULL, answer_one, &early), 0);
	pthread_join(thread, NULL);
	answered(ids);
	ck_assert_str_eq(ids, " 2.1");
	answered(ids);
	ck_assert_str_eq(ids, "");
	answer_one(&early);
	answered(ids);
	ck_assert_str_eq(ids, " 1.2");
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		after = bad[i];
		trace_get(&rq, &rp, no_text);
		ck_assert_msg(rp.rp_status == 400, "%s", bad[i]);
		free(rp.rp_body);
	}
}
END_TEST

#define REQUESTS 1000u

static void *asker(void *arg)
{
	uint64_t *ids = arg;

	for (unsigned i = 0; i < REQUESTS; i++)
		ids[i] = trace_request();
	return NULL;
}

static int by_value(const void *va, const void *vb)
{
	uint64_t a = *(const uint64_t *)va, b = *(const uint64_t *)vb;

	return a < b ? -1 : a > b;
}

START_TEST(no_two_requests_have_one_id)
{
	static uint64_t ids[6][REQUESTS];
	pthread_t threads[3];

	/* The second three take over the rings of the first three. */
	for (unsigned round = 0; round < 2; round++) {
		for (unsigned k = 0; k < 3; k++)
			ck_assert_int_eq(
				pthread_create(&threads[k], NULL, asker, ids[3 * round + k]), 0);
		for (unsigned k = 0; k < 3; k++)
			pthread_join(threads[k], NULL);
	}
	for (unsigned k = 0; k < 6; k++)
		ck_assert_uint_le(ids[k][0] >> 48, 3);
	qsort(ids, 6 * REQUESTS, sizeof(ids[0][0]), by_value);
	for (unsigned i = 1; i < 6 * REQUESTS; i++)
		ck_assert_uint_ne((&ids[0][0])[i], (&ids[0][0])[i - 1]);
}
END_TEST

START_TEST(an_id_is_read_as_it_is_written)
{
	static const char *const bad[] = {"",	  "1",	     "1.",   ".1",
					  "0.1",  "1.0",     "1.2x", "1.2.3",
					  "-1.2", "65536.1", "1.-2", "1.281474976710656"};
	uint64_t id = trace_request();
	char text[TRACE_ID_TEXT];

	ck_assert_uint_eq(trace_id_parse(trace_id_text(text, id)), id);
	id = UINT64_MAX;
	ck_assert_str_eq(trace_id_text(text, id), "65535.281474976710655");
	ck_assert_uint_eq(trace_id_parse(text), id);
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_msg(!trace_id_parse(bad[i]), "%s", bad[i]);
}
END_TEST

START_TEST(a_log_line_has_the_id_of_its_request)
{
	char text[4096] = "", want[128], id[TRACE_ID_TEXT];
	int fd[2], saved = dup(STDERR_FILENO);

	ck_assert_int_eq(pipe(fd), 0);
	dup2(fd[1], STDERR_FILENO);
	log_set_name("t");
	log_request = trace_request();
	log_info("one");
	log_info("%02000d", 1); /* cut, but for the id */
	trace_id_text(id, log_request);
	log_request = 0;
	log_info("two");
	dup2(saved, STDERR_FILENO);
	close(fd[1]);
	ck_assert_int_gt(read(fd[0], text, sizeof(text) - 1), 0);
	close(fd[0]);
	close(saved);
	snprintf(want, sizeof(want), "INFO t: one [request %s]\nINFO t: 000", id);
	ck_assert_msg(!strncmp(text, want, strlen(want)), "%s", text);
	snprintf(want, sizeof(want), "000 [request %s]\nINFO t: two\n", id);
	ck_assert_ptr_nonnull(strstr(text, want));
}
END_TEST

START_TEST(nothing_is_traced_where_no_thread_keeps_events)
{
	struct trace_event *e;

	trace_open(0);
	TRACE(io_start, 1, 2, 3, 4);
	ck_assert_uint_eq(trace_request(), 0);
	ck_assert_uint_eq(read_all(&e), 0);
	free(e);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		the_newest_events_stay,
		events_come_by_request_and_then_by_time,
		a_reader_sees_whole_events_only,
		a_follower_sees_each_answer_once_whatever_its_time,
		no_two_requests_have_one_id,
		an_id_is_read_as_it_is_written,
		a_log_line_has_the_id_of_its_request,
		NULL,
	};
	const TTest *const off[] = {nothing_is_traced_where_no_thread_keeps_events, NULL};
	Suite *s = suite_create("trace");

	unit_add(s, "on", trace_setup, NULL, 30, tests);
	unit_add(s, "off", NULL, NULL, 30, off);
	return unit_run(s);
}
