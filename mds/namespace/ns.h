/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ns.h - the name space over kv transactions: inodes, directory entries, extended attributes,
 * orphans, and small durable tables for other rooms.
 *
 * ns knows transactions and no protocol. Functions that read take any kv_txn. Functions that write
 * (marked W) run inside a mutation (kv_op.o_run). They check everything before their first put, so
 * a negative errno means that nothing was written. The caller passes in times: CLOCK_REALTIME, read
 * once for each mutation.
 *
 * Errors: -ENOENT, -EEXIST, -ENOTDIR, -EISDIR, -ENOTEMPTY, -EACCES, -EPERM, -ENAMETOOLONG, -EINVAL,
 * -EXDEV, -EMLINK, -ESTALE (no such inode), -ENODATA (no such xattr), -E2BIG, -ENOSPC, -EIO
 * (damaged record), -EPROTONOSUPPORT (an ACL that this file cannot have).
 *
 * An inode that was read from a transaction carries its ACL, if it has one: the inode alone decides
 * which user may do what.
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

/* The numbers of NFSv4's nfs_ftype4, so that no code translates. */
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
	/* Instead of cr_gids, in any number. The owner keeps it as long as the credential is
	 * used. */
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
/* ACEs (RFC 8881 section 6.2.1): types and flags have the protocol's numbers. */
enum { NS_ACE_ALLOW = 0, NS_ACE_DENY = 1 };
enum { NS_WHO_OWNER = 0, NS_WHO_GROUP = 1, NS_WHO_EVERYONE = 2, NS_WHO_UID = 3, NS_WHO_GID = 4 };
enum {
	NS_ACE_FILE = 1,
	NS_ACE_DIR = 2,
	NS_ACE_NO_PROPAGATE = 4,
	NS_ACE_INHERIT_ONLY = 8,
	NS_ACE_INHERITED = 0x80
};
/* of the whole ACL (RFC 8881 section 6.4.3.2) */
enum { NS_ACL_AUTO = 1, NS_ACL_PROTECTED = 2, NS_ACL_DEFAULTED = 4 };
#define NS_ACL_SET_MAX 250 /* ACEs that may be set */
#define NS_ACL_MAX     256 /* ACEs that may be stored: setting a mode adds a few */
struct ns_ace {
	uint8_t ace_type, ace_who;
	uint16_t ace_flags;
	uint32_t ace_mask, ace_id; /* ace_id: of NS_WHO_UID and NS_WHO_GID, else 0 */
};
struct ns_acl {
	uint32_t acl_flags, acl_n;
	struct ns_ace acl_ace[NS_ACL_MAX];
};

struct ns_inode {
	uint64_t i_ino;
	uint8_t i_type;
	uint16_t i_mode; /* 07777 */
	uint16_t i_incarnation;
	uint32_t i_nlink, i_uid, i_gid;
	uint64_t i_size, i_used; /* bytes; directories: entries * 64 */
	/* Change attribute (RFC 8881 section 5.8.1.4): rises with every change, never goes back. */
	uint64_t i_change;
	/* Directories: the parent. Others: the directory of the name at which the file counts
	 * (ns_sum.h). A name of it is there as long as it has one. */
	uint64_t i_parent;
	struct ns_time i_atime, i_mtime, i_ctime, i_btime;
	uint32_t i_rdev_major, i_rdev_minor;
	uint64_t i_verifier; /* EXCLUSIVE4(_1) create */
	uint32_t i_entries;  /* directories: entries, without . and .. */
	bool i_has_policy;   /* directories: i_blob is a policy; else the policy is inherited */
	bool i_has_xattrs;
	/* Files: the layout map; directories: the policy (both opaque here); symlinks: the target.
	 * Points into the transaction, or to the caller's memory. */
	struct kv_slice i_blob;
	/* As stored, valid as long as i_blob. Empty: the mode alone decides. */
	struct kv_slice i_acl;
	/* Directories: the sums of what is below (ns_sum.h), as stored. Empty: nothing is. */
	struct kv_slice i_sums;
};

