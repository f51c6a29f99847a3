/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease_key.c - see lease_key.h.
 *
 * The key's value is "1 NUMBER COUNT L OWNER", or "1 free". NUMBER is of one taking, COUNT rises
 * with each extension that is tried. So of an extension whose answer did not come, a later answer
 * tells whether it was made, and which. L is the holder's, in ms: who has a shorter one waits for
 * it all the same.
 *
 * The thread that extends is the only user of the handle of etcd while it runs; the others use it
 * before it begins and after it has ended.
 */
#include "mds/lease_key.h"
#include "base/clock.h"
#include "base/log.h"
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ID_KEY "weft/lease/id"
#define FREE   "1 free"

/* Extensions whose moments are known; a pause after one without an answer. */
enum { SENT = 16, PAUSE_MS = 50 };
/* Of a lease, at most: 11 days. */
enum { MS_DIGITS = 9 };

struct lease_key {
	struct lease_key_opts k_o;
	struct etcd *k_etcd;
	char k_owner[96];
	struct etcd_row k_id;	   /* which etcd it is */
	struct etcd_row k_row;	   /* the key as it was seen or written last */
	bool k_seen;		   /* by a look that counts */
	uint64_t k_since, k_at;	   /* it is unchanged since; the newest look */
	uint32_t k_its_ms;	   /* L of the holder; 0: nothing says it */
	char k_number[17];	   /* of this taking */
	uint64_t k_count, k_tried; /* the last one that etcd made; that was sent */
	uint64_t k_sent[SENT];	   /* when */

	pthread_mutex_t k_lock; /* of what follows */
	pthread_cond_t k_wake;	/* k_stop */
	bool k_runs, k_stop, k_serves;
	struct lease_key_state k_state;
	char k_why[800];
	pthread_t k_thread;
};

static uint64_t quick_ns(const struct lease_key *k)
{
	return (uint64_t)k->k_o.lk_lease_ms * 250000;
}

/* ---- what others ask ---- */

void lease_key_state(struct lease_key *k, struct lease_key_state *out)
{
	pthread_mutex_lock(&k->k_lock);
	*out = k->k_state;
	pthread_mutex_unlock(&k->k_lock);
}

void lease_key_why(struct lease_key *k, char *out, size_t len)
{
	pthread_mutex_lock(&k->k_lock);
	snprintf(out, len, "%s", k->k_why);
	pthread_mutex_unlock(&k->k_lock);
}

const char *lease_key_etcd(const struct lease_key *k)
{
	return k->k_id.er_value;
}

/* why NULL: it has answered. Returns -EAGAIN, or 0. */
static int answered(struct lease_key *k, const char *why)
{
	bool was, tells;

	pthread_mutex_lock(&k->k_lock);
	was = k->k_state.ls_up;
	tells = k->k_serves && was != !why;
	k->k_state.ls_asked++;
	k->k_state.ls_unasked += why != NULL;
	k->k_state.ls_up = !why;
	snprintf(k->k_why, sizeof(k->k_why), "%s%s", why ? "etcd: " : "", why ? why : "");
	pthread_mutex_unlock(&k->k_lock);
	if (tells && why)
		log_warn("etcd does not extend the lease: %s", why);
	else if (tells)
		log_info("etcd extends the lease again");
	return why ? -EAGAIN : 0;
}

/* ---- look ---- */

static void random_hex(char *out, size_t size)
{
	unsigned char b[16];

	randombytes_buf(b, sizeof(b));
	sodium_bin2hex(out, size, b, size / 2);
}

/* A new etcd has no number: the first process that looks gives it one. */
static int give_id(struct lease_key *k, uint64_t until, struct etcd_answer *a)
{
	struct etcd_row none = {.er_key = ID_KEY};
	char id[33];

	random_hex(id, sizeof(id));
	if (etcd_swap(k->k_etcd, &none, 1, ID_KEY, k->k_row.er_key, id, until, a))
		return -EAGAIN;
	return etcd_rows(k->k_etcd, ID_KEY, k->k_row.er_key, until, a);
}

