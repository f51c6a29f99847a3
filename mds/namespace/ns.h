/*
 * ns.h - the name space over kv transactions: inodes, directory entries, extended attributes,
 * orphans, orders, clients.
 *
 * ns knows transactions and no protocol. Functions that read take any kv_txn. Functions that write
 * (marked W) run inside a mutation (kv_op.o_run): they check everything before their first put, so
 * a negative errno means nothing was written. Times are passed in by the caller (one clock reading
 * per mutation), and are CLOCK_REALTIME.
 *
 * Errors: -ENOENT, -EEXIST, -ENOTDIR, -EISDIR, -ENOTEMPTY, -EACCES, -EPERM, -ENAMETOOLONG, -EINVAL,
 * -EXDEV, -EMLINK, -ESTALE (no such inode), -ENODATA (no such xattr), -E2BIG, -ENOSPC, -EIO
 * (damaged record), -EPROTONOSUPPORT (an ACL that this file cannot have).
 *
 * An inode read from a transaction carries its ACL, if it has one: who may do what is decided from
 * the inode alone.
 */
#ifndef MDS_NS_H
#define MDS_NS_H
#include "kv/kv.h"
#include <stdbool.h>
#include <stdint.h>

#define NS_ROOT_INO	   1
#define NS_NAME_MAX	   255
#define NS_LINK_MAX	   65000
#define NS_SYMLINK_MAX	   4095
#define NS_XATTR_NAME_MAX  255
#define NS_XATTR_VALUE_MAX 65536
#define NS_BLOB_MAX	   2048 /* the layout map inside an inode */

/* NFSv4's nfs_ftype4 numbers, so that nobody translates. */
enum ns_type {
	NS_REG = 1,
	NS_DIR = 2,
	NS_BLK = 3,
	NS_CHR = 4,
	NS_LNK = 5,
	NS_SOCK = 6,
	NS_FIFO = 7
};

struct ns_time {
	int64_t t_sec;
	uint32_t t_nsec;
};
static inline bool ns_time_after(const struct ns_time *a, const struct ns_time *b)
{
	return a->t_sec != b->t_sec ? a->t_sec > b->t_sec : a->t_nsec > b->t_nsec;
}

#define NS_MAX_GIDS 16
/* Sorted. */
struct ns_groups {
	uint32_t g_n, g_gid[];
};
struct ns_cred {
	uint32_t cr_uid, cr_gid, cr_ngids;
	uint32_t cr_gids[NS_MAX_GIDS];
	/* instead of cr_gids, however many; its owner keeps it as long as the credential is used */
	const struct ns_groups *cr_groups;
	bool cr_not_root_group; /* group 0 in cr_groups does not count */
};
bool ns_in_group(const struct ns_cred *cr, uint32_t gid);

/* Rights: NFSv4's access mask bits (RFC 8881 section 6.2.1.3). In a directory READ lists, WRITE
 * adds files and APPEND adds directories. */
enum {
	NS_R_READ = 1,
	NS_R_WRITE = 2,
	NS_R_APPEND = 4,
	NS_R_READ_XATTRS = 8,
	NS_R_WRITE_XATTRS = 0x10,
	NS_R_EXECUTE = 0x20,
	NS_R_DELETE_CHILD = 0x40,
	NS_R_READ_ATTRS = 0x80,
	NS_R_WRITE_ATTRS = 0x100,
	NS_R_RETENTION = 0x200,
	NS_R_RETENTION_HOLD = 0x400,
	NS_R_DELETE = 0x10000,
	NS_R_READ_ACL = 0x20000,
	NS_R_WRITE_ACL = 0x40000,
	NS_R_WRITE_OWNER = 0x80000,
	NS_R_SYNCHRONIZE = 0x100000,
	NS_R_ALL = 0x1f07ff
};
/* ACEs (section 6.2.1): types and flags have the protocol's numbers. */
enum { NS_ACE_ALLOW = 0, NS_ACE_DENY = 1 };
enum { NS_WHO_OWNER = 0, NS_WHO_GROUP = 1, NS_WHO_EVERYONE = 2, NS_WHO_UID = 3, NS_WHO_GID = 4 };
enum {
	NS_ACE_FILE = 1,
	NS_ACE_DIR = 2,
	NS_ACE_NO_PROPAGATE = 4,
	NS_ACE_INHERIT_ONLY = 8,
	NS_ACE_INHERITED = 0x80
};
/* of the whole ACL (section 6.4.3.2) */
enum { NS_ACL_AUTO = 1, NS_ACL_PROTECTED = 2, NS_ACL_DEFAULTED = 4 };
#define NS_ACL_SET_MAX 250 /* ACEs that may be set */
#define NS_ACL_MAX     256 /* that may be stored: setting a mode adds a few */
struct ns_ace {
	uint8_t e_type, e_who;
	uint16_t e_flags;
	uint32_t e_mask, e_id; /* e_id: of NS_WHO_UID and NS_WHO_GID, else 0 */
};
struct ns_acl {
	uint32_t a_flags, a_n;
	struct ns_ace a_ace[NS_ACL_MAX];
};

