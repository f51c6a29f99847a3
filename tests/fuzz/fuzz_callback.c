/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_callback.c - a client's answer to a callback is decoded without trust: to CB_LAYOUTRECALL,
 * whose status counts, and to CB_GETATTR, which brings attributes. */
#include "mds/state/st.h"
#include <stdlib.h>

static void getattr(const uint8_t *data, size_t size)
{
	struct st_deleg_query a = {0}, b = {0};
	struct xdr_in x, y;
	bool sequenced;

	xdr_in_init(&x, data, size);
	if (st_cb_decode(&x, OP_CB_GETATTR, &sequenced) != NFS4_OK || !sequenced)
		return;
	y = x;
	if (!st_ask_decode(&x, 7, &a))
		return;
	if (x.bad || x.p > data + size ||
	    (a.dq_times && (a.dq_atime.t_nsec >= 1000000000 || a.dq_mtime.t_nsec >= 1000000000)))
		abort();
	/* Whether it has written depends on the change alone. */
	if (!st_ask_decode(&y, 8, &b) || (!a.dq_modified && !b.dq_modified) ||
	    a.dq_size != b.dq_size)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct xdr_in x;
	bool sequenced;
	int64_t status;
	uint32_t status0 = 0, len, n, op, st;

	getattr(data, size);
	xdr_in_init(&x, data, size);
	status = st_cb_decode(&x, OP_CB_LAYOUTRECALL, &sequenced);
	if (x.p < data || x.p > data + size || status < -1 || status > UINT32_MAX)
		abort();
	/* Read again: the slot moves on exactly when CB_SEQUENCE says so, and the recall's word is
	 * the last result's. */
	xdr_in_init(&x, data, size);
	status0 = xdr_get_u32(&x);
	xdr_get_opaque(&x, NFS4_OPAQUE_LIMIT, &len);
	n = xdr_get_u32(&x);
	op = n ? xdr_get_u32(&x) : 0;
	st = n ? xdr_get_u32(&x) : 0;
	if (sequenced && (x.bad || !n || op != OP_CB_SEQUENCE || st))
		abort();
	if (n == 0 && !x.bad && status != (status0 ? (int64_t)status0 : -1))
		abort();
	if (n == 1 && !x.bad && op == OP_CB_SEQUENCE && st && status != st)
		abort();
	if (n < 2 || x.bad || st || op != OP_CB_SEQUENCE)
		return 0;
	xdr_take(&x, 32);
	op = xdr_get_u32(&x);
	st = xdr_get_u32(&x);
	if (status != (x.bad || op != OP_CB_LAYOUTRECALL ? -1 : (int64_t)st))
		abort();
	return 0;
}
