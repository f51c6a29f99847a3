/* SPDX-License-Identifier: Apache-2.0 */
/* libweft_test.c - libweft without a server: what it makes of replies that no server of ours gives,
 * and of a lack of memory. */
#include "client/layout.h"
#include "client/report.h"
#include "client/weft_op.h"
#include "client/weft_io.h"
#include "client/back.h"
#include "client/device.h"
#include "tests/unit/unit.h"
#include "tests/unit/weft_alone.h"
#include <stdlib.h>

static struct weft_ring *r;
static struct weft w;
static unsigned ended;

/* The next so many-th calloc fails. */
static unsigned calloc_fails;
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
	return calloc_fails && !--calloc_fails ? NULL : __real_calloc(n, size);
}

/* What is under way at a test's end ends after it. */
static struct weft_op op, other, again;

static void done(struct weft_op *o)
{
	(void)o;
	ended++;
}

static struct weft_op opening(void)
{
	return (struct weft_op){.o_what = WEFT_OPEN,
				.o_name = "f",
				.o_flags = WEFT_O_READ | WEFT_O_WRITE,
				.o_done = done,
				.o_w = &w};
}

static void setup(void)
{
	if (!r)
		ck_assert_int_eq(weft_ring_create(&r), 0);
	alone_begin(&w, r);
	w.w_pnfs = w.w_have_session = true;
	w.w_state = WC_SETUP; /* calls wait until they are taken */
	ended = 0;
	op = again = opening();
}

static void teardown(void)
{
	struct wc_call *c = w.w_all, *next;

	/* What was sent and not answered is answered by nothing. */
	for (; c; c = next) {
		next = c->wcl_all_next;
		if (!c->wcl_queued && !c->wcl_timer.t_pos) {
			struct xdr_in x;

			xdr_in_init(&x, "", 0);
			wc_call_feed(c, &x);
			next = w.w_all;
		}
	}
	alone_end(&w);
}

/* ---- replies ---- */

static struct xdr_out out;

static void reply_begin(uint32_t status, uint32_t nops)
{
	xdr_out_init(&out, 65536);
	xdr_put_u32(&out, status);
	xdr_put_u32(&out, 0);
	xdr_put_u32(&out, nops);
}

static void result(uint32_t opnum, uint32_t status)
{
	xdr_put_u32(&out, opnum);
	xdr_put_u32(&out, status);
}

static void sequence_ok(const struct wc_call *c)
{
	result(OP_SEQUENCE, NFS4_OK);
	xdr_put_fixed(&out, w.w_session, NFS4_SESSIONID_SIZE);
	xdr_put_u32(&out, w.w_slots[c->wcl_slot].sl_seq);
	xdr_put_u32(&out, (uint32_t)c->wcl_slot);
	xdr_put_u32(&out, 7);
	xdr_put_u32(&out, 7);
	xdr_put_u32(&out, 0);
}

static void stateid(uint32_t seq)
{
	const uint8_t other[NFS4_OTHER_SIZE] = {7};

	xdr_put_u32(&out, seq);
	xdr_put_fixed(&out, other, sizeof(other));
}

static void feed(struct wc_call *c)
{
	struct xdr_in x;

	ck_assert(!out.bad);
	xdr_in_init(&x, out.x_head, out.x_len);
	wc_call_feed(c, &x);
	xdr_out_free(&out);
}

/* The handle, and the attributes: a size alone, and limits where th is there. */
static void handle_and_size(uint64_t size, const uint64_t *th)
{
	result(OP_GETFH, NFS4_OK);
	xdr_put_opaque(&out, "file", 4);
	result(OP_GETATTR, NFS4_OK);
	xdr_put_u32(&out, th ? 3 : 1);
	xdr_put_u32(&out, 1u << FATTR4_SIZE);
	if (th) {
		xdr_put_u32(&out, 0);
		xdr_put_u32(&out, 1u << FATTR4_MDSTHRESHOLD % 32);
	}
	xdr_put_u32(&out, th ? 8 + 4 + 4 + 8 + 4 + 8 * 4 : 8);
	xdr_put_u64(&out, size);
	if (!th)
		return;
	xdr_put_u32(&out, 1);
	xdr_put_u32(&out, LAYOUT4_FLEX_FILES);
	xdr_put_u32(&out, 1);
	xdr_put_u32(&out, 0xf);
	xdr_put_u32(&out, 32);
	for (int i = 0; i < 4; i++)
		xdr_put_u64(&out, th[i]);
}

