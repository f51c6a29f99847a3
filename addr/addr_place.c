/* SPDX-License-Identifier: Apache-2.0 */
/* addr_place.c - the addresses of the configuration and what happens to them. See addr.h. */
#include "addr/addr_place.h"
#include "base/log.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Announced again and again: a node that comes back with the address answers ARP before any process
 * of it runs. */
#define ANNOUNCE_MS 500
#define LEFT_MAX    (4 * ADDR_PLACES) /* addresses that former runs may have left */
#define REMOVE_MS   200		      /* between two tries to take an address away */
#define REMIND_MS   60000	      /* between two log lines about one that does not go */
#define CLOSE_TRIES 10		      /* to take away what is left at the end */
/* For what a former life closed: its holder waits for the answer, and others to be heard. */
#define CLOSED_MS 300

static struct addr_place places[ADDR_PLACES];
static unsigned nplaces;
static int64_t wait_ms;

/* Addresses that should be gone and are not. Also those that the configuration does not have. */
struct stuck {
	struct addr_ip k_ip;
	char k_ifname[IFNAMSIZ];
	int64_t k_next, k_remind;
};
static struct stuck stuck[LEFT_MAX];
static unsigned nstuck;

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

static int64_t waits_until(int64_t now)
{
	return wait_ms < 0 ? 0 : now + wait_ms;
}

/* ---- what has to go ---- */

static struct stuck *stuck_find(const struct addr_ip *ip)
{
	for (unsigned i = 0; i < nstuck; i++)
		if (addr_ip_same(&stuck[i].k_ip, ip))
			return &stuck[i];
	return NULL;
}

/* It is gone, or held again. */
static void stuck_forget(const struct addr_ip *ip)
{
	struct stuck *k = stuck_find(ip);

	if (k)
		*k = stuck[--nstuck];
}

static void take_away(const struct addr_ip *ip, const char *ifname, int64_t now)
{
	struct stuck *k = stuck_find(ip);
	int rc = addr_net_remove(ip);
	char text[ADDR_TEXT];

	addr_ip_text(ip, text);
	if (rc >= 0) {
		if (k)
			log_info("%s: removed from %s at last", text, ifname);
		stuck_forget(ip);
		return;
	}
	if (!k || now >= k->k_remind)
		log_error("%s: still on %s, and has to go: %s. Tried again; no other node may have "
			  "it meanwhile",
			  text, ifname, strerror(-rc));
	if (!k && nstuck < LEFT_MAX) {
		k = &stuck[nstuck++];
		*k = (struct stuck){.k_ip = *ip};
		strcpy(k->k_ifname, ifname);
	}
	if (!k)
		return;
	if (now >= k->k_remind)
		k->k_remind = now + REMIND_MS;
	k->k_next = now + REMOVE_MS;
}

static void stuck_run(int64_t now, int64_t *next)
{
	for (unsigned i = nstuck; i-- > 0;) {
		/* A copy: what goes leaves the table. */
		struct stuck k = stuck[i];

		if (now >= k.k_next)
			take_away(&k.k_ip, k.k_ifname, now);
	}
	for (unsigned i = 0; i < nstuck; i++)
		if (stuck[i].k_next < *next)
			*next = stuck[i].k_next;
}

/* ---- at start and end ---- */

struct left {
	struct addr_place l_at[LEFT_MAX];
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
			pl->pl_until = waits_until(now);
			log_info("%s stays on %s, waiting for its holder", ip, pl->pl_ifname);
			continue;
		}
		log_info("%s: a former run left it on %s", ip, left.l_at[i].pl_ifname);
		take_away(&left.l_at[i].pl_ip, left.l_at[i].pl_ifname, now);
	}
	/* The ports of an address that stays are not known: nothing is dropped. */
	return filter();
}

static void place_free(struct addr_place *pl, int64_t now)
{
	char ip[ADDR_TEXT];

	if (pl->pl_on) {
		log_info("%s: released", addr_ip_text(&pl->pl_ip, ip));
		if (!pl->pl_theirs)
			take_away(&pl->pl_ip, pl->pl_ifname, now);
	}
	addr_tickle_drop(&pl->pl_ip);
	pl->pl_holder = NULL;
	pl->pl_on = pl->pl_theirs = pl->pl_quiet = pl->pl_lapsed = false;
	pl->pl_keep = pl->pl_missing = false;
	pl->pl_until = pl->pl_alive = 0;
	pl->pl_nports = 0;
}

