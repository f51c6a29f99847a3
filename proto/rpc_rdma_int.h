/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_rdma_int.h - what the RDMA files of the RPC layer share; not for services. docs/rdma.md has
 * the whole.
 *
 *   rpc_rdma_hdr.c  headers, on plain bytes
 *   rpc_rdma_cm.c   the control thread: devices, listeners, connections' beginning and end
 *   rpc_rdma_dial.c connecting
 *   rpc_rdma_dev.c  a device, and its part on each loop: receive queues, completion channel,
 *                   polling
 *   rpc_rdma_mem.c  registered memory
 *   rpc_rdma_recv.c what arrives: receives, RDMA Reads, records
 *   rpc_rdma_bulk.c calls of ours that do not fit inline
 *   rpc_rdma_send.c what leaves: the send queue, replies, calls of ours
 *
 * There are two kinds of threads. The control thread makes and destroys the objects of libibverbs
 * and librdmacm (devices, regions, queues, ids): such calls pin gigabytes, take milliseconds, or
 * wait for a peer. A loop only posts and polls. The life of a connection:
 *
 *   control: connect request; makes the completion and send queues      -> loop: rd_prepare_msg
 *   loop:    starts the rpc_conn; posts receives, when there is memory
 *            (CM_SLAB)                                                  -> control: CM_ACCEPT
 *   either:  fails (rpc_conn_fail)                                      -> control: CM_DISCONNECT
 *   control: the queue pair is in its error state                       -> loop: rd_drain_msg
 *   loop:    all that was posted has come back, and the device has
 *            reported that the queue pair uses no more of the shared
 *            receives; or neither ever will                             -> control: CM_DESTROY
 *   control: queue pair, completion queue and id are gone               -> loop: rd_gone_msg, frees
 *
 * Completion queues cannot overflow: that of a shared receive queue is as deep as the queue. A
 * connection's sends complete in a queue of its own, as deep as its send queue.
 */
#ifndef PROTO_RPC_RDMA_INT_H
#define PROTO_RPC_RDMA_INT_H
#include "base/pool.h"
#include "proto/rpc_int.h"
#include "proto/rpc_rdma.h"
#include "proto/rpc_rdma_hdr.h"
#include <pthread.h>
#include <rdma/rdma_cma.h>

/* Bytes of a Receive, and of the inline part of what we send. More than clients ask for, so that
 * long chunk lists fit. */
#define RD_INLINE   8192u
#define RD_SQ_DEPTH 256u
#define RD_MAX_SGE  8u
/* the most calls that a listener's side has in flight: it has receives for their replies */
#define RD_BACK_CALLS 16u
#define RD_SLAB	      64u /* buffers made at once, at least */
#define RD_SLAB_MOST  2048u
/* Receives beyond what is granted: a peer that sends too much is found before other peers lack
 * receives. */
#define RD_SRQ_SPARE  64u
#define RD_QP_BUCKETS 256u
#define RD_WCS	      32
#define RD_REGIONS    RPC_RDMA_REGIONS

struct rd_dev;
struct rd_port;
struct rd_conn;

/* What was received, in order, for rpc_rdma_next to hand out. */
struct rd_in {
	struct rd_in *in_next;
	void *in_mem; /* freed when it is handed out; NULL: it lies in the buffer */
	struct rpc_record in_rec;
	size_t in_fetched; /* bytes that count as fetched until then */
};

/* A registered buffer of RD_INLINE bytes: for a Receive, whose memory becomes the record; or for
 * the head of a message to send. */
struct rd_buf {
	struct rpc_buf bf_rpc; /* first: rpc_buf_put leads back here */
	struct rd_port *bf_port;
	struct rd_buf *bf_next, *bf_prev;
	uint32_t bf_lkey;
	struct rd_in bf_in;
	uint32_t bf_len; /* received */
};

struct rd_slab {
	struct rd_slab *sl_next;
	uint8_t *sl_mem;
	size_t sl_len;
	struct ibv_mr *sl_mr;
	unsigned sl_n;
	struct rd_buf sl_bufs[];
};

enum rd_cmd_kind {
	CM_LISTEN,
	CM_DIAL,
	CM_ACCEPT,
	CM_DISCONNECT,
	CM_DESTROY,
	CM_SLAB,
	CM_BULK,
	CM_REGION,
	CM_PORT_STOPPED
};
struct rd_cmd {
	enum rd_cmd_kind cm_kind;
	void *cm_arg;
	struct rd_cmd *cm_next;
};

/* A device on one loop. Belongs to the loop, except what the control thread makes before and
 * destroys after. */
