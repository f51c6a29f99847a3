/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keys.h - what the name space keeps in the store: keys, record formats, and the inner state of
 * struct ns.
 *
 * The table of all keys. A key is its first byte, then the id. Integers in keys are big-endian, so
 * that the order of the keys is the order of the numbers. docs/schema.md has the values, field by
 * field, with the code that writes and deletes each row; tests/unit/schema.sh compares that page
 * with the code.
 *
 *   byte  constant           id (bytes)                       a row is
 *   ----  -----------------  -------------------------------  -------------------------------------
 *   'S'   NS_K_SUPER         none                             the super record
 *   'i'   NS_K_INODE         inode (8)                        an inode; ACL, map, policy or target
 *                                                             follow
 *   'd'   NS_K_DIRENT        directory (8), slot (8)          a directory entry
 *   'x'   NS_K_XATTR         inode (8), name (1 to 255)       an extended attribute
 *   'O'   NS_K_ORPHAN        inode (8)                        an open inode without links
 *   'R'   NS_K_TRASH         0 (1)                            how much is in the trash
 *                            1 (1), directory (8), hash (8),  what is in the trash; of a name the
 *                              ~when (8), inode (8)             one that was removed last is first
 *                            2 (1), expiry (8), inode (8)     when it expires
 *                            3 (1), inode (8)                 where its row of kind 1 is
 *                            4 (1), user (4)                  what of a user's is in the trash
 *                            5 (1), such a key from its kind  a damaged row, set aside
 *                              on
 *   'U'   NS_K_UNPUSHED      directory (8)                    a directory with sums to push up
 *   'l'   NS_K_LINK          inode (8), directory (8)         further names of a file in it
 *   'u'   NS_K_USER          user (4)                         what a user has
 *   'B'   NS_T_BOOT          boot (8)                         the random identity of a boot
 *   'q'   NS_T_REPLY         session (16), slot (4)           the reply of a slot's last mutation
 *   'N'   NS_T_STAMP         0 (1)                            until when times may have been given
 *
 * ns reads and writes the tables above. It keeps the rows of the tables below for other rooms,
 * and does not look into them.
 *
 *   'C'   NS_T_CLIENT        hash of owner, principal (32)    a client that may reclaim
 *   'm'   NS_T_WRITE_INTENT  inode (8)                        a file that clients may be writing
 *   'D'   NS_T_DS            uuid (16)                        a data server
 *   'g'   NS_T_NFS3DS        'S', uuid (16)                   a generic data server
 *                            'P', server (4), number (8)      a file made ahead on one
 *                            'O', server (4), inode (8),      an object on one
 *                              incarnation (2), stripe (1),
 *                              copy (1)
 *   'k'   NS_T_KEY           0 (1)                            the cluster keys
 *   'o'   NS_T_ORDER         server (4), order (8)            work for a data server
 *   'r'   NS_T_REPAIR        inode (8); 0 is a flag           a file with objects not in sync
 *   'b'   NS_T_RELOCATED     inode (8)                        a file that balance moved lately
 *   't'   NS_T_PENDING       inode (8)                        the map that a restripe fills
 *   'h'   NS_T_HINT          1 (1)                            a flag: a policy has a threshold
 *                            2 (1)                            a flag: a policy says trash=
 *   's'   NS_T_SCRUB         0 (1)                            the state of the scrub
 *                            1 (1), index (4)                 a finding of the scrub
 *                            2 (1), server (4), inode (8),    an object without a file, seen once
 *                              incarnation (2), stripe (1),
 *                              copy (1)
 *   'e'   NS_T_EVENT         ring (1), number (8)             an event
 *   'E'   NS_T_EXPORT        export (2)                       what an export said last
 *   'X'   NS_T_REVOCATION    directory (8)                    capabilities that end below it
 *   'T'   NS_T_TOKEN         name (1 to 64)                   a token for the API
 *   'j'   NS_T_JOIN_TOKEN    token (16)                       a token with which a machine joins
 *   'P'   NS_T_PIN           pin (8)                          a pin
 *                            pin (8), inode (8)               a file that it gave a copy
 *   'J'   NS_T_TRASH_JOB     number (8)                       a job about the trash
 *   'G'   NS_T_TAG           tag (1 to 64), a NUL, client     a client of a compute job
 *   'c'   NS_T_CONN          local address (16), port (2),    a TCP connection of this or a former
 *                              peer (16), port (2)              life
 *
 * One key is the engine's: "\0weft" (kv.h). No other key begins with 0.
 *
 * Values begin with a version byte. Integers in them are little-endian.
 *
 * Slots. hash(name) is SipHash under su_dir_key, in [8, 2^63 - 16). An entry lives in one of the
 * NS_SLOT_WINDOW slots from its hash on; the slot is its READDIR cookie. A lookup reads the whole
 * window, so a gap left by a removed entry ends no search, and an entry never moves: its cookie is
 * stable.
 *
 * Numbers. A number below the limit in the super record may be handed out. The limit is read in the
 * transaction that hands out, never remembered, so that a raised limit that was lost with an
 * aborted batch is raised again. What is remembered is the next number, which only rises: an
 * aborted batch skips numbers and reuses none.
 */
