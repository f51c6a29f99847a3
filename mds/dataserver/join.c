/* SPDX-License-Identifier: Apache-2.0 */
/*
 * join.c - JOIN, of the control program (ds_control.c). The steps of a join:
 *
 * 1. A durable transaction finds the server's id, or gives it one.
 * 2. The server's link enters the table, so that this side can call it.
 * 3. The join handler runs what must be done on the server before it serves.
 * 4. The join is answered, and the server counts as alive.
 */
#include "base/clock.h"
#include "base/log.h"
#include "mds/journal/event_journal.h"
#include "mds/dataserver/ds_reg_int.h"
#include "proto/ctl_more.h"
#include "proto/ds_key.h"
#include <errno.h>
#include <sodium.h>
#include <urcu/compiler.h>

struct join {
	struct kv_op jn_op;
	struct loop_msg jn_msg;
	struct ds_reg *jn_dsc;
	struct ctl_incoming *jn_in;
	struct loop *jn_loop;
	uint64_t jn_conn;
	bool jn_new, jn_changed;
	bool jn_taken;	    /* another server has its name */
	bool jn_full;	    /* DS_REG_MET_WAIT */
	uint8_t jn_refused; /* dt_barred */
	bool jn_ahead;	    /* it saw a later state of this store */
	bool jn_two;	    /* a second process with one store */
	bool jn_takes_bars; /* it takes DEAD */
	/* It takes keys of its own; it has them, and joined with the cluster key. */
	bool jn_takes_keys, jn_cluster;
	bool jn_met;	       /* it has keys of its own, of other file systems (CTL_HELLO_MEET) */
	const char *jn_behind; /* why its store is behind what was recorded of it; or NULL */
	/* Nothing is recorded. The join is refused, and the server asks again. */
	bool jn_waits;
	struct ds_reg_told jn_told;
	ctl_request jn_ask; /* for a server that does not report what it saw */
	uint32_t jn_number; /* nd_join */
	/* CTL_OP_JOIN or CTL_OP_JOIN2: the answer has the form of the request */
	ctl_op jn_form;
	struct ds_reg_server jn_sv;
	/* dt_own is what the server reported; the others are the store's */
	struct ds_reg_terms jn_terms;
};

/* ---- JOIN ---- */

/* Logs a refused join. Runs on lk's loop. The server asks again every few seconds, so that each
 * connection is logged once, and at most one per second. */
static void join_refused(struct ds_reg_link *lk, const char *name, const char *why)
{
	static _Atomic uint64_t last;
	char addr[80];

	if (!lk || lk->lk_refused || !log_due(&last))
		return;
	lk->lk_refused = true;
	rpc_addr_text((const struct sockaddr *)rpc_conn_peer(lk->lk_conn), addr, sizeof(addr));
	log_warn("refused data server %.64s at %s: %s", name, addr, why);
	journal_add(EV_DS_CHANGED, name, 0, "refused one at %s: %s", addr, why);
}

static bool join_name_ok(const char *s)
{
	if (!*s)
		return false;
	for (; *s; s++)
		if (*s <= ' ' || *s > '~' || *s == '"' || *s == '\\')
			return false;
	return true;
}

/* A power of two that divides every stripe unit. */
#define CLONE_BLOCK_MAX (1u << 20)

