/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cluster_key.c - the keys of data servers (docs/security.md, "Keys"): which cluster keys exist,
 * from which of them a server's keys are derived, and sending it those of the newest.
 *
 * Number 0 is the cluster key of the file. A rotation makes the next cluster key at random and puts
 * it into the store: row NS_T_KEY. The one before stays good until the next rotation, for servers
 * that were away and for capabilities that clients have. A server is marked as having its own keys
 * once it has answered that they are durable there, or has joined with them. So the metadata server
 * never calls it with keys that it may not have yet.
 */
#include "base/clock.h"
#include "base/log.h"
#include "mds/dataserver/ds_reg_int.h"
#include "mds/journal/event_journal.h"
#include "proto/ds_key.h"
#include <assert.h>
#include <errno.h>
#include <sodium.h>
#include <urcu/compiler.h>

#define ROW_VERSION 1
/* An offer may take so long. */
#define OFFER_MS 5000u
/* An offer is repeated so long after the last one. */
#define AGAIN_MS 2000u

struct key_rec {
	uint8_t kr_version, kr_number, kr_before, kr_zero[5]; /* kr_before: 1 when kr_was is good */
	uint64_t kr_rotated_s;
	uint8_t kr_key[32], kr_was[32];
} __attribute__((packed));
_Static_assert(sizeof(struct key_rec) == 80, "cluster keys, version 1");
static const uint8_t ring_row = 0;

struct offer {
	struct ds_reg_ctl of_ctl;
	struct kv_op of_op;
	struct ds_reg *of_dsc;
	uint32_t of_id;
	uint8_t of_uuid[16];
	uint8_t of_number;
	bool of_taken;
};

/* ---- the cluster keys ---- */

static const uint8_t *ring_find(const struct ds_reg_ring *r, uint8_t number)
{
	if (number == r->rg_number)
		return r->rg_key;
	return r->rg_before && number == (uint8_t)(r->rg_number - 1) ? r->rg_was : NULL;
}

int ds_reg_ring_load(struct ds_reg *d)
{
	struct key_rec rec;
	struct kv_slice val;
	struct kv_txn *t;
	int err = kv_read_begin(ns_kv(d->d_ns), &t);

	cap_derive_fs(d->d_opts.do_cluster_key, (uint16_t)ns_super(d->d_ns)->su_fs,
		      d->d_ring.rg_key);
	if (err)
		return err;
	err = ns_row_get(t, NS_T_KEY, &ring_row, 1, &val);
	if (!err && (val.s_len != sizeof(rec) || *(const uint8_t *)val.s_data != ROW_VERSION))
		err = -EIO;
	if (!err) {
		memcpy(&rec, val.s_data, sizeof(rec));
		d->d_ring.rg_number = rec.kr_number;
		d->d_ring.rg_before = rec.kr_before == 1;
		d->d_ring.rg_rotated_s = le64toh(rec.kr_rotated_s);
		memcpy(d->d_ring.rg_key, rec.kr_key, sizeof(rec.kr_key));
		memcpy(d->d_ring.rg_was, rec.kr_was, sizeof(rec.kr_was));
		sodium_memzero(&rec, sizeof(rec));
	}
	kv_read_end(t);
	return err == -ENOENT ? 0 : err;
}

void ds_reg_set_key(struct ds_reg *d, struct ds_reg_server *sv)
{
	const uint8_t *key = ring_find(&d->d_ring, sv->sv_key_number);

	/* A server that was away for two rotations cannot join with the keys it has. */
	if (!key) {
		sv->sv_key_number = d->d_ring.rg_number;
		key = d->d_ring.rg_key;
	}
	cap_derive_key(key, sv->sv_uuid, sv->sv_key_number, sv->sv_key);
}

bool ds_reg_cap_open(struct ds_reg *d, const struct ds_reg_server *sv, const uint8_t fh[CAP_LEN],
		     struct cap *cap)
{
	uint8_t number = cap_key_number(fh), key[CAP_KEY_LEN];
	const uint8_t *cluster;
	bool good;

	if (number == sv->sv_key_number)
		return cap_open(fh, sv->sv_key, cap);
	pthread_mutex_lock(&d->d_lock);
	cluster = ring_find(&d->d_ring, number);
	if (cluster)
		cap_derive_key(cluster, sv->sv_uuid, number, key);
	pthread_mutex_unlock(&d->d_lock);
	good = cluster && cap_open(fh, key, cap);
	sodium_memzero(key, sizeof(key));
	return good;
}

