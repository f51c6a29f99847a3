/* order.c - orders: rows, their mirror in memory, and waiting. See order_int.h. */
#include "base/clock.h"
#include "base/crash.h"
#include "base/log.h"
#include "base/metrics.h"
#include "mds/lo/order_int.h"
#include "mds/lo/twin.h"
#include <errno.h>
#include <urcu/compiler.h>

/* 2: an object's order has flags where a client's bar has the client; version 1 has zeros there. What needs no flag is of version 1: a release that does not know
 * the other, and leaves it alone, is to do at least that. */
#define ORDER_VERSION 2
#define ORDER_VERSION_PLAIN 1
enum { ORDER_KNOWN = 1 }; /* the object is known to exist */
#define TICK_MS	      50
#define DELETE_MS     100
#define DELETE_MANY   1024 /* rows deleted at once */
#define LATER_MS      100
#define LATER_MANY    CTL_BATCH_MAX /* files that are gone: more do not wait */

struct order_rec {
	uint8_t r_version, r_type, r_stripe, r_mirror;
	uint16_t r_fs, r_incarnation;
	uint64_t r_ino, r_size;
	uint32_t r_epoch, r_client_or_flags;
} __attribute__((packed));
_Static_assert(sizeof(struct order_rec) == 32, "order record, versions 1 and 2");
/* CLONE: behind it, what it takes. The stripe is the same. */
struct clone_rec {
	struct order_rec r;
	uint64_t r_src, r_from, r_offset;
	uint16_t r_src_incarnation;
	uint8_t r_src_mirror, r_src_known, r_zero[4];
} __attribute__((packed));
_Static_assert(sizeof(struct clone_rec) == 64, "clone record, versions 1 and 2");
_Static_assert(sizeof(struct order_key) == ORDER_KEY_LEN, "keys are their bytes");

static void key_make(struct order_key *key, uint32_t ds, uint64_t number)
{
	uint32_t d = htobe32(ds);
	uint64_t n = htobe64(number);

	memcpy(key->k, &d, 4);
	memcpy(key->k + 4, &n, 8);
}

/* ---- rows: in a mutation ---- */

static int row_put_n(struct lo *lo, struct kv_txn *t, uint32_t ds, const void *r, size_t len)
{
	struct order_key key;
	uint64_t number;
	int err;

	if (!ds || ds > DSC_MAX)
		return -EIO;
	if (!dsc_known(lo->l_dsc, ds))
		return 0; /* forgotten: nobody waits for it, and it never comes back as who it was */
	err = ns_next_order(lo->l_ns, t, &number);
	if (err)
		return err;
	key_make(&key, ds, number);
	err = ns_row_put(t, NS_T_ORDER, key.k, sizeof(key.k), r, len);
	if (!err)
		atomic_store(&lo->l_orders->os_put[ds], number);
	return err;
}

static int row_put(struct lo *lo, struct kv_txn *t, uint32_t ds, const struct order_rec *r)
{
	return row_put_n(lo, t, ds, r, sizeof(*r));
}

static int put_one(struct lo *lo, struct kv_txn *t, ctl_order_type type, const struct ns_inode *i, const struct lo_map *m, unsigned k, uint64_t size, uint32_t epoch)
{
	bool known = type != CTL_DELETE && m->lm_obj[k].ob_known;
	struct order_rec r = {
		.r_version = known ? ORDER_VERSION : ORDER_VERSION_PLAIN,
		.r_type = (uint8_t)type,
		.r_stripe = (uint8_t)(k % m->lm_stripes),
		.r_mirror = m->lm_obj[k].ob_copy,
		.r_fs = htole16(ns_super(lo->l_ns)->su_fs),
		.r_incarnation = htole16(i->i_incarnation),
		.r_ino = htole64(i->i_ino),
		.r_size = htole64(size),
		.r_epoch = htole32(epoch),
		.r_client_or_flags = htole32(known ? ORDER_KNOWN : 0),
	};

	return row_put(lo, t, m->lm_obj[k].ob_ds, &r);
}

static int put_all(struct lo *lo, struct kv_txn *t, ctl_order_type type, const struct ns_inode *i,
		   const struct lo_map *m, uint64_t size, uint32_t epoch)
{
	int err = 0;

	for (unsigned k = 0; k < (unsigned)m->lm_stripes * m->lm_mirrors && !err; k++)
		err = m->lm_obj[k].ob_state == LO_ABSENT ? 0 : put_one(lo, t, type, i, m, k, size, epoch);
	return err;
}

int lo_order_free_object(struct lo *lo, struct kv_txn *t, const struct ns_inode *i, const struct lo_map *m, unsigned obj)
{
	return put_one(lo, t, CTL_DELETE, i, m, obj, 0, m->lm_epoch);
}

