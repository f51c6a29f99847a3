/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_store.c - a damaged store: rows changed, cut, deleted, moved and added, in one mutation that
 * is not committed; then the checker goes over all of it, and every inode, directory, xattr and row
 * is read as the daemon reads it.
 *
 * Held, beyond the sanitizers: whatever the damage, answers are errors; and what the checker finds
 * sound, in names and inodes, is read without one.
 *
 * An input is a series of changes: a byte that says which, and its operands.
 */
#include "base/log.h"
#include "mds/dataserver/ds_reg_int.h"
#include "mds/layout/order_int.h"
#include "mds/namespace/keys.h"
#include "proto/rpc.h"
#include "tests/unit/scratch.h"
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

enum { CHANGE, CUT, DELETE, MOVE, ADD, COPY, CHANGES };
enum { KEY_MAX = 64, VAL_MAX = 600, INO_MAX = 64 };

static struct kv *kv;
static struct ns *ns;
static char dir[128];
static const struct ns_cred root;

struct input {
	const uint8_t *p, *end;
};
struct row {
	uint8_t key[KV_KEY_MAX], val[4096];
	size_t klen, vlen;
};

static uint8_t take(struct input *in)
{
	return in->p < in->end ? *in->p++ : 0;
}

static size_t take_bytes(struct input *in, uint8_t *to, size_t n)
{
	size_t i = 0;

	for (; i < n && in->p < in->end; i++)
		to[i] = *in->p++;
	return i;
}

/* The k-th row, counted round. */
static bool row_find(struct kv_txn *t, unsigned k, struct row *r)
{
	struct kv_slice key, val;
	unsigned n = 0;

	for (int round = 0; round < 2; round++) {
		struct kv_scan sc;
		unsigned at = 0;
		bool found = false;

		if (kv_scan_begin(t, ns_slice("", 0), ns_slice("", 0), &sc))
			abort();
		while (!found && kv_scan_next(&sc, &key, &val) > 0) {
			if (!round)
				n++;
			else if (at++ == k % n)
				found = val.s_len <= sizeof(r->val);
		}
		if (found) {
			memcpy(r->key, key.s_data, r->klen = key.s_len);
			memcpy(r->val, val.s_data, r->vlen = val.s_len);
		}
		kv_scan_end(&sc);
		if (found || !n)
			return found;
	}
	return false;
}

static void put(struct kv_txn *t, const struct row *r)
{
	if (r->klen)
		kv_put(t, ns_slice(r->key, r->klen), ns_slice(r->val, r->vlen));
}

static void change(struct kv_txn *t, struct input *in)
{
	unsigned how = take(in) % CHANGES, k = take(in), at, n;
	struct row r = {.klen = 0}, other;

	if (how == ADD) {
		r.klen = take_bytes(in, r.key, k % KEY_MAX);
		n = take(in);
		r.vlen = take_bytes(in, r.val, n);
		put(t, &r);
		return;
	}
	if (!row_find(t, k, &r))
		return;
	at = take(in);
	switch (how) {
	case CHANGE:
		n = 1 + take(in) % 8;
		if (at < r.vlen)
			take_bytes(in, r.val + at, r.vlen - at < n ? r.vlen - at : n);
		break;
	case CUT:
		r.vlen = at < r.vlen ? at : r.vlen;
		break;
	case COPY:
		if (row_find(t, at, &other))
			memcpy(r.val, other.val, r.vlen = other.vlen);
		break;
	case MOVE:
		kv_del(t, ns_slice(r.key, r.klen));
		if (r.klen)
			r.key[at % r.klen] = take(in);
		break;
	default:
		kv_del(t, ns_slice(r.key, r.klen));
		return;
	}
	put(t, &r);
}

/* ---- reading ---- */

static int failed; /* readings that said that something is wrong */

static int on_entry(void *arg, const struct ns_dirent *d)
{
	uint64_t ino;
	uint8_t type;

	if (ns_name_check(d->d_name, d->d_len) || d->d_cookie <= 2)
		abort();
	(void)arg, (void)ino, (void)type;
	return 0;
}

static int on_xattr(void *arg, const char *name, size_t len)
{
	(void)arg;
	return len && !memchr(name, 0, len) ? 0 : 1;
}

static int on_orphan(void *arg, uint64_t ino)
{
	(void)arg, (void)ino;
	return 0;
}

static void read_inode(struct kv_txn *t, uint64_t ino)
{
	struct ns_inode i;
	struct kv_slice policy;
	bool eof;
	int err = ns_get(ns, t, ino, &i);

	if (err) {
		failed += err != -ESTALE;
		return;
	}
	ns_permission(&i, &root, 7);
	if (i.i_type == NS_DIR) {
		failed += ns_readdir(ns, t, ino, 0, on_entry, NULL, &eof) != 0;
		err = ns_policy(ns, t, ino, &policy);
		failed += err && err != -ENODATA && err != -ENOENT;
	}
	failed += ns_xattr_list(ns, t, ino, on_xattr, NULL) != 0;
}

static int on_ds(void *arg, struct kv_slice id, struct kv_slice val)
{
	struct ds_reg_server sv;
	struct ds_reg_terms dt;

	(void)arg;
	if (ds_reg_row_decode(id, val, &sv, &dt) == 0 &&
	    (dt.dt_weight > DS_REG_WEIGHT_MAX || strlen(dt.dt_labels) >= LABELS_TWO_LEN ||
	     strlen(sv.sv_name) > 64 || sv.sv_naddrs > DS_REG_ADDRS || !sv.sv_id ||
	     sv.sv_id > DS_REG_MAX))
		abort();
	return 0;
}

