/* SPDX-License-Identifier: Apache-2.0 */
/* addr_main.c - weft-addr: options, privileges, the socket and its holders. See addr.h,
 * weft-addr(8). */
#include "addr/addr_place.h"
#include "base/clock.h"
#include "base/log.h"
#include "common/version.h"
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#define HOLDERS	 32
#define CONF_MAX (64u << 10)

struct addr_holder {
	int h_fd; /* -1: no holder */
};
static struct addr_holder holders[HOLDERS];
static int listen_fd, signal_fd;
static gid_t group = (gid_t)-1;

static struct {
	const char *conf, *socket, *group;
	int64_t wait_ms;
	bool keep, check;
} opts = {.conf = "/etc/weft/addr.conf",
	  .socket = "/run/weft-addr/socket",
	  .group = "weft",
	  .wait_ms = 2000};

static void usage(bool asked)
{
	fprintf(asked ? stdout : stderr,
		"usage: weft-addr [-kn] [-c FILE] [-g GROUP] [-s SOCKET] [-w SECONDS]\n"
		"  -c FILE     addresses that it may hold (/etc/weft/addr.conf)\n"
		"  -g GROUP    group that may ask (weft)\n"
		"  -k          keep the addresses that a former run left, and at the end\n"
		"  -n          check the configuration and end\n"
		"  -s SOCKET   where it is asked (/run/weft-addr/socket)\n"
		"  -w SECONDS  how long an address waits for its holder, or \"forever\" (2)\n");
	exit(asked ? 0 : 2);
}

static void die(const char *what, const char *why)
{
	log_error("%s: %s", what, why);
	exit(1);
}

static int64_t now_ms(void)
{
	/* A machine that slept has not sent its announcements either. */
	return (int64_t)(clock_boot_ns() / 1000000);
}

static void options(int argc, char **argv)
{
	double seconds;
	char *end;
	int c;

	if (argc > 1 && !strcmp(argv[1], "--help"))
		usage(true);
	if (argc > 1 && !strcmp(argv[1], "--version"))
		exit(version_print("weft-addr"));
	while ((c = getopt(argc, argv, "c:g:hkns:w:")) != -1)
		switch (c) {
		case 'c':
			opts.conf = optarg;
			break;
		case 'g':
			opts.group = optarg;
			break;
		case 'k':
			opts.keep = true;
			break;
		case 'n':
			opts.check = true;
			break;
		case 's':
			opts.socket = optarg;
			break;
		case 'w':
			if (!strcmp(optarg, "forever")) {
				opts.wait_ms = -1;
				break;
			}
			seconds = strtod(optarg, &end);
			/* Not a number is not in the range either. */
			if (end == optarg || *end || !(seconds >= 0 && seconds <= 86400)) {
				fprintf(stderr, "weft-addr: -w wants seconds, at most a day, or "
						"\"forever\"\n");
				exit(2);
			}
			opts.wait_ms = (int64_t)(seconds * 1000);
			/* Not 0, which means something else. */
			if (!opts.wait_ms && seconds > 0)
				opts.wait_ms = 1;
			break;
		default:
			usage(c == 'h');
		}
	if (optind < argc)
		usage(false);
}

static unsigned read_conf(struct addr_place *out)
{
	static char text[CONF_MAX + 1];
	char err[200];
	FILE *f = fopen(opts.conf, "re");
	size_t n;
	int rc;

	if (!f)
		die(opts.conf, strerror(errno));
	n = fread(text, 1, sizeof text, f);
	if (ferror(f))
		die(opts.conf, strerror(errno));
	fclose(f);
	if (n == sizeof text || memchr(text, 0, n))
		die(opts.conf, "not a configuration");
	text[n] = 0;
	rc = addr_conf_parse(text, out, err, sizeof err);
	if (rc < 0) {
		log_error("%s: %s", opts.conf, err);
		exit(2);
	}
	return (unsigned)rc;
}

