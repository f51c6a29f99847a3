/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nfs3ds.h - generic data servers, inside dsc: any NFSv3 server, loosely coupled (RFC 8435 section
 * 2.2; docs/generic.md).
 *
 * To the rest of the daemon such a server is like a weft data server: it has a number, lives or
 * not, and answers control requests (ds_reg_call). Here they are done by NFSv3, as root. Its
 * objects are files that were made ahead, in a directory that belongs to weft. An object's row says
 * which file it is, and the number of the last order that was done on it, because the server cannot
 * remember that.
 *
 * Rows (NS_T_NFS3DS): 'S' and the uuid, a server; 'P', server and number, a file made ahead; 'O',
 * server and object, an object. Numbers of a server's files are never used twice.
 *
 * Owners are synthetic: made from a file's number and its fence epoch, by a keyed permutation.
 * Owners of two epochs differ, and no client can tell the next one.
 *
 * All of it runs on the first loop, except for rows, which are read and written in any transaction.
 */
#ifndef MDS_DSC_GEN_H
#define MDS_DSC_GEN_H
#include "mds/dataserver/ds_reg_int.h"
#include "proto/nfs3.h"

#define NFS3DS_RPC_MS	5000
#define NFS3DS_DIR_BITS 12 /* files of one subdirectory: 4096 */
#define NFS3DS_NAME	24
#define NFS3DS_MODE	0640
#define NFS3DS_PATH	256

struct nfs3ds_fh {
	uint32_t f_len; /* 0: none */
	uint8_t f_data[NFS3_FHSIZE];
};

/* One NFSv3 call. The caller keeps the memory until gr_done. */
struct nfs3ds_rpc {
	struct rpc_req gr_req;
	void (*gr_done)(struct nfs3ds_rpc *r);
	uint32_t gr_proc;
	uint32_t gr_uid, gr_gid; /* the caller's numbers; 0: root */
	/* SETATTR: only if the file last changed at gr_guard (RFC 1813 section 3.3.2). */
	bool gr_guarded;
	struct timespec gr_guard;
	/* Results: gr_err is the transport's error, or -EPROTO; if 0, gr_status counts. */
	int gr_err;
	uint32_t gr_status;
	struct nfs3ds_fh gr_fh; /* LOOKUP, CREATE, MKDIR; none if the server did not return it */
	/* Of the object that the call is about; LOOKUP, CREATE, MKDIR: of the one that was found or
	 * made. */
	bool gr_has_attr;
	struct nfs3_fattr gr_attr;
	uint64_t gr_total, gr_avail; /* FSSTAT */
	uint32_t gr_rtmax, gr_wtmax; /* FSINFO */
};
void nfs3ds_getattr(struct rpc_client *cl, struct nfs3ds_rpc *r, const struct nfs3ds_fh *fh);
void nfs3ds_setattr(struct rpc_client *cl, struct nfs3ds_rpc *r, const struct nfs3ds_fh *fh,
		    const struct nfs3_sattr *sa);
void nfs3ds_lookup(struct rpc_client *cl, struct nfs3ds_rpc *r, const struct nfs3ds_fh *dir,
		   const char *name);
void nfs3ds_create(struct rpc_client *cl, struct nfs3ds_rpc *r, const struct nfs3ds_fh *dir,
		   const char *name, const struct nfs3_sattr *sa);
void nfs3ds_mkdir(struct rpc_client *cl, struct nfs3ds_rpc *r, const struct nfs3ds_fh *dir,
		  const char *name);
void nfs3ds_remove(struct rpc_client *cl, struct nfs3ds_rpc *r, const struct nfs3ds_fh *dir,
		   const char *name);
void nfs3ds_rmdir(struct rpc_client *cl, struct nfs3ds_rpc *r, const struct nfs3ds_fh *dir,
		  const char *name);
