/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctl_chan_test.c - the sealed channel: both ends on one loop that the test turns itself, over a
 * real connection on the loopback. What goes over the wire passes through the test's dispatch,
 * which can keep and repeat it.
 */
#include "base/log.h"
#include "proto/ctl_chan.h"
#include "proto/ds_key.h"
#include "tests/unit/unit.h"
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <urcu/compiler.h>

static struct loop *L;
static struct rpc_listener *listener;
static struct rpc_client *client;
static struct ctl_chan *ds_chan, *mds_chan;
static uint8_t ds_key[32] = "key of the cluster", mds_key[32] = "key of the cluster";
static const uint8_t uuid[16] = "a data server's";
static int ready_err, ups, downs;
static bool keep_down;

/* ---- running the loop until something is so ---- */

static struct loop_timer poll_timer;
static bool (*until)(void);
static unsigned polls;

static void poll_fire(struct loop_timer *t)
{
	if (until() || ++polls > 5000)
		loop_stop(L);
	else
		loop_timer_start(L, t, 1);
}

static void run_until(bool (*cond)(void))
{
	until = cond;
	polls = 0;
	poll_timer.t_fire = poll_fire;
	loop_timer_start(L, &poll_timer, 1);
	loop_run(L);
	ck_assert_msg(cond(), "waited in vain");
}

/* ---- the MDS ---- */

static struct ctl_incoming *kept[16];
static unsigned nkept, served;
static bool keep_requests;
static uint8_t last_sealed[8192];
static size_t last_sealed_len;
static uint64_t served_ino;
static int accept_err = 1;
static bool mds_knows_4_only;
static unsigned hellos;
#define MDS_FS 0x1234
static uint16_t mds_fs = MDS_FS; /* its file system */

static void mds_serve(struct ctl_incoming *in, void *arg)
{
	ctl_result res = {.op = CTL_OP_EOF};

	ck_assert_ptr_eq(arg, &served);
	served++;
	if (keep_requests) {
		kept[nkept++] = in;
		return;
	}
	if (in->in_req.op != CTL_OP_EOF) {
		ctl_chan_reply(in, CTL_NOENT, NULL);
		return;
	}
	served_ino = in->in_req.ctl_request_u.eof.ino;
	res.ctl_result_u.eof.size = served_ino * 2;
	ctl_chan_reply(in, CTL_OK, &res);
}

static void mds_dispatch(struct rpc_call *call, void *arg)
{
	struct rpc_conn *conn = call->c_conn;
	struct ctl_chan *ch = rpc_conn_priv(conn);

	(void)arg;
	if (call->c_proc == CTL_PROC_HELLO) {
		struct xdr_in peek = call->c_args;
		static const uint8_t none[CTL_NONCE_LEN];

		hellos++;
		if (mds_knows_4_only && xdr_get_u32(&peek) != 4) {
			xdr_put_u32(&call->c_reply, 4);
			xdr_put_fixed(&call->c_reply, none, sizeof(none));
			rpc_reply(call);
			return;
		}
		ch = NULL;
		accept_err = ctl_chan_accept(&ch, call, mds_fs, mds_key, mds_serve, &served);
		rpc_conn_set_priv(conn, ch);
		mds_chan = ch;
		return;
	}
	if (!ch) {
		rpc_reply_error(call, RPC_A_PROC_UNAVAIL);
		return;
	}
	last_sealed_len = xdr_left(&call->c_args);
	ck_assert_uint_le(last_sealed_len, sizeof last_sealed);
	memcpy(last_sealed, call->c_args.p, last_sealed_len);
	ctl_chan_sealed(ch, call);
}

static void mds_opened(struct rpc_conn *c, void *arg)
{
	(void)c;
	(void)arg;
}

static void mds_closed(struct rpc_conn *c, void *arg)
{
	struct ctl_chan *ch = rpc_conn_priv(c);

	(void)arg;
	if (ch)
		ctl_chan_free(ch);
	if (mds_chan == ch)
		mds_chan = NULL;
}

