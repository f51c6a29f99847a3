/* SPDX-License-Identifier: Apache-2.0 */
/* st_client.c - clients, their durable records, and the grace period. */
#include "mds/state/st.h"
#include "base/clock.h"
#include "base/format.h"
#include "base/log.h"
#include "base/metrics.h"
#include <errno.h>
#include <sodium.h>

#define EXPIRE_BATCH 1024 /* clients evicted in one tick */
#define CLOSE_BATCH  64	  /* records deleted or marked in one mutation */
/* Wait after the store failed to record the end of the grace period, before the next attempt. */
#define UNCLOSED_NS 1000000000ull
#define ROOMS_NS    1000000000ull

/* A row of version 1 has no clre_flags. */
struct client_rec {
	uint8_t clre_version;
	uint32_t clre_number;
	uint8_t clre_verifier[8];
	uint8_t clre_flags;
} __attribute__((packed));
FORMAT_AT(struct client_rec, clre_version, 0, 1);
FORMAT_AT(struct client_rec, clre_number, 1, 4);
FORMAT_AT(struct client_rec, clre_verifier, 5, 8);
FORMAT_AT(struct client_rec, clre_flags, 13, 1);
#define RECORD_V1_LEN offsetof(struct client_rec, clre_flags)
/* OWES: the grace period ended before the client's RECLAIM_COMPLETE, so that other clients may have
 * locked what it held. LAPSED: its lease had run out, and it has not been heard since. */
enum { RECORD_OWES = 1, RECORD_LAPSED = 2 };

static bool record_get(struct kv_slice v, struct client_rec *r)
{
	const uint8_t *p = v.s_data;

	memset(r, 0, sizeof(*r));
	if (v.s_len != (v.s_len && p[0] == 1 ? RECORD_V1_LEN : sizeof(*r)))
		return false;
	memcpy(r, p, v.s_len);
	return r->clre_version == 1 || r->clre_version == 2;
}

static int record_set(struct kv_txn *t, const uint8_t h[32], struct client_rec *r)
{
	r->clre_version = r->clre_flags ? 2 : 1;
	return ns_row_put(t, NS_T_CLIENT, h, 32, r, r->clre_flags ? sizeof(*r) : RECORD_V1_LEN);
}

/* The principal is part of the key: after a restart, another principal that presents the same
 * client owner reclaims nothing. */
static void record_key(struct st_client *c)
{
	uint32_t part[3] = {htole32(c->cl_owner_len), htole32(c->cl_flavor),
			    htole32(c->cl_principal ? 0 : c->cl_uid)};
	crypto_generichash_state h;

	crypto_generichash_init(&h, NULL, 0, sizeof(c->cl_key));
	crypto_generichash_update(&h, (const uint8_t *)part, sizeof(part));
	crypto_generichash_update(&h, c->cl_owner, c->cl_owner_len);
	if (c->cl_principal)
		crypto_generichash_update(&h, (const uint8_t *)c->cl_principal,
					  strlen(c->cl_principal));
	crypto_generichash_final(&h, c->cl_key, sizeof(c->cl_key));
}

static uint64_t hash_of_hash(const uint8_t h[32])
{
	uint64_t v;

	memcpy(&v, h, 8);
	return v;
}

static struct st_record *record_find(struct st *st, const uint8_t h[32])
{
	for (struct hash_link *l = hash_first(&st->st_records, hash_of_hash(h)); l;
	     l = hash_next(l)) {
		struct st_record *r = hash_entry(l, struct st_record, sre_link);

		if (memcmp(r->sre_hash, h, 32) == 0)
			return r;
	}
	return NULL;
}

/* Does grace wait for it? */
static bool record_holds(const struct st_record *r)
{
	return !r->sre_done && (r->sre_back || !r->sre_lapsed);
}