struct rd_port {
	struct rd_dev *pt_dev;
	struct loop *pt_loop;
	struct ibv_comp_channel *pt_chan;
	int pt_vector;		/* by which its completions interrupt */
	struct ibv_srq *pt_srq; /* NULL: each connection has receives of its own */
	struct ibv_cq *pt_cq;	/* of pt_srq */
	bool pt_event, pt_spin; /* pt_cq may have something; polling it pays */
	uint64_t pt_last_ns;
	/* receives that may be granted, and that are, with pt_srq or without */
	unsigned pt_recv_max, pt_recv_want;
	unsigned pt_srq_posted;
	struct rd_conn *pt_qps[RD_QP_BUCKETS];
	struct rd_slab *pt_slabs; /* the control thread's, until it has destroyed the port */
	struct rd_cmd pt_slab_cmd, pt_bulk_cmd;
	struct loop_msg pt_slab_msg, pt_bulk_msg;
	bool pt_slab_asked, pt_bulk_asked;
	unsigned pt_slab_n;	     /* buffers that are asked for */
	struct rd_slab *pt_slab_new; /* the result; NULL: nothing */
	struct rd_sink *pt_bulk_new;
	uint64_t pt_refused_ns; /* the last time when there was no result */
	bool pt_refused_said;	/* the control thread's */
	struct rd_buf *pt_free;
	unsigned pt_out;	     /* buffers not on pt_free */
	unsigned pt_nfree, pt_bufs;  /* buffers on pt_free, and in all */
	struct rd_conn *pt_arriving; /* connections that wait for their receives */
	unsigned pt_recv_late;	     /* receives that they wait for */
	size_t pt_fetched;	     /* bytes of calls being fetched, of all connections */
	struct rd_conn *pt_active;   /* connections that may have completions */
	struct rd_conn *pt_stalled;  /* connections that wait for memory */
	struct loop_timer pt_timer;  /* makes them try again */
	struct pool_wait pt_wait;    /* in the pool's queue, for the first of them */
	bool pt_waiting;
	size_t pt_wait_len, pt_gift_len;
	void *pt_gift;		 /* the block that came */
	struct rd_sink *pt_sink; /* iWARP: where RDMA Reads go */
	/* memory that peers read and write for long calls of ours; NULL: not made yet */
	struct rd_sink *pt_bulk;
	struct rd_port *pt_next; /* of the loop */
	struct loop_io pt_io, pt_cancel_io;
	unsigned pt_ios;
	bool pt_stopping;
	struct loop_msg pt_start_msg, pt_stop_msg;
};

struct rd_dev {
	struct rd_dev *dv_next;
	struct ibv_context *dv_ctx;
	char dv_name[64];
	struct ibv_pd *dv_pd;
	struct ibv_device_attr dv_attr;
	bool dv_iwarp, dv_inv, dv_dead;
	bool dv_relaxed;       /* the pool is registered with relaxed ordering */
	bool dv_says_last;     /* reports when a queue pair uses no more shared receives */
	struct ibv_mr **dv_mr; /* of the pool's pieces */
	/* of the program's own memory (rpc_rdma_region.c) */
	struct ibv_mr *_Atomic dv_region[RD_REGIONS];
	unsigned dv_npieces;
	struct rd_port *dv_port[64];
	struct loop **dv_loops;
	unsigned dv_nports, dv_stopped;
	bool dv_stopping;
	struct rd_conn *dv_list;
};

/* One message to send, or the arguments of one call to fetch: work requests and their resources. */
struct rd_op {
	struct rd_op *op_next;
	struct rpc_out *op_out; /* released when all is done; NULL: none */
	struct rd_buf *op_head;
	struct rpc_buf *op_mem;	 /* copies that are being sent, linked by b_next */
	struct rd_in op_in;	 /* the record being fetched */
	struct rpc_buf *op_sink; /* iWARP: the target, until all is there */
	uint64_t op_last;	 /* the number of the last work request posted */
	unsigned op_nwr, op_posted;
	unsigned op_batch; /* RDMA Reads in flight */
	bool op_answer;	   /* a reply to a call of the peer */
	uint32_t op_xid;
	struct ibv_send_wr *op_wr;
	struct ibv_sge *op_sge;
	/* the arrays follow */
};

