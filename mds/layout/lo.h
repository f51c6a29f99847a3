/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lo.h - layouts: policies, layout maps, the Flex Files encoding (RFC 8435), and data access by
 * map.
 *
 * A layout map says where a regular file's data is: stripes x mirrors objects, each on one data
 * server. The server chooses it once, in the transaction that creates the file, and keeps it in the
 * inode (i_blob). The mapping is sparse (RFC 8435 section 6): an object's offset is the file's
 * offset; the stripe of an offset is (offset / unit) % stripes. Each object has a state of its own.
 * Copies of one stripe never share a server. A set of objects is a number with a bit for each index
 * in lm_obj.
 */
#ifndef MDS_LO_H
#define MDS_LO_H
#include "mds/dataserver/ds_reg.h"
#include "mds/namespace/ns.h"
#include "proto/cap.h"
#include "proto/rpc.h"
#include "proto/xdr.h"

/* Entries of 92 bytes that fit in 4096, the longest layout that Linux accepts. */
#define LO_MAX_OBJECTS	 44
#define LO_UNIT_MIN	 (1u << 20)
#define LO_UNIT_DEFAULT	 (1u << 20)
#define LO_POLICY_TEXT	 384
#define LO_POLICY_MAX	 320 /* bytes of the stored form */
#define LO_GROUPS_LEN	 256
#define LO_PIN_GROUP_LEN 64

struct lo_policy {
	uint32_t lp_unit; /* bytes, power of two, 1 MiB .. 2 GiB */
	uint8_t lp_stripes, lp_mirrors;
	/* copies of a stripe differ in this label; "": in their servers only */
	char lp_domain[LABELS_KEY_MAX + 1];
	/* The policy has a threshold; else the configuration's applies (mds.threshold). */
	bool lp_has_threshold;
	/* Bytes, 0 .. 1 TiB: files of the directory that are smaller are better read and written
	 * through the MDS; 0: none. Not kept with a file. */
	uint64_t lp_threshold;
	/* The policy says how long the trash keeps what is removed; else the parent's policy
	 * does. */
	bool lp_has_trash;
	uint32_t lp_trash_s; /* at most 3650 days; 0: nothing is kept. Not kept with a file. */
	/* "group=EXPR,group0=EXPR,group3=EXPR" in this order, each or none; "": all servers */
	char lp_groups[LO_GROUPS_LEN];
	/* Of a file with a pinned copy (docs/pin.md): its mirror, counted from 1; 0: none. Only
	 * lp_pin_group says where it may be, neither groups nor domain. No stored form has these
	 * two, and lo_policy_format leaves that mirror out. */
	uint8_t lp_pin;
	char lp_pin_group[LO_PIN_GROUP_LEN];
};
extern const struct lo_policy lo_policy_default; /* stripes=1,unit=1M,mirrors=1 */
/* Parses "stripes=4,unit=1M,mirrors=2,domain=rack,threshold=64K,trash=7d,group0=rack=r1/r2". Keys
 * may be in any order; absent keys get defaults (docs/groups.md). -EINVAL with one line in err that
 * names the key and what was expected. */
int lo_policy_parse(const char *text, size_t len, struct lo_policy *p, char *err, size_t errlen);
/* Writes the normal form "stripes=4,unit=1M,mirrors=2", then domain, threshold, trash, group,
 * group0, group1.. if any. Returns its length. */
size_t lo_policy_format(const struct lo_policy *p, char out[LO_POLICY_TEXT]);
/* The stored form (versioned). An empty slice decodes to the default. -EIO: damaged. */
size_t lo_policy_encode(const struct lo_policy *p, uint8_t *out, size_t max);
int lo_policy_decode(struct kv_slice s, struct lo_policy *p);
struct lo;
/* W: gives a directory that policy (NULL: removes its own). 0, or the error of ns_set_blob. */
int lo_policy_set(struct lo *lo, struct kv_txn *t, uint64_t dir, const struct lo_policy *p,
		  struct ns_time now);
/* Call it at the start: sets mds.threshold, and reads whether directories have their own. */
int lo_threshold_load(struct lo *lo, uint64_t bytes);
/* Returns the size in bytes below which a regular file is better read and written through the MDS
 * (mdsthreshold): from the policy in force in its directory, or mds.threshold. 0: no file is. */
