/* SPDX-License-Identifier: Apache-2.0 */
/* mds_addr.c - see mds_addr.h. The messages are those of weft-addr(8). */
#include "mds/mds_addr.h"
#include "base/log.h"
#include "mds/conn_rows.h"
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
#include <unistd.h>

#define ADDRESSES_MAX 64
#define PORTS_MAX     8
#define MESSAGE_MAX   65536
#define ROWS_MAX      700  /* of a message */
#define ANSWER_MS     2000 /* weft-addr answers at once; it may be stopped */
#define RETRY_MS      200
#define ROWS_MS	      500
#define BEAT_MS	      500
/* Ten beats: neither a busy machine nor a new connection to weft-addr takes so long. */
#define LIVE_MS 5000
/* A loop never blocks. One that has not turned for so long hangs. */
#define TURN_MS 10000

_Static_assert(sizeof("TICKLE") + ROWS_MAX * (CONN_ID_LINE - 1) <= MESSAGE_MAX, "one message");
_Static_assert(LIVE_MS > ANSWER_MS + RETRY_MS + 2 * BEAT_MS, "a lost answer costs no address");

/* A message that shows that a loop turns. */
struct pulse {
	struct loop_msg pu_msg;
	_Atomic bool pu_sent;	/* it is on its way */
	_Atomic uint64_t pu_ms; /* when it arrived last */
};

static struct {
	uint8_t a_addrs[ADDRESSES_MAX][16];
	unsigned a_n;
	uint16_t a_ports[PORTS_MAX];
	unsigned a_nports;
	char a_socket[sizeof(((struct sockaddr_un *)0)->sun_path)];
	char a_hold[ADDRESSES_MAX * (INET6_ADDRSTRLEN + 1) + PORTS_MAX * 6 + 8];
	struct kv *a_kv;
	const struct store_lease *a_lease;
	struct loop **a_loops;
	struct pulse *a_pulses;
	unsigned a_nloops;
	int a_fd;	 /* weft-addr; -1: not connected. Closed and set under fd_lock */
	int a_wake;	 /* eventfd, for the thread that talks */
	int a_rows_wake; /* the same, for the thread of the rows */
	/* Rows of former lives; the first a_ntell can be told. Both threads read them; the thread
	 * of the rows frees them, after reported. */
	struct conn_id *a_former;
	size_t a_nformer, a_ntell;
	size_t a_next;	 /* the first one that weft-addr has not taken */
	unsigned a_owed; /* answers that have not come */
	uint64_t a_beat_at;
	bool a_hangs;	 /* it was logged that a loop does not turn */
	char a_why[200]; /* what was logged last */
	pthread_t a_talk, a_rows;
} me = {.a_fd = -1, .a_wake = -1, .a_rows_wake = -1};
static pthread_mutex_t life = PTHREAD_MUTEX_INITIALIZER;    /* start and stop */
static pthread_mutex_t fd_lock = PTHREAD_MUTEX_INITIALIZER; /* never held long */
static bool running;
static atomic_bool ending, released, reported;

/* ---- configuration ---- */

/* Calls fn for each entry of a list. False: fn did not like one, or there was no memory. */
static bool mds_addr_each(const char *list, bool (*fn)(const char *entry, void *arg), void *arg)
{
	char *copy = strdup(list), *save = NULL;
	bool ok = copy != NULL;

	for (char *p = ok ? strtok_r(copy, ", ", &save) : NULL; p && ok;
	     p = strtok_r(NULL, ", ", &save))
		ok = fn(p, arg);
	free(copy);
	return ok;
}

static bool mds_addr_add_port(const char *entry, void *arg)
{
	struct sockaddr_storage ss;
	socklen_t len;
	uint16_t port;

	(void)arg;
	if (rpc_addr_parse(entry, 2049, &ss, &len))
		return false;
	port = ntohs(ss.ss_family == AF_INET ? ((struct sockaddr_in *)&ss)->sin_port
					     : ((struct sockaddr_in6 *)&ss)->sin6_port);
	for (unsigned i = 0; i < me.a_nports; i++)
		if (me.a_ports[i] == port)
			return true;
	if (me.a_nports == PORTS_MAX)
		return false;
	me.a_ports[me.a_nports++] = port;
	return true;
}

struct wrong {
	char *w_err;
	size_t w_len;
};

static bool wrong_address(const struct wrong *w, const char *entry, const char *why)
{
	snprintf(w->w_err, w->w_len, "mds.addresses: \"%s\": %s", entry, why);
	return false;
}

