/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pg_fold.c - the table of keys and values follows the log: some batches at a time become one
 * statement, in which each key occurs once.
 *
 * Only batches that are acknowledged are folded. What they say is fixed, so that two processes that
 * fold at a time do the same; the one that comes second changes nothing. Only the process that
 * holds the instance folds: the statement looks at the epoch, without a lock. It does not touch the
 * row that an append moves. It need not wait for a standby: a part of the log is truncated after
 * it, in the order of PostgreSQL's own log.
 */
#include "pg/pg_int.h"
#include <endian.h>
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FOLD_MS = 30000, BYTEA = 17 };

/* The writes of some batches, each key once, in the order of the keys. */
struct write {
	uint8_t *w_k, *w_v; /* one allocation; w_v NULL: deleted */
	size_t w_klen, w_vlen, w_seq;
};
struct writes {
	struct write *ws_w;
	size_t ws_n, ws_room;
};

struct pg_fold {
	struct pg_target f_target;
	struct pg_conn f_conn;
	uint32_t f_inst;
	pg_decode_fn *f_decode;
	char f_why[PG_WHY];
};

/* ---- the writes of several batches ---- */

static int add_write(void *arg, struct iovec k, struct iovec v)
{
	struct writes *ws = arg;
	struct write *w;

	if (ws->ws_n == ws->ws_room) {
		size_t room = ws->ws_room ? 2 * ws->ws_room : 256;

		w = reallocarray(ws->ws_w, room, sizeof(*w));
		if (!w)
			return -ENOMEM;
		ws->ws_w = w;
		ws->ws_room = room;
	}
	w = &ws->ws_w[ws->ws_n];
	w->w_k = malloc(k.iov_len + v.iov_len + 1);
	if (!w->w_k)
		return -ENOMEM;
	memcpy(w->w_k, k.iov_base, k.iov_len);
	w->w_klen = k.iov_len;
	w->w_v = v.iov_base ? w->w_k + k.iov_len : NULL;
	w->w_vlen = v.iov_base ? v.iov_len : 0;
	if (w->w_vlen)
		memcpy(w->w_v, v.iov_base, v.iov_len);
	w->w_seq = ws->ws_n++;
	return 0;
}

static int key_order(const void *k1, size_t n1, const void *k2, size_t n2)
{
	int d = memcmp(k1, k2, n1 < n2 ? n1 : n2);

	return d ? d : n1 < n2 ? -1 : n1 > n2;
}

static int write_order(const void *a, const void *b)
{
	const struct write *x = a, *y = b;
	int d = key_order(x->w_k, x->w_klen, y->w_k, y->w_klen);

	return d ? d : x->w_seq < y->w_seq ? -1 : 1;
}

/* Sorts, and keeps the last write of each key. */
static void merge_writes(struct writes *ws)
{
	size_t n = 0;

	if (ws->ws_n)
		qsort(ws->ws_w, ws->ws_n, sizeof(*ws->ws_w), write_order);
	for (size_t i = 0; i < ws->ws_n; i++) {
		struct write *w = &ws->ws_w[i], *next = i + 1 < ws->ws_n ? w + 1 : NULL;

		if (next && !key_order(w->w_k, w->w_klen, next->w_k, next->w_klen))
			free(w->w_k);
		else
			ws->ws_w[n++] = *w;
	}
	ws->ws_n = n;
}

static void free_writes(struct writes *ws)
{
	for (size_t i = 0; i < ws->ws_n; i++)
		free(ws->ws_w[i].w_k);
	free(ws->ws_w);
}

/* ---- bytea[] in binary ---- */

struct array {
	uint8_t *a_p;
	size_t a_len;
};

static void put32(uint8_t *p, uint32_t v)
{
	v = htobe32(v);
	memcpy(p, &v, sizeof(v));
}

