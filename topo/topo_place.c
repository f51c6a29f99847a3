/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topo_place.c - see topo.h: how far devices are apart, where a store or an address is, and what
 * suits what.
 */
#include "topo/topo.h"
#include "topo/topo_tree.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

const char *topo_dist_name(enum topo_dist d)
{
	static const char *const names[] = {
		[TOPO_SELF] = "X",    [TOPO_PIX] = "PIX", [TOPO_PXB] = "PXB", [TOPO_PHB] = "PHB",
		[TOPO_NODE] = "NODE", [TOPO_SYS] = "SYS", [TOPO_NONE] = "-"};

	return names[d];
}

const char *topo_vendor(uint32_t id)
{
	static const struct {
		uint32_t v_id;
		const char *v_name;
	} vendors[] = {{0x1002, "AMD"},		 {0x10de, "NVIDIA"},	{0x1179, "Toshiba"},
		       {0x1344, "Micron"},	 {0x1425, "Chelsio"},	{0x144d, "Samsung"},
		       {0x14c3, "MediaTek"},	 {0x14e4, "Broadcom"},	{0x15b3, "Mellanox"},
		       {0x15b7, "SanDisk"},	 {0x1bb1, "Seagate"},	{0x1c5c, "SK hynix"},
		       {0x1c58, "HGST"},	 {0x1cc4, "Memblaze"},	{0x1d0f, "Amazon"},
		       {0x1da3, "Habana"},	 {0x1dd8, "Pensando"},	{0x1e0f, "KIOXIA"},
		       {0x1f0f, "NebulaMatrix"}, {0x1af4, "virtio"},	{0x025e, "Solidigm"},
		       {0x8086, "Intel"},	 {0x1414, "Microsoft"}, {0x1ae0, "Google"}};

	for (size_t i = 0; i < sizeof(vendors) / sizeof(vendors[0]); i++)
		if (vendors[i].v_id == id)
			return vendors[i].v_name;
	return NULL;
}

/* ---- links ---- */

uint64_t topo_link_mbps(const struct topo_link *l)
{
	/* 8b/10b up to 5 GT/s, 128b/130b above. */
	uint64_t raw = (uint64_t)l->l_speed * 100 * l->l_width;

	return l->l_speed <= 50 ? raw * 8 / 10 : raw * 128 / 130;
}

static unsigned topo_place_least(unsigned a, unsigned b)
{
	return !b || (a && a < b) ? a : b;
}

bool topo_degraded(const struct topo_pci *p, const struct topo_pci *parent)
{
	unsigned speed = p->p_max.l_speed, width = p->p_max.l_width;
	unsigned class = p->p_class >> 16;

	/* The slot may have less. */
	if (parent) {
		speed = topo_place_least(speed, parent->p_max.l_speed);
		width = topo_place_least(width, parent->p_max.l_width);
	}
	if (p->p_link.l_width && p->p_link.l_width < width)
		return true;
	return class != 0x03 && class != 0x12 && p->p_link.l_speed && p->p_link.l_speed < speed;
}

/* ---- distances ---- */

enum topo_dist topo_pci_dist(const struct topo *t, int a, int b)
{
	const struct topo_pci *x = &t->t_pci[a], *y = &t->t_pci[b];
	unsigned up_x = 0, up_y = 0;

	if (a == b)
		return TOPO_SELF;
	while (a != b && (a >= 0 || b >= 0)) {
		if (b < 0 || (a >= 0 && t->t_pci[a].p_depth >= t->t_pci[b].p_depth)) {
			a = t->t_pci[a].p_parent;
			up_x++;
		} else {
			b = t->t_pci[b].p_parent;
			up_y++;
		}
	}
	/* The first step up leads to the port that the device hangs on. From both sides of a switch
	 * that is a port of the switch, and the next step leads to what these ports have in
	 * common. */
	if (a >= 0)
		return up_x <= 2 && up_y <= 2 ? TOPO_PIX : TOPO_PXB;
	if (x->p_root == y->p_root && !strncmp(x->p_path, y->p_path, x->p_root))
		return TOPO_PHB;
	/* A kernel without NUMA has no nodes: everything is on one node. */
	return !t->t_nnode || (x->p_node >= 0 && x->p_node == y->p_node) ? TOPO_NODE : TOPO_SYS;
}