static bool add_address(const char *entry, void *arg)
{
	uint8_t *addr;

	if (me.a_n == ADDRESSES_MAX)
		return wrong_address(arg, entry, "more than 64 addresses");
	addr = me.a_addrs[me.a_n];
	if (!conn_addr_parse(entry, addr) || !conn_addr_ok(addr))
		return wrong_address(arg, entry,
				     "expected an address of a host, without port and prefix, such "
				     "as 10.0.0.1 or fd00::1");
	for (unsigned i = 0; i < me.a_n; i++)
		if (!memcmp(me.a_addrs[i], addr, 16))
			return wrong_address(arg, entry, "this address is there twice");
	me.a_n++;
	return true;
}

struct cover {
	const uint8_t *c_addr;
	bool c_yes;
};

static bool mds_addr_covers(const char *entry, void *arg)
{
	static const uint8_t zero[16];
	struct cover *c = arg;
	struct sockaddr_storage ss;
	uint8_t addr[16];
	socklen_t len;

	if (rpc_addr_parse(entry, 2049, &ss, &len))
		return false;
	conn_addr_of(&ss, addr);
	/* The wildcard of IPv6 listens for IPv6 alone. */
	if (!memcmp(addr, c->c_addr, 16) ||
	    (conn_addr_v4(addr) == conn_addr_v4(c->c_addr) &&
	     !memcmp(conn_addr_v4(addr) ? addr + 12 : addr, zero, conn_addr_v4(addr) ? 4 : 16)))
		c->c_yes = true;
	return true;
}

int mds_addr_open(const struct conf *conf, char *err, size_t errlen)
{
	const char *list = conf_str(conf, "mds.addresses");
	const char *where = conf_str(conf, "mds.addr_socket");
	const char *listens = conf_str(conf, "mds.listen");
	size_t len;

	if (!*list)
		return 0;
	if (!*where || strlen(where) >= sizeof(me.a_socket)) {
		snprintf(err, errlen, "mds.addr_socket: expected the path of weft-addr's socket");
		return -EINVAL;
	}
	strcpy(me.a_socket, where);
	if (!mds_addr_each(listens, mds_addr_add_port, NULL) || !me.a_nports) {
		snprintf(err, errlen, "mds.listen: expected at most %d ports with mds.addresses",
			 PORTS_MAX);
		return -EINVAL;
	}
	snprintf(err, errlen, "mds.addresses: expected addresses");
	if (!mds_addr_each(list, add_address, &(struct wrong){err, errlen}) || !me.a_n)
		return -EINVAL;
	len = (size_t)snprintf(me.a_hold, sizeof(me.a_hold), "HOLD ");
	for (unsigned i = 0; i < me.a_nports; i++)
		len += (size_t)snprintf(me.a_hold + len, sizeof(me.a_hold) - len, "%s%u",
					i ? "," : "", me.a_ports[i]);
	for (unsigned i = 0; i < me.a_n; i++) {
		struct cover c = {me.a_addrs[i], false};
		char text[INET6_ADDRSTRLEN];

		conn_addr_text(me.a_addrs[i], text);
		if (!mds_addr_each(listens, mds_addr_covers, &c) || !c.c_yes) {
			wrong_address(&(struct wrong){err, errlen}, text,
				      "mds.listen has neither it nor all addresses of its family");
			return -EINVAL;
		}
		len += (size_t)snprintf(me.a_hold + len, sizeof(me.a_hold) - len, " %s", text);
	}
	return 0;
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

/* ---- whether the server lives ---- */

static void pulse_came(struct loop_msg *msg)
{
	struct pulse *p = (struct pulse *)msg;

	atomic_store(&p->pu_ms, clock_mono_ms());
	atomic_store(&p->pu_sent, false);
}

/* The first thread that hangs; a_nloops: all turn. */
static unsigned loop_hangs(void)
{
	const uint64_t now = clock_mono_ms();
	unsigned i = 0;

	while (i < me.a_nloops && now < atomic_load(&me.a_pulses[i].pu_ms) + TURN_MS)
		i++;
	return i;
}

/* The log may have to wait for its reader: never between HOLD and what follows it. */
static void hang_log(void)
{
	const unsigned i = loop_hangs();

	if (i < me.a_nloops && !me.a_hangs)
		log_error("thread %u has not turned for %d s: weft-addr does not hear that the "
			  "server lives, and takes its addresses away",
			  i, TURN_MS / 1000);
	else if (i == me.a_nloops && me.a_hangs)
		log_info("all threads turn again");
	me.a_hangs = i < me.a_nloops;
}

static void pulses_send(void)
{
	for (unsigned i = 0; i < me.a_nloops; i++)
		if (!atomic_exchange(&me.a_pulses[i].pu_sent, true))
			loop_post(me.a_loops[i], &me.a_pulses[i].pu_msg);
}

/* For how many milliseconds from now weft-addr may be told that the server lives; 0: it may not. */
static uint64_t may_live(bool *always)
{
	const uint64_t end = atomic_load(&me.a_lease->sl_end_ns), now = clock_boot_ns();
	uint64_t ms;

	*always = end == STORE_LEASE_ALWAYS;
	if (loop_hangs() < me.a_nloops || atomic_load(&store_lease_is_lost) ||
	    (!*always && end <= now))
		return 0;
	ms = *always ? LIVE_MS : (end - now) / 1000000;
	return ms < LIVE_MS ? ms : LIVE_MS;
}

/* ---- what is said to weft-addr ---- */

static void addr_fd(int fd)
{
	pthread_mutex_lock(&fd_lock);
	if (me.a_fd >= 0)
		close(me.a_fd);
	me.a_fd = fd;
	me.a_owed = 0;
	pthread_mutex_unlock(&fd_lock);
}

static void addr_lost(const char *why)
{
	addr_fd(-1);
	/* It is asked five times a second: one line for each new reason. */
	if (strcmp(why, me.a_why) != 0)
		log_warn("weft-addr (%s): %s", me.a_socket, why);
	snprintf(me.a_why, sizeof(me.a_why), "%s", why);
}

/* The answer to what was said, as text. False: there is none, and no connection any more; or the
 * server stops, and the answer may still come. */
static bool addr_hear(char *answer, size_t len, bool stops)
{
	const uint64_t end = clock_mono_ms() + ANSWER_MS;

	for (;;) {
		struct pollfd p[2] = {{.fd = me.a_fd, .events = POLLIN},
				      {.fd = stops ? -1 : me.a_wake, .events = POLLIN}};
		const uint64_t now = clock_mono_ms();
		ssize_t n = recv(me.a_fd, answer, len - 1, 0);

		if (n > 0) {
			answer[n] = 0;
			me.a_owed--;
			return true;
		}
		if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
			addr_lost("has closed the connection");
			return false;
		}
		if (!stops && atomic_load(&ending))
			return false;
		if (now >= end) {
			addr_lost("does not answer");
			return false;
		}
		poll(p, 2, (int)(end - now));
	}
}

