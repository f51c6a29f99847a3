/* SPDX-License-Identifier: Apache-2.0 */
/* topo_show.c - weft topo: shows the matrix, the devices and what is near a store, and records a
 * machine. See docs/weft.1 and docs/placement.md. */
#include "tools/topo_tool.h"
#include "tools/topo_show.h"
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

/* ---- shared with the JSON ---- */

bool show_namespace(const struct topo *t, size_t block, size_t dev)
{
	size_t own[TOPO_PLACE_MAX], n;

	if (t->t_block[block].b_hidden)
		return false;
	n = topo_controllers(t, block, own, TOPO_PLACE_MAX);
	for (size_t i = 0; i < n; i++)
		if (own[i] == dev)
			return true;
	return false;
}

bool show_within(const struct topo_place *pl, int pci)
{
	for (unsigned i = 0; i < pl->pl_n; i++)
		if (pl->pl_pci[i] == pci)
			return true;
	return false;
}

const char *show_ip(const struct topo_addr *a, char out[INET6_ADDRSTRLEN])
{
	bool v4 = IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)(const void *)a->a_ip);

	return inet_ntop(v4 ? AF_INET : AF_INET6, a->a_ip + (v4 ? 12 : 0), out, INET6_ADDRSTRLEN);
}

/* ---- words ---- */

/* Appends to a line that is bounded. */
static void topo_say(char *line, size_t room, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static void topo_say(char *line, size_t room, const char *fmt, ...)
{
	size_t len = strlen(line);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line + len, room - len, fmt, ap);
	va_end(ap);
}

/* 400G, 2.5G, 100M */
static const char *rate(uint64_t mbps, char out[24])
{
	if (!mbps)
		return "?";
	if (mbps < 1000)
		snprintf(out, 24, "%uM", (unsigned)mbps);
	else
		snprintf(out, 24, "%.*fG", mbps % 1000 >= 100 && mbps < 100000 ? 1 : 0,
			 (double)mbps / 1000);
	return out;
}

static const char *numa(int node, char out[16])
{
	snprintf(out, 16, node < 0 ? "-" : "%d", node);
	return out;
}

/* "16 GT/s x4"; "16 GT/s x2 of 32 GT/s x4 !": the mark says that both ends can do more. */
static void link_words(const struct topo *t, const struct topo_dev *d, char *out, size_t room)
{
	const struct topo_pci *p = d->tdv_pci < 0 ? NULL : &t->t_pci[d->tdv_pci];
	const struct topo_link *l = p ? &p->p_link : NULL;

	*out = 0;
	if (!p || (!l->l_speed && !l->l_width)) {
		topo_say(out, room, "-");
		return;
	}
	topo_say(out, room, "%g GT/s x%u", l->l_speed / 10.0, l->l_width);
	if ((p->p_max.l_speed && p->p_max.l_speed != l->l_speed) ||
	    (p->p_max.l_width && p->p_max.l_width != l->l_width))
		topo_say(out, room, " of %g GT/s x%u", p->p_max.l_speed / 10.0, p->p_max.l_width);
	if (topo_degraded(p, p->p_parent < 0 ? NULL : &t->t_pci[p->p_parent]))
		topo_say(out, room, " !");
}

static void nvme_words(const struct topo *t, size_t dev, char *out, size_t room)
{
	const struct topo_dev *d = &t->t_dev[dev];
	struct topo_place pl;

	topo_say(out, room, "%s", *d->tdv_model ? d->tdv_model : "?");
	if (d->tdv_pci < 0) {
		topo_say(out, room, ", %s", *d->tdv_transport ? d->tdv_transport : "?");
		topo_place_dev(t, dev, &pl);
		for (size_t i = 0; i < t->t_ndev; i++)
			if (t->t_dev[i].tdv_kind == TOPO_NIC &&
			    show_within(&pl, t->t_dev[i].tdv_pci))
				topo_say(out, room, " by %s", t->t_dev[i].tdv_name);
	}
	if (strcmp(d->tdv_state, "live") != 0)
		topo_say(out, room, ", %s", *d->tdv_state ? d->tdv_state : "state not known");
	for (size_t i = 0; i < t->t_nblock; i++)
		if (show_namespace(t, i, dev))
			topo_say(out, room, ", %s %.0fG", t->t_block[i].b_name,
				 (double)t->t_block[i].b_bytes / 1e9);
}