static int record_load(void *arg, struct kv_slice id, struct kv_slice val)
{
	struct st *st = arg;
	struct client_rec rec;
	struct st_record *r;

	if (id.s_len != 32)
		return -EIO;
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	memcpy(r->sre_hash, id.s_data, 32);
	if (record_get(val, &rec)) {
		r->sre_owes = rec.clre_flags & RECORD_OWES;
		r->sre_lapsed = rec.clre_flags & RECORD_LAPSED;
	}
	if (hash_add(&st->st_records, &r->sre_link, hash_of_hash(r->sre_hash))) {
		free(r);
		return -ENOMEM;
	}
	st->st_reclaimers += record_holds(r);
	return 0;
}

static int mark_load(void *arg, struct kv_slice id, struct kv_slice val)
{
	struct st *st = arg;
	struct st_file *f;
	uint64_t ino;

	if (id.s_len != 8 || !val.s_len)
		return -EIO;
	memcpy(&ino, id.s_data, 8);
	f = st_file_get(st, be64toh(ino), true);
	if (!f)
		return -ENOMEM;
	f->f_intent = f->f_intent_durable = f->f_intent_old = f->f_suspect_boot = true;
	f->f_contended = st_intent_contended(val);
	st_file_watch(f);
	return 0;
}

int st_create(struct st **out, struct ns *ns, uint32_t lease_ms, uint32_t grace_ms,
	      uint32_t courtesy_ms)
{
	struct st *st = aligned_alloc(64, sizeof(*st));
	struct kv_txn *t;
	int err;
	uint64_t salt;

	if (!st)
		return -ENOMEM;
	memset(st, 0, sizeof(*st));
	st->st_by_id = calloc(ST_BY_ID, sizeof(*st->st_by_id));
	if (!st->st_by_id || st_heat_new(st) || st_shards_new(st)) {
		free(st->st_heat);
		free(st->st_by_id);
		free(st);
		return -ENOMEM;
	}
	st->st_ns = ns;
	st->st_boot = ns_super(ns)->su_boot;
	st->st_lease_ms = lease_ms;
	st->st_grace_ms = grace_ms;
	st->st_courtesy_ms = courtesy_ms;
	st_clock_init(st);
	st->st_started_ns = st_now_ns(st);
	st->st_next = 1;
	st->st_kept_max = ST_KEPT_MAX;
	salt = hash_u64(hash_bytes(ns_super(ns)->su_uuid, sizeof(ns_super(ns)->su_uuid)) +
			((uint64_t)ns_super(ns)->su_fs << 16) + ns_super(ns)->su_incarnation);
	st->st_salt = (uint32_t)(salt >> 32);
	st->st_epoch = (uint32_t)st->st_boot ^ st->st_salt;
	st_ids_init(&st->st_ids, ns_super(ns));
	st->st_verifier = (st->st_boot << 20 | 0x77656) ^ salt;
	st->st_callbacks[ST_CB_LAYOUTRECALL] =
		metric_counter("weft_mds_layout_recalls_total", "Layout recalls sent", "");
	st->st_callbacks[ST_CB_NOTIFY_LOCK] =
		metric_counter("weft_mds_lock_notifies_total",
			       "CB_NOTIFY_LOCK sent: a lock that was waited for may be had", "");
	st->st_callbacks[ST_CB_OFFLOAD] =
		metric_counter("weft_mds_offload_callbacks_total",
			       "CB_OFFLOAD sent: an asynchronous copy has ended", "");
	st->st_callbacks[ST_CB_RECALL] =
		metric_counter("weft_mds_delegation_recalls_total", "Delegation recalls sent", "");
	st->st_callbacks[ST_CB_GETATTR] =
		metric_counter("weft_mds_delegation_getattrs_total",
			       "CB_GETATTR sent to holders of write delegations", "");
	st->st_callbacks[ST_CB_NOTIFY_DEVICEID] = metric_counter(
		"weft_mds_device_notifies_total",
		"CB_NOTIFY_DEVICEID sent: a data server's addresses or limits are others", "");
	st->st_callbacks[ST_CB_RECALL_ANY] =
		metric_counter("weft_mds_recall_any_total",
			       "CB_RECALL_ANY sent: too many delegations are out", "");
	st->st_deleg_given[0] = metric_counter("weft_mds_delegations_given_total",
					       "Delegations given", "type=\"read\"");
	st->st_deleg_given[1] = metric_counter("weft_mds_delegations_given_total",
					       "Delegations given", "type=\"write\"");
	st->st_deleg_wasted =
		metric_counter("weft_mds_delegations_wasted_total",
			       "Delegations that were recalled or came back within a second", "");
	st->st_deleg_revoked = metric_counter("weft_mds_delegations_revoked_total",
					      "Delegations taken away at the recall deadline", "");
	st->st_revoked = metric_counter("weft_mds_layout_revoked_total",
					"Layouts taken away at the recall deadline", "");
	err = kv_read_begin(ns_kv(ns), &t);
	if (err)
		return err;
	err = ns_rows(t, NS_T_CLIENT, NULL, 0, record_load, st);
	st_all_lock(st);
	if (err >= 0)
		err = ns_rows(t, NS_T_WRITE_INTENT, NULL, 0, mark_load, st);
	st_all_unlock(st);
	kv_read_end(t);
	if (err < 0)
		return err;
	atomic_store(&st->st_in_grace, st->st_records.h_count > 0);
	st->st_none_live = st->st_records.h_count && !st->st_reclaimers;
	st->st_orphaned = true; /* orphans that a crash left */
	if (st->st_none_live)
		log_info("grace period: %u recorded clients may reclaim; all their leases had run "
			 "out, and it waits for a lease at most",
			 st->st_records.h_count);
	else if (atomic_load(&st->st_in_grace))
		log_info("grace period: %u recorded clients may reclaim; it waits for %u, whose "
			 "leases had not run out",
			 st->st_records.h_count, st->st_reclaimers);
	*out = st;
	return 0;
}

