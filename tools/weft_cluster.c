/* SPDX-License-Identifier: Apache-2.0 */
/* weft_cluster.c - weft cluster init, join and key: from installed packages to a cluster of several
 * machines (docs/start.md). */
#include "tools/weft_cluster.h"
#include "common/check.h"
#include "common/exports.h"
#include "tools/http_get.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define MDS_PORT   2049
#define DS_PORT	   2050
#define MDS_CONF   "/etc/weft/weft.conf"
#define MDS_KEY	   "/etc/weft/cluster.key"
#define EXPORTS	   "/etc/weft/exports"
#define MDS_STORE  "/var/lib/weft/mds"
#define UNIT_DROPS "/etc/systemd/system"
#define SERVE_S	   60 /* how long a data server may take to join */

/* ---- what both commands write ---- */

/* A unit may write in some folders only; any other store needs a drop-in. */
static void cluster_drop_in(struct plan *p, const char *unit, const char *store, bool usual)
{
	char path[PATH_MAX];

	if (usual)
		return;
	snprintf(path, sizeof(path), UNIT_DROPS "/%s.d/store.conf", unit);
	plan_file(p, path, PLAN_ROOT, 0644,
		  plan_text("# Made by weft cluster. The unit may write into this store, and waits "
			    "for its mount.\n[Unit]\nRequiresMountsFor=%s\n\n[Service]\n"
			    "ReadWritePaths=%s\n",
			    store, store),
		  false);
}

/* The commands that start a daemon. */
static void cluster_start(struct plan *p, const char *unit, const char *program, const char *conf,
			  const char *run, bool drop_in)
{
	if (*p->pl_root) {
		plan_command(p, "systemctl --root=%s enable %s", p->pl_root, unit);
	} else if (p->pl_systemd) {
		if (drop_in)
			plan_command(p, "systemctl daemon-reload");
		plan_command(p, "systemctl enable --now %s", unit);
	} else {
		plan_command(p, "install -d -o weft -g weft -m 0750 /run/%s", run);
		plan_command(p, "setpriv --reuid=weft --regid=weft --init-groups %s -c %s &",
			     program, conf);
	}
}

/* Looks at the plan. A daemon that runs with another configuration has to start again. */
static int cluster_look(struct plan *p, const char *unit)
{
	int rc = plan_look(p);

	if (!rc && p->pl_systemd && plan_replaces(p))
		plan_command(p, "systemctl restart %s", unit);
	return rc;
}

/* ---- weft cluster init ---- */

struct init {
	struct plan in_plan;
	struct own_addr in_addr;
	const char *in_store, *in_clients;
	unsigned in_conf; /* the step of weft.conf */
};

static char *init_conf(const struct init *in)
{
	unsigned threads = check_threads(), pool = check_pool_mib(64, 32, 512);

	return plan_text(
		"# " MDS_CONF ", made by weft cluster init. weft-mds(8) lists all keys.\n"
		"# Try a change with: runuser -u weft -- weft-mds -c " MDS_CONF " --check\n"
		"mds {\n"
		"\t# What clients mount, and what data servers join. Several: with commas "
		"between.\n"
		"\tlisten = \"%s\"\n"
		"\t# A folder of user weft, on a disk that keeps what it has synced.\n"
		"\tstore = %s\n"
		"\t# Who may mount what: weft-exports(5).\n"
		"\texports = " EXPORTS "\n"
		"\t# With this file one can pretend to be each server: it leaves this machine "
		"never.\n"
		"\tcluster_key = " MDS_KEY "\n"
		"\t# Where weft(1) asks: root, user weft and its group may change things.\n"
		"\tadmin = unix:/run/weft-mds/admin\n"
		"\t# One for each processor of this machine, 16 at most.\n"
		"\tthreads = %u\n"
		"\t# For data that goes through the metadata server, which is little: a 64th of\n"
		"\t# this machine's memory, between 32M and 512M.\n"
		"\tpool = %uM\n"
		"}\n",
		in->in_addr.oa_text, in->in_store, threads, pool);
}

