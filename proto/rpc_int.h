/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_int.h - what the files of the RPC layer share; not for services.
 *
 *   rpc_buf.c     received memory: buffers, free lists, cutting a byte stream into records
 *   rpc_any.c     received memory that idle connections share
 *   rpc_msg.c     call and reply headers, on plain bytes
 *   rpc_conn.c    a connection's life, receiving, sending
 *   rpc_half.c    records that have begun and not ended: their time, their memory, and which long
 *                 ones are received
 *   rpc_turn.c    what the connections of one address share: turns, calls in progress, a rate
 *   rpc_zc.c      sending without a copy
 *   rpc_tls.c     TLS on a connection; rpc_tls_ctx.c: what TLS connections share
 *   rpc_server.c  calls of the peer: checks, dispatch, replies
 *   rpc_gss.c     RPCSEC_GSS: contexts, and making them
 *   rpc_gss_msg.c RPCSEC_GSS: one call and its reply
 *   rpc_req.c     calls of ours
 *   rpc_quiet.c   whether a peer that has not answered them is slow or dead
 *   rpc_listen.c  rpc_client.c  rpc_addr.c
 *   rpc_rdma_*.c  RDMA instead of a socket: rpc_rdma_int.h
 */
#ifndef PROTO_RPC_INT_H
#define PROTO_RPC_INT_H
#include "base/hash.h"
#include "base/metrics.h"
#include "proto/rpc_tls.h"
#include <openssl/ssl.h>

#define RPC_PAGE 4096u
/* Record mark in front of a fragment, RFC 5531 section 11. */
#define RPC_MARK 4u
#define RPC_LAST 0x80000000u
/* RFC 5531 section 8.2 */
#define RPC_MAX_AUTH 400u
/* For connections without a service. */
#define RPC_DEFAULT_MAX_RECORD (2u << 20)
/* A connection stops reading at so many bytes of waiting replies, or unanswered calls. */
#define RPC_MAX_QUEUED (4u << 20)
#define RPC_MAX_CALLS  256u
/* The most records of one connection in one turn of its loop; and nanoseconds after which a turn
 * goes to the next connection. */
#define RPC_TURN_RECORDS 32u
#define RPC_TURN_NS	 1000000u
/* Records of one address in a turn; and of one connection while others of its address wait. */
#define RPC_HOST_RECORDS 64u
#define RPC_FEW_RECORDS	 4u
/* The most memory of replies until it is released, with that of replies to come (rpc_call_expect):
 * of one connection, and of all of a loop together. */
#define RPC_MAX_HELD	 (32u << 20)
#define RPC_MAX_ALL_HELD (192u << 20)
#define RPC_LEAST_HELD	 (1u << 20)
#define RPC_IOV		 64u
/* A connection that has proved nothing receives so many bytes of a record before its service is
 * asked (rs_first). */
#define RPC_FIRST (64u << 10)
/* The most memory of records that have begun and not ended: per loop, of all connections that have
 * proved nothing, and of the others; and of the former in all loops, each with an equal share.
 * Above the limit the oldest are ended; of connections that have proved something only those whose
 * record began HALF_SLOW_NS ago. */
#define RPC_MAX_HALF_FIRST (8u << 20)
#define RPC_ALL_HALF_FIRST (16u << 20)
#define RPC_MAX_HALF	   (256u << 20)
/* Mark and accepted-reply header. */
#define RPC_REPLY_HEAD 28u

/* ---- rpc_buf.c ---- */

/* Capacities are (16 KiB << class) + 8 KiB. */
#define RPC_BUF_CLASSES 16u
/* Bytes on a loop's free lists. */
#define RPC_BUF_KEEP (64u << 20)
/* Buffers of the smallest class: every connection has one, and thousands of connections may end
 * together. */
#define RPC_BUF_SMALL 256u

struct rpc_pool {
	struct rpc_buf *p_free[RPC_BUF_CLASSES];
	size_t p_bytes, p_nsmall;
};

