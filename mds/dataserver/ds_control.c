/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ds_control.c - the metadata server's side of the control program: HELLO, and inside the sealed
 * channel HEARTBEAT and EOF. join.c has JOIN, join_token.c has TOKEN.
 */
#include "base/clock.h"
#include "base/log.h"
#include "mds/journal/event_journal.h"
#include "mds/dataserver/ds_reg_int.h"
#include "proto/ctl_more.h"
#include <errno.h>
#include <urcu/compiler.h>

struct eof_ask {
	struct loop_msg ea_msg;
	struct ctl_incoming *ea_in;
	struct loop *ea_loop;
	int ea_err;
	uint64_t ea_size;
};

struct closing {
	struct loop_msg cg_msg;
	struct ds_reg *cg_dsc;
	uint64_t cg_conn;
};

/* ---- links ---- */

struct ds_reg_link *ds_reg_link_find(struct ds_reg *d, uint64_t conn_id)
{
	uint64_t h = hash_u64(conn_id);

	for (struct hash_link *l = hash_first(&d->d_links, h); l; l = hash_next(l)) {
		struct ds_reg_link *lk = hash_entry(l, struct ds_reg_link, lk_link);

		if (lk->lk_id == conn_id)
			return lk;
	}
	return NULL;
}

struct ds_reg_link *ds_reg_link_of(struct ds_reg *d, uint64_t conn_id)
{
	struct ds_reg_link *lk;

	pthread_mutex_lock(&d->d_lock);
	lk = ds_reg_link_find(d, conn_id);
	pthread_mutex_unlock(&d->d_lock);
	return lk;
}

static void link_close_run(struct loop_msg *m)
{
	struct closing *cg = caa_container_of(m, struct closing, cg_msg);
	struct ds_reg_link *lk = ds_reg_link_of(cg->cg_dsc, cg->cg_conn);

	if (lk)
		rpc_conn_close(lk->lk_conn);
	free(cg);
}

void ds_reg_link_close(struct ds_reg *d, struct loop *loop, uint64_t conn_id)
{
	struct closing *cg = calloc(1, sizeof(*cg));

	if (!cg)
		return;
	cg->cg_msg.m_run = link_close_run;
	cg->cg_dsc = d;
	cg->cg_conn = conn_id;
	loop_post(loop, &cg->cg_msg);
}

/* ---- HELLO of a server that has no keys of this file system ---- */

/* The caller holds d_lock. */
static void meet_forget(struct ds_reg *d, uint64_t conn_id)
{
	for (unsigned i = 0; i < d->d_nmeets; i++)
		if (d->d_meets[i].mt_conn == conn_id) {
			memmove(&d->d_meets[i], &d->d_meets[i + 1],
				(d->d_nmeets - i - 1) * sizeof(d->d_meets[0]));
			d->d_nmeets--;
			return;
		}
}

/* The caller holds d_lock. */
static void meet_end_oldest(struct ds_reg *d)
{
	ds_reg_link_close(d, d->d_meets[0].mt_loop, d->d_meets[0].mt_conn);
	meet_forget(d, d->d_meets[0].mt_conn);
}

/* The caller holds d_lock. The oldest makes room: a server of the cluster sends its JOIN at
 * once. */
static void meet_add(struct ds_reg *d, const struct ds_reg_link *lk)
{
	if (d->d_nmeets == DS_REG_MEETS)
		meet_end_oldest(d);
	d->d_meets[d->d_nmeets++] = (struct ds_reg_meet){lk->lk_id, clock_mono_ms(), lk->lk_loop};
}

void ds_reg_meets_look(struct ds_reg *d)
{
	pthread_mutex_lock(&d->d_lock);
	while (d->d_nmeets && clock_mono_ms() - d->d_meets[0].mt_ms >= DS_REG_MEET_MS)
		meet_end_oldest(d);
	pthread_mutex_unlock(&d->d_lock);
}

/* On the link's loop. */
static void meet_proven(struct ds_reg_link *lk)
{
	if (lk->lk_proven)
		return;
	lk->lk_proven = true;
	pthread_mutex_lock(&lk->lk_dsc->d_lock);
	meet_forget(lk->lk_dsc, lk->lk_id);
	pthread_mutex_unlock(&lk->lk_dsc->d_lock);
}

