/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exports.c - the exports file: sections export "PATH" { client "PATTERN..." { ... } }, parsed by
 * libconfuse.
 *
 * To libconfuse every value is a text. The options of an export section itself are the defaults of
 * its client sections.
 */
#include "common/exports.h"
#include "base/conf.h"
#include <arpa/inet.h>
#include <assert.h>
#include <confuse.h>
#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The exports of a server whose administrator has set none: this machine alone, with root mapped to
 * nobody. */
static const char builtin[] = "export \"/\" { client \"127.0.0.0/8 ::1\" { access = rw } }\n";

/* libconfuse's callbacks carry no argument of ours. Only one file is read at a time, because the
 * lexer of libconfuse has state of its own. */
static pthread_mutex_t parsing = PTHREAD_MUTEX_INITIALIZER;
static struct {
	const char *name;
	char *err;
	size_t errlen;
	bool failed;
} load;

struct word {
	const char *wd_text;
	int wd_value;
};
static const struct word accesses[] = {{"rw", 0}, {"ro", 1}, {NULL, 0}};
static const struct word squashes[] = {
	{"root", EXP_SQUASH_ROOT}, {"all", EXP_SQUASH_ALL}, {"none", EXP_SQUASH_NO}, {NULL, 0}};
static const struct word tlses[] = {
	{"none", EXP_TLS_NONE}, {"tls", EXP_TLS_ON}, {"mtls", EXP_TLS_MUTUAL}, {NULL, 0}};
static const struct word layoutses[] = {
	{"auto", EXP_LAYOUTS_AUTO}, {"yes", EXP_LAYOUTS_YES}, {"no", EXP_LAYOUTS_NO}, {NULL, 0}};
static const struct word bools[] = {{"true", 1}, {"false", 0}, {"yes", 1}, {"no", 0}, {NULL, 0}};
static const struct word secs[] = {{"sys", EXP_SYS},	 {"krb5", EXP_KRB5}, {"krb5i", EXP_KRB5I},
				   {"krb5p", EXP_KRB5P}, {"none", EXP_NONE}, {NULL, 0}};

/* The words of an option. An option without words takes a number. */
static const struct option {
	const char *o_name;
	const struct word *o_words;
	uint32_t o_max; /* of a number */
} options[] = {
	{"access", accesses, 0},
	{"squash", squashes, 0},
	{"anon_uid", NULL, UINT32_MAX - 1},
	{"anon_gid", NULL, UINT32_MAX - 1},
	{"sec", secs, 0},
	{"tls", tlses, 0},
	{"layouts", layoutses, 0},
	{"privileged_port", bools, 0},
	{"id", NULL, UINT16_MAX},
	{"create", bools, 0},
};

const char *exp_sec_name(enum exp_sec s)
{
	for (const struct word *w = secs; w->wd_text; w++) {
		if (w->wd_value == (int)s)
			return w->wd_text;
	}
	return "?";
}

static const char *word_of(const struct word *w, int value)
{
	while (w->wd_text && w->wd_value != value)
		w++;
	return w->wd_text;
}

/* Keeps only the first error: the others mostly follow from it. */
static void __attribute__((format(printf, 2, 3))) bad(int line, const char *fmt, ...)
{
	char text[400];
	va_list ap;

	if (load.failed)
		return;
	load.failed = true;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	/* A quote from the file may have line ends. The message is one line. */
	for (char *p = text; *p; p++) {
		if ((unsigned char)*p < ' ')
			*p = ' ';
	}
	snprintf(load.err, load.errlen, "%s:%d: %s", load.name, line, text);
}

static void exports_on_error(cfg_t *cfg, const char *fmt, va_list ap)
	__attribute__((format(printf, 2, 0)));

static void exports_on_error(cfg_t *cfg, const char *fmt, va_list ap)
{
	char text[300];

	vsnprintf(text, sizeof(text), fmt, ap);
	if (strncmp(fmt, "no such option", 14) == 0)
		bad(cfg->line, "%s: unknown word in %s", text,
		    strcmp(cfg->name, "root") == 0 ? "the file, which consists of export sections"
						   : cfg->name);
	else
		bad(cfg->line, "%s", text);
}

/* ---- values ---- */

static bool parse_number(const char *text, uint32_t max, uint32_t *out)
{
	uint64_t v = 0;

	for (const char *p = text; *p; p++) {
		if (!isdigit((unsigned char)*p) || (v = v * 10 + (uint64_t)(*p - '0')) > max)
			return false;
	}
	*out = (uint32_t)v;
	return *text;
}

