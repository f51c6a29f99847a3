/* SPDX-License-Identifier: Apache-2.0 */
/*
 * await_test.c - the real mds/nfs4/await.c, with a COMPOUND engine that records how often and with
 * which status it was resumed.
 */
#include "mds/nfs4/op.h"
#include "tests/unit/unit.h"

static struct compound c;
static struct rpc_call call;
static nfsstat4 resumed[4], answer;
static unsigned nresumed, nsteps, nstale, nwaits;
static int step_err;
static bool waits, waits_in_step;
static op_step *again;

/* ---- what await.c calls ---- */

void op_resume(struct compound *of, nfsstat4 status)
{
	ck_assert_ptr_eq(of, &c);
	resumed[nresumed++] = status;
}

void op_txn_stale(struct mds_thread *th)
{
	(void)th;
	nstale++;
}

nfsstat4 op_status(int err)
{
	return err ? NFS4ERR_IO : NFS4_OK;
}

void rpc_call_waits(struct rpc_call *of, bool on)
{
	ck_assert_ptr_eq(of, &call);
	nwaits += on && !waits;
	waits = on;
}

/* ---- the test's own operation ---- */

static void begin(void)
{
	c = (struct compound){.call = &call};
	nresumed = nsteps = nstale = nwaits = 0;
	waits = false;
	again = NULL;
	answer = NFS4ERR_EXIST;
}

static nfsstat4 step(struct compound *of, int err)
{
	op_step *next = again;

	nsteps++;
	step_err = err;
	waits_in_step = waits;
	again = NULL;
	return next ? op_await(of, next) : answer;
}

START_TEST(a_step_that_ends_the_operation_resumes_it_once_with_its_status)
{
	begin();
	ck_assert_uint_eq(op_await(&c, step), OP_PARKED);
	ck_assert_uint_eq(nsteps, 0);
	op_wake(&c, -EIO);
	ck_assert_uint_eq(nsteps, 1);
	ck_assert_int_eq(step_err, -EIO);
	ck_assert_uint_eq(nresumed, 1);
	ck_assert_uint_eq(resumed[0], NFS4ERR_EXIST);
}
END_TEST

START_TEST(a_step_that_waits_for_the_next_does_not_resume)
{
	begin();
	again = step;
	op_await(&c, step);
	op_wake(&c, 0);
	ck_assert_uint_eq(nsteps, 1);
	ck_assert_uint_eq(nresumed, 0);
	op_wake_ok(&c);
	ck_assert_uint_eq(nsteps, 2);
	ck_assert_uint_eq(nresumed, 1);
}
END_TEST

START_TEST(what_is_over_before_it_is_waited_for_runs_the_step_at_once)
{
	begin();
	op_wake(&c, -ENOENT);
	ck_assert_uint_eq(nsteps, 0);
	ck_assert_uint_eq(op_await(&c, step), NFS4ERR_EXIST);
	ck_assert_uint_eq(nsteps, 1);
	ck_assert_int_eq(step_err, -ENOENT);
	ck_assert_uint_eq(nresumed, 0); /* the caller has the status */
	/* It is not remembered for the next one. */
	ck_assert_uint_eq(op_await(&c, step), OP_PARKED);
	ck_assert_uint_eq(nsteps, 1);
}
END_TEST

START_TEST(each_step_begins_with_a_new_snapshot)
{
	begin();
	op_await(&c, step);
	ck_assert_uint_eq(nstale, 0);
	op_wake(&c, 0);
	ck_assert_uint_eq(nstale, 1);
	op_wake(&c, 0);
	op_await(&c, step);
	ck_assert_uint_eq(nstale, 2);
}
END_TEST

START_TEST(a_call_waits_for_a_client_only_while_it_is_parked_for_one)
{
	begin();
	op_await_client(&c, step);
	ck_assert(waits);
	op_wake(&c, 0);
	ck_assert(!waits_in_step && !waits);
	op_await(&c, step);
	ck_assert(!waits);
	op_client_waits(&c); /* what is waited for begins to depend on one */
	ck_assert(waits);
	op_wake(&c, 0);
	ck_assert(!waits_in_step && !waits);
	ck_assert_uint_eq(nwaits, 2);
	op_await_client(&c, step);
	op_client_came(&c); /* and the rest does not depend on one */
	ck_assert(!waits);
	op_wake(&c, 0);
	op_wake(&c, 0); /* it is over already: nothing waits */
	op_await_client(&c, step);
	ck_assert_uint_eq(nwaits, 3);
}
END_TEST

START_TEST(the_last_steps_give_the_status_of_the_error_and_ok)
{
	begin();
	op_await(&c, op_step_status);
	op_wake(&c, -EIO);
	ck_assert_uint_eq(resumed[0], NFS4ERR_IO);
	op_await(&c, op_step_ok);
	op_wake(&c, -EIO);
	ck_assert_uint_eq(resumed[1], NFS4_OK);
}
END_TEST

int main(void)
{
	static const TTest *tests[7];
	Suite *s = suite_create("await");

	tests[0] = a_step_that_ends_the_operation_resumes_it_once_with_its_status;
	tests[1] = a_step_that_waits_for_the_next_does_not_resume;
	tests[2] = what_is_over_before_it_is_waited_for_runs_the_step_at_once;
	tests[3] = each_step_begins_with_a_new_snapshot;
	tests[4] = a_call_waits_for_a_client_only_while_it_is_parked_for_one;
	tests[5] = the_last_steps_give_the_status_of_the_error_and_ok;
	unit_add(s, "steps", NULL, NULL, 30, tests);
	return unit_run(s);
}
