/* SPDX-License-Identifier: Apache-2.0 */
/* weft_instance.c - weft instance: shows the instances whose log is in PostgreSQL, and moves them.
 * It asks PostgreSQL: what is there is true also where no weft-mds answers. */
#include "tools/weft_tool.h"
#include "base/conf.h"
#include "pg/pg.h"
#include "pg/pg_member.h"
#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CONF_FILES "/etc/weft/mds-*.conf"
#define CONF_FILE  "/etc/weft/weft.conf"
#define LOG_SCHEME "postgresql:"
enum { SILENT_S = 5, ASK_MS = 10000, POLL_MS = 50, NOBODY_MS = 5000, MOVE_MS = 60000 };
enum { FREE_MS = 5000, FREE_POLL_MS = 250 }; /* for who claims an instance that nobody holds */
/* A standby that is further behind is no good target while another one is nearer. */
#define FAR_S 5.0

const struct column instance_columns[] = {{"INSTANCE", COL_RIGHT},
					  {"NODE", 0},
					  {"ROLE", COL_STATE},
					  {"EPOCH", COL_RIGHT},
					  {"SEEN", COL_RIGHT},
					  {"BATCHES", COL_RIGHT},
					  {"BYTES", COL_RIGHT},
					  {"BEHIND", COL_RIGHT},
					  {"PREFERRED", 0},
					  {"TAKEOVER", COL_CUT},
					  {0}};

#define INSTANCE_OPTIONS                                                                           \
	{"log", 0, "CONNINFO", "PostgreSQL, as libpq's connection string (mds.log of the file)"},  \
	{                                                                                          \
		"config", 0, "FILE", "the configuration that names it (/etc/weft/weft.conf)"       \
	}
const struct weft_opt instance_options[] = {INSTANCE_OPTIONS, {0}};
const struct weft_opt instance_move_options[] = {
	{"to", 0, "NODE", "the node that is to have it: a standby there must follow"},
	{"home", 0, NULL, "to its preferred node"},
	{"prefer", 0, "NODE", "make this its preferred node; alone, without a move"},
	INSTANCE_OPTIONS,
	{0}};

/* ---- where PostgreSQL is ---- */

/* The log that this file names; malloc'd; NULL: none. */
static char *log_of(const char *file, char *err, size_t errlen)
{
	struct conf *conf;
	const char *s;
	char *out = NULL;

	if (conf_load(&conf, file, err, errlen))
		return NULL;
	s = conf_str(conf, "mds.log");
	if (!strncmp(s, LOG_SCHEME, strlen(LOG_SCHEME)))
		out = strdup(s[strlen(LOG_SCHEME)] == '/' ? s : s + strlen(LOG_SCHEME));
	conf_free(conf);
	return out;
}

static char *find_log(char *err, size_t errlen)
{
	const char *file = weft_option("config"), *log = weft_option("log");
	char *out;
	glob_t g;

	if (log)
		return strdup(log);
	out = log_of(file ? file : CONF_FILE, err, errlen);
	if (out || file)
		return out;
	if (!glob(CONF_FILES, 0, NULL, &g)) {
		for (size_t i = 0; i < g.gl_pathc && !out; i++)
			out = log_of(g.gl_pathv[i], err, errlen);
		globfree(&g);
	}
	return out;
}

static int instance_open(struct pg_member **out)
{
	struct pg_member_opts o = {.mo_answer_ms = ASK_MS};
	char err[512] = "no configuration names a log in PostgreSQL (mds.log): give --log CONNINFO";
	char *log = find_log(err, sizeof(err));
	int rc;

	*out = NULL;
	if (!log) {
		fprintf(stderr, "weft: %s\n", err);
		return EXIT_FAILED;
	}
	if (pg_has_password(log)) {
		free(log);
		return weft_usage_error("a password in --log is seen in the list of processes: "
					"use passfile= or service=");
	}
	o.mo_conninfo = log;
	rc = pg_member_open(out, &o);
	free(log);
	if (!rc)
		return EXIT_DONE;
	fprintf(stderr, "weft: %s\n", pg_member_why(*out));
	pg_member_close(*out);
	return EXIT_FAILED;
}

static int no_answer(const struct pg_member *m, int err)
{
	fprintf(stderr, "weft: %s\n", pg_member_why(m));
	return err == -EAGAIN ? EXIT_NO_ANSWER : EXIT_FAILED;
}

static int instance_list(struct pg_member *m, uint32_t inst, json_t **out)
{
	char *text;
	int err = pg_member_list(m, inst, &text);

	*out = NULL;
	if (err)
		return no_answer(m, err);
	*out = json_loads(text, 0, NULL);
	free(text);
	return *out ? EXIT_DONE : EXIT_FAILED;
}

