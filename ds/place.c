/* SPDX-License-Identifier: Apache-2.0 */
/* place.c - see place.h. topo/topo_plan.c decides; this file reads the machine and applies the
 * plan. */
#include "ds/place.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/pool.h"
#include "topo/topo_plan.h"
#include "proto/rpc.h"
#include <arpa/inet.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* The same threads serve, in turn, all connections that come by addresses of one node. */
struct group {
	uint64_t gr_threads;
	_Atomic unsigned gr_next;
};

/* An address of this machine. */
struct entry {
	uint8_t en_ip[16];
	struct group *en_group;
};

struct place {
	struct topo *pa_topo; /* NULL: unknown or not wanted */
	struct topo_plan pa_plan;
	cpu_set_t pa_cpus; /* the daemon may use these */
	bool pa_narrow;	   /* ds.cpus names them */
	bool pa_order;	   /* ds.order: sort addresses by topology */
	bool pa_paper;
	char *pa_list; /* ds.store, cut into names */
	const char *pa_dir[PLACE_MAX_STORES];
	struct topo_place pa_store[PLACE_MAX_STORES];
	unsigned pa_nstores;
	struct sockaddr_storage pa_ss[PLACE_MAX_ADDRS];
	struct topo_place pa_addr[PLACE_MAX_ADDRS];
	unsigned pa_naddrs;
	struct group *pa_group; /* the first one has all threads */
	unsigned pa_ngroups;
	struct entry *pa_entry; /* sorted */
	size_t pa_nentries;
	struct metric *pa_dealt[TOPO_PLAN_NODES];
};

/* A machine of which nothing is known. */
static const struct topo nothing;

static const struct topo *topo_of(const struct place *p)
{
	return p->pa_topo ? p->pa_topo : &nothing;
}

/* ---- reading the machine ---- */

static int topology(struct place *p, const struct conf *c, char *err, size_t errlen)
{
	const char *path = conf_str(c, "ds.topology");
	bool wanted = p->pa_order || strcmp(conf_str(c, "ds.placement"), "off") != 0;
	char why[512];
	int e;

	if (!*path && !wanted)
		return 0;
	e = topo_open(&p->pa_topo, *path ? path : NULL, why, sizeof(why));
	if (e && *path)
		snprintf(err, errlen, "ds.topology: %s", why);
	else if (e)
		log_warn("placement: off: cannot read the topology: %s", why);
	return *path ? e : 0;
}

/* Finds the processors that the process may use; narrows them to those that ds.cpus names. */
static int processors(struct place *p, const struct conf *c, char *err, size_t errlen)
{
	const char *list = conf_str(c, "ds.cpus");
	cpu_set_t own, both;
	char text[256];

	if (p->pa_paper && p->pa_topo && *conf_str(c, "ds.topology")) {
		topo_cpus(p->pa_topo, &(struct topo_place){.pl_node = -1}, &p->pa_cpus);
	} else if (sched_getaffinity(0, sizeof(p->pa_cpus), &p->pa_cpus)) {
		log_warn("placement: off: cannot read the processor affinity: %s", strerror(errno));
		topo_free(p->pa_topo);
		p->pa_topo = NULL;
		CPU_ZERO(&p->pa_cpus);
	}
	if (!*list)
		return 0;
	if (!topo_cpulist_parse(list, &own)) {
		snprintf(err, errlen,
			 "ds.cpus: \"%s\" is not a list of processors such as 0-7,16-23", list);
		return -EINVAL;
	}
	CPU_AND(&both, &own, &p->pa_cpus);
	if (!CPU_EQUAL(&both, &own)) {
		topo_cpulist(&p->pa_cpus, text, sizeof(text));
		snprintf(err, errlen, "ds.cpus: \"%s\": the daemon may only use %s", list,
			 *text ? text : "no known processor");
		return -EINVAL;
	}
	p->pa_cpus = own;
	p->pa_narrow = true;
	return 0;
}

/* ---- where stores and addresses are ---- */

