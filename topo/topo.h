/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topo.h - where the machine's NVMe drives, network cards and GPUs are: PCIe tree, NUMA nodes, link
 * speeds, all from sysfs.
 *
 * A struct topo is a snapshot: it is read once, never changes, and any number of threads may use
 * it. It comes from the running machine's /sys, from a folder that looks like one, or from a
 * recorded tree (one text file, see docs/placement.md). The contents of sysfs are not trusted:
 * files may be missing, numbers senseless, links dead. A value that cannot be known is -1, 0 or "",
 * never NULL; only a tree that is too large or a recording that breaks its grammar is refused.
 * Reading a running machine's sysfs queries its drivers and can take milliseconds: not on a loop
 * thread.
 *
 * Strings belong to the topo and are printable ASCII (file contents: also tab and newline).
 */
#ifndef TOPO_TOPO_H
#define TOPO_TOPO_H
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/types.h>

/* How far two devices are apart, nearest first; the names are those of nvidia-smi. */
enum topo_dist {
	TOPO_SELF, /* X */
	TOPO_PIX,  /* at most one PCIe bridge; a switch counts as one */
	TOPO_PXB,  /* several bridges, no host bridge */
	TOPO_PHB,  /* a host bridge */
	TOPO_NODE, /* two host bridges of one NUMA node */
	TOPO_SYS,  /* two NUMA nodes, or nodes that are not known */
	TOPO_NONE, /* one of them has no place in the PCIe tree */
};
const char *topo_dist_name(enum topo_dist d);

struct topo_link {
	unsigned l_speed; /* tenths of GT/s; 0: not known */
	unsigned l_width; /* lanes; 0: not known */
};
/* The bandwidth of a link in Mb/s, without its encoding; 0: not known. */
uint64_t topo_link_mbps(const struct topo_link *l);

struct topo_pci {
	const char *p_name; /* 0000:18:00.0 */
	const char *p_path; /* from the root of sysfs: /devices/pci0000:16/... */
	const char *p_driver;
	size_t p_root;	  /* length of the part of p_path that is the host bridge */
	int p_parent;	  /* the bridge above; -1: it is on the host bridge's own bus */
	unsigned p_depth; /* bridges above */
	int p_node;	  /* NUMA; -1: not known */
	uint32_t p_class; /* 24 bits */
	uint32_t p_vendor, p_device;
	struct topo_link p_link, p_max;
};
/* True when a link is below what both its ends can do. The speed of a GPU's link does not count,
 * because an idle GPU lowers it. */
bool topo_degraded(const struct topo_pci *p, const struct topo_pci *parent /* or NULL */);
/* The name of a vendor of GPUs, network cards or drives; NULL: not in the table. */
const char *topo_vendor(uint32_t id);

enum topo_kind { TOPO_NVME, TOPO_NIC, TOPO_GPU };
struct topo_dev {
	enum topo_kind tdv_kind;
	const char *tdv_name; /* nvme0 (the controller), NIC0, GPU0 */
	const char *tdv_path;
	int tdv_pci; /* index in t_pci; -1: none (fabrics; hypervisors' network cards) */
	/* TOPO_NVME */
	const char *tdv_model, *tdv_transport /* pcie, tcp, rdma, fc, loop */, *tdv_address,
		*tdv_state;
};

struct topo_net {
	const char *n_name, *n_path;
	int n_dev;	 /* the NIC, index in t_dev; -1: virtual */
	uint64_t n_mbps; /* 0: not known */
	bool n_up;
};
struct topo_rdma { /* one port */
	const char *r_name;
	unsigned r_port;
	int r_dev; /* the NIC, index in t_dev; -1: none */
	int r_net; /* its interface, index in t_net; -1: none */
	uint64_t r_mbps;
	bool r_active;
	const char *r_layer; /* InfiniBand, Ethernet */
};
struct topo_addr {
	uint8_t a_ip[16]; /* IPv4 as ::ffff:a.b.c.d */
	int a_net;	  /* index in t_net */
};
struct topo_block {
	const char *b_name, *b_path;
	unsigned b_major, b_minor;
	bool b_hidden; /* one path of a multipath namespace */
	uint64_t b_bytes;
};
struct topo_node {
	int o_id;
	const char *o_cpulist;
	cpu_set_t o_cpus;
	unsigned *o_distance; /* to each of t_node; 0: not known */
};

