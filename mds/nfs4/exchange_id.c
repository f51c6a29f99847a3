/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exchange_id.c - EXCHANGE_ID (RFC 8881 section 18.35): which client this is, and what becomes of
 * its earlier state.
 *
 *	op_exchange_id		exchange_id_go: finds the case. drop_run deletes the record of a
 *				client that is replaced
 *	drop_done		it is deleted: exchange_id_go again
 */
#include "mds/nfs4/state_protect.h"
#include "mds/nfs4/credentials.h"

#define ROLE_FLAGS                                                                                 \
	(EXCHGID4_FLAG_USE_NON_PNFS | EXCHGID4_FLAG_USE_PNFS_MDS | EXCHGID4_FLAG_USE_PNFS_DS)
#define EXID_ARGS    0x40070103u
#define EXID_ARGS_42 0x4u /* SUPP_FENCE_OPS, RFC 7862 section 14.1 */

static bool exchange_id_listed(const char *list, const char *name)
{
	while (list && *list) {
		size_t n = strcspn(list, ",");
		size_t from = strspn(list, " ");
		size_t to = n;

		while (to > from && list[to - 1] == ' ')
			to--;
		if (to > from && !strncmp(name, list + from, to - from))
			return true;
		list += n + (list[n] == ',');
	}
	return false;
}

/*
 * RFC 8435 has stripes, but many clients do all I/O of a file at the first server of each mirror.
 * So only some clients get striped layouts, by the name that they give (nii_name): Linux from 6.18
 * on ("Linux 6.18.3 ..."), libweft, and the names that the administrator lists. name is cut off at
 * the buffer's size; empty: the client gave none.
 */
static bool impl_stripes(const struct mds *m, const char *name, uint32_t len)
{
	char buf[128];
	unsigned major, minor;
	uint32_t n = len < sizeof(buf) - 1 ? len : sizeof(buf) - 1;

	if (n)
		memcpy(buf, name, n);
	buf[n] = 0;
	if (sscanf(buf, "Linux %u.%u", &major, &minor) == 2 &&
	    (major > 6 || (major == 6 && minor >= 18)))
		return true;
	return !strcmp(buf, WEFT_CLIENT_NAME) || exchange_id_listed(m->m_striping, buf);
}

static void put_exchange_id(struct compound *c, struct st_client *cl, bool confirmed)
{
	struct xdr_out *x = c->out;

	xdr_put_u64(x, cl->cl_id);
	xdr_put_u32(x, cl->cl_cs_seq);
	xdr_put_u32(x, EXCHGID4_FLAG_USE_PNFS_MDS | EXCHGID4_FLAG_SUPP_MOVED_REFER |
			       (confirmed ? EXCHGID4_FLAG_CONFIRMED_R : 0));
	op_mach_put(x, cl);
	xdr_put_u64(x, 0); /* so_minor_id: the same on every address of this server */
	xdr_put_opaque(x, c->m->m_owner, (uint32_t)strlen(c->m->m_owner));
	xdr_put_opaque(x, c->m->m_scope, (uint32_t)strlen(c->m->m_scope));
	xdr_put_u32(x, 0); /* no implementation id */
}

struct exchange_id {
	const uint8_t *owner, *verf, *name;
	uint32_t len, namelen, flags;
	const struct op_mach *mach; /* or NULL */
	struct op_mach has_mach;
	uint64_t evict;
	/* a client of another principal that holds nothing: it and its record go before this one
	 * comes; 0: none */
	uint64_t drop;
	uint32_t number;
	uint8_t key[32];
};

/* RFC 8881 section 18.35.4, cases 1 to 9. NULL: *st says why; with OK, e->drop goes first. */
static struct st_client *exchange_id_cases(struct compound *c, struct exchange_id *e, nfsstat4 *st)
{
	const uint8_t *owner = e->owner, *verf = e->verf;
	const struct op_mach *mach = e->mach;
	bool update = e->flags & EXCHGID4_FLAG_UPD_CONFIRMED_REC_A;
	uint32_t len = e->len;
	struct st *s = c->m->m_st;
	struct st_client *conf = st_client_by_owner(s, owner, len, true),
			 *un = st_client_by_owner(s, owner, len, false);
	bool same_principal = conf && op_principal_is(conf, &c->call->c_cred), all;
	uint8_t addr[16];