/* ---- the data server ---- */

static unsigned ds_served;

static void ds_serve(struct ctl_incoming *in, void *arg)
{
	static ctl_stat stats[CTL_BATCH_MAX];
	ctl_result res = {.op = CTL_OP_STAT};

	(void)arg;
	ds_served++;
	ck_assert_int_eq(in->in_req.op, CTL_OP_STAT);
	res.ctl_result_u.stat.stats.stats_len = in->in_req.ctl_request_u.stat.objects.objects_len;
	res.ctl_result_u.stat.stats.stats_val = stats;
	stats[0].size = 4711;
	ctl_chan_reply(in, CTL_OK, &res);
}

static void ds_dispatch(struct rpc_call *call, void *arg)
{
	(void)arg;
	ctl_chan_sealed(ds_chan, call);
}

static void ready(struct ctl_chan *ch, int err, void *arg)
{
	(void)arg;
	ck_assert_ptr_eq(ch, ds_chan);
	ready_err = err;
}

/* It has keys of its own, of number 5, of file system pick_own. */
static bool picks;
static uint16_t pick_fs, pick_own;
static unsigned picked;

static enum ctl_seal pick(void *arg, uint16_t fs, uint8_t *number, uint8_t key[32])
{
	uint8_t tls[CAP_TLS_KEY_LEN];

	ck_assert_ptr_null(arg);
	picked++;
	if (fs == pick_own) {
		*number = 5;
		ds_key_derive_control(ds_key, uuid, 5, key);
		return CTL_SEAL_OWN;
	}
	cap_derive_tls_key(ds_key, uuid, tls);
	ds_key_derive_meet(tls, uuid, key);
	return CTL_SEAL_MEET;
}

static void up(struct rpc_client *cl, struct rpc_conn *conn, void *arg)
{
	(void)cl;
	(void)arg;
	ups++;
	if (keep_down)
		return;
	ready_err = 1;
	if (picks)
		ck_assert_int_eq(ctl_chan_connect_pick(&ds_chan, conn, pick_fs, pick, uuid,
						       ds_serve, NULL, ready),
				 0);
	else
		ck_assert_int_eq(
			ctl_chan_connect(&ds_chan, conn, ds_key, uuid, ds_serve, NULL, ready), 0);
}

static void down(struct rpc_client *cl, int err, void *arg)
{
	(void)cl;
	(void)err;
	(void)arg;
	downs++;
	keep_down = true; /* what comes up again is not part of the test */
	if (ds_chan)
		ctl_chan_free(ds_chan);
	ds_chan = NULL;
}

static const struct rpc_program mds_prog = {CTL_PROGRAM, CTL_VERSION,  CTL_VERSION,
					    3,		 mds_dispatch, NULL};
static const struct rpc_program ds_prog = {CTL_PROGRAM, CTL_VERSION, CTL_VERSION,
					   3,		ds_dispatch, NULL};

static void setup(void)
{
	static const struct rpc_client_ops ops = {up, down};
	struct rpc_service svc = {.rs_progs = &mds_prog,
				  .rs_nprogs = 1,
				  .rs_max_record = 1 << 20,
				  .rs_max_reply = 1 << 20,
				  .rs_opened = mds_opened,
				  .rs_closed = mds_closed};
	struct rpc_service ds_svc = {.rs_progs = &ds_prog,
				     .rs_nprogs = 1,
				     .rs_max_record = 1 << 20,
				     .rs_max_reply = 1 << 20};
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	log_set_level(LOG_L_ERROR);
	ck_assert_int_eq(loop_create(&L, 256), 0);
	ck_assert_int_eq(rpc_listen(&listener, L, (struct sockaddr *)&sin, sizeof sin, &svc, &L, 1),
			 0);
	sin.sin_port = htons(rpc_listener_port(listener));
	ck_assert_int_eq(rpc_client_create(&client, L, (struct sockaddr *)&sin, sizeof sin, &ds_svc,
					   &ops, NULL),
			 0);
	rpc_client_start(client);
}

