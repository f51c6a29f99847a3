/* SPDX-License-Identifier: Apache-2.0 */
/*
 * drc.c - the duplicate request cache: a retransmission of a call that must run only once gets the
 * first reply again.
 *
 * The cache knows a call by the caller (address and credential, but not port, because a client that
 * connects again may use another), the xid, program and procedure, and the length and hash of its
 * arguments. A retransmission that arrives while the call still runs waits for it and gets the same
 * reply. The cache holds only procedures that change something, so that reads cannot push them out.
 * It drops the oldest first, by bytes and by age. It ends with the daemon.
 */
#include "base/clock.h"
#include "ds/path/path_int.h"
#include <errno.h>
#include <sodium.h>

#define KEEP_NS	   UINT64_C(300000000000)
#define ENTRY_COST 160 /* memory of an entry besides the reply */

struct drc_key {
	uint8_t k_addr[16];
	uint32_t k_xid, k_prog, k_proc, k_len;
	uint8_t k_sum[16]; /* over the credential and the arguments */
};

struct path_drc_entry {
	struct hash_link de_link;
	struct drc_key de_key;
	struct path_drc_entry *de_next; /* finished entries, oldest first */
	struct path_call *de_waits;
	uint64_t de_done_ns; /* 0: still running */
	uint32_t de_len;
	uint8_t *de_reply;
};

struct path_drc {
	pthread_mutex_t d_lock;
	struct hash d_table;
	struct path_drc_entry *d_head, **d_tail;
	size_t d_bytes, d_most;
	uint8_t d_secret[crypto_generichash_KEYBYTES];
};

static struct metric *m_hits, *m_waits;

void path_drc_metrics(void)
{
	m_hits =
		metric_counter("weft_ds_export_replays_total",
			       "Retransmitted calls answered from kept replies.", "state=\"done\"");
	m_waits = metric_counter("weft_ds_export_replays_total",
				 "Retransmitted calls answered from kept replies.",
				 "state=\"waited\"");
}

int path_drc_open(struct path_drc **out, size_t bytes)
{
	struct path_drc *d = calloc(1, sizeof(*d));

	if (!d)
		return -ENOMEM;
	pthread_mutex_init(&d->d_lock, NULL);
	d->d_tail = &d->d_head;
	d->d_most = bytes;
	randombytes_buf(d->d_secret, sizeof(d->d_secret));
	*out = d;
	return 0;
}

static void drc_key_make(const struct path_drc *d, const struct path_call *c,
			 const struct xdr_in *args, struct drc_key *k)
{
	const struct rpc_cred *cr = &c->pcl_rpc->c_cred;
	crypto_generichash_state h;

	memset(k, 0, sizeof(*k));
	memcpy(k->k_addr, c->pcl_addr, 16);
	k->k_xid = c->pcl_rpc->c_xid;
	k->k_prog = c->pcl_rpc->c_prog;
	k->k_proc = c->pcl_rpc->c_proc;
	k->k_len = (uint32_t)xdr_left(args);
	crypto_generichash_init(&h, d->d_secret, sizeof(d->d_secret), sizeof(k->k_sum));
	crypto_generichash_update(&h, (const uint8_t *)&cr->rc_flavor, sizeof(cr->rc_flavor));
	crypto_generichash_update(&h, (const uint8_t *)&cr->rc_uid, sizeof(cr->rc_uid));
	crypto_generichash_update(&h, (const uint8_t *)&cr->rc_gid, sizeof(cr->rc_gid));
	crypto_generichash_update(&h, (const uint8_t *)cr->rc_gids,
				  cr->rc_ngids * sizeof(cr->rc_gids[0]));
	crypto_generichash_update(&h, args->p, k->k_len);
	crypto_generichash_final(&h, k->k_sum, sizeof(k->k_sum));
}

static uint64_t drc_key_hash(const struct drc_key *k)
{
	uint64_t h;

	memcpy(&h, k->k_sum, sizeof(h));
	return h;
}

static struct path_drc_entry *drc_find(struct path_drc *d, const struct drc_key *k)
{
	struct hash_link *l = hash_first(&d->d_table, drc_key_hash(k));

