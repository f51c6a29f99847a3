/* SPDX-License-Identifier: Apache-2.0 */
/*
 * addr.h - weft-addr: holds the service addresses of a metadata server that moves between nodes.
 *
 * One process, one thread, one poll(). A holder (weft-mds) connects by a Unix socket and asks in
 * small messages (message.c). An address is a place (struct addr_place): the configuration says
 * which there are and on which interface; weft-addr touches no other.
 *
 * A place is in one of these states:
 *   free     not on the interface
 *   quiet    on the interface, new connections are dropped: no peer is refused
 *   open     on the interface, new connections come through
 *   waiting  quiet, and the holder is gone; at pl_until the place becomes free
 *   lapsed   taken from the interface since the holder did not say in time that it is alive
 *   stuck    should be free, but the kernel did not take it away; it is tried until it is gone
 *
 * An address that two nodes have takes clients to the wrong one. So what fails when an address
 * should come is told to the holder; what fails when it should go is never given up.
 *
 * Caveats. The kernel marks each address with who made it (IFA_PROTO, Linux 5.18): that is how the
 * next start knows what a former run left; an older kernel cannot do it, and HOLD fails there.
 * What this node closed before stays without CONFIG_INET_DIAG_DESTROY, and in part on kernels
 * before 6.11, 6.6.84 and 6.1.132 (addr_closed_open). Only Ethernet interfaces get announcements.
 */
#ifndef ADDR_ADDR_H
#define ADDR_ADDR_H
#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ADDR_PLACES  64		 /* most addresses in the configuration */
#define ADDR_PORTS   8		 /* most ports of one HOLD */
#define ADDR_MSG_MAX (64u << 10) /* largest message */
#define ADDR_ROWS    700	 /* most rows of one TICKLE */
#define ADDR_TEXT    INET6_ADDRSTRLEN

/* An IPv4 or IPv6 address: family AF_INET has 4 bytes. */
struct addr_ip {
	uint8_t ip_family;
	uint8_t ip_bytes[16];
};
/* A TCP connection of a former life. */
struct addr_row {
	struct addr_ip r_local, r_peer;
	uint16_t r_lport, r_pport;
};

struct addr_holder;
struct addr_place {
	struct addr_ip pl_ip;
	uint8_t pl_prefix;
	char pl_ifname[IFNAMSIZ];
	unsigned pl_index; /* of the interface, in what addr_net_list says */
	struct addr_holder *pl_holder;
	uint16_t pl_ports[ADDR_PORTS];
	unsigned pl_nports;
	bool pl_on;	/* on the interface, by us or not */
	bool pl_theirs; /* the node had it before: never taken away */
	bool pl_quiet;
	bool pl_lapsed;
	bool pl_keep;	  /* pl_alive ends with the holder's connection: then only -w counts */
	bool pl_missing;  /* cannot be on the interface now; it is tried again and again */
	int64_t pl_until; /* milliseconds of CLOCK_BOOTTIME; 0: no end */
	int64_t pl_alive; /* the same; 0: the holder need not say that it is alive */
	int64_t pl_next;  /* the next announcement */
	uint64_t pl_told; /* announcements that left */
};

/* ---- message.c: what a holder says, and the configuration. No state, no system call. ---- */

enum addr_verb { ADDR_HOLD, ADDR_LISTENING, ADDR_LIVE, ADDR_TICKLE, ADDR_RELEASE, ADDR_STATUS };
struct addr_msg {
	enum addr_verb m_verb;
	uint16_t m_ports[ADDR_PORTS];
	unsigned m_nports;
	struct addr_ip m_ips[ADDR_PLACES];
	unsigned m_nips;
	int64_t m_alive_ms;
	bool m_keep;
	struct addr_row m_rows[ADDR_ROWS];
	unsigned m_nrows;
};
/* text: len bytes, changed in place, and text[len] may be written. 0, or -EINVAL with one line in
 * err. */
int addr_msg_parse(char *text, size_t len, struct addr_msg *out, char *err, size_t errlen);
/* The whole text of a configuration, changed in place. Fills at most ADDR_PLACES places; returns
 * how many, or -EINVAL with one line in err. */
int addr_conf_parse(char *text, struct addr_place *out, char *err, size_t errlen);
bool addr_ip_parse(const char *text, struct addr_ip *out);
bool addr_ip_same(const struct addr_ip *a, const struct addr_ip *b);
/* buf: ADDR_TEXT bytes. Returns buf. */
const char *addr_ip_text(const struct addr_ip *ip, char *buf);

