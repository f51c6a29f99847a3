/* SPDX-License-Identifier: Apache-2.0 */
/* kv_test.c - the store keeps kv.h's contract: reads and writes, batches, opening. */
#include "base/clock.h"
#include "tests/unit/kv_store.h"
#include <lmdb.h>

/* Reads and writes */

/* The keys a scan gives, with commas. */
static const char *scan(struct kv_txn *t, const char *prefix, const char *from)
{
	static char out[4096];
	struct kv_slice k, v;
	struct kv_scan sc;
	size_t n = 0;
	int rc;

	out[0] = 0;
	ck_assert_int_eq(kv_scan_begin(t, S(prefix), S(from), &sc), 0);
	while ((rc = kv_scan_next(&sc, &k, &v)) == 1)
		n += (size_t)snprintf(out + n, sizeof(out) - n, "%.*s,", (int)k.s_len,
				      (const char *)k.s_data);
	ck_assert_int_eq(rc, 0);
	ck_assert_int_eq(kv_scan_next(&sc, &k, &v), 0);
	kv_scan_end(&sc);
	return out;
}

START_TEST(put_get_del)
{
	struct kv *kv = open_kv(&create);

	ck_assert_int_eq(script(kv, "+a=1 +b=2"), 0);
	ck_assert(has(kv, "a", "1") && has(kv, "b", "2") && !has(kv, "c", ""));
	ck_assert_int_eq(script(kv, "+a=3 -b"), 0);
	ck_assert(has(kv, "a", "3") && !has(kv, "b", "2"));
	ck_assert_int_eq(script(kv, "-b"), -ENOENT);
	kv_close(kv);
	kv = open_kv(&(struct kv_opts){0});
	ck_assert(has(kv, "a", "3"));
	kv_close(kv);
}
END_TEST

static int run_limits(void *arg, struct kv_txn *t)
{
	static char big[KV_VALUE_MAX + 1], key[KV_KEY_MAX + 1];
	struct kv_slice k = {key, KV_KEY_MAX}, v = {big, KV_VALUE_MAX};

	(void)arg;
	memset(key, 'k', sizeof(key));
	memset(big, 'v', sizeof(big));
	ck_assert_int_eq(kv_put(t, S(""), v), -EINVAL);
	ck_assert_int_eq(kv_put(t, (struct kv_slice){key, KV_KEY_MAX + 1}, v), -EINVAL);
	ck_assert_int_eq(kv_put(t, k, (struct kv_slice){big, KV_VALUE_MAX + 1}), -EINVAL);
	ck_assert_int_eq(kv_put(t, (struct kv_slice){"\0weft", 5}, v), -EINVAL);
	ck_assert_int_eq(kv_del(t, (struct kv_slice){"\0weft", 5}), -EINVAL);
	ck_assert_int_eq(kv_put(t, k, v), 0);
	ck_assert_int_eq(kv_put(t, (struct kv_slice){"\0weft!", 6}, S("")), 0);
	ck_assert_int_eq(kv_get(t, k, &v), 0);
	ck_assert(v.s_len == KV_VALUE_MAX && memcmp(v.s_data, big, v.s_len) == 0);
	ck_assert_int_eq(kv_get(t, (struct kv_slice){"\0weft!", 6}, &v), 0);
	ck_assert_uint_eq(v.s_len, 0);
	return 0;
}

START_TEST(limits_of_keys_and_values)
{
	struct kv *kv = open_kv(&create);
	struct kv_slice v;
	struct kv_txn *t;

	ck_assert_int_eq(kv_run_sync(kv, run_limits, NULL), 0);
	ck_assert_int_eq(kv_read_begin(kv, &t), 0);
	ck_assert_int_eq(kv_get(t, (struct kv_slice){"\0weft", 5}, &v), -EINVAL);
	ck_assert_int_eq(kv_put(t, S("a"), S("b")), -EROFS);
	ck_assert_int_eq(kv_del(t, S("a")), -EROFS);
	kv_read_end(t);
	kv_close(kv);
}
END_TEST

