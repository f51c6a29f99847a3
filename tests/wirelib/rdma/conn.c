/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conn.c - connections by librdmacm, sends, Receives and memory.
 */
#include "rw.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define RECV_BIT (1ull << 32)
#define OWN_BIT	 (1ull << 33)
/* rxe's provider hands on the kernel's flags, where this is bit 2: the library's IP_CSUM_OK, which
 * RC never has. */
#define INV_BITS (IBV_WC_WITH_INV | IBV_WC_IP_CSUM_OK)

static struct conn *open_conns;
static char why_not[160]; /* of the last conn_try that failed */
static bool port_taken;
static bool own_done, own_ok;

static bool step_failed(const char *what)
{
	snprintf(why_not, sizeof why_not, "%s: %s", what, strerror(errno));
	return true;
}

/* Waits for an event; an error stands as RDMA_CM_EVENT_CONNECT_ERROR. Private data of ESTABLISHED
 * is kept. */
static enum rdma_cm_event_type cm_event(struct conn *c, int ms)
{
	struct pollfd pfd = {.fd = c->ch->fd, .events = POLLIN};
	enum rdma_cm_event_type type;
	struct rdma_cm_event *ev;

	if (poll(&pfd, 1, ms) <= 0 || rdma_get_cm_event(c->ch, &ev)) {
		snprintf(why_not, sizeof why_not, "no event within %d ms", ms);
		return RDMA_CM_EVENT_CONNECT_ERROR;
	}
	type = ev->event;
	snprintf(why_not, sizeof why_not, "%s, status %d", rdma_event_str(type), ev->status);
	if (type == RDMA_CM_EVENT_ESTABLISHED && ev->param.conn.private_data_len) {
		c->npriv = ev->param.conn.private_data_len;
		memcpy(c->priv, ev->param.conn.private_data, c->npriv);
	}
	rdma_ack_cm_event(ev);
	return type;
}

static void post_recv(struct conn *c, unsigned slot)
{
	uint8_t *p = c->mem + (size_t)SENDS * SEND_SIZE + (size_t)slot * c->opt.recv_size;
	struct ibv_sge sge = {(uintptr_t)p, c->opt.recv_size, c->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = RECV_BIT | slot, .sg_list = &sge, .num_sge = 1}, *bad;

	if (!ibv_post_recv(c->id->qp, &wr, &bad))
		c->posted++;
}

static bool make_qp(struct conn *c)
{
	struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_RC, .sq_sig_all = 1};
	size_t size;

	c->pd = ibv_alloc_pd(c->id->verbs);
	c->cc = ibv_create_comp_channel(c->id->verbs);
	c->cq = c->cc ? ibv_create_cq(c->id->verbs, 2 * SENDS + 1024, NULL, c->cc, 0) : NULL;
	if (!c->pd || !c->cq)
		return false;
	a.send_cq = a.recv_cq = c->cq;
	a.cap.max_send_wr = SENDS + 8;
	a.cap.max_recv_wr = 1024;
	a.cap.max_send_sge = a.cap.max_recv_sge = 1;
	if (rdma_create_qp(c->id, c->pd, &a))
		return false;
	size = (size_t)SENDS * SEND_SIZE +
	       (size_t)(c->opt.recvs ? c->opt.recvs : 1) * c->opt.recv_size;
	c->mem = aligned_alloc(4096, (size + 4095) & ~(size_t)4095);
	c->mr = ibv_reg_mr(c->pd, c->mem, size, IBV_ACCESS_LOCAL_WRITE);
	if (!c->mr)
		return false;
	for (unsigned i = 0; i < SENDS; i++)
		c->free[c->nfree++] = (uint16_t)i;
	for (unsigned i = 0; i < c->opt.recvs; i++)
		post_recv(c, i);
	fcntl(c->cc->fd, F_SETFL, O_NONBLOCK);
	return !ibv_req_notify_cq(c->cq, 0);
}

