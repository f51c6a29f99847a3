/*
 * store.h - the objects of a data server, as plain files.
 *
 *   DIR/lock                      flock: one daemon per store
 *   DIR/identity                  text: version, uuid, name, cluster, fs
 *   DIR/journal/NNNN              deleted objects, barred clients, instance epoch, boot number
 *                                 (journal.c)
 *   DIR/counted                   since when mtimes are write counts (store.c)
 *   DIR/reserve                   room for the store's own files on a full disk (reserve.c)
 *   DIR/objects/XX/YY/NAME        the objects (proto/objname.h); xattr user.weft: fence epoch and
 *                                 last order
 *
 * With several folders, one for each drive, the first is the home, as above, and the others hold
 * objects and nothing else:
 *
 *   HOME/volumes                  text: version, and number, uuid and folder of each of the others
 *                                 (adopt.c)
 *   HOME/marks                    files above which number have no object in which (volume.c)
 *   DIR/volume                    text: version, the store's uuid, its own
 *   DIR/lock, DIR/objects         as in the home
 *
 * An object is made by its first write. One that is not there reads as empty, unless it was
 * deleted: then -ESTALE, for as long as a grant from before may be in use (so_tomb_keep_ms).
 *
 * Threads. Objects are looked up by any loop; I/O runs on the ring of the calling loop and
 * completes there. What blocks (orders, stat, list) runs on the store's workers, never on a loop.
 *
 * Durability. A write is stable after ds_obj_sync() says so. A sync that fails changes the write
 * verifier before anybody is told of a later success, so that every client whose unstable data may
 * be lost sends it again.
 *
 * Errors are negative errno.
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

struct ds_store;
struct ds_obj;

struct ds_store_opts {
	/* folders with commas between them, the home first; at most DS_VOLUMES_MAX */
	const char *so_dir;
	const char *so_name;	/* "": the name in the store, or the host's */
	const uint8_t *so_uuid; /* of a store that is made now; NULL: a random one */
	/* objects kept open while nobody uses them; 0: from RLIMIT_NOFILE */
	unsigned so_max_open;
	uint64_t so_tomb_keep_ms; /* how long a deleted object is remembered, at least */
	bool so_no_direct;	  /* never O_DIRECT */
	/* direct I/O is polled for, on loops with a ring for that, where the drive has queues for
	 * it */
	bool so_poll;
};

struct ds_identity {
	uint8_t id_uuid[DS_UUID_LEN];
	uint8_t id_cluster[DS_UUID_LEN]; /* zero before the first join */
	char id_name[DS_NAME_MAX + 1];
	uint32_t id_fs;
};

/* Makes the store when the folder is empty or missing. On error err holds one line for the
 * administrator. */
int ds_store_open(struct ds_store **out, const struct ds_store_opts *opts, char *err,
		  size_t errlen);
/* No object may be in use. */
void ds_store_close(struct ds_store *s);
/* The daemon ends in order: all is on the disk. The loops have stopped. */
void ds_store_sync(struct ds_store *s);
/* The metrics of the store; once, before other threads run. */
void ds_store_metrics_init(void);

/* Those of its volumes: names and space. Once, as above; the store is never closed. */
void ds_store_volume_metrics(struct ds_store *s);
/* The folders of a list such as so_dir; malloc'd. */
int ds_dirs_parse(const char *list, char *dirs[DS_VOLUMES_MAX], unsigned *n, char *err,
		  size_t errlen);
void ds_dirs_free(char *dirs[DS_VOLUMES_MAX], unsigned n);

/* By value: a join may change it. */
struct ds_identity ds_store_identity(struct ds_store *s);
/* Durable when it returns 0. Blocks on the disk (a join does it once). */
int ds_store_set_cluster(struct ds_store *s, const uint8_t cluster[DS_UUID_LEN], uint32_t fs);
/* A small file of the home, of this name. Get: as a string, 0 or a negative errno. Put: durable
 * when it returns 0. */
