/* SPDX-License-Identifier: Apache-2.0 */
/*
 * addr_place_test.c - when the addresses of weft-addr come, go, and are tried again. The kernel,
 * the packets and the clock are played here: addr_place.c alone is the real one.
 */
#include "addr/addr_place.h"
#include "tests/unit/unit.h"
#include <errno.h>

#define ONE "192.0.2.10"
#define TWO "192.0.2.11"

/* ---- the kernel ---- */

static struct addr_place kernel[8]; /* addresses on interfaces */
static bool kernel_ours[8];
static unsigned nkernel;
static int fail_remove, fail_add, fail_list, fail_end;
static const char *no_interface = "";
static unsigned removes, announced, dropped;
static unsigned ends, late; /* addr_closed_end, and that of an address that an interface had */

int addr_net_list(addr_net_fn fn, void *arg)
{
	for (unsigned i = 0; i < nkernel; i++)
		fn(arg, &kernel[i], kernel_ours[i]);
	return fail_list;
}

int addr_net_add(const struct addr_place *pl)
{
	if (!strcmp(pl->pl_ifname, no_interface))
		return -ENODEV;
	if (fail_add)
		return fail_add;
	for (unsigned i = 0; i < nkernel; i++)
		if (addr_ip_same(&kernel[i].pl_ip, &pl->pl_ip) &&
		    !strcmp(kernel[i].pl_ifname, pl->pl_ifname))
			return -EEXIST;
	kernel[nkernel] = *pl;
	kernel_ours[nkernel++] = true;
	return 0;
}

int addr_net_remove(const struct addr_ip *ip)
{
	removes++;
	if (fail_remove)
		return fail_remove;
	for (unsigned i = 0; i < nkernel;)
		if (kernel_ours[i] && addr_ip_same(&kernel[i].pl_ip, ip)) {
			kernel[i] = kernel[--nkernel];
			kernel_ours[i] = kernel_ours[nkernel];
		} else
			i++;
	return 0;
}

int addr_announce(const struct addr_place *pl)
{
	(void)pl;
	announced++;
	return 0;
}

int addr_filter_set(const struct addr_place *places, unsigned n)
{
	(void)places;
	(void)n;
	return 0;
}

int addr_closed_end(const struct addr_ip *ip, const uint16_t *ports, unsigned nports, int64_t *left)
{
	ends++;
	ck_assert_int_gt(*left, 0);
	ck_assert_int_le(*left, 1000);
	ck_assert_uint_eq(nports, 1);
	ck_assert_uint_eq(ports[0], 2049);
	for (unsigned i = 0; i < nkernel; i++)
		late += addr_ip_same(&kernel[i].pl_ip, ip);
	return fail_end;
}

unsigned addr_tickle_add(const struct addr_row *rows, unsigned n, int64_t now)
{
	(void)rows;
	(void)now;
	return n;
}

void addr_tickle_drop(const struct addr_ip *local)
{
	(void)local;
	dropped++;
}

unsigned addr_tickle_count(void)
{
	return 0;
}

/* ---- what a test says ---- */

static int64_t now;
static int h1, h2; /* their addresses are the holders */
#define H1 ((struct addr_holder *)&h1)
#define H2 ((struct addr_holder *)&h2)

static struct addr_ip ip_of(const char *text)
{
	struct addr_ip ip;

	ck_assert(addr_ip_parse(text, &ip));
	return ip;
}

static unsigned has(const char *text)
{
	struct addr_ip ip = ip_of(text);
	unsigned n = 0;

	for (unsigned i = 0; i < nkernel; i++)
		n += addr_ip_same(&kernel[i].pl_ip, &ip);
	return n;
}

static void kernel_has(const char *text, const char *ifname, bool ours)
{
	kernel[nkernel] = (struct addr_place){.pl_ip = ip_of(text), .pl_prefix = 32};
	strcpy(kernel[nkernel].pl_ifname, ifname);
	kernel_ours[nkernel++] = ours;
}

