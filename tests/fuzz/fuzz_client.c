/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_client.c - libweft believes no server: replies to each of its calls, one after the other,
 * and calls of the server. An input is pieces of a two-byte length and so many bytes; the first
 * byte says what is called. Every operation ends at most once, and what it gives fits.
 */
#include "client/back.h"
#include "client/layout.h"
#include "client/open.h"
#include "client/report.h"
#include "client/weft_io.h"
#include "client/weft_op.h"
#include "tests/unit/weft_alone.h"
#include <stdlib.h>

static unsigned ended;
static uint8_t mem[8192];
static struct weft_file *opened;

static void must(bool ok)
{
	if (!ok)
		abort();
}

static void done(struct weft_op *op)
{
	ended++;
	must(op->o_what == WEFT_READLINK || op->o_what == WEFT_GETXATTR ||
	     op->o_what == WEFT_READDIR || op->o_count <= op->o_len);
	if (op->o_what == WEFT_OPEN && !op->o_err)
		opened = op->o_file;
}

static void entry(struct weft_op *op, const struct weft_entry *en)
{
	(void)op;
	must(en->en_len && en->en_len <= 1024 && strlen(en->en_name) == en->en_len &&
	     en->en_fh.fh_len <= sizeof(en->en_fh.fh_data));
}

static bool piece(const uint8_t **data, size_t *size, struct xdr_in *x)
{
	size_t n;

	if (*size < 2)
		return false;
	n = (size_t)(*data)[0] << 8 | (*data)[1];
	n = n < *size - 2 ? n : *size - 2;
	xdr_in_init(x, *data + 2, n);
	*data += 2 + n;
	*size -= 2 + n;
	return true;
}

/* No data server is called: its calls end at once, with no connection. */
int __wrap_rpc_client_create(struct rpc_client **out, struct loop *l, const struct sockaddr *addr,
			     socklen_t len, const struct rpc_service *svc,
			     const struct rpc_client_ops *ops, void *arg);
int __wrap_rpc_client_create(struct rpc_client **out, struct loop *l, const struct sockaddr *addr,
			     socklen_t len, const struct rpc_service *svc,
			     const struct rpc_client_ops *ops, void *arg)
{
	(void)out, (void)l, (void)svc, (void)ops, (void)arg;
	must(addr->sa_family == AF_INET || addr->sa_family == AF_INET6);
	must(len && len <= sizeof(struct sockaddr_storage));
	return -ENOMEM;
}

/* Answers calls until the operation has ended or there are no more answers. */
static void answer(struct weft *w, const uint8_t **data, size_t *size, unsigned want)
{
	struct xdr_in x;
	struct wc_call *c;

	while (ended < want && piece(data, size, &x)) {
		w->w_state = WC_READY;
		w->w_have_session = true;
		c = wc_call_take(w);
		if (!c)
			return;
		must(!c->wcl_rpc.q_args.bad);
		wc_call_feed(c, &x);
		while (w->w_ds_calls && w->w_state == WC_READY)
			wc_ring_run(w->w_ring, 0);
	}
}

static void step(struct weft *w, unsigned which, struct xdr_in *x)
{
	struct wc_call *c = wc_call_new(w, wc_steps[which], NULL, NULL);

	c->wcl_nops = 3;
	c->wcl_n = OP_DESTROY_SESSION;
	c->wcl_gen = w->w_gen;
	c->wcl_slot = 0;
	wc_call_parse(c, x);
	if (!c->wcl_err && !c->wcl_status && wc_steps[which]->k_got && which == 1)
		must(w->w_nslots && w->w_nslots <= 8 && w->w_max_resp >= 2048);
	w->w_all = NULL;
	free(c);
}

static void callback(struct weft *w, struct xdr_in *x)
{
	struct xdr_out out;

	xdr_out_init(&out, WC_CB_BYTES);
	wc_back_compound(w, x, &out);
	xdr_out_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct weft_ring *r;
	static struct weft w;
	struct weft_op open = {.o_what = WEFT_OPEN,
			       .o_name = "f",
			       .o_flags = WEFT_O_READ | WEFT_O_WRITE,
			       .o_done = done,
			       .o_w = &w};
	struct weft_op op = {.o_done = done,
			     .o_w = &w,
			     .o_name = "a/b",
			     .o_name2 = "c",
			     .o_buf = mem,
			     .o_len = sizeof(mem),
			     .o_entry = entry};
	struct xdr_in x;
	unsigned what;

	if (!r && weft_ring_create(&r))
		abort();
	if (!size)
		return 0;
	alone_begin(&w, r);
	w.w_opts.wo_max_io = 4096;
	w.w_max_cached = data[0] & 16 ? 16384 : 0; /* a layout comes with an OPEN */
	w.w_lease_s = 1;
	w.w_pnfs = data[0] & 32;
	ended = 0;
	opened = NULL;
	what = data[0];
	data++;
	size--;
	if (what >= 64) {
		while (piece(&data, &size, &x)) {
			w.w_have_session = true;
			if (what >= 128)
				callback(&w, &x);
			else
				step(&w, what % WC_STEPS, &x);
		}
	} else {
		op.o_what = what & 15;
		if (op.o_what == WEFT_NULL) /* which has no reply to take apart */
			op.o_what = what & 16 ? WEFT_GETXATTR : WEFT_SETXATTR;
		if (op.o_what == WEFT_READ || op.o_what == WEFT_WRITE || op.o_what == WEFT_CLOSE ||
		    op.o_what == WEFT_COMMIT) {
			wc_op_begin(&open);
			answer(&w, &data, &size, 1);
			op.o_file = opened;
		}
		if (op.o_what != WEFT_NULL) {
			unsigned before = ended;

			wc_op_begin(&op);
			answer(&w, &data, &size, before + 1);
			if (op.o_what == WEFT_WRITE && ended == before + 1 && opened) {
				op.o_what = WEFT_COMMIT;
				wc_op_begin(&op);
				answer(&w, &data, &size, before + 2);
			}
			/* what is told besides: errors of data servers, a CLOSE that nobody waits
			 * for */
			answer(&w, &data, &size, ended + 1);
		}
	}
	alone_end(&w);
	r->r_ended = NULL;
	r->r_ended_end = &r->r_ended;
	return 0;
}
