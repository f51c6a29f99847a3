/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_policy.c - a policy's text comes from any user (an xattr): it is refused with a line, or
 * gives a policy that keeps its promises. */
#include "mds/layout/lo_int.h"
#include <stdlib.h>

static void same(const struct lo_policy *a, const struct lo_policy *b)
{
	if (a->lp_unit != b->lp_unit || a->lp_stripes != b->lp_stripes ||
	    a->lp_mirrors != b->lp_mirrors || strcmp(a->lp_domain, b->lp_domain) ||
	    strcmp(a->lp_groups, b->lp_groups))
		abort();
}

/* What it asks for, of a server with the labels that the input is, or with its own groups as
 * labels. */
static void servers(const struct lo_policy *p, const uint8_t *data, size_t size)
{
	char labels[LABELS_LEN], two[LABELS_TWO_LEN], err[256];
	const char *eq = strchr(p->lp_groups, '=');

	if (!labels_parse((const char *)data, size, true, labels, err, sizeof(err)))
		labels_merge("", labels, two);
	else if (eq &&
		 !labels_parse(eq + 1, strcspn(eq + 1, ",+/"), false, labels, err, sizeof(err)))
		labels_merge(labels, "rack=r1", two);
	else
		two[0] = 0;
	if (p->lp_mirrors <= LO_MAX_OBJECTS && lo_group_mirrors(p, two) >> p->lp_mirrors)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char err[256] = "", text[LO_POLICY_TEXT], *copy = malloc(size ? size : 1);
	struct lo_policy p, q;
	uint8_t stored[LO_POLICY_MAX];
	size_t n;

	/* A copy of just that size, so that a step past its end is seen. */
	memcpy(copy, data, size);
	if (lo_policy_parse(copy, size, &p, err, sizeof(err))) {
		if (!err[0] || strchr(err, '\n'))
			abort();
		goto out;
	}
	if (p.lp_unit < LO_UNIT_MIN || (p.lp_unit & (p.lp_unit - 1)) || !p.lp_stripes ||
	    p.lp_stripes > LO_MAX_OBJECTS || !p.lp_mirrors || p.lp_mirrors > LO_MAX_OBJECTS)
		abort();
	n = lo_policy_format(&p, text);
	if (n >= sizeof(text) || lo_policy_parse(text, n, &q, err, sizeof(err)))
		abort();
	same(&p, &q);
	n = lo_policy_encode(&p, stored, sizeof(stored));
	if (!n || lo_policy_decode((struct kv_slice){stored, n}, &q))
		abort();
	same(&p, &q);
	servers(&p, data, size);
out:
	/* The stored form is decoded without trust as well. */
	if (!lo_policy_decode((struct kv_slice){data, size}, &p) && size &&
	    (lo_policy_encode(&p, stored, sizeof(stored)) != size || memcmp(stored, data, size)))
		abort();
	free(copy);
	return 0;
}