struct topo {
	struct topo_tree *t_tree;
	struct topo_pci *t_pci; /* sorted by p_path */
	size_t t_npci;
	struct topo_dev *t_dev; /* NVMe, NIC, GPU; each kind in its order */
	size_t t_ndev;
	struct topo_net *t_net;
	size_t t_nnet;
	struct topo_rdma *t_rdma;
	size_t t_nrdma;
	struct topo_addr *t_addr;
	size_t t_naddr;
	struct topo_block *t_block;
	size_t t_nblock;
	struct topo_node *t_node; /* sorted by o_id */
	size_t t_nnode;
	cpu_set_t t_online;
};

/* path NULL: this machine's /sys, with its interfaces' addresses; a folder: a tree like /sys; a
 * file: a recorded tree. On error returns a negative errno, and err holds one line. */
int topo_open(struct topo **out, const char *path, char *err, size_t errlen);
/* Reads a recorded tree from memory; name is for messages. */
int topo_parse(struct topo **out, const char *text, size_t len, const char *name, char *err,
	       size_t errlen);
/* Writes the recorded tree. Returns 0 or a negative errno. */
int topo_record(const struct topo *t, FILE *f);
void topo_free(struct topo *t);

/* The last PCI function on a device's path, as an index in t_pci; -1: none. */
int topo_pci_above(const struct topo *t, const char *path);
/* The NVMe controllers of a namespace of t_block, as indexes in t_dev: several with multipath, none
 * for other disks. Returns how many, at most max. */
size_t topo_controllers(const struct topo *t, size_t block, size_t *dev, size_t max);

/* The distance of two functions of t_pci. */
enum topo_dist topo_pci_dist(const struct topo *t, int a, int b);
/* The distance of two devices of t_dev. Two devices are never TOPO_SELF: an NVMe/TCP drive is
 * TOPO_PIX from the network card that leads to it. */
enum topo_dist topo_dev_dist(const struct topo *t, size_t a, size_t b);

/*
 * A place: the PCI functions that carry something. A store has those of its drives, an address
 * those of its network cards. Several: RAID, multipath, bonding. None: not known.
 */
enum { TOPO_PLACE_MAX = 32 }; /* further ones are left out */
struct topo_place {
	unsigned pl_n;
	int pl_pci[TOPO_PLACE_MAX];
	unsigned pl_ndrives;
	int pl_drive[TOPO_PLACE_MAX]; /* of a store: its NVMe controllers, indexes in t_dev */
	int pl_node;		      /* the NUMA node of them all; -1: several, or not known */
	uint64_t pl_mbps;	      /* what the network cards carry together; 0: not known */
};
/* Each returns 0, or -ENOENT when the thing does not exist. 0 with an empty place: it exists, but
 * is on no known PCI device. */
int topo_place_block(const struct topo *t, const char *name /* nvme0n1p1, dm-0 */,
		     struct topo_place *out);
int topo_place_number(const struct topo *t, dev_t dev, struct topo_place *out);
/* The place of the file system of a file or folder of this machine. Returns also a negative errno
 * of stat(2). File systems without a device of their own (tmpfs, overlay, btrfs, network file
 * systems) give -ENOENT. */
int topo_place_path(const struct topo *t, const char *path, struct topo_place *out);
int topo_place_net(const struct topo *t, const char *name, struct topo_place *out);
int topo_place_addr(const struct topo *t, const struct sockaddr *sa, struct topo_place *out);
void topo_place_dev(const struct topo *t, size_t dev, struct topo_place *out);

/* The largest distance of all pairs; TOPO_NONE when one place is empty. */
enum topo_dist topo_place_dist(const struct topo *t, const struct topo_place *a,
			       const struct topo_place *b);
/* As the firmware reports, 10 within a node; 255, its "out of reach", where it is not known. */
unsigned topo_node_distance(const struct topo *t, int a, int b);
/*
 * Orders candidates (the places of network cards or addresses), the best for the stores first:
 * order[] gets 0..n-1. First those nearest by class, then by the distance of NUMA nodes, then the
 * fastest, then in their old order. For a place with several functions the mean of all pairs
 * counts, for several stores the sum. A candidate or a store of which nothing is known is as far as
 * can be.
 */
void topo_rank(const struct topo *t, const struct topo_place *stores, size_t nstores,
	       const struct topo_place *cand, size_t n, size_t *order);
/* The online processors near a place; all online ones where its node is not known. A node without
 * processors counts as the nearest that has some. Returns how many. Leaves out processors beyond
 * CPU_SETSIZE. */
int topo_cpus(const struct topo *t, const struct topo_place *pl, cpu_set_t *out);
#endif
