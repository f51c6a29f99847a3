/* SPDX-License-Identifier: Apache-2.0 */
/* repair_row.c - the durable state and the steps of repair; see repair_row.h. */
#include "mds/layout/repair_row.h"
#include "mds/layout/mirror_change.h"
#include "mds/layout/lo_int.h"
#include "proto/rpc_tls.h"
#include <errno.h>
#include <sodium.h>
#include <stdatomic.h>
#include <time.h>
#include <urcu/compiler.h>

#define REPAIR_VERSION 1
#define LOST_VERSION   1
#define STEP_MS	       30000
#define END_MS	       300000 /* END syncs an object that may be large */
#define FIRST_S	       2      /* the first wait after a failure */
#define LAST_S	       300

struct repair_rec {
	uint8_t rre_version, rre_object, rre_fails, rre_why;
	uint32_t rre_bad;
	uint64_t rre_session, rre_done, rre_after;
	uint8_t rre_now, rre_asked, rre_number, rre_cancelled;
	uint32_t rre_begun;
} __attribute__((packed));
_Static_assert(sizeof(struct repair_rec) == 40, "repair record, version 1");

const char *lo_repair_why_text(enum lo_repair_why why)
{
	static const char *const text[LO_REPAIR_WHYS] = {
		[LO_REPAIR_FINE] = "about to begin",
		[LO_REPAIR_BUSY] = "another operation was changing the file",
		[LO_REPAIR_NO_SOURCE] = "no copy in sync could be read",
		[LO_REPAIR_NO_ANSWER] = "the data server did not answer",
		[LO_REPAIR_TARGET] = "the data server failed",
		[LO_REPAIR_FULL] = "the data server is full",
		[LO_REPAIR_CHANGED] = "the file changed while the object was rebuilt",
		[LO_REPAIR_LOST] = "no copy of it exists any more: it is lost",
	};

	return why < LO_REPAIR_WHYS ? text[why] : "?";
}

/* ---- the table ---- */

static uint64_t repair_row_key_of(uint64_t ino)
{
	return htobe64(ino);
}

int lo_repair_decode(struct kv_slice id, struct kv_slice val, uint64_t *ino, struct lo_repair *rr)
{
	struct repair_rec r;

	if (id.s_len != 8 || val.s_len != sizeof(r))
		return -EIO;
	memcpy(ino, id.s_data, 8);
	*ino = be64toh(*ino);
	memcpy(&r, val.s_data, sizeof(r));
	if (!*ino || r.rre_version != REPAIR_VERSION || r.rre_object >= LO_MAX_OBJECTS ||
	    r.rre_why >= LO_REPAIR_WHYS || r.rre_now > 1 || r.rre_asked >= LO_REPAIR_ASKS ||
	    r.rre_cancelled > 1 || le32toh(r.rre_bad) > DS_REG_MAX)
		return -EIO;
	*rr = (struct lo_repair){
		.rr_session = le64toh(r.rre_session),
		.rr_done = le64toh(r.rre_done),
		.rr_after = le64toh(r.rre_after),
		.rr_bad = le32toh(r.rre_bad),
		.rr_object = r.rre_object,
		.rr_fails = r.rre_fails,
		.rr_why = r.rre_why,
		.rr_now = r.rre_now,
		.rr_cancelled = r.rre_cancelled,
		.rr_asked = r.rre_asked,
		.rr_number = r.rre_number,
		.rr_begun_s = le32toh(r.rre_begun),
	};
	return 0;
}

int lo_repair_get(struct kv_txn *t, uint64_t ino, struct lo_repair *rr)
{
	uint64_t key = repair_row_key_of(ino);
	struct kv_slice val;
	int err = ns_row_get(t, NS_T_REPAIR, &key, 8, &val);

	return err ? err : lo_repair_decode((struct kv_slice){&key, 8}, val, &ino, rr);
}

/* Numbers rise from one row to the next, so that two rows of a file seldom have the same. */
static uint8_t repair_row_next(void)
{
	static _Atomic uint32_t last;
	uint32_t none = 0;

	if (!atomic_load(&last))
		atomic_compare_exchange_strong(&last, &none, 1 + randombytes_uniform(1u << 16));
	return (uint8_t)(1 + atomic_fetch_add(&last, 1) % UINT8_MAX);
}

