/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topo.c - see topo.h: turns the files of sysfs into devices.
 */
#include "topo/topo.h"
#include "topo/topo_tree.h"
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- numbers ---- */

/* Parses the number at the start of s. Returns fallback if there is none, or if it is out of
 * range. */
static long topo_number(const char *s, int base, long min, long max, long fallback)
{
	char *end;
	long v;

	errno = 0;
	v = strtol(s, &end, base);
	return errno || end == s || v < min || v > max ? fallback : v;
}

/* Parses "16.0 GT/s PCIe" or "200 Gb/sec (4X HDR)" into tenths. */
static unsigned tenths(const char *s)
{
	unsigned v = 0, digits = 0;

	for (; isdigit((unsigned char)*s) && digits < 6; s++, digits++)
		v = v * 10 + (unsigned)(*s - '0');
	if (!digits || isdigit((unsigned char)*s))
		return 0;
	v *= 10;
	if (*s == '.' && isdigit((unsigned char)s[1]))
		v += (unsigned)(s[1] - '0');
	return v;
}

/* "0-3,8,10-11" */
static void cpulist(const char *s, cpu_set_t *out)
{
	CPU_ZERO(out);
	while (isdigit((unsigned char)*s)) {
		char *end;
		unsigned long a = strtoul(s, &end, 10), b = a;

		if (*end == '-' && isdigit((unsigned char)end[1]))
			b = strtoul(end + 1, &end, 10);
		for (; a <= b && a < CPU_SETSIZE; a++)
			CPU_SET(a, out);
		s = *end == ',' ? end + 1 : end;
	}
}

/* ---- what all kinds share ---- */

/* Far above what machines have. More entries would only make a forged tree slow to read. */
enum { CLASS_MAX = 32768, DEVS_MAX = 4096, NODES_MAX = 1024 };

/* Calls fn with the name and the device's path of each link in /class/CLASS. fn returns 0, or a
 * negative errno that ends the walk. */
static int each_of(struct topo *t, const char *class,
		   int (*fn)(struct topo *t, const char *name, const char *path))
{
	const struct topo_entry *e;
	size_t n;
	int rc = 0;

	e = topo_tree_list(t->t_tree, class, &n);
	if (n > CLASS_MAX)
		return -E2BIG;
	for (size_t i = 0; i < n && !rc; i++) {
		char path[TOPO_PATH_MAX];
		const char *kept;

		if (!topo_tree_target(&e[i], path))
			continue;
		kept = topo_tree_dup(t->t_tree, path, strlen(path));
		rc = kept ? fn(t, e[i].e_name, kept) : -ENOMEM;
	}
	return rc;
}

/* Makes room for one more element in an array of n. Returns NULL without memory. The array doubles
 * at each power of two. */
static void *topo_grow(void **array, size_t n, size_t size)
{
	if (!(n & (n - 1))) {
		void *a = realloc(*array, (n ? n * 2 : 1) * size);

		if (!a)
			return NULL;
		*array = a;
	}
	memset((char *)*array + n * size, 0, size);
	return (char *)*array + n * size;
}

int topo_pci_above(const struct topo *t, const char *path)
{
	char key[TOPO_PATH_MAX];

	snprintf(key, sizeof(key), "%s", path);
	for (char *slash = key + strlen(key); slash; slash = strrchr(key, '/')) {
		size_t a = 0, b = t->t_npci;

		*slash = 0;
		while (a < b) {
			size_t m = a + (b - a) / 2;
			int c = strcmp(t->t_pci[m].p_path, key);

			if (!c)
				return (int)m;
			if (c < 0)
				a = m + 1;
			else
				b = m;
		}
	}
	return -1;
}

/* ---- NUMA ---- */

static int topo_node_cmp(const void *a, const void *b)
{
	return ((const struct topo_node *)a)->o_id - ((const struct topo_node *)b)->o_id;
}

static void distances(struct topo_node *o, const char *s, size_t n)
{
	for (size_t i = 0; i < n && *s; i++) {
		char *end;
		unsigned long v = strtoul(s, &end, 10);

		if (end == s)
			break;
		o->o_distance[i] = v <= 65535 ? (unsigned)v : 0;
		s = end;
	}
}

