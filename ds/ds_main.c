/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ds_main.c - weft-ds: configuration, threads, the admin server.
 *
 * The main thread starts everything, then waits for a signal. Each loop runs on its own thread.
 * Loop 0's thread owns the listeners and the control connection, and starts them.
 */
#include "base/clock.h"
#include "base/conf.h"
#include "base/socket_activation.h"
#include "base/log.h"
#include "base/pool.h"
#include "base/priv.h"
#include "base/process.h"
#include "common/check.h"
#include "common/exports.h"
#include "common/http.h"
#include "common/live.h"
#include "common/scrape.h"
#include "common/trace.h"
#include "common/version.h"
#include "topo/topo_plan.h"
#include "ds/ds.h"
#include "ds/path/path.h"
#include "ds/place.h"
#include "ds/peer.h"
#include "proto/rpc_rdma.h"
#include "proto/rpc_tls.h"
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#define EXIT_USAGE   2
#define LOOP_ENTRIES 1024
#define DEFAULT_PORT 2049
#define TOMB_KEEP_MS 600000u
/* A WRITE's header: the RFC 5531 header with AUTH_SYS at its largest, the file handle, and some
 * room. */
#define MAX_RECORD (DS_MAX_IO + 4096)

static struct ds ds;

static void mount_dispatch(struct rpc_call *call, void *arg)
{
	path_mount3(((struct ds *)arg)->d_path, call);
}

/* service() leaves MOUNT out unless folders are exported. */
static const struct rpc_program programs[] = {
	{
		.pr_prog = NFS3_PROGRAM,
		.pr_vers_lo = NFS3_VERSION,
		.pr_vers_hi = NFS3_VERSION,
		.pr_nprocs = NFS3_NPROCS,
		.pr_dispatch = ds_nfs3_dispatch,
		.pr_arg = &ds,
	},
	{
		.pr_prog = CTL_PEER_PROGRAM,
		.pr_vers_lo = CTL_PEER_VERSION,
		.pr_vers_hi = CTL_PEER_VERSION,
		.pr_nprocs = CTL_PEER_READ + 1,
		.pr_dispatch = ds_peer_dispatch,
		.pr_arg = &ds,
	},
	{
		.pr_prog = MOUNT3_PROGRAM,
		.pr_vers_lo = MOUNT3_VERSION,
		.pr_vers_hi = MOUNT3_VERSION,
		.pr_nprocs = MOUNT3_NPROCS,
		.pr_dispatch = mount_dispatch,
		.pr_arg = &ds,
	},
};

/* ---- configuration ---- */

static int ds_main_usage(FILE *f)
{
	fprintf(f, "usage: weft-ds [-c FILE] [-o KEY=VALUE]... [--check[=values] | --plan]\n"
		   "  -c, --config FILE   configuration file\n"
		   "  -o KEY=VALUE        set a key, overriding the file\n"
		   "      --check         check the configuration and exit\n"
		   "      --plan          show what would run where, and exit\n"
		   "      --version       print the version and exit\n");
	return f == stdout ? 0 : EXIT_USAGE;
}

/* Checks the files and folders that keys of the configuration name. */
static int files_check(const struct conf *c, char *err, size_t errlen)
{
	char *dirs[DS_VOLUMES_MAX];
	unsigned n = 0;
	int e = ds_dirs_parse(conf_str(c, "ds.store"), dirs, &n, err, errlen);

	if (e)
		return e;
	for (unsigned i = 0; i < n && !e; i++)
		e = check_folder("ds.store", dirs[i], err, errlen);
	if (!e)
		e = ds_keys_configure(&ds.d_keys, c, dirs[0], err, errlen);
	ds_dirs_free(dirs, n);
	if (!e)
		e = check_admin(c, "ds", err, errlen);
	if (!e)
		e = scrape_check("ds.metrics", conf_str(c, "ds.metrics"), err, errlen);
	if (!e)
		e = rpc_tls_configure(&ds.d_tls, c, "ds", err, errlen);
	return e || ds.d_tls ? e : rpc_tls_open_peers(&ds.d_tls, "ds.tls", err, errlen);
}

struct addr {
	struct sockaddr_storage a_ss;
	socklen_t a_len;
};

