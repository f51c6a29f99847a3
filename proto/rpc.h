/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc.h - ONC RPC version 2 (RFC 5531) over TCP: one duplex connection object that serves calls,
 * makes calls, or both (the NFSv4.1 backchannel, RFC 8881 section 2.10.3.1; the control protocol).
 * rpc_rdma.h does the same over RDMA.
 *
 * A connection belongs to one loop from accept or connect to its end. The caller makes all calls of
 * this header on that loop's thread.
 *
 * The receiver assembles records from any number of fragments and caps them (rs_max_record). It
 * receives a record into one contiguous buffer; the call's arguments are decoded in place. Bulk
 * WRITEs: the connection predicts the length of the header in front of the payload from the last
 * bulk record (rpc_call_bulk_hint) and from the credential's length. It receives just the header
 * first, and starts the record so that the payload lands on a 4096-byte boundary, in the memory
 * pool (base/pool.h) while that has room.
 *
 * Rejections are those of the RFC: RPC_MISMATCH for rpcvers != 2, PROG_UNAVAIL, PROG_MISMATCH with
 * the true range, PROC_UNAVAIL, AUTH_ERROR (AUTH_BADCRED for a malformed AUTH_SYS body,
 * AUTH_REJECTEDCRED or AUTH_TOOWEAK for unsupported flavours). Where rs_tls is set, the AUTH_TLS
 * probe (RFC 9289) turns the connection to TLS, in both directions. Where TLS is required, calls in
 * the clear are answered AUTH_TOOWEAK.
 * RPCSEC_GSS (rpc_gss.h) is handled below the dispatch: c_args has plain arguments, and results are
 * plain until rpc_reply. Bytes that are no record at all (a size over the cap) end the connection
 * and are counted (weft_rpc_garbage_total). Idle connections are not closed. A connection whose
 * sends pile up stops reading (back-pressure): no request is dropped. A connection with many
 * requests takes turns with the others of its loop, and all connections of one address share one
 * turn (rpc_turn.c).
 */
#ifndef PROTO_RPC_H
#define PROTO_RPC_H
#include "base/loop.h"
#include "common/store_lease.h"
#include "proto/xdr.h"
#include <netinet/in.h>
#include <sys/socket.h>

enum { RPC_AUTH_NONE = 0, RPC_AUTH_SYS = 1, RPC_AUTH_GSS = 6, RPC_AUTH_TLS = 7 };
/* RFC 5531 section 9 */
enum rpc_accept_stat {
	RPC_A_SUCCESS,
	RPC_A_PROG_UNAVAIL,
	RPC_A_PROG_MISMATCH,
	RPC_A_PROC_UNAVAIL,
	RPC_A_GARBAGE_ARGS,
	RPC_A_SYSTEM_ERR
};
enum rpc_auth_stat {
	RPC_AUTH_OK,
	RPC_AUTH_BADCRED,
	RPC_AUTH_REJECTEDCRED,
	RPC_AUTH_BADVERF,
	RPC_AUTH_REJECTEDVERF,
	RPC_AUTH_TOOWEAK,
	RPC_AUTH_CREDPROBLEM = 13,
	RPC_AUTH_CTXPROBLEM = 14 /* RFC 2203 section 5.3.3.3 */
};
/* RFC 2203 section 5.3.1 */
enum rpc_gss_service { RPC_GSS_NONE = 1, RPC_GSS_INTEGRITY = 2, RPC_GSS_PRIVACY = 3 };

#define RPC_MAX_GIDS 16
struct rpc_cred {
	uint32_t rc_flavor;
	/* RPC_AUTH_GSS: the protection of this call (RFC 2203 section 5.3.1): 1 none, 2 integrity,
	 * 3 privacy; else 0 */
	uint32_t rc_service;
	uint32_t rc_uid, rc_gid; /* AUTH_NONE: 65534, never root */
	uint32_t rc_ngids;
	uint32_t rc_gids[RPC_MAX_GIDS];
	/* RPC_AUTH_GSS: user@REALM, lives as long as the call; else NULL */
	const char *rc_principal;
};

