/*
 * lo.h - layouts: policies, placement maps, the Flex Files encoding (RFC 8435), and data access by
 * map.
 *
 * A map says where a regular file's data is: stripes x mirrors objects, each on one data server. It
 * is chosen once, in the transaction that creates the file, and kept in the inode (i_blob). Mapping
 * is sparse: an object's offset is the file's offset; the stripe of an offset is (offset / unit) %
 * stripes. State is per object. Copies of one stripe never share a server.
 */
#ifndef MDS_LO_H
#define MDS_LO_H
#include "mds/dataserver/dsc.h"
#include "mds/namespace/ns.h"
#include "proto/cap.h"
#include "proto/rpc.h"
#include "proto/xdr.h"

/* entries of 92 bytes that fit in 4096, the longest layout that Linux takes */
#define LO_MAX_OBJECTS	44
#define LO_UNIT_MIN	(1u << 20)
#define LO_UNIT_DEFAULT (1u << 20)
#define LO_POLICY_TEXT	384
#define LO_POLICY_MAX	288 /* bytes of the stored form */
#define LO_GROUPS_LEN	256

struct lo_policy {
	uint32_t lp_unit; /* bytes, power of two, 1 MiB .. 2 GiB */
	uint8_t lp_stripes, lp_mirrors;
	char lp_domain[LABELS_KEY_MAX +
		       1]; /* copies of a stripe differ in this label; "": each server is its own */
	/* lp_threshold was said; else the configuration's holds (mds.threshold) */
	bool lp_steers;
	/* bytes, 0 .. 1 TiB: smaller files of the directory are better done through us; 0: none is.
	 * Not kept with a file */
	uint64_t lp_threshold;
	char lp_groups[LO_GROUPS_LEN]; /* "group=EXPR,group0=EXPR,group3=EXPR" in this order, each
					  or none; "": all servers */
};
extern const struct lo_policy lo_policy_default; /* stripes=1,unit=1M,mirrors=1 */
/* "stripes=4,unit=1M,mirrors=2,domain=rack,threshold=64K,group=speed=nvme,group0=rack=r1/r2", keys
 * in any order, absent keys take defaults (docs/groups.md). -EINVAL with one line in err naming the
 * key and what was expected. */
int lo_policy_parse(const char *text, size_t len, struct lo_policy *p, char *err, size_t errlen);
/* Normal form "stripes=4,unit=1M,mirrors=2", then domain, threshold, group, group0, group1.. if
 * any. Returns its length. */
size_t lo_policy_format(const struct lo_policy *p, char out[LO_POLICY_TEXT]);
/* Stored form (versioned). An empty slice decodes to the default. */
size_t lo_policy_encode(const struct lo_policy *p, uint8_t *out, size_t max);
int lo_policy_decode(struct kv_slice s, struct lo_policy *p);
struct lo;
/* W: gives a directory that policy (NULL: takes its own away). What ns_set_blob tells. */
int lo_policy_set(struct lo *lo, struct kv_txn *t, uint64_t dir, const struct lo_policy *p,
		  struct ns_time now);
/* At the start: mds.threshold, and whether directories have their own. */
int lo_steer_load(struct lo *lo, uint64_t bytes);
/* A regular file that is smaller is better read and written through us (mdsthreshold): as the
 * policy in force in its directory says, or mds.threshold. 0: none is. */
uint64_t lo_threshold(struct lo *lo, struct kv_txn *t, const struct ns_inode *i);

enum lo_state {
	LO_IN_SYNC = 0,
	LO_STALE = 1,
	LO_REBUILDING = 2,
	LO_ABSENT = 3 /* there is none: in a spare column */
};
struct lo_object {
	uint32_t ob_ds;	  /* dsc id */
	uint8_t ob_state; /* enum lo_state */
	uint8_t ob_known; /* 1: the object is known to exist */
	/* the server's write count as last seen: another one is a new mtime */
	uint64_t ob_writes;
	/* its name on its server, beside the stripe: no position in the map, and never another's of
	 * the stripe */
	uint8_t ob_copy;
	/* it goes, when its stripe can do without it (mds/layout/column.h) */
	bool ob_leaving;
	bool ob_late; /* in sync, and it came so while two wrote the file: it comes after the others
		       */
};

