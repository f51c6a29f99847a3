/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nfs3ds_forget.c - forgets an NFSv3 data server. It removes weft's files there, when no weft file
 * has an object there and the server answers. Then it deletes the server's rows and its record.
 * Runs on the first loop.
 *
 * The server is killed, so that no file gets an object there meanwhile, and from here on it does
 * not join. The rows of a batch are deleted when its files are gone. So after a crash at any point
 * the administrator repeats the command, and it continues.
 */
#include "mds/dataserver/nfs3ds.h"
#include "base/log.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <urcu/compiler.h>

#define BATCH	64
#define WAIT_MS 50

struct forgetting;
struct one {
	struct nfs3ds_rpc on_rpc;
	struct forgetting *on_all;
	struct nfs3ds_fh on_sub;
	char on_dir[NFS3DS_NAME], on_name[NFS3DS_NAME];
};
struct forgetting {
	struct gen *fg_gen;
	struct ds_reg_command *fg_word;
	struct loop_timer fg_timer;
	struct loop_msg fg_msg;
	struct kv_op fg_op;
	bool fg_removes; /* files are being removed: the server has answered so far */
	uint64_t fg_sub, fg_subs;
	struct nfs3ds_row fg_row[BATCH];
	unsigned fg_n, fg_left;
	struct one fg_one[BATCH];
	struct nfs3ds_rpc fg_rpc;
};

static void nfs3ds_forget_batch(struct loop_msg *m);

static void forget_end(struct forgetting *fg, int err)
{
	struct gen *g = fg->fg_gen;
	struct ds_reg_command *w = fg->fg_word;

	free(fg);
	if (err) {
		if (!g->gn_client)
			nfs3ds_start(g);
		atomic_store(&g->gn_forgetting, false);
	}
	w->dw_done(w, err);
}

/* Notes that some or all of weft's files stay there. The first reason is reported. */
static void stays(struct forgetting *fg, const char *what, const char *why)
{
	struct ds_reg_command *w = fg->fg_word;

	if (*w->dw_left)
		return;
	snprintf(w->dw_left, sizeof(w->dw_left), "%s%s", what, why);
	log_warn("data server %u (%s) is forgotten; not all of weft's objects could be removed "
		 "from it: %s",
		 fg->fg_gen->gn_id, fg->fg_gen->gn_path, w->dw_left);
}

/* The server does not answer, or answers with an error. */
static void nfs3ds_forget_failed(struct forgetting *fg, const struct nfs3ds_rpc *r,
				 const char *what)
{
	if (r->gr_err)
		fg->fg_removes = false;
	stays(fg, what, nfs3ds_why(r));
}

/* ---- the server's record ---- */

static void recorded(struct kv_op *op, int err)
{
	struct forgetting *fg = caa_container_of(op, struct forgetting, fg_op);
	struct gen *g = fg->fg_gen;

	if (!err)
		ds_reg_nfs3_drop(g->gn_dsc, g);
	forget_end(fg, err);
}

static int nfs3ds_forget_record_run(struct kv_op *op, struct kv_txn *t)
{
	struct forgetting *fg = caa_container_of(op, struct forgetting, fg_op);
	int err = ds_reg_forget_run(&fg->fg_word->dw_op, t);

	return err ? err : nfs3ds_server_del(t, fg->fg_gen);
}

static void nfs3ds_forget_record(struct forgetting *fg)
{
	nfs3ds_stop(fg->fg_gen);
	fg->fg_op = (struct kv_op){
		.o_run = nfs3ds_forget_record_run, .o_done = recorded, .o_loop = loop_self()};
	kv_submit(ns_kv(fg->fg_gen->gn_dsc->d_ns), &fg->fg_op);
}

/* Posts a message, because an RPC client must not end inside its own call. */
static void record_msg(struct loop_msg *m)
{
	nfs3ds_forget_record(caa_container_of(m, struct forgetting, fg_msg));
}

static void dirs_over(struct forgetting *fg)
{
	fg->fg_msg.m_run = record_msg;
	loop_post(loop_self(), &fg->fg_msg);
}

/* ---- directories ---- */

