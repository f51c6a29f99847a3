/* store_int.h - inside ds/store. Lock order: sh_lock, then j_lock; ob_lock is taken alone. */
#ifndef DS_STORE_STORE_INT_H
#define DS_STORE_STORE_INT_H
#include "base/hash.h"
#include "base/metrics.h"
#include "ds/store/store.h"
#include "proto/objname.h"
#include <pthread.h>

#define DS_SHARDS	64
#define DS_CELLS	64
#define DS_XATTR	"user.weft"

/* The xattr of an object, big-endian. Absent: all zero. */
#define DS_META_VERSION 1
struct ds_meta {
	uint8_t m_version, m_zero[3];
	uint32_t m_epoch;
	uint64_t m_order;
};
_Static_assert(sizeof(struct ds_meta) == 16, "the xattr's format");

struct ds_obj {
	struct hash_link ob_link; /* under the shard's lock, as are ob_refs and the LRU */
	struct ds_shard *ob_shard;
	struct ds_store *ob_store;
	struct cap_object ob_key;
	unsigned ob_refs;
	struct ds_obj *ob_newer, *ob_older; /* LRU, when ob_refs is 0 */
	bool ob_hashed;
	struct ds_job ob_close;

	int ob_fd;			   /* buffered */
	_Atomic int ob_dfd;	   /* O_DIRECT; -1 not opened yet, -2 not possible */
	_Atomic uint32_t ob_epoch;
	_Atomic bool ob_deleted;
	_Atomic uint64_t ob_writes; /* since it was loaded */
	_Atomic bool ob_news;	   /* written since the mtime in ob_told; see ds_obj_count */
	uint64_t ob_told;		   /* ns; the queries worker's, or under the shard's lock when nobody refers to the object */
	_Atomic uint64_t ob_unsynced; /* 0: all that was written is durable */
	uint64_t ob_order;	   /* highest order that is done and durable; the orders worker's, after obj_load */
	uint64_t ob_order_new; /* the same, with those of the batch being done */

	pthread_mutex_t ob_lock; /* what is below */
	struct ds_range *ob_ranges, **ob_ranges_end; /* held and waiting, in order of arrival */
	unsigned ob_nrange[2];	 /* buffered, direct */
	struct ds_sync *ob_sync_wait; /* for the next sync */
	bool ob_sync_running;
	bool ob_dir_unsynced;	 /* its name may not be durable */
};

struct ds_shard {
	_Alignas(64) pthread_mutex_t sh_lock;
	struct hash sh_hash;
	struct ds_obj *sh_newest, *sh_oldest;
	unsigned sh_idle, sh_max_idle;
};

struct ds_cell {
	_Alignas(64) _Atomic uint32_t c_open[2];
};

struct ds_tomb {
	struct hash_link t_link;
	struct cap_object t_key;
	uint64_t t_order, t_expires_ns;
	struct ds_tomb *t_next; /* the next to expire */
};

struct ds_journal {
	pthread_mutex_t j_lock; /* the table of tombstones */
	struct hash j_tombs;
	struct ds_tomb *j_oldest, **j_newest;
	_Atomic size_t j_ntombs;
	/* the orders worker's (and ds_store_open's) */
	int j_dirfd, j_fd;
	uint64_t j_seq;		/* number of the segment at j_fd */
	uint64_t j_bytes;
	bool j_broken;		/* an append failed: the segment's end is unknown */
};

struct ds_barred {
	size_t br_n;
	uint32_t br_client[]; /* ascending */
};

struct ds_worker {
	pthread_t w_thread;
	pthread_mutex_t w_lock;
	pthread_cond_t w_cond;
	struct ds_job *w_first, **w_end;
	bool w_stop, w_started;
};

struct ds_health {
	_Atomic unsigned h_errors[2]; /* reads, writes: one after another */
	_Atomic bool h_failing, h_probing;
	_Atomic uint64_t h_again_ms; /* when a probe is due */
	struct ds_job h_job;		 /* h_probing's */
};

struct ds_store {
	int s_dirfd, s_objfd, s_lockfd;
	char *s_dir;
	uint64_t s_tomb_keep_ns;
	pthread_mutex_t s_id_lock;
	struct ds_identity s_id;
	uint32_t s_boot, s_counted; /* counted: see ds_obj_count */
	bool s_opened;
	_Atomic uint64_t s_instance, s_order_high, s_verifier;
	_Atomic bool s_direct;
	uint32_t s_clone_block;
	uint32_t s_dio_mem; /* memory alignment that O_DIRECT wants */
	struct ds_barred *s_barred; /* RCU */
	struct ds_journal s_journal;
	struct ds_worker s_worker[DS_WORKERS];
	struct ds_health s_health;
	_Atomic unsigned s_open; /* objects in memory */
	_Atomic unsigned s_gen;  /* of ds_write_begin */
	struct ds_cell s_cell[DS_CELLS];
	struct ds_shard s_shard[DS_SHARDS];
	_Atomic uint8_t s_dir_durable[65536 / 8]; /* folders known to be durable in their parent */
};

