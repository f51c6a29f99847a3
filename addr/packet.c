/* SPDX-License-Identifier: Apache-2.0 */
/* packet.c - announcements and tickles: packets that no socket of the kernel sends. See addr.h. */
#include "addr/addr.h"
#include <arpa/inet.h>
#include <errno.h>
#include <net/ethernet.h>
#include <net/if_arp.h>
#include <netinet/icmp6.h>
#include <netinet/if_ether.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/tcp.h>
#include <netpacket/packet.h>
#include <string.h>
#include <sys/socket.h>

/* None of them receives: protocol 0 and IPPROTO_RAW take nothing, the filter of ICMPv6 blocks. */
static int arp_fd = -1, na_fd = -1, raw4_fd = -1, raw6_fd = -1;

int addr_packet_open(void)
{
	const int hops = 255, yes = 1;
	struct icmp6_filter none;

	arp_fd = socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	raw4_fd = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_RAW);
	if (arp_fd < 0 || raw4_fd < 0)
		return -errno;
	/* A node without IPv6 has no such sockets: its IPv6 addresses cannot be held anyway. */
	na_fd = socket(AF_INET6, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_ICMPV6);
	raw6_fd = socket(AF_INET6, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_RAW);
	if (na_fd < 0 || raw6_fd < 0)
		return errno == EAFNOSUPPORT ? 0 : -errno;
	ICMP6_FILTER_SETBLOCKALL(&none);
	if (setsockopt(na_fd, IPPROTO_ICMPV6, ICMP6_FILTER, &none, sizeof none) < 0 ||
	    setsockopt(na_fd, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, &hops, sizeof hops) < 0 ||
	    setsockopt(raw6_fd, IPPROTO_IPV6, IPV6_HDRINCL, &yes, sizeof yes) < 0)
		return -errno;
	return 0;
}

static int announce_arp(const struct addr_place *pl, unsigned index, const uint8_t mac[6], int op)
{
	struct ether_arp arp = {.ea_hdr = {.ar_hrd = htons(ARPHRD_ETHER),
					   .ar_pro = htons(ETHERTYPE_IP),
					   .ar_hln = 6,
					   .ar_pln = 4,
					   .ar_op = htons((uint16_t)op)}};
	struct sockaddr_ll to = {.sll_family = AF_PACKET,
				 .sll_protocol = htons(ETHERTYPE_ARP),
				 .sll_ifindex = (int)index,
				 .sll_halen = 6};

	memset(to.sll_addr, 0xff, 6);
	memcpy(arp.arp_sha, mac, 6);
	memcpy(arp.arp_spa, pl->pl_ip.ip_bytes, 4);
	memcpy(arp.arp_tpa, pl->pl_ip.ip_bytes, 4);
	if (op == ARPOP_REPLY)
		memcpy(arp.arp_tha, mac, 6);
	if (sendto(arp_fd, &arp, sizeof arp, 0, (struct sockaddr *)&to, sizeof to) < 0)
		return -errno;
	return 0;
}

/* RFC 4861 section 7.2.6: unsolicited, override, to all nodes of the link. */
static int announce_na(const struct addr_place *pl, unsigned index, const uint8_t mac[6])
{
	struct {
		struct nd_neighbor_advert na;
		struct nd_opt_hdr opt;
		uint8_t mac[6];
	} p = {.na = {.nd_na_hdr = {.icmp6_type = ND_NEIGHBOR_ADVERT}},
	       .opt = {.nd_opt_type = ND_OPT_TARGET_LINKADDR, .nd_opt_len = 1}};
	struct sockaddr_in6 to = {.sin6_family = AF_INET6, .sin6_scope_id = index};
	struct in6_pktinfo *info;
	union {
		struct cmsghdr hdr;
		char buf[CMSG_SPACE(sizeof *info)];
	} control = {0};
	struct iovec iov = {&p, sizeof p};
	struct msghdr msg = {.msg_name = &to,
			     .msg_namelen = sizeof to,
			     .msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = &control,
			     .msg_controllen = sizeof control.buf};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	if (inet_pton(AF_INET6, "ff02::1", &to.sin6_addr) != 1)
		return -EINVAL;
	p.na.nd_na_flags_reserved = ND_NA_FLAG_OVERRIDE;
	memcpy(&p.na.nd_na_target, pl->pl_ip.ip_bytes, 16);
	memcpy(p.mac, mac, 6);
	c->cmsg_level = IPPROTO_IPV6;
	c->cmsg_type = IPV6_PKTINFO;
	c->cmsg_len = CMSG_LEN(sizeof *info);
	info = (struct in6_pktinfo *)CMSG_DATA(c);
	memcpy(&info->ipi6_addr, pl->pl_ip.ip_bytes, 16);
	info->ipi6_ifindex = index;
	return sendmsg(na_fd, &msg, 0) < 0 ? -errno : 0;
}

