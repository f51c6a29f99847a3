/* SPDX-License-Identifier: Apache-2.0 */
/* exports_who.c - keeps the tables of exports, and finds the rule that matches a peer's address. */
#include "base/ask.h"
#include "common/exports.h"
#include <fnmatch.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

struct exp_table *exp_get(struct exp_table *t)
{
	atomic_fetch_add(&t->xt_refs, 1);
	return t;
}

void exp_put(struct exp_table *t)
{
	if (!t || atomic_fetch_sub(&t->xt_refs, 1) != 1)
		return;
	for (unsigned i = 0; i < t->xt_n; i++) {
		struct exp *e = &t->xt_exp[i];

		for (unsigned k = 0; k < e->e_nwho; k++)
			free(e->e_who[k].w_text);
		free(e->e_who);
		free(e->e_rule);
		free(e->e_path);
	}
	free(t->xt_name);
	free(t->xt_pin);
	free(t);
}

const struct exp *exp_by_id(const struct exp_table *t, uint16_t id)
{
	for (unsigned i = 0; i < t->xt_n; i++) {
		if (t->xt_exp[i].e_id == id)
			return &t->xt_exp[i];
	}
	return NULL;
}

bool exp_addr(const struct sockaddr_storage *ss, uint8_t addr[16], uint16_t *port)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)ss;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)ss;

	memset(addr, 0, 16);
	if (ss->ss_family == AF_INET) {
		addr[10] = addr[11] = 0xff;
		memcpy(addr + 12, &v4->sin_addr, 4);
		*port = ntohs(v4->sin_port);
	} else if (ss->ss_family == AF_INET6) {
		memcpy(addr, &v6->sin6_addr, 16);
		*port = ntohs(v6->sin6_port);
	} else {
		return false;
	}
	return true;
}

bool exp_same_net(const uint8_t a[16], const uint8_t b[16], unsigned bits)
{
	unsigned bytes = bits / 8, rest = bits % 8;

	return memcmp(a, b, bytes) == 0 &&
	       (!rest || ((a[bytes] ^ b[bytes]) & (0xff00 >> rest & 0xff)) == 0);
}

static enum exp_met who_met(const struct exp_who *w, const uint8_t addr[16], const uint8_t *match)
{
	switch (w->w_kind) {
	case EXP_ANY:
		return EXP_MET;
	case EXP_NET:
		return exp_same_net(addr, w->w_addr, w->w_bits) ? EXP_MET : EXP_NOT;
	default:
		return match ? (enum exp_met)(match[w->w_name / 4] >> (w->w_name % 4 * 2) & 3)
			     : EXP_NOT_KNOWN;
	}
}

/* An unknown name matters unless a section before it matches, or another pattern of its own
 * section. */
const struct exp_rule *exp_match(const struct exp *e, const uint8_t addr[16], const uint8_t *match,
				 bool *unknown)
{
	unsigned open = e->e_nrules; /* the first section that may match */

	*unknown = false;
	for (unsigned i = 0; i < e->e_nwho && !*unknown; i++) {
		const struct exp_who *w = &e->e_who[i];
		enum exp_met met = who_met(w, addr, match);

		if (met == EXP_MET && (open == e->e_nrules || open == w->w_rule))
			return &e->e_rule[w->w_rule];
		*unknown = open != e->e_nrules && open != w->w_rule;
		if (met == EXP_NOT_KNOWN)
			open = w->w_rule;
	}
	*unknown |= open != e->e_nrules;
	return NULL;
}

/* True if the answer was "no": the name does not exist, or has no address. Any other error means
 * that no answer could be had: a timeout, or a server that fails or refuses. */
static bool told_no(int err)
{
	return err == EAI_NONAME || err == EAI_NODATA || err == EAI_ADDRFAMILY;
}

