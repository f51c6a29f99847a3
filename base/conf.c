/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conf.c - see conf.h.
 *
 * libconfuse parses the grammar. To libconfuse every value is a string. The table has the types,
 * ranges and messages, so that the file and KEY=VALUE overrides take the same path.
 */
#include "base/conf.h"
#include "base/near.h"
#include <assert.h>
#include <confuse.h>
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define CONF_MAX_FILE	  (1u << 20)
#define CONF_MAX_NAME	  64
#define CONF_MAX_SECTIONS 8

struct conf_value {
	char *v_str;
	int64_t v_num;
	enum conf_from v_from;
};
struct conf {
	struct conf_value *c_values; /* by place in conf_keys */
};

/* libconfuse's callbacks carry no argument of ours. */
static _Thread_local struct {
	struct conf *conf;
	const char *path;
	char *err;
	size_t errlen;
	bool failed;
} load;

/* ---- values ---- */

struct suffix {
	const char *s_text;
	double s_factor;
};
static const struct suffix times[] = {{"", 1e3}, {"ms", 1}, {"s", 1e3}, {"m", 6e4}, {"h", 3.6e6}};
static const struct suffix sizes[] = {
	{"", 1}, {"K", 0x1p10}, {"M", 0x1p20}, {"G", 0x1p30}, {"T", 0x1p40}};

/* Parses a decimal number and a suffix. The locale does not matter. Hex, inf and nan are no numbers
 * here. */
static bool parse_scaled(const char *text, const struct suffix *suffixes, size_t n, int64_t *out)
{
	const char *p = text;
	double v = 0, place = 1;

	if (!isdigit((unsigned char)*p))
		return false;
	for (; isdigit((unsigned char)*p); p++)
		v = v * 10 + (*p - '0');
	if (*p == '.')
		for (p++; isdigit((unsigned char)*p); p++)
			v += (*p - '0') * (place /= 10);
	for (size_t i = 0; i < n; i++)
		if (!strcasecmp(p, suffixes[i].s_text)) {
			v = v * suffixes[i].s_factor + 0.5;
			if (v > 9e18)
				return false;
			*out = (int64_t)v;
			return true;
		}
	return false;
}

static bool parse_int(const char *text, int64_t *out)
{
	char *end;

	if (!isdigit((unsigned char)*text) && *text != '-')
		return false;
	errno = 0;
	*out = strtoll(text, &end, 10);
	return !errno && end != text && !*end;
}