void nfs3ds_commit(struct rpc_client *cl, struct nfs3ds_rpc *r, const struct nfs3ds_fh *fh);
void nfs3ds_fsstat(struct rpc_client *cl, struct nfs3ds_rpc *r, const struct nfs3ds_fh *fh);
void nfs3ds_fsinfo(struct rpc_client *cl, struct nfs3ds_rpc *r, const struct nfs3ds_fh *fh);
/* 0, -ETIMEDOUT.., or the status as an errno: one errno for both. */
int nfs3ds_errno(const struct nfs3ds_rpc *r);
/* Are the attributes of an object's GETATTR usable? */
bool nfs3ds_sized(const struct nfs3ds_rpc *r);
/* Returns why the call failed, for people. */
const char *nfs3ds_why(const struct nfs3ds_rpc *r);

/* Makes one file (nfs3ds_file.c): creates or finds it, and gives it the owners, mode and times of a
 * new object, on stable storage. */
struct nfs3ds_file {
	struct nfs3ds_rpc gf_rpc;
	struct rpc_client *gf_client;
	struct nfs3ds_fh gf_dir;
	char gf_name[NFS3DS_NAME];
	uint32_t gf_uid, gf_gid;
	void (*gf_done)(struct nfs3ds_file *f);
	/* Results */
	int gf_err;	     /* -EPERM: the server does not let root give files away */
	const char *gf_what; /* the call that failed */
	struct nfs3ds_fh gf_fh;
};
void nfs3ds_file_make(struct nfs3ds_file *f);

struct nfs3ds_fill;
struct nfs3ds_copy;
struct gen {
	struct ds_reg *gn_dsc;
	uint32_t gn_id;
	uint8_t gn_uuid[16];
	uint8_t gn_key[32];
	char gn_path[NFS3DS_PATH];
	struct nfs3ds_fh gn_dir;   /* weft's directory on the server */
	_Atomic unsigned gn_ready; /* files made ahead; a hint */
	_Atomic bool gn_said;	   /* the log says that none can be made */
	/* it was killed and is admitted: it must join again */
	_Atomic bool gn_rejoin;
	_Atomic bool gn_forgetting; /* it joins no more */
	struct gen *gn_next;	    /* see d_forgotten */
	pthread_mutex_t gn_copy_lock;
	struct nfs3ds_copy *gn_copies; /* under gn_copy_lock, with their notes */
	_Atomic unsigned gn_ncopies;
	/* For the first loop only: */
	struct rpc_client *gn_client;
	bool gn_up;	      /* it answers: orders may go */
	unsigned gn_failed;   /* questions in a row without an answer */
	uint64_t gn_asked_ms; /* when the last one was sent */
	bool gn_asking, gn_filling;
	struct nfs3ds_rpc gn_rpc;
	struct loop_timer gn_timer;
	uint64_t gn_sub; /* the subdirectory that was last asked for */
	struct nfs3ds_fh gn_sub_fh;
	/* The server may still do calls for files made ahead with lower numbers, although no
	 * request waits for them. */
	uint64_t gn_doubtful;
};

/* nfs3ds.c: rows, names, owners */
struct nfs3ds_object {
	uint64_t go_number, go_done;
	struct nfs3ds_fh go_fh;
};
#define NFS3DS_OBJECT_KEY 17
void nfs3ds_object_key(uint32_t ds, const struct cap_object *o, uint8_t key[NFS3DS_OBJECT_KEY]);
/* -ENOENT, -EIO */
int nfs3ds_object_get(struct kv_txn *t, const uint8_t key[NFS3DS_OBJECT_KEY],
		      struct nfs3ds_object *o);
/* W */
int nfs3ds_object_put(struct kv_txn *t, const uint8_t key[NFS3DS_OBJECT_KEY],
		      const struct nfs3ds_object *o);
void nfs3ds_owner(const struct gen *g, uint64_t number, uint32_t epoch, uint32_t *uid,
		  uint32_t *gid);
void nfs3ds_name(uint64_t number, char dir[NFS3DS_NAME], char name[NFS3DS_NAME]);
/* Calls fn for the files made ahead on a server, in order, also for files that are being made (len
 * 0). fn returns non-zero to stop. */
