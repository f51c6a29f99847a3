/* SPDX-License-Identifier: Apache-2.0 */
/* What runs where (topo/topo_plan.c): threads by node, who serves what comes by which network card,
 * processors that may be used. */
#include "topo/topo_plan.h"
#include <arpa/inet.h>
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct topo *t;
static struct topo_plan plan;
static struct topo_place store[8], addr[8];

static void load(const char *name)
{
	const char *top = getenv("top_srcdir");
	char path[1024], err[512];

	snprintf(path, sizeof(path), "%s/tests/topo/%s.topo", top ? top : ".", name);
	ck_assert_msg(topo_open(&t, path, err, sizeof(err)) == 0, "%s", err);
}

static void parse(const char *text)
{
	char err[512];

	ck_assert_msg(topo_parse(&t, text, strlen(text), "f", err, sizeof(err)) == 0, "%s", err);
}

static void teardown(void)
{
	topo_free(t);
	t = NULL;
}

/* Words of a list; how many. */
static size_t words(const char *list, char out[8][32])
{
	char copy[256], *save, *w;
	size_t n = 0;

	snprintf(copy, sizeof(copy), "%s", list);
	for (w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save))
		snprintf(out[n++], 32, "%s", w);
	return n;
}

static const char *bits(uint64_t threads)
{
	static char out[256];
	cpu_set_t set;

	CPU_ZERO(&set);
	for (; threads; threads &= threads - 1)
		CPU_SET(__builtin_ctzll(threads), &set);
	topo_cpulist(&set, out, sizeof(out));
	return out;
}

/* "node:threads on processors;" of each, in order. Stores are block devices, addresses network
 * devices (NIC0); "?" is one of which nothing is known. */
static const char *planned(unsigned threads, const char *cpus, const char *stores,
			   const char *addrs)
{
	static char out[1024];
	struct topo_wish w = {.tw_nthreads = threads, .tw_store = store, .tw_addr = addr};
	char word[8][32], list[256];

	ck_assert(topo_cpulist_parse(cpus, &w.tw_cpus));
	w.tw_nstores = words(stores, word);
	for (size_t i = 0; i < w.tw_nstores; i++)
		ck_assert(!topo_place_block(t, word[i], &store[i]) == (*word[i] != '?'));
	w.tw_naddrs = words(addrs, word);
	for (size_t i = 0; i < w.tw_naddrs; i++) {
		addr[i] = (struct topo_place){.pl_node = -1};
		for (size_t d = 0; d < t->t_ndev; d++)
			if (!strcmp(t->t_dev[d].tdv_name, word[i]))
				topo_place_dev(t, d, &addr[i]);
	}
	topo_plan(t, &w, &plan);
	ck_assert_uint_eq(plan.tp_nthreads, threads);
	*out = 0;
	for (unsigned i = 0; i < plan.tp_nnodes; i++) {
		const struct topo_plan_node *n = &plan.tp_node[i];
		unsigned mine = 0;

		for (unsigned k = 0; k < threads; k++)
			mine += plan.tp_thread[k] == i && (n->pn_threads >> k & 1);
		ck_assert_uint_eq(mine, n->pn_nthreads);
		topo_cpulist(&n->pn_cpus, list, sizeof(list));
		sprintf(out + strlen(out), "%s%d:%s on %s", i ? "; " : "", n->pn_id,
			bits(n->pn_threads), list);
	}
	return out;
}

/* The threads for what comes by the k-th address. */
static const char *serves(unsigned k)
{
	return bits(topo_plan_serves(t, &plan, &addr[k]));
}

#define NODE0 "0-47,96-143"
#define NODE1 "48-95,144-191"
#define ALL   "0-191"

/* ---- nodes ---- */