/* Parses comma separated addresses. Returns their number, or -1 with a line in err. */
static int addrs_parse(const char *key, const char *list, uint16_t defport, struct addr *out,
		       char *err, size_t errlen)
{
	char copy[1024], *save = NULL, *one;
	int n = 0;

	snprintf(copy, sizeof(copy), "%s", list);
	for (one = strtok_r(copy, ", ", &save); one; one = strtok_r(NULL, ", ", &save)) {
		if (n == DS_MAX_ADDRS) {
			snprintf(err, errlen, "%s: more than %d addresses", key, DS_MAX_ADDRS);
			return -1;
		}
		if (rpc_addr_parse(one, defport, &out[n].a_ss, &out[n].a_len)) {
			snprintf(err, errlen,
				 "%s: \"%s\" is not an address; expected 192.0.2.1:2049, "
				 "[2001:db8::1]:2049, or one without a port",
				 key, one);
			return -1;
		}
		n++;
	}
	return n;
}

static bool is_wildcard(const struct sockaddr_storage *ss)
{
	if (ss->ss_family == AF_INET)
		return ((const struct sockaddr_in *)ss)->sin_addr.s_addr == htonl(INADDR_ANY);
	return IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)ss)->sin6_addr);
}

static void set_port(struct sockaddr_storage *ss, uint16_t port)
{
	if (ss->ss_family == AF_INET)
		((struct sockaddr_in *)ss)->sin_port = htons(port);
	else
		((struct sockaddr_in6 *)ss)->sin6_port = htons(port);
}

/* ---- start, on loop 0 ---- */

struct start {
	struct loop_msg st_msg;
	struct addr st_listen[DS_MAX_ADDRS], st_advertise[DS_MAX_ADDRS], st_mds[DS_MAX_ADDRS];
	int st_nlisten, st_nadvertise, st_nmds;
	const char *st_advertise_text;
	enum rpc_zerocopy st_zerocopy;
	bool st_exports;
	const struct conf *st_conf;
	struct rpc_listener *st_listener[DS_MAX_ADDRS];
	int st_err;
	char st_errtext[256];
	sem_t st_done;
};

static int advertise(struct start *st)
{
	if (!*st->st_advertise_text) {
		ds.d_naddrs = 0;
		for (int i = 0; i < st->st_nlisten; i++) {
			ds.d_addr[ds.d_naddrs] = st->st_listen[i].a_ss;
			set_port(&ds.d_addr[ds.d_naddrs++], rpc_listener_port(st->st_listener[i]));
		}
		return 0;
	}
	/* Parse ds.advertise again: the default port is known now. */
	st->st_nadvertise = addrs_parse("ds.advertise", st->st_advertise_text,
					rpc_listener_port(st->st_listener[0]), st->st_advertise,
					st->st_errtext, sizeof(st->st_errtext));
	for (int i = 0; i < st->st_nadvertise; i++)
		ds.d_addr[i] = st->st_advertise[i].a_ss;
	ds.d_naddrs = st->st_nadvertise < 0 ? 0 : (unsigned)st->st_nadvertise;
	return st->st_nadvertise < 0 ? -EINVAL : 0;
}

static void addrs_order(void)
{
	struct sockaddr_storage was[DS_MAX_ADDRS];
	unsigned order[DS_MAX_ADDRS];

	memcpy(was, ds.d_addr, sizeof(was));
	place_order(ds.d_place, was, ds.d_naddrs, order);
	for (unsigned i = 0; i < ds.d_naddrs; i++)
		ds.d_addr[i] = was[order[i]];
}

static struct rpc_service service(const struct start *st)
{
	return (struct rpc_service){
		.rs_zerocopy = st->st_zerocopy,
		.rs_progs = programs,
		.rs_nprogs = st->st_exports ? 3 : 2,
		.rs_max_record = MAX_RECORD,
		.rs_max_reply = MAX_RECORD,
		.rs_tls = ds.d_tls,
		.rs_peer_prog = CTL_PEER_PROGRAM,
		.rs_deal = place_deal,
		.rs_deal_arg = ds.d_place,
		.rs_opened = ds_conn_opened,
		.rs_closed = ds_conn_closed,
		.rs_first = ds_conn_first,
		.rs_arg = &ds,
		.rs_record_ms = (uint32_t)conf_msec(st->st_conf, "ds.record_time"),
	};
}

static void listen_failed(struct start *st, int i, int err)
{
	snprintf(st->st_errtext, sizeof(st->st_errtext), "ds.listen: address %d of the list: %s",
		 i + 1, strerror(-err));
}

/* Before the loops run: the kernel queues connections that arrive until then. If RDMA is configured
 * as well, the sockets refuse connections until RDMA is ready. */
