/* SPDX-License-Identifier: Apache-2.0 */
/* weft-mds: the metadata server. Reads its configuration, opens its store, listens, runs its
 * loops. */
#include "base/clock.h"
#include "base/conf.h"
#include "base/crash.h"
#include "base/socket_activation.h"
#include "base/log.h"
#include "base/pool.h"
#include "base/priv.h"
#include "base/process.h"
#include "common/check.h"
#include "common/http.h"
#include "common/scrape.h"
#include "common/trace.h"
#include "common/version.h"
#include "mds/namespace/ns_sum.h"
#include "mds/nfs4/op.h"
#include "mds/nfs4/credentials.h"
#include "mds/nfs4/op_attr.h"
#include "mds/nfs4/op_state.h"
#include "mds/identity.h"
#include "mds/member.h"
#include "mds/mds_addr.h"
#include "mds/mds_gauges.h"
#include "mds/mds_live.h"
#include "mds/mds_log.h"
#include "mds/mds_settings.h"
#include "mds/mds_store.h"
#include "mds/state/st_view.h"
#include "mds/admin/admin.h"
#include "mds/admin/admin_health.h"
#include "mds/journal/event_journal.h"
#include "mds/layout/restore.h"
#include "mds/jobs/access_times.h"
#include "mds/jobs/balance.h"
#include "mds/jobs/damage.h"
#include "mds/jobs/elect.h"
#include "mds/jobs/drain.h"
#include "mds/jobs/pin.h"
#include "mds/jobs/job.h"
#include "mds/jobs/reload_exports.h"
#include "mds/jobs/revoke_exports.h"
#include "mds/jobs/repair.h"
#include "mds/jobs/reply_sweep.h"
#include "mds/jobs/scrub.h"
#include "mds/jobs/tag.h"
#include "mds/jobs/trash.h"
#include "mds/nfs4/state_protect.h"
#include "mds/jobs/restripe.h"
#include "mds/jobs/verify.h"
#include "proto/rpc_rdma.h"
#include "proto/rpc_tls.h"
#include <errno.h>
#include <getopt.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#define RING_ENTRIES 1024
#define TICK_MS	     250
#define TRIM_CLIENTS 1000
#define TRIM_EVERY   8u /* ticks */
#define TRIM_TICKS   80u

static struct mds mds;
static struct ds_reg_opts ds_reg_opts;
static uint8_t cluster_key[32];
static struct ctl_instances instances;
static char admin_token[CHECK_TOKEN_MAX + 1];
static struct http_opts web;
static struct admin *admin;
static struct loop *loops[64];
static unsigned nloops;
/* this process makes a restored store consistent, and serves no client */
static bool restoring;
static struct live *live;    /* the keys that change while this process runs */
static atomic_bool restored; /* every data server has reported what it saw */
static bool failed;	     /* main_fail() */

static void main_usage(bool asked)
{
	fputs("usage: weft-mds [-c FILE] [-o KEY=VALUE]... [--restored[=only]] [--check[=values]]\n"
	      "  -c, --config FILE   configuration file\n"
	      "  -o KEY=VALUE        set a key, overriding the file\n"
	      "      --restored      the store was restored from a backup: make it consistent\n"
	      "                      with the data servers before serving; =only: and exit\n"
	      "      --check         check the configuration and exit\n"
	      "      --version       print the version and exit\n",
	      asked ? stdout : stderr);
	exit(asked ? 0 : 2);
}

/* On the main thread, while no other one uses the store. An instance that this process has goes to
 * one that can serve it. */
static void main_die(const char *what, const char *why)
{
	log_error("%s%s%s", what, why ? ": " : "", why ? why : "");
	mds_log_give_up(&mds);
	exit(1);
}

/* The configuration makes no sense: another start with it would end in the same way. */
static void die_conf(const char *what)
{
	log_error("%s", what);
	exit(2);
}

/* ---- connections ---- */

static void conn_opened(struct rpc_conn *c, void *arg)
{
	(void)arg;
	op_conn_opened(&mds, c);
	mds_addr_opened(c);
}

static void conn_closed(struct rpc_conn *c, void *arg)
{
	(void)arg;
	mds_addr_closed(c);
	op_conn_closed(&mds, c);
	st_conn_gone(mds.m_st, c);
	ds_reg_conn_closed(mds.m_dsc, c);
}

static bool conn_first(struct rpc_conn *c, uint32_t prog, uint32_t proc, struct xdr_in *args,
		       void *arg)
{
	(void)c;
	(void)arg;
	return op_first(&mds, prog, proc, args);
}

static struct rpc_program programs[2];
static struct rpc_service service = {
	.rs_progs = programs,
	.rs_nprogs = 2,
	.rs_max_record = OP_MAX_IO + 128 * 1024,
	.rs_max_reply = OP_MAX_IO + 128 * 1024,
	.rs_opened = conn_opened,
	.rs_closed = conn_closed,
	.rs_first = conn_first,
	.rs_clear_prog = CTL_PROGRAM,
};