uint64_t lo_threshold(struct lo *lo, struct kv_txn *t, const struct ns_inode *i);
/* trash_policy.c: for how many seconds the trash keeps what is removed from this directory; 0: not
 * at all. The nearest directory upwards decides whose own policy says so. */
uint32_t lo_trash_s(struct lo *lo, struct kv_txn *t, uint64_t dir);
/* Call it at the start: reads whether a policy ever had the key. 0 or -errno. */
int lo_trash_load(struct lo *lo);
/* W: a policy with the key is being set. */
int lo_trash_note(struct lo *lo, struct kv_txn *t);

enum lo_state {
	LO_IN_SYNC = 0,
	LO_STALE = 1,
	LO_REBUILDING = 2,
	LO_ABSENT = 3 /* there is none: only in a pending mirror */
};
struct lo_object {
	uint32_t ob_ds;	  /* dsc id */
	uint8_t ob_state; /* enum lo_state */
	uint8_t ob_known; /* 1: the object is known to exist */
	/* The server's write count as last seen. Another count means a new mtime. */
	uint64_t ob_writes;
	/* With the stripe, the object's name on its server. It is no position in the map, and no
	 * other object of the stripe ever has the same number. */
	uint8_t ob_copy;
	/* It goes when its stripe can do without it (mds/layout/mirror_change.h). */
	bool ob_leaving;
	/* in sync, but became so while two clients wrote the file: it comes after the others */
	bool ob_late;
};

struct lo_map {
	uint32_t lm_unit;
	uint8_t lm_stripes, lm_mirrors;
	/* the copy number of the next object */
	uint8_t lm_next;
	uint32_t lm_epoch; /* fence epoch of all objects of the file */
	/* No client got a capability of this epoch: there is nothing to fence. */
	bool lm_clean;
	/* The last mirror is pending: its objects take the places of leaving ones. */
	bool lm_pending_mirror;
	/* Moves what is not where the policy wants it. */
	bool lm_move;
	uint32_t lm_from; /* moves what is on this server; 0: none */
	/* Of the policy by which the file was placed, as in lo_policy. */
	char lm_domain[LABELS_KEY_MAX + 1];
	char lm_groups[LO_GROUPS_LEN];
	/* The mirror that is a pinned copy, counted from 1 (0: none), and the labels of its
	 * servers. */
	uint8_t lm_pin;
	char lm_pin_group[LO_PIN_GROUP_LEN];
	struct lo_object lm_obj[LO_MAX_OBJECTS]; /* [mirror * stripes + stripe] */
};
size_t lo_map_encode(const struct lo_map *m, uint8_t *out, size_t max);
int lo_map_decode(struct kv_slice s, struct lo_map *m); /* -EIO: damaged */
/* How many copies of the data a stored map keeps: its mirrors, but for a pending one. For
 * ns_sum_set_copies; cheaper than to decode it. */
unsigned lo_map_copies(struct kv_slice s);
/* Returns in *p the policy by which the file was placed; a pending mirror is not among its mirrors.
 * -EIO: damaged. */
int lo_map_policy(const struct lo_map *m, struct lo_policy *p);
/* Changes a policy to have one mirror less (gone: its number), or one more at the end (gone: -1)
 * with that group (NULL or "": no group of its own). -EINVAL with a line in err. */
int lo_policy_mirrors(struct lo_policy *p, int gone, const char *group, char *err, size_t errlen);
static inline unsigned lo_objects(const struct lo_map *m)
{
	return (unsigned)m->lm_stripes * m->lm_mirrors;
}
static inline unsigned lo_stripe_of(const struct lo_map *m, uint64_t off)
{
	return (unsigned)(off / m->lm_unit % m->lm_stripes);
}

/* Returns the index in lm_obj of the stripe's r-th copy in sync, or -1. */
int lo_copy(const struct lo_map *m, unsigned stripe, unsigned r);
/* Returns the r-th copy of a stripe that may be read, or -1. same: two clients write the file, so
 * its copies may differ, and only the first one is read. Call this whenever a file is read or
 * copied. */
int lo_source(const struct lo_map *m, unsigned stripe, unsigned r, bool same);
/* Returns the r-th copy that writes must reach, or -1: copies in sync first, then those being
 * rebuilt. */
