/* SPDX-License-Identifier: Apache-2.0 */
/* place.c - the addresses of the configuration and what happens to them. See addr.h. */
#include "addr/place.h"
#include "base/log.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Announced again and again: a node that comes back with the address answers ARP before any process
 * of it runs. */
#define ANNOUNCE_MS 500

static struct addr_place places[ADDR_PLACES];
static unsigned nplaces;
static int64_t wait_ms;

static struct addr_place *find(const struct addr_ip *ip)
{
	for (unsigned i = 0; i < nplaces; i++)
		if (addr_ip_same(&places[i].pl_ip, ip))
			return &places[i];
	return NULL;
}

static int filter(void)
{
	return addr_filter_set(places, nplaces);
}

/* ---- at start and end ---- */

struct left {
	struct addr_place l_at[4 * ADDR_PLACES];
	unsigned l_n;
};

static void collect(void *arg, const struct addr_place *at, bool ours)
{
	struct left *l = arg;

	if (ours && l->l_n < sizeof l->l_at / sizeof l->l_at[0])
		l->l_at[l->l_n++] = *at;
}

int place_open(const struct addr_place *conf, unsigned n, int64_t wait, bool keep, int64_t now)
{
	static struct left left;
	int rc;

	memcpy(places, conf, n * sizeof *conf);
	nplaces = n;
	wait_ms = wait;
	rc = addr_net_list(collect, &left);
	if (rc < 0)
		return rc;
	for (unsigned i = 0; i < left.l_n; i++) {
		struct addr_place *pl = find(&left.l_at[i].pl_ip);
		char ip[ADDR_TEXT];

		addr_ip_text(&left.l_at[i].pl_ip, ip);
		if (keep && pl && !strcmp(pl->pl_ifname, left.l_at[i].pl_ifname) &&
		    pl->pl_prefix == left.l_at[i].pl_prefix) {
			pl->pl_on = true;
			pl->pl_until = now + wait_ms;
			log_info("%s stays on %s, waiting for its holder", ip, pl->pl_ifname);
			continue;
		}
		rc = addr_net_remove(&left.l_at[i]);
		if (rc < 0 && rc != -EADDRNOTAVAIL)
			return rc;
		log_info("%s removed from %s: a former run left it", ip, left.l_at[i].pl_ifname);
	}
	/* The ports of an address that stays are not known: nothing is dropped. */
	return filter();
}

static void place_free(struct addr_place *pl)
{
	char ip[ADDR_TEXT];
	int rc;

	if (pl->pl_on && !pl->pl_theirs) {
		rc = addr_net_remove(pl);
		if (rc < 0 && rc != -EADDRNOTAVAIL && rc != -ENODEV)
			log_error("%s: cannot remove it from %s: %s", addr_ip_text(&pl->pl_ip, ip),
				  pl->pl_ifname, strerror(-rc));
	}
	if (pl->pl_on)
		log_info("%s: released", addr_ip_text(&pl->pl_ip, ip));
	addr_tickle_drop(&pl->pl_ip);
	pl->pl_holder = NULL;
	pl->pl_on = pl->pl_theirs = pl->pl_quiet = pl->pl_lapsed = false;
	pl->pl_until = pl->pl_alive = 0;
	pl->pl_nports = 0;
}

void place_close(bool keep)
{
	for (unsigned i = 0; i < nplaces; i++) {
		/* The table goes: what is quiet would begin to refuse. */
		if (!keep || places[i].pl_quiet)
			place_free(&places[i]);
		places[i].pl_quiet = false;
	}
	filter();
}

/* ---- what a holder asks for ---- */

struct there {
	const struct addr_place *t_pl;
	bool t_found, t_ours;
};

static void look(void *arg, const struct addr_place *at, bool ours)
{
	struct there *t = arg;

	if (!addr_ip_same(&at->pl_ip, &t->t_pl->pl_ip))
		return;
	t->t_found = true;
	if (ours && !strcmp(at->pl_ifname, t->t_pl->pl_ifname))
		t->t_ours = true;
}