int lo_repair_put(struct kv_txn *t, uint64_t ino, const struct lo_repair *rr)
{
	uint64_t key = repair_row_key_of(ino);
	struct lo_repair job = *rr;
	struct repair_rec r = {
		.rre_version = REPAIR_VERSION,
		.rre_object = rr->rr_object,
		.rre_fails = rr->rr_fails,
		.rre_why = rr->rr_why,
		.rre_bad = htole32(rr->rr_bad),
		.rre_session = htole64(rr->rr_session),
		.rre_done = htole64(rr->rr_done),
		.rre_after = htole64(rr->rr_after),
		.rre_now = rr->rr_now,
	};

	if (!job.rr_number && (lo_repair_get(t, ino, &job) || !job.rr_number)) {
		job.rr_number = repair_row_next();
		job.rr_begun_s = (uint32_t)time(NULL);
		job.rr_asked = rr->rr_asked;
		job.rr_cancelled = false;
	}
	r.rre_asked = job.rr_asked;
	r.rre_number = job.rr_number;
	r.rre_cancelled = job.rr_cancelled;
	r.rre_begun = htole32(job.rr_begun_s);
	return ns_row_put(t, NS_T_REPAIR, &key, 8, &r, sizeof(r));
}

int lo_repair_del(struct kv_txn *t, uint64_t ino)
{
	uint64_t key = repair_row_key_of(ino);

	return ns_row_del(t, NS_T_REPAIR, &key, 8);
}

int lo_repair_note(struct kv_txn *t, uint64_t ino, const struct lo_map *m)
{
	struct lo_repair rr = {0};
	uint64_t key = repair_row_key_of(ino);
	struct kv_slice val;

	if (lo_map_whole(m) || !ns_row_get(t, NS_T_REPAIR, &key, 8, &val))
		return 0;
	return lo_repair_put(t, ino, &rr);
}

void lo_repair_failed(struct lo_repair *rr, enum lo_repair_why why, uint64_t now_s)
{
	uint64_t wait = rr->rr_fails < 8 ? (uint64_t)FIRST_S << rr->rr_fails : LAST_S;

	rr->rr_session = rr->rr_done = 0;
	rr->rr_fails += rr->rr_fails < UINT8_MAX;
	rr->rr_why = (uint8_t)why;
	rr->rr_after = now_s + (wait < LAST_S ? wait : LAST_S);
}

uint64_t lo_repair_waits(const struct lo_repair *rr, uint64_t now_s)
{
	uint64_t left = rr->rr_after > now_s ? rr->rr_after - now_s : 0;

	return left <= LAST_S ? left : 0;
}

void lo_repair_of(struct lo_repair *rr, unsigned obj)
{
	if (rr->rr_object != obj)
		rr->rr_bad = 0;
	rr->rr_object = (uint8_t)obj;
}

/* After the first failure on a server, repair tries the same object on another server. After the
 * second, it continues with the next object. So each object gets both. */
unsigned lo_repair_first(const struct lo_repair *rr)
{
	if (!rr->rr_fails)
		return 0;
	return rr->rr_bad && rr->rr_fails % 2 ? rr->rr_object : rr->rr_object + 1u;
}

struct rows {
	int (*fn)(void *arg, uint64_t ino, const struct lo_repair *rr);
	void *arg;
};

static int repair_row_rows_one(void *arg, struct kv_slice id, struct kv_slice val)
{
	struct rows *rs = arg;
	struct lo_repair rr;
	uint64_t ino;

	/* the checker reports rows that do not decode */
	return lo_repair_decode(id, val, &ino, &rr) ? 0 : rs->fn(rs->arg, ino, &rr);
}

int lo_repairs(struct kv_txn *t, uint64_t from,
	       int (*fn)(void *arg, uint64_t ino, const struct lo_repair *rr), void *arg)
{
	struct rows rs = {fn, arg};
	uint64_t key = repair_row_key_of(from);

	return ns_rows(t, NS_T_REPAIR, &key, 8, repair_row_rows_one, &rs);
}

int lo_lost_writers_put(struct kv_txn *t)
{
	uint8_t version = LOST_VERSION;
	uint64_t key = 0;

	return ns_row_put(t, NS_T_REPAIR, &key, 8, &version, 1);
}

int lo_lost_writers_del(struct kv_txn *t)
{
	return lo_repair_del(t, 0);
}

bool lo_lost_writers_get(struct kv_txn *t)
{
	struct kv_slice val;
	uint64_t key = 0;

	return ns_row_get(t, NS_T_REPAIR, &key, 8, &val) == 0;
}

/* ---- where an object is rebuilt ---- */