/* Checks all addresses before anything is opened. */
static void listen_check(const char *key, const char *list, uint16_t port)
{
	char *copy = strdup(list), *save = NULL, *a = copy ? strtok_r(copy, ", ", &save) : NULL;

	if (!a)
		die_conf(strcmp(key, "mds.rdma") ? "mds.listen: expected an address such as "
						   "10.0.0.1:2049 or [fd00::1]:2049"
						 : "mds.rdma: expected an address");
	for (; a; a = strtok_r(NULL, ", ", &save)) {
		struct sockaddr_storage ss;
		socklen_t len;

		if (rpc_addr_parse(a, port, &ss, &len)) {
			log_error("%s: \"%s\" is not an address; expected one such as "
				  "10.0.0.1:2049 or [fd00::1]:2049",
				  key, a);
			exit(2);
		}
	}
	free(copy);
}

static int listen_one(struct rpc_listener **out, const struct sockaddr *addr, socklen_t len)
{
	int fd = activation_socket(addr, len);

	return fd >= 0 ? rpc_listen_fd(out, loops[0], fd, &service, loops, nloops)
		       : rpc_listen(out, loops[0], addr, len, &service, loops, nloops);
}

static struct rpc_listener **listeners; /* kept until the process ends */
static size_t nlisteners;

static void main_listen_all(const char *list)
{
	char *copy = strdup(list), *save = NULL;

	for (char *a = copy ? strtok_r(copy, ", ", &save) : NULL; a;
	     a = strtok_r(NULL, ", ", &save)) {
		struct rpc_listener **more =
			realloc(listeners, (nlisteners + 1) * sizeof(struct rpc_listener *));
		struct sockaddr_storage ss;
		socklen_t len;
		int err = more ? rpc_addr_parse(a, 2049, &ss, &len) : -ENOMEM;

		if (more)
			listeners = more;
		if (!err)
			err = listen_one(&listeners[nlisteners], (struct sockaddr *)&ss, len);
		if (err) {
			log_error("mds.listen: %s: %s", a, strerror(-err));
			exit(1);
		}
		nlisteners++;
		log_info("NFSv4.1 and 4.2 over TCP on %s", a);
	}
	free(copy);
}

/* mds.rdma is empty, or lists addresses. */
static void main_rdma_check(const struct conf *conf)
{
	if (!*conf_str(conf, "mds.rdma"))
		return;
	listen_check("mds.rdma", conf_str(conf, "mds.rdma"), RPC_RDMA_PORT);
	if (conf_size(conf, "mds.pool") < RPC_RDMA_POOL)
		die_conf("mds.pool: RDMA needs at least 16 MiB");
}

static int listen_rdma(const struct conf *conf)
{
	struct rpc_rdma_opts opts = {.ro_loops = loops, .ro_nloops = nloops};
	char *copy = strdup(conf_str(conf, "mds.rdma")), *save = NULL,
	     *a = copy ? strtok_r(copy, ", ", &save) : NULL;
	int err = 0;

	if (a) {
		rpc_rdma_conf(&opts, conf);
		err = rpc_rdma_start(&opts);
	}
	for (; a && !err; a = strtok_r(NULL, ", ", &save)) {
		struct sockaddr_storage ss;
		socklen_t len;

		err = rpc_addr_parse(a, RPC_RDMA_PORT, &ss, &len);
		if (!err)
			err = rpc_listen_rdma(loops[0], (struct sockaddr *)&ss, len, &service, NULL,
					      NULL);
	}
	free(copy);
	return err;
}

/* ---- housekeeping ---- */

static struct loop_timer tick;

/* When thousands of clients have gone, returns their memory to the system, which the allocator does
 * not do by itself. Does so more than once: the orders that bar these clients go on for a while,
 * and so does the work of resolving their files. */
static void main_trim(size_t clients)
{
	static size_t most;
	static unsigned again;

	if (clients > most)
		most = clients;
	if (most >= TRIM_CLIENTS && clients <= most / 4) {
		most = clients;
		again = TRIM_TICKS;
	}
	if (again && again-- % TRIM_EVERY == 0)
		malloc_trim(0);
}

static bool told_grace; /* loop 0 */

/* What systemctl status shows. */
static void tell_systemd(bool grace)
{
	unsigned long boot = ns_super(mds.m_ns)->su_boot;

	if (grace)
		sd_notifyf(0, "STATUS=serving, boot %lu: grace, %u recorded clients may reclaim",
			   boot, mds.m_st->st_records.h_count);
	else
		sd_notifyf(0, "STATUS=serving, boot %lu", boot);
}