/* Copies what the server reports of itself into sv. False: no client could use the server. */
static bool join_check(const ctl_join_args *a, struct ds_reg_server *sv, char own[LABELS_LEN])
{
	char err[256];

	memset(sv, 0, sizeof(*sv));
	if (!join_name_ok(a->name) || strlen(a->name) >= sizeof(sv->sv_name) ||
	    a->max_read < 4096 || a->max_write < 4096 || (a->clone_block & (a->clone_block - 1)) ||
	    a->clone_block > CLONE_BLOCK_MAX ||
	    labels_parse(a->labels, strlen(a->labels), false, own, err, sizeof(err)))
		return false;
	memcpy(sv->sv_uuid, a->ds_uuid, 16);
	strcpy(sv->sv_name, a->name);
	sv->sv_max_read = a->max_read;
	sv->sv_max_write = a->max_write;
	sv->sv_clone_block = a->clone_block;
	sv->sv_capacity = a->capacity;
	sv->sv_available = a->available;
	sv->sv_tls = a->tls <= RPC_TLS_CERT ? (uint8_t)a->tls : RPC_TLS_OFF;
	sv->sv_peers = a->tls == CTL_TLS_PEERS;
	for (unsigned i = 0; i < a->addrs.addrs_len && sv->sv_naddrs < DS_REG_ADDRS; i++) {
		const ctl_addr *ad = &a->addrs.addrs_val[i];
		struct sockaddr_storage ss;
		socklen_t len;

		if (strlen(ad->netid) >= sizeof(sv->sv_addrs[0].netid) ||
		    strlen(ad->uaddr) >= sizeof(sv->sv_addrs[0].uaddr) ||
		    rpc_uaddr_parse(ad->netid, ad->uaddr, &ss, &len)) {
			log_warn("data server %s: ignoring an invalid address", a->name);
			continue;
		}
		sv->sv_addrs[sv->sv_naddrs].prefix = ad->prefix <= 128 ? (uint8_t)ad->prefix : 0;
		strcpy(sv->sv_addrs[sv->sv_naddrs].netid, ad->netid);
		strcpy(sv->sv_addrs[sv->sv_naddrs++].uaddr, ad->uaddr);
	}
	return sv->sv_naddrs > 0;
}

/* Capacity is left out: it changes all the time and is not worth a write. */
static bool same_row(const struct ds_reg_server *a, const struct ds_reg_server *b)
{
	return !strcmp(a->sv_name, b->sv_name) && a->sv_max_read == b->sv_max_read &&
	       a->sv_max_write == b->sv_max_write && a->sv_clone_block == b->sv_clone_block &&
	       a->sv_tls == b->sv_tls && a->sv_naddrs == b->sv_naddrs &&
	       a->sv_protocol == b->sv_protocol && a->sv_own == b->sv_own &&
	       a->sv_key_number == b->sv_key_number && a->sv_peers == b->sv_peers &&
	       !memcmp(a->sv_addrs, b->sv_addrs, sizeof(a->sv_addrs));
}

/* Compares what the server saw of this store with the store. 1: the server may not join now. */
static int join_compare(struct join *jn, struct kv_txn *t, const struct ds_reg_terms *was)
{
	struct ds_reg *d = jn->jn_dsc;
	enum ds_reg_rival rival;
	struct ds_reg_node *nd;
	char why[128];
	int ahead = ds_reg_gate_compare(d, t, was, &jn->jn_told, why);

	if (ahead < 0)
		return ahead;
	pthread_mutex_lock(&d->d_lock);
	nd = ds_reg_find_uuid(d, jn->jn_sv.sv_uuid);
	rival = ds_reg_gate_rival(d, nd, ds_reg_link_find(d, jn->jn_conn), &jn->jn_told);
	jn->jn_ahead = ahead;
	jn->jn_two = rival == DS_REG_RIVAL_TWO && nd->nd_link;
	if (rival == DS_REG_RIVAL_TWO && !nd->nd_link)
		jn->jn_behind = "it is a copy that ran beside the joined one";
	/* When a server's store was restored, what it has not seen proves nothing. */
	if (!jn->jn_behind || ahead || d->d_opts.do_restore)
		ds_reg_gate_reported(d, nd, jn->jn_sv.sv_name, &jn->jn_told, ahead ? why : NULL);
	jn->jn_waits = ahead || rival == DS_REG_RIVAL_WAIT || jn->jn_two || d->d_opts.do_restore ||
		       (!atomic_load(&d->d_open) && !jn->jn_behind);
	ds_reg_unlock(d, nd);
	return jn->jn_waits;
}

/* Records the state that the server must not be behind at its next join. A server whose store is
 * behind waits for the administrator. */
static void join_noted(struct join *jn, const struct ds_reg_terms *was)
{
	struct ds_reg_terms *dt = &jn->jn_terms;

	if (jn->jn_behind) {
		dt->dt_barred = DS_REG_WAITING;
		dt->dt_why = DS_REG_WHY_RESTORED;
		dt->dt_barred_s = (uint64_t)time(NULL);
		return;
	}
	ds_reg_gate_note(dt, was, &jn->jn_told, ns_super(jn->jn_dsc->d_ns)->su_boot);
}

