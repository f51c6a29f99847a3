/* SPDX-License-Identifier: Apache-2.0 */
/* ds_control_test.c - a live weft-ds: what its MDS decides; rights, fences, leases, orders, where
 * striped files end. */
#include "tests/wirelib/ds_wire.h"

/* ---- rights and fences ---- */

START_TEST(handles_of_others_are_bad_handles)
{
	struct cap c = cap_make(CAP_READ | CAP_WRITE);
	uint8_t key[CAP_KEY_LEN], own[CAP_CLUSTER_KEY_LEN], other_uuid[16] = "another server";
	struct nfs_call *call;
	struct fh fh = rw();

	fh.b[31] ^= 1;
	ck_assert_uint_eq(read_status(fh), NFS3ERR_BADHANDLE);
	fh = rw();
	fh.b[20] ^= 1; /* the epoch: not covered by luck */
	ck_assert_uint_eq(do_write(fh, 0, "x", 1, 0), NFS3ERR_BADHANDLE);
	cap_derive_fs(cluster_key, FS, own);
	cap_derive_key(own, other_uuid, 1, key);
	cap_mint(&c, key, fh.b);
	ck_assert_uint_eq(read_status(fh), NFS3ERR_BADHANDLE);
	/* With keys that the MDS of another file system has. */
	for (uint16_t fs = 1; fs < FS; fs += FS - 2) {
		cap_derive_fs(cluster_key, fs, own);
		cap_derive_key(own, ds_uuid, c.cp_key, key);
		cap_mint(&c, key, fh.b);
		ck_assert_uint_eq(read_status(fh), NFS3ERR_BADHANDLE);
	}
	c.cp_obj.co_fs = FS + 1;
	ck_assert_uint_eq(read_status(mint(&c)), NFS3ERR_BADHANDLE);
	for (unsigned len = 0; len <= 64; len += 31) {
		uint8_t zero[64] = {0};

		call = call_new(NFS3_GETATTR);
		xdr_put_opaque(&call->nc_args, zero, len);
		call_start(call);
		ck_assert_uint_eq(xdr_get_u32(call_wait(call)), NFS3ERR_BADHANDLE);
		call_free(call);
	}
	ck_assert_uint_ge(metric("weft_ds_bad_handle_total"), 4);
}
END_TEST

START_TEST(rights_are_held)
{
	struct cap c = cap_make(CAP_READ);
	struct nfs3_fattr a;

	ck_assert_uint_eq(do_write(mint(&c), 0, "x", 1, 0), NFS3ERR_ACCES);
	ck_assert_uint_eq(do_commit(mint(&c), NULL), NFS3ERR_ACCES);
	c.cp_rights = CAP_WRITE;
	ck_assert_uint_eq(do_write(mint(&c), 0, "x", 1, 0), NFS3_OK);
	ck_assert_uint_eq(read_status(mint(&c)), NFS3ERR_ACCES);
	ck_assert_uint_eq(do_getattr(mint(&c), &a), NFS3_OK);
	ck_assert_uint_eq(a.fa_size, 1);
}
END_TEST

START_TEST(fence_refuses_older_epochs_also_after_a_restart)
{
	struct cap c = cap_make(CAP_READ | CAP_WRITE);
	struct fh before = rw(), after;

	c.cp_epoch = 2;
	after = mint(&c);
	ck_assert_uint_eq(do_write(before, 0, "x", 1, 0), NFS3_OK);
	ck_assert_int_eq(order(CTL_FENCE, 1, 2), CTL_OK);
	for (int boot = 0; boot < 2; boot++) {
		ck_assert_uint_eq(do_write(before, 0, "y", 1, 0), NFS3ERR_ACCES);
		ck_assert_uint_eq(do_commit(before, NULL), NFS3ERR_ACCES);
		ck_assert_uint_eq(read_status(before), NFS3ERR_ACCES);
		ck_assert_uint_eq(do_write(after, 0, "z", 1, 0), NFS3_OK);
		if (!boot)
			ds_restart(SIGKILL);
	}
	ck_assert_uint_eq(stat_object().epoch, 2);
	/* A lower epoch never comes back. */
	ck_assert_int_eq(order(CTL_FENCE, 2, 1), CTL_OK);
	ck_assert_uint_eq(do_write(before, 0, "y", 1, 0), NFS3ERR_ACCES);
	ck_assert_uint_ge(metric("weft_ds_fenced_total"), 3);
}
END_TEST

