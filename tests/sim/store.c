/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.c - LMDB in memory, and what of kv/ is about files: opening, checkpoints, space, the
 * archive. kv_copy.c, kv_redo.c, kv_commit.c and kv_log.c are the product's.
 *
 * What is true to the product: a commit is seen whole or not at all; after a crash the store is as
 * of its newest checkpoint, made by a thread now and then, and what is committed before the first
 * checkpoint of a process is durable; a checkpoint tells the log what this copy needs no longer.
 */
#include "tests/sim/sim.h"
#include "tests/sim/redirect.h"
#include "tests/sim/store.h"
#include "kv/kv_int.h"
#include <stdarg.h>

enum { PAIRS = 48 };
struct slice {
	size_t s_n;
	char s_data[];
};
struct map {
	unsigned m_n;
	struct {
		const struct slice *p_k, *p_v;
	} m_pair[PAIRS];
};
struct store {
	bool st_there;
	char st_id[32], st_id_new[32]; /* copy-id, copy-id.new; "": it is not there */
	struct map st_now, st_safe;    /* committed; as of the newest checkpoint */
	unsigned st_run;
};
struct MDB_txn {
	struct store *mt_store;
	struct map mt_map;
	bool mt_reads;
};

struct store *store_new(void)
{
	return sim_alloc(sizeof(struct store));
}

void store_crash(struct store *s)
{
	s->st_now = s->st_safe;
	s->st_there = s->st_there && s->st_now.m_n;
}

void store_wipe(struct store *s)
{
	s->st_there = false;
	s->st_id[0] = 0;
	s->st_now.m_n = s->st_safe.m_n = 0;
}

/* ---- files in the folder ---- */

FILE *store_fopen(const char *path, const char *mode)
{
	struct store *s = store_of_process();

	if (strcmp(path, "/store/copy-id") == 0 && *mode == 'r' && s->st_id[0])
		return fmemopen(s->st_id, strlen(s->st_id), "r");
	if (strcmp(path, "/store/copy-id.new") == 0 && *mode == 'w')
		return fmemopen(s->st_id_new, sizeof(s->st_id_new), "w");
	errno = ENOENT;
	return NULL;
}

int store_rename(const char *from, const char *to)
{
	struct store *s = store_of_process();

	(void)from;
	(void)to;
	memcpy(s->st_id, s->st_id_new, sizeof(s->st_id));
	return 0;
}

/* ---- LMDB ---- */

static struct store *store_of(MDB_env *env)
{
	return (struct store *)env;
}

int mdb_txn_begin(MDB_env *env, MDB_txn *parent, unsigned flags, MDB_txn **out)
{
	MDB_txn *t = sim_malloc(sizeof(*t));

	(void)parent;
	t->mt_store = store_of(env);
	t->mt_map = t->mt_store->st_now;
	t->mt_reads = flags & MDB_RDONLY;
	*out = t;
	return 0;
}

int mdb_txn_commit(MDB_txn *t)
{
	if (!t->mt_reads)
		t->mt_store->st_now = t->mt_map;
	sim_free(t);
	return 0;
}

void mdb_txn_abort(MDB_txn *t)
{
	sim_free(t);
}

size_t mdb_txn_id(MDB_txn *t)
{
	(void)t;
	return 1;
}

int mdb_env_info(MDB_env *env, MDB_envinfo *info)
{
	(void)env;
	*info = (MDB_envinfo){.me_last_txnid = 1};
	return 0;
}

char *mdb_strerror(int rc)
{
	return rc == MDB_NOTFOUND ? "not found" : "LMDB";
}

static int find(const struct map *m, const MDB_val *k)
{
	for (unsigned i = 0; i < m->m_n; i++)
		if (m->m_pair[i].p_k->s_n == k->mv_size &&
		    !memcmp(m->m_pair[i].p_k->s_data, k->mv_data, k->mv_size))
			return (int)i;
	return -1;
}

static const struct slice *slice_of(const MDB_val *v)
{
	struct slice *s = sim_alloc(sizeof(*s) + v->mv_size);

	s->s_n = v->mv_size;
	memcpy(s->s_data, v->mv_data, v->mv_size);
	return s;
}

int mdb_get(MDB_txn *t, MDB_dbi dbi, MDB_val *k, MDB_val *v)
{
	int at = find(&t->mt_map, k);

	(void)dbi;
	if (at < 0)
		return MDB_NOTFOUND;
	*v = (MDB_val){t->mt_map.m_pair[at].p_v->s_n, (void *)t->mt_map.m_pair[at].p_v->s_data};
	return 0;
}

