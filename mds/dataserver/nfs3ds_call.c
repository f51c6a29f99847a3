/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nfs3ds_call.c - runs control requests on an NFSv3 data server by NFSv3 calls: orders, sizes, data
 * and holes. A weft-ds runs such requests itself. See nfs3ds.h.
 *
 * An order is done, and is answered, when its change is on the server's stable storage (COMMIT of
 * the file, also for its owners) and its number is in the object's row. An order that comes again
 * with a number that the row has is done already.
 *
 * The server may execute a call without an answer late: after the order was sent again and done,
 * and after clients have written or another fence came. So each SETATTR is guarded by the change
 * time that the server reported before. A late call is refused (NFS3ERR_NOT_SYNC), because what was
 * done in its place has changed that time.
 */
#include "mds/dataserver/nfs3ds.h"
#include "base/log.h"
#include <errno.h>
#include <sodium.h>
#include <urcu/compiler.h>

/* Tries of a SETATTR while others change the file in between. After that the order is tried again
 * later. */
#define TRIES	   32
#define TRIES_OPEN 8 /* tries of a fence before lock_out, while the fenced clients may write */

struct cap_object nfs3ds_object_of(const ctl_object *o)
{
	return (struct cap_object){.co_ino = o->ino,
				   .co_fs = (uint16_t)o->fs,
				   .co_incarnation = (uint16_t)o->incarnation,
				   .co_stripe = (uint8_t)o->stripe,
				   .co_copy = (uint8_t)o->mirror};
}

void nfs3ds_answer(struct ds_reg_ctl *c, ctl_response *res)
{
	if (res->status == CTL_OK)
		res->result.op = c->dc_req.op;
	c->dc_take(c, res);
	ds_reg_call_end(c, 0);
}

void nfs3ds_refuse(struct ds_reg_ctl *c, ctl_status status)
{
	ctl_response res = {.status = status};

	nfs3ds_answer(c, &res);
}

int nfs3ds_object_find(struct gen *g, const ctl_object *o, uint32_t epoch,
		       uint8_t key[NFS3DS_OBJECT_KEY], struct nfs3ds_object *out,
		       struct ds_reg_handle *h)
{
	struct cap_object obj = nfs3ds_object_of(o);
	struct kv_txn *t;
	int err = kv_read_begin(ns_kv(g->gn_dsc->d_ns), &t);

	if (err)
		return -EIO;
	nfs3ds_object_key(g->gn_id, &obj, key);
	err = nfs3ds_object_get(t, key, out);
	kv_read_end(t);
	if (err)
		return err;
	memset(h, 0, sizeof(*h));
	h->dh_len = out->go_fh.f_len;
	memcpy(h->dh_data, out->go_fh.f_data, out->go_fh.f_len);
	nfs3ds_owner(g, out->go_number, epoch, &h->dh_uid, &h->dh_gid);
	return 0;
}

/* ---- orders ---- */

struct orders;
struct one_order {
	struct nfs3ds_rpc oo_rpc;
	struct orders *oo_all;
	const ctl_order *oo_order;
	uint8_t oo_key[NFS3DS_OBJECT_KEY];
	struct nfs3ds_object oo_object;
	bool oo_row; /* the row is to be written or deleted */
	unsigned oo_tries;
	char oo_dir[NFS3DS_NAME], oo_name[NFS3DS_NAME];
	struct nfs3ds_fh oo_sub;
};
struct orders {
	struct gen *os_gen;
	struct ds_reg_ctl *os_ctl;
	struct kv_op os_op;
	unsigned os_left, os_n;
	ctl_status os_result[CTL_BATCH_MAX];
	struct one_order os_one[];
};

static void orders_answer(struct orders *os)
{
	ctl_response res = {.status = CTL_OK};

	res.result.ctl_result_u.orders.results.results_len = os->os_n;
	res.result.ctl_result_u.orders.results.results_val = os->os_result;
	nfs3ds_answer(os->os_ctl, &res);
	free(os);
}