/* What protects a connection (RFC 9289). MUTUAL: the peer showed a certificate that we trust. */
enum rpc_tls { RPC_TLS_NONE, RPC_TLS_ON, RPC_TLS_MUTUAL };

struct rpc_conn;
struct rpc_buf; /* a received record; reference counted, one thread */

struct rpc_call {
	struct rpc_conn *c_conn; /* may die while the call is parked: rpc_reply then only frees */
	struct loop *c_loop;
	uint32_t c_xid, c_prog, c_vers, c_proc;
	struct rpc_cred c_cred;
	struct xdr_in c_args;	/* points into c_buf */
	struct xdr_out c_reply; /* positioned after the accepted-reply header: put results here */
	struct rpc_buf *c_buf;
	size_t c_size;	 /* of the whole record as received */
	bool c_cut;	 /* only the beginning of the record is here (rs_first) */
	size_t c_expect; /* see rpc_call_expect */
	size_t c_body;	 /* c_reply.x_len at which the results start */
	/* rpc_reply puts at most so many bytes behind the results (RPCSEC_GSS) */
	size_t c_trailer;
	void *c_priv; /* the service's own */
};

struct rpc_program {
	uint32_t pr_prog, pr_vers_lo, pr_vers_hi, pr_nprocs; /* procedures 0 .. nprocs-1 */
	/* Owns the call until it calls rpc_reply() or rpc_reply_error(), now or later, on the same
	 * loop. Also gets procedure 0. */
	void (*pr_dispatch)(struct rpc_call *call, void *arg);
	void *pr_arg;
};

/* AUTO: zero-copy until the kernel reports that it copies anyway. ALWAYS ignores such reports. */
enum rpc_zerocopy { RPC_ZC_NEVER, RPC_ZC_AUTO, RPC_ZC_ALWAYS };

struct rpc_service {
	const struct rpc_program *rs_progs; /* must outlive the connections */
	size_t rs_nprogs;
	size_t rs_max_record; /* bytes; a longer record ends the connection */
	size_t rs_max_reply;
	/* a record that has begun must end within this time, or the connection ends; 0: no limit */
	uint32_t rs_record_ms;
	/* Our calls: a connection ends with -ETIMEDOUT if calls are out and the peer sends nothing,
	 * and takes nothing that waits to be sent, for this time and a twentieth; 0: no limit. The
	 * time limit of a call then ends only a call that the peer has passed over: it has answered
	 * one that was sent later by half that limit or more. */
	uint32_t rs_quiet_ms;
	/* Optional: called once, with rs_arg, with the first 64 KiB of the first longer call of a
	 * connection, except for RPCSEC_GSS, where the context decides. False: the sender has
	 * proved nothing; the rest of the record is not kept, and the dispatch gets the call cut
	 * (c_cut) and refuses it. */
	bool (*rs_first)(struct rpc_conn *conn, uint32_t prog, uint32_t proc, struct xdr_in *args,
			 void *arg);
	/* Limits for all connections of one address to one loop; 0: no limit. The loop does not
	 * read calls above the limit for a while. */
	unsigned rs_host_calls; /* calls in progress */
	uint32_t rs_host_rate;	/* calls a second */
	/* Optional life-cycle calls (both or none). opened: before the first call. closed: no
	 * further use of conn is allowed after it. */
	void (*rs_opened)(struct rpc_conn *conn, void *arg);
	void (*rs_closed)(struct rpc_conn *conn, void *arg);
	void *rs_arg;
	/* Returns the number of the listener's loop that serves a connection to this local address.
	 * Any thread. NULL: round robin. */
	unsigned (*rs_deal)(const struct sockaddr *local, void *arg);
	void *rs_deal_arg;
	/* offers TLS (rpc_tls.h); must outlive the connections; NULL: no TLS */
	struct rpc_tls_ctx *rs_tls;
	/* the program whose AUTH_TLS probe is accepted from peers where TLS is off for clients
	 * (rpc_tls_open_peers); 0: none */
	uint32_t rs_peer_prog;
	/* a program that is served in the clear although TLS is required, because it protects
	 * itself; 0: none */
	uint32_t rs_clear_prog;
	struct rpc_gss *rs_gss;	       /* rpc_gss.h; NULL: RPCSEC_GSS is rejected */
	enum rpc_zerocopy rs_zerocopy; /* for replies with payload, in the clear */
};

