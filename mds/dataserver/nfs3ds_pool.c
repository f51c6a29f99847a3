/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nfs3ds_pool.c - checks whether an NFSv3 data server lives, and makes files there ahead. See
 * nfs3ds.h. Runs on the first loop.
 *
 * The metadata server asks the server for its free space a few times in a lease. An answer is a
 * heartbeat. After the first answer the server joins like a weft data server: its orders run before
 * it counts as alive.
 *
 * A file made ahead has a number, which is in the store before the file is made. After a crash the
 * file is made again, under the same name. The handle is in the store, and the file is given out,
 * only when the file is complete and on the server's stable storage. When a call got no answer, its
 * file is not made again while this process runs, unless thousands of numbers came after it: the
 * server may still execute that call, and would empty the file after it was given out.
 */
#include "mds/dataserver/nfs3ds.h"
#include "base/clock.h"
#include "base/log.h"
#include "mds/journal/event_journal.h"
#include <errno.h>
#include <urcu/compiler.h>

#define TICK_MS	  200
#define MAKE_MANY 16 /* files at a time */
#define FILL_MOST 1024
#define FAILED_MS 2000 /* wait before the next try to fill */
/* Leave that many of the last doubtful numbers alone, and make earlier ones again, so that their
 * rows do not fill the store. */
#define DOUBT_MOST 4096

/* ---- filling ---- */

struct nfs3ds_fill;
struct filler {
	struct nfs3ds_file fr_file;
	struct nfs3ds_rpc fr_rpc; /* for the file's subdirectory */
	struct nfs3ds_fill *fr_fill;
	unsigned fr_at;
	bool fr_busy;
};
struct nfs3ds_fill {
	struct gen *gfi_gen;
	struct kv_op gfi_op;
	unsigned gfi_n, gfi_next, gfi_busy, gfi_made;
	uint64_t gfi_number[FILL_MOST];
	struct nfs3ds_fh gfi_fh[FILL_MOST];
	int gfi_err;
	bool gfi_ending;
	struct filler gfi_filler[MAKE_MANY];
};

static void fill_go(struct nfs3ds_fill *f);

static void fill_free(struct nfs3ds_fill *f)
{
	f->gfi_gen->gn_filling = false;
	free(f);
}

struct counted {
	struct nfs3ds_fill *f;
	unsigned ready;
};

static int nfs3ds_pool_count_one(void *arg, uint64_t number, const struct nfs3ds_fh *fh)
{
	struct counted *c = arg;
	uint64_t doubtful = c->f->gfi_gen->gn_doubtful;

	if (fh->f_len)
		c->ready++;
	else if ((number >= doubtful || doubtful - number > DOUBT_MOST) && c->f->gfi_n < FILL_MOST)
		c->f->gfi_number[c->f->gfi_n++] = number;
	return 0;
}

/* Reserves numbers for the files that are missing, and takes those that an earlier try did not
 * make. */
static int reserve_run(struct kv_op *op, struct kv_txn *t)
{
	struct nfs3ds_fill *f = caa_container_of(op, struct nfs3ds_fill, gfi_op);
	struct gen *g = f->gfi_gen;
	struct counted c = {.f = f};
	static const struct nfs3ds_fh none;
	unsigned want = g->gn_dsc->d_opts.do_pool, more;
	uint64_t first;
	int err = nfs3ds_pool_each(t, g->gn_id, nfs3ds_pool_count_one, &c);

	if (err)
		return err;
	atomic_store(&g->gn_ready, c.ready);
	more = c.ready + f->gfi_n < want ? want - c.ready - f->gfi_n : 0;
	if (more > FILL_MOST - f->gfi_n)
		more = FILL_MOST - f->gfi_n;
	if (!more)
		return 0;
	err = nfs3ds_next_take(t, g, more, &first);
	for (unsigned i = 0; i < more && !err; i++) {
		f->gfi_number[f->gfi_n++] = first + i;
		err = nfs3ds_pool_put(t, g->gn_id, first + i, &none);
	}
	return err;
}

static int made_run(struct kv_op *op, struct kv_txn *t)
{
	struct nfs3ds_fill *f = caa_container_of(op, struct nfs3ds_fill, gfi_op);
	int err = 0;

	for (unsigned i = 0; i < f->gfi_n && !err; i++)
		if (f->gfi_fh[i].f_len)
			err = nfs3ds_pool_put(t, f->gfi_gen->gn_id, f->gfi_number[i],
					      &f->gfi_fh[i]);
	return err;
}