static void on_tick(struct loop_timer *t)
{
	if (!atomic_load(&mds.m_serving)) {
		/* keeps the clock going while this server waits for data servers */
		st_clock_tick(mds.m_st);
		journal_tick();
		loop_timer_start(loops[0], t, TICK_MS);
		return;
	}
	st_tick(mds.m_st);
	if (told_grace != st_in_grace(mds.m_st)) {
		told_grace = !told_grace;
		tell_systemd(told_grace);
	}
	st_look_lock(mds.m_st);
	size_t clients = mds.m_st->st_clients.h_count + mds.m_st->st_nended;
	st_look_unlock(mds.m_st);
	main_trim(clients);
	job_replies_tick(&mds, loops[0]);
	file_resolve_tick(&mds.m_file, loops[0]);
	job_contended_tick(&mds);
	job_drain_tick(&mds, loops[0]);
	job_revocation_tick(&mds);
	job_dead_tick(&mds, loops[0]);
	job_repair_tick(&mds);
	job_pins_tick(&mds);
	job_restripe_tick(&mds);
	job_trash_tick(&mds);
	lo_orders_look(mds.m_lo);
	job_atime_tick(loops[0]);
	ns_sum_tick(mds.m_ns, loops[0]);
	journal_tick();
	loop_timer_start(loops[0], t, TICK_MS);
}

static void main_grace_over(void *arg)
{
	(void)arg;
	file_grace_over(&mds.m_file, loops[0]);
}

static void expired(void *arg, uint64_t clientid)
{
	(void)arg;
	file_evict(&mds.m_file, loops[0], clientid);
}

static void lapsed(void *arg, const uint64_t *clientids, unsigned n)
{
	(void)arg;
	file_lapsed(&mds.m_file, loops[0], clientids, n);
}

static void overdue(void *arg, uint64_t ino)
{
	(void)arg;
	op_deleg_overdue(&mds, loops[0], ino);
}

static void orphans(void *arg)
{
	(void)arg;
	file_orphan_sweep(&mds.m_file, loops[0]);
}

/* Runs on the HTTP thread. */
static void main_counts(void *arg, struct admin_counts *out)
{
	struct st *st = mds.m_st;

	(void)arg;
	st_all_lock(st);
	out->ac_clients = st->st_clients.h_count;
	out->ac_sessions = st->st_sessions.h_count;
	out->ac_opens = st_number(st, ST_N_OPENS) + st_number(st, ST_N_DELEGS);
	out->ac_layouts = st_number(st, ST_N_LAYOUTS);
	out->ac_locks = st_number(st, ST_N_RANGES);
	out->ac_delegs = st_number(st, ST_N_DELEGS);
	out->ac_grace = st_in_grace(st);
	st_all_unlock(st);
	out->ac_courteous = st_courteous(st);
}

static void *run_loop(void *arg)
{
	loop_run(arg);
	return NULL;
}

static void stop_loops(void)
{
	for (unsigned i = 0; i < nloops; i++)
		loop_stop(loops[i]);
}

static sigset_t signals;

/* Called before any thread starts: all threads inherit the mask, and only one takes signals. */
static void block_signals(void)
{
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	signal(SIGPIPE, SIG_IGN);
}

/* Reloads what the administrator may change while clients are served. Runs on its own thread, or on
 * the HTTP server's: it may block. */
static int reload(void *arg, uint64_t *pass, char *err, size_t errlen)
{
	/* called for the signal and over HTTP: each call compares what it replaces */
	static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
	struct exp_table *old, *now;
	int rc;

	(void)arg;
	pthread_mutex_lock(&one);
	old = export_set_get(mds.m_exports);
	ask_forget(mds.m_ask_names);
	if (mds.m_ask_groups)
		ask_forget(mds.m_ask_groups);
	rc = export_set_reload(mds.m_exports, err, errlen);
	if (!rc) {
		now = export_set_get(mds.m_exports);
		*pass = job_exports_changed(&mds, loops[0], old, now, op_fh_export);
		exp_put(now);
		journal_add(EV_EXPORTS_RELOADED, "", 0, "%s",
			    *export_set_path(mds.m_exports) ? export_set_path(mds.m_exports)
							    : "the built-in exports");
	}
	exp_put(old);
	pthread_mutex_unlock(&one);
	return rc;
}

static void *wait_signals(void *arg)
{
	char err[512];
	uint64_t pass;
	int sig;

	while (!sigwait(arg, &sig) && sig == SIGHUP) {
		rpc_tls_reload(service.rs_tls);
		/* With --restored the server ends by itself, and its API with it. */
		if (admin && !restoring)
			admin_reload(admin);
		reload(NULL, &pass, err, sizeof(err));
		if (live_reload(live, err, sizeof(err)))
			log_error("%s; the configuration stays as it was", err);
	}
	log_info("signal %d: stopping", sig);
	sd_notify(0, "STOPPING=1");
	mds_addr_stop();
	stop_loops();
	mds_log_ending(&mds);
	return NULL;
}

