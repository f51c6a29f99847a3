/*
 * rpc.h - ONC RPC version 2 (RFC 5531) over TCP: one duplex connection object that serves calls,
 * makes calls, or both (the NFSv4.1 backchannel, RFC 8881 section 2.10.3.1; the control protocol).
 * The same over RDMA: rpc_rdma.h.
 *
 * A connection belongs to one loop from accept/connect to its end; everything here is called on
 * that loop's thread.
 *
 * Records are reassembled from any number of fragments and capped (rs_max_record). A record is
 * received into one contiguous buffer, the call's args walk it in place. Bulk WRITEs: the
 * connection predicts the length of the header in front of the payload from the last bulk record
 * (rpc_call_bulk_hint) and from the credential's length, receives just the header first, and starts
 * the record so that the payload lands on a 4096-byte boundary, in the memory pool (base/pool.h)
 * while that has room.
 *
 * Rejections are the RFC's: RPC_MISMATCH for rpcvers != 2, PROG_UNAVAIL, PROG_MISMATCH with the
 * true range, PROC_UNAVAIL, AUTH_ERROR (AUTH_BADCRED for a malformed AUTH_SYS body,
 * AUTH_REJECTEDCRED/AUTH_TOOWEAK for unsupported flavours). Where rs_tls is set, the AUTH_TLS probe
 * (RFC 9289) turns the connection to TLS, in both directions; where that is required, calls in the
 * clear are answered AUTH_TOOWEAK.
 * RPCSEC_GSS (rpc_gss.h) is served below the dispatch: c_args walks plain arguments, results are
 * plain until rpc_reply. Garbage that is not a record at all (size over the cap) ends the
 * connection, and is counted (weft_rpc_garbage_total). Connections are not closed for idleness. A
 * connection whose sends pile up stops reading (back-pressure): no request is dropped. A connection
 * that has much to say takes turns with the others of its loop, and all those of one address have
 * one turn together (rpc_turn.c).
 */
#ifndef PROTO_RPC_H
#define PROTO_RPC_H
#include "base/loop.h"
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
	const char *rc_principal; /* RPC_AUTH_GSS: user@REALM, as long as the call; else NULL */
};

/* What protects a connection: RFC 9289. MUTUAL: the peer showed a certificate that we trust. */
enum rpc_tls { RPC_TLS_NONE, RPC_TLS_ON, RPC_TLS_MUTUAL };

struct rpc_conn;
struct rpc_buf; /* a received record, reference counted, single-threaded */

struct rpc_call {
	struct rpc_conn *c_conn; /* may die while the call is parked: rpc_reply then only frees */
	struct loop *c_loop;
	uint32_t c_xid, c_prog, c_vers, c_proc;
	struct rpc_cred c_cred;
	struct xdr_in c_args;	/* in c_buf */
	struct xdr_out c_reply; /* positioned after the accepted-reply header: put results here */
	struct rpc_buf *c_buf;
	size_t c_size;	 /* of the whole record as received */
	bool c_cut;	 /* just the beginning of it is here (rs_first) */
	size_t c_expect; /* see rpc_call_expect */
	size_t c_body;	 /* c_reply.x_len at which the results start */
	/* bytes at most that rpc_reply puts behind the results (RPCSEC_GSS) */
	size_t c_trailer;
	void *c_priv; /* the service's own */
};

struct rpc_program {
	uint32_t pr_prog, pr_vers_lo, pr_vers_hi, pr_nprocs; /* procedures 0 .. nprocs-1 */
	/* Owns the call until rpc_reply() or rpc_reply_error(), now or later (on the same loop).
	 * Procedure 0 comes here as well. */
	void (*pr_dispatch)(struct rpc_call *call, void *arg);
	void *pr_arg;
};

/* AUTO: while the kernel does not say that it copies after all. ALWAYS does not ask. */
enum rpc_zerocopy { RPC_ZC_NEVER, RPC_ZC_AUTO, RPC_ZC_ALWAYS };