static int on_order(void *arg, struct kv_slice id, struct kv_slice val)
{
	uint64_t ino;
	struct order *o = lo_order_decode(1, 7, val, &ino);

	(void)arg, (void)id;
	free(o);
	return 0;
}

static int on_once(void *arg, struct kv_slice id, struct kv_slice val)
{
	struct ns_reply o;

	(void)arg, (void)id;
	if (ns_reply_decode(val, &o) == 0 && o.on_last + 8 > o.on_results.s_len)
		abort();
	return 0;
}

static void on_violation(void *arg, const char *line)
{
	if (!*line)
		abort();
	++*(unsigned *)arg;
}

static int damage(void *arg, struct kv_txn *t)
{
	struct ns_check_stats st = {0};
	struct input *in = arg;
	unsigned told = 0;
	uint64_t ino;

	for (unsigned n = 0; n < 16 && in->p < in->end; n++)
		change(t, in);
	if (ns_check(t, on_violation, &told, &st) == 0 && (told == 0) != (st.cs_violations == 0))
		abort();
	failed = 0;
	for (ino = 0; ino < INO_MAX; ino++)
		read_inode(t, ino);
	if (!st.cs_violations && failed)
		abort(); /* found sound, and cannot be read */
	ns_path(ns, t, "/d/sub/f", &ino);
	ns_orphans(ns, t, on_orphan, NULL);
	ns_rows(t, NS_T_DS, NULL, 0, on_ds, NULL);
	ns_rows(t, NS_T_ORDER, NULL, 0, on_order, NULL);
	ns_rows(t, NS_T_REPLY, NULL, 0, on_once, NULL);
	return 0;
}

/* ---- the store ---- */

static bool keep;

static int on_batch(void *arg, const struct kv_writeset *ws)
{
	(void)arg, (void)ws;
	return keep ? 0 : -ECANCELED;
}

static uint64_t make(struct kv_txn *t, uint64_t in, const char *name, uint8_t type)
{
	struct ns_create_args a = {.a_dir = in,
				   .a_name = name,
				   .a_len = strlen(name),
				   .a_cred = &root,
				   .a_now = {.t_sec = 1},
				   .a_attr = {.i_type = type, .i_mode = 0755}};
	static uint8_t blob[NS_BLOB_MAX];
	struct ns_inode i;
	struct ns_cinfo ci;

	if (type == NS_REG || type == NS_LNK)
		a.a_attr.i_blob = ns_slice("target or map", 13);
	if (ns_create(ns, t, &a, &i, blob, &ci))
		abort();
	return i.i_ino;
}

static int base(void *arg, struct kv_txn *t)
{
	struct ds_reg_server sv = {.sv_id = 1,
				   .sv_naddrs = 1,
				   .sv_max_read = 4096,
				   .sv_max_write = 4096,
				   .sv_name = "ds1"};
	struct ds_reg_terms dt = {.dt_weight = 100, .dt_own = "rack=r1", .dt_set = "speed=nvme"};
	uint8_t row[DS_REG_ROW_MAX], key[12] = {0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1},
				     order[64] = {1, 1};
	uint64_t d = make(t, NS_ROOT_INO, "d", NS_DIR), sub = make(t, d, "sub", NS_DIR),
		 f = make(t, sub, "f", NS_REG);
	struct ns_cinfo ci;

	(void)arg;
	make(t, d, "l", NS_LNK);
	make(t, d, "fifo", NS_FIFO);
	if (ns_link(ns, t, f, d, "hard", 4, &root, (struct ns_time){.t_sec = 2}, &ci) ||
	    ns_xattr_set(ns, t, f, "a", 1, ns_slice("value", 5), 0, &root,
			 (struct ns_time){.t_sec = 2}, &ci) ||
	    ns_row_put(t, NS_T_DS, "0123456789abcdef", 16, row, ds_reg_row_encode(&sv, &dt, row)) ||
	    ns_row_put(t, NS_T_ORDER, key, 12, order, 40) ||
	    ns_row_put(t, NS_T_WRITE_INTENT, key + 4, 8, "", 0) ||
	    ns_row_put(t, NS_T_CLIENT, "0123456789abcdef0123456789abcdef", 32, "\1\1\0\0\0verifier",
		       13))
		abort();
	return 0;
}

static void cleanup(void)
{
	ns_close(ns);
	kv_close(kv);
	scratch_remove(dir);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	struct kv_opts o = {.ko_create = true, .ko_nosync = true, .ko_map_max = 1ull << 28};
	const char *tmp = getenv("TMPDIR");
	char err[512];

	(void)argc, (void)argv;
	log_set_level((enum log_level) - 1);
	snprintf(dir, sizeof(dir), "%s/fuzz_store.XXXXXX",
		 tmp			    ? tmp
		 : access("/dev/shm", W_OK) ? "/tmp"
					    : "/dev/shm");
	keep = true;
	if (!mkdtemp(dir) || kv_open(&kv, dir, &o, err, sizeof(err)))
		abort();
	kv_set_batch_hook(kv, on_batch, NULL);
	if (ns_open(&ns, kv, err, sizeof(err)) || kv_run_sync(kv, base, NULL))
		abort();
	keep = false;
	atexit(cleanup);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, data + size};

	kv_run_sync(kv, damage, &in);
	return 0;
}