START_TEST(nodes_with_drive_and_card_come_first_then_drives_then_cards)
{
	load("two-sockets");
	ck_assert_str_eq(planned(1, ALL, "nvme7n1", "NIC8"), "1:0 on " NODE1);
	ck_assert_str_eq(planned(1, ALL, "nvme7n1", "NIC4"), "1:0 on " NODE1);
	ck_assert_str_eq(planned(1, ALL, "?", "NIC8"), "1:0 on " NODE1);
	ck_assert_str_eq(planned(1, ALL, "nvme1n1 nvme7n1", "NIC8"), "1:0 on " NODE1);
	ck_assert_str_eq(planned(1, ALL, "nvme1n1 nvme7n1", "NIC4 NIC8"), "0:0 on " NODE0);
	/* both, as long as there are threads */
	ck_assert_str_eq(planned(2, ALL, "nvme7n1", "NIC4"), "1:0 on " NODE1 "; 0:1 on " NODE0);
	/* A node that is near nothing gets none, whatever processors it has. */
	ck_assert_str_eq(planned(8, ALL, "nvme7n1", "NIC8"), "1:0-7 on " NODE1);
	ck_assert(plan.tp_bound);
}
END_TEST

START_TEST(where_nothing_is_known_threads_are_spread_by_processors)
{
	load("two-sockets");
	ck_assert_str_eq(planned(4, ALL, "?", "?"), "0:0,2 on " NODE0 "; 1:1,3 on " NODE1);
	ck_assert_str_eq(planned(4, "0-5,48-49", "?", "?"), "0:0,2-3 on 0-5; 1:1 on 48-49");
	ck_assert_str_eq(planned(4, ALL, "", ""), "0:0,2 on " NODE0 "; 1:1,3 on " NODE1);
}
END_TEST

START_TEST(more_threads_than_the_near_nodes_have_processors_go_to_others)
{
	load("two-sockets");
	ck_assert_str_eq(planned(4, "0-9,48-49", "nvme7n1", "NIC8"),
			 "1:0-1 on 48-49; 0:2-3 on 0-9");
	ck_assert_str_eq(planned(6, "0,48-49", "nvme7n1", "NIC8"), "1:0-1,3-5 on 48-49; 0:2 on 0");
	planned(64, ALL, "nvme7n1", "NIC8");
	ck_assert_uint_eq(plan.tp_node[0].pn_nthreads, 64);
}
END_TEST

START_TEST(processors_that_may_not_be_used_are_nobodys)
{
	load("two-sockets");
	ck_assert_str_eq(planned(2, "3,5,150", "nvme1n1 nvme7n1", "NIC8"),
			 "1:0 on 150; 0:1 on 3,5");
	/* What is on a node that may not be used is near the other; then nothing is to be told
	 * apart. */
	ck_assert_str_eq(planned(2, "0-3", "nvme7n1", "NIC8"), "0:0-1 on 0-3");
	ck_assert(!plan.tp_bound);
	ck_assert_uint_eq(plan.tp_node[0].pn_nstores, 1);
	ck_assert_str_eq(serves(0), "0-1");
}
END_TEST

START_TEST(a_machine_of_one_node_binds_nothing)
{
	load("storage");
	ck_assert_str_eq(planned(4, "0-63", "nvme3n1 nvme9n1", "NIC0 NIC1"), "0:0-3 on 0-63");
	ck_assert(!plan.tp_bound);
	ck_assert_str_eq(serves(0), "0-3");
	teardown();
	load("vm");
	ck_assert_str_eq(planned(4, "0-1", "vda", "NIC0"), "-1:0-3 on 0-1");
	ck_assert(!plan.tp_bound);
	ck_assert_str_eq(serves(0), "0-3");
}
END_TEST

