/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_rdma_cm.c - the control thread (see rpc_rdma_int.h): devices, listeners, connecting and
 * ending.
 *
 * Losing a device. A driver that can detach its users reports the loss (DEVICE_REMOVAL,
 * IBV_EVENT_DEVICE_FATAL). Another kind of driver waits without a report until its users have
 * closed the device: such a device is missing in the list of devices, which this thread reads once
 * a second.
 */
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "common/exports.h"
#include "proto/rpc_rdma.h"
#include "proto/rpc_rdma_int.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#define TICK_MS	       1000
#define BACKLOG	       256
#define MAX_DEVS       16
#define RD_PRIVATE_MAX 256
#define RETRY_COUNT    7 /* of the transport */
#define RNR_FOREVER    7
#define RNR_TIMER      12 /* 0.64 ms (InfiniBand specification, table of RNR NAK timers) */
#define FULL_SAID_MS   10000u

struct rd_listener {
	struct rd_listener *li_next;
	struct rd_cmd li_cmd;
	struct sockaddr_storage li_addr;
	struct rpc_service li_svc;
	struct loop *li_loop;
	void (*li_up)(void *arg, bool yes);
	void *li_arg;
	struct rdma_cm_id *li_id;
	struct rd_dev *li_dev; /* the device that it is bound to */
	bool li_any, li_said, li_told;
	char li_text[80];
};

struct up_msg {
	struct loop_msg um_msg;
	struct rd_listener *um_li;
	bool um_yes;
};

struct rpc_rdma_opts rd_opts;
struct metric *rd_m_wrs, *rd_m_signaled, *rd_m_doorbells, *rd_m_receives, *rd_m_receive_doorbells,
	*rd_m_read_bytes, *rd_m_write_bytes, *rd_m_chunk_errors, *rd_m_errors, *rd_m_discarded;
static struct metric *m_accepted, *m_refused;

static struct {
	int event_fd;
	pthread_mutex_t lock;
	struct rd_cmd *cmds, **cmds_end;
	struct rdma_event_channel *chan;
	bool chan_said;
	struct rd_listener *listeners;
	struct rd_dev *devs;
	struct ibv_context *useless; /* could not be opened */
	unsigned next_loop;
	bool devices; /* there is at least one */
	struct hash hosts;
	uint64_t full_said;
} cm = {.lock = PTHREAD_MUTEX_INITIALIZER};
static _Atomic int64_t conns;

static double conns_gauge(void *arg)
{
	(void)arg;
	return (double)atomic_load(&conns);
}

__attribute__((constructor)) static void rdma_metrics_make(void)
{
	m_accepted = metric_counter("weft_rdma_accepted_total", "RDMA connections accepted.", "");
	m_refused = metric_counter("weft_rdma_refused_total",
				   "RDMA connections refused for want of memory or receives.", "");
	metric_gauge("weft_rdma_connections", "RDMA connections open.", "", conns_gauge, NULL);
	rd_m_wrs = metric_counter("weft_rdma_work_requests_total",
				  "Sends, RDMA Reads and RDMA Writes posted.", "");
	rd_m_signaled = metric_counter("weft_rdma_signaled_total",
				       "Work requests that a completion was asked for.", "");
	rd_m_doorbells =
		metric_counter("weft_rdma_doorbells_total", "Chains of work requests posted.", "");
	rd_m_receives = metric_counter("weft_rdma_receives_total", "Receives posted.", "");
	rd_m_receive_doorbells = metric_counter("weft_rdma_receive_doorbells_total",
						"Chains of receives posted.", "");
	rd_m_read_bytes =
		metric_counter("weft_rdma_bytes_total",
			       "Bytes moved by RDMA Read from clients, and by RDMA Write to them.",
			       "dir=\"read\"");
	rd_m_write_bytes =
		metric_counter("weft_rdma_bytes_total",
			       "Bytes moved by RDMA Read from clients, and by RDMA Write to them.",
			       "dir=\"write\"");
	rd_m_chunk_errors = metric_counter("weft_rdma_chunk_errors_total",
					   "Calls answered with ERR_CHUNK or ERR_VERS.", "");
	rd_m_errors = metric_counter("weft_rdma_failed_operations_total",
				     "Work requests that failed and ended their connection.", "");
	rd_m_discarded =
		metric_counter("weft_rdma_discarded_total",
			       "Messages discarded because they are no RPC over RDMA.", "");
}

