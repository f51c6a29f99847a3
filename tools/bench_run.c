/* SPDX-License-Identifier: Apache-2.0 */
/* bench_run.c - threads, sessions and jobs: runs and measures a phase. */
#include "tools/bench.h"
#include "base/clock.h"
#include "proto/nfs4.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static struct bench_thread *threads;
static pthread_barrier_t begin, end;
static bool over;
static uint64_t until; /* when the phase's time is over; with --time */
static struct weft_fh shared_dir;

uint64_t bench_ns(void)
{
	return clock_mono_ns();
}

/* Names the setting that a status is about, or else only the status. */
static const char *bench_run_status_text(uint32_t status, char out[160])
{
	if (status == NFS4ERR_WRONGSEC)
		return "NFS4ERR_WRONGSEC: the export requires another security flavour, TLS, or a "
		       "port below 1024 "
		       "(see privileged_port in weft-exports(5)); weft-bench has none of these";
	snprintf(out, 160, "NFS status %u", status);
	return out;
}

void bench_do(struct bench_session *s, struct weft_op *op, const char *what)
{
	int err = weft_do(s->s_w, op);

	if (err)
		bench_die("%s: %s (%s)", what, strerror(-err),
			  bench_run_status_text(op->o_status, (char[160]){0}));
}

/* ---- jobs ---- */

static void job_go(struct bench_job *j);

static void bench_run_job_done(struct weft_op *op)
{
	struct bench_job *j = (struct bench_job *)op;

	if (op->o_err)
		bench_die("%s: %s (%s)", bench_now->p_name, strerror(-op->o_err),
			  bench_run_status_text(op->o_status, (char[160]){0}));
	j->j_step++;
	job_go(j);
}

/* Takes the next piece. Returns false if there is none. */
static bool piece_next(struct bench_job *j)
{
	struct bench_session *s = j->j_s;
	uint64_t n = bench_now->p_once			       ? !(bench_one_file() && s->s_id)
		     : bench.bo_seconds && bench_now->p_pieces ? bench_now->p_pieces(s)
							       : bench.bo_count;

	if (atomic_load_explicit(&bench_stopping, memory_order_relaxed) || !n ||
	    (bench.bo_seconds && bench_ns() >= until) ||
	    (s->s_next >= n && !(bench.bo_seconds && bench_now->p_repeat)))
		return false;
	j->j_i = s->s_next++ % n;
	j->j_step = 0;
	j->j_began = bench_ns();
	bench_now->p_step(j);
	return true;
}

static void session_over(struct bench_session *s)
{
	s->s_ended = bench_ns();
	s->s_t->t_over++;
}

static void job_send(struct bench_job *j)
{
	j->j_op.o_done = bench_run_job_done;
	weft_submit(j->j_s->s_w, &j->j_op);
}

/* A job rests. When the last job rests, what comes after all pieces begins. */
static void job_rests(struct bench_job *j)
{
	struct bench_session *s = j->j_s;

	if (--s->s_busy)
		return;
	j->j_step = 0;
	j->j_last = bench_now->p_last && bench_now->p_last(j);
	if (j->j_last)
		job_send(j);
	else
		session_over(s);
}

static void jobs_go(struct bench_session *s)
{
	s->s_busy = bench.bo_depth;
	for (unsigned d = 0; d < bench.bo_depth; d++) {
		s->s_jobs[d].j_step = 0;
		s->s_jobs[d].j_first = s->s_jobs[d].j_last = false;
	}
	for (unsigned d = 0; d < bench.bo_depth; d++)
		job_go(&s->s_jobs[d]);
}

/* Starts the next operation of this piece, or of the next piece. Without a next piece the job
 * rests. */
static void job_go(struct bench_job *j)
{
	struct bench_thread *t = j->j_s->s_t;

	if (j->j_first || j->j_last) {
		if (j->j_first ? bench_now->p_first(j) : bench_now->p_last(j))
			job_send(j);
		else if (j->j_first)
			jobs_go(j->j_s);
		else
			session_over(j->j_s);
		return;
	}
	if (j->j_step && bench_now->p_step(j)) {
		job_send(j);
		return;
	}
	if (j->j_step) {
		histo_add(&t->t_histo, bench_ns() - j->j_began);
		atomic_store_explicit(&t->t_seen, atomic_load(&t->t_seen) + 1,
				      memory_order_relaxed);
	}
	if (piece_next(j))
		job_send(j);
	else
		job_rests(j);
}