/* clang-format off */
static const char exports_text[] =
	"# " EXPORTS ", made by weft cluster init: who may use which part of the file\n"
	"# system. weft-exports(5) has all words. After a change: weft exports reload\n"
	"export \"/\" {\n"
	"\t# This machine's root is root here too: it makes the first folders and gives\n"
	"\t# them to users. The first section that fits a client decides.\n"
	"\tclient \"%s\" { access = rw  squash = none }\n"
	"%s}\n";
/* clang-format on */

static char *init_exports(const struct init *in)
{
	/* a pattern may stand in one section only */
	bool same = !strcmp(in->in_clients, in->in_addr.oa_host);
	char *text, *clients = same ? strdup("")
				    : plan_text("\t# The clients; their root is nobody.\n"
						"\tclient \"%s\" { access = rw  squash = root }\n",
						in->in_clients);

	text = clients ? plan_text(exports_text, in->in_addr.oa_host, clients) : NULL;
	free(clients);
	return text;
}

static char *init_key(void)
{
	uint8_t key[CHECK_KEY_LEN];
	char hex[2 * CHECK_KEY_LEN + 1], *text;

	randombytes_buf(key, sizeof(key));
	sodium_bin2hex(hex, sizeof(hex), key, sizeof(key));
	text = plan_text("%s\n", hex);
	sodium_memzero(key, sizeof(key));
	sodium_memzero(hex, sizeof(hex));
	return text;
}

static int init_exports_good(struct plan *p, const char *text)
{
	struct exp_table *t;
	char err[500];

	if (!text)
		return plan_refuse(p, "out of memory");
	if (exp_parse(text, EXPORTS, &t, err, sizeof(err)))
		return plan_refuse(p, "--clients: %s", err);
	exp_put(t);
	return EXIT_DONE;
}

static int init_plan(struct init *in)
{
	struct plan *p = &in->in_plan;
	bool usual = !strncmp(in->in_store, "/var/lib/weft/", 14) ||
		     !strncmp(in->in_store, "/srv/weft/", 10);
	char *exports = init_exports(in);
	int rc = init_exports_good(p, exports);

	if (rc) {
		free(exports);
		return rc;
	}
	plan_folder(p, "/etc/weft", PLAN_ROOT_WEFT, 0750);
	if (!plan_there(p, MDS_KEY))
		plan_file(p, MDS_KEY, PLAN_ROOT_WEFT, 0440, init_key(), true);
	plan_file(p, EXPORTS, PLAN_ROOT_WEFT, 0640, exports, false);
	if (!strncmp(in->in_store, "/var/lib/weft/", 14))
		plan_folder(p, "/var/lib/weft", PLAN_WEFT, 0700);
	plan_folder(p, in->in_store, PLAN_WEFT, 0700);
	cluster_drop_in(p, "weft-mds.service", in->in_store, usual);
	in->in_conf = p->pl_n;
	plan_file(p, MDS_CONF, PLAN_ROOT_WEFT, 0640, init_conf(in), false);
	cluster_start(p, "weft-mds.service", "weft-mds", MDS_CONF, "weft-mds", !usual);
	return cluster_look(p, "weft-mds.service");
}

/* The key of an earlier run is kept whatever --force says: all data servers' keys come from it. */
static int init_old_key(struct plan *p, bool ours)
{
	uint8_t key[CHECK_KEY_LEN];
	char full[PATH_MAX], err[400];

	if (!plan_path(p, MDS_KEY, full))
		return plan_refuse(p, "%s: too long", MDS_KEY);
	if (!plan_there(p, MDS_KEY))
		return ours ? plan_refuse(p,
					  "%s: is missing, and the cluster that " MDS_CONF
					  " describes needs it: put it back",
					  full)
			    : EXIT_DONE;
	/* only root can read it, and so know whether it is good */
	if (geteuid())
		return EXIT_DONE;
	if (check_cluster_key("cluster key", full, key, err, sizeof(err)))
		return plan_refuse(p, "%s", err);
	sodium_memzero(key, sizeof(key));
	plan_ok(p, "%s is there already, and stays", full);
	return EXIT_DONE;
}