/* Sends the reply as it stands in c_reply and frees the call. */
void rpc_reply(struct rpc_call *call);
/* Sends an accepted reply with another status (drops the results so far) and frees the call. */
void rpc_reply_error(struct rpc_call *call, enum rpc_accept_stat stat);
/* Sends a denied reply, AUTH_ERROR, and frees the call. */
void rpc_reply_auth_error(struct rpc_call *call, enum rpc_auth_stat stat);
/* Puts an opaque with its length that is DDP-eligible (RFC 8267) and short: a READLINK's. Copies
 * the data. */
void rpc_put_item(struct rpc_call *call, struct xdr_out *x, const void *data, uint32_t n);
/* Reserves memory for the reply, from now until the reply is sent, and for sends without a copy
 * until the peer has it. A connection that has so much under way stops reading, so that a client
 * that does not read its replies holds no more than its share. The larger of this number and the
 * reply's length counts. */
void rpc_call_expect(struct rpc_call *call, size_t bytes);
/* waits true: the call waits for an action of a client (to return a layout or a delegation). False:
 * it waits no longer. A call that waits does not count against its address's limit of calls in
 * progress (rs_host_calls), because the client's answer may come from that address. An address may
 * have four times as many of these. */
void rpc_call_waits(struct rpc_call *call, bool waits);
/* Keeps the record's memory beyond the call (payload on its way to a disk). Pair with rpc_buf_put
 * on the same loop. */
struct rpc_buf *rpc_buf_get(struct rpc_call *call);
void rpc_buf_put(struct rpc_buf *buf);
/* Says that the payload of this bulk call starts at p (in the record): aligns the next ones. */
void rpc_call_bulk_hint(struct rpc_call *call, const void *p);
/* Bytes of the payload at p that were copied on the way from the socket (copies by TLS are not
 * counted). */
size_t rpc_call_copied(const struct rpc_call *call, const void *p);

/* A listener accepts on its own loop and deals connections to loops[], round robin or as rs_deal
 * says. addr: IPv4 or IPv6 (v6only), bound with IP_FREEBIND. Returns 0 or a negative errno. */
struct rpc_listener;
int rpc_listen(struct rpc_listener **out, struct loop *l, const struct sockaddr *addr,
	       socklen_t len, const struct rpc_service *svc, struct loop *const *loops,
	       unsigned nloops);
/* rpc_listen in two steps: rpc_bind binds the address, and connections are refused until
 * rpc_listener_open, which is called on the listener's loop or before that loop runs. */
int rpc_bind(struct rpc_listener **out, struct loop *l, const struct sockaddr *addr, socklen_t len,
	     const struct rpc_service *svc, struct loop *const *loops, unsigned nloops);
int rpc_listener_open(struct rpc_listener *ls); /* the second call does nothing */
/* rpc_listen on a socket that listens already (base/socket_activation.h); the listener then owns
 * it. */
int rpc_listen_fd(struct rpc_listener **out, struct loop *l, int fd, const struct rpc_service *svc,
		  struct loop *const *loops, unsigned nloops);
/* While the listener's loop does not run yet, on the thread that will run it: takes what waits in
 * the backlog and keeps it, except where the peer has gone: a backlog that is full of those takes
 * no connection. What is more than 1,024 waits in the backlog. Returns how many are kept. */
