/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weft_cluster_token.c - join tokens: their text, and the request to the metadata server.
 *
 * The text is "weft_join_" and, in base64 for URLs without padding: a version byte, the token's id
 * and secret, the lengths and bytes of the metadata server's address and of the data server's name,
 * and four bytes of BLAKE2b of all that.
 */
#include "tools/weft_cluster.h"
#include "base/clock.h"
#include "base/log.h"
#include "proto/ctl_chan.h"
#include <errno.h>
#include <sodium.h>
#include <string.h>
#include <urcu/compiler.h>

#define TICKET_PREFIX  "weft_join_"
#define TICKET_VERSION 1
#define TICKET_CHECK   4
#define TICKET_BYTES   (1 + 32 + 2 + ADDR_TEXT + CTL_NAME_MAX + TICKET_CHECK)
#define TICKET_BASE64  sodium_base64_VARIANT_URLSAFE_NO_PADDING
_Static_assert(sizeof(TICKET_PREFIX) + (TICKET_BYTES * 4 + 2) / 3 < TICKET_TEXT, "it fits");

static void ticket_check(const uint8_t *data, size_t n, uint8_t out[TICKET_CHECK])
{
	uint8_t hash[crypto_generichash_BYTES_MIN];

	crypto_generichash(hash, sizeof(hash), data, n, NULL, 0);
	memcpy(out, hash, TICKET_CHECK);
}

bool ticket_name_ok(const char *name)
{
	size_t n =
		strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");

	return n && !name[n] && n <= CTL_NAME_MAX && name[0] != '.' && name[0] != '-' &&
	       name[strspn(name, "0123456789")];
}

static uint8_t *ticket_put(uint8_t *at, const char *text)
{
	size_t n = strlen(text);

	*at = (uint8_t)n;
	memcpy(at + 1, text, n);
	return at + 1 + n;
}

bool ticket_make(const struct join_ticket *jo, char out[TICKET_TEXT])
{
	uint8_t data[TICKET_BYTES], *p = data;

	if (strlen(jo->jo_mds) >= ADDR_TEXT || strlen(jo->jo_name) > CTL_NAME_MAX)
		return false;
	*p++ = TICKET_VERSION;
	memcpy(p, jo->jo_id, 16);
	memcpy(p + 16, jo->jo_secret, 16);
	p = ticket_put(ticket_put(p + 32, jo->jo_mds), jo->jo_name);
	ticket_check(data, (size_t)(p - data), p);
	p += TICKET_CHECK;
	strcpy(out, TICKET_PREFIX);
	sodium_bin2base64(out + strlen(TICKET_PREFIX), TICKET_TEXT - strlen(TICKET_PREFIX), data,
			  (size_t)(p - data), TICKET_BASE64);
	sodium_memzero(data, sizeof(data));
	return true;
}

/* Returns what is behind the text, or NULL. */
static const uint8_t *ticket_get(const uint8_t *at, const uint8_t *end, char *out, size_t max)
{
	size_t n;

	if (!at || at >= end)
		return NULL;
	n = *at++;
	if (n > max || n > (size_t)(end - at) || memchr(at, 0, n))
		return NULL;
	memcpy(out, at, n);
	out[n] = 0;
	return at + n;
}

const char *ticket_parse(const char *text, struct join_ticket *jo)
{
	static const char *const mistyped =
		"the token is mistyped or cut short: its checksum does not fit";
	size_t n = strcspn(text, " \t\r\n"), prefix = strlen(TICKET_PREFIX), len;
	uint8_t data[TICKET_BYTES], check[TICKET_CHECK];
	const uint8_t *p, *end;

	if (text[n + strspn(text + n, " \t\r\n")])
		return "a join token is one word";
	if (n < prefix || memcmp(text, TICKET_PREFIX, prefix))
		return "not a join token (\"weft cluster key\" makes one on the machine of the "
		       "metadata server)";
	if (sodium_base642bin(data, sizeof(data), text + prefix, n - prefix, NULL, &len, NULL,
			      TICKET_BASE64) ||
	    len < 1 + 32 + 2 + TICKET_CHECK)
		return mistyped;
	end = data + len - TICKET_CHECK;
	ticket_check(data, len - TICKET_CHECK, check);
	if (memcmp(check, end, TICKET_CHECK))
		return mistyped;
	if (data[0] != TICKET_VERSION)
		return "a join token of another version of weft";
	memcpy(jo->jo_id, data + 1, 16);
	memcpy(jo->jo_secret, data + 17, 16);
	p = ticket_get(data + 33, end, jo->jo_mds, ADDR_TEXT - 1);
	p = ticket_get(p, end, jo->jo_name, CTL_NAME_MAX);
	sodium_memzero(data, sizeof(data));
	if (p != end || !ticket_name_ok(jo->jo_name))
		return "the token names no data server that can be made here";
	return NULL;
}

