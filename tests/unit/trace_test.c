/* SPDX-License-Identifier: Apache-2.0 */
/* trace_test.c - the rings of events: what stays, what a reader sees, ids. */
#include "common/http.h"
#include "common/trace.h"
#include "tests/unit/unit.h"
#include <jansson.h>
#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Called before each load of a reader: what other threads do then. */
static void (*between)(void);

static uint64_t load_after(const _Atomic uint64_t *p, memory_order order)
{
	if (between)
		between();
	return atomic_load_explicit(p, order);
}

#pragma push_macro("atomic_load_explicit")
#undef atomic_load_explicit
#define atomic_load_explicit(p, order) load_after(p, order)
#include "common/trace.c"
#pragma pop_macro("atomic_load_explicit")

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

/* ---- a cut through several rings ---- */

static void cut_setup(void)
{
	trace_open(4);
}

static struct ring *works, *answers;
static uint64_t request, loads, works_at, answers_at;

/* The event of a thread that has this ring. */
static void cut_put(struct ring *r, enum trace_kind kind, uint64_t of)
{
	mine = r;
	log_request = of;
	trace_put(kind, request, 0, request, 0, 0);
	log_request = 0;
}

/* One thread works for a request, and commits its batch; then another answers it. */
static void cut_step(void)
{
	if (++loads == works_at) {
		cut_put(works, TRACE_commit_batch, 0);
		cut_put(works, TRACE_mutation_done, request);
	}
	if (loads == answers_at)
		cut_put(answers, TRACE_request_end, request);
}

/* Returns whether the request's answer is seen as new behind *next, and sets that. */
static bool cut_look(uint64_t *next)
{
	bool batch = false, mutation = false, end = false;
	uint64_t from = *next;
	struct trace_event *e;
	size_t n = read_all(&e);

	for (size_t i = 0; i < n; i++) {
		if (e[i].te_thread == answers->r_number && !e[i].te_late && e[i].te_seq > *next)
			*next = e[i].te_seq;
		if (e[i].te_v[0] != request)
			continue;
		batch |= e[i].te_kind == TRACE_commit_batch;
		mutation |= e[i].te_kind == TRACE_mutation_done;
		if (e[i].te_kind == TRACE_request_end) {
			ck_assert(!e[i].te_late);
			end = e[i].te_seq > from;
		}
	}
	ck_assert_msg(!end || (batch && mutation), "worked before load %ju, answered before %ju",
		      (uintmax_t)works_at, (uintmax_t)answers_at);
	free(e);
	return end;
}

/* Work and answer come before each load of a reader, and each later one. */
static void cut_between_all_loads(void)
{
	uint64_t next = 0, total;
	unsigned early = 0, late = 0;

	between = cut_step;
	loads = works_at = answers_at = 0;
	cut_look(&next);
	total = loads;
	for (works_at = 1; works_at <= total; works_at++)
		for (answers_at = works_at; answers_at <= total; answers_at++) {
			bool first;

			request++;
			loads = 0;
			first = cut_look(&next);
			while (loads < total)
				cut_step();
			ck_assert_int_ne(first, cut_look(&next));
			*(first ? &early : &late) += 1;
		}
	ck_assert_uint_gt(early, 0);
	ck_assert_uint_gt(late, 0);
	between = NULL;
}

START_TEST(a_reader_sees_all_that_threads_did_for_a_request_before_its_answer)
{
	struct ring *one = ring_take(), *other = ring_take();

	for (unsigned i = 0; i < 4; i++) {
		cut_put(one, TRACE_io_start, 0);
		cut_put(other, TRACE_io_start, 0);
	}
	works = one, answers = other;
	cut_between_all_loads();
	works = other, answers = one;
	cut_between_all_loads();
}
END_TEST

/* ---- GET /v1/trace ---- */

static const char *after, *inode;

/* The request has these arguments. */
enum MHD_Result MHD_lookup_connection_value_n(struct MHD_Connection *conn, enum MHD_ValueKind kind,
					      const char *key, size_t key_len, const char **value,
					      size_t *len)
{
	(void)conn, (void)kind, (void)key_len;
	*value = !strcmp(key, "after") ? after : !strcmp(key, "inode") ? inode : NULL;
	if (!*value)
		return MHD_NO;
	*len = strlen(*value);
	return MHD_YES;
}