struct lo_map {
	uint32_t lm_unit;
	uint8_t lm_stripes, lm_mirrors;
	/* the copy number that an object gets that is made next */
	uint8_t lm_next;
	uint32_t lm_epoch; /* fence epoch of all objects of the file */
	/* no client was given a capability of this epoch: there is nothing to fence */
	bool lm_clean;
	/* the last mirror is none: its objects take the places of those that leave */
	bool lm_spare;
	/* what is not where the policy wants it is moved */
	bool lm_move;
	uint32_t lm_from; /* what is on this server is moved; 0: none */
	/* of the policy that the file was placed by, as in lo_policy */
	char lm_domain[LABELS_KEY_MAX + 1];
	char lm_groups[LO_GROUPS_LEN];
	struct lo_object lm_obj[LO_MAX_OBJECTS]; /* [mirror * stripes + stripe] */
};
size_t lo_map_encode(const struct lo_map *m, uint8_t *out, size_t max);
int lo_map_decode(struct kv_slice s, struct lo_map *m); /* -EIO */
/* The policy that the file was placed by: its mirrors are those without a spare one. -EIO:
 * damaged. */
int lo_map_policy(const struct lo_map *m, struct lo_policy *p);
/* A policy with one mirror less (gone: its number), or one more at the end, with that group (NULL
 * or "": no group of its own). -EINVAL with a line in err. */
int lo_policy_column(struct lo_policy *p, int gone, const char *group, char *err, size_t errlen);
static inline unsigned lo_objects(const struct lo_map *m)
{
	return (unsigned)m->lm_stripes * m->lm_mirrors;
}
static inline unsigned lo_stripe_of(const struct lo_map *m, uint64_t off)
{
	return (unsigned)(off / m->lm_unit % m->lm_stripes);
}

/* The r-th copy of a stripe that is in sync: its index in lm_obj, or -1. */
int lo_copy(const struct lo_map *m, unsigned stripe, unsigned r);
/* The r-th copy of a stripe that may be read, or -1. same: two write the file, so its copies may
 * differ, and only the first of all is read. Whoever reads a file, or has it copied, asks this. */
int lo_source(const struct lo_map *m, unsigned stripe, unsigned r, bool same);
/* The same of those that writes reach: the ones in sync first, then those being rebuilt. */
int lo_writer(const struct lo_map *m, unsigned stripe, unsigned r);
/* A bit for each object that writes reach. */
uint64_t lo_writers(const struct lo_map *m);
/* The object of that stripe and copy number on that server: its index in lm_obj, or -1. */
int lo_object_of(const struct lo_map *m, uint32_t ds, unsigned stripe, unsigned copy);
/* Makes the objects of hit (a bit each), in sync or being rebuilt, stale where their stripe keeps a
 * copy in sync. Returns those that became so. *last (may be NULL): those of hit that stay because
 * they are the last in sync; what was being rebuilt of their stripe becomes stale: it may hold more
 * than they do. */
uint64_t lo_map_make_stale(struct lo_map *m, uint64_t hit, uint64_t *last);
/* The copies of these stripes (a bit each) may differ: one in sync stays so, of those in prefer (a
 * bit per object) where it can be, and the others become stale. Returns those that became so. */
uint64_t lo_map_mistrust(struct lo_map *m, uint64_t stripes, uint64_t prefer);
/* Those that count, and are on servers that were declared dead. */
uint64_t lo_map_dead(struct lo *lo, const struct lo_map *m);
/* A stripe has no copy in sync but on such servers. */
bool lo_map_cut(struct lo *lo, const struct lo_map *m);
/* The stripes of these objects, a bit each. */
uint64_t lo_map_stripes(const struct lo_map *m, uint64_t objects);
/* Its objects on that server, in any state. */
uint64_t lo_map_on(const struct lo_map *m, uint32_t ds);
/* A bit of 64 for each server of the objects that count. */
uint64_t lo_map_servers(const struct lo_map *m);
static inline uint64_t lo_server_bit(uint32_t ds)
{
	return UINT64_C(1) << ds % 64;
}
/* Those on servers that live. */
uint64_t lo_map_alive(struct lo *lo, const struct lo_map *m);
/* Of each stripe the copy in sync whose server lives and was heard last: who stands still looks
 * alive for a while. One that is not doubted goes before those that are. */