START_TEST(fence_of_an_object_not_there_holds)
{
	ck_assert_int_eq(order(CTL_FENCE, 1, 5), CTL_OK);
	ck_assert_uint_eq(do_write(rw(), 0, "x", 1, 0), NFS3ERR_ACCES);
}
END_TEST

#define FENCE_WRITES 48

/* Returns how many of the writes that were under way when the fence came were refused. */
static unsigned fence_among_writes(uint32_t epoch, uint8_t *one, uint8_t *two)
{
	struct cap c = cap_make(CAP_READ | CAP_WRITE);
	struct nfs_call *calls[FENCE_WRITES];
	uint8_t *data = malloc(MIB);
	unsigned refused = 0;
	uint32_t n = MIB;
	bool eof;

	c.cp_epoch = epoch;
	for (unsigned i = 0; i < FENCE_WRITES; i++) {
		memset(data, 'b' + (int)i % 20, MIB);
		calls[i] = write_start(mint(&c), 0, data, MIB, 0);
	}
	ck_assert_int_eq(order(CTL_FENCE, epoch, epoch + 1), CTL_OK);
	c.cp_epoch = epoch + 1;
	ck_assert_uint_eq(do_read(mint(&c), 0, one, &n, &eof), NFS3_OK);
	for (unsigned i = 0; i < FENCE_WRITES; i++)
		refused += write_end(calls[i], MIB, 0, NULL) == NFS3ERR_ACCES;
	ck_assert_uint_eq(do_read(mint(&c), 0, two, &n, &eof), NFS3_OK);
	free(data);
	return refused;
}

/* A fence is told to be done: no write that was let in before lands after it. */
START_TEST(fence_waits_for_writes_under_way)
{
	uint8_t *one = malloc(MIB), *two = malloc(MIB);
	unsigned refused = 0, rounds = 0;

	memset(one, 'a', MIB);
	ck_assert_uint_eq(do_write(rw(), 0, one, MIB, 0), NFS3_OK);
	/* A fence that came when all were done, or before all of them, shows nothing. */
	for (; rounds < 50 && (refused == 0 || refused == rounds * FENCE_WRITES); rounds++) {
		refused += fence_among_writes(rounds + 1, one, two);
		ck_assert(!memcmp(one, two, MIB));
	}
	ck_assert_uint_gt(refused, 0);
	ck_assert_uint_lt(refused, rounds * FENCE_WRITES);
	free(one);
	free(two);
}
END_TEST

START_TEST(barred_client_harms_no_other_and_stays_barred)
{
	struct cap other = cap_make(CAP_READ | CAP_WRITE);

	other.cp_client = 43;
	ck_assert_uint_eq(do_write(rw(), 0, "x", 1, 0), NFS3_OK);
	ck_assert_int_eq(order(CTL_BAR_CLIENT, 1, 42), CTL_OK);
	ck_assert_int_eq(order(CTL_BAR_CLIENT, 2, 0), CTL_INVAL);
	for (int boot = 0; boot < 2; boot++) {
		ck_assert_uint_eq(do_write(rw(), 0, "y", 1, 0), NFS3ERR_ACCES);
		ck_assert_uint_eq(read_status(rw()), NFS3ERR_ACCES);
		ck_assert_uint_eq(do_write(mint(&other), 0, "z", 1, 0), NFS3_OK);
		if (!boot)
			ds_restart(SIGKILL);
	}
}
END_TEST