static bool addr_send(const char *text, size_t len)
{
	if (send(me.a_fd, text, len, MSG_NOSIGNAL) < 0) {
		addr_lost("does not take what it is told");
		return false;
	}
	me.a_owed++;
	return true;
}

/* True: the answer is in answer, OK or an error. */
static bool addr_ask(const char *text, size_t len, char *answer, size_t alen)
{
	return addr_send(text, len) && addr_hear(answer, alen, false);
}

static bool addr_ok(const char *answer)
{
	if (strncmp(answer, "OK", 2) != 0) {
		addr_lost(answer);
		return false;
	}
	return true;
}

static bool addr_say(const char *text, size_t len)
{
	char answer[256];

	return addr_ask(text, len, answer, sizeof(answer)) && addr_ok(answer);
}

/* Releases what HOLD got, or may still get. Without LIVE weft-addr would keep it. It reads RELEASE
 * before it sees that the connection ends. */
static void addr_give_back(void)
{
	send(me.a_fd, "RELEASE", 7, MSG_NOSIGNAL);
	addr_lost("the server may not have its addresses now, and releases them");
}

/* Says HOLD. False: the connection is lost, or the server stops. */
static bool addr_hold(void)
{
	char answer[256];

	if (!addr_send(me.a_hold, strlen(me.a_hold)))
		return false;
	/* addr_loss may have said RELEASE before HOLD. The answer may be long in coming. */
	if (atomic_load(&store_lease_is_lost)) {
		addr_give_back();
		return false;
	}
	return addr_hear(answer, sizeof(answer), false) && addr_ok(answer);
}

/* Says LIVE if it is time. A server that may not say it goes on with its addresses until weft-addr
 * takes them away. After HOLD weft-addr waits for no LIVE before the first one: a server that may
 * not say that one has no addresses. */