unsigned rpc_listener_hold(struct rpc_listener *ls);
/* Just before that loop runs: serves what was kept. */
void rpc_listener_unhold(struct rpc_listener *ls);
/* The bound port in host order, for a listener on port 0. */
uint16_t rpc_listener_port(const struct rpc_listener *ls);
/* On the listener's loop. Stops accepting; accepted connections stay open. */
void rpc_listener_close(struct rpc_listener *ls);

/* Connections */
uint64_t rpc_conn_id(const struct rpc_conn *c); /* unique in the process, never reused */
const struct sockaddr_storage *rpc_conn_peer(const struct rpc_conn *c);
/* Our address of a TCP connection, also while rs_closed runs: 0, or a negative errno (RDMA). */
int rpc_conn_local(const struct rpc_conn *c, struct sockaddr_storage *out);
enum rpc_tls rpc_conn_tls(const struct rpc_conn *c);
struct loop *rpc_conn_loop(const struct rpc_conn *c);
/* True when the connection has ended or is about to: nothing is sent on it any more. On its
 * loop. */
bool rpc_conn_dead(const struct rpc_conn *c);
void rpc_conn_set_priv(struct rpc_conn *c, void *priv);
void *rpc_conn_priv(const struct rpc_conn *c);
/* From now on the connection shares no turn, no calls in progress and no rate with its address; it
 * has only limits of its own, and its records are received whole. For a peer that has proved to be
 * one of the cluster's. */
void rpc_conn_apart(struct rpc_conn *c);
/* The peer has proved that it may send long records (rs_first). */
void rpc_conn_proven(struct rpc_conn *c);
/* Ends the connection. Outstanding calls of ours complete with -ECONNRESET, from the loop and not
 * inside this call. */
void rpc_conn_close(struct rpc_conn *c);

/* Before l runs, or on its thread: no connection of l sends a reply or a call of ours while sl does
 * not live. They wait, in their order, and go out when it lives again. Their bytes count like those
 * of replies that a peer does not read, so that the connection stops reading. The time limits of
 * calls of ours begin again when it lives. Handshakes of TLS go on: they carry nothing of the
 * store. sl must outlive the loop. */
void rpc_use_lease(struct loop *l, struct store_lease *sl);

/* One call that we make. The caller owns the memory; it stays until q_done. Usage: rpc_req_init,
 * put arguments into q_args, rpc_req_send. */
struct rpc_req {
	struct xdr_out q_args; /* positioned after the call header */
	/* err 0: an accepted SUCCESS reply, res has its results (valid during the call only). Else
	 * a negative errno: -ETIMEDOUT, -ECONNRESET, -ECONNREFUSED.., -EPROTO (rejected, error
	 * accept_stat or malformed). q_args is freed after it returns. */
	void (*q_done)(struct rpc_req *q, int err, struct xdr_in *res);
	/* during q_done: the reply record; rpc_req_keep() to hold its memory */
	struct rpc_buf *q_buf;
	struct loop_timer q_timer;
	uint32_t q_xid;
	struct rpc_conn *q_conn;
	struct rpc_req *q_next, *q_prev;
	struct loop *q_loop;
	struct rpc_client *q_client;	 /* the client in which it waits for a connection */
	uint32_t q_timeout_ms, q_opened; /* store_lease_opened when its time began */
	uint32_t q_limit_ms; /* rs_quiet_ms: q_timeout_ms, with what it waited for a connection */
	uint64_t q_sent_ns;  /* loop_now_ns when it went to its connection */
	int q_err;	     /* error with which the timer ends it */
	bool q_given_up;
	/* during q_done: payload went straight from or to memory of rpc_rdma_memory_add */
	bool q_direct;
	/* during q_done: so many bytes of the results are where xdr_put_place said, and not in
	 * res */
	uint32_t q_placed;
	/* RDMA: the most bytes of the reply, up to 1 MiB; 0: about 4000. Set after rpc_req_init */
	size_t q_reply_max;
};
/* cred NULL: AUTH_NONE. */
void rpc_req_init(struct rpc_req *q, uint32_t prog, uint32_t vers, uint32_t proc,
		  const struct rpc_cred *cred, size_t limit,
		  void (*done)(struct rpc_req *, int, struct xdr_in *));