/* ---- commands ---- */

void rd_cmd(struct rd_cmd *cmd, enum rd_cmd_kind kind, void *arg)
{
	uint64_t one = 1;

	cmd->cm_kind = kind;
	cmd->cm_arg = arg;
	cmd->cm_next = NULL;
	pthread_mutex_lock(&cm.lock);
	*cm.cmds_end = cmd;
	cm.cmds_end = &cmd->cm_next;
	pthread_mutex_unlock(&cm.lock);
	if (write(cm.event_fd, &one, sizeof one) < 0 && errno != EAGAIN)
		log_fatal("rdma: waking the control thread: %s", strerror(errno));
}

struct rdma_event_channel *rd_channel(void)
{
	return cm.chan;
}

/* ---- devices ---- */

static void dev_gone(struct rd_dev *d);

struct rd_dev *rd_dev_of(struct ibv_context *ctx)
{
	struct rd_dev *d;

	for (d = cm.devs; d; d = d->dv_next)
		if (d->dv_ctx == ctx)
			return d->dv_dead ? NULL : d;
	d = rd_dev_open(ctx, rd_opts.ro_loops, rd_opts.ro_nloops, ctx == cm.useless);
	cm.useless = d ? NULL : ctx;
	if (d) {
		d->dv_next = cm.devs;
		cm.devs = d;
	}
	return d;
}

static void listener_tell(struct rd_listener *li);

static void listener_down(struct rd_listener *li, const char *why)
{
	if (li->li_id)
		rdma_destroy_id(li->li_id);
	li->li_id = NULL;
	li->li_dev = NULL;
	li->li_said = false;
	log_warn("rdma: no longer serving %s: %s; retrying", li->li_text, why);
	listener_tell(li);
}

void rd_conn_fail(struct rd_conn *r, int err)
{
	int none = 0;

	if (atomic_compare_exchange_strong(&r->r_fail, &none, err))
		loop_post(r->r_port->pt_loop, &r->r_fail_msg);
}

/* Marks a device as gone. Its connections end like any others. After the last one, the loops
 * release the device. */
static void dev_removed(struct rd_dev *d, const char *why)
{
	if (d->dv_dead)
		return;
	d->dv_dead = true;
	log_warn("rdma: %s has gone (%s)", d->dv_name, why);
	for (struct rd_listener *li = cm.listeners; li; li = li->li_next)
		if (li->li_dev == d)
			listener_down(li, "its device has gone");
	for (struct rd_conn *r = d->dv_list; r; r = r->r_dev_next)
		if (r->r_prepared)
			rd_conn_fail(r, -ENODEV);
	dev_gone(d);
}

static void dev_gone(struct rd_dev *d)
{
	if (!d->dv_dead || d->dv_list || d->dv_stopping)
		return;
	d->dv_stopping = true;
	rd_dev_stop(d);
}

static bool dev_listed(struct ibv_device **list, int n, const struct ibv_device *dev)
{
	for (int i = 0; i < n; i++)
		if (list[i] == dev)
			return true;
	return false;
}

/*
 * librdmacm keeps its context of a device open until there is another device, and a driver that
 * waits for its users waits for that too. So if the device is no longer listed, this makes the
 * descriptors of the context point to /dev/null.
 */
