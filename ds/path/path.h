/*
 * path.h - folders of this machine, exported by path: a whole NFSv3 server (RFC 1813) and MOUNT
 * version 3, beside the objects that capabilities reach.
 *
 * The file of exports (weft-exports(5), its paths are this machine's) says who may use what. Every
 * call is done on one of a few threads of its own, under the ids of its caller: the kernel checks
 * modes, ACLs, sticky bits and quotas as for a local user. (What is given to io_uring is done under
 * the ids of the ring's maker.) Handles hold what the kernel's open_by_handle_at takes, and a MAC;
 * their first byte tells them from capabilities, and their key is another.
 *
 *   call.c     a call from its arrival to its reply; who may
 *   work.c     the threads, and whose ids they act under
 *   export.c   the table: folders, overlaps, reloads
 *   fh.c       handles
 *   file.c     open files that are kept for READ, WRITE and COMMIT
 *   attr.c, name.c, make.c, dir.c, data.c   the procedures
 *   drc.c      replies kept for retransmissions
 *   mount.c    MOUNT
 *   rpcbind.c  telling rpcbind
 *   util.c     what the procedures share
 *
 * Caveats:
 * - Only one file system per export: what is mounted below is not reached.
 * - Who changes a directory locally while a call does may make that call's attributes before and
 *   after look as if the call had done both.
 */
#ifndef DS_PATH_PATH_H
#define DS_PATH_PATH_H
#include "proto/cap.h"
#include "proto/mount3.h"
#include "proto/nfs3.h"
#include "proto/rpc.h"

struct path;
struct path_opts {
	const char *po_exports; /* the file */
	const char *po_store;	/* the folder of the objects: no export may lead to it */
	unsigned po_threads;
	size_t po_replies; /* bytes kept for retransmissions */
	uint32_t po_names_keep_ms;
};
/* Capabilities that the threads need (priv_keep). */
uint64_t path_capabilities(void);
/* Metrics; before other threads run. */
void path_metrics_init(void);
/* Makes the threads: after priv_drop, on the thread that has kept path_capabilities(). 0, or a
 * negative errno and one line in err, and then the process ends. */
int path_open(struct path **out, const struct path_opts *o, char *err, size_t errlen);
/* Loads the table: when the store is open, before the first call. As path_open. */
int path_start(struct path *p, const uint8_t key[CAP_KEY_LEN], const uint8_t ds_uuid[16], char *err,
	       size_t errlen);
/* The file of exports again; on an error, which is logged, the old table stays. Blocks. */
void path_reload(struct path *p);
/* Registers with the rpcbind of this machine, on a thread that goes away: ports by IPv4 and IPv6,
 * host order, 0: not served there. _end takes it back, and blocks. */
void path_rpcbind(uint16_t port4, uint16_t port6);
void path_rpcbind_end(void);

/* How many files are kept open. */
double path_files_gauge(void);

/* Whether a handle is of this service: by its first byte. */
bool path_is_fh(const uint8_t *fh, uint32_t len);
/* Its MAC is right: a handle that this server gave out. */
bool path_fh_ours(struct path *p, const uint8_t *fh, uint32_t len);
/* A call whose first argument is such a handle. */
void path_nfs3(struct path *p, struct rpc_call *call);
/* MOUNT, version 3. */
void path_mount3(struct path *p, struct rpc_call *call);
#endif