int ds_store_text_get(struct ds_store *s, const char *name, char *text, size_t size);
int ds_store_text_put(struct ds_store *s, const char *name, const char *text);
/* The folders that the objects are in; the first is the home. */
unsigned ds_store_volumes(const struct ds_store *s);
const char *ds_store_volume_dir(const struct ds_store *s, unsigned i);
struct statvfs;
int ds_store_statvfs(struct ds_store *s, struct statvfs *v);
/* Of the volumes that work; available is 0 while the home does not. Looks after volumes that nobody
 * uses: with each report to the MDS. */
void ds_store_space(struct ds_store *s, uint64_t *capacity, uint64_t *available);
/* What reflinks are multiples of; 0: not every volume's file system has them. */
uint32_t ds_store_clone_block(struct ds_store *s);
/* The disk of a volume does not work, as far as is known (health.c). */
bool ds_store_failing(struct ds_store *s);
/* Of orders that it has seen, in steps of CTL_ORDER_STEP, as a crash leaves it. */
uint64_t ds_store_order_high(struct ds_store *s);
/* What the two sides of a join compare (docs/recovery.md): the MDS's newest boot that was joined,
 * and this store's own start. */
struct ds_seen {
	uint64_t sn_instance, sn_boot_id; /* id 0: not known */
	uint64_t sn_start, sn_start_id;	  /* how often the store was opened; random, of this time */
	uint64_t sn_kept_instance;	  /* the last join that is durable: of this instance, */
	uint32_t sn_kept_joins;		  /* its number there; 0: it had none */
	bool sn_unkept; /* the disk is full: the last join is in memory only, and the next one might
			   be */
};
struct ds_seen ds_store_seen(struct ds_store *s);
/*
 * On the orders worker: the MDS's boot that is joined, and the number of the join in it (0: it has
 * none), durable when it returns, but on a full disk (sn_unkept). CTL_STALE_INSTANCE: a newer one
 * is known, or another one with the same number.
 */
ctl_status ds_store_join(struct ds_store *s, uint64_t instance, uint64_t boot_id, uint32_t joins);
/* True unless a higher epoch is known: the peer is not a deposed instance of the MDS. */
bool ds_store_instance_ok(struct ds_store *s, uint64_t epoch);
/* The write verifier: read it BEFORE an unstable write starts, and AFTER a sync ended. */
uint64_t ds_store_verifier(struct ds_store *s);
bool ds_store_barred(struct ds_store *s, uint32_t client);
/* How many runs of barred clients' numbers there are, and what they take in memory. Any thread. */
size_t ds_store_bars(struct ds_store *s, size_t *bytes);
/* On the orders worker: clients that the MDS names as living live, and all others of the span are
 * dead for ever: they are barred, durably when it returns. *runs: as ds_store_bars. */
ctl_status ds_store_dead(struct ds_store *s, const ctl_dead_args *a, unsigned *runs);
unsigned ds_store_open_objects(struct ds_store *s);

/*
 * Every change of an object by a client is bracketed, its checks (epoch, barred, deleted) inside:
 * an order that fences or bars waits until all brackets opened before it have ended. Begin and end
 * on the same thread.
 */
unsigned ds_write_begin(struct ds_store *s);
void ds_write_end(struct ds_store *s, unsigned token);

/* ---- objects ---- */

/* A reference. -ENOENT: not there (and create is false); -ESTALE: deleted, or lost. May open a
 * file: see object.c for why that is done on the loop. */
int ds_obj_get(struct ds_store *s, const struct cap_object *key, bool create, struct ds_obj **out);
void ds_obj_put(struct ds_obj *o);
/* The same for a call on a loop, which shares nothing with the calls of other loops while these use
 * the object as well (hold.c). It ends on the same loop, before that is destroyed; a loop's are all
 * of one store. */
struct ds_hold;
int ds_obj_hold(struct ds_store *s, const struct cap_object *key, bool create,
		struct ds_hold **out);
void ds_hold_put(struct ds_hold *h);
struct ds_obj *ds_hold_obj(const struct ds_hold *h);
uint32_t ds_obj_epoch(const struct ds_obj *o);
bool ds_obj_deleted(const struct ds_obj *o);
/* It was known to exist, its file was gone, and there is no more of it than its epoch. */
bool ds_obj_lost(struct ds_store *s, const struct cap_object *key);
int ds_obj_stat(const struct ds_obj *o, struct stat *st);