struct rpc_service {
	const struct rpc_program *rs_progs; /* must outlive the connections */
	size_t rs_nprogs;
	size_t rs_max_record; /* bytes; a longer record ends the connection */
	size_t rs_max_reply;
	/* a record that has begun ends in time, or its connection does; 0: no limit */
	uint32_t rs_record_ms;
	/* Optional: asked once with the first 64 KiB of the first longer call of a connection, but
	 * for RPCSEC_GSS, where the context decides. False: it is from somebody who has proved
	 * nothing; the rest is not kept, and the call comes cut (c_cut), to be refused. With
	 * rs_arg. */
	bool (*rs_first)(struct rpc_conn *conn, uint32_t prog, uint32_t proc, struct xdr_in *args,
			 void *arg);
	/* Of all connections of one address to one loop; 0: no limit. What is more is not read for
	 * a while. */
	unsigned rs_host_calls; /* calls in hand */
	uint32_t rs_host_rate;	/* calls a second */
	/* Optional life-cycle calls (both or none). opened: before the first call. closed: no
	 * further use of conn is allowed after it. */
	void (*rs_opened)(struct rpc_conn *conn, void *arg);
	void (*rs_closed)(struct rpc_conn *conn, void *arg);
	void *rs_arg;
	/* Which of a listener's loops serves a connection to this address of ours: its number. Any
	 * thread. NULL: each in turn. */
	unsigned (*rs_deal)(const struct sockaddr *local, void *arg);
	void *rs_deal_arg;
	/* offers TLS (rpc_tls.h), must outlive the connections; NULL: does not */
	struct rpc_tls_ctx *rs_tls;
	uint32_t rs_peer_prog; /* the program whose probe (AUTH_TLS) is taken from peers where TLS
				  is off to clients (rpc_tls_open_peers); 0: none */
	/* the program that is served in the clear though TLS is required, because it protects
	 * itself; 0: none */
	uint32_t rs_clear_prog;
	struct rpc_gss *rs_gss;	       /* rpc_gss.h; NULL: RPCSEC_GSS is rejected */
	enum rpc_zerocopy rs_zerocopy; /* of replies with payload, in the clear */
};

/* Sends the reply as it stands in c_reply and frees the call. */
void rpc_reply(struct rpc_call *call);
/* An accepted reply with another status (the results so far are cut); frees the call. */
void rpc_reply_error(struct rpc_call *call, enum rpc_accept_stat stat);
/* A denied reply, AUTH_ERROR. */
void rpc_reply_auth_error(struct rpc_call *call, enum rpc_auth_stat stat);
/* Puts an opaque with its length that is DDP-eligible (RFC 8267) and short: a READLINK's. It is
 * copied. */
void rpc_put_item(struct rpc_call *call, struct xdr_out *x, const void *data, uint32_t n);
/* The reply will take this much memory, from now on until it is sent, and without a copy until the
 * peer has it: a connection that has so much under way stops reading, so that a client that does
 * not read its replies holds no more than its share. What counts is this or the reply's length,
 * whichever is more. */
void rpc_call_expect(struct rpc_call *call, size_t bytes);
/* The call waits for what a client does (it gives back a layout, a delegation), and does not any
 * more. Meanwhile it is not among those for whose number its address is read no more
 * (rs_host_calls): what it waits for may come from there. An address has four times as many of
 * these at most. */
void rpc_call_waits(struct rpc_call *call, bool waits);
/* Keeps the record's memory beyond the call (payload under way to a disk); pair with rpc_buf_put on
 * the same loop. */
struct rpc_buf *rpc_buf_get(struct rpc_call *call);
void rpc_buf_put(struct rpc_buf *buf);
/* Tells that the payload of this bulk call starts at p (in the record): aligns the next ones. */
void rpc_call_bulk_hint(struct rpc_call *call, const void *p);
/* Bytes of the payload at p that were copied on the way from the socket (what TLS does is not
 * counted). */
size_t rpc_call_copied(const struct rpc_call *call, const void *p);

/* Listener: accepts on its own loop and deals connections to loops[], round robin or as rs_deal
 * says. addr: IPv4 or IPv6 (v6only), bound with IP_FREEBIND. */
struct rpc_listener;
int rpc_listen(struct rpc_listener **out, struct loop *l, const struct sockaddr *addr,
	       socklen_t len, const struct rpc_service *svc, struct loop *const *loops,
	       unsigned nloops);
/* The same in two steps: the address is taken, and who connects is refused until the listener is
 * opened, on its loop or before that runs. */
int rpc_bind(struct rpc_listener **out, struct loop *l, const struct sockaddr *addr, socklen_t len,
	     const struct rpc_service *svc, struct loop *const *loops, unsigned nloops);
int rpc_listener_open(struct rpc_listener *ls); /* a second time: nothing */
/* The same on a socket that listens already (base/held.h), and is the listener's then. */
int rpc_listen_fd(struct rpc_listener **out, struct loop *l, int fd, const struct rpc_service *svc,
		  struct loop *const *loops, unsigned nloops);
/* The port bound (host order), for port 0. */
uint16_t rpc_listener_port(const struct rpc_listener *ls);
void rpc_listener_close(struct rpc_listener *ls);

/* Connections */
uint64_t rpc_conn_id(const struct rpc_conn *c); /* unique in the process, never reused */
const struct sockaddr_storage *rpc_conn_peer(const struct rpc_conn *c);
enum rpc_tls rpc_conn_tls(const struct rpc_conn *c);
struct loop *rpc_conn_loop(const struct rpc_conn *c);
/* It has ended, or is about to: nothing is sent on it any more. On its loop. */
bool rpc_conn_dead(const struct rpc_conn *c);
void rpc_conn_set_priv(struct rpc_conn *c, void *priv);
void *rpc_conn_priv(const struct rpc_conn *c);
/* It does not share turns, calls in hand and rate with its address any more, and has no limit but
 * its own; its records are taken whole. For a peer that has proved to be one of ours. */