#ifndef MDS_NS_KEYS_H
#define MDS_NS_KEYS_H
#include "mds/namespace/ns_trash.h"
#include <endian.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define NS_VERSION 1
/* A program that knows only version 1 keeps no history of boots, and one that knows only version 2
 * keeps no sums: they refuse the store. */
#define NS_SUPER_VERSION 3
#define NS_BOOTS_KEPT	 4096u	/* boots whose identity is kept */
#define NS_RANGE	 65536u /* inode and order numbers reserved at a time */
#define NS_COUNT_FREES	 4096u	/* frees after which the inode count is written */
#define NS_SLOT_MIN	 8u
#define NS_SLOT_END	 ((UINT64_C(1) << 63) - 16)
#define NS_SLOT_WINDOW	 8u
#define NS_ENTRY_SIZE	 64u	  /* what a directory entry counts in i_size */
#define NS_DEPTH_MAX	 1000000u /* a longer way to the root is a loop */
/* Directories that are searched for a policy; a path has no more (PATH_MAX). */
#define NS_POLICY_UP 2048u

enum {
	NS_K_SUPER = 'S',
	NS_K_INODE = 'i',
	NS_K_DIRENT = 'd',
	NS_K_XATTR = 'x',
	NS_K_ORPHAN = 'O',
	NS_K_TRASH = 'R',
	NS_K_UNPUSHED = 'U',
	NS_K_LINK = 'l',
	NS_K_USER = 'u'
};
enum { NS_F_POLICY = 1, NS_F_XATTRS = 2, NS_F_ACL = 4, NS_F_SUMS = 8 };

struct ns_super_rec {
	uint8_t s_version;
	uint8_t s_sums; /* 1: the sums are known; 0 before version 3 */
	uint8_t s_zero[2];
	uint16_t s_fs, s_incarnation;
	uint8_t s_uuid[16], s_fh_key[16], s_dir_key[16];
	uint64_t s_boot, s_ino_next, s_order_next, s_inodes;
	uint32_t s_ds_next, s_client_next;
	uint64_t s_boot_id; /* version 1 ends before it */
} __attribute__((packed));
#define NS_SUPER_LEN1 offsetof(struct ns_super_rec, s_boot_id)
_Static_assert(NS_SUPER_LEN1 == 96, "super record, version 1");
_Static_assert(sizeof(struct ns_super_rec) == 104, "super record, versions 2 and 3");

/* NS_T_BOOT, by the boot's number (big-endian). */
struct ns_boot_rec {
	uint8_t b_version;
	uint64_t b_id;
} __attribute__((packed));
_Static_assert(sizeof(struct ns_boot_rec) == 9, "boot, version 1");

/* NS_T_STAMP. */
struct ns_stamp_rec {
	uint8_t sm_version;
	uint64_t sm_until; /* ns of CLOCK_REALTIME */
} __attribute__((packed));
_Static_assert(sizeof(struct ns_stamp_rec) == 9, "stamp, version 1");

struct ns_time_rec {
	uint64_t tr_sec; /* two's complement */
	uint32_t tr_nsec;
} __attribute__((packed));
_Static_assert(sizeof(struct ns_time_rec) == 12, "time, version 1");

