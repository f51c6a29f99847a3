/* fuzz_policy.c - a policy's text comes from any user (an xattr): it is refused with a line, or
 * gives a policy that keeps its promises. */
#include "mds/lo/lo.h"
#include <stdlib.h>

static void same(const struct lo_policy *a, const struct lo_policy *b)
{
	if (a->lp_unit != b->lp_unit || a->lp_stripes != b->lp_stripes ||
	    a->lp_mirrors != b->lp_mirrors)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char err[160] = "", text[LO_POLICY_TEXT], *copy = malloc(size ? size : 1);
	struct lo_policy p, q;
	uint8_t stored[16];
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
out:
	/* The stored form is decoded without trust as well. */
	if (!lo_policy_decode((struct kv_slice){data, size}, &p) && size &&
	    (lo_policy_encode(&p, stored, sizeof(stored)) != size || memcmp(stored, data, size)))
		abort();
	free(copy);
	return 0;
}
