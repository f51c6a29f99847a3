/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pg_writer.c - the smallest instance: a register whose log is in PostgreSQL. It claims the
 * instance when the row has been unchanged for L, reads the log, and answers lines over TCP:
 *
 *	read		"value N"
 *	write N		"ok N", when N is durable
 *	epoch		"epoch E", whether the lease lives or not
 *
 * While the lease is over nothing is answered. On standard output it says "standby", "claimed
 * EPOCH VALUE", "deposed"; and exits with 3 when it is deposed.
 *
 * --no-lease, --no-guard and --doubt-by-read each take one rule away. A checker must find out.
 * --no-guard needs what tests/ha/without.h says.
 */
#include "tests/ha/without.h"
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct pg_options opts = {
	.o_inst = 1, .o_owner = "writer", .o_lease_ms = 1500, .o_replicas = 2};
static const char *listen_at = "127.0.0.1:7000";
static bool no_lease;
static _Atomic(struct pg_log *) the_log;
static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint64_t value;

static int apply(void *arg, uint64_t batch, const void *data, size_t len)
{
	uint64_t v;

	(void)arg, (void)batch;
	if (len < sizeof(v))
		return -EPROTO;
	memcpy(&v, data, sizeof(v));
	atomic_store(&value, le64toh(v));
	return 0;
}

_Noreturn static void is_deposed(void)
{
	puts("deposed");
	fflush(stdout);
	_exit(3);
}

/* May something be answered now? Waits until it may not for ever. */
static bool may_answer(struct pg_log *l)
{
	if (no_lease || pg_log_live(l))
		return true;
	if (pg_log_state(l, NULL) == PG_LOG_DEPOSED)
		is_deposed();
	usleep(2000);
	return false;
}

static void do_write(struct pg_log *l, uint64_t v)
{
	uint64_t le = htole64(v);

	pthread_mutex_lock(&writing);
	if (pg_log_append(l, pg_log_batch(l) + 1, &le, sizeof(le)))
		is_deposed();
	atomic_store(&value, v);
	pthread_mutex_unlock(&writing);
}

static int answer(struct pg_log *l, const char *line, char out[64])
{
	if (!strncmp(line, "epoch", 5))
		return snprintf(out, 64, "epoch %llu\n", (unsigned long long)pg_log_epoch(l));
	if (!strncmp(line, "write ", 6)) {
		unsigned long long v = strtoull(line + 6, NULL, 10);

		do_write(l, v);
		while (!may_answer(l))
			;
		return snprintf(out, 64, "ok %llu\n", v);
	}
	for (;;) {
		/* The state first, then the lease. */
		unsigned long long v = atomic_load(&value);

		if (may_answer(l))
			return snprintf(out, 64, "value %llu\n", v);
	}
}

static void *serve(void *arg)
{
	int fd = (int)(intptr_t)arg;
	FILE *f = fdopen(fd, "r");
	char line[128], out[64];
	struct pg_log *l;

	while (f && fgets(line, sizeof(line), f)) {
		int n;

		while (!(l = atomic_load(&the_log)))
			usleep(2000);
		n = answer(l, line, out);
		if (send(fd, out, (size_t)n, MSG_NOSIGNAL) != n)
			break;
	}
	if (f)
		fclose(f);
	return NULL;
}

static void *accepts(void *arg)
{
	int fd = (int)(intptr_t)arg, one = 1, c;

	while ((c = accept(fd, NULL, NULL)) >= 0 || errno != EBADF) {
		pthread_t t;

		if (c < 0)
			continue;
		setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		if (pthread_create(&t, NULL, serve, (void *)(intptr_t)c))
			close(c);
		else
			pthread_detach(t);
	}
	return NULL;
}

static int listen_on(void)
{
	struct sockaddr_in sin = {.sin_family = AF_INET};
	char host[64] = "";
	unsigned port = 0;
	int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (sscanf(listen_at, "%63[^:]:%u", host, &port) != 2 ||
	    inet_pton(AF_INET, host, &sin.sin_addr) != 1)
		return -1;
	sin.sin_port = htons((uint16_t)port);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	/* The address may come later. */
	setsockopt(fd, IPPROTO_IP, IP_FREEBIND, &one, sizeof(one));
	return bind(fd, (struct sockaddr *)&sin, sizeof(sin)) || listen(fd, 64) ? -1 : fd;
}

