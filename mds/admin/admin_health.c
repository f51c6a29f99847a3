/* SPDX-License-Identifier: Apache-2.0 */
/* admin_health.c - see admin_health.h. One table has all reasons; tests/unit/health.sh compares it
 * with the table in docs/health.md. */
#include "mds/admin/admin_health.h"
#include "mds/admin/admin_holders.h"
#include "base/clock.h"
#include "base/metrics.h"
#include "common/version.h"
#include "kv/kv_redo.h"
#include "mds/jobs/damage.h"
#include "mds/jobs/repair.h"
#include "mds/jobs/scrub.h"
#include "mds/member.h"
#include "mds/namespace/ns_sum.h"
#include "mds/state/st_view.h"
#include "proto/rpc_tls.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>

#define NAMED	       3u /* servers that a text names */
#define FAILS_MANY     2u /* failures of one repair in a row */
#define CERT_DAYS      14
#define DAY_S	       INT64_C(86400)
#define STORE_ROOM_LOW (UINT64_C(256) << 20) /* bytes that the store's file system has free */
#define STORE_ROOM_END (UINT64_C(64) << 20)
#define ANSWER_MS      200u /* for so long an answer is good for the next request */
#define METRICS_MS     1000u

enum severity { HEALTH_INFO, HEALTH_WARN, HEALTH_ERROR };

/* What is true of a server: a bit each. */
enum {
	SV_DEAD = 1,
	SV_SUSPECT = 2,
	SV_WAITING = 4,
	SV_KILLED = 8,
	SV_NOT_JOINED = 16,
	SV_DRAINING = 32,
	SV_NEAR_FULL = 64,
	SV_FULL = 128,
	SV_TROUBLE = 256,
	SV_OLD_ORDERS = 512,
	SV_OTHER_VERSION = 1024,
	SV_ALIVE = 2048
};

/* What one look sees. */
struct look {
	const struct admin_ops *l_ops;
	struct mds *l_m;
	struct ds_reg_server *l_sv;
	unsigned *l_is; /* SV_ bits, by place in l_sv */
	unsigned l_n;
	bool l_serves, l_held;
	char l_why[320]; /* why it does not */
	struct admin_counts l_counts;
	/* of the table of repairs */
	uint64_t l_rows, l_stale, l_degraded, l_lost, l_failing;
	bool l_more; /* not all rows were examined */
	struct kv_txn *l_txn;
	struct job_damage_view l_damage;
	struct job_scrub_state l_scrub;
	unsigned l_exports, l_served, l_differed;
	uint64_t l_used, l_room; /* bytes that the metadata store has; by how much it can grow */
	int64_t l_backup_s;	 /* seconds since the last backup; -1: there was none */
	int l_backup_log;	 /* why there is no log for backups (-errno); 0: nothing is wrong */
	int64_t l_cert_s;	 /* seconds until the certificate ends */
	bool l_cert;
	struct member_view l_member;
	struct kv_redo_state l_log;
};

/* A reason that is found. */
struct found {
	uint64_t f_count;
	bool f_more; /* f_count or more */
	char f_text[HEALTH_TEXT];
};

struct reason {
	const char *r_code;
	enum severity r_severity;
	/* Fills f's text, and returns the count; 0: the reason is not there. */
	uint64_t (*r_look)(const struct look *l, const struct reason *r, struct found *f);
	unsigned r_bits; /* for server_look */
	const char *r_text;
	const char *r_hint;
};

/* ---- the reasons ---- */

/* r_text, and the names of the servers that have the bits. */
static uint64_t server_look(const struct look *l, const struct reason *r, struct found *f)
{
	size_t n = (size_t)snprintf(f->f_text, sizeof(f->f_text), "%s: ", r->r_text);
	uint64_t count = 0;

	for (unsigned i = 0; i < l->l_n; i++) {
		if ((l->l_is[i] & r->r_bits) != r->r_bits || count++ >= NAMED)
			continue;
		n += (size_t)snprintf(f->f_text + n, sizeof(f->f_text) - n, "%s%s",
				      count > 1 ? ", " : "", l->l_sv[i].sv_name);
	}
	if (count > NAMED)
		snprintf(f->f_text + n, sizeof(f->f_text) - n, " and %" PRIu64 " more",
			 count - NAMED);
	return count;
}