int lo_order_delete(struct lo *lo, struct kv_txn *t, uint32_t ds, const ctl_object *o)
{
	struct order_rec r = {
		.r_version = ORDER_VERSION_PLAIN,
		.r_type = CTL_DELETE,
		.r_stripe = (uint8_t)o->stripe,
		.r_mirror = (uint8_t)o->mirror,
		.r_fs = htole16((uint16_t)o->fs),
		.r_incarnation = htole16((uint16_t)o->incarnation),
		.r_ino = htole64(o->ino),
	};

	if (o->fs > UINT16_MAX || o->incarnation > UINT16_MAX || o->stripe > UINT8_MAX || o->mirror > UINT8_MAX)
		return -EINVAL;
	return row_put(lo, t, ds, &r);
}

/* A damaged map must not keep the name from going: what it named is then found by the checker. */
int lo_order_free(struct lo *lo, struct kv_txn *t, const struct ns_inode *i)
{
	struct ns_inode ino = *i;
	struct lo_map m;
	int err;

	if (i->i_type != NS_REG || !i->i_blob.s_len)
		return 0;
	if (lo_map_decode(i->i_blob, &m)) {
		log_error("inode %llu: damaged layout map; its objects are not deleted",
			  (unsigned long long)i->i_ino);
		return 0;
	}
	err = put_all(lo, t, CTL_DELETE, &ino, &m, 0, m.lm_epoch);
	return err ? err : lo_twin_free(lo, t, i);
}

int lo_order_truncate(struct lo *lo, struct kv_txn *t, const struct ns_inode *i,
		      const struct lo_map *m, uint64_t size)
{
	return put_all(lo, t, CTL_TRUNCATE, i, m, size, m->lm_epoch);
}

int lo_order_fence(struct lo *lo, struct kv_txn *t, const struct ns_inode *i,
		   const struct lo_map *m, uint32_t epoch)
{
	return put_all(lo, t, CTL_FENCE, i, m, 0, epoch);
}

int lo_order_fence_object(struct lo *lo, struct kv_txn *t, const struct ns_inode *i, const struct lo_map *m, unsigned obj)
{
	return put_one(lo, t, CTL_FENCE, i, m, obj, 0, m->lm_epoch);
}

bool lo_fence_unheard(struct lo *lo, struct lo_map *m)
{
	bool any = false;

	for (unsigned k = 0; k < lo_objects(m); k++) {
		struct lo_object *o = &m->lm_obj[k];
		struct dsc_server sv;

		if (o->ob_state != LO_STALE)
			continue;
		if (dsc_dead(lo->l_dsc, o->ob_ds) && dsc_get(lo->l_dsc, o->ob_ds, &sv) && sv.sv_generic)
			any = true;
		else
			o->ob_state = LO_IN_SYNC;
	}
	return any;
}

int lo_clone_source(const struct lo_map *dst, unsigned obj, const struct lo_map *src)
{
	if (dst->lm_stripes != src->lm_stripes || dst->lm_unit != src->lm_unit)
		return -1;
	for (unsigned k = obj % dst->lm_stripes; k < (unsigned)src->lm_stripes * src->lm_mirrors; k += src->lm_stripes)
		if (src->lm_obj[k].ob_ds == dst->lm_obj[obj].ob_ds && src->lm_obj[k].ob_state == LO_IN_SYNC)
			return (int)k;
	return -1;
}

int lo_order_clone(struct lo *lo, struct kv_txn *t, const struct ns_inode *i, const struct lo_map *m, const struct lo_clone *cl)
{
	for (unsigned k = 0; k < (unsigned)m->lm_stripes * m->lm_mirrors; k++) {
		int source = lo_clone_source(m, k, &cl->cl_map), err;
		struct clone_rec r = {
			.r = {
				.r_version = ORDER_VERSION_PLAIN,
				.r_type = CTL_CLONE,
				.r_stripe = (uint8_t)(k % m->lm_stripes),
				.r_mirror = m->lm_obj[k].ob_copy,
				.r_fs = htole16(ns_super(lo->l_ns)->su_fs),
				.r_incarnation = htole16(i->i_incarnation),
				.r_ino = htole64(i->i_ino),
				.r_size = htole64(cl->cl_len),
				.r_epoch = htole32(m->lm_epoch),
			},
			.r_src = htole64(cl->cl_ino),
			.r_from = htole64(cl->cl_from),
			.r_offset = htole64(cl->cl_to),
			.r_src_incarnation = htole16(cl->cl_incarnation),
		};

		if (m->lm_obj[k].ob_state != LO_IN_SYNC)
			continue;
		if (source < 0)
			return -EXDEV;
		r.r_src_mirror = cl->cl_map.lm_obj[source].ob_copy;
		r.r_src_known = cl->cl_map.lm_obj[source].ob_known;
		err = row_put_n(lo, t, m->lm_obj[k].ob_ds, &r, sizeof(r));
		if (err)
			return err;
	}
	return 0;
}