static void made_done(struct kv_op *op, int err)
{
	struct nfs3ds_fill *f = caa_container_of(op, struct nfs3ds_fill, gfi_op);

	if (err)
		log_error("data server %u: cannot record files made ahead: %s", f->gfi_gen->gn_id,
			  strerror(-err));
	else
		atomic_fetch_add(&f->gfi_gen->gn_ready, f->gfi_made);
	if (!err && !f->gfi_err)
		atomic_store(&f->gfi_gen->gn_said, false);
	fill_free(f);
}

static void nfs3ds_pool_fill_end(struct nfs3ds_fill *f)
{
	if (f->gfi_busy || f->gfi_ending)
		return;
	f->gfi_ending = true;
	if (!f->gfi_made) {
		fill_free(f);
		return;
	}
	f->gfi_op = (struct kv_op){.o_run = made_run, .o_done = made_done, .o_loop = loop_self()};
	kv_submit(ns_kv(f->gfi_gen->gn_dsc->d_ns), &f->gfi_op);
}

static void fill_failed(struct nfs3ds_fill *f, const char *what, const char *why)
{
	struct gen *g = f->gfi_gen;

	if (!atomic_exchange(&g->gn_said, true))
		log_error("data server %u (%s): cannot make files ahead: %s: %s", g->gn_id,
			  g->gn_path, what, why);
	g->gn_sub_fh.f_len = 0;
	f->gfi_err = -EIO;
}

static void filler_done(struct filler *fr)
{
	fr->fr_busy = false;
	fr->fr_fill->gfi_busy--;
	fill_go(fr->fr_fill);
}

static void file_made(struct nfs3ds_file *gf)
{
	struct filler *fr = caa_container_of(gf, struct filler, fr_file);
	struct nfs3ds_fill *f = fr->fr_fill;

	if (gf->gf_err) {
		if (gf->gf_rpc.gr_err && f->gfi_number[fr->fr_at] >= f->gfi_gen->gn_doubtful)
			f->gfi_gen->gn_doubtful = f->gfi_number[fr->fr_at] + 1;
		fill_failed(
			f, gf->gf_what,
			gf->gf_err == -EPERM
				? "the export must not squash root of this machine (no_root_squash)"
				: strerror(-gf->gf_err));
	} else {
		f->gfi_fh[fr->fr_at] = gf->gf_fh;
		f->gfi_made++;
	}
	filler_done(fr);
}

static void nfs3ds_pool_file_begin(struct filler *fr)
{
	struct nfs3ds_fill *f = fr->fr_fill;
	char dir[NFS3DS_NAME];

	fr->fr_file.gf_client = f->gfi_gen->gn_client;
	fr->fr_file.gf_dir = f->gfi_gen->gn_sub_fh;
	nfs3ds_name(f->gfi_number[fr->fr_at], dir, fr->fr_file.gf_name);
	/* lo_place begins with epoch 1. */
	nfs3ds_owner(f->gfi_gen, f->gfi_number[fr->fr_at], 1, &fr->fr_file.gf_uid,
		     &fr->fr_file.gf_gid);
	fr->fr_file.gf_done = file_made;
	nfs3ds_file_make(&fr->fr_file);
}

/* The subdirectory gets no sync of its own. CREATE and the COMMIT of the files make the names in it
 * durable, and MKDIR makes its own name durable. */
static void sub_found(struct nfs3ds_rpc *r)
{
	struct filler *fr = caa_container_of(r, struct filler, fr_rpc);
	struct nfs3ds_fill *f = fr->fr_fill;
	struct gen *g = f->gfi_gen;
	char dir[NFS3DS_NAME], name[NFS3DS_NAME];
	int err = nfs3ds_errno(r);

	nfs3ds_name(f->gfi_number[fr->fr_at], dir, name);
	if (err == -ENOENT && r->gr_proc == NFS3_LOOKUP) {
		nfs3ds_mkdir(g->gn_client, r, &g->gn_dir, dir);
	} else if (err == -EEXIST || (!err && !r->gr_fh.f_len)) {
		nfs3ds_lookup(g->gn_client, r, &g->gn_dir, dir);
	} else if (err) {
		fill_failed(f, r->gr_proc == NFS3_LOOKUP ? "LOOKUP" : "MKDIR", nfs3ds_why(r));
		filler_done(fr);
	} else {
		g->gn_sub = f->gfi_number[fr->fr_at] >> NFS3DS_DIR_BITS;
		g->gn_sub_fh = r->gr_fh;
		nfs3ds_pool_file_begin(fr);
		fill_go(f);
	}
}