static int join_name_row(void *arg, struct kv_slice id, struct kv_slice val)
{
	struct join *jn = arg;
	struct ds_reg_server sv;
	struct ds_reg_terms dt;

	if (id.s_len == 16 && memcmp(id.s_data, jn->jn_sv.sv_uuid, 16) &&
	    !ds_reg_row_decode(id, val, &sv, &dt))
		jn->jn_taken |= !strcmp(sv.sv_name, jn->jn_sv.sv_name);
	return 0;
}

/* The caller holds d_lock. True when another server, of any kind, has the name. */
static bool name_shared(const struct ds_reg *d, const struct ds_reg_server *sv)
{
	for (uint32_t id = 1; id <= DS_REG_MAX; id++)
		if (d->d_node[id] && memcmp(d->d_node[id]->nd_sv.sv_uuid, sv->sv_uuid, 16) &&
		    !strcmp(d->d_node[id]->nd_sv.sv_name, sv->sv_name))
			return true;
	return false;
}

/* Checks that a new name is free, because commands name servers by it. Two servers that share a
 * name already keep it. The rows include servers that join in the same commit. */
static int join_name_free(struct join *jn, struct kv_txn *t)
{
	int err = ns_rows(t, NS_T_DS, "", 0, join_name_row, jn);

	pthread_mutex_lock(&jn->jn_dsc->d_lock);
	jn->jn_taken |= name_shared(jn->jn_dsc, &jn->jn_sv);
	pthread_mutex_unlock(&jn->jn_dsc->d_lock);
	return err < 0 ? err : 0;
}

/* How many servers wait for weft ds admit. */
static unsigned waiting(struct ds_reg *d)
{
	unsigned n = 0;

	pthread_mutex_lock(&d->d_lock);
	for (uint32_t id = 1; id <= DS_REG_MAX; id++)
		n += d->d_node[id] && d->d_node[id]->nd_terms.dt_barred == DS_REG_WAITING;
	pthread_mutex_unlock(&d->d_lock);
	return n;
}

static int join_run(struct kv_op *op, struct kv_txn *t)
{
	struct join *jn = caa_container_of(op, struct join, jn_op);
	struct ds_reg_terms *dt = &jn->jn_terms, was;
	uint8_t row[DS_REG_ROW_MAX];
	struct ds_reg_server old;
	struct kv_slice val;
	int err = ns_row_get(t, NS_T_DS, jn->jn_sv.sv_uuid, 16, &val);

	if (!err) {
		err = ds_reg_row_decode((struct kv_slice){jn->jn_sv.sv_uuid, 16}, val, &old, &was);
		if (err)
			return err;
		jn->jn_sv.sv_id = old.sv_id;
		jn->jn_cluster = old.sv_own && !jn->jn_sv.sv_own;
		if (jn->jn_cluster)
			return 0;
		if (jn->jn_sv.sv_protocol == old.sv_protocol)
			jn->jn_sv.sv_since_boot = old.sv_since_boot;
		jn->jn_changed = !same_row(&jn->jn_sv, &old);
		if (strcmp(jn->jn_sv.sv_name, old.sv_name)) {
			err = join_name_free(jn, t);
			if (err || jn->jn_taken)
				return err;
		}
		dt->dt_weight = was.dt_weight;
		dt->dt_draining = was.dt_draining;
		dt->dt_barred = was.dt_barred;
		dt->dt_barred_s = was.dt_barred_s;
		strcpy(dt->dt_set, was.dt_set);
		dt->dt_why = was.dt_why;
		dt->dt_boot = was.dt_boot;
		dt->dt_start = was.dt_start;
		dt->dt_start_id = was.dt_start_id;
		dt->dt_order = was.dt_order;
		dt->dt_joins = was.dt_joins;
		dt->dt_had_boot = was.dt_had_boot;
		dt->dt_had_joins = was.dt_had_joins;
		if (!dt->dt_barred) {
			jn->jn_behind = ds_reg_gate_behind(&was, &jn->jn_told);
			err = join_compare(jn, t, &was);
			if (err)
				return err < 0 ? err : 0;
			join_noted(jn, &was);
			err = jn->jn_behind
				      ? journal_put(t, EV_RESTORED, jn->jn_sv.sv_name, 0,
						    "its store was restored from an older copy: "
						    "%s; waiting for weft ds admit",
						    jn->jn_behind)
				      : 0;
			if (err)
				return err;
		}
		if (!jn->jn_changed && !strcmp(dt->dt_own, was.dt_own) &&
		    dt->dt_boot == was.dt_boot && dt->dt_start == was.dt_start &&
		    dt->dt_start_id == was.dt_start_id && dt->dt_order == was.dt_order &&
		    dt->dt_joins == was.dt_joins && dt->dt_had_boot == was.dt_had_boot &&
		    dt->dt_had_joins == was.dt_had_joins && !jn->jn_behind)
			return 0;
	} else if (err == -ENOENT) {
		err = join_name_free(jn, t);
		if (err || jn->jn_taken)
			return err;
		err = join_compare(jn, t, NULL);
		if (err)
			return err < 0 ? err : 0;
		/* Whoever has the key of the file could invent servers without end. */
		jn->jn_full = jn->jn_met && ds_reg_rotated(jn->jn_dsc) &&
			      waiting(jn->jn_dsc) >= DS_REG_MET_WAIT;
		if (jn->jn_full)
			return 0;
		if (ds_reg_count(jn->jn_dsc) >= DS_REG_MAX)
			return -ENOSPC;
		err = ns_next_ds(jn->jn_dsc->d_ns, t, &jn->jn_sv.sv_id);
		if (err)
			return err;
		if (!jn->jn_sv.sv_id || jn->jn_sv.sv_id > DS_REG_MAX)
			return -ENOSPC;
		jn->jn_new = true;
		dt->dt_weight = DS_REG_WEIGHT_ONE;
		/* After a rotation the cluster key of the file lets no server in by itself, nor
		 * does what comes from it. */
		dt->dt_barred =
			jn->jn_dsc->d_opts.do_admit || (jn->jn_met && ds_reg_rotated(jn->jn_dsc))
				? DS_REG_WAITING
				: 0;
		dt->dt_barred_s = dt->dt_barred ? (uint64_t)time(NULL) : 0;
		if (!dt->dt_barred)
			join_noted(jn, NULL);
	} else {
		return err;
	}
	return ns_row_put(t, NS_T_DS, jn->jn_sv.sv_uuid, 16, row,
			  ds_reg_row_encode(&jn->jn_sv, dt, row));
}