int lo_order_bar(struct lo *lo, struct kv_txn *t, uint32_t client)
{
	struct order_rec r = {
		.r_version = ORDER_VERSION_PLAIN,
		.r_type = CTL_BAR_CLIENT,
		.r_fs = htole16(ns_super(lo->l_ns)->su_fs),
		.r_client_or_flags = htole32(client),
	};
	struct dsc_server sv;

	for (uint32_t id = 1; id <= DSC_MAX; id++) {
		/* Generic servers know no clients: who is evicted is kept out by a fence of each of its files. */
		int err = dsc_get(lo->l_dsc, id, &sv) && !sv.sv_generic ? row_put(lo, t, id, &r) : 0;

		if (err)
			return err;
	}
	return 0;
}

/* ---- the mirror in memory: on the loop ---- */

struct order_queue *lo_order_queue(struct lo_orders *os, uint32_t ds)
{
	struct order_queue *oq = os->os_queue[ds];

	if (oq)
		return oq;
	oq = calloc(1, sizeof(*oq));
	if (!oq)
		return NULL;
	oq->oq_orders = os;
	oq->oq_ds = ds;
	for (unsigned l = 0; l < ORDER_LISTS; l++)
		oq->oq_tail[l] = &oq->oq_list[l];
	oq->oq_retry.t_fire = lo_order_retry_fire;
	os->os_queue[ds] = oq;
	return oq;
}

/* Locked, or on the loop. */
static struct order_file *file_find(struct lo_orders *os, uint64_t ino)
{
	uint64_t h = hash_u64(ino);

	for (struct hash_link *l = hash_first(&os->os_files, h); l; l = hash_next(l)) {
		struct order_file *of = hash_entry(l, struct order_file, of_link);

		if (of->of_ino == ino)
			return of;
	}
	return NULL;
}

static struct order_file *file_get(struct lo_orders *os, uint64_t ino)
{
	struct order_file *of = file_find(os, ino);
	int err;

	if (of)
		return of;
	of = calloc(1, sizeof(*of));
	if (!of)
		return NULL;
	of->of_ino = ino;
	pthread_mutex_lock(&os->os_lock);
	err = hash_add(&os->os_files, &of->of_link, hash_u64(ino));
	pthread_mutex_unlock(&os->os_lock);
	if (err) {
		free(of);
		return NULL;
	}
	return of;
}

static void file_put(struct lo_orders *os, struct order_file *of)
{
	if (of->of_orders || of->of_waits)
		return;
	pthread_mutex_lock(&os->os_lock);
	hash_del(&os->os_files, &of->of_link);
	pthread_mutex_unlock(&os->os_lock);
	free(of);
}

static uint64_t object_held(struct lo *lo, const struct order *o, const struct lo_map *m)
{
	int k = lo_object_of(m, o->or_ds, o->or_stripe, o->or_mirror);

	/* A server without a lease fences before it serves again. */
	if (o->or_type == CTL_FENCE ? !dsc_leased(lo->l_dsc, o->or_ds) : o->or_type != CTL_TRUNCATE && o->or_type != CTL_CLONE)
		return 0;
	if (k < 0 || m->lm_obj[k].ob_state == LO_STALE)
		return 0;
	return UINT64_C(1) << k;
}

uint64_t lo_held_objects(struct lo *lo, uint64_t ino, const struct lo_map *m)
{
	struct lo_orders *os = lo->l_orders;
	struct order_file *of;
	uint64_t pending = 0;

	if (!atomic_load(&os->os_count))
		return 0;
	pthread_mutex_lock(&os->os_lock);
	of = file_find(os, ino);
	for (const struct order *o = of ? of->of_orders : NULL; o; o = o->or_file_next)
		pending |= object_held(lo, o, m);
	pthread_mutex_unlock(&os->os_lock);
	return pending;
}

bool lo_order_pending(struct lo *lo, uint64_t ino, const struct lo_map *m, unsigned obj, uint64_t *upto)
{
	struct lo_orders *os = lo->l_orders;
	struct order_file *of;
	bool pending = false;

	/* One that nobody has read yet may be it: a refresh that begins after the first look sees it. */
	if (!*upto)
		*upto = atomic_load(&os->os_begun) + 1;
	if (*upto > atomic_load(&os->os_ended)) {
		lo_orders_kick(lo);
		return true;
	}
	pthread_mutex_lock(&os->os_lock);
	of = file_find(os, ino);
	for (const struct order *o = of ? of->of_orders : NULL; o; o = o->or_file_next)
		pending |= o->or_type != CTL_DELETE && lo_object_of(m, o->or_ds, o->or_stripe, o->or_mirror) == (int)obj;
	pthread_mutex_unlock(&os->os_lock);
	return pending;
}

uint32_t lo_orders_failing(struct lo *lo, uint32_t ds, uint64_t *for_ms)
{
	struct lo_orders *os = lo->l_orders;
	uint32_t n = atomic_load(&os->os_failing[ds]);

	*for_ms = n ? clock_mono_ms() - atomic_load(&os->os_failing_ms[ds]) : 0;
	return n;
}

struct deleting {
	uint32_t dl_ds;
	const ctl_object *dl_obj;
	bool dl_found;
};