static bool parse_word(const struct word *w, const char *text, uint32_t *out)
{
	while (w->wd_text && strcmp(w->wd_text, text) != 0)
		w++;
	*out = (uint32_t)w->wd_value;
	return w->wd_text;
}

static const struct option *option_of(const char *name)
{
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
		if (strcmp(options[i].o_name, name) == 0)
			return &options[i];
	}
	return NULL;
}

static bool parse_value(const struct option *o, const char *text, uint32_t *out)
{
	return text &&
	       (o->o_words ? parse_word(o->o_words, text, out) : parse_number(text, o->o_max, out));
}

static int exports_on_value(cfg_t *cfg, cfg_opt_t *opt)
{
	const struct option *o = option_of(opt->name);
	const char *text = cfg_opt_getnstr(opt, cfg_opt_size(opt) - 1);
	char want[120] = "";
	uint32_t v;

	assert(o);
	if (parse_value(o, text, &v))
		return 0;
	for (const struct word *w = o->o_words; w && w->wd_text; w++)
		snprintf(want + strlen(want), sizeof(want) - strlen(want), "%s%s",
			 *want ? "|" : "one of ", w->wd_text);
	if (!o->o_words)
		snprintf(want, sizeof(want), "a number up to %u", o->o_max);
	bad(cfg->line, "%s: expected %s, got \"%s\"", opt->name, want, text ? text : "");
	return -1;
}

/* ---- patterns ---- */

bool exp_net(const char *text, uint8_t addr[16], unsigned *bits)
{
	char host[64];
	const char *slash = strchr(text, '/');
	size_t len = slash ? (size_t)(slash - text) : strlen(text);
	uint32_t n = 128;
	bool v4;

	if (len >= sizeof(host))
		return false;
	memcpy(host, text, len);
	host[len] = 0;
	memset(addr, 0, 16);
	v4 = inet_pton(AF_INET, host, addr + 12) == 1;
	if (v4)
		addr[10] = addr[11] = 0xff;
	else if (inet_pton(AF_INET6, host, addr) != 1)
		return false;
	if (slash && !parse_number(slash + 1, v4 ? 32 : 128, &n))
		return false;
	*bits = v4 && slash ? n + 96 : n;
	return true;
}

/* True if text may be a host's name: a slip must not become a name that never matches. */
static bool exports_name_ok(const char *text)
{
	bool letter = false;

	for (const char *p = text; *p; p++) {
		if (!isalnum((unsigned char)*p) && !strchr("-._*?", *p))
			return false;
		letter |= isalpha((unsigned char)*p) != 0;
	}
	return letter && strlen(text) <= 253;
}

static bool parse_who(const char *text, struct exp_who *w)
{
	if (strcmp(text, "*") == 0)
		w->w_kind = EXP_ANY;
	else if (*text == '@' && text[1] && !strpbrk(text + 1, "@/*?"))
		w->w_kind = EXP_GROUP;
	else if (exp_net(text, w->w_addr, &w->w_bits))
		w->w_kind = EXP_NET;
	else if (exports_name_ok(text))
		w->w_kind = strpbrk(text, "*?") ? EXP_WILD : EXP_HOST;
	else
		return false;
	return true;
}

/* Calls fn for each pattern of a client section's title. */
static int each_pattern(const char *title, int (*fn)(void *arg, const char *text), void *arg)
{
	char *copy = strdup(title), *save = NULL;
	int rc = copy ? 0 : -ENOMEM;

	for (char *p = copy ? strtok_r(copy, " ,\t\n", &save) : NULL; p && !rc;
	     p = strtok_r(NULL, " ,\t\n", &save))
		rc = fn(arg, p);
	free(copy);
	return rc;
}

struct check {
	int line;
	unsigned n;
};

static int check_pattern(void *arg, const char *text)
{
	struct check *k = arg;
	struct exp_who w;

	k->n++;
	if (parse_who(text, &w))
		return 0;
	bad(k->line,
	    "client \"%s\": expected an address, a network like 10.0.0.0/8 or fd00::/8, a host's "
	    "name, @netgroup or *",
	    text);
	return -1;
}

static int on_client(cfg_t *cfg, cfg_opt_t *opt)
{
	cfg_t *sec = cfg_opt_getnsec(opt, cfg_opt_size(opt) - 1);
	struct check k = {.line = cfg->line};

	if (each_pattern(cfg_title(sec), check_pattern, &k))
		return -1;
	if (k.n)
		return 0;
	bad(cfg->line, "client \"\": expected patterns of clients");
	return -1;
}

/* True for an absolute path without an empty, "." or ".." part, not longer than a path that is ever
 * walked. */