int lo_writer(const struct lo_map *m, unsigned stripe, unsigned r);
/* Returns all objects that writes must reach. */
uint64_t lo_writers(const struct lo_map *m);
/* Returns the index in lm_obj of the object with that stripe and copy number on that server, or
 * -1. */
int lo_object_of(const struct lo_map *m, uint32_t ds, unsigned stripe, unsigned copy);
/* Makes the objects of hit that are in sync or being rebuilt stale, if their stripe keeps a copy in
 * sync. Returns the objects that became stale. *last (last may be NULL): objects of hit that stay
 * because they are the last in sync. Objects of their stripe that were being rebuilt become stale:
 * they may hold more than the last one does. */
uint64_t lo_map_make_stale(struct lo_map *m, uint64_t hit, uint64_t *last);
/* The copies of these stripes (a bit each) may differ. One copy in sync stays so, one of prefer (a
 * set of objects) if there is one; the others become stale. Returns the objects that became
 * stale. */
uint64_t lo_map_suspect(struct lo_map *m, uint64_t stripes, uint64_t prefer);
/* Returns the objects that writes must reach and whose servers were declared dead. */
uint64_t lo_map_dead(struct lo *lo, const struct lo_map *m);
/* Has a stripe no copy in sync, except on such servers? */
bool lo_map_unavailable(struct lo *lo, const struct lo_map *m);
/* What a file has left. DEGRADED: it can be read, and has fewer good copies than it should. LOST: a
 * stripe has no good copy. A copy is good if it is in sync and its server was not declared dead. A
 * copy that is being made in place of one that leaves does not count. */
enum lo_condition { LO_FINE, LO_DEGRADED, LO_LOST };
enum lo_condition lo_map_condition(struct lo *lo, const struct lo_map *m);
/* Returns the stripes of these objects, a bit each. */
uint64_t lo_map_stripes(const struct lo_map *m, uint64_t objects);
/* Returns the objects on that server, in any state. */
uint64_t lo_map_on(const struct lo_map *m, uint32_t ds);
/* Returns the servers of the objects that writes must reach, each as lo_server_bit: two may share a
 * bit. */
uint64_t lo_map_servers(const struct lo_map *m);
static inline uint64_t lo_server_bit(uint32_t ds)
{
	return UINT64_C(1) << ds % 64;
}
/* Returns the objects whose servers live. */
uint64_t lo_map_alive(struct lo *lo, const struct lo_map *m);
/* Returns for each stripe the copy in sync whose server had the latest heartbeat: a server that was
 * stopped looks alive for a while. A copy that is not in doubted goes before those that are. */
uint64_t lo_map_last_heartbeat(struct lo *lo, const struct lo_map *m, uint64_t doubted);
/* Returns for each stripe the first copy whose server lives and that is not in doubted, in the
 * order in which all readers of a contended file take them. */
uint64_t lo_map_first(struct lo *lo, const struct lo_map *m, uint64_t doubted);
/* For a contended file: if the first copy of a stripe cannot be read, returns the copies before the
 * one that readers take next, whose server lives. failed: objects that could not be read. Returns
 * none of a stripe while the first copy's server is away and still has its lease, because it may
 * come back with what readers have seen; and none if no other copy of the stripe lives. */
uint64_t lo_first_lost(struct lo *lo, const struct lo_map *m, uint64_t failed);
/* Makes the object in sync. late: two clients write the file, and may have written this copy in
 * another order than those in sync. Then it comes after them (lo_copy). */
void lo_map_join(struct lo_map *m, unsigned obj, bool late);
/* Are all objects in sync, and is none being moved or removed? */
bool lo_map_whole(const struct lo_map *m);
/* Returns the same objects in another state of the file's map, where they may have other indexes,
 * or be gone. */
uint64_t lo_map_same(const struct lo_map *was, uint64_t objects, const struct lo_map *is);
/* Returns a copy number that no object of the stripe has; the next call returns another one. */
uint8_t lo_map_new_copy(struct lo_map *m, unsigned stripe);

int lo_create(struct lo **out, struct ns *ns, struct ds_reg *dsc);
/* Call it when the loops have ended. */
void lo_destroy(struct lo *lo);
/* Chooses servers for a new file: living ones, by weight, exactly as the policy says. Any thread.
 * -EAGAIN: too few live, but with servers that lived patience_ms ago, or may still join, there
 * would be enough. -ENOSPC: not with these either; the log says what is missing. */
