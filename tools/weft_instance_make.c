/* SPDX-License-Identifier: Apache-2.0 */
/* weft_instance_make.c - weft instance make: makes this machine a node of an instance. It writes a
 * configuration, the store's folder and the line of weft-addr, and starts the unit weft-mds@N. */
#include "tools/weft_tool.h"
#include "tools/weft_cluster.h"
#include "base/conf.h"
#include "pg/pg.h"
#include "proto/ctl_instances.h"
#include <arpa/inet.h>
#include <errno.h>
#include <glob.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#define EXPORTS	  "/etc/weft/exports"
#define MDS_KEY	  "/etc/weft/cluster.key"
#define ADDR_CONF "/etc/weft/addr.conf"

const struct weft_opt instance_make_options[] = {
	{"address", 0, "ADDRESS", "the instance's own, which moves with it; needed"},
	{"interface", 0, "IFACE", "where weft-addr puts it on this machine; needed"},
	{"log", 0, "CONNINFO", "PostgreSQL, as libpq's connection string (mds.log of the file)"},
	{"pg-init", 0, "CONNINFO", "make the instance there too, as the tables' owner"},
	{"cluster", 0, "UUID", "the cluster's, as weft status says; for all but the first one"},
	{"node", 0, "NAME", "this machine's name among the nodes (its host name)"},
	{"rank", 0, "MS", "a standby here takes over so much later (0)"},
	{"dry-run", 0, NULL, "change nothing: print each file and each command"},
	{"force", 0, NULL, "a file that is there is kept as NAME.before"},
	{"root", 0, "DIR", "make the files below DIR, for an image; start nothing"},
	{0}};

struct make {
	struct plan mk_plan;
	unsigned mk_n, mk_conf; /* the step of the configuration */
	bool mk_has;		/* weft-addr's has the address already */
	const char *mk_addr, *mk_iface, *mk_log, *mk_cluster, *mk_node;
	long mk_rank;
	struct sockaddr_storage mk_ss;
	char mk_path[64], mk_store[64], mk_run[32], mk_unit[40];
	struct ctl_instances
		mk_known; /* of this machine's configurations, the own one among them */
};

/* ---- the other instances ---- */

/* What is no list of addresses names none: weft-mds says so of its own configuration. */
static void know(struct make *mk, const char *list)
{
	struct ctl_instances one, *all = &mk->mk_known;
	char err[200];

	if (ctl_instances_parse("mds.instances", list, 2049, &one, err, sizeof(err)))
		return;
	for (unsigned i = 0; i < one.ci_n && all->ci_n < CTL_INSTANCES_MAX; i++) {
		unsigned k = 0;

		while (k < all->ci_n && memcmp(all->ci_addr[k], one.ci_addr[i], CTL_INSTANCE_LEN))
			k++;
		if (k == all->ci_n)
			memcpy(all->ci_addr[all->ci_n++], one.ci_addr[i], CTL_INSTANCE_LEN);
	}
}

static void know_of(struct make *mk, const char *file)
{
	struct conf *c;
	char err[400];
	int64_t fs;

	if (conf_load(&c, file, err, sizeof(err)))
		return; /* check_other refuses it */
	fs = conf_int(c, "mds.fs");
	if (*conf_str(c, "mds.cluster_key") && (fs ? fs : 1) != mk->mk_n) {
		know(mk, *conf_str(c, "mds.addresses") ? conf_str(c, "mds.addresses")
						       : conf_str(c, "mds.listen"));
		know(mk, conf_str(c, "mds.instances"));
	}
	conf_free(c);
}

static int by_address(const void *a, const void *b)
{
	return memcmp(a, b, CTL_INSTANCE_LEN);
}

/* In one order, whatever this machine's configurations are called. */
static void know_all(struct make *mk)
{
	char pattern[PATH_MAX], main_conf[PATH_MAX];
	glob_t g;

	if (!plan_path(&mk->mk_plan, "/etc/weft/mds-*.conf", pattern) ||
	    !plan_path(&mk->mk_plan, "/etc/weft/weft.conf", main_conf))
		return;
	know(mk, mk->mk_addr);
	if (plan_there(&mk->mk_plan, "/etc/weft/weft.conf"))
		know_of(mk, main_conf);
	if (!glob(pattern, 0, NULL, &g)) {
		for (size_t i = 0; i < g.gl_pathc; i++)
			know_of(mk, g.gl_pathv[i]);
		globfree(&g);
	}
	qsort(mk->mk_known.ci_addr, mk->mk_known.ci_n, CTL_INSTANCE_LEN, by_address);
}