struct rpc_buf {
	uint8_t *b_data; /* page aligned */
	uint32_t b_refs, b_class;
	bool b_pooled; /* b_data belongs to the memory pool (base/pool.h) */
	/* returns the memory to its owner; NULL: the memory is the RPC layer's */
	void (*b_own)(struct rpc_buf *b);
	struct rpc_pool *b_pool;
	struct rpc_buf *b_next;
};

/* Returns one reference, capacity at least need; NULL: no memory, or need exceeds the largest
 * class. */
struct rpc_buf *rpc_buf_new(struct rpc_pool *pool, size_t need);
size_t rpc_buf_cap(const struct rpc_buf *b);
void rpc_pool_drain(struct rpc_pool *pool);

/*
 * A byte stream cut into records. Small records are handed out in place, in the buffer that many of
 * them were received into (each holds a reference). A large or fragmented record gets a buffer of
 * its own, and its rest is received straight into it.
 */
struct rpc_rx {
	struct rpc_pool *x_pool;
	size_t x_max; /* longest record */
	struct rpc_buf *x_rx;
	uint32_t x_r, x_w; /* bytes [r, w) of x_rx are not consumed yet */
	struct rpc_buf *x_rec;
	size_t x_start; /* where the record begins in x_rec */
	size_t x_len;	/* how many bytes of it are there */
	size_t x_frag_left;
	bool x_last;	      /* the fragment is the record's last */
	uint32_t x_hint;      /* offset of the payload in the last bulk record, or 0 */
	uint32_t x_hint_args; /* the same, in the call's arguments; 0: it was no call */
	/* length with mark of the last record that was handed out in place, or 0 */
	uint32_t x_small;
	unsigned x_bulk; /* there was a bulk record not long ago: expect another */
	/* bytes of the record to come that were copied, some perhaps more than once */
	size_t x_copied;
	/* shows the first RPC_FIRST bytes of a longer record before it receives the rest */
	bool x_gate;
	bool x_skip; /* the rest of this record is discarded */
	size_t x_skipped;
};

struct rpc_record {
	struct rpc_buf *r_buf; /* a reference that now belongs to the receiver */
	const uint8_t *r_data;
	size_t r_len;
	size_t r_copied;	/* so many of its first bytes were copied on their way here */
	struct rd_call *r_rdma; /* the call's chunks, the receiver's like the record; NULL: none */
	/* of a reply: the payload of its call, or its own, went by itself from or to its place */
	bool r_direct;
	bool r_cut; /* only the first RPC_FIRST bytes are here; the rest was discarded */
	/* of a reply: so many bytes of its payload are where xdr_put_place said. The record has
	 * neither them nor their padding, but it has their length word */
	uint32_t r_placed;
};

void rpc_rx_init(struct rpc_rx *x, struct rpc_pool *pool, size_t max);
void rpc_rx_free(struct rpc_rx *x);
/* Where the next bytes of the stream go. *all: they belong to the current record, so it pays to
 * wait for all of them. */
int rpc_rx_space(struct rpc_rx *x, void **p, size_t *n, bool *all);
/* As rpc_rx_space, but *p may be NULL: then the bytes go into any buffer of RPC_ANY bytes, which
 * rpc_rx_take gets before rpc_rx_got. */
int rpc_rx_space_any(struct rpc_rx *x, void **p, size_t *n, bool *all);
/* n bytes were put there. */
void rpc_rx_got(struct rpc_rx *x, size_t n);
/* Returns 1 and a record; 0: more bytes are needed; -EMSGSIZE, -ENOMEM: the stream cannot go on.
 * RPC_RX_FIRST, only with x_gate: r holds the first RPC_FIRST bytes of a longer record, without a
 * reference; call rpc_rx_admit next. */