START_TEST(lease_that_runs_out_stops_the_service_and_comes_back)
{
	mds_lease_ms = 800;
	msleep(300);
	ck_assert_uint_eq(do_write(rw(), 0, "x", 1, 0), NFS3_OK);
	mds_mute = true;
	msleep(1000);
	ck_assert_uint_eq(do_write(rw(), 0, "y", 1, 0), NFS3ERR_ACCES);
	ck_assert_uint_eq(read_status(rw()), NFS3ERR_ACCES);
	mds_mute = false;
	for (int i = 0; i < 6000 && read_status(rw()) != NFS3_OK; i++)
		msleep(10);
	ck_assert_uint_eq(do_write(rw(), 0, "z", 1, 0), NFS3_OK);
}
END_TEST

START_TEST(no_lease_before_pending_orders_are_done)
{
	mds_lease_ms = 0;
	ds_restart(SIGKILL);
	ck_assert_uint_eq(do_write(rw(), 0, "x", 1, 0), NFS3ERR_ACCES);
	ck_assert_int_eq(order(CTL_FENCE, 1, 1), CTL_OK);
	mds_lease_ms = 30000;
	wait_for(read_status(rw()) == NFS3_OK);
}
END_TEST

START_TEST(lost_object_is_stale_and_an_alarm)
{
	struct cap c = cap_make(CAP_READ | CAP_WRITE | CAP_MUST_EXIST);
	struct nfs3_fattr a;

	ck_assert_uint_eq(read_status(mint(&c)), NFS3ERR_STALE);
	ck_assert_uint_eq(do_write(mint(&c), 0, "x", 1, 0), NFS3ERR_STALE);
	ck_assert_uint_eq(do_commit(mint(&c), NULL), NFS3ERR_STALE);
	ck_assert_uint_eq(do_getattr(mint(&c), &a), NFS3ERR_STALE);
	ck_assert_int_ne(access(object_path(), F_OK), 0);
	ck_assert_uint_eq(metric("weft_ds_missing_object_total"), 4);
	ck_assert_uint_eq(do_write(rw(), 0, "x", 1, 0), NFS3_OK);
	ck_assert_uint_eq(read_status(mint(&c)), NFS3_OK);
}
END_TEST

/* ---- orders ---- */

START_TEST(deleted_object_is_stale_and_does_not_come_back)
{
	ck_assert_uint_eq(do_write(rw(), 0, "x", 1, NFS3_FILE_SYNC), NFS3_OK);
	ck_assert_int_eq(access(object_path(), F_OK), 0);
	ck_assert_int_eq(order(CTL_DELETE, 5, 0), CTL_OK);
	for (int boot = 0; boot < 2; boot++) {
		struct nfs3_fattr a;

		ck_assert_int_ne(access(object_path(), F_OK), 0);
		ck_assert_uint_eq(do_write(rw(), 0, "y", 1, 0), NFS3ERR_STALE);
		ck_assert_uint_eq(read_status(rw()), NFS3ERR_STALE);
		ck_assert_uint_eq(do_getattr(rw(), &a), NFS3ERR_STALE);
		/* Orders from before the delete are done with. */
		ck_assert_int_eq(order(CTL_TRUNCATE, 4, 100), CTL_OK);
		ck_assert_int_eq(order(CTL_DELETE, 5, 0), CTL_OK);
		ck_assert_int_ne(access(object_path(), F_OK), 0);
		if (!boot)
			ds_restart(SIGKILL);
	}
	ck_assert_uint_ge(join_order_high, 5);
}
END_TEST