struct st_client *st_client_get(struct st *st, uint64_t id)
{
	for (struct hash_link *l = hash_first(&st->st_clients, hash_u64(id)); l; l = hash_next(l)) {
		struct st_client *c = hash_entry(l, struct st_client, cl_link);

		if (c->cl_id == id)
			return c;
	}
	return NULL;
}

struct st_client *st_client_by_owner(struct st *st, const void *owner, uint32_t len, bool confirmed)
{
	for (struct hash_link *l = hash_first(&st->st_owners, hash_bytes(owner, len)); l;
	     l = hash_next(l)) {
		struct st_client *c = hash_entry(l, struct st_client, cl_owner_link);

		if (c->cl_owner_len == len && c->cl_confirmed == confirmed &&
		    memcmp(c->cl_owner, owner, len) == 0)
			return c;
	}
	return NULL;
}

struct st_client *st_client_new(struct st *st, const void *owner, uint32_t len,
				const uint8_t verifier[8])
{
	struct st_client *c = aligned_alloc(64, sizeof(*c));

	if (!c)
		return NULL;
	memset(c, 0, sizeof(*c));
	for (unsigned i = 0; i < ST_STRIPES; i++)
		pthread_mutex_init(&c->cl_stripe[i].sp_lock, NULL);
	c->cl_owner = malloc(len ? len : 1);
	if (!c->cl_owner)
		goto fail;
	memcpy(c->cl_owner, owner, len);
	c->cl_owner_len = len;
	memcpy(c->cl_verifier, verifier, 8);
	record_key(c);
	do
		c->cl_id = st_id_client(&st->st_ids, st->st_epoch, (uint32_t)st->st_next++);
	/* 0 means no client, and the counter may wrap round to the id of a client that still
	 * exists. */
	while (!c->cl_id || st_client_get(st, c->cl_id));
	c->cl_st = st;
	c->cl_cs_seq = 1;
	c->cl_refs = 1;
	atomic_store(&c->cl_renewed_ns, st_now_ns(st));
	pthread_mutex_init(&c->cl_lock, NULL);
	if (hash_add(&st->st_clients, &c->cl_link, hash_u64(c->cl_id)))
		goto fail;
	if (hash_add(&st->st_owners, &c->cl_owner_link, hash_bytes(owner, len))) {
		hash_del(&st->st_clients, &c->cl_link);
		goto fail;
	}
	return c;
fail:
	free(c->cl_owner);
	free(c);
	return NULL;
}

