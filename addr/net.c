/* SPDX-License-Identifier: Apache-2.0 */
/* net.c - addresses and interfaces, by rtnetlink (libmnl). See addr.h. */
#include "addr/addr.h"
#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/if_addr.h>
#include <linux/rtnetlink.h>
#include <net/if_arp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

/* Who made an address (IFA_PROTO): 0 to 3 are the kernel's own. */
#define ADDR_PROTO 0x77
/* How often a list is asked for that changes are made in, and the most interfaces that one address
 * is taken from in one call. */
#define LIST_TRIES 10
#define MARKS	   16
#define WAIT_MS	   2000 /* for an answer */

static struct mnl_socket *nl;
static unsigned nl_seq;

int addr_net_connect(struct mnl_socket **out, int bus, int ms)
{
	const struct timeval most = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
	struct mnl_socket *to = mnl_socket_open2(bus, SOCK_CLOEXEC);
	int err;

	/* The kernel answers within the call. A lost answer must not stop this thread for ever. */
	if (to && !mnl_socket_bind(to, 0, MNL_SOCKET_AUTOPID) &&
	    !setsockopt(mnl_socket_get_fd(to), SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most)) {
		*out = to;
		return 0;
	}
	err = errno;
	if (to)
		mnl_socket_close(to);
	return -err;
}

int addr_net_open(void)
{
	return addr_net_connect(&nl, NETLINK_ROUTE, WAIT_MS);
}

int addr_net_talk(struct mnl_socket *to, struct nlmsghdr *q,
		  void (*fn)(void *arg, const struct nlmsghdr *h), void *arg)
{
	static char buf[32768] __attribute__((aligned(8)));
	bool torn = false;

	q->nlmsg_seq = ++nl_seq;
	if (mnl_socket_sendto(to, q, q->nlmsg_len) < 0)
		return -errno;
	for (;;) {
		ssize_t n = mnl_socket_recvfrom(to, buf, sizeof buf);
		const struct nlmsghdr *h = (const struct nlmsghdr *)buf;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			/* SO_RCVTIMEO. -EAGAIN would be a list that is to be asked for again. */
			return errno == EAGAIN ? -ETIMEDOUT : -errno;
		for (int left = (int)n; mnl_nlmsg_ok(h, left); h = mnl_nlmsg_next(h, &left)) {
			const int *code = mnl_nlmsg_get_payload(h);

			/* An answer to an earlier question, which was given up. */
			if (h->nlmsg_seq != nl_seq)
				continue;
			if (h->nlmsg_flags & NLM_F_DUMP_INTR)
				torn = true;
			if (h->nlmsg_type == NLMSG_ERROR)
				return *code;
			if (h->nlmsg_type == NLMSG_DONE)
				return *code < 0 ? *code : torn ? -EAGAIN : 0;
			if (fn)
				fn(arg, h);
		}
	}
}

static size_t ip_size(const struct addr_ip *ip)
{
	return ip->ip_family == AF_INET ? 4 : 16;
}

static int change(const struct addr_place *pl, uint16_t type, uint16_t flags)
{
	char buf[256];
	struct nlmsghdr *h = mnl_nlmsg_put_header(buf);
	struct ifaddrmsg *a;

	h->nlmsg_type = type;
	h->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | flags;
	a = mnl_nlmsg_put_extra_header(h, sizeof *a);
	a->ifa_family = pl->pl_ip.ip_family;
	a->ifa_prefixlen = pl->pl_prefix;
	a->ifa_scope = RT_SCOPE_UNIVERSE;
	a->ifa_index = pl->pl_index;
	mnl_attr_put(h, IFA_LOCAL, ip_size(&pl->pl_ip), pl->pl_ip.ip_bytes);
	mnl_attr_put(h, IFA_ADDRESS, ip_size(&pl->pl_ip), pl->pl_ip.ip_bytes);
	if (type == RTM_NEWADDR) {
		mnl_attr_put_u8(h, IFA_PROTO, ADDR_PROTO);
		if (pl->pl_ip.ip_family == AF_INET6) {
			/* Not the source of what this node sends by itself; no waiting for a
			 * check that the former node might even answer. */
			struct ifa_cacheinfo ci = {.ifa_prefered = 0, .ifa_valid = UINT32_MAX};

			mnl_attr_put_u32(h, IFA_FLAGS, IFA_F_NODAD);
			mnl_attr_put(h, IFA_CACHEINFO, sizeof ci, &ci);
		}
	}
	return addr_net_talk(nl, h, NULL, NULL);
}

struct listing {
	addr_net_fn l_fn;
	void *l_arg;
};