/* Makes the files of one subdirectory at a time. The first of them looks up its handle. */
static void fill_go(struct nfs3ds_fill *f)
{
	struct gen *g = f->gfi_gen;
	char dir[NFS3DS_NAME], name[NFS3DS_NAME];

	for (unsigned i = 0; i < MAKE_MANY && f->gfi_next < f->gfi_n && !f->gfi_err && g->gn_up;
	     i++) {
		struct filler *fr = &f->gfi_filler[i];
		uint64_t sub = f->gfi_number[f->gfi_next] >> NFS3DS_DIR_BITS;
		bool known = g->gn_sub_fh.f_len && g->gn_sub == sub;

		if (fr->fr_busy)
			continue;
		if (!known && f->gfi_busy)
			return;
		fr->fr_busy = true;
		fr->fr_fill = f;
		fr->fr_at = f->gfi_next++;
		f->gfi_busy++;
		if (known) {
			nfs3ds_pool_file_begin(fr);
			continue;
		}
		nfs3ds_name(f->gfi_number[fr->fr_at], dir, name);
		fr->fr_rpc.gr_done = sub_found;
		nfs3ds_lookup(g->gn_client, &fr->fr_rpc, &g->gn_dir, dir);
		return;
	}
	nfs3ds_pool_fill_end(f);
}

static void reserve_done(struct kv_op *op, int err)
{
	struct nfs3ds_fill *f = caa_container_of(op, struct nfs3ds_fill, gfi_op);

	if (err) {
		log_error("data server %u: cannot get numbers for files made ahead: %s",
			  f->gfi_gen->gn_id, strerror(-err));
		fill_free(f);
		return;
	}
	fill_go(f);
}

static void nfs3ds_pool_fill(struct gen *g)
{
	struct nfs3ds_fill *f = calloc(1, sizeof(*f));

	if (!f)
		return; /* the next tick tries again */
	g->gn_filling = true;
	f->gfi_gen = g;
	f->gfi_op =
		(struct kv_op){.o_run = reserve_run, .o_done = reserve_done, .o_loop = loop_self()};
	kv_submit(ns_kv(g->gn_dsc->d_ns), &f->gfi_op);
}

/* ---- liveness ---- */

struct joined {
	struct loop_msg jd_msg;
	struct gen *jd_gen;
};

/* The server's orders were done, as far as they can be. */
static void joined_run(struct loop_msg *m)
{
	struct joined *jd = caa_container_of(m, struct joined, jd_msg);
	struct gen *g = jd->jd_gen;
	struct ds_reg *d = g->gn_dsc;
	struct ds_reg_node *nd;
	bool joined = false;
	char name[65];

	pthread_mutex_lock(&d->d_lock);
	nd = d->d_node[g->gn_id];
	strcpy(name, nd ? nd->nd_sv.sv_name : "");
	if (nd && g->gn_up && !atomic_load(&g->gn_rejoin) && !nd->nd_terms.dt_barred) {
		nd->nd_joined = joined = true;
		nd->nd_heard_ms = clock_mono_ms();
		nd->nd_lost_ms = 0;
		if (!nd->nd_unserving) {
			nd->nd_reported_ms = 0;
			ds_reg_set_state(nd, DS_REG_ALIVE);
		}
	}
	ds_reg_unlock(d, nd);
	if (joined)
		journal_add(EV_DS_JOINED, name, 0, "it answers");
	free(jd);
}

static void nfs3ds_pool_join_ready(void *arg)
{
	struct joined *jd = arg;

	jd->jd_msg.m_run = joined_run;
	loop_post(ds_reg_loop(jd->jd_gen->gn_dsc, 0), &jd->jd_msg);
}

static void nfs3ds_pool_join(struct gen *g)
{
	struct joined *jd = calloc(1, sizeof(*jd));

	if (!jd) {
		g->gn_up = false; /* the next answer tries again */
		return;
	}
	jd->jd_gen = g;
	if (g->gn_dsc->d_join)
		g->gn_dsc->d_join(g->gn_dsc->d_join_arg, g->gn_id, nfs3ds_pool_join_ready, jd);
	else
		nfs3ds_pool_join_ready(jd);
}

static void nfs3ds_pool_lost(struct gen *g)
{
	struct ds_reg *d = g->gn_dsc;

	g->gn_up = false;
	pthread_mutex_lock(&d->d_lock);
	d->d_node[g->gn_id]->nd_joined = false;
	ds_reg_unlock(d, d->d_node[g->gn_id]);
}