	*st = NFS4_OK;
	if (update) {
		if (!conf)
			*st = NFS4ERR_NOENT;
		else if (memcmp(conf->cl_verifier, verf, 8) != 0)
			*st = NFS4ERR_NOT_SAME;
		else if (!same_principal)
			*st = NFS4ERR_PERM;
		return *st ? NULL : conf;
	}
	if (conf && atomic_load(&conf->cl_evicting)) {
		*st = NFS4ERR_DELAY;
		return NULL;
	}
	if (conf && same_principal && memcmp(conf->cl_verifier, verf, 8) == 0) {
		st_client_renew(s, conf);
		return conf;
	}
	if (conf && !same_principal) {
		/* A machine credential protects the lease itself (section 18.35.3). State that may
		 * still be reclaimed counts as held. */
		if (st_open_next(conf, NULL) || st_layout_next(conf, NULL) ||
		    st_reclaim_check(s, conf) == NFS4_OK ||
		    (conf->cl_mach && !st_lease_expired(s, conf))) {
			*st = st_lease_expired(s, conf) ? NFS4ERR_DELAY : NFS4ERR_CLID_INUSE;
			e->evict = conf->cl_id;
			return NULL;
		}
		if (!st_client_leaves(conf)) {
			*st = NFS4ERR_DELAY; /* a request of that client is in progress */
			return NULL;
		}
		e->drop = conf->cl_id;
		e->number = conf->cl_number;
		memcpy(e->key, conf->cl_key, sizeof(e->key));
		return NULL;
	}
	if (un)
		st_client_destroy(s, un);
	/* A confirmed record with another verifier belongs to the client before its reboot. It goes
	 * when the new one is confirmed. */
	rpc_limit_addr(c->call->c_conn, addr);
	all = s->st_clients.h_count >= c->m->m_limits.lm_clients;
	if (all || st_clients_at(s, addr) >= c->m->m_limits.lm_clients_addr) {
		op_limited(c->m, OP_LIMIT_CLIENTS);
		e->evict = st_client_oldest(s, all ? NULL : addr);
		*st = NFS4ERR_DELAY;
		return NULL;
	}
	un = st_client_new(s, owner, len, verf);
	if (un && st_client_at(s, un, addr)) {
		st_client_destroy(s, un);
		un = NULL;
	}
	if (!un) {
		*st = NFS4ERR_DELAY;
		return NULL;
	}
	if (!op_principal_set(un, &c->call->c_cred)) {
		st_client_destroy(s, un);
		*st = NFS4ERR_DELAY;
		return NULL;
	}
	un->cl_tls = (uint8_t)rpc_conn_tls(c->call->c_conn);
	un->cl_mach = mach != NULL;
	if (mach) {
		memcpy(un->cl_enforce, mach->om_enforce.w, sizeof(un->cl_enforce));
		memcpy(un->cl_allow, mach->om_allow.w, sizeof(un->cl_allow));
	}
	return un;
}

static nfsstat4 exchange_id_go(struct compound *c);

static int drop_run(struct kv_op *op, struct kv_txn *t)
{
	struct compound *c = op_of(op);
	struct exchange_id *e = c->scratch;

	return st_record_del(c->m->m_st, t, e->key, e->number);
}

static nfsstat4 drop_done(struct compound *c, int err)
{
	struct exchange_id *e = c->scratch;
	struct st *st = c->m->m_st;
	struct st_client *cl;

	st_all_lock(st);
	cl = st_client_get(st, e->drop);
	if (cl && err)
		atomic_store(&cl->cl_evicting, false);
	else if (cl)
		st_client_destroy(st, cl);
	st_all_unlock(st);
	e->drop = 0;
	return err ? op_status(err) : exchange_id_go(c);
}

static nfsstat4 exchange_id_go(struct compound *c)
{
	struct exchange_id *e = c->scratch;
	struct st_client *cl;
	nfsstat4 st;

	st_all_lock(c->m->m_st);
	cl = exchange_id_cases(c, e, &st);
	if (cl) {
		cl->cl_stripes = impl_stripes(c->m, (const char *)e->name, e->namelen);
		put_exchange_id(c, cl, cl->cl_confirmed);
	}
	st_all_unlock(c->m->m_st);
	if (st == NFS4ERR_DELAY && e->evict)
		file_evict(&c->m->m_file, c->th->mt_loop, e->evict);
	/* Idempotent: a retry after a restart finds neither the client nor its record. */
	return e->drop ? op_mutate_again(c, drop_run, drop_done) : st;
}

nfsstat4 op_exchange_id(struct compound *c)
{
	struct exchange_id *e = op_scratch(c, sizeof(*e), NULL);
	struct xdr_in *x = c->in;
	uint32_t how, nimpl, dummy;
	nfsstat4 st;

	if (!e)
		return NFS4ERR_DELAY;
	e->verf = xdr_get_fixed(x, 8);
	e->owner = xdr_get_opaque(x, NFS4_OPAQUE_LIMIT, &e->len);
	e->flags = xdr_get_u32(x);
	how = xdr_get_u32(x);
	if (x->bad)
		return NFS4ERR_BADXDR;
	if (how > SP4_SSV)
		return NFS4ERR_BADXDR;
	if (how == SP4_SSV)
		return NFS4ERR_ENCR_ALG_UNSUPP;
	st = how == SP4_MACH_CRED ? op_mach_get(c, &e->has_mach) : NFS4_OK;
	if (st)
		return st;
	e->mach = how == SP4_MACH_CRED ? &e->has_mach : NULL;
	nimpl = xdr_get_u32(x);
	if (nimpl > 1)
		return NFS4ERR_BADXDR;
	if (nimpl) {
		xdr_get_opaque(x, NFS4_OPAQUE_LIMIT, &dummy);
		e->name = xdr_get_opaque(x, NFS4_OPAQUE_LIMIT, &e->namelen);
		xdr_get_u64(x);
		xdr_get_u32(x);
	}
	if (x->bad)
		return NFS4ERR_BADXDR;
	if (e->flags & ~(c->minor < 2 ? EXID_ARGS : EXID_ARGS | EXID_ARGS_42) || e->len == 0)
		return NFS4ERR_INVAL;
	return exchange_id_go(c);
}