bool ds_reg_key_find(void *arg, const uint8_t ds_uuid[16], enum ctl_seal seal, uint8_t number,
		     uint8_t key[CAP_CLUSTER_KEY_LEN])
{
	struct ds_reg *d = arg;
	uint8_t tls[CAP_TLS_KEY_LEN];
	const uint8_t *cluster;

	if (seal == CTL_SEAL_MEET) {
		/* A server that has joined with keys of this file system is refused at the join. */
		cap_derive_tls_key(d->d_opts.do_cluster_key, ds_uuid, tls);
		ds_key_derive_meet(tls, ds_uuid, key);
		sodium_memzero(tls, sizeof(tls));
		return true;
	}
	pthread_mutex_lock(&d->d_lock);
	cluster = ring_find(&d->d_ring, number);
	/* The cluster key of the file is valid until the first rotation. */
	if (seal == CTL_SEAL_CLUSTER)
		cluster = d->d_ring.rg_number ? NULL : d->d_opts.do_cluster_key;
	if (cluster && seal == CTL_SEAL_OWN)
		ds_key_derive_control(cluster, ds_uuid, number, key);
	else if (cluster)
		memcpy(key, cluster, CAP_CLUSTER_KEY_LEN);
	pthread_mutex_unlock(&d->d_lock);
	return cluster != NULL;
}

bool ds_reg_rotated(struct ds_reg *d)
{
	bool rotated;

	pthread_mutex_lock(&d->d_lock);
	rotated = d->d_ring.rg_number || d->d_ring.rg_before;
	pthread_mutex_unlock(&d->d_lock);
	return rotated;
}

void ds_reg_tls_key(struct ds_reg *d, const struct ds_reg_server *sv, uint8_t out[CAP_TLS_KEY_LEN])
{
	/* Always from number 0, so that a rotation ends no connection of a daemon. */
	cap_derive_tls_key(d->d_opts.do_cluster_key, sv->sv_uuid, out);
}

void ds_reg_peer_key(struct ds_reg *d, const struct ds_reg_server *source, const uint8_t reader[16],
		     uint8_t out[CAP_TLS_KEY_LEN])
{
	uint8_t tls[CAP_TLS_KEY_LEN];

	ds_reg_tls_key(d, source, tls);
	ds_key_derive_peer(tls, reader, out);
	sodium_memzero(tls, sizeof(tls));
}

static void cluster_key_key_make(struct ds_reg *d, const uint8_t uuid[16], struct ds_key *k)
{
	ds_key_derive(d->d_ring.rg_key, d->d_opts.do_cluster_key, uuid, d->d_ring.rg_number,
		      (uint16_t)ns_super(d->d_ns)->su_fs, k);
}

void ds_reg_key_make(struct ds_reg *d, const uint8_t uuid[16], struct ds_key *k)
{
	pthread_mutex_lock(&d->d_lock);
	cluster_key_key_make(d, uuid, k);
	pthread_mutex_unlock(&d->d_lock);
}

/* ---- sending keys to a server ---- */

static int cluster_key_mark_run(struct kv_op *op, struct kv_txn *t)
{
	struct offer *of = caa_container_of(op, struct offer, of_op);
	uint8_t row[DS_REG_ROW_MAX];
	struct ds_reg_server sv;
	struct ds_reg_terms dt;
	struct kv_slice val;
	int err = ns_row_get(t, NS_T_DS, of->of_uuid, 16, &val);

	if (!err)
		err = ds_reg_row_decode((struct kv_slice){of->of_uuid, 16}, val, &sv, &dt);
	if (err)
		return err;
	sv.sv_own = true;
	sv.sv_key_number = of->of_number;
	return ns_row_put(t, NS_T_DS, of->of_uuid, 16, row, ds_reg_row_encode(&sv, &dt, row));
}

static void cluster_key_mark_done(struct kv_op *op, int err)
{
	struct offer *of = caa_container_of(op, struct offer, of_op);
	struct ds_reg *d = of->of_dsc;
	struct ds_reg_node *nd;

	pthread_mutex_lock(&d->d_lock);
	nd = d->d_node[of->of_id];
	if (nd)
		nd->nd_keying = false;
	if (nd && !err) {
		if (!nd->nd_sv.sv_own)
			journal_add(
				EV_DS_CHANGED, nd->nd_sv.sv_name, 0,
				"it has its own keys now and cannot join with the cluster key any "
				"more");
		nd->nd_sv.sv_own = true;
		nd->nd_sv.sv_key_number = of->of_number;
		ds_reg_set_key(d, &nd->nd_sv);
	}
	ds_reg_unlock(d, nd);
	if (err)
		log_error("data server %u: cannot record that it has its own keys: %s", of->of_id,
			  strerror(-err));
	free(of);
}