static void nfs3ds_call_rows_done(struct kv_op *op, int err)
{
	struct orders *os = caa_container_of(op, struct orders, os_op);

	if (err)
		log_error("cannot record the orders that a generic data server has done: %s",
			  strerror(-err));
	for (unsigned i = 0; err && i < os->os_n; i++)
		if (os->os_one[i].oo_row)
			os->os_result[i] = CTL_IO;
	orders_answer(os);
}

static int nfs3ds_call_rows_run(struct kv_op *op, struct kv_txn *t)
{
	struct orders *os = caa_container_of(op, struct orders, os_op);
	int err = 0;

	/* Deletions go first, because they free space (kv.h). */
	for (unsigned i = 0; i < os->os_n && !err; i++)
		if (os->os_one[i].oo_row && os->os_one[i].oo_order->type == CTL_DELETE)
			err = ns_row_del(t, NS_T_NFS3DS, os->os_one[i].oo_key, NFS3DS_OBJECT_KEY);
	for (unsigned i = 0; i < os->os_n && !err; i++)
		if (os->os_one[i].oo_row && os->os_one[i].oo_order->type != CTL_DELETE)
			err = nfs3ds_object_put(t, os->os_one[i].oo_key, &os->os_one[i].oo_object);
	return err;
}

static void orders_put(struct orders *os)
{
	bool any = false;

	if (--os->os_left)
		return;
	for (unsigned i = 0; i < os->os_n; i++)
		any |= os->os_one[i].oo_row;
	if (!any) {
		orders_answer(os);
		return;
	}
	os->os_op = (struct kv_op){.o_run = nfs3ds_call_rows_run,
				   .o_done = nfs3ds_call_rows_done,
				   .o_loop = loop_self()};
	kv_submit(ns_kv(os->os_gen->gn_dsc->d_ns), &os->os_op);
}

static void order_end(struct one_order *oo, ctl_status status)
{
	struct orders *os = oo->oo_all;

	os->os_result[oo - os->os_one] = status;
	oo->oo_row = status == CTL_OK;
	oo->oo_object.go_done = oo->oo_order->number;
	orders_put(os);
}

static void nfs3ds_call_order_failed(struct one_order *oo, const char *what)
{
	const struct gen *g = oo->oo_all->os_gen;
	int err = nfs3ds_errno(&oo->oo_rpc);

	if (err == -EPERM)
		log_error("data server %u (%s) refused %s: its export must not squash root of this "
			  "machine (no_root_squash)",
			  g->gn_id, g->gn_path, what);
	else if (err != -EAGAIN)
		log_warn("data server %u (%s): %s failed for inode %llu: %s", g->gn_id, g->gn_path,
			 what, (unsigned long long)oo->oo_order->object.ino,
			 nfs3ds_why(&oo->oo_rpc));
	order_end(oo, err == -ENOSPC ? CTL_NOSPC : CTL_IO);
}

/* ---- stale file handles: a LOOKUP of the name tells whether the file is gone ---- */

static void gone_named(struct nfs3ds_rpc *r)
{
	struct one_order *oo = caa_container_of(r, struct one_order, oo_rpc);

	if (nfs3ds_errno(r) == -ENOENT) {
		log_error("data server %u: inode %llu: object %s/%s is missing",
			  oo->oo_all->os_gen->gn_id, (unsigned long long)oo->oo_order->object.ino,
			  oo->oo_dir, oo->oo_name);
		order_end(oo, CTL_NOENT);
	} else {
		nfs3ds_call_order_failed(oo, "LOOKUP");
	}
}

static void gone_dir(struct nfs3ds_rpc *r)
{
	struct one_order *oo = caa_container_of(r, struct one_order, oo_rpc);

	if (nfs3ds_errno(r)) {
		nfs3ds_call_order_failed(oo, "LOOKUP");
		return;
	}
	oo->oo_sub = r->gr_fh;
	r->gr_done = gone_named;
	nfs3ds_lookup(oo->oo_all->os_gen->gn_client, r, &oo->oo_sub, oo->oo_name);
}