static void session_go(struct bench_session *s)
{
	struct bench_job *j = s->s_jobs;

	s->s_began = bench_ns();
	j->j_step = 0;
	j->j_first = bench_now->p_first && bench_now->p_first(j);
	if (j->j_first)
		job_send(j);
	else
		jobs_go(s);
}

static void phase_run(struct bench_thread *t)
{
	t->t_over = 0;
	for (unsigned i = 0; i < t->t_n; i++)
		session_go(&t->t_sessions[i]);
	while (t->t_over < t->t_n)
		weft_reap(t->t_ring, NULL, 0, -1);
}

/* ---- sessions ---- */

static void dir_make(struct bench_session *s, const struct weft_fh *in, const char *name,
		     struct weft_fh *out)
{
	struct weft_op op = {.o_what = WEFT_MKDIR,
			     .o_fh = *in,
			     .o_name = name,
			     .o_attr = {.at_set = WEFT_A_MODE, .at_mode = 0755}};

	bench_do(s, &op, name);
	*out = op.o_fh2;
}

void bench_policy(struct bench_session *s, const char *policy)
{
	struct weft_op op = {.o_what = WEFT_SETXATTR,
			     .o_fh = shared_dir,
			     .o_name = "weft.policy",
			     .o_buf = (void *)(uintptr_t)policy};

	if (!policy)
		return;
	op.o_len = (uint32_t)strlen(policy);
	weft_do(s->s_w, &op);
	/* The server says no more than that. */
	if (op.o_err == -EINVAL)
		bench_die("policy %s: the server refuses it; weft(1) describes policies", policy);
	if (op.o_err)
		bench_die("policy %s: %s (NFS status %u)", policy, strerror(-op.o_err),
			  op.o_status);
}

static void session_open(struct bench_session *s)
{
	int err = weft_connect(&s->s_w, s->s_t->t_ring, &bench.bo_client);

	if (err)
		bench_die("%s: %s", bench.bo_client.wo_server, strerror(-err));
	s->s_jobs = calloc(bench.bo_depth, sizeof(*s->s_jobs));
	for (unsigned d = 0; s->s_jobs && d < bench.bo_depth; d++) {
		s->s_jobs[d].j_s = s;
		s->s_jobs[d].j_buf =
			bench_buffers + bench_piece() * ((size_t)s->s_id * bench.bo_depth + d);
	}
	if (!s->s_jobs)
		bench_die("out of memory");
	if (bench.bo_what[0] == 'n')
		return;
	if (s->s_id == 0) {
		struct weft_op op = {.o_what = WEFT_LOOKUP, .o_name = bench.bo_dir};
		char name[64];

		bench_do(s, &op, bench.bo_dir);
		snprintf(name, sizeof(name), "weft-bench.%ld", (long)getpid());
		atomic_store(&bench_made, true);
		dir_make(s, &op.o_fh2, name, &shared_dir);
		bench_policy(s, bench.bo_policy);
	}
}

/* Runs after session 0 has made the folder in which all sessions work. */
static void session_dir(struct bench_session *s)
{
	char name[32];

	s->s_dir = shared_dir;
	if (bench.bo_what[0] == 'n' || bench.bo_shared)
		return;
	snprintf(name, sizeof(name), "s%u", s->s_id);
	dir_make(s, &shared_dir, name, &s->s_dir);
}

static void session_close(struct bench_session *s)
{
	free(s->s_jobs);
	weft_close(s->s_w);
}

/* Subtracts the calls to data servers that went by RDMA, and those without a copy, so far. After
 * the phase, adds them. */
