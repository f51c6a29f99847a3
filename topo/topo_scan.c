/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topo_scan.c - reads from sysfs, or from a folder that looks like it, what topo needs, and nothing
 * else.
 *
 * The folder may come from anyone. So everything is opened beneath it (openat2(2)), through no
 * link, and read up to a bound.
 */
#include "topo/topo_tree.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <ifaddrs.h>
#include <linux/openat2.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

struct scan {
	int s_root;
	struct topo_tree *s_tree;
	int s_rc; /* the first error that ends the scan: no memory, too many entries */
};

static int topo_scan_open_in(const struct scan *s, const char *path, int flags)
{
	struct open_how how = {.flags = (uint64_t)(flags | O_CLOEXEC),
			       .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};

	return (int)syscall(SYS_openat2, s->s_root, path + 1, &how, sizeof(how));
}

static int open_at(const struct scan *s, const char *dir, const char *name, int flags)
{
	char path[TOPO_PATH_MAX + 256];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return topo_scan_open_in(s, path, flags);
}

/* Leaves out what a tree cannot hold (a name with an odd character). */
static void topo_scan_add(struct scan *s, const char *dir, const char *name, const char *value,
			  bool link)
{
	int rc = topo_tree_add(s->s_tree, dir, name, value, link);

	if (rc && rc != -EINVAL && !s->s_rc)
		s->s_rc = rc;
}

/* Skips a file that is missing, or that the driver cannot answer now (EINVAL). */
static void topo_scan_take_file(struct scan *s, const char *dir, const char *name)
{
	/* A tree that is not sysfs may have a pipe there. */
	int fd = open_at(s, dir, name, O_RDONLY | O_NONBLOCK | O_NOCTTY);
	char text[TOPO_TEXT_MAX + 1];
	ssize_t n;

	if (fd < 0)
		return;
	n = read(fd, text, TOPO_TEXT_MAX);
	close(fd);
	if (n < 0)
		return;
	text[n] = 0;
	topo_scan_add(s, dir, name, text, false);
}

static void take_files(struct scan *s, const char *dir, const char *const *names)
{
	for (; *names; names++)
		topo_scan_take_file(s, dir, *names);
}

/* Adds a link. target, if not NULL, gets the path that the link means; the function then returns
 * false if there is none. */
static bool take_link(struct scan *s, const char *dir, const char *name, char target[TOPO_PATH_MAX])
{
	int fd = open_at(s, dir, name, O_PATH | O_NOFOLLOW);
	char value[TOPO_PATH_MAX];
	size_t had = s->s_tree->tt_n;
	ssize_t n;

	if (fd < 0)
		return false;
	n = readlinkat(fd, "", value, sizeof(value) - 1);
	close(fd);
	if (n <= 0)
		return false;
	value[n] = 0;
	topo_scan_add(s, dir, name, value, true);
	return s->s_tree->tt_n > had &&
	       (!target || topo_tree_target(&s->s_tree->tt_e[had], target));
}

/* Calls fn for each name in the folder that matches pattern. */
static void each(struct scan *s, const char *dir, const char *pattern,
		 void (*fn)(struct scan *s, const char *dir, const char *name))
{
	int fd = topo_scan_open_in(s, dir, O_RDONLY | O_DIRECTORY);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!d) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while (!s->s_rc && (e = readdir(d)))
		if (e->d_name[0] != '.' && !fnmatch(pattern, e->d_name, 0))
			fn(s, dir, e->d_name);
	closedir(d);
}

static void only_link(struct scan *s, const char *dir, const char *name)
{
	take_link(s, dir, name, NULL);
}

static void pci(struct scan *s, const char *dir, const char *name)
{
	static const char *const files[] = {"class",
					    "vendor",
					    "device",
					    "numa_node",
					    "current_link_speed",
					    "current_link_width",
					    "max_link_speed",
					    "max_link_width",
					    NULL};
	char at[TOPO_PATH_MAX];

	if (!take_link(s, dir, name, at))
		return;
	take_files(s, at, files);
	take_link(s, at, "driver", NULL);
}

static void net(struct scan *s, const char *dir, const char *name)
{
	static const char *const files[] = {"operstate", "speed", NULL};
	char at[TOPO_PATH_MAX];

	if (!take_link(s, dir, name, at))
		return;
	take_files(s, at, files);
	each(s, at, "lower_*", only_link);
}

static void topo_scan_port(struct scan *s, const char *dir, const char *name)
{
	static const char *const files[] = {"state", "rate", "link_layer", NULL};
	char at[TOPO_PATH_MAX + 256];

	snprintf(at, sizeof(at), "%s/%s", dir, name);
	if (strlen(at) + 20 >= TOPO_PATH_MAX)
		return;
	take_files(s, at, files);
	strcat(at, "/gid_attrs/ndevs");
	topo_scan_take_file(s, at, "0");
}

static void rdma(struct scan *s, const char *dir, const char *name)
{
	char at[TOPO_PATH_MAX];

	if (!take_link(s, dir, name, at))
		return;
	topo_scan_take_file(s, at, "parent");
	if (strlen(at) + sizeof("/ports") > sizeof(at))
		return;
	strcat(at, "/ports");
	each(s, at, "[0-9]*", topo_scan_port);
}