/* Runs on the connection's loop. */
static void offer_take(struct ds_reg_ctl *c, const ctl_response *res)
{
	struct offer *of = caa_container_of(c, struct offer, of_ctl);
	struct ds_reg *d = of->of_dsc;

	of->of_taken =
		res->status == CTL_OK && res->result.ctl_result_u.key.number == of->of_number;
	if (!of->of_taken)
		return;
	/* The server may join again over this connection, which stays sealed with the key it
	 * has. */
	pthread_mutex_lock(&d->d_lock);
	if (d->d_node[of->of_id] && d->d_node[of->of_id]->nd_link) {
		d->d_node[of->of_id]->nd_link->lk_moved = true;
		d->d_node[of->of_id]->nd_link->lk_number = of->of_number;
	}
	pthread_mutex_unlock(&d->d_lock);
}

static void offer_done(struct ds_reg_ctl *c, int err)
{
	struct offer *of = caa_container_of(c, struct offer, of_ctl);
	struct ds_reg *d = of->of_dsc;
	struct ds_reg_node *nd;

	sodium_memzero(&c->dc_req, sizeof(c->dc_req));
	if (!err && of->of_taken) {
		of->of_op.o_run = cluster_key_mark_run;
		of->of_op.o_done = cluster_key_mark_done;
		kv_submit(ns_kv(d->d_ns), &of->of_op);
		return;
	}
	pthread_mutex_lock(&d->d_lock);
	nd = d->d_node[of->of_id];
	if (nd)
		nd->nd_keying = false;
	ds_reg_unlock(d, nd);
	free(of);
}

/* The caller holds d_lock. */
static bool key_wanted(const struct ds_reg *d, const struct ds_reg_node *nd, uint64_t now)
{
	return nd && !nd->nd_gen && nd->nd_joined && nd->nd_link && nd->nd_takes_keys &&
	       !nd->nd_keying &&
	       (!nd->nd_sv.sv_own || nd->nd_sv.sv_key_number != d->d_ring.rg_number) &&
	       (!nd->nd_key_ms || now - nd->nd_key_ms >= AGAIN_MS);
}

void ds_reg_key_look(struct ds_reg *d, uint32_t id)
{
	struct offer *of = NULL;
	struct ds_reg_node *nd;
	struct ds_key k;

	pthread_mutex_lock(&d->d_lock);
	nd = d->d_node[id];
	if (key_wanted(d, nd, clock_mono_ms()) && (of = calloc(1, sizeof(*of)))) {
		cluster_key_key_make(d, nd->nd_sv.sv_uuid, &k);
		nd->nd_keying = true;
		nd->nd_key_ms = clock_mono_ms();
	}
	ds_reg_unlock(d, nd);
	if (!of)
		return;
	of->of_dsc = d;
	of->of_id = id;
	of->of_number = k.dk_number;
	memcpy(of->of_uuid, k.dk_uuid, 16);
	of->of_ctl.dc_req.op = CTL_OP_KEY;
	ds_key_put(&k, &of->of_ctl.dc_req.ctl_request_u.key);
	sodium_memzero(&k, sizeof(k));
	of->of_ctl.dc_req.ctl_request_u.key.instance_epoch = ns_super(d->d_ns)->su_boot;
	of->of_ctl.dc_take = offer_take;
	of->of_ctl.dc_done = offer_done;
	ds_reg_call(d, id, &of->of_ctl, OFFER_MS);
}

/* ---- rotation ---- */

/* The caller holds d_lock. True when the server does not have the newest number. */
static bool cluster_key_behind(const struct ds_reg *d, const struct ds_reg_node *nd)
{
	return nd && !nd->nd_gen && !nd->nd_sv.sv_nfs3 &&
	       !(nd->nd_sv.sv_own && nd->nd_sv.sv_key_number == d->d_ring.rg_number);
}

/* The caller holds d_lock. Returns a server that is behind and that the administrator has not
 * barred, or NULL. Another rotation would leave that server behind for good. */