static int deletes_row(void *arg, struct kv_slice id, struct kv_slice val)
{
	struct deleting *dl = arg;
	const ctl_object *o = dl->dl_obj;
	struct order_rec r;
	uint32_t be;

	if (id.s_len != ORDER_KEY_LEN)
		return 1;
	memcpy(&be, id.s_data, sizeof(be));
	if (be32toh(be) != dl->dl_ds)
		return 1;
	if (val.s_len != sizeof(r))
		return 0;
	memcpy(&r, val.s_data, sizeof(r));
	dl->dl_found = r.r_type == CTL_DELETE && le64toh(r.r_ino) == o->ino && le16toh(r.r_incarnation) == o->incarnation && r.r_stripe == o->stripe && r.r_mirror == o->mirror;
	return dl->dl_found;
}

bool lo_order_deletes(struct lo *lo, struct kv_txn *t, uint32_t ds, const ctl_object *obj)
{
	struct deleting dl = {ds, obj, false};
	struct lo_orders *os = lo->l_orders;
	bool unread = atomic_load(&os->os_gone) + atomic_load(&os->os_looking);
	uint32_t be = htobe32(ds);
	struct order_file *of;

	pthread_mutex_lock(&os->os_lock);
	of = file_find(os, obj->ino);
	for (const struct order *o = of ? of->of_orders : NULL; o; o = o->or_file_next)
		dl.dl_found |= o->or_type == CTL_DELETE && o->or_ds == ds && o->or_incarnation == obj->incarnation && o->or_stripe == obj->stripe && o->or_mirror == obj->mirror;
	pthread_mutex_unlock(&os->os_lock);
	/* Those of files that are just gone wait in the store for each other (lo_orders_gone). */
	if (!dl.dl_found && unread)
		ns_rows(t, NS_T_ORDER, &be, sizeof(be), deletes_row, &dl);
	return dl.dl_found;
}

static int orders_first(void *arg, struct kv_slice id, struct kv_slice val)
{
	uint32_t *ds = arg, be;

	(void)val;
	memcpy(&be, id.s_data, sizeof(be));
	*ds = id.s_len == ORDER_KEY_LEN ? be32toh(be) : 0;
	return 1;
}

bool lo_orders_for(struct kv_txn *t, uint32_t ds)
{
	uint32_t be = htobe32(ds), first = 0;

	return ns_rows(t, NS_T_ORDER, &be, sizeof(be), orders_first, &first) == 0 && first == ds;
}

bool lo_orders_of(struct lo *lo, uint64_t ino)
{
	struct lo_orders *os = lo->l_orders;
	const struct order_file *of;
	bool any;

	pthread_mutex_lock(&os->os_lock);
	of = file_find(os, ino);
	any = of && of->of_orders;
	pthread_mutex_unlock(&os->os_lock);
	return any;
}

uint64_t lo_orders_count(struct lo *lo)
{
		struct lo_orders *os = lo->l_orders;

	return atomic_load(&os->os_count) + atomic_load(&os->os_gone) + atomic_load(&os->os_looking);
}

static void order_link(struct lo_orders *os, struct order_queue *oq, struct order_file *of,
		       struct order *o)
{
	unsigned l = o->or_type == CTL_DELETE ? ORDER_DELETE : ORDER_URGENT;

	o->or_prevp = oq->oq_tail[l];
	*o->or_prevp = o;
	oq->oq_tail[l] = &o->or_next;
	o->or_file = of;
	pthread_mutex_lock(&os->os_lock);
	o->or_file_next = of->of_orders;
	if (o->or_file_next)
		o->or_file_next->or_file_prevp = &o->or_file_next;
	o->or_file_prevp = &of->of_orders;
	of->of_orders = o;
	pthread_mutex_unlock(&os->os_lock);
	atomic_fetch_add(&os->os_count, 1);
	os->os_nclones += o->or_type == CTL_CLONE;
}

static void order_unlink(struct lo_orders *os, struct order_queue *oq, struct order *o)
{
	unsigned l = o->or_type == CTL_DELETE ? ORDER_DELETE : ORDER_URGENT;

	*o->or_prevp = o->or_next;
	if (o->or_next)
		o->or_next->or_prevp = o->or_prevp;
	else
		oq->oq_tail[l] = o->or_prevp;
	pthread_mutex_lock(&os->os_lock);
	*o->or_file_prevp = o->or_file_next;
	if (o->or_file_next)
		o->or_file_next->or_file_prevp = o->or_file_prevp;
	pthread_mutex_unlock(&os->os_lock);
	atomic_fetch_sub(&os->os_count, 1);
	os->os_nclones -= o->or_type == CTL_CLONE;
}

/* ---- reading new rows ---- */

struct scan {
	struct lo_orders *sc_orders;
	uint32_t sc_ds; /* 0: of every server */
	int sc_err;
};

struct order *lo_order_decode(uint32_t ds, uint64_t number, struct kv_slice val, uint64_t *ino)
{
	struct clone_rec cr = {0};
	struct order_rec r;
	struct order *o;

