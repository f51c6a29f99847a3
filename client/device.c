/* SPDX-License-Identifier: Apache-2.0 */
/* device.c - the data servers that layouts name: GETDEVICEINFO (RFC 8881 section 18.40),
 * ff_device_addr4 (RFC 8435 section 4.1), and connections to each, which the client keeps. */
#include "client/device.h"
#include "client/layout.h"
#include "client/res.h"
#include "client/ring.h"
#include "client/session.h"
#include "client/weft_call.h"
#include "proto/nfs3.h"
#include <stdlib.h>

#define DEVICE_IO_LEAST 512u
#define RDMA_IO		(512u << 10) /* a call and a reply take at most 1 MiB each, in all */
#define RDMA_AGAIN_NS	30000000000ull
#define QUIET_MS	10000 /* a data server from which nothing moves for so long is dead */

static void device_opened(struct rpc_conn *conn, void *arg)
{
	(void)arg;
	wc_ring_of(rpc_conn_loop(conn))->r_conns++;
}

static void device_closed(struct rpc_conn *conn, void *arg)
{
	(void)arg;
	wc_ring_of(rpc_conn_loop(conn))->r_conns--;
}

/* A data server does not call us. Its replies are as large as those of a metadata server. */
static const struct rpc_service device_service = {.rs_max_record = WC_MAX_IO + 65536,
						  .rs_max_reply = 512,
						  .rs_quiet_ms = QUIET_MS,
						  .rs_opened = device_opened,
						  .rs_closed = device_closed};

static void device_put(struct wc_call *c, struct xdr_out *x)
{
	struct wc_device *dv = c->wcl_arg;

	wc_call_op(c, x, OP_GETDEVICEINFO);
	xdr_put_fixed(x, dv->dv_id, NFS4_DEVICEID4_SIZE);
	xdr_put_u32(x, LAYOUT4_FLEX_FILES);
	xdr_put_u32(x, c->wcl_w->w_max_resp - 512);
	xdr_put_u32(x, 0); /* no notifications */
}

/* Gets the first address that TCP reaches, and the first by RDMA. */
static bool get_addrs(struct xdr_in *x, struct wc_device *dv)
{
	uint32_t n = xdr_get_u32(x);
	bool found = false;

	dv->dv_rlen = 0;
	for (uint32_t i = 0; i < n && !x->bad; i++) {
		uint32_t idlen, ualen;
		const uint8_t *id = xdr_get_opaque(x, 1024, &idlen),
			      *ua = xdr_get_opaque(x, 1024, &ualen);
		char netid[8], uaddr[128];

		if (x->bad || idlen >= sizeof(netid) || !idlen || ualen >= sizeof(uaddr) || !ualen)
			continue;
		memcpy(netid, id, idlen);
		netid[idlen] = 0;
		memcpy(uaddr, ua, ualen);
		uaddr[ualen] = 0;
		if (!dv->dv_rlen && (!strcmp(netid, "rdma") || !strcmp(netid, "rdma6")) &&
		    rpc_uaddr_parse(netid, uaddr, &dv->dv_raddr, &dv->dv_rlen))
			dv->dv_rlen = 0;
		if (found || (strcmp(netid, "tcp") && strcmp(netid, "tcp6")))
			continue;
		found = !rpc_uaddr_parse(netid, uaddr, &dv->dv_addr, &dv->dv_len);
		if (found) {
			memcpy(dv->dv_netid, netid, sizeof(netid));
			memcpy(dv->dv_uaddr, uaddr, ualen + 1);
		}
	}
	return found;
}

/* Gets the first of the device's versions that is NFSv3. */
static bool get_versions(struct xdr_in *x, struct wc_device *dv)
{
	uint32_t n = xdr_get_u32(x);
	bool found = false;

	for (uint32_t i = 0; i < n && !x->bad; i++) {
		uint32_t version = xdr_get_u32(x), rsize, wsize;

		xdr_get_u32(x);
		rsize = xdr_get_u32(x);
		wsize = xdr_get_u32(x);
		xdr_get_bool(x);
		if (x->bad || found || version != 3 || i >= WC_FHS || rsize < DEVICE_IO_LEAST ||
		    wsize < DEVICE_IO_LEAST)
			continue;
		dv->dv_version = i;
		dv->dv_rsize = rsize < WC_MAX_IO ? rsize : WC_MAX_IO;
		dv->dv_wsize = wsize < WC_MAX_IO ? wsize : WC_MAX_IO;
		found = true;
	}
	return found;
}

static void device_got(struct wc_call *c, struct wc_res *r)
{
	struct wc_device *dv = c->wcl_arg;
	uint32_t n, mask[3];
	const uint8_t *p;
	struct xdr_in in;

	if (!wc_res_op(r, OP_GETDEVICEINFO))
		return;
	if (xdr_get_u32(r->x) != LAYOUT4_FLEX_FILES)
		r->r_bad = true;
	p = xdr_get_opaque(r->x, UINT32_MAX, &n);
	wc_get_bits(r->x, mask);
	if (r->x->bad || r->r_bad)
		return;
	xdr_in_init(&in, n ? p : (const uint8_t *)"", n);
	c->wcl_n = get_addrs(&in, dv);
	c->wcl_n &= get_versions(&in, dv);
	if (wc_device_may_rdma(c->wcl_w, dv)) {
		dv->dv_rsize = dv->dv_rsize < RDMA_IO ? dv->dv_rsize : RDMA_IO;
		dv->dv_wsize = dv->dv_wsize < RDMA_IO ? dv->dv_wsize : RDMA_IO;
	}
	if (in.bad)
		r->r_bad = true;
}