int lo_place(struct lo *lo, const struct lo_policy *p, uint64_t ino, uint32_t patience_ms,
	     struct lo_map *m);
/* Chooses a server for an object of that stripe, as its copy of that mirror. The server lives, has
 * a weight and room, is not drained, holds nothing of the stripe, is in the mirror's groups and in
 * no other copy's domain, and is not bad. without: objects that do not count, because they go. To
 * have few objects of this file matters more than weight. 0: there is none. */
uint32_t lo_place_object(struct lo *lo, const struct lo_map *m, unsigned stripe, unsigned mirror,
			 uint64_t without, uint32_t bad);
/* The same, with a say about each server: fits returns whether it may be that one. fits runs
 * without a lock. */
struct lo_fits {
	bool (*lf_fits)(void *arg, uint32_t ds);
	void *lf_arg;
};
uint32_t lo_place_object_fits(struct lo *lo, const struct lo_map *m, unsigned stripe,
			      unsigned mirror, uint64_t without, uint32_t bad,
			      const struct lo_fits *f);
/* Is that server one of these? */
bool lo_place_may(struct lo *lo, const struct lo_map *m, unsigned stripe, unsigned mirror,
		  uint64_t without, uint32_t ds);
/* Is an object where the policy wants it: in its mirror's groups, and in a domain that none of the
 * stripe's copies before it has? */
bool lo_placed_well(struct lo *lo, const struct lo_map *m, unsigned obj);
/* Asks whether m can become the file's map in this transaction: its objects on generic data servers
 * that were not in the old map (NULL: there was none) must become files made ahead. 0; -EAGAIN:
 * there are too few of these at the moment. */
int lo_can_adopt(struct lo *lo, struct kv_txn *t, const struct lo_map *old, const struct lo_map *m);
/* W, after that: makes them the file's objects; may put orders. 0 or -errno. */
int lo_adopt(struct lo *lo, struct kv_txn *t, const struct ns_inode *i, const struct lo_map *old,
	     const struct lo_map *m);
/* Is any object on a generic data server (docs/generic.md)? Then there is no clone, and a fence of
 * each file keeps out an evicted client. */
bool lo_generic(struct lo *lo, const struct lo_map *m);
/* Is an object on such a server being rebuilt? The MDS does that (mds/dataserver/nfs3ds_copy.c),
 * and must see every write. */
bool lo_copied_here(struct lo *lo, const struct lo_map *m);
/* Refuses a policy that can never be met: -EINVAL with a line in err. Its layout does not fit 4096
 * bytes; it has more mirrors than there are known servers, or values of the domain among them; or
 * no server is in its groups. */
int lo_policy_check(struct lo *lo, const struct lo_policy *p, char *err, size_t errlen);

/* Appends the body of a ff_layout4 (RFC 8435 section 5.1) for one client to x. read, write: what
 * the capabilities allow. flags: FF_FLAGS_*. -EAGAIN: a stripe has no copy in sync; -E2BIG: longer
 * than 4096 bytes; -EIO: the map names an unknown server.
 *
 * A layout for reading names all objects in sync, except those on servers that were declared dead
 * if their stripe has another. A layout for writing also names the objects being rebuilt, with
 * capabilities that cannot read.
 *
 * Row r of the layout has the r-th copy of each stripe, in the order in which this client should
 * read them (read_order.c), those being rebuilt last. A stripe with fewer copies than another names
 * its last one in sync again: so a writer reaches every copy that counts, and each stays in sync. A
 * row with an object being rebuilt has the least efficiency. */
struct lo_reader {
	uint32_t rd_client;			/* cp_client of its capabilities */
	const struct sockaddr_storage *rd_peer; /* or NULL */
	/* The copies may differ: all readers read the same copy of each stripe, and a layout for
	 * reading has no other. */
	bool rd_same;
};
int lo_encode_layout(struct lo *lo, const struct ns_inode *i, const struct lo_map *m, bool read,
		     bool write, const struct lo_reader *reader, uint32_t flags, struct xdr_out *x);
/* Call it before the loops run: clients of a network have the servers with these labels near. Near
 * servers count as if they had factor times their weight. text: "NETWORK LABELS, ..." (weft-mds(8),
 * mds.near). -EINVAL, -E2BIG, -ENOMEM with a line in err. */
