/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_zc.c - sending without a copy into the socket. The kernel takes the pages themselves
 * (IORING_OP_SENDMSG_ZC) and reports in a second completion that it has released them. Until then
 * the messages of that send are pinned, all of them until the peer has acknowledged the last byte,
 * and count as memory that the connection holds.
 *
 * The device decides whether this pays. The kernel copies pages after all, later and at more cost,
 * if they go to this machine itself, or through a device that cannot gather them; the second
 * completion says so. AUTO then sends with copies from that moment on. Connections on a kernel that
 * cannot report it (before 6.2) do so too.
 */
#include "base/log.h"
#include "proto/rpc_int.h"
#include <errno.h>
#include <stdatomic.h>

#define ZC_MIN (32u << 10) /* bytes of payload; pinning costs more than copying less */

/* liburing 2.3 does not have them. */
#ifndef IORING_SEND_ZC_REPORT_USAGE
#define IORING_SEND_ZC_REPORT_USAGE (1U << 3)
#endif
#ifndef IORING_NOTIF_USAGE_ZC_COPIED
#define IORING_NOTIF_USAGE_ZC_COPIED (1U << 31)
#endif

struct rpc_zc {
	struct loop_io z_io;
	struct rpc_conn *z_conn; /* a reference */
	unsigned z_nouts;
	struct rpc_out *z_outs[RPC_IOV];
};

static struct metric *m_sends, *m_copied;
static _Atomic bool refused; /* by this kernel */

__attribute__((constructor)) static void zc_metrics_make(void)
{
	m_sends = metric_counter("weft_rpc_zerocopy_sends_total",
				 "Sends whose pages were handed to the kernel.", "");
	m_copied = metric_counter("weft_rpc_zerocopy_copied_total",
				  "Sends without a copy that the kernel copied after all.", "");
}

void rpc_out_release(struct rpc_out *o)
{
	if (o->o_pins)
		o->o_gone = true;
	else
		o->o_free(o);
}

static void rpc_zc_unpin(struct rpc_zc *z)
{
	for (unsigned i = 0; i < z->z_nouts; i++) {
		struct rpc_out *o = z->z_outs[i];

		if (--o->o_pins == 0 && o->o_gone)
			o->o_free(o);
	}
	z->z_nouts = 0;
}

static void zc_end(struct rpc_zc *z)
{
	struct rpc_conn *c = z->z_conn;

	rpc_zc_unpin(z);
	free(z);
	c->rcn_pins--;
	rpc_conn_unpause(c);
	rpc_conn_put(c);
}

/* Handles two completions. The send's completion says with F_MORE that the other one will come. */
static void zc_done(struct loop_io *io, int res, uint32_t flags)
{
	struct rpc_zc *z = caa_container_of(io, struct rpc_zc, z_io);
	struct rpc_conn *c = z->z_conn;

	if (flags & IORING_CQE_F_NOTIF) {
		if ((uint32_t)res & IORING_NOTIF_USAGE_ZC_COPIED) {
			metric_add(m_copied, 1);
			c->rcn_copies = c->rcn_svc.rs_zerocopy != RPC_ZC_ALWAYS;
		}
		zc_end(z);
		return;
	}
	if (res == -EINVAL || res == -EOPNOTSUPP || res == -ENOMEM) {
		/* The kernel has no such call, the socket cannot do it, or no more memory may be
		 * locked. Everything can go with a copy. */
		if (res == -EINVAL && !atomic_exchange(&refused, true))
			log_info("rpc: this kernel sends with copies only");
		c->rcn_copies = true;
		res = -EAGAIN;
	}
	c->rcn_refs++;
	if (!(flags & IORING_CQE_F_MORE))
		zc_end(z);
	rpc_conn_sent(c, res);
	rpc_conn_put(c);
}

/* Only replies go without a copy. The memory of a call of ours ends with its reply, which may come
 * before the kernel has released the pages. */
struct loop_io *rpc_zc_prep(struct rpc_conn *c, struct io_uring_sqe *sqe)
{
	struct rpc_zc *z;
	size_t payload = 0, iovs = 0;
	unsigned n = 0;

	if (!c->rcn_svc.rs_zerocopy || c->rcn_copies ||
	    atomic_load_explicit(&refused, memory_order_relaxed))
		return NULL;
	for (struct rpc_out *o = c->rcn_outs; o && iovs < c->rcn_snd->sd_mh.msg_iovlen;
	     o = o->o_next, n++) {
		struct iovec iov[2 * XDR_SPLICES + 1];

		if (!o->o_reply)
			return NULL;
		payload += o->o_x->x_payload;
		iovs += rpc_out_iov(o, n ? 0 : c->rcn_sent, iov);
	}
	z = payload >= ZC_MIN ? malloc(sizeof *z) : NULL;
	if (!z)
		return NULL;
	z->z_io.lio_done = zc_done;
	z->z_conn = c;
	z->z_nouts = 0;
	for (struct rpc_out *o = c->rcn_outs; z->z_nouts < n; o = o->o_next) {
		o->o_pins++;
		z->z_outs[z->z_nouts++] = o;
	}
	c->rcn_pins++;
	c->rcn_refs++;
	io_uring_prep_sendmsg_zc(sqe, c->rcn_fd, &c->rcn_snd->sd_mh,
				 MSG_NOSIGNAL | rpc_gate_flags(c));
	if (c->rcn_svc.rs_zerocopy == RPC_ZC_AUTO)
		sqe->ioprio = IORING_SEND_ZC_REPORT_USAGE;
	metric_add(m_sends, 1);
	return &z->z_io;
}
