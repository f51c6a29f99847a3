/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.h - the objects of a data server, as plain files.
 *
 *   DIR/lock                      flock: one daemon per store
 *   DIR/identity                  text: version, uuid, name, cluster, fs
 *   DIR/journal/NNNN              deleted objects, barred clients, instance epoch, boot number
 *                                 (journal.c)
 *   DIR/counted                   since when mtimes are write counts (store.c)
 *   DIR/reserve                   space for the store's own files on a full disk (reserve.c)
 *   DIR/objects/XX/YY/NAME        the objects (proto/objname.h); xattr user.weft: fence epoch and
 *                                 last order
 *
 * A store may have several folders, one for each drive. The first is the home, as above. The others
 * hold objects and nothing else:
 *
 *   HOME/volumes                  text: version, and number, uuid and folder of each of the others
 *                                 (adopt.c)
 *   HOME/marks                    high-water marks: for each volume, the number above which it has
 *                                 no objects (volume.c)
 *   DIR/volume                    text: version, the store's uuid, the volume's uuid
 *   DIR/lock, DIR/objects         as in the home
 *
 * The first write creates an object. An object that does not exist reads as empty, unless it was
 * deleted: then reads fail with -ESTALE, for as long as a capability from before may be in use
 * (so_tomb_keep_ms).
 *
 * Threads. Any loop looks objects up. I/O runs on the ring of the calling loop and completes there.
 * Work that blocks (orders, stat, list) runs on the store's workers, never on a loop.
 *
 * Durability. A write is stable after ds_obj_sync() has succeeded. A sync that fails changes the
 * write verifier before any client gets a later success, so that every client whose unstable data
 * may be lost sends them again.
 *
 * Errors are negative errnos.
 */
#ifndef DS_STORE_STORE_H
#define DS_STORE_STORE_H
#include "base/pool.h"
#include "proto/cap.h"
#include "proto/ctl.h"
#include <stdatomic.h>
#include <sys/stat.h>

#define DS_PAGE	       4096u
#define DS_MAX_IO      (1u << 20)
#define DS_UUID_LEN    16
#define DS_NAME_MAX    64
#define DS_VOLUMES_MAX 16
#define DS_FS_MAX      64 /* file systems that one store serves */

struct ds_store;
struct ds_fs;
struct ds_obj;

#define DS_RESERVE_BYTES (16u << 20)
struct ds_store_opts {
	/* folders separated by commas, the home first; at most DS_VOLUMES_MAX */
	const char *so_dir;
	const char *so_name;	/* "": the name in the store, or the host's */
	const uint8_t *so_uuid; /* the uuid of a new store; NULL: a random one */
	/* how many unused objects stay open; 0: from RLIMIT_NOFILE */
	unsigned so_max_open;
	uint64_t so_reserve;	  /* bytes of the reserve (reserve.c); 0: DS_RESERVE_BYTES */
	uint64_t so_tomb_keep_ms; /* a deleted object is remembered at least so long */
	bool so_no_direct;	  /* never O_DIRECT */
	/* poll for direct I/O, on loops with a ring for polling, where the drive has queues for
	 * it */
	bool so_poll;
};

struct ds_identity {
	uint8_t id_uuid[DS_UUID_LEN];
	uint8_t id_cluster[DS_UUID_LEN]; /* zero before the first join */
	char id_name[DS_NAME_MAX + 1];
	uint32_t id_fs; /* the first file system that the store joined; 0: none */
};

/* Opens a store; creates it when the folder is empty or missing. On error err has one line for the
 * administrator. */
int ds_store_open(struct ds_store **out, const struct ds_store_opts *opts, char *err,
		  size_t errlen);
/* No object may be in use. */
void ds_store_close(struct ds_store *s);
/* For an orderly end of the daemon: puts all on the disk. The loops have stopped. */
void ds_store_sync(struct ds_store *s);
/* Makes the metrics of the store. Once, before other threads run. */
void ds_store_metrics_init(void);

/* Makes the metrics of the volumes: names and space. Once, before other threads run. The store must
 * never be closed. */