static void gone(struct one_order *oo, const char *what)
{
	if (nfs3ds_errno(&oo->oo_rpc) != -ESTALE) {
		nfs3ds_call_order_failed(oo, what);
		return;
	}
	oo->oo_rpc.gr_done = gone_dir;
	nfs3ds_lookup(oo->oo_all->os_gen->gn_client, &oo->oo_rpc, &oo->oo_all->os_gen->gn_dir,
		      oo->oo_dir);
}

/* ---- TRUNCATE and FENCE ---- */

static void order_stable(struct nfs3ds_rpc *r)
{
	struct one_order *oo = caa_container_of(r, struct one_order, oo_rpc);

	if (nfs3ds_errno(r))
		nfs3ds_call_order_failed(oo, "COMMIT");
	else
		order_end(oo, CTL_OK);
}

/* The attributes show what a server that maps owners made of them. */
static void order_checked(struct nfs3ds_rpc *r)
{
	struct one_order *oo = caa_container_of(r, struct one_order, oo_rpc);
	const struct gen *g = oo->oo_all->os_gen;
	uint32_t uid, gid;

	if (nfs3ds_errno(r)) {
		gone(oo, "GETATTR");
		return;
	}
	nfs3ds_owner(g, oo->oo_object.go_number, oo->oo_order->epoch, &uid, &gid);
	if (oo->oo_order->type == CTL_FENCE &&
	    (r->gr_attr.fa_uid != uid || r->gr_attr.fa_gid != gid)) {
		log_error("data server %u (%s): an object has another owner than was set: its "
			  "export must not map users (no_root_squash)",
			  g->gn_id, g->gn_path);
		order_end(oo, CTL_IO);
		return;
	}
	r->gr_done = order_stable;
	nfs3ds_commit(g->gn_client, r, &oo->oo_object.go_fh);
}

static void set_ask(struct one_order *oo);

static void order_set(struct nfs3ds_rpc *r)
{
	struct one_order *oo = caa_container_of(r, struct one_order, oo_rpc);

	r->gr_guarded = false;
	if (nfs3ds_errno(r) == -EBUSY && ++oo->oo_tries < TRIES) {
		set_ask(oo);
		return;
	}
	if (nfs3ds_errno(r)) {
		gone(oo, "SETATTR");
		return;
	}
	r->gr_done = order_checked;
	nfs3ds_getattr(oo->oo_all->os_gen->gn_client, r, &oo->oo_object.go_fh);
}

static void locked_out(struct nfs3ds_rpc *r)
{
	struct one_order *oo = caa_container_of(r, struct one_order, oo_rpc);

	if (nfs3ds_errno(r))
		gone(oo, "SETATTR");
	else
		set_ask(oo);
}

/* Clients write faster than this server can read the change time and send a SETATTR guarded by it.
 * So give the file to an owner that no client has. If the server executes this call late, no client
 * owns the file until the next fence; so this call needs no guard. */
static void lock_out(struct one_order *oo)
{
	struct nfs3_sattr sa = {.sa_set = NFS3_SA_MODE | NFS3_SA_UID | NFS3_SA_GID,
				.sa_mode = NFS3DS_MODE};

	nfs3ds_owner(oo->oo_all->os_gen, oo->oo_object.go_number, randombytes_random(), &sa.sa_uid,
		     &sa.sa_gid);
	oo->oo_tries++;
	oo->oo_rpc.gr_done = locked_out;
	nfs3ds_setattr(oo->oo_all->os_gen->gn_client, &oo->oo_rpc, &oo->oo_object.go_fh, &sa);
}

/* Setting a size keeps the mtime: the mtime is the object's write count, and a size change is no
 * write. */