START_TEST(keys_are_ordered_by_bytes)
{
	struct kv *kv = open_kv(&create);
	struct kv_txn *t;

	ck_assert_int_eq(script(kv, "+b=1 +a\xff=2 +ab=3 +a=4 +\x80=5 +B=6 +aa=7"), 0);
	ck_assert_int_eq(kv_read_begin(kv, &t), 0);
	ck_assert_str_eq(scan(t, "", ""), "B,a,aa,ab,a\xff,b,\x80,");
	kv_read_end(t);
	kv_close(kv);
}
END_TEST

START_TEST(scan_keeps_to_prefix_and_from)
{
	struct kv *kv = open_kv(&create);
	struct kv_txn *t;

	ck_assert_int_eq(script(kv, "+a=1 +b=1 +b1=1 +b2=1 +b22=1 +b\xff=1 +b\xff\xff=1 +c=1"), 0);
	ck_assert_int_eq(kv_read_begin(kv, &t), 0);
	ck_assert_str_eq(scan(t, "b", ""), "b,b1,b2,b22,b\xff,b\xff\xff,");
	ck_assert_str_eq(scan(t, "b", "a"), "b,b1,b2,b22,b\xff,b\xff\xff,");
	ck_assert_str_eq(scan(t, "b", "b"), "b,b1,b2,b22,b\xff,b\xff\xff,");
	ck_assert_str_eq(scan(t, "b", "b2"), "b2,b22,b\xff,b\xff\xff,");
	ck_assert_str_eq(scan(t, "b", "b21"), "b22,b\xff,b\xff\xff,");
	ck_assert_str_eq(scan(t, "b\xff", ""), "b\xff,b\xff\xff,");
	ck_assert_str_eq(scan(t, "b", "c"), "");
	ck_assert_str_eq(scan(t, "b3", ""), "");
	ck_assert_str_eq(scan(t, "", "b\xff\xff"), "b\xff\xff,c,");
	ck_assert_str_eq(scan(t, "", "d"), "");
	ck_assert_str_eq(scan(t, "c", "c"), "c,");
	ck_assert_str_eq(scan(t, "d", ""), "");
	kv_read_end(t);
	kv_close(kv);
}
END_TEST

START_TEST(scan_of_an_empty_store_finds_nothing)
{
	struct kv *kv = open_kv(&create);
	struct kv_txn *t;

	ck_assert_int_eq(kv_read_begin(kv, &t), 0);
	ck_assert_str_eq(scan(t, "", ""), "");
	ck_assert_str_eq(scan(t, "x", ""), "");
	kv_read_end(t);
	kv_close(kv);
}
END_TEST

START_TEST(two_scans_of_one_handle_do_not_disturb_each_other)
{
	struct kv *kv = open_kv(&create);
	struct kv_scan one, two;
	struct kv_slice k, v;
	struct kv_txn *t;

	ck_assert_int_eq(script(kv, "+a=1 +b=1 +c=1"), 0);
	ck_assert_int_eq(kv_read_begin(kv, &t), 0);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(kv_scan_begin(t, S(""), S(""), &one), 0);
		ck_assert_int_eq(kv_scan_next(&one, &k, &v), 1);
		ck_assert_int_eq(kv_scan_begin(t, S(""), S("c"), &two), 0);
		ck_assert_int_eq(kv_scan_next(&two, &k, &v), 1);
		ck_assert_int_eq(kv_scan_next(&two, &k, &v), 0);
		ck_assert_int_eq(kv_scan_next(&one, &k, &v), 1);
		ck_assert(k.s_len == 1 && *(const char *)k.s_data == 'b');
		kv_scan_end(&two);
		kv_scan_end(&one);
		ck_assert_int_eq(kv_read_renew(t), 0);
	}
	kv_read_end(t);
	kv_close(kv);
}
END_TEST