/* The line of mds.instances, "" where no other instance is known. NULL: no memory. */
static char *known_conf(struct make *mk)
{
	char list[CTL_INSTANCES_MAX * 64] = "";
	size_t at = 0;

	know_all(mk);
	for (unsigned i = 0; i < mk->mk_known.ci_n; i++) {
		struct sockaddr_storage ss;
		char host[INET6_ADDRSTRLEN] = "";
		socklen_t len;
		uint16_t port;
		bool six;

		if (!ctl_instance_addr(mk->mk_known.ci_addr[i], &ss, &len))
			continue;
		six = ss.ss_family == AF_INET6;
		port = ntohs(six ? ((struct sockaddr_in6 *)&ss)->sin6_port
				 : ((struct sockaddr_in *)&ss)->sin_port);
		inet_ntop(ss.ss_family,
			  six ? (void *)&((struct sockaddr_in6 *)&ss)->sin6_addr
			      : (void *)&((struct sockaddr_in *)&ss)->sin_addr,
			  host, sizeof(host));
		at += (size_t)snprintf(list + at, sizeof(list) - at, "%s%s%s%s", at ? ", " : "",
				       six ? "[" : "", host, six ? "]" : "");
		if (port != 2049)
			at += (size_t)snprintf(list + at, sizeof(list) - at, ":%u", port);
	}
	if (mk->mk_known.ci_n < 2)
		return plan_text("%s", "");
	return plan_text("\t# All instances that this machine knew, for the data servers.\n"
			 "\tinstances = \"%s\"\n",
			 list);
}

static char *make_conf(struct make *mk)
{
	char *known = known_conf(mk);
	char *fs = mk->mk_cluster
			   ? plan_text("\t# Its file system in the cluster (docs/instances.md).\n"
				       "\tfs = %u\n\tcluster = %s\n",
				       mk->mk_n, mk->mk_cluster)
			   : plan_text("%s", "");
	char *node = mk->mk_node ? plan_text("\t# This machine, in weft instance list.\n"
					     "\tnode = %s\n",
					     mk->mk_node)
				 : plan_text("%s", "");
	char *text = plan_text(
		"# %s, made by weft instance make, for the unit weft-mds@%u.\n"
		"# The other nodes of the instance have the same, but for node and log_rank.\n"
		"# weft-mds(8) lists all keys. Try a change with: runuser -u weft -- weft-mds -c "
		"%s --check\n"
		"mds {\n"
		"\t# A folder of user weft: the copy of the log that this node has.\n"
		"\tstore = %s\n"
		"\t# What clients mount. The address moves with the instance.\n"
		"\tlisten = \"%s:2049\"\n"
		"\t# weft-addr(8) holds it here while this node has the instance.\n"
		"\taddresses = \"%s\"\n"
		"\t# Where weft(1) asks, with --admin.\n"
		"\tadmin = unix:/run/%s/admin\n"
		"\t# Who may mount what: weft-exports(5). The same on all nodes.\n"
		"\texports = " EXPORTS "\n"
		"\t# The key of the cluster: the same on all machines.\n"
		"\tcluster_key = " MDS_KEY "\n"
		"%s%s%s"
		"\t# After a takeover others wait so long for a client that failed with the node.\n"
		"\tlease = 8s\n"
		"\tgrace = 10s\n"
		"\t# The log, in PostgreSQL (docs/ha.md).\n"
		"\tlog = \"postgresql:%s\"\n"
		"\t# Of several standbys, each has another one.\n"
		"\tlog_rank = %ldms\n"
		"}\n",
		mk->mk_path, mk->mk_n, mk->mk_path, mk->mk_store, mk->mk_addr, mk->mk_addr,
		mk->mk_run, fs ? fs : "", node ? node : "", known ? known : "", mk->mk_log,
		mk->mk_rank);

	if (!fs || !node || !known) {
		free(text);
		text = NULL;
	}
	free(known);
	free(fs);
	free(node);
	return text;
}