static bool path_ok(const char *path)
{
	json_t *text = json_string(path); /* UTF-8, as the administrator's tools need it */

	json_decref(text);
	if (!text || *path != '/' || strlen(path) > 1023)
		return false;
	if (!path[1])
		return true;
	while (*path == '/') {
		size_t len = strcspn(++path, "/");

		if (!len || len > NAME_MAX ||
		    (*path == '.' && (len == 1 || (len == 2 && path[1] == '.'))))
			return false;
		path += len;
	}
	return true;
}

static int on_export(cfg_t *cfg, cfg_opt_t *opt)
{
	cfg_t *sec = cfg_opt_getnsec(opt, cfg_opt_size(opt) - 1);

	if (!path_ok(cfg_title(sec))) {
		bad(cfg->line,
		    "export \"%s\": expected an absolute path without empty parts, \".\" and "
		    "\"..\"",
		    cfg_title(sec));
		return -1;
	}
	if (cfg_size(sec, "client") == 0) {
		bad(cfg->line, "export \"%s\": no client may use it; expected client sections",
		    cfg_title(sec));
		return -1;
	}
	if (cfg_opt_size(opt) > EXP_MAX) {
		bad(cfg->line, "export \"%s\": more than %d exports", cfg_title(sec), EXP_MAX);
		return -1;
	}
	return 0;
}

/* ---- the table ---- */

static uint32_t exports_value(cfg_t *sec, const char *name, uint32_t start)
{
	uint32_t v;

	return cfg_size(sec, name) && parse_value(option_of(name), cfg_getnstr(sec, name, 0), &v)
		       ? v
		       : start;
}

static void rule_fill(cfg_t *sec, struct exp_rule *r)
{
	unsigned n = cfg_size(sec, "sec"), seen = 0;

	r->r_ro = exports_value(sec, "access", r->r_ro);
	r->r_squash = exports_value(sec, "squash", r->r_squash);
	r->r_anon_uid = exports_value(sec, "anon_uid", r->r_anon_uid);
	r->r_anon_gid = exports_value(sec, "anon_gid", r->r_anon_gid);
	r->r_tls = exports_value(sec, "tls", r->r_tls);
	r->r_layouts = exports_value(sec, "layouts", r->r_layouts);
	r->r_privileged = exports_value(sec, "privileged_port", r->r_privileged);
	if (n)
		r->r_nsec = 0;
	for (unsigned i = 0; i < n; i++) {
		uint32_t s;

		if (!parse_word(secs, cfg_getnstr(sec, "sec", i), &s) || seen >> s & 1)
			continue;
		seen |= 1u << s;
		r->r_sec[r->r_nsec++] = (uint8_t)s;
	}
}

struct add {
	struct exp *e;
	unsigned rule;
};

static int add_who(void *arg, const char *text)
{
	struct add *a = arg;
	struct exp_who *w = &a->e->e_who[a->e->e_nwho];

	parse_who(text, w);
	w->w_rule = a->rule;
	w->w_text = strdup(*text == '@' ? text + 1 : text);
	if (!w->w_text)
		return -ENOMEM;
	a->e->e_nwho++;
	return 0;
}

static int count_who(void *arg, const char *text)
{
	(void)text;
	++*(unsigned *)arg;
	return 0;
}

/* Returns the number of a path, the same in every file that exports it: 1 to 65535; "/" has 0. */
static uint16_t path_id(const char *path)
{
	uint32_t h = 2166136261u;

	if (!path[1])
		return 0;
	for (; *path; path++)
		h = (h ^ (uint8_t)*path) * 16777619u;
	return (uint16_t)((h >> 16 ^ h) % 65535 + 1);
}

static int export_fill(cfg_t *sec, struct exp *e)
{
	struct exp_rule start = {.r_ro = true,
				 .r_squash = EXP_SQUASH_ROOT,
				 .r_anon_uid = EXP_NOBODY,
				 .r_anon_gid = EXP_NOBODY,
				 .r_privileged = true,
				 .r_sec = {EXP_SYS},
				 .r_nsec = 1};
	unsigned n = cfg_size(sec, "client"), nwho = 0;

	e->e_path = strdup(cfg_title(sec));
	if (!e->e_path)
		return -ENOMEM;
	e->e_id = (uint16_t)exports_value(sec, "id", path_id(e->e_path));
	e->e_create = exports_value(sec, "create", false);
	rule_fill(sec, &start);
	for (unsigned i = 0; i < n; i++)
		each_pattern(cfg_title(cfg_getnsec(sec, "client", i)), count_who, &nwho);
	e->e_rule = calloc(n, sizeof(*e->e_rule));
	e->e_who = calloc(nwho, sizeof(*e->e_who));
	if (!e->e_rule || !e->e_who)
		return -ENOMEM;
	for (unsigned i = 0; i < n; i++) {
		cfg_t *cl = cfg_getnsec(sec, "client", i);
		struct add a = {e, i};

		e->e_rule[i] = start;
		rule_fill(cl, &e->e_rule[i]);
		e->e_nrules++;
		if (each_pattern(cfg_title(cl), add_who, &a))
			return -ENOMEM;
	}
	return 0;
}

