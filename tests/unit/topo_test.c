/* SPDX-License-Identifier: Apache-2.0 */
/* Topology: distance classes, where stores and addresses are, what is ranked first, recorded trees
 * and damaged ones. */
#include "topo/topo.h"
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static char err[512];

static struct topo *load(const char *name)
{
	const char *top = getenv("top_srcdir");
	struct topo *t;
	char path[1024];

	snprintf(path, sizeof(path), "%s/tests/topo/%s.topo", top ? top : ".", name);
	ck_assert_msg(topo_open(&t, path, err, sizeof(err)) == 0, "%s", err);
	return t;
}

static struct topo *parse(const char *text)
{
	struct topo *t;

	ck_assert_msg(topo_parse(&t, text, strlen(text), "f", err, sizeof(err)) == 0, "%s", err);
	return t;
}

static void refused(const char *text, const char *what)
{
	struct topo *t = NULL;

	ck_assert_int_lt(topo_parse(&t, text, strlen(text), "f", err, sizeof(err)), 0);
	ck_assert_ptr_null(t);
	ck_assert_msg(strncmp(err, "f: ", 3) == 0 && strstr(err, what) && !strchr(err, '\n'), "%s",
		      err);
}

static size_t dev(const struct topo *t, const char *name)
{
	for (size_t i = 0; i < t->t_ndev; i++)
		if (!strcmp(t->t_dev[i].tdv_name, name))
			return i;
	ck_abort_msg("no %s", name);
}

static int pci(const struct topo *t, const char *name)
{
	for (size_t i = 0; i < t->t_npci; i++)
		if (!strcmp(t->t_pci[i].p_name, name))
			return (int)i;
	ck_abort_msg("no %s", name);
}

static const char *between(const struct topo *t, const char *a, const char *b)
{
	enum topo_dist d = topo_dev_dist(t, dev(t, a), dev(t, b));

	ck_assert_int_eq(d, topo_dev_dist(t, dev(t, b), dev(t, a)));
	return topo_dist_name(d);
}

/* "0000:1b:00.0 0000:9d:00.0" */
static const char *pcis(const struct topo *t, const struct topo_place *pl)
{
	static char out[1024];

	*out = 0;
	for (unsigned i = 0; i < pl->pl_n; i++)
		sprintf(out + strlen(out), "%s%s", i ? " " : "", t->t_pci[pl->pl_pci[i]].p_name);
	return out;
}

static const char *drives(const struct topo *t, const struct topo_place *pl)
{
	static char out[1024];

	*out = 0;
	for (unsigned i = 0; i < pl->pl_ndrives; i++)
		sprintf(out + strlen(out), "%s%s", i ? " " : "",
			t->t_dev[pl->pl_drive[i]].tdv_name);
	return out;
}

static struct topo_place block(const struct topo *t, const char *name)
{
	struct topo_place pl;

	ck_assert_int_eq(topo_place_block(t, name, &pl), 0);
	return pl;
}

static int addr(const struct topo *t, const char *ip, struct topo_place *pl)
{
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
	struct sockaddr_in v4 = {.sin_family = AF_INET};

	if (inet_pton(AF_INET6, ip, &v6.sin6_addr) == 1)
		return topo_place_addr(t, (void *)&v6, pl);
	ck_assert_int_eq(inet_pton(AF_INET, ip, &v4.sin_addr), 1);
	return topo_place_addr(t, (void *)&v4, pl);
}

/* ---- classes ---- */

/* A line of /bus/pci/devices. */
#define BUS(name, path) "\t" name " -> ../../.." path "\n"

START_TEST(classes_are_those_of_the_pcie_tree)
{
	static const char *const is[][3] = {
		{"nvme1", "nvme1", "X"},
		/* two ports of one switch; two functions of one card */
		{"nvme1", "nvme2", "PIX"},
		{"nvme1", "NIC2", "PIX"},
		{"GPU0", "NIC2", "PIX"},
		{"NIC4", "NIC5", "PIX"},
		/* the drives of the last switch are behind another one */
		{"nvme7", "nvme8", "PIX"},
		{"nvme7", "NIC7", "PXB"},
		{"nvme8", "GPU6", "PXB"},
		/* root ports of one host bridge */
		{"nvme0", "NIC0", "PHB"},
		/* host bridges of one socket, and of two */
		{"nvme1", "nvme3", "NODE"},
		{"nvme1", "NIC4", "NODE"},
		{"nvme1", "nvme5", "SYS"},
		{"GPU0", "GPU7", "SYS"},
	};
	struct topo *t = load("two-sockets");

	ck_assert_uint_eq(t->t_ndev, 9 + 10 + 8); /* the console is no GPU */
	for (size_t i = 0; i < sizeof(is) / sizeof(is[0]); i++)
		ck_assert_msg(!strcmp(between(t, is[i][0], is[i][1]), is[i][2]),
			      "%s %s: %s, not %s", is[i][0], is[i][1],
			      between(t, is[i][0], is[i][1]), is[i][2]);
	topo_free(t);
	t = load("storage");
	ck_assert_str_eq(between(t, "nvme3", "NIC0"), "PHB");
	ck_assert_str_eq(between(t, "nvme0", "NIC0"), "NODE");
	ck_assert_str_eq(t->t_dev[2].tdv_name, "nvme2"); /* not nvme10 */
	topo_free(t);
}
END_TEST

