/* SPDX-License-Identifier: Apache-2.0 */
/*
 * admin.h - the administrator's HTTP API of the metadata server (common/http.h), on mds.admin,
 * beside GET /metrics. Replies are JSON. "As GET" means that the reply is that of the GET of the
 * same path.
 *
 *   GET    /v1/health
 *          {"status":"ok"}, with "ds" what is wrong with data servers, by name;
 *          {"status":"waiting","why"} while nothing is served; {"status":"stopping"}. Also "health"
 *          and "reasons" (docs/health.md). 503 unless the status is ok; with ready also in grace
 *   GET    /v1/status
 *          counts of servers, clients, space, commits
 *
 *   GET    /v1/ds
 *          {"ds":[...]}: every data server that ever joined
 *   GET    /v1/ds/one?ds=DS
 *          one data server, as in GET /v1/ds. Requests that change one server answer in the same
 *          way, except forget and key
 *   POST   /v1/ds?url=nfs3://HOST[:PORT]/PATH
 *          adds an NFSv3 server as a generic data server; body: name=, mount-port=, rdma=, handle=
 *   PUT    /v1/ds/weight?ds=DS, /v1/ds/labels?ds=DS
 *          body: the weight; the labels to set, or KEY= to remove one
 *   PUT    /v1/ds/drain?ds=DS, /v1/ds/undrain?ds=DS
 *          begins to move its objects away; ends that
 *   PUT    /v1/ds/kill?ds=DS
 *          declares it dead until it is admitted
 *   PUT    /v1/ds/admit?ds=DS
 *          lets it join
 *   PUT    /v1/ds/forget?ds=DS&force=1
 *          deletes its record: {"forgotten","files","lost_files","lost":[paths]}. 409 with these if
 *          files have objects there, unless force=1
 *   PUT    /v1/ds/key?ds=DS
 *          makes the key file of a server, known or new: {"name","id","known","number","key"}
 *   GET    /v1/key
 *          the newest cluster key: {"number","rotated_at","behind","servers":[...]}
 *   PUT    /v1/key/rotate
 *          makes a new cluster key; as GET /v1/key
 *
 *   GET    /v1/policy?path=/dir
 *          {"path","policy","inherited"}
 *   PUT    /v1/policy?path=/dir
 *          body: the policy; empty or "inherit" removes it. As GET
 *   GET    /v1/file?path=/file
 *          the layout map (lo_layout_json)
 *
 *   GET    /v1/exports
 *          the exports in force
 *   PUT    /v1/exports
 *          reads their file again. As GET; 409 if the file is bad: then the old exports stay
 *
 *   GET    /v1/repair?path=/file
 *          repairs under way, and files that wait, with the reason; of one file, or without a path
 *          of all
 *   PUT    /v1/repair?path=/file
 *          repairs the file now, without waiting for any server. As GET
 *   PUT    /v1/mirror/add?path=/file&group=G
 *          adds a mirror, on servers with these labels. This and the next two: as GET /v1/repair
 *   PUT    /v1/mirror/remove?path=/file&mirror=N
 *          removes a mirror
 *   PUT    /v1/move?path=/file&group=G&policy=P&from=DS&cancel=1
 *          moves objects to such servers, or away from that one; cancel: ends that
 *   GET    /v1/restripe?path=/file
 *          files that are being restriped, or wait for it; of one file, or without a path of all
 *   PUT    /v1/restripe?path=/file&stripes=N&unit=U
 *          gives the file other stripes or another stripe unit. As GET
 *
 *   GET    /v1/jobs?kind=K&path=/f&limit=N
 *          what runs or waits, and the jobs that ended last, the newest first:
 *          {"jobs":[...],"more","finished":[...]}. A job: {"id","kind","state","path","inode",
 *          "ds","resumes","cancellable","begun_at","ended_at","phase","done_bytes","total_bytes",
 *          "done_objects","total_objects","done_files","total_files","rate_bytes_s","eta_s",
 *          "waits_for","error","result"}; null is unknown. state: waiting, running, cancelling,
 *          done, failed, cancelled. Requests that begin work answer with "job", its id
 *   GET    /v1/jobs?ids=N,N
 *          {"jobs":[...]}: these, as far as they are known; at most 256
 *   GET    /v1/jobs/one?id=N
 *          one job
 *   DELETE /v1/jobs?id=N
 *          cancels it. As GET /v1/jobs/one; 409: why it cannot be cancelled
 *
 *   GET    /v1/pins
 *          {"pins":[{"id","path","inode","group","warm","recursive","state","made_at","ends_at",
 *          "copies","copies_bytes","total_files","total_bytes","without_copy","waits_for",
 *          "job"}]}. state: counting, copying, held, ending
 *   PUT    /v1/pins?path=/f&group=G&for_s=N&recursive=1&warm=1
 *          pins a path (docs/pin.md). As GET, with that pin alone
 *   DELETE /v1/pins?path=/f&group=G, ?id=N
 *          ends its pins; the copies go. As GET, with that pin
 *
 *   GET    /v1/balance
 *          the last balance run, or the one under way
 *   PUT    /v1/balance?dry=1&files=N&bytes=B&rate=R&spread=P
 *          begins one. As GET; 409: another one is under way. DELETE ends it
 *   GET    /v1/advise
 *          in words which data servers and directories are behind or hot, and what moves
 *
 *   PUT    /v1/verify?path=/dir&recursive=1&mend=1&keep=N
 *          compares copies. As GET /v1/verify: progress and differences. DELETE ends it
 *   PUT    /v1/choose?path=/file&mirror=N&force=1
 *          declares that mirror good, and repair makes the others again; without mirror shows what
 *          each copy has. As GET /v1/choose; 409: why not
 *   PUT    /v1/scrub?content=1&dry=1&newer=1
 *          checks what the data servers have (docs/scrub.md). As GET /v1/scrub: progress, and with
 *          findings=1 the findings. DELETE ends it
 *
 *   GET    /v1/tokens
 *          {"tokens":[{"name","role","made_at","ends_at","last_used_at"}]}
 *   POST   /v1/tokens?role=R&name=N&days=D
 *          makes a token: one of the above, and its text as "token", which is shown only here
 *   DELETE /v1/tokens?name=N
 *          revokes it. As GET
 *
 *   GET    /v1/clients?client=C
 *          all clients, or one: {"known","lease_s","clients":[...]}. C: number, name, address or
 *          clientid
 *   DELETE /v1/clients?client=C
 *          evicts it as if its lease had run out. This is done when the client is no longer listed
 *
 *   GET    /v1/layouts?path=/f&client=C&ds=D
 *          layouts that are out, by any of these: {"known","recalled","layouts":[...]}
 *   PUT    /v1/layouts/recall?path=/f
 *          recalls them, and fences those that are still out at the deadline. Answers when the
 *          recalls are sent: as GET, with "asked": how many
 *
 *   GET    /v1/orders?ds=D&last=N
 *          orders to data servers that are not done, the oldest first, N at most: {"known",
 *          "orders":[{"number","ds","ds_number","what","inode","path","stripe","mirror","client",
 *          "age_s","tries","error"}]}; known: how many there are, of all servers.
 *          error: of the last try
 *
 *   GET    /v1/find?path=/d&ds=D&stale=1&lost=1&degraded=1&policy=P&cursor=X
 *          files below a path that have all of these: {"found":[...],"looked","too_deep","cursor"}.
 *          The search is over when the cursor is null
 *   GET    /v1/find?path=/&count=1&cursor=X
 *          how many there are: {"files","lost","degraded","too_deep","cursor"}
 *   GET    /v1/xattr?path=/f&name=N
 *          extended attributes, one or all:
 *          {"path","xattrs":[{"name","size","virtual","text" or "hex"}]}
 *   PUT    /v1/xattr?path=/f&name=N&encoding=hex
 *          body: the value; DELETE removes it. Both recall delegations first. As GET
 *   GET    /v1/top?rows=N&path=/d
 *          the busiest now: {"half_life","tags","clients","servers","exports","directories"}. path:
 *          directories are this one by itself, and those in it with all that is below them
 *   GET    /v1/tags?name=N
 *          compute jobs (docs/tags.md): {"tags":[{"name","made_at","since_at","operations",
 *          "read_bytes","written_bytes","known","clients":[{"client","known"}]}]}
 *   PUT    /v1/tags?name=N
 *          names the clients of the body, one a line. As GET with that tag; 409: another has one
 *   DELETE /v1/tags?name=N&client=C
 *          takes that client out, or without client all of them. As GET with that tag
 *   GET    /v1/heat?path=/d&rows=N
 *          the busiest lately: {"half_life","directories","files"}
 *   GET    /v1/events?after=SEQ&since=SECONDS&kind=K&last=N
 *          the journal, the oldest first: {"events":[...],"next","more"}; the next request
 *          has next as its after. last: only the N newest
 *   GET    /v1/config?key=K
 *          the keys of the configuration, or one: {"file","keys":[{"key","value","default","from",
 *          "live","next_start"}]}. from: default, file, option or set; next_start: what the file
 *          has said since the last SIGHUP, if that waits for the next start
 *   PUT    /v1/config?key=K&value=V
 *          changes a live key until the server starts again or reads its file. As GET; 409: the
 *          key is not live
 *   GET    /v1/trace?id=T.N&client=ADDRESS&inode=N&last=N&after=NEXT
 *          what was done for the newest requests, step by step (docs/tracing.md):
 *          {"requests":[{"request","client","began_at","us","whole","events"}],"next",
 *          "restarted","left_out","kept"}. after: only requests that were answered later; the
 *          next request has next as its after. restarted: after is of an earlier run
 *
 *   GET    /v1/dir?path=/d&limit=N&after=COOKIE
 *          what is there, and the names in a directory, in no order: {"path","type","entries":
 *          [{"name","encoded","type","inode","size_bytes"}],"next"}. encoded: the name for a URL;
 *          next: after= for the rest, null: this is all
 *
 *   GET    /v1/session
 *          who asks, and with which role: {"who","role","session","ends_at"}
 *   POST   /v1/session
 *          body: a token. Makes a session of a browser: as GET, with "csrf", and a cookie. 429:
 *          too many wrong tokens from this address
 *   DELETE /v1/session
 *          ends the session of the request. As GET
 *
 *   A session (docs/console.md) needs its cookie and "csrf" in the header X-Weft-CSRF of each
 *   request.
 *
 * Errors: {"error":"one line"} with 400 (the request makes no sense), 404 (no such path), 409
 * (valid, but impossible now), 500, 503 (the server is stopping).
 *
 * Handlers run on the HTTP thread. They read by snapshots of their own; for a change they wait for
 * a mutation. No loop waits for them.
 */