/* The word of n characters ends with a space, before which nothing else stands. NULL: it does not;
 * else what follows. */
static const char *word_end(const char *p, size_t n)
{
	return n && p[n] == ' ' ? p + n + 1 : NULL;
}

uint32_t lease_key_ms(const char *value)
{
	static const char dec[] = "0123456789", hex[] = "0123456789abcdef";
	const char *p = strncmp(value, "1 ", 2) ? NULL : value + 2;
	uint32_t ms = 0;
	size_t n;

	p = p ? word_end(p, strspn(p, hex)) : NULL;
	p = p ? word_end(p, strspn(p, dec)) : NULL;
	n = p ? strspn(p, dec) : 0;
	if (n > MS_DIGITS || !p || !word_end(p, n))
		return 0;
	while (n--)
		ms = ms * 10 + (uint32_t)(*p++ - '0');
	return ms;
}

int lease_key_look(struct lease_key *k, uint32_t inst, const uint8_t ident[16], uint32_t its_ms)
{
	uint64_t began = clock_boot_ns(), until = began + quick_ns(k), now;
	char hex[33], key[ETCD_TEXT];
	struct etcd_answer a;
	int rc;

	sodium_bin2hex(hex, sizeof(hex), ident, 16);
	snprintf(key, sizeof(key), "weft/lease/%u/%s", inst, hex);
	if (strcmp(k->k_row.er_key, key)) {
		memcpy(k->k_row.er_key, key, sizeof(key));
		k->k_seen = false;
	}
	rc = etcd_rows(k->k_etcd, ID_KEY, key, until, &a);
	if (!rc && !a.ea_row[0].er_mod)
		rc = give_id(k, until, &a);
	now = clock_boot_ns();
	if (!rc && (now > until || !a.ea_row[0].er_mod)) {
		k->k_seen = false;
		return answered(k, "it answers too slowly");
	}
	if (rc) {
		k->k_seen = false;
		return answered(k, etcd_why(k->k_etcd));
	}
	/* The gap between two looks: from the answer of one to the question of the next. */
	if (!k->k_seen || a.ea_row[1].er_mod != k->k_row.er_mod ||
	    strcmp(a.ea_row[1].er_value, k->k_row.er_value) ||
	    a.ea_row[0].er_mod != k->k_id.er_mod ||
	    strcmp(a.ea_row[0].er_value, k->k_id.er_value) || began - k->k_at > quick_ns(k))
		k->k_since = now;
	k->k_id = a.ea_row[0];
	k->k_row = a.ea_row[1];
	k->k_its_ms = lease_key_ms(k->k_row.er_value);
	if (its_ms > k->k_its_ms)
		k->k_its_ms = its_ms;
	k->k_at = now;
	k->k_seen = true;
	return answered(k, NULL);
}

bool lease_key_due(const struct lease_key *k)
{
	uint32_t own = k->k_o.lk_lease_ms, its = k->k_its_ms;
	uint64_t wait = (uint64_t)(its > own ? its : own) + k->k_o.lk_rank_ms;

	return k->k_seen &&
	       (!strcmp(k->k_row.er_value, FREE) || k->k_at - k->k_since >= wait * 1000000);
}

/* ---- the holder ---- */

static void value_of(const struct lease_key *k, uint64_t count, char out[ETCD_TEXT])
{
	snprintf(out, ETCD_TEXT, "1 %s %" PRIu64 " %u %s", k->k_number, count, k->k_o.lk_lease_ms,
		 k->k_owner);
}

/* etcd has the value with this count, which is a change of the key. */
static void extended(struct lease_key *k, uint64_t count, uint64_t mod)
{
	uint64_t sent = k->k_tried - count < SENT ? k->k_sent[count % SENT] : 0;
	uint64_t end = sent + (uint64_t)k->k_o.lk_lease_ms * 750000;
	bool serves;

	k->k_count = count;
	k->k_row.er_mod = mod;
	value_of(k, count, k->k_row.er_value);
	pthread_mutex_lock(&k->k_lock);
	serves = k->k_serves;
	if (end > k->k_state.ls_end_ns)
		k->k_state.ls_end_ns = end;
	pthread_mutex_unlock(&k->k_lock);
	if (serves && k->k_o.lk_held)
		k->k_o.lk_held(k->k_o.lk_arg, end);
}