/* A folder that does not exist yet will be on the file system of its parent. */
static void store_find(const struct topo *t, const char *dir, struct topo_place *out)
{
	char up[4096];
	char *slash;

	if (topo_place_path(t, dir, out) != -ENOENT)
		return;
	snprintf(up, sizeof(up), "%s", dir);
	slash = strrchr(up, '/');
	if (slash && slash[1] && slash != up) {
		*slash = 0;
		topo_place_path(t, up, out);
	}
}

/* Cuts a comma separated list. Returns the number of names, at most max. */
static unsigned place_cut(char *list, const char **out, unsigned max)
{
	char *save = NULL, *one;
	unsigned n = 0;

	for (one = strtok_r(list, ",", &save); one && n < max; one = strtok_r(NULL, ",", &save)) {
		one += strspn(one, " ");
		for (char *end = one + strlen(one); end > one && end[-1] == ' ';)
			*--end = 0;
		if (*one)
			out[n++] = one;
	}
	return n;
}

static int disks(struct place *p, const char *list, char *err, size_t errlen)
{
	const char *name[PLACE_MAX_STORES];
	char *copy = strdup(list);
	unsigned n = copy ? place_cut(copy, name, PLACE_MAX_STORES) : 0;
	int e = copy ? 0 : -ENOMEM;

	if (e)
		snprintf(err, errlen, "ds.disks: %s", strerror(ENOMEM));
	else if (n != p->pa_nstores && (e = -EINVAL))
		snprintf(err, errlen,
			 "ds.disks: names %u block devices, but ds.store names %u folders: give "
			 "one device for each folder",
			 n, p->pa_nstores);
	for (unsigned i = 0; i < n && !e; i++) {
		e = p->pa_topo ? topo_place_block(p->pa_topo, name[i], &p->pa_store[i]) : 0;
		if (e)
			snprintf(err, errlen, "ds.disks: no such block device: \"%s\"", name[i]);
	}
	free(copy);
	return e;
}

static int stores(struct place *p, const struct conf *c, char *err, size_t errlen)
{
	const char *named = conf_str(c, "ds.disks");

	p->pa_list = strdup(conf_str(c, "ds.store"));
	if (!p->pa_list) {
		snprintf(err, errlen, "ds.store: %s", strerror(ENOMEM));
		return -ENOMEM;
	}
	p->pa_nstores = place_cut(p->pa_list, p->pa_dir, PLACE_MAX_STORES);
	for (unsigned i = 0; i < p->pa_nstores; i++) {
		p->pa_store[i] = (struct topo_place){.pl_node = -1};
		/* ds.topology describes another machine, about which a path here says nothing. */
		if (p->pa_topo && !*named && !*conf_str(c, "ds.topology"))
			store_find(p->pa_topo, p->pa_dir[i], &p->pa_store[i]);
	}
	return *named ? disks(p, named, err, errlen) : 0;
}

static bool same_ip(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
	if (a->ss_family != b->ss_family)
		return false;
	if (a->ss_family == AF_INET)
		return ((const struct sockaddr_in *)a)->sin_addr.s_addr ==
		       ((const struct sockaddr_in *)b)->sin_addr.s_addr;
	return !memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr,
		       &((const struct sockaddr_in6 *)b)->sin6_addr, 16);
}

/* Records each IP address once, whatever its ports. */
static void place_addresses(struct place *p, const struct place_opts *o)
{
	for (unsigned i = 0; i < o->po_naddrs; i++) {
		unsigned k = 0;

		while (k < p->pa_naddrs && !same_ip(o->po_addr[i], &p->pa_ss[k]))
			k++;
		if (k < p->pa_naddrs)
			continue;
		p->pa_ss[k] = *o->po_addr[i];
		p->pa_addr[k] = (struct topo_place){.pl_node = -1};
		if (p->pa_topo)
			topo_place_addr(p->pa_topo, (const struct sockaddr *)&p->pa_ss[k],
					&p->pa_addr[k]);
		p->pa_naddrs++;
	}
}