int addr_announce(const struct addr_place *pl)
{
	uint8_t mac[6];
	unsigned index;
	int rc = addr_net_mac(pl->pl_ifname, &index, mac);

	if (rc < 0)
		return rc;
	if (pl->pl_ip.ip_family == AF_INET6)
		return announce_na(pl, index, mac);
	rc = announce_arp(pl, index, mac, ARPOP_REQUEST);
	/* Some neighbours learn from requests only, others from replies only. */
	return rc < 0 ? rc : announce_arp(pl, index, mac, ARPOP_REPLY);
}

/* The checksum of RFC 1071 over an even number of bytes. */
static uint32_t sum(uint32_t s, const void *data, size_t len)
{
	const uint8_t *p = data;

	for (size_t i = 0; i + 1 < len; i += 2)
		s += (uint32_t)p[i] << 8 | p[i + 1];
	return s;
}

static uint16_t fold(uint32_t s)
{
	while (s >> 16)
		s = (s & 0xffff) + (s >> 16);
	return htons((uint16_t)~s);
}

/* Where a packet goes, and the header in front of it. */
struct head {
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} hd_to;
	socklen_t hd_tolen;
	uint8_t hd_bytes[sizeof(struct ip6_hdr)];
	size_t hd_len;
};

static struct head head_v4(const struct addr_row *row, size_t payload)
{
	struct head h = {.hd_to.v4 = {.sin_family = AF_INET},
			 .hd_tolen = sizeof h.hd_to.v4,
			 .hd_len = sizeof(struct iphdr)};
	/* The kernel fills in the identification and the checksum. */
	struct iphdr ip = {.version = 4,
			   .ihl = 5,
			   .tot_len = htons((uint16_t)(sizeof ip + payload)),
			   .ttl = 64,
			   .protocol = IPPROTO_TCP};

	memcpy(&ip.saddr, row->r_local.ip_bytes, 4);
	memcpy(&ip.daddr, row->r_peer.ip_bytes, 4);
	h.hd_to.v4.sin_addr.s_addr = ip.daddr;
	memcpy(h.hd_bytes, &ip, sizeof ip);
	return h;
}

static struct head head_v6(const struct addr_row *row, size_t payload)
{
	struct head h = {.hd_to.v6 = {.sin6_family = AF_INET6},
			 .hd_tolen = sizeof h.hd_to.v6,
			 .hd_len = sizeof(struct ip6_hdr)};
	struct ip6_hdr ip = {0};

	ip.ip6_flow = htonl(6u << 28);
	ip.ip6_plen = htons((uint16_t)payload);
	ip.ip6_nxt = IPPROTO_TCP;
	ip.ip6_hlim = 64;
	memcpy(&ip.ip6_src, row->r_local.ip_bytes, 16);
	memcpy(&ip.ip6_dst, row->r_peer.ip_bytes, 16);
	h.hd_to.v6.sin6_addr = ip.ip6_dst;
	memcpy(h.hd_bytes, &ip, sizeof ip);
	return h;
}

int addr_tickle_send(const struct addr_row *row, uint32_t seq)
{
	const bool v4 = row->r_local.ip_family == AF_INET;
	struct tcphdr tcp = {.source = htons(row->r_lport),
			     .dest = htons(row->r_pport),
			     .seq = htonl(seq),
			     .ack_seq = htonl(~seq),
			     .doff = sizeof tcp / 4,
			     .ack = 1,
			     .window = htons(1)};
	struct head h = v4 ? head_v4(row, sizeof tcp) : head_v6(row, sizeof tcp);
	struct iovec iov[] = {{h.hd_bytes, h.hd_len}, {&tcp, sizeof tcp}};
	struct msghdr msg = {
		.msg_name = &h.hd_to, .msg_namelen = h.hd_tolen, .msg_iov = iov, .msg_iovlen = 2};
	uint32_t s = IPPROTO_TCP + sizeof tcp;

	/* The pseudo header of either family: the bytes behind an IPv4 address are 0. */
	s = sum(s, row->r_local.ip_bytes, sizeof row->r_local.ip_bytes);
	s = sum(s, row->r_peer.ip_bytes, sizeof row->r_peer.ip_bytes);
	tcp.check = fold(sum(s, &tcp, sizeof tcp));
	return sendmsg(v4 ? raw4_fd : raw6_fd, &msg, 0) < 0 ? -errno : 0;
}