static uint64_t look_not_serving(const struct look *l, const struct reason *r, struct found *f)
{
	snprintf(f->f_text, sizeof(f->f_text), "%s: %s", r->r_text, l->l_why);
	return !l->l_serves;
}

static uint64_t look_standby_none(const struct look *l, const struct reason *r, struct found *f)
{
	snprintf(f->f_text, sizeof(f->f_text), "%s",
		 l->l_member.mv_old ? "PostgreSQL does not say which standbys follow" : r->r_text);
	return l->l_member.mv_on && !l->l_member.mv_standbys;
}

static uint64_t look_away(const struct look *l, const struct reason *r, struct found *f)
{
	snprintf(f->f_text, sizeof(f->f_text), "%s: %s", r->r_text, l->l_member.mv_preferred);
	return l->l_member.mv_on && *l->l_member.mv_preferred;
}

static uint64_t look_standby_lags(const struct look *l, const struct reason *r, struct found *f)
{
	const struct member_view *v = &l->l_member;

	snprintf(f->f_text, sizeof(f->f_text), "%s: %s, by %.0f s", r->r_text, v->mv_worst,
		 v->mv_worst_s);
	return v->mv_on && v->mv_standbys && v->mv_worst_s > MEMBER_LAGS_S;
}

static uint64_t look_grace(const struct look *l, const struct reason *r, struct found *f)
{
	snprintf(f->f_text, sizeof(f->f_text), "%s", r->r_text);
	return l->l_serves && l->l_counts.ac_grace;
}

static uint64_t look_none(const struct look *l, const struct reason *r, struct found *f)
{
	snprintf(f->f_text, sizeof(f->f_text), "%s", r->r_text);
	for (unsigned i = 0; i < l->l_n; i++)
		if (l->l_is[i] & SV_ALIVE)
			return 0;
	return 1;
}

static uint64_t files_text(const struct reason *r, struct found *f, uint64_t n, bool more,
			   const char *after)
{
	f->f_more = more;
	snprintf(f->f_text, sizeof(f->f_text), "%" PRIu64 "%s %s%s", n, more ? " or more" : "",
		 r->r_text, after);
	return n;
}

static uint64_t rows_text(const struct look *l, const struct reason *r, struct found *f, uint64_t n)
{
	return files_text(r, f, n, n && l->l_more, "");
}

/* While a server is dead, the table of repairs has only a part of these files. */
static uint64_t files_look(const struct look *l, const struct reason *r, struct found *f,
			   uint64_t rows, uint64_t counted)
{
	char after[100] = "";

	if (!l->l_damage.dg_dead || (l->l_damage.dg_whole && counted < rows))
		return rows_text(l, r, f, rows);
	if (counted < rows)
		counted = rows;
	if (!l->l_damage.dg_whole)
		snprintf(after, sizeof(after), " (still counting: %" PRIu64 " files examined)",
			 l->l_damage.dg_looked);
	return files_text(r, f, counted, !l->l_damage.dg_whole, after);
}

static uint64_t look_degraded(const struct look *l, const struct reason *r, struct found *f)
{
	return files_look(l, r, f, l->l_degraded, l->l_damage.dg_degraded);
}

static uint64_t look_lost(const struct look *l, const struct reason *r, struct found *f)
{
	return files_look(l, r, f, l->l_lost, l->l_damage.dg_lost);
}

static uint64_t look_stale(const struct look *l, const struct reason *r, struct found *f)
{
	return rows_text(l, r, f, l->l_stale);
}

static uint64_t look_failing(const struct look *l, const struct reason *r, struct found *f)
{
	return rows_text(l, r, f, l->l_failing);
}