static void top_gone(struct nfs3ds_rpc *r)
{
	struct forgetting *fg = caa_container_of(r, struct forgetting, fg_rpc);

	if (nfs3ds_errno(r) && nfs3ds_errno(r) != -ENOENT)
		nfs3ds_forget_failed(fg, r, "RMDIR: ");
	dirs_over(fg);
}

static void parent_found(struct nfs3ds_rpc *r)
{
	struct forgetting *fg = caa_container_of(r, struct forgetting, fg_rpc);
	char name[NFS3DS_PATH] = "weft-";
	struct nfs3ds_fh parent = r->gr_fh;

	if (nfs3ds_errno(r) || !parent.f_len) {
		nfs3ds_forget_failed(fg, r, "LOOKUP of ..: ");
		dirs_over(fg);
		return;
	}
	for (unsigned i = 0; i < 16; i++)
		sprintf(name + strlen(name), "%02x", fg->fg_gen->gn_uuid[i]);
	r->gr_done = top_gone;
	nfs3ds_rmdir(fg->fg_gen->gn_client, r, &parent, name);
}

static void dir_next(struct forgetting *fg);

static void dir_gone(struct nfs3ds_rpc *r)
{
	struct forgetting *fg = caa_container_of(r, struct forgetting, fg_rpc);

	if (nfs3ds_errno(r) && nfs3ds_errno(r) != -ENOENT)
		nfs3ds_forget_failed(fg, r, "RMDIR: ");
	dir_next(fg);
}

static void dir_next(struct forgetting *fg)
{
	struct gen *g = fg->fg_gen;
	char dir[NFS3DS_NAME], name[NFS3DS_NAME];

	if (!fg->fg_removes) {
		dirs_over(fg);
		return;
	}
	if (fg->fg_sub > fg->fg_subs) {
		fg->fg_rpc.gr_done = parent_found;
		nfs3ds_lookup(g->gn_client, &fg->fg_rpc, &g->gn_dir, "..");
		return;
	}
	nfs3ds_name(fg->fg_sub++ << NFS3DS_DIR_BITS, dir, name);
	fg->fg_rpc.gr_done = dir_gone;
	nfs3ds_rmdir(g->gn_client, &fg->fg_rpc, &g->gn_dir, dir);
}

/* ---- files, and their rows ---- */

static void nfs3ds_forget_batch_done(struct kv_op *op, int err)
{
	struct forgetting *fg = caa_container_of(op, struct forgetting, fg_op);

	if (err) {
		forget_end(fg, err);
		return;
	}
	fg->fg_msg.m_run = nfs3ds_forget_batch;
	loop_post(loop_self(), &fg->fg_msg);
}

static int nfs3ds_forget_batch_run(struct kv_op *op, struct kv_txn *t)
{
	struct forgetting *fg = caa_container_of(op, struct forgetting, fg_op);
	int err = 0;

	for (unsigned i = 0; i < fg->fg_n && !err; i++)
		err = ns_row_del(t, NS_T_NFS3DS, fg->fg_row[i].gw_key, fg->fg_row[i].gw_len);
	return err;
}

static void one_put(struct forgetting *fg)
{
	if (--fg->fg_left)
		return;
	fg->fg_op = (struct kv_op){.o_run = nfs3ds_forget_batch_run,
				   .o_done = nfs3ds_forget_batch_done,
				   .o_loop = loop_self()};
	kv_submit(ns_kv(fg->fg_gen->gn_dsc->d_ns), &fg->fg_op);
}

static void one_gone(struct nfs3ds_rpc *r)
{
	struct one *on = caa_container_of(r, struct one, on_rpc);

	if (nfs3ds_errno(r) && nfs3ds_errno(r) != -ENOENT)
		nfs3ds_forget_failed(on->on_all, r, "REMOVE: ");
	one_put(on->on_all);
}

static void one_found(struct nfs3ds_rpc *r)
{
	struct one *on = caa_container_of(r, struct one, on_rpc);

	if (nfs3ds_errno(r)) {
		if (nfs3ds_errno(r) != -ENOENT)
			nfs3ds_forget_failed(on->on_all, r, "LOOKUP: ");
		one_put(on->on_all);
		return;
	}
	on->on_sub = r->gr_fh;
	r->gr_done = one_gone;
	nfs3ds_remove(on->on_all->fg_gen->gn_client, r, &on->on_sub, on->on_name);
}