/* A standby listens. Data servers try it, and clients may by mistake: they wait until it serves,
 * and those that have gone must not fill the backlog. */
static void main_hold(void)
{
	for (size_t i = 0; i < nlisteners; i++)
		rpc_listener_hold(listeners[i]);
}

static void main_open_store(const struct conf *conf)
{
	char err[512];

	mds_log_waiting(main_hold);
	mds_log_web(&web);
	if (mds_store_open(&mds, conf, restoring, err, sizeof(err)))
		main_die(err, NULL);
	if (journal_open(mds.m_ns))
		main_die("cannot read the journal", NULL);
	if (st_create(&mds.m_st, mds.m_ns, mds.m_lease_ms, (uint32_t)conf_msec(conf, "mds.grace"),
		      (uint32_t)conf_msec(conf, "mds.courtesy")))
		main_die("cannot read the client records", NULL);
	st_clock_use(mds.m_st, &mds.m_store_lease);
	mds.m_st->st_kept_max = conf_size(conf, "mds.reply_cache");
	mds.m_st->st_recall_ms = mds.m_recall_ms;
	mds.m_st->st_max_delegs = (uint32_t)conf_int(conf, "mds.delegations_max");
	mds_settings_state(mds.m_st, &mds.m_limits);
	mds.m_st->st_grace_over = main_grace_over;
	mds.m_st->st_orphans = orphans;
	mds.m_st->st_expired = expired;
	mds.m_st->st_lapsed = lapsed;
	mds.m_st->st_overdue = overdue;
}

static void device_changed(void *arg, const uint8_t uuid[16])
{
	(void)arg;
	st_device_changed(mds.m_st, uuid);
}

static void ds_dead(void *arg, uint32_t id, const uint8_t uuid[16])
{
	(void)arg;
	job_ds_dead(&mds, loops[0], id, uuid);
}

static void open_repair(const struct conf *conf)
{
	const struct job_repair_opts opts = {
		.ro_files = (unsigned)conf_int(conf, "mds.repair_files"),
		.ro_rate = conf_size(conf, "mds.repair_rate"),
		.ro_wait_ms = (uint32_t)conf_msec(conf, "mds.repair_wait"),
	};

	if (job_open(&mds))
		main_die("jobs: out of memory", NULL);
	if (job_repair_open(&mds, loops[0], &opts))
		main_die("repairs: out of memory", NULL);
	if (job_verify_open(&mds, loops[0]))
		main_die("verify: out of memory", NULL);
	if (job_balance_open(&mds, loops[0], (uint64_t)conf_msec(conf, "mds.balance_again")))
		main_die("balance: out of memory", NULL);
	if (job_restripe_open(&mds, loops[0]))
		main_die("restripe: out of memory", NULL);
	if (job_elect_open(&mds, loops[0]))
		main_die("choices: out of memory", NULL);
	if (job_scrub_open(&mds, loops[0], (uint32_t)conf_msec(conf, "mds.scrub_delay")))
		main_die("scrubs: out of memory", NULL);
	if (job_pins_open(&mds, loops[0], (unsigned)conf_int(conf, "mds.near_full")))
		main_die("pins: cannot be read, or out of memory", NULL);
	if (job_drain_open(&mds))
		main_die("drains: out of memory", NULL);
	if (job_revocation_open(&mds, loops[0]))
		main_die("the end of capabilities: out of memory", NULL);
	if (job_trash_open(&mds, loops[0]))
		main_die("cannot read the jobs about the trash", NULL);
	if (job_tags_open(&mds))
		main_die("tags: cannot be read, or out of memory", NULL);
	if (job_contended_open(&mds, loops[0]))
		main_die("files that two clients write: out of memory", NULL);
	if (file_resolve_open(&mds.m_file))
		main_die("cannot read the table of repairs", NULL);
}

/* On the first loop: the store is not behind what data servers saw. From here on time counts for
 * clients. */
static void may_serve(void *arg)
{
	const struct ns_super *su = ns_super(mds.m_ns);

	(void)arg;
	if (restoring) {
		atomic_store(&restored, true);
		stop_loops();
		return;
	}
	mds.m_st->st_started_ns = st_now_ns(mds.m_st);
	log_info("serving: boot %lu, engine LMDB, threads %u, recorded clients %u",
		 (unsigned long)su->su_boot, nloops, mds.m_st->st_records.h_count);
	job_scrub_resume(&mds);
	if (atomic_load(&mds.m_st->st_in_grace))
		journal_add(EV_GRACE_BEGINS, "", 0, "%u recorded clients may reclaim",
			    mds.m_st->st_records.h_count);
	told_grace = st_in_grace(mds.m_st);
	tell_systemd(told_grace);
	op_serve(&mds);
	member_serves();
}

