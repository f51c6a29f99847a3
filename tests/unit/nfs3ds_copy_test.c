/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nfs3ds_copy_test.c - copies onto an NFSv3 data server whose connections fail. The servers are
 * arrays here: the linker puts these calls in place of those that go over the network.
 */
#include "mds/dataserver/nfs3ds.h"
#include "tests/unit/unit.h"
#include <errno.h>

#define MIB    (1u << 20)
#define SIZE   (5 * MIB / 2)
#define TARGET 2
#define SOURCE 9
#define COPIES 64 /* of one server at a time */

static uint8_t source[SIZE], target[SIZE];
static uint64_t target_size;
static uint32_t owner; /* of the target: the epoch of the last fence */
/* what a call to the target ends with, and how many calls come before it */
static int fails;
static unsigned good;
static bool holds; /* keeps the next GETATTR without an answer */
static struct nfs3ds_rpc *held;
static struct gen g;
/* the answer */
static ctl_status said;
static ctl_rebuild_res result;

/* ---- the servers ---- */

static int target_call(void)
{
	int err = fails;

	if (good) {
		good--;
		return 0;
	}
	fails = 0;
	return err;
}

bool __wrap_ds_reg_get(struct ds_reg *d, uint32_t id, struct ds_reg_server *sv);
bool __wrap_ds_reg_get(struct ds_reg *d, uint32_t id, struct ds_reg_server *sv)
{
	(void)d;
	*sv = (struct ds_reg_server){.sv_id = id, .sv_max_read = MIB, .sv_max_write = MIB};
	return true;
}

bool __wrap_ds_reg_get_uuid(struct ds_reg *d, const uint8_t uuid[16], struct ds_reg_server *sv);
bool __wrap_ds_reg_get_uuid(struct ds_reg *d, const uint8_t uuid[16], struct ds_reg_server *sv)
{
	(void)uuid;
	return __wrap_ds_reg_get(d, SOURCE, sv);
}

void __wrap_ds_reg_read(struct ds_reg *d, uint32_t id, const struct ds_reg_handle *h,
			struct ds_reg_io *io, uint32_t timeout_ms);
void __wrap_ds_reg_read(struct ds_reg *d, uint32_t id, const struct ds_reg_handle *h,
			struct ds_reg_io *io, uint32_t timeout_ms)
{
	int err = id == TARGET ? target_call() : 0;
	uint64_t left = SIZE - io->di_off;

	(void)d, (void)h, (void)timeout_ms;
	io->di_count = left < io->di_count ? (uint32_t)left : io->di_count;
	io->di_eof = io->di_off + io->di_count == SIZE;
	if (!err)
		memcpy(io->di_read_to, (id == TARGET ? target : source) + io->di_off, io->di_count);
	io->di_done(io, err);
}

void __wrap_nfs3ds_copy_write(struct ds_reg *d, uint32_t id, const struct ds_reg_handle *h,
			      struct ds_reg_io *io, uint32_t timeout_ms);
void __wrap_nfs3ds_copy_write(struct ds_reg *d, uint32_t id, const struct ds_reg_handle *h,
			      struct ds_reg_io *io, uint32_t timeout_ms)
{
	int err = target_call();

	(void)d, (void)id, (void)timeout_ms;
	if (!err && h->dh_uid != owner)
		err = -EACCES;
	if (!err)
		memcpy(target + io->di_off, io->di_data, io->di_count);
	io->di_verifier = 1;
	io->di_done(io, err);
}

void __wrap_ds_reg_commit(struct ds_reg *d, uint32_t id, const struct ds_reg_handle *h,
			  struct ds_reg_io *io, uint32_t timeout_ms);
void __wrap_ds_reg_commit(struct ds_reg *d, uint32_t id, const struct ds_reg_handle *h,
			  struct ds_reg_io *io, uint32_t timeout_ms)
{
	(void)d, (void)id, (void)h, (void)timeout_ms;
	io->di_verifier = 1;
	io->di_done(io, target_call());
}