static void device_end(struct wc_call *c, int err, uint32_t status)
{
	struct wc_device *dv = c->wcl_arg;

	(void)status;
	/* A device that is unknown or unreachable now may change later: ask again. */
	dv->dv_again = err || !c->wcl_n;
	if (!dv->dv_again)
		dv->dv_state = WC_DEV_GOOD;
	else if (dv->dv_state == WC_DEV_ASKED)
		dv->dv_state = WC_DEV_BAD;
	wc_lo_go_on(c->wcl_w);
}

static const struct wc_kind kind = {.k_put = device_put, .k_got = device_got, .k_end = device_end};

struct wc_device *wc_device_get(struct weft *w, const uint8_t id[NFS4_DEVICEID4_SIZE])
{
	struct wc_device *dv = w->w_devices;
	struct wc_call *c;

	while (dv && memcmp(dv->dv_id, id, NFS4_DEVICEID4_SIZE))
		dv = dv->dv_next;
	if (dv && !dv->dv_again)
		return dv;
	if (!dv) {
		dv = calloc(1, sizeof(*dv));
		if (!dv)
			return NULL;
		memcpy(dv->dv_id, id, NFS4_DEVICEID4_SIZE);
		dv->dv_next = w->w_devices;
		w->w_devices = dv;
	}
	dv->dv_again = false;
	/* Others go on with what is known of the device. */
	if (dv->dv_state != WC_DEV_GOOD)
		dv->dv_state = WC_DEV_ASKED;
	c = wc_call_new(w, &kind, NULL, dv);
	if (c)
		wc_call_send(c);
	else if (dv->dv_state == WC_DEV_ASKED)
		dv->dv_state = WC_DEV_BAD;
	return dv;
}

bool wc_device_may_rdma(const struct weft *w, const struct wc_device *dv)
{
	return w->w_opts.wo_rdma && w->w_ring->r_rdma && dv->dv_rlen &&
	       loop_now_ns(w->w_loop) >= dv->dv_no_rdma_ns;
}

void wc_device_no_rdma(struct weft *w, struct wc_device *dv)
{
	dv->dv_no_rdma_ns = loop_now_ns(w->w_loop) + RDMA_AGAIN_NS;
}

static void device_conns_drop(struct wc_device *dv)
{
	for (unsigned i = 0; i < WEFT_MAX_CONNS; i++) {
		if (dv->dv_conns[i].dn_client)
			rpc_client_destroy(dv->dv_conns[i].dn_client);
		dv->dv_conns[i].dn_client = NULL;
	}
}

/* The first of those with the fewest calls: calls one after another share one connection. */
static struct wc_dev_conn *conn_choose(const struct weft *w, struct wc_device *dv)
{
	struct wc_dev_conn *best = dv->dv_conns;

	for (unsigned i = 1; i < w->w_opts.wo_ds_conns; i++)
		if (dv->dv_conns[i].dn_calls < best->dn_calls)
			best = &dv->dv_conns[i];
	return best;
}

/* Makes clients at the first call, and again when the device has moved, or is reached in another
 * way. */
struct wc_dev_conn *wc_device_conn(struct weft *w, struct wc_device *dv)
{
	struct wc_dev_conn *dn = conn_choose(w, dv);
	bool rdma = wc_device_may_rdma(w, dv);
	const struct sockaddr_storage *addr = rdma ? &dv->dv_raddr : &dv->dv_addr;
	socklen_t len = rdma ? dv->dv_rlen : dv->dv_len;

	if (dv->dv_state != WC_DEV_GOOD || w->w_state == WC_CLOSING || w->w_state == WC_FAILED)
		return NULL;
	if (dv->dv_at_len &&
	    (dv->dv_is_rdma != rdma || len != dv->dv_at_len || memcmp(addr, &dv->dv_at, len))) {
		device_conns_drop(dv);
		dv->dv_bad_ns = 0;
	}
	dv->dv_is_rdma = rdma;
	dv->dv_at = *addr;
	dv->dv_at_len = len;
	if (dn->dn_client)
		return dn;
	if (rpc_client_create(&dn->dn_client, w->w_loop, (const struct sockaddr *)addr, len,
			      &device_service, NULL, NULL)) {
		dn->dn_client = NULL;
		return NULL;
	}
	if (rdma)
		rpc_client_use_rdma(dn->dn_client);
	return dn;
}

void wc_devices_drop(struct weft *w)
{
	for (struct wc_device *dv = w->w_devices; dv; dv = dv->dv_next)
		device_conns_drop(dv);
}

void wc_devices_free(struct weft *w)
{
	while (w->w_devices) {
		struct wc_device *dv = w->w_devices;

		w->w_devices = dv->dv_next;
		free(dv);
	}
}