struct rd_conn {
	/* The control thread's, and constant for the loop */
	struct rdma_cm_id *r_id;
	struct rd_dev *r_dev;
	struct rd_port *r_port;
	struct ibv_qp *r_qp;
	struct ibv_cq *r_cq; /* of the send queue, and of receives of its own */
	uint32_t r_qpn;
	struct rd_cmd r_accept, r_disconnect, r_destroy;
	struct rd_conn *r_dev_next, *r_dev_prev;
	struct rpc_rdma_dial *r_dial; /* we connect, and do not know yet that it worked */
	bool r_client;
	uint8_t r_ird, r_ord;
	bool r_prepared; /* the loop knows it */
	bool r_asked, r_disconnected;
	struct rd_host *r_host; /* the host of the connection; NULL: we connect */
	_Atomic bool r_last;	/* the device uses no more of the shared receives for it */
	bool r_last_told;
	_Atomic bool r_established; /* the peer reported that it is connected */
	uint32_t r_depth;	    /* of the send queue */
	uint32_t r_recvs;	    /* capacity of its own receive queue */
	uint32_t r_send_max;	    /* bytes of a Send */
	uint32_t r_max_sge;
	bool r_inv;
	struct rpc_service r_svc;
	struct sockaddr_storage r_peer;
	struct loop_msg r_prepare_msg, r_up_msg, r_fail_msg, r_drain_msg, r_last_msg, r_gone_msg;
	_Atomic int r_fail; /* the error for r_fail_msg, which is posted once */

	/* The loop's */
	struct rpc_conn *r_c;
	struct rd_conn *r_active_next, *r_stalled_next, *r_qp_next, *r_arriving_next;
	bool r_up;    /* sends are allowed */
	bool r_heard; /* something has arrived */
	bool r_quiet; /* nothing has arrived since the last check */
	bool r_stuck; /* nothing that was in flight at the last check is done */
	/* no call of ours was answered since the last check, though others wait for that */
	bool r_mute;
	bool r_active, r_stalled, r_arriving, r_ending, r_drained, r_destroying;
	uint64_t r_last_ns; /* the last completion */
	bool r_spin;
	unsigned r_credits;  /* granted */
	unsigned r_reserved; /* receives behind these credits */
	unsigned r_posted;   /* without a shared queue: in r_own */
	struct rd_buf *r_own;
	unsigned r_calls;	     /* of the peer, whose answers are not yet posted */
	unsigned r_nonsense;	     /* messages discarded since the last reply */
	unsigned r_ops;		     /* in r_sent */
	unsigned r_own_max;	     /* the most calls of ours that have receives */
	unsigned r_back, r_back_max; /* calls of ours in flight, and how many the peer takes */
	struct rpc_out *r_backlog, **r_backlog_end;
	struct rd_bulk *r_bulks; /* calls of ours that do not fit inline */
	/* Sends and RDMA Writes: posted, known to be done, and the last one that will be
	 * reported */
	uint64_t r_seq, r_done, r_signaled;
	struct rd_op *r_txq, **r_txq_end;     /* to be posted, in order */
	struct rd_op *r_sent, **r_sent_end;   /* posted */
	struct rd_op *r_readq, **r_readq_end; /* RDMA Reads, until all are done */
	unsigned r_reads;		      /* in flight */
	size_t r_fetched;		      /* bytes of calls in r_readq, and in r_ready */
	/* received; there was no memory for what they announce */
	struct rd_buf *r_wait, **r_wait_end;
	struct rd_in *r_ready, **r_ready_end;
	struct loop_timer r_drain_timer;
};

/* An attempt to connect. Belongs to the loop, except the first fields, which the control thread
 * uses. */
struct rpc_rdma_dial {
	struct rd_cmd dl_cmd;
	struct loop_msg dl_msg; /* the attempt failed before there was an rpc_conn */
	struct rpc_rdma_dial *dl_next;
	_Atomic bool dl_canceled;
	struct sockaddr_storage dl_addr;
	struct rpc_service dl_svc;
	struct rd_conn *dl_conn;
	int dl_err;
	struct loop *dl_loop;
	void (*dl_done)(void *arg, int err, struct rpc_conn *c);
	void *dl_arg;
};

extern struct rpc_rdma_opts rd_opts;
extern struct metric *rd_m_wrs, *rd_m_signaled, *rd_m_doorbells, *rd_m_receives,
	*rd_m_receive_doorbells, *rd_m_read_bytes, *rd_m_write_bytes, *rd_m_chunk_errors,
	*rd_m_errors, *rd_m_discarded;

