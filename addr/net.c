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
#include <unistd.h>

/* Who made an address (IFA_PROTO): 0 to 3 are the kernel's own. */
#define ADDR_PROTO 0x77

static struct mnl_socket *nl;
static unsigned nl_seq;

int addr_net_open(void)
{
	nl = mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC);
	if (!nl || mnl_socket_bind(nl, 0, MNL_SOCKET_AUTOPID) < 0)
		return -errno;
	return 0;
}

/* Sends and takes all answers; cb may be NULL. The kernel answers within the call. */
static int talk(struct nlmsghdr *h, mnl_cb_t cb, void *arg)
{
	static char buf[32768];
	int rc;

	h->nlmsg_seq = ++nl_seq;
	if (mnl_socket_sendto(nl, h, h->nlmsg_len) < 0)
		return -errno;
	do {
		ssize_t n = mnl_socket_recvfrom(nl, buf, sizeof buf);

		if (n < 0 && errno == EINTR)
			return -EINTR;
		if (n < 0)
			return -errno;
		rc = mnl_cb_run(buf, (size_t)n, nl_seq, mnl_socket_get_portid(nl), cb, arg);
		/* An answer to an earlier question, which a signal cut short: read on. */
		if (rc < 0 && errno == EPROTO)
			rc = MNL_CB_OK;
	} while (rc > MNL_CB_STOP);
	return rc < 0 ? -errno : 0;
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
	unsigned index = if_nametoindex(pl->pl_ifname);

	if (!index)
		return -ENODEV;
	h->nlmsg_type = type;
	h->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | flags;
	a = mnl_nlmsg_put_extra_header(h, sizeof *a);
	a->ifa_family = pl->pl_ip.ip_family;
	a->ifa_prefixlen = pl->pl_prefix;
	a->ifa_scope = RT_SCOPE_UNIVERSE;
	a->ifa_index = index;
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
	return talk(h, NULL, NULL);
}

int addr_net_remove(const struct addr_place *pl)
{
	return change(pl, RTM_DELADDR, 0);
}

struct listing {
	addr_net_fn l_fn;
	void *l_arg;
};

static int listed(const struct nlmsghdr *h, void *arg)
{
	const struct listing *l = arg;
	const struct ifaddrmsg *a = mnl_nlmsg_get_payload(h);
	const struct nlattr *attr, *local = NULL, *address = NULL;
	struct addr_place at = {.pl_prefix = a->ifa_prefixlen};
	bool ours = false;

	if (h->nlmsg_type != RTM_NEWADDR || (a->ifa_family != AF_INET && a->ifa_family != AF_INET6))
		return MNL_CB_OK;
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
		return MNL_CB_OK;
	memcpy(at.pl_ip.ip_bytes, mnl_attr_get_payload(local), ip_size(&at.pl_ip));
	if (if_indextoname(a->ifa_index, at.pl_ifname))
		l->l_fn(l->l_arg, &at, ours);
	return MNL_CB_OK;
}

int addr_net_list(addr_net_fn fn, void *arg)
{
	char buf[128];
	struct nlmsghdr *h = mnl_nlmsg_put_header(buf);
	struct rtgenmsg *g;
	struct listing l = {fn, arg};

	h->nlmsg_type = RTM_GETADDR;
	h->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
	g = mnl_nlmsg_put_extra_header(h, sizeof *g);
	g->rtgen_family = AF_UNSPEC;
	return talk(h, listed, &l);
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
	int rc = change(pl, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL);

	if (rc < 0)
		return rc;
	/* An address without our mark would stay for ever after a crash. */
	rc = addr_net_list(is_marked, &m);
	if (!rc && !m.m_yes)
		rc = -EOPNOTSUPP;
	if (rc < 0)
		addr_net_remove(pl);
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