static int living(void *arg, uint32_t **clients, size_t *n, uint32_t *next)
{
	(void)arg;
	return st_living(mds.m_st, clients, n, next);
}

static void open_data(const struct conf *conf)
{
	char err[512];

	ds_reg_opts = (struct ds_reg_opts){
		.do_cluster_key = cluster_key,
		.do_lease_ms = (uint32_t)conf_msec(conf, "ds.lease"),
		.do_store = &mds.m_store_lease,
		.do_layouts_ms =
			(uint32_t)(conf_msec(conf, "mds.grace") + conf_msec(conf, "mds.lease")),
		.do_suspect_ms = (uint32_t)conf_msec(conf, "mds.ds_suspect"),
		.do_refused_ms = (uint32_t)conf_msec(conf, "mds.ds_refused"),
		.do_dead_ms = (uint32_t)conf_msec(conf, "mds.ds_dead"),
		.do_restore = restoring,
		.do_admit = strcmp(conf_str(conf, "mds.admit"), "manual") == 0,
		.do_pool = (unsigned)conf_int(conf, "mds.generic_pool"),
		.do_loops = loops,
		.do_nloops = nloops,
		.do_instances = &instances,
	};
	if (ds_reg_create(&mds.m_dsc, mds.m_ns, &ds_reg_opts, err, sizeof(err)))
		main_die(err, NULL);
	if (lo_create(&mds.m_lo, mds.m_ns, mds.m_dsc))
		main_die("layouts: out of memory", NULL);
	op_file_env(&mds);
	if (lo_near_set(mds.m_lo, conf_str(conf, "mds.near"),
			(unsigned)conf_int(conf, "mds.near_factor"), err, sizeof(err)))
		main_die(err, NULL);
	if (lo_trash_load(mds.m_lo))
		main_die("cannot read whether policies say trash=", NULL);
	if (lo_threshold_load(mds.m_lo, conf_size(conf, "mds.threshold")))
		main_die("mds.store", "cannot read the row of thresholds");
	open_repair(conf);
	ds_reg_set_eof_handler(mds.m_dsc, file_eof_handler, &mds.m_file);
	ds_reg_set_change_handler(mds.m_dsc, device_changed, NULL);
	ds_reg_set_dead_handler(mds.m_dsc, ds_dead, NULL);
	ds_reg_set_serve_handler(mds.m_dsc, may_serve, NULL);
	ds_reg_set_living_handler(mds.m_dsc, living, NULL);
}

static void open_exports(const struct conf *conf)
{
	char err[512];

	if (export_set_open(&mds.m_exports, mds.m_ns, conf_str(conf, "mds.exports"), err,
			    sizeof(err)))
		main_die(err, NULL);
	if (op_cred_open(&mds, strcmp(conf_str(conf, "mds.groups"), "server") == 0,
			 *conf_str(conf, "mds.keytab") != 0,
			 (uint32_t)conf_msec(conf, "mds.names_keep")))
		main_die("name lookups: cannot start threads", NULL);
}

static void main_make_loops(const struct conf *conf)
{
	unsigned n = (unsigned)conf_int(conf, "mds.threads");

	/* The embedded store is this process's as long as it has it open. */
	store_lease_init(&mds.m_store_lease, mds_log_elsewhere(conf) ? 0 : STORE_LEASE_ALWAYS);
	if (store_lease_hook)
		store_lease_hook(&mds.m_store_lease);
	mds.m_thread = calloc(n, sizeof(*mds.m_thread));
	for (nloops = 0; nloops < n; nloops++) {
		int err = loop_create(&loops[nloops], RING_ENTRIES);

		if (err)
			main_die("io_uring", strerror(-err));
		/* if that is refused, it is logged, and the loop goes on without */
		pool_register(loops[nloops]);
		rpc_use_lease(loops[nloops], &mds.m_store_lease);
		mds.m_thread[nloops].mt_mds = &mds;
		mds.m_thread[nloops].mt_loop = loops[nloops];
	}
	mds.m_nthreads = n;
}

/* Runs as the user that the daemon runs as: the key table is read again and again. */
static void open_kerberos(const struct conf *conf)
{
	struct rpc_gss_opts opts = {
		.go_keytab = conf_str(conf, "mds.keytab"),
		.go_max = (unsigned)conf_int(conf, "mds.gss_contexts"),
		.go_max_addr = (unsigned)conf_int(conf, "mds.gss_contexts_of_address"),
		.go_max_principal = (unsigned)conf_int(conf, "mds.gss_contexts_of_principal"),
		.go_map = op_idmap_principal,
		.go_arg = &mds};
	char err[512];

	if (!*opts.go_keytab) {
		log_info("flavours: sys (Kerberos is off: no mds.keytab)");
		return;
	}
	if (op_idmap_init(&mds, conf_str(conf, "mds.idmap_domain"), err, sizeof(err)))
		main_die(err, NULL);
	opts.go_names = op_idmap_worker(&mds);
	if (rpc_gss_open(service.rs_gss, &opts, err, sizeof(err)))
		main_die("mds.keytab", err);
	mds.m_krb5 = true;
	log_info("flavours: sys, krb5, krb5i, krb5p (keys in %s)", opts.go_keytab);
}