static struct st_addr_account *place_find(const struct st *st, const uint8_t addr[16])
{
	for (struct hash_link *l = hash_first(&st->st_places, hash_bytes(addr, 16)); l;
	     l = hash_next(l)) {
		struct st_addr_account *p = hash_entry(l, struct st_addr_account, pl_link);

		if (memcmp(p->pl_addr, addr, 16) == 0)
			return p;
	}
	return NULL;
}

uint32_t st_clients_at(const struct st *st, const uint8_t addr[16])
{
	const struct st_addr_account *p = place_find(st, addr);

	return p ? p->pl_clients : 0;
}

int st_client_at(struct st *st, struct st_client *c, const uint8_t addr[16])
{
	struct st_addr_account *p = place_find(st, addr);

	if (!p) {
		p = aligned_alloc(64, sizeof(*p));
		if (p)
			memset(p, 0, sizeof(*p));
		if (!p || hash_add(&st->st_places, &p->pl_link, hash_bytes(addr, 16))) {
			free(p);
			return -ENOMEM;
		}
		memcpy(p->pl_addr, addr, 16);
	}
	p->pl_clients++;
	c->cl_place = p;
	return 0;
}

static void place_leave(struct st *st, struct st_client *c)
{
	struct st_addr_account *p = c->cl_place;

	c->cl_place = NULL;
	if (!p || --p->pl_clients)
		return;
	hash_del(&st->st_places, &p->pl_link);
	free(p);
}

uint64_t st_client_oldest(struct st *st, const uint8_t *addr)
{
	struct st_addr_account *at = addr ? place_find(st, addr) : NULL;
	uint64_t now = st_now_ns(st), *last = at ? &at->pl_oldest_ns : &st->st_oldest_ns;
	struct st_client *oldest = NULL;

	if ((addr && !at) || st_since(*last, now) < 1000000000)
		return 0;
	*last = now;
	hash_each(&st->st_clients, i, l, next)
	{
		struct st_client *c = hash_entry(l, struct st_client, cl_link);

		if (at && c->cl_place != at)
			continue;
		if (!atomic_load(&c->cl_evicting) && st_lease_expired(st, c) &&
		    (!oldest ||
		     atomic_load(&c->cl_renewed_ns) < atomic_load(&oldest->cl_renewed_ns)))
			oldest = c;
	}
	return oldest ? oldest->cl_id : 0;
}

bool st_client_principal(struct st_client *c, uint32_t flavor, uint32_t uid, const char *principal)
{
	c->cl_flavor = flavor;
	c->cl_uid = uid;
	if (principal) {
		c->cl_principal = strdup(principal);
		if (!c->cl_principal)
			return false;
	}
	record_key(c);
	return true;
}

bool st_lease_expired(struct st *st, struct st_client *c)
{
	return st_silent_over(c, st_now_ns(st), st->st_lease_ms * 1000000ull);
}

static void st_client_client_free(struct rcu_head *head)
{
	struct st_client *c = caa_container_of(head, struct st_client, cl_rcu);

	RCU_TAKEN_OVER(head);
	pthread_mutex_destroy(&c->cl_lock);
	free(c->cl_principal);
	free(c->cl_owner);
	free(atomic_load(&c->cl_unreached));
	free(c);
}

/* A reader that found a session in an RCU read section also reads its client, so that the memory is
 * freed by RCU. */
void st_client_put(struct st_client *c)
{
	if (--c->cl_refs == 0)
		urcu_memb_call_rcu(&c->cl_rcu, st_client_client_free);
}

