/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weft_call.h - one COMPOUND: slots, sending, what its reply means for the session.
 *
 * A call (struct wc_call) is one COMPOUND that is sent until it is answered. It encodes its
 * operations each time it is started (k_put), and decodes the results inside the reply (k_got).
 * k_end is called when the call is over and nothing refers to its memory.
 */
#ifndef CLIENT_WEFT_CALL_H
#define CLIENT_WEFT_CALL_H
#include "base/loop.h"
#include "client/res.h"
#include "client/weft.h"
#include "proto/rpc.h"

struct wc_call;
struct wc_conn;

struct wc_kind {
	void (*k_put)(struct wc_call *c, struct xdr_out *x);
	void (*k_got)(struct wc_call *c, struct wc_res *r);
	void (*k_end)(struct wc_call *c, int err, uint32_t status);
	bool k_cache; /* not idempotent: the server must cache the reply */
	bool k_bare;  /* no SEQUENCE */
	/* part of a recovery: does not wait for a recovery's end, and ends with the session's error
	 * instead of waiting for another session */
	bool k_urgent;
};

struct wc_call {
	struct weft *wcl_w;
	const struct wc_kind *wcl_kind;
	void *wcl_arg;
	struct weft_op *wcl_op;
	struct wc_call *wcl_next, *wcl_all_next, *wcl_all_prev;
	struct rpc_req wcl_rpc;
	struct wc_conn *wcl_conn;
	struct loop_timer wcl_timer;
	unsigned wcl_holds; /* the reply, and payload that the transport has */
	uint32_t wcl_nops;
	int wcl_slot;	  /* -1: none */
	uint64_t wcl_gen; /* the session that the slot belongs to */
	bool wcl_queued, wcl_null, wcl_parsed;
	bool wcl_recalled; /* a layout was recalled since k_put ran last */
	bool wcl_given_up; /* it was sent in its slot, and its connection was lost */
	uint32_t wcl_delay_ms, wcl_rounds;
	uint64_t wcl_since_ns;
	/* The reply's result. */
	int wcl_err;
	uint32_t wcl_status;
	bool wcl_seq_ok;
	/* For the kinds. */
	uint32_t wcl_n, wcl_at, wcl_how, wcl_state_rounds;
	uint64_t wcl_off, wcl_verf, wcl_file_gen;
	uint8_t *wcl_buf;
	bool wcl_eof;
	struct wc_stateid wcl_stateid;
	bool wcl_lo; /* it asks for a layout, or returns one */
	struct wc_stateid wcl_lo_stateid;
	uint32_t wcl_lo_status;
	void *wcl_more;
};

/* NULL without memory. */
struct wc_call *wc_call_new(struct weft *w, const struct wc_kind *kind, struct weft_op *op,
			    void *arg);
void wc_call_send(struct wc_call *c);
/* Sends a bare call on this connection. */
void wc_call_send_on(struct wc_call *c, struct wc_conn *cn);
/* From k_end: another round of the same call, in its place or after a pause. */
void wc_call_again(struct wc_call *c, uint32_t pause_ms);
void wc_pump(struct weft *w);
void wc_call_op(struct wc_call *c, struct xdr_out *x, uint32_t op);
/* Ends waiting calls that are too old. */
void wc_calls_expire(struct weft *w);
void wc_calls_fail(struct weft *w, int err);
void wc_null(struct weft *w, struct weft_op *op);
void wc_call_parse(struct wc_call *c, struct xdr_in *x);
/* Without a transport, for the fuzzer: takes the first call that waits, as if it was sent; and
 * feeds it a reply. */
struct wc_call *wc_call_take(struct weft *w);
void wc_call_feed(struct wc_call *c, struct xdr_in *x);
/* Puts the payload of a WRITE, by reference. */
void wc_put_payload(struct wc_call *c, struct xdr_out *x, const void *data, uint32_t n);
#endif