/* Format */
struct ns_super {
	uint8_t su_uuid[16]; /* of the cluster (file system) */
	uint16_t su_fs, su_incarnation;
	/* Boot epoch: rises with every start; committed before anything is served. */
	uint64_t su_boot;
	/* Random identity of this boot: another store at the same boot number has another one. 0: a
	 * boot from before boots had identities. */
	uint64_t su_boot_id;
	uint8_t su_fh_key[16];	/* for the MAC of MDS file handles */
	uint8_t su_dir_key[16]; /* for the keyed hash of names */
	bool su_sums;		/* the sums of all directories are known (ns_sum.h) */
	uint64_t su_ino_next;	/* first number not reserved */
	uint32_t su_ds_next, su_client_next;
	uint64_t su_order_next;
};
/* Formats an empty store (root directory owned by 0:0, mode 0755), raises the boot epoch and
 * commits it. Blocks: call it at the start only. */
struct ns;
int ns_open(struct ns **out, struct kv *kv, char *err, size_t errlen);
/* Which file system of which cluster: what a new store becomes, and what another one must be. */
struct ns_identity {
	uint16_t id_fs;	 /* 0: not said; a new store is file system 1 */
	bool id_cluster; /* id_uuid is said; else a new store is a cluster of its own */
	uint8_t id_uuid[16];
};
/* Before a store is opened for service: can it be? Changes nothing. 0: it can, or it is empty;
 * -EEXIST: it has another identity; -EPROTO; or another error, with one line in err. */
int ns_identity_check(struct kv *kv, const struct ns_identity *id, char *err, size_t errlen);
/* As ns_open. -EEXIST: the store has another identity. */
int ns_open_as(struct ns **out, struct kv *kv, const struct ns_identity *id, char *err,
	       size_t errlen);
/* Where the inode numbers of a file system begin: its own number is in the top 16 bits (cap_fs_of),
 * so no two file systems of a cluster give one number. The first file system has zeros there, as
 * stores had before there were several. The root's number is NS_ROOT_INO in each. */
uint64_t ns_fs_ino(uint16_t fs);
void ns_close(struct ns *ns);
/* boot.c: the store must not go back in time (docs/recovery.md). Has the store been where another
 * server says that it saw the store: in this boot, with this identity (0: not known)? 0.
 * -EOVERFLOW: the store has not come so far. -ESTALE: that boot of the store had another
 * identity. */
int ns_boot_check(const struct ns *ns, struct kv_txn *t, uint64_t boot, uint64_t id);
/* Is this the number of a boot in this timeline? */
bool ns_boot_here(const struct ns *ns, uint64_t boot);
/* Can an order with this number have been given? 0 or -EOVERFLOW. */
int ns_order_check(struct kv_txn *t, uint64_t number);
/* W: the store was restored. Makes all numbers go on above those of every timeline that a server
 * saw; boot is the highest boot number that was seen. Call it before any number is given. -EMFILE:
 * the store was restored too often. */
int ns_restore(struct ns *ns, struct kv_txn *t, uint64_t boot);
/* After ns_restore: returns the first fence epoch of this timeline. */
uint32_t ns_timeline_epoch(const struct ns *ns);
/* Returns the lowest number of a file of this timeline, except for files that were in the store
 * when it was restored; 0: it never was. */
uint64_t ns_timeline_ino(const struct ns *ns);
/* ns_stamp.c. The time for a mutation: CLOCK_REALTIME, but never older than a ctime that the store
 * opened last in this process gave before it was opened, nor than what this function returned
 * since. Any thread. */
struct ns_time ns_now(void);

const struct ns_super *ns_super(const struct ns *ns);
struct kv *ns_kv(const struct ns *ns);

/* Inodes */
/* -ESTALE */
int ns_get(struct ns *ns, struct kv_txn *t, uint64_t ino, struct ns_inode *out);
int ns_lookup(struct ns *ns, struct kv_txn *t, uint64_t dir, const char *name, size_t len,
	      uint64_t *ino, uint8_t *type);