	if (val.s_len < sizeof(r) || val.s_len > sizeof(cr))
		return NULL;
	memcpy(&cr, val.s_data, val.s_len);
	r = cr.r;
	if (!r.r_version || r.r_version > ORDER_VERSION || r.r_type < CTL_TRUNCATE || r.r_type > CTL_CLONE)
		return NULL;
	if (val.s_len != (r.r_type == CTL_CLONE ? sizeof(cr) : sizeof(r)))
		return NULL;
	o = calloc(1, sizeof(*o));
	if (!o)
		return NULL;
	*ino = le64toh(r.r_ino);
	o->or_number = number;
	o->or_ds = ds;
	o->or_type = r.r_type;
	o->or_stripe = r.r_stripe;
	o->or_mirror = r.r_mirror;
	o->or_fs = le16toh(r.r_fs);
	o->or_incarnation = le16toh(r.r_incarnation);
	o->or_size = le64toh(r.r_size);
	o->or_epoch = le32toh(r.r_epoch);
	if (r.r_type == CTL_BAR_CLIENT)
		o->or_client = le32toh(r.r_client_or_flags);
	else
		o->or_known = r.r_version > 1 && (le32toh(r.r_client_or_flags) & ORDER_KNOWN);
	o->or_src = le64toh(cr.r_src);
	o->or_from = le64toh(cr.r_from);
	o->or_offset = le64toh(cr.r_offset);
	o->or_src_incarnation = le16toh(cr.r_src_incarnation);
	o->or_src_mirror = cr.r_src_mirror;
	o->or_src_known = cr.r_src_known;
	return o;
}

static int scan_row(void *arg, struct kv_slice id, struct kv_slice val)
{
	struct scan *sc = arg;
	struct lo_orders *os = sc->sc_orders;
	struct order_file *of = NULL;
	struct order_queue *oq;
	uint64_t number, ino = 0;
	struct order *o;
	uint32_t ds;

	if (id.s_len != ORDER_KEY_LEN) {
		log_error("an order's row has a key of %zu bytes; left alone", id.s_len);
		return 0;
	}
	memcpy(&ds, id.s_data, 4);
	memcpy(&number, (const uint8_t *)id.s_data + 4, 8);
	ds = be32toh(ds);
	number = be64toh(number);
	if (sc->sc_ds && ds != sc->sc_ds)
		return 1;
	oq = ds && ds <= DSC_MAX ? lo_order_queue(os, ds) : NULL;
	o = oq ? lo_order_decode(ds, number, val, &ino) : NULL;
	if (!o) {
		log_error("order %llu of data server %u cannot be read; left alone",
			  (unsigned long long)number, ds);
		return 0;
	}
	of = number > os->os_seen[ds] ? file_get(os, ino) : NULL;
	if (!of) {
		free(o);
		/* Without memory os_seen stays: the next refresh tries again. */
		return number > os->os_seen[ds] ? (sc->sc_err = -ENOMEM) : 0;
	}
	os->os_seen[ds] = number;
	os->os_high = number > os->os_high ? number : os->os_high;
	order_link(os, oq, of, o);
	return 0;
}

static void queue_drop(struct lo_orders *os, uint32_t ds);

/* Queues of which a mutation has put more than was seen: their new rows are read. */
void lo_orders_refresh(struct lo_orders *os)
{
	uint64_t turn = atomic_fetch_add(&os->os_begun, 1) + 1;
	bool first = !os->os_loaded;
	struct scan sc = {.sc_orders = os};
	struct kv_txn *t = NULL;
	struct order_key from;
	int err = 0;

	atomic_store(&os->os_looking, atomic_exchange(&os->os_gone, 0)); /* before the look: their rows are committed */
	for (uint32_t ds = 1; ds <= DSC_MAX && !err; ds++) {
		uint64_t seen = os->os_seen[ds];

		if (os->os_loaded && atomic_load(&os->os_put[ds]) <= seen)
			continue;
		if (!t)
			err = kv_read_begin(ns_kv(os->os_lo->l_ns), &t);
		if (err)
			break;
		key_make(&from, ds, seen + 1);
		sc.sc_ds = os->os_loaded ? ds : 0;
		err = os->os_loaded ? ns_rows(t, NS_T_ORDER, from.k, sizeof(from.k), scan_row, &sc)
				    : ns_rows(t, NS_T_ORDER, "", 0, scan_row, &sc);
		err = err ? err : sc.sc_err;
		if (!os->os_loaded && !err) {
			os->os_loaded = true;
			break; /* that was all of them, of this snapshot */
		}
	}
	if (t)
		kv_read_end(t);
	atomic_store(&os->os_looking, 0);
	if (err)
		log_error("the rows of orders cannot be read: %s", strerror(-err));
	else
		atomic_store(&os->os_ended, turn);
	/* A crash may come between a server's record and its orders. */
	for (uint32_t ds = 1; first && os->os_loaded && ds <= DSC_MAX; ds++)
		if (os->os_queue[ds] && !dsc_known(os->os_lo->l_dsc, ds))
			queue_drop(os, ds);
}