static void context_release(struct ibv_context *ctx)
{
	int n = 0, fd;
	struct ibv_device **list = ibv_get_device_list(&n);
	bool there = !list || dev_listed(list, n, ctx->device);

	if (list)
		ibv_free_device_list(list);
	fd = there ? -1 : open("/dev/null", O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return;
	dup3(fd, ctx->cmd_fd, O_CLOEXEC);
	dup3(fd, ctx->async_fd, O_CLOEXEC);
	close(fd);
}

static void dev_stopped(struct rd_port *p)
{
	struct rd_dev *d = p->pt_dev, **at = &cm.devs;
	struct ibv_context *ctx = d->dv_ctx;

	if (++d->dv_stopped < d->dv_nports)
		return;
	while (*at != d)
		at = &(*at)->dv_next;
	*at = d->dv_next;
	rd_dev_free(d);
	context_release(ctx);
}

/* The queue pair takes no more from a shared receive queue. The receives that it took have
 * completed, or will be polled before it is destroyed. */
static void conn_last(struct rd_conn *r)
{
	if (!r->r_prepared || r->r_last_told)
		return;
	r->r_last_told = true;
	atomic_store(&r->r_last, true);
	loop_post(r->r_port->pt_loop, &r->r_last_msg);
}

/* Handles a queue that has failed. Returns true if all connections of a loop use that queue: the
 * device then has to be opened again. */
static bool queue_failed(const struct ibv_async_event *ev)
{
	struct rd_conn *r;

	switch (ev->event_type) {
	case IBV_EVENT_SRQ_ERR:
		return true;
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		conn_last(ev->element.qp->qp_context);
		return false;
	case IBV_EVENT_CQ_ERR:
		r = ev->element.cq->cq_context;
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
		r = ev->element.qp->qp_context;
		break;
	default:
		return false;
	}
	if (r && r->r_prepared)
		rd_conn_fail(r, -EIO);
	return !r && ev->event_type == IBV_EVENT_CQ_ERR;
}

/* failed: the descriptor reported an error. */
static void dev_events(struct rd_dev *d, bool failed)
{
	struct ibv_async_event ev;
	bool fatal = failed;

	while (!ibv_get_async_event(d->dv_ctx, &ev)) {
		fatal |= ev.event_type == IBV_EVENT_DEVICE_FATAL || queue_failed(&ev);
		if (ev.event_type != IBV_EVENT_QP_LAST_WQE_REACHED &&
		    ev.event_type != IBV_EVENT_COMM_EST)
			log_info("rdma: %s: %s", d->dv_name, ibv_event_type_str(ev.event_type));
		ibv_ack_async_event(&ev);
	}
	if (fatal)
		dev_removed(d, "the device failed");
}

/* Checks that the devices in use are still in the list. */
static void devs_check(void)
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);

	if (!list)
		return;
	cm.devices = n > 0;
	for (struct rd_dev *d = cm.devs, *next; d; d = next) {
		next = d->dv_next;
		if (!dev_listed(list, n, d->dv_ctx->device))
			dev_removed(d, "it was taken away");
	}
	ibv_free_device_list(list);
}

/* ---- listeners ---- */

static void up_run(struct loop_msg *m)
{
	struct up_msg *um = caa_container_of(m, struct up_msg, um_msg);

	um->um_li->li_up(um->um_li->li_arg, um->um_yes);
	free(um);
}

static void listener_tell(struct rd_listener *li)
{
	bool yes = li->li_id && (!li->li_any || cm.devices);
	struct up_msg *um;

	if (!li->li_up || yes == li->li_told || !(um = malloc(sizeof *um)))
		return;
	li->li_told = yes;
	um->um_msg.m_run = up_run;
	um->um_li = li;
	um->um_yes = yes;
	loop_post(li->li_loop, &um->um_msg);
}

static int listener_try(struct rd_listener *li)
{
	int one = 1;

	if (rdma_create_id(cm.chan, &li->li_id, NULL, RDMA_PS_TCP)) {
		li->li_id = NULL;
		return -errno;
	}
	rdma_set_option(li->li_id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &one, sizeof one);
	if (li->li_addr.ss_family == AF_INET6)
		rdma_set_option(li->li_id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &one, sizeof one);
	if (!rdma_bind_addr(li->li_id, (struct sockaddr *)&li->li_addr) &&
	    !rdma_listen(li->li_id, BACKLOG)) {
		if (!li->li_id->verbs || (li->li_dev = rd_dev_of(li->li_id->verbs)))
			return 0;
		errno = ENODEV;
	}
	one = -errno;
	rdma_destroy_id(li->li_id);
	li->li_id = NULL;
	return one;
}

static void listener_kick(struct rd_listener *li)
{
	int err;

	if (!cm.chan)
		return;
	if (!li->li_id) {
		err = listener_try(li);
		if (err && !li->li_said)
			log_warn("rdma: cannot serve %s: %s; retrying", li->li_text,
				 err == -ENODEV ? "no RDMA device has this address"
						: strerror(-err));
		if (!err)
			log_info("rdma: NFS over RDMA at %s%s%s", li->li_text,
				 li->li_dev ? " on " : "", li->li_dev ? li->li_dev->dv_name : "");
		li->li_said = true;
	}
	listener_tell(li);
}