static void set_now(struct nfs3ds_rpc *r)
{
	struct one_order *oo = caa_container_of(r, struct one_order, oo_rpc);
	struct nfs3_sattr sa = {.sa_set = NFS3_SA_SIZE | NFS3_SA_MTIME,
				.sa_size = oo->oo_order->size,
				.sa_mtime_how = NFS3_SET_TO_CLIENT_TIME};

	if (nfs3ds_errno(r)) {
		gone(oo, "GETATTR");
		return;
	}
	sa.sa_mtime = r->gr_attr.fa_mtime;
	if (oo->oo_order->type == CTL_FENCE) {
		sa = (struct nfs3_sattr){.sa_set = NFS3_SA_MODE | NFS3_SA_UID | NFS3_SA_GID,
					 .sa_mode = NFS3DS_MODE};
		nfs3ds_owner(oo->oo_all->os_gen, oo->oo_object.go_number, oo->oo_order->epoch,
			     &sa.sa_uid, &sa.sa_gid);
	}
	r->gr_guarded = true;
	r->gr_guard = r->gr_attr.fa_ctime;
	r->gr_done = order_set;
	nfs3ds_setattr(oo->oo_all->os_gen->gn_client, r, &oo->oo_object.go_fh, &sa);
}

static void set_ask(struct one_order *oo)
{
	if (oo->oo_order->type == CTL_FENCE && oo->oo_tries == TRIES_OPEN) {
		lock_out(oo);
		return;
	}
	oo->oo_rpc.gr_done = set_now;
	nfs3ds_getattr(oo->oo_all->os_gen->gn_client, &oo->oo_rpc, &oo->oo_object.go_fh);
}

/* ---- DELETE ---- */

static void removed(struct nfs3ds_rpc *r)
{
	struct one_order *oo = caa_container_of(r, struct one_order, oo_rpc);
	int err = nfs3ds_errno(r);

	if (err && err != -ENOENT)
		nfs3ds_call_order_failed(oo, "REMOVE");
	else
		order_end(oo, CTL_OK);
}

static void remove_found(struct nfs3ds_rpc *r)
{
	struct one_order *oo = caa_container_of(r, struct one_order, oo_rpc);

	if (nfs3ds_errno(r)) {
		nfs3ds_call_order_failed(oo, "LOOKUP");
		return;
	}
	oo->oo_sub = r->gr_fh;
	r->gr_done = removed;
	nfs3ds_remove(oo->oo_all->os_gen->gn_client, r, &oo->oo_sub, oo->oo_name);
}

static void nfs3ds_call_delete_now(struct one_order *oo)
{
	oo->oo_rpc.gr_done = remove_found;
	nfs3ds_lookup(oo->oo_all->os_gen->gn_client, &oo->oo_rpc, &oo->oo_all->os_gen->gn_dir,
		      oo->oo_dir);
}

static void order_begin(struct one_order *oo, struct kv_txn *t)
{
	const ctl_order *o = oo->oo_order;
	struct cap_object obj = nfs3ds_object_of(&o->object);
	int err;

	nfs3ds_object_key(oo->oo_all->os_gen->gn_id, &obj, oo->oo_key);
	err = nfs3ds_object_get(t, oo->oo_key, &oo->oo_object);
	if (err || o->number <= oo->oo_object.go_done) {
		oo->oo_all->os_result[oo - oo->oo_all->os_one] = !err		  ? CTL_OK
								 : err == -ENOENT ? CTL_NOENT
										  : CTL_IO;
		orders_put(oo->oo_all);
		return;
	}
	nfs3ds_name(oo->oo_object.go_number, oo->oo_dir, oo->oo_name);
	if (o->type != CTL_FENCE && !nfs3ds_copy_end(oo->oo_all->os_gen, oo->oo_key)) {
		/* the order is tried again in a moment */
		oo->oo_all->os_result[oo - oo->oo_all->os_one] = CTL_REBUILDING;
		orders_put(oo->oo_all);
		return;
	}
	switch (o->type) {
	case CTL_FENCE:
	case CTL_TRUNCATE:
		set_ask(oo);
		return;
	case CTL_DELETE:
		nfs3ds_call_delete_now(oo);
		return;
	/* such an order is never queued: mds/layout knows what an NFSv3 data server can do */
	default:
		oo->oo_all->os_result[oo - oo->oo_all->os_one] = CTL_NOTSUPP;
		orders_put(oo->oo_all);
	}
}