static void nic_words(const struct topo *t, size_t dev, char *out, size_t room)
{
	const char *comma = ": ";
	char r[24], ip[INET6_ADDRSTRLEN];

	for (size_t i = 0; i < t->t_nrdma; i++) {
		const struct topo_rdma *p = &t->t_rdma[i];

		if (p->r_dev != (int)dev)
			continue;
		topo_say(out, room, "%s%s/%u %s %s%s", comma, p->r_name, p->r_port,
			 *p->r_layer ? p->r_layer : "?", rate(p->r_mbps, r),
			 p->r_active ? "" : " not active");
		comma = ", ";
	}
	for (size_t i = 0; i < t->t_nnet; i++) {
		const struct topo_net *n = &t->t_net[i];

		if (n->n_dev != (int)dev)
			continue;
		topo_say(out, room, "%s%s", comma, n->n_name);
		if (n->n_mbps)
			topo_say(out, room, " %s", rate(n->n_mbps, r));
		topo_say(out, room, "%s", n->n_up ? "" : " not up");
		for (size_t k = 0; k < t->t_naddr; k++)
			if (t->t_addr[k].a_net == (int)i)
				topo_say(out, room, " %s", show_ip(&t->t_addr[k], ip));
		comma = ", ";
	}
}

static void topo_words(const struct topo *t, size_t dev, char *out, size_t room)
{
	const struct topo_dev *d = &t->t_dev[dev];
	const struct topo_pci *p = d->tdv_pci < 0 ? NULL : &t->t_pci[d->tdv_pci];
	const char *vendor = p ? topo_vendor(p->p_vendor) : NULL;

	*out = 0;
	if (d->tdv_kind == TOPO_NVME) {
		nvme_words(t, dev, out, room);
		return;
	}
	if (p)
		topo_say(out, room, "%s %04x:%04x", vendor ? vendor : "vendor", p->p_vendor,
			 p->p_device);
	else
		topo_say(out, room, "not on PCI");
	if (d->tdv_kind == TOPO_NIC)
		nic_words(t, dev, out, room);
}

/* ---- tables ---- */

static void matrix(const struct topo *t)
{
	int width = 5; /* NODE and a blank */

	for (size_t i = 0; i < t->t_ndev; i++)
		if ((int)strlen(t->t_dev[i].tdv_name) + 1 > width)
			width = (int)strlen(t->t_dev[i].tdv_name) + 1;
	printf("%-*s", width, "");
	for (size_t i = 0; i < t->t_ndev; i++)
		printf("%-*s", width, t->t_dev[i].tdv_name);
	printf("NUMA\n");
	for (size_t i = 0; i < t->t_ndev; i++) {
		struct topo_place pl;
		char n[16];

		printf("%-*s", width, t->t_dev[i].tdv_name);
		for (size_t k = 0; k < t->t_ndev; k++)
			printf("%-*s", width, topo_dist_name(topo_dev_dist(t, i, k)));
		topo_place_dev(t, i, &pl);
		printf("%s\n", numa(pl.pl_node, n));
	}
}

static void devices(const struct topo *t)
{
	char link[80], line[2048];
	bool marked = false;

	printf("\n%-8s %-13s %-28s %-12s %s\n", "DEVICE", "PCI", "LINK", "DRIVER", "WHAT");
	for (size_t i = 0; i < t->t_ndev; i++) {
		const struct topo_dev *d = &t->t_dev[i];
		const struct topo_pci *p = d->tdv_pci < 0 ? NULL : &t->t_pci[d->tdv_pci];

		link_words(t, d, link, sizeof(link));
		topo_words(t, i, line, sizeof(line));
		marked |= strchr(link, '!') != NULL;
		printf("%-8s %-13s %-28s %-12s %s\n", d->tdv_name, p ? p->p_name : "-", link,
		       p && *p->p_driver ? p->p_driver : "-", line);
	}
	if (marked)
		puts("!  the link is slower or narrower than both its ends support");
}