static int read_nodes(struct topo *t)
{
	static const char dir[] = "/devices/system/node";
	char name[256], path[sizeof(dir) + 257];
	size_t at = 0;

	while (topo_tree_subdir(t->t_tree, dir, &at, name)) {
		struct topo_node *o;
		long id = strncmp(name, "node", 4) ? -1 : topo_number(name + 4, 10, 0, 1 << 16, -1);

		if (id < 0)
			continue;
		o = topo_grow((void **)&t->t_node, t->t_nnode, sizeof(*o));
		if (!o)
			return -ENOMEM;
		snprintf(path, sizeof(path), "%s/%s", dir, name);
		o->o_id = (int)id;
		o->o_cpulist = topo_tree_file(t->t_tree, path, "cpulist");
		cpulist(o->o_cpulist, &o->o_cpus);
		if (++t->t_nnode > NODES_MAX)
			return -E2BIG;
	}
	if (t->t_nnode)
		qsort(t->t_node, t->t_nnode, sizeof(*t->t_node), topo_node_cmp);
	for (size_t i = 0; i < t->t_nnode; i++) {
		struct topo_node *o = &t->t_node[i];

		o->o_distance = calloc(t->t_nnode, sizeof(*o->o_distance));
		if (!o->o_distance)
			return -ENOMEM;
		snprintf(path, sizeof(path), "%s/node%d", dir, o->o_id);
		distances(o, topo_tree_file(t->t_tree, path, "distance"), t->t_nnode);
	}
	cpulist(topo_tree_file(t->t_tree, "/devices/system/cpu", "online"), &t->t_online);
	return 0;
}

/* ---- PCI ---- */

static struct topo_link topo_link_of(const struct topo *t, const char *path, const char *speed,
				     const char *width)
{
	unsigned s = tenths(topo_tree_file(t->t_tree, path, speed));

	/* Values below PCIe's slowest speed or far above its fastest are nonsense, and so are 0 and
	 * 255 lanes. */
	return (struct topo_link){
		.l_speed = s >= 25 && s <= 10000 ? s : 0,
		.l_width =
			(unsigned)topo_number(topo_tree_file(t->t_tree, path, width), 10, 1, 32, 0),
	};
}

static int add_pci(struct topo *t, const char *name, const char *path)
{
	struct topo_pci *p = topo_grow((void **)&t->t_pci, t->t_npci, sizeof(*p));
	const struct topo_entry *driver = topo_tree_find(t->t_tree, path, "driver");
	const char *slash;

	if (!p)
		return -ENOMEM;
	p->p_name = name;
	p->p_path = path;
	p->p_driver = driver && driver->e_link ? driver->e_value : "";
	slash = strrchr(p->p_driver, '/');
	p->p_driver = slash ? slash + 1 : p->p_driver;
	p->p_parent = -1;
	p->p_node =
		(int)topo_number(topo_tree_file(t->t_tree, path, "numa_node"), 10, 0, 1 << 16, -1);
	p->p_class =
		(uint32_t)topo_number(topo_tree_file(t->t_tree, path, "class"), 16, 0, 0xffffff, 0);
	p->p_vendor =
		(uint32_t)topo_number(topo_tree_file(t->t_tree, path, "vendor"), 16, 0, 0xffff, 0);
	p->p_device =
		(uint32_t)topo_number(topo_tree_file(t->t_tree, path, "device"), 16, 0, 0xffff, 0);
	p->p_link = topo_link_of(t, path, "current_link_speed", "current_link_width");
	p->p_max = topo_link_of(t, path, "max_link_speed", "max_link_width");
	t->t_npci++;
	return 0;
}

static int pci_cmp(const void *a, const void *b)
{
	return strcmp(((const struct topo_pci *)a)->p_path, ((const struct topo_pci *)b)->p_path);
}