static void orders(struct gen *g, struct ds_reg_ctl *c)
{
	const ctl_orders_args *a = &c->dc_req.ctl_request_u.orders;
	unsigned n = a->orders.orders_len;
	struct orders *os = calloc(1, sizeof(*os) + n * sizeof(os->os_one[0]));
	struct kv_txn *t;

	if (!os || kv_read_begin(ns_kv(g->gn_dsc->d_ns), &t)) {
		free(os);
		nfs3ds_refuse(c, CTL_IO);
		return;
	}
	os->os_gen = g;
	os->os_ctl = c;
	os->os_n = n;
	os->os_left = n + 1;
	for (unsigned i = 0; i < n; i++) {
		os->os_one[i].oo_all = os;
		os->os_one[i].oo_order = &a->orders.orders_val[i];
		order_begin(&os->os_one[i], t);
	}
	kv_read_end(t);
	orders_put(os);
}

/* ---- STAT ---- */

struct stats;
struct one_stat {
	struct nfs3ds_rpc ot_rpc;
	struct stats *ot_all;
};
struct stats {
	struct ds_reg_ctl *st_ctl;
	unsigned st_left, st_n;
	ctl_stat st_stat[CTL_BATCH_MAX];
	struct one_stat st_one[];
};

static void nfs3ds_call_stats_put(struct stats *st)
{
	ctl_response res = {.status = CTL_OK};

	if (--st->st_left)
		return;
	res.result.ctl_result_u.stat.stats.stats_len = st->st_n;
	res.result.ctl_result_u.stat.stats.stats_val = st->st_stat;
	nfs3ds_answer(st->st_ctl, &res);
	free(st);
}

static void stat_done(struct nfs3ds_rpc *r)
{
	struct one_stat *ot = caa_container_of(r, struct one_stat, ot_rpc);
	const struct nfs3_fattr *a = &r->gr_attr;
	ctl_stat *out = &ot->ot_all->st_stat[ot - ot->ot_all->st_one];

	out->status = nfs3ds_sized(r) ? CTL_OK : CTL_IO;
	if (out->status == CTL_OK) {
		out->durable = true; /* its name was made ahead */
		out->size = a->fa_size;
		out->used = a->fa_used;
		out->writes =
			(uint64_t)a->fa_mtime.tv_sec * 1000000000 + (uint64_t)a->fa_mtime.tv_nsec;
	}
	nfs3ds_call_stats_put(ot->ot_all);
}

static void stats(struct gen *g, struct ds_reg_ctl *c)
{
	const ctl_stat_args *a = &c->dc_req.ctl_request_u.stat;
	unsigned n = a->objects.objects_len;
	struct stats *st = calloc(1, sizeof(*st) + n * sizeof(st->st_one[0]));
	struct kv_txn *t;

	if (!st || kv_read_begin(ns_kv(g->gn_dsc->d_ns), &t)) {
		free(st);
		nfs3ds_refuse(c, CTL_IO);
		return;
	}
	st->st_ctl = c;
	st->st_n = n;
	st->st_left = n + 1;
	for (unsigned i = 0; i < n; i++) {
		struct cap_object obj = nfs3ds_object_of(&a->objects.objects_val[i]);
		struct nfs3ds_object o;
		uint8_t key[NFS3DS_OBJECT_KEY];
		int err;

		nfs3ds_object_key(g->gn_id, &obj, key);
		err = nfs3ds_object_get(t, key, &o);
		st->st_one[i].ot_all = st;
		if (err) {
			st->st_stat[i].status = err == -ENOENT ? CTL_NOENT : CTL_IO;
			nfs3ds_call_stats_put(st);
			continue;
		}
		st->st_one[i].ot_rpc.gr_done = stat_done;
		nfs3ds_getattr(g->gn_client, &st->st_one[i].ot_rpc, &o.go_fh);
	}
	kv_read_end(t);
	nfs3ds_call_stats_put(st);
}