/* Called at the end of every connection of the process. When there are no links, it returns without
 * the lock. */
void ds_reg_conn_closed(struct ds_reg *d, struct rpc_conn *c)
{
	struct ds_reg_node *nd = NULL;
	struct ds_reg_link *lk;

	if (!atomic_load_explicit(&d->d_nlinks, memory_order_relaxed))
		return;
	pthread_mutex_lock(&d->d_lock);
	lk = ds_reg_link_find(d, rpc_conn_id(c));
	if (lk) {
		hash_del(&d->d_links, &lk->lk_link);
		meet_forget(d, lk->lk_id);
		atomic_fetch_sub(&d->d_nlinks, 1);
		nd = lk->lk_server ? d->d_node[lk->lk_server] : NULL;
		if (nd && nd->nd_link == lk) {
			if (nd->nd_joined)
				journal_add(EV_DS_LEFT, nd->nd_sv.sv_name, 0,
					    "its control connection closed");
			nd->nd_link = NULL;
			nd->nd_joined = false;
			nd->nd_lost_ms = clock_mono_ms();
		}
	}
	ds_reg_unlock(d, nd);
	if (!lk)
		return;
	if (lk->lk_server)
		log_info("data server %u: control connection closed", lk->lk_server);
	ctl_chan_free(lk->lk_chan);
	free(lk);
}

/* ---- HEARTBEAT ---- */

/*
 * The caller holds d_lock. When the server has left a fence or revocation unanswered for a lease,
 * it lives but does not obey. Its lease is not renewed from now on. When the last lease is over,
 * the server honours no capability: that ends the fence, as if the server were dead
 * (docs/fencing.md). A server whose protocol lets no fence overtake may be running a long clone
 * first. It keeps its lease, and the fence waits.
 */
static bool withhold(const struct ds_reg *d, struct ds_reg_node *nd, uint64_t owed_ms)
{
	bool was = nd->nd_withheld;

	nd->nd_withheld =
		owed_ms >= d->d_opts.do_lease_ms && nd->nd_sv.sv_protocol >= CTL_PROTOCOL_OVERTAKE;
	if (nd->nd_withheld && !was) {
		log_warn("data server %u (%s) has not confirmed a fence for %llu ms: not renewing "
			 "its lease",
			 nd->nd_sv.sv_id, nd->nd_sv.sv_name, (unsigned long long)owed_ms);
		journal_add(EV_DS_CHANGED, nd->nd_sv.sv_name, 0,
			    "it does not confirm a fence; its lease is not renewed");
	}
	return nd->nd_withheld;
}

/* The server's counts begin at 0 when it starts; those of before our start are not ours. */
static void traffic_note(struct ds_reg_traffic *tr, const ctl_heartbeat2_args *a)
{
	uint64_t now[3], ms = clock_mono_ms(), more[3];
	double part, s = (double)(ms - tr->tr_ms) / 1000;

	if (!ctl_more_get(a->more.more_val, a->more.more_len, CTL_MORE_TRAFFIC, now, 3))
		return;
	for (unsigned i = 0; i < 3; i++)
		more[i] = !tr->tr_ms		    ? 0
			  : now[i] < tr->tr_last[i] ? now[i]
						    : now[i] - tr->tr_last[i];
	memcpy(tr->tr_last, now, sizeof(now));
	tr->tr_read += more[0];
	tr->tr_written += more[1];
	tr->tr_ops += more[2];
	if (tr->tr_ms && s > 0) {
		part = s < 1 ? s : 1;
		tr->tr_read_rate += ((double)more[0] / s - tr->tr_read_rate) * part;
		tr->tr_written_rate += ((double)more[1] / s - tr->tr_written_rate) * part;
		tr->tr_ops_rate += ((double)more[2] / s - tr->tr_ops_rate) * part;
	}
	tr->tr_ms = ms;
}