static const struct ds_reg_node *held(const struct ds_reg *d)
{
	for (uint32_t id = 1; id <= DS_REG_MAX; id++)
		if (cluster_key_behind(d, d->d_node[id]) && !d->d_node[id]->nd_terms.dt_barred)
			return d->d_node[id];
	return NULL;
}

static int rotate_run(struct kv_op *op, struct kv_txn *t)
{
	struct ds_reg_rotate *ro = caa_container_of(op, struct ds_reg_rotate, ro_op);
	struct ds_reg_ring now;
	struct key_rec rec;
	bool left;
	int err;

	pthread_mutex_lock(&ro->ro_dsc->d_lock);
	now = ro->ro_dsc->d_ring;
	left = held(ro->ro_dsc) != NULL; /* a server may have joined since the first check */
	pthread_mutex_unlock(&ro->ro_dsc->d_lock);
	if (now.rg_number != ro->ro_from || left) {
		err = left ? -EBUSY : -EAGAIN;
		goto out;
	}
	memcpy(now.rg_was, now.rg_key, sizeof(now.rg_was));
	randombytes_buf(now.rg_key, sizeof(now.rg_key));
	now.rg_number++;
	now.rg_before = true;
	now.rg_rotated_s = (uint64_t)time(NULL);
	rec = (struct key_rec){.kr_version = ROW_VERSION,
			       .kr_number = now.rg_number,
			       .kr_before = 1,
			       .kr_rotated_s = htole64(now.rg_rotated_s)};
	memcpy(rec.kr_key, now.rg_key, sizeof(rec.kr_key));
	memcpy(rec.kr_was, now.rg_was, sizeof(rec.kr_was));
	err = ns_row_put(t, NS_T_KEY, &ring_row, 1, &rec, sizeof(rec));
	sodium_memzero(&rec, sizeof(rec));
	ro->ro_ring = now;
out:
	sodium_memzero(&now, sizeof(now));
	return err;
}

static void cluster_key_rotate_done(struct kv_op *op, int err)
{
	struct ds_reg_rotate *ro = caa_container_of(op, struct ds_reg_rotate, ro_op);
	struct ds_reg *d = ro->ro_dsc;

	if (!err) {
		pthread_mutex_lock(&d->d_lock);
		d->d_ring = ro->ro_ring;
		for (uint32_t id = 1; id <= DS_REG_MAX; id++)
			if (d->d_node[id])
				d->d_node[id]->nd_key_ms = 0;
		pthread_mutex_unlock(&d->d_lock);
	}
	sodium_memzero(&ro->ro_ring, sizeof(ro->ro_ring));
	ro->ro_done(ro, err);
}

void ds_reg_rotate(struct ds_reg *d, struct ds_reg_rotate *ro)
{
	ro->ro_dsc = d;
	ro->ro_op.o_run = rotate_run;
	ro->ro_op.o_done = cluster_key_rotate_done;
	kv_submit(ns_kv(d->d_ns), &ro->ro_op);
}

unsigned ds_reg_keys_view(struct ds_reg *d, struct ds_reg_key_view *kv)
{
	const struct ds_reg_node *left;
	unsigned n = 0;

	pthread_mutex_lock(&d->d_lock);
	left = held(d);
	strcpy(kv->kv_held, left ? left->nd_sv.sv_name : "");
	kv->kv_number = d->d_ring.rg_number;
	kv->kv_before = d->d_ring.rg_before;
	kv->kv_rotated_s = d->d_ring.rg_rotated_s;
	for (uint32_t id = 1; id <= DS_REG_MAX; id++) {
		const struct ds_reg_node *nd = d->d_node[id];

		if (!cluster_key_behind(d, nd))
			continue;
		if (n < DS_REG_KEY_BEHIND) {
			struct ds_reg_key_behind *b = &kv->kv_behind[n];

			strcpy(b->kb_name, nd->nd_sv.sv_name);
			b->kb_own = nd->nd_sv.sv_own;
			b->kb_alive = ds_reg_node_alive(d, nd);
			b->kb_barred = nd->nd_terms.dt_barred != 0;
			b->kb_takes = nd->nd_takes_keys;
		}
		n++;
	}
	pthread_mutex_unlock(&d->d_lock);
	return n;
}

bool ds_reg_layouts_known(struct ds_reg *d)
{
	return clock_mono_ms() - d->d_start_ms >= d->d_opts.do_layouts_ms;
}