void ds_store_volume_metrics(struct ds_store *s);
/* Splits a list such as so_dir into folders. malloc'd; ds_dirs_free frees them. */
int ds_dirs_parse(const char *list, char *dirs[DS_VOLUMES_MAX], unsigned *n, char *err,
		  size_t errlen);
void ds_dirs_free(char *dirs[DS_VOLUMES_MAX], unsigned n);

/* Returns a copy: a join may change the identity. */
struct ds_identity ds_store_identity(struct ds_store *s);

/* ---- the file systems that the store serves (fs.c) ---- */

/* NULL: the store has not met it. Any thread, without a lock. */
struct ds_fs *ds_store_fs(struct ds_store *s, uint32_t number);
/* The same, but meets it: from then on the store has it in memory. Its first join makes it durable.
 * -ENOTCONN: the store has joined no cluster (ds_store_set_cluster).
 * -EOVERFLOW: the store serves DS_FS_MAX others. -EINVAL: not a number of a file system. May block
 * on the disk the first time. */
int ds_store_fs_meet(struct ds_store *s, uint32_t number, struct ds_fs **out);
/* The first that the store joined; number 0: it has not joined any. Never NULL. */
struct ds_fs *ds_store_fs_home(struct ds_store *s);
/* By place; NULL: there are not so many. Any thread. */
struct ds_fs *ds_store_fs_at(struct ds_store *s, unsigned place);
uint32_t ds_fs_number(const struct ds_fs *f);
/* Its place among those of the store, 0 to DS_FS_MAX - 1; the home's is 0. Never changes while the
 * store is open. */
unsigned ds_fs_place(const struct ds_fs *f);
struct ds_store *ds_fs_store(const struct ds_fs *f);

/* The store's cluster. The first one, and the number of the home file system, are durable when it
 * returns 0. -EXDEV: the store belongs to another cluster. Blocks on the disk; a join does it
 * once. */
int ds_store_set_cluster(struct ds_store *s, const uint8_t cluster[DS_UUID_LEN], uint32_t fs);
/* A small file of this name in the home. Get: returns its text as a string; 0 or a negative errno.
 * Put: durable when it returns 0. */
int ds_store_text_get(struct ds_store *s, const char *name, char *text, size_t size);
int ds_store_text_put(struct ds_store *s, const char *name, const char *text);
/* The folders that have the objects; the first is the home. */
unsigned ds_store_volumes(const struct ds_store *s);
const char *ds_store_volume_dir(const struct ds_store *s, unsigned i);
struct statvfs;
/* The sum over the volumes that work, and the home, in the home's f_frsize. 0 or a negative
 * errno. */
int ds_store_statvfs(struct ds_store *s, struct statvfs *v);
/* Bytes of the volumes that work; available is 0 while the home does not work. Also starts health
 * checks of idle volumes, because each report to the MDS calls this. */
void ds_store_space(struct ds_store *s, uint64_t *capacity, uint64_t *available);
/* The size of which reflinks are multiples; 0: some volume's file system has no reflinks. */
uint32_t ds_store_clone_block(struct ds_store *s);
/* True when the store knows that the disk of a volume does not work (health.c). */
bool ds_store_failing(struct ds_store *s);
/* At or above the number of the file system's highest order that the store has seen, in steps of
 * CTL_ORDER_STEP; a crash does not lower it. */
uint64_t ds_store_order_high(struct ds_fs *f);
/* The numbers that the two sides of a join compare (docs/recovery.md): the newest boot of the MDS
 * that joined, and this store's own start. */
struct ds_seen {
	uint64_t sn_instance, sn_boot_id; /* id 0: not known */
	/* how often the store was opened; a random number of this start */
	uint64_t sn_start, sn_start_id;
	uint64_t sn_kept_instance; /* instance of the last durable join */
	uint32_t sn_kept_joins;	   /* number of that join in its instance; 0: it had none */
	/* the disk is full: the last join is in memory only, and the next one may be, too */
	bool sn_unkept;
};
struct ds_seen ds_store_seen(struct ds_fs *f);
/*
 * On the orders worker. Records which boot of the MDS has joined, and the number of the join in
 * that boot (0: it has none). Durable when it returns, except on a full disk (sn_unkept).
 * CTL_STALE_INSTANCE: the store knows a newer boot, or another one with the same number.
 */