static bool parse_bool(const char *text, int64_t *out)
{
	static const char *const names[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (!strcasecmp(text, names[i])) {
			*out = i & 1;
			return true;
		}
	return false;
}

static bool parse_enum(const char *text, const char *range)
{
	size_t len = strlen(text);

	for (const char *p = range; p; p = strchr(p, '|') ? strchr(p, '|') + 1 : NULL)
		if (len && strcspn(p, "|") == len && !memcmp(p, text, len))
			return true;
	return false;
}

static bool conf_parse(const struct conf_key *k, const char *text, int64_t *num)
{
	*num = 0;
	switch (k->ck_type) {
	case CONF_STR:
		return true;
	case CONF_INT:
		return parse_int(text, num);
	case CONF_BOOL:
		return parse_bool(text, num);
	case CONF_SECONDS:
		return parse_scaled(text, times, sizeof times / sizeof times[0], num);
	case CONF_SIZE:
		return parse_scaled(text, sizes, sizeof sizes / sizeof sizes[0], num);
	case CONF_ENUM:
		return parse_enum(text, k->ck_range);
	}
	return false;
}

/* Splits "min..max". */
static bool range_split(const struct conf_key *k, char *lo, char *hi, size_t len)
{
	const char *dots =
		k->ck_range && k->ck_type != CONF_ENUM ? strstr(k->ck_range, "..") : NULL;

	if (!dots)
		return false;
	snprintf(lo, len, "%.*s", (int)(dots - k->ck_range), k->ck_range);
	snprintf(hi, len, "%s", dots + 2);
	return true;
}

static bool in_range(const struct conf_key *k, int64_t v)
{
	char lo[32], hi[32];
	int64_t a, b;

	if (!range_split(k, lo, hi, sizeof lo))
		return true;
	if (!conf_parse(k, lo, &a) || !conf_parse(k, hi, &b))
		abort(); /* the table is wrong */
	return a <= v && v <= b;
}

static void expected(const struct conf_key *k, bool range, char *out, size_t len)
{
	static const char *const what[] = {
		[CONF_STR] = "a text",
		[CONF_INT] = "a number",
		[CONF_BOOL] = "true or false",
		[CONF_SECONDS] = "a time such as 30s",
		[CONF_SIZE] = "a size such as 64M",
	};
	char lo[32], hi[32];

	if (k->ck_type == CONF_ENUM)
		snprintf(out, len, "one of %s", k->ck_range);
	else if (range && range_split(k, lo, hi, sizeof lo))
		snprintf(out, len, "a %s from %s to %s",
			 k->ck_type == CONF_INT	   ? "number"
			 : k->ck_type == CONF_SIZE ? "size"
						   : "time",
			 lo, hi);
	else
		snprintf(out, len, "%s", what[k->ck_type]);
}

/* err gets "key: expected ..., got ..." */
static int value_set(struct conf *c, size_t i, const char *text, enum conf_from from, char *err,
		     size_t errlen)
{
	const struct conf_key *k = &conf_keys[i];
	char what[128], *copy;
	int64_t num;
	bool ok = conf_parse(k, text, &num), range = ok && !in_range(k, num);

	if (!ok || range) {
		expected(k, range || k->ck_type == CONF_INT, what, sizeof what);
		snprintf(err, errlen, "%s: expected %s, got \"%s\"", k->ck_name, what, text);
		return -EINVAL;
	}
	copy = strdup(text);
	if (!copy) {
		snprintf(err, errlen, "out of memory");
		return -ENOMEM;
	}
	free(c->c_values[i].v_str);
	c->c_values[i] = (struct conf_value){copy, num, from};
	/* cppcheck-suppress memleak ; the compound literal keeps the pointer */
	return 0;
}

/* ---- names ---- */

static size_t key_find(const char *name)
{
	size_t i = 0;

	while (i < conf_nkeys && strcmp(conf_keys[i].ck_name, name))
		i++;
	return i;
}

/* A key as it is written: dotted, KEY=VALUE of a command line; otherwise as a file has it. */
static const char *key_text(const char *key, bool dotted, char out[CONF_MAX_NAME * 2 + 16])
{
	const char *dot = strchr(key, '.');

	snprintf(out, CONF_MAX_NAME * 2 + 16, dotted ? "%.*s.%s" : "%.*s { %s = ... }",
		 (int)(dot - key), key, dot + 1);
	return out;
}

/* dotted: as key_text, for the keys that are near. */
static void unknown_key(const char *name, bool dotted, char *err, size_t errlen)
{
	char text[CONF_MAX_NAME * 2 + 16];
	unsigned best = NEAR_EDITS + 1;
	int at;

	for (size_t i = 0; i < conf_nkeys; i++) {
		unsigned d = near_distance(name, conf_keys[i].ck_name);

		best = d < best ? d : best;
	}
	at = snprintf(err, errlen, "unknown key \"%s\"", name);
	if (!best) { /* a file has it, with a dot in it */
		snprintf(err + at, errlen - (size_t)at, " (%s writes %s)", conf_file_name,
			 key_text(name, false, text));
		return;
	}
	if (best > NEAR_EDITS)
		return;
	for (size_t i = 0, hits = 0; i < conf_nkeys && hits < 2; i++)
		if (near_distance(name, conf_keys[i].ck_name) == best && at >= 0 &&
		    (size_t)at < errlen)
			at += snprintf(err + at, errlen - (size_t)at, "%s%s",
				       hits++ ? " or " : " (did you mean ",
				       key_text(conf_keys[i].ck_name, dotted, text));
	if (at >= 0 && (size_t)at < errlen)
		snprintf(err + at, errlen - (size_t)at, "?)");
}

/* ---- the file ---- */

/* Keeps only the first error: the others mostly follow from it. */
static void load_error(cfg_t *cfg, const char *text)
{
	if (load.failed)
		return;
	load.failed = true;
	snprintf(load.err, load.errlen, "%s:%d: %s", load.path, cfg->line, text);
}

static void conf_on_error(cfg_t *cfg, const char *fmt, va_list ap)
	__attribute__((format(printf, 2, 0)));

static void conf_on_error(cfg_t *cfg, const char *fmt, va_list ap)
{
	bool root = !strcmp(cfg->name, "root");
	char text[512], name[256], *quote;

	vsnprintf(text, sizeof text, fmt, ap);
	/* The unknown name, which libconfuse puts between quotes. */
	if (!strncmp(fmt, "no such option", 14) && (quote = strchr(text, '\''))) {
		int len = (int)strcspn(quote + 1, "'");
		bool dot = memchr(quote + 1, '.', (size_t)len);

		/* A name with a dot says its section itself. */
		snprintf(name, sizeof name, "%s%s%.*s", root || dot ? "" : cfg->name,
			 root || dot ? "" : ".", len, quote + 1);
		unknown_key(name, !dot, text, sizeof text);
	}
	load_error(cfg, text);
}

static int conf_on_value(cfg_t *cfg, cfg_opt_t *opt)
{
	char name[CONF_MAX_NAME * 2], err[256];
	const char *text = cfg_opt_getnstr(opt, cfg_opt_size(opt) - 1);
	size_t i;

	snprintf(name, sizeof name, "%s.%s", cfg->name, opt->name);
	i = key_find(name);
	assert(i < conf_nkeys);
	if (!value_set(load.conf, i, text ? text : "", CONF_FROM_FILE, err, sizeof err))
		return 0;
	load_error(cfg, err);
	return -1;
}

/*
 * Overwrites comments with blanks. libconfuse knows comments too, but libconfuse 3.3 counts the
 * line ends around a comment twice, so that every message names a wrong line. Returns whether all
 * that was opened is closed: libconfuse takes the end of a file that was cut off for the end of the
 * section.
 */
static bool blank_comments(char *p)
{
	char quote = 0, before = '\n',
	     kind = 0; /* kind: '#' to the end of the line, '*' to its own end */
	int depth = 0;

	for (; *p; before = *p++) {
		if (kind) {
			bool end = kind == '#' ? *p == '\n' : *p == '*' && p[1] == '/';

			if (end && kind == '*')
				p[1] = ' ';
			if (*p != '\n')
				*p = ' ';
			kind = end ? 0 : kind;
		} else if (quote) {
			if (*p == '\\' && p[1])
				p++;
			else if (*p == quote)
				quote = 0;
		} else if (*p == '"' || *p == '\'') {
			quote = *p;
		} else if (*p == '#') {
			kind = '#';
			*p = ' ';
		} else if (*p == '/' && (p[1] == '/' || p[1] == '*') &&
			   (isspace((unsigned char)before) || strchr("{}=", before))) {
			/* In the middle of a word the slashes are part of it, as in a path. */
			kind = p[1] == '*' ? '*' : '#';
			*p++ = ' ';
			*p = ' ';
		} else {
			depth += (*p == '{') - (*p == '}');
		}
	}
	return depth <= 0 && !quote && kind != '*';
}

static int file_read(const char *path, char **out, char *err, size_t errlen)
{
	FILE *f = fopen(path, "re");
	char *text = malloc(CONF_MAX_FILE + 1);
	size_t n;
	int e = 0;

	if (!f || !text) {
		e = f ? -ENOMEM : -errno;
		goto out;
	}
	n = fread(text, 1, CONF_MAX_FILE + 1, f);
	if (ferror(f))
		e = -EIO;
	else if (n > CONF_MAX_FILE)
		e = -EFBIG;
	else if (memchr(text, 0, n))
		e = -EILSEQ;
	else
		text[n] = 0;
out:
	if (f)
		fclose(f);
	if (e) {
		snprintf(err, errlen, "%s: %s", path, strerror(-e));
		free(text);
		return e;
	}
	*out = text;
	return 0;
}

/* What libconfuse has to know: a section of strings for each first half of a key. */
struct schema {
	unsigned n;
	char names[CONF_MAX_SECTIONS][CONF_MAX_NAME];
	cfg_opt_t *opts[CONF_MAX_SECTIONS];
	unsigned nopts[CONF_MAX_SECTIONS];
	cfg_opt_t root[CONF_MAX_SECTIONS + 1];
};

static void schema_free(struct schema *s)
{
	for (unsigned i = 0; i < s->n; i++)
		free(s->opts[i]);
}

static int schema_make(struct schema *s)
{
	memset(s, 0, sizeof *s);
	for (size_t i = 0; i < conf_nkeys; i++) {
		const char *name = conf_keys[i].ck_name, *dot = strchr(name, '.');
		size_t len = strcspn(name, ".");
		unsigned j = 0;

		assert(dot && strlen(name) < CONF_MAX_NAME);
		while (j < s->n && (strncmp(s->names[j], name, len) || s->names[j][len]))
			j++;
		if (j == s->n) {
			assert(s->n < CONF_MAX_SECTIONS);
			memcpy(s->names[j], name, len);
			s->opts[j] = calloc(conf_nkeys + 1, sizeof **s->opts);
			if (!s->opts[j])
				return -ENOMEM;
			s->n++;
		}
		s->opts[j][s->nopts[j]++] = (cfg_opt_t)CFG_STR(dot + 1, NULL, CFGF_NODEFAULT);
	}
	for (unsigned j = 0; j < s->n; j++) {
		s->opts[j][s->nopts[j]] = (cfg_opt_t)CFG_END();
		s->root[j] = (cfg_opt_t)CFG_SEC(s->names[j], s->opts[j], CFGF_NONE);
	}
	s->root[s->n] = (cfg_opt_t)CFG_END();
	return 0;
}

static int file_parse(struct conf *c, const char *path, const char *text, char *err, size_t errlen)
{
	char key[2 * CONF_MAX_NAME];
	struct schema s;
	cfg_t *cfg = NULL;
	int rc = -ENOMEM;

	if (!schema_make(&s))
		cfg = cfg_init(s.root, CFGF_NONE);
	if (!cfg) {
		snprintf(err, errlen, "out of memory");
		goto out;
	}
	load.conf = c;
	load.path = path;
	load.err = err;
	load.errlen = errlen;
	load.failed = false;
	cfg_set_error_function(cfg, conf_on_error);
	for (unsigned j = 0; j < s.n; j++)
		for (unsigned i = 0; i < s.nopts[j]; i++) {
			snprintf(key, sizeof key, "%s|%s", s.names[j], s.opts[j][i].name);
			cfg_set_validate_func(cfg, key, conf_on_value);
		}
	rc = cfg_parse_buf(cfg, text) == CFG_SUCCESS && !load.failed ? 0 : -EINVAL;
	if (rc && !load.failed)
		snprintf(err, errlen, "%s: cannot be parsed", path);
	cfg_free(cfg);
out:
	schema_free(&s);
	return rc;
}

/* ---- the interface ---- */

int conf_text(char *text, const char *name, char *err, size_t errlen)
{
	if (blank_comments(text))
		return 0;
	snprintf(err, errlen, "%s: a section, string or comment is not closed", name);
	return -EINVAL;
}

int conf_read(const char *path, char **out, char *err, size_t errlen)
{
	int rc = file_read(path, out, err, errlen);

	if (rc)
		return rc;
	rc = conf_text(*out, path, err, errlen);
	if (rc) {
		free(*out);
		*out = NULL;
	}
	return rc;
}

static int load_all(struct conf **out, const char *path, char *err, size_t errlen)
{
	struct conf *c = calloc(1, sizeof *c);
	char *text = NULL;
	int rc = 0;

	if (c)
		c->c_values = calloc(conf_nkeys, sizeof *c->c_values);
	if (!c || !c->c_values) {
		snprintf(err, errlen, "out of memory");
		free(c);
		return -ENOMEM;
	}
	for (size_t i = 0; i < conf_nkeys && !rc; i++)
		rc = value_set(c, i, conf_keys[i].ck_default, CONF_FROM_DEFAULT, err, errlen);
	if (!rc && path)
		rc = conf_read(path, &text, err, errlen);
	if (!rc && text)
		rc = file_parse(c, path, text, err, errlen);
	free(text);
	if (rc) {
		conf_free(c);
		return rc;
	}
	*out = c;
	return 0;
}

static int set_one(struct conf *c, const char *assignment, char *err, size_t errlen)
{
	const char *eq = strchr(assignment, '=');
	char name[CONF_MAX_NAME * 2];
	size_t i;

	if (!eq || eq == assignment || (size_t)(eq - assignment) >= sizeof name) {
		snprintf(err, errlen, "expected KEY=VALUE, got \"%s\"", assignment);
		return -EINVAL;
	}
	snprintf(name, sizeof name, "%.*s", (int)(eq - assignment), assignment);
	i = key_find(name);
	if (i == conf_nkeys) {
		unknown_key(name, true, err, errlen);
		return -EINVAL;
	}
	return value_set(c, i, eq + 1, CONF_FROM_OPTION, err, errlen);
}

/* Keeps an error on one line, whatever bytes it quotes. */
static int one_line(int rc, char *err)
{
	for (; rc && *err; err++)
		if ((unsigned char)*err < ' ' || *err == 0x7f)
			*err = '?';
	return rc;
}

int conf_load(struct conf **out, const char *path, char *err, size_t errlen)
{
	return one_line(load_all(out, path, err, errlen), err);
}

int conf_set(struct conf *c, const char *assignment, char *err, size_t errlen)
{
	return one_line(set_one(c, assignment, err, errlen), err);
}

size_t conf_find(const char *name, char *err, size_t errlen)
{
	size_t i = key_find(name);

	if (i == conf_nkeys) {
		unknown_key(name, true, err, errlen);
		one_line(-EINVAL, err);
	}
	return i;
}

const char *conf_value(const struct conf *c, size_t key)
{
	return c->c_values[key].v_str;
}

enum conf_from conf_from(const struct conf *c, size_t key)
{
	return c->c_values[key].v_from;
}

int conf_put(struct conf *c, size_t key, const char *text, enum conf_from from, char *err,
	     size_t errlen)
{
	return one_line(value_set(c, key, text, from, err, errlen), err);
}

void conf_free(struct conf *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < conf_nkeys; i++)
		free(c->c_values[i].v_str);
	free(c->c_values);
	free(c);
}

static const struct conf_value *value(const struct conf *c, const char *key, enum conf_type type)
{
	size_t i = key_find(key);

	assert(i < conf_nkeys);
	assert(conf_keys[i].ck_type == type ||
	       (type == CONF_STR && conf_keys[i].ck_type == CONF_ENUM));
	return &c->c_values[i];
}

/* Works for CONF_ENUM keys as well. */
const char *conf_str(const struct conf *c, const char *key)
{
	return value(c, key, CONF_STR)->v_str;
}

int64_t conf_int(const struct conf *c, const char *key)
{
	return value(c, key, CONF_INT)->v_num;
}

bool conf_bool(const struct conf *c, const char *key)
{
	return value(c, key, CONF_BOOL)->v_num;
}

int64_t conf_msec(const struct conf *c, const char *key)
{
	return value(c, key, CONF_SECONDS)->v_num;
}

uint64_t conf_size(const struct conf *c, const char *key)
{
	return (uint64_t)value(c, key, CONF_SIZE)->v_num;
}