uint64_t lo_map_heard(struct lo *lo, const struct lo_map *m, uint64_t doubted);
/* Of each stripe the first copy whose server lives, in the order that all readers of a contended
 * file have. Not one of doubted. */
uint64_t lo_map_first(struct lo *lo, const struct lo_map *m, uint64_t doubted);
/* Of a contended file, where the first copy of a stripe cannot be read: those that come before the
 * one that readers have next, and that lives. failed: reads of these failed. Empty while the first
 * one's server is away and has its lease still, as it may come back with what readers have seen;
 * and where no other copy of the stripe lives. */
uint64_t lo_first_lost(struct lo *lo, const struct lo_map *m, uint64_t failed);
/* The object is in sync from now on. late: two write the file, and may have written this copy in
 * another order than those in sync. It comes after them then (lo_copy). */
void lo_map_join(struct lo_map *m, unsigned obj, bool late);
/* All objects are in sync, and none is being moved or taken away. */
bool lo_map_whole(const struct lo_map *m);
/* The same objects in another state of the file's map: what is bit k in was may be another bit
 * there, or none. */
uint64_t lo_map_same(const struct lo_map *was, uint64_t objects, const struct lo_map *is);
/* A copy number that no object of the stripe has; the next one is another. */
uint8_t lo_map_new_copy(struct lo_map *m, unsigned stripe);

int lo_create(struct lo **out, struct ns *ns, struct dsc *dsc);
/* The loops have ended. */
void lo_destroy(struct lo *lo);
/* Chooses servers for a new file (any thread): living ones, by weight, as the policy says or not at
 * all. -EAGAIN: too few are alive, but those that were patience_ms ago, or may still join, would
 * do. -ENOSPC: nor would they; the log says what is lacking. */
int lo_place(struct lo *lo, const struct lo_policy *p, uint64_t ino, uint32_t patience_ms,
	     struct lo_map *m);
/* A server for an object of that stripe, as its copy of that mirror: one that lives, has a weight,
 * is not drained, has room, holds nothing of the stripe, and is in the mirror's groups and in no
 * other copy's domain. without: objects (a bit each) that do not count, as they go. Not bad. Few
 * objects of this file count more than weight. 0: there is none. */
uint32_t lo_place_object(struct lo *lo, const struct lo_map *m, unsigned stripe, unsigned mirror,
			 uint64_t without, uint32_t bad);
/* Whether that server is one of those. */
bool lo_place_may(struct lo *lo, const struct lo_map *m, unsigned stripe, unsigned mirror,
		  uint64_t without, uint32_t ds);
/* Whether a server is where the policy wants an object of that mirror: its groups, and a domain
 * that none of the stripe's copies before it is in. */
bool lo_placed_well(struct lo *lo, const struct lo_map *m, unsigned obj);
/* A map that is about to be the file's, in that transaction: its objects on generic data servers
 * that were not in the old map (NULL: there was none) are files made ahead. 0, or -EAGAIN: there
 * are not enough at the moment. */
int lo_can_adopt(struct lo *lo, struct kv_txn *t, const struct lo_map *old, const struct lo_map *m);
/* W, after that; may put orders */
int lo_adopt(struct lo *lo, struct kv_txn *t, const struct ns_inode *i, const struct lo_map *old,
	     const struct lo_map *m);
/* Some of it is on a generic data server (docs/generic.md): there is no clone, and who is evicted
 * is kept out by a fence of each file. */
bool lo_generic(struct lo *lo, const struct lo_map *m);
/* An object on one is being rebuilt: we do that (mds/dataserver/gen_copy.c), and have to see every
 * write. */
bool lo_copied_here(struct lo *lo, const struct lo_map *m);
/* Refuses a policy that can never be served: -EINVAL with a line (does not fit 4096 bytes, more
 * mirrors than known servers, or than these have values of the domain; groups that none is in). */
int lo_policy_check(struct lo *lo, const struct lo_policy *p, char *err, size_t errlen);