static void open_ok(const struct wc_call *c)
{
	sequence_ok(c);
	result(OP_PUTROOTFH, NFS4_OK);
	result(OP_OPEN, NFS4_OK);
	stateid(1);
	xdr_put_bool(&out, true);
	xdr_put_u64(&out, 1);
	xdr_put_u64(&out, 2);
	xdr_put_u32(&out, 0);
	xdr_put_u32(&out, 0);
	xdr_put_u32(&out, OPEN_DELEGATE_NONE);
}

/* One mirror; two stripes of a file are on one server each. */
static void layout_ok(uint32_t nds)
{
	size_t at;

	result(OP_LAYOUTGET, NFS4_OK);
	xdr_put_bool(&out, true);
	stateid(1);
	xdr_put_u32(&out, 1);
	xdr_put_u64(&out, 0);
	xdr_put_u64(&out, NFS4_UINT64_MAX);
	xdr_put_u32(&out, LAYOUTIOMODE4_RW);
	xdr_put_u32(&out, LAYOUT4_FLEX_FILES);
	at = out.x_len;
	xdr_put_u32(&out, 0);
	xdr_put_u64(&out, 4096);
	xdr_put_u32(&out, 1);
	xdr_put_u32(&out, nds);
	for (uint32_t i = 0; i < nds; i++) {
		const uint8_t id[NFS4_DEVICEID4_SIZE] = {1};

		xdr_put_fixed(&out, id, sizeof(id));
		xdr_put_u32(&out, 1);
		xdr_put_u32(&out, 0);
		xdr_put_fixed(&out, id, NFS4_OTHER_SIZE);
		xdr_put_u32(&out, 1);
		xdr_put_opaque(&out, "object", 6);
		xdr_put_opaque(&out, "0", 1);
		xdr_put_opaque(&out, "0", 1);
	}
	xdr_put_u32(&out, 0);
	xdr_put_u32(&out, 0);
	xdr_patch_u32(&out, at, (uint32_t)(out.x_len - at - 4));
}

static struct wc_call *open_sent(struct weft_op *o)
{
	struct wc_call *c;

	wc_op_begin(o);
	c = wc_call_take(&w);
	ck_assert_ptr_nonnull(c);
	return c;
}

static struct wc_call *sent(uint32_t opnum)
{
	struct wc_call *c = wc_call_take(&w);
	struct xdr_in x;

	ck_assert_ptr_nonnull(c);
	xdr_in_init(&x, c->wcl_rpc.q_args.x_head, c->wcl_rpc.q_args.x_len);
	while (xdr_left(&x) >= 4)
		if (xdr_get_u32(&x) == opnum)
			return c;
	ck_abort_msg("operation %u is not in it", opnum);
	return NULL;
}

/* ---- tests ---- */

START_TEST(what_a_slot_forgot_may_have_been_done)
{
	struct wc_call *c;

	op = (struct weft_op){.o_what = WEFT_MKDIR, .o_name = "d", .o_done = done, .o_w = &w};
	w.w_slots[0].sl_seq = 5;
	c = open_sent(&op);
	c->wcl_given_up = true;
	w.w_slots[0].sl_retired = true;
	reply_begin(NFS4ERR_SEQ_MISORDERED, 1);
	result(OP_SEQUENCE, NFS4ERR_SEQ_MISORDERED);
	feed(c);
	ck_assert_uint_eq(ended, 0);
	ck_assert(op.o_again);
	ck_assert_uint_eq(w.w_slots[0].sl_seq, 1);
}
END_TEST

