/* SPDX-License-Identifier: Apache-2.0 */
/* base_test.c - the event loop, metrics, configuration and the HTTP server. */
#include "base/clock.h"
#include "base/conf.h"
#include "base/host_port.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/metrics.h"
#include "common/http.h"
#include "tests/unit/unit.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- loop ---- */

static struct loop *L;

static void loop_setup(void)
{
	int err = loop_create(&L, 256);

	ck_assert_msg(!err, "loop_create: %s", strerror(-err));
}

static void loop_teardown(void)
{
	loop_destroy(L);
}

/* The wall clock is decades ahead of this one: a wait by it would be over at once. */
START_TEST(a_wait_ends_by_the_clock_that_is_never_set)
{
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	uint64_t until = clock_mono_ns() + 50000000;
	pthread_cond_t cond;

	clock_cond_init(&cond);
	pthread_mutex_lock(&lock);
	while (clock_cond_wait(&cond, &lock, until))
		;
	ck_assert_uint_ge(clock_mono_ns(), until);
	pthread_mutex_unlock(&lock);
	pthread_cond_destroy(&cond);
}
END_TEST

static void *run_thread(void *arg)
{
	loop_run(arg);
	return NULL;
}

static struct {
	struct loop_timer t;
	int id;
} timers[200];
static int fired[200], nfired;

static void timer_fire(struct loop_timer *t)
{
	fired[nfired++] = (int)(((char *)t - (char *)timers) / sizeof timers[0]);
	if (nfired == 100)
		loop_stop(L);
}

START_TEST(timers_fire_in_order_of_time)
{
	uint64_t begin = clock_mono_ms();

	for (int i = 0; i < 200; i++) {
		timers[i].t.t_fire = timer_fire;
		loop_timer_start(L, &timers[i].t, (uint64_t)(1 + (i * 37) % 200));
	}
	/* Half are stopped, some are moved. */
	for (int i = 1; i < 200; i += 2)
		loop_timer_stop(L, &timers[i].t);
	loop_timer_start(L, &timers[0].t, 250);
	loop_run(L);
	ck_assert_int_eq(nfired, 100);
	for (int i = 1; i < 100; i++) {
		ck_assert_int_eq(fired[i] % 2, 0);
		ck_assert_uint_le(timers[fired[i - 1]].t.t_due_ns, timers[fired[i]].t.t_due_ns);
	}
	ck_assert_int_eq(fired[99], 0);
	ck_assert_uint_ge(clock_mono_ms() - begin, 249);
}
END_TEST

#define POSTERS 4
#define POSTS	50000
static _Atomic int posted_run;
static int last_seq[POSTERS], out_of_order;
static struct post {
	struct loop_msg m;
	int poster, seq;
} * posts;

static void post_run(struct loop_msg *m)
{
	struct post *p = (struct post *)m;

	ck_assert_ptr_eq(loop_self(), L);
	if (last_seq[p->poster] != p->seq)
		out_of_order++;
	last_seq[p->poster] = p->seq + 1;
	if (atomic_fetch_add(&posted_run, 1) + 1 == POSTERS * POSTS)
		loop_stop(L);
}

static void *poster(void *arg)
{
	int who = (int)(intptr_t)arg;

	for (int i = 0; i < POSTS; i++) {
		struct post *p = &posts[who * POSTS + i];

		p->m.m_run = post_run;
		p->poster = who;
		p->seq = i;
		loop_post(L, &p->m);
		if (i % 1000 == 0)
			usleep(500); /* lets the loop go to sleep in between */
	}
	return NULL;
}

START_TEST(every_posted_message_runs_once_and_in_order)
{
	pthread_t t[POSTERS];

	posts = calloc(POSTERS * POSTS, sizeof *posts);
	for (intptr_t i = 0; i < POSTERS; i++)
		pthread_create(&t[i], NULL, poster, (void *)i);
	loop_run(L);
	for (int i = 0; i < POSTERS; i++)
		pthread_join(t[i], NULL);
	ck_assert_int_eq(atomic_load(&posted_run), POSTERS * POSTS);
	ck_assert_int_eq(out_of_order, 0);
	free(posts);
}
END_TEST