/* The body of a ff_layout4 (RFC 8435 section 5.1) for one client: appends to x. write: capabilities
 * that may write. flags: FF_FLAGS_*. A layout for reading names the objects that are in sync, and
 * all of them, but those on servers that were declared dead where their stripe has another; one for
 * writing also those being rebuilt, with capabilities that do not read. Row r of the layout holds
 * the r-th copy of each stripe, in the order in which this client should read them (prefer.c),
 * those being rebuilt last. A stripe with fewer copies than another names its last one in sync
 * again: a writer then reaches every copy that counts, so that each stays so. A row with an object
 * being rebuilt has the least efficiency. -EAGAIN: a stripe has no copy in sync; -E2BIG: longer
 * than 4096 bytes; -EIO: names an unknown server. */
struct lo_reader {
	uint32_t rd_client;			/* cp_client of its capabilities */
	const struct sockaddr_storage *rd_peer; /* or NULL */
	bool rd_same; /* the copies may differ: all readers read the same one of each stripe, and a
			 layout for reading has no other */
};
int lo_encode_layout(struct lo *lo, const struct ns_inode *i, const struct lo_map *m, bool read,
		     bool write, const struct lo_reader *reader, uint32_t flags, struct xdr_out *x);
/* Before the loops run: clients of a network have servers with these labels near, which then count
 * as if they had factor times their weight. text: "NETWORK LABELS, ..." (weft-mds(8), mds.near).
 * -EINVAL, -E2BIG, -ENOMEM with a line. */
int lo_near_set(struct lo *lo, const char *text, unsigned factor, char *err, size_t errlen);
/* GETDEVICEINFO's device_addr4 body (ff_device_addr4) for a deviceid, in the order in which a
 * client at peer should try the addresses; -ENOENT. Deviceid: the data server's uuid. */
int lo_encode_device(struct lo *lo, const uint8_t deviceid[16], const struct sockaddr_storage *peer,
		     bool tls, struct xdr_out *x);
/* That order, and how many: RDMA before TCP, then those in a subnet that the peer is in as well,
 * then as the server says. A client takes the first that it can connect to. tls: its connection
 * here has TLS. It uses TLS with the data servers as well, over TCP; over RDMA its data would go in
 * the clear, so these are left out. */
unsigned lo_order_addrs(const struct dsc_server *sv, const struct sockaddr_storage *peer, bool tls,
			uint8_t order[DSC_ADDRS]);
/* The JSON of user.weft.layout (version, inode, size, unit, mirrors[...]); malloc'd. */
char *lo_layout_json(struct lo *lo, struct kv_txn *t, const struct ns_inode *i,
		     const struct lo_map *m);
/* "01234567-89ab-..." */
void lo_uuid_text(const uint8_t uuid[16], char out[37]);
/* A server's addresses as a JSON array (jansson) of "host:port"; the caller's reference. */
struct json_t *lo_addrs_json(const struct dsc_server *sv);

/* Data by map, through the MDS (clients without layouts). On the calling loop; done is called on
 * it, once, never from inside the call. All use NFSv3 to the data servers with capabilities of
 * client 0. Errors: -ETIMEDOUT (no copy can be reached), -EACCES (fenced since the map was read:
 * read it again), -ESTALE (deleted, or missing though known to exist), -ENOSPC, -EIO, -ENOMEM.
 * READ: io_count becomes what is valid, short only at i_size; holes are zeros. */
struct lo_io {
	struct loop *io_loop;
	struct ns_inode io_inode; /* i_size counts for reads; i_blob and i_acl are not used */
	struct lo_map io_map;
	uint64_t io_off;
	uint32_t io_count;
	const uint8_t *io_data; /* WRITE: the payload, the caller keeps it until done */
	uint32_t io_stable;	/* WRITE: 0 UNSTABLE, 1 DATA_SYNC, 2 FILE_SYNC */
	/* WRITE/COMMIT: the map is that of now, and all have heard of its epoch: a copy that denies
	 * has failed as any other */
	bool io_denied;
	bool io_clear; /* nothing protects the request that it is for: it need not go over TLS */
	bool io_same;  /* READ: the copies may differ. Of each stripe only the first is read */
	/* Results: */
	uint8_t *io_buf; /* READ: io_count bytes valid; the caller gives it to lo_buf_free */
	uint32_t io_committed;
	uint64_t io_verifier;	/* of WRITE and COMMIT: changes when any data server's does */
	uint64_t io_failed_map; /* WRITE/COMMIT: bit per object index that failed while another copy
				   took it (make it stale). READ by io_same: that could not be read
				 */
	/* WRITE/COMMIT that failed: the objects that it was for. Some may have taken it */
	uint64_t io_half_map;
	void (*io_done)(struct lo_io *io, int err); /* -EIO, -ENOSPC, -ETIMEDOUT.. */
	void *io_priv;				    /* lo's own */
};
/* Zeros; of the pool while that has enough, so that what is read leaves by RDMA from where it lies.
 * NULL may be freed. */