START_TEST(drives_over_a_network_are_where_their_card_is)
{
	struct topo *t = load("degraded");

	ck_assert_str_eq(between(t, "nvme1", "NIC0"), "PIX"); /* host_iface */
	ck_assert_str_eq(between(t, "nvme2", "NIC1"), "PIX"); /* src_addr */
	ck_assert_str_eq(between(t, "nvme3", "NIC0"), "PIX"); /* host_traddr */
	ck_assert_str_eq(between(t, "nvme1", "nvme3"), "PIX");
	ck_assert_str_eq(between(t, "nvme1", "NIC1"), "SYS");
	ck_assert_str_eq(between(t, "nvme4", "NIC0"), "-");
	ck_assert_str_eq(between(t, "nvme4", "nvme4"), "X");
	topo_free(t);
	t = load("vm");
	ck_assert_uint_eq(t->t_ndev, 1);
	ck_assert_int_eq(t->t_dev[0].tdv_pci, -1);
	ck_assert_str_eq(between(t, "NIC0", "NIC0"), "X");
	topo_free(t);
}
END_TEST

/* clang-format off */
#define NODES \
	"/devices/system/node/node0\n\tcpulist=0-1\n\tdistance=10 20\n" \
	"/devices/system/node/node1\n\tcpulist=2-3\n\tdistance=20 10\n"
#define TWO_BRIDGES \
	"weft-topo 1\n/bus/pci/devices\n" \
	BUS("0000:00:01.0", "/devices/pci0000:00/0000:00:01.0") \
	BUS("0000:80:01.0", "/devices/pci0000:80/0000:80:01.0") \
	BUS("0000:81:00.0", "/devices/pci0000:80/0000:80:01.0/0000:81:00.0")
/* Drives behind a volume management device, and a hypervisor's card. */
#define VMD "/devices/pci0000:64/0000:64:05.5/pci10000:e0/"
#define HV  "/devices/LNXSYSTM:00/VMBUS:00/8a2b/pci7870:00/7870:00:00.0"
#define DEEP \
	"weft-topo 1\n/bus/pci/devices\n" \
	BUS("0000:64:05.5", "/devices/pci0000:64/0000:64:05.5") \
	BUS("0000:64:02.0", "/devices/pci0000:64/0000:64:02.0") \
	BUS("10000:e0:02.0", VMD "10000:e0:02.0") \
	BUS("10000:e1:00.0", VMD "10000:e0:02.0/10000:e1:00.0") \
	BUS("10000:e0:03.0", VMD "10000:e0:03.0") \
	BUS("10000:e2:00.0", VMD "10000:e0:03.0/10000:e2:00.0") \
	BUS("7870:00:00.0", HV) \
	HV "\n\tnuma_node=1\n\tclass=0x020000\n" \
	"/class/net\n\teth0 -> ../.." HV "/net/eth0\n"
/* clang-format on */

START_TEST(a_node_that_is_not_known_is_far_unless_there_is_only_one)
{
	struct topo *t = parse(TWO_BRIDGES NODES);

	ck_assert_int_eq(topo_pci_dist(t, pci(t, "0000:00:01.0"), pci(t, "0000:81:00.0")),
			 TOPO_SYS);
	ck_assert_int_eq(topo_pci_dist(t, pci(t, "0000:80:01.0"), pci(t, "0000:81:00.0")),
			 TOPO_PIX);
	topo_free(t);
	/* A device is where the bridge above it is. */
	t = parse(TWO_BRIDGES NODES "/devices/pci0000:00/0000:00:01.0\n"
				    "\tnuma_node=1\n"
				    "/devices/pci0000:80/0000:80:01.0\n"
				    "\tnuma_node=1\n");
	ck_assert_int_eq(t->t_pci[pci(t, "0000:81:00.0")].p_node, 1);
	ck_assert_int_eq(topo_pci_dist(t, pci(t, "0000:00:01.0"), pci(t, "0000:81:00.0")),
			 TOPO_NODE);
	topo_free(t);
	t = parse(TWO_BRIDGES "/devices/system/node/node3\n\tcpulist=0-1\n");
	ck_assert_int_eq(t->t_pci[pci(t, "0000:81:00.0")].p_node, 3);
	ck_assert_int_eq(topo_pci_dist(t, pci(t, "0000:00:01.0"), pci(t, "0000:81:00.0")),
			 TOPO_NODE);
	topo_free(t);
	t = parse(TWO_BRIDGES);
	ck_assert_int_eq(topo_pci_dist(t, pci(t, "0000:00:01.0"), pci(t, "0000:81:00.0")),
			 TOPO_NODE);
	topo_free(t);
}
END_TEST

START_TEST(a_host_bridge_may_stand_deep_in_the_tree)
{
	struct topo *t = parse(DEEP NODES);
	int a = pci(t, "10000:e1:00.0"), b = pci(t, "10000:e2:00.0");

	ck_assert_int_eq(topo_pci_dist(t, a, b), TOPO_PIX);
	ck_assert_int_eq(topo_pci_dist(t, a, pci(t, "0000:64:02.0")), TOPO_PHB);
	ck_assert_int_eq(topo_pci_dist(t, a, pci(t, "7870:00:00.0")), TOPO_SYS);
	ck_assert_int_eq(t->t_dev[0].tdv_pci, pci(t, "7870:00:00.0"));
	topo_free(t);
}
END_TEST

