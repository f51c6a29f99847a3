/* SPDX-License-Identifier: Apache-2.0 */
/* mds_addr.c - see mds_addr.h. The messages are those of weft-addr(8). */
#include "mds/mds_addr.h"
#include "base/log.h"
#include "mds/conn_rows.h"
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define ADDRESSES_MAX 64
#define PORTS_MAX     8
#define MESSAGE_MAX   65536
#define ROWS_MAX      700  /* of a message */
#define ANSWER_MS     2000 /* weft-addr answers at once; it may be stopped */
#define RETRY_MS      200
#define ROWS_MS	      500
/* After so long a client has noticed by itself (its renewal): the rows of former lives are of no
 * use. */
#define FORMER_MS 60000

static struct {
	uint8_t a_addrs[ADDRESSES_MAX][16];
	unsigned a_n;
	char a_socket[sizeof(((struct sockaddr_un *)0)->sun_path)];
	char a_hold[ADDRESSES_MAX * (INET6_ADDRSTRLEN + 1) + PORTS_MAX * 6 + 8];
	struct kv *a_kv;
	int a_fd;   /* weft-addr; -1: not connected */
	int a_wake; /* eventfd */
	struct conn_id *a_former;
	size_t a_nformer;
	uint64_t a_began_ms;
	char a_why[200]; /* what was logged last */
	pthread_t a_thread;
} me = {.a_fd = -1, .a_wake = -1};
static pthread_mutex_t life = PTHREAD_MUTEX_INITIALIZER; /* start and stop */
static bool running;
static atomic_bool ending;

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* ---- configuration ---- */

static bool ports_of(const char *list, char *out, size_t len)
{
	char *copy = strdup(list), *save = NULL;
	uint16_t ports[PORTS_MAX];
	unsigned n = 0;
	bool ok = copy != NULL;

	for (char *p = copy ? strtok_r(copy, ", ", &save) : NULL; p && ok;
	     p = strtok_r(NULL, ", ", &save)) {
		struct sockaddr_storage ss;
		socklen_t l;
		uint16_t port;
		unsigned i = 0;

		ok = !rpc_addr_parse(p, 2049, &ss, &l);
		port = ss.ss_family == AF_INET ? ((struct sockaddr_in *)&ss)->sin_port
					       : ((struct sockaddr_in6 *)&ss)->sin6_port;
		while (ok && i < n && ports[i] != port)
			i++;
		ok = ok && i < PORTS_MAX;
		if (ok && i == n)
			ports[n++] = port;
	}
	free(copy);
	for (unsigned i = 0, at = 0; i < n; i++)
		at += (unsigned)snprintf(out + at, len - at, "%s%u", i ? "," : "", ntohs(ports[i]));
	return ok && n;
}

static bool address(const char *text, uint8_t out[16])
{
	static const uint8_t v4[12] = {[10] = 0xff, [11] = 0xff};

	memcpy(out, v4, 12);
	return inet_pton(AF_INET, text, out + 12) == 1 || inet_pton(AF_INET6, text, out) == 1;
}

int mds_addr_open(const struct conf *conf, char *err, size_t errlen)
{
	const char *list = conf_str(conf, "mds.addresses"), *where;
	char *copy, *save = NULL, ports[PORTS_MAX * 6 + 1] = "";
	size_t len;

	if (!*list)
		return 0;
	where = conf_str(conf, "mds.addr_socket");
	if (!*where || strlen(where) >= sizeof(me.a_socket)) {
		snprintf(err, errlen, "mds.addr_socket: expected the path of weft-addr's socket");
		return -EINVAL;
	}
	strcpy(me.a_socket, where);
	if (!ports_of(conf_str(conf, "mds.listen"), ports, sizeof(ports))) {
		snprintf(err, errlen, "mds.listen: expected at most %d ports with mds.addresses",
			 PORTS_MAX);
		return -EINVAL;
	}
	len = (size_t)snprintf(me.a_hold, sizeof(me.a_hold), "HOLD %s", ports);
	copy = strdup(list);
	for (char *p = copy ? strtok_r(copy, ", ", &save) : NULL; p;
	     p = strtok_r(NULL, ", ", &save)) {
		if (me.a_n == ADDRESSES_MAX || !address(p, me.a_addrs[me.a_n])) {
			snprintf(err, errlen,
				 "mds.addresses: \"%s\": expected at most %d addresses without "
				 "a port, such as 10.0.0.1 or fd00::1",
				 p, ADDRESSES_MAX);
			free(copy);
			return -EINVAL;
		}
		me.a_n++;
		len += (size_t)snprintf(me.a_hold + len, sizeof(me.a_hold) - len, " %s", p);
	}
	free(copy);
	return me.a_n ? 0 : -ENOMEM;
}

/* ---- connections ---- */

static bool is_service(const struct conn_id *id)
{
	for (unsigned i = 0; i < me.a_n; i++)
		if (!memcmp(id->ci_local, me.a_addrs[i], 16))
			return true;
	return false;
}

static bool conn_of(const struct rpc_conn *c, struct conn_id *id)
{
	struct sockaddr_storage local;

	return me.a_n && !rpc_conn_local(c, &local) && conn_id_make(id, &local, rpc_conn_peer(c)) &&
	       is_service(id);
}

void mds_addr_opened(const struct rpc_conn *c)
{
	struct conn_id id;

	if (conn_of(c, &id))
		conn_rows_opened(&id);
}

void mds_addr_closed(const struct rpc_conn *c)
{
	struct conn_id id;

	if (!atomic_load(&ending) && conn_of(c, &id))
		conn_rows_closed(&id);
}

/* ---- what is said to weft-addr ---- */