enum topo_dist topo_place_dist(const struct topo *t, const struct topo_place *a,
			       const struct topo_place *b)
{
	enum topo_dist far = TOPO_PIX; /* two things that share a function are still two */

	if (!a->pl_n || !b->pl_n)
		return TOPO_NONE;
	for (unsigned i = 0; i < a->pl_n; i++)
		for (unsigned k = 0; k < b->pl_n; k++) {
			enum topo_dist d = topo_pci_dist(t, a->pl_pci[i], b->pl_pci[k]);

			far = d > far ? d : far;
		}
	return far;
}

enum topo_dist topo_dev_dist(const struct topo *t, size_t a, size_t b)
{
	struct topo_place x, y;

	if (a == b)
		return TOPO_SELF;
	topo_place_dev(t, a, &x);
	topo_place_dev(t, b, &y);
	return topo_place_dist(t, &x, &y);
}

/* ---- places ---- */

static void place_add(const struct topo *t, struct topo_place *pl, int pci)
{
	for (unsigned i = 0; i < pl->pl_n; i++)
		if (pl->pl_pci[i] == pci)
			return;
	if (pci < 0 || pl->pl_n == TOPO_PLACE_MAX)
		return;
	pl->pl_node = !pl->pl_n || pl->pl_node == t->t_pci[pci].p_node ? t->t_pci[pci].p_node : -1;
	pl->pl_pci[pl->pl_n++] = pci;
}

static void place_drive(struct topo_place *pl, int dev)
{
	for (unsigned i = 0; i < pl->pl_ndrives; i++)
		if (pl->pl_drive[i] == dev)
			return;
	if (pl->pl_ndrives < TOPO_PLACE_MAX)
		pl->pl_drive[pl->pl_ndrives++] = dev;
}

static void place_none(struct topo_place *pl)
{
	memset(pl, 0, sizeof(*pl));
	pl->pl_node = -1;
}

static int find_net(const struct topo *t, const char *name)
{
	for (size_t i = 0; i < t->t_nnet; i++)
		if (!strcmp(t->t_net[i].n_name, name))
			return (int)i;
	return -1;
}

static int find_block(const struct topo *t, const char *name)
{
	for (size_t i = 0; i < t->t_nblock; i++)
		if (!strcmp(t->t_block[i].b_name, name))
			return (int)i;
	return -1;
}

/* What is still to be looked at, each once: links in a bad tree may go in circles. */
struct walk {
	size_t w_n, w_at;
	int *w_list;
	bool *w_seen;
};

static bool walk_begin(struct walk *w, size_t n)
{
	*w = (struct walk){.w_list = calloc(n + 1, sizeof(int)),
			   .w_seen = calloc(n + 1, sizeof(bool))};
	return w->w_list && w->w_seen;
}

static void walk_add(struct walk *w, int i)
{
	if (i < 0 || w->w_seen[i])
		return;
	w->w_seen[i] = true;
	w->w_list[w->w_n++] = i;
}

static void walk_end(struct walk *w)
{
	free(w->w_list);
	free(w->w_seen);
}

/* Returns what the card carries, or less if its slot is narrower. The rate of a port that is not
 * active means nothing. */
static uint64_t card_mbps(const struct topo *t, const struct topo_net *n)
{
	const struct topo_dev *d = &t->t_dev[n->n_dev];
	uint64_t slot = d->tdv_pci < 0 ? 0 : topo_link_mbps(&t->t_pci[d->tdv_pci].p_link),
		 v = n->n_mbps;

	for (size_t i = 0; i < t->t_nrdma && !v; i++)
		if (t->t_rdma[i].r_active && t->t_rdma[i].r_net >= 0 &&
		    &t->t_net[t->t_rdma[i].r_net] == n)
			v = t->t_rdma[i].r_mbps;
	return slot && slot < v ? slot : v;
}

static void place_net(const struct topo *t, int net, struct topo_place *out)
{
	struct walk w;

	if (!walk_begin(&w, t->t_nnet)) {
		walk_end(&w);
		return; /* an empty place is a correct answer, if a poor one */
	}
	walk_add(&w, net);
	while (w.w_at < w.w_n) {
		const struct topo_net *n = &t->t_net[w.w_list[w.w_at++]];
		const struct topo_entry *e;
		size_t k;

		if (n->n_dev >= 0) {
			place_add(t, out, t->t_dev[n->n_dev].tdv_pci);
			out->pl_mbps += card_mbps(t, n);
		}
		e = topo_tree_list(t->t_tree, n->n_path, &k);
		for (; k; k--, e++)
			if (e->e_link && !strncmp(e->e_name, "lower_", 6))
				walk_add(&w, find_net(t, e->e_name + 6));
	}
	walk_end(&w);
}

