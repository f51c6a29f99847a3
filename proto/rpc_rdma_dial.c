/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_rdma_dial.c - connects, on the control thread. It resolves the peer's address to a device,
 * and then the route. From there on it goes as with an incoming connection: the loop posts
 * receives, and only then the peer is asked.
 *
 * An attempt ends with one message to the loop, which then frees it: a failure (dl_msg, or
 * r_fail_msg where there is an rpc_conn already), or r_up_msg. A cancelled attempt goes on to its
 * end, and a connection that comes of it is closed.
 */
#include "base/log.h"
#include "proto/rpc_rdma.h"
#include "proto/rpc_rdma_int.h"
#include <errno.h>
#include <stdatomic.h>

#define RESOLVE_MS  2000
#define RETRY_COUNT 7
#define RNR_FOREVER 7

static struct rpc_rdma_dial *dials; /* without an rpc_conn yet */

static void dial_unlink(struct rpc_rdma_dial *dl)
{
	struct rpc_rdma_dial **at = &dials;

	while (*at && *at != dl)
		at = &(*at)->dl_next;
	if (*at)
		*at = dl->dl_next;
}

static void rpc_rdma_dial_failed(struct rpc_rdma_dial *dl, int err)
{
	struct rd_conn *r = dl->dl_conn;

	dial_unlink(dl);
	if (r && r->r_dev) {
		rd_conn_drop(r);
	} else if (r) {
		if (r->r_id)
			rdma_destroy_id(r->r_id);
		free(r);
	}
	dl->dl_conn = NULL;
	dl->dl_err = err;
	loop_post(dl->dl_loop, &dl->dl_msg);
}

void rd_dial_begin(struct rpc_rdma_dial *dl)
{
	struct rd_conn *r = rd_channel() ? rd_conn_new() : NULL;

	dl->dl_next = dials;
	dials = dl;
	dl->dl_conn = r;
	if (!r) {
		rpc_rdma_dial_failed(dl, rd_channel() ? -ENOMEM : -ENODEV);
		return;
	}
	r->r_client = true;
	r->r_dial = dl;
	r->r_svc = dl->dl_svc;
	r->r_peer = dl->dl_addr;
	r->r_own_max = rd_opts.ro_credits;
	if (rdma_create_id(rd_channel(), &r->r_id, r, RDMA_PS_TCP)) {
		r->r_id = NULL;
		rpc_rdma_dial_failed(dl, -errno);
	} else if (rdma_resolve_addr(r->r_id, NULL, (struct sockaddr *)&dl->dl_addr, RESOLVE_MS)) {
		rpc_rdma_dial_failed(dl, -errno);
	}
}

static int resolved(struct rd_conn *r)
{
	struct rd_dev *d = rd_dev_of(r->r_id->verbs);
	struct rd_port *p = NULL;
	int err;

	for (unsigned i = 0; d && i < d->dv_nports; i++)
		if (d->dv_port[i]->pt_loop == r->r_dial->dl_loop)
			p = d->dv_port[i];
	if (!p)
		return -ENODEV;
	rd_dev_link(r, d, p);
	err = rd_queues_make(r);
	if (err)
		return err;
	dial_unlink(r->r_dial);
	r->r_prepared = true;
	loop_post(p->pt_loop, &r->r_prepare_msg);
	return 0;
}

void rd_dial_event(struct rd_conn *r, const struct rdma_cm_event *ev)
{
	int err = 0;

	switch (ev->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		err = rdma_resolve_route(r->r_id, RESOLVE_MS) ? -errno : 0;
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		err = resolved(r);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		rd_private_taken(r, ev->param.conn.private_data, ev->param.conn.private_data_len);
		rd_rnr_soon(r);
		loop_post(r->r_port->pt_loop, &r->r_up_msg);
		break;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
	case RDMA_CM_EVENT_ADDR_CHANGE:
		break;
	default:
		err = rd_event_error(ev);
	}
	if (!err)
		return;
	if (r->r_prepared)
		rd_conn_fail(r, err);
	else
		rpc_rdma_dial_failed(r->r_dial, err);
}

int rd_dial_connect(struct rd_conn *r)
{
	const struct ibv_device_attr *a = &r->r_dev->dv_attr;
	uint8_t private[RD_PRIVATE_LEN];
	struct rdma_conn_param p = {.private_data = private,
				    .private_data_len = RD_PRIVATE_LEN,
				    .retry_count = RETRY_COUNT,
				    .rnr_retry_count = RNR_FOREVER};

	/* The peer does not invalidate our regions when it sends to us: they are registered
	 * once. */
	rd_private_put(private, &(struct rd_private){.pv_send = RD_INLINE, .pv_recv = RD_INLINE});
	p.responder_resources =
		(uint8_t)(a->max_qp_rd_atom < UINT8_MAX ? a->max_qp_rd_atom : UINT8_MAX);
	p.initiator_depth =
		(uint8_t)(a->max_qp_init_rd_atom < UINT8_MAX ? a->max_qp_init_rd_atom : UINT8_MAX);
	return rdma_connect(r->r_id, &p);
}

void rd_dial_tick(void)
{
	struct rpc_rdma_dial *dl = dials;

	while (dl) {
		struct rpc_rdma_dial *next = dl->dl_next;

		if (atomic_load(&dl->dl_canceled))
			rpc_rdma_dial_failed(dl, -ECANCELED);
		dl = next;
	}
}

/* ---- on the loop ---- */

void rd_dial_done(struct rpc_rdma_dial *dl, int err, struct rpc_conn *c)
{
	bool canceled = atomic_load(&dl->dl_canceled);

	if (canceled && c && !err)
		rpc_conn_close(c);
	if (!canceled)
		dl->dl_done(dl->dl_arg, err, err ? NULL : c);
	free(dl);
}

static void failed_msg(struct loop_msg *m)
{
	struct rpc_rdma_dial *dl = caa_container_of(m, struct rpc_rdma_dial, dl_msg);

	rd_dial_done(dl, dl->dl_err, NULL);
}

int rpc_rdma_dial(struct rpc_rdma_dial **out, struct loop *l, const struct sockaddr_storage *addr,
		  const struct rpc_service *svc,
		  void (*done)(void *arg, int err, struct rpc_conn *c), void *arg)
{
	struct rpc_rdma_dial *dl = calloc(1, sizeof *dl);

	if (!dl)
		return -ENOMEM;
	dl->dl_addr = *addr;
	dl->dl_svc = *svc;
	dl->dl_loop = l;
	dl->dl_done = done;
	dl->dl_arg = arg;
	dl->dl_msg.m_run = failed_msg;
	*out = dl;
	rd_cmd(&dl->dl_cmd, CM_DIAL, dl);
	return 0;
}

void rpc_rdma_dial_cancel(struct rpc_rdma_dial *dl)
{
	atomic_store(&dl->dl_canceled, true);
}