/* timeout_ms 0: none. q_done is never called inside this call. */
void rpc_req_send(struct rpc_conn *c, struct rpc_req *q, uint32_t timeout_ms);
/* q is under way: its time is over now. q_done is called from the loop. The connection stays. */
void rpc_req_give_up(struct rpc_req *q);
/* During q_done: a reference to the reply record. */
struct rpc_buf *rpc_req_keep(struct rpc_req *q);

/* A client has one address and one connection. It connects on the first call and connects again
 * after a loss (back-off 100 ms .. 1 s). Calls made while it connects wait (their timeout runs).
 * Calls lost with the connection end with -ECONNRESET: the caller decides whether to repeat the
 * call. svc (may be NULL) serves calls from the peer on the same connection. */
struct rpc_client;
struct rpc_client_ops {
	/* optional: connected */
	void (*cl_up)(struct rpc_client *cl, struct rpc_conn *conn, void *arg);
	/* optional: lost or refused */
	void (*cl_down)(struct rpc_client *cl, int err, void *arg);
};
int rpc_client_create(struct rpc_client **out, struct loop *l, const struct sockaddr *addr,
		      socklen_t len, const struct rpc_service *svc,
		      const struct rpc_client_ops *ops, void *arg);
/* Before the first call: each connection turns to TLS by a probe with this program, and both sides
 * prove psk (RPC_TLS_PSK_LEN bytes, copied) to each other (rpc_tls.h). If the peer cannot, the
 * connection fails: nothing goes in the clear. */
void rpc_client_use_tls(struct rpc_client *cl, uint32_t prog, uint32_t vers, const uint8_t *psk);
/* After rpc_client_use_tls: the server derives psk for this peer alone (ds_key_derive_peer), from
 * this uuid (16 bytes, copied). */
void rpc_client_tls_as(struct rpc_client *cl, const uint8_t *self);
/* Before the first call: connects over RDMA (rpc_rdma.h, started with this client's loop among its
 * own). */
void rpc_client_use_rdma(struct rpc_client *cl);
/* Connects now and stays connected. */
void rpc_client_start(struct rpc_client *cl);
/* The connection does what it was made for: when it is lost, the first pause is short again,
 * however short its life was. */
void rpc_client_proven(struct rpc_client *cl);
/* On the client's loop. As rpc_req_send; without a connection it connects, and the call waits. */
void rpc_client_send(struct rpc_client *cl, struct rpc_req *q, uint32_t timeout_ms);
/* On the client's loop. Ends its connection; all calls end with -ECONNRESET, from the loop. */
void rpc_client_destroy(struct rpc_client *cl);

/* Universal addresses (RFC 5665): "1.2.3.4.8.1" with netid tcp, "::1.8.1" with tcp6. The parser
 * also takes rdma and rdma6 (RFC 8166 section 5). */
int rpc_uaddr(const struct sockaddr *addr, char *netid, size_t nlen, char *uaddr, size_t ulen);
int rpc_uaddr_parse(const char *netid, const char *uaddr, struct sockaddr_storage *out,
		    socklen_t *len);
/* Copies an IPv4 or IPv6 address that is shorter or less aligned than a sockaddr_storage, as
 * libraries return it. */
void rpc_addr_copy(struct sockaddr_storage *ss, const struct sockaddr *sa);
/* Writes an address in the form that rpc_addr_parse takes. */
void rpc_addr_text(const struct sockaddr *addr, char *text, size_t len);
/* Parses "1.2.3.4:2049", "[::1]:2049", or "1.2.3.4" with a default port. */
int rpc_addr_parse(const char *text, uint16_t defport, struct sockaddr_storage *out,
		   socklen_t *len);
#endif