/* 0, -EINVAL (empty, slash, NUL, also "." and ".."), -ENAMETOOLONG */
int ns_name_check(const char *name, size_t len);

/* NFSv4 access bits (RFC 8881 section 18.1.1) */
enum {
	NS_A_READ = 1,
	NS_A_LOOKUP = 2,
	NS_A_MODIFY = 4,
	NS_A_EXTEND = 8,
	NS_A_DELETE = 16,
	NS_A_EXECUTE = 32
};
/* Does the mode or ACL permit rwx (4 read, 2 write, 1 execute/search)? Root may do all, but
 * executes a file only if it has any x bit. 0 or -EACCES. */
int ns_permission(const struct ns_inode *i, const struct ns_cred *cr, unsigned rwx);
/* Does the ACL or mode permit all of these NS_R_ rights? 0 or -EACCES. docs/acl.md says what the
 * owner, root and the mode stand for. */
int ns_access(const struct ns_inode *i, const struct ns_cred *cr, uint32_t want);
/* May the user read data? A user that may execute a file may read it (RFC 8881 section 6.2.1.3.1).
 * 0 or -EACCES. */
int ns_may_read(const struct ns_inode *i, const struct ns_cred *cr);
/* May the user remove a name of i from dir (RFC 8881 section 6.2.1.3.2, and the sticky bit)? 0,
 * -EACCES, -EPERM. */
int ns_may_unlink(const struct ns_inode *dir, const struct ns_inode *i, const struct ns_cred *cr);
/* Returns the stored ACL, or the one that the mode stands for. */
void ns_acl_get(const struct ns_inode *i, struct ns_acl *out);

/* A directory entry. Cookies are > 2, unique and stable. */
struct ns_dirent {
	uint64_t d_cookie, d_ino;
	uint8_t d_type;
	const char *d_name;
	size_t d_len;
};
/* Calls fn for the entries with cookie > after. fn returns 0 to go on, 1 to stop before this entry.
 * *eof: the end was reached. */
int ns_readdir(struct ns *ns, struct kv_txn *t, uint64_t dir, uint64_t after,
	       int (*fn)(void *arg, const struct ns_dirent *d), void *arg, bool *eof);

/* What changed in a directory (change_info4). */
struct ns_cinfo {
	uint64_t c_before, c_after;
};

/* W: creates a file of any type. a_cred needs write and search permission on a_dir. a_attr has
 * i_type, i_mode, i_uid, i_gid, i_size (0), i_rdev_*, i_verifier and i_blob (layout map or symlink
 * target); times come from a_now. A setgid directory gives its group to the file, and the bit to a
 * directory. For a regular file a_map, if set, is called inside the transaction with the new inode
 * (its number is known) and the directory's effective policy, and puts the map into buf. out: the
 * new inode; out->i_blob points into out_blob (the caller's, NS_BLOB_MAX bytes). */
