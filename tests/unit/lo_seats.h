/* SPDX-License-Identifier: Apache-2.0 */
/* lo_seats.h - an MDS side with a store and data servers that are made in memory; it sends them no
 * requests. */
#ifndef TESTS_UNIT_LO_SEATS_H
#define TESTS_UNIT_LO_SEATS_H
#include "base/clock.h"
#include "base/loop.h"
#include "mds/dataserver/ds_reg_int.h"
#include "mds/layout/lo_int.h"
#include "tests/unit/unit.h"
#include <errno.h>
#include <math.h>
#include <sodium.h>
#include <stdio.h>
#include <unistd.h>

#define MIB	    1048576u
#define GIB	    (1ull << 30)
#define PATIENCE_MS 60000

static char dir[64];
static struct kv *kv;
static struct ns *ns;
static struct loop *loop;
static struct ds_reg *dsc;
static struct lo *lo;
static uint8_t cluster_key[32];

static void setup(void)
{
	struct kv_opts ko = {.ko_create = true, .ko_nosync = true, .ko_map_max = 1ull << 28};
	struct ds_reg_opts o = {.do_cluster_key = cluster_key,
				.do_lease_ms = 600000,
				.do_loops = &loop,
				.do_nloops = 1};
	char err[256] = "";

	ck_assert_int_ge(sodium_init(), 0);
	strcpy(dir, "/tmp/place_test.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	ck_assert_msg(!kv_open(&kv, dir, &ko, err, sizeof(err)), "%s", err);
	ck_assert_msg(!ns_open(&ns, kv, err, sizeof(err)), "%s", err);
	ck_assert_int_eq(loop_create(&loop, 64), 0);
	ck_assert_msg(!ds_reg_create(&dsc, ns, &o, err, sizeof(err)), "%s", err);
	ck_assert_int_eq(lo_create(&lo, ns, dsc), 0);
	/* the MDS waits for no server that has not joined */
	dsc->d_start_ms = clock_mono_ms() - 10 * PATIENCE_MS;
}

static void teardown(void)
{
	char cmd[100];

	ns_close(ns);
	kv_close(kv);
	lo_destroy(lo);
	ds_reg_destroy(dsc);
	loop_destroy(loop);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	ck_assert_int_eq(system(cmd), 0);
}

static struct ds_reg_node *server(unsigned id, const char *labels)
{
	static struct ds_reg_link link;
	struct ds_reg_node *nd = calloc(1, sizeof(*nd));

	ck_assert_ptr_nonnull(nd);
	ck_assert_ptr_null(dsc->d_node[id]);
	nd->nd_sv.sv_id = id;
	snprintf(nd->nd_sv.sv_name, sizeof(nd->nd_sv.sv_name), "ds%u", id);
	memset(nd->nd_sv.sv_uuid, (int)id, 16);
	nd->nd_sv.sv_capacity = 1000 * GIB;
	nd->nd_sv.sv_available = 500 * GIB;
	nd->nd_terms.dt_weight = DS_REG_WEIGHT_ONE;
	strcpy(nd->nd_terms.dt_own, labels);
	strcpy(nd->nd_terms.dt_labels, labels);
	nd->nd_link = &link;
	nd->nd_joined = true;
	nd->nd_heard_ms = clock_mono_ms();
	ck_assert_int_eq(ds_reg_node_add(dsc, id, nd), 0);
	return nd;
}

/* Publishes what a test writes to a node, so that readers see it. */
#define seat_set(id, member, value) (dsc->d_node[id]->member = (value), ds_reg_publish(dsc, id))
static inline void seats_said(void)
{
	for (unsigned id = 1; id <= DS_REG_MAX; id++)
		ds_reg_publish(dsc, id);
}

static void label(unsigned id, const char *labels)
{
	strcpy(dsc->d_node[id]->nd_terms.dt_labels, labels);
	ds_reg_publish(dsc, id);
}

static struct lo_policy policy(const char *text)
{
	struct lo_policy p;
	char err[256] = "";

	ck_assert_msg(!lo_policy_parse(text, strlen(text), &p, err, sizeof(err)), "%s: %s", text,
		      err);
	return p;
}

static void place(const struct lo_policy *p, uint64_t ino, struct lo_map *m)
{
	ck_assert_int_eq(lo_place(lo, p, ino, PATIENCE_MS, m), 0);
}

/* The rest of a server's label, behind "rack=". */
static char rack_of(uint32_t ds)
{
	size_t n;

	return *labels_get(dsc->d_node[ds]->nd_terms.dt_labels, "rack", 4, &n);
}
#endif
