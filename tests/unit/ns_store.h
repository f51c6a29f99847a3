/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ns_store.h - a store of names for each test, which ends with the checker on it, and shorthands
 * for what the tests do to it. Each test program has its own: all is static, and inline where not
 * every program needs it.
 */
#ifndef TESTS_UNIT_NS_STORE_H
#define TESTS_UNIT_NS_STORE_H
#include "base/log.h"
#include "mds/namespace/keys.h"
#include "tests/unit/unit.h"
#include <errno.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* A store per test */

static char dir[256], err[512];
static struct kv *kv;
static struct ns *ns;
static bool damaged;	      /* the test damages its store on purpose */
static size_t written;	      /* puts and deletes of the last commit */
static int commit_error;      /* what the next commits meet */
static unsigned commits_left; /* with the last of them commits fail; 0: none does */

static int on_batch(void *arg, const struct kv_writeset *ws)
{
	(void)arg;
	written = ws->ws_n;
	return commits_left && !--commits_left ? -EIO : commit_error;
}

static void open_bare(void)
{
	struct kv_opts o = {.ko_create = true, .ko_nosync = true};
	int rc = kv_open(&kv, dir, &o, err, sizeof(err));

	ck_assert_msg(rc == 0, "%d: %s", rc, err);
	kv_set_batch_hook(kv, on_batch, NULL);
}

static void open_store(void)
{
	int rc;

	open_bare();
	rc = ns_open(&ns, kv, err, sizeof(err));
	ck_assert_msg(rc == 0, "%d: %s", rc, err);
}

static void close_store(void)
{
	ns_close(ns);
	kv_close(kv);
}

/* As a crash leaves it: what is committed is there, and ns_close did not run. */
static inline void crash_store(void)
{
	kv_close(kv);
	free(ns);
}

/* A mutation whose body is the test's own: the committer lends its transaction and waits. */
static sem_t lent, back;
static struct kv_txn *wt;
static pthread_t mutation;
static int mutation_rc;

static int lend(void *arg, struct kv_txn *t)
{
	(void)arg;
	wt = t;
	sem_post(&lent);
	sem_wait(&back);
	return 0;
}

static void *mutation_main(void *arg)
{
	mutation_rc = kv_run_sync(kv, lend, arg);
	return NULL;
}

static void w_begin(void)
{
	written = 0;
	ck_assert_int_eq(pthread_create(&mutation, NULL, mutation_main, NULL), 0);
	sem_wait(&lent);
}

static int w_end(int rc)
{
	sem_post(&back);
	pthread_join(mutation, NULL);
	ck_assert_msg(rc >= 0 || written == 0, "refused with %d, but wrote %zu times", rc, written);
	ck_assert_int_eq(mutation_rc, written ? commit_error : 0);
	return rc;
}

/* Runs an expression over the transaction wt and commits; its result. What refuses must not have
 * written. */
#define W(expr) (w_begin(), w_end(expr))

static struct kv_txn *rt;

static struct kv_txn *snapshot(void)
{
	if (!rt)
		ck_assert_int_eq(kv_read_begin(kv, &rt), 0);
	ck_assert_int_eq(kv_read_renew(rt), 0);
	return rt;
}

static void snapshot_end(void)
{
	if (rt)
		kv_read_end(rt);
	rt = NULL;
}

static char violations[8192];

static void on_violation(void *arg, const char *line)
{
	size_t len = strlen(violations);

	(void)arg;
	snprintf(violations + len, sizeof(violations) - len, "%s\n", line);
}

static uint64_t violation_count(void)
{
	struct ns_check_stats st;

	violations[0] = 0;
	ck_assert_int_eq(ns_check(snapshot(), on_violation, NULL, &st), 0);
	return st.cs_violations;
}

static void setup(void)
{
	log_set_level(LOG_L_ERROR);
	ck_assert(scratch_make(dir, sizeof(dir), "ns_test"));
	sem_init(&lent, 0, 0);
	sem_init(&back, 0, 0);
	damaged = false;
	commit_error = 0;
	open_store();
}

static void teardown(void)
{
	if (!damaged)
		ck_assert_msg(violation_count() == 0, "%s", violations);
	snapshot_end();
	close_store();
	scratch_remove(dir);
}

/* Shorthands */

static const struct ns_cred root = {.cr_uid = 0};
static const struct ns_cred ann = {.cr_uid = 100, .cr_gid = 100, .cr_ngids = 1, .cr_gids = {500}};
static const struct ns_cred bob = {.cr_uid = 200, .cr_gid = 200};
static struct ns_cinfo ci, ci2;
static struct ns_inode out, gone;
static uint8_t blob[NS_BLOB_MAX];