static int main_restore_run(void *arg, struct kv_txn *t)
{
	int err = ns_restore(mds.m_ns, t, *(const uint64_t *)arg);

	return err ? err
		   : journal_put(t, EV_RESTORED, "", 0,
				 "the store was restored from an older copy: boot %lu",
				 (unsigned long)ns_super(mds.m_ns)->su_boot);
}

/* Makes the restored store consistent: the loops have ended, and every data server has reported.
 * What is left of an attempt that ended too soon is done again: numbers only rise. */
static void make_whole(void)
{
	uint64_t seen = ds_reg_boot_seen(mds.m_dsc), from = clock_mono_ms();
	char why[512];
	int64_t files;
	int err = kv_run_sync(mds.m_kv, main_restore_run, &seen);

	if (err)
		main_die("--restored",
			 err == -EMFILE
				 ? "this store was restored too often: its numbers are used up"
				 : strerror(-err));
	files = lo_restore(mds.m_kv, mds.m_ns, file_intent_put);
	if (files < 0)
		main_die("--restored: the files", strerror((int)-files));
	if (mds_log_whole(why, sizeof(why)))
		main_die("--restored", why);
	log_info("the store was restored and is consistent: boot %lu, incarnation %u, %lu files in "
		 "%lu ms",
		 (unsigned long)ns_super(mds.m_ns)->su_boot, ns_super(mds.m_ns)->su_incarnation,
		 (unsigned long)files, (unsigned long)(clock_mono_ms() - from));
}

/* A process of its own makes the store consistent, and serves no client. The process that serves
 * reads the store as it is afterwards. only: none serves, this one ends. */
static void make_whole_first(bool only)
{
	pid_t parent = getpid(), pid = fork();
	int status;

	if (pid < 0)
		main_die("--restored", strerror(errno));
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		restoring = getppid() == parent;
		if (!restoring)
			_exit(1);
		return;
	}
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			main_die("--restored", strerror(errno));
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		exit(1);
	if (only)
		exit(0);
}

static struct admin_health_opts main_health(const struct conf *conf)
{
	return (struct admin_health_opts){
		.ah_near_full = (unsigned)conf_int(conf, "mds.near_full"),
		.ah_full = (unsigned)conf_int(conf, "mds.full"),
		.ah_orders_ms = (uint64_t)conf_msec(conf, "mds.orders_late"),
		.ah_backup_s = conf_msec(conf, "mds.backup_age") / 1000,
	};
}

/* What main_die() is before other threads use the store: this process ends in order. */
static void main_fail(const char *what, const char *why)
{
	log_error("%s%s%s", what, why ? ": " : "", why ? why : "");
	failed = true;
	stop_loops();
	mds_log_ends(&mds);
}

static void main_listens(const struct conf *conf)
{
	if (!*conf_str(conf, "mds.exports"))
		log_warn("mds.exports is not set: only this machine may use this server, with root "
			 "squashed to nobody");
	log_info("listening: boot %lu, engine LMDB, threads %u, sync %s",
		 (unsigned long)ns_super(mds.m_ns)->su_boot, nloops,
		 conf_bool(conf, "mds.sync") ? "on" : "OFF");
}