#define RPC_RX_FIRST 2
int rpc_rx_next(struct rpc_rx *x, struct rpc_record *r);
/* whole: receives this record and all later ones whole. Else discards the record's rest and hands
 * it out cut. Returns 0 or -ENOMEM. */
int rpc_rx_admit(struct rpc_rx *x, bool whole);
/* Bytes of memory of a record that has begun and not ended; 0: there is none. */
size_t rpc_rx_half(const struct rpc_rx *x);
/* The bytes that are received and not consumed, between two records. */
size_t rpc_rx_rest(const struct rpc_rx *x, const uint8_t **p);
/* b: a reference that it takes over. */
void rpc_rx_take(struct rpc_rx *x, struct rpc_buf *b);
/* No more bytes are there. rpc_rx_idle returns the buffer unless it has bytes or records.
 * rpc_rx_leave leaves it to its records as well. */
void rpc_rx_idle(struct rpc_rx *x);
void rpc_rx_leave(struct rpc_rx *x);
/* off: offset of the payload in the record just handled, which is at rec. */
void rpc_rx_hint(struct rpc_rx *x, const uint8_t *rec, size_t off);

struct rpc_loop;

/* ---- rpc_any.c: for rpc_conn.c; on the loop's thread ---- */

/* The most bytes of one receive of unknown records. */
#define RPC_ANY 16384u
/* So many shared buffers a loop has from its first connection on: a power of two, RPC_ANY_MOST
 * except in tests. */
#define RPC_ANY_MOST 64u
extern unsigned rpc_any_n;
/* True when the loop has memory that its connections share. */
bool rpc_any_has(struct rpc_loop *rl);
/* Receives at most so many bytes into a shared buffer, once there are data. */
void rpc_any_recv(struct io_uring_sqe *sqe, int fd, size_t most);
/* The buffer that a completion with these flags (F_BUFFER) names; the caller owns it. NULL: no
 * memory to replace it, and the bytes are lost. */
struct rpc_buf *rpc_any_take(struct rpc_loop *rl, uint32_t flags);
/* The loop's ring has ended. */
void rpc_any_drop(struct rpc_loop *rl);

/* ---- rpc_msg.c ---- */

enum rpc_verdict {
	RPC_HDR_OK,
	RPC_HDR_GARBAGE,  /* too short even for an answer */
	RPC_HDR_MISMATCH, /* rpcvers is not 2 */
	RPC_HDR_AUTH,	  /* rhd_auth has the reason */
	RPC_HDR_TLS,	  /* AUTH_TLS; rhd_auth says whether it is well-formed */
	RPC_HDR_ARGS,	  /* the header is cut off: GARBAGE_ARGS */
};
/* RFC 2203 section 5 */
enum rpc_gss_proc { RPC_GSS_DATA, RPC_GSS_INIT, RPC_GSS_CONTINUE_INIT, RPC_GSS_DESTROY };
struct rpc_gss_head {
	uint32_t gh_proc, gh_seq, gh_service;
	const uint8_t *gh_handle, *gh_verf;
	uint32_t gh_handle_len, gh_verf_flavor, gh_verf_len;
	/* from the xid to the end of the credential: the part that the verifier signs */
	const uint8_t *gh_signed;
	size_t gh_signed_len;
};
struct rpc_head {
	uint32_t rhd_xid, rhd_prog, rhd_vers, rhd_proc;
	struct rpc_cred rhd_cred;
	struct rpc_gss_head rhd_gss; /* with RPC_AUTH_GSS; nothing in it is proved yet */
	enum rpc_auth_stat rhd_auth;
};
/* Parses a whole call message from its xid on; on RPC_HDR_OK, x is at the arguments. */
enum rpc_verdict rpc_call_parse(struct xdr_in *x, struct rpc_head *h);
/* Parses from behind xid and direction. Returns 0, with x at the results, or -EPROTO. */
int rpc_reply_parse(struct xdr_in *x);
void rpc_cred_put(struct xdr_out *x, const struct rpc_cred *cred);

