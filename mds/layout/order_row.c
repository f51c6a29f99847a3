/* SPDX-License-Identifier: Apache-2.0 */
/* order_row.c - the rows of orders: what a mutation writes, and how rows are read. See
 * order_int.h. */
#include "base/format.h"
#include "base/log.h"
#include "common/trace.h"
#include "mds/layout/order_int.h"
#include "mds/layout/pending_layout.h"
#include <errno.h>

/* In version 2, the order of an object has flags in the field where an order to revoke a client has
 * the client's number. Version 1 has zeros there. Orders without a flag stay at version 1: an older
 * release leaves rows of version 2 alone, and must run at least the others. */
#define ORDER_VERSION	    2
#define ORDER_VERSION_PLAIN 1
enum { ORDER_KNOWN = 1 }; /* the object is known to exist */

struct order_rec {
	uint8_t orr_version, orr_type, orr_stripe, orr_mirror;
	uint16_t orr_fs, orr_incarnation;
	uint64_t orr_ino, orr_size;
	uint32_t orr_epoch, orr_client_or_flags;
} __attribute__((packed));
FORMAT_AT(struct order_rec, orr_version, 0, 1);
FORMAT_AT(struct order_rec, orr_type, 1, 1);
FORMAT_AT(struct order_rec, orr_stripe, 2, 1);
FORMAT_AT(struct order_rec, orr_mirror, 3, 1);
FORMAT_AT(struct order_rec, orr_fs, 4, 2);
FORMAT_AT(struct order_rec, orr_incarnation, 6, 2);
FORMAT_AT(struct order_rec, orr_ino, 8, 8);
FORMAT_AT(struct order_rec, orr_size, 16, 8);
FORMAT_AT(struct order_rec, orr_epoch, 24, 4);
FORMAT_AT(struct order_rec, orr_client_or_flags, 28, 4);
_Static_assert(sizeof(struct order_rec) == 32, "order record, versions 1 and 2");
/* A CLONE order appends its source. The stripe is the same as the target's. */
struct clone_rec {
	struct order_rec r;
	uint64_t clr_src, clr_from, clr_offset;
	uint16_t clr_src_incarnation;
	uint8_t clr_src_mirror, clr_src_known, clr_zero[4];
} __attribute__((packed));
FORMAT_AT(struct clone_rec, r, 0, 32);
FORMAT_AT(struct clone_rec, clr_src, 32, 8);
FORMAT_AT(struct clone_rec, clr_from, 40, 8);
FORMAT_AT(struct clone_rec, clr_offset, 48, 8);
FORMAT_AT(struct clone_rec, clr_src_incarnation, 56, 2);
FORMAT_AT(struct clone_rec, clr_src_mirror, 58, 1);
FORMAT_AT(struct clone_rec, clr_src_known, 59, 1);
FORMAT_AT(struct clone_rec, clr_zero, 60, 4);
_Static_assert(sizeof(struct clone_rec) == 64, "clone record, versions 1 and 2");
_Static_assert(sizeof(struct order_key) == ORDER_KEY_LEN, "keys are their bytes");

void lo_order_key(struct order_key *key, uint32_t ds, uint64_t number)
{
	uint32_t d = htobe32(ds);
	uint64_t n = htobe64(number);

	memcpy(key->ork_k, &d, 4);
	memcpy(key->ork_k + 4, &n, 8);
}

uint32_t lo_order_key_read(struct kv_slice id, uint64_t *number)
{
	uint64_t n;
	uint32_t ds;

	if (id.s_len != ORDER_KEY_LEN)
		return 0;
	memcpy(&ds, id.s_data, 4);
	memcpy(&n, (const uint8_t *)id.s_data + 4, 8);
	*number = be64toh(n);
	return be32toh(ds);
}

/* ---- rows: in a mutation ---- */

/* As a ring's event (common/trace.c): a reader that sees a newer request sees no number. */
static void origin_put(struct lo_orders *os, uint64_t number)
{
	struct order_origin *oo = &os->os_origin[number % ORDER_ORIGINS];

	atomic_store_explicit(&oo->oo_number, 0, memory_order_relaxed);
	atomic_store_explicit(&oo->oo_request, log_request, memory_order_release);
	atomic_store_explicit(&oo->oo_number, number, memory_order_release);
}

