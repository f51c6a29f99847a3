/* SPDX-License-Identifier: Apache-2.0 */
/* labels.c - see labels.h. */
#include "common/labels.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct label {
	const char *l_key, *l_val;
	size_t l_klen, l_vlen;
};

static bool letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool word(char c)
{
	return letter(c) || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

bool labels_key_ok(const char *p, size_t n)
{
	if (!n || n > LABELS_KEY_MAX || !letter(*p))
		return false;
	for (size_t i = 1; i < n; i++)
		if (!word(p[i]))
			return false;
	return true;
}

bool labels_value_ok(const char *p, size_t n)
{
	if (!n || n > LABELS_VALUE_MAX)
		return false;
	for (size_t i = 0; i < n; i++)
		if (!word(p[i]) && p[i] != '.')
			return false;
	return true;
}

static __attribute__((format(printf, 3, 4))) int refuse(char *err, size_t errlen, const char *fmt,
							...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(err, errlen, fmt, ap);
	va_end(ap);
	return -EINVAL;
}

/* Shows a character that does not print as '?'. */
static int refuse_label(const char *p, size_t n, char *err, size_t errlen)
{
	char shown[65];
	size_t i;

	for (i = 0; i < n && i < sizeof(shown) - 1; i++)
		shown[i] = p[i] >= ' ' && p[i] <= '~' ? p[i] : '?';
	shown[i] = 0;
	return refuse(err, errlen,
		      "label \"%s\": expected KEY=VALUE, KEY a letter and up to %d more letters, "
		      "digits, - and _, VALUE up to %d of them and dots",
		      shown, LABELS_KEY_MAX - 1, LABELS_VALUE_MAX);
}

/* Gets the label up to the next comma of a list in normal form. Returns where the next label
 * begins, or NULL at the end. */
static const char *next(const char *p, const char *end, struct label *l)
{
	const char *comma = memchr(p, ',', (size_t)(end - p)), *stop = comma ? comma : end;
	const char *eq = memchr(p, '=', (size_t)(stop - p));

	l->l_key = p;
	l->l_klen = (size_t)((eq ? eq : stop) - p);
	l->l_val = eq ? eq + 1 : stop;
	l->l_vlen = (size_t)(stop - l->l_val);
	return comma ? comma + 1 : NULL;
}

static int labels_order(const struct label *a, const struct label *b)
{
	size_t n = a->l_klen < b->l_klen ? a->l_klen : b->l_klen;
	int c = memcmp(a->l_key, b->l_key, n);

	return c ? c : a->l_klen < b->l_klen ? -1 : a->l_klen > b->l_klen;
}

static size_t labels_put(char *out, size_t at, const struct label *l)
{
	if (at)
		out[at++] = ',';
	memcpy(out + at, l->l_key, l->l_klen);
	at += l->l_klen;
	out[at++] = '=';
	memcpy(out + at, l->l_val, l->l_vlen);
	return at + l->l_vlen;
}

int labels_parse(const char *text, size_t len, bool drops, char out[LABELS_LEN], char *err,
		 size_t errlen)
{
	struct label all[LABELS_MAX], l;
	const char *end = text + len;
	size_t at = 0;
	unsigned n = 0;

	for (const char *p = len ? text : NULL, *q; p; p = q) {
		unsigned k = n;

		q = next(p, end, &l);
		if (!labels_key_ok(l.l_key, l.l_klen) ||
		    (!labels_value_ok(l.l_val, l.l_vlen) &&
		     !(drops && !l.l_vlen && l.l_val > l.l_key + l.l_klen)))
			return refuse_label(p, (size_t)(l.l_val + l.l_vlen - p), err, errlen);
		if (n == LABELS_MAX)
			return refuse(err, errlen, "labels: at most %d are allowed", LABELS_MAX);
		for (; k && labels_order(&l, &all[k - 1]) < 0; k--)
			all[k] = all[k - 1];
		if (k && !labels_order(&l, &all[k - 1]))
			return refuse(err, errlen, "label %.*s: given more than once",
				      (int)l.l_klen, l.l_key);
		all[k] = l;
		n++;
	}
	for (unsigned i = 0; i < n; i++)
		at = labels_put(out, at, &all[i]);
	out[at] = 0;
	return 0;
}

const char *labels_get(const char *labels, const char *key, size_t n, size_t *len)
{
	const char *end = labels + strlen(labels);
	struct label l;

	for (const char *p = *labels ? labels : NULL; p;) {
		p = next(p, end, &l);
		if (l.l_klen == n && !memcmp(l.l_key, key, n)) {
			*len = l.l_vlen;
			return l.l_val;
		}
	}
	return NULL;
}

unsigned labels_merge(const char *base, const char *over, char out[LABELS_TWO_LEN])
{
	const char *p = *base ? base : NULL, *q = *over ? over : NULL, *pe = base + strlen(base),
		   *qe = over + strlen(over);
	unsigned n = 0;
	size_t at = 0;

	while (p || q) {
		struct label a = {0}, b = {0};
		const char *p2 = p ? next(p, pe, &a) : NULL, *q2 = q ? next(q, qe, &b) : NULL;
		int c = !p ? 1 : !q ? -1 : labels_order(&a, &b);
		const struct label *l = c < 0 ? &a : &b;

		if (l->l_vlen) {
			at = labels_put(out, at, l);
			n++;
		}
		if (c <= 0)
			p = p2;
		if (c >= 0)
			q = q2;
	}
	out[at] = 0;
	return n;
}