/* ---- rpc_conn.c ---- */

/* One message to send. o_free releases the memory once the message is on its way or the connection
 * is gone. */
struct rpc_out {
	struct rpc_out *o_next;
	struct xdr_out *o_x;
	void (*o_free)(struct rpc_out *o);
	/* counts as back-pressure; our own calls must not keep us from reading their replies */
	bool o_reply;
	bool o_last_clear;	/* later messages go over TLS */
	bool o_gone;		/* sent, or the connection is gone: o_free when o_pins is 0 */
	unsigned o_pins;	/* sends whose pages the kernel still has (rpc_zc.c) */
	size_t o_reply_max;	/* of a call of ours: q_reply_max */
	struct rd_call *o_rdma; /* of a reply: its call's chunks, freed with the call */
};

/* Connections on which a record has begun and not ended, by when it began. */
struct rpc_halves {
	struct rpc_conn *hv_oldest, *hv_newest;
	size_t hv_bytes;
};

/* The RPC layer's state per loop. */
struct rpc_loop {
	struct loop *rl_loop;
	struct rpc_pool rl_pool;
	struct rpc_any *rl_any; /* rpc_any.c */
	bool rl_any_tried;
	struct rpc_conn *rl_flush; /* connections with something new to send */
	struct loop_hook rl_hook;
	bool rl_hooked, rl_kicked;
	size_t rl_all_held;	/* rcn_held of all connections, dead ones as well */
	uint64_t rl_flushed_ns; /* the turn in which the hook ran last */
	struct loop_msg rl_kick;
	struct rpc_call_int *rl_calls; /* free list */
	unsigned rl_ncalls;
	uint8_t *rl_stage;    /* buffer for building a TLS record */
	uint64_t rl_shake_ns; /* the turn in which rl_shakes steps of handshakes ran */
	unsigned rl_shakes;
	struct hash rl_hosts; /* rpc_turn.c */
	/* rpc_half.c: of connections that have proved nothing, and of the others */
	struct rpc_halves rl_halves[2];
	struct loop_timer rl_half_timer;
	bool rl_half_timed;
	/* rpc_gate.c: connections that wait for the lease of the store; NULL: it has no end */
	struct store_lease *rl_lease;
	struct rpc_conn *rl_shut, **rl_shut_end;
	struct store_lease_watch rl_watch;
	struct loop_msg rl_open_msg;
	_Atomic bool rl_opening; /* rl_open_msg is posted */
};

#define RPC_XIDS 64u

/* What the ring is sending in the clear. */
struct rpc_sending {
	struct msghdr sd_mh;
	struct iovec sd_iov[RPC_IOV];
};

/* Calls and the bytes of their records. */
struct rpc_load {
	unsigned ld_calls;
	size_t ld_bytes;
};