struct ns_inode {
	uint64_t i_ino;
	uint8_t i_type;
	uint16_t i_mode; /* 07777 */
	uint16_t i_incarnation;
	uint32_t i_nlink, i_uid, i_gid;
	uint64_t i_size, i_used; /* directories: entries * 64 */
	/* RFC 8881 section 5.8.1.4: rises with every change, never goes back */
	uint64_t i_change;
	/* directories: the parent; else the directory it was created in, or moved to last */
	uint64_t i_parent;
	struct ns_time i_atime, i_mtime, i_ctime, i_btime;
	uint32_t i_rdev_major, i_rdev_minor;
	uint64_t i_verifier; /* EXCLUSIVE4(_1) create */
	uint32_t i_entries;  /* directories: entries, without . and .. */
	bool i_has_policy;   /* directories: i_blob is a policy; else it is inherited */
	bool i_has_xattrs;
	/* Files: the layout map; directories: the policy (both opaque here); symlinks: the target.
	 * Points into the transaction, or to the caller's memory. */
	struct kv_slice i_blob;
	/* as stored, and as long good as i_blob; empty: the mode says it all */
	struct kv_slice i_acl;
};

/* Format */
struct ns_super {
	uint8_t su_uuid[16]; /* of the cluster (file system) */
	uint16_t su_fs, su_incarnation;
	/* boot epoch: rises with every start; committed before anything is served */
	uint64_t su_boot;
	/* random, of this boot: another store with the same number has another one; 0: a boot of
	 * before there were any */
	uint64_t su_boot_id;
	uint8_t su_fh_key[16];	/* MAC of MDS file handles */
	uint8_t su_dir_key[16]; /* keyed hash of names */
	uint64_t su_ino_next;	/* first number not reserved */
	uint32_t su_ds_next, su_client_next;
	uint64_t su_order_next;
};
/* Formats an empty store (root directory owned by 0:0 mode 0755), raises the boot epoch and commits
 * it. Blocks: start-up only. */
struct ns;
int ns_open(struct ns **out, struct kv *kv, char *err, size_t errlen);
void ns_close(struct ns *ns);
/* boot.c: time goes one way (docs/recovery.md). Whether the store has been where another says that
 * it saw it: in this boot, with this identity (0: not known). 0; -EOVERFLOW: the store has not come
 * so far; -ESTALE: that boot of it was another one. */
int ns_boot_check(const struct ns *ns, struct kv_txn *t, uint64_t boot, uint64_t id);
/* A number of a boot in this line of time. */
bool ns_boot_here(const struct ns *ns, uint64_t boot);
/* Whether an order of this number can have been given. */
int ns_order_check(struct kv_txn *t, uint64_t number);
/* W: the store was put back. All numbers go on above those of every line of time that somebody saw;
 * boot is the highest number of a boot that was seen. Before anything is given out. -EMFILE: it was
 * put back too often. */
int ns_restore(struct ns *ns, struct kv_txn *t, uint64_t boot);
/* After ns_restore: the first fence epoch of this line of time. */
uint32_t ns_line_epoch(const struct ns *ns);
/* No file of this line of time has a lower number, but those that were in the store when it was put
 * back; 0: it never was. */
uint64_t ns_line_ino(const struct ns *ns);
const struct ns_super *ns_super(const struct ns *ns);
struct kv *ns_kv(const struct ns *ns);