static struct loop_io read_io;
static char read_buf[16];
static int read_res;

static void read_done(struct loop_io *io, int res, uint32_t flags)
{
	(void)flags;
	ck_assert_ptr_eq(io, &read_io);
	read_res = res;
	loop_stop(L);
}

START_TEST(io_queued_before_the_loop_runs_completes_on_its_thread)
{
	struct io_uring_sqe *sqe = loop_sqe(L);
	pthread_t t;
	int fd[2];

	ck_assert_int_eq(pipe(fd), 0);
	read_io.lio_done = read_done;
	io_uring_prep_read(sqe, fd[0], read_buf, sizeof read_buf, 0);
	loop_arm(sqe, &read_io);
	pthread_create(&t, NULL, run_thread, L);
	usleep(20000);
	ck_assert_int_eq(write(fd[1], "hello", 5), 5);
	pthread_join(t, NULL);
	ck_assert_int_eq(read_res, 5);
	ck_assert_mem_eq(read_buf, "hello", 5);
	close(fd[0]);
	close(fd[1]);
}
END_TEST

static int nops_left;
static struct loop_io nop_io;

static void nop_done(struct loop_io *io, int res, uint32_t flags)
{
	(void)io;
	(void)res;
	(void)flags;
	if (!--nops_left)
		loop_stop(L);
}

static void nops_post(struct loop_msg *m)
{
	(void)m;
	for (int i = 0; i < 10000; i++) {
		struct io_uring_sqe *sqe = loop_sqe(L);

		io_uring_prep_nop(sqe);
		loop_arm(sqe, &nop_io);
	}
}

START_TEST(more_requests_than_the_ring_holds_all_complete)
{
	struct loop_msg m = {.m_run = nops_post};

	nops_left = 10000;
	nop_io.lio_done = nop_done;
	loop_post(L, &m);
	loop_run(L);
	ck_assert_int_eq(nops_left, 0);
}
END_TEST

static char hook_order[8];
static struct loop_msg hook_msg;

static void hook_a(struct loop_hook *h)
{
	(void)h;
	strcat(hook_order, "a");
}

static void hook_b(struct loop_hook *h)
{
	(void)h;
	strcat(hook_order, "b");
	if (strlen(hook_order) == 4)
		loop_stop(L);
	else
		loop_post(L, &hook_msg);
}

static void hook_nothing(struct loop_msg *m)
{
	(void)m;
}

START_TEST(hooks_run_each_turn_in_the_order_added)
{
	struct loop_hook a = {.h_run = hook_a}, b = {.h_run = hook_b};

	hook_msg.m_run = hook_nothing;
	loop_at_turn_end(L, &a);
	loop_at_turn_end(L, &b);
	loop_run(L);
	ck_assert_str_eq(hook_order, "abab");
}
END_TEST

START_TEST(an_idle_loop_uses_no_cpu)
{
	struct rusage before, after;
	pthread_t t;
	int64_t us;

	getrusage(RUSAGE_SELF, &before);
	pthread_create(&t, NULL, run_thread, L);
	usleep(300000);
	getrusage(RUSAGE_SELF, &after);
	loop_stop(L);
	pthread_join(t, NULL);
	us = (after.ru_utime.tv_sec - before.ru_utime.tv_sec) * 1000000 + after.ru_utime.tv_usec -
	     before.ru_utime.tv_usec + (after.ru_stime.tv_sec - before.ru_stime.tv_sec) * 1000000 +
	     after.ru_stime.tv_usec - before.ru_stime.tv_usec;
	ck_assert_int_lt(us, 100000);
}
END_TEST

static int dropped;

static void local_drop(void *p)
{
	ck_assert_ptr_eq(p, &dropped);
	dropped++;
}

START_TEST(local_state_is_dropped_with_the_loop)
{
	struct loop *l;

	ck_assert_int_eq(loop_create(&l, 16), 0);
	ck_assert_ptr_null(loop_local(l, LOOP_SLOT_SERVICE));
	loop_set_local(l, LOOP_SLOT_SERVICE, &dropped, local_drop);
	ck_assert_ptr_eq(loop_local(l, LOOP_SLOT_SERVICE), &dropped);
	loop_destroy(l);
	ck_assert_int_eq(dropped, 1);
}
END_TEST