static int ds_main_listen_all(struct start *st)
{
	const struct rpc_service svc = service(st);
	int err = 0;

	for (int i = 0; i < st->st_nlisten && !err; i++) {
		const struct sockaddr *addr = (struct sockaddr *)&st->st_listen[i].a_ss;
		int fd = activation_socket(addr, st->st_listen[i].a_len);

		err = fd >= 0 ? rpc_listen_fd(&st->st_listener[i], ds.d_loops[0], fd, &svc,
					      ds.d_loops, ds.d_nloops)
			      : rpc_bind(&st->st_listener[i], ds.d_loops[0], addr,
					 st->st_listen[i].a_len, &svc, ds.d_loops, ds.d_nloops);
		if (!err && !ds.d_nrdma)
			err = rpc_listener_open(st->st_listener[i]);
		if (err)
			listen_failed(st, i, err);
	}
	return err;
}

static int ds_main_open_all(struct start *st)
{
	int err = 0;

	for (int i = 0; i < st->st_nlisten && !err; i++) {
		err = rpc_listener_open(st->st_listener[i]);
		if (err)
			listen_failed(st, i, err);
	}
	return err;
}

static int start_services(struct start *st)
{
	char netid[16], uaddr[80], text[80];
	int err = ds_main_open_all(st);

	if (err)
		return err;
	for (unsigned i = 0; i < ds.d_naddrs; i++)
		if (!rpc_uaddr((struct sockaddr *)&ds.d_addr[i], netid, sizeof(netid), uaddr,
			       sizeof(uaddr))) {
			rpc_addr_text((struct sockaddr *)&ds.d_addr[i], text, sizeof(text));
			log_info("NFSv3 over %s at %s", netid, text);
		}
	for (int i = 0; i < st->st_nmds && !err; i++)
		err = ds_control_start(&ds, (struct sockaddr *)&st->st_mds[i].a_ss,
				       st->st_mds[i].a_len, false);
	if (err)
		snprintf(st->st_errtext, sizeof(st->st_errtext), "ds.mds: %s", strerror(-err));
	else
		ds_learned_start(&ds);
	return err;
}

static void start_end(struct start *st, int err)
{
	st->st_err = err;
	atomic_store(&ds.d_listening, !err);
	sem_post(&st->st_done);
}

static void rdma_begun(void *arg)
{
	start_end(arg, start_services(arg));
}

static void start_run(struct loop_msg *m)
{
	struct start *st = (struct start *)((char *)m - offsetof(struct start, st_msg));
	const struct rpc_service svc = service(st);
	int err = advertise(st);

	if (err) {
		start_end(st, err);
		return;
	}
	addrs_order();
	err = ds_rdma_start(&ds, st->st_conf, &svc, rdma_begun, st);
	if (err) {
		snprintf(st->st_errtext, sizeof(st->st_errtext), "ds.rdma: %s", strerror(-err));
		start_end(st, err);
	}
}

static void *main_thread_run(void *arg)
{
	struct loop **l = arg;

	place_thread(ds.d_place, (unsigned)(l - ds.d_loops));
	loop_run(*l);
	return NULL;
}

static int ds_main_make_loops(unsigned n, bool poll, char *err, size_t errlen)
{
	int e = 0;

	ds.d_loops = calloc(n, sizeof(*ds.d_loops));
	for (unsigned i = 0; ds.d_loops && i < n && !e; i++) {
		/* A ring's memory comes from the node of the thread that makes it. */
		place_thread(ds.d_place, i);
		e = loop_create(&ds.d_loops[i], LOOP_ENTRIES);
		if (!e && poll)
			e = loop_poll_create(ds.d_loops[i], LOOP_ENTRIES);
		if (e)
			break;
		place_loop(ds.d_place, i, ds.d_loops[i]);
		/* on failure it logs, and the loop works without registered buffers */
		pool_register(ds.d_loops[i]);
	}
	place_anywhere(ds.d_place);
	if (!ds.d_loops)
		e = -ENOMEM;
	ds.d_nloops = n;
	if (e)
		snprintf(err, errlen, "ds.threads: %s", strerror(-e));
	return e;
}

static int main_start_threads(pthread_t *threads, unsigned n, char *err, size_t errlen)
{
	int e = 0;

	for (unsigned i = 0; i < n && !e; i++) {
		char name[16];

		e = -pthread_create(&threads[i], NULL, main_thread_run, &ds.d_loops[i]);
		snprintf(name, sizeof(name), "weft-loop-%u", i % TOPO_PLAN_THREADS);
		if (!e)
			pthread_setname_np(threads[i], name);
	}
	if (e)
		snprintf(err, errlen, "ds.threads: %s", strerror(-e));
	return e;
}