int lo_near_set(struct lo *lo, const char *text, unsigned factor, char *err, size_t errlen);
/* Does lo_near_set take this text? As it, and nothing is set. Any thread. */
int lo_near_check(const char *text, char *err, size_t errlen);
/* Puts GETDEVICEINFO's device_addr4 body (ff_device_addr4) for a deviceid, which is the data
 * server's uuid, with addresses in the order in which a client at peer should try them. -ENOENT. */
int lo_encode_device(struct lo *lo, const uint8_t deviceid[16], const struct sockaddr_storage *peer,
		     bool tls, struct xdr_out *x);
/* Fills order with that order, and returns how many: RDMA before TCP, then addresses in a subnet
 * that the peer is in too, then as the server reports them. A client takes the first to which it
 * can connect. tls: the client's connection to the MDS has TLS. Then it uses TLS with the data
 * servers too, over TCP. Over RDMA its data would go in the clear, so these addresses are left
 * out. */
unsigned lo_order_addrs(const struct ds_reg_server *sv, const struct sockaddr_storage *peer,
			bool tls, uint8_t order[DS_REG_ADDRS]);
/* Returns the JSON of user.weft.layout (version, inode, size, unit, mirrors[...]), malloc'd. */
char *lo_layout_json(struct lo *lo, struct kv_txn *t, const struct ns_inode *i,
		     const struct lo_map *m);
/* Writes "01234567-89ab-...". */
void lo_uuid_text(const uint8_t uuid[16], char out[37]);
/* Returns a server's addresses as a JSON array (jansson) of "host:port"; the caller owns the
 * reference. */
struct json_t *lo_addrs_json(const struct ds_reg_server *sv);

/* Data access by map, through the MDS, for clients without layouts. Call it on io_loop; io_done is
 * called there once, never from inside the call. The MDS uses NFSv3 to the data servers with
 * capabilities of client 0. Errors: -ETIMEDOUT (no copy can be reached), -EACCES (fenced since the
 * map was read: read it again), -ESTALE (deleted, or missing though known to exist), -ENOSPC, -EIO,
 * -ENOMEM. READ: io_count becomes the number of valid bytes, less than asked for only at i_size;
 * holes are zeros. */
struct lo_io {
	struct loop *io_loop;
	struct ns_inode io_inode; /* i_size counts for reads; i_blob and i_acl are not used */
	struct lo_map io_map;
	uint64_t io_off;
	uint32_t io_count;
	const uint8_t *io_data; /* WRITE: the payload; the caller keeps it until io_done */
	uint32_t io_stable;	/* WRITE: 0 UNSTABLE, 1 DATA_SYNC, 2 FILE_SYNC */
	/* WRITE/COMMIT: the map is the present one, and all servers know its epoch. So a copy that
	 * answers ACCESS has failed like any other. */
	bool io_denied;
	/* nothing protects the request that needs this I/O, so TLS is not needed either */
	bool io_clear;
	/* READ: the copies may differ, so only the first one of each stripe is read */
	bool io_same;
	/* Results: */
	uint8_t *io_buf; /* READ: io_count bytes are valid; the caller frees it by lo_buf_free */
	uint32_t io_committed;
	uint64_t io_verifier; /* of WRITE and COMMIT: changes when any data server's does */
	/* WRITE/COMMIT: objects that failed while another copy took it: the caller makes them
	 * stale. READ with io_same: objects that could not be read. */
	uint64_t io_failed_map;
	/* WRITE/COMMIT that failed: the objects that it was for. Some may have taken it. */
	uint64_t io_half_map;
	void (*io_done)(struct lo_io *io, int err); /* -EIO, -ENOSPC, -ETIMEDOUT.. */
	void *io_priv;				    /* for lo only */
};
/* Allocates n zero bytes, from the pool while that has enough: what is read then leaves by RDMA
 * without a copy. lo_buf_free accepts NULL. */
uint8_t *lo_buf_new(size_t n);
void lo_buf_free(void *p);
/* Fills in all of an I/O except its map and a WRITE's data. */
void lo_io_fill(struct lo_io *io, struct loop *loop, const struct ns_inode *i, uint64_t off,
		uint32_t count, void (*done)(struct lo_io *io, int err));
