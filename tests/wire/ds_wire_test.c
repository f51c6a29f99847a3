/* SPDX-License-Identifier: Apache-2.0 */
/* ds_wire_test.c - a live weft-ds: data, the procedures of NFSv3, garbage, how the daemon starts
 * and ends. */
#include "tests/wirelib/ds_wire.h"

/* ---- data ---- */

START_TEST(null_answers_and_unknown_programs_get_a_rejection)
{
	struct nfs_call *c = call_new(NFS3_NULL);

	call_start(c);
	call_wait(c);
	ck_assert_int_eq(c->nc_err, 0);
	ck_assert_uint_eq(c->nc_len, 0);
	call_free(c);
	c = call_new(0);
	c->nc_prog = 400122; /* what kernels with LOCALIO ask */
	c->nc_vers = 1;
	call_start(c);
	call_wait(c);
	ck_assert_int_eq(c->nc_err, -EPROTO);
	call_free(c);
	ck_assert_uint_eq(read_status(rw()), NFS3_OK);
	ck_assert_str_eq(ds_name, "unit-one");
}
END_TEST

START_TEST(object_never_written_reads_as_empty)
{
	struct nfs3_fattr a;
	uint8_t buf[4096];
	uint32_t n = sizeof buf;
	bool eof = false;

	ck_assert_uint_eq(do_read(rw(), 0, buf, &n, &eof), NFS3_OK);
	ck_assert_uint_eq(n, 0);
	ck_assert(eof);
	ck_assert_uint_eq(do_getattr(rw(), &a), NFS3_OK);
	ck_assert_uint_eq(a.fa_size, 0);
	ck_assert_uint_eq(do_commit(rw(), NULL), NFS3_OK);
	ck_assert_int_ne(access(object_path(), F_OK), 0);
	ck_assert_int_eq(stat_object().status, CTL_NOENT);
}
END_TEST

START_TEST(what_is_written_is_read_back)
{
	static const struct {
		uint32_t off, len;
	} io[] = {{0, 1},	  {0, 4096},	       {4096, MIB},	  {100, 5000},
		  {8191, 2},	  {1u << 20, 65536},   {12288, 8192},	  {500000, 300001},
		  {3 * MIB, MIB}, {3 * MIB + 7, 9999}, {2 * MIB - 1, MIB}};
	uint8_t *model = calloc(1, 5 * MIB), *data = malloc(MIB), *back = malloc(MIB);
	uint64_t size = 0, direct = metric("weft_ds_disk_io_total{path=\"direct\"}");
	struct stat st;

	for (unsigned i = 0; i < sizeof io / sizeof io[0]; i++) {
		fill(data, io[i].len, i);
		ck_assert_uint_eq(do_write(rw(), io[i].off, data, io[i].len, i % 3), NFS3_OK);
		memcpy(model + io[i].off, data, io[i].len);
		if (io[i].off + io[i].len > size)
			size = io[i].off + io[i].len;
		for (unsigned j = 0; j <= i; j++) {
			uint32_t n = io[j].len;
			bool eof;

			ck_assert_uint_eq(do_read(rw(), io[j].off, back, &n, &eof), NFS3_OK);
			ck_assert_uint_eq(n, io[j].len);
			ck_assert(!memcmp(back, model + io[j].off, n));
			ck_assert_int_eq(eof, io[j].off + n == size);
		}
	}
	/* past the end, and across it */
	for (uint64_t off = size - 100; off <= size + 5000; off += 50) {
		uint32_t n = 4096, want = off < size ? (uint32_t)(size - off) : 0;
		bool eof = false;

		ck_assert_uint_eq(do_read(rw(), off, back, &n, &eof), NFS3_OK);
		ck_assert_uint_eq(n, want);
		ck_assert(eof);
		ck_assert(!memcmp(back, model + off, n));
	}
	ck_assert_int_eq(stat(object_path(), &st), 0);
	ck_assert_int_eq(st.st_size, (off_t)size);
	/* Not on a file system without O_DIRECT, which these tests do not run on. */
	ck_assert_uint_gt(metric("weft_ds_disk_io_total{path=\"direct\"}"), direct);
	/* Of the first one, what came along with its header. */
	ck_assert_uint_le(metric("weft_ds_copied_bytes_total"), 16384);
	ck_assert_uint_gt(metric("weft_ds_fixed_io_total"), 0);
	free(model);
	free(data);
	free(back);
}
END_TEST