/* ---- rpc_rdma_cm.c ---- */
void rd_cmd(struct rd_cmd *cmd, enum rd_cmd_kind kind, void *arg);
/* On the control thread, for rpc_rdma_dial.c: */
struct rdma_event_channel *rd_channel(void);
struct rd_dev *rd_dev_of(struct ibv_context *ctx);
void rd_dev_link(struct rd_conn *r, struct rd_dev *d, struct rd_port *p);
void rd_conn_fail(struct rd_conn *r, int err);
void rd_conn_drop(struct rd_conn *r);
int rd_queues_make(struct rd_conn *r);
/* The connection is up: a peer that finds no receive tries again soon. */
void rd_rnr_soon(struct rd_conn *r);
void rd_private_taken(struct rd_conn *r, const void *data, size_t len);
int rd_event_error(const struct rdma_cm_event *ev);

/* ---- rpc_rdma_dial.c, on the control thread ---- */
void rd_dial_begin(struct rpc_rdma_dial *dl);
void rd_dial_event(struct rd_conn *r, const struct rdma_cm_event *ev);
int rd_dial_connect(struct rd_conn *r);
/* Ends cancelled attempts; once a second. */
void rd_dial_tick(void);
/* On the loop: frees dl. */
void rd_dial_done(struct rpc_rdma_dial *dl, int err, struct rpc_conn *c);

/* ---- rpc_rdma_dev.c ---- */
/* By the control thread, as the next two. quiet: the reason why the device cannot be used was
 * logged before. */
struct rd_dev *rd_dev_open(struct ibv_context *ctx, struct loop *const *loops, unsigned nloops,
			   bool quiet);
/* The completion vector of a device for the loop with this number: its loops are interrupted on
 * different processors. */
int rd_vector(const struct ibv_context *ctx, unsigned loop);
/* Makes the loops release the device; each answers with a CM_PORT_STOPPED. */
void rd_dev_stop(struct rd_dev *d);
void rd_dev_free(struct rd_dev *d);
/* On the loop, as all below. Reserves receives for a connection. Returns how many credits have
 * receives; 0: none. */
unsigned rd_reserve(struct rd_conn *r, unsigned credits);
/* Accepts the connection when they are posted. */
void rd_arrive(struct rd_conn *r);
/* A request to rpc_rdma_mem.c has a result, or was refused. */
void rd_slab_ready(struct rd_port *p);
/* True when some of the granted receives are not posted, and their memory is on its way: no credit
 * may be given back now. */
bool rd_receives_late(const struct rd_conn *r);
/* The connection's queue pair is gone. */
void rd_unreserve(struct rd_conn *r);
/* A receive of the connection's own queue has come back. */
void rd_own_returned(struct rd_conn *r, const struct ibv_wc *wc);
/* Posts the receives that are missing. -EAGAIN: call it again when more memory has come. Another
 * negative errno: the connection cannot go on. */
int rd_post_receives(struct rd_port *p, struct rd_conn *r);
/* The connection has something to poll or to do. */
void rd_activate(struct rd_conn *r);
/* The connection is tried again when there may be memory. */
void rd_stall(struct rd_conn *r);
/* Takes the connection off all lists of the port. */
void rd_forget(struct rd_conn *r);
/* Lets completions of the shared receive queue find the connection. */
void rd_qp_add(struct rd_conn *r);
/* The queue pair is destroyed. Takes its completions first, so that none is taken for another
 * connection's. */
void rd_qp_del(struct rd_conn *r);
/* Before a queue pair is destroyed: some devices then forget its completions, and with them the
 * receives that it used. */
void rd_shared_empty(struct rd_port *p);

/* ---- rpc_rdma_mem.c ---- */
/* On the control thread, for CM_SLAB and CM_BULK, and when a port is made. */
void rd_slab_asked(struct rd_port *p);
void rd_bulk_asked(struct rd_port *p);
struct rd_slab *rd_slab_make(struct rd_port *p, unsigned n);
/* ibv_reg_mr with relaxed ordering, or without where the device refuses that; *relaxed says which.
 * Returns NULL and sets errno. Whoever waits for a completion sees all data before it. */
struct ibv_mr *rd_register(struct ibv_pd *pd, void *p, size_t len, int access, bool *relaxed);
struct rd_sink;
/* NULL, and errno: it was refused, and the refusal is logged unless the one before was. The same
 * holds for rd_slab_make. */
