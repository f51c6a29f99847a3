/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weft.h - libweft: an NFSv4.1 and 4.2 client in user space (RFC 8881, RFC 7862). This header is
 * its manual.
 *
 * A ring is an event loop and belongs to the thread that created it. A client (struct weft) is one
 * identity on one server. It has one session with a number of connections and slots. Any number of
 * clients share a ring. The caller makes all calls for a ring and its clients on the ring's thread.
 * The library makes progress only inside weft_reap, weft_do, weft_connect and weft_close.
 *
 * An operation is a struct weft_op that the caller owns: zero it, fill in what the operation takes,
 * and submit it. Any number of operations may be in flight; an operation that finds no free slot
 * waits in order. The struct belongs to the library until the operation has ended. Then the library
 * calls o_done (inside weft_reap), or weft_reap returns the operation if o_done is NULL. What an
 * operation points at (names, memory for data) stays the caller's and must live as long.
 *
 *	struct weft_op op = {.o_what = WEFT_LOOKUP, .o_name = "some/file"};
 *	int err = weft_do(w, &op);              // submit one operation and wait for it
 *
 * Errors are negative errnos; o_status has the NFS status behind the error (0: there is none). The
 * library waits while a server answers NFS4ERR_DELAY or NFS4ERR_GRACE. It reconnects lost
 * connections and repeats their calls in the same slots, so that the server does each call once
 * (RFC 8881 section 2.10.6). It replaces lost sessions and clientids, and reclaims open files. An
 * operation waits for its server for at most wo_giveup_ms.
 *
 * Caveats:
 * - When a session is lost with calls in flight, the client cannot find out whether the server did
 *   them. The library does them again and sets o_again: a MKDIR may then find the directory that it
 *   made itself.
 * - Symbolic links are not followed: a WEFT_LOOKUP through one ends with -ELOOP.
 * - When a server has lost the state of an open file and the client cannot reclaim it, each
 *   operation on the file fails with -EBADF from then on. Cure: close it.
 * - Data go straight to the data servers where the server gives Flex Files layouts (RFC 8435), by
 *   NFSv3 over TCP or RDMA. They go through the server where it gives none, where I/O at the data
 *   servers fails, and where the server prefers it (mdsthreshold); no operation sees the
 *   difference. When a file is open several times at once, the first open has the layout; I/O of
 *   the others goes through the server.
 * - wo_timeout_ms and wo_giveup_ms are not for data servers. A slow one gets all its calls itself,
 *   however long they wait there. One fails when no byte of a reply comes from it for 10 seconds,
 *   and it takes no byte of calls that wait for room in the socket. A server that recalls a layout
 *   ends this after 8 seconds, and after 12 for what WEFT_COMMIT does: the rest goes through it.
 * - Over RDMA data are copied once in each direction, to and from memory of the library. Cure:
 *   weft_memory_register. Over TCP the library sends from the caller's memory, and copies once what
 *   it reads. Metadata go over TCP.
 * - Data servers that are reached by RDMA may read and write all memory that was given to
 *   weft_memory_register, at any time: their key covers the whole region and is good as long as the
 *   region is registered. Cure: register buffers for data, nothing else, and only with data servers
 *   that you trust with them.
 * - WEFT_CLOSE does not make data stable: only WEFT_COMMIT and WEFT_STABLE promise that.
 * - Security is AUTH_SYS. The client does not ask for delegations, and returns one that a server
 *   gives unasked. There are no byte-range locks.
 */
#ifndef CLIENT_WEFT_H
#define CLIENT_WEFT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct weft_ring;
struct weft;
struct weft_file;

/* ---- rings and clients ---- */

/* Returns 0 or a negative errno. */
int weft_ring_create(struct weft_ring **out);
/* The caller has closed all clients of the ring. */
void weft_ring_destroy(struct weft_ring *r);

/* Starts RDMA, once in a process, before the clients connect. Clients of these rings (at most 64)
 * that set wo_rdma reach data servers by RDMA. The rings, and the thread that this starts, stay
 * until the process ends. Takes 32 MiB of memory. -EALREADY: it was called before. */
int weft_rdma_start(struct weft_ring *const *rings, unsigned n);