static void target_attr(struct nfs3ds_rpc *r)
{
	r->gr_err = target_call();
	r->gr_status = NFS3_OK;
	r->gr_attr = (struct nfs3_fattr){.fa_size = target_size, .fa_uid = owner, .fa_gid = owner};
	r->gr_done(r);
}

void __wrap_nfs3ds_getattr(struct rpc_client *cl, struct nfs3ds_rpc *r, const struct nfs3ds_fh *fh);
void __wrap_nfs3ds_getattr(struct rpc_client *cl, struct nfs3ds_rpc *r, const struct nfs3ds_fh *fh)
{
	(void)cl, (void)fh;
	if (holds)
		held = r;
	else
		target_attr(r);
	holds = false;
}

void __wrap_nfs3ds_setattr(struct rpc_client *cl, struct nfs3ds_rpc *r, const struct nfs3ds_fh *fh,
			   const struct nfs3_sattr *sa);
void __wrap_nfs3ds_setattr(struct rpc_client *cl, struct nfs3ds_rpc *r, const struct nfs3ds_fh *fh,
			   const struct nfs3_sattr *sa)
{
	(void)cl, (void)fh;
	if (!fails || good)
		target_size = sa->sa_size;
	target_attr(r);
}

int __wrap_nfs3ds_object_find(struct gen *gen, const ctl_object *o, uint32_t epoch,
			      uint8_t key[NFS3DS_OBJECT_KEY], struct nfs3ds_object *out,
			      struct ds_reg_handle *h);
int __wrap_nfs3ds_object_find(struct gen *gen, const ctl_object *o, uint32_t epoch,
			      uint8_t key[NFS3DS_OBJECT_KEY], struct nfs3ds_object *out,
			      struct ds_reg_handle *h)
{
	(void)gen, (void)out;
	memset(key, 0, NFS3DS_OBJECT_KEY);
	memcpy(key, &o->ino, sizeof(o->ino));
	*h = (struct ds_reg_handle){.dh_len = sizeof(o->ino), .dh_uid = epoch, .dh_gid = epoch};
	memcpy(h->dh_data, &o->ino, sizeof(o->ino));
	return 0;
}

bool __wrap_ds_reg_has_generic(struct ds_reg *d);
bool __wrap_ds_reg_has_generic(struct ds_reg *d)
{
	(void)d;
	return true;
}

struct gen *__wrap_ds_reg_nfs3_of(struct ds_reg *d, uint32_t id);
struct gen *__wrap_ds_reg_nfs3_of(struct ds_reg *d, uint32_t id)
{
	(void)d, (void)id;
	return &g;
}

void __wrap_nfs3ds_answer(struct ds_reg_ctl *c, ctl_response *res);
void __wrap_nfs3ds_answer(struct ds_reg_ctl *c, ctl_response *res)
{
	said = res->status;
	result = res->result.ctl_result_u.rebuild;
	free(c);
}

void __wrap_nfs3ds_refuse(struct ds_reg_ctl *c, ctl_status status);
void __wrap_nfs3ds_refuse(struct ds_reg_ctl *c, ctl_status status)
{
	said = status;
	free(c);
}

/* ---- steps ---- */

static ctl_status step(ctl_rebuild_step what, uint64_t ino, uint64_t session, uint64_t off)
{
	struct ds_reg_ctl *c = calloc(1, sizeof(*c));
	ctl_rebuild_args *a = &c->dc_req.ctl_request_u.rebuild;

	a->step = what;
	a->object.ino = ino;
	a->epoch = (uint32_t)session; /* the tests fence before each session */
	a->session = session;
	a->offset = off;
	a->length = 8 * MIB;
	said = CTL_INVAL;
	nfs3ds_rebuild(&g, c);
	return said;
}

static ctl_status begin(uint64_t ino, uint64_t session)
{
	owner = (uint32_t)session;
	return step(CTL_REBUILD_BEGIN, ino, session, 0);
}