/* ---- log ---- */

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/* What a program that ends so says; *status: of waitpid(). */
static void said_at_end(void (*end)(void), char *text, size_t size, int *status)
{
	int fd[2];
	size_t len = 0;
	ssize_t n;
	pid_t pid;

	ck_assert_int_eq(pipe(fd), 0);
	pid = fork();
	if (pid == 0) {
		struct rlimit none = {0, 0};

		setrlimit(RLIMIT_CORE, &none);
		dup2(fd[1], STDERR_FILENO);
		log_set_name("faulty");
		log_faults();
		end();
		_exit(0);
	}
	close(fd[1]);
	while ((n = read(fd[0], text + len, size - 1 - len)) > 0)
		len += (size_t)n;
	text[len] = 0;
	close(fd[0]);
	ck_assert_int_eq(waitpid(pid, status, 0), pid);
}

static void end_by_fault(void)
{
	volatile int *volatile nowhere = NULL;

	*nowhere = 1;
}

static void end_by_signal(void)
{
	kill(getpid(), SIGBUS);
}

static void end_by_fatal(void)
{
	log_fatal("cannot go on");
}

START_TEST(a_program_that_ends_by_a_fault_says_where)
{
	static const struct {
		void (*end)(void);
		int signo;
		const char *says;
	} all[] = {{end_by_fault, SIGSEGV, "FATAL faulty: ended by SIGSEGV, its own fault, at:\n"},
		   {end_by_signal, SIGBUS, "FATAL faulty: ended by SIGBUS, sent or raised, at:\n"},
		   {end_by_fatal, SIGABRT,
		    "FATAL faulty: cannot go on\nFATAL faulty: ended by SIGABRT, sent or raised, "
		    "at:\n"}};
	char text[16384];
	int status;

	for (unsigned i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		said_at_end(all[i].end, text, sizeof(text), &status);
		ck_assert_msg(strncmp(text, all[i].says, strlen(all[i].says)) == 0, "%s", text);
		ck_assert_msg(strstr(text, "base_test") != NULL, "%s", text);
		ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == all[i].signo, "%x",
			      status);
	}
}
END_TEST
#endif

START_TEST(a_log_message_is_one_line_whatever_it_holds)
{
	char text[4096] = "";
	int fd[2], saved = dup(STDERR_FILENO);

	ck_assert_int_eq(pipe(fd), 0);
	dup2(fd[1], STDERR_FILENO);
	log_set_name("weft-test");
	log_info("name \"%s\"", "a\nERROR weft: forged\r\x1b[0m");
	log_debug("not written");
	log_set_level(LOG_L_ERROR);
	log_warn("not written");
	log_error("%02000d", 1);
	dup2(saved, STDERR_FILENO);
	close(fd[1]);
	ck_assert_int_gt(read(fd[0], text, sizeof text - 1), 0);
	close(fd[0]);
	close(saved);
	ck_assert_int_eq(
		strncmp(text,
			"INFO weft-test: name \"a?ERROR weft: forged??[0m\"\nERROR weft-test: 0",
			60),
		0);
	ck_assert_ptr_eq(strchr(strchr(text, '\n') + 1, '\n'), text + strlen(text) - 1);
}
END_TEST

START_TEST(a_line_for_journald_begins_with_its_priority)
{
	char text[4096] = "", stream[64];
	struct stat st;
	int fd[2], saved = dup(STDERR_FILENO);

	ck_assert_int_eq(pipe(fd), 0);
	dup2(fd[1], STDERR_FILENO);
	ck_assert_int_eq(fstat(fd[1], &st), 0);
	/* Another stream is journald's, this one is not: stderr was sent elsewhere since. */
	snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)st.st_dev,
		 (unsigned long long)st.st_ino + 1);
	setenv("JOURNAL_STREAM", stream, 1);
	log_set_name("t");
	log_warn("elsewhere");
	snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)st.st_dev,
		 (unsigned long long)st.st_ino);
	setenv("JOURNAL_STREAM", stream, 1);
	log_set_name("t");
	log_set_level(LOG_L_DEBUG);
	log_error("a");
	log_warn("b");
	log_info("c");
	log_debug("d");
	dup2(saved, STDERR_FILENO);
	close(fd[1]);
	unsetenv("JOURNAL_STREAM");
	log_set_name("t");
	ck_assert_int_gt(read(fd[0], text, sizeof text - 1), 0);
	close(fd[0]);
	close(saved);
	ck_assert_str_eq(text, "WARN t: elsewhere\n<3>ERROR t: a\n<4>WARN t: b\n<6>INFO t: c\n"
			       "<7>DEBUG t: d\n");
}
END_TEST