bool place_close(bool keep, int64_t now)
{
	int64_t next = INT64_MAX;

	for (unsigned i = 0; i < nplaces; i++) {
		/* The table goes: what is quiet would begin to refuse. */
		if (!keep || places[i].pl_quiet)
			place_free(&places[i], now);
		places[i].pl_quiet = false;
	}
	for (int tries = 0; nstuck && tries < CLOSE_TRIES; tries++) {
		nanosleep(&(struct timespec){.tv_nsec = REMOVE_MS * 1000000L}, NULL);
		now += REMOVE_MS;
		stuck_run(now, &next);
	}
	filter();
	return !nstuck;
}

/* ---- what a holder asks for ---- */

struct there {
	const struct addr_place *t_pl;
	bool t_here;   /* where it belongs, by a weft-addr */
	bool t_stray;  /* elsewhere, by a weft-addr: its interface has another name now */
	bool t_theirs; /* by other means */
};

static void look(void *arg, const struct addr_place *at, bool ours)
{
	struct there *t = arg;

	if (!addr_ip_same(&at->pl_ip, &t->t_pl->pl_ip))
		return;
	if (!ours)
		t->t_theirs = true;
	else if (!strcmp(at->pl_ifname, t->t_pl->pl_ifname) && at->pl_prefix == t->t_pl->pl_prefix)
		t->t_here = true;
	else
		t->t_stray = true;
}