/* What the key has now is not what was compared. Is it a value that this process sent? */
static int compared(struct lease_key *k, const struct etcd_answer *a)
{
	const struct etcd_row *r = &a->ea_row[1];
	char value[ETCD_TEXT], why[ETCD_TEXT * 2];

	if (!a->ea_row[0].er_mod || strcmp(a->ea_row[0].er_value, k->k_id.er_value))
		return answered(k, "another etcd answers, or weft/lease/id was changed");
	k->k_id = a->ea_row[0];
	for (uint64_t c = k->k_tried; r->er_mod && c > k->k_count; c--) {
		value_of(k, c, value);
		if (!strcmp(value, r->er_value)) {
			extended(k, c, r->er_mod);
			return answered(k, NULL);
		}
	}
	/* The number's key was written again, with the same number. */
	if (r->er_mod == k->k_row.er_mod && !strcmp(r->er_value, k->k_row.er_value))
		return -EAGAIN;
	snprintf(why, sizeof(why), "the key %s in etcd %s", k->k_row.er_key,
		 r->er_mod ? "has another holder" : "is gone");
	pthread_mutex_lock(&k->k_lock);
	k->k_state.ls_end_ns = 0;
	pthread_mutex_unlock(&k->k_lock);
	if (k->k_o.lk_lost)
		k->k_o.lk_lost(k->k_o.lk_arg, why);
	return -ESTALE;
}

/* One try to write the next value. 0; -EAGAIN: not made, or not known; -ESTALE: deposed. */
static int write_next(struct lease_key *k)
{
	uint64_t now = clock_boot_ns(), count = ++k->k_tried;
	const struct etcd_row rows[] = {k->k_id, k->k_row};
	struct etcd_answer a;
	char value[ETCD_TEXT];

	value_of(k, count, value);
	k->k_sent[count % SENT] = now;
	if (etcd_swap(k->k_etcd, rows, 2, ID_KEY, k->k_row.er_key, value, now + quick_ns(k), &a))
		return answered(k, etcd_why(k->k_etcd));
	if (!a.ea_done)
		return compared(k, &a);
	extended(k, count, a.ea_revision);
	return answered(k, NULL);
}

/* False: this process stops. */
static bool sleeps(struct lease_key *k, uint64_t ms)
{
	uint64_t until = clock_mono_ns() + ms * 1000000;
	bool stop;

	pthread_mutex_lock(&k->k_lock);
	while (!k->k_stop && clock_cond_wait(&k->k_wake, &k->k_lock, until))
		;
	stop = k->k_stop;
	pthread_mutex_unlock(&k->k_lock);
	return !stop;
}

static void *extender(void *arg)
{
	struct lease_key *k = arg;
	int rc = 0;

	while (rc != -ESTALE) {
		uint64_t due = k->k_sent[k->k_count % SENT] + (uint64_t)k->k_o.lk_lease_ms * 200000;
		uint64_t now = clock_boot_ns();
		uint64_t ms = rc ? PAUSE_MS : now < due ? (due - now + 999999) / 1000000 : 0;

		if (!sleeps(k, ms))
			break;
		rc = write_next(k);
	}
	return NULL;
}