ctl_status ds_store_join(struct ds_fs *f, uint64_t instance, uint64_t boot_id, uint32_t joins);
/* True unless a higher epoch is known. False: the peer is a deposed instance of the MDS. */
bool ds_store_instance_ok(struct ds_fs *f, uint64_t epoch);
/* The write verifier: read it BEFORE an unstable write starts, and AFTER a sync ended. */
uint64_t ds_store_verifier(struct ds_store *s);
bool ds_store_barred(struct ds_fs *f, uint32_t client);
/* The number of ranges of barred clients' numbers, and their memory in bytes. Any thread. */
size_t ds_store_bars(struct ds_fs *f, size_t *bytes);
/* On the orders worker. Clients that the MDS lists as live are live; all others of the span are
 * dead for ever and are barred, durably when it returns. *runs: as ds_store_bars returns. */
ctl_status ds_store_dead(struct ds_fs *f, const ctl_dead_args *a, unsigned *runs);
unsigned ds_store_open_objects(struct ds_store *s);

/*
 * Every change of an object by a client is between begin and end, its checks (epoch, barred,
 * deleted) inside: an order that fences or bars waits until all changes that began before it have
 * ended. Begin and end on the same thread.
 */
unsigned ds_write_begin(struct ds_store *s);
void ds_write_end(struct ds_store *s, unsigned token);

/* ---- objects ---- */

/* Returns a reference. -ENOENT: no such object (and create is false); -ESTALE: deleted, or lost.
 * May open a file; object.c says why that happens on the loop. */
int ds_obj_get(struct ds_store *s, const struct cap_object *key, bool create, struct ds_obj **out);
void ds_obj_put(struct ds_obj *o);
/* As ds_obj_get, for a call on a loop. A hold shares nothing with the calls of other loops that use
 * the object as well (hold.c). It is put on the same loop, before that loop is destroyed. All holds
 * of a loop belong to one store. */
struct ds_hold;
int ds_obj_hold(struct ds_store *s, const struct cap_object *key, bool create,
		struct ds_hold **out);
void ds_hold_put(struct ds_hold *h);
struct ds_obj *ds_hold_obj(const struct ds_hold *h);
uint32_t ds_obj_epoch(const struct ds_obj *o);
bool ds_obj_deleted(const struct ds_obj *o);
/* True when the object was known to exist and its file is gone: only its epoch is left. */
bool ds_obj_lost(struct ds_store *s, const struct cap_object *key);
int ds_obj_stat(const struct ds_obj *o, struct stat *st);

/* Sets the size, durably. Blocks: on a worker. */
int ds_obj_set_size(struct ds_obj *o, uint64_t size);

/* ---- I/O, on a loop; the request's memory is the caller's until its callback ---- */

/* Ranges of an object are granted in order: direct and buffered I/O on the same page exclude each
 * other, and so do writes of the same bytes. */
struct ds_range {
	struct loop_msg rg_msg;
	struct loop *rg_loop;
	void (*rg_granted)(struct ds_range *r);
	struct ds_range *rg_next, **rg_prevp;
	struct ds_hold *rg_fast;    /* held without ob_lock; see range.c */
	uint64_t rg_first, rg_last; /* pages */
	uint64_t rg_from, rg_to;    /* the bytes of a write, without rg_to itself */
	bool rg_direct, rg_alone, rg_held, rg_write, rg_claimed;
};

struct ds_rw;
struct ds_piece {
	struct loop_io pc_io;
	struct ds_rw *pc_rw;
	struct ds_range pc_range;
	uint64_t pc_off;
	uint32_t pc_len, pc_done;
	uint8_t *pc_mem;
	bool pc_direct, pc_polled;
};
struct ds_rw {
	struct ds_obj *rw_obj;	 /* the caller's reference */
	struct ds_hold *rw_hold; /* the hold of rw_obj, or NULL */
	uint64_t rw_off;
	uint32_t rw_len; /* 1..DS_MAX_IO */
	/* best on a 4096-byte boundary. A read may store up to the next multiple of 4096 bytes */
	uint8_t *rw_mem;
	/* res: bytes (a read is short only at the end) or a negative errno */
	void (*rw_done)(struct ds_rw *rw, int res);
	/* the store's own */
	struct ds_piece rw_piece[3];
	unsigned rw_npieces, rw_left;
	int rw_err;
	bool rw_write;
	uint64_t rw_request; /* log_request of the caller */
};
void ds_obj_read(struct ds_rw *rw);
/* All bytes or an error. The write is counted in the object before rw_done. */
void ds_obj_write(struct ds_rw *rw);