START_TEST(a_layout_that_cannot_be_flushed_is_told_by_the_next_commit)
{
	struct weft_file *f;
	struct wc_call *c = open_sent(&op);

	other = (struct weft_op){.o_what = WEFT_COMMIT, .o_done = done, .o_w = &w};
	reply_begin(NFS4ERR_LAYOUTUNAVAILABLE, 6);
	open_ok(c);
	handle_and_size(0, NULL);
	result(OP_LAYOUTGET, NFS4ERR_LAYOUTUNAVAILABLE);
	feed(c);
	ck_assert_uint_eq(ended, 1);
	ck_assert_int_eq(op.o_err, 0);
	f = op.o_file;
	ck_assert_int_eq(f->f_lo_state, WC_LO_OFF);
	f->f_lo = calloc(1, sizeof(*f->f_lo));
	f->f_lo->lo_tell = true;
	f->f_lo->lo_last = 1;
	f->f_lo_state = WC_LO_HELD;
	calloc_fails = 1;
	wc_lo_give_back(f);
	ck_assert_uint_eq(calloc_fails, 0);
	other.o_file = f;
	wc_op_begin(&other);
	ck_assert_uint_eq(ended, 2);
	ck_assert_int_eq(other.o_err, -ENOMEM);
}
END_TEST

START_TEST(a_layout_of_a_reply_that_is_bad_further_on_is_none)
{
	static uint8_t buf[16];
	struct wc_call *c;

	other = (struct weft_op){.o_what = WEFT_READ, .o_done = done, .o_w = &w};
	again = (struct weft_op){.o_what = WEFT_CLOSE, .o_done = done, .o_w = &w};
	op.o_flags |= WEFT_O_NO_DATA;
	c = open_sent(&op);
	reply_begin(NFS4_OK, 5);
	open_ok(c);
	handle_and_size(0, NULL);
	feed(c);
	ck_assert_uint_eq(ended, 1);
	other.o_file = again.o_file = op.o_file;
	other.o_buf = buf;
	other.o_len = sizeof(buf);
	wc_op_begin(&other);
	c = sent(OP_LAYOUTGET);
	reply_begin(NFS4_OK, 4);
	sequence_ok(c);
	result(OP_PUTFH, NFS4_OK);
	layout_ok(1);
	feed(c); /* a result is missing */
	ck_assert_ptr_null(op.o_file->f_lo);
	wc_op_begin(&again);
	sent(OP_READ);
	sent(OP_CLOSE);
}
END_TEST

START_TEST(a_layout_comes_with_the_open_and_goes_with_the_close)
{
	struct wc_call *c = open_sent(&op);
	struct weft_file *f;

	reply_begin(NFS4_OK, 6);
	open_ok(c);
	handle_and_size(0, NULL);
	layout_ok(2);
	feed(c);
	ck_assert_uint_eq(ended, 1);
	f = op.o_file;
	ck_assert_int_eq(f->f_lo_state, WC_LO_DEVICES);
	c = sent(OP_GETDEVICEINFO); /* once, though both stripes are there */
	ck_assert_ptr_null(wc_call_take(&w));
	reply_begin(NFS4ERR_NOENT, 2);
	sequence_ok(c);
	result(OP_GETDEVICEINFO, NFS4ERR_NOENT);
	feed(c);
	ck_assert_int_eq(f->f_lo_state, WC_LO_HELD);
	other = (struct weft_op){.o_what = WEFT_CLOSE, .o_file = f, .o_done = done, .o_w = &w};
	wc_op_begin(&other);
	c = sent(OP_LAYOUTRETURN);
	ck_assert_ptr_null(wc_call_take(&w));
	/* Refused, the file is closed all the same. */
	reply_begin(NFS4ERR_BAD_STATEID, 3);
	sequence_ok(c);
	result(OP_PUTFH, NFS4_OK);
	result(OP_LAYOUTRETURN, NFS4ERR_BAD_STATEID);
	feed(c);
	c = sent(OP_CLOSE);
	reply_begin(NFS4_OK, 3);
	sequence_ok(c);
	result(OP_PUTFH, NFS4_OK);
	result(OP_CLOSE, NFS4_OK);
	stateid(2);
	feed(c);
	ck_assert_uint_eq(ended, 2);
	ck_assert_int_eq(other.o_err, 0);
}
END_TEST

START_TEST(an_open_is_not_done_again_because_its_layout_must_wait)
{
	struct wc_call *c = open_sent(&op);

	reply_begin(NFS4ERR_DELAY, 6);
	open_ok(c);
	handle_and_size(0, NULL);
	result(OP_LAYOUTGET, NFS4ERR_DELAY);
	feed(c);
	ck_assert_uint_eq(ended, 1);
	ck_assert_int_eq(op.o_err, 0);
	ck_assert_int_eq(op.o_file->f_lo_state, WC_LO_NONE);
	ck_assert_ptr_null(wc_call_take(&w));
}
END_TEST