static bool instance_number(const char *arg, uint32_t *out)
{
	char *end;
	long n = strtol(arg, &end, 10);

	*out = (uint32_t)n;
	return *arg && !*end && n >= 1 && n <= 65535;
}

/* ---- list ---- */

/* Did the holder speak lately? */
static bool silent(const json_t *i)
{
	const json_t *heard = json_object_get(i, "heard_s");

	return !json_is_number(heard) || json_number_value(heard) > SILENT_S;
}

static void holder_row(struct table *t, const json_t *i)
{
	const json_t *to = json_object_get(i, "takeover");
	bool held = json_is_true(json_object_get(i, "held"));
	double ago = (double)time(NULL) - j_real(to, "at");

	table_cell(t, "%lld", j_num(i, "instance"));
	table_cell(t, "%s", held ? j_str(i, "holder") : "-");
	table_cell(t, "%s", !held ? "none" : silent(i) ? "silent" : "holder");
	table_cell(t, "%lld", j_num(i, "epoch"));
	if (held && json_is_number(json_object_get(i, "heard_s")))
		table_cell(t, "%.1fs", j_real(i, "heard_s"));
	else
		table_cell(t, "-");
	table_cell(t, "-");
	table_cell(t, "-");
	table_cell(t, "-");
	table_cell(t, "%s", j_str(i, "preferred"));
	if (!json_is_object(to)) {
		table_cell(t, "-");
		return;
	}
	table_cell(t, "%s ago, %s, %lld+%lld+%lld+%lld ms", time_text(ago > 0 ? ago : 0),
		   j_str(to, "why"), j_num(to, "detection_ms"), j_num(to, "claim_ms"),
		   j_num(to, "filling_ms"), j_num(to, "serving_ms"));
}

static void instance_table(const json_t *all)
{
	const json_t *i, *s, *standbys;
	struct table t;
	size_t n, k;

	if (!json_array_size(all)) {
		puts("there is no instance in this database");
		return;
	}
	table_begin(&t, instance_columns);
	json_array_foreach(all, n, i)
	{
		holder_row(&t, i);
		standbys = json_object_get(i, "standbys");
		json_array_foreach(standbys, k, s)
		{
			table_cell(&t, "%lld", j_num(i, "instance"));
			table_cell(&t, "%s", j_str(s, "node"));
			table_cell(&t, "%s",
				   json_is_true(json_object_get(s, "up")) ? "standby" : "gone");
			table_cell(&t, "-");
			table_cell(&t, "%.1fs", j_real(s, "seen_s"));
			table_cell(&t, "%lld", j_num(s, "lag_batches"));
			table_cell(&t, "%s",
				   json_is_integer(json_object_get(s, "lag_bytes"))
					   ? size_text(j_num(s, "lag_bytes"))
					   : "-");
			table_cell(&t, "%.1fs", j_real(s, "lag_s"));
			table_cell(&t, "-");
			table_cell(&t, "-");
		}
	}
	table_end(&t);
}

int cmd_instance_list(char **args)
{
	struct pg_member *m;
	json_t *all = NULL;
	int rc = instance_open(&m);

	(void)args;
	if (rc)
		return rc;
	rc = instance_list(m, 0, &all);
	pg_member_close(m);
	return weft_show(rc, all, instance_table);
}

/* ---- move ---- */

static void move_print(const json_t *i)
{
	const json_t *mv = json_object_get(i, "move"), *to = json_object_get(i, "takeover");

	printf("instance %lld is at %s: %lld ms without a server (stopping %lld, detection %lld, "
	       "claim %lld, filling %lld, serving %lld)\n",
	       j_num(i, "instance"), j_str(mv, "to"), j_num(mv, "away_ms"),
	       j_num(mv, "stopping_ms"), j_num(to, "detection_ms"), j_num(to, "claim_ms"),
	       j_num(to, "filling_ms"), j_num(to, "serving_ms"));
}

/* With --json, the instances that have moved: one document, printed at the end. */
static json_t *went;

/* What became of it. EXIT_DONE: it moved. */
static int move_ended(struct pg_member *m, uint32_t inst, const struct pg_move *mv)
{
	json_t *all;
	int rc;

	if (!strcmp(mv->mv_state, "refused")) {
		fprintf(stderr, "weft: instance %u was not moved to %s: %s\n", inst, mv->mv_target,
			mv->mv_why);
		return EXIT_FAILED;
	}
	rc = instance_list(m, inst, &all);
	if (rc)
		return rc;
	if (went)
		json_array_append(went, json_array_get(all, 0));
	else
		rc = weft_show(rc, json_incref(json_array_get(all, 0)), move_print);
	json_decref(all);
	return rc;
}