static void chan_open(void)
{
	if (cm.chan)
		return;
	cm.chan = cm.devices ? rdma_create_event_channel() : NULL;
	if (!cm.chan) {
		if (!cm.chan_said)
			log_warn("rdma: %s; serving without RDMA, and retrying",
				 cm.devices ? strerror(errno) : "this machine has no RDMA device");
		cm.chan_said = true;
		return;
	}
	if (fcntl(cm.chan->fd, F_SETFL, fcntl(cm.chan->fd, F_GETFL) | O_NONBLOCK) < 0)
		log_fatal("rdma: %s", strerror(errno));
}

static void rpc_rdma_cm_tick(void)
{
	devs_check();
	chan_open();
	rd_dial_tick();
	for (struct rd_listener *li = cm.listeners; li; li = li->li_next)
		listener_kick(li);
}

/* ---- connections of one address ---- */

/* One address. For IPv6 it is a network of 64 bits, because a host has all addresses of one. */
struct rd_host {
	struct hash_link ho_link;
	uint8_t ho_addr[16];
	unsigned ho_conns;
};

static struct rd_host *host_get(const struct sockaddr_storage *peer)
{
	struct rd_host *ho;
	struct hash_link *l;
	uint8_t addr[16];
	uint16_t port;
	uint64_t h;

	exp_addr(peer, addr, &port);
	if (peer->ss_family == AF_INET6)
		memset(addr + 8, 0, 8);
	h = hash_bytes(addr, 16);
	for (l = hash_first(&cm.hosts, h); l; l = hash_next(l))
		if (!memcmp(hash_entry(l, struct rd_host, ho_link)->ho_addr, addr, 16))
			break;
	ho = l ? hash_entry(l, struct rd_host, ho_link) : calloc(1, sizeof *ho);
	if (!ho || (!l && hash_add(&cm.hosts, &ho->ho_link, h))) {
		free(ho);
		return NULL;
	}
	memcpy(ho->ho_addr, addr, 16);
	ho->ho_conns++;
	return ho;
}

static void rpc_rdma_cm_host_put(struct rd_host *ho)
{
	if (!ho || --ho->ho_conns)
		return;
	hash_del(&cm.hosts, &ho->ho_link);
	free(ho);
}

static bool host_full(const struct rd_host *ho)
{
	uint64_t now = clock_mono_ms();

	if (!rd_opts.ro_conns_addr || ho->ho_conns <= rd_opts.ro_conns_addr)
		return false;
	if (!cm.full_said || now - cm.full_said > FULL_SAID_MS) {
		log_warn("rdma: refused connections over the limit of one address "
			 "(rdma.connections_of_address); weft_rdma_refused_total counts them");
		cm.full_said = now;
	}
	return true;
}

/* ---- connections ---- */

static uint32_t min32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

void rd_private_taken(struct rd_conn *r, const void *data, size_t len)
{
	struct rd_private pv;

	rd_private_parse(data, len, &pv);
	r->r_send_max = min32(RD_INLINE, pv.pv_recv);
	r->r_inv = pv.pv_inv && r->r_dev->dv_inv;
}

/* iWARP devices that do not negotiate leave the depths at 0. */
static void depths(struct rd_conn *r, const struct rdma_conn_param *p)
{
	const struct ibv_device_attr *a = &r->r_dev->dv_attr;
	uint32_t ord = p->initiator_depth, ird = p->responder_resources;

	if (!ord && r->r_dev->dv_iwarp)
		ord = ird = UINT8_MAX;
	r->r_ord = (uint8_t)min32(min32(ord, (uint32_t)a->max_qp_init_rd_atom), UINT8_MAX);
	r->r_ird = (uint8_t)min32(min32(ird, (uint32_t)a->max_qp_rd_atom), UINT8_MAX);
}