START_TEST(snapshot_stays_and_renew_sees_the_commit)
{
	struct kv *kv = open_kv(&create);
	struct kv_slice v;
	struct kv_scan sc;
	struct kv_txn *t;

	ck_assert_int_eq(script(kv, "+a=1 +b=1"), 0);
	ck_assert_int_eq(kv_read_begin(kv, &t), 0);
	for (int i = 0; i < 50; i++) {
		ck_assert_int_eq(script(kv, "+a=2 -b +c=2"), 0);
		ck_assert_int_eq(script(kv, "+b=2 -c"), 0);
	}
	ck_assert(txn_has(t, "a", "1") && txn_has(t, "b", "1"));
	ck_assert_str_eq(scan(t, "", ""), "a,b,");
	ck_assert_int_eq(kv_read_renew(t), 0);
	ck_assert(txn_has(t, "a", "2") && txn_has(t, "b", "2"));
	kv_read_reset(t);
	kv_read_reset(t);
	ck_assert_int_eq(kv_get(t, S("a"), &v), -EINVAL);
	ck_assert_int_eq(kv_scan_begin(t, S(""), S(""), &sc), -EINVAL);
	ck_assert_int_eq(script(kv, "+d=1"), 0);
	ck_assert_int_eq(kv_read_renew(t), 0);
	ck_assert_str_eq(scan(t, "", ""), "a,b,d,");
	kv_read_end(t);
	kv_close(kv);
}
END_TEST

static int run_own_writes(void *arg, struct kv_txn *t)
{
	(void)arg;
	ck_assert_int_eq(kv_put(t, S("x"), S("new")), 0);
	ck_assert(txn_has(t, "x", "new"));
	ck_assert_str_eq(scan(t, "", ""), "w,x,");
	ck_assert_int_eq(kv_del(t, S("w")), 0);
	ck_assert(!txn_has(t, "w", "1"));
	ck_assert_str_eq(scan(t, "", ""), "x,");
	return 0;
}

START_TEST(mutation_sees_its_own_writes)
{
	struct kv *kv = open_kv(&create);

	ck_assert_int_eq(script(kv, "+w=1"), 0);
	ck_assert_int_eq(kv_run_sync(kv, run_own_writes, NULL), 0);
	kv_close(kv);
}
END_TEST

/* Batches */

struct flood {
	struct kv *f_kv;
	struct loop *f_loop;
	struct loop_msg f_msg;
	struct job *f_jobs[1000];
	sem_t f_sem;
};

static void flood_run(struct loop_msg *m)
{
	struct flood *f = caa_container_of(m, struct flood, f_msg);
	char text[64];

	for (int i = 0; i < 1000; i++) {
		snprintf(text, sizeof(text), "+%04d=%d", i, i);
		f->f_jobs[i] = submit(f->f_kv, f->f_loop, &f->f_sem, text);
	}
}

START_TEST(mutations_commit_in_groups_and_in_order)
{
	struct kv *kv = open_kv(&create);
	static struct flood f;
	struct kv_stats st;
	struct runner r;

	runner_start(&r);
	f = (struct flood){.f_kv = kv, .f_loop = r.r_loop, .f_msg.m_run = flood_run};
	sem_init(&f.f_sem, 0, 0);
	loop_post(r.r_loop, &f.f_msg);
	await(&f.f_sem, 1000);
	kv_stats(kv, &st);
	ck_assert_uint_eq(st.ks_ops, 1000);
	ck_assert_uint_ge(st.ks_commits, 1);
	ck_assert_uint_lt(st.ks_commits, 500);
	for (int i = 0; i < 1000; i++) {
		char key[16], val[16];

		snprintf(key, sizeof(key), "%04d", i);
		snprintf(val, sizeof(val), "%d", i);
		ck_assert(has(kv, key, val));
		ck_assert_int_eq(f.f_jobs[i]->j_result, 0);
		ck_assert_int_eq(f.f_jobs[i]->j_turn, i);
		ck_assert_ptr_eq(f.f_jobs[i]->j_on, r.r_loop);
		free(f.f_jobs[i]);
	}
	kv_close(kv); /* the committer may still be waking the loop */
	runner_stop(&r);
}
END_TEST

START_TEST(every_loop_gets_its_answers)
{
	enum { LOOPS = 70, JOBS = 5 }; /* more loops than the committer has places for */
	struct kv *kv = open_kv(&create);
	struct job *jobs[LOOPS][JOBS];
	struct runner r[LOOPS];
	struct gate gate;
	char text[64];
	sem_t sem;

	sem_init(&sem, 0, 0);
	for (int l = 0; l < LOOPS; l++)
		runner_start(&r[l]);
	gate_close(kv, &gate);
	for (int i = 0; i < JOBS; i++)
		for (int l = 0; l < LOOPS; l++) {
			snprintf(text, sizeof(text), "+%d-%d=x", l, i);
			jobs[l][i] = submit(kv, r[l].r_loop, &sem, text);
		}
	gate_open(&gate);
	await(&sem, LOOPS * JOBS);
	for (int l = 0; l < LOOPS; l++) {
		for (int i = 0; i < JOBS; i++) {
			ck_assert_int_eq(jobs[l][i]->j_result, 0);
			ck_assert_ptr_eq(jobs[l][i]->j_on, r[l].r_loop);
			free(jobs[l][i]);
		}
	}
	kv_close(kv); /* the committer may still be waking the loops */
	for (int l = 0; l < LOOPS; l++)
		runner_stop(&r[l]);
}
END_TEST