static int number_names(struct exp_table *t)
{
	for (unsigned i = 0; i < t->xt_n; i++) {
		struct exp *e = &t->xt_exp[i];

		t->xt_npatterns += e->e_nwho;
		for (unsigned k = 0; k < e->e_nwho; k++) {
			if (e->e_who[k].w_kind >= EXP_HOST)
				e->e_who[k].w_name = t->xt_nnames++;
		}
	}
	if (t->xt_npatterns > EXP_CLIENTS_MAX) {
		bad(1, "%u patterns of clients; at most %d", t->xt_npatterns, EXP_CLIENTS_MAX);
		return -EINVAL;
	}
	t->xt_name = calloc(t->xt_nnames + 1, sizeof(*t->xt_name));
	if (!t->xt_name)
		return -ENOMEM;
	for (unsigned i = 0; i < t->xt_n; i++) {
		struct exp *e = &t->xt_exp[i];

		for (unsigned k = 0; k < e->e_nwho; k++) {
			if (e->e_who[k].w_kind >= EXP_HOST)
				t->xt_name[e->e_who[k].w_name] = &e->e_who[k];
		}
	}
	return 0;
}

/* Checks that each export has a number of its own: two paths may get the same number by chance. */
static int check_ids(const struct exp_table *t)
{
	for (unsigned i = 0; i < t->xt_n; i++) {
		if (t->xt_exp[i].e_id == 0 && t->xt_exp[i].e_path[1]) {
			bad(1, "export \"%s\": id 0 belongs to \"/\"; choose another id",
			    t->xt_exp[i].e_path);
			return -EINVAL;
		}
		for (unsigned k = 0; k < i; k++) {
			if (t->xt_exp[i].e_id != t->xt_exp[k].e_id)
				continue;
			bad(1,
			    "exports \"%s\" and \"%s\" have the same id %u; give one of them "
			    "another id (id = NUMBER)",
			    t->xt_exp[k].e_path, t->xt_exp[i].e_path, t->xt_exp[i].e_id);
			return -EINVAL;
		}
	}
	return 0;
}

static int table_fill(cfg_t *cfg, struct exp_table *t)
{
	unsigned n = cfg_size(cfg, "export");
	int rc = 0;

	if (n > EXP_MAX)
		return -EINVAL;
	while (t->xt_n < n && !rc) {
		struct exp *e = &t->xt_exp[t->xt_n++];

		rc = export_fill(cfg_getnsec(cfg, "export", t->xt_n - 1), e);
	}
	if (!rc)
		rc = check_ids(t);
	return rc ? rc : number_names(t);
}

#define RULE_OPTS                                                                                  \
	CFG_STR("access", NULL, CFGF_NODEFAULT), CFG_STR("squash", NULL, CFGF_NODEFAULT),          \
		CFG_STR("anon_uid", NULL, CFGF_NODEFAULT),                                         \
		CFG_STR("anon_gid", NULL, CFGF_NODEFAULT),                                         \
		CFG_STR_LIST("sec", NULL, CFGF_NODEFAULT), CFG_STR("tls", NULL, CFGF_NODEFAULT),   \
		CFG_STR("layouts", NULL, CFGF_NODEFAULT),                                          \
		CFG_STR("privileged_port", NULL, CFGF_NODEFAULT)

static cfg_t *schema(void)
{
	cfg_opt_t client[] = {RULE_OPTS, CFG_END()};
	cfg_opt_t export[] = {
		RULE_OPTS, CFG_STR("id", NULL, CFGF_NODEFAULT),
		CFG_STR("create", NULL, CFGF_NODEFAULT),
		CFG_SEC("client", client, CFGF_MULTI | CFGF_TITLE | CFGF_NO_TITLE_DUPES),
		CFG_END()};
	cfg_opt_t root[] = {
		CFG_SEC("export", export, CFGF_MULTI | CFGF_TITLE | CFGF_NO_TITLE_DUPES),
		CFG_END()};
	cfg_t *cfg = cfg_init(root, CFGF_NONE);
	char key[64];

	if (!cfg)
		return NULL;
	cfg_set_error_function(cfg, exports_on_error);
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
		snprintf(key, sizeof(key), "export|%s", options[i].o_name);
		cfg_set_validate_func(cfg, key, exports_on_value);
		if (strcmp(options[i].o_name, "id") == 0 ||
		    strcmp(options[i].o_name, "create") == 0)
			continue;
		snprintf(key, sizeof(key), "export|client|%s", options[i].o_name);
		cfg_set_validate_func(cfg, key, exports_on_value);
	}
	cfg_set_validate_func(cfg, "export|client", on_client);
	cfg_set_validate_func(cfg, "export", on_export);
	return cfg;
}

