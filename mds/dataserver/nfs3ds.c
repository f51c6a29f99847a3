/* SPDX-License-Identifier: Apache-2.0 */
/* nfs3ds.c - NFSv3 data servers: rows, owners, file handles. See nfs3ds.h. Integers of rows are
 * little-endian, those of keys big-endian. */
#include "mds/dataserver/nfs3ds.h"
#include "base/log.h"
#include <errno.h>
#include <sodium.h>
#include <stdio.h>

#define NFS3DS_VERSION 1
/* Owners are the 2^30 numbers from here on. No user of any machine has such a number, and it is
 * positive everywhere. */
#define OWNER_FIRST 0x40000000u
#define OWNER_BITS  30
/* A client that only reads gets the group, and a uid that never owns a file (RFC 8435 section
 * 2.2.1). */
#define OWNER_NONE 0x3fffffffu

struct server_rec {
	uint8_t ser_version, ser_dir_len;
	uint16_t ser_path_len;
	uint8_t ser_zero[4];
	uint64_t ser_next;
	uint8_t ser_dir[NFS3_FHSIZE];
	char ser_path[];
} __attribute__((packed));
struct pool_rec {
	uint8_t por_version, por_len;
	uint8_t por_fh[];
} __attribute__((packed));
struct object_rec {
	uint8_t obr_version, obr_len, obr_zero[6];
	uint64_t obr_number, obr_done;
	uint8_t obr_fh[];
} __attribute__((packed));
_Static_assert(sizeof(struct server_rec) == 80 && sizeof(struct pool_rec) == 2 &&
		       sizeof(struct object_rec) == 24,
	       "records of generic data servers, version 1");

#define POOL_KEY   13
#define SERVER_KEY 17

static void pool_key(uint32_t ds, uint64_t number, uint8_t key[POOL_KEY])
{
	uint32_t d = htobe32(ds);
	uint64_t n = htobe64(number);

	key[0] = 'P';
	memcpy(key + 1, &d, 4);
	memcpy(key + 5, &n, 8);
}

static void server_key(const uint8_t uuid[16], uint8_t key[SERVER_KEY])
{
	key[0] = 'S';
	memcpy(key + 1, uuid, 16);
}

void nfs3ds_object_key(uint32_t ds, const struct cap_object *o, uint8_t key[NFS3DS_OBJECT_KEY])
{
	uint32_t d = htobe32(ds);
	uint64_t ino = htobe64(o->co_ino);
	uint16_t inc = htobe16(o->co_incarnation);

	key[0] = 'O';
	memcpy(key + 1, &d, 4);
	memcpy(key + 5, &ino, 8);
	memcpy(key + 13, &inc, 2);
	key[15] = o->co_stripe;
	key[16] = o->co_copy;
}

int nfs3ds_object_get(struct kv_txn *t, const uint8_t key[NFS3DS_OBJECT_KEY],
		      struct nfs3ds_object *o)
{
	const struct object_rec *r;
	struct kv_slice val;
	int err = ns_row_get(t, NS_T_NFS3DS, key, NFS3DS_OBJECT_KEY, &val);

	if (err)
		return err;
	r = val.s_data;
	if (val.s_len < sizeof(*r) || r->obr_version != NFS3DS_VERSION || !r->obr_len ||
	    r->obr_len > NFS3_FHSIZE || val.s_len != sizeof(*r) + r->obr_len)
		return -EIO;
	memset(o, 0, sizeof(*o));
	o->go_number = le64toh(r->obr_number);
	o->go_done = le64toh(r->obr_done);
	o->go_fh.f_len = r->obr_len;
	memcpy(o->go_fh.f_data, r->obr_fh, r->obr_len);
	return 0;
}

int nfs3ds_object_put(struct kv_txn *t, const uint8_t key[NFS3DS_OBJECT_KEY],
		      const struct nfs3ds_object *o)
{
	uint8_t buf[sizeof(struct object_rec) + NFS3_FHSIZE] = {0};
	struct object_rec *r = (struct object_rec *)buf;

	r->obr_version = NFS3DS_VERSION;
	r->obr_len = (uint8_t)o->go_fh.f_len;
	r->obr_number = htole64(o->go_number);
	r->obr_done = htole64(o->go_done);
	memcpy(r->obr_fh, o->go_fh.f_data, o->go_fh.f_len);
	return ns_row_put(t, NS_T_NFS3DS, key, NFS3DS_OBJECT_KEY, buf, sizeof(*r) + o->go_fh.f_len);
}

