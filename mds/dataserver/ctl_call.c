/* SPDX-License-Identifier: Apache-2.0 */
/* ctl_call.c - control requests to a data server from any loop: the request travels to the loop of
 * the server's connection, and its answer back. */
#include "mds/dataserver/nfs3ds.h"
#include <errno.h>
#include <urcu/compiler.h>

static void call_back(struct loop_msg *m)
{
	struct ds_reg_ctl *c = caa_container_of(m, struct ds_reg_ctl, dc_msg);

	c->dc_done(c, c->dc_err);
}

void ds_reg_call_end(struct ds_reg_ctl *c, int err)
{
	c->dc_err = err;
	c->dc_msg.m_run = call_back;
	loop_post(c->dc_loop, &c->dc_msg);
}

static void ctl_call_call_reply(void *arg, int err, const ctl_response *res)
{
	struct ds_reg_ctl *c = arg;

	/* A valid answer names the operation of the request. */
	if (!err && res->status == CTL_OK && res->result.op != c->dc_req.op)
		err = -EPROTO;
	if (!err)
		c->dc_take(c, res);
	ds_reg_call_end(c, err);
}

static void ctl_call_call_run(struct loop_msg *m)
{
	struct ds_reg_ctl *c = caa_container_of(m, struct ds_reg_ctl, dc_msg);
	struct ds_reg_link *lk;
	struct gen *g;
	struct loop *l = ds_reg_link_loop(c->dc_dsc, c->dc_id, &lk, &g);
	int err;

	if (!l) {
		ds_reg_call_end(c, -ENOTCONN);
		return;
	}
	if (l != loop_self()) {
		/* The first run, on the caller's loop; or the server has reconnected on another
		 * loop meanwhile. */
		loop_post(l, &c->dc_msg);
		return;
	}
	if (g) {
		nfs3ds_call(g, c);
		return;
	}
	err = ctl_chan_call(lk->lk_chan, &c->dc_req, c->dc_timeout, ctl_call_call_reply, c);
	if (err)
		ds_reg_call_end(c, err);
}

void ds_reg_call(struct ds_reg *d, uint32_t id, struct ds_reg_ctl *c, uint32_t timeout_ms)
{
	c->dc_dsc = d;
	c->dc_loop = loop_self();
	c->dc_id = id;
	c->dc_timeout = timeout_ms;
	c->dc_msg.m_run = ctl_call_call_run;
	ctl_call_call_run(&c->dc_msg);
}