/* Inodes */
/* -ESTALE */
int ns_get(struct ns *ns, struct kv_txn *t, uint64_t ino, struct ns_inode *out);
int ns_lookup(struct ns *ns, struct kv_txn *t, uint64_t dir, const char *name, size_t len,
	      uint64_t *ino, uint8_t *type);
int ns_name_check(const char *name, size_t len); /* 0, -EINVAL (empty, slash, NUL), -ENAMETOOLONG;
						    "." and ".." are -EINVAL too */

/* NFSv4 access bits (RFC 8881 section 18.1.1) */
enum {
	NS_A_READ = 1,
	NS_A_LOOKUP = 2,
	NS_A_MODIFY = 4,
	NS_A_EXTEND = 8,
	NS_A_DELETE = 16,
	NS_A_EXECUTE = 32
};
/* mode bits: 4 read, 2 write, 1 execute/search. Root passes (execute of a file: any x bit). 0 or
 * -EACCES. */
int ns_permission(const struct ns_inode *i, const struct ns_cred *cr, unsigned rwx);
/* All of these NS_R_ rights, by ACL or mode: 0 or -EACCES. What the owner, root and the mode stand
 * for: docs/acl.md. */
int ns_access(const struct ns_inode *i, const struct ns_cred *cr, uint32_t want);
/* Reading data: whoever may execute a file may read it (section 6.2.1.3.1). 0 or -EACCES. */
int ns_may_read(const struct ns_inode *i, const struct ns_cred *cr);
/* Taking the name of i out of dir (section 6.2.1.3.2, and the sticky bit): 0, -EACCES, -EPERM. */
int ns_may_unlink(const struct ns_inode *dir, const struct ns_inode *i, const struct ns_cred *cr);
/* The ACL: the stored one, or what the mode says. */
void ns_acl_get(const struct ns_inode *i, struct ns_acl *out);

/* Directory listing. Cookies are > 2, unique and stable. fn returns 0 to go on, 1 to stop before
 * this entry. */
struct ns_dirent {
	uint64_t d_cookie, d_ino;
	uint8_t d_type;
	const char *d_name;
	size_t d_len;
};
/* Entries with cookie > after. *eof true when the end was reached. */
int ns_readdir(struct ns *ns, struct kv_txn *t, uint64_t dir, uint64_t after,
	       int (*fn)(void *arg, const struct ns_dirent *d), void *arg, bool *eof);

/* What changed in a directory (change_info4). */
struct ns_cinfo {
	uint64_t c_before, c_after;
};

/* W: creates a file of any type. mode etc. in attr: i_type, i_mode, i_uid, i_gid, i_size(0),
 * i_rdev_*, i_verifier, times from now, i_blob (layout map or symlink target). Setgid directories
 * give their group (and the bit, to directories). Needs write+search permission on dir by cr.
 * blob_fn, when set, is called inside the transaction for regular files with the new inode (number
 * known) and the directory's effective policy, and puts the map into buf. out: the new inode;
 * out->i_blob points into out_blob (caller's, NS_BLOB_MAX). */
struct ns_create_args {
	uint64_t a_dir;
	const char *a_name;
	size_t a_len;
	const struct ns_cred *a_cred;
	struct ns_inode a_attr;
	/* NS_S_ATIME, NS_S_MTIME, NS_S_BTIME: those of a_attr count; else a_now */
	unsigned a_times;
	/* NULL: none given; what the directory's ACL passes on is inherited (section 6.4.3) */
	const struct ns_acl *a_acl;
	bool a_mode_default; /* i_mode was not asked for: what is inherited decides */
	bool a_has_umask;    /* RFC 8275: a_umask applies where nothing is inherited */
	uint16_t a_umask;
	struct ns_time a_now;
	int (*a_map)(void *arg, const struct ns_inode *ino, struct kv_slice policy, uint8_t *buf,
		     size_t max, size_t *len);
	void *a_map_arg;
};
int ns_create(struct ns *ns, struct kv_txn *t, const struct ns_create_args *a, struct ns_inode *out,
	      uint8_t *out_blob, struct ns_cinfo *ci);
/* W */
int ns_link(struct ns *ns, struct kv_txn *t, uint64_t ino, uint64_t dir, const char *name,
	    size_t len, const struct ns_cred *cr, struct ns_time now, struct ns_cinfo *ci);