/* wait: as of option -w, in milliseconds; -1: for ever. */
static void begin(int64_t wait, bool keep)
{
	char text[] = ONE " eth0\n" TWO " eth1\n", err[200] = "";
	static struct addr_place conf[ADDR_PLACES];
	int n = addr_conf_parse(text, conf, err, sizeof(err));

	ck_assert_msg(n == 2, "%s", err);
	now = 1000;
	ck_assert_int_eq(place_open(conf, 2, wait, keep, now), 0);
}

static int say(struct addr_holder *h, const char *text, char *err)
{
	static struct addr_msg m;
	char copy[500];

	*err = 0;
	strcpy(copy, text);
	ck_assert_int_eq(addr_msg_parse(copy, strlen(copy), &m, err, 200), 0);
	switch (m.m_verb) {
	case ADDR_HOLD:
		return place_hold(h, &m, now, err, 200);
	case ADDR_LISTENING:
		return place_listening(h);
	case ADDR_LIVE:
		return place_live(h, &m, now);
	case ADDR_TICKLE:
		return place_tickle(h, &m, now, err, 200);
	case ADDR_RELEASE:
		place_release(h, now);
		return 0;
	case ADDR_STATUS:
		break;
	}
	ck_abort();
}

static void ask(struct addr_holder *h, const char *text)
{
	char err[200];

	ck_assert_msg(say(h, text, err) >= 0, "%s: %s", text, err);
}

static void hold(void)
{
	ask(H1, "HOLD 2049 " ONE " " TWO);
	ask(H1, "LISTENING");
}

/* Lets time go by, and whatever is due in it. */
static void pass(int64_t ms)
{
	for (int64_t end = now + ms; now < end;) {
		int64_t next = place_run(now);

		ck_assert_int_gt(next, now);
		now = next < end ? next : end;
	}
	place_run(now);
}

static bool is(const char *text, const char *state)
{
	char all[4096], want[100];

	place_status(all, sizeof(all));
	snprintf(want, sizeof(want), "\n%s %s %s ", text, strcmp(text, ONE) ? "eth1" : "eth0",
		 state);
	return strstr(all, want) != NULL;
}

/* ---- an address that does not go ---- */

START_TEST(an_address_that_does_not_go_is_tried_until_it_is_gone)
{
	begin(2000, false);
	hold();
	fail_remove = -EBUSY;
	ask(H1, "RELEASE");
	ck_assert_uint_eq(has(ONE), 1);
	ck_assert(is(ONE, "stuck") && is(TWO, "stuck"));
	removes = announced = 0;
	pass(100000);
	ck_assert_uint_ge(removes, 2 * 400);
	/* Nobody is told that it is here. */
	ck_assert_uint_eq(announced, 0);
	fail_remove = 0;
	pass(1000);
	ck_assert_uint_eq(has(ONE) + has(TWO), 0);
	ck_assert(is(ONE, "free") && is(TWO, "free"));
	removes = 0;
	pass(10000);
	ck_assert_uint_eq(removes, 0);
}
END_TEST

START_TEST(an_address_that_lapses_and_does_not_go_is_tried_too)
{
	begin(2000, false);
	hold();
	ask(H1, "LIVE 500");
	fail_remove = -ENOMEM;
	pass(600);
	ck_assert_uint_eq(has(ONE), 1);
	ck_assert(is(ONE, "stuck"));
	fail_remove = 0;
	pass(300);
	ck_assert_uint_eq(has(ONE) + has(TWO), 0);
	ck_assert(is(ONE, "lapsed"));
	ask(H1, "LIVE 500");
	ck_assert_uint_eq(has(ONE) + has(TWO), 2);
	ck_assert(is(ONE, "open"));
}
END_TEST

START_TEST(a_stuck_address_may_be_held_again_and_then_stays)
{
	begin(2000, false);
	hold();
	fail_remove = -EBUSY;
	ask(H1, "RELEASE");
	pass(1000);
	fail_remove = 0;
	ask(H2, "HOLD 2049 " ONE);
	pass(10000);
	ck_assert_uint_eq(has(ONE), 1);
	ck_assert_uint_eq(has(TWO), 0);
	ck_assert(is(ONE, "quiet"));
	/* It is still known whose it is. */
	ask(H2, "RELEASE");
	ck_assert_uint_eq(has(ONE), 0);
}
END_TEST

