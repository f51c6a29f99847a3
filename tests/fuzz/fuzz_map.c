/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_map.c - stored layout maps are decoded without trust: any bytes give a map that can be used,
 * or -EIO. */
#include "mds/layout/lo.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t out[NS_BLOB_MAX];
	struct lo_policy p;
	struct lo_map m, again;
	size_t n;

	if (lo_map_decode((struct kv_slice){data, size}, &m))
		return 0;
	n = (size_t)m.lm_stripes * m.lm_mirrors;
	if (!n || n > LO_MAX_OBJECTS || m.lm_unit < LO_UNIT_MIN || (m.lm_unit & (m.lm_unit - 1)))
		abort();
	for (size_t i = 0; i < n; i++)
		if (m.lm_obj[i].ob_state > LO_ABSENT || m.lm_obj[i].ob_ds > DS_REG_MAX ||
		    !m.lm_obj[i].ob_ds != (m.lm_obj[i].ob_state == LO_ABSENT))
			abort();
	/* The policy with it is one, or it is said that it is none. */
	if (lo_map_policy(&m, &p) == 0 &&
	    (p.lp_mirrors != m.lm_mirrors - m.lm_pending_mirror || p.lp_stripes != m.lm_stripes))
		abort();
	if (lo_stripe_of(&m, UINT64_MAX) >= m.lm_stripes)
		abort();
	/* Promised: what decodes is encoded to the same bytes; version 1 to what decodes to the
	 * same. */
	n = lo_map_encode(&m, out, sizeof(out));
	if (n != size || (data[0] != 1 && memcmp(out, data, size)))
		abort();
	if (data[0] == 1 &&
	    (lo_map_decode((struct kv_slice){out, n}, &again) || memcmp(&again, &m, sizeof(m))))
		abort();
	return 0;
}