START_TEST(a_layout_that_was_recalled_on_its_way_is_given_back)
{
	const uint32_t recall[] = {htobe32(LAYOUT4_FLEX_FILES), 0, 0, htobe32(3)}; /* all */
	struct wc_call *c = open_sent(&op);
	struct xdr_in x;

	xdr_in_init(&x, recall, sizeof(recall));
	ck_assert_uint_eq(wc_lo_recall(&w, &x), NFS4ERR_NOMATCHING_LAYOUT);
	reply_begin(NFS4_OK, 6);
	open_ok(c);
	handle_and_size(0, NULL);
	layout_ok(1);
	feed(c);
	ck_assert_int_eq(op.o_file->f_lo_state, WC_LO_RETURNING);
	sent(OP_LAYOUTRETURN);
}
END_TEST

START_TEST(limits_are_read_and_kept_to)
{
	static const uint64_t th[4] = {100, 200, 10, 0};
	struct wc_call *c = open_sent(&op);
	static uint8_t buf[300];

	reply_begin(NFS4_OK, 6);
	open_ok(c);
	handle_and_size(150, th);
	layout_ok(1);
	feed(c);
	ck_assert_uint_eq(op.o_file->f_limits.th_write_size, 200);
	c = sent(OP_GETDEVICEINFO);
	other = (struct weft_op){.o_file = op.o_file, .o_done = done, .o_w = &w};
	other.o_buf = buf;
	other.o_what = WEFT_READ;
	other.o_len = 9;
	wc_op_begin(&other); /* the file is large enough, the request is not */
	sent(OP_READ);
	ck_assert_uint_eq(w.w_steered, 1);
	other.o_what = WEFT_WRITE;
	wc_op_begin(&other);
	sent(OP_WRITE);
	ck_assert_uint_eq(w.w_steered, 2);
	other.o_what = WEFT_READ;
	other.o_len = 10;
	wc_op_begin(&other); /* neither: it waits for the device */
	ck_assert_ptr_null(wc_call_take(&w));
	/* The next OPEN asks first. */
	open_sent(&again);
	ck_assert(!w.w_queue);
	ck_assert(w.w_threshold);
}
END_TEST

START_TEST(statistics_are_told_when_their_time_has_come)
{
	struct wc_call *c = open_sent(&op);
	struct wc_layout *lo;

	reply_begin(NFS4_OK, 6);
	open_ok(c);
	handle_and_size(0, NULL);
	layout_ok(2);
	feed(c);
	sent(OP_GETDEVICEINFO);
	lo = op.o_file->f_lo;
	op.o_file->f_lo_state = WC_LO_HELD;
	lo->lo_hint_s = 0;
	wc_lo_tell_stats(&w);
	ck_assert_ptr_null(wc_call_take(&w)); /* nothing was done */
	wc_lo_begins(&w, &lo->lo_ds[1].ld_read, 4096);
	wc_lo_ends(&w, &lo->lo_ds[1].ld_read, loop_now_ns(r->r_loop), 1000);
	w.w_stats_ns = 0;
	wc_lo_tell_stats(&w);
	c = sent(OP_LAYOUTSTATS);
	ck_assert_uint_eq(c->wcl_nops, 3);
	w.w_stats_ns = 0;
	wc_lo_tell_stats(&w);
	ck_assert_ptr_null(wc_call_take(&w)); /* nothing new */
	reply_begin(NFS4ERR_NOTSUPP, 3);
	sequence_ok(c);
	result(OP_PUTFH, NFS4_OK);
	result(OP_LAYOUTSTATS, NFS4ERR_NOTSUPP);
	feed(c);
	ck_assert(w.w_no_stats);
}
END_TEST