void st_client_destroy(struct st *st, struct st_client *c)
{
	st_must_have_all();
	if (c->cl_dead)
		return;
	c->cl_dead = true;
	hash_del(&st->st_clients, &c->cl_link);
	hash_del(&st->st_owners, &c->cl_owner_link);
	while (c->cl_sessions)
		st_session_destroy(st, c->cl_sessions);
	for (struct st_layout *l; (l = st_layout_next(c, NULL));)
		st_layout_free(st, l);
	for (struct st_open *o; (o = st_open_next(c, NULL));) {
		st->st_orphaned |= o->o_file->f_orphan;
		st_open_free(st, o);
	}
	st_quotas_back(c);
	st_partial_lost(st, c, NULL);
	st_offloads_drop(c);
	while (c->cl_dead_sids)
		st_revoked_free(c, &c->cl_dead_sids->v_sid);
	place_leave(st, c); /* last: what the client had was counted for its address too */
	st_client_put(c);
}

/* ---- records ---- */

int st_record_put(struct st *st, struct kv_txn *t, const uint8_t h[32], const uint8_t verifier[8],
		  uint32_t *number, uint32_t *old)
{
	struct client_rec r;
	struct kv_slice have;
	int err;

	*old = 0;
	if (ns_row_get(t, NS_T_CLIENT, h, 32, &have) == 0 && record_get(have, &r)) {
		*number = r.clre_number;
		if (memcmp(r.clre_verifier, verifier, 8) == 0) {
			err = st_record_lapse(t, h, r.clre_number, false);
			return err < 0 ? err : 0;
		}
		*old = r.clre_number;
	}
	err = ns_next_client(st->st_ns, t, number);
	if (err)
		return err;
	r.clre_flags = 0; /* a restarted client has no locks from before its restart */
	r.clre_number = *number;
	memcpy(r.clre_verifier, verifier, 8);
	return record_set(t, h, &r);
}

int st_record_del(struct st *st, struct kv_txn *t, const uint8_t h[32], uint32_t number)
{
	struct kv_slice have;
	struct client_rec r;

	(void)st;
	if (ns_row_get(t, NS_T_CLIENT, h, 32, &have) || !record_get(have, &r) ||
	    r.clre_number != number)
		return 0;
	return ns_row_del(t, NS_T_CLIENT, h, 32);
}

struct living {
	uint32_t *lv_number;
	size_t lv_n, lv_max;
};

static int living_add(struct living *lv, uint32_t number)
{
	if (lv->lv_n == lv->lv_max) {
		size_t max = lv->lv_max ? 2 * lv->lv_max : 64;
		uint32_t *more = realloc(lv->lv_number, max * sizeof(*more));

		if (!more)
			return -ENOMEM;
		lv->lv_number = more;
		lv->lv_max = max;
	}
	lv->lv_number[lv->lv_n++] = number;
	return 0;
}

/* A row that cannot be read may belong to any client, so that no client is known to be gone. */
static int living_row(void *arg, struct kv_slice id, struct kv_slice val)
{
	struct client_rec r;

	(void)id;
	return record_get(val, &r) ? living_add(arg, r.clre_number) : -EIO;
}

/* Reads the rows first. A client that is confirmed after that has a number of at least *next, and
 * one that is no longer in memory by then is gone. */
int st_living(struct st *st, uint32_t **numbers, size_t *n, uint32_t *next)
{
	struct living lv = {0};
	struct kv_txn *t;
	int err = kv_read_begin(ns_kv(st->st_ns), &t);

	if (err)
		return err;
	err = ns_clients_given(t, next);
	if (!err)
		err = ns_rows(t, NS_T_CLIENT, "", 0, living_row, &lv);
	kv_read_end(t);
	st_look_lock(st);
	hash_each(&st->st_clients, i, l, link)
	{
		const struct st_client *c = hash_entry(l, struct st_client, cl_link);

		if (!err && c->cl_number)
			err = living_add(&lv, c->cl_number);
	}
	st_look_unlock(st);
	if (err) {
		free(lv.lv_number);
		return err;
	}
	*numbers = lv.lv_number;
	*n = lv.lv_n;
	return 0;
}

int st_record_complete(struct kv_txn *t, const uint8_t h[32])
{
	struct kv_slice have;
	struct client_rec r;

	if (ns_row_get(t, NS_T_CLIENT, h, 32, &have) || !record_get(have, &r) ||
	    !(r.clre_flags & RECORD_OWES))
		return 0;
	r.clre_flags &= (uint8_t)~RECORD_OWES;
	return record_set(t, h, &r);
}