int nfs3ds_pool_each(struct kv_txn *t, uint32_t ds,
		     int (*fn)(void *arg, uint64_t number, const struct nfs3ds_fh *fh), void *arg);
/* W */
int nfs3ds_pool_put(struct kv_txn *t, uint32_t ds, uint64_t number, const struct nfs3ds_fh *fh);
/* W: takes n numbers */
int nfs3ds_next_take(struct kv_txn *t, const struct gen *g, unsigned n, uint64_t *first);
int nfs3ds_server_put(struct kv_txn *t, const struct gen *g, uint64_t next); /* W */
int nfs3ds_server_del(struct kv_txn *t, const struct gen *g);		     /* W */
int nfs3ds_next_get(struct kv_txn *t, const struct gen *g, uint64_t *next);
/* Reads some rows of a server's files: those made ahead first, then objects. gw_number 0: the row
 * is damaged. Returns how many, or -errno. */
struct nfs3ds_row {
	uint8_t gw_key[NFS3DS_OBJECT_KEY];
	unsigned gw_len;
	uint64_t gw_number;
};
int nfs3ds_rows_some(struct kv_txn *t, uint32_t ds, struct nfs3ds_row *out, unsigned max);
int nfs3ds_load(struct ds_reg *d);
struct gen *nfs3ds_new(struct ds_reg *d, const uint8_t uuid[16]);
void nfs3ds_free(struct gen *g);

/* nfs3ds_pool.c: whether the server lives, and the files made ahead. On the first loop. */
void nfs3ds_start(struct gen *g);
void nfs3ds_stop(struct gen *g);

/* nfs3ds_copy.c: makes an object equal to another one. On the first loop; like nfs3ds_call. */
void nfs3ds_rebuild(struct gen *g, struct ds_reg_ctl *c);
/* A size is set, or the object is deleted: ends its copy. False: a window is being written, try
 * later. */
bool nfs3ds_copy_end(struct gen *g, const uint8_t key[NFS3DS_OBJECT_KEY]);
void nfs3ds_copies_free(struct gen *g);
bool nfs3ds_copies_busy(const struct gen *g); /* a step is under way */
/* Any loop: call it for each write. True: the write waits for a window, and is sent after it. */
bool nfs3ds_copy_note(struct ds_reg *d, uint32_t id, const struct ds_reg_handle *h,
		      struct ds_reg_io *io);
/* A write that was noted ahead of the copy is over. Any loop. */
void nfs3ds_copy_noted(struct ds_reg_io *io);
/* ds_reg_data.c: sends a write of the copy itself; sends a write that has waited. */
void nfs3ds_copy_write(struct ds_reg *d, uint32_t id, const struct ds_reg_handle *h,
		       struct ds_reg_io *io, uint32_t timeout_ms);
void nfs3ds_copy_let_go(struct ds_reg_io *io);
/* nfs3ds_forget.c: see ds_reg_forget. Any thread. */
void nfs3ds_forget(struct gen *g, struct ds_reg_command *w);

/* nfs3ds_checksum.c: computes checksums of an object (proto/ctl.x, SUM). On the first loop; like
 * nfs3ds_call. */
void nfs3ds_sum(struct gen *g, struct ds_reg_ctl *c);

/* nfs3ds_call.c: ends a request */
void nfs3ds_answer(struct ds_reg_ctl *c, ctl_response *res);
void nfs3ds_refuse(struct ds_reg_ctl *c, ctl_status status);
struct cap_object nfs3ds_object_of(const ctl_object *o);
/* Finds the object that o names, and the handle to write it in that epoch. 0, -ENOENT, -EIO. */
int nfs3ds_object_find(struct gen *g, const ctl_object *o, uint32_t epoch,
		       uint8_t key[NFS3DS_OBJECT_KEY], struct nfs3ds_object *out,
		       struct ds_reg_handle *h);
/* nfs3ds_call.c: does by NFSv3 what ds_reg_call asks for. On the first loop; ends with
 * ds_reg_call_end. */
void nfs3ds_call(struct gen *g, struct ds_reg_ctl *c);
#endif