void lo_read(struct lo *lo, struct lo_io *io);
void lo_write(struct lo *lo, struct lo_io *io);
void lo_commit(struct lo *lo, struct lo_io *io);
/* A copy that will get no more COMMITs may have lost what was written: the verifier changes. Any
 * thread. */
void lo_may_have_lost(struct lo *lo);
/* Makes these objects end at io_off at least, durably: puts a zero before it where they have no
 * data of the file. Otherwise like lo_write. */
void lo_pad(struct lo *lo, struct lo_io *io, uint64_t objects);

/* Asks the data servers how large the file is (the maximum over objects in sync) and how often its
 * objects were written. It skips dead servers; the deadline is 2 s. ls_used counts each stripe's
 * largest copy once. err: 0, or -ETIMEDOUT if a stripe has no copy that answered (the results have
 * the rest). An object that is not there counts as empty. An object that is known to exist and is
 * not there is logged, and counts as missing. */
struct lo_stat {
	struct loop *ls_loop;
	uint64_t ls_ino;
	uint16_t ls_incarnation;
	struct lo_map ls_map;
	/* Ends when one copy of each stripe has answered; the others count as missing. */
	bool ls_enough;
	uint64_t ls_size, ls_used;	    /* results, in bytes */
	uint64_t ls_answered;		    /* objects that are in sync and whose server answered */
	uint64_t ls_writes[LO_MAX_OBJECTS]; /* of those: write counts */
	uint64_t ls_sizes[LO_MAX_OBJECTS];  /* likewise */
	uint64_t ls_exists;		    /* objects that are there */
	uint64_t ls_durable;		    /* likewise, and would be after a loss of power */
	/* Objects that are known to exist, and of which the server says that they are not there. */
	uint64_t ls_lost;
	unsigned ls_missing; /* number of objects in sync that could not be asked */
	void (*ls_done)(struct lo_stat *ls, int err);
	void *ls_priv;
};
void lo_stat(struct lo *lo, struct lo_stat *ls);
/* Do copies that were asked together differ? They do if they have different ends, or if moved names
 * some copies of a stripe and not others. moved: objects that were written since a time common to
 * all. The write counts themselves cannot be compared, because each server counts on its own. False
 * if not all answered; and for striped files on generic data servers, whose objects end where the
 * file does. */
bool lo_uneven(struct lo *lo, const struct lo_stat *ls, uint64_t moved);
/* Returns the objects of a striped file on generic data servers that end before the file does: they
 * would make a client believe that the file ends there. size: the file's; its last byte is in
 * another stripe. */
uint64_t lo_short(struct lo *lo, const struct lo_stat *ls, uint64_t size);

/* Finds the next data or hole at or after lk_off, by one copy of each stripe. */
struct lo_seek {
	struct loop *lk_loop;
	uint64_t lk_ino;
	uint16_t lk_incarnation;
	struct lo_map lk_map;
	uint64_t lk_off;
	bool lk_hole;
	bool lk_same; /* as io_same */
	/* Results. Not found: all from lk_off on is a hole (with lk_hole: all possible offsets have
	 * data). */
	bool lk_found;
	uint64_t lk_at;
	uint64_t lk_failed; /* lk_same: objects that could not be asked */
	/* -ETIMEDOUT, -EIO: no copy of a stripe answers */
	void (*lk_done)(struct lo_seek *lk, int err);
	void *lk_priv; /* for lo only */
};
void lo_seek(struct lo *lo, struct lo_seek *lk);

/* A change of a range that data servers make by themselves, in every copy that is in sync or being
 * rebuilt. It is durable when it is done. Errors are those of a write. Also -ENOSPC: one copy has
 * no room for an allocation; -EOPNOTSUPP: a server's file system cannot do it. EXTEND: the objects
 * of an unstriped file end at the range's end at least. COPY takes the source's bytes from lc_from
 * on, where lo_copy_is_local permits; it is durable after lo_commit only, and lc_verifier is as of
 * lo_write. */