void rpc_conn_apart(struct rpc_conn *c);
/* The peer has proved that it may send long records (rs_first). */
void rpc_conn_proven(struct rpc_conn *c);
/* Ends it; outstanding calls of ours complete with -ECONNRESET (from the loop, not from inside this
 * call). */
void rpc_conn_close(struct rpc_conn *c);

/* One call of ours. Memory is the caller's until q_done. Usage: rpc_req_init, put arguments into
 * q_args, rpc_req_send. */
struct rpc_req {
	struct xdr_out q_args; /* positioned after the call header */
	/* err 0: an accepted SUCCESS reply, res walks its results (valid during the call only).
	 * Else a negative errno: -ETIMEDOUT, -ECONNRESET, -ECONNREFUSED.., -EPROTO (rejected, error
	 * accept_stat or malformed). q_args is freed after it returns. */
	void (*q_done)(struct rpc_req *q, int err, struct xdr_in *res);
	/* during q_done: the reply record; rpc_req_keep() to hold its memory */
	struct rpc_buf *q_buf;
	struct loop_timer q_timer;
	uint32_t q_xid;
	struct rpc_conn *q_conn;
	struct rpc_req *q_next, *q_prev;
	struct loop *q_loop;
	struct rpc_client *q_client; /* it waits there for a connection */
	int q_err;		     /* what the timer ends it with */
	/* during q_done: payload went straight from or to memory of rpc_rdma_memory_add */
	bool q_direct;
	/* during q_done: so many bytes of the results are where xdr_put_place said, and not in
	 * res */
	uint32_t q_placed;
	/* RDMA: the reply may have so many bytes, at most 1 MiB; 0: some 4000. Set after
	 * rpc_req_init */
	size_t q_reply_max;
};
/* cred may be NULL for AUTH_NONE. */
void rpc_req_init(struct rpc_req *q, uint32_t prog, uint32_t vers, uint32_t proc,
		  const struct rpc_cred *cred, size_t limit,
		  void (*done)(struct rpc_req *, int, struct xdr_in *));
/* timeout 0: none. q_done is never called from inside. */
void rpc_req_send(struct rpc_conn *c, struct rpc_req *q, uint32_t timeout_ms);
/* During q_done: a reference to the reply record. */
struct rpc_buf *rpc_req_keep(struct rpc_req *q);

/* A client: one address, one connection that is made on the first call and made again after it is
 * lost (back-off 100 ms .. 1 s). Calls made while connecting wait (their timeout runs). Calls lost
 * with the connection end with -ECONNRESET: the caller decides whether the call may be repeated.
 * svc (may be NULL) serves calls from the peer on the same connection. */
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
/* Before the first call: each connection turns to TLS, probing with this program, and both sides
 * prove psk (RPC_TLS_PSK_LEN bytes, copied) to each other (rpc_tls.h). A peer that cannot is no
 * peer: nothing goes in the clear. */
void rpc_client_use_tls(struct rpc_client *cl, uint32_t prog, uint32_t vers, const uint8_t *psk);
/* Behind that: psk is one that the server derives for this peer alone (ds_key_derive_peer), whose
 * uuid this is (16 bytes, copied). */
void rpc_client_tls_as(struct rpc_client *cl, const uint8_t *self);
/* Before the first call: connects over RDMA (rpc_rdma.h, started with this client's loop among its
 * own). */
void rpc_client_use_rdma(struct rpc_client *cl);
/* Connects now and stays connected. */
void rpc_client_start(struct rpc_client *cl);
/* The connection is good for what it is made for: when it is lost, the first pause is short again,
 * however short its life was. */
void rpc_client_proven(struct rpc_client *cl);
void rpc_client_send(struct rpc_client *cl, struct rpc_req *q, uint32_t timeout_ms);
void rpc_client_destroy(struct rpc_client *cl);

/* Universal addresses (RFC 5665): "1.2.3.4.8.1" with netid tcp, "::1.8.1" with tcp6. Read with rdma
 * and rdma6 as well (RFC 8166 section 5). */
int rpc_uaddr(const struct sockaddr *addr, char *netid, size_t nlen, char *uaddr, size_t ulen);
int rpc_uaddr_parse(const char *netid, const char *uaddr, struct sockaddr_storage *out,
		    socklen_t *len);
/* Of an IPv4 or IPv6 address that is neither as long nor as aligned as a sockaddr_storage: what
 * libraries give. */
void rpc_addr_copy(struct sockaddr_storage *ss, const struct sockaddr *sa);
/* As rpc_addr_parse takes it. */
void rpc_addr_text(const struct sockaddr *addr, char *text, size_t len);
/* "1.2.3.4:2049", "[::1]:2049", "1.2.3.4" with a default port. */
int rpc_addr_parse(const char *text, uint16_t defport, struct sockaddr_storage *out,
		   socklen_t *len);
#endif