struct ns_create_args {
	uint64_t a_dir;
	const char *a_name;
	size_t a_len;
	const struct ns_cred *a_cred;
	struct ns_inode a_attr;
	/* NS_S_ATIME, NS_S_MTIME, NS_S_BTIME: take these from a_attr, not from a_now. */
	unsigned a_times;
	/* NULL: none given; the file inherits from the directory's ACL (RFC 8881 section 6.4.3). */
	const struct ns_acl *a_acl;
	bool a_mode_default; /* no i_mode was given: what is inherited decides */
	bool a_has_umask;    /* a_umask applies where nothing is inherited (RFC 8275) */
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
/* W: removes a name of a file, or an empty directory, as the sticky bit permits. want: 0 either,
 * NS_DIR only a directory, NS_REG only a non-directory. gone->i_nlink is 0 if it was the last link.
 * If f_keep_open then returns true, the inode becomes an orphan. Else it is freed, and for a
 * regular file f_free_map, called in the transaction, queues the deletion orders; or it goes to the
 * trash (f_keep_s). */
struct ns_free_ops {
	bool (*f_keep_open)(void *arg, uint64_t ino);
	/* queues deletion orders */
	int (*f_free_map)(void *arg, struct kv_txn *t, const struct ns_inode *i);
	void *f_arg;
	/* The trash keeps what loses its last name for so many seconds; 0: it is freed. f_uid: of
	 * the user that removes it. */
	uint32_t f_keep_s, f_uid;
};
int ns_remove(struct ns *ns, struct kv_txn *t, uint64_t dir, const char *name, size_t len,
	      unsigned want, const struct ns_cred *cr, struct ns_time now,
	      const struct ns_free_ops *fo, struct ns_inode *gone, struct ns_cinfo *ci);
/* W: POSIX rename, also over an existing target; if both are the same inode it does nothing. A
 * directory cannot move into its own subtree (-EINVAL). replaced->i_ino: 0 if nothing was
 * replaced. */
int ns_rename(struct ns *ns, struct kv_txn *t, uint64_t sdir, const char *sname, size_t slen,
	      uint64_t ddir, const char *dname, size_t dlen, const struct ns_cred *cr,
	      struct ns_time now, const struct ns_free_ops *fo, struct ns_inode *replaced,
	      struct ns_cinfo *sci, struct ns_cinfo *dci);
/* W: frees an orphan (last close, eviction, end of grace). 0 also if there is none. 1: the inode
 * stays, because it is in the trash, or was restored from there. */
int ns_orphan_free(struct ns *ns, struct kv_txn *t, uint64_t ino, const struct ns_free_ops *fo);
int ns_orphans(struct ns *ns, struct kv_txn *t, int (*fn)(void *arg, uint64_t ino), void *arg);

/* W: sets attributes, by the rules of POSIX for cr: the owner may set the mode, root the owner, a
 * member the group, the owner or a writer the times to now; a chown by a user other than root, a
 * write and a truncate clear suid and sgid. cr NULL: the server itself. A size is only recorded:
 * the caller puts the orders for the data objects (layout/lo.h). */
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
	/* The size may be set without write permission, because the file is open for writing. */
	NS_S_HAS_WRITE = 1024,
	NS_S_GROW_ONLY = 2048, /* the size never shrinks (LAYOUTCOMMIT) */
	/* s_used is what the data servers report. Without this a size that is set counts as
	 * used. */
	NS_S_USED = 4096,
	NS_S_BTIME = 8192,
	NS_S_ACL = 16384
};
struct ns_setattr {
	unsigned s_mask;
	/* s_mode_keep: bits of the old mode that stay. Only the low nine bits change an ACL (RFC
	 * 8881 section 6.4.1.1). */
	uint16_t s_mode, s_mode_keep;
	uint32_t s_uid, s_gid;
	uint64_t s_size, s_used, s_verifier;
	struct ns_time s_atime, s_mtime, s_btime;
	const struct ns_acl *s_acl; /* set after the mode (RFC 8881 section 6.4.1.3) */
};
/* Would ns_setattr permit it? 0, -EPERM, -EACCES, -EINVAL, -EISDIR. */
int ns_setattr_check(const struct ns_inode *i, const struct ns_setattr *s,
		     const struct ns_cred *cr);
/* Returns the mode after a write by cr: the set-id bits go unless cr is root. */
uint16_t ns_mode_written(const struct ns_inode *i, const struct ns_cred *cr);
int ns_setattr(struct ns *ns, struct kv_txn *t, uint64_t ino, const struct ns_setattr *s,
	       const struct ns_cred *cr, struct ns_time now, struct ns_inode *out);
/* W: replaces i_blob (map or policy; len 0 removes a policy); change attribute and ctime rise. */
int ns_set_blob(struct ns *ns, struct kv_txn *t, uint64_t ino, const void *blob, size_t len,
		bool policy, struct ns_time now);
/* W: replaces a file's map by one that is the same to clients: change attribute and ctime stay.
 * -EINVAL: not a regular file. */