enum lo_change_kind { LO_ALLOCATE, LO_EXTEND, LO_DEALLOCATE, LO_COPY };
struct lo_change {
	struct loop *lc_loop;
	uint64_t lc_ino;
	uint16_t lc_incarnation;
	struct lo_map lc_map;
	enum lo_change_kind lc_kind;
	uint64_t lc_off, lc_len;  /* lc_len is not 0 */
	uint64_t lc_src, lc_from; /* COPY: the source's inode, and the offset in it */
	uint16_t lc_src_incarnation;
	struct lo_map lc_src_map;
	bool lc_src_same; /* as io_same */
	/* Results: */
	/* Objects that failed while another copy of their stripe did it. */
	uint64_t lc_failed_map;
	/* If it failed: the objects that it was for. Some may have done it. */
	uint64_t lc_half_map;
	uint64_t lc_verifier;
	void (*lc_done)(struct lo_change *lc, int err);
	void *lc_priv; /* for lo only */
};
void lo_change(struct lo *lo, struct lo_change *lc);
/* Does each object of dst have its bytes in an object of src on its own server, and no stripe two
 * copies? (Two copies would be taken from two copies of the source, which a client may be writing.)
 * same: the source's copies may differ, see lo_source. */
bool lo_copy_is_local(const struct lo_map *dst, const struct lo_map *src, bool same, uint64_t from,
		      uint64_t to);
/* Are these offsets of the two files at the same place of the same stripe? */
bool lo_same_row(const struct lo_map *m, uint64_t from, uint64_t to);

/* Orders (durable work for data servers), queued in a mutation. W: all that put one. */
/* Orders the deletion of every object of the map in i_blob, and of its pending layout
 * (mds/layout/pending_layout.h). */
int lo_order_free(struct lo *lo, struct kv_txn *t, const struct ns_inode *i);
/* deletes this one */
int lo_order_free_object(struct lo *lo, struct kv_txn *t, const struct ns_inode *i,
			 const struct lo_map *m, unsigned obj);
/* Orders the deletion of an object on that server that belongs to no file (object_owner.c). */
int lo_order_delete(struct lo *lo, struct kv_txn *t, uint32_t ds, const ctl_object *o);
/* Is that ordered already, as far as a kick or wait has seen, or in t? Any thread. */
bool lo_order_deletes(struct lo *lo, struct kv_txn *t, uint32_t ds, const ctl_object *o);
/* To which file an object on a server belongs, as of the transaction. */
enum lo_owner {
	LO_OWNED,   /* to a file, or that cannot be found out */
	LO_NOBODYS, /* to none: it may be deleted */
	/* To a file, but it is not in the map: it may be deleted if another copy of its stripe is
	 * there. */
	LO_BESIDE,
	/* To another file system, or to a later incarnation of this store or of its file. */
	LO_FOREIGN,
	LO_NOT_YET, /* to a future file: the store is older than the object */
	/* It may be newer than the restored store: the administrator decides. */
	LO_NEWER,
	LO_OWNERS
};
/* decided: the administrator has decided to delete what may be newer than a restored store. */
enum lo_owner lo_owner_of(struct lo *lo, struct kv_txn *t, uint32_t ds, const ctl_object *o,
			  bool decided);
/* Is there an order for this object, other than a deletion, that is not done? *upto: 0 at the first
 * call, kept for the next ones: orders that were put after the first call do not count, because
 * they are not this object's, or change no data (the file is frozen). Any thread. */
bool lo_order_pending(struct lo *lo, uint64_t ino, const struct lo_map *m, unsigned obj,
		      uint64_t *upto);
int lo_order_truncate(struct lo *lo, struct kv_txn *t, const struct ns_inode *i,
		      const struct lo_map *m, uint64_t size); /* every object */
int lo_order_fence(struct lo *lo, struct kv_txn *t, const struct ns_inode *i,
		   const struct lo_map *m, uint32_t epoch); /* every object */
/* this object, with the map's epoch */
int lo_order_fence_object(struct lo *lo, struct kv_txn *t, const struct ns_inode *i,
			  const struct lo_map *m, unsigned obj);
/* m is a map from before a fence that clients' layouts make necessary. Makes stale in it what the
 * fence does not wait for, and nothing else: a generic data server that is dead confirms nothing,
 * and the file does without what is stale there (docs/generic.md). False: the fence waits for
 * everything. */
bool lo_fence_unconfirmed(struct lo *lo, struct lo_map *m);
/* CLONE: when the order is done, cl_len bytes of the source from cl_from on are at cl_to in the
 * file, in every copy in sync. -EXDEV: a server of the file has no copy of the source; nothing is
 * queued if the caller asked lo_clone_source first. */