START_TEST(gpus_are_told_by_class_and_consoles_are_none)
{
	static const struct {
		const char *class, *vendor;
		size_t n;
	} of[] = {{"0x030000", "0x10de", 1}, {"0x030000", "0x1002", 1}, {"0x030000", "0x1a03", 0},
		  {"0x030200", "0x1234", 1}, {"0x120000", "0x1da3", 1}, {"0x040300", "0x10de", 0},
		  {"0x060400", "0x10de", 0}, {"", "0x10de", 0}};

	for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
		char text[512];
		struct topo *t;

		sprintf(text,
			"weft-topo 1\n"
			"/bus/pci/devices\n"
			"\t0000:00:01.0 -> ../../../devices/pci0000:00/0000:00:01.0\n"
			"/devices/pci0000:00/0000:00:01.0\n"
			"\tclass=%s\n"
			"\tvendor=%s\n",
			of[i].class, of[i].vendor);
		t = parse(text);
		ck_assert_msg(t->t_ndev == of[i].n, "%s %s", of[i].class, of[i].vendor);
		topo_free(t);
	}
}
END_TEST

START_TEST(links_are_degraded_when_both_ends_can_do_more)
{
	struct topo_link gen3 = {80, 16}, gen1 = {25, 1};
	struct topo *t = load("degraded");
	const struct topo_pci *p;

	ck_assert_uint_eq(topo_link_mbps(&gen3), 126030);
	ck_assert_uint_eq(topo_link_mbps(&gen1), 2000);
	p = &t->t_pci[pci(t, "0000:01:00.0")];
	ck_assert(topo_degraded(p, &t->t_pci[p->p_parent]));
	p = &t->t_pci[pci(t, "0000:18:00.0")];
	ck_assert(topo_degraded(p, &t->t_pci[p->p_parent]));
	/* A fast drive in a slow slot does what it can. */
	p = &t->t_pci[pci(t, "0000:02:00.0")];
	ck_assert(!topo_degraded(p, &t->t_pci[p->p_parent]));
	ck_assert(topo_degraded(p, NULL));
	topo_free(t);
	/* An idle GPU slows its link. */
	t = load("two-sockets");
	p = &t->t_pci[pci(t, "0000:2a:00.0")];
	ck_assert_uint_eq(p->p_link.l_speed, 25);
	ck_assert(!topo_degraded(p, &t->t_pci[p->p_parent]));
	topo_free(t);
}
END_TEST

/* ---- places ---- */

START_TEST(a_store_is_where_its_drives_are)
{
	struct topo *t = load("two-sockets");
	struct topo_place pl;

	/* a volume on a partition; RAID over both sockets */
	pl = block(t, "dm-0");
	ck_assert_str_eq(pcis(t, &pl), "0000:03:00.0");
	ck_assert_str_eq(drives(t, &pl), "nvme0");
	ck_assert_int_eq(pl.pl_node, 0);
	pl = block(t, "md127");
	ck_assert_str_eq(pcis(t, &pl), "0000:1b:00.0 0000:9d:00.0");
	ck_assert_int_eq(pl.pl_node, -1);
	ck_assert_int_eq(topo_place_number(t, makedev(259, 2), &pl), 0);
	ck_assert_str_eq(drives(t, &pl), "nvme0");
	ck_assert_int_eq(topo_place_number(t, makedev(259, 999), &pl), -ENOENT);
	ck_assert_int_eq(topo_place_number(t, makedev(0, 0), &pl), -ENOENT);
	ck_assert_int_eq(topo_place_block(t, "sda", &pl), -ENOENT);
	ck_assert_uint_eq(pl.pl_n, 0);
	topo_free(t);
	/* native multipath */
	t = load("storage");
	pl = block(t, "nvme11n1");
	ck_assert_str_eq(pcis(t, &pl), "0000:63:00.0");
	/* The paths below have no number. */
	ck_assert_int_eq(topo_place_number(t, makedev(0, 0), &pl), -ENOENT);
	topo_free(t);
	t = load("degraded");
	pl = block(t, "nvme3n1");
	ck_assert_str_eq(drives(t, &pl), "nvme3 nvme4");
	ck_assert_str_eq(pcis(t, &pl), "0000:18:00.0");
	/* device mapper's */
	pl = block(t, "dm-0");
	ck_assert_str_eq(drives(t, &pl), "nvme1 nvme2");
	ck_assert_str_eq(pcis(t, &pl), "0000:18:00.0 0000:86:00.0");
	topo_free(t);
	t = load("vm");
	pl = block(t, "vda");
	ck_assert_uint_eq(pl.pl_n, 0);
	ck_assert_int_eq(pl.pl_node, -1);
	topo_free(t);
}
END_TEST