/* Puts the address on its interface, unless it is there. */
static int put(struct addr_place *pl)
{
	struct there t = {.t_pl = pl};
	int rc = addr_net_list(look, &t);

	if (rc < 0)
		return rc;
	if (!t.t_found)
		rc = addr_net_add(pl);
	if (rc < 0)
		return rc;
	pl->pl_theirs = t.t_found && !t.t_ours;
	pl->pl_on = true;
	pl->pl_next = 0;
	return 0;
}

static void announce(struct addr_place *pl, int64_t now)
{
	if (!addr_announce(pl))
		pl->pl_told++;
	pl->pl_next = now + ANNOUNCE_MS;
}

static int refuse(char *err, size_t errlen, int rc, const struct addr_ip *ip, const char *why)
{
	char text[ADDR_TEXT];

	snprintf(err, errlen, "%s: %s", addr_ip_text(ip, text), why);
	return rc;
}

int place_hold(struct addr_holder *h, const struct addr_msg *m, int64_t now, char *err,
	       size_t errlen)
{
	struct addr_place *taken[ADDR_PLACES];
	int rc;

	for (unsigned i = 0; i < m->m_nips; i++) {
		taken[i] = find(&m->m_ips[i]);
		if (!taken[i])
			return refuse(err, errlen, -EPERM, &m->m_ips[i],
				      "the configuration does not allow it");
		if (taken[i]->pl_holder)
			return refuse(err, errlen, -EBUSY, &m->m_ips[i], "it is held");
	}
	/* The table comes before the address: no connection is refused in between. */
	for (unsigned i = 0; i < m->m_nips; i++) {
		taken[i]->pl_holder = h;
		taken[i]->pl_quiet = true;
		taken[i]->pl_lapsed = false;
		taken[i]->pl_until = taken[i]->pl_alive = 0;
		memcpy(taken[i]->pl_ports, m->m_ports, sizeof m->m_ports);
		taken[i]->pl_nports = m->m_nports;
	}
	rc = filter();
	for (unsigned i = 0; !rc && i < m->m_nips; i++) {
		rc = put(taken[i]);
		if (rc < 0)
			refuse(err, errlen, rc, &m->m_ips[i],
			       rc == -EOPNOTSUPP ? "this kernel does not mark addresses (IFA_PROTO)"
						 : strerror(-rc));
	}
	if (rc < 0) {
		if (rc == -EIO)
			snprintf(err, errlen, "nftables does not take the table");
		for (unsigned i = 0; i < m->m_nips; i++)
			place_free(taken[i]);
		filter();
		return rc;
	}
	for (unsigned i = 0; i < m->m_nips; i++) {
		char ip[ADDR_TEXT];

		announce(taken[i], now);
		log_info("%s: held on %s%s", addr_ip_text(&taken[i]->pl_ip, ip),
			 taken[i]->pl_ifname,
			 taken[i]->pl_theirs ? ", where the node has it by other means" : "");
	}
	return 0;
}

int place_listening(struct addr_holder *h)
{
	bool any = false;
	int rc;

	for (unsigned i = 0; i < nplaces; i++)
		if (places[i].pl_holder == h) {
			any = true;
			places[i].pl_quiet = false;
		}
	if (!any)
		return -ENOENT;
	rc = filter();
	for (unsigned i = 0; rc < 0 && i < nplaces; i++)
		if (places[i].pl_holder == h)
			places[i].pl_quiet = true;
	return rc;
}

int place_live(struct addr_holder *h, int64_t ms, int64_t now)
{
	bool any = false;
	int rc = 0;

	for (unsigned i = 0; i < nplaces; i++) {
		struct addr_place *pl = &places[i];

		if (pl->pl_holder != h)
			continue;
		any = true;
		pl->pl_alive = now + ms;
		if (!pl->pl_lapsed)
			continue;
		rc = put(pl);
		if (rc < 0)
			break;
		pl->pl_lapsed = false;
		announce(pl, now);
	}
	return rc < 0 ? rc : any ? 0 : -ENOENT;
}