/* ---- the request ---- */

#define TICKET_MS 15000
#define CLOSE_MS  10

struct talk {
	const struct join_ticket *tl_ticket;
	struct loop *tl_loop;
	struct rpc_client *tl_client;
	struct ctl_chan *tl_chan;
	uint8_t tl_key[CAP_CLUSTER_KEY_LEN]; /* of the channel */
	const uint8_t *tl_secret;	     /* of the claim */
	struct loop_timer tl_end;
	ctl_request tl_req;
	struct ticket_answer *tl_answer;
	uint64_t tl_sent_ns;
	bool tl_up, tl_ready, tl_over;
	int tl_err;
};

static void talk_closed(struct loop_timer *t)
{
	(void)t;
	loop_stop(loop_self());
}

static void talk_over(struct talk *tl, int err)
{
	if (tl->tl_over)
		return;
	tl->tl_over = true;
	tl->tl_err = err;
	loop_timer_start(tl->tl_loop, &tl->tl_end, 0);
}

/* Ends the connection, and then the loop. */
static void talk_end(struct loop_timer *t)
{
	struct talk *tl = caa_container_of(t, struct talk, tl_end);

	if (!tl->tl_over)
		tl->tl_err = -ETIMEDOUT;
	tl->tl_over = true;
	if (tl->tl_chan)
		ctl_chan_free(tl->tl_chan);
	tl->tl_chan = NULL;
	rpc_client_destroy(tl->tl_client);
	tl->tl_end.t_fire = talk_closed;
	loop_timer_start(tl->tl_loop, &tl->tl_end, CLOSE_MS);
}

static int talk_keys(const struct talk *tl, const ctl_token2_res *r, struct ds_key *k)
{
	if (r->given.given_len != CTL_CLAIM_LEN || r->keys.keys_len != CTL_SEALED_KEYS)
		return -EBADMSG;
	int err = ds_key_open(k, tl->tl_key, tl->tl_secret, (const uint8_t *)r->given.given_val,
			      (const uint8_t *)r->keys.keys_val);

	k->dk_fs = (uint16_t)ctl_chan_fs(tl->tl_chan);
	return err;
}

static void talk_answer(void *arg, int err, const ctl_response *res)
{
	struct talk *tl = arg;
	const ctl_token2_res *r = &res->result.ctl_result_u.token2;
	struct ticket_answer *tx = tl->tl_answer;

	if (tl->tl_over)
		return;
	if (tl->tl_req.op == CTL_OP_TOKEN) {
		talk_over(tl, err);
		return;
	}
	if (!err) {
		tx->tx_took_us = (long long)((clock_mono_ns() - tl->tl_sent_ns) / 1000);
		tx->tx_status = res->status;
	}
	if (!err && res->status == CTL_OK && res->result.op == CTL_OP_TOKEN2) {
		tx->tx_now_us = (long long)r->now;
		tx->tx_ends_at = (long long)r->ends;
		memcpy(tx->tx_server, r->ds_uuid, sizeof(tx->tx_server));
		memcpy(tx->tx_cluster, r->cluster, sizeof(tx->tx_cluster));
		if (tl->tl_req.ctl_request_u.token2.step == CTL_TOKEN_TAKE)
			err = talk_keys(tl, r, &tx->tx_key);
	} else if (!err && res->status == CTL_OK) {
		err = -EBADMSG;
	}
	talk_over(tl, err);
}

static void talk_ready(struct ctl_chan *ch, int err, void *arg)
{
	struct talk *tl = arg;

	if (!err) {
		tl->tl_ready = true;
		tl->tl_sent_ns = clock_mono_ns();
		err = ctl_chan_call(ch, &tl->tl_req, TICKET_MS, talk_answer, tl);
	}
	if (err)
		talk_over(tl, err);
}

/* The metadata server asks nothing of who has a token. */
static void talk_serve(struct ctl_incoming *in, void *arg)
{
	(void)arg;
	ctl_chan_reply(in, CTL_INVAL, NULL);
}