/* The caller holds d_lock. Returns the node of jn's server, with lk as its link unless the server
 * may not join. NULL: the server was forgotten, or memory is short. */
static struct ds_reg_node *node_attach(struct ds_reg *d, const struct join *jn,
				       struct ds_reg_link *lk)
{
	struct ds_reg_node *nd = d->d_node[jn->jn_sv.sv_id];

	if (!nd && !jn->jn_new)
		return NULL; /* forgotten meanwhile */
	if (!nd) {
		nd = calloc(1, sizeof(*nd));
		if (nd)
			nd->nd_sv = jn->jn_sv;
		if (!nd || ds_reg_node_add(d, jn->jn_sv.sv_id, nd)) {
			free(nd);
			return NULL;
		}
		nd->nd_terms.dt_weight = jn->jn_terms.dt_weight;
		nd->nd_terms.dt_draining = jn->jn_terms.dt_draining;
		strcpy(nd->nd_terms.dt_set, jn->jn_terms.dt_set);
		nd->nd_terms.dt_barred_s = jn->jn_terms.dt_barred_s;
		if (jn->jn_terms.dt_barred)
			ds_reg_bar(d, nd, jn->jn_terms.dt_barred);
	}
	if (jn->jn_behind && !nd->nd_terms.dt_barred) {
		nd->nd_terms.dt_why = jn->jn_terms.dt_why;
		nd->nd_terms.dt_barred_s = jn->jn_terms.dt_barred_s;
		ds_reg_bar(d, nd, DS_REG_WAITING);
		ds_reg_gate_look(d);
	}
	lk = nd->nd_terms.dt_barred ? NULL : lk;
	/* A newer connection of the same server takes over. The old one is dead or will be soon. */
	if (nd->nd_link && nd->nd_link != lk)
		ds_reg_link_close(d, nd->nd_link->lk_loop, nd->nd_link->lk_id);
	nd->nd_sv = jn->jn_sv;
	nd->nd_terms.dt_boot = jn->jn_terms.dt_boot;
	nd->nd_terms.dt_start = jn->jn_terms.dt_start;
	nd->nd_terms.dt_start_id = jn->jn_terms.dt_start_id;
	nd->nd_terms.dt_order = jn->jn_terms.dt_order;
	nd->nd_terms.dt_joins = jn->jn_terms.dt_joins;
	nd->nd_unproven = 0;
	strcpy(nd->nd_terms.dt_own, jn->jn_terms.dt_own);
	strcpy(nd->nd_terms.dt_version, jn->jn_terms.dt_version);
	labels_merge(nd->nd_terms.dt_own, nd->nd_terms.dt_set, nd->nd_terms.dt_labels);
	if (jn->jn_met) /* join_answer gives it the newest */
		nd->nd_sv.sv_key_number = d->d_ring.rg_number;
	ds_reg_set_key(d, &nd->nd_sv);
	nd->nd_takes_keys = jn->jn_takes_keys;
	nd->nd_key_ms = 0;
	nd->nd_takes_bars = jn->jn_takes_bars;
	nd->nd_living = nd->nd_tell_ms = 0;
	ds_reg_note_clone(d, &nd->nd_sv);
	nd->nd_link = lk;
	nd->nd_loop = lk ? lk->lk_loop : NULL;
	nd->nd_joined = false;
	if (lk)
		lk->lk_server = jn->jn_sv.sv_id;
	return nd;
}

