/*
 * weft.h - libweft: an NFSv4.1 and 4.2 client in user space (RFC 8881, RFC 7862). This header is
 * its manual.
 *
 * A ring is an event loop and belongs to the thread that made it. A client (struct weft) is one
 * identity on one server, with one session of some connections and slots; any number of clients
 * share a ring. All calls for a ring and its clients are made on the ring's thread, and run nothing
 * behind its back: things go on inside weft_reap, weft_do, weft_connect and weft_close.
 *
 * An operation is a struct weft_op of the caller's: zero it, fill what the operation takes, and
 * submit it. Any number may be under way; what finds no free slot waits in order. It is the
 * library's until it has ended; then o_done is called (inside weft_reap), or without one weft_reap
 * gives it back. What an operation points at (names, memory for data) stays the caller's and must
 * live as long.
 *
 *	struct weft_op op = {.o_what = WEFT_LOOKUP, .o_name = "some/file"};
 *	int err = weft_do(w, &op);              // one, and wait for it
 *
 * Errors are negative errnos; o_status has the NFS status behind it (0 where there was none).
 * NFS4ERR_DELAY and NFS4ERR_GRACE are waited out, lost connections made again, calls repeated on
 * them in their slots, so that the server does each once (RFC 8881 section 2.10.6); lost sessions
 * and clients are made anew, and open files reclaimed. An operation waits for its server as long as
 * wo_giveup_ms says.
 *
 * Caveats:
 * - When a session is lost with calls under way, nobody can tell whether those were done. They are
 *   done again, and o_again is set: a MKDIR may then find what it made itself.
 * - Symbolic links are not followed: WEFT_LOOKUP through one ends with -ELOOP.
 * - An open file whose state could not be had back after a server lost it answers -EBADF from then
 *   on; close it.
 * - Data go straight to data servers where the server gives Flex Files layouts (RFC 8435), by NFSv3
 *   over TCP or RDMA, and through the server where it does not, where that fails, and where the
 *   server wants it so (mdsthreshold); no operation sees the difference. Of a file that is opened
 *   several times at once the first has the layout; I/O by the others goes through the server.
 * - Over RDMA data are copied once in each direction, to and from memory of the library's. Cure:
 *   weft_memory_register. Over TCP what is written is sent from where it lies, and what is read is
 *   copied once. Metadata go over TCP.
 * - What was given to weft_memory_register may be read and written by data servers that are reached
 *   by RDMA, all of it and at any time: their key is for the whole of it and good as long as it is
 *   registered. Cure: register buffers for data, nothing else, and only with data servers that are
 *   trusted with it.
 * - WEFT_CLOSE does not make data stable: only WEFT_COMMIT and WEFT_STABLE promise that.
 * - Security is AUTH_SYS. Delegations are not asked for, and given back where a server gives one
 *   all the same. There are no byte-range locks.
 */
#ifndef CLIENT_WEFT_H
#define CLIENT_WEFT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct weft_ring;
struct weft;
struct weft_file; /* an open file */

/* ---- rings and clients ---- */

/* 0 or a negative errno. */
int weft_ring_create(struct weft_ring **out);
/* After its last client was closed. */
void weft_ring_destroy(struct weft_ring *r);

/* RDMA, once in a process, before its clients connect: those of these rings (at most 64) that want
 * it (wo_rdma) reach data servers by it. The rings and the thread that is started stay until the
 * process ends. Takes 32 MiB of memory. -EALREADY: it was called before. */
int weft_rdma_start(struct weft_ring *const *rings, unsigned n);

/* Memory that data are read into and written from, registered once in a process, for all its rings;
 * the caller's own (not read-only), and there until it is unregistered. A WEFT_READ or WEFT_WRITE
 * whose o_buf lies in it, with all that it reads or writes there, moves data over RDMA without a
 * copy: the network card does it. Over TCP, and through the metadata server, it changes nothing. It
 * may be done before weft_rdma_start or after, on any thread, and takes as long as the kernel needs
 * to pin the pages (huge pages are faster, for the card as well). At most WEFT_MAX_REGIONS, which
 * do not overlap. A device that comes into use later registers it then; where that fails a line on
 * standard error says so, and data are copied. 0; -EINVAL: no memory; -EEXIST: it overlaps with
 * memory that is registered; -ENOSPC: there are WEFT_MAX_REGIONS; -ENOMEM: it is more than may be
 * locked (RLIMIT_MEMLOCK, or the device's limit); -EFAULT: some of it is not there, or cannot be
 * written; others as ibv_reg_mr(3) says. After an error nothing of it is registered. */
int weft_memory_register(void *p, size_t len);
/* p: where it begins. 0; -ENOENT: it is not registered; -EBUSY: data of operations are moving from
 * or to it: weft_reap, and try again. */