int rd_queues_make(struct rd_conn *r)
{
	const struct ibv_device_attr *a = &r->r_dev->dv_attr;
	struct rd_port *p = r->r_port;
	unsigned recvs =
		p->pt_srq ? 0 : min32(rd_opts.ro_credits + r->r_own_max, (uint32_t)a->max_qp_wr);
	struct ibv_qp_init_attr qa = {.qp_context = r, .qp_type = IBV_QPT_RC};

	qa.cap.max_send_wr = min32(RD_SQ_DEPTH + 1, (uint32_t)a->max_qp_wr); /* one for the drain */
	qa.cap.max_send_sge = min32(RD_MAX_SGE, (uint32_t)a->max_sge);
	qa.cap.max_recv_wr = recvs;
	qa.cap.max_recv_sge = p->pt_srq ? 0 : 1;
	r->r_depth = qa.cap.max_send_wr - 1;
	r->r_recvs = recvs;
	r->r_max_sge = qa.cap.max_send_sge;
	r->r_cq = ibv_create_cq(r->r_dev->dv_ctx, (int)(r->r_depth + 1 + recvs), r, p->pt_chan,
				p->pt_vector);
	if (!r->r_cq)
		return -errno;
	qa.send_cq = r->r_cq;
	qa.recv_cq = p->pt_srq ? p->pt_cq : r->r_cq;
	qa.srq = p->pt_srq;
	if (ibv_req_notify_cq(r->r_cq, 0) || rdma_create_qp(r->r_id, r->r_dev->dv_pd, &qa))
		return errno ? -errno : -EIO;
	r->r_qp = r->r_id->qp;
	r->r_qpn = r->r_qp->qp_num;
	return 0;
}

struct rd_conn *rd_conn_new(void)
{
	struct rd_conn *r = calloc(1, sizeof *r);

	if (!r)
		return NULL;
	r->r_prepare_msg.m_run = rd_prepare;
	r->r_up_msg.m_run = rd_up;
	r->r_own_max = RD_BACK_CALLS;
	r->r_fail_msg.m_run = rd_fail;
	r->r_drain_msg.m_run = rd_drain;
	r->r_last_msg.m_run = rd_last;
	r->r_gone_msg.m_run = rd_gone;
	r->r_backlog_end = &r->r_backlog;
	r->r_txq_end = &r->r_txq;
	r->r_sent_end = &r->r_sent;
	r->r_readq_end = &r->r_readq;
	r->r_wait_end = &r->r_wait;
	r->r_ready_end = &r->r_ready;
	return r;
}

void rd_dev_link(struct rd_conn *r, struct rd_dev *d, struct rd_port *p)
{
	r->r_dev = d;
	r->r_port = p;
	r->r_dev_next = d->dv_list;
	if (d->dv_list)
		d->dv_list->r_dev_prev = r;
	d->dv_list = r;
	atomic_fetch_add(&conns, 1);
}

static void dev_unlink(struct rd_conn *r)
{
	struct rd_dev *d = r->r_dev;

	if (r->r_dev_prev)
		r->r_dev_prev->r_dev_next = r->r_dev_next;
	else
		d->dv_list = r->r_dev_next;
	if (r->r_dev_next)
		r->r_dev_next->r_dev_prev = r->r_dev_prev;
	rpc_rdma_cm_host_put(r->r_host);
	r->r_host = NULL;
	atomic_fetch_sub(&conns, 1);
}

static void queues_destroy(struct rd_conn *r)
{
	if (r->r_qp)
		rdma_destroy_qp(r->r_id);
	r->r_qp = NULL;
	if (r->r_cq)
		ibv_destroy_cq(r->r_cq);
	r->r_cq = NULL;
}

static struct rd_listener *listener_of(const struct rdma_cm_id *id)
{
	for (struct rd_listener *li = cm.listeners; li; li = li->li_next)
		if (li->li_id == id)
			return li;
	return NULL;
}

static struct rd_port *port_for(const struct rd_dev *d, const struct rd_listener *li,
				struct rdma_cm_id *id)
{
	const struct rpc_service *svc = &li->li_svc;
	unsigned port = svc->rs_deal ? svc->rs_deal(rdma_get_local_addr(id), svc->rs_deal_arg)
				     : cm.next_loop++;

	return d->dv_port[port % d->dv_nports];
}

/* The event's data is valid until the event is acknowledged: take what is needed of it here. */
static struct rd_conn *request_take(const struct rdma_cm_event *ev)
{
	struct rd_listener *li = listener_of(ev->listen_id);
	struct rd_dev *d = li ? rd_dev_of(ev->id->verbs) : NULL;
	struct rd_conn *r = d ? rd_conn_new() : NULL;