int ns_set_blob_quietly(struct ns *ns, struct kv_txn *t, uint64_t ino, const void *blob,
			size_t len);
/* W: sets times that a delegation's holder kept (RFC 9754); each may be NULL. A time before ours is
 * ignored; a time after now becomes now. ctime follows mtime, not the access time. written: the
 * change attribute rises in any case. */
int ns_deleg_times(struct ns *ns, struct kv_txn *t, uint64_t ino, const struct ns_time *atime,
		   const struct ns_time *mtime, bool written, struct ns_time now);
/* W: the file was read at that time. The access time follows if it is due and nothing has changed
 * the file since it was read (ctime). ctime and the change attribute stay. 1: it has followed. 0:
 * it has not, for example because another read at the same time came first. */
int ns_accessed(struct ns *ns, struct kv_txn *t, uint64_t ino, struct ns_time at);
/* Is the access time due, by the rule of Linux's relatime: it is not after mtime and ctime, or is a
 * day old? If mtime or ctime is yet to come, at most once a second. */
static inline bool ns_atime_due(const struct ns_inode *i, const struct ns_time *now)
{
	if (now->t_sec == i->i_atime.t_sec &&
	    (ns_time_after(&i->i_mtime, now) || ns_time_after(&i->i_ctime, now)))
		return false;
	return !ns_time_after(&i->i_atime, &i->i_mtime) ||
	       !ns_time_after(&i->i_atime, &i->i_ctime) || now->t_sec - i->i_atime.t_sec >= 86400;
}
/* W: a file's data is elsewhere from now on: sets a new map, and a new incarnation, so that the
 * former objects keep their names. Nothing else changes. -EMFILE: moved too often. */
#define NS_PLACED_AGAIN 0x100 /* added to the incarnation; the part below it is the store's */
int ns_place_again(struct ns *ns, struct kv_txn *t, uint64_t ino, const void *blob, size_t len,
		   struct ns_inode *out);
/* Finds the effective policy of a directory: its own, or its nearest ancestor's; the root's if that
 * is more than NS_POLICY_UP levels up. Empty: there is none. */
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

/* Small durable tables: rows with a fixed-size id and an opaque value. Each has its own first
 * byte. */
enum ns_table {
	NS_T_CLIENT = 'C',
	NS_T_DS = 'D',
	NS_T_ORDER = 'o',
	NS_T_WRITE_INTENT = 'm',
	NS_T_REPLY = 'q',
	NS_T_REPAIR = 'r',
	NS_T_EVENT = 'e',
	NS_T_NFS3DS = 'g',
	NS_T_RELOCATED = 'b',
	NS_T_PENDING = 't',
	NS_T_SCRUB = 's',
	NS_T_HINT = 'h',
	NS_T_BOOT = 'B',
	NS_T_KEY = 'k',
	NS_T_EXPORT = 'E',
	NS_T_REVOCATION = 'X',
	NS_T_TOKEN = 'T',
	NS_T_JOIN_TOKEN = 'j',
	NS_T_PIN = 'P',
	NS_T_TRASH_JOB = 'J',
	NS_T_TAG = 'G',
	NS_T_CONN = 'c',
	NS_T_STAMP = 'N'
};
/* W */
int ns_row_put(struct kv_txn *t, enum ns_table tab, const void *id, size_t idlen, const void *val,
	       size_t len);
/* W; 0 also if there is none */
int ns_row_del(struct kv_txn *t, enum ns_table tab, const void *id, size_t idlen);
int ns_row_get(struct kv_txn *t, enum ns_table tab, const void *id, size_t idlen,
	       struct kv_slice *val);
int ns_rows(struct kv_txn *t, enum ns_table tab, const void *from, size_t fromlen,
	    int (*fn)(void *arg, struct kv_slice id, struct kv_slice val), void *arg);
/* Durable counters: return the next value (W). They are reserved in ranges, or kept in the super
 * record. */