/* ---- files made ahead ---- */

struct pool_walk {
	uint32_t pw_ds;
	int (*pw_fn)(void *arg, uint64_t number, const struct nfs3ds_fh *fh);
	void *pw_arg;
	int pw_err;
};

static int pool_one(void *arg, struct kv_slice id, struct kv_slice val)
{
	struct pool_walk *pw = arg;
	const uint8_t *key = id.s_data;
	const struct pool_rec *r = val.s_data;
	struct nfs3ds_fh fh = {0};
	uint32_t ds;
	uint64_t n;

	if (id.s_len != POOL_KEY || key[0] != 'P')
		return 1;
	memcpy(&ds, key + 1, 4);
	memcpy(&n, key + 5, 8);
	if (be32toh(ds) != pw->pw_ds)
		return 1;
	if (val.s_len < sizeof(*r) || r->por_version != NFS3DS_VERSION ||
	    r->por_len > NFS3_FHSIZE || val.s_len != sizeof(*r) + r->por_len) {
		pw->pw_err = -EIO;
		return 1;
	}
	fh.f_len = r->por_len;
	memcpy(fh.f_data, r->por_fh, r->por_len);
	return pw->pw_fn(pw->pw_arg, be64toh(n), &fh) ? 1 : 0;
}

int nfs3ds_pool_each(struct kv_txn *t, uint32_t ds,
		     int (*fn)(void *arg, uint64_t number, const struct nfs3ds_fh *fh), void *arg)
{
	struct pool_walk pw = {.pw_ds = ds, .pw_fn = fn, .pw_arg = arg};
	uint8_t from[POOL_KEY];
	int err;

	pool_key(ds, 0, from);
	err = ns_rows(t, NS_T_NFS3DS, from, sizeof(from), pool_one, &pw);
	return err < 0 ? err : pw.pw_err;
}

int nfs3ds_pool_put(struct kv_txn *t, uint32_t ds, uint64_t number, const struct nfs3ds_fh *fh)
{
	uint8_t key[POOL_KEY], buf[sizeof(struct pool_rec) + NFS3_FHSIZE];
	struct pool_rec *r = (struct pool_rec *)buf;

	r->por_version = NFS3DS_VERSION;
	r->por_len = (uint8_t)fh->f_len;
	memcpy(r->por_fh, fh->f_data, fh->f_len);
	pool_key(ds, number, key);
	return ns_row_put(t, NS_T_NFS3DS, key, sizeof(key), buf, sizeof(*r) + fh->f_len);
}

struct first {
	uint64_t number;
	struct nfs3ds_fh fh;
};

static int first_ready(void *arg, uint64_t number, const struct nfs3ds_fh *fh)
{
	struct first *f = arg;

	if (!fh->f_len)
		return 0;
	f->number = number;
	f->fh = *fh;
	return 1;
}

static int pool_first(struct kv_txn *t, uint32_t ds, struct first *f)
{
	int err;

	memset(f, 0, sizeof(*f));
	err = nfs3ds_pool_each(t, ds, first_ready, f);
	return err ? err : f->fh.f_len ? 0 : -EAGAIN;
}

bool ds_reg_has_generic(struct ds_reg *d)
{
	return atomic_load_explicit(&d->d_generic, memory_order_relaxed);
}

static int one_less(void *arg, uint64_t number, const struct nfs3ds_fh *fh)
{
	unsigned *n = arg;

	(void)number;
	*n -= fh->f_len && *n;
	return !*n;
}

int ds_reg_nfs3_ready(struct ds_reg *d, struct kv_txn *t, uint32_t id, unsigned n)
{
	int err = n && ds_reg_nfs3_of(d, id) ? nfs3ds_pool_each(t, id, one_less, &n) : 0;

	return err ? err : n && ds_reg_nfs3_of(d, id) ? -EAGAIN : 0;
}