struct rpc_conn {
	uint64_t rcn_id;
	struct rd_conn *rcn_rdma; /* instead of a socket, while its queue pair lives */
	bool rcn_is_rdma;
	struct loop *rcn_loop;
	struct rpc_loop *rcn_rl;
	int rcn_fd;
	/* one while open, one per I/O in flight, posted message and call not yet freed */
	unsigned rcn_refs;
	bool rcn_opened, rcn_dead, rcn_ended, rcn_closed, rcn_paused, rcn_receiving, rcn_sending,
		rcn_on_flush;
	bool rcn_alone;	   /* its next receive has memory of its own */
	bool rcn_resuming; /* it waits for its turn (rpc_turn.c) */
	/* on the list of connections that are not read because of their address's limits */
	bool rcn_stuck;
	struct rpc_host *rcn_host; /* set when it starts */
	struct rpc_conn *rcn_wait_next, **rcn_wait_prev, *rcn_stuck_next, **rcn_stuck_prev;
	struct sockaddr_storage rcn_peer;
	enum rpc_tls rcn_tls;
	bool rcn_probing;	    /* we wait for the answer to our probe */
	bool rcn_copies;	    /* sending without a copy does not pay here */
	bool rcn_spoke;		    /* the peer has called something but NULL in the clear */
	bool rcn_send_tls;	    /* the send in progress goes over TLS */
	bool rcn_later;		    /* rcn_later_msg is posted: the handshake waits for its turn */
	struct rpc_tls_conn *rcn_t; /* since the probe */
	struct rpc_service rcn_svc; /* without programs when the peer may not call us */
	void *rcn_priv;
	struct rpc_client *rcn_client;
	int rcn_err; /* why it ended */
	struct rpc_rx rcn_rx;
	struct loop_io rcn_recv_io, rcn_send_io;
	struct loop_msg rcn_start_msg, rcn_end_msg, rcn_later_msg;
	struct rpc_out *rcn_outs, **rcn_outs_end;
	size_t rcn_queued; /* bytes of replies in rcn_outs */
	size_t rcn_held; /* bytes of memory of replies: to come, in rcn_outs, and with the kernel */
	unsigned rcn_pins; /* sends whose pages the kernel still has (rpc_zc.c) */
	size_t rcn_sent;   /* bytes of rcn_outs that are sent */
	struct rpc_conn *rcn_flush_next;
	unsigned rcn_ncalls;	   /* calls not yet answered */
	size_t rcn_bytes;	   /* of their records */
	struct rpc_load rcn_waits; /* those of them that wait for a client (rpc_call_waits) */
	unsigned rcn_nreqs;	   /* of ours, in rcn_reqs */
	struct rpc_req **rcn_reqs; /* RPC_XIDS of them, by xid; NULL before the first */
	uint32_t rcn_xid;
	struct rpc_quiet *rcn_quiet; /* rpc_quiet.c; NULL before the first call of ours */
	/* rpc_half.c */
	struct rpc_halves *rcn_half; /* the list that it is on, or NULL */
	struct rpc_conn *rcn_half_older, *rcn_half_newer;
	uint64_t rcn_half_ns;
	size_t rcn_half_bytes;
	bool rcn_half_due; /* its time is over; it gets one more chance to be read */
	/* rpc_gate.c: on the list of those that wait for the lease of the store */
	struct rpc_conn *rcn_shut_next, **rcn_shut_prev;
	/* while the ring sends in the clear; most connections are idle */
	struct rpc_sending *rcn_snd;
};

struct rpc_loop *rpc_loop_get(struct loop *l);
/* How many loops have called rpc_loop_get. Any thread. */
unsigned rpc_loops(void);
/* Takes fd over; -1: RDMA. Copies svc, which may be NULL. The connection does nothing before
 * rpc_conn_start, on loop's thread. */
struct rpc_conn *rpc_conn_new(int fd, struct loop *loop, const struct rpc_service *svc,
			      const struct sockaddr_storage *peer);
void rpc_conn_start(struct rpc_conn *c);
void rpc_conn_fail(struct rpc_conn *c, int err);
/* rpc_conn_input handles what was received and asks for more; later, if it is the others' turn.
 * rpc_conn_turn does so at once. */
void rpc_conn_input(struct rpc_conn *c);
void rpc_conn_turn(struct rpc_conn *c);
void rpc_conn_put(struct rpc_conn *c);
/* RDMA: nothing refers to the connection's memory any more (see rcn_receiving). */
void rpc_conn_released(struct rpc_conn *c);
/* Fills entries of the iovec, without the first skip bytes. Returns how many. */
unsigned rpc_out_iov(const struct rpc_out *o, size_t skip, struct iovec *iov);
/* n more bytes of the queue were sent. */
void rpc_conn_outs_advance(struct rpc_conn *c, size_t n);
/* Queues o; it is sent at the end of the turn. */
void rpc_conn_out(struct rpc_conn *c, struct rpc_out *o);
/* Call it when an answer has made room. */
void rpc_conn_unpause(struct rpc_conn *c);
static inline size_t rpc_out_len(const struct rpc_out *o)
{
	return o->o_x->x_len + o->o_x->x_payload;
}
static inline void rpc_out_mark(struct xdr_out *x)
{
	xdr_patch_u32(x, 0, RPC_LAST | (uint32_t)(x->x_len + x->x_payload - RPC_MARK));
}
/* Sets the options of every connected socket. */
void rpc_socket_tune(int fd);

