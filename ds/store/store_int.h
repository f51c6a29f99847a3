/* SPDX-License-Identifier: Apache-2.0 */
/* store_int.h - inside ds/store. Lock order: sh_lock, then j_lock or s_marks_lock; ob_lock is taken
 * alone. */
#ifndef DS_STORE_STORE_INT_H
#define DS_STORE_STORE_INT_H
#include "base/format.h"
#include "base/hash.h"
#include "base/metrics.h"
#include "ds/store/store.h"
#include "proto/objname.h"
#include <pthread.h>

#define DS_SHARDS    64
#define DS_CELLS     64
#define DS_XATTR     "user.weft"
#define DS_UUID_TEXT (2 * DS_UUID_LEN + 1)

/* The xattr of an object, big-endian. Absent: all zero. Version 1 ends after the order. Version 3
 * is version 2 of a lost object: a program that does not know about lost objects must not take it
 * for an empty one. */
#define DS_META_VERSION	     2
#define DS_META_VERSION_LOST 3
#define DS_META_LEN1	     16
enum { DS_META_REBUILDING = 1, DS_META_LOST = 2 };
struct ds_meta {
	uint8_t m_version, m_flags, m_zero[2];
	uint32_t m_epoch;
	uint64_t m_order;
	uint32_t m_begun; /* the epoch of the last BEGIN of a rebuild */
	uint32_t m_zero2;
};
_Static_assert(sizeof(struct ds_meta) == 24, "the xattr's format");
_Static_assert(offsetof(struct ds_meta, m_begun) == DS_META_LEN1, "the xattr's first format");

/* The kind of a range lock: buffered, direct, alone. In ob_fast the third means none. */
enum { DS_KIND_BUFFERED, DS_KIND_DIRECT, DS_KIND_ALONE, DS_KINDS, DS_FAST_NONE = DS_KIND_ALONE };

struct ds_holds;
struct ds_hold {
	_Alignas(64) struct hash_link hld_link;
	struct ds_obj *hld_obj; /* a reference */
	struct ds_holds *hld_of;
	unsigned hld_uses;
	/* ranges that are held without ob_lock; of these, from bit 32 on, writes */
	_Atomic uint64_t hld_fast;
	struct ds_hold *hld_next, **hld_prevp; /* ob_holds */
};

struct ds_obj {
	/* Each call reads these, and few write them */
	struct ds_store *ob_store;
	struct ds_vol *ob_vol;
	struct cap_object ob_key;
	int ob_fd;	    /* buffered */
	_Atomic int ob_dfd; /* O_DIRECT; -1 not opened yet, -2 not possible */
	_Atomic uint32_t ob_epoch;
	_Atomic bool ob_deleted;
	_Atomic bool ob_rebuilding; /* rebuild.h */
	/* it was known to exist and its file is gone, or it is a clone of such an object: no client
	 * reads its contents */
	_Atomic bool ob_lost;
	_Atomic bool ob_watched; /* there is an ob_watch */
	/* the kind of ranges that need no ob_lock, if any (range.c); changes under ob_lock */
	_Atomic unsigned ob_fast;

	/* the shard's lock guards this, ob_refs and the LRU */
	_Alignas(64) struct hash_link ob_link;
	struct ds_shard *ob_shard;
	unsigned ob_refs;
	struct ds_obj *ob_newer, *ob_older; /* LRU, when ob_refs is 0 */
	bool ob_hashed;
	struct ds_job ob_close;
	pthread_mutex_t ob_meta_lock; /* held over a change of the xattr; after the shard's lock */
	struct ds_put {
		uint64_t pu_order;
		uint32_t pu_epoch, pu_begun;
		uint8_t pu_flags;
	} ob_put; /* contents of the xattr; pu_epoch 0: it may not be durable */

	_Atomic uint64_t ob_writes; /* since it was loaded */
	/* a write has ended since STAT last reported ob_told; see ds_obj_count */
	_Atomic bool ob_news;
	/* ns; the queries worker's, or under the shard's lock when the object has no references */
	uint64_t ob_told, ob_stored;
	_Atomic uint64_t ob_unsynced; /* 0: all that was written is durable */
	/* highest order that is done and durable; the orders worker's, after obj_load */
	uint64_t ob_order;
	uint64_t ob_order_new; /* the same, with the orders of the batch in progress */
	uint32_t ob_begun;     /* ds_meta.m_begun; the orders worker's as well */