int st_record_lapse(struct kv_txn *t, const uint8_t h[32], uint32_t number, bool lapsed)
{
	struct kv_slice have;
	struct client_rec r;
	int err = 0;

	if (ns_row_get(t, NS_T_CLIENT, h, 32, &have) || !record_get(have, &r) ||
	    r.clre_number != number || lapsed == !!(r.clre_flags & RECORD_LAPSED))
		return 0;
	r.clre_flags ^= RECORD_LAPSED;
	/* A client that is back must be able to remove files in a full store. After a delete the
	 * put may use the reserve for deletes. */
	if (!lapsed)
		err = ns_row_del(t, NS_T_CLIENT, h, 32);
	if (!err)
		err = record_set(t, h, &r);
	return err ? err : 1;
}

bool st_record_known(struct st *st, const uint8_t h[32])
{
	return record_find(st, h) != NULL;
}

bool st_record_owes(struct st *st, const uint8_t h[32])
{
	struct st_record *r = record_find(st, h);

	return r && (r->sre_owes || r->sre_closing);
}

bool st_record_reclaims(struct st *st, const uint8_t h[32])
{
	struct st_record *r = record_find(st, h);

	return r && !r->sre_done;
}

nfsstat4 st_reclaim_check(struct st *st, const struct st_client *c)
{
	struct st_record *r;

	if (!st_in_grace(st) || st->st_closing || atomic_load(&c->cl_reclaim_done))
		return NFS4ERR_NO_GRACE;
	r = record_find(st, c->cl_key);
	if (r && r->sre_owes)
		return NFS4ERR_NO_GRACE;
	return atomic_load(&c->cl_may_reclaim) ? NFS4_OK : NFS4ERR_RECLAIM_BAD;
}

static void record_is(struct st *st, struct st_record *r, bool back, bool done)
{
	st->st_reclaimers -= record_holds(r);
	r->sre_back = back;
	r->sre_done = done;
	st->st_reclaimers += record_holds(r);
}

void st_record_back(struct st *st, const uint8_t h[32])
{
	struct st_record *r = record_find(st, h);

	if (r)
		record_is(st, r, true, r->sre_done);
}

void st_record_away(struct st *st, const void *owner, uint32_t len, const uint8_t h[32])
{
	struct st_record *r = record_find(st, h);

	for (struct hash_link *l = hash_first(&st->st_owners, hash_bytes(owner, len)); l;
	     l = hash_next(l)) {
		const struct st_client *c = hash_entry(l, struct st_client, cl_owner_link);

		if ((c->cl_confirmed || c->cl_confirming) &&
		    memcmp(c->cl_key, h, sizeof(c->cl_key)) == 0)
			return;
	}
	if (r)
		record_is(st, r, false, r->sre_done);
}

void st_record_done(struct st *st, const uint8_t h[32])
{
	struct st_record *r = record_find(st, h);

	if (r)
		record_is(st, r, r->sre_back, true);
}

void st_record_paid(struct st *st, const uint8_t h[32])
{
	struct st_record *r = record_find(st, h);

	if (r)
		r->sre_owes = false;
}

/* ---- the end of grace ---- */

void st_intents_suspect(struct st *st)
{
	st_each(st, ST_FILE, l)
	{
		struct st_file *f = hash_entry(l, struct st_file, f_link);

		if (f->f_suspect_boot)
			st_file_suspect(f);
		f->f_suspect_boot = false;
	}
}

/* Looked at: true when a recorded client has neither come back nor finished its reclaims. */
static bool records_lost(const struct st *st)
{
	hash_each(&st->st_records, i, l, next)
	{
		const struct st_record *r = hash_entry(l, struct st_record, sre_link);

		if (!r->sre_done && !r->sre_back)
			return true;
	}
	return false;
}

/* locked: true when records are still to be marked or deleted. */
static bool records_open(struct st *st)
{
	hash_each(&st->st_records, i, l, next)
	{
		const struct st_record *r = hash_entry(l, struct st_record, sre_link);

		if (!r->sre_done && !r->sre_closed)
			return true;
	}
	return false;
}

