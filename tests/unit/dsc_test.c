/* SPDX-License-Identifier: Apache-2.0 */
/* dsc_test.c - what others see of a data server while it changes, comes and goes: one state of it,
 * never parts of two, and nothing older than what they have seen. */
#include "base/clock.h"
#include "mds/dataserver/ds_reg_int.h"
#include "tests/unit/unit.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { READERS = 3, SERVERS = 4, MS = 3000 };

static struct ds_reg *D;
static uint8_t key[32];
static _Atomic bool ended;
static _Atomic uint64_t reads, seen_gone, seen_dead;

static void setup(void)
{
	D = calloc(1, sizeof(*D));
	ck_assert_ptr_nonnull(D);
	pthread_mutex_init(&D->d_lock, NULL);
	D->d_opts.do_cluster_key = key;
	D->d_opts.do_lease_ms = D->d_opts.do_suspect_ms = 1000000;
	D->d_start_ms = clock_mono_ms();
	D->d_least_tls = RPC_TLS_CERT;
}

static void teardown(void)
{
	ds_reg_destroy(D);
}

static void uuid_of(uint8_t uuid[16], uint32_t who)
{
	memset(uuid, 0, 16);
	uuid[0] = (uint8_t)who;
}

/* Locked: all that is told of it is of version v. */
static void change(struct ds_reg_node *nd, uint32_t v)
{
	struct ds_reg_server *sv = &nd->nd_sv;

	snprintf(sv->sv_name, sizeof(sv->sv_name), "%060u", v);
	sv->sv_naddrs = v % DS_REG_ADDRS;
	for (unsigned i = 0; i < DS_REG_ADDRS; i++)
		snprintf(sv->sv_addrs[i].uaddr, sizeof(sv->sv_addrs[i].uaddr), "%050u", v);
	sv->sv_capacity = sv->sv_available = v;
	sv->sv_max_read = sv->sv_max_write = v;
	memset(sv->sv_key, (int)(v & 255), sizeof(sv->sv_key));
	snprintf(nd->nd_terms.dt_labels, sizeof(nd->nd_terms.dt_labels), "%0700u", v);
	nd->nd_terms.dt_weight = v;
	nd->nd_terms.dt_draining = v & 1;
	nd->nd_joined = true;
	nd->nd_heard_ms = nd->nd_joined_ms = clock_mono_ms();
	nd->nd_state = v % 7 ? DS_REG_ALIVE : DS_REG_DEAD;
	nd->nd_since_s = v;
}

static struct ds_reg_node *node_add(uint32_t id, uint32_t who, uint32_t v)
{
	struct ds_reg_node *nd = calloc(1, sizeof(*nd));

	ck_assert_ptr_nonnull(nd);
	nd->nd_sv.sv_id = id;
	uuid_of(nd->nd_sv.sv_uuid, who);
	change(nd, v);
	pthread_mutex_lock(&D->d_lock);
	ck_assert_int_eq(ds_reg_node_add(D, id, nd), 0);
	ds_reg_unlock(D, nd);
	return nd;
}

static void look(const struct ds_reg_server *sv, uint32_t id, uint32_t who, uint64_t *last)
{
	uint64_t v = sv->sv_capacity;
	uint8_t uuid[16];
	char want[65];

	uuid_of(uuid, who);
	ck_assert_uint_eq(sv->sv_id, id);
	ck_assert_mem_eq(sv->sv_uuid, uuid, 16);
	snprintf(want, sizeof(want), "%060u", (unsigned)v);
	ck_assert_str_eq(sv->sv_name, want);
	for (unsigned i = 0; i < DS_REG_ADDRS; i++)
		ck_assert_uint_eq(strtoull(sv->sv_addrs[i].uaddr, NULL, 10), v);
	for (unsigned i = 0; i < CAP_KEY_LEN; i++)
		ck_assert_uint_eq(sv->sv_key[i], v & 255);
	ck_assert_uint_eq(sv->sv_available, v);
	ck_assert_uint_eq(sv->sv_max_read, v);
	ck_assert_uint_eq(sv->sv_max_write, v);
	ck_assert_uint_eq(sv->sv_state, v % 7 ? DS_REG_ALIVE : DS_REG_DEAD);
	ck_assert_uint_eq(sv->sv_since_s, v);
	ck_assert_uint_ge(v, *last);
	*last = v;
}

