/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read_order.c - chooses the copy of a stripe that a client reads (docs/mirrors.md, "Reading").
 *
 * Linux always reads the copy with the highest efficiency. So weights do not show in the
 * efficiencies. They show in how many clients have which copy first: each copy draws a number by
 * client, file and server, and the copy with the least -ln(number) / weight is first (rendezvous
 * hashing). So a copy is first for a part of the clients and files in proportion to its weight. A
 * client gets the same copy of a file each time. When a weight changes, few clients change over.
 *
 * The stripes of a striped file are drawn one after the other, from a stripe on that depends on
 * client and file. A server that has stripes of the file already counts less for the next stripe,
 * and the reduction is stronger for smaller weights. Without that, a client would read many files
 * from some of their servers twice, and nothing from others.
 */
#include "common/exports.h"
#include "mds/layout/lo_int.h"
#include "mds/layout/mirror_change.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>

/* Requests in progress, in hundredths, and microseconds for 64 KiB, below which load and latency
 * make no difference between servers. */
#define PREFER_CALM_LOAD    800.0
#define PREFER_CALM_LATENCY 2000.0
/* A busy server and a slow server each keep at least this part of their weight, so that clients'
 * reports can do no more. */
#define PREFER_LEAST 0.25
/* How much a stripe that a server already has reduces its weight. A higher value spreads stripes
 * more evenly, but moves the parts away from the weights. */
#define PREFER_AGAIN 4.0

enum prefer_class { READ_DEAD, READ_NO_WEIGHT, READ_WEIGHED, READ_PINNED };

struct choice {
	const struct lo *ch_lo;
	const uint64_t *ch_near; /* entries of mds.near that the client is in */
	uint8_t ch_obj;
	enum prefer_class ch_class;
	double ch_weight, ch_load, ch_latency; /* ch_latency 0: not known */
	double ch_draw;
};

/* ---- near servers ---- */

struct lo_near {
	uint8_t nr_net[16];
	unsigned nr_bits;
	char nr_group[LO_GROUPS_LEN];
};

static int near_entry(char *item, struct lo_near *nr, char *err, size_t errlen)
{
	char *save = NULL, *net = strtok_r(item, " \t", &save),
	     *group = strtok_r(NULL, " \t", &save), *more = strtok_r(NULL, " \t", &save);

	if (!net || !group || more) {
		snprintf(err, errlen, "mds.near: expected NETWORK LABELS, got %s",
			 net ? net : "nothing");
		return -EINVAL;
	}
	if (!exp_net(net, nr->nr_net, &nr->nr_bits)) {
		snprintf(err, errlen,
			 "mds.near: %s is neither an address nor a network in CIDR notation", net);
		return -EINVAL;
	}
	if (strlen(group) >= sizeof(nr->nr_group) || !lo_group_ok(group, strlen(group))) {
		snprintf(err, errlen,
			 "mds.near: expected KEY=VALUE[/VALUE...][+KEY=VALUE...], got %s", group);
		return -EINVAL;
	}
	strcpy(nr->nr_group, group);
	return 0;
}

int lo_near_set(struct lo *lo, const char *text, unsigned factor, char *err, size_t errlen)
{
	char *copy = strdup(text), *save = NULL;
	int rc = copy ? 0 : -ENOMEM;

	lo->l_near_factor = factor;
	for (char *item = copy ? strtok_r(copy, ",", &save) : NULL; item && !rc;
	     item = strtok_r(NULL, ",", &save)) {
		if (lo->l_nnear == LO_NEAR_MAX) {
			snprintf(err, errlen, "mds.near: more than %d networks", LO_NEAR_MAX);
			rc = -E2BIG;
			break;
		}
		if (!lo->l_near && !(lo->l_near = calloc(LO_NEAR_MAX, sizeof(*lo->l_near))))
			rc = -ENOMEM;
		else
			rc = near_entry(item, &lo->l_near[lo->l_nnear], err, errlen);
		if (!rc)
			lo->l_nnear++;
	}
	if (rc == -ENOMEM)
		snprintf(err, errlen, "mds.near: out of memory");
	free(copy);
	return rc;
}

int lo_near_check(const char *text, char *err, size_t errlen)
{
	struct lo *lo = calloc(1, sizeof(*lo));
	int rc = lo ? lo_near_set(lo, text, 1, err, errlen) : -ENOMEM;

	if (!lo)
		snprintf(err, errlen, "mds.near: out of memory");
	else
		lo_near_free(lo);
	free(lo);
	return rc;
}

void lo_near_free(struct lo *lo)
{
	free(lo->l_near);
}

/* Returns the entries of mds.near whose network contains the client, a bit each. */
static uint64_t nets_of(const struct lo *lo, const struct sockaddr_storage *peer)
{
	uint8_t addr[16];
	uint64_t in = 0;
	uint16_t port;

	if (!lo->l_nnear || !exp_addr(peer, addr, &port))
		return 0;
	for (unsigned i = 0; i < lo->l_nnear; i++)
		if (exp_same_net(addr, lo->l_near[i].nr_net, lo->l_near[i].nr_bits))
			in |= UINT64_C(1) << i;
	return in;
}

static bool is_near(const struct choice *ch, const char *labels)
{
	for (unsigned i = 0; i < ch->ch_lo->l_nnear; i++)
		if (*ch->ch_near >> i & 1 && lo_group_has(ch->ch_lo->l_near[i].nr_group, labels))
			return true;
	return false;
}

/* ---- the order ---- */