START_TEST(a_namespace_whose_paths_are_not_shown_has_its_subsystems_controllers)
{
	struct topo *t =
		parse("weft-topo 1\n"
		      "/class/nvme\n"
		      "\tnvme0 -> ../../devices/a/nvme0\n"
		      "\tnvme7 -> ../../devices/b/nvme7\n"
		      "\tnvme8 -> ../../devices/c/nvme8\n"
		      "/class/block\n"
		      "\tnvme0n1 -> ../../devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1\n"
		      "/devices/virtual/nvme-subsystem/nvme-subsys0\n"
		      "\tnvme0 -> ../../../a/nvme0\n"
		      "\tnvme7 -> ../../../b/nvme7\n");
	struct topo_place pl = block(t, "nvme0n1");

	ck_assert_str_eq(drives(t, &pl), "nvme0 nvme7");
	topo_free(t);
}
END_TEST

START_TEST(paths_of_this_machine_lead_to_block_devices_or_to_none)
{
	struct topo *t;
	struct topo_place pl;
	struct stat st;

	ck_assert_msg(topo_open(&t, NULL, err, sizeof(err)) == 0, "%s", err);
	ck_assert_uint_gt(t->t_naddr, 0);
	ck_assert_int_eq(topo_place_path(t, "/proc", &pl), -ENOENT);
	ck_assert_int_eq(topo_place_path(t, "/no such place", &pl), -ENOENT);
	ck_assert_int_eq(topo_place_path(t, "/proc/self/exe/x", &pl), -ENOTDIR);
	ck_assert_uint_eq(pl.pl_n, 0);
	/* A folder means what it lies on: on most machines this one lies on a disk. */
	ck_assert_int_eq(stat(".", &st), 0);
	ck_assert_int_eq(topo_place_path(t, ".", &pl), topo_place_number(t, st.st_dev, &pl));
	/* A device's file means the device, not what the file lies on. */
	for (size_t i = 0; i < t->t_nblock && t->t_block[i].b_major; i++) {
		struct topo_place disk = block(t, t->t_block[i].b_name);
		char node[] = "/dev/shm/weft-topo-XXXXXX";

		ck_assert_ptr_nonnull(mkdtemp(node));
		rmdir(node);
		if (mknod(node, S_IFBLK | 0600,
			  makedev(t->t_block[i].b_major, t->t_block[i].b_minor)))
			break;
		ck_assert_int_eq(topo_place_path(t, node, &pl), 0);
		unlink(node);
		ck_assert(pl.pl_n == disk.pl_n && (!pl.pl_n || pl.pl_pci[0] == disk.pl_pci[0]));
	}
	topo_free(t);
}
END_TEST

START_TEST(an_address_is_where_its_cards_are)
{
	struct topo *t = load("two-sockets");
	struct topo_place pl;

	ck_assert_int_eq(addr(t, "10.1.0.12", &pl), 0);
	ck_assert_str_eq(pcis(t, &pl), "0000:b8:00.0");
	ck_assert_int_eq(pl.pl_node, 1);
	ck_assert_uint_eq(pl.pl_mbps, 200000);
	ck_assert_int_eq(addr(t, "fd00:1::11", &pl), 0);
	ck_assert_str_eq(pcis(t, &pl), "0000:38:00.0");
	ck_assert_int_eq(addr(t, "::ffff:10.2.0.11", &pl), 0);
	ck_assert_str_eq(pcis(t, &pl), "0000:38:00.1");
	/* a bridge on a VLAN on a bond */
	ck_assert_int_eq(addr(t, "192.168.100.5", &pl), 0);
	ck_assert_str_eq(pcis(t, &pl), "0000:02:00.0 0000:02:00.1");
	ck_assert_uint_eq(pl.pl_mbps, 20000);
	/* an address that is nowhere, and one that nobody has */
	ck_assert_int_eq(addr(t, "127.0.0.1", &pl), 0);
	ck_assert_uint_eq(pl.pl_n, 0);
	ck_assert_int_eq(addr(t, "10.1.0.13", &pl), -ENOENT);
	ck_assert_int_eq(addr(t, "0.0.0.0", &pl), -ENOENT);
	ck_assert_int_eq(topo_place_net(t, "bond0.100", &pl), 0);
	ck_assert_uint_eq(pl.pl_n, 2);
	ck_assert_int_eq(topo_place_net(t, "eth99", &pl), -ENOENT);
	topo_free(t);
	/* A slot narrower than the port is what counts. */
	t = load("degraded");
	ck_assert_int_eq(addr(t, "10.9.0.1", &pl), 0);
	ck_assert_uint_eq(pl.pl_mbps, 63015);
	topo_free(t);
}
END_TEST

START_TEST(software_rdma_belongs_to_the_card_below)
{
	struct topo *t = parse("weft-topo 1\n"
			       "/bus/pci/devices\n"
			       "\t0000:00:01.0 -> ../../../devices/pci0000:00/0000:00:01.0\n"
			       "/class/net\n"
			       "\teth0 -> ../../devices/pci0000:00/0000:00:01.0/net/eth0\n"
			       "/class/infiniband\n"
			       "\trxe0 -> ../../devices/virtual/infiniband/rxe0\n"
			       "\tsiw0 -> ../../devices/virtual/infiniband/siw0\n"
			       "/devices/virtual/infiniband/rxe0\n"
			       "\tparent=eth0\n"
			       "/devices/virtual/infiniband/rxe0/ports/1\n"
			       "\tstate=4: ACTIVE\n"
			       "/devices/virtual/infiniband/siw0/ports/1\n"
			       "\tstate=1: DOWN\n"
			       "/devices/virtual/infiniband/siw0/ports/1/gid_attrs/ndevs\n"
			       "\t0=eth0\n");

	ck_assert_uint_eq(t->t_nrdma, 2);
	ck_assert_uint_eq(t->t_ndev, 1);
	ck_assert_int_eq(t->t_rdma[0].r_dev, 0);
	ck_assert_int_eq(t->t_rdma[1].r_dev, 0);
	ck_assert(t->t_rdma[0].r_active && !t->t_rdma[1].r_active);
	topo_free(t);
}
END_TEST