static uint64_t look_scrub(const struct look *l, const struct reason *r, struct found *f)
{
	static const enum job_scrub_kind damage[] = {
		JOB_SCRUB_NOT_YET, JOB_SCRUB_MISSING,	 JOB_SCRUB_LOST, JOB_SCRUB_SIZE,
		JOB_SCRUB_DIFFERS, JOB_SCRUB_UNREADABLE, JOB_SCRUB_CUT,	 JOB_SCRUB_DAMAGED};
	uint64_t n = 0;

	for (size_t i = 0; i < sizeof(damage) / sizeof(damage[0]); i++)
		n += l->l_scrub.ss_counts[damage[i]];
	snprintf(f->f_text, sizeof(f->f_text), "%s: %" PRIu64 " findings", r->r_text, n);
	return n;
}

static uint64_t look_exports_none(const struct look *l, const struct reason *r, struct found *f)
{
	snprintf(f->f_text, sizeof(f->f_text), "%s", r->r_text);
	return !l->l_served;
}

static uint64_t look_exports_missing(const struct look *l, const struct reason *r, struct found *f)
{
	snprintf(f->f_text, sizeof(f->f_text), "%u of %u exports %s", l->l_exports - l->l_served,
		 l->l_exports, r->r_text);
	return l->l_served ? l->l_exports - l->l_served : 0;
}

static uint64_t look_exports_differ(const struct look *l, const struct reason *r, struct found *f)
{
	snprintf(f->f_text, sizeof(f->f_text), "%u exports %s", l->l_differed, r->r_text);
	return l->l_differed;
}

static uint64_t look_courteous(const struct look *l, const struct reason *r, struct found *f)
{
	snprintf(f->f_text, sizeof(f->f_text), "%" PRIu64 " %s", l->l_counts.ac_courteous,
		 r->r_text);
	return l->l_counts.ac_courteous;
}

/* 0: there is room; 1: it is scarce; 2: it is at its end. */
static unsigned store_level(const struct look *l)
{
	const struct admin_health_opts *o = &l->l_ops->ao_health;
	uint64_t whole = l->l_used + l->l_room;

	if (l->l_room < STORE_ROOM_END || (double)l->l_used * 100 > (double)whole * o->ah_full)
		return 2;
	return l->l_room < STORE_ROOM_LOW ||
	       (double)l->l_used * 100 > (double)whole * o->ah_near_full;
}

static uint64_t store_text(const struct look *l, const struct reason *r, struct found *f)
{
	snprintf(f->f_text, sizeof(f->f_text),
		 "%s: it has %" PRIu64 " MiB and can grow by %" PRIu64 " MiB", r->r_text,
		 l->l_used >> 20, l->l_room >> 20);
	return 1;
}

static uint64_t look_store_near(const struct look *l, const struct reason *r, struct found *f)
{
	return store_level(l) == 1 ? store_text(l, r, f) : 0;
}

static uint64_t look_store_full(const struct look *l, const struct reason *r, struct found *f)
{
	return store_level(l) == 2 ? store_text(l, r, f) : 0;
}

static uint64_t look_backup(const struct look *l, const struct reason *r, struct found *f)
{
	int64_t most = l->l_ops->ao_health.ah_backup_s;

	if (l->l_backup_s < 0)
		snprintf(f->f_text, sizeof(f->f_text), "no backup was made");
	else
		snprintf(f->f_text, sizeof(f->f_text), "%s: it was made %" PRId64 " hours ago",
			 r->r_text, l->l_backup_s / 3600);
	return most && (l->l_backup_s < 0 || l->l_backup_s > most);
}

static uint64_t look_backup_log(const struct look *l, const struct reason *r, struct found *f)
{
	snprintf(f->f_text, sizeof(f->f_text), "%s: %s", r->r_text, strerror(-l->l_backup_log));
	return l->l_backup_log != 0;
}

static uint64_t look_log_away(const struct look *l, const struct reason *r, struct found *f)
{
	snprintf(f->f_text, sizeof(f->f_text), "%s%s%s", r->r_text, *l->l_log.rs_why ? ": " : "",
		 l->l_log.rs_why);
	return !l->l_log.rs_up;
}

static uint64_t look_sums(const struct look *l, const struct reason *r, struct found *f)
{
	(void)l;
	snprintf(f->f_text, sizeof(f->f_text), "%s", r->r_text);
	return ns_sum_damage() != 0;
}