struct ns_inode_rec {
	uint8_t r_version, r_type;
	uint16_t r_mode;
	uint16_t r_incarnation;
	uint8_t r_flags, r_zero;
	uint32_t r_nlink, r_uid, r_gid, r_entries;
	uint64_t r_size, r_used, r_change, r_parent, r_verifier;
	uint32_t r_rdev_major, r_rdev_minor;
	struct ns_time_rec r_atime, r_mtime, r_ctime, r_btime;
} __attribute__((packed)); /* with NS_F_SUMS ns_sums_rec follows, with NS_F_ACL ns_acl_rec; then the
			    * blob */
_Static_assert(sizeof(struct ns_inode_rec) == 120, "inode record, version 1");

struct ns_sum_rec {
	uint64_t sr_files, sr_dirs, sr_bytes, sr_stored;
} __attribute__((packed));
_Static_assert(sizeof(struct ns_sum_rec) == 32, "sum, version 1");

/* A user's part of a change that is not in the user's row yet. */
struct ns_sum_user_rec {
	uint32_t ur_uid;
	struct ns_sum_rec ur_sum; /* two's complement */
} __attribute__((packed));
_Static_assert(sizeof(struct ns_sum_user_rec) == 36, "part of a user, version 1");

#define NS_SUM_USERS 4u
struct ns_sums_rec {
	uint8_t sm_version;
	uint8_t sm_unpushed; /* 1: there is a row NS_K_UNPUSHED */
	uint8_t sm_users;    /* entries of sm_user; 0 without such a row */
	uint8_t sm_zero;
	struct ns_sum_rec sm_total;
	struct ns_sum_user_rec sm_user[];
} __attribute__((packed));
_Static_assert(sizeof(struct ns_sums_rec) == 36, "sums of a directory, version 1");
#define NS_SUMS_MAX (sizeof(struct ns_sums_rec) + NS_SUM_USERS * sizeof(struct ns_sum_user_rec))

/* NS_K_UNPUSHED: what the parent has counted of the directory. NS_K_USER, and kind 4 of NS_K_TRASH:
 * what a user has. The row NS_K_UNPUSHED of no directory, NS_SUM_LOST, is never whole: it says that
 * the sums of all directories are unknown (ns_sum.c). */
#define NS_SUM_LOST 0u
struct ns_counted_rec {
	uint8_t cn_version;
	struct ns_sum_rec cn_sum;
} __attribute__((packed));
_Static_assert(sizeof(struct ns_counted_rec) == 33, "counted sum, version 1");

struct ns_link_rec {
	uint8_t li_version;
	uint32_t li_names;
} __attribute__((packed));
_Static_assert(sizeof(struct ns_link_rec) == 5, "further names, version 1");

struct ns_ace_rec {
	uint8_t acr_type, acr_who;
	uint16_t acr_flags;
	uint32_t acr_mask, acr_id;
} __attribute__((packed));
_Static_assert(sizeof(struct ns_ace_rec) == 12, "ACE, version 1");

struct ns_acl_rec {
	uint8_t alr_version, alr_flags;
	uint16_t alr_n;
	struct ns_ace_rec alr_ace[];
} __attribute__((packed));
_Static_assert(sizeof(struct ns_acl_rec) == 4, "ACL, version 1");
#define NS_ACL_REC_MAX (sizeof(struct ns_acl_rec) + NS_ACL_MAX * sizeof(struct ns_ace_rec))

struct ns_dirent_rec {
	uint8_t ndr_version, ndr_type;
	uint64_t ndr_ino;
} __attribute__((packed)); /* the name follows */
_Static_assert(sizeof(struct ns_dirent_rec) == 10, "directory entry, version 1");

/* What is in the trash: the name follows, and for what is no regular file the inode's record. */
struct ns_trash_rec {
	uint8_t t_version, t_type, t_len;
	uint32_t t_uid;
	uint64_t t_bytes, t_removed, t_expires;
} __attribute__((packed));
_Static_assert(sizeof(struct ns_trash_rec) == 31, "what is in the trash, version 1");