/* ---- waiting ---- */

static void wait_back(struct loop_msg *m)
{
	struct order_wait *ow = caa_container_of(m, struct order_wait, ow_msg);

	ow->ow_done(ow->ow_arg, ow->ow_err);
	free(ow);
}

static void wait_end(struct order_wait *ow, int err)
{
	ow->ow_err = err;
	ow->ow_msg.m_run = wait_back;
	loop_post(ow->ow_loop, &ow->ow_msg);
}

static void wait_unlink(struct order_wait *ow)
{
	*ow->ow_prevp = ow->ow_next;
	if (ow->ow_next)
		ow->ow_next->ow_prevp = ow->ow_prevp;
	*ow->ow_all_prevp = ow->ow_all_next;
	if (ow->ow_all_next)
		ow->ow_all_next->ow_all_prevp = ow->ow_all_prevp;
}

static bool wait_counts(const struct order_wait *ow, const struct order *o)
{
	int k = ow->ow_map.lm_stripes ? lo_object_of(&ow->ow_map, o->or_ds, o->or_stripe, o->or_mirror) : -1;

	return !ow->ow_map.lm_stripes || (k >= 0 && ow->ow_map.lm_obj[k].ob_state != LO_STALE);
}

/* A server whose lease has run out honours no capability, and does its orders before it does again.
 */
static bool order_open(struct lo_orders *os, const struct order *o)
{
	return dsc_leased(os->os_lo->l_dsc, o->or_ds);
}

/* The first order of the inode that is still waited for. */
static uint64_t first_open(struct lo_orders *os, const struct order_file *of)
{
	uint64_t first = UINT64_MAX;
	uint8_t leased[DSC_MAX + 1]; /* 2: not looked at */

	memset(leased, 2, sizeof(leased));
	for (const struct order *o = of->of_orders; o; o = o->or_file_next) {
		if (leased[o->or_ds] == 2)
			leased[o->or_ds] = order_open(os, o);
		if (leased[o->or_ds] && o->or_number < first)
			first = o->or_number;
	}
	return first;
}

/* first: first_open, which tells it for whom every order counts: ten thousand clients that are evicted at once wait beside each other. */
static bool wait_over(struct lo_orders *os, const struct order_wait *ow, uint64_t first)
{
	if (!ow->ow_map.lm_stripes || first > ow->ow_high)
		return first > ow->ow_high;
	for (const struct order *o = ow->ow_file->of_orders; o; o = o->or_file_next)
		if (o->or_number <= ow->ow_high && wait_counts(ow, o) && order_open(os, o))
			return false;
	return true;
}

static void waits_check(struct lo_orders *os, struct order_file *of)
{
	uint64_t first = first_open(os, of);

	for (struct order_wait *ow = of->of_waits, *next; ow; ow = next) {
		next = ow->ow_next;
		if (wait_over(os, ow, first)) {
			wait_unlink(ow);
			wait_end(ow, 0);
		}
	}
}

static void tick(struct loop_timer *t)
{
	struct lo_orders *os = caa_container_of(t, struct lo_orders, os_tick);
	uint64_t now = clock_mono_ms(), first = 0, ino = UINT64_MAX; /* first: of that inode, the last that was looked at */

	for (struct order_wait *ow = os->os_waits, *next; ow; ow = next) {
		struct order_file *of = ow->ow_file;
		bool over;

		if (of->of_ino != ino)
			first = first_open(os, of);
		ino = of->of_ino;
		over = wait_over(os, ow, first);
		next = ow->ow_all_next;
		if (!over && now < ow->ow_deadline_ms)
			continue;
		wait_unlink(ow);
		wait_end(ow, over ? 0 : -ETIMEDOUT);
		file_put(os, of);
	}
	if (os->os_waits)
		loop_timer_start(os->os_loop, &os->os_tick, TICK_MS);
}

static void run_all(struct lo_orders *os)
{
	for (uint32_t ds = 1; ds <= DSC_MAX; ds++)
		if (os->os_queue[ds])
			lo_order_run(os->os_queue[ds]);
}

/* One that begins waits for all orders that there are: nearly always the first that is looked at says so. */
static bool wait_needed(struct lo_orders *os, const struct order_wait *ow)
{
	for (const struct order *o = ow->ow_file->of_orders; o; o = o->or_file_next)
		if (wait_counts(ow, o) && order_open(os, o))
			return true;
	return false;
}

