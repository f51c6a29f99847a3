/* SPDX-License-Identifier: Apache-2.0 */
/* rdma_verbs_test.c - what we ask of libibverbs: this program has its own of some of its
 * functions. */
#include "proto/rpc_rdma_int.h"
#include "tests/unit/unit.h"
#include <errno.h>

static int vector = -1;

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

int main(void)
{
	Suite *s = suite_create("rdma_verbs");
	TCase *tc = tcase_create("asked");

	tcase_add_test(tc, loops_have_completion_vectors_of_their_own);
	suite_add_tcase(s, tc);
	return unit_run(s);
}