/* A send has completed. res: bytes, or a negative errno. */
void rpc_conn_sent(struct rpc_conn *c, int res);

/* Sends what is queued, as far as it may leave. */
void rpc_conn_send(struct rpc_conn *c);

/* ---- rpc_gate.c ---- */

/* Look at it after the last look at the state and before bytes of messages leave. True: the store
 * is not held; rpc_conn_send is called when it is again. */
bool rpc_gate_shut(struct rpc_conn *c);
/* Flags of a send by the ring: MSG_WAITALL, by which the kernel goes on with the rest when the
 * socket has room; 0 if the lease of the store has an end: the rest is looked at again. */
int rpc_gate_flags(const struct rpc_conn *c);
/* The connection has ended. */
void rpc_gate_quit(struct rpc_conn *c);
/* At the end of the loop. */
void rpc_gate_drop(struct rpc_loop *rl);
/* The call's time is over. True: it begins again, because the store was not held for a part of
 * it. */
bool rpc_gate_again(struct rpc_req *q);

/* ---- rpc_turn.c ---- */

/* The address by which the peer's contexts are counted: of IPv6 a network of 64 bits. */
void rpc_conn_host(const struct rpc_conn *c, uint8_t addr[16]);
/* Join: when the connection starts. Leave: when it is freed. False: no memory. */
bool rpc_host_join(struct rpc_conn *c);
void rpc_host_leave(struct rpc_conn *c);
/* At the end of the loop: there are no more turns. */
void rpc_hosts_drop(struct rpc_loop *rl);
/* rpc_turn_begins is true when the connection may handle records now. If not, call rpc_turn_wait;
 * its turn comes as rpc_conn_turn. */
bool rpc_turn_begins(struct rpc_conn *c);
void rpc_turn_wait(struct rpc_conn *c);
/* The connection has handled a record. records: how many it handled in this turn. True: the turn is
 * over. */
bool rpc_turn_ends(struct rpc_conn *c, unsigned records);
/* A call is in progress (rpc_host_call) until rpc_host_call_done. Between the two, waits says
 * whether it waits for a client. */
void rpc_host_call(struct rpc_conn *c, size_t bytes);
void rpc_host_call_done(struct rpc_conn *c, size_t bytes);
void rpc_host_call_waits(struct rpc_conn *c, size_t bytes, bool waits);
/* True when the address has too many calls in progress: the connection is read again when it has
 * fewer. */
bool rpc_host_full(struct rpc_conn *c);
/* The connection has ended, and waits for no turn. The caller has a reference. */
void rpc_host_quit(struct rpc_conn *c);

/* ---- rpc_half.c ---- */

/* The connection starts: decides whether its long records are checked first. */
void rpc_half_start(struct rpc_conn *c);
/* The connection's input was handled. over: a record has ended. */
void rpc_half_note(struct rpc_conn *c, bool over);
/* The connection has ended. */
void rpc_half_quit(struct rpc_conn *c);
/* True when the rest of the record may come; r is its beginning. */
bool rpc_half_let(struct rpc_conn *c, const struct rpc_record *r);
/* True when a call of ours with this xid is outstanding. */
bool rpc_req_is_out(const struct rpc_conn *c, uint32_t xid);
/* True when the handle belongs to an established context. */
bool rpc_gss_known(struct rpc_gss *g, const struct rpc_gss_head *gh);

/* ---- rpc_zc.c ---- */

