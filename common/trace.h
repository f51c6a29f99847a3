/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace.h - what a daemon does for a request, step by step (docs/tracing.md).
 *
 * TRACE() puts an event into a ring of the calling thread, which "weft trace" reads, and is a USDT
 * probe of the provider "weft" with the same values, where the compiler has <sys/sdt.h>. A ring has
 * one writer. A reader copies it while it is written: an event has a sequence number before and
 * behind it, and one that changes under the reader is left out.
 *
 * An event belongs to the thread's current request, log_request (base/log.h). The loop sets it to 0
 * before each handler. Whoever goes on with a request sets it again: the dispatch functions, kv for
 * its mutations, exclusive.c, orders, and the data server's I/O.
 */
#ifndef COMMON_TRACE_H
#define COMMON_TRACE_H
#include "base/clock.h"
#include "base/log.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#ifdef HAVE_SYS_SDT_H
#include <sys/sdt.h>
/* bpftrace cannot read an operand that is thread-local memory: the request goes into a register. */
#define TRACE_PROBE(kind, ino, a, b, c)                                                            \
	do {                                                                                       \
		uint64_t tr_request = log_request;                                                 \
                                                                                                   \
		__asm__ volatile("" : "+r"(tr_request));                                           \
		DTRACE_PROBE5(weft, kind, tr_request, ino, a, b, c);                               \
	} while (0)
#else
#define TRACE_PROBE(kind, ino, a, b, c) ((void)0)
#endif

/*
 * Kinds of events, and their values a, b and c. "ino" is the inode number, 0 if there is none.
 *
 *  request_start  the client's address, 16 bytes as of IPv6, in a and b; trace_call() in c
 *  request_wait   COMPOUND: number of the operation that waits; 0: the caller's exports or groups
 *  request_resume COMPOUND: number of the operation; its status
 *  request_end    COMPOUND: trace_end(); then the numbers of the first 16 operations, one a byte.
 *                 NFSv3: trace_end(); offset; count
 *  mutation_done  number of its batch; errno, or 0
 *  commit_batch   number of the batch; members << 32 | errno; us that they ran << 32 | us of commit
 *  file_phase     enum excl_phase; enum excl_how; layouts that are left after the deadline
 *  recall         the client's number; what it holds (ST_LAYOUT bits)
 *  fence          the file's new epoch
 *  order_put      data server; number; type: a transaction puts the row
 *  order_send     likewise: it is sent
 *  order_done     data server; number; type << 32 | status of the data server
 *  order_run      a data server ran an order: number; type; status
 *  io_start       offset; bytes; 1: a write, 0: a read
 *  io_done        offset; bytes, or -errno; 1: a write, 0: a read
 *  sync_start     1: times as well
 *  sync_done      errno, or 0
 */
#define TRACE_KINDS(K)                                                                             \
	K(request_start)                                                                           \
	K(request_wait)                                                                            \
	K(request_resume)                                                                          \
	K(request_end)                                                                             \
	K(mutation_done)                                                                           \
	K(commit_batch)                                                                            \
	K(file_phase)                                                                              \
	K(recall)                                                                                  \
	K(fence)                                                                                   \
	K(order_put)                                                                               \
	K(order_send)                                                                              \
	K(order_done)                                                                              \
	K(order_run)                                                                               \
	K(io_start)                                                                                \
	K(io_done)                                                                                 \
	K(sync_start)                                                                              \
	K(sync_done)

#define TRACE_ENUM(kind) TRACE_##kind,
enum trace_kind { TRACE_NONE, TRACE_KINDS(TRACE_ENUM) TRACE_KINDS_END };

/* An event of the thread's current request. now_ns: CLOCK_MONOTONIC. */
#define TRACE_AT(now_ns, kind, ino, a, b, c)                                                       \
	do {                                                                                       \
		uint64_t tr_i = (ino), tr_a = (a), tr_b = (b), tr_c = (c);                         \
		trace_put(TRACE_##kind, now_ns, tr_i, tr_a, tr_b, tr_c);                           \
		TRACE_PROBE(kind, tr_i, tr_a, tr_b, tr_c);                                         \
	} while (0)
/* The same; reads the clock. */
#define TRACE(kind, ino, a, b, c) TRACE_AT(clock_turn_ns(), kind, ino, a, b, c)
/* The same, on a loop's thread, with the last reading: costs no system call, and may be early by
 * what the turn has taken until now. */
#define TRACE_TURN(kind, ino, a, b, c) TRACE_AT(clock_last_ns, kind, ino, a, b, c)

/* request_start's c: the call's xid, its procedure or how many operations it has, the client's
 * port. */
static inline uint64_t trace_call(uint32_t xid, uint32_t what, uint16_t port)
{
	return (uint64_t)xid << 32 | (what & 0xffff) << 16 | port;
}
/* request_end's a: the client's number, the procedure or how many operations ran, the status. */
static inline uint64_t trace_end(uint32_t client, uint32_t what, uint32_t status)
{
	return (uint64_t)client << 32 | (what & 0xffff) << 16 | (status & 0xffff);
}
/* request_start's a and b. Returns the port. */
uint16_t trace_address(const struct sockaddr_storage *ss, uint64_t out[2]);

/* Each thread keeps so many events; rounded up to a power of two; 0: no thread keeps any, and
 * requests have no ids. A ring is allocated with its thread's first event. Call before there are
 * threads. */
void trace_open(unsigned events);
void trace_put(enum trace_kind kind, uint64_t now_ns, uint64_t ino, uint64_t a, uint64_t b,
	       uint64_t c);
/* An id that no other request of this process has: the ring's number and a counter. 0: nothing is
 * traced. */
uint64_t trace_request(void);
/* Differs between two runs of a daemon: when trace_open() was called, in ns since 1970. */
uint64_t trace_run(void);

struct trace_event {
	uint64_t te_ns, te_request, te_ino, te_v[3];
	uint64_t te_seq;	     /* rises within a ring */
	uint32_t te_kind, te_thread; /* te_thread: number of the ring */
	bool te_late;		     /* stored after the cut */
};
/*
 * Copies all events that are kept, by request and then by time. *out is malloc'd and the caller's.
 * Any thread. 0, or -ENOMEM.
 *
 * The cut is the newest event of each ring, noted for all rings before any is copied. All events up
 * to it are there, but for those that were overwritten meanwhile. So a reader that goes on behind
 * the newest event of each ring that is not late misses none. A request_end after the cut is left
 * out: the request is under way. Where a request_end is there, what any thread did for the request
 * before it is there as well, late or not.
 */
int trace_read(struct trace_event **out, size_t *n);
const char *trace_kind_name(enum trace_kind kind);

/* "3.4711", as in log lines. */
#define TRACE_ID_TEXT 32
const char *trace_id_text(char out[TRACE_ID_TEXT], uint64_t request);
/* 0: it is no id. */
uint64_t trace_id_parse(const char *text);

/* trace_http.c: answers GET /v1/trace?id=T.N&client=ADDRESS&inode=N&last=N&after=NEXT with
 * {"requests":[{"request","client","began_at","us","whole","events":[{"us","thread","kind",
 * "inode","text"}]}],"next","restarted","left_out","kept"}. restarted: NEXT is of an earlier run.
 * text puts an event into words. On the HTTP thread. */
#define TRACE_TEXT 512
struct http_req;
struct http_reply;
void trace_get(const struct http_req *rq, struct http_reply *rp,
	       void (*text)(const struct trace_event *e, char out[TRACE_TEXT]));
#endif