static bool gone(void)
{
	return !ds_chan && !mds_chan;
}

static void teardown(void)
{
	if (ds_chan)
		rpc_conn_close(ctl_chan_conn(ds_chan));
	keep_down = true;
	run_until(gone);
	rpc_client_destroy(client);
	rpc_listener_close(listener);
}

static void setup_old_mds(void)
{
	mds_knows_4_only = true;
	mds_fs = 1;
	setup();
}

static void setup_own(void)
{
	picks = true;
	pick_own = MDS_FS;
	setup();
}

static void setup_own_known(void)
{
	pick_fs = MDS_FS;
	setup_own();
}

static void setup_meet(void)
{
	picks = true;
	pick_own = 1;
	setup();
}

static void setup_moved(void)
{
	picks = true;
	pick_own = pick_fs = 77;
	setup();
}

static void setup_own_of_old_mds(void)
{
	picks = true;
	pick_own = 1;
	setup_old_mds();
}

static bool has_failed(void)
{
	return ready_err < 0;
}

static bool is_ready(void)
{
	return ready_err == 0 && ds_chan && mds_chan;
}

static bool is_down(void)
{
	return downs > 0;
}

/* ---- calls of ours ---- */

static int done_err[32];
static unsigned done_status[32];
static uint64_t done_size[32];
static _Atomic unsigned ndone;

static void done(void *arg, int err, const ctl_response *res)
{
	unsigned i = (unsigned)(uintptr_t)arg;

	done_err[i] = err;
	if (!err) {
		done_status[i] = res->status;
		done_size[i] = res->result.ctl_result_u.eof.size;
	}
	ndone++;
}

static void ask(unsigned i, uint64_t ino, uint32_t timeout)
{
	ctl_request req = {.op = CTL_OP_EOF};

	req.ctl_request_u.eof.ino = ino;
	ck_assert_int_eq(ctl_chan_call(ds_chan, &req, timeout, done, (void *)(uintptr_t)i), 0);
}

static unsigned want_done;
static bool all_done(void)
{
	return ndone >= want_done;
}

static void wait_done(unsigned n)
{
	want_done = n;
	run_until(all_done);
}

/* ---- tests ---- */

START_TEST(both_ends_ask_and_answer)
{
	ctl_object o = {1, 2, 3, 4, 5};
	ctl_request req = {.op = CTL_OP_STAT};

	run_until(is_ready);
	ck_assert(!memcmp(ctl_chan_uuid(mds_chan), uuid, 16));
	for (unsigned i = 0; i < 20; i++)
		ask(i, i + 1, 5000);
	req.ctl_request_u.stat.objects.objects_len = 1;
	req.ctl_request_u.stat.objects.objects_val = &o;
	ck_assert_int_eq(ctl_chan_call(mds_chan, &req, 5000, done, (void *)20), 0);
	wait_done(21);
	for (unsigned i = 0; i < 20; i++) {
		ck_assert_int_eq(done_err[i], 0);
		ck_assert_uint_eq(done_status[i], CTL_OK);
		ck_assert_uint_eq(done_size[i], 2 * (i + 1));
	}
	ck_assert_int_eq(done_err[20], 0);
	ck_assert_uint_eq(ds_served, 1);
	ck_assert_int_eq(downs, 0);
}
END_TEST

START_TEST(both_ends_speak_the_newest_protocol)
{
	run_until(is_ready);
	ck_assert_uint_eq(hellos, 1);
	ck_assert_uint_eq(ctl_chan_protocol(ds_chan), CTL_PROTOCOL);
	ck_assert_uint_eq(ctl_chan_protocol(mds_chan), CTL_PROTOCOL);
	ck_assert_uint_eq(ctl_chan_fs(ds_chan), MDS_FS);
	ck_assert_uint_eq(ctl_chan_fs(mds_chan), MDS_FS);
}
END_TEST