/* ---- the admin server ---- */

static struct http_opts web;

static void health(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	(void)arg;
	ds_status_health(&ds, rq, rp);
}

static void main_trace(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	(void)arg;
	trace_get(rq, rp, ds_trace_text);
}

static struct live *live; /* the keys that change while this process runs */

static void ds_main_get_config(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	(void)arg;
	live_get(live, rq, rp);
}

static void ds_main_put_config(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	(void)arg;
	live_put(live, rq, rp);
}

static void ds_main_live_log(void *arg, const struct conf *c)
{
	(void)arg;
	log_set_level_name(conf_str(c, "log.level"));
}

static void ds_main_live_connections(void *arg, const struct conf *c)
{
	(void)arg;
	rpc_limit_set(&ds.d_limit, (uint32_t)conf_int(c, "ds.connections"),
		      (uint32_t)conf_int(c, "ds.connections_of_address"));
}

static const struct live_key live_keys[] = {
	{"log.level", ds_main_live_log},
	{"ds.connections", ds_main_live_connections},
	{"ds.connections_of_address", ds_main_live_connections},
};

static const struct http_route routes[] = {
	{"GET", "/v1/health", HTTP_OPEN, health},
	{"GET", "/v1/trace", HTTP_READ, main_trace},
	{"GET", "/v1/config", HTTP_READ, ds_main_get_config},
	{"PUT", "/v1/config", HTTP_ADMIN, ds_main_put_config},
	{"GET", "/v1/openapi.json", HTTP_READ, http_openapi},
};

static double main_failing_gauge(void *arg)
{
	(void)arg;
	return ds.d_store && ds_store_failing(ds.d_store);
}

static double objects_gauge(void *arg)
{
	(void)arg;
	return ds.d_store ? ds_store_open_objects(ds.d_store) : 0;
}

static double sessions_gauge(void *arg)
{
	(void)arg;
	return ds.d_store ? ds_store_sessions(ds.d_store) : 0;
}

static double export_files_gauge(void *arg)
{
	(void)arg;
	return path_files_gauge();
}

static void ds_main_certificate_end(struct metric_out *o, void *arg)
{
	int64_t end = rpc_tls_cert_end(ds.d_tls);

	(void)arg;
	if (end)
		metric_put(o, "", (double)end);
}

static void metrics_init(void)
{
	version_metric();
	process_metrics();
	ds_store_metrics_init();
	ds_nfs3_init();
	ds_conn_metrics_init();
	path_metrics_init();
	metric_gauge("weft_ds_export_open_files", "Exported files that are kept open.", "",
		     export_files_gauge, NULL);
	ds_status_metrics(&ds);
	metric_gauge("weft_ds_store_failing", "1 while the disk of a volume does not work.", "",
		     main_failing_gauge, NULL);
	metric_gauge("weft_ds_open_objects", "Objects in memory.", "", objects_gauge, NULL);
	metric_family("weft_ds_certificate_end_timestamp_seconds",
		      "When the certificate ends, in seconds since 1970; absent without TLS.",
		      ds_main_certificate_end, NULL);
	metric_gauge("weft_ds_rebuild_sessions", "Objects that are being rebuilt.", "",
		     sessions_gauge, NULL);
}

/* ---- main ---- */

struct settings {
	struct conf *se_conf;
	struct start se_start;
	/* values: checks only the values of keys, not the files that they name */
	bool se_check, se_values, se_plan;
	const char *se_file, *se_sets[256]; /* of the command line */
	unsigned se_nsets;
};

static enum rpc_zerocopy zerocopy(const struct conf *c)
{
	const char *how = conf_str(c, "ds.zerocopy");

	return !strcmp(how, "auto")  ? RPC_ZC_AUTO
	       : !strcmp(how, "yes") ? RPC_ZC_ALWAYS
				     : RPC_ZC_NEVER;
}

static int ds_main_rdma_check(struct start *st, const struct conf *c, char *err, size_t errlen)
{
	struct addr addr[DS_MAX_ADDRS];
	int n = addrs_parse("ds.rdma", conf_str(c, "ds.rdma"), RPC_RDMA_PORT, addr, err, errlen);

	st->st_conf = c;
	if (n < 0)
		return -EINVAL;
	if (n && (strcmp(conf_str(c, "ds.tls"), "required") == 0 ||
		  strcmp(conf_str(c, "ds.tls"), "mutual") == 0)) {
		snprintf(err, errlen, "ds.rdma: ds.tls requires TLS, and RDMA has no TLS");
		return -EINVAL;
	}
	ds.d_nrdma = (unsigned)n;
	for (int i = 0; i < n; i++) {
		ds.d_rdma[i].rd_addr = addr[i].a_ss;
		ds.d_rdma[i].rd_len = addr[i].a_len;
	}
	return 0;
}