	pthread_mutex_t ob_lock;		     /* guards all below */
	struct ds_range *ob_ranges, **ob_ranges_end; /* held and waiting, in order of arrival */
	unsigned ob_nrange[DS_KINDS];
	/* of these: writes; and writes without a claim, see range.c */
	unsigned ob_nwrites, ob_nbare;
	unsigned ob_was_fast; /* the last kind that ob_fast was */
	unsigned ob_calm;     /* ranges in a row that met none of another kind, up to RANGE_CALM */
	struct ds_hold *ob_holds;
	struct ds_sync *ob_sync_wait; /* for the next sync */
	bool ob_sync_running;
	bool ob_dir_unsynced;	       /* its name may not be durable */
	struct ds_session *ob_session; /* of its rebuild */
	struct ds_watch *ob_watch;     /* watch.c */
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
	/* a younger order is to make the object again: the tombstone is in no segment any more */
	bool t_over;
	bool t_gone; /* the object was made again: the tombstone is out of the table */
};

struct ds_journal {
	pthread_mutex_t j_lock; /* guards the table of tombstones */
	struct hash j_tombs;
	struct ds_tomb *j_oldest, **j_newest;
	_Atomic size_t j_ntombs;
	pthread_mutex_t j_append_lock; /* guards all below; before j_lock */
	int j_dirfd, j_fd;
	uint64_t j_seq; /* number of the segment at j_fd */
	uint64_t j_bytes;
	_Atomic bool j_broken; /* an append failed: the segment's end is unknown */
	bool j_older;	       /* segments before it are kept: a volume could not be synced */
};

struct ds_worker {
	pthread_t w_thread;
	pthread_mutex_t w_lock;
	pthread_cond_t w_cond;
	struct ds_job *w_first, **w_end;
	/* w_waits: the thread waits for w_cond, which was not signalled yet */
	bool w_stop, w_started, w_waits;
};

struct ds_health {
	_Atomic unsigned h_errors[2]; /* reads, writes: errors in a row */
	_Atomic bool h_failing, h_probing;
	_Atomic uint64_t h_again_ms; /* when a probe is due */
	_Atomic uint64_t h_look_ms;  /* when the volume is checked next */
	struct ds_job h_job;	     /* h_probing's */
};

/* A volume: a folder with objects. Lives as long as the store. */
struct ds_vol {
	struct ds_store *v_store;
	char *v_dir;
	unsigned v_number;	     /* in the home's list, for ever; 0 is the home */
	uint8_t v_uuid[DS_UUID_LEN]; /* not the home's */
	dev_t v_dev;
	ino_t v_ino;
	bool v_shares; /* on the file system of a volume named before it */
	int v_dirfd, v_objfd, v_lockfd;
	_Atomic bool v_direct;
	_Atomic bool v_polled; /* direct I/O is polled for */
	uint32_t v_dio_mem;    /* memory alignment that O_DIRECT wants */
	uint32_t v_clone_block;
	_Atomic uint64_t v_free, v_free_ms; /* bytes for new objects, and as of when */
	struct ds_health v_health;
	_Atomic uint8_t v_dir_durable[65536 / 8]; /* folders known to be durable in their parent */
};

/* The mark of one volume for one file system (volume.c). */
struct ds_mark {
	_Atomic uint64_t mr_high; /* no object of a file with a higher number was ever there */
	_Atomic uint64_t mr_mark; /* the same, durable: ahead of mr_high */
	_Atomic bool mr_marking;
	struct ds_job mr_job; /* mr_marking's */
	struct ds_fs *mr_fs;
	struct ds_vol *mr_vol;
};

/* A file system that the store serves (fs.c). Lives as long as the store. */
struct ds_fs {
	struct ds_store *fs_store;
	_Atomic uint32_t fs_number; /* 0: the home's, before the first join */
	unsigned fs_place;	    /* in s_fs; 0 is the home file system */
	struct ds_bars *fs_bars;    /* bars.c */
	/* guards raising the next three; and fs_joins to fs_join_unkept */
	pthread_mutex_t fs_state_lock;
	_Atomic uint64_t fs_instance, fs_order_high;
	_Atomic uint64_t fs_boot_id;	   /* of fs_instance; 0: not known */
	_Atomic uint64_t fs_order_durable; /* fs_order_high, as the journal has it */
	uint32_t fs_joins;		   /* the number of the last join of fs_instance; 0: none */
	uint64_t fs_kept_instance;	   /* these two: at least as the journal has them */
	uint32_t fs_kept_joins;
	bool fs_join_unkept;	      /* a full disk kept the last join out of the journal */
	_Atomic unsigned fs_deleting; /* batches in progress that delete */
	/* by number of volume, not the home's; s_marks_lock guards what the file has */
	struct ds_mark fs_mark[DS_VOLUMES_MAX];
	uint64_t fs_marks_seq, fs_marked[DS_VOLUMES_MAX];
	bool fs_marks_there; /* the file has its sectors */
};