/* ---- metrics ---- */

static struct metric *m_count;

static void *adder(void *arg)
{
	(void)arg;
	for (int i = 0; i < 10000; i++)
		metric_add(m_count, 3);
	return NULL;
}

START_TEST(counts_of_threads_that_ended_stay)
{
	m_count = metric_counter("weft_test_a_total", "A.", "");
	for (int round = 0; round < 5; round++) {
		pthread_t t[4];

		for (int i = 0; i < 4; i++)
			pthread_create(&t[i], NULL, adder, NULL);
		for (int i = 0; i < 4; i++)
			pthread_join(t[i], NULL);
	}
	ck_assert_uint_eq(metric_value(m_count), 5 * 4 * 10000 * 3);
}
END_TEST

static double gauge_fn(void *arg)
{
	/* A gauge may look at a counter. */
	return (double)metric_value(*(struct metric **)arg) + 0.5;
}

static void has(const char *text, const char *line)
{
	ck_assert_msg(strstr(text, line), "no \"%s\" in:\n%s", line, text);
}

START_TEST(metrics_render_as_openmetrics)
{
	struct metric *r = metric_counter("weft_test_op_total", "Operations.", "op=\"READ\""), *h;
	char *text;

	metric_counter("weft_test_other_total", "Back\\slash\nline.", "");
	metric_counter("weft_test_op_total", "Operations.", "op=\"WRITE\"");
	ck_assert_ptr_eq(r, metric_counter("weft_test_op_total", "Operations.", "op=\"READ\""));
	h = metric_histogram("weft_test_seconds", "Time.", "op=\"X\"");
	metric_gauge("weft_test_gauge", "Gauge.", "", gauge_fn, &r);
	metric_add(r, 7);
	metric_observe_us(h, 0);
	metric_observe_us(h, 1);
	metric_observe_us(h, 2);
	metric_observe_us(h, 3);
	metric_observe_us(h, 5);
	metric_observe_us(h, 6);
	metric_observe_us(h, 7);
	metric_observe_us(h, 1 << 26);
	metric_observe_us(h, 1000000000);
	text = metrics_render();
	has(text, "# TYPE weft_test_op counter\n# HELP weft_test_op Operations.\n"
		  "weft_test_op_total{op=\"READ\"} 7\nweft_test_op_total{op=\"WRITE\"} 0\n");
	has(text, "# HELP weft_test_other Back\\\\slash\\nline.\nweft_test_other_total 0\n");
	has(text, "weft_test_seconds_bucket{op=\"X\",le=\"1e-06\"} 2\n"
		  "weft_test_seconds_bucket{op=\"X\",le=\"2e-06\"} 3\n"
		  "weft_test_seconds_bucket{op=\"X\",le=\"3e-06\"} 4\n"
		  "weft_test_seconds_bucket{op=\"X\",le=\"4e-06\"} 4\n"
		  "weft_test_seconds_bucket{op=\"X\",le=\"6e-06\"} 6\n"
		  "weft_test_seconds_bucket{op=\"X\",le=\"8e-06\"} 7\n");
	has(text,
	    "weft_test_seconds_bucket{op=\"X\",le=\"50.331648\"} 7\n"
	    "weft_test_seconds_bucket{op=\"X\",le=\"67.108864\"} 8\n"
	    "weft_test_seconds_bucket{op=\"X\",le=\"+Inf\"} 9\n"
	    "weft_test_seconds_count{op=\"X\"} 9\nweft_test_seconds_sum{op=\"X\"} 1067.108888\n");
	has(text,
	    "# TYPE weft_test_gauge gauge\n# HELP weft_test_gauge Gauge.\nweft_test_gauge 7.5\n");
	ck_assert_str_eq(text + strlen(text) - 6, "# EOF\n");
	free(text);
}
END_TEST