/* A bridge's path is a prefix of the paths below it, so the bridge comes first. */
static int read_pci(struct topo *t)
{
	int rc = each_of(t, "/bus/pci/devices", add_pci);

	if (t->t_npci)
		qsort(t->t_pci, t->t_npci, sizeof(*t->t_pci), pci_cmp);
	for (size_t i = 0; i < t->t_npci && !rc; i++) {
		struct topo_pci *p = &t->t_pci[i];
		char dir[TOPO_PATH_MAX];

		snprintf(dir, sizeof(dir), "%s", p->p_path);
		*strrchr(dir, '/') = 0;
		p->p_root = strlen(dir);
		p->p_parent = topo_pci_above(t, dir);
		if (p->p_parent >= 0) {
			const struct topo_pci *up = &t->t_pci[p->p_parent];

			p->p_root = up->p_root;
			p->p_depth = up->p_depth + 1;
			if (p->p_node < 0)
				p->p_node = up->p_node;
		}
		/* If the firmware says nothing, one node leaves no doubt. */
		if (p->p_node < 0 && t->t_nnode == 1)
			p->p_node = t->t_node[0].o_id;
	}
	return rc;
}

/* ---- devices ---- */

/* Returns the device's index, or a negative errno. */
static int add_dev(struct topo *t, enum topo_kind kind, const char *name, const char *path, int pci)
{
	struct topo_dev *d;

	if (t->t_ndev == DEVS_MAX)
		return -E2BIG;
	d = topo_grow((void **)&t->t_dev, t->t_ndev, sizeof(*d));
	if (!d || !path)
		return -ENOMEM;
	*d = (struct topo_dev){.tdv_kind = kind,
			       .tdv_name = name,
			       .tdv_path = path,
			       .tdv_pci = pci,
			       .tdv_model = "",
			       .tdv_transport = "",
			       .tdv_address = "",
			       .tdv_state = ""};
	return (int)t->t_ndev++;
}

static int add_nvme(struct topo *t, const char *name, const char *path)
{
	int i = add_dev(t, TOPO_NVME, name, path, topo_pci_above(t, path));
	const char *model = topo_tree_file(t->t_tree, path, "model");
	size_t len = strlen(model);
	struct topo_dev *d;

	if (i < 0)
		return i;
	d = &t->t_dev[i];
	while (len && model[len - 1] == ' ')
		len--; /* the drive pads it */
	d->tdv_model = topo_tree_dup(t->t_tree, model, len);
	d->tdv_transport = topo_tree_file(t->t_tree, path, "transport");
	d->tdv_address = topo_tree_file(t->t_tree, path, "address");
	d->tdv_state = topo_tree_file(t->t_tree, path, "state");
	return d->tdv_model ? 0 : -ENOMEM;
}

/* A VGA controller of another maker is the console of a server or a virtual machine. */
static bool is_gpu(const struct topo_pci *p)
{
	switch (p->p_class >> 8) {
	case 0x0300:
		return p->p_vendor == 0x10de || p->p_vendor == 0x1002 || p->p_vendor == 0x8086;
	case 0x0302: /* 3D controller */
	case 0x1200: /* processing accelerator */
		return true;
	}
	return false;
}

static int read_gpus(struct topo *t)
{
	int rc = 0;

	for (size_t i = 0; i < t->t_npci && rc >= 0; i++)
		if (is_gpu(&t->t_pci[i]))
			rc = add_dev(t, TOPO_GPU, "", t->t_pci[i].p_path, (int)i);
	return rc < 0 ? rc : 0;
}

/* Finds the NIC of a network interface or RDMA device: the PCI function that it is on or else (a
 * hypervisor's bus) what its own folder stands in. Returns the NIC's index, NO_NIC, or a negative
 * errno. */
#define NO_NIC (-1)
_Static_assert(-ENOMEM != NO_NIC && -E2BIG != NO_NIC, "errors are not NO_NIC");