struct ds_store {
	uint64_t s_reserve;			       /* so_reserve */
	struct ds_vol *s_vol[DS_VOLUMES_MAX], *s_home; /* by number, once it is open */
	unsigned s_nvols;
	/* s_fs_lock guards adding: the store's file systems, of which the first is the home's */
	pthread_mutex_t s_fs_lock;
	struct ds_fs *s_fs[DS_FS_MAX];
	_Atomic unsigned s_nfs;
	pthread_mutex_t s_marks_lock; /* guards the file, and fs_marked */
	int s_marks_fd;
	bool s_marks_new; /* all volumes beside the home were adopted by this start */
	bool s_marks_met; /* ds_marks_settle has run */
	uint64_t s_tomb_keep_ns;
	pthread_mutex_t s_id_lock;
	struct ds_identity s_id;
	bool s_listed;		    /* there is a list of volumes: the identity has version 2 */
	uint32_t s_boot, s_counted; /* s_counted: see ds_obj_count */
	bool s_opened;
	_Atomic uint64_t s_verifier;
	/* random, of this start: a copy of the store that is started has another one */
	uint64_t s_start_id;
	uint32_t s_clone_block;
	pthread_mutex_t s_drain_lock;
	pthread_mutex_t s_owed_lock; /* after a shard's lock */
	struct ds_owed *s_owed;	     /* fences.c */
	_Atomic size_t s_nowed;
	struct ds_journal s_journal;
	struct ds_worker s_worker[DS_WORKERS];
	pthread_mutex_t s_sessions_lock; /* rebuild.c; taken alone */
	struct ds_session *s_sessions;
	struct ds_watch *s_watches; /* the orders worker's */
	_Atomic unsigned s_nsessions;
	_Atomic unsigned s_open;    /* objects in memory */
	_Atomic unsigned s_gen;	    /* of ds_write_begin */
	_Atomic uint64_t *s_claims; /* range.c */
	uint64_t s_claims_mask;
	struct ds_cell s_cell[DS_CELLS];
	struct ds_shard s_shard[DS_SHARDS];
};

extern struct metric *ds_m_syncs, *ds_m_sync_failures, *ds_m_direct, *ds_m_buffered, *ds_m_fixed,
	*ds_m_polled, *ds_m_errors;

/* store.c */
void ds_verifier_change(struct ds_store *s);
/* On a worker. Waits until every ds_write_begin() before the call has ended. */
void ds_write_drain(struct ds_store *s);

int ds_identity_write(struct ds_store *s, const struct ds_identity *id);

/* fs.c. The store begins with a home file system that has no number yet. -ENOMEM */
int ds_fs_open(struct ds_store *s);
void ds_fs_close(struct ds_store *s);

/* adopt.c. Calls identity once the home may be written to, before the other folders are. */
int ds_volumes_open(struct ds_store *s,
		    int (*identity)(struct ds_store *s, void *arg, char *err, size_t errlen),
		    void *arg, char *err, size_t errlen);
/* Atomic and durable: a new file under another name, renamed. */
int ds_file_put(int dirfd, const char *name, const char *text);
/* Returns the length, or a negative errno. text ends in a NUL. */
ssize_t ds_file_get(int dirfd, const char *name, char *text, size_t size);

/* volume.c */
int ds_volumes_make(struct ds_store *s, const char *list, char *err, size_t errlen);
void ds_volumes_close(struct ds_store *s);
void ds_volumes_probe(struct ds_store *s, bool no_direct, bool poll);
/* syncfs of all volumes; *bad is the first one that failed, or that is failing. */
int ds_volumes_sync(struct ds_store *s, struct ds_vol **bad);
int ds_vol_subfolder(struct ds_vol *v);
/* new: by number, volumes that were just adopted. */
int ds_marks_open(struct ds_store *s, const bool new[DS_VOLUMES_MAX]);
/* Once the journal has been read: gives each file system that has no marks in the file its own. */
int ds_marks_settle(struct ds_store *s);
/* With s_fs_lock held: a file system that the store meets for the first time. */
void ds_marks_meet(struct ds_fs *f);
void ds_marks_close(struct ds_store *s);
/* Returns a descriptor of the object's file, and its volume. -ENOENT: it is in no volume. Another
 * error: it may be in one. */