static void find_group(void)
{
	struct group *g = getgrnam(opts.group);

	if (!g)
		die(opts.group, "there is no such group");
	group = g->gr_gid;
}

static void open_socket(void)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	struct stat st;

	if (strlen(opts.socket) >= sizeof a.sun_path)
		die(opts.socket, "too long");
	strcpy(a.sun_path, opts.socket);
	listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (listen_fd < 0)
		die("socket", strerror(errno));
	/* Who answers there is alive: two of them would take each other's addresses away. */
	if (!connect(listen_fd, (struct sockaddr *)&a, sizeof a))
		die(opts.socket, "another weft-addr answers there");
	if (errno != ENOENT && errno != ECONNREFUSED)
		/* EAGAIN: it is there, and too busy to answer. */
		die(opts.socket,
		    errno == EAGAIN ? "another weft-addr listens there" : strerror(errno));
	if (!lstat(opts.socket, &st) && S_ISSOCK(st.st_mode))
		unlink(opts.socket);
	umask(0117);
	if (bind(listen_fd, (struct sockaddr *)&a, sizeof a) < 0)
		die(opts.socket, strerror(errno));
	if (chown(opts.socket, (uid_t)-1, group) < 0)
		die(opts.socket, "cannot give it to its group");
	umask(0077);
}

/* From here on it can change addresses and send packets, and nothing else that root can. */
static void drop_privileges(void)
{
	const uint32_t caps = 1u << CAP_NET_ADMIN | 1u << CAP_NET_RAW;
	struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct d[2] = {{.effective = caps, .permitted = caps}, {0}};

	for (int c = 0; prctl(PR_CAPBSET_READ, c) >= 0; c++)
		if (c != CAP_NET_ADMIN && c != CAP_NET_RAW)
			prctl(PR_CAPBSET_DROP, c);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || syscall(SYS_capset, &h, d) < 0)
		die("CAP_NET_ADMIN and CAP_NET_RAW are wanted", strerror(errno));
}

static bool may_ask(int fd)
{
	struct ucred c;
	socklen_t len = sizeof c;

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &len) &&
	       (c.uid == 0 || c.uid == geteuid() || c.gid == group);
}

static void take_holder(void)
{
	int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0)
		return;
	for (int i = 0; i < HOLDERS && may_ask(fd); i++)
		if (holders[i].h_fd < 0) {
			holders[i].h_fd = fd;
			return;
		}
	log_warn("a connection refused: not of the group, or too many");
	close(fd);
}

static void holder_end(struct addr_holder *h)
{
	close(h->h_fd);
	h->h_fd = -1;
	place_gone(h, now_ms());
}

static size_t answer(struct addr_holder *h, char *text, size_t len, char *out, size_t outlen)
{
	static struct addr_msg m;
	char err[200] = "";
	int64_t now = now_ms();
	int rc = addr_msg_parse(text, len, &m, err, sizeof err);

	if (!rc)
		switch (m.m_verb) {
		case ADDR_HOLD:
			rc = place_hold(h, &m, now, err, sizeof err);
			break;
		case ADDR_LISTENING:
			rc = place_listening(h);
			break;
		case ADDR_LIVE:
			rc = place_live(h, &m, now);
			break;
		case ADDR_TICKLE:
			rc = place_tickle(h, &m, now, err, sizeof err);
			break;
		case ADDR_RELEASE:
			place_release(h, now);
			break;
		case ADDR_STATUS:
			return place_status(out, outlen);
		}
	if (rc >= 0)
		return (size_t)snprintf(out, outlen, m.m_verb == ADDR_TICKLE ? "OK %d" : "OK", rc);
	if (!*err)
		snprintf(err, sizeof err, "%s", rc == -ENOENT ? "nothing is held" : strerror(-rc));
	log_warn("refused: %s", err);
	return (size_t)snprintf(out, outlen, "ERROR %s", err);
}

