/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_ds_journal.c - a data server's journal is read at each start: any bytes open the store, or
 * refuse it with one line.
 *
 * An input is a series of records, each behind a byte: an odd one sets its version and check sum,
 * without which nothing would get far. Held, beyond the sanitizers: clients, tombstones and the
 * highest order of all records up to the first bad one are in force, no others, and the same ones
 * are in force when the store is opened again, from the segment that the first start wrote.
 */
#include "base/log.h"
#include "ds/store/store_int.h"
#include "tests/unit/scratch.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RECORDS = DS_FS_MAX - 1, TOMB_KEEP_MS = 1000 * 1000 };

static char dir[128], journal[160];

struct input {
	struct ds_rec in_rec[RECORDS + 1]; /* as on the disk */
	unsigned in_n;			   /* whole records */
	size_t in_bytes;		   /* of them, and of one that is cut off behind them */
	unsigned in_good;		   /* records up to the first bad one */
	bool in_refused;		   /* one of those is refused */
	uint64_t in_high;		   /* the highest order of those */
};

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void give_back(void)
{
	scratch_remove(dir);
}

static struct ds_store *store(void)
{
	struct ds_store_opts opts = {
		.so_dir = dir,
		.so_name = "ds1",
		.so_tomb_keep_ms = TOMB_KEEP_MS,
		.so_no_direct = true,
	};
	char err[512] = "";
	struct ds_store *s;
	int rc = ds_store_open(&s, &opts, err, sizeof(err));

	/* One line tells why not. */
	if (rc && (!*err || strchr(err, '\n')))
		abort();
	return rc ? NULL : s;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	struct ds_store *s;

	(void)argc, (void)argv;
	/* Each start syncs: in memory that costs nothing. */
	setenv("TMPDIR", "/dev/shm", 0);
	log_set_level(LOG_L_ERROR);
	if (!scratch_make(dir, sizeof(dir), "weft-fuzz-journal"))
		abort();
	atexit(give_back);
	snprintf(journal, sizeof(journal), "%s/journal", dir);
	s = store();
	if (!s)
		abort();
	/* As a store that has joined file system 1. */
	if (ds_store_set_cluster(s, (const uint8_t *)"the fuzzers' own", 1))
		abort();
	ds_store_close(s);
	return 0;
}

/* ---- what the records say ---- */

static uint32_t sum_of(const struct ds_rec *r)
{
	return htobe32((uint32_t)hash_bytes(r, offsetof(struct ds_rec, dsr_sum)));
}

static void seal(struct ds_rec *r)
{
	r->dsr_version = 1;
	r->dsr_sum = sum_of(r);
}

static bool sealed(const struct ds_rec *r)
{
	return r->dsr_version == 1 && r->dsr_sum == sum_of(r);
}

static uint32_t first_of(const struct ds_rec *r)
{
	return be32toh(r->dsr_client);
}

/* Of a bar or a run. */
static uint64_t last_of(const struct ds_rec *r)
{
	return r->dsr_type == DS_REC_RUN ? be64toh(r->dsr_a) : first_of(r);
}

static bool is_bar(const struct ds_rec *r)
{
	return r->dsr_type == DS_REC_BAR || r->dsr_type == DS_REC_RUN;
}

/* The file system that the record is about; the home's is 1. */
static uint32_t fs_of(const struct ds_rec *r)
{
	uint32_t fs = r->dsr_type == DS_REC_STATE_OF ? (uint32_t)r->dsr_stripe << 8 | r->dsr_mirror
		      : is_bar(r)		     ? be16toh(r->dsr_fs)
						     : 1;

	return fs || r->dsr_type == DS_REC_STATE_OF ? fs : 1;
}

static bool refused(const struct ds_rec *r)
{
	if (r->dsr_type < DS_REC_STATE || r->dsr_type > DS_REC_STATE_OF || !fs_of(r))
		return true;
	/* 0 is the metadata server, which is no client. */
	return is_bar(r) && (!first_of(r) || first_of(r) > last_of(r) || last_of(r) > UINT32_MAX);
}