static void nodes(const struct topo *t)
{
	printf("\n%-5s %-28s %s\n", "NODE", "CPUS", "DISTANCE TO EACH NODE");
	for (size_t i = 0; i < t->t_nnode; i++) {
		printf("%-5d %-28s", t->t_node[i].o_id,
		       *t->t_node[i].o_cpulist ? t->t_node[i].o_cpulist : "-");
		for (size_t k = 0; k < t->t_nnode; k++)
			printf(" %u", t->t_node[i].o_distance[k]);
		putchar('\n');
	}
}

static void legend(void)
{
	puts("\nX     itself\n"
	     "PIX   at most one PCIe bridge (a switch counts as one)\n"
	     "PXB   several PCIe bridges, but no host bridge\n"
	     "PHB   a PCIe host bridge\n"
	     "NODE  two host bridges of one NUMA node\n"
	     "SYS   two NUMA nodes, or unknown nodes\n"
	     "-     the place of one of them in the PCIe tree is not known");
}

static void topo_table(const struct topo *t)
{
	if (t->t_ndev) {
		matrix(t);
		devices(t);
	} else {
		puts("No NVMe drive, network card or GPU was found.");
	}
	if (t->t_nnode)
		nodes(t);
	if (t->t_ndev)
		legend();
}

/* ---- near a store ---- */

/* Returns 0, or a negative errno after it has printed the message. */
static int near_find(const struct topo *t, const char *what, struct near *n)
{
	bool path = strchr(what, '/') != NULL;
	int rc = path ? topo_place_path(t, what, &n->ne_store)
		      : topo_place_block(t, what, &n->ne_store);
	size_t room = t->t_ndev + 1;
	cpu_set_t cpus;

	if (rc) {
		fprintf(stderr, "weft: %s: %s\n", what,
			rc == -ENOENT && !path ? "there is no such block device"
			: rc == -ENOENT
				? "it does not exist, or its file system is not on a block device"
				: strerror(-rc));
		return rc;
	}
	n->ne_what = what;
	n->ne_nics = calloc(room, sizeof(*n->ne_nics));
	n->ne_place = calloc(room, sizeof(*n->ne_place));
	n->ne_order = calloc(room, sizeof(*n->ne_order));
	if (!n->ne_nics || !n->ne_place || !n->ne_order)
		return -ENOMEM;
	for (size_t i = 0; i < t->t_ndev; i++) {
		if (t->t_dev[i].tdv_kind != TOPO_NIC)
			continue;
		topo_place_dev(t, i, &n->ne_place[n->ne_nnics]);
		n->ne_nics[n->ne_nnics++] = i;
	}
	topo_rank(t, &n->ne_store, 1, n->ne_place, n->ne_nnics, n->ne_order);
	topo_cpus(t, &n->ne_store, &cpus);
	topo_cpulist(&cpus, n->ne_cpus, sizeof(n->ne_cpus));
	return 0;
}

static void near_free(struct near *n)
{
	free(n->ne_nics);
	free(n->ne_place);
	free(n->ne_order);
}

static void near_table(const struct topo *t, const struct near *n)
{
	char line[2048], node[16], r[24];

	printf("%s\n  PCI   ", n->ne_what);
	for (unsigned i = 0; i < n->ne_store.pl_n; i++)
		printf("%s%s", i ? " " : "", t->t_pci[n->ne_store.pl_pci[i]].p_name);
	printf("%s\n  NVMe  ", n->ne_store.pl_n ? "" : "not known");
	for (unsigned i = 0; i < n->ne_store.pl_ndrives; i++)
		printf("%s%s", i ? " " : "", t->t_dev[n->ne_store.pl_drive[i]].tdv_name);
	printf("%s\n  NUMA  %s\n  CPUs  %s\n", n->ne_store.pl_ndrives ? "" : "-",
	       numa(n->ne_store.pl_node, node), n->ne_cpus);
	if (!n->ne_nnics)
		return;
	printf("\n%-6s %-5s %-5s %-7s %s\n", "NIC", "CLASS", "NUMA", "SPEED", "WHAT");
	for (size_t i = 0; i < n->ne_nnics; i++) {
		size_t k = n->ne_order[i];
		const struct topo_place *pl = &n->ne_place[k];

		topo_words(t, n->ne_nics[k], line, sizeof(line));
		printf("%-6s %-5s %-5s %-7s %s\n", t->t_dev[n->ne_nics[k]].tdv_name,
		       topo_dist_name(topo_place_dist(t, &n->ne_store, pl)),
		       numa(pl->pl_node, node), rate(pl->pl_mbps, r), line);
	}
}

