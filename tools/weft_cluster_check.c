/* SPDX-License-Identifier: Apache-2.0 */
/* weft_cluster_check.c - is this machine fit for a daemon? See weft_cluster.h. */
#include "tools/weft_cluster.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/magic.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/timex.h>
#include <sys/xattr.h>
#include <unistd.h>

#ifndef XFS_SUPER_MAGIC
#define XFS_SUPER_MAGIC 0x58465342
#endif
#define ROOM_LEAST (1ull << 30)
#define ROOM_SMALL (10ull << 30)
#define FILES_WANT 65536 /* open files of a daemon, as mds.connections and ds.connections */
#define CLOCKS_S   2	 /* how far the clocks of two machines may be apart */
#define PORTS	   100	 /* of data servers of one machine */

/* ---- addresses ---- */

static bool own_loopback(const struct sockaddr *sa)
{
	if (sa->sa_family == AF_INET6)
		return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)sa)->sin6_addr);
	return ntohl(((const struct sockaddr_in *)sa)->sin_addr.s_addr) >> 24 == 127;
}

static bool own_wildcard(const struct sockaddr *sa)
{
	if (sa->sa_family == AF_INET6)
		return IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)sa)->sin6_addr);
	return !((const struct sockaddr_in *)sa)->sin_addr.s_addr;
}

/* An address that other machines may reach: not of loopback, and not of one link. */
static bool own_usable(const struct sockaddr *sa)
{
	if (!sa || (sa->sa_family != AF_INET && sa->sa_family != AF_INET6) || own_loopback(sa))
		return false;
	if (sa->sa_family == AF_INET6)
		return !IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)sa)->sin6_addr);
	return ntohl(((const struct sockaddr_in *)sa)->sin_addr.s_addr) >> 16 != 0xa9fe;
}

static size_t own_size(const struct sockaddr *sa)
{
	return sa->sa_family == AF_INET6 ? 16 : 4;
}

static const uint8_t *own_bytes(const struct sockaddr *sa)
{
	return sa->sa_family == AF_INET6
		       ? (const uint8_t *)&((const struct sockaddr_in6 *)sa)->sin6_addr
		       : (const uint8_t *)&((const struct sockaddr_in *)sa)->sin_addr;
}

static bool own_same(const struct sockaddr *a, const struct sockaddr *b)
{
	return a && a->sa_family == b->sa_family &&
	       !memcmp(own_bytes(a), own_bytes(b), own_size(a));
}

static void own_network(const struct ifaddrs *i, char out[NET_TEXT])
{
	const uint8_t *addr = own_bytes(i->ifa_addr),
		      *mask = i->ifa_netmask ? own_bytes(i->ifa_netmask) : NULL;
	char host[INET6_ADDRSTRLEN];
	size_t n = own_size(i->ifa_addr);
	uint8_t net[16];
	unsigned bits = 0;

	for (size_t b = 0; b < n; b++) {
		net[b] = mask ? addr[b] & mask[b] : addr[b];
		bits += mask ? (unsigned)__builtin_popcount(mask[b]) : 8;
	}
	inet_ntop(i->ifa_addr->sa_family, net, host, sizeof(host));
	snprintf(out, NET_TEXT, "%s/%u", host, bits);
}

static void own_fill(struct own_addr *out, const struct sockaddr *sa, uint16_t port)
{
	rpc_addr_copy(&out->oa_ss, sa);
	if (sa->sa_family == AF_INET6) {
		((struct sockaddr_in6 *)&out->oa_ss)->sin6_port = htons(port);
		out->oa_len = sizeof(struct sockaddr_in6);
	} else {
		((struct sockaddr_in *)&out->oa_ss)->sin_port = htons(port);
		out->oa_len = sizeof(struct sockaddr_in);
	}
	rpc_addr_text((const struct sockaddr *)&out->oa_ss, out->oa_text, sizeof(out->oa_text));
	inet_ntop(sa->sa_family, own_bytes(sa), out->oa_host, sizeof(out->oa_host));
	out->oa_loopback = own_loopback(sa);
}

static uint16_t own_port(const struct sockaddr_storage *ss)
{
	return ntohs(ss->ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)ss)->sin6_port
					       : ((const struct sockaddr_in *)ss)->sin_port);
}