/* Many at once, none overlapping in bytes, most sharing pages with others that go another way to
 * the disk. */
START_TEST(direct_and_buffered_writes_at_once_do_not_mix_up)
{
	enum { ROUNDS = 12, CALLS = 64, AREA = 2 * MIB };
	uint8_t *model = calloc(1, AREA), *back = malloc(MIB), *data = malloc(AREA);
	unsigned done = 0;

	srand(1);
	for (unsigned r = 0; r < ROUNDS; r++) {
		struct nfs_call *calls[CALLS];
		uint32_t len[CALLS], off = (uint32_t)rand() % 5000;
		unsigned n = 0;

		fill(data, AREA, r);
		while (n < CALLS) {
			uint32_t want = rand() % 2 ? 1 + (uint32_t)rand() % 9000
						   : 4096u * (1 + (uint32_t)rand() % 8);

			if (rand() % 3 == 0)
				off = (off + 4095) & ~4095u;
			if (off + want > AREA)
				break;
			memcpy(model + off, data + off, want);
			len[n] = want;
			calls[n++] = write_start(rw(), off, data + off, want, NFS3_UNSTABLE);
			off += want;
		}
		for (unsigned i = 0; i < n; i++, done++)
			ck_assert_uint_eq(write_end(calls[i], len[i], NFS3_UNSTABLE, NULL),
					  NFS3_OK);
		ck_assert_uint_eq(do_commit(rw(), NULL), NFS3_OK);
		for (uint32_t o = 0; o < AREA; o += MIB) {
			uint32_t got = MIB;
			bool eof;

			ck_assert_uint_eq(do_read(rw(), o, back, &got, &eof), NFS3_OK);
			ck_assert(!memcmp(back, model + o, got));
		}
	}
	ck_assert_uint_gt(done, 300);
	ck_assert_uint_eq(metric("weft_ds_sync_failures_total"), 0);
	free(model);
	free(back);
	free(data);
}
END_TEST

START_TEST(verifier_stays_and_changes_with_the_restart)
{
	uint64_t v1, v2, v3;

	ck_assert_uint_eq(
		write_end(write_start(rw(), 0, "abcd", 4, NFS3_UNSTABLE), 4, NFS3_UNSTABLE, &v1),
		NFS3_OK);
	ck_assert_uint_eq(do_commit(rw(), &v2), NFS3_OK);
	ck_assert_uint_eq(v1, v2);
	ck_assert_uint_eq(join_verifier, be64toh(v1) == join_verifier ? be64toh(v1) : v1);
	ds_restart(SIGKILL);
	ck_assert_uint_eq(do_commit(rw(), &v3), NFS3_OK);
	ck_assert_uint_ne(v1, v3);
}
END_TEST

START_TEST(stable_data_survives_a_kill)
{
	uint8_t data[10000], back[10000];
	uint32_t n = sizeof back;
	bool eof;

	fill(data, sizeof data, 9);
	ck_assert_uint_eq(do_write(rw(), 3, data, sizeof data, NFS3_FILE_SYNC), NFS3_OK);
	ds_restart(SIGKILL);
	ck_assert_uint_eq(do_read(rw(), 3, back, &n, &eof), NFS3_OK);
	ck_assert_uint_eq(n, sizeof data);
	ck_assert(!memcmp(data, back, n));
}
END_TEST

START_TEST(full_disk_is_nospc_and_deletes_make_room)
{
	uint8_t *data = calloc(1, MIB);
	uint32_t st = NFS3_OK;
	int status;

	on_tmpfs = true;
	ds_pid = fork();
	if (!ds_pid)
		ds_exec();
	msleep(300);
	if (waitpid(ds_pid, &status, WNOHANG) == ds_pid) {
		/* no rights to mount, or a tmpfs without xattrs */
		ds_pid = 0;
		free(data);
		return;
	}
	wait_for(beats > 0);
	ck_assert_int_eq(on_loop(nfs_connect, NULL), 0);
	for (unsigned i = 0; i < 4 && st == NFS3_OK; i++)
		st = do_write(rw(), (uint64_t)i * MIB, data, MIB, NFS3_FILE_SYNC);
	ck_assert_uint_eq(st, NFS3ERR_NOSPC);
	ck_assert_int_eq(order(CTL_DELETE, 9, 0), CTL_OK);
	ck_assert_uint_eq(read_status(rw()), NFS3ERR_STALE);
	free(data);
}
END_TEST