/* The keys of all writes, or the values, of those that delete or those that do not. */
static int make_array(const struct writes *ws, bool del, bool values, struct array *out)
{
	uint32_t n = 0;
	size_t len = 20;
	uint8_t *p;

	for (size_t i = 0; i < ws->ws_n; i++)
		if (!ws->ws_w[i].w_v == del) {
			len += 4 + (values ? ws->ws_w[i].w_vlen : ws->ws_w[i].w_klen);
			n++;
		}
	out->a_p = p = malloc(len);
	out->a_len = n ? len : 12;
	if (!p)
		return -ENOMEM;
	put32(p, n ? 1 : 0);
	put32(p + 4, 0);
	put32(p + 8, BYTEA);
	put32(p + 12, n);
	put32(p + 16, 1);
	p += 20;
	for (size_t i = 0; i < ws->ws_n; i++) {
		const struct write *w = &ws->ws_w[i];
		size_t one = values ? w->w_vlen : w->w_klen;

		if (!w->w_v != del)
			continue;
		put32(p, (uint32_t)one);
		if (one)
			memcpy(p + 4, values ? w->w_v : w->w_k, one);
		p += 4 + one;
	}
	return 0;
}

/* ---- fold ---- */

int pg_fold_open(struct pg_fold **out, const struct pg_options *o, pg_decode_fn *decode)
{
	struct pg_fold *f = calloc(1, sizeof(*f));
	char why[PG_WHY];
	int err;

	*out = NULL;
	if (!f)
		return -ENOMEM;
	err = pg_target_set(&f->f_target, o->o_conninfo, why);
	if (err) {
		free(f);
		return err;
	}
	f->f_target.t_wake = pg_wake(o);
	f->f_inst = o->o_inst;
	f->f_decode = decode;
	*out = f;
	return 0;
}

void pg_fold_close(struct pg_fold *f)
{
	pg_conn_close(&f->f_conn);
	pg_target_free(&f->f_target);
	free(f);
}

const char *pg_fold_why(const struct pg_fold *f)
{
	return f->f_why;
}

static int fold_lost(struct pg_fold *f)
{
	snprintf(f->f_why, PG_WHY, "%s", f->f_conn.c_why);
	pg_conn_close(&f->f_conn);
	return f->f_conn.c_woken ? -ECANCELED : -EAGAIN;
}

static int fold_connect(struct pg_fold *f, uint64_t deadline)
{
	char name[64];

	if (f->f_conn.c_pg)
		return 0;
	snprintf(name, sizeof(name), "weft-fold %u", f->f_inst);
	if (pg_conn_open(&f->f_conn, &f->f_target, name, "-c synchronous_commit=off", deadline) ||
	    pg_conn_version(&f->f_conn, deadline))
		return fold_lost(f);
	return 0;
}

static int fold_deposed(struct pg_fold *f)
{
	snprintf(f->f_why, PG_WHY, "another process has claimed the instance, or its row is gone");
	return -ESTALE;
}

static int fold_quicker(struct pg_fold *f)
{
	snprintf(f->f_why, PG_WHY, "another process was quicker");
	return -EAGAIN;
}

static int fold_writes(struct pg_fold *f, uint64_t epoch, uint64_t from, uint64_t to,
		       struct iovec head, const struct writes *ws, uint64_t deadline)
{
	struct array dels = {0}, keys = {0}, vals = {0};
	struct pg_args a = {0};
	PGresult *res = NULL;
	enum pg_end end = PG_UNKNOWN;
	int err = make_array(ws, true, false, &dels);

	err = err ? err : make_array(ws, false, false, &keys);
	err = err ? err : make_array(ws, false, true, &vals);
	if (!err) {
		pg_arg_int(&a, f->f_inst);
		pg_arg_int(&a, from);
		pg_arg_int(&a, to);
		pg_arg_of(&a, PG_BYTEA_ARRAY, dels.a_p, dels.a_len);
		pg_arg_of(&a, PG_BYTEA_ARRAY, keys.a_p, keys.a_len);
		pg_arg_of(&a, PG_BYTEA_ARRAY, vals.a_p, vals.a_len);
		pg_arg_bytes(&a, head.iov_base, head.iov_len);
		pg_arg_int(&a, epoch);
		end = pg_conn_run(
			&f->f_conn,
			"with f as (update fold set folded = $3, head = $7 where inst = $1 and "
			"folded = $2"
			" and exists (select 1 from instance where id = $1 and epoch = $8)"
			" returning inst), d as (delete from kv using f, unnest($4) as u(k)"
			" where kv.inst = f.inst and kv.k = u.k), p as (insert into kv (inst, k, v)"
			" select f.inst, u.k, u.v from f, unnest($5, $6) as u(k, v)"
			" on conflict (inst, k) do update set v = excluded.v)"
			" select count(*) from f",
			&a, deadline, &res);
	}
	if (!err && end != PG_DONE)
		err = fold_lost(f);
	else if (!err && pg_num(res, 0, 0) != 1)
		err = fold_quicker(f); /* or it is deposed: the next step says so */
	PQclear(res);
	free(dels.a_p);
	free(keys.a_p);
	free(vals.a_p);
	return err;
}