int weft_memory_unregister(void *p);
#define WEFT_MAX_REGIONS 64

#define WEFT_MAX_CONNS 16
#define WEFT_MAX_SLOTS 1024
#define WEFT_MAX_GIDS  16
struct weft_opts {
	const char *wo_server; /* "10.1.2.3", "[fd00::1]:2049": an address, port 2049 unless it says
				  another */
	/* the client's identity (at most 200 bytes); NULL: one of its own */
	const char *wo_owner;
	unsigned wo_minor; /* 1 or 2; 0: 2, and 1 with a server that has no 2 */
	/* connections; 0: 1. Calls are dealt to them by slot, so one call at a time uses one of
	 * them */
	unsigned wo_conns;
	unsigned wo_slots; /* calls under way at once; 0: 64. The server may allow fewer */
	/* bytes of a READ or WRITE on the wire; 0: 1 MiB, which is the most. The server may allow
	 * fewer */
	uint32_t wo_max_io;
	/* without a reply for so long, a connection is made anew; 0: 60000 */
	uint32_t wo_timeout_ms;
	/* an operation without an answer for so long ends with -ETIMEDOUT; 0: it waits for ever */
	uint32_t wo_giveup_ms;
	bool wo_no_layouts; /* all data go through the server */
	/* an NFSv3 server (a data server): connections without a session, for WEFT_NULL of NFSv3
	 * (RFC 1813 section 3.3.0); all else is -EOPNOTSUPP */
	bool wo_nfs3;
	/* data servers by RDMA, where they have it and weft_rdma_start was called for the ring; by
	 * TCP where that fails */
	bool wo_rdma;
	uint32_t wo_uid, wo_gid, wo_ngids, wo_gids[WEFT_MAX_GIDS];
};
/* Connects and makes the session; waits for that, at most wo_giveup_ms or 30 s. Not from inside
 * o_done. -EPROTONOSUPPORT: the server speaks no such minor version. */
int weft_connect(struct weft **out, struct weft_ring *r, const struct weft_opts *o);
/* Ends the session and the client. Operations under way end with -ECANCELED, open files are closed
 * by the server, struct weft_file are freed. Not from inside o_done; nothing is submitted to w
 * meanwhile. */
void weft_close(struct weft *w);

struct weft_info {
	unsigned wi_minor, wi_conns, wi_slots; /* conns: usable now */
	uint32_t wi_lease_s, wi_max_read, wi_max_write;
	uint64_t wi_sessions;  /* made so far */
	uint64_t wi_resent;    /* calls that were sent again in their slots */
	uint64_t wi_callbacks; /* calls of the server */
	uint64_t wi_layouts, wi_recalls;
	/* calls to data servers; errors: of those, and of their connections */
	uint64_t wi_ds_reads, wi_ds_writes, wi_ds_errors;
	uint64_t wi_ds_rdma; /* of those calls, by RDMA */
	/* of those by RDMA, whose data were not copied: they lie in memory of
	 * weft_memory_register */
	uint64_t wi_ds_direct;
	/* errors of data servers that the server was told of by LAYOUTERROR */
	uint64_t wi_reports;
	/* reads and writes that went through the server because it wants them so (mdsthreshold) */
	uint64_t wi_steered;
	/* stretches of data that a server had lost before WEFT_COMMIT, and that were written
	 * again */
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
/* Bits of at_set: what is there (a server need not have all), or what is to be set (the first
 * six). */
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
	/* owners are there where the server names them by numbers */
	uint32_t at_type, at_mode, at_nlink, at_uid, at_gid;
	uint64_t at_size, at_used, at_change, at_fileid, at_fsid[2];
	struct weft_time at_atime, at_mtime, at_ctime;
};

struct weft_entry {
	const char *en_name; /* NUL at its end; valid during the call */
	uint32_t en_len;
	uint64_t en_cookie;
	struct weft_fh en_fh;	  /* fh_len 0: the server told none */
	struct weft_attr en_attr; /* at_set 0: with an error instead */
};