/* A line of nodes: 0 and 1 near each other, 2 and 3 likewise; 3 has memory only. */
static const char four[] = "weft-topo 1\n"
			   "/bus/pci/devices\n"
			   "\t0000:01:00.0 -> ../../../devices/pci0000:01/0000:01:00.0\n"
			   "\t0000:02:00.0 -> ../../../devices/pci0000:02/0000:02:00.0\n"
			   "\t0000:03:00.0 -> ../../../devices/pci0000:03/0000:03:00.0\n"
			   "/class/net\n"
			   "\ta -> ../../devices/pci0000:01/0000:01:00.0/net/a\n"
			   "\tb -> ../../devices/pci0000:02/0000:02:00.0/net/b\n"
			   "\tc -> ../../devices/pci0000:03/0000:03:00.0/net/c\n"
			   "/devices/pci0000:01/0000:01:00.0\n\tclass=0x020000\n\tnuma_node=0\n"
			   "/devices/pci0000:01/0000:01:00.0/net/a\n\toperstate=up\n\tspeed=1000\n"
			   "/devices/pci0000:02/0000:02:00.0\n\tclass=0x020000\n\tnuma_node=3\n"
			   "/devices/pci0000:02/0000:02:00.0/net/b\n\toperstate=up\n\tspeed=1000\n"
			   "/devices/pci0000:03/0000:03:00.0\n\tclass=0x020000\n\tnuma_node=-1\n"
			   "/devices/pci0000:03/0000:03:00.0/net/c\n\toperstate=up\n\tspeed=1000\n"
			   "/devices/system/node/node0\n\tcpulist=0-1\n\tdistance=10 12 32 32\n"
			   "/devices/system/node/node1\n\tcpulist=2-3\n\tdistance=12 10 32 32\n"
			   "/devices/system/node/node2\n\tcpulist=4-5\n\tdistance=32 32 10 12\n"
			   "/devices/system/node/node3\n\tcpulist=\n\tdistance=32 32 12 10\n";

START_TEST(what_is_at_a_node_without_processors_is_near_the_nearest_with_some)
{
	parse(four);
	ck_assert_str_eq(planned(2, "0-5", "?", "NIC1"), "2:0-1 on 4-5");
	ck_assert_str_eq(serves(0), "0-1");
	/* of two that are equally far */
	ck_assert_str_eq(planned(2, "0-3", "?", "NIC1"), "0:0-1 on 0-1");
	ck_assert(plan.tp_bound);
}
END_TEST

/* ---- who serves whom ---- */

START_TEST(a_card_is_served_by_the_threads_of_its_node)
{
	load("two-sockets");
	ck_assert_str_eq(planned(4, ALL, "nvme7n1", "NIC4 NIC8 NIC5 ?"),
			 "1:0,2 on " NODE1 "; 0:1,3 on " NODE0);
	ck_assert_str_eq(serves(0), "1,3");
	ck_assert_str_eq(serves(1), "0,2");
	ck_assert_str_eq(serves(2), "1,3");
	ck_assert_str_eq(serves(3), "0-3"); /* not known: by all */
}
END_TEST

START_TEST(threads_without_a_card_help_and_no_card_is_without_threads)
{
	load("two-sockets");
	/* The card is at node 0, the drive at node 1. */
	ck_assert_str_eq(planned(4, ALL, "nvme7n1", "NIC4"), "1:0,2 on " NODE1 "; 0:1,3 on " NODE0);
	ck_assert_str_eq(serves(0), "0-3");
	/* One thread, two cards. */
	planned(1, ALL, "nvme7n1", "NIC4 NIC8");
	ck_assert_str_eq(serves(0), "0");
	ck_assert_str_eq(serves(1), "0");
	teardown();
	parse(four);
	/* Node 1 helps node 0, which is nearer than 2. */
	ck_assert_str_eq(planned(6, "0-5", "?", "NIC0 NIC1"),
			 "0:0,2 on 0-1; 2:1,3 on 4-5; 1:4-5 on 2-3");
	ck_assert_str_eq(serves(0), "0,2,4-5");
	ck_assert_str_eq(serves(1), "1,3");
	/* The firmware does not say where this one is. */
	planned(6, "0-5", "?", "NIC0 NIC1 NIC2");
	ck_assert_str_eq(serves(2), "0-5");
}
END_TEST