static bool addr_live(bool first)
{
	const uint64_t now = clock_mono_ms();
	bool always;
	uint64_t ms;
	char text[40];
	bool ok = true;
	int len;

	if (now < me.a_beat_at && !first)
		return true;
	me.a_beat_at = now + BEAT_MS;
	pulses_send();
	ms = may_live(&always);
	if (!ms && first) {
		addr_give_back();
		return false;
	}
	/* A short lease of the store is heard of in time, too. */
	if (ms && ms < 3 * BEAT_MS)
		me.a_beat_at = now + (ms / 3 > 50 ? ms / 3 : 50);
	/* The proof ends with the lease. Without one, what ends is a server that hangs. */
	len = snprintf(text, sizeof(text), "LIVE %lu%s", (unsigned long)ms, always ? " KEEP" : "");
	if (ms)
		ok = addr_say(text, (size_t)len);
	hang_log();
	return ok;
}

/* Tells one message of rows, and LIVE when it is time. False: the connection is lost, or the server
 * stops. */
static bool addr_tickle(void)
{
	static char text[MESSAGE_MAX];
	size_t len = (size_t)snprintf(text, sizeof(text), "TICKLE\n"), rows = 0;
	char answer[256];
	unsigned taken;

	for (; rows < ROWS_MAX && me.a_next + rows < me.a_ntell; rows++)
		len += conn_id_line(&me.a_former[me.a_next + rows], text + len);
	if (!addr_ask(text, len, answer, sizeof(answer)))
		return false;
	if (sscanf(answer, "OK %u", &taken) == 1) {
		me.a_next += taken < rows ? taken : rows;
		/* It has many already: the others in a while. */
		if (taken < rows)
			poll(&(struct pollfd){.fd = me.a_wake, .events = POLLIN}, 1, RETRY_MS);
		return true;
	}
	/* The addresses are worth more than these peers, who notice by themselves. */
	log_warn("weft-addr (%s): %zu connections of before: %s", me.a_socket, rows, answer);
	me.a_next += rows;
	return true;
}

static void addr_connect(void)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	strcpy(to.sun_path, me.a_socket);
	/* EAGAIN: it has not accepted those that came before. */
	if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to))) {
		int why = errno;

		if (fd >= 0)
			close(fd);
		addr_lost(why == EAGAIN ? "does not answer" : strerror(why));
		return;
	}
	addr_fd(fd);
}

/* Everything from the first message on: until the connection is lost or the server stops. */
static void addr_talk(void)
{
	char answer[256];

	/* LIVE at once: a server that hangs from here on loses what it has just got. */
	if (!addr_hold() || !addr_live(true) || !addr_say("LISTENING", 9))
		return;
	log_info("service addresses: %s", me.a_hold + 5);
	me.a_why[0] = 0;
	/* Another weft-addr may not know what the former one took. */
	if (!atomic_load(&reported))
		me.a_next = 0;
	while (!atomic_load(&ending) && addr_live(false)) {
		struct pollfd p[2] = {{.fd = me.a_wake, .events = POLLIN},
				      {.fd = me.a_fd, .events = POLLIN}};
		uint64_t now = clock_mono_ms();

		if (!atomic_load(&reported)) {
			if (me.a_next < me.a_ntell) {
				if (!addr_tickle())
					return;
				continue;
			}
			if (me.a_ntell)
				log_info("%zu connections of before are made known dead",
					 me.a_ntell);
			atomic_store(&reported, true);
		}
		if (poll(p, 2, me.a_beat_at > now ? (int)(me.a_beat_at - now) : 0) > 0 &&
		    p[1].revents) {
			/* It says nothing by itself. */
			ssize_t n = recv(me.a_fd, answer, sizeof(answer), 0);

			if (n >= 0 || errno != EAGAIN)
				addr_lost("has closed the connection");
		}
		if (me.a_fd < 0)
			return;
	}
}

/* ---- the threads ---- */

static void *addr_run(void *arg)
{
	struct pollfd wake = {.fd = me.a_wake, .events = POLLIN};
	char answer[256];

	(void)arg;
	while (!atomic_load(&ending)) {
		bool always;

		pulses_send();
		hang_log();
		/* No address for a server that does not hold its store. */
		if (may_live(&always))
			addr_connect();
		if (me.a_fd >= 0)
			addr_talk();
		if (me.a_fd < 0)
			poll(&wake, 1, RETRY_MS);
	}
	/* An answer to what was said before may come first. */
	if (me.a_fd >= 0 && send(me.a_fd, "RELEASE", 7, MSG_NOSIGNAL) == 7)
		for (me.a_owed++; me.a_owed && addr_hear(answer, sizeof(answer), true);)
			;
	addr_fd(-1);
	return NULL;
}