int ds_vol_find(struct ds_store *s, const struct cap_object *key, struct ds_vol **vol);
/* Makes the object's file, in at or (NULL) in a volume that suits. The object is in no volume, and
 * the caller makes sure that no other thread makes it. lost: with the lost mark from the first
 * moment. */
int ds_vol_make(struct ds_store *s, const struct cap_object *key, bool lost, struct ds_vol *at,
		struct ds_vol **vol);
/* True when the volume takes new objects. */
bool ds_vol_has_room(struct ds_vol *v);
/* 0: the object is in no volume any more. */
int ds_vol_unlink(struct ds_store *s, const struct cap_object *key);

/* health.c. Any thread. Reports how a read or write of the volume's disk ended: bytes or a negative
 * errno. */
void ds_health_note(struct ds_vol *v, bool write, int err);
bool ds_of_the_disk(int err);
/* True when the store knows that the disk does not work. When it is time, probes the disk, on a
 * worker. */
bool ds_vol_failing(struct ds_vol *v);
/* Checks volumes that are not known to fail, when it is time; on a worker. */
void ds_health_look(struct ds_store *s);

/* reserve.c. Makes the reserve, or makes it whole, where there is space. Blocks. */
void ds_reserve_make(struct ds_store *s);
/* Gives up a part of the reserve, for the store's own files. False: nothing is left. Blocks. */
bool ds_reserve_give(struct ds_store *s);

/* journal.c */
/* STATE_OF is a STATE of a file system that is not the home's. */
enum ds_rec_type { DS_REC_STATE = 1, DS_REC_TOMB, DS_REC_BAR, DS_REC_RUN, DS_REC_STATE_OF };
/* 40 bytes on disk, big-endian. Programs from before RUN or STATE_OF records refuse a journal that
 * has one. */
struct ds_rec {
	/* STATE_OF: dsr_stripe and dsr_mirror are the file system's number, the high byte first */
	uint8_t dsr_version, dsr_type, dsr_stripe, dsr_mirror;
	/* STATE: these two are one number, of the last join of the instance; 0: none, or written by
	 * a program that stores none. BAR, RUN: dsr_fs 0 is the home file system. */
	uint16_t dsr_fs, dsr_incarnation;
	/* STATE: the instance's identity; 0: not known, or written by a program that stores none */
	uint64_t dsr_ino;
	uint64_t dsr_a;	     /* STATE: instance epoch; TOMB, BAR: order; RUN: its last client */
	uint64_t dsr_b;	     /* STATE: highest order */
	uint32_t dsr_client; /* STATE: boot number; BAR: client; RUN: its first client */
	uint32_t dsr_sum;
};
_Static_assert(sizeof(struct ds_rec) == 40, "the journal's format");
FORMAT_AT(struct ds_rec, dsr_version, 0, 1);
FORMAT_AT(struct ds_rec, dsr_type, 1, 1);
FORMAT_AT(struct ds_rec, dsr_stripe, 2, 1);
FORMAT_AT(struct ds_rec, dsr_mirror, 3, 1);
FORMAT_AT(struct ds_rec, dsr_fs, 4, 2);
FORMAT_AT(struct ds_rec, dsr_incarnation, 6, 2);
FORMAT_AT(struct ds_rec, dsr_ino, 8, 8);
FORMAT_AT(struct ds_rec, dsr_a, 16, 8);
FORMAT_AT(struct ds_rec, dsr_b, 24, 8);
FORMAT_AT(struct ds_rec, dsr_client, 32, 4);
FORMAT_AT(struct ds_rec, dsr_sum, 36, 4);
int ds_journal_open(struct ds_store *s, char *err, size_t errlen);
void ds_journal_close(struct ds_store *s);
/* Appends records in host order and makes them durable. Adds a STATE record with the current
 * state of this file system. */