static void see(void *arg, const struct ds_reg_candidate *se)
{
	uint64_t *last = arg;

	ck_assert_uint_eq(se->can_weight, se->can_capacity);
	ck_assert_uint_eq(se->can_draining, se->can_weight & 1);
	ck_assert_uint_eq(strtoull(se->can_labels, NULL, 10), se->can_weight);
	ck_assert_uint_ge(se->can_weight, *last);
	*last = se->can_weight;
}

static void *reader(void *arg)
{
	uint64_t last[DS_REG_MAX + 1] = {0};

	(void)arg;
	while (!ended) {
		for (uint32_t id = 1; id <= SERVERS; id++) {
			struct ds_reg_server sv;
			struct ds_reg_terms dt;
			uint8_t uuid[16];

			uuid_of(uuid, id);
			ck_assert(ds_reg_get(D, id, &sv));
			look(&sv, id, id, &last[id]);
			ck_assert(ds_reg_get_uuid(D, uuid, &sv));
			look(&sv, id, id, &last[id]);
			ck_assert(ds_reg_candidate(D, id, see, &last[id]));
			ck_assert(ds_reg_terms(D, id, &dt));
			ck_assert_uint_eq(dt.dt_weight, strtoull(dt.dt_labels, NULL, 10));
			ck_assert(ds_reg_leased(D, id) && ds_reg_known(D, id));
			seen_dead += ds_reg_dead(D, id);
			reads++;
		}
		/* Of the one that is forgotten and comes back under another number: it is what its
		 * number says, or it is not there. */
		for (uint32_t id = SERVERS + 1; id <= DS_REG_MAX; id++) {
			struct ds_reg_server sv;

			if (ds_reg_get(D, id, &sv))
				look(&sv, id, 200, &last[id]);
			else
				seen_gone++;
		}
	}
	return NULL;
}

START_TEST(who_asks_sees_one_state_of_a_server_and_never_an_older_one)
{
	struct ds_reg_node *nd[SERVERS + 1], *comes;
	pthread_t t[READERS];
	uint64_t until = clock_mono_ms() + MS;
	uint32_t v = 1, id = SERVERS + 1;

	for (uint32_t i = 1; i <= SERVERS; i++)
		nd[i] = node_add(i, i, v);
	for (unsigned i = 0; i < READERS; i++)
		pthread_create(&t[i], NULL, reader, NULL);
	for (comes = node_add(id, 200, v); clock_mono_ms() < until; v++) {
		for (uint32_t i = 1; i <= SERVERS; i++) {
			pthread_mutex_lock(&D->d_lock);
			change(nd[i], v);
			ds_reg_unlock(D, nd[i]);
		}
		if (v % 64 == 0)
			nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
		if (v % 64 || id == DS_REG_MAX)
			continue;
		pthread_mutex_lock(&D->d_lock);
		ds_reg_node_del(D, id);
		ds_reg_unlock(D, NULL);
		ck_assert(!ds_reg_known(D, id) && ds_reg_dead(D, id) &&
			  ds_reg_since_heartbeat_ms(D, id) == DS_REG_GONE);
		comes = node_add(++id, 200, v);
	}
	ended = true;
	for (unsigned i = 0; i < READERS; i++)
		pthread_join(t[i], NULL);
	ck_assert_ptr_eq(ds_reg_find_uuid(D, comes->nd_sv.sv_uuid), comes);
	ck_assert_uint_eq(ds_reg_number(D, comes->nd_sv.sv_uuid), id);
	ck_assert_uint_eq(ds_reg_count(D), SERVERS + 1);
	ck_assert_uint_gt(reads, 100);
	ck_assert_uint_gt(seen_gone, 0);
	ck_assert_uint_gt(seen_dead, 0);
}
END_TEST

