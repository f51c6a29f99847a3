/* SPDX-License-Identifier: Apache-2.0 */
/* path_int.h - what the files of ds/path share. */
#ifndef DS_PATH_PATH_INT_H
#define DS_PATH_PATH_INT_H
#include "base/ask.h"
#include "base/hash.h"
#include "base/metrics.h"
#include "common/exports.h"
#include "ds/path/path.h"
#include "ds/store/store.h"
#include <sys/stat.h>

#define PATH_FH_KIND	   0x21 /* kind 2, version 1; a capability's kind is 1 or 3 (proto/cap.c) */
#define PATH_FH_KERNEL_MAX 48	/* bytes of the kernel's handle */
#define PATH_LOCKS	   1024u
#define PATH_GIDS	   RPC_MAX_GIDS

/* ---- work.c ---- */

struct path_job {
	/* on a thread of path/, under the server's own ids; hands the job on */
	void (*pj_run)(struct path_job *j);
	struct path_job *pj_next;
};
struct path_ids {
	uint32_t id_uid, id_gid, id_ngids;
	uint32_t id_gids[PATH_GIDS];
};
struct path_work;
int path_work_open(struct path_work **out, unsigned threads, void (*idle)(void *arg), void *arg,
		   char *err, size_t errlen);
/* Any thread. False: too many wait. */
bool path_work_submit(struct path_work *w, struct path_job *j);
/* Runs fn on a thread of path/ and waits for it. Not on such a thread. */
void path_work_wait(struct path_work *w, void (*fn)(void *arg), void *arg);
/* On a thread of path/: from now on it acts under these ids; NULL: the server's. Returns 0, or a
 * negative errno, and then it acts as nobody. */
int path_become(const struct path_ids *ids);

/* ---- fh.c ---- */

struct path_fh {
	int32_t fh_type;
	uint16_t fh_export;
	uint8_t fh_len, fh_zero; /* no padding: compared as bytes */
	uint8_t fh_kernel[PATH_FH_KERNEL_MAX];
};
/* False: not of this server, or changed. */
bool path_fh_read(struct path *p, const uint8_t *in, uint32_t len, struct path_fh *fh);
/* Returns its length, at most NFS3_FHSIZE. */
uint32_t path_fh_write(struct path *p, const struct path_fh *fh, uint8_t out[NFS3_FHSIZE]);
/* Of the file at dirfd and name (name "": dirfd itself); does not follow a link. */
int path_fh_of(int dirfd, const char *name, uint16_t export, struct path_fh *fh);
/* Returns an O_PATH descriptor, or a negative errno; under the server's own ids. */
int path_fh_open(int rootfd, const struct path_fh *fh);

/* ---- export.c ---- */

struct path_export {
	const struct exp *x_exp;
	int x_fd; /* its folder, open for reading; -1: not served */
	dev_t x_dev;
	ino_t x_ino;
	uint64_t x_fsid;
	struct path_fh x_fh;
};
struct path_table {
	atomic_uint t_refs;
	struct exp_table *t_exports;
	struct path_export t_x[EXP_MAX];
};
struct path_table *path_table_get(struct path *p);
void path_table_put(struct path_table *t);
/* Returns 1: the folder with this device and inode is fd's, or above it; 0: it is not; or a
 * negative errno. */
int path_is_above(dev_t dev, ino_t ino, int fd);
/* Under the server's own ids. */
int path_table_load(struct path *p, struct path_table **out, char *err, size_t errlen);

struct path {
	struct path_work *p_work;
	char *p_exports, *p_store;
	uint8_t p_key[CAP_KEY_LEN];
	uint8_t p_uuid[16];
	pthread_mutex_t p_lock; /* guards p_table */
	struct path_table *p_table;
	_Atomic uint64_t p_generation;
	uint32_t p_names_keep_ms;
	struct ask *p_ask_names;
	struct path_files *p_files;
	struct path_drc *p_drc;
	struct path_mounts *p_mounts;
	_Atomic uint64_t p_verifier;
	/* by inode: held over attributes before, the change, attributes after */
	pthread_mutex_t p_wcc[PATH_LOCKS];
};

/* ---- file.c: open files ---- */