static void main_serve(const struct conf *conf)
{
	const struct ns_super *su = ns_super(mds.m_ns);
	pthread_t tid, *runs = calloc(nloops, sizeof(*runs));
	const struct admin_ops ops = {.ao_ns = mds.m_ns,
				      .ao_dsc = mds.m_dsc,
				      .ao_lo = mds.m_lo,
				      .ao_counts = main_counts,
				      .ao_exports = mds.m_exports,
				      .ao_reload = reload,
				      .ao_live = live,
				      .ao_mds = &mds,
				      .ao_store = conf_str(conf, "mds.store"),
				      .ao_tls = service.rs_tls,
				      .ao_health = main_health(conf),
				      .ao_console = conf_str(conf, "mds.console"),
				      .ao_console_login_ms = conf_msec(conf, "mds.console_login")};
	const char *metrics = conf_str(conf, "mds.metrics");
	unsigned running = 1; /* loops; this thread is one */
	char err[512];
	int err_no;

	mds_identity_names(&mds);
	programs[0] = (struct rpc_program){NFS4_PROGRAM, 4, 4, 2, op_dispatch, &mds};
	programs[1] = *ds_reg_program(mds.m_dsc);
	tick.t_fire = on_tick;
	loop_timer_start(loops[0], &tick, TICK_MS);
	if (job_damage_open(&mds))
		main_fail("cannot start a thread", NULL);
	else if (admin_start(&admin, &web, &ops, err, sizeof(err)) ||
		 (*metrics && admin_open_metrics(admin, metrics, err, sizeof(err))))
		main_fail(err, NULL);
	if (!failed)
		main_listens(conf);
	if (!restoring)
		journal_add(EV_STARTED, "", 0, "boot %lu", (unsigned long)su->su_boot);
	if (pthread_create(&tid, NULL, wait_signals, &signals))
		main_fail("cannot start a thread", NULL);
	else
		mds_log_heard();
	for (; running < nloops && !failed; running += !failed)
		if (!runs || pthread_create(&runs[running], NULL, run_loop, loops[running]))
			main_fail("mds.threads", "cannot start a thread");
	err_no = failed ? 0 : listen_rdma(conf);
	if (err_no)
		main_fail("mds.rdma", strerror(-err_no));
	err_no = restoring || failed ? 0
				     : mds_addr_start(mds.m_kv, &mds.m_store_lease, loops, nloops);
	if (err_no)
		main_fail("mds.addresses", strerror(-err_no));
	if (!failed)
		sd_notifyf(0, "READY=1\nSTATUS=boot %lu: %s", (unsigned long)su->su_boot,
			   "waiting for a data server to confirm that the store is up to date");
	for (size_t i = 0; i < nlisteners && !failed; i++)
		rpc_listener_unhold(listeners[i]);
	loop_run(loops[0]);
	/* The loops have snapshots of the store, and state that is destroyed below. */
	for (unsigned i = 1; i < running; i++)
		pthread_join(runs[i], NULL);
	free(runs);
	ds_reg_stopped(mds.m_dsc);
	if (admin)
		admin_stop(admin);
	job_damage_close(&mds);
	for (unsigned i = 0; i < nloops; i++)
		op_thread_end(&mds.m_thread[i]);
	if (!restoring)
		journal_add(EV_STOPPED, "", 0, failed ? "it cannot serve" : "by a signal");
	journal_close();
	if (atomic_load(&restored))
		make_whole();
	ns_close(mds.m_ns);
	kv_close(mds.m_kv);
	mds_log_close();
	if (atomic_load(&restored) && mds_store_whole(conf, err, sizeof(err)))
		main_die(err, NULL);
	if (failed)
		exit(1);
	log_info("stopped");
}

static int check_exports(const char *path, char *err, size_t errlen)
{
	struct exp_table *t;
	int e = exp_read(path, &t, err, errlen);

	if (!e)
		exp_put(t);
	return e;
}

static int check_keytab(const char *path, char *err, size_t errlen)
{
	/* A name may begin with a type: FILE:/etc/krb5.keytab. */
	if (!strncmp(path, "FILE:", 5))
		path += 5;
	if (*path != '/' || !access(path, R_OK))
		return 0;
	snprintf(err, errlen, "mds.keytab: %s: %s%s", path, strerror(errno),
		 errno == EACCES ? ": the user of weft-mds must be able to read it" : "");
	return -errno;
}

/* Checks the files and folders that keys name. Reports every fault, and returns how many there
 * are. */
static unsigned check_files(const struct conf *conf)
{
	enum { CHECKS = 12 };
	struct ns_identity identity;
	char err[CHECKS][512];
	size_t n = sizeof(err[0]);
	const int bad[CHECKS] = {
		check_folder("mds.store", conf_str(conf, "mds.store"), err[0], n),
		check_cluster_key("mds.cluster_key", conf_str(conf, "mds.cluster_key"), cluster_key,
				  err[1], n),
		check_exports(conf_str(conf, "mds.exports"), err[2], n),
		check_admin(conf, "mds", err[3], n),
		rpc_tls_configure(&service.rs_tls, conf, "mds", err[4], n),
		check_keytab(conf_str(conf, "mds.keytab"), err[5], n),
		check_token("mds.admin_token", conf_str(conf, "mds.admin_token"), admin_token,
			    err[6], n),
		scrape_check("mds.metrics", conf_str(conf, "mds.metrics"), err[7], n),
		admin_console_check(conf_str(conf, "mds.console"), err[8], n),
		mds_identity_conf(conf, &identity, err[9], n),
		mds_instances_conf(conf, &instances, err[10], n),
		mds_log_check(conf, err[11], n),
	};
	unsigned found = 0;

	for (unsigned i = 0; i < CHECKS; i++) {
		if (!bad[i])
			continue;
		log_error("%s", err[i]);
		found++;
	}
	return found;
}

/* What the command line says. */
struct main_args {
	const char *ma_path, *ma_sets[256];
	unsigned ma_nsets;
	bool ma_check, ma_values, ma_whole, ma_only;
};