/* Puts the address on its interface, unless it is there. */
static int put(struct addr_place *pl)
{
	struct there t = {.t_pl = pl};
	int rc = addr_net_list(look, &t);

	if (!rc && t.t_stray) {
		rc = addr_net_remove(&pl->pl_ip);
		t.t_here = false;
	}
	if (!rc && !t.t_here && !t.t_theirs)
		rc = addr_net_add(pl);
	if (rc < 0) {
		/* Who gives the place up takes it away. */
		pl->pl_on = pl->pl_on || t.t_here || t.t_stray;
		return rc;
	}
	stuck_forget(&pl->pl_ip);
	pl->pl_theirs = t.t_theirs && !t.t_here;
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

/* An interface that is not there keeps its addresses from coming, not those of others. */
static int put_all(struct addr_place **taken, unsigned n, char *err, size_t errlen)
{
	unsigned missing = 0;

	for (unsigned i = 0; i < n; i++) {
		int rc = put(taken[i]);

		taken[i]->pl_missing = rc == -ENODEV;
		if (rc == -ENODEV && ++missing < n) {
			taken[i]->pl_on = true;
			continue;
		}
		if (rc < 0)
			return refuse(err, errlen, rc, &taken[i]->pl_ip,
				      rc == -EOPNOTSUPP
					      ? "this kernel does not mark addresses (IFA_PROTO)"
				      : rc == -ENODEV ? "there is no such interface"
						      : strerror(-rc));
	}
	return 0;
}

/* Before the address comes: what a former life of this node left must not answer for the new one.
 * The holder can do without: few peers have the same port again. false: no time is left. */
static bool end_closed(const struct addr_place *pl, int64_t *left)
{
	int rc = addr_closed_end(&pl->pl_ip, pl->pl_ports, pl->pl_nports, left);
	char ip[ADDR_TEXT];

	addr_ip_text(&pl->pl_ip, ip);
	if (rc > 0)
		log_info("%s: %d connections that a former life of this node closed have ended", ip,
			 rc);
	else if (rc < 0)
		log_warn("%s: the kernel does not end all connections that a former life of this "
			 "node closed: %s. A client that has the same port again may wait for "
			 "half a minute",
			 ip, strerror(-rc));
	return rc != -ETIME && rc != -ETIMEDOUT;
}

int place_hold(struct addr_holder *h, const struct addr_msg *m, int64_t now, char *err,
	       size_t errlen)
{
	struct addr_place *taken[ADDR_PLACES];
	int64_t left = CLOSED_MS;
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
		taken[i]->pl_lapsed = taken[i]->pl_keep = false;
		taken[i]->pl_until = taken[i]->pl_alive = 0;
		memcpy(taken[i]->pl_ports, m->m_ports, sizeof m->m_ports);
		taken[i]->pl_nports = m->m_nports;
	}
	rc = filter();
	for (unsigned i = 0; i < m->m_nips && rc >= 0; i++)
		if (!end_closed(taken[i], &left))
			break;
	if (rc < 0)
		snprintf(err, errlen, "nftables does not take the table");
	else
		rc = put_all(taken, m->m_nips, err, errlen);
	if (rc < 0) {
		for (unsigned i = 0; i < m->m_nips; i++)
			place_free(taken[i], now);
		filter();
		return rc;
	}
	for (unsigned i = 0; i < m->m_nips; i++) {
		char ip[ADDR_TEXT];

		addr_ip_text(&taken[i]->pl_ip, ip);
		if (taken[i]->pl_missing) {
			log_warn("%s: held, but there is no %s: put there as soon as there is", ip,
				 taken[i]->pl_ifname);
			continue;
		}
		announce(taken[i], now);
		log_info("%s: held on %s%s", ip, taken[i]->pl_ifname,
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

int place_live(struct addr_holder *h, const struct addr_msg *m, int64_t now)
{
	bool any = false;
	int rc = 0;

	for (unsigned i = 0; i < nplaces; i++) {
		struct addr_place *pl = &places[i];
		int one;

		if (pl->pl_holder != h)
			continue;
		any = true;
		pl->pl_alive = now + m->m_alive_ms;
		pl->pl_keep = m->m_keep;
		if (!pl->pl_lapsed)
			continue;
		one = put(pl);
		if (one < 0) {
			/* The others do live. */
			rc = one;
			continue;
		}
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
		/* The peer would connect again at once, to nobody. */
		if (pl->pl_quiet)
			return refuse(err, errlen, -EPERM, &r->r_local, "LISTENING comes first");
	}
	return (int)addr_tickle_add(m->m_rows, m->m_nrows, now);
}

void place_release(struct addr_holder *h, int64_t now)
{
	for (unsigned i = 0; i < nplaces; i++)
		if (places[i].pl_holder == h)
			place_free(&places[i], now);
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
			place_free(pl, now);
			continue;
		}
		pl->pl_holder = NULL;
		pl->pl_quiet = true;
		pl->pl_until = waits_until(now);
		if (pl->pl_keep)
			pl->pl_alive = 0;
	}
	filter();
}

/* ---- as time goes by ---- */

static void lapse(struct addr_place *pl, int64_t now)
{
	char ip[ADDR_TEXT];

	log_warn("%s: its holder did not say that it is alive: it goes until it does",
		 addr_ip_text(&pl->pl_ip, ip));
	if (!pl->pl_theirs)
		take_away(&pl->pl_ip, pl->pl_ifname, now);
	addr_tickle_drop(&pl->pl_ip);
	pl->pl_lapsed = true;
}

/* Somebody may have taken the address away (a link that was made again, an administrator). */
static void put_back(struct addr_place *pl)
{
	const bool was_theirs = pl->pl_theirs;
	int rc = was_theirs ? put(pl) : addr_net_add(pl);
	char ip[ADDR_TEXT];

	addr_ip_text(&pl->pl_ip, ip);
	if (rc < 0 && rc != -EEXIST) {
		if (!pl->pl_missing)
			log_warn("%s: gone from %s, and cannot be put back: %s. It is tried again",
				 ip, pl->pl_ifname, strerror(-rc));
		pl->pl_missing = true;
		return;
	}
	if (rc == 0 && (!was_theirs || !pl->pl_theirs))
		log_warn("%s: was gone from %s, put back", ip, pl->pl_ifname);
	pl->pl_missing = false;
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
			place_free(pl, now);
			freed = true;
			continue;
		}
		if (pl->pl_alive && now >= pl->pl_alive && !pl->pl_lapsed)
			lapse(pl, now);
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
	stuck_run(now, &next);
	return next;
}

size_t place_status(char *buf, size_t len)
{
	size_t n = (size_t)snprintf(buf, len, "OK tickles %u\n", addr_tickle_count());

	for (unsigned i = 0; i < nplaces && n < len; i++) {
		const struct addr_place *pl = &places[i];
		const char *state = stuck_find(&pl->pl_ip) ? "stuck"
				    : !pl->pl_on	   ? "free"
				    : pl->pl_lapsed	   ? "lapsed"
				    : !pl->pl_holder	   ? "waiting"
				    : pl->pl_quiet	   ? "quiet"
							   : "open";
		char ip[ADDR_TEXT];

		n += (size_t)snprintf(buf + n, len - n, "%s %s %s announced %llu%s%s\n",
				      addr_ip_text(&pl->pl_ip, ip), pl->pl_ifname, state,
				      (unsigned long long)pl->pl_told,
				      pl->pl_theirs ? " by other means" : "",
				      pl->pl_missing ? " missing" : "");
	}
	return n < len ? n : len - 1;
}