static void rdma_count(struct bench_thread *t, bool after)
{
	for (unsigned i = 0; i < t->t_n; i++) {
		struct weft_info info;

		weft_info(t->t_sessions[i].s_w, &info);
		t->t_rdma += after ? info.wi_ds_rdma : -info.wi_ds_rdma;
		t->t_direct += after ? info.wi_ds_direct : -info.wi_ds_direct;
	}
}

static void *bench_run_thread_run(void *arg)
{
	struct bench_thread *t = arg;

	if (weft_ring_create(&t->t_ring))
		bench_die("cannot create an io_uring");
	pthread_barrier_wait(&end);
	pthread_barrier_wait(&end); /* RDMA is ready */
	for (unsigned i = 0; i < t->t_n; i++) {
		t->t_sessions[i] = (struct bench_session){.s_t = t, .s_id = t->t_first + i};
		session_open(&t->t_sessions[i]);
	}
	pthread_barrier_wait(&end);
	for (unsigned i = 0; i < t->t_n; i++)
		session_dir(&t->t_sessions[i]);
	pthread_barrier_wait(&end);
	for (;;) {
		pthread_barrier_wait(&begin); /* bench_now is set */
		if (over)
			break;
		for (unsigned i = 0; i < t->t_n; i++) {
			t->t_sessions[i].s_next = 0;
			if (bench_now->p_before)
				bench_now->p_before(&t->t_sessions[i]);
		}
		pthread_barrier_wait(&end);
		pthread_barrier_wait(&begin); /* the clock runs */
		rdma_count(t, false);
		phase_run(t);
		rdma_count(t, true);
		pthread_barrier_wait(&end);
		for (unsigned i = 0; i < t->t_n && bench_now->p_after; i++)
			bench_now->p_after(&t->t_sessions[i]);
		pthread_barrier_wait(&end);
	}
	for (unsigned i = 0; i < t->t_n; i++)
		session_close(&t->t_sessions[i]);
	weft_ring_destroy(t->t_ring);
	return NULL;
}

/* Returns the nanoseconds that a process used: all its threads, including those that have ended
 * (data servers have some that come and go). */
static uint64_t cpu_of(long pid)
{
	struct timespec t;
	clockid_t clock;
	int err = clock_getcpuclockid((pid_t)pid, &clock);

	if (err || clock_gettime(clock, &t))
		bench_die("--pid %ld: %s", pid, strerror(err ? err : errno));
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t cpu_servers(void)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < bench.bo_npids; i++)
		sum += cpu_of(bench.bo_pids[i]);
	return sum;
}

static void rdma_start(void)
{
	struct weft_ring *rings[BENCH_MAX_RDMA];
	int err;

	for (unsigned i = 0; i < bench.bo_threads && i < BENCH_MAX_RDMA; i++)
		rings[i] = threads[i].t_ring;
	err = weft_rdma_start(rings, bench.bo_threads);
	if (err)
		bench_die("--rdma: %s", strerror(-err));
}

void bench_start(void)
{
	unsigned at = 0;

	/* If a server cannot be asked, fail before anything is made. */
	cpu_servers();
	bench_counts_free(bench_counts_read());
	threads = calloc(bench.bo_threads, sizeof(*threads));
	if (!threads || pthread_barrier_init(&begin, NULL, bench.bo_threads + 1) ||
	    pthread_barrier_init(&end, NULL, bench.bo_threads + 1))
		bench_die("out of memory");
	for (unsigned i = 0; i < bench.bo_threads; i++) {
		struct bench_thread *t = &threads[i];

		t->t_first = at;
		t->t_n = bench.bo_sessions / bench.bo_threads +
			 (i < bench.bo_sessions % bench.bo_threads);
		at += t->t_n;
		t->t_sessions = calloc(t->t_n, sizeof(*t->t_sessions));
		if (!t->t_sessions || pthread_create(&t->t_id, NULL, bench_run_thread_run, t))
			bench_die("out of memory");
	}
	pthread_barrier_wait(&end);
	if (bench.bo_client.wo_rdma)
		rdma_start();
	for (int i = 0; i < 3; i++)
		pthread_barrier_wait(&end);
}

/* ---- measuring ---- */