START_TEST(order_done_before_is_ignored)
{
	ck_assert_uint_eq(do_write(rw(), 0, "0123456789", 10, 0), NFS3_OK);
	ck_assert_int_eq(order(CTL_TRUNCATE, 3, 4), CTL_OK);
	ck_assert_uint_eq(stat_object().size, 4);
	ck_assert_uint_eq(do_write(rw(), 4, "456789", 6, NFS3_FILE_SYNC), NFS3_OK);
	ck_assert_int_eq(order(CTL_TRUNCATE, 3, 4), CTL_OK);
	ck_assert_uint_eq(stat_object().size, 10);
	ds_restart(SIGKILL);
	ck_assert_int_eq(order(CTL_TRUNCATE, 2, 0), CTL_OK);
	ck_assert_int_eq(order(CTL_TRUNCATE, 3, 4), CTL_OK);
	ck_assert_uint_eq(stat_object().size, 10);
	ck_assert_int_eq(order(CTL_TRUNCATE, 4, 2), CTL_OK);
	ck_assert_uint_eq(stat_object().size, 2);
}
END_TEST

/* The number must be kept somewhere, or the repeated truncate would cut the write. */
START_TEST(truncate_of_an_object_not_there_is_not_repeated_later)
{
	ck_assert_int_eq(order(CTL_TRUNCATE, 3, 0), CTL_OK);
	ck_assert_uint_eq(do_write(rw(), 0, "data", 4, 0), NFS3_OK);
	ck_assert_int_eq(order(CTL_TRUNCATE, 3, 0), CTL_OK);
	ck_assert_uint_eq(stat_object().size, 4);
}
END_TEST

START_TEST(extend_makes_zeros_and_never_cuts)
{
	uint8_t back[100];
	uint32_t n = sizeof back;
	bool eof;

	ck_assert_uint_eq(do_write(rw(), 0, "abc", 3, 0), NFS3_OK);
	ck_assert_int_eq(order(CTL_EXTEND, 1, 50), CTL_OK);
	ck_assert_uint_eq(do_read(rw(), 0, back, &n, &eof), NFS3_OK);
	ck_assert_uint_eq(n, 50);
	ck_assert(!memcmp(back, "abc\0\0\0", 6));
	ck_assert_int_eq(order(CTL_EXTEND, 2, 10), CTL_OK);
	ck_assert_uint_eq(stat_object().size, 50);
	ck_assert_int_eq(order(CTL_EXTEND, 3, UINT64_MAX), CTL_INVAL);
}
END_TEST

START_TEST(truncate_down_and_up_reads_zeros)
{
	uint8_t data[20000], back[20000], zero[20000] = {0};
	uint32_t n = sizeof back;
	bool eof;

	fill(data, sizeof data, 4);
	ck_assert_uint_eq(do_write(rw(), 0, data, sizeof data, 0), NFS3_OK);
	ck_assert_int_eq(order(CTL_TRUNCATE, 1, 5000), CTL_OK);
	ck_assert_int_eq(order(CTL_EXTEND, 2, sizeof data), CTL_OK);
	ck_assert_uint_eq(do_read(rw(), 0, back, &n, &eof), NFS3_OK);
	ck_assert_uint_eq(n, sizeof data);
	ck_assert(!memcmp(back, data, 5000));
	ck_assert(!memcmp(back + 5000, zero, sizeof data - 5000));
}
END_TEST

START_TEST(deposed_instance_is_refused_also_after_a_restart)
{
	mds_instance = 9;
	ck_assert_int_eq(order(CTL_FENCE, 1, 1), CTL_OK);
	mds_instance = 8;
	for (int boot = 0; boot < 2; boot++) {
		struct cap c = cap_make(0);
		ctl_order o = {.type = CTL_DELETE, .number = 2, .object = object_of(&c)};

		wait_for(mds_chan != NULL);
		ck_assert_int_eq(orders(&o, 1), CTL_STALE_INSTANCE);
		if (!boot) {
			ds_kill(SIGKILL);
			joins = 0;
			ds_pid = fork();
			if (!ds_pid)
				ds_exec();
			wait_for(joins > 0);
			ck_assert_int_eq(on_loop(nfs_connect, NULL), 0);
			ck_assert_uint_eq(read_status(rw()), NFS3ERR_ACCES);
		}
	}
}
END_TEST