int64_t pg_fold_step(struct pg_fold *f, uint64_t epoch, size_t max)
{
	uint64_t deadline = pg_in_ms(FOLD_MS), from, acked, to;
	struct writes ws = {0};
	struct pg_args a = {0};
	struct iovec head = {0};
	PGresult *res = NULL;
	int64_t err = fold_connect(f, deadline);

	if (err)
		return err;
	pg_arg_int(&a, f->f_inst);
	if (pg_conn_run(&f->f_conn,
			"select folded, acked, epoch from instance join fold on inst = id"
			" where id = $1",
			&a, deadline, &res) != PG_DONE) {
		PQclear(res);
		return fold_lost(f);
	}
	if (PQntuples(res) != 1 || pg_num(res, 0, 2) != epoch) {
		PQclear(res);
		return fold_deposed(f);
	}
	to = from = pg_num(res, 0, 0);
	acked = pg_num(res, 0, 1);
	PQclear(res);
	if (from >= acked)
		return 0;
	if (pg_batches(&f->f_conn, f->f_inst, PG_ANY_EPOCH, from, acked, max, deadline, &res)) {
		PQclear(res);
		return fold_lost(f);
	}
	for (int i = 0; i < PQntuples(res) && !err; i++) {
		err = pg_num(res, i, 0) == to + 1
			      ? f->f_decode(PQgetvalue(res, i, 1), (size_t)PQgetlength(res, i, 1),
					    add_write, &ws)
			      : fold_quicker(f); /* and it is truncated */
		to += !err;
		head.iov_base = PQgetvalue(res, i, 1);
		head.iov_len = (size_t)PQgetlength(res, i, 1);
	}
	head.iov_len = head.iov_len < PG_HEAD ? head.iov_len : PG_HEAD;
	if (!err && to == from)
		err = fold_quicker(f);
	merge_writes(&ws);
	if (!err)
		err = fold_writes(f, epoch, from, to, head, &ws, deadline);
	PQclear(res);
	free_writes(&ws);
	return err ? err : (int64_t)(to - from);
}

/* The part is in use: next time. */
static bool locked(const PGresult *res)
{
	const char *state = PQresultErrorField(res, PG_DIAG_SQLSTATE);

	return state && !strcmp(state, "55P03"); /* lock_not_available */
}

/* 0: the instance has this epoch. */
static int fold_holds(struct pg_fold *f, uint64_t epoch, uint64_t deadline)
{
	struct pg_args a = {0};
	PGresult *res = NULL;
	int err = 0;

	pg_arg_int(&a, f->f_inst);
	if (pg_conn_run(&f->f_conn, "select epoch from instance where id = $1", &a, deadline,
			&res) != PG_DONE)
		err = fold_lost(f);
	else if (PQntuples(res) != 1 || pg_num(res, 0, 0) != epoch)
		err = fold_deposed(f);
	PQclear(res);
	return err;
}