int place_tickle(struct addr_holder *h, const struct addr_msg *m, int64_t now, char *err,
		 size_t errlen)
{
	for (unsigned i = 0; i < m->m_nrows; i++) {
		const struct addr_row *r = &m->m_rows[i];
		const struct addr_place *pl = find(&r->r_local);
		unsigned p = 0;

		if (!pl || pl->pl_holder != h || !pl->pl_on || pl->pl_lapsed)
			return refuse(err, errlen, -EPERM, &r->r_local, "not held");
		while (p < pl->pl_nports && pl->pl_ports[p] != r->r_lport)
			p++;
		if (p == pl->pl_nports)
			return refuse(err, errlen, -EPERM, &r->r_local, "not a port of HOLD");
	}
	return (int)addr_tickle_add(m->m_rows, m->m_nrows, now);
}

void place_release(struct addr_holder *h)
{
	for (unsigned i = 0; i < nplaces; i++)
		if (places[i].pl_holder == h)
			place_free(&places[i]);
	filter();
}

void place_gone(struct addr_holder *h, int64_t now)
{
	for (unsigned i = 0; i < nplaces; i++) {
		struct addr_place *pl = &places[i];
		char ip[ADDR_TEXT];

		if (pl->pl_holder != h)
			continue;
		log_warn("%s: its holder is gone", addr_ip_text(&pl->pl_ip, ip));
		/* A place that lapsed has no proof that it may be on the interface. */
		if (!wait_ms || pl->pl_lapsed) {
			place_free(pl);
			continue;
		}
		pl->pl_holder = NULL;
		pl->pl_quiet = true;
		pl->pl_until = wait_ms < 0 ? 0 : now + wait_ms;
	}
	filter();
}

/* ---- as time goes by ---- */

static void lapse(struct addr_place *pl)
{
	char ip[ADDR_TEXT];
	int rc = pl->pl_theirs ? 0 : addr_net_remove(pl);

	log_warn("%s: its holder did not say that it is alive: removed",
		 addr_ip_text(&pl->pl_ip, ip));
	if (rc < 0 && rc != -EADDRNOTAVAIL)
		log_error("%s: cannot remove it from %s: %s", ip, pl->pl_ifname, strerror(-rc));
	addr_tickle_drop(&pl->pl_ip);
	pl->pl_lapsed = true;
}

/* Somebody may have taken the address away (a link that was made again, an administrator). */
static void put_back(struct addr_place *pl)
{
	char ip[ADDR_TEXT];

	if (pl->pl_theirs || addr_net_add(pl) < 0)
		return;
	log_warn("%s: was gone from %s, put back", addr_ip_text(&pl->pl_ip, ip), pl->pl_ifname);
}

static void sooner(int64_t at, int64_t *next)
{
	if (at && at < *next)
		*next = at;
}

int64_t place_run(int64_t now)
{
	int64_t next = INT64_MAX;
	bool freed = false;

	for (unsigned i = 0; i < nplaces; i++) {
		struct addr_place *pl = &places[i];

		if (!pl->pl_on)
			continue;
		if (pl->pl_until && now >= pl->pl_until) {
			place_free(pl);
			freed = true;
			continue;
		}
		if (pl->pl_alive && now >= pl->pl_alive && !pl->pl_lapsed)
			lapse(pl);
		sooner(pl->pl_until, &next);
		if (pl->pl_lapsed)
			continue;
		sooner(pl->pl_alive, &next);
		if (now >= pl->pl_next) {
			put_back(pl);
			announce(pl, now);
		}
		sooner(pl->pl_next, &next);
	}
	if (freed)
		filter();
	return next;
}

size_t place_status(char *buf, size_t len)
{
	size_t n = (size_t)snprintf(buf, len, "OK tickles %u\n", addr_tickle_count());

	for (unsigned i = 0; i < nplaces && n < len; i++) {
		const struct addr_place *pl = &places[i];
		const char *state = !pl->pl_on	     ? "free"
				    : pl->pl_lapsed  ? "lapsed"
				    : !pl->pl_holder ? "waiting"
				    : pl->pl_quiet   ? "quiet"
						     : "open";
		char ip[ADDR_TEXT];

		n += (size_t)snprintf(buf + n, len - n, "%s %s %s announced %llu%s\n",
				      addr_ip_text(&pl->pl_ip, ip), pl->pl_ifname, state,
				      (unsigned long long)pl->pl_told,
				      pl->pl_theirs ? " by other means" : "");
	}
	return n < len ? n : len - 1;
}