/* Where the row of kind 1 is. */
struct ns_trash_at_rec {
	uint8_t ta_version;
	uint64_t ta_parent, ta_hash, ta_removed;
} __attribute__((packed));
_Static_assert(sizeof(struct ns_trash_at_rec) == 25, "where it was, version 1");

/* How much there is. */
struct ns_trash_sum_rec {
	uint8_t ts_version;
	uint64_t ts_entries, ts_bytes;
} __attribute__((packed));
_Static_assert(sizeof(struct ns_trash_sum_rec) == 17, "how much is in the trash, version 1");

#define NS_INODE_VAL_MAX                                                                           \
	(sizeof(struct ns_inode_rec) + NS_SUMS_MAX + NS_ACL_REC_MAX + NS_SYMLINK_MAX)
#define NS_DIRENT_VAL_MAX (sizeof(struct ns_dirent_rec) + NS_NAME_MAX)
#define NS_TRASH_VAL_MAX  (sizeof(struct ns_trash_rec) + NS_NAME_MAX + NS_INODE_VAL_MAX)

#define NS_KEY_INODE	  9 /* also an orphan's */
#define NS_KEY_DIRENT	  17
#define NS_KEY_TRASH_MAX  34
#define NS_KEY_TRASH_USER 6
#define NS_KEY_LINK	  17
#define NS_KEY_USER	  5
#define NS_KEY_XATTR_MAX  (9 + NS_XATTR_NAME_MAX)
_Static_assert(NS_KEY_XATTR_MAX <= KV_KEY_MAX, "every name makes a key");
_Static_assert(NS_XATTR_VALUE_MAX + 1 <= KV_VALUE_MAX, "every extended attribute fits");

static inline void ns_put64(uint8_t *p, uint64_t v)
{
	v = htobe64(v);
	memcpy(p, &v, sizeof(v));
}

static inline uint64_t ns_get64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return be64toh(v);
}

static inline struct kv_slice ns_slice(const void *data, size_t len)
{
	return (struct kv_slice){.s_data = data, .s_len = len};
}

/* buf: NS_KEY_INODE bytes */
static inline struct kv_slice ns_key_ino(uint8_t *buf, uint8_t prefix, uint64_t ino)
{
	buf[0] = prefix;
	ns_put64(buf + 1, ino);
	return ns_slice(buf, NS_KEY_INODE);
}

/* buf: NS_KEY_DIRENT bytes; its first NS_KEY_INODE bytes are the directory's prefix */
static inline struct kv_slice ns_key_dirent(uint8_t *buf, uint64_t dir, uint64_t slot)
{
	ns_key_ino(buf, NS_K_DIRENT, dir);
	ns_put64(buf + NS_KEY_INODE, slot);
	return ns_slice(buf, NS_KEY_DIRENT);
}

/* buf: NS_KEY_XATTR_MAX bytes; len at most NS_XATTR_NAME_MAX */
static inline struct kv_slice ns_key_xattr(uint8_t *buf, uint64_t ino, const char *name, size_t len)
{
	ns_key_ino(buf, NS_K_XATTR, ino);
	if (len)
		memcpy(buf + NS_KEY_INODE, name, len);
	return ns_slice(buf, NS_KEY_INODE + len);
}

/* ns_record.c: bytes to structures and back. Decoders return 0 or -EIO, point into their input and
 * trust nothing in it. */
uint64_t ns_name_hash(const uint8_t key[16], const char *name, size_t len);
int ns_inode_decode(struct kv_slice val, uint64_t ino, struct ns_inode *out);
size_t ns_inode_encode(const struct ns_inode *i, uint8_t buf[NS_INODE_VAL_MAX]);
int ns_dirent_decode(struct kv_slice key, struct kv_slice val, uint64_t *dir,
		     struct ns_dirent *out);
size_t ns_dirent_encode(uint64_t ino, uint8_t type, const char *name, size_t len,
			uint8_t buf[NS_DIRENT_VAL_MAX]);
int ns_super_decode(struct kv_slice val, struct ns_super *su, uint64_t *inodes);
void ns_super_encode(const struct ns_super *su, uint64_t inodes, struct ns_super_rec *out);
/* 0, -EINVAL or -ENAMETOOLONG */
int ns_xattr_name_check(const char *name, size_t len);