static uint64_t look_cert_ends(const struct look *l, const struct reason *r, struct found *f)
{
	snprintf(f->f_text, sizeof(f->f_text), "%s in %" PRId64 " days", r->r_text,
		 l->l_cert_s / DAY_S);
	return l->l_cert && l->l_cert_s >= 0 && l->l_cert_s < CERT_DAYS * DAY_S;
}

static uint64_t look_cert_over(const struct look *l, const struct reason *r, struct found *f)
{
	snprintf(f->f_text, sizeof(f->f_text), "%s", r->r_text);
	return l->l_cert && l->l_cert_s < 0;
}

/* clang-format off */
static const struct reason reasons[] = {
	{"not-serving", HEALTH_ERROR, look_not_serving, 0, "nothing is served yet",
	 "start the data servers; docs/recovery.md"},
	{"ds-none", HEALTH_ERROR, look_none, 0, "no data server is alive",
	 "start weft-ds; weft ds list"},
	{"files-lost", HEALTH_ERROR, look_lost, 0,
	 "files have data of which no good copy can be reached",
	 "start the dead data servers again; weft find / --lost"},
	{"ds-full", HEALTH_ERROR, server_look, SV_FULL, "data servers that are full",
	 "delete files, add data servers, or weft balance"},
	{"ds-trouble", HEALTH_ERROR, server_look, SV_TROUBLE, "data servers with a wrong store",
	 "weft ds list says why, and what to do"},
	{"store-full", HEALTH_ERROR, look_store_full, 0, "the metadata store is full",
	 "free room on the file system of mds.store"},
	{"tls-cert-over", HEALTH_ERROR, look_cert_over, 0, "the TLS certificate has expired",
	 "renew the file of mds.tls_cert; systemctl reload weft-mds"},
	{"exports-none", HEALTH_ERROR, look_exports_none, 0, "no export is served",
	 "weft exports; make the directory; weft exports reload"},
	{"log-away", HEALTH_ERROR, look_log_away, 0,
	 "the log of the store takes no changes: they wait",
	 "look at PostgreSQL; docs/ha.md"},
	{"ds-dead", HEALTH_WARN, server_look, SV_DEAD, "data servers that are dead",
	 "start weft-ds there; if it is gone for good, weft ds kill DS"},
	{"ds-not-joined", HEALTH_WARN, server_look, SV_NOT_JOINED,
	 "data servers that have not joined since weft-mds started",
	 "start weft-ds there; its log says why it does not join"},
	{"ds-suspect", HEALTH_WARN, server_look, SV_SUSPECT, "data servers that are silent",
	 "weft ds list; look at that machine and its network"},
	{"ds-killed", HEALTH_WARN, server_look, SV_KILLED, "data servers that were killed",
	 "weft ds admit DS, or weft ds forget DS"},
	{"ds-waiting", HEALTH_WARN, server_look, SV_WAITING,
	 "data servers that wait to be admitted", "weft ds admit DS"},
	{"ds-near-full", HEALTH_WARN, server_look, SV_NEAR_FULL,
	 "data servers that are nearly full", "delete files, add data servers, or weft balance"},
	{"ds-versions", HEALTH_WARN, server_look, SV_OTHER_VERSION,
	 "data servers of another version than weft-mds", "upgrade them; weft ds list --json"},
	{"files-degraded", HEALTH_WARN, look_degraded, 0,
	 "files have fewer good copies than they should",
	 "weft mirror status; weft find / --degraded"},
	{"files-stale", HEALTH_WARN, look_stale, 0, "files have copies that are not in sync",
	 "weft mirror status says what each waits for"},
	{"repair-failing", HEALTH_WARN, look_failing, 0,
	 "files whose repair failed several times", "weft mirror status says why"},
	{"orders-late", HEALTH_WARN, server_look, SV_OLD_ORDERS,
	 "data servers with orders that have waited for long", "weft ds list; the log of weft-mds"},
	{"store-near-full", HEALTH_WARN, look_store_near, 0, "the metadata store is nearly full",
	 "free room on the file system of mds.store"},
	{"tls-cert-ends", HEALTH_WARN, look_cert_ends, 0, "the TLS certificate ends",
	 "renew the file of mds.tls_cert; systemctl reload weft-mds"},
	{"exports-missing", HEALTH_WARN, look_exports_missing, 0,
	 "are not served: their directories do not exist",
	 "weft exports; make the directory; weft exports reload"},
	{"backup-late", HEALTH_WARN, look_backup, 0, "the last backup is old",
	 "weft backup FOLDER; docs/backup.md"},
	{"backup-log", HEALTH_WARN, look_backup_log, 0,
	 "the log for incremental backups cannot be written",
	 "free room on the file system of mds.store; then a full weft backup"},
	{"scrub-damage", HEALTH_WARN, look_scrub, 0, "the last scrub found damage",
	 "weft scrub --status; after mending, weft scrub"},
	{"sums-damaged", HEALTH_WARN, look_sums, 0,
	 "sums of directories or users are damaged: weft du does not know all",
	 "stop weft-mds; weft-fsck --rebuild-sums STORE; start it"},
	{"clients-courteous", HEALTH_WARN, look_courteous, 0,
	 "clients are past their lease and keep their locks",
	 "weft client list; weft client evict C"},
	{"in-grace", HEALTH_WARN, look_grace, 0, "in grace: clients reclaim, new opens wait",
	 "wait; it ends by itself"},
	{"standby-none", HEALTH_WARN, look_standby_none, 0,
	 "no standby follows: a failure of this machine ends the service",
	 "weft instance list; start weft-mds on another node"},
	{"standby-lags", HEALTH_WARN, look_standby_lags, 0, "a standby is behind",
	 "weft instance list; look at that machine and its way to PostgreSQL"},
	{"instance-away", HEALTH_INFO, look_away, 0, "this instance prefers another node",
	 "weft instance move INSTANCE --home"},
	{"ds-draining", HEALTH_INFO, server_look, SV_DRAINING,
	 "data servers that are being drained", "weft ds list"},
	{"exports-differ", HEALTH_INFO, look_exports_differ, 0,
	 "are not as they were in force before this start",
	 "weft status --json on the nodes: exports_hash; weft exports reload accepts them"},
};
/* clang-format on */
#define REASONS (sizeof(reasons) / sizeof(reasons[0]))