static void addr_lost(const char *why)
{
	if (me.a_fd >= 0)
		close(me.a_fd);
	me.a_fd = -1;
	/* It is asked five times a second: one line for each new reason. */
	if (strcmp(why, me.a_why) != 0)
		log_warn("weft-addr (%s): %s", me.a_socket, why);
	snprintf(me.a_why, sizeof(me.a_why), "%s", why);
}

static bool addr_say(const char *text, size_t len)
{
	struct pollfd p = {.fd = me.a_fd, .events = POLLIN};
	char answer[256];
	ssize_t n;

	if (send(me.a_fd, text, len, MSG_NOSIGNAL) < 0 || poll(&p, 1, ANSWER_MS) != 1) {
		addr_lost("does not answer");
		return false;
	}
	n = recv(me.a_fd, answer, sizeof(answer) - 1, 0);
	if (n <= 0) {
		addr_lost("has closed the connection");
		return false;
	}
	answer[n] = 0;
	if (strncmp(answer, "OK", 2) != 0) {
		addr_lost(answer);
		return false;
	}
	return true;
}

static const char *half_text(const uint8_t addr[16], char out[INET6_ADDRSTRLEN])
{
	static const uint8_t v4[12] = {[10] = 0xff, [11] = 0xff};
	bool is_v4 = !memcmp(addr, v4, 12);

	return inet_ntop(is_v4 ? AF_INET : AF_INET6, is_v4 ? addr + 12 : addr, out,
			 INET6_ADDRSTRLEN);
}

static bool addr_tickle(void)
{
	static char text[MESSAGE_MAX];
	size_t told = 0, i = 0;

	while (i < me.a_nformer && told < CONN_ROWS_MAX) {
		size_t len = (size_t)snprintf(text, sizeof(text), "TICKLE\n"), rows = 0;

		for (; i < me.a_nformer && rows < ROWS_MAX && len < sizeof(text) - 120; i++) {
			const struct conn_id *id = &me.a_former[i];
			char local[INET6_ADDRSTRLEN], peer[INET6_ADDRSTRLEN];

			/* The configuration had other addresses then. */
			if (!is_service(id))
				continue;
			len += (size_t)snprintf(text + len, sizeof(text) - len, "%s %u %s %u\n",
						half_text(id->ci_local, local),
						(unsigned)id->ci_lport[0] << 8 | id->ci_lport[1],
						half_text(id->ci_peer, peer),
						(unsigned)id->ci_pport[0] << 8 | id->ci_pport[1]);
			rows++;
		}
		if (rows && !addr_say(text, len))
			return false;
		told += rows;
	}
	if (told)
		log_info("%zu connections of before are made known dead", told);
	return true;
}

static void addr_forget(void)
{
	int rc = conn_rows_forget(me.a_kv, me.a_former, me.a_nformer);

	if (rc)
		log_warn("cannot delete the rows of former connections: %s", strerror(-rc));
	free(me.a_former);
	me.a_former = NULL;
	me.a_nformer = 0;
}

static void addr_ask(void)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};

	strcpy(to.sun_path, me.a_socket);
	me.a_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (me.a_fd < 0 || connect(me.a_fd, (struct sockaddr *)&to, sizeof(to))) {
		addr_lost(strerror(errno));
		return;
	}
	if (!addr_say(me.a_hold, strlen(me.a_hold)) || !addr_say("LISTENING", 9) || !addr_tickle())
		return;
	log_info("service addresses: %s", me.a_hold + 5);
	me.a_why[0] = 0;
	if (me.a_nformer)
		addr_forget();
}

/* ---- the thread ---- */

static void *addr_run(void *arg)
{
	uint64_t rows_at = now_ms() + ROWS_MS;
	bool failing = false;

	(void)arg;
	while (!atomic_load(&ending)) {
		struct pollfd p[2] = {{.fd = me.a_wake, .events = POLLIN},
				      {.fd = me.a_fd, .events = POLLIN}};
		int rc = poll(p, 2, me.a_fd < 0 ? RETRY_MS : ROWS_MS);

		if (rc > 0 && p[1].revents)
			addr_lost("has closed the connection");
		if (me.a_fd < 0 && !atomic_load(&ending))
			addr_ask();
		if (me.a_nformer && now_ms() > me.a_began_ms + FORMER_MS)
			addr_forget();
		if (now_ms() < rows_at)
			continue;
		rows_at = now_ms() + ROWS_MS;
		rc = conn_rows_flush(me.a_kv);
		if (rc && !failing)
			log_warn("cannot store which connections there are: %s", strerror(-rc));
		failing = rc != 0;
	}
	/* What has no row by now gets one: no connection tells its peer that it ends. */
	conn_rows_flush(me.a_kv);
	if (me.a_fd >= 0 && addr_say("RELEASE", 7))
		close(me.a_fd);
	me.a_fd = -1;
	return NULL;
}

int mds_addr_start(struct kv *kv)
{
	int rc = 0;

	pthread_mutex_lock(&life);
	if (me.a_n && !atomic_load(&ending)) {
		me.a_kv = kv;
		me.a_began_ms = now_ms();
		me.a_wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		rc = me.a_wake < 0 ? -errno : conn_rows_read(kv, &me.a_former, &me.a_nformer);
		if (!rc) {
			addr_ask();
			rc = -pthread_create(&me.a_thread, NULL, addr_run, NULL);
		}
		running = !rc;
	}
	pthread_mutex_unlock(&life);
	return rc;
}

void mds_addr_stop(void)
{
	const uint64_t one = 1;

	atomic_store(&ending, true);
	pthread_mutex_lock(&life);
	if (running && write(me.a_wake, &one, sizeof(one)) == sizeof(one)) {
		pthread_join(me.a_thread, NULL);
		running = false;
	}
	pthread_mutex_unlock(&life);
}