int ds_journal_append(struct ds_fs *f, struct ds_rec *recs, unsigned n);
/* True after an append failed, until one succeeds: memory has state that is not durable. */
bool ds_journal_behind(struct ds_store *s);
struct ds_rec ds_rec_object(enum ds_rec_type type, const struct cap_object *o, uint64_t order);
/* True when the object is remembered as deleted. for_order: an order makes it, which may be younger
 * than the delete (ds_tombs_outlived). */
bool ds_tomb_bars(struct ds_store *s, const struct cap_object *o, bool for_order);
/* The object was made. */
void ds_tomb_drop(struct ds_store *s, const struct cap_object *o);
/*
 * Before orders are done: ends the tombstones of objects that the orders act on, if an order with a
 * lower number deleted the object. The metadata server gives an object no order after its delete,
 * unless its store was restored: then it has the object again. Waits until all volumes are synced,
 * if there are such objects. An object whose tombstone cannot leave the journal stays deleted.
 * beside: on the fences worker; -EAGAIN while a delete may not be complete.
 */
int ds_tombs_outlived(struct ds_fs *f, const ctl_order *orders, unsigned n, bool beside);
/* A range of one client becomes a BAR, which programs from before RUN records know. */
struct ds_rec ds_rec_run(const struct ds_fs *f, uint32_t first, uint32_t last);
struct ds_rec ds_rec_bar(const struct ds_fs *f, uint32_t client, uint64_t order);
int ds_tomb_add(struct ds_store *s, const struct cap_object *o, uint64_t order);
void ds_tomb_expire(struct ds_store *s);
/* As ds_journal_append, on the fences worker: it does not wait for all volumes because the segment
 * has grown. */
int ds_journal_add(struct ds_fs *f, struct ds_rec *recs, unsigned n);

/* bars.c: the barred clients in memory. -ENOMEM */
int ds_bars_open(struct ds_fs *f);
void ds_bars_close(struct ds_fs *f);
int ds_bar(struct ds_fs *f, uint32_t client);
/* Bars all clients from first to last. For the start: the counts are right only after
 * ds_bars_settle. */
int ds_bar_run(struct ds_fs *f, uint32_t first, uint32_t last);
void ds_bars_settle(struct ds_fs *f);
/* Locks the bars and returns how many ranges there are. ds_bars_each then calls run for each, in
 * rising order; then unlock. */
size_t ds_bars_lock(struct ds_fs *f);
void ds_bars_each(struct ds_fs *f, void (*run)(void *arg, uint32_t first, uint32_t last),
		  void *arg);
void ds_bars_unlock(struct ds_fs *f);

/* object.c */
uint64_t ds_key_hash(const struct cap_object *o);
bool ds_key_equal(const struct cap_object *a, const struct cap_object *b);
int ds_objects_init(struct ds_store *s, unsigned max_idle);
void ds_objects_drop(struct ds_store *s);
/* A write has ended. */
void ds_obj_wrote(struct ds_obj *o);
/* On the queries worker. fstat, and the write count that STAT reports. */
int ds_obj_count(struct ds_obj *o, struct stat *st, uint64_t *count);
int ds_mtime_set(int fd, uint64_t ns);
/* Sets the file's size and leaves its mtime. */
int ds_obj_cut(int fd, uint64_t size);
static inline uint64_t ds_mtime_ns(const struct stat *st)
{
	return (uint64_t)st->st_mtim.tv_sec * 1000000000u + (uint64_t)st->st_mtim.tv_nsec;
}
/* Remembers the delete and takes the object out of the table: every later lookup gets -ESTALE. */
int ds_obj_kill(struct ds_store *s, const struct cap_object *key, uint64_t order);
int ds_meta_put(int fd, uint32_t epoch, uint64_t order, uint8_t flags, uint32_t begun);
/* As ds_meta_put, for an object open at fd, with its epoch in memory. */
int ds_obj_meta_put(struct ds_obj *o, int fd, uint64_t order, uint8_t flags, uint32_t begun);
/* From now on the epoch in memory is this one or higher. */
void ds_obj_raise(struct ds_obj *o, uint32_t epoch);
/* The epoch in the xattr; 0: not known. */
uint32_t ds_obj_put_epoch(struct ds_obj *o);
uint8_t ds_obj_flags(const struct ds_obj *o);
/* Opens a descriptor for the caller alone: its fsync takes no error away from others. */
int ds_obj_reopen(const struct ds_obj *o);
int ds_obj_direct_fd(struct ds_obj *o);
/* True when the object's name is on stable storage. For an object of an earlier run this is not
 * known before the next sync. */