START_TEST(other_cluster_gives_no_lease)
{
	ds_kill(SIGKILL);
	mds_bad_uuid = true;
	joins = 0;
	ds_pid = fork();
	if (!ds_pid)
		ds_exec();
	wait_for(joins > 1);
	ck_assert_int_eq(on_loop(nfs_connect, NULL), 0);
	ck_assert_uint_eq(read_status(rw()), NFS3ERR_ACCES);
	mds_bad_uuid = false;
	wait_for(read_status(rw()) == NFS3_OK);
}
END_TEST

START_TEST(batch_of_orders_answers_each)
{
	static ctl_order o[CTL_BATCH_MAX];
	struct cap c = cap_make(0);

	for (unsigned i = 0; i < CTL_BATCH_MAX; i++) {
		o[i] = (ctl_order){.type = i % 2 ? CTL_DELETE : CTL_EXTEND,
				   .number = i + 1,
				   .object = object_of(&c),
				   .size = 10};
		o[i].object.ino += i / 2;
		if (i == 100)
			o[i].object.stripe = 256; /* no object has it */
		if (i == 102)
			o[i].type = (ctl_order_type)77;
	}
	ck_assert_int_eq(orders(o, CTL_BATCH_MAX), CTL_OK);
	ck_assert_uint_eq(got_n, CTL_BATCH_MAX);
	for (unsigned i = 0; i < CTL_BATCH_MAX; i++) {
		/* 103 deletes the object that 102 could not handle: later orders of an object wait
		 * for the earlier. */
		bool bad = i == 100 || i == 102 || i == 103;

		ck_assert_msg(got_results[i] == (bad ? CTL_INVAL : CTL_OK), "%u: %d", i,
			      got_results[i]);
	}
}
END_TEST

START_TEST(write_count_moves_with_every_write_and_only_then)
{
	ctl_stat a, b, d;

	ck_assert_uint_eq(do_write(rw(), 0, "x", 1, 0), NFS3_OK);
	a = stat_object();
	ck_assert_int_eq(a.status, CTL_OK);
	ck_assert_uint_eq(a.size, 1);
	b = stat_object();
	ck_assert_uint_eq(a.writes, b.writes);
	ck_assert_uint_eq(do_write(rw(), 0, "y", 1, 0), NFS3_OK);
	b = stat_object();
	ck_assert_uint_ne(b.writes, a.writes);
	/* A daemon that is killed forgets nothing: the MDS would take a new count for a write. */
	ds_restart(SIGKILL);
	d = stat_object();
	ck_assert_uint_eq(d.writes, b.writes);
	ck_assert_uint_eq(do_write(rw(), 0, "z", 1, 0), NFS3_OK);
	d = stat_object();
	ck_assert_uint_ne(d.writes, b.writes);
}
END_TEST

START_TEST(list_tells_every_object_once)
{
	enum { N = 300 };
	struct cap c = cap_make(CAP_WRITE);
	unsigned seen[N] = {0}, total = 0, asks = 0;
	ctl_request req = {.op = CTL_OP_LIST};
	/* The number of a file says which file system made it. */
	const uint64_t FIRST = (uint64_t)FS << 48 | 1000;
	uint8_t cookie[64];

	for (unsigned i = 0; i < N; i++) {
		c.cp_obj.co_ino = FIRST + i / 3;
		c.cp_obj.co_stripe = (uint8_t)(i % 3);
		ck_assert_uint_eq(do_write(mint(&c), 0, "xyz", i % 3 + 1, 0), NFS3_OK);
	}
	req.ctl_request_u.list.max = 7;
	do {
		ck_assert_int_eq(mds_ask(&req), CTL_OK);
		for (unsigned i = 0; i < got_n; i++) {
			const ctl_object *o = &got_entries[i].object;

			ck_assert_uint_lt((o->ino - FIRST) * 3 + o->stripe, N);
			ck_assert_uint_eq(o->fs, FS);
			ck_assert_uint_eq(o->incarnation, 1);
			ck_assert_uint_eq(o->mirror, 1);
			ck_assert_uint_eq(got_entries[i].size, o->stripe + 1);
			seen[(o->ino - FIRST) * 3 + o->stripe]++;
			total++;
		}
		memcpy(cookie, got_cookie, got_cookie_len);
		req.ctl_request_u.list.cookie.cookie_val = (char *)cookie;
		req.ctl_request_u.list.cookie.cookie_len = got_cookie_len;
		asks++;
	} while (got_cookie_len);
	ck_assert_uint_eq(total, N);
	for (unsigned i = 0; i < N; i++)
		ck_assert_uint_eq(seen[i], 1);
	ck_assert_uint_ge(asks, N / 7);
	memset(cookie, 0xff, sizeof cookie);
	req.ctl_request_u.list.cookie.cookie_len = 13;
	ck_assert_int_eq(mds_ask(&req), CTL_INVAL);
}
END_TEST