/* RFC 8797 section 4, found wherever it stands (section 5.2). Without it: section 5.1. */
static void read_priv(struct conn *c)
{
	static const uint8_t magic[4] = {0xf6, 0xab, 0x0e, 0x18};
	unsigned send = c->opt.no_priv ? 1024 : SEND_SIZE, peer_recv = 1024, peer_send = 1024;
	bool peer_inv = false;

	for (unsigned i = 0; i + 8 <= c->npriv; i++) {
		if (memcmp(c->priv + i, magic, 4) || c->priv[i + 4] != 1)
			continue;
		c->priv_found = true;
		peer_inv = c->priv[i + 5] & PRIV_R;
		peer_send = (c->priv[i + 6] + 1u) * 1024;
		peer_recv = (c->priv[i + 7] + 1u) * 1024;
		break;
	}
	c->call_max = send < peer_recv ? send : peer_recv;
	c->reply_max = c->opt.recv_size < peer_send ? c->opt.recv_size : peer_send;
	if (c->opt.no_priv && c->reply_max > 1024)
		c->reply_max = 1024;
	c->inv_ok = peer_inv && c->opt.flags & PRIV_R && !c->opt.no_priv;
}

static enum rdma_cm_event_type connect_now(struct conn *c)
{
	uint8_t mine[8] = {0xf6,
			   0xab,
			   0x0e,
			   0x18,
			   1,
			   c->opt.flags,
			   SEND_SIZE / 1024 - 1,
			   (uint8_t)(c->opt.recv_size / 1024 - 1)};
	struct rdma_conn_param p = {.retry_count = 6, .rnr_retry_count = c->opt.rnr};
	struct ibv_device_attr a;
	enum rdma_cm_event_type ev;

	if (ibv_query_device(c->id->verbs, &a)) {
		step_failed("ibv_query_device");
		return RDMA_CM_EVENT_CONNECT_ERROR;
	}
	/* RDMA Reads come from the server only. */
	p.responder_resources = (uint8_t)(a.max_qp_rd_atom > 255 ? 255 : a.max_qp_rd_atom);
	if (c->opt.raw) {
		p.private_data = c->opt.raw;
		p.private_data_len = (uint8_t)c->opt.nraw;
	} else if (!c->opt.no_priv) {
		p.private_data = mine;
		p.private_data_len = sizeof mine;
	}
	if (rdma_connect(c->id, &p)) {
		port_taken = errno == EADDRINUSE || errno == EADDRNOTAVAIL;
		step_failed("rdma_connect");
		return RDMA_CM_EVENT_CONNECT_ERROR;
	}
	do
		ev = cm_event(c, 10000);
	while (ev == RDMA_CM_EVENT_CONNECT_RESPONSE);
	return ev;
}

static struct conn *try_once(const struct opt *o, enum rdma_cm_event_type *why)
{
	struct addrinfo hint = {.ai_socktype = SOCK_STREAM}, *ai;
	struct conn *c = calloc(1, sizeof *c);
	enum rdma_cm_event_type ev = RDMA_CM_EVENT_CONNECT_ERROR;

	port_taken = false;
	if (o)
		c->opt = *o;
	c->opt.recv_size = c->opt.recv_size ? c->opt.recv_size : 4096;
	c->opt.recvs = c->opt.recvs == (unsigned)NONE ? 0 : c->opt.recvs ? c->opt.recvs : 160;
	c->in_tail = &c->in;
	c->credits = 1;
	c->xid = (uint32_t)rnd();
	c->next = open_conns;
	open_conns = c;
	need(!getaddrinfo(run.host, run.port, &hint, &ai), "no such host");
	c->ch = rdma_create_event_channel();
	need(c->ch && !rdma_create_id(c->ch, &c->id, NULL, RDMA_PS_TCP), "no RDMA here: %s",
	     strerror(errno));
	if ((!rdma_resolve_addr(c->id, NULL, ai->ai_addr, 2000) ||
	     !step_failed("rdma_resolve_addr")) &&
	    cm_event(c, 5000) == RDMA_CM_EVENT_ADDR_RESOLVED &&
	    (!rdma_resolve_route(c->id, 2000) || !step_failed("rdma_resolve_route")) &&
	    cm_event(c, 5000) == RDMA_CM_EVENT_ROUTE_RESOLVED) {
		need(make_qp(c), "a queue pair: %s", strerror(errno));
		ev = connect_now(c);
	}
	freeaddrinfo(ai);
	if (why)
		*why = ev;
	if (ev != RDMA_CM_EVENT_ESTABLISHED) {
		conn_drop(c);
		return NULL;
	}
	read_priv(c);
	fcntl(c->ch->fd, F_SETFL, O_NONBLOCK);
	return c;
}