/* Registers memory of the caller once in a process, for all its rings. The memory must be writable
 * and stay until it is unregistered. A WEFT_READ or WEFT_WRITE whose buffer (o_buf, o_len) lies
 * wholly in it moves data over RDMA without a copy: the network card does the transfer. Over TCP,
 * and through the metadata server, registration changes nothing. May be called before or after
 * weft_rdma_start, on any thread. Takes as long as the kernel needs to pin the pages; huge pages
 * are faster, for the card as well. There may be WEFT_MAX_REGIONS regions, which do not overlap. A
 * device that comes into use later registers the regions then; where that fails, the library writes
 * a line on standard error and copies the data.
 * Returns 0; -EINVAL: no memory given; -EEXIST: overlaps with registered memory; -ENOSPC: there are
 * WEFT_MAX_REGIONS; -ENOMEM: more than may be locked (RLIMIT_MEMLOCK, or the device's limit);
 * -EFAULT: a part is not mapped or not writable; other errors as in ibv_reg_mr(3). After an error
 * nothing of it is registered. */
int weft_memory_register(void *p, size_t len);
/* p: where the region begins. Returns 0; -ENOENT: not registered; -EBUSY: operations still move
 * data from or to it: call weft_reap and try again. */
int weft_memory_unregister(void *p);
#define WEFT_MAX_REGIONS 64

#define WEFT_MAX_CONNS 16
#define WEFT_MAX_SLOTS 1024
#define WEFT_MAX_GIDS  16
struct weft_opts {
	/* an address and maybe a port (else 2049): "10.1.2.3", "[fd00::1]:2049" */
	const char *wo_server;
	/* the client owner (at most 200 bytes); NULL: the library makes a unique one */
	const char *wo_owner;
	unsigned wo_minor; /* 1 or 2; 0: 2, or 1 if the server has no 2 */
	/* connections; 0: 1. The slot chooses the connection of a call, so one call at a time uses
	 * one connection */
	unsigned wo_conns;
	/* connections to each data server, at most WEFT_MAX_CONNS; 0: 1. A call goes on the one
	 * with the fewest calls under way, so one call at a time uses one connection. A data server
	 * serves each connection by one of its threads */
	unsigned wo_ds_conns;
	unsigned wo_slots; /* calls in flight at once; 0: 64. The server may allow fewer */
	/* bytes of a READ or WRITE on the wire; 0: 1 MiB, the maximum. The server may allow
	 * fewer */
	uint32_t wo_max_io;
	/* a connection without a reply for so long is closed and made again; 0: 60000 */
	uint32_t wo_timeout_ms;
	/* an operation without an answer for so long ends with -ETIMEDOUT; 0: no limit */
	uint32_t wo_giveup_ms;
	bool wo_no_layouts; /* all data go through the server */
	/* the server speaks NFSv3 (a data server): connections without a session, for WEFT_NULL of
	 * NFSv3 (RFC 1813 section 3.3.0); all other operations fail with -EOPNOTSUPP */
	bool wo_nfs3;
	/* reach data servers by RDMA where they have it and weft_rdma_start was called for the
	 * ring; by TCP where that fails */
	bool wo_rdma;
	uint32_t wo_uid, wo_gid, wo_ngids, wo_gids[WEFT_MAX_GIDS];
};
/* Connects and creates the session. Blocks for at most wo_giveup_ms (0: 30 s). Not from inside
 * o_done. -EPROTONOSUPPORT: the server does not speak this minor version. */
int weft_connect(struct weft **out, struct weft_ring *r, const struct weft_opts *o);
/* Ends the session and the client. Operations in flight end with -ECANCELED, the server closes the
 * open files, and each struct weft_file is freed. Not from inside o_done; the caller submits
 * nothing to w meanwhile. */
void weft_close(struct weft *w);