static int nic_of(struct topo *t, const char *path)
{
	int pci = topo_pci_above(t, path);
	char dir[TOPO_PATH_MAX];

	if (!strncmp(path, "/devices/virtual/", 17))
		return NO_NIC;
	snprintf(dir, sizeof(dir), "%s", pci >= 0 ? t->t_pci[pci].p_path : path);
	/* .../net/eth0, .../infiniband/mlx5_0 */
	for (int k = 0; pci < 0 && k < 2; k++) {
		char *slash = strrchr(dir, '/');

		if (!slash || slash == dir)
			return NO_NIC;
		*slash = 0;
	}
	for (size_t i = 0; i < t->t_ndev; i++)
		if (t->t_dev[i].tdv_kind == TOPO_NIC && !strcmp(t->t_dev[i].tdv_path, dir))
			return (int)i;
	return add_dev(t, TOPO_NIC, "", topo_tree_dup(t->t_tree, dir, strlen(dir)), pci);
}

static int add_net(struct topo *t, const char *name, const char *path)
{
	struct topo_net *n = topo_grow((void **)&t->t_net, t->t_nnet, sizeof(*n));

	if (!n)
		return -ENOMEM;
	n->n_name = name;
	n->n_path = path;
	n->n_dev = nic_of(t, path);
	n->n_mbps = (uint64_t)topo_number(topo_tree_file(t->t_tree, path, "speed"), 10, 1,
					  100000000, 0);
	n->n_up = !strcmp(topo_tree_file(t->t_tree, path, "operstate"), "up");
	t->t_nnet++;
	return n->n_dev < NO_NIC ? n->n_dev : 0;
}

static int net_find(const struct topo *t, const char *name)
{
	for (size_t i = 0; i < t->t_nnet; i++)
		if (!strcmp(t->t_net[i].n_name, name))
			return (int)i;
	return -1;
}

static int add_port(struct topo *t, const char *name, const char *path, const char *port, int dev)
{
	struct topo_rdma *r = topo_grow((void **)&t->t_rdma, t->t_nrdma, sizeof(*r));
	char dir[TOPO_PATH_MAX + 288];
	const char *net;

	if (!r)
		return -ENOMEM;
	snprintf(dir, sizeof(dir), "%s/ports/%s", path, port);
	r->r_name = name;
	r->r_port = (unsigned)topo_number(port, 10, 0, 255, 0);
	r->r_dev = dev;
	r->r_mbps = (uint64_t)tenths(topo_tree_file(t->t_tree, dir, "rate")) * 100;
	r->r_active = strstr(topo_tree_file(t->t_tree, dir, "state"), "ACTIVE") != NULL;
	r->r_layer = topo_tree_file(t->t_tree, dir, "link_layer");
	/* The port's first address names the interface, or a software device names what it stands
	 * on. */
	strcat(dir, "/gid_attrs/ndevs");
	net = topo_tree_file(t->t_tree, dir, "0");
	r->r_net = net_find(t, *net ? net : topo_tree_file(t->t_tree, path, "parent"));
	if (r->r_net >= 0 && r->r_dev < 0)
		r->r_dev = t->t_net[r->r_net].n_dev;
	t->t_nrdma++;
	return 0;
}

static int add_rdma(struct topo *t, const char *name, const char *path)
{
	char dir[TOPO_PATH_MAX + 8], port[256];
	size_t at = 0;
	int dev = nic_of(t, path), rc = dev < NO_NIC ? dev : 0;

	snprintf(dir, sizeof(dir), "%s/ports", path);
	while (!rc && topo_tree_subdir(t->t_tree, dir, &at, port))
		rc = add_port(t, name, path, port, dev);
	return rc;
}

/* ---- blocks and addresses ---- */

static int add_block(struct topo *t, const char *name, const char *path)
{
	struct topo_block *b = topo_grow((void **)&t->t_block, t->t_nblock, sizeof(*b));
	unsigned major = 0, minor = 0;
	long long sectors;

	if (!b)
		return -ENOMEM;
	b->b_name = name;
	b->b_path = path;
	b->b_hidden = topo_number(topo_tree_file(t->t_tree, path, "hidden"), 10, 0, 1, 0);
	if (sscanf(topo_tree_file(t->t_tree, path, "dev"), "%9u:%9u", &major, &minor) == 2) {
		b->b_major = major;
		b->b_minor = minor;
	}
	sectors = topo_number(topo_tree_file(t->t_tree, path, "size"), 10, 0, 1L << 53, 0);
	b->b_bytes = (uint64_t)sectors * 512;
	t->t_nblock++;
	return 0;
}