/* ---- configuration ---- */

static char conf_path[] = "/tmp/weft-base-test-XXXXXX";
static char err[512];

static int load_text(struct conf **c, const char *text)
{
	int fd, rc;

	strcpy(conf_path + strlen(conf_path) - 6, "XXXXXX");
	fd = mkstemp(conf_path);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	err[0] = 0;
	rc = conf_load(c, conf_path, err, sizeof err);
	unlink(conf_path);
	return rc;
}

START_TEST(defaults_of_every_key_are_valid)
{
	struct conf *c;

	ck_assert_msg(!conf_load(&c, NULL, err, sizeof err), "%s", err);
	ck_assert_int_eq(conf_msec(c, "mds.lease"), 30000);
	ck_assert_int_eq(conf_msec(c, "mds.grace"), 45000);
	ck_assert_int_eq(conf_msec(c, "ds.heartbeat"), 1000);
	ck_assert_int_eq(conf_int(c, "mds.threads"), 1);
	ck_assert(conf_bool(c, "mds.return_on_close"));
	ck_assert(conf_bool(c, "mds.sync"));
	ck_assert_str_eq(conf_str(c, "mds.size_from_ds"), "layout");
	ck_assert_str_eq(conf_str(c, "mds.listen"), "127.0.0.1:12049");
	conf_free(c);
	for (size_t i = 0; i < conf_nkeys; i++)
		for (size_t j = 0; j < i; j++)
			ck_assert_str_ne(conf_keys[i].ck_name, conf_keys[j].ck_name);
}
END_TEST

START_TEST(a_file_sets_keys_of_both_daemons)
{
	struct conf *c;

	ck_assert_msg(!load_text(&c,
				 "# one\nmds { // two\n lease = 1.5 /* three\n */\n threads = 4\n"
				 " listen = \"10.0.0.1:2049,[::1]:2049\"\n sync = no\n "
				 "size_from_ds = never\n"
				 " admin = unix:/run/weft/mds.sock\n}\n"
				 "ds { heartbeat = 500ms\n lease = 2m store = \"/data/a#b\" }\nlog "
				 "{ level = debug }\n"),
		      "%s", err);
	ck_assert_int_eq(conf_msec(c, "mds.lease"), 1500);
	ck_assert_int_eq(conf_int(c, "mds.threads"), 4);
	ck_assert_str_eq(conf_str(c, "mds.listen"), "10.0.0.1:2049,[::1]:2049");
	ck_assert_str_eq(conf_str(c, "mds.admin"), "unix:/run/weft/mds.sock");
	ck_assert_str_eq(conf_str(c, "mds.size_from_ds"), "never");
	ck_assert(!conf_bool(c, "mds.sync"));
	ck_assert_int_eq(conf_msec(c, "ds.heartbeat"), 500);
	ck_assert_int_eq(conf_msec(c, "ds.lease"), 120000);
	ck_assert_str_eq(conf_str(c, "ds.store"), "/data/a#b");
	ck_assert_str_eq(conf_str(c, "log.level"), "debug");
	conf_free(c);
}
END_TEST

