/* SPDX-License-Identifier: Apache-2.0 */
/* topo_json.c - weft topo --json. docs/placement.md describes it. */
#include "tools/topo_show.h"
#include <arpa/inet.h>
#include <string.h>

/* An unknown value is null. */
static json_t *topo_json_known(long long v, long long unknown)
{
	return v == unknown ? json_null() : json_integer(v);
}

static json_t *topo_json_text(const char *s)
{
	return *s ? json_string(s) : json_null();
}

static json_t *gts(unsigned tenths)
{
	return tenths ? json_real(tenths / 10.0) : json_null();
}

static json_t *link_json(const struct topo *t, const struct topo_pci *p)
{
	const struct topo_pci *up = p->p_parent < 0 ? NULL : &t->t_pci[p->p_parent];

	return json_pack("{s:o, s:o, s:o, s:o, s:b}", "gts", gts(p->p_link.l_speed), "width",
			 topo_json_known(p->p_link.l_width, 0), "max_gts", gts(p->p_max.l_speed),
			 "max_width", topo_json_known(p->p_max.l_width, 0), "degraded",
			 topo_degraded(p, up));
}

static void nvme_json(const struct topo *t, size_t dev, json_t *out)
{
	const struct topo_dev *d = &t->t_dev[dev];
	json_t *list = json_array();
	struct topo_place pl;

	json_object_set_new(out, "model", topo_json_text(d->tdv_model));
	json_object_set_new(out, "transport", topo_json_text(d->tdv_transport));
	json_object_set_new(out, "address", topo_json_text(d->tdv_address));
	json_object_set_new(out, "state", topo_json_text(d->tdv_state));
	for (size_t i = 0; i < t->t_nblock; i++)
		if (show_namespace(t, i, dev))
			json_array_append_new(list, json_pack("{s:s, s:I}", "name",
							      t->t_block[i].b_name, "bytes",
							      (json_int_t)t->t_block[i].b_bytes));
	json_object_set_new(out, "namespaces", list);
	list = json_array();
	topo_place_dev(t, dev, &pl);
	for (size_t i = 0; d->tdv_pci < 0 && i < t->t_ndev; i++)
		if (t->t_dev[i].tdv_kind == TOPO_NIC && show_within(&pl, t->t_dev[i].tdv_pci))
			json_array_append_new(list, json_string(t->t_dev[i].tdv_name));
	json_object_set_new(out, "via", list);
}

static json_t *addresses_json(const struct topo *t, int net)
{
	json_t *list = json_array();

	for (size_t i = 0; i < t->t_naddr; i++) {
		char ip[INET6_ADDRSTRLEN];

		if (t->t_addr[i].a_net == net)
			json_array_append_new(list, json_string(show_ip(&t->t_addr[i], ip)));
	}
	return list;
}

static void nic_json(const struct topo *t, size_t dev, json_t *out)
{
	json_t *nets = json_array(), *ports = json_array();

	for (size_t i = 0; i < t->t_nnet; i++) {
		const struct topo_net *n = &t->t_net[i];

		if (n->n_dev == (int)dev)
			json_array_append_new(
				nets, json_pack("{s:s, s:o, s:b, s:o}", "name", n->n_name, "mbps",
						topo_json_known((long long)n->n_mbps, 0), "up",
						n->n_up, "addresses", addresses_json(t, (int)i)));
	}
	for (size_t i = 0; i < t->t_nrdma; i++) {
		const struct topo_rdma *r = &t->t_rdma[i];

		if (r->r_dev == (int)dev)
			json_array_append_new(
				ports,
				json_pack("{s:s, s:i, s:o, s:b, s:o, s:o}", "name", r->r_name,
					  "port", (int)r->r_port, "mbps",
					  topo_json_known((long long)r->r_mbps, 0), "active",
					  r->r_active, "link_layer", topo_json_text(r->r_layer),
					  "interface",
					  r->r_net < 0 ? json_null()
						       : json_string(t->t_net[r->r_net].n_name)));
	}
	json_object_set_new(out, "interfaces", nets);
	json_object_set_new(out, "rdma", ports);
}