	if (!r)
		return NULL;
	rpc_addr_copy(&r->r_peer, rdma_get_peer_addr(ev->id));
	r->r_host = host_get(&r->r_peer);
	if (!r->r_host || host_full(r->r_host)) {
		rpc_rdma_cm_host_put(r->r_host);
		free(r);
		return NULL;
	}
	r->r_id = ev->id;
	r->r_id->context = r;
	r->r_svc = li->li_svc;
	rd_dev_link(r, d, port_for(d, li, ev->id));
	rd_private_taken(r, ev->param.conn.private_data, ev->param.conn.private_data_len);
	depths(r, &ev->param.conn);
	return r;
}

/* Frees a connection that the loop does not know yet. */
void rd_conn_drop(struct rd_conn *r)
{
	struct rd_dev *d = r->r_dev;

	queues_destroy(r);
	rdma_destroy_id(r->r_id);
	dev_unlink(r);
	dev_gone(d);
	free(r);
}

static void request_begin(struct rdma_cm_id *id, struct rd_conn *r)
{
	int err = r ? rd_queues_make(r) : 0;

	if (r && !err) {
		r->r_prepared = true;
		loop_post(r->r_port->pt_loop, &r->r_prepare_msg);
		return;
	}
	metric_add(m_refused, 1);
	if (err)
		log_warn("rdma: refused a connection: %s", strerror(-err));
	rdma_reject(id, NULL, 0);
	if (r)
		rd_conn_drop(r);
	else
		rdma_destroy_id(id);
}

static void conn_accept(struct rd_conn *r)
{
	uint8_t private[RD_PRIVATE_LEN];
	struct rdma_conn_param p = {.private_data = private,
				    .private_data_len = RD_PRIVATE_LEN,
				    .retry_count = RETRY_COUNT,
				    .rnr_retry_count = RNR_FOREVER};

	if (r->r_disconnected)
		return;
	if (r->r_client) {
		r->r_asked = true;
		if (rd_dial_connect(r))
			rd_conn_fail(r, -errno);
		return;
	}
	rd_private_put(
		private,
		&(struct rd_private){.pv_inv = true, .pv_send = RD_INLINE, .pv_recv = RD_INLINE});
	p.initiator_depth = r->r_ord;
	p.responder_resources = r->r_ird;
	r->r_asked = true;
	if (rdma_accept(r->r_id, &p)) {
		log_info("rdma: accept: %s", strerror(errno));
		rd_conn_fail(r, -ECONNABORTED);
		return;
	}
	metric_add(m_accepted, 1);
}

/* Moves the queue pair to its error state, so that everything posted comes back. */
static void conn_disconnect(struct rd_conn *r)
{
	r->r_disconnected = true;
	/* Do not wait for LAST_WQE_REACHED if nothing ever arrived. Do not wait for it either if
	 * the device is gone: its events are no longer read, and its shared queue goes as well. */
	if (!r->r_asked || r->r_dev->dv_dead)
		atomic_store(&r->r_last, true);
	if (!r->r_asked && !r->r_client)
		rdma_reject(r->r_id, NULL, 0);
	else
		rdma_disconnect(r->r_id);
	if (r->r_qp)
		ibv_modify_qp(r->r_qp, &(struct ibv_qp_attr){.qp_state = IBV_QPS_ERR},
			      IBV_QP_STATE);
	loop_post(r->r_port->pt_loop, &r->r_drain_msg);
}

static void conn_destroy(struct rd_conn *r)
{
	struct loop *l = r->r_port->pt_loop;
	struct rd_dev *d = r->r_dev;

	queues_destroy(r);
	rdma_destroy_id(r->r_id);
	r->r_id = NULL;
	dev_unlink(r);
	loop_post(l, &r->r_gone_msg);
	dev_gone(d); /* after the message: the loop still uses the device */
}

int rd_event_error(const struct rdma_cm_event *ev)
{
	switch (ev->event) {
	case RDMA_CM_EVENT_REJECTED:
		return -ECONNREFUSED;
	case RDMA_CM_EVENT_UNREACHABLE:
		return -EHOSTUNREACH;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		return -ENODEV;
	default:
		return ev->status < 0 && ev->status > -4096 ? ev->status : -ECONNRESET;
	}
}