/* ---- ranks ---- */

/* The order of some NICs for a store, as text. */
static const char *ranked(const struct topo *t, const struct topo_place *store, const char *names)
{
	static char out[256];
	char copy[256], *list[16], *save;
	struct topo_place cand[16];
	size_t n = 0, order[16];

	strcpy(copy, names);
	for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
		topo_place_dev(t, dev(t, w), &cand[n]);
		list[n++] = w;
	}
	topo_rank(t, store, 1, cand, n, order);
	*out = 0;
	for (size_t i = 0; i < n; i++)
		sprintf(out + strlen(out), "%s%s", i ? " " : "", list[order[i]]);
	return out;
}

START_TEST(the_nearest_card_is_first_then_the_fastest)
{
	struct topo *t = load("two-sockets");
	struct topo_place pl = block(t, "nvme1n1");

	ck_assert_str_eq(ranked(t, &pl, "NIC9 NIC8 NIC7 NIC6 NIC5 NIC4 NIC3 NIC2 NIC1 NIC0"),
			 "NIC2 NIC3 NIC5 NIC4 NIC1 NIC0 NIC7 NIC6 NIC8 NIC9");
	/* nearer beats faster */
	pl = block(t, "nvme0n1");
	ck_assert_str_eq(ranked(t, &pl, "NIC2 NIC0"), "NIC0 NIC2");
	pl = block(t, "nvme7n1");
	ck_assert_str_eq(ranked(t, &pl, "NIC6 NIC8 NIC7"), "NIC7 NIC6 NIC8");
	/* drives at both sockets: one is near to each, and none is nearest */
	pl = block(t, "md127");
	ck_assert_str_eq(ranked(t, &pl, "NIC0 NIC8 NIC3 NIC6 NIC2"), "NIC6 NIC2 NIC3 NIC8 NIC0");
	topo_free(t);
	t = load("degraded");
	pl = block(t, "dm-0");
	ck_assert_str_eq(ranked(t, &pl, "NIC0 NIC1"), "NIC1 NIC0"); /* NIC0's slot is narrow */
	pl = block(t, "nvme1n1");
	ck_assert_str_eq(ranked(t, &pl, "NIC1 NIC0"), "NIC0 NIC1");
	topo_free(t);
}
END_TEST

START_TEST(what_is_not_known_is_last_and_keeps_its_order)
{
	struct topo *t = load("two-sockets");
	struct topo_place store = block(t, "nvme1n1"), none = {.pl_node = -1}, cand[4];
	size_t order[4];

	cand[0] = cand[2] = none;
	topo_place_dev(t, dev(t, "NIC9"), &cand[1]);
	topo_place_dev(t, dev(t, "NIC2"), &cand[3]);
	topo_rank(t, &store, 1, cand, 4, order);
	ck_assert(order[0] == 3 && order[1] == 1 && order[2] == 0 && order[3] == 2);
	/* Of a store nothing is known: the fastest first. */
	topo_rank(t, &none, 1, cand, 4, order);
	ck_assert(order[0] == 3 && order[1] == 0 && order[2] == 1 && order[3] == 2);
	topo_rank(t, &store, 1, NULL, 0, NULL);
	ck_assert_int_eq(topo_place_dist(t, &store, &none), TOPO_NONE);
	topo_free(t);
}
END_TEST

/* A ring of three nodes with processors, and memory without any near the third; a card at each. */
/* clang-format off */
#define QUAD(n, list, far)                                                                         \
	"/devices/system/node/node" n "\n\tcpulist=" list "\n\tdistance=" far "\n"
#define CARD(n) \
	"/devices/pci0000:" n "0/0000:" n "0:01.0\n\tclass=0x020000\n\tnuma_node=" n "\n" \
	"/devices/pci0000:" n "0/0000:" n "0:01.0/net/eth" n "\n\tspeed=100000\n"
static const char quad[] =
	"weft-topo 1\n/bus/pci/devices\n"
	BUS("0000:00:01.0", "/devices/pci0000:00/0000:00:01.0")
	BUS("0000:10:01.0", "/devices/pci0000:10/0000:10:01.0")
	BUS("0000:20:01.0", "/devices/pci0000:20/0000:20:01.0")
	BUS("0000:30:01.0", "/devices/pci0000:30/0000:30:01.0")
	CARD("0") CARD("1") CARD("2") CARD("3")
	"/class/net\n"
	"\teth0 -> ../../devices/pci0000:00/0000:00:01.0/net/eth0\n"
	"\teth1 -> ../../devices/pci0000:10/0000:10:01.0/net/eth1\n"
	"\teth2 -> ../../devices/pci0000:20/0000:20:01.0/net/eth2\n"
	"\teth3 -> ../../devices/pci0000:30/0000:30:01.0/net/eth3\n"
	QUAD("0", "0-3", "10 31 21 41")
	QUAD("1", "4-7", "31 10 21 31")
	QUAD("2", "8-11", "21 21 10 17")
	QUAD("3", "", "41 31 17 10")
	"/devices/system/cpu\n\tonline=0-2,4-11\n";