#ifndef MDS_ADMIN_H
#define MDS_ADMIN_H
#include "mds/dataserver/ds_reg.h"
#include "mds/export/export_table.h"
#include "mds/layout/lo.h"
#include "mds/namespace/ns.h"

struct mds;
/* What only the state tables know; filled on the HTTP thread, under their locks. */
struct admin_counts {
	/* ac_opens: with delegations. ac_locks: ranges. ac_courteous: of the clients, past their
	 * lease. */
	uint64_t ac_clients, ac_sessions, ac_opens, ac_layouts, ac_locks, ac_delegs, ac_courteous;
	bool ac_grace;
};

/* mds.near_full and mds.full in percent; mds.orders_late; mds.backup_age, 0: not looked at. */
struct admin_health_opts {
	unsigned ah_near_full, ah_full;
	uint64_t ah_orders_ms;
	int64_t ah_backup_s;
};

struct admin_ops {
	struct ns *ao_ns;
	struct ds_reg *ao_dsc;
	struct lo *ao_lo;
	void (*ao_counts)(void *arg, struct admin_counts *out);
	struct exp_set *ao_exports;
	/* Reloads the exports' file. 0 and the number of the pass that ends what they no longer
	 * grant (mds/jobs/revoke_exports.h), or -errno and one line in err. */
	int (*ao_reload)(void *arg, uint64_t *pass, char *err, size_t errlen);
	void *ao_arg;
	struct live *ao_live; /* the keys that change while the server runs */
	struct mds *ao_mds;
	const char *ao_store;	    /* the store's folder; NULL: none */
	struct rpc_tls_ctx *ao_tls; /* may be NULL */
	struct admin_health_opts ao_health;
	const char *ao_console;	      /* mds.console */
	uint64_t ao_console_login_ms; /* mds.console_login */
};

struct admin;
struct http_opts;
/* Checks a value of mds.console. 0, or -errno and one line in err. */
int admin_console_check(const char *where, char *err, size_t errlen);
/* Starts the API, and makes the metrics that it knows. opts: as for http_start, without
 * ho_token_look and ho_audit. ops is copied; its strings must outlive it. 0, or
 * -errno and one line in err. */
int admin_start(struct admin **out, const struct http_opts *opts, const struct admin_ops *ops,
		char *err, size_t errlen);
/* Reads the certificate of https:// again. */
void admin_reload(struct admin *a);
/* Starts the port for monitoring (common/scrape.h). Returns as admin_start. */
int admin_open_metrics(struct admin *a, const char *addr, char *err, size_t errlen);
/* Call it before the store is closed, because a handler may be waiting for a mutation. The loops
 * may have stopped. */
void admin_stop(struct admin *a);
#endif