static void read_order_look_at(void *arg, const struct ds_reg_candidate *se)
{
	struct choice *ch = arg;

	ch->ch_class = !se->can_alive ? READ_DEAD : !se->can_weight ? READ_NO_WEIGHT : READ_WEIGHED;
	ch->ch_weight =
		(se->can_weight ? se->can_weight : 1) * (*ch->ch_near && is_near(ch, se->can_labels)
								 ? (double)ch->ch_lo->l_near_factor
								 : 1.0);
	ch->ch_load = se->can_load;
	ch->ch_latency = se->can_latency;
}

/* Returns the factor by which a value worse than the best reduces a weight: 1 for the best. */
static double less_for(double calm, double best, double have)
{
	double f = (calm + best) / (calm + have);

	return f < PREFER_LEAST ? PREFER_LEAST : f;
}

/* Counts the objects on a server among those that the client reads first. */
static unsigned firsts_on(const struct lo_map *m, uint64_t firsts, uint32_t ds)
{
	unsigned n = 0;

	for (uint64_t b = firsts; b; b &= b - 1)
		n += m->lm_obj[__builtin_ctzll(b)].ob_ds == ds;
	return n;
}

static void weigh(const struct lo_map *m, uint64_t firsts, struct choice *ch, unsigned n)
{
	double load = HUGE_VAL, latency = HUGE_VAL, sum = 0;

	for (unsigned i = 0; i < n; i++) {
		if (ch[i].ch_load < load)
			load = ch[i].ch_load;
		if (ch[i].ch_latency > 0 && ch[i].ch_latency < latency)
			latency = ch[i].ch_latency;
	}
	for (unsigned i = 0; i < n; i++) {
		ch[i].ch_weight *= less_for(PREFER_CALM_LOAD, load, ch[i].ch_load);
		if (ch[i].ch_latency > 0)
			ch[i].ch_weight *= less_for(PREFER_CALM_LATENCY, latency, ch[i].ch_latency);
		sum += ch[i].ch_weight;
	}
	for (unsigned i = 0; i < n && firsts; i++) {
		double share = ch[i].ch_weight * n / sum;

		ch[i].ch_weight /= 1 + PREFER_AGAIN *
					       firsts_on(m, firsts, m->lm_obj[ch[i].ch_obj].ob_ds) /
					       share;
	}
}

/* A pinned copy is what the clients are to read. One that is being taken away is like the others;
 * one that moves is still read. */
static void prefer_pinned(const struct lo_map *m, struct choice *ch, unsigned n)
{
	for (unsigned i = 0; i < n && m->lm_pin; i++)
		if (ch[i].ch_class == READ_WEIGHED &&
		    lo_mirror_of(m, ch[i].ch_obj) + 1 == m->lm_pin &&
		    (m->lm_pending_mirror || !m->lm_obj[ch[i].ch_obj].ob_leaving))
			ch[i].ch_class = READ_PINNED;
}

static bool before(const struct choice *a, const struct choice *b)
{
	return a->ch_class != b->ch_class ? a->ch_class > b->ch_class : a->ch_draw < b->ch_draw;
}

unsigned lo_prefer_from(const struct lo_map *m, uint64_t ino, const struct lo_reader *reader)
{
	return (unsigned)(hash_u64(ino + hash_u64(reader->rd_client)) % m->lm_stripes);
}

/* As lo_read with io_same: liveness is ignored. Otherwise another copy would be first while a
 * server is away, and then the first one again. */
static unsigned prefer_same(const struct choice *ch, unsigned n, uint8_t *order)
{
	for (unsigned i = 0; i < n; i++)
		order[i] = ch[i].ch_obj;
	return n;
}

unsigned lo_prefer(struct lo *lo, const struct lo_map *m, uint64_t ino, unsigned stripe,
		   const struct lo_reader *reader, uint64_t firsts, uint8_t *order)
{
	uint64_t nets = 0, who;
	struct choice ch[LO_MAX_OBJECTS];
	unsigned n = 0;
	int obj;

	while ((obj = lo_copy(m, stripe, n)) >= 0)
		ch[n++] = (struct choice){
			.ch_lo = lo, .ch_near = &nets, .ch_obj = (uint8_t)obj, .ch_weight = 1};
	/* One copy, as most files have, needs no order. */
	if (n == 1)
		order[0] = ch[0].ch_obj;
	if (n < 2)
		return n;
	if (reader->rd_peer)
		nets = nets_of(lo, reader->rd_peer);
	who = hash_u64(ino + hash_u64(reader->rd_client + hash_u64(stripe)));
	if (reader->rd_same)
		return prefer_same(ch, n, order);
	for (unsigned i = 0; i < n; i++)
		ds_reg_candidate(lo->l_dsc, m->lm_obj[ch[i].ch_obj].ob_ds, read_order_look_at,
				 &ch[i]);
	prefer_pinned(m, ch, n);
	weigh(m, firsts, ch, n);
	for (unsigned i = 0; i < n; i++) {
		uint32_t ds = m->lm_obj[ch[i].ch_obj].ob_ds;
		/* 2^53 */
		double u =
			((double)(hash_u64(who ^ hash_u64(ds)) >> 11) + 0.5) / 9007199254740992.0;
		unsigned k = i;
		struct choice mine = ch[i];

		mine.ch_draw = -log(u) / mine.ch_weight;
		for (; k && before(&mine, &ch[k - 1]); k--)
			ch[k] = ch[k - 1];
		ch[k] = mine;
	}
	for (unsigned i = 0; i < n; i++)
		order[i] = ch[i].ch_obj;
	return n;
}