/* /weft/addresses has one file for each interface, with its addresses and blanks between them. */
static int read_addresses(struct topo *t)
{
	const struct topo_entry *e;
	size_t n;

	e = topo_tree_list(t->t_tree, "/weft/addresses", &n);
	for (size_t i = 0; i < n; i++) {
		int net = net_find(t, e[i].e_name);
		char text[INET6_ADDRSTRLEN];
		const char *p = e[i].e_value;

		while (net >= 0 && *(p += strspn(p, " \n\t"))) {
			size_t len = strcspn(p, " \n\t");
			struct topo_addr *a =
				topo_grow((void **)&t->t_addr, t->t_naddr, sizeof(*a));
			bool v6 = memchr(p, ':', len);

			if (!a)
				return -ENOMEM;
			snprintf(text, sizeof(text), "%.*s", (int)(len < sizeof(text) ? len : 0),
				 p);
			a->a_net = net;
			a->a_ip[10] = a->a_ip[11] = v6 ? 0 : 0xff;
			if (inet_pton(v6 ? AF_INET6 : AF_INET, text, a->a_ip + (v6 ? 0 : 12)) == 1)
				t->t_naddr++;
			p += len;
		}
	}
	return 0;
}

/* ---- order and names ---- */

/* Orders by kind; drives by their number, cards and GPUs by their PCI address, as nvidia-smi counts
 * them. */
static int dev_cmp(const void *a, const void *b, void *arg)
{
	const struct topo *t = arg;
	const struct topo_dev *x = &t->t_dev[*(const size_t *)a],
			      *y = &t->t_dev[*(const size_t *)b];

	if (x->tdv_kind != y->tdv_kind)
		return (int)x->tdv_kind - (int)y->tdv_kind;
	if (x->tdv_kind == TOPO_NVME)
		return strverscmp(x->tdv_name, y->tdv_name);
	if (x->tdv_pci < 0 || y->tdv_pci < 0)
		return x->tdv_pci < 0 && y->tdv_pci < 0 ? strcmp(x->tdv_path, y->tdv_path)
							: (x->tdv_pci < 0) - (y->tdv_pci < 0);
	return strcmp(t->t_pci[x->tdv_pci].p_name, t->t_pci[y->tdv_pci].p_name);
}

static int name_devs(struct topo *t)
{
	unsigned nic = 0, gpu = 0;

	for (size_t i = 0; i < t->t_ndev; i++) {
		struct topo_dev *d = &t->t_dev[i];
		char name[24];
		int n;

		if (d->tdv_kind == TOPO_NVME)
			continue;
		n = d->tdv_kind == TOPO_NIC ? snprintf(name, sizeof(name), "NIC%u", nic++)
					    : snprintf(name, sizeof(name), "GPU%u", gpu++);
		d->tdv_name = topo_tree_dup(t->t_tree, name, (size_t)n);
		if (!d->tdv_name)
			return -ENOMEM;
	}
	return 0;
}

static int block_cmp(const void *a, const void *b)
{
	return strverscmp(((const struct topo_block *)a)->b_name,
			  ((const struct topo_block *)b)->b_name);
}

static int topo_order(struct topo *t)
{
	size_t n = t->t_ndev, *by = calloc(n + 1, sizeof(*by)),
	       *place = calloc(n + 1, sizeof(*place));
	struct topo_dev *devs = calloc(n + 1, sizeof(*devs));
	bool ok = by && place && devs;

	for (size_t i = 0; ok && i < n; i++)
		by[i] = i;
	if (ok)
		qsort_r(by, n, sizeof(*by), dev_cmp, t);
	for (size_t i = 0; ok && i < n; i++) {
		devs[i] = t->t_dev[by[i]];
		place[by[i]] = i;
	}
	for (size_t i = 0; ok && i < t->t_nnet; i++)
		if (t->t_net[i].n_dev >= 0)
			t->t_net[i].n_dev = (int)place[t->t_net[i].n_dev];
	for (size_t i = 0; ok && i < t->t_nrdma; i++)
		if (t->t_rdma[i].r_dev >= 0)
			t->t_rdma[i].r_dev = (int)place[t->t_rdma[i].r_dev];
	free(by);
	free(place);
	free(t->t_dev);
	t->t_dev = devs;
	if (!ok)
		return -ENOMEM;
	if (t->t_nblock)
		qsort(t->t_block, t->t_nblock, sizeof(*t->t_block), block_cmp);
	return name_devs(t);
}

