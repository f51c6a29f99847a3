/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_topo.c - a recorded tree is refused with one line, or gives a topology that keeps its
 * promises and is recorded as it was read. */
#include "topo/topo_plan.h"
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

static void must(bool ok)
{
	if (!ok)
		abort();
}

static void place_good(const struct topo *t, const struct topo_place *pl)
{
	cpu_set_t cpus;

	must(pl->pl_n <= TOPO_PLACE_MAX && pl->pl_ndrives <= TOPO_PLACE_MAX);
	for (unsigned i = 0; i < pl->pl_n; i++)
		must(pl->pl_pci[i] >= 0 && (size_t)pl->pl_pci[i] < t->t_npci);
	for (unsigned i = 0; i < pl->pl_ndrives; i++)
		must((size_t)pl->pl_drive[i] < t->t_ndev &&
		     t->t_dev[pl->pl_drive[i]].tdv_kind == TOPO_NVME);
	must(topo_cpus(t, pl, &cpus) == CPU_COUNT(&cpus));
}

static void text_good(const char *s)
{
	for (; *s; s++)
		must((*s >= 0x20 && *s <= 0x7e) || *s == '\n' || *s == '\t');
}

static void recorded_again(const struct topo *t)
{
	char *a = NULL, *b = NULL, err[512];
	size_t n = 0, m = 0;
	FILE *f = open_memstream(&a, &n);
	struct topo *again;

	must(topo_record(t, f) == 0);
	fclose(f);
	must(topo_parse(&again, a, n, "file", err, sizeof(err)) == 0);
	f = open_memstream(&b, &m);
	must(topo_record(again, f) == 0);
	fclose(f);
	must(n == m && !memcmp(a, b, n) && again->t_ndev == t->t_ndev &&
	     again->t_npci == t->t_npci);
	topo_free(again);
	free(a);
	free(b);
}

/* Small numbers of each: the cost is in squares. */
enum { SOME = 24 };

/* However the nodes are, every thread has one that it may run on, and everything is served. */
static void plan_good(const struct topo *t, const struct topo_place *store,
		      const struct topo_place *pl, size_t n)
{
	struct topo_wish w = {.tw_store = store,
			      .tw_nstores = 1,
			      .tw_addr = pl,
			      .tw_naddrs = n,
			      .tw_nthreads = 1 + (unsigned)(n + t->t_nnode) % TOPO_PLAN_THREADS};
	struct topo_plan p;
	uint64_t all = 0;

	CPU_ZERO(&w.tw_cpus);
	for (int i = 0; i < CPU_SETSIZE; i += 1 + (int)n % 3)
		CPU_SET(i, &w.tw_cpus);
	topo_plan(t, &w, &p);
	must(p.tp_nnodes && p.tp_nnodes <= w.tw_nthreads && p.tp_nthreads == w.tw_nthreads);
	for (unsigned i = 0; i < p.tp_nnodes; i++) {
		must(p.tp_node[i].pn_nthreads && p.tp_node[i].pn_ncpus &&
		     p.tp_node[i].pn_ncpus == (unsigned)CPU_COUNT(&p.tp_node[i].pn_cpus) &&
		     !(all & p.tp_node[i].pn_threads));
		all |= p.tp_node[i].pn_threads;
	}
	must(__builtin_popcountll(all) == (int)w.tw_nthreads);
	for (size_t i = 0; i < n; i++)
		must(topo_plan_serves(t, &p, &pl[i]) && !(topo_plan_serves(t, &p, &pl[i]) & ~all));
}

static void questions(const struct topo *t)
{
	struct topo_place pl[SOME], store;
	size_t order[SOME], n = t->t_ndev < SOME ? t->t_ndev : SOME;
	unsigned seen = 0;

	for (size_t i = 0; i < t->t_npci && i < SOME; i++) {
		must(t->t_pci[i].p_parent < (int)t->t_npci &&
		     t->t_pci[i].p_root < strlen(t->t_pci[i].p_path));
		for (size_t k = 0; k < t->t_npci && k < SOME; k++)
			must(topo_pci_dist(t, (int)i, (int)k) == topo_pci_dist(t, (int)k, (int)i));
	}
	for (size_t i = 0; i < n; i++) {
		text_good(t->t_dev[i].tdv_name);
		text_good(t->t_dev[i].tdv_model);
		topo_place_dev(t, i, &pl[i]);
		place_good(t, &pl[i]);
		for (size_t k = 0; k < n; k++)
			must((topo_dev_dist(t, i, k) == TOPO_SELF) == (i == k) &&
			     *topo_dist_name(topo_dev_dist(t, k, i)));
	}
	for (size_t i = 0; i < t->t_nnet && i < SOME; i++) {
		must(t->t_net[i].n_dev < (int)t->t_ndev);
		must(topo_place_net(t, t->t_net[i].n_name, &store) == 0);
		place_good(t, &store);
	}
	for (size_t i = 0; i < t->t_nrdma && i < SOME; i++)
		must(t->t_rdma[i].r_dev < (int)t->t_ndev && t->t_rdma[i].r_net < (int)t->t_nnet);
	memset(&store, 0, sizeof(store));
	for (size_t i = 0; i < t->t_nblock && i < SOME; i++) {
		const struct topo_block *b = &t->t_block[i];

		topo_place_number(t, makedev(b->b_major, b->b_minor), &store);
		must(topo_place_block(t, b->b_name, &store) == 0);
		place_good(t, &store);
	}
	topo_rank(t, &store, 1, pl, n, order);
	for (size_t i = 0; i < n; i++) {
		must(order[i] < n);
		seen |= 1u << order[i];
	}
	must(seen == (1u << n) - 1);
	plan_good(t, &store, pl, n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char err[512] = "";
	struct topo *t = NULL;

	if (topo_parse(&t, (const char *)data, size, "file", err, sizeof(err))) {
		must(!t && !strncmp(err, "file: ", 6) && !strchr(err, '\n'));
		return 0;
	}
	questions(t);
	recorded_again(t);
	topo_free(t);
	return 0;
}