static int init_checks(struct init *in)
{
	struct plan *p = &in->in_plan;
	bool ours = p->pl_step[in->in_conf].ps_there;
	int rc = init_old_key(p, ours), err;

	if (!rc)
		rc = check_store(p, in->in_store, false, ours);
	err = rc || ours || *p->pl_root ? 0 : check_port(&in->in_addr);
	if (err)
		return plan_refuse(p, "%s: %s; does another NFS server run here?",
				   in->in_addr.oa_text, strerror(err));
	if (rc)
		return rc;
	check_names(p, &in->in_addr);
	check_limits(p);
	check_own_clock(p);
	return EXIT_DONE;
}

static void init_next(struct init *in)
{
	if (weft_json)
		return;
	if (in->in_plan.pl_dry)
		puts("Nothing was changed.");
	else
		printf("%s\nFor each data server, \"weft cluster key\" on this machine makes a "
		       "token; on its own machine run \"weft cluster join -\".\n"
		       "Clients mount %s:/\n",
		       in->in_plan.pl_systemd
			       ? "weft-mds serves."
			       : "The files are made. Do what stands behind \"to do\".",
		       in->in_addr.oa_host);
}

int cmd_cluster_init(char **args)
{
	struct init in = {.in_store = weft_option("store"), .in_clients = weft_option("clients")};
	struct plan *p = &in.in_plan;
	int rc;

	if (sodium_init() < 0)
		return EXIT_FAILED;
	rc = plan_begin(p);
	if (!in.in_store)
		in.in_store = MDS_STORE;
	if (!rc)
		rc = check_own_address(p, args[0], MDS_PORT, weft_option("alone") != NULL,
				       &in.in_addr);
	if (!rc && !in.in_clients)
		in.in_clients = in.in_addr.oa_net;
	if (!rc && strpbrk(in.in_clients, "\"\\\n$"))
		rc = plan_refuse(p, "--clients: expected networks, hosts or @netgroups");
	if (!rc)
		rc = init_plan(&in);
	if (!rc)
		rc = init_checks(&in);
	if (!rc)
		rc = plan_run(p, p->pl_n);
	if (!rc)
		init_next(&in);
	return plan_end(p, rc);
}

/* ---- weft cluster join ---- */

struct join {
	struct plan jn_plan;
	struct join_ticket jn_ticket;
	struct own_addr jn_addr;
	const char *jn_store;
	char jn_usual[PATH_MAX]; /* the store where the unit looks for it */
	char jn_conf[PATH_MAX], jn_key[PATH_MAX], jn_claim[PATH_MAX];
	uint8_t jn_secret[CTL_CLAIM_LEN]; /* of the claim */
	uint8_t jn_server[16];		  /* whose the key of an earlier run is */
	unsigned jn_key_step, jn_conf_step;
	bool jn_has_key; /* of an earlier run */
};

/* Reads a line; a terminal does not show what is typed. */
static bool join_read(char *line, int size)
{
	bool tty = isatty(STDIN_FILENO), ok;
	struct termios was, quiet;

	tty = tty && !tcgetattr(STDIN_FILENO, &was);
	if (tty) {
		quiet = was;
		quiet.c_lflag &= ~(tcflag_t)ECHO;
		tcsetattr(STDIN_FILENO, TCSAFLUSH, &quiet);
		fputs("The token of \"weft cluster key\" (it is not shown): ", stderr);
	}
	ok = fgets(line, size, stdin) != NULL;
	if (tty) {
		tcsetattr(STDIN_FILENO, TCSAFLUSH, &was);
		fputc('\n', stderr);
	}
	return ok;
}