/* Names the addresses of this machine that would do. */
static void own_list(const struct ifaddrs *all, char *out, size_t len)
{
	char host[INET6_ADDRSTRLEN];
	size_t at = 0;

	snprintf(out, len, "none");
	for (const struct ifaddrs *i = all; i && at < len; i = i->ifa_next)
		if (own_usable(i->ifa_addr) &&
		    inet_ntop(i->ifa_addr->sa_family, own_bytes(i->ifa_addr), host, sizeof(host)))
			at += (size_t)snprintf(out + at, len - at, "%s%s", at ? ", " : "", host);
}

/* The only usable one; NULL: there is none, or there are several. */
static const struct ifaddrs *own_only(const struct ifaddrs *all)
{
	const struct ifaddrs *only = NULL;

	for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
		if (!own_usable(i->ifa_addr))
			continue;
		if (only)
			return NULL;
		only = i;
	}
	return only;
}

static int own_find(struct plan *p, const struct ifaddrs *all, const char *text, uint16_t port,
		    bool alone, struct own_addr *out)
{
	const struct ifaddrs *i = text ? all : own_only(all);
	struct sockaddr_storage ss;
	char others[300];
	socklen_t len;

	own_list(all, others, sizeof(others));
	if (!text && !i)
		return plan_refuse(p,
				   "which address of this machine do the others use? Name it "
				   "(this machine has: %s)",
				   others);
	if (text && rpc_addr_parse(text, port, &ss, &len))
		return plan_refuse(p,
				   "%s: expected an address of this machine: 192.0.2.1, "
				   "192.0.2.1:2049 or [2001:db8::1]:2049",
				   text);
	if (text && own_wildcard((struct sockaddr *)&ss))
		return plan_refuse(p,
				   "%s: the others need an address that leads here, not a "
				   "wildcard (this machine has: %s)",
				   text, others);
	if (text && own_loopback((struct sockaddr *)&ss) && !alone)
		return plan_refuse(p,
				   "%s: other machines cannot reach a loopback address (this "
				   "machine has: %s); --alone: there will be no others",
				   text, others);
	for (; text && i && !own_same(i->ifa_addr, (struct sockaddr *)&ss); i = i->ifa_next)
		;
	if (!i && *p->pl_root) {
		/* an image is for another machine */
		own_fill(out, (struct sockaddr *)&ss, own_port(&ss));
		snprintf(out->oa_net, sizeof(out->oa_net), "%s", out->oa_host);
		plan_warn(p, "address %s is not of this machine; the image's must have it",
			  out->oa_text);
		return EXIT_DONE;
	}
	if (!i)
		return plan_refuse(p, "%s: is no address of this machine (it has: %s)", text,
				   others);
	own_fill(out, i->ifa_addr, text ? own_port(&ss) : port);
	own_network(i, out->oa_net);
	if (!(i->ifa_flags & IFF_UP))
		plan_warn(p, "address %s: its interface %s is down", out->oa_host, i->ifa_name);
	else
		plan_ok(p, "address %s is on this machine (%s, network %s)", out->oa_text,
			i->ifa_name, out->oa_net);
	return EXIT_DONE;
}

int check_own_address(struct plan *p, const char *text, uint16_t port, bool alone,
		      struct own_addr *out)
{
	struct ifaddrs *all;
	int rc;

	*out = (struct own_addr){0};
	if (getifaddrs(&all))
		return plan_refuse(p, "cannot list the addresses of this machine: %s",
				   strerror(errno));
	rc = own_find(p, all, text, port, alone, out);
	freeifaddrs(all);
	return rc;
}

int check_port(const struct own_addr *a)
{
	int fd = socket(a->oa_ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0), err = 0, one = 1;

	if (fd < 0)
		return errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (const struct sockaddr *)&a->oa_ss, a->oa_len) || listen(fd, 1))
		err = errno;
	close(fd);
	return err;
}

int check_next_port(struct plan *p, struct own_addr *a)
{
	uint16_t first = own_port(&a->oa_ss);

	for (unsigned n = 0; n < PORTS && first + n <= 65535; n++) {
		struct sockaddr_storage ss = a->oa_ss;

		own_fill(a, (const struct sockaddr *)&ss, (uint16_t)(first + n));
		if (!check_port(a))
			return EXIT_DONE;
	}
	return plan_refuse(p, "%s: none of the ports %u to %u is free", a->oa_host, first,
			   first + PORTS - 1);
}

/* ---- the folder of a store ---- */

/* The nearest folder above that is there, or the folder itself. */
static bool nearest(char *full)
{
	struct stat st;
	char *slash;

	while (stat(full, &st)) {
		slash = strrchr(full, '/');
		if (!slash || errno != ENOENT)
			return false;
		slash[slash == full] = 0;
	}
	return S_ISDIR(st.st_mode);
}