uint64_t lo_order_origin(struct lo_orders *os, uint64_t number)
{
	struct order_origin *oo = &os->os_origin[number % ORDER_ORIGINS];
	uint64_t request;

	if (atomic_load_explicit(&oo->oo_number, memory_order_acquire) != number)
		return 0;
	request = atomic_load_explicit(&oo->oo_request, memory_order_acquire);
	return atomic_load_explicit(&oo->oo_number, memory_order_relaxed) == number ? request : 0;
}

static int row_put_n(struct lo *lo, struct kv_txn *t, uint32_t ds, const void *r, size_t len)
{
	struct order_key key;
	uint64_t number;
	int err;

	if (!ds || ds > DS_REG_MAX)
		return -EIO;
	if (!ds_reg_known(lo->l_dsc, ds))
		/* The server was forgotten: no request waits for it, and it never comes back under
		 * this id. */
		return 0;
	err = ns_next_order(lo->l_ns, t, &number);
	if (err)
		return err;
	lo_order_key(&key, ds, number);
	err = ns_row_put(t, NS_T_ORDER, key.ork_k, sizeof(key.ork_k), r, len);
	if (err)
		return err;
	origin_put(lo->l_orders, number);
	TRACE(order_put, le64toh(((const struct order_rec *)r)->orr_ino), ds, number,
	      ((const struct order_rec *)r)->orr_type);
	atomic_store(&lo->l_orders->os_put[ds], number);
	return 0;
}

static int order_row_row_put(struct lo *lo, struct kv_txn *t, uint32_t ds,
			     const struct order_rec *r)
{
	return row_put_n(lo, t, ds, r, sizeof(*r));
}

static int order_row_put_one(struct lo *lo, struct kv_txn *t, ctl_order_type type,
			     const struct ns_inode *i, const struct lo_map *m, unsigned k,
			     uint64_t size, uint32_t epoch)
{
	bool known = type != CTL_DELETE && m->lm_obj[k].ob_known;
	struct order_rec r = {
		.orr_version = known ? ORDER_VERSION : ORDER_VERSION_PLAIN,
		.orr_type = (uint8_t)type,
		.orr_stripe = (uint8_t)(k % m->lm_stripes),
		.orr_mirror = m->lm_obj[k].ob_copy,
		.orr_fs = htole16(ns_super(lo->l_ns)->su_fs),
		.orr_incarnation = htole16(i->i_incarnation),
		.orr_ino = htole64(i->i_ino),
		.orr_size = htole64(size),
		.orr_epoch = htole32(epoch),
		.orr_client_or_flags = htole32(known ? ORDER_KNOWN : 0),
	};

	return order_row_row_put(lo, t, m->lm_obj[k].ob_ds, &r);
}

static int order_row_put_all(struct lo *lo, struct kv_txn *t, ctl_order_type type,
			     const struct ns_inode *i, const struct lo_map *m, uint64_t size,
			     uint32_t epoch)
{
	int err = 0;

	for (unsigned k = 0; k < (unsigned)m->lm_stripes * m->lm_mirrors && !err; k++)
		err = m->lm_obj[k].ob_state == LO_ABSENT
			      ? 0
			      : order_row_put_one(lo, t, type, i, m, k, size, epoch);
	return err;
}

int lo_order_free_object(struct lo *lo, struct kv_txn *t, const struct ns_inode *i,
			 const struct lo_map *m, unsigned obj)
{
	return order_row_put_one(lo, t, CTL_DELETE, i, m, obj, 0, m->lm_epoch);
}