ctl_status ds_reg_ctl_status(int err)
{
	return err == -ENOSPC ? CTL_NOSPC : err == -ESTALE || err == -ENOENT ? CTL_NOENT : CTL_IO;
}

#define MORE_KINDS 5 /* and the list of instances */
#define MORE_ALL   (MORE_KINDS + CTL_INSTANCES_PARTS)

/*
 * Adds to the answer of a JOIN2 what its fixed fields lack; memory is the caller's.
 *
 * STRIPED2: layouts of version 1 that name a server of protocol 5 were given before its first join
 * with that protocol. When an instance later than that join's has passed its grace period and a
 * lease, no client has such a layout.
 */
static void more_put(struct ds_reg *d, const struct join *jn, ctl_join2_res *res,
		     ctl_more more[MORE_ALL], uint8_t buf[MORE_KINDS][8 * CTL_MORE_NUMBERS],
		     uint8_t given[DS_KEY_GIVEN])
{
	const struct ns_super *su = ns_super(d->d_ns);
	uint64_t up = clock_mono_ms() - d->d_start_ms;
	uint64_t left = up < d->d_opts.do_layouts_ms ? d->d_opts.do_layouts_ms - up : 0,
		 joins = jn->jn_terms.dt_joins, takes = 1;
	static const struct ctl_instances none;
	struct ds_key k;
	unsigned n = 0;

	ctl_more_put(&more[n], CTL_MORE_BOOT, &su->su_boot_id, 1, buf[n]);
	n++;
	if (jn->jn_sv.sv_since_boot < su->su_boot) {
		ctl_more_put(&more[n], CTL_MORE_STRIPED2, &left, 1, buf[n]);
		n++;
	}
	if (jn->jn_told.to_counts) {
		ctl_more_put(&more[n], CTL_MORE_JOINS, &joins, 1, buf[n]);
		n++;
	}
	ctl_more_put(&more[n], CTL_MORE_TRAFFIC, &takes, 1, buf[n]);
	n++;
	if (jn->jn_met) {
		ds_reg_key_make(d, jn->jn_sv.sv_uuid, &k);
		ds_key_more_put(&k, &more[n++], given);
		sodium_memzero(&k, sizeof(k));
	}
	/* An empty list too: it withdraws what an earlier one told. */
	n += ctl_instances_put(d->d_opts.do_instances ? d->d_opts.do_instances : &none, &more[n]);
	res->more.more_len = n;
	res->more.more_val = more;
}

