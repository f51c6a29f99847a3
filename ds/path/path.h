/* SPDX-License-Identifier: Apache-2.0 */
/*
 * path.h - folders of this machine, exported by path: a complete NFSv3 server (RFC 1813) and MOUNT
 * version 3, beside the objects that capabilities reach.
 *
 * The file of exports (weft-exports(5); its paths are this machine's) says which clients may use
 * what. One of a few threads of its own does each call, under the ids of the caller: the kernel
 * checks modes, ACLs, sticky bits and quotas as for a local user. (io_uring would do requests under
 * the ids of the ring's creator.) File handles contain what the kernel's open_by_handle_at takes,
 * and a MAC; their first byte distinguishes them from capabilities, and their key is another one.
 *
 *   call.c     a call from its arrival to its reply; access checks
 *   work.c     the threads, and the ids that they act under
 *   export.c   the table: folders, overlaps, reloads
 *   fh.c       file handles
 *   file.c     open files that are kept for READ, WRITE and COMMIT
 *   attr.c, name.c, make.c, dir.c, path_data.c   the procedures
 *   drc.c      the reply cache for retransmissions
 *   mount.c    MOUNT
 *   rpcbind.c  registers with rpcbind
 *   util.c     what the procedures share
 *
 * Caveats:
 * - Only one file system per export: file systems mounted below are not reached.
 * - If a local process changes a directory during a call, the call's attributes before and after
 *   may look as if the call had made both changes.
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
	size_t po_replies; /* bytes of the reply cache */
	uint32_t po_names_keep_ms;
};
/* Capabilities that the threads need (priv_keep). */
uint64_t path_capabilities(void);
/* Makes the metrics; before other threads run. */
void path_metrics_init(void);
/* Starts the threads: after priv_drop, on the thread that has kept path_capabilities(). Returns 0,
 * or a negative errno and one line in err; then the process ends. */
int path_open(struct path **out, const struct path_opts *o, char *err, size_t errlen);
/* Loads the table: once the store is open, before the first call. Returns as path_open. */
int path_start(struct path *p, const uint8_t key[CAP_KEY_LEN], const uint8_t ds_uuid[16], char *err,
	       size_t errlen);
/* Reads the file of exports again; on an error, which it logs, the old table stays. Blocks. */
void path_reload(struct path *p);
/* Registers with the rpcbind of this machine, on a thread that then ends: ports by IPv4 and IPv6,
 * in host order; 0: not served there. path_rpcbind_end unregisters, and blocks. */
void path_rpcbind(uint16_t port4, uint16_t port6);
void path_rpcbind_end(void);

/* How many files are kept open. */
double path_files_gauge(void);

/* True when a file handle belongs to this service, by its first byte. */
bool path_is_fh(const uint8_t *fh, uint32_t len);
/* True when the handle's MAC is right: this server made it. */
bool path_fh_ours(struct path *p, const uint8_t *fh, uint32_t len);
/* Does a call whose first argument is such a handle. */
void path_nfs3(struct path *p, struct rpc_call *call);
/* MOUNT, version 3. */
void path_mount3(struct path *p, struct rpc_call *call);
#endif
