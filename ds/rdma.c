/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rdma.c - NFSv3 over RDMA: the listeners, and which addresses clients get. A client gets an RDMA
 * address only while it takes connections, because a client tries a data server's first address
 * first, and waits long if that does not answer.
 *
 * A client that comes back after a restart takes the first address that answers, and stays with it.
 * So this server serves TCP only when RDMA is ready.
 */
#include "base/log.h"
#include "ds/ds.h"
#include "proto/rpc_rdma.h"
#include <errno.h>
#include <stdio.h>
#include <urcu/compiler.h>

/* How long to wait for missing devices. Less than mds.ds_refused: after that time, the MDS takes a
 * port that refuses connections for a dead server. */
#define WAIT_MS 700u

static bool any_address(const struct sockaddr_storage *ss)
{
	if (ss->ss_family == AF_INET)
		return ((const struct sockaddr_in *)ss)->sin_addr.s_addr == htonl(INADDR_ANY);
	return IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)ss)->sin6_addr);
}

static uint16_t *rdma_port_of(struct sockaddr_storage *ss)
{
	return ss->ss_family == AF_INET ? &((struct sockaddr_in *)ss)->sin_port
					: &((struct sockaddr_in6 *)ss)->sin6_port;
}

static unsigned rdma_tell(struct sockaddr_storage ss, uint16_t port, ctl_addr *addrs,
			  struct ds_addr_text *texts, unsigned n, unsigned max)
{
	struct ds_addr_text *t = &texts[n];

	*rdma_port_of(&ss) = port;
	if (n == max || rpc_uaddr((struct sockaddr *)&ss, t->dat_netid, sizeof(t->dat_netid),
				  t->dat_uaddr, sizeof(t->dat_uaddr)))
		return n;
	strcpy(t->dat_netid, ss.ss_family == AF_INET6 ? "rdma6" : "rdma");
	addrs[n] = (ctl_addr){
		.netid = t->dat_netid, .uaddr = t->dat_uaddr, .prefix = ds_subnet_bits(&ss)};
	return n + 1;
}

unsigned ds_rdma_addrs(struct ds *d, ctl_addr *addrs, struct ds_addr_text *texts, unsigned max)
{
	unsigned n = 0;

	for (unsigned i = 0; i < d->d_nrdma; i++) {
		struct ds_rdma *rd = &d->d_rdma[i];

		if (!rd->rd_up)
			continue;
		if (!any_address(&rd->rd_addr)) {
			n = rdma_tell(rd->rd_addr, *rdma_port_of(&rd->rd_addr), addrs, texts, n,
				      max);
			continue;
		}
		/* A wildcard: all addresses of this machine that clients use for TCP. */
		for (unsigned k = 0; k < d->d_naddrs; k++)
			if (d->d_addr[k].ss_family == rd->rd_addr.ss_family)
				n = rdma_tell(d->d_addr[k], *rdma_port_of(&rd->rd_addr), addrs,
					      texts, n, max);
	}
	return n;
}

static void tell_begun(struct ds *d)
{
	void (*begun)(void *arg) = d->d_rdma_begun;

	d->d_rdma_begun = NULL;
	begun(d->d_rdma_arg);
}

static void late(struct loop_timer *t)
{
	log_warn("rdma: not all addresses of ds.rdma are ready after %u ms: clients that connect "
		 "now may keep using TCP",
		 WAIT_MS);
	tell_begun(caa_container_of(t, struct ds, d_rdma_late));
}

static void listener_up(void *arg, bool yes)
{
	struct ds_rdma *rd = arg;
	struct ds *d = rd->rd_ds;
	bool all = true;

	rd->rd_up = yes;
	ds_control_addrs_changed(d);
	for (unsigned i = 0; i < d->d_nrdma; i++)
		all &= d->d_rdma[i].rd_up;
	if (!all || !d->d_rdma_begun)
		return;
	loop_timer_stop(d->d_loops[0], &d->d_rdma_late);
	tell_begun(d);
}

int ds_rdma_start(struct ds *d, const struct conf *c, const struct rpc_service *svc,
		  void (*begun)(void *arg), void *arg)
{
	struct rpc_rdma_opts opts = {.ro_loops = d->d_loops, .ro_nloops = d->d_nloops};
	int err = 0;

	if (!d->d_nrdma) {
		begun(arg);
		return 0;
	}
	rpc_rdma_conf(&opts, c);
	err = rpc_rdma_start(&opts);
	for (unsigned i = 0; i < d->d_nrdma && !err; i++) {
		struct ds_rdma *rd = &d->d_rdma[i];

		rd->rd_ds = d;
		err = rpc_listen_rdma(d->d_loops[0], (struct sockaddr *)&rd->rd_addr, rd->rd_len,
				      svc, listener_up, rd);
	}
	if (err)
		return err;
	d->d_rdma_begun = begun;
	d->d_rdma_arg = arg;
	d->d_rdma_late.t_fire = late;
	loop_timer_start(d->d_loops[0], &d->d_rdma_late, WAIT_MS);
	return 0;
}