int ds_reg_nfs3_take(struct ds_reg *d, struct kv_txn *t, uint32_t id, const struct cap_object *obj)
{
	struct gen *g = ds_reg_nfs3_of(d, id);
	uint8_t key[NFS3DS_OBJECT_KEY], pool[POOL_KEY];
	struct nfs3ds_object o = {0};
	struct first f;
	int err;

	if (!g)
		return 0;
	err = pool_first(t, id, &f);
	if (err)
		return err;
	o.go_number = f.number;
	o.go_fh = f.fh;
	nfs3ds_object_key(id, obj, key);
	pool_key(id, f.number, pool);
	err = nfs3ds_object_put(t, key, &o);
	if (!err)
		err = ns_row_del(t, NS_T_NFS3DS, pool, sizeof(pool));
	if (!err && atomic_load(&g->gn_ready))
		atomic_fetch_sub(&g->gn_ready, 1);
	return err;
}

/* ---- all rows of a server's files ---- */

struct rows_walk {
	uint8_t rw_from[5]; /* kind and server */
	struct kv_txn *rw_txn;
	struct nfs3ds_row *rw_out;
	unsigned rw_n, rw_max;
};

static int nfs3ds_rows_one(void *arg, struct kv_slice id, struct kv_slice val)
{
	struct rows_walk *rw = arg;
	const uint8_t *key = id.s_data;
	struct nfs3ds_row *gw = &rw->rw_out[rw->rw_n];
	struct nfs3ds_object o;
	uint64_t n;

	(void)val;
	if (rw->rw_n == rw->rw_max || id.s_len > NFS3DS_OBJECT_KEY || id.s_len < POOL_KEY ||
	    memcmp(key, rw->rw_from, sizeof(rw->rw_from)))
		return 1;
	memcpy(gw->gw_key, key, id.s_len);
	gw->gw_len = (unsigned)id.s_len;
	memcpy(&n, key + 5, 8);
	gw->gw_number = id.s_len == POOL_KEY				? be64toh(n)
			: nfs3ds_object_get(rw->rw_txn, gw->gw_key, &o) ? 0
									: o.go_number;
	rw->rw_n++;
	return 0;
}

int nfs3ds_rows_some(struct kv_txn *t, uint32_t ds, struct nfs3ds_row *out, unsigned max)
{
	struct rows_walk rw = {.rw_txn = t, .rw_out = out, .rw_max = max};
	uint32_t d = htobe32(ds);
	int err = 0;

	memcpy(rw.rw_from + 1, &d, 4);
	for (const char *kind = "PO"; *kind && err >= 0 && !rw.rw_n; kind++) {
		rw.rw_from[0] = (uint8_t)*kind;
		err = ns_rows(t, NS_T_NFS3DS, rw.rw_from, sizeof(rw.rw_from), nfs3ds_rows_one, &rw);
	}
	return err < 0 ? err : (int)rw.rw_n;
}

/* ---- servers ---- */

int nfs3ds_server_put(struct kv_txn *t, const struct gen *g, uint64_t next)
{
	uint8_t key[SERVER_KEY], buf[sizeof(struct server_rec) + NFS3DS_PATH] = {0};
	struct server_rec *r = (struct server_rec *)buf;
	size_t len = strlen(g->gn_path);

	r->ser_version = NFS3DS_VERSION;
	r->ser_dir_len = (uint8_t)g->gn_dir.f_len;
	r->ser_path_len = htole16((uint16_t)len);
	r->ser_next = htole64(next);
	memcpy(r->ser_dir, g->gn_dir.f_data, g->gn_dir.f_len);
	memcpy(r->ser_path, g->gn_path, len);
	server_key(g->gn_uuid, key);
	return ns_row_put(t, NS_T_NFS3DS, key, sizeof(key), buf, sizeof(*r) + len);
}