/* Runs on the link's loop: the server may serve from now on. */
static void join_answer(struct loop_msg *m)
{
	struct join *jn = caa_container_of(m, struct join, jn_msg);
	struct ds_reg *d = jn->jn_dsc;
	const struct ns_super *su = ns_super(d->d_ns);
	ctl_result res = {.op = jn->jn_form};
	ctl_join_res *j =
		res.op == CTL_OP_JOIN2 ? &res.ctl_result_u.join2.join : &res.ctl_result_u.join;
	uint8_t buf[MORE_KINDS][8 * CTL_MORE_NUMBERS];
	struct ds_reg_node *nd = NULL;
	struct ds_reg_link *lk;
	ctl_more more[MORE_ALL];
	uint8_t given[DS_KEY_GIVEN];

	pthread_mutex_lock(&d->d_lock);
	lk = ds_reg_link_find(d, jn->jn_conn);
	if (lk && lk->lk_server)
		nd = d->d_node[lk->lk_server];
	/* A join that the server gave up, and sent again over the same connection, counts for
	 * nothing: the work before the answer to the later join is not done yet. */
	if (nd && nd->nd_link == lk && nd->nd_join == jn->jn_number) {
		nd->nd_joined = true;
		nd->nd_heard_ms = nd->nd_joined_ms = clock_mono_ms();
		nd->nd_unproven = jn->jn_told.to_counts ? jn->jn_terms.dt_joins : 0;
		if (!nd->nd_unserving) {
			nd->nd_reported_ms = 0;
			ds_reg_set_state(nd, DS_REG_ALIVE);
		}
	} else {
		nd = NULL;
	}
	ds_reg_unlock(d, nd);
	memcpy(j->cluster, su->su_uuid, 16);
	j->fs = su->su_fs;
	j->ds_id = jn->jn_sv.sv_id;
	j->instance_epoch = su->su_boot;
	j->lease_ms = d->d_opts.do_lease_ms;
	/* It has keys in it: only who has joined now gets them. */
	if (nd && res.op == CTL_OP_JOIN2)
		more_put(d, jn, &res.ctl_result_u.join2, more, buf, given);
	if (nd)
		journal_add(EV_DS_JOINED, jn->jn_sv.sv_name, 0,
			    jn->jn_new ? "for the first time" : "again");
	if (nd)
		log_info("data server %u (%s): %s", jn->jn_sv.sv_id, jn->jn_sv.sv_name,
			 jn->jn_new ? "joined for the first time" : "joined");
	if (nd && jn->jn_met)
		log_info("data server %u (%s) has keys of another file system of the cluster, and "
			 "gets those of this one",
			 jn->jn_sv.sv_id, jn->jn_sv.sv_name);
	else if (nd && !jn->jn_sv.sv_own)
		log_warn("data server %u (%s) joined with the cluster key, %s", jn->jn_sv.sv_id,
			 jn->jn_sv.sv_name,
			 jn->jn_takes_keys ? "for the last time: it gets its own keys"
					   : "and its version has no keys of its own: upgrade it");
	ctl_chan_reply(jn->jn_in, nd ? CTL_OK : CTL_NOT_JOINED, nd ? &res : NULL);
	sodium_memzero(given, sizeof(given));
	free(jn);
}

static void join_ready(void *arg)
{
	struct join *jn = arg;

	jn->jn_msg.m_run = join_answer;
	loop_post(jn->jn_loop, &jn->jn_msg);
}