struct lo_clone {
	uint64_t cl_ino, cl_from, cl_to, cl_len;
	uint16_t cl_incarnation;
	bool cl_same; /* as io_same */
	struct lo_map cl_map;
};
int lo_order_clone(struct lo *lo, struct kv_txn *t, const struct ns_inode *i,
		   const struct lo_map *m, const struct lo_clone *cl);
/* Returns the object of src from which an object of dst can be cloned: one of the same stripe that
 * may be read (lo_source), on the same server. -1: none. */
int lo_clone_source(const struct lo_map *dst, unsigned obj, const struct lo_map *src, bool same);
/* Bars a client's number on every known server. lo_orders_wait knows these orders as inode 0. */
int lo_order_bar(struct lo *lo, struct kv_txn *t, uint32_t client);
/* After the commit. lo_orders_wake runs what is queued. lo_orders_wait calls done on loop when
 * every order of this inode that was queued so far is done, or the lease of a server that has not
 * done one is over (0). After timeout_ms, and not before each weft data server has reported that it
 * honours no older capability: -ETIMEDOUT: some order is not on disk, or is not a fence. -EBUSY:
 * also a generic server has not confirmed a fence or a size, and may accept what it accepted
 * before. */
void lo_orders_wake(struct lo *lo);
/* Call it after the commit that freed a file: its objects are deleted soon, together with others.
 * Any thread. */
void lo_orders_files_gone(struct lo *lo);
void lo_orders_wait(struct lo *lo, uint64_t ino, struct loop *loop, uint32_t timeout_ms,
		    void (*done)(void *arg, int err), void *arg);
/* The same, except for orders of objects that are stale in this map, or not in it: no layout has
 * those, so a server that cannot run them holds up no request. NULL: waits for all. */
void lo_orders_wait_used(struct lo *lo, uint64_t ino, const struct lo_map *map, struct loop *loop,
			 uint32_t timeout_ms, void (*done)(void *arg, int err), void *arg);
/* Returns the objects of the map that are in sync or being rebuilt and must not be used yet: a
 * truncate or fence of theirs that a kick or wait has seen is not done. Any thread. */
uint64_t lo_objects_with_orders(struct lo *lo, uint64_t ino, const struct lo_map *m);
/* Fills in the name by which its data server knows an object of the file. */
void lo_object_name(struct lo *lo, uint64_t ino, uint16_t incarnation, const struct lo_map *m,
		    unsigned obj, ctl_object *out);
/* Are there orders for that server that are neither done nor dropped? */
bool lo_orders_for(struct kv_txn *t, uint32_t ds);
/* Returns how many orders the server has reported that it cannot run, and in *for_ms for how many
 * milliseconds there have been such. They are tried again. Any thread. */
uint32_t lo_orders_failing(struct lo *lo, uint32_t ds, uint64_t *for_ms);
/* Looks how old the oldest order of each server is. Call it now and then, on the first loop. */
void lo_orders_look(struct lo *lo);
/* Returns for how many milliseconds the server's oldest order has been waiting, as of the last
 * look; 0: it has none. An order from before our start counts from when it was read. Any thread. */
uint64_t lo_orders_age(struct lo *lo, uint32_t ds);
/* An order that is not done. */
struct lo_order_view {
	uint64_t ov_number, ov_ino, ov_age_ms; /* inode 0: of no file */
	uint32_t ov_ds, ov_type, ov_client;    /* ov_type: ctl_order_type */
	uint32_t ov_tries;		       /* how often it was sent */
	int32_t ov_error; /* of the last try: ctl_status or -errno; 0: none is known */
	uint8_t ov_stripe, ov_mirror;
};
/* Lists orders that are known and not done, of a server (0: all): most at most, the oldest first.
 * It lists LO_ORDERS_LOOKED orders at most, in steps between which others go on. *out is malloc'd.
 * Returns how many, or -ENOMEM. Any thread. */
#define LO_ORDERS_LOOKED 100000
long lo_orders_list(struct lo *lo, uint32_t ds, size_t most, struct lo_order_view **out);
/* Call it when the server was forgotten: drops its orders. Any thread. */
void lo_orders_forget(struct lo *lo, uint32_t ds);
/* Is an order of this file known and not done? Any thread. */
bool lo_orders_of(struct lo *lo, uint64_t ino);
/* Returns how many orders are known and not done. */
uint64_t lo_orders_count(struct lo *lo);
#endif