enum weft_what {
	WEFT_NULL,   /* the NULL procedure: the transport alone */
	WEFT_LOOKUP, /* o_fh, o_name: a path from there, "" or NULL: itself; "..": the parent. Gives
			o_fh2, o_attr */
	WEFT_GETATTR, /* o_fh. Gives o_attr */
	WEFT_SETATTR, /* o_fh, o_attr; o_file where size is set by an open file. Gives o_attr as it
		       * is then. Where the size is set, what was written behind it is not written
		       * again; so no WEFT_WRITE or WEFT_COMMIT is to be under way then that is
		       * about what is behind it */
	WEFT_MKDIR,   /* o_fh, o_name, o_attr. Gives o_fh2, o_attr */
	WEFT_SYMLINK, /* o_fh, o_name, o_name2: what it points to. Gives o_fh2, o_attr */
	/* o_fh, o_buf, o_len. Gives o_count bytes, no NUL; -ERANGE: they do not fit */
	WEFT_READLINK,
	WEFT_LINK,    /* o_fh, o_name: a new name for o_fh2 */
	WEFT_REMOVE,  /* o_fh, o_name: a file or an empty directory */
	WEFT_RENAME,  /* o_fh, o_name to o_fh2, o_name2 */
	WEFT_READDIR, /* o_fh, o_off: cookie, o_verf (0 and 0: from the beginning), o_len: bytes of
		       * reply (0: 64 KiB), o_entry: called for each entry, with handle and
		       * attributes. Gives o_off and o_verf to go on with, o_count entries, o_eof */
	WEFT_OPEN,    /* o_fh, o_name, o_flags, o_attr for a new file. o_name NULL: the file o_fh
		       * itself. Gives o_file, o_fh2, o_attr. WEFT_O_TRUNC: as WEFT_SETATTR of
		       * the size */
	WEFT_CLOSE,   /* o_file, which is gone then, whatever the error */
	/* o_file (or NULL and o_fh: without an open), o_off, o_buf, o_len. Gives o_count, o_eof;
	 * fewer bytes only at the end */
	WEFT_READ,
	WEFT_WRITE, /* the same; o_flags WEFT_STABLE: on stable storage when it ends. Gives o_count,
		     * always all unless there is an error. Without WEFT_STABLE the data stay the
		     * caller's to keep, unchanged, until a WEFT_COMMIT that was submitted
		     * afterwards has ended: what the server lost is written again from there,
		     * except where a WEFT_WRITE to the same o_file replaced it since. So none that
		     * overlaps what a WEFT_COMMIT is about is to be submitted while that is under
		     * way: the older data may come over it. One that fails leaves its stretch
		     * undefined: what was there before may be lost. Needs o_file */
	WEFT_COMMIT, /* o_file: all that was written to it and has ended is on stable storage. With
		      * an error, any of what was written since the last one that succeeded may be
		      * lost, and another WEFT_COMMIT does not tell again: write it anew */
	WEFT_SETXATTR, /* o_fh, o_name: without "user.", o_buf, o_len: its value (RFC 8276).
			  -EOPNOTSUPP: with NFSv4.1, or the server has none */
	/* o_fh, o_name, o_buf, o_len. Gives o_count bytes; -ERANGE: they do not fit */
	WEFT_GETXATTR,
	WEFT_NWHATS
};
/* o_flags */
enum {
	/* WEFT_OPEN */
	WEFT_O_READ = 1,
	WEFT_O_WRITE = 2,
	WEFT_O_CREATE = 4,
	WEFT_O_EXCL = 8,
	WEFT_O_TRUNC = 16,
	WEFT_STABLE = 32, /* WEFT_WRITE */
	/* WEFT_OPEN: perhaps nothing is read or written: the layout is not asked for before
	 * something is */
	WEFT_O_NO_DATA = 64
};

struct weft_op {
	enum weft_what o_what;
	uint32_t o_flags;
	void (*o_done)(struct weft_op *op); /* NULL: weft_reap gives it back */
	void *o_arg;			    /* the caller's own */
	/* What an operation takes and gives: see enum weft_what. */
	struct weft_fh o_fh, o_fh2;
	const char *o_name, *o_name2;
	struct weft_attr o_attr;
	struct weft_file *o_file;
	void *o_buf;
	uint32_t o_len;
	uint64_t o_off, o_verf;
	void (*o_entry)(struct weft_op *op, const struct weft_entry *en);
	/* How it ended. */
	int o_err;	   /* 0 or a negative errno */
	uint32_t o_status; /* nfsstat4 */
	uint32_t o_count;
	bool o_eof;
	bool o_again; /* a lost session left it open whether it had been done before it was done */
	/* The library's own. */
	struct weft *o_w;
	struct weft_op *o_next;
	void *o_priv;
};

/* Never fails, and never ends the operation from inside. From o_done as well. */
void weft_submit(struct weft *w, struct weft_op *op);
/* Lets things go on until at least one operation has ended, or for timeout_ms (-1: any time; 0:
 * what can be done at once). Gives up to max of those that have no o_done in ops; returns how many,
 * which is 0 when those that ended had o_done. Not from inside o_done. */
int weft_reap(struct weft_ring *r, struct weft_op **ops, unsigned max, int timeout_ms);
/* Submits one operation and waits until it has ended; returns o_err. Others go on meanwhile. Not
 * from inside o_done. */
int weft_do(struct weft *w, struct weft_op *op);

/* Of an open file. */
const struct weft_fh *weft_file_fh(const struct weft_file *f);

#ifdef __cplusplus
}
#endif
#endif