static void speak(unsigned want_hellos, enum ctl_seal seal)
{
	uint8_t number;

	run_until(is_ready);
	ck_assert_uint_eq(hellos, want_hellos);
	ck_assert_uint_eq(picked, 1);
	ck_assert_int_eq(ctl_chan_seal(mds_chan), seal);
	ck_assert_int_eq(ctl_chan_seal(ds_chan), seal);
	ck_assert_int_eq(ctl_chan_own(mds_chan, &number), seal == CTL_SEAL_OWN);
	ck_assert_uint_eq(ctl_chan_fs(ds_chan), MDS_FS);
	ask(0, 21, 5000);
	wait_done(1);
	ck_assert_int_eq(done_err[0], 0);
	ck_assert_uint_eq(done_size[0], 42);
}

START_TEST(it_asks_and_uses_its_keys_of_that_file_system)
{
	speak(2, CTL_SEAL_OWN);
}
END_TEST

START_TEST(it_does_not_ask_what_it_knows)
{
	speak(1, CTL_SEAL_OWN);
}
END_TEST

START_TEST(it_meets_where_it_has_no_keys)
{
	speak(2, CTL_SEAL_MEET);
}
END_TEST

START_TEST(another_file_system_than_expected_is_said)
{
	run_until(has_failed);
	ck_assert_int_eq(ready_err, -EXDEV);
}
END_TEST

/* It answers a question as any HELLO that it does not know. */
START_TEST(an_mds_that_knows_no_question_is_of_file_system_1)
{
	run_until(has_failed);
	ck_assert_int_eq(ready_err, -EAGAIN);
	ck_assert_uint_eq(hellos, 1);
	ck_assert_uint_eq(picked, 0);
}
END_TEST

/* The MDS answers as one does that knows protocol 4 alone: 4, and a nonce of zeros. */
START_TEST(an_older_mds_is_spoken_to_in_its_protocol)
{
	run_until(is_ready);
	ck_assert_uint_eq(hellos, 2);
	ck_assert_uint_eq(ctl_chan_protocol(ds_chan), 4);
	ck_assert_uint_eq(ctl_chan_fs(ds_chan), 1);
	ask(0, 21, 5000);
	wait_done(1);
	ck_assert_int_eq(done_err[0], 0);
	ck_assert_uint_eq(done_size[0], 42);
	ck_assert_int_eq(downs, 0);
}
END_TEST

START_TEST(status_other_than_ok_carries_no_result)
{
	ctl_request req = {.op = CTL_OP_HEARTBEAT};

	run_until(is_ready);
	ck_assert_int_eq(ctl_chan_call(ds_chan, &req, 5000, done, NULL), 0);
	wait_done(1);
	ck_assert_int_eq(done_err[0], 0);
	ck_assert_uint_eq(done_status[0], CTL_NOENT);
}
END_TEST

START_TEST(largest_batch_passes)
{
	static ctl_object o[CTL_BATCH_MAX];
	ctl_request req = {.op = CTL_OP_STAT};

	run_until(is_ready);
	req.ctl_request_u.stat.objects.objects_len = CTL_BATCH_MAX;
	req.ctl_request_u.stat.objects.objects_val = o;
	ck_assert_int_eq(ctl_chan_call(mds_chan, &req, 5000, done, NULL), 0);
	wait_done(1);
	ck_assert_int_eq(done_err[0], 0);
	/* One more is not encoded, and its done is not called. */
	req.ctl_request_u.stat.objects.objects_len = CTL_BATCH_MAX + 1;
	ck_assert_int_lt(ctl_chan_call(mds_chan, &req, 5000, done, NULL), 0);
	ck_assert_uint_eq(ndone, 1);
	ask(1, 3, 5000);
	wait_done(2);
	ck_assert_int_eq(done_err[1], 0);
}
END_TEST

static bool ready_or_down(void)
{
	return (ready_err == 0 && ds_chan) || downs;
}

START_TEST(other_key_ends_the_connection)
{
	mds_key[0] ^= 1;
	run_until(ready_or_down);
	ask(0, 1, 5000);
	wait_done(1);
	ck_assert_int_ne(done_err[0], 0);
	run_until(is_down);
	ck_assert_uint_eq(served, 0);
}
END_TEST