static const struct {
	const char *text, *line, *says;
} bad_files[] = {
	{"mds {\n lease = x\n}\n", "2", "mds.lease: expected a time such as 30s, got \"x\""},
	{"# a\n\n/* b\n c */\nmds {\n # d\n lease = 0s\n}\n", "7",
	 "mds.lease: expected a time from 1s to 3600s, got \"0s\""},
	{"mds {\n\n leese = 30s\n}\n", "3", "unknown key \"mds.leese\" (did you mean mds.lease?)"},
	{"mds { threads = 65 }\n", "1", "mds.threads: expected a number from 1 to 64, got \"65\""},
	{"mds { threads = many }\n", "1",
	 "mds.threads: expected a number from 1 to 64, got \"many\""},
	{"mds { sync = maybe }\n", "1", "mds.sync: expected true or false, got \"maybe\""},
	{"mds { size_from_ds = lay }\n", "1",
	 "mds.size_from_ds: expected one of always|layout|never, got \"lay\""},
	{"floppies {\n}\n", "1", "unknown key \"floppies\""},
	{"log.level = debug\n", "1",
	 "unknown key \"log.level\" (weft.conf writes log { level = ... })"},
	{"mds {\n mds.lease = 5s\n}\n", "2",
	 "unknown key \"mds.lease\" (weft.conf writes mds { lease = ... })"},
	{"mds {\n ds.mds = \"x\"\n}\n", "2",
	 "unknown key \"ds.mds\" (weft.conf writes ds { mds = ... })"},
	{"\nmds.leese = 5s\n", "2",
	 "unknown key \"mds.leese\" (did you mean mds { lease = ... }?)"},
	{"a.b = 5s\n", "1", "unknown key \"a.b\""},
	{"mds {\n lease = 0x1p4\n}\n", "2",
	 "mds.lease: expected a time such as 30s, got \"0x1p4\""},
	{"mds {\n lease = 99999999999999999999h\n}\n", "2",
	 "mds.lease: expected a time such as 30s, got \"99999999999999999999h\""},
};

START_TEST(an_error_names_file_line_key_and_what_was_expected)
{
	char want[512];
	struct conf *c;

	ck_assert_int_eq(load_text(&c, bad_files[_i].text), -EINVAL);
	snprintf(want, sizeof want, "%s:%s: %s", conf_path, bad_files[_i].line, bad_files[_i].says);
	ck_assert_str_eq(err, want);
}
END_TEST

START_TEST(what_is_no_configuration_is_an_error)
{
	static const char *const texts[] = {
		"mds {", "mds }", "mds { lease 30s }", "mds { listen = \"abc }", "=", "{", "\""};
	struct conf *c;

	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		ck_assert_msg(load_text(&c, texts[i]) < 0, "accepted: %s", texts[i]);
		ck_assert_str_ne(err, "");
		ck_assert_ptr_null(strchr(err, '\n'));
	}
	ck_assert_int_eq(conf_load(&c, "/nonexistent/weft.conf", err, sizeof err), -ENOENT);
	ck_assert_str_eq(err, "/nonexistent/weft.conf: No such file or directory");
}
END_TEST

START_TEST(overrides_are_checked_like_the_file)
{
	struct conf *c;

	ck_assert_int_eq(conf_load(&c, NULL, err, sizeof err), 0);
	ck_assert_int_eq(conf_set(c, "mds.lease=250s", err, sizeof err), 0);
	ck_assert_int_eq(conf_msec(c, "mds.lease"), 250000);
	ck_assert_int_eq(conf_set(c, "ds.store=/a=b", err, sizeof err), 0);
	ck_assert_str_eq(conf_str(c, "ds.store"), "/a=b");
	ck_assert_int_eq(conf_set(c, "mds.lease=soon", err, sizeof err), -EINVAL);
	ck_assert_str_eq(err, "mds.lease: expected a time such as 30s, got \"soon\"");
	ck_assert_int_eq(conf_msec(c, "mds.lease"), 250000);
	ck_assert_int_eq(conf_set(c, "ds.heartbeet=1s", err, sizeof err), -EINVAL);
	ck_assert_str_eq(err, "unknown key \"ds.heartbeet\" (did you mean ds.heartbeat?)");
	ck_assert_int_eq(conf_set(c, "s.threads=1", err, sizeof err), -EINVAL);
	ck_assert_str_eq(err, "unknown key \"s.threads\" (did you mean ds.threads?)");
	ck_assert_int_eq(conf_set(c, "mds.lease", err, sizeof err), -EINVAL);
	ck_assert_str_eq(err, "expected KEY=VALUE, got \"mds.lease\"");
	conf_free(c);
}
END_TEST

/* ---- http ---- */