struct path_files;
struct path_file {
	struct hash_link pf_link;
	struct path_file *pf_prev, *pf_next; /* unused files, oldest first */
	unsigned pf_refs;
	bool pf_dropped; /* not in the table any more */
	struct path_fh pf_fh;
	uint64_t pf_used_ns;
	int pf_path;		       /* O_PATH */
	_Atomic int pf_read, pf_write; /* -1 until needed */
};
int path_files_open(struct path_files **out);
/* Under the server's own ids. Returns 0 or a negative errno. */
int path_file_get(struct path *p, const struct path_export *x, const struct path_fh *fh,
		  struct path_file **out);
/* Returns a descriptor for reading or writing, which belongs to the file, or a negative errno;
 * under the server's own ids. */
int path_file_fd(struct path_file *f, bool write);
void path_file_put(struct path *p, struct path_file *f);
/* The file may have been removed: it is not kept open. */
void path_file_forget(struct path *p, const struct path_fh *fh);
/* Closes files that were not used for a while; idle threads call it. */
void path_files_idle(void *arg /* struct path */);

/* ---- drc.c ---- */

struct path_call;
struct path_drc;
void path_drc_metrics(void);
int path_drc_open(struct path_drc **out, size_t bytes);
enum path_drc_verdict {
	PATH_DRC_NEW,	/* do it, and call path_drc_done */
	PATH_DRC_WAITS, /* another thread is doing it: its reply answers this call, too */
	PATH_DRC_KNOWN, /* the reply is in the call */
};
enum path_drc_verdict path_drc_begin(struct path_drc *d, struct path_call *c);
/* Keeps the reply, and answers the calls that wait for it, each on its loop. keep false: the call
 * was not done. */
void path_drc_done(struct path_drc *d, struct path_call *c, bool keep);

/* ---- call.c ---- */

struct path_proc {
	void (*pr_run)(struct path_call *c); /* on a thread of path/; puts the whole reply */
	/* shape of the result when it fails: enum path_shape */
	unsigned pr_shape;
	bool pr_once; /* its reply is cached */
	bool pr_changes;
};
enum path_shape { PATH_PLAIN, PATH_POST, PATH_WCC, PATH_WCC_WCC, PATH_POST_WCC };

struct path_drc_entry;
struct path_call {
	struct path_job pcl_job;
	struct loop_msg pcl_msg;
	struct ask_wait pcl_wait;
	struct ds_buf_wait pcl_bufwait;
	struct path *pcl_path;
	struct rpc_call *pcl_rpc;
	const struct path_proc *pcl_proc; /* NULL: MOUNT */
	struct xdr_in *pcl_in;
	struct xdr_out *pcl_out;
	struct path_table *pcl_table;
	struct ask_val *pcl_names;
	/* some export depends on a name that cannot be found out now */
	bool pcl_unknown;
	const struct path_export *pcl_x; /* of the first handle */
	const struct exp_rule *pcl_rule;
	struct path_ids pcl_ids;
	struct path_fh pcl_fh;
	uint8_t pcl_addr[16];
	uint16_t pcl_port;
	enum exp_tls pcl_tls;
	uint64_t pcl_start_ns;
	bool pcl_garbage;
	int pcl_fd; /* the first handle's object, O_PATH */
	struct stat pcl_st;
	struct path_drc_entry *pcl_entry;
	struct path_call *pcl_next; /* calls that wait for one reply */
	/* READ */
	struct ds_buf *pcl_buf;
	uint64_t pcl_off;
	uint32_t pcl_count, pcl_got;
	bool pcl_eof, pcl_put_data;
};
extern const struct path_proc path_procs[NFS3_NPROCS];
extern struct metric *path_m_read_bytes, *path_m_write_bytes;

/* Acts under the caller's ids. False: that failed, and the reply is SERVERFAULT. */
bool path_as_caller(struct path_call *c);
void path_as_server(struct path_call *c);
enum nfsstat3 path_status(int err);
/* The reply is complete: sends it on the call's loop. Any thread. */
void path_call_done(struct path_call *c);
/* Puts a whole reply: a status that is not OK, and its shape without attributes. */
void path_fail(struct path_call *c, enum nfsstat3 st);
void path_fattr(const struct path_export *x, const struct stat *st, struct nfs3_fattr *a);
/* post_op_attr of a descriptor as it is now; fd -1, or on an error: no attributes. */
void path_put_post(struct path_call *c, int fd);
void path_put_stat(struct path_call *c, const struct stat *st);
/* The export of a handle's number, and its rule for this call; NULL: this peer may not use it, or
 * pcl_unknown. */