/* 0: empty or not there; 1: there is something in it; or a negative errno. lost+found, which a
 * fresh file system has, does not count. */
static int occupied(const char *full)
{
	DIR *d = opendir(full);
	struct dirent *e;
	int n = 0;

	if (!d)
		return errno == ENOENT ? 0 : -errno;
	while (!n && (e = readdir(d)))
		n = strcmp(e->d_name, ".") && strcmp(e->d_name, "..") &&
		    strcmp(e->d_name, "lost+found");
	closedir(d);
	return n;
}

static const char *whose(const char *full)
{
	static const struct {
		const char *file, *what;
	} known[] = {{"identity", "the store of a data server"},
		     {"data.mdb", "a metadata store"},
		     {"redo.0", "a metadata store"}};
	char path[PATH_MAX];

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (snprintf(path, sizeof(path), "%s/%s", full, known[i].file) < PATH_MAX &&
		    !access(path, F_OK))
			return known[i].what;
	return "not empty";
}

/* Tries an extended attribute on a file without a name, which leaves nothing behind. Returns 0, or
 * a negative errno; 1: this process may not write there. */
static int xattrs_work(const char *folder)
{
	int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600), err = 0;

	if (fd < 0)
		return errno == EACCES || errno == EPERM || errno == EROFS ? 1 : -errno;
	if (fsetxattr(fd, "user.weft.try", "1", 1, 0))
		err = -errno;
	close(fd);
	return err;
}

static int check_room(struct plan *p, const char *path, const struct statfs *fs)
{
	unsigned long long room =
		(unsigned long long)fs->f_bavail * (unsigned long long)fs->f_bsize;

	if (room < ROOM_LEAST)
		return plan_unless_forced(p, "%s: only %s free on its file system", path,
					  size_text((long long)room));
	if (room < ROOM_SMALL)
		plan_warn(p, "%s: only %s free on its file system", path,
			  size_text((long long)room));
	return EXIT_DONE;
}

static int check_file_system(struct plan *p, const char *path, const char *at, bool data)
{
	struct stat st, root;
	struct statfs fs;
	const char *name;
	int rc, err;

	if (statfs(at, &fs) || stat(at, &st) || stat("/", &root))
		return plan_refuse(p, "%s: %s", at, strerror(errno));
	name = fs.f_type == XFS_SUPER_MAGIC ? "XFS" : fs.f_type == EXT4_SUPER_MAGIC ? "ext4" : NULL;
	rc = name ? EXIT_DONE
		  : plan_unless_forced(p,
				       "%s: its file system is neither XFS nor ext4 (type "
				       "0x%lx), which weft was made for",
				       path, (unsigned long)fs.f_type);
	if (!rc && data && st.st_dev == root.st_dev)
		rc = plan_unless_forced(p,
					"%s: is on the root's file system: data that fills it "
					"stops this machine",
					path);
	if (!rc)
		rc = check_room(p, path, &fs);
	err = rc ? 0 : xattrs_work(at);
	if (err < 0)
		return plan_refuse(p, "%s: no extended attributes there (%s)", path,
				   strerror(-err));
	if (err)
		plan_warn(p, "%s: cannot try extended attributes: this process may not write there",
			  path);
	if (!rc)
		plan_ok(p, "%s: %s, %s free", path, name ? name : "another file system",
			size_text((long long)((unsigned long long)fs.f_bavail *
					      (unsigned long long)fs.f_bsize)));
	return rc;
}

int check_store(struct plan *p, const char *path, bool data, bool ours)
{
	char full[PATH_MAX];
	int n;

	if (path[0] != '/' || strpbrk(path, " \t\n\"'\\,{}$#%;") || strstr(path, ".."))
		return plan_refuse(p,
				   "%s: expected the absolute path of a folder, without blanks, "
				   "commas, quotes, #, %%, ; and ..",
				   path);
	if (!plan_path(p, path, full))
		return plan_refuse(p, "%s: too long", path);
	n = occupied(full);
	if (n < 0)
		return plan_refuse(p, "%s: %s", full, strerror(-n));
	if (n && !ours)
		return plan_refuse(p,
				   "%s: is %s; a new store needs an empty folder, or one that "
				   "does not exist yet",
				   full, whose(full));
	if (!nearest(full))
		return plan_refuse(p, "%s%s: %s", p->pl_root, path, strerror(errno));
	return check_file_system(p, path, full, data);
}

/* ---- names ---- */