int lease_key_take(struct lease_key *k)
{
	const struct etcd_row rows[] = {k->k_id, k->k_row};
	uint64_t now = clock_boot_ns();
	struct etcd_answer a;
	char value[ETCD_TEXT];
	int rc;

	if (!lease_key_due(k))
		return answered(k, "the key is not free");
	/* Of another taking, whose answer did not come, nothing is known. */
	k->k_seen = false;
	random_hex(k->k_number, sizeof(k->k_number));
	k->k_count = 0;
	k->k_tried = 1;
	k->k_sent[1] = now;
	value_of(k, 1, value);
	if (etcd_swap(k->k_etcd, rows, 2, ID_KEY, k->k_row.er_key, value, now + quick_ns(k), &a))
		return answered(k, etcd_why(k->k_etcd));
	/* libcurl sends it again where a connection ends that was kept: the first one was made. */
	if (!a.ea_done && a.ea_row[1].er_mod && !strcmp(a.ea_row[1].er_value, value) &&
	    !strcmp(a.ea_row[0].er_value, k->k_id.er_value)) {
		k->k_id = a.ea_row[0];
		a.ea_revision = a.ea_row[1].er_mod;
	} else if (!a.ea_done) {
		return answered(k, "another process was quicker");
	}
	extended(k, 1, a.ea_revision);
	answered(k, NULL);
	k->k_stop = false;
	rc = -pthread_create(&k->k_thread, NULL, extender, k);
	k->k_runs = !rc;
	return rc;
}

void lease_key_serve(struct lease_key *k)
{
	uint64_t end;

	pthread_mutex_lock(&k->k_lock);
	k->k_serves = true;
	end = k->k_state.ls_end_ns;
	pthread_mutex_unlock(&k->k_lock);
	if (end && k->k_o.lk_held)
		k->k_o.lk_held(k->k_o.lk_arg, end);
}

void lease_key_give_up(struct lease_key *k)
{
	const struct etcd_row *id = &k->k_id;
	struct etcd_answer a = {0};
	bool free_ = false;

	if (!k->k_runs)
		return;
	pthread_mutex_lock(&k->k_lock);
	k->k_stop = true;
	k->k_serves = false;
	pthread_cond_signal(&k->k_wake);
	pthread_mutex_unlock(&k->k_lock);
	pthread_join(k->k_thread, NULL);
	k->k_runs = false;
	/* An extension of which nothing is known may have been made: the first try tells. */
	for (int i = 0; i < 2 && !free_; i++) {
		const struct etcd_row rows[] = {*id, k->k_row};

		if (etcd_swap(k->k_etcd, rows, 2, ID_KEY, k->k_row.er_key, FREE,
			      clock_boot_ns() + quick_ns(k), &a))
			continue;
		free_ = a.ea_done || !strcmp(a.ea_row[1].er_value, FREE);
		if (!free_ && a.ea_row[1].er_mod &&
		    !strncmp(a.ea_row[1].er_value + 2, k->k_number, strlen(k->k_number)))
			k->k_row = a.ea_row[1];
	}
	if (!free_)
		log_warn("etcd did not hear that the lease is free: another process takes it when "
			 "it is over");
	pthread_mutex_lock(&k->k_lock);
	k->k_state.ls_end_ns = 0;
	pthread_mutex_unlock(&k->k_lock);
}

/* ---- begin and end ---- */

int lease_key_open(struct lease_key **out, const struct lease_key_opts *o, char *err, size_t errlen)
{
	struct lease_key *k = calloc(1, sizeof(*k));
	int rc;

	*out = NULL;
	if (!k) {
		snprintf(err, errlen, "etcd: %s", strerror(ENOMEM));
		return -ENOMEM;
	}
	k->k_o = *o;
	rc = etcd_open(&k->k_etcd, &o->lk_etcd, err, errlen);
	if (rc) {
		free(k);
		return rc;
	}
	/* As it comes back from etcd. */
	snprintf(k->k_owner, sizeof(k->k_owner), "%s", o->lk_owner);
	for (char *c = k->k_owner; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
	pthread_mutex_init(&k->k_lock, NULL);
	clock_cond_init(&k->k_wake);
	*out = k;
	return 0;
}

void lease_key_close(struct lease_key *k)
{
	etcd_close(k->k_etcd);
	pthread_mutex_destroy(&k->k_lock);
	pthread_cond_destroy(&k->k_wake);
	free(k);
}