static double cpu_own(void)
{
	struct rusage ru;

	getrusage(RUSAGE_SELF, &ru);
	return (double)(ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) +
	       (double)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) / 1e6;
}

static void *bench_run_progress(void *arg)
{
	const struct bench_phase *p = arg;
	uint64_t last = 0, all = p->p_once && bench_one_file()
					 ? 1
					 : (p->p_once ? 1 : bench.bo_count) * bench.bo_sessions;

	for (;;) {
		uint64_t now = 0;

		for (int i = 0; i < 10; i++) {
			usleep(100000);
			pthread_testcancel();
		}
		for (unsigned i = 0; i < bench.bo_threads; i++)
			now += atomic_load_explicit(&threads[i].t_seen, memory_order_relaxed);
		if (bench.bo_seconds)
			fprintf(stderr, "%-9s %llu  %llu/s\n", p->p_name, (unsigned long long)now,
				(unsigned long long)(now - last));
		else
			fprintf(stderr, "%-9s %3.0f%%  %llu/s\n", p->p_name,
				100.0 * (double)now / (double)all,
				(unsigned long long)(now - last));
		last = now;
	}
	return NULL;
}

const struct bench_phase *bench_now;

/* Returns how much longer the slowest session took than the fastest. */
static double slowest(void)
{
	uint64_t least = UINT64_MAX, most = 0;

	for (unsigned i = 0; i < bench.bo_threads; i++)
		for (unsigned k = 0; k < threads[i].t_n; k++) {
			const struct bench_session *s = &threads[i].t_sessions[k];
			uint64_t ns = s->s_ended - s->s_began;

			least = ns < least ? ns : least;
			most = ns > most ? ns : most;
		}
	return least ? (double)most / (double)least : 1;
}

void bench_phase(const struct bench_phase *p, struct bench_result *r)
{
	uint64_t began, server;
	pthread_t watch;
	void *counts;
	double own;

	memset(r, 0, sizeof(*r));
	r->r_name = p->p_name;
	bench_now = p;
	for (unsigned i = 0; i < bench.bo_threads; i++) {
		memset(&threads[i].t_histo, 0, sizeof(threads[i].t_histo));
		threads[i].t_units = threads[i].t_bytes = threads[i].t_rdma = threads[i].t_direct =
			0;
		atomic_store(&threads[i].t_seen, 0);
	}
	pthread_barrier_wait(&begin);
	pthread_barrier_wait(&end);
	counts = bench_counts_read();
	server = cpu_servers();
	own = cpu_own();
	began = bench_ns();
	until = began + bench.bo_seconds * 1000000000ull;
	if (!bench.bo_quiet &&
	    pthread_create(&watch, NULL, bench_run_progress, (void *)(uintptr_t)p))
		bench_die("out of memory");
	pthread_barrier_wait(&begin);
	pthread_barrier_wait(&end);
	r->r_seconds = (double)(bench_ns() - began) / 1e9;
	r->r_client_cpu = cpu_own() - own;
	r->r_server_cpu = bench.bo_npids ? (double)(cpu_servers() - server) / 1e9 : -1;
	r->r_counts = bench_counts_read();
	if (!bench.bo_quiet) {
		pthread_cancel(watch);
		pthread_join(watch, NULL);
	}
	pthread_barrier_wait(&end);
	for (unsigned i = 0; i < bench.bo_threads; i++) {
		histo_merge(&r->r_histo, &threads[i].t_histo);
		r->r_units += threads[i].t_units;
		r->r_bytes += threads[i].t_bytes;
		r->r_rdma += threads[i].t_rdma;
		r->r_direct += threads[i].t_direct;
	}
	r->r_slowest = slowest();
	r->r_units = r->r_units ? r->r_units : r->r_histo.h_count;
	r->r_counts = bench_counts_between(counts, r->r_counts, r->r_units);
}

void bench_stop(void)
{
	over = true;
	pthread_barrier_wait(&begin);
	for (unsigned i = 0; i < bench.bo_threads; i++) {
		pthread_join(threads[i].t_id, NULL);
		free(threads[i].t_sessions);
	}
	free(threads);
}
