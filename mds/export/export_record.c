/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export_record.c - keeps in the store what each export said when it was last in force. So the
 * server notices every change: a reload may make it, or it may be made while the server is stopped.
 * Capabilities that clients got under an export end when that export is gone, or says something
 * else about these clients. That takes time. So the transaction of the change puts a row for the
 * export's directory, and the row stays until all is over (mds/jobs/revoke_exports.c).
 */
#include "base/format.h"
#include "mds/export/export_table.h"
#include <endian.h>
#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#define REC_VERSION 1

/* Row NS_T_EXPORT; the key is the export's number (big-endian). */
struct export_rec {
	uint8_t x_version, x_zero;
	uint16_t x_nwho;
	uint64_t x_root;
	uint8_t x_digest[32];
} __attribute__((packed));
FORMAT_AT(struct export_rec, x_version, 0, 1);
FORMAT_AT(struct export_rec, x_zero, 1, 1);
FORMAT_AT(struct export_rec, x_nwho, 2, 2);
FORMAT_AT(struct export_rec, x_root, 4, 8);
FORMAT_AT(struct export_rec, x_digest, 12, 32);
_Static_assert(sizeof(struct export_rec) == 44, "export, version 1");
_Static_assert(EXP_CLIENTS_MAX <= UINT16_MAX, "x_nwho counts all patterns");

/* Row NS_T_REVOCATION; the key is the directory's inode number (big-endian). */
struct revocation_rec {
	uint8_t rvr_version;
	uint64_t rvr_boot, rvr_generation;
} __attribute__((packed));
FORMAT_AT(struct revocation_rec, rvr_version, 0, 1);
FORMAT_AT(struct revocation_rec, rvr_boot, 1, 8);
FORMAT_AT(struct revocation_rec, rvr_generation, 9, 8);
_Static_assert(sizeof(struct revocation_rec) == 17, "ending, version 1");

/* ---- what an export says ---- */

static void export_record_add(crypto_generichash_state *h, uint32_t v)
{
	v = htole32(v);
	crypto_generichash_update(h, (const uint8_t *)&v, sizeof(v));
}

static void add_rule(crypto_generichash_state *h, const struct exp_rule *r)
{
	export_record_add(h, r->r_ro);
	export_record_add(h, r->r_privileged);
	export_record_add(h, r->r_squash);
	export_record_add(h, r->r_tls);
	export_record_add(h, r->r_layouts);
	export_record_add(h, r->r_anon_uid);
	export_record_add(h, r->r_anon_gid);
	export_record_add(h, r->r_nsec);
	for (unsigned i = 0; i < r->r_nsec; i++)
		export_record_add(h, r->r_sec[i]);
}

/* The digest of the export's first nwho patterns, each with its rule. */
static void digest(const struct exp *e, unsigned nwho, uint8_t out[32])
{
	crypto_generichash_state h;

	crypto_generichash_init(&h, NULL, 0, 32);
	for (unsigned i = 0; i < nwho; i++) {
		const struct exp_who *w = &e->e_who[i];

		export_record_add(&h, w->w_kind);
		export_record_add(&h, (uint32_t)strlen(w->w_text));
		crypto_generichash_update(&h, (const uint8_t *)w->w_text, strlen(w->w_text));
		add_rule(&h, &e->e_rule[w->w_rule]);
	}
	crypto_generichash_final(&h, out, 32);
}

void exports_hash(const struct exp_table *t, char out[EXPORTS_HASH_LEN + 1])
{
	uint8_t d[32], sum[EXPORTS_HASH_LEN / 2];
	const struct exp *last = NULL;
	crypto_generichash_state h;

	crypto_generichash_init(&h, NULL, 0, sizeof(sum));
	for (unsigned n = 0; n < t->xt_n; n++) {
		const struct exp *e = NULL;

		/* the one with the next number */
		for (unsigned i = 0; i < t->xt_n; i++)
			if ((!last || t->xt_exp[i].e_id > last->e_id) &&
			    (!e || t->xt_exp[i].e_id < e->e_id))
				e = &t->xt_exp[i];
		if (!e)
			break;
		last = e;
		digest(e, e->e_nwho, d);
		export_record_add(&h, e->e_id);
		export_record_add(&h, (uint32_t)strlen(e->e_path));
		crypto_generichash_update(&h, (const uint8_t *)e->e_path, strlen(e->e_path));
		crypto_generichash_update(&h, d, sizeof(d));
	}
	crypto_generichash_final(&h, sum, sizeof(sum));
	sodium_bin2hex(out, EXPORTS_HASH_LEN + 1, sum, sizeof(sum));
}

static void encode(const struct exp *e, struct export_rec *r)
{
	*r = (struct export_rec){.x_version = REC_VERSION,
				 .x_nwho = htole16((uint16_t)e->e_nwho),
				 .x_root = htole64(e->e_root)};
	digest(e, e->e_nwho, r->x_digest);
}

/*
 * Whether a client may have been given something that it may not have now. The first pattern that
 * matches a client decides. So patterns that are added behind all others give more, and take
 * nothing away.
 */