static int server_decode(struct kv_slice val, struct gen *g, uint64_t *next)
{
	const struct server_rec *r = val.s_data;
	size_t len;

	if (val.s_len < sizeof(*r) || r->ser_version != NFS3DS_VERSION || !r->ser_dir_len ||
	    r->ser_dir_len > NFS3_FHSIZE)
		return -EIO;
	len = le16toh(r->ser_path_len);
	if (len >= NFS3DS_PATH || val.s_len != sizeof(*r) + len)
		return -EIO;
	*next = le64toh(r->ser_next);
	if (g) {
		g->gn_dir.f_len = r->ser_dir_len;
		memcpy(g->gn_dir.f_data, r->ser_dir, r->ser_dir_len);
		memcpy(g->gn_path, r->ser_path, len);
		g->gn_path[len] = 0;
	}
	return 0;
}

int nfs3ds_server_del(struct kv_txn *t, const struct gen *g)
{
	uint8_t key[SERVER_KEY];

	server_key(g->gn_uuid, key);
	return ns_row_del(t, NS_T_NFS3DS, key, sizeof(key));
}

int nfs3ds_next_get(struct kv_txn *t, const struct gen *g, uint64_t *next)
{
	uint8_t key[SERVER_KEY];
	struct kv_slice val;
	int err;

	server_key(g->gn_uuid, key);
	err = ns_row_get(t, NS_T_NFS3DS, key, sizeof(key), &val);
	return err ? err : server_decode(val, NULL, next);
}

int nfs3ds_next_take(struct kv_txn *t, const struct gen *g, unsigned n, uint64_t *first)
{
	int err = nfs3ds_next_get(t, g, first);

	return err ? err : nfs3ds_server_put(t, g, *first + n);
}

struct gen *nfs3ds_new(struct ds_reg *d, const uint8_t uuid[16])
{
	static const char what[16] = "weft owners v1";
	struct gen *g = calloc(1, sizeof(*g));
	uint8_t msg[32];

	if (!g)
		return NULL;
	g->gn_dsc = d;
	pthread_mutex_init(&g->gn_copy_lock, NULL);
	memcpy(g->gn_uuid, uuid, 16);
	memcpy(msg, what, 16);
	memcpy(msg + 16, uuid, 16);
	crypto_generichash(g->gn_key, sizeof(g->gn_key), msg, sizeof(msg), d->d_opts.do_cluster_key,
			   CAP_CLUSTER_KEY_LEN);
	return g;
}

void nfs3ds_free(struct gen *g)
{
	if (!g)
		return;
	nfs3ds_copies_free(g);
	pthread_mutex_destroy(&g->gn_copy_lock);
	sodium_memzero(g->gn_key, sizeof(g->gn_key));
	free(g);
}

static int count_ready(void *arg, uint64_t number, const struct nfs3ds_fh *fh)
{
	struct gen *g = arg;

	(void)number;
	if (fh->f_len)
		atomic_fetch_add(&g->gn_ready, 1);
	return 0;
}

struct nfs3ds_loading {
	struct ds_reg *d;
	int err;
};

/* The rows NS_T_DS list all servers. This row makes one of them an NFSv3 data server. */
static int load_server(void *arg, struct kv_slice id, struct kv_slice val)
{
	struct nfs3ds_loading *gl = arg;
	const uint8_t *key = id.s_data;
	struct ds_reg_node *nd;
	uint64_t next;
	struct gen *g;

	if (id.s_len != SERVER_KEY || key[0] != 'S')
		return 1;
	nd = ds_reg_find_uuid(gl->d, key + 1);
	if (!nd)
		return 0;
	g = nfs3ds_new(gl->d, key + 1);
	if (!g) {
		gl->err = -ENOMEM;
		return 1;
	}
	g->gn_id = nd->nd_sv.sv_id;
	nd->nd_gen = g;
	atomic_store(&gl->d->d_generic, true);
	nd->nd_sv.sv_nfs3 = true;
	gl->err = server_decode(val, g, &next);
	return gl->err ? 1 : 0;
}

int nfs3ds_load(struct ds_reg *d)
{
	struct nfs3ds_loading gl = {.d = d};
	struct kv_txn *t;
	int err = kv_read_begin(ns_kv(d->d_ns), &t);

	if (err)
		return err;
	err = ns_rows(t, NS_T_NFS3DS, "S", 1, load_server, &gl);
	err = err < 0 ? err : gl.err;
	for (unsigned id = 1; id <= DS_REG_MAX && !err; id++)
		if (d->d_node[id] && d->d_node[id]->nd_gen)
			err = nfs3ds_pool_each(t, id, count_ready, d->d_node[id]->nd_gen);
	kv_read_end(t);
	return err;
}