/* o is on no list any more: frees it once the kernel has finished with it. */
void rpc_out_release(struct rpc_out *o);
/* Prepares sqe to send rcn_snd and returns the loop_io for its completions; NULL: send with a
 * copy. */
struct loop_io *rpc_zc_prep(struct rpc_conn *c, struct io_uring_sqe *sqe);

/* ---- rpc_tls.c: for rpc_conn.c and rpc_server.c; all but begin only with rcn_t ---- */

/* The answer to the probe is being sent: the handshake comes next. */
int rpc_tls_begin(struct rpc_conn *c);
/* rpc_tls_probe sends our probe; rpc_tls_probed takes the peer's answer, which ends the probing. */
int rpc_tls_probe(struct rpc_conn *c, uint32_t prog, uint32_t vers);
int rpc_tls_probed(struct rpc_conn *c, const struct rpc_record *r,
		   const struct rpc_tls_proof *proof);
/* The kernel has none of its buffers any more. */
void rpc_tls_free(struct rpc_conn *c);
/* The connection ends: tells the peer, if that can be sent at once. */
void rpc_tls_bye(struct rpc_conn *c);
/* takes: true when more may be received; space: where it goes; got: n bytes are there. */
bool rpc_tls_takes(const struct rpc_conn *c);
int rpc_tls_space(struct rpc_conn *c, void **p, size_t *n);
void rpc_tls_got(struct rpc_conn *c, size_t n);
/* 1: decrypted something into rcn_rx; 0: it needs more input, or has to send first; else the
 * connection cannot go on. */
int rpc_tls_pull(struct rpc_conn *c);
/* sends: true once sending uses TLS. clear_sent: the last reply in the clear was sent, which is
 * when that begins. */
bool rpc_tls_sends(const struct rpc_conn *c);
void rpc_tls_clear_sent(struct rpc_conn *c);
/* Encrypts what is queued and returns what to send next. */
int rpc_tls_out(struct rpc_conn *c, const void **p, size_t *n);
bool rpc_tls_pending(const struct rpc_conn *c);
/* Is a part of a call or an answer encrypted and not sent? Else only TLS itself may be. */
bool rpc_tls_said(const struct rpc_conn *c);
/* n bytes of it were sent. True: input waited for this. */
bool rpc_tls_sent(struct rpc_conn *c, size_t n);
void rpc_tls_log_clear(struct rpc_conn *c);

/* ---- rpc_tls_ctx.c: for rpc_tls.c ---- */

/* proof must outlive the SSL. */
SSL *rpc_tls_connect_new(const struct rpc_tls_proof *proof);
SSL *rpc_tls_accept_new(struct rpc_tls_ctx *x, unsigned *gen);
/* After a reload: true while the peer's certificate, if it showed one, is still good. */
bool rpc_tls_still_trusted(struct rpc_tls_ctx *x, SSL *ssl, unsigned *gen);
bool rpc_tls_may_log(struct rpc_tls_ctx *x);

/* ---- rpc_server.c ---- */

struct rpc_call_int {
	struct rpc_out ci_out;
	struct rpc_call ci_call;
	const uint8_t *ci_rec; /* the record's first byte */
	size_t ci_copied;      /* r_copied */
	bool ci_waits;	       /* rpc_call_waits */
	struct rpc_call_int *ci_next;
	/* RPCSEC_GSS */
	struct gss_ctx *ci_ctx;	 /* a reference, or NULL */
	uint32_t ci_gss_service; /* of the results: 0 unless they are to be wrapped */
	uint32_t ci_gss_seq, ci_verf_len;
	uint8_t ci_verf[RPC_MAX_AUTH]; /* the reply's verifier, where ci_verf_len is not 0 */
};
void rpc_serve(struct rpc_conn *c, struct rpc_record *r);
void rpc_calls_drain(struct rpc_loop *rl);
/* Frees the call; no reply is sent. */
void rpc_drop(struct rpc_call *call);
/* Starts the reply over and puts its accepted head. */
void rpc_reply_head(struct rpc_call *call, uint32_t stat);