/* ---- the command ---- */

static void topo_usage(FILE *f)
{
	fputs("usage: weft topo [--json] [--sysfs PATH] [--near STORE | --record FILE]\n"
	      "  --sysfs PATH   a recorded machine, or a folder like /sys\n"
	      "  --near STORE   show what is near a folder of this machine, or near a block "
	      "device\n"
	      "  --record FILE  write what weft topo reads to a file for --sysfs; - is "
	      "standard output\n",
	      f);
}

static int usage_error(const char *what)
{
	fprintf(stderr, "weft: %s\n", what);
	topo_usage(stderr);
	return EXIT_USAGE;
}

static int record(const struct topo *t, const char *path)
{
	bool out = !strcmp(path, "-");
	FILE *f = out ? stdout : fopen(path, "we");
	int rc = f ? topo_record(t, f) : -errno;

	if (f && !out && fclose(f) && !rc)
		rc = -errno;
	if (rc)
		fprintf(stderr, "weft: %s: %s\n", path, strerror(-rc));
	return rc ? EXIT_FAILED : EXIT_DONE;
}

static int print_json(json_t *j)
{
	int rc = j ? json_dumpf(j, stdout, JSON_INDENT(2)) : -1;

	putchar('\n');
	json_decref(j);
	return rc;
}

static int show(const struct topo *t, const char *what, bool json)
{
	struct near *n = calloc(1, sizeof(*n));
	int rc = n ? 0 : -ENOMEM, bad = 0;

	if (!rc && what)
		rc = near_find(t, what, n);
	if (rc == -ENOMEM)
		fprintf(stderr, "weft: out of memory\n");
	if (!rc && json)
		bad = print_json(what ? show_near_json(t, n) : show_json(t));
	else if (!rc && what)
		near_table(t, n);
	else if (!rc)
		topo_table(t);
	if (n)
		near_free(n);
	free(n);
	if (!rc && (bad || fflush(stdout) || ferror(stdout))) {
		fprintf(stderr, "weft: cannot write to standard output\n");
		rc = -EIO;
	}
	return rc ? EXIT_FAILED : EXIT_DONE;
}

int topo_command(int argc, char **argv, bool json)
{
	static const struct option options[] = {
		{"json", no_argument, NULL, 'j'},	{"sysfs", required_argument, NULL, 's'},
		{"near", required_argument, NULL, 'n'}, {"record", required_argument, NULL, 'r'},
		{"help", no_argument, NULL, 'h'},	{0}};
	const char *sysfs = NULL, *what = NULL, *file = NULL;
	struct topo *t;
	char err[512];
	int opt, rc;

	optind = 0; /* from the start */
	while ((opt = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (opt) {
		case 'j':
			json = true;
			break;
		case 's':
			sysfs = optarg;
			break;
		case 'n':
			what = optarg;
			break;
		case 'r':
			file = optarg;
			break;
		case 'h':
			topo_usage(stdout);
			return EXIT_DONE;
		default:
			topo_usage(stderr);
			return EXIT_USAGE;
		}
	}
	if (optind < argc)
		return usage_error("topo takes options only");
	if (what && file)
		return usage_error("--near and --record exclude each other");
	if (sysfs && what && strchr(what, '/'))
		return usage_error("--near with --sysfs takes the name of a block device, not a "
				   "path of this machine");
	if (topo_open(&t, sysfs, err, sizeof(err))) {
		fprintf(stderr, "weft: %s\n", err);
		return EXIT_FAILED;
	}
	rc = file ? record(t, file) : show(t, what, json);
	topo_free(t);
	return rc;
}