/* Has weft-addr's configuration the address? *joins: a line behind it would join its last one. */
static bool has_address(const struct make *mk, bool *joins)
{
	char *text = plan_text_of(&mk->mk_plan, ADDR_CONF);
	size_t n = strlen(mk->mk_addr), len = text ? strlen(text) : 0;
	bool there = false;

	*joins = len && text[len - 1] != '\n';
	for (const char *line = text; line && *line;
	     line += strcspn(line, "\n"), line += *line != 0)
		there |= !strncmp(line, mk->mk_addr, n) && line[n] && strchr(" \t/", line[n]);
	free(text);
	return there;
}

static bool same_addr(const struct sockaddr *a, const struct sockaddr_storage *b)
{
	if (!a || a->sa_family != b->ss_family)
		return false;
	if (a->sa_family == AF_INET)
		return ((const struct sockaddr_in *)a)->sin_addr.s_addr ==
		       ((const struct sockaddr_in *)b)->sin_addr.s_addr;
	return a->sa_family == AF_INET6 &&
	       !memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr,
		       &((const struct sockaddr_in6 *)b)->sin6_addr, 16);
}

/* ---- checks ---- */

/* Was this machine a node of the instance before? With --force its configuration may change. */
static bool make_again(const struct make *mk)
{
	const struct plan_step *conf = &mk->mk_plan.pl_step[mk->mk_conf];

	return conf->ps_there || conf->ps_aside;
}

/* An address that moves is no machine's own. Where the instance was made before, it may be here. */
static int check_address(struct make *mk)
{
	struct plan *p = &mk->mk_plan;
	struct ifaddrs *all;
	const char *on = NULL;
	int rc = EXIT_DONE;

	if (*p->pl_root)
		return EXIT_DONE;
	if (!if_nametoindex(mk->mk_iface))
		return plan_refuse(p, "--interface %s: this machine has no such interface",
				   mk->mk_iface);
	if (p->pl_step[mk->mk_conf].ps_there || (make_again(mk) && mk->mk_has))
		return EXIT_DONE;
	if (getifaddrs(&all))
		return plan_refuse(p, "cannot list the addresses of this machine: %s",
				   strerror(errno));
	for (const struct ifaddrs *i = all; i && !on; i = i->ifa_next)
		if (same_addr(i->ifa_addr, &mk->mk_ss))
			on = i->ifa_name;
	if (on)
		rc = plan_refuse(p,
				 "--address %s: is this machine's own, on %s; an instance needs an "
				 "address that moves with it",
				 mk->mk_addr, on);
	freeifaddrs(all);
	if (!rc)
		plan_ok(p, "address %s is on no interface here: it may move", mk->mk_addr);
	return rc;
}

/* Does this other configuration stand in the way? */
static int check_other(struct make *mk, const char *file)
{
	struct plan *p = &mk->mk_plan;
	const char *listen;
	struct conf *c;
	char err[400];
	int64_t fs;
	int rc = EXIT_DONE;

	if (conf_load(&c, file, err, sizeof(err)))
		return plan_refuse(p, "%s", err);
	fs = conf_int(c, "mds.fs");
	listen = conf_str(c, "mds.listen");
	if (*conf_str(c, "mds.cluster_key") == 0 && *conf_str(c, "mds.log") == 0)
		;
	else if ((fs ? fs : 1) == mk->mk_n)
		rc = plan_refuse(p, "%s: has instance %u on this machine already", file, mk->mk_n);
	else if (strstr(listen, "0.0.0.0") || strstr(listen, "[::]") || strchr(listen, '*'))
		rc = plan_refuse(p,
				 "%s: listens on all addresses (mds.listen), so that no other "
				 "instance can listen here: name its address there",
				 file);
	else if (strstr(listen, mk->mk_addr) || strstr(conf_str(c, "mds.addresses"), mk->mk_addr))
		rc = plan_refuse(p, "%s: uses the address %s", file, mk->mk_addr);
	else if (!strcmp(conf_str(c, "mds.store"), mk->mk_store))
		rc = plan_refuse(p, "%s: uses the store %s", file, mk->mk_store);
	conf_free(c);
	return rc;
}