void place_order(const struct place *p, const struct sockaddr_storage *addr, unsigned n,
		 unsigned *order)
{
	struct topo_place pl[PLACE_MAX_ADDRS];
	size_t by[PLACE_MAX_ADDRS];
	unsigned known = 0;

	for (unsigned i = 0; i < p->pa_nstores; i++)
		known += p->pa_store[i].pl_n > 0;
	for (unsigned i = 0; i < n; i++)
		order[i] = i;
	/* There is nothing to sort by. */
	if (!p->pa_topo || !p->pa_order || !known || n < 2 || n > PLACE_MAX_ADDRS)
		return;
	for (unsigned i = 0; i < n; i++)
		topo_place_addr(p->pa_topo, (const struct sockaddr *)&addr[i], &pl[i]);
	topo_rank(p->pa_topo, p->pa_store, p->pa_nstores, pl, n, by);
	for (unsigned i = 0; i < n; i++)
		order[i] = (unsigned)by[i];
}

/* ---- which threads serve which address ---- */

static int place_entry_cmp(const void *a, const void *b)
{
	return memcmp(((const struct entry *)a)->en_ip, ((const struct entry *)b)->en_ip, 16);
}

static struct group *group_of(struct place *p, uint64_t threads)
{
	unsigned i = 0;

	while (i < p->pa_ngroups && p->pa_group[i].gr_threads != threads)
		i++;
	if (i == p->pa_ngroups)
		p->pa_group[p->pa_ngroups++].gr_threads = threads;
	return &p->pa_group[i];
}

static int place_table(struct place *p)
{
	const struct topo *t = topo_of(p);
	struct topo_place none = {.pl_node = -1}, pl = none;

	p->pa_entry = calloc(t->t_naddr + 1, sizeof(*p->pa_entry));
	p->pa_group = calloc(t->t_naddr + 1, sizeof(*p->pa_group));
	if (!p->pa_entry || !p->pa_group)
		return -ENOMEM;
	group_of(p, topo_plan_serves(t, &p->pa_plan, &none));
	for (size_t i = 0; i < t->t_naddr && p->pa_plan.tp_bound; i++) {
		struct entry *en = &p->pa_entry[p->pa_nentries++];

		topo_place_net(t, t->t_net[t->t_addr[i].a_net].n_name, &pl);
		memcpy(en->en_ip, t->t_addr[i].a_ip, 16);
		en->en_group = group_of(p, topo_plan_serves(t, &p->pa_plan, &pl));
	}
	qsort(p->pa_entry, p->pa_nentries, sizeof(*p->pa_entry), place_entry_cmp);
	return 0;
}

unsigned place_deal(const struct sockaddr *local, void *place)
{
	struct place *p = place;
	struct entry key = {.en_ip = {[10] = 0xff, [11] = 0xff}}, *en;
	struct group *g;
	uint64_t left;
	unsigned thread;

	if (local->sa_family == AF_INET)
		memcpy(key.en_ip + 12, &((const struct sockaddr_in *)local)->sin_addr, 4);
	else
		memcpy(key.en_ip, &((const struct sockaddr_in6 *)local)->sin6_addr, 16);
	en = bsearch(&key, p->pa_entry, p->pa_nentries, sizeof(key), place_entry_cmp);
	g = en ? en->en_group : p->pa_group;
	left = g->gr_threads;
	for (unsigned skip =
		     atomic_fetch_add(&g->gr_next, 1) % (unsigned)__builtin_popcountll(left);
	     skip; skip--)
		left &= left - 1;
	thread = (unsigned)__builtin_ctzll(left);
	metric_add(p->pa_dealt[p->pa_plan.tp_thread[thread]], 1);
	return thread;
}

/* ---- making the plan ---- */

static void metrics_make(struct place *p)
{
	char label[32];

	for (unsigned i = 0; i < p->pa_plan.tp_nnodes; i++) {
		if (p->pa_plan.tp_node[i].pn_id < 0)
			snprintf(label, sizeof(label), "node=\"any\"");
		else
			snprintf(label, sizeof(label), "node=\"%d\"", p->pa_plan.tp_node[i].pn_id);
		p->pa_dealt[i] = metric_counter(
			"weft_ds_node_connections_total",
			"Connections that were given to threads of this NUMA node.", label);
	}
}