	while (l &&
	       memcmp(&hash_entry(l, struct path_drc_entry, de_link)->de_key, k, sizeof(*k)) != 0)
		l = hash_next(l);
	return l ? hash_entry(l, struct path_drc_entry, de_link) : NULL;
}

static void entry_free(struct path_drc *d, struct path_drc_entry *e)
{
	hash_del(&d->d_table, &e->de_link);
	free(e->de_reply);
	free(e);
}

static void drc_trim(struct path_drc *d, uint64_t now)
{
	while (d->d_head && (d->d_bytes > d->d_most || now - d->d_head->de_done_ns > KEEP_NS)) {
		struct path_drc_entry *e = d->d_head;

		d->d_head = e->de_next;
		if (!d->d_head)
			d->d_tail = &d->d_head;
		d->d_bytes -= ENTRY_COST + e->de_len;
		entry_free(d, e);
	}
}

static void drc_copy_reply(struct path_call *c, const struct path_drc_entry *e)
{
	uint8_t *p = xdr_reserve(c->pcl_out, e->de_len);

	if (p)
		memcpy(p, e->de_reply, e->de_len);
}

enum path_drc_verdict path_drc_begin(struct path_drc *d, struct path_call *c)
{
	enum path_drc_verdict v = PATH_DRC_NEW;
	struct path_drc_entry *e;
	struct drc_key k;

	drc_key_make(d, c, &c->pcl_rpc->c_args, &k);
	pthread_mutex_lock(&d->d_lock);
	e = drc_find(d, &k);
	if (e && e->de_done_ns) {
		drc_copy_reply(c, e);
		v = PATH_DRC_KNOWN;
	} else if (e) {
		c->pcl_next = e->de_waits;
		e->de_waits = c;
		v = PATH_DRC_WAITS;
	} else {
		e = calloc(1, sizeof(*e));
		if (e)
			e->de_key = k;
		if (e && hash_add(&d->d_table, &e->de_link, drc_key_hash(&k))) {
			free(e);
			e = NULL;
		}
		c->pcl_entry = e; /* Without memory the call runs, but its reply is not kept. */
	}
	pthread_mutex_unlock(&d->d_lock);
	if (v != PATH_DRC_NEW)
		metric_add(v == PATH_DRC_KNOWN ? m_hits : m_waits, 1);
	return v;
}

/* Without the lock held. Sends the reply to the retransmissions that waited. */
static void drc_answer(struct path_call *list, const struct path_call *done)
{
	while (list) {
		struct path_call *c = list;
		uint8_t *p = NULL;

		list = c->pcl_next;
		c->pcl_garbage = done->pcl_garbage;
		if (!c->pcl_garbage)
			p = xdr_reserve(c->pcl_out, done->pcl_out->x_len - done->pcl_rpc->c_body);
		if (p)
			memcpy(p, done->pcl_out->x_head + done->pcl_rpc->c_body,
			       done->pcl_out->x_len - done->pcl_rpc->c_body);
		path_call_done(c);
	}
}

void path_drc_done(struct path_drc *d, struct path_call *c, bool keep)
{
	struct path_drc_entry *e = c->pcl_entry;
	struct path_call *waits;

	if (!e)
		return;
	c->pcl_entry = NULL;
	pthread_mutex_lock(&d->d_lock);
	waits = e->de_waits;
	e->de_waits = NULL;
	if (keep && !c->pcl_garbage && !c->pcl_out->bad) {
		e->de_len = (uint32_t)(c->pcl_out->x_len - c->pcl_rpc->c_body);
		e->de_reply = malloc(e->de_len);
	}
	if (e->de_reply) {
		memcpy(e->de_reply, c->pcl_out->x_head + c->pcl_rpc->c_body, e->de_len);
		e->de_done_ns = clock_mono_ns();
		*d->d_tail = e;
		d->d_tail = &e->de_next;
		d->d_bytes += ENTRY_COST + e->de_len;
		drc_trim(d, e->de_done_ns);
	} else {
		entry_free(d, e);
	}
	pthread_mutex_unlock(&d->d_lock);
	drc_answer(waits, c);
}