/* Finds where the stores and addresses are in the machine. Threads, memory and the order of the
 * addresses that clients get follow from it. */
static int place_check(struct settings *se, char *err, size_t errlen)
{
	const struct conf *c = se->se_conf;
	const struct start *st = &se->se_start;
	struct place_opts o = {.po_conf = c,
			       .po_nthreads = (unsigned)conf_int(c, "ds.threads"),
			       .po_paper = se->se_plan};
	struct sockaddr_storage rdma[DS_MAX_ADDRS];
	struct ds_rdma was[DS_MAX_ADDRS];
	unsigned order[DS_MAX_ADDRS];
	int e;

	for (int i = 0; i < st->st_nadvertise; i++)
		o.po_addr[o.po_naddrs++] = &st->st_advertise[i].a_ss;
	for (int i = 0; i < st->st_nlisten; i++)
		if (!is_wildcard(&st->st_listen[i].a_ss))
			o.po_addr[o.po_naddrs++] = &st->st_listen[i].a_ss;
	for (unsigned i = 0; i < ds.d_nrdma; i++) {
		rdma[i] = ds.d_rdma[i].rd_addr;
		if (!is_wildcard(&rdma[i]))
			o.po_addr[o.po_naddrs++] = &rdma[i];
	}
	e = place_make(&ds.d_place, &o, err, errlen);
	if (e)
		return e;
	place_order(ds.d_place, rdma, ds.d_nrdma, order);
	memcpy(was, ds.d_rdma, sizeof(was));
	for (unsigned i = 0; i < ds.d_nrdma; i++)
		ds.d_rdma[i] = was[order[i]];
	if (ds.d_nrdma &&
	    conf_size(c, "ds.pool") < (uint64_t)RPC_RDMA_POOL * place_nodes(ds.d_place)) {
		snprintf(err, errlen,
			 "ds.pool: RDMA needs at least %u MiB for each NUMA node with threads; "
			 "there are %u such nodes",
			 RPC_RDMA_POOL >> 20, place_nodes(ds.d_place));
		return -EINVAL;
	}
	return 0;
}

/* One address of an MDS is enough: two connections would take the server from each other. */
static int mds_check(const struct start *st, char *err, size_t errlen)
{
	char text[80];

	for (int i = 0; i < st->st_nmds; i++) {
		for (int k = 0; k < i; k++) {
			if (st->st_mds[i].a_len != st->st_mds[k].a_len ||
			    memcmp(&st->st_mds[i].a_ss, &st->st_mds[k].a_ss, st->st_mds[i].a_len))
				continue;
			rpc_addr_text((const struct sockaddr *)&st->st_mds[i].a_ss, text,
				      sizeof(text));
			snprintf(err, errlen, "ds.mds: %s is there twice", text);
			return -EINVAL;
		}
	}
	return 0;
}