static struct rpc_req raw;
static int raw_err = 1;
static uint32_t raw_protocol; /* the first word of the results */

static void raw_done(struct rpc_req *q, int err, struct xdr_in *res)
{
	(void)q;
	raw_protocol = err ? 0 : xdr_get_u32(res);
	raw_err = err;
}

static void send_raw(const void *args, size_t n)
{
	rpc_req_init(&raw, CTL_PROGRAM, CTL_VERSION, CTL_PROC_SEALED, NULL, 65536, raw_done);
	xdr_put_fixed(&raw.q_args, args, n);
	rpc_req_send(ctl_chan_conn(ds_chan), &raw, 5000);
}

START_TEST(repeated_message_ends_the_connection)
{
	run_until(is_ready);
	ask(0, 1, 5000);
	wait_done(1);
	ck_assert_uint_eq(served, 1);
	send_raw(last_sealed, last_sealed_len);
	run_until(is_down);
	ck_assert_uint_eq(served, 1);
}
END_TEST

/* A message that its sender never sealed: one bit of a good one, not yet delivered, is changed. */
START_TEST(changed_message_ends_the_connection)
{
	run_until(is_ready);
	ask(0, 1, 5000);
	wait_done(1);
	last_sealed[11]++; /* the counter: now it is new, and its seal does not fit */
	send_raw(last_sealed, last_sealed_len);
	run_until(is_down);
	ck_assert_uint_eq(served, 1);
}
END_TEST

START_TEST(garbage_ends_the_connection)
{
	uint8_t junk[64] = {0, 0, 0, 60};

	run_until(is_ready);
	send_raw(junk, sizeof junk);
	run_until(is_down);
	ck_assert_uint_eq(served, 0);
}
END_TEST

static bool three_kept(void)
{
	return nkept >= 3;
}

/* The RPC layer drops a reply whose call timed out: the counters must bear the gap. */
START_TEST(late_reply_does_not_break_the_channel)
{
	ctl_result res = {.op = CTL_OP_EOF};

	run_until(is_ready);
	keep_requests = true;
	ask(0, 1, 50);
	ask(1, 2, 50);
	ask(2, 3, 5000);
	run_until(three_kept);
	wait_done(2);
	ck_assert_int_eq(done_err[0], -ETIMEDOUT);
	ck_assert_int_eq(done_err[1], -ETIMEDOUT);
	keep_requests = false;
	/* in another order than asked */
	for (unsigned i = 3; i--;) {
		res.ctl_result_u.eof.size = 100 + i;
		ctl_chan_reply(kept[i], CTL_OK, &res);
	}
	wait_done(3);
	ck_assert_int_eq(done_err[2], 0);
	ck_assert_uint_eq(done_size[2], 102);
	ask(3, 7, 5000);
	wait_done(4);
	ck_assert_int_eq(done_err[3], 0);
	ck_assert_uint_eq(done_size[3], 14);
	ck_assert_int_eq(downs, 0);
}
END_TEST

START_TEST(lost_connection_ends_what_is_outstanding_once)
{
	run_until(is_ready);
	keep_requests = true;
	for (unsigned i = 0; i < 3; i++)
		ask(i, i, 5000);
	run_until(three_kept);
	rpc_conn_close(ctl_chan_conn(ds_chan));
	wait_done(3);
	run_until(gone);
	ck_assert_uint_eq(ndone, 3);
	for (unsigned i = 0; i < 3; i++)
		ck_assert_int_eq(done_err[i], -ECONNRESET);
	/* The other side answers later: the channel is gone, its memory must not be. */
	for (unsigned i = 0; i < 3; i++)
		ctl_chan_reply(kept[i], CTL_NOENT, NULL);
}
END_TEST