/* Every look at the clock is later than the one before. */
static struct ns_time now(void)
{
	static int64_t sec = 1000000;

	return (struct ns_time){.t_sec = ++sec, .t_nsec = 5};
}

static inline int new (uint64_t in, const char *name, uint8_t type, uint16_t mode,
		       const struct ns_cred *cr)
{
	struct ns_create_args a = {
		.a_dir = in,
		.a_name = name,
		.a_len = strlen(name),
		.a_cred = cr,
		.a_attr = {.i_type = type,
			   .i_mode = mode,
			   .i_uid = cr ? cr->cr_uid : 0,
			   .i_gid = cr ? cr->cr_gid : 0},
		.a_now = now(),
	};

	if (type == NS_LNK)
		a.a_attr.i_blob = ns_slice("target", 6);
	return W(ns_create(ns, wt, &a, &out, blob, &ci));
}

static inline uint64_t mk(uint64_t in, const char *name, uint8_t type, uint16_t mode,
			  const struct ns_cred *cr)
{
	ck_assert_int_eq(new (in, name, type, mode, cr), 0);
	return out.i_ino;
}

static struct ns_inode get(uint64_t ino)
{
	struct ns_inode i;

	ck_assert_int_eq(ns_get(ns, snapshot(), ino, &i), 0);
	return i;
}

static inline uint64_t look(uint64_t in, const char *name)
{
	uint64_t ino;
	uint8_t type;
	int rc = ns_lookup(ns, snapshot(), in, name, strlen(name), &ino, &type);

	if (rc == -ENOENT)
		return 0;
	ck_assert_int_eq(rc, 0);
	ck_assert_uint_eq(type, get(ino).i_type);
	return ino;
}

static bool open_now;  /* what f_keep_open says */
static unsigned freed; /* calls of f_free_map */
static uint64_t freed_ino;

static bool keep_open(void *arg, uint64_t ino)
{
	(void)arg, (void)ino;
	return open_now;
}

static int free_map(void *arg, struct kv_txn *t, const struct ns_inode *i)
{
	(void)arg, (void)t;
	ck_assert_uint_eq(i->i_type, NS_REG);
	freed++;
	freed_ino = i->i_ino;
	return 0;
}

static const struct ns_free_ops fo = {.f_keep_open = keep_open, .f_free_map = free_map};

static inline int rm(uint64_t in, const char *name, unsigned want, const struct ns_cred *cr)
{
	return W(ns_remove(ns, wt, in, name, strlen(name), want, cr, now(), &fo, &gone, &ci));
}

static inline int mv(uint64_t s, const char *sn, uint64_t d, const char *dn,
		     const struct ns_cred *cr)
{
	return W(ns_rename(ns, wt, s, sn, strlen(sn), d, dn, strlen(dn), cr, now(), &fo, &gone, &ci,
			   &ci2));
}

static inline int ln(uint64_t ino, uint64_t in, const char *name, const struct ns_cred *cr)
{
	return W(ns_link(ns, wt, ino, in, name, strlen(name), cr, now(), &ci));
}

static int set(uint64_t ino, struct ns_setattr s, const struct ns_cred *cr)
{
	return W(ns_setattr(ns, wt, ino, &s, cr, now(), &out));
}

static inline int chmod_(uint64_t ino, uint16_t mode, const struct ns_cred *cr)
{
	return set(ino, (struct ns_setattr){.s_mask = NS_S_MODE, .s_mode = mode}, cr);
}

static int raw_put(struct kv_slice key, const void *val, size_t len)
{
	return W(kv_put(wt, key, ns_slice(val, len)));
}

static inline void put_inode(struct ns_inode i)
{
	struct ns_inode_held h = {.h_i = i};

	if (i.i_blob.s_len)
		memcpy(h.h_blob, i.i_blob.s_data, i.i_blob.s_len);
	h.h_i.i_blob.s_data = h.h_blob;
	ck_assert_int_eq(W(ns_inode_put(wt, &h.h_i)), 0);
}

static inline void put_entry(uint64_t in, uint64_t slot, uint64_t ino, uint8_t type,
			     const char *name)
{
	uint8_t k[NS_KEY_DIRENT], v[NS_DIRENT_VAL_MAX];

	ck_assert_int_eq(raw_put(ns_key_dirent(k, in, slot), v,
				 ns_dirent_encode(ino, type, name, strlen(name), v)),
			 0);
}

static inline uint64_t hash_of(const char *name)
{
	return ns_name_hash(ns_super(ns)->su_dir_key, name, strlen(name));
}

/* A reader of a directory that cannot go on. */
static inline int fails(void *arg, const struct ns_dirent *d)
{
	(void)arg, (void)d;
	return -ENOMEM;
}
#endif