/* ---- a look ---- */

static unsigned percent_full(uint64_t capacity, uint64_t available)
{
	if (!capacity || available > capacity)
		return 0;
	return (unsigned)((double)(capacity - available) * 100 / (double)capacity);
}

const char *admin_health_space(const struct admin_ops *ops, uint64_t capacity, uint64_t available)
{
	unsigned full = percent_full(capacity, available);

	return full >= ops->ao_health.ah_full	     ? "full"
	       : full >= ops->ao_health.ah_near_full ? "near-full"
						     : "ok";
}

static unsigned space_bits(const struct look *l, const struct ds_reg_server *sv)
{
	const char *space = admin_health_space(l->l_ops, sv->sv_capacity, sv->sv_available);

	return !sv->sv_alive || !strcmp(space, "ok") ? 0
	       : !strcmp(space, "full")		     ? SV_FULL
						     : SV_NEAR_FULL;
}

static unsigned state_bits(const struct ds_reg_server *sv, const struct ds_reg_terms *dt,
			   uint64_t boot)
{
	bool here = sv->sv_nfs3 || dt->dt_boot >= boot;

	switch (sv->sv_state) {
	case DS_REG_KILLED:
		return SV_KILLED;
	case DS_REG_WAITING:
		return SV_WAITING;
	case DS_REG_DEAD:
		return here ? SV_DEAD : SV_NOT_JOINED;
	case DS_REG_SUSPECT:
		return here ? SV_SUSPECT : SV_NOT_JOINED;
	default:
		return here ? 0 : SV_NOT_JOINED;
	}
}

static unsigned server_bits(const struct look *l, const struct ds_reg_server *sv)
{
	struct ds_reg *d = l->l_ops->ao_dsc;
	struct ds_reg_terms dt = {0};
	char why[160];
	unsigned is;

	ds_reg_terms(d, sv->sv_id, &dt);
	is = state_bits(sv, &dt, ns_super(l->l_ops->ao_ns)->su_boot) | space_bits(l, sv);
	is |= sv->sv_alive ? SV_ALIVE : 0;
	is |= dt.dt_draining ? SV_DRAINING : 0;
	is |= ds_reg_health_text(d, sv->sv_id, why, sizeof(why)) ? SV_TROUBLE : 0;
	if (lo_orders_age(l->l_ops->ao_lo, sv->sv_id) > l->l_ops->ao_health.ah_orders_ms)
		is |= SV_OLD_ORDERS;
	if (sv->sv_alive && *dt.dt_version && strcmp(dt.dt_version, version_text))
		is |= SV_OTHER_VERSION;
	return is;
}