START_TEST(refused_mutation_harms_nobody)
{
	struct kv *kv = open_kv(&create);
	struct kv_stats st;
	struct job *j[3];
	struct gate gate;
	sem_t sem;

	sem_init(&sem, 0, 0);
	gate_close(kv, &gate);
	j[0] = submit(kv, NULL, &sem, "+a=1");
	j[1] = submit(kv, NULL, &sem, "! +b=1");
	j[2] = submit(kv, NULL, &sem, "+c=1");
	gate_open(&gate);
	await(&sem, 3);
	ck_assert_int_eq(j[0]->j_result, 0);
	ck_assert_int_eq(j[1]->j_result, -EPERM);
	ck_assert_int_eq(j[2]->j_result, 0);
	ck_assert(has(kv, "a", "1") && !has(kv, "b", "1") && has(kv, "c", "1"));
	kv_stats(kv, &st);
	ck_assert_uint_eq(st.ks_commits, 1);
	ck_assert_uint_eq(st.ks_refused, 1);
	for (int i = 0; i < 3; i++)
		free(j[i]);
	ck_assert_int_eq(script(kv, "!"), -EPERM);
	kv_stats(kv, &st);
	ck_assert_uint_eq(st.ks_commits, 1);
	kv_close(kv);
}
END_TEST

/* a: before the failing one, b: the failing one, c: after it, run in the next batch. */
static void batch_fails(const char *failing, int want)
{
	struct kv *kv = open_kv(&create);
	struct job *j[3];
	struct gate gate;
	sem_t sem;

	ck_assert_int_eq(script(kv, "+old=1"), 0);
	sem_init(&sem, 0, 0);
	gate_close(kv, &gate);
	j[0] = submit(kv, NULL, &sem, "+a=1 -old");
	j[1] = submit(kv, NULL, &sem, "!");
	j[2] = submit(kv, NULL, &sem, failing);
	gate_open(&gate);
	await(&sem, 3);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(j[i]->j_result, want);
		free(j[i]);
	}
	ck_assert(!has(kv, "a", "1") && !has(kv, "b", "1") && has(kv, "old", "1"));
	ck_assert_int_eq(script(kv, "+c=1"), 0);
	ck_assert(has(kv, "c", "1"));
	kv_close(kv);
}

START_TEST(error_after_a_write_fails_the_whole_batch)
{
	batch_fails("+b=1 !", -EPERM);
}
END_TEST

START_TEST(absent_key_after_a_write_fails_the_whole_batch_when_returned)
{
	batch_fails("+b=1 -nothing", -ENOENT);
}
END_TEST

static int run_swallow(void *arg, struct kv_txn *t)
{
	(void)arg;
	ck_assert_int_eq(kv_put(t, S("b"), S("1")), 0);
	ck_assert_int_eq(kv_put(t, S(""), S("1")), -EINVAL);
	return 0;
}

static int run_swallow_first(void *arg, struct kv_txn *t)
{
	(void)arg;
	ck_assert_int_eq(kv_put(t, S(""), S("1")), -EINVAL);
	ck_assert_int_eq(kv_del(t, S("nothing")), -ENOENT);
	ck_assert_int_eq(kv_put(t, S("b"), S("1")), 0);
	ck_assert_int_eq(kv_del(t, S("nothing")), -ENOENT);
	return 0;
}

START_TEST(swallowed_error_after_a_write_fails_the_batch)
{
	struct kv *kv = open_kv(&create);

	ck_assert_int_eq(kv_run_sync(kv, run_swallow, NULL), -EINVAL);
	ck_assert(!has(kv, "b", "1"));
	ck_assert_int_eq(kv_run_sync(kv, run_swallow_first, NULL), 0);
	ck_assert(has(kv, "b", "1"));
	kv_close(kv);
}
END_TEST

