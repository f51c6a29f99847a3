/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pg_redo_test.c - how a process with its log in PostgreSQL ends (mds/pg_redo.h). At a real primary
 * with two synchronous standbys.
 */
#include "mds/pg_redo.h"
#include "tests/unit/pg_world.h"
#include <errno.h>
#include <sys/eventfd.h>

static struct store_lease lease;

static struct pg_redo *redo(uint32_t inst, int wake)
{
	struct pg_options o = world_options("p", inst);
	struct pg_redo_opts ro = {.po_conninfo = o.o_conninfo,
				  .po_owner = "test",
				  .po_copy = "test 1",
				  .po_inst = inst,
				  .po_lease_ms = WORLD_L,
				  .po_replicas = 2,
				  .po_wake = wake,
				  .po_lease = &lease};
	uint8_t id[KV_REDO_ID];
	struct pg_redo *pr;
	char err[512];
	bool due = false;

	store_lease_init(&lease, 0);
	ck_assert_msg(!pg_redo_open(&pr, &ro, err, sizeof(err)), "%s", err);
	WAIT_FOR(!pg_redo_kv(pr)->r_ops->ro_id(pr, id, err, sizeof(err)));
	WAIT_FOR(!pg_redo_look(pr, &due, err, sizeof(err)) && due);
	return pr;
}

static int take(struct pg_redo *pr)
{
	struct kv_redo_end end;
	char err[512];

	return pg_redo_kv(pr)->r_ops->ro_take(pr, &end, err, sizeof(err));
}

/* A claim that failed needs another look. */
static bool takes(struct pg_redo *pr)
{
	char err[512];
	bool due;

	return !pg_redo_look(pr, &due, err, sizeof(err)) && due && !take(pr);
}

/* Between the look that says that it may claim and the claim, it is told to end. */
START_TEST(one_that_is_to_end_claims_nothing)
{
	int wake = eventfd(1, EFD_CLOEXEC);
	uint64_t n;
	struct pg_redo *pr;

	ck_assert_int_eq(read(wake, &n, sizeof(n)), sizeof(n));
	pr = redo(1, wake);
	ck_assert_int_eq(write(wake, &n, sizeof(n)), sizeof(n));
	ck_assert_int_eq(take(pr), -ECANCELED);
	ck_assert_int_eq(pg_redo_close(pr), 0);
	/* Also what is under way in PostgreSQL ends before this. */
	sql("p", "begin; lock table instance; commit");
	ck_assert_str_eq(sql("p", "select epoch || owner from instance where id = 1"), "0");
	close(wake);
}
END_TEST

/* The end of --restored waits for PostgreSQL, until this process waits no more. */
START_TEST(one_that_was_stopped_waits_no_more)
{
	struct pg_redo *pr = redo(2, 0);
	char err[512];

	WAIT_FOR(takes(pr));
	sql("p", "update instance set restored = 1 where id = 2");
	WAIT_FOR(!pg_redo_whole(pr, err, sizeof(err)));
	ck_assert_str_eq(sql("p", "select restored from instance where id = 2"), "0");
	pg_redo_stop(pr);
	ck_assert_int_eq(pg_redo_whole(pr, err, sizeof(err)), -ECANCELED);
	pg_redo_close(pr);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {one_that_is_to_end_claims_nothing,
				      one_that_was_stopped_waits_no_more, NULL};

	return world_run("pg_redo", 180, tests);
}