static void join_done(struct kv_op *op, int err)
{
	struct join *jn = caa_container_of(op, struct join, jn_op);
	struct ds_reg *d = jn->jn_dsc;
	struct ds_reg_node *nd = NULL;
	struct ds_reg_link *lk = NULL;
	bool shared = false;

	if (!err && jn->jn_taken) {
		join_refused(ds_reg_link_of(d, jn->jn_conn), jn->jn_sv.sv_name,
			     "another data server has that name");
		ctl_chan_reply(jn->jn_in, CTL_NAME_TAKEN, NULL);
		free(jn);
		return;
	}
	if (!err && jn->jn_full) {
		join_refused(ds_reg_link_of(d, jn->jn_conn), jn->jn_sv.sv_name,
			     "too many data servers wait for weft ds admit: admit or forget some");
		ctl_chan_reply(jn->jn_in, CTL_NOT_ADMITTED, NULL);
		free(jn);
		return;
	}
	if (!err && jn->jn_cluster) {
		join_refused(ds_reg_link_of(d, jn->jn_conn), jn->jn_sv.sv_name,
			     jn->jn_met
				     ? "it has lost the keys of its own that it got here: run "
				       "weft ds key NAME with this metadata server, and start it "
				       "with that file as ds.key"
				     : "it has its own keys but used the cluster key (make a "
				       "new ds.key file with weft ds key)");
		ctl_chan_reply(jn->jn_in, CTL_OWN_KEY, NULL);
		free(jn);
		return;
	}
	if (!err && jn->jn_waits) {
		/* An old release knows no better reason. While a store is being restored, no server
		 * serves under an earlier lease. */
		ctl_chan_reply(jn->jn_in,
			       d->d_opts.do_restore || jn->jn_two ? CTL_NOT_ADMITTED
			       : jn->jn_ahead			  ? CTL_STALE_INSTANCE
								  : CTL_NOT_JOINED,
			       NULL);
		free(jn);
		return;
	}
	if (!err) {
		pthread_mutex_lock(&d->d_lock);
		lk = ds_reg_link_find(d, jn->jn_conn);
		nd = lk ? node_attach(d, jn, lk) : NULL;
		shared = nd && name_shared(d, &jn->jn_sv);
		jn->jn_refused = nd ? nd->nd_terms.dt_barred : 0;
		jn->jn_number = nd ? ++nd->nd_join : 0;
		ds_reg_unlock(d, nd);
		if (!nd)
			err = !lk ? -ENOTCONN : jn->jn_new ? -ENOMEM : -ESTALE;
	}
	if (err) {
		log_error("data server %s: cannot join: %s", jn->jn_sv.sv_name, strerror(-err));
		ctl_chan_reply(jn->jn_in, ds_reg_ctl_status(err), NULL);
		free(jn);
		return;
	}
	if (jn->jn_refused) {
		if (jn->jn_behind)
			log_error("data server %u (%s): its store was restored from an older copy: "
				  "%s; it serves nothing until weft ds admit",
				  jn->jn_sv.sv_id, jn->jn_sv.sv_name, jn->jn_behind);
		join_refused(lk, jn->jn_sv.sv_name,
			     jn->jn_refused == DS_REG_WAITING
				     ? "it waits for weft ds admit"
				     : "it was killed, and needs weft ds admit");
		ctl_chan_reply(jn->jn_in, CTL_NOT_ADMITTED, NULL);
		free(jn);
		return;
	}
	if (shared) {
		log_warn("data server %u and another one are both named %s: rename one of them "
			 "(ds.name)",
			 jn->jn_sv.sv_id, jn->jn_sv.sv_name);
		journal_add(EV_DS_CHANGED, jn->jn_sv.sv_name, 0,
			    "data server %u and another have this name", jn->jn_sv.sv_id);
	}
	/* so that many client connections do not delay its heartbeats */
	rpc_conn_apart(lk->lk_conn);
	if (jn->jn_changed && d->d_change)
		d->d_change(d->d_change_arg, jn->jn_sv.sv_uuid);
	if (d->d_join)
		d->d_join(d->d_join_arg, jn->jn_sv.sv_id, join_ready, jn);
	else
		join_ready(jn);
}

static bool cluster_ok(const struct ds_reg *d, const ctl_join_args *a)
{
	static const char zero[16];

	return !memcmp(a->cluster, zero, 16) || !memcmp(a->cluster, ns_super(d->d_ns)->su_uuid, 16);
}

/* Handles the answer of a server that does not report which boot it saw. It refuses orders of an
 * older boot. */
static void join_asked(void *arg, int err, const ctl_response *res)
{
	struct join *jn = arg;

	if (err) {
		ctl_chan_reply(jn->jn_in, CTL_IO, NULL);
		free(jn);
		return;
	}
	if (res->status == CTL_STALE_INSTANCE)
		jn->jn_told.to_boot = ns_super(jn->jn_dsc->d_ns)->su_boot + 1;
	kv_submit(ns_kv(jn->jn_dsc->d_ns), &jn->jn_op);
}