static void echo(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	const char *q = http_arg(rq, "q");

	rp->rp_status = 201;
	if (asprintf(&rp->rp_body, "%s %s q=%s len=%zu %.10s", (const char *)arg, rq->rq_method,
		     q ? q : "-", rq->rq_len, rq->rq_body) < 0)
		rp->rp_body = NULL;
}

static const struct http_route routes[] = {{"PUT", "/v1/echo", HTTP_OPERATE, echo},
					   {"GET", "/v1/echo", HTTP_READ, echo}};
static char sock_path[64];
static char answer[2 << 20];

static int start(struct http **h, const char *addrs, const char *token)
{
	const struct http_opts opts = {.ho_addrs = addrs, .ho_token = token};
	char err[256];

	return http_start(h, &opts, routes, 2, (void *)"arg", err, sizeof(err));
}

static int dial(uint16_t port)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	int fd = socket(port ? AF_INET : AF_UNIX, SOCK_STREAM, 0);

	in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	strcpy(un.sun_path, sock_path);
	ck_assert_int_eq(
		connect(fd, port ? (void *)&in : (void *)&un, port ? sizeof in : sizeof un), 0);
	return fd;
}

static void ask(uint16_t port, const char *method, const char *path, size_t bodylen)
{
	char head[256], *body = malloc(bodylen + 1);
	size_t n = 0, sent = 0;
	int fd = dial(port);
	ssize_t got;

	memset(body, 'b', bodylen);
	snprintf(head, sizeof head,
		 "%s %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "
		 "the-token\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n",
		 method, path, bodylen);
	ck_assert_int_eq(write(fd, head, strlen(head)), (ssize_t)strlen(head));
	while (sent < bodylen && (got = send(fd, body + sent, bodylen - sent, MSG_NOSIGNAL)) > 0)
		sent += (size_t)got;
	while ((got = read(fd, answer + n, sizeof answer - 1 - n)) > 0)
		n += (size_t)got;
	answer[n] = 0;
	close(fd);
	free(body);
}

START_TEST(http_serves_routes_and_metrics)
{
	struct http *h;

	metric_counter("weft_test_http_total", "X.", "");
	ck_assert_int_eq(start(&h, "127.0.0.1:0", "the-token"), 0);
	ask(http_port(h), "GET", "/metrics", 0);
	has(answer, "HTTP/1.1 200");
	has(answer, "application/openmetrics-text; version=1.0.0; charset=utf-8");
	has(answer, "weft_test_http_total 0\n");
	ask(http_port(h), "PUT", "/v1/echo?q=a%20b", 5000);
	has(answer, "HTTP/1.1 201");
	has(answer, "application/json");
	has(answer, "arg PUT q=a b len=5000 bbbbbbbbbb");
	ask(http_port(h), "GET", "/v1/echo", 0);
	has(answer, "arg GET q=- len=0 ");
	ask(http_port(h), "POST", "/v1/echo", 0);
	has(answer, "HTTP/1.1 405");
	ask(http_port(h), "GET", "/v1/nothing", 0);
	has(answer, "HTTP/1.1 404");
	ask(http_port(h), "PUT", "/v1/echo", (1 << 20) + 1);
	has(answer, "HTTP/1.1 413");
	ask(http_port(h), "PUT", "/v1/echo", 1 << 20);
	has(answer, "len=1048576");
	http_stop(h);
}
END_TEST

START_TEST(a_stale_socket_file_is_replaced_a_live_one_and_a_plain_file_are_not)
{
	char dir[] = "/tmp/weft-http-XXXXXX", addr[80];
	struct http *h, *h2;
	struct stat st;
	int fd;

	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(sock_path, sizeof sock_path, "%s/sock", dir);
	snprintf(addr, sizeof addr, "unix:%s", sock_path);
	fd = open(sock_path, O_CREAT | O_WRONLY, 0600);
	close(fd);
	ck_assert_int_eq(start(&h, addr, NULL), -EEXIST);
	ck_assert_int_eq(unlink(sock_path), 0);

	struct sockaddr_un un = {.sun_family = AF_UNIX};
	strcpy(un.sun_path, sock_path);
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	ck_assert_int_eq(bind(fd, (void *)&un, sizeof un), 0);
	close(fd);

	ck_assert_int_eq(start(&h, addr, NULL), 0);
	ck_assert_int_eq(stat(sock_path, &st), 0);
	ck_assert_int_eq(st.st_mode & 07, 0);
	ask(0, "GET", "/metrics", 0);
	has(answer, "# EOF\n");
	ck_assert_int_eq(start(&h2, addr, NULL), -EADDRINUSE);
	http_stop(h);
	ck_assert_int_eq(access(sock_path, F_OK), -1);
	rmdir(dir);
}
END_TEST