/* ns_acl.c: stored ACLs to structures and back, and modes to ACLs and back. */
/* Returns the length of the ACL record at the begin of p; 0: damaged. */
size_t ns_acl_rec_len(const uint8_t *p, size_t max, uint8_t type);
void ns_acl_decode(struct kv_slice rec, struct ns_acl *out);
struct kv_slice ns_acl_encode(const struct ns_acl *a, uint8_t buf[NS_ACL_REC_MAX]);
/* Returns the rights in want that the ACL allows cr. *denied: rights that it denies. It says
 * nothing of the others. */
uint32_t ns_acl_eval(const struct ns_inode *i, const struct ns_cred *cr, uint32_t want,
		     uint32_t *denied);
/* Does the ACL let any user execute? */
bool ns_acl_executable(const struct ns_inode *i);
/* Returns the nine mode bits (RFC 8881 section 6.3.2). */
uint16_t ns_acl_mode(const struct ns_acl *a);
/* Makes an ACL that says what the mode says. */
void ns_acl_of_mode(uint16_t mode, bool dir, struct ns_acl *out);
/* RFC 8881 section 6.4.1.1. named: the mode whose group bits limit named users and groups. */
void ns_acl_set_mode(struct ns_acl *a, uint16_t mode, uint16_t named, bool dir);
/* RFC 8881 section 6.4.3.1: what a new file or directory inherits; false: nothing. */
bool ns_acl_inherit(struct kv_slice parent, bool dir, struct ns_acl *out);
/* A symbolic link can have no ACL, and only a directory passes one on: 0 or -EPROTONOSUPPORT. */
int ns_acl_fits(const struct ns_acl *a, uint8_t type);
bool ns_acl_same(const struct ns_acl *a, const struct ns_acl *b);

struct ns {
	struct kv *n_kv;
	/* As committed at open: identity, keys and boot do not change after that; its counters are
	 * old. */
	struct ns_super n_super;
	_Atomic uint64_t n_inodes;
	/* For the committer only: */
	uint64_t n_ino_next, n_order_next;
	uint32_t n_frees;		/* frees since the count was last written */
	uint8_t n_blob[NS_SYMLINK_MAX]; /* i_blob of what the last W function returned */
	uint8_t n_acl[NS_ACL_REC_MAX];	/* and its i_acl */
	uint8_t n_sums[NS_SUMS_MAX];	/* and its i_sums */
	uint8_t n_xattr[NS_XATTR_VALUE_MAX + 1];
	/* Rows NS_K_UNPUSHED: as many as the committer has seen come and go. It may be wrong after
	 * an aborted batch; a fold that finds none corrects it. */
	_Atomic int64_t n_unpushed;
};

/* An inode that outlives the next put: its blob and ACL are copies. */
struct ns_inode_held {
	struct ns_inode h_i;
	uint8_t h_blob[NS_SYMLINK_MAX];
	uint8_t h_acl[NS_ACL_REC_MAX];
	uint8_t h_sums[NS_SUMS_MAX];
};

int ns_super_get(struct kv_txn *t, struct ns_super *su);
int ns_super_put(struct ns *ns, struct kv_txn *t, const struct ns_super *su); /* W */
/* W: deletes every row under a prefix, at most max of them. Returns how many. */
int ns_prefix_del(struct kv_txn *t, struct kv_slice prefix, unsigned max);
/* W: boot.c: makes an identity for the boot that su_boot now names. */
int ns_boot_begin(struct kv_txn *t, struct ns_super *su);
/* Copies the slices of h_i, which end with the next put, into h. */
void ns_inode_hold(struct ns_inode_held *h);
int ns_inode_copy(struct ns *ns, struct kv_txn *t, uint64_t ino, struct ns_inode_held *h);
int ns_inode_copy_dir(struct ns *ns, struct kv_txn *t, uint64_t ino,
		      struct ns_inode_held *h);		      /* also -ENOTDIR */
int ns_inode_put(struct kv_txn *t, const struct ns_inode *i); /* W */
/* ns_stamp.c. W: a time that is given. Open: begins the clock of the store. Decode: the row's value
 * to nanoseconds of CLOCK_REALTIME; -EIO: damaged; -EPROTONOSUPPORT: a later version. */
