/*
 * admin.h - the administrator's HTTP API of the metadata server (base/http.h), on mds.admin, beside
 * GET /metrics. JSON.
 *
 *   GET    /v1/health               {"status":"ok"}: it answers
 *   GET    /v1/status               counts of servers, clients, space, commits
 *   GET    /v1/ds                   {"ds":[...]}: every data server that ever joined
 *   PUT    /v1/ds/kill?ds=DS        it is dead from now on, whatever it says; answers with the
 *          server
 *   PUT    /v1/ds/admit?ds=DS       it may join
 *   PUT    /v1/ds/forget?ds=DS      its record goes:
 *          {"forgotten","files","lost_files","lost":[paths]}; 409 with these where files have
 *          objects there, without force=1
 *   GET    /v1/policy?path=/dir     {"path","policy","inherited"}
 *   PUT    /v1/policy?path=/dir     body: the policy; empty or "inherit": removes it. Answers as
 * GET does GET    /v1/file?path=/file      the placement (lo_layout_json)
 *
 *   GET    /v1/exports              the exports in force
 *   PUT    /v1/exports              reads their file again; answers as GET does, 409 where it is
 *          bad: then the old ones stay
 *
 *   GET    /v1/repair?path=/file    mirrors being repaired, and those that wait, with why; of one
 *          file, or without a path of all
 *   PUT    /v1/repair?path=/file    it is repaired now, and no server is waited for; answers as GET
 *          does
 *   PUT    /v1/mirror/add?path=&group=       one mirror more, on servers with these labels; these
 *          three answer as GET /v1/repair
 *   PUT    /v1/mirror/remove?path=&mirror=   one less
 *   PUT    /v1/verify?path=&recursive=&mend=&keep=   copies are compared; as GET /v1/verify
 *          answers: how far it is, and what differs. DELETE: it ends
 *   PUT    /v1/choose?path=&mirror=&force=    that mirror is good, and the others are made anew;
 *          without mirror what each copy has. As GET /v1/choose answers; 409: why not
 *   PUT    /v1/scrub?content=&dry=           what the data servers have is checked (docs/scrub.md);
 *          as GET /v1/scrub answers: how far it is; with findings=1 what was found. DELETE: it ends
 *   PUT    /v1/move?path=&group=&policy=&from=&cancel=   to these servers, or away from that one
 *   GET    /v1/ds/one?ds=                    one data server, as in GET /v1/ds; with PUT
 *          /v1/ds/drain?ds= and /v1/ds/undrain?ds=
 *
 *   GET    /v1/clients?client=C     all clients, or one: {"known","lease","clients":[...]}. C:
 *          number, name, address or clientid
 *   DELETE /v1/clients?client=C     evicts it as if its lease had run out; it is done when it is
 *                                   not listed any more
 *
 *   GET    /v1/layouts?path=/f&client=C&ds=D    layouts that are out, by any of these:
 *          {"known","recalled","layouts":[...]}
 *   PUT    /v1/layouts/recall?path=/f           takes them back; those that stay out are fenced at
 *          the deadline. Answers as GET does when they have been asked for, and "asked": how many
 *
 *   GET    /v1/find?path=/d&ds=D&stale=1&lost=1&degraded=1&policy=P&cursor=X    files below a path
 *          that have all of these: {"found":[...],"looked","too_deep","cursor"}; it ends where the
 *          cursor is null
 *   GET    /v1/find?path=/&count=1&cursor=X    how many there are:
 *          {"files","lost","degraded","too_deep","cursor"}
 *   GET    /v1/xattr?path=/f&name=N    extended attributes:
 *          {"path","xattrs":[{"name","size","virtual","text" or "hex"}]}, of one name or all
 *   PUT    /v1/xattr?path=/f&name=N&encoding=hex    body: the value; DELETE takes it away. Both
 *          answer as GET does. Delegations come back first
 *   GET    /v1/top?rows=N           the busiest now:
 *          {"half_life","clients","servers","directories"}
 *   GET    /v1/heat?path=/d&rows=N  where most was done lately: {"half_life","directories","files"}
 *   GET    /v1/events?after=SEQ&since=SECONDS&kind=K&last=N    the journal, the oldest first:
 *          {"events":[...],"next","more"}; next is the next request's after.
 *                                   last: only so many, the newest
 *
 * Errors: {"error":"one line"} with 400 (what was asked makes no sense), 404 (no such path), 409
 * (understood, and cannot be served), 500.
 *
 * Handlers run on the HTTP thread. They read with snapshots of their own; a change is a mutation
 * that they wait for. No loop waits for them.
 */
#ifndef MDS_ADMIN_H
#define MDS_ADMIN_H
#include "mds/dataserver/dsc.h"
#include "mds/export/exp.h"
#include "mds/layout/lo.h"
#include "mds/namespace/ns.h"

struct mds;
/* What only the state tables know; filled on the HTTP thread, so behind their locks. */
struct admin_counts {
	uint64_t ac_clients, ac_sessions, ac_opens, ac_layouts;
	bool ac_grace;
};

struct admin_ops {
	struct ns *ao_ns;
	struct dsc *ao_dsc;
	struct lo *ao_lo;
	void (*ao_counts)(void *arg, struct admin_counts *out);
	struct exp_set *ao_exports;
	/* The exports' file again; 0, or a negative errno and one line in err. */
	int (*ao_reload)(void *arg, char *err, size_t errlen);
	void *ao_arg;
	struct mds *ao_mds;
};

struct admin;
/* addr: as http_start. ops is copied. On failure a negative errno and one line in err. */
int admin_start(struct admin **out, const char *addr, const char *token,
		const struct admin_ops *ops, char *err, size_t errlen);
/* Before the store is closed: a handler may be waiting for a mutation. The loops may have stopped.
 */
void admin_stop(struct admin *a);
#endif
