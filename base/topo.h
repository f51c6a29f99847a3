/*
 * topo.h - where the machine's NVMe drives, network cards and GPUs are: PCIe tree, NUMA nodes, link
 * speeds, all from sysfs.
 *
 * A struct topo is a snapshot: it is read once, never changes, and may be used by any number of
 * threads. It comes from the running machine's /sys, from a folder that looks like one, or from a
 * recorded tree (one text file, see docs/placement.md). What sysfs says is not trusted: files may
 * be missing, numbers senseless, links dead; what cannot be known is -1, 0 or "", never NULL, and
 * only a tree that is too large or a recording that breaks its grammar is refused. Reading a
 * running machine's sysfs asks its drivers and can take milliseconds: not on a loop thread.
 *
 * Strings belong to the topo and are printable ASCII (file contents: also tab and newline).
 */
#ifndef BASE_TOPO_H
#define BASE_TOPO_H
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
/* What a link carries, in Mb/s, less its encoding; 0: not known. */
uint64_t topo_link_mbps(const struct topo_link *l);

struct topo_pci {
	const char *p_name; /* 0000:18:00.0 */
	const char *p_path; /* from the root of sysfs: /devices/pci0000:16/... */
	const char *p_driver;
	size_t p_root;	  /* so much of p_path is the host bridge */
	int p_parent;	  /* the bridge above; -1: it is on the host bridge's own bus */
	unsigned p_depth; /* bridges above */
	int p_node;	  /* NUMA; -1: not known */
	uint32_t p_class; /* 24 bits */
	uint32_t p_vendor, p_device;
	struct topo_link p_link, p_max;
};
/* A link below what both ends of it can do. What a GPU does to its speed when it is idle does not
 * count. */
bool topo_degraded(const struct topo_pci *p, const struct topo_pci *parent /* or NULL */);
/* The name of a vendor of GPUs, network cards or drives; NULL: not one that is known here. */
const char *topo_vendor(uint32_t id);

enum topo_kind { TOPO_NVME, TOPO_NIC, TOPO_GPU };
struct topo_dev {
	enum topo_kind d_kind;
	const char *d_name; /* nvme0 (the controller), NIC0, GPU0 */
	const char *d_path;
	int d_pci; /* in t_pci; -1: none (fabrics; hypervisors' network cards) */
	/* TOPO_NVME */
	const char *d_model, *d_transport /* pcie, tcp, rdma, fc, loop */, *d_address, *d_state;
};

struct topo_net {
	const char *n_name, *n_path;
	int n_dev;	 /* the NIC, in t_dev; -1: virtual */
	uint64_t n_mbps; /* 0: not known */
	bool n_up;
};
struct topo_rdma { /* one port */
	const char *r_name;
	unsigned r_port;
	int r_dev; /* the NIC, in t_dev; -1: none */
	int r_net; /* its interface, in t_net; -1: none */
	uint64_t r_mbps;
	bool r_active;
	const char *r_layer; /* InfiniBand, Ethernet */
};
struct topo_addr {
	uint8_t a_ip[16]; /* IPv4 as ::ffff:a.b.c.d */
	int a_net;	  /* in t_net */
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
 * file: a recorded tree. On error a negative errno, and err holds one line. */
int topo_open(struct topo **out, const char *path, char *err, size_t errlen);
/* A recorded tree in memory; name is for messages. */
int topo_parse(struct topo **out, const char *text, size_t len, const char *name, char *err,
	       size_t errlen);
/* Writes the recorded tree. 0 or a negative errno. */
int topo_record(const struct topo *t, FILE *f);
void topo_free(struct topo *t);

/* The PCI function that a device's path leads through last, in t_pci; -1: none. */
int topo_pci_above(const struct topo *t, const char *path);
/* The NVMe controllers of a namespace of t_block, in t_dev: several with multipath, none for other
 * disks. How many, at most max. */
size_t topo_controllers(const struct topo *t, size_t block, size_t *dev, size_t max);

/* The class of two functions of t_pci. */
enum topo_dist topo_pci_dist(const struct topo *t, int a, int b);
/* Of two of t_dev. Two devices are never TOPO_SELF: an NVMe/TCP drive is TOPO_PIX from the card it
 * is reached by. */
enum topo_dist topo_dev_dist(const struct topo *t, size_t a, size_t b);

/*
 * A place: the PCI functions that carry something. A store has those of its drives, an address
 * those of its network cards. More than one: RAID, multipath, bonding. None: it is not known.
 */
enum { TOPO_PLACE_MAX = 32 }; /* further ones are left out */
struct topo_place {
	unsigned pl_n;
	int pl_pci[TOPO_PLACE_MAX];
	unsigned pl_ndrives;
	int pl_drive[TOPO_PLACE_MAX]; /* of a store: its NVMe controllers, in t_dev */
	int pl_node;		      /* the NUMA node of them all; -1: several, or not known */
	uint64_t pl_mbps;	      /* what the network cards carry; 0: not known */
};
/* Each returns 0, or -ENOENT when there is no such thing. 0 with an empty place: it is there, but
 * is on no PCI device that is known. */
int topo_place_block(const struct topo *t, const char *name /* nvme0n1p1, dm-0 */,
		     struct topo_place *out);
int topo_place_number(const struct topo *t, dev_t dev, struct topo_place *out);
/* What a file or folder of this machine lies on; also a negative errno of stat(2). Filesystems
 * without a device of their own (tmpfs, overlay, btrfs, a network's) give -ENOENT. */
int topo_place_path(const struct topo *t, const char *path, struct topo_place *out);
int topo_place_net(const struct topo *t, const char *name, struct topo_place *out);
int topo_place_addr(const struct topo *t, const struct sockaddr *sa, struct topo_place *out);
void topo_place_dev(const struct topo *t, size_t dev, struct topo_place *out);

/* The farthest of all pairs; TOPO_NONE when one is empty. */
enum topo_dist topo_place_dist(const struct topo *t, const struct topo_place *a,
			       const struct topo_place *b);
/* As the firmware says, 10 within a node; 255, its "out of reach", where it is not known. */
unsigned topo_node_distance(const struct topo *t, int a, int b);
/*
 * Orders candidates (the places of network cards or addresses) by what suits the stores best:
 * order[] gets 0..n-1. First those nearest by class, then by the distance of NUMA nodes, then the
 * fastest, then as they were. Where a place has several functions the mean of all pairs counts, of
 * several stores the sum. Candidates, or a store, of which nothing is known are as far as can be.
 */
void topo_rank(const struct topo *t, const struct topo_place *stores, size_t nstores,
	       const struct topo_place *cand, size_t n, size_t *order);
/* The processors near a place, of those online; all that are online where its node is not known. A
 * node without processors counts as the nearest that has some. Returns how many. Processors beyond
 * CPU_SETSIZE are left out. */
int topo_cpus(const struct topo *t, const struct topo_place *pl, cpu_set_t *out);
#endif