struct seen {
	char s_text[256];
	uint64_t s_batch;
	int s_calls, s_answer;
};

static int hook(void *arg, const struct kv_writeset *ws)
{
	struct seen *s = arg;
	size_t n = 0;

	s->s_text[0] = 0;
	for (size_t i = 0; i < ws->ws_n; i++) {
		const struct kv_write *w = &ws->ws_v[i];

		n += (size_t)snprintf(s->s_text + n, sizeof(s->s_text) - n, "%c%.*s=%.*s ",
				      w->w_del ? '-' : '+', (int)w->w_key.s_len,
				      (const char *)w->w_key.s_data, (int)w->w_val.s_len,
				      (const char *)w->w_val.s_data);
	}
	s->s_batch = ws->ws_batch;
	s->s_calls++;
	return s->s_answer;
}

START_TEST(hook_sees_the_write_set_and_may_refuse)
{
	struct kv *kv = open_kv(&create);
	struct seen s = {0};
	struct gate gate;
	struct job *j[3];
	uint64_t first;
	sem_t sem;

	sem_init(&sem, 0, 0);
	kv_set_batch_hook(kv, hook, &s);
	ck_assert_int_eq(script(kv, "+a=1 +b=2"), 0);
	ck_assert_str_eq(s.s_text, "+a=1 +b=2 ");
	first = s.s_batch;
	gate_close(kv, &gate);
	j[0] = submit(kv, NULL, &sem, "-a +c=3");
	j[1] = submit(kv, NULL, &sem, "-a");
	j[2] = submit(kv, NULL, &sem, "+c=4");
	gate_open(&gate);
	await(&sem, 3);
	ck_assert_str_eq(s.s_text, "-a= +c=3 +c=4 ");
	ck_assert_uint_eq(s.s_batch, first + 1);
	ck_assert_int_eq(j[1]->j_result, -ENOENT);
	for (int i = 0; i < 3; i++)
		free(j[i]);
	ck_assert_int_eq(script(kv, "!"), -EPERM);
	ck_assert_int_eq(s.s_calls, 2);

	s.s_answer = -ESTALE;
	ck_assert_int_eq(script(kv, "+d=1"), -ESTALE);
	ck_assert(!has(kv, "d", "1"));
	s.s_answer = 0;
	ck_assert_int_eq(script(kv, "+e=1"), 0);
	ck_assert_str_eq(s.s_text, "+e=1 ");
	ck_assert_uint_eq(s.s_batch, first + 2);
	kv_close(kv);
	kv = open_kv(&create);
	kv_set_batch_hook(kv, hook, &s);
	ck_assert_int_eq(script(kv, "+f=1"), 0);
	ck_assert_uint_eq(s.s_batch, first + 3);
	kv_close(kv);
}
END_TEST

static int run_big_values(void *arg, struct kv_txn *t)
{
	static char val[100000];
	char key[16];

	(void)arg;
	for (int i = 0; i < 40; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		memset(val, 'a' + i % 26, sizeof(val));
		ck_assert_int_eq(kv_put(t, S(key), (struct kv_slice){val, sizeof(val) - (size_t)i}),
				 0);
	}
	return 0;
}

static int big_hook(void *arg, const struct kv_writeset *ws)
{
	(void)arg;
	ck_assert_uint_eq(ws->ws_n, 40);
	for (int i = 0; i < 40; i++) {
		const char *v = ws->ws_v[i].w_val.s_data;

		ck_assert_uint_eq(ws->ws_v[i].w_val.s_len, 100000 - (size_t)i);
		ck_assert(v[0] == 'a' + i % 26 && v[90000] == 'a' + i % 26);
	}
	return 0;
}

START_TEST(hook_sees_large_values)
{
	struct kv *kv = open_kv(&create);

	kv_set_batch_hook(kv, big_hook, NULL);
	ck_assert_int_eq(kv_run_sync(kv, run_big_values, NULL), 0);
	ck_assert_int_eq(kv_run_sync(kv, run_big_values, NULL), 0);
	kv_close(kv);
}
END_TEST