static void talk_up(struct rpc_client *cl, struct rpc_conn *conn, void *arg)
{
	struct talk *tl = arg;
	int err;

	(void)cl;
	tl->tl_up = true;
	if (tl->tl_over)
		return;
	err = ctl_chan_connect_own(&tl->tl_chan, conn, tl->tl_key, 0, tl->tl_ticket->jo_id,
				   talk_serve, tl, talk_ready);
	if (err)
		talk_over(tl, err);
}

static void talk_down(struct rpc_client *cl, int err, void *arg)
{
	struct talk *tl = arg;

	(void)cl;
	if (tl->tl_chan)
		ctl_chan_free(tl->tl_chan);
	tl->tl_chan = NULL;
	talk_over(tl, err ? err : -ECONNRESET);
}

static int talk_run(struct talk *tl, const struct sockaddr_storage *mds, socklen_t len)
{
	static const struct rpc_client_ops ops = {.cl_up = talk_up, .cl_down = talk_down};
	int err = loop_create(&tl->tl_loop, 64);

	if (err)
		return err;
	err = rpc_client_create(&tl->tl_client, tl->tl_loop, (const struct sockaddr *)mds, len,
				NULL, &ops, tl);
	if (!err) {
		tl->tl_end.t_fire = talk_end;
		loop_timer_start(tl->tl_loop, &tl->tl_end, TICKET_MS);
		rpc_client_start(tl->tl_client);
		loop_run(tl->tl_loop);
		err = tl->tl_err;
	}
	loop_destroy(tl->tl_loop);
	return err;
}

/* A message that is not answered is of a token that is not known there, or one that an older
 * weft-mds cannot decode. Asks what that can: it uses nothing up. */
static bool talk_older(const struct talk *before, const struct sockaddr_storage *mds, socklen_t len)
{
	struct talk tl = {.tl_ticket = before->tl_ticket};
	int err;

	memcpy(tl.tl_key, before->tl_key, sizeof(tl.tl_key));
	tl.tl_req.op = CTL_OP_TOKEN;
	err = talk_run(&tl, mds, len);
	sodium_memzero(tl.tl_key, sizeof(tl.tl_key));
	return !err;
}

static void talk_why(const struct talk *tl, int err, bool older, char *why, size_t len)
{
	const char *mds = tl->tl_ticket->jo_mds, *name = tl->tl_ticket->jo_name;

	if (older)
		snprintf(why, len,
			 "the weft-mds at %s is older than this weft, which does not use its join "
			 "tokens: upgrade it, or carry a key of \"weft ds key %s\" here",
			 mds, name);
	else if ((tl->tl_ready && err != -ETIMEDOUT) || err == -EKEYREJECTED)
		snprintf(why, len,
			 "the metadata server at %s does not know this token: it is another "
			 "cluster's, or a later token of %s replaced it",
			 mds, name);
	else if (tl->tl_up)
		snprintf(why, len, "what answers at %s is no weft-mds that knows join tokens (%s)",
			 mds, strerror(-err));
	else
		snprintf(why, len,
			 "no answer from the metadata server at %s: %s; does weft-mds run there, "
			 "and does a firewall let TCP to that port through?",
			 mds, strerror(-err));
}

int ticket_ask(const struct join_ticket *jo, const uint8_t secret[CTL_CLAIM_LEN],
	       ctl_token_step step, struct ticket_answer *out, char *why, size_t len)
{
	struct talk tl = {.tl_ticket = jo, .tl_answer = out, .tl_secret = secret};
	ctl_token2_args *a = &tl.tl_req.ctl_request_u.token2;
	struct sockaddr_storage mds;
	bool older = false;
	socklen_t mdslen;
	int err;

	*out = (struct ticket_answer){0};
	log_set_level(LOG_L_ERROR);
	ds_key_derive_token(jo->jo_secret, jo->jo_id, tl.tl_key);
	tl.tl_req.op = CTL_OP_TOKEN2;
	a->step = step;
	ds_key_claim(secret, (uint8_t *)a->claim);
	err = rpc_addr_parse(jo->jo_mds, 2049, &mds, &mdslen);
	if (!err)
		err = talk_run(&tl, &mds, mdslen);
	if (err && tl.tl_ready && err != -ETIMEDOUT)
		older = talk_older(&tl, &mds, mdslen);
	sodium_memzero(tl.tl_key, sizeof(tl.tl_key));
	if (err)
		talk_why(&tl, err, older, why, len);
	return err;
}