static void nfs3ds_forget_batch(struct loop_msg *m)
{
	struct forgetting *fg = caa_container_of(m, struct forgetting, fg_msg);
	struct gen *g = fg->fg_gen;
	struct kv_txn *t;
	int n = kv_read_begin(ns_kv(g->gn_dsc->d_ns), &t);

	if (!n) {
		n = nfs3ds_rows_some(t, g->gn_id, fg->fg_row, BATCH);
		kv_read_end(t);
	}
	if (n < 0) {
		forget_end(fg, n);
		return;
	}
	if (!n) {
		dir_next(fg);
		return;
	}
	fg->fg_n = (unsigned)n;
	fg->fg_left = fg->fg_n + 1;
	for (unsigned i = 0; i < fg->fg_n; i++) {
		struct one *on = &fg->fg_one[i];

		on->on_all = fg;
		nfs3ds_name(fg->fg_row[i].gw_number, on->on_dir, on->on_name);
		if (!fg->fg_removes || !fg->fg_row[i].gw_number) {
			one_put(fg);
			continue;
		}
		on->on_rpc.gr_done = one_found;
		nfs3ds_lookup(g->gn_client, &on->on_rpc, &g->gn_dir, on->on_dir);
	}
	one_put(fg);
}

/* Waits until files being made and copies in progress have ended. No new ones begin. */
static void quiet(struct loop_timer *tm)
{
	struct forgetting *fg = caa_container_of(tm, struct forgetting, fg_timer);
	struct gen *g = fg->fg_gen;

	g->gn_up = false;
	if (g->gn_filling || nfs3ds_copies_busy(g)) {
		loop_timer_start(loop_self(), tm, WAIT_MS);
		return;
	}
	nfs3ds_forget_batch(&fg->fg_msg);
}

static void forget_begin(struct loop_msg *m)
{
	struct forgetting *fg = caa_container_of(m, struct forgetting, fg_msg);
	struct gen *g = fg->fg_gen;
	struct ds_reg *d = g->gn_dsc;
	bool barred, again;

	pthread_mutex_lock(&d->d_lock);
	barred = d->d_node[g->gn_id] && d->d_node[g->gn_id]->nd_terms.dt_barred;
	again = barred && atomic_exchange(&g->gn_forgetting, true);
	pthread_mutex_unlock(&d->d_lock);
	if (!barred || again || ds_reg_closed(d)) {
		struct ds_reg_command *w = fg->fg_word;

		if (barred && !again)
			atomic_store(&g->gn_forgetting, false);
		free(fg);
		w->dw_done(w, barred && !again ? -ESHUTDOWN : -EBUSY);
		return;
	}
	if (!fg->fg_removes)
		stays(fg, "files have objects there", "");
	else if (!g->gn_client || g->gn_failed)
		stays(fg, "it does not answer", "");
	fg->fg_removes &= g->gn_client && !g->gn_failed;
	fg->fg_timer.t_fire = quiet;
	quiet(&fg->fg_timer);
}

void nfs3ds_forget(struct gen *g, struct ds_reg_command *w)
{
	struct forgetting *fg = calloc(1, sizeof(*fg));
	struct kv_txn *t;
	int err = fg ? kv_read_begin(ns_kv(g->gn_dsc->d_ns), &t) : -ENOMEM;

	if (!err) {
		err = nfs3ds_next_get(t, g, &fg->fg_subs);
		kv_read_end(t);
	}
	if (err) {
		free(fg);
		w->dw_done(w, err);
		return;
	}
	fg->fg_subs >>= NFS3DS_DIR_BITS;
	fg->fg_gen = g;
	fg->fg_word = w;
	fg->fg_removes = w->dw_empty;
	fg->fg_msg.m_run = forget_begin;
	loop_post(ds_reg_loop(g->gn_dsc, 0), &fg->fg_msg);
}