static void hear(struct addr_holder *h)
{
	static char text[ADDR_MSG_MAX + 2], out[16384];
	ssize_t n = recv(h->h_fd, text, ADDR_MSG_MAX + 1, 0);
	size_t len;

	/* ECONNRESET comes before what the holder said last: its end is heard of with the next
	 * call. */
	if (n < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNRESET))
		return;
	if (n <= 0) {
		holder_end(h);
		return;
	}
	len = answer(h, text, (size_t)n, out, sizeof out);
	/* Who does not take its answers is as good as dead. Who has ended may have said more,
	 * such as RELEASE behind HOLD: its end is heard of later. */
	if (send(h->h_fd, out, len, MSG_NOSIGNAL) < 0 && errno != EPIPE && errno != ECONNRESET)
		holder_end(h);
}

static int wait_for(void)
{
	int64_t now = now_ms(), next = place_run(now);
	int tickle = addr_tickle_run(now), ms;

	now = now_ms();
	if (next == INT64_MAX)
		ms = -1;
	else
		ms = next > now ? (int)(next - now) : 0;
	return tickle >= 0 && (ms < 0 || tickle < ms) ? tickle : ms;
}

static void serve(void)
{
	struct pollfd p[HOLDERS + 2];

	for (;;) {
		int n = 2, ms = wait_for();

		p[0] = (struct pollfd){.fd = signal_fd, .events = POLLIN};
		p[1] = (struct pollfd){.fd = listen_fd, .events = POLLIN};
		for (int i = 0; i < HOLDERS; i++)
			/* poll() skips what is negative. */
			p[n++] = (struct pollfd){.fd = holders[i].h_fd, .events = POLLIN};
		if (poll(p, (nfds_t)n, ms) < 0 && errno != EINTR)
			die("poll", strerror(errno));
		if (p[0].revents)
			return;
		/* Those that ended first: their successor may wait to be accepted. */
		for (int i = 0; i < HOLDERS; i++)
			if (p[i + 2].revents)
				hear(&holders[i]);
		if (p[1].revents)
			take_holder();
	}
}

static void open_all(const struct addr_place *conf, unsigned n)
{
	sigset_t set;
	int rc;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	/* There is nothing to read again, and the addresses stay. */
	signal(SIGHUP, SIG_IGN);
	signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (signal_fd < 0)
		die("signalfd", strerror(errno));
	rc = addr_net_open();
	if (rc < 0)
		die("rtnetlink", strerror(-rc));
	rc = addr_packet_open();
	if (rc < 0)
		die("raw sockets", strerror(-rc));
	rc = addr_filter_open();
	if (rc < 0)
		die("nftables", strerror(-rc));
	find_group();
	open_socket();
	drop_privileges();
	rc = place_open(conf, n, opts.wait_ms, opts.keep, now_ms());
	if (rc < 0)
		die("cannot see what a former run left", strerror(-rc));
	rc = addr_closed_open();
	if (rc < 0)
		log_warn("this kernel does not end connections whose FIN nobody has answered: %s. "
			 "What this node closed while an address was elsewhere stays for 100 s; a "
			 "client that comes back with the same port may wait for half a minute. "
			 "Linux 6.11, 6.6.84 and 6.1.132 do it",
			 strerror(-rc));
	if (listen(listen_fd, HOLDERS) < 0)
		die(opts.socket, strerror(errno));
}

int main(int argc, char **argv)
{
	static struct addr_place conf[ADDR_PLACES];
	unsigned n;
	bool all;

	log_set_name("weft-addr");
	options(argc, argv);
	n = read_conf(conf);
	if (opts.check) {
		printf("%s: %u addresses\n", opts.conf, n);
		return 0;
	}
	for (int i = 0; i < HOLDERS; i++)
		holders[i].h_fd = -1;
	open_all(conf, n);
	log_info("ready, %u addresses may be held", n);
	serve();
	all = place_close(opts.keep, now_ms());
	unlink(opts.socket);
	log_info(all ? "ends" : "ends, although addresses of it are still on this node");
	return all ? 0 : 1;
}