uint8_t *lo_buf_new(size_t n);
void lo_buf_free(void *p);
/* All of an I/O by map but the map itself, and a WRITE's data. */
void lo_io_fill(struct lo_io *io, struct loop *loop, const struct ns_inode *i, uint64_t off,
		uint32_t count, void (*done)(struct lo_io *io, int err));
void lo_read(struct lo *lo, struct lo_io *io);
void lo_write(struct lo *lo, struct lo_io *io);
void lo_commit(struct lo *lo, struct lo_io *io);
/* A copy that no COMMIT will be sent to any more could not keep what was written: the verifier
 * changes. Any thread. */
void lo_may_have_lost(struct lo *lo);
/* These objects end at io_off at least: a zero before it, where none of their data is; durably. As
 * lo_write otherwise. */
void lo_pad(struct lo *lo, struct lo_io *io, uint64_t objects);

/* Asks the data servers how large the file is (max over in-sync objects) and how often its objects
 * were written. Skips dead servers, deadline 2 s. ls_used counts each
 * stripe's largest copy once. err: 0, or -ETIMEDOUT when a stripe has no copy that answered (the
 * rest is in the results). An object that is not there counts as empty; one that is known to exist
 * and is not there is logged, and counts as missing. */
struct lo_stat {
	struct loop *ls_loop;
	uint64_t ls_ino;
	uint16_t ls_incarnation;
	struct lo_map ls_map;
	/* it is done when one copy of each stripe has told; who has not is missing */
	bool ls_enough;
	uint64_t ls_size, ls_used;	    /* results */
	uint64_t ls_answered;		    /* bit per object: in sync, and its server told */
	uint64_t ls_writes[LO_MAX_OBJECTS]; /* of those: write counts */
	uint64_t ls_sizes[LO_MAX_OBJECTS];  /* likewise */
	uint64_t ls_exists;		    /* bit per object: it is there */
	uint64_t ls_durable;		    /* likewise, and it would be after a loss of power */
	/* bit per object: it is known to exist, and its server says that it is not there */
	uint64_t ls_lost;
	unsigned ls_missing; /* how many in-sync objects could not be asked */
	void (*ls_done)(struct lo_stat *ls, int err);
	void *ls_priv;
};
void lo_stat(struct lo *lo, struct lo_stat *ls);
/* Whether copies that were asked together differ: their ends do, or moved (a bit for each object
 * that was written since a time that is common to all) tells some of a stripe and not others. The
 * counts themselves are each server's own, and say nothing beside another's. False where not all
 * answered, and for striped files on generic data servers, whose objects end where the file
 * does. */
bool lo_uneven(struct lo *lo, const struct lo_stat *ls, uint64_t moved);
/* Objects (a bit each) of a striped file that end before it does, on generic data servers, which
 * would tell a client that the file ends there. size: the file's; its last byte is in another's
 * stripe. */
uint64_t lo_short(struct lo *lo, const struct lo_stat *ls, uint64_t size);

/* Where the next data or hole at or after lk_off is, by one copy of each stripe. */
struct lo_seek {
	struct loop *lk_loop;
	uint64_t lk_ino;
	uint16_t lk_incarnation;
	struct lo_map lk_map;
	uint64_t lk_off;
	bool lk_hole;
	bool lk_same; /* as io_same */
	/* Results: not found means that all from lk_off on is a hole (or, asked for holes, that
	 * every offset there can be has data). */
	bool lk_found;
	uint64_t lk_at;
	uint64_t lk_failed; /* lk_same: bit per object that could not be asked */
	/* -ETIMEDOUT, -EIO: a stripe has no copy that tells */
	void (*lk_done)(struct lo_seek *lk, int err);
	void *lk_priv; /* lo's own */
};
void lo_seek(struct lo *lo, struct lo_seek *lk);