/* Objects that repair has to make again, as in the list of `weft mirror status`. */
static bool has_stale(const struct lo_map *map)
{
	for (unsigned k = 0; k < lo_objects(map); k++)
		if (map->lm_obj[k].ob_state != LO_IN_SYNC && map->lm_obj[k].ob_state != LO_ABSENT &&
		    !map->lm_obj[k].ob_leaving &&
		    !(map->lm_pending_mirror && k >= lo_objects(map) - map->lm_stripes))
			return true;
	return false;
}

static int look_row(void *arg, uint64_t ino, const struct lo_repair *row)
{
	struct look *l = arg;
	enum lo_condition c;
	struct ns_inode i;
	struct lo_map map;

	if (l->l_rows == HEALTH_ROWS || l->l_degraded + l->l_lost >= HEALTH_FILES) {
		l->l_more = true;
		return 1;
	}
	l->l_rows++;
	l->l_failing += row->rr_fails >= FAILS_MANY;
	if (ns_get(l->l_ops->ao_ns, l->l_txn, ino, &i) || lo_map_decode(i.i_blob, &map))
		return 0;
	c = lo_map_condition(l->l_ops->ao_lo, &map);
	l->l_stale += has_stale(&map);
	l->l_degraded += c == LO_DEGRADED;
	l->l_lost += c == LO_LOST;
	return 0;
}

/* What weft backup notes in the store's folder. */
static void look_last_backup(struct look *l, const char *store)
{
	char file[4096];
	json_t *j;
	int64_t at;

	l->l_backup_s = -1;
	if (!l->l_ops->ao_health.ah_backup_s ||
	    snprintf(file, sizeof(file), "%s/last-backup", store) >= (int)sizeof(file))
		return;
	j = json_load_file(file, 0, NULL);
	at = (int64_t)json_integer_value(json_object_get(j, "made_at"));
	json_decref(j);
	if (at > 0)
		l->l_backup_s = time(NULL) > at ? time(NULL) - at : 0;
}

static void look_store(struct look *l)
{
	const char *path = l->l_ops->ao_store;
	struct statvfs sv;
	struct kv_stats ks;

	look_last_backup(l, path ? path : "");

	kv_stats(ns_kv(l->l_ops->ao_ns), &ks);
	l->l_used = ks.ks_bytes_used;
	l->l_backup_log = ks.ks_archive_err;
	l->l_room = ks.ks_map_bytes > ks.ks_bytes_used ? ks.ks_map_bytes - ks.ks_bytes_used : 0;
	if (path && !statvfs(path, &sv) && (uint64_t)sv.f_bavail * sv.f_frsize < l->l_room)
		l->l_room = (uint64_t)sv.f_bavail * sv.f_frsize;
	/* What cannot be read is not counted as nothing: the counts are shown as incomplete. */
	if (kv_read_begin(ns_kv(l->l_ops->ao_ns), &l->l_txn)) {
		l->l_more = true;
		return;
	}
	if (lo_repairs(l->l_txn, 1, look_row, l) < 0)
		l->l_more = true;
	kv_read_end(l->l_txn);
}

static void look_exports(struct look *l)
{
	struct exp_table *t = export_set_get(l->l_ops->ao_exports);

	l->l_exports = t->xt_n;
	l->l_differed = export_set_differed(l->l_ops->ao_exports);
	for (unsigned i = 0; i < t->xt_n; i++)
		l->l_served += t->xt_exp[i].e_root != 0;
	exp_put(t);
}