START_TEST(what_a_former_run_left_is_tried_until_it_is_gone)
{
	kernel_has(ONE, "eth0", true);
	kernel_has("192.0.2.99", "eth7", true); /* no longer in the configuration */
	kernel_has("192.0.2.98", "eth7", false);
	fail_remove = -EBUSY;
	begin(2000, false);
	pass(1000);
	ck_assert_uint_eq(nkernel, 3);
	fail_remove = 0;
	pass(1000);
	ck_assert_uint_eq(nkernel, 1);
	ck_assert_uint_eq(has("192.0.2.98"), 1);
}
END_TEST

START_TEST(the_end_says_whether_an_address_is_left)
{
	begin(2000, false);
	hold();
	fail_remove = -EBUSY;
	removes = 0;
	ck_assert(!place_close(false, now));
	ck_assert_uint_gt(removes, 4);
	fail_remove = 0;
	ck_assert(place_close(false, now + 10000));
	ck_assert_uint_eq(nkernel, 0);
}
END_TEST

/* ---- how long an address waits ---- */

START_TEST(an_address_that_was_kept_waits_for_ever_when_told_so)
{
	kernel_has(ONE, "eth0", true);
	begin(-1, true);
	pass(1000000);
	ck_assert_uint_eq(has(ONE), 1);
	ck_assert(is(ONE, "waiting"));
	hold();
	place_gone(H1, now);
	pass(1000000);
	ck_assert_uint_eq(has(ONE) + has(TWO), 2);
}
END_TEST

START_TEST(an_address_waits_as_long_as_told)
{
	kernel_has(ONE, "eth0", true);
	begin(2000, true);
	pass(1900);
	ck_assert_uint_eq(has(ONE), 1);
	pass(200);
	ck_assert_uint_eq(has(ONE), 0);
	hold();
	place_gone(H1, now);
	pass(1900);
	ck_assert_uint_eq(has(ONE), 1);
	pass(200);
	ck_assert_uint_eq(has(ONE), 0);
}
END_TEST

START_TEST(an_address_that_does_not_wait_goes_at_once)
{
	begin(0, false);
	hold();
	place_gone(H1, now);
	ck_assert_uint_eq(nkernel, 0);
}
END_TEST

START_TEST(proof_ends_when_it_ends_although_the_address_waits_longer)
{
	begin(-1, false);
	hold();
	ask(H1, "LIVE 1500");
	place_gone(H1, now);
	pass(1400);
	ck_assert_uint_eq(nkernel, 2);
	pass(200);
	ck_assert_uint_eq(nkernel, 0);
}
END_TEST

START_TEST(with_keep_a_holder_that_ended_is_waited_for_and_one_that_hangs_is_not)
{
	begin(60000, false);
	hold();
	ask(H1, "LIVE 1500 KEEP");
	place_gone(H1, now);
	pass(59000);
	ck_assert_uint_eq(nkernel, 2);
	ask(H2, "HOLD 2049 " ONE " " TWO);
	ask(H2, "LIVE 1500 KEEP");
	pass(1600);
	ck_assert_uint_eq(nkernel, 0);
	ck_assert(is(ONE, "lapsed"));
}
END_TEST

/* ---- interfaces and others ---- */

START_TEST(one_interface_that_is_not_there_does_not_stop_the_others)
{
	char err[200];

	begin(2000, false);
	no_interface = "eth1";
	hold();
	ck_assert_uint_eq(has(ONE), 1);
	ck_assert_uint_eq(has(TWO), 0);
	pass(2000);
	no_interface = "";
	pass(600);
	ck_assert_uint_eq(has(TWO), 1);
	ask(H1, "RELEASE");
	ck_assert_uint_eq(nkernel, 0);
	/* With no other address the holder is told. */
	no_interface = "eth1";
	ck_assert_int_eq(say(H1, "HOLD 2049 " TWO, err), -ENODEV);
	ck_assert_str_eq(err, TWO ": there is no such interface");
	ck_assert(is(TWO, "free"));
}
END_TEST

START_TEST(one_address_that_does_not_come_back_costs_the_others_nothing)
{
	char err[200];

	begin(2000, false);
	hold();
	ask(H1, "LIVE 500");
	pass(600);
	ck_assert_uint_eq(nkernel, 0);
	no_interface = "eth0";
	ck_assert_int_eq(say(H1, "LIVE 500", err), -ENODEV);
	ck_assert_uint_eq(has(TWO), 1);
	pass(400);
	ck_assert(is(TWO, "open"));
}
END_TEST