/* Another instance has the store. weft-addr reads it before it sees that the connection ends. */
static void addr_loss(void)
{
	pthread_mutex_lock(&fd_lock);
	if (me.a_fd >= 0)
		send(me.a_fd, "RELEASE", 7, MSG_NOSIGNAL | MSG_DONTWAIT);
	pthread_mutex_unlock(&fd_lock);
}

static void rows_forget(const struct conn_id *ids, size_t n)
{
	int rc = n ? conn_rows_forget(me.a_kv, ids, n) : 0;

	if (rc)
		log_warn("cannot delete the rows of former connections: %s", strerror(-rc));
}

static void *rows_run(void *arg)
{
	struct pollfd wake = {.fd = me.a_rows_wake, .events = POLLIN};
	bool failing = false;

	(void)arg;
	/* Lives without weft-addr would leave more and more. */
	if (me.a_nformer > CONN_ROWS_MAX)
		rows_forget(me.a_former + CONN_ROWS_MAX, me.a_nformer - CONN_ROWS_MAX);
	for (bool last = false; !last;) {
		int rc;

		poll(&wake, 1, ROWS_MS);
		/* At the end: what has no row by now gets one. No connection tells its peer that it
		 * ends. */
		last = atomic_load(&released);
		if (me.a_former && atomic_load(&reported)) {
			rows_forget(me.a_former,
				    me.a_nformer < CONN_ROWS_MAX ? me.a_nformer : CONN_ROWS_MAX);
			free(me.a_former);
			me.a_former = NULL;
		}
		rc = conn_rows_flush(me.a_kv);
		if (rc && !failing)
			log_warn("cannot store which connections there are: %s", strerror(-rc));
		failing = rc != 0;
	}
	return NULL;
}

/* Those that can be told come first: the configuration may have had other addresses or ports. */
static void former_sort(void)
{
	size_t n = me.a_nformer < CONN_ROWS_MAX ? me.a_nformer : CONN_ROWS_MAX;

	for (size_t i = 0; i < n; i++) {
		struct conn_id id = me.a_former[i];
		unsigned p = 0;

		while (p < me.a_nports && me.a_ports[p] != conn_port(id.ci_lport))
			p++;
		if (p == me.a_nports || !is_service(&id))
			continue;
		me.a_former[i] = me.a_former[me.a_ntell];
		me.a_former[me.a_ntell++] = id;
	}
}

/* The thread of the rows stores what is due, and ends. */
static void rows_stop(void)
{
	const uint64_t one = 1;

	atomic_store(&released, true);
	if (write(me.a_rows_wake, &one, sizeof(one)) == sizeof(one))
		pthread_join(me.a_rows, NULL);
}

static int addr_begin(void)
{
	int rc;

	me.a_pulses = calloc(me.a_nloops, sizeof(*me.a_pulses));
	me.a_wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	me.a_rows_wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (!me.a_pulses || me.a_wake < 0 || me.a_rows_wake < 0)
		return -errno;
	for (unsigned i = 0; i < me.a_nloops; i++) {
		me.a_pulses[i].pu_msg.m_run = pulse_came;
		atomic_store(&me.a_pulses[i].pu_ms, clock_mono_ms());
	}
	rc = conn_rows_read(me.a_kv, &me.a_former, &me.a_nformer);
	if (rc)
		return rc;
	former_sort();
	store_lease_at_loss(addr_loss);
	rc = -pthread_create(&me.a_rows, NULL, rows_run, NULL);
	if (rc)
		return rc;
	rc = -pthread_create(&me.a_talk, NULL, addr_run, NULL);
	/* The store is closed soon. */
	if (rc)
		rows_stop();
	return rc;
}

int mds_addr_start(struct kv *kv, const struct store_lease *lease, struct loop **loops, unsigned n)
{
	int rc = 0;

	pthread_mutex_lock(&life);
	if (me.a_n && !atomic_load(&ending)) {
		me.a_kv = kv;
		me.a_lease = lease;
		me.a_loops = loops;
		me.a_nloops = n;
		rc = addr_begin();
		running = !rc;
	}
	pthread_mutex_unlock(&life);
	return rc;
}

void mds_addr_stop(void)
{
	const uint64_t one = 1;

	/* From here on a connection that ends keeps its row. */
	atomic_store(&ending, true);
	pthread_mutex_lock(&life);
	if (running && write(me.a_wake, &one, sizeof(one)) == sizeof(one)) {
		pthread_join(me.a_talk, NULL);
		/* The store may be slow: the addresses are gone by now. */
		rows_stop();
		running = false;
	}
	pthread_mutex_unlock(&life);
}