static struct main_args main_arguments(int argc, char **argv)
{
	static const struct option longs[] = {{"config", 1, NULL, 'c'}, {"option", 1, NULL, 'o'},
					      {"check", 2, NULL, 'C'},	{"restored", 2, NULL, 'R'},
					      {"help", 0, NULL, 'h'},	{"version", 0, NULL, 'V'},
					      {NULL, 0, NULL, 0}};
	struct main_args a = {.ma_path = NULL};
	int o;

	while ((o = getopt_long(argc, argv, "c:o:h", longs, NULL)) != -1) {
		if (o == 'c')
			a.ma_path = optarg;
		else if (o == 'o' && a.ma_nsets < 256)
			a.ma_sets[a.ma_nsets++] = optarg;
		else if (o == 'C')
			a.ma_check = true, a.ma_values = optarg && !strcmp(optarg, "values");
		else if (o == 'R' && (!optarg || !strcmp(optarg, "only")))
			a.ma_whole = true, a.ma_only = optarg;
		else if (o == 'V')
			exit(version_print("weft-mds"));
		else
			main_usage(o == 'h');
	}
	if (optind < argc)
		main_usage(false);
	return a;
}

int main(int argc, char **argv)
{
	struct main_args a = main_arguments(argc, argv);
	struct conf *conf;
	char err[512];

	log_set_name("weft-mds");
	process_metrics();
	if (conf_load(&conf, a.ma_path, err, sizeof(err)))
		die_conf(err);
	for (unsigned i = 0; i < a.ma_nsets; i++)
		if (conf_set(conf, a.ma_sets[i], err, sizeof(err)))
			die_conf(err);
	log_set_level_name(conf_str(conf, "log.level"));
	trace_open((unsigned)conf_int(conf, "log.trace"));
	if (sodium_init() < 0)
		main_die("libsodium", "cannot initialize it");
	listen_check("mds.listen", conf_str(conf, "mds.listen"), 2049);
	main_rdma_check(conf);
	if (lo_near_check(conf_str(conf, "mds.near"), err, sizeof(err)) ||
	    mds_addr_open(conf, err, sizeof(err)))
		die_conf(err);
	if (!a.ma_check && priv_prepare("mds.user", conf_str(conf, "mds.user"), err, sizeof(err)))
		die_conf(err);
	if (!a.ma_values && check_files(conf)) {
		conf_free(conf);
		return 2;
	}
	if (a.ma_check) {
		conf_free(conf);
		return 0;
	}
	version_log();
	if (a.ma_whole)
		make_whole_first(a.ma_only);
	if (mds_settings(&mds, conf))
		main_die("the configuration", strerror(ENOMEM));
	block_signals();
	log_faults();
	priv_no_core();
	op_metrics_init(&mds);
	job_atime_init(&mds, strcmp(conf_str(conf, "mds.atime"), "off") != 0);
	op_limits_init(&mds);
	service.rs_record_ms = (uint32_t)conf_msec(conf, "mds.record_time");
	service.rs_host_calls = (unsigned)conf_int(conf, "mds.calls_of_address");
	service.rs_host_rate = (uint32_t)conf_int(conf, "mds.rate_of_address");
	process_files();
	rpc_gss_metrics();
	if (*conf_str(conf, "mds.rdma"))
		rpc_rdma_allow();
	if (pool_init(conf_size(conf, "mds.pool"), err, sizeof(err)))
		main_die("mds.pool", err);
	main_make_loops(conf);
	if (*conf_str(conf, "mds.keytab") && !(service.rs_gss = rpc_gss_new()))
		main_die("Kerberos", strerror(ENOMEM));
	main_listen_all(conf_str(conf, "mds.listen"));
	http_opts_conf(&web, conf, "mds");
	web.ho_token = admin_token;
	web.ho_lease = &mds.m_store_lease;
	if (http_bind(&web.ho_bound, &web, err, sizeof(err)))
		main_die("mds.admin", err);
	/* Everything that needs root is done: keys, certificates, rings, ports. What is made from
	 * here on belongs to the user. */
	if (priv_own_folder(conf_str(conf, "mds.store"), err, sizeof(err)) ||
	    priv_drop(err, sizeof(err)))
		main_die(err, NULL);
	main_open_store(conf);
	crash_point("boot");
	open_data(conf);
	open_exports(conf);
	mds_gauges(&mds);
	member_metrics(&mds.m_store_lease);
	open_kerberos(conf);
	if (mds_live_open(&live, &mds, conf, a.ma_path, a.ma_sets, a.ma_nsets))
		main_die("the configuration", strerror(ENOMEM));
	main_serve(conf);
	conf_free(conf);
	return member_moved() ? MEMBER_MOVED : restoring && !atomic_load(&restored);
}