/* A change of a range that data servers do by themselves, in every copy that is in sync or being
 * rebuilt; durable when it is done. Errors as of a write; -ENOSPC of an allocation where one copy
 * has no room; -EOPNOTSUPP: a server's file system cannot. EXTEND: the objects of an unstriped file
 * end at the range's end at least. COPY takes the source's bytes from lc_from on, where
 * lo_copy_is_local says that it can; it is durable after lo_commit, and lc_verifier is as of
 * lo_write. */
enum lo_change_kind { LO_ALLOCATE, LO_EXTEND, LO_DEALLOCATE, LO_COPY };
struct lo_change {
	struct loop *lc_loop;
	uint64_t lc_ino;
	uint16_t lc_incarnation;
	struct lo_map lc_map;
	enum lo_change_kind lc_kind;
	uint64_t lc_off, lc_len;  /* lc_len is not 0 */
	uint64_t lc_src, lc_from; /* COPY: the source's inode; from where in it */
	uint16_t lc_src_incarnation;
	struct lo_map lc_src_map;
	bool lc_src_same; /* as io_same */
	/* Results: */
	/* bit per object that failed while another copy of its stripe did it */
	uint64_t lc_failed_map;
	/* where it failed: the objects that it was for. Some may have done it */
	uint64_t lc_half_map;
	uint64_t lc_verifier;
	void (*lc_done)(struct lo_change *lc, int err);
	void *lc_priv; /* lo's own */
};
void lo_change(struct lo *lo, struct lo_change *lc);
/* Each object of dst has its bytes in one of src on its own server, and no stripe has two copies:
 * those would be taken from two of the source, which may be written meanwhile. same: the source's
 * may differ, as lo_source. */
bool lo_copy_is_local(const struct lo_map *dst, const struct lo_map *src, bool same, uint64_t from,
		      uint64_t to);
/* Offsets of the two files are at the same place of the same stripe. */
bool lo_same_row(const struct lo_map *m, uint64_t from, uint64_t to);

/* Orders (durable work for data servers), queued in a mutation (W): */
/* Delete every object of the map in i_blob, and of its pending layout (mds/layout/twin.h). */
int lo_order_free(struct lo *lo, struct kv_txn *t, const struct ns_inode *i);
/* delete this one */
int lo_order_free_object(struct lo *lo, struct kv_txn *t, const struct ns_inode *i,
			 const struct lo_map *m, unsigned obj);
/* Delete an object of that server that is no file's (garbage.c). */
int lo_order_delete(struct lo *lo, struct kv_txn *t, uint32_t ds, const ctl_object *o);
/* Whether that is ordered already: as far as a kick or wait has seen, or in t. Any thread. */
bool lo_order_deletes(struct lo *lo, struct kv_txn *t, uint32_t ds, const ctl_object *o);
/* Whose an object is that a server has, as of the transaction. */
enum lo_owner {
	LO_OWNED,   /* a file's, or it cannot be told */
	LO_NOBODYS, /* it may be deleted */
	/* a file's, but not in its map: it may be deleted when another copy of its stripe is
	 * there */
	LO_BESIDE,
	/* of another file system, or of a later incarnation of this store or of its file */
	LO_FOREIGN,
	LO_NOT_YET, /* of a file that will be: the store is older than the object */
	/* it may be newer than the store that was put back: the administrator decides */
	LO_NEWER,
	LO_OWNERS
};
/* decided: the administrator has decided that nothing is kept of what may be newer than a store
 * that was put back. */
enum lo_owner lo_owner_of(struct lo *lo, struct kv_txn *t, uint32_t ds, const ctl_object *o,
			  bool decided);
/* Whether an order for this object is not done that others than deletions wait for. *upto: 0 when
 * it is first asked, and kept for the next time: what is put after the first look does not count
 * (it is not this object's, or changes no data: the file is frozen). Any thread. */
bool lo_order_pending(struct lo *lo, uint64_t ino, const struct lo_map *m, unsigned obj,
		      uint64_t *upto);