/* The token: what stands on standard input, or an argument, which then is erased: ps shows it. */
static int join_token(struct join *jn, char *text)
{
	char line[1000] = "";
	const char *why;

	if (!strcmp(text, "-")) {
		if (!join_read(line, sizeof(line)))
			return plan_refuse(&jn->jn_plan, "no token on standard input");
		text = line;
	}
	why = ticket_parse(text, &jn->jn_ticket);
	if (text != line)
		memset(text, '-', strlen(text));
	sodium_memzero(line, sizeof(line));
	return why ? plan_refuse(&jn->jn_plan, "%s", why) : EXIT_DONE;
}

/* The address with which this machine reaches the metadata server. Sends nothing. */
static bool join_local(const char *mds, char out[ADDR_TEXT])
{
	struct sockaddr_storage ss;
	socklen_t len;
	bool ok = false;
	int fd;

	if (rpc_addr_parse(mds, MDS_PORT, &ss, &len))
		return false;
	fd = socket(ss.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && !connect(fd, (struct sockaddr *)&ss, len)) {
		len = sizeof(ss);
		ok = !getsockname(fd, (struct sockaddr *)&ss, &len) &&
		     inet_ntop(ss.ss_family,
			       ss.ss_family == AF_INET6
				       ? (void *)&((struct sockaddr_in6 *)&ss)->sin6_addr
				       : (void *)&((struct sockaddr_in *)&ss)->sin_addr,
			       out, ADDR_TEXT);
	}
	if (fd >= 0)
		close(fd);
	return ok;
}

/* The address of an earlier run's configuration; its port is this data server's own. */
static bool join_listens(const struct plan *p, const char *conf, char out[ADDR_TEXT])
{
	char *text = plan_text_of(p, conf), *at = text ? strstr(text, "\n\tlisten = \"") : NULL;
	bool found = at && sscanf(at, "\n\tlisten = \"%79[^\"]\"", out) == 1;

	free(text);
	return found;
}

static int join_address(struct join *jn)
{
	struct plan *p = &jn->jn_plan;
	const char *given = weft_option("address"), *mds = jn->jn_ticket.jo_mds;
	char own[ADDR_TEXT], before[ADDR_TEXT];
	bool again = join_listens(p, jn->jn_conf, before), port;
	int rc, err;

	if (!given && again)
		given = before;
	if (!given && !join_local(mds, own))
		return plan_refuse(p, "no way to the metadata server at %s: %s", mds,
				   strerror(errno));
	rc = check_own_address(p, given ? given : own, DS_PORT,
			       !strncmp(mds, "127.", 4) || !strncmp(mds, "[::1]", 5), &jn->jn_addr);
	if (rc || again || *p->pl_root)
		return rc;
	port = given && strcmp(given, jn->jn_addr.oa_host);
	err = port ? check_port(&jn->jn_addr) : 0;
	if (err)
		return plan_refuse(p, "%s: %s", jn->jn_addr.oa_text, strerror(err));
	return port ? EXIT_DONE : check_next_port(p, &jn->jn_addr);
}

static char *join_conf(const struct join *jn)
{
	const char *name = jn->jn_ticket.jo_name;
	unsigned threads = check_threads(), pool = check_pool_mib(32, 64, 4096);

	return plan_text(
		"# %s, made by weft cluster join, for the unit weft-ds@%s.\n"
		"# weft-ds(8) lists all keys. Try a change with: runuser -u weft -- weft-ds -c %s "
		"--check\n"
		"ds {\n"
		"\tname = %s\n"
		"\t# A folder of user weft on XFS or ext4.\n"
		"\tstore = %s\n"
		"\t# What clients are given. Several networks: with commas between.\n"
		"\tlisten = \"%s\"\n"
		"\t# The metadata server.\n"
		"\tmds = \"%s\"\n"
		"\t# Where weft(1) asks, with --admin.\n"
		"\tadmin = unix:/run/weft-ds-%s/admin\n"
		"\t# The keys of this data server alone.\n"
		"\tkey = %s\n"
		"\t# One for each processor of this machine, 16 at most.\n"
		"\tthreads = %u\n"
		"\t# A 32nd of this machine's memory, between 64M and 4096M. Each thread locks it\n"
		"\t# once more.\n"
		"\tpool = %uM\n"
		"}\n",
		jn->jn_conf, name, jn->jn_conf, name, jn->jn_store, jn->jn_addr.oa_text,
		jn->jn_ticket.jo_mds, name, jn->jn_key, threads, pool);
}