static int check_others(struct make *mk)
{
	struct plan *p = &mk->mk_plan;
	char pattern[PATH_MAX], own[PATH_MAX], main_conf[PATH_MAX];
	int rc = EXIT_DONE;
	glob_t g;

	if (!plan_path(p, "/etc/weft/mds-*.conf", pattern) || !plan_path(p, mk->mk_path, own) ||
	    !plan_path(p, "/etc/weft/weft.conf", main_conf))
		return plan_refuse(p, "--root: too long");
	if (plan_there(p, "/etc/weft/weft.conf"))
		rc = check_other(mk, main_conf);
	if (rc || glob(pattern, 0, NULL, &g))
		return rc;
	for (size_t i = 0; i < g.gl_pathc && !rc; i++)
		if (strcmp(g.gl_pathv[i], own))
			rc = check_other(mk, g.gl_pathv[i]);
	globfree(&g);
	return rc;
}

static int make_checks(struct make *mk)
{
	struct plan *p = &mk->mk_plan;
	int rc = check_others(mk);

	if (!rc && !plan_there(p, MDS_KEY))
		rc = plan_refuse(p,
				 "%s" MDS_KEY ": is missing: copy it here from the first metadata "
				 "server, with owner root, group weft, mode 0440",
				 p->pl_root);
	if (!rc && !plan_there(p, EXPORTS))
		rc = plan_refuse(p, "%s" EXPORTS ": is missing: all nodes have the same one",
				 p->pl_root);
	if (!rc)
		rc = check_address(mk);
	if (!rc)
		rc = check_store(p, mk->mk_store, false, make_again(mk));
	if (rc)
		return rc;
	check_limits(p);
	check_own_clock(p);
	return EXIT_DONE;
}

/* ---- the plan ---- */

static void make_commands(struct make *mk, bool addr)
{
	struct plan *p = &mk->mk_plan;

	if (*p->pl_root) {
		plan_command(p, "systemctl --root=%s enable weft-addr.service %s", p->pl_root,
			     mk->mk_unit);
	} else if (p->pl_systemd) {
		/* It reads its lines at its start alone. */
		plan_command(p, "systemctl enable weft-addr.service");
		plan_command(p, "systemctl %s weft-addr.service", addr ? "restart" : "start");
		plan_command(p, "systemctl enable %s", mk->mk_unit);
		plan_command(p, "systemctl %s %s", plan_replaces(p) ? "restart" : "start",
			     mk->mk_unit);
	} else {
		plan_command(p, "install -d -o weft -g weft -m 0750 /run/%s", mk->mk_run);
		plan_command(p, "weft-addr -c " ADDR_CONF " &");
		plan_command(p, "setpriv --reuid=weft --regid=weft --init-groups weft-mds -c %s &",
			     mk->mk_path);
	}
}

static int make_plan(struct make *mk)
{
	struct plan *p = &mk->mk_plan;
	bool joins, new = !plan_there(p, ADDR_CONF);
	int rc;

	mk->mk_has = has_address(mk, &joins);
	plan_folder(p, "/etc/weft", PLAN_ROOT_WEFT, 0750);
	plan_folder(p, "/var/lib/weft", PLAN_WEFT, 0700);
	plan_folder(p, mk->mk_store, PLAN_WEFT, 0700);
	mk->mk_conf = p->pl_n;
	plan_file(p, mk->mk_path, PLAN_ROOT_WEFT, 0640, make_conf(mk), false);
	if (new)
		plan_file(p, ADDR_CONF, PLAN_ROOT_WEFT, 0644,
			  plan_text("# Addresses that weft-addr may hold on this machine.\n%s %s\n",
				    mk->mk_addr, mk->mk_iface),
			  false);
	else if (!mk->mk_has)
		/* Lines of others stay. */
		plan_command(p, joins ? "printf '\\n%%s\\n' '%s %s' >>%s%s" : "echo %s %s >>%s%s",
			     mk->mk_addr, mk->mk_iface, p->pl_root, ADDR_CONF);
	rc = plan_look(p);
	if (!rc)
		rc = make_checks(mk);
	make_commands(mk, new || !mk->mk_has);
	return rc;
}