/* Our port is chosen by the kernel's RDMA connection manager, at random among its own; on iWARP it
 * is one of TCP as well, and may be in use there, or not free again yet. */
struct conn *conn_try(const struct opt *o, enum rdma_cm_event_type *why)
{
	struct conn *c = NULL;

	for (unsigned i = 0; !c && (!i || port_taken) && i < 5; i++)
		c = try_once(o, why);
	return c;
}

struct conn *conn_open(const struct opt *o)
{
	enum rdma_cm_event_type why = 0;
	struct conn *c = conn_try(o, &why);

	need(c, "connecting: %s (%s)", rdma_event_str(why), why_not);
	return c;
}

void conn_drop(struct conn *c)
{
	struct conn **p = &open_conns;

	while (*p != c)
		p = &(*p)->next;
	*p = c->next;
	while (c->calls) {
		struct call *k = c->calls;

		c->calls = k->next;
		k->c = NULL;
	}
	/* A bound window holds its queue pair. */
	for (struct mem *m = c->mems; m; m = m->next) {
		if (m->mw)
			ibv_dealloc_mw(m->mw);
		m->mw = NULL;
	}
	if (c->id && c->id->qp)
		rdma_destroy_qp(c->id);
	while (c->mems)
		mem_free(c->mems);
	if (c->cq)
		ibv_destroy_cq(c->cq);
	if (c->cc)
		ibv_destroy_comp_channel(c->cc);
	if (c->mr)
		ibv_dereg_mr(c->mr);
	if (c->id)
		rdma_destroy_id(c->id);
	if (c->pd)
		ibv_dealloc_pd(c->pd);
	if (c->ch)
		rdma_destroy_event_channel(c->ch);
	while (c->in) {
		struct msg *m = c->in;

		c->in = m->next;
		free(m);
	}
	free(c->mem);
	free(c);
}

void conn_close(struct conn *c)
{
	rdma_disconnect(c->id);
	conn_drop(c);
}

void conn_close_all(void)
{
	while (open_conns)
		conn_close(open_conns);
}

static void received(struct conn *c, const struct ibv_wc *wc)
{
	unsigned slot = (unsigned)wc->wr_id;
	struct msg *m = malloc(sizeof *m + wc->byte_len);

	c->posted--;
	m->next = NULL;
	m->len = wc->byte_len;
	m->inv = wc->wc_flags & INV_BITS;
	m->inv_rkey = m->inv ? wc->invalidated_rkey : 0;
	memcpy(m->b, c->mem + (size_t)SENDS * SEND_SIZE + (size_t)slot * c->opt.recv_size,
	       wc->byte_len);
	*c->in_tail = m;
	c->in_tail = &m->next;
	if (!c->dead)
		post_recv(c, slot);
}

static bool drain(struct conn *c)
{
	struct ibv_wc wc;
	bool any = false;

	while (ibv_poll_cq(c->cq, 1, &wc) > 0) {
		any = true;
		if (wc.wr_id & OWN_BIT) {
			own_done = true;
			own_ok = !wc.status;
		} else if (!(wc.wr_id & RECV_BIT)) {
			c->free[c->nfree++] = (uint16_t)wc.wr_id;
		}
		if (wc.status) {
			if (!c->dead || c->wc_status == IBV_WC_WR_FLUSH_ERR || !c->wc_status)
				c->wc_status = wc.status;
			c->dead = true;
		} else if (wc.wr_id & RECV_BIT) {
			received(c, &wc);
		}
	}
	return any;
}

static void take_cm_events(struct conn *c)
{
	struct rdma_cm_event *ev;

	while (!rdma_get_cm_event(c->ch, &ev)) {
		if (ev->event != RDMA_CM_EVENT_TIMEWAIT_EXIT)
			c->dead = true;
		rdma_ack_cm_event(ev);
	}
}