static void wait_start(struct loop_msg *m)
{
	struct order_wait *ow = caa_container_of(m, struct order_wait, ow_msg);
	struct lo_orders *os = ow->ow_orders;

	lo_orders_refresh(os);
	ow->ow_high = os->os_high;
	ow->ow_deadline_ms = clock_mono_ms() + ow->ow_timeout_ms;
	ow->ow_file = file_find(os, ow->ow_ino);
	if (!ow->ow_file || !wait_needed(os, ow)) {
		wait_end(ow, 0);
	} else {
		ow->ow_next = ow->ow_file->of_waits;
		if (ow->ow_next)
			ow->ow_next->ow_prevp = &ow->ow_next;
		ow->ow_prevp = &ow->ow_file->of_waits;
		ow->ow_file->of_waits = ow;
		ow->ow_all_next = os->os_waits;
		if (ow->ow_all_next)
			ow->ow_all_next->ow_all_prevp = &ow->ow_all_next;
		ow->ow_all_prevp = &os->os_waits;
		os->os_waits = ow;
		if (!os->os_tick.t_pos)
			loop_timer_start(os->os_loop, &os->os_tick, TICK_MS);
	}
	run_all(os);
}

void lo_orders_wait(struct lo *lo, uint64_t ino, struct loop *loop, uint32_t timeout_ms,
		    void (*done)(void *arg, int err), void *arg)
{
	lo_orders_wait_used(lo, ino, NULL, loop, timeout_ms, done, arg);
}

void lo_orders_wait_used(struct lo *lo, uint64_t ino, const struct lo_map *map, struct loop *loop, uint32_t timeout_ms, void (*done)(void *arg, int err), void *arg)
{
	struct order_wait *ow = calloc(1, sizeof(*ow));

	if (!ow)
		log_fatal("no memory to wait for an order");
	ow->ow_orders = lo->l_orders;
	ow->ow_ino = ino;
	if (map)
		ow->ow_map = *map;
	ow->ow_loop = loop;
	ow->ow_timeout_ms = timeout_ms;
	ow->ow_done = done;
	ow->ow_arg = arg;
	ow->ow_msg.m_run = wait_start;
	loop_post(lo->l_orders->os_loop, &ow->ow_msg);
}

/* ---- kicking ---- */

static void kick_run(struct loop_msg *m)
{
	struct lo_orders *os = caa_container_of(m, struct lo_orders, os_kick);

	/* Before the look: a kick from now on posts again. */
	atomic_store(&os->os_kicked, false);
	lo_orders_refresh(os);
	run_all(os);
}

void lo_orders_kick(struct lo *lo)
{
	struct lo_orders *os = lo->l_orders;

	if (!atomic_exchange(&os->os_kicked, true))
		loop_post(os->os_loop, &os->os_kick);
}

static void later_fire(struct loop_timer *t)
{
	struct lo_orders *os = caa_container_of(t, struct lo_orders, os_later_timer);

	lo_orders_refresh(os);
	run_all(os);
}

static void later_run(struct loop_msg *m)
{
	struct lo_orders *os = caa_container_of(m, struct lo_orders, os_later);

	atomic_store(&os->os_latered, false);
	if (!os->os_later_timer.t_pos)
		loop_timer_start(os->os_loop, &os->os_later_timer, LATER_MS);
}

void lo_orders_gone(struct lo *lo)
{
	struct lo_orders *os = lo->l_orders;
	uint64_t n = atomic_fetch_add(&os->os_gone, 1);

	if (n == 0 && !atomic_exchange(&os->os_latered, true))
		loop_post(os->os_loop, &os->os_later);
	if (n + 1 >= LATER_MANY)
		lo_orders_kick(lo);
}

/* ---- done ones ---- */

static int delete_run(struct kv_op *op, struct kv_txn *t)
{
	struct lo_orders *os = caa_container_of(op, struct lo_orders, os_del);

	crash_point("orders-delete");
	for (size_t i = 0; i < os->os_ndeleting; i++) {
		int err = ns_row_del(t, NS_T_ORDER, os->os_deleting[i].k, ORDER_KEY_LEN);

		if (err)
			return err;
	}
	return 0;
}

static void delete_now(struct lo_orders *os);

/* Nobody waits for it, and a commit of its own for each would double what an unlink costs: they gather for a while. */
void lo_orders_delete(struct lo_orders *os)
{
	if (os->os_ndeleting || !os->os_ndead)
		return;
	if (os->os_ndead >= DELETE_MANY)
		delete_now(os);
	else if (!os->os_del_timer.t_pos)
		loop_timer_start(os->os_loop, &os->os_del_timer, DELETE_MS);
}

static void delete_fire(struct loop_timer *t)
{
	struct lo_orders *os = caa_container_of(t, struct lo_orders, os_del_timer);

	if (!os->os_ndeleting && os->os_ndead)
		delete_now(os);
}

static void delete_now(struct lo_orders *os)
{
	loop_timer_stop(os->os_loop, &os->os_del_timer);
	os->os_deleting = os->os_dead;
	os->os_ndeleting = os->os_ndead;
	os->os_dead = NULL;
	os->os_ndead = os->os_dead_cap = 0;
	kv_submit(ns_kv(os->os_lo->l_ns), &os->os_del);
}

static void delete_done(struct kv_op *op, int err)
{
	struct lo_orders *os = caa_container_of(op, struct lo_orders, os_del);

	/* Rows that stay are sent again after the next start, and known by their numbers. */
	if (err)
		log_error("%zu orders that are done keep their rows: %s", os->os_ndeleting,
			  strerror(-err));
	free(os->os_deleting);
	os->os_deleting = NULL;
	os->os_ndeleting = 0;
	lo_orders_delete(os);
}