/* Follows the log until the instance is this process's, then to its end. */
static struct pg_log *become_holder(void)
{
	struct pg_watch *w;
	struct pg_log *l = NULL;
	struct pg_row row;
	uint64_t at = 0;
	int err;

	if (pg_watch_open(&w, &opts)) {
		fputs("pg_writer: wrong options\n", stderr);
		exit(2);
	}
	while (!l) {
		err = pg_watch_look(w, &row);
		if (!err)
			err = pg_read_batches(w, &at, row.r_acked, 1 << 20, apply, NULL);
		if (!err && pg_watch_due(w))
			err = pg_watch_claim(w, &l);
		if (err && err != -EAGAIN && err != -ETIMEDOUT) {
			fprintf(stderr, "pg_writer: %s: %s\n", strerror(-err), pg_watch_why(w));
			exit(1);
		}
		if (!l)
			usleep(opts.o_lease_ms * 1000 / 20);
	}
	while (at < pg_log_batch(l)) {
		err = pg_read_batches(w, &at, pg_log_batch(l), 1 << 20, apply, NULL);
		if (err && err != -EAGAIN) {
			fprintf(stderr, "pg_writer: the log: %s\n", strerror(-err));
			exit(1);
		}
	}
	pg_watch_close(w);
	return l;
}

static void options(int argc, char **argv)
{
	static const struct option longs[] = {{"conninfo", required_argument, NULL, 'c'},
					      {"inst", required_argument, NULL, 'i'},
					      {"owner", required_argument, NULL, 'o'},
					      {"lease-ms", required_argument, NULL, 'l'},
					      {"rank-ms", required_argument, NULL, 'r'},
					      {"replicas", required_argument, NULL, 'n'},
					      {"listen", required_argument, NULL, 'a'},
					      {"no-lease", no_argument, NULL, 'L'},
					      {"no-guard", no_argument, NULL, 'G'},
					      {"doubt-by-read", no_argument, NULL, 'R'},
					      {0}};
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (c) {
		case 'c':
			opts.o_conninfo = optarg;
			break;
		case 'i':
			opts.o_inst = (uint32_t)atoi(optarg);
			break;
		case 'o':
			opts.o_owner = optarg;
			break;
		case 'l':
			opts.o_lease_ms = (uint32_t)atoi(optarg);
			break;
		case 'r':
			opts.o_rank_ms = (uint32_t)atoi(optarg);
			break;
		case 'n':
			opts.o_replicas = (uint32_t)atoi(optarg);
			break;
		case 'a':
			listen_at = optarg;
			break;
		case 'L':
			no_lease = true;
			break;
		case 'G':
			pg_statements = without_guard;
			break;
		case 'R':
			pg_statements = without_doubt;
			break;
		default:
			exit(2);
		}
	}
	if (!opts.o_conninfo) {
		fputs("pg_writer: --conninfo is needed\n", stderr);
		exit(2);
	}
}

int main(int argc, char **argv)
{
	struct pg_log *l;
	pthread_t t;
	int fd;

	signal(SIGPIPE, SIG_IGN);
	options(argc, argv);
	fd = listen_on();
	if (fd < 0 || pthread_create(&t, NULL, accepts, (void *)(intptr_t)fd)) {
		perror("pg_writer: listen");
		return 1;
	}
	puts("standby");
	fflush(stdout);
	l = become_holder();
	printf("claimed %llu %llu\n", (unsigned long long)pg_log_epoch(l),
	       (unsigned long long)atomic_load(&value));
	fflush(stdout);
	atomic_store(&the_log, l);
	for (;;) {
		if (pg_log_state(l, NULL) == PG_LOG_DEPOSED)
			is_deposed();
		usleep(10000);
	}
}
