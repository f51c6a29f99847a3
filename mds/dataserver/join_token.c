/* SPDX-License-Identifier: Apache-2.0 */
/*
 * join_token.c - join tokens (weft cluster key; docs/security.md, "Keys"): a machine that has one
 * gets the keys of one new data server, once, over a channel that the token's secret seals. In it
 * the keys are encrypted again, for the claim of that machine alone.
 *
 * The secret is shown once, when the token is made. The row NS_T_JOIN_TOKEN keeps the key of the
 * channel, which is made from it. A row stays for a week after the token expired, so that a machine
 * that comes too late learns why it is refused.
 */
#include "base/log.h"
#include "mds/dataserver/ds_reg_int.h"
#include "mds/journal/event_journal.h"
#include "proto/ds_key.h"
#include <endian.h>
#include <errno.h>
#include <sodium.h>
#include <time.h>
#include <urcu/compiler.h>

#define JOIN_TOKEN_VERSION 1
#define JOIN_TOKENS_MOST   256
#define JOIN_TOKEN_KEPT_S  (7 * 86400)

/* The name of the data server follows. */
struct join_token_rec {
	uint8_t jt_version, jt_used;
	uint64_t jt_made, jt_ends; /* seconds since 1970 */
	uint8_t jt_key[32], jt_claim[16], jt_uuid[16];
} __attribute__((packed));
_Static_assert(sizeof(struct join_token_rec) == 82, "join token, version 1");
_Static_assert(sizeof(((struct join_token_rec *)0)->jt_claim) == crypto_generichash_BYTES_MIN,
	       "a hash");

struct join_token {
	struct join_token_rec jo_rec;
	char jo_name[CTL_NAME_MAX + 1];
};

static int join_token_decode(struct kv_slice val, struct join_token *jo)
{
	size_t name = val.s_len - sizeof(jo->jo_rec);

	if (val.s_len <= sizeof(jo->jo_rec) || name > CTL_NAME_MAX)
		return -EIO;
	memcpy(&jo->jo_rec, val.s_data, sizeof(jo->jo_rec));
	memcpy(jo->jo_name, (const uint8_t *)val.s_data + sizeof(jo->jo_rec), name);
	jo->jo_name[name] = 0;
	return jo->jo_rec.jt_version == JOIN_TOKEN_VERSION ? 0 : -EIO;
}

static int join_token_get(struct kv_txn *t, const uint8_t id[16], struct join_token *jo)
{
	struct kv_slice val;
	int err = ns_row_get(t, NS_T_JOIN_TOKEN, id, 16, &val);

	return err ? err : join_token_decode(val, jo);
}

static int join_token_put(struct kv_txn *t, const uint8_t id[16], const struct join_token *jo)
{
	uint8_t row[sizeof(*jo)];
	size_t name = strlen(jo->jo_name);

	memcpy(row, &jo->jo_rec, sizeof(jo->jo_rec));
	memcpy(row + sizeof(jo->jo_rec), jo->jo_name, name);
	return ns_row_put(t, NS_T_JOIN_TOKEN, id, 16, row, sizeof(jo->jo_rec) + name);
}

/* Has a server the name that is not the one of this uuid? NULL: any server. */
static bool join_token_name_taken(struct ds_reg *d, const char *name, const uint8_t *uuid)
{
	bool taken = false;

	pthread_mutex_lock(&d->d_lock);
	for (uint32_t id = 1; id <= DS_REG_MAX && !taken; id++)
		taken = d->d_node[id] && !strcmp(d->d_node[id]->nd_sv.sv_name, name) &&
			(!uuid || memcmp(d->d_node[id]->nd_sv.sv_uuid, uuid, 16));
	pthread_mutex_unlock(&d->d_lock);
	return taken;
}

/* ---- making one ---- */

struct token_make {
	struct ds_reg *tm_dsc;
	struct ds_reg_token *tm_token;
	uint32_t tm_seconds;
	uint64_t tm_now;
	/* rows that go: they are long over, or are earlier tokens of the name */
	uint8_t tm_old[JOIN_TOKENS_MOST][16];
	unsigned tm_nold, tm_left;
	bool tm_meant; /* a token that is left has the name */
};