static json_t *dev_json(const struct topo *t, size_t dev)
{
	static const char *const kinds[] = {
		[TOPO_NVME] = "nvme", [TOPO_NIC] = "nic", [TOPO_GPU] = "gpu"};
	const struct topo_dev *d = &t->t_dev[dev];
	const struct topo_pci *p = d->tdv_pci < 0 ? NULL : &t->t_pci[d->tdv_pci];
	struct topo_place pl;
	json_t *out;

	topo_place_dev(t, dev, &pl);
	out = json_pack("{s:s, s:s, s:o}", "name", d->tdv_name, "kind", kinds[d->tdv_kind], "numa",
			topo_json_known(pl.pl_node, -1));
	if (p) {
		char id[16];
		const char *vendor = topo_vendor(p->p_vendor);

		snprintf(id, sizeof(id), "%04x:%04x", p->p_vendor, p->p_device);
		json_object_set_new(out, "pci", json_string(p->p_name));
		json_object_set_new(out, "id", json_string(id));
		json_object_set_new(out, "vendor", vendor ? json_string(vendor) : json_null());
		json_object_set_new(out, "driver", topo_json_text(p->p_driver));
		json_object_set_new(out, "link", link_json(t, p));
	}
	if (d->tdv_kind == TOPO_NVME)
		nvme_json(t, dev, out);
	else if (d->tdv_kind == TOPO_NIC)
		nic_json(t, dev, out);
	return out;
}

static json_t *numa_json(const struct topo *t)
{
	json_t *list = json_array();

	for (size_t i = 0; i < t->t_nnode; i++) {
		json_t *far = json_object();
		char id[16];

		for (size_t k = 0; k < t->t_nnode; k++) {
			snprintf(id, sizeof(id), "%d", t->t_node[k].o_id);
			json_object_set_new(far, id,
					    topo_json_known(t->t_node[i].o_distance[k], 0));
		}
		json_array_append_new(list,
				      json_pack("{s:i, s:s, s:o}", "node", t->t_node[i].o_id,
						"cpus", t->t_node[i].o_cpulist, "distances", far));
	}
	return list;
}

json_t *show_json(const struct topo *t)
{
	json_t *devs = json_array(), *rows = json_object();

	for (size_t i = 0; i < t->t_ndev; i++) {
		json_t *row = json_object();

		json_array_append_new(devs, dev_json(t, i));
		for (size_t k = 0; k < t->t_ndev; k++)
			json_object_set_new(row, t->t_dev[k].tdv_name,
					    json_string(topo_dist_name(topo_dev_dist(t, i, k))));
		json_object_set_new(rows, t->t_dev[i].tdv_name, row);
	}
	return json_pack("{s:o, s:o, s:o}", "numa", numa_json(t), "devices", devs, "distances",
			 rows);
}

json_t *show_near_json(const struct topo *t, const struct near *n)
{
	json_t *pci = json_array(), *drives = json_array(), *nics = json_array();

	for (unsigned i = 0; i < n->ne_store.pl_n; i++)
		json_array_append_new(pci, json_string(t->t_pci[n->ne_store.pl_pci[i]].p_name));
	for (unsigned i = 0; i < n->ne_store.pl_ndrives; i++)
		json_array_append_new(drives,
				      json_string(t->t_dev[n->ne_store.pl_drive[i]].tdv_name));
	for (size_t i = 0; i < n->ne_nnics; i++) {
		const struct topo_place *pl = &n->ne_place[n->ne_order[i]];

		json_array_append_new(
			nics, json_pack("{s:s, s:s, s:o, s:o}", "name",
					t->t_dev[n->ne_nics[n->ne_order[i]]].tdv_name, "distance",
					topo_dist_name(topo_place_dist(t, &n->ne_store, pl)),
					"numa", topo_json_known(pl->pl_node, -1), "mbps",
					topo_json_known((long long)pl->pl_mbps, 0)));
	}
	return json_pack("{s:s, s:o, s:o, s:o, s:s, s:o}", "near", n->ne_what, "pci", pci, "drives",
			 drives, "numa", topo_json_known(n->ne_store.pl_node, -1), "cpus",
			 n->ne_cpus, "nics", nics);
}