/* False: no memory. */
static bool look_all(struct look *l, const struct admin_ops *ops)
{
	int64_t end = rpc_tls_cert_end(ops->ao_tls);

	*l = (struct look){.l_ops = ops, .l_m = ops->ao_mds};
	l->l_sv = calloc(DS_REG_MAX, sizeof(*l->l_sv));
	l->l_is = calloc(DS_REG_MAX, sizeof(*l->l_is));
	if (!l->l_sv || !l->l_is)
		return false;
	l->l_held = true;
	l->l_serves = ds_reg_may_serve(ops->ao_dsc, l->l_why, sizeof(l->l_why));
	l->l_n = ds_reg_list(ops->ao_dsc, l->l_sv, DS_REG_MAX);
	for (unsigned i = 0; i < l->l_n; i++)
		l->l_is[i] = server_bits(l, &l->l_sv[i]);
	ops->ao_counts(ops->ao_arg, &l->l_counts);
	look_store(l);
	job_damage_look(l->l_m, &l->l_damage);
	job_scrub_look(l->l_m, &l->l_scrub);
	look_exports(l);
	member_look(&l->l_member);
	kv_redo_state(l->l_m->m_kv, &l->l_log);
	l->l_cert = end != 0;
	l->l_cert_s = end - (int64_t)time(NULL);
	/* After the look: what it saw may be another instance's business by now. */
	if (store_lease_live(&l->l_m->m_store_lease))
		return true;
	l->l_held = l->l_serves = false;
	snprintf(l->l_why, sizeof(l->l_why),
		 "this instance does not hold its store now, and lets requests wait");
	return true;
}

/* ---- the newest answer ---- */

static struct {
	pthread_mutex_t hl_lock;
	bool hl_open;
	struct admin_ops hl_ops;
	uint64_t hl_at_ms; /* when the rest was found; 0: not yet */
	struct found hl_found[REASONS];
	enum severity hl_status;
	bool hl_serves, hl_grace, hl_held;
	char hl_why[320];
	uint64_t hl_rows;
} health = {.hl_lock = PTHREAD_MUTEX_INITIALIZER};

/* The caller holds hl_lock. False: no memory. */
static bool health_refresh(uint64_t keep_ms)
{
	uint64_t now = clock_mono_ms();
	struct look l;
	bool ok;

	if (health.hl_at_ms && now - health.hl_at_ms < keep_ms &&
	    health.hl_held == store_lease_live(&health.hl_ops.ao_mds->m_store_lease))
		return true;
	ok = look_all(&l, &health.hl_ops);
	health.hl_status = HEALTH_INFO;
	for (size_t i = 0; ok && i < REASONS; i++) {
		struct found *f = &health.hl_found[i];

		*f = (struct found){0};
		if (!l.l_held && reasons[i].r_look != look_not_serving)
			continue;
		f->f_count = reasons[i].r_look(&l, &reasons[i], f);
		if (f->f_count && reasons[i].r_severity > health.hl_status)
			health.hl_status = reasons[i].r_severity;
	}
	if (ok) {
		health.hl_serves = l.l_serves;
		health.hl_held = l.l_held;
		health.hl_grace = l.l_counts.ac_grace;
		memcpy(health.hl_why, l.l_why, sizeof(health.hl_why));
		health.hl_rows = l.l_rows;
		health.hl_at_ms = now;
	}
	free(l.l_sv);
	free(l.l_is);
	return ok;
}

static double health_gauge_status(void *arg)
{
	double status;

	(void)arg;
	pthread_mutex_lock(&health.hl_lock);
	health_refresh(METRICS_MS);
	status = health.hl_status;
	pthread_mutex_unlock(&health.hl_lock);
	return status;
}

static double health_gauge_reason(void *arg)
{
	const struct found *f = arg;
	double found;

	pthread_mutex_lock(&health.hl_lock);
	health_refresh(METRICS_MS);
	found = f->f_count != 0;
	pthread_mutex_unlock(&health.hl_lock);
	return found;
}

/* arg: the code of a reason that counts files */
static double health_gauge_files(void *arg)
{
	double count = 0;

	pthread_mutex_lock(&health.hl_lock);
	health_refresh(METRICS_MS);
	for (size_t i = 0; i < REASONS; i++)
		if (!strcmp(reasons[i].r_code, arg))
			count = (double)health.hl_found[i].f_count;
	pthread_mutex_unlock(&health.hl_lock);
	return count;
}

