/* SPDX-License-Identifier: Apache-2.0 */
/* rdma_verbs_test.c - what we ask of libibverbs: this program has its own of some of its
 * functions. */
#include "proto/rpc_rdma_int.h"
#include "tests/unit/unit.h"
#include <errno.h>

#define REGION (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

static unsigned asked[4], nasked;
static bool refuses;
static int vector = -1, rnr = -1;
static struct ibv_mr mr;

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				unsigned int access)
{
	(void)pd;
	(void)length;
	ck_assert_uint_eq(iova, (uintptr_t)addr);
	ck_assert_uint_lt(nasked, 4);
	asked[nasked++] = access;
	if (!refuses || !(access & IBV_ACCESS_RELAXED_ORDERING))
		return &mr;
	errno = EINVAL;
	return NULL;
}

#undef ibv_reg_mr /* it calls either, by what is known of access */
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, (unsigned)access);
}

int ibv_dereg_mr(struct ibv_mr *m)
{
	ck_assert_ptr_eq(m, &mr);
	return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *ctx, int cqe, void *cq_context,
			     struct ibv_comp_channel *channel, int comp_vector)
{
	(void)ctx;
	(void)cqe;
	(void)cq_context;
	(void)channel;
	vector = comp_vector;
	errno = ENOMEM;
	return NULL;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	(void)qp;
	ck_assert_int_eq(mask, IBV_QP_MIN_RNR_TIMER);
	rnr = attr->min_rnr_timer;
	return 0;
}

static void region_is_registered(void)
{
	static uint8_t memory[4096];
	static struct ibv_pd pd;
	struct rd_dev d = {.dv_pd = &pd, .dv_name = "fake0"};
	unsigned n = 0;

	nasked = 0;
	ck_assert_int_eq(rpc_rdma_memory_add(memory, sizeof memory), 0);
	rd_regions_open(&d);
	for (unsigned i = 0; i < RD_REGIONS; i++)
		n += atomic_load(&d.dv_region[i]) == &mr;
	ck_assert_uint_eq(n, 1);
	rd_regions_close(&d);
	ck_assert_int_eq(rpc_rdma_memory_remove(memory), 0);
}

START_TEST(memory_of_the_program_is_registered_with_relaxed_ordering)
{
	region_is_registered();
	ck_assert_uint_eq(nasked, 1);
	ck_assert_uint_eq(asked[0], REGION | IBV_ACCESS_RELAXED_ORDERING);
}
END_TEST

START_TEST(a_device_that_refuses_that_is_asked_without)
{
	refuses = true;
	region_is_registered();
	ck_assert_uint_eq(nasked, 2);
	ck_assert_uint_eq(asked[1], REGION);
}
END_TEST

START_TEST(loops_have_completion_vectors_of_their_own)
{
	struct ibv_context four = {.num_comp_vectors = 4}, none = {0};
	struct rd_dev d = {.dv_ctx = &four};
	struct rd_port p = {.pt_dev = &d};
	struct rd_conn r = {.r_dev = &d, .r_port = &p};

	for (unsigned i = 0; i < 12; i++) {
		p.pt_vector = rd_vector(&four, i);
		ck_assert_int_eq(rd_queues_make(&r), -ENOMEM);
		ck_assert_int_eq(vector, (int)(i % 4));
		ck_assert_int_eq(rd_vector(&none, i), 0);
	}
}
END_TEST

START_TEST(a_peer_without_a_receive_tries_again_soon)
{
	struct ibv_qp qp = {0};
	struct rd_dev d = {.dv_iwarp = true};
	struct rd_conn r = {.r_dev = &d, .r_qp = &qp};

	rd_rnr_soon(&r);
	ck_assert_int_eq(rnr, -1);
	d.dv_iwarp = false;
	rd_rnr_soon(&r);
	ck_assert_int_eq(rnr, 12);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("rdma_verbs");
	TCase *tc = tcase_create("asked");

	tcase_add_test(tc, memory_of_the_program_is_registered_with_relaxed_ordering);
	tcase_add_test(tc, a_device_that_refuses_that_is_asked_without);
	tcase_add_test(tc, loops_have_completion_vectors_of_their_own);
	tcase_add_test(tc, a_peer_without_a_receive_tries_again_soon);
	suite_add_tcase(s, tc);
	return unit_run(s);
}