static enum exp_met host_is(const char *name, const uint8_t addr[16])
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list;
	bool found = false;
	int err = getaddrinfo(name, NULL, &hints, &list);

	if (err)
		return told_no(err) ? EXP_NOT : EXP_NOT_KNOWN;
	for (const struct addrinfo *a = list; a && !found; a = a->ai_next) {
		struct sockaddr_storage ss = {0};
		uint8_t one[16];
		uint16_t port;

		memcpy(&ss, a->ai_addr, a->ai_addrlen);
		found = exp_addr(&ss, one, &port) && memcmp(one, addr, 16) == 0;
	}
	freeaddrinfo(list);
	return found ? EXP_MET : EXP_NOT;
}

/* Gets the peer's own name. The name must lead back to the peer's address: the owner of a reverse
 * zone can claim any name. */
static enum exp_met reverse(const uint8_t addr[16], char *name, size_t len)
{
	static const uint8_t v4[12] = {[10] = 0xff, [11] = 0xff};
	struct sockaddr_in6 six = {.sin6_family = AF_INET6};
	struct sockaddr_in four = {.sin_family = AF_INET};
	bool is4 = memcmp(addr, v4, 12) == 0;
	int err;

	memcpy(&six.sin6_addr, addr, 16);
	memcpy(&four.sin_addr, addr + 12, 4);
	err = getnameinfo(is4 ? (void *)&four : (void *)&six, is4 ? sizeof(four) : sizeof(six),
			  name, (socklen_t)len, NULL, 0, NI_NAMEREQD);
	if (err)
		return told_no(err) ? EXP_NOT : EXP_NOT_KNOWN;
	return host_is(name, addr);
}

/* innetgr has no way to tell "no" from a service that fails. */
static enum exp_met exports_who_group_has(const char *group, const char *name)
{
	/* innetgr keeps state between calls in some libraries. */
	static pthread_mutex_t netgroups = PTHREAD_MUTEX_INITIALIZER;
	bool has;

	pthread_mutex_lock(&netgroups);
	has = innetgr(group, name, NULL, NULL) == 1;
	pthread_mutex_unlock(&netgroups);
	return has ? EXP_MET : EXP_NOT;
}

bool exp_names_match(const struct exp_table *t, const uint8_t addr[16], uint8_t *match)
{
	char name[NI_MAXHOST] = "";
	enum exp_met named = EXP_NOT;
	bool asked = false, unknown = false;

	for (unsigned i = 0; i < t->xt_nnames; i++) {
		const struct exp_who *w = t->xt_name[i];
		enum exp_met met;

		if (w->w_kind == EXP_HOST) {
			met = host_is(w->w_text, addr);
		} else {
			met = named = asked ? named : reverse(addr, name, sizeof(name));
			asked = true;
		}
		if (w->w_kind == EXP_WILD && named == EXP_MET)
			met = fnmatch(w->w_text, name, FNM_CASEFOLD) == 0 ? EXP_MET : EXP_NOT;
		if (w->w_kind == EXP_GROUP && named == EXP_MET)
			met = exports_who_group_has(w->w_text, name);
		match[i / 4] = (uint8_t)((match[i / 4] & ~(3u << (i % 4 * 2))) |
					 (unsigned)met << (i % 4 * 2));
	}
	for (unsigned i = 0; i < t->xt_n && !unknown; i++)
		exp_match(&t->xt_exp[i], addr, match, &unknown);
	return !unknown;
}

_Static_assert(sizeof(struct exp_names_key) <= ASK_KEY_MAX, "a key fits");

struct names_answer {
	uint64_t na_generation;
	uint8_t na_match[];
};

struct ask_val *exp_names_ask(const struct exp_table *t, const struct exp_names_key *key)
{
	struct ask_val *v = ask_val_new(sizeof(struct names_answer) + exp_match_len(t));
	struct names_answer *a;

	if (!v)
		return NULL;
	a = (struct names_answer *)v->av_data;
	a->na_generation = t->xt_generation;
	v->av_failed = !exp_names_match(t, key->nk_addr, a->na_match);
	return v;
}

const uint8_t *exp_names_told(const struct exp_table *t, const struct ask_val *v)
{
	const struct names_answer *a = v ? (const struct names_answer *)v->av_data : NULL;

	return a && a->na_generation == t->xt_generation ? a->na_match : NULL;
}