/* A machine says the same claim each time that it asks with a token: its secret is in a file until
 * the keys are. */
static char *join_claim(struct join *jn)
{
	char *text = plan_text_of(&jn->jn_plan, jn->jn_claim), hex[2 * CTL_CLAIM_LEN + 1];
	size_t len;

	if (text &&
	    !sodium_hex2bin(jn->jn_secret, sizeof(jn->jn_secret), text, strcspn(text, "\n"), NULL,
			    &len, NULL) &&
	    len == sizeof(jn->jn_secret))
		return text;
	free(text);
	randombytes_buf(jn->jn_secret, sizeof(jn->jn_secret));
	sodium_bin2hex(hex, sizeof(hex), jn->jn_secret, sizeof(jn->jn_secret));
	text = plan_text("%s\n", hex);
	sodium_memzero(hex, sizeof(hex));
	return text;
}

/* Is the key of an earlier run one of this name? Whose it is, join_same asks. */
static int join_old_key(struct join *jn)
{
	struct plan *p = &jn->jn_plan;
	char *text, want[CTL_NAME_MAX + 16];
	struct ds_key k = {0};
	const char *why;
	size_t len;
	bool ours;

	jn->jn_has_key = plan_there(p, jn->jn_key);
	if (!jn->jn_has_key || geteuid())
		return EXIT_DONE;
	text = plan_text_of(p, jn->jn_key);
	snprintf(want, sizeof(want), "\nname=%s\n", jn->jn_ticket.jo_name);
	len = text ? strlen(text) : 0; /* before it is cut into lines */
	ours = text && strstr(text, want) && !ds_key_parse(text, &k, &why);
	memcpy(jn->jn_server, k.dk_uuid, sizeof(jn->jn_server));
	if (text)
		sodium_memzero(text, len);
	free(text);
	sodium_memzero(&k, sizeof(k));
	return ours ? EXIT_DONE
		    : plan_refuse(p, "%s%s: is there, and is not the key of %s: move it away",
				  p->pl_root, jn->jn_key, jn->jn_ticket.jo_name);
}

static int join_plan(struct join *jn)
{
	struct plan *p = &jn->jn_plan;
	bool usual = !strcmp(jn->jn_store, jn->jn_usual);
	const char *name = jn->jn_ticket.jo_name;
	char unit[CTL_NAME_MAX + 32], run[CTL_NAME_MAX + 32];
	int rc = join_old_key(jn);

	if (rc)
		return rc;
	snprintf(unit, sizeof(unit), "weft-ds@%s.service", name);
	snprintf(run, sizeof(run), "weft-ds-%s", name);
	plan_folder(p, "/etc/weft", PLAN_ROOT_WEFT, 0750);
	if (!jn->jn_has_key)
		plan_file(p, jn->jn_claim, PLAN_ROOT, 0400, join_claim(jn), true);
	jn->jn_key_step = p->pl_n;
	if (!jn->jn_has_key)
		plan_file(p, jn->jn_key, PLAN_ROOT_WEFT, 0440, plan_text("(secret)\n"), true);
	plan_folder(p, jn->jn_store, PLAN_WEFT, 0700);
	cluster_drop_in(p, unit, jn->jn_store, usual);
	jn->jn_conf_step = p->pl_n;
	plan_file(p, jn->jn_conf, PLAN_ROOT_WEFT, 0640, join_conf(jn), false);
	cluster_start(p, unit, "weft-ds", jn->jn_conf, run, !usual);
	return cluster_look(p, unit);
}