struct ds_sync {
	struct ds_obj *sy_obj; /* the caller's reference */
	bool sy_full;	       /* times as well (FILE_SYNC) */
	void (*sy_done)(struct ds_sync *sy, int err);
	/* the store's own */
	struct loop_msg sy_msg;
	struct loop *sy_loop;
	struct ds_sync *sy_next;
	int sy_err;
	uint64_t sy_request; /* log_request of the caller */
};
/* Makes durable all that was written before the call, and that the object exists. Concurrent calls
 * share one fsync. */
void ds_obj_sync(struct ds_sync *sy);

/* ---- memory for reads: page-aligned ---- */
struct ds_buf {
	uint8_t *b_data;
	struct ds_buf *b_next;
	struct ds_pool *b_pool;
	unsigned b_class;
	bool b_pooled; /* from the memory pool; else ordinary memory */
};
struct ds_buf_wait {
	void (*bw_ready)(struct ds_buf_wait *w, struct ds_buf *b);
	uint32_t bw_size;
	struct ds_buf_wait *bw_next;
	struct pool_wait bw_pool;
};
/* On this loop. size: at most DS_MAX_IO bytes. Calls bw_ready at once, or when others have returned
 * memory: requests wait, none is dropped. */
void ds_buf_get(struct ds_buf_wait *w, uint32_t size);
/* The bytes that a buffer of this size takes. */
uint32_t ds_buf_takes(uint32_t size);
/* As ds_buf_get, but only with memory of the pool, which must exist (RDMA sends from no other). */
void ds_buf_get_pooled(struct ds_buf_wait *w, uint32_t size);
void ds_buf_put(void *buf);

/* ---- work that blocks ---- */

struct ds_job {
	void (*jb_run)(struct ds_job *j); /* on a worker; it frees the job or hands it on */
	struct ds_job *jb_next;
};
/* ORDERS: one at a time, in order. FENCES: batches of nothing but fences and bars, which wait for
 * no other order. QUERIES: stat, list and closing, which do not wait behind orders. DATA: seeks and
 * changes of data, which take long. HEALTH: checks whether disks work. */
enum ds_worker_id {
	DS_WORKER_ORDERS,
	DS_WORKER_FENCES,
	DS_WORKER_QUERIES,
	DS_WORKER_DATA,
	DS_WORKER_HEALTH,
	DS_WORKERS
};
void ds_store_submit(struct ds_store *s, enum ds_worker_id w, struct ds_job *j);

/* On the orders worker. Durable when it returns. CTL_STALE_INSTANCE: nothing was done. */
ctl_status ds_store_orders(struct ds_fs *f, uint64_t instance, const ctl_order *orders, unsigned n,
			   ctl_status *results);
/* As ds_store_orders, on the fences worker, for fences and bars only (fences.c). */
ctl_status ds_store_fences(struct ds_fs *f, uint64_t instance, const ctl_order *orders, unsigned n,
			   ctl_status *results);
void ds_store_stat(struct ds_store *s, const ctl_object *o, ctl_stat *out);
/* Fills up to max entries, maybe none. An empty cookie_in starts, an empty *cookie_out ends.
 * -EINVAL: not a cookie. */
int ds_store_list(struct ds_fs *f, const void *cookie_in, unsigned inlen, unsigned max,
		  ctl_list_entry *entries, unsigned *n, uint8_t cookie_out[64], unsigned *outlen);

/* On the data worker (object_data.c). CTL_NOENT: the object does not exist, and reads as empty. */
ctl_status ds_store_seek(struct ds_store *s, const ctl_seek_args *a, ctl_seek_res *res);
ctl_status ds_store_change(struct ds_fs *f, const ctl_change_args *a, ctl_change_res *res);
#endif