int mdb_put(MDB_txn *t, MDB_dbi dbi, MDB_val *k, MDB_val *v, unsigned flags)
{
	int at = find(&t->mt_map, k);

	(void)dbi;
	(void)flags;
	if (at < 0) {
		if (t->mt_map.m_n == PAIRS)
			abort();
		at = (int)t->mt_map.m_n++;
		t->mt_map.m_pair[at].p_k = slice_of(k);
	}
	t->mt_map.m_pair[at].p_v = slice_of(v);
	return 0;
}

int mdb_del(MDB_txn *t, MDB_dbi dbi, MDB_val *k, MDB_val *v)
{
	int at = find(&t->mt_map, k);

	(void)dbi;
	(void)v;
	if (at < 0)
		return MDB_NOTFOUND;
	t->mt_map.m_pair[at] = t->mt_map.m_pair[--t->mt_map.m_n];
	return 0;
}

int mdb_drop(MDB_txn *t, MDB_dbi dbi, int del)
{
	(void)dbi;
	(void)del;
	t->mt_map.m_n = 0;
	return 0;
}

/* ---- kv_lmdb.c ---- */

int kv_fail(struct kv_failure *f, int rc, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	if (f->f_size)
		vsnprintf(f->f_text, f->f_size, fmt, ap);
	va_end(ap);
	return rc;
}

int kv_errno(int rc)
{
	return rc == MDB_NOTFOUND ? -ENOENT : rc;
}

int kv_txn_begin(struct kv *kv)
{
	return mdb_txn_begin(kv->k_env, NULL, 0, &kv->k_txn.t_mdb);
}

int kv_txn_commit(struct kv *kv)
{
	int rc = mdb_txn_commit(kv->k_txn.t_mdb);

	kv->k_txn.t_mdb = NULL;
	return rc;
}

void kv_txn_abort(struct kv *kv)
{
	mdb_txn_abort(kv->k_txn.t_mdb);
	kv->k_txn.t_mdb = NULL;
}

static MDB_val to_mdb(struct kv_slice s)
{
	return (MDB_val){s.s_len, (void *)s.s_data};
}

int kv_get(struct kv_txn *t, struct kv_slice key, struct kv_slice *val)
{
	MDB_val k = to_mdb(key), v;
	int rc = mdb_get(t->t_mdb, 0, &k, &v);

	if (!rc)
		*val = (struct kv_slice){v.mv_data, v.mv_size};
	return kv_errno(rc);
}

int kv_put(struct kv_txn *t, struct kv_slice key, struct kv_slice val)
{
	MDB_val k = to_mdb(key), v = to_mdb(val);
	int rc = mdb_put(t->t_mdb, 0, &k, &v, 0);

	t->t_wrote = true;
	return rc ? rc : kv_wlog_add(&t->t_kv->k_wlog, key, val, false);
}

int kv_del(struct kv_txn *t, struct kv_slice key)
{
	MDB_val k = to_mdb(key);
	int rc = mdb_del(t->t_mdb, 0, &k, NULL);

	t->t_wrote = t->t_wrote || !rc;
	return rc ? kv_errno(rc)
		  : kv_wlog_add(&t->t_kv->k_wlog, key, (struct kv_slice){"", 0}, true);
}

int kv_read_begin(struct kv *kv, struct kv_txn **out)
{
	struct kv_txn *t = sim_calloc(1, sizeof(*t));

	t->t_kv = kv;
	*out = t;
	return mdb_txn_begin(kv->k_env, NULL, MDB_RDONLY, &t->t_mdb);
}

void kv_read_end(struct kv_txn *t)
{
	mdb_txn_abort(t->t_mdb);
	sim_free(t);
}

bool kv_low(const struct kv *kv)
{
	(void)kv;
	return false;
}

/* ---- kv_space.c, kv_archive.c ---- */

int kv_space_charge(struct kv *kv, size_t len, enum kv_write_kind kind, bool first)
{
	(void)kv;
	(void)len;
	(void)kind;
	(void)first;
	return 0;
}

bool kv_space_batch_full(const struct kv *kv)
{
	(void)kv;
	return false;
}

void kv_archive_drop(struct kv *kv, const char *why)
{
	(void)kv;
	(void)why;
}