/* ---- the end of striped files ---- */

static struct fh striped(void)
{
	struct cap c = cap_make(CAP_READ | CAP_WRITE | CAP_STRIPED);

	return mint(&c);
}

static struct fh striped2(uint32_t client)
{
	struct cap c = cap_make(CAP_READ | CAP_WRITE | CAP_STRIPED);

	c.cp_obj.co_ino = INO2;
	c.cp_version = 2;
	c.cp_unit_log2 = 20;
	c.cp_stripes = 4; /* it is stripe 2 */
	c.cp_client = client;
	return mint(&c);
}

static unsigned read_at(struct fh fh, uint64_t off, uint32_t n)
{
	static uint8_t back[MIB];
	bool eof;

	return do_read(fh, off, back, &n, &eof);
}

START_TEST(a_client_has_the_units_of_its_stripe_only)
{
	static uint8_t data[MIB] = {1, 2, 3};
	struct cap c = cap_make(CAP_READ | CAP_WRITE);
	struct fh fh = striped2(42), mds = striped2(0);
	uint64_t before;

	ck_assert_uint_eq(do_write(fh, 0, data, 4096, 0), NFS3ERR_INVAL);
	c.cp_obj.co_ino = INO2;
	ck_assert_uint_eq(stat_of(&c).status, CTL_NOENT); /* nor was an object made for it */
	ck_assert_uint_eq(do_write(fh, 2 * MIB, data, MIB, 0), NFS3_OK);
	ck_assert_uint_eq(do_write(fh, 6 * MIB + 4096, data, MIB - 4096, 0), NFS3_OK);
	before = metric("weft_ds_misplaced_total");
	ck_assert_uint_eq(before, 1);
	for (unsigned unit = 0; unit < 8; unit++) {
		enum nfsstat3 want = unit % 4 == 2 ? NFS3_OK : NFS3ERR_INVAL;

		ck_assert_uint_eq(do_write(fh, unit * (uint64_t)MIB, data, 4096, 0), want);
		ck_assert_uint_eq(do_write(fh, unit * (uint64_t)MIB + MIB - 1, data, 1, 0), want);
		ck_assert_uint_eq(read_at(fh, unit * (uint64_t)MIB, 4096), want);
		ck_assert_uint_eq(read_at(mds, unit * (uint64_t)MIB, unit < 7 ? 4096 : 0), NFS3_OK);
	}
	/* across the end of a unit, and across its beginning */
	ck_assert_uint_eq(do_write(fh, 3 * MIB - 10, data, 20, 0), NFS3ERR_INVAL);
	ck_assert_uint_eq(do_write(fh, 2 * MIB - 10, data, 20, 0), NFS3ERR_INVAL);
	ck_assert_uint_eq(read_at(fh, 2 * MIB + 1, MIB), NFS3ERR_INVAL);
	ck_assert_uint_eq(read_at(fh, UINT64_MAX - 5, 20), NFS3ERR_INVAL);
	ck_assert_uint_eq(read_at(mds, 3 * MIB - 10, 20), NFS3_OK);
	ck_assert_uint_gt(metric("weft_ds_misplaced_total"), before);
}
END_TEST

