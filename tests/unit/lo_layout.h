/* SPDX-License-Identifier: Apache-2.0 */
/* lo_layout.h - maps, and layouts taken apart, for tests with lo_fake.h. */
#ifndef TESTS_UNIT_LO_LAYOUT_H
#define TESTS_UNIT_LO_LAYOUT_H
#include "tests/unit/lo_fake.h"

static inline struct lo_map map_on(unsigned stripes, unsigned mirrors)
{
	struct lo_map m = {.lm_unit = MIB,
			   .lm_stripes = (uint8_t)stripes,
			   .lm_mirrors = (uint8_t)mirrors,
			   .lm_epoch = 3};

	/* Mirror m's stripe s on server (s + m) % 4 + 1. */
	for (unsigned i = 0; i < stripes * mirrors; i++) {
		m.lm_obj[i].ob_ds = (i % stripes + i / stripes) % 4 + 1;
		m.lm_obj[i].ob_copy = (uint8_t)(i / stripes);
	}
	return m;
}

struct entry {
	uint8_t e_uuid[16];
	uint32_t e_eff;
	struct cap e_cap;
};

/* Takes a layout apart; returns the number of mirrors. */
static inline unsigned take_layout(struct xdr_out *x, uint64_t *unit, unsigned stripes,
				   struct entry *e)
{
	struct xdr_in in;
	unsigned mirrors, n = 0;
	uint32_t len;

	xdr_in_init(&in, x->x_head, x->x_len);
	*unit = xdr_get_u64(&in);
	mirrors = xdr_get_u32(&in);
	for (unsigned m = 0; m < mirrors; m++) {
		ck_assert_uint_eq(xdr_get_u32(&in), stripes);
		for (unsigned s = 0; s < stripes; s++, n++) {
			struct ds_reg_server sv;

			memcpy(e[n].e_uuid, xdr_get_fixed(&in, 16), 16);
			e[n].e_eff = xdr_get_u32(&in);
			for (unsigned k = 0; k < 4; k++)
				ck_assert_uint_eq(xdr_get_u32(&in), 0);
			ck_assert_uint_eq(xdr_get_u32(&in), 1);
			const uint8_t *fh = xdr_get_opaque(&in, 64, &len);

			ck_assert_uint_eq(len, CAP_LEN);
			ck_assert(ds_reg_get_uuid(dsc, e[n].e_uuid, &sv));
			ck_assert(cap_open(fh, sv.sv_key, &e[n].e_cap));
			for (unsigned k = 0; k < 2; k++) {
				const uint8_t *who = xdr_get_opaque(&in, 16, &len);

				ck_assert_uint_eq(len, 1);
				ck_assert_int_eq(*who, '0');
			}
		}
	}
	ck_assert_uint_eq(xdr_get_u32(&in), 5);
	xdr_get_u32(&in);
	ck_assert(!in.bad && xdr_left(&in) == 0);
	return mirrors;
}
#endif