int lo_order_delete(struct lo *lo, struct kv_txn *t, uint32_t ds, const ctl_object *o)
{
	struct order_rec r = {
		.orr_version = ORDER_VERSION_PLAIN,
		.orr_type = CTL_DELETE,
		.orr_stripe = (uint8_t)o->stripe,
		.orr_mirror = (uint8_t)o->mirror,
		.orr_fs = htole16((uint16_t)o->fs),
		.orr_incarnation = htole16((uint16_t)o->incarnation),
		.orr_ino = htole64(o->ino),
	};

	if (o->fs > UINT16_MAX || o->incarnation > UINT16_MAX || o->stripe > UINT8_MAX ||
	    o->mirror > UINT8_MAX)
		return -EINVAL;
	return order_row_row_put(lo, t, ds, &r);
}

/* A damaged map must not keep the name from being removed. The checker then finds the objects that
 * the map named. */
int lo_order_free(struct lo *lo, struct kv_txn *t, const struct ns_inode *i)
{
	struct ns_inode ino = *i;
	struct lo_map m;
	int err;

	if (i->i_type != NS_REG || !i->i_blob.s_len)
		return 0;
	if (lo_map_decode(i->i_blob, &m)) {
		log_error("inode %llu: damaged layout map; not deleting its objects",
			  (unsigned long long)i->i_ino);
		return 0;
	}
	err = order_row_put_all(lo, t, CTL_DELETE, &ino, &m, 0, m.lm_epoch);
	return err ? err : lo_pending_free(lo, t, i);
}

int lo_order_truncate(struct lo *lo, struct kv_txn *t, const struct ns_inode *i,
		      const struct lo_map *m, uint64_t size)
{
	return order_row_put_all(lo, t, CTL_TRUNCATE, i, m, size, m->lm_epoch);
}

int lo_order_fence(struct lo *lo, struct kv_txn *t, const struct ns_inode *i,
		   const struct lo_map *m, uint32_t epoch)
{
	return order_row_put_all(lo, t, CTL_FENCE, i, m, 0, epoch);
}

int lo_order_fence_object(struct lo *lo, struct kv_txn *t, const struct ns_inode *i,
			  const struct lo_map *m, unsigned obj)
{
	return order_row_put_one(lo, t, CTL_FENCE, i, m, obj, 0, m->lm_epoch);
}

bool lo_fence_unconfirmed(struct lo *lo, struct lo_map *m)
{
	bool any = false;

	for (unsigned k = 0; k < lo_objects(m); k++) {
		struct lo_object *o = &m->lm_obj[k];
		struct ds_reg_server sv;

		if (o->ob_state != LO_STALE)
			continue;
		if (ds_reg_dead(lo->l_dsc, o->ob_ds) && ds_reg_get(lo->l_dsc, o->ob_ds, &sv) &&
		    sv.sv_nfs3)
			any = true;
		else
			o->ob_state = LO_IN_SYNC;
	}
	return any;
}

int lo_clone_source(const struct lo_map *dst, unsigned obj, const struct lo_map *src, bool same)
{
	int k;

	if (dst->lm_stripes != src->lm_stripes || dst->lm_unit != src->lm_unit)
		return -1;
	for (unsigned r = 0; (k = lo_source(src, obj % dst->lm_stripes, r, same)) >= 0; r++)
		if (src->lm_obj[k].ob_ds == dst->lm_obj[obj].ob_ds)
			return k;
	return -1;
}

int lo_order_clone(struct lo *lo, struct kv_txn *t, const struct ns_inode *i,
		   const struct lo_map *m, const struct lo_clone *cl)
{
	for (unsigned k = 0; k < (unsigned)m->lm_stripes * m->lm_mirrors; k++) {
		int source = lo_clone_source(m, k, &cl->cl_map, cl->cl_same), err;
		struct clone_rec r = {
			.r =
				{
					.orr_version = ORDER_VERSION_PLAIN,
					.orr_type = CTL_CLONE,
					.orr_stripe = (uint8_t)(k % m->lm_stripes),
					.orr_mirror = m->lm_obj[k].ob_copy,
					.orr_fs = htole16(ns_super(lo->l_ns)->su_fs),
					.orr_incarnation = htole16(i->i_incarnation),
					.orr_ino = htole64(i->i_ino),
					.orr_size = htole64(cl->cl_len),
					.orr_epoch = htole32(m->lm_epoch),
				},
			.clr_src = htole64(cl->cl_ino),
			.clr_from = htole64(cl->cl_from),
			.clr_offset = htole64(cl->cl_to),
			.clr_src_incarnation = htole16(cl->cl_incarnation),
		};

		if (m->lm_obj[k].ob_state != LO_IN_SYNC)
			continue;
		if (source < 0)
			return -EXDEV;
		r.clr_src_mirror = cl->cl_map.lm_obj[source].ob_copy;
		r.clr_src_known = cl->cl_map.lm_obj[source].ob_known;
		err = row_put_n(lo, t, m->lm_obj[k].ob_ds, &r, sizeof(r));
		if (err)
			return err;
	}
	return 0;
}

