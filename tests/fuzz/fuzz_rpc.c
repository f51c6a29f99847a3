/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_rpc.c - libFuzzer target: a byte stream cut into records, the headers in them, AUTH_SYS
 * bodies, addresses.
 *
 * The first byte says how the stream is chopped. What is checked beyond memory: a credential that
 * is accepted keeps its bounds, AUTH_NONE is nobody, records keep to the cap, and chopping does not
 * change them.
 */
#include "proto/rpc_int.h"
#include <assert.h>
#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_RECORD 65536u

static void message(const uint8_t *p, size_t n)
{
	struct rpc_head h;
	struct xdr_in x;

	xdr_in_init(&x, p, n);
	if (rpc_call_parse(&x, &h) == RPC_HDR_OK) {
		assert(!x.bad && x.p >= p && x.p <= p + n && x.end == p + n);
		assert((h.rhd_cred.rc_flavor <= RPC_AUTH_SYS ||
			h.rhd_cred.rc_flavor == RPC_AUTH_GSS) &&
		       h.rhd_cred.rc_ngids <= RPC_MAX_GIDS);
		if (h.rhd_cred.rc_flavor == RPC_AUTH_NONE)
			assert(h.rhd_cred.rc_uid == 65534 && h.rhd_cred.rc_gid == 65534 &&
			       !h.rhd_cred.rc_ngids);
	}
	xdr_in_init(&x, p, n);
	xdr_take(&x, 8);
	if (!rpc_reply_parse(&x))
		assert(!x.bad && x.p <= p + n);
}

/* Returns a sum over the records, for comparing. */
static uint64_t stream(const uint8_t *p, size_t n, size_t step)
{
	struct rpc_pool pool = {0};
	uint64_t sum = 0xcbf29ce484222325ull;
	struct rpc_record r;
	struct rpc_rx x;
	int got = 0;

	rpc_rx_init(&x, &pool, MAX_RECORD);
	while (n && got >= 0) {
		size_t room, take;
		bool all;
		void *to;

		if (rpc_rx_space(&x, &to, &room, &all))
			break;
		assert(room);
		take = room < n ? room : n;
		take = take < step ? take : step;
		memcpy(to, p, take);
		p += take;
		n -= take;
		rpc_rx_got(&x, take);
		while ((got = rpc_rx_next(&x, &r)) > 0) {
			assert(r.r_len <= MAX_RECORD);
			for (size_t i = 0; i < r.r_len; i++)
				sum = (sum ^ r.r_data[i]) * 0x100000001b3ull;
			sum = (sum ^ r.r_len) * 0x100000001b3ull;
			message(r.r_data, r.r_len);
			rpc_rx_hint(&x, r.r_data, r.r_len / 2);
			rpc_buf_put(r.r_buf);
		}
	}
	rpc_rx_free(&x);
	rpc_pool_drain(&pool);
	return sum;
}

static void address(const uint8_t *p, size_t n)
{
	char text[128], uaddr[128], netid[8];
	struct sockaddr_storage ss;
	socklen_t len;

	snprintf(text, sizeof text, "%.*s", (int)(n < 100 ? n : 100), (const char *)p);
	rpc_addr_parse(text, 2049, &ss, &len);
	if (!rpc_uaddr_parse("tcp6", text, &ss, &len) || !rpc_uaddr_parse("tcp", text, &ss, &len))
		assert(!rpc_uaddr((struct sockaddr *)&ss, netid, sizeof netid, uaddr,
				  sizeof uaddr));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t step;

	if (!size)
		return 0;
	step = (size_t)data[0] + 1;
	data++;
	size--;
	message(data, size);
	if (stream(data, size, step) != stream(data, size, SIZE_MAX))
		assert(!"chopping changed the records");
	address(data, size);
	return 0;
}