START_TEST(call_after_the_end_is_refused)
{
	struct ctl_chan *ch;
	ctl_request req = {.op = CTL_OP_EOF};

	run_until(is_ready);
	ch = ds_chan;
	keep_requests = true;
	ask(0, 1, 5000);
	rpc_conn_close(ctl_chan_conn(ch));
	/* The connection is dead, the owner does not know yet. */
	ck_assert_int_eq(ctl_chan_call(ch, &req, 5000, done, (void *)1), 0);
	wait_done(2);
	ck_assert_int_eq(done_err[0], -ECONNRESET);
	ck_assert_int_eq(done_err[1], -ECONNRESET);
	run_until(gone);
	while (nkept)
		ctl_chan_reply(kept[--nkept], CTL_IO, NULL);
}
END_TEST

/* ---- the handshake ---- */

static bool connected(void)
{
	return ups > 0;
}

static struct rpc_conn *plain_conn;
static void plain_up(struct rpc_client *cl, struct rpc_conn *conn, void *arg)
{
	(void)cl;
	(void)arg;
	plain_conn = conn;
	ups++;
}

static void plain_down(struct rpc_client *cl, int err, void *arg)
{
	(void)cl;
	(void)err;
	(void)arg;
	downs++;
}

static bool raw_ended(void)
{
	return raw_err != 1;
}

static void setup_plain(void)
{
	static const struct rpc_client_ops ops = {plain_up, plain_down};
	struct rpc_service svc = {.rs_progs = &mds_prog,
				  .rs_nprogs = 1,
				  .rs_max_record = 1 << 20,
				  .rs_max_reply = 1 << 20,
				  .rs_opened = mds_opened,
				  .rs_closed = mds_closed};
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	log_set_level(LOG_L_ERROR);
	ck_assert_int_eq(loop_create(&L, 256), 0);
	ck_assert_int_eq(rpc_listen(&listener, L, (struct sockaddr *)&sin, sizeof sin, &svc, &L, 1),
			 0);
	sin.sin_port = htons(rpc_listener_port(listener));
	ck_assert_int_eq(rpc_client_create(&client, L, (struct sockaddr *)&sin, sizeof sin, NULL,
					   &ops, NULL),
			 0);
	rpc_client_start(client);
	run_until(connected);
}

static bool mds_gone(void)
{
	return !mds_chan;
}

static void teardown_plain(void)
{
	rpc_client_destroy(client);
	run_until(mds_gone);
	rpc_listener_close(listener);
}

static int hello(uint32_t protocol, size_t bytes)
{
	uint8_t body[48] = {1, 2, 3};

	raw_err = 1;
	rpc_req_init(&raw, CTL_PROGRAM, CTL_VERSION, CTL_PROC_HELLO, NULL, 65536, raw_done);
	xdr_put_u32(&raw.q_args, protocol);
	xdr_put_fixed(&raw.q_args, body, bytes);
	rpc_req_send(plain_conn, &raw, 5000);
	run_until(raw_ended);
	return raw_err;
}

START_TEST(malformed_hello_is_refused)
{
	ck_assert_int_eq(hello(2, 40), -EPROTO);
	ck_assert_int_eq(accept_err, -EBADMSG);
	ck_assert_ptr_null(mds_chan);
	ck_assert_int_eq(downs, 0);
}
END_TEST

START_TEST(hello_of_another_protocol_makes_no_channel)
{
	ck_assert_int_eq(hello(1, 48), 0);
	ck_assert_int_eq(accept_err, -EPROTONOSUPPORT);
	ck_assert_ptr_null(mds_chan);
	ck_assert_uint_eq(raw_protocol, CTL_PROTOCOL);
}
END_TEST

START_TEST(older_data_server_is_answered_its_own_protocol)
{
	mds_fs = 1;
	ck_assert_int_eq(hello(4, 48), 0);
	ck_assert_int_eq(accept_err, 0);
	ck_assert_uint_eq(raw_protocol, 4);
	ck_assert_uint_eq(ctl_chan_protocol(mds_chan), 4);
}
END_TEST