START_TEST(the_least_that_any_server_demands_is_told)
{
	struct ds_reg_node *a, *b;

	ck_assert_uint_eq(ds_reg_least_tls(D), RPC_TLS_OFF);
	a = node_add(1, 1, 1);
	b = node_add(2, 2, 1);
	pthread_mutex_lock(&D->d_lock);
	a->nd_sv.sv_tls = RPC_TLS_CERT;
	ds_reg_publish(D, 1);
	b->nd_sv.sv_tls = RPC_TLS_REQUIRED;
	ds_reg_unlock(D, b);
	ck_assert_uint_eq(ds_reg_least_tls(D), RPC_TLS_REQUIRED);
	pthread_mutex_lock(&D->d_lock);
	b->nd_terms.dt_barred = DS_REG_KILLED;
	ds_reg_unlock(D, b);
	ck_assert_uint_eq(ds_reg_least_tls(D), RPC_TLS_CERT);
	ck_assert_uint_eq(ds_reg_since_heartbeat_ms(D, 2), DS_REG_GONE);
	pthread_mutex_lock(&D->d_lock);
	ds_reg_node_del(D, 1);
	ds_reg_unlock(D, NULL);
	ck_assert_uint_eq(ds_reg_least_tls(D), RPC_TLS_CERT);
}
END_TEST

/* Nobody's heartbeats were answered then. */
START_TEST(the_time_in_which_the_store_was_not_held_is_no_silence)
{
	struct ds_reg_node *nd = node_add(1, 1, 1);
	struct ds_reg_link link = {.lk_server = 1};
	struct ds_reg_told to = {.to_tells = true, .to_start_id = 7};

	D->d_opts.do_lease_ms = D->d_opts.do_suspect_ms = 60000;
	pthread_mutex_lock(&D->d_lock);
	nd->nd_link = &link;
	nd->nd_terms.dt_start = nd->nd_terms.dt_start_id = 1;
	nd->nd_state = DS_REG_DEAD;
	nd->nd_unserving = nd->nd_may_join = true;
	nd->nd_heard_ms = nd->nd_reported_ms = 1;
	ck_assert_int_eq(ds_reg_gate_rival(D, nd, NULL, &to), DS_REG_RIVAL_NONE);
	ds_reg_unlock(D, nd);
	ck_assert_uint_gt(ds_reg_since_heartbeat_ms(D, 1), 60000);
	atomic_store(&D->d_shut_ms, clock_mono_ms());
	ck_assert_uint_lt(ds_reg_since_heartbeat_ms(D, 1), 60000);
	pthread_mutex_lock(&D->d_lock);
	ck_assert_int_eq(ds_reg_gate_rival(D, nd, NULL, &to), DS_REG_RIVAL_WAIT);
	nd->nd_link = NULL;
	ds_reg_unlock(D, nd);
}
END_TEST

/* That daemons have TLS where clients have none outlives a restart; a program that does not know it
 * takes it for none (up to RPC_TLS_CERT is for clients). */
START_TEST(a_record_keeps_who_has_tls)
{
	struct ds_reg_terms dt = {.dt_weight = DS_REG_WEIGHT_ONE}, dt2;
	struct ds_reg_server sv = {.sv_id = 1, .sv_name = "one"}, sv2;
	uint8_t row[DS_REG_ROW_MAX];

	for (unsigned tls = RPC_TLS_OFF; tls <= RPC_TLS_CERT; tls++)
		for (unsigned peers = 0; peers <= (tls == RPC_TLS_OFF); peers++) {
			size_t len;

			sv.sv_tls = (uint8_t)tls;
			sv.sv_peers = peers;
			len = ds_reg_row_encode(&sv, &dt, row);
			ck_assert_uint_eq(row[2], peers ? CTL_TLS_PEERS : tls);
			ck_assert_int_eq(ds_reg_row_decode((struct kv_slice){sv.sv_uuid, 16},
							   (struct kv_slice){row, len}, &sv2, &dt2),
					 0);
			ck_assert_uint_eq(sv2.sv_tls, tls);
			ck_assert(sv2.sv_peers == peers);
		}
	ck_assert_uint_gt(CTL_TLS_PEERS, RPC_TLS_CERT);
}
END_TEST

int main(void)
{
	static const TTest *tests[5];
	Suite *s = suite_create("dsc");

	tests[0] = who_asks_sees_one_state_of_a_server_and_never_an_older_one;
	tests[1] = the_least_that_any_server_demands_is_told;
	tests[2] = a_record_keeps_who_has_tls;
	tests[3] = the_time_in_which_the_store_was_not_held_is_no_silence;
	unit_add(s, "views", setup, teardown, 60, tests);
	return unit_run(s);
}