/* The liveness check (liveness.c) asks the server whether it lives. */
static void missed(struct gen *g)
{
	struct ds_reg *d = g->gn_dsc;

	pthread_mutex_lock(&d->d_lock);
	if (!d->d_node[g->gn_id]->nd_lost_ms)
		d->d_node[g->gn_id]->nd_lost_ms = clock_mono_ms();
	ds_reg_unlock(d, d->d_node[g->gn_id]);
}

static void nfs3ds_pool_asked(struct nfs3ds_rpc *r)
{
	struct gen *g = caa_container_of(r, struct gen, gn_rpc);
	struct ds_reg *d = g->gn_dsc;
	struct ds_reg_node *nd;
	bool barred;

	g->gn_asking = false;
	if (nfs3ds_errno(r)) {
		missed(g);
		if (++g->gn_failed == 2 && g->gn_up)
			nfs3ds_pool_lost(g);
		if (g->gn_failed == 2)
			log_warn("data server %u (%s): cannot read its free space: %s", g->gn_id,
				 g->gn_path, nfs3ds_why(r));
		return;
	}
	g->gn_failed = 0;
	pthread_mutex_lock(&d->d_lock);
	nd = d->d_node[g->gn_id];
	nd->nd_sv.sv_capacity = r->gr_total;
	nd->nd_sv.sv_available = r->gr_avail;
	nd->nd_heard_ms = clock_mono_ms();
	if (nd->nd_joined)
		nd->nd_lost_ms = 0;
	barred = nd->nd_terms.dt_barred || atomic_load(&g->gn_forgetting);
	ds_reg_unlock(d, nd);
	if (barred)
		return;
	if (atomic_exchange(&g->gn_rejoin, false))
		nfs3ds_pool_lost(g);
	if (!g->gn_up) {
		g->gn_up = true;
		g->gn_sub_fh.f_len = 0;
		nfs3ds_pool_join(g);
	}
}

static void nfs3ds_pool_ask(struct gen *g)
{
	g->gn_asking = true;
	g->gn_asked_ms = clock_mono_ms();
	g->gn_rpc.gr_done = nfs3ds_pool_asked;
	nfs3ds_fsstat(g->gn_client, &g->gn_rpc, &g->gn_dir);
}

static void nfs3ds_pool_tick(struct loop_timer *t)
{
	struct gen *g = caa_container_of(t, struct gen, gn_timer);
	uint64_t now = clock_mono_ms();
	unsigned pool = g->gn_dsc->d_opts.do_pool;

	if (!g->gn_asking && now - g->gn_asked_ms >= g->gn_dsc->d_opts.do_lease_ms / 5)
		nfs3ds_pool_ask(g);
	if (g->gn_up && !g->gn_filling && atomic_load(&g->gn_ready) <= pool / 2 &&
	    (!atomic_load(&g->gn_said) || now / FAILED_MS != (now - TICK_MS) / FAILED_MS))
		nfs3ds_pool_fill(g);
	loop_timer_start(ds_reg_loop(g->gn_dsc, 0), t, TICK_MS);
}

static bool tcp_addr(const struct ds_reg_server *sv, struct sockaddr_storage *ss, socklen_t *len)
{
	for (unsigned i = 0; i < sv->sv_naddrs; i++)
		if (!strncmp(sv->sv_addrs[i].netid, "tcp", 3) &&
		    !rpc_uaddr_parse(sv->sv_addrs[i].netid, sv->sv_addrs[i].uaddr, ss, len))
			return true;
	return false;
}

void nfs3ds_start(struct gen *g)
{
	struct sockaddr_storage ss = {0};
	struct ds_reg_server sv;
	socklen_t len;

	if (!ds_reg_get(g->gn_dsc, g->gn_id, &sv) || !tcp_addr(&sv, &ss, &len) ||
	    rpc_client_create(&g->gn_client, ds_reg_loop(g->gn_dsc, 0), (struct sockaddr *)&ss, len,
			      NULL, NULL, NULL)) {
		log_error("data server %u (%s): no address that is reachable over TCP", g->gn_id,
			  g->gn_path);
		g->gn_client = NULL;
		return;
	}
	g->gn_timer.t_fire = nfs3ds_pool_tick;
	nfs3ds_pool_tick(&g->gn_timer);
}

void nfs3ds_stop(struct gen *g)
{
	if (!g->gn_client)
		return;
	loop_timer_stop(ds_reg_loop(g->gn_dsc, 0), &g->gn_timer);
	g->gn_up = false; /* calls in progress end with errors and start nothing more */
	rpc_client_destroy(g->gn_client);
	g->gn_client = NULL;
}