/* Checks everything that needs neither the store nor the network. */
static int settings_check(struct settings *se, char *err, size_t errlen)
{
	const struct conf *c = se->se_conf;
	struct start *st = &se->se_start;
	char *dirs[DS_VOLUMES_MAX];
	unsigned ndirs;
	char why[256];

	st->st_zerocopy = zerocopy(c);
	st->st_nlisten = addrs_parse("ds.listen", conf_str(c, "ds.listen"), DEFAULT_PORT,
				     st->st_listen, err, errlen);
	st->st_advertise_text = conf_str(c, "ds.advertise");
	st->st_exports = *conf_str(c, "ds.exports");
	st->st_nadvertise = addrs_parse("ds.advertise", st->st_advertise_text, DEFAULT_PORT,
					st->st_advertise, err, errlen);
	st->st_nmds =
		addrs_parse("ds.mds", conf_str(c, "ds.mds"), DEFAULT_PORT, st->st_mds, err, errlen);
	if (st->st_nlisten < 0 || st->st_nadvertise < 0 || st->st_nmds < 0)
		return -EINVAL;
	if (!st->st_nlisten || !st->st_nmds) {
		snprintf(err, errlen, "%s: expected an address",
			 st->st_nlisten ? "ds.mds" : "ds.listen");
		return -EINVAL;
	}
	if (mds_check(st, err, errlen))
		return -EINVAL;
	for (int i = 0; i < st->st_nlisten && !st->st_nadvertise; i++) {
		if (is_wildcard(&st->st_listen[i].a_ss)) {
			snprintf(err, errlen,
				 "ds.advertise: not set, and ds.listen is a wildcard: name the "
				 "addresses that clients use");
			return -EINVAL;
		}
	}
	if (ds_main_rdma_check(st, c, err, errlen))
		return -EINVAL;
	if (!*conf_str(c, "ds.store")) {
		snprintf(err, errlen, "ds.store: not set; expected the folder for the objects");
		return -EINVAL;
	}
	if (ds_dirs_parse(conf_str(c, "ds.store"), dirs, &ndirs, err, errlen))
		return -EINVAL;
	ds_dirs_free(dirs, ndirs);
	if (labels_parse(conf_str(c, "ds.labels"), strlen(conf_str(c, "ds.labels")), false,
			 ds.d_labels, why, sizeof(why))) {
		snprintf(err, errlen, "ds.labels: %s", why);
		return -EINVAL;
	}
	ds.d_limit.rm_max = (uint32_t)conf_int(c, "ds.connections");
	ds.d_limit.rm_max_addr = (uint32_t)conf_int(c, "ds.connections_of_address");
	rpc_limit_init(&ds.d_limit);
	ds.d_heartbeat_ms = (uint32_t)conf_msec(c, "ds.heartbeat");
	ds.d_lease_ms = (uint32_t)conf_msec(c, "ds.lease");
	ds.d_eof_wait_ms = (uint32_t)conf_msec(c, "ds.eof_wait");
	if (ds.d_heartbeat_ms * 3 > ds.d_lease_ms) {
		snprintf(err, errlen,
			 "ds.heartbeat: must be at most a third of ds.lease, or one lost report "
			 "ends the service");
		return -EINVAL;
	}
	if (st->st_exports) {
		struct exp_table *t = NULL;
		int e = exp_read(conf_str(c, "ds.exports"), &t, err, errlen);

		if (e)
			return e;
		exp_put(t);
	}
	if (place_check(se, err, errlen))
		return -EINVAL;
	return se->se_plan || se->se_values ? 0 : files_check(c, err, errlen);
}

/* Returns -1 to go on, else the exit status. */
static int settings_load(struct settings *se, int argc, char **argv)
{
	static const struct option longs[] = {
		{"config", required_argument, NULL, 'c'}, {"check", optional_argument, NULL, 'k'},
		{"plan", no_argument, NULL, 'p'},	  {"version", no_argument, NULL, 'V'},
		{"help", no_argument, NULL, 'h'},	  {0},
	};
	char err[512] = "";
	int c;

	while ((c = getopt_long(argc, argv, "c:o:h", longs, NULL)) != -1) {
		if (c == 'c')
			se->se_file = optarg;
		else if (c == 'o' && se->se_nsets < sizeof(se->se_sets) / sizeof(se->se_sets[0]))
			se->se_sets[se->se_nsets++] = optarg;
		else if (c == 'k')
			se->se_check = true, se->se_values = optarg && !strcmp(optarg, "values");
		else if (c == 'p')
			se->se_plan = true;
		else if (c == 'V')
			return version_print("weft-ds");
		else
			return ds_main_usage(c == 'h' ? stdout : stderr);
	}
	if (optind != argc)
		return ds_main_usage(stderr);
	if (conf_load(&se->se_conf, se->se_file, err, sizeof(err)))
		goto bad;
	for (unsigned i = 0; i < se->se_nsets; i++)
		if (conf_set(se->se_conf, se->se_sets[i], err, sizeof(err)))
			goto bad;
	log_set_level_name(conf_str(se->se_conf, "log.level"));
	trace_open((unsigned)conf_int(se->se_conf, "log.trace"));
	if (!se->se_check && !se->se_plan &&
	    priv_prepare("ds.user", conf_str(se->se_conf, "ds.user"), err, sizeof(err)))
		goto bad;
	if (settings_check(se, err, sizeof(err)))
		goto bad;
	if (se->se_plan)
		place_print(ds.d_place, stdout);
	return se->se_check || se->se_plan ? 0 : -1;
bad:
	log_error("%s", err);
	return EXIT_USAGE;
}