/* Nobody answers: the move must not begin when somebody does later. */
static int move_withdraw(struct pg_member *m, uint32_t inst, const struct pg_move *mv)
{
	if (pg_member_step(m, inst, mv->mv_seq, "asked", "refused", "nobody answered in time"))
		return -EAGAIN;
	fprintf(stderr, "weft: instance %u was not moved: no process that holds it has answered\n",
		inst);
	return EXIT_FAILED;
}

static int move_follow(struct pg_member *m, uint32_t inst, uint64_t seq)
{
	const struct timespec pause = {.tv_nsec = POLL_MS * 1000000};
	struct pg_move mv = {0};
	int rc;

	for (unsigned ms = 0; ms < MOVE_MS; ms += POLL_MS) {
		int err = pg_member_move(m, inst, &mv);

		if (err && err != -EAGAIN)
			return no_answer(m, err);
		if (!err && mv.mv_seq != seq) {
			fprintf(stderr, "weft: another move of instance %u was asked for\n", inst);
			return EXIT_FAILED;
		}
		if (!err && (!strcmp(mv.mv_state, "done") || !strcmp(mv.mv_state, "refused")))
			return move_ended(m, inst, &mv);
		if (!err && ms >= NOBODY_MS && !strcmp(mv.mv_state, "asked") &&
		    (rc = move_withdraw(m, inst, &mv)) >= 0)
			return rc;
		nanosleep(&pause, NULL);
	}
	fprintf(stderr, "weft: the move of instance %u is not over after %d s; it is %s\n", inst,
		MOVE_MS / 1000, mv.mv_state);
	return EXIT_NO_ANSWER;
}

static int move_one(struct pg_member *m, uint32_t inst, const char *node)
{
	uint64_t seq;
	int err = pg_member_ask(m, inst, node, &seq);

	if (err == -EBUSY || err == -ESRCH) {
		fprintf(stderr, "weft: instance %u %s\n", inst,
			err == -EBUSY ? "is being moved already" : "has no preferred node");
		return EXIT_FAILED;
	}
	return err ? no_answer(m, err) : move_follow(m, inst, seq);
}

static void prefer_print(const json_t *i)
{
	const char *node = json_string_value(json_object_get(i, "preferred"));

	printf("instance %lld prefers %s\n", j_num(i, "instance"), node ? node : "no node");
}

int cmd_instance_move(char **args)
{
	const char *to = weft_option("to"), *prefer = weft_option("prefer");
	bool home = weft_option("home");
	struct pg_member *m;
	uint32_t inst;
	int rc, err = 0;

	if (!instance_number(args[0], &inst))
		return weft_usage_error("an instance is a number from 1 to 65535");
	if ((to != NULL) + home + (prefer && !to && !home) != 1 || (to && !*to))
		return weft_usage_error("one of --to NODE, --home and --prefer NODE is wanted");
	rc = instance_open(&m);
	if (rc)
		return rc;
	if (prefer)
		err = pg_member_prefer(m, inst, prefer);
	if (err)
		rc = no_answer(m, err);
	else if (to || home)
		rc = move_one(m, inst, home ? "" : to);
	else
		rc = weft_show(0,
			       json_pack("{s:i, s:s?}", "instance", (int)inst, "preferred",
					 *prefer ? prefer : NULL),
			       prefer_print);
	pg_member_close(m);
	return rc ? rc : weft_flush();
}

/* ---- drain ---- */

struct goal {
	const char *g_node;
	bool g_far, g_preferred;
	long long g_held, g_lag;
};

/* Is it a better target than the other one? It follows; it is preferred; it holds less; it lacks
 * less. */
static bool nearer(const struct goal *g, const struct goal *than)
{
	if (g->g_far != than->g_far)
		return than->g_far;
	if (g->g_preferred != than->g_preferred)
		return g->g_preferred;
	if (g->g_held != than->g_held)
		return g->g_held < than->g_held;
	return g->g_lag < than->g_lag;
}

/* The node that an instance goes to. NULL: none. */
static const char *drain_target(const json_t *all, const json_t *i, const char *from)
{
	const json_t *standbys = json_object_get(i, "standbys"), *s, *o;
	struct goal best = {0};
	size_t n, k;

	json_array_foreach(standbys, n, s)
	{
		struct goal g = {.g_node = j_str(s, "node"),
				 .g_far = j_real(s, "lag_s") > FAR_S,
				 .g_lag = j_num(s, "lag_batches")};

		if (!json_is_true(json_object_get(s, "up")) || !strcmp(g.g_node, from))
			continue;
		g.g_preferred = !strcmp(g.g_node, j_str(i, "preferred"));
		json_array_foreach(all, k, o) g.g_held += !strcmp(j_str(o, "holder"), g.g_node);
		if (!best.g_node || nearer(&g, &best))
			best = g;
	}
	return best.g_node;
}