/* ---- the other procedures, and garbage ---- */

START_TEST(procedures_not_served_say_so_in_their_shape)
{
	static const struct {
		uint32_t proc;
		size_t len;
	} shape[] = {{NFS3_LOOKUP, 8},	    {NFS3_ACCESS, 8},  {NFS3_READLINK, 8},
		     {NFS3_CREATE, 12},	    {NFS3_MKDIR, 12},  {NFS3_SYMLINK, 12},
		     {NFS3_MKNOD, 12},	    {NFS3_REMOVE, 12}, {NFS3_RMDIR, 12},
		     {NFS3_RENAME, 20},	    {NFS3_LINK, 16},   {NFS3_READDIR, 8},
		     {NFS3_READDIRPLUS, 8}, {NFS3_PATHCONF, 8}};

	for (unsigned i = 0; i < sizeof shape / sizeof shape[0]; i++) {
		struct nfs_call *c = call_new(shape[i].proc);
		struct fh fh = rw();

		xdr_put_opaque(&c->nc_args, fh.b, CAP_LEN);
		call_start(c);
		ck_assert_uint_eq(xdr_get_u32(call_wait(c)), NFS3ERR_NOTSUPP);
		ck_assert_uint_eq(c->nc_len, shape[i].len);
		call_free(c);
	}
	ck_assert_uint_eq(metric("weft_ds_op_total{proc=\"READDIRPLUS\"}"), 1);
	ck_assert_uint_eq(metric("weft_ds_op_total{proc=\"READ\"}"), 0);
}
END_TEST

START_TEST(fsinfo_and_fsstat_are_whole)
{
	struct nfs_call *c = call_new(NFS3_FSINFO);
	struct fh fh = rw();
	struct nfs3_fattr a;
	struct xdr_in *x;

	xdr_put_opaque(&c->nc_args, fh.b, CAP_LEN);
	call_start(c);
	x = call_wait(c);
	ck_assert_uint_eq(xdr_get_u32(x), NFS3_OK);
	nfs3_get_post_op(x, &a);
	ck_assert_uint_eq(xdr_get_u32(x), MIB);
	ck_assert_uint_eq(xdr_left(x), 44);
	call_free(c);
	c = call_new(NFS3_FSSTAT);
	xdr_put_opaque(&c->nc_args, fh.b, CAP_LEN);
	call_start(c);
	x = call_wait(c);
	ck_assert_uint_eq(xdr_get_u32(x), NFS3_OK);
	nfs3_get_post_op(x, &a);
	ck_assert_uint_gt(xdr_get_u64(x), 0);
	ck_assert_uint_eq(xdr_left(x), 44);
	call_free(c);
}
END_TEST

static uint32_t do_setattr(struct fh fh, const struct nfs3_sattr *sa)
{
	struct nfs_call *c = call_new(NFS3_SETATTR);
	uint32_t st;

	xdr_put_opaque(&c->nc_args, fh.b, CAP_LEN);
	nfs3_put_sattr(&c->nc_args, sa);
	xdr_put_bool(&c->nc_args, false);
	call_start(c);
	st = xdr_get_u32(call_wait(c));
	ck_assert_uint_eq(c->nc_len, 12);
	call_free(c);
	return st;
}