int topo_place_net(const struct topo *t, const char *name, struct topo_place *out)
{
	int net = find_net(t, name);

	place_none(out);
	if (net < 0)
		return -ENOENT;
	place_net(t, net, out);
	return 0;
}

static int place_ip(const struct topo *t, const uint8_t ip[16], struct topo_place *out)
{
	for (size_t i = 0; i < t->t_naddr; i++)
		if (!memcmp(t->t_addr[i].a_ip, ip, 16)) {
			place_net(t, t->t_addr[i].a_net, out);
			return 0;
		}
	return -ENOENT;
}

int topo_place_addr(const struct topo *t, const struct sockaddr *sa, struct topo_place *out)
{
	uint8_t ip[16] = {[10] = 0xff, [11] = 0xff};

	place_none(out);
	if (sa->sa_family == AF_INET)
		memcpy(ip + 12, &((const struct sockaddr_in *)(const void *)sa)->sin_addr, 4);
	else if (sa->sa_family == AF_INET6)
		memcpy(ip, &((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr, 16);
	else
		return -ENOENT;
	return place_ip(t, ip, out);
}

/* Gets the value of KEY in "KEY=VALUE,KEY=VALUE". Returns false if KEY is not there. */
static bool topo_place_option(const char *list, const char *key, char *out, size_t room)
{
	size_t klen = strlen(key);

	for (const char *p = list; *p; p += strcspn(p, ","), p += *p == ',') {
		size_t len = strcspn(p, ",");

		if (len <= klen || strncmp(p, key, klen) != 0 || p[klen] != '=')
			continue;
		len -= klen + 1;
		if (!len || len >= room)
			return false;
		memcpy(out, p + klen + 1, len);
		out[len] = 0;
		return true;
	}
	return false;
}

/* A drive over a network is where the card is that leads to it, if the controller names the
 * interface or the address of ours. */
static void place_fabrics(const struct topo *t, const struct topo_dev *d, struct topo_place *out)
{
	char text[64];
	uint8_t ip[16] = {[10] = 0xff, [11] = 0xff};

	if (topo_place_option(d->tdv_address, "host_iface", text, sizeof(text))) {
		int net = find_net(t, text);

		if (net >= 0)
			place_net(t, net, out);
		return;
	}
	if (!topo_place_option(d->tdv_address, "src_addr", text, sizeof(text)) &&
	    !topo_place_option(d->tdv_address, "host_traddr", text, sizeof(text)))
		return;
	if (inet_pton(AF_INET, text, ip + 12) == 1 || inet_pton(AF_INET6, text, ip) == 1)
		place_ip(t, ip, out);
}

static void place_nic(const struct topo *t, size_t dev, struct topo_place *out)
{
	int pci = t->t_dev[dev].tdv_pci;
	uint64_t slot = pci < 0 ? 0 : topo_link_mbps(&t->t_pci[pci].p_link), nets = 0, ports = 0;

	place_add(t, out, pci);
	for (size_t i = 0; i < t->t_nnet; i++)
		if (t->t_net[i].n_dev == (int)dev)
			nets += t->t_net[i].n_mbps;
	for (size_t i = 0; i < t->t_nrdma; i++)
		if (t->t_rdma[i].r_active && t->t_rdma[i].r_dev == (int)dev)
			ports += t->t_rdma[i].r_mbps;
	nets = nets ? nets : ports;
	out->pl_mbps = slot && slot < nets ? slot : nets;
}

/* Adds a device to a place that may have something already. */
static void place_dev(const struct topo *t, size_t dev, struct topo_place *out)
{
	const struct topo_dev *d = &t->t_dev[dev];

	if (d->tdv_kind == TOPO_NVME)
		place_drive(out, (int)dev);
	if (d->tdv_kind == TOPO_NIC)
		place_nic(t, dev, out);
	else if (d->tdv_pci >= 0)
		place_add(t, out, d->tdv_pci);
	else if (d->tdv_kind == TOPO_NVME)
		place_fabrics(t, d, out);
}

void topo_place_dev(const struct topo *t, size_t dev, struct topo_place *out)
{
	place_none(out);
	place_dev(t, dev, out);
}

/* ---- block devices ---- */

static void folder_of(const char *path, char out[TOPO_PATH_MAX])
{
	char *slash;

	snprintf(out, TOPO_PATH_MAX, "%s", path);
	slash = strrchr(out, '/');
	if (slash)
		*slash = 0;
}

static int nvme_at(const struct topo *t, const char *path)
{
	for (size_t i = 0; i < t->t_ndev && t->t_dev[i].tdv_kind == TOPO_NVME; i++)
		if (!strcmp(t->t_dev[i].tdv_path, path))
			return (int)i;
	return -1;
}

/* Gets the controllers of a namespace, at most max. Returns how many. */
size_t topo_controllers(const struct topo *t, size_t block, size_t *dev, size_t max)
{
	const struct topo_block *b = &t->t_block[block];
	char dir[TOPO_PATH_MAX], path[TOPO_PATH_MAX];
	unsigned x, y, px, pc, py;
	const struct topo_entry *e;
	size_t n = 0, k;
	int d;

	folder_of(b->b_path, dir);
	d = nvme_at(t, dir);
	if (d >= 0) {
		dev[0] = (size_t)d;
		return 1;
	}
	/* nvmeXnY of a subsystem has a path nvmeXcCnY beneath each controller C that leads to
	 * it. */
	if (!strstr(dir, "/nvme-subsystem/") || sscanf(b->b_name, "nvme%9un%9u", &x, &y) != 2)
		return 0;
	for (size_t i = 0; i < t->t_nblock && n < max; i++) {
		if (sscanf(t->t_block[i].b_name, "nvme%9uc%9un%9u", &px, &pc, &py) != 3 ||
		    px != x || py != y)
			continue;
		folder_of(t->t_block[i].b_path, path);
		d = nvme_at(t, path);
		if (d >= 0)
			dev[n++] = (size_t)d;
	}
	/* A kernel that does not show the paths: take every controller of the subsystem. */
	e = topo_tree_list(t->t_tree, dir, &k);
	for (bool none = !n; none && k && n < max; k--, e++) {
		d = topo_tree_target(e, path) ? nvme_at(t, path) : -1;
		if (d >= 0)
			dev[n++] = (size_t)d;
	}
	return n;
}

static int block_at(const struct topo *t, const char *path)
{
	for (size_t i = 0; i < t->t_nblock; i++)
		if (!strcmp(t->t_block[i].b_path, path))
			return (int)i;
	return -1;
}

/* Goes on to the slaves of a device mapper or RAID, or to a partition's disk. Otherwise adds the
 * block device itself. */
static void block_step(const struct topo *t, struct walk *w, size_t block, struct topo_place *out)
{
	const struct topo_block *b = &t->t_block[block];
	char path[TOPO_PATH_MAX + 8];
	size_t n, dev[TOPO_PLACE_MAX];
	const struct topo_entry *e;
	int disk;

	snprintf(path, sizeof(path), "%s/slaves", b->b_path);
	e = topo_tree_list(t->t_tree, path, &n);
	if (n) {
		for (; n; n--, e++)
			walk_add(w, find_block(t, e->e_name));
		return;
	}
	folder_of(b->b_path, path);
	disk = block_at(t, path);
	if (disk >= 0) {
		walk_add(w, disk);
		return;
	}
	n = topo_controllers(t, block, dev, TOPO_PLACE_MAX);
	for (size_t i = 0; i < n; i++)
		place_dev(t, dev[i], out);
	if (!n)
		place_add(t, out, topo_pci_above(t, b->b_path));
}

static void place_block(const struct topo *t, int block, struct topo_place *out)
{
	struct walk w;

	if (walk_begin(&w, t->t_nblock)) {
		walk_add(&w, block);
		while (w.w_at < w.w_n)
			block_step(t, &w, (size_t)w.w_list[w.w_at++], out);
	}
	walk_end(&w);
	/* This would be the cards to drives over a network, which is not the question. */
	out->pl_mbps = 0;
}

int topo_place_block(const struct topo *t, const char *name, struct topo_place *out)
{
	int block = find_block(t, name);

	place_none(out);
	if (block < 0)
		return -ENOENT;
	place_block(t, block, out);
	return 0;
}

int topo_place_number(const struct topo *t, dev_t dev, struct topo_place *out)
{
	place_none(out);
	/* A number without a major is no block device. Nor is 0:0 of a device with an unknown
	 * number. */
	for (size_t i = 0; i < t->t_nblock && major(dev); i++)
		if (t->t_block[i].b_major == major(dev) && t->t_block[i].b_minor == minor(dev)) {
			place_block(t, (int)i, out);
			return 0;
		}
	return -ENOENT;
}

int topo_place_path(const struct topo *t, const char *path, struct topo_place *out)
{
	struct stat st;

	place_none(out);
	if (stat(path, &st))
		return -errno;
	return topo_place_number(t, S_ISBLK(st.st_mode) ? st.st_rdev : st.st_dev, out);
}

/* ---- what suits ---- */

static size_t node_index(const struct topo *t, int id)
{
	size_t i = 0;

	while (i < t->t_nnode && t->t_node[i].o_id != id)
		i++;
	return i;
}

unsigned topo_node_distance(const struct topo *t, int a, int b)
{
	size_t x = node_index(t, a), y = node_index(t, b);

	if (a < 0 || b < 0 || x == t->t_nnode || y == t->t_nnode)
		return a >= 0 && a == b ? 10 : 255;
	return t->t_node[x].o_distance[y] ? t->t_node[x].o_distance[y] : a == b ? 10 : 255;
}

struct fit {
	/* sums of means, in thousandths; the first two: less is better, the last: more */
	uint64_t f_dist, f_node, f_mbps;
	size_t f_index;
};

static void fit_add(const struct topo *t, const struct topo_place *store,
		    const struct topo_place *c, struct fit *f)
{
	uint64_t pairs = (uint64_t)store->pl_n * c->pl_n, dist = 0, node = 0;

	for (unsigned i = 0; i < store->pl_n; i++)
		for (unsigned k = 0; k < c->pl_n; k++) {
			int a = store->pl_pci[i], b = c->pl_pci[k];

			dist += (uint64_t)topo_pci_dist(t, a, b) * 1000;
			node += (uint64_t)topo_node_distance(t, t->t_pci[a].p_node,
							     t->t_pci[b].p_node) *
				1000;
		}
	f->f_dist += pairs ? dist / pairs : TOPO_NONE * 1000;
	f->f_node += pairs ? node / pairs : 255 * 1000;
}

static int fit_cmp(const void *a, const void *b)
{
	const struct fit *x = a, *y = b;

	if (x->f_dist != y->f_dist)
		return x->f_dist < y->f_dist ? -1 : 1;
	if (x->f_node != y->f_node)
		return x->f_node < y->f_node ? -1 : 1;
	if (x->f_mbps != y->f_mbps)
		return x->f_mbps > y->f_mbps ? -1 : 1;
	return x->f_index < y->f_index ? -1 : 1;
}

void topo_rank(const struct topo *t, const struct topo_place *stores, size_t nstores,
	       const struct topo_place *cand, size_t n, size_t *order)
{
	struct fit *f = calloc(n + 1, sizeof(*f));

	for (size_t i = 0; i < n; i++) {
		order[i] = i;
		if (!f)
			continue;
		f[i] = (struct fit){.f_mbps = cand[i].pl_mbps, .f_index = i};
		for (size_t k = 0; k < nstores; k++)
			fit_add(t, &stores[k], &cand[i], &f[i]);
	}
	if (!f)
		return; /* the old order is as good as any other */
	qsort(f, n, sizeof(*f), fit_cmp);
	for (size_t i = 0; i < n; i++)
		order[i] = f[i].f_index;
	free(f);
}

/* Gets the online processors of a node, or of the nearest node that has some. */
static void node_cpus(const struct topo *t, int id, const cpu_set_t *online, cpu_set_t *out)
{
	unsigned best = 0;
	cpu_set_t cpus;

	CPU_ZERO(out);
	for (size_t i = 0; i < t->t_nnode; i++) {
		unsigned d = topo_node_distance(t, id, t->t_node[i].o_id);

		CPU_AND(&cpus, &t->t_node[i].o_cpus, online);
		if (CPU_COUNT(&cpus) && (!best || d < best)) {
			best = d;
			*out = cpus;
		}
	}
}

int topo_cpus(const struct topo *t, const struct topo_place *pl, cpu_set_t *out)
{
	cpu_set_t online = t->t_online, some;

	CPU_ZERO(out);
	for (size_t i = 0; i < t->t_nnode && !CPU_COUNT(&t->t_online); i++)
		CPU_OR(&online, &online, &t->t_node[i].o_cpus);
	for (unsigned i = 0; i < pl->pl_n; i++) {
		int node = t->t_pci[pl->pl_pci[i]].p_node;

		if (node < 0 || node_index(t, node) == t->t_nnode) {
			*out = online;
			break;
		}
		node_cpus(t, node, &online, &some);
		CPU_OR(out, out, &some);
	}
	if (!CPU_COUNT(out))
		*out = online;
	return CPU_COUNT(out);
}