/* W: removes a file or an empty directory (want: 0 either, NS_DIR only a directory, NS_REG only a
 * non-directory). Sticky rule applied. gone->i_nlink 0 when it was the last link: then, with
 * keep_open(arg, ino) true the inode moves to an orphan key, else it is freed and, for regular
 * files, the deletion orders are queued by free_map (called in the transaction). */
struct ns_free_ops {
	bool (*f_keep_open)(void *arg, uint64_t ino);
	/* queues deletion orders */
	int (*f_free_map)(void *arg, struct kv_txn *t, const struct ns_inode *i);
	void *f_arg;
};
int ns_remove(struct ns *ns, struct kv_txn *t, uint64_t dir, const char *name, size_t len,
	      unsigned want, const struct ns_cred *cr, struct ns_time now,
	      const struct ns_free_ops *fo, struct ns_inode *gone, struct ns_cinfo *ci);
/* W: POSIX rename (over an existing target too; same inode: nothing). replaced->i_ino 0 when
 * nothing was replaced. Refuses a directory into its own subtree (-EINVAL). */
int ns_rename(struct ns *ns, struct kv_txn *t, uint64_t sdir, const char *sname, size_t slen,
	      uint64_t ddir, const char *dname, size_t dlen, const struct ns_cred *cr,
	      struct ns_time now, const struct ns_free_ops *fo, struct ns_inode *replaced,
	      struct ns_cinfo *sci, struct ns_cinfo *dci);
/* W: frees an orphan (last close, expiry, end of grace). Absent: 0. */
int ns_orphan_free(struct ns *ns, struct kv_txn *t, uint64_t ino, const struct ns_free_ops *fo);
int ns_orphans(struct ns *ns, struct kv_txn *t, int (*fn)(void *arg, uint64_t ino), void *arg);

/* W: attributes. Permission rules of POSIX are applied for cr (owner for mode, root for owner,
 * group membership for group, owner or write for times "now", suid and sgid clearing on chown by
 * non-root and on write/truncate). cr NULL: the server itself. size is only recorded here: orders
 * for the data objects are the caller's (lo). */
enum {
	NS_S_MODE = 1,
	NS_S_UID = 2,
	NS_S_GID = 4,
	NS_S_SIZE = 8,
	NS_S_ATIME = 16,
	NS_S_MTIME = 32,
	NS_S_ATIME_NOW = 64,
	NS_S_MTIME_NOW = 128,
	NS_S_CTIME = 256, /* touch only */
	NS_S_VERIFIER = 512,
	/* Size may be set without write permission: an open for writing stands for it. */
	NS_S_HAS_WRITE = 1024,
	NS_S_GROW_ONLY = 2048, /* size never shrinks (LAYOUTCOMMIT) */
	/* s_used is what the data servers say; without it a size that is set counts as used. */
	NS_S_USED = 4096,
	NS_S_BTIME = 8192,
	NS_S_ACL = 16384
};
struct ns_setattr {
	unsigned s_mask;
	/* s_mode_keep: bits of the old mode that stay; an ACL is changed only by the low nine
	 * (section 6.4.1.1) */
	uint16_t s_mode, s_mode_keep;
	uint32_t s_uid, s_gid;
	uint64_t s_size, s_used, s_verifier;
	struct ns_time s_atime, s_mtime, s_btime;
	const struct ns_acl *s_acl; /* set after the mode (section 6.4.1.3) */
};
/* Whether ns_setattr would do it: 0, -EPERM, -EACCES, -EINVAL, -EISDIR. */
int ns_setattr_check(const struct ns_inode *i, const struct ns_setattr *s,
		     const struct ns_cred *cr);
/* What a write by cr leaves of the mode: the set-id bits go unless it is root's. */
uint16_t ns_mode_written(const struct ns_inode *i, const struct ns_cred *cr);
int ns_setattr(struct ns *ns, struct kv_txn *t, uint64_t ino, const struct ns_setattr *s,
	       const struct ns_cred *cr, struct ns_time now, struct ns_inode *out);
/* W: replaces i_blob (map or policy; len 0 removes a policy), bumps change and ctime. */
int ns_set_blob(struct ns *ns, struct kv_txn *t, uint64_t ino, const void *blob, size_t len,
		bool policy, struct ns_time now);
/* W: a file's map by one that is the same to clients: neither change nor ctime. -EINVAL: no regular
 * file. */