START_TEST(an_address_whose_interface_was_renamed_moves_to_the_right_one)
{
	begin(2000, false);
	hold();
	for (unsigned i = 0; i < nkernel; i++)
		strcpy(kernel[i].pl_ifname, "lan0");
	place_gone(H1, now);
	ask(H2, "HOLD 2049 " ONE);
	ck_assert_uint_eq(has(ONE), 1);
	ask(H2, "RELEASE");
	ck_assert_uint_eq(has(ONE), 0);
}
END_TEST

START_TEST(an_address_of_the_node_itself_is_put_back_when_the_node_loses_it)
{
	kernel_has(ONE, "eth0", false);
	begin(2000, false);
	hold();
	ck_assert_uint_eq(has(ONE), 1);
	pass(2000);
	ck_assert_uint_eq(has(ONE), 1);
	nkernel = 0;
	pass(600);
	ck_assert_uint_eq(has(ONE), 1);
	/* Now it is ours. */
	ask(H1, "RELEASE");
	ck_assert_uint_eq(has(ONE), 0);
}
END_TEST

START_TEST(a_peer_is_not_tickled_before_the_server_listens)
{
	char err[200];

	begin(2000, false);
	ask(H1, "HOLD 2049 " ONE);
	ck_assert_int_eq(say(H1, "TICKLE\n" ONE " 2049 192.0.2.1 700", err), -EPERM);
	ck_assert_str_eq(err, ONE ": LISTENING comes first");
	ask(H1, "LISTENING");
	ck_assert_int_eq(say(H1, "TICKLE\n" ONE " 2049 192.0.2.1 700", err), 1);
}
END_TEST

START_TEST(what_was_closed_ends_before_the_address_comes)
{
	begin(2000, false);
	hold();
	ck_assert_uint_eq(ends, 2);
	ck_assert_uint_eq(late, 0);
	/* Once for each HOLD. */
	pass(10000);
	ck_assert_uint_eq(ends, 2);
	ask(H1, "RELEASE");
	/* A kernel that cannot do it costs no address. */
	fail_end = -EOPNOTSUPP;
	hold();
	ck_assert_uint_eq(ends, 4);
	ck_assert_uint_eq(has(ONE) + has(TWO), 2);
	ask(H1, "RELEASE");
	/* Nor does one that is slow, and the next address does not wait for it. */
	fail_end = -ETIME;
	hold();
	ck_assert_uint_eq(ends, 5);
	ck_assert_uint_eq(has(ONE) + has(TWO), 2);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("addr_place");

	unit_add(s, "stuck", NULL, NULL, 60,
		 (const TTest *[]){an_address_that_does_not_go_is_tried_until_it_is_gone,
				   an_address_that_lapses_and_does_not_go_is_tried_too,
				   a_stuck_address_may_be_held_again_and_then_stays,
				   what_a_former_run_left_is_tried_until_it_is_gone,
				   the_end_says_whether_an_address_is_left, NULL});
	unit_add(s, "wait", NULL, NULL, 60,
		 (const TTest *[]){
			 an_address_that_was_kept_waits_for_ever_when_told_so,
			 an_address_waits_as_long_as_told,
			 an_address_that_does_not_wait_goes_at_once,
			 proof_ends_when_it_ends_although_the_address_waits_longer,
			 with_keep_a_holder_that_ended_is_waited_for_and_one_that_hangs_is_not,
			 NULL});
	unit_add(s, "interfaces", NULL, NULL, 60,
		 (const TTest *[]){one_interface_that_is_not_there_does_not_stop_the_others,
				   one_address_that_does_not_come_back_costs_the_others_nothing,
				   an_address_whose_interface_was_renamed_moves_to_the_right_one,
				   an_address_of_the_node_itself_is_put_back_when_the_node_loses_it,
				   a_peer_is_not_tickled_before_the_server_listens,
				   what_was_closed_ends_before_the_address_comes, NULL});
	return unit_run(s);
}