static ctl_status pull(uint64_t session, uint64_t off)
{
	return step(CTL_REBUILD_PULL, 1, session, off);
}

static ctl_status end(uint64_t session)
{
	return step(CTL_REBUILD_END, 1, session, 0);
}

/* The n-th call to the target from here on ends with err. */
static void lose(unsigned n, int err)
{
	fails = err;
	good = n - 1;
}

static void setup(void)
{
	memset(&g, 0, sizeof(g));
	g.gn_id = TARGET;
	pthread_mutex_init(&g.gn_copy_lock, NULL);
	for (unsigned i = 0; i < SIZE; i++)
		source[i] = (uint8_t)(i * 7 + i / 4096);
	memset(target, 0xee, SIZE);
	target_size = SIZE;
}

static void teardown(void)
{
	nfs3ds_copies_free(&g);
}

/* ---- the tests ---- */

static const int lost[] = {ECONNRESET,	 ECONNABORTED, EPIPE,	    ENOTCONN,
			   ECONNREFUSED, EHOSTUNREACH, ENETUNREACH, EHOSTDOWN};

START_TEST(a_server_that_is_gone_for_a_while_does_not_end_a_copy)
{
	int err = -lost[_i];

	ck_assert_int_eq(begin(1, 1), CTL_OK);
	ck_assert_int_eq(pull(1, 0), CTL_OK);
	ck_assert_uint_eq(result.next, MIB);
	/* a READ of the target */
	lose(1, err);
	ck_assert_int_eq(pull(1, MIB), CTL_NOT_JOINED);
	/* a WRITE: the server may still do it, so a fence comes first */
	lose(2, err);
	ck_assert_int_eq(pull(1, MIB), CTL_REBUILDING);
	ck_assert_int_eq(pull(1, MIB), CTL_BAD_SESSION);
	ck_assert_int_eq(begin(1, 2), CTL_OK);
	/* A session that begins at 0 refuses this offset. */
	ck_assert_int_eq(pull(2, MIB), CTL_OK);
	/* the SETATTR of the size: likewise */
	lose(3, err);
	ck_assert_int_eq(pull(2, 2 * MIB), CTL_REBUILDING);
	ck_assert_int_eq(begin(1, 3), CTL_OK);
	ck_assert_int_eq(pull(3, 2 * MIB), CTL_OK);
	ck_assert(result.eof);
	/* COMMIT and GETATTR of END */
	lose(1, err);
	ck_assert_int_eq(end(3), CTL_NOT_JOINED);
	lose(2, err);
	ck_assert_int_eq(end(3), CTL_NOT_JOINED);
	ck_assert_int_eq(end(3), CTL_OK);
	ck_assert_uint_eq(target_size, SIZE);
	ck_assert_mem_eq(target, source, SIZE);
}
END_TEST

/* A copy of which a WRITE got no answer. */
static void unsure(uint64_t ino, uint64_t session)
{
	ck_assert_int_eq(begin(ino, session), CTL_OK);
	ck_assert_int_eq(step(CTL_REBUILD_PULL, ino, session, 0), CTL_OK);
	memset(target + MIB, 0xee, MIB);
	lose(2, -ECONNRESET);
	ck_assert_int_eq(step(CTL_REBUILD_PULL, ino, session, MIB), CTL_REBUILDING);
}

START_TEST(a_begin_that_is_cut_does_not_end_a_copy)
{
	int err = -lost[_i];

	ck_assert_int_eq(begin(1, 1), CTL_OK);
	ck_assert_int_eq(pull(1, 0), CTL_OK);
	lose(2, err);
	ck_assert_int_eq(pull(1, MIB), CTL_REBUILDING);
	/* its GETATTR, and its COMMIT */
	for (unsigned n = 1; n <= 2; n++) {
		lose(n, err);
		ck_assert_int_eq(begin(1, 1 + n), CTL_NOT_JOINED);
		ck_assert_int_eq(pull(1 + n, MIB), CTL_BAD_SESSION);
	}
	ck_assert_int_eq(begin(1, 4), CTL_OK);
	/* A session that begins at 0 refuses this offset. */
	ck_assert_int_eq(pull(4, MIB), CTL_OK);
	ck_assert_int_eq(pull(4, 2 * MIB), CTL_OK);
	ck_assert_int_eq(end(4), CTL_OK);
	ck_assert_mem_eq(target, source, SIZE);
}
END_TEST