static int cluster_join_refused(struct join *jn, const struct ticket_answer *tx)
{
	const char *name = jn->jn_ticket.jo_name;

	switch (tx->tx_status) {
	case CTL_TOKEN_USED:
		return plan_refuse(&jn->jn_plan,
				   "this token was used before, by another machine or another "
				   "configuration; make a new one with \"weft cluster key %s\"",
				   name);
	case CTL_TOKEN_EXPIRED:
		return plan_refuse(&jn->jn_plan,
				   "this token has expired; make a new one with "
				   "\"weft cluster key %s\"",
				   name);
	case CTL_NAME_TAKEN:
		return plan_refuse(&jn->jn_plan,
				   "another data server is called %s by now; make a "
				   "token for another name",
				   name);
	default:
		return plan_refuse(&jn->jn_plan,
				   "the metadata server at %s refused the token "
				   "(status %d); its log says why",
				   jn->jn_ticket.jo_mds, (int)tx->tx_status);
	}
}

static int join_ask(struct join *jn, ctl_token_step step, struct ticket_answer *tx)
{
	char why[500];

	if (ticket_ask(&jn->jn_ticket, jn->jn_secret, step, tx, why, sizeof(why)))
		return plan_refuse(&jn->jn_plan, "%s", why);
	return tx->tx_status == CTL_OK ? EXIT_DONE : cluster_join_refused(jn, tx);
}

/* The token and the clocks; uses nothing up. */
static int join_look(struct join *jn)
{
	struct ticket_answer tx;
	int rc = join_ask(jn, CTL_TOKEN_LOOK, &tx);

	if (rc)
		return rc;
	plan_ok(&jn->jn_plan, "the metadata server at %s takes the token of %s",
		jn->jn_ticket.jo_mds, jn->jn_ticket.jo_name);
	return check_clocks(&jn->jn_plan, tx.tx_now_us, tx.tx_took_us);
}

static void uuid_text(const uint8_t u[16], char out[37])
{
	for (unsigned i = 0; i < 16; i++)
		out += sprintf(out, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
			       u[i]);
}

/* The key of an earlier run must be that of the token: another cluster may have a data server of
 * this name. A token that was used since then says whose it is. */
static int join_same(struct join *jn)
{
	char theirs[37], ours[37], cluster[37];
	struct plan *p = &jn->jn_plan;
	struct ticket_answer tx;
	int rc;

	/* only root can read it */
	if (geteuid())
		return EXIT_DONE;
	randombytes_buf(jn->jn_secret, sizeof(jn->jn_secret));
	rc = join_ask(jn, CTL_TOKEN_WHOSE, &tx);
	if (rc)
		return rc;
	if (!memcmp(tx.tx_server, jn->jn_server, sizeof(tx.tx_server))) {
		plan_ok(p, "%s%s is there already, and stays", p->pl_root, jn->jn_key);
		return EXIT_DONE;
	}
	uuid_text(tx.tx_server, theirs);
	uuid_text(jn->jn_server, ours);
	uuid_text(tx.tx_cluster, cluster);
	return plan_refuse(
		p,
		"%s%s: is there, and is the key of another data server (%s) than the token's, "
		"%s of the cluster %s at %s: move it away",
		p->pl_root, jn->jn_key, ours, theirs, cluster, jn->jn_ticket.jo_mds);
}

static int join_checks(struct join *jn)
{
	struct plan *p = &jn->jn_plan;
	bool ours = p->pl_step[jn->jn_conf_step].ps_there;
	int rc = check_store(p, jn->jn_store, true, ours);

	if (rc)
		return rc;
	check_names(p, &jn->jn_addr);
	check_limits(p);
	check_own_clock(p);
	return jn->jn_has_key ? join_same(jn) : join_look(jn);
}