/* ---- the interface ---- */

/* Takes the tree in any case, also when it fails. */
static int topo_build(struct topo **out, struct topo_tree *tree, const char *name, char *err,
		      size_t errlen)
{
	struct topo *t = calloc(1, sizeof(*t));
	int rc = -ENOMEM;

	if (t) {
		t->t_tree = malloc(sizeof(*tree));
		if (t->t_tree) {
			*t->t_tree = *tree;
			memset(tree, 0, sizeof(*tree));
			rc = 0;
		}
	}
	topo_tree_free(tree);
	/* PCI needs the nodes; NICs need PCI; RDMA devices and addresses need interfaces. */
	rc = rc ? rc : read_nodes(t);
	rc = rc ? rc : read_pci(t);
	rc = rc ? rc : each_of(t, "/class/nvme", add_nvme);
	rc = rc ? rc : read_gpus(t);
	rc = rc ? rc : each_of(t, "/class/net", add_net);
	rc = rc ? rc : each_of(t, "/class/infiniband", add_rdma);
	rc = rc ? rc : each_of(t, "/class/block", add_block);
	rc = rc ? rc : read_addresses(t);
	rc = rc ? rc : topo_order(t);
	if (rc) {
		snprintf(err, errlen, "%s: %s", name,
			 rc == -E2BIG ? "too many devices" : strerror(-rc));
		topo_free(t);
		return rc;
	}
	*out = t;
	return 0;
}

int topo_parse(struct topo **out, const char *text, size_t len, const char *name, char *err,
	       size_t errlen)
{
	struct topo_tree tree;
	int rc = topo_tree_parse(&tree, text, len, name, err, errlen);

	*out = NULL;
	return rc ? rc : topo_build(out, &tree, name, err, errlen);
}

static int topo_open_file(struct topo **out, const char *path, char *err, size_t errlen)
{
	FILE *f = fopen(path, "re");
	char *text = malloc(TOPO_FILE_MAX + 1);
	size_t n = 0;
	int rc = f ? text ? 0 : -ENOMEM : -errno;

	if (!rc) {
		n = fread(text, 1, TOPO_FILE_MAX + 1, f);
		rc = ferror(f) ? -EIO : 0;
	}
	if (f)
		fclose(f);
	if (rc)
		snprintf(err, errlen, "%s: %s", path, strerror(-rc));
	else
		rc = topo_parse(out, text, n, path, err, errlen);
	free(text);
	return rc;
}

int topo_open(struct topo **out, const char *path, char *err, size_t errlen)
{
	struct topo_tree tree;
	struct stat st;
	int rc;

	*out = NULL;
	if (path && !stat(path, &st) && !S_ISDIR(st.st_mode))
		return topo_open_file(out, path, err, errlen);
	rc = topo_tree_scan(&tree, path ? path : "/sys", err, errlen);
	return rc ? rc : topo_build(out, &tree, path ? path : "/sys", err, errlen);
}

int topo_record(const struct topo *t, FILE *f)
{
	return topo_tree_write(t->t_tree, f);
}

void topo_free(struct topo *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < t->t_nnode && t->t_node; i++)
		free(t->t_node[i].o_distance);
	if (t->t_tree)
		topo_tree_free(t->t_tree);
	free(t->t_tree);
	free(t->t_node);
	free(t->t_pci);
	free(t->t_dev);
	free(t->t_net);
	free(t->t_rdma);
	free(t->t_addr);
	free(t->t_block);
	free(t);
}