/* clang-format on */

START_TEST(of_other_nodes_the_nearer_is_better)
{
	struct topo *t = parse(quad);
	struct topo_place pl;

	topo_place_dev(t, dev(t, "NIC0"), &pl);
	ck_assert_str_eq(ranked(t, &pl, "NIC3 NIC1 NIC2"), "NIC2 NIC1 NIC3");
	topo_free(t);
}
END_TEST

static int cpus(const struct topo *t, const char *name, int first)
{
	struct topo_place pl = {.pl_node = -1};
	cpu_set_t set;
	int n;

	if (*name)
		topo_place_dev(t, dev(t, name), &pl);
	n = topo_cpus(t, &pl, &set);
	ck_assert_int_eq(n, CPU_COUNT(&set));
	ck_assert(CPU_ISSET((size_t)first, &set));
	return n;
}

START_TEST(processors_are_those_of_the_node_that_are_online)
{
	struct topo *t = parse(quad);

	ck_assert_int_eq(cpus(t, "NIC0", 0), 3);
	ck_assert_int_eq(cpus(t, "NIC1", 4), 4);
	ck_assert_int_eq(cpus(t, "NIC3", 8), 4); /* node 3 has none: 2 is nearest */
	ck_assert_int_eq(cpus(t, "", 0), 11);
	topo_free(t);
	t = load("two-sockets");
	ck_assert_int_eq(cpus(t, "NIC8", 48), 96);
	topo_free(t);
	t = load("vm");
	ck_assert_int_eq(cpus(t, "NIC0", 3), 4);
	topo_free(t);
}
END_TEST

/* ---- recorded trees ---- */

static char *written(const struct topo *t, size_t *len)
{
	char *text = NULL;
	FILE *f = open_memstream(&text, len);

	ck_assert_int_eq(topo_record(t, f), 0);
	fclose(f);
	return text;
}

START_TEST(what_is_recorded_is_read_back)
{
	struct topo *t = load("two-sockets"), *again;
	size_t n, m;
	char *a = written(t, &n), *b;

	ck_assert_int_eq(topo_parse(&again, a, n, "f", err, sizeof(err)), 0);
	b = written(again, &m);
	ck_assert_uint_eq(n, m);
	ck_assert_int_eq(memcmp(a, b, n), 0);
	ck_assert_uint_eq(again->t_ndev, t->t_ndev);
	topo_free(t);
	topo_free(again);
	free(a);
	free(b);
	/* what a line cannot hold */
	t = parse("weft-topo 1\n"
		  "/class/nvme\n"
		  "\tnvme0 -> ../../devices/n\n"
		  "/devices/n\n"
		  "\tmodel=a\\\\b\\tc=d -> e\\n"
		  "f\n");
	ck_assert_str_eq(t->t_dev[0].tdv_model, "a\\b\tc=d -> e\nf");
	a = written(t, &n);
	ck_assert_ptr_nonnull(strstr(a, "\tmodel=a\\\\b\\tc=d -> e\\nf\n"));
	free(a);
	topo_free(t);
}
END_TEST

START_TEST(bad_recordings_are_told_with_their_line)
{
	char *big = malloc(64 + (17 << 20)), *at;

	refused("", "first line");
	refused("weft-topo 2\n", "first line");
	refused("weft-topo 1\nx\n", "line 2");
	refused("weft-topo 1\n\ta=b\n", "line 2");
	refused("weft-topo 1\n/a\n\tb\n", "line 3");
	refused("weft-topo 1\n/a\n\tb=c\\x\n", "line 3");
	refused("weft-topo 1\n/a\n\tb=c\\\n", "line 3");
	refused("weft-topo 1\n/a\n\t=c\n", "line 3");
	refused("weft-topo 1\n/a\n\t..=c\n", "line 3");
	refused("weft-topo 1\n/a\n\tb/c=d\n", "line 3");
	refused("weft-topo 1\n/a\n\tb -> \n", "line 3");
	refused("weft-topo 1\n/a/../b\n", "line 2");
	refused("weft-topo 1\n/a//b\n", "line 2");
	refused("weft-topo 1\n/\n", "line 2");
	refused("weft-topo 1\n/a\n\tb=1\n\tb=2\n", "/a/b is given twice");
	refused("weft-topo 1\n/a\n\tb=1\n/c\n\td=1\n/a\n\tb -> c\n", "/a/b is given twice");
	/* names, paths and contents that are too long */
	at = big + sprintf(big, "weft-topo 1\n/a\n\t");
	memset(at, 'x', 300);
	strcpy(at + 300, "=1\n");
	refused(big, "line 3");
	at = big + sprintf(big, "weft-topo 1\n");
	for (int i = 0; i < 1024; i++)
		at += sprintf(at, "/x");
	strcpy(at, "\n");
	refused(big, "line 2");
	at = big + sprintf(big, "weft-topo 1\n/a\n\tb=");
	memset(at, 'x', 4097);
	strcpy(at + 4097, "\n");
	refused(big, "line 3");
	/* too many, too much */
	at = big + sprintf(big, "weft-topo 1\n/a\n");
	for (int i = 0; i <= 1 << 18; i++)
		at += sprintf(at, "\t%d=\n", i);
	refused(big, "more than 262144 entries");
	at = big + sprintf(big, "weft-topo 1\n");
	memset(at, '\n', 16 << 20);
	at[16 << 20] = 0;
	refused(big, "16 MiB");
	at = big + sprintf(big, "weft-topo 1\n/class/block\n");
	for (int i = 0; i < 40000; i++)
		at += sprintf(at, "\tb%d -> /x\n", i);
	refused(big, "too many devices");
	free(big);
}
END_TEST