/* Gets the keys, and forgets the claim when they are safe. */
static int join_take(struct join *jn)
{
	struct plan *p = &jn->jn_plan;
	char full[PATH_MAX], text[DS_KEY_TEXT];
	struct ticket_answer tx;
	int rc = plan_run(p, jn->jn_key_step);

	if (!rc)
		rc = join_ask(jn, CTL_TOKEN_TAKE, &tx);
	if (rc)
		return rc;
	ds_key_text(&tx.tx_key, jn->jn_ticket.jo_name, text);
	plan_give_text(p, jn->jn_key_step, strdup(text));
	sodium_memzero(text, sizeof(text));
	sodium_memzero(&tx, sizeof(tx));
	rc = p->pl_failed ? plan_refuse(p, "out of memory") : plan_run(p, jn->jn_key_step + 1);
	if (!rc && plan_path(p, jn->jn_claim, full))
		unlink(full);
	return rc;
}

/* Waits until the data server has joined. */
static int join_wait(struct join *jn)
{
	struct plan *p = &jn->jn_plan;
	char addr[PATH_MAX];
	struct http_answer ha = {0};

	snprintf(addr, sizeof(addr), "unix:/run/weft-ds-%s/admin", jn->jn_ticket.jo_name);
	for (unsigned i = 0; i < SERVE_S * 10; i++) {
		ha = (struct http_answer){0};
		if (!http_ask(addr, "GET", "/v1/health?ready", NULL, &ha) && ha.ha_status == 200) {
			free(ha.ha_body);
			plan_ok(p, "data server %s serves", jn->jn_ticket.jo_name);
			return EXIT_DONE;
		}
		if (i + 1 < SERVE_S * 10)
			free(ha.ha_body);
		usleep(100000);
	}
	plan_refuse(p,
		    "data server %s has not joined after %d s: %.300s; see \"journalctl -u "
		    "weft-ds@%s\"",
		    jn->jn_ticket.jo_name, SERVE_S, ha.ha_body ? ha.ha_body : ha.ha_why,
		    jn->jn_ticket.jo_name);
	free(ha.ha_body);
	return EXIT_FAILED;
}

static int cluster_join_run(struct join *jn)
{
	struct plan *p = &jn->jn_plan;
	int rc = EXIT_DONE;

	if (!jn->jn_has_key && !p->pl_dry)
		rc = join_take(jn);
	if (!rc)
		rc = plan_run(p, p->pl_n);
	if (!rc && p->pl_systemd && !p->pl_dry)
		rc = join_wait(jn);
	if (!rc && !weft_json && p->pl_dry)
		puts("Nothing was changed, and the token was not used.");
	else if (!rc && !weft_json && !p->pl_systemd)
		puts("The files are made. Do what stands behind \"to do\".");
	return rc;
}

static bool join_paths(struct join *jn)
{
	const char *name = jn->jn_ticket.jo_name;

	snprintf(jn->jn_usual, sizeof(jn->jn_usual), "/srv/weft/%s", name);
	snprintf(jn->jn_conf, sizeof(jn->jn_conf), "/etc/weft/ds-%s.conf", name);
	snprintf(jn->jn_key, sizeof(jn->jn_key), "/etc/weft/ds-%s.key", name);
	snprintf(jn->jn_claim, sizeof(jn->jn_claim), "/etc/weft/ds-%s.claim", name);
	jn->jn_store = weft_option("store") ? weft_option("store") : jn->jn_usual;
	return true;
}

int cmd_cluster_join(char **args)
{
	struct join jn = {0};
	int rc;

	if (sodium_init() < 0)
		return EXIT_FAILED;
	rc = plan_begin(&jn.jn_plan);
	if (!rc)
		rc = join_token(&jn, args[0]);
	if (!rc) {
		join_paths(&jn);
		rc = join_address(&jn);
	}
	if (!rc)
		rc = join_plan(&jn);
	if (!rc)
		rc = join_checks(&jn);
	if (!rc)
		rc = cluster_join_run(&jn);
	sodium_memzero(&jn.jn_ticket, sizeof(jn.jn_ticket));
	sodium_memzero(jn.jn_secret, sizeof(jn.jn_secret));
	return plan_end(&jn.jn_plan, rc);
}

/* ---- weft cluster key ---- */