/* ---- owners and names ---- */

/* Permutes 30 bits (Feistel, four rounds) under the server's key. The permutation differs for each
 * file and use, so that the owner of an epoch is never the owner of an earlier one. */
static uint32_t permute(const struct gen *g, uint64_t number, uint8_t use, uint32_t v)
{
	enum { HALF = OWNER_BITS / 2, MASK = (1 << HALF) - 1 };
	uint32_t left = v >> HALF & MASK, right = v & MASK;

	for (uint8_t round = 0; round < 4; round++) {
		uint8_t msg[14] = {use, round}, out[crypto_generichash_BYTES_MIN];
		uint64_t n = htole64(number);
		uint32_t r = htole32(right), f;

		memcpy(msg + 2, &n, 8);
		memcpy(msg + 10, &r, 4);
		crypto_generichash(out, sizeof(out), msg, sizeof(msg), g->gn_key,
				   sizeof(g->gn_key));
		f = (uint32_t)(out[0] | out[1] << 8) & MASK;
		f ^= left;
		left = right;
		right = f;
	}
	return left << HALF | right;
}

void nfs3ds_owner(const struct gen *g, uint64_t number, uint32_t epoch, uint32_t *uid,
		  uint32_t *gid)
{
	*uid = OWNER_FIRST | permute(g, number, 'u', epoch);
	*gid = OWNER_FIRST | permute(g, number, 'g', epoch);
}

void nfs3ds_name(uint64_t number, char dir[NFS3DS_NAME], char name[NFS3DS_NAME])
{
	snprintf(dir, NFS3DS_NAME, "%llx", (unsigned long long)(number >> NFS3DS_DIR_BITS));
	snprintf(name, NFS3DS_NAME, "%llx", (unsigned long long)number);
}

int ds_reg_nfs3_handle(struct ds_reg *d, uint32_t id, const struct cap_object *obj, uint32_t epoch,
		       bool write, struct ds_reg_handle *h)
{
	struct gen *g = ds_reg_nfs3_of(d, id);
	uint8_t key[NFS3DS_OBJECT_KEY];
	struct nfs3ds_object o;
	struct kv_txn *t;
	int err;

	if (!g)
		return -EIO;
	/* A reader that the store has no room for is no failure of the copy, which would otherwise
	 * become stale. */
	if (kv_read_begin(ns_kv(d->d_ns), &t))
		return -ENOBUFS;
	nfs3ds_object_key(id, obj, key);
	err = nfs3ds_object_get(t, key, &o);
	kv_read_end(t);
	if (err)
		return err == -ENOENT ? -ESTALE : err;
	memset(h, 0, sizeof(*h));
	h->dh_len = o.go_fh.f_len;
	memcpy(h->dh_data, o.go_fh.f_data, o.go_fh.f_len);
	nfs3ds_owner(g, o.go_number, epoch, &h->dh_uid, &h->dh_gid);
	if (!write)
		h->dh_uid = OWNER_NONE;
	return 0;
}

bool ds_reg_nfs3_path(struct ds_reg *d, uint32_t id, const struct cap_object *obj,
		      char out[DS_REG_GEN_PATH])
{
	char dir[NFS3DS_NAME], name[NFS3DS_NAME], *p = out;
	struct gen *g = ds_reg_nfs3_of(d, id);
	uint8_t key[NFS3DS_OBJECT_KEY];
	struct nfs3ds_object o;
	struct kv_txn *t;
	int err;

	if (!g || kv_read_begin(ns_kv(d->d_ns), &t))
		return false;
	nfs3ds_object_key(id, obj, key);
	err = nfs3ds_object_get(t, key, &o);
	kv_read_end(t);
	if (err)
		return false;
	nfs3ds_name(o.go_number, dir, name);
	p += sprintf(p, "weft-");
	for (unsigned i = 0; i < 16; i++)
		p += sprintf(p, "%02x", g->gn_uuid[i]);
	sprintf(p, "/%s/%s", dir, name);
	return true;
}