static void serve_heartbeat(struct ds_reg_link *lk, struct ctl_incoming *in)
{
	/* both forms, and both answers, begin in the same way */
	const ctl_heartbeat_args *a = &in->in_req.ctl_request_u.heartbeat2.heartbeat;
	ctl_result res = {.op = in->in_req.op};
	struct ds_reg *d = lk->lk_dsc;
	uint64_t owed_ms = d->d_owed && lk->lk_server ? d->d_owed(d->d_owed_arg, lk->lk_server) : 0;
	bool joined = false, withheld = false;
	struct kv_op *proof = NULL;
	struct ds_reg_node *nd;

	pthread_mutex_lock(&d->d_lock);
	nd = lk->lk_server ? d->d_node[lk->lk_server] : NULL;
	if (nd && nd->nd_link == lk && nd->nd_joined) {
		joined = true;
		if (nd->nd_sv.sv_available && !a->available)
			journal_add(EV_DS_NO_SPACE, nd->nd_sv.sv_name, 0,
				    "it is full or its disks fail; it gets no new files");
		nd->nd_sv.sv_capacity = a->capacity;
		nd->nd_sv.sv_available = a->available;
		/* Averages the last few reports, because a burst is over before a report of it
		 * arrives. */
		nd->nd_terms.dt_load =
			(uint32_t)(((uint64_t)nd->nd_terms.dt_load * 3 + a->load) / 4);
		if (in->in_req.op == CTL_OP_HEARTBEAT2)
			traffic_note(&nd->nd_terms.dt_traffic,
				     &in->in_req.ctl_request_u.heartbeat2);
		/* the server sends no heartbeat before its store has the join */
		proof = ds_reg_gate_prove(d, nd);
		withheld = withhold(d, nd, owed_ms);
		if (!withheld)
			nd->nd_heard_ms = clock_mono_ms();
		nd->nd_beats++;
	}
	ds_reg_unlock(d, nd);
	if (proof)
		kv_submit(ns_kv(d->d_ns), proof);
	res.ctl_result_u.heartbeat.instance_epoch = ns_super(d->d_ns)->su_boot;
	res.ctl_result_u.heartbeat.lease_ms = withheld ? 0 : d->d_opts.do_lease_ms;
	ctl_chan_reply(in, joined ? CTL_OK : CTL_NOT_JOINED, joined ? &res : NULL);
}

/* ---- EOF ---- */

static void ds_control_eof_answer(struct loop_msg *m)
{
	struct eof_ask *ea = caa_container_of(m, struct eof_ask, ea_msg);
	ctl_result res = {.op = CTL_OP_EOF};

	res.ctl_result_u.eof.size = ea->ea_size;
	ctl_chan_reply(ea->ea_in, ea->ea_err ? ds_reg_ctl_status(ea->ea_err) : CTL_OK, &res);
	free(ea);
}

static void eof_reply(void *arg, int err, uint64_t size)
{
	struct eof_ask *ea = arg;

	ea->ea_err = err;
	ea->ea_size = size;
	ea->ea_msg.m_run = ds_control_eof_answer;
	loop_post(ea->ea_loop, &ea->ea_msg);
}

static void serve_eof(struct ds_reg_link *lk, struct ctl_incoming *in)
{
	const ctl_eof_args *a = &in->in_req.ctl_request_u.eof;
	struct ds_reg *d = lk->lk_dsc;
	struct eof_ask *ea;

	if (!lk->lk_server || !d->d_eof || !atomic_load(&d->d_open) ||
	    a->incarnation > UINT16_MAX) {
		ctl_chan_reply(in, lk->lk_server ? CTL_NOENT : CTL_NOT_JOINED, NULL);
		return;
	}
	ea = calloc(1, sizeof(*ea));
	if (!ea) {
		ctl_chan_reply(in, CTL_IO, NULL);
		return;
	}
	ea->ea_in = in;
	ea->ea_loop = lk->lk_loop;
	d->d_eof(d->d_eof_arg, lk->lk_loop, a->ino, (uint16_t)a->incarnation, eof_reply, ea);
}

/* ---- the program ---- */