/* The address that data servers join: --mds, or the first of mds.listen. */
static int key_mds(char out[ADDR_TEXT])
{
	const char *given = weft_option("mds"), *listen;
	struct sockaddr_storage ss;
	socklen_t len;
	json_t *j = NULL;
	int rc = EXIT_DONE;

	if (given) {
		snprintf(out, ADDR_TEXT, "%s", given);
	} else {
		rc = weft_ask("GET", "/v1/config?key=mds.listen", NULL, &j);
		if (rc)
			return rc;
		listen = j_str(json_array_get(json_object_get(j, "keys"), 0), "value");
		snprintf(out, ADDR_TEXT, "%.*s", (int)strcspn(listen, ", "), listen);
		json_decref(j);
	}
	if (rpc_addr_parse(out, MDS_PORT, &ss, &len)) {
		fprintf(stderr, "weft: %s: expected an address, such as 192.0.2.1:2049\n", out);
		return EXIT_USAGE;
	}
	if (ss.ss_family == AF_INET6
		    ? IN6_IS_ADDR_UNSPECIFIED(&((struct sockaddr_in6 *)&ss)->sin6_addr)
		    : !((struct sockaddr_in *)&ss)->sin_addr.s_addr) {
		fprintf(stderr,
			"weft: the metadata server listens on every address (%s): name the "
			"one that data servers join, with --mds ADDRESS\n",
			out);
		return EXIT_USAGE;
	}
	rpc_addr_text((struct sockaddr *)&ss, out, ADDR_TEXT);
	return EXIT_DONE;
}

static bool key_hex(const json_t *j, const char *key, uint8_t out[16])
{
	const char *hex = j_str(j, key);
	size_t len;

	return !sodium_hex2bin(out, 16, hex, strlen(hex), NULL, &len, NULL) && len == 16;
}

static int key_show(const json_t *j, const struct join_ticket *jo, const char *token)
{
	time_t at = (time_t)j_num(j, "ends_at");
	char ends[40] = "?";
	struct tm tm;
	json_t *out;

	if (weft_json) {
		out = json_pack("{s:s, s:s, s:s, s:I}", "name", jo->jo_name, "mds", jo->jo_mds,
				"token", token, "ends_at", (json_int_t)at);
		return weft_show(EXIT_DONE, out, NULL);
	}
	if (localtime_r(&at, &tm))
		strftime(ends, sizeof(ends), "%Y-%m-%d %H:%M", &tm);
	/* The token alone on standard output: it goes into a file or a variable. */
	fprintf(stderr,
		"weft: a token for one data server, %s, good once and until %s; on its machine, "
		"which reads the token from standard input:\nweft cluster join -\n",
		jo->jo_name, ends);
	puts(token);
	return weft_flush();
}

int cmd_cluster_key(char **args)
{
	struct join_ticket jo = {0};
	char token[TICKET_TEXT];
	json_t *j;
	int rc;

	if (sodium_init() < 0)
		return EXIT_FAILED;
	if (args[0] && !ticket_name_ok(args[0]))
		return weft_usage_error("cluster key: NAME has letters, digits and ._-, not only "
					"digits, and begins with a letter or digit");
	rc = key_mds(jo.jo_mds);
	if (!rc)
		rc = weft_ask_with("POST", "/v1/cluster/token", "", &j, "name", args[0], "hours",
				   weft_option("hours"), NULL);
	if (rc)
		return rc;
	snprintf(jo.jo_name, sizeof(jo.jo_name), "%s", j_str(j, "name"));
	if (!key_hex(j, "id", jo.jo_id) || !key_hex(j, "secret", jo.jo_secret) ||
	    !ticket_make(&jo, token)) {
		fprintf(stderr, "weft: %s answered with no token\n", weft_admin);
		rc = EXIT_FAILED;
	} else {
		rc = key_show(j, &jo, token);
	}
	json_decref(j);
	sodium_memzero(&jo, sizeof(jo));
	sodium_memzero(token, sizeof(token));
	return rc;
}