START_TEST(close_answers_what_was_submitted)
{
	struct kv *kv = open_kv(&create);
	struct job *j[500];
	char text[64];
	sem_t sem;
	int n;

	sem_init(&sem, 0, 0);
	for (int i = 0; i < 500; i++) {
		snprintf(text, sizeof(text), "+%d=x", i);
		j[i] = submit(kv, NULL, &sem, text);
	}
	kv_close(kv);
	sem_getvalue(&sem, &n);
	ck_assert_int_eq(n, 500);
	kv = open_kv(&create);
	for (int i = 0; i < 500; i++) {
		snprintf(text, sizeof(text), "%d", i);
		ck_assert(has(kv, text, "x"));
		free(j[i]);
	}
	kv_close(kv);
}
END_TEST

struct pusher {
	struct kv *p_kv;
	int p_id;
};

static void *push(void *arg)
{
	struct pusher *p = arg;
	char text[64];

	for (int i = 0; i < 50; i++) {
		snprintf(text, sizeof(text), "+%d-%d=x", p->p_id, i);
		ck_assert_int_eq(script(p->p_kv, text), 0);
		snprintf(text, sizeof(text), "%d-%d", p->p_id, i);
		ck_assert(has(p->p_kv, text, "x")); /* a snapshot begun after the answer sees it */
	}
	return NULL;
}

START_TEST(many_threads_submit)
{
	struct kv *kv = open_kv(&create);
	struct pusher p[16];
	pthread_t t[16];
	struct kv_stats st;

	for (int i = 0; i < 16; i++) {
		p[i] = (struct pusher){kv, i};
		pthread_create(&t[i], NULL, push, &p[i]);
	}
	for (int i = 0; i < 16; i++)
		pthread_join(t[i], NULL);
	kv_stats(kv, &st);
	ck_assert_uint_eq(st.ks_ops, 800);
	ck_assert_uint_lt(st.ks_commits, 800);
	ck_assert_uint_gt(st.ks_sync_ns, 0);
	ck_assert_uint_gt(st.ks_bytes_used, 0);
	kv_close(kv);
}
END_TEST

/* Opening */

static int open_fails(const struct kv_opts *o)
{
	struct kv *kv = NULL;
	int rc = kv_open(&kv, dir, o, err, sizeof(err));

	ck_assert_int_lt(rc, 0);
	ck_assert_ptr_null(kv);
	ck_assert_ptr_nonnull(strstr(err, dir));
	return rc;
}

START_TEST(no_store_is_not_made_unasked)
{
	char file[300];

	ck_assert_int_eq(open_fails(&(struct kv_opts){0}), -ENOENT);
	ck_assert_int_eq(open_fails(&(struct kv_opts){.ko_readonly = true}), -ENOENT);
	snprintf(file, sizeof(file), "%s/data.mdb", dir);
	ck_assert_int_eq(access(file, F_OK), -1);
	ck_assert_int_eq(rmdir(dir), 0); /* nothing was left in it */
	kv_close(open_kv(&create));
	ck_assert_int_eq(access(file, F_OK), 0);
}
END_TEST

static void raw_put(const void *key, size_t keylen, const void *val, size_t vallen)
{
	MDB_val k = {keylen, (void *)key}, v = {vallen, (void *)val};
	MDB_env *env;
	MDB_txn *txn;
	MDB_dbi dbi;

	ck_assert_int_eq(mdb_env_create(&env), 0);
	ck_assert_int_eq(mdb_env_open(env, dir, 0, 0600), 0);
	ck_assert_int_eq(mdb_txn_begin(env, NULL, 0, &txn), 0);
	ck_assert_int_eq(mdb_dbi_open(txn, NULL, 0, &dbi), 0);
	ck_assert_int_eq(mdb_put(txn, dbi, &k, &v, 0), 0);
	ck_assert_int_eq(mdb_txn_commit(txn), 0);
	mdb_env_close(env);
}

START_TEST(other_version_is_refused)
{
	kv_close(open_kv(&create));
	raw_put("\0weft", 5, "WEFT-KV\0\3\0\0\0\0\0\0\0", 16);
	ck_assert_int_eq(open_fails(&create), -EPROTO);
	ck_assert_ptr_nonnull(strstr(err, "version 3"));
	ck_assert_int_eq(open_fails(&(struct kv_opts){.ko_readonly = true}), -EPROTO);
	raw_put("\0weft", 5, "something else", 14);
	ck_assert_int_eq(open_fails(&create), -EPROTO);
}
END_TEST