static void join_told(struct join *jn, const ctl_request *req, const ctl_join_args *a)
{
	const ctl_join2_args *two = &req->ctl_request_u.join2;
	uint64_t seen[CTL_MORE_NUMBERS];
	const ctl_more *more;
	unsigned n;

	jn->jn_told.to_order = a->order_high;
	if (req->op != CTL_OP_JOIN2)
		return;
	more = two->more.more_val;
	n = two->more.more_len;
	ctl_more_get_version(more, n, jn->jn_terms.dt_version);
	jn->jn_takes_keys = ctl_more_get(more, n, CTL_MORE_KEYS, seen, 2);
	jn->jn_takes_bars = ctl_more_get(more, n, CTL_MORE_BARS, seen, 1);
	if (!ctl_more_get(more, n, CTL_MORE_SEEN, seen, CTL_MORE_NUMBERS))
		return;
	jn->jn_told.to_tells = true;
	jn->jn_told.to_boot = seen[0];
	jn->jn_told.to_boot_id = seen[1];
	jn->jn_told.to_start = seen[2];
	jn->jn_told.to_start_id = seen[3];
	jn->jn_told.to_counts = ctl_more_get(more, n, CTL_MORE_JOINS, seen, 2) &&
				seen[0] <= jn->jn_told.to_boot && seen[1] <= UINT32_MAX;
	if (jn->jn_told.to_counts) {
		jn->jn_told.to_kept_boot = seen[0];
		jn->jn_told.to_kept_joins = (uint32_t)seen[1];
	}
}

/* Sets which keys of its own the server has: the seal of the connection proves it, or the server
 * got them over this connection. */
static void join_key(struct join *jn, const struct ds_reg_link *lk)
{
	struct ds_reg *d = lk->lk_dsc;

	jn->jn_sv.sv_own = ctl_chan_own(lk->lk_chan, &jn->jn_sv.sv_key_number);
	jn->jn_met = ctl_chan_seal(lk->lk_chan) == CTL_SEAL_MEET;
	pthread_mutex_lock(&d->d_lock);
	if (lk->lk_moved) {
		jn->jn_met = false;
		jn->jn_sv.sv_own = true;
		jn->jn_sv.sv_key_number = lk->lk_number;
	}
	pthread_mutex_unlock(&d->d_lock);
}

void ds_reg_join_serve(struct ds_reg_link *lk, struct ctl_incoming *in)
{
	const ctl_join_args *a = in->in_req.op == CTL_OP_JOIN2
					 ? &in->in_req.ctl_request_u.join2.join
					 : &in->in_req.ctl_request_u.join;
	bool has_join2 = ctl_chan_protocol(lk->lk_chan) >= CTL_PROTOCOL_JOIN2;
	struct join *jn;

	if (has_join2 != (in->in_req.op == CTL_OP_JOIN2) ||
	    memcmp(a->ds_uuid, ctl_chan_uuid(lk->lk_chan), 16)) {
		ctl_chan_reply(in, CTL_INVAL, NULL);
		return;
	}
	if (!cluster_ok(lk->lk_dsc, a)) {
		join_refused(lk, join_name_ok(a->name) ? a->name : "?",
			     "its store belongs to another cluster");
		ctl_chan_reply(in, CTL_BAD_CLUSTER, NULL);
		return;
	}
	jn = calloc(1, sizeof(*jn));
	if (!jn || !join_check(a, &jn->jn_sv, jn->jn_terms.dt_own)) {
		join_refused(lk, join_name_ok(a->name) ? a->name : "?",
			     "its name, limits, labels or addresses are invalid");
		free(jn);
		ctl_chan_reply(in, CTL_INVAL, NULL);
		return;
	}
	jn->jn_dsc = lk->lk_dsc;
	jn->jn_in = in;
	jn->jn_sv.sv_protocol = (uint8_t)ctl_chan_protocol(lk->lk_chan);
	jn->jn_sv.sv_since_boot = (uint32_t)ns_super(lk->lk_dsc->d_ns)->su_boot;
	join_key(jn, lk);
	jn->jn_form = in->in_req.op;
	jn->jn_loop = lk->lk_loop;
	jn->jn_conn = lk->lk_id;
	jn->jn_op.o_run = join_run;
	jn->jn_op.o_done = join_done;
	jn->jn_op.o_loop = lk->lk_loop;
	join_told(jn, &in->in_req, a);
	if (jn->jn_told.to_tells || jn->jn_form == CTL_OP_JOIN2) {
		kv_submit(ns_kv(lk->lk_dsc->d_ns), &jn->jn_op);
		return;
	}
	jn->jn_ask.op = CTL_OP_ORDERS; /* without orders */
	jn->jn_ask.ctl_request_u.orders.instance_epoch = ns_super(lk->lk_dsc->d_ns)->su_boot;
	if (ctl_chan_call(lk->lk_chan, &jn->jn_ask, CTL_ORDERS_MS, join_asked, jn)) {
		ctl_chan_reply(in, CTL_IO, NULL);
		free(jn);
	}
}