int ns_note_blob(struct ns *ns, struct kv_txn *t, uint64_t ino, const void *blob, size_t len);
/* W: times that a delegation's holder kept (RFC 9754), each or NULL: an earlier one than ours is
 * nothing, a later one than now is now. ctime follows mtime, not the access time. written: the
 * change attribute moves in any case. */
int ns_deleg_times(struct ns *ns, struct kv_txn *t, uint64_t ino, const struct ns_time *atime,
		   const struct ns_time *mtime, bool written, struct ns_time now);
/* W: it was read at that time: its access time follows where it is due, and nothing changed it
 * after it was read (ctime). Neither ctime nor the change attribute moves. 1: it has followed; 0:
 * not due, another reader of that moment was told before, for one. */
int ns_accessed(struct ns *ns, struct kv_txn *t, uint64_t ino, struct ns_time at);
/* Linux's relatime: an access time that is not after mtime and ctime, or is a day old. Where the
 * others are to come yet, not twice in a second. */
static inline bool ns_atime_due(const struct ns_inode *i, const struct ns_time *now)
{
	if (now->t_sec == i->i_atime.t_sec &&
	    (ns_time_after(&i->i_mtime, now) || ns_time_after(&i->i_ctime, now)))
		return false;
	return !ns_time_after(&i->i_atime, &i->i_mtime) ||
	       !ns_time_after(&i->i_atime, &i->i_ctime) || now->t_sec - i->i_atime.t_sec >= 86400;
}
/* W: a file's data is elsewhere from now on: a new map, and an incarnation of its own, so that the
 * objects of before keep their names. Nothing else changes. -EMFILE: moved too often. */
#define NS_PLACED_AGAIN 0x100 /* to the incarnation; below it is the store's */
int ns_place_again(struct ns *ns, struct kv_txn *t, uint64_t ino, const void *blob, size_t len,
		   struct ns_inode *out);
/* The effective policy of a directory: its own, or the nearest ancestor's, the root's where that is
 * more than NS_POLICY_UP levels up; empty slice when none. */
int ns_policy(struct ns *ns, struct kv_txn *t, uint64_t dir, struct kv_slice *policy);

/* Extended attributes; names come without "user.". */
int ns_xattr_get(struct ns *ns, struct kv_txn *t, uint64_t ino, const char *name, size_t len,
		 struct kv_slice *val);
enum { NS_X_EITHER = 0, NS_X_CREATE = 1, NS_X_REPLACE = 2 }; /* RFC 8276 setxattr_option4 */
/* W */
int ns_xattr_set(struct ns *ns, struct kv_txn *t, uint64_t ino, const char *name, size_t len,
		 struct kv_slice val, unsigned how, const struct ns_cred *cr, struct ns_time now,
		 struct ns_cinfo *ci);
/* W */
int ns_xattr_remove(struct ns *ns, struct kv_txn *t, uint64_t ino, const char *name, size_t len,
		    const struct ns_cred *cr, struct ns_time now, struct ns_cinfo *ci);
int ns_xattr_list(struct ns *ns, struct kv_txn *t, uint64_t ino,
		  int (*fn)(void *arg, const char *name, size_t len), void *arg);

/* Small durable tables: rows with a fixed-size id, an opaque value. The prefix byte is theirs. */
enum ns_table {
	NS_T_CLIENT = 'C',
	NS_T_DS = 'D',
	NS_T_ORDER = 'o',
	NS_T_MARK = 'm',
	NS_T_ONCE = 'q',
	NS_T_REPAIR = 'r',
	NS_T_EVENT = 'e',
	NS_T_GEN = 'g',
	NS_T_SHIFTED = 'b',
	NS_T_TWIN = 't',
	NS_T_SCRUB = 's',
	NS_T_HINT = 'h',
	NS_T_BOOT = 'B',
	NS_T_KEY = 'k',
	NS_T_EXPORT = 'E',
	NS_T_ENDING = 'X'
};
/* W */
int ns_row_put(struct kv_txn *t, enum ns_table tab, const void *id, size_t idlen, const void *val,
	       size_t len);
/* W; absent: 0 */
int ns_row_del(struct kv_txn *t, enum ns_table tab, const void *id, size_t idlen);
int ns_row_get(struct kv_txn *t, enum ns_table tab, const void *id, size_t idlen,
	       struct kv_slice *val);