static void ds_control_incoming(struct ctl_incoming *in, void *arg)
{
	struct ds_reg_link *lk = arg;

	meet_proven(lk);
	/* Whoever has a token is no data server: it may ask for keys, and nothing else. */
	if (lk->lk_token != (in->in_req.op == CTL_OP_TOKEN2 || in->in_req.op == CTL_OP_TOKEN)) {
		ctl_chan_reply(in, CTL_INVAL, NULL);
		return;
	}
	switch (in->in_req.op) {
	case CTL_OP_TOKEN:
	case CTL_OP_TOKEN2:
		ds_reg_token_serve(lk, in);
		return;
	case CTL_OP_JOIN:
	case CTL_OP_JOIN2:
		ds_reg_join_serve(lk, in);
		return;
	case CTL_OP_HEARTBEAT:
	case CTL_OP_HEARTBEAT2:
		serve_heartbeat(lk, in);
		return;
	case CTL_OP_EOF:
		serve_eof(lk, in);
		return;
	default:
		ctl_chan_reply(in, CTL_INVAL, NULL);
	}
}

static bool hello_key(void *arg, const uint8_t uuid[16], enum ctl_seal seal, uint8_t number,
		      uint8_t key[CAP_CLUSTER_KEY_LEN])
{
	struct ds_reg_link *lk = arg;

	lk->lk_token = seal == CTL_SEAL_OWN && !number && ds_reg_token_key(lk->lk_dsc, uuid, key);
	return lk->lk_token || ds_reg_key_find(lk->lk_dsc, uuid, seal, number, key);
}

static void serve_hello(struct ds_reg *d, struct rpc_call *call)
{
	static _Atomic uint64_t last, last_second;
	struct rpc_conn *conn = call->c_conn;
	struct ds_reg_link *lk;
	char addr[80];
	int err;

	if (ds_reg_link_of(d, rpc_conn_id(conn))) {
		/* The first HELLO needs no key, so any peer may do this as often as it likes. Limit
		 * the log. */
		if (log_due(&last_second))
			log_warn("control: a second HELLO on one connection; closing it");
		rpc_reply_error(call, RPC_A_SYSTEM_ERR);
		rpc_conn_close(conn);
		return;
	}
	lk = calloc(1, sizeof(*lk));
	if (!lk) {
		rpc_reply_error(call, RPC_A_SYSTEM_ERR);
		return;
	}
	lk->lk_dsc = d;
	lk->lk_conn = conn;
	lk->lk_loop = rpc_conn_loop(conn);
	lk->lk_id = rpc_conn_id(conn);
	err = ctl_chan_accept_by(&lk->lk_chan, call, ns_super(d->d_ns)->su_fs, hello_key, lk,
				 ds_control_incoming, lk);
	if (err == -EKEYREJECTED && log_due(&last)) {
		rpc_addr_text((const struct sockaddr *)rpc_conn_peer(conn), addr, sizeof(addr));
		log_warn("control: %s: a data server uses outdated keys, or the cluster key after "
			 "a rotation (make a new ds.key file with weft ds key)",
			 addr);
	}
	if (err) {
		free(lk);
		return;
	}
	pthread_mutex_lock(&d->d_lock);
	err = hash_add(&d->d_links, &lk->lk_link, hash_u64(lk->lk_id));
	if (!err)
		atomic_fetch_add(&d->d_nlinks, 1);
	if (!err && ctl_chan_seal(lk->lk_chan) == CTL_SEAL_MEET)
		meet_add(d, lk);
	pthread_mutex_unlock(&d->d_lock);
	if (err) {
		ctl_chan_free(lk->lk_chan);
		free(lk);
		rpc_conn_close(conn);
	}
}

void ds_reg_dispatch(struct rpc_call *call, void *arg)
{
	struct ds_reg *d = arg;
	struct ds_reg_link *lk;

	switch (call->c_proc) {
	case CTL_PROC_NULL:
		rpc_reply(call);
		return;
	case CTL_PROC_HELLO:
		serve_hello(d, call);
		return;
	case CTL_PROC_SEALED:
		lk = ds_reg_link_of(d, rpc_conn_id(call->c_conn));
		if (lk)
			ctl_chan_sealed(lk->lk_chan, call);
		else
			rpc_reply_error(call, RPC_A_SYSTEM_ERR);
		return;
	default:
		rpc_reply_error(call, RPC_A_PROC_UNAVAIL);
	}
}