void conn_poll(struct conn *c, int ms)
{
	struct pollfd pfd[2] = {{.fd = c->cc->fd, .events = POLLIN},
				{.fd = c->ch->fd, .events = POLLIN}};
	struct ibv_cq *cq;
	void *ctx;

	if (drain(c))
		return;
	if (poll(pfd, 2, ms) <= 0)
		return;
	if (pfd[1].revents)
		take_cm_events(c);
	if (pfd[0].revents && !ibv_get_cq_event(c->cc, &cq, &ctx)) {
		ibv_ack_cq_events(cq, 1);
		ibv_req_notify_cq(cq, 0);
	}
	drain(c);
}

bool conn_send(struct conn *c, const void *p, size_t n)
{
	uint64_t end = now_ms() + WAIT_MS;
	struct ibv_sge sge = {.length = (uint32_t)n, .lkey = c->mr->lkey};
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1}, *bad;
	unsigned slot;

	need(n <= SEND_SIZE, "a message of %zu bytes", n);
	while (!c->nfree && !c->dead && now_ms() < end)
		conn_poll(c, 100);
	if (c->dead)
		return false;
	need(c->nfree, "no send was completed");
	slot = c->free[--c->nfree];
	sge.addr = (uintptr_t)(c->mem + (size_t)slot * SEND_SIZE);
	memcpy(c->mem + (size_t)slot * SEND_SIZE, p, n);
	wr.wr_id = slot;
	if (ibv_post_send(c->id->qp, &wr, &bad)) {
		c->dead = true;
		return false;
	}
	return true;
}

struct msg *conn_recv(struct conn *c, int ms)
{
	uint64_t end = now_ms() + (uint64_t)ms;
	struct msg *m;

	while (!c->in && !c->dead && now_ms() < end)
		conn_poll(c, (int)(end - now_ms()));
	if (!c->in)
		drain(c);
	m = c->in;
	if (m) {
		c->in = m->next;
		if (!c->in)
			c->in_tail = &c->in;
	}
	return m;
}

bool conn_wait_dead(struct conn *c, int ms)
{
	uint64_t end = now_ms() + (uint64_t)ms;

	while (!c->dead && now_ms() < end)
		conn_poll(c, (int)(end - now_ms()));
	return c->dead;
}

bool conn_post(struct conn *c, struct ibv_send_wr *wr)
{
	uint64_t end = now_ms() + WAIT_MS;
	struct ibv_send_wr *bad;

	wr->wr_id = OWN_BIT;
	own_done = false;
	if (ibv_post_send(c->id->qp, wr, &bad))
		return false;
	while (!own_done && now_ms() < end)
		conn_poll(c, 100);
	return own_done && own_ok;
}

struct mem *mem_new(struct conn *c, size_t n, int access)
{
	struct mem *m = calloc(1, sizeof *m);

	m->n = n;
	m->c = c;
	m->next = c->mems;
	c->mems = m;
	m->p = aligned_alloc(4096, (n + 4095) & ~(size_t)4095);
	memset(m->p, GUARD, n);
	m->mr = ibv_reg_mr(c->pd, m->p, n, access);
	need(m->mr, "registering %zu bytes: %s", n, strerror(errno));
	m->rkey = m->mr->rkey;
	return m;
}

struct mem *mem_new_inv(struct conn *c, size_t n)
{
	struct mem *m = mem_new(c, n, run.iwarp ? MEM_RW : MEM_RW | IBV_ACCESS_MW_BIND);
	struct ibv_send_wr wr = {.opcode = IBV_WR_BIND_MW};

	if (run.iwarp)
		return m;
	m->mw = ibv_alloc_mw(c->pd, IBV_MW_TYPE_2);
	need(m->mw, "a memory window: %s", strerror(errno));
	wr.bind_mw.mw = m->mw;
	wr.bind_mw.rkey = ibv_inc_rkey(m->mw->rkey);
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){
		.mr = m->mr,
		.addr = (uintptr_t)m->p,
		.length = n,
		.mw_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
	};
	need(conn_post(c, &wr), "binding a memory window");
	m->rkey = wr.bind_mw.rkey;
	return m;
}

void mem_free(struct mem *m)
{
	struct mem **p = &m->c->mems;

	while (*p != m)
		p = &(*p)->next;
	*p = m->next;
	if (m->mw)
		ibv_dealloc_mw(m->mw);
	if (m->mr)
		ibv_dereg_mr(m->mr);
	free(m->p);
	free(m);
}