void kv_archive_add(struct kv *kv, const void *rec)
{
	(void)kv;
	(void)rec;
}

int kv_log_read(void *log, uint64_t after, kv_redo_batch_fn fn, void *arg, char *err, size_t errlen)
{
	(void)log;
	(void)after;
	(void)fn;
	(void)arg;
	(void)err;
	(void)errlen;
	abort(); /* there is no log in files */
}

/* ---- kv_checkpoint.c ---- */

const char *kv_head_name(bool copy, unsigned i)
{
	(void)copy;
	return i ? "head.1" : "head.0";
}

int sim_access(const char *path, int mode)
{
	(void)path;
	(void)mode;
	return -1;
}

int kv_log_settle(struct kv *kv, struct kv_failure *f)
{
	struct store *s = store_of(kv->k_env);

	(void)f;
	s->st_safe = s->st_now;
	return 0;
}

static void checkpoint(struct kv *kv)
{
	struct store *s = store_of(kv->k_env);
	uint64_t upto;

	pthread_mutex_lock(&kv->k_log.lg_lock);
	s->st_safe = s->st_now;
	upto = kv_held(kv);
	pthread_mutex_unlock(&kv->k_log.lg_lock);
	kv->k_redo.r_ops->ro_trim(kv->k_redo.r_log, upto);
}

void kv_log_checkpoint(struct kv *kv)
{
	checkpoint(kv);
}

static void *checkpoints(void *arg)
{
	struct kv *kv = arg;

	while (!kv->k_log.lg_stop) {
		sim_sleep(SIM_MS(sim_between(200, 1500)));
		if (!kv->k_log.lg_stop)
			checkpoint(kv);
	}
	return NULL;
}

static int open_row(struct kv *kv, struct kv_failure *f)
{
	static const char key[] = {0, 'w', 'e', 'f', 't'};
	struct store *s = store_of(kv->k_env);
	MDB_val k = {sizeof(key), (void *)key}, v;
	MDB_txn *t;
	int rc;

	mdb_txn_begin(kv->k_env, NULL, 0, &t);
	if (!mdb_get(t, 0, &k, &v)) {
		rc = kv_copy_check(kv, v, f);
		mdb_txn_abort(t);
		return rc;
	}
	if (s->st_there)
		sim_fail("store", "a store has lost its own row");
	s->st_there = true;
	rc = kv_copy_make(kv, t);
	mdb_txn_commit(t);
	return rc;
}

int kv_open(struct kv **out, const char *path, const struct kv_opts *o, char *err, size_t errlen)
{
	struct kv *kv = aligned_alloc(64, (sizeof(*kv) + 63) / 64 * 64);
	struct kv_failure f = {err, errlen};
	struct store *s = store_of_process();
	int rc;

	memset(kv, 0, sizeof(*kv));
	kv->k_path = sim_strdup(path);
	kv->k_env = (MDB_env *)s;
	kv->k_txn.t_kv = kv;
	kv->k_txn.t_write = true;
	kv->k_copy_row = true;
	kv->k_log.lg_file[0].lf_size = 1u << 30;
	rc = kv_copy_begin(kv, o, &f);
	rc = rc ? rc : open_row(kv, &f);
	rc = rc ? rc : kv_copy_fill(kv, o->ko_refill, &f);
	if (rc) {
		s->st_safe = s->st_now;
		sim_free(kv);
		return rc;
	}
	s->st_safe = s->st_now;
	kv->k_log.lg_on = true;
	pthread_create(&kv->k_log.lg_thread, NULL, checkpoints, kv);
	*out = kv;
	return o->ko_follow ? 0 : kv_promote(kv, err, errlen);
}

void kv_close(struct kv *kv)
{
	if (atomic_load(&kv->k_writes))
		kv_committer_stop(kv);
	kv->k_log.lg_stop = true;
	pthread_join(kv->k_log.lg_thread, NULL);
	checkpoint(kv);
	kv_wlog_free(&kv->k_wlog);
	sim_free(kv);
}

/* ---- what is not simulated ---- */

void loop_post(struct loop *l, struct loop_msg *m)
{
	(void)l;
	(void)m;
	abort();
}

_Thread_local uint64_t clock_last_ns;
void trace_put(enum trace_kind kind, uint64_t now_ns, uint64_t ino, uint64_t a, uint64_t b,
	       uint64_t c)
{
	(void)kind;
	(void)now_ns;
	(void)ino;
	(void)a;
	(void)b;
	(void)c;
}