int ns_stamp_put(struct kv_txn *t, const struct ns_time *ctime);
int ns_stamp_open(struct kv_txn *t);
int ns_stamp_decode(struct kv_slice val, int64_t *ns);
int ns_xattrs_del(struct kv_txn *t, uint64_t ino); /* W: all of an inode */
/* Copies h_i to *out, with blob and ACL in ns's own memory: valid until the next W function. */
void ns_inode_give(struct ns *ns, const struct ns_inode *i, struct ns_inode *out);
/* ns_ino_next returns the next inode number, which was never given before. Use it only in a
 * transaction in which ns_ino_reserve (W) follows. */
uint64_t ns_ino_next(struct ns *ns);
int ns_ino_reserve(struct ns *ns, struct kv_txn *t, uint64_t ino);
int ns_inode_freed(struct ns *ns, struct kv_txn *t); /* W: keeps the count */
/* A name in a directory. */
struct ns_name {
	uint64_t nm_dir;
	const char *nm_name;
	size_t nm_len;
};
/* ns_dir.c, for the trash: may the directory get this name? 0, -EEXIST, -ENOSPC, -EMLINK. */
int ns_dir_room(struct ns *ns, struct kv_txn *t, uint64_t dir, const char *name, size_t len);
/* W: puts the name of i in, which ns_dir_room has let pass; the directory changes by it. */
int ns_dir_attach(struct ns *ns, struct kv_txn *t, const struct ns_name *at,
		  const struct ns_inode *i, struct ns_time now);
/* ns_trash.c */
bool ns_trash_takes(const struct ns_inode *i);
/* W: i's last name, which was there, is gone, and i says so. */
int ns_trash_put(struct ns *ns, struct kv_txn *t, struct ns_inode *i, const struct ns_name *at,
		 struct ns_time now, const struct ns_free_ops *fo);
int ns_trash_decode(struct kv_slice key, struct kv_slice val, struct ns_trash *out);
/* A row of kind 3: where the entry of the inode is, in the first four fields of *out. */
int ns_trash_place_decode(struct kv_slice val, struct ns_trash *out);
size_t ns_trash_encode(const struct ns_trash *e, uint8_t buf[NS_TRASH_VAL_MAX]);
/* A row that was set aside, or NULL: the kind that it had. */
const uint8_t *ns_trash_aside_kind(struct kv_slice key);
/* Does the order of expiry have the entry? */
bool ns_trash_expires(struct kv_txn *t, const struct ns_trash *e);
/* A row of another kind than an entry: is it whole, and is there the entry that it leads to? */
bool ns_trash_row_ok(struct kv_txn *t, struct kv_slice key, struct kv_slice val);
/* Is the user the owner, root, or the server itself (cr NULL)? */
static inline bool ns_is_owner(const struct ns_inode *i, const struct ns_cred *cr)
{
	return !cr || cr->cr_uid == 0 || cr->cr_uid == i->i_uid;
}

/* ns_check_sum.c: compares the sums of directories and users with all inodes, and the rows of
 * further names with all entries. Runs after the passes of ns_check, in the same snapshot. bad gets
 * one line for each violation. rows: how many rows it saw. Returns 0 or -errno. */
int ns_check_sums(struct kv_txn *t, void (*bad)(void *arg, const char *line), void *arg,
		  uint64_t *rows);

/* ns_check.c: the offline checker. Reads one snapshot; needs about 48 bytes of memory for each
 * inode. fn gets one line for each violation, without a newline. */
struct ns_check_stats {
	/* cs_rows: without events, and without those of sums, which are cs_sums */
	uint64_t cs_inodes, cs_dirs, cs_entries, cs_xattrs, cs_acls, cs_orphans, cs_trash, cs_rows,
		cs_sums, cs_events, cs_violations;
	uint64_t cs_counted; /* the count in the super record: exact only after a clean stop */
};
/* 0, with violations or without; -errno if the store could not be read or memory ran out. */
int ns_check(struct kv_txn *t, void (*fn)(void *arg, const char *line), void *arg,
	     struct ns_check_stats *st);
#endif