START_TEST(every_thread_serves_somebody)
{
	static const char *const stores[] = {"?", "nvme1n1", "nvme7n1", "nvme1n1 nvme7n1", "md127"};
	static const char *const addrs[] = {"?", "NIC4", "NIC8", "NIC4 NIC8", "NIC4 ?"};

	load("two-sockets");
	for (unsigned s = 0; s < 5; s++)
		for (unsigned a = 0; a < 5; a++)
			for (unsigned n = 1; n <= TOPO_PLAN_THREADS; n += 7) {
				uint64_t all = 0;
				char word[8][32];

				planned(n, "0-3,48-50", stores[s], addrs[a]);
				for (size_t k = words(addrs[a], word); k--;)
					all |= topo_plan_serves(t, &plan, &addr[k]);
				ck_assert_uint_eq(all, n == 64 ? ~0ull : (1ull << n) - 1);
			}
}
END_TEST

/* ---- addresses ---- */

START_TEST(for_several_stores_the_sum_counts)
{
	struct topo_place cand[3], both[2], three[3];
	size_t order[3];

	load("two-sockets");
	ck_assert(!topo_place_net(t, "ens7f0np0", &cand[0])); /* node 1 */
	ck_assert(!topo_place_net(t, "ens3f0np0", &cand[1])); /* node 0 */
	ck_assert(!topo_place_net(t, "ibs1", &cand[2]));      /* node 0, beside nvme1 */
	ck_assert(!topo_place_block(t, "nvme1n1", &both[0]) &&
		  !topo_place_block(t, "nvme7n1", &both[1]));
	topo_rank(t, both, 1, cand, 3, order);
	ck_assert(order[0] == 2 && order[1] == 1 && order[2] == 0);
	topo_rank(t, both + 1, 1, cand, 3, order);
	ck_assert(order[0] == 0);
	/* One at each socket: only the one beside a drive is better than the rest, which stay as
	 * they were. */
	topo_rank(t, both, 2, cand, 3, order);
	ck_assert(order[0] == 2 && order[1] == 0 && order[2] == 1);
	three[0] = both[0];
	three[1] = three[2] = both[1];
	topo_rank(t, three, 3, cand, 2, order);
	ck_assert(order[0] == 0 && order[1] == 1);
	three[1] = both[0];
	topo_rank(t, three, 3, cand, 2, order);
	ck_assert(order[0] == 1 && order[1] == 0);
}
END_TEST

/* ---- lists ---- */

START_TEST(lists_of_processors)
{
	static const char *const bad[] = {"",
					  "x",
					  "1-",
					  "-1",
					  "3-1",
					  "1,,2",
					  "1,",
					  "1 2",
					  "0-1024",
					  "1024",
					  "99999999999999999999"};
	cpu_set_t set;
	char out[32];

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_msg(!topo_cpulist_parse(bad[i], &set), "%s", bad[i]);
	ck_assert(topo_cpulist_parse("8,0-3,5,1023", &set));
	ck_assert_int_eq(CPU_COUNT(&set), 7);
	topo_cpulist(&set, out, sizeof(out));
	ck_assert_str_eq(out, "0-3,5,8,1023");
	topo_cpulist(&set, out, 6);
	ck_assert_str_eq(out, "0-3,5");
	CPU_ZERO(&set);
	topo_cpulist(&set, out, sizeof(out));
	ck_assert_str_eq(out, "");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("plan");
	TCase *c = tcase_create("plan");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(c, NULL, teardown);
	tcase_add_test(c, nodes_with_drive_and_card_come_first_then_drives_then_cards);
	tcase_add_test(c, where_nothing_is_known_threads_are_spread_by_processors);
	tcase_add_test(c, more_threads_than_the_near_nodes_have_processors_go_to_others);
	tcase_add_test(c, processors_that_may_not_be_used_are_nobodys);
	tcase_add_test(c, a_machine_of_one_node_binds_nothing);
	tcase_add_test(c, what_is_at_a_node_without_processors_is_near_the_nearest_with_some);
	tcase_add_test(c, a_card_is_served_by_the_threads_of_its_node);
	tcase_add_test(c, threads_without_a_card_help_and_no_card_is_without_threads);
	tcase_add_test(c, every_thread_serves_somebody);
	tcase_add_test(c, for_several_stores_the_sum_counts);
	tcase_add_test(c, lists_of_processors);
	suite_add_tcase(s, c);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
