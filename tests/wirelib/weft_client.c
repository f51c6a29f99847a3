/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weft_client.c - what libweft_test.py has libweft do: weft_client ADDRESS TEST. Exit status 0: it
 * went as it must. A test that needs something done to the server says so on stdout, and goes on
 * when a line comes in.
 */
#include "client/weft.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct weft_ring *R;
static struct weft *W;
static const char *server;

#define WANT(cond, ...)                                                                            \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                            \
			fprintf(stderr, __VA_ARGS__);                                              \
			fprintf(stderr, " (%s)\n", #cond);                                         \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)
#define GOOD(op) WANT(weft_do(W, &(op)) == 0, "%s, status %u", strerror(-(op).o_err), (op).o_status)
#define BAD(op, err)                                                                               \
	WANT(weft_do(W, &(op)) == -(err), "%s, status %u", strerror(-(op).o_err), (op).o_status)

/* Asks the test around us, and waits until that is done. */
static void ask(const char *what)
{
	char line[64];

	printf("%s\n", what);
	fflush(stdout);
	WANT(fgets(line, sizeof(line), stdin), "no answer");
}

/* The same, and the library goes on meanwhile: it answers the server's calls. */
static void ask_awake(const char *what)
{
	struct pollfd in = {.fd = 0, .events = POLLIN};
	char c;

	printf("%s\n", what);
	fflush(stdout);
	while (poll(&in, 1, 0) == 0)
		weft_reap(R, NULL, 0, 20);
	WANT(read(0, &c, 1) == 1, "no answer");
}

static struct weft_opts options(void)
{
	const char *minor = getenv("WEFT_MINOR");

	return (struct weft_opts){.wo_server = server,
				  .wo_minor = minor ? (unsigned)atoi(minor) : 0,
				  .wo_giveup_ms = 60000,
				  .wo_no_layouts = getenv("WEFT_NO_LAYOUTS") != NULL};
}

static void begin(struct weft_opts o)
{
	int err = weft_ring_create(&R);

	WANT(!err, "ring: %s", strerror(-err));
	if (getenv("WEFT_RDMA")) {
		err = weft_rdma_start(&R, 1);
		WANT(!err || err == -EALREADY, "RDMA: %s", strerror(-err));
		o.wo_rdma = true;
	}
	err = weft_connect(&W, R, &o);
	WANT(!err, "connect: %s", strerror(-err));
}

static void end(void)
{
	weft_close(W);
	weft_ring_destroy(R);
}

/* The folder that tests may write in. */
static struct weft_fh top(void)
{
	const char *path = getenv("WEFT_TOP");
	struct weft_op op = {.o_what = WEFT_LOOKUP, .o_name = path ? path : ""};

	GOOD(op);
	return op.o_fh2;
}

static struct weft_fh folder(const char *name)
{
	struct weft_op op = {.o_what = WEFT_MKDIR,
			     .o_fh = top(),
			     .o_name = name,
			     .o_attr = {.at_set = WEFT_A_MODE, .at_mode = 0755}};

	GOOD(op);
	WANT(op.o_attr.at_type == WEFT_DIR && op.o_attr.at_mode == 0755, "mode %o",
	     op.o_attr.at_mode);
	return op.o_fh2;
}

static struct weft_file *open_file(struct weft_fh dir, const char *name, uint32_t flags)
{
	struct weft_op op = {.o_what = WEFT_OPEN,
			     .o_fh = dir,
			     .o_name = name,
			     .o_flags = flags,
			     .o_attr = {.at_set = WEFT_A_MODE, .at_mode = 0644}};

	GOOD(op);
	return op.o_file;
}

static void close_file(struct weft_file *f)
{
	struct weft_op op = {.o_what = WEFT_CLOSE, .o_file = f};

	GOOD(op);
}

static void fill(uint8_t *buf, size_t n, uint32_t seed)
{
	for (size_t i = 0; i < n; i++)
		buf[i] = (uint8_t)((i * 2654435761u >> 11) + seed);
}

/* ---- names ---- */

static unsigned entries;
static uint64_t seen;
static void entry(struct weft_op *op, const struct weft_entry *en)
{
	unsigned n;

	(void)op;
	WANT(sscanf(en->en_name, "f%u", &n) == 1 && n < 60, "a name %s", en->en_name);
	WANT(en->en_attr.at_set & WEFT_A_TYPE && en->en_attr.at_type == WEFT_REG &&
		     en->en_fh.fh_len,
	     "its attributes");
	WANT(!(seen & 1ull << n), "twice: %s", en->en_name);
	seen |= 1ull << n;
	entries++;
}

static void test_names(void)
{
	struct weft_fh dir, other;
	struct weft_op op;
	char name[16], link[64];
	uint64_t verf = 0, cookie = 0;

	begin(options());
	dir = folder("names");
	for (unsigned i = 0; i < 60; i++) {
		snprintf(name, sizeof(name), "f%u", i);
		close_file(open_file(dir, name, WEFT_O_WRITE | WEFT_O_CREATE | WEFT_O_EXCL));
	}
	op = (struct weft_op){.o_what = WEFT_OPEN,
			      .o_fh = dir,
			      .o_name = "f1",
			      .o_flags = WEFT_O_WRITE | WEFT_O_CREATE | WEFT_O_EXCL};
	BAD(op, EEXIST);
	do {
		op = (struct weft_op){.o_what = WEFT_READDIR,
				      .o_fh = dir,
				      .o_off = cookie,
				      .o_verf = verf,
				      .o_len = 2048,
				      .o_entry = entry};
		GOOD(op);
		WANT(op.o_eof || op.o_count < 60, "all at once");
		cookie = op.o_off;
		verf = op.o_verf;
	} while (!op.o_eof);
	WANT(entries == 60, "%u entries", entries);

	op = (struct weft_op){.o_what = WEFT_MKDIR,
			      .o_fh = dir,
			      .o_name = "sub",
			      .o_attr = {.at_set = WEFT_A_MODE, .at_mode = 0700}};
	GOOD(op);
	other = op.o_fh2;
	op = (struct weft_op){.o_what = WEFT_RENAME,
			      .o_fh = dir,
			      .o_name = "f0",
			      .o_fh2 = other,
			      .o_name2 = "g0"};
	GOOD(op);
	op = (struct weft_op){.o_what = WEFT_LOOKUP, .o_fh = dir, .o_name = "f0"};
	BAD(op, ENOENT);
	op = (struct weft_op){.o_what = WEFT_LOOKUP, .o_fh = dir, .o_name = "./sub//../sub/g0"};
	GOOD(op);
	WANT(op.o_attr.at_type == WEFT_REG && op.o_attr.at_size == 0, "what was renamed");
	op = (struct weft_op){.o_what = WEFT_LINK, .o_fh = dir, .o_name = "h0", .o_fh2 = op.o_fh2};
	GOOD(op);
	op = (struct weft_op){.o_what = WEFT_LOOKUP, .o_fh = dir, .o_name = "h0"};
	GOOD(op);
	WANT(op.o_attr.at_nlink == 2, "%u links", op.o_attr.at_nlink);
	op = (struct weft_op){.o_what = WEFT_REMOVE, .o_fh = dir, .o_name = "sub"};
	BAD(op, ENOTEMPTY);

	op = (struct weft_op){
		.o_what = WEFT_SYMLINK, .o_fh = dir, .o_name = "ln", .o_name2 = "sub/g0"};
	GOOD(op);
	op = (struct weft_op){
		.o_what = WEFT_READLINK, .o_fh = op.o_fh2, .o_buf = link, .o_len = sizeof(link)};
	GOOD(op);
	WANT(op.o_count == 6 && !memcmp(link, "sub/g0", 6), "a link of %u bytes", op.o_count);
	op.o_len = 3;
	BAD(op, ERANGE);
	op = (struct weft_op){.o_what = WEFT_LOOKUP, .o_fh = dir, .o_name = "ln/x"};
	weft_do(W, &op);
	WANT(op.o_err == -ELOOP || op.o_err == -ENOTDIR, "through a link: %s", strerror(-op.o_err));

	op = (struct weft_op){.o_what = WEFT_SETATTR,
			      .o_fh = other,
			      .o_attr = {.at_set = WEFT_A_MODE | WEFT_A_MTIME,
					 .at_mode = 0711,
					 .at_mtime = {1234567890, 500}}};
	GOOD(op);
	op = (struct weft_op){.o_what = WEFT_GETATTR, .o_fh = other};
	GOOD(op);
	WANT(op.o_attr.at_mode == 0711 && op.o_attr.at_mtime.ti_sec == 1234567890,
	     "attributes that were set");
	WANT(op.o_attr.at_set & WEFT_A_UID && op.o_attr.at_uid == 0, "the owner");
	end();
}

/* Longer than a COMPOUND can be. */
static void test_paths(void)
{
	char path[1024] = "";
	struct weft_fh dir, at;

	begin(options());
	at = dir = folder("paths");
	for (int i = 0; i < 80; i++) {
		struct weft_op op = {.o_what = WEFT_MKDIR,
				     .o_fh = at,
				     .o_name = "d",
				     .o_attr = {.at_set = WEFT_A_MODE, .at_mode = 0755}};

		GOOD(op);
		at = op.o_fh2;
		strcat(path, "/d");
	}
	struct weft_op op = {.o_what = WEFT_LOOKUP, .o_fh = dir, .o_name = path};
	GOOD(op);
	WANT(op.o_fh2.fh_len == at.fh_len && !memcmp(op.o_fh2.fh_data, at.fh_data, at.fh_len),
	     "another file");
	end();
}

/* ---- data ---- */

#define SIZE (5u << 20)
static uint8_t data[SIZE + 100], back[SIZE + 4096];

static void write_all(struct weft_file *f, uint32_t flags, uint64_t off, uint32_t n)
{
	struct weft_op op = {.o_what = WEFT_WRITE,
			     .o_file = f,
			     .o_flags = flags,
			     .o_off = off,
			     .o_buf = data + off,
			     .o_len = n};

	GOOD(op);
	WANT(op.o_count == n, "%u bytes of %u", op.o_count, n);
}

static void read_all(struct weft_file *f, uint32_t n)
{
	struct weft_op op = {
		.o_what = WEFT_READ, .o_file = f, .o_buf = back, .o_len = sizeof(back)};

	memset(back, 0, sizeof(back));
	GOOD(op);
	WANT(op.o_count == n && op.o_eof, "%u bytes of %u, end %d", op.o_count, n, op.o_eof);
	WANT(!memcmp(back, data, n), "other data");
}

static void commit(struct weft_file *f)
{
	struct weft_op op = {.o_what = WEFT_COMMIT, .o_file = f};

	GOOD(op);
}

static void test_data(void)
{
	struct weft_file *f;
	struct weft_fh dir;
	struct weft_op op;

	begin(options());
	dir = folder("data");
	fill(data, sizeof(data), 1);
	f = open_file(dir, "f", WEFT_O_READ | WEFT_O_WRITE | WEFT_O_CREATE);
	write_all(f, 0, 0, SIZE);
	commit(f);
	write_all(f, WEFT_STABLE, SIZE, 100);
	read_all(f, SIZE + 100);
	op = (struct weft_op){
		.o_what = WEFT_READ, .o_file = f, .o_off = SIZE, .o_buf = back, .o_len = 40};
	GOOD(op);
	WANT(op.o_count == 40 && !op.o_eof && !memcmp(back, data + SIZE, 40),
	     "%u bytes in the middle", op.o_count);
	op = (struct weft_op){
		.o_what = WEFT_READ, .o_file = f, .o_off = SIZE + 5000, .o_buf = back, .o_len = 40};
	GOOD(op);
	WANT(op.o_count == 0 && op.o_eof, "%u bytes behind the end", op.o_count);
	close_file(f);

	f = open_file(dir, "f", WEFT_O_READ);
	read_all(f, SIZE + 100);
	op = (struct weft_op){.o_what = WEFT_WRITE, .o_file = f, .o_buf = data, .o_len = 1};
	BAD(op, EBADF);
	close_file(f);
	f = open_file(dir, "f", WEFT_O_READ | WEFT_O_WRITE | WEFT_O_TRUNC);
	read_all(f, 0);
	write_all(f, WEFT_STABLE, 0, 3);
	op = (struct weft_op){.o_what = WEFT_SETATTR,
			      .o_fh = *weft_file_fh(f),
			      .o_file = f,
			      .o_attr = {.at_set = WEFT_A_SIZE, .at_size = 2}};
	GOOD(op);
	read_all(f, 2);
	close_file(f);
	op = (struct weft_op){
		.o_what = WEFT_OPEN, .o_fh = dir, .o_name = "none", .o_flags = WEFT_O_READ};
	BAD(op, ENOENT);
	op = (struct weft_op){.o_what = WEFT_OPEN,
			      .o_fh = dir,
			      .o_name = "f",
			      .o_flags = WEFT_O_READ | WEFT_O_EXCL};
	BAD(op, EINVAL);
	end();
}

/* ---- many at once, some on several connections ---- */

static unsigned ended, failed;
static struct weft_op many[400];
static char names[400][16];

static void on_removed(struct weft_op *op)
{
	failed += op->o_err != 0;
	ended++;
}

static void on_made(struct weft_op *op)
{
	failed += op->o_err != 0;
	op->o_what = WEFT_REMOVE;
	op->o_done = on_removed;
	weft_submit(W, op);
}

static void test_many(void)
{
	struct weft_opts o = options();
	struct weft_op *got[64];
	struct weft_fh dir;
	struct weft_info info;
	unsigned n = 0;

	o.wo_conns = 4;
	o.wo_slots = 32;
	begin(o);
	dir = folder("many");
	for (unsigned i = 0; i < 400; i++) {
		snprintf(names[i], sizeof(names[i]), "d%u", i);
		many[i] = (struct weft_op){
			.o_what = WEFT_MKDIR, .o_fh = dir, .o_name = names[i], .o_done = on_made};
		weft_submit(W, &many[i]);
	}
	while (ended < 400)
		weft_reap(R, NULL, 0, -1);
	WANT(!failed, "%u failed", failed);
	for (unsigned i = 0; i < 400; i++) {
		many[i] = (struct weft_op){.o_what = WEFT_GETATTR, .o_fh = dir};
		weft_submit(W, &many[i]);
	}
	while (n < 400) {
		int k = weft_reap(R, got, 64, 5000);

		WANT(k > 0, "nothing ended");
		for (int i = 0; i < k; i++)
			WANT(!got[i]->o_err && got[i]->o_attr.at_nlink == 2, "%s",
			     strerror(-got[i]->o_err));
		n += (unsigned)k;
	}
	weft_info(W, &info);
	WANT(info.wi_conns == 4 && info.wi_slots >= 1 && info.wi_sessions == 1,
	     "%u connections, %u slots", info.wi_conns, info.wi_slots);
	printf("connections %u slots %u minor %u\n", info.wi_conns, info.wi_slots, info.wi_minor);
	end();
}

/* ---- losses ---- */

/* Connections are cut while calls that must be done once are under way. */
static void test_cut(void)
{
	struct weft_opts o = options();
	struct weft_info info;
	struct weft_fh dir;
	unsigned n = 0;

	o.wo_conns = 2;
	begin(o);
	dir = folder("cut");
	ask("begin");
	for (; n < 3000; n++) {
		char name[16];
		struct weft_op op = {.o_what = WEFT_MKDIR, .o_fh = dir, .o_name = name};

		snprintf(name, sizeof(name), "d%u", n);
		GOOD(op);
		op = (struct weft_op){.o_what = WEFT_REMOVE, .o_fh = dir, .o_name = name};
		GOOD(op);
		weft_info(W, &info);
		if (info.wi_resent >= 10 && n > 100)
			break;
	}
	WANT(info.wi_resent >= 10 && info.wi_sessions == 1, "%llu sent again, %llu sessions",
	     (unsigned long long)info.wi_resent, (unsigned long long)info.wi_sessions);
	end();
}

/* The server is started again: files are reclaimed, unstable data written once more. */
static void test_restart(void)
{
	struct weft_info info;
	struct weft_file *f;
	struct weft_fh dir;
	struct weft_op op;

	begin(options());
	dir = folder("restart");
	fill(data, sizeof(data), 2);
	f = open_file(dir, "f", WEFT_O_READ | WEFT_O_WRITE | WEFT_O_CREATE);
	write_all(f, WEFT_STABLE, 0, 1000);
	write_all(f, 0, 1000, 3 << 20);
	ask("restart");
	commit(f);
	weft_info(W, &info);
	WANT(info.wi_sessions >= 2, "the session is the same");
	WANT(info.wi_rewritten >= 1, "nothing was written again");
	read_all(f, (3 << 20) + 1000);
	write_all(f, WEFT_STABLE, (3 << 20) + 1000, 1000);
	read_all(f, (3 << 20) + 2000);
	op = (struct weft_op){.o_what = WEFT_MKDIR, .o_fh = dir, .o_name = "after"};
	GOOD(op);
	close_file(f);
	end();
}

/* ---- layouts: $WEFT_TOP is a folder with a policy ---- */

static struct weft_info info_now(void)
{
	struct weft_info info;

	weft_info(W, &info);
	return info;
}

static void test_straight(void)
{
	struct weft_info i;
	struct weft_file *f;

	begin(options());
	fill(data, sizeof(data), 3);
	f = open_file(top(), "straight", WEFT_O_READ | WEFT_O_WRITE | WEFT_O_CREATE);
	write_all(f, 0, 0, SIZE);
	commit(f);
	write_all(f, WEFT_STABLE, SIZE, 100);
	read_all(f, SIZE + 100);
	i = info_now();
	/* knfsd's layouts for writing are not for reading. */
	WANT(i.wi_layouts == 1 && i.wi_ds_writes && !i.wi_ds_reads == !!getenv("WEFT_NO_READ_IO") &&
		     !i.wi_ds_errors && !i.wi_rewritten,
	     "layouts %llu, reads %llu, writes %llu, errors %llu", (unsigned long long)i.wi_layouts,
	     (unsigned long long)i.wi_ds_reads, (unsigned long long)i.wi_ds_writes,
	     (unsigned long long)i.wi_ds_errors);
	printf("writes %llu\n", (unsigned long long)i.wi_ds_writes);
	close_file(f);
	f = open_file(top(), "straight", WEFT_O_READ);
	read_all(f, SIZE + 100);
	i = info_now();
	WANT(i.wi_layouts == 2 && i.wi_ds_reads && !i.wi_ds_errors, "%llu layouts",
	     (unsigned long long)i.wi_layouts);
	if (getenv("WEFT_RDMA"))
		WANT(!i.wi_ds_rdma == !strcmp(getenv("WEFT_RDMA"), "none"), "%llu calls by RDMA",
		     (unsigned long long)i.wi_ds_rdma);
	close_file(f);
	end();
}

/* Whether the memory cannot be unregistered at some time while the operation is under way. */
static bool busy_under(struct weft_op *op, void *mem)
{
	struct weft_op *ended;
	bool busy = false;
	int err;

	weft_submit(W, op);
	do {
		err = busy ? -EBUSY : weft_memory_unregister(mem);
		busy |= err == -EBUSY;
		WANT(busy || (err == 0 && weft_memory_register(mem, SIZE + 4096) == 0), "error %d",
		     err);
	} while (!weft_reap(R, &ended, 1, 0));
	WANT(!op->o_err && op->o_count == SIZE - 1, "%u read, error %d", op->o_count, op->o_err);
	return busy;
}

/* Memory that is registered: nothing is copied over RDMA, and the data are what they are. */
static void test_registered(void)
{
	uint8_t *mem = aligned_alloc(4096, SIZE + 8192), *other = mem + SIZE + 4096;
	struct weft_op op;
	struct weft_info i;
	struct weft_file *f;
	bool rdma = getenv("WEFT_RDMA") && strcmp(getenv("WEFT_RDMA"), "none");

	WANT(mem, "memory");
	/* Before a device is there, and after. */
	WANT(weft_memory_register(mem, 4096) == 0 &&
		     weft_memory_register(mem + 4000, 200) == -EEXIST &&
		     weft_memory_register(mem, 0) == -EINVAL,
	     "the first page");
	begin(options());
	WANT(weft_memory_unregister(mem + 1) == -ENOENT && weft_memory_unregister(mem) == 0 &&
		     weft_memory_unregister(mem) == -ENOENT,
	     "the first page again");
	WANT(weft_memory_register(mem, SIZE + 4096) == 0, "all but the last page");
	fill(mem + 100, SIZE, 5);
	f = open_file(top(), "registered", WEFT_O_READ | WEFT_O_WRITE | WEFT_O_CREATE);
	/* a length that is rounded up */
	op = (struct weft_op){
		.o_what = WEFT_WRITE, .o_file = f, .o_buf = mem + 100, .o_len = SIZE - 1};
	GOOD(op);
	WANT(op.o_count == SIZE - 1, "%u written", op.o_count);
	commit(f);
	i = info_now();
	WANT(!!i.wi_ds_direct == rdma && i.wi_ds_direct <= i.wi_ds_writes, "%llu direct of %llu",
	     (unsigned long long)i.wi_ds_direct, (unsigned long long)i.wi_ds_writes);
	memset(mem, 0, SIZE + 4096);
	op = (struct weft_op){.o_what = WEFT_READ, .o_file = f, .o_buf = mem + 7, .o_len = SIZE};
	GOOD(op);
	fill(data, SIZE, 5);
	WANT(op.o_count == SIZE - 1 && op.o_eof && !memcmp(mem + 7, data, SIZE - 1) && !mem[6] &&
		     !mem[7 + SIZE - 1],
	     "%u read", op.o_count);
	WANT(!rdma || info_now().wi_ds_direct == i.wi_ds_direct + info_now().wi_ds_reads,
	     "%llu direct", (unsigned long long)info_now().wi_ds_direct);
	WANT(!rdma || busy_under(&(struct weft_op){.o_what = WEFT_READ,
						   .o_file = f,
						   .o_buf = mem + 7,
						   .o_len = SIZE},
				 mem),
	     "it was never busy");
	/* Partly outside: copied. */
	i = info_now();
	op = (struct weft_op){.o_what = WEFT_READ, .o_file = f, .o_buf = other - 100, .o_len = 200};
	GOOD(op);
	WANT(op.o_count == 200 && !memcmp(other - 100, data, 200) &&
		     info_now().wi_ds_direct == i.wi_ds_direct,
	     "outside");
	WANT(weft_memory_unregister(mem) == 0, "unregister");
	op = (struct weft_op){.o_what = WEFT_READ, .o_file = f, .o_buf = mem, .o_len = 5000};
	GOOD(op);
	WANT(op.o_count == 5000 && !memcmp(mem, data, 5000) &&
		     info_now().wi_ds_direct == i.wi_ds_direct,
	     "not registered any more");
	close_file(f);
	end();
	free(mem);
}

/* Through the server: what the others wrote is what it has. */
static void data_is(const char *name, uint32_t n)
{
	struct weft_opts o = options();
	struct weft_ring *ring = R;
	struct weft *mine = W;
	struct weft_file *f;

	o.wo_no_layouts = true;
	begin(o);
	f = open_file(top(), name, WEFT_O_READ);
	read_all(f, n);
	WANT(info_now().wi_ds_reads == 0, "not through the server");
	close_file(f);
	end();
	R = ring;
	W = mine;
}

static void content_is(const char *name, uint32_t seed, uint32_t n)
{
	fill(data, sizeof(data), seed);
	data_is(name, n);
}

static void test_content(void)
{
	content_is("straight", 3, SIZE + 100);
}

/* A data server dies: another copy is read, what is written goes through the server. */
static void test_dead(void)
{
	struct weft_file *f;

	begin(options());
	fill(data, sizeof(data), 4);
	f = open_file(top(), "dead", WEFT_O_READ | WEFT_O_WRITE | WEFT_O_CREATE);
	write_all(f, 0, 0, SIZE);
	ask("kill ds");
	read_all(f, SIZE);
	write_all(f, 0, SIZE - 5000, 5100);
	commit(f);
	read_all(f, SIZE + 100);
	WANT(info_now().wi_ds_errors, "no error was seen");
	close_file(f);
	content_is("dead", 4, SIZE + 100);
	end();
}

/* Data servers start again, and have lost what was not committed. */
static void test_lost(void)
{
	struct weft_file *f;

	begin(options());
	fill(data, sizeof(data), 5);
	f = open_file(top(), "lost", WEFT_O_READ | WEFT_O_WRITE | WEFT_O_CREATE);
	write_all(f, 0, 0, SIZE);
	ask("restart ds");
	commit(f);
	WANT(info_now().wi_rewritten, "nothing was written again");
	close_file(f);
	content_is("lost", 5, SIZE);
	end();
}

/* What is written again because servers lost it comes over nothing that was written later: not over
 * what was lost as well, not over what was not, not over what was stable at once. */
static void test_older(void)
{
	static const struct {
		uint32_t off, len, flags;
		bool before;
	} later[] = {{100, 5000, 0, true},
		     {1u << 20, 1u << 20, 0, true},
		     {3000, 1000, 0, false},
		     {(2u << 20) - 100, 300, 0, false},
		     {(2u << 20) + 7000, 500, WEFT_STABLE, false},
		     {(3u << 20) - 1, (1u << 20) + 2, WEFT_STABLE, false},
		     {SIZE - 10, 10, 0, false}};
	static uint8_t newer[SIZE];
	struct weft_file *f;

	begin(options());
	fill(data, sizeof(data), 7);
	fill(newer, sizeof(newer), 107);
	f = open_file(top(), "older", WEFT_O_READ | WEFT_O_WRITE | WEFT_O_CREATE);
	write_all(f, 0, 0, SIZE);
	for (int after = 0; after < 2; after++) {
		for (size_t i = 0; i < sizeof(later) / sizeof(later[0]); i++) {
			struct weft_op op = {.o_what = WEFT_WRITE,
					     .o_file = f,
					     .o_flags = later[i].flags,
					     .o_off = later[i].off};

			op.o_buf = newer + op.o_off;
			op.o_len = later[i].len;
			if (later[i].before == !after)
				GOOD(op);
		}
		/* Awake, it sees the connections end: else the first WRITE fails, and the layout
		 * goes back, with what was lost, before the others. */
		if (!after)
			ask_awake("restart");
	}
	commit(f);
	WANT(info_now().wi_rewritten, "nothing was written again");
	for (size_t i = 0; i < sizeof(later) / sizeof(later[0]); i++)
		memcpy(data + later[i].off, newer + later[i].off, later[i].len);
	data_is("older", SIZE);
	close_file(f);
	data_is("older", SIZE);
	end();
}

static void cut(struct weft_file *f, uint64_t size)
{
	struct weft_op op = {.o_what = WEFT_SETATTR,
			     .o_fh = *weft_file_fh(f),
			     .o_file = f,
			     .o_attr = {.at_set = WEFT_A_SIZE, .at_size = size}};

	GOOD(op);
	WANT(op.o_attr.at_size == size, "size %llu", (unsigned long long)op.o_attr.at_size);
}

/* What was cut off does not come back: not with what is written again because servers lost it, and
 * not with the size that they are told. */
static void test_shorter(void)
{
	struct weft_file *f, *g;

	begin(options());
	fill(data, sizeof(data), 8);
	f = open_file(top(), "shorter", WEFT_O_READ | WEFT_O_WRITE | WEFT_O_CREATE);
	write_all(f, 0, 0, SIZE);
	cut(f, (1 << 20) + 1000);
	write_all(f, 0, (1 << 20) + 1000, 500);
	ask_awake("restart");
	commit(f);
	WANT(info_now().wi_rewritten, "nothing was written again");
	data_is("shorter", (1 << 20) + 1500);
	close_file(f);
	data_is("shorter", (1 << 20) + 1500);

	f = open_file(top(), "empty", WEFT_O_READ | WEFT_O_WRITE | WEFT_O_CREATE);
	write_all(f, 0, 0, SIZE);
	g = open_file(top(), "empty", WEFT_O_READ | WEFT_O_WRITE | WEFT_O_TRUNC);
	close_file(f);
	data_is("empty", 0);
	close_file(g);
	data_is("empty", 0);
	end();
}

/* ---- what is asked, and how often: the test around us counts ---- */

static void test_frugal(void)
{
	char name[16];

	begin(options());
	fill(data, sizeof(data), 9);
	struct weft_fh dir = top();
	for (int i = 0; i < 40; i++) {
		struct weft_file *f;

		snprintf(name, sizeof(name), "f%d", i % 20);
		f = open_file(dir, name,
			      i < 20 ? WEFT_O_WRITE | WEFT_O_CREATE | WEFT_O_EXCL : WEFT_O_READ);
		if (i < 20)
			write_all(f, WEFT_STABLE, 0, 50000);
		else
			read_all(f, 50000);
		close_file(f);
	}
	WANT(info_now().wi_layouts == 40 && info_now().wi_ds_reads >= 20 &&
		     !info_now().wi_ds_errors,
	     "%llu layouts", (unsigned long long)info_now().wi_layouts);
	ask("count");
	for (int i = 0; i < 10; i++)
		close_file(open_file(dir, "f0", WEFT_O_READ | WEFT_O_NO_DATA));
	ask("count names");
	end();
}

/* A file that is opened twice: the server has one layout of it for us. */
static void test_twice(void)
{
	struct weft_file *f, *g;

	begin(options());
	fill(data, sizeof(data), 10);
	f = open_file(top(), "twice", WEFT_O_READ | WEFT_O_WRITE | WEFT_O_CREATE);
	write_all(f, 0, 0, 1 << 20);
	g = open_file(top(), "twice", WEFT_O_READ | WEFT_O_WRITE);
	write_all(g, 0, 1 << 20, 1 << 20);
	WANT(info_now().wi_layouts == 1 && info_now().wi_ds_writes, "%llu layouts",
	     (unsigned long long)info_now().wi_layouts);
	commit(f);
	close_file(f);
	write_all(g, 0, 2 << 20, 1 << 20);
	WANT(info_now().wi_layouts == 2, "%llu layouts", (unsigned long long)info_now().wi_layouts);
	commit(g);
	close_file(g);
	data_is("twice", 3 << 20);
	WANT(!info_now().wi_ds_errors, "errors");
	end();
}

/* The copy that is read fails: another one is read, the server is told, and the layout stays. */
static void test_report(void)
{
	struct weft_info a, b;
	struct weft_file *f;

	begin(options());
	fill(data, sizeof(data), 11);
	f = open_file(top(), "report", WEFT_O_READ | WEFT_O_WRITE | WEFT_O_CREATE);
	write_all(f, 0, 0, 3 << 20);
	commit(f);
	close_file(f);
	f = open_file(top(), "report", WEFT_O_READ);
	ask("read");
	read_all(f, 3 << 20);
	ask("kill what was read");
	read_all(f, 3 << 20);
	a = info_now();
	WANT(a.wi_ds_errors && a.wi_layouts == 2, "errors %llu, layouts %llu",
	     (unsigned long long)a.wi_ds_errors, (unsigned long long)a.wi_layouts);
	read_all(f, 3 << 20);
	b = info_now();
	WANT(b.wi_ds_errors == a.wi_ds_errors && b.wi_layouts == 2,
	     "it is tried again: errors %llu", (unsigned long long)b.wi_ds_errors);
	printf("reports %llu\n", (unsigned long long)b.wi_reports);
	close_file(f);
	end();
}

/* Below 64 KiB the server wants the data itself. */
static void test_steer(void)
{
	struct weft_file *f;
	struct weft_info i;

	uint64_t first;

	begin(options());
	fill(data, sizeof(data), 12);
	/* by this one the server says so */
	close_file(open_file(top(), "first", WEFT_O_WRITE | WEFT_O_CREATE));
	first = info_now().wi_layouts;
	f = open_file(top(), "small", WEFT_O_READ | WEFT_O_WRITE | WEFT_O_CREATE);
	write_all(f, 0, 0, 65535);
	commit(f);
	i = info_now();
	WANT(i.wi_layouts == first && !i.wi_ds_writes && i.wi_steered == 1,
	     "layouts %llu, steered %llu", (unsigned long long)i.wi_layouts,
	     (unsigned long long)i.wi_steered);
	write_all(f, WEFT_STABLE, 65535, 1);
	read_all(f, 65536);
	i = info_now();
	WANT(i.wi_layouts == first + 1 && i.wi_ds_writes == 1 && i.wi_ds_reads >= 1 &&
		     i.wi_steered == 1,
	     "layouts %llu, steered %llu", (unsigned long long)i.wi_layouts,
	     (unsigned long long)i.wi_steered);
	close_file(f);
	f = open_file(top(), "small", WEFT_O_READ);
	read_all(f, 65536);
	WANT(info_now().wi_layouts == first + 2 && info_now().wi_steered == 1, "layouts %llu",
	     (unsigned long long)info_now().wi_layouts);
	cut(open_file(top(), "small", WEFT_O_WRITE), 100);
	close_file(f);
	f = open_file(top(), "small", WEFT_O_READ);
	read_all(f, 100);
	WANT(info_now().wi_layouts == first + 2 && info_now().wi_steered == 2, "layouts %llu",
	     (unsigned long long)info_now().wi_layouts);
	close_file(f);
	end();
}

/* The layout is recalled with data that are not committed; then it is asked for again. */
static void test_recall(void)
{
	struct weft_file *f;
	struct weft_info i;

	begin(options());
	fill(data, sizeof(data), 6);
	f = open_file(top(), "recall", WEFT_O_READ | WEFT_O_WRITE | WEFT_O_CREATE);
	write_all(f, 0, 0, SIZE);
	ask_awake("recall");
	i = info_now();
	WANT(i.wi_recalls && i.wi_layouts == 1 && !i.wi_ds_errors, "recalls %llu",
	     (unsigned long long)i.wi_recalls);
	write_all(f, 0, SIZE, 100);
	commit(f);
	read_all(f, SIZE + 100);
	i = info_now();
	WANT(i.wi_layouts == 2 && !i.wi_ds_errors && !i.wi_rewritten, "layouts %llu, errors %llu",
	     (unsigned long long)i.wi_layouts, (unsigned long long)i.wi_ds_errors);
	close_file(f);
	content_is("recall", 6, SIZE + 100);
	end();
}

/* Nobody answers: what waits ends in time. */
static void test_giveup(void)
{
	struct weft_opts o = options();
	struct weft_op op = {.o_what = WEFT_GETATTR};

	o.wo_giveup_ms = 2000;
	begin(o);
	GOOD(op);
	ask("kill");
	BAD(op, ETIMEDOUT);
	end();
}

static void test_idle(void)
{
	struct weft_op op = {.o_what = WEFT_GETATTR};
	struct weft_info info;

	begin(options());
	weft_info(W, &info);
	weft_reap(R, NULL, 0, (int)info.wi_lease_s * 2000);
	GOOD(op);
	weft_info(W, &info);
	WANT(info.wi_sessions == 1, "the lease was lost");
	end();
}

static void test_null(void)
{
	struct weft_op op = {.o_what = WEFT_NULL};

	begin(options());
	for (int i = 0; i < 1000; i++)
		GOOD(op);
	end();
}

static void test_refused(void)
{
	struct weft_opts o = options();
	int err;

	WANT(!weft_ring_create(&R), "ring");
	err = weft_connect(&W, R, &o);
	WANT(err == -ECONNREFUSED, "%s", strerror(-err));
	o.wo_minor = 3;
	WANT(weft_connect(&W, R, &o) == -EINVAL, "a minor version of 3");
	weft_ring_destroy(R);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} tests[] = {{"names", test_names},	  {"paths", test_paths},
		     {"data", test_data},	  {"many", test_many},
		     {"cut", test_cut},		  {"restart", test_restart},
		     {"giveup", test_giveup},	  {"idle", test_idle},
		     {"null", test_null},	  {"refused", test_refused},
		     {"straight", test_straight}, {"registered", test_registered},
		     {"content", test_content},	  {"dead", test_dead},
		     {"lost", test_lost},	  {"older", test_older},
		     {"recall", test_recall},	  {"shorter", test_shorter},
		     {"frugal", test_frugal},	  {"twice", test_twice},
		     {"report", test_report},	  {"steer", test_steer}};

	server = argc == 3 ? argv[1] : "";
	for (size_t i = 0; argc == 3 && i < sizeof(tests) / sizeof(tests[0]); i++)
		if (!strcmp(tests[i].name, argv[2])) {
			tests[i].run();
			return 0;
		}
	fprintf(stderr, "usage: weft_client ADDRESS TEST\n");
	return 2;
}