/* Until the MDS says that clients have none any more. */
START_TEST(version_1_is_good_for_stripes_until_the_mds_says_a_time)
{
	static uint8_t data[4096];
	struct cap whole = cap_make(CAP_READ | CAP_WRITE);

	ck_assert_uint_eq(do_write(striped(), 0, data, sizeof data, 0), NFS3_OK);
	mds_striped2_ms = 3600000;
	ds_restart(SIGKILL);
	ck_assert_uint_eq(do_write(striped(), 0, data, sizeof data, 0), NFS3_OK);
	mds_striped2_ms = 0;
	ds_restart(SIGKILL);
	ck_assert_uint_eq(do_write(striped(), 0, data, sizeof data, 0), NFS3ERR_ACCES);
	ck_assert_uint_eq(read_at(striped(), 0, sizeof data), NFS3ERR_ACCES);
	ck_assert_uint_eq(do_write(striped2(42), 2 * MIB, data, sizeof data, 0), NFS3_OK);
	/* of a file without stripes: always */
	ck_assert_uint_eq(do_write(mint(&whole), 0, data, sizeof data, 0), NFS3_OK);
}
END_TEST

START_TEST(striped_read_goes_on_with_zeros_to_the_end_of_the_file)
{
	uint8_t back[16384], zero[16384] = {0};
	uint32_t n = sizeof back;
	bool eof = true;

	/* no object at all, and a file that goes on */
	eof_size = 1 << 30;
	memset(back, 1, sizeof back);
	ck_assert_uint_eq(do_read(striped(), 4096, back, &n, &eof), NFS3_OK);
	ck_assert_uint_eq(n, sizeof back);
	ck_assert(!eof);
	ck_assert(!memcmp(back, zero, n));
	/* a short object */
	ck_assert_uint_eq(do_write(striped(), 0, "hello", 5, 0), NFS3_OK);
	eof_size = 9000;
	memset(back, 1, sizeof back);
	ck_assert_uint_eq(do_read(striped(), 0, back, &n, &eof), NFS3_OK);
	ck_assert_uint_eq(n, 9000);
	ck_assert(eof);
	ck_assert(!memcmp(back, "hello", 5));
	ck_assert(!memcmp(back + 5, zero, 8995));
	/* past the end */
	n = 100;
	ck_assert_uint_eq(do_read(striped(), 9000, back, &n, &eof), NFS3_OK);
	ck_assert_uint_eq(n, 0);
	ck_assert(eof);
	/* what is here counts where the MDS does not know of it yet */
	eof_size = 2;
	n = 100;
	ck_assert_uint_eq(do_read(striped(), 0, back, &n, &eof), NFS3_OK);
	ck_assert_uint_eq(n, 5);
	ck_assert(eof);
}
END_TEST

START_TEST(full_read_of_a_stripe_asks_nobody)
{
	uint8_t data[8192] = {1};
	uint32_t n = 4096;
	bool eof = true;

	ck_assert_uint_eq(do_write(striped(), 0, data, sizeof data, 0), NFS3_OK);
	ck_assert_uint_eq(do_read(striped(), 0, data, &n, &eof), NFS3_OK);
	ck_assert_uint_eq(n, 4096);
	ck_assert(!eof);
	ck_assert_int_eq(eof_calls, 0);
}
END_TEST

START_TEST(silent_mds_parks_a_short_striped_read_and_puts_it_off_in_time)
{
	struct timespec a, b;
	double s;

	eof_mute = true;
	clock_gettime(CLOCK_MONOTONIC, &a);
	ck_assert_uint_eq(read_status(striped()), NFS3ERR_JUKEBOX);
	clock_gettime(CLOCK_MONOTONIC, &b);
	s = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9;
	ck_assert_double_ge(s, 1.5);
	ck_assert_double_le(s, 20);
	/* The connection survives replies that were too late. */
	eof_mute = false;
	ck_assert_uint_eq(read_status(striped()), NFS3_OK);
	eof_status = CTL_NOENT;
	ck_assert_uint_eq(read_status(striped()), NFS3ERR_STALE);
}
END_TEST