START_TEST(setattr_is_the_size_and_the_mds_only)
{
	struct nfs3_sattr sa = {.sa_set = NFS3_SA_SIZE, .sa_size = 77};
	struct cap mds = cap_make(CAP_WRITE);

	mds.cp_client = 0;
	ck_assert_uint_eq(do_setattr(rw(), &sa), NFS3ERR_ACCES);
	ck_assert_int_ne(access(object_path(), F_OK), 0);
	ck_assert_uint_eq(do_setattr(mint(&mds), &sa), NFS3_OK);
	ck_assert_uint_eq(stat_object().size, 77);
	sa.sa_set |= NFS3_SA_MODE;
	ck_assert_uint_eq(do_setattr(mint(&mds), &sa), NFS3ERR_NOTSUPP);
	mds.cp_rights = CAP_READ;
	sa.sa_set = NFS3_SA_SIZE;
	ck_assert_uint_eq(do_setattr(mint(&mds), &sa), NFS3ERR_ACCES);
}
END_TEST

START_TEST(limits_of_offsets_are_errors)
{
	uint8_t buf[16];
	uint32_t n = 16;
	bool eof = false;

	ck_assert_uint_eq(do_write(rw(), UINT64_MAX - 3, "abcd", 4, 0), NFS3ERR_FBIG);
	ck_assert_uint_eq(do_write(rw(), INT64_MAX - 3, "abcd", 4, 0), NFS3ERR_FBIG);
	ck_assert_uint_eq(do_read(rw(), UINT64_MAX, buf, &n, &eof), NFS3_OK);
	ck_assert_uint_eq(n, 0);
	ck_assert(eof);
	n = 16;
	ck_assert_uint_eq(do_read(rw(), INT64_MAX - 4095, buf, &n, &eof), NFS3_OK);
	ck_assert_uint_eq(n, 0);
	ck_assert_uint_eq(do_write(rw(), 0, "", 0, NFS3_FILE_SYNC), NFS3_OK);
}
END_TEST

START_TEST(garbage_ends_the_call_and_not_the_connection)
{
	for (unsigned proc = 1; proc < NFS3_NPROCS; proc++) {
		for (unsigned len = 0; len < 64; len += 4) {
			struct nfs_call *c = call_new(proc);
			uint8_t junk[64];

			fill(junk, sizeof junk, proc * 64 + len);
			xdr_put_fixed(&c->nc_args, junk, len);
			call_start(c);
			call_wait(c);
			ck_assert_msg(c->nc_err == 0 || c->nc_err == -EPROTO, "proc %u: %d", proc,
				      c->nc_err);
			call_free(c);
		}
	}
	ck_assert_uint_gt(metric("weft_ds_garbage_total"), 50);
	ck_assert_uint_eq(read_status(rw()), NFS3_OK);
}
END_TEST

START_TEST(ends_cleanly_on_sigterm)
{
	ck_assert_uint_eq(do_write(rw(), 0, "x", 1, 0), NFS3_OK);
	ds_restart(SIGTERM);
	ck_assert_uint_eq(read_status(rw()), NFS3_OK);
}
END_TEST

START_TEST(second_daemon_on_one_store_is_refused)
{
	int status;
	pid_t pid = fork();

	if (!pid)
		ds_exec();
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	ck_assert_uint_eq(read_status(rw()), NFS3_OK);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("ds_wire");
	static const TTest *data[8], *rest[10], *full[2];
	unsigned n = 0;

	data[n++] = null_answers_and_unknown_programs_get_a_rejection;
	data[n++] = object_never_written_reads_as_empty;
	data[n++] = what_is_written_is_read_back;
	data[n++] = direct_and_buffered_writes_at_once_do_not_mix_up;
	data[n++] = verifier_stays_and_changes_with_the_restart;
	data[n++] = stable_data_survives_a_kill;
	add(s, "data", setup, data);
	n = 0;
	rest[n++] = procedures_not_served_say_so_in_their_shape;
	rest[n++] = fsinfo_and_fsstat_are_whole;
	rest[n++] = setattr_is_the_size_and_the_mds_only;
	rest[n++] = limits_of_offsets_are_errors;
	rest[n++] = garbage_ends_the_call_and_not_the_connection;
	rest[n++] = ends_cleanly_on_sigterm;
	rest[n++] = second_daemon_on_one_store_is_refused;
	add(s, "rest", setup, rest);
	full[0] = full_disk_is_nospc_and_deletes_make_room;
	add(s, "full", setup_nothing_running, full);
	return s;
}

int main(void)
{
	return unit_run(suite());
}