/* It would take this MDS for that of file system 1. */
START_TEST(older_data_server_does_not_join_another_file_system)
{
	for (uint32_t protocol = 4; protocol < CTL_PROTOCOL_FS; protocol++) {
		ck_assert_int_eq(hello(protocol, 48), 0);
		ck_assert_int_eq(accept_err, -EPROTONOSUPPORT);
		ck_assert_ptr_null(mds_chan);
		ck_assert_uint_eq(raw_protocol, CTL_PROTOCOL);
	}
}
END_TEST

START_TEST(newer_data_server_is_answered_our_highest)
{
	ck_assert_int_eq(hello(77, 48), 0);
	ck_assert_int_eq(accept_err, 0);
	ck_assert_uint_eq(raw_protocol, CTL_PROTOCOL | MDS_FS * CTL_HELLO_FS);
	ck_assert_uint_eq(ctl_chan_protocol(mds_chan), CTL_PROTOCOL);
}
END_TEST

START_TEST(a_question_is_answered_without_a_channel)
{
	ck_assert_int_eq(hello(CTL_HELLO_ASK | CTL_PROTOCOL, 48), 0);
	ck_assert_int_eq(accept_err, -EAGAIN);
	ck_assert_ptr_null(mds_chan);
	ck_assert_uint_eq(raw_protocol, CTL_PROTOCOL | MDS_FS * CTL_HELLO_FS);
	ck_assert_int_eq(hello(CTL_HELLO_ASK | 5, 48), 0);
	ck_assert_ptr_null(mds_chan);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("ctl_chan");
	TCase *c = tcase_create("channel"), *h = tcase_create("hello"),
	      *o = tcase_create("old mds");
	const struct {
		const char *name;
		void (*setup)(void);
		const TTest *test;
	} own[] = {
		{"own", setup_own, it_asks_and_uses_its_keys_of_that_file_system},
		{"known", setup_own_known, it_does_not_ask_what_it_knows},
		{"meet", setup_meet, it_meets_where_it_has_no_keys},
		{"moved", setup_moved, another_file_system_than_expected_is_said},
		{"old", setup_own_of_old_mds, an_mds_that_knows_no_question_is_of_file_system_1},
	};

	tcase_add_checked_fixture(c, setup, teardown);
	tcase_add_test(c, both_ends_ask_and_answer);
	tcase_add_test(c, both_ends_speak_the_newest_protocol);
	tcase_add_test(c, status_other_than_ok_carries_no_result);
	tcase_add_test(c, largest_batch_passes);
	tcase_add_test(c, other_key_ends_the_connection);
	tcase_add_test(c, repeated_message_ends_the_connection);
	tcase_add_test(c, changed_message_ends_the_connection);
	tcase_add_test(c, garbage_ends_the_connection);
	tcase_add_test(c, late_reply_does_not_break_the_channel);
	tcase_add_test(c, lost_connection_ends_what_is_outstanding_once);
	tcase_add_test(c, call_after_the_end_is_refused);
	suite_add_tcase(s, c);
	tcase_add_checked_fixture(o, setup_old_mds, teardown);
	tcase_add_test(o, an_older_mds_is_spoken_to_in_its_protocol);
	suite_add_tcase(s, o);
	tcase_add_checked_fixture(h, setup_plain, teardown_plain);
	tcase_add_test(h, malformed_hello_is_refused);
	tcase_add_test(h, hello_of_another_protocol_makes_no_channel);
	tcase_add_test(h, older_data_server_is_answered_its_own_protocol);
	tcase_add_test(h, older_data_server_does_not_join_another_file_system);
	tcase_add_test(h, newer_data_server_is_answered_our_highest);
	tcase_add_test(h, a_question_is_answered_without_a_channel);
	suite_add_tcase(s, h);
	for (unsigned i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
		TCase *t = tcase_create(own[i].name);

		tcase_add_checked_fixture(t, own[i].setup, teardown);
		tcase_add_test(t, own[i].test);
		suite_add_tcase(s, t);
	}
	return s;
}

int main(void)
{
	return unit_run(suite());
}