static int token_make_row(void *arg, struct kv_slice id, struct kv_slice val)
{
	struct token_make *tm = arg;
	struct join_token jo;
	bool damaged = id.s_len != 16 || join_token_decode(val, &jo);
	bool same = !damaged && !strcmp(jo.jo_name, tm->tm_token->tt_name);

	if (id.s_len != 16 || tm->tm_nold == JOIN_TOKENS_MOST)
		return 0;
	if (damaged || tm->tm_now > le64toh(jo.jo_rec.jt_ends) + JOIN_TOKEN_KEPT_S ||
	    (same && tm->tm_token->tt_named))
		memcpy(tm->tm_old[tm->tm_nold++], id.s_data, 16);
	else
		tm->tm_left++;
	tm->tm_meant |= same;
	return 0;
}

static int token_make_look(struct token_make *tm, struct kv_txn *t)
{
	int err;

	tm->tm_nold = tm->tm_left = 0;
	tm->tm_meant = false;
	err = ns_rows(t, NS_T_JOIN_TOKEN, NULL, 0, token_make_row, tm);
	return err < 0 ? err : 0;
}

/* Finds a name that neither a server nor a token has: ds1, ds2... */
static int token_make_name(struct token_make *tm, struct kv_txn *t)
{
	struct ds_reg_token *tk = tm->tm_token;
	int err;

	for (unsigned n = 1; n <= DS_REG_MAX + JOIN_TOKENS_MOST; n++) {
		snprintf(tk->tt_name, sizeof(tk->tt_name), "ds%u", n);
		if (join_token_name_taken(tm->tm_dsc, tk->tt_name, NULL))
			continue;
		err = token_make_look(tm, t);
		if (err || !tm->tm_meant)
			return err;
	}
	return -ENOSPC;
}

static int token_make_run(void *arg, struct kv_txn *t)
{
	struct token_make *tm = arg;
	struct ds_reg_token *tk = tm->tm_token;
	struct join_token jo = {.jo_rec.jt_version = JOIN_TOKEN_VERSION};
	int err;

	if (tk->tt_named && join_token_name_taken(tm->tm_dsc, tk->tt_name, NULL))
		return -EEXIST;
	err = tk->tt_named ? token_make_look(tm, t) : token_make_name(tm, t);
	if (!err && tm->tm_left >= JOIN_TOKENS_MOST)
		err = -ENOSPC;
	if (err)
		return err;
	for (unsigned i = 0; i < tm->tm_nold && !err; i++)
		err = ns_row_del(t, NS_T_JOIN_TOKEN, tm->tm_old[i], 16);
	randombytes_buf(tk->tt_id, sizeof(tk->tt_id));
	randombytes_buf(tk->tt_secret, sizeof(tk->tt_secret));
	randombytes_buf(jo.jo_rec.jt_uuid, sizeof(jo.jo_rec.jt_uuid));
	ds_key_derive_token(tk->tt_secret, tk->tt_id, jo.jo_rec.jt_key);
	tk->tt_ends = tm->tm_now + tm->tm_seconds;
	jo.jo_rec.jt_made = htole64(tm->tm_now);
	jo.jo_rec.jt_ends = htole64(tk->tt_ends);
	strcpy(jo.jo_name, tk->tt_name);
	if (!err)
		err = join_token_put(t, tk->tt_id, &jo);
	sodium_memzero(&jo, sizeof(jo));
	return err;
}

int ds_reg_token_make(struct ds_reg *d, uint32_t seconds, struct ds_reg_token *tk)
{
	struct token_make *tm = calloc(1, sizeof(*tm));
	int err;

	if (!tm)
		return -ENOMEM;
	tm->tm_dsc = d;
	tm->tm_token = tk;
	tm->tm_seconds = seconds;
	tm->tm_now = (uint64_t)time(NULL);
	err = kv_run_sync(ns_kv(d->d_ns), token_make_run, tm);
	free(tm);
	if (!err)
		journal_add(EV_DS_CHANGED, tk->tt_name, 0, "join token made, good for %u s",
			    seconds);
	return err;
}