START_TEST(http_on_tcp_is_for_this_machine_only)
{
	struct http *h;

	ck_assert_int_eq(start(&h, "0.0.0.0:0", NULL), -EACCES);
	ck_assert_int_eq(start(&h, "localhost:0", NULL), -EINVAL);
	ck_assert_int_eq(start(&h, "127.0.0.1", NULL), -EINVAL);
	ck_assert_int_eq(start(&h, "unix:", NULL), -ENAMETOOLONG);
}
END_TEST

static TCase *cases(Suite *s, const char *name)
{
	TCase *tc = tcase_create(name);

	suite_add_tcase(s, tc);
	return tc;
}

START_TEST(a_host_is_here_by_its_text_alone)
{
	static const char *const here[] = {"localhost", "LOCALHOST:80", "[::1]",
					   "[::1]:80",	"127.0.0.1",	"127.1.2.3:65535"};
	static const char *const away[] = {"",
					   ":80",
					   "[::1",
					   "[::1]away:80",
					   "[::2]:80",
					   "localhostx:80",
					   "128.0.0.1",
					   "127.0.0.1.x:80",
					   "weft.test:80"};

	for (unsigned i = 0; i < sizeof(here) / sizeof(*here); i++)
		ck_assert_msg(host_is_here(here[i]), "%s", here[i]);
	for (unsigned i = 0; i < sizeof(away) / sizeof(*away); i++)
		ck_assert_msg(!host_is_here(away[i]), "%s", away[i]);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("base");
	TCase *tc;

	tc = cases(s, "loop");
	tcase_add_checked_fixture(tc, loop_setup, loop_teardown);
	tcase_add_test(tc, a_wait_ends_by_the_clock_that_is_never_set);
	tcase_add_test(tc, timers_fire_in_order_of_time);
	tcase_add_test(tc, every_posted_message_runs_once_and_in_order);
	tcase_add_test(tc, io_queued_before_the_loop_runs_completes_on_its_thread);
	tcase_add_test(tc, more_requests_than_the_ring_holds_all_complete);
	tcase_add_test(tc, hooks_run_each_turn_in_the_order_added);
	tcase_add_test(tc, an_idle_loop_uses_no_cpu);
	tcase_add_test(tc, local_state_is_dropped_with_the_loop);
	tc = cases(s, "log");
	tcase_add_test(tc, a_log_message_is_one_line_whatever_it_holds);
	tcase_add_test(tc, a_line_for_journald_begins_with_its_priority);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	tcase_add_test(tc, a_program_that_ends_by_a_fault_says_where);
#endif
	tc = cases(s, "metrics");
	tcase_add_test(tc, counts_of_threads_that_ended_stay);
	tcase_add_test(tc, metrics_render_as_openmetrics);
	tc = cases(s, "conf");
	tcase_add_test(tc, defaults_of_every_key_are_valid);
	tcase_add_test(tc, a_file_sets_keys_of_both_daemons);
	tcase_add_loop_test(tc, an_error_names_file_line_key_and_what_was_expected, 0,
			    sizeof bad_files / sizeof bad_files[0]);
	tcase_add_test(tc, what_is_no_configuration_is_an_error);
	tcase_add_test(tc, overrides_are_checked_like_the_file);
	tc = cases(s, "http");
	tcase_add_test(tc, http_serves_routes_and_metrics);
	tcase_add_test(tc, a_stale_socket_file_is_replaced_a_live_one_and_a_plain_file_are_not);
	tcase_add_test(tc, http_on_tcp_is_for_this_machine_only);
	tcase_add_test(tc, a_host_is_here_by_its_text_alone);
	return unit_run(s);
}