static struct cap_object object_of(const struct ds_rec *r)
{
	return (struct cap_object){
		.co_ino = be64toh(r->dsr_ino),
		.co_fs = be16toh(r->dsr_fs),
		.co_incarnation = be16toh(r->dsr_incarnation),
		.co_stripe = r->dsr_stripe,
		.co_copy = r->dsr_mirror,
	};
}

static void parse(struct input *in, const uint8_t *data, size_t size)
{
	memset(in, 0, sizeof(*in));
	while (size > sizeof(struct ds_rec) && in->in_n < RECORDS) {
		struct ds_rec *r = &in->in_rec[in->in_n++];

		memcpy(r, data + 1, sizeof(*r));
		if (data[0] & 1)
			seal(r);
		data += 1 + sizeof(*r);
		size -= 1 + sizeof(*r);
	}
	size = size < sizeof(struct ds_rec) ? size : 0;
	memcpy(&in->in_rec[in->in_n], data, size);
	in->in_bytes = in->in_n * sizeof(struct ds_rec) + size;
	for (; in->in_good < in->in_n && sealed(&in->in_rec[in->in_good]); in->in_good++) {
		const struct ds_rec *r = &in->in_rec[in->in_good];

		in->in_refused |= refused(r);
		if ((r->dsr_type == DS_REC_STATE ||
		     (r->dsr_type == DS_REC_STATE_OF && fs_of(r) == 1)) &&
		    be64toh(r->dsr_b) > in->in_high)
			in->in_high = be64toh(r->dsr_b);
	}
}

/* ---- what the store makes of them ---- */

static void write_journal(const struct input *in)
{
	char name[200];
	int fd;

	scratch_remove(journal);
	snprintf(name, sizeof(name), "%s/%016x", journal, 1);
	if (mkdir(journal, 0700) < 0 || (fd = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600)) < 0)
		abort();
	if (write(fd, in->in_rec, in->in_bytes) != (ssize_t)in->in_bytes)
		abort();
	close(fd);
}

static bool is_said(const struct input *in, uint32_t fs, uint32_t client)
{
	for (unsigned i = 0; i < in->in_good; i++) {
		const struct ds_rec *r = &in->in_rec[i];

		if (is_bar(r) && fs_of(r) == fs && first_of(r) <= client && client <= last_of(r))
			return true;
	}
	return false;
}

static void check_client(const struct input *in, struct ds_store *s, uint32_t fs, uint32_t client)
{
	struct ds_fs *f = ds_store_fs(s, fs);

	if (!f)
		abort();
	if (client && ds_store_barred(f, client) != is_said(in, fs, client))
		abort();
}

static void check(const struct input *in, struct ds_store *s)
{
	if (atomic_load(&s->s_fs[0]->fs_order_high) != in->in_high)
		abort();
	for (unsigned i = 0; i < in->in_good; i++) {
		const struct ds_rec *r = &in->in_rec[i];
		struct cap_object o = object_of(r);

		if (r->dsr_type == DS_REC_TOMB && !ds_tomb_bars(s, &o, false))
			abort();
		if (is_bar(r)) {
			check_client(in, s, fs_of(r), first_of(r) - 1);
			check_client(in, s, fs_of(r), first_of(r));
			check_client(in, s, fs_of(r), (uint32_t)last_of(r));
			check_client(in, s, fs_of(r), (uint32_t)last_of(r) + 1);
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ds_store *s;
	struct input in;

	parse(&in, data, size);
	write_journal(&in);
	for (int start = 0; start < 2; start++) {
		s = store();
		if (!s != in.in_refused)
			abort();
		if (!s)
			return 0;
		check(&in, s);
		ds_store_close(s);
	}
	return 0;
}