static void listed(void *arg, const struct nlmsghdr *h)
{
	const struct listing *l = arg;
	const struct ifaddrmsg *a = mnl_nlmsg_get_payload(h);
	const struct nlattr *attr, *local = NULL, *address = NULL;
	struct addr_place at = {.pl_prefix = a->ifa_prefixlen, .pl_index = a->ifa_index};
	bool ours = false;

	if (h->nlmsg_type != RTM_NEWADDR || (a->ifa_family != AF_INET && a->ifa_family != AF_INET6))
		return;
	at.pl_ip.ip_family = a->ifa_family;
	mnl_attr_for_each(attr, h, sizeof *a)
	{
		switch (mnl_attr_get_type(attr)) {
		case IFA_LOCAL:
			local = attr;
			break;
		case IFA_ADDRESS:
			address = attr;
			break;
		case IFA_PROTO:
			ours = mnl_attr_get_u8(attr) == ADDR_PROTO;
			break;
		}
	}
	if (!local)
		local = address;
	if (!local || mnl_attr_get_payload_len(local) != ip_size(&at.pl_ip))
		return;
	memcpy(at.pl_ip.ip_bytes, mnl_attr_get_payload(local), ip_size(&at.pl_ip));
	if (if_indextoname(a->ifa_index, at.pl_ifname))
		l->l_fn(l->l_arg, &at, ours);
}

int addr_net_list(addr_net_fn fn, void *arg)
{
	struct listing l = {fn, arg};
	int rc = -EAGAIN;

	for (int tries = 0; rc == -EAGAIN && tries < LIST_TRIES; tries++) {
		char buf[128];
		struct nlmsghdr *h = mnl_nlmsg_put_header(buf);
		struct rtgenmsg *g;

		h->nlmsg_type = RTM_GETADDR;
		h->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
		g = mnl_nlmsg_put_extra_header(h, sizeof *g);
		g->rtgen_family = AF_UNSPEC;
		rc = addr_net_talk(nl, h, listed, &l);
	}
	return rc;
}

struct marks {
	const struct addr_ip *k_ip;
	struct addr_place k_at[MARKS];
	unsigned k_n;
};

static void mark(void *arg, const struct addr_place *at, bool ours)
{
	struct marks *k = arg;

	if (ours && k->k_n < MARKS && addr_ip_same(&at->pl_ip, k->k_ip))
		k->k_at[k->k_n++] = *at;
}

int addr_net_remove(const struct addr_ip *ip)
{
	struct marks k = {.k_ip = ip};
	int rc = addr_net_list(mark, &k);

	/* By index: the interface may have another name by now. */
	for (unsigned i = 0; i < k.k_n; i++) {
		int one = change(&k.k_at[i], RTM_DELADDR, 0);

		/* It went meanwhile, or was listed twice. */
		if (one < 0 && one != -EADDRNOTAVAIL && one != -ENODEV && !rc)
			rc = one;
	}
	return rc;
}

struct marked {
	const struct addr_place *m_pl;
	bool m_yes;
};

static void is_marked(void *arg, const struct addr_place *at, bool ours)
{
	struct marked *m = arg;

	if (ours && addr_ip_same(&at->pl_ip, &m->m_pl->pl_ip))
		m->m_yes = true;
}

int addr_net_add(const struct addr_place *pl)
{
	struct marked m = {pl, false};
	struct addr_place at = *pl;
	int rc;

	at.pl_index = if_nametoindex(pl->pl_ifname);
	if (!at.pl_index)
		return -ENODEV;
	rc = change(&at, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL);
	if (rc < 0)
		return rc;
	/* An address without our mark would stay for ever after a crash. */
	rc = addr_net_list(is_marked, &m);
	if (!rc && !m.m_yes)
		rc = -EOPNOTSUPP;
	if (rc < 0)
		change(&at, RTM_DELADDR, 0);
	return rc;
}

int addr_net_mac(const char *ifname, unsigned *index, uint8_t mac[6])
{
	struct ifreq ifr = {0};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int rc = fd < 0 ? -errno : 0;

	*index = if_nametoindex(ifname);
	strncpy(ifr.ifr_name, ifname, sizeof ifr.ifr_name - 1);
	if (!rc && (!*index || ioctl(fd, SIOCGIFHWADDR, &ifr) < 0))
		rc = -ENODEV;
	if (!rc && ifr.ifr_hwaddr.sa_family != ARPHRD_ETHER)
		rc = -EOPNOTSUPP;
	if (!rc)
		memcpy(mac, ifr.ifr_hwaddr.sa_data, 6);
	if (fd >= 0)
		close(fd);
	return rc;
}