START_TEST(a_begin_that_fails_ends_a_copy)
{
	unsure(1, 1);
	lose(1, -EIO);
	ck_assert_int_eq(begin(1, 2), CTL_IO);
	ck_assert_uint_eq(atomic_load(&g.gn_ncopies), 0);
}
END_TEST

/* A copy that a client's write has missed. */
static void missed(uint64_t ino, uint64_t session)
{
	struct ds_reg_handle h = {.dh_len = sizeof(ino)};
	struct ds_reg_io io = {.di_off = MIB, .di_asked = MIB};

	memcpy(h.dh_data, &ino, sizeof(ino));
	ck_assert_int_eq(begin(ino, session), CTL_OK);
	ck_assert(!nfs3ds_copy_note(NULL, TARGET, &h, &io));
	io.di_err = -EIO;
	nfs3ds_copy_noted(&io);
	ck_assert_int_eq(step(CTL_REBUILD_PULL, ino, session, 0), CTL_BAD_SESSION);
}

START_TEST(copies_whose_jobs_are_over_make_room_for_others)
{
	for (uint64_t ino = 1; ino < COPIES; ino++)
		unsure(ino, 1);
	missed(COPIES, 2);
	ck_assert_int_eq(begin(COPIES + 1, 1), CTL_OK);
	ck_assert_uint_eq(atomic_load(&g.gn_ncopies), COPIES);
	/* The oldest went. A session that begins at 0 refuses this offset. */
	ck_assert_int_eq(begin(2, 2), CTL_OK);
	ck_assert_int_eq(step(CTL_REBUILD_PULL, 2, 2, MIB), CTL_OK);
	ck_assert_int_eq(begin(1, 2), CTL_OK);
	ck_assert_int_eq(step(CTL_REBUILD_PULL, 1, 2, MIB), CTL_INVAL);
	/* The one that missed a write goes when its turn comes. */
	for (uint64_t ino = COPIES + 2; ino < 2 * COPIES - 2; ino++)
		ck_assert_int_eq(begin(ino, 3), CTL_OK);
	ck_assert_int_eq(begin(2 * COPIES - 2, 3), CTL_OK);
	ck_assert_int_eq(begin(2 * COPIES - 1, 3), CTL_IO);
}
END_TEST

START_TEST(copies_under_way_make_no_room)
{
	uint8_t key[NFS3DS_OBJECT_KEY] = {1};

	holds = true;
	begin(1, 1);
	ck_assert(!nfs3ds_copy_end(&g, key)); /* it ends, but not under its step */
	for (uint64_t ino = 2; ino <= COPIES; ino++)
		ck_assert_int_eq(begin(ino, 1), CTL_OK);
	ck_assert_int_eq(begin(COPIES + 1, 1), CTL_IO);
	target_attr(held);
	ck_assert_int_eq(said, CTL_BAD_SESSION);
	ck_assert_int_eq(begin(COPIES + 1, 1), CTL_OK);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("nfs3ds_copy");
	TCase *tc = tcase_create("copies");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, a_server_that_is_gone_for_a_while_does_not_end_a_copy, 0,
			    sizeof(lost) / sizeof(lost[0]));
	tcase_add_loop_test(tc, a_begin_that_is_cut_does_not_end_a_copy, 0,
			    sizeof(lost) / sizeof(lost[0]));
	tcase_add_test(tc, a_begin_that_fails_ends_a_copy);
	tcase_add_test(tc, copies_whose_jobs_are_over_make_room_for_others);
	tcase_add_test(tc, copies_under_way_make_no_room);
	suite_add_tcase(s, tc);
	return unit_run(s);
}