struct weft_info {
	unsigned wi_minor, wi_conns, wi_slots; /* wi_conns: usable now */
	uint32_t wi_lease_s, wi_max_read, wi_max_write;
	uint64_t wi_sessions;  /* created so far */
	uint64_t wi_resent;    /* calls that were sent again in their slots */
	uint64_t wi_callbacks; /* calls that the server made */
	uint64_t wi_layouts, wi_recalls;
	/* calls to data servers; wi_ds_errors: failures of these calls and of their connections */
	uint64_t wi_ds_reads, wi_ds_writes, wi_ds_errors;
	uint64_t wi_ds_rdma; /* of these calls, those by RDMA */
	/* of those by RDMA, the calls whose data lay in registered memory and were not copied */
	uint64_t wi_ds_direct;
	/* errors of data servers that the client reported by LAYOUTERROR */
	uint64_t wi_reports;
	/* reads and writes that went through the server because it prefers that (mdsthreshold) */
	uint64_t wi_steered;
	/* ranges of data that a server lost before WEFT_COMMIT and that the client wrote again */
	uint64_t wi_rewritten;
};
void weft_info(const struct weft *w, struct weft_info *info);

/* ---- operations ---- */

struct weft_fh {
	uint32_t fh_len; /* 0: the root of the server's name space */
	uint8_t fh_data[128];
};

enum weft_type {
	WEFT_REG = 1,
	WEFT_DIR,
	WEFT_BLK,
	WEFT_CHR,
	WEFT_LNK,
	WEFT_SOCK,
	WEFT_FIFO,
	WEFT_ATTRDIR,
	WEFT_NAMEDATTR
};
/* Bits of at_set: which attributes are present (a server need not have all), or which to set (the
 * first six). */
enum {
	WEFT_A_MODE = 1,
	WEFT_A_UID = 2,
	WEFT_A_GID = 4,
	WEFT_A_SIZE = 8,
	WEFT_A_ATIME = 16,
	WEFT_A_MTIME = 32,
	WEFT_A_TYPE = 64,
	WEFT_A_CHANGE = 128,
	WEFT_A_FSID = 256,
	WEFT_A_FILEID = 512,
	WEFT_A_NLINK = 1024,
	WEFT_A_USED = 2048,
	WEFT_A_CTIME = 4096
};
struct weft_time {
	int64_t ti_sec;
	uint32_t ti_nsec;
};
struct weft_attr {
	uint32_t at_set;
	/* the owners are present where the server names them by numbers */
	uint32_t at_type, at_mode, at_nlink, at_uid, at_gid;
	uint64_t at_size, at_used, at_change, at_fileid, at_fsid[2];
	struct weft_time at_atime, at_mtime, at_ctime;
};

struct weft_entry {
	const char *en_name; /* NUL-terminated; valid during the call */
	uint32_t en_len;
	uint64_t en_cookie;
	struct weft_fh en_fh;	  /* fh_len 0: the server gave none */
	struct weft_attr en_attr; /* at_set 0: the server gave an error instead */
};