static void grace_end(struct st *st)
{
	unsigned left = 0;

	if (!atomic_exchange(&st->st_in_grace, false))
		return;
	hash_each(&st->st_records, i, l, next) left +=
		!hash_entry(l, struct st_record, sre_link)->sre_done;
	if (st->st_lost)
		st_intents_suspect(st);
	log_info("grace period ended; %u recorded clients did not come back or did not complete "
		 "their reclaims",
		 left);
}

int st_records_close(struct st *st, struct kv_txn *t,
		     int (*evict)(void *arg, struct kv_txn *t, uint32_t number), void *arg,
		     bool *more)
{
	struct close {
		uint8_t hash[32];
		bool back;
	} batch[CLOSE_BATCH];
	int n = 0, gone = 0, err = 0;

	st_all_lock(st);
	hash_each(&st->st_records, i, l, next)
	{
		struct st_record *r = hash_entry(l, struct st_record, sre_link);

		if (r->sre_done || r->sre_closed || n == CLOSE_BATCH)
			continue;
		r->sre_closing = true;
		batch[n].back = r->sre_back;
		memcpy(batch[n++].hash, r->sre_hash, 32);
	}
	st_all_unlock(st);
	for (int k = 0; k < n && !err; k++) {
		struct kv_slice have;
		struct client_rec r;

		if (ns_row_get(t, NS_T_CLIENT, batch[k].hash, 32, &have) || !record_get(have, &r))
			continue;
		if (batch[k].back && (r.clre_flags & RECORD_OWES))
			continue;
		if (batch[k].back) {
			r.clre_flags |= RECORD_OWES;
			err = record_set(t, batch[k].hash, &r);
			continue;
		}
		err = evict(arg, t, r.clre_number);
		if (!err)
			err = ns_row_del(t, NS_T_CLIENT, batch[k].hash, 32);
		gone++;
	}
	*more = n > 0;
	return err ? err : gone;
}

void st_records_closed(struct st *st, int err, bool more)
{
	st_all_lock(st);
	hash_each(&st->st_records, i, l, next)
	{
		struct st_record *r = hash_entry(l, struct st_record, sre_link);

		if (!r->sre_closing)
			continue;
		r->sre_closing = false;
		r->sre_closed = !err;
		r->sre_owes |= !err;
	}
	if (!more)
		st->st_closing = false; /* after a failure, a later tick begins again */
	if (err)
		st->st_unclosed_ns = st_now_ns(st);
	if (!more && !err)
		grace_end(st);
	st_all_unlock(st);
}

bool st_in_grace(struct st *st)
{
	return atomic_load(&st->st_in_grace);
}

static bool client_idle(const struct st_client *c)
{
	return !st_open_next(c, NULL) && !st_layout_next(c, NULL);
}

/* This is a courteous server (RFC 8881 section 8.4.3): a client whose lease has run out keeps its
 * state until another client conflicts with it, or until the courtesy ends. The courtesy ends so
 * that dead clients do not pile up. */
static bool client_is_over(const struct st *st, struct st_client *c, bool idle, uint64_t now)
{
	/* An unconfirmed client goes after one lease (section 18.35.4). */
	uint64_t kept = !c->cl_confirmed ? 0 : idle ? st->st_lease_ms : st->st_courtesy_ms;

	if (st_deleg_many(st) && st_client_number(c, ST_N_DELEGS))
		kept = 0;
	return st_silent_over(c, now, (st->st_lease_ms + kept) * 1000000ull);
}

/* Where all were past their lease, one that is still there gets a lease to find the server: no
 * recorded client waits for that. Where one was not, grace waits for its reclaims alone. */
static bool grace_waits(const struct st *st, uint64_t now)
{
	uint64_t took = st_since(st->st_started_ns, now);

	if (took > st->st_grace_ms * 1000000ull)
		return false;
	return st->st_reclaimers ||
	       (st->st_none_live && records_lost(st) && took <= st->st_lease_ms * 1000000ull);
}