START_TEST(operations_without_what_they_need_are_refused)
{
	static const struct weft_op lacking[] = {
		{.o_what = WEFT_READLINK, .o_len = 1},
		{.o_what = WEFT_GETXATTR, .o_name = "x", .o_len = 1},
		{.o_what = WEFT_SETXATTR, .o_name = "x", .o_len = 1},
		{.o_what = WEFT_READ, .o_len = 1},
		{.o_what = WEFT_WRITE, .o_buf = &out, .o_len = 1},
		{.o_what = WEFT_CLOSE},
		{.o_what = WEFT_COMMIT},
		{.o_what = WEFT_OPEN, .o_name = "f"},
		{.o_what = WEFT_OPEN, .o_flags = WEFT_O_WRITE | WEFT_O_CREATE},
		{.o_what = WEFT_MKDIR},
		{.o_what = WEFT_REMOVE},
		{.o_what = WEFT_LINK},
		{.o_what = WEFT_SYMLINK, .o_name = "l"},
		{.o_what = WEFT_RENAME, .o_name = "a"},
		{.o_what = WEFT_GETATTR, .o_fh = {.fh_len = 129}},
		{.o_what = WEFT_NWHATS}};

	for (unsigned i = 0; i < sizeof(lacking) / sizeof(lacking[0]); i++) {
		op = lacking[i];
		op.o_done = done;
		op.o_w = &w;
		wc_op_begin(&op);
		ck_assert_msg(ended == i + 1 && op.o_err == -EINVAL,
			      "operation %u of the list (%u): %u ended, error %d", i, op.o_what,
			      ended, op.o_err);
	}
	/* how long it is */
	op = (struct weft_op){.o_what = WEFT_READLINK, .o_done = done, .o_w = &w};
	wc_op_begin(&op);
	sent(OP_READLINK);
}
END_TEST

START_TEST(an_nfsv3_server_is_asked_for_nothing_but_null)
{
	struct wc_call *c;
	struct xdr_in x;

	w.w_opts.wo_nfs3 = true;
	w.w_have_session = false;
	other = (struct weft_op){.o_what = WEFT_LOOKUP, .o_name = "f", .o_done = done, .o_w = &w};
	wc_op_begin(&other);
	ck_assert_uint_eq(ended, 1);
	ck_assert_int_eq(other.o_err, -EOPNOTSUPP);
	op = (struct weft_op){.o_what = WEFT_NULL, .o_done = done, .o_w = &w};
	c = open_sent(&op);
	xdr_in_init(&x, "", 0);
	wc_call_feed(c, &x);
	ck_assert_uint_eq(ended, 2);
	ck_assert_int_eq(op.o_err, 0);
}
END_TEST

START_TEST(a_layout_that_a_server_refuses_is_asked_for_again_after_a_minute)
{
	static uint8_t buf[16];
	struct wc_call *c = open_sent(&op);

	reply_begin(NFS4ERR_LAYOUTUNAVAILABLE, 6);
	open_ok(c);
	handle_and_size(0, NULL);
	result(OP_LAYOUTGET, NFS4ERR_LAYOUTUNAVAILABLE);
	feed(c);
	ck_assert_int_eq(op.o_err, 0);
	other = again = (struct weft_op){.o_what = WEFT_READ,
					 .o_file = op.o_file,
					 .o_buf = buf,
					 .o_len = sizeof(buf),
					 .o_done = done,
					 .o_w = &w};
	op.o_file->f_lo_off_ns -= 50 * 1000000000ull;
	wc_op_begin(&other);
	sent(OP_READ);
	op.o_file->f_lo_off_ns -= 10 * 1000000000ull;
	wc_op_begin(&again);
	sent(OP_LAYOUTGET);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("libweft");
	TCase *t = tcase_create("libweft");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, what_a_slot_forgot_may_have_been_done);
	tcase_add_test(t, a_layout_that_cannot_be_flushed_is_told_by_the_next_commit);
	tcase_add_test(t, a_layout_of_a_reply_that_is_bad_further_on_is_none);
	tcase_add_test(t, a_layout_comes_with_the_open_and_goes_with_the_close);
	tcase_add_test(t, an_open_is_not_done_again_because_its_layout_must_wait);
	tcase_add_test(t, a_layout_that_was_recalled_on_its_way_is_given_back);
	tcase_add_test(t, limits_are_read_and_kept_to);
	tcase_add_test(t, statistics_are_told_when_their_time_has_come);
	tcase_add_test(t, operations_without_what_they_need_are_refused);
	tcase_add_test(t, an_nfsv3_server_is_asked_for_nothing_but_null);
	tcase_add_test(t, a_layout_that_a_server_refuses_is_asked_for_again_after_a_minute);
	suite_add_tcase(s, t);
	return unit_run(s);
}