int place_make(struct place **out, const struct place_opts *o, char *err, size_t errlen)
{
	const struct conf *c = o->po_conf;
	struct place *p = calloc(1, sizeof(*p));
	const struct topo *t;
	struct topo_wish w;
	bool off = strcmp(conf_str(c, "ds.placement"), "off") == 0;
	int e;

	if (!p) {
		snprintf(err, errlen, "%s", strerror(ENOMEM));
		return -ENOMEM;
	}
	p->pa_order = strcmp(conf_str(c, "ds.order"), "topology") == 0;
	p->pa_paper = o->po_paper;
	e = topology(p, c, err, errlen);
	if (!e)
		e = processors(p, c, err, errlen);
	if (!e)
		e = stores(p, c, err, errlen);
	if (e)
		return e; /* the process ends */
	place_addresses(p, o);
	t = topo_of(p);
	w = (struct topo_wish){
		.tw_cpus = p->pa_cpus,
		.tw_nthreads = o->po_nthreads,
		.tw_store = p->pa_store,
		.tw_nstores = p->pa_nstores,
		.tw_addr = p->pa_addr,
		.tw_naddrs = p->pa_naddrs,
	};
	if (off) {
		t = &nothing;
		w.tw_nstores = w.tw_naddrs = 0;
	}
	topo_plan(t, &w, &p->pa_plan);
	metrics_make(p);
	if (place_table(p)) {
		snprintf(err, errlen, "%s", strerror(ENOMEM));
		return -ENOMEM;
	}
	*out = p;
	return 0;
}

unsigned place_nodes(const struct place *p)
{
	return p->pa_plan.tp_bound ? p->pa_plan.tp_nnodes : 1;
}

/* ---- applying the plan ---- */

static void run_on(const cpu_set_t *cpus)
{
	static _Atomic bool said;

	if (sched_setaffinity(0, sizeof(*cpus), cpus) && !atomic_exchange(&said, true))
		log_warn("placement: cannot bind threads to processors: %s", strerror(errno));
}

static const struct topo_plan_node *node_of(const struct place *p, unsigned thread)
{
	return &p->pa_plan.tp_node[p->pa_plan.tp_thread[thread]];
}

void place_anywhere(const struct place *p)
{
	if (p->pa_plan.tp_bound || p->pa_narrow)
		run_on(&p->pa_cpus);
}

void place_thread(const struct place *p, unsigned i)
{
	if (p->pa_plan.tp_bound)
		run_on(&node_of(p, i)->pn_cpus);
}

void place_stores(const struct place *p)
{
	cpu_set_t all, one;

	CPU_ZERO(&all);
	for (unsigned i = 0; i < p->pa_nstores && p->pa_plan.tp_bound; i++) {
		topo_cpus(p->pa_topo, &p->pa_store[i], &one);
		CPU_OR(&all, &all, &one);
	}
	CPU_AND(&all, &all, &p->pa_cpus);
	if (CPU_COUNT(&all))
		run_on(&all);
}

static int int_cmp(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

void place_pool(const struct place *p)
{
	int nodes[POOL_NODES];

	/* Not bound: if the machine has several nodes and the daemon may use one, take that node's
	 * memory. */
	if (!p->pa_plan.tp_bound && (topo_of(p)->t_nnode < 2 || p->pa_plan.tp_node[0].pn_id < 0))
		return;
	for (unsigned i = 0; i < p->pa_plan.tp_nnodes; i++)
		nodes[i] = p->pa_plan.tp_node[i].pn_id;
	qsort(nodes, p->pa_plan.tp_nnodes, sizeof(*nodes), int_cmp);
	pool_use_nodes(nodes, (int)p->pa_plan.tp_nnodes);
}

void place_loop(const struct place *p, unsigned i, struct loop *l)
{
	if (p->pa_plan.tp_bound)
		pool_home(l, node_of(p, i)->pn_id);
}

/* ---- reporting the plan ---- */

static void threads_text(uint64_t threads, char *out, size_t room)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	for (; threads; threads &= threads - 1)
		CPU_SET(__builtin_ctzll(threads), &set);
	topo_cpulist(&set, out, room);
}