void admin_health_open(const struct admin_ops *ops)
{
	static char degraded[] = "files-degraded", lost[] = "files-lost";
	char labels[80];

	if (health.hl_open)
		return;
	health.hl_open = true;
	health.hl_ops = *ops;
	metric_gauge("weft_health_status", "The cluster's health: 0 OK, 1 WARN, 2 ERROR.", "",
		     health_gauge_status, NULL);
	metric_gauge("weft_mds_files_degraded",
		     "Files that can be read but lack a copy, as weft health counts them.", "",
		     health_gauge_files, degraded);
	metric_gauge(
		"weft_mds_files_lost",
		"Files that cannot be read: a stripe has no copy left, as weft health counts them.",
		"", health_gauge_files, lost);
	for (size_t i = 0; i < REASONS; i++) {
		snprintf(labels, sizeof(labels), "reason=\"%s\"", reasons[i].r_code);
		metric_gauge("weft_health_reason",
			     "1 while the reason is among those of weft health (docs/health.md).",
			     labels, health_gauge_reason, &health.hl_found[i]);
	}
}

/* ---- GET /v1/health ---- */

static json_t *health_reasons(void)
{
	static const char *const severity[] = {
		[HEALTH_INFO] = "info", [HEALTH_WARN] = "warn", [HEALTH_ERROR] = "error"};
	json_t *list = json_array();

	for (size_t i = 0; i < REASONS; i++) {
		const struct found *f = &health.hl_found[i];

		if (!f->f_count)
			continue;
		json_array_append_new(
			list, json_pack("{s:s, s:s, s:o, s:s, s:I, s:b}", "code", reasons[i].r_code,
					"severity", severity[reasons[i].r_severity], "text",
					admin_text(f->f_text, strlen(f->f_text)), "hint",
					reasons[i].r_hint, "count", (json_int_t)f->f_count,
					"count_is_minimum", f->f_more));
	}
	return list;
}

/* What is wrong with data servers, by name. */
static json_t *health_servers(struct ds_reg *d)
{
	struct ds_reg_server *sv = calloc(DS_REG_MAX, sizeof(*sv));
	unsigned n = sv ? ds_reg_list(d, sv, DS_REG_MAX) : 0;
	json_t *bad = json_object();
	char why[160];

	for (unsigned i = 0; i < n; i++)
		if (ds_reg_health_text(d, sv[i].sv_id, why, sizeof(why)))
			json_object_set_new(bad, sv[i].sv_name, json_string(why));
	free(sv);
	return bad;
}

void admin_get_health(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	static const char *const word[] = {"ok", "warn", "error"};
	struct ds_reg *d = ((struct admin *)arg)->a_ops.ao_dsc;
	json_t *j = json_object(), *bad = health_servers(d);
	bool stops = ds_reg_closed(d), ready;

	pthread_mutex_lock(&health.hl_lock);
	if (!health_refresh(ANSWER_MS)) {
		pthread_mutex_unlock(&health.hl_lock);
		json_decref(bad);
		json_decref(j);
		admin_reply_error(rp, 500, "out of memory");
		return;
	}
	ready = health.hl_serves && !stops && !(http_has(rq, "ready") && health.hl_grace);
	json_object_set_new(j, "status",
			    json_string(stops		   ? "stopping"
					: health.hl_serves ? "ok"
							   : "waiting"));
	if (!health.hl_serves)
		json_object_set_new(j, "why", json_string(health.hl_why));
	if (health.hl_serves && json_object_size(bad))
		json_object_set(j, "ds", bad);
	json_object_set_new(j, "health", json_string(word[health.hl_status]));
	json_object_set_new(j, "reasons", health_reasons());
	json_object_set_new(j, "rows_examined", json_integer((json_int_t)health.hl_rows));
	if (!ready)
		json_object_set_new(j, "error",
				    json_string(stops		   ? "the server is stopping"
						: health.hl_serves ? "the grace period is not over"
								   : health.hl_why));
	pthread_mutex_unlock(&health.hl_lock);
	json_decref(bad);
	admin_reply_json(rp, ready ? 200 : 503, j);
}