/* ---- SEEK: NFSv3 knows no holes, so all is data up to the end (RFC 7862 section 15.11) ---- */

struct one_seek {
	struct nfs3ds_rpc osk_rpc;
	struct ds_reg_ctl *osk_ctl;
};

/* Returns the first offset from `at` on that belongs to the object. An object of a striped file has
 * one unit in every `stripes`. */
static uint64_t own_from(const ctl_seek_args *a, uint64_t at)
{
	uint64_t k = a->unit ? at / a->unit : 0, own;

	if (a->stripes < 2 || !a->unit)
		return at;
	own = k + (a->object.stripe + a->stripes - k % a->stripes) % a->stripes;
	return own == k ? at : own * a->unit;
}

static void nfs3ds_call_seek_done(struct nfs3ds_rpc *r)
{
	struct one_seek *os = caa_container_of(r, struct one_seek, osk_rpc);
	const ctl_seek_args *a = &os->osk_ctl->dc_req.ctl_request_u.seek;
	ctl_response res = {.status = nfs3ds_sized(r) ? CTL_OK : CTL_IO};
	ctl_seek_res *s = &res.result.ctl_result_u.seek;
	uint64_t size = r->gr_attr.fa_size,
		 at = own_from(a, a->hole && size > a->offset ? size : a->offset);

	s->found = a->hole || at < size ? CTL_SEEK_FOUND : CTL_SEEK_NONE;
	s->offset = at;
	nfs3ds_answer(os->osk_ctl, &res);
	free(os);
}

static void seek(struct gen *g, struct ds_reg_ctl *c)
{
	struct cap_object obj = nfs3ds_object_of(&c->dc_req.ctl_request_u.seek.object);
	struct one_seek *os = calloc(1, sizeof(*os));
	uint8_t key[NFS3DS_OBJECT_KEY];
	struct nfs3ds_object o;
	struct kv_txn *t;
	int err;

	if (!os || kv_read_begin(ns_kv(g->gn_dsc->d_ns), &t)) {
		free(os);
		nfs3ds_refuse(c, CTL_IO);
		return;
	}
	nfs3ds_object_key(g->gn_id, &obj, key);
	err = nfs3ds_object_get(t, key, &o);
	kv_read_end(t);
	if (err) {
		free(os);
		nfs3ds_refuse(c, err == -ENOENT ? CTL_NOENT : CTL_IO);
		return;
	}
	os->osk_ctl = c;
	os->osk_rpc.gr_done = nfs3ds_call_seek_done;
	nfs3ds_getattr(g->gn_client, &os->osk_rpc, &o.go_fh);
}

void nfs3ds_call(struct gen *g, struct ds_reg_ctl *c)
{
	if (!g->gn_up || !g->gn_client) {
		ds_reg_call_end(c, -ENOTCONN);
		return;
	}
	switch (c->dc_req.op) {
	case CTL_OP_ORDERS:
		orders(g, c);
		return;
	case CTL_OP_STAT:
		stats(g, c);
		return;
	case CTL_OP_SEEK:
		seek(g, c);
		return;
	case CTL_OP_REBUILD:
		nfs3ds_rebuild(g, c);
		return;
	case CTL_OP_SUM:
		nfs3ds_sum(g, c);
		return;
	default:
		nfs3ds_refuse(c, CTL_NOTSUPP);
	}
}