static int store_start(const struct conf *c, char *err, size_t errlen)
{
	const struct ds_store_opts opts = {
		.so_dir = conf_str(c, "ds.store"),
		.so_name = conf_str(c, "ds.name"),
		.so_uuid = ds_keys_uuid(&ds.d_keys),
		.so_reserve = conf_size(c, "ds.reserve"),
		.so_tomb_keep_ms = TOMB_KEEP_MS,
		.so_poll = conf_bool(c, "ds.iopoll"),
	};
	struct ds_identity id;
	char uuid[33];
	int e;

	/* The store's workers run where they are made. */
	place_stores(ds.d_place);
	e = ds_store_open(&ds.d_store, &opts, err, errlen);
	place_anywhere(ds.d_place);
	if (e)
		return e;
	ds_store_volume_metrics(ds.d_store);
	id = ds_store_identity(ds.d_store);
	e = ds_keys_start(&ds.d_keys, ds.d_store, err, errlen);
	if (e)
		return e;
	log_info("data server %s (%s), store %s", id.id_name,
		 sodium_bin2hex(uuid, sizeof(uuid), id.id_uuid, DS_UUID_LEN), opts.so_dir);
	return 0;
}

/* The MDS proves itself to this server with a key of the cluster instead of a certificate. */
static void tls_peer_key(void)
{
	struct ds_key k;

	ds_keys_own(&ds.d_keys, &k);
	rpc_tls_set_peer_key(ds.d_tls, k.dk_tls);
	sodium_memzero(&k, sizeof(k));
}

static int make_pool(const struct conf *c, char *err, size_t errlen)
{
	char why[256];
	int e;

	place_pool(ds.d_place);
	e = pool_init(conf_size(c, "ds.pool"), why, sizeof(why));

	if (e)
		snprintf(err, errlen, "ds.pool: %s", why);
	return e;
}

static int own_folders(const char *list, char *err, size_t errlen)
{
	char *dirs[DS_VOLUMES_MAX];
	unsigned n;
	int e = ds_dirs_parse(list, dirs, &n, err, errlen);

	if (e)
		return e;
	for (unsigned i = 0; i < n && !e; i++)
		e = priv_own_folder(dirs[i], err, errlen);
	ds_dirs_free(dirs, n);
	return e;
}

/* Does what needs root (certificates, locked memory, rings, ports), then becomes the user. That
 * user owns everything made later. */
static int become_user(struct settings *se, unsigned n, char *err, size_t errlen)
{
	const struct conf *c = se->se_conf;
	char why[400];
	int e = 0;

	if (ds.d_nrdma)
		rpc_rdma_allow();
	if (!e)
		e = make_pool(c, err, errlen);
	if (!e)
		e = ds_main_make_loops(n, conf_bool(c, "ds.iopoll"), err, errlen);
	if (!e && (e = ds_main_listen_all(&se->se_start)))
		snprintf(err, errlen, "%s", se->se_start.st_errtext);
	if (!e && *conf_str(c, "ds.admin")) {
		http_opts_conf(&web, c, "ds");
		e = http_bind(&web.ho_bound, &web, why, sizeof(why));
		if (e)
			snprintf(err, errlen, "ds.admin: %s", why);
	}
	if (!e)
		e = own_folders(conf_str(c, "ds.store"), err, errlen);
	if (!e && se->se_start.st_exports)
		priv_keep(path_capabilities(), "ds.exports");
	return e ? e : priv_drop(err, errlen);
}

/* The threads of path/ keep the privileges that this thread is about to give up. */
static int exports_open(const struct conf *c, char *err, size_t errlen)
{
	const struct path_opts opts = {
		.po_exports = conf_str(c, "ds.exports"),
		.po_store = conf_str(c, "ds.store"),
		.po_threads = (unsigned)conf_int(c, "ds.export_threads"),
		.po_replies = conf_size(c, "ds.export_replies"),
		.po_names_keep_ms = (uint32_t)conf_msec(c, "mds.names_keep"),
	};
	int e;

	if (!*opts.po_exports)
		return 0;
	e = path_open(&ds.d_path, &opts, err, errlen);
	if (!e && (e = priv_keep_no_more()))
		snprintf(err, errlen, "ds.exports: cannot give up privileges: %s", strerror(-e));
	return e;
}

/* Registers the first port of each address family with rpcbind. */
static void ds_main_rpcbind_tell(const struct start *st)
{
	uint16_t port[2] = {0};

	for (int i = 0; i < st->st_nlisten; i++) {
		uint16_t *p = &port[st->st_listen[i].a_ss.ss_family == AF_INET6];

		if (!*p)
			*p = rpc_listener_port(st->st_listener[i]);
	}
	path_rpcbind(port[0], port[1]);
}