/* librdmacm leaves the timer at 0, which is 655 ms. iWARP has none. */
void rd_rnr_soon(struct rd_conn *r)
{
	struct ibv_qp_attr a = {.min_rnr_timer = RNR_TIMER};

	if (!r->r_dev->dv_iwarp && r->r_qp && ibv_modify_qp(r->r_qp, &a, IBV_QP_MIN_RNR_TIMER))
		log_debug("rdma: RNR timer: %s", strerror(errno));
}

static void conn_event(struct rd_conn *r, const struct rdma_cm_event *ev)
{
	switch (ev->event) {
	case RDMA_CM_EVENT_ESTABLISHED:
		atomic_store(&r->r_established, true);
		rd_rnr_soon(r);
		break;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
	case RDMA_CM_EVENT_ADDR_CHANGE:
		break;
	default:
		if (r->r_prepared)
			rd_conn_fail(r, rd_event_error(ev));
	}
}

static void cm_event(struct rdma_cm_event *ev)
{
	struct rdma_cm_id *id = ev->id;
	struct rd_listener *li = listener_of(id);
	struct rd_conn *r = NULL;
	enum rdma_cm_event_type type = ev->event;

	if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
		r = request_take(ev);
	else if (!li && id->context && ((struct rd_conn *)id->context)->r_client)
		r = id->context; /* the event may end it */
	else if (!li && id->context)
		conn_event(id->context, ev);
	if (r && type != RDMA_CM_EVENT_CONNECT_REQUEST) {
		struct rdma_cm_event copy = *ev;
		uint8_t private[RD_PRIVATE_MAX];

		/* An id with an unacknowledged event cannot be destroyed: copy the event and
		 * acknowledge it first. */
		if (copy.param.conn.private_data_len)
			memcpy(private, copy.param.conn.private_data,
			       copy.param.conn.private_data_len);
		copy.param.conn.private_data = private;
		rdma_ack_cm_event(ev);
		rd_dial_event(r, &copy);
		return;
	}
	rdma_ack_cm_event(ev);
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
		request_begin(id, r);
	else if (type == RDMA_CM_EVENT_DEVICE_REMOVAL && li && li->li_dev)
		dev_removed(li->li_dev, "it was removed");
	else if (type == RDMA_CM_EVENT_DEVICE_REMOVAL && li)
		listener_down(li, "its device has gone");
}

/* ---- the thread ---- */

static void command(struct rd_cmd *cmd)
{
	struct rd_listener *li;

	switch (cmd->cm_kind) {
	case CM_LISTEN:
		li = cmd->cm_arg;
		li->li_next = cm.listeners;
		cm.listeners = li;
		rpc_rdma_cm_tick();
		break;
	case CM_DIAL:
		rd_dial_begin(cmd->cm_arg);
		break;
	case CM_ACCEPT:
		conn_accept(cmd->cm_arg);
		break;
	case CM_DISCONNECT:
		conn_disconnect(cmd->cm_arg);
		break;
	case CM_DESTROY:
		conn_destroy(cmd->cm_arg);
		break;
	case CM_SLAB:
		rd_slab_asked(cmd->cm_arg);
		break;
	case CM_BULK:
		rd_bulk_asked(cmd->cm_arg);
		break;
	case CM_REGION:
		rd_region_asked(cmd->cm_arg, cm.devs);
		break;
	case CM_PORT_STOPPED:
		dev_stopped(cmd->cm_arg);
		free(cmd);
		break;
	}
}

static void commands(void)
{
	struct rd_cmd *list;
	uint64_t n;

	if (read(cm.event_fd, &n, sizeof n) < 0 && errno != EAGAIN)
		log_fatal("rdma: %s", strerror(errno));
	pthread_mutex_lock(&cm.lock);
	list = cm.cmds;
	cm.cmds = NULL;
	cm.cmds_end = &cm.cmds;
	pthread_mutex_unlock(&cm.lock);
	while (list) {
		struct rd_cmd *cmd = list;

		list = cmd->cm_next; /* the command may end its owner */
		command(cmd);
	}
}