/* Sets the size, durably. Blocks: on a worker. */
int ds_obj_set_size(struct ds_obj *o, uint64_t size);

/* ---- I/O, on a loop; the request's memory is the caller's until its callback ---- */

/* Taken in order per object: direct and buffered I/O on the same page exclude each other, and so do
 * writes of the same bytes. */
struct ds_range {
	struct loop_msg rg_msg;
	struct loop *rg_loop;
	void (*rg_granted)(struct ds_range *r);
	struct ds_range *rg_next, **rg_prevp;
	struct ds_hold *rg_fast;    /* it is held without ob_lock; see range.c */
	uint64_t rg_first, rg_last; /* pages */
	uint64_t rg_from, rg_to;    /* of a write: the bytes; rg_to is not in it */
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
	struct ds_hold *rw_hold; /* that it is of, or NULL */
	uint64_t rw_off;
	uint32_t rw_len; /* at most DS_MAX_IO; not 0 */
	/* best on a 4096-byte boundary. A read may store up to the next multiple of 4096 bytes */
	uint8_t *rw_mem;
	/* bytes (a read is short only at the end) or -errno */
	void (*rw_done)(struct ds_rw *rw, int res);
	/* the store's own */
	struct ds_piece rw_piece[3];
	unsigned rw_npieces, rw_left;
	int rw_err;
	bool rw_write;
};
void ds_obj_read(struct ds_rw *rw);
/* All bytes or an error. Counted as one write of the object before rw_done. */
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
};
/* Makes durable what was written before the call, and that the object exists. Calls that meet share
 * one fsync. */
void ds_obj_sync(struct ds_sync *sy);

/* ---- memory for reads: page-aligned ---- */
struct ds_buf {
	uint8_t *b_data;
	struct ds_buf *b_next;
	struct ds_pool *b_pool;
	unsigned b_class;
	bool b_pooled; /* of the memory pool, else ordinary memory */
};
struct ds_buf_wait {
	void (*bw_ready)(struct ds_buf_wait *w, struct ds_buf *b);
	uint32_t bw_size;
	struct ds_buf_wait *bw_next;
	struct pool_wait bw_pool;
};
/* At most DS_MAX_IO bytes. bw_ready is called at once, or when others have given memory back:
 * requests wait, none is dropped. On this loop. */
void ds_buf_get(struct ds_buf_wait *w, uint32_t size);
/* What such a buffer takes. */
uint32_t ds_buf_takes(uint32_t size);
/* The same, and nothing but memory of the pool, which there must be (RDMA sends from no other). */
void ds_buf_get_pooled(struct ds_buf_wait *w, uint32_t size);
void ds_buf_put(void *buf);

/* ---- work that blocks ---- */

struct ds_job {
	void (*jb_run)(struct ds_job *j); /* on a worker; it frees or hands on the job */
	struct ds_job *jb_next;
};
/* ORDERS: one at a time, in order. FENCES: batches of nothing but fences and bars, which wait for
 * no other order. QUERIES: stat, list and closing; do not wait behind orders. DATA: what takes
 * long, seeks and changes of data. HEALTH: asking disks whether they work. */
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
ctl_status ds_store_orders(struct ds_store *s, uint64_t instance, const ctl_order *orders,
			   unsigned n, ctl_status *results);
/* The same on the fences worker, of fences and bars alone (fences.c). */
ctl_status ds_store_fences(struct ds_store *s, uint64_t instance, const ctl_order *orders,
			   unsigned n, ctl_status *results);
void ds_store_stat(struct ds_store *s, const ctl_object *o, ctl_stat *out);
/* Fills entries (room for max), maybe none; cookie_in empty starts, *cookie_out empty ends. -EINVAL
 * for a cookie that is none. */
int ds_store_list(struct ds_store *s, const void *cookie_in, unsigned inlen, unsigned max,
		  ctl_list_entry *entries, unsigned *n, uint8_t cookie_out[64], unsigned *outlen);

/* On the data worker (data.c). CTL_NOENT: the object is not there, and reads as empty. */
ctl_status ds_store_seek(struct ds_store *s, const ctl_seek_args *a, ctl_seek_res *res);
ctl_status ds_store_change(struct ds_store *s, const ctl_change_args *a, ctl_change_res *res);
#endif