/* ---- using one ---- */

bool ds_reg_token_key(struct ds_reg *d, const uint8_t id[16], uint8_t key[CAP_CLUSTER_KEY_LEN])
{
	struct join_token jo;
	struct kv_txn *t;
	bool found;

	_Static_assert(sizeof(jo.jo_rec.jt_key) == CAP_CLUSTER_KEY_LEN, "a channel's key");
	if (kv_read_begin(ns_kv(d->d_ns), &t))
		return false;
	found = !join_token_get(t, id, &jo);
	kv_read_end(t);
	if (found)
		memcpy(key, jo.jo_rec.jt_key, CAP_CLUSTER_KEY_LEN);
	sodium_memzero(&jo, sizeof(jo));
	return found;
}

struct token_ask {
	struct kv_op ta_op;
	struct ds_reg *ta_dsc;
	struct ctl_incoming *ta_in;
	struct join_token ta_token;
	uint8_t ta_claim[16]; /* as jt_claim */
	ctl_status ta_status;
	char ta_addr[80];
};

static ctl_status token_ask_judge(struct token_ask *ta)
{
	const struct join_token_rec *r = &ta->ta_token.jo_rec;

	if (ta->ta_in->in_req.ctl_request_u.token2.step == CTL_TOKEN_WHOSE)
		return CTL_OK;
	if (r->jt_used && sodium_memcmp(r->jt_claim, ta->ta_claim, sizeof(r->jt_claim)))
		return CTL_TOKEN_USED;
	if ((uint64_t)time(NULL) >= le64toh(r->jt_ends))
		return CTL_TOKEN_EXPIRED;
	if (join_token_name_taken(ta->ta_dsc, ta->ta_token.jo_name, r->jt_uuid))
		return CTL_NAME_TAKEN;
	return CTL_OK;
}

static int token_ask_run(struct kv_op *op, struct kv_txn *t)
{
	struct token_ask *ta = caa_container_of(op, struct token_ask, ta_op);
	bool take = ta->ta_in->in_req.ctl_request_u.token2.step == CTL_TOKEN_TAKE;
	const uint8_t *id = ctl_chan_uuid(ta->ta_in->in_chan);
	struct join_token_rec *r = &ta->ta_token.jo_rec;
	int err = join_token_get(t, id, &ta->ta_token);

	if (err == -ENOENT) {
		ta->ta_status = CTL_NOENT;
		return 0;
	}
	if (err)
		return err;
	ta->ta_status = token_ask_judge(ta);
	if (ta->ta_status != CTL_OK || !take || r->jt_used)
		return 0;
	r->jt_used = 1;
	memcpy(r->jt_claim, ta->ta_claim, sizeof(r->jt_claim));
	return join_token_put(t, id, &ta->ta_token);
}

static const char *token_ask_why(ctl_status st)
{
	return st == CTL_TOKEN_USED	 ? "its join token was used before"
	       : st == CTL_TOKEN_EXPIRED ? "its join token has expired"
	       : st == CTL_NAME_TAKEN	 ? "another data server has that name"
					 : "its join token is not known";
}

/* Encrypts the keys for the claim. The claim is a public key: token_claim_ok has tried it. */
static void token_ask_seal(struct token_ask *ta, const uint8_t claim[CTL_CLAIM_LEN],
			   uint8_t given[CTL_CLAIM_LEN], uint8_t keys[CTL_SEALED_KEYS])
{
	struct ds_key k;

	ds_reg_key_make(ta->ta_dsc, ta->ta_token.jo_rec.jt_uuid, &k);
	if (ds_key_seal(&k, ta->ta_token.jo_rec.jt_key, claim, given, keys))
		ta->ta_status = CTL_INVAL;
	sodium_memzero(&k, sizeof(k));
}