void place_log(const struct place *p)
{
	char threads[200], cpus[400];

	for (unsigned i = 0; i < p->pa_plan.tp_nnodes; i++) {
		const struct topo_plan_node *n = &p->pa_plan.tp_node[i];

		threads_text(n->pn_threads, threads, sizeof(threads));
		topo_cpulist(&n->pn_cpus, cpus, sizeof(cpus));
		if (p->pa_plan.tp_bound)
			log_info("placement: NUMA node %d: threads %s on processors %s; %u stores "
				 "and %u addresses are near it",
				 n->pn_id, threads, cpus, n->pn_nstores, n->pn_naddrs);
		else
			log_info("placement: threads %s on any of the processors %s, NUMA nodes "
				 "are not distinguished",
				 threads, cpus);
	}
}

static void node_text(int id, char out[16])
{
	snprintf(out, 16, id < 0 ? "-" : "%d", id);
}

static void print_nodes(const struct place *p, FILE *f)
{
	char threads[200], cpus[400], node[16];

	fprintf(f, "%-5s %-10s %-8s %s\n", "NODE", "THREADS", "BOUND", "PROCESSORS");
	for (unsigned i = 0; i < p->pa_plan.tp_nnodes; i++) {
		const struct topo_plan_node *n = &p->pa_plan.tp_node[i];

		node_text(n->pn_id, node);
		threads_text(n->pn_threads, threads, sizeof(threads));
		topo_cpulist(&n->pn_cpus, cpus, sizeof(cpus));
		fprintf(f, "%-5s %-10s %-8s %s\n", node, threads,
			p->pa_plan.tp_bound ? "yes" : "no", cpus);
	}
}

static void print_stores(const struct place *p, FILE *f)
{
	char node[16];

	fprintf(f, "\n%-5s %-10s %s\n", "NODE", "DRIVES", "STORE");
	for (unsigned i = 0; i < p->pa_nstores; i++) {
		const struct topo_place *pl = &p->pa_store[i];
		char drives[256] = "";

		for (unsigned k = 0, len = 0; k < pl->pl_ndrives && len < sizeof(drives); k++)
			len += (unsigned)snprintf(drives + len, sizeof(drives) - len, "%s%s",
						  k ? "," : "",
						  p->pa_topo->t_dev[pl->pl_drive[k]].tdv_name);
		node_text(pl->pl_node, node);
		fprintf(f, "%-5s %-10s %s\n", node, *drives ? drives : "-", p->pa_dir[i]);
	}
}

/* The distance of pl to the farthest store. */
static enum topo_dist place_distance(const struct place *p, const struct topo_place *pl)
{
	enum topo_dist far = p->pa_nstores ? TOPO_PIX : TOPO_NONE;

	for (unsigned i = 0; i < p->pa_nstores; i++) {
		enum topo_dist d = topo_place_dist(topo_of(p), &p->pa_store[i], pl);

		far = d > far ? d : far;
	}
	return far;
}

static void print_addresses(const struct place *p, FILE *f)
{
	unsigned order[PLACE_MAX_ADDRS];
	char threads[200], node[16], text[INET6_ADDRSTRLEN];

	place_order(p, p->pa_ss, p->pa_naddrs, order);
	fprintf(f, "\n%-5s %-10s %-8s %s\n", "NODE", "THREADS", "CLASS", "ADDRESS");
	for (unsigned i = 0; i < p->pa_naddrs; i++) {
		const struct sockaddr_storage *ss = &p->pa_ss[order[i]];
		const struct topo_place *pl = &p->pa_addr[order[i]];
		bool v6 = ss->ss_family == AF_INET6;

		inet_ntop(ss->ss_family,
			  v6 ? (const void *)&((const struct sockaddr_in6 *)ss)->sin6_addr
			     : &((const struct sockaddr_in *)ss)->sin_addr,
			  text, sizeof(text));
		node_text(pl->pl_node, node);
		threads_text(topo_plan_serves(topo_of(p), &p->pa_plan, pl), threads,
			     sizeof(threads));
		fprintf(f, "%-5s %-10s %-8s %s\n", node, threads,
			topo_dist_name(place_distance(p, pl)), text);
	}
}

void place_print(const struct place *p, FILE *f)
{
	print_nodes(p, f);
	print_stores(p, f);
	print_addresses(p, f);
}