static bool grace_is_over(const struct st *st, uint64_t now)
{
	return atomic_load(&st->st_in_grace) && !st->st_closing &&
	       st_since(st->st_unclosed_ns, now) > UNCLOSED_NS && !grace_waits(st, now);
}

/* Called with st_look_lock: returns whether the tick needs the lock of all. Quota that an idle
 * client took ahead and has not given back yet makes the client look busy for a while. */
static bool tick_is_due(struct st *st, uint64_t now)
{
	bool rooms = st_since(atomic_load(&st->st_quotas_ns), now) > ROOMS_NS,
	     due = grace_is_over(st, now) || st_deleg_many(st) ||
		   (st->st_orphaned && !atomic_load(&st->st_in_grace));

	if (rooms)
		atomic_store(&st->st_quotas_ns, now);
	hash_each(&st->st_clients, i, l, next)
	{
		struct st_client *c = hash_entry(l, struct st_client, cl_link);
		bool some = atomic_load(&c->cl_counts.ct_n[ST_N_OPENS]) ||
			    atomic_load(&c->cl_counts.ct_n[ST_N_DELEGS]) ||
			    atomic_load(&c->cl_counts.ct_n[ST_N_LAYOUTS]);

		due |= atomic_load(&c->cl_nrecalled) || client_is_over(st, c, !some, now) ||
		       st_client_lapses(st, c, now);
		if (c->cl_recorded)
			st_heard(st, c, now);
		if (rooms && some)
			st_quotas_tick(c);
	}
	return due;
}

void st_tick(struct st *st)
{
	uint64_t now, expired[EXPIRE_BATCH], overdue[EXPIRE_BATCH], lapsed[ST_LAPSES];
	unsigned n = 0, late = 0, nlapsed = 0;
	bool over = false, orphaned, due;

	st_clock_tick(st);
	st_look_lock(st);
	if (st_deleg_many(st)) { /* the count includes what was taken ahead: gather that first */
		atomic_store(&st->st_gathered_ns[ST_N_DELEGS], 0);
		st_quotas_gather(st, NULL, ST_N_DELEGS);
	}
	due = tick_is_due(st, st_now_ns(st));
	st_look_unlock(st);
	if (!due)
		return;
	st_all_lock(st);
	now = st_now_ns(st);
	if (grace_is_over(st, now)) {
		st->st_lost |= records_lost(st);
		st->st_closing = st->st_grace_over && records_open(st);
		if (!st->st_closing)
			grace_end(st);
		over = true;
	}
	hash_each(&st->st_clients, i, l, next)
	{
		struct st_client *c = hash_entry(l, struct st_client, cl_link);
		bool gone = client_is_over(st, c, client_idle(c), now);

		if (gone && !c->cl_recorded) {
			if (st_client_leaves(c))
				st_client_destroy(st, c);
			continue;
		}
		if (gone && n < EXPIRE_BATCH && !atomic_load(&c->cl_evicting))
			expired[n++] = c->cl_id;
		if (!gone && nlapsed < ST_LAPSES && st_client_lapse(st, c, now))
			lapsed[nlapsed++] = c->cl_id;
		late += st_deleg_overdue(st, c, overdue + late, EXPIRE_BATCH - late);
	}
	st_deleg_thin(st);
	orphaned = st->st_orphaned && !atomic_load(&st->st_in_grace);
	if (orphaned)
		st->st_orphaned = false;
	st_all_unlock(st);
	if (over && st->st_grace_over)
		st->st_grace_over(st->st_arg);
	for (unsigned i = 0; i < late && st->st_overdue; i++)
		st->st_overdue(st->st_arg, overdue[i]);
	for (unsigned i = 0; i < n && st->st_expired; i++)
		st->st_expired(st->st_arg, expired[i]);
	if (nlapsed && st->st_lapsed)
		st->st_lapsed(st->st_arg, lapsed, nlapsed);
	if (orphaned && st->st_orphans)
		st->st_orphans(st->st_arg);
}
