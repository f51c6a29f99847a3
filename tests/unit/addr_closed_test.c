/* SPDX-License-Identifier: Apache-2.0 */
/*
 * addr_closed_test.c - which connections weft-addr has the kernel end, on kernels that do it and on
 * those that do not. The answers of sock_diag are played here: closed.c alone is the real one.
 */
#include "addr/addr.h"
#include "tests/unit/unit.h"
#include <arpa/inet.h>
#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/inet_diag.h>
#include <linux/sock_diag.h>
#include <netinet/tcp.h>
#include <string.h>

#define ADDRESS "192.0.2.10"
#define PORT	2049
#define MANY	5000 /* more than one list has room for */
#define LEFT_MS 60000

/* ---- the kernel ---- */

static struct sock {
	struct inet_diag_msg s_msg;
	bool s_gone, s_asked;
} socks[MANY];
static unsigned nsocks, lists, destroys, connects;
/* Old: it says that it ended an orphan, and keeps it. Stays: TIME_WAIT. Lies: of all. */
static bool old, small_stays, lies, endless, mute;
static bool orphan_gone;
static uint32_t cookies = 1;

int addr_net_connect(struct mnl_socket **out, int bus, int ms)
{
	ck_assert_int_eq(bus, NETLINK_SOCK_DIAG);
	ck_assert_int_gt(ms, 0);
	ck_assert_int_le(ms, 1000);
	connects++;
	*out = mnl_socket_open2(bus, SOCK_CLOEXEC);
	return *out ? 0 : -errno;
}

static void tell(void (*fn)(void *arg, const struct nlmsghdr *h), void *arg,
		 const struct inet_diag_msg *m)
{
	char buf[256];
	struct nlmsghdr *h = mnl_nlmsg_put_header(buf);

	h->nlmsg_type = SOCK_DIAG_BY_FAMILY;
	memcpy(mnl_nlmsg_put_extra_header(h, sizeof *m), m, sizeof *m);
	fn(arg, h);
}

static int list(const struct inet_diag_req_v2 *req, void (*fn)(void *arg, const struct nlmsghdr *h),
		void *arg)
{
	lists++;
	for (unsigned i = 0; i < nsocks; i++) {
		const struct inet_diag_msg *m = &socks[i].s_msg;

		if (endless)
			socks[i].s_msg.id.idiag_cookie[0] = ++cookies;
		if ((endless || !socks[i].s_gone) && req->idiag_states & 1u << m->idiag_state &&
		    (!req->id.idiag_sport || req->id.idiag_sport == m->id.idiag_sport))
			tell(fn, arg, m);
	}
	return 0;
}

static int destroy(const struct inet_diag_req_v2 *req)
{
	unsigned i = 0;

	destroys++;
	while (i < nsocks && memcmp(&socks[i].s_msg.id, &req->id, sizeof req->id) != 0)
		i++;
	ck_assert_uint_lt(i, nsocks);
	ck_assert_uint_eq(socks[i].s_msg.idiag_inode, 0);
	socks[i].s_asked = true;
	if (socks[i].s_msg.idiag_timer == 3) {
		if (small_stays)
			return -EOPNOTSUPP;
	} else if (old) {
		return 0;
	}
	socks[i].s_gone = !lies;
	return 0;
}

/* The connection that closed.c makes to try the kernel. */
static int trial(uint16_t type, const struct inet_diag_req_v2 *req,
		 void (*fn)(void *arg, const struct nlmsghdr *h), void *arg)
{
	struct inet_diag_msg m = {.idiag_family = AF_INET, .idiag_state = TCP_FIN_WAIT1};

	ck_assert_uint_eq(req->id.idiag_src[0], htonl(INADDR_LOOPBACK));
	ck_assert(req->id.idiag_cookie[0] || req->id.idiag_cookie[1]);
	if (orphan_gone)
		return -ENOENT;
	if (type == SOCK_DESTROY) {
		orphan_gone = !old;
		return 0;
	}
	m.id = req->id;
	tell(fn, arg, &m);
	return 0;
}

int addr_net_talk(struct mnl_socket *to, struct nlmsghdr *q,
		  void (*fn)(void *arg, const struct nlmsghdr *h), void *arg)
{
	const struct inet_diag_req_v2 *req = mnl_nlmsg_get_payload(q);

	ck_assert_ptr_nonnull(to);
	if (mute)
		return -ETIMEDOUT;
	if ((q->nlmsg_flags & NLM_F_DUMP) == NLM_F_DUMP)
		return list(req, fn, arg);
	if (req->id.idiag_src[0] == htonl(INADDR_LOOPBACK))
		return trial(q->nlmsg_type, req, fn, arg);
	ck_assert_uint_eq(q->nlmsg_type, SOCK_DESTROY);
	return destroy(req);
}

/* ---- what is there ---- */

static struct sock *make(int state, uint16_t port)
{
	struct sock *s = &socks[nsocks++];

	*s = (struct sock){.s_msg = {.idiag_family = AF_INET,
				     .idiag_state = (uint8_t)state,
				     .idiag_timer = state == TCP_TIME_WAIT ? 3 : 1,
				     .id = {.idiag_sport = htons(port),
					    .idiag_dport = htons((uint16_t)nsocks),
					    .idiag_cookie = {++cookies}}}};
	inet_pton(AF_INET, ADDRESS, s->s_msg.id.idiag_src);
	return s;
}

static int end(int64_t *left)
{
	const uint16_t ports[] = {PORT, 20049};
	struct addr_ip ip;

	ck_assert(addr_ip_parse(ADDRESS, &ip));
	return addr_closed_end(&ip, ports, 2, left);
}