static int parse_locked(const char *text, struct exp_table *t)
{
	cfg_t *cfg = schema();
	int rc = -ENOMEM;

	if (!cfg)
		return rc;
	rc = cfg_parse_buf(cfg, text) == CFG_SUCCESS && !load.failed ? table_fill(cfg, t) : -EINVAL;
	cfg_free(cfg);
	if (!rc && !t->xt_n) {
		bad(1, "no export: no client could use anything");
		rc = -EINVAL;
	}
	return rc;
}

int exp_parse(const char *text, const char *name, struct exp_table **out, char *err, size_t errlen)
{
	struct exp_table *t = calloc(1, sizeof(*t));
	char *copy = strdup(text);
	int rc = t && copy ? 0 : -ENOMEM;

	if (t)
		atomic_init(&t->xt_refs, 1);
	snprintf(err, errlen, "%s: %s", name, rc ? "out of memory" : "cannot be parsed");
	if (!rc)
		rc = conf_text(copy, name, err, errlen);
	if (!rc) {
		pthread_mutex_lock(&parsing);
		load.name = name;
		load.err = err;
		load.errlen = errlen;
		load.failed = false;
		rc = parse_locked(copy, t);
		pthread_mutex_unlock(&parsing);
	}
	free(copy);
	if (rc) {
		exp_put(t);
		return rc;
	}
	*out = t;
	return 0;
}

int exp_read(const char *path, struct exp_table **out, char *err, size_t errlen)
{
	char *text;
	int rc;

	if (!*path)
		return exp_parse(builtin, "built-in exports", out, err, errlen);
	rc = conf_read(path, &text, err, errlen);
	if (rc)
		return rc;
	rc = exp_parse(text, path, out, err, errlen);
	free(text);
	return rc;
}

/* ---- for administrators ---- */

static json_t *rule_json(const struct exp *e, unsigned rule)
{
	const struct exp_rule *r = &e->e_rule[rule];
	json_t *who = json_array(), *sec = json_array();
	char text[300];

	for (unsigned i = 0; i < e->e_nwho; i++) {
		if (e->e_who[i].w_rule != rule)
			continue;
		snprintf(text, sizeof(text), "%s%s", e->e_who[i].w_kind == EXP_GROUP ? "@" : "",
			 e->e_who[i].w_text);
		json_array_append_new(who, json_string(text));
	}
	for (unsigned i = 0; i < r->r_nsec; i++)
		json_array_append_new(sec, json_string(exp_sec_name(r->r_sec[i])));
	return json_pack("{s:o, s:s, s:s, s:I, s:I, s:o, s:s, s:b, s:s}", "clients", who, "access",
			 word_of(accesses, r->r_ro), "squash", word_of(squashes, (int)r->r_squash),
			 "anon_uid", (json_int_t)r->r_anon_uid, "anon_gid",
			 (json_int_t)r->r_anon_gid, "sec", sec, "tls",
			 word_of(tlses, (int)r->r_tls), "privileged_port", r->r_privileged,
			 "layouts", word_of(layoutses, (int)r->r_layouts));
}

char *exp_json(const struct exp_table *t, const char *path)
{
	json_t *list = json_array(), *top;
	char *text;

	for (unsigned i = 0; i < t->xt_n; i++) {
		const struct exp *e = &t->xt_exp[i];
		json_t *rules = json_array();

		for (unsigned k = 0; k < e->e_nrules; k++)
			json_array_append_new(rules, rule_json(e, k));
		json_array_append_new(list,
				      json_pack("{s:s, s:i, s:b, s:o}", "path", e->e_path, "id",
						e->e_id, "served", e->e_root != 0, "rules", rules));
	}
	top = json_pack("{s:s, s:I, s:I, s:o}", "file", path, "generation",
			(json_int_t)t->xt_generation, "loaded", (json_int_t)t->xt_sec, "exports",
			list);
	text = top ? json_dumps(top, JSON_COMPACT) : NULL;
	json_decref(top);
	return text;
}