static void token_ask_done(struct kv_op *op, int err)
{
	struct token_ask *ta = caa_container_of(op, struct token_ask, ta_op);
	ctl_token2_args *a = &ta->ta_in->in_req.ctl_request_u.token2;
	uint8_t given[CTL_CLAIM_LEN], keys[CTL_SEALED_KEYS];
	static _Atomic uint64_t last;
	ctl_result res = {.op = CTL_OP_TOKEN2};
	ctl_token2_res *r = &res.ctl_result_u.token2;
	struct timespec now;

	if (err)
		ta->ta_status = CTL_IO;
	clock_gettime(CLOCK_REALTIME, &now);
	r->now = (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
	r->ends = le64toh(ta->ta_token.jo_rec.jt_ends);
	r->name = ta->ta_token.jo_name;
	memcpy(r->ds_uuid, ta->ta_token.jo_rec.jt_uuid, sizeof(r->ds_uuid));
	memcpy(r->cluster, ns_super(ta->ta_dsc->d_ns)->su_uuid, sizeof(r->cluster));
	if (ta->ta_status == CTL_OK && a->step == CTL_TOKEN_TAKE) {
		token_ask_seal(ta, (const uint8_t *)a->claim, given, keys);
		r->given.given_len = sizeof(given);
		r->given.given_val = (char *)given;
		r->keys.keys_len = sizeof(keys);
		r->keys.keys_val = (char *)keys;
		log_info("data server %s: a machine at %s took its keys with a join token", r->name,
			 ta->ta_addr);
		journal_add(EV_DS_CHANGED, r->name, 0, "a machine at %s took its keys",
			    ta->ta_addr);
	} else if (ta->ta_status != CTL_OK && log_due(&last)) {
		log_warn("refused keys of data server %s to a machine at %s: %s", r->name,
			 ta->ta_addr, err ? strerror(-err) : token_ask_why(ta->ta_status));
	}
	ctl_chan_reply(ta->ta_in, ta->ta_status, ta->ta_status == CTL_OK ? &res : NULL);
	sodium_memzero(&ta->ta_token, sizeof(ta->ta_token));
	free(ta);
}

/* Is the claim a public key? A few values are none. */
static bool token_claim_ok(const uint8_t claim[CTL_CLAIM_LEN])
{
	static const uint8_t any[CTL_CLAIM_LEN] = {1};
	uint8_t shared[CTL_CLAIM_LEN];

	return !crypto_scalarmult(shared, any, claim);
}

void ds_reg_token_serve(struct ds_reg_link *lk, struct ctl_incoming *in)
{
	const ctl_token2_args *a = &in->in_req.ctl_request_u.token2;
	static _Atomic uint64_t last;
	struct token_ask *ta;
	char addr[80];

	rpc_addr_text((const struct sockaddr *)rpc_conn_peer(lk->lk_conn), addr, sizeof(addr));
	if (in->in_req.op != CTL_OP_TOKEN2) {
		if (log_due(&last))
			log_warn("refused the join token of a machine at %s: its weft is older "
				 "than this weft-mds: upgrade it",
				 addr);
		ctl_chan_reply(in, CTL_NOTSUPP, NULL);
		return;
	}
	if (!token_claim_ok((const uint8_t *)a->claim)) {
		ctl_chan_reply(in, CTL_INVAL, NULL);
		return;
	}
	ta = calloc(1, sizeof(*ta));
	if (!ta) {
		ctl_chan_reply(in, CTL_IO, NULL);
		return;
	}
	ta->ta_dsc = lk->lk_dsc;
	ta->ta_in = in;
	strcpy(ta->ta_addr, addr);
	crypto_generichash(ta->ta_claim, sizeof(ta->ta_claim), (const uint8_t *)a->claim,
			   sizeof(a->claim), NULL, 0);
	ta->ta_op.o_run = token_ask_run;
	ta->ta_op.o_done = token_ask_done;
	ta->ta_op.o_loop = lk->lk_loop;
	kv_submit(ns_kv(lk->lk_dsc->d_ns), &ta->ta_op);
}