enum weft_what {
	WEFT_NULL, /* the NULL procedure: tests the transport alone */
	/* o_fh, o_name: a path from there; "" or NULL: o_fh itself; "..": its parent. Gives o_fh2,
	 * o_attr */
	WEFT_LOOKUP,
	WEFT_GETATTR, /* o_fh. Gives o_attr */
	/* o_fh, o_attr; o_file to set the size by an open file. Gives o_attr as it is afterwards.
	 * When the size is set, the library does not write data behind the new end again. So no
	 * WEFT_WRITE or WEFT_COMMIT for data behind the new end may be in flight */
	WEFT_SETATTR,
	WEFT_MKDIR,   /* o_fh, o_name, o_attr. Gives o_fh2, o_attr */
	WEFT_SYMLINK, /* o_fh, o_name, o_name2: the link's target. Gives o_fh2, o_attr */
	/* o_fh, o_buf, o_len. Gives o_count bytes without NUL; -ERANGE: they do not fit */
	WEFT_READLINK,
	WEFT_LINK,   /* o_fh, o_name: a new name for o_fh2 */
	WEFT_REMOVE, /* o_fh, o_name: a file or an empty directory */
	WEFT_RENAME, /* o_fh, o_name to o_fh2, o_name2 */
	/* o_fh, o_off: cookie, o_verf (0 and 0: from the beginning), o_len: bytes of the reply (0:
	 * 64 KiB), o_entry: called for each entry, with file handle and attributes. Gives o_off and
	 * o_verf to go on with, o_count entries, o_eof */
	WEFT_READDIR,
	/* o_fh, o_name, o_flags, o_attr for a new file. o_name NULL: the file o_fh itself. Gives
	 * o_file, o_fh2, o_attr. WEFT_O_TRUNC: the same rule holds as for a size by WEFT_SETATTR */
	WEFT_OPEN,
	WEFT_CLOSE, /* o_file, which is freed whatever the error */
	/* o_file (or NULL and o_fh: without an open), o_off, o_buf, o_len. Gives o_count, o_eof;
	 * fewer bytes only at the end */
	WEFT_READ,
	/* As WEFT_READ, but needs o_file; o_flags WEFT_STABLE: the data are on stable storage when
	 * it ends. Gives o_count: all bytes unless there is an error. Without WEFT_STABLE the
	 * caller keeps the data, unchanged, until a WEFT_COMMIT that it submitted afterwards has
	 * ended: the library writes from there again what the server lost, except where a later
	 * WEFT_WRITE to the same o_file replaced it. So submit no WEFT_WRITE that overlaps data of
	 * a WEFT_COMMIT in flight: the older data may come over the newer. A WEFT_WRITE that fails
	 * leaves its range undefined: what was there before may be lost */
	WEFT_WRITE,
	/* o_file: puts on stable storage all that was written to it by operations that have ended.
	 * After an error, any data written since the last WEFT_COMMIT that succeeded may be lost,
	 * and another WEFT_COMMIT does not report that again: write the data again */
	WEFT_COMMIT,
	/* o_fh, o_name: without "user.", o_buf, o_len: its value (RFC 8276). -EOPNOTSUPP: with
	 * NFSv4.1, or the server has no extended attributes */
	WEFT_SETXATTR,
	/* o_fh, o_name, o_buf, o_len. Gives o_count bytes; -ERANGE: they do not fit */
	WEFT_GETXATTR,
	WEFT_NWHATS
};
/* o_flags */
enum {
	/* of WEFT_OPEN */
	WEFT_O_READ = 1,
	WEFT_O_WRITE = 2,
	WEFT_O_CREATE = 4,
	WEFT_O_EXCL = 8,
	WEFT_O_TRUNC = 16,
	WEFT_STABLE = 32, /* of WEFT_WRITE */
	/* of WEFT_OPEN: the caller may not do I/O; the library asks for the layout at the first
	 * I/O */
	WEFT_O_NO_DATA = 64
};

struct weft_op {
	enum weft_what o_what;
	uint32_t o_flags;
	void (*o_done)(struct weft_op *op); /* NULL: weft_reap returns the operation */
	void *o_arg;			    /* for the caller */
	/* What an operation takes and gives: see enum weft_what. */
	struct weft_fh o_fh, o_fh2;
	const char *o_name, *o_name2;
	struct weft_attr o_attr;
	struct weft_file *o_file;
	void *o_buf;
	uint32_t o_len;
	uint64_t o_off, o_verf;
	void (*o_entry)(struct weft_op *op, const struct weft_entry *en);
	/* The result. */
	int o_err;	   /* 0 or a negative errno */
	uint32_t o_status; /* nfsstat4 */
	uint32_t o_count;
	bool o_eof;
	/* a session or a cached reply was lost: the server may have done the operation twice */
	bool o_again;
	/* The library's own. */
	struct weft *o_w;
	struct weft_op *o_next;
	void *o_priv;
};

/* Never fails, and never ends the operation inside the call. May be called from o_done. */
void weft_submit(struct weft *w, struct weft_op *op);
/* Makes progress until at least one operation has ended, or for timeout_ms (-1: no limit; 0: does
 * only what is possible without waiting). Stores up to max ended operations without o_done in ops
 * and returns how many; returns 0 when only operations with o_done ended. Not from inside
 * o_done. */
int weft_reap(struct weft_ring *r, struct weft_op **ops, unsigned max, int timeout_ms);
/* Submits one operation and waits until it has ended; returns o_err. Other operations make progress
 * meanwhile. Not from inside o_done. */
int weft_do(struct weft *w, struct weft_op *op);

/* The file handle of an open file, valid until it is closed. */
const struct weft_fh *weft_file_fh(const struct weft_file *f);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