struct rd_sink *rd_sink_new(struct rd_port *p, int access);
/* Text to put behind strerror(err): the limit that a registration hit. */
const char *rd_why_refused(int err);
void rd_sink_unregister(struct rd_sink *sk);
/* On the loop. */
void rd_slab_came(struct loop_msg *m);
void rd_bulk_came(struct loop_msg *m);
void rd_slab_use(struct rd_port *p, struct rd_slab *sl);
/* NULL: none is free now; more are on their way unless that was refused. */
struct rd_buf *rd_buf_get(struct rd_port *p);
void rd_buf_put(struct rd_buf *b);
/* So many buffers are needed soon. */
void rd_bufs_want(struct rd_port *p, unsigned n);
void rd_sink_drop(struct rd_sink *sk);
/* The device has gone, and nothing uses its memory any more. */
void rd_port_free(struct rd_port *p);
uint32_t rd_lkey(const struct rd_dev *d, const void *p); /* 0: not the pool's */
/* Registered memory of at most len bytes; NULL: there is none now. rd_record_new: for a record. The
 * target of RDMA Reads is *sink where that is set, else the record. */
struct rpc_buf *rd_memory_new(struct rd_port *p, size_t len, uint32_t *lkey);
struct rpc_buf *rd_record_new(struct rd_port *p, size_t len, uint32_t *lkey, struct rpc_buf **sink);
/* For long calls of ours: the peer may read and write it. */
struct rpc_buf *rd_bulk_memory(struct rd_port *p, size_t len, uint32_t *rkey);

/* ---- rpc_rdma_region.c ---- */
/* On a loop. Finds the region of the program's memory that has these bytes and that the device has
 * registered. Returns its number, and *mr, which stays until rd_region_put. -1: none. */
int rd_region_get(struct rd_dev *d, const void *p, size_t len, struct ibv_mr **mr);
void rd_region_put(int region); /* -1: does nothing */
/* The control thread exists from now on: ask it. */
void rd_regions_start(void);
/* On the control thread: when a device comes and goes, and for CM_REGION. */
void rd_regions_open(struct rd_dev *d);
void rd_regions_close(struct rd_dev *d);
struct rd_region_cmd;
void rd_region_asked(struct rd_region_cmd *rc, struct rd_dev *devs);

/* ---- rpc_rdma_bulk.c ---- */
#define RD_BULK_MAX (1u << 20)
#define RD_BULK_HDR 48u /* bytes that two chunks add to a header */
/* Makes the header of a call, and the part of the call that goes inline; hdr has room for
 * r_send_max bytes. Returns 0, -EAGAIN: no memory now, or -EMSGSIZE. *kept: o is freed with the
 * rest, because the peer reads or writes memory that it names. */
int rd_bulk_call(struct rd_conn *r, struct rpc_out *o, uint32_t xid, uint8_t *hdr,
		 uint32_t *hdr_len, bool *kept);
/* direct, placed: as in struct rpc_record. */
bool rd_bulk_reply(struct rd_conn *r, const struct rd_hdr *h, struct rd_in **in, bool *direct,
		   uint32_t *placed);
/* The queue pair is gone. */
void rd_bulk_drop(struct rd_conn *r);

/* ---- rpc_rdma_recv.c ---- */
void rd_received(struct rd_conn *r, const struct ibv_wc *wc);
void rd_read_done(struct rd_conn *r, struct rd_op *op);
/* Tries again the messages that waited for memory, or for their turn. */
void rd_retry(struct rd_conn *r);
void rd_recv_free(struct rd_conn *r);

/* ---- rpc_rdma_send.c ---- */
struct rd_op *rd_op_new(unsigned nwr, unsigned nsge);
void rd_op_free(struct rd_conn *r, struct rd_op *op);
/* The operation's RDMA Reads in flight are done. */
void rd_read_completed(struct rd_conn *r, struct rd_op *op);
/* Posts what there is room for. */
void rd_post(struct rd_conn *r);
void rd_send_error(struct rd_conn *r, uint32_t xid, uint32_t vers, enum rd_errcode err);
void rd_send_free(struct rd_conn *r);
/* Sends an RDMA Write of no bytes, which needs no handle. It fails where the peer is gone; on iWARP
 * the connection fails, when TCP gives up. */
void rd_probe(struct rd_conn *r);

/* ---- for rpc_conn.c and rpc_server.c ---- */
struct rd_conn *rd_conn_new(void);
void rd_prepare(struct loop_msg *m);
void rd_up(struct loop_msg *m);
void rd_fail(struct loop_msg *m);
void rd_drain(struct loop_msg *m);
void rd_last(struct loop_msg *m);
void rd_gone(struct loop_msg *m);
/* Polls; returns how many completions there were. */
unsigned rd_poll(struct rd_conn *r);
/* Takes at most RD_WCS completions of a queue, and counts them. */
int rd_poll_cq(struct ibv_cq *cq, struct ibv_wc *wc);
#endif