START_TEST(all_that_no_program_has_ends_and_nothing_else)
{
	int64_t left = LEFT_MS;
	struct sock *half, *other, *theirs;

	ck_assert_int_eq(addr_closed_open(), 0);
	make(TCP_FIN_WAIT1, PORT);
	make(TCP_FIN_WAIT2, PORT);
	make(TCP_CLOSING, 20049);
	make(TCP_LAST_ACK, PORT);
	make(TCP_TIME_WAIT, PORT);
	half = make(TCP_FIN_WAIT2, PORT);
	half->s_msg.idiag_inode = 77;
	other = make(TCP_TIME_WAIT, 22);
	theirs = make(TCP_TIME_WAIT, PORT);
	theirs->s_msg.id.idiag_src[0]++;
	ck_assert_int_eq(end(&left), 5);
	ck_assert(!half->s_asked && !other->s_asked && !theirs->s_asked);
	ck_assert_uint_eq(lists, 1);
	ck_assert_int_le(left, LEFT_MS);
}
END_TEST

START_TEST(a_kernel_that_keeps_orphans_is_asked_for_none)
{
	int64_t left = LEFT_MS;
	struct sock *small;

	old = true;
	ck_assert_int_eq(addr_closed_open(), -EOPNOTSUPP);
	make(TCP_FIN_WAIT1, PORT);
	make(TCP_FIN_WAIT2, PORT);
	make(TCP_CLOSING, PORT);
	make(TCP_LAST_ACK, PORT);
	small = make(TCP_TIME_WAIT, PORT);
	ck_assert_int_eq(end(&left), -EOPNOTSUPP);
	for (unsigned i = 0; i < nsocks; i++)
		ck_assert(socks[i].s_asked == (&socks[i] == small));
	/* Without one of them there is nothing to say. */
	nsocks = 0;
	make(TCP_TIME_WAIT, PORT);
	ck_assert_int_eq(end(&left), 1);
}
END_TEST

START_TEST(what_was_not_tried_is_left_alone)
{
	int64_t left = LEFT_MS;

	make(TCP_FIN_WAIT1, PORT);
	ck_assert_int_eq(end(&left), -EOPNOTSUPP);
	/* There is no answer: the kernel may be an old one. */
	mute = true;
	ck_assert_int_eq(addr_closed_open(), -ETIMEDOUT);
	mute = false;
	ck_assert_int_eq(end(&left), -EOPNOTSUPP);
	ck_assert_uint_eq(destroys, 0);
}
END_TEST

START_TEST(one_that_stays_does_not_keep_the_others)
{
	int64_t left = LEFT_MS;

	small_stays = true;
	ck_assert_int_eq(addr_closed_open(), 0);
	make(TCP_TIME_WAIT, PORT);
	make(TCP_TIME_WAIT, PORT);
	make(TCP_FIN_WAIT1, PORT);
	make(TCP_TIME_WAIT, 20049);
	make(TCP_FIN_WAIT1, 20049);
	ck_assert_int_eq(end(&left), -EOPNOTSUPP);
	ck_assert(socks[2].s_gone && socks[4].s_gone);
	ck_assert_uint_eq(destroys, 3);
}
END_TEST

START_TEST(more_than_a_list_has_room_for_end_too)
{
	int64_t left = LEFT_MS;

	ck_assert_int_eq(addr_closed_open(), 0);
	while (nsocks < MANY)
		make(TCP_TIME_WAIT, PORT);
	ck_assert_int_eq(end(&left), MANY);
	ck_assert_uint_eq(lists, 2);
}
END_TEST

START_TEST(a_kernel_that_keeps_what_it_said_it_ended_is_asked_once)
{
	int64_t left = LEFT_MS;

	ck_assert_int_eq(addr_closed_open(), 0);
	lies = true;
	while (nsocks < MANY)
		make(TCP_FIN_WAIT1, PORT);
	ck_assert_int_eq(end(&left), -EOPNOTSUPP);
	ck_assert_uint_eq(lists, 2);
	ck_assert_uint_lt(destroys, MANY);
}
END_TEST

START_TEST(it_ends_when_its_time_is_over)
{
	int64_t left = 50;
	unsigned before;

	ck_assert_int_eq(addr_closed_open(), 0);
	while (nsocks < MANY)
		make(TCP_TIME_WAIT, PORT);
	endless = true;
	ck_assert_int_eq(end(&left), -ETIME);
	ck_assert_int_le(left, 0);
	/* Nothing is left for the next address. */
	before = lists;
	ck_assert_int_eq(end(&left), -ETIME);
	ck_assert_uint_eq(lists, before);
}
END_TEST

START_TEST(an_answer_that_does_not_come_is_waited_for_once)
{
	int64_t left = LEFT_MS;

	ck_assert_int_eq(addr_closed_open(), 0);
	make(TCP_TIME_WAIT, PORT);
	mute = true;
	ck_assert_int_eq(end(&left), -ETIMEDOUT);
	ck_assert_uint_eq(connects, 1);
	/* The list that did not come is given up with its socket. */
	mute = false;
	ck_assert_int_eq(end(&left), 1);
	ck_assert_uint_eq(connects, 2);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("addr_closed");

	unit_add(s, "which", NULL, NULL, 120,
		 (const TTest *[]){all_that_no_program_has_ends_and_nothing_else,
				   a_kernel_that_keeps_orphans_is_asked_for_none,
				   what_was_not_tried_is_left_alone,
				   one_that_stays_does_not_keep_the_others, NULL});
	unit_add(s, "how long", NULL, NULL, 120,
		 (const TTest *[]){more_than_a_list_has_room_for_end_too,
				   a_kernel_that_keeps_what_it_said_it_ended_is_asked_once,
				   it_ends_when_its_time_is_over,
				   an_answer_that_does_not_come_is_waited_for_once, NULL});
	return unit_run(s);
}