void check_names(struct plan *p, const struct own_addr *a)
{
	char host[256] = "", back[NI_MAXHOST];
	struct addrinfo *list = NULL, hints = {.ai_socktype = SOCK_STREAM};
	bool found = false;

	if (a->oa_loopback)
		return;
	gethostname(host, sizeof(host) - 1);
	if (getaddrinfo(host, NULL, &hints, &list))
		list = NULL;
	for (const struct addrinfo *i = list; i; i = i->ai_next)
		found |= own_same(i->ai_addr, (const struct sockaddr *)&a->oa_ss);
	if (list)
		freeaddrinfo(list);
	if (found)
		plan_ok(p, "name %s leads to %s", host, a->oa_host);
	else
		plan_warn(p,
			  "name %s does not lead to %s: clients have to use the address, and "
			  "Kerberos does not work",
			  host, a->oa_host);
	if (getnameinfo((const struct sockaddr *)&a->oa_ss, a->oa_len, back, sizeof(back), NULL, 0,
			NI_NAMEREQD))
		plan_warn(p, "address %s has no name: exports that name hosts do not match it",
			  a->oa_host);
	else
		plan_ok(p, "address %s has the name %s", a->oa_host, back);
}

/* ---- limits ---- */

unsigned check_threads(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	return n < 1 ? 1 : n > 16 ? 16 : (unsigned)n;
}

unsigned check_pool_mib(unsigned part, unsigned least, unsigned most)
{
	unsigned long long mib = (unsigned long long)sysconf(_SC_PHYS_PAGES) *
					 (unsigned long long)sysconf(_SC_PAGESIZE) / part >>
				 20;

	/* a power of two, so that a few bytes of memory do not change the file */
	while (most > least && most > mib)
		most /= 2;
	return most > least ? most : least;
}

static long huge_pages(void)
{
	FILE *f = fopen("/proc/meminfo", "re");
	char line[128];
	long n = 0;

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "HugePages_Total: %ld", &n) == 1)
			break;
	if (f)
		fclose(f);
	return n;
}

void check_limits(struct plan *p)
{
	struct rlimit locked, files;

	if (p->pl_systemd)
		plan_ok(p, "limits of locked memory and open files are those of the units");
	else if (!getrlimit(RLIMIT_MEMLOCK, &locked) && !getrlimit(RLIMIT_NOFILE, &files)) {
		if (locked.rlim_cur != RLIM_INFINITY)
			plan_warn(p,
				  "locked memory is limited to %s here (ulimit -l): a daemon "
				  "started from here copies more; give it \"unlimited\"",
				  size_text((long long)locked.rlim_cur));
		if (files.rlim_max < FILES_WANT)
			plan_warn(p,
				  "open files are limited to %llu here (ulimit -Hn): a daemon "
				  "started from here serves fewer connections; %u are good",
				  (unsigned long long)files.rlim_max, FILES_WANT);
		if (locked.rlim_cur == RLIM_INFINITY && files.rlim_max >= FILES_WANT)
			plan_ok(p, "limits of locked memory and open files");
	}
	if (huge_pages())
		plan_ok(p, "%ld huge pages, which the memory pools can use", huge_pages());
	else
		plan_ok(p, "no huge pages (vm.nr_hugepages): the pools take transparent ones where "
			   "the kernel gives them");
}

/* ---- clocks ---- */

void check_own_clock(struct plan *p)
{
	struct timex tx = {0};

	if (adjtimex(&tx) < 0)
		plan_warn(p, "clock: cannot be asked whether it is synchronized");
	else if (tx.status & STA_UNSYNC)
		plan_warn(p, "clock: nothing synchronizes it (the kernel says so); run chrony or "
			     "systemd-timesyncd on each machine");
	else
		plan_ok(p, "clock is synchronized");
}

int check_clocks(struct plan *p, long long now_us, long long took_us)
{
	struct timespec now;
	double apart;

	clock_gettime(CLOCK_REALTIME, &now);
	/* the answer was made about half that time ago */
	apart = ((double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3 - (double)took_us / 2 -
		 (double)now_us) /
		1e6;
	if (apart > CLOCKS_S || apart < -CLOCKS_S)
		return plan_unless_forced(p,
					  "the clock of this machine is %.1f s %s that of the "
					  "metadata server; %d s is the most: synchronize both",
					  apart < 0 ? -apart : apart,
					  apart < 0 ? "behind" : "before", CLOCKS_S);
	plan_ok(p, "clock is within %d s of the metadata server's (%+.3f s)", CLOCKS_S, apart);
	return EXIT_DONE;
}