bool ds_obj_durable(struct ds_obj *o);
/* fsyncs the folders that hold o's name, as far as needed. Blocks. */
int ds_obj_sync_dirs(struct ds_obj *o);
/* A sync of the object's bytes failed with this -errno: says so, and changes the write verifier. */
void ds_obj_sync_failed(struct ds_obj *o, int err);
bool ds_dir_is_durable(struct ds_vol *v, uint16_t folder);
void ds_dir_set_durable(struct ds_vol *v, uint16_t folder);
/* Opens "XX/YY" or "XX" for an fsync. */
int ds_dir_open(struct ds_vol *v, uint16_t folder, bool parent);
/* As ds_obj_get, but makes a new object in this volume (NULL: any). An object in another volume
 * stays there. */
int ds_obj_get_at(struct ds_store *s, const struct cap_object *key, bool create, struct ds_vol *at,
		  struct ds_obj **out);
/* As ds_obj_get_at, but also returns a lost object: for orders, rebuilds and reports about objects.
 * DS_MAKE_LOST: an object that does not exist is lost from now on. */
enum ds_make { DS_MAKE_NOT, DS_MAKE_NEW, DS_MAKE_LOST };
int ds_obj_get_any(struct ds_store *s, const struct cap_object *key, enum ds_make make,
		   struct ds_vol *at, struct ds_obj **out);
/* On the orders worker. Removes the object's file, durably, and makes an empty one in v, with the
 * same mtime. *out is a reference to the new object; lookups no longer return the old one. The new
 * object is durable when the order is that has this epoch. -EALREADY: the object has a higher
 * epoch, and stays. */
int ds_obj_remake(struct ds_obj *o, struct ds_vol *v, uint32_t epoch, struct ds_obj **out);

/* object_data.c. Clones an order's objects; the target is open at fd. Leaves the mtime alone.
 * Copies where the objects are in two volumes. */
int ds_clone(const ctl_order *o, const struct ds_obj *source, const struct ds_obj *target, int fd);
/* The size to which the end of a clone is rounded up: from there on the target is left as it
 * was. */
uint32_t ds_clone_rounds(const ctl_order *o, const struct ds_obj *target);
/* True when the clone overwrites all data in fd. Or a negative errno. */
int ds_clone_is_all(const ctl_order *o, int fd);
/* orders.c. False: no object has these numbers. */
bool ds_key_of(const ctl_object *o, struct cap_object *key);
ctl_status ds_ctl_status(int err);
/* Logs that the object is lost, if it is. */
void ds_lost_tell(const struct ds_obj *o);

/* Begins a batch of orders: checks that it comes from the MDS that counts. Before any order of it
 * is done, the journal gets what it must have (the highest order, the instance), unless the disk is
 * full. add: ds_journal_append or ds_journal_add. *items: n zeroed items of item bytes each, which
 * the caller frees. Not CTL_OK: do nothing. */
ctl_status ds_batch_begin(struct ds_fs *f, uint64_t instance, const ctl_order *orders, unsigned n,
			  size_t item, int (*add)(struct ds_fs *, struct ds_rec *, unsigned),
			  void **items);

/* fences.c. Records an epoch that is yet to be stored: a load of the object gets it, under the
 * shard's lock. Without memory the fence is not done. */
int ds_owe(struct ds_store *s, const struct cap_object *key, uint32_t epoch);
void ds_owe_done(struct ds_store *s, const struct cap_object *key, uint32_t epoch);
uint32_t ds_owed_epoch(struct ds_store *s, const struct cap_object *key);
void ds_owed_close(struct ds_store *s);

/* range.c */
int ds_claims_init(struct ds_store *s);
void ds_claims_close(struct ds_store *s);
/* Initializes the ranges of a new object. */
void ds_range_init(struct ds_obj *o);
/* h: the caller's hold of o, on its loop, or NULL. True: the lock is held; false: rg_granted is
 * called later. */
bool ds_range_lock(struct ds_obj *o, struct ds_range *r, struct ds_hold *h);
void ds_range_unlock(struct ds_obj *o, struct ds_range *r);
/* True when writes have begun, or may begin at any moment, and are not unlocked yet. */
bool ds_range_writing(struct ds_obj *o);
#endif