static int live_start(struct settings *se)
{
	return live_open(&live, &(struct live_opts){
					.lv_conf = se->se_conf,
					.lv_path = se->se_file,
					.lv_sets = se->se_sets,
					.lv_nsets = se->se_nsets,
					.lv_daemon = "ds",
					.lv_keys = live_keys,
					.lv_nkeys = sizeof(live_keys) / sizeof(live_keys[0]),
				});
}

static int ds_main_serve(struct settings *se, const sigset_t *signals)
{
	const char *admin = conf_str(se->se_conf, "ds.admin");
	const char *metrics = conf_str(se->se_conf, "ds.metrics");
	unsigned n = (unsigned)conf_int(se->se_conf, "ds.threads");
	bool rpcbind = se->se_start.st_exports && conf_bool(se->se_conf, "ds.rpcbind");
	struct http *http = NULL;
	struct scrape *scrape = NULL;
	char err[512] = "", why[400];
	pthread_t threads[64];
	int e, sig;

	place_anywhere(ds.d_place);
	place_log(ds.d_place);
	e = become_user(se, n, err, sizeof(err));
	if (!e)
		e = exports_open(se->se_conf, err, sizeof(err));
	if (!e)
		e = store_start(se->se_conf, err, sizeof(err));
	if (!e && ((e = ds_peer_start(&ds)) || (e = ds_pull_start(&ds))))
		snprintf(err, sizeof(err), "threads: %s", strerror(-e));
	if (!e && ds.d_path)
		e = path_start(ds.d_path, ds.d_keys.ks_key.dk_path,
			       ds_store_identity(ds.d_store).id_uuid, err, sizeof(err));
	if (!e)
		tls_peer_key();
	if (!e && (e = live_start(se)))
		snprintf(err, sizeof(err), "the configuration: %s", strerror(-e));
	if (!e && *admin) {
		e = http_start(&http, &web, routes, sizeof(routes) / sizeof(routes[0]), NULL, why,
			       sizeof(why));
		if (e)
			snprintf(err, sizeof(err), "ds.admin: %s", why);
	}
	if (!e && *metrics)
		e = scrape_start(&scrape, "ds.metrics", metrics, health, NULL, err, sizeof(err));
	if (!e)
		e = main_start_threads(threads, n, err, sizeof(err));
	if (e) {
		log_error("%s", err);
		return 1;
	}
	sem_init(&se->se_start.st_done, 0, 0);
	se->se_start.st_msg.m_run = start_run;
	loop_post(ds.d_loops[0], &se->se_start.st_msg);
	while (sem_wait(&se->se_start.st_done))
		;
	if (se->se_start.st_err) {
		log_error("%s", se->se_start.st_errtext);
		return 1;
	}
	sd_notify(0, "READY=1");
	if (rpcbind)
		ds_main_rpcbind_tell(&se->se_start);
	while (!sigwait(signals, &sig) && sig == SIGHUP) {
		rpc_tls_reload(ds.d_tls);
		if (live_reload(live, err, sizeof(err)))
			log_error("%s; the configuration stays as it was", err);
		if (ds.d_path)
			path_reload(ds.d_path);
	}
	log_info("ending: %s", strsignal(sig));
	sd_notify(0, "STOPPING=1");
	if (rpcbind)
		path_rpcbind_end();
	if (http)
		http_stop(http);
	scrape_stop(scrape);
	for (unsigned i = 0; i < n; i++) {
		loop_stop(ds.d_loops[i]);
		pthread_join(threads[i], NULL);
	}
	ds_store_sync(ds.d_store);
	return 0;
}

int main(int argc, char **argv)
{
	static struct settings se;
	sigset_t signals;
	int rc;

	log_set_name("weft-ds");
	signal(SIGPIPE, SIG_IGN);
	log_faults();
	priv_no_core();
	/* Before any thread is made: all inherit the mask, and only main takes signals. */
	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	umask(077);
	if (sodium_init() < 0) {
		log_error("cannot initialize libsodium");
		return 1;
	}
	metrics_init();
	rc = settings_load(&se, argc, argv);
	if (rc < 0) {
		version_log();
		rc = ds_main_serve(&se, &signals);
	}
	/* Not exit(): connections are open, and their memory needs no tidying. The file system
	 * already has all data. */
	fflush(NULL);
	_exit(rc);
}
