/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cluster_sim.c [--seed N] [--schedules N] [--control NAME] [--seconds S] [--verbose] [--list] -
 * runs schedules of failures over a whole cluster on a stepped clock (sim.h).
 *
 * Each schedule has a seed of its own: the first has N, the next N + 1. A schedule that breaks a
 * rule is printed with its seed, and ends the run with status 1. --control plants a fault in the
 * product, and the run then has status 0 when it is found. With --verbose the run of a seed is told
 * line by line. --seconds ends the run after that time.
 */
#include "tests/sim/globals.h"
#include "tests/sim/own.h"
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct {
	const char *c_name, *c_what;
} controls[] = {
	{"no-lease-check", "replies leave without a look at the lease"},
	{"wake-sends", "a thread that wakes sends by a look at the lease from before"},
	{"lease-from-answer", "the lease counts from the answer, not from the question"},
	{"claim-too-early", "a standby takes the holder for gone after a third of the lease"},
	{"no-wait", "a standby takes the holder for gone when it has seen the row once"},
	{"own-lease", "a standby waits for its own lease where the holder's is longer"},
	{"blind-promotion", "a standby of PostgreSQL is promoted without a look at the other"},
	{"torn-refill", "a copy is filled from a state that moves"},
	{"promote-with-gap", "a standby writes behind batches that it lacks"},
	{"no-guard", "a commit does not look whose instance it is"},
	{"guard-at-least", "a commit's guard compares the epoch by >= and not by ="},
	{"doubt-by-read", "a commit without an answer is looked up by reading"},
	{"key-too-early", "a standby takes the key in etcd after a third of the lease"},
	{"key-own-lease", "a standby waits for its own lease where the holder's in etcd is longer"},
	{"key-too-long", "the lease in etcd lasts longer than others wait"},
	{"key-blind", "the key in etcd is written whoever wrote it last"},
	{"announce-once", "a service address is announced once"},
	{"old-order", "a data server does not look who sends an order"},
};

static uint64_t failed_seed, total_acked;

static void heal(void)
{
	for (unsigned a = 0; a < SIM_NODES; a++)
		memset(sim_nodes[a].n_cut, 0, sizeof(sim_nodes[a].n_cut));
	sim_slow_ns = 0;
	for (unsigned i = 0; i < MDS_MAX; i++)
		server_proc(i)->p_trap = 0;
	engine_heal();
	etcd_heal();
	servers_quiet();
	clients_finish();
}

/* True: no rule was broken. */
static bool schedule(uint64_t seed)
{
	uint64_t quiet_end;

	sim_begin(seed);
	engine_begin();
	etcd_begin();
	addr_begin();
	servers_begin();
	ds_begin();
	clients_begin();
	/* A new key is waited for as long as a lease. */
	sim_run_until(sim_now + SIM_MS(servers_in_etcd() ? 1200 + 2 * server_lease_ms() : 1200));
	if (!sim_failed)
		faults_begin(sim_now + SIM_MS(6000));
	sim_run_until(sim_now + SIM_MS(6500));
	if (!sim_failed) {
		sim_log("all is healed");
		heal();
	}
	for (quiet_end = sim_now + SIM_MS(60000); !sim_failed && !clients_done();) {
		if (sim_now >= quiet_end) {
			char text[120];

			engine_describe(text, sizeof(text));
			sim_fail("stuck", "60 s after all was healed the clients wait: %s", text);
		}
		sim_run_until(sim_now + SIM_MS(200));
	}
	total_acked += clients_acked();
	sim_end();
	return !sim_failed;
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static bool known(const char *name)
{
	for (size_t i = 0; i < sizeof(controls) / sizeof(controls[0]); i++)
		if (!strcmp(controls[i].c_name, name))
			return true;
	return false;
}

static void list(void)
{
	for (size_t i = 0; i < sizeof(controls) / sizeof(controls[0]); i++)
		printf("%-18s %s\n", controls[i].c_name, controls[i].c_what);
}

static int report(uint64_t n, double began)
{
	printf("%llu schedules, %llu acknowledged operations, %.1f s:", (unsigned long long)n,
	       (unsigned long long)total_acked, seconds() - began);
	for (unsigned i = 0; i < SIM_FAULTS; i++)
		printf(" %s %u", fault_names[i], faults_struck[i]);
	putchar('\n');
	if (sim_failed)
		printf("%s: seed %llu: %s: %s\n", *sim_control ? "found" : "VIOLATION",
		       (unsigned long long)failed_seed, sim_rule, sim_text);
	if (*sim_control && !sim_failed)
		printf("the planted fault %s was not found\n", sim_control);
	return sim_failed == (*sim_control != 0) ? 0 : 1;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"seed", 1, NULL, 's'},	   {"schedules", 1, NULL, 'n'}, {"control", 1, NULL, 'c'},
		{"seconds", 1, NULL, 't'}, {"verbose", 0, NULL, 'v'},	{"list", 0, NULL, 'l'},
		{NULL, 0, NULL, 0}};
	uint64_t seed = 1, n = 1000, i;
	double began = seconds(), limit = 0;
	int o;

	while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (o == 's')
			seed = strtoull(optarg, NULL, 10);
		else if (o == 'n')
			n = strtoull(optarg, NULL, 10);
		else if (o == 'c')
			sim_control = optarg;
		else if (o == 't')
			limit = strtod(optarg, NULL);
		else if (o == 'v')
			sim_verbose = true;
		else if (o == 'l')
			return list(), 0;
		else
			return 2;
	}
	if (*sim_control && !known(sim_control)) {
		fprintf(stderr, "cluster_sim: there is no control %s\n", sim_control);
		return 2;
	}
	globals_of_mds_log();
	globals_of_pg_redo();
	globals_of_server();
	pg_plant();
	for (i = 0; i < n && (!limit || seconds() - began < limit); i++) {
		failed_seed = seed + i;
		if (!schedule(failed_seed)) {
			i++;
			break;
		}
	}
	return report(i, began);
}