int lo_repair_source(struct lo *lo, const struct lo_map *m, unsigned obj, unsigned r)
{
	struct ds_reg_server sv;
	int k;

	for (unsigned n = 0; (k = lo_copy(m, obj % m->lm_stripes, n)) >= 0; n++)
		if (ds_reg_get(lo->l_dsc, m->lm_obj[k].ob_ds, &sv) && sv.sv_alive && r-- == 0)
			return k;
	return -1;
}

/* Returns another server that the file's policy allows. Servers and domains of objects that leave
 * the stripe may be taken. */
static uint32_t elsewhere(struct lo *lo, const struct lo_map *m, unsigned obj, uint32_t bad)
{
	unsigned stripe = obj % m->lm_stripes;
	int goes = lo_leaving(m, stripe);

	return lo_place_object(lo, m, stripe, lo_mirror_of(m, obj),
			       UINT64_C(1) << obj | (goes < 0 ? 0 : UINT64_C(1) << goes), bad);
}

bool lo_fence_hangs(struct lo *lo, const struct lo_map *m)
{
	for (unsigned i = 0; i < lo_objects(m); i++) {
		const struct lo_object *o = &m->lm_obj[i];

		if (o->ob_state != LO_STALE && o->ob_state != LO_ABSENT &&
		    !ds_reg_linked(lo->l_dsc, o->ob_ds) && ds_reg_leased(lo->l_dsc, o->ob_ds))
			return true;
	}
	return false;
}

enum lo_where lo_repair_where(struct lo *lo, const struct lo_map *m, unsigned obj,
			      const struct lo_repair *rr, uint32_t wait_ms, uint32_t *ds,
			      uint64_t *left_ms)
{
	uint32_t own = m->lm_obj[obj].ob_ds, bad = rr->rr_object == obj ? rr->rr_bad : 0;
	uint64_t silent = ds_reg_since_heartbeat_ms(lo->l_dsc, own);

	*ds = own;
	*left_ms = 0;
	if (lo_repair_source(lo, m, obj, 0) < 0)
		return LO_WAIT_SOURCE;
	if (silent && !rr->rr_now && silent < wait_ms) {
		*left_ms = wait_ms - silent;
		return LO_WAIT_SERVER;
	}
	if (lo_fence_hangs(lo, m))
		return LO_WAIT_LEASE;
	if (!silent && bad != own && !ds_reg_draining(lo->l_dsc, own))
		return LO_IN_PLACE;
	*ds = elsewhere(lo, m, obj, bad);
	if (*ds)
		return LO_ELSEWHERE;
	*ds = own;
	/* the own server failed or is drained, and there is no other */
	return silent ? LO_WAIT_SPACE : LO_IN_PLACE;
}

/* ---- a step ---- */

static int step_err(ctl_status st)
{
	switch (st) {
	case CTL_OK:
		return 0;
	case CTL_BAD_SESSION:
		return -ESTALE;
	case CTL_SOURCE:
		return -EREMOTEIO;
	case CTL_FENCED:
		return -EACCES;
	case CTL_NOSPC:
		return -ENOSPC;
	case CTL_NOT_JOINED:
	case CTL_STALE_INSTANCE:
		return -ETIMEDOUT;
	case CTL_REBUILDING:
		return -ENOLINK;
	default:
		return -EIO;
	}
}

static void repair_row_step_take(struct ds_reg_ctl *c, const ctl_response *res)
{
	struct lo_rebuild *rb = caa_container_of(c, struct lo_rebuild, rb_ctl);

	rb->rb_status = res->status;
	if (res->status == CTL_OK)
		rb->rb_res = res->result.ctl_result_u.rebuild;
}

static void repair_row_step_done(struct ds_reg_ctl *c, int err)
{
	struct lo_rebuild *rb = caa_container_of(c, struct lo_rebuild, rb_ctl);

	err = err ? -ETIMEDOUT : step_err(rb->rb_status);
	/* A PULL without progress would repeat for ever, so it ends with a timeout. */
	if (!err && rb->rb_step == CTL_REBUILD_PULL && !rb->rb_res.eof &&
	    rb->rb_res.next <= rb->rb_off)
		err = rb->rb_res.next == rb->rb_off ? -ETIMEDOUT : -EIO;
	rb->rb_done(rb, err);
}

/* Adds the key that the reader proves to the source over TLS. It takes a place among the addresses,
 * after at least one address. */