START_TEST(foreign_files_are_refused)
{
	char file[300];
	FILE *f;

	raw_put("key", 3, "val", 3);
	ck_assert_int_eq(open_fails(&create), -EPROTO);
	snprintf(file, sizeof(file), "%s/data.mdb", dir);
	f = fopen(file, "w");
	for (int i = 0; i < 5000; i++)
		fputs("no store", f);
	fclose(f);
	ck_assert_int_eq(open_fails(&create), -EPROTO);
}
END_TEST

START_TEST(second_writer_is_told_who_has_it)
{
	struct kv *kv = open_kv(&create);
	char pid[32];

	ck_assert_int_eq(open_fails(&create), -EBUSY);
	snprintf(pid, sizeof(pid), "process %d", (int)getpid());
	ck_assert_ptr_nonnull(strstr(err, pid));
	ck_assert_int_eq(script(kv, "+a=1"), 0);
	kv_close(kv);
	kv_close(open_kv(&create));
}
END_TEST

static bool read_beside(void)
{
	struct kv *kv;
	bool ok;

	if (kv_open(&kv, dir, &(struct kv_opts){.ko_readonly = true}, err, sizeof(err)))
		return false;
	ok = has(kv, "a", "1") && script(kv, "+b=1") == -EROFS;
	kv_close(kv);
	return ok;
}

START_TEST(read_only_open_beside_a_writer)
{
	uint64_t start = clock_mono_ns();
	struct kv *kv = open_kv(&create);

	ck_assert_int_eq(script(kv, "+a=1"), 0);
	ck_assert(in_child(read_beside));
	/* nor does it wait for the writer */
	ck_assert_uint_lt(clock_mono_ns() - start, 3000000000ull);
	ck_assert_int_eq(script(kv, "+b=2"), 0);
	kv_close(kv);
	kv = open_kv(&(struct kv_opts){.ko_readonly = true});
	ck_assert(has(kv, "b", "2"));
	ck_assert_int_eq(script(kv, "+c=1"), -EROFS);
	kv_close(kv);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("kv");
	TCase *rw = tcase_create("reads and writes"), *b = tcase_create("batches");
	TCase *o = tcase_create("opening");

	tcase_add_checked_fixture(rw, setup, teardown);
	tcase_add_test(rw, put_get_del);
	tcase_add_test(rw, limits_of_keys_and_values);
	tcase_add_test(rw, keys_are_ordered_by_bytes);
	tcase_add_test(rw, scan_keeps_to_prefix_and_from);
	tcase_add_test(rw, scan_of_an_empty_store_finds_nothing);
	tcase_add_test(rw, two_scans_of_one_handle_do_not_disturb_each_other);
	tcase_add_test(rw, snapshot_stays_and_renew_sees_the_commit);
	tcase_add_test(rw, mutation_sees_its_own_writes);
	suite_add_tcase(s, rw);

	tcase_add_checked_fixture(b, setup, teardown);
	tcase_set_timeout(b, 60);
	tcase_add_test(b, mutations_commit_in_groups_and_in_order);
	tcase_add_test(b, every_loop_gets_its_answers);
	tcase_add_test(b, refused_mutation_harms_nobody);
	tcase_add_test(b, error_after_a_write_fails_the_whole_batch);
	tcase_add_test(b, absent_key_after_a_write_fails_the_whole_batch_when_returned);
	tcase_add_test(b, swallowed_error_after_a_write_fails_the_batch);
	tcase_add_test(b, hook_sees_the_write_set_and_may_refuse);
	tcase_add_test(b, hook_sees_large_values);
	tcase_add_test(b, close_answers_what_was_submitted);
	tcase_add_test(b, many_threads_submit);
	suite_add_tcase(s, b);

	tcase_add_checked_fixture(o, setup, teardown);
	tcase_set_timeout(o, 30);
	tcase_add_test(o, no_store_is_not_made_unasked);
	tcase_add_test(o, other_version_is_refused);
	tcase_add_test(o, foreign_files_are_refused);
	tcase_add_test(o, second_writer_is_told_who_has_it);
	tcase_add_test(o, read_only_open_beside_a_writer);
	suite_add_tcase(s, o);

	return s;
}

int main(void)
{
	return unit_run(suite());
}