/* ---- rpc_gss_msg.c ---- */

enum rpc_gss_verdict {
	RPC_GSS_OK,   /* args are plain, the credential is filled */
	RPC_GSS_AUTH, /* h->rhd_auth has the reason */
	RPC_GSS_ARGS, /* GARBAGE_ARGS */
	RPC_GSS_DROP, /* a replay: no reply (RFC 2203 section 5.3.3.1) */
	RPC_GSS_TAKEN /* a context is being made or was destroyed; the call is answered elsewhere */
};
enum rpc_gss_verdict rpc_gss_call(struct rpc_call *call, struct rpc_head *h);
/* begin puts what stands before the results; wrap wraps them and returns 0 or -EIO. */
void rpc_gss_reply_begin(struct rpc_call *call);
int rpc_gss_reply_wrap(struct rpc_call *call);
void rpc_gss_call_free(struct rpc_call_int *ci);

/* ---- rpc_req.c ---- */

void rpc_req_reply(struct rpc_conn *c, struct rpc_record *r);
void rpc_req_lost(struct rpc_conn *c);
/* Ends q with err, from the loop. q is on no list. */
void rpc_req_fail_later(struct loop *l, struct rpc_req *q, int err);
/* The peer will not answer the call with this xid. */
void rpc_req_refused(struct rpc_conn *c, uint32_t xid);
void rpc_req_finish(struct rpc_req *q, int err, struct xdr_in *res, struct rpc_buf *buf);

/* ---- rpc_quiet.c ---- */

/* A call of ours was put on the connection's list. False: no memory. */
bool rpc_quiet_sent(struct rpc_conn *c);
/* The call has its reply. */
void rpc_quiet_reply(const struct rpc_req *q);
/* The call's time is over. True: it begins again, because the peer has not passed the call over. */
bool rpc_quiet_again(struct rpc_req *q);
/* The connection has ended. */
void rpc_quiet_quit(struct rpc_conn *c);

/* ---- RDMA, for rpc_conn.c and rpc_server.c; only with rcn_rdma ---- */

bool rpc_rdma_next(struct rpc_conn *c, struct rpc_record *r);
/* Sends what is queued, as far as possible. */
void rpc_rdma_send(struct rpc_conn *c);
/* The connection ends: rpc_conn_released is called when all its memory is back. */
void rpc_rdma_end(struct rpc_conn *c);
/* A call gets no reply. */
void rpc_rdma_dropped(struct rpc_conn *c);
struct rpc_rdma_dial;
/* Connects from l. done is called on l, once, later, unless the dial is cancelled (on l). c is open
 * and rs_opened was called. */
int rpc_rdma_dial(struct rpc_rdma_dial **out, struct loop *l, const struct sockaddr_storage *addr,
		  const struct rpc_service *svc,
		  void (*done)(void *arg, int err, struct rpc_conn *c), void *arg);
void rpc_rdma_dial_cancel(struct rpc_rdma_dial *dl);
/* True when the call has a Write list. */
bool rpc_rdma_takes_items(const struct rd_call *rc);
/* The reply is wrapped: no part of it may go by itself (RFC 8267 section 6). */
void rpc_rdma_wrapped(struct rd_call *rc);

/* ---- rpc_client.c ---- */

void rpc_client_lost(struct rpc_client *cl, int err);
/* TLS is up: calls may be sent. */
void rpc_client_secured(struct rpc_client *cl);
const struct rpc_tls_proof *rpc_client_proof(const struct rpc_client *cl);
void rpc_client_forget(struct rpc_client *cl, struct rpc_req *q);

extern struct metric *rpc_m_garbage, *rpc_m_bad_replies, *rpc_m_rejected, *rpc_m_calls,
	*rpc_m_accepted, *rpc_m_rx, *rpc_m_tx;
#endif