int lo_order_bar(struct lo *lo, struct kv_txn *t, uint32_t client)
{
	struct order_rec r = {
		.orr_version = ORDER_VERSION_PLAIN,
		.orr_type = CTL_BAR_CLIENT,
		.orr_fs = htole16(ns_super(lo->l_ns)->su_fs),
		.orr_client_or_flags = htole32(client),
	};
	struct ds_reg_server sv;

	ds_reg_note_bar(lo->l_dsc);
	for (uint32_t id = 1; id <= DS_REG_MAX; id++) {
		/* NFSv3 data servers know no client numbers. An evicted client is kept out there by
		 * a fence of each of its files. */
		int err = ds_reg_get(lo->l_dsc, id, &sv) && !sv.sv_nfs3
				  ? order_row_row_put(lo, t, id, &r)
				  : 0;

		if (err)
			return err;
	}
	return 0;
}

/* ---- read ---- */

struct order *lo_order_decode(uint32_t ds, uint64_t number, struct kv_slice val, uint64_t *ino)
{
	struct clone_rec cr = {0};
	struct order_rec r;
	struct order *o;

	if (val.s_len < sizeof(r) || val.s_len > sizeof(cr))
		return NULL;
	memcpy(&cr, val.s_data, val.s_len);
	r = cr.r;
	if (!r.orr_version || r.orr_version > ORDER_VERSION || r.orr_type < CTL_TRUNCATE ||
	    r.orr_type > CTL_CLONE)
		return NULL;
	if (val.s_len != (r.orr_type == CTL_CLONE ? sizeof(cr) : sizeof(r)))
		return NULL;
	o = calloc(1, sizeof(*o));
	if (!o)
		return NULL;
	*ino = le64toh(r.orr_ino);
	o->or_number = number;
	o->or_ds = ds;
	o->or_type = r.orr_type;
	o->or_stripe = r.orr_stripe;
	o->or_mirror = r.orr_mirror;
	o->or_fs = le16toh(r.orr_fs);
	o->or_incarnation = le16toh(r.orr_incarnation);
	o->or_size = le64toh(r.orr_size);
	o->or_epoch = le32toh(r.orr_epoch);
	if (r.orr_type == CTL_BAR_CLIENT)
		o->or_client = le32toh(r.orr_client_or_flags);
	else
		o->or_known = r.orr_version > 1 && (le32toh(r.orr_client_or_flags) & ORDER_KNOWN);
	o->or_src = le64toh(cr.clr_src);
	o->or_from = le64toh(cr.clr_from);
	o->or_offset = le64toh(cr.clr_offset);
	o->or_src_incarnation = le16toh(cr.clr_src_incarnation);
	o->or_src_mirror = cr.clr_src_mirror;
	o->or_src_known = cr.clr_src_known;
	return o;
}

static int orders_first(void *arg, struct kv_slice id, struct kv_slice val)
{
	uint64_t number;

	(void)val;
	*(uint32_t *)arg = lo_order_key_read(id, &number);
	return 1;
}

bool lo_orders_for(struct kv_txn *t, uint32_t ds)
{
	uint32_t be = htobe32(ds), first = 0;

	return ns_rows(t, NS_T_ORDER, &be, sizeof(be), orders_first, &first) == 0 && first == ds;
}