int pg_fold_trim(struct pg_fold *f, uint64_t epoch, uint32_t idle_s)
{
	uint64_t deadline = pg_in_ms(FOLD_MS);
	struct pg_args a = {0};
	PGresult *res = NULL;
	enum pg_end end;
	int freed = 0, err;

	if (fold_connect(f, deadline))
		return -EAGAIN;
	err = fold_holds(f, epoch, deadline);
	if (err)
		return err;
	pg_arg_int(&a, f->f_inst);
	pg_arg_int(&a, idle_s);
	end = pg_conn_run(&f->f_conn,
			  "delete from reader where inst = $1"
			  " and seen < now() - $2 * interval '1 second'",
			  &a, deadline, &res);
	PQclear(res);
	for (uint32_t i = 0; i < PG_TURNS && end == PG_DONE; i++) {
		a = (struct pg_args){0};
		pg_arg_int(&a, f->f_inst * PG_TURNS + i);
		end = pg_conn_run(&f->f_conn, "select free_part($1::int8::int)", &a, deadline,
				  &res);
		if (end == PG_DONE)
			freed += (int)pg_num(res, 0, 0);
		else if (end == PG_FAILED)
			end = locked(res) ? PG_DONE : PG_UNKNOWN;
		PQclear(res);
	}
	return end == PG_DONE ? freed : fold_lost(f);
}

/* ---- verify ---- */

void pg_digest_add(struct pg_digest *d, struct iovec k, struct iovec v)
{
	crypto_generichash_state st;
	uint64_t h[4], klen = htole64(k.iov_len);

	crypto_generichash_init(&st, NULL, 0, sizeof(h));
	crypto_generichash_update(&st, (const uint8_t *)&klen, sizeof(klen));
	crypto_generichash_update(&st, k.iov_base, k.iov_len);
	crypto_generichash_update(&st, v.iov_base, v.iov_len);
	crypto_generichash_final(&st, (uint8_t *)h, sizeof(h));
	for (int i = 0; i < 4; i++)
		d->d_sum[i] += le64toh(h[i]);
	d->d_rows++;
}

/* The log is read first: it says which rows of the table it replaces. Both are in key order. */
struct verify {
	struct pg_digest *v_digest;
	pg_decode_fn *v_decode;
	struct writes v_ws;
	size_t v_at; /* the next of v_ws */
	bool v_merged;
};

static int verify_batch(void *arg, uint64_t batch, const void *data, size_t len)
{
	struct verify *v = arg;

	(void)batch;
	return v->v_decode(data, len, add_write, &v->v_ws);
}

/* Adds the writes whose keys are before k; all: k.iov_base is NULL. True: k is among the writes. */
static bool verify_until(struct verify *v, struct iovec k)
{
	if (!v->v_merged)
		merge_writes(&v->v_ws);
	v->v_merged = true;
	for (; v->v_at < v->v_ws.ws_n; v->v_at++) {
		const struct write *w = &v->v_ws.ws_w[v->v_at];
		int d = k.iov_base ? key_order(w->w_k, w->w_klen, k.iov_base, k.iov_len) : -1;

		if (d >= 0)
			return !d;
		if (w->w_v)
			pg_digest_add(v->v_digest, (struct iovec){w->w_k, w->w_klen},
				      (struct iovec){w->w_v, w->w_vlen});
	}
	return false;
}

static int verify_row(void *arg, struct iovec k, struct iovec v)
{
	struct verify *ve = arg;

	/* A write of the same key is added with the next row, or at the end. */
	if (!verify_until(ve, k))
		pg_digest_add(ve->v_digest, k, v);
	return 0;
}

int pg_verify(const struct pg_options *o, pg_decode_fn *decode, struct pg_verified *out,
	      char why[PG_WHY])
{
	struct verify v = {.v_digest = &out->v_digest, .v_decode = decode};
	struct pg_snapshot s = {.s_row = verify_row,
				.s_batch = verify_batch,
				.s_arg = &v,
				.s_log_first = true,
				.s_upto = out->v_upto};
	int err;

	*out = (struct pg_verified){.v_upto = out->v_upto};
	err = pg_snapshot(o, &s, why);
	if (!err)
		verify_until(&v, (struct iovec){NULL, 0});
	out->v_last = s.s_last;
	out->v_folded = s.s_folded;
	out->v_batch = s.s_batch_now;
	out->v_acked = s.s_acked;
	out->v_n = s.s_n;
	out->v_first = s.s_first;
	out->v_max = s.s_max;
	memcpy(out->v_head, s.s_head, sizeof(out->v_head));
	out->v_headlen = s.s_headlen;
	free_writes(&v.v_ws);
	return err;
}