static void delete_later(struct lo_orders *os, const struct order *o)
{
	if (os->os_ndead == os->os_dead_cap) {
		size_t cap = os->os_dead_cap ? os->os_dead_cap * 2 : CTL_BATCH_MAX;
		struct order_key *v = realloc(os->os_dead, cap * sizeof(*v));

		if (!v)
			return; /* as in delete_done */
		os->os_dead = v;
		os->os_dead_cap = cap;
	}
	key_make(&os->os_dead[os->os_ndead++], o->or_ds, o->or_number);
}

void lo_order_finish(struct lo_orders *os, struct order *o)
{
	struct order_file *of = o->or_file;

	order_unlink(os, os->os_queue[o->or_ds], o);
	if (o->or_told)
		atomic_fetch_sub(&os->os_failing[o->or_ds], 1);
	delete_later(os, o);
	free(o);
	if (of->of_waits && !of->of_due) {
		of->of_due = true;
		of->of_due_next = os->os_due;
		os->os_due = of;
	}
	file_put(os, of);
}

void lo_order_finished(struct lo_orders *os)
{
	struct order_file *of;

	while ((of = os->os_due)) {
		os->os_due = of->of_due_next;
		of->of_due = false;
		waits_check(os, of);
		file_put(os, of);
	}
	lo_orders_delete(os);
}

/* ---- a server that was forgotten ---- */

static void queue_drop(struct lo_orders *os, uint32_t ds)
{
	struct order_queue *oq = os->os_queue[ds];

	for (unsigned l = 0; oq && l < ORDER_LISTS; l++)
		while (oq->oq_list[l])
			lo_order_finish(os, oq->oq_list[l]);
	lo_order_finished(os);
}

struct forgetting {
	struct loop_msg fg_msg;
	struct lo_orders *fg_orders;
	uint32_t fg_ds;
};

static void forget_go(struct loop_msg *m)
{
	struct forgetting *fg = caa_container_of(m, struct forgetting, fg_msg);
	struct order_queue *oq;

	lo_orders_refresh(fg->fg_orders);
	oq = fg->fg_orders->os_queue[fg->fg_ds];
	if (oq && oq->oq_busy) { /* the batch under way is about to fail: its connection has ended */
		loop_post(fg->fg_orders->os_loop, m);
		return;
	}
	queue_drop(fg->fg_orders, fg->fg_ds);
	free(fg);
}

void lo_orders_forget(struct lo *lo, uint32_t ds)
{
	struct forgetting *fg = calloc(1, sizeof(*fg));

	if (!fg)
		return; /* the next start drops them */
	fg->fg_msg.m_run = forget_go;
	fg->fg_orders = lo->l_orders;
	fg->fg_ds = ds;
	loop_post(lo->l_orders->os_loop, &fg->fg_msg);
}

/* ---- life ---- */

static double gauge_orders(void *arg)
{
	return (double)lo_orders_count(arg);
}

int lo_orders_create(struct lo *lo)
{
	struct lo_orders *os = calloc(1, sizeof(*os));

	if (!os)
		return -ENOMEM;
	lo->l_orders = os;
	os->os_lo = lo;
	os->os_loop = dsc_loop(lo->l_dsc, 0);
	os->os_kick.m_run = kick_run;
	os->os_later.m_run = later_run;
	os->os_later_timer.t_fire = later_fire;
	os->os_tick.t_fire = tick;
	os->os_del_timer.t_fire = delete_fire;
	os->os_del.o_run = delete_run;
	os->os_del.o_done = delete_done;
	os->os_del.o_loop = os->os_loop;
	pthread_mutex_init(&os->os_lock, NULL);
	dsc_set_join_handler(lo->l_dsc, lo_order_join, os);
	metric_gauge("weft_mds_orders", "Orders to data servers that are not done.", "",
		     gauge_orders, lo);
	/* What an earlier run left. */
	lo_orders_kick(lo);
	return 0;
}

void lo_orders_destroy(struct lo *lo)
{
	struct lo_orders *os = lo->l_orders;

	if (!os)
		return;
	hash_each(&os->os_files, i, l, next)
	{
		struct order_file *of = hash_entry(l, struct order_file, of_link);

		while (of->of_orders) {
			struct order *o = of->of_orders;

			of->of_orders = o->or_file_next;
			free(o);
		}
		free(of);
	}
	free(os->os_files.h_slot);
	while (os->os_waits) {
		struct order_wait *ow = os->os_waits;

		os->os_waits = ow->ow_all_next;
		free(ow);
	}
	for (uint32_t ds = 1; ds <= DSC_MAX; ds++)
		free(os->os_queue[ds]);
	free(os->os_dead);
	free(os->os_deleting);
	pthread_mutex_destroy(&os->os_lock);
	free(os);
}