static unsigned fds_fill(struct pollfd *fds, struct rd_dev **devs)
{
	unsigned n = 0;

	fds[n++] = (struct pollfd){cm.event_fd, POLLIN, 0};
	fds[n++] = (struct pollfd){cm.chan ? cm.chan->fd : -1, POLLIN, 0};
	for (struct rd_dev *d = cm.devs; d && n < MAX_DEVS + 2; d = d->dv_next) {
		if (d->dv_dead)
			continue;
		devs[n] = d;
		fds[n++] = (struct pollfd){d->dv_ctx->async_fd, POLLIN, 0};
	}
	return n;
}

static void *cm_run(void *arg)
{
	uint64_t next = clock_mono_ms();

	(void)arg;
	/* "rdma resource" shows the objects of a device with the name of the thread that made them.
	 * Take the daemon's name, not that of the loop that started this thread. */
	prctl(PR_SET_NAME, program_invocation_short_name);
	for (;;) {
		struct pollfd fds[MAX_DEVS + 2];
		struct rd_dev *devs[MAX_DEVS + 2];
		uint64_t now = clock_mono_ms();
		unsigned n = fds_fill(fds, devs);
		struct rdma_cm_event *ev;

		if (poll(fds, n, next > now ? (int)(next - now) : 0) < 0 && errno != EINTR)
			log_fatal("rdma: poll: %s", strerror(errno));
		/* Handle the events first: a command may free a device. */
		for (unsigned i = 2; i < n; i++)
			if (fds[i].revents)
				dev_events(devs[i],
					   fds[i].revents & (POLLERR | POLLHUP | POLLNVAL));
		for (int most = BACKLOG;
		     cm.chan && fds[1].revents && most && !rdma_get_cm_event(cm.chan, &ev); most--)
			cm_event(ev);
		if (fds[0].revents)
			commands();
		if (clock_mono_ms() >= next) {
			next = clock_mono_ms() + TICK_MS;
			rpc_rdma_cm_tick();
		}
	}
	return NULL;
}

/* ---- for the daemons ---- */

void rpc_rdma_conf(struct rpc_rdma_opts *o, const struct conf *c)
{
	o->ro_credits = (unsigned)conf_int(c, "rdma.credits");
	o->ro_poll_us = (unsigned)conf_int(c, "rdma.poll");
	o->ro_quiet_ms = (uint32_t)conf_msec(c, "rdma.quiet");
	o->ro_srq = conf_bool(c, "rdma.srq");
	o->ro_srq_max = (uint32_t)conf_int(c, "rdma.receives");
	o->ro_conns_addr = (unsigned)conf_int(c, "rdma.connections_of_address");
}

void rpc_rdma_allow(void)
{
	struct rlimit rl = {RLIM_INFINITY, RLIM_INFINITY};

	/* Without root the process keeps the limit that it was given. A registration beyond it
	 * reports an error. */
	setrlimit(RLIMIT_MEMLOCK, &rl);
}

int rpc_rdma_start(const struct rpc_rdma_opts *o)
{
	pthread_t tid;
	int err;

	rd_opts = *o;
	cm.cmds_end = &cm.cmds;
	cm.event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (cm.event_fd < 0)
		return -errno;
	err = pthread_create(&tid, NULL, cm_run, NULL);
	if (err)
		return -err;
	rd_regions_start();
	return 0;
}

int rpc_listen_rdma(struct loop *loop, const struct sockaddr *addr, socklen_t len,
		    const struct rpc_service *svc, void (*up)(void *arg, bool yes), void *arg)
{
	struct rd_listener *li = calloc(1, sizeof *li);
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)addr;
	const struct sockaddr_in *in = (const struct sockaddr_in *)addr;
	bool v6 = addr->sa_family == AF_INET6;

	if (!li)
		return -ENOMEM;
	memcpy(&li->li_addr, addr, len);
	li->li_svc = *svc;
	li->li_loop = loop;
	li->li_up = up;
	li->li_arg = arg;
	li->li_any = v6 ? IN6_IS_ADDR_UNSPECIFIED(&in6->sin6_addr)
			: in->sin_addr.s_addr == htonl(INADDR_ANY);
	rpc_addr_text(addr, li->li_text, sizeof li->li_text);
	rd_cmd(&li->li_cmd, CM_LISTEN, li);
	return 0;
}
