/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rw.h - a client of RPC over RDMA version 1 that puts every field on the wire by itself (RFC 8166,
 * 8267, 8797). It shares no code with the server's transport. reply.c checks each reply of each
 * test against the RFCs' rules.
 *
 * One thread. A test ends at its first failure (fail() jumps out of it); then its connections are
 * closed.
 */
#ifndef TESTS_WIRE_RDMA_RW_H
#define TESTS_WIRE_RDMA_RW_H
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { RDMA_MSG, RDMA_NOMSG, RDMA_MSGP, RDMA_DONE, RDMA_ERROR };
enum { ERR_VERS = 1, ERR_CHUNK = 2 };
enum {
	MIB = 1 << 20,
	KIB = 1024,
	HEADER_MIN = 28,
	SEGS = 320,
	SENDS = 512,
	SEND_SIZE = 8192,
	WAIT_MS = 20000
};
#define PRIV_MAGIC 0xf6ab0e18u
#define PRIV_R	   1

/* ---- what a test says ---- */
void fail(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
void diag(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
#define need(cond, ...)                                                                            \
	do {                                                                                       \
		if (!(cond))                                                                       \
			fail(__VA_ARGS__);                                                         \
	} while (0)
uint64_t now_ms(void);
uint64_t rnd(void);			  /* of the run's seed */
static inline uint32_t rnd_to(uint32_t n) /* 0 to n - 1 */
{
	return n ? (uint32_t)(rnd() % n) : 0;
}

/* ---- the run ---- */
#define FH_MAX 64
struct fh {
	uint8_t b[FH_MAX];
	unsigned n;
};
struct run {
	const char *host, *port;
	struct fh fh;
	/* peer: tests another server; reports what it may do its own way, and does not fail */
	bool iwarp, soak, peer;
	uint64_t seed;
	unsigned count; /* how often, for tests that repeat; 0: as the test likes */
};
extern struct run run;

/* ---- connections ---- */
struct opt {
	bool no_priv;
	uint8_t flags;	    /* PRIV_R */
	const uint8_t *raw; /* private data as it is; else ours is made */
	size_t nraw;
	unsigned recv_size; /* bytes of a Receive, also sent to the server; 0: 4096 */
	unsigned recvs;	    /* Receives posted; 0: 160; NONE: none at all */
	uint8_t rnr;	    /* sent to the server: retries after RNR NAK, 7 is for ever */
};
enum { NONE = ~0 };
struct msg {
	struct msg *next;
	uint32_t len, inv_rkey;
	bool inv;
	uint8_t b[];
};
struct conn {
	struct conn *next;
	struct rdma_event_channel *ch;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_comp_channel *cc;
	struct ibv_cq *cq;
	struct opt opt;
	uint8_t priv[256]; /* the server's private data */
	unsigned npriv;
	bool priv_found, inv_ok;      /* inv_ok: both sides said R */
	unsigned call_max, reply_max; /* inline thresholds */
	uint8_t *mem;		      /* SENDS send buffers, then the Receives */
	struct ibv_mr *mr;
	uint16_t free[SENDS];
	unsigned nfree, posted;
	struct msg *in, **in_tail;
	bool dead;
	int wc_status;	       /* that killed it; 0: none */
	unsigned credits, out; /* granted; calls in flight */
	struct call *calls;    /* in flight */
	struct mem *mems;
	uint32_t xid;
};
/* NULL: refused. why (may be NULL): the event of the refusal. */
struct conn *conn_try(const struct opt *o, enum rdma_cm_event_type *why);
struct conn *conn_open(const struct opt *o);
void conn_close(struct conn *c);
/* Drops the queue pair with everything in flight, as a client that dies. */
void conn_drop(struct conn *c);
void conn_close_all(void);
/* False: the connection is dead. */
bool conn_send(struct conn *c, const void *p, size_t n);
/* Waits at most ms for anything to arrive. */
void conn_poll(struct conn *c, int ms);
struct msg *conn_recv(struct conn *c, int ms);
/* Until it has ended. */
bool conn_wait_dead(struct conn *c, int ms);
/* Posts a work request of the test's own and waits for it. */
bool conn_post(struct conn *c, struct ibv_send_wr *wr);

struct mem {
	struct mem *next;
	struct conn *c;
	uint8_t *p;
	size_t n;
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	uint32_t rkey;
};
enum {
	MEM_RW = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
	GUARD = 0xa5
};
/* Filled with GUARD. Belongs to the connection, and ends with it unless mem_free comes first. */
struct mem *mem_new(struct conn *c, size_t n, int access);
/* Memory whose rkey may be invalidated by the server: a window on RoCE, a plain region on iWARP. */
struct mem *mem_new_inv(struct conn *c, size_t n);
void mem_free(struct mem *m);

/* ---- messages ---- */
struct seg {
	uint32_t pos, handle, length;
	uint64_t offset;
};
struct chunk {
	unsigned n;
	struct seg s[SEGS];
};
struct reply {
	uint32_t xid, vers, credits, proc, err, low, high;
	unsigned nwrites;
	bool has_chunk, inv;
	uint32_t inv_rkey;
	uint8_t *rpc; /* the payload stream, from the message or from the Reply chunk */
	uint32_t nrpc;
	/* of the RPC reply */
	uint32_t reply_stat, accept_stat;
	const uint8_t *res;
	uint32_t nres;
	struct chunk writes[4], chunk; /* last: they are large, and not cleared */
};
struct call {
	struct call *next;
	struct conn *c;
	uint32_t xid, vers, credits, proc;
	unsigned nwrites;
	bool has_chunk, sent, done;
	uint32_t nrpc;
	uint32_t no_inv; /* an rkey that must never be invalidated */
	uint32_t tag;	 /* the test's own */
	struct chunk reads, writes[4], chunk;
	uint8_t rpc[6000]; /* the reduced payload stream */
	struct reply r;
};
struct call *call_new(struct conn *c, uint32_t prog, uint32_t vers, uint32_t proc);
void call_free(struct call *k);
void put32(struct call *k, uint32_t v);
void put64(struct call *k, uint64_t v);
void put_opaque(struct call *k, const void *p, uint32_t n);
void put_bytes(struct call *k, const void *p, uint32_t n);
void seg_add(struct chunk *ch, struct mem *m, size_t off, uint32_t len);
void read_add(struct call *k, uint32_t pos, struct mem *m, size_t off, uint32_t len);
/* The header, and the payload stream behind it unless the procedure is RDMA_NOMSG. Returns the
 * length. */
size_t call_encode(const struct call *k, uint8_t *out);
/* Waits for a credit, sends. */
void call_send(struct call *k);
/* Sends without checking credits. */
bool call_send_now(struct call *k);
/* False: the connection ended, or nothing came. */
bool call_try(struct call *k, int ms);
/* Sends unless it is sent, and must be answered with RDMA_MSG or RDMA_NOMSG and an RPC reply. */
void call_reply(struct call *k);
/* ... accepted, SUCCESS */
void call_ok(struct call *k);
/* ... RDMA_ERROR of this kind */
void call_error(struct call *k, uint32_t err);
/* Takes what has come; called by conn_recv's users. */
void reply_take(struct conn *c, struct msg *m);
/* "reply", "error CHUNK", "lost", ... of a call that was waited for */
const char *outcome(const struct call *k);

/* ---- NFSv3 ---- */
enum { P_NULL = 0, P_GETATTR = 1, P_READ = 6, P_WRITE = 7, P_FSINFO = 19, P_COMMIT = 21 };
enum { UNSTABLE, DATA_SYNC, FILE_SYNC };
struct rd {
	uint32_t status, count, eof, len;
	const uint8_t *inl; /* data in the payload stream, or NULL */
};
struct call *nfs_null(struct conn *c);
struct call *nfs_read(struct conn *c, const struct fh *fh, uint64_t off, uint32_t n);
/* Arguments without data. Returns the position where data goes. */
struct call *nfs_write(struct conn *c, const struct fh *fh, uint64_t off, uint32_t n, uint32_t how,
		       uint32_t *pos);
/* Decodes; want: data's length must be in the used Write chunk or in the stream. */
struct rd read_result(const struct call *k);
uint32_t write_result(const struct call *k, uint32_t *count);
/* Whole operations that must go well. */
void ping(struct conn *c);
void store(struct conn *c, uint64_t off, const void *p, uint32_t n);
void fetch(struct conn *c, uint64_t off, void *p, uint32_t n);
/* Makes the file hold these MiB of pattern; byte at offset: pattern_at. */
void pattern_file(struct conn *c, unsigned mib);
static inline uint8_t pattern_at(uint64_t off)
{
	uint64_t x = (off >> 3) * 0x9e3779b97f4a7c15ull;

	return (uint8_t)(x >> (32 + 4 * (off & 7))) ^ (uint8_t)off;
}
void pattern_fill(uint8_t *p, uint64_t off, size_t n);
void pattern_need(const uint8_t *p, uint64_t off, size_t n, const char *what);
void guard_need(const uint8_t *p, size_t n, const char *what);

/* ---- the tests ---- */
struct test {
	const char *name;
	void (*fn)(void);
	bool only_named; /* not part of a run of all */
};
extern const struct test conn_tests[], data_tests[], error_tests[], load_tests[];
#endif