static void repair_row_peer_key(struct lo *lo, uint32_t reader, const struct ds_reg_server *source,
				ctl_addr addrs[DS_REG_ADDRS], char key[LO_PEER_KEY], ctl_peer *p)
{
	static char netid[] = "key";
	uint8_t secret[CAP_TLS_KEY_LEN];
	struct ds_reg_server sv;

	/* For a reader without keys of its own the cluster key is enough when the source's TLS
	 * serves clients. When it does not, this key alone says that the source has TLS. */
	if ((source->sv_tls == RPC_TLS_OFF && !source->sv_peers) || source->sv_nfs3 ||
	    !ds_reg_get(lo->l_dsc, reader, &sv) || (!sv.sv_own && !source->sv_peers))
		return;
	ds_reg_peer_key(lo->l_dsc, source, sv.sv_uuid, secret);
	sodium_bin2hex(key, LO_PEER_KEY, secret, sizeof(secret));
	sodium_memzero(secret, sizeof(secret));
	p->addrs.addrs_len -= p->addrs.addrs_len == DS_REG_ADDRS;
	addrs[p->addrs.addrs_len++] = (ctl_addr){netid, key, 0};
}

bool lo_ctl_peer(struct lo *lo, uint32_t ds, uint32_t reader, struct ds_reg_server *sv,
		 ctl_addr addrs[DS_REG_ADDRS], char key[LO_PEER_KEY], ctl_peer *p)
{
	if (!ds_reg_get(lo->l_dsc, ds, sv))
		return false;
	for (unsigned i = 0; i < sv->sv_naddrs; i++)
		addrs[i] = (ctl_addr){sv->sv_addrs[i].netid, sv->sv_addrs[i].uaddr,
				      sv->sv_addrs[i].prefix};
	p->addrs.addrs_len = sv->sv_naddrs;
	p->addrs.addrs_val = addrs;
	memcpy(p->ds_uuid, sv->sv_uuid, sizeof(p->ds_uuid));
	p->tls = sv->sv_tls;
	repair_row_peer_key(lo, reader, sv, addrs, key, p);
	return true;
}

/* Fills in the copy to read: its server's addresses, and a capability to read it. */
static bool peer(struct lo *lo, struct lo_rebuild *rb, ctl_peer *p)
{
	struct ds_reg_server *sv = &rb->rb_peer;

	if (!lo_ctl_peer(lo, rb->rb_map.lm_obj[rb->rb_source].ob_ds,
			 rb->rb_map.lm_obj[rb->rb_obj].ob_ds, sv, rb->rb_addrs, rb->rb_key, p))
		return false;
	if (sv->sv_nfs3) {
		if (lo_handle(lo, sv, rb->rb_ino, rb->rb_incarnation, &rb->rb_map, rb->rb_source,
			      CAP_READ, 0, &rb->rb_foreign))
			return false;
		p->foreign.foreign_len = rb->rb_foreign.dh_len;
		p->foreign.foreign_val = (char *)rb->rb_foreign.dh_data;
		p->uid = rb->rb_foreign.dh_uid;
		p->gid = rb->rb_foreign.dh_gid;
		return true;
	}
	lo_mint(lo, sv, rb->rb_ino, rb->rb_incarnation, &rb->rb_map, rb->rb_source,
		CAP_READ | (rb->rb_map.lm_stripes > 1 ? CAP_STRIPED : 0), 0, (uint8_t *)p->handle);
	return true;
}

void lo_rebuild(struct lo *lo, struct lo_rebuild *rb)
{
	ctl_rebuild_args *a = &rb->rb_ctl.dc_req.ctl_request_u.rebuild;

	memset(&rb->rb_ctl, 0, sizeof(rb->rb_ctl));
	memset(&rb->rb_res, 0, sizeof(rb->rb_res));
	rb->rb_ctl.dc_req.op = CTL_OP_REBUILD;
	rb->rb_ctl.dc_take = repair_row_step_take;
	rb->rb_ctl.dc_done = repair_row_step_done;
	a->instance_epoch = ns_super(lo->l_ns)->su_boot;
	a->step = (ctl_rebuild_step)rb->rb_step;
	lo_ctl_object(lo, rb->rb_ino, rb->rb_incarnation, &rb->rb_map, rb->rb_obj, &a->object);
	a->epoch = rb->rb_map.lm_epoch;
	a->session = rb->rb_session;
	a->offset = rb->rb_off;
	a->length = rb->rb_len;
	if (rb->rb_step == CTL_REBUILD_PULL)
		/* The target refuses an unknown source like one that it cannot reach. */
		peer(lo, rb, &a->source);
	ds_reg_call(lo->l_dsc, rb->rb_map.lm_obj[rb->rb_obj].ob_ds, &rb->rb_ctl,
		    rb->rb_step == CTL_REBUILD_END ? END_MS : STEP_MS);
}