START_TEST(senseless_contents_are_not_known)
{
	struct topo *t = parse("weft-topo 1\n"
			       "# a comment\r\n"
			       "\n"
			       "/bus/pci/devices\r\n"
			       "\t0000:00:01.0 -> ../../../devices/p/0000:00:01.0\n"
			       "\tloop -> loop\n"
			       "\tup -> ../../../../../..\n"
			       "\tfile=1\n"
			       "\tout -> ../../../../x\n"
			       "\tsame -> ../../../devices/p/0000:00:01.0\n"
			       "/devices/p/0000:00:01.0\n"
			       "\tclass=zzz\n"
			       "\tvendor=0xfffffffffffffffffff\n"
			       "\tnuma_node=99999999999999999999\n"
			       "\tcurrent_link_speed=Unknown\n"
			       "\tcurrent_link_width=255\n"
			       "\tmax_link_speed=2000.0 GT/s\n"
			       "\tmax_link_width=-4\n"
			       "\tdriver=text\n"
			       "/class/net\n"
			       "\ta -> ../../devices/virtual/net/a\n"
			       "\tb -> ../../devices/virtual/net/b\n"
			       "/devices/virtual/net/a\n"
			       "\tlower_b -> ../b\n"
			       "\tlower_a -> ../a\n"
			       "\tlower_zz -> ../zz\n"
			       "\tspeed=4294967295\n"
			       "/devices/virtual/net/b\n"
			       "\tlower_a -> ../a\n"
			       "/class/block\n"
			       "\tx -> ../../devices/virtual/block/x\n"
			       "\ty -> ../../devices/virtual/block/y\n"
			       "/devices/virtual/block/x\n"
			       "\tdev=9:\n"
			       "\tsize=-1\n"
			       "/devices/virtual/block/x/slaves\n"
			       "\ty -> ../../y\n"
			       "/devices/virtual/block/y\n"
			       "\tdev=a:b\n"
			       "/devices/virtual/block/y/slaves\n"
			       "\tx -> ../../x\n"
			       "/devices/system/node/node0\n"
			       "\tcpulist=5-,,9-3,4294967295,0-99999999999\n"
			       "\tdistance=ten\n"
			       "/devices/system/node/nodeX\n"
			       "\tcpulist=1\n"
			       "/weft/addresses\n"
			       "\ta=1.2.3 ::g 300.1.1.1 1.2.3.4\n"
			       "\tzz=1.2.3.5\n");
	const struct topo_pci *p = &t->t_pci[pci(t, "0000:00:01.0")];
	struct topo_place pl;

	ck_assert(p->p_class == 0 && p->p_vendor == 0 && p->p_node == 0 /* there is only one */ &&
		  *p->p_driver == 0);
	ck_assert(p->p_link.l_speed == 0 && p->p_link.l_width == 0 && p->p_max.l_speed == 0 &&
		  p->p_max.l_width == 0);
	ck_assert_uint_eq(t->t_nnode, 1);
	ck_assert_uint_eq(t->t_naddr, 1);
	ck_assert_int_eq(topo_place_net(t, "a", &pl), 0);
	ck_assert_uint_eq(pl.pl_n, 0);
	ck_assert_int_eq(topo_place_block(t, "x", &pl), 0);
	ck_assert_uint_eq(pl.pl_n, 0);
	ck_assert_uint_eq(t->t_net[0].n_mbps, 0);
	topo_free(t);
}
END_TEST

/* ---- folders ---- */

static char dir[] = "/tmp/weft-topo-XXXXXX";

static void make_dirs(const char *path)
{
	char copy[1024];

	snprintf(copy, sizeof(copy), "%s", path);
	for (char *p = copy + 1; *p; p++)
		if (*p == '/') {
			*p = 0;
			mkdir(copy, 0700);
			*p = '/';
		}
}

static void put(const char *name, const char *content, size_t len)
{
	char path[1024];
	FILE *f;

	snprintf(path, sizeof(path), "%s%s", dir, name);
	make_dirs(path);
	f = fopen(path, "w");
	ck_assert_ptr_nonnull(f);
	fwrite(content, 1, len, f);
	fclose(f);
}

static void link_to(const char *name, const char *target)
{
	char path[1024];

	snprintf(path, sizeof(path), "%s%s", dir, name);
	make_dirs(path);
	ck_assert_int_eq(symlink(target, path), 0);
}