static int make_pg(struct make *mk)
{
	struct plan *p = &mk->mk_plan;
	const char *info = weft_option("pg-init");
	struct pg_init i = {.i_conninfo = info, .i_role = "weft", .i_inst = mk->mk_n};
	char why[PG_WHY];

	if (!info || p->pl_dry) {
		if (!weft_json)
			printf("to do, once, as the owner of the database: weft pg init --instance "
			       "%u %s\n",
			       mk->mk_n, info ? info : "CONNINFO");
		return EXIT_DONE;
	}
	if (pg_init(&i, why))
		return plan_refuse(p, "weft pg init: %s", why);
	plan_ok(p, "instance %u is in PostgreSQL", mk->mk_n);
	return EXIT_DONE;
}

static int make_arguments(struct make *mk, const char *number)
{
	struct plan *p = &mk->mk_plan;
	const char *rank = weft_option("rank"), *init = weft_option("pg-init");
	char why[PG_WHY], *end;
	socklen_t len;
	long n = strtol(number, &end, 10);

	if (!*number || *end || n < 1 || n > 65535)
		return weft_usage_error("an instance is a number from 1 to 65535");
	mk->mk_n = (unsigned)n;
	mk->mk_rank = rank ? strtol(rank, &end, 10) : 0;
	if (rank && (!*rank || *end || mk->mk_rank < 0 || mk->mk_rank > 60000))
		return weft_usage_error("--rank: milliseconds from 0 to 60000 are wanted");
	if (!mk->mk_addr || !mk->mk_iface || !mk->mk_log)
		return weft_usage_error("--address, --interface and --log are needed");
	if (pg_has_password(mk->mk_log) || (init && pg_has_password(init)))
		return weft_usage_error("a password is seen in the list of processes: use "
					"passfile= or service=");
	if (pg_conninfo_check(mk->mk_log, why))
		return plan_refuse(p, "--log: %s", why);
	if (strpbrk(mk->mk_log, "\"\\\n$") || strpbrk(mk->mk_iface, " \t\n#'\"`&|<>()") ||
	    (mk->mk_node && mk->mk_node[strcspn(mk->mk_node, " \t\n\"'\\{}#$;")]))
		return plan_refuse(p, "a quote, a backslash or a blank cannot stand there");
	if (rpc_addr_parse(mk->mk_addr, 2049, &mk->mk_ss, &len) || strchr(mk->mk_addr, '[') ||
	    (strchr(mk->mk_addr, ':') && mk->mk_ss.ss_family == AF_INET))
		return plan_refuse(p, "--address %s: expected an address without a port",
				   mk->mk_addr);
	if (mk->mk_n != 1 && !mk->mk_cluster)
		return plan_refuse(p, "--cluster UUID is needed: weft status of the first metadata "
				      "server says which");
	if (mk->mk_cluster && strspn(mk->mk_cluster, "0123456789abcdef-") != strlen(mk->mk_cluster))
		return plan_refuse(p, "--cluster: expected a uuid");
	return EXIT_DONE;
}

int cmd_instance_make(char **args)
{
	struct make mk = {.mk_addr = weft_option("address"),
			  .mk_iface = weft_option("interface"),
			  .mk_log = weft_option("log"),
			  .mk_cluster = weft_option("cluster"),
			  .mk_node = weft_option("node")};
	struct plan *p = &mk.mk_plan;
	int rc = plan_begin(p);

	if (!rc)
		rc = make_arguments(&mk, args[0]);
	if (rc)
		return plan_end(p, rc);
	snprintf(mk.mk_path, sizeof(mk.mk_path), "/etc/weft/mds-%u.conf", mk.mk_n);
	snprintf(mk.mk_store, sizeof(mk.mk_store), "/var/lib/weft/mds-%u", mk.mk_n);
	snprintf(mk.mk_run, sizeof(mk.mk_run), "weft-mds-%u", mk.mk_n);
	snprintf(mk.mk_unit, sizeof(mk.mk_unit), "weft-mds@%u.service", mk.mk_n);
	rc = make_plan(&mk);
	if (!rc)
		rc = make_pg(&mk);
	if (!rc && !weft_json && mk.mk_known.ci_n > 1)
		puts("to do, on each node of the other instances: mds.instances as in this one's "
		     "configuration");
	if (!rc)
		rc = plan_run(p, p->pl_n);
	if (!rc && !weft_json)
		puts(p->pl_dry ? "Nothing was changed."
			       : "Do the same on the other nodes. \"weft instance list\" shows all "
				 "of them.");
	return plan_end(p, rc);
}