static bool takes(const struct export_rec *was, const struct exp *now)
{
	unsigned nwho = le16toh(was->x_nwho);
	uint8_t d[32];

	if (!was->x_root) /* it was not served */
		return false;
	if (!now || now->e_root != le64toh(was->x_root) || now->e_nwho < nwho)
		return true;
	digest(now, nwho, d);
	return memcmp(d, was->x_digest, sizeof(d)) != 0;
}

/* ---- the rows ---- */

struct old {
	struct {
		uint16_t id;
		struct export_rec rec;
	} at[EXP_MAX];
	unsigned n;
};

static int export_record_collect(void *arg, struct kv_slice id, struct kv_slice val)
{
	struct old *o = arg;
	uint16_t be;

	if (o->n == EXP_MAX || id.s_len != sizeof(be) || val.s_len != sizeof(o->at[0].rec))
		return -EIO;
	memcpy(&be, id.s_data, sizeof(be));
	o->at[o->n].id = be16toh(be);
	memcpy(&o->at[o->n].rec, val.s_data, val.s_len);
	return o->at[o->n++].rec.x_version == REC_VERSION ? 0 : -EPROTONOSUPPORT;
}

static int export_record_end(struct kv_txn *txn, uint64_t root, uint64_t boot, uint64_t generation)
{
	struct revocation_rec r = {REC_VERSION, htole64(boot), htole64(generation)};
	uint64_t key = htobe64(root);

	return ns_row_put(txn, NS_T_REVOCATION, &key, sizeof(key), &r, sizeof(r));
}

static int put_new(const struct exp *e, const struct old *o, struct kv_txn *txn, unsigned *changed)
{
	uint16_t key = htobe16(e->e_id);
	struct export_rec r;

	encode(e, &r);
	for (unsigned i = 0; i < o->n; i++)
		if (o->at[i].id == e->e_id && memcmp(&o->at[i].rec, &r, sizeof(r)) == 0)
			return 0;
	*changed += o->n != 0;
	return ns_row_put(txn, NS_T_EXPORT, &key, sizeof(key), &r, sizeof(r));
}

int export_record(const struct exp_table *t, struct ns *ns, struct kv_txn *txn, uint64_t generation,
		  unsigned *changed)
{
	struct old o = {.n = 0};
	int err = ns_rows(txn, NS_T_EXPORT, "", 0, export_record_collect, &o);

	*changed = 0;
	for (unsigned i = 0; !err && i < o.n; i++) {
		const struct exp *now = exp_by_id(t, o.at[i].id);
		uint16_t key = htobe16(o.at[i].id);

		if (takes(&o.at[i].rec, now))
			err = export_record_end(txn, le64toh(o.at[i].rec.x_root),
						ns_super(ns)->su_boot, generation);
		*changed += !now;
		if (!err && !now)
			err = ns_row_del(txn, NS_T_EXPORT, &key, sizeof(key));
	}
	for (unsigned i = 0; !err && i < t->xt_n; i++)
		err = put_new(&t->xt_exp[i], &o, txn, changed);
	return err;
}

struct endings {
	int (*fn)(void *arg, const struct export_revocation *e);
	void *arg;
};

static int export_record_decode(struct kv_slice id, struct kv_slice val,
				struct export_revocation *e)
{
	struct revocation_rec r;
	uint64_t be;

	if (id.s_len != sizeof(be) || val.s_len != sizeof(r))
		return -EIO;
	memcpy(&be, id.s_data, sizeof(be));
	memcpy(&r, val.s_data, sizeof(r));
	*e = (struct export_revocation){be64toh(be), le64toh(r.rvr_boot),
					le64toh(r.rvr_generation)};
	return r.rvr_version == REC_VERSION ? 0 : -EPROTONOSUPPORT;
}

static int endings_one(void *arg, struct kv_slice id, struct kv_slice val)
{
	struct endings *es = arg;
	struct export_revocation e;
	int err = export_record_decode(id, val, &e);

	return err ? err : es->fn(es->arg, &e);
}

int export_revocations(struct kv_txn *txn, int (*fn)(void *arg, const struct export_revocation *e),
		       void *arg)
{
	struct endings es = {fn, arg};

	return ns_rows(txn, NS_T_REVOCATION, "", 0, endings_one, &es);
}

int export_revocation_over(struct kv_txn *txn, const struct export_revocation *e)
{
	uint64_t key = htobe64(e->en_root);
	struct export_revocation now;
	struct kv_slice val;
	int err = ns_row_get(txn, NS_T_REVOCATION, &key, sizeof(key), &val);

	if (!err)
		err = export_record_decode((struct kv_slice){&key, sizeof(key)}, val, &now);
	if (err)
		return err == -ENOENT ? 0 : err;
	if (now.en_boot != e->en_boot || now.en_generation != e->en_generation)
		return 0;
	return ns_row_del(txn, NS_T_REVOCATION, &key, sizeof(key));
}