/* An answer from before a read may be from before a write that its client knows to be done. */
START_TEST(question_under_way_is_not_shared_with_later_reads)
{
	struct nfs_call *first, *second;
	uint8_t back[64];
	uint32_t n;
	bool eof;

	eof_mute = true;
	eof_size = 10;
	first = read_start(striped(), 0, 64);
	wait_for(eof_calls == 1);
	second = read_start(striped(), 0, 64);
	/* It has come, and waits. */
	ck_assert_uint_eq(do_write(striped(), 4096, "x", 1, 0), NFS3_OK);
	msleep(50);
	eof_mute = false;
	/* The MDS told the first of the old end, and only then hears of the new one. */
	kept_size = 10;
	eof_size = 30;
	ck_assert_int_eq(on_loop(answer_kept, NULL), 0);
	ck_assert_uint_eq(read_end(first, back, &n, &eof), NFS3_OK);
	ck_assert_uint_eq(n, 10);
	ck_assert_uint_eq(read_end(second, back, &n, &eof), NFS3_OK);
	ck_assert_uint_eq(n, 30);
}
END_TEST

START_TEST(questions_about_one_file_are_shared)
{
	enum { CALLS = 200 };
	struct nfs_call *calls[CALLS];
	uint8_t back[64];

	eof_size = 64;
	for (unsigned i = 0; i < CALLS; i++)
		calls[i] = read_start(striped(), 0, 64);
	for (unsigned i = 0; i < CALLS; i++) {
		uint32_t n;
		bool eof;

		ck_assert_uint_eq(read_end(calls[i], back, &n, &eof), NFS3_OK);
		ck_assert_uint_eq(n, 64);
	}
	ck_assert_int_lt(eof_calls, CALLS / 2);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("ds_control");
	static const TTest *fences[12], *ord[16], *eof[12];
	unsigned n = 0;

	fences[n++] = handles_of_others_are_bad_handles;
	fences[n++] = rights_are_held;
	fences[n++] = fence_refuses_older_epochs_also_after_a_restart;
	fences[n++] = fence_of_an_object_not_there_holds;
	fences[n++] = fence_waits_for_writes_under_way;
	fences[n++] = barred_client_harms_no_other_and_stays_barred;
	fences[n++] = lease_that_runs_out_stops_the_service_and_comes_back;
	fences[n++] = no_lease_before_pending_orders_are_done;
	fences[n++] = lost_object_is_stale_and_an_alarm;
	add(s, "fences", setup, fences);
	n = 0;
	ord[n++] = deleted_object_is_stale_and_does_not_come_back;
	ord[n++] = order_done_before_is_ignored;
	ord[n++] = truncate_of_an_object_not_there_is_not_repeated_later;
	ord[n++] = extend_makes_zeros_and_never_cuts;
	ord[n++] = truncate_down_and_up_reads_zeros;
	ord[n++] = deposed_instance_is_refused_also_after_a_restart;
	ord[n++] = other_cluster_gives_no_lease;
	ord[n++] = batch_of_orders_answers_each;
	ord[n++] = write_count_moves_with_every_write_and_only_then;
	ord[n++] = list_tells_every_object_once;
	add(s, "orders", setup, ord);
	n = 0;
	eof[n++] = a_client_has_the_units_of_its_stripe_only;
	eof[n++] = version_1_is_good_for_stripes_until_the_mds_says_a_time;
	eof[n++] = striped_read_goes_on_with_zeros_to_the_end_of_the_file;
	eof[n++] = full_read_of_a_stripe_asks_nobody;
	eof[n++] = silent_mds_parks_a_short_striped_read_and_puts_it_off_in_time;
	eof[n++] = question_under_way_is_not_shared_with_later_reads;
	eof[n++] = questions_about_one_file_are_shared;
	add(s, "end of file", setup, eof);
	return s;
}

int main(void)
{
	return unit_run(suite());
}