static void nvme(struct scan *s, const char *dir, const char *name)
{
	static const char *const files[] = {"model", "transport", "address", "state", NULL};
	char at[TOPO_PATH_MAX];

	if (take_link(s, dir, name, at))
		take_files(s, at, files);
}

static void subsystem(struct scan *s, const char *dir, const char *name)
{
	char at[TOPO_PATH_MAX];

	if (take_link(s, dir, name, at))
		each(s, at, "nvme*", only_link);
}

static void block(struct scan *s, const char *dir, const char *name)
{
	static const char *const files[] = {"dev", "size", "hidden", "partition", NULL};
	char at[TOPO_PATH_MAX];

	if (!take_link(s, dir, name, at))
		return;
	take_files(s, at, files);
	if (strlen(at) + sizeof("/slaves") > sizeof(at))
		return;
	strcat(at, "/slaves");
	each(s, at, "*", only_link);
}

static void node(struct scan *s, const char *dir, const char *name)
{
	static const char *const files[] = {"cpulist", "distance", NULL};
	char at[TOPO_PATH_MAX];

	if ((size_t)snprintf(at, sizeof(at), "%s/%s", dir, name) < sizeof(at))
		take_files(s, at, files);
}

/* An address may have a label: eth0:1. */
static bool topo_scan_same_net(const struct ifaddrs *a, const struct ifaddrs *b)
{
	size_t n = strcspn(a->ifa_name, ":");

	return strcspn(b->ifa_name, ":") == n && !memcmp(a->ifa_name, b->ifa_name, n);
}

/* Returns false if the address means nothing elsewhere (link-local), or is no IP address. */
static bool ip_text(const struct ifaddrs *a, char out[INET6_ADDRSTRLEN])
{
	int family = a->ifa_addr ? a->ifa_addr->sa_family : AF_UNSPEC;
	const void *sa = a->ifa_addr;

	if (family == AF_INET)
		return inet_ntop(AF_INET, &((const struct sockaddr_in *)sa)->sin_addr, out,
				 INET6_ADDRSTRLEN);
	if (family != AF_INET6 ||
	    IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)sa)->sin6_addr))
		return false;
	return inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)sa)->sin6_addr, out,
			 INET6_ADDRSTRLEN);
}

/* sysfs does not have the addresses of this machine's interfaces. They get a folder of our own. */
static void topo_scan_addresses(struct scan *s)
{
	char text[TOPO_TEXT_MAX], ip[INET6_ADDRSTRLEN], name[IF_NAMESIZE];
	struct ifaddrs *all = NULL;

	if (getifaddrs(&all))
		return;
	for (struct ifaddrs *a = all; a; a = a->ifa_next) {
		struct ifaddrs *b = all;
		size_t len = 0;

		/* Take all addresses of an interface at the first of them. */
		while (b != a && !topo_scan_same_net(a, b))
			b = b->ifa_next;
		for (b = b == a ? a : NULL; b; b = b->ifa_next)
			if (topo_scan_same_net(a, b) && ip_text(b, ip) &&
			    len + strlen(ip) + 2 < sizeof(text))
				len += (size_t)sprintf(text + len, "%s%s", len ? " " : "", ip);
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(a->ifa_name, ":"), a->ifa_name);
		if (len)
			topo_scan_add(s, "/weft/addresses", name, text, false);
	}
	freeifaddrs(all);
}

int topo_tree_scan(struct topo_tree *t, const char *root, char *err, size_t errlen)
{
	struct scan s = {.s_tree = t, .s_root = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
	struct statfs fs;
	int probe;

	memset(t, 0, sizeof(*t));
	/* If openat2(2) is forbidden, the scan would find nothing, and no message would say why. */
	probe = s.s_root < 0 ? -1 : topo_scan_open_in(&s, "/.", O_PATH);
	if (probe < 0) {
		int e = errno;

		snprintf(err, errlen, "%s: %s", root, strerror(e));
		if (s.s_root >= 0)
			close(s.s_root);
		return -e;
	}
	close(probe);
	each(&s, "/bus/pci/devices", "*", pci);
	each(&s, "/class/net", "*", net);
	each(&s, "/class/infiniband", "*", rdma);
	each(&s, "/class/nvme", "nvme*", nvme);
	each(&s, "/class/nvme-subsystem", "nvme*", subsystem);
	each(&s, "/class/block", "*", block);
	each(&s, "/devices/system/node", "node[0-9]*", node);
	topo_scan_take_file(&s, "/devices/system/cpu", "online");
	each(&s, "/weft/addresses", "*", topo_scan_take_file);
	if (!fstatfs(s.s_root, &fs) && fs.f_type == 0x62656572 /* sysfs */)
		topo_scan_addresses(&s);
	close(s.s_root);
	/* In a tree that was tampered with, two links may mean one device: its files then came
	 * twice. */
	if (!s.s_rc)
		s.s_rc = topo_tree_sort(t, NULL);
	if (s.s_rc == -E2BIG)
		snprintf(err, errlen, "%s: more than %d entries", root, TOPO_ENTRIES_MAX);
	else if (s.s_rc)
		snprintf(err, errlen, "%s: %s", root, strerror(-s.s_rc));
	if (s.s_rc)
		topo_tree_free(t);
	return s.s_rc;
}