static const struct http_req rq = {.rq_method = "GET", .rq_path = "/v1/trace", .rq_body = ""};

static void no_text(const struct trace_event *e, char out[TRACE_TEXT])
{
	(void)e;
	*out = '\0';
}

/* What was answered after what was seen; goes on behind it. The caller's reference. */
static json_t *look(void)
{
	static char next[256];
	struct http_reply rp = {0};
	json_t *j;

	trace_get(&rq, &rp, no_text);
	ck_assert_int_eq(rp.rp_status, 200);
	j = json_loads(rp.rp_body, 0, NULL);
	ck_assert_ptr_nonnull(j);
	snprintf(next, sizeof(next), "%s", json_string_value(json_object_get(j, "next")));
	after = next;
	free(rp.rp_body);
	return j;
}

/* The ids of the requests. Returns whether the daemon was restarted since the last look. */
static bool answered(char ids[128])
{
	json_t *j = look(), *r;
	bool restarted = json_is_true(json_object_get(j, "restarted"));
	size_t i;

	*ids = '\0';
	json_array_foreach(json_object_get(j, "requests"), i, r)
	{
		strcat(ids, " ");
		strcat(ids, json_string_value(json_object_get(r, "request")));
	}
	json_decref(j);
	return restarted;
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

START_TEST(all_of_a_new_run_is_new)
{
	/* Of an earlier run; of a daemon that named no run; of one that had no events. */
	static const char *const old[] = {"0.1-1.999999", "1.999999", ""};
	uint64_t at = 50;
	char ids[128];

	answer_one(&at);
	ck_assert(!answered(ids));
	ck_assert_str_eq(ids, " 1.1");
	for (unsigned i = 0; i < sizeof(old) / sizeof(old[0]); i++) {
		after = old[i];
		ck_assert_msg(answered(ids), "%s", old[i]);
		ck_assert_msg(!strcmp(ids, " 1.1"), "%s: %s", old[i], ids);
		ck_assert(!answered(ids));
		ck_assert_str_eq(ids, "");
	}
}
END_TEST

/* How many events of no request are shown, and the time of the first. */
static size_t of_no_request(double *us, json_int_t *began)
{
	json_t *j = look(), *r = json_array_get(json_object_get(j, "requests"), 0),
	       *e = json_object_get(r, "events");
	size_t n = json_array_size(e);

	ck_assert_uint_le(json_array_size(json_object_get(j, "requests")), 1);
	ck_assert(!r || json_is_null(json_object_get(r, "request")));
	*us = json_real_value(json_object_get(json_array_get(e, 0), "us"));
	*began = (json_int_t)(json_number_value(json_object_get(r, "began_at")) * 1000 + 0.5);
	json_decref(j);
	return n;
}

START_TEST(what_belongs_to_no_request_is_shown_once)
{
	json_int_t first, second;
	double us;

	inode = "7";
	TRACE_AT(1000000000, fence, 7, 1, 0, 0);
	TRACE_AT(1000000000, fence, 8, 1, 0, 0);
	ck_assert_uint_eq(of_no_request(&us, &first), 1);
	ck_assert_uint_eq(of_no_request(&us, &second), 0);
	TRACE_AT(3000000000, fence, 8, 2, 0, 0);
	ck_assert_uint_eq(of_no_request(&us, &second), 0);
	TRACE_AT(5000000000, fence, 7, 2, 0, 0);
	ck_assert_uint_eq(of_no_request(&us, &second), 1);
	ck_assert(us == 0); /* the time begins with what is shown */
	ck_assert_int_ge(second, first + 3900);
	inode = NULL;
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
		all_of_a_new_run_is_new,
		what_belongs_to_no_request_is_shown_once,
		no_two_requests_have_one_id,
		an_id_is_read_as_it_is_written,
		a_log_line_has_the_id_of_its_request,
		NULL,
	};
	const TTest *const cut[] = {
		a_reader_sees_all_that_threads_did_for_a_request_before_its_answer, NULL};
	const TTest *const off[] = {nothing_is_traced_where_no_thread_keeps_events, NULL};
	Suite *s = suite_create("trace");

	unit_add(s, "on", trace_setup, NULL, 30, tests);
	unit_add(s, "cut", cut_setup, NULL, 30, cut);
	unit_add(s, "off", NULL, NULL, 30, off);
	return unit_run(s);
}