int lo_order_truncate(struct lo *lo, struct kv_txn *t, const struct ns_inode *i,
		      const struct lo_map *m, uint64_t size); /* every object */
int lo_order_fence(struct lo *lo, struct kv_txn *t, const struct ns_inode *i,
		   const struct lo_map *m, uint32_t epoch); /* every object */
/* this one, with the map's epoch */
int lo_order_fence_object(struct lo *lo, struct kv_txn *t, const struct ns_inode *i,
			  const struct lo_map *m, unsigned obj);
/* Of a map as it was before a fence that clients' layouts make necessary: what the fence does not
 * wait for is stale in it, and nothing else. A generic data server that is dead confirms nothing,
 * and what is stale there is done without (docs/generic.md). False: everything is waited for. */
bool lo_fence_unheard(struct lo *lo, struct lo_map *m);
/* CLONE: cl_len bytes of the source, from cl_from on, are at cl_to in the file then, in every copy
 * in sync. -EXDEV (and nothing is queued where the caller asked lo_clone_source first): a server of
 * the file's has no copy of the source. */
struct lo_clone {
	uint64_t cl_ino, cl_from, cl_to, cl_len;
	uint16_t cl_incarnation;
	bool cl_same; /* as io_same */
	struct lo_map cl_map;
};
int lo_order_clone(struct lo *lo, struct kv_txn *t, const struct ns_inode *i,
		   const struct lo_map *m, const struct lo_clone *cl);
/* The object of src that an object of dst can be cloned from: one of the same stripe that may be
 * read (lo_source), on the same server. -1: none. */
int lo_clone_source(const struct lo_map *dst, unsigned obj, const struct lo_map *src, bool same);
/* Bars a client's number on every known server. Its inode number, for lo_orders_wait, is 0. */
int lo_order_bar(struct lo *lo, struct kv_txn *t, uint32_t client);
/* After the commit: run what is queued; done (may be NULL) on loop when every order of this inode
 * queued so far is done, or the lease of a server that has not done one is over. After timeout_ms
 * and not before each server of ours has said that it honours no older capability: -ETIMEDOUT,
 * some of it is not on disk, or is no fence. -EBUSY: a generic server, too, has not confirmed a
 * fence or a size, and may take what it took before. */
void lo_orders_kick(struct lo *lo);
/* After the commit that freed a file: its objects are deleted soon, with those of others. Any
 * thread. */
void lo_orders_gone(struct lo *lo);
void lo_orders_wait(struct lo *lo, uint64_t ino, struct loop *loop, uint32_t timeout_ms,
		    void (*done)(void *arg, int err), void *arg);
/* The same, but for orders of objects that are stale in this map, or not in it: nobody has a layout
 * with one of those, and a server that cannot do them holds up nobody. NULL: for all. */
void lo_orders_wait_used(struct lo *lo, uint64_t ino, const struct lo_map *map, struct loop *loop,
			 uint32_t timeout_ms, void (*done)(void *arg, int err), void *arg);
/* Which objects of the map (a bit each, in sync or being rebuilt) must not be used yet: a truncate
 * or a fence of theirs, that a kick or wait has seen, is not done. Any thread. */
uint64_t lo_held_objects(struct lo *lo, uint64_t ino, const struct lo_map *m);
/* How its data server knows an object of the file. */
void lo_object_name(struct lo *lo, uint64_t ino, uint16_t incarnation, const struct lo_map *m,
		    unsigned obj, ctl_object *out);
/* Whether there are orders for that server that are not done, or were not written off yet. */
bool lo_orders_for(struct kv_txn *t, uint32_t ds);
/* How many orders the server has said that it cannot do, and for how long there have been such;
 * they are tried again. Any thread. */
uint32_t lo_orders_failing(struct lo *lo, uint32_t ds, uint64_t *for_ms);
/* The server was forgotten: its orders go. Any thread. */
void lo_orders_forget(struct lo *lo, uint32_t ds);
/* One of this file is known, and not done. Any thread. */
bool lo_orders_of(struct lo *lo, uint64_t ino);
/* How many orders are known and not done. */
uint64_t lo_orders_count(struct lo *lo);
#endif