/* Every inode number that a file ever got is below *limit, as of the transaction. */
int ns_ino_limit(struct kv_txn *t, uint64_t *limit);
int ns_next_ds(struct ns *ns, struct kv_txn *t, uint32_t *id);
int ns_next_client(struct ns *ns, struct kv_txn *t, uint32_t *id);
/* The number of the next client, as of the transaction: all below it were given. */
int ns_clients_given(struct kv_txn *t, uint32_t *next);
int ns_next_order(struct ns *ns, struct kv_txn *t, uint64_t *number);

/* ns_reply.c: rows NS_T_REPLY, for each session's slot the request with the slot's last mutation.
 * The key is the session's id and the slot. Sessionids of a boot begin with its epoch, so rows of
 * earlier boots come first. */
#define NS_REPLY_KEY	     20
#define NS_REPLY_HEAD	     104
#define NS_REPLY_RESULTS_MAX 16384
#define NS_REPLY_DEL_MAX     512
enum {
	NS_REPLY_HAVE_SID = 1,
	NS_REPLY_SAVED_HAVE_SID = 2,
	NS_REPLY_CACHED_ONLY = 4,
	NS_REPLY_FLAGS = 7
};
struct ns_reply {
	uint32_t on_seq;
	uint8_t on_check[16];	      /* of the caller and the request's bytes */
	uint32_t on_slots, on_target; /* what SEQUENCE reported of the session */
	uint32_t on_limit;	      /* bytes that the reply may have */
	uint8_t on_at, on_flags;      /* on_at: operations done, including the mutation */
	/* bytes of the request that were decoded, from the first operation after SEQUENCE on */
	uint32_t on_in;
	uint32_t on_last;	   /* where the last result begins */
	uint64_t on_cur, on_saved; /* after it: inodes of the file handles */
	/* Inode whose orders must be confirmed before the reply; 0: none. */
	uint64_t on_orders;
	uint8_t on_cur_sid[16], on_saved_sid[16];
	uint16_t on_cur_exp, on_saved_exp; /* numbers of the exports of on_cur and on_saved */
	/* of the operations after SEQUENCE, up to and with the mutation */
	struct kv_slice on_results;
};
/* buf: NS_REPLY_HEAD bytes, which the results follow already. Returns the length of all. */
size_t ns_reply_encode(const struct ns_reply *o, uint8_t *buf);
int ns_reply_decode(struct kv_slice val, struct ns_reply *o); /* -EIO; points into val */
void ns_reply_key(uint8_t key[NS_REPLY_KEY], const uint8_t session[16], uint32_t slot);
/* -ENOENT; points into the transaction */
int ns_reply_get(struct kv_txn *t, const uint8_t session[16], uint32_t slot, struct ns_reply *o);
/* W: deletes at most max (and NS_REPLY_DEL_MAX) rows, from one key prefix to another, both
 * included. Returns how many. */
int ns_reply_del(struct kv_txn *t, const uint8_t *from, size_t fromlen, const uint8_t *to,
		 size_t tolen, unsigned max);

/* Finds the inode of a path from the root ("/a/b"); does not follow symlinks. */
int ns_path(struct ns *ns, struct kv_txn *t, const char *path, uint64_t *ino);
/* Puts a path of the inode into out (max bytes). For a file with several names it is one in the
 * directory of its first name; -ENOENT: it has no name. Reads directories from their begin.
 * *budget: how many more entries it may read. -E2BIG: it would
 * need more; or the path is longer than max, or deeper than 256. */
int ns_path_of(struct ns *ns, struct kv_txn *t, uint64_t ino, unsigned *budget, char *out,
	       size_t max);
/* Calls fn for regular files in the order of their numbers, beginning at from. fn: 0 goes on,
 * positive stops, negative stops and is returned. */
int ns_files(struct ns *ns, struct kv_txn *t, uint64_t from,
	     int (*fn)(void *arg, const struct ns_inode *i), void *arg);
/* statfs */
struct ns_counts {
	uint64_t nct_inodes;
};
int ns_counts(struct ns *ns, struct kv_txn *t, struct ns_counts *out);
#endif