const struct path_export *path_export_of(struct path_call *c, uint16_t id,
					 const struct exp_rule **rule);
/* RPC_AUTH_OK when the rule allows the call's flavour, its connection's TLS and its port; else the
 * reason. */
enum rpc_auth_stat path_auth(const struct path_call *c, const struct exp_rule *r);

/* Attributes before and after a change, with the lock that keeps other calls of this server out in
 * between. */
struct path_wcc {
	struct path *w_path;
	int w_fd;
	unsigned w_lock;
	bool w_before, w_after, w_locked;
	struct stat w_pre, w_post;
};
void path_wcc_begin(struct path_call *c, struct path_wcc *w, int fd);
/* For two directories at once, in an order that cannot deadlock. */
void path_wcc_begin2(struct path_call *c, struct path_wcc *a, int afd, struct path_wcc *b, int bfd);
void path_wcc_end(struct path_wcc *w);
void path_wcc_end2(struct path_wcc *a, struct path_wcc *b);
void path_wcc_put(struct path_call *c, const struct path_wcc *w);

/* A name of the arguments, NUL-terminated; n_status: NFS3_OK, or why it is not a valid name. */
struct path_name {
	char n_name[NAME_MAX + 1];
	enum nfsstat3 n_status;
};
void path_get_name(struct path_call *c, struct path_name *n);
static inline bool path_is_dots(const struct path_name *n)
{
	return n->n_name[0] == '.' && (!n->n_name[1] || (n->n_name[1] == '.' && !n->n_name[2]));
}
/* Opens the file under a name in a directory with O_PATH; follows no link and enters no mount.
 * Returns a descriptor or a negative errno; -EXDEV: something is mounted there. */
int path_open_at(int dirfd, const char *name);
/* "/proc/self/fd/N" */
#define PATH_FD_LEN 32
const char *path_of_fd(char buf[PATH_FD_LEN], int fd);
/* access(2) under the ids in force: 0 or a negative errno. */
int path_access(int fd, int mode);
/* As the caller: whether it may read or write a file. Returns 0 or a negative errno. The modes
 * decide, but the owner always may, because a descriptor that was opened before a chmod goes on
 * working; and a file that may be executed may be read (RFC 1813 section 4.4). */
int path_may(struct path_call *c, int fd, const struct stat *st, bool write);
/* Makes an object durable, and the names in it if it is a directory. As the server; returns 0 or a
 * negative errno. */
int path_sync(struct path_call *c, int fd);
/* A write or its verifier failed to become durable: changes the write verifier, so that clients
 * send uncommitted data again. */
void path_sync_failed(struct path *p, int err);

/* attr.c */
void path_getattr(struct path_call *c);
void path_setattr(struct path_call *c);
void path_access_proc(struct path_call *c);
void path_readlink(struct path_call *c);
void path_fsstat(struct path_call *c);
void path_fsinfo(struct path_call *c);
void path_pathconf(struct path_call *c);
/* As the caller: sets the attributes of sa; st: of fd. Returns 0 or a negative errno. */
int path_apply(struct path_call *c, int fd, const struct stat *st, const struct nfs3_sattr *sa);
/* name.c */
void path_lookup(struct path_call *c);
void path_remove(struct path_call *c);
void path_rmdir(struct path_call *c);
void path_rename(struct path_call *c);
void path_link(struct path_call *c);
/* make.c */
void path_create(struct path_call *c);
void path_mkdir(struct path_call *c);
void path_symlink(struct path_call *c);
void path_mknod(struct path_call *c);
/* dir.c */
void path_readdir(struct path_call *c);
void path_readdirplus(struct path_call *c);
/* path_data.c */
void path_read(struct path_call *c);
void path_write(struct path_call *c);
void path_commit(struct path_call *c);
/* On the loop, before the call is submitted: parses the arguments. False: garbage. */
bool path_read_args(struct path_call *c);
/* On the loop: puts the reply of a READ that succeeded. */
void path_read_reply(struct path_call *c);

/* mount.c */
struct path_mounts;
int path_mounts_open(struct path_mounts **out);
void path_mount_run(struct path_job *j);
#endif