int ns_rows(struct kv_txn *t, enum ns_table tab, const void *from, size_t fromlen,
	    int (*fn)(void *arg, struct kv_slice id, struct kv_slice val), void *arg);
/* Durable counters (W): next value; reserved in ranges or kept in the super record. */
/* Every inode number that was ever given to a file is below this one, as of the transaction. */
int ns_ino_limit(struct kv_txn *t, uint64_t *limit);
int ns_next_ds(struct ns *ns, struct kv_txn *t, uint32_t *id);
int ns_next_client(struct ns *ns, struct kv_txn *t, uint32_t *id);
/* The number that the next client gets, as of the transaction: all below it were given. */
int ns_clients_given(struct kv_txn *t, uint32_t *next);
int ns_next_order(struct ns *ns, struct kv_txn *t, uint64_t *number);

/* once.c: a row NS_T_ONCE, the request of a session's slot whose mutation was the slot's last. Its
 * key is the session's id and the slot; the ids of a boot have its epoch in their first bytes, so
 * those of earlier boots come first. */
#define NS_ONCE_KEY	    20
#define NS_ONCE_HEAD	    104
#define NS_ONCE_RESULTS_MAX 16384
#define NS_ONCE_DEL_MAX	    512
enum {
	NS_ONCE_HAVE_SID = 1,
	NS_ONCE_SAVED_HAVE_SID = 2,
	NS_ONCE_CACHED_ONLY = 4,
	NS_ONCE_FLAGS = 7
};
struct ns_once {
	uint32_t on_seq;
	uint8_t on_check[16];	      /* of who asks, and of the request's bytes */
	uint32_t on_slots, on_target; /* what SEQUENCE told of the session */
	uint32_t on_limit;	      /* bytes the reply may have */
	uint8_t on_at, on_flags;      /* operations done, the mutation with them */
	/* bytes of the request that are read: from the first operation after SEQUENCE on */
	uint32_t on_in;
	uint32_t on_last;	   /* where in the results the last one begins */
	uint64_t on_cur, on_saved; /* file handles' inodes, and their stateids, after it */
	/* inode whose orders are confirmed before the reply; 0: none */
	uint64_t on_orders;
	uint8_t on_cur_sid[16], on_saved_sid[16];
	uint16_t on_cur_exp, on_saved_exp; /* and the numbers of the exports that they are in */
	struct kv_slice on_results; /* of the operations after SEQUENCE, up to the mutation's */
};
/* buf: NS_ONCE_HEAD bytes; the results are behind it already. The whole's length. */
size_t ns_once_encode(const struct ns_once *o, uint8_t *buf);
int ns_once_decode(struct kv_slice val, struct ns_once *o); /* -EIO; points into val */
void ns_once_key(uint8_t key[NS_ONCE_KEY], const uint8_t session[16], uint32_t slot);
/* -ENOENT; points into the transaction */
int ns_once_get(struct kv_txn *t, const uint8_t session[16], uint32_t slot, struct ns_once *o);
/* W: deletes at most max (and NS_ONCE_DEL_MAX) rows, from a key's first bytes to another's, both in
 * it. Returns how many. */
int ns_once_del(struct kv_txn *t, const uint8_t *from, size_t fromlen, const uint8_t *to,
		size_t tolen, unsigned max);

/* Path from the root ("/a/b") to an inode, no symlinks followed. */
int ns_path(struct ns *ns, struct kv_txn *t, const char *path, uint64_t *ino);
/* Back: a path of the inode into out (max bytes). Of a file with several names one in the directory
 * that it was made in, or moved to; -ENOENT where it has none there. Directories are read from
 * their beginning; *budget is how many entries may be looked at yet; -E2BIG: more, or the path is
 * longer, or deeper than 256. */
int ns_path_of(struct ns *ns, struct kv_txn *t, uint64_t ino, unsigned *budget, char *out,
	       size_t max);
/* Regular files in the order of their numbers, from that one on. fn: 0 goes on, positive stops,
 * negative stops and is returned. */
int ns_files(struct ns *ns, struct kv_txn *t, uint64_t from,
	     int (*fn)(void *arg, const struct ns_inode *i), void *arg);
/* statfs */
struct ns_counts {
	uint64_t n_inodes;
};
int ns_counts(struct ns *ns, struct kv_txn *t, struct ns_counts *out);
#endif
