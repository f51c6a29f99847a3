/* SPDX-License-Identifier: Apache-2.0 */
/* group.c - which data servers a policy wants for its copies: expressions over the servers' labels
 * (docs/groups.md). */
#include "mds/layout/lo_int.h"
#include <stdio.h>

/* Parses one term KEY=VALUE[/VALUE]...[+KEY=VALUE...]: returns the end of the term's key, and the
 * end of the term in *stop. NULL: not a term. */
static const char *term(const char *p, const char *end, const char **stop)
{
	const char *plus = memchr(p, '+', (size_t)(end - p)), *eq;

	*stop = plus ? plus : end;
	eq = memchr(p, '=', (size_t)(*stop - p));
	return eq && labels_key_ok(p, (size_t)(eq - p)) ? eq : NULL;
}

/* Returns the start of the term's next value; NULL after the last one. */
static const char *group_value(const char *p, const char *stop, size_t *len)
{
	const char *slash = memchr(p, '/', (size_t)(stop - p));

	*len = (size_t)((slash ? slash : stop) - p);
	return slash ? slash + 1 : NULL;
}

bool lo_group_ok(const char *p, size_t n)
{
	const char *end = p + n, *stop;

	for (const char *at = p; at <= end; at = stop + 1) {
		const char *eq = term(at, end, &stop);
		size_t len;

		if (!eq)
			return false;
		for (const char *v = eq + 1, *next; v; v = next) {
			next = group_value(v, stop, &len);
			if (!labels_value_ok(v, len))
				return false;
		}
		/* No server could match a term list that has one key twice. */
		for (const char *q = p, *qstop; q < at; q = qstop + 1) {
			const char *qeq = term(q, end, &qstop);

			if (qeq - q == eq - at && !memcmp(q, at, (size_t)(eq - at)))
				return false;
		}
	}
	return true;
}

static bool group_has(const char *p, size_t n, const char *labels)
{
	const char *end = p + n, *stop;

	for (const char *at = p; at <= end; at = stop + 1) {
		const char *eq = term(at, end, &stop), *has;
		size_t len, hlen;
		bool found = false;

		has = labels_get(labels, at, (size_t)(eq - at), &hlen);
		for (const char *v = eq + 1, *next; has && v && !found; v = next) {
			next = group_value(v, stop, &len);
			found = len == hlen && !memcmp(v, has, len);
		}
		if (!found)
			return false;
	}
	return true;
}

bool lo_group_has(const char *expr, const char *labels)
{
	return group_has(expr, strlen(expr), labels);
}

const char *lo_group_item(const char *p, int *mirror, const char **expr, size_t *len)
{
	const char *comma = strchr(p, ',');

	*mirror = -1;
	for (p += strlen("group"); *p != '='; p++)
		*mirror = (*mirror < 0 ? 0 : *mirror * 10) + (*p - '0');
	*expr = p + 1;
	*len = comma ? (size_t)(comma - *expr) : strlen(*expr);
	return comma ? comma + 1 : NULL;
}

uint64_t lo_group_mirrors(const struct lo_policy *lp, const char *labels)
{
	uint64_t pin = lp->lp_pin ? UINT64_C(1) << (lp->lp_pin - 1) : 0;
	uint64_t may = ((UINT64_C(1) << lp->lp_mirrors) - 1) & ~pin;
	const char *expr;
	size_t len;
	int mirror;

	if (pin && !lo_group_has(lp->lp_pin_group, labels))
		pin = 0;
	if (*lp->lp_domain && !labels_get(labels, lp->lp_domain, strlen(lp->lp_domain), &len))
		return pin;
	for (const char *p = *lp->lp_groups ? lp->lp_groups : NULL; p;) {
		p = lo_group_item(p, &mirror, &expr, &len);
		if (group_has(expr, len, labels))
			continue;
		if (mirror < 0)
			return pin;
		may &= ~(UINT64_C(1) << mirror);
	}
	return may | pin;
}