extern struct metric *ds_m_syncs, *ds_m_sync_failures, *ds_m_direct, *ds_m_buffered, *ds_m_fixed, *ds_m_errors;

/* store.c */
void ds_verifier_change(struct ds_store *s);
/* Waits until every ds_write_begin() before the call has ended. On a worker. */
void ds_write_drain(struct ds_store *s);

/* health.c: how a read or write of the disk ended, bytes or a negative errno. Any thread. */
void ds_health_note(struct ds_store *s, bool write, int err);

/* journal.c */
enum ds_rec_type { DS_REC_STATE = 1, DS_REC_TOMB, DS_REC_BAR };
/* 40 bytes on disk, big-endian */
struct ds_rec {
	uint8_t r_version, r_type, r_stripe, r_mirror;
	uint16_t r_fs, r_incarnation;
	uint64_t r_ino;
	uint64_t r_a; /* STATE: instance epoch; TOMB, BAR: order */
	uint64_t r_b; /* STATE: highest order */
	uint32_t r_client; /* STATE: boot number; BAR: client */
	uint32_t r_sum;
};
_Static_assert(sizeof(struct ds_rec) == 40, "the journal's format");
int ds_journal_open(struct ds_store *s, char *err, size_t errlen);
void ds_journal_close(struct ds_store *s);
/* Appends and makes durable. Host-order records; a STATE record of now is added. */
int ds_journal_append(struct ds_store *s, struct ds_rec *recs, unsigned n);
struct ds_rec ds_rec_object(enum ds_rec_type type, const struct cap_object *o, uint64_t order);
/* 0: remembered as deleted; -ENOENT; *order is the delete's. */
int ds_tomb_find(struct ds_store *s, const struct cap_object *o, uint64_t *order);
int ds_tomb_add(struct ds_store *s, const struct cap_object *o, uint64_t order);
void ds_tomb_expire(struct ds_store *s);
/* Into the set in memory. */
int ds_bar(struct ds_store *s, uint32_t client);

/* object.c */
uint64_t ds_key_hash(const struct cap_object *o);
bool ds_key_equal(const struct cap_object *a, const struct cap_object *b);
int ds_objects_init(struct ds_store *s, unsigned max_idle);
void ds_objects_drop(struct ds_store *s);
/* A write has ended. */
void ds_obj_wrote(struct ds_obj *o);
/* fstat, and what STAT tells as the write count. On the queries worker. */
int ds_obj_count(struct ds_obj *o, struct stat *st, uint64_t *count);
int ds_mtime_set(int fd, uint64_t ns);
/* Sets the file's size and leaves its mtime. */
int ds_obj_cut(int fd, uint64_t size);
static inline uint64_t ds_mtime_ns(const struct stat *st)
{
	return (uint64_t)st->st_mtim.tv_sec * 1000000000u + (uint64_t)st->st_mtim.tv_nsec;
}
/* Remembers the delete and takes the object out of the table: whoever looks it up from now on gets -ESTALE. */
int ds_obj_kill(struct ds_store *s, const struct cap_object *key, uint64_t order);
int ds_meta_put(int fd, uint32_t epoch, uint64_t order);
/* A descriptor of one's own: its fsync takes no error away from others. */
int ds_obj_reopen(const struct ds_obj *o);
int ds_obj_direct_fd(struct ds_obj *o);
/* fsyncs the folders that hold o's name, as far as needed. Blocks. */
int ds_obj_sync_dirs(struct ds_obj *o);
bool ds_dir_is_durable(struct ds_store *s, uint16_t folder);
void ds_dir_set_durable(struct ds_store *s, uint16_t folder);
/* Opens "XX/YY" or "XX" for an fsync. */
int ds_dir_open(struct ds_store *s, uint16_t folder, bool parent);

/* data.c: of an order's objects, the target open at fd. Leaves the mtime alone. */
int ds_clone(struct ds_store *s, const ctl_order *o, const struct ds_obj *source, int fd);
/* orders.c. False: no object has these numbers. */
bool ds_key_of(const ctl_object *o, struct cap_object *key);
ctl_status ds_ctl_status(int err);

/* range.c */
bool ds_range_lock(struct ds_obj *o, struct ds_range *r);
void ds_range_unlock(struct ds_obj *o, struct ds_range *r);
#endif
