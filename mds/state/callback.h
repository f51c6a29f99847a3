/* SPDX-License-Identifier: Apache-2.0 */
/* callback.h - callbacks: what is sent to clients on the backchannels of their sessions (RFC 8881
 * chapter 20). */
#ifndef MDS_STATE_CALLBACK_H
#define MDS_STATE_CALLBACK_H
#include "mds/state/st_stateid.h"
#include "proto/rpc.h"

struct st;
struct st_client;
struct st_grants;
struct st_layout;
struct st_session;
struct st_waiter;

/* One callback under way, and its kind. */
struct st_cb;
enum st_cb_metric {
	ST_CB_LAYOUTRECALL,
	ST_CB_NOTIFY_LOCK,
	ST_CB_OFFLOAD,
	ST_CB_RECALL,
	ST_CB_GETATTR,
	ST_CB_RECALL_ANY,
	ST_CB_NOTIFY_DEVICEID,
	ST_CB_METRICS
};
struct st_cb_kind {
	uint32_t k_op;		    /* OP_CB_* */
	enum st_cb_metric k_metric; /* counts sent callbacks */
	/* locked: encodes the operation's arguments */
	void (*k_encode)(const struct st_cb *cb, struct xdr_out *x);
	/* locked: handles the client's answer. status: the operation's, or that of an operation
	 * before it, or -1 for none; res is at the operation's result. True: send it again after a
	 * while. */
	bool (*k_done)(struct st *st, struct st_cb *cb, int64_t status, struct xdr_in *res);
	/* locked, or NULL: returns the grants of what the callback is about; NULL if it is gone. */
	struct st_grants *(*k_grants)(struct st *st, const struct st_cb *cb);
	/* A request waits for the answer: at most until the recall deadline, and only as long as
	 * the connection lives. */
	bool k_brief;
	/* locked, or NULL: the session is gone, and the callback with it. */
	void (*k_lost)(struct st *st, struct st_cb *cb);
};
struct st_cb {
	struct st_cb *cb_next;
	const struct st_cb_kind *cb_kind;
	void *cb_arg; /* the kind's own, malloc'd, freed with the callback */
	bool cb_flag; /* the kind's own */
	/* When it was sent, some replies of the grants might not have arrived. */
	bool cb_referred;
	struct st_stateid cb_sid; /* as sent */
	uint8_t cb_fh[NFS4_FHSIZE];
	uint32_t cb_fhlen;
	uint8_t cb_session[NFS4_SESSIONID_SIZE];
	struct rpc_req cb_req;
	struct loop_msg cb_msg;
	struct st *cb_st;
	struct loop_timer cb_timer;
	unsigned cb_tries;
	uint32_t cb_slot;
	bool cb_keeps; /* it keeps the slot: without an answer it is sent again there */
};

/* all locked: queues the CB_LAYOUTRECALL of a recalled layout on one of its client's sessions. */
void st_recall_queue(struct st *st, struct st_layout *l);
/* locked: makes a callback for one of the client's sessions, one with a backchannel if there is
 * one; about a file, or fhlen 0. NULL: the client has no session, or no memory. */
struct st_cb *st_cb_new(struct st_client *c, const struct st_cb_kind *kind, const uint8_t *fh,
			uint32_t fhlen, struct st_session **s);
void st_cb_queue(struct st *st, struct st_session *s, struct st_cb *cb); /* locked */
/* locked: calls its kind's k_lost, and frees it */
void st_cb_lost(struct st *st, struct st_cb *cb);
/* locked: queues CB_NOTIFY_LOCK. The callback owns w from now on. */
void st_notify_queue(struct st *st, struct st_client *c, struct st_waiter *w);
/* Sends CB_NOTIFY_DEVICEID to all clients that asked for it: a device (a data server's addresses,
 * or its limits) has changed. Takes the lock. */
void st_device_changed(struct st *st, const uint8_t deviceid[NFS4_DEVICEID4_SIZE]);
/* The same for a device that is gone. No layout names it any more. */
void st_device_gone(struct st *st, const uint8_t deviceid[NFS4_DEVICEID4_SIZE]);
/* locked: the session's connection for callbacks is gone. Callbacks that cannot wait for another
 * are lost. */
void st_cb_path_lost(struct st *st, struct st_session *s);
/* locked: sends the next waiting callback when a slot is free. */
void st_cb_pump(struct st *st, struct st_session *s);
/* Decodes a client's answer to a callback of this operation. Returns its status, or that of an
 * operation before it; -1: not a CB_COMPOUND reply. *sequenced: CB_SEQUENCE was done, so the slot
 * moves on. res is at the operation's result. Here for the fuzzer. */
int64_t st_cb_decode(struct xdr_in *res, uint32_t op, bool *sequenced);
#endif