/* ---- net.c: addresses and interfaces, by rtnetlink. ---- */

struct mnl_socket;
struct nlmsghdr;
int addr_net_open(void);
/* For all of netlink (bus: NETLINK_ROUTE, ...): a socket, on which an answer takes at most ms
 * milliseconds. */
int addr_net_connect(struct mnl_socket **out, int bus, int ms);
/* Sends the question and takes all answers; fn may be NULL and must not ask. -EAGAIN: what the
 * kernel listed changed meanwhile, so some may be missing. -ETIMEDOUT: an answer did not come. */
int addr_net_talk(struct mnl_socket *to, struct nlmsghdr *q,
		  void (*fn)(void *arg, const struct nlmsghdr *h), void *arg);
/* Puts the address on its interface, marked as ours. -EEXIST: it is there already; -ENODEV: there
 * is no such interface; -EOPNOTSUPP: this kernel does not mark addresses. */
int addr_net_add(const struct addr_place *pl);
/* Takes the address from each interface where a weft-addr has put it, whatever the name of that
 * interface is by now. 0: it is on none. */
int addr_net_remove(const struct addr_ip *ip);
/* One address that the node has. ours: a weft-addr made it. fn may see an address twice, and must
 * not call this file. */
typedef void (*addr_net_fn)(void *arg, const struct addr_place *at, bool ours);
int addr_net_list(addr_net_fn fn, void *arg);
/* The Ethernet address of an interface: 0, -ENODEV, or -EOPNOTSUPP where it is no Ethernet. */
int addr_net_mac(const char *ifname, unsigned *index, uint8_t mac[6]);

/* ---- packet.c: what is sent by hand. ---- */

int addr_packet_open(void);
/* Tells all neighbours that the address is here: ARP request and reply, or a neighbour
 * advertisement. */
int addr_announce(const struct addr_place *pl);
/* Sends one ACK with a sequence number that is wrong (seq is random): the peer answers with an ACK
 * of its own, and the kernel here, which has no such connection, resets it. */
int addr_tickle_send(const struct addr_row *row, uint32_t seq);

/* ---- filter.c: the table of nftables that drops new connections. ---- */

int addr_filter_open(void);
/* Makes the table what the places say: in one transaction, so that no connection slips through. */
int addr_filter_set(const struct addr_place *places, unsigned n);

/* ---- closed.c: what this kernel still has of connections that ended, by sock_diag. ---- */

/* Tries on the loopback interface whether this kernel ends orphans, the sockets whose FIN has no
 * ACK yet. Linux before 6.11, 6.6.84 and 6.1.132 says that it did, and keeps them for ever, as it
 * takes their timer: there they are left alone, and end in 100 s by themselves. Linux mended it
 * with "tcp: fix forever orphan socket caused by tcp_abort". Takes at most 1 s, mostly 1 ms.
 * 0; -EOPNOTSUPP: it does not; or another errno: not known, so they are left alone too. */
int addr_closed_open(void);
/* Ends the connections to this address and these ports that no program has any more. A process that
 * ended when its address was elsewhere leaves them for minutes: the kernel sends their FIN again
 * and again, and nobody hears it. A peer that has the same port again, at the former node, would
 * answer the tickle, and one of these would answer that, with an ACK in place of a reset.
 * left: milliseconds that this may take, and what is left of them then; one list of the kernel is
 * always taken to its end.
 * Returns how many ended, or a negative errno: some may be left. -EOPNOTSUPP: this kernel does not
 * end them, or not all; -ETIME, -ETIMEDOUT: it took too long, and the next one would too. */
int addr_closed_end(const struct addr_ip *ip, const uint16_t *ports, unsigned nports,
		    int64_t *left);

/* ---- tickle.c: the rows that are to be tickled. ---- */

/* Takes as many rows as there is room for; returns how many. */
unsigned addr_tickle_add(const struct addr_row *rows, unsigned n, int64_t now);
/* Sends what is due. Returns milliseconds until there is more to do, or -1. */
int addr_tickle_run(int64_t now);
/* Forgets the rows of that local address. */
void addr_tickle_drop(const struct addr_ip *local);
unsigned addr_tickle_count(void);
#endif