START_TEST(a_folder_that_was_tampered_with_gives_nothing_from_outside_and_ends)
{
	char *much = malloc(1 << 20), path[1024];
	struct topo *t;

	memset(much, 'm', 1 << 20);
	ck_assert_ptr_nonnull(mkdtemp(dir));
	/* a drive that is all right, but for a content that is too much, and one that is not text
	 */
	link_to("/bus/pci/devices/0000:00:01.0", "../../../devices/pci0000:00/0000:00:01.0");
	put("/devices/pci0000:00/0000:00:01.0/vendor", "0x144d\n", 7);
	put("/devices/pci0000:00/0000:00:01.0/device", "\0\0", 2);
	put("/devices/pci0000:00/0000:00:01.0/nvme/nvme0/model", much, 1 << 20);
	put("/devices/pci0000:00/0000:00:01.0/nvme/nvme0/state", "\033[2Jli\xffve\n", 10);
	link_to("/class/nvme/nvme0", "../../devices/pci0000:00/0000:00:01.0/nvme/nvme0");
	/* links that go out, in circles, or are in the middle of a path; a pipe; a device's name
	 * that is not printable */
	link_to("/devices/pci0000:00/0000:00:01.0/nvme/nvme0/transport", "/etc/hostname");
	link_to("/devices/pci0000:00/0000:00:01.0/nvme/nvme0/address", "../../vendor");
	link_to("/class/nvme/nvme1", "../../../../../../../../etc");
	link_to("/class/nvme/nvme2", "nvme2");
	link_to("/devices/here", "/etc");
	link_to("/class/nvme/nvme3", "../../devices/here/nvme3");
	link_to("/class/nvme/nvme\n4", "../../devices/pci0000:00/0000:00:01.0/nvme/nvme0");
	link_to("/class/nvme/nvme5", "../../devices/pci0000:00/0000:00:01.0/nvme/nvme0");
	link_to("/class/infiniband", "infiniband");
	link_to("/class/net/lo", "../../devices/virtual/net/lo");
	make_dirs(strcat(strcpy(path, dir), "/devices/pci0000:00/0000:00:01.0/numa_node"));
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	ck_assert_msg(topo_open(&t, dir, err, sizeof(err)) == 0, "%s", err);
	ck_assert_uint_eq(t->t_npci, 1);
	ck_assert_uint_eq(t->t_pci[0].p_vendor, 0x144d);
	ck_assert_uint_eq(t->t_pci[0].p_device, 0);
	ck_assert_int_eq(t->t_pci[0].p_node, -1);
	/* nvme0, nvme5, and three of which nothing is known; nvme1 leaves the tree only by its text
	 */
	for (size_t i = 0; i < t->t_ndev; i++) {
		ck_assert_str_eq(t->t_dev[i].tdv_transport, "");
		ck_assert_str_eq(t->t_dev[i].tdv_address, "");
	}
	ck_assert_uint_eq(strlen(t->t_dev[0].tdv_model), 4096);
	ck_assert_str_eq(t->t_dev[0].tdv_state, "?[2Jli?ve");
	ck_assert_str_eq(t->t_dev[0].tdv_name, "nvme0");
	ck_assert_str_eq(t->t_dev[t->t_ndev - 1].tdv_name, "nvme5");
	ck_assert_uint_eq(t->t_naddr, 0); /* those of this machine are not its own */
	topo_free(t);
	free(much);
	snprintf(path, sizeof(path), "rm -rf %s", dir);
	ck_assert_int_eq(system(path), 0);
	ck_assert_int_eq(topo_open(&t, dir, err, sizeof(err)), -ENOENT);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("topo");
	TCase *c = tcase_create("classes"), *p = tcase_create("places"), *r = tcase_create("ranks"),
	      *f = tcase_create("files");
	SRunner *run;
	int failed;

	tcase_add_test(c, classes_are_those_of_the_pcie_tree);
	tcase_add_test(c, drives_over_a_network_are_where_their_card_is);
	tcase_add_test(c, a_node_that_is_not_known_is_far_unless_there_is_only_one);
	tcase_add_test(c, a_host_bridge_may_stand_deep_in_the_tree);
	tcase_add_test(c, gpus_are_told_by_class_and_consoles_are_none);
	tcase_add_test(c, links_are_degraded_when_both_ends_can_do_more);
	tcase_add_test(p, a_store_is_where_its_drives_are);
	tcase_add_test(p, a_namespace_whose_paths_are_not_shown_has_its_subsystems_controllers);
	tcase_add_test(p, paths_of_this_machine_lead_to_block_devices_or_to_none);
	tcase_add_test(p, an_address_is_where_its_cards_are);
	tcase_add_test(p, software_rdma_belongs_to_the_card_below);
	tcase_add_test(r, the_nearest_card_is_first_then_the_fastest);
	tcase_add_test(r, what_is_not_known_is_last_and_keeps_its_order);
	tcase_add_test(r, of_other_nodes_the_nearer_is_better);
	tcase_add_test(r, processors_are_those_of_the_node_that_are_online);
	tcase_add_test(f, what_is_recorded_is_read_back);
	tcase_add_test(f, bad_recordings_are_told_with_their_line);
	tcase_add_test(f, senseless_contents_are_not_known);
	tcase_add_test(f, a_folder_that_was_tampered_with_gives_nothing_from_outside_and_ends);
	suite_add_tcase(s, c);
	suite_add_tcase(s, p);
	suite_add_tcase(s, r);
	suite_add_tcase(s, f);
	run = srunner_create(s);
	srunner_run_all(run, CK_ENV);
	failed = srunner_ntests_failed(run);
	srunner_free(run);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