/* Does the node hold an instance, or stand by for one? */
static bool node_known(const json_t *all, const char *node)
{
	const json_t *i, *s, *standbys;
	size_t n, k;

	json_array_foreach(all, n, i)
	{
		if (!strcmp(j_str(i, "holder"), node))
			return true;
		standbys = json_object_get(i, "standbys");
		json_array_foreach(standbys, k, s) if (!strcmp(j_str(s, "node"), node)) return true;
	}
	return false;
}

static int drain_one(struct pg_member *m, uint32_t inst, const char *from, unsigned *moved)
{
	const json_t *i, *one = NULL;
	const char *to = NULL;
	json_t *all;
	size_t n;
	int rc = instance_list(m, 0, &all);

	if (rc)
		return rc;
	json_array_foreach(all, n, i) if (j_num(i, "instance") == inst) one = i;
	if (one && json_is_true(json_object_get(one, "held")) &&
	    !json_is_string(json_object_get(one, "holder"))) {
		/* It may be here. */
		fprintf(stderr, "weft: instance %u: its holder does not say where it is\n", inst);
		rc = EXIT_FAILED;
	} else if (one && !strcmp(j_str(one, "holder"), from)) {
		to = drain_target(all, one, from);
		if (to)
			rc = move_one(m, inst, to);
		else
			fprintf(stderr, "weft: instance %u stays at %s: no standby elsewhere\n",
				inst, from);
		rc = to ? rc : EXIT_FAILED;
		*moved += !rc;
	}
	json_decref(all);
	return rc;
}

/* A drain under way. */
struct drain {
	struct pg_member *d_pg;
	const char *d_from;
	json_t *d_tried; /* by number of the instance: the times; false: it stays */
	unsigned d_moved;
	int d_worst;
};

/* The node holds the instance, or may. Each is moved by itself: one that stays keeps none of the
 * others. One that came back is moved once more. True: something was done. */
static bool drain_try(struct drain *d, const json_t *i)
{
	char key[24];
	const json_t *tried;
	int rc;

	snprintf(key, sizeof(key), "%lld", j_num(i, "instance"));
	tried = json_object_get(d->d_tried, key);
	if (json_is_false(tried))
		return false;
	if (json_integer_value(tried) < 2) {
		rc = drain_one(d->d_pg, (uint32_t)j_num(i, "instance"), d->d_from, &d->d_moved);
	} else {
		fprintf(stderr, "weft: instance %s is at %s again\n", key, d->d_from);
		rc = EXIT_FAILED;
	}
	d->d_worst = rc ? rc : d->d_worst;
	return !json_object_set_new(
		d->d_tried, key, rc ? json_false() : json_integer(json_integer_value(tried) + 1));
}

/* Looks until the node holds none that can be moved. Who stands by for an instance that is free
 * takes it in a moment, and may be on this node. */
static void drain_all(struct drain *d)
{
	const struct timespec pause = {.tv_nsec = FREE_POLL_MS * 1000000};
	unsigned ms = 0;
	const json_t *i;
	json_t *all;
	size_t n;

	for (bool first = true;; first = false) {
		bool nobody = false, did = false;
		int rc = instance_list(d->d_pg, 0, &all);

		if (rc) {
			d->d_worst = rc;
			return;
		}
		if (first && !node_known(all, d->d_from)) {
			fprintf(stderr, "weft: no instance has the node %s\n", d->d_from);
			d->d_worst = EXIT_FAILED;
		}
		json_array_foreach(all, n, i)
		{
			if (!json_is_true(json_object_get(i, "held")))
				nobody = true;
			else if (!json_is_string(json_object_get(i, "holder")) ||
				 !strcmp(j_str(i, "holder"), d->d_from))
				did = drain_try(d, i) || did;
		}
		json_decref(all);
		if (did)
			continue;
		if (!nobody || ms >= FREE_MS)
			return;
		nanosleep(&pause, NULL);
		ms += FREE_POLL_MS;
	}
}

int cmd_instance_drain(char **args)
{
	struct drain d = {.d_from = args[0]};
	int rc = instance_open(&d.d_pg);

	if (rc)
		return rc;
	d.d_tried = json_object();
	went = weft_json ? json_array() : NULL;
	drain_all(&d);
	json_decref(d.d_tried);
	pg_member_close(d.d_pg);
	if (weft_json)
		json_dumpf(went, stdout, WEFT_JSON_STYLE);
	if (weft_json)
		putchar('\n');
	else if (d.d_moved || !d.d_worst)
		printf("%u instances have left %s\n", d.d_moved, d.d_from);
	json_decref(went);
	went = NULL;
	rc = weft_flush();
	return d.d_worst ? d.d_worst : rc;
}
